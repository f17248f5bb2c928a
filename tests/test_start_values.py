"""Start values: keyed by seed, role and declared name alone; drawn from the distributions that the recipe names."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import small
from torch import Tensor, nn

from textspace.config import Initial, Recipe
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.start_values import declared, draw_start_values, start_values

NAMES = json.loads((Path(__file__).parent / "start_value_names.json").read_text())
"""The declared names by role, once for all recipes that have the same."""


def names_by_role(model: Model) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for role, start in start_values(model.parts_by_role()):
        found.setdefault(role, []).append(start.name)
    return {role: sorted(names) for role, names in found.items()}


def values(recipe: Recipe, vocabulary: int = 30) -> dict[tuple[str, str], Tensor]:
    """All start values, those that are not drawn too."""
    model = Model(recipe, vocabulary)
    return {(role, start.name): start.parameter.detach() for role, start in start_values(model.parts_by_role())}


def drawn(recipe: Recipe, vocabulary: int = 30) -> dict[tuple[str, str], Tensor]:
    model = Model(recipe, vocabulary)
    found = start_values(model.parts_by_role())
    return {(role, start.name): start.parameter.detach() for role, start in found if start.kind != "kept"}


# Names


def test_the_names_of_every_recipe_stay() -> None:
    """Another name is another draw: renaming one changes the numbers of all runs of these recipes."""
    of_recipe = {recipe: group["names"] for group in NAMES for recipe in group["recipes"]}
    assert of_recipe.keys() == RECIPES.keys()
    for name, recipe in RECIPES.items():
        assert names_by_role(Model(small(recipe), 30)) == of_recipe[name], name


def test_a_name_decides_the_numbers() -> None:
    """The key is written out here, so that it stays: seed, purpose, role, name."""
    found = values(small(RECIPES["vae"]).but({"training.seed": 3}))
    for role, name, bound in (("encoder", "embedding weight", 0.1), ("decoder", "first state weight", 0.3)):
        chance = torch.Generator().manual_seed(seed_of(3, "start values", role, name))
        wanted = torch.empty(found[role, name].shape).uniform_(-bound, bound, generator=chance)
        assert torch.equal(found[role, name], wanted)


def test_the_bits_stay() -> None:
    """The first numbers of some weights, recorded when names were declared."""
    found = values(small(RECIPES["ton-vae"]).but({"initial.weights": None}))
    for key, wanted in RECORDED.items():
        assert found[key].flatten()[:3].tolist() == pytest.approx(wanted, rel=1e-6), key


RECORDED = {
    ("encoder", "embedding weight"): [-0.0086263418, 0.028317034, 0.029714311],
    ("prior", "features"): [-1.8376937, 0.96993619, 1.3634102],
    ("decoder", "recurrent weight_hh_l0"): [-0.15674701, 0.12924838, -0.0097163022],
    ("decoder", "output weight"): [0.19476566, 0.051436663, 0.24761057],
}


class Part(nn.Module):
    """Two linear maps and a bare parameter, under attributes and in an order of one's choice."""

    def __init__(self, attributes: str, turned: bool = False, wrapped: bool = False) -> None:
        super().__init__()
        made = {
            "mean": lambda: declared("mean", nn.Linear(3, 4)),
            "spread": lambda: declared("spread", nn.Linear(3, 4)),
            "centre": lambda: declared("centre", nn.Parameter(torch.empty(4)), "normal"),
        }
        order = list(zip(attributes, made.values(), strict=True))
        for attribute, make in reversed(order) if turned else order:
            thing = make()
            setattr(self, attribute, nn.Sequential(thing) if wrapped and isinstance(thing, nn.Module) else thing)


def of_part(part: nn.Module, initial: Initial | None = None) -> dict[str, Tensor]:
    draw_start_values({"posterior": part}, 5, initial or Initial(weights=None))
    return {start.name: start.parameter.detach() for _, start in start_values({"posterior": part})}


@pytest.mark.parametrize(
    ("attributes", "turned", "wrapped", "dtype"),
    [
        ("xyz", False, False, torch.float32),
        ("abc", True, False, torch.float32),
        ("abc", False, True, torch.float32),
        ("abc", False, False, torch.float64),
    ],
)
def test_attributes_order_nesting_and_dtype_change_no_number(
    attributes: str, turned: bool, wrapped: bool, dtype: torch.dtype
) -> None:
    one, other = of_part(Part("abc")), of_part(Part(attributes, turned, wrapped).to(dtype))
    assert one.keys() == other.keys() == {"mean weight", "mean bias", "spread weight", "spread bias", "centre"}
    assert all(torch.equal(one[name].to(dtype), other[name]) for name in one)


def test_the_role_counts() -> None:
    one, other = Part("abc"), Part("abc")
    draw_start_values({"prior": one, "posterior": other}, 5, Initial(weights=None))
    assert not torch.equal(one.a.weight, other.a.weight)


def forgetful(kind: str) -> nn.Module:
    part = Part("abc")
    match kind:
        case "module":
            part.more = nn.Linear(2, 2)
        case "parameter":
            part.more = nn.Parameter(torch.zeros(2))
        case "rule":
            part.more = declared("more", nn.Parameter(torch.zeros(2)))
        case "kind":
            part.more = declared("more", nn.Conv1d(2, 2, 1))
        case "inner parameter":
            part = declared("inner", part)
            part.more = nn.Parameter(torch.zeros(2))
    return part


@pytest.mark.parametrize("kind", ["module", "parameter", "rule", "kind", "inner parameter"])
def test_what_has_no_name_or_rule_is_an_error_that_names_it(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^posterior\.more(\.weight)? has no start value: .*declared\(name"):
        of_part(forgetful(kind))


def test_a_name_cannot_be_given_twice() -> None:
    part = Part("abc")
    part.more = declared("mean", nn.Linear(2, 2))
    with pytest.raises(ValueError, match="two parameters of the posterior have the declared name 'mean weight'"):
        of_part(part)


# What draws do not depend on

GATES = {"posterior": {"kind": "spike-and-slab", "hidden": 16}, "prior": {"kind": "beta-gated"}}
CHANGES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("vae", {"encoder.layers": 2}, set()),
    ("vae", {"encoder.bidirectional": True}, {"posterior mean weight", "posterior log variance weight"}),
    ("vae", {"pooling": {"kind": "attention"}}, set()),
    ("vae", {"posterior.kind": "delta", "objective.kind": "reconstruction"}, set()),
    ("vae", GATES, set()),
    ("vae", {"share_embeddings": True}, set()),
    ("vae", {"decoder.output_bias": True}, set()),
    ("vae", {"decoder.skip": True, "decoder.layers": 2}, {"decoder first state weight", "decoder first state bias"}),
    (
        "vae",
        {"decoder.hidden": 20},
        {
            *(f"decoder recurrent {part}_l0" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
            *(f"decoder {part}" for part in ("output weight", "first state weight", "first state bias")),
        },
    ),
    ("ivae", {"objective.networks": "one"}, set()),
    ("vat", {"encoder.layers": 3, "decoder.layers": 1}, set()),
    ("vat", {"encoder.norm": "before", "prior.learned": True}, set()),
    (
        "vat",
        {"decoder.feed_forward": 32},
        {f"decoder layer {i} feed {side}" for i in (0, 1) for side in ("in weight", "in bias", "out weight")},
    ),
]


@pytest.mark.parametrize(("name", "changes", "resized"), CHANGES)
@pytest.mark.parametrize("weights", [0.3, None])
def test_another_part_layer_or_option_changes_no_number_of_the_others(
    name: str, changes: dict[str, Any], resized: set[str], weights: float | None
) -> None:
    """`resized` are the weights of another shape; all others that both models have are equal to the bit."""
    recipe = small(RECIPES[name]).but({"initial.weights": weights})
    before, after = values(recipe), values(recipe.but(changes))
    assert before.keys() != after.keys() or resized
    common = before.keys() & after.keys()
    assert {" ".join(key) for key in common if before[key].shape != after[key].shape} == resized
    parts = {"encoder", "decoder"} | ({"posterior"} if changes is not GATES else set())
    assert {role for role, _ in common} >= parts
    same_shape = {key for key in common if before[key].shape == after[key].shape}
    unequal = {key for key in same_shape if not torch.equal(before[key], after[key])}
    # By PyTorch's own rule the bound of a bias depends on the size of its map.
    by_own_rule = {key for key in same_shape if weights is None or key[0] == "dual"}
    assert unequal <= {key for key in by_own_rule if " ".join(key).replace("bias", "weight") in resized}


def test_shared_embeddings_are_the_encoders() -> None:
    recipe = small(RECIPES["vae"])
    separate, shared = values(recipe), Model(recipe.but({"share_embeddings": True}), 30)
    assert torch.equal(shared.decoder.embedding.weight, separate["encoder", "embedding weight"])
    assert ("decoder", "embedding weight") in separate


@pytest.mark.parametrize("name", ["vae", "vat", "hsvae", "ivae"])
def test_weights_of_equal_shape_differ(name: str) -> None:
    found = drawn(small(RECIPES[name]).but({"share_embeddings": False, "encoder.layers": 2}))
    pairs = [(a, b) for a, b in combinations(found, 2) if found[a].shape == found[b].shape]
    assert (("encoder", "embedding weight"), ("decoder", "embedding weight")) in pairs
    assert [pair for pair in pairs if (found[pair[0]] == found[pair[1]]).any()] == []


@pytest.mark.parametrize("name", ["default", "vat", "ton-vae"])
def test_seeds_differ(name: str) -> None:
    recipe = small(RECIPES[name])
    one, again, other = (drawn(recipe.but({"training.seed": seed})) for seed in (0, 0, 1))
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert [key for key in one if (one[key] == other[key]).any()] == []


def test_the_random_state_of_the_caller_neither_matters_nor_changes() -> None:
    recipe = small(RECIPES["ton-vae"])
    one = drawn(recipe)
    torch.rand(17)
    state = torch.get_rng_state()
    again = drawn(recipe)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[key], again[key]) for key in one)


def test_double_precision_starts_with_the_same_numbers(float64: None) -> None:
    recipe = small(RECIPES["vat"])
    found = drawn(recipe)
    torch.set_default_dtype(torch.float32)
    assert all(each.dtype == torch.float64 for each in found.values())
    assert all(torch.equal(found[key], each.double()) for key, each in drawn(recipe).items())


def test_nothing_is_drawn_where_there_is_no_memory_or_no_need(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(RECIPES["vae"])
    with torch.device("meta"):
        assert all(each.is_meta for each in drawn(recipe).values())
    monkeypatch.setattr("textspace.model.draw_start_values", lambda *given: pytest.fail("drawn"))
    Model(recipe, 30, with_start_values=False)


# Distributions


def check_uniform(x: Tensor, bound: float) -> None:
    """Bounds, and mean and mean square within five standard errors: b^2 / 3 and 4 b^4 / 45 are their variances."""
    x = x.double().flatten()
    assert x.abs().max() <= bound * (1 + 1e-6)
    assert x.abs().max() > bound * (1 - 20 / len(x))  # fails once in exp(20) draws
    assert abs(x.mean()) < 5 * bound / math.sqrt(3 * len(x))
    assert abs((x**2).mean() - bound**2 / 3) < 5 * bound**2 * math.sqrt(4 / 45 / len(x))


def check_normal(x: Tensor) -> None:
    """Mean, mean square and mean fourth power of N(0, 1) within five standard errors: 1, 2 and 96 are the variances."""
    x = x.double().flatten()
    for power, mean, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (4, 3.0, 96.0)):
        assert abs((x**power).mean() - mean) < 5 * math.sqrt(variance / len(x)), power


def test_pytorchs_own_rules() -> None:
    """Linear maps within 1 / sqrt(inputs), biases too; recurrent layers within 1 / sqrt(units); embeddings N(0, 1)."""
    sizes = {"embedding": 32, "hidden": 64}
    changes = {f"{part}.{option}": value for part in ("encoder", "decoder") for option, value in sizes.items()}
    recipe = RECIPES["vae"].but(
        changes
        | {"initial": {"weights": None, "embeddings": None}, "decoder.kind": "gru", "decoder.skip": True}
        | {"decoder.output_bias": True, "latent.dim": 16, "pooling": {"kind": "attention", "hidden": 100}}
    )
    for (role, name), value in values(recipe, 1000).items():
        if "embedding" in name:
            check_normal(value)
            continue
        if name.startswith("recurrent") or role in ("pooling", "posterior"):
            inputs = 100 if name == "score weight" else 64
        else:
            inputs = {"output weight": 64, "output bias": 998, "output skip": 16}.get(name, 16)
        check_uniform(value, 1 / math.sqrt(inputs))


def test_pytorchs_modules_have_these_rules() -> None:
    """What PyTorch draws when it makes them has the bounds and moments of what is drawn by key."""
    torch.manual_seed(0)
    for made, inputs in ((nn.Linear(50, 300), 50), (nn.LSTM(20, 40), 40), (nn.GRU(20, 40), 40)):
        for parameter in made.parameters():
            check_uniform(parameter.detach(), 1 / math.sqrt(inputs))
    check_normal(nn.Embedding(100, 50).weight.detach())


def test_a_recipes_bounds() -> None:
    """Of embeddings, and of all other weights but those of the dual function."""
    changes = {"objective.dual.hidden": 64, "initial": {"weights": 0.05, "embeddings": 0.2}, "latent.dim": 8}
    recipe = small(RECIPES["ivae"]).but(changes | {"objective.of": "aggregated", "objective.networks": "one"})
    for (role, name), value in values(recipe, 1000).items():
        inputs = 8 if name.startswith("network hidden 0") else 64
        own = 1 / math.sqrt(inputs)
        check_uniform(value, own if role == "dual" else 0.2 if "embedding" in name else 0.05)


def test_learned_features_are_normal_or_have_the_recipes_bounds() -> None:
    recipe = small(RECIPES["ton-vae"]).but({"prior.count": 500})
    check_normal(values(recipe.but({"initial.weights": None}))["prior", "features"])
    check_uniform(values(recipe)["prior", "features"], 0.3)


def test_norms_and_learned_scales_start_where_they_are_made() -> None:
    found = values(small(RECIPES["vat"]).but({"prior.learned": True, "prior.scale": 0.7, "encoder.norm": "before"}))
    norms = {key: value for key, value in found.items() if "norm" in key[1]}
    assert len(norms) == 2 * (2 * 2 + 1 + 2 * 3)
    assert all((value == float(name.endswith("weight"))).all() for (_, name), value in norms.items())
    assert found["prior", "log scale"].item() == pytest.approx(math.log(0.7))


def test_a_pretrained_encoder_keeps_its_weights() -> None:
    recipe = small(next(each for each in RECIPES.values() if each.encoder and each.encoder.kind == "pretrained"))
    one, other = (Model(recipe.but({"training.seed": seed}), 30) for seed in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one.encoder.parameters(), other.encoder.parameters(), strict=True))
    assert "encoder" not in names_by_role(one)
    assert not torch.equal(one.decoder.recurrent.weight_hh_l0, other.decoder.recurrent.weight_hh_l0)
