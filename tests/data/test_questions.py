"""Questions: read from every kind of table, and made of sentences."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from textspace.data.questions import Question, QuestionColumns, questions_in, read_questions
from textspace.errors import TextspaceError

ROWS = [("who sees cats ?", "anna", 1), ("who hears songs ?", "bob", 0), ("who sees cats ?", "carl does", 0)]
FOUND = [
    Question("who sees cats ?", ("anna", "carl does"), (1.0, 0.0)),
    Question("who hears songs ?", ("bob",), (0.0,)),
]


def write(path: Path, lines: list[str]) -> Path:
    raw = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_three_columns_without_a_header_are_question_answer_label(tmp_path, name) -> None:
    path = write(tmp_path / name, ["\t".join(map(str, row)) for row in ROWS])
    assert read_questions(path)[0] == FOUND


def test_columns_are_found_by_their_names_in_any_order_and_case(tmp_path) -> None:
    lines = ["Label,Other,Question,Sentence", *(f"{label},x,{question},{answer}" for question, answer, label in ROWS)]
    assert read_questions(write(tmp_path / "a.csv", lines))[0] == FOUND


def test_json_objects_have_columns_too(tmp_path) -> None:
    lines = [json.dumps({"answer": a, "question": q, "label": bool(label)}) for q, a, label in ROWS]
    questions, report = read_questions(write(tmp_path / "a.jsonl", [*lines, "", "{broken"]))
    assert questions == FOUND
    assert (report.kept, report.empty, report.bad_rows) == (3, 1, 1)


def test_columns_by_number_and_an_id_tell_questions_apart(tmp_path) -> None:
    lines = ["7\twho ?\t1\tanna", "8\twho ?\t0\tbob", "7\twho ?\t0\tcarl"]
    path = write(tmp_path / "a.tsv", lines)
    columns = QuestionColumns(question="2", answer=4, label="3")
    assert [len(question.answers) for question in read_questions(path, columns)[0]] == [3]
    assert read_questions(path, columns._replace(group=1))[0] == [
        Question("who ?", ("anna", "carl"), (1.0, 0.0)),
        Question("who ?", ("bob",), (0.0,)),
    ]


def test_a_table_that_leaves_open_what_is_what_says_which_columns_there_are(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", ["7\twho in all the world ?\t1\tanna"])
    with pytest.raises(
        TextspaceError, match=r"4 columns without a header.*1 '7', 2 'who in all the wo\.\.\.', 3 '1'"
    ) as e:
        read_questions(path)
    assert str(e.value).endswith("--question-column, --answer-column, --label-column")
    named = write(tmp_path / "b.tsv", ["question\tanswer\tgood", "who ?\tanna\t1"])
    with pytest.raises(
        TextspaceError, match=r"1 'question', 2 'answer', 3 'good': say which is meant with --label-column"
    ):
        read_questions(named)
    assert read_questions(named, QuestionColumns(label="good"))[0] == [Question("who ?", ("anna",), (1.0,))]
    with pytest.raises(TextspaceError, match="cannot be the same column"):
        read_questions(named, QuestionColumns(label="answer"))
    with pytest.raises(TextspaceError, match=r"there is no column 'goood' in .*; did you mean 'good'"):
        read_questions(named, QuestionColumns(label="goood"))


def test_what_is_empty_or_does_not_fit_is_left_out_and_counted(tmp_path) -> None:
    lines = [
        "who ?\tanna\t1",
        "who ?\t \t0",
        "\tbob\t0",
        "? ?\tbob\t0",
        "who ?\tbob\t",
        "",
        "who ?\tbob",
        "who ?\tcarl\t0.5",
    ]
    questions, report = read_questions(write(tmp_path / "a.tsv", lines))
    assert questions == [Question("who ?", ("anna", "carl"), (1.0, 0.5))]
    assert (report.kept, report.empty, report.incomplete, report.bad_rows) == (2, 1, 4, 1)
    assert report.lines() == [
        "1 empty line skipped, 4 rows without a question, an answer or a label skipped, 1 row not fitting the columns "
        "skipped"
    ]


def test_a_label_that_is_not_a_number_is_none(tmp_path) -> None:
    lines = [
        '{"question": "who ?", "answer": "anna", "label": 1}',
        '{"question": "who ?", "answer": "b", "label": NaN}',
    ]
    questions, report = read_questions(write(tmp_path / "a.jsonl", lines))
    assert questions == [Question("who ?", ("anna",), (1.0,))]
    assert report.lines() == ["1 row without a question, an answer or a label skipped"]


def test_semicolons_between_cells(tmp_path) -> None:
    questions, _ = read_questions(write(tmp_path / "a.csv", ["question;answer;label", "who, then ?;anna;1"]))
    assert questions == [Question("who, then ?", ("anna",), (1.0,))]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["who ?\tanna\tyes"], "row 1 of .* has the label 'yes', which is no number"),
        (["who ?\tanna\tnan"], "which is no number"),
        ([], "is empty"),
        (["\tanna\t1"], "no row with a question, an answer and a label"),
    ],
)
def test_files_of_no_use_say_so(tmp_path, lines, message) -> None:
    with pytest.raises(TextspaceError, match=message):
        read_questions(write(tmp_path / "a.tsv", lines))


def test_rows_that_are_all_broken_are_counted_and_told_from_an_empty_file(tmp_path) -> None:
    row = (
        r'a JSON object on a line of its own, such as \{"question": "who sees cats \?", "answer": "anna", "label": 1\}$'
    )
    lines = ['{"question": "a"', "[1]", ""]
    with pytest.raises(TextspaceError, match=rf"a\.jsonl' has 2 rows, none of which can be read: write each as {row}"):
        read_questions(write(tmp_path / "a.jsonl", lines))
    with pytest.raises(TextspaceError, match="has 1 row, none of which can be read"):
        read_questions(write(tmp_path / "a.jsonl.gz", lines[:1]))
    for blank in ([], ["", " "]):
        with pytest.raises(TextspaceError, match="is empty: give questions, answers and labels"):
            read_questions(write(tmp_path / "a.jsonl", blank))


def test_other_files_are_refused(tmp_path) -> None:
    with pytest.raises(TextspaceError, match=r"is no table: give a \.tsv, \.csv or \.jsonl file"):
        read_questions(write(tmp_path / "a.txt", ["who ?"]))
    with pytest.raises(TextspaceError, match="cannot read"):
        read_questions(tmp_path / "none.tsv")


def test_the_answers_with_the_highest_label_are_right() -> None:
    assert Question("q", ("a", "b", "c"), (2.0, 5.0, 5.0)).right == (False, True, True)
    assert not Question("q", ("a", "b"), (3.0, 3.0)).can_be_ranked
    assert Question("q", ("a", "b"), (-1.0, 0.0)).can_be_ranked


# Made of sentences


def sentences(count: int) -> list[str]:
    return [f"what is the name of {number} ? it is {number} is it not ?" for number in range(count)]


def test_sentences_are_cut_at_the_first_question_mark() -> None:
    found = questions_in(sentences(300), seed=3)
    assert [question.text for question in found] == [f"what is the name of {number}" for number in range(300)]
    for number, question in enumerate(found):
        assert question.answers[0] == f"it is {number} is it not ?"
        assert question.labels == (1.0,) + (0.0,) * (len(question.answers) - 1)
        assert len(set(question.answers)) == len(question.answers)
    counts = [len(question.answers) for question in found]
    assert {count: counts.count(count) > 70 for count in set(counts)} == {3: True, 4: True, 5: True}


def test_other_answers_are_drawn_evenly_and_by_seed() -> None:
    found = questions_in(sentences(300), seed=3)
    drawn = [int(answer.split()[2]) for question in found for answer in question.answers[1:]]
    expected = len(drawn) / 2  # of the first half of the sentences
    assert abs(sum(number < 150 for number in drawn) - expected) < 3 * (len(drawn) / 4) ** 0.5
    assert found == questions_in(sentences(300), seed=3)
    assert found != questions_in(sentences(300), seed=4)


def test_only_questions_of_5_to_50_words_with_an_answer_are_kept() -> None:
    texts = [
        "no question at all",
        "too short it is ? yes",
        "just long enough this is ?yes",
        "has no answer this one ?",
        " ".join(["long"] * 50) + " ? fits",
        " ".join(["long"] * 51) + " ? does not",
    ]
    found = questions_in(texts + sentences(5), seed=0)
    assert [question.answers[0] for question in found[:2]] == ["yes", "fits"]
    assert len(found) == 7
    assert questions_in(texts, seed=0) == []


def test_a_question_never_gets_its_own_answer_as_a_wrong_one() -> None:
    texts = ["is this really the same question ? yes"] * 10 + ["is that not another question ? yes"] * 10 + sentences(5)
    for question in questions_in(texts, seed=1):
        assert question.answers.count("yes") <= 1
        assert question.answers[0] != "yes" or "yes" not in question.answers[1:]
