"""What the name of a source stands for: a file, folder, glob, stream, dataset or the built-in corpus."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from textspace.data.cells import Row
from textspace.data.options import ReadOptions, ReadReport, close_names, is_number
from textspace.data.sources import (
    ENDINGS,
    Reader,
    delimited_reader,
    ending,
    json_reader,
    reason,
    text_reader,
)
from textspace.data.streams import iterable_reader, stream_reader
from textspace.data.tables import hugging_face_readers, parquet_reader
from textspace.errors import TextspaceError
from textspace.files import piped_in

__all__ = ["SPLITS", "Found", "file_reader", "find", "find_given", "short_name"]

SPLITS = ("train", "valid", "test")
_SPLIT_NAMES = {
    "train": "train",
    "valid": "valid",
    "val": "valid",
    "dev": "valid",
    "validation": "valid",
    "test": "test",
}
# Notes that lie beside a corpus and are no part of it.
_PAPERS = frozenset({"readme", "license", "licence", "provenance", "notice", "citation", "changelog", "copying"})
# What training writes into its folder, where that is the folder of the text too.
_LOGS = frozenset({"steps.jsonl", "pretraining.jsonl"})
_BUILTIN_SENTENCES = 20_000
_BUILTIN_SEEDS = {"train": 1, "valid": 2, "test": 3}


@dataclass(frozen=True)
class Found:
    """One source before it is counted: readers of given splits, or one under "" that is still to be cut."""

    name: str
    readers: Mapping[str, Reader]
    notes: list[str] = field(default_factory=list)


def find(source: str | Path, options: ReadOptions) -> list[Found]:
    """The sources behind a name: one, or several where a glob matches files that name no split."""
    name = str(source)
    if not name.strip():
        raise TextspaceError("a source has no name: give a file, a folder or builtin")
    if name == "-":
        return [Found(name, {"": stream_reader("standard input", piped_in(), options)})]
    if name.startswith("hf:"):
        return [_from_hugging_face(name.removeprefix("hf:"), options)]
    if re.match(r"builtin(:|$)", name):
        return [_from_builtin(name, options)]
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return [_from_folder(path, options)]
        if path.is_file():
            return [Found(name, {"": file_reader(path, options)})]
        if path.exists():  # a pipe or device: what is read there is gone
            with path.open("rb") as stream:
                _refuse_device(name, stream)
                return [Found(name, {"": stream_reader(name, stream, options)})]
        if path.is_symlink():
            raise TextspaceError(f"{name!r} is a link that leads nowhere: name a file")
        if glob.has_magic(name):
            return _from_glob(str(path), options)
        siblings = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else None
    except OSError as problem:
        raise TextspaceError(f"cannot read {name!r}: {problem.strerror or reason(problem)}") from problem
    if siblings is None:
        raise TextspaceError(f"there is no file {name!r}, nor a folder {str(path.parent)!r}; check the path")
    alike = close_names(path.name, [*siblings, "builtin"])
    raise TextspaceError(f"there is no file {name!r}; {alike if 'others' not in alike else 'check the path'}")


def _refuse_device(name: str, stream: IO[bytes]) -> None:
    """Refuse a device, which is a whole disk or has no end; a terminal has text, and the null device is empty."""
    facts = os.fstat(stream.fileno())
    is_harmless = stream.isatty() or facts.st_rdev == os.stat(os.devnull).st_rdev
    if stat.S_ISBLK(facts.st_mode) or (stat.S_ISCHR(facts.st_mode) and not is_harmless):
        raise TextspaceError(f"{name!r} is a device, not text: name a file")


def file_reader(path: Path, options: ReadOptions) -> Reader:
    """The reader for a file, by its ending."""
    kind = ending(path)
    if kind is None:
        raise TextspaceError(
            f"cannot tell the format of {str(path)!r}; its name must end in {', '.join(ENDINGS)}"
            " (all but .parquet also with .gz)"
        )
    if kind == ".parquet":
        return parquet_reader(path, options)
    if kind == ".jsonl":
        return json_reader(path, options)
    if kind in (".tsv", ".csv"):
        return delimited_reader(path, options)
    return text_reader(path, options)


def short_name(source: str | Path) -> str:
    """What to call a corpus: a file's name without its endings, a folder's name, anything else as it is."""
    path = Path(source).expanduser()
    if glob.has_magic(str(source)) or str(source).startswith(("hf:", "builtin")) or not path.name:
        return str(source)
    return "standard input" if str(source) == "-" else _stem(path) if path.is_file() else path.name


def _stem(path: Path) -> str:
    name = re.sub(r"\.gz$", "", path.name, flags=re.IGNORECASE)
    return Path(name).stem


def find_given(sources: Mapping[str, Any], options: ReadOptions) -> Found:
    """The source made of a mapping from split to a name or to sentences."""
    readers: dict[str, Reader] = {}
    notes: list[str] = []
    for name in sources:
        if name not in SPLITS:
            raise TextspaceError(f"there is no split {name!r}; {close_names(str(name), SPLITS)}")
    for name in (split for split in SPLITS if split in sources):
        source = sources[name]
        if not isinstance(source, str | Path):
            readers[name] = iterable_reader(name, source, None, options)
            continue
        found = find(source, options)
        reader = found[0].readers.get(name, found[0].readers.get(""))
        if len(found) > 1 or reader is None:
            raise TextspaceError(f"{str(source)!r} is not one stream for the split {name!r}; name a single file")
        readers[name] = reader
        notes += found[0].notes
        if reader.options.text is not None:  # the columns settled for the first hold for all
            options = reader.options
    return Found("given splits", readers, notes)


# --- folders and globs ---


def _from_folder(folder: Path, options: ReadOptions) -> Found:
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return _from_hugging_face(str(folder), options)
    files, others = _readable(sorted(each for each in folder.iterdir() if each.is_file()))
    if not files:
        raise TextspaceError(f"the folder {str(folder)!r} holds no file that can be read; name another or a file")
    given = _files_by_split(files, str(folder))
    if not given and len(files) > 1:
        raise TextspaceError(
            f"the folder {str(folder)!r} holds no train, valid or test file but {len(files)} others; name one"
            f" of them, or mix all with {str(folder / '*')!r}"
        )
    return _from_files(str(folder), given or {"": files[0]}, files, others, options)


def _from_glob(pattern: str, options: ReadOptions) -> list[Found]:
    matches = sorted(Path(match) for match in glob.glob(pattern, recursive=True))
    files, others = _readable([match for match in matches if match.is_file()])
    if not files:
        raise TextspaceError(f"no file that can be read matches {pattern!r}; check the pattern")
    given = _files_by_split(files, pattern)
    if given:
        return [_from_files(pattern, given, files, others, options)]
    found: list[Found] = []
    for file in files:
        reader = file_reader(file, options)
        found.append(Found(str(file), {"": reader}))
        if is_number(reader.options.text):  # a column known only by its number: the same in all files
            options = reader.options
    return found


def _readable(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """The files that are text to learn from, and the others."""

    def is_text(path: Path) -> bool:
        of_another_use = path.name.startswith(".") or _stem(path).lower() in _PAPERS or path.name in _LOGS
        return bool(path.suffix and ending(path)) and not of_another_use

    files = [path for path in paths if is_text(path)]
    return files, [path for path in paths if path not in files]


def _files_by_split(files: list[Path], where: str) -> dict[str, Path]:
    """Which file is which split, by the first naming rule that any of them meets (see `open_corpus`)."""
    for separators in (None, r"\.", r"[._-]"):
        by_split: dict[str, list[Path]] = {}
        for file in files:
            stem = _stem(file).lower()
            part = re.split(separators, stem)[-1] if separators else stem
            if part in _SPLIT_NAMES:
                by_split.setdefault(_SPLIT_NAMES[part], []).append(file)
        for split, candidates in by_split.items():
            if len(candidates) > 1:
                names = ", ".join(file.name for file in candidates[:3])
                raise TextspaceError(
                    f"{where!r} has {len(candidates)} files for the {split} split ({names}); narrow it down with"
                    " a glob, or name one file"
                )
        if by_split:
            return {split: by_split[split][0] for split in SPLITS if split in by_split}
    return {}


def _from_files(
    name: str, chosen: Mapping[str, Path], files: list[Path], others: list[Path], options: ReadOptions
) -> Found:
    """Readers of the chosen files: the columns settled for the first (train) hold for all."""
    readers: dict[str, Reader] = {}
    for split, path in chosen.items():
        readers[split] = file_reader(path, options)
        if readers[split].options.text is not None:
            options = readers[split].options
    if readers.keys() == {"train"}:
        readers = {"": readers["train"]}
    left_over = sorted(path.name for path in {*files, *others} - set(chosen.values()))
    more = f" and {len(left_over) - 5} more" if len(left_over) > 5 else ""
    return Found(name, readers, [f"files ignored: {', '.join(left_over[:5])}{more}"] if left_over else [])


# --- Hugging Face datasets and the built-in corpus ---


def _from_hugging_face(name: str, options: ReadOptions) -> Found:
    readers = hugging_face_readers(name, options)
    if len(readers) == 1:
        return Found(f"hf:{name}", {"": next(iter(readers.values()))})
    given: dict[str, Reader] = {}
    for split, reader in readers.items():
        if split in _SPLIT_NAMES:
            given.setdefault(_SPLIT_NAMES[split], reader)
    if not given:
        names = ", ".join(readers)
        raise TextspaceError(f"'hf:{name}' has no split named train, validation or test but {names}; rename one")
    left_over = sorted(readers.keys() - _SPLIT_NAMES.keys())
    return Found(f"hf:{name}", given, [f"other splits ignored: {', '.join(left_over)}"] if left_over else [])


def _from_builtin(name: str, options: ReadOptions) -> Found:
    asked = name.partition(":")[2]
    if name != "builtin" and not (asked.isdecimal() and len(asked) < 10 and int(asked) > 0):
        raise TextspaceError(
            f"{name!r} must be 'builtin' or 'builtin:N' with N training sentences, from 1 to 999999999"
        )
    train = int(asked) if asked else _BUILTIN_SENTENCES
    held_out = max(1, train // 10)
    counts = {"train": train, "valid": held_out, "test": held_out}
    readers = {split: _builtin_reader(name, counts[split], seed, options) for split, seed in _BUILTIN_SEEDS.items()}
    return Found(name, readers)


def _builtin_reader(name: str, count: int, seed: int, options: ReadOptions) -> Reader:
    """Sentences of the built-in grammar; the label is their topic or the factor that `options.label` names."""
    factor = "topic" if options.label is None else str(options.label)
    from textspace.data.english import english  # a grammar to build: only for those who ask for it

    factors = next(iter(english().sample(1, seed))).factors
    if factor not in factors:
        raise TextspaceError(f"the built-in corpus has no label {factor!r}; {close_names(factor, factors)}")
    return Reader(name, partial(_builtin_rows, count, seed, factor), options)


def _builtin_rows(count: int, seed: int, factor: str, report: ReadReport) -> Iterator[Row]:
    from textspace.data.english import english

    for sentence in english().sample(count, seed):
        yield sentence.text, sentence.factors[factor]
