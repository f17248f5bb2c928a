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
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.classifiers import Settings, one_thread
from textspace.evaluate.measures.sentence_encoders import SentenceEncoder, TaskCodes, encoders_of, put
from textspace.evaluate.measures.tasks import Pairs, Screen, folder_of, read_pairs
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate

__all__ = [
    "MEASURES",
    "Correlation",
    "correlation",
    "cosines",
    "expected_scores",
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
"""Of ridge regression."""
SOFTMAX_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Inverse, as scikit-learn has them."""


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


@one_thread
def expected_scores(
    train_NF: Floats, scores_N: Floats, test_NF: Floats, valid: tuple[Floats, Floats] | None, *, seed: int
) -> Floats:
    """Scores that a softmax over the whole scores expects, sum_k k p(k | u, v) [Tai et al. 2015].

    A score of 3.4 is taught as 3 with weight 0.6 and 4 with weight 0.4. The penalty is that of the highest correlation
    with the scores of validation pairs, or else of every fifth training pair, left out for that.
    """
    if valid is None:
        held_N = np.random.default_rng(seed).permutation(len(scores_N)) % 5 == 0
        valid, chosen_from = (train_NF[held_N], scores_N[held_N]), (train_NF[~held_N], scores_N[~held_N])
    else:
        chosen_from = train_NF, scores_N
    found = [
        correlation(_softmax_scores(*chosen_from, valid[0], C), valid[1], "Pearson", seed).value
        for C in SOFTMAX_PENALTIES
    ]
    return _softmax_scores(train_NF, scores_N, test_NF, SOFTMAX_PENALTIES[int(np.argmax(found))])


def _softmax_scores(train_NF: Floats, scores_N: Floats, test_NF: Floats, C: float) -> Floats:
    below_N = np.floor(scores_N)
    above_N = scores_N - below_N
    classes_M, weights_M = np.concatenate([below_N, below_N + 1]), np.concatenate([1 - above_N, above_N])
    taught_M = weights_M > 0
    scaler = StandardScaler().fit(train_NF)
    features_MF = np.concatenate([scaler.transform(train_NF)] * 2)[taught_M]
    model = LogisticRegression(C=C, max_iter=1000).fit(features_MF, classes_M[taught_M], weights_M[taught_M])
    return np.asarray(model.predict_proba(scaler.transform(test_NF)) @ model.classes_)


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

    STS12 to STS16 by the cosine of mean codes, without any training; STS-B and SICK-R by cosine and by two regressors
    on (|u - v|, u * v): ridge, and a softmax whose expectation is the score, as SentEval has it. Pairs with a sentence
    the space was trained on are left out of what is tested and counted.
    """
    folder, screen, found = folder_of(subject), Screen.of(subject), _Found(subject)
    for task in track([*STS, *TRAINED], "sentence pairs", subject.show_progress, len(STS) + len(TRAINED)):
        if task in STS:
            _by_subset(task, read_pairs(folder, f"sts/{task}", "sts"), screen, found)
        else:
            parts = {part: read_pairs(folder, f"{task}/{part}", task) for part in ("train", "valid", "test")}
            _with_training(TRAINED[task], parts, screen, found)
    if not found.rows:
        raise TextspaceError(f"{str(folder)!r} has no files of sentence pairs, like sts/STS12.tsv and stsb/test.tsv")
    return found.findings()


class _Found:
    """Estimates and rows of the table as they are found."""

    columns = ("task", "codes of", "pairs", "Spearman x 100", "± Spearman", "Pearson x 100", "± Pearson")

    def __init__(self, subject: Subject) -> None:
        self.encoders = encoders_of(subject)
        self.seed = seed_of(subject.seed, "sentence pairs")
        self.subject_seed = subject.seed
        self.estimates: dict[str, Estimate] = {}
        self.rows: list[Cells] = []

    def both(self, a_N: Floats, b_N: Floats) -> dict[Kind, Correlation]:
        return {kind: correlation(a_N, b_N, kind, self.seed) for kind in KINDS}

    def add(
        self, key: str, name: str, encoder: SentenceEncoder, values: Mapping[Kind, Correlation], settings: Settings
    ) -> None:
        self.row(name, encoder, values)
        settings = {**settings, "codes": encoder.codes, "seed": self.subject_seed}
        settings["error"] = f"deviation over {RESAMPLES} resamples of the pairs"
        for kind, value in values.items():
            whole = f"{kind} correlation x 100 with people's scores, {name}, {encoder.codes}"
            estimate = Estimate(whole, value.value, value.stderr, value.n, "none", "higher", settings)
            put(self.estimates, f"{key}_{kind.lower()}", encoder, estimate)

    def row(self, name: str, encoder: SentenceEncoder, values: Mapping[Kind, Correlation]) -> None:
        spearman, pearson = values["Spearman"], values["Pearson"]
        numbers = spearman.value, spearman.stderr, pearson.value, pearson.stderr
        self.rows.append((name, encoder.title, spearman.n, *numbers))

    def findings(self) -> Findings:
        table = Table("Likeness of sentences: codes against people", self.columns, tuple(self.rows))
        return Findings(self.estimates, {"sentence_pairs": table})


def _by_subset(name: str, pairs: Pairs | None, screen: Screen, found: _Found) -> None:
    """One year of STS: each subset, their mean, their mean weighted by pairs, and all pairs as one."""
    if pairs is None:
        return
    kept, dropped = screen.without_training(pairs, name)
    for encoder in found.encoders:
        coded = TaskCodes.of(encoder, [*kept.first, *kept.second])
        cosine_N = cosines(coded.codes(kept.first), coded.codes(kept.second))
        parts: dict[Kind, list[Correlation]] = {kind: [] for kind in KINDS}
        for group in dict.fromkeys(kept.groups):
            in_group_N = np.array([own == group for own in kept.groups])
            values = found.both(cosine_N[in_group_N], kept.scores_N[in_group_N])
            found.row(f"{name} {group}, cosine", encoder, values)
            for kind in KINDS:
                parts[kind].append(values[kind])
        settings: Settings = {**dropped, **coded.writing.settings, "subsets": len(parts["Pearson"])}
        mean = {kind: together(parts[kind], weigh=False) for kind in KINDS}
        weighted = {kind: together(parts[kind], weigh=True) for kind in KINDS}
        pooled = found.both(cosine_N, kept.scores_N)
        for key, how, values in (
            ("mean", "mean of subsets", mean),
            ("weighted", "pair-weighted mean of subsets", weighted),
            ("pooled", "all pairs pooled", pooled),
        ):
            found.add(f"{name.lower()}_{key}", f"{name} by cosine, {how}", encoder, values, settings)


def _with_training(name: str, parts: Mapping[str, Pairs | None], screen: Screen, found: _Found) -> None:
    """STS-B or SICK-R: cosine on the test pairs, and regressors fitted on the training pairs."""
    train, valid, test = parts["train"], parts["valid"], parts["test"]
    if test is None:
        return
    kept, dropped = screen.without_training(test, name)
    read = [pairs for pairs in (train, valid, kept) if pairs is not None]
    key = name.lower().replace("-", "")
    for encoder in found.encoders:
        coded = TaskCodes.of(encoder, [text for pairs in read for text in (*pairs.first, *pairs.second)])
        settings: Settings = {**dropped, **coded.writing.settings}

        def both(pairs: Pairs, coded: TaskCodes = coded) -> tuple[Floats, Floats]:
            return coded.codes(pairs.first), coded.codes(pairs.second)

        values = found.both(cosines(*both(kept)), kept.scores_N)
        found.add(f"{key}_cosine", f"{name} test by cosine", encoder, values, settings)
        if train is None:
            continue
        train_NF, test_NF = pair_features(*both(train)), pair_features(*both(kept))
        settings |= {"trained_on": len(train)}
        ridge: Settings = {"regressor": "ridge on scaled (|u - v|, u * v), penalty by leave-one-out"}
        values = found.both(regressed(train_NF, train.scores_N, test_NF), kept.scores_N)
        title = f"{name} test by ridge regression on (|u - v|, u * v)"
        found.add(f"{key}_regressor", title, encoder, values, settings | ridge)
        chosen_on = None if valid is None else (pair_features(*both(valid)), valid.scores_N)
        predicted_N = expected_scores(train_NF, train.scores_N, test_NF, chosen_on, seed=found.seed)
        on = "a fifth of the training pairs" if valid is None else "validation pairs"
        softmax: Settings = {
            "regressor": f"softmax over whole scores on scaled (|u - v|, u * v), penalty chosen on {on}"
        }
        title = f"{name} test by the expectation of a softmax on (|u - v|, u * v), as SentEval"
        values = found.both(predicted_N, kept.scores_N)
        found.add(f"{key}_softmax", title, encoder, values, settings | softmax)


MEASURES = {
    "sentence_pairs": Measure(
        sentence_pairs,
        "Whether codes are near where people find sentences alike.",
        ("codes", "files"),
        has_baselines=True,
    )
}
