"""Suites of measures, and running them: each finished measure is kept at once, so that an interrupt loses only one."""

from __future__ import annotations

import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import textspace
from textspace.checks import whole_number
from textspace.digests import check_record, with_digest
from textspace.errors import TextspaceError, nearest, warn
from textspace.evaluate.measure import Effort, Findings, Measure, Need, Sentences, Subject, Suite
from textspace.evaluate.registry import measures_named, measures_of, theme_of
from textspace.evaluate.reports.report import SCHEMA, Entry, Report, from_json, to_json
from textspace.evaluate.subjects import SourcedSubject, folder_of, subject_of
from textspace.files import read_json, write_file
from textspace.folder import kept_weights
from textspace.token_losses import precision_named
from textspace.train import checkpoints
from textspace.types import Settings

__all__ = ["SUITES", "chosen_measures", "evaluate", "fingerprint", "missing", "subject_of"]

SUITES: dict[Suite, Effort] = {
    "quick": Effort(
        importance_samples=20,
        sentences=500,
        decoded=200,
        pairs=5_000,
        prior_samples=200,
        repeats=2,
        language_model_epochs=2,
    ),
    "standard": Effort(importance_samples=100, sentences=4_000, decoded=1_000),
    "full": Effort(
        importance_samples=1_000,
        sentences=1_000_000,
        decoded=10_000,
        pairs=100_000,
        prior_samples=10_000,
        repeats=10,
        language_model_epochs=20,
    ),
}
"""How hard each suite tries. Each has other measures too: see `measures_of`."""

EndTokens = Literal["included", "dropped", "length", "both"]

_MISSING: dict[Need, tuple[Callable[[Subject], bool], str]] = {
    "codes": (
        lambda subject: subject.space.model.posterior is not None,
        "the space is a language model and has no codes",
    ),
    "token_codes": (
        lambda subject: subject.space.model.is_token_level,
        "the space has one code for a sentence and none for its tokens: recipes like vat have a code for every token",
    ),
    "sentence_codes": (
        lambda subject: not subject.space.model.is_token_level,
        "every token of the space has a code, and what is measured takes one code for a whole sentence",
    ),
    "density": (
        lambda subject: subject.space.model.posterior is not None and subject.space.model.posterior.has_log_prob,
        "the posterior of the space has no density",
    ),
    "gates": (
        lambda subject: subject.space.model.has_gates,
        "the space has no gates: no dimension of its codes can be off",
    ),
    "labels": (
        lambda subject: subject.test.labels is not None,
        "the test sentences have no labels: name their column with --label-column",
    ),
    "train": (
        lambda subject: "train" in subject.splits,
        "the text has no training split: name a folder or file that has one",
    ),
    "own_train": (
        lambda subject: "train" in subject.splits and subject.own_train is not False,
        "the sentences the space was trained on are not at hand: give --data the source of its training",
    ),
    "valid": (
        lambda subject: "valid" in subject.splits,
        "the text has no validation split: name a folder or file that has one",
    ),
    "builtin": (
        lambda subject: subject.builtin,
        "the truth is known of the built-in corpus alone: give --data builtin",
    ),
    "files": (
        lambda subject: subject.task_files is not None,
        "the files of the tasks are not given: name their folder with --tasks",
    ),
}
"""How to tell whether a need is met, and what to say where it is not."""


def missing(measure: Measure, subject: Subject) -> str | None:
    """Why a subject cannot be measured so, or None where it can."""
    return next((reason for met, reason in (_MISSING[need] for need in measure.needs) if not met(subject)), None)


def effort_of(suite: str, samples: int | None = None, precision: str = "float32") -> Effort:
    """How hard the measures of a suite try, by its name; with other importance samples, or in another precision."""
    if suite not in SUITES:
        raise TextspaceError(f"there is no suite {suite!r}; {nearest(suite, SUITES)}")
    effort = replace(SUITES[suite], precision=precision_named(precision))
    if samples is None:
        return effort
    return replace(effort, importance_samples=whole_number(samples, 1, f"cannot take {samples!r} samples"))


def chosen_measures(suite: Suite, names: list[str] | None = None, end: EndTokens = "included") -> dict[str, Measure]:
    """The measures of a suite, or those named; `end` says which likelihoods are among them."""
    if end not in get_args(EndTokens):
        raise TextspaceError(f"end_token is {end!r}: use included, dropped, length or both")
    found = measures_named(names) if names else measures_of(suite)
    if names and end != "included" and "likelihood" not in found:
        raise TextspaceError(f"end_token {end!r} says how likelihoods are measured: name likelihood among the measures")
    more = {
        "dropped": "likelihood_without_end",
        "both": "likelihood_without_end",
        "length": "likelihood_with_length_prior",
    }
    if end in ("dropped", "length"):
        found.pop("likelihood", None)
    return measures_named([*found, *([more[end]] if end in more else [])])


def evaluate(
    subject: Subject,
    measures: Mapping[str, Measure],
    *,
    name: str | None = None,
    suite: Suite | None = None,
    cache: Path | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run measures and report what they found; what was measured before is taken from the cache.

    A measure that lacks something it needs, or meets something the user can mend, is skipped, and the report says why.

    Args:
        subject: a space, text, and how hard to try.
        measures: by name.
        name: what to call the space; by default its recipe's name.
        suite: the name of the suite, for the report.
        cache: folder where finished measures are kept, keyed by all that decides what they find.
        command: what repeats the evaluation.
        say: takes a line about each measure.
    """
    digest, data = checkpoints.digest(subject.space.model), fingerprint(subject)
    entries: dict[str, Entry] = {}
    skipped: dict[str, str] = {}
    for number, (measure_name, measure) in enumerate(measures.items(), start=1):
        place = f"[{number}/{len(measures)}] {measure_name}"
        if reason := missing(measure, subject):
            skipped[measure_name] = reason
            say(f"{place}: skipped, since {reason}")
            continue
        key = _key(digest, data, measure_name, measure, subject)
        path = None if cache is None else cache / f"{measure_name}-{key[:16]}.json"
        kept = None if path is None else _kept(path, key)
        if kept is None:
            say(f"{place} ...")
            started = time.monotonic()
            try:
                found, notes = _run(measure, subject)
            except TextspaceError as error:
                skipped[measure_name] = str(error)
                say(f"{place}: skipped, since {error}")
                continue
            seconds = time.monotonic() - started
            # Findings that come from the cache and those that do not are the same to the last bit and type.
            kept = to_json({"key": key, "seconds": seconds, "notes": notes, "findings": found.to_dict()})
            if path is not None:
                write_file(path, json.dumps(with_digest(kept), allow_nan=False).encode())
            say(f"{place}: {kept['seconds']:.1f} s")
        else:
            say(f"{place}: measured before ({kept['seconds']:.1f} s)")
        findings = _stamped(from_json(kept["findings"]), subject)
        theme = _theme(measure_name)
        entries[measure_name] = Entry(measure.about, theme, kept["seconds"], findings, tuple(kept["notes"]))
    return Report(
        name=name or subject.space.recipe.name,
        space=_space(subject, digest),
        data=_data(subject, data),
        settings={
            "textspace": textspace.__version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "suite": suite,
            "effort": asdict(subject.effort),
            "seed": subject.seed,
            "device": str(subject.space.device),
            "command": command,
        },
        entries=entries,
        skipped=skipped,
    )


def _run(measure: Measure, subject: Subject) -> tuple[Findings, list[str]]:
    """What a measure finds, and what it warned of on the way: that many words are unknown, say."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = measure.run(subject)
    for each in caught:
        if each.category is not UserWarning:  # of a library, for who works on the measure
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return found, list(dict.fromkeys(str(each.message) for each in caught if each.category is UserWarning))


def _theme(name: str) -> str:
    try:
        return theme_of(name)
    except KeyError:  # a measure of the caller's own
        return "Other measures"


def _stamped(findings: Findings, subject: Subject) -> Findings:
    """Every number with the seed and the version it was made with."""
    stamp: Settings = {"seed": subject.seed, "version": textspace.__version__}
    estimates = {key: replace(each, settings=stamp | each.settings) for key, each in findings.estimates.items()}
    return replace(findings, estimates=estimates)


# The cache


def fingerprint(subject: Subject) -> str:
    """Of all text that is measured on: every split's sentences, labels and sources; names and dates of task files.

    Of a split of which some sentences are measured on the others count too: measures read them as text.
    """
    total = hashlib.sha256()
    for name, sentences in subject.splits.items():
        facts = [name, sentences.texts, sentences.labels, sentences.sources, _whole(sentences)]
        total.update(json.dumps(facts).encode())
    total.update(json.dumps([subject.builtin, subject.own_train, _files(subject.task_files)]).encode())
    return total.hexdigest()


def _whole(sentences: Sentences) -> str | None:
    """Of the split that the sentences are some of; None where they are all of it."""
    if sentences.whole is None:
        return None
    # One that was never cached has no fingerprint.
    made = sentences.whole.fingerprint
    return made or hashlib.sha256(json.dumps(list(sentences.all_texts())).encode()).hexdigest()


def _files(folder: Path | None) -> list[Any]:
    """Names, sizes and dates of the files in a folder; nothing where there is none."""
    if folder is None:
        return []
    try:
        found = [(str(path.relative_to(folder)), path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError as error:
        raise TextspaceError(f"cannot read {folder}: {error.strerror or error}") from None
    return [(name, facts.st_size, facts.st_mtime_ns) for name, facts in found]


def _baselines(subject: Subject) -> list[Any]:
    """Names of encoders, and the files of those that are in a folder."""
    return [(model, _files(Path(model) if Path(model).is_dir() else None)) for model in subject.baselines]


def _key(digest: str, data: str, name: str, measure: Measure, subject: Subject) -> str:
    """Of all that decides what a measure finds."""
    space = subject.space
    folder = folder_of(subject)
    log = None if folder is None else folder / "steps.jsonl"
    facts = [
        SCHEMA,
        _own_source(),
        _source_of(measure),
        digest,
        space.recipe.to_json(),
        space.tokenizer.fingerprint,
        data,
        name,
        asdict(subject.effort),
        subject.seed,
        _baselines(subject) if measure.has_baselines else [],
        log.stat().st_size if log is not None and log.is_file() else None,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@cache
def _own_source() -> str:
    """Digest of all of textspace: measures share much of it, and who changes it does not want the old numbers."""
    total = hashlib.sha256(textspace.__version__.encode())
    for path in sorted(Path(textspace.__file__).parent.rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def _source_of(measure: Measure) -> str | None:
    """Digest of the module that a measure is written in, which may be the user's own."""
    try:
        return hashlib.sha256(Path(inspect.getsourcefile(measure.run) or "").read_bytes()).hexdigest()
    except (OSError, TypeError):  # made elsewhere than in a file, or no plain function
        return None


def _kept(path: Path, key: str) -> dict[str, Any] | None:
    """What was measured before; None where there is nothing, or nothing intact, which a warning reports."""
    try:
        kept = check_record(read_json(path))
        return kept if kept["key"] == key else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError):
        warn(f"the stored result {path} is damaged and is measured again")
        return None


# What a report says of the subject


def _space(subject: Subject, digest: str) -> dict[str, Any]:
    space, folder = subject.space, folder_of(subject)
    parameters = sum(space.model.parameter_counts().values())
    dimensions = space.recipe.latent.dim if space.recipe.posterior else None
    codes = "a language model without codes" if dimensions is None else f"codes of {dimensions} dimensions"
    if space.model.is_token_level:
        codes += " for every token, whose mean stands for the sentence in measures of one code a sentence"
    trained = space.metrics.get("source")
    about = f"recipe {space.recipe.name}, {codes}, {parameters:,} parameters, {len(space.tokenizer):,} tokens"
    about += "" if trained is None else f", trained on {trained}"
    weights = kept_weights(space.metrics)
    return {
        "about": about if weights is None else f"{about}; weights {weights}",
        "folder": None if folder is None else str(folder),
        "recipe": json.loads(space.recipe.to_json()),
        "dimensions": dimensions,
        "parameters": parameters,
        "vocabulary": len(space.tokenizer),
        "weights": digest,
    }


def _data(subject: Subject, data: str) -> dict[str, Any]:
    source = subject.source if isinstance(subject, SourcedSubject) else "sentences"
    facts = subject.facts if isinstance(subject, SourcedSubject) else {}
    counts = ", ".join(f"{name} {len(sentences):,}" for name, sentences in subject.splits.items())
    return {
        "about": f"{source} (sentences: {counts})",
        "source": source,
        "splits": {name: asdict(each) for name, each in facts.items()},
        "notes": list(subject.notes) if isinstance(subject, SourcedSubject) else [],
        "met": subject.met if isinstance(subject, SourcedSubject) else None,
        "fingerprint": data,
        "test_fingerprint": hashlib.sha256(json.dumps(subject.test.texts).encode()).hexdigest(),
    }
