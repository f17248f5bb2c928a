"""Every combination of parts either makes a training step with a finite loss, or is refused in one sentence that names
what does not fit."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import pytest
from helpers import SMALL_ATTENTIVE, SMALL_RECURRENT, read_for
from tiny_encoder import tiny_encoder

from textspace.config import Batches, Recipe
from textspace.data.encoded import EncodedSplit
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.objectives import build_objective
from textspace.schedules import Progress
from textspace.train.processes import Processes
from textspace.train.rules import build_update
from textspace.train.stream import BatchStream
from textspace.train.updates import Turn

ATTENTIVE = {"kind": "transformer", **SMALL_ATTENTIVE, "layers": 1}
ENCODERS: dict[str, dict[str, Any]] = {
    "gru": {"kind": "gru", **SMALL_RECURRENT},
    "gru both ways": {"kind": "gru", **SMALL_RECURRENT, "bidirectional": True},
    "transformer": ATTENTIVE,
}
POOLINGS = ["last", "start", "mean", "sum", "max", "abs", "attention", "none"]
POSTERIORS: dict[str, dict[str, Any]] = {
    "gaussian": {"kind": "gaussian", "log_variance_floor": -10},
    "delta": {"kind": "delta"},
    "implicit": {"kind": "implicit", "hidden": 4, "noise": 2},
    "gates": {"kind": "spike-and-slab", "hidden": 4},
    "gates of features": {"kind": "spike-and-slab", "hidden": 4, "gates": "features"},
}
PRIORS: dict[str, dict[str, Any]] = {
    "standard-normal": {"kind": "standard-normal"},
    "scaled-normal": {"kind": "scaled-normal", "learned": True},
    "spike-and-slab": {"kind": "spike-and-slab"},
    "beta-gated": {"kind": "beta-gated"},
    "pseudo-inputs": {"kind": "pseudo-inputs", "count": 3},
}
DECODERS = {"lstm": {"kind": "lstm", **SMALL_RECURRENT}, "transformer": ATTENTIVE}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "reconstruction": {"objective": {"kind": "reconstruction"}},
    "elbo": {"objective": {"kind": "elbo"}},
    "elbo, free bits": {"objective": {"kind": "elbo", "free_bits": {"target": 1.0}}},
    "elbo, free bits of the batch": {"objective": {"kind": "elbo", "free_bits": {"per": "total", "on": "batch"}}},
    "elbo, activity": {"objective": {"kind": "elbo", "activity": {}}},
    "elbo, gate share": {"objective": {"kind": "elbo", "gate_share": {}}},
    "elbo, averaged over tokens": {"objective": {"kind": "elbo"}, "training.average": "tokens"},
    "iwae": {"objective": {"kind": "iwae", "samples": 3}},
    "mim": {"objective": {"kind": "mim"}},
    "wae": {"objective": {"kind": "wae"}},
    "dual-kl": {
        "objective": {"kind": "dual-kl", "dual": {"layers": 1, "hidden": 4}},
        "training.update": {"kind": "alternating", "dual_steps": 1},
    },
}
LATENTS = list(itertools.product(POSTERIORS, PRIORS))


@pytest.fixture(scope="module")
def split(tiny) -> EncodedSplit:
    return tiny.encoded.splits["valid"]


def step(recipe: Recipe, split: EncodedSplit, vocabulary: int) -> dict[str, float]:
    """What one step on eight sentences, in two pieces, measures."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Model(recipe, vocabulary)
        objective = build_objective(recipe, model)
    stream = BatchStream(split, Batches(sentences=8, pieces=2), seed=0)
    update = build_update(model, objective, recipe.training, Processes("cpu"), stream, stream)
    taken = update(stream.next_batch, Turn(0, Progress(0, 0.0, 0.0), 1e-3))
    return dict(zip(taken.names, taken.values.tolist(), strict=True))


def combined(encoder: str, pooling: str, posterior: str, prior: str, decoder: str, objective: str) -> Recipe:
    return Recipe().but(
        {
            "latent.dim": 2,
            "encoder": ENCODERS[encoder],
            "pooling": {"kind": pooling},
            "posterior": POSTERIORS[posterior],
            "prior": PRIORS[prior],
            "decoder": DECODERS[decoder],
            **OBJECTIVES[objective],
        }
    )


def tried(names: tuple[str, ...], split: EncodedSplit, vocabulary: int) -> str | None:
    """What a combination is refused with; None where it takes a step."""
    try:
        numbers = step(combined(*names), split, vocabulary)
    except TextspaceError as refused:
        return str(refused)
    assert all(map(math.isfinite, numbers.values())), (names, numbers)
    return None


def parts_named(sentence: str) -> set[str]:
    """Of the recipe's parts those that a sentence speaks of."""
    words = {
        "encoder": ("encoder",),
        "pooling": ("pooling",),
        "posterior": ("posterior", "gates"),
        "prior": ("prior", "pseudo-inputs"),
        "decoder": ("decoder",),
        "objective": ("objective",),
        "training": ("training.",),
    }
    return {part for part, said in words.items() if any(word in sentence for word in said)}


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_every_latent_and_objective_trains_or_is_refused(decoder: str, pooling: str, tiny, split) -> None:
    """With a Transformer encoder; what is refused names two parts at least, and what fits together is what should."""
    trained = set()
    for (posterior, prior), objective in itertools.product(LATENTS, OBJECTIVES):
        names = ("transformer", pooling, posterior, prior, decoder, objective)
        sentence = tried(names, split, len(tiny.tokenizer))
        if sentence is None:
            trained.add((posterior, prior, objective))
            continue
        assert "\n" not in sentence
        assert not sentence.endswith(".")
        assert sentence[0].islower()
        assert len(parts_named(sentence)) >= 2, sentence
    if pooling == "none" and decoder == "lstm":
        assert trained == set()
        return
    for posterior, prior, objective in itertools.product(POSTERIORS, PRIORS, OBJECTIVES):
        fits = (posterior, prior, objective) in trained
        assert fits == expected(posterior, prior, objective, pooling), (posterior, prior, objective)


def expected(posterior: str, prior: str, objective: str, pooling: str) -> bool:
    """Whether these parts go together, by rules written down once more."""
    has_density = posterior not in ("delta", "implicit")
    if (posterior == "gates") != (prior == "beta-gated"):
        return False
    if prior == "pseudo-inputs" and not has_density:
        return False
    if pooling == "none" and (posterior == "implicit" or prior == "pseudo-inputs" or objective in ("wae", "dual-kl")):
        return False
    if objective == "reconstruction":
        return True
    if objective in ("wae", "dual-kl"):
        return not (objective == "dual-kl" and posterior == "delta")
    if not has_density:
        return False
    closed = posterior == "gaussian" and prior in ("standard-normal", "scaled-normal")
    match objective:
        case "elbo, free bits":
            return closed
        case "elbo, activity":
            return posterior != "gates"
        case "elbo, gate share":
            return posterior == "gates of features"
        case "mim":
            return posterior == "gaussian"
    return True


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_encoder_pooling_and_decoder_trains_or_is_refused(encoder: str, decoder: str, tiny, split) -> None:
    for pooling, objective in itertools.product(POOLINGS, ("elbo", "iwae", "mim", "elbo, averaged over tokens")):
        names = (encoder, pooling, "gaussian", "scaled-normal", decoder, objective)
        sentence = tried(names, split, len(tiny.tokenizer))
        refused = (pooling == "none" and decoder == "lstm") or (pooling == "start" and encoder == "gru")
        assert (sentence is not None) == refused, (names, sentence)
        if sentence is not None:
            assert f"pooling '{pooling}'" in sentence
            assert ("decoder 'lstm'" if pooling == "none" else "encoder 'gru'") in sentence


@pytest.mark.parametrize("pooling", ["none", "start", "sum"])
def test_a_pretrained_encoder_goes_with_a_transformer_decoder(pooling: str, tiny) -> None:
    """Its tokens are others than the decoder's, and of another number."""
    recipe = combined("transformer", pooling, "gaussian", "scaled-normal", "transformer", "elbo, averaged over tokens")
    recipe = recipe.but({"encoder": {"kind": "pretrained", "model": str(tiny_encoder())}})
    split = read_for(tiny, recipe).encoded.splits["valid"]
    assert (split.encoder_lengths != split.lengths).any()
    assert all(map(math.isfinite, step(recipe, split, len(tiny.tokenizer)).values()))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("average", ["sentences", "tokens"])
def test_language_models_of_both_kinds_train(decoder: str, average: str, tiny, split) -> None:
    nothing = dict.fromkeys(("encoder", "pooling", "posterior", "prior"))
    changes = {"decoder": DECODERS[decoder], "objective": {"kind": "reconstruction"}, "training.average": average}
    numbers = step(Recipe().but(nothing | changes), split, len(tiny.tokenizer))
    assert math.isfinite(numbers["loss"])
    assert (numbers["loss"] == pytest.approx(numbers["reconstruction"])) == (average == "sentences")


def test_two_phases_and_catching_up_work_with_transformers(tiny, split) -> None:
    recipe = combined("transformer", "none", "gaussian", "scaled-normal", "transformer", "elbo")
    assert math.isfinite(step(recipe.but({"training.update.kind": "aggressive"}), split, len(tiny.tokenizer))["loss"])
    assert recipe.but({"pretrain": {}}).pretrain is not None


REFUSED = {
    "reversed words": (
        {"encoder": ENCODERS["gru"] | {"reverse_input": True}, "pooling.kind": "none"},
        ["pooling 'none'", "encoder 'gru' with reverse_input", "set encoder.reverse_input=false"],
    ),
    "start last": (
        {"encoder": ENCODERS["gru"] | {"start_last": True}, "pooling.kind": "none"},
        ["pooling 'none'", "encoder 'gru' with start_last", "set encoder.start_last=false"],
    ),
    "start last and pooled": (
        {"encoder": ENCODERS["gru"] | {"start_last": True, "bidirectional": True}, "pooling.kind": "start"},
        ["pooling 'start'", "encoder 'gru' with start_last", "pooling.kind=last"],
    ),
    "mmd": (
        {"objective": {"kind": "wae"}, "training.average": "tokens"},
        ["training.average 'tokens'", "objective 'wae'", "set training.average=sentences"],
    ),
    "free bits of the batch": (
        {"objective.free_bits": {"on": "batch"}, "training.average": "tokens"},
        ["training.average 'tokens'", "objective.free_bits.on 'batch'", "set training.average=sentences"],
    ),
    "heads": ({"decoder.heads": 3}, ["decoder: hidden (16) and heads (3) do not fit", "a multiple of 6"]),
    "odd": ({"encoder": ATTENTIVE | {"hidden": 9, "heads": 3}}, ["encoder: hidden (9) and heads (3)", "multiple of 6"]),
    "an embedding of another size": (
        {"share_embeddings": True, "encoder": ENCODERS["gru"]},
        ["share_embeddings needs encoder.embedding (12) to equal decoder.hidden (16)"],
    ),
    "a skip connection": ({"decoder.skip": True}, ["decoder 'transformer' has no option 'skip'"]),
    "an embedding": ({"decoder.embedding": 8}, ["decoder 'transformer' has no option 'embedding'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_things_that_do_not_fit(case: str) -> None:
    recipe = combined("transformer", "mean", "gaussian", "scaled-normal", "transformer", "elbo")
    changes, said = REFUSED[case]
    with pytest.raises(TextspaceError) as told:
        recipe.but(changes)
    assert [part for part in said if part not in str(told.value)] == []
    assert "\n" not in str(told.value)


def test_a_code_of_one_vector_has_no_parameters_that_nothing_can_move() -> None:
    """Attention to one vector would have: what it asks changes nothing."""
    recipe = combined("transformer", "mean", "gaussian", "scaled-normal", "transformer", "elbo")
    one, many = (Model(recipe.but({"pooling.kind": pooling}), 12).decoder for pooling in ("mean", "none"))
    assert (one.of_tokens, many.of_tokens) == (False, True)
    hidden, dim = 16, 2
    read = sum(p.numel() for p in one.layers[0].code.parameters())
    assert read == dim * hidden + hidden
    attention = sum(p.numel() for p in many.layers[0].code.parameters())
    assert attention == 2 * (hidden**2 + hidden) + (dim * 2 * hidden + 2 * hidden)
