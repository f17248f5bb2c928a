"""SHA-256 digests of stored files and records, so that damage is noticed before anything is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from textspace.files import open_regular

__all__ = ["DIGEST", "check_record", "digest_of_file", "digest_of_json", "with_digest"]

DIGEST = "digest"
"""Key of a record's own digest."""


def digest_of_file(path: Path) -> str:
    """Digest of a file's bytes, read in pieces; OSError where it is not a regular file."""
    with open_regular(path) as file:
        return file_digest(file, sha256).hexdigest()


def digest_of_json(value: Any) -> str:
    """Digest of a value as JSON stores it: the same before writing and after reading."""
    try:
        return sha256(json.dumps(value).encode()).hexdigest()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def with_digest(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record to store, with its own digest last.

    >>> check_record(with_digest({"sentences": 3}))
    {'sentences': 3}
    """
    return {**record, DIGEST: digest_of_json(record)}


def check_record(stored: Any) -> dict[str, Any]:
    """The record in what `with_digest` made and JSON stored; ValueError where it is not that."""
    if not isinstance(stored, dict):
        raise ValueError("it is not a JSON object")
    record = {name: value for name, value in stored.items() if name != DIGEST}
    if stored.get(DIGEST) != digest_of_json(record):
        raise ValueError("its digest does not match")
    return record
