"""What is measured for the tables of the VAT paper, in small parts: of a space, of an encoder, or of word counts."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.token_samples import samples
from benchmarks.word_counts import sentence_pairs_by_words, transfer_by_words
from textspace.config import Recipe
from textspace.data.corpus import corpus_of
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import prepare
from textspace.errors import TextspaceError
from textspace.evaluate.function_words import function_word_ids
from textspace.evaluate.isotropy import Cosine, isotropy_of
from textspace.evaluate.layers import layers_of
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort, Findings, Subject
from textspace.evaluate.measures.classification_tasks import TASKS, Prepared, prepared_tasks, read_task
from textspace.evaluate.measures.completeness import completeness
from textspace.evaluate.measures.fine_tuning import tuned_to
from textspace.evaluate.measures.isotropy import MOST_CONTEXTUAL, NUMBERS, isotropy
from textspace.evaluate.measures.language_models import LanguageModel
from textspace.evaluate.measures.pairs import sentence_pairs
from textspace.evaluate.measures.sentence_encoders import POOLINGS, Baseline, BaselineEncoder, encoders_of
from textspace.evaluate.measures.tasks import read_pairs
from textspace.evaluate.measures.transfer import transfer_to
from textspace.evaluate.measures.variety import variety
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.subjects import subject_of
from textspace.lengths import METRIC, Lengths
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import recipe
from textspace.space import Space
from textspace.types import Estimate

__all__ = ["PARTS", "WORDS", "Contestant", "Options", "Unit", "curves", "measured", "units_of", "untrained_copy"]

Kind = Literal["space", "encoder", "words"]
Found = tuple[dict[str, Estimate], dict[str, Any]]
"""Estimates, and tables as plain data."""

PARTS = ("sts", "transfer", "fine_tuning", "losses", "isotropy", "completeness", "variety", "tables")
_OF_SPACES = ("losses", "completeness", "variety", "tables")
LOSSES_ON = 5_000
"""Sentences of the training and of the test split whose losses are compared."""
WORDS = "word counts"
STS12 = ("sts/STS12", "sts")
"""The file on whose sentences tokens are compared, as in the paper."""


# Who, what and how


@dataclass(frozen=True)
class Contestant:
    """Who is measured: a space or an encoder of Hugging Face in a folder, or word counts."""

    name: str
    kind: Kind
    folder: str = ""

    @classmethod
    def of(cls, written: str) -> Contestant:
        """From "FOLDER", or "NAME=FOLDER"; a folder with a recipe is a space.

        >>> Contestant.of("mini=there/model")
        Contestant(name='mini', kind='encoder', folder='there/model')
        """
        is_folder = Path(written).is_dir()
        name, separator, folder = ("", "", written) if is_folder else written.partition("=")
        if not separator and not is_folder:
            raise TextspaceError(f"there is no folder {written!r}: give FOLDER or NAME=FOLDER")
        is_space = (Path(folder) / "recipe.json").is_file()
        if is_space and not Recipe.from_json((Path(folder) / "recipe.json").read_text()).posterior:
            raise TextspaceError(f"{folder!r} is a language model without codes: give it as --language-model")
        return cls(name if separator else Path(folder).name, "space" if is_space else "encoder", folder)

    @property
    def recipe(self) -> Recipe | None:
        return Recipe.from_json((Path(self.folder) / "recipe.json").read_text()) if self.kind == "space" else None

    @property
    def has_tokens(self) -> bool:
        """Whether it has vectors of tokens, to be pooled."""
        return self.kind == "encoder" or (self.recipe is not None and self.recipe.is_token_level)

    @property
    def fingerprint(self) -> str:
        """Of its weights."""
        path = Path(self.folder) / "model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if self.folder and path.is_file() else ""


@dataclass(frozen=True)
class Options:
    """How hard to try, and where everything is.

    Args:
        tasks: folder with the files of the tasks.
        data: the text that spaces were trained on, with its test split; None where only tasks are measured.
        device: "cpu" or "cuda"; by default the GPU where there is one.
        limit: sentences that classifiers are trained on at most, drawn at random; MR and CR, which have no test set of
            their own, are left as they are.
        folds: of the ten of MR and CR that are fine-tuned.
        decoded: sentences that are decoded for variety and completeness, each.
        language_model: folder of a space without codes that judges decoded sentences; by default a small one is
            trained for each space, which takes long without a GPU.
        seed: of all randomness.
    """

    tasks: str
    data: str | None = None
    device: str | None = None
    limit: int | None = None
    folds: int = 2
    decoded: int = 600
    language_model: str | None = None
    seed: int = 0

    def deciding(self, part: str) -> dict[str, Any]:
        """Those that decide what is found in a part."""
        own = {"transfer": ["limit"], "fine_tuning": ["limit", "folds"], "variety": ["decoded"]}
        own["completeness"] = ["decoded", "language_model"]
        return {name: getattr(self, name) for name in ["seed", *own.get(part, [])]}


@dataclass(frozen=True)
class Unit:
    """A part of what is measured of a contestant, of one task and pooling where it has several."""

    contestant: Contestant
    part: str
    task: str | None = None
    pooling: str | None = None

    @property
    def key(self) -> str:
        return ".".join(filter(None, (self.part, self.task, self.pooling)))


def units_of(contestants: Sequence[Contestant], parts: Sequence[str], options: Options) -> list[Unit]:
    """All there is to do, contestant by contestant."""
    tasks = [key for key, task in TASKS.items() if read_task(Path(options.tasks), task) is not None]
    has_sentences = read_pairs(Path(options.tasks), *STS12) is not None
    needs_text = _OF_SPACES if has_sentences else (*_OF_SPACES, "isotropy")
    units = []
    for contestant in contestants:
        poolings = POOLINGS if contestant.has_tokens else (None,)
        for part in parts:
            if contestant.kind != "space" and part in _OF_SPACES:
                continue
            if (part == "isotropy" and not contestant.has_tokens) or (
                part == "fine_tuning" and contestant.kind == "words"
            ):
                continue
            if contestant.kind == "space" and part in needs_text and options.data is None:
                raise TextspaceError(f"{part} needs text that the spaces know: give --data, or other --parts")
            if part == "transfer":
                units += [Unit(contestant, part, task) for task in tasks]
            elif part == "fine_tuning":
                units += [Unit(contestant, part, task, pooling) for task in tasks for pooling in poolings]
            else:
                units.append(Unit(contestant, part))
    return units


# Measuring


def measured(unit: Unit, options: Options) -> dict[str, Any]:
    """What is found in a unit, for JSON."""
    began = time.monotonic()
    estimates, tables = _found(unit, options)
    return {
        "contestant": unit.contestant.name,
        "unit": unit.key,
        "weights": unit.contestant.fingerprint,
        "options": options.deciding(unit.part),
        "seconds": round(time.monotonic() - began, 1),
        "estimates": {
            key: {"value": each.value, "stderr": each.stderr, "n": each.n, "name": each.name, "settings": each.settings}
            for key, each in estimates.items()
        },
        "tables": tables,
    }


def _found(unit: Unit, options: Options) -> Found:
    contestant, part = unit.contestant, unit.part
    if contestant.kind == "words" and part == "sts":
        return sentence_pairs_by_words(Path(options.tasks), options.seed), {}
    if contestant.kind == "encoder" and part == "isotropy":
        return isotropy_of_layers(contestant.folder, options), {}
    subject = subject_for(contestant, options)
    if part in ("transfer", "fine_tuning"):
        prepared = limited(_tasks(contestant, options)[unit.task or ""], options.limit)
        if contestant.kind == "words":
            return transfer_by_words(prepared, options.seed), {}
        return (transfer_to if part == "transfer" else tuned_to)(_with(subject, unit.pooling), prepared)[0], {}
    if part == "completeness" and options.language_model is not None:
        subject.kept["language model"] = judge_for(subject.space, options)
    if part == "losses":
        return losses(subject), {}
    if part == "tables":
        return samples(subject)
    measure = {"sts": sentence_pairs, "isotropy": isotropy, "completeness": completeness, "variety": variety}[part]
    return _of_findings(measure(subject))


def _of_findings(found: Findings) -> Found:
    return found.estimates, {name: asdict(table) for name, table in found.tables.items()}


@lru_cache(maxsize=1)
def subject_for(contestant: Contestant, options: Options) -> Subject:
    """A contestant and what it is measured on. All the training text is read, lest a sentence of it be tested."""
    effort = Effort(sentences=10**6, decoded=options.decoded, prior_samples=options.decoded, repeats=options.folds)
    how: dict[str, Any] = {"effort": effort, "seed": options.seed, "task_files": Path(options.tasks)}
    if contestant.kind == "space":
        space = Space.load(contestant.folder, options.device)
        if options.data is None:
            return Subject(space, {}, **how)
        return subject_of(space, options.data, folder=Path(contestant.folder), **how)
    subject = Subject(stand_in(options.device), {}, **how)
    if contestant.kind == "encoder":
        baseline = Baseline(contestant.folder, subject.space)
        encoders = [BaselineEncoder(baseline, pooling) for pooling in POOLINGS]
        for encoder in encoders:
            encoder.suffix, encoder.title = f"_{encoder.pooling}", f"{contestant.name}, {encoder.pooling}"
        subject.kept["sentence encoders"] = encoders
    return subject


@lru_cache(maxsize=1)
def _tasks(contestant: Contestant, options: Options) -> dict[str, Prepared]:
    """The classification tasks by key, without sentences that a space was trained on."""
    return {each.key: each for each in prepared_tasks(subject_for(contestant, options), "tasks")}


def _with(subject: Subject, pooling: str | None) -> Subject:
    """The same subject with the vectors of one pooling alone; its text and encoders are not made again."""
    if pooling is None:
        return subject
    only = replace(subject)
    only.kept["sentence encoders"] = [each for each in encoders_of(subject) if each.suffix == f"_{pooling}"]
    return only


def stand_in(device: str | None) -> Space:
    """An untrained space that lends encoders its device and its view of batches: no number depends on it."""
    small = recipe("vae").but({"latent.dim": 2, "encoder.hidden": 4, "decoder.hidden": 4})
    tokenizer = prepare(corpus_of(["a b", "b c", "c a"] * 10), small).tokenizer
    space = Space(small, tokenizer, Model(small, len(tokenizer)))
    return space if device is None else space.to(device)


def judge_for(space: Space, options: Options) -> LanguageModel:
    """The language model that judges decoded sentences, which must read the tokens of the space."""
    judge = Space.load(options.language_model or "", options.device)
    if judge.model.posterior is not None:
        raise TextspaceError(
            f"{options.language_model!r} has codes: give a language model, trained with transformer-lm"
        )
    if judge.tokenizer.fingerprint != space.tokenizer.fingerprint:
        raise TextspaceError(f"{options.language_model!r} has other tokens than the space: train both on the same text")
    sentences = Lengths.of_metrics(judge.metrics).counts_L.sum() if METRIC in judge.metrics else 0
    return LanguageModel(judge.model.eval(), int(sentences))


def limited(prepared: Prepared, limit: int | None) -> Prepared:
    """A task with at most so many sentences to train on, drawn at random from the training set."""
    if limit is None or "train" not in prepared.parts or len(prepared.parts["train"]) <= limit:
        return prepared
    kept_N = np.zeros(len(prepared.parts["train"]), bool)
    kept_N[some_rows(len(kept_N), limit)] = True
    return replace(
        prepared,
        parts=prepared.parts | {"train": prepared.parts["train"].only(kept_N)},
        classes=prepared.classes | {"train": prepared.classes["train"][kept_N]},
        settings={**prepared.settings, "training_limit": limit},
    )


def losses(subject: Subject) -> dict[str, Estimate]:
    """Reconstruction and KL on test sentences and on training sentences, neither with dropout: what over-fits shows."""
    space = subject.space
    found: dict[str, Estimate] = {}
    for name in ("test", "train"):
        texts = subject.splits[name].texts if name in subject.splits else []
        if texts:
            some = [texts[row] for row in some_rows(len(texts), LOSSES_ON)]
            split = EncodedSplit.of(some, space.tokenizer, space.recipe.text.max_tokens)
            told = likelihood(space.model, split, seed=seed_of(subject.seed, "losses")).estimates()
            found |= {f"{key}_{name}": told[key] for key in ("reconstruction", "kl", "elbo") if key in told}
    return found


def isotropy_of_layers(folder: str, options: Options) -> dict[str, Estimate]:
    """The numbers of the measure `isotropy` for every layer of an encoder, on the sentences of STS12."""
    pairs = read_pairs(Path(options.tasks), *STS12)
    if pairs is None:
        raise TextspaceError(f"{options.tasks!r} has no sts/STS12.tsv, on whose sentences tokens are compared")
    texts = list(dict.fromkeys([*pairs.first, *pairs.second]))
    layers = layers_of(folder, texts, device=stand_in(options.device).device)
    marked = function_word_ids(layers.names)
    unranked = set() if layers.unknown is None else {layers.unknown}
    estimates: dict[str, Estimate] = {}
    for layer, vectors in enumerate(layers.vectors):
        seed = seed_of(options.seed, "tokens dealt out anew")
        found = isotropy_of(vectors, layers.ids, marked=marked, unranked=unranked, seed=seed)
        of = f"layer {layer} of {len(layers.vectors) - 1}, sentences of STS12, special tokens left out"
        for field, number in NUMBERS.items():
            mean: Cosine | None = getattr(found, field)
            if mean is not None:
                key = f"{number.key}_layer_{layer}"
                estimates[key] = Estimate(f"{number.name}, {of}", *mean, found.sentences, "none", None, {})
        shares = {"function_words_most_contextual": MOST_CONTEXTUAL, "function_words_all": len(found.ranked)}
        for key, most in shares.items():
            name = f"share of function words among the {most} tokens of lowest self-similarity, {of}"
            share = found.marked_share(marked, most)
            estimates[f"{key}_layer_{layer}"] = Estimate(name, share, None, most, "none", None, {})
    return estimates


def untrained_copy(folder: str, out: Path, seed: int) -> str:
    """An encoder of the same architecture and tokenizer with first weights, in a folder of its own."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    if not (out / "model.safetensors").exists():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(seed, "untrained"))
            network = AutoModel.from_config(AutoConfig.from_pretrained(folder))
        AutoTokenizer.from_pretrained(folder).save_pretrained(out)
        network.save_pretrained(out)
    return str(out)


def curves(folder: Path, most: int = 40) -> dict[str, Any]:
    """Losses by epoch from a run's log, nats a sentence: of training batches (at most so many means) and validations.

    The KL is the one in the loss, weighted as it was at that step.
    """
    path = folder / "steps.jsonl"
    if not path.is_file():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    if not steps:
        return {}
    kl_name = "kl_printed" if "kl_printed" in steps[-1]["weights"] else "kl"
    weight_at = {line["step"]: line["weights"].get(kl_name, 0.0) for line in steps}
    train: list[list[float]] = []
    for rows in np.array_split(np.arange(len(steps)), min(most, len(steps))):
        some = [steps[row] for row in rows]
        of = sum(line["sentences"] for line in some)
        terms = [(line["reconstruction"], line.get(kl_name, 0.0), line["sentences"], line["step"]) for line in some]
        train.append(
            [
                some[-1]["epoch"],
                sum(weight_at[step] * kl * n for _, kl, n, step in terms) / of,
                sum(reconstruction * n for reconstruction, _, n, _ in terms) / of,
            ]
        )
    valid = [
        [line["epoch"], weight_at[line["step"]] * kl, line["reconstruction"], kl]
        for line, kl in ((line, line.get(kl_name, 0.0)) for line in lines)
        if line["event"] == "validation" and line["step"] in weight_at
    ]
    return {
        "train": train,
        "valid": valid,
        "columns": ["epoch", "weighted_kl", "reconstruction", "kl (validations)"],
        "last_weight": steps[-1]["weights"].get(kl_name),
    }
