"""The page: one file that fetches nothing, in which no text of the user's becomes markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from textspace.features import Association, Dimension, Effect, Example, Features, Probe, Side, Word
from textspace.features.page import difference, page
from textspace.types import Estimate

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</style></script><b>bold</b> & &amp;",
    "' onmouseover='alert(3)",
]
EMPTY = {"meta", "link", "br", "img", "input", "hr"}


class Parsed(HTMLParser):
    """Tags with their attributes, all text by tag, and whether everything is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len(dict(attributes)) == len(attributes)
        self.tags.append((tag, dict(attributes)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def features(gated: bool = True) -> Features:
    """Every text of every kind is nasty."""
    words = tuple(Word(text, 9.0 - place, 2.0, 40, 3) for place, text in enumerate(NASTY))
    examples = tuple(Example(text, 7, -1.5, 1.4, 0.9 if gated else None, NASTY[0]) for text in NASTY * 2)
    names = ("on", "off") if gated else ("high", "low")
    sides = tuple(Side(name, 50, 1.0, words, examples) for name in names)  # type: ignore[arg-type]
    shares = dict.fromkeys(NASTY, 0.25)
    labels = Association(0.4, 0.01, 0.001, 1000, 100, NASTY[1], 3.0, shares)
    effects = tuple(
        Effect(place, names[0], names[1], 1.0, 0.0, f"{text} now", True)  # type: ignore[arg-type]
        for place, text in enumerate(NASTY)
    )
    alive = Dimension(0, "varies", 0.5 if gated else None, 0.1, 0.4, sides, labels, effects)
    ends = tuple(Side(name, 50, 1.0, words, examples) for name in ("high", "low"))  # type: ignore[arg-type]
    always = Dimension(1, "always on" if gated else "varies", 1.0 if gated else None, 0.1, 0.4, ends, None, ())
    still = (replace(effects[0], changed=False),)
    unchanged = Dimension(2, "varies", 0.5 if gated else None, 0.1, 0.4, sides, replace(labels, p=0.7), still)
    dead = Dimension(3, "dead", 0.0 if gated else None, 0.0, 0.0, (), None, ())
    return Features(
        space=NASTY[2],
        gated=gated,
        sentences=100,
        of=2_000,
        classes=dict.fromkeys(NASTY, 25),
        dimensions=(alive, always, unchanged, dead),
        probes=tuple(Probe(text, text, (0,)) for text in NASTY),
        on_per_sentence=Estimate("on", 1.5, 0.1, 100, "none", None, {}) if gated else None,
        notes=(NASTY[0],),
        settings={"seed": 0, "prior_words": 500.0},
    )


@pytest.fixture(params=[True, False], ids=["gated", "dense"])
def text(request: pytest.FixtureRequest) -> str:
    return page(features(request.param), NASTY[1])


def test_no_text_becomes_markup(text: str) -> None:
    parsed = Parsed(text)
    assert len(parsed.of("script")) == 1
    assert len(parsed.of("style")) == 1
    assert not parsed.of("img")
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    # Bold are only the words of a side within its sentences, and figures: nobody's own markup.
    assert "bold" not in parsed.texts.get("b", [])
    said = "".join(piece for pieces in parsed.texts.values() for piece in pieces)
    for nasty in NASTY:
        assert nasty in said
    assert parsed.texts["title"] == [f"Dimensions of {NASTY[1]}"]


def test_nothing_is_fetched(text: str) -> None:
    parsed = Parsed(text)
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttp", text.replace(NASTY[1], ""))
    assert not [name for _, attributes in parsed.tags for name in attributes if name in ("src", "srcset", "action")]
    assert all((each["href"] or "").startswith("#d") for each in parsed.of("a"))
    policies = [each["content"] for each in parsed.of("meta") if "http-equiv" in each]
    assert len(policies) == 1
    assert (policies[0] or "").startswith("default-src 'none'")


def test_the_script_finds_what_it_needs_and_makes_no_markup(text: str) -> None:
    parsed = Parsed(text)
    script = "".join(parsed.texts["script"])
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'getElementById\("(\w+)"\)', script)) <= set(ids)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    cards = parsed.of("article")
    assert [each["data-number"] for each in cards] == ["0", "1", "2", "3"]
    orders = {each["value"] for each in parsed.of("option")} & {"number", "activity", "labels", "words", "effects"}
    assert len(orders) == 5
    for each in cards:
        assert all(float(each[f"data-{order}"] or "") > -2 for order in orders)


def test_cards_say_what_was_found() -> None:
    text = page(features(), "space")
    assert "read in 100 of 2,000 sentences, drawn at random" in text
    assert 'Always on: <a href="#d1">1</a>' in text
    assert 'Dead: <a href="#d3">3</a>' in text
    assert "on in 50.0% of sentences, usually at +1.00" in text
    assert "Switching it changes nothing in the sentences tried." in text
    assert "says hardly more than shuffled labels would" in text
    assert "−1.50" in text
    assert "4 more" in text


def test_a_dense_page_speaks_of_ends() -> None:
    text = page(features(gated=False), "space")
    assert "read by its two ends" in text
    assert "variance 0.4" in text
    assert "always on</option>" not in text


def test_differences_are_shown_word_by_word() -> None:
    assert difference("a b c", "a b c") == "a b c"
    assert difference("a b c", "a c") == "a <del>b</del> c"
    assert difference("a", "a b") == "a <ins>b</ins>"
    assert difference("", "<i>") == "<ins>&lt;i&gt;</ins>"
    assert difference("x & y", "x & z") == "x &amp; <del>y</del> <ins>z</ins>"
