"""Running measures: the cache, interrupts, what is skipped, which sentences are measured on, and the command."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from helpers import command, one_warning, small, tiny_sentences
from small_subjects import gated, subject_on, untrained
from tiny_encoder import tiny_encoder

import textspace
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.encoded import EncodedSplit
from textspace.data.options import ReadOptions
from textspace.digests import check_record
from textspace.errors import TextspaceError
from textspace.evaluate.held_out import UNKNOWN
from textspace.evaluate.measure import Effort, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.perturbed import MEASURES
from textspace.evaluate.measures.samples import copying
from textspace.evaluate.measures.tasks import Screen
from textspace.evaluate.registry import measures_of
from textspace.evaluate.reports.report import Report
from textspace.evaluate.reports.text import markdown
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.suite import SUITES, chosen_measures, evaluate, fingerprint, missing, subject_of
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.fit import train
from textspace.types import Estimate

TEXTS = tiny_sentences(60)


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return untrained(small(RECIPES["vae"]), tiny.tokenizer)


@pytest.fixture
def subject(space) -> Subject:
    return subject_on(space, TEXTS)


def number(value: Any) -> Findings:
    return Findings({"it": Estimate("a number", value, None, 3, "none", None, {"of": "ours"})})


class Counted:
    """Measures that count how often they run."""

    def __init__(self, *values: Any) -> None:
        self.runs: list[str] = []
        self.measures = {f"m{place}": self.measure(f"m{place}", value) for place, value in enumerate(values)}

    def measure(self, name: str, value: Any) -> Measure:
        def run(subject: Subject) -> Findings:
            self.runs.append(name)
            if isinstance(value, BaseException):
                raise value
            return number(value)

        return Measure(run, "Counts.")


# The cache


def test_what_was_finished_before_an_interrupt_is_not_measured_again(subject, tmp_path) -> None:
    first = Counted(1.0, KeyboardInterrupt(), 3.0)
    with pytest.raises(KeyboardInterrupt):
        evaluate(subject, first.measures, cache=tmp_path)
    assert first.runs == ["m0", "m1"]
    second = Counted(1.0, 2.0, 3.0)
    said: list[str] = []
    report = evaluate(subject, second.measures, cache=tmp_path, say=said.append)
    assert second.runs == ["m1", "m2"]
    assert [report.estimate(name, "it").value for name in second.measures] == [1.0, 2.0, 3.0]
    told = [line.partition(":")[0] for line in said]
    assert told == ["[1/3] m0", "[2/3] m1 ...", "[2/3] m1", "[3/3] m2 ...", "[3/3] m2"]
    assert "measured before" in said[0]


def changed_weights(subject: Subject) -> Subject:
    other = copy.deepcopy(subject.space)
    with torch.no_grad():
        next(other.model.parameters()).view(-1)[0] += 1
    return replace(subject, space=other)


CHANGES: dict[str, Callable[[Subject], Subject]] = {
    "seed": lambda subject: replace(subject, seed=1),
    "effort": lambda subject: replace(subject, effort=replace(subject.effort, pairs=7)),
    "text": lambda subject: subject_on(subject.space, [*TEXTS[:-1], "anna sees cats"], effort=subject.effort),
    "order": lambda subject: subject_on(subject.space, TEXTS[::-1], effort=subject.effort),
    "labels": lambda subject: subject_on(subject.space, TEXTS, {"test": ["a"] * 60}, effort=subject.effort),
    "more text": lambda subject: subject_on(subject.space, {"test": TEXTS, "train": TEXTS}, effort=subject.effort),
    "weights": changed_weights,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_decides_a_number_is_part_of_its_key(change, tiny, tmp_path) -> None:
    subject = subject_on(untrained(small(RECIPES["vae"]), tiny.tokenizer), TEXTS)
    counted = Counted(1.0)
    for each in (subject, subject, CHANGES[change](subject), subject):
        evaluate(each, counted.measures, cache=tmp_path)
    assert counted.runs == ["m0", "m0"]


def test_who_changes_a_measure_gets_new_numbers(subject, tmp_path) -> None:
    def measure() -> Measure:
        names: dict[str, Any] = {"number": number}
        exec(compile(source.read_text(), str(source), "exec"), names)
        return Measure(names["run"], "Written in a file.")

    source = tmp_path / "mine.py"
    for value in (1.0, 2.0):
        source.write_text(f"def run(subject):\n    return number({value})\n")
        report = evaluate(subject, {"mine": measure()}, cache=tmp_path / "cache")
        assert report.estimate("mine", "it").value == value
    of_no_file = Measure(partial(lambda value, subject: number(value), 3.0), "No plain function.")
    assert evaluate(subject, {"mine": of_no_file}, cache=tmp_path / "cache").estimate("mine", "it").value == 3.0


def test_who_changes_what_measures_share_gets_new_numbers(subject, tmp_path, monkeypatch) -> None:
    counted = Counted(1.0)
    for made_of in ("as it was", "as it was", "as it is now"):
        monkeypatch.setattr("textspace.evaluate.suite._own_source", lambda made_of=made_of: made_of)
        evaluate(subject, counted.measures, cache=tmp_path)
    assert counted.runs == ["m0", "m0"]


def test_task_files_that_change_are_noticed(subject, tmp_path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "sts.tsv").write_text("a\tb\t1\n")
    counted, with_tasks = Counted(1.0), replace(subject, task_files=tasks)
    evaluate(with_tasks, counted.measures, cache=tmp_path / "cache")
    evaluate(with_tasks, counted.measures, cache=tmp_path / "cache")
    assert len(counted.runs) == 1
    (tasks / "sts.tsv").write_text("a\tb\t1\nc\td\t2\n")
    evaluate(with_tasks, counted.measures, cache=tmp_path / "cache")
    assert len(counted.runs) == 2


def test_baselines_are_part_of_the_key_of_measures_that_look_at_them(subject, tmp_path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    counted, other = Counted(1.0), Counted(1.0)
    looking = {name: replace(measure, has_baselines=True) for name, measure in counted.measures.items()}
    for given in ((), (str(model),), (str(model), "a/name-of-the-hub"), ()):
        evaluate(replace(subject, baselines=given), looking, cache=tmp_path / "cache")
        evaluate(replace(subject, baselines=given), other.measures, cache=tmp_path / "another cache")
    assert (len(counted.runs), len(other.runs)) == (3, 1)
    (model / "config.json").write_text('{"hidden_size": 2}')
    for _ in range(2):
        evaluate(replace(subject, baselines=(str(model),)), looking, cache=tmp_path / "cache")
    assert len(counted.runs) == 4


DAMAGES: dict[str, Callable[[str], str]] = {
    "empty": lambda whole: "",
    "cut": lambda whole: whole[:-1],
    "a list": lambda whole: "[]",
    "nothing in it": lambda whole: "{}",
    "nested deep": lambda whole: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "another value": lambda whole: whole.replace('"value": 1.0', '"value": 3.0'),
    "another time": lambda whole: whole.replace('"seconds": ', '"seconds": 1'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_measured_again(damage, subject, tmp_path) -> None:
    counted = Counted(1.0)
    evaluate(subject, counted.measures, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    file.write_text(DAMAGES[damage](whole))
    assert file.read_text() != whole
    with one_warning(f"the stored result {file} is damaged and is measured again"):
        assert evaluate(subject, counted.measures, cache=tmp_path).estimate("m0", "it").value == 1.0
    assert evaluate(subject, counted.measures, cache=tmp_path).estimate("m0", "it").value == 1.0
    assert len(counted.runs) == 2


def test_what_comes_from_the_cache_is_what_was_found(subject, tmp_path) -> None:
    three: Any = np.int64(3)
    rich = Findings(
        {"it": Estimate("numpy", np.float64(0.1) + 0.2, 0.5, three, "upper", "lower", {"k": three})},
        {"t": Table("title", ("a", "b"), (("x", float("nan")), (None, 2)))},
        {"p": Picture("lines", "title", {"s": [1.0, float("nan"), float("inf")]}, x=[0.0, 1.0, 2.0])},
        {"it": [float("inf"), 0.1 + 0.2]},
    )
    measures = {"rich": Measure(lambda subject: rich, "Rich.")}
    fresh, kept = (evaluate(subject, measures, cache=tmp_path).entries["rich"].findings for _ in range(2))
    uncached = evaluate(subject, measures).entries["rich"].findings
    assert repr(fresh) == repr(kept) == repr(uncached)
    estimate = fresh.estimates["it"]
    assert (estimate.value, estimate.stderr, estimate.n, estimate.settings["k"]) == (0.1 + 0.2, 0.5, 3, 3)
    assert type(estimate.value) is float
    assert fresh.per_sentence["it"] == [float("inf"), 0.1 + 0.2]
    np.testing.assert_array_equal(fresh.pictures["p"].series["s"], rich.pictures["p"].series["s"])


# What a report holds besides


def test_every_number_has_its_seed_and_version(subject) -> None:
    found = evaluate(replace(subject, seed=5), Counted(1.0).measures).estimate("m0", "it")
    assert found.settings == {"seed": 5, "version": textspace.__version__, "of": "ours"}


def test_warnings_become_notes_and_those_of_libraries_stay_warnings(subject, tmp_path) -> None:
    def warn(subject: Subject) -> Findings:
        for _ in range(2):
            warnings.warn("many words are unknown", stacklevel=1)
        warnings.warn("too few steps", RuntimeWarning, stacklevel=1)
        return number(1.0)

    measures = {"warned": Measure(warn, "Warns.")}
    with pytest.warns(RuntimeWarning, match="too few steps") as told:
        first = evaluate(subject, measures, cache=tmp_path)
    assert [each.category for each in told] == [RuntimeWarning]
    assert first.entries["warned"].notes == ("many words are unknown",)
    assert evaluate(subject, measures, cache=tmp_path).entries["warned"].notes == ("many words are unknown",)


# What is skipped


def test_needs_that_are_not_met_are_told_in_a_sentence(tiny, subject) -> None:
    language_model = subject_on(untrained(small(RECIPES["lstm-lm"]), tiny.tokenizer), TEXTS)
    points = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    autoencoder = subject_on(untrained(points, tiny.tokenizer), TEXTS)

    def reason(need: Any, subject: Subject) -> str | None:
        return missing(Measure(lambda subject: Findings(), "", (need,)), subject)

    assert "language model" in reason("codes", language_model)
    assert reason("codes", autoencoder) is None
    assert "no density" in reason("density", autoencoder)
    assert "no density" in reason("density", language_model)
    assert reason("density", subject) is None
    assert "no dimension of its codes can be off" in reason("gates", subject)
    assert "no dimension of its codes can be off" in reason("gates", language_model)
    assert reason("gates", subject_on(gated(tiny.tokenizer), TEXTS)) is None
    assert "--label-column" in reason("labels", subject)
    assert reason("labels", subject_on(subject.space, TEXTS, {"test": ["a"] * 60})) is None
    both = subject_on(subject.space, {"test": TEXTS, "train": TEXTS})
    assert "no training split" in reason("train", subject)
    assert reason("train", both) is None
    assert "no validation split" in reason("valid", both)
    assert "built-in corpus" in reason("builtin", subject)
    assert reason("builtin", replace(subject, builtin=True)) is None
    assert "--tasks" in reason("files", subject)
    assert reason("files", replace(subject, task_files=Path())) is None


def test_what_lacks_something_is_skipped_and_the_rest_is_measured(subject, tmp_path) -> None:
    counted = Counted(1.0, TextspaceError("these sentences are too few"), 3.0)
    measures = counted.measures | {"needy": replace(counted.measures["m0"], needs=("labels", "train"))}
    report = evaluate(subject, measures, cache=tmp_path)
    assert list(report.entries) == ["m0", "m2"]
    assert report.skipped["m1"] == "these sentences are too few"
    assert "no labels" in report.skipped["needy"]
    assert counted.runs == ["m0", "m1", "m2"]


KINDS = {
    "language model": RECIPES["lstm-lm"],
    "points": RECIPES["vae"].but({"posterior.kind": "delta", "objective.kind": "reconstruction"}),
    "implicit": RECIPES["vae"].but({"posterior.kind": "implicit", "objective.kind": "reconstruction"}),
    "gates": RECIPES["hsvae"],
    "gates of features": RECIPES["ton-vae"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_quick_suite_takes_every_kind_of_space(kind: str, tiny) -> None:
    subject = subject_on(untrained(small(KINDS[kind]), tiny.tokenizer), TEXTS)
    report = evaluate(subject, measures_of("quick"))
    assert report.estimate("likelihood", "nll_ppl_word") is not None
    assert ("posterior" in report.skipped) == (kind == "language model")
    assert markdown(Report.from_dict(report.to_dict())) == markdown(report)


def test_a_mistake_in_a_measure_is_not_hidden(subject) -> None:
    with pytest.raises(ZeroDivisionError):
        evaluate(subject, Counted(ZeroDivisionError()).measures)


# Which measures


def test_the_end_token_chooses_the_likelihood() -> None:
    with_end, without, length = "likelihood", "likelihood_without_end", "likelihood_with_length_prior"
    assert chosen_measures("quick").keys() == measures_of("quick").keys()
    expected = {"included": {with_end}, "dropped": {without}, "both": {with_end, without}, "length": {length}}
    for end, names in expected.items():
        assert chosen_measures("quick", end=end).keys() & {with_end, without, length} == names
    assert list(chosen_measures("quick", [without])) == [without]
    assert list(chosen_measures("quick", [with_end], "dropped")) == [without]
    assert list(chosen_measures("quick", [with_end], "both")) == [with_end, without]
    assert list(chosen_measures("quick", [with_end], "length")) == [length]
    with pytest.raises(TextspaceError, match="says how likelihoods are measured: name likelihood among the measures"):
        chosen_measures("quick", ["posterior"], "dropped")


def test_codes_are_of_the_sentences_that_are_scored_whatever_normalising_would_make_of_them(tiny) -> None:
    """They are normalised when they are read: what has become a tag then would be gone the second time."""
    recipe = small(RECIPES["vae"]).but({"text.normalise": ["html", "quotes"]})
    space = untrained(recipe, tiny.tokenizer)
    texts = ["anna <b> sees cats", "anna '' sees cats", "anna sees cats"]
    test = subject_on(space, texts).test
    batch = make_batch(test.split, np.arange(3))
    with torch.no_grad():
        features_BH = space.model.features(batch.encoder)
        means_BZ, deviations_BZ = space.model.code_moments(features_BH, Noise(0, 0, batch.rows_B))
    np.testing.assert_allclose(test.means_NZ, means_BZ.numpy(), atol=1e-6)
    np.testing.assert_allclose(test.deviations_NZ, deviations_BZ.numpy(), atol=1e-6)
    plain = subject_on(untrained(recipe.but({"text.normalise": []}), tiny.tokenizer), texts).test
    np.testing.assert_array_equal(test.samples_NZ, plain.samples_NZ)
    twice_NZ = space.encode(texts)
    assert [np.allclose(*rows, atol=1e-6) for rows in zip(twice_NZ, test.means_NZ, strict=True)] == [False, False, True]


def test_suites_try_harder_and_harder() -> None:
    quick, standard, full = SUITES.values()
    for name in Effort.__dataclass_fields__:
        assert getattr(quick, name) <= getattr(standard, name) <= getattr(full, name)
    assert (quick.importance_samples, standard.importance_samples, full.importance_samples) == (20, 100, 1000)


# Which sentences


def test_a_source_the_space_was_trained_on_is_cut_as_it_was(space, tmp_path) -> None:
    (tmp_path / "my.txt").write_text("\n".join(TEXTS))
    trained = Space(space.recipe, space.tokenizer, space.model, {"source": "my"})
    cut = subject_of(trained, str(tmp_path / "my.txt"))
    as_trained = corpus_of(TEXTS)
    assert cut.test.texts == [record.text for record in as_trained.splits["test"]]
    assert {name: len(split) for name, split in cut.splits.items()} == {"train": 54, "valid": 3, "test": 3}
    whole = subject_of(space, str(tmp_path / "my.txt"))
    assert whole.test.texts == TEXTS
    assert list(whole.splits) == ["test"]
    assert whole.notes == ["my has no splits: all of it is the test split", UNKNOWN]


def test_what_a_space_was_trained_on_is_known_by_its_sentences(tmp_path) -> None:
    """Whatever their file is called, and whatever lies in another of that name."""
    (tmp_path / "my.txt").write_text("\n".join(TEXTS))
    train(tmp_path / "my.txt", small(RECIPES["vae"]).but({"training.epochs": 1}), tmp_path / "space", silent=True)
    space = Space.load(tmp_path / "space", "cpu")
    same, other, fewer = tmp_path / "copy.txt", tmp_path / "other" / "my.txt", tmp_path / "few.txt"
    same.write_text("\n".join(TEXTS))
    other.parent.mkdir()
    other.write_text("\n".join(f"{text} again" for text in TEXTS))
    fewer.write_text("\n".join(TEXTS[:2]))
    cut = subject_of(space, str(same))
    assert {name: len(split) for name, split in cut.splits.items()} == {"train": 54, "valid": 3, "test": 3}
    assert cut.own_train is True
    for path, count, met in ((other, 60, 0), (fewer, 2, 2)):
        whole = subject_of(space, str(path))
        assert {name: len(split) for name, split in whole.splits.items()} == {"test": count}
        told = " ".join(whole.notes)
        assert "is not, as a whole, the text the space was trained on" in told
        assert (
            f"test: {met} of {count} different test sentences are in the text the space was trained on" in told
        ) == (met > 0)


def test_sentences_of_training_are_known_in_other_texts_too(tmp_path) -> None:
    """In another order, among new ones, in one of several sources, and in what a space had learnt before."""
    recipe = small(RECIPES["vae"]).but({"training.epochs": 1})
    for name, part in {"a": TEXTS[:30], "b": TEXTS[30:], "c": [f"{text} again" for text in TEXTS]}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
    train([tmp_path / "a.txt", tmp_path / "b.txt"], recipe, tmp_path / "space", silent=True)
    train(tmp_path / "c.txt", recipe, tmp_path / "more", init=tmp_path / "space", silent=True)
    for folder in ("space", "more"):
        space = Space.load(tmp_path / folder, "cpu")
        for source in (tmp_path / "a.txt", [tmp_path / "b.txt", tmp_path / "a.txt"]):
            subject = subject_of(space, source)
            learnt = {*Space.load(tmp_path / "space").metrics["training_text"]}
            assert learnt == {"sentences", "digest", "sketch"}
            (note,) = (note for note in subject.notes if "trained on, which flatters" in note)
            met, of = re.findall(r"\d+", note)[:2]
            assert (int(of), int(met)) == (len({*subject.test.texts}), pytest.approx(int(of) * 0.9, abs=2))
    assert not [note for note in subject_of(space, str(tmp_path / "c.txt")).notes if "flatters its numbers" in note]


@pytest.mark.parametrize(
    "record",
    [{}, [], "text", 3, {"sentences": "60"}, {"sentences": 60}, {"sentences": 60, "digest": "a", "sketch": "not ours"}],
)
def test_a_record_of_the_training_text_that_is_not_ours_is_none(space, tmp_path, record) -> None:
    (tmp_path / "my.txt").write_text("\n".join(TEXTS))
    space.metrics |= {"training_text": record, "source": "another"}
    given = subject_of(space, str(tmp_path / "my.txt"))
    assert (given.own_train, set(given.splits)) == (None, {"test"})


def test_all_that_was_trained_on_is_known_though_some_of_it_is_measured_on(tmp_path) -> None:
    """One test sentence leaves twenty training sentences to measure on, of forty."""
    (tmp_path / "text").mkdir()
    for name, part in {"train": TEXTS[:40], "valid": TEXTS[40:50], "test": TEXTS[39:40]}.items():
        (tmp_path / "text" / f"{name}.txt").write_text("\n".join(part))
    train(tmp_path / "text", small(RECIPES["vae"]).but({"training.epochs": 1}), tmp_path / "space", silent=True)
    space = Space.load(tmp_path / "space", "cpu")
    given = subject_of(space, str(tmp_path / "text"), effort=Effort(sentences=1, decoded=1, prior_samples=2))
    train_split = given.splits["train"]
    assert (len(train_split), train_split.how_many) == (20, "20 of 40")
    assert list(train_split.all_texts()) == TEXTS[:40]
    assert not Screen.of(given).unseen(TEXTS[:40]).any()
    assert Screen.of(given).unseen(["a sentence of other words"]).all()
    found = MEASURES["overfitting"].run(given)
    gap = found.estimates["nats_per_token_gap"]
    assert gap.settings["share_of_test_in_training"] == 1
    assert gap.stderr is None  # of one sentence
    assert "nearest of 20 of 40 training sentences" in copying(given).estimates["distance_test"].name


def test_training_sentences_of_another_text_are_not_the_space_s_own(tmp_path) -> None:
    (tmp_path / "my.txt").write_text("\n".join(TEXTS))
    train(tmp_path / "my.txt", small(RECIPES["vae"]).but({"training.epochs": 1}), tmp_path / "space", silent=True)
    for name, part in {"train": TEXTS[:40], "test": TEXTS[50:]}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
    (tmp_path / "my.txt").unlink()
    given = subject_of(Space.load(tmp_path / "space", "cpu"), str(tmp_path))
    assert given.own_train is False
    assert "train: these are not the sentences the space was trained on" in given.notes
    assert Screen.of(given).seen is None
    assert missing(MEASURES["overfitting"], given) == (
        "the sentences the space was trained on are not at hand: give --data the source of its training"
    )


def test_splits_stay_and_a_missing_test_split_is_replaced(space, tmp_path) -> None:
    for name, part in {"train": TEXTS[:40], "valid": TEXTS[40:50], "test": TEXTS[50:]}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
    given = subject_of(space, str(tmp_path))
    assert {name: split.texts for name, split in given.splits.items()} == {
        "train": TEXTS[:40],
        "valid": TEXTS[40:50],
        "test": TEXTS[50:],
    }
    (tmp_path / "test.txt").unlink()
    without = subject_of(space, str(tmp_path))
    assert list(without.splits) == ["train", "test"]
    assert without.test.texts == TEXTS[40:50]
    assert any("no test split: the valid split is tested on" in note for note in without.notes)


def test_limits_spread_over_the_splits_and_are_told(space) -> None:
    corpus = corpus_of(TEXTS, labels=["a", "b"] * 30, options=ReadOptions(valid=0.2, test=0.2))
    whole = subject_of(space, corpus)
    part = subject_of(space, corpus, effort=Effort(sentences=5), seed=3)
    assert part.test.texts == [whole.test.texts[row] for row in some_rows(12, 5)]
    assert part.test.labels == [whole.test.labels[row] for row in some_rows(12, 5)]
    assert len(part.splits["valid"]) == 5
    assert len(part.splits["train"]) == len(whole.splits["train"]) == 36  # at most 20 times as many
    assert [note for note in part.notes if "drawn" in note] == [
        f"{name}: 5 of 12 sentences, drawn at random" for name in ("valid", "test")
    ]
    assert (part.facts["test"].sentences, part.facts["test"].of) == (5, 12)
    assert [part.test.split.text(row) for row in range(5)] == part.test.texts
    assert part.test.seed == 3


def test_sentences_that_are_only_read_count_in_the_fingerprint(space) -> None:
    """Of 400 training sentences 100 are measured on; the others are what completeness, say, reads as text."""
    many = tiny_sentences(400)
    marks = []
    (kept, *_), left_out = some_rows(400, 100), int(some_rows(400, 100)[0] == 0)
    for changed in (None, left_out, int(kept)):
        texts = [text if row != changed else "anna sees cats" for row, text in enumerate(many)]
        splits = {"train": texts, "valid": TEXTS[5:10], "test": TEXTS[:5]}
        subject = subject_of(space, splits, effort=Effort(sentences=5))
        assert (len(subject.splits["train"]), len(subject.splits["train"].whole)) == (100, 400)
        marks.append(fingerprint(subject))
        assert fingerprint(subject_of(space, splits, effort=Effort(sentences=5))) == marks[-1]
        train = subject.splits["train"]
        train.whole = EncodedSplit.of(texts, space.tokenizer, None)  # which has no fingerprint of its own
        marks.append(fingerprint(subject))
    assert len(set(marks)) == 6


def test_unknown_words_and_missing_labels_are_told(space, tmp_path) -> None:
    (tmp_path / "labelled.tsv").write_text("label\ttext\nx\tanna sees zebras\n")
    (tmp_path / "plain.txt").write_text("anna sees cats\n")
    found = subject_of(space, [tmp_path / "labelled.tsv", tmp_path / "plain.txt"])
    assert found.test.labels is None
    assert found.facts["test"].unknown == pytest.approx(1 / 6)
    assert any("1 of 2 sentences have no label" in note for note in found.notes)
    assert any("16.67% of the tokens are unknown" in note for note in found.notes)


def test_a_test_split_of_which_nothing_is_left_is_told(space, tmp_path) -> None:
    most = space.recipe.text.max_tokens
    (tmp_path / "docs.txt").write_text(f"{'anna ' * (most + 1)}\n" * 3)
    with pytest.raises(TextspaceError) as caught:
        subject_of(space, tmp_path / "docs.txt")
    long = f"all test sentences of docs have more than {most} tokens, which this space drops: give shorter ones"
    assert str(caught.value) == long


def test_iterators_last_for_both_openings_of_a_source(space) -> None:
    lists = {"train": TEXTS[:40], "test": TEXTS[40:]}
    of_iterators = subject_of(space, {split: iter(texts) for split, texts in lists.items()})
    assert {split: of_iterators.splits[split].texts for split in lists} == {
        split: subject_of(space, lists).splits[split].texts for split in lists
    }


def test_one_baseline_may_be_a_string(space) -> None:
    with mock.patch("textspace.evaluate.suite.subject_of", wraps=subject_of) as asked:
        space.evaluate(TEXTS, measures="reconstruction", baselines="my-encoder")
    assert list(asked.call_args.kwargs["baselines"]) == ["my-encoder"]


def test_folders_of_an_evaluation_may_be_strings(space, tmp_path) -> None:
    (tmp_path / "tasks").mkdir()
    places = {"tasks": str(tmp_path / "tasks"), "cache": str(tmp_path / "cache")}
    report = space.evaluate(TEXTS, measures=["reconstruction", "transfer"], **places)
    assert "reconstruction" in report.entries
    assert list((tmp_path / "cache").iterdir())


def test_the_built_in_corpus_is_known_as_such(space) -> None:
    assert subject_of(space, "builtin:30").builtin
    assert not subject_of(space, corpus_of(TEXTS)).builtin


# The command


@pytest.fixture(scope="module")
def folder(_own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("trained")
    (where / "my.tsv").write_text("\n".join(f"{len(text.split()) % 2}\t{text}" for text in tiny_sentences(300)))
    options = ReadOptions(label=1, text=2)
    Space.fit(str(where / "my.tsv"), small(RECIPES["vae"]), out=where / "space", options=options, device="cpu")
    return where


def test_the_quick_suite_runs_end_to_end_and_is_not_repeated(folder: Path) -> None:
    asked = ("evaluate", str(folder / "space"), "--data", str(folder / "my.tsv"), "--label-column", "1")
    code, out, err = command(*asked)
    assert code == 0, err
    assert "perplexity per word" in out
    assert "The codes " in out
    assert f"The report is in {folder / 'space' / 'evaluation' / 'report.html'}" in out
    names = list(measures_of("quick"))
    report = Report.load(folder / "space" / "evaluation" / "report.json")
    assert [name for name in names if name in report.entries or name in report.skipped] == names
    assert set(report.skipped) == {"distance_to_truth"}
    assert report.data["source"] == "my"
    assert report.settings["command"].startswith("textspace evaluate ")
    assert {"report.md", "report.html", "cache"} <= {path.name for path in (folder / "space" / "evaluation").iterdir()}
    assert list(report.entries["training_curves"].findings.pictures)[:2] == ["reconstruction", "kl"]
    code, _, err = command(*asked)
    assert err.count("measured before") == len(report.entries)


def test_single_measures_with_other_samples_as_json(folder: Path, tmp_path: Path) -> None:
    asked = ["evaluate", str(folder / "space"), "--data", str(folder / "my.tsv"), "--label-column", "1"]
    asked += ["--measure", "likelihood,likelihood_without_end", "--samples", "3", "--out", str(tmp_path), "--json"]
    code, out, err = command(*asked)
    assert code == 0, err
    found = json.loads(out)
    assert list(found["measures"]) == ["likelihood", "likelihood_without_end"]
    nll = found["measures"]["likelihood"]["estimates"]["nll"]
    assert nll["settings"]["samples"] == 3
    assert found == check_record(json.loads((tmp_path / "report.json").read_text()))


def test_likelihoods_are_measured_in_the_precision_asked_for(folder: Path, tmp_path: Path) -> None:
    asked = ["evaluate", str(folder / "space"), "--data", str(folder / "my.tsv"), "--label-column", "1", "--json"]
    asked += ["--measure", "likelihood,shuffled_input", "--samples", "3"]
    found = {}
    for precision in ("float32", "bf16"):
        code, out, err = command(*asked, "--precision", precision, "--out", str(tmp_path / precision))
        assert code == 0, err
        found[precision] = json.loads(out)["measures"]
    assert found["bf16"]["likelihood"]["estimates"]["nll"]["settings"]["precision"] == "bf16"
    for measure, name in (("likelihood", "nll"), ("shuffled_input", "nll_shuffled")):
        exact, short = (found[each][measure]["estimates"][name]["value"] for each in ("float32", "bf16"))
        assert 0 < abs(exact - short) < 0.1
    code, _, err = command(*asked, "--precision", "fp8")
    assert code != 0
    assert "precision is 'fp8'" in err


def test_a_baseline_stands_beside_the_space(folder: Path, tmp_path: Path) -> None:
    rows = [f"{int('cats' in text)}\t{text}\n" for text in dict.fromkeys(tiny_sentences(200))]
    (tmp_path / "cls").mkdir()
    (tmp_path / "cls" / "TREC.train.tsv").write_text("".join(rows[:80]))
    (tmp_path / "cls" / "TREC.test.tsv").write_text("".join(f"{row[0]}\tnobody {row[2:]}" for row in rows[80:]))
    (tmp_path / "Tiny").symlink_to(tiny_encoder())
    asked = ["evaluate", str(folder / "space"), "--data", str(folder / "my.tsv"), "--label-column", "1", "--json"]
    asked += ["--measure", "transfer", "--tasks", str(tmp_path), "--baseline", str(tmp_path / "Tiny")]
    code, out, err = command(*asked, "--out", str(tmp_path / "report"))
    assert code == 0, err
    found = json.loads(out)["measures"]["transfer"]["estimates"]
    assert {"trec", "trec_tiny_mean", "trec_tiny_start", "trec_tiny_sum", "trec_majority"} <= set(found)


def test_an_interrupted_command_says_how_to_go_on(folder: Path) -> None:
    stopped = Counted(KeyboardInterrupt()).measures
    with mock.patch("textspace.evaluate.suite.chosen_measures", return_value=stopped):
        code, _, err = command("evaluate", str(folder / "space"), "--data", str(folder / "my.tsv"))
    assert code == 130
    assert err.splitlines()[-1] == "interrupted: finished measures are kept, and the same command goes on from there"


def test_the_measures_are_listed_with_what_they_need() -> None:
    code, out, _ = command("evaluate", "--list")
    assert code == 0
    assert "likelihood" in out
    assert "needs" in out
    listed = json.loads(command("evaluate", "--list", "--json")[1])
    assert list(listed) == list(measures_of("full"))
    assert listed["clusters"]["needs"] == ["codes", "labels", "train", "valid"]


def test_an_evaluation_that_measures_nothing_leaves_the_report_there_was(folder: Path, tmp_path: Path) -> None:
    asked = "evaluate", str(folder / "space"), "--data", str(folder / "my.tsv"), "--out", str(tmp_path), "--measure"
    assert command(*asked, "reconstruction")[0] == 0
    before = (tmp_path / "report.json").read_text()
    code, _, err = command(*asked, "transfer")
    assert code == 2
    assert "nothing was measured and no report written: the files of the tasks are not given" in err.splitlines()[-1]
    assert (tmp_path / "report.json").read_text() == before


MISTAKES = {
    "no space": (["evaluate"], "name the folder of a trained space"),
    "no data": (["evaluate", "SPACE"], "give text to measure on"),
    "not a space": (["evaluate", "nowhere", "--data", "DATA"], "nowhere is not a trained space"),
    "no such data": (["evaluate", "SPACE", "--data", "nothing.txt"], "there is no file 'nothing.txt'"),
    "suite": (["evaluate", "SPACE", "--data", "DATA", "--suite", "quik"], "did you mean 'quick'?"),
    "measure": (["evaluate", "SPACE", "--data", "DATA", "--measure", "posteriors"], "did you mean 'posterior'?"),
    "end": (["evaluate", "SPACE", "--data", "DATA", "--end-token", "no"], "use included, dropped, length or both"),
    "tasks": (["evaluate", "SPACE", "--data", "DATA", "--tasks", "none"], "there is no folder 'none'"),
    "baseline": (["evaluate", "SPACE", "--data", "DATA", "--baseline", "m"], "no chosen measure looks at a baseline"),
    "baseline without tasks": (
        ["evaluate", "SPACE", "--data", "DATA", "--measure", "transfer", "--baseline", "m"],
        "name the folder with their files with --tasks",
    ),
    "no encoder": (
        ["evaluate", "SPACE", "--data", "DATA", "--measure", "transfer", "--tasks", "SPACE", "--baseline", "SPACE"],
        "cannot be loaded",
    ),
    "samples": (["evaluate", "SPACE", "--data", "DATA", "--samples", "0"], "--samples"),
    "out": (["evaluate", "SPACE", "--data", "DATA", "--out", "DATA"], "name another with --out"),
    "column": (["evaluate", "SPACE", "--data", "DATA", "--label-column", "7"], "there is no column 7"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(mistake: str, folder: Path) -> None:
    arguments, told = MISTAKES[mistake]
    places = {"SPACE": str(folder / "space"), "DATA": str(folder / "my.tsv")}
    code, _, err = command(*(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert told in err
    assert len(err.strip().splitlines()) == 1
