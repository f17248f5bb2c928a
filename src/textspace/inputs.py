"""What users hand in, sentences or codes: checked, and what is wrong with it told in one sentence, once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from textspace.data.encoded import EncodedSplit
from textspace.data.sources import ending
from textspace.data.tables import check_iterable
from textspace.errors import TextspaceError, warn
from textspace.sparse_codes import as_rows, not_finite

__all__ = [
    "Parameters",
    "SparseRows",
    "Troubles",
    "as_tensor",
    "check_sentences",
    "checked_codes",
    "is_by_name",
    "is_text",
    "listed",
    "refuse_parameters",
    "warn",
]

MOSTLY_UNKNOWN = 0.5
"""Sentences with more than this share of unknown words are reported."""

_MADE = re.compile(r"builtin(:\d+)?|hf:\S+|-")
"""Sources that are no files."""

LONGEST_NAME = 1000
"""Characters; more are no name of a file."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def listed(texts: str | Iterable[str]) -> list[str]:
    """One sentence or several as a list."""
    check_iterable(texts)
    return [texts] if isinstance(texts, str) else list(texts)


def is_text(given: Any) -> bool:
    """Whether these are sentences and not codes: the first decides."""
    if isinstance(given, str) or issparse(given):
        return isinstance(given, str)
    several = isinstance(given, Sequence) or getattr(given, "ndim", 0) > 0
    return several and isinstance(next(iter(given), None), str)


def is_by_name(source: Any) -> bool:
    """Whether this is a name, splits by name or a list of names, and not sentences.

    In a list of names all look like one, and one at least is there: then a misspelt one beside it is no sentence.
    """
    if isinstance(source, list | tuple):
        return all(map(_looks_like_a_name, source)) and any(map(_is_there, source))
    return isinstance(source, str | Path | Mapping)


def _looks_like_a_name(given: Any) -> bool:
    """Of a file that can be read or of another source; or there is something of that name."""
    if not isinstance(given, str) or _MADE.fullmatch(given):
        return isinstance(given, str | Path)
    could_be = len(given) < LONGEST_NAME and bool(Path(given).suffix) and ending(Path(given)) is not None
    return could_be or _is_there(given)


def _is_there(given: Any) -> bool:
    if isinstance(given, Path) or _MADE.fullmatch(given):
        return True
    try:
        return os.path.exists(given) or (has_magic(given) and len(given) < LONGEST_NAME and bool(glob(given)))
    except (OSError, ValueError):  # a sentence that cannot be a name
        return False


def check_sentences(texts: Sequence[str], first: int) -> None:
    """Refuse what is not text; `first` is the number of the first sentence."""
    for number, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise TextspaceError(f"sentence {number} is of type {type(text).__name__}: give strings")
        if not text.isascii() and _SURROGATE.search(text):
            raise TextspaceError(f"sentence {number} holds half of a surrogate pair, which is not text: mend it")


@dataclass
class Troubles:
    """What is wrong with the sentences given, counted to be told once."""

    sentences: int = 0
    cut: int = 0
    unknown: int = 0
    encoder_cut: int = 0
    encoder_limit: int | None = None

    def count(self, split: EncodedSplit) -> None:
        counts_N = split.lengths - 2
        self.sentences += len(split)
        self.cut += split.over_long
        self.encoder_cut += split.encoder_cut
        self.encoder_limit = split.encoder_limit or self.encoder_limit
        if not split.has_encoder_tokens:  # a pretrained encoder reads the words that only the decoder does not know
            self.unknown += int((split.unknown_N > MOSTLY_UNKNOWN * counts_N).sum())

    def warn(self, max_tokens: int | None) -> None:
        of_all = f"of {self.sentences:,} sentences"
        if self.cut:
            warn(f"{self.cut:,} {of_all} had more than {max_tokens} tokens and were cut there")
        if self.encoder_cut:
            warn(
                f"{self.encoder_cut:,} {of_all} are longer than the {self.encoder_limit} tokens that the encoder reads"
                ": their codes know nothing of the rest"
            )
        if self.unknown:
            warn(f"{self.unknown:,} {of_all} are mostly words this space does not know: their codes mean little")


class Parameters(NamedTuple):
    """The posterior of each sentence: its mean and standard deviation in every dimension.

    Two arrays; or two lists of them, an array of each sentence's tokens, where every token has a code.
    """

    mean: Any
    deviation: Any


def refuse_parameters(codes: Any) -> None:
    """Refuse what encode gives with what="parameters", whose deviations would pass for codes."""
    if isinstance(codes, Parameters):
        raise TextspaceError("these are means and deviations of codes, and not codes: give .mean of them")


class SparseRows:
    """A sparse matrix that gives dense tensors, slice by slice: the whole of it is never dense unless asked for.

    Args:
        codes: a scipy matrix or array of any format; a vector is one row.
        device, dtype: of the tensors.
    """

    def __init__(self, codes: Any, device: torch.device, dtype: torch.dtype) -> None:
        _refuse_complex(codes.dtype.kind == "c")
        kind = np.float64 if dtype == torch.float64 else np.float32
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is not finite
            self._rows = as_rows(codes).astype(kind, copy=False)
        self._device, self._dtype = device, dtype
        self.shape: tuple[int, int] = self._rows.shape

    def not_finite(self) -> int | None:
        """The first row, counted from 0, that is not all finite."""
        return not_finite(self._rows)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> Tensor:
        return torch.from_numpy(self._rows[which].toarray()).to(self._device, self._dtype)


def checked_codes(codes: Any, dim: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor | SparseRows, bool]:
    """Codes as a matrix whose slices are tensors on the device, and whether they were one vector."""
    refuse_parameters(codes)
    found: Tensor | SparseRows
    try:
        found = SparseRows(codes, device, dtype) if issparse(codes) else as_tensor(codes).to(device, dtype)
    except (TypeError, ValueError, RuntimeError):
        raise TextspaceError(f"these are not codes: give vectors of {dim} numbers") from None
    shape = tuple(codes.shape if issparse(codes) else found.shape)
    one = len(shape) == 1 and shape != (0,)
    if isinstance(found, Tensor):
        found = found.new_empty(0, dim) if shape == (0,) else found[None] if one else found
    if len(found.shape) != 2 or found.shape[1] != dim:
        raise TextspaceError(f"codes of this space have {dim} dimensions and these have shape {shape}")
    row = found.not_finite() if isinstance(found, SparseRows) else _not_finite(found)
    if row is not None:
        raise TextspaceError(f"code {row} holds a number that is not finite (NaN or infinity): mend or drop it")
    return found, one


def as_tensor(codes: Any) -> Tensor:
    """Codes as users hold them, as a dense tensor."""
    if isinstance(codes, Tensor):
        _refuse_complex(codes.is_complex())
        return codes.detach().to_dense()
    if isinstance(codes, list | tuple):
        codes = [code.detach().cpu() if isinstance(code, Tensor) else code for code in codes]
    if any(np.ma.is_masked(part) for part in (codes if isinstance(codes, list) else [codes])):
        raise TextspaceError("these codes hide numbers behind a mask: fill them in, or drop those codes")
    array = np.asarray(codes)
    _refuse_complex(array.dtype.kind == "c")
    # A copy: torch takes neither reversed nor foreign-endian arrays, and complains about read-only ones.
    return torch.from_numpy(np.array(array, np.float64, order="C"))


def _refuse_complex(are_complex: bool) -> None:
    if are_complex:
        raise TextspaceError("these codes are complex numbers: give real ones, such as codes.real")


def _not_finite(codes_NZ: Tensor) -> int | None:
    bad_N = ~codes_NZ.isfinite().all(1)
    return int(bad_N.nonzero()[0]) if bad_N.any() else None
