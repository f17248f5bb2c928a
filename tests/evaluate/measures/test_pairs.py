"""Sentence pairs: correlations against scipy, means by hand, files that are damaged, and a whole folder of them."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from scipy import stats
from small_subjects import subject_on, untrained
from tiny_encoder import tiny_encoder

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures.pairs import (
    SOFTMAX_PENALTIES,
    Correlation,
    _softmax_scores,
    correlation,
    cosines,
    expected_scores,
    pair_features,
    regressed,
    sentence_pairs,
    together,
)
from textspace.evaluate.measures.sentence_encoders import POOLINGS, SpaceEncoder, TaskCodes, encoders_of
from textspace.evaluate.measures.tasks import Screen, read_pairs, read_rows, read_singles
from textspace.space import Space

Rows = list[tuple[object, ...]]


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(8)


@pytest.fixture
def space(small_vae, tiny) -> Space:
    made = untrained(small_vae, tiny.tokenizer)
    with torch.no_grad():
        made.model.posterior.mean.weight.mul_(20)
        mean_Z = made.encode(tiny_sentences(100), output="tensor").mean(0)
        made.model.posterior.mean.bias.sub_(mean_Z)  # so that cosines are not all nearly 1
    return made


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def subject_in(folder: Path, space: Space, train: list[str] | None = None) -> Subject:
    splits = {"test": ["anna sees cats"]} | ({} if train is None else {"train": train})
    return subject_on(space, splits, task_files=folder)


# On arrays


def test_cosines_are_those_of_each_pair(chance) -> None:
    u_NZ, v_NZ = chance.normal(size=(2, 9, 4))
    expected = [u @ v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in zip(u_NZ, v_NZ, strict=True)]
    np.testing.assert_allclose(cosines(u_NZ, v_NZ), expected)
    assert cosines(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0]


def test_correlations_are_those_of_scipy(chance) -> None:
    a_N = chance.normal(size=80)
    for b_N in (a_N**3 + chance.normal(size=80), np.round(a_N), -a_N):  # noise, ties, and its reverse
        spearman, pearson = correlation(a_N, b_N, "Spearman"), correlation(a_N, b_N, "Pearson")
        assert spearman.value == pytest.approx(100 * stats.spearmanr(a_N, b_N).statistic)
        assert pearson.value == pytest.approx(100 * stats.pearsonr(a_N, b_N).statistic)
        assert spearman.n == 80
    assert correlation(a_N, np.exp(a_N), "Spearman").value == pytest.approx(100)


def test_nothing_correlates_with_what_does_not_vary(chance) -> None:
    for kind in ("Spearman", "Pearson"):
        assert correlation(np.ones(9), chance.normal(size=9), kind) == Correlation(0.0, None, 9)
        rounding_N = 1 + 1e-8 * chance.normal(size=9)
        assert correlation(rounding_N, chance.normal(size=9), kind).value == 0


@pytest.mark.parametrize("kind", ["Spearman", "Pearson"])
def test_the_error_of_a_correlation_is_its_deviation_over_samples(chance, kind) -> None:
    found = []
    for _ in range(60):
        a_N = chance.normal(size=200)
        found.append(correlation(a_N, a_N + chance.normal(size=200), kind, seed=3))
    assert np.mean([one.stderr for one in found]) == pytest.approx(np.std([one.value for one in found]), rel=0.3)


def test_means_of_subsets_by_hand() -> None:
    parts = [Correlation(80.0, 3.0, 100), Correlation(20.0, 4.0, 300)]
    mean, weighted = together(parts, weigh=False), together(parts, weigh=True)
    assert (mean.value, mean.stderr, mean.n) == (50, pytest.approx(2.5), 400)
    assert (weighted.value, weighted.stderr) == (35, pytest.approx(np.hypot(0.75, 3.0)))
    assert together([*parts, Correlation(0.0, None, 1)], weigh=True).stderr is None


def test_the_regressor_learns_scores_that_are_linear_in_its_features(chance) -> None:
    u_NZ, v_NZ = chance.normal(size=(2, 400, 3))
    features_NF = pair_features(u_NZ, v_NZ)
    np.testing.assert_array_equal(features_NF[:, :3], np.abs(u_NZ - v_NZ))
    np.testing.assert_array_equal(features_NF[:, 3:], u_NZ * v_NZ)
    scores_N = features_NF @ [-1.0, 0.2, 0.0, 0.7, 0.0, -0.4] + 3
    predicted_N = regressed(features_NF[:300], scores_N[:300], features_NF[300:])
    np.testing.assert_allclose(predicted_N, scores_N[300:], atol=0.05)


def test_the_softmax_expects_the_mean_score_of_what_it_can_tell_apart(chance) -> None:
    group_N = np.arange(400) % 3
    features_NF = np.eye(3)[group_N]
    scores_N = np.array([0.0, 3.4, 5.0])[group_N]
    predicted_N = expected_scores(features_NF, scores_N, np.eye(3), None, seed=0)
    np.testing.assert_allclose(predicted_N, [0.0, 3.4, 5.0], atol=0.1)
    mixed_N = np.where(group_N == 1, chance.choice([1.5, 2.5], 400), scores_N)
    valid = np.eye(3), np.array([0.0, 2.0, 5.0])
    middle = mixed_N[group_N == 1].mean()
    np.testing.assert_allclose(expected_scores(features_NF, mixed_N, np.eye(3), valid, seed=0)[1], middle, atol=0.1)


def test_the_penalty_of_the_softmax_is_chosen_on_validation_pairs(chance) -> None:
    """Without a signal in training the largest penalty predicts best, and with one the smallest."""
    train_NF, valid_NF = chance.normal(size=(2, 60, 40))
    weights_F = chance.normal(size=40)
    noise_N, true_N = 5 * chance.random(60), np.clip(2.5 + 0.3 * train_NF @ weights_F, 0, 5)
    valid_scores_N = np.clip(2.5 + 0.3 * valid_NF @ weights_F, 0, 5)
    learnt_N = expected_scores(train_NF, true_N, valid_NF, (valid_NF, valid_scores_N), seed=0)
    assert stats.pearsonr(learnt_N, valid_scores_N).statistic > 0.6
    chosen_N = expected_scores(train_NF, noise_N, valid_NF, (valid_NF, valid_scores_N), seed=0)
    every = [_softmax_scores(train_NF, noise_N, valid_NF, C) for C in SOFTMAX_PENALTIES]
    best = max(every, key=lambda found_N: stats.pearsonr(found_N, valid_scores_N).statistic)
    np.testing.assert_allclose(chosen_N, best)


# Files


def test_rows_are_read_from_plain_and_packed_files_with_any_line_end(tmp_path) -> None:
    rows: Rows = [("MSRpar", "4.4", 'a "quote', "b"), ("MSRvid", "0", "c", "d")]
    write(tmp_path / "sts" / "STS12.tsv.gz", rows)
    (tmp_path / "sts" / "STS13.tsv").write_bytes(b'\xef\xbb\xbfMSRpar\t4.4\ta "quote\tb\r\n\r\nMSRvid\t0\tc\td')
    for name in ("STS12", "STS13"):
        pairs = read_pairs(tmp_path, f"sts/{name}", "sts")
        assert pairs is not None
        assert (pairs.first, pairs.second, pairs.groups) == (['a "quote', "c"], ["b", "d"], ["MSRpar", "MSRvid"])
        assert pairs.scores_N.tolist() == [4.4, 0]
    assert read_pairs(tmp_path, "sts/STS14", "sts") is None


def test_empty_texts_are_left_out_and_counted(tmp_path) -> None:
    write(tmp_path / "CR.tsv", [(0, "bad ."), (1, ""), (1, "good .")])
    write(tmp_path / "pairs.tsv", [(1, "a", "b"), (0, "", "b"), (0, "a", " ")])
    singles, pairs = read_singles(tmp_path, "CR"), read_pairs(tmp_path, "pairs", "mrpc")
    assert singles is not None
    assert pairs is not None
    assert (singles.texts, singles.labels, singles.empty) == (["bad .", "good ."], ["0", "1"], 1)
    assert (pairs.first, pairs.labels, pairs.empty) == (["a"], ["1"], 2)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        (
            "STS12.tsv",
            b"x\t1\ta\tb\nx\t1\ta b\n",
            "line 2 of .* has 3 columns where there should be 4 \\(subset, score",
        ),
        ("STS12.tsv", b"x\tmuch\ta\tb\n", "has the score 'much', which is no number from 0 to 5"),
        ("STS12.tsv", b"x\t5.5\ta\tb\n", "has the score '5.5'"),
        ("STS12.tsv", b"x\tnan\ta\tb\n", "has the score 'nan'"),
        ("STS12.tsv", b"x\t1\ta\xff\tb\n", "is not UTF-8 text"),
        ("STS12.tsv", b"\n\n", "is empty"),
        ("STS12.tsv.gz", gzip.compress(b"x\t1\ta\tb\n" * 50, mtime=0)[:-9], "is damaged or cut short"),
        ("STS12.tsv.gz", b"x\t1\ta\tb\n", "is damaged or cut short"),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(tmp_path, space, name, data, sentence) -> None:
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / name).write_bytes(data)
    with pytest.raises(TextspaceError, match=sentence) as refused:
        sentence_pairs(subject_in(tmp_path, space))
    assert "\n" not in str(refused.value)
    assert not str(refused.value).endswith(".")


def test_a_folder_that_cannot_be_read_is_a_sentence(tmp_path) -> None:
    with pytest.raises(TextspaceError, match="cannot read"):
        read_rows(tmp_path, ("label", "sentence"))
    (tmp_path / "endless.tsv").symlink_to("/dev/zero")
    with pytest.raises(TextspaceError, match="device or a pipe"):
        read_rows(tmp_path / "endless.tsv", ("label", "sentence"))


def test_a_missing_folder_and_a_folder_without_pairs_say_so(tmp_path, space) -> None:
    with pytest.raises(TextspaceError, match="needs the files of its tasks"):
        sentence_pairs(subject_on(space, ["anna sees cats"]))
    with pytest.raises(TextspaceError, match="there is no folder"):
        sentence_pairs(subject_in(tmp_path / "nowhere", space))
    with pytest.raises(TextspaceError, match="has no files of sentence pairs"):
        sentence_pairs(subject_in(tmp_path, space))


# Sentences seen in training, and spellings


def test_training_sentences_are_known_however_they_are_spelled(space) -> None:
    screen = Screen.of(subject_in(Path(), space, ["Anna sees cats .", "!"]))
    unseen_N = screen.unseen(["anna sees cats", "Anna, sees: CATS!", "anna sees dogs", "?"])
    assert unseen_N.tolist() == [False, False, True, True]
    both_N = screen.unseen(["bob", "bob"], ["anna sees cats", "carl"])
    assert both_N.tolist() == [False, True]
    assert Screen.of(subject_in(Path(), space)).unseen(["anna sees cats"]).tolist() == [True]


@pytest.mark.parametrize(
    ("texts", "spelling"),
    [
        (["anna sees cats", "bob likes dogs"], "as in the file"),
        (["Anna sees cats", "BOB likes dogs"], "lower case"),
        (["anna sees cats,dogs"], "punctuation apart"),
        (["Anna sees cats.", "Bob likes dogs!"], "lower case, punctuation apart"),
    ],
)
def test_the_spelling_is_the_one_of_which_the_space_knows_most(space, texts, spelling) -> None:
    assert TaskCodes.of(SpaceEncoder(space), texts).writing.spelling.name == spelling


def test_codes_are_those_of_the_spelling_and_in_the_order_asked_for(space) -> None:
    texts = ["Anna sees cats", "Bob likes dogs", "Anna sees cats"]
    coded = TaskCodes.of(SpaceEncoder(space), texts)
    np.testing.assert_allclose(coded.codes(texts), space.encode([text.lower() for text in texts]), atol=1e-6)
    assert coded.writing.settings["unknown_tokens_percent"] == 0


# The measure


def test_every_number_of_a_year_is_as_computed_by_hand(tmp_path, space, chance) -> None:
    texts = tiny_sentences(120)
    rows: Rows = [
        ("small" if i < 12 else "large", round(5 * chance.random(), 1), texts[i], texts[i + 60]) for i in range(60)
    ]
    write(tmp_path / "sts" / "STS12.tsv", rows)
    found = sentence_pairs(subject_in(tmp_path, space))
    cosine_N = cosines(*(space.encode([str(row[at]) for row in rows]).astype(float) for at in (2, 3)))
    scores_N = np.array([row[1] for row in rows], float)
    assert np.ptp(cosine_N) > 0.1
    for kind, function in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        small, large = (100 * function(cosine_N[s], scores_N[s]).statistic for s in (slice(0, 12), slice(12, 60)))
        values = {how: found.estimates[f"sts12_{how}_{kind}"].value for how in ("mean", "weighted", "pooled")}
        assert values["mean"] == pytest.approx((small + large) / 2, abs=1e-3)
        assert values["weighted"] == pytest.approx((12 * small + 48 * large) / 60, abs=1e-3)
        assert values["pooled"] == pytest.approx(100 * function(cosine_N, scores_N).statistic, abs=1e-3)
        assert len({round(value, 6) for value in values.values()}) == 3
    names = [row[0] for row in found.tables["sentence_pairs"].rows]
    assert names[:2] == ["STS12 small, cosine", "STS12 large, cosine"]
    assert "all pairs pooled" in found.estimates["sts12_pooled_pearson"].name
    assert found.estimates["sts12_pooled_pearson"].settings["dropped_for_training"] is None


@pytest.mark.parametrize(("folder", "key"), [("stsb", "stsb"), ("sick", "sickr")])
def test_benchmarks_with_training_have_a_cosine_and_a_regressor(tmp_path, space, chance, folder, key) -> None:
    texts = tiny_sentences(400)

    def rows(first: int, count: int) -> Rows:
        pairs = [(texts[i], texts[i + 200]) for i in range(first, first + count)]
        codes = [(space.encode(a), space.encode(b)) for a, b in pairs]
        scores = [5 / (1 + np.abs(u - v).sum()) for u, v in codes]  # what people say depends on the distance of codes
        head = [("genre", "file", 2012, s) if folder == "stsb" else (7, s, "NEUTRAL") for s in scores]
        return [(*h, *pair) for h, pair in zip(head, pairs, strict=True)]

    write(tmp_path / folder / "test.tsv", rows(150, 50))
    without = sentence_pairs(subject_in(tmp_path, space)).estimates
    assert set(without) == {f"{key}_cosine_spearman", f"{key}_cosine_pearson"}
    write(tmp_path / folder / "train.tsv.gz", rows(0, 150))
    found = sentence_pairs(subject_in(tmp_path, space)).estimates
    assert found[f"{key}_cosine_pearson"].value == pytest.approx(without[f"{key}_cosine_pearson"].value, abs=1e-3)
    assert found[f"{key}_regressor_spearman"].value > 80
    assert found[f"{key}_regressor_spearman"].settings["trained_on"] == 150
    assert found[f"{key}_softmax_spearman"].value > 70
    assert "a fifth of the training pairs" in str(found[f"{key}_softmax_spearman"].settings["regressor"])
    write(tmp_path / folder / "valid.tsv", rows(120, 30))
    found = sentence_pairs(subject_in(tmp_path, space)).estimates
    assert "validation pairs" in str(found[f"{key}_softmax_pearson"].settings["regressor"])


def test_pairs_with_a_training_sentence_are_dropped_and_counted(tmp_path, space, chance) -> None:
    texts = list(dict.fromkeys(tiny_sentences(200)))[:60]
    rows: Rows = [("s", i % 5, texts[i], texts[i + 30]) for i in range(30)]
    write(tmp_path / "all" / "sts" / "STS12.tsv", rows)
    write(tmp_path / "some" / "sts" / "STS12.tsv", rows[3:])
    train = [texts[0].upper(), texts[31], f"{texts[2]} ."]
    found = sentence_pairs(subject_in(tmp_path / "all", space, train)).estimates["sts12_pooled_spearman"]
    expected = sentence_pairs(subject_in(tmp_path / "some", space)).estimates["sts12_pooled_spearman"]
    assert (found.settings["dropped_for_training"], found.n) == (3, 27)
    assert found.value == pytest.approx(expected.value, abs=1e-3)
    with pytest.raises(TextspaceError, match="trained on all sentences of a task"):
        sentence_pairs(subject_in(tmp_path / "all", space, texts))


def test_codes_of_tokens_are_compared_in_three_ways(tmp_path, token_space) -> None:
    texts = tiny_sentences(120)
    write(tmp_path / "sts" / "STS12.tsv", [("s", i % 5, texts[i], texts[i + 60]) for i in range(60)])
    findings = sentence_pairs(subject_in(tmp_path, token_space))
    found = {key: each.value for key, each in findings.estimates.items() if key.startswith("sts12_pooled_spearman")}
    assert set(found) == {f"sts12_pooled_spearman{more}" for more in ("", "_mean", "_start", "_sum")}
    assert found["sts12_pooled_spearman"] == found["sts12_pooled_spearman_mean"]
    # The sum is the mean times the length, which no cosine sees.
    assert found["sts12_pooled_spearman_sum"] == pytest.approx(found["sts12_pooled_spearman_mean"], abs=0.5)
    scores_N = np.arange(60) % 5
    start = [np.stack([each[0] for each in token_space.encode(part)]) for part in (texts[:60], texts[60:])]
    expected = stats.spearmanr(cosines(*start), scores_N).statistic
    assert found["sts12_pooled_spearman_start"] == pytest.approx(100 * expected, abs=0.5)


def test_baselines_have_rows_beside_the_space(tmp_path, space) -> None:
    texts = tiny_sentences(120)
    write(tmp_path / "sts" / "STS12.tsv", [("s", i % 5, texts[i], texts[i + 60]) for i in range(60)])
    alone = sentence_pairs(subject_in(tmp_path, space)).estimates
    subject = replace(subject_in(tmp_path, space), baselines=(str(tiny_encoder()),))
    findings = sentence_pairs(subject)
    assert {key: each.value for key, each in findings.estimates.items() if key in alone} == {
        key: each.value for key, each in alone.items()
    }
    name = tiny_encoder().name
    assert {row[1] for row in findings.tables["sentence_pairs"].rows} == {
        "space",
        *(f"{name}, {pooling}" for pooling in POOLINGS),
    }
    _, mean, *_ = encoders_of(subject)
    cosine_N = cosines(mean.encode(texts[:60]), mean.encode(texts[60:]))
    (estimate,) = (each for key, each in findings.estimates.items() if key == f"sts12_pooled_pearson{mean.suffix}")
    assert estimate.value == pytest.approx(100 * stats.pearsonr(cosine_N, np.arange(60) % 5).statistic, abs=1e-3)
    assert f"averaged states of {name}" in estimate.name


def test_a_collapsed_space_correlates_with_nothing(tmp_path, space, chance) -> None:
    with torch.no_grad():
        space.model.posterior.mean.weight.zero_()
    texts = tiny_sentences(40)
    write(tmp_path / "sts" / "STS16.tsv", [("s", i % 6 % 5, texts[i], texts[i + 20]) for i in range(20)])
    found = sentence_pairs(subject_in(tmp_path, space)).estimates
    assert {e.value for e in found.values()} == {0.0}


@pytest.mark.corpora
def test_the_published_files_have_their_pairs() -> None:
    folder = os.environ.get("TEXTSPACE_CORPORA")
    if not folder:
        pytest.skip("TEXTSPACE_CORPORA does not name the folder of the real corpora")
    sizes = {"sts/STS12": 3108, "sts/STS13": 1500, "sts/STS14": 3750, "sts/STS15": 3000, "sts/STS16": 1186}
    sizes |= {"stsb/train": 5749, "stsb/test": 1379, "sick/train": 4500, "sick/test": 4927, "mrpc/test": 1725}
    for name, size in sizes.items():
        pairs = read_pairs(Path(folder), name, name.split("/")[0])
        assert pairs is not None
        assert (len(pairs), pairs.empty) == (size, 0)
    years = read_pairs(Path(folder), "sts/STS12", "sts")
    assert years is not None
    assert {group: years.groups.count(group) for group in set(years.groups)} == {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    }
