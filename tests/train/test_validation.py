"""The objective of a validation is the recipe's own, and it decides which weights are kept."""

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences

from textspace import folder as folders
from textspace.config import Recipe, Training
from textspace.data.batching import make_batch
from textspace.divergences import mmd
from textspace.errors import TextspaceError
from textspace.evaluate.examination import History
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.subjects import subject_of
from textspace.model import Model
from textspace.noise import Noise, seed_of
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train import checkpoints, updates
from textspace.train.fit import train
from textspace.train.log import records
from textspace.train.loop import Interrupted, Trainer
from textspace.train.processes import Processes
from textspace.train.selection import Criterion, Selection
from textspace.train.validation import Validation, _Watched, validate

SEED = seed_of(0, "validation")
WARM_UP = {"kind": "linear", "start": 0.0, "end": 0.7, "over": 10, "unit": "epochs"}


def validated(recipe: Recipe, tiny) -> tuple[Validation, Model]:
    model = Model(recipe, len(tiny.tokenizer)).eval()
    found = validate(model, tiny.encoded.splits["valid"], recipe, build_objective(recipe, model), Processes("cpu"))
    return found, model


def of_vae(**changes: Any) -> Recipe:
    return small(RECIPES["vae"]).but(changes)


@pytest.mark.parametrize("weight", [0.3, WARM_UP, {"kind": "cyclic", "end": 0.4}])
def test_the_objective_has_the_final_weights(weight: Any, tiny) -> None:
    found, model = validated(of_vae(**{"objective.kl_weight": weight}), tiny)
    scored = likelihood(model, tiny.encoded.splits["valid"], seed=SEED).estimates()
    final = weight if isinstance(weight, float) else weight["end"]
    assert found["objective"] == pytest.approx(scored["reconstruction"].value + final * scored["kl"].value, rel=1e-6)
    assert found.weights == {"reconstruction": 1.0, "kl": final}


def posterior_of(model: Model, tiny) -> tuple[Any, Any]:
    """Sites and features of the validation sentences, with the noise of a validation."""
    batch = make_batch(tiny.encoded.splits["valid"], np.arange(len(tiny.encoded.splits["valid"])))
    noise = Noise(SEED, 0, batch.rows_B)
    with torch.no_grad():
        return model.sites(model.features(batch.encoder), noise, 1, batch.encoder), noise


@pytest.mark.parametrize("on", ["sentence", "batch"])
def test_the_objective_has_the_threshold_of_free_bits(on: str, tiny) -> None:
    bits = {"target": 2.0, "per": "dimension", "on": on}
    found, model = validated(of_vae(**{"objective.free_bits": bits, "objective.kl_weight": 0.5}), tiny)
    kl_NZ = posterior_of(model, tiny)[0]["z"].kl_BZ.double()
    held = (kl_NZ if on == "sentence" else kl_NZ.mean(0, keepdim=True)).clamp(min=0.5).sum(1).mean().item()
    assert found["kl_free_bits"] == pytest.approx(held, rel=1e-6)
    assert found["objective"] == pytest.approx(found["reconstruction"] + 0.5 * held, rel=1e-6)


def test_the_objective_has_the_price_on_activity(tiny) -> None:
    found, model = validated(of_vae(**{"objective.activity": {"norm": "l1", "weight": 0.25}}), tiny)
    q = posterior_of(model, tiny)[0]["z"].q
    activity = (q.mean.abs() + q.stddev.abs()).sum(1).double().mean().item()
    assert found["activity"] == pytest.approx(activity, rel=1e-6)
    assert found["objective"] == pytest.approx(found["elbo"] + 0.25 * activity, rel=1e-6)


def test_the_objective_has_the_distance_of_all_codes(tiny) -> None:
    recipe = small(RECIPES["wae"]).but({"objective.mmd_weight": 5.0})
    found, model = validated(recipe, tiny)
    sites, noise = posterior_of(model, tiny)
    z_NZ, prior_NZ = sites["z"].value_SBZ[0], sites["z"].prior_draws(noise, "prior draws")[0]
    distance = mmd(z_NZ, prior_NZ, recipe.objective.scales).item()  # fewer sentences than a batch has
    assert found["mmd"] == pytest.approx(distance, abs=1e-5)
    assert found["objective"] == pytest.approx(found["reconstruction"] + 5 * distance, rel=1e-5)


def test_distances_of_many_codes_are_those_of_batches_as_in_training(tiny) -> None:
    """Both are unbiased: over batches and over all codes they agree but for chance."""
    recipe = small(RECIPES["wae"])
    objective = build_objective(recipe, Model(recipe, len(tiny.tokenizer)))
    generator = torch.Generator().manual_seed(1)
    z_NZ, prior_NZ = (torch.randn((3000, 4), generator=generator) for _ in range(2))
    for shift in (0.0, 1.0):
        split = type("Split", (), {"lengths": np.full(3000, 5), "__len__": lambda self: 3000})()
        watched = _Watched(objective, Training(), split, Processes("cpu"))
        rows_N = torch.randperm(3000, generator=generator)
        for rows_B in rows_N.split(700):
            watched._shared["z"].append((rows_B, z_NZ[rows_B] + shift))
            watched._shared["prior"].append((rows_B, prior_NZ[rows_B]))
        found = watched._of_batches({"z": (4,), "prior": (4,)})["mmd"]
        truth = mmd(z_NZ + shift, prior_NZ, recipe.objective.scales).item()
        assert found == pytest.approx(truth, abs=0.03)
        assert (truth > 0.3) == (shift > 0)


def test_the_objective_is_averaged_as_in_training(tiny) -> None:
    found, model = validated(of_vae(**{"training.average": "tokens", "objective.kl_weight": 0.5}), tiny)
    split = tiny.encoded.splits["valid"]
    scored = likelihood(model, split, seed=SEED)
    nats_N = scored.reconstruction_N + 0.5 * scored.kl_N["z"]
    assert found["objective"] == pytest.approx((nats_N / (split.lengths - 1)).mean(), rel=1e-6)


@pytest.mark.parametrize(("name", "number"), [("gru-lm", "nll"), ("iwae", "nll"), ("smim", "mim"), ("svae", "elbo")])
def test_objectives_that_have_a_name_of_their_own(name: str, number: str, tiny) -> None:
    found, _ = validated(small(RECIPES[name]), tiny)
    assert found["objective"] == pytest.approx(found[number], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "function", "form"),
    [
        ("ivae", "posterior", "dual_kl"),
        ("ivae-mi", "aggregated", "dual_marginal_kl"),
    ],
)
def test_a_dual_function_that_fits_badly_is_no_gain(name: str, function: str, form: str, tiny) -> None:
    recipe = small(RECIPES[name])
    model = Model(recipe, len(tiny.tokenizer)).eval()
    with torch.no_grad():
        getattr(model.dual, function).network[-1].bias += 3.0  # exp(v) is then far above v + 1
    found = validate(model, tiny.encoded.splits["valid"], recipe, build_objective(recipe, model), Processes("cpu"))
    assert found[form] < -5
    assert found["objective"] == pytest.approx(found["reconstruction"])


# What it decides


LIGHT = of_vae(
    **{"training.criterion": "objective", "objective.kl_weight": 0.001, "training.epochs": 8, "training.plateau": None}
)
"""Its ELBO at weight 1 is lowest early on, while codes are empty; what it trains on falls to the end."""


def validations_of(trainer: Trainer) -> list[dict[str, Any]]:
    return list(records(trainer.folder / "steps.jsonl", "validation"))


def lowest(lines: list[dict[str, Any]], name: str) -> int:
    return min(lines, key=lambda line: line[name])["step"]


def test_weights_are_kept_by_what_the_recipe_trains_on(trainer_of) -> None:
    trainer = trainer_of(LIGHT)
    trained = trainer.run()
    lines = validations_of(trainer)
    assert trained.best_step == lowest(lines, "objective") > lowest(lines, "elbo")
    assert trained.best == min(line["objective"] for line in lines)
    assert trained.last == lines[-1]["objective"]
    assert (trained.best_epoch, trained.criterion) == (
        trained.best_step / 12,
        "validation objective (reconstruction + 0.001 kl), nats per sentence (lower is better)",
    )
    kept = [line["step"] for line in lines if line["kept"]]
    assert kept[-1] == trained.best_step
    assert all(
        line["kept"] == (line["objective"] == min(e["objective"] for e in lines[: i + 1]))
        for i, line in enumerate(lines)
    )


def test_the_plateau_follows_what_the_recipe_trains_on(trainer_of) -> None:
    trainer = trainer_of(LIGHT.but({"training.plateau": {"patience": 1, "max_decays": 9}}))
    trainer.run()
    objectives = [line["objective"] for line in validations_of(trainer)]
    rates = {math.ceil(line["epoch"]): line["lr"] for line in records(trainer.folder / "steps.jsonl", "step")}
    expected, rate = [], 0.005
    for epoch in range(1, 9):
        expected.append(rate)
        rate *= 0.5 if epoch > 1 and objectives[epoch - 1] >= min(objectives[: epoch - 1]) else 1.0
    assert list(rates.values()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "criterion", "expected"),
    [
        ("default", None, ("objective", "objective", False)),
        ("vat-small", None, ("objective", "objective", False)),
        ("beta-vae", None, ("objective", "objective", False)),
        ("pretrain-free-bits", None, ("elbo", "elbo", False)),
        ("ae", None, ("reconstruction", "reconstruction", False)),
        ("iwae", None, ("iwae", "nll", False)),
        ("iwae", "objective", ("iwae", "nll", False)),
        ("smim", None, ("objective", "objective", False)),
        ("ivae", None, ("objective", "objective", True)),
        ("ivae", "elbo", ("objective", "objective", False)),
        ("hsvae", None, ("objective", "objective", True)),
        ("lstm-lm", None, ("nll", "nll", False)),
        ("lstm-lm", "last", ("nll", "nll", True)),
    ],
)
def test_recipes_keep_weights_by_their_own_rule(name: str, criterion: str | None, expected: Any) -> None:
    recipe = RECIPES[name]
    assert Criterion.of(recipe.but({"training.criterion": criterion}) if criterion else recipe) == expected


def test_the_last_weights_are_kept_where_that_is_the_rule(trainer_of) -> None:
    trainer = trainer_of(of_vae(**{"training.criterion": "last", "training.epochs": 3, "training.plateau": None}))
    values = iter([1.0, 3.0, 2.0])
    trainer._criterion = lambda numbers: next(values)
    trained = trainer.run()
    assert (trained.best_step, trained.best, trained.last) == (trained.steps, 2.0, 2.0)
    assert trained.criterion.startswith("the last epoch's weights; their validation objective")
    assert [line["kept"] for line in validations_of(trainer)] == [True] * 3
    with pytest.raises(TextspaceError, match=r"'last' keeps the last weights, and .*reload_best returns to the best"):
        RECIPES["vae-max-pool"].but({"training.criterion": "last"})


def test_a_run_that_kept_weights_by_another_number_is_not_compared_with_it(trainer_of, monkeypatch) -> None:
    """As one of an earlier version, whose checkpoint holds the lowest ELBO, far from every value of the objective."""
    earlier = LIGHT.but({"training.criterion": "elbo", "training.epochs": 3})
    first = trainer_of(earlier)
    first.run()
    path = checkpoints.newest(first.folder) / "state.json"
    state = json.loads(path.read_text())
    for name in ("digest", "criterion", "final_weights"):
        state.pop(name)
    state["selection"] = {name: state["selection"][name] for name in ("best", "best_step", "since_best", "decays")}
    state["selection"] |= {"best": 0.5, "since_decay": 0}  # a value that no objective falls below
    path.write_text(json.dumps(state))
    second = trainer_of(LIGHT.but({"training.epochs": 5}))
    second.resume()
    kept = state["selection"]["best_step"]
    trained = second.run()
    lines = validations_of(second)
    own = next(line["objective"] for line in lines if line["step"] == kept)
    assert trained.best == pytest.approx(min(own, *(line["objective"] for line in lines if line["step"] > 36)))
    assert trained.best > 0.5
    third = trainer_of(LIGHT.but({"training.epochs": 6}))  # and now it is known
    third.resume()
    assert not third._selected_otherwise


def test_checkpoints_of_earlier_versions_have_all_that_selection_needs() -> None:
    rules = Selection.of({"best": 2.0, "best_step": 5, "since_best": 1, "since_decay": 1, "decays": 0})
    assert (rules.reference, rules.kept, rules.best_step) == (2.0, 2.0, 5)
    assert Criterion.of_first_versions(RECIPES["vae"]) == Criterion.of(RECIPES["vae"]).key
    assert Criterion.of_first_versions(RECIPES["wae"]) != Criterion.of(RECIPES["wae"]).key  # by reconstruction


def test_what_is_stored_of_an_unfinished_run_is_true_of_its_weights(tmp_path: Path, monkeypatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny_sentences()) + "\n")
    recipe = LIGHT.but({"training.checkpoint_every": 5, "training.epochs": 4})
    step = updates.JointUpdate._step

    def interrupted(self, shard, turn, moving):
        if turn.number == 30:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, shard, turn, moving)

    with monkeypatch.context() as patched:
        patched.setattr(updates.JointUpdate, "_step", interrupted)
        with pytest.raises(Interrupted):
            train(text, recipe, tmp_path / "run", device="cpu", silent=True)
    space = Space.load(tmp_path / "run", "cpu")
    assert "trained" not in space.metrics
    history = History.of(tmp_path / "run", space.metrics)
    assert history.kept["step"] == space.metrics["kept"]["step"] == lowest(history.lines, "objective")
    assert space.metrics["kept"]["value"] == history.kept["objective"]
    subject = subject_of(space, str(text))  # cut as for training, so that what is tested was held out
    assert subject.own_train
    assert {name: fact.of for name, fact in subject.facts.items()} == {"train": 360, "valid": 20, "test": 20}
    train(text, recipe, tmp_path / "run", device="cpu", silent=True, curves=False, resume=True)
    train(text, recipe, tmp_path / "straight", device="cpu", silent=True, curves=False)
    ends = [folders.read_metrics(tmp_path / name) for name in ("run", "straight")]
    for end in ends:
        end["trained"].pop("seconds"), end["kept"]["validation"].pop("seconds")
    assert ends[0] == ends[1]
    assert ends[0]["training_text"] == space.metrics["training_text"]
    # Resumed for longer, a finished run has no measurements of weights that are no longer there.
    with monkeypatch.context() as patched:
        patched.setattr(
            "textspace.train.fit.likelihood", lambda *given, **more: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            train(text, recipe.but({"training.epochs": 6}), tmp_path / "run", silent=True, device="cpu", resume=True)
    Space.load(tmp_path / "run", "cpu")  # whose files are those of its record
    longer = folders.read_metrics(tmp_path / "run")
    assert longer["kept"]["step"] > 48
    assert not {"trained", "valid", "test", "examination"} & longer.keys()
    assert longer["training_text"] == ends[0]["training_text"]
