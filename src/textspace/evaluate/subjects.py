"""From a space and a source of text to what measures read: which sentences, how many of them, and what was met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from textspace.data.content import Content
from textspace.data.corpus import Corpus, open_corpus
from textspace.data.encoded import EncodedCorpus, EncodedSplit
from textspace.data.options import ReadOptions, check_options
from textspace.data.preparing import prepare
from textspace.errors import TextspaceError
from textspace.evaluate.held_out import held_out_note, repeats_note, sentences_of, shared_note, training_record
from textspace.evaluate.measure import Effort, Sentences, Subject
from textspace.evaluate.sources import source_names
from textspace.evaluate.statistics import some_rows

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["SourcedSubject", "SplitFacts", "folder_of", "subject_of"]

TRAINING_TIMES = 20
"""Training sentences at most, in multiples of the test sentences at most."""


@dataclass(frozen=True)
class SplitFacts:
    """How much of a split is measured on."""

    sentences: int
    of: int
    words: float
    """Whitespace words of a sentence on average."""
    unknown: float
    """Share of the tokens that the space does not know."""


@dataclass
class SourcedSubject(Subject):
    """A subject that knows where its parts came from, for the measures that read a run's log, and for reports."""

    folder: Path | None = None
    """Of the space, where it has one."""
    source: str = ""
    facts: dict[str, SplitFacts] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Sentences about how the source was read."""
    met: str | None = None
    """The one of them that says that the space was trained on test sentences, or that nobody can know."""


def subject_of(
    space: Space,
    source: Any,
    *,
    effort: Effort | None = None,
    seed: int = 0,
    options: ReadOptions | None = None,
    folder: Path | None = None,
    task_files: Path | None = None,
    baselines: Iterable[str] = (),
    show_progress: bool = False,
) -> SourcedSubject:
    """A space, the sentences of a source that it is measured on, and how hard to try.

    Splits stay as the source has them. A source without splits is cut as training cuts it when its training sentences
    are then those of the space (so that what is tested was held out), and is a test split as a whole otherwise. Where
    there is no test split the validation split is tested on, or else the training split; a note says so.

    Args:
        space: what is measured.
        source: a `Corpus`, or what `open_corpus` takes.
        effort: how much work measures may spend; `effort.sentences` limits the test and the validation split, and
            `TRAINING_TIMES` as many the training split, drawn at random.
        seed: of all randomness.
        options: how to read the source.
        folder: of the space.
        task_files: folder with the files of sentence-pair and transfer tasks.
        baselines: encoders of Hugging Face, folders or names of the hub, that some measures put beside the space.
        show_progress: show bars.
    """
    effort = effort or Effort()
    options = ReadOptions() if options is None else options
    check_options(options)
    notes: list[str] = []
    corpus = source if isinstance(source, Corpus) else _opened(space, source, options, notes)
    corpus = _with_test(corpus, notes)
    encoded = prepare(corpus, space.recipe, tokenizer=space.tokenizer, progress=show_progress).encoded
    if not len(encoded.splits["test"]):
        raise TextspaceError(_nothing_tested(corpus, space))
    most = {"train": TRAINING_TIMES * effort.sentences}
    splits, facts = {}, {}
    for name, split in encoded.splits.items():
        if len(split):
            most_of_it = most.get(name, effort.sentences)
            splits[name] = _sentences(name, split, encoded, space, most_of_it, seed, notes, source_names(corpus))
            splits[name].precision = effort.precision
            facts[name] = _facts(splits[name], split)
    there = set(splits["test"].sources or source_names(corpus))
    notes += [
        f"test: no sentence of {name}, which is measured on alone only"
        for name in source_names(corpus)
        if name not in there
    ]
    train = encoded.contents.get("train")
    own_train = None if train is None else _is_of_training(space, corpus.name, train)
    if "train" in splits and own_train is False:
        notes.append("train: these are not the sentences the space was trained on")
    met, repeated = _held_out_notes(space, corpus, encoded, own_train)
    notes += [*([met] if met else []), *repeated]
    if unknown := facts["test"].unknown:
        notes.append(f"test: {unknown:.2%} of the tokens are unknown to the space, which flatters its likelihoods")
    return SourcedSubject(
        space=space,
        splits=splits,
        effort=effort,
        seed=seed,
        own_train=own_train,
        builtin=isinstance(source, str) and re.match(r"builtin(:|$)", source) is not None,
        task_files=task_files,
        baselines=tuple(baselines),
        show_progress=show_progress,
        folder=folder,
        source=corpus.name,
        facts=facts,
        notes=[*corpus.report.lines(), *notes],
        met=met,
    )


def _opened(space: Space, source: Any, options: ReadOptions, notes: list[str]) -> Corpus:
    normalise = space.recipe.text.normalise
    if isinstance(source, Mapping):  # of which iterators would be used up by the first of two openings
        source = {split: list(given) if isinstance(given, Iterator) else given for split, given in source.items()}
    names = source if isinstance(source, list | tuple) else [source]
    uncut = open_corpus(source, replace(options, valid=0.0, test=0.0), normalise=normalise)
    if "-" not in names and _may_hold_training(space, uncut):
        cut = open_corpus(source, options, normalise=normalise)  # of several sources some may have been cut
        if _is_of_training(space, cut.name, Content.of(cut.splits["train"])):
            return cut
    if set(uncut.splits) != {"train"}:
        # Training cuts the validation split from a training split that has none beside it: so do we, and the two stay
        # apart.
        same = "valid" in uncut.splits or "train" not in uncut.splits
        return uncut if same else open_corpus(source, options, normalise=normalise)
    whole = uncut.splits["train"]
    is_other = " and is not, as a whole, the text the space was trained on" if training_record(space.metrics) else ""
    notes.append(f"{uncut.name} has no splits{is_other}: all of it is the test split")
    return replace(uncut, splits={"test": whole})


def _may_hold_training(space: Space, uncut: Corpus) -> bool:
    """By the number of sentences alone."""
    known, train = training_record(space.metrics), uncut.splits.get("train")
    return train is not None and (known is None or known["sentences"] <= len(train))


def _is_of_training(space: Space, name: str, content: Content) -> bool | None:
    """Whether a space was trained on a text; None where that is not known.

    Of a space that does not know its text's digest, since it was made before there was one, the name decides.
    """
    known = training_record(space.metrics)
    if known is None:
        return True if name == space.metrics.get("source") else None
    return content.is_text(known)


def _held_out_notes(
    space: Space, corpus: Corpus, encoded: EncodedCorpus, own_train: bool | None
) -> tuple[str | None, list[str]]:
    """The note that the space has met test sentences; and those on repeated ones, in the training split or the test
    split itself."""
    record, train = training_record(space.metrics), encoded.contents.get("train")
    texts = list(sentences_of("test", encoded.splits["test"], corpus))
    met = None if own_train and record else held_out_note(space.metrics, texts, "test")
    shared = ""
    if train is not None and own_train:
        shared = shared_note("test", texts, [train.sketch.written, (record or {}).get("sketch", "")])
    elif train is not None:
        shared = shared_note("test", texts, [train.sketch.written], "the training split beside them")
    return met, [note for note in (shared, repeats_note("test", texts)) if note]


def _with_test(corpus: Corpus, notes: list[str]) -> Corpus:
    if "test" in corpus.splits:
        return corpus
    name = "valid" if "valid" in corpus.splits else "train"
    notes.append(f"{corpus.name} has no test split: the {name} split is tested on")
    rest = {key: split for key, split in corpus.splits.items() if key != name}
    return replace(corpus, splits={**rest, "test": corpus.splits[name]})


def _nothing_tested(corpus: Corpus, space: Space) -> str:
    """Why no sentence of the test split is left."""
    if not len(corpus.splits["test"]):
        return f"the test split of {corpus.name} is empty: give it sentences"
    most = space.recipe.text.max_tokens
    return (
        f"all test sentences of {corpus.name} have more than {most} tokens, which this space drops: give shorter ones"
    )


def _sentences(
    name: str,
    split: EncodedSplit,
    encoded: EncodedCorpus,
    space: Space,
    most: int,
    seed: int,
    notes: list[str],
    names: Sequence[str],
) -> Sentences:
    count = min(len(split), most)
    rows = some_rows(len(split), count)
    texts = [split.text(int(row)) for row in rows]
    if count < len(split):
        notes.append(f"{name}: {count:,} of {len(split):,} sentences, drawn at random")
        chosen = EncodedSplit.of(texts, space.tokenizer, space.recipe.text.max_tokens)
    else:
        chosen = split
    label_N = np.asarray(split.labels)[rows]
    labels = [encoded.labels[label] for label in label_N] if (label_N >= 0).all() else None
    if labels is None and (label_N >= 0).any():
        notes.append(f"{name}: {int((label_N < 0).sum()):,} of {count:,} sentences have no label, so none is used")
    sources = [names[number] for number in np.asarray(split.sources)[rows]] if len(names) > 1 else None
    whole = split if count < len(split) else None
    return Sentences(name, texts, labels, chosen, space, seed, sources, whole=whole)


def _facts(sentences: Sentences, whole: EncodedSplit) -> SplitFacts:
    split = sentences.split
    return SplitFacts(len(sentences), len(whole), float(np.mean(split.words)), split.unknown_share)


def folder_of(subject: Subject) -> Path | None:
    """The folder of a subject's space, where it is known."""
    return subject.folder if isinstance(subject, SourcedSubject) else None
