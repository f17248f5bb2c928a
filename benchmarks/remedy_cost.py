"""What a step of each recipe costs, as a ratio to a step of plain `vae` in the same process, nothing beside it.

    python -m benchmarks.remedy_cost CORPORA --corpus ptb --out FOLDER

All recipes have the sizes that the papers use on Penn Treebank. A step of `vae-aggressive` moves one side of the model;
how many it takes is in the results of benchmarks.remedies. Steps of a first phase cost what those of `vae` do.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.results import record
from textspace.data.corpus import open_corpus
from textspace.data.preparing import prepare
from textspace.model import Model
from textspace.recipes import RECIPES, sized
from textspace.train.loop import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--corpus", default="ptb")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    prepared = prepare(open_corpus(given.corpora / given.corpus), RECIPES["vae"])
    splits = prepared.encoded.splits

    def milliseconds(name: str) -> float:
        recipe = sized(RECIPES[name], "ptb")
        with tempfile.TemporaryDirectory() as nowhere:
            model = Model(recipe, len(prepared.tokenizer))
            trainer = Trainer(recipe, model, splits["train"], splits["valid"], Path(nowhere), silent=True)
            trainer.model.train()
            trainer.seconds_per_step(5)
            return 1000 * trainer.seconds_per_step(given.steps)

    milliseconds("vae")
    names = [name for name in RECIPES if name != "default"]
    plain = [milliseconds("vae")]
    found = {name: milliseconds(name) for name in names}
    plain.append(milliseconds("vae"))
    base = (sum(plain) + found["vae"]) / 3
    record(
        f"remedy_cost_{given.corpus}",
        f"python -m benchmarks.remedy_cost CORPORA --corpus {given.corpus} --steps {given.steps} --out FOLDER",
        {
            "milliseconds_of_a_vae_step": [round(x, 2) for x in (plain[0], found["vae"], plain[1])],
            "ratio_to_vae": {name: round(value / base, 2) for name, value in found.items()},
        },
        given.out,
    )


if __name__ == "__main__":
    main()
