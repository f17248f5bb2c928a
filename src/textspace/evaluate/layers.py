"""Vectors of tokens in every layer of an encoder of Hugging Face."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from textspace.config import PretrainedEncoder
from textspace.data.batching import batches_by_length
from textspace.pretrained import EncoderFiles, network_with_weights
from textspace.progress import track

__all__ = ["Layers", "layers_of"]

TOKENS_AT_ONCE = 2**13


@dataclass(frozen=True)
class Layers:
    """What an encoder makes of sentences, its special tokens left out.

    Args:
        ids: which token each vector is of, by sentence.
        vectors: by layer, the embeddings first, and by sentence: (tokens, units) in float32.
        names: the vocabulary's entry for each id that occurs.
        unknown: the id for unknown words, where there is one.
    """

    ids: list[NDArray[np.int64]]
    vectors: list[list[NDArray[np.float32]]]
    names: dict[int, str]
    unknown: int | None


@torch.no_grad()
def layers_of(
    model: str, texts: Sequence[str], *, device: torch.device | str = "cpu", show_progress: bool = False
) -> Layers:
    """The vectors of every token in every layer, all held in memory.

    Args:
        model: a folder, or the name of a model of the Hugging Face hub.
        texts: sentences; what the encoder cannot read of a long one is left out.
        device: where to compute.
        show_progress: show a bar.
    """
    chosen = PretrainedEncoder(model=model)
    files = EncoderFiles.fetch(chosen)
    network = network_with_weights(chosen).to(device).eval()
    padding = getattr(network.config, "pad_token_id", None) or 0
    ids = [np.array(each, np.int64) for each in files.encode(list(texts))]
    are_words = [np.array(each, bool) for each in files.mark_words(list(texts))]
    found: dict[int, list[NDArray[np.float32]]] = {}
    lengths = np.array([len(each) for each in ids])
    plan = batches_by_length(lengths, tokens=TOKENS_AT_ONCE)
    for rows in track(plan, "encoding with another encoder", show_progress, len(plan)):
        mask_BT = np.arange(lengths[rows].max()) < lengths[rows][:, None]
        ids_BT = np.full(mask_BT.shape, padding, np.int64)
        ids_BT[mask_BT] = np.concatenate([ids[row] for row in rows])
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids_BT).to(device),
            "attention_mask": torch.from_numpy(mask_BT).to(device, torch.long),
        }
        states_LBTH = torch.stack(network(**inputs, output_hidden_states=True).hidden_states).float().cpu().numpy()
        for place, row in enumerate(rows):
            found[int(row)] = list(states_LBTH[:, place, np.flatnonzero(are_words[row])])
    layers = len(found[0]) if found else 0
    kept = [of[are_words_T] for of, are_words_T in zip(ids, are_words, strict=True)]
    return Layers(
        ids=kept,
        vectors=[[found[row][layer] for row in range(len(ids))] for layer in range(layers)],
        names={int(number): files.token(int(number)) for number in np.unique(np.concatenate([*kept, []]))},
        unknown=files.unknown,
    )
