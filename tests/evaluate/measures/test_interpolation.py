"""Smoothness of paths made by hand, and the paths of a small space against its own methods."""

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort
from textspace.evaluate.measures.interpolation import MOST, POINTS, SHOWN, Smoothness, interpolations, smoothness
from textspace.generate import Greedy, Sampling
from textspace.lengths import METRIC
from textspace.noise import seed_of
from textspace.paths import interpolated
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture
def space(tiny) -> Space:
    """Untrained, with weights so large that codes decode to different sentences."""
    return untrained(small(RECIPES["vae"]).but({"initial.weights": 2.0}), tiny.tokenizer)


def path(*sentences: str) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


# By hand


def test_an_even_path_is_straight_and_has_no_large_step() -> None:
    found = smoothness(path("a a a", "b a a", "b b a", "b b b"))
    assert found == Smoothness(detour=1.0, largest_step=1 / 3, repeated=0.0, distinct=4)


def test_one_jump_is_all_there_is_of_a_path() -> None:
    found = smoothness(path("a a a", "a a a", "b b b", "b b b"))
    assert found == Smoothness(detour=1.0, largest_step=1.0, repeated=2 / 3, distinct=2)


def test_there_and_back_is_a_detour() -> None:
    found = smoothness(path("a b", "c d", "a b", "a"))
    assert found == Smoothness(detour=(2 + 2 + 1) / 1, largest_step=2 / 5, repeated=0.0, distinct=3)


def test_paths_without_ends_or_steps_have_no_such_numbers() -> None:
    assert smoothness(path("a", "b", "a")) == Smoothness(None, 0.5, 0.0, 2)
    assert smoothness(path("a", "a", "a")) == Smoothness(None, None, 1.0, 1)
    assert smoothness(path("", "")) == Smoothness(None, None, 1.0, 1)


# Of a space


def test_paths_are_those_of_the_space_between_these_very_codes(space) -> None:
    subject = subject_on(space, tiny_sentences(30), seed=4)
    found = interpolations(subject)
    ends = found.tables["posterior_ends"].rows
    shown = found.tables["posterior_paths"].rows
    assert len(ends) == 2 * SHOWN
    assert len(shown) == SHOWN * POINTS
    for number in range(SHOWN):
        rows = [subject.test.texts.index(str(ends[2 * number + end][2])) for end in (0, 1)]
        assert rows[0] != rows[1]
        codes = subject.test.samples_NZ[rows]
        expected = space.interpolate(codes[0], codes[1], steps=POINTS)
        assert [row[2] for row in shown[number * POINTS : (number + 1) * POINTS]] == expected
        measured = smoothness([text.split() for text in expected])
        assert found.tables["posterior_smoothness"].rows[number] == (number + 1, *measured)
    assert [row[1] for row in shown[:POINTS]] == [step / 10 for step in range(11)]


def test_paths_between_sampled_ends_follow_the_text_greedily_and_with_sampled_words(space) -> None:
    texts = tiny_sentences(30)
    subject = subject_on(space, texts, seed=4)
    found = interpolations(subject)
    samples_NZ = space.encode(texts, what="sample", seed=4)
    codes_MZ = np.concatenate([interpolated(samples_NZ[k], samples_NZ[k + 1], 10) for k in range(0, 20, 2)])
    seed = seed_of(4, "words of paths")
    for key, method in (("sampled_ends", Greedy()), ("sampled_ends_and_words", Sampling())):
        table = found.tables[f"{key}_paths"]
        assert table.grouped
        assert "of one test sentence and the next, two by two in the order of the text" in table.title
        assert table.title.endswith("greedy" if key == "sampled_ends" else "words sampled at temperature 1")
        expected = space.decode(codes_MZ, method=method, seed=seed)
        for number in range(SHOWN):
            ends, *path = table.rows[number * 11 : (number + 1) * 11]
            assert ends == (number + 1, "ends", f"{texts[2 * number]} → {texts[2 * number + 1]}")
            assert [row[2] for row in path] == expected[10 * number : 10 * number + 10]
            assert [row[1] for row in path] == [round(step / 9, 2) for step in range(10)]
            measured = smoothness([str(row[2]).split() for row in path])
            assert found.tables[f"{key}_smoothness"].rows[number] == (number + 1, *measured)
        distinct = [row[4] for row in found.tables[f"{key}_smoothness"].rows]
        assert found.estimates[f"{key}_distinct"].value == np.mean(distinct)
        assert found.estimates[f"{key}_distinct"].settings["points"] == 10
    assert found.tables["sampled_ends_paths"].rows != found.tables["sampled_ends_and_words_paths"].rows
    few = interpolations(subject_on(space, texts[:5]))
    assert few.estimates["sampled_ends_distinct"].n == 2


def test_three_steps_lead_from_mean_to_mean(space) -> None:
    subject = subject_on(space, tiny_sentences(30), seed=4)
    found = interpolations(subject)
    rows, ends = found.tables["three_steps_paths"].rows, found.tables["posterior_ends"].rows
    means_NZ = space.encode([str(row[2]) for row in ends])
    codes_MZ = np.concatenate([interpolated(means_NZ[k], means_NZ[k + 1], 5) for k in range(0, 2 * SHOWN, 2)])
    expected = space.decode(codes_MZ)
    for number in range(SHOWN):
        texts = [str(ends[2 * number + end][2]) for end in (0, 1)]
        told, *path = rows[number * 6 : (number + 1) * 6]
        assert told == (number + 1, "ends", " → ".join(texts))
        assert [row[1] for row in path] == [0, 0.25, 0.5, 0.75, 1]
        assert [row[2] for row in path] == expected[5 * number : 5 * number + 5]
    assert found.estimates["three_steps_repeated"].settings["points"] == 5


def test_paths_of_tokens_lead_from_one_sentence_to_another(token_space) -> None:
    token_space.metrics = {METRIC: [0, 0, 1, 1]}
    found = interpolations(subject_on(token_space, tiny_sentences(30), seed=4))
    assert {f"{kind}_repeated" for kind in ("prior", "posterior", "sampled_ends", "three_steps")} <= set(
        found.estimates
    )
    ends, path = found.tables["posterior_ends"].rows, found.tables["three_steps_paths"].rows[1:6]
    assert [row[2] for row in path] == token_space.interpolate(str(ends[0][2]), str(ends[1][2]), steps=5)


def test_estimates_are_means_over_paths_that_have_a_number(space) -> None:
    found = interpolations(subject_on(space, tiny_sentences(30)))  # as many paths as are shown
    for key in ("prior", "posterior"):
        columns = list(zip(*found.tables[f"{key}_smoothness"].rows, strict=True))[1:]
        assert len(set(columns[3])) > 1  # paths differ, or this says little
        for field, column in zip(Smoothness._fields, columns, strict=True):
            values = np.array([value for value in column if value is not None], np.float64)
            estimate = found.estimates[f"{key}_{field}"]
            assert estimate.value == pytest.approx(values.mean())
            assert estimate.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(len(values)))
            assert estimate.n == len(values) == SHOWN - estimate.settings["without_number"]
            assert "greedy" in estimate.name
    assert "between prior samples" in found.estimates["prior_detour"].name
    assert "between posterior samples of test sentences" in found.estimates["posterior_detour"].name


def test_more_effort_measures_more_paths_and_shows_as_many(space) -> None:
    texts = tiny_sentences(30)
    found = interpolations(subject_on(space, texts, effort=Effort(decoded=2 * POINTS * 15)))
    assert found.estimates["prior_distinct"].n == 15
    assert len(found.tables["prior_paths"].rows) == SHOWN * POINTS
    first = interpolations(subject_on(space, texts))
    assert first.tables["prior_paths"] == found.tables["prior_paths"]  # the first paths stay the same
    assert first.tables["posterior_ends"] == found.tables["posterior_ends"]
    other = interpolations(subject_on(space, texts, seed=1))
    assert other.tables["prior_paths"] != first.tables["prior_paths"]
    assert MOST == 100


def test_no_two_paths_share_a_sentence(space) -> None:
    texts = tiny_sentences(30)
    for count in (2, 9, 30):
        found = interpolations(subject_on(space, texts[:count], effort=Effort(decoded=2 * POINTS * 12)))
        paths = min(count // 2, 12)
        for key in ("posterior", "three_steps", "sampled_ends"):
            estimate = found.estimates[f"{key}_distinct"]
            assert estimate.n == estimate.settings["paths"] == paths
            assert (estimate.stderr is None) == (paths == 1)  # one path says nothing of how others differ
            assert len(found.tables[f"{key}_smoothness"].rows) == min(paths, SHOWN)
        ends = [row[2] for row in found.tables["posterior_ends"].rows]
        assert len(set(ends)) == len(ends) == 2 * min(paths, SHOWN)
        assert found.estimates["prior_distinct"].n == 12


def test_the_picture_goes_from_one_end_to_the_other(space) -> None:
    series = interpolations(subject_on(space, tiny_sentences(30))).pictures["prior_paths"].series
    assert (series["to the start"][0], series["to the start"][-1]) == (0, 1)
    assert (series["to the end"][0], series["to the end"][-1]) == (1, 0)


def test_a_decoder_that_ignores_its_code_never_leaves_a_sentence(tiny) -> None:
    space = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    with torch.no_grad():
        for parameter in space.model.decoder.parameters():
            parameter.zero_()
    found = interpolations(subject_on(space, tiny_sentences(30)))
    values = {name: estimate.value for name, estimate in found.estimates.items() if "words" not in name}
    assert values == {
        "prior_repeated": 1.0,
        "prior_distinct": 1.0,
        "posterior_repeated": 1.0,
        "posterior_distinct": 1.0,
        "sampled_ends_repeated": 1.0,
        "sampled_ends_distinct": 1.0,
        "three_steps_repeated": 1.0,
        "three_steps_distinct": 1.0,
    }
    assert list(found.pictures) == ["sampled_ends_and_words_paths"]  # words by chance are never twice the same


def test_points_are_not_called_samples(tiny) -> None:
    recipe = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    found = interpolations(subject_on(untrained(recipe, tiny.tokenizer), tiny_sentences(10)))
    assert "between posterior points of test sentences" in found.estimates["posterior_distinct"].name


def test_one_sentence_has_nowhere_to_go(space) -> None:
    with pytest.raises(TextspaceError, match="from one sentence to another, and there is 1"):
        interpolations(subject_on(space, ["anna"]))
