"""Whether what lies between two sentences of a corpus is of that corpus, in a space that has learnt from several.

    python -m benchmarks.domains CORPORA ptb yelp_short flickr30k --space SPACE --pairs 200 --out FOLDER

A classifier of words, trained on the corpora's own sentences, tells of which corpus a sentence is. It judges decoded
sentences as it judges real ones: test sentences, their copies, and the steps of ways between two test sentences of one
corpus (ends are posterior samples, four steps in between, as in table 10 of the sentenceMIM paper) and of two.
Where a space has no place between them, steps of ways within a corpus fall into others, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import record
from textspace.data.corpus import open_corpus
from textspace.evaluate.statistics import standard_error
from textspace.paths import interpolated
from textspace.progress import track
from textspace.space import Space

STEPS = 4
"""Between the ends of a way."""


def judge_of(training: list[list[str]]) -> Any:
    """Tells the corpus of a sentence by its words and pairs of words, from as many sentences of each."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    size = min(map(len, training))
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", sublinear_tf=True)
    judge = make_pipeline(words, LogisticRegression(C=10.0, max_iter=1000))
    return judge.fit([text for texts in training for text in texts[:size]], np.repeat(np.arange(len(training)), size))


def ways(space: Space, codes_NZ: NDArray[Any], pairs_P2: NDArray[Any]) -> list[list[str]]:
    """The sentences between the ends of each way, ends left out."""
    between = [interpolated(codes_NZ[a], codes_NZ[b], STEPS + 2)[1:-1] for a, b in pairs_P2]
    decoded = space.decode(np.concatenate(between))
    return [decoded[start : start + STEPS] for start in range(0, len(decoded), STEPS)]


def share(of_way: list[NDArray[Any]]) -> list[float]:
    """Percent of the steps, and the standard error over ways, whose steps belong together."""
    means_P = 100 * np.array([each.mean() for each in of_way])
    return [float(means_P.mean()), float(standard_error(means_P) or 0.0)]


def work(given: argparse.Namespace) -> dict[str, Any]:
    space = Space.load(given.space)
    random = np.random.default_rng(given.seed)
    splits = [
        open_corpus(str(given.corpora / name), normalise=space.recipe.text.normalise).splits for name in given.corpus
    ]
    texts = [{name: [each.text for each in split] for name, split in found.items()} for found in splits]
    judge = judge_of([each["train"] for each in texts])
    tests = [each["test"] for each in texts]
    codes = [np.asarray(space.encode(test, what="sample", seed=given.seed)) for test in tests]
    found: dict[str, Any] = {}
    for own, name in enumerate(track(given.corpus, "corpora", True, len(given.corpus))):
        copies = space.decode(codes[own])
        pairs_P2 = np.stack([random.choice(len(tests[own]), 2, replace=False) for _ in range(given.pairs)])
        judged = [judge.predict(way) == own for way in ways(space, codes[own], pairs_P2)]
        found[name] = {
            "real": share([judge.predict([text]) == own for text in tests[own]]),
            "copies": share([judge.predict([text]) == own for text in copies]),
            "between": share(judged),
            "by_step": [float(100 * np.mean([way[step] for way in judged])) for step in range(STEPS)],
        }
        for other in range(own + 1, len(tests)):
            both_NZ = np.concatenate([codes[own], codes[other]])
            size = len(tests[own])
            pairs_P2 = np.stack(
                [random.integers(size, size=given.pairs), size + random.integers(len(tests[other]), size=given.pairs)],
                1,
            )
            labels = [judge.predict(way) for way in ways(space, both_NZ, pairs_P2)]
            found[f"{name} to {given.corpus[other]}"] = {
                "first": share([way == own for way in labels]),
                "second": share([way == other for way in labels]),
                "elsewhere": share([(way != own) & (way != other) for way in labels]),
                "first_by_step": [float(100 * np.mean([way[step] == own for way in labels])) for step in range(STEPS)],
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds the corpora")
    parser.add_argument("corpus", nargs="+", help="folders in CORPORA with files train, valid and test")
    parser.add_argument("--space", type=Path, required=True, help="trained on all of them")
    parser.add_argument("--pairs", type=int, default=200, help="ways within each corpus, and between two")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="domains")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    command = f"python -m benchmarks.domains CORPORA {' '.join(given.corpus)} --space SPACE --pairs {given.pairs}"
    record(given.name, f"{command} --seed {given.seed} --out FOLDER", {"percent": work(given)}, given.out)


if __name__ == "__main__":
    main()
