"""A saved space's folder: its files, their digests in its record, its model card, and reading it back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from textspace.config import BetaGatedPrior, PretrainedEncoder, Recipe
from textspace.data.tokenizers import Tokenizer
from textspace.digests import DIGEST, check_record, digest_of_file, with_digest
from textspace.digits import number, value_and_error
from textspace.errors import TextspaceError, warn
from textspace.evaluate.sources import MIXING, card_lines
from textspace.files import read_json, write_file
from textspace.model import Model
from textspace.pretrained import FILES as ENCODER_FILES
from textspace.pretrained import FOLDER as ENCODER
from textspace.pretrained import EncoderFiles
from textspace.train import checkpoints

__all__ = [
    "Saved",
    "check",
    "check_digests",
    "check_files",
    "check_overwrites",
    "check_writable",
    "kept_weights",
    "load",
    "load_tokenizer",
    "named",
    "read_metrics",
    "record_digests",
    "replace_recipe",
    "save",
    "save_tokenizer",
    "write_record",
]

RECIPE, TOKENIZER, WEIGHTS, METRICS, CARD = (
    "recipe.json",
    "tokenizer.json",
    "model.safetensors",
    "metrics.json",
    "README.md",
)
BEGUN = "begun.json"
"""What a run notes when it begins; see `textspace.train.beginning`."""
_ENCODER_PATHS = tuple(f"{ENCODER}/{name}" for name in ENCODER_FILES)
DIGESTS = "digests"
"""Key in the record of the digests of the other files, except for the model card, which people edit."""


@dataclass(frozen=True)
class Saved:
    recipe: Recipe
    tokenizer: Tokenizer
    model: Model
    metrics: dict[str, Any]


def named(folder: Path | str) -> Path:
    """The folder of a name; an empty one would be the folder one is in."""
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        given = repr(folder) if isinstance(folder, str) else f"of type {type(folder).__name__}"
        raise TextspaceError(f"the name of the folder is {given}: give one such as 'my-space'")
    return Path(folder)


def check_overwrites(folder: Path, recipe: Recipe, mark: str, writing: str) -> None:
    """Say so if writing a space into a folder would write over somebody's own files.

    Args:
        folder: where the space is to be.
        recipe: its recipe.
        mark: a file by which a folder is known as ours, with all that is in it by the names of our files; an encoder's
            are ours where the recipe there has an encoder of that kind.
        writing: what writes.
    """
    is_ours = (folder / mark).exists()
    names = [] if is_ours else [RECIPE, TOKENIZER, WEIGHTS, METRICS, CARD]
    if _has_encoder_files(recipe) and not (is_ours and _has_encoder_files(Recipe.load(folder / RECIPE))):
        names += _ENCODER_PATHS
    same = {RECIPE: recipe.to_json()}  # left by a run that was killed as it began
    if there := [name for name in names if (folder / name).exists() and not _holds(folder / name, same.get(name))]:
        raise TextspaceError(f"{folder} has a file {there[0]}, which {writing} would write over: choose another folder")


def _holds(path: Path, content: str | None) -> bool:
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8") == content
    return False


def check_writable(folder: Path, recipe: Recipe, metrics: dict[str, Any]) -> None:
    """Say so if saving a space would break another's run in a folder, or write over somebody's own files."""
    check_overwrites(folder, recipe, RECIPE, "saving")
    if checkpoints.newest(folder) is not None and read_metrics(folder) != json.loads(json.dumps(metrics)):
        raise TextspaceError(
            f"{folder} holds the run of another space, which saving would break: choose another folder"
        )


def save(folder: Path | str, recipe: Recipe, tokenizer: Tokenizer, model: Model, metrics: dict[str, Any]) -> None:
    """Write all files of a space, each whole or not at all."""
    folder = named(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TextspaceError(f"could not make {folder}: {error.strerror or error}; choose another folder") from None
    write_file(folder / RECIPE, recipe.to_json().encode())
    save_tokenizer(folder, tokenizer)
    checkpoints.write_tensors(folder / WEIGHTS, checkpoints.weights(model))
    write_record(folder, metrics)
    write_file(folder / CARD, card(recipe, tokenizer, model, metrics).encode())


def write_record(folder: Path, metrics: Mapping[str, Any], *, of_files: bool = True) -> None:
    """Write the record of a space: its metrics, and digests of its other files as they are now and of itself.

    Without digests `of_files` the record is true of whatever files replace the present ones.
    """
    digests = {DIGESTS: record_digests(folder)} if of_files else {}
    record = with_digest(_without_digests(metrics) | digests)
    write_file(folder / METRICS, (json.dumps(record, indent=1) + "\n").encode())


def record_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files in a space's folder, by name: of those that are there, without record and model card."""
    recipe = folder / RECIPE
    has_encoder = recipe.is_file() and _has_encoder_files(Recipe.load(recipe))
    names = [RECIPE, TOKENIZER, WEIGHTS, *(_ENCODER_PATHS if has_encoder else ())]
    return {name: digest_of_file(folder / name) for name in names if (folder / name).is_file()}


def replace_recipe(folder: Path, recipe: Recipe) -> None:
    """Replace the recipe of a space; whenever this is cut off, the space can be loaded."""
    if _holds(folder / RECIPE, recipe.to_json()):
        return
    metrics = read_metrics(folder)
    if metrics:
        write_record(folder, metrics, of_files=False)
    write_file(folder / RECIPE, recipe.to_json().encode())
    if metrics:
        write_record(folder, metrics)


def check_files(folder: Path) -> None:
    """Refuse a folder with a file that is not the one its record describes."""
    check_digests(folder, _record(folder))


def check_digests(folder: Path, record: Mapping[str, Any], known: Mapping[str, str] | None = None) -> None:
    """Refuse a folder with a file that is not the recorded one; records of earlier versions have no digests.

    Args:
        folder: of a space.
        record: what its `metrics.json` holds.
        known: digests that are computed already, by name.
    """
    recorded = record.get(DIGESTS)
    if not isinstance(recorded, Mapping):
        return
    for name in (RECIPE, TOKENIZER, WEIGHTS, *_ENCODER_PATHS):
        if name in recorded and recorded[name] != ((known or {}).get(name) or _digest(folder / name)):
            raise TextspaceError(
                f"{folder / name} is not the file that was saved with this space: copy or train the space again, or "
                f"remove {folder / METRICS} to use the file as it is"
            )


def _digest(path: Path) -> str | None:
    try:
        return digest_of_file(path)
    except OSError:  # it is missing, or not a file
        return None


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write the tokenizer, and the files of a pretrained encoder that reads beside it."""
    write_file(folder / TOKENIZER, tokenizer.to_json().encode())
    files: Mapping[str, bytes] = {} if tokenizer.encoder is None else tokenizer.encoder.by_name()
    for name, content in files.items():
        write_file(folder / ENCODER / name, content)


def load_tokenizer(folder: Path, recipe: Recipe) -> Tokenizer:
    """The tokenizer in a folder, with the files of the pretrained encoder where the recipe has one."""
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    return tokenizer.with_encoder(EncoderFiles.read(folder / ENCODER)) if _has_encoder_files(recipe) else tokenizer


def _has_encoder_files(recipe: Recipe) -> bool:
    return isinstance(recipe.encoder, PretrainedEncoder)


def check(folder: Path) -> None:
    """Say so if a folder has not the files of a space."""
    missing = [name for name in (RECIPE, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]
    if missing and (folder / BEGUN).is_file():
        raise TextspaceError(
            f"a run began in {folder} and has no weights yet: wait for it, or continue it with textspace train SOURCE "
            f"--out {folder} --resume"
        )
    if missing:
        why = f"it has no {missing[0]}" if folder.is_dir() else "it is a file" if folder.exists() else "it is not there"
        raise TextspaceError(f"{folder} is not a trained space: {why}; train one with textspace train")


class _Undrawn(TorchFunctionMode):
    """Leaves embeddings as they are made: to draw them without memory imports all of PyTorch's compiler, a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.init.normal_:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def load(folder: Path | str, device: str = "cpu") -> Saved:
    """The recipe, tokenizer, model and metrics in a folder; nothing in it is ever executed."""
    folder = named(folder)
    check(folder)
    try:
        recipe = Recipe.load(folder / RECIPE)
        tokenizer = load_tokenizer(folder, recipe)
        tensors, digest = checkpoints.read_tensors_with_digest(folder / WEIGHTS)
        with torch.device("meta"), _Undrawn():  # so that one of another size is noticed before it takes all memory
            model = Model(recipe, len(tokenizer), tokenizer.encoder, with_start_values=False)
            checkpoints.load_weights(model, tensors, str(folder))
        damaged = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise TextspaceError(f"{folder} is damaged or no trained space ({told}): train or copy it again") from None
    if damaged:
        raise TextspaceError(f"the weights in {folder} are damaged: {damaged[0]!r} holds a number that is not finite")
    record = _record(folder)
    check_digests(folder, record, {WEIGHTS: digest})
    model = Model(recipe, len(tokenizer), tokenizer.encoder, with_start_values=False)
    checkpoints.load_weights(model, tensors, str(folder))
    return Saved(recipe, tokenizer, model.to(device).eval(), _without_digests(record))


def read_metrics(folder: Path) -> dict[str, Any]:
    """What was measured, from the record of a space; nothing where there is no record or it is damaged."""
    return _without_digests(_record(folder))


def _record(folder: Path) -> dict[str, Any]:
    """What `write_record` left; a space works without it, so a damaged one is empty, and a warning says so."""
    path = folder / METRICS
    try:
        stored = read_json(path)
        # Records of earlier versions have no digest.
        return stored if isinstance(stored, dict) and DIGEST not in stored else check_record(stored)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        warn(
            f"{path} is damaged, so its numbers are not used and the other files of the space cannot be checked: "
            "copy it again or remove it"
        )
        return {}


def _without_digests(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in (DIGESTS, DIGEST)}


def card(recipe: Recipe, tokenizer: Tokenizer, model: Model, metrics: dict[str, Any]) -> str:
    """The model card: what it is, what it was trained on, how good it is, how to use it."""
    try:
        return _card(recipe, tokenizer, model, metrics)
    except (AttributeError, LookupError, TypeError, ValueError):  # these metrics are not what training writes
        return _card(recipe, tokenizer, model, {})


def _card(recipe: Recipe, tokenizer: Tokenizer, model: Model, metrics: dict[str, Any]) -> str:
    lines = [f"# A text space: {recipe.name}", "", recipe.about or "A custom recipe.", ""]
    trained, unknown = metrics.get("trained", {}), metrics.get("unknown", {})
    facts = {
        "Trained on": metrics.get("source"),
        "Started from": metrics.get("started_from"),
        "Mixed by": f"{mixing} ({MIXING[mixing]})" if (mixing := metrics.get("mixing")) else None,
        "Code dimensions": _dimensions(recipe),
        "Sparse": _gates(recipe, metrics.get("sparsity", {})) if model.has_gates else None,
        "Encoder": f"{encoder.model}, {'frozen' if encoder.frozen else 'fine-tuned'}"
        if isinstance(encoder := recipe.encoder, PretrainedEncoder)
        else None,
        "Vocabulary": f"{len(tokenizer):,} tokens ({tokenizer.kind})",
        "Unknown tokens": ", ".join(f"{name} {share:.1%}" for name, share in unknown.items()) or None,
        "Parameters": f"{sum(model.parameter_counts().values()):,}",
        "Training": f"{trained['epochs']} epochs, {trained['steps']:,} steps, {trained['seconds']:.0f} s; "
        f"stopped: {trained['stopped']}"
        if trained
        else None,
        "Weights": kept_weights(metrics),
        "Citation": recipe.citation or None,
        "Made with": f"textspace {metrics['textspace']}" if "textspace" in metrics else None,
    }
    lines += [f"- {name}: {value}" for name, value in facts.items() if value is not None]
    for split, title in (("test", "On the test split"), ("valid", "On the validation split")):
        if split in metrics:
            lines += ["", f"## {title}", "", "| measure | value | standard error | sentences |", "|---|---|---|---|"]
            for estimate in metrics[split].values():
                value, error = value_and_error(estimate["value"], estimate["stderr"])
                name = estimate["name"].replace("|", "\\|")
                lines.append(f"| {name} | {value} | {error} | {estimate['n']:,} |")
            lines += card_lines(metrics, split)
            break
    lines += [
        "",
        "## Use",
        "",
        "```python",
        "from textspace import Space",
        "",
        'space = Space.load("this folder")',
        'codes = space.encode(["a sentence", "another one"])' if recipe.posterior else "print(space.sample(5))",
        *(["print(space.decode(codes))"] if recipe.posterior else []),
        "```",
        "",
    ]
    return "\n".join(lines)


def kept_weights(metrics: Mapping[str, Any]) -> str | None:
    """Which weights a space has, by which number they were kept, and what that was at the end of the run."""
    try:
        trained = metrics.get("trained")
        if "kept" not in metrics and trained is not None:  # of an earlier version
            return f"kept at step {trained['best_step']:,}; {trained['criterion']}: {number(trained['best'])}"
        kept = metrics["kept"]
        value = number(kept["value"])
        words = f"kept after epoch {kept['epoch']:g} (step {kept['step']:,}); {kept['criterion']}: {value}"
        if trained is None:
            return f"{words}; the run has not finished"
        if trained["steps"] == kept["step"]:
            return words
        return f"{words} (at the end of the run, step {trained['steps']:,}: {number(trained['last'])})"
    except (AttributeError, LookupError, TypeError, ValueError):  # there is nothing, or not what training writes
        return None


def _dimensions(recipe: Recipe) -> str:
    if recipe.posterior is None:
        return "none (a language model)"
    return f"{recipe.latent.dim}, and every token has a code" if recipe.is_token_level else str(recipe.latent.dim)


def _gates(recipe: Recipe, sparsity: dict[str, Any]) -> str:
    """Where gates come from, and the share of dimensions off that was asked for and came of it, where known."""
    prior = recipe.prior
    source = f"from Beta({prior.alpha:g}, {prior.beta:g})" if isinstance(prior, BetaGatedPrior) else "of each sentence"
    told = (("asked", "share off asked for"), ("achieved", "achieved"))
    shares = [f"{words} {sparsity[name]:.3f}" for name, words in told if sparsity.get(name) is not None]
    return "; ".join([f"gates {source}", *([", ".join(shares)] if shares else [])])
