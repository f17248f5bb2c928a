"""Marked words: what is marked, where it is after the clean-up, and which tokens it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers import tiny_sentences
from tiny_encoder import tiny_encoder

from textspace.config import BPETokenizer, PretrainedEncoder, UnigramTokenizer, WordTokenizer
from textspace.data.encoded import EncodedSplit
from textspace.data.normalise import normaliser
from textspace.data.tokenizers import Tokenizer, train_tokenizer
from textspace.errors import TextspaceError
from textspace.marks import Marked, cleaned, marked, marks_in, token_positions, words_marked
from textspace.pretrained import EncoderFiles

KINDS = {"words": WordTokenizer(), "bpe": BPETokenizer(size=280), "unigram": UnigramTokenizer(size=280)}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(KINDS[request.param], tiny_sentences(100))


def told(call: Callable[[], object]) -> str:
    with pytest.raises(TextspaceError) as caught:
        call()
    return str(caught.value)


def marked_parts(found: Marked) -> list[str]:
    return [found.text[start:end] for start, end in found.spans]


# Brackets


@pytest.mark.parametrize(
    ("written", "text", "parts"),
    [
        ("anna sees cats", "anna sees cats", []),
        ("anna [sees] cats", "anna sees cats", ["sees"]),
        ("[anna] sees [cats]", "anna sees cats", ["anna", "cats"]),
        ("[anna sees cats]", "anna sees cats", ["anna sees cats"]),
        ("c[at]s", "cats", ["at"]),
        ("[ anna\t] sees", " anna\t sees", ["anna"]),
        (r"\[anna\] [\[sees\]] ca\ts", r"[anna] [sees] ca\ts", ["[sees]"]),
        ("[cats][dogs]", "catsdogs", ["cats", "dogs"]),
    ],
)
def test_brackets_are_taken_out_and_mark(written: str, text: str, parts: list[str]) -> None:
    found = marked(written)
    assert found.text == text
    assert marked_parts(found) == parts


def test_wrong_brackets_are_told() -> None:
    plain = r"or write \[ and \] for plain brackets"
    put = f"put each word to vary between [ and ], {plain}"
    assert told(lambda: marked("anna [sees")) == (
        f"a mark is never closed in 'anna [sees': put a ] after the word to vary, {plain}"
    )
    assert (
        told(lambda: marked("anna [sees [cats]]")) == f"a mark opens inside of another in 'anna [sees [cats]]': {put}"
    )
    assert told(lambda: marked("anna sees]")) == f"a mark is closed that was never opened in 'anna sees]': {put}"
    for empty in ("anna [] cats", "anna [ ] cats"):
        assert told(lambda empty=empty: marked(empty)) == (
            f"a mark is empty: put a word to vary between [ and ], {plain}"
        )


# The clean-up


@pytest.mark.parametrize(
    ("names", "written", "text", "parts"),
    [
        (("lower",), "Anna [SEES] İ [Cats]", "anna sees i̇ cats", ["sees", "cats"]),
        (("html",), "<b>Fish &amp; [chips &amp; more]</b> <i>and</i> [ale]", "Fish & chips & more and ale", None),
        (("ascii",), "naïve [café  crème] now", "nave caf crme now", ["caf crme"]),
        (("quotes",), 'the "[soup]" was [ “cold” ] .', "the soup was cold .", ["soup", "cold"]),
        ((), "anna\n[sees]\n", "anna sees", ["sees"]),
        (("links",), "see www.x.org for [it]", "see for it", ["it"]),
    ],
)
def test_marks_keep_their_words_through_the_clean_up(
    names: tuple[str, ...], written: str, text: str, parts: list[str] | None
) -> None:
    found = cleaned(marked(written), normaliser(names))
    assert found.text == text == normaliser(names)(marked(written).text)
    assert marked_parts(found) == (parts or ["chips & more", "ale"])


def test_marks_that_the_clean_up_breaks_are_told() -> None:
    for written, names, read in (
        ("see [www].x.org now", ["links"], "see now"),
        ('the ["] soup', ["quotes"], "the soup"),
        ('the "["]soup', ["quotes"], "the soup"),
    ):
        assert told(lambda written=written, names=names: cleaned(marked(written), normaliser(names))) == (
            f"the clean-up of this space changes or drops what is marked: mark words of what it reads, {read!r}"
        )


# Words by name


def test_words_are_found_wherever_they_are_whole() -> None:
    text = "cats , dogs and CATS but no catsup ."
    assert marked_parts(words_marked(text, ["cats", "dogs"], str.lower)) == ["cats", "cats", "dogs"]
    assert marked_parts(words_marked(text, "Dogs and", str.lower)) == ["dogs and"]
    assert marked_parts(words_marked("great.", ["."], str)) == ["."]
    assert marked_parts(words_marked("a+b (a+b)", ["a+b"], str)) == ["a+b", "a+b"]


def test_words_that_are_not_there_are_told() -> None:
    give = "give words of the sentence"
    assert (
        told(lambda: words_marked("anna sees cats", ["dogs"], str)) == f"there is no 'dogs' in 'anna sees cats': {give}"
    )
    assert (
        told(lambda: words_marked("anna sees cats", ["cat"], str)) == f"there is no 'cat' in 'anna sees cats': {give}"
    )
    assert told(lambda: words_marked("anna", [""], str)) == f"'' is no word to vary: {give}"
    assert told(lambda: words_marked("anna", [3], str)) == f"3 is no word to vary: {give}"  # type: ignore[list-item]
    assert told(lambda: words_marked("anna", [], str)) == (
        "there is no word to vary: give at least one, or leave tokens out to vary all"
    )


def test_with_words_by_name_brackets_are_plain() -> None:
    assert marks_in("the [Sic] cats", ["[sic]"], str.lower) == ("the [Sic] cats", Marked("the [sic] cats", [(4, 9)]))
    assert marks_in("the [Sic] cats", None, str.lower) == ("the Sic cats", Marked("the sic cats", [(4, 7)]))


# Tokens


def positions(written: str, tokenizer: Tokenizer, max_tokens: int | None = None) -> list[int]:
    found = marked(written)
    return token_positions(found, EncodedSplit.of([found.text], tokenizer, max_tokens), tokenizer)


def test_positions_are_those_of_the_marked_words_tokens(tokenizer: Tokenizer) -> None:
    """Against the tokens of all that comes before a word, and of all up to its end."""
    text = "dora hears rivers stones songs"
    for number, word in enumerate(text.split()):
        before = " ".join(text.split()[:number])
        upto = " ".join(text.split()[: number + 1])
        counts = [len(ids) for ids in tokenizer.encode([before, upto])]
        found = positions(upto.replace(word, f"[{word}]") + text.removeprefix(upto), tokenizer)
        assert found[-1] == counts[1]  # the start token is position 0
        # A subword tokenizer may have a blank before a word as a token of its own.
        assert found in (list(range(counts[0] + first, counts[1] + 1)) for first in (1, 2))


def test_tokens_that_are_marked_in_part_count_whole(tokenizer: Tokenizer) -> None:
    assert positions("an[n]a sees", tokenizer)[0] >= 1
    assert set(positions("an[n]a sees", tokenizer)) <= set(positions("[anna] sees", tokenizer))
    whole = positions("[anna sees] cats", tokenizer)
    assert whole == list(range(1, len(tokenizer.encode(["anna sees"])[0]) + 1))
    assert positions("[anna] [sees] cats", tokenizer)[-1] == whole[-1]


def test_marks_behind_the_cut_are_told(tokenizer: Tokenizer) -> None:
    count = len(tokenizer.encode(["anna sees"])[0])
    assert positions("anna [sees] cats", tokenizer, count)[-1] == count
    told_of_cats = f"'cats' lies behind the {count} tokens that this space reads of the sentence: shorten it"
    assert told(lambda: positions("anna [sees] [cats]", tokenizer, count)) == told_of_cats
    if tokenizer.kind != "words":
        inside = f"{len(tokenizer.encode(['dora rivers'])[0]) - 1} tokens that this space reads"
        assert inside in told(lambda: positions("dora [rivers]", tokenizer, int(inside.split()[0])))


def test_a_pretrained_encoders_own_tokens_count(tokenizer: Tokenizer) -> None:
    files = EncoderFiles.fetch(PretrainedEncoder(model=str(tiny_encoder())))
    both = tokenizer.with_encoder(files)
    (ids,), (before,) = files.encode(["anna sees cats dogs"]), files.encode(["anna sees"])
    special_before, special_after = ids.index(before[1]), 1  # what stands before and after the words
    assert positions("[anna] sees cats dogs", both)[0] == special_before
    assert positions("anna sees cats [dogs]", both)[-1] == len(ids) - 1 - special_after
    assert positions("[anna sees] cats dogs", both) == list(range(special_before, len(before) - special_after))


def test_marks_that_a_pretrained_encoder_cuts_off_are_told_by_its_limit(tokenizer: Tokenizer) -> None:
    both = tokenizer.with_encoder(EncoderFiles.fetch(PretrainedEncoder(model=str(tiny_encoder()))))
    told_of_cats = "'cats' lies behind the 24 tokens that the encoder reads of the sentence: shorten it"
    assert positions("bob " * 20 + "[cats]", both) == [21, 22]  # two pieces, and the 24th token is a special one
    assert told(lambda: positions("bob " * 21 + "[cats]", both)) == told_of_cats  # of which one is cut off
    assert told(lambda: positions("bob " * 22 + "[cats]", both)) == told_of_cats
    count = len(tokenizer.encode(["bob " * 30])[0])
    assert told(lambda: positions("bob " * 30 + "[cats]", both, count)) == told_of_cats  # the encoder cuts first
    count = len(tokenizer.encode(["bob bob"])[0])
    assert told(lambda: positions("bob bob [cats]", both, count)) == (
        f"'cats' lies behind the {count} tokens that this space reads of the sentence: shorten it"
    )


def test_marks_of_characters_that_a_pretrained_encoder_drops(tokenizer: Tokenizer) -> None:
    both = tokenizer.with_encoder(EncoderFiles.fetch(PretrainedEncoder(model=str(tiny_encoder()))))
    assert told(lambda: positions("anna [\u0301] sees", both)) == (
        "the encoder reads no token in '\u0301': mark a whole word"
    )
    assert positions("[bob\u0301] " + "bob " * 30, both) == [1]  # all of it was read, though what follows is cut
