"""Tables and figures of codes of tokens: what is measured of whom, where it goes on, and what the numbers become."""

from __future__ import annotations

import json
import math
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers import TOKEN_RECIPE, short_sentences, small, tiny_sentences
from scipy import sparse
from scipy.stats import spearmanr
from tiny_encoder import tiny_encoder

from benchmarks import token_parts, token_tables
from benchmarks.token_figures import PICTURES, Line, alike, points_of, sweep
from benchmarks.token_parts import Contestant, Options, curves, limited, measured, units_of
from benchmarks.token_report import PAPER_FROZEN, PAPER_STS, PAPER_TUNED, TASKS, markdown
from benchmarks.token_samples import chosen_sentences, longest_word, replacement, shown, unmarked
from benchmarks.token_tables import collected, contestants_of, is_done, joined
from benchmarks.word_counts import pair_counts, sentence_pairs_by_words, transfer_by_words
from textspace.config import Recipe
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort, Subject
from textspace.evaluate.measures import fine_tuning as tuning
from textspace.evaluate.measures.classification_tasks import Prepared, prepared_tasks
from textspace.evaluate.measures.completeness import completeness
from textspace.evaluate.measures.fine_tuning import fine_tuning
from textspace.evaluate.measures.isotropy import isotropy
from textspace.evaluate.measures.pairs import pair_features, sentence_pairs
from textspace.evaluate.measures.transfer import transfer
from textspace.evaluate.statistics import some_rows
from textspace.marks import marked
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.fit import train

SENTENCES = list(dict.fromkeys(tiny_sentences(500)))
LONG = [text for text in SENTENCES if 6 <= len(text.split()) <= 10]


def write(path: Path, rows: list[tuple[Any, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def overlaps(count: int) -> list[tuple[float, str, str]]:
    """Pairs, and what they have in common from 0 to 5."""
    chance = random.Random(3)
    pairs = [chance.sample(SENTENCES[:90], 2) for _ in range(count)]
    return [(round(len({*a.split()} & {*b.split()}) / 2, 1), a, b) for a, b in pairs]


def trained(recipe: Recipe, folder: Path, out: str) -> None:
    train(str(folder / "corpus"), recipe, folder / out, silent=True, curves=False, device="cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks, a corpus, and spaces trained on it for a few steps."""
    folder = tmp_path_factory.mktemp("tables")
    for part in ("train", "valid", "test"):
        write(folder / "tasks" / "stsb" / f"{part}.tsv", [("g", "f", "y", *row) for row in overlaps(30)])
        write(folder / "tasks" / "mrpc" / f"{part}.tsv", [(int(score > 1), a, b) for score, a, b in overlaps(30)])
    write(folder / "tasks" / "sts" / "STS12.tsv", [(f"part{n % 2}", *row) for n, row in enumerate(overlaps(40))])
    rows = [(text.split()[0], text) for text in SENTENCES[:120]]
    write(folder / "tasks" / "cls" / "TREC.train.tsv", rows[:80])
    write(folder / "tasks" / "cls" / "TREC.test.tsv", rows[80:])
    (folder / "corpus").mkdir()
    for name, texts in {"train": short_sentences(200), "valid": SENTENCES[-40:-20], "test": LONG[-20:]}.items():
        (folder / "corpus" / f"{name}.txt").write_text("\n".join(texts) + "\n")
    quick = TOKEN_RECIPE.but({"training.epochs": 2, "text.max_tokens": 40})
    for scale in (0.4, 1.0):
        trained(quick.but({"prior.scale": scale}), folder, f"s{scale:g}")
    alike = {"text.tokenizer": {"kind": "bpe", "size": 295}, "text.max_tokens": 40, "training.epochs": 1}
    for name, out in {"vae": "vae", "transformer-lm": "lm"}.items():
        trained(small(RECIPES[name]).but(alike), folder, out)
    return folder


@pytest.fixture
def options(place: Path) -> Options:
    return Options(str(place / "tasks"), str(place / "corpus"), "cpu", decoded=12, language_model=str(place / "lm"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "HOW", tuning.Training(epochs=1, rates=(1e-3,)))
    monkeypatch.setattr("textspace.evaluate.measures.transfer.FOLDS", 2)


def the(contestant: Contestant, key: str, options: Options) -> dict[str, Any]:
    part, task, pooling = (*key.split("."), None, None)[:3]
    return measured(token_parts.Unit(contestant, str(part), task, pooling), options)["estimates"]


# What is measured of whom


def test_every_contestant_gets_the_parts_that_it_has(place, options) -> None:
    spaces = [str(place / "s0.4"), f"whole={place / 'vae'}"]
    found = contestants_of(spaces, [f"tiny={tiny_encoder()}"], place, 0)
    assert [(each.name, each.kind) for each in found] == [
        ("s0.4", "space"),
        ("whole", "space"),
        ("tiny", "encoder"),
        ("word counts", "words"),
    ]
    units = {
        name: [unit.key for unit in units_of([one], token_parts.PARTS, options)]
        for name, one in zip("abcd", found, strict=True)
    }
    tuned = [f"fine_tuning.{task}.{pooling}" for task in ("trec", "mrpc") for pooling in ("mean", "start", "sum")]
    frozen = ["sts", "transfer.trec", "transfer.mrpc"]
    of_spaces = ["completeness", "variety", "tables"]
    assert units["a"] == [*frozen, *tuned, "losses", "isotropy", *of_spaces]
    assert units["b"] == [*frozen, "fine_tuning.trec", "fine_tuning.mrpc", "losses", *of_spaces]
    assert units["c"] == [*frozen, *tuned, "isotropy"]
    assert units["d"] == frozen


def test_mistakes_are_told_in_a_sentence(place, options) -> None:
    with pytest.raises(TextspaceError, match="language model without codes: give it as --language-model"):
        contestants_of([str(place / "lm")], [], place, 0)
    with pytest.raises(TextspaceError, match="there is no folder 'nowhere'"):
        contestants_of(["nowhere"], [], place, 0)
    with pytest.raises(TextspaceError, match="'vae' is the name of 2"):
        contestants_of([str(place / "vae"), f"vae={place / 's1'}"], [], place, 0)
    with pytest.raises(TextspaceError, match="losses needs text"):
        units_of([Contestant.of(str(place / "s1"))], ["isotropy", "losses"], replace(options, data=None))
    trained(small(RECIPES["gru-lm"]).but({"training.epochs": 1}), place, "other-lm")
    judged = replace(options, language_model=str(place / "other-lm"))
    with pytest.raises(TextspaceError, match="has other tokens than the space"):
        the(Contestant.of(str(place / "s1")), "completeness", judged)


def test_units_give_what_the_measures_give(place, options) -> None:
    tokens = Contestant.of(str(place / "s0.4"))
    subject = token_parts.subject_for(tokens, options)
    for key, measure in {"sts": sentence_pairs, "isotropy": isotropy}.items():
        own = {name: each["value"] for name, each in the(tokens, key, options).items()}
        assert own == {name: each.value for name, each in measure(subject).estimates.items()}
    for key, measure in {"transfer.trec": transfer, "fine_tuning.trec.start": fine_tuning}.items():
        expected = measure(subject).estimates
        own = the(tokens, key, options)
        assert {"trec_start", "trec_majority"} <= set(own) < set(expected)
        assert {name: each["value"] for name, each in own.items()} == {name: expected[name].value for name in own}
    judged = the(tokens, "completeness", options)
    assert judged["perplexity_real"]["settings"]["learnt_from"] == 200  # by the language model that was given
    subject.kept["language model"] = token_parts.judge_for(subject.space, options)
    assert judged["perplexity_prior"]["value"] == completeness(subject).estimates["perplexity_prior"].value


def test_an_encoder_has_the_numbers_that_it_has_beside_a_space(place, options) -> None:
    tiny = Contestant("tiny", "encoder", str(tiny_encoder()))
    tokens, whole = (Space.load(place / name, "cpu") for name in ("s1", "vae"))
    more = {"task_files": place / "tasks", "baselines": (str(tiny_encoder()),)}
    beside = Subject(whole, {}, Effort(repeats=2), **more)
    name = tiny_encoder().name.lower().replace("-", "_")
    for key, found in {
        "sts": sentence_pairs(beside),
        "transfer.trec": transfer(beside),
        "fine_tuning.trec.sum": fine_tuning(beside),
        "isotropy": isotropy(Subject(tokens, {}, **more)),
    }.items():
        expected = {k.replace(f"_{name}", ""): v.value for k, v in found.estimates.items() if name in k}
        own = the(tiny, key, options)
        assert len(own) > 1
        for own_key, estimate in own.items():
            if not own_key.endswith("_majority") and not own_key.startswith("function_words_"):
                assert estimate["value"] == pytest.approx(expected[own_key], abs=1e-6), own_key


def test_losses_are_those_of_the_test_and_of_the_training_split(place, options) -> None:
    found = the(Contestant.of(str(place / "s1")), "losses", options)
    space = Space.load(place / "s1", "cpu")
    texts = (place / "corpus" / "train.txt").read_text().splitlines()
    assert found["reconstruction_train"]["n"] == len(texts)
    expected = space.score(texts, samples=0, seed=5).estimates()
    assert found["kl_train"]["value"] == pytest.approx(expected["kl"].value, rel=1e-4)  # without noise
    assert found["reconstruction_train"]["value"] == pytest.approx(expected["reconstruction"].value, rel=0.05)
    assert found["kl_test"]["n"] == 20


# Less to train on


def prepared(place: Path) -> Prepared:
    space = Space.load(place / "s1", "cpu")
    return next(iter(prepared_tasks(Subject(space, {}, task_files=place / "tasks"), "")))


def test_a_limit_thins_what_is_trained_on_and_nothing_else(place) -> None:
    whole = prepared(place)
    some = limited(whole, 20)
    kept_N = some_rows(80, 20)
    assert some.parts["train"].texts == [whole.parts["train"].texts[row] for row in kept_N]
    np.testing.assert_array_equal(some.classes["train"], whole.classes["train"][kept_N])
    assert some.parts["test"] == whole.parts["test"]
    assert some.settings["training_limit"] == 20
    assert limited(whole, 80) is whole


# Word counts


def test_word_counts_are_compared_by_their_cosines(place) -> None:
    found = sentence_pairs_by_words(place / "tasks", 0)
    rows = [line.split("\t") for line in (place / "tasks" / "stsb" / "test.tsv").read_text().splitlines()]

    def cosine(a: str, b: str) -> float:
        counts = [{word: text.split().count(word) for word in text.split()} for text in (a, b)]
        dot = sum(counts[0][word] * counts[1].get(word, 0) for word in counts[0])
        return dot / math.prod(math.sqrt(sum(n * n for n in each.values())) for each in counts)

    expected = 100 * spearmanr([cosine(*row[4:]) for row in rows], [float(row[3]) for row in rows]).statistic
    assert found["stsb_cosine_spearman"].value == pytest.approx(expected)
    assert {key.rpartition("_")[0] for key in found} == {"sts12_mean", "sts12_weighted", "sts12_pooled", "stsb_cosine"}


def test_word_counts_know_a_class_that_is_a_word(place) -> None:
    found = transfer_by_words(prepared(place), 0)
    assert found["trec"].value == 100
    assert found["trec_majority"].value < 50


def test_counts_of_pairs_are_the_features_of_pairs() -> None:
    u, v = np.array([[1.0, 0, 2], [0, 3, 0]]), np.array([[1.0, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(
        pair_counts(sparse.csr_matrix(u), sparse.csr_matrix(v)).toarray(), pair_features(u, v)
    )


# Tables 1 to 3


def test_sentences_and_words_are_chosen_by_rule() -> None:
    texts = ["too short", "one two three four five six", *[f"a b c d e f{n}" for n in range(9)], "x " * 11]
    assert chosen_sentences(texts, 5) == [texts[1], *(texts[row] for row in (3, 5, 7, 9))]
    assert longest_word("Some people sing songs , some don't") == "people"
    assert longest_word("12 34 !") is None
    assert replacement("we sing songs .", "songs", "we sing .") is None
    assert replacement("we sing songs .", "songs", "we sing a song .") == "a song"
    assert replacement("we sing songs .", "songs", "they sing songs .") is None


def test_brackets_of_a_sentence_mark_nothing() -> None:
    for text in ("such as [ Sb", "see ] and [", "a [note] of it", "no brackets"):
        assert marked(unmarked(text)) == (text, [])


def test_tables_have_samples_variants_of_a_word_and_paths(place, options) -> None:
    tokens = measured(token_parts.Unit(Contestant.of(str(place / "s0.4")), "tables"), options)
    tables = tokens["tables"]
    assert [len(each["samples"]) for each in tables["samples"]] == [12] * 5
    assert [each["sentence"] for each in tables["samples"]] == LONG[-20::4]
    assert [len(path) for path in tables["paths"]] == [5] * 4
    assert all(each["word"] in each["sentence"].split() for each in tables["one_word"])
    assert tokens["estimates"]["path_repeated"]["n"] == 19
    assert 0 <= tokens["estimates"]["one_word_new"]["value"] <= tokens["estimates"]["one_word_alone"]["value"] <= 1
    assert shown(tables).count("\n  - *") == 60 + 4  # samples, and the second ends of paths
    whole = measured(token_parts.Unit(Contestant.of(str(place / "vae")), "tables"), options)
    assert whole["tables"]["one_word"] == []


# Figures


def test_curves_weigh_the_kl_as_it_was_and_batches_by_their_sentences(tmp_path) -> None:
    def step(number: int, sentences: int, reconstruction: float, kl: float, weight: float) -> dict[str, Any]:
        terms = {"reconstruction": reconstruction, "kl": kl, "weights": {"reconstruction": 1.0, "kl": weight}}
        return {"event": "step", "step": number, "epoch": number / 2, "sentences": sentences, **terms}

    lines = [
        step(1, 10, 8.0, 2.0, 0.5),
        step(2, 30, 4.0, 6.0, 1.0),
        {"event": "validation", "step": 2, "epoch": 1.0, "reconstruction": 5.0, "kl": 7.0},
        step(3, 10, 1.0, 1.0, 2.0),
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = curves(tmp_path, most=2)
    assert found["train"] == [[1.0, (0.5 * 2 * 10 + 6 * 30) / 40, 5.0], [1.5, 2.0, 1.0]]
    assert found["valid"] == [[1.0, 7.0, 5.0, 7.0]]
    assert found["last_weight"] == 2.0
    assert curves(tmp_path / "elsewhere") == {}
    (tmp_path / "steps.jsonl").write_text(json.dumps(lines[2]) + "\n")
    assert curves(tmp_path) == {}  # of a log without its steps


def test_a_sweep_is_of_spaces_that_differ_in_the_scale_alone() -> None:
    def space(scale: float, epochs: int = 1) -> dict[str, Any]:
        recipe = {"name": "vat", "prior": {"kind": "scaled-normal", "scale": scale}, "epochs": epochs}
        losses = {"losses": {"kl_test": {"value": 10 * scale, "stderr": None, "n": 1}}}
        more = {"recipe": recipe, "estimates": losses, "curves": {"last_weight": 0.5}}
        return {"kind": "space", "token_level": True, "scale": scale, **more}

    found = {"long": space(0.4, 3), "wide": space(1.0), "narrow": space(0.1), "encoder": {"kind": "encoder"}}
    assert sweep(found) == ["narrow", "wide"]
    assert alike(found) == [["long"], ["narrow", "wide"]]
    assert points_of(found, ["narrow", "wide"], Line("losses", "kl_test", None)) == [(0.1, 0.5), (1.0, 5.0)]
    assert points_of(found, ["wide"], Line("variety", "copies_mean")) == []


# The command


def run(*arguments: object) -> None:
    with mock.patch.object(sys, "argv", ["token_tables", *map(str, arguments)]):
        token_tables.main()


def test_the_command_goes_on_where_it_stopped_and_writes_tables_and_pictures(place, tmp_path, capsys) -> None:
    parts = ["--parts", "sts", "losses", "isotropy", "transfer", "--skip", "mrpc"]
    beside = ["--baselines", f"tiny={tiny_encoder()}", f"untrained=untrained:{tiny_encoder()}"]
    common = [place / "tasks", place / "s1", *beside, "--data", place / "corpus", "--device", "cpu", "--out", tmp_path]
    run(*common, *parts, "--only", "s1")
    assert "0 of 4 units are there" in capsys.readouterr().out
    run(*common, *parts)
    assert "4 of 12 units are there" in capsys.readouterr().out
    run(*common, "--parts", "transfer", "--limit", "40", "--only", "s1", "--skip", "mrpc")
    assert "0 of 1 units are there" in capsys.readouterr().out  # other settings are measured anew
    text = (tmp_path / "token_tables.md").read_text()
    for row in (
        "s1, sum",
        "s1, mean + log length",
        "tiny, start",
        "untrained, mean",
        "word counts",
        "majority class",
    ):
        assert f"| {row} |" in text
    assert "Trained on at most 40 sentences" in text
    assert "tiny, layer 1" in text
    assert {path.name for path in tmp_path.glob("*.png")} == set(PICTURES)
    kept = json.loads((tmp_path / "token_tables.json").read_text())
    assert str(place) not in json.dumps(kept)
    assert kept["contestants"]["s1"]["estimates"]["transfer"]["trec_sum"]["training_limit"] == 40
    assert kept["contestants"]["tiny"]["estimates"]["sts"]["sts12_mean_spearman_mean"]["n"] == 40


def test_what_was_found_elsewhere_is_joined_and_not_measured_again(place, tmp_path, capsys) -> None:
    common = [place / "tasks", f"space={place / 's1'}", "--data", place / "corpus", "--device", "cpu"]
    run(*common, "--parts", "losses", "--out", tmp_path / "elsewhere")
    written = tmp_path / "elsewhere" / "token_tables.json"
    rounded = [common[0], f"space={place / 's0.4'}", *common[2:]]  # other weights under the same name
    capsys.readouterr()
    run(*rounded, "--parts", "losses", "isotropy", "--only", "space", "--join", written, "--out", tmp_path / "here")
    assert "1 of 2 units are there" in capsys.readouterr().out
    content = json.loads((tmp_path / "here" / "token_tables.json").read_text())
    assert content["units"] == {"space": ["isotropy"]}
    assert [each["units"] for each in content["joined"]] == [{"space": ["losses"]}]
    one, before = content["contestants"]["space"], json.loads(written.read_text())["contestants"]["space"]
    assert one["estimates"]["losses"] == before["estimates"]["losses"]
    assert "random_cosine" in one["estimates"]["isotropy"]
    assert one["recipe"] == before["recipe"]  # of the first that told of it
    assert str(tmp_path) not in json.dumps(content)
    assert content["options"]["limit"] is None


def test_of_units_found_twice_the_later_is_joined_and_word_counts_come_last() -> None:
    def piece(value: float, **more: Any) -> dict[str, Any]:
        estimates = {"completeness": {"well_formed_prior": {"value": value}}}
        options = {"completeness": {"seed": 0, "language_model": "/some/where/lm"}}
        return {"seconds": {"completeness": value}, "options": options, "estimates": estimates, "tables": {}, **more}

    first = {"word counts": piece(1.0, kind="words"), "space": piece(2.0, kind="space")}
    found = joined([first, {"space": piece(3.0, kind="other"), "new": piece(4.0)}])
    assert list(found) == ["space", "new", "word counts"]
    assert found["space"]["estimates"]["completeness"]["well_formed_prior"]["value"] == 3
    assert found["space"]["kind"] == "space"
    assert found["space"]["options"]["completeness"]["language_model"] == "lm"


def test_units_are_done_side_by_side_and_what_cannot_be_measured_is_told(place, tmp_path, options, monkeypatch) -> None:
    # Threads in the place of processes, which take seconds to start.
    monkeypatch.setattr(token_tables, "ProcessPoolExecutor", lambda count, *_, **__: ThreadPoolExecutor(count))
    contestant = Contestant.of(str(place / "s1"))
    units = units_of([contestant], ["losses", "isotropy"], options)
    told = list(token_tables.worked(units, options, tmp_path, together=2))
    assert sorted(each.rpartition(":")[0] for each in told) == ["s1: isotropy", "s1: losses"]
    assert all(is_done(unit, options, tmp_path, contestant.fingerprint) for unit in units)
    assert not is_done(units[0], options, tmp_path, "other weights")
    no_judge = replace(options, language_model=str(place / "vae"))
    (lost,) = token_tables.worked([replace(units[0], part="completeness")], no_judge, tmp_path, together=1)
    assert "not measured" in lost
    assert "has codes" in lost


def test_tables_without_findings_are_left_out() -> None:
    assert markdown({}) == ""
    assert all(len(numbers) == 7 for numbers in PAPER_STS.values())
    assert all(len(numbers.split()) == 7 for numbers in (PAPER_FROZEN | PAPER_TUNED).values())


def test_the_papers_averages_are_those_of_its_cells() -> None:
    averages = {"BERT-start, published": 29.19, "BERT-mean, published": 54.81, "VAT-start": 23.34, "VAT-sum": 51.02}
    for name, average in averages.items():
        assert np.mean(PAPER_STS[name]) == pytest.approx(average, abs=0.01)


@pytest.mark.corpora
def test_word_counts_reach_what_is_known_on_the_published_files(tmp_path) -> None:
    folder = os.environ.get("TEXTSPACE_CORPORA")
    if not folder:
        pytest.skip("TEXTSPACE_CORPORA does not name the folder of the real corpora")
    run(folder, "--out", tmp_path, "--parts", "sts", "transfer", "--skip", "mr", "cr", "sst2_phrases", "sst5", "trec")
    found = collected([Contestant("word counts", "words")], tmp_path)["word counts"]["estimates"]
    assert found["sts"]["stsb_cosine_spearman"]["value"] > 40
    assert 78 < found["transfer"]["sst2"]["value"] < 83
    assert set(found["transfer"]) & set(TASKS) == {"sst2", "mrpc", "sick_e"}
