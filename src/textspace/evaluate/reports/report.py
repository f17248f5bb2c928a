"""What an evaluation found, as data: a report that is kept as JSON and read as Markdown or HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from textspace.digests import DIGEST, check_record, with_digest
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings
from textspace.evaluate.registry import THEMES
from textspace.evaluate.reports.reading import check_report, checked_findings
from textspace.files import read_json, write_file
from textspace.types import Estimate

__all__ = ["HEADLINES", "SCHEMA", "Entry", "Headline", "Report", "from_json", "json_text", "to_json"]

SCHEMA = 1
"""Raise when the meaning or the place of anything in the JSON changes."""


class Headline(NamedTuple):
    """A number for the top of a report, and what it is in plain words."""

    measure: str
    key: str
    label: str
    about: str

    def bounded(self, estimate: Estimate) -> Headline:
        """With a label that says on which side of the truth the number lies, and whether it may be far from it."""
        loose = "loose " if "(loose:" in estimate.name else ""
        side = f", {loose}{estimate.bound} bound" if estimate.bound in ("lower", "upper") else ""
        return self._replace(label=self.label + side)


HEADLINES: tuple[Headline, ...] = (
    Headline(
        "likelihood",
        "nll_ppl_word",
        "perplexity per word",
        "Between how many equally likely words the space is undecided at each step. Lower is better.",
    ),
    Headline(
        "likelihood",
        "nll",
        "nats per sentence",
        "What an average sentence costs to write down with this model. Lower is better.",
    ),
    Headline(
        "distance_to_truth",
        "nll_beyond_truth",
        "nats above the truth",
        "How much more that is than with the rules that made the text. 0 is perfect.",
    ),
    Headline(
        "likelihood",
        "kl",
        "KL",
        "Nats that a code costs. Near 0 the codes are not used.",
    ),
    Headline(
        "posterior",
        "mi",
        "mutual information",
        "Nats that a code tells about its sentence.",
    ),
    Headline(
        "posterior",
        "active_units",
        "active units",
        "Dimensions of the code that change with the sentence.",
    ),
    Headline(
        "sparsity",
        "share_off",
        "dimensions off",
        "Share of a code's dimensions that the gates of an average sentence switch off.",
    ),
    Headline(
        "reconstruction",
        "bleu4_greedy_mean",
        "BLEU-4 of reconstructions",
        "How much of a sentence comes back from its code, 0 to 100. Higher is better.",
    ),
    Headline(
        "distance_correlation",
        "distance_correlation",
        "correlation with edit distance",
        "1 if sentences of similar words have nearby codes, 0 if distances say nothing.",
    ),
    Headline(
        "sample_language_model",
        "samples_under_real",
        "perplexity of samples",
        "How odd its own sentences look to a language model of real text. Close to that of real sentences is best.",
    ),
    Headline(
        "few_labels",
        "linear_100_labels",
        "accuracy with 100 labels",
        "Percent of labels that a linear classifier reads from codes after about 100 examples. Higher is better.",
    ),
    Headline(
        "clusters",
        "one_to_one",
        "accuracy of clusters",
        "Percent of sentences whose cluster, found without labels, is their class. Higher is better.",
    ),
    Headline(
        "factors",
        "factors_from_code",
        "factors read from codes",
        "Share of the known properties of a sentence (tense, type, ...) that its code gives away.",
    ),
)
"""In the order of a report; those that were not measured are left out."""


@dataclass(frozen=True)
class Entry:
    """One measure of a report."""

    about: str
    theme: str
    seconds: float
    findings: Findings
    notes: tuple[str, ...] = ()
    """What it warned of."""


@dataclass(frozen=True)
class Report:
    """What was measured, of what, on what, and how; `entries` and `skipped` are by name of measure.

    Attributes:
        name: what to call the space.
        space: its recipe, folder, size and the digest of its weights.
        data: the source, its splits, what reading it met, and the fingerprint of the sentences.
        settings: suite, effort, seed, device, date, version, and the command that repeats it.
        entries: what was found.
        skipped: why something was not measured.
    """

    name: str
    space: dict[str, Any]
    data: dict[str, Any]
    settings: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def by_theme(self) -> dict[str, dict[str, Entry]]:
        """The measures that found something, under their themes."""
        themes = dict.fromkeys([*THEMES, *(entry.theme for entry in self.entries.values())])
        grouped = {
            theme: {name: each for name, each in self.entries.items() if each.theme == theme and _holds(each.findings)}
            for theme in themes
        }
        return {theme: entries for theme, entries in grouped.items() if entries}

    def headlines(self) -> list[tuple[Headline, Estimate]]:
        """The numbers for the top, their labels with the kind of bound each is."""
        found = [(line, self.estimate(line.measure, line.key)) for line in HEADLINES]
        return [(line.bounded(estimate), estimate) for line, estimate in found if estimate is not None]

    def estimate(self, measure: str, key: str) -> Estimate | None:
        entry = self.entries.get(measure)
        return None if entry is None else entry.findings.estimates.get(key)

    @property
    def diagnosis(self) -> dict[str, str]:
        """The doctor's words by what they are ("state", "in words", ...); empty where there is no diagnosis."""
        entry = self.entries.get("posterior")
        table = None if entry is None else entry.findings.tables.get("doctor")
        return {} if table is None else {str(row[0]): str(row[1]) for row in table.rows if len(row) > 1}

    def to_dict(self) -> dict[str, Any]:
        """For JSON, under schema `SCHEMA`."""
        measures = {
            name: {"about": each.about, "theme": each.theme, "seconds": each.seconds, "notes": each.notes}
            | each.findings.to_dict()
            for name, each in self.entries.items()
        }
        parts = {"schema": SCHEMA, "name": self.name, "space": self.space, "data": self.data}
        return to_json(parts | {"settings": self.settings, "measures": measures, "skipped": self.skipped})

    @classmethod
    def from_dict(cls, data: Any) -> Report:
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            told = data.get("schema") if isinstance(data, Mapping) else None
            raise TextspaceError(f"this is no report of schema {SCHEMA} (it says {told!r}): evaluate the space anew")
        try:
            check_report(data)
            entries = {
                name: Entry(each["about"], each["theme"], each["seconds"], from_json(each), tuple(each["notes"]))
                for name, each in data["measures"].items()
            }
            rest = {key: data[key] for key in ("name", "space", "data", "settings", "skipped")}
        except (LookupError, TypeError, ValueError):
            raise TextspaceError("this report is damaged: evaluate the space anew") from None
        return cls(**rest, entries=entries)

    @classmethod
    def load(cls, path: Path | str) -> Report:
        """The report in a JSON file."""
        try:
            stored = read_json(Path(path))
            has_digest = isinstance(stored, dict) and DIGEST in stored  # earlier versions wrote none
            return cls.from_dict(check_record(stored) if has_digest else stored)
        except TextspaceError as error:
            raise TextspaceError(f"{path}: {error}") from None
        except OSError as error:
            raise TextspaceError(f"cannot read {path}: {error.strerror or error}") from None
        except ValueError as error:
            raise TextspaceError(f"{path} is damaged, or is no report ({error}): evaluate the space again") from None

    def save(self, folder: Path | str) -> dict[str, Path]:
        """Write report.json, report.md and report.html into a folder."""
        from textspace.evaluate.reports.html import page
        from textspace.evaluate.reports.text import markdown

        made = {"json": json_text(with_digest(to_json(self.to_dict()))), "md": markdown(self), "html": page(self)}
        paths = {ending: Path(folder) / f"report.{ending}" for ending in made}
        for ending, text in made.items():
            write_file(paths[ending], text.encode())
        return paths


def _holds(findings: Findings) -> bool:
    return bool(findings.estimates or findings.tables or findings.pictures)


# JSON


def to_json(data: Any) -> Any:
    """Data as JSON has it: numpy's numbers as Python's, tuples as lists, and what is not finite as its name."""
    if isinstance(data, Mapping):
        return {str(key): to_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [to_json(value) for value in data]
    if hasattr(data, "item"):
        data = data.item()
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    return data


def from_json(data: Mapping[str, Any]) -> Findings:
    """Findings from what `to_json` made of them; ValueError where they are damaged."""
    return Findings.from_dict(checked_findings(data))


def json_text(data: Any) -> str:
    """JSON with one entry a line, but lists of plain values in one line each."""
    return _laid_out(data, "\n") + "\n"


def _laid_out(data: Any, start: str) -> str:
    """`start` begins a line at the level of the whole."""
    inner = f"{start} "
    if isinstance(data, dict) and data:
        items = (f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(value, inner)}" for key, value in data.items())
        return f"{{{inner}{f',{inner}'.join(items)}{start}}}"
    if isinstance(data, list) and any(isinstance(each, dict | list) for each in data):
        return f"[{inner}{f',{inner}'.join(_laid_out(each, inner) for each in data)}{start}]"
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
