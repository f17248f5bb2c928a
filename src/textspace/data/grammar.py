"""Finite probabilistic grammars: sampling, exact log-probability, exact entropy, counted derivations."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeVar

from textspace.errors import TextspaceError

__all__ = ["Grammar", "Rule", "Sentence"]

Stack = tuple[str, ...]  # the symbols still to be derived, next one first
Labels = tuple[tuple[str, str], ...]
T = TypeVar("T")


class Sentence(NamedTuple):
    """A sampled sentence and the factors it was made from."""

    text: str
    factors: dict[str, str]


class Rule(NamedTuple):
    """One way to rewrite a symbol: `expansion` is words and symbols separated by spaces.

    `labels` names the factors that this choice settles.
    """

    weight: float
    expansion: str
    labels: Mapping[str, str] = {}


class _Choice(NamedTuple):
    """A rule made ready: its probability instead of its weight."""

    probability: float
    symbols: Stack
    labels: Labels


class _Step(NamedTuple):
    """One way for a symbol to begin with a given word: what is left to derive, and at what price."""

    rest: Stack
    log_prob: float
    labels: Labels


class Grammar:
    """A probabilistic context-free grammar without recursion or empty expansions.

    Symbols begin with a capital letter; everything else is a word. The weights of one symbol's rules are
    scaled to sum to one. Every derivation must settle the same factors, each of them once.

    Args:
        rules: For each symbol, its rules.
        start: The symbol that stands for a whole sentence.

    Raises:
        TextspaceError: The rules do not make such a grammar.

    >>> toy = Grammar({
    ...     "S": [Rule(3, "the Animal sleeps ."), Rule(1, "why does the Animal sleep ?")],
    ...     "Animal": [Rule(1, "cat", {"kind": "cat"}), Rule(1, "dog", {"kind": "dog"})],
    ... })
    >>> toy.derivations("the cat sleeps ."), round(math.exp(toy.log_prob("the cat sleeps .")), 3)
    (1, 0.375)
    >>> toy.factors("why does the dog sleep ?")
    {'kind': 'dog'}
    """

    def __init__(self, rules: Mapping[str, Sequence[Rule]], start: str = "S") -> None:
        self._start = start
        self._choices = {symbol: _scaled(symbol, alternatives) for symbol, alternatives in rules.items()}
        self._order = _bottom_up(self._choices, start)
        self._steps: dict[str, dict[str, list[_Step]]] = {}
        self.factor_names = self._settled_factors()

    def sample(self, n: int, seed: int) -> Iterator[Sentence]:
        """Draw `n` sentences one by one; a smaller `n` with the same seed gives a prefix of the stream.

        >>> toy = Grammar({"S": [Rule(1, "yes ."), Rule(1, "no .")]})
        >>> list(toy.sample(2, seed=0)) == list(toy.sample(5, seed=0))[:2]
        True
        """
        if n < 0:
            raise TextspaceError(f"the number of sentences to sample must not be negative, and {n} is")
        return self._stream(n, seed)

    def _stream(self, n: int, seed: int) -> Iterator[Sentence]:
        # Seeding with text goes through a hash, so neighbouring (and negative) seeds give unrelated streams.
        draw = random.Random(f"textspace grammar {seed}").random
        lookup = self._sampling_table.get
        for _ in range(n):
            words: list[str] = []
            factors = dict.fromkeys(self.factor_names, "")
            stack = [self._start]
            while stack:
                symbol = stack.pop()
                entry = lookup(symbol)
                if entry is None:
                    words.append(symbol)
                    continue
                symbols, labels = entry[1][bisect(entry[0], draw())]
                stack += symbols
                if labels:
                    factors.update(labels)
            yield Sentence(" ".join(words), factors)

    def log_prob(self, text: str) -> float:
        """The natural logarithm of the probability of a sentence; minus infinity outside the language."""
        return _log_sum([log_prob for log_prob, _, _ in self._parse(text)])

    def derivations(self, text: str) -> int:
        """In how many ways the grammar derives a sentence."""
        return sum(count for _, _, count in self._parse(text))

    def factors(self, text: str) -> dict[str, str]:
        """The factors a sentence was made from, found by parsing it.

        Raises:
            TextspaceError: The sentence is outside the language, or its derivations disagree.
        """
        settings = {tuple(sorted(labels)) for _, labels, _ in self._parse(text)}
        if len(settings) != 1:
            fault = "has several readings in" if settings else "is not a sentence of"
            raise TextspaceError(f"{text!r} {fault} this grammar, so its factors are unknown")
        found = dict(settings.pop())
        return {name: found[name] for name in self.factor_names}

    def entropy(self) -> float:
        """The entropy of a derivation in nats, which is that of a sentence if no sentence has two."""

        def own(symbol: str, below: Mapping[str, float]) -> float:
            return sum(
                choice.probability * (sum(below.get(s, 0.0) for s in choice.symbols) - math.log(choice.probability))
                for choice in self._choices[symbol]
            )

        return self._fold(own)

    def vocabulary(self) -> set[str]:
        """Every word that some sentence contains."""
        return {word for symbol in self._order for c in self._choices[symbol] for word in c.symbols} - set(
            self._choices
        )

    def lengths(self) -> tuple[int, int]:
        """The number of words in the shortest and in the longest sentence, punctuation included."""

        def own(symbol: str, below: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
            spans = [[below.get(s, (1, 1)) for s in choice.symbols] for choice in self._choices[symbol]]
            return min(sum(low for low, _ in s) for s in spans), max(sum(high for _, high in s) for s in spans)

        return self._fold(own)

    def ambiguous_sentence(self) -> str | None:
        """Some sentence with two derivations; None is a proof that there is no such sentence.

        Walks through all pairs of derivations that spell the same words. If two of them part and later have
        the same symbols left, every sentence that goes on from there has both.

        >>> Grammar({"S": [Rule(1, "Noun flies"), Rule(1, "time Verb")],
        ...          "Noun": [Rule(1, "time")], "Verb": [Rule(1, "flies")]}).ambiguous_sentence()
        'time flies'
        """
        origin: Stack = (self._start,)
        seen = {(origin, origin)}
        agenda: list[tuple[Stack, Stack, str]] = [(origin, origin, "")]
        while agenda:
            one, other, prefix = agenda.pop()
            ones, others = self._steps_of(one[0]), self._steps_of(other[0])
            for word in (word for word in ones if word in others):
                text = f"{prefix} {word}".strip()
                for i, first in enumerate(ones[word]):
                    mine = first.rest + one[1:]
                    for j, second in enumerate(others[word]):
                        theirs = second.rest + other[1:]
                        if mine == theirs and not (one == other and i == j):
                            return " ".join([text, *self._first_words(mine)])
                        if mine and theirs and (mine, theirs) not in seen:
                            seen |= {(mine, theirs), (theirs, mine)}
                            agenda.append((mine, theirs, text))
        return None

    def _first_words(self, symbols: Stack) -> Iterator[str]:
        """What the symbols derive if the first rule is chosen everywhere."""
        for symbol in symbols:
            if symbol in self._choices:
                yield from self._first_words(self._choices[symbol][0].symbols)
            else:
                yield symbol

    def _parse(self, text: str) -> list[tuple[float, Labels, int]]:
        """All readings of a sentence, as (log-probability, labels, number of derivations).

        Reads from left to right and keeps every stack of symbols that may still follow.
        """
        readings: dict[tuple[Stack, Labels], tuple[float, int]] = {((self._start,), ()): (0.0, 1)}
        for word in text.split():
            following: dict[tuple[Stack, Labels], tuple[float, int]] = {}
            for (stack, labels), (log_prob, count) in readings.items():
                if not stack:
                    continue
                tail = stack[1:]
                for rest, price, settled in self._steps_of(stack[0]).get(word, ()):
                    key = rest + tail, labels + settled
                    total, ways = log_prob + price, count
                    if key in following:
                        total = _log_sum([following[key][0], total])
                        ways += following[key][1]
                    following[key] = total, ways
            readings = following
        return [(lp, labels, count) for (stack, labels), (lp, count) in readings.items() if not stack]

    def _steps_of(self, symbol: str) -> Mapping[str, list[_Step]]:
        """For each word that `symbol` can begin with, the ways to do so."""
        if symbol in self._steps:
            return self._steps[symbol]
        steps: dict[str, list[_Step]] = {} if symbol in self._choices else {symbol: [_Step((), 0.0, ())]}
        for probability, (head, *tail), labels in self._choices.get(symbol, ()):
            price, after = math.log(probability), tuple(tail)
            for word, ways in self._steps_of(head).items():
                steps.setdefault(word, []).extend(
                    _Step(way.rest + after, way.log_prob + price, labels + way.labels) for way in ways
                )
        self._steps[symbol] = steps
        return steps

    @cached_property
    def _sampling_table(self) -> dict[str, tuple[list[float], list[tuple[Stack, Labels]]]]:
        table = {}
        for symbol in self._order:
            choices = self._choices[symbol]
            # The last ceiling is left out: rounding must not push a draw beyond the last choice.
            ceilings = list(accumulate(choice.probability for choice in choices))[:-1]
            table[symbol] = ceilings, [(choice.symbols[::-1], choice.labels) for choice in choices]
        return table

    def _fold(self, own: Callable[[str, Mapping[str, T]], T]) -> T:
        """Compute `own` for every symbol, those it uses first, and return that of the start symbol."""
        values: dict[str, T] = {}
        for symbol in self._order:
            values[symbol] = own(symbol, values)
        return values[self._start]

    def _settled_factors(self) -> tuple[str, ...]:
        def own(symbol: str, below: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
            settled: set[tuple[str, ...]] = set()
            for choice in self._choices[symbol]:
                names = [name for name, _ in choice.labels]
                names += [name for s in choice.symbols for name in below.get(s, ())]
                if len(set(names)) < len(names):
                    raise TextspaceError(f"the rules of {symbol} settle one factor twice: {sorted(names)}")
                settled.add(tuple(sorted(names)))
            if len(settled) > 1:
                raise TextspaceError(f"the rules of {symbol} settle different factors: {sorted(settled)}")
            return settled.pop()

        return self._fold(own)


def _scaled(symbol: str, rules: Sequence[Rule]) -> list[_Choice]:
    if not symbol[:1].isupper():
        raise TextspaceError(f"the grammar symbol {symbol!r} must begin with a capital letter")
    total = sum(rule.weight for rule in rules)
    choices = [_Choice(r.weight / total, tuple(r.expansion.split()), tuple(r.labels.items())) for r in rules]
    if not choices or any(choice.probability <= 0 or not choice.symbols for choice in choices):
        raise TextspaceError(f"{symbol} needs rules, each with a positive weight and a non-empty expansion")
    return choices


def _bottom_up(choices: Mapping[str, list[_Choice]], start: str) -> list[str]:
    """The symbols that `start` leads to, each after those it uses."""
    finished: dict[str, None] = {}
    open_symbols: set[str] = set()

    def visit(symbol: str) -> None:
        if symbol in finished or not symbol[:1].isupper():
            return
        if symbol not in choices:
            raise TextspaceError(f"the grammar uses the symbol {symbol} but has no rules for it")
        if symbol in open_symbols:
            raise TextspaceError(f"the grammar symbol {symbol} leads back to itself, so sentences have no bound")
        open_symbols.add(symbol)
        for choice in choices[symbol]:
            for s in choice.symbols:
                visit(s)
        finished[symbol] = None

    visit(start)
    return list(finished)


def _log_sum(log_probs: list[float]) -> float:
    top = max(log_probs, default=-math.inf)
    return top if len(log_probs) < 2 else top + math.log(sum(math.exp(value - top) for value in log_probs))
