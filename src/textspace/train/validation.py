"""What a validation measures: likelihoods, the recipe's own objective, and how the codes are."""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textspace.config import IwaeObjective, Recipe, Training
from textspace.data.encoded import EncodedSplit
from textspace.digits import number
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.minibatches import minibatch_information
from textspace.evaluate.posterior import posterior_statistics
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.noise import seed_of
from textspace.objectives import Objective
from textspace.schedules import FINAL
from textspace.train.processes import Processes
from textspace.train.stream import BatchStream
from textspace.types import Pass

__all__ = ["Validation", "validate"]

SHOWN = (
    *("objective", "nll", "elbo", "dual_elbo", "mim", "reconstruction", "kl", "dual_kl"),
    *("mi", "active_units", "feature_cosine"),
)
"""Numbers of a validation that are displayed."""
COMPARED = 10_000
"""Sentences at most whose batch terms, such as MMD, are measured."""


class Validation(dict[str, float]):
    """Numbers by name, nats per sentence; `weights` are those of the objective's terms at the end of all schedules."""

    weights: dict[str, float]

    def shown(self) -> str:
        """The numbers that are displayed."""
        return "  ".join(f"{name} {number(self[name])}" for name in SHOWN if name in self)


Collected = list[tuple[Tensor, Tensor]]
"""Rows, and what was computed of them."""


class _Watched:
    """The terms of an objective, collected from the passes that scoring makes anyway; one sample a sentence."""

    def __init__(self, objective: Objective, training: Training, split: EncodedSplit, processes: Processes) -> None:
        self.objective, self.training, self.split, self.processes = objective, training, split, processes
        self.weights: dict[str, float] = {}
        self._of_sentences: dict[str, Collected] = defaultdict(list)
        self._shared: dict[str, Collected] = defaultdict(list)

    def see(self, passed: Pass) -> None:
        """Keep the terms of some sentences, and what batch terms need of them."""
        rows_B = passed.batch.rows_B
        terms = self.objective(passed, FINAL)
        self.weights |= terms.weights
        for name, term in terms.terms.items():
            if term.per == "sentence":
                self._of_sentences[name].append((rows_B, term.values))
        if self.objective.batch_terms:
            for name, values in self.objective.shared(passed.sites, passed.noise).items():
                self._shared[name].append((rows_B, values))

    def numbers(self) -> tuple[dict[str, float], float]:
        """The mean of each term over all sentences, and the objective: their weighted sum, averaged as in training."""
        widths = [{name: kept[0][1].shape[1:] for name, kept in each.items()} for each in self._all]
        # Of few sentences a process may have had none: the first that had some knows what there is.
        found = next(each for each in self.processes.each((*widths, self.weights)) if each[0])
        of_sentences, shared, self.weights = found
        every = np.arange(len(self.split))
        columns = {name: self._gathered(self._of_sentences[name], width, every) for name, width in of_sentences.items()}
        means = {name: float(values_N.mean()) for name, values_N in columns.items()}
        averaged = dict(means)
        if self.training.average == "tokens":
            tokens_N = torch.from_numpy(self.split.lengths - 1)
            averaged = {name: float((values_N.cpu() / tokens_N).mean()) for name, values_N in columns.items()}
        of_batches = self._of_batches(shared) if shared else {}
        means, averaged = means | of_batches, averaged | of_batches
        for name in averaged.keys() & {"dual_kl", "dual_marginal_kl"}:
            averaged[name] = max(averaged[name], 0.0)  # no KL is below 0: a dual function that fits badly is no gain
        return means, sum(weight * averaged[name] for name, weight in self.weights.items())

    def _of_batches(self, shared: dict[str, Any]) -> dict[str, float]:
        """The mean of each batch term over random batches as large as those of training."""
        batch = self.training.batch
        size = batch.sentences or max(2, round((batch.tokens or 0) / float(self.split.lengths.mean())))
        chosen = np.random.default_rng(0).permutation(some_rows(len(self.split), COMPARED))
        rows = {name: self._gathered(self._shared[name], width, chosen).float() for name, width in shared.items()}
        found: dict[str, float] = defaultdict(float)
        for places in np.array_split(np.arange(len(chosen)), max(1, round(len(chosen) / size))):
            for name, term in self.objective.batched({name: rows[name][places] for name in rows}).items():
                found[name] += float(term.values) * len(places) / len(chosen)
        return dict(found)

    @property
    def _all(self) -> tuple[dict[str, Collected], dict[str, Collected]]:
        return self._of_sentences, self._shared

    def _gathered(self, kept: Collected, width: Any, chosen: NDArray[np.int64]) -> Tensor:
        """The values of the chosen rows in their order, in float64, with what other processes have."""
        device = self.processes.device
        place_N = torch.full((len(self.split),), len(chosen), device=device)
        place_N[torch.from_numpy(chosen).to(device)] = torch.arange(len(chosen), device=device)
        # One row more takes those that were not chosen.
        gathered = torch.zeros((len(chosen) + 1, *width), dtype=torch.float64, device=device)
        for rows_B, values in kept:
            gathered[place_N[rows_B]] = values.double()
        return self.processes.sum(gathered[:-1])


@torch.no_grad()
def validate(
    model: Model, split: EncodedSplit, recipe: Recipe, objective: Objective, processes: Processes
) -> Validation:
    """Measure a model on the validation split, with noise of its own that is the same every time."""
    seed = seed_of(recipe.training.seed, "validation")
    # The importance-weighted objective is not a mean over chunks of samples, so that scoring computes it.
    is_weighted = isinstance(recipe.objective, IwaeObjective)
    watched = None if is_weighted else _Watched(objective, recipe.training, split, processes)
    with _without_kernels(processes.device):
        measured = likelihood(
            model,
            split,
            samples=recipe.objective.samples if isinstance(recipe.objective, IwaeObjective) else 0,
            seed=seed,
            share=(processes.rank, processes.count),
            precision=recipe.training.precision,
            watch=None if watched is None else watched.see,
        )
    estimates = measured.summed_with(processes.sum).estimates()
    numbers = {name: estimate.value for name, estimate in estimates.items()}
    terms, value = ({}, numbers["nll"]) if watched is None else watched.numbers()
    found = Validation({"objective": value} | terms | numbers | _codes_measured(model, split, recipe, seed, processes))
    found.weights = {"iw_bound": 1.0} if watched is None else watched.weights
    return found


_OF_CODES = (
    "mi",
    "mi_minibatch",
    "active_units",
    "token_kl",
    "feature_cosine",
    "hoyer_samples",
    "hoyer_means",
    "marginal_kl",
)
"""Numbers of the codes that a validation has."""


def _codes_measured(
    model: Model, split: EncodedSplit, recipe: Recipe, seed: int, processes: Processes
) -> dict[str, float]:
    """Whether the posterior has collapsed, and how sparse codes are; measured by the first process for all."""
    if model.posterior is None:
        return {}
    numbers = dict.fromkeys(_OF_CODES, 0.0)
    if processes.first:
        statistics = posterior_statistics(model, split, seed=seed)
        estimates = statistics.estimates() if statistics else {}
        within = minibatch_information(
            model, split, BatchStream(split, recipe.training.batch, seed=seed).plan, seed=seed
        )
        estimates |= {"mi_minibatch": within} if statistics and within else {}
        numbers = {name: estimates[name].value if name in estimates else math.nan for name in _OF_CODES}
    values = processes.sum(torch.tensor(list(numbers.values()), dtype=torch.float64, device=processes.device))
    return {name: v for name, v in zip(numbers, values.tolist(), strict=True) if not math.isnan(v)}


def _without_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Our own kernels take seconds to compile, longer than it takes to score every sentence once without them."""
    if device.type != "cuda":
        return nullcontext()
    from textspace import gpu_kernels

    return gpu_kernels.switched_off()
