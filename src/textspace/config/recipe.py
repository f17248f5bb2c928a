"""The recipe: which parts make a model, and with what numbers; its JSON."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from textspace import settings
from textspace.config.base import Config
from textspace.config.objectives import ElboObjective, ObjectiveConfig
from textspace.config.parts import (
    BetaGatedPrior,
    DecoderConfig,
    EncoderConfig,
    GaussianPosterior,
    ImplicitPosterior,
    Initial,
    Latent,
    Layers,
    NoPooling,
    PoolingConfig,
    PosteriorConfig,
    PretrainedEncoder,
    PriorConfig,
    PseudoInputPrior,
    RecurrentDecoder,
    RecurrentEncoder,
    ScaledNormalPrior,
    SimplePooling,
    SpikeAndSlabPosterior,
    StandardNormalPrior,
    TransformerDecoder,
)
from textspace.config.text import Text
from textspace.config.training import Pretraining, Training
from textspace.errors import TextspaceError
from textspace.files import parse_json, read_text

__all__ = ["Recipe"]

FORMAT: Literal[1] = 1
"""Version of recipe.json; raised when an older version could no longer be read as it was meant."""


class Recipe(Config):
    """Which parts make a model, and with what numbers. A language model has no encoder, posterior or prior."""

    format: Literal[1] = FORMAT
    name: str = "custom"
    about: str = ""
    """What it is, in one sentence."""
    citation: str = ""
    text: Text = Text()
    latent: Latent = Latent()
    encoder: EncoderConfig | None = RecurrentEncoder()
    pooling: PoolingConfig | None = SimplePooling()
    posterior: PosteriorConfig | None = GaussianPosterior()
    prior: PriorConfig | None = StandardNormalPrior()
    decoder: DecoderConfig = RecurrentDecoder()
    share_embeddings: bool = False
    """Encoder and decoder read one embedding table (needs equal sizes)."""
    initial: Initial = Initial()
    objective: ObjectiveConfig = ElboObjective()
    pretrain: Pretraining | None = None
    """A first phase as an autoencoder."""
    training: Training = Training()

    @model_validator(mode="before")
    @classmethod
    def _recurrent_decoder(cls, values: Any) -> Any:
        """A decoder without a kind is an LSTM, as when there was nothing but recurrent ones."""
        if isinstance(values, dict) and isinstance(decoder := values.get("decoder"), dict) and "kind" not in decoder:
            return {**values, "decoder": {"kind": "lstm", **decoder}}
        return values

    @model_validator(mode="after")
    def _parts_fit(self) -> Recipe:
        inference = {part: getattr(self, part) for part in ("encoder", "pooling", "posterior", "prior")}
        missing = [name for name, part in inference.items() if part is None]
        if missing and len(missing) < len(inference):
            raise ValueError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: give encoder, pooling, "
                "posterior and prior, or none of them for a language model"
            )
        has_gates = isinstance(self.posterior, SpikeAndSlabPosterior) and self.posterior.gates == "beta"
        if isinstance(self.prior, BetaGatedPrior) and not has_gates and self.posterior is not None:
            raise ValueError(
                f"prior 'beta-gated' needs Beta gates in the posterior too, and this is {self.posterior.kind!r}: set "
                "posterior.kind=spike-and-slab and posterior.gates=beta, or use prior 'spike-and-slab'"
            )
        if has_gates and not isinstance(self.prior, BetaGatedPrior) and self.prior is not None:
            raise ValueError(
                f"posterior 'spike-and-slab' with gates 'beta' needs Beta gates in the prior too, and this is "
                f"{self.prior.kind!r}: set prior.kind=beta-gated, or posterior.gates=features"
            )
        if isinstance(self.prior, PseudoInputPrior) and not isinstance(
            self.posterior, GaussianPosterior | SpikeAndSlabPosterior
        ):
            raise ValueError("prior 'pseudo-inputs' needs a posterior with a density: 'gaussian' or 'spike-and-slab'")
        self._noise_fits()
        if self.pretrain and self.posterior is None:
            raise ValueError("pretrain needs an encoder to pretrain, and a language model has none")
        self._pooling_fits()
        if isinstance(self.decoder, RecurrentDecoder) and self.decoder.skip and self.posterior is None:
            raise ValueError("decoder.skip needs a latent, and a language model has none")
        kinds = {"objective": self.objective.kind, "training.update": self.training.update.kind}
        if (kinds["objective"] == "dual-kl") != (kinds["training.update"] == "alternating"):
            raise ValueError(
                f"objective {kinds['objective']!r} and training.update {kinds['training.update']!r} do not fit: "
                "objective 'dual-kl' needs training.update 'alternating', which trains its dual function and no other"
            )
        if self.training.criterion == "iwae" and kinds["objective"] != "iwae":
            raise ValueError(
                f"training.criterion 'iwae' needs objective 'iwae', and this is {kinds['objective']!r}: "
                "use criterion 'objective', 'elbo' or 'reconstruction'"
            )
        if kinds["training.update"] == "aggressive" and self.posterior is None:
            raise ValueError("training.update 'aggressive' needs an encoder, and a language model has none")
        if self.training.average == "tokens" and (whole := self._term_of_a_batch()):
            raise ValueError(
                f"training.average 'tokens' divides the terms of sentences, and {whole} has one of the whole batch: "
                "set training.average=sentences"
            )
        self._embeddings_fit()
        return self

    @property
    def is_token_level(self) -> bool:
        """Whether every token has a latent of its own, and not the sentence one."""
        return isinstance(self.pooling, NoPooling)

    def _term_of_a_batch(self) -> str | None:
        """What has a term that is one number for the whole batch."""
        bits = self.objective.free_bits if isinstance(self.objective, ElboObjective) else None
        if bits is not None and bits.on == "batch":
            return "objective.free_bits.on 'batch'"
        return "objective 'wae'" if self.objective.kind == "wae" else None

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise in codes; 1 but for the printed loss of the VAT paper."""
        return self.prior.noise_deviation if isinstance(self.prior, ScaledNormalPrior) else 1.0

    def _noise_fits(self) -> None:
        """Refuse noise that is not standard normal where no loss is defined for it."""
        if not isinstance(self.prior, ScaledNormalPrior) or self.prior.noise == "standard":
            return
        if not isinstance(self.posterior, GaussianPosterior):
            raise ValueError(
                f"prior.noise {self.prior.noise!r} scales the noise of posterior 'gaussian': set "
                "posterior.kind=gaussian, or prior.noise=standard"
            )
        if not isinstance(self.objective, ElboObjective) or self.objective.free_bits is not None:
            with_what = "objective.free_bits" if self.objective.kind == "elbo" else f"objective {self.objective.kind!r}"
            raise ValueError(
                f"prior.noise {self.prior.noise!r} has a KL of its own in objective 'elbo', and not with {with_what}: "
                "set prior.noise=standard, or use objective 'elbo' without free bits"
            )

    def _embeddings_fit(self) -> None:
        """Refuse to share embeddings that encoder and decoder cannot share."""
        if not self.share_embeddings:
            return
        if self.encoder is None:
            raise ValueError("share_embeddings needs an encoder, and a language model has none")
        if isinstance(self.encoder, PretrainedEncoder):
            raise ValueError(
                f"share_embeddings needs an encoder that reads the decoder's tokens, and {self.encoder.kind!r} has "
                "a tokenizer of its own: set share_embeddings=false"
            )
        if self.encoder.embedding != self.decoder.embedding:
            own, others = (
                f"{name}.{'hidden' if isinstance(part, Layers) else 'embedding'} ({part.embedding})"
                for name, part in (("encoder", self.encoder), ("decoder", self.decoder))
            )
            raise ValueError(f"share_embeddings needs {own} to equal {others}: set both, or share_embeddings=false")

    def _pooling_fits(self) -> None:
        """Refuse what cannot work with the start token's state, or where every token has a latent of its own."""
        recurrent = self.encoder if isinstance(self.encoder, RecurrentEncoder) else None
        starts = isinstance(self.pooling, SimplePooling) and self.pooling.kind == "start"
        if starts and recurrent is not None and recurrent.start_last:
            raise ValueError(
                f"pooling 'start' takes the start token's state before the words, and encoder {recurrent.kind!r} with "
                "start_last reads it after them: set encoder.start_last=false, or pooling.kind=last"
            )
        if starts and recurrent is not None and not recurrent.bidirectional:
            raise ValueError(
                f"pooling 'start' takes the start token's state, and encoder {recurrent.kind!r} has read nothing else "
                "by then: set encoder.bidirectional=true, or pooling.kind=last"
            )
        if not self.is_token_level:
            return
        for option in ("reverse_input", "start_last"):
            if recurrent is not None and getattr(recurrent, option):
                raise ValueError(
                    f"pooling 'none' gives every token a code in its place, and encoder {recurrent.kind!r} with "
                    f"{option} reads them in another order: set encoder.{option}=false"
                )
        if not isinstance(self.decoder, TransformerDecoder):
            raise ValueError(
                f"pooling 'none' gives every token a code, and decoder {self.decoder.kind!r} reads one for the whole "
                "sentence: set decoder.kind=transformer, or another pooling"
            )
        if isinstance(self.posterior, ImplicitPosterior):
            raise ValueError(
                "posterior 'implicit' makes codes of sentences, and pooling 'none' wants them of tokens: use posterior "
                "'gaussian', or another pooling"
            )
        if isinstance(self.prior, PseudoInputPrior):
            raise ValueError(
                "prior 'pseudo-inputs' is one of sentences' codes, and pooling 'none' has those of tokens: use prior "
                "'standard-normal', or another pooling"
            )
        if self.objective.kind in ("wae", "dual-kl"):
            raise ValueError(
                f"objective {self.objective.kind!r} compares codes of sentences with the prior, and pooling 'none' has "
                "those of tokens: use objective 'elbo', 'iwae', 'mim' or 'reconstruction'"
            )

    def but(self, changes: dict[str, Any]) -> Recipe:
        """This recipe with some fields changed, named by their path.

        Changing a part's `kind` keeps the options that the new kind has too.

        >>> recipe = Recipe().but({"latent.dim": 64, "encoder.kind": "gru"})
        >>> recipe.latent.dim, recipe.encoder.kind
        (64, 'gru')
        >>> Recipe().but({"latent.dmi": 64})
        Traceback (most recent call last):
        textspace.errors.TextspaceError: recipe has no option 'latent.dmi'; did you mean 'latent.dim'?
        """
        return Recipe.parse(settings.changed(self, changes))

    def with_settings(self, written: str | Iterable[str]) -> Recipe:
        """This recipe with settings written `path=value`, the value in JSON or plain text.

        >>> Recipe().with_settings(["training.plateau=public-code"]).training.plateau.patience
        5
        """
        return self.but(settings.parsed(written))

    @classmethod
    def parse(cls, data: Any) -> Recipe:
        """A recipe from plain data; a mistake is one sentence that names the option."""
        if isinstance(data, dict) and isinstance(written := data.get("format"), int) and written > FORMAT:
            raise TextspaceError(
                f"the recipe has format {written} and this version of textspace reads up to {FORMAT}: update textspace"
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise TextspaceError(settings.sentence(error, cls)) from None

    @classmethod
    def from_json(cls, text: str, name: str = "the recipe") -> Recipe:
        """`name` is what to call it where it cannot be read."""
        try:
            data = parse_json(text)
        except ValueError as error:
            raise TextspaceError(f"{name} is not JSON: {error}") from None
        return cls.parse(data)

    @classmethod
    def load(cls, path: Path | str) -> Recipe:
        try:
            text = read_text(Path(path), from_pipe=True)
        except FileNotFoundError:
            raise TextspaceError(f"there is no recipe {str(path)!r}: check the path") from None
        except (OSError, ValueError) as error:
            raise TextspaceError(f"cannot read the recipe {str(path)!r}: {error}") from None
        return cls.from_json(text, f"the recipe {str(path)!r}")

    def to_json(self) -> str:
        return self.model_dump_json(indent=2) + "\n"
