"""Where codes come from: strength, deviation, sentences, chains, each against doing it by hand; and lengths drawn."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from scipy import stats

from textspace import encoding
from textspace.data.preparing import Prepared
from textspace.data.tokenizers import END, FIRST_PREDICTED
from textspace.errors import TextspaceError
from textspace.generate import Beam, Greedy, Sampling
from textspace.lengths import METRIC, Lengths
from textspace.model import Model
from textspace.noise import Noise, seed_of
from textspace.paths import interpolated
from textspace.recipes import RECIPES
from textspace.sampling import picked
from textspace.space import Space

RECIPE = small(RECIPES["vae"]).but({"initial.weights": 1.0, "training.seed": 3})
KINDS = {
    "gaussian": RECIPE,
    "point": RECIPE.but({"posterior.kind": "delta", "objective.kind": "reconstruction"}),
    "implicit": small(RECIPES["ivae"]).but({"initial.weights": 1.0, "training.seed": 3}),
    "language model": small(RECIPES["lstm-lm"]).but({"initial.weights": 1.0}),
}
TEXTS = tiny_sentences(40)
SHORT = Sampling(max_tokens=8)


@pytest.fixture(scope="module")
def spaces(tiny: Prepared) -> dict[str, Space]:
    """Untrained, with weights large enough that every code decodes to something else; in float64, where rounding
    cannot turn a choice."""
    lengths = Lengths.of(tiny.encoded.splits["train"].lengths - 2, longest=12)
    return {
        kind: Space(recipe, tiny.tokenizer, Model(recipe, len(tiny.tokenizer)).double(), {METRIC: lengths.to_dict()})
        for kind, recipe in KINDS.items()
    }


@pytest.fixture(params=["gaussian", "point", "implicit"])
def each(request: pytest.FixtureRequest, spaces: dict[str, Space]) -> Space:
    return spaces[request.param]


@pytest.fixture
def space(spaces: dict[str, Space]) -> Space:
    return spaces["gaussian"]


# Moved by a strength


def test_a_strength_multiplies_the_distance_of_a_sample_from_the_mean(each: Space) -> None:
    def moved(strength: float | None, **options: Any) -> np.ndarray:
        return each.encode(TEXTS, what="sample", strength=strength, seed=5, **options)

    mean = each.encode(TEXTS, seed=5)
    np.testing.assert_array_equal(moved(0), mean)
    assert np.linalg.norm(moved(1) - mean, axis=1).min() > 1e-3
    np.testing.assert_allclose(moved(10) - mean, 10 * (moved(1) - mean), atol=1e-12)
    np.testing.assert_allclose(moved(10, batch_size=3), moved(10), atol=1e-9)
    assert np.abs(each.encode(TEXTS, what="sample", strength=10, seed=6) - moved(10)).max() > 1e-3


@pytest.mark.parametrize("kind", ["gaussian", "implicit"])
def test_strength_1_is_a_sample_of_the_posterior(kind: str, spaces: dict[str, Space]) -> None:
    drawn = spaces[kind].encode(TEXTS, what="sample", seed=5)
    np.testing.assert_array_equal(spaces[kind].encode(TEXTS, what="sample", strength=1, seed=5), drawn)


def test_a_perturbed_code_has_so_many_times_the_posteriors_deviation(space: Space) -> None:
    mean, deviation = space.encode(TEXTS[0], what="parameters")
    drawn = space.encode([TEXTS[0]] * 4000, what="sample", strength=10)
    np.testing.assert_allclose(drawn.std(0) / deviation, 10, rtol=0.05)
    np.testing.assert_allclose((drawn.mean(0) - mean) / deviation, 0, atol=0.7)


def test_a_point_strays_by_deviations_of_the_prior_and_a_sample_of_it_is_the_point(spaces: dict[str, Space]) -> None:
    many = [TEXTS[0]] * 4000
    mean = spaces["point"].encode(TEXTS[0])
    np.testing.assert_allclose(spaces["point"].encode(many[:3], what="sample"), np.stack([mean] * 3), atol=1e-12)
    strayed = spaces["point"].encode(many, what="sample", strength=0.5) - mean
    np.testing.assert_allclose(strayed.std(0), 0.5, rtol=0.05)
    np.testing.assert_allclose(strayed.mean(0), 0, atol=0.04)


def test_streams_and_reconstructions_move_codes_alike(each: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = each.encode(TEXTS, what="sample", strength=10, seed=2)
    monkeypatch.setattr(encoding, "CHUNK", 7)
    streamed = [part for _, part in each.encode_stream(iter(TEXTS), what="sample", strength=10, seed=2)]
    np.testing.assert_allclose(np.concatenate(streamed), codes, atol=1e-9)
    for method in (Greedy(max_tokens=8), SHORT):
        made = each.reconstruct(TEXTS, what="sample", strength=10, method=method, seed=2)
        assert made == each.decode(codes, method=method, seed=2)
        assert made == each.reconstruct(TEXTS, what="sample", strength=10, method=method, seed=2, batch_size=3)
    assert made != each.reconstruct(TEXTS, method=SHORT, seed=2)


def test_variants_are_moved_as_encoding_moves_codes(each: Space) -> None:
    (variant,) = each.vary(TEXTS[0], 1, strength=3.0, seed=4, method=Greedy(max_tokens=8))
    code = each.encode(TEXTS[0], what="sample", strength=3.0, seed=4)
    assert variant.text == each.decode(code, method=Greedy(max_tokens=8))
    assert variant.moved == pytest.approx(np.linalg.norm(code - each.encode(TEXTS[0], seed=4)))
    moved = {round(variant.moved, 9) for variant in each.vary(TEXTS[0], 6, strength=3.0, method=Greedy(max_tokens=8))}
    assert len(moved) == 6


# Between samples


def test_the_ends_of_an_interpolation_can_be_samples(each: Space) -> None:
    a, b = TEXTS[:2]
    codes = each.encode([a, b], what="sample", seed=7)
    for path in ("linear", "spherical"):
        walked = each.interpolate(a, b, steps=10, path=path, ends="sample", method=SHORT, seed=7)
        assert walked == each.decode(interpolated(*codes, 10, path), method=SHORT, seed=7)
    mixed = each.interpolate(codes[0], b, steps=4, ends="sample", method=SHORT, seed=7)
    assert mixed == each.interpolate(a, b, steps=4, ends="sample", method=SHORT, seed=7)


def test_one_sentence_at_both_ends_gives_two_samples(space: Space) -> None:
    walked = space.interpolate(TEXTS[0], TEXTS[0], steps=2, ends="sample", method=Greedy(max_tokens=8), seed=1)
    codes = space.encode([TEXTS[0]] * 2, what="sample", seed=1)
    assert np.abs(codes[0] - codes[1]).max() > 0.1
    assert walked == space.decode(codes, method=Greedy(max_tokens=8))


# Near the prior's middle


def test_a_deviation_is_that_of_the_codes(space: Space) -> None:
    codes = space.prior_codes(4000, seed=2)
    for deviation, expected in ((0.1, 0.1), ("dim", 0.5), (1, 1.0), (0, 0.0)):
        drawn = space.prior_codes(4000, deviation=deviation, seed=2)
        np.testing.assert_allclose(drawn, expected * codes, atol=1e-15)
        np.testing.assert_allclose(drawn.std(0), expected, rtol=0.05)
    np.testing.assert_array_equal(space.prior_codes(10, deviation=0), np.zeros((10, 4)))


def test_sampling_decodes_codes_of_the_deviation(space: Space) -> None:
    made = space.sample(12, deviation=0.3, method=SHORT, seed=2)
    assert made == space.decode(space.prior_codes(12, deviation=0.3, seed=2), method=SHORT, seed=2)
    assert made[:5] == space.sample(5, deviation=0.3, method=SHORT, seed=2, batch_size=2)
    assert made != space.sample(12, method=SHORT, seed=2)
    assert len(set(space.sample(12, deviation=0, method=Greedy(max_tokens=8)))) == 1


# Of sentences


def test_sentences_are_picked_with_equal_probability_and_independently() -> None:
    count, letters = 7000, "abcdefg"
    found = picked(iter(letters), count, seed=1)
    single = Counter(found)
    assert stats.chisquare([single[letter] for letter in letters]).pvalue > 1e-3
    pairs = Counter(zip(found[::2], found[1::2], strict=True))
    assert stats.chisquare([pairs[a, b] for a in letters for b in letters]).pvalue > 1e-3
    assert found[:30] == picked(list(letters), 30, seed=1)
    assert found != picked(iter(letters), count, seed=2)


def test_the_last_of_many_sentences_is_as_likely_as_the_first() -> None:
    found = np.array([int(each) for each in picked(map(str, range(50_000)), 3000, seed=4)])
    assert stats.kstest(found / 50_000, "uniform").pvalue > 1e-3


def test_one_sentence_with_a_point_for_a_posterior_gives_its_reconstruction(spaces: dict[str, Space]) -> None:
    made = spaces["point"].sample(4, of=[TEXTS[0]], method=Greedy(max_tokens=8))
    assert made == [spaces["point"].reconstruct(TEXTS[0], method=Greedy(max_tokens=8))] * 4


def test_the_aggregated_posterior_is_a_sentence_and_a_sample_of_its_posterior(each: Space) -> None:
    made = each.sample(15, of=(text for text in TEXTS), method=SHORT, seed=3)
    chosen = picked(TEXTS, 15, seed=3)
    assert len(set(chosen)) > 5
    assert made == each.decode(each.encode(chosen, what="sample", seed=3), method=SHORT, seed=3)
    assert made == each.sample(15, of=TEXTS, method=SHORT, seed=3, batch_size=4)
    assert made[:6] == each.sample(6, of=TEXTS, method=SHORT, seed=3)
    assert made != each.sample(15, of=TEXTS, method=SHORT, seed=4)
    assert each.sample(0, of=TEXTS) == []


def test_only_the_sentences_picked_are_encoded(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    encode = Space._split

    def watched(self: Space, texts: Any, troubles: Any) -> Any:
        seen.append(len(texts))
        return encode(self, texts, troubles)

    monkeypatch.setattr(Space, "_split", watched)
    space.sample(3, of=(text for text in TEXTS * 100), method=SHORT)
    assert seen == [3]


def test_unknown_words_of_the_users_sentences_are_told_and_those_of_a_chain_are_not(space: Space) -> None:
    with pytest.warns(UserWarning, match="2 of 2 sentences are mostly words this space does not know") as told:
        space.sample(2, of=["zyx wvu"], method=SHORT)
    assert [Path(each.filename).name for each in told] == ["test_sampling.py"]
    only_unknown = tuple({*range(FIRST_PREDICTED, len(space.tokenizer))} - {FIRST_PREDICTED, END})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = space.sample(2, chain=2, method=Sampling(max_tokens=8, forbidden=only_unknown))
    assert {word for text in made for word in text.split()} == {"<unk>"}


# Chains


def test_a_chain_is_encoding_and_decoding_by_turns(each: Space) -> None:
    texts = each.sample(10, method=SHORT, seed=6)
    for number in (1, 2, 3):
        key = seed_of(6, "chain", number)
        texts = each.decode(each.encode(texts, what="sample", seed=key), method=SHORT, seed=key)
        assert each.sample(10, chain=number, method=SHORT, seed=6) == texts
    assert each.sample(10, chain=3, method=SHORT, seed=6, batch_size=3) == texts
    assert each.sample(4, chain=3, method=SHORT, seed=6) == texts[:4]
    assert each.sample(10, chain=3, method=SHORT, seed=7) != texts


def test_a_chain_of_a_perfect_autoencoder_stays_where_it_is() -> None:
    sentences = ["anna sees cats", "bob likes dogs dogs", "carl hears songs", "dora sees", "bob"]
    recipe = KINDS["point"].but(
        {"training.optimizer.lr": 0.01, "training.epochs": 20, "encoder.hidden": 32, "decoder.hidden": 32}
    )
    trained = Space.fit({"train": sentences * 60, "valid": sentences}, recipe, device="cpu")
    assert trained.reconstruct(sentences) == sentences
    made = trained.sample(20, of=sentences, chain=3, method=Greedy(), seed=1)
    assert made == picked(sentences, 20, seed=1)
    assert set(made) == set(sentences)


def test_empty_sentences_go_through_a_chain(space: Space) -> None:
    words = tuple({*range(FIRST_PREDICTED, len(space.tokenizer))} - {END})
    assert space.sample(3, chain=2, method=Greedy(forbidden=words)) == ["", "", ""]


# Lengths


def drawn_lengths(space: Space, count: int, seed: int) -> list[int]:
    uniform = Noise(seed, 0, torch.arange(count)).uniform("length", (), 1)[0].numpy()
    return Lengths.of_metrics(space.metrics).drawn(uniform).tolist()


@pytest.mark.parametrize("kind", ["gaussian", "language model"])
@pytest.mark.parametrize("method", [Greedy(), Sampling(), Beam(width=3), Sampling(top_k=3, max_tokens=2)], ids=repr)
def test_sentences_have_the_lengths_drawn(kind: str, method: Any, spaces: dict[str, Space]) -> None:
    space = spaces[kind]
    made = space.sample(30, lengths="drawn", method=method, seed=8)
    assert [len(text.split()) for text in made] == drawn_lengths(space, 30, 8)
    assert made == space.sample(30, lengths="drawn", method=method, seed=8, batch_size=7)
    assert made[:9] == space.sample(9, lengths="drawn", method=method, seed=8)
    assert space.sample(0, lengths="drawn") == []


def test_lengths_drawn_are_those_of_training_sentences(space: Space) -> None:
    made = space.sample(3000, lengths="drawn", seed=1)
    seen = np.bincount([len(text.split()) for text in made], minlength=13)
    expected = 3000 * np.exp(Lengths.of_metrics(space.metrics).log_prob(range(13)))
    likely = expected > 5
    assert likely.sum() > 6
    assert stats.chisquare(seen[likely], expected[likely] * seen[likely].sum() / expected[likely].sum()).pvalue > 1e-3
    assert seen[~likely].sum() < 15


def test_all_that_samples_can_be_asked_goes_together(space: Space) -> None:
    made = space.sample(20, of=TEXTS, chain=2, lengths="drawn", method=SHORT, seed=2)
    assert [len(text.split()) for text in made] == drawn_lengths(space, 20, seed_of(2, "chain", 2))
    assert made == space.sample(20, of=TEXTS, chain=2, lengths="drawn", method=SHORT, seed=2, batch_size=3)
    near = space.sample(20, deviation="dim", chain=1, lengths="drawn", seed=2)
    assert [len(text.split()) for text in near] == drawn_lengths(space, 20, seed_of(2, "chain", 1))


# Mistakes

NOT_DRAWN = "and nothing is drawn that it could move: ask for a sample, or leave strength out"
BAD: dict[str, tuple[Callable[[Space], Any], str]] = {
    "a mean moved": (lambda space: space.encode("a", strength=10), f"strength is 10, {NOT_DRAWN}"),
    "parameters moved": (
        lambda space: space.encode("a", what="parameters", strength=0.5),
        f"strength is 0.5, {NOT_DRAWN}",
    ),
    "a mean moved in a stream": (
        lambda space: next(space.encode_stream(["a"], strength=1)),
        f"strength is 1, {NOT_DRAWN}",
    ),
    "the mean's reconstruction moved": (
        lambda space: space.reconstruct("a", strength=10),
        f"strength is 10, {NOT_DRAWN}",
    ),
    "negative strength": (
        lambda space: space.encode("a", what="sample", strength=-1),
        "strength is -1: give a number from 0 (the mean itself) to 1,000,000",
    ),
    "infinite strength": (
        lambda space: space.reconstruct("a", what="sample", strength=float("inf")),
        "strength is inf: give a number from 0 (the mean itself) to 1,000,000",
    ),
    "unknown ends": (
        lambda space: space.interpolate("a", "b", ends="median"),
        "ends cannot be 'median': use 'mean' or 'sample'",
    ),
    "negative deviation": (
        lambda space: space.sample(2, deviation=-0.1),
        "deviation is -0.1: give a number from 0 to 1,000,000, or 'dim' for 1 / sqrt(dimensions)",
    ),
    "NaN deviation": (
        lambda space: space.prior_codes(2, deviation=float("nan")),
        "deviation is nan: give a number from 0 to 1,000,000, or 'dim' for 1 / sqrt(dimensions)",
    ),
    "unknown deviation": (
        lambda space: space.sample(2, deviation="sqrt"),
        "deviation is 'sqrt': give a number from 0 to 1,000,000, or 'dim' for 1 / sqrt(dimensions)",
    ),
    "two starts": (
        lambda space: space.sample(2, of=TEXTS, deviation=0.1),
        "a deviation is of the prior's codes: give it, or sentences to sample around, not both",
    ),
    "no sentences": (
        lambda space: space.sample(2, of=[]),
        "there is no sentence to sample around: give at least one",
    ),
    "one sentence": (
        lambda space: space.sample(2, of="anna"),
        "sentences to sample around cannot be one str: give a list of them",
    ),
    "a number for sentences": (
        lambda space: space.sample(2, of=5),
        "sentences to sample around cannot be one int: give a list of them",
    ),
    "a number among sentences": (
        lambda space: space.sample(200, of=["anna", 5]),
        "sentence 2 is of type int: give strings",
    ),
    "a negative chain": (
        lambda space: space.sample(2, chain=-1),
        "a chain cannot have -1 rounds: give a whole number from 0",
    ),
    "unknown lengths": (
        lambda space: space.sample(2, lengths="long"),
        "lengths cannot be 'long': use 'decoded' or 'drawn'",
    ),
    "lengths not known": (
        lambda space: Space(space.recipe, space.tokenizer, space.model).sample(2, lengths="drawn"),
        "this space does not know how long its training sentences were: train it again with this version of "
        "textspace, or use another length rule",
    ),
}


@pytest.mark.parametrize("mistake", BAD)
def test_mistakes_are_told_in_one_sentence(mistake: str, space: Space) -> None:
    call, told = BAD[mistake]
    with pytest.raises(TextspaceError) as caught:
        call(space)
    assert str(caught.value) == told


@pytest.mark.parametrize("options", [{"deviation": 0.1}, {"of": ["anna"]}, {"chain": 1}], ids=str)
def test_a_language_model_has_no_codes_to_choose(options: dict[str, Any], spaces: dict[str, Space]) -> None:
    with pytest.raises(TextspaceError) as caught:
        spaces["language model"].sample(2, **options)
    assert str(caught.value) == (
        "'lstm-lm' is a language model and has no codes: sample from it without a deviation, sentences to sample "
        "around or a chain"
    )
