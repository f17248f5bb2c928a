"""Transfer tasks: known answers on arrays, and folders of small files against sums by hand."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from small_subjects import subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures import classifiers
from textspace.evaluate.measures import transfer as module
from textspace.evaluate.measures.classifiers import fit_linear, majority_correct
from textspace.evaluate.measures.pairs import pair_features
from textspace.evaluate.measures.tasks import read_pairs, read_singles
from textspace.evaluate.measures.transfer import cross_validated, held_out, transfer
from textspace.noise import seed_of
from textspace.space import Space


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(2)


@pytest.fixture(autouse=True)
def _few_penalties(monkeypatch) -> None:
    monkeypatch.setattr(classifiers, "PENALTIES", (0.1, 10.0))


@pytest.fixture
def space(small_vae, tiny) -> Space:
    return untrained(small_vae, tiny.tokenizer)


def write(path: Path, rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join("\t".join(map(str, row)) + "\n" for row in rows).encode()))


def subject_in(folder: Path, space: Space, train: list[str] | None = None) -> Subject:
    splits = {"test": ["anna sees cats"]} | ({} if train is None else {"train": train})
    return subject_on(space, splits, task_files=folder)


def unique_sentences(count: int) -> list[str]:
    return list(dict.fromkeys(tiny_sentences(2 * count + 40)))[:count]


# On arrays


def test_every_sentence_is_tested_once_by_others(chance, monkeypatch) -> None:
    features_NF, classes_N = chance.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
    trained: list[set[bytes]] = []

    def watched(features: np.ndarray, classes: np.ndarray, **named: object) -> object:
        trained.append({row.tobytes() for row in features})
        assert np.bincount(classes).tolist() == [18, 18, 18]
        return fit_linear(features, classes, seed=0)

    monkeypatch.setattr(module, "fit_linear", watched)
    cross_validated(features_NF, classes_N, seed=0)
    assert len(trained) == 10
    held = [{row.tobytes() for row in features_NF} - own for own in trained]
    assert sorted(row for own in held for row in own) == sorted(row.tobytes() for row in features_NF)


def test_cross_validation_reads_what_is_there_and_nothing_from_noise(chance) -> None:
    features_NF, classes_N = chance.normal(size=(200, 2)), np.repeat([0, 1], [120, 80])
    apart = cross_validated(features_NF + 20 * classes_N[:, None], classes_N, seed=1)
    assert apart.correct_N.all()
    assert apart.dev == 1
    assert apart.majority_N.mean() == 0.6
    assert cross_validated(features_NF, classes_N, seed=1).correct_N.mean() == pytest.approx(0.6, abs=0.06)


def test_a_class_of_one_sentence_cannot_be_cross_validated(chance) -> None:
    with pytest.raises(TextspaceError, match="a class has a single sentence"):
        cross_validated(chance.normal(size=(5, 2)), np.array([0, 0, 0, 0, 1]), seed=0)


def test_held_out_data_are_neither_fitted_nor_chosen_on(chance) -> None:
    train, valid, test = ((chance.normal(size=(n, 3)), chance.integers(2, size=n)) for n in (80, 50, 40))
    found = held_out(train, valid, test, seed=4)
    fit = fit_linear(*train, seed=4, valid=valid)
    np.testing.assert_array_equal(found.correct_N, fit.predict(test[0]) == test[1])
    assert found.dev == (fit.predict(valid[0]) == valid[1]).mean()
    np.testing.assert_array_equal(found.majority_N, majority_correct(train[1], test[1]))
    assert held_out(train, None, test, seed=4).dev == fit_linear(*train, seed=4, folds=10).dev


# The measure


def test_single_sentences_and_pairs_are_as_computed_by_hand(tmp_path, space) -> None:
    texts = unique_sentences(240)
    labels = ["yes" if text.startswith(("anna", "bob")) else "no" for text in texts]
    singles = list(zip(labels, texts, strict=True))
    write(tmp_path / "cls" / "TREC.train.tsv.gz", singles[:160])
    write(tmp_path / "cls" / "TREC.test.tsv.gz", singles[160:])
    pairs = [(int(len(a.split()) > len(b.split())), a, b) for a, b in zip(texts[:120], texts[120:], strict=True)]
    for part, rows in (("train", pairs[:60]), ("valid", pairs[60:90]), ("test", pairs[90:])):
        write(tmp_path / "mrpc" / f"{part}.tsv.gz", rows)
    found = transfer(subject_in(tmp_path, space)).estimates
    assert set(found) == {f"{task}{more}" for task in ("trec", "mrpc") for more in ("", "_with_length", "_majority")}

    codes_NZ = space.encode(texts).astype(float)
    classes_N = np.array([label == "yes" for label in labels]) * 1
    seed = seed_of(0, "transfer", "trec")
    expected = held_out((codes_NZ[:160], classes_N[:160]), None, (codes_NZ[160:], classes_N[160:]), seed=seed)
    assert found["trec"].value == pytest.approx(100 * expected.correct_N.mean())
    assert found["trec_majority"].value == pytest.approx(100 * expected.majority_N.mean())
    assert found["trec"].settings["dev"] == pytest.approx(100 * expected.dev)

    features_NF = pair_features(codes_NZ[:120], codes_NZ[120:])
    pair_N = np.array([row[0] for row in pairs])
    parts = [(features_NF[s], pair_N[s]) for s in (slice(0, 60), slice(60, 90), slice(90, 120))]
    expected = held_out(*parts, seed=seed_of(0, "transfer", "mrpc"))
    assert found["mrpc"].value == pytest.approx(100 * expected.correct_N.mean())


def test_length_beside_the_code_tells_a_class_of_length(tmp_path, space) -> None:
    with torch.no_grad():
        space.model.posterior.mean.weight.zero_()
    texts = unique_sentences(150)
    write(tmp_path / "cls" / "CR.all.tsv.gz", [(int(len(text.split()) > 5), text) for text in texts])
    found = transfer(subject_in(tmp_path, space)).estimates
    assert found["cr"].value == found["cr_majority"].value
    assert found["cr_with_length"].value > 97
    assert "10-fold cross-validation" in found["cr"].name


def test_both_training_sets_of_sst2_are_told_apart(tmp_path, space) -> None:
    texts = unique_sentences(130)
    rows = [(int("cats" in text), text) for text in texts]
    for part, own in (("train", rows[:60]), ("valid", rows[90:110]), ("test", rows[110:])):
        write(tmp_path / "cls" / f"SST2.{part}.tsv.gz", own)
    assert "sst2_phrases" not in transfer(subject_in(tmp_path, space)).estimates
    write(tmp_path / "cls" / "SST2.train_phrases.tsv.gz", rows[:90])
    found = transfer(subject_in(tmp_path, space)).estimates
    assert "trained on 60" in found["sst2"].name
    assert "trained on 90" in found["sst2_phrases"].name
    assert found["sst2"].settings["penalty_chosen_on"] == "validation set"


def test_training_sentences_of_the_space_are_not_tested_on(tmp_path, space) -> None:
    texts = unique_sentences(120)
    rows = [(int("cats" in text), text) for text in texts]
    write(tmp_path / "cls" / "TREC.train.tsv.gz", rows[:80])
    write(tmp_path / "cls" / "TREC.test.tsv.gz", rows[80:])
    write(tmp_path / "cls" / "MR.all.tsv.gz", [*rows, (1, "")])
    seen = [texts[0], texts[80].upper(), f"{texts[81]} !"]
    found = transfer(subject_in(tmp_path, space, seen))
    assert (found.estimates["trec"].n, found.estimates["trec"].settings["dropped_for_training"]) == (38, 2)
    assert (found.estimates["mr"].n, found.estimates["mr"].settings["dropped_for_training"]) == (117, 3)
    assert found.estimates["mr"].settings["dropped_for_no_text"] == 1
    assert {row[0]: row[2] for row in found.tables["transfer"].rows} == {"MR": 3, "TREC": 2}


def test_folders_without_tasks_or_without_a_test_set_say_so(tmp_path, space) -> None:
    with pytest.raises(TextspaceError, match="has no files of transfer tasks"):
        transfer(subject_in(tmp_path, space))
    write(tmp_path / "cls" / "TREC.train.tsv.gz", [(0, "anna"), (1, "bob")])
    with pytest.raises(TextspaceError, match="TREC lacks its test set"):
        transfer(subject_in(tmp_path, space))


@pytest.mark.corpora
def test_the_majority_rates_of_the_published_files_are_those_of_the_papers() -> None:
    folder = os.environ.get("TEXTSPACE_CORPORA")
    if not folder:
        pytest.skip("TEXTSPACE_CORPORA does not name the folder of the real corpora")
    cr = read_singles(Path(folder), "cls/CR.all")
    assert cr is not None
    assert cr.empty == 4
    assert cr.labels.count("1") / len(cr) == pytest.approx(0.638, abs=0.001)
    for name, kind, label, rate in (("mrpc/test", "mrpc", "1", 0.665), ("sick/test", "sick", "NEUTRAL", 0.567)):
        pairs = read_pairs(Path(folder), name, kind)
        assert pairs is not None
        assert pairs.labels.count(label) / len(pairs) == pytest.approx(rate, abs=0.0005)
    for task in module.TASKS.values():
        assert module._read(Path(folder), task) is not None
