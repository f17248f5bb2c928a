"""Classes from arrays: labels as numbers, accuracies with errors, the linear classifier, and small networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Sentences, Subject
from textspace.evaluate.statistics import OVER_SENTENCES, standard_error
from textspace.networks import perceptron
from textspace.noise import seed_of
from textspace.types import Estimate, Settings

__all__ = [
    "AveragedClassifier",
    "Labelled",
    "LinearFit",
    "Settings",
    "accuracy",
    "accuracy_over_seeds",
    "balanced_draw",
    "fit_linear",
    "known",
    "labelled",
    "majority_correct",
    "majority_estimate",
    "network_predictions",
    "one_thread",
    "per_sentence",
    "random_state",
    "train_network",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Inverse penalties C among which a linear classifier chooses."""

CHOSEN_ON = 10_000
"""C is chosen by cross-validation on so many sentences at most; beyond, it hardly matters and takes long."""

EPOCHS, PATIENCE, LEARNING_RATE = 100, 5, 1e-3
LEAST_GAIN = 1e-3
"""Nats of validation cross-entropy below which an epoch was no improvement."""

SCORED_AT_ONCE = 8192

one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""For functions that fit scikit-learn's models: their many small steps gain nothing from threads, and wait for them
twenty times as long where something else runs beside."""


# Labels and accuracies


@dataclass(frozen=True)
class Labelled:
    """Sentences of a split and the numbers of their classes: -1 for one that training never saw, so always wrong."""

    sentences: Sentences
    classes_N: Ints

    def __len__(self) -> int:
        return len(self.classes_N)


def labelled(subject: Subject, *names: str) -> tuple[list[str], list[Labelled]]:
    """The classes that training knows, and the splits asked for with their classes."""
    labels: dict[str, list[str]] = {}
    for name in ("train", *names):
        of_split = subject.splits[name].labels if name in subject.splits else None
        if not of_split:
            raise TextspaceError(f"there is no labelled {name} split: give text with labels and such a split")
        labels[name] = of_split
    classes = sorted(set(labels["train"]))
    if len(classes) < 2:
        raise TextspaceError(f"all training sentences have the label {classes[0]!r}: there is nothing to tell apart")
    numbers = {label: number for number, label in enumerate(classes)}
    return classes, [
        Labelled(subject.splits[name], np.array([numbers.get(label, -1) for label in labels[name]], np.int64))
        for name in names
    ]


def majority_correct(train_N: Ints, test_N: Ints) -> Bools:
    """Which test sentences are of the class that is most frequent in training."""
    return test_N == np.bincount(train_N).argmax()


def balanced_draw(classes_N: Ints, per_class: int, chance: np.random.Generator) -> Ints:
    """Rows of `per_class` sentences of each class."""
    drawn = [chance.choice(np.flatnonzero(classes_N == c), per_class, replace=False) for c in np.unique(classes_N)]
    return np.concatenate(drawn)


def per_sentence(correct_RN: NDArray[Any]) -> list[float]:
    """Per cent of the runs that were right on each sentence."""
    return (100.0 * correct_RN.mean(0)).tolist()


def accuracy(
    name: str, correct_N: NDArray[Any], settings: Settings, better: Literal["higher"] | None = "higher"
) -> Estimate:
    """Per cent right, with the standard error over sentences."""
    return accuracy_over_seeds(name, correct_N[None], settings, better)


def accuracy_over_seeds(
    name: str, correct_RN: NDArray[Any], settings: Settings, better: Literal["higher"] | None = "higher"
) -> Estimate:
    """The mean per cent right of several runs, with its error over sentences and runs; settings have their spread."""
    runs, n = correct_RN.shape
    per_run_R = 100.0 * correct_RN.mean(1)
    error, how = standard_error(100.0 * correct_RN.mean(0)), {**settings, "error": OVER_SENTENCES, "runs": runs}
    if runs > 1:
        spread = float(per_run_R.std(ddof=1))
        error = _over_both(100.0 * correct_RN, error or 0.0, spread / math.sqrt(runs))
        how |= {"error": "standard error over sentences and runs", "spread": spread}
    return Estimate(name, float(per_run_R.mean()), error, n, "none", better, how)


def _over_both(values_RN: NDArray[Any], over_sentences: float, over_runs: float) -> float:
    """The error of a mean over runs and sentences; either error alone has in it what is of a run and a sentence
    together, which counts once."""
    runs, n = values_RN.shape
    both_RN = values_RN - values_RN.mean(1, keepdims=True) - values_RN.mean(0) + values_RN.mean()
    both = float((both_RN**2).sum()) / max(1, (runs - 1) * (n - 1)) / (runs * n)
    return math.sqrt(max(over_sentences**2 + over_runs**2 - both, both))


def majority_estimate(train_N: Ints, test_N: Ints) -> Estimate:
    """What guessing reaches that looks at no sentence."""
    name = "accuracy (%) of always the class most frequent in training"
    return accuracy(name, majority_correct(train_N, test_N), {"classes": len(np.unique(train_N))}, None)


def random_state(*parts: object) -> int:
    """A seed that scikit-learn takes."""
    return seed_of(*parts) % 2**32


# The linear classifier


@dataclass(frozen=True)
class LinearFit:
    """A fitted linear classifier, the inverse penalty it chose, and its accuracy (0 to 1) on what it chose it on."""

    model: Pipeline
    C: float
    dev: float | None

    def predict(self, features_NF: Any) -> Ints:
        return np.asarray(self.model.predict(features_NF))


@one_thread
def fit_linear(
    features_NF: Any,
    classes_N: Ints,
    *,
    seed: int,
    valid: tuple[Any, Ints] | None = None,
    folds: int = 5,
    scale: bool = True,
    penalties: Sequence[float] = PENALTIES,
) -> LinearFit:
    """Logistic regression whose penalty is chosen on validation data, or else by cross-validation.

    Args:
        features_NF: an array, or a sparse matrix if not to be scaled.
        classes_N: class numbers, at least two different ones.
        seed: of the folds and of the initial weights.
        valid: features and classes on which the penalty is chosen.
        folds: of the cross-validation where there is no validation data; fewer where a class is that small.
        scale: bring every feature to mean 0 and deviation 1, so that the penalty treats all alike.
        penalties: inverse penalties to choose among; of a single one there is nothing to choose.
    """
    chance = np.random.default_rng(seed)
    if len(penalties) == 1:
        return LinearFit(_fitted(features_NF, classes_N, penalties[0], scale, chance), penalties[0], None)
    if valid is not None:
        fits = [_fitted(features_NF, classes_N, C, scale, chance) for C in penalties]
        scores = [float((fit.predict(valid[0]) == valid[1]).mean()) for fit in fits]
        best = int(np.argmax(scores))  # of equals the first, which is the simplest
        return LinearFit(fits[best], penalties[best], scores[best])
    rows = np.arange(len(classes_N))
    if len(rows) > CHOSEN_ON:
        rows = np.sort(chance.choice(rows, CHOSEN_ON, replace=False))
    folds = min(folds, int(np.unique(classes_N[rows], return_counts=True)[1].min()))
    if folds < 2:
        return LinearFit(_fitted(features_NF, classes_N, 1.0, scale, chance), 1.0, None)
    cut = StratifiedKFold(folds, shuffle=True, random_state=random_state(seed, "folds"))
    scores = [
        float(cross_val_score(_classifier(C, scale), features_NF[rows], classes_N[rows], cv=cut).mean())
        for C in penalties
    ]
    best = int(np.argmax(scores))
    return LinearFit(_fitted(features_NF, classes_N, penalties[best], scale, chance), penalties[best], scores[best])


def _classifier(C: float, scale: bool) -> Pipeline:
    return make_pipeline(*([StandardScaler()] if scale else []), LogisticRegression(C=C, max_iter=5000))


def _fitted(features_NF: Any, classes_N: Ints, C: float, scale: bool, chance: np.random.Generator) -> Pipeline:
    """Fitted from random initial weights; the problem is convex, so that they matter only within the tolerance."""
    pipeline = _classifier(C, scale)
    found = np.unique(classes_N)
    rows = 1 if len(found) == 2 else len(found)
    last = pipeline[-1].set_params(warm_start=True)
    last.coef_ = chance.normal(0, 0.1, size=(rows, features_NF.shape[1]))
    last.intercept_, last.classes_ = np.zeros(rows), found
    return pipeline.fit(features_NF, classes_N)


# Small networks


class AveragedClassifier(nn.Module):
    """log 1/K sum_k p(y | x_k), p a perceptron with leaky ReLU: of one point, or of K samples of a posterior."""

    def __init__(self, inputs: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.network = perceptron(inputs, hidden, layers, classes)

    def forward(self, x_BKF: Tensor) -> Tensor:
        return self.network(x_BKF).log_softmax(2).logsumexp(1) - math.log(x_BKF.shape[1])


Batches = Callable[[int], Iterable[tuple[Any, Tensor]]]


def train_network(
    network: nn.Module, batches: Batches, valid_batches: Batches, *, epochs: int = EPOCHS, patience: int = PATIENCE
) -> None:
    """Minimise cross-entropy with Adam; keep the weights of the best epoch on validation data.

    Args:
        network: inputs to log p(y | x), (B, classes).
        batches: inputs and class numbers of an epoch's batches.
        valid_batches: the same, for stopping.
        epochs: at most so many.
        patience: epochs without improvement after which it stops.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    best, best_weights, waited = math.inf, copy.deepcopy(network.state_dict()), 0
    for epoch in range(epochs):
        network.train()
        for inputs, classes_B in batches(epoch):
            optimizer.zero_grad()
            F.nll_loss(network(inputs), classes_B).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            losses = [F.nll_loss(network(inputs), c_B, reduction="none") for inputs, c_B in valid_batches(epoch)]
        loss = float(torch.cat(losses).double().mean())
        if loss < best - LEAST_GAIN:
            best, best_weights, waited = loss, copy.deepcopy(network.state_dict()), 0
        elif (waited := waited + 1) >= patience:
            break
    network.load_state_dict(best_weights)
    network.eval()


def network_predictions(
    train_NKF: NDArray[Any],
    train_N: Ints,
    valid_NKF: NDArray[Any],
    valid_N: Ints,
    test_NKF: NDArray[Any],
    *,
    hidden: int,
    layers: int,
    seed: int,
    device: torch.device | str = "cpu",
) -> Ints:
    """Classes that an `AveragedClassifier` predicts on test data, trained with early stopping on validation data.

    Features are scaled by their means and deviations in training. Everything random comes from the seed.
    """
    known_N = known(valid_N)
    scaler = StandardScaler().fit(train_NKF.reshape(-1, train_NKF.shape[2]))
    train, valid, test = (
        torch.from_numpy(scaler.transform(x.reshape(-1, x.shape[2])).reshape(x.shape).astype(np.float32)).to(device)
        for x in (train_NKF, valid_NKF[known_N], test_NKF)
    )
    train_y, valid_y = (torch.from_numpy(y).to(device) for y in (train_N, valid_N[known_N]))
    size = min(256, max(16, len(train) // 20))  # small data still make twenty steps an epoch
    order = torch.Generator().manual_seed(seed_of(seed, "order"))

    def batches(epoch: int) -> Iterable[tuple[Tensor, Tensor]]:
        for rows_B in torch.randperm(len(train), generator=order).to(device).split(size):
            yield train[rows_B], train_y[rows_B]

    def valid_batches(epoch: int) -> Iterable[tuple[Tensor, Tensor]]:
        return zip(valid.split(SCORED_AT_ONCE), valid_y.split(SCORED_AT_ONCE), strict=True)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initial weights"))
        network = AveragedClassifier(train.shape[2], hidden, layers, int(train_N.max()) + 1).to(device)
    train_network(network, batches, valid_batches)
    with torch.no_grad():
        return torch.cat([network(part).argmax(1) for part in test.split(SCORED_AT_ONCE)]).cpu().numpy()


def known(valid_N: Ints) -> Bools:
    """Which validation sentences have a class that training knows; only they can stop it."""
    if not (valid_N >= 0).any():
        raise TextspaceError("no validation sentence has a label that training knows: cut the text anew")
    return valid_N >= 0
