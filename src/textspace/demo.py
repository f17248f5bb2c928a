"""The demonstration: train on the built-in corpus, and compare the likelihood with the exact one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from textspace.data.corpus import open_corpus
from textspace.data.english import english
from textspace.evaluate.likelihood import likelihood
from textspace.folder import load
from textspace.recipes import recipe
from textspace.train.fit import prepare, train
from textspace.train.processes import Processes

__all__ = ["run"]

SOURCE = "builtin:20000"
SETTINGS = {
    "text.tokenizer.min_count": 2,
    "encoder.embedding": 128,
    "encoder.hidden": 192,
    "decoder.embedding": 128,
    "decoder.hidden": 192,
    "decoder.input_dropout": 0.2,
    "decoder.output_dropout": 0.2,
    "initial.weights": None,
    "objective.kl_weight": {"kind": "linear", "start": 0.0, "end": 1.0, "over": 4, "unit": "epochs"},
    "training.optimizer": {"kind": "adam", "lr": 0.002},
    "training.epochs": 8,
}


def run(out: Path, *, seed: int, device: str | None, console: Console) -> None:
    """Train the `vae` recipe at a size that takes two cores a few minutes; print what it learned."""
    grammar = english()
    console.print(
        f"The built-in corpus: sentences of a grammar with {len(grammar.vocabulary()):,} words and an entropy of "
        f"{grammar.entropy():.2f} nats a sentence, so the exact probability of every sentence is known.",
        highlight=False,
    )
    chosen = recipe("vae").but({**SETTINGS, "training.seed": seed})
    trained = train(SOURCE, chosen, out, device=device, say=lambda line: console.print(line, highlight=False))

    saved = load(out, str(Processes(device).device))
    test = prepare(open_corpus(SOURCE), chosen, tokenizer=saved.tokenizer).encoded.splits["test"]
    measured = likelihood(saved.model, test, samples=50, seed=seed)
    exact_N = np.array([-grammar.log_prob(test.text(row)) for row in range(len(test))])
    estimates = measured.estimates()

    table = Table(title=f"{len(test):,} test sentences, nats a sentence", box=None, title_justify="left")
    table.add_column("measure")
    table.add_column("value ± standard error", justify="right")
    for name in ("reconstruction", "kl", "elbo", "nll"):
        table.add_row(estimates[name].name, str(estimates[name]))
    table.add_row("exact -log p of the same sentences: no model can pass it", f"{exact_N.mean():.2f}")
    if measured.nll_N is not None:
        gap_N = measured.nll_N - exact_N
        table.add_row(
            "distance from perfect: the bound less the exact value",
            f"{gap_N.mean():.2f} ± {gap_N.std(ddof=1) / np.sqrt(len(gap_N)):.2f}",
        )
    table.add_row(estimates["nll_ppl_word"].name, str(estimates["nll_ppl_word"]))
    console.print(table)
    console.print(
        f"{trained.parameters:,} parameters, {trained.steps:,} steps in {trained.seconds:.0f} s. "
        f"The space is in {out}, its curves in {out / 'curves.png'}.",
        highlight=False,
    )
