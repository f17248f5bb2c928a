"""Recorded steps: what can be told without a GPU (tests/train/test_gpu.py has the rest)."""

import numpy as np
import torch

from textspace.data.batching import batch_of
from textspace.noise import Noise, seed_of
from textspace.train.recorded import FLOATS, STREAMS, Numbers, _packed, _RecordedNoise, _StreamKeys


def test_noise_whose_keys_lie_on_the_device_has_the_numbers_of_other_noise() -> None:
    rows_B = torch.tensor([4, 9])
    keys = _StreamKeys(torch.zeros(3, dtype=torch.int64))
    recorded = _RecordedNoise(7, 0, rows_B, keys=keys)
    recorded.normal("z", (2,), 3)  # the first run tells which streams there are
    recorded.keep("words", (5,), 0.3)
    keys.keys_K[:2] = torch.tensor([seed_of(7, 12, stream) for stream in keys.streams])
    plain = Noise(7, 12, rows_B)
    assert torch.equal(recorded.after(2).normal("z", (2,), 3), plain.after(2).normal("z", (2,), 3))
    assert torch.equal(recorded.keep("words", (5,), 0.3), plain.keep("words", (5,), 0.3))


def test_a_batch_and_its_numbers_lie_one_after_the_other() -> None:
    batch = batch_of([[7, 8], [9]], rows=np.array([3, 5]))
    packed = _packed(batch, 6, Numbers(0, 0.5, {"kl": 0.25}), [11, 12])
    ids, lengths, rows, keys, floats = np.split(packed, np.cumsum([12, 2, 2, STREAMS]))
    assert ids.reshape(2, 6).tolist() == [[1, 7, 8, 3, 0, 0], [1, 9, 3, 0, 0, 0]]
    assert lengths.tolist() == [4, 3]
    assert rows.tolist() == [3, 5]
    assert keys[:3].tolist() == [11, 12, 0]
    assert floats.view(np.float64)[:3].tolist() == [0.5, 0.25, 0.0]
    assert len(floats) == FLOATS
