"""Objectives: one forward pass to separable, unweighted terms and their weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.distributions import Normal

from textspace.config import (
    DualKlObjective,
    ElboObjective,
    FreeBits,
    GateShare,
    GaussianPosterior,
    IwaeObjective,
    MimObjective,
    Recipe,
    ReconstructionObjective,
    SpikeAndSlabPosterior,
    WaeObjective,
)
from textspace.distributions import Delta, Mixture, SpikeAndSlab
from textspace.divergences import dual_kls, mmd, mmd_per_dimension
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.requirements import needs_closed_kl, needs_gates, needs_kl, needs_latent
from textspace.schedules import Progress, schedule
from textspace.types import Pass, Site, Term, Terms

__all__ = [
    "OBJECTIVES",
    "DualKl",
    "Elbo",
    "Iwae",
    "Mim",
    "Objective",
    "Reconstruction",
    "Wae",
    "build_objective",
    "kl_terms",
]

Others = Mapping[str, Tensor]
"""What an objective's `shared` gave for the other sentences of the global batch; empty when there are none."""
NO_OTHERS: Others = {}


class Objective(Protocol):
    samples: int
    """Samples of the latent a training step draws."""
    per_gate: int
    """Of these, samples of the code for each sample of the gates, where there are some."""
    batch_terms: bool
    """Whether a term is one number for the whole batch, so that sentences depend on each other."""

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms: ...

    def weight(self, term: str, progress: Progress) -> float | None:
        """Of a term in the loss; None where it is a monitor."""
        ...

    def shared(self, sites: dict[str, Site], noise: Noise) -> dict[str, Tensor]:
        """What its batch terms need of every sentence of the global batch, one row each; empty without batch terms."""
        ...

    def batched(self, rows: Mapping[str, Tensor]) -> dict[str, Term]:
        """Its batch terms, from the `shared` rows of a batch's sentences; empty without batch terms."""
        ...


class _PerSentence:
    """An objective whose terms are all per sentence."""

    samples = per_gate = 1
    batch_terms = False

    def shared(self, sites: dict[str, Site], noise: Noise) -> dict[str, Tensor]:
        return {}

    def batched(self, rows: Mapping[str, Tensor]) -> dict[str, Term]:
        return {}


class Reconstruction(_PerSentence):
    """-log p(x | z), z from the posterior: an autoencoder; without a latent, a language model's exact NLL."""

    def __init__(self, config: ReconstructionObjective, model: Model) -> None:
        pass

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms:
        return _weighted(self, {"reconstruction": _reconstruction(passed)}, progress)

    def weight(self, term: str, progress: Progress) -> float | None:
        return 1.0


class Elbo:
    """-log p(x | z) + weight x KL(q(z | x) || p(z)), z from the posterior: the negative ELBO at weight 1.

    With free bits the weight is that of the thresholded KL, a term of its own, and the KL itself is a monitor. A latent
    of gates before z has a KL and a weight of its own. An activity is a price on the posterior's mean and deviation.

    Where the noise in codes is not standard normal (`prior.noise`), the weight is that of `kl_printed`, the KL of the
    posterior before its deviation is multiplied by the noise's, as the VAT paper prints its loss; the KL of the codes
    is a monitor. With noise of deviation s, the prior's, a linear decoder begins to use a code where it would under an
    ELBO with KL weight s^2: code and prior in units of s have noise s times as small at the same price.
    """

    def __init__(self, config: ElboObjective, model: Model) -> None:
        posterior = needs_kl("elbo", model)
        needs_gates(config, model, posterior)
        self.samples, self.per_gate = config.samples * config.codes_per_gate, config.codes_per_gate
        self.kl_weight = schedule(config.kl_weight)
        self.gate_kl_weight = schedule(config.kl_weight if config.gate_kl_weight is None else config.gate_kl_weight)
        self.activity, self.gate_share = config.activity, config.gate_share
        self.free_bits = config.free_bits
        self.noise = model.recipe.noise_deviation
        self.batch_terms = config.free_bits is not None and config.free_bits.on == "batch"
        if config.free_bits is not None:
            needs_closed_kl(config.free_bits, model)
        if isinstance(gates := model.recipe.posterior, SpikeAndSlabPosterior) and not gates.hard:
            warnings.warn(
                "posterior.hard is false: at relaxed switches the estimate of the KL may fall below 0 without end, and "
                "the loss with it: set posterior.hard=true",
                stacklevel=2,
            )

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms:
        held = {} if self.free_bits is None else self._thresholded(passed, self.free_bits, others)
        terms = {"reconstruction": _reconstruction(passed), **held, **kl_terms(passed)}
        if self.noise != 1:
            terms["kl_printed"] = Term(printed_kl(passed.sites["z"], self.noise), how="closed")
        if self.activity is not None:
            terms["activity"] = Term(_activity(passed.sites["z"], self.activity.norm))
        if self.gate_share is not None:
            terms["gate_share"] = Term(_gate_share(passed.sites["z"], self.gate_share))
        return _weighted(self, terms, progress)

    def weight(self, term: str, progress: Progress) -> float | None:
        match term:
            case "reconstruction":
                return 1.0
            case "activity":
                return self.activity.weight if self.activity else None
            case "gate_share":
                return self.gate_share.weight if self.gate_share else None
        if self.free_bits is not None and "kl_free_bits" not in term:
            return None
        if self.noise != 1 and term != "kl_printed":
            return None
        return (self.gate_kl_weight if term.endswith("_gate") else self.kl_weight)(progress)

    def shared(self, sites: dict[str, Site], noise: Noise) -> dict[str, Tensor]:
        if not self.batch_terms:
            return {}
        return {_named("kl_free_bits", name, sites): site.kl_BZ for name, site in sites.items()}

    def batched(self, rows: Mapping[str, Tensor]) -> dict[str, Term]:
        if self.free_bits is None or not self.batch_terms:
            return {}
        return {term: _held(kl_NZ, self.free_bits) for term, kl_NZ in rows.items()}

    def _thresholded(self, passed: Pass, bits: FreeBits, others: Others) -> dict[str, Term]:
        """Each site's KL, held at the target from below."""
        terms = {}
        for name, site in passed.sites.items():
            term = _named("kl_free_bits", name, passed.sites)
            terms[term] = _held(_with_others(site.kl_BZ, term, others), bits, site.kl_form)
        return terms


class Iwae(_PerSentence):
    """-log 1/k sum_k p(x | z_k) p(z_k) / q(z_k | x), z_k from the posterior [Burda et al. 2016]; -ELBO at k = 1."""

    def __init__(self, config: IwaeObjective, model: Model) -> None:
        needs_kl("iwae", model)
        if isinstance(posterior := model.recipe.posterior, SpikeAndSlabPosterior) and not posterior.hard:
            raise TextspaceError(
                "objective 'iwae' is a bound only with hard switches, and posterior.hard is false: set "
                "posterior.hard=true, or use objective 'elbo'"
            )
        self.samples = config.samples

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms:
        log_weights_SB = passed.log_px_SB + sum(site.log_p_SB - site.log_q_SB for site in passed.sites.values())
        bound_B = math.log(len(log_weights_SB)) - log_weights_SB.logsumexp(0)
        terms = {"iw_bound": Term(bound_B), "reconstruction": _reconstruction(passed), **kl_terms(passed)}
        return _weighted(self, terms, progress)

    def weight(self, term: str, progress: Progress) -> float | None:
        return 1.0 if term == "iw_bound" else None


class Mim(_PerSentence):
    """-(log p(x | z) + 1/2 (log q(z | x) + log p(z))), z from the posterior; p(z) is the anchor.

    The loss of mutual-information learning with samples from the encoder [Livne et al. 2020, algorithm 1]; with the
    constant H(x) / 2, which is left out, an upper bound on the joint entropy of sentences and codes. It rewards narrow
    posteriors without end, so that they need a floor.
    """

    def __init__(self, config: MimObjective, model: Model) -> None:
        needs_kl("mim", model)
        if isinstance(model.recipe.posterior, SpikeAndSlabPosterior):
            raise TextspaceError(
                "objective 'mim' makes posteriors narrower without end, and posterior 'spike-and-slab' has no floor: "
                "use objective 'elbo', or posterior 'gaussian' with a log_variance_floor"
            )
        if isinstance(model.recipe.posterior, GaussianPosterior) and model.recipe.posterior.log_variance_floor is None:
            warnings.warn(
                "objective 'mim' makes posteriors narrower without end, and its loss falls without end: "
                "set posterior.log_variance_floor=-10",
                stacklevel=2,
            )

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms:
        sites = passed.sites.values()
        terms = {
            "reconstruction": _reconstruction(passed),
            "posterior_cost": Term(torch.stack([-site.log_q_SB.mean(0) for site in sites]).sum(0)),
            "anchor_cost": Term(torch.stack([-site.log_p_SB.mean(0) for site in sites]).sum(0)),
        }
        return _weighted(self, terms | kl_terms(passed), progress)

    def weight(self, term: str, progress: Progress) -> float | None:
        return {"reconstruction": 1.0, "posterior_cost": 0.5, "anchor_cost": 0.5}.get(term)


class DualKl(_PerSentence):
    """-log p(x | z) + weight x (E_q[v] - E_p[exp v] + 1), z from a sampler, v a dual function of the model.

    The second term is a lower bound on KL(q(z | x) || p(z)) [Fang et al. 2019], or on KL(q(z) || p(z)) where v sees z
    alone, and so the sum may lie below the negative log-likelihood: it is no bound on it. Where both dual functions
    are trained, the one that is not part of the loss is a monitor.
    """

    def __init__(self, config: DualKlObjective, model: Model) -> None:
        posterior = needs_latent("dual-kl", model)
        if (config.of == "posterior" or config.networks == "both") and posterior.distributions["z"] is Delta:
            raise TextspaceError(
                "objective 'dual-kl' has no bound to learn with posterior 'delta', whose KL is infinite: set "
                "objective.of=aggregated and objective.networks=one, or use posterior 'implicit'"
            )
        self.kl_weight = schedule(config.kl_weight)
        self.weighted = "dual_marginal_kl" if (config.of, config.networks) == ("aggregated", "both") else "dual_kl"
        """The dual form that is part of the loss."""
        self.model = model

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms:
        forms = self.dual(passed.features_BH, passed.sites["z"], passed.noise, "prior draws")
        terms = {"reconstruction": _reconstruction(passed)} | {name: Term(kl_B) for name, kl_B in forms.items()}
        return _weighted(self, terms, progress)

    def weight(self, term: str, progress: Progress) -> float | None:
        if term == "reconstruction":
            return 1.0
        return self.kl_weight(progress) if term == self.weighted else None

    def dual(self, features_BH: Tensor | None, site: Site, noise: Noise, stream: str) -> dict[str, Tensor]:
        """The dual forms of each sentence, with draws of the prior from a stream of its own."""
        if self.model.dual is None or features_BH is None:
            raise ValueError("the model has no dual function")
        return dual_kls(self.model.dual, features_BH, site.value_SBZ, site.prior_draws(noise, stream))


class Wae:
    """-log p(x | z) + weight x MMD(codes of the batch, as many draws of the prior) [Tolstikhin et al. 2018].

    With a weight for it the KL is a part of the loss too [Mathieu et al. 2019].
    """

    samples = per_gate = 1
    batch_terms = True

    def __init__(self, config: WaeObjective, model: Model) -> None:
        if config.kl_weight is not None:
            needs_kl("wae with a kl_weight", model)
        self.has_kl = needs_latent("wae", model).has_log_prob
        self.kl_weight = None if config.kl_weight is None else schedule(config.kl_weight)
        self.model = model
        self.mmd_weight = schedule(config.mmd_weight)
        self.config = config

    def __call__(self, passed: Pass, progress: Progress, others: Others = NO_OTHERS) -> Terms:
        own = self.shared(passed.sites, passed.noise)
        rows = {name: _with_others(own_BZ, name, others) for name, own_BZ in own.items()}
        terms = {"reconstruction": _reconstruction(passed), **self.batched(rows)}
        kl = kl_terms(passed) if self.has_kl else {}
        return _weighted(self, terms | kl, progress)

    def weight(self, term: str, progress: Progress) -> float | None:
        match term:
            case "reconstruction":
                return 1.0
            case "mmd":
                return self.mmd_weight(progress)
            case _:
                return self.kl_weight and self.kl_weight(progress)

    def shared(self, sites: dict[str, Site], noise: Noise) -> dict[str, Tensor]:
        z = sites["z"]
        return {"z": z.value_SBZ[0], "prior": z.prior_draws(noise, "prior draws")[0]}

    def batched(self, rows: Mapping[str, Tensor]) -> dict[str, Term]:
        scales, kernel = self.config.scales, self.config.kernel
        if self.config.per == "dimension":
            distance = mmd_per_dimension(rows["z"], rows["prior"], scales, kernel)
        else:
            variance = self.model.prior.codes().variance.mean().detach()  # type: ignore[union-attr]
            distance = mmd(rows["z"], rows["prior"], scales, kernel, variance)
        return {"mmd": Term(distance, per="batch")}


def _weighted(objective: Objective, terms: dict[str, Term], progress: Progress) -> Terms:
    found = {name: objective.weight(name, progress) for name in terms}
    return Terms(terms, {name: weight for name, weight in found.items() if weight is not None})


def kl_terms(passed: Pass) -> dict[str, Term]:
    """The KL of each site, called `kl` where there is one site only, `kl_gate` and the like where there are more.

    At relaxed switches log q - log p is no KL, and may be below 0: it is called `relaxed_kl`.
    """
    sites = passed.sites
    return {_named("kl", name, sites): Term(site.kl_B, how=site.kl_form) for name, site in sites.items()}


def _named(term: str, site: str, sites: Mapping[str, Site]) -> str:
    q = sites[site].q
    term = f"relaxed_{term}" if isinstance(q, SpikeAndSlab) and q.relaxed else term
    return term if len(sites) == 1 else f"{term}_{site}"


def _reconstruction(passed: Pass) -> Term:
    return Term(-passed.log_px_SB.mean(0))


def printed_kl(z: Site, noise: float) -> Tensor:
    """The KL of each sentence's posterior with its deviation divided by the noise's: no KL of the codes drawn."""
    assert isinstance(z.q, Normal)
    return replace(z, q=Normal(z.q.loc, z.q.scale / noise, validate_args=False)).kl_B


def _activity(z: Site, norm: Literal["l1", "l2"]) -> Tensor:
    """The size of each sentence's mean and deviation together, summed over tokens where each has them."""
    both = torch.cat([z.q.mean, z.q.stddev], dim=-1)
    return z.summed(both.abs() if norm == "l1" else both.square())


def _gate_share(z: Site, share: GateShare) -> Tensor:
    """KL between a mean gate and the share wanted, times the dimensions: each sentence's (each token's, summed, where
    these have gates), or the mean of those of all pseudo-inputs, the same for every sentence."""
    gated = z.p.components if isinstance(z.p, Mixture) and share.of == "pseudo-inputs" else z.q
    assert isinstance(gated, SpikeAndSlab)
    off = gated.off.mean(-1, keepdim=True).clamp(1e-6, 1 - 1e-6)
    kl = off * (off / share.off).log() + (1 - off) * ((1 - off) / (1 - share.off)).log()
    price = kl * gated.off.shape[-1]
    return z.summed(price) if gated is z.q else price.mean().expand(z.value_SBZ.shape[1])


def _held(kl_BZ: Tensor, bits: FreeBits, how: Literal["closed", "sampled"] | None = None) -> Term:
    """The KL of sentences, or the mean KL of a batch, held at the target from below."""
    kl_BZ = kl_BZ.mean(0, keepdim=True) if bits.on == "batch" else kl_BZ
    kl_BZ = kl_BZ.sum(1, keepdim=True) if bits.per == "total" else kl_BZ
    held_B = kl_BZ.clamp(min=bits.target / kl_BZ.shape[1]).sum(1)
    return Term(held_B if bits.on == "sentence" else held_B[0], bits.on, how)


def _with_others(own_BZ: Tensor, name: str, others: Others) -> Tensor:
    """Our sentences' rows, and after them those of the rest of the global batch."""
    return torch.cat([own_BZ, others[name]]) if others else own_BZ


OBJECTIVES = {
    "elbo": Elbo,
    "reconstruction": Reconstruction,
    "iwae": Iwae,
    "mim": Mim,
    "dual-kl": DualKl,
    "wae": Wae,
}


def build_objective(recipe: Recipe, model: Model) -> Objective:
    return OBJECTIVES[recipe.objective.kind](recipe.objective, model)
