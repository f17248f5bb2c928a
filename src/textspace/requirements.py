"""What objectives need of the other parts, told in one sentence where it is lacking."""

from __future__ import annotations

from textspace.config import ElboObjective, FreeBits
from textspace.distributions import Mixture, SpikeAndSlab, closed_kl
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.posteriors import Posterior

__all__ = ["needs_closed_kl", "needs_gates", "needs_kl", "needs_latent"]


def needs_latent(objective: str, model: Model) -> Posterior:
    if model.posterior is None:
        raise TextspaceError(
            f"objective {objective!r} needs a latent and this recipe has no posterior: use objective 'reconstruction'"
        )
    return model.posterior


def needs_kl(objective: str, model: Model) -> Posterior:
    posterior = needs_latent(objective, model)
    if not posterior.has_log_prob:
        raise TextspaceError(
            f"objective {objective!r} needs a KL and posterior {_kind(model, 'posterior')!r} has no density: "
            "use objective 'reconstruction', 'wae' or 'dual-kl', or posterior 'gaussian'"
        )
    return posterior


def needs_gates(config: ElboObjective, model: Model, posterior: Posterior) -> None:
    """Options about gates make no sense without them, and an activity needs a posterior that is not conditioned."""
    gated = "gate" in posterior.distributions
    if not gated and (config.gate_kl_weight is not None or config.codes_per_gate > 1):
        raise TextspaceError(
            "objective.gate_kl_weight and objective.codes_per_gate are about gates, and this posterior has none: leave "
            "them out, or use posterior 'spike-and-slab' with prior 'beta-gated'"
        )
    if gated and config.activity is not None:
        raise TextspaceError(
            "objective.activity is for posteriors without Beta gates: leave it out, or use posterior 'gaussian'"
        )
    if (share := config.gate_share) is None:
        return
    if gated or posterior.distributions["z"] is not SpikeAndSlab:
        raise TextspaceError(
            "objective.gate_share is for posterior 'spike-and-slab' with gates 'features': leave it out, or set "
            "posterior.gates=features"
        )
    if share.of == "pseudo-inputs" and (prior := _kind(model, "prior")) != "pseudo-inputs":
        raise TextspaceError(
            f"objective.gate_share.of=pseudo-inputs needs prior 'pseudo-inputs', and this is {prior!r}: set "
            "prior.kind=pseudo-inputs, or objective.gate_share.of=sentences"
        )


def needs_closed_kl(bits: FreeBits, model: Model) -> None:
    """A threshold on every sentence's KL makes no sense of a sampled KL, which is right only on average; nor does one
    on every dimension's where the prior's dimensions depend on each other."""
    if model.posterior is None or model.prior is None:
        return
    if bits.per == "dimension" and Mixture in model.prior.distributions.values():
        raise TextspaceError(
            f"objective.free_bits per dimension needs a prior whose dimensions are independent, and those of "
            f"{_kind(model, 'prior')!r} are not: set objective.free_bits.per=total and objective.free_bits.on=batch"
        )
    if bits.on == "batch":
        return
    for site, q in model.posterior.distributions.items():
        if not closed_kl(q, model.prior.distributions[site]):
            raise TextspaceError(
                f"objective.free_bits on every sentence needs a closed KL, and that of posterior "
                f"{_kind(model, 'posterior')!r} and prior {_kind(model, 'prior')!r} is sampled: set "
                "objective.free_bits.on=batch"
            )


def _kind(model: Model, part: str) -> str:
    return getattr(model.recipe, part).kind
