"""What users do with a space: every method and option, what must not change results, and every mistake's sentence."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from scipy.sparse import csr_matrix

from textspace import coder, encoding
from textspace.config import Recipe
from textspace.data.corpus import corpus_of, open_corpus
from textspace.data.encoded import EncodedSplit
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.generate import Beam, Greedy, Sampling
from textspace.inputs import as_tensor, is_by_name
from textspace.lengths import METRIC, Lengths
from textspace.paths import interpolated
from textspace.recipes import RECIPES
from textspace.space import Neighbor, Parameters, Space, Variant

SOURCE = "builtin:600"
RECIPE = small(RECIPES["default"]).but(
    {
        "latent.dim": 6,
        **{f"{part}.{option}": 32 for part in ("encoder", "decoder") for option in ("embedding", "hidden")},
        "objective.kl_weight": 0.05,
        "text.max_tokens": 40,
        "training.optimizer.lr": 0.03,
        "training.epochs": 10,
    }
)
"""Learns in two seconds to decode different codes into different sentences."""

UNKNOWN_WORDS = "zyx wvu tsr qpo"
LONG = "the " * 41
WHOLE_SPACE = {"recipe.json", "model.safetensors", "tokenizer.json", "metrics.json", "README.md"}


@pytest.fixture(scope="module")
def space(_own_cache: None) -> Space:
    return Space.fit(SOURCE, RECIPE, device="cpu")


@pytest.fixture(scope="module")
def exact(space: Space) -> Space:
    """The same in float64, where batches cannot turn a choice between words by their rounding."""
    return Space(space.recipe, space.tokenizer, copy.deepcopy(space.model).double(), space.metrics)


@pytest.fixture(scope="module")
def texts(space: Space) -> list[str]:
    """Sentences of many lengths, not sorted by them."""
    found = [record.text for record in open_corpus(SOURCE).splits["train"]][:24]
    assert len({len(text.split()) for text in found}) > 5
    return found


def tiny_space(recipe: Recipe) -> Space:
    return Space.fit(tiny_sentences(120), recipe.but({"training.epochs": 1}), device="cpu")


@pytest.fixture(scope="module")
def language_model(_own_cache: None) -> Space:
    return tiny_space(small(RECIPES["lstm-lm"]))


@pytest.fixture(scope="module")
def autoencoder(_own_cache: None) -> Space:
    return tiny_space(small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"}))


@pytest.fixture(scope="module")
def subwords(_own_cache: None) -> Space:
    changes = {"text.tokenizer": {"kind": "bpe", "size": 280}, "text.normalise": ("lower",), "text.max_tokens": 20}
    return tiny_space(small(RECIPES["vae"]).but(changes))


@contextlib.contextmanager
def nothing_told() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# Sentences to codes


def test_a_string_gives_a_vector_a_list_a_matrix_and_nothing_an_empty_matrix(space: Space, texts: list[str]) -> None:
    assert space.dim == 6
    assert space.encode(texts[0]).shape == (6,)
    assert space.encode(texts[:1]).shape == (1, 6)
    assert space.encode(texts).shape == (24, 6)
    assert space.encode([]).shape == (0, 6)
    assert space.encode("").shape == (6,)
    assert space.encode(texts).dtype == np.float32
    assert space.encode([], what="parameters").deviation.shape == (0, 6)
    np.testing.assert_allclose(space.encode(texts[0]), space.encode(texts)[0], atol=1e-5)


def test_all_kinds_of_lists_are_read_whole(space: Space, texts: list[str]) -> None:
    codes = space.encode(texts)
    for given in (tuple(texts), (text for text in texts), np.array(texts), dict.fromkeys(texts)):
        np.testing.assert_array_equal(space.encode(given), codes)


def test_codes_do_not_depend_on_batches_or_on_the_order(space: Space, texts: list[str]) -> None:
    codes = space.encode(texts)
    assert codes.std(axis=0).min() > 0.1
    for size in (1, 3, 24, 1000):
        np.testing.assert_allclose(space.encode(texts, batch_size=size), codes, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_allclose(space.encode([texts[i] for i in order]), codes[order], atol=1e-5)
    np.testing.assert_allclose(space.encode([texts[i] for i in order], batch_size=5), codes[order], atol=1e-5)


def test_samples_are_keyed_by_position_and_seed(space: Space, texts: list[str]) -> None:
    def samples(of: list[str], **options: Any) -> np.ndarray:
        return space.encode(of, what="sample", **options)

    np.testing.assert_array_equal(samples(texts), samples(texts))
    np.testing.assert_allclose(samples(texts)[:5], samples(texts[:5]), atol=1e-5)
    np.testing.assert_allclose(samples(texts, batch_size=1), samples(texts, batch_size=7), atol=1e-5)
    assert np.abs(samples(texts) - samples(texts, seed=1)).min(axis=0).max() > 1e-3
    first, second = samples([texts[0], texts[0]])
    assert np.abs(first - second).max() > 1e-2


def test_a_seed_is_a_whole_number_whoever_made_it(space: Space, texts: list[str]) -> None:
    makers: dict[str, Callable[[Any], Any]] = {
        "encode": lambda seed: space.encode(texts[:3], what="sample", seed=seed).tolist(),
        "sample": lambda seed: space.sample(3, seed=seed),
        "vary": lambda seed: space.vary(texts[0], 3, strength=3.0, seed=seed),
        "reconstruct": lambda seed: space.reconstruct(texts[:3], what="sample", seed=seed),
        "score": lambda seed: space.score(texts[:3], samples=3, seed=seed).nll_N.tolist(),
        "examine": lambda seed: json.dumps(space.examine(texts, seed=seed).to_dict()),
        "evaluate": lambda seed: sorted(space.evaluate(texts, measures=["posterior"], seed=seed).entries),
    }
    for name, made in makers.items():
        assert made(np.int64(1)) == made(torch.tensor(1)) == made(1), name
        for wrong in (-1, 1.0, "1", None, True, np.random.default_rng(0)):
            with pytest.raises(TextspaceError, match=r"a seed cannot be .*: give a whole number from 0"):
                made(wrong)


def test_samples_have_the_mean_and_deviation_that_the_parameters_say(space: Space, texts: list[str]) -> None:
    mean, deviation = space.encode(texts[0], what="parameters")
    drawn = space.encode([texts[0]] * 2000, what="sample")
    np.testing.assert_allclose((drawn.mean(0) - mean) / deviation, 0, atol=0.1)
    np.testing.assert_allclose(drawn.std(0) / deviation, 1, atol=0.1)


def test_parameters_hold_the_mean_and_a_deviation(space: Space, texts: list[str]) -> None:
    found = space.encode(texts, what="parameters")
    assert isinstance(found, Parameters)
    np.testing.assert_array_equal(found.mean, space.encode(texts))
    assert found.deviation.shape == found.mean.shape
    assert found.deviation.min() > 0
    assert space.encode(texts[0], what="parameters").deviation.shape == (6,)


def test_tensors_on_request(space: Space, texts: list[str]) -> None:
    codes = space.encode(texts, output="tensor")
    assert isinstance(codes, torch.Tensor)
    assert (codes.device, codes.requires_grad) == (space.device, False)
    np.testing.assert_array_equal(codes.numpy(), space.encode(texts))
    assert isinstance(space.encode(texts, what="parameters", output="tensor").deviation, torch.Tensor)


def test_normalised_codes_have_length_1_and_their_deviations_shrink_with_them(space: Space, texts: list[str]) -> None:
    mean, deviation = space.encode(texts, what="parameters")
    lengths = np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(space.encode(texts, normalize=True), mean / lengths, atol=1e-6)
    np.testing.assert_allclose(space.encode(texts[3], normalize=True), mean[3] / lengths[3], atol=1e-5)
    scaled = space.encode(texts, what="parameters", normalize=True)
    np.testing.assert_allclose(scaled.mean, mean / lengths, atol=1e-6)
    np.testing.assert_allclose(scaled.deviation, deviation / lengths, rtol=1e-5)


def test_a_stream_gives_the_codes_of_the_whole(space: Space, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 7)
    for what in ("mean", "sample"):
        chunks = list(space.encode_stream((text for text in texts), what=what, seed=3))
        assert [len(chunk) for chunk, _ in chunks] == [7, 7, 7, 3]
        assert [text for chunk, _ in chunks for text in chunk] == texts
        codes = np.concatenate([codes for _, codes in chunks])
        np.testing.assert_allclose(codes, space.encode(texts, what=what, seed=3), atol=1e-5)
    assert list(space.encode_stream([])) == []


def test_sentences_go_through_the_recipes_own_clean_up(subwords: Space) -> None:
    np.testing.assert_array_equal(subwords.encode("ANNA sees\ncats"), subwords.encode("anna sees cats"))


# What was cut or is not known is told


def calls_on(text: str) -> dict[str, Callable[[Space], Any]]:
    return {
        "encode": lambda space: space.encode([text, "the dog"]),
        "encode_stream": lambda space: list(space.encode_stream([text, "the dog"])),
        "reconstruct": lambda space: space.reconstruct(text),
        "interpolate": lambda space: space.interpolate("the dog", text, steps=2),
        "vary": lambda space: space.vary(text, 1),
        "similarity": lambda space: space.similarity("the dog", text),
        "neighbors": lambda space: space.neighbors("the dog", ["the dog", text]),
        "neighbors' query": lambda space: space.neighbors(text, ["the dog"]),
        "score": lambda space: space.score(text, samples=0),
    }


@pytest.mark.parametrize("call", calls_on(""))
def test_cut_and_unknown_sentences_are_told_at_the_users_own_line(space: Space, call: str) -> None:
    with pytest.warns(UserWarning, match=r"1 of \d sentences had more than 40 tokens and were cut there") as cut:
        calls_on(LONG)[call](space)
    with pytest.warns(UserWarning, match=r"1 of \d sentences are mostly words this space does not know") as unknown:
        calls_on(UNKNOWN_WORDS)[call](space)
    assert [Path(told.filename).name for told in (*cut, *unknown)] == ["test_space.py"] * 2
    with nothing_told():
        calls_on("the dog")[call](space)


def test_the_counts_told_are_right_and_a_stream_tells_them_once(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 2)
    given = [LONG, "the dog", UNKNOWN_WORDS, "the zyx", "the zyx wvu", LONG, "", LONG.strip()[4:]]
    calls = [
        space.encode,
        lambda texts: space.neighbors("the dog", texts),
        lambda texts: list(space.encode_stream(texts)),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="2 of 8 sentences") as told:
            call(given)
        assert [str(each.message).split(" sentences ")[0] for each in told] == ["2 of 8", "2 of 8"]


def test_a_cut_sentence_has_the_code_of_what_is_left(space: Space) -> None:
    with pytest.warns(UserWarning, match="cut there"):
        cut = space.encode(LONG + UNKNOWN_WORDS)
    np.testing.assert_array_equal(cut, space.encode(" ".join(["the"] * 40)))


def test_subwords_know_every_word_but_are_cut_too(subwords: Space) -> None:
    with nothing_told():
        subwords.encode(["żółw 🐢", "anna sees cats"])
    with pytest.warns(UserWarning, match="1 of 2 sentences had more than 20 tokens and were cut there"):
        subwords.encode(["anna", "żółwie 🐢 i inne stworzenia"])


def test_variants_of_the_models_own_making_are_no_reason_to_warn(space: Space) -> None:
    with nothing_told():
        variants = space.vary("the dog", 30, strength=3.0, method=Sampling(temperature=3.0, max_tokens=60))
    assert max(len(variant.text.split()) for variant in variants) > 40


# Codes to sentences


def test_a_vector_gives_a_string_and_a_matrix_a_list(space: Space, texts: list[str]) -> None:
    codes = space.encode(texts)
    decoded = space.decode(codes)
    assert isinstance(space.decode(codes[0]), str)
    assert len(decoded) == 24
    assert len(set(decoded)) > 8
    assert set(" ".join(decoded).split()) <= set(
        " ".join(record.text for record in open_corpus(SOURCE).splits["train"]).split()
    )
    for nothing in ([], np.zeros((0, 6)), torch.zeros(0, 6), space.encode([])):
        assert space.decode(nothing) == []


def test_codes_may_be_any_array_of_numbers(space: Space, texts: list[str]) -> None:
    codes = space.encode(texts)
    decoded = space.decode(codes)
    frozen = codes.copy()
    frozen.flags.writeable = False
    with nothing_told():
        for same in (
            codes.tolist(),
            torch.tensor(codes),
            torch.tensor(codes, requires_grad=True),
            list(torch.tensor(codes, requires_grad=True)),
            codes.astype(">f8"),
            np.asfortranarray(codes),
            frozen,
            list(codes),
        ):
            assert space.decode(same) == decoded
        assert space.decode(codes[::-1]) == decoded[::-1]
        assert space.decode(codes[2][::-1]) == space.decode(codes[2][::-1].copy())
    assert space.decode(np.zeros(6, int)) == space.decode(np.zeros(6))


def test_codes_that_are_being_learned_are_taken_as_they_are(space: Space, texts: list[str]) -> None:
    codes = torch.tensor(space.encode(texts[:3]), requires_grad=True)
    assert not as_tensor(codes).requires_grad
    np.testing.assert_array_equal(space.similarity(codes, codes), space.similarity(codes.detach(), codes.detach()))


def test_sentences_do_not_depend_on_batches_or_on_the_order(exact: Space, texts: list[str]) -> None:
    codes = exact.encode(texts)
    assert codes.dtype == np.float64
    for method in (Greedy(), Beam(width=3)):
        decoded = exact.decode(codes, method=method)
        assert len(set(decoded)) > 8
        for size in (1, 3, None):
            assert exact.decode(codes, method=method, batch_size=size) == decoded
        assert exact.decode(codes[::-1], method=method) == decoded[::-1]
    drawn = exact.decode(codes, method=Sampling(), seed=5)
    assert drawn == exact.decode(codes, method=Sampling(), seed=5, batch_size=3)
    assert drawn[:5] == exact.decode(codes[:5], method=Sampling(), seed=5)
    assert drawn != exact.decode(codes, method=Sampling(), seed=6)
    first, second = exact.decode([codes[0], codes[0]], method=Sampling())
    assert first != second


def test_in_double_precision_a_space_does_all_it_does_otherwise(space: Space, exact: Space, texts: list[str]) -> None:
    np.testing.assert_allclose(exact.encode(texts), space.encode(texts), atol=1e-4)
    np.testing.assert_allclose(
        exact.encode(texts, what="sample", seed=2), space.encode(texts, what="sample", seed=2), atol=1e-4
    )
    np.testing.assert_allclose(exact.score(texts, samples=5).nll_N, space.score(texts, samples=5).nll_N, rtol=1e-4)
    assert exact.similarity(texts[0], texts[1]) == pytest.approx(space.similarity(texts[0], texts[1]), abs=1e-4)
    assert len(exact.sample(2)) == len(exact.vary(texts[0], 2)) == len(exact.interpolate(*texts[:2], steps=2)) == 2
    assert exact.neighbors(texts[4], texts, 1)[0].row == 4


def test_the_methods_options_are_obeyed(space: Space, texts: list[str]) -> None:
    assert all(len(text.split()) <= 2 for text in space.reconstruct(texts, method=Greedy(max_tokens=2)))
    word = space.tokenizer.id("the")
    assert "the" in " ".join(space.sample(30)).split()
    assert "the" not in " ".join(space.sample(30, method=Sampling(forbidden=(word,)))).split()


def test_reconstruction_is_decoding_of_the_code(exact: Space, texts: list[str]) -> None:
    assert exact.reconstruct(texts) == exact.decode(exact.encode(texts))
    assert exact.reconstruct(texts[0]) == exact.reconstruct(texts)[0]
    assert exact.reconstruct([]) == []
    drawn = exact.reconstruct(texts, what="sample", seed=4)
    assert drawn == exact.decode(exact.encode(texts, what="sample", seed=4)) != exact.reconstruct(texts)
    assert exact.reconstruct(texts, what="sample", seed=4, batch_size=3) == drawn
    beamed = exact.reconstruct(texts, method=Beam(width=2))
    assert beamed == exact.decode(exact.encode(texts), method=Beam(width=2))


def test_training_was_good_for_something(space: Space, texts: list[str]) -> None:
    """A sentence shares more words with its own reconstruction than with another's."""
    made = [set(text.split()) for text in space.reconstruct(texts)]
    shared = np.array([[len(set(text.split()) & words) / len(words | {""}) for words in made] for text in texts])
    assert shared.diagonal().mean() > 1.3 * shared.mean()


def test_arithmetic_on_codes_is_plain_numpy(exact: Space, texts: list[str]) -> None:
    a, b, c = exact.encode(texts[:3])
    assert isinstance(exact.decode(a - b + c), str)
    assert exact.decode(a - b + b) == exact.reconstruct(texts[0])
    codes = exact.encode(texts)
    moved = exact.decode(codes[:8] - codes[8:16] + codes[16:])
    assert moved != exact.decode(codes[:8])
    assert len(set(moved)) > 2
    centroids = np.stack([exact.encode(texts[:12]).mean(0), exact.encode(texts[12:]).mean(axis=0)])
    named = exact.decode(centroids)
    assert [type(text) for text in named] == [str, str]
    assert named[0] == exact.decode(centroids[0])


# New sentences


def test_samples_of_few_begin_the_samples_of_many(exact: Space, language_model: Space) -> None:
    for each in (
        exact,
        Space(language_model.recipe, language_model.tokenizer, copy.deepcopy(language_model.model).double()),
    ):
        five = each.sample(5, seed=3)
        assert each.sample(3, seed=3) == five[:3]
        assert each.sample(5, seed=3, batch_size=2) == five
        assert each.sample(5, seed=4) != five
        assert len(set(five)) > 1
        assert each.sample(0) == []
        assert len(each.sample()) == 1


def test_sampling_draws_codes_from_the_prior(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    decode = coder.generate

    def watched(decoder: Any, codes: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        seen.append(codes)
        return decode(decoder, codes, *arguments, **options)

    monkeypatch.setattr(coder, "generate", watched)
    space.sample(600, method=Greedy(max_tokens=1))
    codes = torch.cat(seen)
    assert codes.shape == (600, 6)
    np.testing.assert_allclose(codes.mean(0), 0, atol=0.15)
    np.testing.assert_allclose(codes.std(0), 1, atol=0.1)


def test_a_method_for_samples(space: Space) -> None:
    greedy = space.sample(6, method=Greedy(), seed=2)
    assert greedy == space.sample(6, method=Greedy(), seed=2) != space.sample(6, seed=2)


# In between


@pytest.mark.parametrize("path", ["linear", "spherical"])
def test_an_interpolation_decodes_the_path_between_both_ends(exact: Space, texts: list[str], path: Any) -> None:
    a, b = texts[:2]
    between = exact.interpolate(a, b, steps=5, path=path)
    assert len(between) == 5
    assert [between[0], between[-1]] == exact.reconstruct([a, b])
    assert between == exact.decode(interpolated(exact.encode(a), exact.encode(b), 5, path))
    assert exact.interpolate(exact.encode(a), b, steps=5, path=path) == between
    assert exact.interpolate(b, a, steps=5, path=path) == between[::-1]
    assert exact.interpolate(a, b, steps=2, path=path) == exact.reconstruct([a, b])
    assert len(exact.interpolate(a, b)) == 7


def test_an_interpolation_passes_method_and_seed_on(exact: Space, texts: list[str]) -> None:
    a, b = texts[:2]
    assert all(len(text.split()) <= 2 for text in exact.interpolate(a, b, method=Greedy(max_tokens=2)))
    drawn = exact.interpolate(a, b, method=Sampling(), seed=1)
    assert (
        drawn
        == exact.interpolate(a, b, method=Sampling(), seed=1)
        != exact.interpolate(a, b, method=Sampling(), seed=2)
    )


def test_at_strength_0_variants_are_the_reconstruction(exact: Space, texts: list[str]) -> None:
    made = exact.reconstruct(texts[0])
    landed = float(np.linalg.norm(exact.encode(made) - exact.encode(texts[0])))
    assert landed > 0
    variants = exact.vary(texts[0], 3, strength=0)
    assert variants == [Variant(made, 0.0, pytest.approx(landed))] * 3


@pytest.mark.parametrize("kind", ["exact", "autoencoder"])
def test_variants_move_in_proportion_to_their_strength(kind: str, request: pytest.FixtureRequest) -> None:
    each: Space = request.getfixturevalue(kind)
    text = "the dog" if kind == "exact" else "anna sees cats"
    once, twice = (each.vary(text, 20, strength=strength, seed=1) for strength in (0.7, 1.4))
    assert min(variant.moved for variant in once) > 0
    np.testing.assert_allclose([v.moved for v in twice], [2 * v.moved for v in once], rtol=1e-4)


def test_at_strength_1_variants_stray_like_samples_of_the_posterior(space: Space, autoencoder: Space) -> None:
    method = Greedy(max_tokens=1)
    _, deviation = space.encode("the dog", what="parameters")
    moved = [variant.moved for variant in space.vary("the dog", 500, method=method)]
    assert np.square(moved).mean() == pytest.approx(np.square(deviation).sum(), rel=0.15)
    # A single point has no spread of its own: prior deviations stand in, of which there are 4 of size 1.
    moved = [variant.moved for variant in autoencoder.vary("anna sees cats", 500, method=method)]
    assert np.square(moved).mean() == pytest.approx(4, rel=0.15)


def test_variants_say_where_encoding_them_again_lands(exact: Space, texts: list[str]) -> None:
    variants = exact.vary(texts[0], 6, strength=4.0, seed=2)
    assert len({variant.text for variant in variants}) > 2
    landed = exact.encode([variant.text for variant in variants]) - exact.encode(texts[0])
    np.testing.assert_allclose([variant.landed for variant in variants], np.linalg.norm(landed, axis=1), atol=1e-9)
    assert exact.vary(texts[0], 6, strength=4.0, seed=2) == variants != exact.vary(texts[0], 6, strength=4.0, seed=3)
    assert [each[:2] for each in exact.vary(texts[0], 2, strength=4.0, seed=2)] == [each[:2] for each in variants[:2]]
    assert exact.vary(texts[0], 0) == []


def test_cosines_of_vast_and_tiny_codes_are_cosines(space: Space, texts: list[str]) -> None:
    code = space.encode(texts[0]).astype(np.float64)
    for size in (1e30, 1e-30):
        assert space.similarity(size * code, code) == pytest.approx(1, abs=1e-6)
    cosines = space.similarity(texts, texts)
    assert np.abs(cosines).max() <= 1
    assert max(neighbor.similarity for neighbor in space.neighbors(texts[0], texts, 3)) <= 1


def test_similarity_is_the_cosine(space: Space, texts: list[str]) -> None:
    codes = space.encode(texts)
    directions = codes / np.linalg.norm(codes, axis=1, keepdims=True)
    cosines = directions @ directions.T
    assert np.ptp(cosines) > 0.5
    both = space.similarity(texts[:5], texts)
    assert both.shape == (5, 24)
    np.testing.assert_allclose(both, cosines[:5], atol=1e-5)
    for same in (space.similarity(codes[:5], texts), space.similarity(np.array(texts[:5]), torch.tensor(codes))):
        np.testing.assert_allclose(same, cosines[:5], atol=1e-5)
    np.testing.assert_allclose(space.similarity(texts[2], texts), cosines[2], atol=1e-5)
    np.testing.assert_allclose(space.similarity(texts, codes[2]), cosines[:, 2], atol=1e-5)
    one = space.similarity(texts[0], texts[1])
    assert isinstance(one, float)
    assert one == pytest.approx(cosines[0, 1], abs=1e-5)
    assert space.similarity(3 * codes[0], codes[0]) == pytest.approx(1, abs=1e-5)
    for given in ((text for text in texts[:5]), dict.fromkeys(texts[:5]), (code for code in codes[:5])):
        np.testing.assert_allclose(space.similarity(given, texts), cosines[:5], atol=1e-5)
    assert space.similarity([], texts).shape == (0, 24)
    assert space.similarity(texts[0], []).shape == (0,)


def brute_force(space: Space, query: Any, texts: list[str], k: int) -> list[int]:
    cosines = space.similarity(query, texts)
    return np.argsort(-cosines, kind="stable")[:k].tolist()


@pytest.mark.parametrize("chunk", [3, 8, 4096])
def test_neighbours_are_those_of_an_exhaustive_search(
    exact: Space, texts: list[str], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CHUNK", chunk)
    distinct = list(dict.fromkeys(texts))
    for query in (distinct[7], exact.encode(distinct[7]) + 0.1):
        for k in (1, 4, 10):
            found = exact.neighbors(query, (text for text in distinct), k)
            assert [neighbor.row for neighbor in found] == brute_force(exact, query, distinct, k)
            assert [neighbor.text for neighbor in found] == [distinct[neighbor.row] for neighbor in found]
            cosines = exact.similarity(query, [neighbor.text for neighbor in found])
            np.testing.assert_allclose([neighbor.similarity for neighbor in found], cosines, atol=1e-9)
    itself = exact.neighbors(distinct[7], distinct)
    assert len(itself) == 5
    assert itself[0] == Neighbor(distinct[7], pytest.approx(1), 7)


def test_few_and_equal_neighbours(space: Space, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(space.neighbors(texts[0], texts[:3], k=10)) == 3
    assert space.neighbors(texts[0], []) == []
    monkeypatch.setattr(encoding, "CHUNK", 7)
    equal = space.neighbors(np.zeros(6), texts, k=9)  # to nothing, all are equally near
    assert [neighbor.row for neighbor in equal] == list(range(9))


# How likely


def test_scores_are_those_of_the_estimator_in_any_batch(space: Space, texts: list[str]) -> None:
    scores = space.score(texts, samples=7, seed=5)
    assert len(scores) == 24
    split = EncodedSplit.of(texts, space.tokenizer, 40)
    for batch_tokens in (16, 64, None):
        expected = likelihood(space.model, split, samples=7, seed=5, batch_tokens=batch_tokens)
        for name in ("nll_N", "elbo_N", "reconstruction_N"):
            np.testing.assert_allclose(getattr(scores, name), getattr(expected, name), rtol=1e-5)
    np.testing.assert_allclose(space.score(texts[:5], samples=7, seed=5).nll_N, scores.nll_N[:5], rtol=1e-5)
    assert np.abs(space.score(texts, samples=7, seed=6).nll_N - scores.nll_N).max() > 1e-3
    assert len(space.score(texts[0], samples=2)) == 1
    nothing = space.score([], samples=2)
    assert len(nothing) == 0
    with pytest.raises(TextspaceError, match="no sentence was scored"):
        nothing.estimates()
    assert space.score(texts, samples=0).nll_N is None


def test_names_stand_for_what_they_name(space: Space, texts: list[str]) -> None:
    codes_NZ = space.encode(texts[:3])
    assert space.decode(codes_NZ, method="beam") == space.decode(codes_NZ, method=Beam())
    with pytest.raises(TextspaceError, match="there is no decoding method 'bean'; did you mean 'beam'"):
        space.decode(codes_NZ, method="bean")
    with pytest.raises(TextspaceError, match="there is no suite 'quik'; did you mean 'quick'"):
        space.evaluate(texts, suite="quik")
    assert list(space.evaluate(texts, measures="reconstruction").entries) == ["reconstruction"]
    asked = {"measures": "likelihood", "samples": 3, "end_token": "both"}
    report = space.evaluate(texts, **asked)
    assert list(report.entries) == ["likelihood", "likelihood_without_end"]
    found = report.entries["likelihood"].findings.estimates["nll"]
    assert "importance-weighted NLL, 3 samples" in found.name
    for more, told in (
        ({"samples": 0}, "cannot take 0 samples: give a whole number from 1"),
        ({"end_token": "never"}, "end_token is 'never': use included, dropped, length or both"),
        ({"precision": "fp8"}, "precision is 'fp8': use 'float32', 'tf32' or 'bf16'"),
    ):
        with pytest.raises(TextspaceError, match=told):
            space.evaluate(texts, **asked | more)
    with pytest.raises(TextspaceError, match=r"recipe has no option 'latent\.dimm'"):
        Space.fit(texts, "vae", settings="latent.dimm=3")
    with pytest.raises(TextspaceError, match="cannot learn from 5: give a file's name"):
        Space.fit(5)


def test_scores_follow_their_sentences(space: Space, language_model: Space, texts: list[str]) -> None:
    turned = space.score(texts[::-1], samples=0).kl_N["z"]  # closed, so the noise of a position is not in it
    np.testing.assert_allclose(turned, space.score(texts, samples=0).kl_N["z"][::-1], rtol=1e-4)
    tiny = tiny_sentences(20)
    forth, back = language_model.score(tiny), language_model.score(tiny[::-1])
    np.testing.assert_allclose(back.nll_N, forth.nll_N[::-1], rtol=1e-5)
    assert np.ptp(forth.nll_N) > 1


@pytest.mark.parametrize("kind", ["space", "language_model", "autoencoder"])
def test_the_scores_of_tokens_sum_to_that_of_the_sentence(kind: str, request: pytest.FixtureRequest) -> None:
    each: Space = request.getfixturevalue(kind)
    given = ["the dog .", "the"] if kind == "space" else ["anna sees cats", "bob"]
    scores = each.score(given, samples=3)
    assert [len(tokens) for tokens in scores.tokens] == [4, 2]  # the end is one of them
    np.testing.assert_allclose([-tokens.sum() for tokens in scores.tokens], scores.reconstruction_N, rtol=1e-5)
    without = each.score(given, samples=3, end_token="dropped")
    np.testing.assert_allclose([-tokens[:-1].sum() for tokens in scores.tokens], without.reconstruction_N, rtol=1e-5)


def test_scores_with_lengths_need_the_training_sentences_lengths(space: Space) -> None:
    lengths = Lengths([0, 3, 0, 5])
    known = Space(space.recipe, space.tokenizer, space.model, {METRIC: lengths.to_dict()})
    scores = known.score(["the dog .", "the"], samples=3, end_token="length")
    assert [len(tokens) for tokens in scores.tokens] == [3, 1]  # the end is none of them
    np.testing.assert_allclose(scores.log_length_N, lengths.log_prob([3, 1]))
    words_N = np.array([tokens.sum() for tokens in scores.tokens])
    np.testing.assert_allclose(-scores.reconstruction_N, words_N + scores.log_length_N, rtol=1e-5)
    with pytest.raises(TextspaceError, match="does not know how long its training sentences were"):
        Space(space.recipe, space.tokenizer, space.model).score("the", end_token="length")


def test_scores_are_named_after_their_bounds(space: Space, language_model: Space, texts: list[str]) -> None:
    estimates = space.score(texts, samples=4).estimates()
    assert "importance-weighted NLL, 4 samples, upper bound" in estimates["nll"].name
    assert (estimates["nll"].bound, estimates["elbo"].bound) == ("upper", "upper")
    assert estimates["nll"].value < estimates["elbo"].value
    assert estimates["nll"].settings["seed"] == 0
    known = language_model.score(tiny_sentences(5)).estimates()
    assert (known["nll"].name, known["nll"].bound) == ("exact NLL", "exact")
    assert "elbo" not in known


# Other models, making, moving


def test_a_language_model_says_that_it_has_no_codes(language_model: Space) -> None:
    refused: list[Callable[[Space], Any]] = [
        lambda space: space.encode("anna"),
        lambda space: space.encode([]),
        lambda space: next(space.encode_stream(["anna"])),
        lambda space: space.decode(np.zeros(4)),
        lambda space: space.reconstruct("anna"),
        lambda space: space.interpolate("anna", "bob"),
        lambda space: space.vary("anna"),
        lambda space: space.similarity("anna", "bob"),
        lambda space: space.neighbors("anna", ["bob"]),
        lambda space: space.dim,
    ]
    for call in refused:
        with pytest.raises(TextspaceError) as caught:
            call(language_model)
        assert str(caught.value) == (
            "'lstm-lm' is a language model and has no codes: it can score and sample; train a recipe with an encoder "
            "to encode and decode"
        )
    assert set(" ".join(language_model.sample(20)).split()) <= {*" ".join(tiny_sentences()).split(), "<unk>"}


def test_an_autoencoders_posterior_is_a_point(autoencoder: Space) -> None:
    given = ["anna sees cats", "bob likes dogs"]
    mean, deviation = autoencoder.encode(given, what="parameters")
    assert not deviation.any()
    np.testing.assert_array_equal(autoencoder.encode(given, what="sample"), mean)
    assert "proposal" in autoencoder.score(given, samples=4).estimates()["nll"].name


def test_subwords_come_back_as_text(subwords: Space) -> None:
    assert isinstance(subwords.reconstruct("anna sees cats"), str)
    assert len(subwords.sample(3)) == 3
    assert len(subwords.score("anna sees cats", samples=0).tokens[0]) > 4


def test_it_shows_what_it_is(space: Space, language_model: Space) -> None:
    tokens = f"{len(space.tokenizer):,}"
    assert repr(space) == f"Space('default', 6 dimensions, {tokens} tokens, on cpu)"
    assert repr(language_model) == f"Space('lstm-lm', no codes, {len(language_model.tokenizer)} tokens, on cpu)"


def test_whole_numbers_may_be_numpys_or_tensors(space: Space, texts: list[str]) -> None:
    assert space.sample(np.int64(2)) == space.sample(torch.tensor(2)) == space.sample(2)
    assert space.neighbors(texts[0], texts, k=np.uint8(3)) == space.neighbors(texts[0], texts, k=3)
    assert len(space.interpolate("the", "a", steps=np.int32(3))) == 3
    np.testing.assert_array_equal(space.encode(texts, batch_size=np.int16(4)), space.encode(texts, batch_size=4))


def test_a_mask_that_hides_nothing_is_no_matter(space: Space, texts: list[str]) -> None:
    code = space.encode(texts[0])
    assert space.decode(np.ma.array(code)) == space.decode(code)


def test_moving_gives_the_space_itself(space: Space) -> None:
    assert space.to("cpu") is space
    assert space.to(torch.device("cpu")) is space
    assert space.device == torch.device("cpu")


def test_progress_is_shown_when_asked_for(space: Space, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def watched(items: Any, what: str, asked: bool, total: int | None = None) -> Any:
        shown.extend([what] if asked else [])
        return items

    for place in ("textspace.encoding.track", "textspace.coder.track", "textspace.evaluate.likelihood.track"):
        monkeypatch.setattr(place, watched)
    for on in (False, True):
        space.encode(texts, show_progress=on)
        space.decode(np.zeros(6), show_progress=on)
        space.reconstruct(texts[0], show_progress=on)
        space.sample(1, show_progress=on)
        space.neighbors(texts[0], texts, show_progress=on)
        space.score(texts, samples=0, show_progress=on)
        assert on or not shown
    assert shown == ["encoding", "decoding", "encoding", "decoding", "decoding", "searching", "scoring"]


QUICK = small(RECIPES["vae"]).but({"training.steps": 2})


def test_training_from_python_leaves_a_whole_space_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    kept = Space.fit(tiny_sentences(60), QUICK, out=tmp_path / "kept", device="cpu")
    assert {path.name for path in (tmp_path / "kept").iterdir()} >= WHOLE_SPACE
    assert kept.metrics["trained"]["steps"] == 2
    again = Space.load(tmp_path / "kept", "cpu")
    np.testing.assert_array_equal(again.encode("anna sees cats"), kept.encode("anna sees cats"))
    again = Space.load(tmp_path / "kept", torch.device("cpu"))
    assert again.device == torch.device("cpu")
    unkept = Space.fit((text for text in tiny_sentences(60)), QUICK, device=torch.device("cpu"))
    np.testing.assert_array_equal(unkept.encode("anna sees cats"), kept.encode("anna sees cats"))
    gc.collect()  # the copy of what the generator gave lives as long as its reader
    assert [path for path in scratch.iterdir() if not path.name.startswith("torch")] == []  # torch keeps its own cache


def test_what_is_wrong_is_shown_or_else_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    text = {"train": ["anna sees cats", "bob sees dogs"] * 5, "valid": ["anna sees zebras", "bob sees dogs\0", ""]}
    with pytest.warns(UserWarning, match="flatters likelihoods") as warned:
        Space.fit(text, QUICK, device="cpu")
    told = [str(each.message) for each in warned]
    assert any("of the validation tokens, which flatters likelihoods" in line for line in told)
    assert any(line.startswith("The codes are collapsed so far") for line in told)
    assert capsys.readouterr().err == ""
    with nothing_told():
        Space.fit(text, QUICK, device="cpu", show_progress=True)
    shown = " ".join(capsys.readouterr().err.split())
    assert all(" ".join(line.split()) in shown for line in told if "flatters" in line)
    assert "The codes are collapsed so far" in shown


def test_training_takes_a_file_a_mapping_or_a_corpus_and_all_settings(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("\n".join(tiny_sentences(60)))
    options: dict[str, Any] = {
        "settings": ["latent.dim=3", "training.steps=1"],
        "device": "cpu",
        "epochs": 1,
        "seed": 9,
    }
    recipe = small(RECIPES["vae"])
    of_file = Space.fit(tmp_path / "my.txt", recipe, **options)
    assert (of_file.dim, of_file.recipe.training.epochs, of_file.recipe.training.seed) == (3, 1, 9)
    assert of_file.metrics["trained"]["steps"] == 1
    of_corpus = Space.fit(corpus_of(tiny_sentences(60)), recipe, **(options | {"seed": 8}))
    assert np.abs(of_corpus.encode("anna sees cats") - of_file.encode("anna sees cats")).max() > 1e-3
    of_mapping = Space.fit({"train": ["anna sees cats"] * 5, "valid": ["anna sees dogs"]}, recipe, **options)
    assert of_mapping.metrics["valid"]["elbo"]["n"] == 1
    assert len(of_mapping.tokenizer) == 4 + len({"anna", "sees", "cats"})


def test_a_misspelt_name_in_a_list_of_files_is_no_sentence(space: Space, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(tiny_sentences(20)))
    for names in ([str(path), "b.txt"], [path, "b.txt"], ["builtin:30", "b.txt"]):
        with pytest.raises(TextspaceError, match=r"there is no file or folder 'b.txt'|b\.txt"):
            Space.fit(names, QUICK, device="cpu")
        with pytest.raises(TextspaceError, match=r"b\.txt"):
            space.evaluate(names, measures=["likelihood"])


def test_lists_of_names_are_told_from_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "other", "a.txt"):
        Path(name).write_text("anna sees cats\n")
    Path("folder").mkdir()
    for names in (["plain", "other"], ["a.txt", "b.txt"], ["folder", "builtin"], ["*.txt", "a.txt"], [Path("gone")]):
        assert is_by_name(names), names
    for sentences in (["anna sees cats", "a.txt"], ["plain", "sentences"], ["see b.txt"], [], ["x" * 5000 + ".txt"]):
        assert not is_by_name(sentences), sentences


def test_a_list_of_files_is_read_and_not_taken_for_sentences(space: Space, tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("\n".join(tiny_sentences(60)))
    second.write_text("\n".join(tiny_sentences(40)))
    fitted = Space.fit([str(first), second], QUICK, device="cpu")
    assert fitted.metrics["source"] == "first+second"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = space.evaluate([first, str(second)], measures="reconstruction")
    assert report.data["source"] == "first+second"
    assert report.data["splits"]["test"]["of"] == 100


# Mistakes

NOT_FINITE = "holds a number that is not finite (NaN or infinity): mend or drop it"
NOT_CODES = "these are not codes: give vectors of 6 numbers"
NO_METHOD = "give one such as Sampling() or Beam(width=5), or the name of one"
FROM_0, FROM_1 = (f": give a whole number from {least}" for least in (0, 1))
NOT_MEANS = "these are means and deviations of codes, and not codes: give .mean of them"
COMPLEX = "these codes are complex numbers: give real ones, such as codes.real"
HIDDEN = "these codes hide numbers behind a mask: fill them in, or drop those codes"
MASKED = np.ma.masked_less(np.arange(6.0), 2)
FOLDER, SUCH = "the name of the folder is", ": give one such as 'my-space'"
NOT_ONE_COLUMN = "a data frame gives the names of its columns: give one column, such as frame['text']"


class Frame(list):
    """What a data frame shows of itself."""

    columns = ("text",)

    def __init__(self) -> None:
        super().__init__(self.columns)

    def to_numpy(self) -> np.ndarray:
        return np.array([["the dog"]])


BAD: dict[str, tuple[Callable[[Space], Any], str]] = {
    "unknown recipe": (
        lambda space: Space.fit(["a"], "defualt"),
        "there is no recipe 'defualt'; did you mean 'default'?",
    ),
    "unknown option": (
        lambda space: Space.fit(["a"], "vae", settings=["latent.dmi=3"]),
        "recipe has no option 'latent.dmi'; did you mean 'latent.dim'?",
    ),
    "negative dimension": (
        lambda space: Space.fit(["a"], "vae", settings=["latent.dim=-3"]),
        "latent.dim is -3, but input should be greater than or equal to 1",
    ),
    "no epochs": (
        lambda space: Space.fit(["a"], "vae", epochs=0),
        "training.epochs is 0, but input should be greater than or equal to 1",
    ),
    "two numbers of epochs": (
        lambda space: Space.fit(["a"], "vae", epochs=3, settings=iter(["training.epochs=5"])),
        "settings and epochs, seed or sparsity say two things of one setting: leave out one",
    ),
    "no text": (
        lambda space: Space.fit([], "vae"),
        "nothing is left of 'sentences' (it is empty); give a source with at least one sentence",
    ),
    "no such device": (lambda space: space.to("abacus"), "there is no device 'abacus': use cpu, cuda or cuda:1"),
    "a number for sentences": (
        lambda space: space.encode(5),
        "sentences cannot be of type int: give a string or a list of strings",
    ),
    "a number for a sentence": (
        lambda space: space.encode(["a", 5]),
        "sentence 2 is of type int: give strings",
    ),
    "nothing for a sentence": (lambda space: space.score([None]), "sentence 1 is of type NoneType: give strings"),
    "bytes for a sentence": (lambda space: space.encode([b"a"]), "sentence 1 is of type bytes: give strings"),
    "half a character": (
        lambda space: space.encode(["a", "b\ud800"]),
        "sentence 2 holds half of a surrogate pair, which is not text: mend it",
    ),
    "unknown request": (
        lambda space: space.encode("a", what="median"),
        "encode cannot give 'median': ask for 'mean', 'sample', 'parameters' or 'gates'",
    ),
    "unknown output": (
        lambda space: space.encode("a", output="torch"),
        "encode has no output 'torch': ask for 'numpy' or 'tensor'",
    ),
    "empty batches to encode": (
        lambda space: space.encode("a", batch_size=0),
        f"a batch cannot hold 0 sentences{FROM_1}",
    ),
    "empty batches to decode": (
        lambda space: space.decode(np.ones(6), batch_size=0),
        f"a batch cannot hold 0 sentences{FROM_1}",
    ),
    "negative batches": (
        lambda space: space.decode(np.ones(6), batch_size=-2),
        f"a batch cannot hold -2 sentences{FROM_1}",
    ),
    "batches of halves to encode": (
        lambda space: space.encode(["a"], batch_size=1.5),
        f"a batch cannot hold 1.5 sentences{FROM_1}",
    ),
    "batches of text to decode": (
        lambda space: space.decode(np.ones(6), batch_size="2"),
        f"a batch cannot hold '2' sentences{FROM_1}",
    ),
    "parameters in a stream": (
        lambda space: next(space.encode_stream(["a"], what="parameters")),
        "encode_stream cannot give 'parameters': ask for 'mean', 'sample' or 'gates'",
    ),
    "a stream of one string": (
        lambda space: next(space.encode_stream("a b")),
        "this takes many sentences: give a list of them, not one string",
    ),
    "reconstructed parameters": (
        lambda space: space.reconstruct("a", what="parameters"),
        "reconstruct cannot decode 'parameters': ask for 'mean' or 'sample'",
    ),
    "short code": (
        lambda space: space.decode(np.ones(5)),
        "codes of this space have 6 dimensions and these have shape (5,)",
    ),
    "wide codes": (
        lambda space: space.decode(np.ones((2, 7))),
        "codes of this space have 6 dimensions and these have shape (2, 7)",
    ),
    "empty codes": (
        lambda space: space.decode(np.ones((3, 0))),
        "codes of this space have 6 dimensions and these have shape (3, 0)",
    ),
    "codes in a cube": (
        lambda space: space.decode(np.ones((1, 2, 6))),
        "codes of this space have 6 dimensions and these have shape (1, 2, 6)",
    ),
    "a number for codes": (
        lambda space: space.decode(1.0),
        "codes of this space have 6 dimensions and these have shape ()",
    ),
    "codes of many lengths": (lambda space: space.decode([[1.0] * 6, [1.0] * 5]), NOT_CODES),
    "a sentence for a code": (lambda space: space.decode("the dog"), NOT_CODES),
    "NaN codes": (lambda space: space.decode([np.ones(6), np.full(6, np.nan)]), f"code 1 {NOT_FINITE}"),
    "infinite codes": (lambda space: space.decode(np.full(6, np.inf)), f"code 0 {NOT_FINITE}"),
    "a code too large": (lambda space: space.decode(np.full(6, 1e300)), f"code 0 {NOT_FINITE}"),
    "0 for a method": (lambda space: space.decode(np.zeros(6), method=0), f"method is 0: {NO_METHOD}"),
    "no name of a method": (
        lambda space: space.reconstruct("the", method=""),
        "there is no decoding method ''; there are 'greedy', 'sampling' and 'beam'",
    ),
    "a list for a sample's method": (lambda space: space.sample(1, method=[]), f"method is []: {NO_METHOD}"),
    "fewer than no samples": (lambda space: space.sample(-1), f"cannot sample -1 sentences{FROM_0}"),
    "samples and a half": (lambda space: space.sample(1.5), f"cannot sample 1.5 sentences{FROM_0}"),
    "samples in text": (lambda space: space.sample("3"), f"cannot sample '3' sentences{FROM_0}"),
    "no number of samples": (lambda space: space.sample(None), f"cannot sample None sentences{FROM_0}"),
    "several numbers of samples": (
        lambda space: space.sample(torch.ones(2, dtype=torch.long)),
        f"cannot sample tensor([1, 1]) sentences{FROM_0}",
    ),
    "half a round": (lambda space: space.sample(1, chain=1.5), f"a chain cannot have 1.5 rounds{FROM_0}"),
    "fewer than no codes": (lambda space: space.prior_codes(-1), f"cannot draw -1 codes{FROM_0}"),
    "a data frame": (lambda space: space.encode(Frame()), NOT_ONE_COLUMN),
    "a stream of a data frame": (lambda space: next(space.encode_stream(Frame())), NOT_ONE_COLUMN),
    "a data frame to sample around": (lambda space: space.sample(2, of=Frame()), NOT_ONE_COLUMN),
    "a data frame to learn from": (lambda space: Space.fit(Frame(), RECIPE), NOT_ONE_COLUMN),
    "a data frame as a split": (lambda space: Space.fit({"train": Frame()}, RECIPE), NOT_ONE_COLUMN),
    "a data frame to measure on": (lambda space: space.evaluate(Frame()), NOT_ONE_COLUMN),
    "one step": (
        lambda space: space.interpolate("a", "b", steps=1),
        "an interpolation has at least its 2 ends, so steps cannot be 1: give a whole number from 2",
    ),
    "unknown path": (
        lambda space: space.interpolate("the", "a", path="curved"),
        "there is no path 'curved': use 'linear' or 'spherical'",
    ),
    "an end of two codes": (
        lambda space: space.interpolate(np.ones((2, 6)), "the"),
        "an end is one sentence or one code, and these are 2: give the string or the code itself",
    ),
    "an end in a list": (
        lambda space: space.interpolate(["the"], ["a"]),
        "an end is one sentence or one code, and this is a list with one in it: give the string or the code itself",
    ),
    "NaN end": (lambda space: space.interpolate(np.full(6, np.nan), "the"), f"code 0 {NOT_FINITE}"),
    "two sentences varied": (
        lambda space: space.vary(["the", "a"]),
        "vary takes one sentence, not a list: give a string",
    ),
    "fewer than no variants": (lambda space: space.vary("the", -1), f"cannot make -1 variants{FROM_0}"),
    "variants and a half": (lambda space: space.vary("the", n=1.5), f"cannot make 1.5 variants{FROM_0}"),
    "strength in text": (
        lambda space: space.encode(["a"], what="sample", strength="1"),
        "strength is '1': give a number from 0 (the mean itself) to 1,000,000",
    ),
    "a list of deviations": (
        lambda space: space.sample(1, deviation=[1]),
        "deviation is [1]: give a number from 0 to 1,000,000, or 'dim' for 1 / sqrt(dimensions)",
    ),
    "an array of text without axes": (
        lambda space: space.encode(np.array("a b")),
        "sentences cannot be of type ndarray: give a string or a list of strings",
    ),
    "parameters of a sentence": (lambda space: space.decode(space.encode("the", what="parameters")), NOT_MEANS),
    "parameters of sentences": (lambda space: space.decode(space.encode(["the"], what="parameters")), NOT_MEANS),
    "likeness of parameters": (lambda space: space.similarity("a", space.encode("a", what="parameters")), NOT_MEANS),
    "complex codes": (lambda space: space.decode(np.ones(6) * 1j), COMPLEX),
    "a list of complex codes": (lambda space: space.decode([np.ones(6) * 1j]), COMPLEX),
    "a complex tensor": (lambda space: space.decode(torch.ones(6) * 1j), COMPLEX),
    "complex sparse codes": (lambda space: space.decode(csr_matrix(np.ones((1, 6)) * 1j)), COMPLEX),
    "hidden numbers": (lambda space: space.decode(MASKED), HIDDEN),
    "hidden numbers in a list": (lambda space: space.decode([MASKED, MASKED]), HIDDEN),
    "no recipe": (
        lambda space: Space.fit(["a"], None),
        "recipe is of type NoneType: give a recipe or the name of one",
    ),
    "no settings": (
        lambda space: Space.fit(["a"], "vae", settings=None),
        "settings are of type NoneType: give strings like 'latent.dim=64'",
    ),
    "a number for a setting": (
        lambda space: Space.fit(["a"], "vae", settings=[4]),
        "setting 4 is of type int: give strings like 'latent.dim=64'",
    ),
    "sparsity in text": (
        lambda space: Space.fit(["a"], "hsvae", sparsity="0.5"),
        "sparsity is '0.5': give the share of dimensions that shall be off, between 0 and 1, such as 0.8",
    ),
    "a dict of options": (
        lambda space: Space.fit(["a"], RECIPE, options={"valid": 0.1}),
        "options are of type dict: give those of textspace.data.options, such as ReadOptions(valid=0.1)",
    ),
    "no sentences in a split": (
        lambda space: Space.fit({"train": None}, RECIPE),
        "sentences cannot be of type NoneType: give a string or a list of strings",
    ),
    "a folder without a name to fit into": (lambda space: Space.fit(["a"], RECIPE, out=""), f"{FOLDER} ''{SUCH}"),
    "a folder without a name to save into": (lambda space: space.save(""), f"{FOLDER} ''{SUCH}"),
    "no folder to save into": (lambda space: space.save(None), f"{FOLDER} of type NoneType{SUCH}"),
    "no folder to load": (lambda space: Space.load(None), f"{FOLDER} of type NoneType{SUCH}"),
    "a folder without a name to load": (lambda space: Space.load("", "cpu"), f"{FOLDER} ''{SUCH}"),
    "negative strength": (
        lambda space: space.vary("the", strength=-0.5),
        "strength is -0.5: give a number from 0 (the mean itself) to 1,000,000",
    ),
    "NaN strength": (
        lambda space: space.vary("the", strength=float("nan")),
        "strength is nan: give a number from 0 (the mean itself) to 1,000,000",
    ),
    "similarity to a number": (
        lambda space: space.similarity("the", 5),
        "codes of this space have 6 dimensions and these have shape ()",
    ),
    "similarity of a mixture": (
        lambda space: space.similarity("the", ["the", 5]),
        "sentence 2 is of type int: give strings",
    ),
    "no neighbours": (
        lambda space: space.neighbors("the", ["a"], k=0),
        f"cannot find 0 neighbours{FROM_1}",
    ),
    "neighbours and a half": (
        lambda space: space.neighbors("the", ["a"], k=1.5),
        f"cannot find 1.5 neighbours{FROM_1}",
    ),
    "neighbours in nothing": (
        lambda space: space.neighbors("the", None),
        "sentences cannot be of type NoneType: give a string or a list of strings",
    ),
    "neighbours in a string": (
        lambda space: space.neighbors("the", "the dog"),
        "this takes many sentences: give a list of them, not one string",
    ),
    "neighbours of two": (
        lambda space: space.neighbors(["the", "a"], ["the"]),
        "the query is one sentence or one code, and these are 2: give the string or the code itself",
    ),
    "neighbours among numbers": (
        lambda space: space.neighbors("the", ["a", "the", 3]),
        "sentence 3 is of type int: give strings",
    ),
    "fewer than no importance samples": (
        lambda space: space.score("the", samples=-1),
        f"cannot take -1 samples (0 is for no importance-weighted bound){FROM_0}",
    ),
    "importance samples and a half": (
        lambda space: space.score(["the"], samples=1.5),
        f"cannot take 1.5 samples (0 is for no importance-weighted bound){FROM_0}",
    ),
    "more samples than are counted": (
        lambda space: space.sample(10**23),
        f"cannot sample {10**23} sentences: give a whole number from 0 to 2,147,483,647",
    ),
    "options that are a dict": (
        lambda space: space.evaluate(["the dog"], options={"label": 2}),
        "options are of type dict: give those of textspace.data.options, such as ReadOptions(valid=0.1)",
    ),
    "unknown end": (
        lambda space: space.score("the", end_token="excluded"),
        "end_token is 'excluded': use 'included', 'dropped' or 'length'",
    ),
}


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
@pytest.mark.parametrize("mistake", BAD)
def test_mistakes_are_told_in_one_sentence(mistake: str, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 2)  # sentences keep their numbers from chunk to chunk
    call, told = BAD[mistake]
    with pytest.raises(TextspaceError) as caught:
        call(space)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("corpus", "told"),
    [("the dog", "this takes many sentences: give a list of them, not one string"), (Frame(), NOT_ONE_COLUMN)],
)
def test_mistakes_are_told_behind_a_bar_too(corpus: Any, told: str, space: Space, monkeypatch: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    with pytest.raises(TextspaceError) as caught:
        space.neighbors("the", corpus, show_progress=True)
    assert str(caught.value) == told
