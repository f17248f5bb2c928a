"""The command line as a user meets it: real processes, exit codes, one-line errors."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from helpers import small, tiny_sentences

from textspace.cli import main
from textspace.recipes import RECIPES


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def textspace(*arguments: str, cwd: Path, stdin: str = "") -> Ended:
    """The command in this process, which has torch loaded already: what it prints, and its exit code."""
    out, err, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin.encode()))
    patches = [
        mock.patch.object(sys, "argv", ["textspace", *arguments]),
        mock.patch.object(sys, "stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text file, a recipe, and a space trained on them."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text("\n".join([*tiny_sentences(), "", "  "]))
    (folder / "recipe.json").write_text(small(RECIPES["vae"]).to_json())
    trained = textspace("train", "text.txt", "--config", "recipe.json", "--out", "done", cwd=folder)
    assert trained.returncode == 0, trained.stderr
    (folder / "trained.log").write_text(trained.stderr)
    return folder


def test_training_leaves_a_space_and_says_what_it_did(workplace: Path) -> None:
    files = {path.name for path in (workplace / "done").iterdir()}
    assert files >= {
        "recipe.json",
        "tokenizer.json",
        "model.safetensors",
        "metrics.json",
        "steps.jsonl",
        "curves.png",
        "curves.svg",
    }
    told = (workplace / "trained.log").read_text()
    assert "2 empty lines skipped" in told
    assert "best validation negative ELBO at KL weight 1" in told
    assert "parameters" in told
    assert "validation: elbo" in told  # plain lines, since there is no terminal
    metrics = json.loads((workplace / "done" / "metrics.json").read_text())
    assert metrics["test"]["elbo"]["bound"] == "upper"
    assert metrics["trained"]["encoder_updates"] == metrics["trained"]["steps"]


def test_scores_are_labelled(workplace: Path) -> None:
    shown = textspace("score", "done", "text.txt", "--samples", "20", cwd=workplace)
    assert shown.returncode == 0, shown.stderr
    assert "negative ELBO, upper bound on NLL" in shown.stdout
    assert "importance-weighted NLL, 20 samples, upper bound" in " ".join(shown.stdout.split())
    scored = json.loads(textspace("score", "done", "text.txt", "--samples", "20", "--json", cwd=workplace).stdout)
    assert scored["nll"]["n"] == 400  # a source without splits is scored as a whole
    assert scored["nll"]["value"] <= scored["elbo"]["value"]
    assert scored["nll"]["settings"] == {"samples": 20, "seed": 0, "end_token": "included", "proposal": "posterior"}


def test_standard_input_is_a_source(workplace: Path) -> None:
    told = textspace("describe", "-", "--json", cwd=workplace, stdin="a b c\nd e\nf\n" * 5)
    assert told.returncode == 0, told.stderr
    assert sum(split["sentences"] for split in json.loads(told.stdout)["splits"].values()) == 15


def test_recipes_are_listed_and_shown(workplace: Path) -> None:
    listed = textspace("recipes", cwd=workplace).stdout
    assert all(name in listed for name in RECIPES)
    shown = textspace("recipes", "show", "vae", cwd=workplace).stdout
    assert shown == RECIPES["vae"].to_json()


def test_resuming_goes_on(workplace: Path) -> None:
    again = textspace("train", "text.txt", "--out", "done", "--resume", "--epochs", "3", cwd=workplace)
    assert again.returncode == 0, again.stderr
    lines = [json.loads(line) for line in (workplace / "done" / "steps.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["event"] == "step"]
    assert steps == list(range(1, 12 * 3 + 1))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train none.txt", "none.txt"),
        ("train empty.txt", "nothing is left of 'empty'"),
        ("train text.txt --recipe vea", "there is no recipe 'vea'; did you mean 'vae'?"),
        ("train text.txt --set latent.dmi=3", "recipe has no option 'latent.dmi'; did you mean 'latent.dim'?"),
        ("train text.txt --set latent.dim=-1", "latent.dim is -1"),
        ("train text.txt --config none.json", "cannot read the recipe"),
        ("train text.txt --out done", "done already holds a run: add --resume to continue it"),
        ("train text.txt --out nowhere --resume", "cannot read the recipe"),
        ("train table.tsv --text-column txet", "did you mean 'text'?"),
        ("train text.txt --device gpu", "there is no device 'gpu'"),
        ("score folder text.txt", "is not a trained space: it has no recipe.json"),
        ("score done folder --split tset", "has no split 'tset'; did you mean 'test'?"),
        ("recipes show vea", "there is no recipe 'vea'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(workplace: Path, arguments: str, sentence: str) -> None:
    (workplace / "empty.txt").write_text("\n\n")
    (workplace / "table.tsv").write_text("label\ttext\n1\ta b\n2\tc d\n")
    (workplace / "folder").mkdir(exist_ok=True)
    for split in ("train", "test"):
        (workplace / "folder" / f"{split}.txt").write_text("anna sees cats\n" * 5)
    told = textspace(*arguments.split(), cwd=workplace)
    assert told.returncode == 2, told.stderr
    assert sentence in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    assert "Traceback" not in told.stderr


def test_a_real_process_says_one_line_and_with_debug_the_traceback() -> None:
    command = [sys.executable, "-m", "textspace", "recipes", "show", "vea"]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2
    assert plain.stderr == "textspace: there is no recipe 'vea'; did you mean 'vae'?\n"
    assert "Traceback" in subprocess.run([*command, "--debug"], capture_output=True, text=True).stderr


def test_importing_the_package_and_asking_for_help_load_nothing_heavy(workplace: Path) -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'accelerate', 'matplotlib', 'tokenizers', 'datasets'}"
    for statement in ("import textspace", "import textspace.cli"):
        code = f"{statement}; import sys; print(sorted({heavy} & set(sys.modules)))"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert loaded.stdout.strip() == "[]", statement
    assert "train" in textspace("--help", cwd=workplace).stdout
