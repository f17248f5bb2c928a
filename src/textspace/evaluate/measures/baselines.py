"""What labels can be read without a latent space: from nothing, words or length, from a pretrained encoder as it came,
and by training end to end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn

from textspace.config import PretrainedEncoder as PretrainedEncoderConfig
from textspace.config import RecurrentEncoder as RecurrentEncoderConfig
from textspace.config import SimplePooling as SimplePoolingConfig
from textspace.data.batching import batches_by_length, make_batch, plan_batches
from textspace.data.encoded import EncodedSplit
from textspace.encoders import PretrainedEncoder, RecurrentEncoder
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Sentences, Subject, Table
from textspace.evaluate.measures.classifiers import (
    Settings,
    accuracy,
    accuracy_over_seeds,
    fit_linear,
    known,
    labelled,
    majority_estimate,
    per_sentence,
    train_network,
)
from textspace.evaluate.measures.probes import CLASSIFIER_HIDDEN, MLP_HIDDEN, with_network
from textspace.inputs import warn
from textspace.networks import perceptron
from textspace.noise import seed_of
from textspace.pooling import SimplePooling
from textspace.pretrained import EncoderFiles
from textspace.progress import track
from textspace.types import Estimate, View

__all__ = [
    "MEASURES",
    "RecurrentClassifier",
    "bag_of_words_predictions",
    "end_to_end_baselines",
    "equal_size",
    "length_predictions",
    "plain_encoder_features",
    "probe_baselines",
    "recurrent_predictions",
]

Ints = NDArray[np.int64]

LENGTH_BINS = 20
BATCH, PATIENCE = 64, 2
MOST_RUNS = 3
"""Training end to end is repeated at most so often."""


# Words and lengths


def bag_of_words_predictions(train: Sequence[str], train_N: Ints, test: Sequence[str], seed: int) -> Ints:
    """Classes of test sentences by logistic regression on the counts of their whitespace words."""
    vectorizer = CountVectorizer(tokenizer=str.split, token_pattern=None, lowercase=False)
    counts_NV = vectorizer.fit_transform(train)
    return fit_linear(counts_NV, train_N, seed=seed, scale=False).predict(vectorizer.transform(test))


def length_predictions(train_words_N: Ints, train_N: Ints, test_words_N: Ints, seed: int) -> Ints:
    """Classes of test sentences by logistic regression on which of about 20 equally full bins their length is in."""
    edges = np.unique(np.quantile(train_words_N, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1]))
    edges = edges[edges > train_words_N.min()]  # below the shortest there is no bin

    def in_bins(words_N: Ints) -> NDArray[np.float64]:
        return np.eye(len(edges) + 1)[np.searchsorted(edges, words_N, side="right")]

    return fit_linear(in_bins(train_words_N), train_N, seed=seed, scale=False).predict(in_bins(test_words_N))


def probe_baselines(subject: Subject) -> Findings:
    """Accuracy of the majority class, of word counts, and of sentence length alone, all training labels.

    Where the space has a pretrained encoder, also of the encoder as its makers trained it, with a linear classifier and
    with that of `sampled_classifier`.
    """
    classes, (train, test) = labelled(subject, "train", "test")
    seed = seed_of(subject.seed, "baselines")
    words_N = [np.array([len(words) for words in split.sentences.words]) for split in (train, test)]
    predictions = {
        "bag_of_words": bag_of_words_predictions(train.sentences.texts, train.classes_N, test.sentences.texts, seed),
        "length": length_predictions(words_N[0], train.classes_N, words_N[1], seed),
    }
    names = {
        "bag_of_words": "logistic regression on counts of words",
        "length": "logistic regression on sentence length alone (binned words)",
    }
    plain = plain_encoder_features(subject)
    if plain is not None:
        fit = fit_linear(plain(train.sentences), train.classes_N, seed=seed)
        predictions["plain_encoder"] = fit.predict(plain(test.sentences))
        names["plain_encoder"] = "logistic regression on the mean state of the pretrained encoder as it came"
    settings: Settings = {"seed": subject.seed, "labels": len(train), "classes": len(classes)}
    estimates = {"majority": majority_estimate(train.classes_N, test.classes_N)}
    correct = {key: predicted_N == test.classes_N for key, predicted_N in predictions.items()}
    for key, correct_N in correct.items():
        estimates[key] = accuracy(f"accuracy (%) of {names[key]}, all training labels", correct_N, settings)
    by_sentence = {key: per_sentence(correct_N[None]) for key, correct_N in correct.items()}
    if plain is not None and "valid" in subject.splits:
        name = "accuracy (%) of a 2-layer classifier on the mean state of the pretrained encoder as it came"
        same: Settings = {"codes": "mean states of the last layer, scaled", "hidden": CLASSIFIER_HIDDEN}
        found = with_network(subject, "plain_encoder", name, lambda of: plain(of)[:, None], same, CLASSIFIER_HIDDEN)
        estimates |= found.estimates
        by_sentence |= found.per_sentence
    return Findings(
        estimates, {"probe_baselines": _table("Classifiers that see no code", estimates)}, per_sentence=by_sentence
    )


def plain_encoder_features(subject: Subject) -> Callable[[Sentences], NDArray[np.float32]] | None:
    """Makes the mean states of the space's pretrained encoder as it came from its makers, (N, H).

    A fine-tuned encoder is loaded again from where the recipe says (`encoder.model`). None where that cannot be had,
    which is told, and where the space has no such encoder.
    """
    space = subject.space
    config = space.recipe.encoder
    if not isinstance(config, PretrainedEncoderConfig):
        return None
    try:
        own = space.tokenizer.encoder if config.frozen else None
        files = own or EncoderFiles.fetch(config)
        encoder = space.model.encoder if config.frozen else PretrainedEncoder(config).to(space.device)
    except TextspaceError as error:
        warn(f"the pretrained encoder as it came is no baseline here: {error}")
        return None
    assert encoder is not None  # of a recipe that has one
    pool = SimplePooling(SimplePoolingConfig(kind="mean"), encoder.size)
    tokenizer = space.tokenizer.with_encoder(files)

    @torch.no_grad()
    def features(of: Sentences) -> NDArray[np.float32]:
        split = EncodedSplit.of(of.texts, tokenizer, space.recipe.text.max_tokens)
        found_NH = np.zeros((len(split), encoder.size), np.float32)
        plan = batches_by_length(split.lengths, tokens=2**14)
        for rows_B in track(plan, "pretrained encoder", subject.show_progress, len(plan)):
            states = encoder(make_batch(split, rows_B).encoder.to(space.device))
            found_NH[rows_B] = pool(states).float().cpu().numpy()
        return found_NH

    return features


def _table(title: str, estimates: dict[str, Estimate]) -> Table:
    rows = [
        (e.name.removeprefix("accuracy (%) of "), e.value, e.stderr, str(e.settings["error"]))
        for e in estimates.values()
    ]
    return Table(title, ("classifier", "accuracy (%)", "±", "± is"), tuple(rows))


# End to end


class RecurrentClassifier(nn.Module):
    """log p(y | x): a recurrent encoder's last states, of both directions where there are two, and a perceptron."""

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.encoder = RecurrentEncoder(config, vocabulary)
        self.head = perceptron(self.encoder.size, hidden, 2, classes)

    def forward(self, view: View) -> Tensor:
        return self.head(self.encoder(view).last_BH).log_softmax(1)

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        return sum(parameter.numel() for parameter in self.parameters())


def equal_size(config: RecurrentEncoderConfig) -> RecurrentEncoderConfig:
    """A bidirectional LSTM of one layer with about as many recurrent weights as an encoder has.

    >>> equal_size(RecurrentEncoderConfig(kind="lstm", embedding=256, hidden=256)).hidden
    158
    """
    with torch.random.fork_rng(devices=[]):  # only to count
        wanted = sum(parameter.numel() for parameter in RecurrentEncoder(config, 1).recurrent.parameters())
    inputs = config.embedding + 2  # and two biases
    units = (math.sqrt(inputs**2 + wanted / 2) - inputs) / 2  # of which 2 x 4 x units x (inputs + units) is wanted
    return RecurrentEncoderConfig(
        kind="lstm", embedding=config.embedding, hidden=max(1, round(units)), bidirectional=True
    )


def recurrent_predictions(
    config: RecurrentEncoderConfig,
    vocabulary: int,
    train: tuple[EncodedSplit, Ints],
    valid: tuple[EncodedSplit, Ints],
    test: EncodedSplit,
    *,
    hidden: int,
    epochs: int,
    seed: int,
    device: torch.device | str = "cpu",
) -> tuple[Ints, int]:
    """Classes that a `RecurrentClassifier` trained end to end predicts, and how many parameters it has.

    Training stops early on validation data. Everything random comes from the seed.
    """
    (split, train_N), (valid_split, valid_N) = train, valid

    def batch(of: EncodedSplit, rows_B: Ints, classes_N: Ints) -> tuple[View, Tensor]:
        return make_batch(of, rows_B).decoder.to(device), torch.from_numpy(classes_N[rows_B]).to(device)

    def batches(epoch: int) -> Iterable[tuple[View, Tensor]]:
        plan = plan_batches(split.lengths, size=BATCH, seed=seed_of(seed, "order") % 2**32, epoch=epoch)
        return (batch(split, rows_B, train_N) for rows_B in plan)

    def sorted_batches(of: EncodedSplit) -> Iterable[Ints]:
        return batches_by_length(of.lengths, tokens=2**14)

    def valid_batches(epoch: int) -> Iterable[tuple[View, Tensor]]:
        known_N = known(valid_N)
        kept = (rows_B[known_N[rows_B]] for rows_B in sorted_batches(valid_split))
        return (batch(valid_split, rows_B, valid_N) for rows_B in kept if len(rows_B))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "initial weights"))
        network = RecurrentClassifier(config, vocabulary, hidden, int(train_N.max()) + 1).to(device)
    train_network(network, batches, valid_batches, epochs=epochs, patience=PATIENCE)
    predicted_N = np.zeros(len(test), np.int64)
    with torch.no_grad():
        for rows_B in sorted_batches(test):
            predicted_N[rows_B] = network(make_batch(test, rows_B).decoder.to(device)).argmax(1).cpu().numpy()
    return predicted_N, network.size


def end_to_end_baselines(subject: Subject) -> Findings:
    """Accuracy of two recurrent classifiers that are trained with all labels, encoder included.

    A bidirectional LSTM about as large as the space's encoder, with the perceptron of `mlp_probe` [Long et al. 2019,
    appendix A]; and a GRU with the classifier of `sampled_classifier`, the simple classifier of Prokhorov et al. 2021.
    """
    classes, (train, valid, test) = labelled(subject, "train", "valid", "test")
    own: Any = subject.space.recipe.encoder
    config = own if isinstance(own, RecurrentEncoderConfig) else RecurrentEncoderConfig()
    gru = RecurrentEncoderConfig(kind="gru", embedding=config.embedding, hidden=config.hidden)
    kinds = {
        "bi_lstm": ("a bi-LSTM with a 3-layer perceptron", equal_size(config), MLP_HIDDEN),
        "simple_classifier": ("a GRU with a 2-layer classifier (simple classifier)", gru, CLASSIFIER_HIDDEN),
    }
    runs = min(MOST_RUNS, subject.effort.repeats)
    estimates = {"majority": majority_estimate(train.classes_N, test.classes_N)}
    by_sentence = {}
    for key, (what, sizes, hidden) in kinds.items():
        correct_RN = np.zeros((runs, len(test)), bool)
        for run in track(range(runs), key.replace("_", " "), subject.show_progress, runs):
            predicted_N, parameters = recurrent_predictions(
                sizes,
                len(subject.space.tokenizer),
                (train.sentences.split, train.classes_N),
                (valid.sentences.split, valid.classes_N),
                test.sentences.split,
                hidden=hidden,
                epochs=subject.effort.language_model_epochs,
                seed=seed_of(subject.seed, key, run),
                device=subject.space.device,
            )
            correct_RN[run] = predicted_N == test.classes_N
        settings: Settings = {
            "seed": subject.seed,
            "labels": len(train),
            "classes": len(classes),
            "parameters": parameters,
            "embedding": sizes.embedding,
            "units": sizes.hidden,
            "epochs_at_most": subject.effort.language_model_epochs,
            "stopped_by": "validation cross-entropy",
        }
        name = f"accuracy (%) of {what}, {parameters:,} parameters, trained end to end, all training labels"
        estimates[key] = accuracy_over_seeds(name, correct_RN, settings)
        by_sentence[key] = per_sentence(correct_RN)
    table = _table("Recurrent classifiers trained end to end", estimates)
    return Findings(estimates, {"end_to_end_baselines": table}, per_sentence=by_sentence)


MEASURES = {
    "probe_baselines": Measure(
        probe_baselines,
        "What labels can be read from words, from length, or from a pretrained encoder as it came.",
        ("labels", "train"),
    ),
    "end_to_end_baselines": Measure(
        end_to_end_baselines,
        "What recurrent classifiers reach that are trained with all labels.",
        ("labels", "train", "valid"),
        ("full",),
    ),
}
