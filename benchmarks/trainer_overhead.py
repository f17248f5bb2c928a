"""Tokens per second of the trainer against a bare PyTorch loop over the same model and batches, in one process.

The bare loop has its batches ready in memory and does nothing but forward, loss, backward, clip and step; the trainer
plans and assembles batches, keys noise, guards against numbers that are not finite, logs and shows progress. Rounds
alternate, so that a busy machine slows both; the ratio is the median over rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.results import record
from textspace.data.batching import make_batch, plan_batches
from textspace.data.corpus import open_corpus
from textspace.model import Model
from textspace.noise import Noise, seed_of
from textspace.recipes import recipe
from textspace.train.fit import prepare
from textspace.train.loop import Trainer
from textspace.train.processes import Processes

SETTINGS: dict[str, Any] = {
    "encoder.embedding": 128,
    "encoder.hidden": 192,
    "decoder.embedding": 128,
    "decoder.hidden": 192,
    "training.optimizer": {"kind": "adam", "lr": 0.001},
    "training.steps": 150,
    "training.checkpoint_every": None,
}
ROUNDS = 7


def main(folder: Path | None = None) -> None:
    chosen = recipe("vae").but(SETTINGS)
    prepared = prepare(open_corpus("builtin:6000"), chosen)
    train, valid = prepared.encoded.splits["train"], prepared.encoded.splits["valid"]
    device = Processes().device
    plan = plan_batches(train.lengths, size=32, seed=seed_of(0, "batches"), epoch=0)
    batches = [make_batch(train, plan[i]).to(device) for i in range(SETTINGS["training.steps"])]
    tokens = sum(int((batch.decoder.lengths_B - 1).sum()) for batch in batches)

    def bare() -> float:
        model = Model(chosen, len(prepared.tokenizer)).to(device).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
        began = time.perf_counter()
        for step, batch in enumerate(batches):
            passed = model(batch, Noise(0, step, batch.rows_B))
            loss = (passed.sites["z"].kl_B - passed.log_px_SB.mean(0)).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        _wait()
        return tokens / (time.perf_counter() - began)

    def trainer() -> float:
        with tempfile.TemporaryDirectory() as out:
            run = Trainer(chosen, Model(chosen, len(prepared.tokenizer)), train, valid, Path(out), silent=True)
            run._end_epoch = run.save = lambda: None  # type: ignore[method-assign]  # time the steps alone
            began = time.perf_counter()
            run.run()
            _wait()
            return tokens / (time.perf_counter() - began)

    bare(), trainer()  # warm up
    pairs = [(bare(), trainer()) for _ in range(ROUNDS)]
    record(
        "trainer_overhead" if device.type == "cpu" else "trainer_overhead_gpu",
        "python -m benchmarks.trainer_overhead",
        {
            "bare_tokens_per_second": round(statistics.median(b for b, _ in pairs)),
            "trainer_tokens_per_second": round(statistics.median(t for _, t in pairs)),
            "ratio": round(statistics.median(t / b for b, t in pairs), 3),
            "ratio_of_each_round": [round(t / b, 3) for b, t in pairs],
            "vocabulary": len(prepared.tokenizer),
            "aim": "ratio at least 0.9",
        },
        **({"folder": folder} if folder else {}),
    )


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
