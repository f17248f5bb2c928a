"""Hoyer and gates against numbers by hand, closed forms, and posteriors whose gates we set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import gated, subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Subject
from textspace.evaluate.measures.sparsity import (
    Asked,
    asked_share,
    average_hoyer,
    deviations,
    hoyer,
    sparse_codes,
    sparsity,
)
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(200)


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return gated(tiny.tokenizer)


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(5)


def value(findings: Findings, key: str) -> float:
    return findings.estimates[key].value


# Hoyer


def test_one_dimension_is_1_and_equal_ones_are_0() -> None:
    for dims in (2, 7, 32):
        np.testing.assert_allclose(hoyer(-3.5 * np.eye(dims)), 1)
        np.testing.assert_allclose(hoyer(np.full((3, dims), -0.2) * [[1], [5], [1e-9]]), 0, atol=1e-12)


def test_hoyer_by_hand() -> None:
    np.testing.assert_allclose(hoyer(np.array([[3.0, -4.0]])), (math.sqrt(2) - 7 / 5) / (math.sqrt(2) - 1))
    # Deviations 1 and 2, so the codes become (1, 0) and (3, 2): divided, and not centred.
    found = average_hoyer(np.array([[1.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(found.values_N, [1, (math.sqrt(2) - 5 / math.sqrt(13)) / (math.sqrt(2) - 1)])
    assert (found.dead, found.zeros) == (0, 0)


@pytest.mark.parametrize(("dims", "about"), [(32, 0.24), (768, 0.21)])
def test_a_dense_gaussian_has_the_hoyer_of_its_formula(dims: int, about: float, chance) -> None:
    # E[l1 / l2] = d E|u| for a direction u on the sphere.
    ratio = dims * math.exp(math.lgamma(dims / 2) - math.lgamma((dims + 1) / 2)) / math.sqrt(math.pi)
    exact = (math.sqrt(dims) - ratio) / (math.sqrt(dims) - 1)
    values_N = average_hoyer(chance.normal(size=(3_000, dims))).values_N
    assert exact == pytest.approx(about, abs=0.005)
    assert values_N.mean() == pytest.approx(exact, abs=4 * values_N.std() / math.sqrt(3_000))


def test_codes_with_so_many_dimensions_on_have_a_hoyer_by_hand(chance) -> None:
    """Each sentence has m of d dimensions at plus or minus the dimension's own scale, all dimensions equally often."""
    dims, on = 16, 3
    places = np.stack([np.roll(np.arange(dims) < on, shift) for shift in range(dims)]).astype(float)
    codes_NZ = np.concatenate([places, -places]) * chance.uniform(0.01, 100, size=dims)
    found = average_hoyer(codes_NZ)
    np.testing.assert_allclose(found.values_N, (math.sqrt(dims) - math.sqrt(on)) / (math.sqrt(dims) - 1))


def test_the_scale_of_a_dimension_does_not_count_and_its_offset_does(chance) -> None:
    codes_NZ = chance.normal(size=(50, 6)) * (chance.random((50, 6)) < 0.3)
    scaled = average_hoyer(codes_NZ * np.array([1e-6, -3, 1, 70, 1e5, 0.5])).values_N
    np.testing.assert_allclose(scaled, average_hoyer(codes_NZ).values_N)
    assert average_hoyer(codes_NZ + 5).values_N.mean() < np.nanmean(average_hoyer(codes_NZ).values_N) - 0.3


def test_dimensions_that_never_change_stay_0_and_count_as_dimensions(chance) -> None:
    alive_NZ = chance.normal(size=(400, 4))
    dead_NZ = np.broadcast_to([7.0, -0.1, 0.0, 30.0], (400, 4)).astype(np.float32)
    rounded_NZ = dead_NZ * (1 + 1e-7 * chance.normal(size=(400, 4)).astype(np.float32))
    for beside in (dead_NZ, rounded_NZ):
        found = average_hoyer(np.concatenate([alive_NZ, beside.astype(np.float64)], axis=1))
        assert found.dead == 4
        alone_N = math.sqrt(4) - hoyer(alive_NZ / alive_NZ.std(0)) * (math.sqrt(4) - 1)  # l1 / l2
        np.testing.assert_allclose(found.values_N, (math.sqrt(8) - alone_N) / (math.sqrt(8) - 1))
    np.testing.assert_allclose(deviations(alive_NZ), alive_NZ.std(0))


def test_codes_of_zeros_have_no_hoyer_and_are_counted() -> None:
    found = average_hoyer(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -2.0], [0.0, 0.0]]))
    assert found.zeros == 2
    assert found.there_M.tolist() == [1, 1]
    assert np.isnan(found.values_N[[0, 3]]).all()
    assert average_hoyer(np.ones((3, 2))).zeros == 3


def test_the_error_is_the_spread_over_other_sentences(chance) -> None:
    found = [average_hoyer(chance.normal(size=(100, 8)) * (chance.random((100, 8)) < 0.5)).there_M for _ in range(200)]
    errors = [values.std(ddof=1) / math.sqrt(len(values)) for values in found]
    assert np.mean(errors) == pytest.approx(np.std([values.mean() for values in found]), rel=0.2)


# What was asked


def test_what_recipes_ask_for() -> None:
    asked = asked_share(RECIPES["hsvae"].but({"prior.alpha": 1.0, "prior.beta": 3.0}))
    assert asked == Asked(0.25, "the prior Beta(1, 3) of gates")
    assert asked_share(RECIPES["mat-vae"]) == Asked(0.8, "the spike-and-slab prior")
    ton = asked_share(RECIPES["ton-vae"].but({"objective.gate_share.off": 0.3}))
    assert ton is not None
    assert ton.off == 0.3
    assert asked_share(RECIPES["vae-dense"]) is None


# The measure


def test_every_number_of_a_space_with_gates_is_of_its_own_codes(space: Space) -> None:
    subject = subject_on(space, TEXTS)
    test, found = subject.test, sparsity(subject)
    slab_NZ, on_NZ = test.slab_NZ, space.encode(TEXTS, what="gates")
    np.testing.assert_allclose(test.gates_NZ, on_NZ)
    np.testing.assert_allclose(test.means_NZ, on_NZ * slab_NZ, atol=1e-6)
    np.testing.assert_allclose(sparse_codes(test), space.encode(TEXTS, sparse=True).toarray(), rtol=1e-5)
    kinds = {"samples": test.samples_NZ, "means": test.means_NZ, "slab": slab_NZ, "sparse": sparse_codes(test)}
    for kind, codes_NZ in kinds.items():
        values = average_hoyer(codes_NZ).values_N
        estimate = found.estimates[f"hoyer_{kind}"]
        assert estimate.value == pytest.approx(values.mean())
        assert estimate.stderr == pytest.approx(values.std(ddof=1) / math.sqrt(len(values)))
        assert found.per_sentence[f"hoyer_{kind}"] == pytest.approx(values.tolist())
        assert (estimate.n, estimate.settings["dead_dimensions"], estimate.settings["zero_vectors"]) == (200, 0, 0)
    assert "(1 - E gamma) x the slab's mean" in found.estimates["hoyer_means"].name
    assert "one posterior sample" in found.estimates["hoyer_samples"].name
    assert value(found, "hoyer_sparse") > value(found, "hoyer_slab")
    assert set(found.pictures["hoyer"].series) == {
        "posterior samples",
        "posterior means",
        "dense Gaussian (floor)",
        "draws of the prior",
    }
    assert sparsity(subject_on(space, TEXTS)) == found


def test_without_gates_there_is_hoyer_alone(tiny, small_vae) -> None:
    found = sparsity(subject_on(untrained(small_vae, tiny.tokenizer), TEXTS))
    assert set(found.estimates) == {"hoyer_samples", "hoyer_means", "hoyer_dense"}
    assert found.estimates["hoyer_means"].name.endswith("of posterior means")
    points = small_vae.but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    found = sparsity(subject_on(untrained(points, tiny.tokenizer), TEXTS))
    assert set(found.estimates) == {"hoyer_samples", "hoyer_dense"}
    fixed = sparsity(subject_on(untrained(small(RECIPES["mat-vae"]), tiny.tokenizer), TEXTS))
    assert set(fixed.estimates) == {"hoyer_samples", "hoyer_means", "hoyer_dense", "hoyer_prior"}


def test_a_single_dimension_has_no_hoyer(tiny, small_vae) -> None:
    one = subject_on(untrained(small_vae.but({"latent.dim": 1}), tiny.tokenizer), TEXTS)
    with pytest.raises(TextspaceError, match="Hoyer needs 2 dimensions"):
        sparsity(one)
    found = sparsity(subject_on(gated(tiny.tokenizer, **{"latent.dim": 1}), TEXTS))
    assert "share_off" in found.estimates
    assert "hoyer_samples" not in found.estimates


def test_collapsed_means_have_no_hoyer(tiny, small_vae) -> None:
    space = untrained(small_vae, tiny.tokenizer)
    with torch.no_grad():
        space.model.posterior.mean.weight.zero_()
    found = sparsity(subject_on(space, TEXTS))
    assert "hoyer_means" not in found.estimates
    rows = {row[0]: row[1:] for row in found.tables["hoyer"].rows}
    assert rows["posterior means"] == (None, 4, 200)


def with_gates(subject: Subject, on_NZ: np.ndarray) -> Subject:
    subject.test.__dict__["gates_NZ"] = on_NZ
    return subject


def test_shares_by_hand(space: Space) -> None:
    """Four sentences: dimension 1 is always off, 2 always on, 3 on once, 4 at exactly one half, which is on."""
    on_NZ = np.array([[0.1, 0.9, 0.8, 0.5], [0.2, 0.7, 0.1, 0.5], [0.0, 0.6, 0.1, 0.5], [0.3, 0.8, 0.4, 0.5]])
    found = sparsity(with_gates(subject_on(space, TEXTS[:4]), np.repeat(on_NZ, 2, axis=1)))
    assert value(found, "share_off") == pytest.approx((1 / 4 + 3 * 2 / 4) / 4)
    assert found.per_sentence["share_off"] == pytest.approx([1 / 4, 1 / 2, 1 / 2, 1 / 2])
    assert value(found, "share_off_deviation") == pytest.approx(np.std([1 / 4, 1 / 2, 1 / 2, 1 / 2]))
    assert value(found, "off_probability") == pytest.approx(1 - on_NZ.mean())
    assert value(found, "dead_dimensions") == 2
    assert value(found, "always_on_dimensions") == 4
    assert value(found, "share_off_asked") == 0.8
    assert value(found, "off_less_asked") == pytest.approx(0.2 - on_NZ.mean())
    assert found.pictures["density"].series["on (E gamma <= 0.5)"] == [1, 1, 1, 1, 0.25, 0.25, 0, 0]


def test_a_posterior_that_is_the_prior_achieves_what_was_asked(tiny) -> None:
    """Beta(4, 1) gates and a standard normal slab, whatever the sentence."""
    space = gated(tiny.tokenizer, **{"posterior.layers": 0, "posterior.slab_sees_gates": False, "latent.dim": 16})
    raw = {"alpha": math.log(math.expm1(4.0)), "beta": math.log(math.expm1(1.0))}  # before softplus
    with torch.no_grad():
        for layer in (space.model.posterior.gates[-1], space.model.posterior.slab[-1]):
            layer.weight.zero_()
            layer.bias.zero_()
        space.model.posterior.gates[-1].bias.copy_(torch.tensor([raw["alpha"]] * 16 + [raw["beta"]] * 16))
    found = sparsity(subject_on(space, tiny_sentences(400) * 4))
    assert value(found, "off_probability") == pytest.approx(0.8, abs=1e-6)
    assert value(found, "off_less_asked") == pytest.approx(0, abs=1e-6)
    assert value(found, "share_off") == 1
    assert value(found, "dead_dimensions") == 16
    error = math.hypot(found.estimates["hoyer_samples"].stderr, found.estimates["hoyer_prior"].stderr)
    assert value(found, "hoyer_samples") == pytest.approx(value(found, "hoyer_prior"), abs=4 * error)
    assert value(found, "hoyer_samples") > value(found, "hoyer_dense") + 0.2
    assert "hoyer_sparse" not in found.estimates  # every code is zero: the table says so
    assert [row[1:] for row in found.tables["hoyer"].rows if str(row[0]).startswith("sparse")] == [(None, 16, 1600)]


def test_gates_that_are_open_switch_nothing_off(tiny) -> None:
    space = gated(tiny.tokenizer)
    with torch.no_grad():
        last = space.model.posterior.gates[-1]
        last.weight.zero_()
        last.bias.copy_(torch.tensor([-5.0] * 8 + [60.0] * 8))
    found = sparsity(subject_on(space, TEXTS))
    assert (value(found, "share_off"), value(found, "always_on_dimensions")) == (0, 8)
    assert value(found, "off_probability") < 0.01
