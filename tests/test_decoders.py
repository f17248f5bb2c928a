"""Decoders: what word dropout hides and from whom, where the code goes with skip connections, and many samples."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor, nn
from torch.nn import functional as F

from textspace import decoders
from textspace.config import Recipe
from textspace.data.batching import batch_of, make_batch
from textspace.data.tokenizers import FIRST_PREDICTED, START, UNKNOWN
from textspace.decoders import RecurrentDecoder
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.token_losses import Precision, computing_in
from textspace.types import Batch

DROP = 0.3


def model_of(name: str, changes: dict, vocabulary: int = 30) -> Model:
    without_dropout = {"decoder.input_dropout": 0.0, "decoder.output_dropout": 0.0}
    return Model(small(RECIPES[name]).but(without_dropout | changes), vocabulary)


def ids_read(part: nn.Module, run) -> Tensor:
    """The ids that reach a part's embedding while something runs."""
    seen = []
    hook = part.embedding.register_forward_pre_hook(lambda module, given: seen.append(given[0].clone()))
    try:
        run()
    finally:
        hook.remove()
    assert len(seen) == 1
    return seen[0]


def words_read(model: Model, batch: Batch, noise: Noise | None = None, samples: int = 1) -> Tensor:
    """The ids (B, T) that the decoder reads, for all samples."""
    return ids_read(model.decoder, lambda: model(batch, noise or Noise(3, 0, batch.rows_B), samples))


@pytest.fixture
def dropping(tiny) -> Model:
    return model_of("vae", {"decoder.word_dropout": DROP}, len(tiny.tokenizer)).train()


@pytest.fixture
def batch(tiny) -> Batch:
    return make_batch(tiny.encoded.splits["train"], np.arange(40))


def test_word_dropout_makes_words_unknown_and_keeps_the_start(dropping: Model, batch: Batch) -> None:
    read_BT, given_BT = words_read(dropping, batch, samples=3), batch.decoder.ids_BT[:, :-1]
    assert read_BT.shape == given_BT.shape
    assert (read_BT[:, 0] == START).all()
    changed_BT = read_BT != given_BT
    assert changed_BT.any()
    assert (read_BT[changed_BT] == UNKNOWN).all()


def test_word_dropout_never_touches_the_encoders_words(dropping: Model, batch: Batch) -> None:
    read_BT = ids_read(dropping.encoder, lambda: dropping(batch, Noise(3, 0, batch.rows_B)))
    assert torch.equal(read_BT, batch.encoder.ids_BT)
    shared = model_of("vae", {"decoder.word_dropout": DROP, "share_embeddings": True}, dropping.vocabulary).train()
    features = shared.features(batch.encoder)
    assert torch.equal(features, shared.eval().features(batch.encoder))


def test_word_dropout_never_touches_what_must_be_predicted(dropping: Model, batch: Batch) -> None:
    """Fed the very words that were read, step by step, the decoder gives the log-probabilities of the true ones."""
    passed = []
    read_BT = ids_read(dropping.decoder, lambda: passed.append(dropping(batch, Noise(3, 0, batch.rows_B), 2)))
    assert (read_BT != batch.decoder.ids_BT[:, :-1]).any()
    for sample in range(2):
        z_NZ = passed[0].sites["z"].value_SBZ[sample]
        state = dropping.decoder.start(z_NZ)
        for t in range(read_BT.shape[1]):
            logits_NV, state = dropping.decoder.step(read_BT[:, t], z_NZ, state)
            target_N = batch.decoder.ids_BT[:, t + 1]
            real_N = batch.decoder.mask_BT[:, t + 1]
            truth_N = logits_NV.log_softmax(1)[real_N].gather(1, target_N[real_N, None] - FIRST_PREDICTED)[:, 0]
            torch.testing.assert_close(passed[0].log_px_SBT[sample, real_N, t], truth_N, atol=1e-5, rtol=0)


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
def test_word_dropout_hides_the_right_share_of_words(tiny, drop: float) -> None:
    model = model_of("vae", {"decoder.word_dropout": drop}, len(tiny.tokenizer)).train()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(300))
    given_BT = batch.decoder.ids_BT[:, :-1]
    is_word_BT = batch.decoder.mask_BT[:, 1:] & (given_BT > UNKNOWN)
    reads = torch.stack([words_read(model, batch, Noise(3, step, batch.rows_B)) for step in range(5)])
    hidden = (reads == UNKNOWN)[:, is_word_BT].double()
    assert hidden.numel() > 5000
    assert abs(hidden.mean().item() - drop) < 5 * math.sqrt(drop * (1 - drop) / hidden.numel())
    for t in (1, 3):  # at every position
        here = (reads == UNKNOWN)[:, is_word_BT[:, t], t].double()
        assert abs(here.mean().item() - drop) < 5 * math.sqrt(drop * (1 - drop) / here.numel())


DROPPING = {
    "vae": {"decoder.word_dropout": 0.3, "decoder.input_dropout": 0.5, "decoder.output_dropout": 0.5},
    "transformer-vae": {"decoder.word_dropout": 0.3, "decoder.dropout": 0.5},
}


@pytest.mark.parametrize("name", DROPPING)
def test_samples_of_a_sentence_go_through_one_thinned_network(name: str, tiny, batch: Batch) -> None:
    """Alike codes are alike likely, so that importance weights compare codes; other steps drop other things."""
    model = Model(small(RECIPES[name]).but(DROPPING[name]), len(tiny.tokenizer)).train()
    z_SBZ = torch.randn(1, len(batch.rows_B), model.recipe.latent.dim).expand(3, -1, -1)
    log_px = [model.decoder(z_SBZ, batch.decoder, Noise(3, step, batch.rows_B)) for step in (0, 1)]
    torch.testing.assert_close(log_px[0][1:], log_px[0][:1].expand(2, -1, -1))
    assert not torch.allclose(log_px[0], log_px[1], atol=1e-2)


def test_word_dropout_depends_on_the_noise_and_on_nothing_else(dropping: Model, batch: Batch, tiny) -> None:
    whole = words_read(dropping, batch, Noise(3, 5, batch.rows_B), samples=2)
    torch.rand(5)
    assert torch.equal(words_read(dropping, batch, Noise(3, 5, batch.rows_B), samples=2), whole)
    assert not torch.equal(words_read(dropping, batch, Noise(3, 6, batch.rows_B), samples=2), whole)
    assert not torch.equal(words_read(dropping, batch, Noise(4, 5, batch.rows_B), samples=2), whole)
    assert torch.equal(words_read(dropping, batch, Noise(3, 5, batch.rows_B).after(1), samples=1), whole)
    rows = np.array([31, 2, 17])  # other companions, another order, another amount of padding
    fewer = make_batch(tiny.encoded.splits["train"], rows)
    read_BT = words_read(dropping, fewer, Noise(3, 5, fewer.rows_B), samples=2)
    assert torch.equal(read_BT, whole[rows, : read_BT.shape[1]])


def test_word_dropout_is_off_when_scoring(dropping: Model, batch: Batch) -> None:
    dropping.eval()
    assert torch.equal(words_read(dropping, batch, samples=2), batch.decoder.ids_BT[:, :-1])
    plain = model_of("vae", {}, dropping.vocabulary).eval()
    scores = [model(batch, Noise(3, 0, batch.rows_B), 2).log_px_SB for model in (dropping, plain)]
    assert torch.equal(*scores)


def test_a_language_model_can_lose_words_too(batch: Batch, tiny) -> None:
    model = model_of("lstm-lm", {"decoder.word_dropout": DROP}, len(tiny.tokenizer)).train()
    read_BT = words_read(model, batch)
    assert read_BT.shape == batch.decoder.ids_BT[:, :-1].shape
    assert 0.2 < (read_BT[:, 1:] == UNKNOWN).double().mean() < 0.4


# Skip connections

SKIPS = list(itertools.product(["lstm", "gru"], [1, 2, 3], [True, False]))


def skipping(kind: str, layers: int, skip: bool, more: dict | None = None) -> Model:
    changes = {"decoder.kind": kind, "decoder.layers": layers, "decoder.skip": skip, "decoder.output_bias": True}
    return model_of("vae", changes | (more or {})).eval()


def by_cells(decoder: RecurrentDecoder, ids_NT: Tensor, z_NZ: Tensor) -> Tensor:
    """Logits (N, T, V) from one cell of torch per layer: z joins the first input, with skip also all others."""
    config = decoder.config
    stacks = [(decoder.recurrent, layer) for layer in range(decoder.recurrent.num_layers)]
    stacks += [(further, 0) for further in decoder.further]
    assert len(stacks) == config.layers
    cells, hiddens, memories = [], [], []
    for number, (stack, layer) in enumerate(stacks):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = {name: getattr(stack, f"{name}_l{layer}") for name in names}
        cell = (nn.LSTMCell if config.kind == "lstm" else nn.GRUCell)(weights["weight_ih"].shape[1], config.hidden)
        cell.load_state_dict(weights)
        cells.append(cell)
        first_NH = z_NZ.new_zeros(len(z_NZ), config.hidden)
        if config.first_state == "code":
            first_NH = decoder.first_state(z_NZ)[:, number * config.hidden : (number + 1) * config.hidden]
        hiddens.append(first_NH.tanh() if config.kind == "lstm" else first_NH)
        memories.append(first_NH)
    all_logits = []
    for t in range(ids_NT.shape[1]):
        x = torch.cat([decoder.embedding.weight[ids_NT[:, t]], z_NZ], dim=1)
        for number, cell in enumerate(cells):
            if number and config.skip:
                x = torch.cat([x, z_NZ], dim=1)
            if config.kind == "lstm":
                hiddens[number], memories[number] = cell(x, (hiddens[number], memories[number]))
            else:
                hiddens[number] = cell(x, hiddens[number])
            x = hiddens[number]
        output = decoder.embedding.weight[FIRST_PREDICTED:] if config.tie_output else decoder.output
        read = x if decoder.to_embedding is None else x @ decoder.to_embedding.weight.T
        logits = read @ output.T + decoder.output_bias
        all_logits.append(logits + z_NZ @ decoder.output_skip.T if config.skip else logits)
    return torch.stack(all_logits, dim=1)


def by_steps(decoder: RecurrentDecoder, ids_NT: Tensor, z_NZ: Tensor) -> Tensor:
    state = decoder.start(z_NZ)
    all_logits = []
    for ids_N in ids_NT.T:
        logits, state = decoder.step(ids_N, z_NZ, state)
        all_logits.append(logits)
    return torch.stack(all_logits, dim=1)


SENTENCES = [[5, 9, 4, 6], [7], []]


@pytest.mark.parametrize("first", ["code", "zero"])
@pytest.mark.parametrize(("kind", "layers", "skip"), SKIPS)
@torch.no_grad()
def test_steps_equal_cells_put_together_by_hand(kind: str, layers: int, skip: bool, first: str) -> None:
    decoder = skipping(kind, layers, skip, {"decoder.first_state": first}).decoder
    ids_NT, z_NZ = batch_of(SENTENCES).decoder.ids_BT[:, :-1], torch.randn(3, 4, generator=torch.manual_seed(0))
    torch.testing.assert_close(by_steps(decoder, ids_NT, z_NZ), by_cells(decoder, ids_NT, z_NZ), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("tie", "embedding", "first"), [(False, 16, "code"), (True, 16, "code"), (True, 12, "code"), (False, 16, "zero")]
)
@pytest.mark.parametrize(("kind", "layers", "skip"), SKIPS)
@torch.no_grad()
def test_the_parallel_form_equals_the_steps(
    kind: str, layers: int, skip: bool, tie: bool, embedding: int, first: str
) -> None:
    changes = {"decoder.embedding": embedding, "decoder.tie_output": tie, "decoder.first_state": first}
    model = skipping(kind, layers, skip, changes)
    assert (model.decoder.to_embedding is not None) == (embedding != 16)
    batch = batch_of(SENTENCES)
    passed = model(batch, Noise(3, 0, batch.rows_B), samples=2)
    for sample, z_NZ in enumerate(passed.sites["z"].value_SBZ):
        logits_NTV = by_steps(model.decoder, batch.decoder.ids_BT[:, :-1], z_NZ)
        targets_NT = (batch.decoder.ids_BT[:, 1:] - FIRST_PREDICTED).clamp(min=0)
        log_px_NT = logits_NTV.log_softmax(2).gather(2, targets_NT[:, :, None])[:, :, 0]
        real_NT = batch.decoder.mask_BT[:, 1:]
        torch.testing.assert_close(passed.log_px_SBT[sample][real_NT], log_px_NT[real_NT], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@torch.no_grad()
def test_with_a_first_state_of_zero_the_code_enters_by_the_inputs_alone(kind: str) -> None:
    """Where the first layer's weights on the code are 0, the logits do not depend on it; elsewhere the first do."""
    decoder = skipping(kind, 2, False, {"decoder.first_state": "zero"}).decoder
    assert decoder.first_state is None
    ids_NT = batch_of(SENTENCES).decoder.ids_BT[:, :-1]
    z_NZ, moved_NZ = torch.randn(2, 3, 4, generator=torch.manual_seed(0))
    assert decoder.start(z_NZ) is None
    assert (by_steps(decoder, ids_NT, z_NZ) != by_steps(decoder, ids_NT, moved_NZ))[:, 0].any()
    decoder.recurrent.weight_ih_l0[:, -4:] = 0
    assert torch.equal(by_steps(decoder, ids_NT, z_NZ), by_steps(decoder, ids_NT, moved_NZ))


@pytest.mark.parametrize(("kind", "layers"), [("lstm", 1), ("gru", 2), ("lstm", 3)])
@torch.no_grad()
def test_with_skip_the_logits_have_a_term_linear_in_the_code(kind: str, layers: int, float64) -> None:
    """With every other way of the code closed, moving it moves the logits by V dz and nothing else."""
    decoder = skipping(kind, layers, True).double().decoder
    decoder.first_state.weight.zero_()
    decoder.recurrent.weight_ih_l0[:, -4:] = 0
    for further in decoder.further:
        assert further.input_size == 16 + 4
        further.weight_ih_l0[:, -4:] = 0
    generator = torch.manual_seed(0)
    ids_NT = batch_of(SENTENCES).decoder.ids_BT[:, :-1]
    z_NZ, moved_NZ = torch.randn(2, 3, 4, generator=generator)
    difference_NTV = by_steps(decoder, ids_NT, moved_NZ) - by_steps(decoder, ids_NT, z_NZ)
    term_NV = F.linear(moved_NZ - z_NZ, decoder.output_skip)
    assert term_NV.abs().max() > 0.1
    torch.testing.assert_close(difference_NTV, term_NV[:, None].expand_as(difference_NTV), atol=1e-12, rtol=0)


@torch.no_grad()
def test_with_skip_the_code_enters_every_layer(float64) -> None:
    """The same with the ways closed one by one: each open one alone makes the logits depend on the code."""
    ids_NT = batch_of(SENTENCES).decoder.ids_BT[:, :-1]
    z_NZ, moved_NZ = torch.randn(2, 3, 4, generator=torch.manual_seed(0))
    reached = []
    for way in range(5):
        decoder = skipping("lstm", 3, True).double().decoder
        recurrent = [decoder.recurrent, *decoder.further]
        ways = [decoder.first_state.weight, *(layer.weight_ih_l0[:, -4:] for layer in recurrent), decoder.output_skip]
        for other in ways[:way] + ways[way + 1 :]:
            other.zero_()
        difference = by_steps(decoder, ids_NT, moved_NZ) - by_steps(decoder, ids_NT, z_NZ)
        reached.append(difference.abs().max().item() > 1e-4)
    assert reached == [True] * 5


def test_skip_of_a_language_model_is_refused() -> None:
    for settings in (["decoder.skip=true"], ["decoder.kind=gru", "decoder.skip=true"]):
        with pytest.raises(TextspaceError) as told:
            RECIPES["lstm-lm"].with_settings(settings)
        assert str(told.value) == "decoder.skip needs a latent, and a language model has none"


@torch.no_grad()
def test_tied_output_and_skip_go_together(float64) -> None:
    model = skipping("lstm", 2, True, {"decoder.embedding": 16, "decoder.tie_output": True}).double()
    decoder = model.decoder
    assert decoder.output is None
    assert decoder.output_skip.shape == (30 - FIRST_PREDICTED, 4)
    ids_NT, z_NZ = batch_of(SENTENCES).decoder.ids_BT[:, :-1], torch.randn(3, 4, generator=torch.manual_seed(0))
    torch.testing.assert_close(by_steps(decoder, ids_NT, z_NZ), by_cells(decoder, ids_NT, z_NZ), atol=1e-12, rtol=0)


def test_starting_values_of_the_skip_follow_the_recipe() -> None:
    for weights, bound in ((0.05, 0.05), (None, 1 / math.sqrt(4))):
        model = Model(small(RECIPES["skip-vae"]).but({"initial.weights": weights}), 500)
        assert 0.9 * bound < model.decoder.output_skip.abs().max() <= bound


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder.skip": True, "decoder.layers": 3},
        {"decoder.skip": True, "decoder.layers": 2, "decoder.kind": "gru", "decoder.word_dropout": 0.4},
        {"decoder.skip": True, "decoder.embedding": 16, "decoder.tie_output": True},
    ],
)
def test_gradients_reach_every_parameter_of_a_skipping_model(changes: dict, tiny) -> None:
    recipe: Recipe = small(RECIPES["vae"]).but(changes)
    model = Model(recipe, len(tiny.tokenizer)).train()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(64))
    terms = build_objective(recipe, model)(model(batch, Noise(0, 0, batch.rows_B)), Progress(0, 0.0))
    terms.loss(terms.means(len(batch))).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


# Many samples of few sentences, whose words are worked on once


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of two time steps at a time."""
    monkeypatch.setitem(decoders.STATES_AT_ONCE, "cpu", 2 * 5 * len(SENTENCES))


MANY = [
    ("lstm", {}),
    ("gru", {}),
    ("lstm", {"decoder.output_bias": True}),
    ("gru", {"decoder.embedding": 16, "decoder.tie_output": True}),
    ("lstm", {"decoder.embedding": 12, "decoder.tie_output": True}),
    ("lstm", {"decoder.skip": True}),
    ("lstm", {"decoder.first_state": "zero"}),
    ("gru", {"decoder.first_state": "zero"}),
    ("gru", {"decoder.skip": True, "decoder.output_bias": True, "decoder.embedding": 12, "decoder.tie_output": True}),
]


def scored(model: Model, has_end: bool, shares: bool | None = None, precision: Precision = "float32") -> Tensor:
    """log p of real tokens of 5 samples; with `shares` one way or the other is taken."""
    batch = batch_of(SENTENCES)
    noise = Noise(3, 0, batch.rows_B)
    with pytest.MonkeyPatch.context() as patch:
        if shares is not None:
            patch.setattr(model.decoder, "shares_words", lambda samples: shares)
        features_BH = model.features(batch.encoder)
        sites = model.sites(features_BH, noise, 5)
        with computing_in(precision, torch.device("cpu")):
            passed = model.decode(batch, features_BH, sites, noise, has_end=has_end)
    return passed.log_px_SBT


@pytest.mark.parametrize("has_end", [True, False])
@pytest.mark.parametrize(("kind", "changes"), MANY)
@torch.no_grad()
def test_samples_that_share_words_have_the_plain_values(
    kind: str, changes: dict, has_end, float64, few_at_once
) -> None:
    model = model_of("vae", {"decoder.kind": kind, "initial.weights": 0.6, **changes}).double().eval()
    plain_SBT = scored(model, has_end, shares=False)
    torch.testing.assert_close(scored(model, has_end, shares=True), plain_SBT, atol=1e-10, rtol=0)
    assert (plain_SBT[0] - plain_SBT[1]).abs().max() > 1e-3  # samples differ
    model.float()
    torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(scored(model, has_end, shares=True), plain_SBT.float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@torch.no_grad()
def test_in_bf16_factors_are_rounded_and_states_are_not(kind: str, few_at_once) -> None:
    """Near the exact values, and nearer than PyTorch's own autocast, which rounds sums and cells too."""
    model = model_of("vae", {"decoder.kind": kind, "decoder.hidden": 64, "initial.weights": 0.4}).eval()
    exact_SBT = scored(model, True)
    found_SBT = scored(model, True, precision="bf16")
    rougher_SBT = scored(model, True, shares=False, precision="bf16")
    assert found_SBT.dtype == torch.float32
    error = (found_SBT - exact_SBT).abs().mean()
    assert 1e-5 < error < 0.01
    assert error < (rougher_SBT - exact_SBT).abs().mean()


@pytest.mark.parametrize(
    "changes", [{}, {"decoder.skip": True}, {"decoder.layers": 2}, {"decoder.skip": True, "decoder.layers": 2}]
)
@torch.no_grad()
def test_any_decoder_can_be_scored_in_bf16(changes: dict) -> None:
    model = model_of("vae", changes).eval()
    exact_SBT = scored(model, True)
    assert 0 < (scored(model, True, precision="bf16") - exact_SBT).abs().max() < 0.05
    with computing_in("bf16", torch.device("cpu")):
        assert model.decoder.shares_words(100) == ("decoder.layers" not in changes)
        whole = model(batch_of(SENTENCES), Noise(3, 0, torch.arange(3)))  # all of it in bf16
    assert 0 < (whole.log_px_SBT - exact_SBT[0]).abs().max() < 0.2


def test_words_are_shared_only_where_nothing_is_learned_or_dropped() -> None:
    model = model_of("vae", {})
    with computing_in("bf16", torch.device("cpu")):
        assert not model.eval().decoder.shares_words(100)  # a gradient may be asked for
        with torch.no_grad():
            assert model.decoder.shares_words(100)
            assert not model.train().decoder.shares_words(100)
    with torch.no_grad():
        assert not model.eval().decoder.shares_words(100)  # as fast without, on a CPU
        assert not Model(small(RECIPES["vat-small"]), 30).decoder.shares_words(100)
