"""Every recipe does what recipes do, has the settings of its paper, and loses what it always lost."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import changed, copied, read_for, small, tiny_sentences, trainer_on

from textspace.config import Recipe
from textspace.errors import TextspaceError
from textspace.lengths import METRIC, Lengths
from textspace.model import Model
from textspace.recipes import RECIPES, sized
from textspace.schedules import FINAL, Progress, schedule
from textspace.space import Space
from textspace.train.log import records

FROZEN = json.loads((Path(__file__).parent / "train" / "frozen_losses.json").read_text())
FROZEN_OLDER = json.loads((Path(__file__).parent / "train" / "frozen_losses_of_older_options.json").read_text())
OLDER_AGGRESSIVE = {"training.update": {"kind": "aggressive"}}
OLDER_IMPLICIT = {
    "initial.embeddings": 0.1,
    "objective.kl_weight.over": 10,
    "objective.networks": "one",
    "training.update.clip_apart": False,
    "training.update.clip_dual": True,
}
OLDER = {
    "vae-aggressive": OLDER_AGGRESSIVE,
    "vae-aggressive-no-anneal": OLDER_AGGRESSIVE,
    "ivae": OLDER_IMPLICIT,
    "ivae-mi": OLDER_IMPLICIT,
}
"""What these recipes were before they had the options of the published code."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all runs: recipes with the same first phase train it once."""
    return tmp_path_factory.mktemp("recipes")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_conforms(name: str, tiny, runs: Path) -> None:
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.about.endswith(".")
    assert bool(recipe.citation) == (name not in ("default", "gru-lm"))
    assert Recipe.from_json(recipe.to_json()) == recipe

    # An optimisation step moves every parameter; an aggressive rule needs one for each side.
    recipe = small(recipe).but({"latent.dim": 8, "training.epochs": 1})
    update = recipe.training.update
    recipe = recipe.but({"training.steps": update.cap + 1 if update.kind == "aggressive" else 1})
    tiny = read_for(tiny, recipe)
    trainer = trainer_on(tiny, recipe, runs / f"{name} conforms")
    before = copied(trainer.model)
    trained = trainer.run()
    assert changed(trainer.model, before) == before.keys()
    assert trained.decoder_updates == 1
    assert trained.encoder_updates >= (1 if recipe.encoder else 0)
    assert math.isfinite(trained.best)

    # Saved and loaded it is the same.
    lengths = Lengths.of(np.asarray(tiny.encoded.splits["train"].lengths) - 2, recipe.text.max_tokens)
    space = Space(recipe, tiny.tokenizer, trainer.model, {METRIC: lengths.to_dict()})
    space.save(runs / name)
    loaded = Space.load(runs / name, "cpu")
    assert loaded.recipe == recipe
    texts = tiny_sentences(5)
    scores, again = (each.score(texts, samples=3) for each in (space, loaded))
    assert np.array_equal(scores.nll_N, again.nll_N)
    assert np.array_equal(scores.reconstruction_N, again.reconstruction_N)
    assert all(np.array_equal(a, b) for a, b in zip(scores.tokens, again.tokens, strict=True))
    assert {k: e.value for k, e in scores.estimates().items()} == {k: e.value for k, e in again.estimates().items()}
    assert np.isfinite(scores.nll_N).all()

    # It generates.
    made = loaded.sample(3, seed=1)
    assert made == space.sample(3, seed=1)
    assert len(set(made)) > 1
    if recipe.posterior is None:
        with pytest.raises(TextspaceError, match="is a language model and has no codes"):
            loaded.encode(texts)
        return
    codes, again = loaded.encode(texts), space.encode(texts)
    if recipe.is_token_level:
        assert [code.shape for code in codes] == [(len(text.split()) + 2, 8) for text in texts]
        assert all(np.array_equal(one, other) for one, other in zip(codes, again, strict=True))
        assert np.abs(codes[0] - codes[0][0]).max() > 1e-3
    else:
        assert codes.shape == (5, 8)
        assert np.array_equal(codes, again)
        assert np.abs(codes - codes[0]).max() > 1e-3
    decoded = loaded.decode(codes)
    assert decoded == space.decode(codes)
    assert set(" ".join(decoded).split()) <= {"<unk>", *" ".join(tiny_sentences()).split()}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_learns(name: str, tiny, runs: Path) -> None:
    """In an epoch of 12 batches or more it comes to predict words better than a guess among all of them.

    With a code for every token it takes more: at first the KL of all of them is most of the loss.
    """
    rate = 0.02 if RECIPES[name].decoder.kind == "transformer" else 0.05
    recipe = small(RECIPES[name]).but({"training.epochs": 1, "training.optimizer.lr": rate})
    most = 8 if recipe.is_token_level else 32
    recipe = recipe.but({"training.batch.sentences": min(recipe.training.batch.sentences, most)})
    trainer = trainer_on(read_for(tiny, recipe), recipe, runs / f"{name} learns")
    trained = trainer.run()
    lines = list(records(trainer.folder / "steps.jsonl", "step"))
    losses = [line["reconstruction"] * line["sentences"] / line["tokens"] for line in lines]
    guess = math.log(len(tiny.tokenizer) - 2)  # padding and start token are never predicted
    assert np.mean(losses[-3:]) < 0.88 * guess
    if not (recipe.pretrain and recipe.pretrain.keep == "both"):
        assert np.mean(losses[:3]) > 0.92 * guess
    assert trained.steps == len(losses)
    assert trained.stopped == "1 epoch done"
    assert trained.decoder_updates == math.ceil(360 / recipe.training.batch.sentences)
    (validation,) = records(trainer.folder / "steps.jsonl", "validation")
    assert trained.best == trainer._criterion(validation)


@pytest.mark.parametrize("name", RECIPES)
def test_short_runs_lose_what_they_always_lost(name: str, tiny, runs: Path) -> None:
    """Frozen losses: a change of these numbers is a change of training, and must be meant."""
    recipe = small(RECIPES[name]).but({"training.steps": 12})
    trainer = trainer_on(read_for(tiny, recipe), recipe, runs / f"{name} frozen")
    trainer.run()
    losses = [line["loss"] for line in records(trainer.folder / "steps.jsonl", "step")]
    np.testing.assert_allclose(losses, FROZEN[name], rtol=1e-4)


@pytest.mark.parametrize("name", OLDER)
def test_recipes_with_their_older_options_lose_what_they_lost(name: str, tiny, runs: Path) -> None:
    recipe = small(RECIPES[name].but(OLDER[name])).but({"training.steps": 12})
    trainer = trainer_on(tiny, recipe, runs / f"{name} older")
    trainer.run()
    losses = [line["loss"] for line in records(trainer.folder / "steps.jsonl", "step")]
    np.testing.assert_allclose(losses, FROZEN_OLDER[name], rtol=1e-4)


def test_no_recipe_has_frozen_losses_but_those_there_are() -> None:
    assert FROZEN.keys() == RECIPES.keys()


# Settings of the papers

WARM_UP = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10.0, "unit": "epochs"}
ENCODER_KEPT = {"keep": "encoder", "epochs": None}
PUBLIC_CODE = {
    "training.plateau.patience": 5,
    "training.plateau.first_epoch": 16,
    "training.plateau.from_last_decay": True,
    "training.plateau.reload_best": True,
}
LSTM_1024 = {
    "encoder.embedding": 512,
    "encoder.hidden": 1024,
    "decoder.embedding": 512,
    "decoder.hidden": 1024,
    "objective.kl_weight": WARM_UP,
    **PUBLIC_CODE,
}
ADAM = {"training.optimizer.kind": "adam", "training.optimizer.lr": 1e-3}
DIFFERENCES: dict[tuple[str, str], dict[str, Any]] = {
    ("ae", "vae"): {"objective.kl_weight": 0.0, "training.criterion": "reconstruction"},
    ("vae-anneal", "vae"): {"objective.kl_weight": WARM_UP},
    ("beta-vae", "vae"): {"objective.kl_weight": 0.5, "training.criterion": "objective"},
    ("vae-cyclic", "vae"): {
        "objective.kl_weight": {
            "kind": "cyclic",
            "start": 0.1,
            "end": 1.0,
            "cycles": 4,
            "rising": 0.45,
            "over": 40.0,
            "unit": "epochs",
        },
        "initial.weights": 0.1,
        "training.epochs": 40,
        "training.plateau": None,
        "training.optimizer.schedule": {
            "kind": "cosine",
            "start": 1.0,
            "end": 0.0,
            "cycles": 4,
            "over": 40.0,
            "stairs": 10,
            "unit": "epochs",
        },
        **ADAM,
    },
    ("vae-cyclic-sgd", "vae-anneal"): {
        "objective.kl_weight": RECIPES["vae-cyclic"].model_dump(mode="json")["objective"]["kl_weight"],
        "training.epochs": 40,
        **PUBLIC_CODE,
    },
    ("smim", "svae"): {"objective": {"kind": "mim"}, "training.criterion": "objective"},
    ("smim-pretrain", "smim"): {
        "pretrain": {"keep": "both", "epochs": 4},
        "initial.embeddings": 0.1,
        "training.batch.sentences": 100,
        "training.optimizer.lr": 2e-3,
        "training.optimizer.schedule": {"kind": "linear", "start": 1.0, "end": 0.0, "over": 1.0, "unit": "run"},
        "training.plateau": None,
        "training.epochs": 20,
    },
    ("svae-anneal", "svae"): {"objective.kl_weight.midpoint": 10_000.0},
    ("smim-ae", "svae"): {
        "posterior": {"kind": "delta"},
        "objective": {"kind": "reconstruction"},
        "training.criterion": "reconstruction",
    },
    ("gru-lm", "lstm-lm"): {"decoder.kind": "gru", **ADAM},
    ("vae-free-bits", "vae"): {"objective.free_bits": {"target": 3.0, "per": "dimension", "on": "sentence"}},
    ("vae-free-bits-total", "vae-free-bits"): {"objective.free_bits.per": "total"},
    ("vae-pretrain", "vae"): {"pretrain": ENCODER_KEPT},
    ("vae-pretrain-anneal", "vae-anneal"): {"pretrain": ENCODER_KEPT},
    ("pretrain-free-bits", "vae-anneal"): {
        "pretrain": ENCODER_KEPT,
        "objective.free_bits": {"target": 4.0, "per": "dimension", "on": "sentence"},
    },
    ("pretrain-free-bits-no-anneal", "pretrain-free-bits"): {"objective.kl_weight": 1.0},
    ("vae-pretrain-both", "pretrain-free-bits"): {"pretrain.keep": "both"},
    ("iwae", "vae"): {
        "objective": {"kind": "iwae", "samples": 10, "kl_weight": 1.0},
        "training.criterion": "iwae",
    },
    ("iwae-pretrain", "iwae"): {"pretrain": ENCODER_KEPT},
    ("vae-max-pool", "vae"): {"pooling.kind": "max", **LSTM_1024},
    ("vae-max-pool-no-anneal", "vae-max-pool"): {"objective.kl_weight": 1.0},
    ("vae-mean-pool", "vae-max-pool"): {"pooling.kind": "mean"},
    ("vae-abs-pool", "vae-max-pool"): {"pooling.kind": "abs"},
    ("vae-attention-pool", "vae-max-pool"): {"pooling": {"kind": "attention", "hidden": None}},
    ("vae-word-dropout", "vae"): {"decoder.word_dropout": 0.5, **LSTM_1024},
    ("skip-vae", "vae"): {"decoder.skip": True, **LSTM_1024},
    ("skip-vae-no-anneal", "skip-vae"): {"objective.kl_weight": 1.0},
    ("vae-aggressive", "vae"): {
        **LSTM_1024,
        "training.update": {
            "kind": "aggressive",
            "clip_together": True,
            "inner_batches": "replacement",
            "ends": "fall",
            "window": 15,
            "cap": 99,
        },
        "objective.kl_weight": WARM_UP | {"start": 0.1},
    },
    ("vae-aggressive-no-anneal", "vae-aggressive"): {"objective.kl_weight": 1.0},
    ("ivae-mi", "ivae"): {"objective.of": "aggregated"},
    ("hsvae", "vae-dense"): {
        "posterior": {
            "kind": "spike-and-slab",
            "gates": "beta",
            "slab_sees_gates": True,
            "layers": 1,
            "hidden": 512,
            "deviation": "softplus",
            "temperature": 0.5,
            "hard": True,
            "concentration": [0.5, 100.0],
        },
        "prior": {"kind": "beta-gated", "alpha": 4.0, "beta": 1.0},
        "objective.gate_kl_weight": 0.01,
    },
    ("hsvae-public-code", "hsvae"): {"posterior.layers": 0, "posterior.slab_sees_gates": False},
    ("mat-vae", "vae-dense"): {
        "prior": {"kind": "spike-and-slab", "off": 0.8},
        "objective": {
            "kind": "wae",
            "mmd_weight": 0.5,
            "kl_weight": 0.01,
            "kernel": "inverse-multiquadratic",
            "per": "dimension",
            "scales": [0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        },
    },
    ("ton-vae", "hsvae"): {
        "posterior.gates": "features",
        "prior": {"kind": "pseudo-inputs", "count": 50},
        "objective.gate_kl_weight": None,
        "objective.gate_share": {"off": 0.8, "of": "sentences", "weight": 1.0},
    },
    ("vat", "transformer-vae"): {
        "pooling.kind": "none",
        "prior": {"kind": "scaled-normal", "scale": 0.4, "noise": "standard", "learned": False},
        "training.average": "tokens",
    },
    ("vat-printed", "vat"): {"prior.noise": "scale", "objective.kl_weight.end": 1.0},
    ("vae-l1", "vae-dense"): {"objective.activity": {"norm": "l1", "weight": 0.01}},
    ("vae-l2", "vae-dense"): {"objective.activity": {"norm": "l2", "weight": 0.01}},
}


def differences(one: dict[str, Any], other: dict[str, Any], path: str = "") -> dict[str, Any]:
    """The options of one recipe that another has not, by path."""
    found = {}
    for name, value in one.items():
        if isinstance(value, dict) and isinstance(other[name], dict) and value.keys() == other[name].keys():
            found |= differences(value, other[name], f"{path}{name}.")
        elif value != other[name]:
            found[path + name] = value
    return found


@pytest.mark.parametrize(("name", "base"), DIFFERENCES)
def test_a_recipe_differs_from_another_in_nothing_but(name: str, base: str) -> None:
    found, of_base = (RECIPES[each].model_dump(mode="json") for each in (name, base))
    for text in ("name", "about", "citation"):
        found.pop(text), of_base.pop(text)
    assert differences(found, of_base) == DIFFERENCES[name, base]


def test_the_baseline_has_the_papers_settings() -> None:
    vae = RECIPES["vae"]
    assert vae.latent.dim == 32
    for part in (vae.encoder, vae.decoder):
        assert (part.kind, part.embedding, part.hidden, part.layers) == ("lstm", 256, 256, 1)
    assert (vae.decoder.input_dropout, vae.decoder.output_dropout, vae.decoder.word_dropout) == (0.5, 0.5, 0.0)
    assert (vae.initial.weights, vae.initial.embeddings) == (0.01, 0.1)
    assert (vae.objective.kind, vae.objective.kl_weight) == ("elbo", 1.0)
    training = vae.training
    assert (training.batch.sentences, training.clip, training.epochs) == (32, 5.0, 100)
    assert (training.optimizer.kind, training.optimizer.lr, training.optimizer.momentum) == ("sgd", 0.5, 0.0)
    assert (training.plateau.factor, training.plateau.patience, training.plateau.max_decays) == (0.5, 2, 5)


def test_the_mutual_information_recipe_has_the_papers_settings() -> None:
    recipe = RECIPES["smim"]
    assert recipe.latent.dim == 512
    assert (recipe.encoder.kind, recipe.encoder.embedding, recipe.encoder.hidden) == ("gru", 300, 512)
    assert (recipe.decoder.kind, recipe.decoder.embedding, recipe.decoder.hidden) == ("gru", 300, 512)
    assert recipe.encoder.reverse_input
    assert recipe.encoder.start_last
    assert recipe.share_embeddings
    assert recipe.posterior.log_variance_floor == -10
    assert (recipe.decoder.input_dropout, recipe.decoder.output_dropout) == (0.5, 0)
    training = recipe.training
    assert (training.optimizer.kind, training.optimizer.lr, training.clip) == ("adam", 1e-3, 0.25)
    assert (training.batch.sentences, training.batch.by_length) == (20, False)
    plateau = training.plateau
    assert (plateau.factor, plateau.patience, plateau.counted) == (0.25, 3, "over_the_run")
    assert not plateau.reload_best
    assert not plateau.from_last_decay
    assert 1e-3 * 0.25**plateau.max_decays < 1e-8 < 1e-3 * 0.25 ** (plateau.max_decays - 1)
    assert training.epochs == 200


@pytest.mark.parametrize(("name", "midpoint"), [("svae", 0), ("svae-anneal", 10_000)])
def test_the_kl_weight_of_svae_is_that_of_the_public_code(name: str, midpoint: int) -> None:
    """1 / (1 + exp(-0.0025 (step - midpoint))), which is .99 where the exponent is -ln 99, 1,838 steps on."""
    recipe = RECIPES[name]
    weight = schedule(recipe.objective.kl_weight)
    assert weight(Progress(midpoint, 0.0)) == pytest.approx(0.5)
    assert weight(Progress(midpoint + 1_840, 0.0)) == pytest.approx(0.99, abs=1e-4)
    for step in (0, 1, 400, 2_000, 10_001, 12_345):
        truth = 1 / (1 + math.exp(-0.0025 * (step - midpoint)))
        assert weight(Progress(step, 3.0, 0.5)) == pytest.approx(truth, rel=1e-9, abs=1e-12)
    assert weight(FINAL) == 1.0  # as validations take it
    assert recipe.training.criterion == "elbo"


def test_cyclic_annealing_has_the_schedules_of_its_public_code() -> None:
    """Of 50 batches an epoch: there 0.1 at the start of each cycle, and 1 / (5 x 50) more before each step, up to 1;
    the rate of each epoch is 1e-3 (1 + cos(pi k / 10)) / 2, k from 0 to 9 in each cycle."""
    recipe = RECIPES["vae-cyclic"]
    weight, rate = schedule(recipe.objective.kl_weight), schedule(recipe.training.optimizer.schedule)
    batches, beta = 50, 0.0
    for step in range(40 * batches):
        epoch, batch = divmod(step, batches)
        beta = 0.1 if step % (10 * batches) == 0 else beta
        now = Progress(step, epoch + batch / batches, step / (40 * batches))
        assert weight(now) == pytest.approx(beta, abs=1e-9)  # ours is raised after the step, theirs before it
        beta = min(1.0, beta + 1 / (5 * batches))
        lr = 1e-3 * (1 + math.cos(math.pi * (epoch % 10) / 10)) / 2
        assert recipe.training.optimizer.lr * rate(now) == pytest.approx(lr, rel=1e-9)
    assert weight(Progress(0, 4.5 - 1 / batches)) < 1.0 == pytest.approx(weight(Progress(0, 4.5)))
    assert (recipe.initial.weights, recipe.initial.embeddings) == (0.1, 0.1)
    training = recipe.training
    assert (training.epochs, training.plateau, training.clip, training.criterion) == (40, None, 5.0, "elbo")
    assert (recipe.decoder.input_dropout, recipe.decoder.output_dropout) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("sizes", "vocabulary", "dim", "millions"),
    [
        (None, 9_877, 16, 11),
        (None, 9_877, 128, 11),
        (None, 9_877, 512, 12),
        ("yahoo", 19_730, 32, 40),
        ("yahoo", 19_730, 512, 43),
        ("yahoo", 19_730, 1024, 46),
        ("yahoo", 37_165, 32, 67),
        ("yahoo", 37_165, 512, 70),
        ("yahoo", 37_165, 1024, 73),
    ],
)
@pytest.mark.parametrize("name", ["smim", "svae"])
def test_the_mutual_information_recipes_have_the_papers_parameters(
    name: str, sizes: str | None, vocabulary: int, dim: int, millions: int
) -> None:
    """Its column counts whole millions, special tokens included in the vocabulary."""
    recipe = RECIPES[name].but({"latent.dim": dim})
    with torch.device("meta"):
        model = Model(sized(recipe, sizes) if sizes else recipe, vocabulary)
    assert round(sum(model.parameter_counts().values()) / 1e6) == millions


def test_the_implicit_recipes_have_the_papers_settings() -> None:
    ivae = RECIPES["ivae"]
    assert (ivae.encoder.hidden, ivae.decoder.hidden, ivae.encoder.embedding, ivae.latent.dim) == (1024, 1024, 512, 32)
    assert (ivae.posterior.kind, ivae.posterior.layers, ivae.posterior.noise) == ("implicit", 0, None)
    objective, training = ivae.objective, ivae.training
    assert (objective.kind, objective.of, objective.dual.layers, objective.dual.hidden) == (
        "dual-kl",
        "posterior",
        3,
        512,
    )
    weight = objective.kl_weight
    assert (weight.kind, weight.start, weight.end, weight.over, weight.unit) == ("linear", 0.1, 1.0, 9, "epochs")
    assert objective.networks == "both"
    assert (ivae.initial.weights, ivae.initial.embeddings) == (0.01, 0.01)
    update = training.update
    assert (update.kind, update.dual_steps) == ("alternating", 5)
    assert (update.clip_apart, update.clip_dual, training.clip) == (True, False, 5.0)
    assert (update.optimizer.kind, update.optimizer.lr) == ("adam", 1e-5)
    assert (training.optimizer.kind, training.optimizer.lr) == ("adam", 8e-4)
    assert (training.epochs, training.plateau, training.criterion, ivae.pretrain) == (40, None, "last", None)


def test_the_wasserstein_autoencoder_compares_with_the_prior_by_mmd() -> None:
    wae = RECIPES["wae"]
    assert (wae.objective.kind, wae.objective.kernel, wae.objective.mmd_weight) == (
        "wae",
        "inverse-multiquadratic",
        10.0,
    )
    assert (wae.posterior.kind, wae.training.criterion) == ("delta", "objective")


def test_the_auto_transformer_has_the_papers_settings() -> None:
    vat = RECIPES["vat"]
    for part in (vat.encoder, vat.decoder):
        assert (part.kind, part.layers, part.heads, part.hidden, part.feed_forward) == ("transformer", 4, 8, 128, 512)
        assert (part.dropout, part.word_dropout, part.norm) == (0.1, 0.0, "after")
    assert (vat.text.tokenizer.kind, vat.text.tokenizer.size) == ("bpe", 2**15)
    assert (vat.pooling.kind, vat.posterior.kind, vat.latent.dim) == ("none", "gaussian", 128)
    assert (vat.prior.kind, vat.prior.scale, vat.prior.learned) == ("scaled-normal", 0.4, False)
    assert vat.is_token_level
    training = vat.training
    assert (training.batch.sentences, training.epochs, training.average) == (128, 3, "tokens")
    assert training.plateau is None
    # the learning rate's and the KL's warm-up as shares of the run
    rate, weight = training.optimizer.schedule, vat.objective.kl_weight
    assert (training.optimizer.betas, rate.kind, rate.unit) == ((0.9, 0.98), "inverse-root", "run")
    assert (weight.kind, weight.start, weight.end, weight.unit) == ("logistic", 0.00025, 0.1, "run")
    value = schedule(weight)
    assert value(Progress(0, 0.0, 0.0)) < 0.0004
    assert value(Progress(0, 0.0, 0.4)) == pytest.approx(0.05, abs=1e-3)
    assert value(Progress(0, 0.0, 0.8)) > 0.0995


def test_the_small_auto_transformer_is_small_in_every_part() -> None:
    found = differences(RECIPES["vat-small"].model_dump(mode="json"), RECIPES["vat"].model_dump(mode="json"))
    changed = {path for path in found if path not in ("name", "about", "citation")}
    parts = {
        f"{part}.{size}" for part in ("encoder", "decoder") for size in ("hidden", "layers", "heads", "feed_forward")
    }
    rest = {"text.tokenizer.size", "latent.dim", "initial.embeddings", "training.optimizer.lr", "training.epochs"}
    assert changed == parts | rest


@pytest.mark.parametrize(("name", "millions"), [("vat", 6.1), ("transformer-vae", 5.9), ("transformer-lm", 5.0)])
def test_transformers_share_one_table_of_embeddings(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = Model(RECIPES[name], 2**15)
    assert sum(model.parameter_counts().values()) / 1e6 == pytest.approx(millions, abs=0.05)
    assert model.decoder.output is None
    if model.encoder is not None:
        assert model.decoder.embedding is model.encoder.embedding


def test_the_sparse_recipes_have_the_settings_of_paper_and_published_code() -> None:
    for name in ("hsvae", "hsvae-public-code", "mat-vae", "ton-vae", "vae-l1", "vae-l2", "vae-dense"):
        recipe = RECIPES[name]
        assert recipe.latent.model_dump() == {"dim": 32, "spike": 0.05}
        for part in (recipe.encoder, recipe.decoder):
            assert (part.kind, part.embedding, part.hidden, part.layers) == ("gru", 256, 512, 1)
        assert recipe.decoder.first_state == "zero"
        assert (recipe.decoder.input_dropout, recipe.decoder.output_dropout) == (0, 0)
        assert recipe.posterior.deviation == "softplus"
        assert recipe.share_embeddings
        assert recipe.pooling.kind == "last"
        assert recipe.objective.kl_weight == 0.01  # on all of them, the dense one too
        training = recipe.training
        assert (training.optimizer.kind, training.optimizer.lr) == ("adam", 8e-4)
        assert (training.batch.sentences, training.epochs, training.plateau) == (256, 15, None)
        assert training.criterion == "last"
    objective = RECIPES["hsvae"].objective
    assert (objective.samples, objective.codes_per_gate) == (1, 1)


def test_every_sparse_recipe_has_a_latent_of_its_kind() -> None:
    kinds = {name: (r.posterior.kind, r.prior.kind) for name, r in RECIPES.items() if r.posterior and r.prior}
    sparse = {name for name, pair in kinds.items() if pair != ("gaussian", "standard-normal")}
    sparse -= {name for name in sparse if kinds[name][1] == "standard-normal"}
    sparse -= {name for name in sparse if kinds[name][1] == "scaled-normal"}
    assert sparse == {"hsvae", "hsvae-public-code", "b-hsvae", "mat-vae", "ton-vae"}
    assert kinds["hsvae"] == ("spike-and-slab", "beta-gated")
    assert kinds["mat-vae"] == ("gaussian", "spike-and-slab")
    assert kinds["ton-vae"] == ("spike-and-slab", "pseudo-inputs")
