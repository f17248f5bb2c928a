"""SentenceMIM in plain PyTorch, by its published settings: does what the encoder reads first and last matter?

    python -m benchmarks.reading_order CORPORA/ptb --out FOLDER

A check on recipe `smim` by a loop that shares nothing with the library but the reading of text: one embedding, a GRU on
each side, a floor under the log-variance, Adam, the gradient clipped. The encoder reads the words from last to first,
and around them what `ORDERS` says. Short sentences and small layers, so that it takes minutes on a core.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.results import record
from textspace.data.corpus import open_corpus
from textspace.progress import track

PAD, UNKNOWN, START, END = range(4)
ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "words, start": lambda backwards: [*backwards, START],
    "end, words, start": lambda backwards: [END, *backwards, START],
    "start, words, end": lambda backwards: [START, *backwards, END],
    "words": lambda backwards: backwards,
}
"""The first is the published one, the third that of `smim` with `encoder.start_last=false`."""
WORDS, LONGEST, TRAINED, TESTED = 2_000, 20, 6_000, 400
BATCH, EMBEDDING, UNITS, DIM = 20, 150, 256, 256
FLOOR, RATE, CLIP, DROPPED = -10.0, 1e-3, 0.25, 0.5

Sentences = Sequence[list[int]]


def read(source: str, trained: int, tested: int) -> tuple[Sentences, Sentences]:
    """Numbers of the words of the first short training and validation sentences."""
    splits = open_corpus(source).splits
    counts = {"train": trained, "valid": tested}
    texts = {
        name: [words for sentence in splits[name] if len(words := sentence.text.split()) <= LONGEST][:count]
        for name, count in counts.items()
    }
    known = Counter(word for words in texts["train"] for word in words).most_common(WORDS)
    number = {word: END + 1 + place for place, (word, _) in enumerate(known)}
    train, valid = ([[number.get(word, UNKNOWN) for word in words] for words in each] for each in texts.values())
    return train, valid


def padded(rows: Sentences) -> tuple[Tensor, Tensor]:
    """Ids, and how many of each row are real."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return ids, torch.tensor([len(row) for row in rows])


class Network(nn.Module):
    def __init__(self, words: int, order: Callable[[list[int]], list[int]]) -> None:
        super().__init__()
        self.order = order
        self.embedding = nn.Embedding(words, EMBEDDING)
        self.encoder = nn.GRU(EMBEDDING, UNITS, batch_first=True)
        self.decoder = nn.GRU(EMBEDDING + DIM, UNITS, batch_first=True)
        self.mean, self.log_variance = nn.Linear(UNITS, DIM), nn.Linear(UNITS, DIM)
        self.first, self.output = nn.Linear(DIM, UNITS), nn.Linear(UNITS, words)

    def forward(self, sentences: Sentences) -> tuple[Tensor, Tensor, Tensor]:
        """Reconstruction and loss of all sentences, and the encoder's features."""
        read, lengths = padded([self.order(words[::-1]) for words in sentences])
        inputs, targets = (padded(rows)[0] for rows in zip(*(([START, *w], [*w, END]) for w in sentences), strict=True))
        states, _ = self.encoder(self.embedding(read))
        features = states[torch.arange(len(sentences)), lengths - 1]
        log_variance = self.log_variance(features).clamp(min=FLOOR)
        noise = torch.randn_like(log_variance)
        code = self.mean(features) + noise * (0.5 * log_variance).exp()
        given = F.dropout(self.embedding(inputs), DROPPED, self.training)
        given = torch.cat([given, code[:, None].expand(-1, given.shape[1], -1)], 2)
        hidden, _ = self.decoder(given, self.first(code)[None])
        real = targets != PAD
        reconstruction = F.cross_entropy(self.output(hidden[real]), targets[real], reduction="sum")
        log_q = -0.5 * (noise.square() + log_variance).sum()  # both densities without their constants
        log_p = -0.5 * code.square().sum()
        return reconstruction, reconstruction - 0.5 * (log_q + log_p), features


def trained(order: str, train: Sentences, valid: Sentences, *, epochs: int, seed: int) -> list[dict[str, float]]:
    """What validation finds after each epoch."""
    torch.manual_seed(seed)
    words = 1 + max(max(row) for row in [*train, *valid])
    network = Network(words, ORDERS[order])
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    found = []
    began = time.process_time()
    for epoch in range(1, epochs + 1):
        batches = torch.randperm(len(train)).split(BATCH)
        network.train()
        for rows in track(batches, f"{order}: epoch {epoch}", True, len(batches)):
            _, loss, _ = network([train[row] for row in rows.tolist()])
            optimizer.zero_grad()
            (loss / len(rows)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            reconstruction, _, features = network(valid)
        directions = F.normalize(features, dim=1)
        count = len(valid)
        cosine = (directions.sum(0).square().sum() - count) / (count * (count - 1))
        found.append({"reconstruction": round(reconstruction.item() / count, 3), "cosine": round(cosine.item(), 4)})
        print(f"{order}, epoch {epoch}: {found[-1]}, {time.process_time() - began:.0f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a folder with train and valid, such as Penn Treebank's")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    train, valid = read(given.source, TRAINED, TESTED)
    runs: dict[str, Any] = {
        f"{order}, seed {seed}": trained(order, train, valid, epochs=given.epochs, seed=seed)
        for seed in range(given.seeds)
        for order in ORDERS
    }
    command = f"python -m benchmarks.reading_order CORPORA/ptb --epochs {given.epochs} --seeds {given.seeds}"
    record("reading_order", f"{command} --out FOLDER", {"runs": runs}, given.out)


if __name__ == "__main__":
    main()
