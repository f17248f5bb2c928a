"""The built-in corpus: a small English with known topic, sentiment, tense, number and sentence type."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from textspace.data.english_forms import be_form, do_form, verb_forms
from textspace.data.english_phrases import ScenePhrases, Weighted, Yields, ranked, symbol
from textspace.data.english_words import (
    BAD,
    CIRCUMSTANCES,
    COMMENTS,
    GOOD,
    INTERJECTIONS,
    MANNERS,
    ONLOOKERS,
    ONLOOKING,
    SCENES,
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


OPPOSITE = {"positive": "negative", "neutral": "neutral", "negative": "positive"}


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


class _SceneRules(ScenePhrases):
    """Writes the rules of one scene: whole sentences, out of clauses and endings, over its phrases.

    No expansion is optional: endings include the final mark, so that the word decides between rules.
    """

    @symbol
    def sentence(self) -> Yields:
        for number in FACTORS["number"]:
            labels = {"number": number}
            yield Rule(2, self.declarative(number), labels)
            yield Rule(1, self.question(number), labels | {"type": "question"})
            yield Rule(1, self.exclamation(number), labels | {"type": "exclamation"})

    @symbol
    def declarative(self, number: str) -> Yields:
        yield Rule(6, f"{self.subject(number)} {self.predicate(number)}")
        yield Rule(2, f"{self.known_thing(number)} {self.description(number)}")
        for aspect, share, labels in _aspects():
            opening = f"{self.phrases(ASPECTS[aspect].times)} , {self.subject(number)}"
            yield Rule(1.5 * share, f"{opening} {self.polar_clause(number, aspect, 'bare')}", labels)

    @symbol
    def predicate(self, number: str) -> Yields:
        for aspect, share, labels in _aspects():
            yield Rule(share, self.polar_clause(number, aspect, "full"), labels)

    @symbol
    def polar_clause(self, number: str, aspect: str, style: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            for kind in ("statement", "negation"):
                labels = {"type": kind, "sentiment": sentiment}
                yield Rule(1, self.clause(number, aspect, sentiment, kind == "negation", ".", style), labels)

    @symbol
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
        do, be = do_form(tense, number), be_form(tense, number)
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

    @symbol
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

    @symbol
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

    @symbol
    def background(self, tense: str, sentiment: str) -> Yields:
        if sentiment == "neutral":
            form = "past" if tense == "past" else "third"
            watching = self.choice(ranked(verb_forms(verb)[form] for verb in ONLOOKING.split()))
            yield Rule(1, f"while {self.phrases(ONLOOKERS)} {watching}")
        else:
            judgment = self.choice(ranked((GOOD if sentiment == "positive" else BAD).split()))
            be = "will be" if tense == "future" else be_form(tense, "singular")
            yield Rule(1, f"because the {self.phrases(CIRCUMSTANCES)} {be} {judgment}")

    @symbol
    def description(self, number: str) -> Yields:
        """What a thing is like, or is not like."""
        for tense in FACTORS["tense"]:
            for sentiment in FACTORS["sentiment"]:
                labels = {"tense": tense, "sentiment": sentiment}
                yield Rule(1, self.being(number, tense, sentiment, False), labels | {"type": "statement"})
                yield Rule(1, self.being(number, tense, sentiment, True), labels | {"type": "negation"})

    @symbol
    def being(self, number: str, tense: str, sentiment: str, negated: bool) -> Yields:
        end = self.ending(_moment(tense), sentiment, ".", "timed" if negated else "judged")
        quality = f"{self.quality(OPPOSITE[sentiment] if negated else sentiment)} {end}"
        front, back = ("will", "be") if tense == "future" else (be_form(tense, number), "")
        if negated:
            yield Rule(3, f"{front} not {back} {quality}")
            yield Rule(1, f"{do_form(tense, number)} not seem {quality}")
        else:
            seem = {"past": "seemed", "present": "seems" if number == "singular" else "seem"}
            yield Rule(3, f"{front} {back} {quality}")
            yield Rule(2, f"{front} {back} {self.phrases('really|very|quite|truly|rather')} {quality}")
            yield Rule(1, f"{seem.get(tense, 'will seem')} {quality}")

    @symbol
    def question(self, number: str) -> Yields:
        # Only what follows the subject settles the sentiment, so a parser need not guess it before.
        subject, thing = self.subject(number), self.known_thing(number)
        openings = ((3, "", "short"), (1, "why", "short"), (1, self.phrases("when|where|how often"), "bare"))
        for aspect, share, labels in _aspects():
            tense, progressive = ASPECTS[aspect].tense, aspect.endswith("progressive")
            auxiliary = be_form(tense, number) if progressive else do_form(tense, number)
            for weight, opening, style in openings:
                asked = self.asked(aspect, "ing" if progressive else "base", style)
                going = 0.2 if tense == "future" else 0
                yield Rule(weight * share * (1 - going), f"{opening} {auxiliary} {subject} {asked}", labels)
                if going:
                    be = be_form(tense, number)
                    yield Rule(weight * share * going, f"{opening} {be} {subject} going to {asked}", labels)
        for tense in FACTORS["tense"]:
            front, back = ("will", "be") if tense == "future" else (be_form(tense, number), "")
            doubt = self.phrases("really|always|still|truly")
            yield Rule(1, f"{front} {thing} {doubt} {back} {self.asked_quality(tense)}", {"tense": tense})
            yield Rule(0.5, f"why {front} {thing} {back} so {self.asked_quality(tense)}", {"tense": tense})

    @symbol
    def asked(self, aspect: str, form: str, style: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            complements = self.verb_phrase(sentiment, form, False)
            yield Rule(1, f"{complements} {self.ending(aspect, sentiment, '?', style)}", {"sentiment": sentiment})

    @symbol
    def asked_quality(self, tense: str) -> Yields:
        for sentiment in FACTORS["sentiment"]:
            ending = self.ending(_moment(tense), sentiment, "?", "timed")
            yield Rule(1, f"{self.quality(sentiment)} {ending}", {"sentiment": sentiment})

    @symbol
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

    @symbol
    def exclaimed(self, number: str, sentiment: str) -> Yields:
        for aspect, share, labels in _aspects():
            yield Rule(share, self.clause(number, aspect, sentiment, False, "!", "short"), labels)

    @symbol
    def admired(self, number: str) -> Yields:
        """The rest of "how beautifully she ..."."""
        for aspect, share, labels in _aspects():
            for weight, words, form, adverbial in self.verb_groups(number, aspect, False):
                end = self.ending(aspect, "any", "!", "timeless" if adverbial else "short")
                acting = f"{self.verb('neutral', form)} {self.object('neutral')}"
                yield Rule(2 * share * weight, f"{words} {acting} {end}", labels)
                yield Rule(share * weight, f"{words} {self.verb('acts', form)} {end}", labels)

    @symbol
    def marvel(self, sentiment: str) -> Yields:
        yield Rule(4, self.indefinite("things", f"only-{sentiment}"))
        yield Rule(3, self.nominal("things", "plural", f"only-{sentiment}", "any"))
        if self.nouns["things"]["mass"]:
            yield Rule(1, self.nominal("things", "mass", f"only-{sentiment}", "any"))

    @symbol
    def done(self, number: str) -> Yields:
        """The rest of "what a wonderful song she ..."."""
        for aspect, share, labels in _aspects():
            for weight, words, form, adverbial in self.verb_groups(number, aspect, False):
                end = self.ending(aspect, "any", "!", "timeless" if adverbial else "short")
                yield Rule(share * weight, f"{words} {self.verb('neutral', form)} {end}", labels)

    @symbol
    def existing(self, number: str) -> Yields:
        for tense in FACTORS["tense"]:
            be = "will be" if tense == "future" else be_form(tense, number)
            yield Rule(1, f"{be} !", {"tense": tense})


def _aspects() -> Iterator[tuple[str, float, dict[str, str]]]:
    for name, aspect in ASPECTS.items():
        yield name, aspect.share, {"tense": aspect.tense}


def _moment(tense: str) -> str:
    """The aspect whose adverbials of time go with a state in this tense."""
    return "present-progressive" if tense == "present" else tense
