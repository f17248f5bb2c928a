"""The diagnosis of a space in plain words: whether its codes hold anything, fill the prior, and what to try if not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from textspace.config import Constant, InverseRoot, Recipe, RecurrentDecoder
from textspace.errors import TextspaceError
from textspace.recipes import RECIPES

__all__ = [
    "MEASURES",
    "MEASURES_OF_TOKENS",
    "REMEDIES",
    "Diagnosis",
    "Remedy",
    "State",
    "diagnose",
    "known_numbers",
    "measures_of",
]

State = Literal["collapsed", "collapsing", "healthy", "overfull", "unknown"]


class Remedy(NamedTuple):
    """Something to train with the next time: a fragment of the command line, why, and who has it already."""

    fragment: str
    why: str
    used: Callable[[Recipe], bool] = lambda recipe: False
    """Whether a recipe does this already; a recipe's own name needs no mention."""


REMEDIES: dict[Literal["collapsed", "overfull"], tuple[Remedy, ...]] = {
    "collapsed": (
        Remedy(
            "--set objective.kl_weight=0.01",
            "what a token's code tells costs a hundredth: at full price the decoder does better without it",
            lambda recipe: not recipe.is_token_level or _final(recipe, "kl_weight") <= 0.01,
        ),
        Remedy(
            "--set objective.free_bits.target=30",
            "the first 30 nats that the codes of a sentence tell cost nothing",
            lambda recipe: not recipe.is_token_level or _has(recipe, "free_bits") or _has_sampled_kl(recipe),
        ),
        Remedy(
            "--set pretrain.keep=both",
            "starts from an autoencoder, which reads its codes",
            lambda recipe: not recipe.is_token_level or recipe.pretrain is not None,
        ),
        Remedy(
            "--recipe pretrain-free-bits",
            "starts from an autoencoder's codes and leaves 4 nats of the KL free",
            lambda recipe: recipe.pretrain is not None and _has(recipe, "free_bits"),
        ),
        Remedy(
            "--set objective.free_bits.target=4",
            "the first 4 nats that a code tells cost nothing",
            lambda recipe: recipe.is_token_level or _has(recipe, "free_bits") or _has_sampled_kl(recipe),
        ),
        Remedy(
            "--set decoder.skip=true",
            "the code reaches every layer of the decoder and every word",
            lambda recipe: isinstance(recipe.decoder, RecurrentDecoder) and recipe.decoder.skip,
        ),
        Remedy(
            "--recipe default",
            "a small decoder that reads its codes early, and less than the KL's full weight",
        ),
        Remedy(
            "--set objective.kl_weight=0.5",
            "what a code tells costs half",
            lambda recipe: _final(recipe, "kl_weight") < 1 or recipe.is_token_level,
        ),
        Remedy(
            "--set training.update.kind=aggressive",
            "the encoder catches up before each step of the decoder",
            lambda recipe: recipe.training.update.kind == "aggressive",
        ),
        Remedy(
            "--set pooling.kind=max",
            "features from all words differ more than those from the last state",
            lambda recipe: recipe.pooling is not None and recipe.pooling.kind != "last",
        ),
        Remedy(
            "--set decoder.word_dropout=0.4",
            "words that the decoder does not see it must learn from the code",
            lambda recipe: recipe.decoder.word_dropout > 0,
        ),
        Remedy("--recipe ae", "an autoencoder has no KL to collapse under"),
        Remedy("--recipe wae", "only all codes together must fill the prior"),
    ),
    "overfull": (
        Remedy(
            "--set objective.kl_weight=1",
            "the KL's full weight draws the codes to the prior",
            lambda recipe: recipe.objective.kind != "elbo" or _final(recipe, "kl_weight") >= 1,
        ),
        Remedy(
            "--set prior.noise=standard",
            "the loss has the KL of the codes, which costs more than the printed one",
            lambda recipe: recipe.noise_deviation == 1,
        ),
        Remedy(
            "--recipe pretrain-free-bits",
            "starts from an autoencoder's codes and then draws them to the prior",
            lambda recipe: recipe.pretrain is not None and _has(recipe, "free_bits"),
        ),
        Remedy(
            "--set objective.mmd_weight=1000",
            "a heavier discrepancy draws all codes together to the prior",
            lambda recipe: _final(recipe, "mmd_weight") >= 1000,
        ),
        Remedy(
            "--set prior.learned=true",
            "the prior becomes as wide as the codes lie",
            lambda recipe: getattr(recipe.prior, "learned", False) or recipe.objective.kind == "reconstruction",
        ),
        Remedy(
            "--set latent.dim=16",
            "fewer dimensions are filled by fewer sentences",
            lambda recipe: recipe.latent.dim <= 16,
        ),
        Remedy("--recipe default", "less than the KL's full weight, risen slowly"),
        Remedy("--recipe vae", "the KL's full weight from the start"),
        Remedy("--recipe wae", "asks all codes together to fill the prior"),
    ),
}
"""What to try, in the order of what helped in our own measurements (docs/collapse.md); the first two that a recipe can
take and does not use are advised. Those for codes of tokens come first and are `used` by all other recipes."""

_COMPARE = "give at least two sentences, so that their codes can be compared"

_LONGER = "--epochs 30 (codes often come into use only after several passes over the text)"

COLLAPSED_BELOW = 0.1
"""Nats: a mutual information below this, or a KL where that is all one knows, is that of a code that tells nothing. A
code is a sentence's, or a token's where each has one, here and in all limits below."""

FEW_ACTIVE = 0.1
"""Share of the dimensions below which active ones are few."""

LITTLE_KL = 1.0
"""Nats: few active dimensions with a KL below this are about to go as well."""

HARDLY_ANY = 0.5
"""Nats: a KL below this is next to nothing, however many dimensions barely count as active. So is what a code tells,
which may be far less than it costs."""

FALLING_BELOW = 2.0
"""Nats: a KL that halves within `FALLING_OVER` validations is on its way to 0 when it is below this already."""

FALLING_OVER = 3

YOUNG = 10
"""Epochs: until then codes that were never in use may still come into use. On Penn Treebank an autoencoder's do after 4
epochs and those of `vae-free-bits` after 10."""

OVERFULL_ABOVE = 5.0
"""Nats, at least, that all codes together lie from the prior. In our runs variational autoencoders had at most 3.5 and
mostly below 1, a KL weight of 0.1 gave 6.5, the implicit one 9.5, and autoencoders 20 and more."""

MEASURES = {
    "reconstruction": "reconstruction: nats a sentence costs given its code",
    "kl": "KL: nats a code costs",
    "mi": "mutual information: nats a code tells about its sentence",
    "mi_leave_one_out": "mutual information, the sentence itself left out",
    "active_units": "active units: dimensions that change with the sentence",
    "feature_cosine": "mean cosine of two sentences' features (1: all alike)",
    "marginal_kl": "nats from all codes together to the prior",
}
"""The numbers of an examination, and what each is."""

MEASURES_OF_TOKENS = MEASURES | {
    "reconstruction": "reconstruction: nats a sentence costs given its codes",
    "kl": "KL: nats the codes of a sentence cost together",
    "token_kl": "KL: nats the code of a token costs",
    "mi": "mutual information: nats a code tells about its token",
    "mi_leave_one_out": "mutual information, the token itself left out",
    "active_units": "active units: dimensions that change with the token",
    "feature_cosine": "mean cosine of two tokens' features (1: all alike)",
}
"""The same where every token has a code."""

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Diagnosis:
    """How a space is: the state, one sentence with the numbers, and two things to try where it is not well.

    >>> print(diagnose({"kl": 0.01, "mi": 0.0, "active_units": 0}, Recipe()))
    The codes have collapsed and the decoder writes without them: 0 of 32 dimensions change with the sentence, a code \
costs 0.01 nats (KL) and tells 0.00 nats about its sentence.
    Try: --recipe pretrain-free-bits (starts from an autoencoder's codes and leaves 4 nats of the KL free)
     or: --set objective.free_bits.target=4 (the first 4 nats that a code tells cost nothing)
    """

    state: State
    sentence: str
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        starts = ("Try: ", " or: ")
        return "\n".join([self.sentence, *(start + each for start, each in zip(starts, self.advice, strict=False))])


def diagnose(
    numbers: Numbers, recipe: Recipe, history: Sequence[Mapping[str, Any]] = (), epochs: float | None = None
) -> Diagnosis:
    """Say how a space is.

    Args:
        numbers: "kl", "mi", "active_units", "feature_cosine", "marginal_kl" and "reconstruction", as many as are known;
            and "token_kl" where every token has a code. Of one sentence there is the KL alone, or nothing.
        recipe: what it was trained with.
        history: the same numbers of the run's earlier validations, in order.
        epochs: how long it has been trained, where that is known.
    """
    if recipe.posterior is None:
        return Diagnosis("unknown", "This is a language model: it has no codes that could be well or ill.")
    known, of_a_code = known_numbers(numbers), _kl_of_a_code(recipe)
    kl, mi, active = (known.get(name) for name in (of_a_code, "mi", "active_units"))
    nats = [value for value in (kl, mi) if value is not None]
    if not nats and "kl" in known:  # of all codes of a sentence together: none of them costs more
        nats = [known["kl"]]
    if active is None and not nats:
        missing = "neither the mutual information nor the number of active units is known"
        return Diagnosis("unknown", f"How the codes are cannot be said, since {missing}: {_COMPARE}.")

    facts = _facts(known, recipe)
    # A code tells at most what it costs, which stands for it where it is not known: costs may be those of a distance
    # from the prior that all codes share, and tell nothing. Dimensions are active on the scale of the prior, and codes
    # that are small beside it may still tell all sentences apart.
    if (nats and nats[-1] < COLLAPSED_BELOW) or (active == 0 and (mi is None or mi < HARDLY_ANY)):
        alike = known.get("feature_cosine")
        facts += "" if alike is None else f", and two {_unit(recipe)}s' features have cosine {alike:.2f}"
        if so_far := _so_far(COLLAPSED_BELOW, history, epochs):
            told = f"The codes are collapsed so far, {so_far}, and the decoder writes without them: {facts}."
            return Diagnosis("collapsed", told, (_LONGER, *_advice("collapsed", recipe)[:1]))
        told = f"The codes have collapsed and the decoder writes without them: {facts}."
        return Diagnosis("collapsed", told, _advice("collapsed", recipe))
    few = active is not None and active < FEW_ACTIVE * recipe.latent.dim
    if nats and (min(nats) < HARDLY_ANY or (few and nats[0] < LITTLE_KL)):  # the KL, or what is known in its place
        if so_far := _so_far(HARDLY_ANY, history, epochs):
            told = f"The codes hold little so far, {so_far}: {facts}."
            return Diagnosis("collapsing", told, (_LONGER, *_advice("collapsed", recipe)[:1]))
        told = f"The codes hold little and are about to collapse: {facts}."
        return Diagnosis("collapsing", told, _advice("collapsed", recipe))
    before = [line[of_a_code] for line in map(known_numbers, history) if of_a_code in line][-FALLING_OVER:]
    if kl is not None and len(before) == FALLING_OVER and kl < min(before[0] / 2, FALLING_BELOW):
        told = (
            f"The codes are collapsing: within {FALLING_OVER} validations the KL fell from {before[0]:.2f} to {kl:.2f} "
            f"nats, and now {facts}."
        )
        return Diagnosis("collapsing", told, _advice("collapsed", recipe))
    apart = known.get("marginal_kl")
    if apart is not None and apart > OVERFULL_ABOVE:
        told = (
            f"The codes do not fill the prior, from which they all together lie at least {apart:.1f} nats away, so "
            f"that samples from the prior will make little sense (textspace sample --data draws near the codes of real "
            f"sentences instead){_expected(recipe)}: {facts}."
        )
        return Diagnosis("overfull", told, _advice("overfull", recipe))
    if active is None and mi is None:  # a KL that is not small
        told = f"{facts}, which codes that are the same for all {_unit(recipe)}s may cost as well"
        return Diagnosis("unknown", f"How the codes are cannot be said from the KL alone: {told}; {_COMPARE}.")
    near = "" if apart is None else f", and all codes together lie near the prior ({max(apart, 0.0):.1f} nats)"
    return Diagnosis("healthy", f"The codes are healthy: {facts}{near}.")


def _so_far(least: float, history: Sequence[Mapping[str, Any]], epochs: float | None) -> str | None:
    """After how long, of a young run whose codes never told as many nats: they may still come into use."""
    if epochs is None or epochs >= YOUNG or any(line.get("mi", 0.0) >= least for line in map(known_numbers, history)):
        return None
    return f"after {epochs:g} {'epoch' if epochs == 1 else 'epochs'}"


def known_numbers(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among what a log may hold."""
    return {name: value for name, value in numbers.items() if isinstance(value, int | float) and math.isfinite(value)}


def _facts(known: Numbers, recipe: Recipe) -> str:
    told = []
    if known.get("active_units") == 0 and known.get("mi", 0.0) >= HARDLY_ANY:
        told.append(f"none of {recipe.latent.dim} dimensions varies by a hundredth of the prior's variance")
    elif "active_units" in known:
        told.append(f"{known['active_units']:.0f} of {recipe.latent.dim} dimensions change with the {_unit(recipe)}")
    nats = []
    if (kl := known.get(_kl_of_a_code(recipe))) is not None:
        nats.append(f"costs {kl:.2f} nats (KL)")
    elif "kl" in known:
        told.append(f"the codes of a sentence cost {known['kl']:.2f} nats (KL) together")
    if "mi" in known:
        how_sure = "" if known["mi"] < COLLAPSED_BELOW else "at least " if _mi_is_a_lower_bound(recipe) else "roughly "
        nats.append(f"tells {how_sure}{max(known['mi'], 0):.2f} nats about its {_unit(recipe)}")
    if nats:
        told.append(f"a code {' and '.join(nats)}")
    return ", ".join(told)


def _mi_is_a_lower_bound(recipe: Recipe) -> bool:
    """Whether the truth may be far above the number, which cannot exceed the logarithm of how many codes there were. It
    may lie on either side of one that was measured with Gaussians in the place of other posteriors."""
    return recipe.posterior is not None and recipe.posterior.kind == "gaussian"


def _unit(recipe: Recipe) -> str:
    """What has a code."""
    return "token" if recipe.is_token_level else "sentence"


def _kl_of_a_code(recipe: Recipe) -> str:
    return "token_kl" if recipe.is_token_level else "kl"


def measures_of(recipe: Recipe) -> dict[str, str]:
    """The numbers of an examination of such a space, and what each is."""
    if recipe.posterior is None:
        return MEASURES | {"reconstruction": "negative log-likelihood: nats a sentence costs"}
    return MEASURES_OF_TOKENS if recipe.is_token_level else MEASURES


def _advice(trouble: Literal["collapsed", "overfull"], recipe: Recipe) -> tuple[str, ...]:
    new = [remedy for remedy in REMEDIES[trouble] if not remedy.used(recipe) and _can_take(recipe, remedy.fragment)]
    return tuple(f"{remedy.fragment} ({remedy.why})" for remedy in new[:2])


def _can_take(recipe: Recipe, fragment: str) -> bool:
    """Whether the parts that are there go together with what a fragment of the command line asks for."""
    option, _, value = fragment.partition(" ")
    if option == "--recipe":  # not one that makes another kind of space
        return value != recipe.name and RECIPES[value].is_token_level == recipe.is_token_level
    try:
        return recipe.with_settings([value]) != recipe
    except (TextspaceError, LookupError):  # an option that only another kind of part has
        return False


def _has_sampled_kl(recipe: Recipe) -> bool:
    """Whether the KL of a sentence is drawn, so that a threshold on it makes no sense."""
    posterior, prior = (getattr(part, "kind", None) for part in (recipe.posterior, recipe.prior))
    return posterior != "gaussian" or prior not in ("standard-normal", "scaled-normal")


def _has(recipe: Recipe, option: str) -> bool:
    """Whether the objective has an option, and it is set."""
    return getattr(recipe.objective, option, None) is not None


def _final(recipe: Recipe, option: str) -> float:
    """A weight of the objective when all schedules are through; 0 where the objective has no such weight."""
    weight = getattr(recipe.objective, option, None) or 0.0
    match weight:
        case Constant():
            return weight.value
        case InverseRoot():
            return 0.5  # it falls without end: somewhere between 0 and 1
        case int() | float():
            return float(weight)
        case _:
            return weight.end


def _expected(recipe: Recipe) -> str:
    """Of which recipes it is known that their codes do not fill the prior."""
    if recipe.objective.kind == "mim":
        return ", as is to be expected of mutual-information learning"
    autoencoder = _final(recipe, "kl_weight") == 0 and _final(recipe, "mmd_weight") == 0
    return ", as is to be expected of an autoencoder" if autoencoder else ""
