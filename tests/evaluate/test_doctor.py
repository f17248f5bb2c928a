"""The diagnosis: every state from numbers made by hand, its advice, its picture, and the command."""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences

from textspace.cli import judging, main
from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.data.encoded import EncodedSplit
from textspace.errors import TextspaceError
from textspace.evaluate import doctor as module
from textspace.evaluate import examination as examination_module
from textspace.evaluate.doctor import MEASURES, MEASURES_OF_TOKENS, REMEDIES, Diagnosis, diagnose
from textspace.evaluate.examination import Examination, draw_examination, examine, validations
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.posterior import posterior_statistics
from textspace.folder import write_record
from textspace.model import Model
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.space import Space

VAE = RECIPES["vae"]
WELL = {"kl": 8.0, "mi": 5.5, "active_units": 20, "feature_cosine": 0.4, "marginal_kl": 0.8, "reconstruction": 90.0}


def fallen(*kls: float) -> list[dict[str, float]]:
    return [{"epoch": epoch, "kl": kl} for epoch, kl in enumerate(kls, start=1)]


STATES: dict[str, tuple[dict[str, float], list[dict[str, float]], str]] = {
    "all is well": (WELL, [], "healthy"),
    "nothing active": (WELL | {"active_units": 0, "mi": 0.02}, [], "collapsed"),
    "nothing active and nothing else known": ({"active_units": 0, "reconstruction": 3.0}, [], "collapsed"),
    "nothing active on the prior's scale, and all told": (WELL | {"active_units": 0}, [], "healthy"),
    "no nats": (WELL | {"active_units": 1, "kl": 0.09, "mi": 0.05}, [], "collapsed"),
    "no KL alone": ({"kl": 0.05}, [], "collapsed"),
    "hardly any KL alone": ({"kl": 0.4}, [], "collapsing"),
    "a KL alone, as of one sentence": ({"kl": 2.94, "reconstruction": 38.0}, [], "unknown"),
    "a KL alone that fell": ({"kl": 1.9}, fallen(9, 4, 3, 2), "collapsing"),
    "a KL and what varies": ({"kl": 8.0, "active_units": 20}, [], "healthy"),
    "a KL and what is told": ({"kl": 8.0, "mi": 5.0}, [], "healthy"),
    "nothing told and no KL known": ({"mi": 0.05, "active_units": 2}, [], "collapsed"),
    "a KL that is no information": (WELL | {"mi": 0.05}, [], "collapsed"),
    "few active, little KL": (WELL | {"active_units": 3, "kl": 0.9, "mi": 0.5}, [], "collapsing"),
    "few active, enough KL": (WELL | {"active_units": 3, "kl": 1.1, "mi": 0.5}, [], "healthy"),
    "enough active, little KL": (WELL | {"active_units": 4, "kl": 0.9, "mi": 0.5}, [], "healthy"),
    "enough active, hardly any KL": (WELL | {"active_units": 9, "kl": 0.13, "mi": 0.1}, [], "collapsing"),
    "enough active and KL, hardly anything told": (WELL | {"active_units": 9, "kl": 2.0, "mi": 0.4}, [], "collapsing"),
    "few active, no KL known": ({"active_units": 3, "mi": 0.8}, [], "collapsing"),
    "fallen": (WELL | {"kl": 1.9}, fallen(9, 4, 3, 2), "collapsing"),
    "fallen less than by half": (WELL | {"kl": 1.9}, fallen(9, 3.7, 3, 2), "healthy"),
    "fallen and still high": (WELL | {"kl": 2.1}, fallen(12, 9, 7, 4), "healthy"),
    "fallen long ago": (WELL | {"kl": 1.9}, fallen(9, 2, 2, 2), "healthy"),
    "too early to tell": (WELL | {"kl": 1.9}, fallen(9, 3), "healthy"),
    "far from the prior": (WELL | {"marginal_kl": 5.1}, [], "overfull"),
    "near enough": (WELL | {"marginal_kl": 4.9}, [], "healthy"),
    "collapsed comes first": (WELL | {"marginal_kl": 50.0, "active_units": 0, "mi": 0.0}, [], "collapsed"),
    "points, without KL": ({"active_units": 30, "marginal_kl": 80.0, "reconstruction": 3.0}, [], "overfull"),
    "nothing known": ({}, [], "unknown"),
    "not enough known": ({"reconstruction": 90.0, "marginal_kl": 1.0}, [], "unknown"),
    "not numbers": ({"kl": float("nan"), "mi": float("inf")}, [], "unknown"),
}


@pytest.mark.parametrize("case", STATES)
def test_states(case: str) -> None:
    numbers, history, state = STATES[case]
    found = diagnose(numbers, VAE, history)
    assert found.state == state, found
    assert found.sentence.endswith(".")
    assert ". " not in found.sentence
    assert len(found.advice) == (0 if state in ("healthy", "unknown") else 2)


def test_sentences_hold_the_numbers() -> None:
    collapsed = diagnose({"kl": 0.021, "mi": -0.001, "active_units": 0, "feature_cosine": 0.987}, VAE).sentence
    for told in ("0 of 32 dimensions", "0.02 nats", "tells 0.00 nats", "cosine 0.99"):
        assert told in collapsed
    assert "fell from 4.00 to 1.90 nats" in diagnose(WELL | {"kl": 1.9}, VAE, fallen(4, 3, 2)).sentence
    overfull = diagnose(WELL | {"marginal_kl": 12.34}, VAE).sentence
    for told in ("12.3 nats", "at least 5.50 nats about its sentence", "samples from the prior will make little sense"):
        assert told in overfull
    assert "autoencoder" not in overfull
    for recipe in (RECIPES["ae"], VAE.but({"posterior.kind": "delta", "objective.kind": "reconstruction"})):
        assert "expected of an autoencoder" in diagnose(WELL | {"marginal_kl": 12.34}, recipe).sentence
    assert "language model" in diagnose(WELL, RECIPES["lstm-lm"]).sentence
    assert diagnose({"kl": 8.0}, VAE).sentence == (
        "How the codes are cannot be said from the KL alone: a code costs 8.00 nats (KL), which codes that are the "
        "same for all sentences may cost as well; give at least two sentences, so that their codes can be compared."
    )
    assert "give at least two sentences" in diagnose({"reconstruction": 9.0}, RECIPES["ae"]).sentence
    assert "alone" not in diagnose(WELL, VAE).sentence


def test_codes_that_are_small_beside_the_prior_are_not_called_unused() -> None:
    small_codes = diagnose(WELL | {"active_units": 0, "kl": 25.0}, VAE).sentence
    assert "none of 32 dimensions varies by a hundredth of the prior's variance" in small_codes
    assert "tells at least 5.50 nats" in small_codes
    assert "0 of 32" in diagnose({"active_units": 0}, VAE).sentence


def test_what_a_young_run_has_never_told_may_still_come() -> None:
    little, nothing = WELL | {"kl": 0.7, "mi": 0.2}, WELL | {"kl": 0.7, "mi": 0.05}
    for numbers, told in ((little, "hold little so far"), (nothing, "are collapsed so far")):
        young = diagnose(numbers, VAE, [{"mi": 0.09}], epochs=2)
        assert young.sentence.startswith(f"The codes {told}, after 2 epochs")
        assert "--epochs" in young.advice[0]
        older = diagnose(numbers, VAE, [{"mi": 0.09}], epochs=module.YOUNG)
        lost = diagnose(numbers, VAE, [{"mi": 0.6}], epochs=2)
        for other in (older, lost):
            assert other.state == young.state
            assert "so far" not in other.sentence
            assert "--epochs" not in other.advice[0]
    assert "after 1 epoch:" in diagnose(little, VAE, epochs=1).sentence


@pytest.mark.parametrize("name", ["vae", "ivae", "ton-vae", "hsvae"])
def test_what_a_code_tells_at_least_is_a_lower_bound(name: str, tiny) -> None:
    recipe = small(RECIPES[name])
    split = EncodedSplit.of(tiny_sentences(8), tiny.tokenizer, None)
    bound = posterior_statistics(Model(recipe, len(tiny.tokenizer)), split).estimates()["mi"].bound
    assert bound == ("lower" if name == "vae" else "none")
    told = "at least" if bound == "lower" else "roughly"
    assert f"and tells {told} 5.50 nats about its sentence" in diagnose(WELL, recipe).sentence
    assert "and tells 0.05 nats about its sentence" in diagnose(WELL | {"mi": 0.05}, recipe).sentence


def test_a_diagnosis_reads_well() -> None:
    lines = str(diagnose(WELL | {"active_units": 0, "mi": 0.02}, VAE)).splitlines()
    assert [line[:5] for line in lines[1:]] == ["Try: ", " or: "]
    assert str(diagnose(WELL, VAE)) == diagnose(WELL, VAE).sentence


# Advice


def advised(recipe: Recipe, numbers: dict[str, float]) -> list[str]:
    return [each.partition(" (")[0] for each in diagnose(numbers, recipe).advice]


COLLAPSED, OVERFULL = WELL | {"active_units": 0, "mi": 0.02}, WELL | {"marginal_kl": 30.0}


def test_advice_follows_the_table_and_skips_what_the_recipe_uses() -> None:
    free_bits, default, skip = "--set objective.free_bits.target=4", "--recipe default", "--set decoder.skip=true"
    assert advised(VAE, COLLAPSED) == ["--recipe pretrain-free-bits", free_bits]
    assert advised(RECIPES["pretrain-free-bits"], COLLAPSED) == [skip, default]
    changed = {"name": "default", "decoder.skip": True, "pooling.kind": "mean", "objective.kl_weight": 0.3}
    assert advised(RECIPES["pretrain-free-bits"].but(changed), COLLAPSED) == [
        "--set training.update.kind=aggressive",
        "--set decoder.word_dropout=0.4",
    ]
    assert advised(VAE.but({"objective.free_bits.target": 1.0}), COLLAPSED) == ["--recipe pretrain-free-bits", skip]
    # neither free bits nor a weight go with these
    assert advised(RECIPES["iwae"], COLLAPSED) == ["--recipe pretrain-free-bits", skip]
    assert advised(RECIPES["wae"], COLLAPSED) == ["--recipe pretrain-free-bits", skip]
    assert advised(RECIPES["ae"], OVERFULL) == ["--set objective.kl_weight=1", "--recipe pretrain-free-bits"]
    assert advised(RECIPES["default"], OVERFULL)[0] == "--set objective.kl_weight=1"  # its schedule ends below
    assert advised(RECIPES["vae-anneal"], OVERFULL)[0] == "--recipe pretrain-free-bits"  # its schedule ends at 1
    assert advised(RECIPES["wae"], OVERFULL) == ["--recipe pretrain-free-bits", "--set objective.mmd_weight=1000"]


VAT = RECIPES["vat"]
TOKENS_WELL = WELL | {"kl": 80.0, "token_kl": 5.0, "mi": 4.5, "active_units": 90}
TOKEN_STATES: dict[str, tuple[dict[str, float], list[float], str]] = {
    "all is well": (TOKENS_WELL, [], "healthy"),
    "nothing active": (TOKENS_WELL | {"active_units": 0, "mi": 0.02}, [], "collapsed"),
    "nothing told, however many tokens": (TOKENS_WELL | {"kl": 1.4, "token_kl": 0.07, "mi": 0.03}, [], "collapsed"),
    "little told": (TOKENS_WELL | {"kl": 8.0, "token_kl": 0.4, "mi": 0.3}, [], "collapsing"),
    "few active, little told": (TOKENS_WELL | {"token_kl": 0.9, "mi": 0.8, "active_units": 12}, [], "collapsing"),
    "fallen": (TOKENS_WELL | {"token_kl": 1.9}, [9, 4, 3, 2], "collapsing"),
    "far from the prior": (TOKENS_WELL | {"marginal_kl": 5.1}, [], "overfull"),
    "a sentence's KL alone": ({"kl": 22.16, "reconstruction": 67.0}, [], "unknown"),
    "no KL in a whole sentence": ({"kl": 0.05, "reconstruction": 67.0}, [], "collapsed"),
    "a sentence's KL is not held against tokens'": ({"kl": 1.9}, [9, 4, 3, 2], "unknown"),
}


@pytest.mark.parametrize("case", TOKEN_STATES)
def test_where_every_token_has_a_code_its_own_numbers_count(case: str) -> None:
    numbers, before, state = TOKEN_STATES[case]
    history = [{"epoch": epoch, "kl": 99.0, "token_kl": kl} for epoch, kl in enumerate(before, start=1)]
    found = diagnose(numbers, VAT, history)
    assert found.state == state, found
    assert ". " not in found.sentence
    assert "about its sentence" not in found.sentence
    assert len(found.advice) == (0 if state in ("healthy", "unknown") else 2)


def test_the_kl_of_a_sentence_is_told_where_that_of_its_tokens_is_not_known() -> None:
    together = "the codes of a sentence cost 22.16 nats (KL) together, which codes that are the same for all tokens may"
    assert together in diagnose({"kl": 22.16}, VAT).sentence
    assert "the codes of a sentence cost 0.05 nats (KL) together." in diagnose({"kl": 0.05}, VAT).sentence
    assert "of a sentence cost" not in diagnose(TOKENS_WELL, VAT).sentence


def test_sentences_speak_of_tokens_where_these_have_codes() -> None:
    collapsed = TOKENS_WELL | {"active_units": 0, "token_kl": 0.021, "mi": 0.0, "feature_cosine": 0.987}
    told = diagnose(collapsed, VAT).sentence
    for part in (
        "0 of 128 dimensions change with the token",
        "a code costs 0.02 nats (KL) and tells 0.00 nats about its",
    ):
        assert part in told
    assert "two tokens' features have cosine 0.99" in told
    assert (
        "a code costs 5.00 nats (KL) and tells at least 4.50 nats about its token"
        in diagnose(TOKENS_WELL, VAT).sentence
    )


def test_a_space_of_tokens_is_advised_to_stay_one() -> None:
    """A narrower prior is no remedy: with codes as much smaller it has the same KL. Nor is what only recurrent decoders
    have, or a recipe with a code for the sentence."""
    for name in ("vat", "vat-small"):
        for numbers in (TOKENS_WELL | {"active_units": 0, "mi": 0.02}, TOKENS_WELL | {"marginal_kl": 30.0}):
            found = advised(RECIPES[name], numbers)
            assert not any(each.startswith(("--recipe", "--set decoder.skip", "--set prior.scale")) for each in found)
    weight, bits = "--set objective.kl_weight=0.01", "--set objective.free_bits.target=30"
    assert advised(VAT, TOKENS_WELL | {"active_units": 0, "mi": 0.02}) == [weight, bits]
    both = VAT.but({"objective": {"kind": "elbo", "kl_weight": 0.01, "free_bits": {}}})
    assert advised(both, TOKENS_WELL | {"active_units": 0, "mi": 0.02})[0] == "--set pretrain.keep=both"
    assert not {weight, bits} & set(advised(RECIPES["transformer-vae"], COLLAPSED))
    assert "--set decoder.skip=true" not in advised(RECIPES["transformer-vae"], COLLAPSED)
    assert "--set prior.learned=true" in advised(VAT, TOKENS_WELL | {"marginal_kl": 30.0})
    assert "--set prior.learned=true" not in advised(
        VAT.but({"prior.learned": True}), TOKENS_WELL | {"marginal_kl": 30.0}
    )


def test_an_examination_of_tokens_measures_and_draws(tiny: Any, split: Any, tmp_path: Path) -> None:
    recipe = small(VAT)
    found = examine(Model(recipe, len(tiny.tokenizer)), split, recipe)
    assert list(found.numbers) == [name for name in MEASURES_OF_TOKENS if name in found.numbers]
    assert found.numbers.keys() == MEASURES_OF_TOKENS.keys()
    assert found.numbers["kl"] > 3 * found.numbers["token_kl"] > 0
    assert Examination.from_dict(json.loads(json.dumps(found.to_dict()))).diagnosis == found.diagnosis
    history: list[dict[str, Any]] = [TOKENS_WELL | {"epoch": epoch} for epoch in (1, 2)]
    assert all(path.is_file() for path in draw_examination(found, history, tmp_path / "tokens"))
    sentences = "sentence", "sentences'"
    assert not any(
        word in MEASURES_OF_TOKENS[name] for name in ("mi", "active_units", "token_kl") for word in sentences
    )


EVERYTHING = RECIPES["pretrain-free-bits"].but(
    {
        "pooling.kind": "max",
        "objective.kl_weight": 0.5,
        "training.update.kind": "aggressive",
        "decoder.word_dropout": 0.3,
        "decoder.skip": True,
        "latent.dim": 8,
    }
)


@pytest.mark.parametrize("name", [*RECIPES, "everything"])
def test_two_things_to_try_that_work_for_every_recipe(name: str) -> None:
    recipe = EVERYTHING if name == "everything" else RECIPES[name]
    for numbers in (COLLAPSED, OVERFULL):
        found = advised(recipe, numbers)
        if recipe.posterior is None:
            assert found == []
            continue
        assert len(set(found)) == 2
        for fragment in found:
            option, value = fragment.split(" ")
            tried = RECIPES[value] if option == "--recipe" else recipe.with_settings([value])
            assert tried != recipe
            with torch.device("meta"):
                build_objective(tried, Model(small(tried), 20))


def test_the_table_names_recipes_and_options_that_exist() -> None:
    for remedy in (remedy for row in REMEDIES.values() for remedy in row):
        option, value = remedy.fragment.split(" ")
        if option == "--recipe":
            assert value in RECIPES
        else:
            assert any(module._can_take(recipe, remedy.fragment) for recipe in RECIPES.values()), value
        assert not remedy.why.endswith(".")


# Examination and picture


@pytest.fixture(scope="module")
def split(tiny: Any) -> Any:
    return tiny.encoded.splits["train"]


def test_an_examination_measures_and_comes_back_from_json(tiny_model: Model, split: Any) -> None:
    found = examine(tiny_model, split, tiny_model.recipe, seed=2)
    likely = likelihood(tiny_model, split, seed=2).estimates()
    lying = posterior_statistics(tiny_model, split, seed=2).estimates()
    assert list(found.numbers) == list(MEASURES)
    assert found.numbers == {name: (likely | lying)[name].value for name in MEASURES}
    assert found.diagnosis == diagnose(found.numbers, tiny_model.recipe)
    stored = json.loads(json.dumps(found.to_dict()))
    back = Examination.from_dict(stored)
    assert (back.numbers, back.diagnosis) == (found.numbers, found.diagnosis)
    assert back.to_dict() == found.to_dict()
    dimensions = stored["statistics"]["deviation"]
    assert dimensions == [float(f"{value:.6g}") for value in found.statistics.deviation_Z]


def make_all_alike(model: Model) -> None:
    """All codes are the same, far from the prior."""
    with torch.no_grad():
        model.posterior.mean.weight.zero_()
        model.posterior.mean.bias.fill_(2.0)


@pytest.mark.parametrize("recipe", [VAE, VAT, RECIPES["smim-ae"]], ids=lambda recipe: recipe.name)
def test_one_sentence_is_not_enough_to_call_codes_healthy(tiny: Any, recipe: Recipe) -> None:
    recipe, texts = small(recipe), tiny_sentences(60)
    model = Model(recipe, len(tiny.tokenizer))
    make_all_alike(model)
    one, several = (examine(model, EncodedSplit.of(some, tiny.tokenizer, None), recipe) for some in (texts[:1], texts))
    assert (one.statistics, one.diagnosis.state) == (None, "unknown")
    assert one.diagnosis.sentence.endswith("give at least two sentences, so that their codes can be compared.")
    if "kl" in one.numbers:  # not of an autoencoder
        assert one.numbers["kl"] > 1
        assert f"{one.numbers['kl']:.2f} nats (KL)" in one.diagnosis.sentence
    assert several.diagnosis.state == "collapsed"


def test_an_examination_knows_what_came_before(tiny_model: Model, split: Any) -> None:
    with torch.no_grad():  # codes that differ, about 0
        head, batch = tiny_model.posterior.mean, make_batch(split, np.arange(len(split)))
        head.weight.mul_(100)
        head.bias.sub_(head(tiny_model.features(batch.encoder)).mean(0))
    now = examine(tiny_model, split, tiny_model.recipe)
    assert now.diagnosis.state == "healthy"
    assert now.numbers["kl"] < 2
    before = fallen(*[now.numbers["kl"] * 3] * 3)
    assert examine(tiny_model, split, tiny_model.recipe, history=before).diagnosis.state == "collapsing"


def test_a_language_model_is_examined_too(tiny: Any, split: Any, tmp_path: Path) -> None:
    recipe = small(RECIPES["lstm-lm"])
    found = examine(Model(recipe, len(tiny.tokenizer)), split, recipe)
    assert found.statistics is None
    assert found.diagnosis.state == "unknown"
    assert list(found.numbers) == ["reconstruction"]
    assert Examination.from_dict(found.to_dict()) == found
    assert draw_examination(found, [], tmp_path / "nothing") == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: [],
        lambda data: {},
        lambda data: data | {"numbers": None},
        lambda data: data | {"numbers": {"kl": "much"}},
        lambda data: data | {"diagnosis": {"state": "odd", "sentence": "", "advice": []}},
        lambda data: data | {"statistics": {"kl": []}},
        lambda data: data | {"statistics": data["statistics"] | {"deviation": [1.0]}},
        lambda data: data | {"statistics": data["statistics"] | {"mi": 3}},
    ],
)
def test_damaged_examinations_are_refused(damage: Any, tiny_model: Model, split: Any) -> None:
    stored = examine(tiny_model, split, tiny_model.recipe).to_dict()
    with pytest.raises(TextspaceError, match="the stored examination is damaged"):
        Examination.from_dict(damage(stored))


def test_pictures(tiny: Any, tiny_model: Model, split: Any, tmp_path: Path) -> None:
    found = examine(tiny_model, split, tiny_model.recipe)
    history: list[dict[str, Any]] = [WELL | {"epoch": epoch, "event": "validation"} for epoch in (1, 2)]
    paths = draw_examination(found, history, tmp_path / "deep" / "a.space")
    assert [path.name for path in paths] == ["a.space.png", "a.space.svg"]
    assert paths[0].read_bytes()[:4] == b"\x89PNG"
    assert all(path.stat().st_size > 10_000 for path in paths)
    pictures = {
        "without a run": draw_examination(found, [], tmp_path / "one"),
        "the run alone": draw_examination(Examination({}, None, Diagnosis("unknown", "?")), history, tmp_path / "two"),
        "only the KL": draw_examination(found, fallen(3.0, 2.0), tmp_path / "three"),
    }
    recipe = small(VAE).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    points = examine(Model(recipe, len(tiny.tokenizer)), split, recipe)
    pictures["points"] = draw_examination(points, [], tmp_path / "four")
    assert all(path.is_file() for paths in pictures.values() for path in paths)
    (tmp_path / "file").write_text("")
    with pytest.raises(TextspaceError, match=r"could not write .*file: .*; name another place with --out$"):
        draw_examination(found, [], tmp_path / "file" / "below")
    (tmp_path / "five.svg").mkdir()
    with pytest.raises(TextspaceError, match=r"could not write .*five.svg: "):
        draw_examination(found, [], tmp_path / "five")


def test_what_the_picture_shows(tiny_model: Model, split: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from matplotlib.figure import Figure

    figures: list[Any] = []
    saved = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *given, **more: figures.append(self) or saved(self, *given, **more)
    )
    found = examine(tiny_model, split, tiny_model.recipe)
    draw_examination(found, [WELL | {"epoch": epoch} for epoch in (1, 2)], tmp_path / "shown")
    axes = figures[0].get_axes()
    assert len(axes) == 3 + 4
    heights = [[bar.get_height() for bar in axis.patches] for axis in axes[:3]]
    order = np.argsort(-found.statistics.kl_Z)
    np.testing.assert_allclose(heights[0], found.statistics.kl_Z[order])
    assert heights[0] == sorted(heights[0], reverse=True)
    np.testing.assert_allclose(heights[1], found.statistics.mean_variance_Z[order].clip(1e-7))
    np.testing.assert_allclose(heights[2], found.statistics.deviation_Z[order])
    assert axes[1].get_yscale() == "log"
    assert set(axes[1].lines[0].get_ydata()) == {0.01}
    assert [list(axis.lines[0].get_ydata()) for axis in axes[3:]] == [
        [WELL[name]] * 2 for name in ("kl", "mi", "active_units", "feature_cosine")
    ]
    assert found.diagnosis.sentence == " ".join(figures[0].get_suptitle().split())


# The command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    Space.fit(tiny_sentences(), small(VAE), out=folder / "space", device="cpu")
    (folder / "my.txt").write_text("\n".join(tiny_sentences(60)))
    (folder / "splits").mkdir()
    for name, count in (("train", 50), ("valid", 30), ("test", 20)):
        (folder / "splits" / f"{name}.txt").write_text("\n".join(tiny_sentences(count)))
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy to damage, without any examination."""
    shutil.copytree(trained, tmp_path / "copy")
    change_metrics(tmp_path / "copy", examination=None)
    return tmp_path / "copy"


def change_metrics(folder: Path, **entries: Any) -> None:
    metrics = json.loads((folder / "space" / "metrics.json").read_text()) | entries
    write_record(folder / "space", {name: value for name, value in metrics.items() if value is not None})


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second each."""
    monkeypatch.setattr(
        examination_module, "draw_examination", lambda examination, history, stem: [stem.with_suffix(".png")] * 2
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["textspace", "doctor", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(folder),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_the_doctor_measures_on_text(folder: Path) -> None:
    code, out, err = run(folder, "space", "--data", "my.txt")
    assert code == 0, err
    words = " ".join(out.split())
    assert "KL: nats a code costs" in words
    assert "lower bound" in words
    assert "The codes " in out
    assert ("Try: --" in out) == ("healthy" not in out)
    assert "The picture is in space/doctor.png and doctor.svg." in out
    assert (folder / "space" / "doctor.png").is_file()
    assert (folder / "space" / "doctor.svg").is_file()


@pytest.mark.parametrize(("out", "picture"), [(".", "doctor.png"), ("splits", "splits/doctor.png"), ("a.png", "a.png")])
def test_pictures_go_into_a_folder_or_under_a_name(out: str, picture: str, trained: Path) -> None:
    code, told, err = run(trained, "space", "--out", out)
    assert code == 0, err
    assert f"The picture is in {picture} and " in told
    assert (trained / picture).is_file()
    (trained / picture).unlink()
    (trained / picture).with_suffix(".svg").unlink()


def test_the_diagnosis_is_told_where_no_picture_can_be_written(folder: Path) -> None:
    (folder / "space" / "doctor.png").mkdir()
    told = "could not write {}: Is a directory; name another place with --out\n"
    code, out, err = run(folder, "space", "--data", "my.txt")
    assert code == 0
    assert err.splitlines(keepends=True)[-1] == told.format("space/doctor.png")
    assert "sentences are in the text the space was trained on" in err  # most of my.txt
    assert "The codes " in out
    assert "The picture" not in out
    code, out, err = run(folder, "space", "--data", "my.txt", "--json")
    assert code == 0
    assert err.splitlines(keepends=True)[-1] == told.format("space/doctor.png")
    assert "sentences are in the text the space was trained on" in err  # most of my.txt
    assert json.loads(out)["pictures"] == []
    code, asked, err = run(folder, "space", "--data", "my.txt", "--json", "--out", "space/doctor")
    assert code == 2
    assert err.splitlines(keepends=True)[-1] == "textspace: " + told.format("space/doctor.png")  # asked for too
    assert asked == out


@pytest.mark.usefixtures("no_pictures")
def test_the_doctor_gives_json_of_the_right_sentences(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, err = run(folder, "space", "--json", *arguments)
        assert code == 0, err
        data = json.loads(out)
        return data["statistics"]["sentences"], data

    count, data = counted("--data", "my.txt", "--out", "pictures/mine.png")
    assert count == 60
    assert data["pictures"] == ["pictures/mine.png"] * 2
    assert set(data["numbers"]) == set(MEASURES)
    assert counted("--data", "splits")[0] == 30  # the validation split where there is one
    assert counted("--data", "splits", "--split", "test")[0] == 20
    space = Space.load(folder / "space", "cpu")
    assert data["numbers"]["kl"] == pytest.approx(space.score(tiny_sentences(60), samples=0).kl_N["z"].mean(), rel=1e-4)
    monkeypatch.setattr(judging, "EXAMINED", 7)
    assert counted("--data", "my.txt")[0] == 7
    assert "examined 7 of 60 sentences, drawn at random" in run(folder, "space", "--data", "my.txt")[2]


@pytest.mark.usefixtures("no_pictures")
def test_the_doctor_remembers_what_training_measured(folder: Path) -> None:
    space = Space.load(folder / "space", "cpu")
    code, out, _ = run(folder, "space", "--data", "my.txt", "--json")
    assert code == 0
    stored = json.loads(out)
    stored.pop("pictures")
    change_metrics(folder, examination=stored)
    code, out, _ = run(folder, "space", "--json")
    assert code == 0
    again = json.loads(out)
    again.pop("pictures")
    assert again == stored
    # what is said follows from the numbers, whatever was said then
    stored["numbers"] = WELL | {"active_units": 0, "mi": 0.02}
    change_metrics(folder, examination=stored)
    code, out, _ = run(folder, "space")
    assert code == 0  # a collapse is a finding, not a failure
    assert f"0 of {space.dim} dimensions change with the sentence" in out
    assert "--recipe pretrain-free-bits" in out


@pytest.mark.usefixtures("no_pictures")
def test_without_an_examination_the_log_tells(folder: Path) -> None:
    change_metrics(folder, trained={"best_step": 20}, kept=None)
    log = folder / "space" / "steps.jsonl"
    lines = [
        {"event": "validation", "step": step, "epoch": step / 10, "kl": kl, "mi": 0.6 * kl, "reconstruction": 9.0}
        for step, kl in ((10, 7.0), (20, 8.25), (30, 0.01))
    ]
    log.write_text("\n".join(map(json.dumps, lines)) + '\n{"event": "vali')  # killed while it wrote
    assert [line["step"] for line in validations(folder / "space")] == [10, 20, 30]
    code, out, err = run(folder, "space")
    assert code == 0, err
    assert "healthy: a code costs 8.25 nats" in out  # of the weights that were kept
    assert "kept after epoch 2 (step 20)" in out
    assert "The run went on to epoch 3 (step 30)" in out
    (folder / "space" / "metrics.json").write_text("{")
    code, out, err = run(folder, "space")
    assert (code, out) == (2, "")  # which weights these are is not known
    assert "no log of the weights in it: give text to measure on" in err
    (folder / "space" / "metrics.json").write_text('{"trained": {"best_step": 40}}')
    later = [*lines, lines[-1] | {"step": 40}]
    change = [line | {"kl": kl, "mi": 1.0} for line, kl in zip(later, (6.0, 5.0, 4.0, 1.5), strict=True)]
    log.write_text("\n".join(map(json.dumps, change)))
    assert "within 3 validations the KL fell from 6.00 to 1.50" in run(folder, "space")[1]
    log.write_text(json.dumps({"event": "validation", "step": 40, "epoch": 1.0, "kl": 8.25}))
    code, out, err = run(folder, "space")
    assert (code, out) == (2, "")  # the KL alone is not enough
    assert "give text to measure on, such as --data my.txt" in err


@pytest.mark.usefixtures("no_pictures")
def test_the_doctor_asks_for_more_than_one_sentence(folder: Path) -> None:
    (folder / "one.txt").write_text(tiny_sentences(1)[0] + "\n")
    space = Space.load(folder / "space", "cpu")
    make_all_alike(space.model)
    space.save(folder / "alike")
    code, out, err = run(folder, "alike", "--data", "one.txt")
    assert code == 0, err
    assert "cannot be said from the KL alone" in out
    assert "give at least two sentences" in out
    assert "have collapsed" in run(folder, "alike", "--data", "my.txt")[1]


@pytest.mark.parametrize("log", [None, "", "not json", "[1]\n", '{"event": "validation", "step": 1, "nll": 3}\n'])
def test_with_nothing_to_go_by_the_doctor_asks_for_text(folder: Path, log: str | None) -> None:
    (folder / "space" / "metrics.json").unlink()
    (folder / "space" / "steps.jsonl").unlink()
    if log is not None:
        (folder / "space" / "steps.jsonl").write_text(log)
    code, out, err = run(folder, "space")
    assert (code, out) == (2, "")
    assert err == (
        "textspace: space holds no examination, and no log of the weights in it: give text to measure on, such as "
        "--data my.txt\n"
    )


@pytest.mark.usefixtures("no_pictures")
def test_a_damaged_examination_is_told(folder: Path) -> None:
    change_metrics(folder, examination={"numbers": 3})
    code, out, err = run(folder, "space")
    assert (code, out) == (2, "")
    assert err == (
        "textspace: the examination stored in space is damaged: give text to measure on, such as --data my.txt\n"
    )
    assert run(folder, "space", "--data", "my.txt")[0] == 0


@pytest.mark.usefixtures("_own_cache")
def test_a_language_model_needs_no_doctor(tmp_path: Path) -> None:
    recipe = small(RECIPES["lstm-lm"]).but({"training.epochs": 1})
    Space.fit(tiny_sentences(60), recipe, out=tmp_path / "space", device="cpu")
    (tmp_path / "my.txt").write_text("\n".join(tiny_sentences(20)))
    for arguments in ([], ["--data", "my.txt"]):
        code, out, err = run(tmp_path, "space", *arguments)
        assert code == 0, err
        assert "language model" in out
        assert "picture" not in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("nowhere", "nowhere is not a trained space: it is not there"),
        ("space --data none.txt", "none.txt"),
        ("space --data splits --split tset", "did you mean 'test'?"),
    ],
)
def test_mistakes_are_one_line(trained: Path, arguments: str, told: str) -> None:
    code, _, err = run(trained, *arguments.split())
    assert code == 2
    assert told in err
    assert len(err.strip().splitlines()) == 1


def test_help_has_examples(trained: Path) -> None:
    code, out, _ = run(trained, "--help")
    assert code == 0
    assert "textspace doctor my-space" in out
