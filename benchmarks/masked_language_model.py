"""A masked language model of the size of a space's encoder, trained on the same text for as many steps.

    python -m benchmarks.masked_language_model CORPUS SPACE OUT --epochs 3
    textspace evaluate SPACE --tasks CORPORA --baseline OUT

BERT, without its task on pairs of sentences, with the layers, units, heads and dropout of the encoder of a Transformer
space in the folder SPACE, and with that space's subwords, batches, optimiser and learning rates. 15 percent of the
tokens are hidden, others at every step: 80 percent of these become [MASK], 10 percent another token, and 10 percent
stay. OUT becomes a folder that `transformers` reads, with the losses in `masked_language_model.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.results import record
from textspace import folder as folders
from textspace.config import Recipe, TransformerEncoder
from textspace.data.batching import batches_by_length, make_batch, plan_batches
from textspace.data.corpus import open_corpus
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import prepare
from textspace.data.tokenizers import END, PAD, SPECIALS, START, UNKNOWN, Tokenizer
from textspace.errors import TextspaceError
from textspace.noise import Noise, seed_of
from textspace.schedules import Progress, schedule
from textspace.train.optimizers import OPTIMIZERS
from textspace.train.processes import Processes
from textspace.types import Batch

if TYPE_CHECKING:
    from transformers import BertForMaskedLM, PreTrainedTokenizerFast

NAMES = {PAD: "[PAD]", START: "[CLS]", UNKNOWN: "[UNK]", END: "[SEP]"}
"""What BERT calls the special tokens that every space has, at the same ids; [MASK] comes after all others."""
MASK = "[MASK]"
COMMAND = "python -m benchmarks.masked_language_model"
MASKED, BECOME_MASK, BECOME_ANOTHER = 0.15, 0.8, 0.1
POSITIONS = 512
LOGGED_EVERY = 100


def exported(tokenizer: Tokenizer, most_tokens: int) -> PreTrainedTokenizerFast:
    """A space's subwords as `transformers` reads them, with a start token before a text and an end token after it."""
    from transformers import PreTrainedTokenizerFast

    if tokenizer.kind != "bpe":
        raise TextspaceError(f"the space has a tokenizer of kind {tokenizer.kind!r}: give one trained with 'bpe'")
    data = json.loads(tokenizer.to_json())
    names = {SPECIALS[position]: name for position, name in NAMES.items()}
    data["model"]["vocab"] = {names.get(token, token): position for token, position in data["model"]["vocab"].items()}
    data["added_tokens"] = []
    library = tokenizers.Tokenizer.from_str(json.dumps(data))
    # A blank before a separator in a text is no token of its own.
    library.add_special_tokens([tokenizers.AddedToken(name, lstrip=True) for name in (*NAMES.values(), MASK)])
    start, end = NAMES[START], NAMES[END]
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A {end}", pair=f"{start} $A {end} $B:0 {end}:0", special_tokens=[(start, START), (end, END)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_max_length=most_tokens,
        pad_token=NAMES[PAD],
        cls_token=start,
        unk_token=NAMES[UNKNOWN],
        sep_token=end,
        mask_token=MASK,
    )


def network(recipe: Recipe, vocabulary: int, most_tokens: int, seed: int) -> BertForMaskedLM:
    """Of the size of a recipe's encoder, with weights that depend on the seed alone."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = recipe.encoder
    if not isinstance(sizes, TransformerEncoder):
        raise TextspaceError("the space has no Transformer encoder: give one trained with a recipe like 'vat'")
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.feed_forward,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.dropout,
        max_position_embeddings=most_tokens,
        type_vocab_size=1,
        pad_token_id=PAD,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initial weights"))
        return BertForMaskedLM(config)


@dataclass(frozen=True)
class Hidden:
    """A batch with some of its words hidden: what is read, where the words were (M of them), and which they were."""

    ids_BT: Tensor
    mask_BT: Tensor
    place_M: Tensor
    target_M: Tensor

    def to(self, device: torch.device) -> Hidden:
        return Hidden(
            *(part.to(device, non_blocking=True) for part in (self.ids_BT, self.mask_BT, self.place_M, self.target_M))
        )


def hidden(batch: Batch, noise: Noise, mask_id: int) -> Hidden:
    """Hide some words of a batch, which is on the CPU, so that a GPU need not be asked how many they are.

    Ids from `len(SPECIALS)` up to `mask_id` are words.
    """
    ids_BT, mask_BT = batch.encoder.ids_BT, batch.encoder.mask_BT
    first_word = len(SPECIALS)
    shape_T = (ids_BT.shape[1],)
    chosen_BT, fate_BT, other_BT = (noise.uniform(name, shape_T, 1)[0] for name in ("chosen", "fate", "other word"))
    chosen_BT = (chosen_BT < MASKED) & mask_BT & (ids_BT >= first_word)
    other_BT = first_word + (other_BT * (mask_id - first_word)).long()
    read_BT = ids_BT.where(~chosen_BT | (fate_BT >= BECOME_MASK), mask_id)
    becomes_other_BT = chosen_BT & (fate_BT >= BECOME_MASK) & (fate_BT < BECOME_MASK + BECOME_ANOTHER)
    read_BT = read_BT.where(~becomes_other_BT, other_BT)
    place_M = chosen_BT.flatten().nonzero()[:, 0]
    return Hidden(read_BT, mask_BT, place_M, ids_BT.flatten()[place_M])


def log_probabilities(model: BertForMaskedLM, read: Hidden) -> Tensor:
    """Of every token at the hidden places, (M, V); nothing else goes through the last layer."""
    states_BTH = model.bert(input_ids=read.ids_BT, attention_mask=read.mask_BT.long()).last_hidden_state
    return model.cls(states_BTH.flatten(0, 1)[read.place_M]).float().log_softmax(1)


def train(
    model: BertForMaskedLM,
    recipe: Recipe,
    splits: dict[str, EncodedSplit],
    *,
    epochs: int,
    steps: int | None = None,
    seed: int = 0,
    precision: str = "float32",
    processes: Processes,
) -> dict[str, Any]:
    """Move the weights, on the batches that a space of this recipe and seed sees; what was measured on the way."""
    device = processes.device
    settings, mask_id = recipe.training, model.config.vocab_size - 1
    model.to(device).train()
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[settings.optimizer.kind](parameters, settings.optimizer)
    rate = schedule(settings.optimizer.schedule)
    per_epoch = len(_plan(splits["train"], recipe, seed, 0))
    total = min(epochs * per_epoch, steps or epochs * per_epoch)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    losses: list[Tensor] = []
    found: dict[str, Any] = {"steps": total, "train_loss": [], "valid": []}
    tokens, began = 0, time.perf_counter()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed_of(seed, "dropout"))
        for step, batch in enumerate(_batches(splits["train"], recipe, seed, total)):
            read = hidden(batch, Noise(seed, step, batch.rows_B), mask_id).to(device)
            with processes.autocast(precision):
                log_p_MV = log_probabilities(model, read)
            # A batch without a hidden word moves nothing, and its loss is 0.
            loss = F.nll_loss(log_p_MV, read.target_M, reduction="sum") / max(len(read.target_M), 1)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
            for group in optimizer.param_groups:
                group["lr"] = settings.optimizer.lr * rate(Progress(step, step / per_epoch, step / total))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tokens += int(batch.encoder.lengths_B.sum())
            losses.append(loss.detach())
            if len(losses) == LOGGED_EVERY or step + 1 == total:
                found["train_loss"].append(round(torch.stack(losses).mean().item(), 4))
                print(json.dumps({"step": step + 1, "loss": found["train_loss"][-1]}), flush=True)
                losses = []
            if (step + 1) % per_epoch == 0 or step + 1 == total:
                found["valid"].append(validated(model, recipe, splits["valid"], device))
                print(json.dumps({"step": step + 1, **found["valid"][-1]}), flush=True)
    torch.set_float32_matmul_precision("highest")
    seconds = time.perf_counter() - began
    return found | {"seconds": round(seconds, 1), "tokens_per_second": round(tokens / seconds)}


@torch.no_grad()
def validated(model: BertForMaskedLM, recipe: Recipe, split: EncodedSplit, device: torch.device) -> dict[str, float]:
    """Mean loss and share of right guesses at hidden words, which are the same at every call."""
    model.eval()
    loss = right = count = 0.0
    for rows_B in batches_by_length(split.lengths, size=recipe.training.batch.sentences or 128):
        batch = make_batch(split, rows_B)
        read = hidden(batch, Noise(0, 0, batch.rows_B), model.config.vocab_size - 1).to(device)
        log_p_MV = log_probabilities(model, read)
        loss += F.nll_loss(log_p_MV, read.target_M, reduction="sum").item()
        right += (log_p_MV.argmax(1) == read.target_M).sum().item()
        count += len(read.target_M)
    model.train()
    return {"loss": round(loss / max(count, 1), 4), "right": round(right / max(count, 1), 4)}


def _plan(split: EncodedSplit, recipe: Recipe, seed: int, epoch: int) -> Any:
    size = recipe.training.batch
    return plan_batches(
        split.lengths, size=size.sentences, tokens=size.tokens, seed=seed_of(seed, "batches"), epoch=epoch
    )


def _batches(split: EncodedSplit, recipe: Recipe, seed: int, total: int) -> Iterator[Batch]:
    """So many, epoch after epoch."""
    given, epoch = 0, 0
    while True:
        for rows_B in _plan(split, recipe, seed, epoch):
            if given == total:
                return
            yield make_batch(split, rows_B)
            given += 1
        epoch += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="what `textspace train` takes")
    parser.add_argument("space", type=Path, help="a folder whose sizes, tokenizer and training settings are taken")
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, help="by default the space's")
    parser.add_argument("--steps", type=int, help="at most")
    parser.add_argument("--set", nargs="*", default=[], help="changes to the space's recipe, training.optimizer.lr=...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    parser.add_argument("--device", help="cpu or cuda; by default the GPU where there is one")
    given = parser.parse_args()
    saved = folders.load(given.space)
    recipe = saved.recipe.with_settings(given.set)
    if recipe.text.normalise:
        raise TextspaceError("the space cleans up its text, which a tokenizer of transformers does not: train another")
    splits = prepare(open_corpus(given.corpus), recipe, tokenizer=saved.tokenizer).encoded.splits
    most_tokens = max(POSITIONS, *(int(split.lengths.max(initial=0)) for split in splits.values()))
    tokenizer = exported(saved.tokenizer, most_tokens)
    model = network(recipe, len(tokenizer), most_tokens, given.seed)
    found = train(
        model,
        recipe,
        splits,
        epochs=given.epochs or recipe.training.epochs,
        steps=given.steps,
        seed=given.seed,
        precision=given.precision,
        processes=Processes(given.device),
    )
    model.to("cpu").eval().save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    encoder = sum(p.numel() for p in saved.model.encoder.parameters()) if saved.model.encoder else 0
    sizes = {
        "parameters": sum(p.numel() for p in model.bert.parameters()),
        "parameters_of_the_space's_encoder": encoder,
        "uniform_loss": round(math.log(len(tokenizer)), 2),
        "precision": given.precision,
        "seed": given.seed,
    }
    options = " ".join(sys.argv[4:])  # paths come before them
    record("masked_language_model", f"{COMMAND} CORPUS SPACE OUT {options}", sizes | found, given.out)


if __name__ == "__main__":
    main()
