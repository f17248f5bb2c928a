"""Where new codes come from: around a sentence's own, around the prior's middle, at sentences picked from many."""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapreplace
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from textspace.checks import is_within
from textspace.data.tables import refuse_tables
from textspace.distributions import Delta, draw
from textspace.errors import TextspaceError
from textspace.inputs import check_sentences
from textspace.lengths import Lengths
from textspace.noise import Noise, seed_of
from textspace.progress import track
from textspace.token_codes import TokenCodes
from textspace.types import PaddedCodes, Site

__all__ = [
    "Deviation",
    "check_strength",
    "drawn_lengths",
    "picked",
    "prior_codes",
    "prior_share",
    "prior_token_codes",
    "strayed",
]

Deviation = float | Literal["dim"]
"""Of codes, in deviations of the prior; "dim" is 1 / sqrt(dimensions)."""


def strayed(site: Site, mean_BZ: Tensor, noise: Noise, strength: float | None) -> Tensor:
    """A posterior's samples (samples, sentences, dimensions), `strength` times as far from its mean as they lie.

    So 0 gives the mean, and 10 codes with ten times the posterior's deviation. Without a strength they are the
    samples as drawn. With one, a posterior that is a single point (an autoencoder's) is left by `strength` deviations
    of the prior.
    """
    z_SBZ = site.value_SBZ
    if strength is None:
        return z_SBZ
    if isinstance(site.q, Delta):
        prior = site.p.expand(mean_BZ.shape)
        z_SBZ = mean_BZ + draw(prior, noise, "z", len(z_SBZ)) - prior.mean
    return torch.lerp(mean_BZ.expand_as(z_SBZ), z_SBZ, strength)  # exact at 0 and at 1


FURTHEST = 1_000_000
"""Deviations from the middle: far enough for any use, and no overflow."""


def check_strength(strength: float | None, what: str = "sample") -> None:
    """Refuse what is no strength, and one where nothing is drawn."""
    if strength is None:
        return
    if what != "sample":
        raise TextspaceError(
            f"strength is {strength}, and nothing is drawn that it could move: ask for a sample, or leave strength out"
        )
    if not is_within(strength, 0, FURTHEST):
        raise TextspaceError(f"strength is {strength!r}: give a number from 0 (the mean itself) to {FURTHEST:,}")


def prior_share(deviation: Deviation, dim: int) -> float:
    """A deviation as a number, checked."""
    if isinstance(deviation, str) and deviation == "dim":
        return 1 / math.sqrt(dim)
    if not is_within(deviation, 0, FURTHEST):
        raise TextspaceError(
            f"deviation is {deviation!r}: give a number from 0 to {FURTHEST:,}, or 'dim' for 1 / sqrt(dimensions)"
        )
    return float(deviation)


def prior_codes(prior: Distribution, rows_N: Tensor, deviation: Deviation | None, seed: int) -> Tensor:
    """Codes from the prior of one, (Z,), or of some tokens, (T, Z), each with the noise of its row; or nearer to the
    prior's middle."""
    prior = prior.expand((len(rows_N), *prior.batch_shape))
    codes = draw(prior, Noise(seed, 0, rows_N), "prior", 1)[0]
    return codes if deviation is None else torch.lerp(prior.mean, codes, prior_share(deviation, codes.shape[-1]))


def prior_token_codes(
    prior: Distribution, count: int, deviation: Deviation | None, seed: int, lengths: Lengths, at_once: int = 256
) -> TokenCodes:
    """The same for each token of sentences as long as those of training, start and end included."""
    device, dim = prior.mean.device, prior.batch_shape[-1]
    lengths_N = drawn_lengths(lengths, count, seed) + 2
    codes = TokenCodes(prior.mean.new_empty(int(lengths_N.sum()), dim), lengths_N)
    for start in range(0, count, at_once):
        rows_B = torch.arange(start, min(start + at_once, count), device=device)
        lengths_B = lengths_N[start : start + at_once].to(device)
        longest = int(lengths_B.max())
        values_BTZ = prior_codes(prior.expand((longest, dim)), rows_B, deviation, seed)
        codes[rows_B] = PaddedCodes(values_BTZ, torch.arange(longest, device=device) < lengths_B[:, None])
    return codes


def drawn_lengths(lengths: Lengths, count: int, seed: int) -> Tensor:
    """How many tokens each of so many sentences has, start and end not counted."""
    uniform_N = Noise(seed, 0, torch.arange(count)).uniform("length", (), samples=1)[0]
    return torch.from_numpy(lengths.drawn(uniform_N.numpy()))


def picked(texts: Iterable[str], count: int, seed: int, show_progress: bool = False) -> list[str]:
    """`count` sentences drawn at random with replacement, in one pass and without holding the others.

    Each draw keeps one sentence, and the k-th read takes its place with probability 1 / k. After the k-th, the next
    to do so comes later than the m-th with probability k / m, so it is number floor(k / u) + 1 for a uniform u. A draw
    depends on seed, sentences and its own number, not on `count`.

    >>> five, three = picked(iter(["a", "b", "c"]), 5, seed=0), picked(["a", "b", "c"], 3, seed=0)
    >>> five[:3] == three, set(five) <= {"a", "b", "c"}
    (True, True)
    """
    refuse_tables(texts)
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TextspaceError(f"sentences to sample around cannot be one {type(texts).__name__}: give a list of them")
    held = [""] * count
    due = [(1, which, 0) for which in range(count)]  # a heap: the next to take, by which draw, its turns so far
    if not count:
        return held
    position = 0
    for position, text in enumerate(track(texts, "reading", show_progress), 1):
        while due[0][0] == position:
            _, which, turn = due[0]
            check_sentences([text], first=position)
            held[which] = text
            uniform = (seed_of(seed, "picked", which, turn) + 0.5) / 2**63
            heapreplace(due, (int(position / uniform) + 1, which, turn + 1))
    if not position:
        raise TextspaceError("there is no sentence to sample around: give at least one")
    return held
