"""Killed with `kill -9` and resumed, a run must end with the very bits of one that was left alone; and several
processes must do what one does."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers import Death, command, finish, lines_of, small, start, tiny_sentences

from textspace import files
from textspace import folder as folders
from textspace.config import Recipe
from textspace.data.corpus import ReadOptions, open_corpus
from textspace.errors import TextspaceError
from textspace.evaluate.examination import History
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train import checkpoints
from textspace.train.fit import train
from textspace.train.log import FETCH_EVERY
from textspace.train.processes import Processes
from textspace.train.rehearsal import rehearse

OFTEN = {"training.checkpoint_every": 5}
KINDS = {
    "joint": small(RECIPES["vae"]).but(OFTEN | {"training.epochs": 3}),
    "two phases": small(RECIPES["pretrain-free-bits"]).but(OFTEN),
    "aggressive": small(RECIPES["vae-aggressive"]).but(
        OFTEN | {"training.update.window": 3, "training.update.cap": 5, "training.epochs": 1}
    ),
    "aggressive in its own order": small(RECIPES["vae-aggressive"])
    .but({"training.update": {"kind": "aggressive", "window": 3, "cap": 5}})
    .but(OFTEN | {"training.epochs": 1}),
    "alternating": small(RECIPES["ivae"]).but(OFTEN),
}


class Outcome(NamedTuple):
    files: dict[str, str]
    """SHA-256 of weights, best weights, optimiser and random states."""
    log: list[dict[str, Any]]
    first_log: list[dict[str, Any]]
    """Of the first of two phases."""
    rule: dict[str, Any]
    best: bytes


def outcome(folder: Path) -> Outcome:
    state = checkpoints.read(folder).state
    first = folder / "pretraining.jsonl"
    return Outcome(
        state["files"],
        lines_of(folder / "steps.jsonl"),
        lines_of(first) if first.exists() else [],
        state["update_rule"],
        (folder / "model.safetensors").read_bytes(),
    )


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "text.txt").write_text("\n".join(tiny_sentences()))
    return folder


def job(workplace: Path, recipe: Recipe, name: str, **more: Any) -> dict[str, Any]:
    return {"source": str(workplace / "text.txt"), "recipe": recipe.to_json(), "out": str(workplace / name), **more}


def own_cache(workplace: Path, name: str) -> dict[str, str]:
    return {"TEXTSPACE_CACHE": str(workplace / f"cache of {name}")}


@pytest.fixture(scope="module")
def undisturbed(workplace: Path) -> Callable[[str], Outcome]:
    @cache
    def run(kind: str) -> Outcome:
        assert finish([job(workplace, KINDS[kind], kind)], own_cache(workplace, kind)) == 0
        return outcome(workplace / kind)

    return run


@pytest.mark.parametrize(
    ("kind", "death", "saved"),
    [
        pytest.param("joint", Death("vae", 17), 15, id="in mid-epoch"),
        pytest.param("joint", Death(writing=4), 12, id="during a checkpoint"),
        pytest.param("two phases", Death("pretrain-free-bits, first phase", 18), None, id="in the first phase"),
        pytest.param("two phases", Death("pretrain-free-bits", 2), None, id="at the start of the second phase"),
        pytest.param("two phases", Death("pretrain-free-bits", 14), 12, id="in the second phase"),
        pytest.param("aggressive", Death("vae-aggressive", 10), 10, id="while the encoder catches up"),
        pytest.param("aggressive in its own order", Death("vae-aggressive", 10), 10, id="in its own order"),
        pytest.param("alternating", Death("ivae", 18), 15, id="between the dual's steps and the model's"),
    ],
)
def test_a_killed_run_resumes_to_the_same_bits(
    workplace: Path, undisturbed: Callable[[str], Outcome], kind: str, death: Death, saved: int | None
) -> None:
    name = f"{kind} {death}"
    folder, environment = workplace / name, own_cache(workplace, name)
    assert finish([job(workplace, KINDS[kind], name)], environment, death=death) == -signal.SIGKILL
    if saved is None:
        assert checkpoints.newest(folder) is None
    else:
        state = checkpoints.read(folder).state
        assert state["step"] == saved
    if death.writing > 0:
        assert list((folder / "checkpoints").glob(".writing-*")), "it died in the middle of writing"
    if kind.startswith("aggressive"):
        rule = state["update_rule"]
        assert (rule["aggressive"], rule["inner_steps"]) == (True, 4), "the checkpoint lies within the second window"
        assert 0 < rule["best_window"] < 10
        assert rule["window_tokens"] > 0
    if death.recipe.endswith("first phase"):
        (first,) = Path(environment["TEXTSPACE_CACHE"], "pretrained").iterdir()
        assert checkpoints.read(first).state["step"] == 15

    assert finish([job(workplace, KINDS[kind], name, resume=True)], environment) == 0
    found, expected = outcome(folder), undisturbed(kind)
    assert found.files == expected.files
    assert found.log == expected.log  # no gap, no repetition, the same numbers
    steps = [line["step"] for line in found.log if line["event"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert found == expected


def test_a_run_is_not_overwritten(workplace: Path, undisturbed: Callable[[str], Outcome]) -> None:
    before = undisturbed("joint")
    with pytest.raises(TextspaceError, match="already holds a run: add --resume to continue it, or choose another"):
        train(str(workplace / "text.txt"), KINDS["joint"], workplace / "joint", device="cpu", silent=True)
    assert outcome(workplace / "joint") == before


def test_a_space_is_not_overwritten(workplace: Path, undisturbed: Callable[[str], Outcome], tmp_path: Path) -> None:
    undisturbed("joint")
    Space.load(workplace / "joint", "cpu").save(tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir() if path.is_file()}
    for other in ({}, {"init": workplace / "joint"}):
        with pytest.raises(TextspaceError, match=r"kept already holds a space: choose another folder \(--init .*kept"):
            train("builtin:60", KINDS["joint"], tmp_path / "kept", device="cpu", silent=True, **other)
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir() if path.is_file()} == before
    wider = KINDS["joint"].but({"decoder.hidden": 24})
    with pytest.raises(TextspaceError, match="are of another model"):
        train("builtin:60", wider, tmp_path / "new", init=workplace / "joint", device="cpu", silent=True)
    assert not list((tmp_path / "new").glob("*.json"))  # nothing is left of what was refused


# Several processes

ONE_ALONE = {"training.batch.sentences": 359, "training.epochs": 2}
"""Two batches an epoch; one has a single sentence, so that one of two processes has none."""

SHARED = {
    "free bits on the batch": small(RECIPES["vae-free-bits"]).but(
        {"objective.free_bits.on": "batch", "objective.free_bits.target": 0.08}  # about what the KL is
    ),
    "free bits in total": small(RECIPES["vae-free-bits-total"]).but(
        {"objective.free_bits.on": "batch", "objective.free_bits.target": 0.08}
    ),
    "wae": small(RECIPES["wae"]),
    "dual": small(RECIPES["ivae"]),
    "aggressive": small(RECIPES["vae-aggressive"]),
    "aggressive in its own order": small(RECIPES["vae-aggressive"]).but(
        {"training.update": {"kind": "aggressive", "window": 2, "cap": 3}}
    ),
    "two phases": small(RECIPES["pretrain-free-bits"]),
    "pretrained encoder": small(RECIPES["b-hsvae"]),
    "averaged over tokens": small(RECIPES["vat"]),
}


def same_numbers(one: list[dict], two: list[dict]) -> None:
    assert [(line["event"], line["step"], line.get("moved")) for line in two] == [
        (line["event"], line["step"], line.get("moved")) for line in one
    ]
    assert {line.get("sentences") for line in two} == {359, 1, None}
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            if isinstance(value, float):
                assert b[name] == pytest.approx(value, rel=2e-4, abs=2e-5), (name, a["step"])


def started_by_two(jobs: list[dict[str, Any]], environment: dict[str, str]) -> list[Any]:
    """Two processes that train together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    team = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [start(jobs, team | environment | {"RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]


@pytest.fixture(scope="module")
def by_two(workplace: Path) -> Path:
    """All of these trained by one process, and by two in pieces; the first of them resumed."""
    recipes = {name: recipe.but(ONE_ALONE) for name, recipe in SHARED.items()}
    pieces = {"training.batch.pieces": 2}
    shared = [job(workplace, recipe.but(pieces), f"{name} by two") for name, recipe in recipes.items()]
    first = shared[0] | {"recipe": recipes["free bits on the batch"].but(pieces | {"training.epochs": 1}).to_json()}
    shared = [first, shared[0] | {"resume": True}, *shared[1:]]
    processes = started_by_two(shared, own_cache(workplace, "two"))
    alone = finish([job(workplace, recipe, f"{name} by one") for name, recipe in recipes.items()])
    for process in processes:
        process.join()
    assert [alone, *(process.exitcode for process in processes)] == [0, 0, 0]
    return workplace


@pytest.mark.parametrize("name", SHARED)
def test_processes_and_pieces_change_no_number(by_two: Path, name: str) -> None:
    one, two = by_two / f"{name} by one", by_two / f"{name} by two"
    assert checkpoints.read(two).state["processes"] == 2
    same_numbers(lines_of(one / "steps.jsonl"), lines_of(two / "steps.jsonl"))
    if SHARED[name].pretrain:
        same_numbers(lines_of(one / "pretraining.jsonl"), lines_of(two / "pretraining.jsonl"))


def test_two_processes_of_torchrun_have_the_losses_of_one(workplace: Path) -> None:
    recipe = small(RECIPES["vae"]).but(ONE_ALONE)
    (workplace / "recipe.json").write_text(recipe.to_json())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    # No device is named, as in the README: where there is no GPU they must still find each other.
    command += ["-m", "textspace", "train", "text.txt", "--config", "recipe.json", "--out", "two"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, cwd=workplace, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert finish([job(workplace, recipe, "one")]) == 0
    same_numbers(lines_of(workplace / "one" / "steps.jsonl"), lines_of(workplace / "two" / "steps.jsonl"))
    assert json.loads((checkpoints.newest(workplace / "two") / "state.json").read_text())["processes"] == 2
    command[command.index("text.txt")], command[-1] = "-", "never"
    ended = subprocess.run(command, cwd=workplace, capture_output=True, text=True, env=environment, input="a b\n" * 99)
    assert ended.returncode != 0
    assert "several processes cannot read one standard input: write the text to a file first" in ended.stderr
    assert not (workplace / "never").exists()


def test_several_processes_stop_when_asked_however_often_they_save(workplace: Path) -> None:
    """The log, which is read every 20 steps, is never full where checkpoints come more often."""
    recipe = small(RECIPES["vae"]).but({"training.epochs": 500, "training.checkpoint_every": 7})
    folder = workplace / "stopped by two"
    processes = started_by_two([job(workplace, recipe, folder.name)], own_cache(workplace, folder.name))
    log = folder / "steps.jsonl"
    while not (log.exists() and log.read_bytes().count(b"\n") > 30):
        assert all(process.is_alive() for process in processes)
        time.sleep(0.05)
    for process in processes:
        os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join(60)
        assert process.exitcode is not None, "it goes on"
    last = checkpoints.read(folder).state["step"]
    assert last % FETCH_EVERY == 0
    assert last == lines_of(log)[-1]["step"] < 1000


def test_processes_that_do_not_find_each_other_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Processes("cpu")  # whose group of one stays
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TextspaceError, match="torchrun has started several processes, but they found no way"):
        Processes("cpu")


def test_two_runs_do_not_train_in_one_folder_whatever_their_caches(workplace: Path, monkeypatch) -> None:
    recipe, run = small(RECIPES["vae"]).but(ONE_ALONE), workplace / "run"
    script = (
        "import sys, pathlib; from textspace.files import alone_in\n"
        "with alone_in(pathlib.Path(sys.argv[1]), 'choose another'): print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TEXTSPACE_CACHE": str(workplace / "another cache")},
    )
    with other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(TextspaceError, match=r"another process works in .*run: wait for it to end, or choose"):
            train(workplace / "text.txt", recipe, run, silent=True)
        other.stdin.close()
    assert not run.exists()
    train(workplace / "text.txt", recipe, run, silent=True, curves=False)
    assert not (run / ".lock").exists()


STARTED = ("begun.json", "recipe.json", "tokenizer.json", "metrics.json")
"""What a run writes before it trains, in this order."""


@pytest.mark.parametrize("written", range(len(STARTED) + 1))
@pytest.mark.parametrize("resume", [True, False])
def test_a_run_that_was_killed_as_it_began_can_begin_again(workplace: Path, written: int, resume: bool) -> None:
    recipe, text = small(RECIPES["vae"]).but(ONE_ALONE), workplace / "text.txt"
    straight, killed = workplace / "straight", workplace / f"killed-{written}-{resume}"
    if not straight.exists():
        train(text, recipe, straight, silent=True, curves=False)
    killed.mkdir()
    for name in STARTED[:written]:
        content = (straight / name).read_bytes()
        if name == "metrics.json":  # as it is at the start
            content = json.dumps({"training_text": json.loads(content)["training_text"]}).encode()
        (killed / name).write_bytes(content)
    if resume and not written:
        with pytest.raises(TextspaceError, match="holds no run to resume: leave out --resume to begin one there"):
            train(text, recipe, killed, silent=True, resume=True)
        return
    train(text, recipe, killed, silent=True, curves=False, resume=resume)
    assert (killed / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
    assert lines_of(killed / "steps.jsonl") == lines_of(straight / "steps.jsonl")


def test_a_folder_with_nothing_but_the_recipe_of_a_run_is_not_stranded(workplace: Path) -> None:
    """An earlier version wrote it first."""
    recipe, text = small(RECIPES["vae"]).but(ONE_ALONE), workplace / "text.txt"
    for resume in (True, False):
        folder = workplace / f"stranded-{resume}"
        folder.mkdir()
        (folder / "recipe.json").write_text(recipe.to_json())
        with pytest.raises(TextspaceError, match="another recipe" if resume else r"has a file recipe\.json"):
            train(text, recipe.but({"latent.dim": 3}), folder, silent=True, resume=resume)
        train(text, recipe, folder, silent=True, curves=False, resume=resume)
        assert Space.load(folder, "cpu").dim == recipe.latent.dim


def test_a_killed_run_without_a_checkpoint_starts_over_on_its_own_text_only(workplace: Path, tmp_path: Path) -> None:
    recipe, folder = small(RECIPES["vae"]).but(ONE_ALONE), tmp_path / "run"
    train(workplace / "text.txt", recipe, tmp_path / "straight", silent=True, curves=False)
    folder.mkdir()
    (folder / "begun.json").write_bytes((tmp_path / "straight" / "begun.json").read_bytes())
    (tmp_path / "other.txt").write_text("\n".join(tiny_sentences()[::-1]))
    with pytest.raises(TextspaceError, match="began with other text: resume with the same source"):
        train(tmp_path / "other.txt", recipe, folder, silent=True, resume=True)
    assert [path.name for path in folder.iterdir()] == ["begun.json"]
    assert command("train", str(workplace / "text.txt"), "--out", str(folder), "--resume")[0] == 0
    assert Recipe.load(folder / "recipe.json") == recipe  # which begun.json knows


class Cut(BaseException):
    """As a killed process ends."""


def check_what_is_said_of_the_weights(run: Path) -> None:
    """The model card has the step that the record has; without the record it is that step or unknown."""
    kept = folders.read_metrics(run).get("kept")
    card = run / "README.md"
    assert kept is not None or not card.exists()
    if kept is not None:
        assert not card.exists() or f"(step {kept['step']:,})" in card.read_text()
        found = History.of(run, {}).kept
        assert found is None or found["step"] == kept["step"]


@pytest.mark.parametrize("longer", [False, True])
def test_a_run_may_be_cut_off_before_any_file_that_it_writes(tmp_path: Path, monkeypatch, longer: bool) -> None:
    """What is there can be loaded, if it is a space at all, and the run be resumed to the bits of one left alone."""
    text, recipe = tmp_path / "text.txt", small(RECIPES["vae"]).but(OFTEN | {"training.epochs": 1})
    text.write_text("\n".join(tiny_sentences(200)))
    wanted = recipe.but({"training.epochs": 2}) if longer else recipe
    train(text, recipe, tmp_path / "short", silent=True, curves=False)
    shutil.copytree(tmp_path / "short", tmp_path / "straight")
    train(text, wanted, tmp_path / "straight", silent=True, curves=False, resume=True)
    write, left = files.write_and_sync, [0]

    def cut_off(path: Path, data: bytes) -> None:
        left[0] -= 1
        if not left[0]:
            raise Cut
        write(path, data)

    for count in range(1, 99):
        run = tmp_path / f"cut before {count}"
        if longer:
            shutil.copytree(tmp_path / "short", run)
        with monkeypatch.context() as patched:
            left[0] = count
            for module in (files, checkpoints):
                patched.setattr(module, "write_and_sync", cut_off)
            try:
                train(text, wanted, run, silent=True, curves=False, resume=longer)
                break  # it was through before
            except Cut:
                pass
        if (run / "model.safetensors").exists():
            Space.load(run, "cpu")
            check_what_is_said_of_the_weights(run)
        has_begun = (run / "begun.json").exists()
        train(text, wanted, run, silent=True, curves=False, resume=has_begun)
        assert checkpoints.read(run).state["files"] == checkpoints.read(tmp_path / "straight").state["files"]
        assert (run / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()
    assert count > 15


def test_who_asked_for_more_epochs_need_not_ask_again(workplace: Path) -> None:
    recipe = small(RECIPES["vae"]).but({"training.epochs": 1})
    train(workplace / "text.txt", recipe, workplace / "longer", silent=True, curves=False)
    longer = recipe.but({"training.epochs": 3})
    train(workplace / "text.txt", longer, workplace / "longer", resume=True, silent=True, curves=False)
    assert Recipe.load(workplace / "longer" / "recipe.json").training.epochs == 3


def test_processes_leave_their_group_at_the_end(tmp_path: Path) -> None:
    """Else threads abort a process now and then, with all its work done."""
    (tmp_path / "ends.py").write_text(
        "import atexit, torch.distributed\n"
        "atexit.register(lambda: print('stayed' if torch.distributed.is_initialized() else 'left'))\n"
        "from textspace.train.processes import Processes\n"
        "first, second = Processes('cpu'), Processes('cpu')\n"
        "print(first.count, second.any(True))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ends.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert [ended.stdout.count(word) for word in ("2", "True", "left")] == [2, 2, 2]


@pytest.mark.parametrize(("began", "other"), [("balanced", "all"), ("all", "balanced")])
def test_a_run_that_goes_on_mixes_sources_as_it_began(began: Any, other: Any, tmp_path: Path) -> None:
    for name, count in (("short", 30), ("long", 90)):
        (tmp_path / f"{name}.txt").write_text("\n".join(tiny_sentences(count)))
    sources = [str(tmp_path / f"{name}.txt") for name in ("short", "long")]
    recipe = small(RECIPES["vae"]).but({"training.epochs": 1})
    quiet: dict[str, Any] = {"device": "cpu", "silent": True, "curves": False}
    for name, epochs in (("resumed", 1), ("undisturbed", 3)):
        longer = recipe.but({"training.epochs": epochs})
        train(sources, longer, tmp_path / name, options=ReadOptions(mixing=began), **quiet)
    more = {"resume": True, **quiet}
    longer = recipe.but({"training.epochs": 3})
    told = rf"the run in .*resumed began with --mixing {began}: leave out --mixing {other} to resume it"
    with pytest.raises(TextspaceError, match=told):
        train(sources, longer, tmp_path / "resumed", options=ReadOptions(mixing=other), **more)
    train(sources, longer, tmp_path / "resumed", **more)
    resumed, undisturbed = (outcome(tmp_path / name) for name in ("resumed", "undisturbed"))
    assert (resumed.files, resumed.best) == (undisturbed.files, undisturbed.best)
    assert json.loads((tmp_path / "resumed" / "metrics.json").read_text())["mixing"] == began

    noted = json.loads((tmp_path / "resumed" / "begun.json").read_text())
    noted.pop("digest")
    del noted["mixing"]  # as earlier versions left it
    (tmp_path / "resumed" / "begun.json").write_text(json.dumps(noted))
    longest = recipe.but({"training.epochs": 4})
    assert train(sources, longest, tmp_path / "resumed", options=ReadOptions(mixing=began), **more).epochs == 4


def test_a_corpus_brings_its_mixing_unless_options_say_another(tmp_path: Path) -> None:
    for name, count in (("short", 30), ("long", 90)):
        (tmp_path / f"{name}.txt").write_text("\n".join(tiny_sentences(count)))
    corpus = open_corpus(str(tmp_path / "*.txt"), ReadOptions(mixing="balanced"))
    recipe = small(RECIPES["vae"]).but({"training.epochs": 1})
    for options, mixing in ((None, "balanced"), (ReadOptions(mixing="all"), "all")):
        assert Space.fit(corpus, recipe, options=options, device="cpu").metrics["mixing"] == mixing
    rehearsed = [rehearse(corpus, recipe, options=options, device="cpu", steps=1) for options in (None, ReadOptions())]
    assert {each.batches_per_epoch for each in rehearsed} == {2}  # 2 x 28 sentences, and not 28 + 82
