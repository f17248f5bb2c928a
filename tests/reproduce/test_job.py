"""Jobs: what was done already, and what runs can share."""

import json
import math
import os
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import FOLDER
from textspace.errors import TextspaceError
from textspace.recipes import RECIPES
from textspace.reproduce.job import Job, courses, read_json
from textspace.reproduce.report import Reproduction
from textspace.reproduce.run import ready_beside
from textspace.reproduce.tables import table
from textspace.train.fit import PRETRAINING

JOB = Job(RECIPES["vae"], "builtin:9", 10, measures=("melbo",), effort={"decoded": 5})


def numbers(job: Job = JOB, **more: Any) -> dict[str, Any]:
    """Of a run of the job that stopped by itself after 40 epochs."""
    own = {"digest": job.digest, "steps_at_most": None, "epochs_at_most": job.recipe.training.epochs, "epochs": 40}
    scores = {"importance_samples": 10, "effort": job.effort, "measures": {"melbo": {}}, "not_measured": {}}
    return own | scores | more


def asked(**training: Any) -> Job:
    return replace(JOB, recipe=JOB.recipe.but({f"training.{name}": value for name, value in training.items()}))


def test_what_was_done_is_known() -> None:
    assert JOB.is_done(numbers())
    assert not JOB.is_trained({})
    assert JOB.is_scored(numbers(measures={}))
    assert not JOB.is_done(numbers(measures={}))
    assert JOB.is_done(numbers(measures={}, not_measured={"melbo": "it cannot be"}))
    assert not JOB.is_done(numbers(effort={"decoded": 6}))
    assert not JOB.is_scored(numbers(importance_samples=9))


def test_another_recipe_or_seed_is_another_run() -> None:
    assert not asked(seed=1).is_trained(numbers())
    assert not replace(JOB, recipe=RECIPES["vae-anneal"]).is_trained(numbers())


def test_a_run_is_long_enough_when_it_stopped_by_itself_or_has_as_many_epochs() -> None:
    assert asked(epochs=200).is_trained(numbers())  # stopped by itself
    assert asked(epochs=30).is_trained(numbers())
    assert asked(epochs=40).is_trained(numbers(epochs_at_most=40))
    assert not asked(epochs=41).is_trained(numbers(epochs_at_most=40))
    assert not asked(steps=5).is_trained(numbers())


def test_a_first_phase_that_is_as_long_as_the_run_is_another_in_a_longer_run() -> None:
    job = replace(JOB, recipe=RECIPES["pretrain-free-bits"].but({"training.epochs": 40, "pretrain.epochs": None}))
    longer = replace(job, recipe=job.recipe.but({"training.epochs": 41}))
    assert not longer.is_trained(numbers(job, epochs_at_most=40))
    assert longer.digest != job.digest
    own = replace(job, recipe=job.recipe.but({"pretrain.epochs": 5}))
    assert replace(own, recipe=own.recipe.but({"training.epochs": 41})).digest == own.digest


def test_a_file_that_lacks_something_is_one_sentence(tmp_path: Path) -> None:
    assert not JOB.is_trained({"digest": JOB.digest, "steps_at_most": None})
    (tmp_path / "job.json").write_text(json.dumps(JOB.to_dict() | {"new": 1}))
    with pytest.raises(TextspaceError, match=r"job.json is damaged or of another version: remove its folder"):
        Job.read(tmp_path)


def test_a_job_survives_its_file_and_refuses_the_folder_of_another(tmp_path: Path) -> None:
    JOB.write(tmp_path)
    assert Job.read(tmp_path) == JOB
    asked(seed=1).write(tmp_path)  # nothing was trained yet
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    asked(seed=1, epochs=7).write(tmp_path)
    with pytest.raises(TextspaceError, match="holds a run with other settings"):
        JOB.write(tmp_path)
    with pytest.raises(TextspaceError, match=r"there is no .*job.json"):
        Job.read(tmp_path / "nowhere")


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "numbers.json").write_text("{")
    with pytest.raises(TextspaceError, match="remove it to begin anew"):
        read_json(tmp_path / "numbers.json")
    (tmp_path / "numbers.json").write_text('{"a":' * 100_000)
    with pytest.raises(TextspaceError, match="nested too deeply; remove it to begin anew"):
        read_json(tmp_path / "numbers.json")
    os.mkfifo(tmp_path / "job.json")
    with pytest.raises(TextspaceError, match=r"a device or a pipe.*; remove it to begin anew"):
        read_json(tmp_path / "job.json")


def test_of_a_changed_log_only_numbers_are_kept(tmp_path: Path) -> None:
    lines = [
        {"epoch": 1.0, "seconds": 2.0, "kl": 0.5, "elbo": 9.0, "mi": math.inf},
        {"epoch": 2.0, "seconds": 4.0, "kl": "low", "elbo": [8.0], "mi": None},
        {"epoch": "three", "seconds": 6.0, "kl": 0.25},
    ]
    log = "".join(f"{json.dumps({'event': 'validation'} | line)}\n" for line in lines)
    (tmp_path / "steps.jsonl").write_text(log)
    found = courses(tmp_path)
    assert found["epoch"] == [1.0, 2.0]
    assert found["by_epoch"] == {"elbo": [9.0, None], "kl": [0.5, None], "mi": [math.inf, None]}


def test_runs_that_share_a_first_phase_wait_for_the_one_that_trains_it(tmp_path: Path) -> None:
    base = RECIPES["pretrain-free-bits"]
    recipes = {
        "four": base,
        "eight": base.but({"objective.free_bits.target": 8.0}),
        "other seed": base.but({"training.seed": 1}),
        "plain": RECIPES["vae"],
    }
    jobs = {name: replace(JOB, recipe=recipe) for name, recipe in recipes.items()}
    ready = ready_beside(jobs, tmp_path)
    assert not ready("eight", ["four"])
    assert ready("other seed", ["four"])
    assert ready("plain", ["four"])
    assert ready("four", ["plain"])
    (tmp_path / "four").mkdir()
    (tmp_path / "four" / PRETRAINING).touch()
    assert ready("eight", ["four"])


def test_runs_of_versions_that_said_fp32_are_known() -> None:
    """By the digest that such a version left in a file."""
    kept = Reproduction.load(FOLDER / "reproduced_captions-text_small.json")
    words = shlex.split(kept.command)
    changes = [value for option, value in pairwise(words) if option == "--set"]
    captions = table("captions-text")
    recipe = captions.recipe_of(captions.trained["vae"], 0, epochs=16, changes=changes)
    assert recipe.training.precision == "float32"
    assert Job(recipe, "any", samples=50).digest == kept.runs["vae-seed0"]["digest"]
