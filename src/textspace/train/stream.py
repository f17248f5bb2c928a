"""The order of batches in training, and this process's share of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textspace.config import Batches
from textspace.data.batching import Mixing, Plan, make_batch, plan_batches
from textspace.data.encoded import EncodedSplit
from textspace.noise import seed_of
from textspace.types import Batch

__all__ = ["BatchStream", "Shard"]


@dataclass(frozen=True)
class Shard:
    """This process's rows of one global batch, in pieces; the counts are the global batch's."""

    pieces: list[Batch]
    positions: list[np.ndarray]
    """Where in the global batch each piece's rows stand."""
    parts: int
    """Pieces of all processes together."""
    sentences: int
    tokens: int
    """Tokens to predict: words and end tokens."""
    counts: bool
    """False where the batch has fewer rows than there are processes: this one then computes a piece that counts for
    nothing, so that all take part in the exchange."""


class BatchStream:
    """Batches epoch after epoch. Its whole state is (epoch, index): the plan is a function of seed and epoch."""

    def __init__(
        self,
        split: EncodedSplit,
        batches: Batches,
        *,
        seed: int,
        mixing: Mixing = "all",
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.split, self.batches, self.seed, self.mixing = split, batches, seed, mixing
        self.rank, self.processes = rank, processes
        self.move_to(epoch=0, index=0)

    def move_to(self, epoch: int, index: int) -> None:
        self.epoch, self.index = epoch, index
        self.plan: Plan = plan_batches(
            self.split.lengths,
            size=self.batches.sentences,
            tokens=self.batches.tokens,
            seed=self.seed,
            epoch=epoch,
            sources=self.split.sources,
            mixing=self.mixing,
            by_length=self.batches.by_length,
        )

    @property
    def position(self) -> float:
        """Epochs passed, as a fraction."""
        return self.epoch + self.index / len(self.plan)

    @property
    def at_epoch_end(self) -> bool:
        return self.index == len(self.plan)

    def next_batch(self) -> Shard:
        if self.at_epoch_end:
            self.move_to(self.epoch + 1, 0)
        rows = self.plan[self.index]
        self.index += 1
        return self._shard(rows)

    def coming(self) -> Shard:
        """The next batch, which stays the next one."""
        here = self.epoch, self.index, self.plan
        shard = self.next_batch()
        self.epoch, self.index, self.plan = here
        return shard

    def drawn(self, *key: object) -> Shard:
        """A batch of this epoch, chosen by a key: all are equally likely, and each can be drawn again."""
        return self._shard(self.plan[seed_of(self.seed, *key) % len(self.plan)])

    def _shard(self, rows: NDArray[np.int64]) -> Shard:
        """This process's part of a batch."""
        all_positions = np.arange(len(rows))
        mine = all_positions[self.rank :: self.processes]
        counts = len(mine) > 0
        pieces = np.array_split(mine if counts else all_positions[:1], self.batches.pieces)
        positions = [piece for piece in pieces if len(piece)]
        shares = [len(all_positions[rank :: self.processes]) for rank in range(self.processes)]
        return Shard(
            pieces=[make_batch(self.split, rows[piece]) for piece in positions],
            positions=positions,
            parts=sum(min(share, self.batches.pieces) for share in shares),
            sentences=len(rows),
            tokens=int((self.split.lengths[rows] - 1).sum()),
            counts=counts,
        )
