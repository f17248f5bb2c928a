"""A saved space: the same when read back, and an error of one line when its files are damaged, foreign or hostile."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import re
import shutil
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import command, one_warning, small, tiny_sentences
from safetensors.torch import load_file, save_file

from textspace import folder as folders
from textspace.digits import value_and_error
from textspace.errors import TextspaceError
from textspace.recipes import RECIPES
from textspace.space import Space

FILES = {"recipe.json", "model.safetensors", "tokenizer.json", "metrics.json", "README.md"}
NEEDED = ["recipe.json", "tokenizer.json", "model.safetensors"]
TEXTS = ["anna sees cats", "bob likes dogs birds", "carl", "dora hears rivers songs stones", "anna sees cats"]
KINDS: dict[str, Any] = {
    "words": small(RECIPES["vae"]),
    "subwords": small(RECIPES["default"]).but({"text.tokenizer": {"kind": "bpe", "size": 270}}),
    "autoencoder": small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"}),
    "language model": small(RECIPES["lstm-lm"]),
}


@pytest.fixture(scope="module")
def spaces(_own_cache: None) -> dict[str, Space]:
    return {
        kind: Space.fit(tiny_sentences(90), recipe.but({"training.epochs": 1}), device="cpu")
        for kind, recipe in KINDS.items()
    }


@pytest.fixture(scope="module")
def saved(spaces: dict[str, Space], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "space"
    spaces["words"].save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(saved, tmp_path / "space"))


def refusal(folder: Path) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(TextspaceError) as caught:
        Space.load(folder, "cpu")
    told = str(caught.value)
    assert told
    assert "\n" not in told
    return told


# Read back


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_back_is_the_same_to_the_last_bit(kind: str, spaces: dict[str, Space], tmp_path: Path) -> None:
    space = spaces[kind]
    space.save(tmp_path / "new" / "space")
    assert {path.name for path in (tmp_path / "new" / "space").iterdir()} == FILES
    again = Space.load(str(tmp_path / "new" / "space"), "cpu")
    assert repr(again) == repr(space)
    assert (again.recipe, again.metrics) == (space.recipe, space.metrics)
    assert again.metrics["trained"]["epochs"] == 1
    assert not again.model.training
    one, other = space.score(TEXTS, samples=5), again.score(TEXTS, samples=5)
    np.testing.assert_array_equal(one.nll_N, other.nll_N)
    np.testing.assert_array_equal(np.concatenate(one.tokens), np.concatenate(other.tokens))
    assert space.sample(4, seed=1) == again.sample(4, seed=1)
    if kind != "language model":
        for what in ("mean", "sample"):
            np.testing.assert_array_equal(space.encode(TEXTS, what=what), again.encode(TEXTS, what=what))
        assert space.reconstruct(TEXTS) == again.reconstruct(TEXTS)
        assert space.neighbors("anna", TEXTS) == again.neighbors("anna", TEXTS)


def test_saving_over_a_space_replaces_it(spaces: dict[str, Space], folder: Path) -> None:
    spaces["autoencoder"].save(folder)
    assert Space.load(folder, "cpu").recipe == spaces["autoencoder"].recipe
    assert {path.name for path in folder.iterdir()} == FILES


def test_a_space_in_double_precision_is_read_back_in_single(folder: Path) -> None:
    codes = Space.load(folder, "cpu").encode(TEXTS)
    double = Space.load(folder, "cpu")
    double.model.double()
    double.save(folder)
    np.testing.assert_array_equal(Space.load(folder, "cpu").encode(TEXTS), codes)


def test_a_place_that_cannot_be_written_is_told(spaces: dict[str, Space], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, told in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "space", "Not a directory")):
        with pytest.raises(TextspaceError, match=told) as caught:
            spaces["words"].save(place)
        assert "\n" not in str(caught.value)


def test_the_card_says_what_the_space_is_and_how_good(spaces: dict[str, Space], saved: Path) -> None:
    card = (saved / "README.md").read_text()
    elbo = spaces["words"].metrics["test"]["elbo"]
    value, error = value_and_error(elbo["value"], elbo["stderr"])
    assert card.startswith("# A text space: vae\n")
    for line in (
        "- Trained on: sentences",
        "- Code dimensions: 4",
        "- Vocabulary: 18 tokens (words)",
        f"- Parameters: {sum(spaces['words'].model.parameter_counts().values()):,}",
        f"- Citation: {RECIPES['vae'].citation}",
        f"| negative ELBO, upper bound on NLL | {value} | {error} | {elbo['n']} |",
    ):
        assert line in card.splitlines()
    model = spaces["language model"]
    other = folders.card(model.recipe, model.tokenizer, model.model, model.metrics)
    assert "- Code dimensions: none (a language model)" in other


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_in_the_card_runs(kind: str, spaces: dict[str, Space], tmp_path: Path) -> None:
    spaces[kind].save(tmp_path / "this folder")
    code = re.search(r"```python\n(.*?)```", (tmp_path / "this folder" / "README.md").read_text(), re.DOTALL)
    assert code
    printed = io.StringIO()
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a sentence" is not in this vocabulary
        exec(code[1], {})
    assert len(eval(printed.getvalue())) == (5 if kind == "language model" else 2)


# Damaged, foreign and hostile files


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change a JSON file's content."""

    def edit(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        change(data)
        (folder / name).write_text(json.dumps(data))

    return edit


def written(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def reweighted(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return edit


def in_four_bits(folder: Path) -> None:
    """Numbers of a type that the format knows and torch does not."""
    header = b'{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}   '
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")


def words_of(data: dict[str, Any]) -> dict[str, int]:
    return data["model"]["vocab"]


RUINED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no recipe": (lambda folder: (folder / "recipe.json").unlink(), "is not a trained space: it has no recipe.json"),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "is not a trained space: it has no model.safetensors",
    ),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        "is not a trained space: it has no tokenizer.json",
    ),
    "nothing": (shutil.rmtree, "is not a trained space: it is not there"),
    "a newer format": (
        edited("recipe.json", lambda recipe: recipe.update(format=99, novelty={"kind": "new"})),
        "the recipe has format 99 and this version of textspace reads up to 1: update textspace",
    ),
    "a newer format of everything": (
        lambda folder: (
            edited("recipe.json", lambda recipe: recipe.update(format=2))(folder),
            written("tokenizer.json", b"new")(folder),
        ),
        "the recipe has format 2 and this version of textspace reads up to 1: update textspace",
    ),
    "format 0": (edited("recipe.json", lambda recipe: recipe.update(format=0)), "format is 0, but input should be 1"),
    "an unknown field": (
        edited("recipe.json", lambda recipe: recipe["latent"].update(dims=3)),
        "recipe has no option 'latent.dims'; did you mean 'latent.dim'?",
    ),
    "a recipe that is a list": (written("recipe.json", b"[1, 2]"), "the recipe is [1, 2], but input should be"),
    "a recipe cut short": (
        lambda folder: written("recipe.json", (folder / "recipe.json").read_bytes()[:99])(folder),
        "recipe.json' is not JSON",
    ),
    "a recipe of bytes": (written("recipe.json", b"\xff\xfe\x00"), "cannot read the recipe"),
    "a recipe nested deep": (written("recipe.json", b"[" * 100_000), "recipe.json' is not JSON"),
    "a recipe of an endless number": (written("recipe.json", b"1" * 10_000), "recipe.json' is not JSON"),
    "a recipe of another size": (
        edited("recipe.json", lambda recipe: recipe["latent"].update(dim=5)),
        "are of another model: 'posterior.mean.weight' has shape (4, 16) there and (5, 16) here",
    ),
    "a recipe larger than memory": (
        edited("recipe.json", lambda recipe: recipe["decoder"].update(hidden=10**8)),
        "are of another model",
    ),
    "a recipe larger than numbers": (
        edited("recipe.json", lambda recipe: recipe["latent"].update(dim=10**30)),
        "latent.dim is 1000000000000000000000000000000, but input should be less than or equal to 2147483647",
    ),
    "a recipe of another kind": (
        edited("recipe.json", lambda recipe: recipe.update(encoder=None, pooling=None, posterior=None, prior=None)),
        "is in only one of the two",
    ),
    "no weights in the file": (written("model.safetensors", b""), "cannot read the weights in"),
    "zeros for weights": (written("model.safetensors", bytes(1000)), "cannot read the weights in"),
    "a huge header": (written("model.safetensors", b"\xff" * 100), "cannot read the weights in"),
    "weights of a strange type": (in_four_bits, "is damaged or no trained space ('F4')"),
    "a weight too many": (
        reweighted(lambda tensors: tensors.update(extra=torch.zeros(3))),
        "are of another model: 'extra' is in only one of the two",
    ),
    "a weight too few": (
        reweighted(lambda tensors: tensors.pop("posterior.mean.bias")),
        "are of another model: 'posterior.mean.bias' is in only one of the two",
    ),
    "weights of another shape": (
        reweighted(lambda tensors: tensors.update({"posterior.mean.bias": torch.zeros(3)})),
        "are of another model: 'posterior.mean.bias' has shape (3,) there and (4,) here",
    ),
    "a weight that is no number": (
        reweighted(lambda tensors: tensors["posterior.mean.bias"].fill_(torch.nan)),
        "are damaged: 'posterior.mean.bias' holds a number that is not finite",
    ),
    "a tokenizer that is none": (written("tokenizer.json", b'{"words": []}'), "is not a Textspace tokenizer"),
    "a tokenizer of bytes": (written("tokenizer.json", b"\xff\xfe\x00"), "is not a Textspace tokenizer"),
    "a tokenizer nested deep": (written("tokenizer.json", b"[" * 100_000), "is not a Textspace tokenizer"),
    "a tokenizer of other specials": (
        edited("tokenizer.json", lambda data: data.update(added_tokens=[]) or words_of(data).pop("<pad>")),
        "is not a Textspace tokenizer",
    ),
    "a word more than weights": (
        edited("tokenizer.json", lambda data: words_of(data).update(extra=len(words_of(data)))),
        "are of another model: 'encoder.embedding.weight' has shape (18, 12) there and (19, 12) here",
    ),
    "a word less than weights": (
        edited("tokenizer.json", lambda data: words_of(data).popitem()),
        "are of another model: 'encoder.embedding.weight' has shape (18, 12) there and (17, 12) here",
    ),
}


@pytest.mark.parametrize("ruin", RUINED)
def test_a_damaged_folder_is_refused_in_one_line(ruin: str, folder: Path) -> None:
    change, told = RUINED[ruin]
    change(folder)
    assert told in refusal(folder)


def test_a_file_is_not_a_space(saved: Path) -> None:
    assert "is not a trained space" in refusal(saved / "recipe.json")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.9999])
def test_truncated_weights_are_refused(share: float, folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: int(share * len(whole))])
    assert "cannot read the weights in" in refusal(folder)


class Trap:
    """Unpickled, it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("name", [*NEEDED, "metrics.json"])
@pytest.mark.parametrize("packed", ["pickle", "torch"])
def test_nothing_in_a_folder_is_executed(name: str, packed: str, folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trap = pickle.dumps(Trap(trace))
    if packed == "torch":
        buffer = io.BytesIO()
        torch.save({"weight": Trap(trace)}, buffer)
        trap = buffer.getvalue()
    (folder / name).write_bytes(trap)
    for other in ("__init__.py", "conftest.py", "modeling.py", "sitecustomize.py"):
        (folder / other).write_text(f"import os; os.mkdir({str(trace)!r})")
    with contextlib.chdir(folder):
        if name == "metrics.json":
            check_that_metrics_are_damaged(folder)
        else:
            refusal(folder)
    assert not trace.exists()
    if packed == "pickle":  # the trap itself works
        pickle.loads(trap)  # noqa: S301
        assert trace.exists()


def flipped(whole: bytes, chance: random.Random, room: int) -> bytes:
    """With one bit of the first `room` bytes changed."""
    damaged = bytearray(whole)
    damaged[chance.randrange(room)] ^= 1 << chance.randrange(8)
    return bytes(damaged)


@pytest.mark.parametrize("name", NEEDED)
def test_any_flipped_bit_is_refused_in_one_line(name: str, folder: Path) -> None:
    whole = (folder / name).read_bytes()
    chance = random.Random(name)
    header = 8 + int.from_bytes(whole[:8], "little") if name == "model.safetensors" else len(whole)
    told = []
    for room in (header, len(whole)):
        for _ in range(30):
            (folder / name).write_bytes(flipped(whole, chance, room))
            told.append(refusal(folder))
    saved_otherwise = f"{folder / name} is not the file that was saved with this space: copy or train the space again"
    assert any(each.startswith(saved_otherwise) for each in told)


def test_swapped_words_are_refused(folder: Path) -> None:
    def swap(data: dict[str, Any]) -> None:
        words = words_of(data)
        words["anna"], words["bob"] = words["bob"], words["anna"]

    codes = Space.load(folder, "cpu").encode(TEXTS)
    edited("tokenizer.json", swap)(folder)
    assert refusal(folder) == (
        f"{folder / 'tokenizer.json'} is not the file that was saved with this space: copy or train the space again, "
        f"or remove {folder / 'metrics.json'} to use the file as it is"
    )
    (folder / "metrics.json").unlink()
    assert not np.array_equal(Space.load(folder, "cpu").encode(TEXTS), codes)


def test_the_command_refuses_a_changed_space_with_status_2(folder: Path) -> None:
    edited("recipe.json", lambda recipe: recipe.update(about="Mine."))(folder)
    code, out, err = command("info", str(folder))
    assert (code, out) == (2, "")
    assert err.startswith(f"textspace: {folder / 'recipe.json'} is not the file that was saved with this space")
    assert len(err.splitlines()) == 1


def test_saving_records_the_digests_of_what_is_there(spaces: dict[str, Space], folder: Path) -> None:
    record = json.loads((folder / "metrics.json").read_text())
    assert record["digests"] == {name: sha256((folder / name).read_bytes()).hexdigest() for name in NEEDED}
    spaces["subwords"].save(folder)
    again = json.loads((folder / "metrics.json").read_text())
    assert again["digests"] == {name: sha256((folder / name).read_bytes()).hexdigest() for name in NEEDED}
    assert again["digests"] != record["digests"]


def test_people_may_edit_the_model_card(folder: Path) -> None:
    (folder / "README.md").write_text("Mine.")
    Space.load(folder, "cpu")


@pytest.mark.parametrize("changed", [None, *NEEDED])
def test_a_space_of_an_earlier_version_has_no_digests(changed: str | None, folder: Path) -> None:
    metrics = Space.load(folder, "cpu").metrics
    (folder / "metrics.json").write_text(json.dumps(metrics))
    if changed and changed.endswith(".json"):
        edited(changed, lambda data: None)(folder)  # the same in another layout
    elif changed:
        reweighted(lambda tensors: next(iter(tensors.values())).add_(1))(folder)
    assert Space.load(folder, "cpu").metrics == metrics


@pytest.mark.parametrize("digests", [None, [], "x", 5, {}, {"../x": "y"}])
def test_digests_that_are_none_check_nothing(digests: Any, folder: Path) -> None:
    metrics = Space.load(folder, "cpu").metrics
    (folder / "metrics.json").write_text(json.dumps(metrics | {"digests": digests}))
    assert Space.load(folder, "cpu").metrics == metrics


def test_a_missing_file_is_not_the_recorded_one(folder: Path) -> None:
    record = {"digests": folders.record_digests(folder)}
    folders.check_digests(folder, record)
    (folder / "model.safetensors").unlink()
    assert set(folders.record_digests(folder)) == {"recipe.json", "tokenizer.json"}
    with pytest.raises(TextspaceError, match=r"model\.safetensors is not the file that was saved"):
        folders.check_digests(folder, record)


def test_a_space_works_without_its_metrics(folder: Path) -> None:
    codes = Space.load(folder, "cpu").encode(TEXTS)
    (folder / "metrics.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space = Space.load(folder, "cpu")
    assert space.metrics == {}
    np.testing.assert_array_equal(space.encode(TEXTS), codes)


def linked_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"1" * 10_000]
    + [os.mkfifo, linked_to_zeros, Path.mkdir],
    ids=["empty", "cut", "list", "bytes", "cut deep", "nested deep", "endless number", "pipe", "device", "folder"],
)
def test_damaged_metrics_are_reported_and_not_used(content: bytes | Callable[[Path], None], folder: Path) -> None:
    codes = Space.load(folder, "cpu").encode(TEXTS)
    path = folder / "metrics.json"
    path.unlink()
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    np.testing.assert_array_equal(check_that_metrics_are_damaged(folder).encode(TEXTS), codes)


def check_that_metrics_are_damaged(folder: Path) -> Space:
    """One line says so."""
    with one_warning(
        f"{folder / 'metrics.json'} is damaged, so its numbers are not used and the other files of the space cannot be "
        "checked: copy it again or remove it"
    ):
        space = Space.load(folder, "cpu")
    assert space.metrics == {}
    return space


def test_a_flipped_bit_in_the_metrics_is_noticed(folder: Path) -> None:
    path = folder / "metrics.json"
    whole = path.read_bytes()
    value = whole.index(b'"value": ') + len('"value": ')
    path.write_bytes(whole[:value] + bytes([whole[value] ^ 1]) + whole[value + 1 :])
    check_that_metrics_are_damaged(folder)
    digest = whole.index(b'"model.safetensors": "') + len('"model.safetensors": "')
    path.write_bytes(whole[:digest] + bytes([whole[digest] ^ 1]) + whole[digest + 1 :])
    check_that_metrics_are_damaged(folder)


@pytest.mark.parametrize(
    "metrics",
    [{"trained": 5}, {"trained": {"epochs": 1}}, {"test": [1]}, {"test": {"elbo": {"stderr": "x"}}}, {"source": None}],
    ids=str,
)
def test_strange_metrics_are_kept_but_not_on_the_card(metrics: dict[str, Any], folder: Path) -> None:
    (folder / "metrics.json").write_text(json.dumps(metrics))
    Space.load(folder, "cpu").save(folder)
    assert Space.load(folder, "cpu").metrics == metrics
    card = (folder / "README.md").read_text()
    assert "- Code dimensions: 4" in card
    assert "Trained on" not in card
