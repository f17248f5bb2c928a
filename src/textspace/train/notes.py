"""What is to be said of a text before one learns from it."""

from __future__ import annotations

from collections.abc import Mapping

from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import Prepared
from textspace.evaluate.held_out import sentences_of, shared_note

__all__ = ["notes_on", "unknown_shares"]

TOLD_FROM, TOO_MANY = 0.01, 0.2
"""Shares of unknown tokens that are told, and for which other tokens are advised."""

NAMES = {"train": "training", "valid": "validation", "test": "test"}


def notes_on(prepared: Prepared, learnt_before: str | None = None) -> list[str]:
    """What reading has skipped, what the tokenizer does not know, and what is in the training text too.

    Args:
        prepared: the text.
        learnt_before: sketch of what the space learnt from that training starts from.
    """
    splits = prepared.encoded.splits
    known = [prepared.encoded.contents["train"].sketch.written, *([learnt_before] if learnt_before else [])]
    lines = [*prepared.corpus.report.lines(), *_unknown(unknown_shares(splits))]
    shared = [
        shared_note(name, sentences_of(name, splits[name], prepared.corpus), known)
        for name in ("valid", "test")
        if name in splits
    ]
    return [*lines, *filter(None, shared)]


def unknown_shares(splits: Mapping[str, EncodedSplit]) -> dict[str, float]:
    """Of the tokens of each split that has sentences."""
    return {name: split.unknown_share for name, split in splits.items() if len(split)}


def _unknown(shares: Mapping[str, float]) -> list[str]:
    """
    >>> _unknown({"train": 0.0, "valid": 0.004}), _unknown({"train": 0.001, "valid": 0.03})
    ([], ['unknown are 0.1% of the training and 3.0% of the validation tokens, which flatters likelihoods'])
    """
    if max(shares.values(), default=0.0) < TOLD_FROM:
        return []
    told = [f"{share:.1%} of the {NAMES[name]}" for name, share in shares.items()]
    line = f"unknown are {', '.join(told[:-1])} and {told[-1]} tokens, which flatters likelihoods"
    if max(shares.values()) >= TOO_MANY:
        line += ": text.tokenizer.kind=bpe knows words by their pieces"
    return [line]
