"""The width of the prior and the printed loss: what a run does and what is kept of it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.prior_width import NOISES, found_in, run_name, train_one
from benchmarks.results import FOLDER
from textspace.space import Space

SMALL = [
    *(
        f"{part}.{option}={value}"
        for part in ("encoder", "decoder")
        for option, value in {"hidden": 16, "layers": 1, "heads": 2, "feed_forward": 24}.items()
    ),
    "text.tokenizer.size=300",
    "latent.dim=4",
]


@pytest.mark.parametrize("noise", NOISES)
def test_a_run_is_one_of_the_recipe_with_the_noise(noise: str, tmp_path: Path) -> None:
    given = argparse.Namespace(source="builtin:120", recipe="vat-small", epochs=1, set=SMALL, out=tmp_path)
    train_one(given, 0.4, noise, 1.0)
    folder = tmp_path / run_name(0.4, noise, 1.0)
    recipe = Space.load(folder).recipe
    assert (recipe.prior.scale, recipe.prior.noise, recipe.objective.kl_weight.end) == (0.4, NOISES[noise], 1.0)
    found = found_in(folder)
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    (line,) = (line for line in lines if line["event"] == "validation")
    (epoch,) = found["epochs"]
    assert epoch["kl"] == round(line["kl" if noise == "posterior" else "kl_printed"], 3)
    assert epoch.get("kl_of_codes") == (None if noise == "posterior" else round(line["kl"], 3))
    assert 0 <= found["exact_copies"] <= 1


def test_recorded_runs_have_the_names_of_today() -> None:
    for path in FOLDER.glob("prior_width_*.json"):
        for name, run in json.loads(path.read_text())["runs"].items():
            scale, noise, weight = (part.split("=")[1] for part in name.split())
            assert run_name(float(scale), noise, float(weight)) == name
            assert noise in NOISES
            assert {"epoch", "step", "reconstruction", "kl", "active_units"} <= run["epochs"][-1].keys()
