"""The training loop."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from textspace.config import Recipe
from textspace.data.batching import Mixing
from textspace.data.encoded import EncodedSplit
from textspace.digits import number
from textspace.errors import TextspaceError
from textspace.evaluate.doctor import State, diagnose
from textspace.evaluate.examination import validations
from textspace.model import Model
from textspace.noise import seed_of
from textspace.objectives import build_objective
from textspace.schedules import Progress, schedule
from textspace.train import checkpoints
from textspace.train.log import FETCH_EVERY, Display, NotFiniteError, StepLog
from textspace.train.processes import Processes
from textspace.train.record import write_weights
from textspace.train.resuming import can_continue, own_random_states, random_states
from textspace.train.rules import build_update
from textspace.train.selection import Criterion, Kept, Selection
from textspace.train.signals import stop_asked
from textspace.train.stream import BatchStream
from textspace.train.updates import Turn
from textspace.train.validation import Validation, validate

__all__ = ["Interrupted", "Trained", "Trainer"]


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
    """The criterion's value of the weights that were kept, mostly its lowest."""
    best_step: int
    criterion: str
    stopped: str
    """Why it ended."""
    parameters: int
    encoder_updates: int
    decoder_updates: int
    best_epoch: float
    last: float
    """The criterion's value at the last validation."""


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
        write_best: replaces the file of the best weights.
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
        write_best: Callable[[Path, Mapping[str, torch.Tensor], Kept], None] = write_weights,
    ) -> None:
        self.recipe, self.training = recipe, recipe.training
        self.processes = processes or Processes()
        self.processes.check_precision(self.training.precision)
        self.model = model.to(self.processes.device)
        self.valid, self.folder, self.data, self._write_best = valid, folder, data, write_best
        self.silent = silent or not self.processes.first

        def batches(purpose: str) -> BatchStream:
            seed = seed_of(self.training.seed, purpose)
            rank, count = self.processes.rank, self.processes.count
            return BatchStream(train, self.training.batch, seed=seed, mixing=mixing, rank=rank, processes=count)

        self.stream = batches("batches")
        self.objective = build_objective(recipe, model)
        own_stream = batches("batches of the update rule")
        self.update = build_update(model, self.objective, self.training, self.processes, self.stream, own_stream)
        self.rate_schedule = schedule(self.training.optimizer.schedule)
        self.selection, self.criterion = Selection(), Criterion.of(recipe)
        self.final_weights: dict[str, float] = {}
        """Of the objective's terms when all schedules have ended, as validations take them."""
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
        self._selected_otherwise = False
        """Whether the run that is resumed kept its weights by another criterion."""
        self._log_bytes = 0
        self._random_states: dict[str, torch.Tensor] = {}

    def run(self) -> Trained:
        """Train to the end; afterwards the model holds its best weights."""
        self.model.train()
        self.display = Display(self.training.epochs, self.silent)
        path = self.folder / "steps.jsonl" if self.processes.first else None
        self.log = StepLog(path, self._log_bytes, self.update.mover.bad_steps)
        self.history = validations(self.folder) if self.step else []
        if self._selected_otherwise:
            self._measure_kept_anew()
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
                        self._log_validation(self._measured(), kept=False)
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
        """Validate, keep weights, say how the codes are when that has changed, and do what the selection rules say."""
        numbers = self._measured()
        value = self._criterion(numbers)
        verdict = self.selection.judge(value, self.stream.epoch + 1, self.training)
        kept = verdict.improved or self.criterion.keeps_last
        if kept:
            self.selection.keep(value, self.step, self.stream.position)
            for name, tensor in checkpoints.weights(self.model).items():
                self.best_weights[name].copy_(tensor)
            self._best_is_unsaved = True
        self._log_validation(numbers, kept)
        if told := self.log.passed_over():
            self.display.say(told)
        diagnosis = diagnose(numbers, self.recipe, self.history[:-1], self.stream.position)
        if diagnosis.state not in (self.diagnosed, "unknown") and self.stream.epoch > 0:
            self.display.say(f"doctor, after epoch {self.stream.position:g}: {diagnosis}")
            self.diagnosed, self.told = diagnosis.state, str(diagnosis)
        if verdict.reload_best:
            checkpoints.load_weights(self.model, self.best_weights, "memory")
            self.update.forget()
        if told := self.update.end_epoch(numbers):
            self.display.say(told)
        self.ended = verdict.stop

    def _criterion(self, numbers: Mapping[str, float]) -> float:
        return numbers[self.criterion.number]

    def _measured(self) -> Validation:
        """The numbers of the weights as they are."""
        self.display.steps(self.log.flush())  # also makes sure that steps were finite
        numbers = validate(self.model, self.valid, self.recipe, self.objective, self.processes)
        self.final_weights = numbers.weights
        return numbers

    def _log_validation(self, numbers: Validation, kept: bool) -> None:
        """Write down and show a validation; `kept` says whether its weights are those that are kept now."""
        facts = {"event": "validation", "step": self.step, "epoch": self.stream.position, "seconds": self.seconds}
        line: dict[str, Any] = {**facts, "kept": kept, **numbers}
        self.log.write(line)
        self.history.append(line)
        rule = "as the last" if self.criterion.keeps_last else f"by {self.criterion.number}"
        notes = f"learning rate {self._turn().rate:g}; {'kept' if kept else 'not kept'} {rule}"
        self.display.say(f"epoch {self.stream.position:g}  validation: {numbers.shown()}  ({notes})")

    def _measure_kept_anew(self) -> None:
        """Put the kept weights on the scale of the criterion, where another one kept them."""
        present = {name: tensor.clone() for name, tensor in checkpoints.weights(self.model).items()}
        checkpoints.load_weights(self.model, self.best_weights, "memory")
        self.selection.rescale(self._criterion(self._measured()))
        checkpoints.load_weights(self.model, present, "memory")
        self._selected_otherwise = False
        words = self.criterion.words(self.training, self.final_weights)
        self.display.say(
            f"from here on weights are kept by another criterion than before: {words}; "
            f"those kept so far have {number(self.selection.kept)}"
        )

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
            "criterion": self.criterion.key,
            "final_weights": self.final_weights,
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
            kept = self.kept()
            self._write_best(self.folder / "model.safetensors", self.best_weights, kept)
        self._best_is_unsaved = False

    def kept(self) -> Kept:
        """Which weights are kept, and what their validation measured."""
        chosen = self.selection
        numbers = next((line for line in self.history if line.get("step") == chosen.best_step), {})
        words = self.criterion.words(self.training, self.final_weights)
        return Kept(chosen.best_step, chosen.best_epoch, words, chosen.kept, numbers)

    def resume(self) -> None:
        """Continue from the last checkpoint in the folder."""
        found = checkpoints.read(self.folder)
        state = found.state
        if state["data"] != self.data:
            raise TextspaceError(f"{found.folder} was trained on other text: resume with the same source and options")
        stored = Recipe.parse(state["recipe"])
        if not can_continue(stored, self.recipe):
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
        self.selection = Selection.of(state["selection"])
        self._selected_otherwise = state.get("criterion", Criterion.of_first_versions(stored)) != self.criterion.key
        self.final_weights = state.get("final_weights", {})
        self.diagnosed = state["diagnosed"]
        self.ended = state["ended"]
        self.seconds = self._saved_at = state["seconds"]
        self._log_bytes = state["log_bytes"]

    def _summary(self, stopped: str) -> Trained:
        return Trained(
            steps=self.step,
            epochs=self.stream.epoch + self.stream.at_epoch_end,
            seconds=self.seconds,
            best=self.selection.kept,
            best_step=self.selection.best_step,
            criterion=self.criterion.words(self.training, self.final_weights),
            stopped=stopped,
            parameters=sum(self.model.parameter_counts().values()),
            encoder_updates=self.updates["encoder"] if self.model.encoder is not None else 0,
            decoder_updates=self.updates["decoder"],
            best_epoch=self.selection.best_epoch,
            last=self.selection.last,
        )
