"""Spaces whose every token has a code: from sentences to ragged codes, pooled ones, files, and back."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import TOKEN_RECIPE, short_sentences, small
from test_cli import textspace

from textspace import encoding
from textspace.answering import answer, score_answers
from textspace.data.batching import make_batch
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import Prepared
from textspace.errors import TextspaceError
from textspace.features import read_features
from textspace.generate import Beam, Greedy, Sampling
from textspace.lengths import METRIC, Lengths
from textspace.model import Model
from textspace.noise import Noise
from textspace.paths import interpolated
from textspace.recipes import RECIPES
from textspace.sklearn_transformer import TextspaceTransformer
from textspace.space import Parameters, Space
from textspace.token_codes import TokenCodes, joined, pooled
from textspace.types import PaddedCodes

TEXTS = [
    "anna sees cats",
    "bob",
    "dora hears rivers stones",
    "carl likes songs trees",
    "",
    "anna hears birds",
    "dora likes",
]
DIM = 8


@pytest.fixture(scope="module")
def exact(token_space: Space) -> Space:
    """The same in float64, where batches cannot turn a choice between words by their rounding."""
    return as_exact(token_space)


def as_exact(space: Space) -> Space:
    return Space(space.recipe, space.tokenizer, copy.deepcopy(space.model).double(), space.metrics)


@pytest.fixture(scope="module")
def sentences(tiny: Prepared) -> Space:
    """A space with one code for a sentence."""
    recipe = small(RECIPES["vae"])
    return Space(recipe, tiny.tokenizer, Model(recipe, len(tiny.tokenizer)))


GATED = {"posterior": {"kind": "spike-and-slab", "gates": "features", "hidden": 8}, "prior": {"kind": "spike-and-slab"}}
POINT = {"posterior": {"kind": "delta"}, "objective": {"kind": "reconstruction"}}


def untrained(token_space: Space, changes: dict[str, Any]) -> Space:
    recipe = TOKEN_RECIPE.but(changes)
    return Space(recipe, token_space.tokenizer, Model(recipe, len(token_space.tokenizer)), token_space.metrics)


def lengths(space: Space, texts: list[str] = TEXTS) -> list[int]:
    return [len(ids) + 2 for ids in space.tokenizer.encode(texts)]


def assert_alike(some: list[np.ndarray], others: list[np.ndarray], atol: float = 1e-5) -> None:
    for one, other in zip(some, others, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)


# Sentences to codes


def test_every_token_has_a_code_start_and_end_too(token_space: Space) -> None:
    codes = token_space.encode(TEXTS)
    assert token_space.is_token_level
    assert token_space.dim == DIM
    assert isinstance(codes, list)
    assert [code.shape for code in codes] == [(length, DIM) for length in lengths(token_space)]
    assert {code.dtype for code in codes} == {np.dtype("float32")}
    assert token_space.encode("").shape == (2, DIM)
    assert token_space.encode([]) == []
    np.testing.assert_allclose(token_space.encode(TEXTS[2]), codes[2], atol=1e-5)


def test_codes_are_the_posteriors_means_of_each_position(token_space: Space) -> None:
    model = token_space.model
    for text, code_TZ in zip(TEXTS, token_space.encode(TEXTS), strict=True):
        batch = make_batch(EncodedSplit.of([text], token_space.tokenizer, None), np.arange(1))
        with torch.no_grad():
            posterior = model.posterior("z", model.features(batch.encoder), {})  # type: ignore[misc]
        np.testing.assert_allclose(code_TZ, posterior.mean[0], atol=1e-5)


def test_codes_do_not_depend_on_batches_padding_or_order(token_space: Space) -> None:
    for options in ({}, {"what": "sample", "seed": 3}, {"what": "sample", "strength": 2.0}):
        codes = token_space.encode(TEXTS, **options)
        for size in (1, 2, 3, 100):
            assert_alike(token_space.encode(TEXTS, batch_size=size, **options), codes)
        longer = token_space.encode(
            [*TEXTS, "dora hears rivers stones rivers"], **options
        )  # so that there is more padding
        assert_alike(longer[:-1], codes)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    means = token_space.encode(TEXTS)
    assert_alike(token_space.encode([TEXTS[row] for row in order]), [means[row] for row in order])


def test_noise_is_keyed_by_sentence_position_and_seed(token_space: Space) -> None:
    def samples(texts: list[str], **options: Any) -> list[np.ndarray]:
        return token_space.encode(texts, what="sample", **options)

    first, second = samples([TEXTS[0]] * 2)
    assert np.abs(first - second).min(axis=1).max() > 1e-3
    assert np.abs(first - samples([TEXTS[0]], seed=1)[0]).max() > 1e-2
    mean, deviation = token_space.encode(TEXTS[0], what="parameters")
    noise_TZ = (first - mean) / deviation
    expected = Noise(0, 0, torch.tensor([0])).normal("z", noise_TZ.shape, 1)[0, 0]
    np.testing.assert_allclose(noise_TZ, expected, atol=1e-3)
    assert len(np.unique(noise_TZ.round(4))) == noise_TZ.size


def test_samples_have_the_mean_and_deviation_that_the_parameters_say(token_space: Space) -> None:
    mean, deviation = token_space.encode(TEXTS[0], what="parameters")
    drawn = np.stack(token_space.encode([TEXTS[0]] * 2000, what="sample", strength=3.0))
    np.testing.assert_allclose((drawn.mean(0) - mean) / (3 * deviation), 0, atol=0.1)
    np.testing.assert_allclose(drawn.std(0) / (3 * deviation), 1, atol=0.1)


def test_parameters_are_two_lists(token_space: Space) -> None:
    found = token_space.encode(TEXTS, what="parameters")
    assert isinstance(found, Parameters)
    assert_alike(found.mean, token_space.encode(TEXTS), atol=0)
    assert [each.shape for each in found.deviation] == [each.shape for each in found.mean]
    assert min(each.min() for each in found.deviation) > 0
    one = token_space.encode(TEXTS[0], what="parameters")
    np.testing.assert_allclose(one.deviation, found.deviation[0], atol=1e-5)
    assert token_space.encode([], what="parameters") == ([], [])


def test_tensors_on_request(token_space: Space) -> None:
    tensors = token_space.encode(TEXTS, output="tensor")
    assert all(isinstance(each, torch.Tensor) for each in tensors)
    assert_alike([each.numpy() for each in tensors], token_space.encode(TEXTS), atol=0)
    assert isinstance(token_space.encode(TEXTS[0], output="tensor"), torch.Tensor)


def test_normalised_codes_have_length_1(token_space: Space) -> None:
    codes = token_space.encode(TEXTS, normalize=True)
    assert_alike([np.linalg.norm(code, axis=1) for code in codes], [np.ones(len(code)) for code in codes])
    plain = token_space.encode(TEXTS)
    assert_alike(codes, [code / np.linalg.norm(code, axis=1, keepdims=True) for code in plain])
    means, deviations = token_space.encode(TEXTS, what="parameters", normalize=True)
    assert_alike(means, codes, atol=0)
    scales = [np.linalg.norm(code, axis=1, keepdims=True) for code in plain]
    unscaled = [deviation * scale for deviation, scale in zip(deviations, scales, strict=True)]
    assert_alike(unscaled, token_space.encode(TEXTS, what="parameters").deviation)
    pooled_NZ = token_space.encode(TEXTS, pool="sum", normalize=True)
    np.testing.assert_allclose(np.linalg.norm(pooled_NZ, axis=1), 1, atol=1e-5)


def test_a_stream_gives_the_codes_of_the_whole(token_space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 3)
    for options in ({}, {"what": "sample", "seed": 2}):
        chunks = list(token_space.encode_stream(iter(TEXTS), **options))
        assert [chunk for chunk, _ in chunks] == [TEXTS[:3], TEXTS[3:6], TEXTS[6:]]
        assert_alike([code for _, codes in chunks for code in codes], token_space.encode(TEXTS, **options))
        parts = [codes for _, codes in token_space.encode_stream(TEXTS, pool="mean", **options)]
        assert_alike([np.concatenate(parts)], [token_space.encode(TEXTS, pool="mean", **options)])


def test_cut_sentences_are_told(token_space: Space) -> None:
    long = "dora " * 30
    with pytest.warns(UserWarning, match="1 of 2 sentences had more than 20 tokens and were cut there"):
        codes = token_space.encode([long, "dora"])
    assert [len(code) for code in codes] == [22, lengths(token_space, ["dora"])[0]]


# Pooled


@pytest.mark.parametrize(("pool", "by_hand"), [("start", lambda c: c[0]), ("mean", lambda c: c.mean(0)), ("sum", sum)])
def test_pooling_is_over_all_real_positions(token_space: Space, pool: Any, by_hand: Callable[..., Any]) -> None:
    for options in ({}, {"what": "sample", "seed": 5}):
        expected = np.stack([by_hand(code) for code in token_space.encode(TEXTS, **options)])
        for size in (None, 1, 3):
            found = token_space.encode(TEXTS, pool=pool, batch_size=size, **options)
            assert found.shape == (len(TEXTS), DIM)
            np.testing.assert_allclose(found, expected, atol=1e-5)
    assert token_space.encode(TEXTS[0], pool=pool).shape == (DIM,)
    assert token_space.encode([], pool=pool).shape == (0, DIM)


@pytest.mark.parametrize("pool", ["start", "mean", "sum"])
def test_pooled_parameters_are_those_of_pooled_samples(token_space: Space, pool: Any) -> None:
    mean, deviation = token_space.encode(TEXTS[2], what="parameters", pool=pool)
    np.testing.assert_allclose(mean, token_space.encode(TEXTS[2], pool=pool), atol=1e-6)
    drawn = token_space.encode([TEXTS[2]] * 2000, what="sample", pool=pool)
    np.testing.assert_allclose((drawn.mean(0) - mean) / deviation, 0, atol=0.1)
    np.testing.assert_allclose(drawn.std(0) / deviation, 1, atol=0.1)


def test_what_lies_in_padding_does_not_count() -> None:
    values = torch.tensor([[[1.0], [3.0], [float("nan")]], [[5.0], [float("inf")], [7.0]]])
    codes = PaddedCodes(values, torch.tensor([[True, True, False], [True, False, False]]))
    assert pooled(codes, "mean").flatten().tolist() == [2.0, 5.0]
    _, deviation_NZ = joined([codes, codes], "sum")
    np.testing.assert_allclose(deviation_NZ.flatten(), [10**0.5, 5.0], rtol=1e-6)


def test_codes_end_to_end_come_back_padded_and_apart() -> None:
    matrices = [torch.randn(length, 2) for length in (3, 1, 4)]
    codes = TokenCodes.of(matrices)
    assert len(codes) == 3
    assert all(torch.equal(one, other) for one, other in zip(codes.matrices(), matrices, strict=True))
    padded = codes[1:3]
    assert padded.mask_NT.tolist() == [[True, False, False, False], [True] * 4]
    assert all(torch.equal(one, other) for one, other in zip(padded.unpadded(), matrices[1:], strict=True))
    empty = TokenCodes(torch.zeros(8, 2), codes.lengths_N)
    empty[torch.tensor([2, 0])] = PaddedCodes.of([matrices[2], matrices[0]])
    empty[torch.tensor([1])] = PaddedCodes.of([matrices[1]])
    assert torch.equal(empty.values_MZ, codes.values_MZ)
    np.testing.assert_allclose(codes.pooled("mean", at_once=2), torch.stack([m.mean(0) for m in matrices]), atol=1e-6)


# And back


def test_decoding_is_the_reverse_of_encoding(exact: Space) -> None:
    texts = short_sentences(60)
    codes = exact.encode(texts)
    again = exact.reconstruct(texts)
    assert np.mean([one == other for one, other in zip(texts, again, strict=True)]) > 0.5  # training was good for it
    for given in (codes, tuple(codes), exact.encode(texts, output="tensor"), np.array([*codes, None], object)[:-1]):
        assert exact.decode(given) == again
    for size in (1, 7):
        assert exact.decode(codes, batch_size=size) == again
        assert exact.reconstruct(texts, batch_size=size) == again
    assert exact.decode(codes[3]) == exact.reconstruct(texts[3]) == again[3]
    assert exact.decode([]) == []
    same_length = [code for code in codes if len(code) == len(codes[0])]
    assert exact.decode(np.stack(same_length)) == exact.decode(same_length)


def test_methods_and_seeds_are_obeyed(exact: Space) -> None:
    codes = exact.encode(TEXTS)
    sampling = Sampling(temperature=3.0, max_tokens=9)
    drawn = exact.decode(codes, method=sampling, seed=1)
    assert drawn == exact.decode(codes, method=sampling, seed=1, batch_size=2)
    assert drawn != exact.decode(codes, method=sampling, seed=2)
    assert exact.decode(codes, method=Beam(width=3), batch_size=1) == exact.decode(codes, method=Beam(width=3))
    assert all(len(ids) <= 2 for ids in exact.tokenizer.encode(exact.decode(codes, method=Greedy(max_tokens=2))))
    moved = exact.reconstruct(TEXTS, what="sample", strength=5.0, seed=1)
    assert moved == exact.decode(exact.encode(TEXTS, what="sample", strength=5.0, seed=1))
    assert moved != exact.reconstruct(TEXTS)


# New sentences


def test_points_of_the_prior_are_as_long_as_training_sentences(token_space: Space) -> None:
    codes = token_space.prior_codes(3000, seed=4)
    uniform = Noise(4, 0, torch.arange(3000)).uniform("length", (), 1)[0].numpy()
    drawn = Lengths.of_metrics(token_space.metrics).drawn(uniform)
    assert [len(code) for code in codes] == (drawn + 2).tolist()
    values = np.concatenate(codes)
    np.testing.assert_allclose(values.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(values.std(0), 0.4, rtol=0.03)
    assert_alike(token_space.prior_codes(300, seed=4), codes[:300], atol=0)
    assert np.abs(token_space.prior_codes(1, seed=5)[0][0] - codes[0][0]).max() > 1e-2
    assert token_space.prior_codes(0) == []


def test_drawn_lengths_are_those_of_the_codes(token_space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the codes come from: their number was drawn with them, or is that of their sentence."""
    decode, met = Space._decode, []

    def watched(self, codes: TokenCodes, *others: Any) -> Any:
        met.append((codes.lengths_N - 2 == others[-1]).all())
        return decode(self, codes, *others)

    monkeypatch.setattr(Space, "_decode", watched)
    assert len(token_space.sample(8, lengths="drawn", seed=4)) == 8
    assert len(token_space.sample(8, lengths="drawn", chain=2, seed=4)) == 8
    assert len(token_space.sample(8, of=TEXTS, lengths="drawn", seed=4)) == 8
    assert met == [True] * (1 + 3 + 1)


def test_points_nearer_to_the_middle_of_the_prior(token_space: Space) -> None:
    codes = token_space.prior_codes(20, seed=1)
    assert_alike(token_space.prior_codes(20, deviation=0.5, seed=1), [code / 2 for code in codes])
    assert_alike(token_space.prior_codes(20, deviation="dim", seed=1), [code / DIM**0.5 for code in codes])
    assert_alike(token_space.prior_codes(20, deviation=0, seed=1), [0 * code for code in codes], atol=0)


def test_sampling_decodes_points_of_the_prior(exact: Space) -> None:
    assert exact.sample(6, method=Greedy(), seed=2) == exact.decode(exact.prior_codes(6, seed=2))
    assert exact.sample(6, seed=2) == exact.decode(exact.prior_codes(6, seed=2), method=Sampling(), seed=2)
    assert exact.sample(6, seed=2)[:4] == exact.sample(4, seed=2, batch_size=3)
    near = exact.prior_codes(6, deviation=0.3, seed=2)
    assert exact.sample(6, deviation=0.3, method=Greedy(), seed=2) == exact.decode(near)
    assert exact.sample(0) == []


def test_a_sentence_of_drawn_length_is_as_long_as_its_code(exact: Space) -> None:
    sampled = exact.sample(30, lengths="drawn", seed=3)
    wanted = [len(code) - 2 for code in exact.prior_codes(30, seed=3)]
    # Bytes that are no text on their own come back as other tokens when they are read again.
    pairs = [(text, count) for text, count in zip(sampled, wanted, strict=True) if "\ufffd" not in text]
    assert len(pairs) > 20
    again = [len(ids) for ids in exact.tokenizer.encode([text for text, _ in pairs])]
    assert np.mean([one == count for one, (_, count) in zip(again, pairs, strict=True)]) > 0.8


def test_sampling_around_sentences_and_in_chains(exact: Space) -> None:
    seen = exact.sample(8, of=TEXTS[:1], method=Greedy(), seed=1)
    assert seen == exact.decode(exact.encode([TEXTS[0]] * 8, what="sample", seed=1))
    chained = exact.sample(5, chain=2, method=Greedy(), seed=1)
    assert chained == exact.sample(5, chain=2, method=Greedy(), seed=1, batch_size=2)
    assert len(chained) == 5


def test_a_space_without_its_training_lengths_says_so(token_space: Space) -> None:
    forgetful = Space(token_space.recipe, token_space.tokenizer, token_space.model, {})
    for call in (lambda: forgetful.prior_codes(2), lambda: forgetful.sample(2)):
        with pytest.raises(TextspaceError, match="does not know how long its training sentences were"):
            call()
    assert METRIC in token_space.metrics


# In between


@pytest.mark.parametrize("path", ["linear", "spherical"])
def test_the_ends_of_a_walk_reproduce_the_ends(exact: Space, path: Any) -> None:
    a, b = "anna sees cats", "dora hears rivers stones"
    for start, end in ((a, b), (b, a)):
        walked = exact.interpolate(start, end, steps=5, path=path)
        assert (walked[0], walked[-1]) == (exact.reconstruct(start), exact.reconstruct(end))
        codes = interpolated(exact.encode(start), exact.encode(end), 5, path)
        assert walked == exact.decode(codes)
        assert [len(code) for code in codes[1:-1]] == [max(lengths(exact, [a, b]))] * 3
    given = exact.interpolate(exact.encode(a), exact.encode(b, output="tensor"), steps=5, path=path)
    assert given == exact.interpolate(a, b, steps=5, path=path)


def test_a_walk_between_samples(exact: Space) -> None:
    a, b = TEXTS[0], TEXTS[2]
    first, second = exact.encode([a, b], what="sample", seed=7)
    assert exact.interpolate(a, b, ends="sample", seed=7) == exact.decode(interpolated(first, second, 7))


def test_variants_move_all_tokens(exact: Space) -> None:
    variants = exact.vary(TEXTS[2], 4, strength=0.0)
    assert {variant.text for variant in variants} == {exact.reconstruct(TEXTS[2])}
    assert all(variant.moved == 0 for variant in variants)
    moved = exact.vary(TEXTS[2], 4, strength=4.0, seed=3)
    assert [v.text for v in moved] == [v.text for v in exact.vary(TEXTS[2], 4, strength=4.0, seed=3)]
    double = exact.vary(TEXTS[2], 4, strength=8.0, seed=3)
    np.testing.assert_allclose([v.moved for v in double], [2 * v.moved for v in moved], rtol=1e-6)
    assert len({v.text for v in double}) > 1
    assert exact.vary(TEXTS[2], 0) == []


def test_variants_distances_are_those_of_mean_codes(exact: Space) -> None:
    start = exact.encode(TEXTS[2], pool="mean")
    for variant in exact.vary(TEXTS[2], 4, strength=4.0, seed=3):
        landed = np.linalg.norm(exact.encode(variant.text, pool="mean") - start)
        np.testing.assert_allclose(variant.landed, landed, atol=1e-6)


def moved_codes(space: Space, monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> np.ndarray:
    """What `vary` decodes, (n, T, Z)."""
    seen: list[torch.Tensor] = []
    decode = space.decode
    with monkeypatch.context() as patched:
        patched.setattr(space, "decode", lambda codes, **more: seen.append(codes) or decode(codes, **more))
        space.vary(*arguments, **options)
    return seen[0].numpy()


@pytest.mark.parametrize("kind", ["gaussian", "point"])
def test_only_marked_tokens_move(exact: Space, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    space = exact if kind == "gaussian" else as_exact(untrained(exact, POINT))
    text = "dora hears stones cats"
    mean = space.encode(text)
    before, upto = (len(ids) for ids in space.tokenizer.encode(["dora hears", "dora hears stones"]))
    whole = moved_codes(space, monkeypatch, text, 3, strength=2.0, seed=5)
    found = moved_codes(space, monkeypatch, "dora hears [stones] cats", 3, strength=2.0, seed=5)
    moves = np.zeros(len(mean), bool)
    moves[before + 1 : upto + 1] = True  # the start token comes first
    assert 1 < moves.sum() < len(mean) - 4  # more subwords than one
    np.testing.assert_array_equal(found[:, ~moves], np.broadcast_to(mean[~moves], found[:, ~moves].shape))
    np.testing.assert_array_equal(found[:, moves], whole[:, moves])  # with the noise they have unmarked
    assert (np.abs(found[:, moves] - mean[moves]).max(axis=(1, 2)) > 1e-3).all()
    named = moved_codes(space, monkeypatch, text, 3, tokens=["stones"], strength=2.0, seed=5)
    np.testing.assert_array_equal(named, found)
    two = moved_codes(space, monkeypatch, "[dora] hears [stones] cats", 3, strength=2.0, seed=5)
    both = moved_codes(space, monkeypatch, text, 3, tokens=["dora", "stones"], strength=2.0, seed=5)
    np.testing.assert_array_equal(two, both)
    assert (two[:, 1] != mean[1]).any()


def test_a_varied_word_is_the_one_that_changes(exact: Space) -> None:
    words = ["anna", "sees", "cats"]
    for marked in range(3):
        text = " ".join(f"[{word}]" if place == marked else word for place, word in enumerate(words))
        made = [variant.text.split() for variant in exact.vary(text, 40, strength=5.0, seed=1)]
        changed = [sum(each[place : place + 1] != [word] for each in made) for place, word in enumerate(words)]
        assert changed[marked] > 2 * (sum(changed) - changed[marked])


def test_marks_go_through_the_spaces_clean_up(token_space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = Space(TOKEN_RECIPE.but({"text.normalise": ("lower",)}), token_space.tokenizer, token_space.model)
    marked = moved_codes(lower, monkeypatch, "Dora HEARS [Rivers]", 2, strength=2.0)
    np.testing.assert_array_equal(marked, moved_codes(lower, monkeypatch, "dora hears [rivers]", 2, strength=2.0))
    named = moved_codes(lower, monkeypatch, "Dora HEARS Rivers", 2, tokens="RIVERS", strength=2.0)
    np.testing.assert_array_equal(marked, named)


def test_likeness_is_that_of_mean_codes(token_space: Space) -> None:
    means = token_space.encode(TEXTS, pool="mean", normalize=True)
    cosines = token_space.similarity(TEXTS, TEXTS)
    np.testing.assert_allclose(cosines, means @ means.T, atol=1e-5)
    np.testing.assert_allclose(token_space.similarity(TEXTS[0], TEXTS), cosines[0], atol=1e-5)
    codes = token_space.encode(TEXTS)
    np.testing.assert_allclose(token_space.similarity(codes, TEXTS), cosines, atol=1e-5)
    assert token_space.similarity(codes[0], codes[1]) == pytest.approx(cosines[0, 1], abs=1e-5)
    for query in (TEXTS[0], codes[0]):
        found = token_space.neighbors(query, TEXTS, k=4)
        assert [each.row for each in found] == np.argsort(-cosines[0], kind="stable")[:4].tolist()
        np.testing.assert_allclose([each.similarity for each in found], np.sort(-cosines[0])[:4] * -1, atol=1e-5)


# Other posteriors


def test_gates_of_tokens(token_space: Space) -> None:
    space = untrained(token_space, GATED)
    gates = space.encode(TEXTS, what="gates")
    assert [gate.shape for gate in gates] == [(length, DIM) for length in lengths(space)]
    assert all(((gate > 0) & (gate < 1)).all() for gate in gates)
    np.testing.assert_allclose(space.encode(TEXTS, what="gates", pool="mean")[2], gates[2].mean(0), atol=1e-5)
    assert [code.shape for code in space.prior_codes(3)] == [code.shape for code in token_space.prior_codes(3)]
    beta = untrained(
        token_space, GATED | {"posterior": {"kind": "spike-and-slab", "hidden": 8}, "prior": {"kind": "beta-gated"}}
    )
    for options in ({"what": "sample"}, {"what": "gates"}, {"what": "parameters", "pool": "mean"}):
        beta.encode(TEXTS, **options)
    assert len(beta.vary("anna [sees] cats", 2)) == 2


def test_a_point_strays_by_deviations_of_the_prior(token_space: Space) -> None:
    space = untrained(token_space, POINT)
    mean = space.encode(TEXTS[2])
    np.testing.assert_array_equal(space.encode(TEXTS[2], what="sample"), mean)
    drawn = np.stack(space.encode([TEXTS[2]] * 1000, what="sample", strength=2.0))
    np.testing.assert_allclose((drawn - mean).std(0), 0.8, rtol=0.15)


# In files, in a shell, in scikit-learn


@pytest.fixture(scope="module")
def folder(token_space: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("token level")
    token_space.save(where / "space")
    (where / "my.txt").write_text("\n".join(text for text in TEXTS if text) + "\n")
    return where


def test_from_a_file_of_codes_to_sentences(token_space: Space, folder: Path) -> None:
    texts = [text for text in TEXTS if text]
    told = textspace("encode", "space", "my.txt", "--out", "codes.npz", cwd=folder).stderr
    tokens = sum(lengths(token_space, texts))
    assert f"{tokens} codes of 8 dimensions for the tokens of {len(texts)} sentences in codes.npz" in told
    with np.load(folder / "codes.npz") as found:
        assert found["lengths"].tolist() == lengths(token_space, texts)
    made = textspace("decode", "space", "codes.npz", cwd=folder).stdout.splitlines()
    assert made == token_space.reconstruct(texts)
    assert made == textspace("reconstruct", "space", "my.txt", cwd=folder).stdout.splitlines()
    summary = textspace("encode", "space", "my.txt", "--out", "codes.npz", "--json", cwd=folder).stdout
    assert json.loads(summary) == {"codes": tokens, "dim": DIM, "file": "codes.npz", "sentences": len(texts)}


@pytest.mark.parametrize("pool", ["start", "mean", "sum"])
def test_pooled_codes_in_files(token_space: Space, folder: Path, pool: Any) -> None:
    textspace("encode", "space", "my.txt", "--pool", pool, "--out", "codes.npy", cwd=folder)
    texts = [text for text in TEXTS if text]
    np.testing.assert_allclose(np.load(folder / "codes.npy"), token_space.encode(texts, pool=pool), atol=1e-5)
    ended = textspace("decode", "space", "codes.npy", cwd=folder)
    assert ended.returncode == 2
    assert ended.stderr == (
        "textspace: codes.npy has a code for each sentence, and this space one for each token: encode without --pool, "
        "into an .npz file\n"
    )


def test_variants_walks_and_samples_in_a_shell(token_space: Space, folder: Path) -> None:
    def ran(*arguments: str) -> Any:
        return json.loads(textspace(*arguments, "--json", cwd=folder).stdout)

    text = "anna sees [cats]"
    found = ran("vary", "space", text, "-n", "3", "--strength", "2", "--seed", "1")
    variants = token_space.vary(text, 3, strength=2.0, seed=1)
    assert [each["text"] for each in found] == [variant.text for variant in variants]
    named = ran("vary", "space", "anna sees cats", "-n", "3", "--strength", "2", "--seed", "1", "--token", "cats")
    assert named == found
    walk = ran("interpolate", "space", TEXTS[0], TEXTS[2], "--steps", "4")
    assert walk == token_space.interpolate(TEXTS[0], TEXTS[2], steps=4)
    drawn = ran("sample", "space", "-n", "3", "--seed", "1", "--draw-length")
    assert drawn == token_space.sample(3, seed=1, lengths="drawn")
    nearest = ran("neighbors", "space", TEXTS[0], "--data", "my.txt", "-k", "2")
    assert nearest[0]["text"] == TEXTS[0]
    ended = textspace("vary", "space", "anna sees cats", "--token", "dogs", cwd=folder)
    assert (ended.returncode, ended.stderr) == (
        2,
        "textspace: there is no 'dogs' in 'anna sees cats': give words of the sentence\n",
    )


def test_it_says_that_every_token_has_a_code(token_space: Space, folder: Path) -> None:
    assert "8, and every token has a code" in textspace("info", "space", cwd=folder).stdout
    assert "8 dimensions for each token" in repr(token_space)
    ended = textspace("encode", "space", "my.txt", cwd=folder)
    assert ended.returncode == 2
    assert ended.stderr == (
        "textspace: codes of tokens go into .npz files and not into standard output: give a name that ends in .npz, or "
        "pool them into one for each sentence with --pool\n"
    )


def test_in_scikit_learn_codes_are_pooled(token_space: Space) -> None:
    transformer = TextspaceTransformer(TOKEN_RECIPE)
    transformer.space_ = token_space
    np.testing.assert_array_equal(transformer.transform(TEXTS), token_space.encode(TEXTS, pool="mean"))
    with pytest.raises(TextspaceError) as caught:
        transformer.inverse_transform(np.zeros((2, DIM)))
    assert str(caught.value) == (
        "rows of X are means over the codes of tokens, which do not decode: use encode and decode of space_, or a "
        "recipe with one code for a sentence"
    )


def test_a_space_comes_back_from_its_folder(token_space: Space, folder: Path) -> None:
    again = Space.load(folder / "space", "cpu")
    assert_alike(again.encode(TEXTS), token_space.encode(TEXTS), atol=0)
    assert again.sample(3, seed=2) == token_space.sample(3, seed=2)


# Mistakes

CODE = np.zeros((3, DIM))
WANTED = "a code of this space is a matrix with a row of 8 numbers for each token"
GIVE = "give a list of such matrices, which encode gives without pool"
ONE_CODE = (
    "one code for a sentence, and in this space every token has a code: train a recipe with another pooling, like "
    "transformer-vae"
)
BAD: dict[str, tuple[Callable[[Space], Any], str]] = {
    "unknown pool": (
        lambda space: space.encode("a", pool="maen"),
        "there is no pool 'maen'; did you mean 'mean'?",
    ),
    "sparse codes": (
        lambda space: space.encode("a", sparse=True),
        "sparse codes are of sentences, and in this space every token has a code: leave out sparse",
    ),
    "sparse codes pooled": (
        lambda space: next(space.encode_stream(["a"], sparse=True, pool="mean")),
        "sparse codes are of sentences, and in this space every token has a code: leave out sparse",
    ),
    "no gates": (
        lambda space: space.encode("a", what="gates"),
        "this space has no gates that switch dimensions off: train one that has them with the recipe hsvae",
    ),
    "a pooled code": (
        lambda space: space.decode(space.encode("a", pool="mean")),
        f"{WANTED}, and these have shape (8,): {GIVE}",
    ),
    "pooled codes in a list": (
        lambda space: space.decode(list(space.encode(["a", "b"], pool="mean"))),
        f"{WANTED}, and code 0 has shape (8,): {GIVE}",
    ),
    "wide codes": (
        lambda space: space.decode([CODE, np.zeros((3, 9))]),
        f"{WANTED}, and code 1 has shape (3, 9): {GIVE}",
    ),
    "one wide code": (lambda space: space.decode(np.zeros((3, 7))), f"{WANTED}, and code 0 has shape (3, 7): {GIVE}"),
    "four axes": (
        lambda space: space.decode(np.zeros((1, 1, 3, DIM))),
        f"{WANTED}, and these have shape (1, 1, 3, 8): {GIVE}",
    ),
    "a number": (lambda space: space.decode(1.0), f"these are not codes: {WANTED}"),
    "text": (lambda space: space.decode("anna"), f"these are not codes: {WANTED}"),
    "texts": (lambda space: space.decode(["anna"]), f"these are not codes: {WANTED}"),
    "no token": (
        lambda space: space.decode([CODE, CODE[:0]]),
        "code 1 has no token: every sentence has at least a start and an end",
    ),
    "NaN": (
        lambda space: space.decode([CODE, np.full((2, DIM), np.nan)]),
        "code 1 holds a number that is not finite (NaN or infinity): mend or drop it",
    ),
    "too large": (
        lambda space: space.decode(np.full((2, DIM), 1e300)),
        "code 0 holds a number that is not finite (NaN or infinity): mend or drop it",
    ),
    "an end of two codes": (
        lambda space: space.interpolate([CODE, CODE], "anna"),
        "an end is one sentence or one code, and these are 2: give the string or the code itself",
    ),
    "parameters of a sentence": (
        lambda space: space.decode(space.encode("anna", what="parameters")),
        "these are means and deviations of codes, and not codes: give .mean of them",
    ),
    "parameters of sentences": (
        lambda space: space.decode(space.encode(["anna", "bob"], what="parameters")),
        "these are means and deviations of codes, and not codes: give .mean of them",
    ),
    "complex codes": (
        lambda space: space.decode([CODE, CODE + 0j]),
        "these codes are complex numbers: give real ones, such as codes.real",
    ),
    "hidden numbers": (
        lambda space: space.decode([np.ma.masked_equal(CODE, 0)]),
        "these codes hide numbers behind a mask: fill them in, or drop those codes",
    ),
    "a word that is not there": (
        lambda space: space.vary("anna sees cats", tokens=["dogs"]),
        "there is no 'dogs' in 'anna sees cats': give words of the sentence",
    ),
    "an empty mark": (
        lambda space: space.vary("anna [] cats"),
        r"a mark is empty: put a word to vary between [ and ], or write \[ and \] for plain brackets",
    ),
    "a mark behind the cut": (
        lambda space: space.vary("dora " * 30 + "[anna]"),
        "'anna' lies behind the 20 tokens that this space reads of the sentence: shorten it",
    ),
    "answers ranked": (
        lambda space: score_answers(space, []),
        f"ranking answers compares {ONE_CODE}",
    ),
    "answers": (lambda space: answer(space, "anna sees ?"), f"answering decodes {ONE_CODE}"),
    "features": (lambda space: read_features(space, TEXTS), f"features are dimensions of {ONE_CODE}"),
    "half a character": (
        lambda space: space.vary("a [b\ud800]"),
        "sentence 1 holds half of a surrogate pair, which is not text: mend it",
    ),
}


@pytest.mark.filterwarnings("ignore:.*were cut there")
@pytest.mark.parametrize("mistake", BAD)
def test_mistakes_are_told_in_one_sentence(mistake: str, token_space: Space) -> None:
    call, told = BAD[mistake]
    with pytest.raises(TextspaceError) as caught:
        call(token_space)
    assert str(caught.value) == told


def test_one_code_for_a_sentence_has_nothing_to_pool_or_mark(sentences: Space) -> None:
    leave = "pool joins the codes of tokens, and in this space a sentence has one code: leave it out"
    single = (
        "single words can be varied where every token has a code, and in this space a sentence has one: mark none, and "
        r"write \[ and \] for plain brackets"
    )
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: sentences.encode("anna", pool="mean"), leave),
        (lambda: next(sentences.encode_stream(["anna"], pool="sum")), leave),
        (lambda: sentences.vary("anna [sees] cats"), single),
        (lambda: sentences.vary("anna sees cats", tokens=["sees"]), single),
    ]
    for call, told in calls:
        with pytest.raises(TextspaceError) as caught:
            call()
        assert str(caught.value) == told
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = sentences.vary(r"anna \[sees\] cats", 2, seed=1)
        assert plain[0].moved > 0


def test_of_normalised_sentences_a_space_knows_the_same(token_space: Space) -> None:
    assert token_space.of_normalised() is token_space
    recipe = token_space.recipe.but({"text.normalise": ["lower"]})
    lowering = Space(recipe, token_space.tokenizer, token_space.model, token_space.metrics)
    taken = lowering.of_normalised()
    assert isinstance(taken, Space)
    for ours, theirs in zip(taken.prior_codes(3), token_space.prior_codes(3), strict=True):  # lengths are drawn too
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(lowering.encode("ANNA sees"), token_space.encode("anna sees"))
    assert not np.array_equal(taken.encode("ANNA sees")[1], token_space.encode("anna sees")[1])
