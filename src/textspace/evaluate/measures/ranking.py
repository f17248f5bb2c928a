"""Answers ranked by their codes, beside chance, words and a supervised ranker.

The files are looked for in one folder: trecqa/test.tsv, wikiqa/train.tsv and so on (also with .gz).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from textspace.answering import SCORES, Score, score_answers, scores_for
from textspace.data.normalise import NORMALISERS
from textspace.data.questions import FEWEST, LONGEST, MOST, SHORTEST, Question, QuestionColumns, questions_in
from textspace.data.questions import read_questions as read_file
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Subject, Table
from textspace.evaluate.measures.attentive_ranker import train_ranker
from textspace.evaluate.measures.classifiers import Settings
from textspace.evaluate.measures.tasks import Screen, Spelling, best_spelling
from textspace.evaluate.rankings import MEASURED, Quality, bm25, chance, counts_of, quality, ranks, word_overlap
from textspace.evaluate.statistics import standard_error
from textspace.types import Estimate

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["MEASURES", "ROWS", "TASKS", "RankingTable", "Task", "answer_ranking", "ranking_table", "read_task"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROWS: dict[str, tuple[str, str]] = {
    "random": ("random (exact expectation)", "chance (exact expectation)"),
    "overlap": ("word overlap", "word overlap"),
    "bm25": ("BM25", "BM25"),
    **{score: SCORES[score][:2] for score in ("cosine", "mean", "distance", "log-q", "unit")},
    "supervised": ("supervised bi-LSTM", "a supervised bi-LSTM with attentive pooling"),
}
"""What answers are ranked by, in the order of a table: there, and in names of numbers. `distance` is the paper's."""


@dataclass(frozen=True)
class RankingTable:
    """How well answers are ranked in different ways.

    Args:
        rows: the quality of each way, over the questions that can be ranked.
        scores: of every answer of every question, by the ways that look at it.
        ranks: likewise, from 1 among the answers of a question.
        kept_Q: which questions can be ranked; those without a right answer, or with right ones only, are left out.
        no_right, only_right: how many those are.
        settings: for every estimate.
    """

    rows: dict[str, Quality]
    scores: dict[str, Floats]
    ranks: dict[str, Ints]
    kept_Q: NDArray[np.bool_]
    no_right: int
    only_right: int
    settings: Settings

    @property
    def about(self) -> str:
        """Which questions count."""
        used, total = int(self.kept_Q.sum()), len(self.kept_Q)
        if used == total:
            return f"{used:,} questions"
        return (
            f"{used:,} of {total:,} questions; left out, as is usual: {self.no_right:,} without a right answer and "
            f"{self.only_right:,} with right answers only"
        )

    def estimates(self, of: str) -> dict[str, Estimate]:
        """Every number by `row_measure`; `of` names the questions."""
        found = {}
        for row, each in self.rows.items():
            for (key, measured), values_Q in zip(MEASURED.items(), each, strict=True):
                found[_key(row, key)] = Estimate(
                    name=f"{measured} of answers to {of}, ranked by {ROWS[row][1]}",
                    value=float(values_Q.mean()),
                    stderr=self._error(row, values_Q),
                    n=len(values_Q),
                    bound="none",
                    better="higher" if row in self.scores else None,
                    settings=self.settings,
                )
        return found

    def per_question(self) -> dict[str, list[float]]:
        """The values of the questions that can be ranked, under the names of the estimates."""
        return {
            _key(row, key): values_Q.tolist()
            for row, each in self.rows.items()
            for key, values_Q in zip(MEASURED, each, strict=True)
        }

    def _error(self, row: str, values_Q: Floats) -> float | None:
        """Over questions; what chance gives is exact."""
        return standard_error(values_Q) if row in self.scores else None

    def table(self, of: str) -> Table:
        columns = ("ranked by", *(heading for name in MEASURED.values() for heading in (name, f"± {name}")))
        rows = []
        for row, each in self.rows.items():
            numbers = [number for values_Q in each for number in (float(values_Q.mean()), self._error(row, values_Q))]
            rows.append((ROWS[row][0], *numbers))
        return Table(f"Answers to {of} ({self.about})", columns, tuple(rows))


def _key(row: str, measured: str) -> str:
    return f"{row.replace('-', '_')}_{measured}"


def ranking_table(
    space: Space,
    questions: Sequence[Question],
    train: Sequence[Question] | None = None,
    valid: Sequence[Question] | None = None,
    *,
    scores: Sequence[Score] | None = None,
    epochs: int = 10,
    drop_html: bool = False,
    seed: int = 0,
    show_progress: bool = False,
) -> RankingTable:
    """Rank the answers of questions by codes, by words, by chance and, where there are training questions, by a ranker.

    Codes and the ranker see the texts in the spelling in which the space knows most words; words are compared in lower
    case. With grades for labels, the answers with the highest of their question are right.

    Args:
        space: whose codes are compared.
        questions: with labels.
        train: questions for the supervised ranker, which is left out without them.
        valid: questions by which it stops.
        scores: by codes; by default all that the space can give.
        epochs: of the supervised ranker, at most.
        drop_html: remove HTML tags first.
        seed: of sampled codes, equal scores, and the supervised ranker.
        show_progress: show bars.
    """
    kept_Q = np.array([question.can_be_ranked for question in questions], bool)
    same = [question for question in questions if not question.can_be_ranked]
    no_right = sum(max(question.labels, default=0.0) <= 0 for question in same)
    if not kept_Q.any():
        raise TextspaceError("no question has both right and wrong answers: there is nothing to rank")
    if drop_html:
        questions = _respelled(questions, NORMALISERS["html"])
    spelling = best_spelling(space, list(dict.fromkeys(text for each in questions for text in _texts(each))))
    spelled = _respelled(questions, spelling)
    given = tuple(scores_for(space) if scores is None else scores)
    by_codes = score_answers(space, spelled, given, seed=seed, show_progress=show_progress)
    found: dict[str, Floats] = {"overlap": word_overlap(questions), "bm25": bm25(questions), **by_codes}
    settings = _settings(space, questions, spelling, seed)
    if train is not None:
        tokenizer = space.recipe.text.tokenizer
        both = [None if part is None else _respelled(part, spelling) for part in (train, valid)]
        ranker = train_ranker(
            both[0] or [],
            both[1],
            tokenizer,
            epochs=epochs,
            seed=seed,
            device=space.device,
            show_progress=show_progress,
        )
        found["supervised"] = ranker.scores(spelled, show_progress)
        settings |= {
            "supervised_training_questions": sum(question.can_be_ranked for question in train),
            "supervised_epoch": ranker.epoch,
            "supervised_validation_mrr": ranker.valid_mrr,
            "supervised_parameters": ranker.size,
        }
    counts_Q = counts_of(questions)
    # A question that is left out has a right answer in name, so that the arrays hold all questions.
    right_N = np.array([right for question in questions for right in question.right], bool)
    right_Q = np.add.reduceat(right_N, counts_Q.cumsum() - counts_Q, dtype=int)
    lowest_first = {name for name, rule in SCORES.items() if rule.lowest_first}
    order = {
        name: ranks(values_N, counts_Q, lowest_first=name in lowest_first, seed=seed)
        for name, values_N in found.items()
    }
    rows = {"random": chance(counts_Q, right_Q)}
    rows |= {name: quality(ranks_N, right_N, counts_Q) for name, ranks_N in order.items()}
    return RankingTable(
        rows={name: rows[name].only(kept_Q) for name in ROWS if name in rows},
        scores=found,
        ranks=order,
        kept_Q=kept_Q,
        no_right=no_right,
        only_right=len(same) - no_right,
        settings=settings,
    )


def _texts(question: Question) -> tuple[str, ...]:
    return (question.text, *question.answers)


def _respelled(questions: Sequence[Question], spell: Callable[[str], str]) -> list[Question]:
    """Questions spelled anew; a text of which nothing would be left stays as it is."""
    return [
        replace(each, text=spell(each.text) or each.text, answers=tuple(spell(one) or one for one in each.answers))
        for each in questions
    ]


def _settings(space: Space, questions: Sequence[Question], spelling: Spelling, seed: int) -> Settings:
    has_spread = space.recipe.posterior is not None and space.recipe.posterior.kind != "delta"
    return {
        "seed": seed,
        "questions": len(questions),
        "answers": int(counts_of(questions).sum()),
        **spelling.settings,
        "deviation": "of the posterior" if has_spread else "1: the posterior has none",
        "equal_scores": "shuffled with keyed noise",
        "right": "the answers with the highest label of their question",
    }


# The measure


@dataclass(frozen=True)
class Task:
    """Questions with judged answers: what they are called, and the columns of their files."""

    title: str
    columns: QuestionColumns


_FOUR = QuestionColumns(question=2, answer=4, label=3, group=1)
TASKS = {
    "trecqa": Task("TrecQA", _FOUR),
    "wikiqa": Task("WikiQA", _FOUR),
    "semeval15_cqa": Task("SemEval-2015 community answers", QuestionColumns(question=2, answer=5, label=3, group=1)),
}

OWN = "own_questions"
"""The questions that sentences of the test split ask and answer themselves."""


def read_task(folder: Path, name: str, part: str) -> list[Question] | None:
    """The questions of a part of a task, "train", "valid" or "test"; None where there is no such file."""
    candidates = [folder / name / f"{part}.tsv.gz", folder / name / f"{part}.tsv"]
    path = next((path for path in candidates if path.exists()), None)
    return None if path is None else read_file(path, TASKS[name].columns, header=False)[0]


def answer_ranking(subject: Subject) -> Findings:
    """How well codes rank answers [Livne et al. 2020, table 8], on published tasks and on the text itself.

    Where test sentences ask and then answer, each is cut at its first question mark and its answer is put beside 2 to 4
    answers of others; the supervised ranker is trained on training sentences cut likewise. Questions are dropped and
    counted of which the space has seen the question, an answer, or both in one.
    """
    screen = Screen.of(subject)
    found = Findings()
    for name, task in TASKS.items():
        if subject.task_files is not None and (test := read_task(subject.task_files, name, "test")):
            train, valid = (read_task(subject.task_files, name, part) for part in ("train", "valid"))
            screen.warn_of(task.title, *map(texts_of, test))
            _add(found, subject, subject.space, name, task.title, *_unseen(test, screen), train, valid)
    unseen_N = screen.unseen(subject.test.texts)
    own = questions_in([text for text, new in zip(subject.test.texts, unseen_N, strict=True) if new], seed=subject.seed)
    if own:
        train, valid = (
            questions_in(subject.splits[part].texts, seed=subject.seed) if part in subject.splits else None
            for part in ("train", "valid")
        )
        how: Settings = {
            "made_of": f"test sentences cut at their first '?': questions of {SHORTEST} to {LONGEST} words, each with "
            f"{FEWEST} to {MOST} answers of others",
            **screen.settings(unseen_N, 0),
        }
        _add(found, subject, subject.test.coder, OWN, "questions of the test split", own, how, train, valid)
    if not found.estimates:
        raise TextspaceError(
            "the test sentences do not ask and answer questions, and there are no files of questions like "
            "wikiqa/test.tsv: name their folder with --tasks"
        )
    return found


def _unseen(questions: list[Question], screen: Screen) -> tuple[list[Question], Settings]:
    """Questions with nothing in them that the space was trained on, and how many had something."""
    unseen_Q = np.array(
        [bool(screen.unseen([each.text] * len(each.answers), each.answers, _joined(each)).all()) for each in questions],
        bool,
    )
    return [each for each, new in zip(questions, unseen_Q, strict=True) if new], screen.settings(unseen_Q, 0)


def texts_of(question: Question) -> list[str]:
    """The question, its answers, and both in one."""
    return [question.text, *question.answers, *_joined(question)]


def _joined(question: Question) -> list[str]:
    return [f"{question.text} {answer}" for answer in question.answers]


def _add(
    found: Findings,
    subject: Subject,
    space: Space,
    key: str,
    title: str,
    questions: list[Question],
    how: Settings,
    train: list[Question] | None,
    valid: list[Question] | None,
) -> None:
    ranked = ranking_table(
        space,
        questions,
        train or None,
        valid or None,
        epochs=subject.effort.language_model_epochs,
        seed=subject.seed,
        show_progress=subject.show_progress,
    )
    ranked = replace(ranked, settings=ranked.settings | how)
    found.estimates.update({f"{key}_{name}": each for name, each in ranked.estimates(title).items()})
    found.tables[key] = ranked.table(title)
    found.per_sentence.update({f"{key}_{name}": values for name, values in ranked.per_question().items()})


MEASURES = {
    "answer_ranking": Measure(
        answer_ranking,
        "Whether codes put the right answer to a question first, beside words, chance and a supervised ranker.",
        ("codes",),
        ("full",),
    )
}
