"""Sentences to vectors in every way that tasks on sentences are measured with: by a space, and by encoders of others.

Shape suffixes here: N sentences, B those of a batch, Z dimensions of a vector.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textspace.config import PretrainedEncoder as PretrainedEncoderConfig
from textspace.config import SimplePooling as SimplePoolingConfig
from textspace.data.batching import batches_by_length, make_batch
from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import UNKNOWN
from textspace.encoders import PretrainedEncoder, States
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures.classifiers import Settings
from textspace.evaluate.measures.tasks import AS_IN_THE_FILE, Spelling, best_spelling
from textspace.model import Model
from textspace.noise import Noise
from textspace.pooling import SimplePooling
from textspace.pretrained import EncoderFiles
from textspace.types import Estimate, View

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = [
    "POOLINGS",
    "Baseline",
    "BaselineEncoder",
    "CodeNetwork",
    "Input",
    "SentenceEncoder",
    "SpaceEncoder",
    "TaskCodes",
    "Writing",
    "encoders_of",
    "put",
]

Floats = NDArray[np.float64]

Input = str | tuple[str, str]
"""What an encoder reads at once: a sentence, or two of them joined."""

POOLINGS = ("mean", "start", "sum")
"""How vectors of tokens become one of the sentence; the first is the headline."""

SEPARATORS = (";", "|", ".", ",")
"""Between two sentences in one text: the first that a space knows, most of them seen in training."""
SEPARATORS_OF_OTHERS = ("[SEP]", "</s>", *SEPARATORS)
"""Likewise for encoders of Hugging Face, whose special tokens can be written in a text."""


# Encoders


class CodeNetwork(nn.Module, ABC):
    """A batch of sentences to their vectors, (B, Z), with gradients.

    Args:
        size: dimensions of a vector.
        pooling: of the vectors of tokens; None where there is one vector for each sentence.
    """

    def __init__(self, size: int, pooling: str | None) -> None:
        super().__init__()
        self.size = size
        config = None if pooling is None else SimplePoolingConfig.model_validate({"kind": pooling})
        self.pool = None if config is None else SimplePooling(config, size)

    @abstractmethod
    def vectors(self, view: View, noise: Noise) -> Tensor:
        """Of sentences, (B, Z), or of tokens, (B, T, Z)."""

    def forward(self, view: View, noise: Noise) -> Tensor:
        found = self.vectors(view, noise)
        return found if self.pool is None else self.pool(States(found, found[:, 0], view.mask_BT))


class SentenceEncoder(ABC):
    """One way to make a vector of a sentence.

    Attributes:
        suffix: of the keys of its numbers; none where a space has one code for each sentence.
        title: in a table.
        codes: what the vectors are, in names of numbers.
        is_headline: whether its numbers are the space's, where there are several.
    """

    suffix: str
    title: str
    codes: str
    is_headline: bool = False

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Floats:
        """(N, Z)."""

    @abstractmethod
    def split(self, texts: Sequence[str]) -> EncodedSplit:
        """The tokens of sentences, for `network`."""

    @abstractmethod
    def network(self) -> CodeNetwork:
        """A copy to train, on the same device; before that its vectors are those of `encode`."""

    @abstractmethod
    def spelling(self, texts: Sequence[str]) -> Spelling:
        """How sentences are spelled for it."""

    @property
    @abstractmethod
    def separator(self) -> str:
        """Between two sentences in one text."""

    def writing(self, inputs: Iterable[Input]) -> Writing:
        """How the inputs of a task are written for it; no score or label is looked at."""
        texts = (text for each in inputs for text in ((each,) if isinstance(each, str) else each))
        return Writing(self.spelling(list(dict.fromkeys(texts))), self.separator)


class SpaceEncoder(SentenceEncoder):
    """A space's mean codes; those of its tokens pooled, where tokens have codes."""

    def __init__(self, space: Space, pooling: str | None = None) -> None:
        self.space, self.pooling = space, pooling
        self.is_headline = pooling in (None, POOLINGS[0])
        self.suffix = "" if pooling is None else f"_{pooling}"
        self.title = "space" if pooling is None else f"space, {pooling}"
        named = {"mean": "token codes averaged", "start": "codes of the start token", "sum": "token codes summed"}
        self.codes = "mean codes" if pooling is None else named[pooling]

    def encode(self, texts: Sequence[str]) -> Floats:
        how: dict[str, Any] = {} if self.pooling is None else {"pool": self.pooling}
        return self.space.encode(list(texts), **how).astype(np.float64)

    def split(self, texts: Sequence[str]) -> EncodedSplit:
        text = self.space.recipe.text
        return EncodedSplit.of(list(map(self.space.normalise, texts)), self.space.tokenizer, text.max_tokens)

    def network(self) -> CodeNetwork:
        return _SpaceNetwork(copy.deepcopy(self.space.model), self.pooling)

    def spelling(self, texts: Sequence[str]) -> Spelling:
        return best_spelling(self.space, texts)

    @property
    def separator(self) -> str:
        return _first_known(SEPARATORS, self._knows)

    def _knows(self, text: str) -> bool:
        ids = self.split([text]).ids(0)
        return len(ids) > 0 and UNKNOWN not in ids


class _SpaceNetwork(CodeNetwork):
    """The posterior's means of a model of its own, all of whose encoder can be trained."""

    def __init__(self, model: Model, pooling: str | None) -> None:
        super().__init__(model.recipe.latent.dim, pooling)
        self.model = model
        if isinstance(model.encoder, PretrainedEncoder):
            model.encoder.config = model.encoder.config.model_copy(update={"frozen": False})
            model.encoder.requires_grad_(True)

    def vectors(self, view: View, noise: Noise) -> Tensor:
        return self.model.code_moments(self.model.features(view, noise), noise)[0]


class Baseline:
    """An encoder of Hugging Face as it came from its makers.

    Args:
        model: a folder, or the name of a model of the hub.
        space: it is compared with; only the device is taken from it, and what batches need beside.
    """

    def __init__(self, model: str, space: Space) -> None:
        config = PretrainedEncoderConfig(model=model)
        self.space = space
        self.name = Path(model).name or model
        self.files = EncoderFiles.fetch(config)
        self.encoder = PretrainedEncoder(config).to(space.device).eval()
        self._last: tuple[list[str], dict[str, Floats]] = ([], {})

    def split(self, texts: Sequence[str]) -> EncodedSplit:
        return EncodedSplit.of(list(texts), self.space.tokenizer.with_encoder(self.files), None)

    @torch.no_grad()
    def pooled(self, texts: Sequence[str]) -> dict[str, Floats]:
        """The vectors of sentences by each pooling; kept until others are asked for, since one pass makes them all."""
        if self._last[0] != list(texts):
            split = self.split(texts)
            networks = {pooling: _BaselineNetwork(self.encoder, pooling) for pooling in POOLINGS}
            found = {pooling: np.zeros((len(split), self.encoder.size)) for pooling in POOLINGS}
            for rows_B in batches_by_length(split.lengths, tokens=2**14):
                states = self.encoder(make_batch(split, rows_B).encoder.to(self.space.device))
                for pooling, network in networks.items():
                    found[pooling][rows_B] = network.pool(states).double().cpu().numpy()  # type: ignore[misc]
            self._last = list(texts), found
        return self._last[1]


class BaselineEncoder(SentenceEncoder):
    """The last layer's states of an encoder of Hugging Face, its special tokens' included, pooled.

    It reads texts as they are in the file.
    """

    def __init__(self, baseline: Baseline, pooling: str) -> None:
        self.baseline, self.pooling = baseline, pooling
        name = baseline.name
        self.suffix = f"_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}_{pooling}"
        self.title = f"{name}, {pooling}"
        named = {"mean": "averaged states", "start": "start states", "sum": "summed states"}
        self.codes = f"{named[pooling]} of {name}"

    def encode(self, texts: Sequence[str]) -> Floats:
        return self.baseline.pooled(texts)[self.pooling]

    def split(self, texts: Sequence[str]) -> EncodedSplit:
        return self.baseline.split(texts)

    def network(self) -> CodeNetwork:
        return _BaselineNetwork(copy.deepcopy(self.baseline.encoder), self.pooling)

    def spelling(self, texts: Sequence[str]) -> Spelling:
        return Spelling(AS_IN_THE_FILE, None)

    @property
    def separator(self) -> str:
        return _first_known(SEPARATORS_OF_OTHERS, self.baseline.files.knows)


class _BaselineNetwork(CodeNetwork):
    def __init__(self, encoder: PretrainedEncoder, pooling: str) -> None:
        super().__init__(encoder.size, pooling)
        self.encoder = encoder

    def vectors(self, view: View, noise: Noise) -> Tensor:
        return self.encoder(view, noise).all_BTH


def encoders_of(subject: Subject) -> list[SentenceEncoder]:
    """Every way to make vectors of sentences that a subject is measured with, its baselines' last."""
    if "sentence encoders" not in subject.kept:
        space = subject.space
        poolings = POOLINGS if space.recipe.is_token_level else (None,)
        found: list[SentenceEncoder] = [SpaceEncoder(space, pooling) for pooling in poolings]
        for model in subject.baselines:
            baseline = Baseline(model, space)
            found += [BaselineEncoder(baseline, pooling) for pooling in POOLINGS]
        suffixes = [each.suffix for each in found]
        for each in found:
            if suffixes.count(each.suffix) > 1:
                raise TextspaceError(f"two baselines are called {each.title.partition(',')[0]!r}: rename a folder")
        subject.kept["sentence encoders"] = found
    return subject.kept["sentence encoders"]


def put(estimates: dict[str, Estimate], key: str, encoder: SentenceEncoder, estimate: Estimate) -> None:
    """Name an estimate by its key and the encoder's suffix; that of the headline has the bare key too."""
    estimates[key + encoder.suffix] = estimate
    if encoder.is_headline:
        estimates[key] = estimate


# What they read


@dataclass(frozen=True)
class Writing:
    """How the inputs of a task are written: in a spelling, and two sentences with a separator between them."""

    spelling: Spelling
    separator: str

    def __call__(self, given: Input) -> str:
        """
        >>> Writing(Spelling("lower case", 0.0), ";")(("A dog", "A cat"))
        'a dog ; a cat'
        """
        texts = (given,) if isinstance(given, str) else given
        return f" {self.separator} ".join(map(self.spelling, texts))

    @property
    def settings(self) -> Settings:
        return self.spelling.settings


def _first_known(candidates: Sequence[str], known: Callable[[str], bool]) -> str:
    """The first candidate that is known; the first of all, an unknown word, where none is."""
    return next(filter(known, candidates), candidates[0])


@dataclass(frozen=True)
class TaskCodes:
    """The vectors that an encoder makes of the inputs of a task."""

    writing: Writing
    row_of: dict[Input, int]
    codes_NZ: Floats

    @classmethod
    def of(cls, encoder: SentenceEncoder, inputs: Iterable[Input]) -> TaskCodes:
        """Encode the inputs that will be asked for."""
        unique = list(dict.fromkeys(inputs))
        writing = encoder.writing(unique)
        codes_NZ = encoder.encode(list(map(writing, unique)))
        return cls(writing, {each: row for row, each in enumerate(unique)}, codes_NZ)

    def codes(self, inputs: Sequence[Input]) -> Floats:
        """Of some of the inputs, in their order."""
        return self.codes_NZ[[self.row_of[each] for each in inputs]]
