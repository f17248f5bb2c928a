"""Text to token ids and back: whole words, or subwords that give any text back exactly."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tokenizers as library
from tokenizers import decoders, models, pre_tokenizers, trainers

from textspace.errors import TextspaceError, nearest
from textspace.files import read_text
from textspace.progress import track

if TYPE_CHECKING:
    from textspace.config import BPETokenizer, TokenizerConfig, UnigramTokenizer, WordTokenizer
    from textspace.pretrained import EncoderFiles

__all__ = [
    "END",
    "FIRST_PREDICTED",
    "PAD",
    "SPECIALS",
    "START",
    "UNKNOWN",
    "UNKNOWN_ALIASES",
    "Tokenizer",
    "train_tokenizer",
]

# Ids 0 to 3 of every tokenizer: nothing else in the package spells these out.
PAD, START, UNKNOWN, END = range(4)
SPECIALS = ("<pad>", "<s>", "<unk>", "</s>")
FIRST_PREDICTED = UNKNOWN  # padding and start never follow anything: decoders give them no logit

# Ways in which published corpora write a word they removed. A bare UNK is left out: people do write it.
UNKNOWN_ALIASES = ("<unk>", "<UNK>", "_UNK", "[UNK]")

Kind = Literal["words", "bpe", "unigram"]
_KINDS: dict[str, Kind] = {"WordLevel": "words", "BPE": "bpe", "Unigram": "unigram"}
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # 256 characters, each standing for one byte
_SMALLEST = len(SPECIALS) + len(_BYTES)  # of subword vocabularies
_TRAINING_PIECE = 2_000  # characters; subword training takes quadratic time in the longest run without a space


class Tokenizer:
    """A trained tokenizer, made from the `tokenizers` library's JSON text.

    That text is all there is: it is what `save` writes, and the kind and the vocabulary are read off it.
    Start and end tokens are not made here (see `textspace.data.batching`), and no text can produce them: a
    literal `</s>` is an unknown word to a word tokenizer and five plain characters to a subword tokenizer.

    Args:
        json_text: as `save` writes it.
        encoder: how a pretrained encoder reads the same text, where a space has one; kept apart by `textspace.folder`.
    """

    pad_id, unk_id, start_id, end_id = PAD, UNKNOWN, START, END

    def __init__(self, json_text: str, encoder: EncoderFiles | None = None) -> None:
        self._json, self.encoder = json_text, encoder
        data = json.loads(json_text)
        self._library = library.Tokenizer.from_str(json_text)
        self._library.encode_special_tokens = True  # literal specials are plain text; not kept in the JSON
        self.kind: Kind = _KINDS[data["model"]["type"]]
        ids = self._library.get_vocab(with_added_tokens=True)
        self._tokens = sorted(ids, key=ids.__getitem__)
        if [ids[token] for token in self._tokens] != list(range(len(ids))):
            raise ValueError("ids have gaps")
        if tuple(self._tokens[: len(SPECIALS)]) != SPECIALS:
            raise ValueError("other special tokens")
        if self.kind != "words" and data["pre_tokenizer"]["type"] != "ByteLevel":
            raise ValueError("not over bytes")
        self._ids = ids
        # What text can produce: without the specials, so a literal `<s>` or `<unk>` is an unknown word.
        self._words = {token: ids[token] for token in self._tokens[len(SPECIALS) :]}

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The tokenizer saved at `path`."""
        try:
            return cls(read_text(Path(path)))
        except OSError as error:
            raise TextspaceError(f"the tokenizer {path} cannot be read: {error.strerror or error}") from error
        except Exception as error:  # the library raises bare Exception
            raise TextspaceError(
                f"{path} is damaged or is not a Textspace tokenizer ({error}); train or copy it again"
            ) from error

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, which other users of the `tokenizers` library can read too."""
        Path(path).write_text(self._json, encoding="utf-8")

    def to_json(self) -> str:
        """What `save` writes."""
        return self._json

    @property
    def fingerprint(self) -> str:
        """The same for equal tokenizers, whatever the layout of their JSON."""
        canonical = json.dumps(json.loads(self._json), sort_keys=True, separators=(",", ":"))
        of_encoder = "" if self.encoder is None else self.encoder.fingerprint
        return hashlib.sha256((canonical + of_encoder).encode()).hexdigest()

    def with_encoder(self, encoder: EncoderFiles) -> Tokenizer:
        """This tokenizer beside that of a pretrained encoder."""
        return Tokenizer(self._json, encoder)

    def __len__(self) -> int:
        """Size of the vocabulary, the four specials included."""
        return len(self._tokens)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, without start and end."""
        if self.kind == "words":
            # One core and a dict: measured five times faster than the library on two cores, which spends two
            # thirds of this time on just handing its results over to Python.
            find, unknown = self._words.get, self.unk_id
            return [[find(word, unknown) for word in text.split()] for text in texts]
        try:
            encodings = self._library.encode_batch_fast(texts, add_special_tokens=False)  # on all cores
        except (TypeError, UnicodeError) as error:
            raise _not_unicode() from error
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the characters of each token begin and end in a text; a subword may begin with the blank before it."""
        if self.kind == "words":
            return [word.span() for word in re.finditer(r"\S+", text)]
        return self._library.encode(text, add_special_tokens=False).offsets

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end token, leaving out start tokens and padding."""
        kept: list[int] = []
        for token_id in map(int, ids):
            if token_id == self.end_id:
                break
            if token_id not in (self.pad_id, self.start_id):
                kept.append(token_id)
        tokens = [self.token(token_id) for token_id in kept]
        if self.kind == "words":
            return " ".join(tokens)
        return self._library.decode(kept, skip_special_tokens=False)

    def token(self, token_id: int) -> str:
        """The vocabulary's entry for an id (of subwords: in the library's alphabet of bytes)."""
        if not 0 <= token_id < len(self._tokens):
            raise TextspaceError(f"there is no token {token_id}: ids go from 0 to {len(self) - 1}")
        return self._tokens[token_id]

    def shown(self, token_id: int) -> str:
        """The same as people read it: of subwords the text of its bytes, with � for part of a character."""
        token = self.token(token_id)
        return token if self.kind == "words" else str(self._library.decoder.decode([token]))

    def id(self, token: str) -> int:
        """Id of an entry of the vocabulary."""
        try:
            return self._ids[token]
        except KeyError:
            raise TextspaceError(f"{token!r} is not in the vocabulary; {nearest(token, self._ids)}") from None

    def covered(self, text: str, ids: list[int]) -> str:
        """The part of `text` that `ids`, the first of its tokens, stand for."""
        if self.kind == "words":
            return " ".join(text.split()[: len(ids)])
        covered = self.decode(ids)
        while not text.startswith(covered):  # the cut is inside a character, which decodes to another one
            covered = covered[:-1]
        return covered


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str], *, progress: bool = False) -> Tokenizer:
    """Learn a vocabulary in one pass over `texts`; equal texts give equal tokenizers.

    >>> from textspace.config import WordTokenizer
    >>> tokenizer = train_tokenizer(WordTokenizer(size=2), ["a b b c c", "_UNK c"])
    >>> tokenizer.encode(["c b a _UNK </s>"])
    [[4, 5, 2, 2, 2]]
    >>> tokenizer.decode([1, 4, 5, 2, 3, 0])
    'c b <unk>'
    """
    texts = _valid(texts)
    if config.kind == "words":
        trained = _train_words(config, track(texts, "counting words", progress))
    else:
        trained = _train_subwords(config, texts, progress)
    return Tokenizer(json.dumps(trained, ensure_ascii=False, indent=1))


def _train_words(config: WordTokenizer, texts: Iterable[str]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split())
    for word in (*SPECIALS, *config.unknown_aliases):
        counts.pop(word, None)
    frequent = (word for word, count in counts.items() if count >= config.min_count)
    words = sorted(frequent, key=lambda word: (-counts[word], word))[: config.size]
    if not words:
        raise TextspaceError(
            f"no word occurs {config.min_count} times or more in the training texts; lower min_count"
            if counts
            else "the training texts hold no words"
        )
    ids = {word: position for position, word in enumerate((*SPECIALS, *words))}
    tokenizer = library.Tokenizer(models.WordLevel(ids, unk_token=SPECIALS[UNKNOWN]))
    # Only for other readers of the file: the library's whitespace plus four separators makes str.split's.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(library.Regex(r"[\x1c-\x1f]+"), behavior="removed"),
            pre_tokenizers.WhitespaceSplit(),
        ]
    )
    tokenizer.add_special_tokens(list(SPECIALS))
    return json.loads(tokenizer.to_str())


def _train_subwords(config: BPETokenizer | UnigramTokenizer, texts: Iterable[str], progress: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "vocab_size": config.size,
        "special_tokens": list(SPECIALS),
        "initial_alphabet": _BYTES,  # every byte has a token, so nothing is unknown
        "show_progress": progress,
    }
    model: Any
    trainer: Any
    if config.kind == "bpe":
        model, trainer = models.BPE(), trainers.BpeTrainer(**options)
    elif config.kind == "unigram":
        model = models.Unigram()
        trainer = trainers.UnigramTrainer(unk_token=SPECIALS[UNKNOWN], **options)
    else:
        raise TextspaceError(f"there is no tokenizer {config.kind!r}; {nearest(config.kind, _KINDS.values())}")
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    texts = _short(texts)
    if config.kind == "unigram":
        texts = _with_seeds(texts, config.size)
    tokenizer.train_from_iterator(texts, trainer=trainer)
    data = json.loads(tokenizer.to_str())
    if config.kind == "unigram":
        data["model"]["vocab"] = _settled(data["model"]["vocab"], config.size)
    return data


def _settled(vocabulary: list[tuple[str, float]], size: int) -> list[tuple[str, float]]:
    """A Unigram vocabulary freed of the chance in the library's training.

    The library sums in the random order of a hash map, so the last digits of scores differ from run to run;
    it spaces bytes it has not seen 0.0001 apart, in that random order; and it may keep a piece too many.
    """
    specials, pieces = vocabulary[: len(SPECIALS)], vocabulary[len(SPECIALS) :]
    lowest = min(score for _, score in pieces)
    unseen_band = lowest + 0.0001 * len(_BYTES)
    settled = [
        (piece, round(lowest if len(piece) == 1 and score <= unseen_band else score, 6)) for piece, score in pieces
    ]
    settled.sort(key=lambda entry: (-entry[1], entry[0]))
    longer = [entry for entry in settled if len(entry[0]) > 1][: size - _SMALLEST]
    kept = {piece for piece, _ in longer}
    return specials + [entry for entry in settled if len(entry[0]) == 1 or entry[0] in kept]


def _valid(texts: Iterable[str]) -> Iterator[str]:
    """`texts`, of which there must be one, and which must all be Unicode."""
    count = 0
    for count, text in enumerate(texts, 1):  # noqa: B007  # used after the loop
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _not_unicode() from error
        yield text
    if not count:
        raise TextspaceError("there is no text to train a tokenizer on")


def _short(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), _TRAINING_PIECE):
            yield text[start : start + _TRAINING_PIECE]


def _with_seeds(texts: Iterable[str], size: int) -> Iterator[str]:
    """`texts`, then every frequent word once more, doubled.

    The library's Unigram starts from pieces that occur twice in its list of distinct words. A word that is
    part of no other one would never be a piece, however frequent; as part of its double it is.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split())
        yield text
    seen = set()
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size]:
        spaced = f" {word}"
        for _, (start, end) in _pre_tokenizer().pre_tokenize_str(spaced):
            part = spaced[start:end]  # what the library takes for a word, such as " don" and "'t"
            if count > 1 and part not in seen:
                seen.add(part)
                yield part + part.strip()


def _pre_tokenizer() -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _not_unicode() -> TextspaceError:
    return TextspaceError("a text is not valid Unicode (it holds half of a surrogate pair); mend or drop it")
