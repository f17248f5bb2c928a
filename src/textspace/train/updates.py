"""Update rules: how one step moves the parameters.

A rule pulls batches through `next_batch`, owns its state, and keeps what a step measured on the device until somebody
fetches it (the aggressive rule looks at its own loss once per window).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from textspace.config import AggressiveUpdate as AggressiveConfig
from textspace.config import AlternatingUpdate as AlternatingConfig
from textspace.config import PretrainedEncoder, RecurrentEncoder, Training
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import DualKl, Objective, Others
from textspace.schedules import Progress, schedule
from textspace.token_losses import tf32_products
from textspace.train.optimizers import Mover
from textspace.train.processes import Processes
from textspace.train.recorded import Numbers, RecordedSteps, Recording
from textspace.train.stream import BatchStream, Shard
from textspace.types import Batch, Terms

__all__ = ["AggressiveUpdate", "AlternatingUpdate", "JointUpdate", "Step", "Turn", "build_update"]

LEAST_GROWTH = 0.01
"""Nats by which mutual information must rise in an epoch to have grown."""

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

    def _step(self, shard: Shard, turn: Turn, moving: list[nn.Parameter]) -> Step:
        """Move some of the parameters along the gradient of the objective."""
        values, weights = self._replayed(shard, turn, moving) or self._computed(shard, turn, moving)
        return Step(self.names, values, weights, shard.sentences, shard.tokens)

    def _computed(self, shard: Shard, turn: Turn, moving: list[nn.Parameter]) -> tuple[Tensor, dict[str, float]]:
        """The values of a step, and the weights of its terms."""
        values = torch.zeros((), device=self.processes.device)
        weights: dict[str, float] = {}
        others = self._others(shard, turn)
        for index, piece in enumerate(shard.pieces):
            piece = piece.to(self.processes.device)
            noise = Noise(self.training.seed, turn.number, piece.rows_B)
            terms, values_here = self._gradients(piece, noise, shard, turn.progress, moving, others[index])
            values, weights = values + values_here, terms.weights
        return self.mover(self.optimizer, moving, values, turn.rate), weights

    def _gradients(
        self,
        piece: Batch,
        noise: Noise,
        shard: Shard,
        progress: Progress,
        moving: list[nn.Parameter],
        others: Others,
        recording: Recording | None = None,
    ) -> tuple[Terms, Tensor]:
        """Add those of a piece to the parameters'; its terms, and its share of the values."""
        with self._resting(moving), self.processes.autocast(self.training.precision):
            passed = self.model(piece, noise, self.objective.samples, self.objective.per_gate)
            terms = self.objective(passed, progress, others)
            weights = recording.weights(list(terms.weights)) if recording is not None else None
            means = terms.means(shard.sentences, shard.parts)
            loss = self._loss(terms, means, weights, piece, shard) * shard.counts
        loss.backward(inputs=moving)
        self.names = ("loss", *means, "gradient")
        return terms, torch.stack([loss, *means.values()]).detach().float() * shard.counts

    @contextmanager
    def _resting(self, moving: list[nn.Parameter]) -> Iterator[None]:
        """Parameters that do not move need no gradients: autograd's own functions would notice, ours would not."""
        moved = set(map(id, moving))
        resting = [parameter for parameter in self.parameters if id(parameter) not in moved]
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

        def step(recording: Recording) -> Tensor:
            batch, noise = recording.batch, recording.noise
            _, values = self._gradients(batch, noise, shard, turn.progress, moving, {}, recording)
            return self.mover(self.optimizer, moving, values, recording.rate)

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


class AggressiveUpdate(JointUpdate):
    """The encoder catches up before each step of the decoder [He et al. 2019].

    While aggressive, the encoder's side takes steps on batches of a stream of its own until its loss per token over a
    window is no longer below that of the window before, or the cap is reached; then the decoder's side takes one step
    on the next batch of the epoch. Each of these is a step of its own, so checkpoints fall inside the loop too. It ends
    for good after the first epoch in which the validation's mutual information has not grown. Codes that tell n
    sentences apart have no more to gain than log n nats: what their estimate still gains by chance is no growth.
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        training: Training,
        processes: Processes,
        config: AggressiveConfig,
        own_stream: BatchStream,
    ) -> None:
        super().__init__(model, objective, training, processes)
        self.config, self.own_stream = config, own_stream
        self.inference, self.generative = model.inference_parameters(), model.generative_parameters()
        self.aggressive = True
        self.information = -math.inf
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

    def take(self, next_batch: NextBatch, turn: Turn) -> Step:
        if not self.aggressive:
            return super().take(next_batch, turn)
        if self._encoder_goes_on():
            step = self._step(self.own_stream.next_batch(), turn, self.inference)
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

    def _encoder_goes_on(self) -> bool:
        if self.inner_steps >= self.config.cap:
            return False
        if self.inner_steps and self.inner_steps % self.config.window == 0:
            window = self.window_loss.item() / self.window_tokens
            if not window < self.best_window:
                return False
            self.best_window = window
            self._begin_window()
        return True

    def end_epoch(self, numbers: Mapping[str, float]) -> str | None:
        if not self.aggressive:
            return None
        before, self.information = self.information, numbers.get("mi", -math.inf)
        if self.information > before + LEAST_GROWTH:
            return None
        self.aggressive = False
        why = (
            f"no longer grows ({before:.2f} nats, now {self.information:.2f})"
            if "mi" in numbers
            else "is not known here"
        )
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


class AlternatingUpdate(JointUpdate):
    """The dual function takes some steps up its bound, then the model takes one down its loss [Fang et al. 2019]."""

    objective: DualKl

    def __init__(
        self, model: Model, objective: DualKl, training: Training, processes: Processes, config: AlternatingConfig
    ) -> None:
        super().__init__(model, objective, training, processes)
        if model.dual is None:
            raise ValueError("the model has no dual function")
        self.config = config
        self.dual_parameters = list(model.dual.parameters())
        self.dual_optimizer = self.mover.optimizer(self.dual_parameters, config.optimizer)
        self.optimizers["dual_optimizer"] = self.dual_optimizer
        self.dual_schedule = schedule(config.optimizer.schedule)

    def take(self, next_batch: NextBatch, turn: Turn) -> Step:
        shard = next_batch()
        encoded = []
        with torch.no_grad():
            for piece in shard.pieces:
                piece = piece.to(self.processes.device)
                noise = Noise(self.training.seed, turn.number, piece.rows_B)
                with self.processes.autocast(self.training.precision):
                    features_BH = self.model.features(piece.encoder, noise)
                    sites = self.model.sites(features_BH, noise, self.objective.samples, piece.encoder)
                encoded.append((features_BH, sites["z"], noise))
        rate = self.config.optimizer.lr * self.dual_schedule(turn.progress)
        norms = []
        for index in range(self.config.dual_steps):
            for features_BH, site, noise in encoded:
                with self.processes.autocast(self.training.precision):
                    bound_B = self.objective.dual(features_BH, site, noise, f"prior draws of dual step {index}")
                (-bound_B.sum() / shard.sentences * shard.counts).backward(inputs=self.dual_parameters)
            nothing = torch.zeros(1, device=self.processes.device)
            norms.append(self.mover(self.dual_optimizer, self.dual_parameters, nothing, rate)[-1])
        step = self._step(shard, turn, self.parameters)
        largest = torch.stack(norms).max()[None]  # not a number where any is not, so that the log finds it
        return replace(step, names=("dual_gradient", *step.names), values=torch.cat([largest, step.values]))


def build_update(
    model: Model, objective: Objective, training: Training, processes: Processes, own_stream: BatchStream
) -> JointUpdate:
    """The rule of the settings; `own_stream` gives batches besides those of the epoch to a rule that wants some."""
    match training.update:
        case AggressiveConfig():
            return AggressiveUpdate(model, objective, training, processes, training.update, own_stream)
        case AlternatingConfig():
            assert isinstance(objective, DualKl)  # the recipe has seen to it
            return AlternatingUpdate(model, objective, training, processes, training.update)
        case _:
            return JointUpdate(model, objective, training, processes)
