"""The first of two phases: an autoencoder whose encoder the second phase starts from.

It is a run like any other, in a folder of the cache named after all that decides its weights: parts, settings, data and
seed. Whoever asks for the same first phase again finds it there, finished or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from textspace.config import PretrainedEncoder, Recipe
from textspace.data.batching import Mixing
from textspace.model import Model
from textspace.posteriors import POSTERIORS
from textspace.start_values import SCHEME
from textspace.train import checkpoints
from textspace.train.loop import Trained, Trainer
from textspace.train.processes import Processes
from textspace.train.resuming import as_first_written, weight_relevant

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = ["Pretrained", "first_phase", "pretrain"]


def first_phase(recipe: Recipe) -> Recipe:
    """The recipe of the first phase: the same parts and settings, the KL's weight 0, selected by reconstruction."""
    assert recipe.pretrain is not None
    assert recipe.posterior is not None  # the recipe has seen to it
    has_kl = POSTERIORS[recipe.posterior.kind].has_log_prob
    return recipe.but(
        {
            "name": f"{recipe.name}, first phase",
            "about": f"The autoencoder that {recipe.name} starts from.",
            "pretrain": None,
            "objective": {"kind": "elbo", "kl_weight": 0.0} if has_kl else {"kind": "reconstruction"},
            "training.criterion": "reconstruction",
            "training.update": {"kind": "joint"},
            "training.epochs": recipe.pretrain.epochs or recipe.training.epochs,
        }
    )


@dataclass(frozen=True)
class Pretrained:
    """A finished first phase."""

    model: Model
    trained: Trained
    folder: Path
    reused: bool
    """Whether an earlier run had finished it already."""

    def keep(self, model: Model, recipe: Recipe) -> None:
        """Put what the recipe keeps into a fresh model; the rest of it stays as it was initialised."""
        assert recipe.pretrain is not None
        parts = ("encoder.", "pooling.", "posterior.") + (("decoder.",) if recipe.pretrain.keep == "both" else ())
        found = checkpoints.weights(self.model)
        for name, tensor in checkpoints.weights(model).items():
            if name.startswith(parts):
                tensor.copy_(found[name])

    def summary(self) -> dict[str, Any]:
        return asdict(self.trained) | {"reused": self.reused}


def pretrain(
    recipe: Recipe,
    vocabulary: int,
    splits: dict[str, EncodedSplit],
    cache: Path,
    *,
    data: str,
    processes: Processes,
    mixing: Mixing = "all",
    silent: bool = False,
) -> Pretrained:
    """Train the first phase, go on with one that was interrupted, or find it finished.

    Runs that need the same one at the same time wait for each other: the first trains it.
    """
    phase = first_phase(recipe)
    named = weight_relevant(phase).but(
        {"training.epochs": phase.training.epochs, "training.steps": phase.training.steps}
    )
    model = Model(phase, vocabulary)
    facts = [named.model_dump(mode="json"), data, vocabulary, mixing, f"start values {SCHEME}"]
    if isinstance(recipe.encoder, PretrainedEncoder):  # whose name does not say what it has learnt
        facts.append(checkpoints.digest(model))
    known = as_first_written(json.dumps(facts))
    key = sha256(known.encode()).hexdigest()[:24]
    folder = cache / "pretrained" / key
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock", processes):
        trainer = Trainer(
            phase,
            model,
            splits["train"],
            splits["valid"],
            folder,
            data=data,
            processes=processes,
            mixing=mixing,
            silent=silent,
        )
        if checkpoints.newest(folder) is not None:
            trainer.resume()
        before = trainer.step
        trained = trainer.run()
    return Pretrained(model, trained, folder, reused=before == trained.steps)


@contextmanager
def _locked(path: Path, processes: Processes) -> Iterator[None]:
    """One run at a time. The first process holds the lock; the others ask now and then, lest they wait for each other
    longer than the communication between them allows."""
    lock = FileLock(path)
    held = False
    while not processes.any(held):
        if processes.first:
            with suppress(Timeout):
                lock.acquire(timeout=20)
            held = lock.is_locked
    try:
        yield
        processes.wait()
    finally:
        lock.release()
