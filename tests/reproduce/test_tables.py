"""Tables as they are written: numbers copied without slips, rows that can be trained, columns that are measured."""

import json
import math
from collections.abc import Iterator

import pytest

from textspace.errors import TextspaceError
from textspace.evaluate.registry import measures
from textspace.reproduce.table import Table
from textspace.reproduce.tables import TABLES, table

WORDS = {"ptb-remedies": 21.92, "yahoo-remedies": 79.86, "captions-text": 10.755}
"""Words and end tokens of a sentence, which the papers' NLL and perplexity imply."""


@pytest.fixture(params=TABLES)
def each(request: pytest.FixtureRequest) -> Table:
    return TABLES[request.param]


def numbers(name: str, *keys: str) -> Iterator[tuple[str, list[float]]]:
    for row in table(name).rows:
        if all(key in row.paper for key in keys):
            yield row.name, [row.paper[key] for key in keys]


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("kind", ["nll", "elbo"])
def test_the_papers_perplexities_are_those_of_its_nats(name: str, kind: str) -> None:
    key = {"nll": "nll", "elbo": "elbo"}[kind]
    rows = list(numbers(name, key, f"{key}_ppl_word"))
    assert len(rows) > 5
    for row, (nats, perplexity) in rows:
        # both are rounded: 0.005 nats move the perplexity by 0.005 / words of itself
        assert perplexity == pytest.approx(math.exp(nats / WORDS[name]), rel=0.002), row


@pytest.mark.parametrize("name", WORDS)
def test_the_papers_bounds_are_reconstruction_and_kl(name: str) -> None:
    rows = list(numbers(name, "elbo", "reconstruction", "kl"))
    assert len(rows) > 5
    for row, (elbo, reconstruction, kl) in rows:
        assert elbo == pytest.approx(reconstruction + kl, abs=0.06), row


def test_nats_per_token_are_those_of_the_papers_nll() -> None:
    for row, (per_token, total) in numbers("ptb-mim", "melbo.reconstruction_per_token", "melbo.melbo"):
        assert per_token == pytest.approx((total - math.log(3761)) / 21.71, abs=0.01), row


def test_the_papers_melbo_perplexities_count_the_end_in_the_divisor() -> None:
    """22.70 tokens a sentence: 21.71 words and the end."""
    rows = list(numbers("ptb-mim", "melbo.melbo@22.70", "melbo.melbo"))
    assert len(rows) == 9
    for row, (perplexity, total) in rows:
        assert perplexity == pytest.approx(math.exp(total / 22.70), rel=0.003), row


def test_the_papers_bleu_is_above_that_of_its_code_by_what_a_matching_end_adds() -> None:
    for row, (paper, public) in numbers("ptb-mim", "sampled_copies.bleu1_paper", "sampled_copies.bleu1_public"):
        assert 0.034 < paper - public < 0.064, row


def test_shuffling_costs_the_difference_of_the_papers_likelihoods() -> None:
    keys = ("nll", "shuffled_input.nll_shuffled", "shuffled_input.shuffling_costs")
    rows = list(numbers("yahoo-pooling", *keys))
    assert len(rows) == 4
    for row, (plain, shuffled, costs) in rows:
        assert costs == pytest.approx(shuffled - plain, abs=0.01), row


def test_every_row_has_a_recipe_with_its_seed_and_length(each: Table) -> None:
    for row in each.trained.values():
        made = each.recipe_of(row, seed=3, epochs=2)
        assert (made.training.seed, made.training.epochs) == (3, 2)
        assert each.recipe_of(row, seed=0).training.epochs <= (each.epochs or math.inf)


def test_every_column_is_measured_and_every_number_of_the_paper_has_a_column(each: Table) -> None:
    measured = {*each.measures, *(name for row in each.trained.values() for name in row.measures)}
    assert measured <= set(measures())
    for column in each.columns:
        for key in filter(None, (column.key, column.otherwise)):
            assert "." not in key or key.split(".")[0] in measured
    keys = {column.key for column in each.columns}
    assert all(keys.issuperset(row.paper) for row in each.rows)
    names = [row.name for row in each.rows]
    assert len(set(names)) == len(names)
    assert each.reference is None or each.reference in each.trained


def test_a_table_survives_its_file(each: Table) -> None:
    assert Table.from_dict(json.loads(json.dumps(each.to_dict()))) == each


def test_a_row_that_is_only_quoted_cannot_be_asked_for() -> None:
    with pytest.raises(TextspaceError, match="tiny has no row 'truth' to train"):
        table("tiny").chosen(["truth"])
