"""The examples in README and docs run as they stand."""

import contextlib
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from helpers import small, tiny_sentences
from tiny_encoder import tiny_encoder

from textspace.cli import main
from textspace.recipes import RECIPES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the examples name."""
    sentences = tiny_sentences(200)
    for name, count in {"my.txt": 200, "more.txt": 200, "held-out.txt": 50}.items():
        (tmp_path / name).write_text("\n".join(sentences[:count]))
    (tmp_path / "reviews.tsv").write_text("\n".join(f"{len(each) % 2}\t{each}" for each in sentences))
    (tmp_path / "questions.txt").write_text("\n".join(f"who {each} ? {each}" for each in sentences))
    rows = [f"who {one}\t{other}\t{int(one == other)}" for one in sentences[:9] for other in sentences[:4]]
    (tmp_path / "questions.tsv").write_text("\n".join(rows))
    new = [f"who {each}" for each in sentences[:60]]  # in which there is no training sentence
    for folder in ("cls", "sts"):
        (tmp_path / "tasks" / folder).mkdir(parents=True)
    for part, own in (("train", new[:40]), ("test", new[40:])):
        lines = (f"{int('cats' in each)}\t{each}" for each in own)
        (tmp_path / "tasks" / "cls" / f"TREC.{part}.tsv").write_text("\n".join(lines))
    alike = (f"pairs\t{at % 6}\t{one}\t{other}" for at, (one, other) in enumerate(pairwise(new)))
    (tmp_path / "tasks" / "sts" / "STS12.tsv").write_text("\n".join(alike))
    shutil.copytree(tiny_encoder(), tmp_path / "my-encoder")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quick_recipes() -> Iterator[None]:
    """Tiny networks, trained for an epoch where an example does not say for how long."""
    quick = {name: small(recipe).but({"training.epochs": 1}) for name, recipe in RECIPES.items()}
    with mock.patch.dict(RECIPES, quick):
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
def test_python_examples_run(page: Path, somewhere: Path, quick_recipes: None) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, page.name, "exec"), names)  # one after the other, as a reader would


def commands(page: Path) -> list[list[str]]:
    """The `textspace` commands of a page's indented blocks, continued lines joined."""
    text = page.read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^    (textspace .*)$", text, re.MULTILINE)]


def test_shell_examples_run(somewhere: Path, quick_recipes: None) -> None:
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) > 8
    for command in found:
        out, err = io.StringIO(), io.StringIO()
        redirected = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with (
            mock.patch.object(sys, "argv", command),
            redirected[0],
            redirected[1],
            pytest.raises(SystemExit) as ended,
        ):
            main()
        assert ended.value.code == 0, (command, err.getvalue())


VERDICTS = ("confirmed", "in part", "refuted", "open", "untestable")


def test_every_claim_has_a_verdict_and_the_summary_counts_them() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    counts = {letter: dict.fromkeys(VERDICTS, 0) for letter in "FPMSV"}
    for letter, verdict in re.findall(r"^\| ([FPMSV])\d+ \| [^|]* \| ([^|]*) \|", text, re.MULTILINE):
        counts[letter][next(word for word in VERDICTS if verdict.startswith(word))] += 1
    assert [sum(each.values()) for each in counts.values()] == [22, 19, 26, 18, 27]  # the claims there are
    claims = re.findall(r"^\| ([FPMSV]\d+) \|", text, re.MULTILINE)
    assert re.findall(r"^- \*\*([FPMSV]\d+)\*\*: \S", text, re.MULTILINE) == claims  # what it rests on
    told = re.findall(r"^\| \[[^|]*\]\([^|]*\) \(([FPMSV])\) \|(.*)\|$", text, re.MULTILINE)
    assert {letter: [int(cell) for cell in cells.split("|")] for letter, cells in told} == {
        letter: list(each.values()) for letter, each in counts.items()
    }


def anchor(heading: str) -> str:
    """As GitHub makes it.

    >>> anchor("Yelp's long reviews")
    'yelps-long-reviews'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_lead_somewhere() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "benchmarks" / "README.md"]}
    for page, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            name, _, part = target.partition("#")
            where = (page.parent / name).resolve() if name else page
            assert where.exists(), f"{page.name}: {target}"
            if part:
                headings = re.findall(r"^#+ (.*)$", where.read_text(encoding="utf-8"), re.MULTILINE)
                assert part in map(anchor, headings), f"{page.name}: {target}"
