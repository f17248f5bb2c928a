"""The supervised ranker: its formula by hand, and what it learns where there is something to learn and where not."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from textspace.config import WordTokenizer
from textspace.data.batching import batch_of
from textspace.data.questions import Question
from textspace.errors import TextspaceError
from textspace.evaluate.measures import attentive_ranker as module
from textspace.evaluate.measures.attentive_ranker import AttentiveRanker, train_ranker
from textspace.evaluate.rankings import counts_of, quality, ranks
from textspace.noise import seed_of

KEYS = [f"key{number}" for number in range(12)]
FILLERS = [f"word{number}" for number in range(20)]


def constructed(count: int, seed: int) -> list[Question]:
    """Questions whose right answer, at a random place, has their key word; all texts are of 5 words."""
    chance = random.Random(seed)

    def text(key: str) -> str:
        words = [*chance.choices(FILLERS, k=4), key]
        chance.shuffle(words)
        return " ".join(words)

    made = []
    for _ in range(count):
        keys = chance.sample(KEYS, 4)
        right = chance.randrange(4)
        labels = tuple(float(place == right) for place in range(4))
        made.append(Question(text(keys[right]), tuple(map(text, keys)), labels))
    return made


def p_at_1(questions: list[Question], scores_N: np.ndarray) -> float:
    right_N = np.array([right for question in questions for right in question.right])
    return float(quality(ranks(scores_N, counts_of(questions)), right_N, counts_of(questions)).p_at_1_Q.mean())


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentiveRanker.__init__, "__defaults__", (16, 16))
    monkeypatch.setattr(module, "LEARNING_RATE", 0.01)


@pytest.mark.usefixtures("_small")
def test_it_learns_that_answers_share_a_word_with_their_question_and_nothing_from_noise() -> None:
    train, valid, test = constructed(300, 0), constructed(60, 1), constructed(200, 2)
    ranker = train_ranker(train, valid, WordTokenizer(), epochs=10, seed=0)
    assert p_at_1(test, ranker.scores(test)) > 0.8  # by chance 0.25
    assert ranker.valid_mrr > 0.8
    again = train_ranker(train, valid, WordTokenizer(), epochs=10, seed=0)
    assert (again.scores(test) == ranker.scores(test)).all()
    chance = random.Random(3)
    shuffled = [Question(q.text, q.answers, tuple(chance.sample(q.labels, 4))) for q in train]
    lost = train_ranker(shuffled, valid, WordTokenizer(), epochs=2, seed=0)
    assert p_at_1(test, lost.scores(test)) < 0.5


@pytest.mark.usefixtures("_small")
def test_the_best_epoch_on_validation_questions_is_kept_and_training_stops_after_it(monkeypatch) -> None:
    """The validation scores are made up: best in the second epoch."""
    right = {1: 0.0, 2: 1.0}  # by epoch, the score of the right answer; the wrong ones have 0.5
    epoch, weights = [0], {}
    valid = [Question("key1", ("key1", "word1"), (1.0, 0.0))]

    def scores(network, encoded, show_progress=False):
        epoch[0] += 1
        weights[epoch[0]] = {name: value.clone() for name, value in network.state_dict().items()}
        return np.array([right.get(epoch[0], 0.0), 0.5])

    monkeypatch.setattr(module, "_scores", scores)
    ranker = train_ranker(constructed(40, 0), valid, WordTokenizer(), epochs=30, seed=0)
    assert epoch[0] == 2 + module.PATIENCE
    assert (ranker.epoch, ranker.valid_mrr) == (2, 1.0)
    kept = ranker.network.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in weights[2].items())


def test_the_score_is_the_formula_and_padding_and_batches_do_not_matter() -> None:
    torch.manual_seed(seed_of(0))
    network = AttentiveRanker(9, 3, 4).eval()
    pairs = [([4, 5, 6], [7, 8]), ([5], [4, 6, 8, 8, 7])]
    question, answer = (batch_of([pair[side] for pair in pairs]).encoder for side in (0, 1))
    with torch.no_grad():
        together_B = network(network.encoder(question), network.encoder(answer))
        for number, pair in enumerate(pairs):
            q_TH, a_SH = (network.encoder(batch_of([ids]).encoder).all_BTH[0] for ids in pair)
            g_TS = torch.tanh(q_TH @ network.match.weight @ a_SH.T)
            q_H = torch.softmax(g_TS.max(1).values, 0) @ q_TH
            a_H = torch.softmax(g_TS.max(0).values, 0) @ a_SH
            assert together_B[number] == pytest.approx(float(q_H @ a_H / q_H.norm() / a_H.norm()), abs=1e-5)


def test_the_loss_is_that_of_the_wrong_answer_with_the_highest_score(monkeypatch) -> None:
    scores = torch.tensor([0.9, 0.1, 0.2, 0.3, 0.85, 0.0, 0.1, 0.0, -0.2, 0.05])  # right of two, then four times wrong
    network = AttentiveRanker(9, 3, 4)
    monkeypatch.setattr(network, "forward", lambda question, answer: scores)
    view = batch_of([[4], [5]]).encoder
    loss = module._loss(network, view, batch_of([[4]] * 10).encoder, 2)
    assert float(loss) == pytest.approx((max(0, 0.2 - 0.9 + 0.85) + max(0, 0.2 - 0.1 + 0.3)) / 2)


def test_wrong_answers_are_of_the_same_question(monkeypatch) -> None:
    questions = [Question(f"q{n}", (f"r{n}", f"w{n}", f"v{n}"), (1.0, 0.0, 0.0)) for n in range(5)]
    encoded = module._Encoded([[n] for n in range(5)], [[[10 + n], [20 + n], [30 + n]] for n in range(5)])
    ((question, answers, size),) = module._batches(questions, encoded, np.random.default_rng(0))
    asked, given = question.ids_BT[:, 1].tolist(), answers.ids_BT[:, 1].view(1 + module.WRONG, 5).tolist()
    assert sorted(asked) == [0, 1, 2, 3, 4]
    assert size == 5
    assert given[0] == [10 + n for n in asked]
    assert all(each in (20 + n, 30 + n) for wrong in given[1:] for each, n in zip(wrong, asked, strict=True))


def test_without_validation_questions_every_tenth_is_held_out(monkeypatch) -> None:
    seen: list[list[Question]] = []
    real = module._Encoded.of
    monkeypatch.setattr(
        module._Encoded, "of", lambda questions, tokenizer: seen.append(questions) or real(questions, tokenizer)
    )
    questions = constructed(20, 0)
    train_ranker(questions, None, WordTokenizer(), epochs=1, seed=0)
    assert seen[1] == [questions[0], questions[10]]
    assert len(seen[0]) == 18


def test_too_few_questions_are_refused() -> None:
    with pytest.raises(TextspaceError, match="a ranker learns from questions with right and wrong answers"):
        train_ranker([Question("who", ("anna",), (1.0,))] * 20, None, WordTokenizer(), epochs=1, seed=0)
