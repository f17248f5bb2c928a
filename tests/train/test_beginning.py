"""What a run notes of its start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from textspace import folder as folders
from textspace.errors import TextspaceError
from textspace.recipes import RECIPES
from textspace.train.beginning import Noted
from textspace.train.resuming import as_first_written


def test_a_note_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "begun.json"
    assert Noted.read(tmp_path) is None
    for make in (
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_text('{"a":' * 100_000),
        lambda path: path.write_text("[1]"),
        lambda path: path.write_text('{"data": "x", "more": 1}'),
    ):
        make(path)
        with pytest.raises(TextspaceError, match=r"begun.json is damaged: start anew in another folder"):
            Noted.read(tmp_path)
        path.unlink()
    Noted("fingerprint", mixing="all").write(tmp_path)
    assert Noted.read(tmp_path) == Noted("fingerprint", mixing="all")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("vae", "decoder.first_state", "zero"),
        ("vae", "posterior.deviation", "softplus"),
        ("wae", "objective.per", "dimension"),
        ("vat", "prior.noise", "scale"),
    ],
)
def test_keys_know_of_a_later_option_only_where_it_is_in_use(name: str, option: str, value: str) -> None:
    first, changed = (as_first_written(each.to_json()) for each in (RECIPES[name], RECIPES[name].but({option: value})))
    last = option.split(".")[-1]
    assert f'"{last}": "{value}"' in changed
    assert changed.count(f'"{last}": ') == first.count(f'"{last}": ') + 1
    lines = [line for line in changed.splitlines() if f'"{last}": "{value}"' not in line]
    assert "\n".join(lines) == first.rstrip("\n")


def test_a_changed_character_of_what_a_run_began_with_is_noticed(tmp_path: Path) -> None:
    Noted("data", sketch="2:abc").write(tmp_path)
    assert Noted.read(tmp_path) == Noted("data", sketch="2:abc")
    with pytest.raises(TextspaceError, match=r"a run began in .* and has no weights yet: wait for it, or continue it"):
        folders.check(tmp_path)
    path = tmp_path / "begun.json"
    path.write_text(path.read_text().replace("2:abc", "2:abd"))
    with pytest.raises(TextspaceError, match=r"begun.json is damaged: start anew in another folder"):
        Noted.read(tmp_path)
    path.write_text('{"data": "of an earlier version"}')
    assert Noted.read(tmp_path) == Noted("of an earlier version")
