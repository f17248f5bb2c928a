"""What `benchmarks.token_tables` found as Markdown, with the paper's numbers beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.token_samples import shown
from textspace.digits import plus_minus
from textspace.evaluate.measures.variety import VARIANTS

__all__ = ["Contestants", "markdown"]

Contestants = Mapping[str, Mapping[str, Any]]

POOLINGS = ("start", "mean", "sum")
"""In the order of the paper's tables."""

STS = ("sts12", "sts13", "sts14", "sts15", "sts16")
COSINES = (*(f"{year}_mean_spearman" for year in STS), "stsb_cosine_spearman", "sickr_cosine_spearman")
TRAINED = ("stsb_softmax_spearman", "sickr_softmax_spearman")

PAPER_STS = {
    "BERT-start, published": (20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63),
    "BERT-mean, published": (38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40),
    "MiniBERT-start": (-2.19, 0.87, 1.27, 0.81, -3.46, -2.41, 0.61),
    "MiniBERT-mean": (-1.14, -3.83, 1.63, 0.21, 7.25, -5.3, -1.73),
    "MiniBERT-sum": (-0.50, -1.54, 0.60, -0.72, 0.11, 1.21, 1.67),
    "VAT-start": (17.45, 12.10, 14.74, 20.09, 31.14, 30.70, 37.15),
    "VAT-mean": (45.60, 45.43, 52.07, 55.45, 58.13, 50.83, 47.08),
    "VAT-sum": (45.60, 45.43, 52.07, 55.45, 58.13, 51.56, 48.88),
}
"""Spearman x 100; STS-B and SICK-R of the paper's own rows differ between mean and sum, so that they are no cosines."""

TASKS = {
    "mr": "MR",
    "cr": "CR",
    "sst2_phrases": "SST2",
    "sst5": "SST5",
    "trec": "TREC",
    "mrpc_joined": "MRPC",
    "sick_e_joined": "SICK-E",
    "sst2": "SST2, sentences",
    "mrpc": "MRPC, compared",
    "sick_e": "SICK-E, compared",
}
"""Columns of table 5: first those that are the paper's (phrases of SST2 as SentEval has them, pairs in one text)."""

PAPER_FROZEN = {
    "MiniBERT-start": "50.8/50.1 63.9/63.8 51.2/49.9 27.7/24.6 23.7/18.2 67.8/66.5 56.4/56.7",
    "MiniBERT-mean": "50.9/50.1 61.6/60.9 53.0/50.3 24.4/25.1 22.9/18.2 65.5/65.9 55.6/55.9",
    "MiniBERT-sum": "51.9/49.6 62.2/59.7 51.4/51.5 25.8/23.0 23.0/20.8 64.8/57.6 48.4/49.7",
    "VAT-start": "60.5/59.6 63.8/63.8 61.6/63.3 29.4/29.3 35.1/40.4 67.5/66.5 56.4/56.7",
    "VAT-mean": "61.0/60.2 63.9/63.8 61.4/60.7 30.4/31.0 44.1/48.6 67.5/66.6 59.2/58.5",
    "VAT-sum": "61.2/60.5 66.8/65.7 61.0/62.6 31.5/32.2 46.8/54.8 69.6/68.5 67.8/66.6",
}
PAPER_TUNED = {
    "MiniBERT-start": "72.8/72.1 64.4/61.9 80.6/83.2 36.7/36.1 32.1/38.8 68.9/66.5 56.4/56.7",
    "MiniBERT-mean": "76.0/75.6 73.4/65.6 81.0/83.3 38.0/37.9 72.4/73.2 71.8/68.6 58.2/58.1",
    "MiniBERT-sum": "73.8/70.7 75.4/67.6 70.0/81.6 35.8/32.8 70.8/69.6 68.9/63.0 57.6/44.3",
    "VAT-start": "74.5/74.6 76.3/72.5 82.7/82.6 37.8/38.6 82.7/87.2 70.0/69.9 61.6/61.3",
    "VAT-mean": "73.8/74.1 75.0/72.5 81.7/82.4 39.9/40.0 84.1/85.2 68.9/63.7 64.2/61.8",
    "VAT-sum": "72.9/73.2 78.6/74.5 82.6/83.3 40.7/39.9 84.7/88.2 69.7/68.3 62.0/60.8",
}
"""Dev / test accuracy."""

CONTEXTUAL = 20
"""The most contextual tokens that are shown of each space."""


# Markdown


def markdown(found: Contestants) -> str:
    """All tables; those of which nothing was measured are left out."""
    parts = {
        "Table 4: likeness of sentences": similarity(found),
        "Table 5, top: frozen codes": accuracies(found, "transfer", PAPER_FROZEN),
        "Table 5, bottom: fine-tuned": accuracies(found, "fine_tuning", PAPER_TUNED),
        "Runs": runs(found),
        "Figure 3a: how tokens lie": cosines(found),
        "The most contextual tokens": contextual(found),
        "Completeness": completeness(found),
        **{f"Tables 1 to 3: {name}": shown(one["tables"]["tables"]) for name, one in _with(found, "tables")},
    }
    return "".join(f"## {title}\n\n{text}\n\n" for title, text in parts.items() if text)


def similarity(found: Contestants) -> str:
    columns = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    columns += ["STS-B trained", "SICK-R trained", "mean of cosines", "mean as in the paper"]
    rows: list[list[str]] = []
    for name, values in PAPER_STS.items():
        is_cosine = name.endswith("published")
        cells = [
            *values[:5],
            *(values[5:] if is_cosine else (None, None)),
            *((None, None) if is_cosine else values[5:]),
        ]
        mean = [_mean(values), None] if is_cosine else [None, _mean(values)]
        rows.append([f"*paper: {name}*", *map(_number, [*cells, *mean])])
    errors: list[float] = []
    measured = False
    for name, one in found.items():
        of = one["estimates"].get("sts", {})
        for pooling in _poolings(of, COSINES[0]):
            measured = True
            got = [of.get(key + pooling) for key in (*COSINES, *TRAINED)]
            errors += [each["stderr"] for each in got if each is not None and each["stderr"] is not None]
            ours = [None if each is None else each["value"] for each in got]
            means = _mean(ours[:7]), _mean(ours[:5] + ours[7:])
            rows.append([_row(name, pooling), *map(_number, [*ours, *means])])
    if not measured:
        return ""
    told = (
        "Spearman x 100 of cosines, without training; STS12 to STS16 are means over subsets. Trained: a softmax over "
        f"scores on (|u - v|, u * v), as SentEval has it. Standard errors of cells: {_range(errors)}. Mean and sum "
        "have one cosine."
    )
    return f"{told}\n\n{_table(['codes', *columns], rows)}"


def accuracies(found: Contestants, part: str, paper: Mapping[str, str]) -> str:
    rows: list[list[str]] = []
    majority: dict[str, str] = {}
    errors: list[float] = []
    limits: set[int] = set()
    folds: set[int] = set()
    for name, one in found.items():
        of = one["estimates"].get(part, {})
        for key in TASKS:
            base = key.removesuffix("_joined")
            if f"{base}_majority" in of:
                majority[key] = _number(of[f"{base}_majority"]["value"])
        for variant in ("", "_with_length"):
            endings = {ending for key in TASKS for ending in _poolings(of, key + variant)}
            for pooling in sorted(endings & {"", "_mean"} if variant else endings, key=_order):
                got = {key: of.get(key + variant + pooling) for key in TASKS}
                there = [each for each in got.values() if each is not None]
                errors += [each["stderr"] for each in there if each["stderr"] is not None]
                limits |= {each["training_limit"] for each in there if "training_limit" in each}
                folds |= {each["folds_trained"] for each in there if "folds_trained" in each}
                row = _row(name, pooling) + (" + log length" if variant else "")
                rows.append([row, *(_dev_and_test(each) for each in got.values())])
    if not rows:
        return ""
    beside = [
        [f"*paper: {name}*", *numbers.split(), *[""] * (len(TASKS) - len(numbers.split()))]
        for name, numbers in paper.items()
    ]
    told = f"Dev/test accuracy in percent. Standard errors of test cells: {_range(errors)}."
    told += "".join(f" Trained on at most {limit:,} sentences, MR and CR apart." for limit in sorted(limits))
    told += "".join(f" MR and CR: {count} of 10 folds." for count in sorted(folds))
    first = ["majority class", *(majority.get(key, "") for key in TASKS)]
    return f"{told}\n\n{_table(['codes', *TASKS.values()], [first, *beside, *rows])}"


def runs(found: Contestants) -> str:
    """Losses, variety and cost of every space."""
    keys = {
        "reconstruction, test": ("losses", "reconstruction_test"),
        "train": ("losses", "reconstruction_train"),
        "KL, test": ("losses", "kl_test"),
        "KL, train": ("losses", "kl_train"),
        "copies of means": ("variety", "copies_mean"),
        f"distinct of {VARIANTS}": ("variety", "distinct_strength_1"),
        "self-BLEU-4": ("variety", "self_bleu4_strength_1"),
        "as many words": ("variety", "same_length_strength_1"),
        "steps repeated": ("tables", "path_repeated"),
    }
    rows = []
    for name, one in found.items():
        if one["kind"] == "space":
            cost = one["cost"]
            numbers = [_with_error(one["estimates"].get(part, {}).get(key)) for part, key in keys.values()]
            weight = (one["curves"] or {}).get("last_weight")
            cells = [f"{one['scale']:g}", "" if weight is None else f"{weight:.3g}", *numbers]
            rows.append([name, *cells, _number(cost["steps"], 0), _number(cost["seconds"], 0)])
    columns = ["space", "s", "KL weight at the end", *keys, "steps", "seconds of training"]
    return _table(columns, rows) if rows else ""


def cosines(found: Contestants) -> str:
    keys = {
        "random tokens": "random_cosine",
        "intra-sentence": "intra_sentence",
        "dealt out anew": "intra_sentence_dealt",
        "self": "self_similarity",
        "function words": "function_words_self_similarity",
        "others": "other_words_self_similarity",
        "function words among the most contextual": "function_words_most_contextual",
        "among all": "function_words_all",
        "length / prior's": "length",
    }
    rows = []
    for name, one in found.items():
        of = one["estimates"].get("isotropy", {})
        endings = {"": "means", "_samples": "samples"} | {f"_layer_{n}": f"layer {n}" for n in range(100)}
        for ending, what in endings.items():
            if f"random_cosine{ending}" in of:
                rows.append([f"{name}, {what}", *(_with_error(of.get(key + ending)) for key in keys.values())])
    return _table(["vectors", *keys], rows) if rows else ""


def contextual(found: Contestants) -> str:
    lines = []
    for name, one in _with(found, "isotropy"):
        tokens = [
            str(row[1]).replace("Ġ", "").replace("|", "\\|") for row in one["tables"]["isotropy"]["contextual"]["rows"]
        ]
        lines.append(f"- {name}: {' '.join(f'`{token}`' for token in tokens[:CONTEXTUAL] if token)}")
    return "\n".join(lines)


def completeness(found: Contestants) -> str:
    numbers = ("well_formed", "perplexity", "length", "distance", "distance_other", "cosine", "cosine_other", "nearer")
    columns = ["points", "well-formed", "perplexity", "words", "distance back", "to another", "cosine back"]
    rows = [
        [f"{name}, {kind}", *(_with_error(one["estimates"]["completeness"].get(f"{key}_{kind}")) for key in numbers)]
        for name, one in _with(found, "completeness")
        for kind in ("prior", "halfway", "sample", "mean", "real")
    ]
    return _table([*columns, "to another's", "nearer to its own"], rows) if rows else ""


def _with(found: Contestants, part: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return [(name, one) for name, one in found.items() if part in one["tables"]]


def _poolings(of: Mapping[str, Any], key: str) -> list[str]:
    """Endings of a key that there are: one for each pooling, or none where a sentence has one code."""
    endings = [f"_{pooling}" for pooling in POOLINGS if f"{key}_{pooling}" in of]
    return endings or ([""] if key in of else [])


def _order(ending: str) -> int:
    return POOLINGS.index(ending[1:]) if ending else 0


def _row(name: str, ending: str) -> str:
    return f"{name}, {ending[1:]}" if ending else name


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _with_error(estimate: Mapping[str, Any] | None) -> str:
    return "" if estimate is None else plus_minus(estimate["value"], estimate["stderr"])


def _dev_and_test(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None:
        return ""
    return (
        f"{_number(estimate['dev'])}/{_number(estimate['value'])}" if "dev" in estimate else _number(estimate["value"])
    )


def _range(errors: Sequence[float]) -> str:
    return f"{min(errors):.1f} to {max(errors):.1f}" if errors else "unknown"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
