"""A table of the built-in corpus that trains in a minute: a quick look at how tables are reproduced."""

from __future__ import annotations

from textspace.reproduce.table import Column, Row, Table

__all__ = ["TINY"]

_SMALL = {
    "training.optimizer": {"kind": "adam", "lr": 5e-3},
    "training.checkpoint_every": 20,
    "initial.weights": None,
    "latent.dim": 8,
    "decoder.embedding": 16,
    "decoder.hidden": 32,
}
_BOTH = {"encoder.embedding": 16, "encoder.hidden": 32}
_TRUTH = {"nll_ppl_word": 10.86}
"""Of the grammar itself on the 60 test sentences."""

TINY = Table(
    name="tiny",
    about="Three small spaces of the built-in corpus, in a minute and without data: a quick look.",
    paper="none; in its place stands the exact perplexity of the sentences",
    corpus="builtin:600",
    columns=(
        Column("nll_ppl_word", "PPL"),
        Column("reconstruction", "reconstruction"),
        Column("kl", "KL"),
        Column("active_units", "AU"),
        Column("mi", "MI"),
    ),
    rows=(
        Row("vae", "vae", _BOTH, seeds=2, paper=_TRUTH),
        Row("pretrain-free-bits", "pretrain-free-bits", _BOTH, paper=_TRUTH),
        Row("lstm-lm", "lstm-lm", paper=_TRUTH),
        Row("truth", paper=_TRUTH, in_paper="a row that is only quoted"),
    ),
    settings=_SMALL,
    epochs=8,
    samples=20,
    by_epoch=(Column("kl", "KL"), Column("feature_cosine", "mean cosine of features")),
    drawn=("vae", "pretrain-free-bits"),
)
