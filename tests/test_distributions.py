import pytest
import torch
from torch.distributions import Normal, StudentT

from textspace.distributions import Delta, GateLogit, Implicit, Mixture, SpikeAndSlab, closed_kl, draw, moments
from textspace.noise import Noise


def test_delta_draws_its_point_and_has_no_density() -> None:
    delta = Delta(torch.tensor([[1.0, 2.0]], requires_grad=True))
    drawn = draw(delta, Noise(0, 0, torch.tensor([0])), "z", 3)
    assert drawn.tolist() == [[[1.0, 2.0]]] * 3
    drawn.sum().backward()
    assert delta.loc.grad.tolist() == [[3.0, 3.0]]
    with pytest.raises(NotImplementedError):
        delta.log_prob(drawn)


def test_a_normal_is_drawn_with_its_mean_deviation_and_gradients() -> None:
    loc, scale = torch.full((500, 2), 3.0, requires_grad=True), torch.full((500, 2), 0.5, requires_grad=True)
    drawn = draw(Normal(loc, scale), Noise(0, 0, torch.arange(500)), "z", 100)
    assert drawn.shape == (100, 500, 2)
    assert abs(drawn.mean().item() - 3) < 5 * 0.5 / 100_000**0.5
    assert abs(drawn.std().item() - 0.5) < 0.01
    drawn.sum().backward()
    assert torch.equal(loc.grad, torch.full_like(loc, 100.0))
    assert torch.allclose(scale.grad, ((drawn - loc) / scale).sum(0).detach(), atol=1e-3)


def test_which_pairs_have_a_closed_kl() -> None:
    assert closed_kl(Normal, Normal)
    assert not closed_kl(Delta, Normal)
    assert not closed_kl(StudentT, Normal)
    assert not closed_kl(Implicit, Normal)
    assert closed_kl(GateLogit, GateLogit)
    for q, p in ((SpikeAndSlab, SpikeAndSlab), (Normal, SpikeAndSlab), (SpikeAndSlab, Mixture)):
        assert not closed_kl(q, p)


def test_a_distribution_without_a_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="StudentT"):
        draw(StudentT(torch.ones(2)), Noise(0, 0, torch.tensor([0])), "z", 1)


def affine(sentences: int) -> tuple[Implicit, torch.Tensor, torch.Tensor]:
    """z = A e + b of each sentence, with its mean and deviation."""
    generator = torch.manual_seed(4)
    A_ZE, b_BZ = torch.randn(3, 5, generator=generator), torch.randn(sentences, 3, generator=generator)
    q = Implicit(lambda noise_SBE: noise_SBE @ A_ZE.T + b_BZ, 5, torch.Size((sentences, 3)))
    return q, b_BZ, A_ZE.square().sum(1).sqrt().expand(sentences, 3)


def test_draws_of_an_implicit_are_what_its_function_makes_of_keyed_noise() -> None:
    q, _, _ = affine(4)
    noise = Noise(0, 0, torch.tensor([3, 8, 5, 9]))
    drawn_SBZ = draw(q, noise, "z", 7)
    assert drawn_SBZ.shape == (7, 4, 3)
    assert torch.equal(drawn_SBZ, q.push(noise.normal("z", (5,), 7)))
    assert torch.equal(draw(q, noise, "z", 7), drawn_SBZ)
    for other in (draw(q, noise, "y", 7), draw(q, Noise(1, 0, noise.rows_B), "z", 7)):
        assert not torch.isclose(other, drawn_SBZ).any()
    parts = [draw(q, noise.after(first), "z", size) for first, size in ((0, 3), (3, 2), (5, 2))]
    torch.testing.assert_close(torch.cat(parts), drawn_SBZ)  # to the bit where products of any size round alike


def test_a_sentences_draws_of_an_implicit_do_not_depend_on_its_batch() -> None:
    def of(rows: list[int]) -> torch.Tensor:
        q = Implicit(lambda noise_SBE: 2 * noise_SBE.cumsum(2), 3, torch.Size((len(rows), 3)))
        return draw(q, Noise(0, 0, torch.tensor(rows)), "z", 6)

    assert torch.equal(of([3, 8, 5])[:, 1:2], of([8]))


def test_draws_of_an_implicit_pass_gradients_on() -> None:
    scale = torch.tensor(2.0, requires_grad=True)
    q = Implicit(lambda noise_SBE: scale * noise_SBE, 3, torch.Size((4, 3)))
    drawn = draw(q, Noise(0, 0, torch.arange(4)), "z", 6)
    drawn.square().sum().backward()
    assert scale.grad.item() == pytest.approx(drawn.square().sum().item(), rel=1e-5)  # d s^2 e^2 / ds = 2 s e^2


def test_an_implicit_has_neither_density_nor_mean() -> None:
    q, _, _ = affine(2)
    with pytest.raises(NotImplementedError):
        q.log_prob(torch.zeros(1, 2, 3))
    with pytest.raises(NotImplementedError):
        _ = q.mean


def test_moments_are_exact_where_they_are_known() -> None:
    noise = Noise(0, 0, torch.arange(2))
    loc, scale = torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([[0.1, 0.2], [3.0, 4.0]])
    mean, deviation = moments(Normal(loc, scale), noise, samples=2)
    assert torch.equal(mean, loc)
    assert torch.equal(deviation, scale)
    mean, deviation = moments(Delta(loc), noise, samples=2)
    assert torch.equal(mean, loc)
    assert torch.equal(deviation, torch.zeros(2, 2))


def test_moments_of_an_implicit_approach_the_truth() -> None:
    q, mean_BZ, deviation_BZ = affine(6)
    errors = []
    for samples in (100, 40_000):
        mean, deviation = moments(q, Noise(0, 0, torch.arange(6)), samples)
        worst = 5 * deviation_BZ / samples**0.5
        assert ((mean - mean_BZ).abs() < worst).all()
        assert ((deviation - deviation_BZ).abs() < worst).all()
        errors.append((mean - mean_BZ).abs().mean().item())
    assert errors[1] < errors[0] / 5  # it falls like the root of the samples, here by 20


def test_moments_are_measured_on_draws_of_their_own() -> None:
    """Draws that also served as samples would make a fitted Gaussian fit them too well."""
    q, _, _ = affine(3)
    noise = Noise(0, 0, torch.arange(3))
    mean, _ = moments(q, noise, samples=50)
    assert not torch.isclose(mean, draw(q, noise, "z", 50).mean(0)).any()
    assert torch.equal(mean, moments(q, noise, samples=50)[0])
