"""The commands `papers` as a user meets it: a tiny table, interrupted once and resumed."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from helpers import small
from test_cli import textspace

from textspace.recipes import RECIPES
from textspace.reproduce.inventory import inventory
from textspace.reproduce.report import Reproduction
from textspace.reproduce.showing import save
from textspace.reproduce.tables import TABLES, table
from textspace.space import Space
from textspace.train import checkpoints
from textspace.train.fit import train

TINY = ("papers", "run", "tiny", "--rows", "vae", "--seeds", "1", "--device", "cpu", "--out", "out")
TINY += ("--set", "training.checkpoint_every=5")  # and not after half a minute
OWN = ("papers", "run", "tiny", "--seeds", "1", "--device", "cpu", "--out", "out")
BATCHES = 19
"""Of an epoch of its 600 sentences."""


def test_a_tiny_table_interrupted_and_resumed_is_that_of_a_run_without_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the number of threads changes bits
    run = tmp_path / "out" / "vae-seed0"

    def interrupt() -> None:
        while not list(run.glob("checkpoints/step-*")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    stopped = textspace(*TINY, "--epochs", "5000", cwd=tmp_path)  # which never end
    assert stopped.returncode == 130
    assert "runs missing: 1; the same command goes on where it stopped" in stopped.stderr
    assert "Missing: vae-seed0" in stopped.stdout
    assert not (run / "numbers.json").exists()
    state = json.loads((checkpoints.newest(run) / "state.json").read_text())
    epochs = state["step"] // BATCHES + 2
    asked = (*TINY, "--epochs", str(epochs))
    resumed = textspace(*asked, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr + (tmp_path / "out" / "vae-seed0.log").read_text()
    found = json.loads((tmp_path / "out" / "tiny.json").read_text())
    numbers = found["runs"]["vae-seed0"]
    assert numbers["state"] == "done"
    assert 0 < state["step"] < numbers["steps"] == BATCHES * epochs
    recipe = table("tiny").recipe_of(table("tiny").trained["vae"], seed=0, epochs=epochs)
    train("builtin:600", recipe, tmp_path / "whole", device="cpu", silent=True, curves=False)
    whole, gone_on = (Space.load(folder, "cpu").model for folder in (tmp_path / "whole", run))
    assert checkpoints.digest(gone_on) == checkpoints.digest(whole)
    lines = [line.split() for line in resumed.stdout.splitlines()]
    assert lines[1][:2] == ["vae", "1*"]
    assert lines[2][:2] == ["paper", "10.86"]
    assert float(lines[1][2].replace(",", "")) == pytest.approx(numbers["test"]["nll_ppl_word"][0], rel=0.05)
    assert {"nll", "kl", "mi", "active_units"} <= numbers["test"].keys()
    assert len(numbers["by_epoch"]["elbo"]) == numbers["epochs"]
    assert str(tmp_path) not in json.dumps(found)

    written = (run / "numbers.json").stat().st_mtime_ns
    again = textspace(*asked, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")  # nothing was to do
    assert again.stdout == resumed.stdout
    assert (run / "numbers.json").stat().st_mtime_ns == written

    drawn = textspace("papers", "run", "--from", "out/tiny.json", "--out", "redrawn", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    for ending in (".md", ".json", ".png", "-by-epoch.png", "-features.png"):
        first, second = (tmp_path / folder / f"tiny{ending}" for folder in ("out", "redrawn"))
        assert first.read_bytes() == second.read_bytes()
    # what a file has is not run again, wherever the folder
    known = textspace(*asked, "--out", "elsewhere", "--data", ".", "--from", "out/tiny.json", cwd=tmp_path)
    assert known.returncode == 0, known.stderr
    assert not (tmp_path / "elsewhere" / "vae-seed0").exists()


def test_only_runs_that_a_command_would_run_are_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(Reproduction(table("tiny"), {}, {"vae": 3}), tmp_path)
    drawn = textspace("papers", "run", "tiny", "--from", "tiny.json", "--out", "drawn", cwd=tmp_path)
    assert drawn.returncode == 0
    assert drawn.stderr == "runs missing that this command does not run: 3; add --data . to run them\n"
    monkeypatch.setattr("textspace.reproduce.run.side_by_side", lambda *_, **__: iter([]))
    asked = (*TINY[:-2], "--data", ".", "--from", "tiny.json")
    told = textspace(*asked, cwd=tmp_path).stderr.splitlines()[-2:]
    assert told == [
        "runs missing: 1; the same command goes on where it stopped",
        "runs missing that this command does not run: 2",
    ]


def test_tables_are_listed(tmp_path: Path) -> None:
    listed = textspace("papers", "list", "--tables", cwd=tmp_path).stdout
    assert all(name in listed for name in TABLES)
    listed = textspace("papers", "list", "--tables", "--json", cwd=tmp_path).stdout
    assert json.loads(listed).keys() == TABLES.keys()


def test_the_papers_tables_are_listed_with_the_rows_that_are_done(tmp_path: Path) -> None:
    ptb = table("ptb-mim")
    counts = dict.fromkeys(("epochs", "steps", "encoder_updates", "decoder_updates", "parameters", "epochs_at_most"), 7)
    done = counts | {"digest": "it", "steps_at_most": None, "stopped": "by itself", "seconds": 7.0, "test": {}}
    runs = {
        "smim-512-seed0": done | {"row": "smim-512", "seed": 0, "state": "done"},
        "smim-128-seed0": {"row": "smim-128", "seed": 0, "state": "missing"},
    }
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "some.json").write_text(json.dumps(Reproduction(ptb, runs, {"smim-512": 1}).to_dict()))
    (tmp_path / "results" / "other.json").write_text("[1]")
    items = {(each.paper.partition(" et")[0], each.name): each for each in inventory()}
    listed = json.loads(textspace("papers", "list", "--results", "results", "--json", cwd=tmp_path).stdout)
    counts = {(each["paper"].partition(" et")[0], each["name"]): (each["done"], each["wanted"]) for each in listed}
    assert counts.keys() == items.keys()
    assert counts["Livne", "table 2"] == (1, len(ptb.trained))
    assert counts["Livne", "table 8"] == (0, len(table("ranking").trained))
    shown = textspace("papers", "list", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "not measured: the" in shown.stdout  # corpus cannot be had
    assert "there is no folder none" in textspace("papers", "list", "--results", "none", cwd=tmp_path).stderr


def test_the_inventory_names_what_there_is() -> None:
    for item in inventory():
        assert [bool(item.tables), bool(item.measured), bool(item.why)].count(True) == 1, item
        assert {*item.rows} <= {row for name in item.tables for row in table(name).trained}, item
        assert not item.tables or item.wanted, item


def test_a_row_of_ones_own_is_trained_beside_the_others(tmp_path: Path) -> None:
    own = small(RECIPES["ae"]).but({"latent.dim": 3, "training.epochs": 1})
    (tmp_path / "mine.json").write_text(own.to_json())
    ended = textspace(*OWN, "--row", "mine=mine.json", "--rows", "mine", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = Reproduction.load(tmp_path / "out" / "tiny.json")
    assert found.runs["mine-seed0"]["state"] == "done"
    assert Space.load(tmp_path / "out" / "mine-seed0", "cpu").recipe == own
    assert "--row mine=mine.json" in found.command
    for written, sentence in (
        ("mine", "--row mine names no recipe: write it as mine=recipe.json"),
        ("vae=mine.json", "tiny has a row 'vae' already: give yours another name"),
        ("a/b=mine.json", "a row cannot be called 'a/b'"),
        ("mine=none.json", "there is no recipe 'none.json'"),
    ):
        ended = textspace(*OWN, "--row", written, cwd=tmp_path)
        assert (ended.returncode, sentence in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ptb-remedy"], "there is no table 'ptb-remedy'; did you mean 'ptb-remedies'?"),
        ([], "textspace papers run ptb-remedies --data corpora; textspace papers list --tables names all"),
        (["ptb-remedies"], "ptb-remedies needs the corpus 'ptb': name the folder that holds it, --data"),
        (["ptb-remedies", "--data", "here"], "there is no folder here/ptb, which ptb-remedies needs: it wants files"),
        (["yelp-few-labels", "--data", "."], "yelp_short has no file test: yelp-few-labels wants files train, valid"),
        (["tiny", "--rows", "vea"], "tiny has no row 'vea' to train; did you mean 'vae'?"),
        (["tiny", "--rows", "vae", "--set", "latent.dmi=3"], "recipe has no option 'latent.dmi'; did you mean"),
        (["tiny", "--set", "training.seed=3"], "leave it out, and say how many with --seeds"),
        (
            ["tiny", "--device", "cpu", "--set", "training.precision=bf16"],
            "bf16 is for the GPU and this run is on the CPU",
        ),
        (["tiny", "--from", "tiny.json", "--rows", "vae"], "add --data . to run others, or leave out --rows"),
        (["--from", "tiny.json", "--set", "latent.dim=3"], "--set is about runs, and --from without --data only"),
        (["tiny", "--from", "tiny.json", "--score-in", "tf32"], "or leave out --score-in"),
        (["tiny", "--from", "nothing.json"], "cannot read nothing.json: No such file or directory"),
        (["tiny", "--from", "list.json"], "list.json is no result of textspace papers run: give a NAME.json"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "list.json").write_text("[1]")
    save(Reproduction(table("tiny"), {}, {"vae": 1}), tmp_path)
    (tmp_path / "yelp_short").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "yelp_short" / f"{name}.tsv").write_text("1\tgood\n0\tbad\n")
    ended = textspace("papers", "run", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
