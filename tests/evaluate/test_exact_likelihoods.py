"""Likelihoods of a world so small that all its sentences can be written down: three words, codes of one dimension."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import small
from torch.distributions import Categorical, MixtureSameFamily, Normal

from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import prepare
from textspace.data.tokenizers import Tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.aggregated import AggregatedPosterior, nearest_bound
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.melbo import Melbo
from textspace.lengths import Lengths
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES

LONGEST = 3
UNKNOWN_WORD = "x"
GRID = torch.linspace(-9, 9, 3601)
STEP = 18 / 3600


class World(NamedTuple):
    tokenizer: Tokenizer
    every: EncodedSplit
    """Every sentence of at most three words, unknown ones and none at all included."""
    model: Model


def split_of(texts: list[str], tokenizer: Tokenizer) -> EncodedSplit:
    return EncodedSplit.of(texts, tokenizer, None)


@pytest.fixture(scope="module")
def world() -> World:
    prepared = prepare(corpus_of(["a b c", "b c", "c a", "a"] * 20), Recipe())
    words = ["a", "b", "c", UNKNOWN_WORD]
    texts = [" ".join(each) for length in range(LONGEST + 1) for each in itertools.product(words, repeat=length)]
    every = split_of(texts, prepared.tokenizer)
    assert len({each.tobytes() for each in map(every.ids, range(len(every)))}) == 1 + 4 + 16 + 64
    assert len(prepared.tokenizer) == 7  # padding, start, unknown, end, and the words
    changes = {"latent.dim": 1, "initial.weights": 0.6, "initial.embeddings": 0.5}
    changes |= {"training.seed": 4}  # start values at which importance weights do not scatter too much
    model = Model(small(RECIPES["vae"]).but(changes), len(prepared.tokenizer)).eval()
    with torch.no_grad():
        model.decoder.first_state.weight.mul_(3)
        model.posterior.mean.weight.mul_(2)
        model.posterior.log_variance.bias.fill_(-0.3)
    return World(prepared.tokenizer, every, model)


@pytest.fixture(scope="module")
def language_model(world: World) -> Model:
    return Model(small(RECIPES["lstm-lm"]), len(world.tokenizer)).eval()


def on_grid(model: Model, split: EncodedSplit, has_end: bool = True) -> torch.Tensor:
    """log p(x | z) of every sentence (columns) at every point of the grid (rows), words and end by hand."""
    batch = make_batch(split, np.arange(len(split)))
    found = []
    with torch.no_grad():
        for z in GRID.split(400):
            z_SBZ = z[:, None, None].expand(-1, len(split), 1)
            tokens_SBT = model.decoder(z_SBZ, batch.decoder, Noise(0, 0, batch.rows_B), has_end=has_end).double()
            last_B = batch.decoder.lengths_B - (1 if has_end else 2)
            counted_BT = torch.arange(tokens_SBT.shape[2]) < last_B[:, None]
            found.append(tokens_SBT.where(counted_BT, 0.0).sum(2))
    return torch.cat(found)


def integrated(log_px_GB: torch.Tensor, log_density_G: torch.Tensor) -> np.ndarray:
    """-log of the integral of p(x | z) density(z) dz, by the trapezoid rule."""
    return -((log_px_GB + log_density_G[:, None].double()).logsumexp(0) + math.log(STEP)).numpy()


def posteriors(model: Model, split: EncodedSplit) -> Normal:
    batch = make_batch(split, np.arange(len(split)))
    with torch.no_grad():
        q = model.sites(model.features(batch.encoder), Noise(0, 0, batch.rows_B), 1)["z"].q
    return Normal(q.mean[:, 0].double(), q.stddev[:, 0].double())


def mixture_density(q: Normal) -> torch.Tensor:
    return MixtureSameFamily(Categorical(torch.ones(len(q.mean))), q).log_prob(GRID.double())


# How sentences end


def test_with_a_distribution_of_lengths_all_sentences_together_have_probability_one(world, language_model) -> None:
    lengths = Lengths([3, 10, 2, 5])
    exact = likelihood(language_model, world.every, end_token="length", lengths=lengths)
    assert np.exp(-exact.nll_N).sum() == pytest.approx(1, abs=1e-6)
    tokens_N = np.asarray(world.every.lengths) - 2
    for length in range(LONGEST + 1):
        of_length_N = tokens_N == length
        assert np.exp(-exact.nll_N[of_length_N]).sum() == pytest.approx(np.exp(lengths.log_prob([length])[0]), abs=1e-6)


def test_with_codes_too(world) -> None:
    lengths = Lengths([3, 10, 2, 5])
    tokens_N = np.asarray(world.every.lengths) - 2
    log_px_GB = on_grid(world.model, world.every, has_end=False) + torch.from_numpy(lengths.log_prob(tokens_N))
    np.testing.assert_allclose(log_px_GB.exp().sum(1), 1, atol=1e-5)  # whatever the code
    nll_N = integrated(log_px_GB, Normal(0.0, 1.0).log_prob(GRID))
    assert np.exp(-nll_N).sum() == pytest.approx(1, abs=1e-5)
    options = {"end_token": "length", "lengths": lengths, "proposal_scale": 2.0}
    measured = likelihood(world.model, world.every, samples=1000, **options)
    assert np.exp(-measured.nll_N).sum() == pytest.approx(1, abs=0.03)
    np.testing.assert_allclose(measured.nll_N, nll_N, atol=0.2)


def test_with_an_end_token_short_sentences_leave_room_for_longer_ones(world, language_model) -> None:
    included = likelihood(language_model, world.every)
    total = np.exp(-included.nll_N).sum()
    assert 0.3 < total < 0.95
    # Without the end token's term every length has probability one for itself, less what ends earlier.
    dropped = likelihood(language_model, world.every, end_token="dropped")
    assert np.exp(-dropped.nll_N[0]) == pytest.approx(1)  # the empty sentence
    assert np.exp(-dropped.nll_N).sum() > 1


def test_dropping_the_end_leaves_the_words_share_and_masking_it_gives_them_all(world, language_model) -> None:
    lengths = Lengths([1, 1, 1, 1])
    kept = likelihood(language_model, world.every, keep_tokens=True)
    dropped = likelihood(language_model, world.every, end_token="dropped")
    masked = likelihood(language_model, world.every, end_token="length", lengths=lengths, keep_tokens=True)
    tokens_N = np.asarray(world.every.lengths) - 2
    np.testing.assert_allclose(dropped.nll_N, kept.nll_N + [t[-1] for t in kept.tokens], atol=1e-5)
    np.testing.assert_allclose(-masked.nll_N, [t.sum() for t in masked.tokens] + masked.log_length_N, atol=1e-5)
    np.testing.assert_allclose(masked.log_length_N, math.log(1 / 4))
    assert [len(t) for t in masked.tokens] == tokens_N.tolist()
    assert (-masked.nll_N - masked.log_length_N > -dropped.nll_N)[tokens_N > 0].all()
    assert masked.counts_N["token"].tolist() == tokens_N.tolist()
    assert [row["log_length"] for row in masked.rows()] == masked.log_length_N.tolist()


def test_names_say_how_sentences_end(world) -> None:
    lengths = Lengths([1, 1, 1, 1])
    words = {
        "dropped": ", the end token left out",
        "length": ", as p_seq(x|z) p(length), the end token without probability",
    }
    for end_token, expected in words.items():
        given = lengths if end_token == "length" else None
        estimates = likelihood(world.model, world.every, samples=2, end_token=end_token, lengths=given).estimates()
        assert {key for key, each in estimates.items() if not each.name.endswith(expected)} == {"kl"}
        assert all(each.settings["end_token"] == end_token for each in estimates.values())


@pytest.mark.parametrize(("end_token", "lengths"), [("length", None), ("dropped", Lengths([1]))])
def test_lengths_and_their_rule_go_together(world, end_token, lengths) -> None:
    with pytest.raises(TextspaceError, match="go together"):
        likelihood(world.model, world.every, end_token=end_token, lengths=lengths)


# The three bounds

TRAIN = ["a", "b c", "c", "a b c", "b b", "c a b", "a a"]
TEST = ["b", "a b", "c c a", "a c", "b c", "c b a", "a b a", "b a"]


@pytest.fixture(scope="module")
def splits(world) -> tuple[EncodedSplit, EncodedSplit]:
    return split_of(TRAIN, world.tokenizer), split_of(TEST, world.tokenizer)


def test_importance_weights_converge_to_the_likelihood_under_either_prior(world, splits) -> None:
    model, (train, test) = world.model, splits
    log_px_GB = on_grid(model, test)
    truths = {
        "normal": integrated(log_px_GB, Normal(0.0, 1.0).log_prob(GRID)),
        "mixture": integrated(log_px_GB, mixture_density(posteriors(model, train))),
    }
    assert np.abs(truths["normal"] - truths["mixture"]).mean() > 0.02  # the priors differ
    prior = AggregatedPosterior.of(model, train)
    gaps: dict[str, list[float]] = {"normal": [], "mixture": []}
    for samples, seeds in ((1, 200), (10, 50), (3000, 1)):
        drawn = [
            likelihood(model, test, samples=samples, priors={"mixture": prior}, seed=seed) for seed in range(seeds)
        ]
        for name, truth_N in truths.items():
            bounds = [each.nll_N if name == "normal" else each.under["mixture"].nll_N for each in drawn]
            gaps[name].append(float((np.mean(bounds, axis=0) - truth_N).mean()))
    measured = drawn[0]
    for gap in gaps.values():
        assert gap[0] > 0.03
        assert gap[0] > gap[1] > gap[2] > -0.02
        assert gap[2] < 0.02
    estimates = measured.estimates()
    name = "importance-weighted NLL under the aggregated posterior of 7 training sentences, 3000 samples, upper bound"
    assert estimates["nll_mixture"].name == name
    assert estimates["nll_mixture"].bound == "upper"
    assert estimates["effective_samples_mixture"].value > 100


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 4.0])
def test_any_width_of_the_proposal_bounds_the_same_likelihood(world, splits, scale: float) -> None:
    model, (train, test) = world.model, splits
    log_px_GB = on_grid(model, test)
    prior = AggregatedPosterior.of(model, train)
    measured = likelihood(model, test, samples=6000, priors={"mixture": prior}, proposal_scale=scale)
    truth_N = integrated(log_px_GB, Normal(0.0, 1.0).log_prob(GRID))
    mixture_N = integrated(log_px_GB, mixture_density(posteriors(model, train)))
    limit = 0.02 if scale >= 1 else 0.8  # a proposal narrower than p(z|x) converges slowly, from above
    assert -0.02 < (measured.nll_N - truth_N).mean() < limit
    assert -0.02 < (measured.under["mixture"].nll_N - mixture_N).mean() < limit


def test_the_proposals_width_leaves_the_posteriors_own_numbers_alone(world, splits) -> None:
    test = splits[1]
    one, wide = likelihood(world.model, test), likelihood(world.model, test, samples=20, proposal_scale=3)
    for name in ("reconstruction_N", "elbo_N"):
        np.testing.assert_allclose(getattr(wide, name), getattr(one, name), atol=1e-5)
    np.testing.assert_allclose(wide.kl_N["z"], one.kl_N["z"], atol=1e-5)
    assert "proposal: posterior with 3 times its deviation" in wide.estimates()["nll"].name
    assert wide.settings["proposal_scale"] == 3
    assert np.abs(wide.nll_N - likelihood(world.model, test, samples=20).nll_N).max() > 1e-3


def test_the_nearest_components_bound_the_likelihood_under_the_mixture(world, splits) -> None:
    """With all components the mean over seeds is that likelihood; with fewer it is larger."""
    model, (train, test) = world.model, splits
    prior = AggregatedPosterior.of(model, train)
    truth_N = integrated(on_grid(model, test), mixture_density(posteriors(model, train)))
    p_N = np.mean(
        [np.exp(-nearest_bound(model, test, prior, samples=99, seed=seed).nll_N) for seed in range(300)], axis=0
    )
    np.testing.assert_allclose(-np.log(p_N), truth_N, atol=0.03)
    bounds = {count: nearest_bound(model, test, prior, samples=count) for count in (1, 3, 7)}
    gaps = [(each.nll_N - truth_N).mean() for each in bounds.values()]
    assert gaps[0] > gaps[1] > gaps[2] > -0.02
    assert gaps[2] < 0.1
    assert bounds[3].settings["samples"] == 3


def test_neither_chunks_nor_batches_change_the_nearest_components(world, splits) -> None:
    model, (train, test) = world.model, splits
    prior = AggregatedPosterior.of(model, train)
    whole = nearest_bound(model, test, prior, samples=5)
    parts = nearest_bound(model, test, prior, samples=5, chunk=2, batch_tokens=8)
    np.testing.assert_allclose(parts.nll_N, whole.nll_N, atol=1e-5)
    np.testing.assert_allclose(parts.effective_samples_N, whole.effective_samples_N, atol=1e-4)


def test_melbo_is_its_integral_and_bounds_the_likelihood_under_the_set_it_is_of(world, splits) -> None:
    model, (_, test) = world.model, splits
    log_px_GB, q = on_grid(model, test), posteriors(model, test)
    density_GN = Normal(q.mean, q.stddev).log_prob(GRID.double()[:, None]).exp()
    reconstruction = float(-(density_GN * log_px_GB).sum(0).mean() * STEP)
    by_hand = reconstruction + math.log(len(TEST))
    measured = likelihood(model, test, samples=3000)
    estimates = Melbo.of(measured, test).estimates()
    assert estimates["melbo"].value == pytest.approx(by_hand, abs=0.02)
    assert estimates["melbo"].bound == "none"
    under_the_set = float(integrated(log_px_GB, mixture_density(q)).mean())
    assert by_hand > under_the_set + 0.3
    # The likelihood under a prior that knows nothing of the set is another number, on neither side of MELBO.
    assert under_the_set != pytest.approx(
        float(integrated(log_px_GB, Normal(0.0, 1.0).log_prob(GRID)).mean()), abs=0.01
    )
