"""The entropy of codes against formulas, by hand and by repeated draws."""

import math

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import collapse, subject_on, untrained, with_codes

from textspace.evaluate.measure import Effort
from textspace.evaluate.measures.entropy import OURS, PUBLISHED, code_entropy, nearest_neighbour_entropy
from textspace.recipes import RECIPES


@pytest.mark.parametrize("dims", [1, 2, 4, 8])
def test_the_entropy_of_gaussians_is_that_of_the_formula(chance, dims: int) -> None:
    factor_ZZ = np.tril(chance.normal(size=(dims, dims)), -1) * 0.3 + np.diag(np.linspace(0.5, 2, dims))
    truth = dims / 2 * math.log(2 * math.pi * math.e) + math.log(np.diag(factor_ZZ).prod())
    found = nearest_neighbour_entropy(chance.normal(size=(3000, dims)) @ factor_ZZ.T + 7)
    assert found.points == 3000
    assert found.value == pytest.approx(truth, abs=4 * found.stderr + 0.01 * dims)
    assert found.stderr < 0.06


def test_the_entropy_of_a_cube_and_of_four_points_by_hand(chance) -> None:
    cube = nearest_neighbour_entropy(3 * chance.uniform(size=(4000, 2)))
    assert cube.value == pytest.approx(2 * math.log(3), abs=0.1)
    # ln 2 is the length of the unit ball of one dimension, 1 + 1/2 + 1/3 the difference of digammas
    truth = 1 + 1 / 2 + 1 / 3 + math.log(2) + np.log([1, 1, 2, 4]).mean()
    assert nearest_neighbour_entropy(np.array([[0.0], [1.0], [3.0], [7.0]])).value == pytest.approx(truth)


def test_the_published_estimator_by_hand() -> None:
    """Third nearest distances of 0, 1, 3, 7, 15 are 7, 6, 4, 7, 14, and the unit ball of one dimension is 2 long."""
    points_NZ = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
    truth = 1 / 3 + 1 / 4 + math.log(2) + np.log([7, 6, 4, 7, 14]).mean()  # digamma(5) - digamma(3) = 1/3 + 1/4
    assert nearest_neighbour_entropy(points_NZ, PUBLISHED).value == pytest.approx(truth)
    # with a second dimension that adds no distance by the maximum norm, each distance and the ball count twice
    wide_NZ = np.hstack([points_NZ, 0.1 * points_NZ])
    truth = 1 / 3 + 1 / 4 + 2 * math.log(2) + 2 * np.log([7, 6, 4, 7, 14]).mean()
    assert nearest_neighbour_entropy(wide_NZ, PUBLISHED).value == pytest.approx(truth)
    # equal points count each: of three and one more the third neighbours of all are at 5
    equal_NZ = np.array([[0.0], [0.0], [0.0], [5.0]])
    truth = 1 / 3 + math.log(2) + math.log(5)
    assert nearest_neighbour_entropy(equal_NZ, PUBLISHED).value == pytest.approx(truth)
    four_NZ = np.array([[0.0], [0.0], [0.0], [0.0], [5.0]])
    truth = 1 / 3 + 1 / 4 + math.log(2) + (4 * math.log(1e-10) + math.log(5)) / 5
    assert nearest_neighbour_entropy(four_NZ, PUBLISHED).value == pytest.approx(truth)
    assert nearest_neighbour_entropy(points_NZ[:3], PUBLISHED) is None
    assert nearest_neighbour_entropy(np.ones((20, 3)), PUBLISHED) is None


@pytest.mark.parametrize(("dims", "published", "ours"), [(16, 23.4, 23.0), (128, 226.0, 204.0)])
def test_both_estimators_say_of_normal_draws_what_is_known_of_them(dims: int, published: float, ours: float) -> None:
    """As many draws as Penn Treebank has test sentences, but one; exact are 22.70 and 181.62."""
    points_NZ = np.random.default_rng(0).normal(size=(3760, dims))
    for estimator, known in ((PUBLISHED, published), (OURS, ours)):
        found = nearest_neighbour_entropy(points_NZ, estimator)
        assert found.value == pytest.approx(known, abs=0.05 + 4 * found.stderr)
        assert found.stderr < 0.4


@pytest.mark.parametrize("dims", [1, 3, 30, 200])
def test_the_error_of_an_entropy_is_its_spread_or_a_little_more(chance, dims: int) -> None:
    """In many dimensions points share their neighbours: distances are not independent."""
    found = [nearest_neighbour_entropy(chance.normal(size=(100, dims))) for _ in range(300)]
    spread = np.std([one.value for one in found])
    assert 0.95 * spread < np.mean([one.stderr for one in found]) < 1.6 * spread


def test_the_error_of_an_entropy_is_that_of_leaving_out_each_point(chance) -> None:
    points_NZ = chance.normal(size=(12, 2))
    for estimator in (OURS, PUBLISHED):
        left = [nearest_neighbour_entropy(np.delete(points_NZ, row, axis=0), estimator).value for row in range(12)]
        by_hand = math.sqrt(11 / 12 * ((np.array(left) - np.mean(left)) ** 2).sum())
        assert nearest_neighbour_entropy(points_NZ, estimator).stderr == pytest.approx(by_hand)
    assert nearest_neighbour_entropy(points_NZ[:4], PUBLISHED).stderr is None
    assert nearest_neighbour_entropy(points_NZ[:2]).stderr is None


@pytest.mark.parametrize("dims", [2, 24])
def test_the_error_of_the_mark_is_no_matter_of_luck_and_covers_the_truth(tiny, chance, dims: int) -> None:
    recipe = small(RECIPES["vae"]).but(
        {"posterior.kind": "delta", "objective.kind": "reconstruction", "latent.dim": dims}
    )
    texts = list(dict.fromkeys(tiny_sentences(400)))[:60]
    space, codes_NZ = untrained(recipe, tiny.tokenizer), chance.normal(size=(60, dims))
    truth = np.mean([nearest_neighbour_entropy(chance.normal(size=(60, dims))).value for _ in range(1000)])
    quick = Effort(repeats=2)
    found = [
        code_entropy(with_codes(subject_on(space, texts, seed=seed, effort=quick), codes_NZ)).estimates
        for seed in range(40)
    ]
    marks = [each["entropy_means_normal"] for each in found]
    errors = np.array([mark.stderr for mark in marks])
    assert errors.max() < 2 * errors.min()
    beyond = (np.array([mark.value for mark in marks]) - truth) / errors
    assert 0.5 < np.sqrt((beyond**2).mean()) < 1.2
    assert (np.abs(beyond) < 2).mean() > 0.9
    for each in found:
        assert each["entropy_means_bias"].stderr == each["entropy_means_normal"].stderr
        expected = math.hypot(each["entropy_means"].stderr, each["entropy_means_normal"].stderr)
        assert each["entropy_means_above_normal"].stderr == pytest.approx(expected)


def test_two_sentences_have_an_entropy_without_an_error(autoencoder, chance) -> None:
    subject = with_codes(subject_on(autoencoder, ["anna sees", "bob sees"]), chance.normal(size=(2, 4)))
    found = code_entropy(subject)
    for key in ("entropy_means", "entropy_means_normal", "entropy_means_bias", "entropy_means_above_normal"):
        estimate = found.estimates[key]
        assert (estimate.stderr, estimate.settings["error"]) == (None, None)
        assert np.isfinite(estimate.value)
    assert not any("±" in str(cell) for cell in found.tables["entropy"].rows[0])


def test_equal_points_count_once(chance) -> None:
    points_NZ = chance.normal(size=(50, 3))
    assert nearest_neighbour_entropy(np.tile(points_NZ, (3, 1))) == nearest_neighbour_entropy(points_NZ)
    assert nearest_neighbour_entropy(np.ones((20, 3))) is None


def test_normal_codes_have_the_entropy_of_the_normal_draws_beside_them(autoencoder, chance) -> None:
    texts = tiny_sentences(300)
    count = len(set(texts))
    subject = with_codes(subject_on(autoencoder, texts), chance.normal(size=(len(texts), 4)))
    found = code_entropy(subject).estimates
    assert list(found) == [
        "entropy_means",
        "entropy_means_normal",
        "entropy_means_bias",
        "entropy_means_above_normal",
        "entropy_k3_means",
        "entropy_k3_means_normal",
        "entropy_k3_means_bias",
        "entropy_k3_means_above_normal",
        "entropy_normal_exact",
    ]
    published = found["entropy_k3_means"]
    assert published.value == nearest_neighbour_entropy(subject.test.means_NZ, PUBLISHED).value
    assert (published.n, published.settings["duplicates"]) == (len(texts), 0)
    assert "third neighbour, maximum norm" in published.settings["estimator"]
    beyond = found["entropy_means_above_normal"]
    assert beyond.value == pytest.approx(0, abs=4 * beyond.stderr)
    assert beyond.value == pytest.approx(found["entropy_means"].value - found["entropy_means_normal"].value)
    assert beyond.n == count < len(texts)
    assert beyond.settings["duplicates"] == len(texts) - count
    assert found["entropy_normal_exact"].value == pytest.approx(2 * math.log(2 * math.pi * math.e))
    assert found["entropy_means_normal"].settings["error"] == "standard error over the points of 3 draws, jackknife"


def test_codes_three_times_as_far_apart_have_more_entropy_by_the_formula(space) -> None:
    texts = tiny_sentences(120)
    first = code_entropy(subject_on(space, texts)).estimates
    assert first["entropy_samples"].n == 120
    assert first["entropy_means"].n == len(set(texts)) < 120
    with torch.no_grad():
        space.model.posterior.mean.weight.mul_(3)
        space.model.posterior.mean.bias.mul_(3)
    second = code_entropy(subject_on(space, texts)).estimates
    gain = second["entropy_means"].value - first["entropy_means"].value
    assert gain == pytest.approx(4 * math.log(3), rel=1e-3)
    assert second["entropy_means_above_normal"].value - first["entropy_means_above_normal"].value == pytest.approx(gain)
    collapse(space)
    collapsed = code_entropy(subject_on(space, texts)).estimates
    assert "entropy_means" not in collapsed
    beyond = collapsed["entropy_samples_above_normal"]
    assert beyond.value == pytest.approx(0, abs=4 * beyond.stderr)


def test_the_table_tells_the_estimators_bias_which_is_that_of_other_draws_too(tiny, chance) -> None:
    """In 30 dimensions 200 points are far too few: the estimator is off by nats, and says by how many."""
    recipe = small(RECIPES["vae"]).but(
        {"posterior.kind": "delta", "objective.kind": "reconstruction", "latent.dim": 30}
    )
    texts = list(dict.fromkeys(tiny_sentences(400)))[:200]
    subject = with_codes(subject_on(untrained(recipe, tiny.tokenizer), texts), chance.normal(size=(200, 30)))
    found = code_entropy(subject)
    exact, bias = found.estimates["entropy_normal_exact"].value, found.estimates["entropy_means_bias"]
    others = [nearest_neighbour_entropy(chance.normal(size=(200, 30))).value - exact for _ in range(40)]
    assert exact == pytest.approx(15 * math.log(2 * math.pi * math.e))
    assert abs(np.mean(others)) > 1
    assert bias.value == pytest.approx(np.mean(others), abs=5 * np.std(others) / math.sqrt(3))
    assert bias.value == pytest.approx(found.estimates["entropy_means_normal"].value - exact)
    rows = found.tables["entropy"].rows
    assert [row[:3] for row in rows] == [
        ("posterior points", "nearest, Euclidean", 200),
        ("posterior points", "third, maximum norm", 200),
    ]
    assert [row[4] for row in rows] == [round(exact, 2)] * 2
    assert "biased" in found.tables["entropy"].title
    assert "30 dimensions" in found.tables["entropy"].title


def test_the_published_estimator_is_of_samples_of_up_to_three_hundred_dimensions(space, tiny) -> None:
    texts = tiny_sentences(120)
    found = code_entropy(subject_on(space, texts)).estimates
    assert "entropy_k3_samples" in found
    assert "entropy_k3_means" not in found
    for dims, is_there in ((300, True), (301, False)):
        large = untrained(small(RECIPES["vae"]).but({"latent.dim": dims}), tiny.tokenizer)
        found = code_entropy(subject_on(large, texts[:20], effort=Effort(repeats=2))).estimates
        assert ("entropy_k3_samples" in found) == is_there
        assert "entropy_samples" in found
