"""Every table by name: a module for each paper, in the order in which they are best run."""

from __future__ import annotations

from textspace.errors import TextspaceError, nearest
from textspace.reproduce.table import Table
from textspace.reproduce.tables import free_bits, mutual_information, pooling, sparse, tiny, tokens

__all__ = ["TABLES", "table"]

TABLES: dict[str, Table] = {
    each.name: each
    for each in (
        free_bits.PTB,
        free_bits.PTB_COMBINED,
        mutual_information.PTB,
        free_bits.YAHOO,
        pooling.YAHOO,
        pooling.YELP,
        pooling.YELP_IN_SPACE,
        free_bits.YELP,
        free_bits.YELP_COMBINED,
        free_bits.CAPTIONS,
        sparse.DBPEDIA,
        tokens.ENGLISH,
        mutual_information.RANKING,
        tiny.TINY,
    )
}


def table(name: str) -> Table:
    """
    >>> table("ptb-remedys")
    Traceback (most recent call last):
    textspace.errors.TextspaceError: there is no table 'ptb-remedys'; did you mean 'ptb-remedies'?
    """
    if name not in TABLES:
        raise TextspaceError(f"there is no table {name!r}; {nearest(name, TABLES)}")
    return TABLES[name]
