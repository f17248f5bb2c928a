"""Likelihoods of models with gates, against integrals over gates and codes of a world of three words and one
dimension."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor
from torch.distributions import Normal

from textspace.config import ElboObjective, Recipe
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import prepare
from textspace.data.tokenizers import Tokenizer
from textspace.evaluate.likelihood import likelihood
from textspace.lengths import Lengths
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import Elbo
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.types import Pass

TEXTS = ["b", "a b", "c c a", "a c", "b c", "c b a"]
GRID = torch.linspace(-9, 9, 3601, dtype=torch.float64)
GATES = torch.linspace(-40, 40, 1601, dtype=torch.float64)
NOW = Progress(0, 0.0)
NAMES = ["hsvae", "ton-vae", "mat-vae"]


class World(NamedTuple):
    tokenizer: Tokenizer
    split: EncodedSplit
    models: dict[str, Model]


@pytest.fixture(scope="module")
def world() -> World:
    prepared = prepare(corpus_of(["a b c", "b c", "c a", "a"] * 20), Recipe())
    size, models = len(prepared.tokenizer), {}
    for name in NAMES:
        changes = {"latent.dim": 1, "initial.weights": 0.6, "initial.embeddings": 0.5, "training.seed": 1}
        changes |= {"decoder.first_state": "code", "posterior.deviation": "exp"}
        model = Model(small(RECIPES[name]).but(changes), size).eval()
        with torch.no_grad():
            model.decoder.first_state.weight.mul_(3)
            # Posteriors that differ from the prior, and are wide enough for weights that do not scatter without end.
            if name == "mat-vae":
                model.posterior.log_variance.bias.fill_(0.5)
            else:
                model.posterior.slab[2].weight.mul_(0.3)
                model.posterior.slab[2].bias.copy_(torch.tensor([0.6, 0.4]))
                model.posterior.gates[2].weight.mul_(0.5)
            if name == "hsvae":
                model.posterior.gates[2].bias.copy_(torch.tensor([1.0, 0.8]))
            if name == "ton-vae":
                model.prior.features_KH.mul_(4)
        models[name] = model
    return World(prepared.tokenizer, EncodedSplit.of(TEXTS, prepared.tokenizer, None), models)


def log_px_on_grid(model: Model, split: EncodedSplit) -> Tensor:
    """log p(x | z) of every sentence (columns) at every point of the grid (rows)."""
    batch = make_batch(split, np.arange(len(split)))
    counted_BT = batch.decoder.mask_BT[:, 1:]
    with torch.no_grad():
        parts = [
            model.decoder(z[:, None, None].expand(-1, len(split), 1).float(), batch.decoder, Noise(0, 0, batch.rows_B))
            for z in GRID.split(400)
        ]
    return torch.cat(parts).double().where(counted_BT, 0.0).sum(2)


def exact_nll(model: Model, split: EncodedSplit, log_density_G: Tensor | None = None) -> np.ndarray:
    """-log of the integral of p(x | z) p(z) dz."""
    if log_density_G is None:
        with torch.no_grad():
            log_density_G = model.prior.codes().log_prob(GRID[:, None, None].float())[:, 0, 0].double()
    assert torch.trapezoid(log_density_G.exp(), GRID).item() == pytest.approx(1, abs=1e-4)
    return -torch.trapezoid((log_px_on_grid(model, split) + log_density_G[:, None]).exp(), GRID, dim=0).log().numpy()


class Exact(NamedTuple):
    reconstruction_N: np.ndarray
    kl_gate_N: np.ndarray
    kl_z_N: np.ndarray


def exact_elbo(model: Model, split: EncodedSplit) -> Exact:
    """The parts of the negative ELBO by quadrature over gates and codes."""
    batch, log_px_GB = make_batch(split, np.arange(len(split))), log_px_on_grid(model, split)
    found = []
    with torch.no_grad():
        features_BH = model.features(batch.encoder)
        for b in range(len(split)):
            gate = model.posterior("gate", features_BH[b : b + 1], {})
            log_q_C = gate.log_prob(GATES[:, None, None].float())[:, 0, 0].double()
            log_p_C = model.prior("gate", {}).log_prob(GATES[:, None, None].float())[:, 0, 0].double()
            kl_gate = torch.trapezoid(log_q_C.exp() * (log_q_C - log_p_C), GATES)
            assert torch.trapezoid(log_q_C.exp(), GATES).item() == pytest.approx(1, abs=1e-3)
            given = {"gate": GATES[:, None, None].float()}
            q, p = model.posterior("z", features_BH[b : b + 1], given), model.prior("z", given)
            at_GC = GRID[:, None].float()
            log_qz_GC = q.log_prob(at_GC[..., None, None])[..., 0, 0].double()
            log_pz_GC = p.log_prob(at_GC[..., None, None])[..., 0, 0].double()
            kl_C = torch.trapezoid(log_qz_GC.exp() * (log_qz_GC - log_pz_GC), GRID, dim=0)
            reconstruction_C = -torch.trapezoid(log_qz_GC.exp() * log_px_GB[:, b, None], GRID, dim=0)
            weights = log_q_C.exp()
            found.append([torch.trapezoid(weights * x, GATES) for x in (reconstruction_C, kl_C)] + [kl_gate])
    reconstruction_N, kl_z_N, kl_gate_N = np.array(found, dtype=np.float64).T
    return Exact(reconstruction_N, kl_gate_N, kl_z_N)


# The truth, and bounds on it


def assert_close(nll_N: np.ndarray, truth_N: np.ndarray, effective_N: np.ndarray) -> None:
    """Within four standard errors of each sentence and three of their mean, and these are small."""
    error_N = 1 / np.sqrt(effective_N)
    assert (np.abs(nll_N - truth_N) < 4 * error_N).all()
    assert abs((nll_N - truth_N).mean()) < 3 * error_N.mean() / math.sqrt(len(error_N))
    assert error_N.max() < 0.07


@pytest.mark.parametrize("name", NAMES)
def test_joint_importance_weights_of_gates_and_codes_converge_to_the_likelihood(name: str, world: World) -> None:
    model = world.models[name]
    truth_N = exact_nll(model, world.split)
    gaps = []
    for samples, seeds in ((1, 100), (10, 30)):
        drawn = [likelihood(model, world.split, samples=samples, seed=seed).nll_N for seed in range(seeds)]
        gaps.append(float((np.mean(drawn, axis=0) - truth_N).mean()))
    assert gaps[0] > 0.1
    assert gaps[0] > 2 * gaps[1] > 0
    measured = likelihood(model, world.split, samples=6000)
    assert_close(measured.nll_N, truth_N, measured.effective_samples_N)


def test_the_negative_elbo_and_its_parts_are_their_integrals_and_bound_the_likelihood(world: World) -> None:
    model = world.models["hsvae"]
    exact = exact_elbo(model, world.split)
    measured = likelihood(model, world.split, samples=4000)
    np.testing.assert_allclose(measured.reconstruction_N, exact.reconstruction_N, atol=0.1)
    np.testing.assert_allclose(measured.kl_N["gate"], exact.kl_gate_N, atol=1e-3, rtol=1e-3)
    np.testing.assert_allclose(measured.kl_N["z"], exact.kl_z_N, atol=0.05)
    assert (exact.kl_z_N > 0.05).all()
    elbo_N = exact.reconstruction_N + exact.kl_gate_N + exact.kl_z_N
    assert (elbo_N > exact_nll(model, world.split) + 0.03).all()


def test_proposals_with_wider_spikes_and_slabs_converge_too(world: World) -> None:
    for name in ("hsvae", "ton-vae"):
        model = world.models[name]
        wider = likelihood(model, world.split, samples=6000, proposal_scale=1.5)
        assert_close(wider.nll_N, exact_nll(model, world.split), wider.effective_samples_N)
        assert wider.settings["proposal"] == "posterior with 1.5 times its deviation"
        np.testing.assert_allclose(wider.elbo_N, likelihood(model, world.split).elbo_N)  # that of the posterior itself


class Wide:
    """A prior of codes that is not the model's."""

    name = "N(0, 2)"

    def log_prob(self, z_SBZ: Tensor) -> Tensor:
        return Normal(0.0, math.sqrt(2)).log_prob(z_SBZ.double()).sum(2)


def test_under_another_prior_of_codes_the_gates_weigh_nothing(world: World) -> None:
    model = world.models["hsvae"]
    truth_N = exact_nll(model, world.split, Normal(0.0, math.sqrt(2)).log_prob(GRID))
    assert np.abs(truth_N - exact_nll(model, world.split)).mean() > 0.01
    measured = likelihood(model, world.split, samples=6000, priors={"wide": Wide()}, proposal_scale=1.5)
    assert_close(measured.under["wide"].nll_N, truth_N, measured.under["wide"].effective_samples_N)


def test_all_sentences_together_have_probability_one(world: World) -> None:
    model, words = world.models["hsvae"], ["a", "b", "c", "x"]
    texts = [" ".join(each) for length in range(3) for each in itertools.product(words, repeat=length)]
    every = EncodedSplit.of(texts, world.tokenizer, None)
    measured = likelihood(model, every, samples=3000, end_token="length", lengths=Lengths([3, 10, 2]))
    assert np.exp(-measured.nll_N).sum() == pytest.approx(1, abs=0.05)


# Hard gates


def test_names_and_settings_say_that_gates_are_hard(world: World) -> None:
    for name in NAMES:
        estimates = likelihood(world.models[name], world.split, samples=3).estimates()
        for each in estimates.values():
            assert ("hard gates" in each.name) == (name != "mat-vae")
            assert each.settings.get("gates") == ("hard" if name != "mat-vae" else None)
    estimates = likelihood(world.models["hsvae"], world.split, samples=3, end_token="dropped").estimates()
    assert estimates["elbo"].name == "negative ELBO, upper bound on NLL, hard gates, the end token left out"
    assert estimates["kl_z"].name == "KL(q || p) of z, hard gates"


def test_the_kl_of_all_sites_is_a_number_too(world: World) -> None:
    found = {key: each.value for key, each in likelihood(world.models["hsvae"], world.split).estimates().items()}
    assert found["kl"] == pytest.approx(found["kl_gate"] + found["kl_z"])
    assert found["elbo"] == pytest.approx(found["reconstruction"] + found["kl"])


def relaxed(model: Model) -> Model:
    """The same with relaxed switches in training."""
    made = Model(model.recipe.but({"posterior.hard": False}), model.vocabulary)
    made.load_state_dict(model.state_dict())
    return made


@pytest.mark.filterwarnings("ignore:posterior.hard is false")
def test_relaxed_switches_make_what_is_no_kl_and_nothing_that_is_reported(world: World) -> None:
    """Slabs far from 0 and narrow: relaxed codes lie between them and the spike, where log q - log p is negative."""
    model = relaxed(world.models["hsvae"])
    with torch.no_grad():
        model.posterior.slab[2].bias.copy_(torch.tensor([2.0, -3.5]))
        model.posterior.slab[2].weight.mul_(0.1)
        model.posterior.gates[2].bias.copy_(torch.tensor([4.0, 4.0]))
        model.posterior.gates[2].weight.mul_(0.1)
    objective = Elbo(ElboObjective(), model)
    batch = make_batch(world.split, np.arange(len(world.split)))

    def terms(training: bool) -> dict[str, float]:
        model.train(training)
        found = objective(model(batch, Noise(0, 0, batch.rows_B), 300), NOW)
        assert set(found.weights) == set(found.terms)
        return {name: term.values.mean().item() for name, term in found.terms.items()}

    in_training, in_validation = terms(True), terms(False)
    assert set(in_training) == {"reconstruction", "kl_gate", "relaxed_kl_z"}  # never called a KL
    assert in_training["relaxed_kl_z"] < -0.5
    assert set(in_validation) == {"reconstruction", "kl_gate", "kl_z"}
    assert in_validation["kl_z"] > 0.5
    exact = exact_elbo(model, world.split)
    reported = likelihood(model.train(), world.split, samples=300)
    assert model.training  # as it was
    np.testing.assert_allclose(reported.kl_N["z"], exact.kl_z_N, atol=0.3)
    assert in_validation["kl_z"] == pytest.approx(exact.kl_z_N.mean(), abs=0.2)


def test_what_is_reported_does_not_depend_on_how_training_relaxes_switches(world: World) -> None:
    for name in ("hsvae", "ton-vae"):
        one, other = world.models[name], relaxed(world.models[name])
        of_one, of_other = (likelihood(each, world.split, samples=5) for each in (one, other))
        assert np.array_equal(of_one.nll_N, of_other.nll_N)
        assert np.array_equal(of_one.elbo_N, of_other.elbo_N)


# N gates, M codes for each


def passed(model: Model, batch, seed: int, samples: int, per_gate: int) -> Pass:
    return model(batch, Noise(seed, 0, batch.rows_B), samples, per_gate)


def test_every_gate_is_repeated_for_its_codes(world: World) -> None:
    model = world.models["hsvae"]
    batch = make_batch(world.split, np.arange(4))
    config = ElboObjective(samples=3, codes_per_gate=5)
    objective = Elbo(config, model)
    assert (objective.samples, objective.per_gate) == (15, 5)
    sites = passed(model, batch, 0, 15, 5).sites
    gate_SBZ, z_SBZ = sites["gate"].value_SBZ, sites["z"].value_SBZ
    assert gate_SBZ.shape == z_SBZ.shape == (15, 4, 1)
    grouped = gate_SBZ.view(3, 5, 4, 1)
    assert (grouped == grouped[:, :1]).all()
    assert len(torch.unique(gate_SBZ)) == 12
    assert len(torch.unique(z_SBZ)) == 60
    assert torch.equal(grouped[:, 0], passed(model, batch, 0, 3, 1).sites["gate"].value_SBZ)
    assert torch.equal(sites["z"].p.off_logit, gate_SBZ)
    assert sites["gate"].kl_BZ.shape == sites["z"].kl_BZ.shape == (4, 1)


def test_the_elbos_expectation_does_not_depend_on_how_many_gates_and_codes_are_drawn(world: World) -> None:
    model = world.models["hsvae"]
    exact = exact_elbo(model, world.split)
    truths = {"reconstruction": exact.reconstruction_N, "kl_gate": exact.kl_gate_N, "kl_z": exact.kl_z_N}
    batch = make_batch(world.split, np.arange(len(world.split)))
    spreads = {}
    for gates, codes in ((1, 1), (4, 1), (1, 4), (3, 2)):
        objective = Elbo(ElboObjective(samples=gates, codes_per_gate=codes), model)
        found: dict[str, list[float]] = {name: [] for name in truths}
        with torch.no_grad():
            for seed in range(200):
                terms = objective(passed(model, batch, seed, objective.samples, objective.per_gate), NOW).terms
                for name, values in found.items():
                    values.append(terms[name].values.double().mean().item())
        for name, truth_N in truths.items():
            error = np.std(found[name]) / len(found[name]) ** 0.5
            assert abs(np.mean(found[name]) - truth_N.mean()) < 4 * error + 1e-3
        spreads[gates, codes] = np.std(found["kl_z"])
    assert spreads[4, 1] < 0.7 * spreads[1, 1]
    assert spreads[1, 4] < 0.85 * spreads[1, 1]


def test_weights_of_gates_and_codes_are_applied_each_to_its_own(world: World) -> None:
    model = world.models["hsvae"]
    batch = make_batch(world.split, np.arange(len(world.split)))
    warm_up = {"kind": "linear", "start": 0.0, "end": 0.5, "over": 10, "unit": "steps"}
    objective = Elbo(ElboObjective(kl_weight=0.01, gate_kl_weight=warm_up), model)
    terms = objective(passed(model, batch, 0, 1, 1), Progress(5, 0.0))
    assert terms.weights == {"reconstruction": 1.0, "kl_gate": 0.25, "kl_z": 0.01}
    means = terms.means(len(batch))
    loss = means["reconstruction"] + 0.25 * means["kl_gate"] + 0.01 * means["kl_z"]
    torch.testing.assert_close(terms.loss(means), loss)
    alike = Elbo(ElboObjective(kl_weight=0.3), model)(passed(model, batch, 0, 1, 1), NOW)
    assert alike.weights == {"reconstruction": 1.0, "kl_gate": 0.3, "kl_z": 0.3}
