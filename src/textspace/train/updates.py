"""Update rules: how one step moves the parameters. Here is the plain one, which the others extend.

A rule pulls batches through `next_batch`, owns its state, and keeps what a step measured on the device until somebody
fetches it (the aggressive rule looks at its own loss once per window).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from textspace.config import PretrainedEncoder, RecurrentEncoder, Training
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import Objective, Others
from textspace.schedules import Progress
from textspace.token_losses import tf32_products
from textspace.train.optimizers import Mover
from textspace.train.processes import Processes
from textspace.train.recorded import Numbers, RecordedSteps, Recording
from textspace.train.stream import Shard
from textspace.types import Batch, Terms

__all__ = ["JointUpdate", "NextBatch", "Step", "Turn"]

NextBatch = Callable[[], Shard]


@dataclass(frozen=True)
class Step:
    """What one step measured: `values` on the device, one for each of `names`."""

    names: tuple[str, ...]
    values: Tensor
    weights: dict[str, float]
    sentences: int
    tokens: int
    moved: tuple[str, ...] = ("encoder", "decoder")
    """Which sides of the model it moved."""


@dataclass(frozen=True)
class Turn:
    """When a step happens: the steps of all kinds before it (which key its noise), how far schedules have come, and
    the learning rate."""

    number: int
    progress: Progress
    rate: float


class JointUpdate:
    """Encoder and decoder move together along one gradient."""

    def __init__(self, model: Model, objective: Objective, training: Training, processes: Processes) -> None:
        self.model, self.objective, self.training, self.processes = model, objective, training, processes
        dual = {id(parameter) for parameter in model.dual.parameters()} if model.dual is not None else set()
        self.parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in dual]
        self.mover = Mover(training, processes)
        self.optimizer = self.mover.optimizer(self.parameters, training.optimizer)
        self.names: tuple[str, ...] = ()
        """Of the values that a step measures."""
        self.optimizers = {"optimizer": self.optimizer}
        """All there are, by the name their state is saved under."""
        self.recorded = RecordedSteps(processes.device, training.seed) if self._can_record() else None

    def __call__(self, next_batch: NextBatch, turn: Turn) -> Step:
        """One step of the loop, in the precision of the settings."""
        with tf32_products(self.training.precision == "tf32"):
            return self.take(next_batch, turn)

    def take(self, next_batch: NextBatch, turn: Turn) -> Step:
        """What the rule does in one step."""
        return self._step(next_batch(), turn, self.parameters)

    @property
    def between_batches(self) -> bool:
        """Whether no step was taken since the last batch of the epoch was used up."""
        return True

    def end_epoch(self, numbers: Mapping[str, float]) -> str | None:
        """Told what the validation measured; what it says in return is shown."""
        return None

    def forget(self) -> None:
        """The optimisers' states as before the first step; in place, where recorded steps look for them."""
        for optimizer in self.optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    if isinstance(value, Tensor):
                        value.zero_()

    def state(self) -> dict[str, Any]:
        """All there is to know besides weights and optimisers."""
        return {}

    def resume(self, state: dict[str, Any]) -> None:
        pass

    def clipped(self, moving: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        """Parameters that need gradients in a step that moves some: in groups, the norm of each limited on its own."""
        return [moving]

    def _step(self, shard: Shard, turn: Turn, moving: list[nn.Parameter]) -> Step:
        """Move some of the parameters along the gradient of the objective."""
        values, weights = self._replayed(shard, turn, moving) or self._computed(shard, turn, moving)
        return Step(self.names, values, weights, shard.sentences, shard.tokens)

    def _computed(self, shard: Shard, turn: Turn, moving: list[nn.Parameter]) -> tuple[Tensor, dict[str, float]]:
        """The values of a step, and the weights of its terms."""
        values = torch.zeros((), device=self.processes.device)
        weights: dict[str, float] = {}
        others, groups = self._others(shard, turn), self.clipped(moving)
        needing = list(chain(*groups))
        for index, piece in enumerate(shard.pieces):
            piece = piece.to(self.processes.device)
            noise = Noise(self.training.seed, turn.number, piece.rows_B)
            terms, values_here = self._gradients(piece, noise, shard, turn.progress, needing, others[index])
            values, weights = values + values_here, terms.weights
        return self.mover(self.optimizer, moving, values, turn.rate, groups), weights

    def _gradients(
        self,
        piece: Batch,
        noise: Noise,
        shard: Shard,
        progress: Progress,
        needing: list[nn.Parameter],
        others: Others,
        recording: Recording | None = None,
    ) -> tuple[Terms, Tensor]:
        """Add those of a piece to the parameters'; its terms, and its share of the values."""
        with self._resting(needing), self.processes.autocast(self.training.precision):
            passed = self.model(piece, noise, self.objective.samples, self.objective.per_gate)
            terms = self.objective(passed, progress, others)
            weights = recording.weights(list(terms.weights)) if recording is not None else None
            means = terms.means(shard.sentences, shard.parts)
            loss = self._loss(terms, means, weights, piece, shard) * shard.counts
        loss.backward(inputs=needing)
        self.names = ("loss", *means, "gradient")
        return terms, torch.stack([loss, *means.values()]).detach().float() * shard.counts

    @contextmanager
    def _resting(self, needing: list[nn.Parameter]) -> Iterator[None]:
        """Compute no gradients of other parameters: autograd's own functions would notice, ours would not."""
        needed = set(map(id, needing))
        resting = [parameter for parameter in self.parameters if id(parameter) not in needed]
        for parameter in resting:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in resting:
                parameter.requires_grad_(True)

    def _loss(
        self,
        terms: Terms,
        means: dict[str, Tensor],
        weights: Mapping[str, Tensor] | None,
        piece: Batch,
        shard: Shard,
    ) -> Tensor:
        """The piece's share of the loss; the means are those that are logged, of whole sentences."""
        if self.training.average == "sentences":
            return terms.loss(means, weights)
        per_token = terms.scaled(1 / (piece.decoder.device_lengths_B - 1))
        return per_token.loss(per_token.means(shard.sentences, shard.parts), weights)

    def _can_record(self) -> bool:
        """Steps of one process on a GPU whose parts never ask the host for anything."""
        encoder = self.model.recipe.encoder
        packs = isinstance(encoder, RecurrentEncoder) and encoder.bidirectional
        here = self.processes.count == 1 and self.processes.device.type == "cuda"
        return here and self.training.record_steps and not packs and not isinstance(encoder, PretrainedEncoder)

    def _replayed(self, shard: Shard, turn: Turn, moving: list[nn.Parameter]) -> tuple[Tensor, dict[str, float]] | None:
        """Like `_computed`, by replaying a recorded step; None where there is none yet."""
        if self.recorded is None or len(shard.pieces) > 1:
            return None

        groups = self.clipped(moving)

        def step(recording: Recording) -> Tensor:
            batch, noise, needing = recording.batch, recording.noise, list(chain(*groups))
            _, values = self._gradients(batch, noise, shard, turn.progress, needing, {}, recording)
            return self.mover(self.optimizer, moving, values, recording.rate, groups)

        def numbers(names: Sequence[str]) -> Numbers:
            weights = {name: self.objective.weight(name, turn.progress) or 0.0 for name in names}
            return Numbers(turn.number, turn.rate, weights)

        found = self.recorded(shard.pieces[0], step, numbers, id(moving))
        return found and (found[0], dict(found[1].weights))

    @torch.no_grad()
    def _others(self, shard: Shard, turn: Turn) -> list[Others]:
        """For each piece what the objective's batch terms need of the rest of the global batch.

        Noise is keyed, so the codes computed here are the very ones the pieces will have.
        """
        if shard.parts == 1 or not self.objective.batch_terms:
            return [{} for _ in shard.pieces]
        device = self.processes.device
        places = [torch.from_numpy(positions).to(device) for positions in shard.positions]
        whole: dict[str, Tensor] = {}
        for piece, place in zip(shard.pieces, places, strict=True):
            piece = piece.to(device)
            noise = Noise(self.training.seed, turn.number, piece.rows_B)
            with self.processes.autocast(self.training.precision):
                features_BH = self.model.features(piece.encoder, noise)
                samples, per_gate = self.objective.samples, self.objective.per_gate
                sites = self.model.sites(features_BH, noise, samples, piece.encoder, per_gate=per_gate)
                shared = self.objective.shared(sites, noise)
            for name, rows in shared.items():
                nothing = torch.zeros((shard.sentences, *rows.shape[1:]), dtype=rows.dtype, device=device)
                whole.setdefault(name, nothing)[place] = rows * shard.counts
        whole = {name: self.processes.sum(rows) for name, rows in whole.items()}
        rest: list[Others] = []
        for place in places:
            is_other = torch.ones(shard.sentences, dtype=torch.bool, device=device)
            is_other[place] = False
            rest.append({name: rows[is_other] for name, rows in whole.items()})
        return rest
