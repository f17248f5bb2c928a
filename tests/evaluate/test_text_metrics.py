"""Metrics of text against sacrebleu, brute force and hand."""

import math
import random

import numpy as np
import pytest
import sacrebleu
from helpers import tiny_sentences
from sacrebleu.metrics import BLEU

from textspace.config import WordTokenizer
from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import train_tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.statistics import Ratio, jackknife_error
from textspace.evaluate.text_metrics import (
    Nearest,
    Ngrams,
    corpus_bleu,
    distinct_ngrams,
    nearest_sentences,
    score_reconstructions,
    self_bleu,
    sentence_bleu,
    sentence_bleu1_with_end,
    unknown_share,
    word_edit_distance,
    word_matches,
    written,
)


def spoilt(sentences: list[str], share: float = 0.3) -> list[str]:
    """The sentences with some words replaced, dropped or doubled."""
    chance = random.Random(1)
    changes = {0: [], 1: ["cats"], 2: ["dogs", "dogs"]}
    return [
        " ".join(
            new
            for word in sentence.split()
            for new in (changes[chance.randrange(3)] if chance.random() < share else [word])
        )
        for sentence in sentences
    ]


ORIGINALS = tiny_sentences(60)
MADE = spoilt(ORIGINALS)


# BLEU


@pytest.mark.parametrize("order", [1, 4])
def test_corpus_bleu_is_sacrebleus(order: int) -> None:
    metric = BLEU(tokenize="none", max_ngram_order=order)
    found = corpus_bleu(MADE, ORIGINALS, order)
    assert found.score == metric.corpus_score(MADE, [ORIGINALS]).score
    assert 20 < found.score < 90
    assert found.signature == f"nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:{sacrebleu.__version__}"
    if order == 4:
        assert found.score == sacrebleu.corpus_bleu(MADE, [ORIGINALS], tokenize="none").score


def test_words_are_what_lies_between_spaces() -> None:
    # of "well-known", "a" and "." only the last two are words of the other
    assert corpus_bleu(["a well-known ."], ["a well - known ."], 1).score == pytest.approx(
        200 / 3 * math.exp(1 - 5 / 3)
    )
    assert corpus_bleu(["don't stop"], ["don 't stop"], 1).score == pytest.approx(100 / 2 * math.exp(1 - 3 / 2))


def test_bleu_by_hand() -> None:
    assert corpus_bleu(["a b"], ["a b c d"], 1).score == pytest.approx(100 * math.exp(1 - 4 / 2))
    assert corpus_bleu(["the the the"], ["the cat sat"], 1).score == pytest.approx(100 / 3)
    # precisions 4/5, 3/4, 2/3, 1/2 and no brevity penalty
    by_hand = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert corpus_bleu(["a b c d x"], ["a b c d e"], 4).score == pytest.approx(by_hand)
    # counts are summed over sentences before they are divided: (4 + 0) of (5 + 3) words
    assert corpus_bleu(["a b c d x", "u v w"], ["a b c d e", "f g h"], 1).score == pytest.approx(50)
    assert corpus_bleu(["x y"], ["a b"]).score == 0
    assert corpus_bleu([""], ["a b"], 1).score == 0


@pytest.mark.parametrize(
    ("made", "ended", "original", "matches", "never"),
    [
        ("a b c", True, "a b c", 1.0, 3 / 4),
        ("a b", True, "a b c d", math.exp(1 - 5 / 3), 2 / 3 * math.exp(1 - 5 / 3)),  # 3 tokens for 5
        ("a b", False, "a b c d", math.exp(1 - 5 / 2), math.exp(1 - 5 / 2)),  # which has no end to match
        ("a x y b", True, "a b", 3 / 5, 2 / 5),
        ("x", True, "a", 1 / 2, 0.0),
        ("", True, "a", math.exp(1 - 2), 0.0),
        ("", False, "a", 0.0, 0.0),
    ],
)
def test_bleu_with_ends_by_hand(made: str, ended: bool, original: str, matches: float, never: float) -> None:
    found = [sentence_bleu1_with_end([made], [ended], [original], end).item() for end in ("matches", "never")]
    assert found == pytest.approx([matches, never])


def test_bleu_with_ends_counts_no_more_tokens_than_it_may() -> None:
    """Of four tokens: three words and the end, or four words without one."""
    assert sentence_bleu1_with_end(["a b c d"], [True], ["a b c x"], "matches", most=4).item() == pytest.approx(3 / 4)
    assert sentence_bleu1_with_end(["a b c"], [True], ["a b c x"], "matches", most=4).item() == pytest.approx(3 / 4)
    assert sentence_bleu1_with_end(["a b c x"], [False], ["a b c x y"], "never", most=4).item() == pytest.approx(1)


def test_sentence_bleu_is_sacrebleus_and_its_mean_is_not_corpus_bleu() -> None:
    metric = BLEU(tokenize="none", max_ngram_order=1, effective_order=True)
    direct = [metric.sentence_score(made, [original]).score for made, original in zip(MADE, ORIGINALS, strict=True)]
    np.testing.assert_array_equal(sentence_bleu(MADE, ORIGINALS), direct)
    np.testing.assert_allclose(sentence_bleu(["a b c d x", "u v w", ""], ["a b c d e", "f g h", "a"]), [80, 0, 0])
    assert abs(np.mean(direct) - corpus_bleu(MADE, ORIGINALS, 1).score) > 0.1


def test_the_error_of_bleu_is_that_of_leaving_out_each_sentence_and_asking_sacrebleu_again() -> None:
    made, originals = MADE[:12], ORIGINALS[:12]  # fewer than blocks, so each is one sentence

    def without(row: int) -> float:
        kept = [i for i in range(12) if i != row]
        lists = [made[i] for i in kept], [[originals[i] for i in kept]]
        return sacrebleu.corpus_bleu(*lists, tokenize="none").score

    left = np.array([without(row) for row in range(12)])
    assert corpus_bleu(made, originals).stderr == pytest.approx(math.sqrt(11 / 12 * ((left - left.mean()) ** 2).sum()))
    assert corpus_bleu(["a"], ["a"]).stderr is None


# Matches


def test_reconstructions_by_hand() -> None:
    scores = score_reconstructions(["a b c", "a x", "", "a b c d"], ["a b c", "a b c d", "a b", "a b c"])
    np.testing.assert_array_equal(scores.exact_N, [1, 0, 0, 0])
    np.testing.assert_array_equal(scores.matches_N, [3, 1, 0, 3])
    np.testing.assert_array_equal(scores.words_N, [3, 4, 2, 3])
    assert scores.accuracy.value == 7 / 12
    assert scores.bleu1.score == pytest.approx(100 * 7 / 9 * math.exp(1 - 12 / 9))
    np.testing.assert_allclose(scores.sentence_bleu1_N, [100, 50 * math.exp(1 - 4 / 2), 0, 75])


def test_positions_count_in_matches() -> None:
    assert word_matches(["x", "a", "b", "c"], ["a", "b", "c"]) == 0
    assert word_matches([], ["a"]) == word_matches(["a"], []) == 0


# Distances


def test_word_edit_distance_by_hand() -> None:
    assert word_edit_distance([], ["a", "b"]) == 2
    assert word_edit_distance(["a", "b", "c"], ["b", "c", "a"]) == 2
    assert word_edit_distance(["ab"], ["ac"]) == 1  # of words, not of letters
    assert word_edit_distance(["cats"] * 3, ["cats"] * 3) == 0


def test_nearest_sentences_are_those_of_brute_force() -> None:
    corpus = [text.split() for text in tiny_sentences(150)]
    queries = [text.split() for text in MADE[:30]] + [[], ["nowhere", "seen"], corpus[17]]
    for query, found in zip(queries, nearest_sentences(queries, corpus), strict=True):
        distances = [word_edit_distance(query, sentence) for sentence in corpus]
        assert found == Nearest(min(distances), distances.index(min(distances)))


def test_words_that_only_the_corpus_has_never_match_even_each_other() -> None:
    assert nearest_sentences([["a", "b"]], [["x", "x"], ["a", "y"], ["?", "?"]])[0] == Nearest(1, 1)
    assert nearest_sentences([["?", "?"]], [["x", "y"]])[0].distance == 2


def test_many_different_words_stay_different() -> None:
    words = [f"w{number}" for number in range(70_000)]
    found = nearest_sentences([words, [words[-1]]], [[words[55_296]], [words[-1]]])
    assert [each.distance for each in found] == [69_999, 0]
    assert found[1].row == 1


# Variety


def test_self_bleu_is_sacrebleus_with_all_others_as_references() -> None:
    texts = [*MADE[:25], MADE[3], "", "dogs dogs dogs dogs dogs", "cats", "cats cats sees cats dogs " * 5]
    metric = BLEU(tokenize="none", effective_order=True)
    direct = [metric.sentence_score(text, texts[:row] + texts[row + 1 :]).score for row, text in enumerate(texts)]
    direct[texts.index("")] = np.nan  # for which sacrebleu has a 0
    np.testing.assert_allclose(self_bleu(texts), direct)
    assert np.nanstd(direct) > 5
    metric = BLEU(tokenize="none", effective_order=True, max_ngram_order=2)
    direct = [metric.sentence_score(text, texts[:row] + texts[row + 1 :]).score for row, text in enumerate(texts)]
    direct[texts.index("")] = np.nan
    np.testing.assert_allclose(self_bleu(texts, 2), direct)


def test_self_bleu_of_equal_and_of_unlike_sentences() -> None:
    np.testing.assert_allclose(self_bleu(["a b c d e"] * 3), 100)
    np.testing.assert_allclose(self_bleu(["a b c d", "e f g h", "i j k l"]), 0)


def test_empty_sentences_have_no_self_bleu_and_are_alike_in_a_comparison_of_two() -> None:
    assert np.isnan(self_bleu(["", ""])).all()
    np.testing.assert_allclose(self_bleu(["a b c d", "", "a b c d", " "]), [100, np.nan, 100, np.nan])
    np.testing.assert_allclose(sentence_bleu(["", "", "a b", " "], ["", "a b", "", ""], 4), [100, 0, 0, 100])
    scores = score_reconstructions(["", "a b"], ["", "a b"])
    np.testing.assert_allclose(scores.sentence_bleu1_N, [100, 100])
    assert scores.exact_N.tolist() == [1, 1]


def test_one_sentence_has_no_self_bleu_and_two_have_no_error_of_it() -> None:
    with pytest.raises(TextspaceError, match="self-BLEU compares sentences with each other: give at least two"):
        self_bleu(["a b"])
    texts = ["a b c d e", "a b c d f", "a b x y z"]

    def alike(rows: np.ndarray) -> float:
        return float(self_bleu([texts[row] for row in rows]).mean())

    assert alike(np.arange(2)) > 0
    assert jackknife_error(alike, 2) is None
    assert jackknife_error(alike, 3) > 0


def test_distinct_ngrams_by_hand() -> None:
    sentences = [["a", "b", "a", "b"], ["a", "b"], ["c"], []]
    assert [distinct_ngrams(sentences, n) for n in (1, 2, 3, 4)] == [
        Ngrams(3, 7),
        Ngrams(2, 4),  # none across the end of a sentence
        Ngrams(2, 2),
        Ngrams(1, 1),
    ]
    assert distinct_ngrams(sentences, 1).share == 3 / 7
    assert distinct_ngrams([[]], 1).share == 0


# As the tokenizer sees it


def test_unknown_words_and_long_sentences_are_written_as_a_space_can() -> None:
    tokenizer = train_tokenizer(WordTokenizer(), ["a b c"])
    split = EncodedSplit.of(["a zebra _UNK", "c c b a", "", "b"], tokenizer, 3)
    assert written(split, tokenizer) == ["a <unk> <unk>", "c c b", "", "b"]
    assert unknown_share(split) == Ratio.of(np.array([2, 0, 0, 0]), np.array([3, 3, 0, 1]))
    assert unknown_share(split).value == 2 / 7
