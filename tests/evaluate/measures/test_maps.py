"""Maps of codes and of features: axes that are known, colours, and features that are alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.evaluate.measures import maps as module
from textspace.evaluate.measures.maps import code_map, feature_map, feature_plane, principal_shares, spread_of
from textspace.evaluate.posterior import posterior_statistics
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(40)


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return untrained(small(RECIPES["vae"]), tiny.tokenizer)


# Codes


def test_codes_that_are_alike_span_no_plane(tiny) -> None:
    space = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    with torch.no_grad():
        for parameter in space.model.posterior.parameters():
            parameter.zero_()
    assert code_map(subject_on(space, TEXTS)).estimates["plane"].value == 0


def test_principal_shares_of_a_cross() -> None:
    codes_NZ = np.array([[3.0, 0, 0], [-3, 0, 0], [0, -1, 0], [0, 1, 0]]) + 5
    along_NZ, shares = principal_shares(codes_NZ)
    np.testing.assert_allclose(shares, [0.9, 0.1, 0], atol=1e-12)
    np.testing.assert_allclose(along_NZ[:, 0], [3, -3, 0, 0], atol=1e-12)  # not the other way round
    np.testing.assert_allclose(along_NZ[:, 1], [0, 0, -1, 1], atol=1e-12)


def test_the_map_counts_axes(space) -> None:
    subject = subject_on(space, TEXTS[:20])
    drawn_NZ = np.random.default_rng(0).normal(size=(20, 4))
    codes_NZ = np.linalg.qr(drawn_NZ - drawn_NZ.mean(0))[0] * np.sqrt([0.5, 0.3, 0.15, 0.05])
    subject.test.__dict__["_parameters"] = (codes_NZ, codes_NZ)
    found = code_map(subject)
    assert found.estimates["plane"].value == pytest.approx(0.8)
    assert found.estimates["axes_for_90"].value == 3
    assert found.estimates["axes_effective"].value == pytest.approx(1 / (0.25 + 0.09 + 0.0225 + 0.0025))


def test_the_map_is_coloured_by_label_and_shows_every_sentence_once(space) -> None:
    labels = ["10" if len(text.split()) > 5 else "9" for text in TEXTS]
    picture = code_map(subject_on(space, TEXTS, {"test": labels})).pictures["map"]
    assert list(picture.series) == ["9", "10"]
    assert {name: len(flat) // 2 for name, flat in picture.series.items()} == {
        name: labels.count(name) for name in ("9", "10")
    }
    assert "by label" in picture.title


@pytest.mark.parametrize(("labels", "groups"), [(9, 9), (10, 10), (11, 10)])
def test_of_many_labels_the_rare_ones_share_a_colour(space, labels: int, groups: int) -> None:
    given = [f"label {number % labels}" for number in range(40)]
    series = code_map(subject_on(space, TEXTS, {"test": given})).pictures["map"].series
    assert len(series) == groups
    assert ("others" in series) == (labels > groups)
    assert list(series)[-1] == ("others" if labels > groups else f"label {labels - 1}")


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
def test_without_labels_the_map_is_coloured_by_length(space) -> None:
    picture = code_map(subject_on(space, ["a", "a b", "a b", "a b c", "a b c d"])).pictures["map"]
    assert "by length" in picture.title
    counts = {name: len(flat) // 2 for name, flat in picture.series.items()}
    assert counts == {"1-2 words": 3, "3 words": 1, "4 words": 1}


def test_a_large_map_shows_some_sentences_spread_evenly(space, monkeypatch) -> None:
    monkeypatch.setattr(module, "SHOWN_POINTS", 10)
    picture = code_map(subject_on(space, TEXTS)).pictures["map"]
    assert sum(map(len, picture.series.values())) == 20
    assert "10 sentences" in picture.title


# Features


@pytest.mark.parametrize("name", ["vae-max-pool", "vat-small"])
def test_features_lie_where_the_encoder_puts_them(name: str, tiny) -> None:
    space = untrained(small(RECIPES[name]), tiny.tokenizer)
    subject = subject_on(space, TEXTS)
    split = subject.test.split
    plane = feature_plane(space.model, split)
    assert plane.rows_N.tolist() == list(range(40))
    features = []
    for row in range(40):  # one after the other, without padding
        batch = module.make_batch(split, np.array([row]))
        with torch.no_grad():
            each = space.model.eval().features(batch.encoder)
        features.append((each[0].mean(0) if space.model.is_token_level else each[0]).double().numpy())
    features_NH = np.stack(features)
    along_NH, shares = principal_shares(features_NH)
    length = np.sqrt((features_NH**2).sum(1).mean())
    np.testing.assert_allclose(plane.places_N2, along_NH[:, :2] / length, atol=1e-5)
    np.testing.assert_allclose(plane.shares[:2], shares[:2], atol=1e-5)
    found = feature_map(subject)
    assert found.estimates["spread"].value == pytest.approx(spread_of(features_NH).value, abs=1e-5)
    assert sum(map(len, found.pictures["map"].series.values())) == 80


def test_the_spread_of_features_is_known_around_the_origin_and_far_from_it(chance) -> None:
    features_NH = chance.normal(size=(4000, 5))
    around, far = spread_of(features_NH), spread_of(features_NH + [30, 0, 0, 0, 0])
    assert around.value == pytest.approx(1, abs=0.01)
    assert far.value == pytest.approx(5 / 905, abs=4 * far.stderr)
    assert far.stderr < 0.001


def test_features_that_are_alike_have_no_spread(tiny) -> None:
    space = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    with torch.no_grad():
        space.model.encoder.embedding.weight[:] = 1.0
    same_length = [text for text in TEXTS if len(text.split()) == len(TEXTS[0].split())]
    assert len(same_length) > 3
    subject = subject_on(space, same_length)
    assert feature_map(subject).estimates["spread"].value == pytest.approx(0, abs=1e-9)
    assert posterior_statistics(space.model, subject.test.split).feature_cosine.value == pytest.approx(1)


def test_a_language_model_has_no_features(tiny) -> None:
    space = untrained(small(RECIPES["lstm-lm"]), tiny.tokenizer)
    assert feature_plane(space.model, subject_on(space, TEXTS).test.split) is None
