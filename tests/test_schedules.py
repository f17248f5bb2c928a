"""Schedules against values computed by hand, in every unit of time."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from helpers import small

from textspace.config import Constant, Cosine, Cyclic, InverseRoot, Linear, Logistic, Recipe
from textspace.data.batching import make_batch
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress, schedule
from textspace.train.loop import Trainer
from textspace.train.processes import Processes

TICK = {"steps": 1, "epochs": 0.25, "run": 1 / 64}
"""How long one tick of the tables below is in each unit: powers of two, so that nothing is rounded."""


def at(unit: str, ticks: int) -> Progress:
    """So many ticks in the unit, with misleading numbers in the others."""
    decoys = {"steps": 7, "epochs": 1.75, "run": 0.875} | {unit: ticks * TICK[unit]}
    return Progress(decoys["steps"], decoys["epochs"], decoys["run"])


@dataclass(frozen=True)
class Case:
    config: Linear | Logistic | Cyclic | Cosine | InverseRoot
    """With times in ticks."""
    values: dict[int, float]


CASES = {
    "linear": Case(
        Linear(start=0.25, end=1.25, over=40),
        {0: 0.25, 1: 0.275, 10: 0.5, 20: 0.75, 30: 1.0, 39: 1.225, 40: 1.25, 41: 1.25, 900: 1.25},
    ),
    "linear, falling": Case(Linear(start=1.0, end=0.5, over=8), {0: 1.0, 2: 0.875, 4: 0.75, 8: 0.5, 9: 0.5, 80: 0.5}),
    "logistic": Case(
        Logistic(midpoint=20, slope=0.1),
        {0: 0.1192029220, 10: 0.2689414214, 20: 0.5, 30: 0.7310585786, 40: 0.8807970780, 60: 0.9820137900},
    ),
    "logistic, falling": Case(
        Logistic(start=3.0, end=1.0, midpoint=4, slope=0.5),
        {0: 3 - 2 * 0.1192029220, 2: 3 - 2 * 0.2689414214, 4: 2.0, 6: 3 - 2 * 0.7310585786, 8: 3 - 2 * 0.8807970780},
    ),
    "cyclic": Case(
        Cyclic(cycles=4, rising=0.5, over=40),
        {0: 0.0, 1: 0.2, 4: 0.8, 5: 1.0, 9: 1.0}
        | {10: 0.0, 12: 0.4, 15: 1.0, 19: 1.0, 20: 0.0, 21: 0.2, 29: 1.0}
        | {30: 0.0, 33: 0.6, 35: 1.0, 39: 1.0, 40: 1.0, 41: 1.0, 50: 1.0, 1000: 1.0},
    ),
    "cyclic, a saw": Case(
        Cyclic(cycles=2, rising=1.0, over=40, start=0.5, end=1.5),
        {0: 0.5, 5: 0.75, 15: 1.25, 19: 1.45, 20: 0.5, 21: 0.55, 39: 1.45, 40: 1.5, 45: 1.5},
    ),
    "cyclic, quick": Case(
        Cyclic(cycles=3, rising=0.25, over=24),
        {0: 0.0, 1: 0.5, 2: 1.0, 7: 1.0, 8: 0.0, 9: 0.5, 16: 0.0, 23: 1.0, 24: 1.0},
    ),
    "cosine": Case(
        Cosine(cycles=2, over=16),
        {
            0: 1.0,
            2: 0.5 + 0.5 * math.sqrt(0.5),
            4: 0.5,
            6: 0.5 - 0.5 * math.sqrt(0.5),
            8: 1.0,
            12: 0.5,
            16: 0.0,
            99: 0.0,
        },
    ),
    "cosine, rising": Case(Cosine(start=0.5, end=1.5, over=8), {0: 0.5, 4: 1.0, 8: 1.5, 9: 1.5}),
    "cosine, in stairs": Case(
        Cosine(cycles=2, over=24, stairs=3),  # cosines of 0, 60 and 120 degrees
        {0: 1.0, 1: 1.0, 3: 1.0, 4: 0.75, 7: 0.75, 8: 0.25, 11: 0.25, 12: 1.0, 16: 0.75, 23: 0.25, 24: 0.0},
    ),
    "inverse root": Case(
        InverseRoot(over=4),
        {0: 0.0, 1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0, 5: 0.8944271910, 9: 2 / 3, 16: 0.5, 64: 0.25, 400: 0.1},
    ),
    "cyclic, once": Case(Cyclic(cycles=1, rising=0.5, over=8), {0: 0.0, 1: 0.25, 2: 0.5, 4: 1.0, 8: 1.0, 9: 1.0}),
}


@pytest.mark.parametrize("unit", TICK)
@pytest.mark.parametrize("name", CASES)
def test_values_equal_those_computed_by_hand(name: str, unit: str) -> None:
    config, tick = CASES[name].config, TICK[unit]
    times = {field: getattr(config, field) * tick for field in ("over", "midpoint") if hasattr(config, field)}
    if isinstance(config, Logistic):
        times["slope"] = config.slope / tick  # per unit of time
    value = schedule(config.model_copy(update={"unit": unit} | times))
    found = {ticks: value(at(unit, ticks)) for ticks in CASES[name].values}
    assert found == pytest.approx(CASES[name].values, abs=1e-9)


@pytest.mark.parametrize("config", [0.7, Constant(value=0.7)])
def test_a_constant_never_changes(config: float | Constant) -> None:
    value = schedule(config)
    assert {value(at(unit, ticks)) for unit in TICK for ticks in (0, 1, 50, 10**6)} == {0.7}


def test_a_logistic_far_from_its_midpoint_is_at_its_ends() -> None:
    steep = schedule(Logistic(start=0.25, end=0.75, midpoint=10**6, slope=100.0, unit="steps"))
    assert [steep(Progress(step, 0.0)) for step in (0, 10**6 - 100, 10**6, 10**6 + 100, 10**12)] == [
        0.25,
        0.25,
        0.5,
        0.75,
        0.75,
    ]


def test_a_logistic_follows_its_formula() -> None:
    config = Logistic(start=0.1, end=0.9, midpoint=3, slope=1.7)
    for epoch in np.linspace(0, 8, 33):
        truth = 0.1 + 0.8 / (1 + math.exp(-1.7 * (epoch - 3)))
        assert schedule(config)(Progress(0, float(epoch))) == pytest.approx(truth, abs=1e-12)


def test_ten_cycles_of_a_run_restart_on_their_very_steps() -> None:
    """The shares 0.1, 0.2, ... of a run cannot be written exactly, and still a cycle begins where one ends."""
    value = schedule(Cyclic(cycles=10, rising=0.5, over=1, unit="run"))
    values = [value(Progress(step, 0.0, step / 1000)) for step in range(1000)]
    assert [step for step in range(1000) if values[step] == 0.0] == list(range(0, 1000, 100))
    np.testing.assert_allclose(values, [min(step % 100 / 50, 1.0) for step in range(1000)], atol=1e-9)


def test_stairs_of_a_run_change_on_their_very_steps() -> None:
    """As cycles do: 0.3 of a run, say, is a little less than three times 0.1."""
    value = schedule(Cosine(cycles=2, over=1, stairs=5, unit="run"))
    values = [value(Progress(step, 0.0, step / 1000)) for step in range(1000)]
    truth = [0.5 + 0.5 * math.cos(math.pi * (step % 500 // 100) / 5) for step in range(1000)]
    np.testing.assert_allclose(values, truth, atol=1e-12)


KINDS = {
    "constant": (["value=0.125"], Constant(value=0.125), 0.125),
    "linear": (["end=0.5", "over=4", "unit=steps"], Linear(end=0.5, over=4, unit="steps"), 0.375),
    "logistic": (["midpoint=3", "end=0.25"], Logistic(midpoint=3, end=0.25), 0.125),
    "cyclic": (["cycles=2", "over=10"], Cyclic(cycles=2, over=10), 1.0),
    "cosine": (["over=6", "stairs=2"], Cosine(over=6, stairs=2), 0.5),
    "inverse-root": (["over=0.125", "unit=run"], InverseRoot(over=0.125, unit="run"), 0.5),
}
NOW = Progress(step=3, epoch=3.0, run=0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("vae", "objective.kl_weight"),
        ("ivae", "objective.kl_weight"),
        ("wae", "objective.mmd_weight"),
        ("vae", "training.optimizer.schedule"),
    ],
)
def test_every_weight_takes_every_schedule_by_its_path(name: str, path: str, kind: str, tiny, tmp_path) -> None:
    options, config, value = KINDS[kind]
    plain = small(RECIPES[name]).but({path: 1.0})
    recipe: Recipe = plain.with_settings([f"{path}.kind={kind}"] + [f"{path}.{option}" for option in options])
    part, _, field = path.rpartition(".")
    holder = recipe.objective if part == "objective" else recipe.training.optimizer
    assert getattr(holder, field) == config
    assert Recipe.from_json(recipe.to_json()) == recipe
    model = Model(recipe, len(tiny.tokenizer))
    if part == "objective":  # and it is what weighs the term
        batch = make_batch(tiny.encoded.splits["train"], np.arange(3))
        weights = build_objective(recipe, model)(model(batch, Noise(0, 0, batch.rows_B)), NOW).weights
        assert weights.pop("reconstruction") == 1.0
        assert list(weights.values()) == [pytest.approx(value)]
    else:
        splits = tiny.encoded.splits
        trainer = Trainer(recipe, model, splits["train"], splits["valid"], tmp_path, processes=Processes("cpu"))
        assert trainer.rate(NOW) == pytest.approx(0.005 * value)
