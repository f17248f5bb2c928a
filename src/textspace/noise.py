"""Random numbers keyed by what they are for, not drawn from a shared stream.

A number depends on (seed, step, stream name, sentence, sample, element) and on nothing else. So results do not depend
on batch size, on the number of processes, on how often one validates, or on how many numbers somebody else drew; and
a killed run continues with the very numbers it would have used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

import torch
from torch import Tensor

__all__ = ["Noise", "seed_of"]

# SplitMix64 (Steele, Lea and Flood 2014), in two's complement since torch has no arithmetic on uint64.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def seed_of(*parts: object) -> int:
    """A 63-bit seed that depends on all the parts.

    >>> seed_of(1, "plan", 3) == seed_of(1, "plan", 3), seed_of(1, "plan", 3) == seed_of(1, "plan", 4)
    (True, False)
    """
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True)
class Noise:
    """The noise of one forward pass over the sentences `rows_B`.

    Args:
        seed: of the run, or of the evaluation.
        step: the optimisation step; evaluation uses one fixed value.
        rows_B: each sentence's position in the data.
        first_sample: number of the first sample, so that samples can be drawn in chunks.

    >>> rows = torch.tensor([5, 9])
    >>> both = Noise(seed=1, step=0, rows_B=rows).normal("z", (3,), samples=4)
    >>> alone = Noise(seed=1, step=0, rows_B=rows[1:]).normal("z", (3,), samples=4)
    >>> torch.equal(both[:, 1:], alone)
    True
    """

    seed: int
    step: int
    rows_B: Tensor
    first_sample: int = 0

    def after(self, samples: int) -> Noise:
        """The noise of the samples that follow the first `samples`."""
        return replace(self, first_sample=self.first_sample + samples)

    def normal(self, stream: str, shape: tuple[int, ...], samples: int, dtype: torch.dtype | None = None) -> Tensor:
        """Standard normal numbers of shape (samples, sentences, *shape)."""
        return torch.special.ndtri(self.uniform(stream, shape, samples)).to(dtype or torch.get_default_dtype())

    def uniform(self, stream: str, shape: tuple[int, ...], samples: int) -> Tensor:
        """Numbers strictly between 0 and 1, in float64, of shape (samples, sentences, *shape)."""
        bits = self._bits(stream, shape, self.first_sample, samples)
        return _shifted(bits, 12).to(torch.float64).add_(0.5).mul_(2.0**-52)  # exact: never rounds to 0 or 1

    def keep(self, stream: str, shape: tuple[int, ...], drop: float) -> Tensor:
        """True with probability 1 - drop, of shape (sentences, *shape), for all samples of a sentence.

        Where something is dropped, samples of a sentence are compared in one and the same thinned network: were it
        another for each, importance weights would tell lucky networks from unlucky ones and not code from code.
        """
        threshold = min(max(round(drop * 2.0**64) - 2**63, -(2**63)), 2**63 - 1)
        return self._bits(stream, shape)[0] >= threshold

    def keeps(self, stream: str, shape: tuple[int, ...], drop: float) -> Iterator[Tensor]:
        """Like `keep`, again and again with other numbers; there must be an axis.

        A 64-bit number serves for four, each with 16 bits, and sixteen are made at once: a GPU takes longer to be asked
        than to answer.
        """
        threshold, turn = min(round(drop * 2**16) - 2**15, 2**15 - 1), 0
        while True:
            bits = self._bits(f"{stream} {turn}", (shape[0], 4, *shape[1:]))[0]
            kept = bits[..., None].view(torch.int16) >= threshold  # sentences, first axis, 4, others, 4
            for four in kept.unbind(2):
                yield from four.unbind(-1)
            turn += 1

    def _key(self, stream: str) -> int | Tensor:
        """Of all numbers of a stream; on the device where a step is recorded."""
        return seed_of(self.seed, self.step, stream)

    def _bits(self, stream: str, shape: tuple[int, ...], first: int = 0, samples: int = 1) -> Tensor:
        # Elements are numbered with the last axis fastest: more padding adds numbers at the end of a sentence's
        # sequence and changes none before it.
        key, elements = self._key(stream), math.prod(shape)
        bits_SBE = self._bits_of_one_kernel(key, first, samples, elements) if self.rows_B.is_cuda else None
        if bits_SBE is None:
            device = self.rows_B.device
            sample_S1 = torch.arange(first, first + samples, device=device)[:, None]
            row_SB = _mixed(_mixed(self.rows_B[None, :] * _GOLDEN + key) + sample_S1 * _GOLDEN)
            element_E = torch.arange(1, elements + 1, device=device) * _GOLDEN
            bits_SBE = _mixed(row_SB[:, :, None] + element_E)
        return bits_SBE.view(samples, len(self.rows_B), *shape)

    def _bits_of_one_kernel(self, key: int | Tensor, first: int, samples: int, elements: int) -> Tensor | None:
        """The same bits, where Triton works."""
        from textspace import gpu_kernels  # takes a while to load, and is for a GPU only

        constants = _GOLDEN, _FIRST, _SECOND
        return gpu_kernels.tried(
            lambda: gpu_kernels.random_bits(self.rows_B, key, first, samples, elements, constants),
            self.rows_B.device,
        )


def _mixed(x: Tensor) -> Tensor:
    """SplitMix64's finaliser; x is overwritten."""
    x = x.bitwise_xor_(_shifted(x, 30)).mul_(_FIRST)
    x = x.bitwise_xor_(_shifted(x, 27)).mul_(_SECOND)
    return x.bitwise_xor_(_shifted(x, 31))


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift right, filling with zeros (torch fills with the sign)."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)
