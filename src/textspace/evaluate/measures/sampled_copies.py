"""BLEU-1 of copies with sampled words, by the two protocols of SentenceMIM [Livne et al. 2020]."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.pairwise import partners
from textspace.evaluate.measures.reconstruction import originals_of, shown
from textspace.evaluate.statistics import OVER_SENTENCES, standard_error
from textspace.evaluate.text_metrics import sentence_bleu1_with_end
from textspace.generate import Sampling
from textspace.noise import seed_of
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "MOST_TOKENS", "PROTOCOLS", "sampled_copies"]

MOST_TOKENS = 100
"""Tokens of a copy and of its original that count, the end included, as in the public code."""

PROTOCOLS: dict[str, tuple[Literal["matches", "never"], str]] = {
    "public": ("never", "public code of Livne et al. 2020: the end is a token that never matches"),
    "paper": ("matches", "paper of Livne et al. 2020: the end is a token that matches"),
}
"""By the suffix of keys. The public code writes padding over the ends of the references and counts those of the copies,
and its README has its own numbers. The paper's are higher by what a matching end adds."""


def sampled_copies(subject: Subject) -> Findings:
    """Mean sentence BLEU-1 of test sentences decoded with sampled words from one posterior sample each, 0 to 1.

    A posterior without spread (an autoencoder's) has its points in place of samples. Perfect copies, and other real
    sentences in place of copies, show the range of each protocol.
    """
    test, originals = subject.test, originals_of(subject)
    kind: Literal["mean", "sample"] = "sample" if test.has_spread else "mean"
    made, ended_N = subject.space.decode_with_ends(
        test.codes(kind, originals.rows_N),
        method=Sampling(max_tokens=MOST_TOKENS),
        show_progress=subject.show_progress,
        seed=seed_of(subject.seed, "sampled words"),
    )
    count = len(originals.texts)
    every = np.ones(count, bool)
    copies: dict[str, tuple[str, list[str], NDArray[np.bool_]]] = {
        "bleu1": (f"sampled words from posterior {kind}s", made, ended_N),
        "bleu1_perfect": ("perfect copies, the most to be had", originals.texts, every),
    }
    for other_N in partners(count, 1, np.random.default_rng(seed_of(subject.seed, "other originals"))):
        others = [originals.texts[row] for row in other_N]
        copies["bleu1_other"] = ("other test sentences in place of copies", others, every)
    settings: Settings = {
        "decoding": "sampling, temperature 1",
        "code": kind,
        "most_tokens": MOST_TOKENS,
        "seed": subject.seed,
        "references": "test sentences, words unknown to the tokenizer written <unk>",
        "of": len(test),
        "error": OVER_SENTENCES,
    }
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    rows: list[Cells] = []
    for key, (words, texts, ends_N) in copies.items():
        for protocol, (end, about) in PROTOCOLS.items():
            bleu_N = sentence_bleu1_with_end(texts, ends_N, originals.texts, end, MOST_TOKENS)
            name = f"mean sentence BLEU-1 (0-1), {words} ({about})"
            value, error = float(bleu_N.mean()), standard_error(bleu_N)
            estimates[f"{key}_{protocol}"] = Estimate(name, value, error, count, "none", "higher", settings)
            per_sentence[f"{key}_{protocol}"] = bleu_N.tolist()
        rows.append((words, *(shown(estimates[f"{key}_{protocol}"]) for protocol in PROTOCOLS)))
    title = f"Mean sentence BLEU-1 (0-1) of {count:,} test sentences, the end counted as a token"
    table = Table(title, ("copies", "the end never matches (public code)", "the end matches (paper)"), tuple(rows))
    return Findings(estimates, {"sampled_copies": table}, per_sentence=per_sentence)


MEASURES: dict[str, Measure] = {
    "sampled_copies": Measure(
        sampled_copies,
        "BLEU-1 of copies whose codes and words are sampled, as SentenceMIM reports it in its paper and in its code.",
        needs=("codes",),
        suites=("full",),
    ),
}
