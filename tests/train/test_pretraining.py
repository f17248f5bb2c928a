"""Two-phase training: what the first phase is, what of it stays, and who uses it again."""

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from helpers import changed, lines_of, small, start, tiny_sentences, trainer_on

from textspace.config import Recipe
from textspace.data.corpus import corpus_of
from textspace.data.preparing import Prepared
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.train import checkpoints, pretraining, updates
from textspace.train.fit import train
from textspace.train.loop import Interrupted, Trainer
from textspace.train.pretraining import Pretrained, first_phase, pretrain
from textspace.train.processes import Processes
from textspace.train.rehearsal import rehearse

RECIPE = small(RECIPES["pretrain-free-bits"])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEXTSPACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def trained(tiny: Prepared, tmp_path: Path):
    """Trains on the tiny corpus as the command does; the metrics."""

    def go(recipe: Recipe, folder: str, source=tiny.corpus, **more) -> dict:
        train(source, recipe, tmp_path / folder, device="cpu", silent=True, curves=False, **more)
        return json.loads((tmp_path / folder / "metrics.json").read_text())

    return go


def pretrained(tiny: Prepared, recipe: Recipe, cache: Path) -> Pretrained:
    return pretrain(
        recipe, len(tiny.tokenizer), tiny.encoded.splits, cache, data=tiny.fingerprint, processes=Processes("cpu"),
        silent=True,
    )  # fmt: skip


# What it is


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.pretrain])
def test_the_first_phase_is_the_recipe_with_kl_weight_0_selected_by_reconstruction(name: str) -> None:
    recipe = RECIPES[name]
    phase = first_phase(recipe)
    assert (phase.objective.kind, phase.objective.kl_weight, phase.objective.free_bits) == ("elbo", 0.0, None)
    assert phase.posterior.kind == "gaussian"
    assert phase.training.criterion == "reconstruction"
    back = {"objective": recipe.objective, "pretrain": recipe.pretrain, "training": recipe.training}
    told = {"name": name, "about": recipe.about}
    assert phase.model_copy(update=back | told) == recipe
    changed = {"criterion": recipe.training.criterion, "epochs": recipe.training.epochs}
    assert phase.training.model_copy(update=changed) == recipe.training


def test_a_posterior_without_density_is_pretrained_on_reconstruction_alone() -> None:
    phase = first_phase(RECIPES["ivae"].but({"pretrain": {}}))
    assert (phase.objective.kind, phase.posterior.kind) == ("reconstruction", "implicit")
    assert phase.training.update.kind == "joint"


def test_the_folder_tells_how_the_first_phase_went(trained, tmp_path: Path) -> None:
    metrics = trained(RECIPE, "run")
    told = json.loads((tmp_path / "run" / "pretraining.json").read_text())
    assert metrics["pretraining"] == told
    assert (told["epochs"], told["steps"], told["reused"]) == (2, 24, False)
    lines = lines_of(tmp_path / "run" / "pretraining.jsonl")
    steps = [line for line in lines if line["event"] == "step"]
    validations = [line for line in lines if line["event"] == "validation"]
    assert [line["step"] for line in steps] == list(range(1, 25))
    assert all(line["weights"] == {"reconstruction": 1.0, "kl": 0.0} for line in steps)
    assert all(line["kl"] > 0 for line in steps)  # the posterior has a spread, only its price is 0
    assert told["best"] == min(line["reconstruction"] for line in validations)
    assert "reconstruction" in told["criterion"]
    second = [line for line in lines_of(tmp_path / "run" / "steps.jsonl") if line["event"] == "step"]
    assert [line["step"] for line in second] == list(range(1, 25))
    assert {"kl_free_bits", "kl"} < second[0].keys()


def test_the_first_phase_has_its_own_number_of_epochs(trained) -> None:
    metrics = trained(RECIPE.but({"pretrain.epochs": 1, "training.epochs": 2}), "run")
    assert (metrics["pretraining"]["epochs"], metrics["trained"]["epochs"]) == (1, 2)


# What stays


@pytest.mark.parametrize("keep", ["encoder", "both"])
@pytest.mark.parametrize("shared", [False, True])
def test_the_second_phase_starts_from_the_best_encoder(
    tiny: Prepared, cache: Path, monkeypatch: pytest.MonkeyPatch, keep: str, shared: bool
) -> None:
    """Pooling and both heads of the posterior with it; the decoder is new unless it is kept too."""
    recipe = RECIPE.but(
        {"pretrain.keep": keep, "share_embeddings": shared, "pooling": {"kind": "attention"}, "training.epochs": 3}
    )  # fmt: skip
    values = iter([5.0, 3.0, 4.0])  # the second epoch of the first phase is the best one
    monkeypatch.setattr(Trainer, "_criterion", lambda self, numbers: next(values))
    first = pretrained(tiny, recipe, cache)
    assert (first.trained.best_step, first.trained.steps) == (24, 36)
    best = checkpoints.read_tensors(first.folder / "model.safetensors")
    last = checkpoints.read(first.folder).tensors["model"]
    assert changed(first.model, best) == set()
    assert changed(first.model, last) == best.keys()

    model, fresh = (Model(recipe, len(tiny.tokenizer)) for _ in range(2))
    first.keep(model, recipe)
    now, new = checkpoints.weights(model), checkpoints.weights(fresh)
    kept = {name for name in now if torch.equal(now[name], best[name])}
    as_new = {name for name in now if torch.equal(now[name], new[name])}
    parts = {name: name.split(".")[0] for name in now}
    assert {parts[name] for name in kept} >= {"encoder", "pooling", "posterior"}
    assert {"posterior.mean.weight", "posterior.log_variance.weight"} <= kept
    if keep == "both":
        assert (kept, as_new) == (now.keys(), set())
    else:
        assert as_new == {name for name, part in parts.items() if part == "decoder"} == now.keys() - kept
    assert ("decoder.embedding.weight" in now) == (not shared)
    if shared:
        assert model.decoder.embedding is model.encoder.embedding
        assert torch.equal(model.decoder.embedding.weight, best["encoder.embedding.weight"])


def test_the_whole_run_is_those_two_phases(tiny: Prepared, trained, tmp_path: Path, cache: Path) -> None:
    trained(RECIPE, "run")
    by_hand = trainer_on(tiny, RECIPE, tmp_path / "elsewhere" / "run")
    by_hand.run()
    made = checkpoints.read_tensors(tmp_path / "run" / "model.safetensors")
    assert changed(by_hand.model, made) == set()


# Who uses it again


def test_a_first_phase_is_reused_by_runs_that_would_train_the_same(trained, cache: Path) -> None:
    first = trained(RECIPE, "first")["pretraining"]
    changes = {"objective.free_bits.target": 8.0, "objective.kl_weight": 1.0, "pretrain.keep": "both", "name": "other"}
    for number, (path, value) in enumerate(changes.items()):
        again = trained(RECIPE.but({path: value}), f"again {number}")["pretraining"]
        assert again == first | {"reused": True}, path
    assert len(list((cache / "pretrained").iterdir())) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"training.seed": 1},
        {"pooling.kind": "max"},
        {"latent.dim": 5},
        {"training.optimizer.lr": 0.004},
        {"pretrain.epochs": 1},
        {"initial.weights": 0.2},
    ],
)
def test_a_first_phase_is_not_reused_where_its_weights_would_differ(trained, cache: Path, changes: dict) -> None:
    recipe = RECIPE.but({"training.epochs": 2, "training.steps": 3})
    trained(recipe, "first")
    assert not trained(recipe.but(changes), "other")["pretraining"]["reused"]
    assert len(list((cache / "pretrained").iterdir())) == 2


def test_a_first_phase_is_not_reused_where_start_values_were_drawn_otherwise(
    trained, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPE.but({"training.steps": 3})
    trained(recipe, "first")
    monkeypatch.setattr(pretraining, "SCHEME", "in another way")
    assert not trained(recipe, "other")["pretraining"]["reused"]
    assert len(list((cache / "pretrained").iterdir())) == 2


def test_a_first_phase_is_not_reused_on_other_data(trained, cache: Path) -> None:
    recipe = RECIPE.but({"training.steps": 3})
    trained(recipe, "first")
    sentences = tiny_sentences()
    sentences[0], sentences[1] = "anna sees anna", "bob hears bob"  # the same words, other sentences
    assert not trained(recipe, "other", corpus_of(sentences))["pretraining"]["reused"]
    assert len(list((cache / "pretrained").iterdir())) == 2


def test_two_runs_at_the_same_time_train_one_first_phase(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(tiny_sentences()))
    together = multiprocessing.get_context("forkserver").Barrier(2)
    processes = []
    for name, target in [("one", 2.0), ("two", 6.0)]:
        recipe = RECIPE.but({"objective.free_bits.target": target})
        job = {"source": str(tmp_path / "text.txt"), "recipe": recipe.to_json(), "out": str(tmp_path / name)}
        processes.append(start([job], {"TEXTSPACE_CACHE": str(cache)}, together=together))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    told = [json.loads((tmp_path / name / "pretraining.json").read_text()) for name in ("one", "two")]
    assert sorted(each["reused"] for each in told) == [False, True]
    logs = [lines_of(tmp_path / name / "pretraining.jsonl") for name in ("one", "two")]
    assert logs[0] == logs[1]
    assert [line["step"] for line in logs[0] if line["event"] == "step"] == list(range(1, 25))


def test_a_run_that_starts_from_a_space_has_no_first_phase(
    trained, tiny: Prepared, tmp_path: Path, cache: Path
) -> None:
    trained(small(RECIPES["vae"]), "start")
    rehearsals = [rehearse(tiny.corpus, RECIPE, init=init, device="cpu") for init in (None, tmp_path / "start")]
    assert [each.parts["pretrain"] == "none" for each in rehearsals] == [False, True]
    assert [each.epochs_before for each in rehearsals] == [RECIPE.pretrain.epochs or RECIPE.training.epochs, 0]
    cut = rehearse(tiny.corpus, RECIPE.but({"training.steps": 1, "pretrain.epochs": 9}), device="cpu")
    assert (cut.epochs, cut.epochs_before) == (1, 1)
    metrics = trained(RECIPE, "run", init=tmp_path / "start")
    assert "pretraining" not in metrics
    assert not (tmp_path / "run" / "pretraining.json").exists()
    assert not (cache / "pretrained").exists()


def test_a_run_from_a_space_that_saved_nothing_is_not_resumed_with_a_first_phase(
    trained, tmp_path: Path, cache: Path
) -> None:
    trained(small(RECIPES["vae"]), "start")
    trained(RECIPE, "run", init=tmp_path / "start")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    for init in (tmp_path / "start", None):
        with pytest.raises(TextspaceError, match=r"no checkpoint in .* to resume from: train in a new folder"):
            trained(RECIPE, "run", init=init, resume=True)
    for name in ("metrics.json", "model.safetensors"):  # as of a run that was killed before its first checkpoint
        with pytest.raises(TextspaceError, match=r"no checkpoint in .* to resume from: train in a new folder"):
            trained(RECIPE, "run", resume=True)
        (tmp_path / "run" / name).unlink()
    with pytest.raises(TextspaceError, match=r"started from another space and has no checkpoint yet: add --init"):
        trained(RECIPE, "run", resume=True)
    assert trained(RECIPE, "run", init=tmp_path / "start", resume=True)["started_from"] == str(tmp_path / "start")
    assert not (cache / "pretrained").exists()


def test_a_run_is_not_resumed_from_a_space_that_it_did_not_start_from(trained, tmp_path: Path) -> None:
    recipe = small(RECIPES["vae"])
    trained(recipe, "start")
    trained(recipe.but({"training.seed": 7}), "other")
    trained(recipe, "run", init=tmp_path / "start")
    longer = recipe.but({"training.epochs": recipe.training.epochs + 1})
    for run, init in (("run", "other"), ("other", "start")):
        with pytest.raises(TextspaceError, match=f"{run} did not start from .*{init}: leave out --init to resume it"):
            trained(longer, run, init=tmp_path / init, resume=True)
    assert trained(longer, "run", init=tmp_path / "start", resume=True)["trained"]["epochs"] == longer.training.epochs
    (tmp_path / "run" / "begun.json").write_text("{")
    with pytest.raises(TextspaceError, match=r"begun.json is damaged: start anew in another folder"):
        trained(longer, "run", resume=True)


def test_who_stops_the_first_phase_is_told_how_to_go_on(
    trained, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = trained(RECIPE, "straight")
    monkeypatch.setenv("TEXTSPACE_CACHE", str(tmp_path / "another cache"))
    step = updates.JointUpdate._step

    def interrupted(self, shard, turn, moving):
        if turn.number == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, shard, turn, moving)

    with monkeypatch.context() as patched:
        patched.setattr(updates.JointUpdate, "_step", interrupted)
        with pytest.raises(Interrupted) as told:
            trained(RECIPE, "run")
    assert str(told.value) == f"stopped in the first phase; resume with --resume --out {tmp_path / 'run'}"
    assert checkpoints.newest(tmp_path / "run") is None
    with pytest.raises(TextspaceError, match="run began with other text: resume with the same source and options"):
        trained(RECIPE, "run", corpus_of(tiny_sentences()[::-1]), resume=True)
    with pytest.raises(TextspaceError, match="run began with another recipe: resume with the same settings"):
        trained(RECIPE.but({"objective.free_bits.target": 7.0}), "run", resume=True)
    (folder,) = (tmp_path / "another cache" / "pretrained").iterdir()
    assert checkpoints.read(folder).state["step"] == 7
    metrics = trained(RECIPE, "run", resume=True)
    assert not metrics["pretraining"]["reused"]
    assert lines_of(tmp_path / "run" / "pretraining.jsonl") == lines_of(tmp_path / "straight" / "pretraining.jsonl")
    assert metrics["valid"] == straight["valid"]


def test_a_first_phase_keeps_its_length_when_the_second_gets_longer(trained, tmp_path: Path) -> None:
    """And its recipe says so, else the run would pass for one whose first phase is as long as the second."""
    short = RECIPE.but({"training.epochs": 1, "pretrain.epochs": None})
    trained(short, "run")
    own = Recipe.load(tmp_path / "run" / "recipe.json")
    assert own.pretrain.epochs == 1
    with pytest.raises(TextspaceError, match="began with another recipe: resume with the same settings"):
        trained(short.but({"training.epochs": 2}), "run", resume=True)
    metrics = trained(own.but({"training.epochs": 2}), "run", resume=True)
    assert (metrics["pretraining"]["epochs"], metrics["trained"]["epochs"]) == (1, 2)
    (tmp_path / "run" / "pretraining.json").write_text('{"a":' * 100_000)  # what it says is lost, and nothing else
    assert "pretraining" not in trained(own.but({"training.epochs": 3}), "run", resume=True)
