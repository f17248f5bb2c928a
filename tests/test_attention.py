"""Transformer layers against torch's own and against plain loops; positions; dropout that is keyed like all noise."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import small
from torch import Tensor, nn

from textspace.attention import Attention, Layer, OneVector, Positions, dropper
from textspace.config import TransformerEncoder
from textspace.data.batching import batch_of
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.train import checkpoints

WIDTH, HEADS, CODE = 16, 4, 6
LENGTHS = [5, 2, 3]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(longest: int = 5) -> Tensor:
    return torch.arange(longest) < torch.tensor(LENGTHS)[:, None]


def config(norm: str) -> TransformerEncoder:
    return TransformerEncoder(hidden=WIDTH, heads=HEADS, feed_forward=24, layers=1, norm=norm)


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    torch.manual_seed(5)


# Attention


def by_loop(attention: Attention, x_TH: Tensor, read_UR: Tensor, may_read) -> Tensor:
    """What each position of one sentence finds; `may_read(t, u)` says whether position t reads u."""
    query, keys_values = attention.query(x_TH), attention.key_value(read_UR)
    keys, values = keys_values[:, :WIDTH], keys_values[:, WIDTH:]
    units = WIDTH // HEADS
    rows = []
    for t in range(len(x_TH)):
        found = []
        for head in range(HEADS):
            own = slice(head * units, (head + 1) * units)
            read = [u for u in range(len(read_UR)) if may_read(t, u)]
            scores = [float(query[t, own] @ keys[u, own]) / math.sqrt(units) for u in read]
            total = sum(map(math.exp, scores))
            found.append(sum(math.exp(s) / total * values[u, own] for s, u in zip(scores, read, strict=True)))
        rows.append(attention.output(torch.cat(found)))
    return torch.stack(rows)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_self_attention_equals_a_plain_loop(causal: bool) -> None:
    attention, x_NTH = Attention(WIDTH, HEADS), random(3, 5, WIDTH)
    found_NTH = attention(x_NTH, attention.memory(x_NTH, None if causal else mask()), causal)
    for row, length in enumerate(LENGTHS):
        may_read = (lambda t, u: u <= t) if causal else (lambda t, u, length=length: u < length)
        torch.testing.assert_close(found_NTH[row], by_loop(attention, x_NTH[row], x_NTH[row], may_read))


@torch.no_grad()
def test_attention_to_a_code_equals_a_plain_loop() -> None:
    attention, x_NTH, code_NUZ = Attention(WIDTH, HEADS, CODE), random(3, 4, WIDTH), random(3, 5, CODE, seed=1)
    found_NTH = attention(x_NTH, attention.memory(code_NUZ, mask()))
    for row, length in enumerate(LENGTHS):
        truth_TH = by_loop(attention, x_NTH[row], code_NUZ[row, :length], lambda t, u: True)
        torch.testing.assert_close(found_NTH[row], truth_TH)


# Layers


def copied(attention: Attention, other: nn.MultiheadAttention) -> None:
    """Into torch's, whose weights of queries, keys and values lie together where all are of one size."""
    for kind in ("weight", "bias"):
        query, key_value = (getattr(part, kind) for part in (attention.query, attention.key_value))
        if other.in_proj_weight is not None or kind == "bias":
            getattr(other, f"in_proj_{kind}").copy_(torch.cat([query, key_value]))
        else:
            other.q_proj_weight.copy_(query)
            other.k_proj_weight.copy_(key_value[:WIDTH])
            other.v_proj_weight.copy_(key_value[WIDTH:])
    other.out_proj.load_state_dict(attention.output.state_dict())


def twin(layer: Layer, norm: str) -> nn.Module:
    """Torch's layer with the same weights."""
    of_code = isinstance(layer.code, Attention)
    kind = nn.TransformerDecoderLayer if of_code else nn.TransformerEncoderLayer
    other = kind(WIDTH, HEADS, 24, dropout=0.0, batch_first=True, norm_first=norm == "before").train()
    copied(layer.own, other.self_attn)
    if of_code:
        other.multihead_attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, kdim=CODE, vdim=CODE)
        copied(layer.code, other.multihead_attn)
    other.linear1.load_state_dict(layer.feed[0].state_dict())
    other.linear2.load_state_dict(layer.feed[2].state_dict())
    for number, part in enumerate(layer.norms, start=1):
        part.weight.copy_(random(WIDTH, seed=number))
        part.bias.copy_(random(WIDTH, seed=9 + number))
        getattr(other, f"norm{number}").load_state_dict(part.state_dict())
    return other


@pytest.mark.parametrize("norm", ["after", "before"])
@torch.no_grad()
def test_a_layer_of_the_encoder_is_torchs(norm: str) -> None:
    layer = Layer(config(norm))
    x_NTH, real_NT = random(3, 5, WIDTH), mask()
    truth_NTH = twin(layer, norm)(x_NTH, src_key_padding_mask=~real_NT)
    found_NTH, _ = layer(x_NTH, mask_NT=real_NT)
    torch.testing.assert_close(found_NTH[real_NT], truth_NTH[real_NT])


@pytest.mark.parametrize("norm", ["after", "before"])
@torch.no_grad()
def test_a_layer_of_the_decoder_is_torchs(norm: str) -> None:
    layer = Layer(config(norm), Attention(WIDTH, HEADS, CODE))
    x_NTH, code_NUZ = random(3, 4, WIDTH), random(3, 5, CODE, seed=1)
    causal_TT = nn.Transformer.generate_square_subsequent_mask(4)
    truth_NTH = twin(layer, norm)(x_NTH, code_NUZ, tgt_mask=causal_TT, memory_key_padding_mask=~mask())
    found_NTH, _ = layer(x_NTH, causal=True, code=layer.code.memory(code_NUZ, mask()))
    torch.testing.assert_close(found_NTH, truth_NTH)


@pytest.mark.parametrize("norm", ["after", "before"])
@torch.no_grad()
def test_one_vector_is_added_to_what_self_attention_finds(norm: str) -> None:
    """Attention to a single vector gives the same at every position, whatever it asks."""
    x_NTH, code_NZ = random(3, 4, WIDTH), random(3, CODE, seed=1)
    attention = Attention(WIDTH, HEADS, CODE)
    found_NTH = attention(x_NTH, attention.memory(code_NZ[:, None]))
    torch.testing.assert_close(found_NTH, found_NTH[:, :1].expand_as(found_NTH))

    layer = Layer(config(norm), OneVector(WIDTH, CODE))
    plain = Layer(config(norm))
    plain.load_state_dict(layer.state_dict(), strict=False)
    for row in range(3):
        shifted = Layer(config(norm))
        shifted.load_state_dict(plain.state_dict())
        shifted.own.output.bias.add_(layer.code.value(code_NZ[row]))
        truth_TH = shifted(x_NTH[row : row + 1], causal=True)[0][0]
        torch.testing.assert_close(layer(x_NTH, causal=True, code=layer.code.memory(code_NZ))[0][row], truth_TH)


@torch.no_grad()
def test_what_was_read_before_need_not_be_read_again() -> None:
    layer, x_NTH = Layer(config("after")), random(3, 5, WIDTH)
    whole_NTH, read = layer(x_NTH, causal=True)
    past = tuple(part[:, :, :3] for part in read)
    last_NTH, grown = layer(x_NTH[:, 3:4], past=past)
    torch.testing.assert_close(last_NTH, whole_NTH[:, 3:4])
    assert [part.shape[2] for part in grown] == [4, 4]


# Positions


def test_positions_are_sines_and_cosines() -> None:
    found_TH = Positions(6)(3, 4)
    for place, row_H in zip(range(3, 7), found_TH.tolist(), strict=True):
        angles = [place / 10_000 ** (2 * pair / 6) for pair in range(3)]
        assert row_H == pytest.approx([wave(angle) for angle in angles for wave in (math.sin, math.cos)])


def test_there_is_no_last_position() -> None:
    positions = Positions(8, length=16)
    first = positions(0, 16).clone()
    torch.testing.assert_close(positions(900, 3), Positions(8, length=2000)(900, 3))
    assert torch.equal(positions(0, 16), first)
    positions = positions.float()
    assert positions(0, 9999).dtype == torch.float32


def test_sentences_longer_than_the_table_are_read_and_written() -> None:
    model = Model(small(RECIPES["vat"]), 12).eval().double()
    batch = batch_of([[4 + place % 8 for place in range(700)], [5, 6]])
    with torch.no_grad():
        long_BT = model(batch, Noise(0, 0, batch.rows_B)).log_px_SBT[0]
        short = batch_of([[5, 6]])
        alone_BT = model(short, Noise(0, 0, torch.tensor([1]))).log_px_SBT[0]
    assert long_BT.isfinite().all()
    torch.testing.assert_close(long_BT[1, :3], alone_BT[0])
    assert not any("table" in name for name in checkpoints.weights(model))


# Dropout


def noise(rows: list[int], step: int = 0) -> Noise:
    return Noise(7, step, torch.tensor(rows))


def test_dropout_drops_a_share_and_scales_the_rest() -> None:
    ones = torch.ones(2 * 300, 10, 16)
    drop = dropper(noise(list(range(300))), "encoder", (10, 16), 0.2)
    first, second = drop(ones), drop(ones)
    assert sorted(first.unique().tolist()) == [0.0, 1.25]
    for dropped in (first, second):
        assert dropped.mean().item() == pytest.approx(1, abs=5 * math.sqrt(0.5 / ones.numel()))
    both = ((first == 0) & (second == 0)).double().mean().item()
    assert both == pytest.approx(0.04, abs=5 * math.sqrt(0.08 / ones.numel()))
    other = dropper(noise(list(range(300))), "decoder", (10, 16), 0.2)(ones)
    assert not torch.equal(other, first)
    assert torch.equal(first[:300], first[300:])  # of a sentence's samples the same


def test_what_is_dropped_depends_on_neither_the_batch_nor_the_padding() -> None:
    whole, few = (dropper(noise(rows), "encoder", (length, 16), 0.5) for rows, length in (([4, 5, 9], 10), ([9], 6)))
    for _ in range(9):  # from three blocks of numbers
        all_SBTH = whole(torch.ones(9, 10, 16)).unflatten(0, (3, 3))
        one_SBTH = few(torch.ones(3, 6, 16)).unflatten(0, (3, 1))
        assert torch.equal(one_SBTH[:, 0], all_SBTH[:, 2, :6])


def test_without_a_share_nothing_is_drawn_and_with_one_noise_is_needed() -> None:
    x_NTH = random(2, 3, 4)
    assert dropper(None, "encoder", (3, 4), 0.0)(x_NTH) is x_NTH
    with pytest.raises(ValueError, match="dropout in the encoder needs noise in training"):
        dropper(None, "encoder", (3, 4), 0.1)


def test_a_layer_drops_what_it_adds() -> None:
    """With all that is added dropped, a layer that normalises before gives its input back."""
    layer, x_NTH = Layer(config("before"), Attention(WIDTH, HEADS, CODE)), random(3, 5, WIDTH)
    found_NTH, _ = layer(x_NTH, lambda x: x * 0, causal=True, code=layer.code.memory(random(3, 2, CODE)))
    assert torch.equal(found_NTH, x_NTH)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_both_sides_drop_embeddings_too(part: str) -> None:
    model = Model(small(RECIPES["vat"]), 12).double().train()
    inputs: list[Tensor] = []
    layer = getattr(model, part).layers[0]
    layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    batch = batch_of([[5, 6, 7]])
    model(batch, Noise(0, 0, batch.rows_B), samples=40)
    assert (inputs[0] == 0).double().mean().item() == pytest.approx(0.1, abs=0.06)
