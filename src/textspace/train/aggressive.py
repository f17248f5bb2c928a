"""Aggressive training: the encoder catches up before each step of the decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from textspace.config import AggressiveUpdate as AggressiveConfig
from textspace.config import Training
from textspace.model import Model
from textspace.objectives import Objective
from textspace.train.processes import Processes
from textspace.train.stream import BatchStream, Shard
from textspace.train.updates import JointUpdate, NextBatch, Step, Turn

__all__ = ["AggressiveUpdate"]

LEAST_GROWTH = 0.01
"""Nats by which mutual information must rise in an epoch to have grown."""


class AggressiveUpdate(JointUpdate):
    """The encoder catches up before each step of the decoder [He et al. 2019].

    While aggressive, the encoder's side takes steps until its loss per token over a window is above that of the window
    before, or the cap is reached; then the decoder's side takes one step on the next batch of the epoch. Each of these
    is a step of its own, so checkpoints fall inside the loop too. After the epoch that `config.ends` describes both
    sides move together for good. Codes that tell n sentences apart have no more to gain than log n nats: what their
    estimate still gains by chance is no growth.

    Args:
        stream: batches of the decoder's steps.
        own_stream: batches of the encoder's own steps, where they go through the data in their own order.
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        training: Training,
        processes: Processes,
        config: AggressiveConfig,
        stream: BatchStream,
        own_stream: BatchStream,
    ) -> None:
        super().__init__(model, objective, training, processes)
        self.config, self.stream, self.own_stream = config, stream, own_stream
        self.inference, self.generative = model.inference_parameters(), model.generative_parameters()
        self.aggressive = True
        self.information = 0.0 if config.ends == "fall" else -math.inf
        """Mutual information after the last epoch."""
        self._begin_inner()

    def _begin_inner(self) -> None:
        self.inner_steps = 0
        self.best_window = math.inf
        """Loss per token of the window before, as the loss is averaged."""
        self._begin_window()

    def _begin_window(self) -> None:
        self.window_loss = torch.zeros((), dtype=torch.float64, device=self.processes.device)
        self.window_tokens = 0

    def clipped(self, moving: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        return [self.parameters] if self.config.clip_together else [moving]

    def take(self, next_batch: NextBatch, turn: Turn) -> Step:
        if not self.aggressive:
            return super().take(next_batch, turn)
        if self._encoder_goes_on():
            step = self._step(self._inner_batch(turn), turn, self.inference)
            self.inner_steps += 1
            self.window_loss += step.values[0] * step.sentences
            # Where the loss is an average over tokens already, a sentence counts as one.
            self.window_tokens += step.tokens if self.training.average == "sentences" else step.sentences
            return replace(step, moved=("encoder",))
        self._begin_inner()
        return replace(self._step(next_batch(), turn, self.generative), moved=("decoder",))

    @property
    def between_batches(self) -> bool:
        return self.inner_steps == 0

    def _inner_batch(self, turn: Turn) -> Shard:
        """The batch of the encoder's next step."""
        if self.config.inner_batches == "epochs":
            return self.own_stream.next_batch()
        if not self.inner_steps:
            return self.stream.coming()
        return self.stream.drawn("batch of the encoder's own step", turn.progress.step, self.inner_steps)

    def _encoder_goes_on(self) -> bool:
        if self.inner_steps >= self.config.cap:
            return False
        if self.inner_steps and self.inner_steps % self.config.window == 0:
            window = self.window_loss.item() / self.window_tokens
            if not window <= self.best_window:  # also where it is not a number
                return False
            self.best_window = window
            self._begin_window()
        return True

    def end_epoch(self, numbers: Mapping[str, float]) -> str | None:
        if not self.aggressive:
            return None
        falls = self.config.ends == "fall"
        before, now = self.information, numbers.get("mi_minibatch" if falls else "mi")
        if now is not None:
            self.information = now
            goes_on = now >= before if falls else now > before + LEAST_GROWTH
            if goes_on:
                return None
        self.aggressive = False
        how = "within minibatches fell" if falls else "no longer grows"
        why = "is not known here" if now is None else f"{how} ({before:.2f} nats, now {now:.2f})"
        return f"the mutual information {why}: encoder and decoder move together from here on"

    def state(self) -> dict[str, Any]:
        return {
            "aggressive": self.aggressive,
            "information": self.information,
            "inner_steps": self.inner_steps,
            "best_window": self.best_window,
            "window_loss": self.window_loss.item(),
            "window_tokens": self.window_tokens,
            "stream": [self.own_stream.epoch, self.own_stream.index],
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.aggressive, self.information = state["aggressive"], state["information"]
        self.inner_steps, self.best_window = state["inner_steps"], state["best_window"]
        self.window_loss.fill_(state["window_loss"])
        self.window_tokens = state["window_tokens"]
        self.own_stream.move_to(*state["stream"])
