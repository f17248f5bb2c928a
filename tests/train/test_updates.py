"""Update rules: who moves, when, and along what."""

import json
import math
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pytest
import torch
from helpers import changed, copied, small

from textspace.config import Optimizer, Training
from textspace.errors import TextspaceError
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train import checkpoints, validation
from textspace.train.log import records
from textspace.train.loop import Trainer
from textspace.train.optimizers import Mover
from textspace.train.processes import Processes
from textspace.train.updates import AggressiveUpdate, Step, Turn

AGGRESSIVE = small(RECIPES["vae-aggressive"])
ALTERNATING = small(RECIPES["ivae"])


def steps_of(trainer: Trainer) -> list[dict]:
    return list(records(trainer.folder / "steps.jsonl", "step"))


def turn(number: int, rate: float = 0.01) -> Turn:
    return Turn(number, Progress(number, 0.0), rate)


def side(name: str) -> str:
    part = name.split(".")[0]
    return {"encoder": "encoder", "pooling": "encoder", "posterior": "encoder", "decoder": "decoder"}[part]


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


def test_a_window_is_averaged_like_the_loss(trainer_of) -> None:
    changes = {
        "training.update.window": 2,
        "training.update.cap": 9,
        "training.batch": {"sentences": None, "tokens": 150},
    }
    best = {}
    for average in ("sentences", "tokens"):
        rule = trainer_of(AGGRESSIVE.but(changes | {"training.average": average}), average).update
        steps = [rule(None, turn(number)) for number in range(3)][:2]
        assert len({step.sentences for step in steps}) == 2
        counts = [step.tokens if average == "sentences" else step.sentences for step in steps]
        best[average] = rule.state()["best_window"]
        total = sum(float(step.values[0]) * step.sentences for step in steps)
        assert best[average] == pytest.approx(total / sum(counts))
    assert best["tokens"] == pytest.approx(best["sentences"], rel=0.1)  # nats of a token, either way


# Aggressive


class Scripted(AggressiveUpdate):
    """Its steps move nothing and have the losses per token, tokens and sentences of a script."""

    script: Iterator[tuple[float, int, int]]

    def _step(self, shard, turn, moving) -> Step:
        per_token, tokens, sentences = next(self.script) if moving is self.inference else (0.0, 1, 1)
        loss = per_token * tokens / sentences  # a step tells the mean over sentences
        return Step(("loss",), torch.tensor([loss]), {}, sentences, tokens)


def catching_up(trainer: Trainer, script: list[tuple[float, int, int]], *, window: int, cap: int) -> list[int]:
    """How many steps the encoder takes before each one of the decoder."""
    recipe = trainer.recipe.but({"training.update.window": window, "training.update.cap": cap})
    objective = build_objective(recipe, trainer.model)
    own_stream = trainer.update.own_stream
    rule = Scripted(
        trainer.model, objective, recipe.training, trainer.processes, recipe.training.update, own_stream
    )  # fmt: skip
    rule.script = iter(script)
    counts = [0]
    for number in range(1000):
        try:
            step = rule(trainer.stream.next_batch, turn(number))
        except StopIteration:
            assert counts[-1] == len(script) - sum(counts[:-1]), "a script must end with its loop"
            return counts[:-1]
        if step.moved == ("encoder",):
            counts[-1] += 1
        else:
            counts.append(0)
    raise AssertionError("the script does not end")


@pytest.mark.parametrize(
    ("script", "window", "cap", "expected"),
    [
        pytest.param([5, 5, 4, 4, 3, 3, 3.5, 3.5], 2, 100, [8], id="worse"),
        pytest.param([5, 5, 5, 5], 2, 100, [4], id="as good"),
        pytest.param([5, 4, 3, 6, 2, 2, 9, 9], 2, 100, [4, 4], id="anew after a step of the decoder"),
        # 3 per token; then 9 on 10 tokens and 1 on 90, so 1.8; then 1.9
        pytest.param(
            [(3, 10, 4), (3, 10, 4), (9, 10, 4), (1, 90, 4), (1.9, 8, 4), (1.9, 8, 4)], 2, 100, [6], id="by tokens"
        ),
        pytest.param([(5, 9, 9), (5, 9, 9), (4, 9, 1), (4, 9, 1), 6, 6], 2, 100, [6], id="whatever the sentences"),
        pytest.param([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], 2, 5, [5, 5], id="capped within a window"),
        pytest.param([9, 8, 7, 6, 5, 4, 3, 2], 2, 4, [4, 4], id="capped at a window's end"),
        pytest.param([1, 1, 1], 15, 1, [1, 1, 1], id="capped at one"),
    ],
)
def test_the_encoder_goes_on_while_its_loss_per_token_falls(trainer_of, script, window, cap, expected) -> None:
    script = [line if isinstance(line, tuple) else (line, 9, 4) for line in script]
    assert catching_up(trainer_of(AGGRESSIVE), script, window=window, cap=cap) == expected


@pytest.mark.parametrize("shared", [False, True])
def test_each_side_moves_in_its_own_steps_only(trainer_of, shared: bool) -> None:
    """A shared embedding is the encoder's."""
    trainer = trainer_of(AGGRESSIVE.but({"share_embeddings": shared}))
    sides = {"encoder": set(), "decoder": set()}
    for name in checkpoints.weights(trainer.model):
        sides[side(name)].add(name)
    assert ("decoder.embedding.weight" in sides["decoder"]) == (not shared)
    seen, learning = [], []
    trainer.model.register_forward_pre_hook(
        lambda model, inputs: learning.append({name for name, p in model.named_parameters() if p.requires_grad})
    )
    for number in range(9):
        before = copied(trainer.model)
        step = trainer.update(trainer.stream.next_batch, turn(number))
        assert changed(trainer.model, before) == sides[step.moved[0]] == learning[-1]
        assert all(parameter.requires_grad for parameter in trainer.model.parameters())
        assert all(parameter.grad is None for parameter in trainer.model.parameters())
        seen.append(step.moved)
    assert seen.count(("decoder",)) >= 2
    assert seen.count(("encoder",)) >= 4


def test_an_epoch_is_every_sentence_once_for_the_decoder(trainer_of) -> None:
    trainer = trainer_of(AGGRESSIVE.but({"training.epochs": 2}))
    rows = {"stream": [], "own": []}

    def listened(stream, name: str) -> None:
        next_batch = stream.next_batch

        def listening():
            shard = next_batch()
            rows[name].append(shard.pieces[0].rows_B.tolist())
            return shard

        stream.next_batch = listening

    listened(trainer.stream, "stream")
    listened(trainer.update.own_stream, "own")
    trained = trainer.run()
    assert sorted(chain(*rows["stream"][:12])) == sorted(chain(*rows["stream"][12:])) == list(range(360))
    assert len(rows["own"]) == trained.encoder_updates > 2 * 12
    assert sorted(chain(*rows["own"][:12])) == list(range(360))  # it goes through the data in an order of its own
    assert rows["own"][:12] != rows["stream"][:12]


def test_steps_are_counted_by_side_and_schedules_follow_the_decoder(trainer_of) -> None:
    weight = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 100, "unit": "steps"}
    rate = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10, "unit": "steps"}
    recipe = AGGRESSIVE.but(
        {"objective.kl_weight": weight, "training.optimizer.schedule": rate, "training.epochs": 1}
    )  # fmt: skip
    trainer = trainer_of(recipe)
    trained = trainer.run()
    lines = steps_of(trainer)
    moved = [line["moved"] for line in lines]
    assert set(moved) == {"encoder", "decoder"}
    assert trained.decoder_updates == moved.count("decoder") == 12
    assert trained.encoder_updates == moved.count("encoder") == trained.steps - 12
    assert moved[:4] == ["encoder"] * 3 + ["decoder"]  # the cap is 3
    decoder_steps_before = np.cumsum([0] + [m == "decoder" for m in moved])[:-1]
    np.testing.assert_allclose([line["weights"]["kl"] for line in lines], decoder_steps_before / 100)
    np.testing.assert_allclose([line["lr"] for line in lines], 0.005 * np.minimum(decoder_steps_before / 10, 1))
    np.testing.assert_allclose([line["epoch"] for line in lines], np.cumsum([m == "decoder" for m in moved]) / 12)


@pytest.mark.parametrize("steps", [47, 48, 49, 50])
def test_the_last_steps_are_validated_also_the_encoders_own(trainer_of, steps: int) -> None:
    """An epoch is 12 batches of three steps of the encoder and one of the decoder: 48 steps."""
    trainer = trainer_of(AGGRESSIVE.but({"training.steps": steps}))
    assert trainer.run().steps == steps
    validated = [line["step"] for line in records(trainer.folder / "steps.jsonl", "validation")]
    assert validated == ([48] if steps >= 48 else []) + ([steps] if steps != 48 else [])


def test_the_state_of_the_inner_loop_comes_back_as_it_was(trainer_of) -> None:
    recipe = AGGRESSIVE.but({"training.update.window": 2, "training.update.cap": 9})
    one, other = (trainer_of(recipe, name).update for name in ("a", "b"))
    one.end_epoch({"mi": 0.7})
    for number in range(3):  # into the second window
        assert one(None, turn(number)).moved == ("encoder",)
    state = one.state()
    assert state["inner_steps"] == 3
    assert 0 < state["best_window"] < 10
    assert state["window_loss"] > 0
    other.resume(json.loads(json.dumps(state)))
    assert other.state() == state
    rows = [rule.own_stream.next_batch().pieces[0].rows_B.tolist() for rule in (one, other)]
    assert rows[0] == rows[1]
    fresh = trainer_of(recipe, "c").update
    fresh.resume(json.loads(json.dumps(fresh.state())))  # no window and no epoch yet: infinities
    assert (fresh.best_window, fresh.information) == (math.inf, -math.inf)


@pytest.mark.parametrize(
    ("information", "ends"),
    [([1.0, 2.0, 2.0], 3), ([1.0, 0.5], 2), ([1.0, 2.0, 1.9, 5.0], 3), ([8.1, 8.109, 8.2], 2)],
)
def test_it_ends_when_the_mutual_information_no_longer_grows(trainer_of, information: list[float], ends: int) -> None:
    rule = trainer_of(AGGRESSIVE).update
    told = [rule.end_epoch({"mi": value}) for value in information]
    assert [epoch for epoch, line in enumerate(told, start=1) if line] == [ends]
    before, now = information[ends - 2], information[ends - 1]
    assert f"no longer grows ({before:.2f} nats, now {now:.2f})" in told[ends - 1]
    assert not rule.aggressive


def test_it_ends_where_there_is_no_mutual_information(trainer_of) -> None:
    """That of a single point's density, say, or of a single sentence."""
    trainer = trainer_of(AGGRESSIVE.but({"posterior.kind": "delta", "objective.kind": "reconstruction"}))
    trainer.run()
    lines = steps_of(trainer)
    assert max(line["epoch"] for line in lines if "moved" in line) == 1
    assert min(line["epoch"] for line in lines if "moved" not in line) == 1 + 1 / 12
    told = trainer_of(AGGRESSIVE).update.end_epoch({})
    assert told == "the mutual information is not known here: encoder and decoder move together from here on"


def test_the_validations_mutual_information_decides(trainer_of, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(AGGRESSIVE.but({"training.epochs": 4}))
    values = iter([1.0, 1.5, 1.5, 9.0])
    monkeypatch.setattr(validation, "_codes_measured", lambda *given: {"mi": next(values)})
    trained = trainer.run()
    lines = steps_of(trainer)
    one_sided = [line["epoch"] for line in lines if "moved" in line]
    together = [line["epoch"] for line in lines if "moved" not in line]
    assert max(one_sided) == 3
    np.testing.assert_allclose(together, 3 + np.arange(1, 13) / 12)
    assert trained.decoder_updates == 4 * 12
    assert trained.encoder_updates == len(lines) - 3 * 12


def test_after_its_end_it_is_the_joint_rule(trainer_of) -> None:
    aggressive, joint = trainer_of(AGGRESSIVE, "a"), trainer_of(AGGRESSIVE.but({"training.update.kind": "joint"}), "b")
    aggressive.update.end_epoch({"mi": 1.0})
    aggressive.update.end_epoch({"mi": 1.0})
    ended = aggressive.run(), joint.run()
    assert checkpoints.digest(aggressive.model) == checkpoints.digest(joint.model)
    assert steps_of(aggressive) == steps_of(joint)
    assert ended[0].encoder_updates == ended[0].decoder_updates == ended[1].decoder_updates == 24


# Alternating


def duals(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("dual.")}


@pytest.mark.parametrize("of", ["posterior", "aggregated"])
@pytest.mark.parametrize("dual_steps", [1, 3])
def test_the_dual_moves_in_its_own_steps_only(trainer_of, of: str, dual_steps: int) -> None:
    trainer = trainer_of(ALTERNATING.but({"training.update.dual_steps": dual_steps, "objective.of": of}))
    rule, before = trainer.update, copied(trainer.model)
    dual = duals(before)
    assert len(dual) == 8  # three hidden layers and the output

    rule._step(trainer.stream.next_batch(), turn(0), rule.parameters)  # the model's part of a step
    assert changed(trainer.model, before) == before.keys() - dual

    before = copied(trainer.model)
    for number in (1, 2):
        rule(trainer.stream.next_batch, turn(number, rate=0.0))  # the model stays where it is
    assert changed(trainer.model, before) == dual
    counts = {int(state["step"]) for state in rule.dual_optimizer.state.values()}
    assert counts == {2 * dual_steps}
    assert len(rule.dual_optimizer.state) == len(dual)
    assert {int(state["step"]) for state in rule.optimizer.state.values()} == {3}
    in_both = {id(p) for p in rule.optimizer.state} & {id(p) for p in rule.dual_optimizer.state}
    assert not in_both
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.parametrize("of", ["posterior", "aggregated"])
def test_the_bound_of_the_dual_rises_on_a_fixed_model(trainer_of, of: str) -> None:
    recipe = ALTERNATING.but(
        {"objective.of": of, "training.update.optimizer.lr": 1e-3, "training.batch.sentences": 360}
    )  # fmt: skip
    trainer = trainer_of(recipe)
    bounds = []
    for number in range(40):
        step = trainer.update(trainer.stream.next_batch, turn(number, rate=0.0))
        bounds.append(float(step.values[step.names.index("dual_kl")]))
    parts = [np.mean(bounds[:5]), np.mean(bounds[15:20]), np.mean(bounds[-5:])]
    assert 0.1 > parts[0] < parts[1] < parts[2] > 1


def test_the_dual_function_is_taught_in_the_precision_of_the_steps(trainer_of) -> None:
    trainer = trainer_of(ALTERNATING.but({"training.update.dual_steps": 3}))
    trainer.update.training = trainer.training.model_copy(update={"precision": "bf16"})  # as on a GPU
    seen = []
    trainer.model.dual.network.register_forward_hook(
        lambda module, given, told: seen.append((given[0].dtype, told.dtype))
    )
    step = trainer.update(trainer.stream.next_batch, turn(0))
    assert {told for _, told in seen} == {torch.bfloat16}
    assert len(seen) == 2 * (3 + 1)  # codes and draws of the prior, three times to teach it and once to learn from it
    assert step.values.isfinite().all()


def test_the_rates_of_model_and_dual_are_their_own(trainer_of) -> None:
    plateau = {"patience": 1, "max_decays": 9}
    trainer = trainer_of(ALTERNATING.but({"training.plateau": plateau, "training.epochs": 3}))
    values = iter([3.0, 4.0, 5.0])
    trainer._criterion = lambda numbers: next(values)
    trainer.run()
    assert steps_of(trainer)[-1]["lr"] == 0.0025
    assert trainer.update.dual_optimizer.param_groups[0]["lr"] == 1e-5


def test_a_dual_that_is_not_finite_moves_nothing(trainer_of) -> None:
    trainer = trainer_of(ALTERNATING)
    trainer.update(trainer.stream.next_batch, turn(0))
    with torch.no_grad():
        trainer.model.dual.network[0].weight[0, 0] = torch.inf
    before = copied(trainer.model)
    trainer.update(trainer.stream.next_batch, turn(1))
    assert changed(trainer.model, before) == set()


def test_a_dual_that_is_not_finite_for_once_is_told_though_the_loss_is(
    trainer_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(ALTERNATING)
    truth = trainer.update.objective.dual

    def unlucky(features_BH, site, noise, stream):
        bound_B = truth(features_BH, site, noise, stream)
        return bound_B * torch.inf if stream.endswith("dual step 0") else bound_B

    monkeypatch.setattr(trainer.update.objective, "dual", unlucky)
    step = trainer.update(trainer.stream.next_batch, turn(0))
    found = dict(zip(step.names, step.values.isfinite().tolist(), strict=True))
    assert [name for name, finite in found.items() if not finite] == ["dual_gradient", "gradient"]
    assert step.values[step.names.index("loss")].isfinite()
    with pytest.raises(TextspaceError, match="dual_gradient became"):
        trainer.run()


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
