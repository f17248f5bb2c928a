"""Hoyer of a space's codes against its mathematics, and gates against posteriors whose gates we set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import gated, subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.hoyer import average_hoyer, hoyer_error
from textspace.evaluate.measure import Findings, Subject
from textspace.evaluate.measures.sparsity import sparse_codes, sparsity
from textspace.recipes import RECIPES
from textspace.recipes.sparse import Asked, asked_share
from textspace.space import Space

TEXTS = tiny_sentences(200)


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return gated(tiny.tokenizer)


def value(findings: Findings, key: str) -> float:
    return findings.estimates[key].value


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
        assert estimate.stderr == hoyer_error(codes_NZ)
        assert estimate.settings["error"].endswith("over 50 blocks of sentences, deviations taken anew")
        assert f"hoyer_{kind}" not in found.per_sentence  # which do not scatter as their mean does
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
    columns = ([0.1, 0.2, 0, 0.3], [0.9, 0.7, 0.6, 0.8], [0.8, 0.1, 0.1, 0.4], [0.5] * 4)
    assert value(found, "gate_deviation") == pytest.approx(np.mean([np.std(column) for column in columns]))
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
        space.model.posterior.slab[-1].bias[16:] = math.log(math.expm1(1.0))
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
