"""The command line as a user meets it: real processes, exit codes, one-line errors."""

import contextlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from itertools import filterfalse
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from helpers import small, tiny_sentences

from textspace import __version__
from textspace.cli import PANELS, main
from textspace.cli.shared import print_json, print_table
from textspace.data.corpus import open_corpus
from textspace.data.english import english
from textspace.generate import Greedy, Sampling
from textspace.recipes import FAMILIES, RECIPES
from textspace.space import Space
from textspace.train.loop import Trainer
from textspace.train.updates import Turn


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def textspace(*arguments: str, cwd: Path, stdin: str = "") -> Ended:
    """The command in this process, which has torch loaded already: what it prints, and its exit code."""
    out, err, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin.encode()))
    patches = [
        mock.patch.object(sys, "argv", ["textspace", *arguments]),
        mock.patch.object(sys, "stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text file, a recipe, and a space trained on them."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text("\n".join([*tiny_sentences(), "", "  "]))
    (folder / "table.tsv").write_text("label\ttext\n1\ta b\n2\tc d\n")
    (folder / "recipe.json").write_text(small(RECIPES["vae"]).to_json())
    trained = textspace("train", "text.txt", "--config", "recipe.json", "--out", "done", cwd=folder)
    assert trained.returncode == 0, trained.stderr
    (folder / "trained.log").write_text(trained.stderr)
    return folder


def test_training_leaves_a_space_and_says_what_it_did(workplace: Path) -> None:
    files = {path.name for path in (workplace / "done").iterdir()}
    assert files >= {
        "recipe.json",
        "tokenizer.json",
        "model.safetensors",
        "metrics.json",
        "steps.jsonl",
        "curves.png",
        "curves.svg",
    }
    told = (workplace / "trained.log").read_text()
    assert "2 empty lines skipped" in told
    assert "validation negative ELBO at KL weight 1, nats per sentence (lower is better): " in told
    assert "parameters" in told
    assert "validation: objective" in told  # plain lines, since there is no terminal
    metrics = json.loads((workplace / "done" / "metrics.json").read_text())
    assert metrics["test"]["elbo"]["bound"] == "upper"
    assert metrics["trained"]["encoder_updates"] == metrics["trained"]["steps"]


def test_scores_are_labelled(workplace: Path) -> None:
    shown = textspace("score", "done", "text.txt", "--samples", "20", cwd=workplace)
    assert shown.returncode == 0, shown.stderr
    assert "negative ELBO, upper bound on NLL" in shown.stdout
    assert "importance-weighted NLL, 20 samples, upper bound" in " ".join(shown.stdout.split())
    scored = json.loads(textspace("score", "done", "text.txt", "--samples", "20", "--json", cwd=workplace).stdout)
    assert scored["nll"]["n"] == 400  # a source without splits is scored as a whole
    assert scored["nll"]["value"] <= scored["elbo"]["value"]
    assert scored["nll"]["settings"] == {"samples": 20, "seed": 0, "end_token": "included", "proposal": "posterior"}


def test_a_column_named_by_a_number_and_one_clean_up_without_brackets(workplace: Path) -> None:
    (workplace / "years.csv").write_text("text,2020\nHello there,x\nbye now,y\n")
    told = textspace("describe", "years.csv", "--label-column", "2020", "--json", cwd=workplace)
    assert json.loads(told.stdout)["splits"]["train"]["classes"] == {"x": 1, "y": 1}
    numbered = textspace("describe", "years.csv", "--label-column", "2", "--json", cwd=workplace)
    assert numbered.stdout == told.stdout
    recipe = RECIPES["vae"].with_settings(["text.normalise=lower"])
    assert recipe == RECIPES["vae"].but({"text.normalise": ["lower"]})


def test_a_run_goes_on_with_its_own_settings_in_a_rehearsal_too(workplace: Path) -> None:
    told = textspace(
        "train", "text.txt", "--out", "done", "--resume", "--dry-run", "--set", "latent.dim=9", cwd=workplace
    )
    assert told.returncode == 2
    assert told.stderr.endswith("the run in done began with another recipe: resume with the same settings\n")


def test_an_empty_measure_is_no_measure(workplace: Path) -> None:
    told = textspace("evaluate", "done", "--data", "text.txt", "--measure", "", cwd=workplace)
    assert told.returncode == 2
    assert told.stderr.startswith("textspace: there is no measure ''")


def test_variants_may_be_the_best_of_several_beginnings(workplace: Path) -> None:
    told = textspace("vary", "done", "anna sees cats", "-n", "2", "--width", "3", "--json", cwd=workplace)
    assert len(json.loads(told.stdout)) == 2


def test_scores_say_how_sentences_end_and_whose_prior_a_bound_has(workplace: Path) -> None:
    asked = ("score", "done", "text.txt", "--samples", "5", "--json", "--end-token")
    told = textspace(*asked, "length", "--melbo", cwd=workplace)
    assert told.returncode == 0, told.stderr
    scored = json.loads(told.stdout)
    assert scored["nll"]["name"].endswith("as p_seq(x|z) p(length), the end token without probability")
    assert scored["melbo"]["value"] == pytest.approx(scored["reconstruction"]["value"] + math.log(400))
    assert "its prior is the evaluated set itself" in scored["melbo_ppl_word"]["name"]
    assert scored["melbo_meets"]["name"].startswith("log10 of the set size")
    dropped = json.loads(textspace(*asked, "dropped", cwd=workplace).stdout)
    assert dropped["nll"]["settings"]["end_token"] == "dropped"
    assert "melbo" not in dropped
    each = textspace("score", "done", "-", "--each", "--end", "length", cwd=workplace, stdin="anna sees cats\n")
    row = json.loads(each.stdout)
    assert row["tokens"] == ["anna", "sees", "cats"]
    total = sum(row["token_log_probabilities"]) + row["log_length"]
    assert total == pytest.approx(-row["reconstruction"], abs=1e-4)


def test_standard_input_is_a_source(workplace: Path) -> None:
    told = textspace("describe", "-", "--json", cwd=workplace, stdin="a b c\nd e\nf\n" * 5)
    assert told.returncode == 0, told.stderr
    assert sum(split["sentences"] for split in json.loads(told.stdout)["splits"].values()) == 15


def test_codes_go_out_and_come_back_as_sentences(workplace: Path) -> None:
    for ending in ("npy", "npz", "csv", "jsonl", "parquet"):
        out = f"codes.{ending}"
        told = textspace("encode", "done", "text.txt", "--out", out, cwd=workplace)
        assert told.returncode == 0, told.stderr
        assert f"400 codes of 4 dimensions in {out}" in told.stderr
        assert "2 empty lines skipped" in told.stderr
    decoded = {
        textspace("decode", "done", f"codes.{ending}", cwd=workplace).stdout
        for ending in ("npy", "npz", "csv", "jsonl", "parquet")
    }
    assert len(decoded) == 1
    again = textspace("reconstruct", "done", "text.txt", cwd=workplace)
    assert {again.stdout} == decoded
    assert len(again.stdout.splitlines()) == 400
    codes = np.load(workplace / "codes.npy")
    assert np.allclose(codes, Space.load(workplace / "done").encode(tiny_sentences()), atol=1e-5)


def test_pipes(workplace: Path) -> None:
    encoded = textspace("encode", "done", "-", cwd=workplace, stdin="anna sees cats\nbob hears songs\n")
    assert [json.loads(line)["text"] for line in encoded.stdout.splitlines()] == ["anna sees cats", "bob hears songs"]
    decoded = textspace("decode", "done", "-", "--json", cwd=workplace, stdin=encoded.stdout)
    assert decoded.returncode == 0, decoded.stderr
    again = Space.load(workplace / "done").reconstruct(["anna sees cats", "bob hears songs"])
    assert json.loads(decoded.stdout) == again
    labelled = textspace("encode", "done", "table.tsv", "--label-column", "label", cwd=workplace)
    assert [json.loads(line)["label"] for line in labelled.stdout.splitlines()] == ["1", "2"]


@pytest.mark.parametrize("method", [[], ["--temperature", "0.5"], ["--width", "3"], ["--method", "greedy"]])
def test_samples_depend_on_the_seed_alone(workplace: Path, method: list[str]) -> None:
    runs = [
        textspace("sample", "done", "-n", "3", "--seed", seed, "--json", *method, cwd=workplace).stdout
        for seed in ("1", "1", "2")
    ]
    assert runs[0] == runs[1] != runs[2]
    assert len(json.loads(runs[0])) == 3


def test_walks_variants_and_neighbours(workplace: Path) -> None:
    space = Space.load(workplace / "done")
    for path in ("linear", "spherical"):
        arguments = ["interpolate", "done", "anna sees cats", "bob hears songs", "--steps", "4", "--path", path]
        walked = textspace(*arguments, cwd=workplace).stdout.splitlines()
        assert walked == space.interpolate("anna sees cats", "bob hears songs", steps=4, path=path)
    varied = textspace("vary", "done", "anna sees cats", "-n", "3", "--strength", "2", "--json", cwd=workplace)
    assert [each["text"] for each in json.loads(varied.stdout)] == [
        each.text for each in space.vary("anna sees cats", 3, strength=2.0)
    ]
    assert "moved" in textspace("vary", "done", "anna sees cats", cwd=workplace).stdout
    found = textspace("neighbors", "done", "anna sees cats", "--data", "text.txt", "-k", "2", "--json", cwd=workplace)
    assert len(json.loads(found.stdout)) == 2
    assert json.loads(found.stdout)[0]["similarity"] > 0.999
    assert "cosine" in textspace("neighbors", "done", "anna", "--data", "text.txt", cwd=workplace).stdout


SAMPLED = {
    "--deviation 0.1": {"deviation": 0.1},
    "--deviation dim": {"deviation": "dim"},
    "--chain 2": {"chain": 2},
    "--draw-length": {"lengths": "drawn"},
    "--data text.txt --chain 1 --draw-length": {"of": tiny_sentences(), "chain": 1, "lengths": "drawn"},
    "--data folder --split test": {"of": ["bob hears songs"]},
    "--data table.tsv --text-column text": {"of": ["a b", "c d"]},
}


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
@pytest.mark.parametrize("options", SAMPLED)
def test_samples_are_asked_for_as_in_python(workplace: Path, options: str) -> None:
    (workplace / "folder").mkdir(exist_ok=True)
    for split, text in (("train", "anna sees cats"), ("test", "bob hears songs")):
        (workplace / "folder" / f"{split}.txt").write_text(f"{text}\n" * 5)
    asked = f"sample done -n 4 --seed 3 --temperature 0.9 --json {options}"
    told = textspace(*asked.split(), cwd=workplace)
    assert told.returncode == 0, told.stderr
    method = Sampling(temperature=0.9)
    assert json.loads(told.stdout) == Space.load(workplace / "done").sample(
        4, method=method, seed=3, **SAMPLED[options]
    )


def test_codes_are_moved_as_in_python(workplace: Path) -> None:
    space, texts = Space.load(workplace / "done"), tiny_sentences()
    moved = ["text.txt", "--what", "sample", "--strength", "10", "--seed", "2"]
    again = textspace("reconstruct", "done", *moved, cwd=workplace)
    assert again.stdout.splitlines() == space.reconstruct(texts, what="sample", strength=10, seed=2)
    assert textspace("encode", "done", *moved, "--out", "moved.npy", cwd=workplace).returncode == 0
    codes = space.encode(texts, what="sample", strength=10, seed=2)
    np.testing.assert_allclose(np.load(workplace / "moved.npy"), codes, atol=1e-4)
    ends = ["interpolate", "done", *texts[:2], "--steps", "3", "--ends", "sample", "--seed", "2"]
    for options, method in (([], Greedy()), (["--method", "sampling", "--top-p", "0.9"], Sampling(top_p=0.9))):
        walked = textspace(*ends, *options, cwd=workplace).stdout.splitlines()
        assert walked == space.interpolate(*texts[:2], steps=3, ends="sample", method=method, seed=2)


def test_every_sentence_can_be_scored_token_by_token(workplace: Path) -> None:
    told = textspace("score", "done", "-", "--each", "--samples", "5", cwd=workplace, stdin="anna sees cats\nbob\n")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["tokens"] for line in lines] == [["anna", "sees", "cats", "</s>"], ["bob", "</s>"]]
    for line in lines:
        assert -sum(line["token_log_probabilities"]) == pytest.approx(line["reconstruction"], rel=1e-4)
        assert line["elbo"] == pytest.approx(line["reconstruction"] + line["kl"], rel=1e-4)


def test_scores_tell_of_words_the_space_does_not_know_and_of_what_is_cut(workplace: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("anna sees cats\nxyzzy plugh\n" + "anna " * 600)
    told = textspace("score", str(workplace / "done"), "text.txt", "--each", "--samples", "2", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.splitlines()) == 3  # one for each sentence, as in Python
    assert "1 of 3 sentences had more than 512 tokens and were cut there" in told.stderr
    assert "of the tokens are unknown to the space, which flatters its likelihoods" in told.stderr


def test_scoring_leaves_nothing_in_the_cache(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTSPACE_CACHE", str(tmp_path / "cache"))
    told = textspace("score", "done", "-", "--samples", "2", cwd=workplace, stdin="anna sees cats\n")
    assert told.returncode == 0, told.stderr
    assert not (tmp_path / "cache").exists()


def test_numbers_that_are_not_finite_are_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [math.inf, 1.5], "b": (math.nan, "c")})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": [None, "c"]}


def test_sentences_in_tables_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table({"text\x1b[1m": "left", "number": "right"}, [("a\x1b[2Jb\x07\x9bc", "1\n2")])
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()] == [
        ["text", "[1m", "number"],
        ["a", "[2Jb", "c", "1"],
        ["2"],
    ]
    assert set(filterfalse(str.isprintable, shown)) == {"\n"}


def test_a_file_that_is_read_is_not_written_over(workplace: Path, tmp_path: Path) -> None:
    before = "id,review\n1,anna sees cats\n"
    (tmp_path / "table.csv").write_text(before)
    asked = ("encode", str(workplace / "done"), "table.csv", "--text-column", "review", "--out")
    for out in ("table.csv", str(tmp_path / "." / "table.csv")):
        told = textspace(*asked, out, cwd=tmp_path)
        assert told.returncode == 2
        assert "is the file that is read, and would be lost: name another" in told.stderr
    assert (tmp_path / "table.csv").read_text() == before
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "test.csv").write_text("text\nanna sees cats\n")
    for source, out in (("*.csv", "table.csv"), ("folder", "folder/test.csv")):
        told = textspace("encode", str(workplace / "done"), source, "--out", out, cwd=tmp_path)
        assert "is the file that is read, and would be lost: name another" in told.stderr
    assert (tmp_path / "table.csv").read_text() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("textspace sample done -n 2 > /dev/full", "could not read or write: No space left on device"),
        (
            "ulimit -v 12000000; textspace sample done -n 2000000000",
            "there is not enough memory for this: ask for less at a time",
        ),
        ("textspace encode done - --out codes.npy <&-", "standard input is closed"),
        (
            "PYTHONIOENCODING=ascii textspace score done text.txt --samples 0",
            "encoding ascii has no '±': set PYTHONIOENCODING",
        ),
    ],
)
def test_what_is_wrong_with_the_machine_is_one_sentence(workplace: Path, command: str, sentence: str) -> None:
    shell = command.replace("textspace", f"{sys.executable} -m textspace")
    told = subprocess.run(["bash", "-c", shell], cwd=workplace, capture_output=True, text=True)
    assert told.returncode == 2, told.stderr
    assert sentence in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train text.txt --config recipe.json --out loop", "loop is a link that leads nowhere: choose another folder"),
        ("demo --out loop", "loop is a link that leads nowhere: choose another folder"),
        ("evaluate done --data text.txt --out loop", "loop is a link that leads nowhere: name another with --out"),
        ("features done --data text.txt --out loop/page", "loop is a link that leads nowhere: name another with --out"),
        ("evaluate loop --data text.txt", "loop is not a trained space"),
        ("features loop --data text.txt", "loop is not a trained space"),
        ("doctor loop", "loop is not a trained space"),
        ("compare loop done", "there is no report loop/evaluation/report.json"),
        ("compare done loop --data text.txt", "loop is not a trained space"),
        ("train loop --out never", "'loop' is a link that leads nowhere: name a file"),
        ("train text.txt --config loop --out never", "cannot read the recipe 'loop'"),
    ],
)
def test_a_link_to_itself_is_one_sentence(workplace: Path, tmp_path: Path, arguments: str, sentence: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("done", "text.txt", "recipe.json"):
        (tmp_path / name).symlink_to(workplace / name)
    told = textspace(*arguments.split(), cwd=tmp_path)
    assert told.returncode == 2
    assert told.stderr.startswith(f"textspace: {sentence}"), told.stderr
    assert not (tmp_path / "never").exists()


def test_output_may_be_closed(workplace: Path) -> None:
    shell = f"{sys.executable} -m textspace sample done -n 2 >&-"
    assert subprocess.run(["bash", "-c", shell], cwd=workplace, capture_output=True).returncode == 0


def test_info_shows_the_card(workplace: Path) -> None:
    assert "Code dimensions: 4" in textspace("info", "done", cwd=workplace).stdout
    told = json.loads(textspace("info", "done", "--json", cwd=workplace).stdout)
    assert told["recipe"]["latent"]["dim"] == 4
    assert told["metrics"]["trained"]["steps"] > 0


def test_a_dry_run_trains_nothing(workplace: Path) -> None:
    arguments = ["train", "text.txt", "--config", "recipe.json", "--out", "never", "--dry-run"]
    told = textspace(*arguments, cwd=workplace)
    assert told.returncode == 0, told.stderr
    assert "batches per epoch  12" in told.stdout
    assert "s an epoch, at most 2 epochs" in told.stdout
    parts = json.loads(textspace(*arguments, "--json", cwd=workplace).stdout)
    assert parts["parts"]["encoder"].startswith("lstm embedding=12 hidden=16")
    assert not (workplace / "never").exists()


def test_a_dry_run_begins_with_what_the_run_would(workplace: Path) -> None:
    (workplace / "others.txt").write_text("\n".join(f"word{n} other{n} still{n}" for n in range(40)))
    vocabulary = len(Space.load(workplace / "done").tokenizer)
    for begun in (["--init", "done", "--out", "never"], ["--resume", "--out", "done"]):
        told = textspace("train", "others.txt", *begun, "--dry-run", "--json", cwd=workplace)
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["vocabulary"] == vocabulary
    wider = ["--init", "done", "--set", "decoder.hidden=24", "--dry-run"]
    assert "the weights in done are of another model" in textspace("train", "text.txt", *wider, cwd=workplace).stderr


def test_a_space_goes_on_learning_from_new_text(workplace: Path) -> None:
    (workplace / "more.txt").write_text("\n".join("dora likes stones" for _ in range(40)))
    arguments = ["train", "more.txt", "--init", "done", "--out", "further", "--epochs", "1", "--json"]
    told = textspace(*arguments, cwd=workplace)
    assert told.returncode == 0, told.stderr
    before, after = Space.load(workplace / "done"), Space.load(workplace / "further")
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    scores = [float(space.score("dora likes stones", samples=0).elbo_N[0]) for space in (before, after)]
    assert scores[1] < scores[0]  # it started from what it knew and learned the new text


def test_inputs_a_space_can_make_little_of_are_reported(workplace: Path) -> None:
    told = textspace("reconstruct", "done", "-", cwd=workplace, stdin="quite unheard of words\nanna sees cats\n")
    assert told.returncode == 0
    assert "textspace: note: 1 of 2 sentences are mostly words this space does not know" in told.stderr


def test_the_demo_tells_the_truth_about_the_built_in_corpus(workplace: Path, monkeypatch) -> None:
    """The real demo, on fewer sentences and a smaller model."""
    monkeypatch.setattr("textspace.demo.SOURCE", "builtin:300")
    monkeypatch.setattr("textspace.demo.EPOCHS", 1)
    monkeypatch.setitem(RECIPES, "default", small(RECIPES["default"]))
    with monkeypatch.context() as first:
        step = Trainer._turn

        def interrupted(trainer: Trainer) -> Turn:
            os.kill(os.getpid(), signal.SIGINT)
            return step(trainer)

        first.setattr(Trainer, "_turn", interrupted)
        told = textspace("demo", "--out", "demo", cwd=workplace)
    assert told.returncode == 130
    assert told.stderr.endswith("stopped: the same command goes on from there\n")
    told = textspace("demo", "--out", "demo", cwd=workplace)
    assert told.returncode == 0, told.stderr
    assert "Going on with what is in demo" in told.stdout
    shown = " ".join(told.stdout.split())
    for part in (
        "exact -log p of the same sentences",
        "distance from perfect",
        "active units, of 4",
        "Reconstructions",
    ):
        assert part in shown
    test = [record.text for record in open_corpus("builtin:300").splits["test"]]
    exact = np.mean([-english().log_prob(text) for text in test])
    assert f"{exact:.2f}" in shown
    assert (workplace / "demo" / "curves.png").stat().st_size > 1000
    assert Space.load(workplace / "demo").dim == 4
    again = textspace("demo", "--out", "demo", cwd=workplace)
    assert again.returncode == 0, again.stderr
    assert "Going on with what is in demo" in again.stdout
    assert shown.split("nats a sentence")[-1] == " ".join(again.stdout.split()).split("nats a sentence")[-1]
    described = json.loads(textspace("describe", "builtin:300", "--json", cwd=workplace).stdout)
    assert described["splits"]["train"]["sentences"] == 300


def test_every_command_has_its_panel_in_help(workplace: Path) -> None:
    shown = [line.strip("│╭─╮ ") for line in textspace("--help", cwd=workplace).stdout.splitlines()]
    places = [shown.index(panel) for panel in PANELS]
    assert places == sorted(places)
    for panel, start, end in zip(PANELS, places, [*places[1:], len(shown)], strict=True):
        listed = [words[0] for line in shown[start + 1 : end] if (words := line.split("  ")) and words[0].isalpha()]
        assert [name for name in listed if name in PANELS[panel]] == PANELS[panel]


def test_recipes_are_listed_and_shown(workplace: Path) -> None:
    listed = textspace("recipes", cwd=workplace).stdout
    assert all(name in listed for name in RECIPES)
    assert all(family in listed for family in FAMILIES)
    assert "(Burda et al. 2016)" in " ".join(listed.split())
    shown = textspace("recipes", "show", "vae", cwd=workplace).stdout
    assert shown == RECIPES["vae"].to_json()


@pytest.mark.parametrize(
    "asked", ["reconstruct done {}", "neighbors done anna --data {}", "sample done --data {} -n 1"]
)
def test_what_was_skipped_in_reading_is_said(workplace: Path, tmp_path: Path, asked: str) -> None:
    """Else nobody knows why there are fewer lines than in the file, or other rows."""
    (tmp_path / "gaps.txt").write_text("anna sees cats\n\n   \nbob hears songs\n")
    ended = textspace(*asked.format(tmp_path / "gaps.txt").split(), cwd=workplace)
    assert ended.returncode == 0, ended.stderr
    assert "2 empty lines skipped" in ended.stderr


def test_resuming_goes_on(workplace: Path) -> None:
    again = textspace("train", "text.txt", "--out", "done", "--resume", "--epochs", "3", cwd=workplace)
    assert again.returncode == 0, again.stderr
    lines = [json.loads(line) for line in (workplace / "done" / "steps.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["event"] == "step"]
    assert steps == list(range(1, 12 * 3 + 1))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train none.txt", "none.txt"),
        ("train empty.txt", "nothing is left of 'empty'"),
        ("train text.txt --recipe vea", "there is no recipe 'vea'; did you mean 'vae' or 'vat'?"),
        ("train text.txt --set latent.dmi=3", "recipe has no option 'latent.dmi'; did you mean 'latent.dim'?"),
        ("train text.txt --set latent.dim=-1", "latent.dim is -1"),
        ("train text.txt --config none.json", "there is no recipe 'none.json': check the path"),
        ("train text.txt --config text.txt", "the recipe 'text.txt' is not JSON"),
        ("train text.txt --config done/recipe.json --recipe vae", "are two recipes: leave out one of them"),
        ("train text.txt --epochs 3 --set training.epochs=5", "--set and --epochs say two things of one setting"),
        ("train text.txt --seed 3 --set training.seed=5", "--set and --seed say two things of one setting"),
        (
            "train text.txt --recipe hsvae --sparsity 0.5 --set prior.alpha=9",
            "--set and --sparsity say two things of one setting: leave out one of them",
        ),
        *(
            (f"{command} --out=", "--out is empty: give it a name, or leave it out")
            for command in (
                "train text.txt",
                "demo",
                "doctor done",
                "evaluate done --data text.txt",
                "compare done newer --data text.txt",
                "features done --data text.txt",
                "encode done text.txt",
                "rank done table.tsv",
                "papers run tiny",
            )
        ),
        ("train text.txt --out done", "done already holds a run: add --resume to continue it"),
        ("train text.txt --out nowhere --resume", "nowhere holds no run to resume: leave out --resume"),
        ("train text.txt --out done --resume --recipe ae", "done has the recipe 'vae'"),
        ("score done text.txt --precision fp8", "precision is 'fp8': use 'float32', 'tf32' or 'bf16'"),
        ("train table.tsv --text-column txet", "did you mean 'text'?"),
        ("train text.txt --device gpu", "there is no device 'gpu'"),
        ("score folder text.txt", "is not a trained space: it has no recipe.json"),
        ("score done folder --split tset", "has no split 'tset'; did you mean 'test'?"),
        ("score done text.txt --end never", "end_token is 'never': use 'included', 'dropped' or 'length'"),
        ("score done text.txt --each --melbo", "leave out --each or --melbo"),
        ("score done folder", "has the splits train, test: choose one with --split"),
        ("recipes show vea", "there is no recipe 'vea'"),
        ("train", "Missing argument"),
        ("train text.txt --recpie vae", "No such option: --recpie"),
        ("trian text.txt", "No such command 'trian'"),
        ("train binary.txt --out new", "looks like a binary file"),
        ("train text.txt --init folder --out new", "folder is not a trained space: it has no recipe.json"),
        ("encode done text.txt --out codes.npq", "npq"),
        ("encode done none.txt", "none.txt"),
        ("encode done text.txt --what mode", "--what is 'mode': use mean, sample or gates"),
        ("decode done none.npy", "none.npy"),
        ("decode done wide.npy", "7 columns and this space has 4 dimensions"),
        ("decode done nan.npy", "row 1 of nan.npy has a number that is NaN"),
        ("decode done text.txt", "text.txt"),
        ("decode done wide.npy --method baem", "did you mean 'beam'?"),
        ("sample done --temperature -1", "temperature"),
        ("sample done --method greedy --top-k 3", "top_k"),
        *(
            (f"{command} {10**23}", "to 2,147,483,647")
            for command in (
                "sample done -n",
                "sample done --width",
                "vary done anna -n",
                "interpolate done anna bob --steps",
                "answer done anna -n",
                "neighbors done anna --data text.txt -k",
            )
        ),
        (f"score done text.txt --samples {10**23}", "less than or equal to 2147483647"),
        (f"evaluate done --data text.txt --samples {10**23}", "less than or equal to 2147483647"),
        (f"answer done anna --words {'9' * 5000}", "give numbers from 1 with commas between, such as 5,10,15"),
        ("interpolate done anna bob --steps 1", "steps cannot be 1"),
        ("interpolate done anna bob --path round", "there is no path 'round'"),
        ("vary done anna --strength -1", "strength is -1.0"),
        ("reconstruct done text.txt --strength 10", "nothing is drawn that it could move: ask for a sample"),
        ("encode done text.txt --what mean --strength 1", "nothing is drawn that it could move: ask for a sample"),
        ("interpolate done anna bob --ends middle", "ends cannot be 'middle'"),
        ("sample done --deviation sqrt", "deviation is 'sqrt': give a number"),
        ("sample done --deviation 1e300", "deviation is 1e+300: give a number from 0 to 1,000,000"),
        ("vary done anna --strength 1e39", "strength is 1e+39: give a number from 0 (the mean itself) to 1,000,000"),
        ("doctor done --split valid", "--split says how to read --data: give that too"),
        ("sample done --deviation 0.1 --data text.txt", "give it, or sentences to sample around, not both"),
        ("sample done --split test", "--split says how to read --data: give that too"),
        ("sample done --data none.txt", "none.txt"),
        ("sample done --chain -1", "chain"),
        ("neighbors done anna --data none.txt", "none.txt"),
        ("neighbors done anna --data text.txt -k 0", "cannot find 0 neighbours"),
        ("info folder", "is not a trained space: it has no recipe.json; train one with textspace train"),
        ("info nowhere", "nowhere is not a trained space: it is not there"),
        ("info text.txt", "text.txt is not a trained space: it is a file"),
        ("train builtn", "there is no file 'builtn'; did you mean 'builtin'?"),
        ("info newer", "has format 99 and this version of textspace reads up to 1: update textspace"),
        ("info cut", "cannot read the weights in"),
        ("describe table.tsv --label-column lable", "did you mean 'label'?"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(workplace: Path, arguments: str, sentence: str) -> None:
    (workplace / "empty.txt").write_text("\n\n")
    (workplace / "folder").mkdir(exist_ok=True)
    for split in ("train", "test"):
        (workplace / "folder" / f"{split}.txt").write_text("anna sees cats\n" * 5)
    (workplace / "binary.txt").write_bytes(bytes(range(256)) * 20)
    np.save(workplace / "wide.npy", np.zeros((2, 7), np.float32))
    np.save(workplace / "nan.npy", np.full((2, 4), np.nan, np.float32))
    for name in ("newer", "cut"):
        shutil.copytree(workplace / "done", workplace / name, dirs_exist_ok=True)
    newer = workplace / "newer" / "recipe.json"
    newer.write_text(newer.read_text().replace('"format": 1', '"format": 99'))
    weights = workplace / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    told = textspace(*arguments.split(), cwd=workplace)
    assert told.returncode == 2, told.stderr
    assert sentence in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    assert "Traceback" not in told.stderr


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, mock.patch.object(sys, "argv", ["textspace", "--version"]):
        main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"textspace {__version__}\n")


def test_a_real_process_says_one_line_and_with_debug_the_traceback() -> None:
    command = [sys.executable, "-m", "textspace", "recipes", "show", "vea"]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2
    assert plain.stderr == "textspace: there is no recipe 'vea'; did you mean 'vae' or 'vat'?\n"
    assert "Traceback" in subprocess.run([*command, "--debug"], capture_output=True, text=True).stderr


def test_importing_the_package_and_asking_for_help_load_nothing_heavy(workplace: Path) -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'accelerate', 'matplotlib', 'tokenizers', 'datasets'}"
    for statement in ("import textspace", "import textspace.cli"):
        code = f"{statement}; import sys; print(sorted({heavy} & set(sys.modules)))"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert loaded.stdout.strip() == "[]", statement
    assert "train" in textspace("--help", cwd=workplace).stdout
    code = "import textspace.recipes, textspace.reproduce.tables, sys; print('torch' in sys.modules)"  # what is listed
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_sentences_are_cleaned_once(workplace: Path) -> None:
    """What is "&lt;b>" after once is a tag the second time, and gone."""
    marked = [f"{first} &lt;b> {last}" for first, last in (sentence.split(" ", 1) for sentence in tiny_sentences(9))]
    (workplace / "marked.txt").write_text("\n".join(marked))
    recipe = small(RECIPES["vae"]).but({"text.normalise": ["html"], "training.epochs": 1})
    space = Space.fit(marked * 20, recipe, out=workplace / "cleaning", device="cpu")

    def ran(command: str, *arguments: str) -> str:
        ended = textspace(command, "cleaning", *arguments, cwd=workplace)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    ran("encode", "marked.txt", "--out", "cleaned.npy")
    np.testing.assert_allclose(np.load(workplace / "cleaned.npy"), space.encode(marked), atol=1e-5)
    assert ran("reconstruct", "marked.txt").splitlines() == space.reconstruct(marked)
    assert ran("sample", "--data", "marked.txt", "-n", "3").splitlines() == space.sample(3, of=marked)
    (nearest,) = json.loads(ran("neighbors", marked[4], "--data", "marked.txt", "-k", "1", "--json"))
    assert (nearest["text"], nearest["row"]) == (space.normalise(marked[4]), 4)
    assert nearest["similarity"] == pytest.approx(1, abs=1e-5)
    ran("features", "--data", "marked.txt", "--sentence", marked[0], "--out", "read")
    found = json.loads((workplace / "read" / "features.json").read_text())
    again = space.encode(marked)
    for dimension in found["dimensions"]:
        for example in (each for side in dimension["sides"] for each in side["strongest"]):
            assert example["value"] == pytest.approx(again[example["row"], dimension["number"]], abs=1e-5)
    assert found["probes"][0]["decoded"] == space.reconstruct(marked[0])
    likely = json.loads(ran("score", "marked.txt", "--samples", "0", "--json"))
    assert likely["elbo"]["value"] == pytest.approx(space.score(marked, samples=0).estimates()["elbo"].value, abs=1e-4)
