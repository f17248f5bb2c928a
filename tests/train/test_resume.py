"""Killed with `kill -9` and resumed, a run must end with the very bits of one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import small, tiny_sentences

from textspace.recipes import RECIPES
from textspace.train import checkpoints

RUN = """
import os, signal, sys
import torch
torch.set_num_threads(2)
from textspace.config import Recipe
from textspace.train import checkpoints, updates
from textspace.train.fit import train

folder, text, mode = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if mode == "kill in mid-epoch":
    step = updates.JointUpdate.__call__
    def dying(self, next_batch, progress, rate):
        if progress.step == 17:
            die()
        return step(self, next_batch, progress, rate)
    updates.JointUpdate.__call__ = dying
elif mode == "kill during a checkpoint":
    write, count = checkpoints._write_and_sync, [0]
    def dying(path, data):
        count[0] += path.name == "optimizer.safetensors"
        if count[0] == 4:
            path.write_bytes(data[: len(data) // 2])
            die()
        write(path, data)
    checkpoints._write_and_sync = dying
train(text, Recipe.load(folder + "/../recipe.json"), folder, resume=mode == "resume", silent=True, device="cpu")
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "text.txt").write_text("\n".join(tiny_sentences()))
    recipe = small(RECIPES["vae"]).but({"training.checkpoint_every": 5, "training.epochs": 3})
    assert recipe.decoder.input_dropout > 0
    (folder / "recipe.json").write_text(recipe.to_json())
    (folder / "run.py").write_text(textwrap.dedent(RUN))
    return folder


def run(workplace: Path, name: str, mode: str) -> subprocess.CompletedProcess:
    (workplace / name).mkdir(exist_ok=True)
    arguments = [sys.executable, "run.py", str(workplace / name), "text.txt", mode]
    return subprocess.run(arguments, cwd=workplace, capture_output=True, text=True)


def outcome(workplace: Path, name: str) -> tuple[dict, list]:
    last = checkpoints.read(workplace / name)
    lines = [json.loads(line) for line in (workplace / name / "steps.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("seconds", None)
    return last.state["files"], lines


@pytest.fixture(scope="module")
def undisturbed(workplace: Path) -> tuple[dict, list]:
    ended = run(workplace, "undisturbed", "straight through")
    assert ended.returncode == 0, ended.stderr
    return outcome(workplace, "undisturbed")


@pytest.mark.parametrize("mode", ["kill in mid-epoch", "kill during a checkpoint"])
def test_a_killed_run_resumes_to_the_same_bits(workplace: Path, undisturbed: tuple[dict, list], mode: str) -> None:
    killed = run(workplace, mode, mode)
    assert killed.returncode == -signal.SIGKILL
    before = json.loads((checkpoints.newest(workplace / mode) / "state.json").read_text())["step"]
    assert 0 < before < 36
    if mode == "kill during a checkpoint":
        assert list((workplace / mode / "checkpoints").glob(".writing-*")), "it died in the middle of writing"
    resumed = run(workplace, mode, "resume")
    assert resumed.returncode == 0, resumed.stderr
    files, lines = outcome(workplace, mode)
    assert files == undisturbed[0]  # SHA-256 of weights, best weights, optimiser and random states
    assert lines == undisturbed[1]  # no gap, no repetition, the same numbers
    assert [line["step"] for line in lines if line["event"] == "step"] == list(range(1, 37))
    best = [(workplace / name / "model.safetensors").read_bytes() for name in ("undisturbed", mode)]
    assert best[0] == best[1]


def test_a_run_is_not_overwritten(workplace: Path, undisturbed: tuple[dict, list]) -> None:
    again = run(workplace, "undisturbed", "straight through")
    assert again.returncode != 0
    assert "already holds a run: add --resume to continue it, or choose another folder" in again.stderr
    assert outcome(workplace, "undisturbed") == undisturbed


def test_two_processes_have_the_losses_of_one(workplace: Path) -> None:
    """Half the rows each; one batch an epoch has a single sentence, so that one process has none."""
    settings = [
        "decoder.input_dropout=0",
        "decoder.output_dropout=0",
        "training.batch.sentences=359",
        "training.epochs=4",
    ]
    command = ["-m", "textspace", "train", "text.txt", "--config", "recipe.json", "--device", "cpu"]
    command += [word for setting in settings for word in ("--set", setting)]
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def go(launcher: list[str], *more: str) -> None:
        arguments = [sys.executable, *launcher, *command, *more]
        ended = subprocess.run(arguments, cwd=workplace, capture_output=True, text=True, env=environment)
        assert ended.returncode == 0, ended.stderr

    go([], "--out", "one")
    go(several, "--out", "two", "--epochs", "2")
    go(several, "--out", "two", "--epochs", "4", "--resume")
    one, two = (outcome(workplace, name)[1] for name in ("one", "two"))
    assert [line["step"] for line in two] == [line["step"] for line in one]
    assert {line.get("sentences") for line in two} == {359, 1, None}
    for a, b in zip(one, two, strict=True):
        for name in ("loss", "reconstruction", "kl", "gradient", "elbo"):
            if name in a:
                assert b[name] == pytest.approx(a[name], rel=2e-4, abs=1e-6), (name, a["step"])
    assert (
        json.loads((workplace / "two" / "checkpoints" / "step-00000008" / "state.json").read_text())["processes"] == 2
    )
