"""Steps on a GPU that are recorded once for each shape of batch, and replayed.

A step of a small model is hundreds of small kernels, and the host takes longer to ask for them than the GPU to run
them. A recorded step (a CUDA graph) is asked for once. What changes from step to step lies in one buffer on the device
that each replay reads: token ids, lengths, rows, the keys of the noise, the weights of the terms and the learning rate.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from textspace.data.tokenizers import PAD
from textspace.noise import Noise, seed_of
from textspace.types import Batch, View

__all__ = ["Numbers", "RecordedSteps", "Recording"]

EAGER = 2
"""Steps of a shape that run as they are before one is recorded: libraries set themselves up in them."""
LONGEST = 512
"""Tokens of the longest sentence of a batch that is recorded: tables of positions may be made anew beyond."""
STREAMS, FLOATS = 64, 16
"""Places for keys and for numbers."""


@dataclass(frozen=True)
class Numbers:
    """What schedules say of a step: its number, the learning rate and the weights of terms by name."""

    step: int
    rate: float
    weights: Mapping[str, float]


@dataclass(frozen=True)
class _StreamKeys:
    """Keys of noise on the device, a place for each stream in the order in which they are first asked for."""

    keys_K: Tensor
    streams: list[str] = field(default_factory=list)

    def of(self, stream: str) -> Tensor:
        if stream not in self.streams:
            if len(self.streams) == len(self.keys_K):
                raise RuntimeError(f"more than {len(self.keys_K)} streams of noise")
            self.streams.append(stream)
        return self.keys_K[self.streams.index(stream)]


@dataclass(frozen=True)
class _RecordedNoise(Noise):
    """Noise whose keys are read from the device."""

    keys: _StreamKeys | None = None

    def _key(self, stream: str) -> Tensor:
        assert self.keys is not None
        return self.keys.of(stream)


@dataclass
class Recording:
    """What a step works on while it is recorded: all of it lies where replays will look."""

    batch: Batch
    noise: Noise
    rate: Tensor
    _floats_F: Tensor
    names: list[str] = field(default_factory=list)
    """Of the terms that have a weight, once they are known."""

    def weights(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Places of the weights of these terms."""
        if len(names) >= len(self._floats_F):
            raise RuntimeError(f"more than {len(self._floats_F)} terms")
        self.names = list(names)
        return {name: self._floats_F[index + 1] for index, name in enumerate(names)}


Step = Callable[[Recording], Tensor]


@dataclass(frozen=True)
class _Replayed:
    graph: torch.cuda.CUDAGraph
    buffer: Tensor
    values: Tensor
    recording: Recording
    streams: list[str]


class RecordedSteps:
    """Replays steps of shapes that it has seen often enough.

    Args:
        device: a GPU.
        seed: of the noise.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device, self.seed = device, seed
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._replayed: dict[tuple[object, ...], _Replayed] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def __call__(
        self, batch: Batch, step: Step, numbers: Callable[[Sequence[str]], Numbers], kind: object
    ) -> tuple[Tensor, Numbers] | None:
        """The values of a step over a batch on the host, recorded before if need be; None where it is yet to run as it
        is.

        Args:
            batch: encoder and decoder read the same ids.
            step: the whole step, from what it works on to the values it measures; runs once for each shape.
            numbers: the step's numbers, given the names of the terms that have a weight.
            kind: steps that are not alike have others.
        """
        places = _rounded_up(batch.decoder.ids_BT.shape[1])
        shape = kind, len(batch), places
        self._seen[shape] += 1
        if self._seen[shape] <= EAGER or places > LONGEST:
            return None
        if shape not in self._replayed:
            self._replayed[shape] = self._recorded(batch, places, step)
        found = self._replayed[shape]
        given = numbers(found.recording.names)
        packed = _packed(batch, places, given, [seed_of(self.seed, given.step, stream) for stream in found.streams])
        found.buffer.copy_(torch.from_numpy(packed).pin_memory(), non_blocking=True)
        found.graph.replay()
        return found.values.clone(), given

    def _recorded(self, batch: Batch, places: int, step: Step) -> _Replayed:
        count = len(batch)
        sizes = count * places, count, count, STREAMS, FLOATS
        # What the first run reads must be sound too: there are kernels that look at ids.
        nothing = _packed(batch, places, Numbers(0, 0.0, {}), [])
        buffer = torch.from_numpy(nothing).pin_memory().to(self.device, non_blocking=True)
        ids, lengths_B, rows_B, keys_K, bits_F = buffer.split(sizes)
        nowhere = torch.empty(0)  # lengths on the host would be those of this batch for ever
        view = View(ids.view(count, places), nowhere, given_lengths_B=lengths_B)
        keys = _StreamKeys(keys_K)
        noise = _RecordedNoise(self.seed, 0, rows_B, keys=keys)
        here = torch.cuda.current_stream(self.device)
        graph = torch.cuda.CUDAGraph()
        was_collecting = gc.isenabled()
        gc.disable()  # a tensor of another stream that is freed meanwhile would spoil the recording
        self._stream.wait_stream(here)
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    floats_F = bits_F.view(torch.float64).float()
                    recording = Recording(Batch(view, view, rows_B), noise, floats_F[0], floats_F)
                    values = step(recording)
                finally:
                    graph.capture_end()
        finally:
            if was_collecting:
                gc.enable()
        here.wait_stream(self._stream)
        return _Replayed(graph, buffer, values, replace(recording, batch=None, noise=None), keys.streams)  # type: ignore[arg-type]


def _rounded_up(tokens: int) -> int:
    """Lengths in steps, so that few shapes must be recorded and little is padding.

    >>> [_rounded_up(tokens) for tokens in (2, 21, 64, 65)]
    [4, 24, 64, 72]
    """
    step = 4 if tokens <= 64 else 8
    return -(-tokens // step) * step


def _packed(batch: Batch, places: int, numbers: Numbers, keys: Sequence[int]) -> np.ndarray:
    """All that a replay reads, as whole numbers of 64 bits."""
    ids_BT = batch.decoder.ids_BT.numpy()
    count, tokens = ids_BT.shape
    packed = np.full(count * places + 2 * count + STREAMS + FLOATS, PAD, np.int64)
    packed[: count * places].reshape(count, places)[:, :tokens] = ids_BT
    lengths, rows, streams, floats = np.split(packed[count * places :], np.cumsum([count, count, STREAMS]))
    lengths[:], rows[:] = batch.decoder.lengths_B.numpy(), batch.rows_B.numpy()
    streams[: len(keys)] = keys
    values = [numbers.rate, *numbers.weights.values()]
    floats.view(np.float64)[: len(values)] = values
    return packed
