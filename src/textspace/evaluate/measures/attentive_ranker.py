"""A ranker of answers that learns from right and wrong ones: a bi-LSTM with attentive pooling.

C. dos Santos, M. Tan, B. Xiang and B. Zhou: Attentive pooling networks, 2016 (AP-BiLSTM). Its word vectors are learnt
here with the rest, where the paper starts from pretrained ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.config import RecurrentEncoder as RecurrentEncoderConfig
from textspace.config.text import TokenizerConfig
from textspace.data.batching import batch_of, batches_by_length
from textspace.data.questions import Question
from textspace.data.tokenizers import Tokenizer, train_tokenizer
from textspace.encoders import RecurrentEncoder, States
from textspace.errors import TextspaceError
from textspace.evaluate.rankings import counts_of, quality, ranks
from textspace.evaluate.statistics import some_rows
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import View

__all__ = ["AttentiveRanker", "TrainedRanker", "train_ranker"]

Floats = NDArray[np.float64]
Ids = list[int]

EMBEDDING, HIDDEN = 100, 100
BATCH, LEARNING_RATE, PATIENCE = 32, 1e-3, 3
MARGIN = 0.2
"""By which a right answer should score above a wrong one."""

WRONG = 4
"""Wrong answers drawn for each right one; that with the highest score counts."""

MOST_TOKENS = 150
"""Longer questions and answers are cut."""

MOST_VALID = 500
"""Validation questions that are looked at after each epoch, drawn at random."""

TOKENS_AT_ONCE = 2**13


class AttentiveRanker(nn.Module):
    """How well an answer fits a question, -1 to 1: cosine of the two, each pooled in the light of the other.

    With states Q and A of both texts and G = tanh(Q' U A), a word of the question weighs as much as its best match
    among the answer's words says, softmax of max over columns of G; likewise of the answer, over rows.
    """

    def __init__(self, vocabulary: int, embedding: int = EMBEDDING, hidden: int = HIDDEN) -> None:
        super().__init__()
        config = RecurrentEncoderConfig(kind="lstm", embedding=embedding, hidden=hidden, bidirectional=True)
        self.encoder = RecurrentEncoder(config, vocabulary)
        self.match = nn.Linear(self.encoder.size, self.encoder.size, bias=False)
        nn.init.uniform_(self.encoder.embedding.weight, -0.25, 0.25)

    def forward(self, question: States, answer: States) -> Tensor:
        """(B,); T are positions in the question, S in the answer."""
        g_BTS = torch.tanh(question.all_BTH @ self.match(answer.all_BTH).transpose(1, 2))
        both_BTS = question.mask_BT[:, :, None] & answer.mask_BT[:, None, :]
        g_BTS = g_BTS.where(both_BTS, -math.inf)
        weight_BT, weight_BS = g_BTS.amax(2).softmax(1), g_BTS.amax(1).softmax(1)
        return F.cosine_similarity(_weighed(question, weight_BT), _weighed(answer, weight_BS))


def _weighed(states: States, weight_BT: Tensor) -> Tensor:
    return (weight_BT[:, None] @ states.all_BTH)[:, 0]


@dataclass(frozen=True)
class TrainedRanker:
    """A ranker with its tokenizer, the epoch it was best in, and its MRR on validation questions then."""

    network: AttentiveRanker
    tokenizer: Tokenizer
    epoch: int
    valid_mrr: float

    @property
    def size(self) -> int:
        """How many numbers were trained."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def scores(self, questions: Sequence[Question], show_progress: bool = False) -> Floats:
        """Of the answers of all questions, end to end; the highest is the best."""
        return _scores(self.network, _Encoded.of(questions, self.tokenizer), show_progress)


@dataclass(frozen=True)
class _Encoded:
    """Questions and answers as ids; `answers` has a list for each question."""

    questions: list[Ids]
    answers: list[list[Ids]]

    @classmethod
    def of(cls, questions: Sequence[Question], tokenizer: Tokenizer) -> _Encoded:
        def ids(texts: Sequence[str]) -> list[Ids]:
            return [own[:MOST_TOKENS] for own in tokenizer.encode(list(texts))]

        return cls(ids([question.text for question in questions]), [ids(question.answers) for question in questions])


def train_ranker(
    train: Sequence[Question],
    valid: Sequence[Question] | None,
    tokenizer: TokenizerConfig,
    *,
    epochs: int,
    seed: int,
    device: torch.device | str = "cpu",
    show_progress: bool = False,
) -> TrainedRanker:
    """Train a ranker on questions with labels; the weights of the epoch with the best validation MRR are kept.

    The loss of a right answer is max(0, margin - its score + the highest score of a few wrong answers to the same
    question). Everything random comes from the seed.

    Args:
        train: questions; those that cannot be ranked teach nothing and are passed over.
        valid: questions to stop by; by default every tenth of the training questions, which are then not trained on.
        tokenizer: what kind; its vocabulary is learnt from the training questions and answers.
        epochs: at most so many.
        seed: of weights, order and wrong answers.
        device: to train on.
        show_progress: show a bar.
    """
    train = [question for question in train if question.can_be_ranked]
    if valid is None:
        train, valid = [q for row, q in enumerate(train) if row % 10], train[::10]
    valid = [question for question in valid if question.can_be_ranked]
    valid = [valid[row] for row in some_rows(len(valid), MOST_VALID)]
    if not train or not valid:
        raise TextspaceError("a ranker learns from questions with right and wrong answers, and there are too few")
    learnt = train_tokenizer(tokenizer, (text for question in train for text in (question.text, *question.answers)))
    seen, unseen = _Encoded.of(train, learnt), _Encoded.of(valid, learnt)
    right_N, counts_Q = np.array([right for question in valid for right in question.right]), counts_of(valid)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initial weights"))
        network = AttentiveRanker(len(learnt)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    best, best_epoch, best_weights = -1.0, 0, copy.deepcopy(network.state_dict())
    for epoch in track(range(epochs), "training a ranker", show_progress, epochs):
        network.train()
        for question, answers, size in _batches(train, seen, np.random.default_rng(seed_of(seed, "order", epoch))):
            optimizer.zero_grad()
            _loss(network, question.to(device), answers.to(device), size).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
        mrr = float(quality(ranks(_scores(network, unseen), counts_Q, seed=seed), right_N, counts_Q).mrr_Q.mean())
        if mrr > best:
            best, best_epoch, best_weights = mrr, epoch, copy.deepcopy(network.state_dict())
        elif epoch - best_epoch >= PATIENCE:
            break
    network.load_state_dict(best_weights)
    return TrainedRanker(network.eval(), learnt, best_epoch + 1, best)


def _batches(
    questions: Sequence[Question], encoded: _Encoded, random: np.random.Generator
) -> Iterator[tuple[View, View, int]]:
    """Questions; right answers followed by WRONG wrong ones of each; and how many questions."""
    examples = [(row, answer) for row, each in enumerate(questions) for answer, right in enumerate(each.right) if right]
    wrong = [np.flatnonzero(~np.array(question.right)) for question in questions]
    order = random.permutation(len(examples))
    for start in range(0, len(order), BATCH):
        chosen = [examples[number] for number in order[start : start + BATCH]]
        drawn = [random.choice(wrong[row], WRONG) for row, _ in chosen]
        answers = [encoded.answers[row][answer] for row, answer in chosen]
        for number in range(WRONG):
            answers += [encoded.answers[row][own[number]] for (row, _), own in zip(chosen, drawn, strict=True)]
        asked = batch_of([encoded.questions[row] for row, _ in chosen]).encoder
        yield asked, batch_of(answers).encoder, len(chosen)


def _loss(network: AttentiveRanker, question: View, answers: View, size: int) -> Tensor:
    states = network.encoder(question)
    repeated = States(
        states.all_BTH.repeat(1 + WRONG, 1, 1), states.last_BH.repeat(1 + WRONG, 1), states.mask_BT.repeat(1 + WRONG, 1)
    )
    score_AB = network(repeated, network.encoder(answers)).view(1 + WRONG, size)
    return (MARGIN - score_AB[0] + score_AB[1:].amax(0)).clamp(min=0).mean()


@torch.no_grad()
def _scores(network: AttentiveRanker, encoded: _Encoded, show_progress: bool = False) -> Floats:
    network.eval()
    device = network.encoder.embedding.weight.device
    pairs = [
        (question, answer)
        for question, answers in zip(encoded.questions, encoded.answers, strict=True)
        for answer in answers
    ]
    scores_N = np.zeros(len(pairs))
    lengths_N = np.array([len(question) + len(answer) + 4 for question, answer in pairs], np.int64)
    plan = batches_by_length(lengths_N, tokens=TOKENS_AT_ONCE)
    for rows_B in track(plan, "ranking", show_progress, len(plan)):
        question, answer = (batch_of([pairs[row][side] for row in rows_B]).encoder.to(device) for side in (0, 1))
        scores_N[rows_B] = network(network.encoder(question), network.encoder(answer)).double().cpu().numpy()
    return scores_N
