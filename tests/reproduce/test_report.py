"""What runs come to: means, errors, differences to the paper, and what is missing."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textspace.errors import TextspaceError
from textspace.reproduce.picture import draw, draw_by_epoch, draw_features, draw_features_in_space, limits, pictures
from textspace.reproduce.report import Cell, Reproduction, Runs
from textspace.reproduce.showing import explained, fitting, markdown, save, terminal_rows
from textspace.reproduce.table import Column, Row, Table

TABLE = Table(
    name="example",
    about="An example.",
    paper="nobody",
    corpus="builtin:10",
    columns=(Column("nll", "NLL"), Column("tests.score", "score", otherwise="tests.other"), Column("kl", "KL")),
    rows=(
        Row("plain", "vae", seeds=3, paper={"nll": 10.0}),
        Row("better", "ae", paper={"nll": 8.0, "tests.score": 0.5}),
        Row("elsewhere", paper={"nll": 7.0}, in_paper="Somebody"),
    ),
)


def run(row: str, seed: int, nll: tuple[float, float | None], **more: Any) -> dict[str, Any]:
    cost = dict.fromkeys(("seconds", "epochs", "steps", "encoder_updates", "decoder_updates", "parameters"), 7)
    facts = {"row": row, "seed": seed, "state": "done", "test": {"nll": list(nll)}, "stopped": "by itself"}
    asked = {"digest": "of the recipe", "epochs_at_most": 7, "steps_at_most": None}
    return facts | asked | cost | more


RUNS = {
    "plain-seed0": run("plain", 0, (9.0, 5.0)),
    "plain-seed1": run("plain", 1, (11.0, 5.0)),
    "plain-seed2": {"row": "plain", "seed": 2, "state": "missing", "said": "stopped: in epoch 3"},
    "better-seed0": run("better", 0, (7.0, 0.5), measures={"tests": {"other": [0.25, None]}}),
}
FOUND = Reproduction(TABLE, RUNS, {"plain": 3, "better": 1}, "textspace papers run example", ["one epoch"])


def test_few_seeds_have_the_error_over_sentences() -> None:
    plain, better, _ = FOUND.lines()
    assert (plain.cells["nll"].ours, plain.cells["nll"].error) == (10.0, 5.0)
    assert plain.cells["nll"].difference == 0
    assert (plain.done, plain.wanted) == (2, 3)
    assert (better.cells["nll"].ours, better.cells["nll"].error) == (7.0, 0.5)
    assert better.cells["nll"].difference == pytest.approx(-2.0)


def test_another_number_stands_in_and_one_without_an_error_is_not_compared() -> None:
    score = FOUND.lines()[1].cells["tests.score"]
    assert (score.ours, score.paper, score.difference) == (0.25, 0.5, None)


def with_reference(runs: Runs) -> Reproduction:
    columns = (*TABLE.columns, Column("nll_ppl_word", "PPL"))
    return Reproduction(Table(**{**TABLE.__dict__, "reference": "plain", "columns": columns}), runs, FOUND.wanted)


def test_with_a_reference_gaps_to_it_are_compared() -> None:
    runs = {name: dict(RUNS[name]) for name in RUNS}
    for name, kl in {"plain-seed0": 1.0, "plain-seed1": 2.0, "better-seed0": 4.0}.items():
        runs[name]["test"] = runs[name]["test"] | {"kl": [kl, 0.3]}
    plain, better, _ = with_reference(runs).lines()
    assert plain.cells["nll"] == Cell(10.0, 5.0, 10.0)
    # The same sentences scatter alike in both, by how much is not known here.
    assert better.cells["nll"] == Cell(7.0, 0.5, 8.0, None, gap=-3.0, gap_error=None, paper_gap=-2.0)
    assert (better.cells["kl"].gap, better.cells["kl"].gap_error) == (2.5, pytest.approx(math.hypot(0.3, 0.3)))
    assert "+2.50 ± 0.42" in "\n".join(" ".join(row) for row in terminal_rows(with_reference(runs), TABLE.columns))


def test_the_error_of_a_gap_is_that_of_the_same_sentences_differences() -> None:
    """Against many tables of sentences drawn anew, whose gaps scatter by what the error says."""
    random = np.random.default_rng(0)
    table, gaps, errors = with_reference({}).table, [], []
    for _ in range(300):
        words_N = random.integers(1, 60, 200)
        plain_N = 5.0 * words_N + random.normal(0, 3, 200)
        better_N = plain_N - 1 + random.normal(0, 0.5, 200)
        by_row = {"plain": plain_N, "better": better_N}
        runs = {}
        for row, nll_N in by_row.items():
            test = {"nll": [nll_N.mean(), 1.0], "nll_ppl_word": [math.exp(nll_N.sum() / words_N.sum()), 1.0]}
            kept = {"nll": nll_N.tolist(), "words": words_N.tolist()}
            runs[f"{row}-seed0"] = run(row, 0, (0.0, 1.0), by_sentence=kept) | {"test": test}
        cells = Reproduction(table, runs, {"plain": 1, "better": 1}).lines()[1].cells
        found = [cells[key] for key in ("nll", "nll_ppl_word")]
        gaps.append([cell.gap for cell in found])
        errors.append([cell.gap_error for cell in found])
    assert np.mean(gaps, axis=0)[0] == pytest.approx(-1, abs=0.01)
    np.testing.assert_allclose(np.mean(errors, axis=0), np.std(gaps, axis=0), rtol=0.15)


def test_with_a_reference_gaps_to_it_are_drawn() -> None:
    """Numbers themselves where it was not run, and in tables that have none."""

    def at(found: Reproduction) -> list[tuple[float, float]]:
        """Places of points in the first panel."""
        points = [line for line in draw(found).axes[0].get_lines() if line.get_marker() == "o"]
        return [(x, y) for line in points for x, y in line.get_xydata().tolist()]

    gaps, numbers = at(with_reference(RUNS)), at(FOUND)
    assert {(0.0, 0.0), (-3.0, 1.0), (-2.0, 1.0), (-3.0, 2.0)} == {*gaps}
    assert {(10.0, 0.0), (7.0, 1.0), (8.0, 1.0), (7.0, 2.0)} == {*numbers}
    title = draw(with_reference(RUNS)).get_suptitle()
    assert title == "example: gaps to plain, ours filled, the paper's hollow"
    alone = with_reference({"better-seed0": RUNS["better-seed0"]})
    assert (7.0, 1.0) in at(alone)


def test_gaps_stand_in_a_table_of_their_own() -> None:
    kept = {"plain": [9.0, 13.0, 8.0], "better": [7.0, 10.0, 5.0]}
    runs = {f"{row}-seed0": run(row, 0, (sum(nll) / 3, 5.0), by_sentence={"nll": nll}) for row, nll in kept.items()}
    found = with_reference(runs)
    assert found.lines()[1].cells["nll"].difference == pytest.approx((-8 / 3 + 2) / (1 / 3))
    assert "| better | -2.67 ± 0.33 (-2) |" in markdown(found)
    assert "## Gaps to plain" in markdown(found)
    assert "## Gaps" not in markdown(FOUND)
    assert any("gaps to plain" in line for line in explained(found))
    fewer = with_reference(runs | {"better-seed0": run("better", 0, (7.0, 5.0), by_sentence={"nll": [7.0]})})
    assert fewer.lines()[1].cells["nll"].gap_error is None  # of other sentences


@pytest.mark.parametrize("is_kept", [True, False])
def test_gaps_of_what_measures_find_of_whole_sentences_are_those_of_the_same_sentences(is_kept: bool) -> None:
    key = "word_swaps.swaps_1"
    table = replace(with_reference(RUNS).table, columns=(Column(key, "1 swapped"),))
    values = {"plain": [9.0, 13.0, 8.0], "better": [7.0, 10.0, 5.0]}
    runs = {
        f"{row}-seed0": run(
            row,
            0,
            (9.0, 1.0),
            measures={"word_swaps": {"swaps_1": [sum(own) / 3, 2.0]}},
            by_sentence={key: own, "words": [1, 2, 3]} if is_kept else {},
        )
        for row, own in values.items()
    }
    cell = replace(with_reference(runs), table=table).lines()[1].cells[key]
    assert cell.gap == pytest.approx(-8 / 3)
    assert cell.gap_error == (pytest.approx(1 / 3) if is_kept else None)


def test_likelihoods_of_other_words_are_not_compared() -> None:
    """What a row that has learnt from another corpus does not know is unknown, and easy to predict."""
    rows = (TABLE.rows[0], replace(TABLE.rows[1], trained_on="another"))
    better = replace(with_reference(RUNS), table=replace(with_reference(RUNS).table, rows=rows)).lines()[1]
    assert better.cells["nll"] == better.cells["nll_ppl_word"] == Cell()
    assert (better.cells["tests.score"].ours, better.cells["tests.score"].paper) == (0.25, 0.5)


def test_missing_runs_and_rows_not_asked_for_are_told() -> None:
    assert FOUND.missing == {"plain-seed2": "stopped: in epoch 3"}
    told = "\n".join(explained(FOUND))
    assert "Missing: plain-seed2 (stopped: in epoch 3)." in told
    assert "Not as the table says: one epoch." in told
    fewer = Reproduction(TABLE, {}, {"better": 1})
    assert fewer.missing == {"better-seed0": "not begun"}
    assert fewer.unasked == ["plain"]
    assert [line.row.name for line in fewer.lines()] == ["better", "elsewhere"]


def test_the_terminal_has_ours_the_papers_and_the_difference_below_each_other() -> None:
    assert list(terminal_rows(FOUND, TABLE.columns[:1])) == [
        ("plain", "2 of 3*", "10.0 ± 5.0"),
        ("  paper", "", "10"),
        ("  difference", "", "+0.0"),
        ("better", "1*", "7.00 ± 0.50"),
        ("  paper", "", "8"),
        ("  difference", "", "-2.0"),
        ("elsewhere", "quoted", "7"),
    ]
    assert len(fitting(FOUND, 200)) == 3
    assert len(fitting(FOUND, 40)) == 1


def test_a_reproduction_is_written_read_and_joined(tmp_path: Path) -> None:
    infinite = RUNS | {"better-seed0": run("better", 0, (math.inf, None))}
    first = Reproduction(TABLE, infinite, FOUND.wanted, FOUND.command)
    paths = save(first, tmp_path)
    assert all(path.stat().st_size > 200 for path in paths.values())
    json.loads(paths["json"].read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    again = Reproduction.load(paths["json"])
    assert markdown(again) == markdown(first) == paths["md"].read_text()
    ended = Reproduction(TABLE, {"plain-seed2": run("plain", 2, (10.0, 5.0))}, {"plain": 3})
    both = again.joined(ended)
    assert both.missing == {}
    assert ended.joined(again).runs["plain-seed2"]["state"] == "done"
    assert both.lines()[0].cells["nll"].error == pytest.approx(1 / math.sqrt(3))
    larger = replace(TABLE, rows=(*TABLE.rows, Row("newer", "vae")))  # than the table that was saved
    newer = again.joined(Reproduction(larger, {"newer-seed0": run("newer", 0, (8.0, 1.0))}, {"newer": 1}))
    assert [(line.row.name, line.done, line.wanted) for line in newer.lines() if line.wanted] == [
        ("plain", 2, 3),
        ("better", 1, 1),
        ("newer", 1, 1),
    ]
    with pytest.raises(TextspaceError, match="two tables"):
        again.joined(Reproduction(Table("other", "", "", "", (), ()), {}, {}))


def test_what_differs_from_the_table_in_some_of_joined_runs_is_said_of_some() -> None:
    def found(seed: int, epochs: int, *deviations: str) -> Reproduction:
        runs = {f"plain-seed{seed}": run("plain", seed, (9.0, 5.0), epochs_at_most=epochs, importance_samples=20)}
        return Reproduction(TABLE, runs, {"plain": 3}, "", ["a=1 in every run", *deviations])

    three, four = ("at most 3 epochs instead of 8", "at most 4 epochs instead of 8")
    one, two, again = found(0, 3, three), found(1, 4, "b=2 in every run", four), found(2, 3, "b=2 in every run", three)
    assert one.joined(one).deviations == one.deviations
    some = [f"{three} in some runs", "b=2 in some runs", f"{four} in some runs"]
    assert one.joined(two).joined(again).deviations == ["a=1 in every run", *some]


def test_what_only_runs_had_whose_place_was_taken_is_not_said() -> None:
    told = ["at most 3 epochs instead of 8", "5 importance samples instead of 20", "likelihoods scored in bf16"]
    short = run("plain", 0, (9.0, 5.0), epochs_at_most=3, importance_samples=5, scored_in="bf16")
    whole = run("plain", 0, (9.0, 5.0), epochs_at_most=8, importance_samples=20, scored_in="float32")
    one, other = (Reproduction(TABLE, {"plain-seed0": each}, {"plain": 1}) for each in (short, whole))
    assert replace(one, deviations=told).joined(other).deviations == []
    begun = Reproduction(
        TABLE, {"plain-seed0": {"row": "plain", "seed": 0, "state": "missing"}}, {"plain": 1}, "", told
    )
    several = ["at most 3 or 5 epochs instead of 8"]  # of runs that have no numbers yet, what was asked stands
    assert begun.joined(begun).deviations == told
    assert replace(begun, deviations=several).joined(replace(begun, deviations=several)).deviations == several
    assert replace(one, deviations=told).joined(replace(one, deviations=told)).deviations == told


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        ([5.5, 0.05], "log"),
        ([5.5, 0.06], "linear"),
        ([5.5, 0.0], "linear"),
        ([5.5, -0.05], "linear"),
        ([0.9, 0.002], "linear"),
    ],
)
def test_numbers_of_many_sizes_are_drawn_by_their_logarithm(numbers: list[float], scale: str) -> None:
    table = Table(**{**TABLE.__dict__, "by_epoch": (Column("kl", "KL"),), "drawn": ("plain",)})
    runs = {"plain-seed0": run("plain", 0, (9.0, 5.0), epoch=[1.0, 2.0], by_epoch={"kl": numbers})}
    assert draw_by_epoch(Reproduction(table, runs, FOUND.wanted)).axes[0].get_yscale() == scale


def test_courses_and_features_are_drawn_where_there_are_any(tmp_path: Path) -> None:
    table = Table(**{**TABLE.__dict__, "by_epoch": (Column("kl", "KL", "dual_kl"),), "drawn": ("plain", "better")})
    runs = {
        "plain-seed0": run("plain", 0, (9.0, 5.0), epoch=[1.0, 2.0, 3.0], by_epoch={"kl": [4.0, 2.0, 1.0]}),
        "plain-seed1": run("plain", 1, (9.0, 5.0), epoch=[1.0, 2.0], by_epoch={"kl": [6.0, 4.0]}),
        "better-seed0": run("better", 0, (7.0, 0.5), epoch=[1.0, 2.0], by_epoch={"dual_kl": [0.5, 0.25]}),
    }
    found = Reproduction(table, runs, FOUND.wanted)
    axis = draw_by_epoch(found).axes[0]
    plain, better = axis.get_lines()
    assert (plain.get_xdata().tolist(), plain.get_ydata().tolist()) == ([1, 2], [5, 3])  # the epochs that both have
    assert better.get_ydata().tolist() == [0.5, 0.25]
    assert axis.get_yscale() == "linear"
    assert [*pictures(found)] == ["example.png", "example-by-epoch.png"]
    assert [*pictures(FOUND)] == ["example.png"]

    runs["plain-seed1"] |= {"feature_places": [[0.5, -2.0], [0.0, 1.0]], "feature_spread": [0.25, 0.1]}
    axis = draw_features(found).axes[0]
    assert axis.collections[0].get_offsets().tolist() == [[0.5, -2.0], [0.0, 1.0]]
    assert axis.get_title(loc="left") == "plain\nspread 0.25"
    assert axis.get_xlim() == axis.get_ylim() == (-2.1, 2.1)
    paths = save(found, tmp_path)
    assert [path.name for path in paths.values()][2:] == [f"example{of}.png" for of in ("", "-by-epoch", "-features")]
    assert "![example-features](example-features.png)" in paths["md"].read_text()
    again = Reproduction.load(paths["json"])
    assert again.table == table
    assert [*pictures(again)] == [*pictures(found)]


def test_features_of_three_numbers_are_drawn_as_they_are(tmp_path: Path) -> None:
    table = Table(**{**TABLE.__dict__, "drawn": ("plain", "better")})
    features = {"plain": [[0.5, 0.25, -0.5], [0.5, 0.25, -0.75]], "better": [[1.0, -1.0, 0.0], [-1.0, 2.0, 0.5]]}
    runs = {
        f"{row}-seed0": run(row, 0, (9.0, 5.0), features=places, feature_places=[[0.0, 1.0]], feature_spread=[0.2, 0.1])
        for row, places in features.items()
    }
    found = Reproduction(table, runs, FOUND.wanted)
    assert pictures(found)["example-features.png"] is draw_features_in_space
    axes = draw_features_in_space(found).axes
    for axis, places in zip(axes, features.values(), strict=True):
        assert np.array(axis.collections[0]._offsets3d).T.tolist() == places
        assert axis.get_xlim() == axis.get_ylim() == axis.get_zlim() == (-2, 2)
    assert axes[1].get_title(loc="left") == "better, spread 0.20"
    again = Reproduction.load(save(found, tmp_path)["json"])
    assert again.drawn("features") == found.drawn("features")
    assert pictures(again)["example-features.png"] is draw_features_in_space


def test_results_that_are_nested_without_end_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text('{"a":' * 100_000)
    with pytest.raises(TextspaceError, match=r"any.json is no JSON .*nested too deeply.*: give a NAME.json"):
        Reproduction.load(tmp_path / "any.json")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"state": "begun"}, "its state is neither done nor missing"),
        ({"state": None}, "its state is neither done nor missing"),
        ({"row": "better"}, "it is of better-seed0"),
        ({"seed": "0"}, "seed: input should be a valid integer"),
        ({"digest": None}, "digest: input should be a valid string"),
        ({"test": None}, "test: input should be a valid dictionary"),
        ({"test": {"nll": [9.0]}}, "test.nll.1: field required"),
        ({"test": {"nll": ["much", 1.0]}}, "test.nll.0: input should be a valid number"),
        ({"test": {"nll": [9.0, -1.0]}}, "a standard error must not be negative"),
        ({"seconds": "long"}, "seconds: input should be a valid number"),
        ({"epoch": [1.0], "by_epoch": {"kl": [1.0, 2.0]}}, "by_epoch must have a number for each in epoch"),
        ({"by_sentence": {"nll": [9.0], "words": [3, 4]}}, "by_sentence must have as many numbers as words"),
        ({"feature_places": [[0.5, 1.0]]}, "feature_places need feature_spread"),
        ({"feature_places": [[0.5]], "feature_spread": [0.1, None]}, "feature_places.0.1: field required"),
        ({"features": [[0.5, 1.0]]}, "features.0.2: field required"),
        ({"features": [[0.5, 1.0, 0.0]]}, "features need feature_places"),
        ({"features": [[0.5, 1.0, math.inf]]}, "features.0.2: input should be a finite number"),
    ],
)
def test_a_damaged_run_is_named_with_what_is_wrong(damage: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = save(FOUND, tmp_path)["json"]
    data = json.loads(path.read_text())
    assert Reproduction.load(path).runs == data["runs"]
    data["runs"]["plain-seed0"] |= damage
    path.write_text(json.dumps(data))
    with pytest.raises(TextspaceError) as error:
        Reproduction.load(path)
    assert str(error.value).startswith(f"the run 'plain-seed0' in {path} is damaged ({told}")
    assert str(error.value).endswith("write or fetch the file again, or take that run out")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no JSON or is cut short"),
        ('{"format": 1,', "is no JSON or is cut short"),
        ("[" * 100_000, "is no JSON or is cut short"),
        ("[]", "is no result of textspace papers run"),
        ("{}", "is no result of textspace papers run"),
        ('{"format": 99}', "has format 99 and this version of textspace reads 1: update textspace"),
    ],
)
def test_files_that_hold_no_results_are_told(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(TextspaceError, match=told):
        Reproduction.load(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"wanted": {"plain": -3}}, "wanted.plain: input should be greater than or equal to 1"),
        ({"wanted": {"plain": 10**9}}, "wanted.plain: input should be less than or equal to 1000"),
        ({"table": {"columns": []}}, "its table has no columns"),
        ({"table": {"reference": "nobody"}}, "its table has no row 'nobody' to compare others with"),
        ({"table": {"name": "../../evil"}}, "'../../evil' is no plain name, of letters, digits and . _ + -"),
        ({"table": {"name": ".."}}, "'..' is no plain name"),
        ({"table": {"rows": [{"name": "plain", "paper": {"nll": "1.5"}}]}}, "one of the paper's numbers is none"),
        ({"table": {"rows": [{"name": "../evil", "recipe": "vae"}]}}, "'../evil' is no plain name"),
    ],
)
def test_what_cannot_be_shown_is_refused(damage: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = save(FOUND, tmp_path)["json"]
    data = json.loads(path.read_text())
    damage |= {"table": data["table"] | damage.get("table", {})}
    path.write_text(json.dumps(data | damage))
    with pytest.raises(TextspaceError) as error:
        Reproduction.load(path)
    assert str(error.value).startswith(f"{path} is no result of textspace papers run ({told}")
    assert str(error.value).endswith("): give a NAME.json that it has written")


def test_rows_of_papers_may_be_called_anything(tmp_path: Path) -> None:
    quoted = replace(FOUND, table=replace(TABLE, rows=(*TABLE.rows, Row("Kim et al. (2018)", paper={"nll": 6.0}))))
    assert Reproduction.load(save(quoted, tmp_path)["json"]).lines()[-1].row.name == "Kim et al. (2018)"


def test_courses_are_drawn_at_the_epochs_of_their_own_runs(tmp_path: Path) -> None:
    """The first seed may lack a column that others have."""
    table = replace(TABLE, by_epoch=(Column("kl", "KL"),), drawn=("plain",))
    runs = {
        "plain-seed0": run("plain", 0, (9.0, 5.0), epoch=[1.0], by_epoch={"nll": [4.0]}),
        "plain-seed1": run("plain", 1, (9.0, 5.0), epoch=[2.0, 4.0, 6.0], by_epoch={"kl": [6.0, 4.0, 3.0]}),
        "plain-seed2": run("plain", 2, (9.0, 5.0), epoch=[2.0, 4.0], by_epoch={"kl": [4.0, 2.0]}),
    }
    (line,) = draw_by_epoch(Reproduction(table, runs, FOUND.wanted)).axes[0].get_lines()
    assert line.get_xydata().tolist() == [[2, 5], [4, 3]]


@pytest.mark.parametrize("lost", ["table", "runs", "wanted", "command", "deviations"])
def test_results_without_a_part_are_refused(lost: str, tmp_path: Path) -> None:
    path = save(FOUND, tmp_path)["json"]
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != lost}))
    with pytest.raises(TextspaceError, match="is no result of textspace papers run"):
        Reproduction.load(path)


def test_a_panel_spans_what_is_compared_with_the_paper() -> None:
    low, high = limits(FOUND.lines(), TABLE.columns[0])
    assert (low, high) == (pytest.approx(5 - 0.8), pytest.approx(15 + 0.8))  # with the errors
    assert limits(FOUND.lines(), TABLE.columns[2]) == (pytest.approx(-0.08), pytest.approx(1.08))


def test_markdown_has_every_number_and_what_it_cost() -> None:
    text = markdown(FOUND)
    assert "| better |  | 1\\* | 7.00 ± 0.50 (8; -2.0) | 0.25 (0.5) |" in text
    assert "| elsewhere | Somebody | quoted | (7) |" in text
    assert "| better-seed0 | 7 | 7 | 7 | 7 | 7 | 7 | by itself |" in text
    assert "    textspace papers run example" in text
