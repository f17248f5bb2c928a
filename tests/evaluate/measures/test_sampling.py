"""Ways to sample: of a dice of words, whose perplexity is known, and of a space that listens to its codes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.data.preparing import Prepared
from textspace.data.tokenizers import END, FIRST_PREDICTED
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort, Findings
from textspace.evaluate.measures import language_models
from textspace.evaluate.measures.language_models import language_model_of_text
from textspace.evaluate.measures.samples import sample_language_model
from textspace.evaluate.measures.sampling import MEASURES, REAL, WAYS, sampling_ways
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.text_metrics import distinct_ngrams
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.loop import Trainer

TEXTS = tiny_sentences(160)
KEYS = [way.key for way in (*WAYS, REAL)]


@pytest.fixture(autouse=True)
def _small_language_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_models, "UNITS", (24, 32))
    monkeypatch.setattr(language_models, "STEPS", 50)


def dice(tiny: Prepared, end: float) -> Space:
    """A space that draws every word alike, and the end with some probability, whatever the code."""
    recipe = small(RECIPES["vae"]).but({"decoder.output_bias": True})
    space = Space(recipe, tiny.tokenizer, Model(recipe, len(tiny.tokenizer)))
    tokens = len(tiny.tokenizer) - FIRST_PREDICTED
    p = torch.full((tokens,), (1 - end) / (tokens - 1))
    p[END - FIRST_PREDICTED] = end
    with torch.no_grad():
        space.model.decoder.output.zero_()
        space.model.decoder.output_bias.copy_(p.log())
    return space


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
def test_all_ways_have_the_entropy_of_a_dice_that_ignores_its_codes(tiny: Prepared) -> None:
    space = dice(tiny, 0.3)
    words = len(tiny.tokenizer) - FIRST_PREDICTED - 1
    entropy = -0.3 * math.log(0.3) - 0.7 * math.log(0.7 / words)
    real = [text for text in space.sample(2400, seed=1) if text]
    effort = Effort(prior_samples=300, language_model_epochs=2)
    found = sampling_ways(subject_on(space, {"train": real[:1200], "test": real[1200:]}, effort=effort))
    for key in KEYS[:-1]:
        estimate = found.estimates[f"perplexity_{key}"]
        assert estimate.value == pytest.approx(math.exp(entropy), rel=0.15), key
        assert estimate.n == 300
        assert estimate.stderr < 1
        length = found.estimates[f"length_{key}"]
        assert length.value == pytest.approx(0.7 / 0.3, abs=4 * length.stderr)
    assert "(sentenceMIM's)" in found.estimates["perplexity_tenth"].name
    assert "(addition)" in found.estimates["self_bleu4_chain"].name
    whose = {row[0]: row[1] for row in found.tables["ways"].rows}
    assert [whose[way.what] for way in WAYS] == ["the model's own", "sentenceMIM's", *["addition"] * 3]
    assert len(found.pictures["perplexity"].series["perplexity per word"]) == len(KEYS)


def test_numbers_are_those_of_what_the_space_samples(tiny: Prepared) -> None:
    space = untrained(small(RECIPES["vae"]).but({"initial.weights": 1.0, "decoder.output_bias": True}), tiny.tokenizer)
    with torch.no_grad():
        space.model.decoder.output_bias[END - FIRST_PREDICTED] += 3  # the end comes soon enough
    train, test = TEXTS[:120], TEXTS[120:]
    effort = Effort(prior_samples=30, language_model_epochs=1)
    subject = subject_on(space, {"train": train, "test": test}, effort=effort, seed=2)
    found = sampling_ways(subject)
    seed = seed_of(2, "samples from the prior")
    direct = {
        "prior": space.sample(30, seed=seed),
        "tenth": space.sample(30, deviation=0.1, seed=seed),
        "dim": space.sample(30, deviation="dim", seed=seed),
        "aggregated": space.sample(30, of=train, seed=seed),
        "chain": space.sample(30, chain=5, seed=seed),
        "real": [test[row] for row in some_rows(40, 30)],
    }
    assert list(direct) == KEYS
    model = language_model_of_text(subject).model
    for key, texts in direct.items():
        assert found.estimates[f"length_{key}"].value == np.mean([len(text.split()) for text in texts])
        assert found.estimates[f"distinct2_{key}"].value == distinct_ngrams([t.split() for t in texts], 2).share
        judged = likelihood(model, subject.encoded(texts)).estimates()["nll_ppl_word"]
        assert found.estimates[f"perplexity_{key}"].value == pytest.approx(judged.value)
        assert found.estimates[f"perplexity_{key}"].stderr == pytest.approx(judged.stderr)
    assert len({found.estimates[f"perplexity_{key}"].value for key in KEYS}) == len(KEYS)
    shown = [row[2] for row in found.tables["examples"].rows]
    assert shown == [text for key in KEYS[:-1] for text in direct[key][:5]]
    again = subject_on(space, {"train": train, "test": test}, effort=effort, seed=2)
    assert sampling_ways(again) == found


def test_the_language_model_is_trained_once_for_all_measures(tiny: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Trainer] = []
    run = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda self: runs.append(self) or run(self))
    effort = Effort(prior_samples=20, language_model_epochs=1)
    subject = subject_on(dice(tiny, 0.3), {"train": TEXTS[:120], "test": TEXTS[120:]}, effort=effort)
    first = sampling_ways(subject)
    assert len(runs) == 1
    second = sample_language_model(subject)
    assert len(runs) == 3
    assert first.estimates["perplexity_prior"].value == second.estimates["samples_under_real"].value


def test_findings_survive_json_and_say_how_errors_arise(tiny: Prepared) -> None:
    effort = Effort(prior_samples=10, language_model_epochs=1)
    subject = subject_on(dice(tiny, 0.9), {"train": TEXTS[:60], "test": TEXTS[60:80]}, effort=effort)
    for measure in MEASURES.values():
        found = measure.run(subject)  # most samples are empty
        assert Findings.from_dict(found.to_dict()) == found
        assert all("standard error" in estimate.settings["error"] for estimate in found.estimates.values())
