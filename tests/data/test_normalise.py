"""Normalisers: what each drops, what it must leave alone, and their order."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textspace.data.normalise import NORMALISERS, normaliser, one_line
from textspace.errors import TextspaceError


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lower", "The  İstanbul CAFÉ", "the  i̇stanbul café"),
        ("ascii", "naïve 😀 café", "nave caf"),
        ("ascii", "two  blanks stay", "two  blanks stay"),
        ("quotes", 'he said "yes" and “no”, «oui» „ja“', "he said yes and no, oui ja"),
        ("quotes", "`` produced `` no evidence '' of it", "produced no evidence of it"),
        ("quotes", "don't, don’t, the dogs' 's", "don't, don’t, the dogs' 's"),
        ("links", "see http://a.bc/d?e=f#g, or (https://x.y).", "see , or ()."),
        ("links", "WWW.Example.com is it, awww.cute is not", "is it, awww.cute is not"),
        ("links", '<a href="http://a.bc">text</a>', '<a href="">text</a>'),
        ("html", "<b>Good</b>. One<br/>two <a href='x'>link</a>", "Good. One two link"),
        ("html", '<p class="x">Fish &amp; chips&nbsp;&lt;b&gt;</p><!-- no -->', "Fish & chips <b>"),
        ("html", "the <unk> of 3 < 4 and 5 > 4 <bold>", "the <unk> of 3 < 4 and 5 > 4 <bold>"),
    ],
)
def test_each_normaliser(name: str, text: str, expected: str) -> None:
    assert NORMALISERS[name](text) == expected


def test_order_is_as_given() -> None:
    text = "&quot;Hi&quot;"
    assert normaliser(["html", "quotes"])(text) == "Hi"
    assert normaliser(["quotes", "html"])(text) == '"Hi"'


def test_one_name_may_stand_alone() -> None:
    assert normaliser("lower")("ABC") == "abc"


def test_without_names_only_line_ends_go() -> None:
    clean = normaliser([])
    assert clean("  A \t\u2028 b\x0b ") == "  A \t\u2028 b\x0b "
    assert clean("\r\nfirst\r\n\nsecond\rthird\n") == "first second third"


def test_unescaped_line_ends_go_too() -> None:
    assert normaliser(["html"])("a&#10;b") == "a b"


def test_unknown_name() -> None:
    with pytest.raises(TextspaceError, match=r"^there is no normaliser 'lowr'; did you mean 'lower'\?$"):
        normaliser(["lowr"])


def test_can_be_sent_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(normaliser(["html", "lower"])))("<p>A") == "a"  # noqa: S301


@given(st.text(), st.lists(st.sampled_from(sorted(NORMALISERS)), max_size=4))
def test_never_fails_and_always_leaves_one_line(text: str, names: list[str]) -> None:
    cleaned = normaliser(names)(text)
    assert not {"\r", "\n"} & set(cleaned)
    if "ascii" in names and "html" not in names and names[-1] == "ascii":
        assert cleaned.isascii()
    assert one_line(cleaned) == cleaned
