"""On a GPU; skipped where there is none."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import small, trainer_on

from textspace.config import Recipe
from textspace.evaluate.likelihood import likelihood
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train.log import records
from textspace.train.loop import Trainer
from textspace.train.processes import Processes
from textspace.train.updates import Turn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


RECIPES_HERE = {
    "vae": small(RECIPES["vae"]),
    "largest states": small(RECIPES["vae-max-pool"]),
    "attention and skip": small(RECIPES["skip-vae"]).but({"pooling": {"kind": "attention"}}),
    "word dropout": small(RECIPES["vae-word-dropout"]),
    "free bits": small(RECIPES["vae-free-bits"]),
    "free bits on the batch": small(RECIPES["vae"]).but({"objective.free_bits": {"target": 0.08, "on": "batch"}}),
    "iwae": small(RECIPES["iwae"]),
    "wae": small(RECIPES["wae"]),
    "alternating": small(RECIPES["ivae"]),
    "aggressive": small(RECIPES["vae-aggressive"]),
    "annealing": small(RECIPES["vae"]).but({"objective.kl_weight": {"kind": "linear", "over": 3, "unit": "epochs"}}),
    "mim": small(RECIPES["smim"]),
    "gates": small(RECIPES["hsvae"]),
    "tokens": small(RECIPES["vat-small"]),
}


def trainer_there(tiny, recipe: Recipe, folder: Path, device: str = "cuda") -> Trainer:
    return trainer_on(tiny, recipe, folder, processes=Processes(device))


def losses(tiny, recipe: Recipe, folder: Path, device: str) -> list[float]:
    trainer_there(tiny, recipe, folder, device).run()
    return [line["loss"] for line in records(folder / "steps.jsonl", "step")]


@pytest.mark.parametrize("name", RECIPES_HERE)
def test_the_gpu_has_the_losses_of_the_cpu(tiny, tmp_path: Path, name: str) -> None:
    """Noise is keyed, so it is the same numbers on both; dropout included."""
    recipe = RECIPES_HERE[name].but({"training.epochs": 1})
    cpu, gpu = (losses(tiny, recipe, tmp_path / device, device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu, cpu, rtol=2e-3)


def test_noise_on_the_gpu_has_the_bits_of_the_cpu() -> None:
    """Where one kernel makes them, and where its key lies on the device."""
    rows_B = torch.tensor([5, 0, 2**40])
    here, there = Noise(3, 8, rows_B), Noise(3, 8, rows_B.to("cuda"))
    for shape, samples in [((1,), 1), ((7, 100), 3)]:
        assert torch.equal(there._bits("z", shape, 2, samples).cpu(), here._bits("z", shape, 2, samples))
    drawn = (noise.after(2).normal("z", (9,), 2).cpu() for noise in (there, here))
    np.testing.assert_allclose(*drawn, rtol=1e-6)


def test_pieces_on_the_gpu_give_the_losses_of_the_whole(tiny, tmp_path: Path) -> None:
    recipe = RECIPES_HERE["wae"].but({"training.epochs": 1})
    pieces = recipe.but({"training.batch.pieces": 3})
    whole, parts = losses(tiny, recipe, tmp_path / "a", "cuda"), losses(tiny, pieces, tmp_path / "b", "cuda")
    np.testing.assert_allclose(parts, whole, rtol=2e-3)


def test_both_phases_run_on_the_gpu(tiny, tmp_path: Path) -> None:
    recipe = small(RECIPES["pretrain-free-bits"]).but({"training.epochs": 1})
    cpu, gpu = (losses(tiny, recipe, tmp_path / device / "run", device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu, cpu, rtol=5e-3)


def test_a_run_on_the_gpu_resumes_to_the_same_losses(tiny, tmp_path: Path) -> None:
    """With the state of the inner loop on the device."""
    recipe = RECIPES_HERE["aggressive"].but({"training.epochs": 1})
    straight = losses(tiny, recipe, tmp_path / "straight", "cuda")
    trainer_there(tiny, recipe.but({"training.steps": 6}), tmp_path / "run").run()
    resumed = trainer_there(tiny, recipe, tmp_path / "run")
    resumed.resume()
    resumed.run()
    np.testing.assert_allclose(
        [line["loss"] for line in records(tmp_path / "run" / "steps.jsonl", "step")], straight, rtol=1e-4
    )  # fmt: skip


@pytest.mark.parametrize("name", RECIPES_HERE)
def test_recorded_steps_have_the_losses_of_others(tiny, tmp_path: Path, name: str) -> None:
    recipe = RECIPES_HERE[name].but({"training.epochs": 3})
    recorded = trainer_there(tiny, recipe, tmp_path / "recorded")
    recorded.run()
    assert recorded.update.recorded is not None
    assert recorded.update.recorded._replayed
    plain = losses(tiny, recipe.but({"training.record_steps": False}), tmp_path / "plain", "cuda")
    found = [line["loss"] for line in records(tmp_path / "recorded" / "steps.jsonl", "step")]
    np.testing.assert_allclose(found, plain, rtol=2e-3)


@pytest.mark.parametrize("name", ["vae", "wae", "alternating"])
def test_bf16_learns_what_fp32_learns(tiny, tmp_path: Path, name: str) -> None:
    half = RECIPES_HERE[name].but({"training.precision": "bf16"})
    in_full = losses(tiny, RECIPES_HERE[name], tmp_path / "fp32", "cuda")
    np.testing.assert_allclose(losses(tiny, half, tmp_path / "bf16", "cuda"), in_full, rtol=0.03)


def test_likelihoods_agree_with_the_cpu(tiny, tiny_model) -> None:
    split = tiny.encoded.splits["test"]
    cpu = likelihood(tiny_model, split, samples=20)
    gpu = likelihood(tiny_model.to("cuda"), split, samples=20)
    np.testing.assert_allclose(gpu.nll_N, cpu.nll_N, atol=2e-3)
    np.testing.assert_allclose(gpu.elbo_N, cpu.elbo_N, atol=2e-3)


@pytest.mark.parametrize("name", [name for name in RECIPES_HERE if name != "aggressive"])
def test_a_step_on_the_gpu_waits_for_nothing(tiny, tmp_path: Path, name: str) -> None:
    """Between two fetches of the log the host must not wait for the device; only the aggressive rule must, once a
    window, to look at its loss."""
    trainer = trainer_there(tiny, RECIPES_HERE[name], tmp_path / "run")
    trainer.update(trainer.stream.next_batch, Turn(0, Progress(0, 0.0), 0.01))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 5):
            trainer.update(trainer.stream.next_batch, Turn(step, Progress(step, 0.0), 0.01))
    finally:
        torch.cuda.set_sync_debug_mode("default")
