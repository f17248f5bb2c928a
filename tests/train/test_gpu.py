"""On a GPU; skipped where there is none."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import small

from textspace.evaluate.likelihood import likelihood
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.train.log import records
from textspace.train.loop import Trainer
from textspace.train.processes import Processes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def losses(tiny, folder: Path, device: str, precision: str) -> list[float]:
    recipe = small(RECIPES["vae"]).but({"training.precision": precision})
    splits = tiny.encoded.splits
    model = Model(recipe, len(tiny.tokenizer))
    Trainer(
        recipe, model, splits["train"], splits["valid"], folder, processes=Processes(device), silent=True
    ).run()  # fmt: skip
    return [line["loss"] for line in records(folder / "steps.jsonl", "step")]


def test_the_gpu_has_the_losses_of_the_cpu(tiny, tmp_path: Path) -> None:
    """Noise is keyed, so it is the same numbers on both; dropout included."""
    cpu, gpu = (losses(tiny, tmp_path / device, device, "fp32") for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu, cpu, rtol=2e-3)


def test_bf16_learns_what_fp32_learns(tiny, tmp_path: Path) -> None:
    full, half = (losses(tiny, tmp_path / precision, "cuda", precision) for precision in ("fp32", "bf16"))
    np.testing.assert_allclose(half, full, rtol=0.03)


def test_likelihoods_agree_with_the_cpu(tiny, tiny_model) -> None:
    split = tiny.encoded.splits["test"]
    cpu = likelihood(tiny_model, split, samples=20)
    gpu = likelihood(tiny_model.to("cuda"), split, samples=20)
    np.testing.assert_allclose(gpu.nll_N, cpu.nll_N, atol=2e-3)
    np.testing.assert_allclose(gpu.elbo_N, cpu.elbo_N, atol=2e-3)


def test_a_step_on_the_gpu_waits_for_nothing(tiny, tmp_path: Path) -> None:
    """Between two fetches of the log the host must not wait for the device."""
    recipe = small(RECIPES["vae"])
    splits = tiny.encoded.splits
    trainer = Trainer(
        recipe, Model(recipe, len(tiny.tokenizer)), splits["train"], splits["valid"], tmp_path,
        processes=Processes("cuda"), silent=True,
    )  # fmt: skip
    from textspace.schedules import Progress

    trainer.update(trainer.stream.next_batch, Progress(0, 0.0), 0.01)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 5):
            trainer.update(trainer.stream.next_batch, Progress(step, 0.0), 0.01)
    finally:
        torch.cuda.set_sync_debug_mode("default")
