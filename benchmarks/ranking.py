"""Answers ranked by the codes of several spaces, beside words, chance and (asked for) a supervised ranker.

    python -m benchmarks.ranking CORPORA yahoo20k SPACE SPACE --draws 10 --out FOLDER
    python -m benchmarks.ranking CORPORA yahoo20k SPACE --supervised 10 --out FOLDER

Questions are those of the corpus's test split, cut at their first question mark, and of the task folders in CORPORA
(trecqa, wikiqa, semeval15_cqa). Sampled codes are drawn `--draws` times; every other row is the same each time. The
answers that three questions get from each space are recorded too, and how long the answers to test questions are.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import record

SHOWN = ("what is the best way to learn english ?", "how do i lose weight ?", "who will win the world cup ?")


def table(space: Any, questions: Sequence[Any], train: Any, valid: Any, given: argparse.Namespace) -> dict[str, Any]:
    """P@1, MRR and MAP of each way of ranking: mean, error over questions, and deviation over draws of the codes."""
    from textspace.evaluate.measures.ranking import ranking_table

    draws = [
        ranking_table(space, questions, train if seed == 0 else None, valid, epochs=given.supervised, seed=seed)
        for seed in range(given.draws)
    ]
    first = draws[0].estimates("")
    numbers = {
        key: {
            "mean": float(np.mean([each.estimates("")[key].value for each in draws if key in each.estimates("")])),
            "error": first[key].stderr,
            "deviation_over_draws": float(np.std([each.estimates("")[key].value for each in draws], ddof=1))
            if given.draws > 1 and all(key in each.estimates("") for each in draws)
            else None,
        }
        for key in first
    }
    return {"questions": draws[0].about, "settings": draws[0].settings, "rows": numbers}


def lengths(space: Any, questions: Sequence[Any], count: int = 100) -> dict[str, Any]:
    """Words of the answers to the first questions, by the room they were given."""
    from textspace.answering import answer
    from textspace.errors import TextspaceError

    found: dict[int, list[int]] = {}
    silent = 0
    for question in questions[:count]:
        try:
            made = answer(space, question.text)
        except TextspaceError:  # it knows no word of the question
            continue
        silent += sum(not each.repeats_question for each in made)
        for each in made:
            if each.repeats_question:
                found.setdefault(each.words, []).append(len(each.text.split()))
    summed = {room: [len(words), float(np.mean(words)), float(np.std(words))] for room, words in found.items()}
    return {"room": summed, "question_not_repeated": silent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("corpus", help="a folder in CORPORA")
    parser.add_argument("spaces", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--supervised", type=int, default=0, help="epochs of a supervised ranker; 0 for none")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="ranking")
    given = parser.parse_args()

    from textspace.answering import answer
    from textspace.data.corpus import open_corpus
    from textspace.data.questions import questions_in
    from textspace.evaluate.measures.ranking import TASKS, read_task
    from textspace.space import Space

    warnings.simplefilter("ignore")
    splits = open_corpus(str(given.corpora / given.corpus)).splits

    def own(part: str) -> list[Any]:
        return questions_in([line.text for line in splits[part]], seed=0)

    found: dict[str, Any] = {}
    for folder in given.spaces:
        space = Space.load(folder)
        tables = {}
        for name in ("own_questions", *TASKS):
            test = own("test") if name == "own_questions" else read_task(given.corpora, name, "test")
            if not test:
                continue
            train = valid = None
            if given.supervised:
                parts = ("train", "valid")
                train, valid = (own(p) if name == "own_questions" else read_task(given.corpora, name, p) for p in parts)
            tables[name] = table(space, test, train, valid, given)
        answers = {question: [each._asdict() for each in answer(space, question)] for question in SHOWN}
        lasting = lengths(space, own("test"))
        found[folder.name] = {"tables": tables, "answers": answers, "answer_lengths": lasting}
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / f"{given.name}_{folder.name}.json").write_text(json.dumps(found[folder.name]))
    names = " ".join(folder.name for folder in given.spaces)
    options = f"--draws {given.draws} --supervised {given.supervised}"
    command = f"python -m benchmarks.ranking CORPORA {given.corpus} {names} {options} --out FOLDER"
    record(f"{given.name}_{given.corpus}", command, {"spaces": found}, given.out)


if __name__ == "__main__":
    main()
