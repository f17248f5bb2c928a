"""Recorded results: one JSON file per benchmark, with the machine and versions it ran on."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    import torch

    import textspace

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "textspace": textspace.__version__,
    }


def record(name: str, command: str, numbers: dict[str, Any], folder: Path = FOLDER) -> None:
    """Write `name`.json and show it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"command": command, "machine": machine(), **numbers}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))
