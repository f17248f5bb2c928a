"""Ranking by codes against formulas by hand, chance where there is nothing to find, and answers made."""

from __future__ import annotations

import math
import random
import warnings

import numpy as np
import pytest
import torch
from helpers import SMALL, small
from small_subjects import untrained
from torch.distributions import Normal

from textspace import answering
from textspace.answering import SCORES, answer, rank_answers, score_answers, scores_for
from textspace.config import BPETokenizer
from textspace.data.questions import Question
from textspace.data.tokenizers import UNKNOWN, train_tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.rankings import chance, counts_of, quality, ranks
from textspace.recipes import RECIPES
from textspace.space import Space

SENTENCES = ["who sees cats ? anna sees cats", "who hears <b> songs ? bob and carl", "what is it ? it is a stone ."]
LIVELY = {"initial.weights": 0.8, "initial.embeddings": 1.0}
QUESTION = Question("who hears stones?", ("anna hears cats and songs", "bob", "it is a stone"))

pytestmark = pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")


@pytest.fixture(scope="module")
def space() -> Space:
    recipe = small(RECIPES["vae"]).but(LIVELY)
    return untrained(recipe, train_tokenizer(recipe.text.tokenizer, SENTENCES))


@pytest.fixture(scope="module")
def autoencoder() -> Space:
    recipe = small(RECIPES["smim-ae"]).but(LIVELY)
    return untrained(recipe, train_tokenizer(recipe.text.tokenizer, SENTENCES))


@pytest.fixture(scope="module")
def subwords() -> Space:
    config = BPETokenizer(size=300)
    recipe = small(RECIPES["vae"]).but({"text.tokenizer": config.model_dump()})
    return untrained(recipe, train_tokenizer(config, SENTENCES))


def texts(question: str, answers: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Texts of which a space of words makes what ranking compares."""
    full = [f"{question} ? {answer}" for answer in answers]
    return full, [f"{question} ? " + " ".join(["<unk>"] * len(answer.split())) for answer in answers]


# The texts


@pytest.mark.parametrize("written", ["who sees cats", "who sees cats?", "who sees cats ?", " who sees cats ? ??"])
def test_a_question_ends_in_one_question_mark_of_its_own(space, written) -> None:
    pairs = answering._Pairs.of(space, [Question(written, ("bob and who?", "carl"))], False)
    decoded = [space.tokenizer.decode(pairs.full(row)) for row in range(2)]
    assert decoded == ["who sees cats ? bob and who ?", "who sees cats ? carl"]
    assert [space.tokenizer.decode(pairs.unknown(row)) for row in range(2)] == [
        "who sees cats ? <unk> <unk> <unk> <unk>",
        "who sees cats ? <unk>",
    ]


@pytest.mark.parametrize(
    ("written", "kept"), [("who saw", "who saw?"), ("who saw?", "who saw?"), ("who saw ?", "who saw ?")]
)
def test_subwords_keep_the_spelling_and_every_token_of_an_answer_becomes_unknown(subwords, written, kept) -> None:
    pairs = answering._Pairs.of(subwords, [Question(written, ("Anna, probably",))], False)
    assert subwords.tokenizer.decode(pairs.full(0)) == f"{kept} Anna, probably"
    assert pairs.full(0) == subwords.tokenizer.encode([f"{kept} Anna, probably"])[0]
    unknown, count = pairs.unknown(0), len(subwords.tokenizer.encode([" Anna, probably"])[0])
    assert count > 3
    assert unknown == subwords.tokenizer.encode([kept])[0] + [UNKNOWN] * count
    assert len(unknown) == len(pairs.full(0))


def test_html_is_removed_where_asked_for(space) -> None:
    given = [Question("who <i>sees</i> cats<br>?", ("<b>bob</b> and <p>",))]
    kept, dropped = (answering._Pairs.of(space, given, drop_html=drop) for drop in (False, True))
    assert space.tokenizer.decode(dropped.full(0)) == "who sees cats ? bob and"
    assert space.tokenizer.decode(kept.full(0)) == "who <unk> <unk> ? <unk> and <unk>"


# The scores


def test_scores_of_means_are_what_the_space_encodes(space) -> None:
    found = score_answers(space, [QUESTION], list(SCORES))
    full, unknown = texts("who hears stones", QUESTION.answers)
    mean_KZ = space.encode(full)
    unknown_KZ, deviation_KZ = space.encode(unknown, what="parameters")
    expected = np.linalg.norm((unknown_KZ - mean_KZ) / deviation_KZ, axis=1)
    assert np.allclose(found["mean"], expected, rtol=1e-5)
    alone_Z, answers_KZ = space.encode("who hears stones ?"), space.encode(list(QUESTION.answers))
    cosine = answers_KZ @ alone_Z / np.linalg.norm(alone_Z) / np.linalg.norm(answers_KZ, axis=1)
    assert np.allclose(found["cosine"], cosine, rtol=1e-5)


def test_sampled_scores_agree_with_their_expectations(space) -> None:
    """E || (z_u - z) / s_u ||^2 = sum (m_u - m)^2 / s_u^2 + 1 + s^2 / s_u^2, likewise of the others."""
    seeds = range(400)
    all_scores = [score_answers(space, [QUESTION], ["distance", "unit", "log-q"], seed=seed) for seed in seeds]
    full, unknown = texts("who hears stones", QUESTION.answers)
    m_KZ, s_KZ = (values.astype(float) for values in space.encode(full, what="parameters"))
    mu_KZ, su_KZ = (values.astype(float) for values in space.encode(unknown, what="parameters"))
    squares = (mu_KZ - m_KZ) ** 2 + s_KZ**2
    expected = {
        "distance": (squares / su_KZ**2 + 1).sum(1),
        "unit": (squares + su_KZ**2).sum(1),
        "log-q": (-0.5 * squares / su_KZ**2 - np.log(su_KZ) - 0.5 * math.log(2 * math.pi)).sum(1),
    }
    for name, known_K in expected.items():
        values_SK = np.array([scores[name] for scores in all_scores])
        values_SK = values_SK if name == "log-q" else values_SK**2
        error_K = values_SK.std(0, ddof=1) / math.sqrt(len(seeds))
        assert (np.abs(values_SK.mean(0) - known_K) < 4 * error_K).all(), name


def test_log_q_is_the_density_of_the_sampled_code(space) -> None:
    full, unknown = texts("who hears stones", QUESTION.answers)
    z_KZ = torch.from_numpy(space.encode(full, what="sample", seed=3))  # keyed by position, as ranking is
    mean_KZ, deviation_KZ = map(torch.from_numpy, space.encode(unknown, what="parameters"))
    expected = Normal(mean_KZ, deviation_KZ).log_prob(z_KZ).sum(1)
    assert np.allclose(score_answers(space, [QUESTION], ["log-q"], seed=3)["log-q"], expected, rtol=1e-5)


def test_a_posterior_without_spread_has_unit_variance(autoencoder) -> None:
    full, unknown = texts("who hears stones", QUESTION.answers)
    expected = np.linalg.norm(autoencoder.encode(unknown) - autoencoder.encode(full), axis=1)
    found = score_answers(autoencoder, [QUESTION], ["distance", "mean", "unit"])
    assert all(np.allclose(values, expected, rtol=1e-5) for values in found.values())
    assert scores_for(autoencoder) == ["distance", "mean", "unit", "cosine"]
    with pytest.raises(TextspaceError, match="has no density with a formula, which log-q needs: use 'distance'"):
        score_answers(autoencoder, [QUESTION], ["log-q"])


@pytest.mark.parametrize("name", ["ton-vae", "hsvae"])
def test_gates_have_a_log_q_of_each_answer_or_none(name) -> None:
    """Gates that are random themselves cannot be integrated out of the density."""
    recipe = small(RECIPES[name]).but(LIVELY)
    space = untrained(recipe, train_tokenizer(recipe.text.tokenizer, SENTENCES))
    if name == "hsvae":
        assert scores_for(space) == ["distance", "mean", "unit", "cosine"]
        with pytest.raises(TextspaceError, match="'hsvae' has no density with a formula, which log-q needs"):
            rank_answers(space, QUESTION.text, QUESTION.answers, score="log-q")
    found = score_answers(space, [QUESTION], scores_for(space))
    assert {len(set(values)) for values in found.values()} == {len(QUESTION.answers)}


def test_scores_depend_on_the_seed_and_on_no_batch(space, monkeypatch) -> None:
    questions = [QUESTION, Question("what is it ?", ("a stone", "cats", "songs and cats"))]
    found = score_answers(space, questions, ["distance"], seed=1)["distance"]
    assert (found == score_answers(space, questions, ["distance"], seed=1)["distance"]).all()
    assert (found != score_answers(space, questions, ["distance"], seed=2)["distance"]).all()
    monkeypatch.setattr(answering, "TOKENS_AT_ONCE", 1)
    assert np.allclose(found, score_answers(space, questions, ["distance"], seed=1)["distance"], rtol=1e-5)


def test_random_weights_are_at_chance_on_answers_of_equal_length(space) -> None:
    chosen = random.Random(2)
    words = sorted({word for sentence in SENTENCES for word in sentence.split()} - {"?", "<b>"})
    some = lambda: " ".join(chosen.choices(words, k=4))  # noqa: E731
    questions = [Question(some(), tuple(some() for _ in range(4)), (1.0, 0.0, 0.0, 0.0)) for _ in range(400)]
    counts_Q, right_N = counts_of(questions), np.tile([True, False, False, False], 400)
    expected = chance(counts_Q, np.ones(400, int))
    for name, scores_N in score_answers(space, questions, list(SCORES)).items():
        order_N = ranks(scores_N, counts_Q, lowest_first=SCORES[name].lowest_first)
        for values_Q, known_Q in zip(quality(order_N, right_N, counts_Q), expected, strict=True):
            error = values_Q.std(ddof=1) / math.sqrt(400)
            assert abs(values_Q.mean() - known_Q.mean()) < 3 * error, name


# Ranking one question


@pytest.mark.parametrize("score", SCORES)
def test_answers_come_best_first(space, score) -> None:
    found = rank_answers(space, QUESTION.text, QUESTION.answers, score=score, seed=4)
    scores = score_answers(space, [QUESTION], [score], seed=4)[score]
    assert [each.answer for each in found] == [QUESTION.answers[each.row] for each in found]
    assert [each.score for each in found] == sorted(scores, reverse=not SCORES[score].lowest_first)


def test_equal_answers_are_shuffled(space) -> None:
    firsts = {rank_answers(space, "who", ["bob", "bob"], score="mean", seed=seed)[0].row for seed in range(20)}
    assert firsts == {0, 1}


@pytest.mark.parametrize(
    ("question", "answers", "message"),
    [
        ("", ["anna"], "question 1 is empty"),
        (" ? ", ["anna"], "question 1 is empty"),
        ("who", [], "question 1 has no answers to rank"),
        ("who", ["anna", " "], "answer 2 is empty"),
        ("who", "anna", "answers must be a list"),
        ("who", ["anna", 3], "sentence 2 is of type int"),
    ],
)
def test_what_cannot_be_ranked_is_told(space, question, answers, message) -> None:
    with pytest.raises(TextspaceError, match=message):
        rank_answers(space, question, answers)


def test_unknown_names_and_language_models_are_refused(space, tiny) -> None:
    with pytest.raises(TextspaceError, match="there is no score 'distanse'; did you mean 'distance'"):
        rank_answers(space, "who", ["anna"], score="distanse")
    with pytest.raises(TextspaceError, match="is a language model and has no codes"):
        rank_answers(untrained(small(RECIPES["gru-lm"]), tiny.tokenizer), "who", ["anna"])


def test_what_a_space_does_not_know_or_cuts_is_told(space) -> None:
    with pytest.warns(UserWarning, match="1 of 1 questions hold no word this space knows"):
        rank_answers(space, "wherefore art thou ?", ["anna"])
    with pytest.warns(UserWarning, match="1 of 2 answers hold no word this space knows"):
        rank_answers(space, "who sees cats ?", ["anna", "romeo romeo"])
    short = untrained(space.recipe.but({"text.max_tokens": 5}), space.tokenizer)
    with pytest.warns(
        UserWarning, match="1 of 2 answers made more than 5 tokens with their question and were cut there"
    ):
        found = rank_answers(short, "who sees cats ?", ["anna sees cats and songs", "anna"], score="mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = rank_answers(short, "who sees cats ?", ["anna", "anna"], score="mean")
    assert {each.score for each in cut} == {found[0].score} == {found[1].score}


# Answers made


PAIRS = {
    "who sees cats": "anna surely",
    "what smells sweet here": "a red rose",
    "where are you": "at home",
    "when will it rain": "tomorrow in the morning",
}


@pytest.fixture(scope="module")
def trained() -> Space:
    """A space that knows a few questions and their answers by heart, unknown words or not."""
    recipe = RECIPES["smim-ae"].but(
        SMALL
        | {
            "latent.dim": 16,
            "decoder.hidden": 32,
            "encoder.hidden": 32,
            "encoder.embedding": 16,
            "decoder.embedding": 16,
            "encoder.word_dropout": 0.5,
            "training.optimizer": {"kind": "adam", "lr": 0.01},
            "training.epochs": 4,
            "training.seed": 2,
        }
    )
    sentences = [f"{question} ? {given}" for question, given in PAIRS.items()] * 400
    return Space.fit({"train": sentences, "valid": sentences[:4]}, recipe)


def test_a_space_that_knows_the_answers_gives_and_ranks_them(trained) -> None:
    for question, known in PAIRS.items():
        (made,) = answer(trained, f"{question}?", [len(known.split())])
        assert (made.text, made.decoded, made.repeats_question) == (known, f"{question} ? {known}", True)
    questions = [Question(question, tuple(PAIRS.values())) for question in PAIRS]
    right_N = np.array([known == own for question, own in PAIRS.items() for known in PAIRS.values()])
    scores_N = score_answers(trained, questions)["distance"]
    found = quality(ranks(scores_N, counts_of(questions), lowest_first=True), right_N, counts_of(questions))
    assert found.p_at_1_Q.mean() >= 0.75  # of 4 answers each


def test_answers_have_no_unknown_words_and_come_in_the_order_asked_for(space) -> None:
    found = answer(space, "who sees wolves", (2, 7), n=3, seed=1)
    assert [each.words for each in found] == [2, 2, 2, 7, 7, 7]
    assert found == answer(space, "who sees wolves ?", (2, 7), n=3, seed=1)
    assert not any("<unk>" in each.decoded for each in found)
    assert all(each.repeats_question == ("?" in each.decoded.split()) for each in found)
    means = answer(space, "who sees wolves", 4, n=3, what="mean")
    assert len({each.decoded for each in means}) == 1


def test_codes_are_samples_of_the_question_with_unknown_words(space) -> None:
    found = answer(space, "who sees cats", (3, 1), seed=5)
    codes_NZ = space.encode(["who sees cats ? <unk> <unk> <unk>", "who sees cats ? <unk>"], what="sample", seed=5)
    method = answering.Greedy(max_tokens=204, forbidden=(UNKNOWN,))
    assert [each.decoded for each in found] == space.decode(codes_NZ, method=method)


@pytest.mark.parametrize(
    ("decoded", "of_words", "text", "repeats"),
    [
        ("who ? anna ? yes", True, "anna ? yes", True),
        ("who ?", True, "", True),
        ("anna sees cats", True, "", False),
        ("see http://a?b for it", True, "", False),
        ("see http://a?b ? it <br> works", True, "it works", True),
        ("Who? Anna, <b>surely</b>.", False, "Anna, surely.", True),
        ("Anna.", False, "", False),
    ],
)
def test_the_answer_follows_the_first_question_mark(decoded, of_words, text, repeats) -> None:
    made = answering._answer(5, decoded, of_words, drop_html=True)
    assert (made.text, made.repeats_question, made.decoded) == (text, repeats, decoded)


def test_html_stays_where_asked_for() -> None:
    assert answering._answer(5, "who ? <b> anna", True, drop_html=False).text == "<b> anna"


def test_questions_without_an_answer_are_told(space, tiny, small_vae) -> None:
    with pytest.raises(TextspaceError, match="the question holds no word this space knows"):
        answer(space, "wherefore art thou?")
    with pytest.raises(TextspaceError, match="question 1 is empty"):
        answer(space, "?")
    for wrong in ({"words": ()}, {"words": (2.5,)}, {"words": 0}, {"words": "5"}, {"n": 1.5}, {"n": 2**31}):
        with pytest.raises(TextspaceError, match=r"no room for an answer: say|: give a whole number from 1"):
            answer(space, "who", **wrong)
    with pytest.raises(TextspaceError, match="cannot decode 'means'"):
        answer(space, "who", what="means")
    with pytest.raises(TextspaceError, match="method is 0: give one such as"):
        answer(space, "who", method=0)
    with pytest.raises(TextspaceError, match="does not know '\\?' as a word"):
        answer(untrained(small_vae, tiny.tokenizer), "anna sees cats?")
    with pytest.raises(TextspaceError, match="are 24 tokens and this space reads 20 at most: shorten it"):
        answer(
            untrained(space.recipe.but({"text.max_tokens": 20}), space.tokenizer), "who is it who sees cats and songs?"
        )
    with pytest.raises(TextspaceError, match="is a language model and has no codes"):
        answer(untrained(small(RECIPES["gru-lm"]), tiny.tokenizer), "anna")


def test_subword_spaces_answer_too(subwords) -> None:
    found = answer(subwords, "Who saw it?", (3, 6), seed=2)
    assert [each.words for each in found] == [3, 6]
    assert "<unk>" not in "".join(each.decoded for each in found)
