import json

import pytest

from textspace.config import PLATEAU_PRESETS, Linear, Recipe
from textspace.errors import TextspaceError
from textspace.recipes import RECIPES
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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["latent.dmi=64"], "recipe has no option 'latent.dmi'; did you mean 'latent.dim'?"),
        (["latent.dim=-3"], "latent.dim is -3, but input should be greater than or equal to 1"),
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
        (["encoder=null"], "encoder is missing: give encoder, pooling, posterior and prior, or none"),
        (["decoder.tie_output=true", "decoder.hidden=9"], "decoder.tie_output needs decoder.embedding (256) to equal"),
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
        ("[]", "the recipe is []"),
        ('{"latnt": {}}', "recipe has no option 'latnt'"),
        ('{"objective": {"kind": "elbo", "beta": 1}}', "recipe has no option 'objective.beta'"),
        ('{"format": 99}', "the recipe has format 99 and this version of textspace reads up to 1"),
    ],
)
def test_foreign_recipes_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(TextspaceError) as told:
        Recipe.from_json(text)
    assert sentence in str(told.value)


def test_a_missing_recipe_file_is_one_sentence(tmp_path) -> None:
    with pytest.raises(TextspaceError, match="cannot read the recipe"):
        Recipe.load(tmp_path / "none.json")
