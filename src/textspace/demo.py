"""The demonstration: train on the built-in corpus, compare with the truth, and walk through the space."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from textspace.data.corpus import open_corpus
from textspace.data.english import english
from textspace.digits import number, plus_minus
from textspace.recipes import recipe
from textspace.space import Space
from textspace.train import checkpoints
from textspace.train.fit import train

__all__ = ["run"]

SOURCE = "builtin:20000"
EPOCHS = 8


def run(out: Path, *, seed: int, device: str | None, console: Console) -> None:
    """Train the `default` recipe for a few minutes on two cores, and print what it learned."""
    grammar = english()

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(
        f"The built-in corpus: sentences of a grammar with {len(grammar.vocabulary()):,} words and "
        f"{grammar.entropy():.2f} nats of entropy a sentence, so that the exact probability of every sentence is known."
    )
    chosen = recipe("default").but({"training.epochs": EPOCHS, "training.seed": seed})
    resume = checkpoints.newest(out) is not None
    if resume:
        say(f"Going on with what is in {out}; remove that folder to start anew.")
    trained = train(SOURCE, chosen, out, resume=resume, device=device, say=say)
    space = Space.load(out, device)
    texts = [record.text for record in open_corpus(SOURCE).splits["test"]]
    console.print(_table(space, texts, seed))

    shown = texts[:5]
    again = space.reconstruct(shown)
    console.print(_pairs("Reconstructions", ("sentence", "decoded from its code"), zip(shown, again, strict=True)))
    say("\nSamples from the prior")
    for text in space.sample(5, seed=seed):
        say(f"  {text}")
    say("\nFrom one sentence to another")
    for text in space.interpolate(texts[5], texts[6], steps=6):
        say(f"  {text}")
    say(
        f"\n{trained.parameters:,} parameters, {trained.steps:,} steps in {trained.seconds:.0f} s.\n"
        f"The space is in {out}, its curves in {out / 'curves.png'}. Try:\n"
        f'  textspace vary {out} "{shown[0]}"\n'
        f'  textspace neighbors {out} "{shown[0]}" --data builtin --split train\n'
        f"  textspace evaluate {out} --data builtin"
    )


def _table(space: Space, texts: list[str], seed: int) -> Table:
    measured = space.score(texts, samples=50, seed=seed)
    estimates = measured.estimates()
    exact_N = np.array([-english().log_prob(text) for text in texts])
    codes = space.examine(texts, seed=seed).numbers
    table = Table(title=f"\n{len(texts):,} test sentences, nats a sentence", box=None, title_justify="left")
    table.add_column("measure")
    table.add_column("value ± standard error", justify="right", no_wrap=True)
    for name in ("reconstruction", "kl", "elbo", "nll"):
        table.add_row(estimates[name].name, str(estimates[name]))
    table.add_row("exact -log p of the same sentences: no model can pass it", number(exact_N.mean()))
    if measured.nll_N is not None:
        gap_N = measured.nll_N - exact_N
        error = gap_N.std(ddof=1) / np.sqrt(len(gap_N))
        table.add_row("distance from perfect: the bound less the exact value", plus_minus(gap_N.mean(), error))
    table.add_row(estimates["nll_ppl_word"].name, str(estimates["nll_ppl_word"]))
    words = np.array([len(text.split()) + 1 for text in texts])
    table.add_row("exact perplexity per word", number(np.exp(exact_N.sum() / words.sum())))
    table.add_row("what a code tells about its sentence (mutual information, at least)", number(codes["mi"]))
    table.add_row(f"active units, of {space.dim}", number(codes["active_units"]))
    return table


def _pairs(title: str, heads: tuple[str, str], pairs: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=f"\n{title}", box=None, title_justify="left")
    for head in heads:
        table.add_column(head)
    for pair in pairs:
        table.add_row(*pair)
    return table
