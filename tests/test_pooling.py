"""Pooling against plain loops: every real position counts, padding never does."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import SMALL_ATTENTIVE, small
from torch import Tensor
from torch.nn import functional as F

from textspace.config import AttentionPooling, NoPooling, SimplePooling
from textspace.data.batching import batch_of
from textspace.encoders import RecurrentEncoder, States, TransformerEncoder
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.pooling import POOLINGS
from textspace.recipes import RECIPES
from textspace.types import View

ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": {"encoder.kind": "lstm"},
    "gru": {"encoder.kind": "gru"},
    "lstm both ways": {"encoder.kind": "lstm", "encoder.bidirectional": True},
    "gru both ways": {"encoder.kind": "gru", "encoder.bidirectional": True},
    "two layers both ways": {"encoder.kind": "lstm", "encoder.bidirectional": True, "encoder.layers": 2},
    "transformer": {"encoder": {"kind": "transformer", **SMALL_ATTENTIVE}},
}
ONE_WAY = ("lstm", "gru")
TO_A_VECTOR = [pooling for pooling in POOLINGS if pooling != "none"]
PAIRS = [(p, e) for e in ENCODERS for p in POOLINGS if not (p == "start" and e in ONE_WAY)]
"""By the start token an encoder that reads one way has read nothing: that is refused."""
SENTENCES = [[5, 6, 7, 8, 4], [9, 4], [], [6]]
"""The third is empty: its states are those of the start and end tokens."""
LENGTHS = [7, 4, 2, 3]


def model_of(pooling: str, encoder: dict) -> Model:
    decoder = {"decoder": {"kind": "transformer", **SMALL_ATTENTIVE}} if pooling == "none" else {}
    changes = {"pooling.kind": pooling, "initial.weights": 0.6} | encoder | decoder
    return Model(small(RECIPES["vae"]).but(changes), 12).eval()


def alone(encoder: RecurrentEncoder | TransformerEncoder, sentence: list[int]) -> Tensor:
    """The states (T, H) of a sentence without any padding; of recurrent encoders straight from torch."""
    view = batch_of([sentence]).encoder
    if isinstance(encoder, TransformerEncoder):
        return encoder(view).all_BTH[0]
    return encoder.recurrent(encoder.embedding(view.ids_BT))[0][0]


def by_loop(pooling: str, states_TH: Tensor, model: Model) -> list[float]:
    rows = states_TH.tolist()
    units = range(len(rows[0]))
    match pooling:
        case "last":
            half = model.recipe.encoder.hidden  # of two directions the second has read everything at position 0
            return [rows[-1][h] if h < half else rows[0][h] for h in units]
        case "start":
            return rows[0]
        case "sum":
            return [sum(row[h] for row in rows) for h in units]
        case "mean":
            return [sum(row[h] for row in rows) / len(rows) for h in units]
        case "max":
            return [max(row[h] for row in rows) for h in units]
        case "abs":
            return [max((row[h] for row in rows), key=abs) for h in units]
        case "attention":
            W, b = model.pooling.project.weight.tolist(), model.pooling.project.bias.tolist()
            u = model.pooling.score.weight[0].tolist()
            scores = [
                sum(
                    u_k * math.tanh(b_k + sum(w * h for w, h in zip(W_k, row, strict=True)))
                    for u_k, W_k, b_k in zip(u, W, b, strict=True)
                )
                for row in rows
            ]
            total = sum(math.exp(score) for score in scores)
            return [sum(math.exp(s) / total * row[h] for s, row in zip(scores, rows, strict=True)) for h in units]
    raise AssertionError(pooling)


@pytest.mark.parametrize(("pooling", "encoder"), [pair for pair in PAIRS if pair[0] != "none"])
@torch.no_grad()
def test_features_equal_a_plain_loop_over_the_states(pooling: str, encoder: str) -> None:
    model = model_of(pooling, ENCODERS[encoder])
    found_BH = model.features(batch_of(SENTENCES).encoder)
    assert found_BH.shape == (len(SENTENCES), model.encoder.size)
    for row, sentence in enumerate(SENTENCES):
        states_TH = alone(model.encoder, sentence)
        assert len(states_TH) == LENGTHS[row]
        truth_H = torch.tensor(by_loop(pooling, states_TH, model))
        torch.testing.assert_close(found_BH[row], truth_H, atol=1e-5, rtol=0)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_without_pooling_every_token_keeps_its_state_and_padding_has_none(encoder: str) -> None:
    model = model_of("none", ENCODERS[encoder])
    found_BTH = model.features(batch_of(SENTENCES).encoder)
    assert found_BTH.shape == (len(SENTENCES), max(LENGTHS), model.encoder.size)
    for row, (sentence, length) in enumerate(zip(SENTENCES, LENGTHS, strict=True)):
        torch.testing.assert_close(found_BTH[row, :length], alone(model.encoder, sentence), atol=1e-5, rtol=0)
        assert not found_BTH[row, length:].any()


@pytest.mark.parametrize("kind", ONE_WAY)
def test_the_start_tokens_state_is_no_feature_where_it_has_read_nothing(kind: str) -> None:
    told = f"pooling 'start' takes the start token's state, and encoder '{kind}' has read nothing else by then: set"
    with pytest.raises(TextspaceError, match=told):
        model_of("start", ENCODERS[kind])


def test_no_two_poolings_agree() -> None:
    both_ways = ENCODERS["gru both ways"]
    features = [model_of(pooling, both_ways).features(batch_of(SENTENCES).encoder) for pooling in TO_A_VECTOR]
    for i, one in enumerate(features):
        assert all((one - other).abs().amax(1).min() > 1e-3 for other in features[:i])


@pytest.mark.parametrize(("pooling", "encoder"), PAIRS)
@torch.no_grad()
def test_padding_changes_no_feature(pooling: str, encoder: str) -> None:
    model = model_of(pooling, ENCODERS[encoder])
    view = batch_of(SENTENCES).encoder

    def padded(content: int, extra: int) -> View:
        ids_BT = F.pad(view.ids_BT, (0, extra))
        return View(ids_BT.where(View(ids_BT, view.lengths_B).mask_BT, content), view.lengths_B)

    assert torch.equal(model.features(padded(0, 2)), model.features(padded(11, 2)))
    more, as_it_is = model.features(padded(7, 9)), model.features(view)
    if pooling == "none":
        more = more[:, : view.ids_BT.shape[1]]
    torch.testing.assert_close(more, as_it_is, atol=1e-5 if encoder == "transformer" else 1e-6, rtol=0)


def made_by_hand(all_BTH: Tensor, lengths: list[int], padding: float) -> States:
    view = View(torch.zeros(all_BTH.shape[:2], dtype=torch.long), torch.tensor(lengths))
    all_BTH = all_BTH.where(view.mask_BT[:, :, None], padding)
    return States(all_BTH, all_BTH[torch.arange(len(lengths)), torch.tensor(lengths) - 1], view.mask_BT)


def pooling_of(kind: str, size: int) -> torch.nn.Module:
    config = {"attention": AttentionPooling(), "none": NoPooling()}.get(kind) or SimplePooling(kind=kind)
    torch.manual_seed(3)
    return POOLINGS[kind](config, size)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_whatever_stands_at_padding_changes_no_bit(pooling: str) -> None:
    torch.manual_seed(0)
    states_BTH = torch.randn(3, 6, 5)
    pool = pooling_of(pooling, 5)
    plain = pool(made_by_hand(states_BTH, [6, 4, 2], 0.0))
    for content in (1e30, -1e30, math.inf, math.nan):
        assert torch.equal(pool(made_by_hand(states_BTH, [6, 4, 2], content)), plain)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_no_gradient_reaches_padding(pooling: str) -> None:
    torch.manual_seed(0)
    states = made_by_hand(torch.randn(3, 6, 5), [6, 4, 2], 9.0)
    all_BTH = states.all_BTH.clone().requires_grad_()
    last_BH = all_BTH[torch.arange(3), torch.tensor([5, 3, 1])]
    pooling_of(pooling, 5)(replace(states, all_BTH=all_BTH, last_BH=last_BH)).square().sum().backward()
    size_BT = all_BTH.grad.abs().sum(2)
    assert size_BT[~states.mask_BT].tolist() == [0.0] * 6
    assert (size_BT.sum(1) > 0).all()
    if pooling in ("mean", "sum", "none"):
        assert (size_BT[states.mask_BT] > 0).all()


def test_the_largest_of_negative_states_is_negative() -> None:
    states_BTH = torch.tensor([[[-3.0, -0.5], [-2.0, -4.0], [-7.0, -0.25]], [[-1.0, -6.0], [-5.0, -0.75], [0.0, 0.0]]])
    for padding in (0.0, 100.0):
        pooled = pooling_of("max", 2)(made_by_hand(states_BTH, [3, 2], padding))
        assert pooled.tolist() == [[-2.0, -0.25], [-1.0, -0.75]]


def test_the_value_of_largest_size_keeps_its_sign() -> None:
    states_BTH = torch.tensor([[[2.0, 0.5], [-3.0, 0.25], [1.0, -0.125]], [[1.0, -6.0], [-5.0, 5.0], [0.0, 0.0]]])
    for padding in (0.0, -100.0, 100.0):
        pooled = pooling_of("abs", 2)(made_by_hand(states_BTH, [3, 2], padding))
        assert pooled.tolist() == [[-3.0, 0.5], [-5.0, -6.0]]


def test_the_gradient_of_max_and_abs_goes_to_the_winners() -> None:
    states = made_by_hand(torch.tensor([[[1.0, -5.0], [-3.0, 2.0], [2.0, 1.0]]]), [3], 0.0)
    for kind, winners in (("max", [2, 1]), ("abs", [1, 0])):
        all_BTH = states.all_BTH.clone().requires_grad_()
        pooling_of(kind, 2)(replace(states, all_BTH=all_BTH)).sum().backward()
        assert all_BTH.grad[0].argmax(0).tolist() == winners
        assert all_BTH.grad.sum().item() == 2.0


def test_attention_weighs_real_positions_only_and_its_weights_sum_to_one() -> None:
    """State t is the t-th unit vector, so the pooled vector is the weights themselves."""
    pool = pooling_of("attention", 6)
    states = made_by_hand(torch.eye(6).expand(4, 6, 6), [6, 4, 2, 3], 0.0)
    weight_BT = pool(replace(states, all_BTH=torch.eye(6).expand(4, 6, 6)))  # padding has states like any other
    torch.testing.assert_close(weight_BT.sum(1), torch.ones(4))
    assert weight_BT[~states.mask_BT].tolist() == [0.0] * 9
    assert (weight_BT[states.mask_BT] > 0).all()
    score_T = (pool.project.weight.T + pool.project.bias).tanh() @ pool.score.weight[0]
    for row, length in enumerate([6, 4, 2, 3]):
        torch.testing.assert_close(weight_BT[row, :length], score_T[:length].softmax(0))


def test_gradients_reach_all_of_attention_and_the_encoder_behind_it() -> None:
    model = model_of("attention", ENCODERS["gru both ways"])
    model.features(batch_of(SENTENCES).encoder).square().sum().backward()
    parameters = {
        "W": model.pooling.project.weight,
        "b": model.pooling.project.bias,
        "u": model.pooling.score.weight,
        "first state": model.encoder.recurrent.weight_ih_l0,
        "first state backwards": model.encoder.recurrent.weight_ih_l0_reverse,
        "embedding": model.encoder.embedding.weight,
    }
    assert [name for name, parameter in parameters.items() if not parameter.grad.abs().sum() > 0] == []


def test_attention_has_as_many_units_as_asked_for() -> None:
    assert model_of("attention", {}).pooling.project.weight.shape == (16, 16)
    narrow = model_of("attention", {"pooling.hidden": 5, "encoder.bidirectional": True})
    assert narrow.pooling.project.weight.shape == (5, 32)
    assert narrow.features(batch_of(SENTENCES).encoder).shape == (4, 32)
