"""Reading dimensions: planted ones whose meaning is known, and a real gated space against its own encode and decode."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import untrained

from textspace.data.tokenizers import train_tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.statistics import some_rows
from textspace.features import Dimension, Features, Side, read_features
from textspace.features.activity import Activity, activity
from textspace.features.reading import Read, read_dimensions
from textspace.features.switching import switched
from textspace.recipes import RECIPES
from textspace.space import Space

SENTENCES = tiny_sentences(120)
LABELS = [text.split()[1] for text in SENTENCES]


def made(recipe: str, gates: float = 1.0, weights: float = 0.5) -> Space:
    """An untrained space; its gates are steeper by a factor, so that they differ between sentences."""
    chosen = small(RECIPES[recipe]).but({"initial.weights": weights, "latent.dim": 6, "training.seed": 4})
    space = untrained(chosen, train_tokenizer(chosen.text.tokenizer, SENTENCES))
    if gates != 1.0:
        with torch.no_grad():
            for parameter in space.model.posterior.gates[-1].parameters():  # type: ignore[union-attr, index]
                parameter.mul_(gates)
    return space


@pytest.fixture(scope="module")
def gated() -> Space:
    return made("hsvae", gates=8.0)


@pytest.fixture(scope="module")
def found(gated: Space) -> Features:
    return read_features(gated, SENTENCES, LABELS, seed=1)


def planted() -> Read:
    """Four dimensions: on where there is soup, never on, always on and high where it is cold, on where there is tea."""
    chance = np.random.default_rng(0)
    soup_N, cold_N = chance.random(400) < 0.25, chance.random(400) < 0.5
    texts = [
        f"the {'soup' if s else 'tea'} is {'cold' if c else 'hot'} {row % 7}"
        for row, (s, c) in enumerate(zip(soup_N, cold_N, strict=True))
    ]
    on_ZN = np.stack([np.where(soup_N, 0.9, 0.2), np.full(400, 0.4), np.full(400, 0.8), np.where(soup_N, 0.1, 0.5)])
    slab_ZN = np.stack([2 + np.arange(400) / 400, np.ones(400), np.where(cold_N, 1.0, -1.0), -np.ones(400)])
    labels = ["eat" if s else "drink" for s in soup_N]
    values_ZN = np.where(on_ZN >= 0.5, slab_ZN, 0.0)
    return Read(texts, labels, Activity(values_ZN.astype(np.float32), on_ZN.astype(np.float32)))


def test_planted_dimensions_are_read() -> None:
    read = planted()
    soup, never, always, tea = read_dimensions(read, top=3)
    soup_N = np.array(["soup" in text for text in read.texts])
    assert soup.state == tea.state == "varies"
    assert (soup.density, tea.density) == (pytest.approx(soup_N.mean()), pytest.approx(1 - soup_N.mean()))
    on, off = soup.sides
    assert (on.name, off.name, on.sentences, off.sentences) == ("on", "off", soup_N.sum(), (~soup_N).sum())
    assert (on.words[0].word, off.words[0].word) == ("soup", "tea")
    assert on.typical == pytest.approx(np.median((2 + np.arange(400) / 400)[soup_N]))
    assert (off.typical, off.examples) == (0.0, ())
    assert tea.sides[0].typical == -1.0  # exactly 0.5 is on, and the sign is kept
    assert never.state == "dead"
    assert (never.density, never.sides, never.labels) == (0.0, (), None)
    assert soup.labels is not None
    assert (soup.labels.label, soup.labels.lift) == ("eat", pytest.approx(1 / soup_N.mean()))
    entropy = -sum(share * np.log(share) for share in (soup_N.mean(), 1 - soup_N.mean()))
    assert soup.labels.information == pytest.approx(entropy)
    assert soup.labels.is_clear
    assert tea.labels is not None
    assert tea.labels.label == "drink"
    assert always.labels is not None
    assert not always.labels.is_clear  # whether it is cold has nothing to do with soup


def test_a_dimension_that_is_always_on_is_read_by_its_ends() -> None:
    always = read_dimensions(planted())[2]
    assert (always.state, always.density) == ("always on", 1.0)
    high, low = always.sides
    assert (high.name, low.name, high.typical, low.typical) == ("high", "low", 1.0, -1.0)
    assert (high.words[0].word, low.words[0].word) == ("cold", "hot")
    assert {each.value for each in low.examples} == {-1.0}


def test_a_dimension_on_with_both_signs_is_read_by_its_ends_too() -> None:
    read = planted()
    on_ZN, values_ZN = read.activity.on_ZN, read.activity.values_ZN.copy()
    assert on_ZN is not None
    cold_N = np.array(["cold" in text for text in read.texts])
    values_ZN[0] *= np.where(cold_N, 1, -1)  # on where there is soup, and the sign says whether it is cold
    soup = read_dimensions(read._replace(activity=Activity(values_ZN, on_ZN)))[0]
    on, _, high, low = soup.sides
    assert [side.name for side in soup.sides] == ["on", "off", "high", "low"]
    assert high.sentences + low.sentences == on.sentences
    assert [side.words[0].word for side in soup.sides] == ["soup", "tea", "cold", "hot"]
    assert {word.word for side in (high, low) for word in side.words}.isdisjoint({"soup", "tea"})  # all have soup
    assert high.typical == pytest.approx(np.median(values_ZN[0][values_ZN[0] > 0]))
    assert soup.labels is not None
    assert soup.labels.label == "eat"


def test_the_strongest_sentences_come_first_and_once() -> None:
    read = planted()
    probability_N, slab_N = read.activity.on_ZN[0], read.activity.values_ZN[0]  # type: ignore[index]
    soup = read_dimensions(read, top=5)[0]
    examples = soup.sides[0].examples
    strength_N = probability_N * np.abs(slab_N)
    expected: list[str] = []
    for row in sorted(range(400), key=lambda row: (-strength_N[row], row)):
        if read.texts[row] not in expected:
            expected.append(read.texts[row])
    assert [each.text for each in examples] == expected[:5]
    assert examples[0].row == np.flatnonzero(slab_N)[-1]
    assert examples[0].strength == pytest.approx(0.9 * examples[0].value)
    tea = read_dimensions(read, top=2)[3]  # all equally strong
    assert tea.sides[0].examples[0].row == np.flatnonzero(read.activity.values_ZN[3])[0]


def test_a_dense_space_is_read_by_ends_and_variance() -> None:
    read = planted()
    dense = read._replace(activity=Activity(read.activity.values_ZN, None))
    soup, never, always, _ = read_dimensions(dense, least=0.01)
    assert (soup.density, soup.state, never.state, always.state) == (None, "varies", "dead", "varies")
    assert always.variance == pytest.approx(1.0, abs=0.05)
    assert [side.name for side in soup.sides] == ["high", "low"]
    assert soup.sides[0].words[0].word == "soup"
    assert soup.sides[0].examples[0].on is None


def test_activity_is_what_encode_gives(gated: Space) -> None:
    values_ZN, on_ZN = activity(gated, SENTENCES)
    gates_NZ = gated.encode(SENTENCES, what="gates")
    assert on_ZN is not None
    np.testing.assert_array_equal(on_ZN, gates_NZ.T)
    np.testing.assert_array_equal(values_ZN, gated.encode(SENTENCES, sparse=True).toarray().T)
    dense = made("vae-dense")
    values_ZN, nothing = activity(dense, SENTENCES)
    assert nothing is None
    np.testing.assert_array_equal(values_ZN, dense.encode(SENTENCES).T)


def test_densities_are_those_of_the_space(gated: Space, found: Features) -> None:
    on_NZ = gated.encode(SENTENCES, what="gates") >= 0.5
    assert 0 < on_NZ.mean() < 1
    assert {each.state for each in found.dimensions} >= {"varies"}
    assert [each.density for each in found.dimensions] == pytest.approx(on_NZ.mean(0).tolist())
    assert found.on_per_sentence is not None
    assert found.on_per_sentence.value == pytest.approx(on_NZ.sum(1).mean())
    assert found.on_per_sentence.stderr == pytest.approx(on_NZ.sum(1).std(ddof=1) / np.sqrt(len(SENTENCES)))
    assert found.classes == {
        name: LABELS.count(name) for name in sorted(set(LABELS), key=lambda n: (-LABELS.count(n), n))
    }


def test_switching_is_decoding_a_changed_code(gated: Space, found: Features) -> None:
    probes = [SENTENCES[5], SENTENCES[9]]
    read = read_features(gated, SENTENCES, probes=probes)
    codes = gated.encode(probes, sparse=True).toarray()
    on = gated.encode(probes, what="gates") >= 0.5
    assert [each.decoded for each in read.probes] == gated.decode(codes)
    assert [each.on for each in read.probes] == [tuple(np.flatnonzero(row)) for row in on]
    varying = [each for each in read.dimensions if each.state == "varies"]
    assert {effect.after for each in varying for effect in each.effects} == {"on", "off"}
    for each in varying:
        for effect in each.effects:
            code = codes[effect.probe].copy()
            was_on = bool(on[effect.probe, each.number])
            assert (effect.before, effect.after) == (("on", "off") if was_on else ("off", "on"))
            code[each.number] = 0.0 if was_on else each.sides[0].typical
            assert effect.decoded == gated.decode(code)
            assert effect.changed == (effect.decoded != read.probes[effect.probe].decoded)
    assert [probe.text for probe in found.probes] == SENTENCES[:3]


def test_one_string_is_one_probe(gated: Space) -> None:
    one = read_features(gated, SENTENCES, probes=SENTENCES[5])
    assert [probe.text for probe in one.probes] == [SENTENCES[5]]
    assert one == read_features(gated, SENTENCES, probes=[SENTENCES[5]])
    assert one == read_features(gated, SENTENCES, probes=iter([SENTENCES[5]]))


def test_a_dimension_with_gate_and_ends_goes_to_all_other_sides(gated: Space) -> None:
    number = 0
    probes = SENTENCES[:20]
    codes, gates = gated.encode(probes, sparse=True).toarray(), gated.encode(probes, what="gates")
    sides = tuple(
        Side(name, 5, typical, (), ())  # type: ignore[arg-type]
        for name, typical in (("on", 0.1), ("off", 0.0), ("high", 2.5), ("low", -2.5))
    )
    two_ended = Dimension(number, "varies", 0.5, float(np.median(codes[:, number])), 1.0, sides, None, ())
    shown, (found,) = switched(gated, [two_ended], probes)
    assert [each.text for each in shown] == probes
    goes = {"off": ["high", "low"], "high": ["off", "low"], "low": ["off", "high"]}
    seen = set()
    for probe, (code, gate) in enumerate(zip(codes, gates, strict=True)):
        effects = [each for each in found.effects if each.probe == probe]
        side = "off" if gate[number] < 0.5 else "high" if code[number] > two_ended.average else "low"
        seen.add(side)
        assert [(each.before, each.after) for each in effects] == [(side, after) for after in goes[side]]
        for each in effects:
            moved = code.copy()
            moved[number] = {"off": 0.0, "high": 2.5, "low": -2.5}[each.after]
            assert each.decoded == gated.decode(moved)
    assert len(seen) > 1


def test_switching_in_a_dense_space_goes_to_the_other_end() -> None:
    space = made("vae-dense", weights=1.5)
    read = read_features(space, SENTENCES, probes=SENTENCES[:1])
    code = space.encode(SENTENCES[0])
    assert (read.gated, read.on_per_sentence) == (False, None)
    alive = [each for each in read.dimensions if each.state == "varies"]
    assert alive
    for each in alive:
        (effect,), (high, low) = each.effects, each.sides
        assert (effect.before, effect.after) in {("high", "low"), ("low", "high")}
        assert (effect.value_before > each.average) == (effect.before == "high")
        moved = code.copy()
        moved[each.number] = low.typical if effect.after == "low" else high.typical
        assert effect.decoded == space.decode(moved)


def test_of_more_sentences_some_are_read_and_that_is_told(gated: Space) -> None:
    some = read_features(gated, SENTENCES, LABELS, limit=30, probes=[])
    assert (some.sentences, some.of, some.probes) == (30, 120, ())
    texts, labels = ([given[row] for row in some_rows(120, 30)] for given in (SENTENCES, LABELS))
    same = read_features(gated, texts, labels, of=120, probes=[])
    assert some == same


def test_the_same_twice_and_other_shuffles_with_another_seed(gated: Space, found: Features) -> None:
    assert read_features(gated, SENTENCES, LABELS, seed=1) == found
    other = read_features(gated, SENTENCES, LABELS, seed=2)
    assert other != found
    assert [replace(each, labels=None) for each in other.dimensions] == [
        replace(each, labels=None) for each in found.dimensions
    ]


def test_labels_that_say_nothing_are_left_out(gated: Space) -> None:
    same = read_features(gated, SENTENCES[:9], ["x"] * 9, probes=[])
    assert (same.classes, same.notes) == ({}, ("labels are left out: all are the same",))
    many = read_features(gated, SENTENCES * 2, [str(n) for n in range(240)], probes=[])
    assert many.classes == {}
    assert "240 different ones" in many.notes[0]
    some = read_features(gated, SENTENCES, [None, *LABELS[1:]], probes=[])
    told = [each.labels for each in some.dimensions if each.labels]
    assert {each.sentences for each in told} == {119}


def test_labels_may_be_numbers(gated: Space, tmp_path: Path) -> None:
    found = read_features(gated, SENTENCES, np.arange(len(SENTENCES)) % 2, probes=[])
    assert set(found.classes) == {"0", "1"}
    of_tensor = read_features(gated, SENTENCES, torch.arange(len(SENTENCES)) % 2, probes=[])
    assert of_tensor.classes == found.classes
    missing = np.where(np.arange(len(SENTENCES)) % 3, np.arange(len(SENTENCES)) % 2, np.nan)
    assert read_features(gated, SENTENCES, missing, probes=[]).classes == {"0.0": 40, "1.0": 40}
    assert found.save(tmp_path)["json"].exists()


def test_json_has_everything(found: Features, tmp_path: Path) -> None:
    paths = found.save(tmp_path, "my space")
    kept = json.loads(paths["json"].read_text())
    assert kept == json.loads(json.dumps(found.to_dict()))
    assert kept["format"] == 1
    assert kept["dimensions"][0].keys() >= {"number", "state", "density", "sides", "labels", "effects"}
    assert "my space" in paths["html"].read_text()
    summary = found.summary()
    assert summary["dimensions"] == 6
    assert sorted(summary["dead"] + summary["always_on"] + found.in_state("varies")) == list(range(6))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), "no sentences"),
        ((["a", "b"], ["x"]), "2 sentences and 1 labels"),
        ((["a"], None, 0), "cannot read 0 sentences"),
        ((["a"], None, 1.5), "cannot read 1.5 sentences: give a whole number from 1"),
        ((["a", 3],), "sentence 2 is of type int"),
    ],
)
def test_bad_input_is_one_sentence(gated: Space, arguments: tuple, words: str) -> None:
    texts, labels, limit = (*arguments, None, None)[:3]
    with pytest.raises(TextspaceError, match=words):
        read_features(gated, texts, labels, **({} if limit is None else {"limit": limit}))


def test_what_is_wrong_with_sentences_is_told_once(gated: Space) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read_features(gated, ["quite foreign words", *SENTENCES])
        read_features(gated, SENTENCES, probes=["quite foreign words"])
    assert [str(each.message)[:20] for each in told] == ["1 of 121 sentences a", "1 of 1 sentences are"]


def test_a_language_model_is_refused() -> None:
    with pytest.raises(TextspaceError, match="language model"):
        read_features(untrained(small(RECIPES["gru-lm"]), made("vae-dense").tokenizer), SENTENCES)


def test_one_sentence_is_enough(gated: Space) -> None:
    one = read_features(gated, SENTENCES[:1], LABELS[:1])
    assert {each.state for each in one.dimensions} <= {"always on", "dead"}
