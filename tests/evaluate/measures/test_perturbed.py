"""Reconstruction by code on spaces whose answer is known: copiers, decoders that say what we tell them, points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.data.encoded import EncodedSplit
from textspace.digits import plus_minus
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import PERTURBATION, Effort, Findings
from textspace.evaluate.measures.pairwise import partners
from textspace.evaluate.measures.perturbed import MEASURES, _Numbers, _similarity, overfitting, reconstruction_by_code
from textspace.evaluate.measures.reconstruction import originals_of
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.text_metrics import sentence_bleu
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = list(dict.fromkeys(tiny_sentences(60)))[:40]
Say = Callable[..., list[list[str]]]


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    """Untrained, with codes so far apart and weights so large that they decode to different sentences."""
    space = untrained(small(RECIPES["vae"]).but({"initial.weights": 0.8}), tiny.tokenizer)
    with torch.no_grad():
        space.model.posterior.mean.weight.mul_(3)
        space.model.decoder.output.mul_(3)
        space.model.decoder.output[1] += 0.3  # the end comes soon enough
    return space


@pytest.fixture(scope="module")
def points(tiny) -> Space:
    recipe = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    return untrained(recipe, tiny.tokenizer)


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Say:
    """Let a space decode to given sentences: for means, samples, perturbed codes and second samples, in this order."""

    def told(*answers: list[str]) -> list[list[str]]:
        left = list(answers)
        monkeypatch.setattr(Space, "decode", lambda self, codes, **options: left.pop(0))
        return left

    return told


def value(findings: Findings, key: str) -> float:
    return findings.estimates[key].value


def spoilt(texts: list[str], rows: range, word: int = 0) -> list[str]:
    """A wrong word in some sentences."""
    found = [text.split() for text in texts]
    for row in rows:
        found[row][word] = "wrong"
    return [" ".join(words) for words in found]


# By code


def test_a_copier_is_perfect_from_every_code_and_all_are_alike(space: Space, say: Say) -> None:
    left = say(*[TEXTS] * 4)
    subject = subject_on(space, TEXTS)
    found = reconstruction_by_code(subject)
    assert not left
    for kind in ("mean", "sample", "perturbed"):
        assert value(found, f"bleu1_{kind}") == pytest.approx(1)
        assert value(found, f"sentence_bleu1_{kind}") == pytest.approx(1)
        assert value(found, f"edits_{kind}") == 0
    for key in ("sample_better_bleu1", "mean_better_bleu1", "sample_better_edits", "mean_better_edits"):
        assert value(found, key) == 0
    assert value(found, "sample_less_mean_bleu1") == 0
    assert value(found, "like_sample_equal_perturbed") == value(found, "like_sample_equal_second") == 1
    assert value(found, "like_sample_equal_other") == 0


def test_shares_and_similarities_are_those_made_by_hand(space: Space, say: Say) -> None:
    """Means spoil rows 0-11, samples 8-15: samples are better on 8 sentences and worse on 4."""
    means, samples, perturbed = (spoilt(TEXTS, range(*ends)) for ends in ((0, 12), (8, 16), (8, 20)))
    say(means, samples, perturbed, samples)
    found = reconstruction_by_code(subject_on(space, TEXTS))
    words = sum(len(text.split()) for text in TEXTS)
    for kind, wrong in (("mean", 12), ("sample", 8), ("perturbed", 12)):
        assert value(found, f"bleu1_{kind}") == pytest.approx(1 - wrong / words)
        assert value(found, f"edits_{kind}") == pytest.approx(wrong / words)
    lengths = np.array([len(text.split()) for text in TEXTS])
    assert value(found, "sentence_bleu1_mean") == pytest.approx(1 - (1 / lengths[:12]).sum() / 40)
    assert value(found, "sentence_bleu1_end_mean") == pytest.approx(1 - (1 / (lengths[:12] + 1)).sum() / 40)
    for by in ("bleu1", "edits"):
        better, worse = (found.estimates[f"{kind}_better_{by}"] for kind in ("sample", "mean"))
        assert (better.value, worse.value) == (8 / 40, 4 / 40)
        assert better.stderr == pytest.approx(math.sqrt(0.2 * 0.8 / 39))
        assert better.n == 40
    gain = found.estimates["sample_less_mean_bleu1"]
    each = sentence_bleu(samples, TEXTS, 1) / 100 - sentence_bleu(means, TEXTS, 1) / 100
    assert gain.value == pytest.approx(each.mean())
    assert gain.stderr == pytest.approx(each.std(ddof=1) / math.sqrt(40))
    assert value(found, "like_sample_equal_perturbed") == 36 / 40
    assert value(found, "like_sample_edits_perturbed") == pytest.approx(4 / words)
    assert value(found, "like_sample_bleu1_perturbed") == pytest.approx(
        sentence_bleu(perturbed, samples, 1).mean() / 100
    )
    assert value(found, "like_sample_equal_second") == 1
    (other_N,) = partners(40, 1, np.random.default_rng(seed_of(0, "other sentence")))
    assert sorted(other_N) == list(range(40))
    assert not (other_N == np.arange(40)).any()
    others = [samples[row] for row in other_N]
    assert value(found, "like_sample_bleu1_other") == pytest.approx(sentence_bleu(others, samples, 1).mean() / 100)
    rows = found.tables["by_code"].rows
    assert [row[0] for row in rows][2] == "samples with 10 times the posterior's deviation"
    assert rows[0][1] == plus_minus(value(found, "bleu1_mean"), found.estimates["bleu1_mean"].stderr)


def test_the_error_to_the_next_sentence_knows_that_each_is_in_two_pairs(space: Space, say: Say) -> None:
    """Most reconstructions are one sentence and some are others, which differ from two: against such drawn anew."""
    chance, found = np.random.default_rng(0), []
    subject = subject_on(space, TEXTS)
    originals = originals_of(subject)
    for _ in range(150):
        made = ["a b c d" if chance.random() < 0.8 else "x" + " y" * chance.integers(3, 12) for _ in TEXTS]
        numbers = _Numbers({})
        say(made)
        _similarity(subject, numbers, originals, {"sample": made, "perturbed": made})
        found.append(numbers)
    for key in ("bleu1", "edits", "equal"):
        each = [numbers.estimates[f"like_sample_{key}_other"] for numbers in found]
        told = math.sqrt(np.mean([one.stderr**2 for one in each]))
        assert told == pytest.approx(np.std([one.value for one in each]), rel=0.2), key
        assert "share a sentence" in each[0].settings["error"]
        assert f"like_sample_{key}_other" not in numbers.per_sentence


def test_one_sentence_has_no_next_one(space: Space) -> None:
    found = reconstruction_by_code(subject_on(space, TEXTS[:1]))
    assert "like_sample_bleu1_second" in found.estimates
    assert not any("_other" in key for key in found.estimates)
    assert len(found.tables["similarity"].rows) == 2


def test_numbers_are_those_of_what_the_space_itself_decodes(space: Space) -> None:
    found = reconstruction_by_code(subject_on(space, TEXTS, seed=3))
    direct = {"mean": space.reconstruct(TEXTS), "sample": space.reconstruct(TEXTS, what="sample", seed=3)}
    for kind, made in direct.items():
        score = sacrebleu.corpus_bleu(made, [TEXTS], tokenize="none", smooth_method="exp")
        assert value(found, f"bleu1_{kind}") == pytest.approx(score.precisions[0] / 100 * score.bp)
        assert found.per_sentence[f"sentence_bleu1_{kind}"] == pytest.approx(sentence_bleu(made, TEXTS, 1) / 100)
    assert value(found, "bleu1_perturbed") != value(found, "bleu1_sample") != value(found, "bleu1_mean")
    again = reconstruction_by_code(subject_on(space, TEXTS, seed=3))
    assert again == found
    assert reconstruction_by_code(subject_on(space, TEXTS, seed=4)).estimates != found.estimates
    for key, values in found.per_sentence.items():
        assert np.mean(values) == pytest.approx(value(found, key)), key


def test_perturbed_codes_have_ten_deviations_and_noise_of_their_own(space: Space) -> None:
    test = subject_on(space, TEXTS * 20).test
    noise_NZ = (test.perturbed_NZ - test.means_NZ) / (PERTURBATION * test.deviations_NZ)
    sampled_NZ = (test.samples_NZ - test.means_NZ) / test.deviations_NZ
    draws = noise_NZ.size
    assert abs(noise_NZ.mean()) < 4 / math.sqrt(draws)
    assert noise_NZ.std() == pytest.approx(1, abs=4 / math.sqrt(2 * draws))
    assert abs((noise_NZ * sampled_NZ).mean()) < 4 / math.sqrt(draws)


def test_points_are_neither_sampled_nor_perturbed(points: Space) -> None:
    found = reconstruction_by_code(subject_on(points, TEXTS))
    assert not any("sample_" in key or "perturbed" in key for key in found.estimates)
    assert [row[0] for row in found.tables["by_code"].rows] == ["posterior means"]
    assert list(found.tables) == ["by_code", "by_length"]


# By length


def test_bands_of_length_have_their_own_scores_and_losses(space: Space) -> None:
    texts = [*TEXTS, "anna " * 23]
    subject = subject_on(space, texts, effort=Effort(decoded=20))
    found = reconstruction_by_code(subject)
    rows = found.tables["by_length"].rows
    assert [row[0] for row in rows] == ["up to 5", "6-10", "21-30"]
    assert sum(row[1] for row in rows) == 41
    assert sum(row[3] for row in rows) == 20
    loss_N = likelihood(space.model, subject.test.split, seed=0).reconstruction_N
    short = np.array([len(text.split()) <= 5 for text in texts])
    tokens_N = np.array([len(text.split()) + 1 for text in texts])
    assert value(found, "nats_per_token") == pytest.approx(loss_N.sum() / tokens_N.sum())
    assert value(found, "nats_per_token/up to 5") == pytest.approx(loss_N[short].sum() / tokens_N[short].sum())
    estimate = found.estimates["nats_per_token/up to 5"]
    residual_N = loss_N[short] - estimate.value * tokens_N[short]
    error = residual_N.std(ddof=1) / math.sqrt(short.sum()) / tokens_N[short].mean()
    assert estimate.stderr == pytest.approx(error)
    assert (estimate.settings["end_token"], estimate.settings["samples"]) == ("included", 1)
    decoded = [texts[row] for row in some_rows(41, 20)]
    chosen = [row for row, text in enumerate(decoded) if len(text.split()) <= 5]
    made = space.reconstruct(decoded)
    some = [made[row] for row in chosen], [decoded[row] for row in chosen]
    assert value(found, "sentence_bleu1_mean/up to 5") == pytest.approx(sentence_bleu(*some, 1).mean() / 100)
    picture = found.pictures["bleu1_by_length"]
    assert picture.series["posterior means"][0] == value(found, "bleu1_mean/up to 5")
    assert picture.x[2] == 23
    assert math.isnan(picture.series["posterior means"][2]) == (rows[2][3] == 0)


# Seen and unseen


def test_equal_sentences_have_no_gap(space: Space) -> None:
    found = overfitting(subject_on(space, {"train": TEXTS, "test": TEXTS}))
    for key in ("nats_per_token", "bleu1", "sentence_bleu1"):
        assert value(found, f"{key}_gap") == 0
        assert found.estimates[f"{key}_gap"].stderr > 0
    assert found.estimates["bleu1_gap"].settings["share_of_test_in_training"] == 1


def test_a_space_that_knows_its_sentences_by_heart_is_found_out(tiny) -> None:
    """An autoencoder on 24 sentences, long enough to know them."""
    texts = list(dict.fromkeys(tiny_sentences(200)))
    changes: dict[str, Any] = {"training.epochs": 120, "training.batch.sentences": 8, "latent.dim": 16}
    changes |= {"training.patience": None, "decoder.hidden": 32, "encoder.hidden": 32, "training.optimizer.lr": 0.01}
    recipe = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"}).but(changes)
    space = Space.fit({"train": texts[:24], "valid": texts[:24]}, recipe, device="cpu")
    found = overfitting(subject_on(space, {"train": texts[:24], "test": texts[24:72]}))
    gap = found.estimates["nats_per_token_gap"]
    assert gap.value > 4 * gap.stderr
    assert value(found, "bleu1_train") > 0.45
    assert value(found, "bleu1_gap") < -0.1
    split = EncodedSplit.of(texts[24:72], space.tokenizer, None)
    loss_N = likelihood(space.model, split).reconstruction_N
    tokens = sum(len(text.split()) + 1 for text in texts[24:72])
    assert value(found, "nats_per_token_test") == pytest.approx(loss_N.sum() / tokens, rel=1e-5)
    seen, unseen = (found.estimates[f"nats_per_token_{which}"] for which in ("train", "test"))
    assert gap.stderr == pytest.approx(math.hypot(seen.stderr, unseen.stderr))
    assert (seen.n, unseen.n) == (24, 48)
    assert found.estimates["bleu1_gap"].settings["share_of_test_in_training"] == 0


def test_as_many_training_sentences_as_test_sentences_are_taken(space: Space) -> None:
    found = overfitting(subject_on(space, {"train": TEXTS, "test": TEXTS[:13]}, effort=Effort(decoded=5)))
    assert found.estimates["nats_per_token_train"].n == found.estimates["nats_per_token_test"].n == 13
    assert found.estimates["bleu1_train"].n == 5
    assert "5 of 13 training sentences" in found.estimates["bleu1_train"].name


def test_findings_survive_json_and_say_how_errors_arise(space: Space) -> None:
    subject = subject_on(space, {"train": TEXTS, "test": TEXTS})
    for measure in MEASURES.values():
        found = measure.run(subject)
        assert Findings.from_dict(found.to_dict()) == found
        assert found.per_sentence.keys() <= found.estimates.keys()
        assert all("standard error" in each.settings["error"] for each in found.estimates.values())
