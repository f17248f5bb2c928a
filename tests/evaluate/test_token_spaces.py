"""Every measure on a space whose every token has a code: it is measured, or the report says why not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import short_sentences, small
from small_subjects import subject_on, untrained

from textspace.evaluate.measure import PERTURBATION, Effort, Subject
from textspace.evaluate.measures import language_models
from textspace.evaluate.registry import measures, measures_named
from textspace.evaluate.suite import evaluate
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = short_sentences(140)
NOT_MEASURED = {
    "code_overlap": "every token of the space has a code",
    "kept_dimensions": "every token of the space has a code",
    "class_gates": "no gates",
    "distance_to_truth": "built-in corpus",
    "factors": "built-in corpus",
    "sentence_pairs": "files of the tasks",
    "transfer": "files of the tasks",
    "fine_tuning": "files of the tasks",
    "answer_ranking": "do not ask and answer questions",
}


@pytest.fixture
def subject(token_space: Space, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setattr(language_models, "UNITS", (8, 8))
    monkeypatch.setattr(language_models, "STEPS", 2)
    splits = {"train": TEXTS[:60], "valid": TEXTS[60:80], "test": TEXTS[80:]}
    labels = {name: [str(len(text.split()) % 2) for text in texts] for name, texts in splits.items()}
    effort = Effort(
        importance_samples=2, decoded=10, pairs=100, repeats=2, prior_samples=20, language_model_epochs=1, sentences=60
    )
    return subject_on(token_space, splits, labels, effort=effort)


@pytest.mark.filterwarnings("ignore")
def test_every_measure_takes_it_or_says_why_not(subject) -> None:
    slow = {"mlp_probe", "length_classifier"}  # and no other than `sampled_classifier` in what they read
    report = evaluate(subject, {name: measure for name, measure in measures().items() if name not in slow})
    assert set(report.skipped) == set(NOT_MEASURED)
    for name, reason in NOT_MEASURED.items():
        assert reason in report.skipped[name]
    assert "for every token" in report.space["about"]
    for entry in report.entries.values():
        for estimate in entry.findings.estimates.values():
            assert np.isfinite(estimate.value), (entry.about, estimate.name)


def test_the_code_of_a_sentence_is_the_mean_of_its_tokens(subject) -> None:
    test, space = subject.test, subject.space
    tokens = space.encode(test.texts)
    np.testing.assert_allclose(test.means_NZ, [each.mean(0) for each in tokens], atol=1e-6)
    samples = space.encode(test.texts, what="sample", seed=0)
    np.testing.assert_allclose(test.samples_NZ, [each.mean(0) for each in samples], atol=1e-6)
    np.testing.assert_allclose(test.sampled(0), test.samples_NZ, atol=1e-6)
    assert np.abs(test.sampled(1) - test.samples_NZ).max() > 0.01


def test_codes_to_decode_are_those_of_the_tokens(subject) -> None:
    test, space = subject.test, subject.space
    expected = {
        "mean": space.encode(test.texts),
        "sample": space.encode(test.texts, what="sample", seed=0),
        "perturbed": space.encode(test.texts, what="sample", strength=PERTURBATION, seed=seed_of(0, "perturbed")),
    }
    for kind, codes in expected.items():
        for one, other in zip(test.codes(kind, [3, 0, 7]), [codes[3], codes[0], codes[7]], strict=True):
            np.testing.assert_array_equal(one, other)


def test_codes_to_decode_of_whole_sentences_are_rows(tiny) -> None:
    test = subject_on(untrained(small(RECIPES["vae"]), tiny.tokenizer), TEXTS[:9]).test
    for kind, whole in (("mean", test.means_NZ), ("sample", test.samples_NZ), ("perturbed", test.perturbed_NZ)):
        np.testing.assert_array_equal(test.codes(kind, [3, 0, 7]), whole[[3, 0, 7]])


def test_a_trained_space_leads_back_varies_and_tells_words_apart(subject) -> None:
    chosen = measures_named(["isotropy", "completeness", "variety", "reconstruction"])
    more = replace(subject, effort=replace(subject.effort, decoded=60, prior_samples=60))
    entries = evaluate(more, chosen).entries
    values = {key: each.value for entry in entries.values() for key, each in entry.findings.estimates.items()}
    assert values["exact_match_greedy_mean"] > 0.4  # or the rest says little
    assert values["random_cosine"] < values["self_similarity_samples"] < values["self_similarity"]
    assert values["intra_sentence"] > values["intra_sentence_dealt"] > values["random_cosine"]
    assert values["well_formed_mean"] > 0.8
    assert values["nearer_mean"] > 0.9
    assert values["token_distance_mean"] < 0.5 * values["token_distance_other_mean"]
    assert values["distinct_strength_0_5"] <= values["distinct_strength_1"] < values["distinct_strength_2"]
    assert values["copies_strength_0_5"] > values["copies_strength_2"]
