"""Rules by hand, nearness of codes made by hand, and points of spaces that lead back always, or never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.data.tokenizers import UNKNOWN
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort, Findings
from textspace.evaluate.measures import language_models
from textspace.evaluate.measures.completeness import (
    RULES,
    broken_rules,
    completeness,
    letters,
    nearness,
    others_of_equal_length,
)
from textspace.evaluate.measures.language_models import language_model_of_text
from textspace.evaluate.measures.pairwise import error_of_mean, pairs_of, partners
from textspace.evaluate.statistics import some_rows
from textspace.lengths import METRIC
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = list(dict.fromkeys(tiny_sentences(160)))
KEYS = ("prior", "halfway", "sample", "mean")
SEEN = {"a", "b", "cat"}


@pytest.fixture(autouse=True)
def _small_language_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_models, "UNITS", (24, 32))
    monkeypatch.setattr(language_models, "STEPS", 50)


# Rules


@pytest.mark.parametrize(
    ("text", "ids", "broken"),
    [
        ("a cat b", [4, 5, 6], set()),
        ("a", [4], set()),
        ("A, 'cat' (2013)!", [4, 5, 6], set()),
        ("", [], {"empty"}),
        ("a b a b a", [4, 5, 4, 5, 4], {"unended"}),
        ("a <unk> b", [4, UNKNOWN, 5], {"unknown"}),
        ("a c\ufffdt", [4, 5], {"unknown", "unseen"}),
        ("a a b", [4, 4, 5], {"repeated"}),  # 1 of 2
        ("a a b a", [4, 4, 5, 4], set()),  # 1 of 3
        ("a a", [4, 4], {"repeated"}),
        ("a dog", [4, 5], {"unseen"}),
    ],
)
def test_each_rule_is_broken_by_what_it_says(text: str, ids: list[int], broken: set[str]) -> None:
    assert broken_rules(text, ids, 5, SEEN) == broken
    assert broken <= set(RULES)


def test_words_are_runs_of_letters() -> None:
    assert letters("Don't_stop 3x été") == ["don", "t", "stop", "x", "été"]


# Nearness


def test_nearness_of_codes_by_hand() -> None:
    one = [np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 0.0]]), np.zeros((1, 2))]
    other = [np.array([[0.0, 0.0], [0.0, 2.0]]), np.array([[0.0, 2.0], [0.0, 4.0]]), np.ones((1, 2))]
    found = nearness(one, other)
    # means (1.5, 2) and (0, 1); (1, 0) and (0, 3); (0, 0) and (1, 1)
    assert found.distance_N == pytest.approx([np.sqrt(1.5**2 + 1), np.sqrt(10), np.sqrt(2)])
    assert found.cosine_N == pytest.approx([2 / 2.5, 0, 0])
    assert found.token_distance_N == pytest.approx([(3 + 2) / 2, np.nan, np.sqrt(2)], nan_ok=True)
    assert found.token_cosine_N == pytest.approx([(0 + 1) / 2, np.nan, 0], nan_ok=True)


def test_codes_are_near_themselves(chance) -> None:
    codes = [chance.normal(size=(length, 5)) for length in (1, 4, 7)]
    found = nearness(codes, codes)
    assert found.distance_N == pytest.approx(np.zeros(3))
    assert found.token_distance_N == pytest.approx(np.zeros(3))
    assert found.cosine_N == pytest.approx(np.ones(3))
    assert found.token_cosine_N == pytest.approx(np.ones(3))


def test_others_of_equal_length_are_others_of_equal_length(chance) -> None:
    lengths = chance.integers(1, 6, size=50).tolist() + [99]
    found = others_of_equal_length(lengths, chance)
    assert found[-1] == -1
    assert all(lengths[place] == lengths[row] and place != row for row, place in enumerate(found[:-1]))
    assert sorted(found[:-1]) == list(range(50))  # each once


# Of a space


class Shelf(Space):
    """A space whose codes are those of a shelf of sentences, and whose points decode to the nearest of them."""

    def __init__(self, recipe: Any, tokenizer: Any, model: Any) -> None:
        super().__init__(recipe, tokenizer, model)
        self.shelf_NZ = np.random.default_rng(0).normal(size=(len(TEXTS), self.dim))

    def encode(self, texts: Any, what: str = "mean", **more: Any) -> Any:
        codes_NZ = self.shelf_NZ[[TEXTS.index(text) for text in texts]]
        return codes_NZ if what == "mean" else codes_NZ + 1e-6

    def decode(self, codes: Any, **more: Any) -> Any:
        distance_MN = np.linalg.norm(np.asarray(codes)[:, None] - self.shelf_NZ, axis=2)
        return [TEXTS[row] for row in distance_MN.argmin(1)]


class Stammerer(Shelf):
    """One that says the same word again and again, whatever the code; it does read."""

    def decode(self, codes: Any, **more: Any) -> Any:
        return ["cats cats cats"] * len(codes)

    def encode(self, texts: Any, what: str = "mean", **more: Any) -> Any:
        known = [text for text in texts if text in TEXTS]
        return super().encode(known, what) if known else np.ones((len(texts), self.dim))


def measured(space: Space) -> Findings:
    effort = Effort(decoded=60, prior_samples=60, language_model_epochs=1)
    return completeness(subject_on(space, {"train": TEXTS[:100], "test": TEXTS[60:]}, effort=effort))


def test_a_space_that_always_leads_back(tiny) -> None:
    made = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    space = Shelf(made.recipe, made.tokenizer, made.model)
    found = measured(space)
    values = {name: estimate.value for name, estimate in found.estimates.items()}
    assert values["well_formed_real"] > 0.8
    for key in KEYS:
        assert values[f"empty_{key}"] == values[f"unknown_{key}"] == values[f"unended_{key}"] == 0
        assert values[f"perplexity_{key}"] == pytest.approx(values["perplexity_real"], rel=0.3)
        assert values[f"distance_{key}"] < values[f"distance_other_{key}"]
        assert values[f"cosine_{key}"] > values[f"cosine_other_{key}"]
        assert found.estimates[f"well_formed_{key}"].n == 60
    for key in ("sample", "mean"):
        assert values[f"distance_{key}"] == pytest.approx(0, abs=1e-5)
        assert values[f"cosine_{key}"] == pytest.approx(1)
        assert values[f"nearer_{key}"] == 1
        assert values[f"well_formed_{key}"] == values["well_formed_real"]
    prior_NZ = space.prior_codes(60, seed=0)
    nearest_N = np.linalg.norm(prior_NZ[:, None] - space.shelf_NZ, axis=2).min(1)
    assert values["distance_prior"] == pytest.approx(nearest_N.mean())
    assert [len(row) for row in found.tables["returning"].rows] == [6] * 4  # nothing token by token
    assert found.pictures["well_formed"].series["well-formed"] == [
        values[f"well_formed_{key}"] for key in (*KEYS, "real")
    ]


def test_halfway_lies_between_a_sentence_and_another(tiny) -> None:
    made = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    space = Shelf(made.recipe, made.tokenizer, made.model)
    asked: list[np.ndarray] = []
    decode = space.decode
    space.decode = lambda codes, **more: asked.append(np.asarray(codes)) or decode(codes)  # type: ignore[method-assign]
    measured(space)
    _, halfway_NZ, _, means_NZ = asked
    doubled_NNZ = (means_NZ[:, None] + means_NZ) / 2
    off_NN = np.abs(doubled_NNZ - halfway_NZ[:, None]).max(2)
    partner_N = off_NN.argmin(1)
    assert off_NN.min(1).max() < 1e-9
    assert (partner_N != np.arange(60)).all()
    assert len(set(partner_N.tolist())) == 60


def test_a_space_that_never_does(tiny) -> None:
    made = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    found = measured(Stammerer(made.recipe, made.tokenizer, made.model))
    values = {name: estimate.value for name, estimate in found.estimates.items()}
    for key in KEYS:
        assert values[f"well_formed_{key}"] == 0
        assert values[f"repeated_{key}"] == 1
        assert values[f"distance_{key}"] == pytest.approx(values[f"distance_other_{key}"])
        assert values[f"nearer_{key}"] == 0


def test_the_measure_runs_on_a_small_space_and_repeats_itself(space) -> None:
    effort = Effort(decoded=20, prior_samples=20, language_model_epochs=1)
    splits = {"train": TEXTS[:60], "test": TEXTS[60:]}
    subject = subject_on(space, splits, effort=effort)
    found = completeness(subject)
    model, learnt_from = language_model_of_text(subject)
    real = [TEXTS[60:][row] for row in some_rows(len(TEXTS[60:]), 20)]
    expected = likelihood(model, subject.encoded(real)).estimates()["nll_ppl_word"]
    assert found.estimates["perplexity_real"].value == expected.value
    assert f"{learnt_from} training sentences" in found.estimates["perplexity_prior"].name
    again = completeness(subject_on(space, splits, effort=effort))
    assert found == again
    for estimate in found.estimates.values():
        assert np.isfinite(estimate.value)
        assert estimate.n == 20
    with pytest.raises(TextspaceError, match="points lie between two sentences, and there is 1"):
        completeness(subject_on(space, {"train": TEXTS, "test": TEXTS[:1]}))


# Of a space whose every token has a code


@pytest.fixture
def token_space_with_lengths(token_space) -> Space:
    token_space.metrics = {METRIC: [0, 0, 1, 1, 1]}
    return token_space


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
def test_codes_of_tokens_are_also_compared_one_by_one(token_space_with_lengths, monkeypatch) -> None:
    space = token_space_with_lengths
    told = ["anna sees cats", "bob hears dogs cats birds", "carl likes songs"] * 20
    monkeypatch.setattr(space, "decode", lambda codes, **more: told[: len(codes)])
    effort = Effort(decoded=40, prior_samples=40, language_model_epochs=1)
    found = completeness(subject_on(space, {"train": TEXTS[:60], "test": TEXTS[60:]}, effort=effort))
    points = space.prior_codes(40, seed=0)
    again = space.encode(told[:40])
    alike = [len(one) == len(other) for one, other in zip(points, again, strict=True)]
    assert 0 < sum(alike) < 40
    estimates = found.estimates
    assert estimates["same_length_prior"].value == np.mean(alike)
    expected = nearness(points, again)
    assert estimates["distance_prior"].value == pytest.approx(expected.distance_N.mean())
    assert estimates["token_distance_prior"].value == pytest.approx(expected.token_distance_N[alike].mean())
    assert estimates["token_cosine_prior"].value == pytest.approx(expected.token_cosine_N[alike].mean())
    assert estimates["token_distance_prior"].n == sum(alike)
    assert "mean codes of tokens" in estimates["distance_prior"].name
    assert {len(row) for row in found.tables["returning"].rows} == {len(found.tables["returning"].columns)} == {11}


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
def test_points_between_sentences_of_tokens_are_as_long_as_the_longer(token_space_with_lengths, monkeypatch) -> None:
    space = token_space_with_lengths
    asked: list[Any] = []
    monkeypatch.setattr(space, "decode", lambda codes, **more: asked.append(codes) or ["anna"] * len(codes))
    effort = Effort(decoded=20, prior_samples=20, language_model_epochs=1)
    completeness(subject_on(space, {"train": TEXTS[:60], "test": TEXTS[60:]}, effort=effort))
    prior, halfway, _, means = asked
    assert {4, 5, 6} <= {len(code) for code in prior} <= set(range(2, 7))  # up to 4 tokens, start and end
    for code_TZ, mean_TZ in zip(halfway, means, strict=True):
        others = [other for other in means if len(code_TZ) == max(len(other), len(mean_TZ))]
        short = min(len(code_TZ), len(mean_TZ))
        assert any(
            np.allclose(
                code_TZ[: min(short, len(other))], (mean_TZ[: len(other)] + other[: len(mean_TZ)]) / 2, atol=1e-6
            )
            for other in others
        )


def test_the_error_of_distances_to_other_points_knows_that_pairs_share_them() -> None:
    """Against many spaces drawn anew, whose mean distances scatter by what the error says."""
    means, errors = [], []
    for seed in range(300):
        random = np.random.default_rng(seed)
        codes_NZ = random.normal(size=(200, 8)) * np.exp(random.normal(0, 0.5, size=(200, 1)))
        partner_N = partners(200, 1, random)[0]
        distance_N = nearness(list(codes_NZ[:, None]), list(codes_NZ[partner_N, None])).distance_N
        means.append(distance_N.mean())
        errors.append(error_of_mean(distance_N, pairs_of(partner_N[None])))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)  # as if independent it is a quarter less
    assert error_of_mean(np.ones(1), np.array([[0, 1]])) is None
