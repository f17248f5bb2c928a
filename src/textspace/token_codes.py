"""Codes of sentences whose every token has one: end to end, padded a batch at a time, and pooled.

Shape suffixes here: N sentences, T tokens of one, M tokens of all sentences end to end, Z dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from textspace.config import SimplePooling as SimplePoolingConfig
from textspace.encoders import States
from textspace.errors import TextspaceError, nearest
from textspace.inputs import as_tensor, refuse_parameters
from textspace.pooling import SimplePooling
from textspace.types import PaddedCodes

__all__ = ["POOLS", "Pool", "TokenCodes", "arrays", "check_pool", "checked_token_codes", "joined", "pooled", "tensors"]

Pool = Literal["start", "mean", "sum"]
"""One code for a sentence: that of its start token, or the mean or the sum over all its tokens, start and end too."""

POOLS: tuple[Pool, ...] = ("start", "mean", "sum")


@dataclass(frozen=True)
class TokenCodes:
    """Codes of the tokens of N sentences end to end, which a slice gives padded: memory holds no other padding.

    Args:
        values_MZ: a row for each token.
        lengths_N: tokens of each sentence; on the CPU.
    """

    values_MZ: Tensor
    lengths_N: Tensor

    @classmethod
    def of(cls, codes: Sequence[Tensor]) -> TokenCodes:
        """From a matrix of each sentence, a row for each token; at least one sentence."""
        return cls(torch.cat(list(codes)), torch.tensor([len(code_TZ) for code_TZ in codes]))

    @cached_property
    def _starts_N(self) -> Tensor:
        return self.lengths_N.cumsum(0) - self.lengths_N

    def __len__(self) -> int:
        return len(self.lengths_N)

    def __getitem__(self, which: slice) -> PaddedCodes:
        return PaddedCodes.of(self.matrices(which))

    def matrices(self, which: slice = slice(None)) -> list[Tensor]:
        """A matrix (T, Z) of each sentence."""
        spans = zip(self._starts_N[which].tolist(), self.lengths_N[which].tolist(), strict=True)
        return [self.values_MZ[start : start + length] for start, length in spans]

    def __setitem__(self, rows_B: Tensor, codes: PaddedCodes) -> None:
        mask_BT = codes.mask_NT
        starts_B = self._starts_N[rows_B.cpu()].to(mask_BT.device)
        place_BT = starts_B[:, None] + torch.arange(mask_BT.shape[1], device=mask_BT.device)
        self.values_MZ[place_BT[mask_BT]] = codes.values_NTZ[mask_BT]

    def __truediv__(self, by_M1: Tensor) -> TokenCodes:
        return TokenCodes(self.values_MZ / by_M1, self.lengths_N)

    def pooled(self, pool: Pool, at_once: int = 1024) -> Tensor:
        """(N, Z)."""
        parts = [pooled(self[start : start + at_once], pool) for start in range(0, len(self), at_once)]
        return torch.cat([self.values_MZ[:0], *parts])


def pooled(codes: PaddedCodes, pool: Pool) -> Tensor:
    """One code for each sentence, (N, Z).

    >>> padded = PaddedCodes.of([torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0]])])
    >>> [pooled(padded, pool).flatten().tolist() for pool in POOLS]
    [[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]]
    """
    values_NTZ = codes.values_NTZ
    states = States(values_NTZ, values_NTZ[:, 0], codes.mask_NT)
    return SimplePooling(SimplePoolingConfig(kind=pool), values_NTZ.shape[2])(states)


def joined(parts: Sequence[PaddedCodes], pool: Pool) -> list[Tensor]:
    """Codes pooled; of means and deviations, the moments of the pooled codes.

    Given its sentence, the codes of tokens are independent: their variances add up.
    """
    if pool == "start" or len(parts) == 1:
        return [pooled(part, pool) for part in parts]
    means, deviations = parts
    variances = PaddedCodes(deviations.values_NTZ**2, deviations.mask_NT)
    deviation_NZ = pooled(variances, "sum").sqrt()
    return [pooled(means, pool), deviation_NZ if pool == "sum" else deviation_NZ / means.mask_NT.sum(1, keepdim=True)]


def tensors(codes: Tensor | TokenCodes) -> Any:
    """A matrix of sentences' codes as it is, or a list of matrices, one of each sentence's tokens."""
    return codes.matrices() if isinstance(codes, TokenCodes) else codes


def arrays(codes: Tensor | TokenCodes) -> Any:
    """The same as numpy arrays."""
    if isinstance(codes, TokenCodes):
        return [code_TZ.numpy() for code_TZ in TokenCodes(codes.values_MZ.cpu(), codes.lengths_N).matrices()]
    return codes.cpu().numpy()


def check_pool(pool: str | None, is_token_level: bool) -> None:
    """Refuse a pooling that there is not, and one where there is nothing to pool."""
    if pool is None:
        return
    if not is_token_level:
        raise TextspaceError("pool joins the codes of tokens, and in this space a sentence has one code: leave it out")
    if pool not in POOLS:
        raise TextspaceError(f"there is no pool {pool!r}; {nearest(str(pool), POOLS)}")


def checked_token_codes(codes: Any, dim: int, device: torch.device, dtype: torch.dtype) -> tuple[TokenCodes, bool]:
    """Codes of the tokens of several sentences or of one, and whether it was one.

    A matrix is one sentence, whatever it is called in the caller's program: a row for each token. Several are a list
    of matrices, or an array with three axes.
    """
    refuse_parameters(codes)
    one = getattr(codes, "ndim", None) == 2
    if not one and not isinstance(codes, list | tuple) and getattr(codes, "ndim", 0) != 3 and not _is_of_objects(codes):
        raise _not_codes(dim, f"these have shape {tuple(codes.shape)}" if hasattr(codes, "shape") else None)
    matrices: list[Tensor] = []
    for number, code in enumerate([codes] if one else codes):
        try:
            matrix_TZ = as_tensor(code).to(device, dtype)
        except (TypeError, ValueError, RuntimeError):
            raise _not_codes(dim) from None
        if matrix_TZ.dim() != 2 or matrix_TZ.shape[1] != dim:
            raise _not_codes(dim, f"code {number} has shape {tuple(matrix_TZ.shape)}")
        if not len(matrix_TZ):
            raise TextspaceError(f"code {number} has no token: every sentence has at least a start and an end")
        if not matrix_TZ.isfinite().all():
            raise TextspaceError(f"code {number} holds a number that is not finite (NaN or infinity): mend or drop it")
        matrices.append(matrix_TZ)
    if not matrices:
        return TokenCodes(torch.empty(0, dim, device=device, dtype=dtype), torch.empty(0, dtype=torch.long)), one
    return TokenCodes.of(matrices), one


def _is_of_objects(codes: Any) -> bool:
    return isinstance(codes, np.ndarray) and codes.dtype == object and codes.ndim == 1


def _not_codes(dim: int, but: str | None = None) -> TextspaceError:
    wanted = f"a code of this space is a matrix with a row of {dim} numbers for each token"
    return TextspaceError(
        f"{wanted}, and {but}: give a list of such matrices, which encode gives without pool"
        if but
        else f"these are not codes: {wanted}"
    )
