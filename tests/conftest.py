"""Fixtures all tests share: a tiny corpus, its tokenizer, and a small model."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported: threads that spin slow each other down

import hypothesis
import pytest
import torch
from helpers import TOKEN_RECIPE, short_sentences, small, tiny_sentences

from textspace.config import Recipe
from textspace.data.corpus import corpus_of
from textspace.data.preparing import Prepared, prepare
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.space import Space

torch.set_num_threads(1)  # small models gain nothing from more, and lose much when something else runs beside
hypothesis.settings.register_profile("whatever the time", deadline=None)
hypothesis.settings.load_profile("whatever the time")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes longest comes first: begun last, it would run alone while other processes wait."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests out of the user's cache, in this process and those it starts."""
    os.environ["TEXTSPACE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_heard() -> None:
    """Also where the tests run in the background, where shells have them ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny(_own_cache: None) -> Prepared:
    return prepare(corpus_of(tiny_sentences()), Recipe())


@pytest.fixture
def small_vae() -> Recipe:
    return small(RECIPES["vae"])


@pytest.fixture
def tiny_model(tiny: Prepared, small_vae: Recipe) -> Model:
    """An untrained model with weights large enough that everything matters."""
    return Model(small_vae, len(tiny.tokenizer)).eval()


@pytest.fixture(scope="session")
def token_space(_own_cache: None) -> Space:
    """A trained space whose every token has a code."""
    return Space.fit(short_sentences(), TOKEN_RECIPE, device="cpu")


@pytest.fixture
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
