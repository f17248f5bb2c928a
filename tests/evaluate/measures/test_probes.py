"""Probes of codes, where the answer is known: separable codes, noise, collapsed spaces, sums by hand."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from small_subjects import gated, subject_on, untrained
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort, Findings, Subject
from textspace.evaluate.measures import classifiers, probes
from textspace.evaluate.measures.classifiers import (
    AveragedClassifier,
    accuracy_over_seeds,
    balanced_draw,
    fit_linear,
    labelled,
    majority_correct,
    network_predictions,
    train_network,
)
from textspace.evaluate.measures.probes import (
    few_label_correct,
    few_labels,
    label_counts,
    length_classifier,
    mlp_probe,
    sampled_classifier,
    unknown_share,
)
from textspace.space import Space

SIZES = {"train": 300, "valid": 60, "test": 150}
EVEN = {"a": 0.4, "b": 0.4, "c": 0.2}


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def space(small_vae, tiny) -> Space:
    return untrained(small_vae, tiny.tokenizer)


@pytest.fixture
def collapsed(space: Space) -> Space:
    with torch.no_grad():
        for head in (space.model.posterior.mean, space.model.posterior.log_variance):
            head.weight.zero_()
    return space


def labelled_subject(
    space: Space, chance: np.random.Generator, shares: dict[str, float] = EVEN, **more: Any
) -> Subject:
    texts = {name: tiny_sentences(size) for name, size in SIZES.items()}
    labels = {name: chance.choice(list(shares), size, p=list(shares.values())).tolist() for name, size in SIZES.items()}
    return subject_on(space, texts, labels, **{"effort": Effort(repeats=3)} | more)


def with_codes(subject: Subject, codes: Any) -> Subject:
    """The same with codes made of labels: `codes` gives the means of sentences from the numbers of their classes."""
    for sentences in subject.splits.values():
        assert sentences.labels is not None
        numbers = np.array([ord(label) - ord("a") for label in sentences.labels])
        means_NZ = codes(numbers)
        sentences.__dict__["_parameters"] = means_NZ, np.ones_like(means_NZ)
    return subject


def linear_findings(found: Findings) -> dict[str, float]:
    return {key: e.value for key, e in found.estimates.items() if key.startswith("linear")}


# Arrays


def test_the_majority_is_that_of_training() -> None:
    correct_N = majority_correct(np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1, -1]))
    assert correct_N.tolist() == [True, False, False, True, False]


def test_a_balanced_draw_has_as_many_of_each_class_and_none_twice(chance) -> None:
    classes_N = np.repeat([0, 1, 2], [50, 7, 20])
    rows = balanced_draw(classes_N, 7, chance)
    assert np.bincount(classes_N[rows]).tolist() == [7, 7, 7]
    assert len(set(rows.tolist())) == 21
    assert sorted(rows) != sorted(balanced_draw(classes_N, 7, chance))


def test_label_counts_are_those_that_a_balanced_draw_reaches() -> None:
    assert label_counts(np.repeat([0, 1], [400, 600])) == [100, 500]
    assert label_counts(np.repeat([0, 1], [249, 751])) == [100]
    assert label_counts(np.arange(60).repeat(2)) == [100]
    assert label_counts(np.arange(120).repeat(2)) == []


@pytest.mark.parametrize("of_run", [0.0, 0.05])
def test_errors_of_accuracies_are_those_that_other_runs_on_other_sentences_show(chance, of_run: float) -> None:
    """Though whether a sentence is right is chance within each run, too, which is in both errors."""
    values, errors = [], []
    for _ in range(400):
        easy_N, run_R1 = chance.uniform(size=200), of_run * chance.normal(size=(4, 1))
        drawn = accuracy_over_seeds("x", chance.uniform(size=(4, 200)) < 0.5 * easy_N + 0.4 + run_R1, {})
        values.append(drawn.value)
        errors.append(drawn.stderr)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.12)


def test_accuracies_have_the_error_of_sentences_and_of_runs() -> None:
    correct_RN = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], bool)
    several = accuracy_over_seeds("x", correct_RN, {})
    assert (several.value, several.n, several.settings["runs"]) == (62.5, 4, 2)
    over_sentences = np.std([100, 100, 50, 0], ddof=1) / 2
    spread = np.std([50, 75], ddof=1)
    assert several.settings["spread"] == pytest.approx(spread)
    both_RN = 100 * (correct_RN - correct_RN.mean(1, keepdims=True) - correct_RN.mean(0) + correct_RN.mean())
    both = (both_RN**2).sum() / 3 / 8
    assert several.stderr == pytest.approx(math.sqrt(over_sentences**2 + spread**2 / 2 - both))
    assert several.settings["error"] == "standard error over sentences and runs"
    one = accuracy_over_seeds("x", correct_RN[1:], {})
    assert one.stderr == pytest.approx(100 * math.sqrt(0.75 * 0.25 / 3))
    assert one.settings["error"] == "standard error over sentences"
    assert "spread" not in one.settings
    assert accuracy_over_seeds("x", correct_RN[:1, :1], {}).stderr is None


def test_a_linear_classifier_reads_what_is_linear_and_nothing_from_noise(chance) -> None:
    features_NF = chance.normal(size=(600, 5))
    classes_N = (features_NF @ [3.0, -2.0, 0.0, 1.0, 0.5] > 0).astype(int)
    fit = fit_linear(features_NF[:400], classes_N[:400], seed=1)
    assert (fit.predict(features_NF[400:]) == classes_N[400:]).mean() > 0.97
    assert fit.dev is not None
    assert fit.dev > 0.97
    noise_N = (chance.random(600) < 0.7).astype(int)
    fit = fit_linear(features_NF[:400], noise_N[:400], seed=1)
    assert (fit.predict(features_NF[400:]) == noise_N[400:]).mean() == pytest.approx(noise_N[400:].mean(), abs=0.03)


def test_the_penalty_is_the_one_that_is_best_on_validation_data(chance) -> None:
    features_NF = chance.normal(size=(300, 40))
    classes_N = (features_NF[:, 0] + 2 * chance.normal(size=300) > 0).astype(int)
    train, valid = slice(0, 60), slice(60, 300)
    chosen = fit_linear(features_NF[train], classes_N[train], seed=0, valid=(features_NF[valid], classes_N[valid]))
    scores = []
    for C in classifiers.PENALTIES:
        fitted = classifiers._classifier(C, scale=True).fit(features_NF[train], classes_N[train])
        scores.append((fitted.predict(features_NF[valid]) == classes_N[valid]).mean())
    assert classifiers.PENALTIES[int(np.argmax(scores))] == chosen.C
    assert chosen.dev == max(scores) > min(scores)


@pytest.mark.parametrize("classes", [2, 3])
def test_initial_weights_do_not_decide_a_convex_problem(chance, classes: int) -> None:
    features_NF, classes_N = chance.normal(size=(90, 4)), chance.integers(classes, size=90)
    plain = classifiers._classifier(1.0, True).fit(features_NF, classes_N)[-1].coef_
    for seed in range(3):
        ours = classifiers._fitted(features_NF, classes_N, 1.0, True, np.random.default_rng(seed))[-1].coef_
        np.testing.assert_allclose(ours, plain, atol=2e-3)


def test_fits_take_one_thread_and_give_the_others_back(chance, monkeypatch) -> None:
    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    seen: list[set[int]] = []
    own = classifiers._fitted
    monkeypatch.setattr(classifiers, "_fitted", lambda *given: (seen.append(threads()), own(*given))[1])
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        fit_linear(chance.normal(size=(20, 2)), np.arange(20) % 2, seed=0)
        assert threads() == before
    assert seen == [{1}]


def test_a_class_with_one_sentence_is_fitted_without_choosing(chance) -> None:
    fit = fit_linear(chance.normal(size=(9, 2)), np.array([0] * 8 + [1]), seed=0)
    assert (fit.C, fit.dev) == (1.0, None)


def test_few_labels_are_drawn_anew_in_every_run_and_again_from_the_same_seed(space, chance) -> None:
    subject = with_codes(
        labelled_subject(space, chance, {"a": 0.5, "b": 0.5}),
        lambda numbers: numbers[:, None] + chance.normal(size=(len(numbers), 3)),
    )
    _, (train, test) = labelled(subject, "train", "test")
    first, again, other = (few_label_correct(train, [test], labels=100, runs=3, seed=s)[0] for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({row.tobytes() for row in first}) > 1


# Networks


def test_the_classifier_averages_probabilities_not_their_logarithms() -> None:
    network = AveragedClassifier(3, 8, 2, 4)
    x_BKF = torch.randn(6, 5, 3)
    mean_BC = torch.stack([network.network(x_BKF[:, k]).softmax(1) for k in range(5)]).mean(0)
    torch.testing.assert_close(network(x_BKF).exp(), mean_BC)


def test_the_classifiers_have_the_layers_of_the_papers() -> None:
    sizes = [(layer.in_features, layer.out_features) for layer in AveragedClassifier(7, 32, 2, 3).network[::2]]
    assert sizes == [(7, 32), (32, 32), (32, 3)]


def test_a_network_reads_what_a_line_cannot_cut_and_depends_on_its_seed_alone(chance) -> None:
    x_NF = chance.normal(size=(900, 1, 2))
    y_N = ((x_NF[:, 0, 0] > 0) ^ (x_NF[:, 0, 1] > 0)).astype(int)
    parts = x_NF[:600], y_N[:600], x_NF[600:700], y_N[600:700], x_NF[700:]
    predicted = network_predictions(*parts, hidden=32, layers=2, seed=5)
    assert (predicted == y_N[700:]).mean() > 0.95
    assert (fit_linear(x_NF[:600, 0], y_N[:600], seed=0).predict(x_NF[700:, 0]) == y_N[700:]).mean() < 0.65
    fewer = x_NF[:40], y_N[:40], x_NF[600:620], y_N[600:620], x_NF[700:]
    first, again, other = (network_predictions(*fewer, hidden=32, layers=2, seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_features_of_any_scale_are_read(chance) -> None:
    x_NF = chance.normal(size=(400, 1, 2))
    y_N = (x_NF[:, 0, 0] > x_NF[:, 0, 1]).astype(int)
    scaled_NF = 1e-3 * x_NF + 1000
    parts = scaled_NF[:200], y_N[:200], scaled_NF[200:300], y_N[200:300], scaled_NF[300:]
    assert (network_predictions(*parts, hidden=16, layers=2, seed=0) == y_N[300:]).mean() > 0.93


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    network = nn.Sequential(nn.Linear(1, 2, bias=False), nn.LogSoftmax(1))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[0.5], [-0.5]]))
    x, train_y, valid_y = torch.ones(4, 1), torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 1, 1])
    seen: list[Any] = []

    def valid(epoch: int) -> Any:
        seen.append(copy.deepcopy(network.state_dict()))
        return [(x, valid_y)]

    # Each step is surer of class 0 than the one before, and validation says that half are of class 1.
    train_network(network, lambda epoch: [(x, train_y)], valid, epochs=30, patience=4)
    assert len(seen) == 5
    torch.testing.assert_close(network[0].weight, seen[0]["0.weight"], rtol=0, atol=0)
    assert not torch.equal(seen[1]["0.weight"], seen[0]["0.weight"])


def test_validation_labels_that_training_does_not_know_stop_nothing(chance) -> None:
    x_NF, y_N = chance.normal(size=(40, 1, 2)), np.arange(40) % 2
    with pytest.raises(TextspaceError, match="no validation sentence has a label that training knows"):
        network_predictions(x_NF, y_N, x_NF[:3], np.full(3, -1), x_NF, hidden=4, layers=2, seed=0)


# Measures


def test_separable_codes_are_read_with_any_number_of_labels(space, chance) -> None:
    subject = with_codes(labelled_subject(space, chance), lambda numbers: np.eye(3)[numbers] + 0.01)
    found = few_labels(subject)
    assert linear_findings(found) == {"linear_100_labels": 100, "linear_all_labels": 100}
    assert "99 labels, 33 of each class" in found.estimates["linear_100_labels"].name
    assert found.pictures["few_labels"].x == [99, 300]
    assert found.estimates["majority"].value < 55
    assert mlp_probe(subject).estimates["mlp_accuracy"].value == 100
    means = {key: np.mean(values) for key, values in found.per_sentence.items()}
    assert means == linear_findings(found)


def test_validation_sentences_are_read_by_the_same_classifiers(space, chance) -> None:
    effort = Effort(repeats=1)
    subject = with_codes(labelled_subject(space, chance, effort=effort), lambda numbers: np.eye(3)[numbers])
    subject.splits["valid"].means_NZ[:12] = subject.splits["valid"].means_NZ[:12][:, [1, 2, 0]]  # of 60, all wrong
    found = few_labels(subject).estimates
    for labels in ("100", "all"):
        assert found[f"linear_{labels}_labels"].value == 100
        assert found[f"valid_linear_{labels}_labels"].value == pytest.approx(80)
        assert "validation sentences" in found[f"valid_linear_{labels}_labels"].name
        assert found[f"valid_linear_{labels}_labels"].n == 60
    subject.splits["valid"].labels = None
    found = few_labels(subject).estimates
    assert found["linear_all_labels"].value == 100
    assert not any(key.startswith("valid") for key in found)


def test_noise_is_read_no_better_than_the_majority(space, chance) -> None:
    shares = {"a": 0.7, "b": 0.3}
    subject = with_codes(labelled_subject(space, chance, shares), lambda n: chance.normal(size=(len(n), 4)))
    found = few_labels(subject)
    majority = found.estimates["majority"].value
    assert majority == pytest.approx(70, abs=10)
    assert found.estimates["linear_all_labels"].value == pytest.approx(majority, abs=4)
    assert found.estimates["linear_100_labels"].value < majority + 4
    assert mlp_probe(subject).estimates["mlp_accuracy"].value == pytest.approx(majority, abs=5)


def test_a_collapsed_space_gives_probes_at_the_level_of_the_majority(collapsed, chance) -> None:
    subject = labelled_subject(collapsed, chance)
    for sentences in subject.splits.values():  # a class that a word tells, were there a word in the code
        sentences.labels = ["b" if "cats" in text else "a" for text in sentences.texts]
    found = few_labels(subject)
    majority = found.estimates["majority"].value
    assert found.estimates["linear_all_labels"].value == majority
    assert mlp_probe(subject).estimates["mlp_accuracy"].value == majority
    assert sampled_classifier(subject).estimates["sampled_accuracy"].value == pytest.approx(majority, abs=5)


def test_samples_are_read_where_codes_hold_the_class(space, chance) -> None:
    with torch.no_grad():
        space.model.posterior.mean.weight.mul_(30)
        space.model.posterior.log_variance.bias.fill_(-6)
        space.model.posterior.log_variance.weight.zero_()
    subject = labelled_subject(space, chance, effort=Effort(repeats=1))
    for sentences in subject.splits.values():
        sentences.labels = ["long" if len(text.split()) > 5 else "short" for text in sentences.texts]
    found = sampled_classifier(subject)
    assert found.estimates["sampled_accuracy"].value > found.estimates["majority"].value + 20
    assert found.estimates["sampled_accuracy"].settings["samples"] == 5
    assert found == sampled_classifier(subject)


def test_samples_of_a_sentence_differ_and_do_not_depend_on_the_others(space, chance, monkeypatch) -> None:
    seen: list[np.ndarray] = []
    own = probes.network_predictions

    def watched(*arguments: Any, **named: Any) -> Any:
        seen.append(arguments[0])
        return own(*arguments, **named)

    monkeypatch.setattr(probes, "network_predictions", watched)
    subject = labelled_subject(space, chance, effort=Effort(repeats=1))
    sampled_classifier(subject)
    train_NKZ = seen[0]
    assert train_NKZ.shape == (300, 5, 4)
    assert np.abs(np.diff(train_NKZ, axis=1)).min() > 0
    mean_NZ, deviation_NZ = subject.splits["train"].means_NZ, subject.splits["train"].deviations_NZ
    standard = (train_NKZ - mean_NZ[:, None]) / deviation_NZ[:, None]
    assert standard.mean() == pytest.approx(0, abs=0.06)
    assert standard.std() == pytest.approx(1, abs=0.04)


def test_every_sample_of_a_space_with_gates_has_gates_of_its_own(tiny, chance, monkeypatch) -> None:
    """Gates are Beta(1/2, 1/2), so two samples are both off with 1/4; would they share a gate, with E gamma^2 = 3/8."""
    space = gated(tiny.tokenizer, **{"posterior.layers": 0, "posterior.slab_sees_gates": False})
    with torch.no_grad():
        for layer in (space.model.posterior.gates[0], space.model.posterior.slab[0]):
            layer.weight.zero_()
            layer.bias.zero_()
        space.model.posterior.gates[0].bias.fill_(math.log(math.expm1(0.5)))
        space.model.posterior.slab[0].bias[:8] = 10  # on is near 10, off near 0
    seen: list[np.ndarray] = []

    def watched(train_NKZ: np.ndarray, *arguments: Any, **named: Any) -> Any:
        seen.append(train_NKZ)
        return np.zeros(SIZES["test"], np.int64)

    monkeypatch.setattr(probes, "network_predictions", watched)
    sampled_classifier(labelled_subject(space, chance, effort=Effort(repeats=1)))
    off_NKZ = np.abs(seen[0]) < 1
    assert off_NKZ.shape == (300, 5, 8)
    assert off_NKZ.mean() == pytest.approx(0.5, abs=0.02)
    assert (off_NKZ[:, 1:] & off_NKZ[:, :-1]).mean() == pytest.approx(0.25, abs=0.02)


def test_classes_of_length_are_read_from_length_alone(space, chance) -> None:
    subject = labelled_subject(space, chance, effort=Effort(repeats=2))
    nothing = length_classifier(subject).estimates
    assert nothing["length_accuracy"].value == pytest.approx(nothing["majority"].value, abs=8)
    for sentences in subject.splits.values():
        sentences.labels = ["middle" if 4 <= len(text.split()) <= 6 else "else" for text in sentences.texts]
    found = length_classifier(subject)
    assert found.estimates["length_accuracy"].value > 97
    assert found.estimates["majority"].value < 70
    assert found.estimates["length_accuracy"].settings["hidden"] == 32


def test_the_share_of_unknown_tokens_is_counted(space) -> None:
    subject = subject_on(space, ["anna sees cats", "zyx sees wvu tsr", ""])
    found = unknown_share(subject.test)
    assert found.value == pytest.approx(100 * 3 / 7)
    residual = np.array([0, 3, 0]) - 3 / 7 * np.array([3, 4, 0])
    assert found.stderr == pytest.approx(100 * residual.std(ddof=1) / math.sqrt(3) / (7 / 3))
    assert unknown_share(subject_on(space, [""]).test).value == 0


def test_a_test_label_that_training_does_not_know_is_wrong(space, chance) -> None:
    subject = with_codes(labelled_subject(space, chance), lambda numbers: np.eye(3)[numbers])
    assert subject.test.labels is not None
    subject.test.labels[:15] = ["d"] * 15
    assert few_labels(subject).estimates["linear_all_labels"].value == pytest.approx(90)


def test_what_cannot_be_probed_says_so(space, chance) -> None:
    subject = labelled_subject(space, chance)
    without_valid = Subject(space, {name: subject.splits[name] for name in ("train", "test")})
    with pytest.raises(TextspaceError, match="there is no labelled valid split"):
        mlp_probe(without_valid)
    with pytest.raises(TextspaceError, match="there is no labelled train split"):
        few_labels(subject_on(space, ["anna sees cats"]))
    subject.splits["train"].labels = ["a"] * 300
    with pytest.raises(TextspaceError, match="all training sentences have the label 'a'"):
        labelled(subject, "train", "test")
