"""SentenceMIM in plain PyTorch: what its encoder reads, and that it learns to copy."""

from pathlib import Path

import torch
from helpers import tiny_sentences

from benchmarks.reading_order import END, ORDERS, START, Network, padded, read, trained


def test_orders_are_as_their_names_say() -> None:
    backwards = [7, 6, 5]
    marks = {"start": [START], "words": backwards, "end": [END]}
    for name, order in ORDERS.items():
        assert order(backwards) == [token for part in name.split(", ") for token in marks[part]]


def test_words_are_numbered_by_the_training_sentences(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a b b\n" + "long " * 21 + "\nb\n")
    (tmp_path / "valid.txt").write_text("b c\n")
    (tmp_path / "test.txt").write_text("b\n")
    train, valid = read(str(tmp_path), 9, 9)
    (a, *bs), (again,) = train
    assert bs == [again, again]
    assert a != again
    assert valid[0][0] == again
    assert valid[0][1] not in (a, again)
    ids, lengths = padded(train)
    assert (ids.tolist(), lengths.tolist()) == ([[a, again, again], [again, 0, 0]], [3, 1])


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    network = Network(12, ORDERS["words, start"]).eval()
    together = network([[5, 6, 7, 8], [9]])[0]
    assert together.isfinite()
    for features, alone in zip(network([[5, 6, 7, 8], [9]])[2], ([5, 6, 7, 8], [9]), strict=True):
        torch.testing.assert_close(features, network([alone])[2][0])


def test_it_learns_to_copy() -> None:
    words = {word: 4 + number for number, word in enumerate(sorted({w for s in tiny_sentences() for w in s.split()}))}
    rows = [[words[word] for word in sentence.split()] for sentence in tiny_sentences(300)]
    found = trained("words, start", rows[:260], rows[260:], epochs=3, seed=0)
    assert len(found) == 3
    assert found[-1]["reconstruction"] < found[0]["reconstruction"] - 1
