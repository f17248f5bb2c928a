"""Hugging Face encoders: found by name, kept with a space, and built again without the hub.

A space keeps the encoder's architecture and its tokenizer as two texts (`encoder/config.json` and
`encoder/tokenizer.json`); its weights lie with all others. Only architectures that `transformers` itself has are built:
no code comes from a model's repository or from a space's folder, and weights are read from safetensors alone.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
import torch
from torch import nn

from textspace.config import PretrainedEncoder
from textspace.errors import TextspaceError
from textspace.files import read_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["FILES", "FOLDER", "EncoderFiles", "network_with_weights"]

FOLDER = "encoder"
"""Where a space's folder has the files."""

FILES = CONFIG, TOKENIZER = "config.json", "tokenizer.json"

_WITHOUT = ("auto_map", "quantization_config", "attn_implementation", "dtype", "torch_dtype", "transformers_version")
"""What of a config is not the architecture: where it was, on what, and code of others."""

_VOCABULARIES = ("tokenizer.*", "*vocab*", "*merges*", "*.model", "*.model.*", "*.spm", "*.tiktoken", "tekken.json")
"""Files of which a folder has one at least if it has a tokenizer; `tokenizer_config.json` says no words."""

FEWEST_TOKENS = 4
"""A tokenizer with fewer, its special ones not counted, is one that the library makes up where it finds none."""


class EncoderFiles:
    """What an encoder of Hugging Face is, weights apart: its architecture, and how it reads text.

    Args:
        config: the text of its `config.json`.
        tokenizer: the text of its `tokenizer.json`, which also says after how many tokens to cut.
    """

    def __init__(self, config: str, tokenizer: str) -> None:
        self.config, self.tokenizer = config, tokenizer
        self._library = tokenizers.Tokenizer.from_str(tokenizer)

    @classmethod
    def fetch(cls, chosen: PretrainedEncoder) -> EncoderFiles:
        """Those of the model that a recipe names, from its folder or the hub."""
        transformers = _transformers()
        with _loading(chosen.model):
            config = transformers.AutoConfig.from_pretrained(chosen.model, trust_remote_code=False)
            architecture = json.dumps(_architecture(config.to_dict()), indent=1, sort_keys=True) + "\n"
            with torch.device("meta"):  # only shapes are asked for
                embeddings = _embeddings(_built(architecture), chosen.model)
            _check_folder(chosen.model)
            reads = transformers.AutoTokenizer.from_pretrained(chosen.model, trust_remote_code=False)
            library = tokenizers.Tokenizer.from_str(reads.backend_tokenizer.to_str())
            _check_vocabulary(library, reads.all_special_ids, embeddings, chosen.model)
        library.no_padding()
        library.enable_truncation(_most_tokens(chosen, config, reads.model_max_length))
        return cls(architecture, library.to_str())

    @classmethod
    def read(cls, folder: Path) -> EncoderFiles:
        """Those that `write` left in a folder."""
        try:
            return cls(*(read_text(folder / name) for name in (CONFIG, TOKENIZER)))
        except OSError as error:
            raise TextspaceError(f"the encoder's files in {folder} cannot be read: {error.strerror or error}") from None
        except Exception as error:  # the library raises bare Exception
            told = str(error).partition("\n")[0]
            raise TextspaceError(f"the encoder's files in {folder} are damaged ({told}): copy them again") from None

    def by_name(self) -> dict[str, bytes]:
        """What to write into a folder, for `read`."""
        return {CONFIG: self.config.encode(), TOKENIZER: self.tokenizer.encode()}

    @cached_property
    def fingerprint(self) -> str:
        return sha256(json.dumps([self.config, self.tokenizer]).encode()).hexdigest()

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text as the model wants them, its own special tokens included; at least one."""
        return self.encode_counting(texts)[0]

    def encode_counting(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """The same, and how many of the texts had more tokens than the model reads and were cut."""
        limit = (self._library.truncation or {}).get("max_length", 0)
        read, cut = [], 0
        for encoding in self._library.encode_batch_fast(texts):
            ids = encoding.ids
            cut += len(ids) >= limit and bool(encoding.overflowing)  # which is slow to ask of every text
            read.append(ids or [0])
        return read, cut

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the characters of each token begin and end in a text; special tokens have none."""
        return self._library.encode(text).offsets or [(0, 0)]

    def mark_words(self, texts: list[str]) -> list[list[bool]]:
        """Which of the ids that `encode` gives stand for a text's own characters: those of special tokens do not."""
        read = self._library.encode_batch_fast(texts)
        return [[not is_special for is_special in each.special_tokens_mask] or [False] for each in read]

    def token(self, token_id: int) -> str:
        """The vocabulary's entry for an id."""
        return self._library.id_to_token(token_id) or ""

    @property
    def unknown(self) -> int | None:
        """The id for unknown words, where there is one: Unigram models have the id, and all others the token."""
        model = json.loads(self.tokenizer)["model"]
        vocabulary = model["vocab"]
        return model.get("unk_id", vocabulary.get(model.get("unk_token")) if isinstance(vocabulary, dict) else None)

    def knows(self, token: str) -> bool:
        """Whether a text of this alone is one token of its vocabulary, a special one or not."""
        return self._library.token_to_id(token) is not None

    def network(self) -> PreTrainedModel:
        """The architecture with weights that mean nothing yet."""
        transformers = _transformers()
        try:
            return _built(self.config)
        except Exception as error:  # whatever the library meets in a file that somebody else wrote
            told = str(error).partition("\n")[0]
            raise TextspaceError(
                f"the encoder's architecture ({told}) is none that transformers {transformers.__version__} can build: "
                "update it, or copy the space again"
            ) from None


def network_with_weights(chosen: PretrainedEncoder) -> PreTrainedModel:
    """The model that a recipe names, as its makers trained it."""
    transformers = _transformers()
    with _loading(chosen.model):
        network, told = transformers.AutoModel.from_pretrained(
            chosen.model, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    encoder = _encoder_of(network)
    own = {name for name, parameter in network.named_parameters() if any(parameter is p for p in encoder.parameters())}
    absent = sorted(own & {*told["missing_keys"], *(name for name, *_ in told["mismatched_keys"])})
    if absent:
        raise TextspaceError(f"{chosen.model!r} has no weights for its {absent[0]!r}: choose another encoder.model")
    return encoder


def _architecture(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _WITHOUT and not name.startswith("_")}


def _built(config: str) -> PreTrainedModel:
    """The architecture that the text of a config describes."""
    transformers = _transformers()
    data = _architecture(json.loads(config))
    own = transformers.CONFIG_MAPPING[data.pop("model_type")].from_dict(data)
    return _encoder_of(transformers.AutoModel.from_config(own, trust_remote_code=False).float())


def _encoder_of(network: PreTrainedModel) -> PreTrainedModel:
    """The part that makes a state of every token: no decoder, and no layer above the first token."""
    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    return network


def _embeddings(network: PreTrainedModel, model: str) -> int:
    """How many tokens the model has embeddings for; one that does not read text has none, and is refused."""
    sizes = [getattr(network.config, name, None) for name in ("hidden_size", "vocab_size")]
    try:
        weight: Any = network.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):  # of images or sound
        weight = None
    takes_text = {"input_ids", "attention_mask"} <= inspect.signature(network.forward).parameters.keys()
    if not takes_text or not all(isinstance(size, int) for size in sizes) or weight is None or weight.ndim != 2:
        raise TextspaceError(
            f"{model!r} ({network.config.model_type}) does not read text alone, as input_ids with an attention_mask: "
            "choose an encoder of text, like BERT, as encoder.model"
        )
    return len(weight)


def _check_folder(model: str) -> None:
    """Refuse a folder without a tokenizer, for which the library would make up one that knows no words."""
    folder = Path(model)
    if folder.is_dir() and not any(any(folder.glob(pattern)) for pattern in _VOCABULARIES):
        raise TextspaceError(
            f"the folder {model!r} has no tokenizer: put the model's own tokenizer.json beside its config.json, as the "
            "tokenizer's save_pretrained writes it"
        )


def _check_vocabulary(library: tokenizers.Tokenizer, special: list[int], embeddings: int, model: str) -> None:
    """Refuse a tokenizer that knows no words, or whose ids the model does not all know."""
    ids = set(library.get_vocab(with_added_tokens=True).values())
    marks = {number for number, token in library.get_added_tokens_decoder().items() if token.special}
    if len(ids - marks - set(special)) < FEWEST_TOKENS:
        raise TextspaceError(
            f"the tokenizer of {model!r} has {len(ids)} tokens, hardly more than its special ones, and can read no "
            "words: give the tokenizer that the model was trained with"
        )
    if max(ids) >= embeddings:
        raise TextspaceError(
            f"the tokenizer of {model!r} has ids up to {max(ids)}, and the model knows only those below {embeddings}: "
            "give the tokenizer that the model was trained with"
        )


def _most_tokens(chosen: PretrainedEncoder, config: Any, tokenizer_limit: int) -> int:
    """Where to cut: at the recipe's limit or the model's own; special tokens count."""
    positions = getattr(config, "max_position_embeddings", None) or 10**6
    unknown = tokenizer_limit > 10**6
    # Some models cannot use their first two positions, and then their tokenizer says so.
    own = positions - 2 if unknown else min(tokenizer_limit, positions)
    if chosen.max_tokens is not None and chosen.max_tokens > own:
        raise TextspaceError(
            f"encoder.max_tokens is {chosen.max_tokens}, and {chosen.model!r} reads at most {own} tokens: give no more"
        )
    return own if chosen.max_tokens is None else chosen.max_tokens


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise TextspaceError(
            'a pretrained encoder needs the transformers library: install it with pip install "textspace[transformers]"'
        ) from None
    return transformers


@contextmanager
def _loading(model: str) -> Iterator[None]:
    """Without the library's own reports; what goes wrong is told in one sentence."""
    if not model:
        raise TextspaceError(
            "this recipe needs a pretrained encoder: name it with --set encoder.model=..., "
            "a folder or a model of the Hugging Face hub"
        )
    logging = _transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except TextspaceError:
        raise
    except Exception as error:  # of the library, the hub's client, the network, or files that somebody else wrote
        told = str(error).strip().partition("\n")[0].rstrip(".")
        raise TextspaceError(
            f"the encoder {model!r} cannot be loaded ({told}): give a folder with config.json, tokenizer.json and "
            "model.safetensors, or the name of a model of the Hugging Face hub while that can be reached"
        ) from None
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
