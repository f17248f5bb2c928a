"""Speed of the importance-weighted likelihood: tokens x samples a second, by way of computing and by precision.

    python -m benchmarks.likelihood_speed --device cuda --out FOLDER
    python -m benchmarks.likelihood_speed --device cpu --hidden 256 --vocabulary 10000 --sentences 8 --samples 50

The model has the sizes of the Yahoo experiments (LSTM 1024, embeddings 512, 32 latent dimensions, 16.5 thousand words,
sentences of about 80 tokens, 500 samples) and random weights, scaled so that logits have a deviation of 3, as of a
trained model; the sentences are drawn from it. Ways: `plain` repeats words for every sample, lets the GPU's own kernel
run the layer (whose factors are TF32 unless PyTorch is told otherwise) and keeps a batch's logits; all others work on a
sentence's words once and keep no logits. `without Triton` leaves our kernels out. All must give the likelihoods of
float32.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.results import FOLDER, record
from textspace import gpu_kernels, token_losses
from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import FIRST_PREDICTED, SPECIALS, START
from textspace.decoders import RecurrentDecoder
from textspace.evaluate.likelihood import TOKEN_SAMPLES_AT_ONCE, Likelihood, likelihood
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.token_losses import Precision, computing_in, product, rounded

LOGIT_DEVIATION = 3.0
CODE_SCALE = 0.1
ALLOWED_NATS = 0.02
AIM = 7e6
SIZES = {"hidden": 1024, "embedding": 512, "vocabulary": 16500, "dim": 32}
TEXT = {"sentences": 208, "tokens": 80, "samples": 500}
PEAKS = {"float32": 67e12, "tf32": 495e12, "bf16": 989e12, "bytes": 4.8e12}
"""Of an H200, by its maker: operations and bytes a second."""


class Way(NamedTuple):
    precision: Precision = "float32"
    shared: bool = True
    kernels: bool = True
    part: float = 1.0
    """Of the sentences that are timed: slow ways need no more."""


WAYS = {
    "plain float32": Way(shared=False, part=0.2),
    "float32": Way(),
    "float32 without Triton": Way(kernels=False, part=0.5),
    "tf32": Way("tf32"),
    "tf32 without Triton": Way("tf32", kernels=False, part=0.5),
    "bf16": Way("bf16"),
    "bf16 without Triton": Way("bf16", kernels=False, part=0.5),
}


@contextmanager
def going(way: Way) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(RecurrentDecoder, "shares_words", return_value=way.shared))
        if not way.shared:
            stack.enter_context(mock.patch.object(token_losses, "LOGITS_KEPT_SCORING", 2**62))
        if not way.kernels:
            stack.enter_context(gpu_kernels.switched_off())
        yield


@torch.no_grad()
def made_split(model: Model, sentences: int, tokens: int, seed: int = 0) -> EncodedSplit:
    """Sentences of about so many words, each word drawn as the model has it: else targets would be all too unlikely."""
    decoder, device = model.decoder, next(model.parameters()).device
    around_N = np.random.default_rng(seed).normal(tokens, tokens / 4, sentences)
    counts_N = around_N.clip(max(1, tokens // 4), 2 * tokens).astype(np.int64)
    generator = torch.Generator(device).manual_seed(seed)
    z_NZ = torch.randn(sentences, model.recipe.latent.dim, device=device, generator=generator)
    ids_N, state, drawn = torch.full((sentences,), START, device=device), decoder.start(z_NZ), []
    for _ in range(counts_N.max()):
        logits_NV, state = decoder.step(ids_N, z_NZ, state)
        shares_NV = logits_NV[:, len(SPECIALS) - FIRST_PREDICTED :].softmax(1)
        ids_N = shares_NV.multinomial(1, generator=generator)[:, 0] + len(SPECIALS)
        drawn.append(ids_N)
    ids_NT = torch.stack(drawn, dim=1).cpu().numpy()
    return _split(ids_NT[np.arange(ids_NT.shape[1]) < counts_N[:, None]], counts_N)


def _split(tokens: NDArray[np.integer], counts_N: NDArray[np.int64]) -> EncodedSplit:
    """Sentences of given tokens, end to end; nobody asks what they say."""
    none = np.zeros(len(counts_N), np.int64)
    arrays = {
        "tokens": tokens.astype(np.uint32),
        "offsets": np.concatenate([[0], counts_N.cumsum()]),
        "words": counts_N,
        "chars": 5 * counts_N,
        "labels": none - 1,
        "sources": none,
        "text": np.zeros(0, np.uint8),
        "text_offsets": np.zeros(len(counts_N) + 1, np.int64),
    }
    return EncodedSplit(arrays, fingerprint="", over_long=0)


@torch.no_grad()
def made_model(hidden: int, embedding: int, vocabulary: int, dim: int) -> Model:
    sizes = {
        f"{part}.{name}": size
        for part in ("encoder", "decoder")
        for name, size in (("hidden", hidden), ("embedding", embedding))
    }
    model = Model(RECIPES["vae"].but({**sizes, "latent.dim": dim, "initial.weights": None}), vocabulary).eval()
    decoder = model.decoder
    assert isinstance(decoder, RecurrentDecoder)
    assert decoder.first_state is not None
    assert decoder.output is not None
    generator = torch.Generator().manual_seed(0)
    from_input, from_state, *_ = decoder.recurrent.all_weights[0]
    decoder.embedding.weight.normal_(generator=generator)
    from_input.mul_(2)  # states that are far from 0, as training makes them
    from_state.mul_(2)
    from_input[:, embedding:].mul_(CODE_SCALE)  # and that heed words more than codes
    decoder.first_state.weight.mul_(CODE_SCALE)
    z_NZ = torch.randn(64, dim, generator=generator)
    state = decoder.start(z_NZ)
    for _ in range(20):
        _, state = decoder.step(torch.randint(len(SPECIALS), vocabulary, (64,), generator=generator), z_NZ, state)
    assert state is not None
    length = state[0].norm(dim=-1).mean().item()
    decoder.output.normal_(0, LOGIT_DEVIATION / length, generator=generator)
    return model


def counted(model: Model) -> dict[str, float]:
    """Operations and bytes of one token of one sample; those that its sentence or its code have once are few."""
    config = model.recipe.decoder
    hidden, words = config.hidden, model.vocabulary - FIRST_PREDICTED
    recurrent, logits = 2 * hidden * 4 * hidden, 2 * hidden * words
    gates = 3 * 4 * hidden * 4  # written, read, and those of the code read
    cells = 2 * hidden * 4
    return {
        "recurrent_operations": recurrent,
        "logit_operations": logits,
        "operations": recurrent + logits,
        "bytes_of_states": gates + cells + 4 * hidden * 4,  # states: written, read for products, rounded, and logits
        "bytes_of_logits_if_kept_float32": 2 * words * 4,
    }


def measured(model: Model, split: EncodedSplit, samples: int, rounds: int) -> dict[str, Any]:
    """Every way: its speed, its memory, and how far its likelihoods are from those of float32."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    operations = counted(model)["operations"]
    found: dict[str, Any] = {}
    exact: Likelihood | None = None
    for name, way in sorted(WAYS.items(), key=lambda item: item[0] != "float32"):
        if not on_gpu and (way.precision == "tf32" or not way.kernels):
            continue
        # Batches have sentences of similar length: every so manieth gives each way the same mix of lengths.
        rows = np.arange(0, len(split), round(1 / way.part))
        few = _split(*split.gather(rows))
        token_samples = int((few.lengths - 1).sum()) * samples

        def scored(some: EncodedSplit, way: Way = way) -> Likelihood:
            return likelihood(model, some, samples=samples, precision=way.precision)

        with going(way):
            scored(_split(*split.gather(rows[: max(2, len(rows) // 8)])))  # warm up
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            seconds = []
            for _ in range(rounds if way.part == 1 and name != "float32" else 1):
                began = time.perf_counter()
                result = scored(few)  # which is on the host: nothing is left to wait for
                seconds.append(time.perf_counter() - began)
        exact = exact or result
        rate = token_samples / statistics.median(seconds)
        found[name] = {
            "token_samples_per_second": round(rate),
            "seconds_of_each_round": [round(each, 3) for each in seconds],
            "sentences": len(few),
            "share_of_peak": round(rate * operations / PEAKS[way.precision], 3) if on_gpu else None,
            "memory_mb": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else None,
            "nats_from_float32": _apart(result, exact) if len(result) == len(exact) else None,
        }
    return {name: found[name] for name in WAYS if name in found}


def _apart(one: Likelihood, other: Likelihood) -> dict[str, float]:
    assert one.nll_N is not None
    assert other.nll_N is not None
    difference_N = one.nll_N - other.nll_N
    return {
        "mean": float(f"{difference_N.mean():.2e}"),
        "mean_absolute": float(f"{np.abs(difference_N).mean():.2e}"),
        "largest": float(f"{np.abs(difference_N).max():.2e}"),
    }


@torch.no_grad()
def parts(model: Model, tokens: int, rows: int = 2**16) -> dict[str, Any]:
    """On a GPU: microseconds and operations a second of the pieces, and of the other sizes of a tile."""
    decoder, device = model.decoder, next(model.parameters()).device
    assert isinstance(decoder, RecurrentDecoder)
    assert decoder.output is not None
    hidden, words = decoder.config.hidden, model.vocabulary - FIRST_PREDICTED
    count = TOKEN_SAMPLES_AT_ONCE // (tokens + 2)
    state_NH, output_VH = torch.rand(rows, hidden, device=device) - 0.5, decoder.output
    targets_N = torch.randint(words, (rows,), device=device)
    gates_NG, code_NG = torch.randn(2, count, 4 * hidden, device=device)
    cell_NH = torch.zeros(count, hidden, device=device)
    found: dict[str, Any] = {}
    precisions: tuple[Precision, ...] = ("bf16", "tf32")
    for precision in precisions:
        with computing_in(precision, device):
            state, weight = rounded(state_NH), rounded(output_VH)
            now, recurrent = state[:count].clone(), rounded(decoder.recurrent.all_weights[0][1]).T
        with computing_in("tf32", device):
            name = f"{precision} product of {count} states"
            found[name] = _timed(partial(product, now, recurrent), 2 * count * 4 * hidden**2)
            for tile in gpu_kernels.TILES[state.dtype]:
                work = partial(gpu_kernels.logsumexps, state, weight, None, None, tile)
                found[f"{precision} logsumexps of {rows} states, {tile}"] = _timed(work, 2 * rows * hidden * words)
    next_NH = torch.empty_like(cell_NH)
    work = partial(gpu_kernels.lstm_cell, gates_NG, code_NG[:16], code_NG, cell_NH, next_NH)
    found[f"cells of {count} states"] = _timed(work, 0)
    work = partial(gpu_kernels.target_logits, state_NH, output_VH, None, targets_N, None)
    found[f"logits of {rows} targets"] = _timed(work, 0)
    return found


def _timed(work: Callable[[], Tensor], operations: int, times: int = 10) -> dict[str, Any]:
    try:
        work()
    except Exception as error:  # a tile that does not fit is worth a line and not the whole benchmark
        return {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    seconds = start.elapsed_time(end) / 1000 / times
    return {"microseconds": round(seconds * 1e6, 1), "tflops": round(operations / seconds / 1e12, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    for name, size in {**SIZES, **TEXT}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    model = made_model(given.hidden, given.embedding, given.vocabulary, given.dim).to(given.device)
    split = made_split(model, given.sentences, given.tokens)
    ways = measured(model, split, given.samples, given.rounds)
    counts, fastest = counted(model), max(each["token_samples_per_second"] for each in ways.values())
    short = ways["bf16"]["nats_from_float32"]
    record(
        "likelihood_speed" if given.device == "cpu" else "likelihood_speed_gpu",
        " ".join(["python -m benchmarks.likelihood_speed", *sys.argv[1:]]).replace(str(given.out), "FOLDER"),
        {
            "sizes": {name: getattr(given, name) for name in SIZES},
            "text": {name: getattr(given, name) for name in TEXT},
            "threads": torch.get_num_threads(),
            "per_token_and_sample": counts,
            "peaks": PEAKS,
            "token_samples_per_second_at_peak_bf16": round(PEAKS["bf16"] / counts["operations"]),
            "share_of_bandwidth_bf16": round(
                ways["bf16"]["token_samples_per_second"] * counts["bytes_of_states"] / PEAKS["bytes"], 3
            ),
            "ways": ways,
            "parts": parts(model, given.tokens) if given.device == "cuda" else {},
            "bf16_agrees": short["mean_absolute"] < ALLOWED_NATS,
            "bf16_criterion": f"mean absolute difference of sentences below {ALLOWED_NATS} nats",
            "aim": f"{AIM / 1e6:g} million a second; reached: {fastest >= AIM}",
        },
        given.out,
    )


if __name__ == "__main__":
    main()
