"""Commands that use a trained space: encode, decode, neighbors, score and the like."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from textspace.checks import LARGEST
from textspace.cli.shared import (
    Device,
    Folder,
    Header,
    Json,
    LabelColumn,
    MethodName,
    Precision,
    Seed,
    Source,
    Split,
    Temperature,
    TextColumn,
    TopK,
    TopP,
    Width,
    app,
    check_not_read,
    finite,
    method,
    out_option,
    print_estimates,
    print_json,
    print_lines,
    print_table,
    tell,
    tell_reading,
    uncut_corpus,
)
from textspace.errors import TextspaceError

Strength = Annotated[
    float | None,
    typer.Option(
        help="Of a sample: how many times the posterior's deviation. 0 is the mean, 1 the posterior itself; "
        "sentenceMIM's perturbed reconstructions have 10.",
        show_default=False,
    ),
]


@app.command()
def encode(
    folder: Folder,
    source: Source,
    out: Annotated[
        str, out_option("codes.npy, .npz, .csv, .jsonl or .parquet; '-' is .jsonl on standard output.", str)
    ] = "-",
    what: Annotated[
        str,
        typer.Option(help="The posterior's mean, a sample of it, or gates: how probably each dimension is on."),
    ] = "mean",
    strength: Strength = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="One code for a sentence where every token has one: start, mean or sum. Without it codes of tokens go "
            "into an .npz file.",
            show_default=False,
        ),
    ] = None,
    sparse: Annotated[
        bool,
        typer.Option("--sparse", help="Exact zeros where a dimension is off, in an .npz file that scipy reads."),
    ] = False,
    split: Split = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON, when --out is a file.")] = False,
) -> None:
    """Write the codes of sentences; a corpus larger than memory is streamed.

    Examples:

      textspace encode my-space my.txt --out codes.npy

      textspace encode my-space my.txt --what sample --strength 0.5 --seed 1 --out near.npy

      textspace encode my-sparse-space my.txt --sparse --out codes.npz

      textspace encode my-token-space my.txt --out codes.npz

      textspace encode my-token-space my.txt --pool mean --out codes.npy

      echo "a sentence" | textspace encode my-space -
    """
    from textspace.codes import CodeWriter, Form, check_npz
    from textspace.progress import track
    from textspace.sampling import check_strength
    from textspace.space import Space

    if what not in ("mean", "sample", "gates"):
        raise TextspaceError(f"--what is {what!r}: use mean, sample or gates")
    check_strength(strength, what)
    if sparse:
        check_npz(out, "sparse")
    check_not_read(out, *source.split(","), source)
    space = Space.load(folder, device)
    form: Form = "sparse" if sparse else "tokens" if space.is_token_level and pool is None else "dense"
    corpus = uncut_corpus(source, split, space.recipe, text_column, label_column, header)
    total = sum(len(part) for part in corpus.splits.values())
    labels: list[str | None] = []

    def texts() -> Iterator[str]:
        for part in corpus.splits.values():
            for record in part:
                labels.append(record.label)
                yield record.text

    sentences = written = kept = 0
    with CodeWriter(out, space.dim, form=form) as writer:
        shown = track(texts(), "encoding", out != "-", total)
        options: dict[str, Any] = {"what": what, "strength": strength, "pool": pool, "sparse": sparse, "seed": seed}
        for chunk, codes in space.of_normalised().encode_stream(shown, **options):
            chunk_labels, labels = labels[: len(chunk)], labels[len(chunk) :]
            writer.write(codes, chunk, chunk_labels if corpus.labels else None)
            sentences += len(chunk)
            written += sum(map(len, codes)) if form == "tokens" else len(chunk)
            kept += codes.nnz if sparse else 0
    more: dict[str, Any] = {"sentences": sentences} if form == "tokens" else {}
    more |= {"share_off": 1 - kept / max(1, written * space.dim)} if sparse else {}
    tell_reading(corpus)
    if as_json and out != "-":
        print_json({"codes": written, "dim": space.dim, "file": out} | more)
    elif out != "-":
        off = f" ({more['share_off']:.0%} off)" if sparse else ""
        of = f" for the tokens of {sentences:,} sentences" if form == "tokens" else ""
        tell(f"{written:,} codes of {space.dim} dimensions{off}{of} in {out}")


@app.command()
def decode(
    folder: Folder,
    codes: Annotated[
        str, typer.Argument(help="A file of codes, or '-' for .jsonl or .csv on standard input.", show_default=False)
    ],
    how: MethodName = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    width: Width = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Turn codes into sentences.

    Examples:

      textspace decode my-space codes.npy

      textspace decode my-space codes.npy --method beam --width 10
    """
    from textspace.codes import read_codes
    from textspace.space import Space

    chosen = method(how, "greedy", temperature=temperature, top_k=top_k, top_p=top_p, width=width)
    space = Space.load(folder, device)
    found = read_codes(codes, dim=space.dim, of_tokens=space.is_token_level)
    print_lines(space.decode(found, method=chosen, seed=seed, show_progress=not sys.stdout.isatty()), as_json)


@app.command()
def reconstruct(
    folder: Folder,
    source: Source,
    what: Annotated[str, typer.Option(help="Decode the posterior's mean, or a sample of it.")] = "mean",
    strength: Strength = None,
    how: MethodName = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    width: Width = None,
    split: Split = None,
    text_column: TextColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Encode sentences and decode them again: from their codes, from samples, or from codes moved further.

    Examples:

      echo "the chef burned the soup ." | textspace reconstruct my-space -

      textspace reconstruct my-space held-out.txt --what sample --seed 1

      textspace reconstruct my-space held-out.txt --what sample --strength 10
    """
    from textspace.space import Space

    chosen = method(how, "greedy", temperature=temperature, top_k=top_k, top_p=top_p, width=width)
    space = Space.load(folder, device)
    corpus = uncut_corpus(source, split, space.recipe, text_column, None, header)
    texts = [record.text for part in corpus.splits.values() for record in part]
    made = space.of_normalised().reconstruct(
        texts,
        what=what,  # type: ignore[arg-type]
        strength=strength,
        method=chosen,
        seed=seed,
        show_progress=not sys.stdout.isatty(),
    )
    tell_reading(corpus)
    if as_json:
        print_json([{"text": text, "reconstruction": again} for text, again in zip(texts, made, strict=True)])
    else:
        print_lines(made, as_json)


@app.command()
def neighbors(
    folder: Folder,
    text: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    data: Annotated[str, typer.Option(help="Where to look: a source of text.")],
    k: Annotated[int, typer.Option("-k", help="How many.")] = 5,
    split: Split = None,
    text_column: TextColumn = None,
    header: Header = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Find the sentences of a corpus that are most like one.

    Example:

      textspace neighbors my-space "a text" --data my.txt -k 10
    """
    from textspace.space import Space

    space = Space.load(folder, device)
    corpus = uncut_corpus(data, split, space.recipe, text_column, None, header)
    texts = (record.text for part in corpus.splits.values() for record in part)
    found = space.of_normalised().neighbors(space.normalise(text), texts, k, show_progress=True)
    tell_reading(corpus)
    if as_json:
        print_json([neighbor._asdict() for neighbor in found])
        return
    rows = ((neighbor.text, f"{neighbor.similarity:.3f}", str(neighbor.row)) for neighbor in found)
    print_table({"neighbour": "left", "cosine": "right", "row": "right"}, rows)


@app.command()
def score(
    folder: Folder,
    source: Source,
    samples: Annotated[
        int, typer.Option(help="Importance samples; 0 leaves that bound out.", min=0, max=LARGEST)
    ] = 100,
    each: Annotated[bool, typer.Option("--each", help="A line of JSON for every sentence, token by token.")] = False,
    end: Annotated[
        str,
        typer.Option(
            "--end-token",
            "--end",
            help="How sentences end: included (the end token is one like any other), dropped (its term is left out) "
            "or length (it has no probability, and the length has that of training sentences).",
        ),
    ] = "included",
    melbo: Annotated[
        bool, typer.Option("--melbo", help="Also MELBO, a bound whose prior is the scored text itself.")
    ] = False,
    precision: Precision = "float32",
    split: Split = None,
    text_column: TextColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Say how likely text is under a space, and which bound each number is.

    Examples:

      textspace score my-space held-out.txt --samples 500

      textspace score my-space held-out.txt --end-token dropped --melbo

      echo "a sentence" | textspace score my-space - --each
    """
    from textspace.evaluate.held_out import held_out_note
    from textspace.evaluate.likelihood import lengths_for, likelihood
    from textspace.evaluate.melbo import Melbo
    from textspace.progress import track
    from textspace.space import Space
    from textspace.token_losses import precision_named

    if each and melbo:
        raise TextspaceError("MELBO is a number of a set of sentences and not of each: leave out --each or --melbo")
    computed_in = precision_named(precision)
    space = Space.load(folder, device)
    lengths = lengths_for(end, space.metrics)
    corpus = uncut_corpus(source, split, space.recipe, text_column, None, header)
    if len(corpus.splits) > 1:
        raise TextspaceError(f"{source} has the splits {', '.join(corpus.splits)}: choose one with --split")
    (chosen,) = corpus.splits.values()
    texts = [record.text for record in track(chosen, "reading", True, len(chosen))]
    tell_reading(corpus)
    encoded = space.of_normalised().read(texts)
    if note := held_out_note(space.metrics, texts):
        tell(note)
    if unknown := encoded.unknown_share:
        tell(f"{unknown:.2%} of the tokens are unknown to the space, which flatters its likelihoods")
    measured = likelihood(
        space.model,
        encoded,
        samples=samples,
        end_token=end,  # type: ignore[arg-type]
        lengths=lengths,
        seed=seed,
        precision=computed_in,
        keep_tokens=each,
        progress=True,
    )
    if not each:
        found = measured.estimates()
        found |= Melbo.of(measured, encoded).estimates(nll=found.get("nll")) if melbo else {}
        print_estimates(found, as_json)
        return
    for row, numbers in enumerate(measured.rows()):
        tokens = [space.tokenizer.shown(int(token)) for token in encoded.ids(row)]
        tokens += ["</s>"] if end == "included" else []
        found_row = finite({"text": encoded.text(row), **numbers, "tokens": tokens})
        typer.echo(json.dumps(found_row, ensure_ascii=False))


@app.command()
def info(folder: Folder, as_json: Json = False) -> None:
    """Show what a space is, what it was trained on, and how good it was found to be.

    Example:

      textspace info my-space
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from textspace import folder as folders
    from textspace.evaluate.examination import History

    saved = folders.load(folder)
    if as_json:
        print_json({"recipe": json.loads(saved.recipe.to_json()), "metrics": saved.metrics})
        return
    Console().print(Markdown(folders.card(saved.recipe, saved.tokenizer, saved.model, saved.metrics)))
    if "trained" not in saved.metrics and (last := History.of(folder, saved.metrics).last):
        tell(
            f"This run has not finished. Its last validation, after epoch {last['epoch']:g} (step {last['step']:,}), "
            "measured other weights than those kept: textspace doctor shows both."
        )
