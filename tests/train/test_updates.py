"""What all update rules share: how losses are averaged, and how an optimiser takes a step."""

import math

import pytest
import torch
from helpers import small

from textspace.config import Optimizer, Training
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train.optimizers import Mover
from textspace.train.processes import Processes
from textspace.train.updates import Turn

# Averages


@pytest.mark.parametrize("name", ["vat", "transformer-vae", "vae", "iwae"])
@pytest.mark.parametrize("average", ["sentences", "tokens"])
def test_a_loss_is_the_mean_over_sentences_of_sums_or_means_over_their_tokens(
    trainer_of, name: str, average: str
) -> None:
    trainer = trainer_of(small(RECIPES[name]).but({"training.average": average, "training.clip": None}))
    model, objective, now = trainer.model, trainer.update.objective, Progress(0, 0.0, 0.15)
    shard = trainer.stream.next_batch()
    (batch,) = shard.pieces
    passed = model(batch, Noise(trainer.training.seed, 4, batch.rows_B), objective.samples)
    terms = objective(passed, now)
    whole = {name: term.values for name, term in terms.terms.items()}
    by_hand = []
    for row, tokens in enumerate((batch.decoder.lengths_B - 1).tolist()):
        loss = sum(weight * whole[term][row] for term, weight in terms.weights.items())
        by_hand.append(loss / (tokens if average == "tokens" else 1))
    loss = torch.stack(by_hand).mean()
    gradients = torch.autograd.grad(loss, trainer.update.parameters, allow_unused=True)
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None))

    step = trainer.update(lambda: shard, Turn(4, now, 0.0))
    found = dict(zip(step.names, step.values.tolist(), strict=True))
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert found["gradient"] == pytest.approx(norm, rel=1e-4)
    for term, values_B in whole.items():  # what is logged is of whole sentences, however the loss is averaged
        assert found[term] == pytest.approx(values_B.mean().item(), rel=1e-5)


# Optimisers


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_first_step_that_is_not_finite_leaves_nothing_behind(kind: str) -> None:
    """Momentum that a first step makes and does not fill would be whatever lay in memory."""
    mover = Mover(Training(precision="bf16"), Processes("cpu"))
    parameter = torch.nn.Parameter(torch.ones(1000))
    momentum = {"momentum": 0.9} if kind == "sgd" else {}
    optimizer = mover.optimizer([parameter], Optimizer(kind=kind, lr=0.1, **momentum))
    for gradient in (math.inf, 0.0, 0.0):
        parameter.grad = torch.full_like(parameter, gradient)
        mover(optimizer, [parameter], torch.zeros(1), 0.1)
        assert torch.equal(parameter, torch.ones(1000))
    parameter.grad = torch.ones_like(parameter)
    mover(optimizer, [parameter], torch.zeros(1), 0.1)
    assert (parameter < 1).all()


@pytest.mark.parametrize(
    ("groups", "clip", "expected"),
    [
        (None, True, (0.6, 0.8, 0.0)),  # the first two alone: norm 5, limited to 1
        ("together", True, (3 / 13, 4 / 13, 0.0)),  # with the third, which does not move: norm 13
        ("apart", True, (0.6, 0.8, 0.0)),
        ("one by one", True, (1.0, 1.0, 0.0)),
        (None, False, (3.0, 4.0, 0.0)),
    ],
)
def test_norms_are_limited_in_groups_and_only_what_moves_is_moved(groups, clip: bool, expected) -> None:
    """Gradients 3, 4 and 12, a learning rate of 1, and norms of at most 1."""
    mover = Mover(Training(clip=1.0), Processes("cpu"))
    a, b, c = (torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
    for parameter, gradient in ((a, 3.0), (b, 4.0), (c, 12.0)):
        parameter.grad = torch.full((1,), gradient)
    named = {None: None, "together": [[a, b, c]], "apart": [[a, b], [c]], "one by one": [[a], [b], [c]]}
    if groups is None:
        c.grad = None
    optimizer = mover.optimizer([a, b, c], Optimizer(kind="sgd", lr=1.0))
    values = mover(optimizer, [a, b], torch.zeros(1), 1.0, named[groups], clip)
    assert [-each.item() for each in (a, b, c)] == pytest.approx(expected, abs=1e-5)
    assert values[-1].item() == pytest.approx(5.0 if groups is None else 13.0)  # the norm before any limit
    assert [each.grad for each in (a, b, c)] == [None] * 3
