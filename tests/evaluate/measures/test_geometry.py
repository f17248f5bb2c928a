"""Distances and overlap against truths: isometries, closed forms, double loops and repeated draws."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from small_subjects import collapse, gated, subject_on, with_codes
from torch.distributions import Normal

from textspace.data.batching import make_batch
from textspace.digits import plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort
from textspace.evaluate.measures import geometry as module
from textspace.evaluate.measures import pairwise
from textspace.evaluate.measures.geometry import (
    code_overlap,
    distance_correlation,
    histogram_overlap,
    share_above,
    share_above_own,
)
from textspace.evaluate.measures.pairwise import (
    code_distances,
    error_of_pairs,
    nearest,
    pair_correlation,
    pairs_of,
    partners,
    random_pairs,
)
from textspace.evaluate.statistics import SAFE_SIDE
from textspace.evaluate.text_metrics import word_edit_distance
from textspace.noise import Noise

# Pairs


@pytest.mark.parametrize("wanted", [1, 7, 44, 45, 46])
def test_pairs_are_different_and_of_different_sentences(chance, wanted: int) -> None:
    pairs_P2 = random_pairs(np.zeros(10, np.int64), wanted, chance)
    assert len({tuple(sorted(pair)) for pair in pairs_P2.tolist()}) == len(pairs_P2) == min(wanted, 45)
    assert (pairs_P2[:, 0] != pairs_P2[:, 1]).all()
    assert pairs_P2.min() >= 0
    assert pairs_P2.max() < 10


def test_every_pair_of_a_group_is_alike_probable_and_no_other_comes(chance) -> None:
    groups_N = np.array([3, 1, 3, 1, 3, 3, 2])
    drawn = np.concatenate([random_pairs(groups_N, 2, chance) for _ in range(7000)])
    pairs, counts = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
    expected = [[i, j] for i in range(7) for j in range(i + 1, 7) if groups_N[i] == groups_N[j]]
    assert pairs.tolist() == expected
    np.testing.assert_allclose(counts / 7000, 2 / 7, atol=0.03)


def test_pairs_of_very_many_sentences_are_numbered_exactly() -> None:
    count = 3_000_000
    total = count * (count - 1) // 2

    class Last:
        def choice(self, *_: object, **__: object) -> np.ndarray:
            return np.array([0, 1, total - count, total - count + 1, total - 1])

    pairs = random_pairs(np.zeros(count, np.int64), 5, Last())  # type: ignore[arg-type]
    assert pairs.tolist() == [[0, 1], [0, 2], [count - 3, count - 2], [0, count - 1], [count - 2, count - 1]]


def test_partners_are_others_and_each_is_one_equally_often(chance) -> None:
    found_KN = partners(9, 3, chance)
    assert found_KN.shape == (3, 9)
    assert (np.sort(found_KN, axis=1) == np.arange(9)).all()
    assert (found_KN != np.arange(9)).all()
    assert all(len(set(column)) == 3 for column in found_KN.T.tolist())
    assert partners(3, 5, chance).shape == (2, 3)
    assert sorted(map(tuple, pairs_of(np.array([[1, 2, 0]])).tolist())) == [(0, 1), (1, 2), (2, 0)]


def test_the_error_of_pairs_is_the_double_loop_over_terms_that_share_a_sentence(chance) -> None:
    terms_N, pairs_P2 = chance.normal(size=6), np.array([[0, 1], [1, 2], [3, 4], [0, 4]])
    terms_P = chance.normal(size=4) + 1
    holders = [{i} for i in range(6)] + [set(pair) for pair in pairs_P2.tolist()]
    terms = [*terms_N, *terms_P]
    variance = sum(
        a * b
        for a, mine in zip(terms, holders, strict=True)
        for b, theirs in zip(terms, holders, strict=True)
        if mine & theirs
    )
    assert error_of_pairs(terms_N, terms_P, pairs_P2) == pytest.approx(math.sqrt(variance))
    apart = error_of_pairs(np.zeros(4), np.array([1.0, 1.0]), np.array([[0, 1], [2, 3]]))
    assert apart == pytest.approx(math.sqrt(2))
    opposed = error_of_pairs(np.zeros(3), np.array([1.0, -2.0, 1.0]), np.array([[0, 1], [1, 2], [2, 0]]))
    assert opposed == pytest.approx(math.sqrt(6))  # the products sum to -6 + 6, which is no variance


def test_nearest_distances_equal_the_double_loop_far_from_the_origin(chance) -> None:
    points_NZ = 1e4 + chance.normal(size=(60, 20))
    all_NN = np.linalg.norm(points_NZ[:, None] - points_NZ, axis=2) + np.diag(np.full(60, np.inf))
    np.testing.assert_allclose(nearest(points_NZ, 1)[1][:, 0], all_NN.min(1))


# Correlation


def unary(lengths: list[int]) -> tuple[list[list[str]], np.ndarray]:
    """Sentences of one word repeated, and codes on a line: the distance of codes is that of the words."""
    return [["a"] * length for length in lengths], np.array(lengths, np.float64)[:, None]


def test_an_isometry_has_correlation_1_without_error() -> None:
    sentences, codes_NZ = unary([1, 4, 2, 9, 7, 7])
    pairs_P2 = random_pairs(np.zeros(6, np.int64), 100, np.random.default_rng(0))
    edits_P = np.array([word_edit_distance(sentences[i], sentences[j]) for i, j in pairs_P2], np.float64)
    np.testing.assert_allclose(code_distances(codes_NZ, pairs_P2), edits_P)
    for scaled_NZ in (codes_NZ, 1e-5 * codes_NZ, -300.0 * codes_NZ):
        found = pair_correlation(code_distances(scaled_NZ, pairs_P2), edits_P, pairs_P2, 6)
        assert found.value == pytest.approx(1)
        assert found.stderr == pytest.approx(0, abs=1e-7)


def test_the_correlation_is_numpys_and_within_groups_that_of_the_residuals(chance) -> None:
    pairs_P2 = random_pairs(np.zeros(30, np.int64), 200, chance)
    x_P, y_P = chance.normal(size=200), chance.normal(size=200)
    y_P += 0.4 * x_P
    assert pair_correlation(x_P, y_P, pairs_P2, 30).value == pytest.approx(np.corrcoef(x_P, y_P)[0, 1])
    groups_P = np.arange(200) % 3
    shifted = [values + 10.0 * groups_P for values in (x_P, y_P)]
    assert pair_correlation(*shifted, pairs_P2, 30).value > 0.9
    residuals = [values - np.array([values[groups_P == g].mean() for g in range(3)])[groups_P] for values in (x_P, y_P)]
    found = pair_correlation(*shifted, pairs_P2, 30, groups_P)
    assert found.value == pytest.approx(np.corrcoef(*residuals)[0, 1])


@pytest.mark.parametrize("pairs", [150, 10**6])
def test_the_error_of_the_correlation_is_its_spread_over_other_sentences(chance, pairs: int) -> None:
    """Points on a plane, seen in two ways that share one coordinate; few pairs, and all there are."""
    found = []
    for _ in range(150):
        points_NZ = chance.normal(size=(60, 3))
        pairs_P2 = random_pairs(np.zeros(60, np.int64), pairs, chance)
        x_P, y_P = (code_distances(points_NZ[:, columns], pairs_P2) for columns in ([0, 1], [0, 2]))
        found.append(pair_correlation(x_P, y_P, pairs_P2, 60))
    spread = np.std([one.value for one in found])
    assert np.mean([one.stderr for one in found]) == pytest.approx(spread, rel=0.15)
    if pairs > 150:
        assert spread > 1.5 / math.sqrt(1770)  # what independent pairs would have


def test_codes_that_do_not_vary_have_no_correlation(chance) -> None:
    pairs_P2 = random_pairs(np.zeros(20, np.int64), 100, chance)
    edits_P = chance.integers(1, 9, size=100).astype(np.float64)
    assert pair_correlation(np.full(100, 2.0), edits_P, pairs_P2, 20) == (0, None)
    rounding_NZ = 5 + 1e-7 * chance.normal(size=(20, 3))
    assert not code_distances(rounding_NZ, pairs_P2).any()
    assert code_distances(rounding_NZ - 5, pairs_P2).all()  # small codes are no rounding of large ones


def test_distances_do_not_depend_on_how_many_are_held_at_once(chance, monkeypatch) -> None:
    codes_NZ, pairs_P2 = chance.normal(size=(20, 3)), random_pairs(np.zeros(20, np.int64), 100, chance)
    whole_P = code_distances(codes_NZ, pairs_P2)
    monkeypatch.setattr(pairwise, "PAIRS_AT_ONCE", 7)
    np.testing.assert_array_equal(code_distances(codes_NZ, pairs_P2), whole_P)
    np.testing.assert_allclose(whole_P, [np.linalg.norm(codes_NZ[i] - codes_NZ[j]) for i, j in pairs_P2])


def test_the_measure_finds_an_isometry_and_its_lack_at_fixed_length(autoencoder) -> None:
    texts = ["anna " * length for length in (1, 2, 3, 5, 8, 13)] + ["bob bob"] * 12
    codes_NZ = np.array([[len(text.split())] for text in texts], np.float64)
    found = distance_correlation(
        with_codes(subject_on(autoencoder, [text.strip() for text in texts[:6]]), codes_NZ[:6])
    )
    assert found.estimates["distance_correlation"].value == pytest.approx(1)
    assert "over 15 pairs" in found.estimates["distance_correlation"].name
    assert list(found.estimates) == ["distance_correlation"]  # no two are equally long, and points have no samples
    picture = found.pictures["distance_correlation"]
    assert picture.x == picture.series["posterior means"]
    found = distance_correlation(with_codes(subject_on(autoencoder, [text.strip() for text in texts]), codes_NZ))
    at_length = found.estimates["distance_correlation_equal_length"]
    assert found.estimates["distance_correlation"].value > 0.5
    assert (at_length.value, at_length.stderr) == (0, None)
    assert found.tables["distance_correlation_equal_length"].rows == ((2, 13, 78, 0.0, None),)


def test_length_alone_correlates_over_all_pairs_and_not_at_fixed_length(autoencoder, chance) -> None:
    texts = tiny_sentences(150)
    codes_NZ = np.array([[len(text.split()), 0] for text in texts]) + 0.05 * chance.normal(size=(150, 2))
    effort = Effort(pairs=3000)
    found = distance_correlation(with_codes(subject_on(autoencoder, texts, effort=effort), codes_NZ)).estimates
    assert found["distance_correlation"].value > 0.4
    at_length = found["distance_correlation_equal_length"]
    assert abs(at_length.value) < 3 * at_length.stderr
    assert at_length.stderr < 0.1
    assert found["distance_correlation"].better == "higher"


def test_means_and_samples_are_told_apart_and_the_seed_decides(space) -> None:
    subject = subject_on(space, tiny_sentences(80))
    found = distance_correlation(subject).estimates
    assert list(found) == [
        "distance_correlation",
        "distance_correlation_samples",
        "distance_correlation_equal_length",
        "distance_correlation_equal_length_samples",
    ]
    assert "posterior samples" in found["distance_correlation_samples"].name
    assert distance_correlation(subject).estimates == found
    other = distance_correlation(subject_on(space, tiny_sentences(80), seed=1)).estimates
    assert other["distance_correlation"].value != found["distance_correlation"].value
    assert found["distance_correlation"].settings["pairs"] == 300


def test_a_collapsed_space_has_no_correlation(space) -> None:
    collapse(space)
    found = distance_correlation(subject_on(space, tiny_sentences(80))).estimates
    assert found["distance_correlation"].value == 0
    samples = found["distance_correlation_samples"]
    assert abs(samples.value) < 3 * samples.stderr


def test_one_sentence_cannot_be_compared(space) -> None:
    for measure in (distance_correlation, code_overlap):
        with pytest.raises(TextspaceError, match="which needs 2 that differ, and there is 1"):
            measure(subject_on(space, ["anna sees cats"]))


# Overlap


def test_shares_of_separate_and_of_equal_sets(chance) -> None:
    own_N, partners_KN = chance.normal(size=200), partners(200, 3, chance)
    others_KN = chance.normal(size=(3, 200))
    assert share_above(own_N, others_KN - 50, partners_KN) == (0, 0)
    assert share_above(own_N, others_KN + 50, partners_KN) == (1, 0)
    equal = share_above(own_N, np.tile(own_N, (3, 1)), partners_KN)
    assert equal.value == pytest.approx(0.5)
    assert share_above(np.zeros(4), np.zeros((1, 4)), partners(4, 1, chance)) == (0.5, 0)
    own_KN = np.broadcast_to(own_N, (3, 200))
    assert share_above_own(own_KN, own_KN, partners_KN) == (0.5, 0)
    assert share_above_own(own_KN, own_KN - 1e-3, partners_KN) == (0, 0)


def test_the_share_above_is_the_double_loop_and_that_of_shifted_normals(chance) -> None:
    own_N, others_KN = chance.integers(0, 5, size=7).astype(float), chance.integers(0, 5, size=(2, 7)).astype(float)
    loop = np.mean([(other > own) + 0.5 * (other == own) for own in own_N for other in others_KN.ravel()])
    assert share_above(own_N, others_KN, partners(7, 2, chance)).value == pytest.approx(loop)
    own_N, others_KN = chance.normal(1.0, 1.0, size=4000), chance.normal(size=(2, 4000))
    found = share_above(own_N, others_KN, partners(4000, 2, chance))
    truth = float(Normal(0.0, 1.0).cdf(torch.tensor(-1 / math.sqrt(2))))
    assert found.value == pytest.approx(truth, abs=3 * found.stderr)
    assert found.stderr < 0.01


def test_histograms_of_separate_sets_share_nothing_and_of_equal_ones_all(chance) -> None:
    own_N, partners_KN = chance.normal(size=300), partners(300, 2, chance)
    far_KN = np.exp(3 * chance.normal(size=(2, 300))) + 9  # a long tail, which equal bins would have no eye for
    for others_KN in (far_KN, -far_KN):
        assert histogram_overlap(own_N, others_KN, partners_KN) == (0, 0)
    assert histogram_overlap(own_N, np.tile(own_N, (2, 1)), partners_KN).value == pytest.approx(1)
    assert histogram_overlap(np.ones(300), np.ones((2, 300)), partners_KN) == (1, 0)
    half_KN = np.where(np.arange(300) < 150, own_N, 99.0)[None]
    assert histogram_overlap(own_N, half_KN, partners_KN[:1]).value == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_histograms_of_normals_share_what_their_densities_do(chance, scale: float) -> None:
    own_N, others_KN = chance.normal(size=8000), chance.normal(1.5, scale, size=(3, 8000))
    x = torch.linspace(-15, 15, 20001, dtype=torch.float64)
    both = [Normal(*map(torch.tensor, (a, b))).log_prob(x).exp() for a, b in ((0.0, 1.0), (1.5, scale))]
    truth = float(torch.trapezoid(torch.minimum(*both), x))
    found = histogram_overlap(own_N, others_KN, partners(8000, 3, chance))
    assert found.value == pytest.approx(truth, abs=0.03)
    # an error of the right size: that of a share of 8,000 and one of 24,000
    assert 0.5 < found.stderr / math.sqrt(truth * (1 - truth) * (1 / 8000 + 1 / 24000)) < 2


def test_the_errors_of_shares_are_their_spread_when_pairs_share_sentences(chance) -> None:
    found, paired = [], []
    for _ in range(400):
        trait_N, partners_KN = chance.normal(size=50), partners(50, 3, chance)
        own_N = trait_N + chance.normal(size=50) + 1
        others_KN = 0.7 * (trait_N + trait_N[partners_KN]) + chance.normal(size=(3, 50))
        found.append(share_above(own_N, others_KN, partners_KN))
        paired.append(share_above_own(np.broadcast_to(own_N, (3, 50)), others_KN, partners_KN))
    for each in (found, paired):
        spread = np.std([one.value for one in each])
        assert np.mean([one.stderr for one in each]) == pytest.approx(spread, rel=0.15)


def test_the_error_of_the_histograms_is_their_spread_when_pairs_share_sentences(chance) -> None:
    found = []
    for _ in range(300):
        trait_N, partners_KN = chance.normal(size=800), partners(800, 2, chance)
        own_N = trait_N + chance.normal(size=800) + 1
        found.append(histogram_overlap(own_N, trait_N + trait_N[partners_KN], partners_KN))
    spread = np.std([one.value for one in found])
    assert np.mean([one.stderr for one in found]) == pytest.approx(spread, rel=0.2)


def test_the_error_of_histograms_that_are_nearly_equal_is_on_the_safe_side_and_says_so(chance, space) -> None:
    found = []
    for _ in range(300):
        partners_KN = partners(800, 2, chance)
        found.append(histogram_overlap(chance.normal(size=800), chance.normal(size=(2, 800)), partners_KN))
    spread = np.std([one.value for one in found])
    assert 1 < np.mean([one.stderr for one in found]) / spread < 1.8
    estimates = code_overlap(subject_on(space, tiny_sentences(30))).estimates
    told = {name for name, each in estimates.items() if SAFE_SIDE in str(each.settings["error"])}
    assert told == {"overlap_p_histograms", "overlap_q_histograms"}


def test_the_scores_of_others_are_those_of_a_loop_over_pairs(space) -> None:
    subject = subject_on(space, tiny_sentences(9), seed=5)
    test, model = subject.test, space.model
    rows_N, partners_KN = np.arange(9), partners(9, 2, np.random.default_rng(0))
    places_SN = np.concatenate([rows_N[None], partners_KN])
    log_p_SN, log_q_SN = module._scores(model, test.split, rows_N, test.samples_NZ, places_SN)
    for row in range(9):
        batch = make_batch(test.split, np.array([row]))
        for s in range(3):
            z_Z = torch.tensor(test.samples_NZ[places_SN[s, row]], dtype=torch.float32)
            with torch.no_grad():
                tokens = model.decoder(z_Z[None, None], batch.decoder, Noise(0, 0, batch.rows_B))
            q = Normal(*(torch.from_numpy(part[row]) for part in (test.means_NZ, test.deviations_NZ)))
            assert log_p_SN[s, row] == pytest.approx(float(tokens.sum()), rel=1e-4)
            assert log_q_SN[s, row] == pytest.approx(float(q.log_prob(z_Z.double()).sum()), rel=1e-4, abs=1e-4)


def test_batches_do_not_change_the_overlap(space, monkeypatch) -> None:
    found = code_overlap(subject_on(space, tiny_sentences(60)))
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 1)
    again = code_overlap(subject_on(space, tiny_sentences(60)))
    for name, estimate in found.estimates.items():
        assert again.estimates[name].value == pytest.approx(estimate.value, abs=1e-3), name


def test_a_collapsed_space_overlaps_wholly_and_a_spread_one_less_and_less(space) -> None:
    texts = [*tiny_sentences(100), *tiny_sentences(10)]
    distinct = len(set(texts))
    apart = []
    for factor in (1.0, 30.0):
        with torch.no_grad():
            space.model.posterior.mean.weight.mul_(factor)
        found = code_overlap(subject_on(space, texts))
        apart.append({name: estimate.value for name, estimate in found.estimates.items()})
        assert {estimate.n for estimate in found.estimates.values()} == {distinct}
        assert found.estimates["overlap_q"].settings["of"] == 110
    assert apart[1]["overlap_q"] < 0.1 < apart[0]["overlap_q"] < 0.5
    assert apart[1]["overlap_q_paired"] < 0.05
    assert apart[1]["nearest_mean_in_deviations"] == pytest.approx(
        30 * apart[0]["nearest_mean_in_deviations"], rel=0.01
    )
    assert apart[0]["random_mean_in_deviations"] > 2 * apart[0]["nearest_mean_in_deviations"]
    collapse(space)
    found = code_overlap(subject_on(space, texts))
    collapsed = found.estimates
    assert collapsed["overlap_q_paired"].value == 0.5
    for name in ("overlap_p", "overlap_q"):
        assert collapsed[name].value == pytest.approx(0.5, abs=3 * collapsed[name].stderr)
    assert collapsed["nearest_mean_in_deviations"].value == 0
    assert collapsed["random_mean_in_deviations"].value == 0
    histogram = found.pictures["overlap_p"].series
    assert (len(histogram["i = j"]), len(histogram["i != j"])) == (distinct, 4 * distinct)


def test_the_table_of_histograms_has_their_numbers_and_deviations_stand_beside(space) -> None:
    with torch.no_grad():
        space.model.posterior.mean.weight.mul_(1000)
    subject = subject_on(space, tiny_sentences(100))
    found = code_overlap(subject)
    p, q = found.tables["overlap"].rows
    assert (p[0], q[0]) == ("log p(x_i | z_j)", "log q(z_i | x_j)")
    for row, key in ((p, "p"), (q, "q")):
        keys = (f"overlap_{key}_histograms", f"overlap_{key}", f"overlap_{key}_paired")
        estimates = [found.estimates[each] for each in keys]
        assert [row[3], *row[5:]] == [plus_minus(each.value, each.stderr) for each in estimates]
        assert 0.8 < row[4] < 1
        own = np.mean(found.pictures[f"overlap_{key}"].series["i = j"])
        assert float(str(row[1]).partition(" ")[0]) == pytest.approx(own, abs=0.05)
    assert found.estimates["overlap_q_histograms"].value == 0  # codes so far apart that none could be another's
    assert found.estimates["overlap_p_histograms"].value > 0.5  # while the decoder says much the same of all
    length, _, distance = found.tables["deviations"].rows
    mean = np.linalg.norm(subject.test.deviations_NZ[module.distinct_rows(subject.test)], axis=1).mean()
    assert float(str(length[1]).partition(" ")[0]) == pytest.approx(mean, rel=0.01)
    ratio = found.estimates["random_mean_in_deviations"]
    assert distance[2] == plus_minus(ratio.value, ratio.stderr)


def means_of(chance, lengths: float) -> SimpleNamespace:
    """Sentences whose codes differ in length more or less, and in their deviation."""
    means_NZ = chance.normal(size=(100, 8)) * np.exp(lengths * chance.normal(size=(100, 1)))
    return SimpleNamespace(means_NZ=means_NZ, deviations_NZ=0.3 * np.exp(0.1 * chance.normal(size=(100, 8))))


@pytest.mark.parametrize("lengths", [0.0, 0.5])
def test_the_errors_of_distances_between_means_are_their_spread(chance, lengths: float) -> None:
    found, cells = [], []
    for _ in range(400):
        told = module._in_deviations(means_of(chance, lengths), np.arange(100), partners(100, 4, chance), {})
        found.append(told.estimates)
        cells.append([[float(part) for part in str(row[1]).split(" ± ")] for row in told.tables["deviations"].rows[1:]])
    shown = dict(zip(("nearest_mean", "random_mean"), np.moveaxis(cells, 0, 2), strict=True))
    for key, (values, errors) in shown.items():
        estimates = [each[f"{key}_in_deviations"] for each in found]
        for spread, error in (
            (np.std([each.value for each in estimates]), np.mean([each.stderr for each in estimates])),
            (values.std(), errors.mean()),
        ):
            # the jackknife errs on the safe side
            assert 0.9 * spread < error < (1.3 if key == "nearest_mean" else 1.1) * spread


def test_the_errors_of_means_and_ratios_over_pairs_hold_for_few_sentences(chance) -> None:
    """Of eight sentences, each with four others: without the factor for few 0.73 and 0.89 of the spread."""
    means, ratios = [], []
    for _ in range(1500):
        partners_KN = partners(8, 4, chance)
        own_N = chance.normal(size=8)
        values_KN = own_N + chance.normal(size=8)[partners_KN]
        means.append(module._mean_of_pairs(values_KN, partners_KN))
        ratios.append(module._ratio_of_pairs(np.abs(values_KN) + 1, partners_KN, np.exp(0.3 * own_N)))
    for found, most in ((means, 1.1), (ratios, 1.3)):
        values, errors = np.array(found).T
        assert 0.85 < math.sqrt(np.square(errors).mean()) / values.std() < most
    of_three = module._mean_of_pairs(np.arange(6.0).reshape(2, 3), partners(3, 4, chance))
    assert of_three == (2.5, None)


def test_the_jackknife_of_nearest_means_equals_the_loop_over_sentences_left_out(chance) -> None:
    test = means_of(chance, 0.5)
    found = module._in_deviations(test, np.arange(100), partners(100, 4, chance), {}).estimates
    deviation_N = np.linalg.norm(test.deviations_NZ, axis=1)
    without_N = [
        nearest(test.means_NZ[rows], 1)[1][:, 0].mean() / deviation_N[rows].mean()
        for rows in (np.delete(np.arange(100), row) for row in range(100))
    ]
    nearest_mean = found["nearest_mean_in_deviations"]
    assert nearest_mean.value == pytest.approx(nearest(test.means_NZ, 1)[1][:, 0].mean() / deviation_N.mean())
    assert nearest_mean.stderr == pytest.approx(np.std(without_N) * math.sqrt(99))
    assert nearest_mean.settings["error"].endswith("jackknife")
    two = module._in_deviations(test, np.arange(2), np.array([[1, 0]]), {}).estimates["nearest_mean_in_deviations"]
    assert (two.stderr, two.settings["error"]) == (None, None)


def test_codes_with_gates_have_no_density_to_compare(tiny) -> None:
    with pytest.raises(TextspaceError, match="gates integrated out, has no formula"):
        code_overlap(subject_on(gated(tiny.tokenizer), tiny_sentences(20)))
