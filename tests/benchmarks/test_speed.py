from __future__ import annotations

import pytest
import torch
from helpers import small, tiny_sentences
from tiny_encoder import tiny_encoder
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import data_parallel, limits
from benchmarks.cpu import OtherEncoder, encoding, to_quality, trained
from benchmarks.text_pipeline import growths
from benchmarks.trainer_overhead import KINDS, Rates, bare_loss, overhead, ratios
from benchmarks.training_cost import costs, generated
from textspace.data.batching import batch_of, make_batch
from textspace.data.corpus import ReadOptions
from textspace.data.english import english
from textspace.evaluate.measures.sentence_encoders import Baseline
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES, recipe
from textspace.space import Space
from textspace.train.processes import Processes

SMALL_DEFAULT = small(RECIPES["default"])


def counted(model: torch.nn.Module, *given: object, **named: object) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*given, **named)
    return counter.get_total_flops()


@pytest.mark.parametrize("changes", [{}, {"encoder.bidirectional": False}, {"encoder.layers": 2}])
def test_operations_are_those_that_pytorch_counts(changes) -> None:
    model = Model(SMALL_DEFAULT.but(changes), 50)
    batch = batch_of([[5] * 7] * 4)
    reading, writing = limits.operations(model)
    expected = counted(model, batch, Noise(0, 0, batch.rows_B))
    assert 4 * (reading.sentence(9) + writing.sentence(8)) == expected
    assert counted(model, batch_of([[5] * 9] * 4), Noise(0, 0, batch.rows_B)) > expected


def test_operations_of_other_encoders_are_those_that_pytorch_counts() -> None:
    network = OtherEncoder(str(tiny_encoder())).encoder.network
    network.set_attn_implementation("eager")  # whose products are counted one by one
    config = network.config
    ids_BT = torch.full((3, 11), 5)
    expected = counted(network, input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
    assert 3 * limits.network_operations(network, config.num_hidden_layers, config.hidden_size, 11) == expected


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_bytes_of_a_ring_are_those_that_a_ring_sends(processes: int) -> None:
    parts = [[float(rank + 1)] * processes for rank in range(processes)]  # each its own gradient, cut into pieces
    sent = 0
    for turn in range(2 * (processes - 1)):
        moving = [
            (rank, (rank - turn) % processes, parts[rank][(rank - turn) % processes]) for rank in range(processes)
        ]
        for rank, piece, value in moving:
            neighbour = parts[(rank + 1) % processes]
            neighbour[piece] = neighbour[piece] + value if turn < processes - 1 else value
            sent += rank == 0
    assert parts == [[sum(range(1, processes + 1))] * processes] * processes
    assert limits.all_reduced_bytes(processes, processes) == sent * limits.BYTES


def test_the_bare_loop_has_the_loss_of_the_model(tiny) -> None:
    chosen = SMALL_DEFAULT.but({"decoder.input_dropout": 0.0, "decoder.output_dropout": 0.0})
    model = Model(chosen, len(tiny.tokenizer)).train()
    split = tiny.encoded.splits["train"]
    batch = make_batch(split, split.lengths.argsort()[::20])  # of several lengths
    noise = Noise(0, 0, batch.rows_B)
    passed = model(batch, noise)
    expected = (0.5 * passed.sites["z"].kl_B - passed.log_px_SB.mean(0)).mean()
    normal_BZ = noise.normal("z", (chosen.latent.dim,), 1)[0]
    torch.testing.assert_close(bare_loss(model, batch, normal_BZ, 0.5), expected)
    assert not torch.isclose(bare_loss(model, batch, -normal_BZ, 0.5), expected, rtol=1e-4)


def test_training_is_timed_three_times(tiny) -> None:
    found = overhead(SMALL_DEFAULT, tiny, Processes("cpu"), steps=3, rounds=2)
    assert found["tokens_per_second"].keys() == set(KINDS)
    assert all(rate > 0 for rate in found["tokens_per_second"].values())
    lengths = tiny.encoded.splits["train"].lengths
    assert 32 * (lengths.min() - 1) < found["tokens_per_step"] < 32 * (lengths.max() - 1)


def test_ratios_are_medians_of_ratios_and_not_ratios_of_medians() -> None:
    found = ratios([(Rates(2, 1), Rates(4, 1)), (Rates(9, 1), Rates(3, 1)), (Rates(5, 1), Rates(5, 2))])
    assert (found["clock"], found["processor"]) == (1.0, 1.0)
    assert found["clock_of_each_round"] == [0.5, 3.0, 1.0]


def test_quality_is_reached_at_the_first_validation_that_is_close_enough() -> None:
    curve = [{"elbo": value, "seconds": at} for at, value in enumerate([60.0, 40.5, 41.5, 40.0])]
    assert to_quality(curve, "elbo", 0.02)["seconds"] == 1
    assert to_quality(curve, "elbo", 0.01)["seconds"] == 3


def test_costs_of_a_sentence_more_leave_out_fixed_ones() -> None:
    rows = [{"sentences": n, "seconds_of_work": 7 + n / 1000, "peak_mb": 200 + n / 2**20} for n in (10, 1010, 9010)]
    found = growths(rows)
    assert [each["microseconds_per_sentence"] for each in found] == [1000.0, 1000.0]
    assert [each["bytes_of_peak_memory_per_sentence"] for each in found] == [1.0, 1.0]


def test_a_space_is_trained_and_encodes_beside_another_encoder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("benchmarks.cpu.recipe", lambda name: SMALL_DEFAULT)
    found = trained("builtin:400", ReadOptions(), epochs=2, steps=3, rounds=1, folder=tmp_path)
    assert [line["epoch"] for line in found["curve"]] == [1.0, 2.0]
    assert found["time_to_quality"]["elbo"] <= found["time_to_quality"]["limit"]
    space = Space.load(tmp_path, "cpu")
    texts = [sentence.text for sentence in english().sample(40, seed=1)]
    read = encoding(space, texts, str(tiny_encoder()), rounds=1)
    assert read["sentences_per_second"].keys() == {"space", "other"}
    assert read["space_to_other"]["clock"] > 0


def test_the_other_encoder_is_the_baseline_of_evaluations(tiny, small_vae, tiny_model) -> None:
    texts = tiny_sentences(30)
    found = OtherEncoder(str(tiny_encoder())).encode(texts, 64)
    space = Space(small_vae, tiny.tokenizer, tiny_model)
    expected = Baseline(str(tiny_encoder()), space).pooled(texts)["mean"]
    torch.testing.assert_close(torch.from_numpy(found).double(), torch.from_numpy(expected), atol=1e-5, rtol=1e-4)


def test_costs_of_tokens_are_compared_with_the_first_text(tmp_path) -> None:
    chosen = SMALL_DEFAULT.but({"training.steps": 2})
    short = generated(chosen, 100, 1, None, tmp_path)
    found = costs(chosen, {"short": short, "long": generated(chosen, 100, 3, short, tmp_path)}, rounds=1)
    assert found[0]["to_the_first"]["clock"] == 1.0
    assert found[1]["mean_tokens"] == pytest.approx(3 * found[0]["mean_tokens"] - 2, rel=0.1)  # one end for three


def test_one_process_sends_nothing_and_has_the_losses_of_its_steps(monkeypatch) -> None:
    monkeypatch.setattr(data_parallel, "SOURCE", "builtin:200")
    monkeypatch.setattr(data_parallel, "recipe", lambda name: SMALL_DEFAULT)
    found = data_parallel.one_run(batch=16, steps=3)
    assert found["processes"] == 1
    assert len(found["losses"]) == 3
    assert limits.all_reduced_bytes(found["parameters"], 1) == 0


def test_the_plan_counts_parameters_and_the_slowest_link() -> None:
    found = data_parallel.plan_of("vae, Penn Treebank sizes")
    assert found["parameters"] == sum(p.numel() for p in Model(recipe("vae"), 10_000).parameters())
    sent = 2 * 7 / 8 * 4 * found["parameters"]
    assert found["exchange_milliseconds"]["8 GPUs, NVLink"] == pytest.approx(1e3 * sent / 450e9, abs=1e-3)
    one_card = found["exchange_milliseconds"]["64 GPUs, 1 card a machine"]
    assert one_card == pytest.approx(8 * found["exchange_milliseconds"]["64 GPUs, 8 cards a machine"], rel=1e-2)
