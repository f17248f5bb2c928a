"""Sentences compared with sentences: BLEU, matches, edit distance, variety; functions of text alone."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics import BLEU

from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import END, PAD, SPECIALS, Tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.statistics import Ratio, jackknife_error
from textspace.progress import track

__all__ = [
    "Bleu",
    "Nearest",
    "Ngrams",
    "Scores",
    "corpus_bleu",
    "distinct_ngrams",
    "nearest_sentences",
    "score_reconstructions",
    "self_bleu",
    "sentence_bleu",
    "sentence_bleu1_with_end",
    "unknown_share",
    "word_edit_distance",
    "word_matches",
    "written",
]

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Words = Sequence[str]


# Against an original


class Bleu(NamedTuple):
    """Corpus BLEU, 0 to 100, with its jackknife error and sacrebleu's signature."""

    score: float
    stderr: float | None
    signature: str


def corpus_bleu(made: Sequence[str], originals: Sequence[str], order: int = 4) -> Bleu:
    """BLEU of sentences with one reference each, by sacrebleu [Post 2018], on whitespace words.

    Args:
        made: the sentences to judge.
        originals: the reference of each.
        order: n-grams up to this length; the signature does not tell it.

    >>> round(corpus_bleu(["the cat sat on the mat"], ["the cat sat on the mat"]).score, 6)
    100.0
    """
    metric = _metric(order)
    score = metric.corpus_score(made, [list(originals)])
    # A sentence's counts: all that its share in the score of a corpus depends on.
    each = [metric.corpus_score([one], [[reference]]) for one, reference in zip(made, originals, strict=True)]
    counts_NC = np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in each], np.int64)
    totals_C = counts_NC.sum(0)

    def of_rows(rows: Rows) -> float:
        kept = np.zeros(len(each), bool)
        kept[rows] = True
        return _bleu_of_counts((totals_C - counts_NC[~kept].sum(0)).tolist(), order, effective=False)

    return Bleu(float(score.score), jackknife_error(of_rows, len(each)), str(metric.get_signature()))


def sentence_bleu(made: Sequence[str], originals: Sequence[str], order: int = 1) -> Floats:
    """BLEU of each sentence, 0 to 100, brevity penalty included: 0 where one of the two is empty, 100 where both are.

    >>> sentence_bleu(["", "a", "", "a"], ["a", "", "", "a"]).round(6).tolist()
    [0.0, 0.0, 100.0, 100.0]
    """
    metric = _metric(order, effective=True)
    scores = [
        metric.sentence_score(one, [other]).score if one.split() or other.split() else 100.0
        for one, other in zip(made, originals, strict=True)
    ]
    return np.array(scores, np.float64)


def sentence_bleu1_with_end(
    made: Sequence[str],
    ended: Sequence[bool] | NDArray[np.bool_],
    originals: Sequence[str],
    end: Literal["matches", "never"],
    most: int = 100,
) -> Floats:
    """BLEU-1 of each sentence with its end as one more token, 0 to 1, as SentenceMIM counts it [Livne et al. 2020].

    Args:
        made: the sentences to judge.
        ended: whether each came to its end, or was cut.
        originals: the reference of each.
        end: whether the end of a sentence matches that of its reference. It "never" does in the public code, which
            writes padding over the reference's, so that a perfect copy of n words scores n / (n + 1).
        most: tokens of a sentence and of a reference, its end included; what comes after them is dropped.

    >>> [round(sentence_bleu1_with_end(["a b"], [True], ["a b"], end).item(), 3) for end in ("matches", "never")]
    [1.0, 0.667]
    """
    of_original = SPECIALS[END if end == "matches" else PAD]
    ends = (SPECIALS[END] if has_ended else "" for has_ended in ended)
    with_ends = [" ".join([*text.split(), mark][:most]) for text, mark in zip(made, ends, strict=True)]
    references = [" ".join([*text.split(), of_original][:most]) for text in originals]
    return sentence_bleu(with_ends, references, 1) / 100


def word_matches(made: Words, original: Words) -> int:
    """Words of the original that the other has at the same position.

    >>> word_matches("a b c d".split(), "a c c".split())
    2
    """
    return sum(one == other for one, other in zip(made, original, strict=False))


class Scores(NamedTuple):
    """How well sentences were reconstructed."""

    bleu4: Bleu
    bleu1: Bleu
    sentence_bleu1_N: Floats
    exact_N: Floats
    """1 where a sentence came back word for word."""
    matches_N: Floats
    """Words of each original found again at their position."""
    words_N: Floats
    """Words of each original."""

    @property
    def accuracy(self) -> Ratio:
        """Share of all words of the originals that came back at their position; the end is not counted."""
        return Ratio.of(self.matches_N, self.words_N)


def score_reconstructions(made: Sequence[str], originals: Sequence[str]) -> Scores:
    """Every measure of a reconstruction, on whitespace words."""
    pairs = [(one.split(), other.split()) for one, other in zip(made, originals, strict=True)]
    return Scores(
        bleu4=corpus_bleu(made, originals, 4),
        bleu1=corpus_bleu(made, originals, 1),
        sentence_bleu1_N=sentence_bleu(made, originals, 1),
        exact_N=np.array([one == other for one, other in pairs], np.float64),
        matches_N=np.array([word_matches(one, other) for one, other in pairs], np.float64),
        words_N=np.array([len(other) for _, other in pairs], np.float64),
    )


def _metric(order: int, effective: bool = False) -> BLEU:
    # force: text with spaces before full stops is meant to be so, and needs no warning.
    return BLEU(tokenize="none", max_ngram_order=order, effective_order=effective, force=True)


def _bleu_of_counts(counts: list[int], order: int, effective: bool) -> float:
    """From matching n-grams and all n-grams of each order, the length, and the reference's."""
    return float(
        BLEU.compute_bleu(
            counts[:order],
            counts[order : 2 * order],
            counts[2 * order],
            counts[2 * order + 1],
            smooth_method="exp",
            effective_order=effective,
            max_ngram_order=order,
        ).score
    )


# Against a corpus


def word_edit_distance(a: Words, b: Words) -> int:
    """Words to insert, delete or replace.

    >>> word_edit_distance("a man walks".split(), "the man walks away".split())
    2
    """
    return int(Levenshtein.distance(a, b))


class Nearest(NamedTuple):
    distance: int
    row: int


def nearest_sentences(queries: Sequence[Words], corpus: Sequence[Words], progress: bool = False) -> list[Nearest]:
    """Of each query the first of the nearest sentences of a corpus by word edit distance.

    rapidfuzz is fastest on strings, so every word becomes a character. Words that no query has match nothing, and can
    all be the same one: a million different words of queries find room.
    """
    characters: dict[str, str] = {}
    for word in (word for query in queries for word in query):
        characters.setdefault(word, chr(0x10000 + len(characters)))  # above the surrogates, which are no characters
    spelled = ["".join(characters.get(word, "?") for word in sentence) for sentence in corpus]
    nearest = []
    for query in track(queries, "searching", progress, len(queries)):
        text = "".join(characters[word] for word in query)
        found = process.extractOne(text, spelled, scorer=Levenshtein.distance)
        nearest.append(Nearest(int(found[1]), int(found[2])))
    return nearest


# Variety


def self_bleu(texts: Sequence[str], order: int = 4) -> Floats:
    """BLEU of each sentence with all others as its references, 0 to 100 [Zhu et al. 2018]: high where they are alike.

    The same as sacrebleu's sentence BLEU with so many references, in linear instead of quadratic time: of every n-gram
    only the two largest counts matter, since what others have most of is the largest, or the second where the largest
    is the sentence's own. An empty sentence has no BLEU (not a number), or equal empty ones would pass for varied.
    """
    if len(texts) < 2:
        raise TextspaceError("self-BLEU compares sentences with each other: give at least two")
    words = [text.split() for text in texts]
    grams = [[_ngrams(sentence, n) for n in range(1, order + 1)] for sentence in words]
    largest: Counter[tuple[str, ...]] = Counter()
    second: Counter[tuple[str, ...]] = Counter()
    for counts in grams:
        for of_order in counts:
            for gram, count in of_order.items():
                if count > largest[gram]:
                    largest[gram], second[gram] = count, largest[gram]
                elif count > second[gram]:
                    second[gram] = count
    lengths = Counter(len(sentence) for sentence in words)
    scores_N = np.full(len(texts), np.nan)
    for row, (sentence, counts) in enumerate(zip(words, grams, strict=True)):
        if not sentence:
            continue
        correct = [
            sum(min(count, second[g] if count == largest[g] else largest[g]) for g, count in of_order.items())
            for of_order in counts
        ]
        totals = [max(len(sentence) - n, 0) for n in range(order)]
        closest = _closest_other_length(lengths, len(sentence))
        scores_N[row] = _bleu_of_counts([*correct, *totals, len(sentence), closest], order, effective=True)
    return scores_N


def _closest_other_length(lengths: Counter[int], length: int) -> int:
    """The length nearest to that of one sentence among all others; of two equally near the shorter."""
    if lengths[length] > 1:
        return length
    known = sorted(other for other in lengths if other != length and lengths[other])
    at = bisect_left(known, length)
    return min(known[max(at - 1, 0) : at + 1], key=lambda other: (abs(other - length), other))


class Ngrams(NamedTuple):
    """How many n-grams some sentences have, and how many different ones."""

    distinct: int
    total: int

    @property
    def share(self) -> float:
        return self.distinct / max(self.total, 1)


def distinct_ngrams(sentences: Sequence[Words], n: int) -> Ngrams:
    """N-grams of all sentences together [Li et al. 2016, "distinct-n"]; the share falls with the number of sentences.

    >>> distinct_ngrams(["a b a".split(), "a b".split()], 2)
    Ngrams(distinct=2, total=3)
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for sentence in sentences:
        seen.update(_ngrams(sentence, n))
    return Ngrams(len(seen), seen.total())


def _ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


# As a tokenizer sees it


def written(split: EncodedSplit, tokenizer: Tokenizer) -> list[str]:
    """Sentences as a space can write them: words its tokenizer does not know are <unk>, over-long ones are cut."""
    return [tokenizer.decode(split.ids(row)) for row in range(len(split))]


def unknown_share(split: EncodedSplit) -> Ratio:
    """Share of the tokens that are unknown; start and end do not count."""
    return Ratio.of(split.unknown_N, split.lengths - 2)
