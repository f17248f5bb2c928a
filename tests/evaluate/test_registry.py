"""The registry: every measure there is, under one name, with all that a report says of it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

import textspace.evaluate
from textspace.errors import TextspaceError
from textspace.evaluate import registry
from textspace.evaluate.measure import Findings, Measure, Need, Suite
from textspace.evaluate.registry import MODULES, THEMES, measures, measures_named, measures_of, theme_of
from textspace.evaluate.reports.report import HEADLINES
from textspace.evaluate.suite import SUITES

ALL = measures()


@pytest.mark.parametrize("name", ALL)
def test_every_measure_says_what_it_tells_what_it_needs_and_where_it_belongs(name: str) -> None:
    measure = ALL[name]
    assert name.isidentifier()
    assert name == name.lower()
    assert measure.about[0].isupper()
    assert measure.about.endswith(".")
    assert set(measure.needs) <= set(get_args(Need))
    assert measure.suites
    assert set(measure.suites) <= set(get_args(Suite))
    assert theme_of(name) in THEMES


def test_a_larger_suite_has_all_measures_of_a_smaller_one() -> None:
    quick, standard, full = (set(measures_of(suite)) for suite in SUITES)
    assert quick < standard < full
    assert full == set(ALL)


def test_no_module_with_measures_is_forgotten() -> None:
    there = {
        path.stem
        for path in Path(textspace.evaluate.__file__).parent.joinpath("measures").glob("*.py")
        if any(
            isinstance(measure, Measure)
            for measure in getattr(import_module(f"textspace.evaluate.measures.{path.stem}"), "MEASURES", {}).values()
        )
    }
    assert there == set(MODULES)


def test_measures_come_in_the_order_of_the_themes() -> None:
    themes = [THEMES.index(theme_of(name)) for name in ALL]
    assert themes == sorted(themes)
    assert set(themes) == set(range(len(THEMES)))
    assert list(measures_named(["training_curves", "likelihood"])) == ["likelihood", "training_curves"]


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(TextspaceError, match="there is no measure 'likelyhood'; did you mean 'likelihood'"):
        measures_named(["posterior", "likelyhood"])


def test_the_headlines_are_of_measures_there_are() -> None:
    assert {line.measure for line in HEADLINES} <= set(ALL)
    assert len({line[:2] for line in HEADLINES}) == len(HEADLINES)


@pytest.fixture
def _joined_anew() -> Iterator[None]:
    registry._joined.cache_clear()
    yield
    registry._joined.cache_clear()


@pytest.mark.usefixtures("_joined_anew")
def test_two_measures_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    same = SimpleNamespace(MEASURES={"same": Measure(lambda subject: Findings(), "The same.")})
    monkeypatch.setattr(registry, "import_module", lambda name: same)
    with pytest.raises(ValueError, match="two measures are called 'same'"):
        measures()
