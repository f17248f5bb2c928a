"""Every measure by name, and the themes that a report groups them by."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from textspace.errors import TextspaceError, nearest
from textspace.evaluate.measure import Measure, Suite

__all__ = ["MODULES", "THEMES", "measures", "measures_named", "measures_of", "theme_of"]

LANGUAGE, RECONSTRUCTION, GEOMETRY, SAMPLES, USEFULNESS, TEXT, RUN = THEMES = (
    "Language modelling",
    "Reconstruction",
    "Geometry of the codes",
    "Samples",
    "Usefulness",
    "The text itself",
    "The training run",
)
"""In the order of a report."""

MODULES: dict[str, str] = {
    "language_modelling": LANGUAGE,
    "melbo": LANGUAGE,
    "reconstruction": RECONSTRUCTION,
    "perturbed": RECONSTRUCTION,
    "sampled_copies": RECONSTRUCTION,
    "noisy_input": RECONSTRUCTION,
    "geometry": GEOMETRY,
    "maps": GEOMETRY,
    "entropy": GEOMETRY,
    "interpolation": GEOMETRY,
    "isotropy": GEOMETRY,
    "completeness": GEOMETRY,
    "sparsity": GEOMETRY,
    "class_gates": GEOMETRY,
    "samples": SAMPLES,
    "sampling": SAMPLES,
    "variety": SAMPLES,
    "clustering": USEFULNESS,
    "probes": USEFULNESS,
    "kept_dimensions": USEFULNESS,
    "baselines": USEFULNESS,
    "factors": USEFULNESS,
    "pairs": USEFULNESS,
    "transfer": USEFULNESS,
    "fine_tuning": USEFULNESS,
    "ranking": USEFULNESS,
    "corpus_statistics": TEXT,
}
"""Modules of `measures/` whose `MEASURES` are the measures there are, in the order of a report, and their theme."""

_OTHER_THEMES = {"posterior": GEOMETRY, "training_curves": RUN, "distance_to_truth": LANGUAGE}
"""Of measures that belong elsewhere than their module."""


@cache
def _joined() -> tuple[dict[str, Measure], dict[str, str]]:
    """All measures, and the theme of each; modules are read when first asked for, since some load heavy packages."""
    found: dict[str, Measure] = {}
    themes: dict[str, str] = {}
    for module, theme in MODULES.items():
        for name, measure in import_module(f"textspace.evaluate.measures.{module}").MEASURES.items():
            if name in found:
                raise ValueError(f"two measures are called {name!r}")
            found[name] = measure
            themes[name] = _OTHER_THEMES.get(name, theme)
    order = {theme: number for number, theme in enumerate(THEMES)}
    names = sorted(found, key=lambda name: order[themes[name]])
    return {name: found[name] for name in names}, themes


def measures() -> dict[str, Measure]:
    """Every measure by name, in the order of a report."""
    return dict(_joined()[0])


def theme_of(name: str) -> str:
    """The theme of a measure."""
    return _joined()[1][name]


def measures_of(suite: Suite) -> dict[str, Measure]:
    """The measures of a suite."""
    return {name: measure for name, measure in measures().items() if suite in measure.suites}


def measures_named(names: Iterable[str]) -> dict[str, Measure]:
    """Measures by their names, in the order of a report."""
    known, wanted = measures(), set(names)
    for name in sorted(wanted - known.keys()):
        raise TextspaceError(f"there is no measure {name!r}; {nearest(name, known)}")
    return {name: measure for name, measure in known.items() if name in wanted}
