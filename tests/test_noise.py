import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from textspace.noise import Noise, seed_of


def noise(rows: list[int], step: int = 0, seed: int = 1) -> Noise:
    return Noise(seed=seed, step=step, rows_B=torch.tensor(rows))


def test_a_sentences_noise_does_not_depend_on_its_batch() -> None:
    together = noise([3, 8, 5]).normal("z", (4, 2), samples=3)
    alone = noise([8]).normal("z", (4, 2), samples=3)
    assert torch.equal(together[:, 1:2], alone)


def test_more_padding_only_adds_numbers_at_the_end() -> None:
    short, long = noise([1, 2]).uniform("d", (3, 5), 1), noise([1, 2]).uniform("d", (7, 5), 1)
    assert torch.equal(long[:, :, :3], short)


def test_chunks_of_samples_continue_each_other() -> None:
    whole = noise([1, 2]).normal("z", (6,), samples=7)
    parts = [noise([1, 2]).after(first).normal("z", (6,), samples=size) for first, size in [(0, 3), (3, 3), (6, 1)]]
    assert torch.equal(whole, torch.cat(parts))


def test_every_part_of_the_key_matters() -> None:
    base = noise([1]).normal("z", (8,), 1)
    others = [
        noise([2]).normal("z", (8,), 1),
        noise([1], step=1).normal("z", (8,), 1),
        noise([1], seed=2).normal("z", (8,), 1),
        noise([1]).normal("y", (8,), 1),
        noise([1]).after(1).normal("z", (8,), 1),
    ]
    assert all(not torch.isclose(base, other).any() for other in others)


def test_numbers_are_uniform_normal_and_independent() -> None:
    drawn = noise(list(range(200))).uniform("u", (50,), samples=20).numpy()
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    normal = noise(list(range(200))).normal("z", (50,), samples=20, dtype=torch.float64).numpy()
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    for axis in range(3):  # neighbours along samples, sentences and elements
        a, b = np.take(normal, range(1, normal.shape[axis]), axis), np.take(normal, range(normal.shape[axis] - 1), axis)
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)


def test_keep_keeps_the_right_share() -> None:
    for drop in (0.1, 0.5, 0.9):
        kept = noise(list(range(100))).keep("d", (1000,), drop).double().mean().item()
        assert abs(kept - (1 - drop)) < 5 * np.sqrt(drop * (1 - drop) / 100_000)


# Again and again


def kept(source: Noise, count: int, shape: tuple[int, ...] = (50,), drop: float = 0.3) -> torch.Tensor:
    """So many masks, (count, sentences, *shape)."""
    return torch.stack(list(itertools.islice(source.keeps("d", shape, drop), count)))


def test_what_drops_nearly_all_does_not_keep_all() -> None:
    assert kept(noise(list(range(50))), 1, (500,), drop=1 - 1e-6).double().mean() < 1e-3


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.5, 0.9])
def test_every_mask_keeps_the_right_share(drop: float) -> None:
    masks = kept(noise(list(range(200))), 9, (500,), drop=drop).double()
    for each in masks:
        assert abs(each.mean().item() - (1 - drop)) <= 5 * np.sqrt(drop * (1 - drop) / 100_000) + 2**-17


def test_masks_are_independent_of_each_other() -> None:
    """Four at a time come from the same numbers."""
    masks = kept(noise(list(range(200))), 9, (500,)).flatten(1).double().numpy()
    correlations = np.corrcoef(masks)[np.triu_indices(9, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(100_000)
    # and no quarter follows from the three others: each of the 16 patterns occurs as often as it should
    patterns = Counter(map(tuple, masks[:4].T.astype(int).tolist()))
    expected = {
        bits: 100_000 * 0.7 ** sum(bits) * 0.3 ** (4 - sum(bits)) for bits in itertools.product((0, 1), repeat=4)
    }
    statistic = sum((patterns[bits] - count) ** 2 / count for bits, count in expected.items())
    assert stats.chi2.sf(statistic, 15) > 1e-3
    for axis in (0, 1):  # neighbours along sentences and elements
        grid = masks.reshape(9, 200, 500)
        a, b = (
            np.take(grid, range(1, grid.shape[axis + 1]), axis + 1),
            np.take(grid, range(grid.shape[axis + 1] - 1), axis + 1),
        )
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)


def test_masks_are_keyed_like_all_numbers() -> None:
    whole = kept(noise([3, 8, 11]), 6, (7, 5))
    assert torch.equal(kept(noise([8]), 6, (7, 5)), whole[:, 1:2])
    assert torch.equal(kept(noise([3, 8, 11]), 6, (4, 5)), whole[:, :, :4])  # less padding
    assert torch.equal(kept(noise([3, 8, 11]).after(2), 6, (7, 5)), whole)  # further samples
    others = [kept(noise([3, 8, 11], **key), 6, (7, 5)) for key in ({"step": 1}, {"seed": 2})]
    assert not any(torch.equal(whole, other) for other in others)


def test_seed_of_fits_numpy_and_torch() -> None:
    assert all(0 <= seed_of("x", i) < 2**63 for i in range(1000))
