"""The training loop."""

from __future__ import annotations

import json
import math
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from textspace.config import IwaeObjective, Recipe
from textspace.data.batching import Mixing
from textspace.data.encoded import EncodedSplit
from textspace.errors import TextspaceError
from textspace.evaluate.doctor import State, diagnose
from textspace.evaluate.examination import validations
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.posterior import posterior_statistics
from textspace.model import Model
from textspace.noise import seed_of
from textspace.objectives import build_objective
from textspace.schedules import Progress, schedule
from textspace.train import checkpoints
from textspace.train.log import FETCH_EVERY, Display, NotFiniteError, StepLog
from textspace.train.processes import Processes
from textspace.train.resuming import own_random_states, random_states, weight_relevant
from textspace.train.selection import CRITERIA, Selection
from textspace.train.signals import stop_asked
from textspace.train.stream import BatchStream
from textspace.train.updates import Turn, build_update

__all__ = ["Interrupted", "Trained", "Trainer"]


SHOWN = ("nll", "elbo", "dual_elbo", "mim", "reconstruction", "kl", "dual_kl", "mi", "active_units", "feature_cosine")
"""Numbers of a validation that are displayed."""
UNSAVED_SECONDS, UNSAVED_STEPS = 30, 500
"""How much of a run may be lost when it is killed, where the recipe does not say."""


class Interrupted(Exception):  # noqa: N818 (not an error: the user asked for it)
    """Training was asked to stop and has saved its state; the message says how to go on."""


@dataclass(frozen=True)
class Trained:
    """How a run ended."""

    steps: int
    epochs: int
    seconds: float
    """Wall time of all training up to the stop, resumed parts included."""
    best: float
    """Lowest value of the criterion."""
    best_step: int
    criterion: str
    stopped: str
    """Why it ended."""
    parameters: int
    encoder_updates: int
    decoder_updates: int


class Trainer:
    """Trains a model on one split and selects its weights on another.

    Args:
        recipe: with the objective and all training settings.
        model: its weights are moved in place, and are the best ones when `run` returns.
        train: sentences to learn from.
        valid: sentences to select on.
        folder: where checkpoints, `steps.jsonl` and `model.safetensors` (the best weights so far) go.
        data: fingerprint of the data, stored to refuse resuming on other data.
        processes: the device and the other processes.
        mixing: how several sources share an epoch.
        silent: show nothing.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        train: EncodedSplit,
        valid: EncodedSplit,
        folder: Path,
        *,
        data: str = "",
        processes: Processes | None = None,
        mixing: Mixing = "all",
        silent: bool = False,
    ) -> None:
        self.recipe, self.training = recipe, recipe.training
        self.processes = processes or Processes()
        self.processes.check_precision(self.training.precision)
        self.model = model.to(self.processes.device)
        self.valid, self.folder, self.data = valid, folder, data
        self.silent = silent or not self.processes.first

        def batches(purpose: str) -> BatchStream:
            seed = seed_of(self.training.seed, purpose)
            rank, count = self.processes.rank, self.processes.count
            return BatchStream(train, self.training.batch, seed=seed, mixing=mixing, rank=rank, processes=count)

        self.stream = batches("batches")
        objective = build_objective(recipe, model)
        own_stream = batches("batches of the update rule")
        self.update = build_update(model, objective, self.training, self.processes, own_stream)
        self.rate_schedule = schedule(self.training.optimizer.schedule)
        self.selection = Selection()
        self.best_weights = {name: tensor.clone() for name, tensor in checkpoints.weights(model).items()}
        self.history: list[dict[str, Any]] = []
        """All validations so far."""
        self.diagnosed: State = "healthy"
        """How the codes were when that was last told."""
        self.told = ""
        """What was told of them."""
        self.ended: str | None = None
        """Why the selection rules ended the run."""
        self.step = 0
        self.updates = {"encoder": 0, "decoder": 0}
        """Steps that moved each side of the model."""
        self.seconds = 0.0
        self._saved_at = 0.0
        """Seconds of training at the last checkpoint."""
        self._best_is_unsaved = False
        self._log_bytes = 0
        self._random_states: dict[str, torch.Tensor] = {}

    def run(self) -> Trained:
        """Train to the end; afterwards the model holds its best weights."""
        self.model.train()
        self.display = Display(self.training.epochs, self.silent)
        path = self.folder / "steps.jsonl" if self.processes.first else None
        self.log = StepLog(path, self._log_bytes, self.update.mover.bad_steps)
        self.history = validations(self.folder) if self.step else []
        began = time.monotonic() - self.seconds
        stopped = self._finished()
        try:
            seed = seed_of(self.training.seed, "torch", self.processes.rank)
            with own_random_states(seed, self._random_states), stop_asked(self.display.say) as asked_to_stop:
                while stopped is None:
                    turn = self._turn()
                    step = self.update(self.stream.next_batch, turn)
                    self.step += 1
                    for side in step.moved:
                        self.updates[side] += 1
                    epoch_ends = "decoder" in step.moved and self.stream.at_epoch_end
                    facts = {"event": "step", "step": self.step, "epoch": self.stream.position, "lr": turn.rate}
                    self.log.hold(facts if len(step.moved) > 1 else facts | {"moved": step.moved[0]}, step)
                    interrupted = self.processes.count == 1 and asked_to_stop()
                    if self.step % FETCH_EVERY == 0:
                        self.display.steps(self.log.flush())
                        interrupted = self.processes.any(asked_to_stop())  # all of them stop after the same step
                    self.seconds = time.monotonic() - began

                    if epoch_ends:
                        self._end_epoch()
                    elif self._due(self.training.validate_every):
                        self._validate()
                    self.seconds = time.monotonic() - began
                    stopped = self._finished()
                    if interrupted or stopped or self._save_is_due(epoch_ends):
                        self.save()
                    if interrupted and not stopped:
                        raise Interrupted(f"stopped at step {self.step}; resume with --resume --out {self.folder}")
            if not (self.stream.at_epoch_end and self.update.between_batches):
                self._end_epoch()  # after the checkpoint: who resumes with more steps sees no trace of it
        except NotFiniteError as error:
            last = checkpoints.newest(self.folder)
            raise TextspaceError(
                f"{error}; no weight was changed by it and training stopped: "
                f"{f'the last good checkpoint is {last}' if last else 'there is no checkpoint yet'}; "
                "try a lower training.optimizer.lr or training.clip"
            ) from None
        finally:
            self.display.close()
            self._save_best()
            self.log.close()
        checkpoints.load_weights(self.model, self.best_weights, "memory")
        return self._summary(stopped)

    def seconds_per_step(self, steps: int) -> float:
        """Time a few steps, the first ones apart: for an estimate before training, since they move the weights."""
        marks = []
        for count in (2, steps):
            for _ in range(count):
                self.update(self.stream.next_batch, Turn(0, Progress(0, 0.0), 0.0)).values.tolist()
            marks.append(time.monotonic())
        return (marks[1] - marks[0]) / steps

    def rate(self, progress: Progress) -> float:
        """The learning rate now: base, schedule, decays."""
        return self.training.optimizer.lr * self.rate_schedule(progress) * self.selection.rate(self.training)

    def _turn(self) -> Turn:
        limits = [(self.step, self.training.steps), (self.stream.position, self.training.epochs)]
        run = max(done / limit for done, limit in limits if limit is not None)
        progress = Progress(self.updates["decoder"], self.stream.position, min(run, 1.0))
        return Turn(self.step, progress, self.rate(progress))

    def _due(self, every: int | None) -> bool:
        return every is not None and self.step % every == 0

    def _save_is_due(self, epoch_ends: bool) -> bool:
        """Every so many steps and at the end of epochs; or after a time, which several processes cannot agree on."""
        if self.training.checkpoint_every is None and self.processes.count == 1:
            return self.seconds - self._saved_at > UNSAVED_SECONDS
        return epoch_ends or self._due(self.training.checkpoint_every or UNSAVED_STEPS)

    def _finished(self) -> str | None:
        if self.ended:
            return self.ended
        if self.training.steps is not None and self.step >= self.training.steps:
            return f"{self.training.steps} steps done"
        if (epochs := self.stream.epoch + self.stream.at_epoch_end) >= self.training.epochs:
            return f"{epochs} {'epoch' if epochs == 1 else 'epochs'} done"
        return None

    def _end_epoch(self) -> None:
        """Validate, say how the codes are when that has changed, and do what the selection rules say."""
        numbers = self._validate()
        if told := self.log.passed_over():
            self.display.say(told)
        diagnosis = diagnose(numbers, self.recipe, self.history[:-1], self.stream.position)
        if diagnosis.state not in (self.diagnosed, "unknown") and self.stream.epoch > 0:
            self.display.say(f"doctor, after epoch {self.stream.position:g}: {diagnosis}")
            self.diagnosed, self.told = diagnosis.state, str(diagnosis)
        epoch = self.stream.epoch + 1
        verdict = self.selection.judge(self._criterion(numbers), epoch, self.training)
        if verdict.improved:
            self.selection.best_step = self.step
            for name, tensor in checkpoints.weights(self.model).items():
                self.best_weights[name].copy_(tensor)
            self._best_is_unsaved = True
        if verdict.reload_best:
            checkpoints.load_weights(self.model, self.best_weights, "memory")
            self.update.forget()
        if told := self.update.end_epoch(numbers):
            self.display.say(told)
        self.ended = verdict.stop

    def _criterion(self, numbers: dict[str, float]) -> float:
        return numbers["nll" if self.criterion == "iwae" else self.criterion]

    @property
    def criterion(self) -> str:
        """Which validation number selects: the recipe's choice, or what stands for the ELBO where there is none."""
        if self.training.criterion == "reconstruction" or self.model.posterior is None:
            return "nll" if self.model.posterior is None else "reconstruction"
        if self.model.posterior.has_log_prob:
            return self.training.criterion
        return "reconstruction" if self.model.dual is None else "dual_elbo"

    def _validate(self) -> dict[str, float]:
        """Likelihoods of the validation split, with noise of its own that is the same every time."""
        self.display.steps(self.log.flush())  # also makes sure that steps were finite
        share, objective = (self.processes.rank, self.processes.count), self.recipe.objective
        with _without_kernels(self.processes.device):
            measured = likelihood(
                self.model,
                self.valid,
                samples=objective.samples if isinstance(objective, IwaeObjective) and self.criterion == "iwae" else 0,
                seed=seed_of(self.training.seed, "validation"),
                share=share,
                precision=self.training.precision,
            )
        measured = measured.summed_with(self.processes.sum)
        numbers = {name: estimate.value for name, estimate in measured.estimates().items()} | self._codes_measured()
        facts = {"event": "validation", "step": self.step, "epoch": self.stream.position, "seconds": self.seconds}
        self.log.write(facts | numbers)
        self.history.append(facts | numbers)
        shown = "  ".join(f"{name} {_short(numbers[name])}" for name in SHOWN if name in numbers)
        rate = self._turn().rate
        self.display.say(f"epoch {self.stream.position:g}  validation: {shown}  (learning rate {rate:g})")
        return numbers

    def _codes_measured(self) -> dict[str, float]:
        """Whether the posterior has collapsed, and how sparse codes are; measured by the first process for all."""
        if self.model.posterior is None:
            return {}
        names = "mi", "active_units", "token_kl", "feature_cosine", "hoyer_samples", "hoyer_means", "marginal_kl"
        numbers = dict.fromkeys(names, 0.0)
        if self.processes.first:
            statistics = posterior_statistics(self.model, self.valid, seed=seed_of(self.training.seed, "validation"))
            estimates = statistics.estimates() if statistics else {}
            numbers = {name: estimates[name].value if name in estimates else math.nan for name in numbers}
        values = self.processes.sum(
            torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.processes.device)
        )
        return {name: v for name, v in zip(numbers, values.tolist(), strict=True) if not math.isnan(v)}

    # State

    def save(self) -> Path | None:
        """Write the best weights so far, and a checkpoint from which `resume` continues bit for bit."""
        self.display.steps(self.log.flush())
        self.log.sync()  # a checkpoint knows how long the log is: what it has must not be lost with the machine
        self._saved_at = self.seconds
        self._save_best()
        if not self.processes.first:
            return None
        tensors = {
            "model": checkpoints.weights(self.model),
            "best": self.best_weights,
            "random": random_states(),
        }
        for name, optimizer in self.update.optimizers.items():
            tensors[name] = checkpoints.optimizer_tensors(optimizer, self.model)
        state = {
            "epoch": self.stream.epoch,
            "index": self.stream.index,
            "updates": self.updates,
            "update_rule": self.update.state(),
            "selection": self.selection.to_dict(),
            "diagnosed": self.diagnosed,
            "ended": self.ended,
            "seconds": self.seconds,
            "log_bytes": self.log.size,
            "recipe": json.loads(self.recipe.to_json()),
            "data": self.data,
            "processes": self.processes.count,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        return checkpoints.write(self.folder, self.step, tensors, state)

    def _save_best(self) -> None:
        if self._best_is_unsaved and self.processes.first:
            checkpoints.write_tensors(self.folder / "model.safetensors", self.best_weights)
        self._best_is_unsaved = False

    def resume(self) -> None:
        """Continue from the last checkpoint in the folder."""
        found = checkpoints.read(self.folder)
        state = found.state
        if state["data"] != self.data:
            raise TextspaceError(f"{found.folder} was trained on other text: resume with the same source and options")
        stored = Recipe.parse(state["recipe"])
        if weight_relevant(stored) != weight_relevant(self.recipe):
            raise TextspaceError(f"{found.folder} was trained with another recipe: resume with the same settings")
        present = {"processes": self.processes.count, "threads": torch.get_num_threads(), "torch": torch.__version__}
        for what, now in present.items():
            if state[what] != now:
                warnings.warn(
                    f"the checkpoint was written with {what} = {state[what]} and this run has {now}: "
                    "the result will be equal to rounding, not bit for bit",
                    stacklevel=2,
                )
        checkpoints.load_weights(self.model, found.tensors["model"], str(found.folder))
        for name, optimizer in self.update.optimizers.items():
            checkpoints.load_optimizer(optimizer, self.model, found.tensors[name])
        self.update.resume(state["update_rule"])
        self.updates = state["updates"]
        for name, tensor in found.tensors["best"].items():
            self.best_weights[name].copy_(tensor)
        self._random_states = found.tensors["random"]
        self.step = state["step"]
        self.stream.move_to(state["epoch"], state["index"])
        self.selection = Selection(**{"reference": state["selection"]["best"]} | state["selection"])
        self.diagnosed = state["diagnosed"]
        self.ended = state["ended"]
        self.seconds = self._saved_at = state["seconds"]
        self._log_bytes = state["log_bytes"]

    def _summary(self, stopped: str) -> Trained:
        return Trained(
            steps=self.step,
            epochs=self.stream.epoch + self.stream.at_epoch_end,
            seconds=self.seconds,
            best=self.selection.best,
            best_step=self.selection.best_step,
            criterion=CRITERIA[self.criterion],
            stopped=stopped,
            parameters=sum(self.model.parameter_counts().values()),
            encoder_updates=self.updates["encoder"] if self.model.encoder is not None else 0,
            decoder_updates=self.updates["decoder"],
        )


def _without_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Our own kernels take seconds to compile, longer than it takes to score every sentence once without them."""
    if device.type != "cuda":
        return nullcontext()
    from textspace import gpu_kernels

    return gpu_kernels.switched_off()


def _short(value: float) -> str:
    """
    >>> _short(101.234), _short(32.0), _short(-math.inf)
    ('101.23', '32', '-inf')
    """
    return f"{value:.0f}" if value.is_integer() else f"{value:.2f}"
