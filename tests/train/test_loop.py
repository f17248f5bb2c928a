"""The training loop: what it learns, selects, logs, refuses and survives."""

import json
import math
import os
import signal
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import SMALL_ATTENTIVE, small, tiny_sentences

from textspace.config import Recipe
from textspace.errors import TextspaceError
from textspace.evaluate.examination import examine
from textspace.evaluate.likelihood import likelihood
from textspace.noise import Noise, seed_of
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train import checkpoints
from textspace.train.curves import draw_curves
from textspace.train.fit import train
from textspace.train.log import Display, StepLog, records
from textspace.train.loop import Interrupted, Trained, Trainer
from textspace.train.processes import Processes
from textspace.train.updates import Turn


def steps_of(trainer: Trainer) -> list[dict]:
    return list(records(trainer.folder / "steps.jsonl", "step"))


def test_the_model_ends_with_its_best_weights(trainer_of) -> None:
    trainer = trainer_of(small(RECIPES["vae"]).but({"training.epochs": 3}))
    values = iter([5.0, 3.0, 4.0])
    trainer._criterion = lambda numbers: next(values)  # the second epoch is the best one
    seen = []
    judge = trainer.selection.judge
    trainer.selection.judge = lambda *a: seen.append(checkpoints.digest(trainer.model)) or judge(*a)
    trained = trainer.run()
    assert checkpoints.digest(trainer.model) == seen[1]
    assert trained.best == 3.0
    stored = checkpoints.read_tensors(trainer.folder / "model.safetensors")
    assert all(torch.equal(stored[n], t) for n, t in checkpoints.weights(trainer.model).items())


def test_the_importance_weighted_bound_selects_what_was_trained_on_it(trainer_of) -> None:
    trainer = trainer_of(small(RECIPES["iwae"]).but({"training.epochs": 2}))
    trained = trainer.run()
    bounds = [line["nll"] for line in records(trainer.folder / "steps.jsonl", "validation")]
    assert trained.best == min(bounds)
    seed = seed_of(trainer.training.seed, "validation")
    measured = likelihood(trainer.model, trainer.valid, samples=10, seed=seed).estimates()
    assert measured["nll"].value == pytest.approx(min(bounds))
    assert measured["nll"].value < measured["elbo"].value
    assert "as many samples as training takes" in trained.criterion


def test_best_weights_are_written_with_checkpoints_and_when_a_run_breaks(trainer_of, monkeypatch) -> None:
    written = []
    write = checkpoints.write_tensors
    monkeypatch.setattr(
        checkpoints, "write_tensors", lambda path, tensors: written.append(path) or write(path, tensors)
    )
    trainer = trainer_of(small(RECIPES["vae"]).but({"training.epochs": 3, "training.checkpoint_every": None}))
    update, best = trainer.update, []

    class Broken:
        def __getattr__(self, name: str) -> object:
            return getattr(update, name)

        def __call__(self, *given: object) -> object:
            if len(trainer.history) == 2:
                best.append(checkpoints.digest(trainer.model))
                raise KeyboardInterrupt
            return update(*given)

    trainer.update = Broken()
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.selection.best_step == trainer.step  # weights of both epochs were the best so far
    assert [path.name for path in written] == ["model.safetensors"]
    checkpoints.load_weights(trainer.model, checkpoints.read_tensors(written[0]), "the file")
    assert best == [checkpoints.digest(trainer.model)]


def test_best_weights_are_reloaded_at_a_decay(trainer_of) -> None:
    plateau = {"patience": 1, "reload_best": True, "max_decays": 9}
    trainer = trainer_of(small(RECIPES["vae"]).but({"training.epochs": 3, "training.plateau": plateau}))
    values = iter([3.0, 4.0, 5.0])
    trainer._criterion = lambda numbers: next(values)
    after = []
    end = trainer._end_epoch
    trainer._end_epoch = lambda: (end(), after.append(checkpoints.digest(trainer.model)))
    trainer.run()
    assert after[0] == after[1] == after[2]
    rates = [line["lr"] for line in steps_of(trainer)]
    per_epoch = len(rates) // 3
    assert rates[0] == 2 * rates[per_epoch * 2]  # no decay in the first two epochs, one before the third


def test_what_a_checkpoint_counts_of_the_log_is_on_the_disk_first(trainer_of, monkeypatch) -> None:
    called: list[str] = []
    sync, write = StepLog.sync, checkpoints.write
    monkeypatch.setattr(StepLog, "sync", lambda log: called.append("log") or sync(log))
    monkeypatch.setattr(checkpoints, "write", lambda *a, **b: called.append("checkpoint") or write(*a, **b))
    trainer_of(small(RECIPES["vae"])).run()
    assert called[:2] == ["log", "checkpoint"]


def test_validating_more_often_changes_no_weight(trainer_of) -> None:
    recipe = small(RECIPES["vae"])
    rarely, often = trainer_of(recipe, "a"), trainer_of(recipe.but({"training.validate_every": 3}), "b")
    rarely.run(), often.run()
    assert checkpoints.digest(rarely.model) == checkpoints.digest(often.model)
    count = [len(list(records(t.folder / "steps.jsonl", "validation"))) for t in (rarely, often)]
    assert count[1] > count[0]


@pytest.mark.parametrize(("dim", "there"), [(4, True), (1, False)])
def test_validations_record_how_sparse_codes_are_where_that_can_be_said(
    trainer_of, monkeypatch, dim: int, there: bool
) -> None:
    trainer = trainer_of(small(RECIPES["vae"]).but({"latent.dim": dim, "training.epochs": 2}))
    said: list[str] = []
    monkeypatch.setattr(Display, "say", lambda display, text: said.append(text))
    trainer.run()
    lines = list(records(trainer.folder / "steps.jsonl", "validation"))
    assert len(lines) == 2
    for line in lines:
        assert ("hoyer_samples" in line) == ("hoyer_means" in line) == there
        assert "active_units" in line
        assert 0 < line.get("hoyer_samples", 0.5) < 1
    shown = [text for text in said if "validation:" in text]
    assert len(shown) == 2
    assert not any("hoyer" in text for text in shown)  # the line of an epoch is long enough


PARTLY_PER_BATCH = {
    "vae": {},
    "free bits on the batch": {"objective.free_bits": {"target": 0.08, "on": "batch"}},
    "free bits on the batch, in total": {"objective.free_bits": {"target": 0.08, "per": "total", "on": "batch"}},
    "wae": {"objective": {"kind": "wae"}},
    "iwae": {"objective": {"kind": "iwae", "samples": 3}},
    "dual": {"objective": {"kind": "dual-kl", "dual": {"hidden": 16}}, "training.update.kind": "alternating"},
    "averaged over tokens": {"training.average": "tokens"},
    "a latent for every token": {
        **{part: {"kind": "transformer", **SMALL_ATTENTIVE} for part in ("encoder", "decoder")},
        "pooling.kind": "none",
        "prior": {"kind": "scaled-normal", "learned": True},
        "training.average": "tokens",
    },
}


@pytest.mark.parametrize("changes", PARTLY_PER_BATCH)
@pytest.mark.parametrize("batch", [{"sentences": 30, "tokens": None}, {"sentences": None, "tokens": 200}])
def test_pieces_of_a_batch_give_its_gradient(trainer_of, batch: dict, changes: str) -> None:
    recipe = small(RECIPES["vae"]).but(PARTLY_PER_BATCH[changes] | {"training.batch": batch, "training.epochs": 1})
    whole, pieces = trainer_of(recipe, "a"), trainer_of(recipe.but({"training.batch.pieces": 4}), "b")
    whole.run(), pieces.run()
    for one, other in zip(steps_of(whole), steps_of(pieces), strict=True):
        for name in one["weights"].keys() | {"loss"}:
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-5)
        assert one["gradient"] == pytest.approx(other["gradient"], rel=1e-3)
    if recipe.objective.kind == "elbo" and recipe.objective.free_bits:
        held = [line["kl_free_bits"] == pytest.approx(0.08) for line in steps_of(whole)]
        assert True in held, "below the target in some steps"
        assert False in held, "and above it in others"


def test_clipping_bounds_the_step(trainer_of) -> None:
    recipe = small(RECIPES["vae"]).but(
        {"training.optimizer": {"kind": "sgd", "lr": 1.0}, "training.clip": 1e-3, "training.steps": 1}
    )
    trainer = trainer_of(recipe)
    before = {n: t.clone() for n, t in checkpoints.weights(trainer.model).items()}
    trainer.run()
    moved = math.sqrt(sum(float(((t - before[n]) ** 2).sum()) for n, t in checkpoints.weights(trainer.model).items()))
    assert moved == pytest.approx(1e-3, rel=1e-2)
    assert steps_of(trainer)[0]["gradient"] > 1e-2  # the log shows the norm before clipping


def test_warm_up_raises_the_learning_rate(trainer_of) -> None:
    warm_up = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10, "unit": "steps"}
    trainer = trainer_of(small(RECIPES["vae"]).but({"training.optimizer.schedule": warm_up, "training.steps": 12}))
    trainer.run()
    rates = [line["lr"] / 0.005 for line in steps_of(trainer)]
    np.testing.assert_allclose(rates, [min(i / 10, 1) for i in range(12)])


def test_the_log_has_every_term_of_every_step(trainer_of) -> None:
    trainer = trainer_of(small(RECIPES["vae"]).but({"objective.kl_weight": 0.25}))
    trained = trainer.run()
    lines = steps_of(trainer)
    assert [line["step"] for line in lines] == list(range(1, trained.steps + 1))
    for line in lines:
        assert line["loss"] == pytest.approx(line["reconstruction"] + 0.25 * line["kl"], rel=1e-4)
        assert line["weights"] == {"reconstruction": 1.0, "kl": 0.25}


def spoil(trainer, bad: str, steps: Collection[int]) -> dict[int, str]:
    """Make some steps not finite; digests of the weights before each, by how many came before."""
    before: dict[int, str] = {}
    forward = trainer.model.forward

    def spoiled(batch, noise: Noise, *more: int):
        before[noise.step] = checkpoints.digest(trainer.model)
        passed = forward(batch, noise, *more)
        if noise.step + 1 in steps:
            if bad == "kl":
                passed.sites["z"].q.loc.data[0, 0] = math.inf
            else:
                passed.token_log_px_SBT.register_hook(lambda gradient: gradient * math.nan)
        return passed

    trainer.model.forward = spoiled
    return before


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("bad", ["kl", "gradient"])
def test_a_step_that_is_not_finite_changes_no_weight(trainer_of, kind: str, bad: str) -> None:
    """An epoch has 12 steps and ends with a look at the log: nobody looks at the bad step 27 before step 36."""
    recipe = small(RECIPES["vae"]).but({"training.optimizer.kind": kind, "training.epochs": 9})
    trainer = trainer_of(recipe)
    before = spoil(trainer, bad, {27})
    with pytest.raises(TextspaceError) as told:
        trainer.run()
    assert f"at step 27 the {bad} became" in str(told.value)
    assert "the last good checkpoint is" in str(told.value)
    assert "step-00000024" in str(told.value)
    assert checkpoints.digest(trainer.model) == before[26]
    assert [line["step"] for line in steps_of(trainer)] == list(range(1, 27))
    assert checkpoints.read(trainer.folder).state["step"] == 24


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("bad", ["kl", "gradient"])
def test_in_16_bits_single_steps_that_are_not_finite_are_passed_over(
    trainer_of, capsys: pytest.CaptureFixture[str], kind: str, bad: str
) -> None:
    """16 bits are for the GPU: here only what is told of them is so."""
    recipe = small(RECIPES["vae"]).but({"training.optimizer.kind": kind, "training.epochs": 3})
    trainer = trainer_of(recipe)
    trainer.silent, trainer.update.mover.bad_steps = False, 3
    before = spoil(trainer, bad, {5, 6, 27})
    trainer.run()
    unmoved = {step for step in range(1, 36) if before[step - 1] == before[step]}
    assert unmoved == {5, 6, 27}
    assert {line["step"] for line in steps_of(trainer) if line[bad] is None} == {5, 6, 27}
    told = capsys.readouterr().err
    assert told.index("2 steps moved nothing: not finite in 16 bits") < told.index("a step moved nothing")
    assert told.count("moved nothing") == 2
    assert all(path.exists() for path in draw_curves(trainer.folder / "steps.jsonl", trainer.folder / "curves"))


@pytest.mark.parametrize(
    "log",
    [
        b'{"event": "step"',
        b'{"event": "step"}\n',
        b'{"event": "step", "step": 1, "epoch": "x", "lr": [], "loss": 1, "kl": {}}\n',
        b'{"event": "step", "epoch": 1, "lr": 1e400, "loss": 1e308, "kl": -1e308}\n' * 3,
        b'{"a":' * 100_000,
        None,
    ],
)
def test_a_run_does_not_fail_for_its_curves(tmp_path: Path, log: bytes | None) -> None:
    path = tmp_path / "steps.jsonl"
    if log is None:
        path.symlink_to(path)
    else:
        path.write_bytes(log)
    with pytest.warns(UserWarning, match=r"no curves were drawn from .*steps.jsonl \(.+\); the space itself is whole"):
        assert draw_curves(path, tmp_path / "curves") == []


def test_too_many_steps_in_a_row_that_are_not_finite_end_a_run_in_16_bits(trainer_of) -> None:
    trainer = trainer_of(small(RECIPES["vae"]).but({"training.epochs": 9}))
    trainer.update.mover.bad_steps = 3
    before = spoil(trainer, "gradient", {14, 15, 26, 27, 28})
    with pytest.raises(TextspaceError, match="at step 26 the gradient became nan"):
        trainer.run()
    assert checkpoints.digest(trainer.model) == before[25]
    assert trainer.step == 36  # the end of the epoch: nobody looked before, and nothing moved


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(trainer_of, number: int) -> None:
    recipe = small(RECIPES["vae"]).but({"training.epochs": 100_000})
    trainer = trainer_of(recipe)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), number)).start()
    with pytest.raises(Interrupted, match=r"stopped at step \d+; resume with --resume"):
        trainer.run()
    assert trainer.step > 0
    assert checkpoints.read(trainer.folder).state["step"] == trainer.step
    continued = trainer_of(recipe.but({"training.steps": trainer.step + 5}))
    continued.resume()
    assert continued.run().steps == trainer.step + 5
    assert [line["step"] for line in steps_of(continued)] == list(range(1, trainer.step + 6))


def test_resuming_refuses_other_data_or_settings_and_warns_of_other_threads(trainer_of) -> None:
    recipe = small(RECIPES["vae"])
    trainer_of(recipe, data="one").run()
    with pytest.raises(TextspaceError, match="was trained on other text"):
        trainer_of(recipe, data="two").resume()
    with pytest.raises(TextspaceError, match="was trained with another recipe"):
        trainer_of(recipe.but({"objective.kl_weight": 0.5}), data="one").resume()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.warns(UserWarning, match="threads"):
            trainer_of(recipe, data="one").resume()
    finally:
        torch.set_num_threads(threads)


def test_a_finished_run_stays_finished(trainer_of) -> None:
    recipe = small(RECIPES["vae"]).but({"training.plateau": {"patience": 1, "max_decays": 1}, "training.epochs": 50})
    first = trainer_of(recipe)
    values = iter([3.0, 4.0])
    first._criterion = lambda numbers: next(values)
    assert first.run().stopped == "the learning rate was lowered 1 times"
    again = trainer_of(recipe)
    again.resume()
    assert again.run() == first._summary("the learning rate was lowered 1 times")


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_lower_precision_on_the_cpu_is_refused(trainer_of, precision: str) -> None:
    with pytest.raises(TextspaceError, match=f"{precision} is for the GPU"):
        trainer_of(small(RECIPES["vae"]).but({"training.precision": precision}))


def test_a_step_has_the_precision_asked_for_and_what_follows_has_not(trainer_of) -> None:
    trainer = trainer_of(small(RECIPES["vae"]))
    trainer.update.training = trainer.training.model_copy(update={"precision": "tf32"})  # as on a GPU
    seen = []
    trainer.update.take = lambda *_: seen.append(torch.get_float32_matmul_precision())
    trainer.update(trainer.stream.next_batch, Turn(0, Progress(0, 0.0), 0.01))
    assert (seen, torch.get_float32_matmul_precision()) == (["high"], "highest")


def test_a_missing_gpu_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TextspaceError, match="PyTorch sees no GPU here"):
        Processes("cuda")


def test_who_asked_for_the_cpu_does_not_choose_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert [Processes(device).device.type for device in ("cpu", None, "cuda:0")] == ["cpu", "cuda", "cuda"]
    assert chosen == [torch.device("cuda:0")]  # where kernels of our own are started


def test_what_processes_sum_is_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of several GPUs have no way to exchange what lies on the host."""
    monkeypatch.setattr("textspace.train.processes.reduce", lambda tensor, how: tensor)
    several = Processes("cpu")
    several.count, several.device = 2, torch.device("meta")
    assert several.sum(torch.ones(3)).device == several.device


def test_a_validation_that_is_not_finite_is_told_and_goes_on(trainer_of, monkeypatch: pytest.MonkeyPatch) -> None:
    """exp of a dual function that fits badly overflows long before anything else does."""
    trainer = trainer_of(small(RECIPES["ivae"]).but({"training.epochs": 1}))
    end_epoch = trainer._end_epoch

    def badly_fitted() -> None:
        with torch.no_grad():
            trainer.model.dual.posterior.network[-1].bias.fill_(89.0)
        end_epoch()

    monkeypatch.setattr(trainer, "_end_epoch", badly_fitted)
    assert trainer.run().stopped == "1 epoch done"
    assert trainer.history[-1]["dual_kl"] == -math.inf


def test_the_diagnosis_at_the_end_knows_what_was_before_the_weights_that_are_kept(
    small_vae: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("\n".join(tiny_sentences(60)))
    criterion = iter([5.0, 4.0, 3.0, 6.0, 7.0])
    monkeypatch.setattr(Trainer, "_criterion", lambda self, numbers: next(criterion))
    seen: list[list[int]] = []

    def examined(*given: Any, history: Any, **named: Any) -> Any:
        seen.append([line["step"] for line in history])
        return examine(*given, history=history, **named)

    monkeypatch.setattr("textspace.train.fit.examine", examined)
    recipe = small_vae.but({"training.epochs": 5})
    trained = train(str(tmp_path / "text.txt"), recipe, tmp_path / "space", device="cpu", silent=True, curves=False)
    assert trained.best == 3.0
    epoch = trained.steps // 5
    assert seen == [[epoch, 2 * epoch]]


def test_the_source_may_be_gone_when_training_ends(
    small_vae: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, run = tmp_path / "text.txt", Trainer.run
    text.write_text("\n".join(tiny_sentences(60)))

    def alone(self: Trainer) -> Trained:
        text.unlink()
        return run(self)

    monkeypatch.setattr(Trainer, "run", alone)
    train(str(text), small_vae.but({"training.epochs": 1}), tmp_path / "space", device="cpu", silent=True, curves=False)
    metrics = json.loads((tmp_path / "space" / "metrics.json").read_text())
    assert metrics["training_text"]["sentences"] == 54
