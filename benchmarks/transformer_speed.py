"""Speed of a Transformer space: its training against a bare PyTorch loop, and generation with a cache against without.

    python -m benchmarks.transformer_speed
    python -m benchmarks.transformer_speed --device cuda --source CORPUS --steps 200 --sentences 512

Training, in tokens/s, of the same modules on the same batches, in rounds that alternate, so that a busy machine slows
all: `bare` writes the network out over the modules, with PyTorch's own dropout and noise and with batches that wait on
the device; `keyed` is the model as it is, whose dropout and noise are keyed, in the same loop; `trainer` is all of it.

Generation, in sentences/s, of sentences of given lengths from the codes of random text: the cache keeps the keys and
values of the words so far and of the code; without it they are computed again for every word. Both must give the same
sentences. Speed depends on how long these are and not on how good they are: the model is untrained.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.results import FOLDER, record
from textspace.attention import Drop
from textspace.config import Recipe
from textspace.data.batching import batch_of, make_batch, plan_batches
from textspace.data.corpus import open_corpus
from textspace.data.preparing import Prepared, prepare
from textspace.data.tokenizers import FIRST_PREDICTED, SPECIALS
from textspace.decoders import TransformerDecoder
from textspace.encoders import TransformerEncoder
from textspace.errors import TextspaceError
from textspace.generate import Beam, Generated, Greedy, Method, StepDecoder, generate
from textspace.model import Model
from textspace.noise import Noise, seed_of
from textspace.objectives import build_objective
from textspace.posteriors import GaussianPosterior
from textspace.priors import ScaledNormalPrior
from textspace.recipes import recipe as recipe_named
from textspace.schedules import Progress
from textspace.train.loop import Trainer
from textspace.train.optimizers import OPTIMIZERS
from textspace.train.processes import Processes
from textspace.types import Batch, PaddedCodes

METHODS: dict[str, Method] = {"greedy": Greedy(), "beam_5": Beam(width=5)}


# Training


def decoded(
    decoder: TransformerDecoder, ids_NT: Tensor, codes: PaddedCodes, drop: Drop = lambda x_NTH: x_NTH
) -> Tensor:
    """The last states of a decoder at every position, written out, (N, T, H)."""
    scale, length = math.sqrt(decoder.config.hidden), ids_NT.shape[1]
    x_NTH = drop(decoder.embedding(ids_NT) * scale + decoder.positions(0, length))
    for layer in decoder.layers:
        code = layer.code.memory(codes.values_NTZ, codes.mask_NT)  # type: ignore[union-attr, operator]
        x_NTH, _ = layer(x_NTH, drop, causal=True, code=code)
    return decoder.norm(x_NTH)


def bare_loss(model: Model, batch: Batch, kl_weight: float, normal_BTZ: Tensor, share: float) -> Tensor:
    """Mean over sentences of (-log p(x | z) + weight x KL) / tokens, with PyTorch's dropout of a share."""
    encoder, posterior, prior, decoder = model.encoder, model.posterior, model.prior, model.decoder
    assert isinstance(encoder, TransformerEncoder)
    assert isinstance(decoder, TransformerDecoder)
    assert isinstance(posterior, GaussianPosterior)
    assert isinstance(prior, ScaledNormalPrior)

    def drop(x_NTH: Tensor) -> Tensor:
        return F.dropout(x_NTH, share)

    ids_BT, mask_BT = batch.encoder.ids_BT, batch.encoder.mask_BT
    x_BTH = drop(encoder.embedding(ids_BT) * math.sqrt(encoder.size) + encoder.positions(0, ids_BT.shape[1]))
    for layer in encoder.layers:
        x_BTH, _ = layer(x_BTH, drop, mask_NT=mask_BT)
    x_BTH = encoder.norm(x_BTH)
    mean_BTZ, log_variance_BTZ = posterior.mean(x_BTH), posterior.log_variance(x_BTH)
    z_BTZ = mean_BTZ + (0.5 * log_variance_BTZ).exp() * normal_BTZ
    scaled_BTZ = (mean_BTZ**2 + log_variance_BTZ.exp()) / prior.scale**2
    kl_BT = 0.5 * (scaled_BTZ - 1 - log_variance_BTZ + 2 * math.log(prior.scale)).sum(2)
    hidden_BTH = decoded(decoder, ids_BT[:, :-1], PaddedCodes(z_BTZ, mask_BT), drop)
    targets_BT = (ids_BT[:, 1:] - FIRST_PREDICTED).clamp(min=0)
    loss_N = F.cross_entropy(decoder.logits(hidden_BTH).flatten(0, 1), targets_BT.flatten(), reduction="none")
    per_sentence_B = (loss_N.view_as(targets_BT) * mask_BT[:, 1:]).sum(1) + kl_weight * (kl_BT * mask_BT).sum(1)
    return (per_sentence_B / (batch.decoder.device_lengths_B - 1)).mean()


def training(recipe: Recipe, prepared: Prepared, processes: Processes, steps: int, rounds: int) -> dict[str, Any]:
    """Tokens/s of the three, and ratios: medians over rounds."""
    train, valid = prepared.encoded.splits["train"], prepared.encoded.splits["valid"]
    device, vocabulary = processes.device, len(prepared.tokenizer)
    recipe = recipe.but({"training.steps": steps, "training.checkpoint_every": None})
    seed, settings = recipe.training.seed, recipe.training
    plan = plan_batches(train.lengths, size=settings.batch.sentences, seed=seed_of(seed, "batches"), epoch=0)
    if len(plan) < steps:
        raise TextspaceError(f"an epoch has {len(plan)} batches: give a longer source, or fewer --steps")
    batches = [make_batch(train, plan[index]).to(device) for index in range(steps)]
    tokens = sum(int((batch.decoder.lengths_B - 1).sum()) for batch in batches)
    share = recipe.encoder.dropout if recipe.encoder is not None else 0.0  # type: ignore[union-attr]

    def timed(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        _wait(device)
        return tokens / (time.perf_counter() - began)

    def loop(prepare_loss: Callable[[Model], Callable[[int, Batch], Tensor]]) -> float:
        model = Model(recipe, vocabulary).to(device).train()
        parameters = list(model.parameters())
        optimizer = OPTIMIZERS[settings.optimizer.kind](parameters, settings.optimizer)
        loss = prepare_loss(model)

        def work() -> None:
            for step, batch in enumerate(batches):
                loss(step, batch).backward()
                torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        return timed(work)

    def bare(model: Model) -> Callable[[int, Batch], Tensor]:
        def loss(step: int, batch: Batch) -> Tensor:
            normal_BTZ = torch.randn(*batch.encoder.ids_BT.shape, recipe.latent.dim, device=device)
            return bare_loss(model, batch, 0.5, normal_BTZ, share)

        return loss

    def keyed(model: Model) -> Callable[[int, Batch], Tensor]:
        objective = build_objective(recipe, model)

        def loss(step: int, batch: Batch) -> Tensor:
            terms = objective(model(batch, Noise(seed, step, batch.rows_B)), Progress(0, 0.0))
            per_token = terms.scaled(1 / (batch.decoder.device_lengths_B - 1))
            return per_token.loss(per_token.means(len(batch.rows_B), 1))

        return loss

    def trainer() -> float:
        with tempfile.TemporaryDirectory() as out:
            model = Model(recipe, vocabulary)
            run = Trainer(recipe, model, train, valid, Path(out), processes=processes, silent=True)
            run._end_epoch = run.save = lambda: None  # type: ignore[method-assign]  # time the steps alone
            return timed(run.run)

    kinds = {"bare": lambda: loop(bare), "keyed": lambda: loop(keyed), "trainer": trainer}
    for work in kinds.values():  # warm up
        work()
    found = [{name: work() for name, work in kinds.items()} for _ in range(rounds)]

    def ratio(name: str, to: str) -> float:
        return round(statistics.median(each[name] / each[to] for each in found), 3)

    return {
        "tokens_per_second": {name: round(statistics.median(each[name] for each in found)) for name in kinds},
        "trainer_to_bare": ratio("trainer", "bare"),
        "trainer_to_bare_of_each_round": [round(each["trainer"] / each["bare"], 3) for each in found],
        "keyed_to_bare": ratio("keyed", "bare"),
        "trainer_to_keyed": ratio("trainer", "keyed"),
        "tokens_per_step": round(tokens / steps),
        "steps": steps,
        "parameters": sum(parameter.numel() for parameter in Model(recipe, vocabulary).parameters()),
    }


# Generation


class WithoutCache:
    """A decoder that keeps nothing but the words so far, and reads them all again at each step."""

    def __init__(self, decoder: TransformerDecoder) -> None:
        self.decoder, self.embedding = decoder, decoder.embedding
        self.dim, self.of_tokens, self.training = decoder.dim, decoder.of_tokens, decoder.training

    def train(self, mode: bool = True) -> None:
        self.decoder.train(mode)

    def start(self, z: PaddedCodes) -> None:
        return None

    def step(self, ids_N: Tensor, z: PaddedCodes, state: Tensor | None) -> tuple[Tensor, Tensor]:
        ids_NT = ids_N[:, None] if state is None else torch.cat([state, ids_N[:, None]], dim=1)
        return self.decoder.logits(decoded(self.decoder, ids_NT, z)[:, -1]), ids_NT

    def reorder(self, state: Tensor, index_M: Tensor) -> Tensor:
        return state[index_M]


def generation(model: Model, lengths: list[int], sentences: int, rounds: int) -> list[dict[str, Any]]:
    """Sentences/s for every length and method, with the cache and without, and whether both say the same."""
    decoder = model.decoder
    assert isinstance(decoder, TransformerDecoder)
    kinds: dict[str, StepDecoder] = {"cache": decoder, "no_cache": WithoutCache(decoder)}
    found = []
    for length in lengths:
        codes = _codes(model, sentences, length)
        for name, method in METHODS.items():
            made = {kind: _generated(each, codes, method, length) for kind, each in kinds.items()}  # and warm up
            timed = [
                {kind: _generated(each, codes, method, length)[1] for kind, each in kinds.items()}
                for _ in range(rounds)
            ]
            same = [a == b for a, b in zip(made["cache"][0].ids, made["no_cache"][0].ids, strict=True)]
            apart_N = (made["cache"][0].log_prob_N - made["no_cache"][0].log_prob_N).abs()
            found.append(
                {
                    "tokens": length,
                    "method": name,
                    **{kind: round(sentences / statistics.median(each[kind] for each in timed), 1) for kind in kinds},
                    "ratio": round(statistics.median(each["no_cache"] / each["cache"] for each in timed), 2),
                    "same_sentences": sum(same) / len(same),
                    "log_probabilities_apart": float(f"{apart_N.max().item():.1e}"),
                }
            )
    return found


def _generated(decoder: StepDecoder, codes: PaddedCodes, method: Method, length: int) -> tuple[Generated, float]:
    """Sentences of so many tokens, and the seconds it took."""
    began, count = time.perf_counter(), len(codes)
    lengths_N = torch.full((count,), length)
    made = generate(decoder, codes, method, rows_N=torch.arange(count), lengths_N=lengths_N)
    return made, time.perf_counter() - began  # what was made is on the CPU: nothing is left to wait for


@torch.no_grad()
def _codes(model: Model, sentences: int, length: int) -> PaddedCodes:
    """The mean codes of random sentences of so many tokens."""
    chance = torch.Generator().manual_seed(0)
    ids_NT = torch.randint(len(SPECIALS), model.vocabulary, (sentences, length), generator=chance)
    batch = batch_of(ids_NT.tolist()).to(model.decoder.embedding.weight.device)
    noise = Noise(0, 0, batch.rows_B)
    mean_NTZ, _ = model.eval().code_moments(model.features(batch.encoder, noise), noise)
    return PaddedCodes(mean_NTZ, batch.encoder.mask_BT)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="vat")
    parser.add_argument("--source", default="builtin:6000", help="text to train on; it also makes the vocabulary")
    parser.add_argument("--steps", type=int, default=4, help="of a round of training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[12, 32], help="of generated sentences, in tokens")
    parser.add_argument("--sentences", type=int, default=16, help="generated at once")
    parser.add_argument("--device", help="cpu or cuda; by default the GPU where there is one")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    processes = Processes(given.device)
    recipe = recipe_named(given.recipe)
    prepared = prepare(open_corpus(given.source), recipe)
    trained = training(recipe, prepared, processes, given.steps, given.rounds)
    model = Model(recipe, len(prepared.tokenizer)).to(processes.device)
    record(
        "transformer_speed" if processes.device.type == "cpu" else "transformer_speed_gpu",
        " ".join(["python -m benchmarks.transformer_speed", *sys.argv[1:]]),
        {
            "recipe": given.recipe,
            "vocabulary": len(prepared.tokenizer),
            "threads": torch.get_num_threads(),
            "training": trained,
            "generation_sentences_at_once": given.sentences,
            "generation": generation(model, given.lengths, given.sentences, given.rounds),
            "aim": "trainer_to_bare at least 0.77",
        },
        given.out,
    )


if __name__ == "__main__":
    main()
