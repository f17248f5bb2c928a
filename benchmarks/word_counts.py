"""Counts of words in the place of codes: what tasks on sentences need no network for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from textspace.evaluate.measures.classification_tasks import Prepared
from textspace.evaluate.measures.classifiers import accuracy
from textspace.evaluate.measures.pairs import KINDS, STS, TRAINED, correlation, together
from textspace.evaluate.measures.tasks import Pairs, read_pairs
from textspace.evaluate.measures.transfer import cross_validated, held_out, majority_of
from textspace.noise import seed_of
from textspace.types import Estimate

__all__ = ["pair_counts", "sentence_pairs_by_words", "transfer_by_words"]

WORDS = r"(?u)\w+"
"""What a word is, in lower case."""


def counts_of(texts: Sequence[str]) -> CountVectorizer:
    """A reader that knows the words of some texts."""
    return CountVectorizer(token_pattern=WORDS).fit(texts)


def pair_counts(u_NW: Any, v_NW: Any) -> Any:
    """(|u - v|, u * v) of sparse rows."""
    return sparse.hstack([abs(u_NW - v_NW), u_NW.multiply(v_NW)]).tocsr()


def sentence_pairs_by_words(folder: Path, seed: int) -> dict[str, Estimate]:
    """Cosines of word counts against people's scores, under the keys of the measure `sentence_pairs`."""
    found: dict[str, Estimate] = {}

    def add(key: str, name: str, values: dict[Any, Any]) -> None:
        for kind, value in values.items():
            told = f"{kind} correlation x 100 with people's scores, {name}, cosine of word counts"
            found[f"{key}_{kind.lower()}"] = Estimate(told, value.value, value.stderr, value.n, "none", "higher", {})

    def both(cosine_N: Any, scores_N: Any) -> dict[Any, Any]:
        return {kind: correlation(cosine_N, scores_N, kind, seed_of(seed, "sentence pairs")) for kind in KINDS}

    for year in STS:
        pairs = read_pairs(folder, f"sts/{year}", "sts")
        if pairs is None:
            continue
        cosine_N, groups_N = _cosines(pairs), np.array(pairs.groups)
        parts = [
            both(cosine_N[groups_N == group], pairs.scores_N[groups_N == group])
            for group in dict.fromkeys(pairs.groups)
        ]
        for key, weigh in (("mean", False), ("weighted", True)):
            values = {kind: together([part[kind] for part in parts], weigh) for kind in KINDS}
            add(f"{year.lower()}_{key}", f"{year}, {key} of subsets", values)
        add(f"{year.lower()}_pooled", f"{year}, all pairs pooled", both(cosine_N, pairs.scores_N))
    for task, name in TRAINED.items():
        pairs = read_pairs(folder, f"{task}/test", task)
        if pairs is not None:
            add(f"{name.lower().replace('-', '')}_cosine", f"{name} test", both(_cosines(pairs), pairs.scores_N))
    return found


def _cosines(pairs: Pairs) -> Any:
    reader = counts_of([*pairs.first, *pairs.second])
    u_NW, v_NW = (normalize(reader.transform(side)) for side in (pairs.first, pairs.second))
    return np.asarray(u_NW.multiply(v_NW).sum(1)).ravel()


def transfer_by_words(prepared: Prepared, seed: int) -> dict[str, Estimate]:
    """Accuracy of logistic regression on word counts of length 1, under the keys of the measure `transfer`.

    Pairs are compared, (|u - v|, u * v). Words are those of the training data; of all where folds share it.
    """
    form = prepared.forms[0]
    columns = {part: prepared.inputs(part, form) for part in prepared.parts}
    learnt = columns["train" if "train" in columns else "all"]
    reader = counts_of([str(text) for column in learnt for text in column])

    def features(part: str) -> Any:
        counts = [normalize(reader.transform([str(text) for text in column])) for column in columns[part]]
        return counts[0] if len(counts) == 1 else pair_counts(*counts)

    data = {part: (features(part), prepared.classes[part]) for part in prepared.parts}
    seed = seed_of(seed, "transfer", prepared.key)
    if "all" in data:
        found = cross_validated(*data["all"], seed=seed, scale=False)
    else:
        found = held_out(data["train"], data.get("valid"), data["test"], seed=seed, scale=False)
    name = f"accuracy (%) on {prepared.task.title}{form.title} of logistic regression on word counts"
    settings = {**prepared.settings, "dev": None if found.dev is None else 100 * found.dev}
    majority = majority_of(prepared, found.majority_N)
    return {prepared.key: accuracy(name, found.correct_N, settings), f"{prepared.key}_majority": majority}
