"""What the commands share: the app, common options, reading sources, and printing."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from glob import has_magic
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textspace.errors import TextspaceError, nearest
from textspace.files import check_no_file, check_writable

if TYPE_CHECKING:
    from textspace.config import Recipe
    from textspace.data.corpus import Corpus
    from textspace.data.corpus import Split as TextSplit
    from textspace.data.options import ReadOptions, Record
    from textspace.generate import Method
    from textspace.types import Estimate

app = typer.Typer(
    help="Learn a latent space of text from your own sentences: encode, decode, and know how good it is.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Source = Annotated[
    str,
    typer.Argument(
        help="Text: a .txt, .tsv, .csv, .jsonl or .parquet file (also .gz), a folder or glob with train/valid/test "
        "files, '-' for standard input, or 'builtin'; several with commas between.",
        show_default=False,
    ),
]
Folder = Annotated[Path, typer.Argument(help="A trained space.", show_default=False)]
Split = Annotated[str | None, typer.Option(help="Only this split of the source: train, valid or test.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the text: its name, or its number from 1.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the label: its name, or its number from 1.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether the first row names the columns.")]
Seed = Annotated[int, typer.Option(help="Of all randomness.", min=0)]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU where there is one.")]
Precision = Annotated[
    str, typer.Option(help="Of matrix products: float32, or on a GPU tf32 or bf16, which are faster.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MethodName = Annotated[str | None, typer.Option("--method", help="greedy, sampling or beam.")]
Temperature = Annotated[float | None, typer.Option(help="For sampling: below 1 safer, above 1 wilder.")]
TopK = Annotated[int | None, typer.Option(help="For sampling: among the k likeliest words.")]
TopP = Annotated[float | None, typer.Option(help="For sampling: among the likeliest words with this much probability.")]
Width = Annotated[int | None, typer.Option(help="For beam: how many beginnings are kept.")]


def out_option(help: str, kind: type[Path] | type[str] = Path) -> Any:
    """Of --out, which cannot be empty: as a path that would be the folder one is in."""

    def named(written: Any) -> Any:
        if not str(written).strip():
            raise TextspaceError("--out is empty: give it a name, or leave it out")
        return kind(written)

    return typer.Option(help=help, parser=named, metavar="PATH")


def method(name: str | None, default: str, **options: Any) -> Method:
    """The decoding method that the options name; an option of sampling or beam alone chooses that method."""
    from textspace.generate import method_named

    given = {option: value for option, value in options.items() if value is not None}
    if name is None:
        name = "beam" if "width" in given else "sampling" if given else default
    return method_named(name, **given)


def tell(text: str) -> None:
    """A line for people, beside the output proper; where nobody can read it, as in a closed terminal, work goes on."""
    with suppress(OSError):
        typer.echo(text, err=True)


def name_of(folder: Path) -> str:
    """The own name of a folder, also of `.`; where it is a link, that of what it leads to."""
    return os.path.basename(os.path.realpath(folder))


def read_options(text: str | None, label: str | None, header: bool | None, **more: Any) -> ReadOptions:
    from textspace.data.options import ReadOptions

    return ReadOptions(text=text, label=label, header=header, **more)


def sources(written: str) -> Any:
    """Several sources are written with commas between them, unless a file of that very name exists."""
    return written.split(",") if "," in written and not Path(written).exists() else written


def uncut_corpus(
    source: str, split: str | None, recipe: Recipe, text: str | None, label: str | None, header: bool | None
) -> Corpus:
    """A source as it is given: a file whole, under the split "train"; one split of several where one is asked for."""
    from textspace.data.corpus import open_corpus

    options = read_options(text, label, header, valid=0.0, test=0.0)
    corpus = open_corpus(sources(source), options, normalise=recipe.text.normalise)
    if split is not None and split not in corpus.splits:
        raise TextspaceError(f"{source} has no split {split!r}; {nearest(split, corpus.splits)}")
    return corpus if split is None else replace(corpus, splits={split: corpus.splits[split]})


def some_records(parts: Iterable[TextSplit], limit: int) -> tuple[int, list[Record]]:
    """How many records some splits have, and at most so many of them, drawn at random."""
    from textspace.evaluate.statistics import some_rows

    parts = list(parts)
    total = sum(len(part) for part in parts)
    kept = set(some_rows(total, limit).tolist())
    return total, [record for row, record in enumerate(chain.from_iterable(parts)) if row in kept]


def tell_reading(corpus: Corpus | None) -> None:
    """Say what was skipped, mended or chosen in reading; nothing where nothing was read."""
    for line in corpus.report.lines() if corpus else ():
        tell(line)


def check_has_data(data: str | None, **about: Any) -> None:
    """Refuse options that say how to read --data where that is not given."""
    for option, value in about.items():
        if data is None and value is not None:
            raise TextspaceError(f"--{option.replace('_', '-')} says how to read --data: give that too")


def check_not_read(out: Path | str, *read: Path | str) -> None:
    """Refuse to write over a file that is read, by its name or as one of a folder's or a glob's."""
    path = Path(out)
    if not path.is_file():
        return
    for name in (each for given in read for each in (given, *_files_behind(given))):
        if Path(name).is_file() and path.samefile(name):
            raise TextspaceError(f"--out {out} is the file that is read, and would be lost: name another")


def _files_behind(source: Path | str) -> list[str]:
    """Those that are read for a folder or a glob."""
    from textspace.data.finding import find
    from textspace.data.options import ReadOptions

    if not Path(source).is_dir() and not has_magic(str(source)):
        return []
    with suppress(TextspaceError):  # it will be told where the source is opened
        return [reader.name for found in find(source, ReadOptions()) for reader in found.readers.values()]
    return []


def check_read_again(data: str) -> None:
    """Refuse text that can be read only once where it is read for each of several spaces."""
    for name in data.split(","):
        path = Path(name)
        if name == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            raise TextspaceError(
                f"{name} can be read only once, and each space reads it: write the text to a file first"
            )


def make_folder(folder: Path) -> None:
    """Make the folder for what will be found, so that a wrong one is noticed before hours of work and not after."""
    check_no_file(folder, "name another with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder)
    except OSError as error:
        raise not_written(folder, error) from None


def not_written(path: Path, error: OSError) -> TextspaceError:
    """Of what --out names."""
    return TextspaceError(f"could not write {path}: {error.strerror or error}; name another with --out")


def print_lines(lines: Iterable[str], as_json: bool) -> None:
    """Sentences, one a line, or as a JSON list."""
    if as_json:
        print_json(list(lines))
        return
    for line in lines:
        typer.echo(_printable(line))


def _printable(text: str) -> str:
    r"""On one line, and without what steers a terminal: a tokenizer of subwords may make any character.

    >>> _printable("one\ntwo\x1b[2J")
    'one two [2J'
    """
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text)


def print_json(data: Any) -> None:
    typer.echo(json.dumps(finite(data), indent=1, ensure_ascii=False, allow_nan=False))


def finite(data: Any) -> Any:
    """With None for numbers that are not finite, which JSON has no word for."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    return [finite(value) for value in data] if isinstance(data, list | tuple) else data


def print_table(columns: dict[str, str], rows: Iterable[tuple[str, ...]], whole: str | None = None) -> None:
    """Rows under headings; a column's value is "right" for numbers, else "left". Numbers and the column `whole` are
    never broken over lines. A cell may have several lines, and nothing that steers a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)

    def shown(cell: str) -> Text:
        return Text("\n".join(map(_printable, cell.split("\n"))))

    for name, side in columns.items():
        table.add_column(shown(name), justify=side, no_wrap=side == "right" or name == whole)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(shown, row))
    Console().print(table)


def print_estimates(estimates: dict[str, Estimate], as_json: bool) -> None:
    if as_json:
        print_json({name: estimate.to_dict() for name, estimate in estimates.items()})
        return
    columns = {"measure": "left", "value ± standard error": "right", "n": "right"}
    print_table(columns, ((estimate.name, str(estimate), f"{estimate.n:,}") for estimate in estimates.values()))
