import pytest
import torch
from torch.distributions import Normal, StudentT

from textspace.distributions import Delta, closed_kl, draw
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


def test_a_distribution_without_a_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="StudentT"):
        draw(StudentT(torch.ones(2)), Noise(0, 0, torch.tensor([0])), "z", 1)
