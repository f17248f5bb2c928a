"""Pairs of sentences whose likeness people judged: by the cosine of codes, and by a regressor on both codes.

The files are looked for in one folder: sts/STS12.tsv to sts/STS16.tsv, stsb/train.tsv and so on (also with .gz).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Subject, Table
from textspace.evaluate.measures.classifiers import Settings
from textspace.evaluate.measures.tasks import Coder, Pairs, Screen, folder_of, read_pairs
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate

__all__ = [
    "MEASURES",
    "Correlation",
    "correlation",
    "cosines",
    "pair_features",
    "regressed",
    "sentence_pairs",
    "together",
]

Floats = NDArray[np.float64]
Kind = Literal["Spearman", "Pearson"]
KINDS: tuple[Kind, ...] = ("Spearman", "Pearson")

STS = ("STS12", "STS13", "STS14", "STS15", "STS16")
TRAINED = {"stsb": "STS-B", "sick": "SICK-R"}

RESAMPLES = 200
"""Of the pairs with replacement, from which errors of correlations come."""

CONSTANT = 1e-6
"""Numbers that differ by less are the rounding of one number: nothing correlates with them."""

PENALTIES = tuple(10.0**k for k in range(-2, 6))


# On arrays


@dataclass(frozen=True)
class Correlation:
    """A correlation x 100, its standard error over pairs (none where a side is constant), and the number of pairs."""

    value: float
    stderr: float | None
    n: int


def cosines(u_NZ: Floats, v_NZ: Floats) -> Floats:
    """Of each row of u with the same row of v; 0 where either is zero."""
    lengths_N = np.linalg.norm(u_NZ, axis=1) * np.linalg.norm(v_NZ, axis=1)
    return (u_NZ * v_NZ).sum(1) / np.maximum(lengths_N, 1e-24)


def pair_features(u_NZ: Floats, v_NZ: Floats) -> Floats:
    """(|u - v|, u * v) of each pair [Tai et al. 2015; Conneau and Kiela 2018]."""
    return np.concatenate([np.abs(u_NZ - v_NZ), u_NZ * v_NZ], axis=1)


def regressed(train_NF: Floats, scores_N: Floats, test_NF: Floats) -> Floats:
    """Scores that ridge regression on scaled features predicts; the penalty is chosen by leaving one out."""
    model = make_pipeline(StandardScaler(), RidgeCV(alphas=PENALTIES)).fit(train_NF, scores_N)
    return np.asarray(model.predict(test_NF))


def correlation(a_N: Floats, b_N: Floats, kind: Kind, seed: int = 0) -> Correlation:
    """Pearson's r, or Spearman's (ties share their mean rank), x 100; 0 where either side is constant.

    The error is the deviation over resamples of the pairs.
    """
    n = len(a_N)
    if n < 2 or np.ptp(a_N) < CONSTANT or np.ptp(b_N) < CONSTANT:
        return Correlation(0.0, None, n)
    rows_RN = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    with np.errstate(invalid="ignore"):  # a resample of a few pairs may be constant
        spread = np.nanstd(_correlations(a_N[rows_RN], b_N[rows_RN], kind), ddof=1)
    return Correlation(float(_correlations(a_N[None], b_N[None], kind)[0]), float(spread), n)


def _correlations(a_RN: Floats, b_RN: Floats, kind: Kind) -> Floats:
    if kind == "Spearman":
        a_RN, b_RN = rankdata(a_RN, axis=1), rankdata(b_RN, axis=1)
    a_RN, b_RN = a_RN - a_RN.mean(1, keepdims=True), b_RN - b_RN.mean(1, keepdims=True)
    return 100 * (a_RN * b_RN).sum(1) / np.sqrt((a_RN**2).sum(1) * (b_RN**2).sum(1))


def together(parts: Sequence[Correlation], weigh: bool) -> Correlation:
    """The mean of correlations of separate subsets, each counting once or as often as it has pairs."""
    sizes = np.array([part.n for part in parts], float)
    weights = sizes / sizes.sum() if weigh else np.full(len(parts), 1 / len(parts))
    errors = [part.stderr for part in parts]
    known = [error for error in errors if error is not None]
    stderr = None if len(known) < len(errors) else float(np.sqrt((weights**2 * np.square(known)).sum()))
    return Correlation(float(weights @ [part.value for part in parts]), stderr, int(sizes.sum()))


# The measure


def sentence_pairs(subject: Subject) -> Findings:
    """Whether codes are near where people find sentences alike [VAT paper, table 4; Conneau and Kiela 2018].

    STS12 to STS16 by the cosine of mean codes, without any training; STS-B and SICK-R by cosine and by ridge regression
    on (|u - v|, u * v) (SentEval's regressor is a softmax whose expectation is the score). Pairs with a sentence the
    space was trained on are left out of what is tested and counted.
    """
    folder, screen, found = folder_of(subject), Screen.of(subject), _Found(subject)
    for task in track([*STS, *TRAINED], "sentence pairs", subject.show_progress, len(STS) + len(TRAINED)):
        if task in STS:
            _by_subset(task, read_pairs(folder, f"sts/{task}", "sts"), screen, found)
        else:
            train, test = (read_pairs(folder, f"{task}/{part}", task) for part in ("train", "test"))
            _with_training(TRAINED[task], train, test, screen, found)
    if not found.rows:
        raise TextspaceError(f"{str(folder)!r} has no files of sentence pairs, like sts/STS12.tsv and stsb/test.tsv")
    return found.findings()


class _Found:
    """Estimates and rows of the table as they are found."""

    columns = ("task", "pairs", "Spearman x 100", "± Spearman", "Pearson x 100", "± Pearson")

    def __init__(self, subject: Subject) -> None:
        self.space = subject.space
        self.seed = seed_of(subject.seed, "sentence pairs")
        self.subject_seed = subject.seed
        self.estimates: dict[str, Estimate] = {}
        self.rows: list[tuple[str | float | None, ...]] = []

    def both(self, a_N: Floats, b_N: Floats) -> dict[Kind, Correlation]:
        return {kind: correlation(a_N, b_N, kind, self.seed) for kind in KINDS}

    def add(self, key: str, name: str, values: Mapping[Kind, Correlation], settings: Settings) -> None:
        self.row(name, values)
        for kind, value in values.items():
            self.estimates[f"{key}_{kind.lower()}"] = Estimate(
                f"{kind} correlation x 100 with people's scores, {name}",
                value.value,
                value.stderr,
                value.n,
                "none",
                "higher",
                {**settings, "seed": self.subject_seed, "error": f"deviation over {RESAMPLES} resamples of the pairs"},
            )

    def row(self, name: str, values: Mapping[Kind, Correlation]) -> None:
        spearman, pearson = values["Spearman"], values["Pearson"]
        self.rows.append((name, spearman.n, spearman.value, spearman.stderr, pearson.value, pearson.stderr))

    def findings(self) -> Findings:
        table = Table("Likeness of sentences: codes against people", self.columns, tuple(self.rows))
        return Findings(self.estimates, {"sentence_pairs": table})


def _by_subset(name: str, pairs: Pairs | None, screen: Screen, found: _Found) -> None:
    """One year of STS: each subset, their mean, their mean weighted by pairs, and all pairs as one."""
    if pairs is None:
        return
    kept, settings = screen.without_training(pairs)
    coder = Coder.of(found.space, [*kept.first, *kept.second])
    cosine_N = cosines(coder.codes(kept.first), coder.codes(kept.second))
    parts: dict[Kind, list[Correlation]] = {kind: [] for kind in KINDS}
    for group in dict.fromkeys(kept.groups):
        in_group_N = np.array([own == group for own in kept.groups])
        values = found.both(cosine_N[in_group_N], kept.scores_N[in_group_N])
        found.row(f"{name} {group}, cosine", values)
        for kind in KINDS:
            parts[kind].append(values[kind])
    settings = {**settings, **coder.settings, "codes": "posterior means", "subsets": len(parts["Pearson"])}
    key = name.lower()
    mean = {kind: together(parts[kind], weigh=False) for kind in KINDS}
    weighted = {kind: together(parts[kind], weigh=True) for kind in KINDS}
    found.add(f"{key}_mean", f"{name} by cosine, mean of subsets", mean, settings)
    found.add(f"{key}_weighted", f"{name} by cosine, pair-weighted mean of subsets", weighted, settings)
    pooled = found.both(cosine_N, kept.scores_N)
    found.add(f"{key}_pooled", f"{name} by cosine, all pairs pooled", pooled, settings)


def _with_training(name: str, train: Pairs | None, test: Pairs | None, screen: Screen, found: _Found) -> None:
    """STS-B or SICK-R: cosine on the test pairs, and a regressor fitted on the training pairs."""
    if test is None:
        return
    kept, settings = screen.without_training(test)
    sets = [kept] if train is None else [kept, train]
    coder = Coder.of(found.space, [text for pairs in sets for text in (*pairs.first, *pairs.second)])
    settings = {**settings, **coder.settings, "codes": "posterior means"}
    key = name.lower().replace("-", "")
    u_NZ, v_NZ = coder.codes(kept.first), coder.codes(kept.second)
    found.add(f"{key}_cosine", f"{name} test by cosine", found.both(cosines(u_NZ, v_NZ), kept.scores_N), settings)
    if train is None:
        return
    train_NF = pair_features(coder.codes(train.first), coder.codes(train.second))
    predicted_N = regressed(train_NF, train.scores_N, pair_features(u_NZ, v_NZ))
    settings |= {"regressor": "ridge on scaled (|u - v|, u * v), penalty by leave-one-out", "trained_on": len(train)}
    title = f"{name} test by ridge regression on (|u - v|, u * v)"
    found.add(f"{key}_regressor", title, found.both(predicted_N, kept.scores_N), settings)


MEASURES = {
    "sentence_pairs": Measure(
        sentence_pairs, "Whether codes are near where people find sentences alike.", ("codes", "files")
    )
}
