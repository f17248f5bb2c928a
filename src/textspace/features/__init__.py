"""What each dimension of a space means: when it is on, in which sentences, with which words and classes."""

from textspace.features.reading import read_features
from textspace.features.results import Association, Dimension, Effect, Example, Features, Probe, Side, Word

__all__ = ["Association", "Dimension", "Effect", "Example", "Features", "Probe", "Side", "Word", "read_features"]
