import numpy as np
import pytest
import torch
from torch.distributions import Normal

from textspace.data.batching import make_batch
from textspace.noise import Noise
from textspace.objectives import Elbo, build_objective
from textspace.schedules import Progress
from textspace.types import Pass, Site, Term, Terms

NOW = Progress(0, 0.0)


@pytest.fixture
def passed(tiny, tiny_model) -> Pass:
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    return tiny_model(batch, Noise(0, 0, batch.rows_B), samples=3)


def test_the_elbo_is_reconstruction_plus_kl_per_sentence(passed: Pass, small_vae, tiny_model) -> None:
    terms = build_objective(small_vae, tiny_model)(passed, NOW)
    by_hand = []
    for b in range(16):
        q, z = passed.sites["z"].q, passed.sites["z"].value_SBZ
        kl = 0.5 * (q.loc[b] ** 2 + q.scale[b] ** 2 - 1 - 2 * q.scale[b].log()).sum()
        length = int(passed.batch.decoder.lengths_B[b])
        reconstruction = -sum(passed.token_log_px_SBT[s, b, : length - 1].sum() for s in range(len(z))) / len(z)
        by_hand.append((reconstruction, kl))
    reconstruction_B, kl_B = (torch.stack(values) for values in zip(*by_hand, strict=True))
    torch.testing.assert_close(terms.terms["reconstruction"].values, reconstruction_B)
    torch.testing.assert_close(terms.terms["kl"].values, kl_B)
    assert terms.terms["kl"].how == "closed"
    loss = terms.loss(terms.means(16))
    torch.testing.assert_close(loss, (reconstruction_B + kl_B).mean())


def test_weights_touch_the_loss_and_never_the_terms(passed: Pass, small_vae, tiny_model) -> None:
    warm_up = {"kind": "linear", "start": 0.0, "end": 0.5, "over": 10, "unit": "steps"}
    objective = Elbo(small_vae.but({"objective.kl_weight": warm_up}).objective, tiny_model)
    plain = build_objective(small_vae, tiny_model)(passed, NOW)
    early, late = objective(passed, Progress(2, 0.0)), objective(passed, Progress(50, 9.0))
    assert early.weights == {"reconstruction": 1.0, "kl": 0.1}
    assert late.weights == {"reconstruction": 1.0, "kl": 0.5}
    for terms in (early, late):
        assert torch.equal(terms.terms["kl"].values, plain.terms["kl"].values)
    means = late.means(16)
    torch.testing.assert_close(late.loss(means), means["reconstruction"] + 0.5 * means["kl"])


def test_a_kl_without_closed_form_is_sampled_and_says_so() -> None:
    q, p = Normal(torch.randn(5, 3), torch.rand(5, 3) + 0.5), Normal(torch.zeros(3), torch.ones(3))
    assert Site(q, p, q.rsample((2,))).kl_form == "closed"
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.ones(5, 3, 2)), Normal(torch.zeros(5, 3, 2), torch.ones(5, 3, 2))
    )
    site = Site(q, mixture, q.rsample((20_000,)))  # both components equal: the mixture is N(0, I)
    assert site.kl_form == "sampled"
    torch.testing.assert_close(site.kl_B, Site(q, p, q.rsample((1,))).kl_B, atol=0.05, rtol=0)


def test_terms_without_weight_are_monitors() -> None:
    terms = Terms({"a": Term(torch.tensor([1.0, 3.0])), "b": Term(torch.tensor([100.0, 100.0]))}, {"a": 2.0})
    assert terms.loss(terms.means(2)).item() == 4.0


def test_shares_of_a_batch_sum_to_the_whole() -> None:
    whole = Terms({"a": Term(torch.arange(6.0))}, {"a": 1.0})
    shares = [Terms({"a": Term(torch.arange(6.0)[i::2])}, {"a": 1.0}) for i in (0, 1)]
    assert sum(share.loss(share.means(6)) for share in shares) == whole.loss(whole.means(6))
