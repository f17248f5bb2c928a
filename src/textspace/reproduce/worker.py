"""One run in a process of its own: trains what a folder's job says, or goes on with it, scores it, writes the numbers.

python -m textspace.reproduce.worker FOLDER
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading
import time
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import textspace
from textspace.data.corpus import open_corpus
from textspace.data.options import ReadOptions
from textspace.data.preparing import prepare
from textspace.errors import TextspaceError
from textspace.evaluate.held_out import held_out_note, sentences_of
from textspace.evaluate.likelihood import Likelihood, likelihood
from textspace.evaluate.minibatches import minibatch_information
from textspace.evaluate.posterior import posterior_statistics
from textspace.evaluate.reports.report import to_json
from textspace.files import write_file
from textspace.reproduce.job import NUMBERS, Job, alone, courses, read_json
from textspace.reproduce.report import OF_WHOLE_SENTENCES
from textspace.space import Space
from textspace.train import checkpoints
from textspace.train.fit import train
from textspace.train.loop import Interrupted
from textspace.train.stream import BatchStream

if TYPE_CHECKING:
    from textspace.types import Estimate

__all__ = ["machine", "main", "work"]

COPIED = 200
"""Test sentences that are encoded and decoded again."""

MAPPED = 400
"""Test sentences whose features are kept for a picture."""

IN_SPACE = 3
"""Features of so many numbers are kept as they are, since all of them can be drawn."""

tell = partial(print, flush=True)
"""To the log, at once: its last line says how a run ended."""


def work(folder: Path) -> dict[str, Any]:
    """Do the job of a folder; what was done before is not done again."""
    job = Job.read(folder)
    numbers = read_json(folder / NUMBERS)
    if job.is_done(numbers):
        return numbers
    if not job.is_trained(numbers):
        numbers = _trained(job, folder)
    space = Space.load(folder, job.device)
    if not job.is_scored(numbers):
        numbers = {name: numbers[name] for name in numbers if name not in ("measures", "not_measured")}
        numbers |= _scored(space, job)
        _write(folder, numbers)
    if job.measures:
        numbers |= _measured(space, job, folder, numbers.get("by_sentence", {}))
        _write(folder, numbers)
    return numbers


def _trained(job: Job, folder: Path) -> dict[str, Any]:
    """Train to the end, from the last checkpoint where there is one."""
    trained = train(
        job.source,
        job.recipe,
        folder,
        options=ReadOptions(label=job.label if job.scored_on is None else None),
        resume=checkpoints.newest(folder) is not None,
        device=job.device,
        curves=False,
        say=tell,
    )
    training = job.recipe.training
    return {
        "digest": job.digest,
        "text": job.text,
        "epochs_at_most": training.epochs,
        "steps_at_most": training.steps,
        **asdict(trained),
        "pretraining": read_json(folder / "metrics.json").get("pretraining"),
        "machine": machine(job.device),
        **courses(folder),
    }


def _scored(space: Space, job: Job) -> dict[str, Any]:
    """Likelihood and posteriors of the whole test split, and what there is to read: samples and copies."""
    from textspace.evaluate.measures.maps import feature_plane

    corpus = open_corpus(job.scored_source, ReadOptions(label=job.label), normalise=space.recipe.text.normalise)
    splits = prepare(corpus, space.recipe, tokenizer=space.tokenizer).encoded.splits
    if not len(splits.get("test", ())):
        raise TextspaceError(f"{corpus.name} has no test sentences to score: add a file named 'test'")
    test = splits["test"]
    if job.scored_on and (note := held_out_note(space.metrics, sentences_of("test", test, corpus), "test")):
        tell(note)
    began = time.monotonic()
    scores = likelihood(space.model, test, samples=job.samples, precision=job.score_in)
    estimates = scores.estimates()
    statistics = posterior_statistics(space.model, test)
    estimates |= statistics.estimates() if statistics else {}
    batches = BatchStream(test, space.recipe.training.batch, seed=0).plan
    within = minibatch_information(space.model, test, batches)
    estimates |= {"mi_minibatch": within} if within else {}
    numbers: dict[str, Any] = {
        "importance_samples": job.samples,
        "scored_in": job.score_in,
        "test": _values(estimates),
        "test_names": {name: each.name for name, each in estimates.items()},
        "test_sentences": len(test),
        "by_sentence": _by_sentence(scores),
        "seconds_to_score": time.monotonic() - began,
        "samples": space.sample(4),
    }
    if space.model.posterior is not None:
        texts = [test.text(row) for row in range(min(COPIED, len(test)))]
        copies = space.of_normalised().reconstruct(texts)
        numbers["exact_copies"] = sum(a == b for a, b in zip(texts, copies, strict=True)) / len(texts)
        numbers["copies"] = list(zip(texts[:3], copies[:3], strict=True))
    if plane := feature_plane(space.model, test, MAPPED):
        numbers["feature_spread"] = [plane.spread.value, plane.spread.stderr]
        numbers["feature_places"] = plane.places_N2.round(4).tolist()
        if plane.features_NH.shape[1] == IN_SPACE:
            numbers["features"] = plane.features_NH.round(6).tolist()
    return numbers


def _measured(space: Space, job: Job, folder: Path, by_sentence: dict[str, list[float]]) -> dict[str, Any]:
    """What the measures asked for find, also of each sentence; the whole report stays beside the run."""
    from textspace.evaluate.measure import Effort
    from textspace.evaluate.registry import measures_named
    from textspace.evaluate.subjects import subject_of
    from textspace.evaluate.suite import evaluate

    subject = subject_of(
        space,
        job.scored_source,
        effort=Effort(precision=job.score_in, **{"importance_samples": job.samples} | job.effort),
        folder=folder,
        options=ReadOptions(label=job.label),
        task_files=Path(job.tasks) if job.tasks else None,
    )
    report = evaluate(subject, measures_named(job.measures), cache=folder / "measured", say=tell)
    report.save(folder / "report")
    of_each = {
        f"{measure}.{name}": [round(value, 2) for value in values]
        for measure, entry in report.entries.items()
        for name, values in entry.findings.per_sentence.items()
        if name.startswith(OF_WHOLE_SENTENCES) and len(values) == len(by_sentence.get("words", ()))
    }
    return {
        "effort": job.effort,
        "by_sentence": by_sentence | of_each,
        "measures": {name: _values(entry.findings.estimates) for name, entry in report.entries.items()},
        "seconds_to_measure": {name: entry.seconds for name, entry in report.entries.items()},
        "not_measured": report.skipped,
    }


def _by_sentence(scores: Likelihood) -> dict[str, list[float]]:
    """Numbers of each sentence to a hundredth of a nat, and its words, by which perplexities divide.

    Rows have the same sentences, so that what two of them differ by is known far better than either number.
    """
    columns = {"nll": scores.nll_N, "elbo": scores.elbo_N, "reconstruction": scores.reconstruction_N}
    found = {name: values_N.round(2).tolist() for name, values_N in columns.items() if values_N is not None}
    return found | {"words": scores.counts_N["word"].tolist()}


def _values(estimates: dict[str, Estimate]) -> dict[str, list[float | None]]:
    return {name: [each.value, each.stderr] for name, each in estimates.items()}


def _write(folder: Path, numbers: dict[str, Any]) -> None:
    write_file(folder / NUMBERS, json.dumps(to_json(numbers), allow_nan=False).encode())


def machine(device: str | None = None) -> dict[str, Any]:
    """What a run ran on, and with which versions."""
    has_gpu = torch.cuda.is_available() and device != "cpu"
    return {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if has_gpu else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "textspace": textspace.__version__,
    }


def _end_with_the_parent() -> None:
    """Whoever started us holds the other end of our standard input: when that closes, stop as if asked to."""
    while os.read(0, 4096):  # and not sys.stdin, whose lock would be held while Python shuts down
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Exit status 0: done, 130: stopped and can go on, 2: something the user can mend, told in the last line."""
    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        with alone(folder):
            work(folder)
    except Interrupted as stopped:
        tell(stopped)
        raise SystemExit(130) from None
    except TextspaceError as error:
        tell(error)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
