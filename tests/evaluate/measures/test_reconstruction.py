"""Reconstruction on spaces whose answer is known: collapsed, copying, blind to order; and against sacrebleu."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from helpers import small, tiny_sentences

from textspace import coder
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import Prepared
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort, Findings, Sentences, Subject
from textspace.evaluate.measures import noisy_input
from textspace.evaluate.measures import reconstruction as module
from textspace.evaluate.measures.noisy_input import shuffled_input, swap_words, word_swaps
from textspace.evaluate.measures.reconstruction import (
    MEASURES,
    reconstruction,
    reconstruction_examples,
    reconstruction_variants,
)
from textspace.evaluate.statistics import some_rows
from textspace.generate import Beam, Greedy
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(30)
EFFORT = Effort(importance_samples=5, repeats=5)


def subject_of(space: Space, texts: list[str], effort: Effort = EFFORT, seed: int = 3) -> Subject:
    split = EncodedSplit.of(texts, space.tokenizer, space.recipe.text.max_tokens)
    return Subject(space, {"test": Sentences("test", texts, None, split, space, seed)}, effort, seed)


def space_of(tiny: Prepared, **changes: Any) -> Space:
    """An untrained space whose weights are large enough that different codes say different things."""
    recipe = small(RECIPES["vae"]).but({"initial.weights": 0.8} | changes)
    return Space(recipe, tiny.tokenizer, Model(recipe, len(tiny.tokenizer)))


@pytest.fixture(scope="module")
def space(tiny: Prepared) -> Space:
    space = space_of(tiny)
    with torch.no_grad():
        space.model.posterior.mean.weight.mul_(3)
        space.model.decoder.output.mul_(3)
        space.model.decoder.output[1] += 0.3  # the end comes soon enough
    return space


@pytest.fixture
def collapsed(space: Space) -> Space:
    """Every sentence has the same posterior."""
    model = copy.deepcopy(space.model)
    with torch.no_grad():
        for head in (model.posterior.mean, model.posterior.log_variance):
            head.weight.zero_()
    return Space(space.recipe, space.tokenizer, model)


@pytest.fixture(scope="module")
def blind(tiny: Prepared) -> Space:
    """The code is a function of the words, whatever their order: forget gates are shut, and no state goes on."""
    space = space_of(tiny, **{"pooling.kind": "mean"})
    recurrent, hidden = space.model.encoder.recurrent, space.recipe.encoder.hidden
    with torch.no_grad():
        recurrent.weight_hh_l0.zero_()
        recurrent.weight_ih_l0[hidden : 2 * hidden] = 0
        recurrent.bias_ih_l0[hidden : 2 * hidden] = -100
    return space


def value(findings: Findings, key: str) -> float:
    return findings.estimates[key].value


# Reconstruction


def test_a_space_that_copies_scores_everything_and_one_wrong_word_costs_its_share(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(space, TEXTS)
    monkeypatch.setattr(Space, "decode", lambda self, codes, **options: list(TEXTS))
    found = reconstruction(subject)
    for key, whole in (("bleu4", 100), ("bleu1", 100), ("sentence_bleu1", 100), ("exact_match", 1)):
        assert value(found, f"{key}_greedy_mean") == pytest.approx(whole)
    assert value(found, "token_accuracy_greedy_mean") == 1
    wrong = [" ".join(["wrong", *text.split()[1:]]) for text in TEXTS[:10]] + TEXTS[10:]
    monkeypatch.setattr(Space, "decode", lambda self, codes, **options: wrong)
    found = reconstruction(subject)
    words = sum(len(text.split()) for text in TEXTS)
    assert value(found, "exact_match_greedy_mean") == pytest.approx(20 / 30)
    assert value(found, "token_accuracy_greedy_mean") == pytest.approx(1 - 10 / words)
    assert value(found, "bleu1_greedy_mean") == pytest.approx(100 * (1 - 10 / words))


def test_numbers_are_those_of_sacrebleu_on_what_the_space_decodes(space: Space) -> None:
    subject = subject_of(space, TEXTS)
    found = reconstruction(subject)
    made = space.decode(space.encode(TEXTS), method=Greedy())
    assert len(set(made)) > 3
    assert value(found, "bleu4_greedy_mean") == sacrebleu.corpus_bleu(made, [TEXTS], tokenize="none").score
    assert "tok:none" in found.estimates["bleu4_greedy_mean"].settings["signature"]
    assert {estimate.n for estimate in found.estimates.values()} == {30}
    for key, values in found.per_sentence.items():
        assert len(values) == 30
        assert np.mean(values) == pytest.approx(value(found, key))


def test_a_collapsed_space_says_the_same_whatever_it_read(collapsed: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[list[str]] = []
    decode = Space.decode
    monkeypatch.setattr(
        Space, "decode", lambda self, codes, **options: said.append(decode(self, codes, **options)) or said[-1]
    )
    reconstruction_variants(subject_of(collapsed, TEXTS))
    reconstruction_variants(subject_of(collapsed, tiny_sentences(60)[30:]))
    assert len(said) == 8
    assert len(set(said[0])) == 1  # from means
    assert said[:4] == said[4:]  # from samples, too: the noise is keyed by position


def test_unknown_words_are_known_to_be_unknown(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Space, "decode", lambda self, codes, **options: ["anna sees <unk>", "bob <unk>"])
    subject = subject_of(space, ["anna sees zebras", "bob _UNK"])
    assert value(reconstruction(subject), "exact_match_greedy_mean") == 1


def test_no_more_than_the_effort_is_decoded_evenly_spread(space: Space) -> None:
    few = reconstruction(subject_of(space, TEXTS, Effort(decoded=10)))
    alone = reconstruction(subject_of(space, [TEXTS[row] for row in some_rows(30, 10)]))
    assert few.estimates["bleu4_greedy_mean"].n == 10
    assert few.estimates["bleu4_greedy_mean"].settings["of"] == 30
    assert few.per_sentence == alone.per_sentence


def test_four_variants_each_as_decoded_directly(space: Space) -> None:
    subject = subject_of(space, TEXTS)
    found = reconstruction_variants(subject)
    codes = {"mean": space.encode(TEXTS), "sample": space.encode(TEXTS, what="sample", seed=3)}
    methods = {"greedy": Greedy(), "beam": Beam(width=5)}
    for decoding, code in (("greedy", "sample"), ("beam", "mean"), ("beam", "sample")):
        made = space.decode(codes[code], method=methods[decoding])
        assert value(found, f"bleu4_{decoding}_{code}") == sacrebleu.corpus_bleu(made, [TEXTS], tokenize="none").score
    scores = [value(found, f"bleu4_{variant}") for variant in ("greedy_sample", "beam_mean", "beam_sample")]
    assert len(set(scores)) == 3
    names = {estimate.name for estimate in found.estimates.values()}
    assert len(names) == len(found.estimates) == 15
    assert "corpus BLEU-4 (0-100, as in Li et al. 2019), greedy decoding from posterior samples" in names
    assert "corpus BLEU-4 (0-100), beam search of width 5 from posterior means" in names
    rows = found.tables["variants"].rows
    assert [row[:2] for row in rows] == [
        ("greedy", "mean"),
        ("greedy", "sample"),
        ("beam", "mean"),
        ("beam", "sample"),
    ]
    plain = reconstruction(subject)
    shown = [module.shown(estimate) for estimate in plain.estimates.values()]
    assert list(rows[0][2:]) == shown
    assert not plain.estimates.keys() & found.estimates.keys()


def test_samples_of_an_autoencoder_are_its_means(tiny: Prepared) -> None:
    point = space_of(tiny, **{"posterior.kind": "delta", "objective.kind": "reconstruction"})
    rows = reconstruction_variants(subject_of(point, TEXTS[:10])).tables["variants"].rows
    assert rows[0][2:] == rows[1][2:]
    assert rows[2][2:] == rows[3][2:]


def test_bins_of_length_hold_all_sentences_and_their_own_scores(space: Space) -> None:
    texts = [*TEXTS, "anna " * 23]
    found = reconstruction_variants(subject_of(space, texts))
    rows = [row for row in found.tables["by_length"].rows if row[0] == "mean"]
    assert [row[1] for row in rows] == ["up to 5", "6-10", "21-30"]
    sizes = [sum(low <= len(text.split()) <= high for text in texts) for low, high in ((0, 5), (6, 10), (21, 30))]
    assert [row[2] for row in rows] == sizes
    made = space.decode(space.encode(texts))
    short = [row for row, text in enumerate(texts) if len(text.split()) <= 5]
    direct = sacrebleu.corpus_bleu([made[r] for r in short], [[texts[r] for r in short]], tokenize="none").score
    picture = found.pictures["by_length"]
    assert picture.series["BLEU-4, mean codes"][0] == direct
    assert picture.x[2] == 23
    assert {len(line) for line in picture.series.values()} == {3}
    loss = likelihood(space.model, subject_of(space, texts).test.split, seed=3).reconstruction_N
    last = found.tables["loss_by_length"].rows[-1]
    assert last == ("21-30", 1, f"{loss[-1]:.4g}", f"{loss[-1] / 24:.4g}")


def test_long_originals_can_come_back_whole(space: Space) -> None:
    split = EncodedSplit.of(["anna " * 300, "bob"], space.tokenizer, 512)
    assert module._Way("greedy", "mean").method(split).max_tokens == 300
    assert module._Way("beam", "mean").method(split) == Beam(width=5, max_tokens=300)
    short = EncodedSplit.of(["bob"], space.tokenizer, 512)
    assert module._Way("greedy", "mean").method(short) == Greedy()


def test_batches_change_nothing(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Space(space.recipe, space.tokenizer, copy.deepcopy(space.model).double())
    whole = reconstruction_variants(subject_of(exact, TEXTS[:12]))
    monkeypatch.setattr(coder, "DECODED_AT_ONCE", 5)
    assert reconstruction_variants(subject_of(exact, TEXTS[:12])).per_sentence == whole.per_sentence


# Examples


def test_examples_are_the_first_sentences_of_each_length_and_what_comes_back(space: Space) -> None:
    texts = [*TEXTS, "anna " * 23 + "anna", "bob " * 22 + "bob"]
    subject = subject_of(space, texts)
    table = reconstruction_examples(subject).tables["examples"]
    assert table.grouped
    assert "the first test sentence of each length, in the order of the text" in table.title
    bands = {"up to 5 words": (0, 5), "6-10 words": (6, 10), "21-30 words": (21, 30)}
    rows = [next(r for r, text in enumerate(texts) if a <= len(text.split()) <= b) for a, b in bands.values()]
    assert [row[:2] for row in table.rows] == [(band, kind) for band in bands for kind in ("(D)", "(M)", "(R)", "(P)")]
    assert [row[2] for row in table.rows if row[1] == "(D)"] == [texts[row] for row in rows]
    test = subject.test
    for kind, codes_NZ in (("(M)", test.means_NZ), ("(R)", test.samples_NZ), ("(P)", test.perturbed_NZ)):
        assert [row[2] for row in table.rows if row[1] == kind] == space.decode(codes_NZ[rows])
    assert space.reconstruct(texts)[rows[0]] == table.rows[1][2]
    assert reconstruction_examples(subject_of(space, texts)).tables["examples"] == table


def test_an_autoencoder_has_one_row_and_sources_have_their_own_examples(tiny: Prepared) -> None:
    point = space_of(tiny, **{"posterior.kind": "delta", "objective.kind": "reconstruction"})
    subject = subject_of(point, TEXTS)
    subject.test.sources = ["a"] * 10 + ["b"] * 20
    table = reconstruction_examples(subject).tables["examples"]
    assert "each length and source" in table.title
    labels = [row[0] for row in table.rows if row[1] == "(D)"]
    assert labels == ["a, up to 5 words", "a, 6-10 words", "b, up to 5 words", "b, 6-10 words"]
    assert [row[1] for row in table.rows] == ["(D)", "(AE)"] * 4
    in_b = [text for text in TEXTS[10:] if len(text.split()) <= 5]
    assert table.rows[4][2] == in_b[0]
    assert table.rows[5][2] == point.reconstruct(in_b[0])


def test_reconstruction_is_told_by_source(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ["nothing like it"] * 10 + TEXTS[10:]
    monkeypatch.setattr(Space, "decode", lambda self, codes, **options: wrong)
    subject = subject_of(space, TEXTS)
    assert not reconstruction(subject).tables
    subject.test.sources = ["easy" if row >= 10 else "hard" for row in range(30)]
    hard, easy = reconstruction(subject).tables["by_source"].rows
    assert hard[:4] == ("hard", 10, "0", "0")
    assert easy[:2] == ("easy", 20)
    assert [float(str(cell).partition(" ")[0]) for cell in easy[2:4]] == [100, 100]
    assert (hard[4], easy[4]) == ("0", "1")


# Word swaps


def test_a_swap_exchanges_two_words_and_swaps_add_up() -> None:
    words = list("abcdefgh")
    random = np.random.default_rng(0)
    for _ in range(20):
        before = words
        for after in swap_words(words, 4, random):
            differing = [at for at in range(8) if before[at] != after[at]]
            assert len(differing) == 2
            assert sorted(after) == words
            before = after
    assert words == list("abcdefgh")
    places = {tuple(np.flatnonzero(np.array(swap_words("abc", 1, random)[0]) != list("abc"))) for _ in range(50)}
    assert places == {(0, 1), (0, 2), (1, 2)}


def test_only_the_encoder_reads_swapped_words(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(space, TEXTS)
    calls: list[tuple[EncodedSplit, EncodedSplit | None]] = []

    def seen(model: Model, split: EncodedSplit, *, encoder_split: EncodedSplit | None, **more: Any) -> Any:
        calls.append((split, encoder_split))
        return likelihood(model, split, encoder_split=encoder_split, **more)

    monkeypatch.setattr(noisy_input, "likelihood", seen)
    found = word_swaps(subject)
    assert [said is subject.test.split for said, _ in calls] == [True] * 4  # without swaps it is scored already
    changed = []
    for swaps, (said, read) in enumerate(calls, 1):
        differing = [int((said.ids(row) != read.ids(row)).sum()) for row in range(30)]
        assert max(differing) <= 2 * swaps
        assert all((np.sort(said.ids(row)) == np.sort(read.ids(row))).all() for row in range(30))
        changed.append(np.mean(differing))
    assert 1 < changed[0] < changed[1]
    plain = likelihood(space.model, subject.test.split, seed=3).reconstruction_N
    assert value(found, "swaps_0") == plain.mean()
    np.testing.assert_array_equal(found.per_sentence["swaps_0"], plain)
    assert value(found, "swaps_4") != value(found, "swaps_0")
    assert [row[0] for row in found.tables["word_swaps"].rows] == [0, 1, 2, 3, 4]
    line = found.pictures["word_swaps"].series["-log p(x|z)"]
    assert line == [value(found, f"swaps_{swaps}") for swaps in range(5)]


def test_swaps_cost_nothing_where_the_encoder_cannot_tell_the_order(blind: Space, space: Space) -> None:
    losses = word_swaps(subject_of(blind, TEXTS)).per_sentence
    sighted = word_swaps(subject_of(space, TEXTS)).per_sentence
    for swaps in range(1, 5):
        np.testing.assert_allclose(losses[f"swaps_{swaps}"], losses["swaps_0"], rtol=1e-4)
        assert np.abs(np.subtract(sighted[f"swaps_{swaps}"], sighted["swaps_0"])).max() > 0.1


def test_a_sentence_is_swapped_alike_whatever_the_others(space: Space) -> None:
    whole, part = (word_swaps(subject_of(space, texts)).per_sentence["swaps_3"] for texts in (TEXTS, TEXTS[:9]))
    np.testing.assert_allclose(whole[:9], part, rtol=1e-4)


# Shuffled input


def test_shuffling_costs_exactly_nothing_on_one_word_or_in_a_collapsed_space(space: Space, collapsed: Space) -> None:
    words = ["anna", "bob", "cats", "dogs"]
    for subject in (subject_of(space, words), subject_of(collapsed, TEXTS)):
        found = shuffled_input(subject)
        assert set(found.per_sentence["shuffling_costs"]) == {0.0}
        assert value(found, "shuffling_costs") == found.estimates["shuffling_costs"].stderr == 0
        assert value(found, "nll_shuffled") == pytest.approx(value(found, "nll_unshuffled"))


def test_shuffling_costs_nothing_where_the_encoder_cannot_tell_the_order(blind: Space) -> None:
    found = shuffled_input(subject_of(blind, TEXTS))
    np.testing.assert_allclose(found.per_sentence["shuffling_costs"], 0, atol=1e-3)


def test_the_shuffled_bound_is_that_of_a_proposal_from_shuffled_words(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(space, TEXTS)
    reads: list[EncodedSplit | None] = []

    def seen(model: Model, split: EncodedSplit, *, encoder_split: EncodedSplit | None, **more: Any) -> Any:
        assert [split.text(row) for row in range(30)] == TEXTS
        reads.append(encoder_split)
        return likelihood(model, split, encoder_split=encoder_split, **more)

    monkeypatch.setattr(noisy_input, "likelihood", seen)
    found = shuffled_input(subject)
    (read,) = reads  # in order they are scored already
    assert read is not None
    plain, shuffled = (
        likelihood(space.model, subject.test.split, samples=5, seed=3, encoder_split=each).nll_N
        for each in (None, read)
    )
    assert all(sorted(read.text(row).split()) == sorted(TEXTS[row].split()) for row in range(30))
    assert sum(read.text(row) != TEXTS[row] for row in range(30)) > 20
    np.testing.assert_allclose(found.per_sentence["nll_shuffled"], shuffled)
    difference = shuffled - plain
    assert value(found, "shuffling_costs") == pytest.approx(difference.mean())
    assert found.estimates["shuffling_costs"].stderr == pytest.approx(difference.std(ddof=1) / np.sqrt(30))
    assert np.abs(difference).max() > 0.1
    assert found.estimates["nll_unshuffled"].bound == "upper"
    assert len(found.tables["shuffled_input"].rows) == 2


# The registry


def test_measures_keep_their_findings_through_json_and_say_how_errors_arise(space: Space) -> None:
    subject = subject_of(space, TEXTS[:8])
    for name, measure in (MEASURES | noisy_input.MEASURES).items():
        found = measure.run(subject)
        assert Findings.from_dict(found.to_dict()) == found, name
        assert found.per_sentence.keys() <= found.estimates.keys()
        assert all("standard error" in estimate.settings["error"] for estimate in found.estimates.values())
        assert measure.needs == ("codes",)
    quick = [name for name, measure in MEASURES.items() if "quick" in measure.suites]
    assert quick == ["reconstruction", "reconstruction_examples"]
