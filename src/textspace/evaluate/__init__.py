"""Estimators, each exactly once."""
