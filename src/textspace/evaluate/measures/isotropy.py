"""How the codes of tokens lie: whether all point the same way, and how much a sentence makes of its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import UNKNOWN, Tokenizer
from textspace.digits import plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.function_words import function_word_ids
from textspace.evaluate.isotropy import FEWEST_SENTENCES, Cosine, Isotropy, isotropy_of
from textspace.evaluate.layers import layers_of
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.tasks import best_spelling, read_pairs
from textspace.evaluate.statistics import BLOCKS, some_rows
from textspace.noise import seed_of
from textspace.types import Estimate, Settings

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["MEASURES", "MOST_CONTEXTUAL", "isotropy"]

MOST_CONTEXTUAL = 50
"""Tokens of the lowest self-similarity that are shown, and among which function words are counted."""


class _Number(NamedTuple):
    """One of the numbers: its key in a report, its heading, and what it is."""

    key: str
    column: str
    name: str


_EACH_ALIKE = f"tokens that occur in {FEWEST_SENTENCES} sentences or more, each counting alike"
_BY_OCCURRENCE = f"tokens that occur in {FEWEST_SENTENCES} sentences or more, counting as often as they occur"
_OWN = "cosine of one token in two different sentences, mean over"
_INTRA = "cosine of a token with the mean of its sentence, mean over sentences"
_ADJUSTED = ", less the cosine of random tokens"

NUMBERS: dict[str, _Number] = {
    "random": _Number("random_cosine", "random tokens", "cosine of two tokens of different sentences, all pairs"),
    "self_tokens": _Number("self_similarity", "self, by token", f"{_OWN} {_EACH_ALIKE}"),
    "self_tokens_adjusted": _Number("self_similarity_adjusted", "less random", f"{_OWN} {_EACH_ALIKE}{_ADJUSTED}"),
    "self_occurrences": _Number("self_similarity_by_occurrence", "self, by occurrence", f"{_OWN} {_BY_OCCURRENCE}"),
    "self_occurrences_adjusted": _Number(
        "self_similarity_by_occurrence_adjusted", "this less random", f"{_OWN} {_BY_OCCURRENCE}{_ADJUSTED}"
    ),
    "intra": _Number("intra_sentence", "intra-sentence", _INTRA),
    "intra_adjusted": _Number("intra_sentence_adjusted", "intra less random", f"{_INTRA}{_ADJUSTED}"),
    "intra_dealt": _Number(
        "intra_sentence_dealt", "tokens dealt out anew", f"{_INTRA}, after all tokens were dealt out to them anew"
    ),
    "intra_beyond_dealt": _Number(
        "intra_sentence_beyond_dealt", "intra less dealt out", f"{_INTRA}, less the same with tokens dealt out anew"
    ),
    "self_marked": _Number("function_words_self_similarity", "self, function words", f"{_OWN} function words"),
    "self_unmarked": _Number("other_words_self_similarity", "self, others", f"{_OWN} all tokens but function words"),
    "self_marked_less_unmarked": _Number(
        "function_words_less_others", "function words less others", f"{_OWN} function words, less that of all others"
    ),
}
"""By their field of `Isotropy`, in the order of the table."""


@dataclass(frozen=True)
class _Vectors:
    """Token vectors of some encoder, without those of special tokens.

    Args:
        suffix: of the keys of its numbers.
        what: in a table, and in names of numbers.
        vectors: by sentence.
        ids: which token each is of.
        marked: tokens that are function words.
        unranked: the token for unknown words, which is not one word.
        names: of tokens.
        prior_length: root mean square length of a draw of the prior, where there is one: next to it, vectors of a
            collapsed space are short, and their directions mean little.
    """

    suffix: str
    what: str
    vectors: Sequence[NDArray[Any]]
    ids: Sequence[NDArray[Any]]
    marked: set[int]
    unranked: set[int]
    names: dict[int, str]
    prior_length: float | None = None


def isotropy(subject: Subject) -> Findings:
    """Cosines of the codes of random tokens, of one token in different sentences and within a sentence.

    As in Ethayarajh 2019 and figure 3a of the VAT paper: low cosines of random tokens make a space isotropic, and
    tokens of low self-similarity are contextual. The codes of the start and the end token count nowhere. The same of
    every layer of the encoders that the space is compared with.
    """
    texts, where, coder, spelled = _sentences(subject)
    estimates: dict[str, Estimate] = {}
    tables: dict[str, Table] = {}
    rows: list[Cells] = []
    bars: dict[str, Isotropy] = {}
    for given in _encoded(subject, texts, coder, spelled):
        found = isotropy_of(
            given.vectors,
            given.ids,
            marked=given.marked,
            unranked=given.unranked,
            seed=seed_of(subject.seed, "tokens dealt out anew"),
        )
        settings: Settings = {
            "sentences_of": where,
            "tokens": found.tokens,
            "without_direction": found.zeros,
            "ranked_tokens": len(found.ranked),
            "seed": subject.seed,
            "error": f"standard error by a jackknife over {min(BLOCKS, found.sentences)} blocks of sentences",
        }
        cells: list[str | float | None] = []
        for field, number in NUMBERS.items():
            cosine: Cosine | None = getattr(found, field)
            cells.append(None if cosine is None else plus_minus(*cosine))
            if cosine is not None:
                better: Literal["lower"] | None = "lower" if field == "random" else None
                name = f"{number.name}, {given.what} of {where}, start and end tokens left out"
                key = number.key + given.suffix
                estimates[key] = Estimate(name, *cosine, found.sentences, "none", better, settings)
        rows.append((given.what, *cells, round(found.length, 4)))
        bars[given.what] = found
        if given.prior_length is not None:
            name = f"mean length of a vector / that of a draw of the prior, {given.what} of {where}"
            length = found.length / given.prior_length
            estimates[f"length{given.suffix}"] = Estimate(name, length, None, found.sentences, "none", None, settings)
        if not given.suffix:
            estimates |= _function_words(found, given, where, settings)
            tables["contextual"] = _ranking(found, given)
    title = (
        f"Cosines of the vectors of tokens, {where} (start, end and other special tokens left out): of tokens of "
        "different sentences, of one token in different sentences, of a token with the mean of its sentence"
    )
    columns = ("vectors", *(number.column for number in NUMBERS.values()), "length of a vector")
    return Findings(estimates, {"isotropy": Table(title, columns, tuple(rows)), **tables}, {"isotropy": _picture(bars)})


def _sentences(subject: Subject) -> tuple[list[str], str, Space, list[str]]:
    """Those of STS12 where its file is at hand, as in the paper, or else of the test split.

    Returns:
        The sentences, which they are, what encodes them, and how they are spelled for that.
    """
    folder = subject.task_files
    pairs = None if folder is None else read_pairs(folder, "sts/STS12", "sts")
    texts = subject.test.texts if pairs is None else list(dict.fromkeys([*pairs.first, *pairs.second]))
    texts = [texts[row] for row in some_rows(len(texts), subject.effort.sentences)]
    if pairs is None:
        return texts, f"{len(texts):,} test sentences", subject.test.coder, texts
    spelling = best_spelling(subject.space, texts)
    where = f"{len(texts):,} sentences of STS12 ({spelling.name})"
    return texts, where, subject.space, [spelling(text) for text in texts]


def _encoded(subject: Subject, texts: list[str], space: Space, spelled: list[str]) -> Iterator[_Vectors]:
    """The space's codes of all tokens, means and samples, then every layer of the baselines."""
    normalised = [space.normalise(text) for text in spelled]
    read = _Read.by(space.tokenizer, EncodedSplit.of(normalised, space.tokenizer, space.recipe.text.max_tokens))
    marked, unranked = function_word_ids(read.names), set() if read.unknown is None else {read.unknown}
    codes = {
        "": ("posterior means", space.encode(spelled)),
        "_samples": ("posterior samples", space.encode(spelled, what="sample", seed=subject.seed)),
    }
    for suffix, (what, matrices) in codes.items():
        words = [code_TZ[are_words_T] for code_TZ, are_words_T in zip(matrices, read.are_words, strict=True)]
        yield _Vectors(suffix, what, words, read.ids, marked, unranked, read.names, _prior_length(space))
    names_of_baselines = [Path(model).name or model for model in subject.baselines]
    for name, model in zip(names_of_baselines, subject.baselines, strict=True):
        if names_of_baselines.count(name) > 1:
            raise TextspaceError(f"two baselines are called {name!r}: rename a folder")
        layers = layers_of(model, texts, device=space.device, show_progress=subject.show_progress)
        key, marked = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"), function_word_ids(layers.names)
        for number, vectors in enumerate(layers.vectors):
            what = f"{name}, layer {number}" if number else f"{name}, embeddings"
            yield _Vectors(
                f"_{key}_layer_{number}",
                what,
                vectors,
                layers.ids,
                marked,
                set() if layers.unknown is None else {layers.unknown},
                layers.names,
            )


class _Read(NamedTuple):
    """The tokens that the codes of sentences stand for: the space's own, or those of its pretrained encoder.

    Args:
        ids: by sentence, special tokens left out.
        are_words: which rows of a sentence's code are of these.
        names: of the ids that occur.
        unknown: the id for unknown words, where there is one.
    """

    ids: list[NDArray[np.int64]]
    are_words: list[NDArray[np.bool_]]
    names: dict[int, str]
    unknown: int | None

    @classmethod
    def by(cls, tokenizer: Tokenizer, split: EncodedSplit) -> _Read:
        rows = range(len(split))
        if (encoder := tokenizer.encoder) is None:
            ids = [split.ids(row).astype(np.int64) for row in rows]
            are_words = [np.pad(np.ones(len(each), bool), 1) for each in ids]  # start and end apart
        else:
            texts = [split.text(row) for row in rows]
            are_words = [np.array(each, bool) for each in encoder.mark_words(texts)]
            whole = (np.array(each, np.int64) for each in encoder.encode(texts))
            ids = [each[are_words_T] for each, are_words_T in zip(whole, are_words, strict=True)]
        names = {int(each): (encoder or tokenizer).token(int(each)) for each in np.unique(np.concatenate(ids))}
        return cls(ids, are_words, names, UNKNOWN if encoder is None else encoder.unknown)


def _prior_length(space: Space) -> float:
    prior = space.model.prior.codes()  # type: ignore[union-attr]  # codes have a prior
    return float((prior.variance + prior.mean**2).detach().sum().sqrt())


def _function_words(found: Isotropy, given: _Vectors, where: str, settings: Settings) -> dict[str, Estimate]:
    """Their share among the most contextual tokens, and among all that have a self-similarity."""
    if not found.ranked:
        return {}
    most = min(MOST_CONTEXTUAL, len(found.ranked))
    told = f"share of English function words among the {{}} of {given.what} of {where}"
    return {
        "function_words_most_contextual": Estimate(
            told.format(f"{most} tokens of lowest self-similarity"),
            found.marked_share(given.marked, most),
            None,
            most,
            "none",
            None,
            settings,
        ),
        "function_words_all": Estimate(
            told.format(f"{len(found.ranked):,} tokens that have a self-similarity"),
            found.marked_share(given.marked),
            None,
            len(found.ranked),
            "none",
            None,
            settings,
        ),
    }


def _ranking(found: Isotropy, given: _Vectors) -> Table:
    rows = tuple(
        (
            number,
            given.names[each.token],
            each.occurrences,
            each.sentences,
            round(each.similarity, 4),
            "yes" if each.token in given.marked else "no",
        )
        for number, each in enumerate(found.ranked[:MOST_CONTEXTUAL], 1)
    )
    title = (
        f"The most contextual of {len(found.ranked):,} tokens that occur in {FEWEST_SENTENCES} sentences or more: "
        f"those of the lowest self-similarity, {given.what}"
    )
    return Table(title, ("rank", "token", "occurrences", "sentences", "self-similarity", "function word"), rows)


def _picture(found: dict[str, Isotropy]) -> Picture:
    def values(field: str) -> list[float]:
        means = [getattr(each, field) for each in found.values()]
        return [np.nan if mean is None else mean.value for mean in means]

    return Picture(
        "bars",
        "Cosines of token vectors",
        {"random tokens": values("random"), "intra-sentence": values("intra"), "self": values("self_tokens")},
        y_label="mean cosine",
        ticks=list(found),
    )


MEASURES: dict[str, Measure] = {
    "isotropy": Measure(
        isotropy,
        "Whether the codes of tokens lie in all directions, and how much a sentence makes of its words.",
        ("codes", "token_codes"),
        has_baselines=True,
    ),
}
