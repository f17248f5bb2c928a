"""Small recipes, a tiny corpus, and training on it here and in other processes."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import random
import signal
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from tiny_encoder import tiny_encoder

from textspace.cli import main
from textspace.config import PretrainedEncoder, Recipe
from textspace.data.preparing import Prepared, prepare
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.train import checkpoints, pretraining, updates
from textspace.train.fit import train
from textspace.train.loop import Trainer
from textspace.train.processes import Processes

SMALL = {
    "training.checkpoint_every": 500,  # and at the end of epochs, which are shorter than half a minute here
    "latent.dim": 4,
    "initial.weights": 0.3,
    "training.optimizer": {"kind": "adam", "lr": 0.005},
    "training.epochs": 2,
}
SMALL_RECURRENT = {"embedding": 12, "hidden": 16}
SMALL_ATTENTIVE = {"hidden": 16, "layers": 2, "heads": 2, "feed_forward": 24}
SMALL_DUAL = {"objective.dual.hidden": 16}
SMALL_GATES = {"posterior.hidden": 16}
SHORT_CATCHING_UP = {"training.update.window": 2, "training.update.cap": 3}


def small(recipe: Recipe) -> Recipe:
    """The recipe with tiny networks, and with few steps of the encoder before each of the decoder."""
    changes = SMALL | _small_networks(recipe)
    changes |= SMALL_DUAL if recipe.objective.kind == "dual-kl" else {}
    changes |= SMALL_GATES if recipe.posterior and recipe.posterior.kind == "spike-and-slab" else {}
    changes |= SHORT_CATCHING_UP if recipe.training.update.kind == "aggressive" else {}
    return recipe.but(changes)


def _small_networks(recipe: Recipe) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder)):
        if isinstance(part, PretrainedEncoder):
            changes["encoder.model"] = str(tiny_encoder())
        elif part is not None:
            sizes = SMALL_ATTENTIVE if part.kind == "transformer" else SMALL_RECURRENT
            changes |= {f"{name}.{option}": value for option, value in sizes.items()}
    return changes


SMALL_TRANSFORMER = {"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64, "dropout": 0.0, "norm": "before"}
TOKEN_RECIPE = RECIPES["vat-small"].but(
    {
        **{f"{part}.{option}": value for part in ("encoder", "decoder") for option, value in SMALL_TRANSFORMER.items()},
        "text.tokenizer.size": 295,
        "text.max_tokens": 20,
        "latent.dim": 8,
        "initial.embeddings": 0.6,
        "objective.kl_weight": 0.002,
        "training.optimizer.lr": 0.01,
        "training.batch.sentences": 32,
        "training.criterion": "reconstruction",
        "training.epochs": 12,
        "training.seed": 3,
    }
)
"""A code for every token; learns in four seconds to give most sentences of `short_sentences` back. Some of their words
are one token, and some are several."""


def short_sentences(count: int = 1500) -> list[str]:
    """Sentences of 2 to 4 words."""
    return [" ".join(text.split()[:4]) for text in tiny_sentences(count)]


def tiny_sentences(count: int = 400) -> list[str]:
    """Sentences of 2 to 9 words from a vocabulary of 14."""
    chance = random.Random(7)
    subjects, verbs = ["anna", "bob", "carl", "dora"], ["sees", "likes", "hears"]
    things = ["cats", "dogs", "trees", "birds", "rivers", "songs", "stones"]
    return [
        " ".join([chance.choice(subjects), chance.choice(verbs)] + chance.choices(things, k=chance.randint(0, 7)))
        for _ in range(count)
    ]


def read_for(prepared: Prepared, recipe: Recipe) -> Prepared:
    """The same text with the same tokenizer, and read by the recipe's pretrained encoder where it has one."""
    pretrained = isinstance(recipe.encoder, PretrainedEncoder)
    return prepare(prepared.corpus, recipe, tokenizer=prepared.tokenizer) if pretrained else prepared


def trainer_on(prepared: Prepared, recipe: Recipe, folder: Path, **more: Any) -> Trainer:
    """A trainer as `train` makes it, on the CPU; the first phase of a two-phase recipe is done, beside the folder."""
    splits, size = prepared.encoded.splits, len(prepared.tokenizer)
    more = {"processes": Processes("cpu")} | more
    model = Model(recipe, size)
    if recipe.pretrain:
        first = pretraining.pretrain(recipe, size, splits, folder.parent, data="", silent=True, **more)
        first.keep(model, recipe)
    return Trainer(recipe, model, splits["train"], splits["valid"], folder, silent=True, **more)


def copied(model: Model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in checkpoints.weights(model).items()}


def changed(model: Model, before: dict[str, torch.Tensor]) -> set[str]:
    """Names of the weights of which any bit has changed."""
    return {name for name, tensor in checkpoints.weights(model).items() if not torch.equal(tensor, before[name])}


# Training in processes of their own, which can be killed


class Death(NamedTuple):
    """When a process kills itself with SIGKILL: in a step of a run, or halfway through writing a checkpoint."""

    recipe: str = ""
    step: int = -1
    writing: int = -1


def start(jobs: list[dict[str, Any]], environment: dict[str, str] | None = None, **more: Any) -> BaseProcess:
    """Start a process that trains once for each job, which are arguments of `train`.

    The process is forked from a server that has imported everything: much faster than starting Python each time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["textspace.train.fit", "torch._dynamo"])  # which optimisers import when made
    environment = {"TEXTSPACE_CACHE": os.environ["TEXTSPACE_CACHE"]} | (environment or {})
    process = context.Process(target=_train, args=(jobs, environment), kwargs=more)
    process.start()
    return process


def finish(jobs: list[dict[str, Any]], environment: dict[str, str] | None = None, **more: Any) -> int:
    """Do the same and wait for it; the exit status, -9 for a process that was killed."""
    process = start(jobs, environment, **more)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _train(
    jobs: list[dict[str, Any]], environment: dict[str, str], death: Death | None = None, together: Barrier | None = None
) -> None:
    os.environ |= environment
    torch.set_num_threads(1)
    if death:
        _die_at(death)
    if together:
        _come_to_the_lock(together)
    for job in jobs:
        recipe = Recipe.from_json(job["recipe"])
        train(**job | {"recipe": recipe}, silent=True, curves=False, device="cpu")


def _die_at(death: Death) -> None:
    step, write, written = updates.JointUpdate._step, checkpoints.write_and_sync, [0]

    def dying_step(self: updates.JointUpdate, shard: Any, turn: updates.Turn, moving: Any) -> updates.Step:
        if (self.model.recipe.name, turn.number) == (death.recipe, death.step):
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, shard, turn, moving)

    def dying_write(path: Path, data: bytes) -> None:
        written[0] += path.name == "optimizer.safetensors"
        if written[0] == death.writing:
            path.write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, data)

    updates.JointUpdate._step = dying_step  # type: ignore[method-assign]
    checkpoints.write_and_sync = dying_write


def _come_to_the_lock(together: Barrier) -> None:
    """Nobody takes the lock of a first phase before all have come to it."""

    class Awaited(pretraining.FileLock):  # type: ignore[misc]
        def acquire(self, *arguments: Any, **named: Any) -> Any:
            together.wait(60)
            return super().acquire(*arguments, **named)

    pretraining.FileLock = Awaited  # type: ignore[misc]


@contextlib.contextmanager
def one_warning(text: str) -> Iterator[None]:
    """Check that there is one warning, and that it says this."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [str(each.message) for each in caught] == [text]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, without the times."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def command(*arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process: exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["textspace", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return code, out.getvalue(), err.getvalue()
