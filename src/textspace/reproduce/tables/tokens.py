"""Codes of tokens: likeness of sentences and transfer, after training on general English."""

from __future__ import annotations

from textspace.reproduce.table import Column, Row, Table, printed

__all__ = ["ENGLISH"]

_PAIRS = {f"STS{year}": f"sentence_pairs.sts{year}_mean_spearman" for year in (12, 13, 14, 15, 16)}
_PAIRS |= {"STS-B": "sentence_pairs.stsb_softmax_spearman", "SICK-R": "sentence_pairs.sickr_softmax_spearman"}
_TASKS = {"MR": "mr", "CR": "cr", "SST2": "sst2_phrases", "SST5": "sst5", "TREC": "trec", "MRPC": "mrpc_joined"}
_TASKS |= {"SICK-E": "sick_e_joined"}


def _summed(label: str, key: str) -> Column:
    """Of summed codes of tokens, or of the one code of a sentence."""
    return Column(f"{key}_sum", label, otherwise=key)


_COLUMNS = (
    *(_summed(label, key) for label, key in _PAIRS.items()),
    *(_summed(label, f"transfer.{task}") for label, task in _TASKS.items()),
)
_TABLES_4_AND_5 = printed(
    "vat 45.60 45.43 52.07 55.45 58.13 51.56 48.88 60.5 65.7 62.6 32.2 54.8 68.5 66.6",
    " ".join(column.key for column in _COLUMNS),
)

_SHORT = {"training.steps": 3000}
_FULL_WEIGHT = _SHORT | {"objective.kl_weight.end": 1.0}
_SWEEP = tuple(
    Row(f"short-{scale:.1f}", "vat", {"prior.scale": scale, **_SHORT}, in_paper=f"figure 3, s = {scale:g}")
    for scale in (0.1, 0.2, 0.4, 0.6, 1.0)
)
"""Which differ in the prior's width alone."""

ENGLISH = Table(
    name="tokens-english",
    about="A code for every token, learnt from general English: likeness of sentences, and transfer.",
    paper="VAT paper, tables 4 and 5",
    corpus="english",
    columns=(
        *_COLUMNS,
        Column("reconstruction", "reconstruction"),
        Column("kl", "KL"),
        Column("isotropy.random_cosine", "cosine of random tokens"),
    ),
    rows=(
        Row("vat", "vat", paper=_TABLES_4_AND_5["vat"], in_paper="VAT-sum, s = 0.4"),
        *_SWEEP,
        *(
            Row(
                f"full-weight-{scale:.1f}",
                "vat",
                {"prior.scale": scale, **_FULL_WEIGHT},
                in_paper=f"figure 2, s = {scale:g}, annealing",
            )
            for scale in (0.4, 1.0)
        ),
        *(
            Row(
                f"vat-printed-{scale:.1f}",
                "vat-printed",
                {"prior.scale": scale, **_SHORT},
                in_paper=f"figure 3, s = {scale:g}, the loss as printed",
            )
            for scale in (0.2, 0.4, 0.6)
        ),
        Row("transformer-vae", "transformer-vae", _SHORT, in_paper="one code for each sentence"),
    ),
    settings={"text.max_tokens": 96, "text.over_long": "truncate"},
    measures=("sentence_pairs", "transfer", "isotropy"),
    samples=2,
    tasks=True,
    notes=(
        "The text is 0.7 million sentences of general English (benchmarks.general_english), the paper's WMT19.",
        "STS12 to STS16: mean over subsets of Spearman's correlation x 100 with the cosine of codes; STS-B and SICK-R "
        "by a trained regressor, as SentEval does: the paper's differ between mean and sum, so are no cosines.",
        "vat is trained for 3 epochs (15,810 steps), all others for 3,000 steps, with the schedules of the whole run.",
        "vat-printed draws noise from N(0, s^2) and pays the KL without it, as the paper prints its loss; at s = 1 "
        "that is full-weight-1.0. KL is that of the codes.",
        "What is not a space (a masked language model, word counts) is a row of benchmarks.token_tables.",
    ),
)
