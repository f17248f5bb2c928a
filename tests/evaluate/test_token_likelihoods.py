"""Likelihoods where every token has a code, in a world so small that its codes can be integrated over: three words,
codes of one dimension, at most two words in a sentence."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from helpers import small
from numpy.typing import NDArray
from tiny_encoder import tiny_encoder
from torch import Tensor

from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import prepare
from textspace.data.tokenizers import Tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.aggregated import AggregatedPosterior
from textspace.evaluate.likelihood import likelihood
from textspace.lengths import Lengths
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES

SCALE = 0.7
NODES = 12
"""Of Gauss-Hermite quadrature in each dimension; with 9 the results are the same to four digits."""
WORDS = ["a", "b", "c", "x"]  # the last is unknown


@dataclass(frozen=True, eq=False)
class World:
    tokenizer: Tokenizer
    every: EncodedSplit
    """Every sentence of at most two words, unknown ones and none at all included."""
    words_N: NDArray[np.int64]
    model: Model


@pytest.fixture(scope="module")
def world() -> World:
    prepared = prepare(corpus_of(["a b c", "b c", "c a", "a"] * 20), Recipe())
    texts = [" ".join(each) for length in range(3) for each in itertools.product(WORDS, repeat=length)]
    every = EncodedSplit.of(texts, prepared.tokenizer, None)
    changes = {"latent.dim": 1, "prior.scale": SCALE, "initial.weights": 0.6, "initial.embeddings": 0.3}
    changes |= {"training.seed": 1}  # start values at which the code matters
    model = Model(small(RECIPES["vat"]).but(changes), len(prepared.tokenizer)).eval()
    with torch.no_grad():
        model.posterior.mean.weight.mul_(0.6)
        model.posterior.log_variance.weight.mul_(0.2)
        model.posterior.log_variance.bias.fill_(-0.4)  # wide enough that importance weights have a variance
        for layer in model.decoder.layers:
            layer.code.key_value.weight.mul_(3)  # the code matters
    return World(prepared.tokenizer, every, np.asarray(every.lengths, np.int64) - 2, model)


def by_quadrature(model: Model, split: EncodedSplit, row: int, has_end: bool) -> float:
    """log of the integral of p(x | z_1 .. z_U) N(z; 0, s^2) dz, U the words and the start and end tokens."""
    batch = make_batch(split, np.array([row]))
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    count = int(batch.encoder.lengths_B[0])
    z_SU = torch.tensor(list(itertools.product(SCALE * points, repeat=count)))
    log_weight_S = torch.tensor(list(itertools.product(np.log(weights / weights.sum()), repeat=count))).sum(1)
    last = int(batch.decoder.lengths_B[0]) - (1 if has_end else 2)
    found = []
    with torch.no_grad():
        for z_RU in z_SU.float().split(4000):
            noise = Noise(0, 0, batch.rows_B)
            z = z_RU[:, None, :, None]
            log_px = model.decoder(z, batch.decoder, noise, has_end=has_end, mask_BU=batch.encoder.mask_BT)
            found.append(log_px[:, 0, :last].double().sum(1))
    return float((torch.cat(found) + log_weight_S).logsumexp(0))


@cache
def truths(world: World, has_end: bool) -> NDArray[np.float64]:
    return np.array([by_quadrature(world.model, world.every, row, has_end) for row in range(len(world.every))])


def test_importance_weights_converge_to_the_integral_from_above(world: World) -> None:
    log_px_N = truths(world, has_end=True)
    assert np.ptp(log_px_N) > 1
    gaps = []
    for samples, seeds in ((1, 60), (10, 30), (2000, 2)):
        drawn = [likelihood(world.model, world.every, samples=samples, seed=seed).nll_N for seed in range(seeds)]
        gaps.append(float((np.mean(drawn, axis=0) + log_px_N).mean()))
    assert gaps[0] > gaps[1] > gaps[2] > -0.01
    assert gaps[0] > 0.1
    assert gaps[2] < 0.02
    np.testing.assert_allclose(drawn[0], -log_px_N, atol=0.1)


def test_the_integral_itself_knows_the_codes(world: World) -> None:
    """Else the test above would pass without them."""
    batch = make_batch(world.every, np.arange(len(world.every)))

    def at(z: float) -> Tensor:
        z_SBUZ = torch.full((1, len(world.every), batch.encoder.ids_BT.shape[1], 1), z)
        noise = Noise(0, 0, batch.rows_B)
        with torch.no_grad():
            return world.model.decoder(z_SBUZ, batch.decoder, noise, mask_BU=batch.encoder.mask_BT)[0, :, 0]

    assert (at(SCALE) - at(-SCALE)).abs().mean() > 0.3


def test_with_a_distribution_of_lengths_all_sentences_together_have_probability_one(world: World) -> None:
    lengths = Lengths([3, 10, 2])
    log_px_N = truths(world, has_end=False) + lengths.log_prob(world.words_N)
    for length in range(3):
        of_length = math.exp(lengths.log_prob([length])[0])
        assert np.exp(log_px_N[world.words_N == length]).sum() == pytest.approx(of_length, abs=1e-5)
    options = {"end_token": "length", "lengths": lengths}
    measured = likelihood(world.model, world.every, samples=2000, **options)
    np.testing.assert_allclose(measured.nll_N, -log_px_N, atol=0.1)
    assert np.exp(-measured.nll_N).sum() == pytest.approx(1, abs=0.02)


def test_with_the_end_token_the_length_is_given(world: World) -> None:
    """Of every length there is a distribution of its own, and what it leaves goes to sentences of other lengths."""
    log_px_N = truths(world, has_end=True)
    for length in range(3):
        assert 0.01 < np.exp(log_px_N[world.words_N == length]).sum() < 0.999


def test_names_say_that_the_length_is_given_unless_it_has_a_probability(world: World) -> None:
    endings = {
        "included": ", given the length",
        "dropped": ", the end token left out, given the length",
        "length": ", as p_seq(x|z) p(length), the end token without probability",
    }
    for end_token, words in endings.items():
        lengths = Lengths([1, 1, 1]) if end_token == "length" else None
        found = likelihood(world.model, world.every, samples=2, end_token=end_token, lengths=lengths)
        estimates = found.estimates()
        assert {key for key, each in estimates.items() if not each.name.endswith(words)} == {"kl"}
        assert found.settings.get("given") == (None if end_token == "length" else "the length")
    sentence_level = Model(small(RECIPES["transformer-vae"]), len(world.tokenizer))
    assert "given" not in likelihood(sentence_level, world.every, samples=2).estimates()["nll"].name


def test_of_an_encoder_with_a_tokenizer_of_its_own_the_number_of_its_tokens_is_given() -> None:
    encoder = {"kind": "pretrained", "model": str(tiny_encoder())}
    recipe = small(RECIPES["vat"]).but({"share_embeddings": False, "encoder": encoder})
    prepared = prepare(corpus_of(["a b c", "b c", "c a", "a"] * 20), recipe.but({"text": Recipe().text.model_dump()}))
    model = Model(recipe, len(prepared.tokenizer))
    split = prepared.encoded.splits["train"]
    for end_token, lengths in (("included", None), ("length", Lengths([1, 1, 1, 1]))):
        found = likelihood(model, split, samples=2, end_token=end_token, lengths=lengths)
        assert np.isfinite(found.nll_N).all()
        assert found.estimates()["nll"].name.endswith(", given the encoder's number of tokens")


def test_the_elbo_is_reconstruction_and_the_kl_of_all_tokens(world: World) -> None:
    found = likelihood(world.model, world.every, seed=3)
    batch = make_batch(world.every, np.arange(len(world.every)))
    with torch.no_grad():
        passed = world.model(batch, Noise(3, 0, batch.rows_B))
    q = passed.sites["z"].q
    for row, words in enumerate(world.words_N):
        mean, deviation = (part[row, : words + 2, 0].double() for part in (q.mean, q.stddev))
        kl = (math.log(SCALE) - deviation.log() + (deviation**2 + mean**2) / (2 * SCALE**2) - 0.5).sum().item()
        assert found.kl_N["z"][row] == pytest.approx(kl, abs=1e-4)
    np.testing.assert_allclose(found.elbo_N, found.reconstruction_N + found.kl_N["z"])
    np.testing.assert_allclose(found.reconstruction_N, -passed.log_px_SB[0], atol=1e-4)
    assert found.kl_per_dimension["z"] == pytest.approx([found.kl_N["z"].mean()], abs=1e-4)


@pytest.mark.parametrize("options", [{"chunk": 3}, {"batch_tokens": 9}, {"chunk": 2, "batch_tokens": 12}])
def test_neither_chunks_nor_batches_change_anything(world: World, options: dict[str, int]) -> None:
    whole = likelihood(world.model, world.every, samples=7)
    parts = likelihood(world.model, world.every, samples=7, **options)
    for name in ("nll_N", "elbo_N", "reconstruction_N", "effective_samples_N"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-4)


def test_any_width_of_the_proposal_bounds_the_same_likelihood(world: World) -> None:
    log_px_N = truths(world, has_end=True)
    measured = likelihood(world.model, world.every, samples=3000, proposal_scale=1.5)
    assert -0.02 < (measured.nll_N + log_px_N).mean() < 0.03


def test_an_aggregated_posterior_is_one_of_sentences(world: World) -> None:
    with pytest.raises(TextspaceError, match="in this space every token has a code"):
        AggregatedPosterior.of(world.model, world.every)
