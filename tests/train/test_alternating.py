"""The alternating rule: dual functions learn between the steps of the model."""

import json
import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from helpers import changed, copied, small

from textspace.config import Recipe
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.schedules import FINAL, Progress, schedule
from textspace.train.log import records
from textspace.train.loop import Trainer
from textspace.train.resuming import as_first_written
from textspace.train.updates import Turn

ALTERNATING = small(RECIPES["ivae"])


def steps_of(trainer: Trainer) -> list[dict]:
    return list(records(trainer.folder / "steps.jsonl", "step"))


def turn(number: int, rate: float = 0.01) -> Turn:
    return Turn(number, Progress(number, 0.0), rate)


def duals(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("dual.")}


@pytest.mark.parametrize("networks", ["one", "both"])
@pytest.mark.parametrize("of", ["posterior", "aggregated"])
@pytest.mark.parametrize("dual_steps", [1, 3])
def test_the_dual_moves_in_its_own_steps_only(trainer_of, of: str, networks: str, dual_steps: int) -> None:
    changes = {"training.update.dual_steps": dual_steps, "objective.of": of, "objective.networks": networks}
    trainer = trainer_of(ALTERNATING.but(changes))
    rule, before = trainer.update, copied(trainer.model)
    dual = duals(before)
    assert len(dual) == (8 if networks == "one" else 16)  # three hidden layers and the output

    rule._step(trainer.stream.next_batch(), turn(0), rule.parameters)  # the model's part of a step
    assert changed(trainer.model, before) == before.keys() - dual

    before = copied(trainer.model)
    for number in (1, 2):
        rule(trainer.stream.next_batch, turn(number, rate=0.0))  # the model stays where it is
    assert changed(trainer.model, before) == dual
    counts = {int(state["step"]) for state in rule.dual_optimizer.state.values()}
    assert counts == {2 * dual_steps}
    assert len(rule.dual_optimizer.state) == len(dual)
    assert {int(state["step"]) for state in rule.optimizer.state.values()} == {3}
    in_both = {id(p) for p in rule.optimizer.state} & {id(p) for p in rule.dual_optimizer.state}
    assert not in_both
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.parametrize("networks", ["one", "both"])
@pytest.mark.parametrize("of", ["posterior", "aggregated"])
def test_the_bounds_of_the_dual_functions_rise_on_a_fixed_model(trainer_of, of: str, networks: str) -> None:
    """Of both functions, whichever is part of the loss."""
    changes = {"training.update.optimizer.lr": 1e-3, "training.batch.sentences": 360}
    trainer = trainer_of(ALTERNATING.but(changes | {"objective.of": of, "objective.networks": networks}))
    names = ["dual_kl"] if networks == "one" else ["dual_kl", "dual_marginal_kl"]
    bounds = {name: [] for name in names}
    for number in range(40):
        step = trainer.update(trainer.stream.next_batch, turn(number, rate=0.0))
        for name in names:
            bounds[name].append(float(step.values[step.names.index(name)]))
    for each in bounds.values():
        parts = [np.mean(each[:5]), np.mean(each[15:20]), np.mean(each[-5:])]
        assert 0.1 > parts[0] < parts[1] < parts[2] > 1


def test_the_dual_function_is_taught_in_the_precision_of_the_steps(trainer_of) -> None:
    trainer = trainer_of(ALTERNATING.but({"training.update.dual_steps": 3, "objective.networks": "one"}))
    trainer.update.training = trainer.training.model_copy(update={"precision": "bf16"})  # as on a GPU
    seen = []
    trainer.model.dual.network.register_forward_hook(
        lambda module, given, told: seen.append((given[0].dtype, told.dtype))
    )
    step = trainer.update(trainer.stream.next_batch, turn(0))
    assert {told for _, told in seen} == {torch.bfloat16}
    assert len(seen) == 2 * (3 + 1)  # codes and draws of the prior, three times to teach it and once to learn from it
    assert step.values.isfinite().all()


def test_the_rates_of_model_and_dual_are_their_own(trainer_of) -> None:
    plateau = {"patience": 1, "max_decays": 9}
    trainer = trainer_of(ALTERNATING.but({"training.plateau": plateau, "training.epochs": 3}))
    values = iter([3.0, 4.0, 5.0])
    trainer._criterion = lambda numbers: next(values)
    trainer.run()
    assert steps_of(trainer)[-1]["lr"] == 0.0025
    assert trainer.update.dual_optimizer.param_groups[0]["lr"] == 1e-5


def test_a_dual_that_is_not_finite_moves_nothing(trainer_of) -> None:
    trainer = trainer_of(ALTERNATING)
    trainer.update(trainer.stream.next_batch, turn(0))
    with torch.no_grad():
        trainer.model.dual.aggregated.network[0].weight[0, 0] = torch.inf
    before = copied(trainer.model)
    trainer.update(trainer.stream.next_batch, turn(1))
    assert changed(trainer.model, before) == set()


def test_a_dual_that_is_not_finite_for_once_is_told_though_the_loss_is(
    trainer_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(ALTERNATING)
    truth = trainer.update.objective.dual

    def unlucky(features_BH, site, noise, stream):
        factor = torch.inf if stream.endswith("dual step 0") else 1.0
        return {name: bound_B * factor for name, bound_B in truth(features_BH, site, noise, stream).items()}

    monkeypatch.setattr(trainer.update.objective, "dual", unlucky)
    step = trainer.update(trainer.stream.next_batch, turn(0))
    found = dict(zip(step.names, step.values.isfinite().tolist(), strict=True))
    assert [name for name, finite in found.items() if not finite] == ["dual_gradient", "gradient"]
    assert step.values[step.names.index("loss")].isfinite()
    with pytest.raises(TextspaceError, match="dual_gradient became"):
        trainer.run()


# As the published code has it


def test_both_recipes_train_both_functions_and_lose_by_one(trainer_of) -> None:
    for name, lost in (("ivae", "dual_kl"), ("ivae-mi", "dual_marginal_kl")):
        trainer = trainer_of(small(RECIPES[name]), name)
        trainer.run()
        for line in steps_of(trainer):
            assert set(line["weights"]) == {"reconstruction", lost}
            assert {"dual_kl", "dual_marginal_kl"} <= line.keys()
            assert line["loss"] == pytest.approx(line["reconstruction"] + line["weights"][lost] * line[lost], rel=1e-5)
        validation = trainer.history[-1]
        assert validation["dual_mi"] == pytest.approx(validation["dual_kl"] - validation["dual_marginal_kl"])


def test_a_second_function_changes_no_step_of_the_model(trainer_of) -> None:
    """It shares no weight with the first and is no part of the loss, so that only what is logged differs."""
    trainers = [trainer_of(ALTERNATING.but({"objective.networks": which}), which) for which in ("one", "both")]
    weights = trainers[1].model.state_dict()
    for name, tensor in trainers[0].model.state_dict().items():
        tensor.copy_(weights[name.replace("dual.network", "dual.posterior.network")])
    lines = []
    for trainer in trainers:
        trainer.run()
        lines.append([(line["loss"], line["dual_kl"]) for line in steps_of(trainer)])
    np.testing.assert_allclose(lines[0], lines[1], rtol=1e-5)


def gradients_of(trainer: Trainer, shard, number: int) -> dict[str, torch.Tensor]:
    """Those of the loss in the model, and of the dual forms in the dual functions, by autograd alone."""
    model, objective = trainer.model, trainer.update.objective
    (batch,) = shard.pieces
    noise = Noise(trainer.training.seed, number, batch.rows_B)
    passed = model(batch, noise)
    terms = objective(passed, turn(number).progress)
    own = {name: p for name, p in model.named_parameters() if not name.startswith("dual.")}
    found = torch.autograd.grad(terms.loss(terms.means(len(batch))), own.values(), retain_graph=True)
    gradients = dict(zip(own, found, strict=True))
    dual = {name: p for name, p in model.named_parameters() if name.startswith("dual.")}
    site, features_BH = passed.sites["z"], passed.features_BH
    forms = objective.dual(features_BH.detach(), site, noise, "prior draws of dual step 0")
    total = -sum(form_B.mean() for form_B in forms.values())
    return gradients | dict(zip(dual, torch.autograd.grad(total, dual.values()), strict=True))


def norm(tensors: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def side_of(name: str) -> str:
    return name.partition(".")[0].replace("pooling", "encoder").replace("posterior", "encoder")


@pytest.mark.parametrize("apart", [True, False])
def test_the_sides_of_the_model_are_clipped_apart_or_together(trainer_of, apart: bool) -> None:
    """With a limit far below all norms, SGD moves what is clipped together exactly as far as the limit."""
    limit = 1e-3
    changes = {"training.optimizer": {"kind": "sgd", "lr": 1.0}, "training.clip": limit}
    trainer = trainer_of(ALTERNATING.but(changes | {"training.update.clip_apart": apart}))
    rule, before = trainer.update, copied(trainer.model)
    shard = trainer.stream.next_batch()
    gradients = gradients_of(trainer, shard, 0)
    rule._step(shard, turn(0, rate=1.0), rule.parameters)
    moved = {name: before[name] - tensor for name, tensor in copied(trainer.model).items()}
    sides = {side: [name for name in gradients if side_of(name) == side] for side in ("encoder", "decoder")}
    norms = {side: norm(gradients[name] for name in names) for side, names in sides.items()}
    both = math.hypot(*norms.values())
    assert min(norms.values()) > 10 * limit
    for side, names in sides.items():
        length = norm(moved[name] for name in names)
        assert length == pytest.approx(limit if apart else limit * norms[side] / both, rel=1e-2)
        for name in names:
            torch.testing.assert_close(
                moved[name], gradients[name] * limit / (norms[side] if apart else both), rtol=1e-2, atol=2e-6
            )


@pytest.mark.parametrize("clipped", [True, False])
def test_steps_of_the_dual_functions_are_clipped_or_not(trainer_of, clipped: bool) -> None:
    limit = 1e-3
    changes = {"optimizer": {"kind": "sgd", "lr": 0.1}, "dual_steps": 1, "clip_dual": clipped}
    changes = {f"training.update.{name}": value for name, value in changes.items()}
    trainer = trainer_of(ALTERNATING.but(changes | {"training.clip": limit}))
    before = copied(trainer.model)
    shard = trainer.stream.next_batch()
    gradients = {k: v for k, v in gradients_of(trainer, shard, 0).items() if k.startswith("dual.")}
    length = norm(gradients.values())
    assert length > 10 * limit
    trainer.update(lambda: shard, turn(0, rate=0.0))
    for name, gradient in gradients.items():
        moved = before[name] - copied(trainer.model)[name]
        torch.testing.assert_close(moved, 0.1 * gradient * (limit / length if clipped else 1), rtol=1e-2, atol=1e-7)


def test_starting_weights_are_those_of_the_published_code(tiny) -> None:
    """U(-0.01, 0.01) for weights and embeddings alike; dual functions keep PyTorch's own, 1 / sqrt(inputs)."""
    start = RECIPES["ivae"].initial.model_dump()
    model = Model(ALTERNATING.but({"initial": start}), len(tiny.tokenizer))
    for name, parameter in model.named_parameters():
        bound = 0.01
        if name.startswith("dual."):
            layer = model.get_submodule(name.rpartition(".")[0])
            bound = 1 / math.sqrt(layer.in_features)
        assert parameter.abs().max() <= bound
        assert parameter.numel() < 60 or parameter.abs().max() > 0.9 * bound, name


def test_an_older_recipe_means_what_it_meant() -> None:
    """Its files and the keys of its results have none of the new options."""
    older = ALTERNATING.but(
        {"objective.networks": "one", "training.update.clip_apart": False, "training.update.clip_dual": True}
    )
    plain = json.loads(older.to_json())
    plain["objective"].pop("networks")
    plain["training"]["update"].pop("clip_apart")
    plain["training"]["update"].pop("clip_dual")
    assert Recipe.parse(plain) == older
    keyed, published = (json.loads(as_first_written(recipe.to_json())) for recipe in (older, ALTERNATING))
    assert (keyed["objective"], keyed["training"]["update"]) == (plain["objective"], plain["training"]["update"])
    assert published["objective"]["networks"] == "both"
    assert (published["training"]["update"]["clip_apart"], published["training"]["update"]["clip_dual"]) == (
        True,
        False,
    )


def test_the_weight_of_the_kl_rises_by_a_tenth_an_epoch_from_a_tenth() -> None:
    weight = schedule(RECIPES["ivae"].objective.kl_weight)
    for epoch in (0.0, 0.5, 3.25, 8.5, 9.0, 9.5):
        assert weight(Progress(1, epoch)) == pytest.approx(min(1.0, 0.1 + epoch / 10))
    assert weight(FINAL) == 1.0
