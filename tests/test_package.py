"""The public names of the package."""

import textspace
from textspace.space import Space


def test_public_names_stay_what_they_are_whatever_was_imported() -> None:
    assert Space is textspace.Space  # which imports nearly all there is
    for _ in range(2):
        for name in textspace.__all__:
            found = getattr(textspace, name)
            assert isinstance(found, str) if name == "__version__" else callable(found), name
