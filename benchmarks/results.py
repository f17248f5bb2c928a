"""Recorded results: one JSON file per benchmark, with the machine and versions it ran on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from textspace.reproduce.worker import machine

__all__ = ["machine", "record"]

FOLDER = Path(__file__).parent / "results"


def record(name: str, command: str, numbers: dict[str, Any], folder: Path = FOLDER) -> None:
    """Write `name`.json and show it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"command": command, "machine": machine(), **numbers}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))
