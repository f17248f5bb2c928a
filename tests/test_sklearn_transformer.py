"""The scikit-learn transformer: its conventions, and a pipeline end to end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from helpers import small, tiny_sentences
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_checks as checks
from sklearn.utils import get_tags

from textspace import TextspaceError, TextspaceTransformer
from textspace.recipes import RECIPES

AE = small(RECIPES["ae"])
SENTENCES = tiny_sentences(60)


def made(**parameters: Any) -> TextspaceTransformer:
    return TextspaceTransformer(**{"recipe": AE, "epochs": 1, "device": "cpu"} | parameters)


@pytest.fixture(scope="module")
def fitted(_own_cache: None) -> TextspaceTransformer:
    return made().fit(SENTENCES)


# scikit-learn's own checks


class OfNumbers(TextspaceTransformer):
    """Reads each row of numbers as a sentence, since scikit-learn's checks know no text."""

    def fit(self, X: Any, y: Any = None) -> TextspaceTransformer:
        return super().fit(_written(X), y)

    def transform(self, X: Any) -> Any:
        return super().transform(_written(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def _written(X: Any) -> Any:
    """A sentence per row; of a data frame a column with its index."""
    texts = [" ".join(f"{'abcdefghij'[place % 10]}{n:.0f}" for place, n in enumerate(row)) for row in np.asarray(X)]
    return type(X.iloc[:, 0])(texts, index=X.index) if hasattr(X, "iloc") else texts


WITHOUT_FIT = [
    checks.check_do_not_raise_errors_in_init_or_set_params,
    checks.check_estimator_cloneable,
    checks.check_estimator_repr,
    checks.check_estimator_tags_renamed,
    checks.check_get_feature_names_out_error,
    checks.check_get_params_invariance,
    checks.check_mixin_order,
    checks.check_no_attributes_set_in_init,
    checks.check_parameters_default_constructible,
    checks.check_set_params,
    checks.check_transformers_unfitted,
    checks.check_valid_tag_types,
]
# Left out are checks of what text does not have: a number of features that transform must meet again, dtypes, NaN,
# sparse and complex numbers, sample weights.
WITH_FIT = [
    checks.check_dict_unchanged,
    checks.check_dont_overwrite_parameters,
    checks.check_estimators_fit_returns_self,
    checks.check_estimators_overwrite_params,
    checks.check_estimators_pickle,
    checks.check_fit_check_is_fitted,
    checks.check_fit_idempotent,
    checks.check_fit_score_takes_y,
    checks.check_methods_sample_order_invariance,
    checks.check_methods_subset_invariance,
    checks.check_pipeline_consistency,
    checks.check_set_output_transform,
    checks.check_set_output_transform_pandas,
]


@pytest.mark.parametrize("check", WITHOUT_FIT)
def test_convention(check: Any) -> None:
    check("TextspaceTransformer", made())


@pytest.mark.parametrize("check", WITH_FIT)
def test_convention_of_fit(check: Any) -> None:
    check("OfNumbers", OfNumbers(AE, epochs=1, device="cpu"))


def test_tags_say_text() -> None:
    tags = get_tags(made())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.requires_fit


# What it gives


def test_codes_and_sentences(fitted: TextspaceTransformer) -> None:
    codes_NZ = fitted.transform(SENTENCES[:5])
    assert codes_NZ.dtype == np.float32
    np.testing.assert_array_equal(codes_NZ, fitted.space_.encode(SENTENCES[:5]))
    texts = fitted.inverse_transform(codes_NZ)
    assert texts.shape == (5,)
    assert texts.tolist() == fitted.space_.decode(codes_NZ)
    assert fitted.get_feature_names_out().tolist() == ["z0", "z1", "z2", "z3"]
    assert fitted.transform([]).shape == (0, 4)
    assert fitted.transform([""]).shape == (1, 4)
    assert fitted.inverse_transform(codes_NZ[:0]).shape == (0,)


def test_kinds_of_input(fitted: TextspaceTransformer) -> None:
    pandas = pytest.importorskip("pandas")
    expected = fitted.transform(SENTENCES)
    array, series = np.array(SENTENCES), pandas.Series(SENTENCES)
    for given in (tuple(SENTENCES), array, array.astype(object), series, iter(SENTENCES)):
        np.testing.assert_array_equal(fitted.transform(given), expected)
    for given in (array, series, iter(SENTENCES)):
        np.testing.assert_array_equal(made().fit_transform(given), expected)


def test_frames(fitted: TextspaceTransformer) -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(SENTENCES[:3], index=[7, 8, 9])
    frame = clone(fitted).fit(SENTENCES).set_output(transform="pandas").transform(series)
    assert list(frame.columns) == ["z0", "z1", "z2", "z3"]
    assert list(frame.index) == [7, 8, 9]
    assert fitted.inverse_transform(frame).shape == (3,)


def test_random_state(fitted: TextspaceTransformer) -> None:
    def codes(random_state: Any) -> Any:
        return made(random_state=random_state).fit_transform(SENTENCES)

    np.testing.assert_array_equal(codes(np.int64(0)), fitted.transform(SENTENCES))
    np.testing.assert_array_equal(codes(np.random.RandomState(3)), codes(np.random.RandomState(3)))
    assert not np.array_equal(codes(1), codes(0))
    assert not np.array_equal(codes(None), codes(None))


def test_clone(fitted: TextspaceTransformer) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "space_")
    np.testing.assert_array_equal(copy.fit_transform(SENTENCES), fitted.transform(SENTENCES))


@pytest.mark.parametrize("settings", ["latent.dim=3", ("latent.dim=3",), ["latent.dim=3"]])
def test_settings(settings: Any) -> None:
    assert made(settings=settings).fit_transform(SENTENCES).shape == (60, 3)


# Pipelines


@pytest.fixture(scope="module")
def labelled() -> tuple[list[str], list[str]]:
    """Who a sentence is about, by its first word."""
    chance = random.Random(1)
    names = {"anna": "woman", "dora": "woman", "bob": "man", "carl": "man"}
    chosen = chance.choices(list(names), k=300)
    texts = [f"{name} {chance.choice(['sees', 'likes'])} {chance.choice(['cats', 'dogs'])}" for name in chosen]
    return texts, [names[name] for name in chosen]


def test_pipeline(labelled: tuple[list[str], list[str]]) -> None:
    texts, labels = labelled
    train_texts, test_texts, train_labels, test_labels = train_test_split(texts, labels, random_state=0)
    sizes = {f"{part}.{option}": 64 for part in ("encoder", "decoder") for option in ("embedding", "hidden")}
    settings = ("latent.dim=8", "training.optimizer.lr=0.01", "decoder.input_dropout=0", "training.plateau=null")
    space = made(recipe=small(RECIPES["default"]).but(sizes), settings=settings, epochs=30)
    pipeline = Pipeline([("space", space), ("classify", LogisticRegression())]).fit(train_texts, train_labels)
    assert pipeline.score(test_texts, test_labels) > 0.8  # chance gives about 0.5
    assert set(pipeline.predict(["anna sees cats", "carl likes dogs"])) <= {"woman", "man"}
    assert pipeline[:-1].get_feature_names_out().tolist() == [f"z{i}" for i in range(8)]


def test_grid_search(labelled: tuple[list[str], list[str]]) -> None:
    pipeline = Pipeline([("space", made()), ("classify", LogisticRegression())])
    grid = {"space__settings": [("latent.dim=2",), ("latent.dim=4",)]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(*labelled)
    assert search.best_params_["space__settings"] in grid["space__settings"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# Mistakes


def test_not_fitted() -> None:
    for method in ("transform", "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(made(), method)([])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("anna sees cats", "X is one string"),
        (b"anna sees cats", "X is one string"),
        (None, "X is of type NoneType"),
        ({"text": SENTENCES}, "X is of type dict"),
        (np.array(SENTENCES)[:, None], r"X has shape \(60, 1\): give one column"),
        (np.array("anna"), r"X has shape \(\)"),
        (["anna", 3], "sentence 2 is of type int"),
        (["anna", float("nan")], "sentence 2 is of type float"),
    ],
)
def test_what_is_no_list_of_sentences(fitted: TextspaceTransformer, given: Any, told: str) -> None:
    for method in (made().fit, fitted.transform):
        with pytest.raises(TextspaceError, match=told):
            method(given)


def test_a_frame_is_refused(fitted: TextspaceTransformer) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TextspaceError, match="one column of sentences"):
        fitted.transform(pandas.DataFrame({"text": SENTENCES}))


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"recipe": "vea"}, "did you mean 'vae'"),
        ({"recipe": 3}, "recipe is of type int"),
        ({"recipe": "lstm-lm"}, "'lstm-lm' is a language model"),
        ({"settings": ["latent.dmi=3"]}, "did you mean 'latent.dim'"),
        ({"settings": None}, "settings are of type NoneType: give strings like 'latent.dim=64'"),
        ({"settings": [4]}, "setting 4 is of type int"),
        ({"epochs": 0}, "training.epochs is 0"),
        ({"random_state": -1}, "-1"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(TextspaceError, match=told):
        made(**parameters).fit(SENTENCES)


def test_wrong_random_state() -> None:
    with pytest.raises(ValueError, match="cannot be used to seed"):
        made(random_state="chance").fit(SENTENCES)


def test_nothing_to_fit() -> None:
    with pytest.raises(TextspaceError, match="at least one sentence"):
        made().fit([])


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        (np.zeros((2, 5)), "have 4 dimensions"),
        (np.zeros(4), "X is one code"),
        ([[0, 0, 0, np.nan]], "not finite"),
        ([["anna", "sees", "cats", "."]], "these are not codes"),
    ],
)
def test_what_are_no_codes(fitted: TextspaceTransformer, codes: Any, told: str) -> None:
    with pytest.raises(TextspaceError, match=told):
        fitted.inverse_transform(codes)
