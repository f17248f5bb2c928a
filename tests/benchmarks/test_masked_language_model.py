from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TOKEN_RECIPE, short_sentences
from safetensors import safe_open

from benchmarks import masked_language_model
from benchmarks.masked_language_model import BECOME_ANOTHER, BECOME_MASK, MASK, MASKED, exported, hidden
from textspace import folder as folders
from textspace.config import PretrainedEncoder, WordTokenizer
from textspace.data.batching import batch_of
from textspace.data.tokenizers import END, SPECIALS, START, Tokenizer, train_tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.measures.sentence_encoders import Baseline
from textspace.model import Model
from textspace.noise import Noise
from textspace.pretrained import EncoderFiles
from textspace.space import Space


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TOKEN_RECIPE.text.tokenizer, short_sentences())


def test_transformers_reads_the_tokens_of_a_space(tokenizer) -> None:
    texts = ["anna sees cats", "Bob likes a <unk> tree", " ünlike  dogs</s>", ""]
    theirs = exported(tokenizer, 512)
    ours = [[START, *ids, END] for ids in tokenizer.encode(texts)]
    assert theirs(texts)["input_ids"] == ours
    assert len(theirs) == len(tokenizer) + 1
    assert (theirs.mask_token, theirs.mask_token_id) == (MASK, len(tokenizer))
    separated = theirs("anna sees [SEP] bob")["input_ids"]
    assert separated == [START, *tokenizer.encode(["anna sees"])[0], END, *tokenizer.encode([" bob"])[0], END]


def test_only_subwords_can_be_exported() -> None:
    with pytest.raises(TextspaceError, match="give one trained with 'bpe'"):
        exported(train_tokenizer(WordTokenizer(), ["a b"]), 512)


def test_words_are_hidden_as_bert_hides_them() -> None:
    mask_id = 40
    sentence = [4 + place % 36 for place in range(500)]
    batch = batch_of([sentence, sentence[:100], *[sentence] * 30])
    read = hidden(batch, Noise(0, 0, batch.rows_B), mask_id)
    ids_BT = batch.encoder.ids_BT
    words = ids_BT >= len(SPECIALS)
    chosen = torch.zeros_like(ids_BT, dtype=torch.bool).flatten().index_fill(0, read.place_M, True).view_as(ids_BT)
    assert torch.equal(read.target_M, ids_BT[chosen])
    assert torch.equal(read.ids_BT[~chosen], ids_BT[~chosen])
    assert not (chosen & ~words).any()  # start, end and padding are never hidden
    found, count = read.ids_BT[chosen], int(chosen.sum())
    assert ((found >= len(SPECIALS)) & (found <= mask_id)).all()
    # Of words that become another one, one in 36 is the same.
    shares = {
        "hidden": (count / int(words.sum()), MASKED, int(words.sum())),
        "mask": (float((found == mask_id).double().mean()), BECOME_MASK, count),
        "other": (
            float(((found != mask_id) & (found != read.target_M)).double().mean()),
            BECOME_ANOTHER * 35 / 36,
            count,
        ),
    }
    for name, (share, expected, of) in shares.items():
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / of)), name
    again, other = (hidden(batch, Noise(0, step, batch.rows_B), mask_id) for step in (0, 1))
    assert torch.equal(read.ids_BT, again.ids_BT)
    assert not torch.equal(read.ids_BT, other.ids_BT)


@pytest.fixture(scope="module")
def trained(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models from the same command; the space is an untrained one."""
    folder = tmp_path_factory.mktemp("masked")
    folders.save(folder / "space", TOKEN_RECIPE, tokenizer, Model(TOKEN_RECIPE, len(tokenizer)), {})
    (folder / "text.txt").write_text("\n".join(short_sentences()))
    outs = folder / "first", folder / "second"
    with pytest.MonkeyPatch.context() as patch:
        for out in outs:
            paths = [str(folder / "text.txt"), str(folder / "space"), str(out)]
            patch.setattr("sys.argv", ["", *paths, "--epochs", "3", "--device", "cpu"])
            masked_language_model.main()
    return outs


def test_the_loss_falls_well_below_uniform(trained) -> None:
    numbers = json.loads((trained[0] / "masked_language_model.json").read_text())
    losses = [epoch["loss"] for epoch in numbers["valid"]]
    assert len(losses) == 3
    assert losses[-1] < 0.5 * numbers["uniform_loss"]
    assert losses[-1] < losses[0]


def test_the_same_command_gives_the_same_weights(trained) -> None:
    first, second = (safe_open(out / "model.safetensors", "pt") for out in trained)
    names = first.keys()
    assert names == second.keys()
    assert all(torch.equal(first.get_tensor(name), second.get_tensor(name)) for name in names)


def test_the_folder_is_a_baseline(trained, tokenizer) -> None:
    files = EncoderFiles.fetch(PretrainedEncoder(model=str(trained[0])))
    text = "anna sees cats"
    assert files.encode([text]) == [[START, *tokenizer.encode([text])[0], END]]
    assert files.knows("[SEP]")
    space = Space(TOKEN_RECIPE, tokenizer, Model(TOKEN_RECIPE, len(tokenizer)))
    vectors = {
        name: Baseline(str(out), space).pooled([text, "bob"])["mean"]
        for name, out in zip(("first", "second"), trained, strict=True)
    }
    assert vectors["first"].shape == (2, TOKEN_RECIPE.encoder.hidden)
    assert np.isfinite(vectors["first"]).all()
    assert np.array_equal(vectors["first"], vectors["second"])
    assert np.abs(vectors["first"][0] - vectors["first"][1]).max() > 0.01
