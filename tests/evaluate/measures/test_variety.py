"""Variety of variants made by hand, and the measure against the space's own methods."""

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort
from textspace.evaluate.measures.variety import FEWEST, SHOWN, STRENGTHS, VARIANTS, Varied, varied, variety
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.text_metrics import self_bleu, sentence_bleu
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture
def space(tiny) -> Space:
    """Untrained, with weights so large that codes decode to different sentences."""
    return untrained(small(RECIPES["vae"]).but({"initial.weights": 2.0}), tiny.tokenizer)


# By hand


def test_variants_by_hand() -> None:
    found = varied(["a b c d", "a b c e", "a x c e", "a b c", "a b c e"], "a b c d")
    assert found.distinct == 4
    assert found.copies == 1 / 5
    assert found.changed == pytest.approx((0 + 1 + 2 + 1 + 1) / 5 / 4)
    assert found.same_length == 4 / 5
    assert found.replaced == pytest.approx((0 + 1 + 2 + 1) / 4 / 4)
    assert found.places == 2 / 4
    variants = ["a b c d", "a b c e", "a x c e", "a b c", "a b c e"]
    assert found.self_bleu4 == pytest.approx(self_bleu(variants).mean())
    assert found.bleu4 == pytest.approx(sentence_bleu(variants, ["a b c d"] * 5, 4).mean())


def test_copies_have_no_variety_and_other_sentences_all_of_it() -> None:
    same = varied(["a b c d"] * 3, "a b c d")
    assert same == pytest.approx(Varied(1, 1, 100, 100, 0, 1, 0, 0))
    other = varied(["e f g h", "i j k l", "m n o p"], "a b c d")
    assert (other.distinct, other.copies, other.changed) == (3, 0, 1)
    assert (other.same_length, other.replaced, other.places) == (1, 1, 1)
    assert max(other.self_bleu4, other.bleu4) < 20  # sacrebleu smooths what never matches


def test_what_cannot_be_compared_is_no_number() -> None:
    alone = varied(["a b"], "a b c")
    assert np.isnan([alone.self_bleu4, alone.replaced, alone.places]).all()
    assert alone.changed == pytest.approx(1 / 3)
    assert varied(["", ""], "a b") == pytest.approx(Varied(1, 0, np.nan, 0, 1, 0, np.nan, np.nan), nan_ok=True)


def test_empty_variants_are_not_varied() -> None:
    nothing = varied(["", "", ""], "a b c d")
    assert np.isnan(nothing.self_bleu4)
    assert (nothing.bleu4, nothing.distinct) == (0, 1)
    assert varied(["a b c d", "", "a b c d"], "a b c d").self_bleu4 == pytest.approx(100)


# Of a space


def test_variants_are_those_of_the_space(space) -> None:
    texts = tiny_sentences(30)
    subject = subject_on(space, texts, seed=4)
    found = variety(subject)
    sources = [texts[row] for row in some_rows(30, FEWEST)]
    seed = seed_of(4, "variants")
    for strength, key in zip(STRENGTHS, ("0_5", "1", "1_5", "2"), strict=True):
        repeated = [source for source in sources for _ in range(VARIANTS)]
        made = space.decode(space.encode(repeated, what="sample", strength=strength, seed=seed))
        each = [varied(made[row * VARIANTS :][:VARIANTS], source) for row, source in enumerate(sources)]
        for field in Varied._fields:
            values = np.array([getattr(one, field) for one in each])
            known = values[~np.isnan(values)]
            if not len(known):  # no variant has as many words
                assert f"{field}_strength_{key}" not in found.estimates
                continue
            estimate = found.estimates[f"{field}_strength_{key}"]
            assert estimate.value == pytest.approx(known.mean())
            assert estimate.stderr == (
                pytest.approx(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
            )
            assert estimate.n == len(known)
            assert f"{strength:g} times the posterior's deviation" in estimate.name
            assert found.per_sentence[f"{field}_strength_{key}"] == pytest.approx(values.tolist(), nan_ok=True)
    assert found.tables["variants"].grouped
    shown = found.tables["variants"].rows
    assert len(shown) == SHOWN * (2 + VARIANTS)
    assert shown[0] == (1, "sentence", sources[0])
    assert shown[1] == (1, "mean", space.decode(space.encode(sources[0])))
    samples = space.encode([sources[0]] * VARIANTS, what="sample", seed=seed)
    assert [row[2] for row in shown[2 : 2 + VARIANTS]] == space.decode(samples)


def test_further_away_there_is_more_variety(space) -> None:
    with torch.no_grad():
        space.model.posterior.log_variance.bias.fill_(-3)  # so that half a deviation changes little
    found = variety(subject_on(space, tiny_sentences(40)))
    for field, rises in (("distinct", True), ("self_bleu4", False)):
        values = [found.estimates[f"{field}_strength_{key}"].value for key in ("0_5", "1", "2")]
        assert values == sorted(values, reverse=not rises)
        assert values[0] != values[-1]
    mean = {row[0]: row for row in found.tables["variety"].rows}["0 (the mean)"]
    assert mean[1] is None  # one sentence has no variety
    assert found.pictures["variety"].x == list(STRENGTHS)
    series = found.pictures["variety"].series
    distinct, self_bleu = (found.estimates[f"{field}_strength_1"].value for field in ("distinct", "self_bleu4"))
    assert series[f"distinct of {VARIANTS}"][1] == pytest.approx(distinct / VARIANTS)
    assert series["self-BLEU-4"][1] == pytest.approx(self_bleu / 100)


def test_a_decoder_that_ignores_its_code_has_no_variety(tiny) -> None:
    space = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    with torch.no_grad():
        for parameter in space.model.decoder.parameters():
            parameter.zero_()
    found = variety(subject_on(space, tiny_sentences(30))).estimates
    assert {found[f"distinct_{key}"].value for key in ("strength_1", "strength_2")} == {1}


def test_a_point_strays_by_deviations_of_the_prior(autoencoder) -> None:
    found = variety(subject_on(autoencoder, tiny_sentences(30)))
    assert "times the prior's deviation, since the posterior is a point" in found.tables["variety"].title
    assert "prior's deviation" in found.estimates["distinct_strength_1"].name


def test_more_effort_varies_more_sentences_and_none_without_words(space) -> None:
    texts = [*tiny_sentences(60), ""]
    found = variety(subject_on(space, texts, effort=Effort(decoded=VARIANTS * 61)))
    assert found.estimates["distinct_strength_1"].n == 60
    with pytest.raises(TextspaceError, match="no test sentence has a word"):
        variety(subject_on(space, ["", ""]))


# Of a space whose every token has a code


def test_tokens_with_codes_are_varied_too(token_space) -> None:
    texts = tiny_sentences(30)
    found = variety(subject_on(token_space, texts, seed=4))
    sources = [texts[row] for row in some_rows(30, FEWEST)]
    codes = token_space.encode([sources[0]] * VARIANTS, what="sample", strength=1.0, seed=seed_of(4, "variants"))
    assert [len(code_TZ) for code_TZ in codes] == [len(sources[0].split()) + 2] * VARIANTS
    shown = found.tables["variants"].rows
    assert [row[2] for row in shown[2 : 2 + VARIANTS]] == token_space.decode(codes)
    assert found.estimates["distinct_strength_2"].n == FEWEST
