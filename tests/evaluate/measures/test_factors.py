"""Known factors read from codes made of them, and likelihoods against the exact ones of the built-in corpus."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import small
from small_subjects import subject_on, untrained

from textspace.data.corpus import corpus_of
from textspace.data.english import FACTORS, english
from textspace.data.preparing import prepare
from textspace.data.tokenizers import UNKNOWN
from textspace.errors import TextspaceError
from textspace.evaluate import measure as measure_module
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures.factors import distance_to_truth, factors, read_factor
from textspace.lengths import METRIC, Lengths
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [sentence.text for sentence in english().sample(400, seed=5)]


@pytest.fixture(scope="module")
def space(_own_cache: None, texts: list[str]) -> Space:
    recipe = small(RECIPES["vae"])
    return untrained(recipe, prepare(corpus_of(texts), recipe).tokenizer)


@pytest.fixture(scope="module")
def language_model(space: Space) -> Space:
    return untrained(small(RECIPES["lstm-lm"]), space.tokenizer)


def with_codes(subject: Subject, codes: dict[str, np.ndarray]) -> Subject:
    for name, means_NZ in codes.items():
        subject.splits[name].__dict__["_parameters"] = (means_NZ, np.zeros_like(means_NZ))
    return subject


def one_hot(values_N: np.ndarray) -> np.ndarray:
    return (values_N[:, None] == np.unique(values_N)).astype(np.float64)


# Probes


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_a_code_that_is_the_factor_is_read_without_error(chance, size: float) -> None:
    train_M, test_N = (chance.choice(list("abcdefgh"), count) for count in (400, 200))
    found = read_factor(size * one_hot(train_M), train_M, size * one_hot(test_N), test_N)
    assert found.correct_N.all()
    # One of its dimensions tells one value from the rest, of which the most frequent one is then said.
    first = np.unique(train_M)[found.dimension]
    names, counts = np.unique(train_M[train_M != first], return_counts=True)
    second = names[counts.argmax()]
    np.testing.assert_array_equal(found.dimension_correct_N, (test_N == first) | (test_N == second))
    np.testing.assert_array_equal(found.accuracy_Z[found.dimension], found.dimension_correct_N.mean())


def test_a_dimension_that_numbers_the_values_is_found_and_read_without_error(chance) -> None:
    train_M, test_N = (chance.choice(list("cadb"), count) for count in (400, 200))
    codes = []
    for values in (train_M, test_N):
        codes_NZ = chance.normal(size=(len(values), 5))
        codes_NZ[:, 3] = np.searchsorted(list("abcd"), values)
        codes.append(codes_NZ)
    found = read_factor(codes[0], train_M, codes[1], test_N)
    assert found.dimension == 3
    assert found.dimension_correct_N.all()
    assert found.accuracy_Z[3] == 1
    assert np.delete(found.accuracy_Z, 3).max() < 0.5


def test_random_codes_are_read_at_the_majority_rate(chance) -> None:
    train_M, test_N = (chance.choice(["often", "rare"], count, p=[0.8, 0.2]) for count in (2000, 1000))
    found = read_factor(chance.normal(size=(2000, 6)), train_M, chance.normal(size=(1000, 6)), test_N)
    assert found.majority == (test_N == "often").mean()
    assert found.correct_N.mean() == pytest.approx(found.majority, abs=0.02)
    assert found.dimension_correct_N.mean() == pytest.approx(found.majority, abs=0.03)


def test_the_second_dimension_is_chosen_without_a_look_at_test_sentences(chance) -> None:
    """Of 40 dimensions of noise the luckiest on test sentences is far above chance, the second chosen is not."""
    above, luckiest = [], []
    for _ in range(4):
        train_M, test_N = (chance.choice(["one", "other"], count) for count in (300, 100))
        codes_MZ, codes_NZ = chance.normal(size=(300, 40)), chance.normal(size=(100, 40))
        codes_MZ[:, 7] = train_M == "one"
        codes_NZ[:, 7] = test_N == "one"
        found = read_factor(codes_MZ, train_M, codes_NZ, test_N)
        assert found.dimension == 7
        assert found.second not in (None, 7)
        above.append(found.accuracy_Z[found.second])
        luckiest.append(np.delete(found.accuracy_Z, 7).max())
    assert np.mean(above) == pytest.approx(0.5, abs=0.06)
    assert np.mean(luckiest) > 0.58
    alone = read_factor(codes_MZ[:, [7]], train_M, codes_NZ[:, [7]], test_N)
    assert (alone.dimension, alone.second) == (0, None)


def test_values_that_training_never_saw_are_read_wrong() -> None:
    codes = np.arange(4.0)[:, None].repeat(20, axis=0)
    values = np.array(list("acbd")).repeat(20)
    seen = values != "b"
    found = read_factor(codes[seen], values[seen], codes, values)
    np.testing.assert_array_equal(found.dimension_correct_N, seen)
    assert not found.correct_N[~seen].any()


def test_codes_equal_but_for_rounding_say_nothing(chance) -> None:
    train_M, test_N = (chance.choice(list("aab"), count) for count in (300, 200))
    codes = [np.full((len(of), 3), 2.0) + 1e-7 * (of == "a")[:, None] for of in (train_M, test_N)]
    found = read_factor(codes[0], train_M, codes[1], test_N)
    assert found.correct_N.mean() == found.majority == found.dimension_correct_N.mean()
    zeros = read_factor(np.zeros((300, 3)), train_M, np.zeros((200, 3)), test_N)
    assert zeros.correct_N.mean() == found.majority
    one_value = read_factor(codes[0], np.full(300, "a"), codes[1], test_N)
    assert one_value.correct_N.mean() == one_value.majority == (test_N == "a").mean()


# The measure


def factor_codes(texts: list[str]) -> np.ndarray:
    """Every factor one-hot, in the order of the grammar's factors, and two dimensions of noise."""
    parsed = [english().factors(text) for text in texts]
    columns = [
        [factor[name] == value for factor in parsed] for name in english().factor_names for value in FACTORS[name]
    ]
    noise_NZ = np.random.default_rng(len(texts)).normal(size=(len(texts), 2))
    return np.concatenate([np.array(columns, np.float64).T, noise_NZ], axis=1)


def test_every_factor_of_the_corpus_is_read_from_codes_made_of_them(space, texts) -> None:
    splits = {"train": texts[:300], "test": texts[300:]}
    subject = with_codes(subject_on(space, splits), {name: factor_codes(of) for name, of in splits.items()})
    found = factors(subject)
    assert set(english().factor_names) == set(FACTORS)
    for name, values in FACTORS.items():
        whole = found.estimates[f"{name}_from_code"]
        assert whole.value == 1
        assert found.per_sentence[f"{name}_from_code"] == [1.0] * 100
        single = found.estimates[f"{name}_from_dimension"]
        assert single.value == 1 if len(values) == 2 else single.value < 1
        assert whole.settings["majority"] <= single.value
        assert "posterior mean by logistic regression, test accuracy 0-1 (majority 0." in whole.name
    assert found.estimates["factors_from_code"].value == 1
    assert [row[0] for row in found.tables["factors"].rows] == list(english().factor_names)
    heat = found.pictures["factors"]
    assert list(heat.series) == list(english().factor_names)
    assert {len(row) for row in heat.series.values()} == {len(heat.ticks)} == {22}
    number = dict(zip(english().factor_names, found.tables["factors"].rows, strict=True))["number"]
    assert number[4] in (0, 1)  # the first factor's two dimensions say the same
    assert number[6] in (0, 1)
    assert number[6] != number[4]
    assert number[7] == 1
    assert "second dimension" in found.tables["factors"].columns


def test_noise_is_read_as_by_guessing_and_the_mean_is_that_of_the_factors(space, texts, chance) -> None:
    splits = {"train": texts[:300], "test": texts[300:]}
    codes = {name: chance.normal(size=(len(of), 4)) for name, of in splits.items()}
    found = factors(with_codes(subject_on(space, splits), codes)).estimates
    for name, values in FACTORS.items():  # which are all alike probable
        for estimate in (found[f"{name}_from_code"], found[f"{name}_from_dimension"]):
            assert estimate.value == pytest.approx(1 / len(values), abs=4 * estimate.stderr)
            assert estimate.settings["majority"] == pytest.approx(1 / len(values), abs=0.2)
    assert found["factors_from_code"].value == pytest.approx(np.mean([found[f"{n}_from_code"].value for n in FACTORS]))
    assert found["factors_from_code"].stderr < min(found[f"{name}_from_code"].stderr for name in FACTORS)


def test_without_a_training_split_halves_of_the_test_split_are_used(space, texts) -> None:
    found = factors(with_codes(subject_on(space, texts), {"test": factor_codes(texts)}))
    estimate = found.estimates["topic_from_code"]
    assert (estimate.value, estimate.n, estimate.settings["training_sentences"]) == (1, 200, 200)
    assert not found.per_sentence
    again = factors(with_codes(subject_on(space, texts), {"test": factor_codes(texts)}))
    assert again == found


def test_cut_sentences_have_no_factors_and_are_counted(space, texts) -> None:
    cut = [" ".join(text.split()[:-1]) for text in texts[:10]]
    splits = {"train": texts[100:300], "test": [*texts[300:], *cut]}
    codes = {"train": factor_codes(splits["train"]), "test": np.zeros((110, 22))}
    codes["test"][:100] = factor_codes(texts[300:])
    found = factors(with_codes(subject_on(space, splits), codes))
    estimate = found.estimates["topic_from_code"]
    assert (estimate.value, estimate.n, estimate.settings["outside_corpus"]) == (1, 100, 10)
    assert not found.per_sentence
    for measure in (factors, distance_to_truth):
        with pytest.raises(TextspaceError, match="none of these sentences is one of the built-in corpus"):
            measure(subject_on(space, cut))


def test_an_encoder_is_probed_too(space, texts) -> None:
    found = factors(subject_on(space, {"train": texts[:300], "test": texts[300:]})).estimates
    assert 0 < found["factors_from_code"].value < 1


# Distance to the truth


def test_the_distance_is_that_of_a_loop_over_sentences(language_model, texts) -> None:
    some = known_words(language_model, texts)[:30]
    found = distance_to_truth(subject_on(language_model, some))
    beyond = [float(language_model.score(text).nll_N[0]) + english().log_prob(text) for text in some]
    estimate = found.estimates["nll_beyond_truth"]
    assert estimate.value == pytest.approx(np.mean(beyond), rel=1e-5)
    assert estimate.stderr == pytest.approx(np.std(beyond, ddof=1) / np.sqrt(len(some)), rel=1e-4)
    np.testing.assert_allclose(found.per_sentence["nll_beyond_truth"], beyond, rtol=1e-4)
    assert (estimate.bound, estimate.better, estimate.n) == ("exact", "lower", len(some))
    assert estimate.name.startswith("exact NLL, less the exact -log p(x) of the built-in corpus")
    truth = found.estimates["truth"]
    assert truth.value == pytest.approx(-np.mean([english().log_prob(text) for text in some]))
    assert truth.settings["entropy_of_corpus"] == english().entropy()
    assert "elbo_beyond_truth" not in found.estimates


def known_words(space: Space, texts: list[str]) -> list[str]:
    """Sentences without unknown words."""
    return [text for text, ids in zip(texts, space.tokenizer.encode(texts), strict=True) if UNKNOWN not in ids]


def test_a_model_two_nats_from_the_truth_is_so_without_error_and_in_any_order(space, texts, monkeypatch) -> None:
    some = known_words(space, texts)[:60]

    def two_beyond(model, split, **given):
        exact_N = np.array([-english().log_prob(split.text(row)) for row in range(len(split))])
        return replace(likelihood(model, split, **given), nll_N=exact_N + 2, elbo_N=exact_N + 3)

    monkeypatch.setattr(measure_module, "likelihood", two_beyond)
    for given in (some, some[::-1]):
        found = distance_to_truth(subject_on(space, given)).estimates
        for key, beyond in (("nll", 2), ("elbo", 3)):
            assert found[f"{key}_beyond_truth"].value == pytest.approx(beyond)
            assert found[f"{key}_beyond_truth"].stderr == pytest.approx(0, abs=1e-9)
    assert found["truth"].stderr > 0.1


def test_bounds_are_named_and_keep_their_order(space, texts) -> None:
    found = distance_to_truth(subject_on(space, known_words(space, texts)[:60])).estimates
    assert "importance-weighted NLL, 4 samples, upper bound" in found["nll_beyond_truth"].name
    assert (found["nll_beyond_truth"].bound, found["elbo_beyond_truth"].bound) == ("upper", "upper")
    assert 0 < found["nll_beyond_truth"].value < found["elbo_beyond_truth"].value


def token_space(space: Space, texts: list[str], **changes: Any) -> Space:
    made = untrained(small(RECIPES["vat"]).but(changes), space.tokenizer)
    made.metrics[METRIC] = np.bincount([len(ids) for ids in made.tokenizer.encode(texts)], minlength=40).tolist()
    return made


def test_codes_that_tell_the_length_are_charged_for_it(space, texts) -> None:
    some = known_words(space, texts)[:40]
    tokens = token_space(space, texts)
    subject = subject_on(tokens, some)
    found = distance_to_truth(subject)
    lengths = Lengths.of_metrics(tokens.metrics)
    direct = likelihood(tokens.model, subject.test.split, samples=4, end_token="length", lengths=lengths)
    exact = np.array([english().log_prob(text) for text in some])
    for key, own_N in (("nll", direct.nll_N), ("elbo", direct.elbo_N)):
        estimate = found.estimates[f"{key}_beyond_truth"]
        np.testing.assert_allclose(found.per_sentence[f"{key}_beyond_truth"], own_N + exact)
        assert estimate.bound == "upper"
        assert "p(length)" in estimate.name
        assert "given" not in estimate.settings


def test_likelihoods_given_a_length_without_probability_are_no_bound_on_the_truth(space, texts) -> None:
    some = known_words(space, texts)[:20]
    tokens = token_space(space, texts)
    del tokens.metrics[METRIC]
    found = distance_to_truth(subject_on(tokens, some)).estimates
    for key in ("nll", "elbo"):
        assert found[f"{key}_beyond_truth"].bound == "none"
        assert "no bound: the probability of the length is missing" in found[f"{key}_beyond_truth"].name


def test_unknown_words_are_told_and_left_out_once_more(space) -> None:
    unseen = [s.text for s in english().sample(300, seed=99)]
    subject = subject_on(space, unseen)
    unknown_N = ~np.isin(unseen, known_words(space, unseen))
    assert 0 < unknown_N.mean() < 1
    found = distance_to_truth(subject)
    whole, known = (found.estimates[f"nll_beyond_truth{tail}"] for tail in ("", "_known_words"))
    assert (whole.bound, known.bound) == ("none", "upper")
    assert (whole.n, known.n) == (300, 300 - unknown_N.sum())
    assert f"{unknown_N.mean():.1%} of sentences have words scored as unknown" in whole.name
    beyond_N = np.array(found.per_sentence["nll_beyond_truth"])
    assert known.value == pytest.approx(beyond_N[~unknown_N].mean())
    assert whole.settings["with_unknown_words"] == unknown_N.sum()
