"""Reading a space: every dimension's density, strongest sentences, words and labels, and what switching it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.checks import seed_number, whole_number
from textspace.data.cells import label_of
from textspace.encoding import is_on
from textspace.errors import TextspaceError
from textspace.evaluate.posterior import ACTIVE_ABOVE
from textspace.evaluate.statistics import some_rows, standard_error
from textspace.features.activity import Activity, activity, told_before
from textspace.features.labels import SHUFFLES, association
from textspace.features.results import Association, Dimension, Example, Features, Side, SideName, State
from textspace.features.switching import switched
from textspace.features.words import FEWEST, PRIOR_WORDS, WordCounts
from textspace.inputs import check_sentences, listed
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate, Settings

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["LIMIT", "PROBES", "Read", "read_dimensions", "read_features"]

LIMIT = 20_000
"""Sentences that are read at most."""

PROBES = 3
"""Sentences, the first that are read, in which dimensions are switched unless others are given."""

TOP_SENTENCES = 8
TOP_WORDS = 12

MOST_CLASSES = 200
"""Labels beyond this many say little about each, and are left out."""

RARER_SIGN = 0.1
"""Share of its values where it is on that a dimension has of either sign before it is read by its two ends too."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def read_features(
    space: Space,
    texts: Iterable[str],
    labels: Iterable[Any] | None = None,
    *,
    probes: str | Iterable[str] | None = None,
    limit: int = LIMIT,
    of: int | None = None,
    top: int = TOP_SENTENCES,
    seed: int = 0,
    show_progress: bool = False,
) -> Features:
    """What each dimension of a space means, as sentences show it.

    In a space with gates a dimension is on in a sentence where that is at least as probable as not, and the sentences
    in which it is on are held against those in which it is off. A dimension that is on with both signs, or never off
    (as are all of a dense space), is read by its two ends: the sentences above its average against those below.

    Args:
        space: any space with codes.
        texts: sentences.
        labels: of the sentences; None or NaN for one without.
        probes: a sentence, or several, in which every dimension is switched; by default the first `PROBES`.
        limit: of more sentences than these so many are read, drawn at random.
        of: how many sentences there were, where `texts` are themselves spread over more.
        top: sentences shown of each side.
        seed: of the shuffled labels.
        show_progress: show bars.

    Returns:
        `.dimensions`, and `.save(folder)` for JSON and a page.
    """
    seed = seed_number(seed)
    given = listed(texts)
    given_labels = None if labels is None else [label_of(label) for label in labels]
    _check(space, given, given_labels, limit, top)
    rows = some_rows(len(given), limit).tolist()
    reader, kept = space.of_normalised(), [space.normalise(given[row]) for row in rows]
    kept_labels = None if given_labels is None else [given_labels[row] for row in rows]
    notes: list[str] = []
    classes = _classes(kept_labels, notes)
    found = activity(reader, kept, show_progress)
    read = Read(kept, kept_labels if classes else None, found)
    least = 0.0 if found.on_ZN is not None else ACTIVE_ABOVE * _prior_variance(space)
    alone = read_dimensions(read, least=least, top=top, seed=seed, show_progress=show_progress)
    asked = kept[:PROBES] if probes is None else [space.normalise(text) for text in _checked(probes)]
    with told_before(probes is None):
        shown, dimensions = switched(reader, alone, asked, show_progress)
    settings: Settings = {
        "seed": seed,
        "shuffles": SHUFFLES if classes else None,
        "prior_words": PRIOR_WORDS,
        "fewest_occurrences": FEWEST,
        "decoding": "greedy",
    }
    return Features(
        space=space.recipe.name,
        gated=found.on_ZN is not None,
        sentences=len(rows),
        of=len(given) if of is None else of,
        classes=classes,
        dimensions=dimensions,
        probes=shown,
        on_per_sentence=_on_per_sentence(found),
        notes=tuple(notes),
        settings=settings,
    )


class Read(NamedTuple):
    """The sentences read, and what dimensions do in them."""

    texts: list[str]
    labels: list[str | None] | None
    """None where there are none to tell apart."""
    activity: Activity


def read_dimensions(
    read: Read, *, least: float = 0.0, top: int = TOP_SENTENCES, seed: int = 0, show_progress: bool = False
) -> list[Dimension]:
    """Every dimension, without what switching it does; in a dense space a variance of at most `least` is dead."""
    seed = seed_number(seed)
    words, count = WordCounts(read.texts), len(read.activity.values_ZN)
    classes = _Classes.of(read.labels or [])
    numbers = track(range(count), "reading dimensions", show_progress, count)
    return [_dimension(number, read, classes, words, least, top, seed) for number in numbers]


class _Classes(NamedTuple):
    """The labels of all sentences as numbers."""

    names: list[str]
    class_N: NDArray[np.int64]
    """-1 for a sentence without a label."""

    @classmethod
    def of(cls, labels: Sequence[str | None]) -> _Classes:
        numbers = {name: number for number, name in enumerate(sorted({label for label in labels if label is not None}))}
        return cls(list(numbers), np.array([-1 if name is None else numbers[name] for name in labels], np.int64))

    def association(self, first_N: Bools, seed: int) -> Association | None:
        """What being among some sentences tells about the label; None where there are no labels."""
        if not self.names:
            return None
        labelled_N = self.class_N >= 0
        first_C, all_C = (
            np.bincount(self.class_N[of_N], minlength=len(self.names)) for of_N in (labelled_N & first_N, labelled_N)
        )
        return association(first_C, all_C, self.names, seed)


def _checked(probes: str | Iterable[str]) -> list[str]:
    texts = listed(probes)
    check_sentences(texts, first=1)
    return texts


def _check(space: Space, texts: list[str], labels: list[str | None] | None, limit: int, top: int) -> None:
    space._needs_sentence_codes("features are dimensions of")
    if not texts:
        raise TextspaceError("there are no sentences to read the dimensions in: give at least one")
    check_sentences(texts, first=1)
    if labels is not None and len(labels) != len(texts):
        raise TextspaceError(f"there are {len(texts):,} sentences and {len(labels):,} labels: give one for each")
    for number in (limit, top):
        whole_number(number, 1, f"cannot read {number!r} sentences")


def _prior_variance(space: Space) -> float:
    return float(space.model.prior.codes().variance.mean())  # type: ignore[union-attr]


def _classes(labels: list[str | None] | None, notes: list[str]) -> dict[str, int]:
    """Sentences of each class, the largest first; none where they cannot be told apart."""
    counts = Counter(label for label in labels or [] if label is not None)
    if len(counts) > MOST_CLASSES:
        notes.append(f"labels are left out: {len(counts):,} different ones are more than {MOST_CLASSES}")
        return {}
    if len(counts) == 1:
        notes.append("labels are left out: all are the same")
        return {}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _on_per_sentence(found: Activity) -> Estimate | None:
    if found.on_ZN is None:
        return None
    dims, count = found.on_ZN.shape
    on_N = np.zeros(count)
    for probability_N in found.on_ZN:
        on_N += is_on(probability_N)
    name = f"dimensions on in a sentence (where E[gamma|x] is at most 0.5), of {dims}"
    return Estimate(name, float(on_N.mean()), standard_error(on_N), count, "none", None, {"dimensions": dims})


class _Column(NamedTuple):
    """One dimension in all sentences."""

    values_N: Floats
    gate_N: Floats | None
    """Probability of being on; None in a dense space."""


def _dimension(
    number: int, read: Read, classes: _Classes, words: WordCounts, least: float, top: int, seed: int
) -> Dimension:
    """One dimension without its effects."""
    gates_ZN = read.activity.on_ZN
    values_N = np.array(read.activity.values_ZN[number], np.float64)
    gate_N = np.ones(len(values_N)) if gates_ZN is None else np.array(gates_ZN[number], np.float64)
    on_N = is_on(gate_N)
    average, variance = float(values_N[on_N].mean()) if on_N.any() else 0.0, float(values_N.var())
    high_N = on_N & (values_N > average)
    state: State = "varies"
    if not on_N.any() or (gates_ZN is None and variance <= least):
        state = "dead"
    elif gates_ZN is not None and on_N.all():
        state = "always on"
    sides: tuple[Side, ...] = ()
    if state != "dead":
        column = _Column(values_N, None if gates_ZN is None else gate_N)
        sides = _pair(("on", "off"), (on_N, ~on_N), gate_N * np.abs(values_N), read, column, words, top)
        if on_N.all() or _both_signs(values_N[on_N]):
            strength_N = gate_N * np.abs(values_N - average)
            sides += _pair(("high", "low"), (high_N, on_N & ~high_N), strength_N, read, column, words, top)
    labels = None
    if sides:
        first_N = on_N if sides[0].name == "on" else high_N
        labels = classes.association(first_N, seed_of(seed, "shuffled labels", number))
    density = None if gates_ZN is None else float(on_N.mean())
    return Dimension(number, state, density, average, variance, sides, labels, ())


def _pair(
    names: tuple[SideName, SideName],
    rows: tuple[Bools, Bools],
    strength_N: Floats,
    read: Read,
    column: _Column,
    words: WordCounts,
    top: int,
) -> tuple[Side, ...]:
    """Two sides held against each other; none where one has no sentence."""
    if not all(of_N.any() for of_N in rows):
        return ()

    def example(row: int) -> Example:
        gate = None if column.gate_N is None else float(column.gate_N[row])
        label = None if read.labels is None else read.labels[row]
        return Example(read.texts[row], row, float(column.values_N[row]), float(strength_N[row]), gate, label)

    sides = []
    for name, of_N, over in zip(names, rows, words.contrast(*rows, TOP_WORDS), strict=True):
        off = name == "off"
        typical = 0.0 if off else float(np.median(column.values_N[of_N]))
        strongest = [] if off else _strongest(read.texts, of_N, strength_N, top)
        sides.append(Side(name, int(of_N.sum()), typical, over, tuple(map(example, strongest))))
    return tuple(sides)


def _both_signs(values_N: Floats) -> bool:
    """Whether each sign has at least `RARER_SIGN` of the values."""
    above = float((values_N > 0).mean()) if len(values_N) else 0.0
    return min(above, 1 - above) >= RARER_SIGN


def _strongest(texts: list[str], of_N: Bools, strength_N: Floats, top: int) -> list[int]:
    """The rows of the strongest sentences of a side, each text once; of equal ones the first."""
    rows = np.flatnonzero(of_N)
    found: dict[str, int] = {}
    for row in rows[np.argsort(-strength_N[rows], kind="stable")].tolist():
        found.setdefault(texts[row], row)
        if len(found) == top:
            break
    return list(found.values())
