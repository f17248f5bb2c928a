"""Objectives: one forward pass to separable, unweighted terms and their weights."""

from __future__ import annotations

from typing import Protocol

from textspace.config import ElboObjective, Recipe, ReconstructionObjective
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.schedules import Progress, schedule
from textspace.types import Pass, Term, Terms

__all__ = ["OBJECTIVES", "Elbo", "Objective", "Reconstruction", "build_objective", "kl_terms"]


class Objective(Protocol):
    samples: int
    """Samples of the latent a training step draws."""

    def __call__(self, passed: Pass, progress: Progress) -> Terms: ...


class Reconstruction:
    """-log p(x | z), z from the posterior: an autoencoder; without a latent, a language model's exact NLL."""

    samples = 1

    def __init__(self, config: ReconstructionObjective, model: Model) -> None:
        pass

    def __call__(self, passed: Pass, progress: Progress) -> Terms:
        return Terms({"reconstruction": Term(-passed.log_px_SB.mean(0))}, {"reconstruction": 1.0})


class Elbo:
    """-log p(x | z) + weight x KL(q(z | x) || p(z)), z from the posterior: the negative ELBO at weight 1."""

    samples = 1

    def __init__(self, config: ElboObjective, model: Model) -> None:
        _needs_kl("elbo", model)
        self.kl_weight = schedule(config.kl_weight)

    def __call__(self, passed: Pass, progress: Progress) -> Terms:
        kl = kl_terms(passed)
        weight = self.kl_weight(progress)
        return Terms(
            {"reconstruction": Term(-passed.log_px_SB.mean(0)), **kl},
            {"reconstruction": 1.0, **dict.fromkeys(kl, weight)},
        )


def kl_terms(passed: Pass) -> dict[str, Term]:
    """The KL of each site, called `kl` where there is one site only, `kl_gate` and the like where there are more."""
    return {
        "kl" if len(passed.sites) == 1 else f"kl_{name}": Term(site.kl_B, how=site.kl_form)
        for name, site in passed.sites.items()
    }


def _needs_kl(objective: str, model: Model) -> None:
    if model.recipe.posterior is None or model.posterior is None:
        raise TextspaceError(
            f"objective {objective!r} needs a latent and this recipe has no posterior: use objective 'reconstruction'"
        )
    if not model.posterior.has_log_prob:
        raise TextspaceError(
            f"objective {objective!r} needs a KL and posterior {model.recipe.posterior.kind!r} has no density: "
            "use objective 'reconstruction' or posterior 'gaussian'"
        )


OBJECTIVES = {"elbo": Elbo, "reconstruction": Reconstruction}


def build_objective(recipe: Recipe, model: Model) -> Objective:
    return OBJECTIVES[recipe.objective.kind](recipe.objective, model)
