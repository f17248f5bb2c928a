"""The composition every recipe is: encoder, pooling, posterior, prior, decoder.

sentence --encoder--> states --pooling--> features --posterior--> q(z | x) --draw--> z --decoder--> log p(x | z)
                                                                   p(z) <--prior
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from textspace.config import DualKlObjective, Recipe
from textspace.decoders import build_decoder
from textspace.distributions import SpikeAndSlab, centre, draw, moments
from textspace.divergences import build_dual
from textspace.encoders import PretrainedEncoder, build_encoder
from textspace.noise import Noise
from textspace.pooling import POOLINGS
from textspace.posteriors import POSTERIORS
from textspace.pretrained import EncoderFiles
from textspace.priors import PRIORS
from textspace.start_values import draw_start_values
from textspace.types import Batch, Pass, Site, View

__all__ = ["Model"]


class Model(nn.Module):
    """The network that a recipe describes. Its start values are keyed by the recipe's seed and their names alone.

    Args:
        recipe: which parts, and with what numbers.
        vocabulary: number of tokens, the special ones included.
        encoder_files: of a pretrained encoder whose weights will be filled in; by default it starts as the model that
            the recipe names.
        with_start_values: without them the weights mean nothing until they are filled in.
    """

    def __init__(
        self,
        recipe: Recipe,
        vocabulary: int,
        encoder_files: EncoderFiles | None = None,
        *,
        with_start_values: bool = True,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.vocabulary = vocabulary
        with torch.random.fork_rng(devices=[]):  # modules of PyTorch draw when they are made
            self.encoder = self.pooling = self.posterior = self.prior = self.dual = None
            if recipe.encoder and recipe.pooling and recipe.posterior and recipe.prior:
                self.encoder = build_encoder(recipe.encoder, vocabulary, encoder_files)
                self.pooling = POOLINGS[recipe.pooling.kind](recipe.pooling, self.encoder.size)
                noise = {} if recipe.noise_deviation == 1 else {"noise": recipe.noise_deviation}
                parts = recipe.posterior, self.encoder.size, recipe.latent
                self.posterior = POSTERIORS[recipe.posterior.kind](*parts, **noise)
                self.prior = PRIORS[recipe.prior.kind](recipe.prior, recipe.latent, self.posterior)
                if isinstance(recipe.objective, DualKlObjective):
                    self.dual = build_dual(recipe.objective, self.encoder.size, recipe.latent.dim)
            dim = None if recipe.posterior is None else recipe.latent.dim
            self.decoder = build_decoder(recipe.decoder, vocabulary, dim, recipe.is_token_level)
            if recipe.share_embeddings and self.encoder is not None and not isinstance(self.encoder, PretrainedEncoder):
                self.decoder.embedding = self.encoder.embedding
        if with_start_values:
            draw_start_values(self.parts_by_role(), recipe.training.seed, recipe.initial)

    def parts_by_role(self) -> dict[str, nn.Module | None]:
        """The parts, those that share their weights with later ones first; roles are keys of start values."""
        return {
            "encoder": self.encoder,
            "pooling": self.pooling,
            "posterior": self.posterior,
            "prior": self.prior,
            "dual": self.dual,
            "decoder": self.decoder,
        }

    @property
    def is_token_level(self) -> bool:
        """Whether every token has a latent of its own: features, posteriors and codes then have a token axis."""
        return self.recipe.is_token_level

    def features(self, view: View, noise: Noise | None = None) -> Tensor | None:
        """What the posterior's heads see, (B, H), or (B, T, H) where every token has a latent; None for a language
        model. Training needs the noise."""
        return None if self.encoder is None or self.pooling is None else self.pooling(self.encoder(view, noise))

    def sites(
        self,
        features_BH: Tensor | None,
        noise: Noise,
        samples: int,
        view: View | None = None,
        proposal: Callable[[Distribution], Distribution] = lambda q: q,
        per_gate: int = 1,
    ) -> dict[str, Site]:
        """q(z | x), p(z) and samples, site by site; empty for a language model, which has no features either.

        The view is what the features were made of: it says which tokens are real where each has a latent; features of
        single tokens, (N, H), need none. The samples come from `proposal(q)`, which then stands for q: estimators
        replace posteriors without a density. Sites before the last have `samples / per_gate` samples, each repeated.
        """
        sites: dict[str, Site] = {}
        if self.posterior is None or self.prior is None:
            return sites
        drawn: dict[str, Tensor] = {}
        mask_BT = None
        if self.is_token_level and features_BH is not None and features_BH.dim() == 3:
            if view is None:
                raise ValueError("where every token has a latent, the sites of sentences need the view")
            mask_BT = view.mask_BT
        for name in self.posterior.distributions:
            q = proposal(self.posterior(name, features_BH, drawn))
            last = name == "z"
            value_SBZ = draw(q, noise, name, samples if last else samples // per_gate, given=bool(drawn))
            p = self.prior(name, drawn)
            drawn[name] = value_SBZ if last else value_SBZ.repeat_interleave(per_gate, 0)
            sites[name] = Site(q, p, drawn[name], self.prior.codes() if last and len(drawn) > 1 else None, mask_BT)
        return sites

    def code_moments(self, features_BH: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each sentence's code, latents before it at their centre; drawn where it must be."""
        return moments(self._code_posterior(features_BH), noise)

    def _code_posterior(self, features_BH: Tensor | None) -> Distribution:
        if self.posterior is None or features_BH is None:
            raise ValueError("a language model has no codes")
        earlier: dict[str, Tensor] = {}
        for name in self.posterior.distributions:
            q = self.posterior(name, features_BH, earlier)
            if name != "z":
                earlier[name] = centre(q)
        return q

    @property
    def has_gates(self) -> bool:
        """Whether dimensions can be switched off."""
        return self.posterior is not None and self.posterior.distributions["z"] is SpikeAndSlab

    def gates(self, features_BH: Tensor) -> Tensor | None:
        """E[gamma | x], the probability that each dimension is off, (B, Z); None where no dimension can be."""
        if self.posterior is None or not self.has_gates:
            return None
        if "gate" in self.posterior.distributions:
            return self.posterior("gate", features_BH, {}).off
        return self.posterior("z", features_BH, {}).off

    def slab_means(self, features_BH: Tensor) -> Tensor:
        """Mean of each dimension where it is on, gates at their mean, (B, Z); for models with gates."""
        return self._code_posterior(features_BH).loc  # type: ignore[attr-defined]

    def decode(
        self, batch: Batch, features_BH: Tensor | None, sites: dict[str, Site], noise: Noise, *, has_end: bool = True
    ) -> Pass:
        """log p(x | z) of a batch at the sampled codes; without `has_end` the end token has no probability."""
        z_SBZ = sites["z"].value_SBZ if sites else None
        extra = {"mask_BU": sites["z"].mask_BT} if self.is_token_level else {}
        token_log_px_SBT = self.decoder(z_SBZ, batch.decoder, noise, has_end=has_end, **extra)
        return Pass(batch, features_BH, sites, token_log_px_SBT, noise, has_end)

    def forward(self, batch: Batch, noise: Noise, samples: int = 1, per_gate: int = 1) -> Pass:
        features_BH = self.features(batch.encoder, noise)
        sites = self.sites(features_BH, noise, samples, batch.encoder, per_gate=per_gate)
        return self.decode(batch, features_BH, sites, noise)

    def inference_parameters(self) -> list[nn.Parameter]:
        """Those of the encoder's side: encoder (with embeddings it shares), pooling and posterior; no frozen ones."""
        parts = (self.encoder, self.pooling, self.posterior)
        return [p for part in parts if part is not None for p in part.parameters() if p.requires_grad]

    def generative_parameters(self) -> list[nn.Parameter]:
        """Those of the decoder's side that it shares with nobody: prior and decoder."""
        taken = {id(parameter) for parameter in self.inference_parameters()}
        parts = (self.prior, self.decoder)
        return [p for part in parts if part is not None for p in part.parameters() if id(p) not in taken]

    def parameter_counts(self) -> dict[str, int]:
        """Numbers per part, frozen ones apart; a shared one counts for the part that comes first."""
        counts: dict[str, int] = {}
        for name, parameter in self.named_parameters():
            part = name.split(".")[0] + ("" if parameter.requires_grad else " (frozen)")
            counts[part] = counts.get(part, 0) + parameter.numel()
        return counts
