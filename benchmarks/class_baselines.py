"""What tells classes of a corpus apart without a latent space: words, lengths, encoders as they came or trained.

    python -m benchmarks.class_baselines CORPORA dbpedia28k yahoo_topics20k --end-to-end --out FOLDER
    python -m benchmarks.class_baselines CORPORA yahoo_topics20k --model ENCODER --out FOLDER

Nothing is trained but classifiers. `--model` adds an encoder of Hugging Face as it came, and `--end-to-end` one run of
the simple classifier of the sparse-codes paper: a GRU as large as the encoders there, trained with all labels.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.results import record

MEASURES = ("class_statistics", "length_classifier", "probe_baselines")


def work(corpus: str, given: argparse.Namespace) -> dict[str, Any]:
    """The numbers of one corpus."""
    from textspace.data.corpus import open_corpus
    from textspace.data.options import ReadOptions
    from textspace.data.preparing import prepare
    from textspace.evaluate.measure import Effort
    from textspace.evaluate.registry import measures_named
    from textspace.evaluate.subjects import subject_of
    from textspace.evaluate.suite import evaluate
    from textspace.model import Model
    from textspace.recipes import recipe
    from textspace.space import Space

    mine = recipe("b-vae" if given.model else "vae-dense").with_settings(given.set)
    if given.model:
        mine = mine.but({"encoder.model": given.model, "encoder.frozen": True})
    source, options = str(given.corpora / corpus), ReadOptions(label=given.label)
    tokenizer = prepare(open_corpus(source, options, normalise=mine.text.normalise), mine).tokenizer
    space = Space(mine, tokenizer, Model(mine, len(tokenizer)))  # it reads the text, and its codes are not asked for
    subject = subject_of(space, source, options=options, effort=Effort(repeats=given.repeats, language_model_epochs=6))
    report = evaluate(subject, measures_named(MEASURES))
    found: dict[str, Any] = {
        "splits": {name: [facts.sentences, facts.words, facts.unknown] for name, facts in subject.facts.items()},
        "measures": {
            name: {key: [each.value, each.stderr] for key, each in entry.findings.estimates.items()}
            for name, entry in report.entries.items()
        },
        "names": {
            key: each.name for entry in report.entries.values() for key, each in entry.findings.estimates.items()
        },
        "class_kl": report.entries["class_statistics"].findings.pictures["class_kl"].series,
        "class_lengths": report.entries["class_statistics"].findings.tables["class_lengths"].rows,
    }
    if given.end_to_end:
        found["simple_classifier"] = end_to_end(subject)
    return found


def end_to_end(subject: Any) -> dict[str, Any]:
    """One run of the GRU of `end_to_end_baselines`, with its standard error over sentences."""
    from textspace.config import RecurrentEncoder
    from textspace.evaluate.measures.baselines import recurrent_predictions
    from textspace.evaluate.measures.classifiers import accuracy, labelled
    from textspace.evaluate.measures.probes import CLASSIFIER_HIDDEN

    began = time.monotonic()
    _, (train, valid, test) = labelled(subject, "train", "valid", "test")
    predicted_N, parameters = recurrent_predictions(
        RecurrentEncoder(kind="gru", embedding=256, hidden=512),
        len(subject.space.tokenizer),
        (train.sentences.split, train.classes_N),
        (valid.sentences.split, valid.classes_N),
        test.sentences.split,
        hidden=CLASSIFIER_HIDDEN,
        epochs=subject.effort.language_model_epochs,
        seed=subject.seed,
    )
    found = accuracy("accuracy (%) of a GRU with a 2-layer classifier", predicted_N == test.classes_N, {})
    return {
        "accuracy": [found.value, found.stderr],
        "parameters": parameters,
        "epochs_at_most": subject.effort.language_model_epochs,
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds the corpora")
    parser.add_argument("corpus", nargs="+", help="folders in CORPORA")
    parser.add_argument("--label", type=int, default=1, help="column of the classes, from 1")
    parser.add_argument("--model", help="an encoder of Hugging Face")
    parser.add_argument("--end-to-end", action="store_true")
    parser.add_argument("--repeats", type=int, default=5, help="of the small networks")
    parser.add_argument("--set", nargs="*", default=[], help="changes to the recipe, which says how text is read")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="class_baselines")
    given = parser.parse_args()
    found = {corpus: work(corpus, given) for corpus in given.corpus}
    written = " ".join(sys.argv[2:]).replace(str(given.out), "FOLDER")
    if given.model:
        written = written.replace(given.model, "ENCODER")
    record(given.name, f"python -m benchmarks.class_baselines CORPORA {written}", {"corpora": found}, given.out)


if __name__ == "__main__":
    main()
