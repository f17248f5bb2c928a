"""Reports: JSON that comes back, Markdown that is a table, and a page that needs nothing else."""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Picture, Table
from textspace.evaluate.reports import comparison
from textspace.evaluate.reports.comparison import compare
from textspace.evaluate.reports.html import html_table, page
from textspace.evaluate.reports.pictures import draw, svg
from textspace.evaluate.reports.report import HEADLINES, SCHEMA, Entry, Report, json_text
from textspace.evaluate.reports.text import alignment, markdown, plain_name, shown, shown_rows
from textspace.types import Estimate

EVIL = "<script>alert('|')</script> & *more* | _words_ `x` [y](z)"


def estimate(name: str = "a number", value: float = 1.5, stderr: float | None = 0.25, **more: Any) -> Estimate:
    given: dict[str, Any] = {"n": 1234, "bound": "upper", "better": "lower", "settings": {"seed": 0, "samples": 20}}
    return Estimate(name, value, stderr, **given | more)


PICTURES = {
    "histogram": Picture("histogram", "Lengths", {"a": [1.0, 2.0, 2.0], "b": [4.0]}, x_label="words"),
    "lines": Picture(
        "lines", "Loss <1>", {"a": [3.0, math.nan, 1.0], "b": [math.nan, 2.0, math.nan]}, x=[1.0, 2.0, 3.0]
    ),
    "bars": Picture("bars", "KL", {"kl": [0.5, 0.25]}, ticks=["3", "1"], y_label="nats"),
    "points": Picture("points", "Map", {"x": [0.0, 1.0, 2.0, 3.0], "y": [1.0, 1.0]}),
    "heat": Picture("heat", "Classes", {"x": [0.0, 1.0], "y": [2.0, 0.0]}, ticks=["x", "y"]),
}

DOCTOR = Table(
    "Doctor", ("", "diagnosis"), (("state", "collapsed"), ("in words", "The codes have collapsed."), ("to try", "this"))
)


@pytest.fixture(scope="module")
def report() -> Report:
    likelihood = Findings(
        {
            "nll_ppl_word": estimate("perplexity per word", 101.2345, 0.5),
            "odd": estimate("an infinite one", math.inf, math.nan, bound="none", better=None),
        },
        {"sentences": Table("Sentences", ("sentence", "nats"), ((EVIL, 3.25), ("fine", None)))},
        PICTURES,
        {"nll_ppl_word": [1.0, math.inf, 0.1 + 0.2]},
    )
    long = Table("Paths", ("path", "sentence"), tuple((number, f"sentence {number}") for number in range(110)))
    entries = {
        "likelihood": Entry("How likely.", "Language modelling", 1.5, likelihood, ("many words are unknown",)),
        "posterior": Entry("What codes tell.", "Geometry of the codes", 0.5, Findings(tables={"doctor": DOCTOR})),
        "interpolations": Entry("Ways.", "Geometry of the codes", 0.5, Findings(tables={"paths": long})),
        "empty": Entry("Nothing.", "Samples", 0.0, Findings()),
    }
    return Report(
        name=f"space {EVIL}",
        space={
            "about": "recipe vae, codes of 4 dimensions",
            "weights": "0123456789abcdef" * 4,
            "recipe": {"name": "vae"},
        },
        data={
            "about": "my (sentences: test 3)",
            "source": "my",
            "notes": ["my has no splits"],
            "fingerprint": "f" * 64,
            "test_fingerprint": "e" * 64,
            "splits": {"test": {"sentences": 3, "of": 30, "words": 7.25, "unknown": 0.0125}},
        },
        settings={
            "textspace": "0.1.0",
            "date": "2026-01-02T03:04:05+00:00",
            "suite": "quick",
            "effort": {"importance_samples": 20, "pairs": 5000},
            "seed": 0,
            "device": "cpu",
            "command": "textspace evaluate my-space --data my.txt",
        },
        entries=entries,
        skipped={"clusters": "the test sentences have no labels"},
    )


def test_headlines_say_which_bound_they_are(report: Report) -> None:
    (line, found) = report.headlines()[0]
    assert (line.label, found.value) == ("perplexity per word, upper bound", 101.2345)
    loose = estimate("importance-weighted NLL (loose: effective sample size 2.0)")
    assert HEADLINES[1].bounded(loose).label == "nats per sentence, loose upper bound"
    assert HEADLINES[1].bounded(estimate(bound="exact")).label == "nats per sentence"


# JSON


def test_a_report_comes_back_from_json_and_is_strict_json(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path)["json"]
    assert repr(Report.load(path)) == repr(report)
    raw = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert raw["schema"] == SCHEMA == 1
    assert set(raw) == {"schema", "name", "space", "data", "settings", "measures", "skipped", "digest"}
    assert raw["measures"]["likelihood"]["estimates"]["nll_ppl_word"] == {
        "name": "perplexity per word",
        "value": 101.2345,
        "stderr": 0.5,
        "n": 1234,
        "bound": "upper",
        "better": "lower",
        "settings": {"seed": 0, "samples": 20},
    }
    assert raw["measures"]["likelihood"]["per_sentence"]["nll_ppl_word"] == [1.0, "Infinity", 0.1 + 0.2]


def test_json_is_laid_out_for_reading_and_means_the_same() -> None:
    data = {"a": [1, 2.5, None, "x"], "b": {"c": [[1, 2], [3]]}, "empty": {}, "none": [], "ü": "\n"}
    text = json_text(data)
    assert json.loads(text) == data
    assert text.startswith(
        '{\n "a": [1, 2.5, null, "x"],\n "b": {\n  "c": [\n   [1, 2],\n   [3]\n  ]\n },\n "empty": {},'
    )


@pytest.mark.parametrize("data", [{}, [], {"schema": 2}, {"schema": 1}, {"schema": 1, "measures": {"x": 3}}])
def test_what_is_no_report_is_refused_in_a_sentence(data: Any, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(data))
    with pytest.raises(TextspaceError, match="evaluate the space anew"):
        Report.load(tmp_path / "report.json")
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(TextspaceError, match="is damaged, or is no report"):
        Report.load(tmp_path / "report.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(TextspaceError, match=r"cannot read .*pipe.json: it is a device or a pipe"):
        Report.load(tmp_path / "pipe.json")
    with pytest.raises(TextspaceError, match="cannot read"):
        Report.load(tmp_path / "nothing.json")


HOSTILE = {
    "text": '"x"',
    "a number as text": '"1.5"',
    "empty list": "[]",
    "list": "[1]",
    "object": "{}",
    "deep": "[" * 100_000 + "]" * 100_000,
    "less deep": "[" * 300 + "]" * 300,
    "yes": "true",
    "nothing": "null",
    "negative": "-1",
    "zero": "0",
    "vast": "1e308",
    "tiny": "1e-320",
    "infinite": "1e400",
    "minus infinity": '"-Infinity"',
    "NaN": "NaN",
    "many digits": "1" + "0" * 29,
    "too many digits": "1" + "0" * 399,
}
"""What may stand in the place of a number, as JSON."""


def number_places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the numbers of a report are; of a list of numbers only the first."""
    if isinstance(data, dict):
        return [place for key, value in data.items() for place in number_places(value, (*at, key))]
    if isinstance(data, list):
        some = data if any(isinstance(each, list | dict | str) for each in data) else data[:1]
        return [place for row, value in enumerate(some) for place in number_places(value, (*at, row))]
    return [at] if isinstance(data, int | float) and not isinstance(data, bool) else []


def without_pictures(report: Report) -> Report:
    """Which take long to draw."""
    bare = {name: replace(each, findings=replace(each.findings, pictures={})) for name, each in report.entries.items()}
    return replace(report, entries=bare)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_number_of_a_report_can_break_a_comparison(hostile: str, report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path)["json"]
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"name": "another"}))
    with pytest.raises(TextspaceError, match="its digest does not match"):
        Report.load(path)
    raw.pop("digest")  # as in reports of earlier versions
    places = number_places(raw)
    assert len(places) > 50
    refused = 0
    for place in places:
        changed = copy.deepcopy(raw)
        *parents, last = place
        functools.reduce(lambda inner, key: inner[key], parents, changed)[last] = "HERE"
        path.write_text(json.dumps(changed).replace('"HERE"', HOSTILE[hostile]))
        try:
            damaged = Report.load(path)
        except TextspaceError:
            refused += 1
            continue
        if "pictures" in place:
            assert svg(damaged.entries[place[1]].findings.pictures[place[3]], "any").startswith("<svg")
        compared = compare({"damaged": without_pictures(damaged), "whole": without_pictures(report)})
        assert json_text(compared.to_dict())
        assert comparison.markdown(compared)
        assert comparison.page(compared)
    assert refused == len(places) or hostile not in ("deep", "less deep", "too many digits")
    assert refused < len(places) or hostile not in ("negative", "zero", "vast")


# Numbers for people


def test_cells_of_a_column_have_equally_many_decimals() -> None:
    table = Table(
        "", ("", "n", "x", "y"), (("a", 3, 0.575, "1.2 ± 0.1"), ("b", 12, 4.0, ""), ("c", None, math.nan, "7"))
    )
    assert shown_rows(table) == [("a", "3", "0.57", "1.2 ± 0.1"), ("b", "12", "4.00", ""), ("c", "", "–", "7")]
    assert alignment(table) == "lrrr"
    assert alignment(Table("", ("words", "share"), (("6-10", "12%"), ("11-15", "3%")))) == "lr"
    vast = Table("", ("", "x", "y"), (("a", 9.5e21, "9.5e+21 ± 1.2e+19"), ("b", 20_000_000, "7"), ("c", 0.575, "1")))
    assert [row[1] for row in shown_rows(vast)] == ["9.5e+21", "20,000,000", "0.575"]
    assert alignment(vast) == "lrr"
    assert shown(True) == "yes"
    assert plain_name("mlp_probe") == "MLP probe"


# Markdown


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown_has_whole_tables_whatever_the_text(report: Report) -> None:
    text = markdown(report)
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(tables) == 5
    for table in tables:
        lines = table.splitlines()
        assert {len(cells(line)) for line in lines} == {len(cells(lines[0]))}
        assert set("".join(cells(lines[1]))) <= set("-:")
    numbers = tables[1].splitlines()
    assert cells(numbers[0]) == ["measure", "value", "n", "bound", "better"]
    assert cells(numbers[2]) == ["perplexity per word", "101.23 ± 0.50", "1,234", "upper", "lower"]
    assert "<script>" not in text.replace("\\<", "")
    assert "### Empty" not in text


def test_markdown_tells_the_rest_in_words(report: Report) -> None:
    text = markdown(report)
    for told in (
        "> The codes have collapsed.",
        "- Note: my has no splits",
        "- Note: many words are unknown",
        "- Clusters: the test sentences have no labels",
        "    textspace evaluate my-space --data my.txt",
        "importance samples 20, pairs 5,000",
    ):
        assert told in text
    assert text.index("## Language modelling") < text.index("## Geometry of the codes") < text.index("## Not measured")


# HTML


class Seen(HTMLParser):
    """What a page is made of; fails where an element is closed that was not open."""

    EMPTY = frozenset({"meta", "br", "path", "use", "image", "rect", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(scope="module")
def seen(report: Report) -> Seen:
    return Seen(page(report))


def test_the_page_needs_nothing_else(report: Report, seen: Seen) -> None:
    text = page(report)
    assert "http" not in text
    assert "//" not in re.sub(r"base64,[\w+/=\s]*", "", text)
    tags = {tag for tag, _ in seen.elements}
    assert tags.isdisjoint({"script", "link", "iframe", "object", "embed", "img"})
    for _, attributes in seen.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "xlink:href", "src"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
    assert "url(" not in text.replace("url(#", "")
    assert "@import" not in text


def test_references_of_the_page_lead_to_one_place_each(seen: Seen) -> None:
    assert len(seen.ids) == len(set(seen.ids))
    uses = [attributes for _, attributes in seen.elements]
    links = [str(each[name])[1:] for each in uses for name in ("href", "xlink:href") if str(each.get(name))[:1] == "#"]
    assert len(links) > 10
    assert set(links) <= set(seen.ids)


def test_the_page_shows_everything(report: Report, seen: Seen) -> None:
    text = " ".join("".join(seen.text).split())
    for told in (
        "The codes have collapsed.",
        "perplexity per word",
        HEADLINES[0].about,
        "101.23 ± 0.50",
        "many words are unknown",
        "the test sentences have no labels",
        "textspace evaluate my-space --data my.txt",
        "99 more rows",
        "1.25%",
        *(picture.title for picture in PICTURES.values()),
    ):
        assert told in text
    assert EVIL in "".join(seen.text)  # as text
    assert sum(tag == "svg" for tag, _ in seen.elements) == len(PICTURES)
    assert "Empty" not in text


def test_a_short_table_is_not_folded() -> None:
    short = Table("Short", ("a", "b"), tuple((number, "x") for number in range(13)))
    assert "<details>" not in html_table(short)
    assert html_table(short).count("<tr>") == 14


def test_a_report_of_nothing_is_a_page(report: Report) -> None:
    nothing = Report(report.name, report.space, report.data, report.settings)
    assert "To repeat this" in "".join(Seen(page(nothing)).text)
    assert "## To repeat this" in markdown(nothing)


# Pictures


def test_lines_skip_what_is_not_there() -> None:
    axis = draw(PICTURES["lines"]).axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[1, 3], [3, 1]])
    np.testing.assert_array_equal(axis.lines[1].get_xydata(), [[2, 2]])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b"]


def test_lines_over_ratios_are_named_in_plain_numbers() -> None:
    x = [1.0, 2.0, 8.0]
    axis = draw(Picture("lines", "", {"a": [1.0, math.nan, 3.0]}, x=x, log_x=True)).axes[0]
    assert axis.get_xscale() == "log"
    assert [axis.xaxis.get_major_formatter()(value, 0) for value in x] == ["1", "2", "8"]
    assert axis.lines[0].get_xdata().tolist() == [1, 8]
    assert draw(Picture("lines", "", {"a": x}, x=x)).axes[0].get_xscale() == "linear"


def test_bars_stand_in_the_order_given_and_lie_where_names_are_long() -> None:
    axis = draw(PICTURES["bars"]).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.5, 0.25]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["3", "1"]
    names = [f"quite a long name {number}" for number in range(5)]
    lying = draw(Picture("bars", "", {"x": [1.0, 2, 3, 4, 5]}, ticks=names, y_label="how much")).axes[0]
    assert [bar.get_width() for bar in lying.patches] == [1, 2, 3, 4, 5]
    assert lying.get_xlabel() == "how much"
    many = draw(Picture("bars", "", {"x": [1.0] * 100}, ticks=[str(number) for number in range(100)])).axes[0]
    assert len(many.patches) == 100
    assert len(many.get_xticklabels()) < 20


def test_histograms_show_shares_and_whole_numbers_in_the_middle_of_their_bin() -> None:
    axis = draw(PICTURES["histogram"]).axes[0]
    outline = axis.patches[0].get_path().vertices
    assert outline[:, 1].max() == pytest.approx(2 / 3)
    assert {0.5, 1.5, 2.5} <= set(outline[:, 0])
    assert [line.get_xdata()[0] for line in axis.lines] == [pytest.approx(5 / 3), 4]


def test_points_keep_their_groups() -> None:
    axis = draw(PICTURES["points"]).axes[0]
    offsets = [np.asarray(group.get_offsets()).tolist() for group in axis.collections]
    assert offsets == [[[0, 1], [2, 3]], [[1, 1]]]


def test_heat_has_rows_in_order_and_a_middle_only_where_signs_differ() -> None:
    plain = draw(PICTURES["heat"]).axes[0]
    np.testing.assert_array_equal(plain.images[0].get_array(), [[0, 1], [2, 0]])
    assert [text.get_text() for text in plain.texts] == ["0.00", "1.00", "2.00", "0.00"]
    signed = draw(Picture("heat", "", {"x": [-1.0, 3.0]})).axes[0].images[0]
    assert signed.get_clim() == (-3, 3)
    rounded = draw(Picture("heat", "", {"x": [-1e-17, 3.0]})).axes[0]
    assert rounded.images[0].get_clim()[0] != -3
    assert rounded.texts[0].get_text() == "0.00"


@pytest.mark.parametrize("kind", ["histogram", "lines", "bars", "points", "heat"])
def test_a_picture_of_nothing_is_drawn(kind: Any) -> None:
    assert svg(Picture(kind, "none", {}), "a").startswith("<svg viewBox=")
    assert svg(Picture(kind, "empty", {"x": []}), "a").startswith("<svg viewBox=")


def test_a_picture_is_drawn_alike_each_time_and_its_parts_bear_its_name() -> None:
    first = svg(PICTURES["lines"], "one")
    assert first == svg(PICTURES["lines"], "one")
    assert all(found.startswith("one-") for found in Seen(first).ids)
    assert 'aria-label="Loss &lt;1>"' in first
