"""Cosines of token vectors against every pair by hand, against vectors whose cosines are known, and their errors."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from textspace.errors import TextspaceError
from textspace.evaluate.isotropy import FEWEST_SENTENCES, Isotropy, isotropy_of
from textspace.evaluate.statistics import jackknife_error

Arrays = list[np.ndarray]
ONES = ("random", "self_tokens", "self_occurrences", "intra")


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(3)


def drawn(chance: np.random.Generator, sentences: int, kinds: int = 7, dim: int = 6) -> tuple[Arrays, Arrays]:
    """Tokens with a vector of their own, one of their sentence and noise, all with a common part."""
    own_WD, common_D = chance.normal(size=(kinds, dim)), chance.normal(size=dim)
    ids = [chance.integers(kinds, size=chance.integers(1, 9)) for _ in range(sentences)]
    vectors = [
        own_WD[each] + 0.5 * common_D + chance.normal(size=dim) + chance.normal(size=(len(each), dim)) for each in ids
    ]
    return vectors, ids


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def by_hand(vectors: Arrays, ids: Arrays) -> dict[str, float]:
    """The three cosines from their definitions, pair by pair."""
    tokens = [
        (row, int(token), vector)
        for row, (of, which) in enumerate(zip(vectors, ids, strict=True))
        for token, vector in zip(which, of, strict=True)
    ]
    random, own = [], {}
    for (row_a, token_a, a), (row_b, token_b, b) in combinations(tokens, 2):
        if row_a != row_b:
            random.append(cosine(a, b))
            if token_a == token_b:
                own.setdefault(token_a, []).append(random[-1])
    kept = [token for token in own if sum(token in which for which in ids) >= FEWEST_SENTENCES]
    counts = [sum((which == token).sum() for which in ids) for token in kept]
    means = [np.mean(own[token]) for token in kept]
    intra = [np.mean([cosine(vector, of.mean(0)) for vector in of]) for of in vectors if len(of) > 1]
    return {
        "random": float(np.mean(random)),
        "self_tokens": float(np.mean(means)),
        "self_occurrences": float(np.average(means, weights=counts)),
        "intra": float(np.mean(intra)),
    }


def value(found: Isotropy, name: str) -> float:
    return getattr(found, name).value


def test_means_are_those_over_all_pairs(chance) -> None:
    vectors, ids = drawn(chance, 30)
    found, expected = isotropy_of(vectors, ids), by_hand(vectors, ids)
    assert {name: value(found, name) for name in ONES} == pytest.approx(expected, abs=1e-12)
    assert len(set(np.round(list(expected.values()), 3))) == 4  # so that none could stand for another
    for name in ("self_tokens", "self_occurrences", "intra"):
        assert value(found, f"{name}_adjusted") == pytest.approx(expected[name] - expected["random"], abs=1e-12)
    assert (found.sentences, found.tokens, found.zeros) == (30, sum(map(len, ids)), 0)
    assert found.length == pytest.approx(np.linalg.norm(np.concatenate(vectors), axis=1).mean())


@pytest.mark.parametrize("sentences", [30, 130])
def test_errors_are_a_jackknife_over_sentences(chance, sentences) -> None:
    vectors, ids = drawn(chance, sentences)

    def of(rows: np.ndarray, name: str) -> float:
        return value(isotropy_of([vectors[row] for row in rows], [ids[row] for row in rows], marked=(0, 1)), name)

    found = isotropy_of(vectors, ids, marked=(0, 1))
    for name in (*ONES, "intra_adjusted", "self_tokens_adjusted", "self_marked", "self_marked_less_unmarked"):
        expected = jackknife_error(lambda rows, name=name: of(rows, name), sentences)
        assert getattr(found, name).stderr == pytest.approx(expected, rel=1e-6)


def test_errors_are_as_large_as_what_other_sentences_would_change(chance) -> None:
    own_WD = chance.normal(size=(5, 8)) + 0.5
    found = []
    for _ in range(60):
        ids = [chance.integers(5, size=6) for _ in range(60)]
        # A sentence has a part of its own, so that its tokens are no independent draws.
        vectors = [own_WD[each] + chance.normal(size=8) + chance.normal(size=(6, 8)) for each in ids]
        found.append(isotropy_of(vectors, ids))
    for name in (*ONES, "intra_adjusted"):
        spread = np.std([value(each, name) for each in found], ddof=1)
        told = np.mean([getattr(each, name).stderr for each in found])
        assert told == pytest.approx(spread, rel=0.35)


def test_errors_of_tokens_dealt_out_anew_know_whose_they_are(chance) -> None:
    """Sentences whose tokens all point the same way, more or less so: dealt out, they make many sentences alike."""
    found = []
    for seed in range(150):
        vectors = [np.eye(8)[0] * chance.normal(1, 1) + 0.3 * chance.normal(size=(12, 8)) for _ in range(40)]
        found.append(isotropy_of(vectors, [range(12)] * 40, seed=seed))
    for name in ("intra_dealt", "intra_beyond_dealt"):
        spread = np.std([value(each, name) for each in found], ddof=1)
        told = np.sqrt(np.mean([getattr(each, name).stderr ** 2 for each in found]))
        assert told == pytest.approx(spread, rel=0.2)


def test_without_a_block_its_tokens_are_gone_wherever_they_were_dealt(chance) -> None:
    vectors, ids = drawn(chance, 12)
    found = isotropy_of(vectors, ids, seed=5)
    vectors_MD, owner_M = np.concatenate(vectors), np.arange(12).repeat([len(each) for each in ids])
    dealt_M = np.random.default_rng(5).permutation(len(owner_M))

    def of(rows: np.ndarray) -> float:
        kept_M = np.isin(owner_M[dealt_M], rows)
        left = [vectors_MD[dealt_M[kept_M & (owner_M == row)]] for row in range(12)]
        return float(np.mean([np.mean([cosine(one, of.mean(0)) for one in of]) for of in left if len(of) > 1]))

    assert value(found, "intra_dealt") == pytest.approx(of(np.arange(12)))
    assert found.intra_dealt.stderr == pytest.approx(jackknife_error(of, 12))


def test_directions_at_random_are_isotropic_and_as_alike_as_dealt_out_anew(chance) -> None:
    ids = [chance.integers(20, size=9) for _ in range(400)]
    found = isotropy_of([chance.normal(size=(9, 50)) for _ in ids], ids)
    for name in ("random", "self_tokens", "self_occurrences", "intra_beyond_dealt"):
        assert abs(value(found, name)) < 4 * getattr(found, name).stderr + 1e-3
    assert value(found, "intra") == pytest.approx(1 / 3, abs=0.02)  # 1 / sqrt(9), from nothing but its own share
    assert value(found, "intra_dealt") == pytest.approx(1 / 3, abs=0.02)


def test_a_narrow_cone_makes_all_tokens_alike(chance) -> None:
    ids = [chance.integers(20, size=5) for _ in range(300)]
    axis_D = np.eye(40)[0]
    # cos(a, b) of axis + noise with deviation r / sqrt(D) in every dimension is 1 / (1 + r^2)
    found = isotropy_of([axis_D + chance.normal(size=(5, 40)) * np.sqrt(0.5 / 40) for _ in ids], ids)
    assert value(found, "random") == pytest.approx(1 / 1.5, abs=0.02)
    assert abs(value(found, "self_tokens_adjusted")) < 4 * found.self_tokens_adjusted.stderr


def test_a_token_with_one_vector_is_wholly_like_itself_and_noise_makes_it_less(chance) -> None:
    table_WD = chance.normal(size=(10, 200))
    ids = [chance.integers(10, size=6) for _ in range(200)]
    still = isotropy_of([table_WD[each] for each in ids], ids)
    assert value(still, "self_tokens") == pytest.approx(1, abs=1e-12)
    assert value(still, "self_occurrences") == pytest.approx(1, abs=1e-12)
    moving = isotropy_of([table_WD[each] + chance.normal(size=(6, 200)) for each in ids], ids)
    assert value(moving, "self_tokens") == pytest.approx(1 / 2, abs=0.05)


def test_one_vector_a_sentence_is_wholly_like_the_sentence(chance) -> None:
    ids = [chance.integers(10, size=6) for _ in range(50)]
    found = isotropy_of([np.tile(chance.normal(size=12), (6, 1)) for _ in ids], ids)
    assert value(found, "intra") == pytest.approx(1, abs=1e-12)
    assert value(found, "intra_dealt") < 0.6
    assert found.intra_beyond_dealt.value == pytest.approx(1 - value(found, "intra_dealt"))


def test_tokens_at_right_angles_share_only_themselves_with_their_sentence() -> None:
    found = isotropy_of([np.eye(4), 3 * np.eye(4)], [range(4), range(4)])
    assert value(found, "intra") == pytest.approx(1 / 2)
    assert value(found, "random") == pytest.approx(4 / 16)


def test_two_sentences_have_no_error_where_one_alone_has_no_number(chance) -> None:
    found = isotropy_of(*drawn(chance, 2))
    assert found.random.stderr is found.intra_adjusted.stderr is None
    assert found.intra.stderr > 0


def test_the_most_contextual_come_first(chance) -> None:
    table_WD = chance.normal(size=(6, 60))
    ids = [np.concatenate([chance.permutation(6), [6] if row < FEWEST_SENTENCES - 1 else []]) for row in range(40)]
    noise_W = np.array([0.1, 2.0, 0.5, 1.0, 0.3, 0.2, 5.0])
    table_WD = np.concatenate([table_WD, chance.normal(size=(1, 60))])
    vectors = [
        table_WD[each.astype(int)] + noise_W[each.astype(int), None] * chance.normal(size=(len(each), 60))
        for each in ids
    ]
    found = isotropy_of(vectors, ids, marked={1, 3, 0}, unranked={2})
    assert [each.token for each in found.ranked] == [1, 3, 4, 5, 0]  # 2 is not wanted, and 6 occurs too seldom
    assert {(each.occurrences, each.sentences) for each in found.ranked} == {(40, 40)}
    similarities = {each.token: each.similarity for each in found.ranked}
    assert similarities[1] == pytest.approx(1 / 5, abs=0.06)
    assert found.marked_share({1, 3, 0}, 2) == 1
    assert found.marked_share({1, 3, 0}) == 3 / 5
    assert found.self_marked.value == pytest.approx(np.mean([similarities[each] for each in (1, 3, 0)]))
    assert found.self_unmarked.value == pytest.approx(np.mean([similarities[each] for each in (4, 5)]))
    less = found.self_marked_less_unmarked.value
    assert less == pytest.approx(found.self_marked.value - found.self_unmarked.value)


def test_numbers_that_there_are_not_are_none_and_vectors_without_direction_are_left_out(chance) -> None:
    vectors = [chance.normal(size=(1, 4)) for _ in range(3)]
    found = isotropy_of(vectors, [[0], [1], [2]])
    assert found.self_tokens is found.self_occurrences_adjusted is found.intra is found.self_marked is None
    assert found.ranked == []
    assert found.marked_share({0}) == 0
    zeros = isotropy_of(
        [np.concatenate([each, np.zeros((2, 4))]) for each in vectors], [[0, 5, 5], [1, 5, 5], [2, 5, 5]]
    )
    assert zeros.random == found.random
    assert (zeros.zeros, zeros.tokens) == (6, 3)


def test_fewer_than_two_sentences_are_refused(chance) -> None:
    for vectors, ids in (([], []), ([np.ones((2, 3))], [[0, 1]]), ([np.ones((1, 3)), np.zeros((1, 3))], [[0], [0]])):
        with pytest.raises(TextspaceError, match="which needs 2 sentences with tokens, and there is"):
            isotropy_of(vectors, ids)
    with pytest.raises(ValueError, match="as many vectors as tokens"):
        isotropy_of([np.ones((2, 3)), np.ones((1, 3))], [[0], [0]])
