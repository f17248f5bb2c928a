"""Objectives that make codes sparse: prices on activity and on gates, MMD with a sparse prior; and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import small, trainer_on
from torch.distributions import Bernoulli, kl_divergence

from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.distributions import draw
from textspace.divergences import mmd, mmd_per_dimension
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train.log import records
from textspace.types import Pass, Terms

NOW = Progress(0, 0.0)


def terms_of(recipe: Recipe, tiny, sentences: int = 16) -> tuple[Model, Pass, Terms]:
    model = Model(recipe, len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(sentences))
    objective = build_objective(recipe, model)
    passed = model(batch, Noise(0, 0, batch.rows_B), objective.samples, objective.per_gate)
    return model, passed, objective(passed, NOW)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_an_activity_is_the_size_of_means_and_deviations(norm: str, tiny) -> None:
    recipe = small(RECIPES[f"vae-{norm}"]).but({"objective.activity.weight": 0.3})
    _, passed, terms = terms_of(recipe, tiny)
    q = passed.sites["z"].q
    power = 1 if norm == "l1" else 2
    truth_B = (q.mean.abs() ** power + q.stddev**power).sum(1)
    torch.testing.assert_close(terms.terms["activity"].values, truth_B)
    assert terms.weights == {"reconstruction": 1.0, "kl": 0.01, "activity": 0.3}
    means = terms.means(16)
    torch.testing.assert_close(terms.loss(means), means["reconstruction"] + 0.01 * means["kl"] + 0.3 * truth_B.mean())


def test_the_dense_rival_differs_in_the_price_alone(tiny) -> None:
    _, _, dense = terms_of(small(RECIPES["vae-dense"]), tiny)
    _, _, priced = terms_of(small(RECIPES["vae-l1"]), tiny)
    assert set(priced.terms) - set(dense.terms) == {"activity"}
    for name, term in dense.terms.items():
        assert torch.equal(term.values, priced.terms[name].values)


@pytest.mark.parametrize("of", ["sentences", "pseudo-inputs"])
def test_a_gate_share_is_the_kl_of_two_coins_times_the_dimensions(of: str, tiny) -> None:
    recipe = small(RECIPES["ton-vae"]).but({"objective.gate_share": {"off": 0.7, "weight": 2.0, "of": of}})
    model, passed, terms = terms_of(recipe, tiny)
    gates = passed.sites["z"].q.off if of == "sentences" else model.prior.codes().components.off
    truth = 4 * kl_divergence(Bernoulli(gates.mean(1)), Bernoulli(torch.tensor(0.7)))
    truth_B = truth if of == "sentences" else truth.mean().expand(16)
    torch.testing.assert_close(terms.terms["gate_share"].values, truth_B, rtol=1e-4, atol=1e-5)
    assert terms.weights["gate_share"] == 2.0
    assert terms.terms["gate_share"].per == "sentence"
    (gradient,) = torch.autograd.grad(terms.terms["gate_share"].values.sum(), model.posterior.gates[2].bias)
    assert (gradient != 0).all()


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_activity_of_a_sentence_whose_tokens_have_codes_is_that_of_all_real_ones(norm: str, tiny) -> None:
    recipe = small(RECIPES["vat"]).but({"objective.activity": {"norm": norm}})
    _, passed, terms = terms_of(recipe, tiny)
    q, power = passed.sites["z"].q, 1 if norm == "l1" else 2
    for row, length in enumerate(passed.batch.encoder.lengths_B.tolist()):
        truth = (q.mean[row, :length].abs() ** power + q.stddev[row, :length] ** power).sum()
        torch.testing.assert_close(terms.terms["activity"].values[row], truth)


def test_the_gate_share_of_a_sentence_whose_tokens_have_gates_is_the_sum_over_real_ones(tiny) -> None:
    gates = {"posterior": {"kind": "spike-and-slab", "gates": "features", "hidden": 8}, "prior.kind": "spike-and-slab"}
    recipe = small(RECIPES["vat"]).but(gates | {"objective.gate_share": {"off": 0.7}})
    _, passed, terms = terms_of(recipe, tiny)
    off_BTZ = passed.sites["z"].q.off
    for row, length in enumerate(passed.batch.encoder.lengths_B.tolist()):
        each_T = kl_divergence(Bernoulli(off_BTZ[row, :length].mean(1)), Bernoulli(torch.tensor(0.7)))
        torch.testing.assert_close(terms.terms["gate_share"].values[row], 4 * each_T.sum(), rtol=1e-4, atol=1e-5)


def test_the_price_of_gates_is_0_where_the_share_is_the_one_wanted(tiny) -> None:
    recipe = small(RECIPES["ton-vae"]).but({"objective.gate_share.off": 0.7})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    with torch.no_grad():
        model.posterior.gates[2].weight.zero_()
        model.posterior.gates[2].bias.fill_(math.log(0.7 / 0.3))
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    terms = build_objective(recipe, model)(model(batch, Noise(0, 0, batch.rows_B)), NOW)
    assert terms.terms["gate_share"].values.abs().max().item() < 1e-5


@pytest.mark.parametrize("per", ["dimension", "code"])
def test_the_sparse_prior_is_approached_by_mmd_per_dimension_or_in_its_own_units(per: str, tiny) -> None:
    recipe = small(RECIPES["mat-vae"]).but({"objective.per": per})
    model, passed, terms = terms_of(recipe, tiny)
    noise, codes = passed.noise, model.prior.codes()
    prior_NZ = draw(codes.expand((16, 4)), noise, "prior draws", 1)[0]
    both_NZ, scales = (passed.sites["z"].value_SBZ[0], prior_NZ), (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    by_code = mmd(*both_NZ, scales, variance=0.8 * 0.05**2 + 0.2)
    truth = mmd_per_dimension(*both_NZ, scales) if per == "dimension" else by_code
    torch.testing.assert_close(terms.terms["mmd"].values, truth)
    assert terms.weights == {"reconstruction": 1.0, "mmd": 0.5, "kl": 0.01}
    assert terms.terms["kl"].how == "sampled"
    site = passed.sites["z"]
    torch.testing.assert_close(terms.terms["kl"].values, (site.log_q_SB - site.log_p_SB)[0])


def test_with_gates_mmd_compares_codes_with_draws_of_the_prior_whatever_its_gates(tiny) -> None:
    recipe = small(RECIPES["hsvae"]).but({"objective": {"kind": "wae", "kl_weight": 0.5}})
    model, passed, terms = terms_of(recipe, tiny)
    prior_NZ = draw(model.prior.codes().expand((16, 4)), passed.noise, "prior draws", 1)[0]
    variance = 0.8 * 0.05**2 + 0.2
    truth = mmd(passed.sites["z"].value_SBZ[0], prior_NZ, recipe.objective.scales, variance=variance)
    torch.testing.assert_close(terms.terms["mmd"].values, truth)
    assert terms.weights == {"reconstruction": 1.0, "mmd": 10.0, "kl_gate": 0.5, "kl_z": 0.5}


def test_an_importance_weighted_bound_of_gates_and_codes(tiny) -> None:
    recipe = small(RECIPES["hsvae"]).but({"objective": {"kind": "iwae", "samples": 7}})
    _, passed, terms = terms_of(recipe, tiny)
    gate, z = passed.sites["gate"], passed.sites["z"]
    log_weights_SB = passed.log_px_SB + gate.log_p_SB - gate.log_q_SB + z.log_p_SB - z.log_q_SB
    assert len(log_weights_SB) == 7
    torch.testing.assert_close(terms.terms["iw_bound"].values, -log_weights_SB.exp().mean(0).log())
    assert terms.weights == {"iw_bound": 1.0}


# What cannot be


HSVAE, TON = RECIPES["hsvae"], RECIPES["ton-vae"]
GATED = {"posterior.kind": "spike-and-slab", "prior.kind": "beta-gated"}


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        (
            "vae",
            {"prior.kind": "beta-gated"},
            "prior 'beta-gated' needs Beta gates in the posterior too, and this is 'gaussian': set "
            "posterior.kind=spike-and-slab and posterior.gates=beta, or use prior 'spike-and-slab'",
        ),
        (
            "hsvae",
            {"posterior.gates": "features"},
            "prior 'beta-gated' needs Beta gates in the posterior too, and this is 'spike-and-slab'",
        ),
        (
            "vae",
            {"posterior.kind": "spike-and-slab"},
            "posterior 'spike-and-slab' with gates 'beta' needs Beta gates in the prior too, and this is "
            "'standard-normal': set prior.kind=beta-gated, or posterior.gates=features",
        ),
        (
            "hsvae",
            {"prior.kind": "pseudo-inputs"},
            "posterior 'spike-and-slab' with gates 'beta' needs Beta gates in the prior too",
        ),
        ("ae", {"posterior.kind": "delta", "prior.kind": "pseudo-inputs"}, "needs a posterior with a density"),
        ("hsvae", {"objective": {"kind": "mim"}}, "objective 'mim' makes posteriors narrower without end"),
        (
            "hsvae",
            {"objective": {"kind": "iwae"}, "posterior.hard": False},
            "objective 'iwae' is a bound only with hard switches",
        ),
        (
            "hsvae",
            {"objective.free_bits": {"target": 3}},
            "objective.free_bits on every sentence needs a closed KL, and that of posterior 'spike-and-slab' and prior "
            "'beta-gated' is sampled",
        ),
        (
            "ton-vae",
            {"objective.free_bits": {"target": 3, "on": "batch"}},
            "objective.free_bits per dimension needs a prior whose dimensions are independent",
        ),
        ("vae", {"objective.gate_kl_weight": 0.5}, "are about gates, and this posterior has none"),
        ("vae", {"objective.codes_per_gate": 2}, "are about gates, and this posterior has none"),
        ("ton-vae", {"objective.codes_per_gate": 2}, "are about gates, and this posterior has none"),
        ("hsvae", {"objective.activity": {"norm": "l1"}}, "objective.activity is for posteriors without Beta gates"),
        (
            "hsvae",
            {"objective.gate_share": {"off": 0.5}},
            "objective.gate_share is for posterior 'spike-and-slab' with",
        ),
        ("vae", {"objective.gate_share": {"off": 0.5}}, "objective.gate_share is for posterior 'spike-and-slab' with"),
        (
            "ton-vae",
            {"prior.kind": "spike-and-slab", "objective.gate_share.of": "pseudo-inputs"},
            "objective.gate_share.of=pseudo-inputs needs prior 'pseudo-inputs', and this is 'spike-and-slab'",
        ),
    ],
)
def test_parts_that_cannot_work_together_are_one_sentence(name: str, changes: dict, sentence: str) -> None:
    def built() -> None:
        recipe = small(RECIPES[name].but(changes))
        build_objective(recipe, Model(recipe, 20))

    with pytest.raises(TextspaceError) as told:
        built()
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)
    assert not str(told.value).endswith(".")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vae", GATED),
        ("vae", {**GATED, "objective.samples": 2, "objective.codes_per_gate": 3, "objective.gate_kl_weight": 0.1}),
        ("hsvae", {"objective.free_bits": {"target": 3, "on": "batch"}}),
        ("hsvae", {"posterior.slab_sees_gates": False, "posterior.layers": 0}),
        pytest.param("hsvae", {"posterior.hard": False}, marks=pytest.mark.filterwarnings("ignore:posterior.hard")),
        ("hsvae", {"objective": {"kind": "iwae", "samples": 3}}),
        ("hsvae", {"training.update": {"kind": "aggressive", "window": 2, "cap": 3}}),
        ("hsvae", {"pretrain": {"keep": "encoder", "epochs": 1}}),
        (
            "hsvae",
            {"objective": {"kind": "dual-kl", "dual": {"hidden": 8}}, "training.update": {"kind": "alternating"}},
        ),
        ("ton-vae", {"prior.kind": "spike-and-slab"}),
        ("ton-vae", {"prior.kind": "standard-normal", "objective.activity": {"norm": "l2"}}),
        ("ton-vae", {"objective.free_bits": {"target": 3, "on": "batch", "per": "total"}}),
        ("vae", {"prior.kind": "pseudo-inputs"}),
        ("vae", {"prior.kind": "pseudo-inputs", "objective": {"kind": "wae"}}),
        ("wae", {"prior.kind": "spike-and-slab"}),
        ("vae", {"prior.kind": "spike-and-slab"}),
    ],
)
def test_parts_that_can_work_together_train(name: str, changes: dict, tiny, tmp_path) -> None:
    recipe = small(RECIPES[name].but(changes)).but({"training.steps": 3, "training.batch.sentences": 32})
    trainer = trainer_on(tiny, recipe, tmp_path / "run")
    assert math.isfinite(trainer.run().best)
    assert len(list(records(trainer.folder / "steps.jsonl", "step"))) == 3


def test_relaxed_switches_are_warned_of() -> None:
    for name in ("hsvae", "ton-vae"):
        recipe = small(RECIPES[name].but({"posterior.hard": False}))
        with pytest.warns(UserWarning, match="the estimate of the KL may fall below 0 without end"):
            build_objective(recipe, Model(recipe, 20))


# Training never breaks


@pytest.mark.parametrize(
    ("alpha", "beta", "dim", "optimizer"),
    [
        (0.5, 100.0, 32, {"kind": "adam", "lr": 0.3}),
        (100.0, 0.5, 32, {"kind": "sgd", "lr": 2.0}),
        (0.5, 0.5, 32, {"kind": "adam", "lr": 1.0}),
        (100.0, 100.0, 32, {"kind": "adam", "lr": 1.0}),
        (100.0, 0.5, 768, {"kind": "adam", "lr": 0.3}),
    ],
)
def test_weights_and_gradients_stay_finite_with_learning_rates_far_too_large(
    alpha: float, beta: float, dim: int, optimizer: dict, tiny
) -> None:
    """With the full weight on every KL; gradients clipped as the recipe has it, for Adam not even that."""
    changes = {"latent.dim": dim, "prior.alpha": alpha, "prior.beta": beta, "objective.kl_weight": 1.0}
    recipe = small(HSVAE).but(changes | {"objective.gate_kl_weight": 1.0})
    model = Model(recipe, len(tiny.tokenizer)).train()
    objective = build_objective(recipe, model)
    kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    moving = kinds[optimizer["kind"]](model.parameters(), lr=optimizer["lr"])
    split = tiny.encoded.splits["train"]
    for step in range(120 if dim == 32 else 25):
        batch = make_batch(split, np.arange(16) + 16 * (step % 20))
        terms = objective(model(batch, Noise(0, step, batch.rows_B)), NOW)
        means = terms.means(16)
        loss = terms.loss(means)
        moving.zero_grad()
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(torch.isfinite(x).all() for x in (*means.values(), *gradients)), step
        if optimizer["kind"] == "sgd":
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.training.clip)
        moving.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())
