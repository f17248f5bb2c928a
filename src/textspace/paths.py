"""Paths between codes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from textspace.checks import whole_number
from textspace.errors import TextspaceError

__all__ = ["Path", "interpolated"]

Codes = NDArray[np.floating[Any]]
Path = Literal["linear", "spherical"]


def interpolated(a: Codes, b: Codes, steps: int, path: Path = "linear") -> Any:
    """Codes on the way from one to another, both included: a matrix of them.

    A spherical path turns at an even rate from one direction to the other while the length changes evenly.

    Codes with a row for each token go their ways token by token, and a list of matrices comes of it. In between the
    shorter one counts as long as the other, with zeros, the prior's mean, for the tokens that it lacks; the ends are
    themselves.

    >>> interpolated(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 3, "spherical").round(3).tolist()
    [[1.0, 0.0], [0.707, 0.707], [0.0, 1.0]]
    >>> [code.tolist() for code in interpolated(np.array([[2.0], [4.0]]), np.array([[8.0]]), 3)]
    [[[2.0], [4.0]], [[5.0], [2.0]], [[8.0]]]
    """
    steps = whole_number(steps, 2, f"an interpolation has at least its 2 ends, so steps cannot be {steps!r}")
    if path not in ("linear", "spherical"):
        raise TextspaceError(f"there is no path {path!r}: use 'linear' or 'spherical'")
    if np.ndim(a) == 1:
        return _between(a, b, steps, path)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    longest = max(len(a), len(b))
    padded = (np.pad(end, ((0, longest - len(end)), (0, 0))) for end in (a, b))
    by_token = [_between(a_Z, b_Z, steps, path) for a_Z, b_Z in zip(*padded, strict=True)]
    return [a, *np.stack(by_token, axis=1)[1:-1], b]


def _between(a_Z: Codes, b_Z: Codes, steps: int, path: Path) -> Codes:
    a_Z, b_Z = np.asarray(a_Z, np.float64), np.asarray(b_Z, np.float64)
    share_N1 = np.linspace(0, 1, steps)[:, None]
    straight_NZ = (1 - share_N1) * a_Z + share_N1 * b_Z
    length_a, length_b = np.linalg.norm(a_Z), np.linalg.norm(b_Z)
    if path == "linear" or not length_a or not length_b:
        return straight_NZ
    ahead_Z, goal_Z = a_Z / length_a, b_Z / length_b
    aside_Z = goal_Z - (goal_Z @ ahead_Z) * ahead_Z
    if np.linalg.norm(aside_Z) < 1e-6:  # same or opposite directions: there is no one arc
        return straight_NZ
    # An arc in the plane of the two; unlike arccos, arctan2 is exact near its ends too.
    angle = np.arctan2(np.linalg.norm(aside_Z), goal_Z @ ahead_Z)
    aside_Z /= np.linalg.norm(aside_Z)
    turned_NZ = np.cos(share_N1 * angle) * ahead_Z + np.sin(share_N1 * angle) * aside_Z
    turned_NZ *= (1 - share_N1) * length_a + share_N1 * length_b
    turned_NZ[0], turned_NZ[-1] = a_Z, b_Z  # not off by a rounding
    return turned_NZ
