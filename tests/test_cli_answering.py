"""The commands `rank` and `answer` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import small, tiny_sentences
from small_subjects import untrained
from test_cli import textspace

from textspace.data.tokenizers import train_tokenizer
from textspace.recipes import RECIPES

SENTENCES = [f"who {sentence} ? {sentence}" for sentence in tiny_sentences(60)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two spaces and questions."""
    folder = tmp_path_factory.mktemp("answering")
    for name, recipe, more in (("space", "vae", {"encoder.word_dropout": 0.2}), ("plain", "smim-ae", {})):
        made = small(RECIPES[recipe]).but(more)
        untrained(made, train_tokenizer(made.text.tokenizer, SENTENCES)).save(folder / name)
    rows = [
        f"who {question}\t{answer}\t{int(question == answer)}"
        for question in tiny_sentences(20)[:8]
        for answer in tiny_sentences(20)[:4]
    ]
    (folder / "pairs.tsv").write_text("\n".join([*rows, "who\t\t1"]))
    return folder


def test_ranking_prints_a_table_beside_the_baselines(workplace) -> None:
    ended = textspace("rank", "space", "pairs.tsv", cwd=workplace)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["ranked", "by", "P@1", "MRR", "MAP"]
    assert [line[:15] for line in lines[1:5]] == [
        "random (exact e",
        "word overlap   ",
        "BM25           ",
        "codes: distance",
    ]
    assert lines[1].split()[-3:] == ["0.25", "0.5208", "0.5208"]
    assert "1.0" in lines[2] or "1 " in lines[2]  # the right answer has all words of the question
    assert lines[5].startswith("4 of 8 questions; left out, as is usual: 4 without a right answer and 0 with right")
    assert "1 row without a question, an answer or a label skipped" in ended.stderr
    assert "spelling: as in the file; 0.0% of the tokens are unknown to the space" in ended.stderr
    assert ended.stdout == textspace("rank", "space", "pairs.tsv", cwd=workplace).stdout


def test_scores_and_ranks_can_be_kept(workplace) -> None:
    ended = textspace("rank", "space", "pairs.tsv", "--score", "all", "--out", "scores.tsv", "--json", cwd=workplace)
    found = json.loads(ended.stdout)
    assert (found["questions"], found["ranked"]) == (8, 4)
    assert found["left_out"] == {"no_right_answer": 4, "only_right_answers": 0}
    assert found["estimates"]["log_q_mrr"]["settings"]["seed"] == 0
    rows = [line.split("\t") for line in (workplace / "scores.tsv").read_text().splitlines()]
    assert rows[0][:5] == ["question", "answer", "label", "distance", "distance_rank"]
    assert len(rows) == 1 + 32
    first = [(float(row[3]), int(row[4])) for row in rows[1:5]]
    assert [rank for _, rank in sorted(first)] == [1, 2, 3, 4]


def test_a_space_without_spread_says_so(workplace) -> None:
    ended = textspace("rank", "plain", "pairs.tsv", cwd=workplace)
    assert "the posterior of this space has no spread: distances are taken with unit variance" in ended.stderr
    refused = textspace("rank", "plain", "pairs.tsv", "--score", "log-q", cwd=workplace)
    assert refused.returncode == 2
    assert "has no density with a formula, which log-q needs" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--score", "distanse"), "there is no score 'distanse'; did you mean 'distance'?"),
        (("--label-column", "1"), "has 3 columns without a header"),
        (("--out", "pairs.tsv"), "--out pairs.tsv is the file that is read, and would be lost: name another"),
        (("--out", "no/where.tsv"), "could not write no/where.tsv: No such file or directory; name another with --out"),
    ],
)
def test_mistakes_of_ranking_are_one_line(workplace, arguments, message) -> None:
    ended = textspace("rank", "space", "pairs.tsv", *arguments, cwd=workplace)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_answers_are_short_medium_and_long(workplace) -> None:
    ended = textspace("answer", "space", "who sees anna?", cwd=workplace)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == [
        "room",
        "short (5 words)",
        "medium (10 words)",
        "long (15 words)",
    ]
    assert "word_dropout" not in ended.stderr


def test_answers_as_json_have_all_that_was_decoded(workplace) -> None:
    ended = textspace("answer", "plain", "who sees anna?", "--words", "3,8", "-n", "2", "--json", cwd=workplace)
    found = json.loads(ended.stdout)
    assert [each["words"] for each in found] == [3, 3, 8, 8]
    assert all(each.keys() == {"words", "text", "decoded", "repeats_question"} for each in found)
    assert "train with --set encoder.word_dropout=0.2" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("wherefore art thou",), "the question holds no word this space knows"),
        (("",), "question 1 is empty"),
        (("who", "--words", "5,x"), "--words is '5,x': give numbers from 1"),
        (("who", "--what", "code"), "answer cannot decode 'code'"),
    ],
)
def test_mistakes_of_answering_are_one_line(workplace, arguments, message) -> None:
    ended = textspace("answer", "space", *arguments, cwd=workplace)
    assert ended.returncode == 2
    assert message in ended.stderr
