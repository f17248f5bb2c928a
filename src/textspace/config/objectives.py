"""Objectives: what a training step makes small."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from textspace.config.base import Config, Count, Positive
from textspace.config.schedules import Constant, Weight

__all__ = [
    "DualFunction",
    "DualKlObjective",
    "ElboObjective",
    "FreeBits",
    "IwaeObjective",
    "MimObjective",
    "ObjectiveConfig",
    "ReconstructionObjective",
    "WaeObjective",
]


class FreeBits(Config):
    """A threshold below which the KL costs nothing more."""

    target: Positive = 3.0
    """Nats, in total over all dimensions."""
    per: Literal["dimension", "total"] = "dimension"
    """sum of max(target / d, KL_i) over the d dimensions, or max(target, KL)."""
    on: Literal["sentence", "batch"] = "sentence"
    """Threshold every sentence's KL, or its mean over the batch."""


class ElboObjective(Config):
    kind: Literal["elbo"] = "elbo"
    kl_weight: Weight = 1.0
    free_bits: FreeBits | None = None


class ReconstructionObjective(Config):
    kind: Literal["reconstruction"] = "reconstruction"


class IwaeObjective(Config):
    """The importance-weighted bound with some samples."""

    kind: Literal["iwae"] = "iwae"
    samples: Count = 10
    kl_weight: Weight = 1.0
    """1 and nothing else: the bound has no KL that could be weighted."""

    @model_validator(mode="after")
    def _no_weight(self) -> IwaeObjective:
        weight = self.kl_weight.value if isinstance(self.kl_weight, Constant) else self.kl_weight
        if weight != 1:
            raise ValueError(
                "the importance-weighted bound of objective 'iwae' has no KL term that a kl_weight could weigh: "
                "set objective.kl_weight to 1, or use objective 'elbo'"
            )
        return self


class MimObjective(Config):
    """Mutual-information learning: reconstruction, and half of -log q(z | x) - log p(z) at the sample."""

    kind: Literal["mim"] = "mim"


class DualFunction(Config):
    """The network v of the dual form of a KL, leaky ReLU throughout."""

    layers: Count = 3
    hidden: Count = 512


class DualKlObjective(Config):
    """Reconstruction and the dual form of a KL, max over v of E_q[v] - E_p[exp v] + 1, for sample-only posteriors."""

    kind: Literal["dual-kl"] = "dual-kl"
    kl_weight: Weight = 1.0
    of: Literal["posterior", "aggregated"] = "posterior"
    """KL(q(z | x) || p(z)) with v on (x, z); or KL(q(z) || p(z)) with v on z alone, which leaves the mutual
    information free."""
    dual: DualFunction = DualFunction()


class WaeObjective(Config):
    """Reconstruction, and the maximum mean discrepancy between the batch's codes and the prior."""

    kind: Literal["wae"] = "wae"
    mmd_weight: Weight = 10.0
    kernel: Literal["inverse-multiquadratic", "gaussian"] = "inverse-multiquadratic"
    scales: tuple[Positive, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """Widths of the kernels that are summed, in units of the squared distance expected between two prior samples."""


ObjectiveConfig = Annotated[
    ElboObjective | ReconstructionObjective | IwaeObjective | MimObjective | DualKlObjective | WaeObjective,
    Field(discriminator="kind"),
]
