"""What reading the dimensions of a space gives: plain data, for Python, for JSON and for a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from textspace.files import write_file
from textspace.types import Estimate, Settings

__all__ = ["Association", "Dimension", "Effect", "Example", "Features", "Probe", "Side", "SideName", "State", "Word"]

SideName = Literal["on", "off", "high", "low"]
State = Literal["varies", "always on", "dead"]


@dataclass(frozen=True)
class Word:
    """A word that one side's sentences have more often than the other side's."""

    word: str
    z: float
    """The log-odds ratio over its standard deviation."""
    log_odds: float
    count: int
    """Occurrences on this side."""
    other: int
    """Occurrences on the other side."""


@dataclass(frozen=True)
class Example:
    """A sentence in which a dimension is strong."""

    text: str
    row: int
    """Position among the sentences read, from 0."""
    value: float
    """The slab's mean, or the mean in a dense space."""
    strength: float
    """What examples are ordered by: probability of being on times |value|, or times the distance from the average."""
    on: float | None
    """Probability of being on; None in a dense space."""
    label: str | None


@dataclass(frozen=True)
class Side:
    """The sentences in which a dimension is on, or off; or those in which it is high (above its average), or low."""

    name: SideName
    sentences: int
    typical: float
    """The median of its values here; 0 where it is off."""
    words: tuple[Word, ...]
    """Those over-represented here against the other side (on and off, high and low), by falling z."""
    examples: tuple[Example, ...]
    """The strongest, no sentence twice; none for "off"."""


@dataclass(frozen=True)
class Association:
    """What the first side (on, or high) tells about the label of a sentence."""

    information: float
    """Mutual information of side and label, in nats, by counting; chance alone gives more than 0."""
    shuffled: float
    """Its mean when labels are shuffled."""
    p: float
    """Share of shuffles with at least as much, the true labels counted as one more."""
    shuffles: int
    sentences: int
    """Those with a label."""
    label: str
    """The class that adds most to the information on the first side."""
    lift: float
    """How many times as probable the first side is in that class as in all sentences."""
    shares: dict[str, float]
    """Share of each class's sentences that are on the first side."""

    @property
    def is_clear(self) -> bool:
        """Whether not one in a hundred shuffles tells as much."""
        return self.p < 0.01

    @property
    def excess(self) -> float:
        """Nats beyond what shuffled labels give."""
        return self.information - self.shuffled


@dataclass(frozen=True)
class Probe:
    """A sentence in which dimensions are switched, and what its code decodes to before."""

    text: str
    decoded: str
    on: tuple[int, ...]
    """The dimensions that are on in it; all in a dense space."""


@dataclass(frozen=True)
class Effect:
    """What a probe decodes to when one dimension is taken to another side."""

    probe: int
    """Which one, from 0."""
    before: SideName
    after: SideName
    value_before: float
    value_after: float
    decoded: str
    changed: bool


@dataclass(frozen=True)
class Dimension:
    """One dimension of a space, read.

    Args:
        number: from 0.
        state: "dead" where it is on in no sentence, or in a dense space hardly changes; "always on" where it is never
            off; else "varies".
        density: share of the sentences in which it is on; None in a dense space.
        average: of its values where it is on.
        variance: of its values in all sentences, 0 where off.
        sides: on and off, if it is ever off; high and low (of the sentences in which it is on), if it is never off or
            is on with both signs; nothing for a dead one.
        labels: what the first side tells about labels, where there are any.
        effects: what switching it does, for each probe and each side it can go to.
    """

    number: int
    state: State
    density: float | None
    average: float
    variance: float
    sides: tuple[Side, ...]
    labels: Association | None
    effects: tuple[Effect, ...]

    def side(self, name: SideName) -> Side | None:
        """One of its sides; None where it has not got it."""
        return next((side for side in self.sides if side.name == name), None)


@dataclass(frozen=True)
class Features:
    """All dimensions of a space, as some sentences show them.

    Args:
        space: its recipe.
        gated: whether its dimensions can be off.
        sentences: how many were read.
        of: how many there were; those read are drawn from them at random.
        classes: sentences with each label.
        dimensions: in order.
        probes: the sentences in which dimensions were switched.
        on_per_sentence: how many dimensions are on in a sentence; None in a dense space.
        notes: what a reader should know.
        settings: seed and the like.
    """

    space: str
    gated: bool
    sentences: int
    of: int
    classes: dict[str, int]
    dimensions: tuple[Dimension, ...]
    probes: tuple[Probe, ...]
    on_per_sentence: Estimate | None
    notes: tuple[str, ...]
    settings: Settings

    def in_state(self, state: State) -> list[int]:
        """The dimensions that are dead, always on, or vary."""
        return [each.number for each in self.dimensions if each.state == state]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the fields as they are, by name."""
        return {"format": 1, **asdict(self)}

    def summary(self) -> dict[str, Any]:
        """The little that a script asks for first."""
        return {
            "space": self.space,
            "gated": self.gated,
            "sentences": self.sentences,
            "of": self.of,
            "dimensions": len(self.dimensions),
            "dead": self.in_state("dead"),
            "always_on": self.in_state("always on"),
            "on_per_sentence": None if self.on_per_sentence is None else self.on_per_sentence.to_dict(),
            "classes": self.classes,
        }

    def save(self, folder: Path | str, name: str | None = None) -> dict[str, Path]:
        """Write features.json and the page features.html into a folder; `name` is what the page calls the space."""
        from textspace.evaluate.reports.report import json_text
        from textspace.features.page import page

        made = {"json": json_text(self.to_dict()), "html": page(self, name or self.space)}
        paths = {ending: Path(folder) / f"features.{ending}" for ending in made}
        for ending, text in made.items():
            write_file(paths[ending], text.encode())
        return paths
