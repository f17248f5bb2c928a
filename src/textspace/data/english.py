"""The built-in corpus: a small English with known topic, sentiment, tense, number and sentence type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from typing import Concatenate, NamedTuple, ParamSpec

from textspace.data.english_words import (
    BAD,
    CIRCUMSTANCES,
    COMMENTS,
    EVALUATIONS,
    FEELINGS,
    GOOD,
    HERS,
    HIS,
    INTERJECTIONS,
    MANNERS,
    ONLOOKERS,
    ONLOOKING,
    OUTFITS,
    PERSON_ADJECTIVES,
    SCENES,
    Scene,
)
from textspace.data.grammar import Grammar, Rule

__all__ = ["FACTORS", "english"]

FACTORS: dict[str, tuple[str, ...]] = {
    "topic": ("food", "sports", "travel", "health", "music", "work", "nature", "technology"),
    "sentiment": ("positive", "neutral", "negative"),
    "tense": ("past", "present", "future"),
    "number": ("singular", "plural"),  # of the grammatical subject
    "type": ("statement", "negation", "question", "exclamation"),
}


class Aspect(NamedTuple):
    """A tense with or without the progressive: how its verbs and adverbials look."""

    tense: str
    share: float  # of the sentences in this tense
    adverbs: str  # before the main verb
    times: str  # at the end or at the front


ASPECTS = {
    "past": Aspect(
        "past",
        0.7,
        "finally suddenly once secretly immediately promptly",
        "yesterday|last night|last week|two days ago|last year|a week ago|the other day|an hour ago|last summer"
        "|on tuesday|last month|long ago",
    ),
    "past-progressive": Aspect(
        "past",
        0.3,
        "still already secretly again",
        "yesterday|at noon|all morning|last night|all day|at midnight|all week",
    ),
    "present": Aspect(
        "present",
        0.6,
        "often usually sometimes always occasionally regularly",
        "every day|every week|on mondays|twice a week|every morning|once a month|on sundays"
        "|most evenings|each spring|every summer|every night",
    ),
    "present-progressive": Aspect(
        "present",
        0.4,
        "still already currently secretly",
        "right now|at the moment|today|these days|this week|this afternoon|this month|tonight",
    ),
    "future": Aspect(
        "future",
        1.0,
        "probably certainly soon definitely surely eventually",
        "tomorrow|next week|next month|in two weeks|next year|on friday|tomorrow morning"
        "|before long|some day|next summer|in an hour",
    ),
}


class VerbGroup(NamedTuple):
    """What stands before the main verb, and the form that the verb then takes."""

    weight: float
    words: str
    form: str
    adverbial: bool  # there is an adverb of time or manner already


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
UNLIKE_THEIR_SPELLING = {"useful", "useless", "x-ray"}  # letter and sound differ, and a/an follows the sound
OPPOSITE = {"positive": "negative", "neutral": "neutral", "negative": "positive"}

Weighted = tuple[tuple[float, str], ...]
Yields = Iterator[Rule]
P = ParamSpec("P")


@cache
def english() -> Grammar:
    """The grammar of the built-in corpus; all its factors are uniform and independent of each other.

    >>> grammar = english()
    >>> grammar.factors("the chef did not burn the tasty soup .")["sentiment"]
    'positive'
    """
    rules: dict[str, list[Rule]] = {}
    choices: dict[Weighted, str] = {}
    scenes = [_SceneRules(number, scene, rules, choices) for number, scene in enumerate(SCENES)]
    rules["S"] = [Rule(1, each.sentence(), {"topic": each.scene.topic}) for each in scenes]
    return Grammar(rules)


def _ranked(words: Iterable[str]) -> Weighted:
    """Weights that fall gently with the rank, as word frequencies do."""
    return tuple((1 / (rank + 10), word.replace("_", " ")) for rank, word in enumerate(dict.fromkeys(words)))


def _plural(noun: str) -> str:
    """
    >>> [_plural(noun) for noun in ("daisy", "waltz", "tour", "day")]
    ['daisies', 'waltzes', 'tours', 'days']
    """
    if re.search("[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if re.search("(s|x|z|ch|sh)$", noun) else "s")


def _conjugated(entry: str) -> dict[str, str]:
    """
    >>> _conjugated("complain_about")["past"], _conjugated("stir")["ing"], _conjugated("fly/flew")["third"]
    ('complained about', 'stirring', 'flies')
    """
    phrase, *given = entry.split("/")
    base, *rest = phrase.split("_")
    stem = base
    if re.fullmatch("[^aeiou]*[^aeiou][aeiou][^aeiouwxy]", base):
        stem = base + base[-1]
    elif re.search("[^eo]e$", base):
        stem = base[:-1]
    past = base + "d" if base.endswith("e") else re.sub("([^aeiou])y$", r"\1i", stem) + "ed"
    forms = dict(zip(("past", "ing"), given, strict=False))
    forms = {"base": base, "third": _plural(base), "past": past, "ing": stem + "ing"} | forms
    return {form: " ".join([word, *rest]) for form, word in forms.items()}


def _symbol(
    method: Callable[Concatenate[_SceneRules, P], Yields],
) -> Callable[Concatenate[_SceneRules, P], str]:
    """Turn a method that yields rules into one that files them once and returns the name of their symbol."""

    @wraps(method)
    def named(self: _SceneRules, /, *args: P.args, **kwargs: P.kwargs) -> str:
        name = f"{method.__name__.capitalize()}{self.number}({','.join(map(str, args))})"
        if name not in self.rules:
            self.rules[name] = list(method(self, *args, **kwargs))
        return name

    return named


class _SceneRules:
    """Writes the rules of one scene. Each method stands for a kind of phrase; its arguments are features.

    No expansion is optional: endings include the final mark, so that the word decides between rules.
    """

    def __init__(self, number: int, scene: Scene, rules: dict[str, list[Rule]], choices: dict[Weighted, str]) -> None:
        self.number, self.scene, self.rules, self.choices = number, scene, rules, choices
        self.nouns = {"people": _nouns(scene.people), "things": _nouns(scene.things)}
        self.verbs = {
            "neutral": [_conjugated(verb) for verb in scene.verbs.split()],
            "acts": [_conjugated(verb) for verb in scene.acts.split()],
        }
        for sentiment, own in (("positive", scene.good_verbs), ("negative", scene.bad_verbs)):
            own_and_shared = f"{own} {EVALUATIONS[sentiment]}".split()
            self.verbs[sentiment] = [_conjugated(verb) for verb in own_and_shared]
            self.verbs[f"{sentiment} feelings"] = [_conjugated(verb) for verb in FEELINGS[sentiment].split()]
        self.adjectives = {
            "positive": _ranked(f"{scene.good} {GOOD}".split()),
            "neutral": _ranked(scene.plain.split()),
            "negative": _ranked(f"{scene.bad} {BAD}".split()),
        }

    @_symbol
    def sentence(self) -> Yields:
        for number in FACTORS["number"]:
            labels = {"number": number}
            yield Rule(2, self.declarative(number), labels)
            yield Rule(1, self.question(number), labels | {"type": "question"})
            yield Rule(1, self.exclamation(number), labels | {"type": "exclamation"})

    @_symbol
    def declarative(self, number: str) -> Yields:
        yield Rule(6, f"{self.subject(number)} {self.predicate(number)}")
        yield Rule(2, f"{self.known_thing(number)} {self.description(number)}")
        for aspect, share, labels in _aspects():
            opening = f"{self.phrases(ASPECTS[aspect].times)} , {self.subject(number)}"
            yield Rule(1.5 * share, f"{opening} {self.polar_clause(number, aspect, 'bare')}", labels)

    @_symbol
    def predicate(self, number: str) -> Yields:
        for aspect, share, labels in _aspects():
            yield Rule(share, self.polar_clause(number, aspect, "full"), labels)

    @_symbol
    def polar_clause(self, number: str, aspect: str, style: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            for kind in ("statement", "negation"):
                labels = {"type": kind, "sentiment": sentiment}
                yield Rule(1, self.clause(number, aspect, sentiment, kind == "negation", ".", style), labels)

    @_symbol
    def clause(self, number: str, aspect: str, sentiment: str, negated: bool, mark: str, style: str) -> Yields:
        """A predicate with its verb group, its complements and the end of the sentence."""
        for group in self.verb_groups(number, aspect, negated):
            if not (group.adverbial and style == "bare"):
                # "she usually sings every day" says too much, and negated endings stay short.
                end = "timeless" if group.adverbial else "short" if negated and style == "full" else style
                complements = self.verb_phrase(sentiment, group.form, negated)
                ending = self.ending(aspect, sentiment, mark, end)
                yield Rule(group.weight, f"{group.words} {complements} {ending}")

    def verb_groups(self, number: str, aspect: str, negated: bool) -> list[VerbGroup]:
        """The ways to put a verb into a tense; their weights sum to one."""
        adverb, tense = self.phrases(ASPECTS[aspect].adverbs), ASPECTS[aspect].tense
        do, be = _do(tense, number), _be(tense, number)
        finite = "past" if tense == "past" else "third" if number == "singular" else "base"
        future, progressive = tense == "future", aspect.endswith("progressive")
        if negated and progressive:
            return [VerbGroup(1, f"{be} not", "ing", False)]
        if negated and future:
            going = VerbGroup(0.2, f"{be} not going to", "base", False)
            return [VerbGroup(0.6, "will not", "base", False), VerbGroup(0.2, "will never", "base", True), going]
        if negated:
            return [VerbGroup(0.7, f"{do} not", "base", False), VerbGroup(0.3, "never", finite, True)]
        if future:
            going = VerbGroup(0.2, f"{be} going to", "base", False)
            return [VerbGroup(0.6, "will", "base", False), VerbGroup(0.2, f"will {adverb}", "base", True), going]
        auxiliary, form = (be, "ing") if progressive else ("", finite)
        return [VerbGroup(0.8, auxiliary, form, False), VerbGroup(0.2, f"{auxiliary} {adverb}", form, True)]

    @_symbol
    def verb_phrase(self, sentiment: str, form: str, negated: bool) -> Yields:
        """To negate a verb turns its sentiment round; to negate does not change what an adjective says."""
        force = OPPOSITE[sentiment] if negated else sentiment
        acting = f"{self.verb('neutral', form)} {self.object('neutral')}"
        if sentiment == "neutral":
            yield Rule(6, acting)
        else:
            yield Rule(5, f"{self.verb(force, form)} {self.object(sentiment)}")
            if not negated:
                yield Rule(3, f"{self.verb('neutral', form)} {self.object(f'only-{sentiment}')}")
        if not negated:
            yield Rule(1, f"{acting} {self.phrases(MANNERS[force])}")
        if not negated or sentiment == "negative":  # nobody says "she did not cheer badly"
            yield Rule(1, f"{self.verb('acts', form)} {self.phrases(MANNERS[force])}")

    @_symbol
    def ending(self, aspect: str, sentiment: str, mark: str, style: str) -> Yields:
        """The rest of a sentence after its complements; the style says what it may hold."""
        place, time = self.phrases(self.scene.places), self.phrases(ASPECTS[aspect].times)
        event = f"{self.phrases('after|before|during')} the {self.phrases(self.scene.events)}"
        yield Rule(2, mark)
        if style in ("short", "full", "timeless"):
            yield Rule(2, f"{place} {mark}")
            yield Rule(2, f"{event} {mark}")
        if style in ("short", "full", "timed", "judged"):
            yield Rule(2, f"{time} {mark}")
        if style == "full":
            yield Rule(1.5, f"{place} {time} {mark}")
        if style in ("full", "judged"):
            yield Rule(1, f", {self.phrases(COMMENTS[sentiment])} {mark}")
            if style == "full" or sentiment != "neutral":
                yield Rule(1.5, f"{self.background(ASPECTS[aspect].tense, sentiment)} {mark}")

    @_symbol
    def background(self, tense: str, sentiment: str) -> Yields:
        if sentiment == "neutral":
            form = "past" if tense == "past" else "third"
            watching = self.choice(_ranked(_conjugated(verb)[form] for verb in ONLOOKING.split()))
            yield Rule(1, f"while {self.phrases(ONLOOKERS)} {watching}")
        else:
            judgment = self.choice(_ranked((GOOD if sentiment == "positive" else BAD).split()))
            be = "will be" if tense == "future" else _be(tense, "singular")
            yield Rule(1, f"because the {self.phrases(CIRCUMSTANCES)} {be} {judgment}")

    @_symbol
    def description(self, number: str) -> Yields:
        """What a thing is like, or is not like."""
        for tense in FACTORS["tense"]:
            for sentiment in FACTORS["sentiment"]:
                labels = {"tense": tense, "sentiment": sentiment}
                yield Rule(1, self.being(number, tense, sentiment, False), labels | {"type": "statement"})
                yield Rule(1, self.being(number, tense, sentiment, True), labels | {"type": "negation"})

    @_symbol
    def being(self, number: str, tense: str, sentiment: str, negated: bool) -> Yields:
        end = self.ending(_moment(tense), sentiment, ".", "timed" if negated else "judged")
        quality = f"{self.quality(OPPOSITE[sentiment] if negated else sentiment)} {end}"
        front, back = ("will", "be") if tense == "future" else (_be(tense, number), "")
        if negated:
            yield Rule(3, f"{front} not {back} {quality}")
            yield Rule(1, f"{_do(tense, number)} not seem {quality}")
        else:
            seem = {"past": "seemed", "present": "seems" if number == "singular" else "seem"}
            yield Rule(3, f"{front} {back} {quality}")
            yield Rule(2, f"{front} {back} {self.phrases('really|very|quite|truly|rather')} {quality}")
            yield Rule(1, f"{seem.get(tense, 'will seem')} {quality}")

    @_symbol
    def question(self, number: str) -> Yields:
        # Only what follows the subject settles the sentiment, so a parser need not guess it before.
        subject, thing = self.subject(number), self.known_thing(number)
        openings = ((3, "", "short"), (1, "why", "short"), (1, self.phrases("when|where|how often"), "bare"))
        for aspect, share, labels in _aspects():
            tense, progressive = ASPECTS[aspect].tense, aspect.endswith("progressive")
            auxiliary = _be(tense, number) if progressive else _do(tense, number)
            for weight, opening, style in openings:
                asked = self.asked(aspect, "ing" if progressive else "base", style)
                going = 0.2 if tense == "future" else 0
                yield Rule(weight * share * (1 - going), f"{opening} {auxiliary} {subject} {asked}", labels)
                if going:
                    be = _be(tense, number)
                    yield Rule(weight * share * going, f"{opening} {be} {subject} going to {asked}", labels)
        for tense in FACTORS["tense"]:
            front, back = ("will", "be") if tense == "future" else (_be(tense, number), "")
            doubt = self.phrases("really|always|still|truly")
            yield Rule(1, f"{front} {thing} {doubt} {back} {self.asked_quality(tense)}", {"tense": tense})
            yield Rule(0.5, f"why {front} {thing} {back} so {self.asked_quality(tense)}", {"tense": tense})

    @_symbol
    def asked(self, aspect: str, form: str, style: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            complements = self.verb_phrase(sentiment, form, False)
            yield Rule(1, f"{complements} {self.ending(aspect, sentiment, '?', style)}", {"sentiment": sentiment})

    @_symbol
    def asked_quality(self, tense: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            ending = self.ending(_moment(tense), sentiment, "?", "timed")
            yield Rule(1, f"{self.quality(sentiment)} {ending}", {"sentiment": sentiment})

    @_symbol
    def exclamation(self, number: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            interjection, manner = self.phrases(INTERJECTIONS[sentiment]), self.phrases(MANNERS[sentiment])
            actor, labels = self.subject(number), {"sentiment": sentiment}
            yield Rule(4, f"{interjection} , {actor} {self.exclaimed(number, sentiment)}", labels)
            opinion = sentiment != "neutral"
            yield Rule(2 if opinion else 6, f"how {manner} {actor} {self.admired(number)}", labels)
            if opinion:
                quality = self.quality(sentiment)
                yield Rule(3, f"what {self.marvel(sentiment)} {actor} {self.done(number)}", labels)
                yield Rule(1, f"how {quality} {self.known_thing(number)} {self.existing(number)}", labels)

    @_symbol
    def exclaimed(self, number: str, sentiment: str) -> Yields:
        for aspect, share, labels in _aspects():
            yield Rule(share, self.clause(number, aspect, sentiment, False, "!", "short"), labels)

    @_symbol
    def admired(self, number: str) -> Yields:
        """The rest of "how beautifully she ..."."""
        for aspect, share, labels in _aspects():
            for weight, words, form, adverbial in self.verb_groups(number, aspect, False):
                end = self.ending(aspect, "any", "!", "timeless" if adverbial else "short")
                acting = f"{self.verb('neutral', form)} {self.object('neutral')}"
                yield Rule(2 * share * weight, f"{words} {acting} {end}", labels)
                yield Rule(share * weight, f"{words} {self.verb('acts', form)} {end}", labels)

    @_symbol
    def marvel(self, sentiment: str) -> Yields:
        yield Rule(4, self.indefinite("things", f"only-{sentiment}"))
        yield Rule(3, self.nominal("things", "plural", f"only-{sentiment}", "any"))
        if self.nouns["things"]["mass"]:
            yield Rule(1, self.nominal("things", "mass", f"only-{sentiment}", "any"))

    @_symbol
    def done(self, number: str) -> Yields:
        """The rest of "what a wonderful song she ..."."""
        for aspect, share, labels in _aspects():
            for weight, words, form, adverbial in self.verb_groups(number, aspect, False):
                end = self.ending(aspect, "any", "!", "timeless" if adverbial else "short")
                yield Rule(share * weight, f"{words} {self.verb('neutral', form)} {end}", labels)

    @_symbol
    def existing(self, number: str) -> Yields:
        for tense in FACTORS["tense"]:
            be = "will be" if tense == "future" else _be(tense, number)
            yield Rule(1, f"{be} !", {"tense": tense})

    @_symbol
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

    @_symbol
    def name(self) -> Yields:
        yield Rule(1, self.phrases(HERS))
        yield Rule(1, self.phrases(HIS))

    @_symbol
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

    @_symbol
    def noun_phrase(self, role: str, number: str, mood: str) -> Yields:
        nominal = self.nominal(role, number, mood, "any")
        yield Rule(12, f"{self.determiner(number, False)} {nominal}")
        yield Rule(0.7, f"{self.name()} 's {nominal}")
        if number == "singular":
            yield Rule(3, self.indefinite(role, mood))
            if self.nouns[role]["mass"]:
                mass = self.nominal(role, "mass", mood, "any")
                yield Rule(1.5, f"{self.determiner('mass', False)} {mass}")

    @_symbol
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

    @_symbol
    def determiner(self, number: str, known: bool) -> Yields:
        words = DEFINITE + DEMONSTRATIVES[number] + (() if known else QUANTIFIERS[number])
        yield from (Rule(weight, word) for weight, word in words)

    @_symbol
    def indefinite(self, role: str, mood: str) -> Yields:
        for article, onset in (("a", "consonant"), ("an", "vowel")):
            nominal = self.nominal(role, "singular", mood, onset)
            yield Rule(sum(rule.weight for rule in self.rules[nominal]), f"{article} {nominal}")

    @_symbol
    def nominal(self, role: str, number: str, mood: str, onset: str) -> Yields:
        """A noun with what stands around it but no determiner, beginning with the given kind of sound.

        The mood limits the adjectives: neutral, any that suit a sentiment, or "only" those that express it.
        """
        nouns = self.nouns[role][number]
        noun = self.choice(nouns)
        if role == "people":
            origin = f"from the {self.phrases(self.scene.origins)}"
            outfit = f"with the {self.choice(_nouns(OUTFITS)[number])}"
            adjectives = _ranked(PERSON_ADJECTIVES.split())
            shapes = [(5.0, nouns, ""), (6.0, adjectives, noun), (1.0, nouns, origin), (1.0, nouns, outfit)]
        elif mood.startswith("only-"):
            shapes = [(1.0, self.adjectives[mood.removeprefix("only-")], noun)]
        else:
            shapes = [(4.0, nouns, ""), (4.0, self.adjectives["neutral"], noun)]
            if mood != "neutral":
                shapes.append((3.0, self.adjectives[mood], noun))
        for weight, words, rest in shapes:
            fitting = tuple((share, word) for share, word in words if onset in ("any", _onset(word)))
            if fitting:
                part = sum(share for share, _ in fitting) / sum(share for share, _ in words)
                yield Rule(weight * part, f"{self.choice(fitting)} {rest}")

    @_symbol
    def verb(self, kind: str, form: str) -> Yields:
        verbs = list(self.verbs[kind])
        if form != "ing":
            verbs += self.verbs.get(f"{kind} feelings", [])
        yield Rule(1, self.choice(_ranked(verb[form] for verb in verbs)))

    def phrases(self, listing: str) -> str:
        """One of the words of a list, or of its phrases if these are set apart by bars."""
        return self.choice(_ranked(listing.split("|") if "|" in listing else listing.split()))

    def choice(self, options: Weighted) -> str:
        """The symbol for one of these phrases, shared between all places that choose between the same ones."""
        name = self.choices.setdefault(options, f"Choice{len(self.choices)}")
        if name not in self.rules:
            self.rules[name] = [Rule(weight, phrase) for weight, phrase in options]
        return name


def _nouns(listing: str) -> dict[str, Weighted]:
    """The forms of nouns; mass nouns have forms of their own, because they take other determiners."""
    count = [entry.partition("/") for entry in listing.split() if not entry.endswith("*")]
    return {
        "singular": _ranked(noun for noun, _, _ in count),
        "plural": _ranked(plural or _plural(noun) for noun, _, plural in count),
        "mass": _ranked(entry[:-1] for entry in listing.split() if entry.endswith("*")),
    }


def _aspects() -> Iterator[tuple[str, float, dict[str, str]]]:
    for name, aspect in ASPECTS.items():
        yield name, aspect.share, {"tense": aspect.tense}


def _moment(tense: str) -> str:
    """The aspect whose adverbials of time go with a state in this tense."""
    return "present-progressive" if tense == "present" else tense


def _do(tense: str, number: str) -> str:
    return {"past": "did", "future": "will"}.get(tense) or ("does" if number == "singular" else "do")


def _be(tense: str, number: str) -> str:
    if tense == "past":
        return "was" if number == "singular" else "were"
    return "is" if number == "singular" else "are"


def _onset(word: str) -> str:
    return "vowel" if (word[0] in "aeiou") != (word in UNLIKE_THEIR_SPELLING) else "consonant"
