"""Commands about questions: rank answers, and answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textspace.cli.shared import (
    Device,
    Folder,
    Header,
    Json,
    LabelColumn,
    Seed,
    app,
    check_not_read,
    not_written,
    out_option,
    print_json,
    print_table,
    tell,
)
from textspace.errors import TextspaceError, nearest
from textspace.files import check_writable, whole_or_nothing

if TYPE_CHECKING:
    from textspace.answering import Answer
    from textspace.data.questions import Question
    from textspace.evaluate.measures.ranking import RankingTable

LENGTHS = ("short", "medium", "long")
"""What answers with room for 5, 10 and 15 words are called."""


QuestionColumn = Annotated[str | None, typer.Option(help="Column of the question: its name, or its number from 1.")]
AnswerColumn = Annotated[str | None, typer.Option(help="Column of the answer: its name, or its number from 1.")]


@app.command()
def rank(
    folder: Folder,
    file: Annotated[
        Path,
        typer.Argument(
            help="A .tsv, .csv or .jsonl file (also .gz) with a row for every answer: question, answer, label (0 or 1, "
            "or a grade, the highest the best).",
            show_default=False,
        ),
    ],
    score: Annotated[str, typer.Option(help="distance, mean, log-q, unit or cosine; or all.")] = "distance",
    question_column: QuestionColumn = None,
    answer_column: AnswerColumn = None,
    label_column: LabelColumn = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column that tells questions apart; by default their text does.")
    ] = None,
    header: Header = None,
    drop_html: Annotated[bool, typer.Option("--drop-html", help="Remove HTML tags first.")] = False,
    out: Annotated[Path | None, out_option("Write every answer's score and rank to this .tsv file.")] = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Rank the answers to questions by their codes, and say how good that is beside chance and words.

    The code of "question ? answer" is compared with that of the same text with unknown words in the answer's place: a
    good answer moves it little. By --score: distance is that of sampled codes in deviations of the posterior, mean that
    of mean codes, log-q the density of the answer's code, unit the distance itself; cosine compares the codes of
    question and answer alone.

    Examples:

      textspace rank my-space questions.tsv

      textspace rank my-space questions.tsv --score all --out scores.tsv

      textspace rank my-space pairs.tsv.gz --question-column 2 --label-column 3 --answer-column 4 --id-column 1
    """
    from textspace.answering import SCORES, scores_for
    from textspace.data.questions import QuestionColumns, read_questions
    from textspace.evaluate.held_out import held_out_note
    from textspace.evaluate.measures.ranking import ranking_table, texts_of
    from textspace.space import Space

    if score not in (*SCORES, "all"):
        raise TextspaceError(f"there is no score {score!r}; {nearest(score, [*SCORES, 'all'])}")
    if out is not None:
        check_not_read(out, file)
        try:
            check_writable(out.parent)
        except OSError as error:
            raise not_written(out, error) from None
    columns = QuestionColumns(question_column, answer_column, label_column, id_column)
    questions, report = read_questions(file, columns, header)
    for line in report.lines():
        tell(line)
    space = Space.load(folder, device)
    if note := held_out_note(space.metrics, map(space.normalise, chain.from_iterable(map(texts_of, questions)))):
        tell(note)
    wanted: Any = None if score == "all" else [score]
    ranked = ranking_table(space, questions, scores=wanted, drop_html=drop_html, seed=seed, show_progress=True)
    spelling, unknown = ranked.settings["spelling"], ranked.settings["unknown_tokens_percent"]
    tell(f"spelling: {spelling}; {unknown:.1f}% of the tokens are unknown to the space")
    if "distance" in ranked.scores and not str(ranked.settings["deviation"]).startswith("of"):
        tell("the posterior of this space has no spread: distances are taken with unit variance")
    if out is not None:
        names = scores_for(space) if score == "all" else [score]
        _write(out, questions, ranked, names)
        tell(f"scores and ranks of {len(ranked.ranks[names[0]]):,} answers in {out}")
    if as_json:
        print_json(_summary(file, ranked))
        return
    _print(ranked)


def _print(ranked: RankingTable) -> None:
    from textspace.digits import plus_minus
    from textspace.evaluate.measures.ranking import ROWS
    from textspace.evaluate.rankings import MEASURED

    estimates = ranked.estimates("the questions")
    rows = []
    for row in ranked.rows:
        found = [estimates[f"{row.replace('-', '_')}_{key}"] for key in MEASURED]
        rows.append((ROWS[row][0], *(plus_minus(each.value, each.stderr) for each in found)))
    print_table({"ranked by": "left", **dict.fromkeys(MEASURED.values(), "right")}, rows)
    typer.echo(f"{ranked.about[0].upper()}{ranked.about[1:]}. ± is the standard error over questions.")


def _summary(file: Path, ranked: RankingTable) -> dict[str, Any]:
    return {
        "file": str(file),
        "questions": len(ranked.kept_Q),
        "ranked": int(ranked.kept_Q.sum()),
        "left_out": {"no_right_answer": ranked.no_right, "only_right_answers": ranked.only_right},
        "estimates": {key: each.to_dict() for key, each in ranked.estimates("the questions").items()},
    }


def _write(path: Path, questions: Sequence[Question], ranked: RankingTable, names: Sequence[str]) -> None:
    headings = ["question", "answer", "label", *(heading for name in names for heading in (name, f"{name}_rank"))]
    texts = [
        (question.text, answer, f"{label:g}")
        for question in questions
        for answer, label in zip(question.answers, question.labels, strict=True)
    ]
    try:
        with whole_or_nothing(path) as unfinished, unfinished.open("w", encoding="utf-8") as stream:
            print(*headings, sep="\t", file=stream)
            for row, cells in enumerate(texts):
                numbers = [
                    number for name in names for number in (f"{ranked.scores[name][row]:.6g}", ranked.ranks[name][row])
                ]
                print(*cells, *numbers, sep="\t", file=stream)
    except OSError as error:
        raise not_written(path, error) from None


@app.command()
def answer(
    folder: Folder,
    question: Annotated[str, typer.Argument(help="A question.", show_default=False)],
    words: Annotated[str, typer.Option(help="Room for so many words, for each answer.")] = "5,10,15",
    n: Annotated[int, typer.Option("-n", help="Answers of each length.", min=1)] = 1,
    what: Annotated[str, typer.Option(help="Decode a sample of the posterior, or its mean.")] = "sample",
    keep_html: Annotated[bool, typer.Option("--keep-html", help="Do not remove HTML tags.")] = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Answer a question: its code with unknown words in the answer's place, decoded without unknown words.

    The answer is what the decoded text has after its first question mark. It takes a space that was trained on
    questions followed by their answers, with a share of unknown words: --set encoder.word_dropout=0.2.

    Examples:

      textspace answer my-space "how do you start to like yourself ?"

      textspace answer my-space "is santa claus real ?" --words 3,20 -n 5 --seed 1
    """
    from textspace.answering import WORDS
    from textspace.answering import answer as answers_to
    from textspace.space import Space

    rooms = _numbers(words)
    space = Space.load(folder, device)
    found = answers_to(space, question, rooms, n=n, what=what, drop_html=not keep_html, seed=seed)  # type: ignore[arg-type]
    if space.recipe.encoder is not None and not getattr(space.recipe.encoder, "word_dropout", 0.0):
        tell(
            "this space never saw unknown words in place of others: train with --set encoder.word_dropout=0.2 for this"
        )
    if as_json:
        print_json([each._asdict() for each in found])
        return
    names = dict(zip(WORDS, LENGTHS, strict=True)) if tuple(rooms) == WORDS else {}
    print_table({"room": "left", "answer": "left"}, [(_room(each.words, names), _shown(each)) for each in found])
    _tell_unanswered(found)


def _numbers(written: str) -> list[int]:
    parts = [part.strip() for part in written.split(",") if part.strip()]
    if not parts or not all(re.fullmatch(r"0*[1-9]\d{0,9}", part) for part in parts):
        raise TextspaceError(f"--words is {written!r}: give numbers from 1 with commas between, such as 5,10,15")
    return [int(part) for part in parts]


def _room(words: int, names: dict[int, str]) -> str:
    return f"{names[words]} ({words} words)" if words in names else f"{words} word{'s' * (words != 1)}"


def _shown(made: Answer) -> str:
    return made.text or ("(nothing)" if made.repeats_question else "(the question is not repeated)")


def _tell_unanswered(found: Sequence[Answer]) -> None:
    silent = sum(not each.repeats_question for each in found)
    if silent:
        tell(f"{silent} of {len(found)} decoded texts have no '?' that an answer could follow: --json shows them")
