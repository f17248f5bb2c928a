"""A tiny random encoder of Hugging Face in a folder, as the hub would give it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

PIECES = ("an", "##na", "bob", "car", "##l", "dora", "see", "like", "hear", "##s", "cat", "dog", "tree", "bird", "song")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, *"abcdefghijklmnopqrstuvwxyz")
"""Of the tiny corpus some words are one piece, some are more, and some are unknown."""


@cache
def tiny_encoder(hidden: int = 16, seed: int = 0) -> Path:
    """The folder of a BERT with one layer whose weights depend on the seed alone."""
    from transformers import BertConfig, BertModel, BertTokenizer
    from transformers.utils import logging

    place = tempfile.mkdtemp(prefix="textspace-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    folder = Path(place, f"tiny-encoder-{hidden}-{seed}")  # its name becomes part of measures' names
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=hidden,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    chance = torch.Generator("cpu").manual_seed(seed)
    with torch.no_grad(), torch.device("cpu"):
        network = BertModel(config)
        for name, parameter in sorted(network.named_parameters()):
            is_scale = "LayerNorm.weight" in name
            parameter.copy_(torch.randn(parameter.shape, generator=chance) * 0.3 + is_scale)
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    network.save_pretrained(folder)
    if bars:
        logging.enable_progress_bar()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    BertTokenizer(vocab=str(folder / "vocab.txt"), model_max_length=24).save_pretrained(folder)
    return folder
