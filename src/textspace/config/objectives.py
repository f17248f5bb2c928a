"""Objectives: what a training step makes small."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from textspace.config.base import Config, Count, Positive
from textspace.config.schedules import Constant, Weight

__all__ = [
    "Activity",
    "DualFunction",
    "DualKlObjective",
    "ElboObjective",
    "FreeBits",
    "GateShare",
    "IwaeObjective",
    "MimObjective",
    "ObjectiveConfig",
    "ReconstructionObjective",
    "WaeObjective",
]


class FreeBits(Config):
    """A threshold below which the KL costs nothing more: a sentence's, the sum over tokens where each has a latent."""

    target: Positive = 3.0
    """Nats, in total over all dimensions."""
    per: Literal["dimension", "total"] = "dimension"
    """sum of max(target / d, KL_i) over the d dimensions, or max(target, KL)."""
    on: Literal["sentence", "batch"] = "sentence"
    """Threshold every sentence's KL, or its mean over the batch."""


class Activity(Config):
    """A price on large means and deviations of the posterior."""

    norm: Literal["l1", "l2"] = "l1"
    """Sum of sizes, or of squares, over the dimensions."""
    weight: Positive = 0.01


class GateShare(Config):
    """A price on gates that, on average over the dimensions, are off more or less than they should be."""

    off: Annotated[float, Field(gt=0, lt=1)] = 0.8
    of: Literal["sentences", "pseudo-inputs"] = "sentences"
    """Whose gates: those of every sentence, or those of the prior's pseudo-inputs, which are a model of them."""
    weight: Positive = 1.0
    """Of the KL between two coins with these probabilities, times the dimensions."""


class ElboObjective(Config):
    kind: Literal["elbo"] = "elbo"
    kl_weight: Weight = 1.0
    gate_kl_weight: Weight | None = None
    """Of the KL of gates, where there are some; `kl_weight` when not given."""
    free_bits: FreeBits | None = None
    activity: Activity | None = None
    gate_share: GateShare | None = None
    """For spike-and-slab posteriors with gates 'features'."""
    samples: Count = 1
    """Samples of the first latent: of gates where there are some, else of codes."""
    codes_per_gate: Count = 1
    """Codes drawn for each sample of the gates."""


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
    networks: Literal["one", "both"] = "one"
    """Train the dual function of this KL only, or those of both KLs: one is part of the loss, both are reported, and
    their difference is a mutual information."""
    dual: DualFunction = DualFunction()


class WaeObjective(Config):
    """Reconstruction, and the maximum mean discrepancy between the batch's codes and the prior."""

    kind: Literal["wae"] = "wae"
    mmd_weight: Weight = 10.0
    kl_weight: Weight | None = None
    """Of the KL, which is then a part of the loss too."""
    kernel: Literal["inverse-multiquadratic", "gaussian"] = "inverse-multiquadratic"
    per: Literal["code", "dimension"] = "code"
    """Compare codes by kernels of whole vectors; or by kernels of each dimension, and add up the discrepancies of all
    dimensions [Mathieu et al. 2019]. Kernels of whole vectors see next to nothing of a dimension's shape."""
    scales: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """Widths of the kernels that are summed, in units of the squared distance expected between two prior samples; per
    dimension in units of 2, that of two standard normal numbers, whatever the prior."""


ObjectiveConfig = Annotated[
    ElboObjective | ReconstructionObjective | IwaeObjective | MimObjective | DualKlObjective | WaeObjective,
    Field(discriminator="kind"),
]
