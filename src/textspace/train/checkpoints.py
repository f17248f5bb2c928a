"""Checkpoints: safetensors for tensors, JSON for the rest, whole or not there at all.

A run's folder holds `checkpoints/step-00001234/` with `state.json` and one `.safetensors` file per group of tensors.
A checkpoint is written under another name, flushed to the disk and renamed, so a killed process leaves either the old
state or the new one; `state.json` has each file's SHA-256 and its own, so damage done later is noticed. The two newest
are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from textspace.digests import DIGEST, digest_of_json, with_digest
from textspace.errors import TextspaceError
from textspace.files import open_regular, read_json, sync_folder, write_and_sync, write_file

__all__ = [
    "Checkpoint",
    "digest",
    "load_optimizer",
    "load_weights",
    "newest",
    "optimizer_tensors",
    "read",
    "read_tensors",
    "read_tensors_with_digest",
    "weights",
    "write",
    "write_tensors",
]

FORMAT = 1
KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """What was read back: groups of tensors by name, and the rest."""

    folder: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write(run: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Save a checkpoint of the run in folder `run`; on any failure the earlier ones stay as they were."""
    parent = run / "checkpoints"
    final = parent / f"step-{step:08d}"
    partial = parent / f".writing-{final.name}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for leftover in parent.glob(".writing-*"):
            shutil.rmtree(leftover)
        partial.mkdir()
        digests = {}
        for name, group in tensors.items():
            data = _packed(group)
            digests[f"{name}.safetensors"] = sha256(data).hexdigest()
            write_and_sync(partial / f"{name}.safetensors", data)
        whole = {"format": FORMAT, "step": step, "files": digests, **state}
        write_and_sync(partial / "state.json", json.dumps(with_digest(whole), indent=1).encode())
        if final.exists():
            shutil.rmtree(final)
        os.rename(partial, final)
        sync_folder(parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise TextspaceError(
            f"could not write checkpoint {final}: {error.strerror or error}; free some space or choose another folder, "
            f"then resume from {_named(newest(run))}"
        ) from None
    for old in _all(run)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def newest(run: Path) -> Path | None:
    """The folder of the last complete checkpoint."""
    found = _all(run)
    return found[-1] if found else None


def read(run: Path) -> Checkpoint:
    """The last checkpoint of a run, checked."""
    folders = _all(run)
    if not folders:
        raise TextspaceError(f"there is no checkpoint in {run} to go on from: train without --resume, in a new folder")
    folder = folders[-1]
    earlier = folders[-2] if len(folders) > 1 else None
    try:
        state = read_json(folder / "state.json")
        if state["format"] != FORMAT:
            raise ValueError(f"it has format {state['format']} and this version of textspace reads {FORMAT}")
        if state.pop(DIGEST, None) not in (None, digest_of_json(state)):  # the first versions wrote none
            raise ValueError("state.json is not what was written")
        tensors = {}
        for name, expected in state["files"].items():
            data = _bytes(folder / name)
            if sha256(data).hexdigest() != expected:
                raise ValueError(f"{name} is not what was written")
            tensors[Path(name).stem] = load(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        remedy = f"to resume from {earlier}" if earlier else "to train from the start, since there is no earlier one"
        raise TextspaceError(
            f"checkpoint {folder} is damaged or not ours ({error}); remove that folder {remedy}"
        ) from None
    return Checkpoint(folder, tensors, state)


def _bytes(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _all(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step-*"))


def _named(checkpoint: Path | None) -> str:
    return str(checkpoint) if checkpoint else "the start (no checkpoint was written yet)"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replace a file by tensors, as safetensors."""
    write_file(path, _packed(tensors))


def read_tensors(path: Path) -> dict[str, Tensor]:
    return read_tensors_with_digest(path)[0]


def read_tensors_with_digest(path: Path) -> tuple[dict[str, Tensor], str]:
    """Tensors, and the SHA-256 of the file they were read from."""
    try:
        data = _bytes(path)
        return load(data), sha256(data).hexdigest()
    except (OSError, SafetensorError) as error:
        raise TextspaceError(f"cannot read the weights in {path}: {error}") from None


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and lasting buffer by name, shared ones once."""
    lasting = model.state_dict(keep_vars=True)
    names = [name for name, _ in model.named_parameters()] + [name for name, _ in model.named_buffers()]
    return {name: lasting[name].detach() for name in names if name in lasting}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Put weights into a model, or say in one sentence why they do not fit."""
    own = weights(model)
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())[0]
        raise TextspaceError(f"the weights in {where} are of another model: {odd!r} is in only one of the two")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise TextspaceError(
                f"the weights in {where} are of another model: {name!r} has shape {tuple(tensors[name].shape)} there "
                f"and {tuple(tensor.shape)} here"
            )
        tensor.copy_(tensors[name])


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state, each tensor named after its parameter."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        parameter = parameters[name]
        optimizer.state[parameter][key] = value.to(parameter.device)


def digest(model: nn.Module) -> str:
    """SHA-256 of all weights: equal for two runs only when every bit is."""
    total = sha256()
    for name, tensor in sorted(weights(model).items()):
        total.update(name.encode())
        total.update(tensor.cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
