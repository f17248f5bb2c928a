"""The built-in corpus: one derivation per sentence, exact probabilities, honest labels, correct English."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations, islice, pairwise, product

import pytest

from textspace.data.english import FACTORS, english
from textspace.data.english_forms import noun_forms
from textspace.data.english_words import SCENES
from textspace.data.grammar import Grammar, Rule, Sentence
from textspace.errors import TextspaceError

SAMPLES = 100_000


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    return list(english().sample(SAMPLES, seed=7))


@pytest.fixture(scope="module")
def toy() -> Grammar:
    return Grammar(
        {
            "S": [Rule(3, "the Animal Verb ."), Rule(2, "why does the Animal sleep ?"), Rule(1, "Time , it Verb .")],
            "Animal": [Rule(1, "cat"), Rule(2, "old cat"), Rule(5, "dog")],
            "Verb": [Rule(1, "sleeps"), Rule(1, "Verb_Soft softly")],
            "Verb_Soft": [Rule(1, "sings"), Rule(3, "purrs")],
            "Time": [Rule(1, "today"), Rule(1, "on Day")],
            "Day": [Rule(2, "monday"), Rule(1, "friday")],
        }
    )


def toy_language() -> list[str]:
    animals, days = ("cat", "old cat", "dog"), ("today", "on monday", "on friday")
    verbs = ("sleeps", "sings softly", "purrs softly")
    return [
        *(f"the {animal} {verb} ." for animal, verb in product(animals, verbs)),
        *(f"why does the {animal} sleep ?" for animal in animals),
        *(f"{day} , it {verb} ." for day, verb in product(days, verbs)),
    ]


def test_toy_probabilities_sum_to_one_and_give_the_entropy(toy: Grammar) -> None:
    log_probs = [toy.log_prob(text) for text in toy_language()]
    assert math.fsum(map(math.exp, log_probs)) == pytest.approx(1, abs=1e-12)
    assert toy.entropy() == pytest.approx(-math.fsum(lp * math.exp(lp) for lp in log_probs), abs=1e-12)
    assert toy.log_prob("on monday , it purrs softly .") == pytest.approx(math.log(1 / 6 * 1 / 2 * 2 / 3 * 3 / 8))
    assert toy.lengths() == (4, 7)
    assert toy.vocabulary() == {word for text in toy_language() for word in text.split()}


def test_toy_samples_follow_the_probabilities(toy: Grammar) -> None:
    n = 20_000
    counts = Counter(sentence.text for sentence in toy.sample(n, seed=1))
    assert set(counts) <= set(toy_language())
    for text in toy_language():
        expected = n * math.exp(toy.log_prob(text))
        assert abs(counts[text] - expected) < 5 * math.sqrt(expected)


def test_an_ambiguous_grammar_is_found_out() -> None:
    telescope = Grammar(
        {
            "S": [Rule(1, "i Verb_Phrase")],
            "Verb_Phrase": [Rule(1, "saw Thing"), Rule(1, "saw Plain with glasses")],
            "Thing": [Rule(1, "Plain", {}), Rule(1, "Plain with glasses")],
            "Plain": [Rule(1, "her"), Rule(3, "him")],
        }
    )
    assert telescope.derivations("i saw her") == 1
    assert telescope.derivations("i saw her with glasses") == 2
    # Both derivations count towards the probability: 1/2 * 1/2 * 1/4 + 1/2 * 1/4.
    assert telescope.log_prob("i saw her with glasses") == pytest.approx(math.log(3 / 16))
    witness = telescope.ambiguous_sentence()
    assert witness is not None
    assert telescope.derivations(witness) == 2


def test_equal_rules_are_two_derivations() -> None:
    twins = Grammar({"S": [Rule(1, "A B"), Rule(1, "x B")], "A": [Rule(1, "x")], "B": [Rule(1, "y"), Rule(1, "z")]})
    assert twins.derivations("x y") == 2
    assert twins.log_prob("x y") == pytest.approx(math.log(0.5))


def test_readings_that_disagree_have_no_factors() -> None:
    pun = Grammar(
        {"S": [Rule(1, "bank", {"of": "river"}), Rule(1, "bank", {"of": "money"}), Rule(1, "shore", {"of": "river"})]}
    )
    assert pun.factors("shore") == {"of": "river"}
    with pytest.raises(TextspaceError, match="several readings"):
        pun.factors("bank")


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        ({"S": [Rule(1, "a S"), Rule(1, "b")]}, "leads back to itself"),
        ({"S": [Rule(1, "a Missing")]}, "no rules for it"),
        ({"S": [Rule(0, "a")] + [Rule(1, "b")]}, "positive weight"),
        ({"S": [Rule(1, "")]}, "non-empty"),
        ({"S": []}, "needs rules"),
        ({"S": [Rule(1, "s")], "s": [Rule(1, "a")]}, "capital letter"),
        ({"S": [Rule(1, "a", {"kind": "x"}), Rule(1, "b")]}, "different factors"),
        ({"S": [Rule(1, "A A")], "A": [Rule(1, "a", {"kind": "x"})]}, "twice"),
    ],
)
def test_rules_that_make_no_grammar_are_refused(rules: dict[str, list[Rule]], fault: str) -> None:
    with pytest.raises(TextspaceError, match=fault):
        Grammar(rules)


def test_every_sample_has_exactly_one_derivation(sentences: list[Sentence]) -> None:
    """Some of them: that none at all is ambiguous is proved below."""
    grammar = english()
    assert all(grammar.derivations(sentence.text) == 1 for sentence in sentences[::8])


def test_no_sentence_at_all_is_ambiguous() -> None:
    assert english().ambiguous_sentence() is None


def test_mean_surprise_is_the_entropy(sentences: list[Sentence]) -> None:
    grammar, n = english(), 20_000
    surprises = [-grammar.log_prob(sentence.text) for sentence in sentences[:n]]
    mean = math.fsum(surprises) / n
    error = math.sqrt(math.fsum((s - mean) ** 2 for s in surprises) / (n - 1) / n)
    assert math.isfinite(mean)
    assert abs(mean - grammar.entropy()) < 4 * error


def test_size_of_the_language(sentences: list[Sentence]) -> None:
    grammar = english()
    vocabulary = grammar.vocabulary()
    assert 1500 <= len(vocabulary) <= 3000
    shortest, longest = grammar.lengths()
    assert shortest >= 4
    assert longest <= 25
    assert grammar.entropy() >= 28
    assert {word for sentence in sentences for word in sentence.text.split()} <= vocabulary
    assert all(shortest <= len(sentence.text.split()) <= longest for sentence in sentences)
    assert len({sentence.text for sentence in sentences}) > 0.999 * SAMPLES


def test_parsing_finds_the_sampled_factors(sentences: list[Sentence]) -> None:
    grammar = english()
    assert all(grammar.factors(sentence.text) == sentence.factors for sentence in sentences[:10_000])


def test_factors_are_uniform_and_independent(sentences: list[Sentence]) -> None:
    for one, other in combinations(FACTORS, 2):
        counts = Counter((sentence.factors[one], sentence.factors[other]) for sentence in sentences)
        assert set(counts) == set(product(FACTORS[one], FACTORS[other]))
        expected = SAMPLES / len(counts)
        assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in counts.values())


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("the young chef praised our delicious soup .", "food positive past singular statement"),
        ("did the nurses explain the vaccine ?", "health neutral past plural question"),
        ("wow , they will win the match tomorrow !", "sports positive future plural exclamation"),
        ("she does not enjoy the flight .", "travel negative present singular negation"),
        ("our laptops were not defective .", "technology positive past plural negation"),
    ],
)
def test_factors_mean_what_they_say(text: str, factors: str) -> None:
    assert english().factors(text) == dict(zip(FACTORS, factors.split(), strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "the chef praised our soup",
        "the chef praise our soup .",
        "the chefs praises our soup .",
        "the chef praised a excellent soup .",
        "the chef praised our soup . .",
        "The chef praised our soup .",
        "the chef praised our xylophone .",
    ],
)
def test_other_sentences_are_outside(text: str) -> None:
    grammar = english()
    assert grammar.log_prob(text) == -math.inf
    assert grammar.derivations(text) == 0
    with pytest.raises(TextspaceError, match="not a sentence"):
        grammar.factors(text)


def test_articles_and_agreement(sentences: list[Sentence]) -> None:
    vowel_sound = re.compile(r"(?!use|uni[^mn]|eu|one\b)[aeiou]|hour|honest|heir|x-ray")
    pairs = {pair for sentence in sentences for pair in pairwise(sentence.text.split())}
    after = {article: {second for first, second in pairs if first == article} for article in ("a", "an")}
    assert all(vowel_sound.match(word) for word in after["an"])
    assert not any(vowel_sound.match(word) for word in after["a"])
    singular = {"is", "was", "does", "seems"}
    assert not pairs & {(pronoun, verb) for pronoun in ("they", "we") for verb in singular}
    # Turned round they are questions, in which "she" may follow any auxiliary but these.
    assert not pairs & {(verb, pronoun) for pronoun in ("she", "he") for verb in ("are", "were", "do")}
    modifiers = {word for scene in SCENES for word in f"{scene.plain} {scene.good} {scene.bad}".split()}
    modifiers |= {person.split("_")[0] for scene in SCENES for person in scene.people.split() if "_" in person}
    forms = {"singular": set[str](), "plural": set[str](), "mass": set[str]()}
    for scene, number in product(SCENES, forms):
        forms[number] |= set(noun_forms(scene.things)[number]) - modifiers
    for determiner, wrong in {"much": "plural", "many": "mass", "these": "singular", "this": "plural"}.items():
        assert not {(determiner, noun) for noun in forms[wrong]} & pairs


def test_tense_and_type_are_visible(sentences: list[Sentence]) -> None:
    marks = {"statement": ".", "negation": ".", "question": "?", "exclamation": "!"}
    for text, factors in sentences:
        words = text.split()
        assert words[-1] == marks[factors["type"]]
        assert (factors["type"] == "negation") == bool({"not", "never"} & set(words))
        if "did" in words:
            assert factors["tense"] == "past"
        if "going" in words:
            assert factors["tense"] == "future"


def test_sample_streams() -> None:
    grammar = english()
    long = list(grammar.sample(2000, seed=3))
    assert list(grammar.sample(500, seed=3)) == long[:500]
    for other in (4, -3):
        stream = [sentence.text for sentence in grammar.sample(2000, seed=other)]
        assert not set(stream) & {sentence.text for sentence in long}
    assert list(grammar.sample(0, seed=3)) == []
    with pytest.raises(TextspaceError, match="negative"):
        grammar.sample(-1, seed=3)


def test_sampling_is_lazy() -> None:
    stream = english().sample(10**15, seed=0)
    assert iter(stream) is stream
    assert len(list(islice(stream, 3))) == 3


def test_sampled_factors_are_not_shared() -> None:
    first, second = english().sample(2, seed=0)
    first.factors["topic"] = "changed"
    assert second.factors["topic"] in FACTORS["topic"]


def test_the_corpus_needs_no_torch() -> None:
    script = "import sys; from textspace.data.english import english; english(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
