"""Divergences between samples, where the truth is known: double loops, Gaussian integrals, closed KLs."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from textspace import divergences
from textspace.config import DualFunction as DualFunctionConfig
from textspace.config import Latent, SpikeAndSlabPrior
from textspace.distributions import draw
from textspace.divergences import DualFunction, dual_kl, mmd, mmd_per_dimension
from textspace.noise import Noise
from textspace.priors import PRIORS

KERNELS = ("inverse-multiquadratic", "gaussian")


# Maximum mean discrepancy


def by_double_loop(x: list, y: list, scales: tuple[float, ...], kernel: str, variance: float) -> float:
    def k(a: list[float], b: list[float]) -> float:
        square = sum((i - j) ** 2 for i, j in zip(a, b, strict=True))
        widths = [scale * 2 * len(a) * variance for scale in scales]
        return sum(math.exp(-square / c) if kernel == "gaussian" else c / (c + square) for c in widths)

    n, m = len(x), len(y)
    within_x = sum(k(x[i], x[j]) for i, j in itertools.permutations(range(n), 2)) / (n * (n - 1))
    within_y = sum(k(y[i], y[j]) for i, j in itertools.permutations(range(m), 2)) / (m * (m - 1))
    return within_x + within_y - 2 * sum(k(a, b) for a in x for b in y) / (n * m)


@pytest.mark.parametrize("variance", [1.0, 2.5])
@pytest.mark.parametrize("scales", [(1.0,), (0.1, 0.5, 2.0, 10.0)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_mmd_equals_the_double_loop(kernel: str, scales: tuple[float, ...], variance: float, float64) -> None:
    generator = torch.manual_seed(0)
    x_NZ, y_MZ = torch.randn(7, 3, generator=generator), 1 + 2 * torch.randn(5, 3, generator=generator)
    truth = by_double_loop(x_NZ.tolist(), y_MZ.tolist(), scales, kernel, variance)
    assert mmd(x_NZ, y_MZ, scales, kernel, variance).item() == pytest.approx(truth, abs=1e-12)
    assert mmd(x_NZ, y_MZ, scales, kernel, torch.tensor(variance)).item() == pytest.approx(truth, abs=1e-12)


def expected_mmd(shift: float, deviation: float, dim: int, scales: tuple[float, ...]) -> float:
    """Between N(shift, deviation^2 I) and N(0, I) with Gaussian kernels: differences of draws are normal too, so each
    mean of a kernel is a Gaussian integral."""
    total = 0.0
    for c in [scale * 2 * dim for scale in scales]:

        def mean_of_kernel(variance: float, apart: float, c: float = c) -> float:
            return (c / (c + 2 * variance)) ** (dim / 2) * math.exp(-dim * apart**2 / (c + 2 * variance))

        total += mean_of_kernel(2 * deviation**2, 0.0) + mean_of_kernel(2.0, 0.0)
        total -= 2 * mean_of_kernel(deviation**2 + 1, shift)
    return total


def repeated(shift: float, deviation: float, kernel: str, count: int = 400) -> Tensor:
    generator = torch.manual_seed(0)
    draws = torch.randn(count, 2, 20, 3, generator=generator)
    return torch.stack([mmd(shift + deviation * x_NZ, y_NZ, (0.5, 2.0), kernel) for x_NZ, y_NZ in draws])


@pytest.mark.parametrize(("shift", "deviation"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.5), (1.0, 2.0)])
def test_mmd_is_right_on_average(shift: float, deviation: float) -> None:
    found = repeated(shift, deviation, "gaussian")
    error = found.std().item() / math.sqrt(len(found))
    truth = expected_mmd(shift, deviation, 3, (0.5, 2.0))
    assert abs(found.mean().item() - truth) < 4 * error
    assert error < 0.01


@pytest.mark.parametrize("kernel", KERNELS)
def test_mmd_of_equal_distributions_is_zero_on_average_and_grows_with_their_difference(kernel: str) -> None:
    found = repeated(0.0, 1.0, kernel)
    assert abs(found.mean().item()) < 4 * found.std().item() / math.sqrt(len(found))
    assert 0.2 < (found < 0).double().mean() < 0.8  # unbiased: about as often below 0 as above
    means = [repeated(shift, 1.0, kernel, 50).mean().item() for shift in (0.0, 0.5, 1.0, 2.0)]
    assert means == sorted(means)
    assert means[1] > 5 * abs(found.mean().item())


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_of_mmd_is_right_in_both_samples(kernel: str, float64) -> None:
    generator = torch.manual_seed(0)
    x_NZ, y_MZ = torch.randn(5, 2, generator=generator), torch.randn(4, 2, generator=generator)
    assert torch.autograd.gradcheck(
        lambda x, y: mmd(x, y, (0.5, 2.0), kernel), (x_NZ.requires_grad_(), y_MZ.requires_grad_())
    )
    mmd(x_NZ, y_MZ, (0.5, 2.0), kernel).backward()
    assert (x_NZ.grad.abs().sum(1) > 0).all()
    assert (y_MZ.grad.abs().sum(1) > 0).all()


def test_following_the_gradient_of_mmd_brings_a_gaussian_to_the_other() -> None:
    generator = torch.manual_seed(0)
    mean_Z, deviation_Z = torch.full((2,), 2.0, requires_grad=True), torch.full((2,), 0.3, requires_grad=True)
    adam = torch.optim.Adam([mean_Z, deviation_Z], lr=0.05)
    for _ in range(150):
        adam.zero_grad()
        x_NZ, y_NZ = torch.randn(2, 64, 2, generator=generator)
        mmd(mean_Z + deviation_Z * x_NZ, y_NZ, (0.1, 0.5, 1.0, 5.0)).backward()
        adam.step()
    assert mean_Z.abs().max() < 0.2
    assert (deviation_Z - 1).abs().max() < 0.2


# Per dimension


@pytest.mark.parametrize("pairs_at_once", [1, 80, 2**22])
@pytest.mark.parametrize("scales", [(1.0,), (0.1, 0.5, 2.0, 10.0)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_mmd_per_dimension_is_the_sum_of_double_loops(
    kernel: str, scales: tuple[float, ...], pairs_at_once: int, float64, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one dimension and variance 1 the kernels are 2 s / (2 s + (a - b)^2)."""
    monkeypatch.setattr(divergences, "PAIRS_AT_ONCE", pairs_at_once)
    generator = torch.manual_seed(0)
    x_NZ, y_MZ = torch.randn(7, 3, generator=generator), 1 + 2 * torch.randn(5, 3, generator=generator)
    columns = zip(x_NZ.T[:, :, None].tolist(), y_MZ.T[:, :, None].tolist(), strict=True)
    truth = sum(by_double_loop(x, y, scales, kernel, 1.0) for x, y in columns)
    assert mmd_per_dimension(x_NZ, y_MZ, scales, kernel).item() == pytest.approx(truth, abs=1e-12)


def test_mmd_per_dimension_of_two_pairs_by_hand() -> None:
    """At s = 1 the kernel of numbers d apart is 2 / (2 + d^2)."""
    x_NZ, y_MZ = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])
    between = (1 + 2 / 6 + 2 / 3 + 2 / 3) / 4
    assert mmd_per_dimension(x_NZ, y_MZ, (1.0,)).item() == pytest.approx(2 / 3 + 2 / 6 - 2 * between, abs=1e-6)
    assert mmd_per_dimension(x_NZ[:1], y_MZ, (1.0,)).item() == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_of_mmd_per_dimension_is_right_in_both_samples(kernel: str, float64) -> None:
    generator = torch.manual_seed(0)
    x_NZ, y_MZ = torch.randn(5, 2, generator=generator), torch.randn(4, 2, generator=generator)
    both = x_NZ.requires_grad_(), y_MZ.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: mmd_per_dimension(x, y, (0.5, 2.0), kernel), both)
    assert torch.autograd.gradcheck(lambda x: mmd_per_dimension(x, y_MZ.detach(), (0.5, 2.0), kernel), both[:1])


PUBLISHED = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
OFF, SPIKE = 0.8, 0.05
VARIANCE = OFF * SPIKE**2 + (1 - OFF)
PRIOR = ((OFF, SPIKE**2), (1 - OFF, 1.0))
"""Shares and variances of the normals that the prior of MAT-VAE mixes in every dimension."""
Mixed = tuple[tuple[float, float], ...]


def apart(one: Mixed, other: Mixed) -> Mixed:
    """The distribution of a - b."""
    return tuple((p * q, v + w) for (p, v), (q, w) in itertools.product(one, other))


def per_dimension(variance: float) -> float:
    """The MMD of one dimension between N(0, variance) and the prior. For d from N(0, v) the mean of c / (c + d^2) is
    sqrt(pi r / 2) exp(r / 2) erfc(sqrt(r / 2)) with r = c / v."""

    def mean_kernel(mixed: Mixed, c: float) -> float:
        halves = [(share, torch.tensor(c / v / 2, dtype=torch.float64)) for share, v in mixed]
        return sum(
            share * ((math.pi * half).sqrt() * torch.special.erfcx(half.sqrt())).item() for share, half in halves
        )

    return sum(discrepancy(variance, lambda mixed, c=2 * s: mean_kernel(mixed, c)) for s in PUBLISHED)


def of_whole_vectors(variance: float, dim: int) -> float:
    """The MMD with kernels of whole vectors, c / (c + |d|^2) = the integral over t > 0 of c exp(-t (c + |d|^2)); for d
    from N(0, v) the mean of exp(-t d^2) is (1 + 2 t v)^(-1/2)."""
    log_t = torch.linspace(-30, 12, 200_001, dtype=torch.float64)
    t = log_t.exp()

    def mean_kernel(mixed: Mixed, c: float) -> float:
        in_one = sum(share * (1 + 2 * t * v) ** -0.5 for share, v in mixed)
        return torch.trapezoid(c * t * (-c * t).exp() * in_one**dim, log_t).item()

    widths = [2 * dim * VARIANCE * s for s in (*PUBLISHED, 10.0)]
    return sum(discrepancy(variance, lambda mixed, c=c: mean_kernel(mixed, c)) for c in widths)


def discrepancy(variance: float, mean_kernel) -> float:
    dense: Mixed = ((1.0, variance),)
    return mean_kernel(apart(dense, dense)) + mean_kernel(apart(PRIOR, PRIOR)) - 2 * mean_kernel(apart(dense, PRIOR))


def test_what_a_dense_gaussian_costs_per_dimension_and_by_whole_vectors() -> None:
    """Per dimension far more than one value scatters by with 64 codes (.43), by whole vectors less (.014)."""
    assert 32 * per_dimension(VARIANCE) == pytest.approx(6.845, abs=0.001)
    assert 768 * per_dimension(VARIANCE) == pytest.approx(164.28, abs=0.01)
    assert 32 * per_dimension(1.0) == pytest.approx(26.97, abs=0.01)
    assert of_whole_vectors(VARIANCE, 32) == pytest.approx(0.01344, abs=1e-5)
    assert of_whole_vectors(VARIANCE, 768) == pytest.approx(0.00002, abs=1e-5)
    assert of_whole_vectors(1.0, 32) == pytest.approx(0.789, abs=0.001)


@pytest.mark.parametrize("variance", [VARIANCE, 1.0])
@pytest.mark.parametrize("codes", [8, 64])
def test_samples_of_a_dense_gaussian_cost_what_it_costs_whatever_the_batch(codes: int, variance: float) -> None:
    prior = PRIORS["spike-and-slab"](SpikeAndSlabPrior(off=OFF), Latent(dim=32, spike=SPIKE), None).codes()
    noise = Noise(0, 0, torch.arange(codes))
    prior_SNZ = draw(prior.expand((codes, 32)), noise, "prior draws", 200)
    x_SNZ = math.sqrt(variance) * noise.normal("z", (32,), 200)
    for measure, truth, scatter in (
        (mmd_per_dimension, 32 * per_dimension(variance), 0.43),
        (lambda x, y, scales: mmd(x, y, (*scales, 10.0), variance=VARIANCE), of_whole_vectors(variance, 32), 0.014),
    ):
        found = torch.stack([measure(x, y, PUBLISHED) for x, y in zip(x_SNZ, prior_SNZ, strict=True)])
        assert abs(found.mean().item() - truth) < 4 * found.std().item() / math.sqrt(200)
        if codes == 64 and variance == VARIANCE:
            assert found.std().item() == pytest.approx(scatter, rel=0.2)


# The dual form of the KL

MEAN_BZ = torch.tensor([[1.0, 0.0], [0.5, -1.0], [0.0, 0.0]])
DEVIATION_BZ = torch.tensor([[0.6, 0.8], [0.5, 1.0], [0.3, 1.0]])
Q = Normal(MEAN_BZ, DEVIATION_BZ)
FEATURES_BH = torch.eye(3)
KL_B = kl_divergence(Q, Normal(0.0, 1.0)).sum(1)


def samples(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    noise_SBZ, prior_SBZ = torch.randn(2, count, 3, 2, generator=generator)
    return MEAN_BZ + DEVIATION_BZ * noise_SBZ, prior_SBZ


@torch.no_grad()
def measured(v: nn.Module, generator: torch.Generator, count: int = 50_000) -> tuple[Tensor, Tensor]:
    """The dual form of each sentence on fresh samples, and its standard error."""
    z_SBZ, prior_SBZ = samples(count, generator)
    value_B = dual_kl(v, FEATURES_BH, z_SBZ, prior_SBZ)
    each_SB = v(FEATURES_BH, z_SBZ) - v(FEATURES_BH, prior_SBZ).exp() + 1
    return value_B, each_SB.std(0) / math.sqrt(count)


def dual_function(features: int = 3, layers: int = 2, hidden: int = 32, seed: int = 0) -> DualFunction:
    torch.manual_seed(seed)
    return DualFunction(DualFunctionConfig(layers=layers, hidden=hidden), features, 2)


class LogRatio(nn.Module):
    """The best v there is: log q(z | x) - log p(z)."""

    def forward(self, features_BH: Tensor, z_SBZ: Tensor) -> Tensor:
        return (Q.log_prob(z_SBZ) - Normal(0.0, 1.0).log_prob(z_SBZ)).sum(2)


def test_the_dual_form_is_the_kl_at_the_best_function() -> None:
    value_B, error_B = measured(LogRatio(), torch.manual_seed(1), 200_000)
    assert ((value_B - KL_B).abs() < 5 * error_B).all()
    assert (error_B < 0.02).all()


@pytest.mark.parametrize("shift", [-1.0, -0.3, 0.3, 1.0])
def test_the_dual_form_falls_by_a_known_amount_when_the_best_function_is_shifted(shift: float) -> None:
    """With v* + s it is KL + s - e^s + 1."""

    class Shifted(LogRatio):
        def forward(self, features_BH: Tensor, z_SBZ: Tensor) -> Tensor:
            return super().forward(features_BH, z_SBZ) + shift

    value_B, error_B = measured(Shifted(), torch.manual_seed(1))
    truth_B = KL_B + shift - math.exp(shift) + 1
    assert ((value_B - truth_B).abs() < 5 * error_B).all()
    assert (truth_B < KL_B).all()


@pytest.mark.parametrize("seed", range(8))
def test_the_dual_form_is_below_the_kl_for_any_function(seed: int) -> None:
    v = dual_function(seed=seed)
    with torch.no_grad():
        for parameter in v.parameters():
            parameter.mul_(1 + seed / 4)  # from nearly constant to steep
    value_B, error_B = measured(v, torch.manual_seed(seed))
    assert (value_B < KL_B + 4 * error_B).all()


def test_a_trained_dual_function_comes_close_to_the_kl_from_below() -> None:
    v = dual_function()
    before_B, _ = measured(v, torch.manual_seed(2))
    adam = torch.optim.Adam(v.parameters(), lr=0.01)
    generator = torch.manual_seed(1)
    for _ in range(300):
        adam.zero_grad()
        (-dual_kl(v, FEATURES_BH, *samples(128, generator)).sum()).backward()
        adam.step()
    value_B, error_B = measured(v, torch.manual_seed(2))
    assert (value_B < KL_B + 4 * error_B).all()
    assert (value_B > 0.7 * KL_B).all()
    assert (before_B < 0.3 * KL_B).all()


def test_a_function_of_the_code_alone_comes_close_to_the_kl_of_the_mixture() -> None:
    """q(z) is a mixture of three Gaussians, whose KL to the prior is less than the mean of theirs."""
    generator = torch.manual_seed(3)
    z_SBZ, _ = samples(50_000, generator)
    log_q = (Q.log_prob(z_SBZ[:, :, None]).sum(3)).logsumexp(2) - math.log(3)
    truth = (log_q - Normal(0.0, 1.0).log_prob(z_SBZ).sum(2)).mean().item()
    assert truth < 0.8 * KL_B.mean()
    v = dual_function(features=0)
    adam = torch.optim.Adam(v.parameters(), lr=0.01)
    for _ in range(300):
        adam.zero_grad()
        (-dual_kl(v, FEATURES_BH, *samples(128, generator)).mean()).backward()
        adam.step()
    value_B, error_B = measured(v, generator)
    assert 0.6 * truth < value_B.mean().item() < truth + 4 * error_B.mean().item()


def test_the_dual_form_is_the_mean_of_its_terms_over_samples() -> None:
    v = dual_function()
    z_SBZ, prior_SBZ = samples(4, torch.manual_seed(1))
    found_B = dual_kl(v, FEATURES_BH, z_SBZ, prior_SBZ)
    for b in range(3):
        of_q = [v.network(torch.cat([FEATURES_BH[b], z_SBZ[s, b]])).item() for s in range(4)]
        of_p = [v.network(torch.cat([FEATURES_BH[b], prior_SBZ[s, b]])).item() for s in range(4)]
        truth = sum(of_q) / 4 - sum(math.exp(value) for value in of_p) / 4 + 1
        assert found_B[b].item() == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_dual_function_takes_either_sign_and_has_the_layers_asked_for(layers: int) -> None:
    v = dual_function(layers=layers, hidden=9)
    linears = [part for part in v.network if isinstance(part, nn.Linear)]
    assert [linear.out_features for linear in linears] == [9] * layers + [1]
    value_SB = v(FEATURES_BH, 3 * torch.randn(500, 3, 2, generator=torch.manual_seed(0)))
    with torch.no_grad():
        linears[-1].bias -= value_SB.mean()
    value_SB = v(FEATURES_BH, 3 * torch.randn(500, 3, 2, generator=torch.manual_seed(0)))
    assert value_SB.shape == (500, 3)
    assert value_SB.min() < -0.05
    assert value_SB.max() > 0.05


def test_the_dual_form_tells_the_codes_how_to_change_and_never_the_features() -> None:
    v = dual_function()
    z_SBZ, prior_SBZ = samples(4, torch.manual_seed(1))
    features_BH = FEATURES_BH.clone().requires_grad_()
    dual_kl(v, features_BH, z_SBZ.requires_grad_(), prior_SBZ).sum().backward()
    assert features_BH.grad is None
    assert (z_SBZ.grad.abs().sum(2) > 0).all()
    assert all((parameter.grad != 0).any() for parameter in v.parameters())
    elsewhere = v(FEATURES_BH.flip(0), z_SBZ)
    assert not torch.isclose(elsewhere[:, 0], v(FEATURES_BH, z_SBZ)[:, 0]).any()  # yet it does see them


def test_the_aggregated_form_does_not_see_the_features() -> None:
    v = dual_function(features=0)
    assert v.network[0].in_features == 2
    z_SBZ, prior_SBZ = samples(4, torch.manual_seed(1))
    found = [dual_kl(v, features_BH, z_SBZ, prior_SBZ) for features_BH in (FEATURES_BH, 5 * FEATURES_BH.flip(0))]
    assert torch.equal(*found)
