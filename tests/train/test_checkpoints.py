import json
import math
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from textspace.errors import TextspaceError
from textspace.train import checkpoints

TENSORS = {"model": {"w": torch.arange(6.0).view(2, 3)}, "random": {"cpu": torch.get_rng_state()}}


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, 7, TENSORS, {"epoch": 1, "best": 0.1, "information": -math.inf, "stream": (1, 2)})
    found = checkpoints.read(tmp_path)
    assert found.state["step"] == 7
    assert (found.state["best"], found.state["information"]) == (0.1, -math.inf)
    assert torch.equal(found.tensors["model"]["w"], TENSORS["model"]["w"])
    assert torch.equal(found.tensors["random"]["cpu"], TENSORS["random"]["cpu"])


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        checkpoints.write(tmp_path, step, TENSORS, {})
    assert [p.name for p in sorted((tmp_path / "checkpoints").iterdir())] == ["step-00000003", "step-00000010"]


@pytest.mark.parametrize(
    "damage",
    ["truncated", "changed", "missing", "a pipe", "not json", "nested", "edited", "foreign", "pickled", "newer"],
)
def test_damage_is_noticed_and_the_one_before_still_usable(tmp_path: Path, damage: str) -> None:
    checkpoints.write(tmp_path, 1, TENSORS, {})
    last = checkpoints.write(tmp_path, 2, TENSORS, {})
    weights, state = last / "model.safetensors", last / "state.json"
    match damage:
        case "truncated":
            weights.write_bytes(weights.read_bytes()[:-5])
        case "changed":
            weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
        case "missing":
            weights.unlink()
        case "a pipe":
            weights.unlink()
            os.mkfifo(weights)
        case "nested":
            state.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
        case "not json":
            state.write_text("{")
        case "edited":
            state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "step"}))
        case "foreign":
            state.write_text(json.dumps(["something", "else"]))
        case "pickled":
            torch.save(TENSORS, weights)
        case "newer":
            state.write_text(json.dumps(json.loads(state.read_text()) | {"format": 99}))
    with pytest.raises(TextspaceError) as told:
        checkpoints.read(tmp_path)
    assert "step-00000002 is damaged or not ours" in str(told.value)
    assert "remove that folder to resume from" in str(told.value)
    for file in last.iterdir():
        file.unlink()
    last.rmdir()
    assert checkpoints.read(tmp_path).state["step"] == 1


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """A limit on file size stands for the full disk: the write fails in the same place with the same kind of error."""
    script = textwrap.dedent(
        """
        import resource, sys, torch
        from pathlib import Path
        from textspace.errors import TextspaceError
        from textspace.train import checkpoints
        run = Path(sys.argv[1])
        tensors = {"model": {"w": torch.zeros(50_000)}}
        checkpoints.write(run, 1, tensors, {})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            checkpoints.write(run, 2, tensors, {})
        except TextspaceError as error:
            print(error)
        try:
            checkpoints.write_tensors(run / "model.safetensors", tensors["model"])
        except TextspaceError as error:
            print(error)
        """
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    told = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    first, second = told.stdout.splitlines()
    assert first.startswith("could not write checkpoint")
    assert "File too large" in first
    assert first.endswith("step-00000001")
    assert second.startswith("could not write")
    assert checkpoints.read(tmp_path).state["step"] == 1
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    assert not list(tmp_path.glob(".writing-*"))


def test_a_checkpoint_of_before_states_were_signed_is_read(tmp_path: Path) -> None:
    state = checkpoints.write(tmp_path, 7, TENSORS, {"epoch": 1}) / "state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "digest"}))
    assert checkpoints.read(tmp_path).state["epoch"] == 1


def test_the_only_checkpoint_that_is_damaged_is_to_be_removed(tmp_path: Path) -> None:
    only = checkpoints.write(tmp_path, 1, TENSORS, {})
    (only / "state.json").write_text("{")
    with pytest.raises(TextspaceError, match="remove that folder to train from the start, since there is no earlier"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize("place", ["a pipe", "a device", "nothing"])
def test_weights_are_read_from_a_file_alone(place: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    if place == "a pipe":
        os.mkfifo(path)
    elif place == "a device":
        path.symlink_to("/dev/zero")
    with pytest.raises(TextspaceError, match="cannot read the weights in"):
        checkpoints.read_tensors(path)


def test_no_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TextspaceError, match="there is no checkpoint in"):
        checkpoints.read(tmp_path)


def test_weights_of_another_model_are_refused() -> None:
    model = torch.nn.Linear(3, 2)
    with pytest.raises(TextspaceError, match="'extra' is in only one of the two"):
        checkpoints.load_weights(model, checkpoints.weights(model) | {"extra": torch.zeros(1)}, "x")
    with pytest.raises(TextspaceError, match=r"'weight' has shape \(3, 3\) there and \(2, 3\) here"):
        checkpoints.load_weights(model, checkpoints.weights(model) | {"weight": torch.zeros(3, 3)}, "x")
