import math

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor
from torch.distributions import Normal, StudentT

from textspace.config import Batches, ElboObjective, FreeBits, MimObjective, Recipe
from textspace.data.batching import batch_of, make_batch
from textspace.data.tokenizers import END, START
from textspace.divergences import dual_kl, mmd
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import DualKl, Elbo, Iwae, Mim, Wae, build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.train.processes import Processes
from textspace.train.stream import BatchStream, Shard
from textspace.train.updates import JointUpdate, Turn
from textspace.types import Batch, Pass, Site, Term, Terms, View

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
    torch.manual_seed(0)
    q, p = Normal(torch.randn(5, 3), torch.rand(5, 3) + 0.5), Normal(torch.zeros(3), torch.ones(3))
    assert Site(q, p, q.rsample((2,))).kl_form == "closed"
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.ones(5, 3, 2)), Normal(torch.zeros(5, 3, 2), torch.ones(5, 3, 2))
    )
    site = Site(q, mixture, q.rsample((20_000,)))  # both components equal: the mixture is N(0, I)
    assert site.kl_form == "sampled"
    error_B = (site.log_q_SB - site.log_p_SB).std(0) / math.sqrt(20_000)
    assert ((site.kl_B - Site(q, p, q.rsample((1,))).kl_B).abs() < 5 * error_B).all()
    assert (error_B < 0.05).all()


def test_terms_without_weight_are_monitors() -> None:
    terms = Terms({"a": Term(torch.tensor([1.0, 3.0])), "b": Term(torch.tensor([100.0, 100.0]))}, {"a": 2.0})
    assert terms.loss(terms.means(2)).item() == 4.0


def test_shares_of_a_batch_sum_to_the_whole() -> None:
    whole = Terms({"a": Term(torch.arange(6.0))}, {"a": 1.0})
    shares = [Terms({"a": Term(torch.arange(6.0)[i::2])}, {"a": 1.0}) for i in (0, 1)]
    assert sum(share.loss(share.means(6)) for share in shares) == whole.loss(whole.means(6))


# Free bits


def pass_with_kl(kl_BZ: list[list[float]], sites: tuple[str, ...] = ("z",)) -> tuple[Pass, Tensor]:
    """A pass whose posteriors N(m, 1) have the given KL, m^2 / 2, and those means."""
    loc_BZ = (2 * torch.tensor(kl_BZ)).sqrt().requires_grad_()
    q, p = Normal(loc_BZ, torch.ones_like(loc_BZ)), Normal(torch.zeros(loc_BZ.shape[1]), torch.ones(loc_BZ.shape[1]))
    batch = batch_of([[5, 6], [7]])
    made = {name: Site(q, p, loc_BZ.detach()[None]) for name in sites}
    return Pass(batch, None, made, torch.full((1, 2, 3), -1.0), Noise(0, 0, batch.rows_B)), loc_BZ


KL = [[0.1, 0.9, 2.0], [0.3, 0.3, 0.2]]  # in total 3.0 and 0.8; on average 0.2, 0.6 and 1.1, in total 1.9


@pytest.mark.parametrize(
    ("per", "on", "target", "held", "above"),
    [
        ("dimension", "sentence", 1.5, [0.5 + 0.9 + 2.0, 0.5 + 0.5 + 0.5], [[0, 1, 1], [0, 0, 0]]),
        ("dimension", "sentence", 0.75, [0.25 + 0.9 + 2.0, 0.3 + 0.3 + 0.25], [[0, 1, 1], [1, 1, 0]]),
        ("total", "sentence", 1.5, [3.0, 1.5], [[1, 1, 1], [0, 0, 0]]),
        ("total", "sentence", 0.75, [3.0, 0.8], [[1, 1, 1], [1, 1, 1]]),
        ("total", "sentence", 5.0, [5.0, 5.0], [[0, 0, 0], [0, 0, 0]]),
        ("dimension", "batch", 1.5, 0.5 + 0.6 + 1.1, [[0, 1, 1], [0, 1, 1]]),
        ("dimension", "batch", 2.7, 0.9 + 0.9 + 1.1, [[0, 0, 1], [0, 0, 1]]),
        ("total", "batch", 1.5, 1.9, [[1, 1, 1], [1, 1, 1]]),
        ("total", "batch", 2.5, 2.5, [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_free_bits_equal_those_computed_by_hand(per: str, on: str, target: float, held, above, tiny_model) -> None:
    """The gradient is that of the KL, m, where it lies above its share of the target, and nothing below."""
    passed, loc_BZ = pass_with_kl(KL)
    config = ElboObjective(free_bits=FreeBits(target=target, per=per, on=on), kl_weight=0.25)
    terms = Elbo(config, tiny_model)(passed, NOW)
    term = terms.terms["kl_free_bits"]
    torch.testing.assert_close(term.values, torch.tensor(held))
    assert term.per == on
    assert term.how == "closed"
    assert terms.weights == {"reconstruction": 1.0, "kl_free_bits": 0.25}
    torch.testing.assert_close(terms.terms["kl"].values, torch.tensor([3.0, 0.8]))  # as it is, never held

    means = terms.means(2)
    torch.testing.assert_close(means["kl_free_bits"], torch.tensor(held).mean())
    torch.testing.assert_close(means["reconstruction"], torch.tensor(2.5))  # three tokens and two
    loss = terms.loss(means)
    torch.testing.assert_close(loss, 2.5 + 0.25 * torch.tensor(held).mean())
    loss.backward()
    torch.testing.assert_close(loc_BZ.grad, 0.25 * loc_BZ.detach() * torch.tensor(above) / 2)


def test_free_bits_are_those_of_a_sentence_where_its_tokens_have_codes(tiny) -> None:
    recipe = small(RECIPES["vat"]).but({"objective.free_bits": {"target": 60.0}})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    passed = model(batch, Noise(0, 0, batch.rows_B))
    terms = build_objective(recipe, model)(passed, NOW)
    q, p = passed.sites["z"].q, passed.sites["z"].p
    for row, length in enumerate(batch.encoder.lengths_B.tolist()):
        kl_TZ = torch.distributions.kl_divergence(Normal(q.loc[row, :length], q.scale[row, :length]), p)
        held = kl_TZ.sum(0).clamp(min=60.0 / 4).sum()
        torch.testing.assert_close(terms.terms["kl_free_bits"].values[row], held)
        torch.testing.assert_close(terms.terms["kl"].values[row], kl_TZ.sum())
    thresholded = terms.terms["kl_free_bits"].values > terms.terms["kl"].values + 1
    assert thresholded.any()
    assert not thresholded.all()


def test_without_free_bits_the_kl_itself_is_weighted(tiny_model) -> None:
    passed, loc_BZ = pass_with_kl(KL)
    terms = Elbo(ElboObjective(kl_weight=0.25), tiny_model)(passed, NOW)
    assert terms.weights == {"reconstruction": 1.0, "kl": 0.25}
    assert set(terms.terms) == {"reconstruction", "kl"}
    terms.loss(terms.means(2)).backward()
    torch.testing.assert_close(loc_BZ.grad, 0.25 * loc_BZ.detach() / 2)


def test_every_site_has_free_bits_of_its_own(tiny_model) -> None:
    passed, _ = pass_with_kl(KL, sites=("gate", "z"))
    config = ElboObjective(free_bits=FreeBits(target=1.5, per="total"), kl_weight=0.25)
    terms = Elbo(config, tiny_model)(passed, NOW)
    assert set(terms.terms) == {"reconstruction", "kl_free_bits_gate", "kl_free_bits_z", "kl_gate", "kl_z"}
    assert terms.weights == {"reconstruction": 1.0, "kl_free_bits_gate": 0.25, "kl_free_bits_z": 0.25}
    for name in ("gate", "z"):
        torch.testing.assert_close(terms.terms[f"kl_free_bits_{name}"].values, torch.tensor([3.0, 1.5]))


def test_free_bits_of_the_batch_count_the_other_sentences_too(tiny_model) -> None:
    """Of four sentences we hold two: the mean is over all, and only ours have a gradient."""
    passed, loc_BZ = pass_with_kl(KL)
    objective = Elbo(ElboObjective(free_bits=FreeBits(target=0.9, on="batch")), tiny_model)
    others = {"kl_free_bits": torch.tensor([[0.0, 0.0, 0.1], [0.0, 1.0, 0.2]])}  # means over all: 0.1, 0.55, 0.625
    term = objective(passed, NOW, others).terms["kl_free_bits"]
    torch.testing.assert_close(term.values, torch.tensor(0.3 + 0.55 + 0.625))
    term.values.backward()
    torch.testing.assert_close(loc_BZ.grad, loc_BZ.detach() * torch.tensor([0.0, 1.0, 1.0]) / 4)
    assert torch.equal(objective.shared(passed.sites, passed.noise)["kl_free_bits"], passed.sites["z"].kl_BZ)


def test_free_bits_on_sentences_need_a_closed_kl_and_those_on_the_batch_do_not(small_vae, tiny, monkeypatch) -> None:
    recipe = small_vae.but({"objective.free_bits": {"target": 1.0}})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    build_objective(recipe, model)  # normal and normal: closed
    # a prior whose KL with a normal has no formula
    monkeypatch.setattr(type(model.prior), "distributions", {"z": StudentT})
    monkeypatch.setattr(type(model.prior), "forward", lambda self, site, earlier: StudentT(torch.full((4,), 5.0)))
    for per in ("dimension", "total"):
        refused = recipe.but({"objective.free_bits.per": per})
        with pytest.raises(TextspaceError) as told:
            build_objective(refused, model)
        assert "posterior 'gaussian' and prior 'standard-normal'" in str(told.value)
        assert "objective.free_bits.on=batch" in str(told.value)
        allowed = refused.but({"objective.free_bits.on": "batch"})
        batch = make_batch(tiny.encoded.splits["train"], np.arange(8))
        passed = model(batch, Noise(0, 0, batch.rows_B), 4)
        terms = build_objective(allowed, model)(passed, NOW)
        assert terms.terms["kl_free_bits"].how == terms.terms["kl"].how == "sampled"
        z = passed.sites["z"]
        kl_Z = (z.q.log_prob(z.value_SBZ) - z.p.log_prob(z.value_SBZ)).mean((0, 1))
        truth = kl_Z.clamp(min=0.25).sum() if per == "dimension" else kl_Z.sum().clamp(min=1.0)
        torch.testing.assert_close(terms.terms["kl_free_bits"].values, truth)


# Batch terms: pieces of a batch give its value and its gradient

BATCH_TERMS = {
    "free bits per dimension": ("vae", {"objective.free_bits": {"target": 1.0, "on": "batch"}}),
    # the whole batch has a KL of 0.87, and three pieces have 0.81, 0.97 and 0.84
    "free bits in total": ("vae", {"objective.free_bits": {"target": 0.85, "on": "batch", "per": "total"}}),
    "free bits in total, not reached": ("vae", {"objective.free_bits": {"target": 0.9, "on": "batch", "per": "total"}}),
    "free bits of gates and codes": ("hsvae", {"objective.free_bits": {"target": 1.0, "on": "batch"}}),
    "two gates and three codes each": (
        "hsvae",
        {"objective": {"kind": "elbo", "samples": 2, "codes_per_gate": 3, "free_bits": {"target": 1.0, "on": "batch"}}},
    ),
    "mmd": ("wae", {}),
    "mmd per dimension and a sparse prior": ("mat-vae", {}),
    "mmd of codes and a sparse prior": ("mat-vae", {"objective.per": "code"}),
    "mmd of implicit codes, Gaussian kernel": ("wae", {"posterior.kind": "implicit", "objective.kernel": "gaussian"}),
}


def gradients_of_a_step(recipe: Recipe, model: Model, shard: Shard) -> tuple[dict[str, float], dict[str, Tensor]]:
    """What one joint step measures and along which gradient it would move."""
    update = JointUpdate(model, build_objective(recipe, model), recipe.training, Processes("cpu"))
    found: dict[str, Tensor] = {}

    def keep(*_) -> None:
        found.update({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})

    update.optimizer.register_step_pre_hook(keep)
    step = update(lambda: shard, Turn(7, NOW, 0.0))
    return dict(zip(step.names, step.values.tolist(), strict=True)), found


@pytest.mark.parametrize("pieces", [3, 16])
@pytest.mark.parametrize("case", BATCH_TERMS)
def test_pieces_of_a_batch_give_the_value_and_gradient_of_its_batch_terms(case: str, pieces: int, tiny) -> None:
    name, changes = BATCH_TERMS[case]
    recipe = small(RECIPES[name]).but(
        changes
        | {"training.clip": None, "decoder.word_dropout": 0.2, "initial.weights": 0.6, "initial.embeddings": 3.0}
    )
    model = Model(recipe, len(tiny.tokenizer)).double().train()
    batches = Batches(sentences=16)
    streams = [
        BatchStream(tiny.encoded.splits["train"], each, seed=1)
        for each in (batches, batches.model_copy(update={"pieces": pieces}))
    ]
    whole, in_pieces = (stream.next_batch() for stream in streams)
    assert (len(whole.pieces), len(in_pieces.pieces)) == (1, pieces)
    assert torch.equal(torch.cat([piece.rows_B for piece in in_pieces.pieces]), whole.pieces[0].rows_B)

    # the truth: the objective of the whole batch, straight
    batch: Batch = whole.pieces[0]
    objective = build_objective(recipe, model)
    noise = Noise(recipe.training.seed, 7, batch.rows_B)
    terms = objective(model(batch, noise, objective.samples, objective.per_gate), NOW)
    means = terms.means(16)
    names = [n for n, _ in model.named_parameters()]
    truth = dict(zip(names, torch.autograd.grad(terms.loss(means), model.parameters()), strict=True))

    for shard in (whole, in_pieces):
        values, gradients = gradients_of_a_step(recipe, model, shard)
        assert values["loss"] == pytest.approx(terms.loss(means).item(), rel=1e-5)  # kept in float32
        for term in means:
            assert values[term] == pytest.approx(means[term].item(), rel=1e-4, abs=1e-6)
        assert gradients.keys() == truth.keys()
        for parameter, gradient in truth.items():
            torch.testing.assert_close(gradients[parameter], gradient, atol=1e-10, rtol=1e-8)

    # and the terms do tie sentences together: without the others the pieces give something else
    apart = {parameter: torch.zeros_like(gradient) for parameter, gradient in truth.items()}
    for piece in in_pieces.pieces:
        passed = model(piece, Noise(recipe.training.seed, 7, piece.rows_B), objective.samples)
        loss = objective(passed, NOW)
        share = len(piece) / 16
        for parameter, gradient in zip(
            names, torch.autograd.grad(loss.loss(loss.means(len(piece))), model.parameters()), strict=True
        ):
            apart[parameter] += share * gradient
    off = max((apart[parameter] - gradient).abs().max().item() for parameter, gradient in truth.items())
    assert off > 1e-4


# The importance-weighted bound


def log_weights(passed: Pass) -> Tensor:
    z = passed.sites["z"]
    density = [Normal(z.q.loc, z.q.scale), Normal(torch.zeros(4), torch.ones(4))]
    log_q_SB, log_p_SB = (p.log_prob(z.value_SBZ).double().sum(2) for p in density)
    return passed.log_px_SB.double() + log_p_SB - log_q_SB


def iwae(model: Model, samples: int = 3) -> Iwae:
    recipe = model.recipe.but({"objective.kind": "iwae", "objective.samples": samples})
    objective = build_objective(recipe, model)
    assert isinstance(objective, Iwae)
    assert objective.samples == samples
    return objective


def test_the_importance_weighted_bound_is_the_negative_log_of_the_mean_weight(passed: Pass, tiny_model) -> None:
    found_B = iwae(tiny_model)(passed, NOW).terms["iw_bound"].values
    weights_SB = log_weights(passed).exp()  # sentences are short: nothing underflows
    assert weights_SB.min() > 0
    assert weights_SB.shape == (3, 16)
    torch.testing.assert_close(found_B.double(), -weights_SB.mean(0).log(), atol=1e-4, rtol=0)


def test_the_gradient_of_the_bound_is_the_weighted_mean_of_those_of_the_log_weights(passed: Pass, tiny_model) -> None:
    loc, scale = passed.sites["z"].q.loc, passed.sites["z"].q.scale
    bound = iwae(tiny_model)(passed, NOW).terms["iw_bound"].values.sum()
    found = torch.autograd.grad(bound, [loc, scale], retain_graph=True)
    log_weights_SB = log_weights(passed)
    normalised_SB = log_weights_SB.softmax(0).detach()
    truth = torch.autograd.grad(-(normalised_SB * log_weights_SB).sum(), [loc, scale])
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_bound_is_optimised_and_the_parts_of_the_elbo_are_monitors(passed: Pass, tiny_model) -> None:
    terms = iwae(tiny_model)(passed, NOW)
    assert terms.weights == {"iw_bound": 1.0}
    elbo = build_objective(tiny_model.recipe, tiny_model)(passed, NOW)
    for name in ("reconstruction", "kl"):
        assert torch.equal(terms.terms[name].values, elbo.terms[name].values)
    means = terms.means(16)
    torch.testing.assert_close(terms.loss(means), terms.terms["iw_bound"].values.mean())


def test_with_one_sample_the_bound_is_the_elbo(tiny, tiny_model) -> None:
    """The same sample gives the ELBO with a sampled KL, to the bit of rounding; on average that with a closed one."""
    batch = make_batch(tiny.encoded.splits["train"], np.arange(320))
    passed = tiny_model(batch, Noise(0, 0, batch.rows_B), 1)
    terms = iwae(tiny_model, 1)(passed, NOW).terms
    z = passed.sites["z"]
    sampled_kl_B = (z.log_q_SB - z.log_p_SB)[0]
    torch.testing.assert_close(terms["iw_bound"].values, terms["reconstruction"].values + sampled_kl_B)
    difference_B = sampled_kl_B - terms["kl"].values
    assert abs(difference_B.mean().item()) < 4 * difference_B.std().item() / math.sqrt(320)
    assert difference_B.std() > 0.01


@torch.no_grad()
def test_the_bound_falls_with_every_sample(tiny, small_vae) -> None:
    model = Model(small_vae.but({"initial.weights": 0.6}), len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(320))
    means = []
    for samples in (1, 2, 5, 20):
        passed = model(batch, Noise(0, 0, batch.rows_B), samples)
        means.append(iwae(model, samples)(passed, NOW).terms["iw_bound"].values.mean().item())
    assert means == sorted(means, reverse=True)
    assert means[0] - means[-1] > 0.05


# The dual form of the KL


# Mutual information


def test_the_mutual_information_loss_equals_one_computed_by_hand(passed: Pass, tiny_model, recwarn) -> None:
    terms = Mim(MimObjective(), tiny_model)(passed, NOW)
    q, z_SBZ = passed.sites["z"].q, passed.sites["z"].value_SBZ
    variance_BZ = q.scale**2
    log_q_SB = -0.5 * ((2 * math.pi * variance_BZ).log() + (z_SBZ - q.loc) ** 2 / variance_BZ).sum(2)
    log_p_SB = -0.5 * (math.log(2 * math.pi) + z_SBZ**2).sum(2)
    by_hand = -(passed.log_px_SB + 0.5 * (log_q_SB + log_p_SB)).mean()
    torch.testing.assert_close(terms.loss(terms.means(16)), by_hand)
    assert terms.weights == {"reconstruction": 1.0, "posterior_cost": 0.5, "anchor_cost": 0.5}
    assert terms.terms["kl"].how == "closed"  # a monitor


def test_where_the_posterior_is_the_prior_the_mutual_information_loss_has_a_closed_form(tiny_model, recwarn) -> None:
    """-log p(x | z) + 1/2 (H + H): the entropy of the standard normal, d/2 log(2 pi e)."""
    standard = Normal(torch.zeros(16, 8, dtype=torch.float64), torch.ones(16, 8, dtype=torch.float64))
    samples = 20_000
    torch.manual_seed(0)
    site = Site(standard, standard, standard.sample((samples,)))
    rows = torch.arange(16)
    views = make_view(16)
    log_px_SBT = torch.full((samples, 16, 3), -1.5, dtype=torch.float64)
    passed = Pass(Batch(views, views, rows), None, {"z": site}, log_px_SBT, Noise(0, 0, rows))
    terms = Mim(MimObjective(), tiny_model)(passed, NOW)
    loss = float(terms.loss(terms.means(16)))
    entropy = 4 * math.log(2 * math.pi * math.e)
    error = math.sqrt(8 / 2 / samples / 16)  # half a chi-squared of 8 degrees has variance 4
    assert abs(loss - 4.5 - entropy) < 4 * error


def make_view(sentences: int) -> View:
    """Sentences of two words."""
    return View(torch.tensor([[START, 4, 5, END]]).expand(sentences, -1), torch.full((sentences,), 4))


def test_the_gradient_of_the_mutual_information_loss_equals_finite_differences(tiny) -> None:
    recipe = small(RECIPES["smim"]).but({"latent.dim": 3, "encoder.word_dropout": 0.3})
    model = Model(recipe, len(tiny.tokenizer)).double().train()
    objective = build_objective(recipe, model)
    batch = make_batch(tiny.encoded.splits["train"], np.arange(4))

    def loss() -> Tensor:
        terms = objective(model(batch, Noise(1, 2, batch.rows_B)), NOW)
        return terms.loss(terms.means(4))

    loss().backward()
    for name in ("posterior.mean.weight", "posterior.log_variance.bias", "encoder.embedding.weight", "decoder.output"):
        parameter = dict(model.named_parameters())[name]
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        at = int(gradient.abs().argmax())
        nudged = []
        for step in (1e-5, -1e-5):
            flat[at] += step
            nudged.append(loss().item())
            flat[at] -= step
        assert (nudged[0] - nudged[1]) / 2e-5 == pytest.approx(float(gradient[at]), rel=1e-5)


def test_posteriors_that_may_narrow_without_end_are_warned_of(tiny_model) -> None:
    with pytest.warns(UserWarning, match="set posterior.log_variance_floor=-10"):
        Mim(MimObjective(), tiny_model)


def test_mutual_information_needs_densities(tiny) -> None:
    recipe = small(RECIPES["smim"]).but({"posterior": {"kind": "delta"}})
    with pytest.raises(TextspaceError, match="objective 'mim' needs a KL and posterior 'delta' has no density"):
        build_objective(recipe, Model(recipe, len(tiny.tokenizer)))
    assert RECIPES["vae"].but({"training.criterion": "mim"}).training.criterion == "objective"  # its earlier name
    with pytest.raises(TextspaceError, match=r"training\.criterion 'iwae' needs objective 'iwae', and this is 'mim'"):
        RECIPES["smim"].but({"training.criterion": "iwae"})


@pytest.fixture(params=["posterior", "aggregated"])
def dual_model(request, tiny) -> Model:
    changes = {"objective.of": request.param, "objective.networks": "one", "posterior.layers": 1}
    return Model(small(RECIPES["ivae"]).but(changes), len(tiny.tokenizer)).eval()


def test_the_dual_objective_is_reconstruction_plus_the_weighted_dual_form(dual_model: Model, tiny) -> None:
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    noise = Noise(0, 0, batch.rows_B)
    passed = dual_model(batch, noise, 2)
    objective = build_objective(dual_model.recipe, dual_model)
    assert isinstance(objective, DualKl)
    assert not objective.batch_terms
    terms = objective(passed, NOW)
    prior_SBZ = noise.normal("prior draws", (4,), 2)
    truth_B = dual_kl(dual_model.dual, passed.features_BH, passed.sites["z"].value_SBZ, prior_SBZ)
    torch.testing.assert_close(terms.terms["dual_kl"].values, truth_B)
    assert terms.weights == {"reconstruction": 1.0, "dual_kl": 0.1}  # where its warm-up starts
    means = terms.means(16)
    torch.testing.assert_close(terms.loss(means), means["reconstruction"] + 0.1 * truth_B.mean())
    assert set(terms.terms) == {"reconstruction", "dual_kl"}  # an implicit posterior has no KL to watch


def test_the_dual_term_moves_the_encoder_through_the_codes_alone(dual_model: Model, tiny) -> None:
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    passed = dual_model(batch, Noise(0, 0, batch.rows_B), 2)
    dual = build_objective(dual_model.recipe, dual_model)(passed, NOW).terms["dual_kl"].values.sum()
    z_SBZ = passed.sites["z"].value_SBZ
    by_codes, whole = torch.autograd.grad(dual, [z_SBZ, passed.features_BH], retain_graph=True)
    (through_codes,) = torch.autograd.grad(z_SBZ, passed.features_BH, by_codes)
    assert by_codes.abs().sum() > 0
    torch.testing.assert_close(whole, through_codes)


def test_the_dual_function_sees_the_sentence_or_the_code_alone(tiny) -> None:
    for of, inputs in (("posterior", 16 + 4), ("aggregated", 4)):
        recipe = small(RECIPES["ivae"]).but({"objective.of": of})
        model = Model(recipe.but({"objective.networks": "one"}), len(tiny.tokenizer))
        assert model.dual.network[0].in_features == inputs
        both = Model(recipe, len(tiny.tokenizer)).dual
        assert getattr(both, of).network[0].in_features == inputs


@pytest.mark.parametrize(("of", "weighted"), [("posterior", "dual_kl"), ("aggregated", "dual_marginal_kl")])
def test_of_two_dual_functions_one_is_part_of_the_loss(of: str, weighted: str, tiny) -> None:
    model = Model(small(RECIPES["ivae"]).but({"objective.of": of}), len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    noise = Noise(0, 0, batch.rows_B)
    passed = model(batch, noise, 2)
    terms = build_objective(model.recipe, model)(passed, NOW)
    z_SBZ, prior_SBZ = passed.sites["z"].value_SBZ, noise.normal("prior draws", (4,), 2)
    forms = {
        "dual_kl": dual_kl(model.dual.posterior, passed.features_BH, z_SBZ, prior_SBZ),
        "dual_marginal_kl": dual_kl(model.dual.aggregated, passed.features_BH, z_SBZ, prior_SBZ),
    }
    assert not torch.allclose(*forms.values())
    for name, values_B in forms.items():
        torch.testing.assert_close(terms.terms[name].values, values_B)
    assert terms.weights == {"reconstruction": 1.0, weighted: 0.1}
    # The mean of exp v at draws of the prior has no gradient in encoder and decoder.
    of_model = [p for name, p in model.named_parameters() if name.startswith(("encoder", "posterior"))]
    v = model.dual.posterior if of == "posterior" else model.dual.aggregated
    found = torch.autograd.grad(terms.terms[weighted].values.mean(), of_model, retain_graph=True)
    truth = torch.autograd.grad(v(passed.features_BH, z_SBZ).mean(), of_model)
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("of", "networks"), [("posterior", "one"), ("aggregated", "both")])
def test_a_point_has_no_kl_that_a_dual_function_could_learn(of: str, networks: str, tiny) -> None:
    changes = {"posterior": {"kind": "delta"}, "objective.of": of, "objective.networks": networks}
    recipe = small(RECIPES["ivae"].but(changes))
    with pytest.raises(TextspaceError, match=r"set objective.of=aggregated and objective.networks=one, or use"):
        build_objective(recipe, Model(recipe, len(tiny.tokenizer)))


# Wasserstein autoencoders


@pytest.mark.parametrize("posterior", ["gaussian", "delta", "implicit"])
@pytest.mark.parametrize("kernel", ["inverse-multiquadratic", "gaussian"])
def test_the_wae_compares_the_codes_of_the_batch_with_draws_of_the_prior(posterior: str, kernel: str, tiny) -> None:
    recipe = small(RECIPES["wae"]).but(
        {"posterior.kind": posterior, "objective.kernel": kernel, "objective.mmd_weight": 3.0}
    )
    model = Model(recipe, len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    noise = Noise(0, 0, batch.rows_B)
    passed = model(batch, noise)
    objective = build_objective(recipe, model)
    assert isinstance(objective, Wae)
    terms = objective(passed, NOW)
    truth = mmd(
        passed.sites["z"].value_SBZ[0], noise.normal("prior draws", (4,), 1)[0], recipe.objective.scales, kernel
    )
    assert terms.terms["mmd"].per == "batch"
    torch.testing.assert_close(terms.terms["mmd"].values, truth)
    assert terms.weights == {"reconstruction": 1.0, "mmd": 3.0}
    assert ("kl" in terms.terms) == (posterior == "gaussian")
    means = terms.means(16)
    torch.testing.assert_close(terms.loss(means), means["reconstruction"] + 3 * truth)
