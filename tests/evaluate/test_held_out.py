"""Sentences that a space was trained on are recognised wherever its numbers are measured on them."""

from __future__ import annotations

import base64
import hashlib
import random
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import command, small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.data.content import Sketch, canonical
from textspace.evaluate.held_out import UNKNOWN, held_out_note, repeats_note
from textspace.evaluate.measures.tasks import Pairs, Screen
from textspace.evaluate.subjects import SourcedSubject, subject_of
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.fit import train

RECIPE = small(RECIPES["vae"]).but({"training.epochs": 1})
TEXTS = [f"{text} in café {row}" for row, text in enumerate(tiny_sentences(60))]
"""All different."""


def trained_on(text: Path, folder: Path, recipe: Any = RECIPE) -> tuple[Space, list[str]]:
    """A space trained on a text, and what training said."""
    said: list[str] = []
    train(text, recipe, folder, device="cpu", silent=True, curves=False, say=said.append)
    return Space.load(folder, "cpu"), said


def write(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trained")
    trained_on(write(made / "my.txt", TEXTS), made / "space")
    return made / "space"


@pytest.fixture
def space(folder: Path) -> Space:
    return Space.load(folder, "cpu")


def flattering(subject: SourcedSubject) -> list[str]:
    return [note for note in subject.notes if "flatters" in note and "unknown to the space" not in note]


def of_an_earlier_version(texts: list[str]) -> dict[str, Any]:
    """The record of a small training text as textspace 0.1 wrote it: of sentences as they are."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(b"%d " % len(text.encode()) + text.encode())
    hashes = sorted({hashlib.blake2b(text.encode(), digest_size=8).digest()[::-1] for text in texts})
    sketch = base64.b64encode(b"".join(each[::-1] for each in hashes)).decode()
    return {"sentences": len(texts), "digest": digest.hexdigest(), "sketch": sketch}


# Spellings of one sentence

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "a blank at the end": lambda text: text + " ",
    "two blanks between words": lambda text: text.replace(" ", "  ", 1),
    "tabs and blanks around": lambda text: f"\t {text}\t",
    "blanks that do not break": lambda text: text.replace(" ", "\N{NO-BREAK SPACE}"),
    "upper case": str.upper,
    "accents apart": lambda text: unicodedata.normalize("NFD", text),
    "a soft hyphen": lambda text: text.replace("in", "i\N{SOFT HYPHEN}n"),
    "a mark of the order of bytes": lambda text: "\ufeff" + text,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_training_text_in_another_spelling_is_cut_as_in_training(spelling: str, space: Space, tmp_path: Path) -> None:
    spelled = [SPELLINGS[spelling](text) for text in TEXTS]
    own = subject_of(space, str(write(tmp_path / "own.txt", TEXTS)))
    other = subject_of(space, str(write(tmp_path / "other.txt", spelled)))
    assert other.own_train is True
    assert [*map(canonical, other.test.texts)] == [*map(canonical, own.test.texts)]
    assert flattering(other) == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_training_sentences_in_another_spelling_and_order_are_noted(
    spelling: str, space: Space, tmp_path: Path
) -> None:
    spelled = [SPELLINGS[spelling](text) for text in TEXTS]
    random.Random(0).shuffle(spelled)
    subject = subject_of(space, str(write(tmp_path / "other.txt", spelled)))
    assert flattering(subject) == [
        "test: 54 of 60 different test sentences are in the text the space was trained on, which flatters its numbers: "
        "give sentences that it has not met"
    ]


def test_other_sentences_are_other_sentences(space: Space, tmp_path: Path) -> None:
    others = [f"{text} again" for text in TEXTS] + [text.replace("é", "e") for text in TEXTS]
    subject = subject_of(space, str(write(tmp_path / "other.txt", others)))
    assert flattering(subject) == []


def test_sentences_cut_to_length_are_recognised(tmp_path: Path) -> None:
    cut = RECIPE.but({"text.max_tokens": 2, "text.over_long": "truncate"})
    space, _ = trained_on(write(tmp_path / "my.txt", TEXTS), tmp_path / "space", cut)
    (note,) = flattering(subject_of(space, str(write(tmp_path / "other.txt", TEXTS[::-1]))))
    assert "54 of 60" in note


# Records of earlier versions


def test_a_record_of_an_earlier_version_is_compared_as_it_was_made(space: Space, tmp_path: Path) -> None:
    subject = subject_of(space, str(write(tmp_path / "my.txt", TEXTS)))
    space.metrics["training_text"] = of_an_earlier_version(list(subject.splits["train"].texts))
    assert subject_of(space, str(write(tmp_path / "copy.txt", TEXTS))).own_train is True
    (note,) = flattering(subject_of(space, str(write(tmp_path / "other.txt", TEXTS[::-1]))))
    assert "54 of 60" in note
    spelled = subject_of(space, str(write(tmp_path / "spelled.txt", [f"{text} " for text in TEXTS])))
    assert (spelled.own_train, flattering(spelled)) == (None, [])


def test_a_sketch_of_both_versions_knows_the_sentences_of_both() -> None:
    """As of a space that began with the weights of one of an earlier version."""
    new = Sketch()
    for text in TEXTS[:20]:
        new.add(text)
    both = Sketch.of(new.written, of_an_earlier_version(TEXTS[20:40])["sketch"])
    for sketch in (both, Sketch.of(both.written)):
        assert sketch.met(TEXTS) == (40, 60, 60)
        assert sketch.met([f"{text} " for text in TEXTS]) == (20, 60, 60)
        assert sketch.met(["new"]) == (0, 1, 1)


@pytest.mark.parametrize("record", [None, {"sentences": 54, "digest": "a"}, {"sentences": 54, "sketch": "2:"}])
def test_without_a_record_nobody_knows(record: Any, space: Space, tmp_path: Path) -> None:
    space.metrics["training_text"] = record
    subject = subject_of(space, str(write(tmp_path / "other.txt", TEXTS)))
    assert UNKNOWN in subject.notes
    assert held_out_note(space.metrics, TEXTS) == UNKNOWN
    claims = [note for note in subject.notes if "is not, as a whole, the text the space was trained on" in note]
    assert bool(claims) == (record is not None and "digest" in record)


# Duplicates


def test_a_text_of_duplicates_gets_the_note_that_training_gave(tmp_path: Path) -> None:
    text = write(tmp_path / "my.txt", TEXTS[:20] * 3)
    space, said = trained_on(text, tmp_path / "space")
    (noted,) = (line for line in said if line.startswith("test: "))
    assert "are in the training text too, which flatters it" in noted
    subject = subject_of(space, str(text))
    assert subject.own_train is True
    assert flattering(subject) == [noted]


def test_test_sentences_in_the_training_split_of_another_text_are_noted(space: Space, tmp_path: Path) -> None:
    others = [f"{text} again" for text in TEXTS]
    write(tmp_path / "text" / "train.txt", others[:40])
    write(tmp_path / "text" / "valid.txt", others[40:50])
    write(tmp_path / "text" / "test.txt", [f"{text} " for text in others[38:50]])
    assert flattering(subject_of(space, str(tmp_path / "text"))) == [
        "test: 2 of 12 different sentences are in the training split beside them too, which flatters it"
    ]


def test_a_split_that_repeats_itself_is_noted(space: Space, tmp_path: Path) -> None:
    others = [f"{text} again" for text in TEXTS]
    note = "test: only 20 of 60 sentences differ, so standard errors are too small"
    repeated = [*others[:20], *(f"{text} " for text in others[:20]), *map(str.upper, others[:20])]
    assert note in subject_of(space, str(write(tmp_path / "other.txt", repeated))).notes
    assert repeats_note("test", others[:30] * 2) == ""
    assert repeats_note("test", []) == ""


# Commands


def test_score_says_that_it_scores_training_text(folder: Path, tmp_path: Path) -> None:
    texts = {"all": [f"{text} " for text in TEXTS], "new": [f"{text} again" for text in TEXTS]}
    found = {
        name: command("score", str(folder), str(write(tmp_path / f"{name}.txt", given)), "--samples", "0", "--json")
        for name, given in texts.items()
    }
    assert [code for code, *_ in found.values()] == [0, 0]
    assert (
        "54 of 60 different sentences are in the text the space was trained on, which flatters its numbers: "
        "give sentences that it has not met\n"
    ) in found["all"][2]
    assert "trained on" not in found["new"][2]
    assert not any("trained on" in output for _, output, _ in found.values())


def test_a_comparison_says_which_space_was_trained_on_the_text(folder: Path, tmp_path: Path) -> None:
    trained_on(write(tmp_path / "new.txt", [f"{text} again" for text in TEXTS]), tmp_path / "new")
    data = write(tmp_path / "other.txt", TEXTS[::-1])
    chosen = ("--data", str(data), "--measure", "likelihood", "--samples", "2", "--out", str(tmp_path / "comparison"))
    code, _, errors = command("compare", str(folder), str(tmp_path / "new"), *chosen)
    assert code == 0
    note = "space: test: 54 of 60 different test sentences are in the text the space was trained on"
    assert note in errors
    page = (tmp_path / "comparison" / "comparison.md").read_text()
    assert [line.startswith(f"- Note: {note}") for line in page.splitlines() if "trained on, which" in line] == [True]


def test_rank_says_that_it_ranks_training_text(folder: Path, tmp_path: Path) -> None:
    rows = [f"who sees {row} ?\t{TEXTS[row]}\t{label}" for row in range(20) for label in (0, 1)]
    code, _, errors = command("rank", str(folder), str(write(tmp_path / "questions.tsv", rows)))
    assert code == 0
    assert "are in the text the space was trained on, which flatters its numbers" in errors


# Tasks


def test_a_task_of_training_sentences_is_noted_where_they_cannot_be_dropped(space: Space, tiny) -> None:
    subject = replace(subject_on(space, ["new words"]), own_train=False)
    pairs = Pairs(TEXTS, [f"{text} again" for text in TEXTS], np.zeros(60), [], [])
    with pytest.warns(UserWarning, match="STS12: 54 of 120 different STS12 sentences are in the text the space was"):
        kept, _ = Screen.of(subject).without_training(pairs, "STS12")
    assert len(kept) == 60
    blank = replace(subject, space=untrained(small(RECIPES["vae"]), tiny.tokenizer))
    Screen.of(blank).warn_of("STS12", TEXTS)  # nothing is known, and nothing said
