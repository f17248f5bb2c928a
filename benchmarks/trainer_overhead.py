"""Tokens per second of the trainer against a bare PyTorch loop over the same model and batches, in one process.

`bare` writes the network out over its modules, with PyTorch's own dropout and noise; `keyed` is the model as it is,
whose dropout and noise are keyed. Both have their batches ready in memory and do nothing but forward, loss, backward,
clip and step; `trainer` plans and assembles batches, guards against numbers that are not finite, logs and shows
progress. Rounds alternate, so that a busy machine slows all; ratios are medians over rounds. Those of processor seconds
are steadier than those of the clock where others use the same cores.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.limits import load
from benchmarks.results import record
from textspace.config import Recipe
from textspace.data.batching import make_batch, plan_batches
from textspace.data.corpus import open_corpus
from textspace.data.preparing import Prepared, prepare
from textspace.data.tokenizers import FIRST_PREDICTED
from textspace.decoders import RecurrentDecoder
from textspace.encoders import RecurrentEncoder
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise, seed_of
from textspace.posteriors import GaussianPosterior
from textspace.recipes import recipe
from textspace.train.loop import Trainer
from textspace.train.optimizers import OPTIMIZERS
from textspace.train.processes import Processes
from textspace.types import Batch

SETTINGS: dict[str, Any] = {
    "encoder.embedding": 128,
    "encoder.hidden": 192,
    "decoder.embedding": 128,
    "decoder.hidden": 192,
    "training.optimizer": {"kind": "adam", "lr": 0.001},
}
STEPS, ROUNDS = 150, 7
KINDS = ("bare", "keyed", "trainer")


def main(folder: Path | None = None) -> None:
    chosen = recipe("vae").but(SETTINGS)
    processes = Processes()
    prepared = prepare(open_corpus("builtin:6000"), chosen)
    found = overhead(chosen, prepared, processes, STEPS, ROUNDS)
    record(
        "trainer_overhead" if processes.device.type == "cpu" else "trainer_overhead_gpu",
        "python -m benchmarks.trainer_overhead",
        {**found, "vocabulary": len(prepared.tokenizer), "aim": "trainer_to_keyed at least 0.9 by the clock"},
        **({"folder": folder} if folder else {}),
    )


class Rates(NamedTuple):
    """Pieces of work per second of the clock, and per second of processor time of all threads."""

    clock: float
    processor: float


def timed(count: int, *work: Callable[[], object]) -> Rates:
    """Do work that is so many pieces."""
    began, used = time.perf_counter(), time.process_time()
    for each in work:
        each()
    return Rates(count / (time.perf_counter() - began), count / (time.process_time() - used))


def ratios(pairs: Sequence[tuple[Rates, Rates]]) -> dict[str, Any]:
    """How many times as fast the first of each pair is as the second: medians over rounds, and each round.

    >>> ratios([(Rates(2.0, 3.0), Rates(4.0, 4.0)), (Rates(3.0, 3.0), Rates(3.0, 4.0))])
    {'clock': 0.75, 'processor': 0.75, 'clock_of_each_round': [0.5, 1.0], 'processor_of_each_round': [0.75, 0.75]}
    """
    each = {name: [getattr(a, name) / getattr(b, name) for a, b in pairs] for name in Rates._fields}
    medians = {name: round(statistics.median(of), 3) for name, of in each.items()}
    return medians | {f"{name}_of_each_round": [round(one, 3) for one in of] for name, of in each.items()}


def bare_loss(model: Model, batch: Batch, normal_BZ: Tensor, kl_weight: float, train: bool = True) -> Tensor:
    """Mean over sentences of -log p(x | z) + weight x KL of a recurrent VAE, with PyTorch's dropout."""
    encoder, posterior, decoder = model.encoder, model.posterior, model.decoder
    assert isinstance(encoder, RecurrentEncoder)
    assert isinstance(posterior, GaussianPosterior)
    assert isinstance(decoder, RecurrentDecoder)
    features_BH = encoder.states(encoder.embedding(batch.encoder.ids_BT), batch.encoder).last_BH
    mean_BZ, log_variance_BZ = posterior.mean(features_BH), posterior.log_variance(features_BH)
    z_BZ = mean_BZ + (0.5 * log_variance_BZ).exp() * normal_BZ
    kl_B = 0.5 * (mean_BZ**2 + log_variance_BZ.exp() - 1 - log_variance_BZ).sum(1)
    ids_BT = batch.decoder.ids_BT
    embedded_BTE = F.dropout(decoder.embedding(ids_BT[:, :-1]), decoder.config.input_dropout, train)
    inputs_BTE = torch.cat([embedded_BTE, z_BZ[:, None].expand(-1, embedded_BTE.shape[1], -1)], dim=2)
    first = decoder.start(z_BZ)
    assert first is not None
    hidden_BTH, _ = decoder.recurrent(inputs_BTE, first if len(first) == 2 else first[0])
    logits_BTV = decoder.logits(F.dropout(hidden_BTH, decoder.config.output_dropout, train))
    targets_BT = (ids_BT[:, 1:] - FIRST_PREDICTED).clamp(min=0)
    losses_N = F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none")
    losses_B = (losses_N.view_as(targets_BT) * batch.decoder.mask_BT[:, 1:]).sum(1)
    return (losses_B + kl_weight * kl_B).mean()


def overhead(chosen: Recipe, prepared: Prepared, processes: Processes, steps: int, rounds: int) -> dict[str, Any]:
    """Tokens/s of the three, and ratios: medians over rounds."""
    chosen = chosen.but({"training.steps": steps, "training.checkpoint_every": None})
    train = prepared.encoded.splits["train"]
    device, settings, vocabulary = processes.device, chosen.training, len(prepared.tokenizer)
    plan = plan_batches(train.lengths, size=settings.batch.sentences, seed=seed_of(settings.seed, "batches"), epoch=0)
    if len(plan) < steps:
        raise TextspaceError(f"an epoch has {len(plan)} batches: give a longer source, or fewer steps")
    batches = [make_batch(train, plan[i]).to(device) for i in range(steps)]
    tokens = sum(int((batch.decoder.lengths_B - 1).sum()) for batch in batches)

    def bare(model: Model, step: int, batch: Batch) -> Tensor:
        return bare_loss(model, batch, torch.randn(len(batch.rows_B), chosen.latent.dim, device=device), 0.5)

    def keyed(model: Model, step: int, batch: Batch) -> Tensor:
        passed = model(batch, Noise(0, step, batch.rows_B))
        return (0.5 * passed.sites["z"].kl_B - passed.log_px_SB.mean(0)).mean()

    def loop(loss: Callable[[Model, int, Batch], Tensor]) -> Rates:
        model = Model(chosen, vocabulary).to(device).train()
        parameters = list(model.parameters())
        optimizer = OPTIMIZERS[settings.optimizer.kind](parameters, settings.optimizer)

        def work() -> None:
            for step, batch in enumerate(batches):
                loss(model, step, batch).backward()
                torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        return timed(tokens, work, _wait)

    def trainer() -> Rates:
        return trainer_rates(chosen, prepared, processes)

    work: dict[str, Callable[[], Rates]] = dict(
        zip(KINDS, (lambda: loop(bare), lambda: loop(keyed), trainer), strict=True)
    )
    for each in work.values():  # warm up
        each()
    found = [{name: each() for name, each in work.items()} for _ in range(rounds)]

    return {
        "tokens_per_second": {name: round(statistics.median(each[name].clock for each in found)) for name in KINDS},
        "tokens_per_processor_second": {
            name: round(statistics.median(each[name].processor for each in found)) for name in KINDS
        },
        **{f"trainer_to_{to}": ratios([(each["trainer"], each[to]) for each in found]) for to in ("bare", "keyed")},
        "tokens_per_step": round(tokens / steps, 1),
        "steps": steps,
        "threads": torch.get_num_threads(),
        "load": load(),
    }


def trainer_rates(chosen: Recipe, prepared: Prepared, processes: Processes) -> Rates:
    """Tokens per second of a new run's first `training.steps` steps, without validations and checkpoints."""
    train, valid = prepared.encoded.splits["train"], prepared.encoded.splits["valid"]
    with tempfile.TemporaryDirectory() as out:
        model = Model(chosen, len(prepared.tokenizer))
        run = Trainer(chosen, model, train, valid, Path(out), processes=processes, silent=True)
        run._end_epoch = run.save = lambda: None  # type: ignore[method-assign]  # time the steps alone
        steps = chosen.training.steps or len(run.stream.plan)
        tokens = sum(int((train.lengths[run.stream.plan[step]] - 1).sum()) for step in range(steps))
        return timed(tokens, run.run, _wait)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
