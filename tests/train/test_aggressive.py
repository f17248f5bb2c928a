"""Aggressive training: which side moves, on which batch, how far, and until when."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
import torch
from helpers import changed, copied, small

from textspace.config import AggressiveUpdate as AggressiveConfig
from textspace.config import Recipe
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train import checkpoints, validation
from textspace.train.aggressive import AggressiveUpdate
from textspace.train.log import records
from textspace.train.loop import Trainer
from textspace.train.resuming import as_first_written
from textspace.train.updates import Step, Turn

PUBLISHED = small(RECIPES["vae-aggressive"])
"""As the public code has it."""
AGGRESSIVE = PUBLISHED.but({"training.update": {"kind": "aggressive", "window": 2, "cap": 3}})
"""With the options that older recipes have: each side is clipped alone, the encoder goes through the data in its own
order, and the mutual information of the whole set decides."""


def steps_of(trainer: Trainer) -> list[dict]:
    return list(records(trainer.folder / "steps.jsonl", "step"))


def turn(number: int, rate: float = 0.01) -> Turn:
    return Turn(number, Progress(number, 0.0), rate)


def side(name: str) -> str:
    part = name.split(".")[0]
    return {"encoder": "encoder", "pooling": "encoder", "posterior": "encoder", "decoder": "decoder"}[part]


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
    update, stream = recipe.training.update, trainer.stream
    rule = Scripted(trainer.model, objective, recipe.training, trainer.processes, update, stream, own_stream)
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
        pytest.param([5, 5, 5, 5, 5, 5, 6, 6], 2, 100, [8], id="as good goes on"),
        pytest.param([9] * 15 + [9.001] * 15, 15, 99, [30], id="thirty at least"),
        pytest.param([9] * 99, 15, 99, [99], id="ninety-nine at most"),
        pytest.param([9, 9, 9, math.nan], 2, 100, [4], id="not a number"),
        pytest.param([5, 4, 3, 7, 2, 2, 9, 9], 2, 100, [4, 4], id="anew after a step of the decoder"),
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
def test_the_encoder_goes_on_until_its_loss_per_token_rises(trainer_of, script, window, cap, expected) -> None:
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


# As the public code has it


def gradients_of(trainer: Trainer, shard, number: int) -> dict[str, torch.Tensor]:
    """Those of the loss, by autograd alone."""
    (batch,) = shard.pieces
    passed = trainer.model(batch, Noise(trainer.training.seed, number, batch.rows_B))
    terms = trainer.update.objective(passed, turn(number).progress)
    own = dict(trainer.model.named_parameters())
    return dict(zip(own, torch.autograd.grad(terms.loss(terms.means(len(batch))), own.values()), strict=True))


def norm(tensors) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


@pytest.mark.parametrize("limit", [0.05, 1e6])
@pytest.mark.parametrize("together", [True, False])
def test_the_side_that_moves_is_clipped_with_the_other_or_alone(trainer_of, together: bool, limit: float) -> None:
    """Alone its step is sqrt(1 + |other|^2 / |own|^2) times as long; without a limit in reach both are equal."""
    changes = {"training.optimizer": {"kind": "sgd", "lr": 1.0}, "training.clip": limit, "training.update.cap": 1}
    trainer = trainer_of(PUBLISHED.but(changes | {"training.update.clip_together": together}))
    for number, moving in enumerate(["encoder", "decoder"]):  # the inner step is clipped like the decoder's
        shard = trainer.stream.coming()
        gradients = gradients_of(trainer, shard, number)
        of_side = {name: gradient for name, gradient in gradients.items() if side(name) == moving}
        own, both = norm(of_side.values()), norm(gradients.values())
        assert both > 1.005 * own
        before = copied(trainer.model)
        step = trainer.update(trainer.stream.next_batch, turn(number, rate=1.0))
        assert step.moved == (moving,)
        assert step.values[-1].item() == pytest.approx(both if together else own, rel=1e-4)
        assert changed(trainer.model, before) == of_side.keys()
        factor = min(1.0, limit / (both if together else own))
        for name, gradient in of_side.items():
            moved = before[name] - copied(trainer.model)[name]
            torch.testing.assert_close(moved, gradient * factor, rtol=1e-3, atol=1e-6)


def test_the_first_inner_batch_is_the_coming_one_and_others_are_drawn_with_replacement(trainer_of) -> None:
    trainer = trainer_of(PUBLISHED.but({"training.update.window": 50, "training.update.cap": 40}))
    stream = trainer.stream
    taken: list[tuple[tuple[str, ...], tuple[int, ...], list]] = []
    step = trainer.update._step

    def noted(shard, turn, moving) -> Step:
        rows = tuple(shard.pieces[0].rows_B.tolist())
        side = "encoder" if moving is trainer.update.inference else "decoder"
        taken.append((side, rows, [tuple(each.tolist()) for each in stream.plan]))
        return step(shard, turn, moving)

    trainer.update._step = noted
    decoder_steps = 0
    for number in range(13 * 41):  # an epoch of 12 batches, and one more
        at = stream.position
        moved = trainer.update(stream.next_batch, Turn(number, Progress(decoder_steps, at), 0.0)).moved
        assert stream.position == (at if moved == ("encoder",) else pytest.approx(at + 1 / 12))
        decoder_steps += moved == ("decoder",)
    inner = [taken[start : start + 41] for start in range(0, len(taken), 41)]
    for loop in inner:
        sides = [side for side, _, _ in loop]
        assert sides == ["encoder"] * 40 + ["decoder"]
        assert loop[0][1] == loop[-1][1]
    assert sorted(chain(*(loop[-1][1] for loop in inner[:12]))) == list(range(360))
    drawn = [(rows, plan) for loop in inner for _, rows, plan in loop[1:-1]]
    assert all(rows in plan for rows, plan in drawn)  # the batches of the epoch, as they are
    counts = Counter(rows for rows, _ in drawn[: 12 * 39])
    assert len(counts) == 12
    expected = 12 * 39 / 12
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in counts.values())
    loop_rows = [rows for _, rows, _ in inner[0][1:-1]]
    assert len(set(loop_rows[:12])) < 12  # an order of the epoch would bring none twice


def test_a_resumed_inner_loop_draws_the_batches_that_it_would_have_drawn(trainer_of) -> None:
    one, other = (
        trainer_of(PUBLISHED.but({"training.update.window": 20, "training.update.cap": 20}), name)
        for name in ("a", "b")
    )
    for number in range(5):
        one.update(None, turn(number))
    other.update.resume(json.loads(json.dumps(one.update.state())))
    rows = [rule._inner_batch(turn(5)).pieces[0].rows_B.tolist() for rule in (one.update, other.update)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("information", "ends"),
    [
        ([1.0, 2.0, 1.999], 3),
        ([0.5, 0.5, 0.505, 0.4], 4),  # none, or a rise below .01, goes on
        ([-0.001, 3.0], 1),  # compared with 0
        ([0.0, 3.46, 3.4599999], 3),
    ],
)
def test_it_ends_at_the_first_fall_within_minibatches(trainer_of, information: list[float], ends: int) -> None:
    rule = trainer_of(PUBLISHED).update
    told = [rule.end_epoch({"mi_minibatch": value, "mi": 0.0}) for value in information]
    assert [epoch for epoch, line in enumerate(told, start=1) if line] == [ends]
    assert "within minibatches fell" in told[ends - 1]
    assert not rule.aggressive


def test_it_ends_where_no_minibatch_has_a_mutual_information(trainer_of) -> None:
    told = trainer_of(PUBLISHED).update.end_epoch({"mi": 1.0})
    assert told == "the mutual information is not known here: encoder and decoder move together from here on"


def test_an_older_recipe_means_what_it_meant() -> None:
    """Its files and the keys of its results have none of the new options."""
    update = AggressiveConfig.model_validate({"kind": "aggressive", "window": 15, "cap": 100})
    assert (update.clip_together, update.inner_batches, update.ends) == (False, "epochs", "growth")
    plain = json.loads(AGGRESSIVE.to_json())
    for name in ("clip_together", "inner_batches", "ends"):
        plain["training"]["update"].pop(name)
    assert Recipe.parse(plain) == AGGRESSIVE
    assert json.loads(as_first_written(AGGRESSIVE.to_json()))["training"]["update"] == plain["training"]["update"]
    published = json.loads(as_first_written(PUBLISHED.to_json()))["training"]["update"]
    assert published == json.loads(PUBLISHED.to_json())["training"]["update"]
