"""Fine-tuning: what can be learnt is learnt, the space stays as it was, and a run can be repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import changed, copied, small, tiny_sentences
from small_subjects import subject_on, untrained
from tiny_encoder import tiny_encoder

from textspace.data.batching import make_batch
from textspace.evaluate.measure import Effort, Subject
from textspace.evaluate.measures import fine_tuning as module
from textspace.evaluate.measures.classification_tasks import prepared_tasks
from textspace.evaluate.measures.fine_tuning import FineTuned, Inputs, Training, fine_tune, fine_tuning
from textspace.evaluate.measures.sentence_encoders import POOLINGS, SpaceEncoder, encoders_of
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture(autouse=True)
def _one_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOW", Training(epochs=12, rates=(1e-2,), smallest_batch=8))


def write(path: Path, rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def subject_in(folder: Path, space: Space, **more: object) -> Subject:
    return subject_on(space, ["anna sees cats"], task_files=folder, **more)


def unique(count: int) -> list[str]:
    return list(dict.fromkeys(tiny_sentences(2 * count + 60)))[:count]


@pytest.fixture
def space(tiny) -> Space:
    return untrained(small(RECIPES["vae"]).but({"latent.dim": 8}), tiny.tokenizer)


def word_task(folder: Path, count: int = 300, first: bool = False) -> None:
    """TREC, where the class is the first word, or which of three words is the last one: four classes."""

    def word(text: str) -> str:
        last = text.split()[-1]
        return text.split()[0] if first else last if last in ("cats", "dogs", "trees") else "another"

    rows = [(word(text), text) for text in unique(count)]
    write(folder / "cls" / "TREC.train.tsv", rows[: 2 * count // 3])
    write(folder / "cls" / "TREC.test.tsv", rows[2 * count // 3 :])


# Learning


def test_a_class_that_is_a_word_is_learnt_and_the_space_stays_as_it_was(tmp_path, space) -> None:
    word_task(tmp_path)
    before, codes = copied(space.model), space.encode(unique(5))
    found = fine_tuning(subject_in(tmp_path, space)).estimates
    assert found["trec"].value > 75 > 65 > found["trec_majority"].value
    assert found["trec"].settings["dev"] > 75
    assert (found["trec"].settings["trained_on"], found["trec"].n) == (180, 100)
    assert changed(space.model, before) == set()
    assert not space.model.training
    np.testing.assert_array_equal(space.encode(unique(5)), codes)


def test_a_run_can_be_repeated_and_another_seed_is_another_run(tmp_path, space) -> None:
    word_task(tmp_path, 90)
    (prepared,) = prepared_tasks(subject_in(tmp_path, space), "")
    encoder = SpaceEncoder(space)
    rows = Inputs([encoder.split(prepared.parts["train"].texts)], prepared.classes["train"])

    def weights(seed: int) -> torch.Tensor:
        network = fine_tune(encoder, rows, np.arange(60), classes=4, rate=1e-2, seed=seed, how=Training(epochs=2))
        return torch.cat([parameter.flatten() for parameter in network.parameters()])

    first = weights(3)
    torch.rand(5)  # what others draw does not matter
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))


def test_an_encoder_of_others_is_trained_with_its_dropout_and_can_be_repeated(tmp_path, space) -> None:
    word_task(tmp_path, 90)
    (prepared,) = prepared_tasks(subject_in(tmp_path, space), "")
    encoder = encoders_of(subject_in(tmp_path, space, baselines=(str(tiny_encoder()),)))[-1]
    rows = Inputs([encoder.split(prepared.parts["train"].texts)], prepared.classes["train"])
    dropout: list[bool] = []
    encoder.baseline.encoder.network.embeddings.dropout.register_forward_hook(
        lambda module, given, made: dropout.append(not torch.equal(given[0], made))
    )

    def weights() -> torch.Tensor:
        network = fine_tune(encoder, rows, np.arange(60), classes=4, rate=1e-2, seed=3, how=Training(epochs=1))
        assert not any(part.training for part in network.modules())
        return torch.cat([parameter.flatten() for parameter in network.parameters()])

    first = weights()
    assert all(dropout)
    torch.rand(5)  # what others draw does not matter
    state = torch.random.get_rng_state()
    assert torch.equal(first, weights())
    assert torch.equal(state, torch.random.get_rng_state())  # nor does others' randomness change


def test_batches_are_made_by_what_the_encoder_reads(tmp_path, space) -> None:
    subject = subject_in(tmp_path, space, baselines=(str(tiny_encoder()),))
    texts = ["anna sees cats", "bob", "stones stones"]
    for encoder in (encoders_of(subject)[0], encoders_of(subject)[-1]):
        split = encoder.split(texts)
        lengths = [int(make_batch(split, np.array([row])).encoder.lengths_B[0]) for row in range(3)]
        assert Inputs([split, split], np.zeros(3, int)).lengths_N.tolist() == [2 * each for each in lengths]
    assert lengths != [5, 3, 4]  # pieces of words and special tokens, not the space's words


def test_the_encoder_learns_and_not_only_what_is_above_it(tmp_path, space) -> None:
    word_task(tmp_path, 90)
    (prepared,) = prepared_tasks(subject_in(tmp_path, space), "")
    encoder = SpaceEncoder(space)
    rows = Inputs([encoder.split(prepared.parts["train"].texts)], prepared.classes["train"])
    network = fine_tune(encoder, rows, np.arange(60), classes=4, rate=1e-2, seed=0, how=Training(epochs=1))
    moved = {name.partition(".")[0] for name in changed(network.codes.model, copied(space.model))}
    assert moved == {"encoder", "posterior"}


@pytest.mark.parametrize("key", ["mrpc", "mrpc_joined"])
def test_pairs_are_learnt_compared_and_joined(tmp_path, space, key) -> None:
    texts = unique(400)
    firsts, others = texts[:200], texts[200:]
    if key == "mrpc":  # compared, it shows which pairs are one sentence twice
        rows = [(int(at % 2), a, a if at % 2 else b) for at, (a, b) in enumerate(zip(firsts, others, strict=True))]
    else:  # joined, it shows how the text ends
        rows = [(int(b.split()[-1] < "e"), a, b) for a, b in zip(firsts, others, strict=True)]
    for part, own in (("train", rows[:120]), ("valid", rows[120:150]), ("test", rows[150:])):
        write(tmp_path / "mrpc" / f"{part}.tsv", own)
    found = fine_tuning(subject_in(tmp_path, space)).estimates
    assert set(found) == {"mrpc", "mrpc_joined", "mrpc_majority"}
    assert found[key].value > found["mrpc_majority"].value + 20
    assert found[key].settings["dev_data"] == "validation set"
    assert found["mrpc_joined"].settings["separator"] == ";"
    assert "separator" not in found["mrpc"].settings


def test_two_inputs_are_compared(space) -> None:
    network = FineTuned(SpaceEncoder(space).network(), 2, 3).eval()
    split = SpaceEncoder(space).split(["anna sees cats", "bob likes dogs"])
    one, other = (make_batch(split, np.array([row])).encoder for row in (0, 1))
    noise = Noise(0, 0, torch.arange(1))
    u, v = (torch.from_numpy(space.encode([text])) for text in ("anna sees cats", "bob likes dogs"))
    expected = network.head(torch.cat([(u - v).abs(), u * v], 1)).log_softmax(1)
    torch.testing.assert_close(network([one, other], noise), expected)
    hidden, _, logits = network.head
    assert (hidden.in_features, hidden.out_features, logits.out_features) == (16, 8, 3)


# What is trained and tested


def test_of_ten_folds_as_many_are_trained_as_effort_allows(tmp_path, space, monkeypatch) -> None:
    write(tmp_path / "cls" / "CR.all.tsv", [(int("cats" in text), text) for text in unique(100)])
    trained: list[set[int]] = []

    def watched(encoder: object, rows: object, train_N: np.ndarray, **named: object) -> FineTuned:
        trained.append(set(train_N))
        return FineTuned(SpaceEncoder(space).network(), 1, 2).eval()

    monkeypatch.setattr(module, "fine_tune", watched)
    subject = replace(subject_in(tmp_path, space), effort=Effort(repeats=2))
    found = fine_tuning(subject).estimates["cr"]
    assert (found.settings["folds_trained"], found.settings["folds"]) == (2, 10)
    assert 11 <= found.n <= 20
    assert "2 of 10 folds" in found.name
    assert [len(rows) for rows in trained] == [81, 81]
    trained.clear()
    assert fine_tuning(replace(subject, effort=Effort(repeats=12))).estimates["cr"].n == 91
    assert len(trained) == 10


def test_the_rate_with_the_best_dev_accuracy_serves_for_all_folds(tmp_path, space, monkeypatch) -> None:
    write(tmp_path / "cls" / "MR.all.tsv", [(int(text.split()[-1] < "e"), text) for text in unique(200)])
    monkeypatch.setattr(module, "HOW", Training(epochs=12, rates=(1e-9, 1e-2), smallest_batch=8))
    rates: list[float] = []

    def watched(*given: object, rate: float, **named: object) -> FineTuned:
        rates.append(rate)
        return fine_tune(*given, rate=rate, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "fine_tune", watched)
    found = fine_tuning(replace(subject_in(tmp_path, space), effort=Effort(repeats=2))).estimates["mr"]
    assert rates == [1e-9, 1e-2, 1e-2]
    assert found.settings["learning_rate"] == 1e-2
    assert found.settings["learning_rates_tried"] == "1e-09, 0.01"


def test_tested_sentences_are_neither_trained_nor_tuned_on(tmp_path, space, monkeypatch) -> None:
    word_task(tmp_path, 90)
    (prepared,) = prepared_tasks(subject_in(tmp_path, space), "")
    ((cut,), folds) = module._cuts(prepared, 0, 10)
    assert folds == 1
    assert sorted([*cut.train_N, *cut.dev_N]) == list(range(60))
    assert cut.test_N.tolist() == list(range(60, 90))
    assert len(cut.dev_N) == 6


def test_no_fold_tests_what_the_rate_was_chosen_on(tmp_path, space, monkeypatch) -> None:
    write(tmp_path / "cls" / "MR.all.tsv", [(int(text.split()[-1] < "e"), text) for text in unique(200)])
    scored: list[set[int]] = []

    def watched(network: FineTuned, rows: Inputs, tested_N: np.ndarray) -> np.ndarray:
        scored.append(set(tested_N))
        return np.ones(len(tested_N), bool)

    monkeypatch.setattr(module, "HOW", Training(epochs=1, rates=(1e-3, 1e-2)))
    monkeypatch.setattr(module, "_correct", watched)
    found = fine_tuning(replace(subject_in(tmp_path, space), effort=Effort(repeats=10))).estimates
    chosen_on, tested = scored[0], [scored[1], *scored[5::2]]  # after the second training of the first fold
    assert (len(chosen_on), len(tested)) == (18, 10)
    assert set().union(*tested) == set(range(200)) - chosen_on
    assert found["mr"].n == found["mr_majority"].n == sum(map(len, tested)) == 182
    assert found["mr"].settings["learning_rate_chosen_on"] == "dev data of the first fold, which no fold tests"


def test_classes_that_training_does_not_know_are_wrong(tmp_path, space) -> None:
    word_task(tmp_path, 60)
    path = tmp_path / "cls" / "TREC.test.tsv"
    path.write_text(path.read_text() + "nobody\tanna sees dogs\n" * 60)
    found = fine_tuning(subject_in(tmp_path, space)).estimates["trec"]
    assert found.n == 80
    assert found.value <= 25


# Other encoders


def test_codes_of_tokens_are_pooled_in_three_ways(tmp_path, token_space) -> None:
    word_task(tmp_path, first=True)
    found = fine_tuning(subject_in(tmp_path, token_space)).estimates
    assert set(found) == {"trec", "trec_mean", "trec_start", "trec_sum", "trec_majority"}
    assert found["trec"] == found["trec_mean"]
    for pooling in ("mean", "start", "sum"):
        assert found[f"trec_{pooling}"].value > found["trec_majority"].value + 20


def test_a_baseline_stands_beside_the_space_and_stays_as_it_came(tmp_path, space) -> None:
    word_task(tmp_path, first=True)
    subject = subject_in(tmp_path, space, baselines=(str(tiny_encoder()),))
    encoder = encoders_of(subject)[1].baseline.encoder
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    findings = fine_tuning(subject)
    name = tiny_encoder().name
    keys = [key for key in findings.estimates if key.startswith("trec_tiny_encoder")]
    assert len(keys) == 3
    assert all(findings.estimates[key].value > findings.estimates["trec_majority"].value + 20 for key in keys)
    titles = [row[1] for row in findings.tables["fine_tuning"].rows]
    assert titles == ["none: majority class", "space", *(f"{name}, {pooling}" for pooling in POOLINGS)]
    assert all(torch.equal(weight, before[name]) for name, weight in encoder.state_dict().items())
