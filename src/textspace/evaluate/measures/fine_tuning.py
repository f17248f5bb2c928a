"""Published classification tasks with the encoder trained on them too: what it can learn, not what its codes hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.data.batching import batches_by_length, make_batch, plan_batches
from textspace.data.encoded import EncodedSplit
from textspace.encoders import PretrainedEncoder
from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.classification_tasks import Form, Prepared, outer_folds, prepared_tasks
from textspace.evaluate.measures.classifiers import Settings, accuracy, majority_correct, random_state
from textspace.evaluate.measures.sentence_encoders import (
    CodeNetwork,
    SentenceEncoder,
    Writing,
    encoders_of,
    put,
)
from textspace.evaluate.measures.transfer import majority_of
from textspace.networks import perceptron
from textspace.noise import Noise, seed_of
from textspace.types import Estimate, View

__all__ = ["MEASURES", "FineTuned", "Inputs", "Training", "fine_tune", "fine_tuned_accuracy", "fine_tuning", "tuned_to"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DEV_SHARE = 0.1
"""Of the training data, for dev where a task has no validation set."""
SCORED_TOKENS = 2**14


@dataclass(frozen=True)
class Training:
    """How an encoder is fine-tuned."""

    epochs: int = 5
    rates: tuple[float, ...] = (1e-4, 1e-3)
    """Learning rates of Adam, of which dev accuracy chooses one for each task: networks of very different sizes are
    fine-tuned here."""
    smallest_batch: int = 32
    largest_batch: int = 256
    steps: int = 100
    """Of an epoch at least, batches permitting."""

    def batch(self, sentences: int) -> int:
        """
        >>> [Training().batch(n) for n in (500, 5_000, 50_000)]
        [32, 50, 256]
        """
        return min(self.largest_batch, max(self.smallest_batch, sentences // self.steps))


HOW = Training()


# The network


class FineTuned(nn.Module):
    """log p(y | x): an encoder, one dense layer with leaky ReLU as wide as a code, and class logits.

    Two inputs are compared, (|u - v|, u * v).
    """

    def __init__(self, codes: CodeNetwork, inputs: int, classes: int) -> None:
        super().__init__()
        self.codes = codes
        self.head = perceptron(codes.size * inputs, codes.size, 1, classes)

    def forward(self, views: Sequence[View], noise: Noise) -> Tensor:
        # The two sentences of a pair have noise of their own.
        apart = [replace(noise, step=2 * noise.step + column) for column in range(len(views))]
        codes = [self.codes(view, own) for view, own in zip(views, apart, strict=True)]
        if len(codes) == 1:
            features_BF = codes[0]
        else:
            u_BZ, v_BZ = codes
            features_BF = torch.cat([(u_BZ - v_BZ).abs(), u_BZ * v_BZ], dim=1)
        return self.head(features_BF).log_softmax(1)


@dataclass(frozen=True)
class Inputs:
    """Inputs in one or two columns, and their classes."""

    columns: list[EncodedSplit]
    classes_N: Ints

    @property
    def lengths_N(self) -> NDArray[np.int32]:
        """Tokens of all columns as the encoder reads them: batches do not depend on a space that stands beside."""
        return np.sum([split.encoder_lengths for split in self.columns], axis=0)

    def views(self, rows_B: Ints, device: torch.device) -> list[View]:
        return [make_batch(split, rows_B).encoder.to(device) for split in self.columns]


def fine_tune(
    encoder: SentenceEncoder,
    rows: Inputs,
    train_N: Ints,
    *,
    classes: int,
    rate: float,
    seed: int,
    how: Training = HOW,
) -> FineTuned:
    """A classifier trained on some of the rows from a copy of the encoder, with Adam; everything random is seeded.

    Dropout is on as in the encoder's first training, also in an encoder of Hugging Face: one protocol for all.
    """
    codes = encoder.network()
    device = next(codes.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed_of(seed, "initial weights"))
        network = FineTuned(codes, len(rows.columns), classes).to(device).train()
        for part in network.modules():
            if isinstance(part, PretrainedEncoder):  # which leaves its dropout off, since that cannot be keyed
                part.network.train()
        optimizer = torch.optim.Adam([each for each in network.parameters() if each.requires_grad], lr=rate)
        step = 0
        for epoch in range(how.epochs):
            plan = plan_batches(
                rows.lengths_N[train_N],
                size=how.batch(len(train_N)),
                seed=seed_of(seed, "order") % 2**32,
                epoch=epoch,
            )
            for at_B in plan:
                rows_B = train_N[at_B]
                noise = Noise(seed, step, torch.from_numpy(rows_B).to(device))
                log_p_BC = network(rows.views(rows_B, device), noise)
                optimizer.zero_grad()
                F.nll_loss(log_p_BC, torch.from_numpy(rows.classes_N[rows_B]).to(device)).backward()
                nn.utils.clip_grad_norm_(network.parameters(), 5.0)
                optimizer.step()
                step += 1
    return network.eval()


@torch.no_grad()
def _correct(network: FineTuned, rows: Inputs, tested_N: Ints) -> Bools:
    """Which of the tested rows are classified right."""
    device = next(network.parameters()).device
    correct_N = np.zeros(len(tested_N), bool)
    for at_B in batches_by_length(rows.lengths_N[tested_N], tokens=SCORED_TOKENS):
        rows_B = tested_N[at_B]
        noise = Noise(0, 0, torch.from_numpy(rows_B).to(device))
        predicted_B = network(rows.views(rows_B, device), noise).argmax(1).cpu().numpy()
        correct_N[at_B] = predicted_B == rows.classes_N[rows_B]
    return correct_N


# A task


@dataclass(frozen=True)
class Cut:
    """Rows to train on, for dev, and to test on."""

    train_N: Ints
    dev_N: Ints
    test_N: Ints


def _cuts(prepared: Prepared, seed: int, most: int) -> tuple[list[Cut], int]:
    """What is trained and tested, and the number of folds there are; 1 where there is a test set.

    No fold tests the first one's dev rows, on which the learning rate of all is chosen.
    """
    classes_N = np.concatenate([prepared.classes[part] for part in prepared.parts])
    if "all" in prepared.parts:
        folds = outer_folds(classes_N, seed)
        cuts = [Cut(*_dev_apart(train_N, classes_N, seed), test_N) for train_N, test_N in folds[:most]]
        return [replace(cut, test_N=np.setdiff1d(cut.test_N, cuts[0].dev_N)) for cut in cuts], len(folds)
    starts = np.cumsum([0, *(len(prepared.classes[part]) for part in prepared.parts)])
    rows = {part: np.arange(*starts[at : at + 2]) for at, part in enumerate(prepared.parts)}
    if "valid" in rows:
        return [Cut(rows["train"], rows["valid"], rows["test"])], 1
    return [Cut(*_dev_apart(rows["train"], classes_N, seed), rows["test"])], 1


def _dev_apart(train_N: Ints, classes_N: Ints, seed: int) -> tuple[Ints, Ints]:
    """Rows to train on, and those left out for dev: of each class its share, where there are enough."""
    own_N = classes_N[train_N]
    counts = np.unique(own_N, return_counts=True)[1]
    dev = max(len(counts), round(DEV_SHARE * len(own_N)))
    if counts.min() > 1 and dev + len(counts) <= len(own_N):
        cut = StratifiedShuffleSplit(1, test_size=dev, random_state=random_state(seed, "dev"))
        kept_N, dev_N = next(cut.split(own_N[:, None], own_N))
        return train_N[np.sort(kept_N)], train_N[np.sort(dev_N)]
    order_N = np.random.default_rng(seed).permutation(train_N)
    return np.sort(order_N[dev:]), np.sort(order_N[:dev])


@dataclass(frozen=True)
class Result:
    """Which tested inputs were right, which the majority class gets right, dev accuracy (0 to 1), and how."""

    correct_N: Bools
    majority_N: Bools
    dev: float
    settings: Settings


def fine_tuned_accuracy(
    prepared: Prepared,
    form: Form,
    encoder: SentenceEncoder,
    writing: Writing,
    *,
    folds: int,
    seed: int,
    how: Training,
) -> Result:
    """Fine-tune an encoder on a task, for `folds` of its folds where it has no test set, and test it.

    The learning rate with the best dev accuracy (of equals the first) in the first fold serves for all of them, and
    none of them tests the rows that it was chosen on.
    """
    columns = zip(*(prepared.inputs(part, form) for part in prepared.parts), strict=True)
    splits = [encoder.split([writing(each) for part in column for each in part]) for column in columns]
    rows = Inputs(splits, np.concatenate([prepared.classes[part] for part in prepared.parts]))
    cuts, of = _cuts(prepared, seed, folds)

    def trained(fold: int, rate: float) -> tuple[float, Bools]:
        cut = cuts[fold]
        network = fine_tune(
            encoder, rows, cut.train_N, classes=prepared.class_count, rate=rate, seed=seed_of(seed, fold), how=how
        )
        return float(_correct(network, rows, cut.dev_N).mean()), _correct(network, rows, cut.test_N)

    tried = [trained(0, rate) for rate in how.rates]
    best = int(np.argmax([dev for dev, _ in tried]))
    results = [tried[best], *(trained(fold, how.rates[best]) for fold in range(1, len(cuts)))]
    classes_N = rows.classes_N
    majority = [majority_correct(classes_N[cut.train_N], classes_N[cut.test_N]) for cut in cuts]
    settings: Settings = {
        "epochs": how.epochs,
        "batch": how.batch(len(cuts[0].train_N)),
        "optimizer": "Adam, gradients clipped to 5",
        "dropout": "as the encoder was trained with",
        "learning_rate": how.rates[best],
        "learning_rates_tried": ", ".join(f"{rate:g}" for rate in how.rates),
        "learning_rate_chosen_on": "dev data of the first fold, which no fold tests" if of > 1 else "dev data",
        "trained_on": len(cuts[0].train_N),
        "folds_trained": len(cuts) if of > 1 else None,
        "folds": of if of > 1 else None,
        "dev_data": "validation set" if "valid" in prepared.parts else "a tenth of the training data, left out",
    }
    dev = float(np.mean([dev for dev, _ in results]))
    return Result(np.concatenate([correct_N for _, correct_N in results]), np.concatenate(majority), dev, settings)


def fine_tuning(subject: Subject) -> Findings:
    """Accuracy when a copy of the encoder is trained with a classifier on top [VAT paper, table 5].

    The copy ends with the posterior's mean; above it are one dense layer with leaky ReLU, as wide as a code, and class
    logits. Pairs are read as (|u - v|, u * v), and as both sentences joined in one text. Five epochs with Adam; the
    weights are the last. MR and CR are cut in ten folds, of which `effort.repeats` are trained and tested; the learning
    rate is chosen in the first of them, on rows that none tests.
    """
    found = [tuned_to(subject, prepared) for prepared in prepared_tasks(subject, "fine-tuning")]
    estimates = {key: one for part, _ in found for key, one in part.items()}
    rows = tuple(row for _, part in found for row in part)
    columns = ("task", "codes of", "tested", "dev", "test", "± test")
    table = Table("Accuracy (%) of fine-tuned encoders", columns, rows, grouped=True)
    return Findings(estimates, {"fine_tuning": table})


def tuned_to(subject: Subject, prepared: Prepared) -> tuple[dict[str, Estimate], list[Cells]]:
    """Estimates of one task, and its rows of the table."""
    estimates: dict[str, Estimate] = {}
    rows: list[Cells] = []
    writings = [(encoder, encoder.writing(prepared.all_inputs())) for encoder in encoders_of(subject)]
    for form in prepared.forms:
        title = prepared.task.title + form.title
        below: list[Cells] = []
        for encoder, writing in writings:
            own, majority = _with_form(subject, prepared, form, encoder, writing)
            put(estimates, prepared.key + form.key, encoder, own)
            below.append((title, encoder.title, own.n, own.settings["dev"], own.value, own.stderr))
        estimates[f"{prepared.key}_majority"] = majority
        rows += [(title, "none: majority class", majority.n, None, majority.value, majority.stderr), *below]
    return estimates, rows


def _with_form(
    subject: Subject, prepared: Prepared, form: Form, encoder: SentenceEncoder, writing: Writing
) -> tuple[Estimate, Estimate]:
    """Accuracies of the fine-tuned encoder and of the majority class."""
    seed = seed_of(subject.seed, "fine-tuning", prepared.key)
    found = fine_tuned_accuracy(prepared, form, encoder, writing, folds=subject.effort.repeats, seed=seed, how=HOW)
    folds = found.settings["folds_trained"]
    tested = "test set" if folds is None else f"{folds} of {found.settings['folds']} folds"
    settings: Settings = {
        **prepared.settings,
        **writing.settings,
        **found.settings,
        "seed": subject.seed,
        "codes": f"{encoder.codes}{form.title}",
        "classifier": "dense layer as wide as a code with leaky ReLU, then class logits",
        "dev": 100 * found.dev,
    }
    if form.joins:
        settings["separator"] = writing.separator
    name = f"accuracy (%) on {prepared.task.title}{form.title} fine-tuned from {encoder.codes}, {tested}"
    return accuracy(name, found.correct_N, settings), majority_of(prepared, found.majority_N)


MEASURES = {
    "fine_tuning": Measure(
        fine_tuning,
        "What a copy of the encoder reaches in published classification tasks when it is trained on them.",
        ("codes", "files"),
        ("full",),
        has_baselines=True,
    )
}
