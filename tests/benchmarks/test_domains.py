"""Whether what lies between sentences of a corpus is of that corpus: a judge that knows, and numbers that add up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import small, tiny_sentences

from benchmarks import domains
from benchmarks.domains import STEPS, judge_of, share, ways
from textspace.recipes import RECIPES
from textspace.space import Space

OTHER = [f"{what} fell by {number} points in late trading" for what in ("stocks", "bonds") for number in range(60)]


def test_the_judge_knows_corpora_by_their_words() -> None:
    judge = judge_of([tiny_sentences(100), OTHER])
    assert judge.predict(["anna sees two cats", "shares fell by nine points in trading"]).tolist() == [0, 1]


def test_shares_are_of_steps_and_their_errors_of_ways() -> None:
    value, error = share([np.array([True, True]), np.array([True, False])])
    assert (value, error) == (75, pytest.approx(25))


def test_ways_within_and_between_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = {"tiny": tiny_sentences(120), "other": OTHER}
    for name, texts in corpora.items():
        (tmp_path / name).mkdir()
        for split, part in {"train": texts[:80], "valid": texts[80:100], "test": texts[100:120]}.items():
            (tmp_path / name / f"{split}.txt").write_text("\n".join(part))
    space = Space.fit([*corpora["tiny"], *OTHER], small(RECIPES["ae"]).but({"training.epochs": 2}), device="cpu")
    space.save(tmp_path / "space")
    codes_NZ = space.encode(["anna sees cats", "bob hears songs"])
    ((*between,),) = ways(space, codes_NZ, np.array([[0, 1]]))
    assert between == space.interpolate("anna sees cats", "bob hears songs", steps=STEPS + 2)[1:-1]

    given = ["domains", str(tmp_path), *corpora, "--space", str(tmp_path / "space"), "--pairs", "5"]
    monkeypatch.setattr(sys, "argv", [*given, "--out", str(tmp_path / "out")])
    domains.main()
    found = json.loads((tmp_path / "out" / "domains.json").read_text())["percent"]
    assert list(found) == ["tiny", "tiny to other", "other"]
    assert found["tiny"]["real"][0] == 100
    assert np.mean(found["other"]["by_step"]) == pytest.approx(found["other"]["between"][0])
    assert sum(found["tiny to other"][part][0] for part in ("first", "second", "elsewhere")) == pytest.approx(100)
