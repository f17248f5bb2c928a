"""The measures, each in the module of what it is about; `evaluate/registry.py` joins them."""
