"""The command `features` as a user meets it."""

import json
from pathlib import Path

import pytest
from helpers import small, tiny_sentences
from small_subjects import untrained
from test_cli import textspace

from textspace.data.tokenizers import train_tokenizer
from textspace.evaluate.statistics import some_rows
from textspace.recipes import RECIPES

SENTENCES = tiny_sentences(80)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with spaces and labelled sentences."""
    folder = tmp_path_factory.mktemp("reading")
    for name, recipe in (("sparse", "hsvae"), ("dense", "vae-dense"), ("words", "gru-lm")):
        made = small(RECIPES[recipe]).but({"initial.weights": 0.5})
        untrained(made, train_tokenizer(made.text.tokenizer, SENTENCES)).save(folder / name)
    (folder / "labelled.tsv").write_text("\n".join(f"{text.split()[1]}\t{text}" for text in SENTENCES))
    (folder / "plain.txt").write_text("\n".join(SENTENCES))
    return folder


def test_a_page_and_json_are_written(workplace: Path) -> None:
    columns = ("--text-column", "2", "--label-column", "1")
    probe = ("--sentence", "anna sees cats", "--sentence", "bob likes dogs")
    ended = textspace("features", "sparse", "--data", "labelled.tsv", *columns, *probe, cwd=workplace)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "The page is in sparse/features/features.html (also .json)."
    assert "dimensions on in a sentence" in ended.stdout
    found = json.loads((workplace / "sparse/features/features.json").read_text())
    assert [each["text"] for each in found["probes"]] == ["anna sees cats", "bob likes dogs"]
    assert set(found["classes"]) == {"sees", "likes", "hears"}
    assert (found["sentences"], len(found["dimensions"]), found["gated"]) == (80, 4, True)
    first = (workplace / "sparse/features/features.html").read_bytes()
    textspace("features", "sparse", "--data", "labelled.tsv", *columns, *probe, cwd=workplace)
    assert (workplace / "sparse/features/features.html").read_bytes() == first


def test_a_summary_as_json_of_some_sentences(workplace: Path) -> None:
    ended = textspace(
        "features", "dense", "--data", "plain.txt", "--sentences", "20", "--out", "there", "--json", cwd=workplace
    )
    summary = json.loads(ended.stdout)
    assert (summary["sentences"], summary["of"], summary["dimensions"]) == (20, 80, 4)
    assert (summary["gated"], summary["on_per_sentence"], summary["classes"]) == (False, None, {})
    assert "read 20 of 80 sentences, drawn at random" in ended.stderr
    assert [Path(path).exists() for path in (workplace / name for name in summary["files"])] == [True, True]
    kept = json.loads((workplace / "there/features.json").read_text())
    assert [each["text"] for each in kept["probes"]] == [SENTENCES[row] for row in some_rows(80, 20)[:3]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("features", "words", "--data", "plain.txt"), "is a language model and has no codes"),
        (("features", "nowhere", "--data", "plain.txt"), "nowhere"),
        (("features", "dense", "--data", "missing.txt"), "missing.txt"),
        (("features", "dense"), "--data"),
        (("features", "dense", "--data", "plain.txt", "--sentences", "0"), "--sentences"),
        (("features", "dense", "--data", "plain.txt", "--out", "plain.txt"), "plain.txt is a file, where a folder"),
        (("features", "dense", "--data", "plain.txt", "--split", "test"), "no split 'test'"),
    ],
)
def test_mistakes_are_one_line(workplace: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = textspace(*arguments, cwd=workplace)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
