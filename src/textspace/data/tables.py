"""Tables: readers of .parquet files and Hugging Face datasets, which need textspace[datasets]; no data frames."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from textspace.data.cells import Row, row_of
from textspace.data.options import ReadOptions, ReadReport, choose_columns, names_of
from textspace.data.sources import SAMPLE_ROWS, Reader, reason, sentence_for_failure
from textspace.errors import TextspaceError

__all__ = ["check_iterable", "hugging_face_readers", "parquet_reader", "refuse_tables"]

_BATCH_ROWS = 1000

_Batches = Callable[[list[str]], Iterator[dict[str, list[Any]]]]  # the named columns, some rows at a time


def refuse_tables(texts: Any) -> None:
    """Refuse a data frame, which gives names of columns and not sentences; of a mapping the keys are the sentences."""
    if hasattr(texts, "columns") and hasattr(texts, "to_numpy"):
        raise TextspaceError("a data frame gives the names of its columns: give one column, such as frame['text']")


def check_iterable(texts: Any) -> None:
    """Refuse what gives no sentences one by one: a data frame, a number, nothing, or an array without axes."""
    refuse_tables(texts)
    if not isinstance(texts, Iterable) or (getattr(texts, "ndim", 1) == 0 and not isinstance(texts, str)):
        raise TextspaceError(f"sentences cannot be of type {type(texts).__name__}: give a string or a list of strings")


def _extra(module: str, source: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as problem:
        raise TextspaceError(f'reading {source!r} needs more packages: pip install "textspace[datasets]"') from problem


def parquet_reader(path: Path, options: ReadOptions) -> Reader:
    """The reader of a .parquet file."""
    parquet = _extra("pyarrow.parquet", str(path))
    with sentence_for_failure(path, _extra("pyarrow", str(path)).ArrowException):
        names = parquet.read_schema(path).names
    return _table_reader(str(path), names, partial(_parquet_batches, path), options)


def _parquet_batches(path: Path, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    parquet = _extra("pyarrow.parquet", str(path))
    with sentence_for_failure(path, _extra("pyarrow", str(path)).ArrowException), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            yield batch.to_pydict()


def _dataset_batches(dataset: Any, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    yield from dataset.select_columns(names).iter(_BATCH_ROWS)


def _table_reader(
    name: str,
    names: list[str],
    batches: _Batches,
    options: ReadOptions,
    classes: dict[str, list[str]] | None = None,
) -> Reader:
    first = next(iter(batches(names)), {})
    sample = list(islice(zip(*first.values(), strict=True), SAMPLE_ROWS))
    columns = choose_columns(names, len(names), sample, options, repr(name))
    text, label = names_of(columns, names)
    rows = partial(_table_rows, batches, text, label, (classes or {}).get(label or ""))
    return Reader(name, rows, columns.options, columns.note)


def _table_rows(
    batches: _Batches,
    text: str,
    label: str | None,
    label_names: list[str] | None,
    report: ReadReport,
) -> Iterator[Row]:
    for batch in batches([text] if label is None else list(dict.fromkeys([text, label]))):
        labels = batch[label] if label is not None else [None] * len(batch[text])
        for sentence, value in zip(batch[text], labels, strict=True):
            if label_names is not None and value is not None:  # unlabelled sentences have class -1 there
                value = label_names[value] if value >= 0 else None
            yield from row_of(sentence, value, report)


def hugging_face_readers(name: str, options: ReadOptions) -> dict[str, Reader]:
    """Readers by split name; one reader under "" for a dataset without splits.

    `name` is a folder written by `save_to_disk`, NAME, or NAME/CONFIG.
    """
    found = _load_dataset(name)
    readers: dict[str, Reader] = {}
    for split, dataset in found.items() if isinstance(found, dict) else [("", found)]:
        classes = {key: value.names for key, value in dataset.features.items() if hasattr(value, "names")}
        batches = partial(_dataset_batches, dataset)
        where = f"hf:{name}" + (f" ({split})" if split else "")
        readers[split] = _table_reader(where, dataset.column_names, batches, options, classes)
        options = readers[split].options  # the columns settled for the first hold for all
    return readers


def _load_dataset(name: str) -> Any:
    datasets = _extra("datasets", f"hf:{name}")
    if Path(name).is_dir():
        try:
            return datasets.load_from_disk(name)
        except (OSError, ValueError) as problem:
            raise TextspaceError(
                f"{name!r} was not written by save_to_disk; without 'hf:' it is read as a folder of files"
            ) from problem
    repository, _, config = name.rpartition("/")
    # NAME may itself hold a slash, so "a/b" is first a dataset and then a configuration "b" of "a".
    tries = [(name, None), (repository, config)] if repository else [(name, None)]
    failure: Exception | None = None
    for attempt in tries:
        try:
            return datasets.load_dataset(*attempt)
        except (FileNotFoundError, ConnectionError) as problem:
            failure = failure or problem
        except Exception as problem:  # whatever the hub, the network or the dataset's own files come up with
            failure = problem
            break
    raise TextspaceError(
        f"cannot load the Hugging Face dataset {name!r} ({reason(failure)}); check its name and the network"
    ) from failure
