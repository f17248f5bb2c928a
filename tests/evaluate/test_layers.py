"""The layers of an encoder against the library's own, one sentence at a time; and function words among tokens."""

import numpy as np
import pytest
import torch
from tiny_encoder import VOCABULARY, tiny_encoder

from textspace.errors import TextspaceError
from textspace.evaluate.function_words import FUNCTION_WORDS, function_word_ids
from textspace.evaluate.isotropy import isotropy_of
from textspace.evaluate.layers import Layers, layers_of

TEXTS = ["anna sees cats", "bob likes dogs and birds", "stones", "", "dora hears !"]


@pytest.fixture(scope="module")
def layers() -> Layers:
    return layers_of(str(tiny_encoder()), TEXTS)


def test_every_layer_is_that_of_the_library_without_special_tokens(layers) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = (each.from_pretrained(tiny_encoder()) for each in (AutoTokenizer, AutoModel))
    for row, text in enumerate(TEXTS):
        read = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = network.eval()(**read, output_hidden_states=True).hidden_states
        assert layers.ids[row].tolist() == read["input_ids"][0, 1:-1].tolist()
        assert len(layers.vectors) == len(states) == 2
        for layer, expected in zip(layers.vectors, states, strict=True):
            np.testing.assert_allclose(layer[row], expected[0, 1:-1].numpy(), atol=1e-5)
    assert len(layers.ids[3]) == 0


def test_tokens_are_named_and_the_unknown_one_is_told(layers) -> None:
    assert [layers.names[number] for number in layers.ids[0]] == ["an", "##na", "see", "##s", "cat", "##s"]
    assert layers.unknown == VOCABULARY.index("[UNK]") == layers.ids[4][-1]


def test_isotropy_takes_any_layer(layers) -> None:
    for layer in layers.vectors:
        found = isotropy_of(layer, layers.ids)
        assert found.sentences == 4  # one has no token
        assert -1 < found.random.value < 1


def test_no_sentence_is_no_trouble_and_no_model_is(tmp_path) -> None:
    assert layers_of(str(tiny_encoder()), []) == Layers([], [], {}, 1)
    with pytest.raises(TextspaceError, match="cannot be loaded"):
        layers_of(str(tmp_path), TEXTS)


def test_function_words_are_whole_tokens() -> None:
    words = {0: "The", 1: "cat", 2: "of", 3: "##of"}
    assert function_word_ids(words) == {0, 2}
    assert function_word_ids(words.items()) == {0, 2}
    assert function_word_ids({0: "Ġthe", 1: "the", 2: "▁The", 3: "Ġcat"}) == {0, 2}
    assert {"the", "of", "and", "is", "it"} <= FUNCTION_WORDS
    assert not {"cat", "man", "said", "good", "one"} & FUNCTION_WORDS
