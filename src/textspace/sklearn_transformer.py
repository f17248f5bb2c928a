"""A latent space of text as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from textspace.config import Recipe
from textspace.data.options import ReadOptions
from textspace.errors import TextspaceError
from textspace.space import Space, recipe_with
from textspace.token_codes import Pool

__all__ = ["TextspaceTransformer"]


class TextspaceTransformer(TransformerMixin, BaseEstimator):
    """Sentences to codes and back, for pipelines.

    Sentences come as an iterable of strings with one dimension: a list, a numpy array, a column of a data frame.

    Args:
        recipe: a recipe or the name of one.
        settings: changes to the recipe, like ("latent.dim=16",).
        epochs: at most so many; by default the recipe's.
        random_state: of all randomness in `fit`, whatever the recipe's own seed; an int is used as the seed itself.
        device: "cpu" or "cuda"; by default the GPU where there is one.
        batch_size: sentences encoded or decoded at once; by default as many as fit.
        verbose: show how training, encoding and decoding go.

    Attributes:
        space_: the trained `Space`, for all that scikit-learn has no word for.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> texts, labels = ["anna sees cats", "bob sees dogs", "carl likes cats"] * 30, ["purr", "bark", "purr"] * 30
    >>> pipeline = make_pipeline(TextspaceTransformer("vae", epochs=1), LogisticRegression()).fit(texts, labels)
    >>> pipeline.predict(["anna likes dogs", "bob sees cats"]).shape
    (2,)
    """

    def __init__(
        self,
        recipe: Recipe | str = "default",
        *,
        settings: str | Iterable[str] = (),
        epochs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str | torch.device | None = None,
        batch_size: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.recipe = recipe
        self.settings = settings
        self.epochs = epochs
        self.random_state = random_state
        self.device = device
        self.batch_size = batch_size
        self.verbose = verbose

    def fit(self, X: Iterable[str], y: Any = None) -> TextspaceTransformer:
        """Train a space on sentences; `y` is not looked at."""
        texts = _sentences(X)
        seed = self._seed()
        self.space_ = Space.fit(
            texts,
            self._chosen_recipe(),
            epochs=self.epochs,
            seed=seed,
            options=ReadOptions(test=0, seed=seed),  # who uses scikit-learn holds out a test set before fit
            device=self.device,
            show_progress=self.verbose,
        )
        return self

    def transform(self, X: Iterable[str]) -> NDArray[np.float32]:
        """The code of every sentence: the mean of its posterior, one row each; the mean over its tokens where each has
        a code."""
        check_is_fitted(self)
        pool: Pool | None = "mean" if self.space_.is_token_level else None
        return self.space_.encode(_sentences(X), pool=pool, batch_size=self.batch_size, show_progress=self.verbose)

    def fit_transform(self, X: Iterable[str], y: Any = None) -> NDArray[np.float32]:
        """`fit`, then `transform` of the same sentences."""
        texts = list(X) if isinstance(X, Iterator) else X  # an iterator would be used up by fit
        return self.fit(texts, y).transform(texts)

    def inverse_transform(self, X: Any) -> NDArray[np.object_]:
        """The sentence of every code, decoded greedily: an array, so that masks and comparisons work as on labels."""
        check_is_fitted(self)
        if self.space_.is_token_level:
            raise TextspaceError(
                "rows of X are means over the codes of tokens, which do not decode: use encode and decode of space_, "
                "or a recipe with one code for a sentence"
            )
        texts = self.space_.decode(X, batch_size=self.batch_size, show_progress=self.verbose)
        if isinstance(texts, str):
            raise TextspaceError("X is one code: give a matrix with a code in each row")
        return np.array(texts, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The names of the dimensions: z0, z1 and so on; `input_features` is there for scikit-learn only."""
        check_is_fitted(self)
        return np.array([f"z{dimension}" for dimension in range(self.space_.dim)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []  # codes are float32
        return tags

    def _chosen_recipe(self) -> Recipe:
        chosen = recipe_with(self.recipe, self.settings)
        if chosen.encoder is None:  # said before training, not after
            raise TextspaceError(f"{chosen.name!r} is a language model and has no codes: give a recipe with an encoder")
        return chosen

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))


def _sentences(X: Any) -> list[str]:
    """The sentences of what a user gives as X, which are checked one by one where they are read."""
    if isinstance(X, str | bytes):
        raise TextspaceError("X is one string: give a list of sentences")
    shape = getattr(X, "shape", (0,))
    if len(shape) != 1:
        # A data frame gives the names of its columns when it is iterated: never train on those.
        raise TextspaceError(f"X has shape {tuple(shape)}: give one column of sentences, like X[:, 0] or frame['text']")
    if isinstance(X, Mapping) or not isinstance(X, Iterable):
        raise TextspaceError(f"X is of type {type(X).__name__}: give a list of sentences")
    return list(X)
