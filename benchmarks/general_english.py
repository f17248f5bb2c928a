"""General English to train on, out of six corpora and without the sentences that codes are evaluated on.

    python -m benchmarks.general_english CORPORA OUT
    python -m benchmarks.general_english CORPORA OUT --sentences 100000

Sources are the training files of Tatoeba, WikiText-2, Brown, Flickr30K captions and Yelp: their own validation and test
files stay unseen. Labels are dropped; long reviews are cut into sentences where a full stop, question or exclamation
mark is followed by a capital or a digit, so that some are cut after an abbreviation. Nothing else is mended: WikiText-2
keeps its `<unk>`, ` @-@ ` and blanks before punctuation, Brown its `` quotation marks, short reviews their lower case
and `_num_`.

Left out are sentences of more than 100 words, those without a letter or digit, exact duplicates, and every sentence
that is in a file of the tasks STS, STS-B, SICK, MRPC, MR, CR, SST and TREC, whatever its case, blanks and punctuation.
A sentence that differs from one of these by a word stays. OUT gets train, valid and test files; the last two are drawn
at random from all sources. `--sentences` thins the training file evenly, so that each source keeps its share, and
leaves the other two as they are.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from textspace.errors import TextspaceError
from textspace.evaluate.measures.tasks import COLUMNS, _words, read_rows

SOURCES = {
    "tatoeba_en": ("train.txt",),
    "wikitext2": ("train.txt",),
    "brown": ("all.txt",),
    "flickr30k": ("train.txt",),
    "yelp_short": ("train.tsv", "extra_train.tsv"),
    "yelp_long": ("train.tsv",),
}
REVIEWS = "yelp_long"
LABELLED = ".tsv"
MOST_WORDS = 100
HELD_OUT = 5_000
SENTENCE_END = re.compile(r"""([.!?]["')]*)\s+(?=["'(]*[A-Z0-9])""")


def read(folder: Path, source: str) -> Iterator[str]:
    """The sentences of a source, blanks squeezed."""
    for name in SOURCES[source]:
        path = folder / source / f"{name}.gz"
        if not path.exists():
            raise TextspaceError(f"there is no file {str(path)!r}: give the folder that holds the corpora")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = line.partition("\t")[2] if name.endswith(LABELLED) else line
                for sentence in cut(text) if source == REVIEWS else [text]:
                    yield " ".join(sentence.split())


def cut(review: str) -> list[str]:
    """The sentences of a review; quotation marks and brackets that close one stay with it."""
    return SENTENCE_END.sub(r"\1\n", review.strip()).split("\n")


def evaluated(folder: Path) -> frozenset[str]:
    """The words of every sentence in the files of tasks."""
    found: set[str] = set()
    for kind, columns in COLUMNS.items():
        paths = sorted((folder / kind).glob("*.tsv*"))
        if not paths:
            raise TextspaceError(f"there is no file of tasks in {str(folder / kind)!r}: nothing could be left out")
        for path in paths:
            for row in read_rows(path, columns):
                found.update(_words(cell) for cell, column in zip(row, columns, strict=True) if column == "sentence")
    return frozenset(found)


def chosen(
    sources: Mapping[str, Iterable[str]], without: frozenset[str]
) -> tuple[list[tuple[str, str]], Counter[tuple[str, str]]]:
    """What is kept, each with its source, in order; and how many sentences of each source met which fate."""
    kept: dict[str, str] = {}
    fates: Counter[tuple[str, str]] = Counter()
    for source, sentences in sources.items():
        for text in sentences:
            words = _words(text)
            if not words:
                fate = "no words"
            elif len(text.split()) > MOST_WORDS:
                fate = "too long"
            elif words in without:
                fate = "evaluated"
            elif text in kept:
                fate = "duplicate"
            else:
                fate = "kept"
                kept[text] = source
            fates[source, fate] += 1
    return [(source, text) for text, source in kept.items()], fates


def splits(count: int, seed: int, held_out: int, sentences: int | None = None) -> dict[str, list[int]]:
    """Rows of each split, ascending; `sentences` of the training rows, at even distances."""
    if count <= 2 * held_out:
        raise TextspaceError(f"{count} sentences are too few to hold out {held_out} twice")
    drawn = random.Random(seed).sample(range(count), 2 * held_out)
    apart = set(drawn)
    train = [row for row in range(count) if row not in apart]
    if sentences is not None and sentences < len(train):
        train = [train[index * len(train) // sentences] for index in range(sentences)]
    return {"train": train, "valid": sorted(drawn[:held_out]), "test": sorted(drawn[held_out:])}


def write(path: Path, texts: Iterable[str]) -> int:
    """Lines into a gzip file that depends on them alone; its size in bytes."""
    content = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(gzip.compress(content, 9, mtime=0))
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds the corpora and the files of tasks")
    parser.add_argument("out", type=Path)
    parser.add_argument("--sentences", type=int, help="of the training file, by default all")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="sentences of the valid and of the test file")
    parser.add_argument("--seed", type=int, default=0, help="of what is held out")
    given = parser.parse_args()
    kept, fates = chosen({source: read(given.corpora, source) for source in SOURCES}, evaluated(given.corpora))
    given.out.mkdir(parents=True, exist_ok=True)
    columns = ("kept", "evaluated", "duplicate", "too long", "no words")
    print(f"{'':12}" + "".join(f"{column:>12}" for column in columns))
    for source in SOURCES:
        print(f"{source:12}" + "".join(f"{fates[source, column]:12,}" for column in columns))
    for name, rows in splits(len(kept), given.seed, given.held_out, given.sentences).items():
        size = write(given.out / f"{name}.txt.gz", (kept[row][1] for row in rows))
        words = sum(len(kept[row][1].split()) for row in rows)
        shares = Counter(kept[row][0] for row in rows)
        told = ", ".join(f"{source} {shares[source]:,}" for source in SOURCES)
        print(f"{name}: {len(rows):,} sentences, {words:,} words, {size / 1e6:.1f} MB ({told})")


if __name__ == "__main__":
    main()
