"""The phrases of the built-in corpus: subjects, objects, names, verbs and adjectives of one scene."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from textspace.data.english_forms import noun_forms, onset_of, verb_forms
from textspace.data.english_words import (
    BAD,
    EVALUATIONS,
    FEELINGS,
    GOOD,
    HERS,
    HIS,
    OUTFITS,
    PERSON_ADJECTIVES,
    Scene,
)
from textspace.data.grammar import Rule

__all__ = ["ScenePhrases", "Weighted", "Yields", "ranked", "symbol"]

DEFINITE = ((5, "the"), (1, "my"), (1, "our"), (0.7, "her"), (0.7, "his"), (0.7, "their"))
DEMONSTRATIVES = {
    "singular": ((1, "this"), (1, "that")),
    "plural": ((1, "these"), (1, "those")),
    "mass": ((1, "this"), (1, "that")),
}
QUANTIFIERS = {
    "singular": (),
    "plural": ((1, "some"), (1, "many"), (1, "several"), (1, "two"), (0.5, "three")),
    "mass": ((2, "some"),),
}
ORDINALS = "new first latest second last usual other"  # with a definite determiner
QUALITIES = "different unusual ordinary familiar typical common rare similar predictable recognizable mysterious"

Weighted = tuple[tuple[float, str], ...]
Yields = Iterator[Rule]
P = ParamSpec("P")
S = TypeVar("S", bound="ScenePhrases")


def ranked(words: Iterable[str]) -> Weighted:
    """Weights that fall gently with the rank, as word frequencies do."""
    return tuple((1 / (rank + 10), word.replace("_", " ")) for rank, word in enumerate(dict.fromkeys(words)))


def _nouns(listing: str) -> dict[str, Weighted]:
    return {number: ranked(forms) for number, forms in noun_forms(listing).items()}


def symbol(method: Callable[Concatenate[S, P], Yields]) -> Callable[Concatenate[S, P], str]:
    """Turn a method that yields rules into one that files them once and returns the name of their symbol."""

    @wraps(method)
    def named(self: S, /, *args: P.args, **kwargs: P.kwargs) -> str:
        name = f"{method.__name__.capitalize()}{self.number}({','.join(map(str, args))})"
        if name not in self.rules:
            self.rules[name] = list(method(self, *args, **kwargs))
        return name

    return named


class ScenePhrases:
    """Writes the rules of one scene's phrases. Each method stands for a kind of phrase; its arguments are features.

    No expansion is optional, so that the word decides between rules.
    """

    def __init__(self, number: int, scene: Scene, rules: dict[str, list[Rule]], choices: dict[Weighted, str]) -> None:
        self.number, self.scene, self.rules, self.choices = number, scene, rules, choices
        self.nouns = {"people": _nouns(scene.people), "things": _nouns(scene.things)}
        self.verbs = {
            "neutral": [verb_forms(verb) for verb in scene.verbs.split()],
            "acts": [verb_forms(verb) for verb in scene.acts.split()],
        }
        for sentiment, own in (("positive", scene.good_verbs), ("negative", scene.bad_verbs)):
            own_and_shared = f"{own} {EVALUATIONS[sentiment]}".split()
            self.verbs[sentiment] = [verb_forms(verb) for verb in own_and_shared]
            self.verbs[f"{sentiment} feelings"] = [verb_forms(verb) for verb in FEELINGS[sentiment].split()]
        self.adjectives = {
            "positive": ranked(f"{scene.good} {GOOD}".split()),
            "neutral": ranked(scene.plain.split()),
            "negative": ranked(f"{scene.bad} {BAD}".split()),
        }

    @symbol
    def subject(self, number: str) -> Yields:
        yield Rule(6, self.noun_phrase("people", number, "neutral"))
        if number == "singular":
            yield Rule(1.5, self.name())
            yield Rule(1.5, self.phrases("she|he"))
            yield Rule(0.5, f"one of the {self.choice(self.nouns['people']['plural'])}")
        else:
            # Two lists of names, so that nobody is paired with a namesake.
            yield Rule(1.5, f"{self.phrases(HERS)} and {self.phrases(HIS)}")
            yield Rule(1.5, self.phrases("they|we"))

    @symbol
    def name(self) -> Yields:
        yield Rule(1, self.phrases(HERS))
        yield Rule(1, self.phrases(HIS))

    @symbol
    def object(self, mood: str) -> Yields:
        yield Rule(5, self.noun_phrase("things", "singular", mood))
        yield Rule(3, self.noun_phrase("things", "plural", mood))
        yield Rule(0.5, f"so many {self.nominal('things', 'plural', mood, 'any')}")
        yield Rule(0.7, self.nominal("things", "plural", mood, "any"))
        if self.nouns["things"]["mass"]:
            yield Rule(0.3, f"so much {self.nominal('things', 'mass', mood, 'any')}")
            yield Rule(0.3, self.nominal("things", "mass", mood, "any"))

    def quality(self, sentiment: str) -> str:
        """An adjective after "to be"; the neutral ones that stand before nouns rarely fit there."""
        return self.phrases(QUALITIES) if sentiment == "neutral" else self.choice(self.adjectives[sentiment])

    @symbol
    def noun_phrase(self, role: str, number: str, mood: str) -> Yields:
        nominal = self.nominal(role, number, mood, "any")
        yield Rule(12, f"{self.determiner(number, False)} {nominal}")
        yield Rule(0.7, f"{self.name()} 's {nominal}")
        if number == "singular":
            yield Rule(3, self.indefinite(role, mood))
            if self.nouns[role]["mass"]:
                mass = self.nominal(role, "mass", mood, "any")
                yield Rule(1.5, f"{self.determiner('mass', False)} {mass}")

    @symbol
    def known_thing(self, number: str) -> Yields:
        """A thing that needs no introduction, so that something can be said about it."""
        for kind in ("singular", "mass") if number == "singular" else ("plural",):
            if nouns := self.nouns["things"][kind]:
                noun, ordinal = self.choice(nouns), self.phrases(ORDINALS)
                adjective = self.choice(self.adjectives["neutral"])
                for weight, owner in ((9, self.determiner(kind, True)), (1, f"{self.name()} 's")):
                    yield Rule(4 * weight * len(nouns), f"{owner} {noun}")
                    yield Rule(3 * weight * len(nouns), f"{owner} {ordinal} {noun}")
                    yield Rule(3 * weight * len(nouns), f"{owner} {adjective} {noun}")

    @symbol
    def determiner(self, number: str, known: bool) -> Yields:
        words = DEFINITE + DEMONSTRATIVES[number] + (() if known else QUANTIFIERS[number])
        yield from (Rule(weight, word) for weight, word in words)

    @symbol
    def indefinite(self, role: str, mood: str) -> Yields:
        for article, onset in (("a", "consonant"), ("an", "vowel")):
            nominal = self.nominal(role, "singular", mood, onset)
            yield Rule(sum(rule.weight for rule in self.rules[nominal]), f"{article} {nominal}")

    @symbol
    def nominal(self, role: str, number: str, mood: str, onset: str) -> Yields:
        """A noun with what stands around it but no determiner, beginning with the given kind of sound.

        The mood limits the adjectives: neutral, any that suit a sentiment, or "only" those that express it.
        """
        nouns = self.nouns[role][number]
        noun = self.choice(nouns)
        if role == "people":
            origin = f"from the {self.phrases(self.scene.origins)}"
            outfit = f"with the {self.choice(_nouns(OUTFITS)[number])}"
            adjectives = ranked(PERSON_ADJECTIVES.split())
            shapes = [(5.0, nouns, ""), (6.0, adjectives, noun), (1.0, nouns, origin), (1.0, nouns, outfit)]
        elif mood.startswith("only-"):
            shapes = [(1.0, self.adjectives[mood.removeprefix("only-")], noun)]
        else:
            shapes = [(4.0, nouns, ""), (4.0, self.adjectives["neutral"], noun)]
            if mood != "neutral":
                shapes.append((3.0, self.adjectives[mood], noun))
        for weight, words, rest in shapes:
            fitting = tuple((share, word) for share, word in words if onset in ("any", onset_of(word)))
            if fitting:
                part = sum(share for share, _ in fitting) / sum(share for share, _ in words)
                yield Rule(weight * part, f"{self.choice(fitting)} {rest}")

    @symbol
    def verb(self, kind: str, form: str) -> Yields:
        verbs = list(self.verbs[kind])
        if form != "ing":
            verbs += self.verbs.get(f"{kind} feelings", [])
        yield Rule(1, self.choice(ranked(verb[form] for verb in verbs)))

    def phrases(self, listing: str) -> str:
        """One of the words of a list, or of its phrases if these are set apart by bars."""
        return self.choice(ranked(listing.split("|") if "|" in listing else listing.split()))

    def choice(self, options: Weighted) -> str:
        """The symbol for one of these phrases, shared between all places that choose between the same ones."""
        name = self.choices.setdefault(options, f"Choice{len(self.choices)}")
        if name not in self.rules:
            self.rules[name] = [Rule(weight, phrase) for weight, phrase in options]
        return name
