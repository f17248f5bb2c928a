"""The dimensions of a space as one HTML page that needs nothing else and fetches nothing.

Cards are made here, every text of the user's escaped; the script only orders, filters and searches them. The page's
policy allows that one script, so that nothing in a sentence could run even if it were not escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from html import escape
from pathlib import Path

from textspace.digits import value_and_error
from textspace.features.results import Association, Dimension, Effect, Example, Features, Probe, Side, Word

__all__ = ["page"]

SHOWN_SENTENCES = 4
"""Of each side; the rest is folded."""

SHOWN_CLASSES = 4
"""Of each dimension; the rest is folded."""

MANY_DIMENSIONS = 40
"""Beyond which bars are narrow, and lists of dimensions folded."""

_STATES = {"varies": "varies", "always on": "always", "dead": "dead"}


def page(features: Features, name: str) -> str:
    """The whole page; `name` is what to call the space."""
    style, script = (Path(__file__).with_name(f"page.{ending}").read_text(encoding="utf-8") for ending in ("css", "js"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    hues = {label: round(137.5 * place) % 360 for place, label in enumerate(features.classes)}
    cards = "\n".join(_card(each, features, hues) for each in features.dimensions)
    body = [_header(features, name), _map(features), _probes(features.probes), _tools(features)]
    body += [f'<main id="cards" class="cards">\n{cards}\n</main>', _footer(features)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Dimensions of {escape(name)}</title><style>{style}</style></head>\n"
        f'<body><div class="page">{"".join(body)}</div><script>{script}</script></body></html>\n'
    )


# Above the cards


def _header(features: Features, name: str) -> str:
    read = f"{features.sentences:,} sentences"
    if features.sentences < features.of:
        read = f"{features.sentences:,} of {features.of:,} sentences, drawn at random"
    how = (
        "A dimension is on in a sentence where that is at least as probable as not; the sentences in which it is on "
        "are held against those in which it is off. One that is never off, or is on with both signs, is also read by "
        "its two ends: the sentences above its average against those below."
        if features.gated
        else "No dimension of this space can be off: each is read by its two ends, the sentences above its average "
        "against those below."
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in features.notes)
    return (
        f'<header><p class="kicker">textspace features · {escape(features.space)}</p><h1>{escape(name)}</h1>'
        f'<p class="lede">What each of its {len(features.dimensions):,} dimensions means, read in {read}. {how}</p>'
        f"{notes}{_facts(features)}</header>"
    )


def _facts(features: Features) -> str:
    facts = [(f"{len(features.in_state('varies')):,}", "dimensions that vary")]
    if features.on_per_sentence is not None:
        value, error = value_and_error(features.on_per_sentence.value, features.on_per_sentence.stderr)
        facts.append((f"{value}{f' <small>± {error}</small>' if error else ''}", "on in a sentence"))
        facts.append((f"{len(features.in_state('always on')):,}", "always on"))
    facts.append((f"{len(features.in_state('dead')):,}", "dead"))
    if features.classes:
        facts.append((f"{len(features.classes):,}", "classes"))
    return f'<ul class="facts">{"".join(f"<li><b>{value}</b><span>{what}</span></li>" for value, what in facts)}</ul>'


def _map(features: Features) -> str:
    """Every dimension as a bar: how often it is on, or how much it varies."""
    most = max((each.variance for each in features.dimensions), default=0.0) or 1.0
    bars = []
    for each in features.dimensions:
        height = each.variance / most if each.density is None else each.density
        told = f"{each.number}: {_activity(each)}" + (f": {title}" if (title := _title(each)) else "")
        bars.append(
            f'<a class="{_STATES[each.state]}" href="#d{each.number}" tabindex="-1" title="{escape(told)}">'
            f'<i style="height:{100 * height:.1f}%"></i></a>'
        )
    what = "the share of sentences in which it is on" if features.gated else "its variance"
    parts = [f'<p class="note">Each bar is a dimension, as high as {what}.</p>']
    for state, told in (("always on", "Always on"), ("dead", "Dead")):
        if numbers := features.in_state(state):  # type: ignore[arg-type]
            links = ", ".join(f'<a href="#d{number}">{number}</a>' for number in numbers)
            if len(numbers) > MANY_DIMENSIONS:
                parts.append(_folded(f"{told}: {len(numbers):,}", f'<p class="note">{links}</p>'))
            else:
                parts.append(f'<p class="note">{told}: {links}</p>')
    many = " many" if len(bars) > MANY_DIMENSIONS else ""
    return f'<nav class="map{many}" aria-label="Dimensions">{"".join(bars)}</nav>{"".join(parts)}'


def _probes(probes: Sequence[Probe]) -> str:
    if not probes:
        return ""
    items = "".join(f"<li>{escape(each.text)}<small>decodes to: {escape(each.decoded)}</small></li>" for each in probes)
    return (
        f'<details class="box"><summary>The sentences in which dimensions are switched ({len(probes)})</summary>'
        f"<ol>{items}</ol></details>"
    )


def _tools(features: Features) -> str:
    orders = {"number": "number", "activity": "density" if features.gated else "variance"}
    orders |= {"labels": "label association"} if features.classes else {}
    orders |= {"words": "strength of words", "effects": "effect on decoding"}
    shows = {"alive": "all but dead", "varies": "those that vary"}
    shows |= {"always on": "always on"} if features.gated else {}
    shows |= {"dead": "dead", "all": "all"}

    def choice(key: str, told: str, options: dict[str, str]) -> str:
        inner = "".join(f'<option value="{value}">{text}</option>' for value, text in options.items())
        return f'<label>{told} <select id="{key}">{inner}</select></label>'

    return (
        '<div class="tools" id="tools" role="search" hidden>'
        '<input type="search" id="search" placeholder="Words, sentences, classes, or #number" aria-label="Search" '
        'autocomplete="off" spellcheck="false">'
        f"{choice('order', 'by', orders)}{choice('show', 'show', shows)}"
        '<label><input type="checkbox" id="whole"> long sentences whole</label>'
        '<output id="count" aria-live="polite"></output></div>'
    )


# A card


def _card(dimension: Dimension, features: Features, hues: dict[str, int]) -> str:
    title = _title(dimension)
    state = "" if dimension.state == "varies" else f'<span class="state">{dimension.state}</span>'
    keys = {
        "number": dimension.number,
        "state": dimension.state,
        "activity": dimension.variance if dimension.density is None else dimension.density,
        "labels": -1.0 if dimension.labels is None else dimension.labels.excess,
        "words": max((word.z for side in dimension.sides for word in side.words), default=0.0),
        "effects": len({each.probe for each in dimension.effects if each.changed}),
    }
    data = " ".join(f'data-{key}="{value}"' for key, value in keys.items())
    parts = [
        f'<header><a class="number" href="#d{dimension.number}" aria-label="dimension {dimension.number}">'
        f"{dimension.number}</a><h2>{escape(title)}</h2>{state}</header>{_density(dimension)}",
        _sides(dimension, hues),
        _labels(dimension, hues),
        _effects(dimension, features.probes),
    ]
    dead = " dead" if dimension.state == "dead" else ""
    return f'<article class="card{dead}" id="d{dimension.number}" {data}>{"".join(parts)}</article>'


def _title(dimension: Dimension) -> str:
    """Its strongest words for a name, marks only where there is nothing else."""
    names = []
    for side in _ends(dimension) or dimension.sides[:1]:
        words = [each.word for each in side.words]
        names.append(" · ".join([word for word in words if any(map(str.isalnum, word))][:3] or words[:3]))
    return " ↔ ".join(filter(None, names))


def _ends(dimension: Dimension) -> tuple[Side, ...]:
    return tuple(side for side in dimension.sides if side.name in ("high", "low"))


def _activity(dimension: Dimension) -> str:
    if dimension.density is None:
        return f"variance {dimension.variance:.3g}"
    return f"on in {dimension.density:.1%} of sentences"


def _density(dimension: Dimension) -> str:
    told = _activity(dimension)
    if dimension.density is None:
        return f'<p class="density">{told}</p>'
    on = dimension.side("on")
    typical = f", usually at {_signed(on.typical)}" if on and not _ends(dimension) else ""
    return f'<div class="density">{_bar(dimension.density)}<span>{told}{typical}</span></div>'


def _bar(share: float, mark: float | None = None) -> str:
    tick = "" if mark is None else f'<u style="left:calc({100 * mark:.1f}% - 1px)"></u>'
    return f'<span class="bar"><i style="width:{100 * share:.1f}%"></i>{tick}</span>'


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _sides(dimension: Dimension, hues: dict[str, int]) -> str:
    parts = []
    on, off, ends = dimension.side("on"), dimension.side("off"), _ends(dimension)
    if on and off:
        words = _chips(on.words) or '<p class="none">No word is more frequent where it is on.</p>'
        parts.append(f"<h3>words where it is on</h3>{words}")
        if off.words:
            parts.append(f'<div class="second"><h3>words where it is off</h3>{_chips(off.words)}</div>')
        if not ends:
            parts.append(f"<h3>sentences that switch it on most</h3>{_sentences(on, hues)}")
    if ends:
        high, low = (_end(side, hues) for side in ends)
        parts.append(f'<div class="ends">{high}<div class="second">{low}</div></div>')
    return "".join(parts)


def _end(side: Side, hues: dict[str, int]) -> str:
    words = _chips(side.words) or '<p class="none">no word in particular</p>'
    return f"<div><h3>{side.name}, usually {_signed(side.typical)}</h3>{words}{_sentences(side, hues)}</div>"


def _chips(words: Sequence[Word]) -> str:
    if not words:
        return ""
    most = words[0].z
    items = "".join(
        f'<li style="--w:{each.z / most:.2f}" title="z {each.z:.1f}; {each.count:,} here, {each.other:,} there">'
        f"{escape(each.word)}</li>"
        for each in words
    )
    return f'<ul class="chips">{items}</ul>'


def _sentences(side: Side, hues: dict[str, int]) -> str:
    most = max((each.strength for each in side.examples), default=0.0) or 1.0
    frequent = {word.word for word in side.words}
    items = [_sentence(each, most, frequent, hues) for each in side.examples]
    shown = f'<ol class="sentences">{"".join(items[:SHOWN_SENTENCES])}</ol>'
    rest = items[SHOWN_SENTENCES:]
    return shown + (_folded(f"{len(rest)} more", f'<ol class="sentences">{"".join(rest)}</ol>') if rest else "")


def _sentence(example: Example, most: float, frequent: set[str], hues: dict[str, int]) -> str:
    words = " ".join(f"<b>{escape(w)}</b>" if w in frequent else escape(w) for w in example.text.split())
    on = "" if example.on is None else f", on with probability {example.on:.3f}"
    tag = "" if example.label not in hues else f" {_tag(example.label, hues)}"
    return (
        f'<li><span class="value" style="--w:{example.strength / most:.2f}" title="sentence {example.row}{on}">'
        f'{_signed(example.value)}</span><span class="text">{words}{tag}</span></li>'
    )


def _tag(label: str, hues: dict[str, int]) -> str:
    return f'<span class="tag" style="--h:{hues[label]}">{escape(label)}</span>'


def _folded(summary: str, inner: str) -> str:
    return f'<details class="more"><summary>{summary}</summary>{inner}</details>'


def _labels(dimension: Dimension, hues: dict[str, int]) -> str:
    found = dimension.labels
    if found is None:
        return ""
    first = dimension.sides[0].name
    if not found.is_clear:
        told = f"says hardly more than shuffled labels would ({found.information:.4f} nats, p = {found.p:.2f})"
        return f'<h3>labels</h3><p class="none">{told}</p>'
    share = dimension.sides[0].sentences / sum(side.sentences for side in dimension.sides[:2])
    order = sorted(found.shares, key=lambda label: -found.shares[label])
    rows = [_class_row(label, found.shares[label], share, hues) for label in order]
    more = rows[SHOWN_CLASSES:]
    rest = _folded(f"{len(more)} more", f'<dl class="classes">{"".join(more)}</dl>') if more else ""
    return (
        f'<h3>labels: {first} in so many of a class</h3><dl class="classes">{"".join(rows[:SHOWN_CLASSES])}</dl>{rest}'
        f'<p class="note">{_association_told(found, first)}</p>'
    )


def _class_row(label: str, share: float, overall: float, hues: dict[str, int]) -> str:
    return (
        f'<dt style="--h:{hues[label]}" title="{escape(label)}">{escape(label)}</dt>'
        f'<dd style="--h:{hues[label]}">{_bar(share, overall)}</dd><dd class="share">{share:.0%}</dd>'
    )


def _association_told(found: Association, side: str) -> str:
    return (
        f"Tells {found.information:.2g} nats about the label ({found.shuffled:.1g} when shuffled, p "
        f"{'=' if found.p > 2 / (1 + found.shuffles) else '≤'} {found.p:.3f}). Most of all "
        f"{escape(found.label)}, {side} {found.lift:.1f} times as often as overall."
    )


def _effects(dimension: Dimension, probes: Sequence[Probe]) -> str:
    if not dimension.effects:
        return ""
    changed = [each for each in dimension.effects if each.changed]
    if not changed:
        told = "Switching it changes nothing in the sentences tried."
        return f'<h3>effect on decoding</h3><p class="none">{told}</p>'
    items = "".join(_effect(each, probes[each.probe]) for each in changed)
    same = len(probes) - len({each.probe for each in changed})
    note = f'<p class="none">{same} of {len(probes)} sentences stay the same.</p>' if same else ""
    return f'<h3>effect on decoding</h3><ul class="effects">{items}</ul>{note}'


def _effect(effect: Effect, probe: Probe) -> str:
    told = f"in sentence {effect.probe + 1}, from {_signed(effect.value_before)} to {_signed(effect.value_after)}"
    return (
        f'<li><span class="move" title="{told}">{effect.before} → {effect.after}</span>'
        f"<span>{difference(probe.decoded, effect.decoded)}</span></li>"
    )


def difference(before: str, after: str) -> str:
    """One sentence made into another, as HTML: words that go are struck out, words that come stand beside.

    >>> difference("the chef burned <it>", "the nurse burned <it>")
    'the <del>chef</del> <ins>nurse</ins> burned &lt;it&gt;'
    """
    old, new = before.split(), after.split()
    parts: list[str] = []
    for kind, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(_joined(old[old_from:old_to]))
            continue
        if old_to > old_from:
            parts.append(f"<del>{_joined(old[old_from:old_to])}</del>")
        if new_to > new_from:
            parts.append(f"<ins>{_joined(new[new_from:new_to])}</ins>")
    return " ".join(parts)


def _joined(words: Iterable[str]) -> str:
    return escape(" ".join(words))


# Below the cards


def _footer(features: Features) -> str:
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in features.settings.items() if value)
    words = (
        "log-odds ratios between the two sides with a prior as informative as "
        f"{features.settings['prior_words']:.0f} words of all sentences (Monroe, Colaresi and Quinn 2008), ordered by "
        "z; larger and darker is stronger, and only what lies more than 1.96 deviations above 0 is shown."
    )
    values = (
        "the slab's mean of the dimension; sentences are ordered by the probability of being on times its size, or "
        "times its distance from the average."
        if features.gated
        else "the posterior's mean of the dimension; sentences are ordered by their distance from its average."
    )
    effect = (
        "the code of a sentence (zero where off) is decoded once as it is and once with this dimension switched off, "
        "or on at its usual (median) value, or at that of its other end; words struck out go, green ones come."
        if features.gated
        else "the code of a sentence is decoded once as it is and once with this dimension at the median of its other "
        "end; words struck out go, green ones come."
    )
    told = {"Words": words, "Values": values}
    if features.classes:
        told["Labels"] = (
            "mutual information of the side and the label by counting, beside its mean over shuffled labels; the tick "
            "on a bar is the share among all sentences. Of many dimensions a few pass any p by chance."
        )
    told |= {"Effect": effect} if features.probes else {}
    keys = "<kbd>/</kbd> searches, <kbd>Esc</kbd> clears, <kbd>j</kbd> and <kbd>k</kbd> go from card to card."
    items = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in told.items())
    return (
        f"<footer><dl>{items}<dt>Keys</dt><dd>{keys}</dd><dt>Settings</dt><dd>{escape(settings)}. "
        "Everything on this page is in features.json beside it.</dd></dl></footer>"
    )
