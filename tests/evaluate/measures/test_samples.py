"""Samples of spaces whose distribution is known: a dice of words, one that says nothing, and copies."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences

from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import Prepared
from textspace.data.tokenizers import END, FIRST_PREDICTED, UNKNOWN
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort, Findings, Sentences, Subject
from textspace.evaluate.measures import language_models
from textspace.evaluate.measures import samples as module
from textspace.evaluate.measures.language_models import LanguageModel, train_language_model
from textspace.evaluate.measures.samples import (
    MEASURES,
    Numbers,
    copying,
    prior_samples,
    sample_language_model,
)
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.text_metrics import distinct_ngrams, self_bleu, word_edit_distance
from textspace.generate import Greedy
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.loop import Interrupted, Trainer

TEXTS = tiny_sentences(120)
Dice = Callable[[dict[int, float]], Space]


@pytest.fixture(autouse=True)
def _small_language_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_models, "UNITS", (24, 32))
    monkeypatch.setattr(language_models, "STEPS", 50)


@pytest.fixture(scope="module")
def dice(tiny: Prepared) -> Dice:
    """Spaces that draw every token from the same distribution, whatever came before."""

    def made(probabilities: dict[int, float]) -> Space:
        """Of some tokens; the others share what is left."""
        recipe = small(RECIPES["vae"]).but({"decoder.output_bias": True})
        space = Space(recipe, tiny.tokenizer, Model(recipe, len(tiny.tokenizer)))
        tokens = range(FIRST_PREDICTED, len(tiny.tokenizer))
        rest = (1 - sum(probabilities.values())) / (len(tokens) - len(probabilities))
        p = torch.tensor([probabilities.get(token, rest) for token in tokens])
        with torch.no_grad():
            space.model.decoder.output.zero_()
            space.model.decoder.output_bias.copy_(p.clamp(min=1e-30).log())
        return space

    return made


def subject_of(space: Space, effort: Effort, **texts: list[str]) -> Subject:
    def sentences(name: str) -> Sentences:
        split = EncodedSplit.of(texts[name], space.tokenizer, space.recipe.text.max_tokens)
        return Sentences(name, texts[name], None, split, space, 3)

    return Subject(space, {name: sentences(name) for name in texts}, effort, seed=3)


def drawn(space: Space, count: int, method: Greedy | None = None) -> list[str]:
    return space.sample(count, method=method, seed=seed_of(3, "samples from the prior"))


def value(findings: Findings, key: str) -> float:
    return findings.estimates[key].value


# Variety


def test_lengths_and_shares_of_a_dice_of_words(dice: Dice) -> None:
    end, unknown = 0.2, 0.1
    space = dice({END: end, UNKNOWN: unknown})
    found = prior_samples(subject_of(space, Effort(prior_samples=400), test=tiny_sentences(400)))
    for key, truth in (
        ("length_samples", (1 - end) / end),
        ("empty_samples", end),
        ("unknown_samples", unknown / (1 - end)),
    ):
        estimate = found.estimates[key]
        assert abs(estimate.value - truth) < 4 * estimate.stderr, key
        assert estimate.stderr < truth / 6
    assert value(found, "over_long_samples") == value(found, "empty_real") == value(found, "unknown_real") == 0
    words = [len(text.split()) for text in tiny_sentences(400)]
    assert value(found, "length_real") == np.mean(words)
    assert found.pictures["lengths"].series["400 real test sentences"] == words


def test_variety_is_that_of_the_samples_and_of_as_many_real_sentences(dice: Dice) -> None:
    space = dice({END: 0.15})
    found = prior_samples(subject_of(space, Effort(prior_samples=40), test=TEXTS))
    for key, texts in (("samples", drawn(space, 40)), ("real", [TEXTS[row] for row in some_rows(len(TEXTS), 40)])):
        assert value(found, f"self_bleu4_{key}") == pytest.approx(np.nanmean(self_bleu(texts)))
        for n in (1, 2, 3):
            estimate = found.estimates[f"distinct{n}_{key}"]
            assert estimate.value == distinct_ngrams([text.split() for text in texts], n).share
            assert "40" in estimate.name  # the fixed n
            assert 0 < estimate.stderr < 0.2
        assert value(found, f"distinct_sentences_{key}") == len(set(texts)) / 40
    assert [row[0] for row in found.tables["prior_samples"].rows] == ["40 prior samples", "40 real test sentences"]
    assert {len(row) for row in found.tables["prior_samples"].rows} == {len(found.tables["prior_samples"].columns)}
    # the dice has no grammar: its pairs of words are more varied than real ones
    assert value(found, "distinct2_samples") > value(found, "distinct2_real") + 0.1
    assert value(found, "self_bleu4_samples") < value(found, "self_bleu4_real") - 2


def test_fewer_test_sentences_mean_fewer_samples(dice: Dice) -> None:
    found = prior_samples(subject_of(dice({END: 0.15}), Effort(prior_samples=40), test=TEXTS[:7]))
    assert {estimate.n for key, estimate in found.estimates.items() if "self_bleu4" not in key} == {7}


def test_samples_without_end_are_over_long_and_one_word_is_no_variety(dice: Dice, tiny: Prepared) -> None:
    word = tiny.tokenizer.id("cats")
    found = prior_samples(subject_of(dice({word: 1.0}), Effort(prior_samples=3), test=TEXTS))
    assert value(found, "over_long_samples") == 1
    assert value(found, "length_samples") == 200
    assert value(found, "distinct1_samples") == 1 / 600
    assert value(found, "distinct_sentences_samples") == 1 / 3
    assert value(found, "self_bleu4_samples") == pytest.approx(100)


def test_empty_samples_are_left_out_of_self_bleu_and_counted(dice: Dice) -> None:
    found = prior_samples(subject_of(dice({END: 0.5}), Effort(prior_samples=40), test=TEXTS))
    empty = round(40 * value(found, "empty_samples"))
    estimate = found.estimates["self_bleu4_samples"]
    assert 0 < empty < 40
    assert estimate.n == 40 - empty
    assert estimate.name.endswith(f"{empty} empty ones left out")
    assert estimate.settings["error"].endswith("blocks of sentences, rather too large than too small")
    assert math.isfinite(estimate.stderr)
    assert "left out" not in found.estimates["self_bleu4_real"].name


def test_a_space_that_says_nothing(dice: Dice) -> None:
    effort = Effort(prior_samples=20, language_model_epochs=2)
    subject = subject_of(dice({END: 1.0}), effort, test=TEXTS[:30], train=TEXTS[30:])
    found = prior_samples(subject)
    assert value(found, "empty_samples") == 1
    assert value(found, "distinct1_samples") == value(found, "length_samples") == 0
    assert "self_bleu4_samples" not in found.estimates  # equal as they are, and no more varied than any others
    assert found.tables["prior_samples"].rows[0][1] is None
    copied = copying(subject)
    assert value(copied, "distance_sampled") == min(len(text.split()) for text in TEXTS[30:])
    judged = sample_language_model(subject)
    assert value(judged, "test_under_samples") > 1.3 * value(judged, "test_under_as_many_real")
    assert math.isfinite(value(judged, "test_under_samples"))


# Language models


def test_a_judge_knows_whether_it_reads_words_or_subwords(dice: Dice) -> None:
    space = dice({END: 0.2})
    in_subwords = Space(space.recipe.but({"text.tokenizer": {"kind": "bpe"}}), space.tokenizer, space.model)
    for each, bound in ((space, "exact"), (in_subwords, "upper")):
        subject = subject_of(each, Effort(language_model_epochs=1), test=TEXTS[:30])
        judge = train_language_model(["anna sees cats"] * 40, subject, "test")
        assert likelihood(judge.model, subject.encoded(TEXTS[:5])).estimates()["nll"].bound == bound


def test_sentences_are_judged_whole_however_short_those_of_the_space_are(dice: Dice) -> None:
    space = dice({END: 0.1})
    cut = Space(space.recipe.but({"text.max_tokens": 3}), space.tokenizer, space.model)
    judge = LanguageModel(Model(small(RECIPES["lstm-lm"]), len(space.tokenizer)), 7)
    found = []
    for each in (space, cut):
        subject = subject_of(each, Effort(language_model_epochs=1), test=TEXTS[:30], train=TEXTS[30:])
        numbers = Numbers(subject)
        numbers.perplexity("x", "some", TEXTS[:10], judge)
        found.append(numbers.estimates["x"])
    assert found[0].value == found[1].value
    assert found[0].name == "perplexity per word (end counted) of some under a language model of 7 training sentences"


def test_perplexities_of_a_dice_are_its_entropy_both_ways(dice: Dice, tiny: Prepared) -> None:
    probabilities = {END: 0.3, UNKNOWN: 0.1, tiny.tokenizer.id("cats"): 0.3}
    space = dice(probabilities)
    others = len(tiny.tokenizer) - FIRST_PREDICTED - 3
    entropy = -sum(p * math.log(p) for p in probabilities.values()) - 0.3 * math.log(0.3 / others)
    real = space.sample(1600, seed=1)
    effort = Effort(prior_samples=1200, language_model_epochs=2)
    subject = subject_of(space, effort, train=real[:1200], test=real[1200:])
    found = sample_language_model(subject)
    for key in ("samples_under_real", "test_under_real", "test_under_samples", "test_under_as_many_real"):
        estimate = found.estimates[key]
        assert estimate.value == pytest.approx(math.exp(entropy), rel=0.1), key
        assert estimate.settings["learnt_from"] == 1080
        assert estimate.bound == "exact"
    assert found.estimates["samples_under_real"].n == 1200
    assert found.estimates["test_under_real"].n == 400
    for key in ("samples", "test", "train"):
        assert value(found, f"unknown_{key}") == pytest.approx(0.1 / 0.7, rel=0.2)
    assert found.estimates["test_under_samples"].better == "lower"
    assert len(found.tables["sample_language_model"].rows) == 4


def test_a_language_model_learns_its_text_and_selects_on_a_tenth_of_it(
    dice: Dice, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Trainer] = []
    run = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda self: seen.append(self) or run(self))
    subject = subject_of(dice({END: 0.2}), Effort(language_model_epochs=2), test=TEXTS)
    model, learnt_from = train_language_model(["anna sees cats"] * 40, subject, "test")
    assert learnt_from == 36
    assert len(seen[0].valid) == 4
    assert seen[0].training.epochs == 2 * 2  # of 26 steps each, so that there are 50 for each of the effort's
    assert seen[0].step == 4 * 26
    assert not seen[0].folder.exists()
    assert not model.training
    known = EncodedSplit.of(["anna sees cats"], subject.space.tokenizer, None)
    assert likelihood(model, known).estimates()["nll_ppl_word"].value < 1.2
    other, _ = train_language_model(["anna sees cats"] * 40, subject, "test")
    for one, same in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)


def test_an_interrupt_in_a_language_model_is_one_of_the_measure(dice: Dice, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Trainer) -> None:
        raise Interrupted("stopped at step 3; resume with --resume --out nowhere")

    monkeypatch.setattr(Trainer, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_language_model(TEXTS, subject_of(dice({END: 0.2}), Effort(), test=TEXTS), "test")


# Copies


def test_distances_to_training_sentences_are_those_of_brute_force(dice: Dice) -> None:
    space = dice({END: 0.2, UNKNOWN: 0.05})
    train, test = TEXTS[:80], [*TEXTS[80:100], TEXTS[0], "anna sees zebras"]
    found = copying(subject_of(space, Effort(prior_samples=25), train=[*train, "dora hears lions"], test=test))
    known = [text.split() for text in (*train, "dora hears <unk>")]

    def distances(texts: list[str]) -> list[int]:
        return [min(word_edit_distance(text.split(), sentence) for sentence in known) for text in texts]

    compared = {
        "sampled": drawn(space, 25),
        "greedy": drawn(space, 25, Greedy()),
        "test": [*test[:-1], "anna sees <unk>"],
    }
    for key, texts in compared.items():
        direct = distances(texts)
        assert value(found, f"distance_{key}") == np.mean(direct)
        assert value(found, f"copies_{key}") == np.mean([distance == 0 for distance in direct])
        assert value(found, f"length_{key}") == np.mean([len(text.split()) for text in texts])
    assert value(found, "distance_sampled") != value(found, "distance_greedy")
    assert value(found, "copies_test") >= 1 / 22
    assert value(found, "length_train") == np.mean([len(words) for words in known])
    assert found.estimates["distance_sampled"].n == 25
    assert found.estimates["distance_test"].n == 22


def test_copies_are_found_out(dice: Dice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Space, "sample", lambda self, n, **options: TEXTS[:n])
    found = copying(subject_of(dice({END: 0.2}), Effort(prior_samples=1000), train=TEXTS * 3, test=["cats cats"]))
    assert value(found, "distance_sampled") == value(found, "distance_greedy") == 0
    assert value(found, "copies_sampled") == 1
    assert value(found, "copies_test") == 0


def test_at_most_three_hundred_samples_are_looked_up(dice: Dice, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "_samples", lambda subject, count, method=None: asked.append(count) or ["cats"] * count)
    copying(subject_of(dice({END: 0.2}), Effort(prior_samples=1000), train=TEXTS, test=TEXTS))
    assert asked == [300, 300]


# The registry


def test_language_models_have_samples_too_and_findings_survive_json(tiny: Prepared) -> None:
    recipe = small(RECIPES["lstm-lm"])
    space = Space(recipe, tiny.tokenizer, Model(recipe, len(tiny.tokenizer)))
    effort = Effort(prior_samples=10, language_model_epochs=1)
    subject = subject_of(space, effort, test=TEXTS[:20], train=TEXTS[20:])
    assert list(MEASURES) == ["prior_samples", "sample_language_model", "copying"]
    for measure in MEASURES.values():
        found = measure.run(subject)
        assert Findings.from_dict(found.to_dict()) == found
        assert found.estimates
        assert "quick" not in measure.suites
        assert all("standard error" in estimate.settings["error"] for estimate in found.estimates.values())
