"""One run as a file: what to train, how to score it, and whether that was done already."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from textspace import files
from textspace.config import Recipe
from textspace.errors import TextspaceError
from textspace.evaluate.doctor import known_numbers
from textspace.evaluate.examination import validations
from textspace.files import alone_in, write_file
from textspace.reproduce.table import ELSEWHERE
from textspace.token_losses import Precision
from textspace.train import checkpoints
from textspace.train.pretraining import first_phase
from textspace.train.processes import Processes
from textspace.train.resuming import as_first_written, weight_relevant

__all__ = ["NUMBERS", "Job", "alone", "courses", "read_json"]

JOB, NUMBERS = "job.json", "numbers.json"

CURVES = (
    "elbo",
    "dual_elbo",
    "nll",
    "mim",
    "reconstruction",
    "kl",
    "dual_kl",
    "dual_marginal_kl",
    "dual_mi",
    "mi",
    "mi_minibatch",
    "active_units",
    "feature_cosine",
    "hoyer_samples",
    "hoyer_means",
    "marginal_kl",
)
"""What validations measure that is kept, epoch by epoch."""


@dataclass(frozen=True)
class Job:
    """A space to train and score.

    Args:
        recipe: with the seed.
        source: the text to train on, or several.
        samples: of the importance-weighted bound.
        scored_on: the text whose test split is scored, where it is another one.
        label: column of the classes in that, from 1.
        measures: of the test split besides likelihood and posteriors.
        effort: how hard those try, where it is not the usual.
        tasks: folder with the files of tasks.
        score_in: precision of the matrix products behind likelihoods.
        device: "cpu" or "cuda"; by default the GPU where there is one.
        text: digest of all text, where it lies in files.
    """

    recipe: Recipe
    source: str | list[str]
    samples: int
    scored_on: str | None = None
    label: int | None = None
    measures: tuple[str, ...] = ()
    effort: dict[str, int] = field(default_factory=dict)
    tasks: str | None = None
    score_in: Precision = "float32"
    device: str | None = None
    text: str | None = None

    @property
    def scored_source(self) -> str | list[str]:
        return self.scored_on or self.source

    @property
    def digest(self) -> str:
        """Of all of the recipe that decides the weights, but for when to stop."""
        return _digest(weight_relevant(self.recipe))

    @property
    def first_phase(self) -> str | None:
        """Of the first phase that a run begins with: runs for which it is the same share one."""
        if self.recipe.pretrain is None:
            return None
        phase = first_phase(self.recipe)
        return _digest(weight_relevant(phase).but({"training.epochs": phase.training.epochs}))

    def write(self, folder: Path) -> None:
        """Leave the job where a worker finds it.

        What cannot run here, and a folder with a run of another recipe or text, are refused.
        """
        Processes(self.device).check_precision(self.recipe.training.precision)
        with alone(folder):
            self._write(folder)

    def _write(self, folder: Path) -> None:
        if (found := read_json(folder / JOB)) and checkpoints.newest(folder):
            earlier = Job.from_dict(found)
            others = {"with other settings": earlier.digest != self.digest, "on other text": self._differs(found)}
            if other := next((name for name, is_so in others.items() if is_so), None):
                raise TextspaceError(f"{folder} holds a run {other}: {ELSEWHERE}, or remove that one")
        write_file(folder / JOB, json.dumps(self.to_dict(), indent=1).encode())

    @classmethod
    def read(cls, folder: Path) -> Job:
        found = read_json(folder / JOB)
        if not found:
            raise TextspaceError(f"there is no {folder / JOB} that says what to run")
        return cls.from_dict(found)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in asdict(self)} | {"recipe": json.loads(self.recipe.to_json())}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Job:
        try:
            return cls(**data | {"recipe": Recipe.parse(data["recipe"]), "measures": tuple(data["measures"])})
        except (TypeError, LookupError):
            raise TextspaceError(f"a {JOB} is damaged or of another version: remove its folder, or update") from None

    # What was done already

    def is_trained(self, numbers: Mapping[str, Any]) -> bool:
        """Whether a run is the one asked for: of this recipe and text, and it stopped by itself or is as long."""
        if numbers.get("digest") != self.digest or numbers.get("steps_at_most") != self.recipe.training.steps:
            return False
        if self._differs(numbers):
            return False
        trained, most = numbers.get("epochs", 0), numbers.get("epochs_at_most", 0)
        return bool(trained >= self.recipe.training.epochs or trained < most)

    def _differs(self, facts: Mapping[str, Any]) -> bool:
        """Whether something was made of other text; False where either of the two does not say of which."""
        return None not in (self.text, facts.get("text")) and facts["text"] != self.text

    def is_scored(self, numbers: Mapping[str, Any]) -> bool:
        """Whether it was scored with as many samples, as exactly."""
        same = numbers.get("importance_samples"), numbers.get("scored_in", "float32")
        return self.is_trained(numbers) and same == (self.samples, self.score_in)

    def is_done(self, numbers: Mapping[str, Any]) -> bool:
        """Whether everything that is asked for was measured, too."""
        known = {*numbers.get("measures", {}), *numbers.get("not_measured", {})}
        same = not self.measures or numbers.get("effort") == self.effort
        return self.is_scored(numbers) and same and known.issuperset(self.measures)


def alone(folder: Path) -> AbstractContextManager[None]:
    """While nobody else works in the folder of a run, made where there is none."""
    return alone_in(folder, ELSEWHERE)


def _digest(recipe: Recipe) -> str:
    return sha256(as_first_written(recipe.to_json()).encode()).hexdigest()[:16]


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file; nothing where there is none."""
    try:
        found = files.read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TextspaceError(f"cannot read {path}: {error}; remove it to begin anew") from None
    if not isinstance(found, dict):
        raise TextspaceError(f"{path} is not ours: remove it to begin anew")
    return found


def courses(folder: Path) -> dict[str, Any]:
    """What validations of the run in a folder have measured so far, epoch by epoch; nothing where it has no log."""
    lines = [line for line in validations(folder) if {"epoch", "seconds"} <= known_numbers(line).keys()]
    if not lines:
        return {}
    known = [name for name in CURVES if any(name in line for line in lines)]
    return {
        "by_epoch": {name: [_rounded(line.get(name)) for line in lines] for name in known},
        "epoch": [round(line["epoch"], 3) for line in lines],
        "seconds_by_epoch": [round(line["seconds"], 1) for line in lines],
    }


def _rounded(value: Any) -> float | None:
    if not isinstance(value, int | float):
        return None
    return round(value, 4) if math.isfinite(value) else value
