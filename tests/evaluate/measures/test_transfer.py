"""Transfer tasks: known answers on arrays, and folders of small files against sums by hand."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from small_subjects import subject_on, untrained
from tiny_encoder import tiny_encoder

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures import classification_tasks, classifiers
from textspace.evaluate.measures import transfer as module
from textspace.evaluate.measures.classifiers import fit_linear, majority_correct
from textspace.evaluate.measures.pairs import pair_features
from textspace.evaluate.measures.sentence_encoders import encoders_of
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
    keys = {f"{task}{more}" for task in ("trec", "mrpc", "mrpc_joined") for more in ("", "_with_length")}
    assert set(found) == keys | {"trec_majority", "mrpc_majority"}

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

    joined_NZ = space.encode([f"{a} ; {b}" for _, a, b in pairs]).astype(float)
    parts = [(joined_NZ[s], pair_N[s]) for s in (slice(0, 60), slice(60, 90), slice(90, 120))]
    expected = held_out(*parts, seed=seed_of(0, "transfer", "mrpc"))
    assert found["mrpc_joined"].value == pytest.approx(100 * expected.correct_N.mean())
    assert found["mrpc_joined"].settings["separator"] == ";"
    assert "separator" not in found["mrpc"].settings


def test_length_beside_the_code_tells_a_class_of_length(tmp_path, space) -> None:
    with torch.no_grad():
        space.model.posterior.mean.weight.zero_()
    texts = unique_sentences(150)
    write(tmp_path / "cls" / "CR.all.tsv.gz", [(int(len(text.split()) > 5), text) for text in texts])
    found = transfer(subject_in(tmp_path, space)).estimates
    assert found["cr"].value == found["cr_majority"].value
    assert found["cr_with_length"].value > 97
    assert "10-fold cross-validation" in found["cr"].name


def test_a_small_class_makes_fewer_folds_and_the_name_tells(tmp_path, space) -> None:
    rows = [(int(number < 3), text) for number, text in enumerate(unique_sentences(40))]
    write(tmp_path / "cls" / "MR.all.tsv.gz", rows)
    found = transfer(subject_in(tmp_path, space)).estimates
    assert found["mr"].name.endswith(", 3-fold cross-validation")
    assert found["mr_with_length"].name.endswith(", 3-fold cross-validation")


def test_codes_of_tokens_are_read_in_three_ways_and_length_is_in_their_sum(tmp_path, token_space) -> None:
    with torch.no_grad():  # all tokens have one code: its mean says nothing, and its sum the length
        token_space.model.posterior.mean.weight.zero_()
        token_space.model.posterior.mean.bias.fill_(1.0)
    write(tmp_path / "cls" / "CR.all.tsv.gz", [(int(len(text.split()) > 5), text) for text in unique_sentences(150)])
    found = transfer(subject_in(tmp_path, token_space)).estimates
    ways = ("", "_mean", "_start", "_sum")
    assert set(found) == {f"cr{more}{way}" for way in ways for more in ("", "_with_length")} | {"cr_majority"}
    assert found["cr_sum"].value > 97
    assert found["cr"] == found["cr_mean"]
    assert found["cr"].value == found["cr_start"].value == found["cr_majority"].value
    assert found["cr_with_length_mean"].value > 97


def test_baselines_have_rows_beside_the_space(tmp_path, space) -> None:
    texts = unique_sentences(120)
    rows = [(int("cats" in text), text) for text in texts]
    write(tmp_path / "cls" / "TREC.train.tsv.gz", rows[:80])
    write(tmp_path / "cls" / "TREC.test.tsv.gz", rows[80:])
    subject = replace(subject_in(tmp_path, space), baselines=(str(tiny_encoder()),))
    findings = transfer(subject)
    _, *baselines = encoders_of(subject)
    assert [row[1] for row in findings.tables["transfer"].rows] == [
        "none: majority class",
        "space",
        *(each.title for each in baselines),
    ]
    classes_N = np.array([row[0] for row in rows])
    for each in baselines:
        codes_NZ = each.encode(texts)
        seed = seed_of(0, "transfer", "trec")
        expected = held_out((codes_NZ[:80], classes_N[:80]), None, (codes_NZ[80:], classes_N[80:]), seed=seed)
        assert findings.estimates[f"trec{each.suffix}"].value == pytest.approx(100 * expected.correct_N.mean())
        assert findings.estimates[f"trec{each.suffix}"].settings["spelling"] == "as in the file"


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
    assert {row[0]: row[2] for row in found.tables["transfer"].rows} == {"MR": 117, "TREC": 38}


def test_validation_sentences_that_were_all_trained_on_choose_nothing(tmp_path, space) -> None:
    texts = unique_sentences(130)
    rows = [(int("cats" in text), text) for text in texts]
    for part, own in (("train", rows[:60]), ("valid", rows[90:110]), ("test", rows[110:])):
        write(tmp_path / "cls" / f"SST2.{part}.tsv.gz", own)
    found = transfer(subject_in(tmp_path, space, texts[90:110])).estimates["sst2"]
    assert found.settings["penalty_chosen_on"] == "cross-validation within the training data"


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
    for task in classification_tasks.TASKS.values():
        assert classification_tasks.read_task(Path(folder), task) is not None
