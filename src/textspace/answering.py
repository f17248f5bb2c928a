"""Questions in the latent space: answers ranked by how near their codes lie to that of an unknown answer, and made.

A question and its answer are one text, "question ? answer". The same text with unknown tokens in the answer's place has
a code too: a good answer moves it little, and decoding it fills the gap [Livne et al. 2020, section 4.6].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional as F

from textspace.checks import seed_number, whole_number
from textspace.data.batching import batch_of, batches_by_length
from textspace.data.normalise import NORMALISERS, normaliser
from textspace.data.questions import Question
from textspace.data.tokenizers import UNKNOWN
from textspace.distributions import Delta
from textspace.errors import TextspaceError, nearest
from textspace.evaluate.rankings import counts_of, ranks
from textspace.generate import Greedy, Method
from textspace.inputs import check_sentences, listed, warn
from textspace.noise import Noise, seed_of
from textspace.progress import track

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["SCORES", "Answer", "Ranked", "Rule", "Score", "answer", "rank_answers", "score_answers", "scores_for"]

Floats = NDArray[np.float64]
Score = Literal["distance", "mean", "log-q", "unit", "cosine"]

TOKENS_AT_ONCE = 2**14
WORDS = (5, 10, 15)
"""Unknown tokens that stand for a short, a medium and a long answer."""


class Rule(NamedTuple):
    """A way to score an answer: in a table, in the name of a number, and which answer comes first."""

    short: str
    about: str
    lowest_first: bool


SCORES: dict[Score, Rule] = {
    "distance": Rule("codes: distance of samples", "the distance of sampled codes in posterior deviations", True),
    "mean": Rule("codes: distance of means", "the distance of mean codes in posterior deviations", True),
    "log-q": Rule("codes: log q of a sample", "log q of the sampled code given an unknown answer", False),
    "unit": Rule("codes: unit variance", "the distance of sampled codes with unit variance", True),
    "cosine": Rule("codes: cosine", "the cosine of the mean codes of question and answer", False),
}
"""With z of "question ? answer" and q of the same text with unknowns: || (z_q - z) / deviation of q ||, both codes
sampled; the same with means; log q(z); the first with deviation 1; and the cosine of the two texts apart."""


class Ranked(NamedTuple):
    """An answer, its score, and its position among those given, from 0."""

    answer: str
    score: float
    row: int


class Answer(NamedTuple):
    """An answer that a space made."""

    words: int
    """Unknown tokens in its place when the question was encoded."""
    text: str
    """What follows the first question mark of the decoded text; empty where it has none."""
    decoded: str
    """All that was decoded."""
    repeats_question: bool
    """Whether the decoded text has a question mark, without which question and answer cannot be told apart."""


# Questions and answers as tokens


_END_OF_QUESTION = re.compile(r"(\s*)(\?[\s?]*)?$")
_MARKS_AT_END_OF_WORD = re.compile(r"\?+(?=\s|$)")


def _question_text(question: str, of_words: bool) -> str:
    """The question with one question mark at its end, which is a word of its own where the tokenizer is of words."""
    end = _END_OF_QUESTION.search(question)
    assert end is not None  # it also finds nothing at all
    joint = " " if of_words else end[1] if end[2] else ""
    return f"{question[: end.start()]}{joint}?"


def _marks_apart(text: str) -> str:
    return _MARKS_AT_END_OF_WORD.sub(lambda marks: " ?" * len(marks[0]), text)


def _blank(question: str) -> bool:
    return not question.replace("?", "").strip()


class _Reader:
    """Ids of questions and answers as one text, normalised as the space's sentences are."""

    def __init__(self, space: Space, drop_html: bool) -> None:
        if space.tokenizer.encoder is not None:
            raise TextspaceError(
                f"{space.recipe.name!r} has a pretrained encoder, which cannot read unknown tokens in the place of an "
                "answer: rank and answer with a space whose encoder was trained from the start"
            )
        self.normalise = normaliser((*(["html"] if drop_html else []), *space.recipe.text.normalise))
        self.tokenizer = space.tokenizer
        self.of_words = self.tokenizer.kind == "words"

    def questions(self, texts: Sequence[str]) -> list[list[int]]:
        """With the question mark last; what normalising leaves nothing of is unknown."""
        clean = self._clean(texts, "question")
        found = self._ids([_question_text(text, self.of_words) for text in clean])
        return [[UNKNOWN, *ids] if _blank(text) else ids for text, ids in zip(clean, found, strict=True)]

    def answers(self, texts: Sequence[str]) -> list[list[int]]:
        clean = self._clean(texts, "answer")
        return [ids or [UNKNOWN] for ids in self._ids(clean if self.of_words else [f" {text}" for text in clean])]

    def _clean(self, texts: Sequence[str], what: str) -> list[str]:
        check_sentences(texts, first=1)
        for number, text in enumerate(texts, start=1):
            if _blank(text) if what == "question" else not text.strip():
                raise TextspaceError(f"{what} {number} is empty: give it words or leave it out")
        return [self.normalise(text).strip() for text in texts]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer.encode([_marks_apart(text) for text in texts] if self.of_words else texts)


@dataclass(frozen=True)
class _Pairs:
    """Every question with each of its answers, and with as many unknown tokens as the answer has."""

    questions: list[list[int]]
    answers: list[list[int]]
    question_N: NDArray[np.int64]
    max_tokens: int | None

    @classmethod
    def of(cls, space: Space, questions: Sequence[Question], drop_html: bool) -> _Pairs:
        for number, question in enumerate(questions, start=1):
            if not question.answers:
                raise TextspaceError(f"question {number} has no answers to rank: give it some or leave it out")
        reader = _Reader(space, drop_html)
        counts_Q = counts_of(questions)
        return cls(
            reader.questions([question.text for question in questions]),
            reader.answers([answer for question in questions for answer in question.answers]),
            np.arange(len(questions)).repeat(counts_Q),
            space.recipe.text.max_tokens,
        )

    def full(self, row: int) -> list[int]:
        return self._cut(self.questions[self.question_N[row]] + self.answers[row])

    def unknown(self, row: int) -> list[int]:
        return self._cut(self.questions[self.question_N[row]] + [UNKNOWN] * len(self.answers[row]))

    def _cut(self, ids: list[int]) -> list[int]:
        return ids if self.max_tokens is None else ids[: self.max_tokens]

    @property
    def lengths_N(self) -> NDArray[np.int64]:
        """Tokens of a whole pair, start and end included, before any cut."""
        question_Q = np.array([len(ids) for ids in self.questions], np.int64)
        return question_Q[self.question_N] + np.array([len(ids) for ids in self.answers], np.int64) + 2

    def tell_troubles(self) -> None:
        """Tell once what was cut, and where nothing is known."""
        if self.max_tokens is not None and (cut := int((self.lengths_N - 2 > self.max_tokens).sum())):
            warn(
                f"{cut:,} of {len(self.answers):,} answers made more than {self.max_tokens} tokens with their question "
                "and were cut there"
            )
        empty = sum(set(ids[:-1]) <= {UNKNOWN} for ids in self.questions)
        if empty:
            warn(
                f"{empty:,} of {len(self.questions):,} questions hold no word this space knows: "
                "it has only their answers to go by"
            )
        blank = sum(set(ids) <= {UNKNOWN} for ids in self.answers)
        if blank:
            warn(
                f"{blank:,} of {len(self.answers):,} answers hold no word this space knows: "
                "nothing tells them from an unknown answer, so that they rank high"
            )


# Scores


@dataclass(frozen=True)
class _Coded:
    """The posterior of some texts, its mean and deviation (1 where it has none), and a sample of it."""

    q: Distribution
    mean_BZ: Tensor
    deviation_BZ: Tensor
    sample_BZ: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, space: Space, sequences: Sequence[list[int]], rows_B: NDArray[np.int64], seed: int) -> _Coded:
        """Of token ids; the noise is keyed by the rows."""
        batch = batch_of(sequences, rows_B).to(space.device)
        noise = Noise(seed, 0, batch.rows_B)
        features_BH = space.model.features(batch.encoder)
        mean_BZ, deviation_BZ = space.model.code_moments(features_BH, noise)
        site = space.model.sites(features_BH, noise, 1, batch.encoder)["z"]
        if isinstance(site.q, Delta):
            deviation_BZ = torch.ones_like(mean_BZ)
        return cls(site.q, mean_BZ, deviation_BZ, site.value_SBZ[0])


_RULES: dict[Score, Callable[[_Coded, _Coded], Tensor]] = {
    "distance": lambda unknown, full: ((unknown.sample_BZ - full.sample_BZ) / unknown.deviation_BZ).norm(dim=1),
    "mean": lambda unknown, full: ((unknown.mean_BZ - full.mean_BZ) / unknown.deviation_BZ).norm(dim=1),
    "log-q": lambda unknown, full: unknown.q.log_prob(full.sample_BZ).sum(1),
    "unit": lambda unknown, full: (unknown.sample_BZ - full.sample_BZ).norm(dim=1),
}


def scores_for(space: Space) -> list[Score]:
    """The scores a space can give: log q needs a density with a formula, and random gates leave none."""
    posterior = space.model.posterior
    has_formula = posterior is not None and posterior.has_log_prob and "gate" not in posterior.distributions
    return [name for name in SCORES if name != "log-q" or has_formula]


def score_answers(
    space: Space,
    questions: Sequence[Question],
    scores: Sequence[Score] = ("distance",),
    *,
    drop_html: bool = False,
    seed: int = 0,
    show_progress: bool = False,
) -> dict[str, Floats]:
    """Scores of the answers of many questions, end to end; texts longer than the space reads are cut.

    A space whose posterior has no spread, an autoencoder, has unit variance in every score.

    Args:
        space: whose codes are compared.
        questions: with the answers to score; labels are not looked at.
        scores: of `SCORES`.
        drop_html: remove HTML tags first.
        seed: of the sampled codes; noise is keyed by the position of the answer among all.
        show_progress: show a bar.
    """
    seed = seed_number(seed)
    space._needs_sentence_codes("ranking answers compares")
    known = scores_for(space)
    for name in scores:
        if name not in get_args(Score):
            raise TextspaceError(f"there is no score {name!r}; {nearest(name, SCORES)}")
        if name not in known:
            raise TextspaceError(
                f"the posterior of {space.recipe.name!r} has no density with a formula, which {name} needs: "
                "use 'distance'"
            )
    pairs = _Pairs.of(space, questions, drop_html)
    pairs.tell_troubles()
    found: dict[str, Floats] = {name: np.zeros(len(pairs.answers)) for name in scores}
    if sampled := [name for name in scores if name != "cosine"]:
        lengths_N = np.minimum(pairs.lengths_N, 2 + (pairs.max_tokens or pairs.lengths_N.max(initial=0)))
        plan = batches_by_length(lengths_N, tokens=TOKENS_AT_ONCE)
        for rows_B in track(plan, "scoring answers", show_progress, len(plan)):
            full = _Coded.of(space, [pairs.full(row) for row in rows_B], rows_B, seed)
            unknown = _Coded.of(space, [pairs.unknown(row) for row in rows_B], rows_B, seed_of(seed, "unknown answer"))
            for name in sampled:
                found[name][rows_B] = _RULES[name](unknown, full).double().cpu().numpy()
    if "cosine" in scores:
        found["cosine"] = _cosines(space, pairs)
    for key, values_N in found.items():
        if not np.isfinite(values_N).all():
            raise TextspaceError(f"a {key} score is not finite: the codes of this space are damaged, train it anew")
    return found


def _cosines(space: Space, pairs: _Pairs) -> Floats:
    def means(sequences: Sequence[list[int]]) -> Tensor:
        cut = [pairs._cut(ids) for ids in sequences]
        codes_MZ = torch.zeros(len(cut), space.dim, device=space.device)
        lengths_M = np.array([len(ids) + 2 for ids in cut], np.int64)
        for rows_B in batches_by_length(lengths_M, tokens=TOKENS_AT_ONCE):
            codes_MZ[torch.from_numpy(rows_B)] = _Coded.of(space, [cut[row] for row in rows_B], rows_B, 0).mean_BZ
        return codes_MZ

    question_N = torch.from_numpy(pairs.question_N)
    return F.cosine_similarity(means(pairs.questions)[question_N], means(pairs.answers)).double().cpu().numpy()


def rank_answers(
    space: Space,
    question: str,
    answers: Sequence[str],
    *,
    score: Score = "distance",
    drop_html: bool = False,
    seed: int = 0,
) -> list[Ranked]:
    """The answers to a question, best first; `score_answers` takes many questions at once.

    >>> from textspace import Space
    >>> space = Space.fit(["who sees cats ? anna sees cats", "who likes dogs ? bob does"] * 40, "vae", epochs=1)
    >>> [ranked.row for ranked in rank_answers(space, "who sees dogs?", ["anna sees dogs", "bob"])] in ([0, 1], [1, 0])
    True
    """
    seed = seed_number(seed)
    if isinstance(answers, str):
        raise TextspaceError("answers must be a list of strings, not one string")
    asked = Question(question, tuple(listed(answers)))
    scores_K = score_answers(space, [asked], [score], drop_html=drop_html, seed=seed)[score]
    ranks_K = ranks(scores_K, counts_of([asked]), lowest_first=SCORES[score].lowest_first, seed=seed)
    return [Ranked(asked.answers[row], float(scores_K[row]), int(row)) for row in np.argsort(ranks_K)]


# Answers made


def answer(
    space: Space,
    question: str,
    words: int | Iterable[int] = WORDS,
    *,
    n: int = 1,
    what: Literal["sample", "mean"] = "sample",
    method: Method | None = None,
    drop_html: bool = True,
    seed: int = 0,
) -> list[Answer]:
    """Answers to a question: the code of the question with unknown tokens in the answer's place, decoded.

    All that follows the first question mark of the decoded text is the answer; its length goes with the number of
    unknown tokens. Training with unknown words (`encoder.word_dropout`) teaches a space to fill them in.

    Args:
        space: that answers; best one trained on questions followed by their answers.
        question: its question mark may be left out.
        words: how many unknown tokens; of several numbers, for each answer.
        n: answers of each length.
        what: decode a sample of the posterior, or its mean.
        method: of decoding; by default greedy, without unknown words.
        drop_html: remove HTML tags from question and answers.
        seed: of the codes; noise is keyed by the position of the answer.
    """
    seed = seed_number(seed)
    space._needs_sentence_codes("answering decodes")
    if what not in ("sample", "mean"):
        raise TextspaceError(f"answer cannot decode {what!r}: ask for 'sample' or 'mean'")
    n = whole_number(n, 1, f"cannot make {n!r} answers")
    given = words if isinstance(words, Iterable) else [words]
    words = [whole_number(each, 1, f"an answer cannot have room for {each!r} words") for each in given]
    if not words:
        raise TextspaceError("there is no room for an answer: say for how many words, such as (5, 10, 15)")
    reader = _Reader(space, drop_html)
    if not isinstance(question, str):
        raise TextspaceError(f"answer takes one question, not a {type(question).__name__}: give a string")
    (asked,) = reader.questions([question])
    if reader.of_words and UNKNOWN in reader.tokenizer.encode(["?"])[0]:
        raise TextspaceError("this space does not know '?' as a word: train it on text that sets question marks apart")
    if set(asked[:-1]) <= {UNKNOWN}:
        raise TextspaceError("the question holds no word this space knows: ask in words of the text it was trained on")
    most = space.recipe.text.max_tokens
    if most is not None and len(asked) + max(words) > most:
        raise TextspaceError(
            f"the question and the room for its answer are {len(asked) + max(words)} tokens and this space reads "
            f"{most} at most: shorten it"
        )
    rooms = [room for room in words for _ in range(n)]
    sequences = [asked + [UNKNOWN] * room for room in rooms]
    coded = _Coded.of(space, sequences, np.arange(len(rooms)), seed)
    codes_NZ = coded.sample_BZ if what == "sample" else coded.mean_BZ
    how = Greedy(max_tokens=200 + len(asked), forbidden=(UNKNOWN,)) if method is None else method
    texts = space.decode(codes_NZ, method=how, seed=seed)
    return [_answer(room, text, reader.of_words, drop_html) for room, text in zip(rooms, texts, strict=True)]


def _answer(room: int, decoded: str, of_words: bool, drop_html: bool) -> Answer:
    # A word may hold a question mark, as addresses do: it is one of its own that ends the question.
    _, mark, text = f" {decoded} ".partition(" ? ") if of_words else decoded.partition("?")
    return Answer(room, (NORMALISERS["html"](text) if drop_html else text).strip(), decoded, bool(mark))
