"""Few dimensions of each code, where we know what each of them holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import tiny_sentences
from small_subjects import gated, subject_on, untrained

from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort, Findings, Subject
from textspace.evaluate.measures.kept_dimensions import grid, kept, kept_dimensions, losses_of_codes, size_order
from textspace.evaluate.measures.reconstruction import greedy_method
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.text_metrics import corpus_bleu
from textspace.space import Space

SIZES = {"train": 300, "test": 120}


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return gated(tiny.tokenizer)


@pytest.fixture
def points(tiny, small_vae) -> Space:
    recipe = small_vae.but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    return untrained(recipe, tiny.tokenizer)


def value(findings: Findings, key: str) -> float:
    return findings.estimates[key].value


# The mathematics


def test_the_largest_are_so_in_units_of_their_deviation() -> None:
    codes_NZ = np.array([[10.0, -3.0, 0.5, 7.0], [-1.0, 0.2, 0.1, 7.0]])
    deviation_Z = np.array([10.0, 1.0, 0.1, 0.0])  # in these units 1, 3, 5 and 0.1, 0.2, 1; the last never changes
    order_NZ = size_order(codes_NZ, deviation_Z)
    assert order_NZ.tolist() == [[2, 1, 0, 3], [2, 1, 0, 3]]
    assert kept(codes_NZ, order_NZ, 2).tolist() == [[0, -3, 0.5, 0], [0, 0.2, 0.1, 0]]
    np.testing.assert_array_equal(kept(codes_NZ, order_NZ, 4), codes_NZ)


def test_the_grid_ends_with_all() -> None:
    assert grid(32) == [1, 2, 4, 8, 16, 32]
    assert grid(768)[-2:] == [512, 768]


def test_the_loss_of_own_codes_is_the_reconstruction_loss(points: Space) -> None:
    subject = subject_on(points, tiny_sentences(60))
    losses_N = losses_of_codes(points.model, subject.test.split, subject.test.means_NZ)
    np.testing.assert_allclose(losses_N, likelihood(points.model, subject.test.split).reconstruction_N, rtol=1e-5)
    assert np.abs(losses_of_codes(points.model, subject.test.split, 0 * subject.test.means_NZ) - losses_N).min() > 1e-4


# The measure


def planted(space: Space) -> Subject:
    """The class is which dimension is largest; all others are noise of a third of its size."""
    chance, dims = np.random.default_rng(2), space.dim
    label = {name: chance.integers(0, dims, size=size) for name, size in SIZES.items()}
    texts = {name: tiny_sentences(size) for name, size in SIZES.items()}
    subject = subject_on(space, texts, {name: [str(n) for n in of] for name, of in label.items()})
    for name, sentences in subject.splits.items():
        means_NZ = chance.normal(0, 0.2, size=(SIZES[name], dims))
        means_NZ[np.arange(SIZES[name]), label[name]] = 1
        scale_Z = 10.0 ** np.arange(-2, dims - 2)
        sentences.__dict__["_parameters"] = means_NZ * scale_Z, np.ones_like(means_NZ)
    return subject


def test_labels_that_the_largest_dimension_holds_are_read_from_it_alone(points: Space) -> None:
    found = kept_dimensions(planted(points))
    assert value(found, "accuracy_largest_1") > 95
    assert value(found, "accuracy_largest_4") > 95
    # A random one of four is the right one in a quarter of the cases, and then it gives the class away.
    assert value(found, "accuracy_random_1") < 60
    assert value(found, "accuracy_random_2") < value(found, "accuracy_largest_2") - 15
    assert 20 < value(found, "majority") < 35
    assert "accuracy_random_4" not in found.estimates
    assert found.estimates["accuracy_largest_1"].n == SIZES["test"]


def test_reconstruction_is_that_of_the_codes_that_are_kept(points: Space) -> None:
    texts = tiny_sentences(60)
    subject = subject_on(points, texts, effort=Effort(decoded=40))
    found = kept_dimensions(subject)
    rows = some_rows(60, 40)
    sentences = subject_on(points, [texts[row] for row in rows]).test
    codes_NZ = subject.test.means_NZ
    few_NZ = kept(codes_NZ, size_order(codes_NZ, codes_NZ.std(0)), 2)[rows]
    losses_N = losses_of_codes(points.model, sentences.split, few_NZ)
    words_N = np.array([len(text.split()) + 1 for text in sentences.texts])
    assert value(found, "nats_largest_2") == pytest.approx(losses_N.sum() / words_N.sum())
    made = points.decode(few_NZ, method=greedy_method(sentences.split))
    assert value(found, "bleu1_largest_2") == pytest.approx(corpus_bleu(made, sentences.texts, 1).score)
    assert found.estimates["nats_largest_2"].n == 40
    assert "accuracy_largest_2" not in found.estimates  # without labels
    assert found.tables["kept_dimensions"].rows[0][2] is None
    own = likelihood(points.model, sentences.split).reconstruction_N.sum() / words_N.sum()
    assert value(found, "nats_largest_4") == pytest.approx(own, rel=1e-5)
    assert found.pictures["kept_dimensions"].x == [1, 2, 4]
    nats = found.pictures["kept_dimensions_nats"].series
    assert nats["-log p(x|z), largest"] == [value(found, f"nats_largest_{k}") for k in (1, 2, 4)]
    assert nats["-log p(x|z), random"][-1] == value(found, "nats_largest_4")


def test_gates_keep_exactly_the_dimensions_that_are_on(space: Space) -> None:
    texts = tiny_sentences(40)
    subject = subject_on(space, texts)
    found = kept_dimensions(subject)
    sparse_NZ = space.encode(texts, sparse=True).toarray().astype(np.float64)
    losses_N = losses_of_codes(space.model, subject.test.split, sparse_NZ)
    words_N = np.array([len(text.split()) + 1 for text in texts])
    assert value(found, "nats_on") == pytest.approx(losses_N.sum() / words_N.sum(), rel=1e-5)
    on = (space.encode(texts, what="gates") >= 0.5).sum(1).mean()
    row = next(row for row in found.tables["kept_dimensions"].rows if str(row[0]).startswith("exactly"))
    assert row[1] == pytest.approx(on, abs=0.01)
    picture = found.pictures["kept_dimensions"]
    at = [x for x, y in zip(picture.x, picture.series["BLEU-1, those that are on"], strict=True) if not math.isnan(y)]
    assert at == [pytest.approx(on)]
    assert picture.log_x


def test_as_many_dimensions_are_kept_as_asked_and_the_same_again(points: Space, monkeypatch) -> None:
    seen: list[np.ndarray] = []
    decode = Space.decode
    monkeypatch.setattr(
        Space, "decode", lambda self, codes, **more: (seen.append(codes), decode(self, codes, **more))[1]
    )
    one, other = (kept_dimensions(subject_on(points, tiny_sentences(40))) for _ in range(2))
    assert one.estimates == other.estimates
    assert [set((codes != 0).sum(1)) for codes in seen[:5]] == [{1}, {2}, {4}, {1}, {2}]  # largest, then random
    chosen_Z = (seen[3] != 0).sum(0)
    assert chosen_Z.sum() == 40
    assert chosen_Z.min() >= 2  # any of the four dimensions may be drawn
    assert value(one, "nats_random_2") != value(one, "nats_largest_2")
