"""Parts and their composition: shapes, padding, batching, gradients, starting values."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import SMALL_ATTENTIVE, small
from torch.nn import functional as F

from textspace.config import Recipe
from textspace.data.batching import batch_of, make_batch
from textspace.data.tokenizers import END, FIRST_PREDICTED, START
from textspace.distributions import moments
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train import checkpoints
from textspace.types import Batch, PaddedCodes, View

ATTENTIVE = {"kind": "transformer", **SMALL_ATTENTIVE}
GATES = {"posterior": {"kind": "spike-and-slab", "hidden": 8}, "prior": {"kind": "beta-gated"}}
VARIANTS = {
    "vae": {},
    "vae, delta": {"posterior.kind": "delta", "objective.kind": "reconstruction"},
    "vae, gru": {"encoder.kind": "gru", "decoder.kind": "gru"},
    "vae, two layers, both directions": {"encoder.layers": 2, "encoder.bidirectional": True, "decoder.layers": 2},
    "vae, reversed": {"encoder.reverse_input": True},
    "vae, shared embeddings": {"share_embeddings": True},
    "vae, tied output": {"decoder.embedding": 16, "decoder.tie_output": True, "decoder.output_bias": True},
    "vae, torch's initial weights": {"initial.weights": None},
    "vae, mean of the states": {"pooling.kind": "mean"},
    "vae, largest states": {"pooling.kind": "max"},
    "vae, largest states both ways": {"pooling.kind": "max", "encoder.bidirectional": True},
    "vae, states of largest size": {"pooling.kind": "abs"},
    "vae, attention to the states": {"pooling": {"kind": "attention", "hidden": 5}},
    "vae, skip, two layers": {"decoder.skip": True, "decoder.layers": 2},
    "vae, skip, gru": {"decoder.skip": True, "decoder.kind": "gru", "decoder.output_bias": True},
    "vae, word dropout": {"decoder.word_dropout": 0.5, "decoder.input_dropout": 0, "decoder.output_dropout": 0},
    "vae, implicit": {"posterior": {"kind": "implicit", "hidden": 8, "noise": 3}, "objective.kind": "reconstruction"},
    "ae": {},
    "lstm-lm": {},
    "gru-lm": {},
    "vae, Transformer encoder": {"encoder": ATTENTIVE},
    "vae, Transformer decoder": {"decoder": ATTENTIVE, "pooling.kind": "mean"},
    "transformer-vae": {},
    "transformer-vae, start": {"pooling.kind": "start"},
    "transformer-vae, sum": {"pooling.kind": "sum", "initial.weights": 0.1},  # sums are large: densities too, else
    "transformer-vae, attention to the states": {"pooling.kind": "attention"},
    "transformer-vae, normalised before": {"encoder.norm": "before", "decoder.norm": "before"},
    "transformer-vae, output of its own": {"decoder.tie_output": False, "share_embeddings": False},
    "transformer-vae, gates": GATES,
    "transformer-lm": {},
    "transformer-lm, word dropout": {"decoder.word_dropout": 0.5, "decoder.dropout": 0},
    "vat": {},
    "vat, learned scale": {"prior.learned": True},
    "vat, normalised before": {"encoder.norm": "before", "decoder.norm": "before"},
    "vat, delta": {"posterior.kind": "delta", "objective.kind": "reconstruction"},
    "vat, gates": GATES,
    "vat, gru both ways": {
        "encoder": {"kind": "gru", "embedding": 16, "hidden": 8, "bidirectional": True, "word_dropout": 0.2},
    },
    "vat, word dropout": {"encoder.word_dropout": 0.3, "decoder.word_dropout": 0.5},
}


@pytest.fixture(params=VARIANTS)
def recipe(request) -> Recipe:
    return small(RECIPES[request.param.split(",")[0]]).but(VARIANTS[request.param])


@pytest.fixture
def model(recipe: Recipe, tiny) -> Model:
    return Model(recipe, len(tiny.tokenizer)).eval()


def with_padding(batch: Batch, extra: int, content: int) -> Batch:
    ids_BT = F.pad(batch.decoder.ids_BT, (0, extra), value=content)
    ids_BT[~View(ids_BT, batch.decoder.lengths_B).mask_BT] = content
    view = View(ids_BT, batch.decoder.lengths_B)
    return Batch(view, view, batch.rows_B)


@torch.no_grad()
def numbers(model: Model, batch: Batch) -> dict[str, torch.Tensor]:
    """All that a pass holds, sentences (or tokens, where each has a code) along axis 0, and 1 in log-densities."""
    noise = Noise(3, 0, batch.rows_B)
    passed = model(batch, noise, samples=2)
    found = {"log_px": passed.log_px_SB, "log_px without end": passed.log_px_without_end_SB()}
    if model.encoder is not None:
        real_BT = batch.encoder.mask_BT
        found["states"] = model.encoder(batch.encoder, noise).all_BTH[real_BT]
        found["features"] = passed.features_BH[real_BT] if model.is_token_level else passed.features_BH
    for name, site in passed.sites.items():
        given = site.q.batch_shape == site.value_SBZ.shape  # a distribution for each sample of what comes before
        of = {"value": site.value_SBZ.transpose(0, 1)}
        if not given:
            of["mean"], of["deviation"] = moments(site.q, passed.noise, samples=3)
        if model.is_token_level:
            of["value"] = site.value_SBZ[:, real_BT].transpose(0, 1)
            of |= {key: part[real_BT] for key, part in of.items() if key != "value"}
        found |= {f"{name} {key}": part for key, part in of.items()}
        if model.posterior.has_log_prob:
            found |= {f"log_q of {name}": site.log_q_SB, f"log_p of {name}": site.log_p_SB}
            found |= {f"{name} kl": site.kl_BZ, f"{name} kl in all": site.kl_B}
    return found


@pytest.fixture(params=[False, True], ids=["scoring", "training"])
def in_mode(request, model: Model) -> Model:
    """In training its dropout is on: its numbers are keyed by sentence and place, like all others."""
    return model.train(request.param)


def test_padding_contents_change_no_bit(in_mode: Model, tiny) -> None:
    batch = make_batch(tiny.encoded.splits["train"], np.arange(9))
    one, other = (numbers(in_mode, with_padding(batch, 2, content)) for content in (0, 7))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_padding_amount_and_batch_size_change_nothing(in_mode: Model, tiny) -> None:
    model, rows = in_mode, np.arange(12)
    batch = make_batch(tiny.encoded.splits["train"], rows)
    whole = numbers(model, batch)
    padded = numbers(model, with_padding(batch, 11, 5))
    alone = [numbers(model, make_batch(tiny.encoded.splits["train"], rows[i : i + 1])) for i in rows]
    for name, values in whole.items():
        axis = 1 if name.startswith("log_") else 0
        close = {"atol": 1e-5, "rtol": 5e-7}  # densities of all of a sentence's tokens are in the hundreds
        torch.testing.assert_close(padded[name], values, **close)
        torch.testing.assert_close(torch.cat([each[name] for each in alone], dim=axis), values, **close)


def test_gradients_reach_every_parameter(recipe: Recipe, model: Model, tiny) -> None:
    model.train()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(64))
    objective = build_objective(recipe, model)
    terms = objective(model(batch, Noise(0, 0, batch.rows_B), objective.samples), Progress(0, 0.0))
    terms.loss(terms.means(len(batch))).backward()
    # an autoencoder's KL has weight 0, yet its deviations still reach the loss through the sample
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


def test_saved_and_loaded_weights_score_the_same_bits(recipe: Recipe, model: Model, tiny) -> None:
    other = Model(recipe.but({"training.seed": 5}), len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(9))
    assert not torch.equal(numbers(model, batch)["log_px"], numbers(other, batch)["log_px"])
    checkpoints.load_weights(other, checkpoints.weights(model), "memory")
    before, after = numbers(model, batch), numbers(other, batch)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert checkpoints.digest(model) == checkpoints.digest(other)


def test_dropout_is_off_when_scoring_and_on_when_training(model: Model, tiny) -> None:
    batch = make_batch(tiny.encoded.splits["train"], np.arange(9))
    assert torch.equal(numbers(model, batch)["log_px"], numbers(model, batch)["log_px"])
    scored = numbers(model, batch)["log_px"]
    model.train()
    assert not torch.allclose(numbers(model, batch)["log_px"], scored)


def test_weights_depend_on_the_seed_alone(recipe: Recipe, tiny) -> None:
    first = checkpoints.digest(Model(recipe, len(tiny.tokenizer)))
    torch.rand(17)
    assert checkpoints.digest(Model(recipe, len(tiny.tokenizer))) == first


def test_steps_of_the_decoder_equal_its_parallel_form(model: Model) -> None:
    batch = batch_of([[5, 9, 4, 6]])
    passed = model(batch, Noise(3, 0, batch.rows_B))
    z_NZ = passed.sites["z"].value_SBZ[0] if passed.sites else None
    z_NZ = PaddedCodes(z_NZ, batch.encoder.mask_BT) if model.is_token_level else z_NZ
    state = model.decoder.start(z_NZ)
    for t, (given, target) in enumerate(itertools.pairwise(batch.decoder.ids_BT[0])):
        logits, state = model.decoder.step(given[None], z_NZ, state)
        log_p = logits.log_softmax(1)[0, target - FIRST_PREDICTED]
        torch.testing.assert_close(log_p, passed.log_px_SBT[0, 0, t], atol=1e-5, rtol=0)


def test_probabilities_of_all_sentences_sum_to_one(recipe: Recipe, float64) -> None:
    """Three words: all sentences of up to 4 words, plus the mass of the prefixes that go on beyond."""
    words = [FIRST_PREDICTED, FIRST_PREDICTED + 2, FIRST_PREDICTED + 3]
    assert END == FIRST_PREDICTED + 1
    model = Model(recipe, max(words) + 1).eval().double()
    z_NZ = torch.full((1, recipe.latent.dim), 0.7) if model.posterior else None
    z_NZ = PaddedCodes.of([z_NZ.expand(3, -1)]) if model.is_token_level else z_NZ
    total = 0.0
    frontier = [(0.0, START, model.decoder.start(z_NZ))]
    for _ in range(5):
        longer = []
        for log_p, last, state in frontier:
            logits, after = model.decoder.step(torch.tensor([last]), z_NZ, state)
            log_next = logits.log_softmax(1)[0]
            total += math.exp(log_p + log_next[END - FIRST_PREDICTED].item())
            longer += [(log_p + log_next[word - FIRST_PREDICTED].item(), word, after) for word in words]
        frontier = longer
    total += sum(math.exp(log_p) for log_p, _, _ in frontier)
    assert total == pytest.approx(1.0, abs=1e-12)


def test_reversal_turns_words_only() -> None:
    view = batch_of([[5, 6, 7], [8], []]).encoder
    assert view.reversed().ids_BT[:, 1:4].tolist() == [[7, 6, 5], [8, END, 0], [END, 0, 0]]
    assert view.reversed().ids_BT[:, 0].tolist() == [START] * 3
    assert torch.equal(view.reversed().mask_BT, view.mask_BT)


def test_a_two_way_encoders_last_state_has_read_everything() -> None:
    recipe = small(RECIPES["vae"]).but({"encoder.bidirectional": True})
    model = Model(recipe, 12).eval()
    states = model.encoder(batch_of([[5, 6, 7], [8]]).encoder)
    hidden = recipe.encoder.hidden
    for row, length in [(0, 5), (1, 3)]:
        torch.testing.assert_close(states.last_BH[row, :hidden], states.all_BTH[row, length - 1, :hidden])
        torch.testing.assert_close(states.last_BH[row, hidden:], states.all_BTH[row, 0, hidden:])


def test_starting_values_follow_the_recipe() -> None:
    model = Model(RECIPES["vae"].but({"decoder.output_bias": True}), 500)
    for name, parameter in model.named_parameters():
        bound = 0.1 if "embedding" in name else 0.01
        assert 0.9 * bound < parameter.abs().max() <= bound, name


def test_embeddings_are_separate_shared_or_tied() -> None:
    vae = small(RECIPES["vae"])
    separate, shared = Model(vae, 50), Model(vae.but({"share_embeddings": True}), 50)
    assert separate.decoder.embedding is not separate.encoder.embedding
    assert shared.decoder.embedding is shared.encoder.embedding
    tied = Model(vae.but({"decoder.embedding": 16, "decoder.tie_output": True}), 50)
    saved = sum(separate.parameter_counts().values()) - sum(shared.parameter_counts().values())
    assert saved == 50 * 12
    assert tied.decoder.output is None


@pytest.mark.parametrize(
    ("name", "shared"),
    [("lstm-lm", False), ("vae", False), ("vae", True), ("vae-attention-pool", True), ("ivae", False), ("ivae", True)]
    + [("transformer-lm", False), ("vat", False), ("vat", True), ("transformer-vae", True)],
)
def test_every_parameter_is_of_one_side(name: str, shared: bool) -> None:
    model = Model(small(RECIPES[name]).but({"share_embeddings": shared}), 20)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    sides = [model.inference_parameters(), model.generative_parameters()]
    sides.append(list(model.dual.parameters()) if model.dual is not None else [])
    inference, generative, dual = ([names[id(parameter)] for parameter in side] for side in sides)
    assert sorted(inference + generative + dual) == sorted(names.values())
    assert {name.split(".")[0] for name in inference} <= {"encoder", "pooling", "posterior"}
    assert {name.split(".")[0] for name in generative} == {"decoder"}
    assert ("encoder.embedding.weight" in inference) == (not name.endswith("-lm"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"posterior.kind": "delta"}, "objective 'elbo' needs a KL and posterior 'delta' has no density"),
        (dict.fromkeys(["encoder", "pooling", "posterior", "prior"]), "objective 'elbo' needs a latent"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict, sentence: str) -> None:
    recipe = RECIPES["vae"].but(changes)
    with pytest.raises(TextspaceError, match=sentence):
        build_objective(recipe, Model(recipe, 20))
