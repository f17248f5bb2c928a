"""Spaces side by side: paired differences by hand, which are marked, and the command."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import command, small, tiny_sentences

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Picture, Table
from textspace.evaluate.measures.classifiers import accuracy_over_seeds, per_sentence
from textspace.evaluate.reports.comparison import (
    Comparison,
    Difference,
    Row,
    compare,
    difference_text,
    markdown,
    merged,
    page,
    paired_difference,
)
from textspace.evaluate.reports.report import Entry, Report
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.types import Estimate

FIRST, SECOND = [1.0, 2.0, 6.0, 3.0], [2.0, 2.0, 5.0, 5.0]


def estimate(value: float, better: Any = "lower", name: str = "nats") -> Estimate:
    return Estimate(name, value, 0.1, 4, "none", better, {})


def report(nll: list[float], text: str = "same", unknown: float = 0.0, **more: Any) -> Report:
    mean = sum(nll) / len(nll)
    findings = Findings(
        {"nll": estimate(mean), "kl": estimate(mean, None), "ppl": estimate(math.exp(mean))},
        pictures={"nats": Picture("histogram", "Cost", {"nll": nll})},
        per_sentence={"nll": nll, "kl": nll},
    )
    curves = Findings(pictures={"loss": Picture("lines", "Loss", {"training": nll})})
    return Report(
        name="any",
        space={"about": "a space"},
        data={
            "about": "my text",
            "test_fingerprint": text,
            "splits": {"test": {"unknown": unknown}},
        },
        settings={"date": "2026-01-02T03:04:05+00:00", "effort": {"pairs": 5}, "seed": 0} | more,
        entries={
            "likelihood": Entry("How likely.", "Language modelling", 1.0, findings),
            "training_curves": Entry("The run.", "The training run", 0.0, curves),
        },
        skipped={"clusters": "no labels"},
    )


def row_of(comparison: Comparison, key: str) -> Row:
    return next(row for row in comparison.rows if row.key == key)


# Differences


def test_a_paired_difference_by_hand() -> None:
    # 1, 0, -1, 2: mean 1/2, variance 5/3 of four
    found = paired_difference(FIRST, SECOND)
    assert found == Difference(0.5, pytest.approx(math.sqrt(5 / 3 / 4)), 4)


def test_a_space_differs_from_itself_by_exactly_nothing() -> None:
    found = paired_difference(FIRST, FIRST)
    assert (found.value, found.stderr, found.clear) == (0.0, 0.0, False)
    itself = compare({"a": report(FIRST), "b": report(FIRST)})
    assert row_of(itself, "nll").differences == (None, Difference(0.0, 0.0, 4))
    assert row_of(itself, "nll").verdict(1) == ""
    assert difference_text(row_of(itself, "nll"), 1) == "+0"


def test_only_finite_pairs_count_and_unequal_lists_are_no_pairs() -> None:
    assert paired_difference([1.0, math.inf, 3.0], [2.0, 1.0, 6.0]) == Difference(2.0, 1.0, 2)
    assert paired_difference([1.0, 2.0], [1.0]) is None
    assert paired_difference([math.nan], [1.0]) is None
    assert paired_difference([], []) is None
    assert paired_difference([1.0], [3.0]) == Difference(2.0, None, 1)


@pytest.mark.parametrize(
    ("value", "stderr", "clear"),
    [(2.1, 1.0, True), (-2.1, 1.0, True), (2.0, 1.0, False), (0.1, 0.0, True), (5.0, None, False)],
)
def test_differences_beyond_two_standard_errors_are_clear(value: float, stderr: float | None, clear: bool) -> None:
    assert Difference(value, stderr, 9).clear == clear


@pytest.mark.parametrize(
    ("better", "value", "verdict"),
    [("lower", -3.0, "better"), ("lower", 3.0, "worse"), ("higher", 3.0, "better"), ("higher", -3.0, "worse")]
    + [(None, 3.0, "different"), ("lower", 1.0, "")],
)
def test_the_direction_decides_what_is_better(better: Any, value: float, verdict: str) -> None:
    row = Row("m", "k", "t", (estimate(1.0, better), estimate(2.0, better)), (None, Difference(value, 1.0, 9)))
    assert row.verdict(0) == ""
    assert row.verdict(1) == verdict
    assert difference_text(row, 1).endswith(f", {verdict}" if verdict else "1.0")
    assert difference_text(row, 1).startswith("+" if value > 0 else "-")


# Comparisons


def test_numbers_stand_side_by_side_and_differences_are_to_the_first() -> None:
    found = compare({"a": report(FIRST), "b": report(SECOND), "c": report([0.0, 1.0, 5.0, 2.0])})
    row = row_of(found, "nll")
    assert [each.value for each in row.estimates] == [3.0, 3.5, 2.0]
    assert row.differences == (None, paired_difference(FIRST, SECOND), Difference(-1.0, 0.0, 4))
    assert [row.verdict(place) for place in range(3)] == ["", "", "better"]
    assert row_of(found, "kl").verdict(2) == "different"
    assert row_of(found, "ppl").differences == (None, None, None)  # no number for each sentence
    assert found.notes == ()


def test_means_over_runs_differ_no_more_clearly_than_their_runs_scatter() -> None:
    """Two classifiers alike: runs scatter by 2 percent, sentences do not know of it."""
    random = np.random.default_rng(0)
    clear = 0
    for _ in range(300):
        reports = {}
        for name in ("one", "other"):
            right_RN = random.random((5, 2_000)) < random.normal(0.7, 0.02, (5, 1))
            shown = accuracy_over_seeds("accuracy", right_RN, {})
            found = Findings({"accuracy": shown}, per_sentence={"accuracy": per_sentence(right_RN)})
            entry = Entry("Labels.", "Labels", 1.0, found)
            reports[name] = replace(report(FIRST), entries={"few_labels": entry})
        (difference,) = [each for each in row_of(compare(reports), "accuracy").differences if each is not None]
        clear += difference.clear
    assert clear / 300 < 0.1  # two standard errors of five runs each


def test_spaces_on_other_sentences_are_not_paired_and_that_is_told() -> None:
    found = compare({"a": report(FIRST), "b": report(SECOND, text="other"), "c": report(SECOND)})
    assert row_of(found, "nll").differences == (None, None, paired_difference(FIRST, SECOND))
    (note,) = found.notes
    assert note.startswith("b was measured on other test sentences than a")


def test_other_settings_and_other_unknown_words_are_told() -> None:
    assert compare({"a": report(FIRST), "b": report(FIRST, seed=1)}).notes == (
        "b was measured with another seed than a",
    )
    (note,) = compare({"a": report(FIRST, unknown=0.02), "b": report(FIRST)}).notes
    assert "a 2.00%, b 0.00% of the test tokens" in note
    assert compare({"a": report(FIRST, unknown=0.02), "b": report(FIRST, unknown=0.0201)}).notes == ()


def test_what_only_one_space_has_is_shown_too() -> None:
    other = report(SECOND)
    del other.entries["likelihood"].findings.estimates["ppl"], other.entries["likelihood"].findings.per_sentence["kl"]
    for spaces in ({"a": report(FIRST), "b": other}, {"b": other, "a": report(FIRST)}):
        found = compare(spaces)
        estimates = dict(zip(spaces, row_of(found, "ppl").estimates, strict=True))
        assert (estimates["a"] is None, estimates["b"] is None) == (False, True)
        assert row_of(found, "ppl").name == "nats"
        assert row_of(found, "kl").differences == (None, None)
        assert "ppl" not in markdown(found)


def test_one_space_is_no_comparison() -> None:
    with pytest.raises(TextspaceError, match="two spaces or more"):
        compare({"a": report(FIRST)})


def test_names_that_differ_are_merged() -> None:
    assert merged(["x", "x"]) == "x"
    assert merged(["NLL (size 19.4)", "NLL (size 18.4)"]) == "NLL (size [19.4 | 18.4])"
    assert merged(["NLL, bound", "NLL, bound (loose: 3)"]) == "NLL, bound[– | (loose: 3)]"
    assert merged([None, "NLL", "NLL"]) == "NLL"
    assert merged(["a b", "c d"]) == "[a b | c d]"


def test_markdown_and_page_show_all_of_it() -> None:
    evil = "<b>x|y"
    found = compare({"a": report(FIRST), evil: report([0.0, 1.0, 5.0, 2.0])}, command="textspace compare a b")
    text = markdown(found)
    assert "| nats | 3.00 ± 0.10 | 2.00 ± 0.10 (-1, better) |" in text
    assert "    textspace compare a b" in text
    assert "The training run" not in text  # pictures only
    html = page(found)
    assert "http" not in html
    assert "<script" not in html
    assert "<b>x|y" not in html
    assert '<div class="small better">-1, better</div>' in html
    assert html.count("<svg") == 4
    assert "The training run" in html


def with_examples(one: Report, *rows: tuple[str, str, str]) -> Report:
    table = Table("Picked by a rule", ("sentence", "row", "text"), rows, grouped=True)
    plain = Table("Of one space", ("x",), (("only here",),))
    one.entries["examples"] = Entry("E.", "Reconstruction", 0.0, Findings(tables={"examples": table, "plain": plain}))
    return one


def test_rows_of_spaces_are_joined_below_the_same_sentence() -> None:
    first = with_examples(report(FIRST), ("short", "(D)", "a b"), ("short", "(M)", "a c"), ("short", "(R)", "a b"))
    second = with_examples(
        report(SECOND),
        ("short", "(D)", "a b"),
        ("short", "(AE)", "a a"),
        ("long", "(D)", "c c c"),
        ("long", "(AE)", "c"),
    )
    found = compare({"smim": first, "smim-ae": second})
    (table,) = found.tables["examples"].values()
    assert table.title == "Picked by a rule"
    assert table.columns == ("sentence", "space", "row", "text")
    assert table.rows == (
        ("short", "", "(D)", "a b"),
        ("short", "smim", "(M)", "a c"),
        ("short", "smim", "(R)", "a b"),
        ("short", "smim-ae", "(AE)", "a a"),
        ("long", "", "(D)", "c c c"),
        ("long", "smim-ae", "(AE)", "c"),
    )
    assert "| short | smim-ae | (AE) | a a |" in markdown(found)
    for text in (markdown(found), page(found)):
        assert text.count("Picked by a rule") == 1
        assert "only here" not in text
    (kept,) = found.to_dict()["tables"]["examples"].values()
    assert kept["rows"][3] == ["short", "smim-ae", "(AE)", "a a"]


def test_other_sentences_are_not_taken_for_the_same_and_one_table_is_not_joined() -> None:
    first = with_examples(report(FIRST), ("short", "(D)", "a b"), ("short", "(M)", "x"))
    other = with_examples(report(SECOND, text="other"), ("short", "(D)", "c d"), ("short", "(M)", "y"))
    (table,) = compare({"a": first, "b": other}).tables["examples"].values()
    assert [row[1:] for row in table.rows] == [
        ("", "(D)", "a b"),
        ("a", "(M)", "x"),
        ("", "(D)", "c d"),
        ("b", "(M)", "y"),
    ]
    assert compare({"a": first, "b": report(SECOND)}).tables == {}
    assert Report.from_dict(first.to_dict()) == first


def test_json_has_every_number_and_difference(tmp_path: Path) -> None:
    found = compare({"a": report(FIRST), "b": report(SECOND)})
    paths = found.save(tmp_path)
    raw = json.loads(paths["json"].read_text())
    assert raw["schema"] == 1
    assert list(raw["spaces"]) == ["a", "b"]
    (nll,) = (row for row in raw["rows"] if row["key"] == "nll")
    assert [each["value"] for each in nll["estimates"]] == [3.0, 3.5]
    assert nll["differences"][0] is None
    assert nll["differences"][1] == {"value": 0.5, "stderr": pytest.approx(math.sqrt(5 / 12)), "n": 4}
    assert {path.name for path in tmp_path.iterdir()} == {"comparison.json", "comparison.md", "comparison.html"}


# The command


@pytest.fixture(scope="module")
def places(_own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("spaces")
    (where / "held-out.txt").write_text("\n".join(tiny_sentences(60)))
    for name, seed in {"one": 1, "two": 2}.items():
        recipe = small(RECIPES["vae"]).but({"training.epochs": 1})
        Space.fit(tiny_sentences(120), recipe, out=where / name, seed=seed, device="cpu")
    Space.load(where / "one").save(where / "again" / "one")
    return where


def test_spaces_are_compared_on_text(places: Path, tmp_path: Path) -> None:
    spaces = [str(places / name) for name in ("one", "two", "again/one")]
    asked = ["compare", *spaces, "--data", str(places / "held-out.txt"), "--measure", "likelihood", "--samples", "3"]
    code, out, err = command(*asked, "--out", str(tmp_path), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert list(found["spaces"]) == spaces  # two folders are called alike
    (nll,) = (row for row in found["rows"] if row["key"] == "nll")
    _, two, again = nll["differences"]
    assert (again["value"], again["stderr"], again["n"]) == (0.0, 0.0, 60)
    first, second = (each["value"] for each in nll["estimates"][:2])
    assert two["value"] == pytest.approx(second - first)
    assert two["stderr"] > 0
    code, out, _ = command(*asked, "--out", str(tmp_path))
    assert "nats per sentence" in out
    assert f"The comparison is in {tmp_path / 'comparison.html'}" in out


def test_examples_of_several_spaces_stand_below_one_sentence(places: Path, tmp_path: Path) -> None:
    spaces = [str(places / name) for name in ("one", "two")]
    asked = ["compare", *spaces, "--data", str(places / "held-out.txt"), "--measure", "reconstruction_examples"]
    code, out, err = command(*asked, "--out", str(tmp_path))
    assert code == 0, err
    assert out.count("(D)") == 2 + 1  # two lengths, and the title
    assert out.count("(P)") == 2 * 2 + 1
    joined = json.loads((tmp_path / "comparison.json").read_text())["tables"]["reconstruction_examples"]["examples"]
    first = Space.load(places / "one", "cpu")
    (text, made) = (joined["rows"][0][3], joined["rows"][1][3])
    assert joined["rows"][1][1:3] == ["one", "(M)"]
    assert made == first.reconstruct(text)


def test_without_data_the_reports_in_the_folders_are_compared(places: Path, tmp_path: Path) -> None:
    spaces = [str(places / name) for name in ("one", "two")]
    for space in spaces:
        command("evaluate", space, "--data", str(places / "held-out.txt"), "--measure", "posterior")
    code, out, err = command("compare", *spaces, "--out", str(tmp_path))
    assert code == 0, err
    assert "active units" in out
    code, _, err = command("compare", spaces[0], str(places / "again" / "one"), "--out", str(tmp_path))
    assert code == 2
    assert "evaluation/report.json: give text to measure on" in err
    shutil.copytree(places / "one" / "evaluation", places / "again" / "one" / "evaluation", dirs_exist_ok=True)
    assert command("compare", spaces[1], str(places / "again" / "one"), "--out", str(tmp_path))[0] == 0  # equal weights
    shutil.copytree(places / "one" / "evaluation", places / "two" / "evaluation", dirs_exist_ok=True)
    code, _, err = command("compare", *spaces, "--out", str(tmp_path))
    assert code == 2
    assert "report.json is of other weights than the space has now: give text to measure on" in err


MISTAKES = {
    "one space": (["one", "--data", "held-out.txt", "--measure", "training_curves"], "two spaces or more"),
    "the same twice": (["one", "one"], "the same space is given twice"),
    "no space": (
        ["one", "nowhere", "--data", "held-out.txt", "--measure", "training_curves"],
        "is not a trained space",
    ),
    "standard input": (["one", "two", "--data", "-"], "- can be read only once, and each space reads it: write the"),
    "standard input among others": (["one", "two", "--data", "held-out.txt,-"], "- can be read only once"),
    **{
        f"{option} without data": (["one", "two", option, *value], f"{option} is for measuring something now: give")
        for option, *value in [
            ("--measure", "posterior"),
            ("--suite", "full"),
            ("--seed", "5"),
            ("--precision", "foo"),
            ("--text-column", "3"),
            ("--header",),
            ("--end-token", "dropped"),
        ]
    },
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(mistake: str, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, told = MISTAKES[mistake]
    monkeypatch.chdir(places)
    code, _, err = command("compare", *arguments)
    assert code == 2
    assert told in err.strip().splitlines()[-1]
