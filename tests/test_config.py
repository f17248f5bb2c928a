import json
import os
import re

import pytest
from helpers import small

from textspace.config import PLATEAU_PRESETS, Constant, Linear, Recipe, RecurrentDecoder
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.objectives import build_objective
from textspace.recipes import RECIPES, SIZES, sized
from textspace.settings import paths


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_go_to_json_and_back_without_loss(name: str) -> None:
    recipe = RECIPES[name].but({"objective.kl_weight": {"kind": "linear"}} if name == "vae" else {})
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_settings_reach_every_field() -> None:
    """Setting each option to the value it has changes nothing, and no path is refused."""
    recipe = RECIPES["vae"].but(
        {"objective.kl_weight": {"kind": "linear"}, "training.optimizer.schedule": {"kind": "linear"}}
    )
    data = json.loads(recipe.to_json())
    tried = 0
    for path in paths(Recipe):
        here = data
        for name in path.split("."):
            here = here.get(name, ...) if isinstance(here, dict) else ...
            if here is ...:
                break
        if here is not ...:
            assert recipe.with_settings([f"{path}={json.dumps(here)}"]) == recipe, path
            tried += 1
    assert tried > 60


def test_settings_change_what_they_name() -> None:
    recipe = Recipe().with_settings(["latent.dim=64", "training.plateau=public-code", "text.tokenizer.kind=bpe"])
    assert recipe.latent.dim == 64
    assert recipe.training.plateau == PLATEAU_PRESETS["public-code"]
    assert recipe.text.tokenizer.kind == "bpe"


def test_a_number_can_become_a_schedule() -> None:
    recipe = Recipe().with_settings(["objective.kl_weight.kind=linear", "objective.kl_weight.over=5"])
    assert recipe.objective.kl_weight == Linear(over=5)


def test_changing_a_kind_keeps_what_both_kinds_have() -> None:
    recipe = Recipe().but({"text.tokenizer.size": 900}).but({"text.tokenizer.kind": "unigram"})
    assert recipe.text.tokenizer.size == 900


BOTH = ("start", "end")
SCHEDULED = {"constant": ("value",), "linear": BOTH, "logistic": BOTH, "cyclic": BOTH}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["latent.dmi=64"], "recipe has no option 'latent.dmi'; did you mean 'latent.dim'?"),
        (
            ["objective.kind=wae", "objective.free_bits.target=4"],
            "objective 'wae' has no option 'free_bits': choose another objective.kind, or leave it out",
        ),
        *(
            ([f"{path}={10**23}"], f"{path} is {10**23}, but input should be less than or equal to 2147483647")
            for path in ("text.max_tokens", "latent.dim", "training.epochs", "training.batch.sentences")
        ),
        (
            ["text.tokenizer.kind=bpe", f"text.tokenizer.size={10**23}"],
            f"text.tokenizer.size is {10**23}, but input should be less than",
        ),
        (["latent.dim=-3"], "latent.dim is -3, but input should be greater than or equal to 1"),
        *(
            ([f"{path}=-1"], f"{path} is -1, but input should be greater than or equal to 0")
            for path in ("objective.kl_weight", "objective.gate_kl_weight", "training.optimizer.schedule")
        ),
        (
            ["objective.kind=wae", "objective.mmd_weight=-0.5"],
            "objective.mmd_weight is -0.5, but input should be greater than or equal to 0",
        ),
        *(
            (
                [f"objective.kl_weight.kind={kind}", f"objective.kl_weight.{option}=-0.1"],
                f"objective.kl_weight.{option} is -0.1, but input should be greater than or equal to 0",
            )
            for kind, options in SCHEDULED.items()
            for option in options
        ),
        (["latent.dim=many"], 'latent.dim is "many", but input should be a valid integer'),
        (["latent.dim"], "setting 'latent.dim' has no '='"),
        (["text.tokenizer.kind=bqe"], "text.tokenizer.kind has no choice 'bqe'; did you mean 'bpe'?"),
        (
            ["text.tokenizer.kind=bpe", "text.tokenizer.size=259"],
            "text.tokenizer.size is 259, but input should be greater",
        ),
        (["training.optimizer.kind=adm"], "training.optimizer.kind is \"adm\", but input should be 'sgd', 'adam' or"),
        (["training.plateau=papr"], "there is no plateau preset 'papr': did you mean 'paper'?"),
        (["training.batch.tokens=100"], "give either batch.sentences or batch.tokens"),
        (
            ['training.batch={"sentences": null, "tokens": 100, "by_length": false}'],
            "batch.tokens makes batches of similar lengths",
        ),
        (["latent.dim=true"], "latent.dim is true, but input should be a valid integer"),
        (["training.seed=false"], "training.seed is false, but input should be a valid integer"),
        (["latent.dim=" + "9" * 5000], "exceeded maximum size"),
        (["latent.dim=" + "[" * 100_000], "input should be a valid integer"),
        *(
            (["text.tokenizer.kind=bpe", f"{path}={2**31}"], f"{path} is {2**31}, but input should be less than or")
            for path in ("latent.dim", "objective.samples", "text.tokenizer.size")
        ),
        (["encoder=null"], "encoder is missing: give encoder, pooling, posterior and prior, or none"),
        (["share_embeddings=true", "encoder.embedding=9"], "share_embeddings needs encoder.embedding (9) to equal"),
    ],
)
def test_mistakes_are_one_sentence(settings: list[str], sentence: str) -> None:
    with pytest.raises(TextspaceError) as told:
        Recipe().with_settings(settings)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "the recipe is not JSON"),
        ('{"a":' * 100_000, "the recipe is not JSON: it is nested too deeply"),
        ("[" * 300 + "]" * 300, "the recipe is not JSON: it is nested too deeply"),
        (f'{{"latent": {{"dim": {"9" * 400}}}}}', "the recipe is not JSON: a number has 400 digits"),
        ("[]", "the recipe is []"),
        ('{"latnt": {}}', "recipe has no option 'latnt'"),
        ('{"objective": {"kind": "elbo", "beta": 1}}', "recipe has no option 'objective.beta'"),
        ('{"encoder": {"hidden": 64}}', "encoder.kind is missing: say which kind of encoder it is"),
        ('{"format": 99}', "the recipe has format 99 and this version of textspace reads up to 1"),
    ],
)
def test_foreign_recipes_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(TextspaceError) as told:
        Recipe.from_json(text)
    assert sentence in str(told.value)


def test_a_recipe_may_come_from_a_pipe_and_has_an_end(tmp_path) -> None:
    reading, writing = os.pipe()
    os.write(writing, Recipe().to_json().encode())
    os.close(writing)
    assert Recipe.load(f"/dev/fd/{reading}") == Recipe()
    os.close(reading)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, why in {"/dev/zero": "it has more than", tmp_path / "loop": "Too many levels"}.items():
        with pytest.raises(TextspaceError, match=f"cannot read the recipe '{path}'.*{why}"):
            Recipe.load(path)


def test_a_missing_recipe_file_is_one_sentence(tmp_path) -> None:
    with pytest.raises(TextspaceError, match="there is no recipe"):
        Recipe.load(tmp_path / "none.json")


# Parts that do not fit

LANGUAGE_MODEL = {
    "encoder": None,
    "pooling": None,
    "posterior": None,
    "prior": None,
    "objective.kind": "reconstruction",
}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective.kind": "dual-kl"}, ["objective 'dual-kl'", "training.update 'joint'"]),
        (
            {"objective.kind": "dual-kl", "posterior.kind": "implicit", "training.update.kind": "aggressive"},
            ["objective 'dual-kl'", "training.update 'aggressive'"],
        ),
        ({"training.update.kind": "alternating"}, ["objective 'elbo'", "training.update 'alternating'"]),
        (
            {"objective.kind": "wae", "training.update.kind": "alternating"},
            ["objective 'wae'", "training.update 'alternating'"],
        ),
        (LANGUAGE_MODEL | {"training.update.kind": "aggressive"}, ["training.update 'aggressive'", "language model"]),
        (LANGUAGE_MODEL | {"pretrain": {}}, ["pretrain", "language model"]),
        (LANGUAGE_MODEL | {"pretrain.keep": "both"}, ["pretrain", "language model"]),
        (LANGUAGE_MODEL | {"decoder.skip": True}, ["decoder.skip", "language model"]),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_both_named(changes: dict, named: list[str]) -> None:
    with pytest.raises(TextspaceError) as told:
        RECIPES["vae"].but(changes)
    assert [part for part in named if part not in str(told.value)] == []
    assert "\n" not in str(told.value)


ALTERNATING = {"training.update.kind": "alternating"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"posterior.kind": "implicit"}, ["objective 'elbo'", "posterior 'implicit'"]),
        ({"posterior.kind": "delta"}, ["objective 'elbo'", "posterior 'delta'"]),
        ({"posterior.kind": "implicit", "objective.kind": "iwae"}, ["objective 'iwae'", "posterior 'implicit'"]),
        ({"posterior.kind": "delta", "objective.kind": "iwae"}, ["objective 'iwae'", "posterior 'delta'"]),
        (LANGUAGE_MODEL | {"objective.kind": "elbo"}, ["objective 'elbo'", "no posterior"]),
        (LANGUAGE_MODEL | {"objective.kind": "iwae"}, ["objective 'iwae'", "no posterior"]),
        (LANGUAGE_MODEL | {"objective.kind": "wae"}, ["objective 'wae'", "no posterior"]),
        (LANGUAGE_MODEL | {"objective.kind": "dual-kl"} | ALTERNATING, ["objective 'dual-kl'", "no posterior"]),
    ],
)
def test_objectives_refuse_parts_they_cannot_work_with_and_name_both(changes: dict, named: list[str]) -> None:
    recipe = small(RECIPES["vae"]).but(changes)
    with pytest.raises(TextspaceError) as told:
        build_objective(recipe, Model(recipe, 20))
    assert [part for part in named if part not in str(told.value)] == []
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"posterior.kind": "implicit", "objective.kind": "wae"},
        {"posterior.kind": "delta", "objective.kind": "wae"},
        {"posterior.kind": "implicit", "objective.kind": "dual-kl"} | ALTERNATING,
        {"posterior.kind": "gaussian", "objective.kind": "dual-kl"} | ALTERNATING,
        {"posterior.kind": "implicit", "objective.kind": "reconstruction"},
        {"training.update.kind": "aggressive", "objective.kind": "iwae"},
        {"pretrain": {}, "objective.kind": "wae"},
    ],
)
def test_parts_that_fit_are_taken(changes: dict) -> None:
    recipe = small(RECIPES["vae"]).but(changes)
    build_objective(recipe, Model(recipe, 20))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipes_parts_fit(name: str) -> None:
    recipe = small(RECIPES[name])
    build_objective(recipe, Model(recipe, 20))


NO_WEIGHT = "the importance-weighted bound of objective 'iwae' has no KL term that a kl_weight could weigh"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("iwae", ["objective.kl_weight=0.5"]),
        ("iwae", ["objective.kl_weight=0"]),
        ("iwae", ["objective.kl_weight.kind=linear"]),
        ("iwae", ["objective.kl_weight.kind=constant", "objective.kl_weight.value=2"]),
        ("beta-vae", ["objective.kind=iwae"]),  # its weight, 0.5, comes along
        ("vae-anneal", ["objective.kind=iwae"]),
        ("vae", ["objective.kl_weight=0.5", "objective.kind=iwae"]),
    ],
)
def test_the_importance_weighted_bound_takes_no_kl_weight(name: str, settings: list[str]) -> None:
    with pytest.raises(TextspaceError, match=f"objective: {re.escape(NO_WEIGHT)}") as told:
        RECIPES[name].with_settings(settings)
    assert "set objective.kl_weight to 1, or use objective 'elbo'" in str(told.value)


def test_the_importance_weighted_bound_takes_a_kl_weight_of_one() -> None:
    assert RECIPES["vae"].with_settings(["objective.kind=iwae"]).objective.kl_weight == 1
    assert RECIPES["beta-vae"].with_settings(["objective.kind=iwae", "objective.kl_weight=1"]).objective.samples == 10
    constant = RECIPES["iwae"].with_settings(["objective.kl_weight.kind=constant"]).objective.kl_weight
    assert constant == Constant(value=1.0)


def test_free_bits_are_set_by_path() -> None:
    recipe = Recipe().with_settings(["objective.free_bits.target=4", "objective.free_bits.on=batch"])
    assert recipe.objective.free_bits.model_dump() == {"target": 4.0, "per": "dimension", "on": "batch"}
    assert recipe.with_settings(["objective.free_bits=null"]) == Recipe()
    with pytest.raises(TextspaceError, match=r"objective\.free_bits\.target is 0"):
        Recipe().with_settings(["objective.free_bits.target=0"])


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("prior.alpha=0", "prior.alpha is 0, but input should be greater than or equal to 0.01"),
        ("prior.alpha=-4", "prior.alpha is -4, but input should be greater than or equal to 0.01"),
        ("prior.beta=1e9", "prior.beta is 1000000000.0, but input should be less than or equal to 1000"),
        ("prior.beta=NaN", "prior.beta is NaN, but input should be"),
        ("prior.alpha=many", 'prior.alpha is "many", but input should be a valid number'),
        ("latent.spike=0", "latent.spike is 0, but input should be greater than or equal to 0.0001"),
        ("latent.spike=1", "latent.spike is 1, but input should be less than 1"),
        ("posterior.temperature=0", "posterior.temperature is 0, but input should be greater than or equal to 0.01"),
        ("posterior.temperature=Infinity", "posterior.temperature is Infinity, but input should be a finite number"),
        ("posterior.concentration=[100, 0.5]", "concentration is from 100 to 0.5: give the smaller bound first"),
        ("posterior.concentration=[2, 2]", "concentration is from 2 to 2: give the smaller bound first"),
        ("posterior.concentration=[0, 100]", "posterior.concentration is 0, but input should be greater than"),
        ("posterior.concentration=[0.5, 1e6]", "posterior.concentration is 1000000.0, but input should be less than"),
        ("posterior.concentration=3", "posterior.concentration is 3, but input should be a valid tuple"),
        ("posterior.gates=soft", "posterior.gates is \"soft\", but input should be 'beta' or 'features'"),
        ("posterior.layers=-1", "posterior.layers is -1, but input should be greater than or equal to 0"),
        ("objective.samples=0", "objective.samples is 0, but input should be greater than or equal to 1"),
        ("objective.codes_per_gate=0", "objective.codes_per_gate is 0, but input should be greater"),
        ("objective.gate_kl_weight=heavy", 'objective.gate_kl_weight is "heavy", but'),
        ("prior.kind=beta", "prior.kind has no choice 'beta'; did you mean 'beta-gated'?"),
        ("prior.off=0.5", "prior 'beta-gated' has no option 'off': choose another prior.kind, or leave it out"),
    ],
)
def test_bad_numbers_of_gates_are_one_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(TextspaceError) as told:
        RECIPES["hsvae"].with_settings([setting])
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("off", ["0", "1", "-0.1", "NaN"])
def test_a_share_off_lies_between_0_and_1(off: str) -> None:
    for name, option in (("mat-vae", "prior.off"), ("ton-vae", "objective.gate_share.off")):
        with pytest.raises(TextspaceError, match=f"{option} is {off}, but input should be"):
            RECIPES[name].with_settings([f"{option}={off}"])


def test_gates_can_be_had_in_any_recipe_by_two_settings() -> None:
    recipe = RECIPES["default"].with_settings(["posterior.kind=spike-and-slab", "prior.kind=beta-gated"])
    assert (recipe.posterior.gates, recipe.prior.alpha, recipe.prior.beta) == ("beta", 4.0, 1.0)


# Recipes of before, and of other sizes

LATER = [
    "pretrain",
    "training.update",
    "objective.free_bits",
    "decoder.skip",
    "decoder.word_dropout",
    "encoder.word_dropout",
    "encoder.start_last",
    "training.plateau.from_last_decay",
    "training.plateau.counted",
    "decoder.first_state",
    "posterior.deviation",
    "posterior.log_variance_floor",
    "latent.spike",
    "objective.gate_kl_weight",
    "objective.activity",
    "objective.gate_share",
    "objective.samples",
    "objective.codes_per_gate",
    "training.average",
    "training.batch.by_length",
    "training.record_steps",
]
"""Options that the first recipe.json files did not have."""


def without(data: dict, paths_left_out: list[str]) -> dict:
    data = json.loads(json.dumps(data))
    for path in paths_left_out:
        *parents, last = path.split(".")
        here = data
        for parent in parents:
            here = here[parent] or {}
        here.pop(last, None)
    return data


@pytest.mark.parametrize("name", ["default", "lstm-lm", "gru-lm", "ae", "vae", "vae-anneal"])
def test_a_recipe_of_before_means_what_it_meant(name: str) -> None:
    written = json.loads(RECIPES[name].to_json())
    old = without(written, LATER)
    assert "update" not in old["training"]
    assert "skip" not in old["decoder"]
    assert Recipe.from_json(json.dumps(old)) == RECIPES[name]


FIRST = """{
  "format": 1, "name": "mine", "about": "", "citation": "",
  "text": {
    "normalise": [], "max_tokens": 512, "over_long": "drop",
    "tokenizer": {"kind": "words", "size": null, "min_count": 1, "unknown_aliases": ["<unk>", "[UNK]"]}
  },
  "latent": {"dim": 32},
  "encoder": {
    "kind": "gru", "embedding": 128, "hidden": 192, "layers": 1, "bidirectional": true, "reverse_input": false
  },
  "pooling": {"kind": "last"},
  "posterior": {"kind": "gaussian"},
  "prior": {"kind": "standard-normal"},
  "decoder": {
    "kind": "gru", "embedding": 128, "hidden": 192, "layers": 1, "input_dropout": 0.2, "output_dropout": 0.2,
    "output_bias": false, "tie_output": false
  },
  "share_embeddings": false,
  "initial": {"weights": null, "embeddings": 0.1},
  "objective": {
    "kind": "elbo", "kl_weight": {"kind": "linear", "start": 0.0, "end": 0.5, "over": 4.0, "unit": "epochs"}
  },
  "training": {
    "seed": 0, "epochs": 20, "steps": null, "batch": {"sentences": 32, "tokens": null, "pieces": 1},
    "optimizer": {
      "kind": "adam", "lr": 0.002, "schedule": 1.0, "momentum": 0.0, "betas": [0.9, 0.999], "weight_decay": 0.0
    },
    "plateau": {"factor": 0.5, "patience": 1, "max_decays": 4, "first_epoch": 0, "reload_best": false},
    "clip": 5.0, "patience": null, "criterion": "elbo", "validate_every": null, "checkpoint_every": 500,
    "precision": "fp32"
  }
}"""
"""A recipe.json that the first version wrote."""


def test_a_file_of_the_first_version_keeps_every_number_and_gets_nothing_new() -> None:
    recipe = Recipe.from_json(FIRST)
    assert without(json.loads(recipe.to_json()), LATER) == json.loads(FIRST.replace("fp32", "float32"))
    assert recipe.pretrain is None
    assert recipe.training.update.kind == "joint"
    assert recipe.objective.free_bits is None
    assert (recipe.decoder.skip, recipe.decoder.word_dropout) == (False, 0.0)
    assert (recipe.decoder.first_state, recipe.posterior.deviation) == ("code", "exp")
    assert (recipe.encoder.word_dropout, recipe.posterior.log_variance_floor) == (0.0, None)
    assert (recipe.encoder.start_last, recipe.training.batch.by_length) == (False, True)
    objective = recipe.objective
    assert (objective.gate_kl_weight, objective.activity, objective.gate_share) == (None, None, None)
    assert (objective.samples, objective.codes_per_gate) == (1, 1)
    assert recipe.training.average == "sentences"
    assert not recipe.training.plateau.from_last_decay
    assert recipe.training.plateau.counted == "in_a_row"
    assert not recipe.is_token_level


@pytest.mark.parametrize("name", ["wae", "vat", "transformer-vae", "vae-dense"])
def test_options_that_a_file_lacks_are_what_there_was(name: str) -> None:
    recipe = RECIPES[name]
    lacking = ["objective.per", "prior.noise", "decoder.first_state", "posterior.deviation"]
    old = Recipe.from_json(json.dumps(without(json.loads(recipe.to_json()), lacking)))
    changes = {"decoder.first_state": "code", "posterior.deviation": "exp"} if name == "vae-dense" else {}
    assert old == recipe.but(changes)
    if name == "wae":
        assert old.objective.per == "code"
    assert old.noise_deviation == 1


def test_a_decoder_without_a_kind_is_recurrent() -> None:
    assert Recipe.from_json('{"decoder": {"hidden": 64}}').decoder == RecurrentDecoder(hidden=64)


@pytest.mark.parametrize("corpus", SIZES)
@pytest.mark.parametrize("name", ["vae", "lstm-lm", "skip-vae", "default"])
def test_a_recipe_in_another_size_differs_in_nothing_else(name: str, corpus: str) -> None:
    embedding, hidden = {"ptb": (256, 256), "captions": (128, 512), "yahoo": (512, 1024)}[corpus]
    recipe = sized(RECIPES[name], corpus)
    assert (recipe.decoder.embedding, recipe.decoder.hidden) == (embedding, hidden)
    if recipe.encoder is not None:
        assert (recipe.encoder.embedding, recipe.encoder.hidden) == (embedding, hidden)
    sizes = [f"{part}.{size}" for part in ("encoder", "decoder") for size in ("embedding", "hidden")]
    if recipe.encoder is None:
        sizes = sizes[2:]
    data, before = (without(json.loads(r.to_json()), sizes) for r in (recipe, RECIPES[name]))
    assert data == before


@pytest.mark.parametrize("name", ["vat", "transformer-vae", "transformer-lm"])
def test_sizes_of_recurrent_networks_are_none_of_transformers(name: str) -> None:
    told = f"the sizes 'ptb' are of recurrent networks, and recipe '{name}' has Transformers: set hidden, layers, heads"
    with pytest.raises(TextspaceError, match=told):
        sized(RECIPES[name], "ptb")


def test_a_kind_of_network_is_one_setting_away() -> None:
    """Sizes that were left at their defaults become the other kind's."""
    recipe = RECIPES["vae"].with_settings(["encoder.kind=transformer", "decoder.kind=transformer"])
    assert (recipe.encoder.hidden, recipe.decoder.layers, recipe.decoder.heads) == (128, 4, 8)
    settings = ["decoder.kind=gru", "decoder.tie_output=false", "pooling.kind=mean", "share_embeddings=false"]
    back = RECIPES["vat"].with_settings(settings)
    assert (back.decoder.kind, back.is_token_level) == ("gru", False)
    build_objective(small(recipe), Model(small(recipe), 20))
    build_objective(small(back), Model(small(back), 20))


def test_an_unknown_size_is_one_sentence() -> None:
    with pytest.raises(TextspaceError, match=r"there are no sizes 'yaho'; did you mean 'yahoo'\?"):
        sized(RECIPES["vae"], "yaho")


@pytest.mark.parametrize(
    "written",
    [
        'objective.kl_weight={"kind": "linear", "start": 0.1, "over": Infinity}',
        "objective.kl_weight=Infinity",
        "training.optimizer.lr=Infinity",
        "training.optimizer.lr=NaN",
        "initial.weights=Infinity",
    ],
)
def test_numbers_that_json_cannot_hold_are_refused(written: str) -> None:
    """A recipe with one could not be read again when all is trained."""
    with pytest.raises(TextspaceError, match="finite number"):
        Recipe().with_settings([written])


def test_a_kernel_needs_a_scale() -> None:
    with pytest.raises(TextspaceError, match=r"objective.*scales.*at least 1 item"):
        Recipe().with_settings(['objective={"kind": "wae", "scales": []}'])
