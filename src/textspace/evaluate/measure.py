"""What a measure may read, and what it gives: the words that all measures, suites and reports share.

A measure is a function from a `Subject` to `Findings`. Findings are plain data (numbers with their names, tables, and
the data of pictures), so that they can be kept as JSON and drawn later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.evaluate.likelihood import Likelihood, lengths_for, likelihood
from textspace.noise import seed_of
from textspace.token_losses import Precision
from textspace.types import EndToken, Estimate

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = [
    "PERTURBATION",
    "Cells",
    "CodeKind",
    "Effort",
    "Findings",
    "Measure",
    "Need",
    "Picture",
    "Sentences",
    "Subject",
    "Suite",
    "Table",
]

PERTURBATION = 10.0
"""Posterior deviations of a perturbed code [Livne et al. 2020]."""

Floats = NDArray[np.float64]
Cells = tuple[str | float | None, ...]
"""A row of a table."""
Suite = Literal["quick", "standard", "full"]
CodeKind = Literal["mean", "sample", "perturbed"]
Need = Literal[
    "codes",
    "token_codes",
    "sentence_codes",
    "density",
    "gates",
    "labels",
    "train",
    "own_train",
    "valid",
    "builtin",
    "files",
]
"""What a measure cannot do without: a latent, one of every token or one of a whole sentence, a posterior with a
density, dimensions that can be off, labels, a training split (the one the space was trained on) or a validation split,
the built-in corpus (whose truth is known), or files of a task."""


@dataclass(frozen=True)
class Effort:
    """How much work measures may spend; each suite has its own."""

    importance_samples: int = 500
    sentences: int = 10_000
    """Test sentences at most, drawn at random; the report says how many there were."""
    decoded: int = 2_000
    """Sentences that are decoded at most."""
    pairs: int = 100_000
    prior_samples: int = 1_000
    repeats: int = 5
    """Draws of labels, or of initial weights, over which a spread is taken."""
    language_model_epochs: int = 10
    precision: Precision = "float32"
    """Of the products of matrices behind importance-weighted likelihoods; tf32 and bf16 are faster on a GPU."""


@dataclass
class Sentences:
    """Sentences of one split, and what a space makes of them, computed when first asked for."""

    name: str
    texts: list[str]
    labels: list[str] | None
    split: EncodedSplit
    space: Space
    seed: int
    sources: list[str] | None = None
    """Name of the source of each sentence; None where that is not known."""
    precision: Precision = "float32"
    """Of likelihoods."""
    whole: EncodedSplit | None = None
    """The split of which these are some; None where they are all of it."""

    def __len__(self) -> int:
        return len(self.texts)

    def all_texts(self) -> Iterator[str]:
        """Every sentence of the split, also those that are not measured on: in training all of them were met."""
        return iter(self.texts) if self.whole is None else map(self.whole.text, range(len(self.whole)))

    @property
    def how_many(self) -> str:
        """In words, with the size of the split where these are some of it."""
        return f"{len(self):,}" if self.whole is None else f"{len(self):,} of {len(self.whole):,}"

    @cached_property
    def words(self) -> list[list[str]]:
        """The whitespace words of each sentence, as the tokenizer saw it (normalised)."""
        return [text.split() for text in self.texts]

    @cached_property
    def coder(self) -> Space:
        """What encodes the sentences as they are, since they are normalised."""
        return self.space.of_normalised()

    @property
    def _pool(self) -> dict[str, Any]:
        """Where every token has a code, that of the sentence is their mean in all measures of one code a sentence."""
        return {"pool": "mean"} if self.space.model.is_token_level else {}

    @cached_property
    def _parameters(self) -> tuple[Floats, Floats]:
        means, deviations = self.coder.encode(self.texts, what="parameters", **self._pool)
        return means.astype(np.float64), deviations.astype(np.float64)

    @property
    def means_NZ(self) -> Floats:
        """Posterior means."""
        return self._parameters[0]

    @property
    def deviations_NZ(self) -> Floats:
        """Posterior standard deviations."""
        return self._parameters[1]

    def codes(self, kind: CodeKind, rows_N: NDArray[np.int64] | Sequence[int]) -> Any:
        """Codes of some sentences to decode: a matrix, or a list of matrices where every token has a code."""
        if not self.space.model.is_token_level:
            whole = {"mean": "means_NZ", "sample": "samples_NZ", "perturbed": "perturbed_NZ"}[kind]
            return getattr(self, whole)[rows_N]
        if kind not in self._token_codes:
            self._token_codes[kind] = self._encoded(kind)
        return [self._token_codes[kind][row] for row in rows_N]

    @cached_property
    def _token_codes(self) -> dict[CodeKind, list[NDArray[np.float32]]]:
        return {}

    def _encoded(self, kind: CodeKind, **more: Any) -> Any:
        """Noise is keyed by the seed and the sentence's position; perturbed codes do not have the samples'."""
        if kind == "mean":
            return self.coder.encode(self.texts, **more)
        strength, seed = (PERTURBATION, seed_of(self.seed, "perturbed")) if kind == "perturbed" else (None, self.seed)
        return self.coder.encode(self.texts, what="sample", strength=strength, seed=seed, **more)

    def likelihood(self, samples: int, end_token: EndToken = "included", progress: bool = False) -> Likelihood:
        """Every sentence's likelihood with so many importance samples, computed once for all measures."""
        key = (samples, end_token)
        if key not in self._likelihoods:
            self._likelihoods[key] = likelihood(
                self.space.model,
                self.split,
                samples=samples,
                end_token=end_token,
                lengths=lengths_for(end_token, self.space.metrics),
                seed=self.seed,
                precision=self.precision,
                progress=progress,
            )
        return self._likelihoods[key]

    @cached_property
    def _likelihoods(self) -> dict[tuple[int, EndToken], Likelihood]:
        return {}

    @cached_property
    def samples_NZ(self) -> Floats:
        """One posterior sample of each sentence."""
        return self._encoded("sample", **self._pool).astype(np.float64)

    def sampled(self, seed: int) -> NDArray[np.float32]:
        """The same with noise of another seed."""
        return self.coder.encode(self.texts, what="sample", seed=seed, **self._pool)

    @cached_property
    def perturbed_NZ(self) -> Floats:
        """A code of each sentence with `PERTURBATION` times the posterior's deviation."""
        return self._encoded("perturbed", **self._pool).astype(np.float64)

    @cached_property
    def gates_NZ(self) -> Floats | None:
        """How probable it is that each dimension is on, 1 - E[gamma|x]; None where none can be off."""
        if not self.space.model.has_gates:
            return None
        return self.coder.encode(self.texts, what="gates", **self._pool).astype(np.float64)

    @cached_property
    def slab_NZ(self) -> Floats | None:
        """Mean of each dimension where it is on, whose share in the posterior's mean is the gate; 0 where that is 0."""
        on_NZ = self.gates_NZ
        return None if on_NZ is None else np.divide(self.means_NZ, on_NZ, where=on_NZ > 0, out=np.zeros_like(on_NZ))

    @property
    def has_spread(self) -> bool:
        """Whether posteriors are more than points: those of an autoencoder are not."""
        return bool(self.deviations_NZ.any())


@dataclass
class Subject:
    """A space, the text it is measured on, and how hard to try."""

    space: Space
    splits: dict[str, Sentences]
    """Of "train", "valid" and "test" those that there are; "test" always."""
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    own_train: bool | None = None
    """Whether "train" is what the space was trained on; None where that is not known."""
    builtin: bool = False
    """Whether the text is the built-in corpus."""
    task_files: Path | None = None
    """Folder with the files of sentence-pair and transfer tasks."""
    baselines: tuple[str, ...] = ()
    """Encoders of Hugging Face, folders or names of the hub, that some measures put beside the space."""
    show_progress: bool = False
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What one measure made and another may need, such as a language model of the text."""

    @property
    def test(self) -> Sentences:
        return self.splits["test"]

    def encoded(self, texts: Sequence[str]) -> EncodedSplit:
        """Normalised sentences as the space's tokenizer has them."""
        return EncodedSplit.of(texts, self.space.tokenizer, self.space.recipe.text.max_tokens)


@dataclass(frozen=True)
class Table:
    """Rows under headings; cells are text or numbers.

    In a grouped table rows with the same first cell belong together, and the first of them says what they are about: a
    comparison of spaces joins their rows below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    grouped: bool = False


@dataclass(frozen=True)
class Picture:
    """The data of a picture; the report draws it.

    Args:
        kind: what it looks like. "histogram": `series` are samples, drawn together. "lines": `series` are y over `x`.
            "bars": `series` has one value for each of `ticks`. "points": `series` maps a group to flat x, y, x, y, ...
            "heat": `series` maps each row's name to its values, columns are `ticks`.
        title: one line.
        series: named lists of numbers.
        x: positions, for lines.
        x_label, y_label: axes.
        ticks: names of positions, for bars and heat.
        log_x: whether equal ratios of `x` are equally far apart, for lines.
    """

    kind: Literal["histogram", "lines", "bars", "points", "heat"]
    title: str
    series: dict[str, list[float]]
    x: list[float] | None = None
    x_label: str = ""
    y_label: str = ""
    ticks: list[str] | None = None
    log_x: bool = False


@dataclass(frozen=True)
class Findings:
    """What a measure found."""

    estimates: dict[str, Estimate] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)
    per_sentence: dict[str, list[float]] = field(default_factory=dict)
    """Values of each test sentence under the name of their estimate, where there are some: for paired differences."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Findings:
        kinds: dict[str, Callable[..., Any]] = {
            "estimates": lambda d: Estimate(**d),
            "tables": lambda d: Table(
                d["title"], tuple(d["columns"]), tuple(tuple(row) for row in d["rows"]), d.get("grouped", False)
            ),
            "pictures": lambda d: Picture(**d),
            "per_sentence": list,
        }
        parts = {f.name: {k: kinds[f.name](v) for k, v in data.get(f.name, {}).items()} for f in fields(cls)}
        return cls(**parts)


@dataclass(frozen=True)
class Measure:
    """A measure by name.

    Args:
        run: does it.
        about: what it tells, in one sentence.
        needs: what it cannot do without; a report says so where something is missing.
        suites: those it is part of.
        has_baselines: whether it measures the subject's baselines too.
    """

    run: Callable[[Subject], Findings]
    about: str
    needs: tuple[Need, ...] = ()
    suites: Sequence[Suite] = ("standard", "full")
    has_baselines: bool = False
