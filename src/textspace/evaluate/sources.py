"""Text from several sources: what each is called, and the numbers of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textspace.data.finding import short_name
from textspace.digits import plus_minus
from textspace.evaluate.bounds import Likelihood
from textspace.evaluate.measure import Cells, Findings, Table
from textspace.types import Estimate

if TYPE_CHECKING:
    from textspace.data.corpus import Corpus

__all__ = [
    "MIXING",
    "card_lines",
    "estimates_by_source",
    "likelihood_by_source",
    "rows_by_source",
    "source_names",
    "with_sources",
]

_COLUMNS = {
    "reconstruction": "reconstruction",
    "kl": "KL",
    "mim": "A-MIM loss",
    "elbo": "negative ELBO",
    "elbo_ppl_word": "perplexity per word from it",
    "nll": "NLL",
    "nll_ppl_word": "perplexity per word",
}
"""The numbers of a table by source, and their headings."""

MIXING = {
    "all": "every sentence of every source once an epoch, so that larger sources count for more",
    "balanced": "from every source as many sentences an epoch as the smallest has, drawn anew each epoch",
}
"""What the rules for training on several sources mean."""


def source_names(corpus: Corpus) -> tuple[str, ...]:
    """What to call the sources of a corpus: each by its short name, and in full where short names are the same."""
    short = [short_name(name) for name in corpus.sources]
    names = short if len(set(short)) == len(short) else list(corpus.sources)
    often, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if often[name] == 1 else f"{name} ({seen[name]})")  # one source, given twice
    return tuple(found)


def rows_by_source(sources: Sequence[str] | None) -> dict[str, NDArray[np.int64]]:
    """The rows of each source, in the order in which they come; empty where there are not several.

    >>> {name: rows.tolist() for name, rows in rows_by_source(["b", "a", "b"]).items()}, rows_by_source(["b", "b"])
    ({'b': [0, 2], 'a': [1]}, {})
    """
    if sources is None:
        return {}
    named_N = np.array(sources)
    names = dict.fromkeys(sources)
    return {name: np.flatnonzero(named_N == name) for name in names} if len(names) > 1 else {}


def estimates_by_source(
    measured: Likelihood, numbers_N: NDArray[np.integer[Any]], names: Sequence[str]
) -> dict[str, dict[str, Estimate]]:
    """The estimates of each source's sentences; empty where all come from one source.

    Args:
        measured: the likelihood of sentences of several sources.
        numbers_N: the number of each sentence's source.
        names: of the sources.
    """
    rows = rows_by_source([names[number] for number in numbers_N])
    return {name: _named(measured.of_rows(rows_N).estimates(), name) for name, rows_N in rows.items()}


def _named(estimates: dict[str, Estimate], source: str) -> dict[str, Estimate]:
    return {
        key: replace(each, name=f"{each.name}, sentences of {source}", settings=each.settings | {"source": source})
        for key, each in estimates.items()
    }


def with_sources(found: Findings, measured: Likelihood, sources: Sequence[str] | None) -> Findings:
    """Findings of a likelihood, and beside them those of each source where there are several."""
    more = likelihood_by_source(measured, sources)
    return Findings(
        found.estimates | more.estimates,
        more.tables | found.tables,
        found.pictures,
        found.per_sentence | more.per_sentence,
    )


def card_lines(metrics: Mapping[str, Any], split: str) -> list[str]:
    """What a model card says of each source, from the metrics of a space; nothing where there was one source."""
    found = metrics.get("by_source", {}).get(split)
    if not found:
        return []
    columns = {key: label for key, label in _COLUMNS.items() if all(key in each for each in found.values())}
    lines = ["", "By source, in nats a sentence:", "", f"| source | sentences | {' | '.join(columns.values())} |"]
    lines.append(f"|---|{'---|' * (len(columns) + 1)}")
    for source, estimates in found.items():
        cells = [str(Estimate(**estimates[key])) for key in columns]
        count = estimates["reconstruction"]["n"]
        lines.append(f"| {' | '.join([source.replace('|', chr(92) + '|'), f'{count:,}', *cells])} |")
    return lines


def likelihood_by_source(measured: Likelihood, sources: Sequence[str] | None) -> Findings:
    """What a likelihood is on each source: a table, and its numbers under "number/source"."""
    by_source = rows_by_source(sources)
    if not by_source:
        return Findings()
    whole = measured.estimates()
    columns = {key: label for key, label in _COLUMNS.items() if key in whole}
    if "nll_ppl_word" in columns:
        columns.pop("elbo_ppl_word", None)
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    rows: list[Cells] = []
    for name, rows_N in {**by_source, "all": np.arange(len(measured))}.items():
        of_source = measured.of_rows(rows_N)
        found = of_source.estimates()
        shown = [plus_minus(found[key].value, found[key].stderr) for key in columns]
        rows.append((name, len(rows_N), float(of_source.counts_N["word"].mean()), *shown))
        if name in by_source:
            own = _named({key: found[key] for key in columns}, name)
            estimates |= {
                f"{key}/{name}": replace(each, settings=each.settings | {"error": "standard error over sentences"})
                for key, each in own.items()
            }
            each_row = list(of_source.rows())
            per_sentence |= {f"{key}/{name}": [row[key] for row in each_row] for key in columns if key in each_row[0]}
    bound = whole["nll"].name if "nll" in whole else whole["elbo"].name if "elbo" in whole else ""
    title = f"By source, in nats a sentence{f'; perplexity from: {bound}' if bound else ''}"
    table = Table(title, ("source", "sentences", "words counted a sentence", *columns.values()), tuple(rows))
    return Findings(estimates, {"by_source": table}, per_sentence=per_sentence)
