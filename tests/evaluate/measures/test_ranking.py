"""The table of rankings: every way against its own functions, which questions count, tasks on files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_sentences
from small_subjects import subject_on, untrained

from textspace.answering import SCORES, score_answers
from textspace.data.questions import Question, questions_in
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort, Findings, Subject
from textspace.evaluate.measures.ranking import ROWS, answer_ranking, ranking_table, read_task
from textspace.evaluate.rankings import bm25, chance, counts_of, quality, ranks, word_overlap
from textspace.evaluate.statistics import standard_error
from textspace.space import Space

pytestmark = pytest.mark.filterwarnings("ignore:.*hold no word this space knows")


@pytest.fixture
def space(small_vae, tiny) -> Space:
    return untrained(small_vae, tiny.tokenizer)


def made(count: int, first: int = 0) -> list[Question]:
    """Questions of tiny sentences with 3 answers, the second of them right."""
    sentences: Iterator[str] = iter(tiny_sentences(4 * (first + count))[4 * first :])
    return [Question(next(sentences), tuple(next(sentences) for _ in range(3)), (0.0, 1.0, 0.0)) for _ in range(count)]


NO_RIGHT, ONLY_RIGHT = Question("anna", ("bob", "carl"), (0.0, 0.0)), Question("bob", ("anna",), (1.0,))


def test_every_row_is_the_quality_of_its_scores(space) -> None:
    questions = made(12)
    found = ranking_table(space, questions, seed=3)
    assert list(found.rows) == [name for name in ROWS if name != "supervised"]
    counts_Q, right_N = counts_of(questions), np.array([right for question in questions for right in question.right])
    scores = {"overlap": word_overlap(questions), "bm25": bm25(questions)}
    scores |= score_answers(space, questions, list(SCORES), seed=3)
    for name, values_N in scores.items():
        lowest_first = name in ("distance", "mean", "unit")
        expected = quality(ranks(values_N, counts_Q, lowest_first=lowest_first, seed=3), right_N, counts_Q)
        for values_Q, known_Q in zip(found.rows[name], expected, strict=True):
            assert (values_Q == known_Q).all()
        assert (found.scores[name] == values_N).all()
    for values_Q, known_Q in zip(found.rows["random"], chance(counts_Q, counts_Q * 0 + 1), strict=True):
        assert (values_Q == known_Q).all()


def test_numbers_are_means_over_questions_with_their_errors(space) -> None:
    found = ranking_table(space, made(12), scores=["log-q"])
    estimates, per_question = found.estimates("the tests"), found.per_question()
    assert estimates.keys() == per_question.keys()
    assert set(estimates) == {
        f"{row}_{key}" for row in ("random", "overlap", "bm25", "log_q") for key in ("p_at_1", "mrr", "map")
    }
    for key, estimate in estimates.items():
        values_Q = np.array(per_question[key])
        assert (estimate.value, estimate.n) == (values_Q.mean(), 12)
        assert estimate.stderr == (None if key.startswith("random") else standard_error(values_Q))
    assert estimates["log_q_mrr"].name.startswith("MRR of answers to the tests, ranked by log q of the sampled code")
    table = found.table("the tests")
    assert [row[0] for row in table.rows] == [ROWS[row][0] for row in ("random", "overlap", "bm25", "log-q")]
    assert table.rows[3][3:5] == (estimates["log_q_mrr"].value, estimates["log_q_mrr"].stderr)


def test_questions_that_cannot_be_ranked_are_left_out_and_change_nothing_else(space) -> None:
    questions = made(10)
    plain = ranking_table(space, questions)
    found = ranking_table(space, [*questions, NO_RIGHT, NO_RIGHT, ONLY_RIGHT])
    assert (found.no_right, found.only_right, found.kept_Q.sum()) == (2, 1, 10)
    assert found.about == (
        "10 of 13 questions; left out, as is usual: 2 without a right answer and 1 with right answers only"
    )
    assert len(found.scores["distance"]) == 30 + 5
    for name in ("distance", "mean", "cosine"):  # not the BM25 of other words
        assert (found.rows[name].mrr_Q == plain.rows[name].mrr_Q).all()
    assert found.estimates("them")["distance_mrr"].n == 10
    with pytest.raises(TextspaceError, match="no question has both right and wrong answers"):
        ranking_table(space, [NO_RIGHT, ONLY_RIGHT])


def test_texts_are_spelled_as_the_space_knows_them(space) -> None:
    questions = made(10)
    loud = [
        Question(question.text.capitalize() + "?", tuple(f"{answer}." for answer in question.answers), question.labels)
        for question in questions
    ]
    found = ranking_table(space, loud)
    assert found.settings["spelling"] == "lower case, punctuation apart"
    expected = [Question(each.text, tuple(f"{one} ." for one in each.answers), each.labels) for each in questions]
    assert (found.scores["distance"] == score_answers(space, expected, ["distance"])["distance"]).all()


def test_html_can_be_removed(space) -> None:
    questions = made(5)
    tagged = [Question(f"<b>{q.text}</b>", tuple(f"{a}<br>" for a in q.answers), q.labels) for q in questions]
    plain, found = ranking_table(space, questions), ranking_table(space, tagged, drop_html=True)
    assert all((plain.scores[name] == found.scores[name]).all() for name in plain.scores)


def test_a_supervised_ranker_is_trained_where_there_are_training_questions(space) -> None:
    found = ranking_table(space, made(8), made(20, 8), made(5, 28), epochs=1)
    assert list(found.rows) == list(ROWS)
    assert found.settings["supervised_training_questions"] == 20
    assert found.settings["supervised_epoch"] == 1
    assert np.unique(found.scores["supervised"]).size > 10


# On files


def write(folder: Path, name: str, questions: list[Question], columns: str = "iqla") -> None:
    path = folder / f"{name}.tsv.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, question in enumerate(questions):
        for answer, label in zip(question.answers, question.labels, strict=True):
            cells = {"i": f"Q{number}", "q": question.text, "l": f"{label:g}", "a": answer, "o": "Bad"}
            lines.append("\t".join(cells[column] for column in columns) + "\n")
    path.write_bytes(gzip.compress("".join(lines).encode()))


def subject_in(folder: Path | None, space: Space, **splits: list[str]) -> Subject:
    return subject_on(
        space, {"test": ["anna sees cats"], **splits}, task_files=folder, effort=Effort(language_model_epochs=1)
    )


def test_tasks_are_read_ranked_and_named(space, tmp_path) -> None:
    questions = [*made(9), NO_RIGHT]
    write(tmp_path, "wikiqa/test", questions)
    write(tmp_path, "wikiqa/train", made(15, 9))
    write(tmp_path, "semeval15_cqa/test", made(6), columns="iqloa")
    assert read_task(tmp_path, "wikiqa", "test") == questions
    assert read_task(tmp_path, "trecqa", "test") is None
    found = answer_ranking(subject_in(tmp_path, space))
    assert list(found.tables) == ["wikiqa", "semeval15_cqa"]
    assert [row[0] for row in found.tables["wikiqa"].rows][-1] == "supervised bi-LSTM"
    assert len(found.tables["semeval15_cqa"].rows) == len(ROWS) - 1
    expected = ranking_table(space, questions).estimates("WikiQA")["mean_map"]
    estimate = found.estimates["wikiqa_mean_map"]
    assert (estimate.name, estimate.value, estimate.stderr) == (expected.name, expected.value, expected.stderr)
    assert found.per_sentence["wikiqa_mean_map"] == ranking_table(space, questions).per_question()["mean_map"]
    assert estimate.settings["dropped_for_training"] is None
    assert Findings.from_dict(found.to_dict()) == found
    assert answer_ranking(subject_in(tmp_path, space)) == found


def test_questions_the_space_has_seen_are_dropped_and_counted(space, tmp_path) -> None:
    questions = [
        Question(f"what is number {number}", (f"it is {number}", f"it is not {number}"), (1.0, 0.0))
        for number in range(6)
    ]
    write(tmp_path, "trecqa/test", questions)
    train = ["What is number 0 ?", "it is not 2 .", "what is number 4 ? it is 4", "what is number 5 ? it is 3"]
    found = answer_ranking(subject_in(tmp_path, space, train=train)).estimates["trecqa_bm25_p_at_1"]
    assert (found.n, found.settings["dropped_for_training"]) == (3, 3)


# On the text itself


def asking(count: int, first: int = 0) -> list[str]:
    sentences = iter(tiny_sentences(2 * (first + count))[2 * first :])
    return [f"{next(sentences)} dogs cats birds songs ? {next(sentences)}" for _ in range(count)]


def test_sentences_that_ask_and_answer_are_questions(space) -> None:
    texts = {"test": [*asking(20), "anna sees cats"], "train": asking(30, 20), "valid": asking(10, 50)}
    texts["test"].append(texts["train"][0])
    found = answer_ranking(subject_in(None, space, **texts))
    assert list(found.tables) == ["own_questions"]
    assert len(found.tables["own_questions"].rows) == len(ROWS)
    questions = questions_in(texts["test"][:-1], seed=0)
    estimate = found.estimates["own_questions_mean_mrr"]
    assert estimate.value == ranking_table(space, questions).estimates("")["mean_mrr"].value
    assert (estimate.n, estimate.settings["dropped_for_training"]) == (len(questions), 1)
    assert "5 to 50 words, each with 2 to 4 answers of others" in str(estimate.settings["made_of"])


def test_without_questions_the_measure_says_what_it_needs(space, tmp_path) -> None:
    with pytest.raises(TextspaceError, match="do not ask and answer questions, and there are no files"):
        answer_ranking(subject_in(tmp_path, space))
