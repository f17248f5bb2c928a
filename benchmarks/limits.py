"""What a machine can do at most, and what networks ask of it: floating-point operations and bytes, counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from textspace.data.tokenizers import FIRST_PREDICTED
from textspace.decoders import RecurrentDecoder
from textspace.encoders import RecurrentEncoder
from textspace.model import Model

__all__ = [
    "BYTES",
    "TRAINING",
    "Operations",
    "all_reduced_bytes",
    "load",
    "machine_rates",
    "network_operations",
    "operations",
    "step_bytes",
    "training_operations",
]

BYTES = 4
"""Of a float32."""

TRAINING = 3
"""Operations of a training step per operation of its forward pass: the backward pass has two products for each."""

FILLED = 256 * 2**20
"""Bytes of the array that is copied to time the memory: far more than any cache of a core holds."""


@dataclass(frozen=True)
class Operations:
    """Of a forward pass: multiplications and additions of products of matrices; all else is small beside them."""

    per_token: int
    per_sentence: int

    def sentence(self, tokens: float) -> float:
        """Of a sentence with so many tokens."""
        return self.per_token * tokens + self.per_sentence


def operations(model: Model) -> tuple[Operations, Operations]:
    """Of the encoder's side (encoder, posterior) and of the decoder's, of a recurrent model with a code per sentence.

    A weight of a product takes a multiplication and an addition each time it is used: those of the recurrent layers and
    of the output for each token, those of the posterior and of the decoder's first state for each sentence. Embeddings
    are looked up. The encoder reads start and end, two tokens more than the sentence has, and the decoder one.
    """
    encoder, posterior, decoder = model.encoder, model.posterior, model.decoder
    if not (isinstance(encoder, RecurrentEncoder) and isinstance(decoder, RecurrentDecoder)):
        raise ValueError("only recurrent models are counted here")
    output = decoder.embedding.weight[FIRST_PREDICTED:] if decoder.output is None else decoder.output
    per_token = _weights(decoder.recurrent) + output.numel()
    per_token += 0 if decoder.to_embedding is None else _weights(decoder.to_embedding)
    first = 0 if decoder.first_state is None else _weights(decoder.first_state)
    encoding = Operations(2 * _weights(encoder), 0 if posterior is None else 2 * _weights(posterior))
    return encoding, Operations(2 * per_token, 2 * first)


def training_operations(model: Model) -> int:
    """Of a training step per token, roughly and for any model: every weight of a product counts once for each token,
    and attention's own products are left out."""
    tied = model.decoder.embedding.weight[FIRST_PREDICTED:].numel() if model.decoder.output is None else 0
    return TRAINING * 2 * (_weights(model) + tied)


def network_operations(network: nn.Module, layers: int, hidden: int, tokens: float) -> float:
    """Of a Transformer that reads so many tokens: its products with weights, and those of attention.

    In each layer every token is compared with every token, and a mean of their values is taken.
    """
    return 2 * _weights(network) * tokens + layers * 4 * hidden * tokens**2


def _weights(module: nn.Module) -> int:
    """Numbers in weights of products: in all matrices but those of embeddings."""
    embeddings = {id(each.weight) for each in module.modules() if isinstance(each, nn.Embedding)}
    return sum(p.numel() for p in module.parameters() if p.dim() == 2 and id(p) not in embeddings)


def step_bytes(parameters: int) -> int:
    """What Adam moves through memory in a step at least: the gradient set to zero, added to and read for its norm, then
    read with the weight and both moments, which are written too."""
    return BYTES * parameters * (1 + 2 + 1 + 1 + 2 * 3)


def all_reduced_bytes(parameters: int, processes: int) -> float:
    """What each process sends, and as much receives, to sum a float32 gradient in a ring: 2 (n - 1) / n of it."""
    return BYTES * parameters * 2 * (processes - 1) / processes


def machine_rates(size: int = 1024, seconds: float = 2.0) -> dict[str, float]:
    """Products of square matrices in 10^9 operations/s and copies in 10^9 bytes/s (read and written), in as many
    threads as training has."""
    a, source = torch.randn(size, size), torch.zeros(FILLED // BYTES)
    target = torch.zeros_like(source)
    product = _rate(lambda: torch.mm(a, a), seconds)
    copy = _rate(lambda: target.copy_(source), seconds)
    return {
        "threads": torch.get_num_threads(),
        "gflops": round(2 * size**3 * product / 1e9, 1),
        "gbytes_per_second": round(2 * FILLED * copy / 1e9, 1),
    }


def _rate(work: Callable[[], object], seconds: float) -> float:
    """Times per second of processor time of each thread: the best of many short trials, since others on the same
    machine only ever slow it."""
    work()
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.process_time()
        work()
        best = max(best, torch.get_num_threads() / (time.process_time() - began))
    return best


def load() -> list[float]:
    """Mean number of processes that wanted a core, over 1, 5 and 15 minutes."""
    return [round(each, 2) for each in os.getloadavg()]
