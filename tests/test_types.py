"""What flows through the model where every token has a latent: padded codes, and sites that count real tokens only."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from textspace.distributions import GateLogit, Mixture
from textspace.noise import Noise
from textspace.types import PaddedCodes, Site, Term, Terms, View

LENGTHS = [4, 1, 2]
MASK_BT = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
S, B, T, Z = 3, 3, 4, 2


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Padded codes


def test_codes_are_padded_and_unpadded() -> None:
    codes = [random(length, Z, seed=length) for length in LENGTHS]
    padded = PaddedCodes.of(codes)
    assert torch.equal(padded.mask_NT, MASK_BT)
    assert padded.values_NTZ.shape == (B, T, Z)
    assert not padded.values_NTZ[~MASK_BT].any()
    assert len(padded) == B
    for there, back in zip(codes, padded.unpadded(), strict=True):
        assert torch.equal(there, back)


def test_sentences_of_padded_codes_can_be_picked_and_repeated() -> None:
    codes = [random(length, Z, seed=length) for length in LENGTHS]
    padded = PaddedCodes.of(codes)
    for picked, rows in (
        (padded[1:], [1, 2]),
        (padded[torch.tensor([2, 0, 2])], [2, 0, 2]),
        (padded.repeat_interleave(2, 0), [0, 0, 1, 1, 2, 2]),
    ):
        assert len(picked) == len(rows)
        for row, code_TZ in zip(rows, picked.unpadded(), strict=True):
            assert torch.equal(code_TZ, codes[row])
    moved = padded.to(torch.device("cpu"), torch.float32)
    assert (moved.values_NTZ.dtype, moved.mask_NT.dtype) == (torch.float32, torch.bool)


# Sites


def site(padding: float = 0.0) -> Site:
    """Posteriors and samples that at padding are as given."""
    real = MASK_BT[:, :, None]
    mean_BTZ = random(B, T, Z).where(real, padding)
    deviation_BTZ = (0.5 * random(B, T, Z, seed=1)).exp().where(real, abs(padding) + 1)
    value_SBTZ = random(S, B, T, Z, seed=2).where(real, padding)
    q = Normal(mean_BTZ, deviation_BTZ, validate_args=False)
    p = Normal(torch.zeros(Z), 0.4 * torch.ones(Z), validate_args=False)
    return Site(q, p, value_SBTZ, mask_BT=MASK_BT)


def test_densities_and_kl_are_sums_over_real_tokens() -> None:
    found = site()
    log_q_SB, log_p_SB, kl_BZ = torch.zeros(S, B).double(), torch.zeros(S, B).double(), torch.zeros(B, Z).double()
    for b, length in enumerate(LENGTHS):
        for t in range(length):
            for z in range(Z):
                mean, deviation = found.q.loc[b, t, z], found.q.scale[b, t, z]
                kl_BZ[b, z] += math.log(0.4) - deviation.log() + (deviation**2 + mean**2) / 0.32 - 0.5
                for s in range(S):
                    value = found.value_SBZ[s, b, t, z]
                    log_q_SB[s, b] += Normal(mean, deviation).log_prob(value)
                    log_p_SB[s, b] += Normal(0.0, 0.4).log_prob(value)
    torch.testing.assert_close(found.log_q_SB, log_q_SB)
    torch.testing.assert_close(found.log_p_SB, log_p_SB)
    torch.testing.assert_close(found.log_alone_SB, log_p_SB)
    torch.testing.assert_close(found.kl_BZ, kl_BZ)
    torch.testing.assert_close(found.kl_B, kl_BZ.sum(1))


@pytest.mark.parametrize("padding", [1e30, -7.0, math.inf, math.nan])
def test_whatever_stands_at_padding_changes_no_bit(padding: float) -> None:
    plain, other = site(), site(padding)
    for name in ("log_q_SB", "log_p_SB", "log_alone_SB", "kl_BZ", "kl_B"):
        assert torch.equal(getattr(plain, name), getattr(other, name)), name
        assert getattr(plain, name).isfinite().all()


def test_a_sampled_kl_counts_real_tokens_too() -> None:
    """A mixture of two equal components is a normal without a closed KL."""
    closed = site()
    components = Normal(torch.zeros(2, Z).double(), 0.4 * torch.ones(2, Z).double())
    value_SBTZ = closed.q.sample((20_000,))
    sampled = Site(closed.q, Mixture(components), value_SBTZ, mask_BT=MASK_BT)
    assert (closed.kl_form, sampled.kl_form) == ("closed", "sampled")
    assert sampled.kl_BZ.shape == (B, Z)
    error_B = (sampled.log_q_SB - sampled.log_p_SB).std(0) / math.sqrt(20_000)
    assert ((sampled.kl_B - closed.kl_B).abs() < 4.5 * error_B).all()


def test_a_kl_for_each_sample_of_what_comes_before_is_averaged_over_them() -> None:
    alpha, beta = random(S, B, T, Z).exp(), random(S, B, T, Z, seed=1).exp()
    q = GateLogit(alpha, beta)
    p = GateLogit(torch.full((Z,), 4.0).double(), torch.ones(Z).double())
    given = Site(q, p, random(S, B, T, Z, seed=2), mask_BT=MASK_BT)
    each = [Site(GateLogit(alpha[s], beta[s]), p, given.value_SBZ, mask_BT=MASK_BT).kl_BZ for s in range(S)]
    torch.testing.assert_close(given.kl_BZ, torch.stack(each).mean(0))


def test_without_a_mask_only_dimensions_are_summed() -> None:
    q = Normal(random(B, Z), torch.ones(B, Z).double())
    found = Site(q, Normal(torch.zeros(Z).double(), torch.ones(Z).double()), random(S, B, Z, seed=2))
    torch.testing.assert_close(found.log_q_SB, q.log_prob(found.value_SBZ).sum(2))
    assert found.kl_BZ.shape == (B, Z)
    torch.testing.assert_close(found.summed(random(B, Z)), random(B, Z).sum(1))


def test_draws_of_the_prior_are_of_every_token() -> None:
    drawn_SBTZ = site().prior_draws(Noise(0, 0, torch.arange(B)), "prior draws")
    assert drawn_SBTZ.shape == (S, B, T, Z)
    assert len(drawn_SBTZ.unique()) == drawn_SBTZ.numel()


# Terms


def test_scaling_touches_terms_of_sentences_and_no_others() -> None:
    terms = Terms({"a": Term(torch.tensor([4.0, 9.0])), "b": Term(torch.tensor(7.0), "batch")}, {"a": 2.0, "b": 1.0})
    scaled = terms.scaled(torch.tensor([0.5, 1 / 3]))
    assert scaled.terms["a"].values.tolist() == pytest.approx([2.0, 3.0])
    assert scaled.terms["b"] == terms.terms["b"]
    assert scaled.weights == terms.weights
    assert terms.terms["a"].values.tolist() == [4.0, 9.0]


def test_lengths_that_are_kept_on_the_device_stay_with_a_view() -> None:
    """A recorded step would read those of the batch it was recorded with."""
    lengths_B = torch.tensor([3, 4])
    view = View(torch.tensor([[1, 5, 3, 0], [1, 6, 7, 3]]), torch.zeros(2), given_lengths_B=lengths_B)
    assert view.reversed().device_lengths_B is lengths_B
    assert view.reversed().ids_BT.tolist() == [[1, 5, 3, 0], [1, 7, 6, 3]]
