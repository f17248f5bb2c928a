"""How few dimensions a sentence uses: the average Hoyer of codes, and gates that switch dimensions off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from textspace.config import BetaGatedPrior, SpikeAndSlabPrior
from textspace.digits import plus_minus
from textspace.encoding import is_on
from textspace.errors import TextspaceError
from textspace.evaluate.hoyer import AVERAGE_HOYER, average_hoyer, hoyer_error
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.statistics import BLOCKS, jackknife_error, some_rows, standard_error
from textspace.noise import seed_of
from textspace.recipes.sparse import asked_share
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "sparse_codes", "sparsity"]

DRAWN_VALUES = 2_000
"""The most values of a histogram that are kept for its picture."""

Floats = NDArray[np.float64]


def sparse_codes(sentences: Sentences) -> Floats:
    """The slab's mean where a dimension is more probably on than off, exactly 0 elsewhere; for spaces with gates."""
    on_NZ, slab_NZ = sentences.gates_NZ, sentences.slab_NZ
    if on_NZ is None or slab_NZ is None:
        raise ValueError("the space has no gates")
    return np.where(is_on(on_NZ), slab_NZ, 0)


# The measure


def sparsity(subject: Subject) -> Findings:
    """Average Hoyer [Prokhorov et al. 2021, section 4.1.3] of samples and means, and what gates switch off."""
    gated = subject.space.model.has_gates
    if subject.space.dim == 1 and not gated:
        raise TextspaceError("a code of one dimension is neither sparse nor dense: Hoyer needs 2 dimensions at least")
    parts = [_hoyers(subject)] if subject.space.dim > 1 else []
    parts += [_gates(subject)] if gated else []
    return Findings(
        {key: each for part in parts for key, each in part.estimates.items()},
        {key: each for part in parts for key, each in part.tables.items()},
        {key: each for part in parts for key, each in part.pictures.items()},
        {key: each for part in parts for key, each in part.per_sentence.items()},
    )


def _code_kinds(test: Sentences) -> dict[str, tuple[str, Floats]]:
    """What the codes of a kind are, and the codes; the first are the headline's."""
    kinds = {"samples": ("one posterior sample a sentence", test.samples_NZ)}
    if test.slab_NZ is not None:
        kinds["means"] = "posterior means, (1 - E gamma) x the slab's mean", test.means_NZ
        kinds["slab"] = "means of the slab, as if every dimension were on", test.slab_NZ
        kinds["sparse"] = "sparse codes, the slab's mean where on (E gamma <= 0.5) and else 0", sparse_codes(test)
    elif test.has_spread:
        kinds["means"] = "posterior means", test.means_NZ
    return kinds


def _hoyers(subject: Subject) -> Findings:
    space, test = subject.space, subject.test
    kinds = _code_kinds(test)
    size = len(test), space.dim
    normal_NZ = np.random.default_rng(seed_of(subject.seed, "dense codes")).normal(size=size)
    kinds["dense"] = f"{size[0]:,} draws of a dense Gaussian of {size[1]} dimensions, the floor", normal_NZ
    asked = asked_share(space.recipe)
    if asked is not None and isinstance(space.recipe.prior, BetaGatedPrior | SpikeAndSlabPrior):
        drawn_NZ = space.prior_codes(len(test), seed=seed_of(subject.seed, "prior codes")).astype(np.float64)
        kinds["prior"] = f"{size[0]:,} draws of {asked.where}, off with probability {asked.off:.3g}", drawn_NZ
    estimates: dict[str, Estimate] = {}
    series: dict[str, list[float]] = {}
    rows: list[Cells] = []
    for kind, (what, codes_NZ) in kinds.items():
        found = average_hoyer(codes_NZ)
        drawn = "draws" if kind in ("dense", "prior") else "sentences"
        if not len(found.there_M):
            rows.append((what, None, found.dead, found.zeros))
            continue
        blocks = f"{min(BLOCKS, len(codes_NZ))} blocks of {drawn}"
        settings: Settings = {
            "dimensions": space.dim,
            "scaling": "each dimension divided by its deviation over the sentences, not centred",
            "dead_dimensions": found.dead,
            "zero_vectors": found.zeros,
            "seed": subject.seed,
            "error": f"standard error by a jackknife over {blocks}, deviations taken anew",
        }
        left_out = f", {found.zeros:,} codes of zeros left out" if found.zeros else ""
        value, error = float(found.there_M.mean()), hoyer_error(codes_NZ)
        estimates[f"hoyer_{kind}"] = Estimate(
            f"{AVERAGE_HOYER} of {what}{left_out}",
            value,
            error,
            len(found.there_M),
            "none",
            None,
            settings,
        )
        rows.append((what, plus_minus(value, error), found.dead, found.zeros))
        if kind in ("samples", "means", "dense", "prior"):
            series[_SHOWN[kind]] = _shown(found.there_M)
    title = "Average Hoyer, each dimension divided by its deviation (dead ones, which never change, are 0)"
    table = Table(title, ("codes", "average Hoyer", "dead dimensions", "codes of zeros"), tuple(rows))
    picture = Picture("histogram", "Hoyer of each sentence's code", series, x_label="Hoyer (1: one dimension)")
    # No values per sentence: deviations are of all sentences, so that these do not scatter as their mean does.
    return Findings(estimates, {"hoyer": table}, {"hoyer": picture})


_SHOWN = {
    "samples": "posterior samples",
    "means": "posterior means",
    "dense": "dense Gaussian (floor)",
    "prior": "draws of the prior",
}


def _shown(values_N: Floats) -> list[float]:
    return values_N[some_rows(len(values_N), DRAWN_VALUES)].round(4).tolist()


def _gates(subject: Subject) -> Findings:
    """How many dimensions are off in a sentence, against what was asked, and in how many sentences each is on."""
    on_NZ, asked = subject.test.gates_NZ, asked_share(subject.space.recipe)
    if on_NZ is None:
        raise ValueError("the space has no gates")
    count, dims = on_NZ.shape
    is_on_NZ = is_on(on_NZ)
    share_off_N, probability_N = 1 - is_on_NZ.mean(1), 1 - on_NZ.mean(1)
    density_Z = is_on_NZ.mean(0)
    over_sentences = "standard error over sentences"
    over_blocks = f"standard error by a jackknife over {min(BLOCKS, count)} blocks of sentences"
    numbers: dict[str, tuple[str, float, float | None, str]] = {
        "share_off": (
            "share of dimensions that are off (E[gamma|x] > 0.5), mean over sentences",
            float(share_off_N.mean()),
            standard_error(share_off_N),
            over_sentences,
        ),
        "share_off_deviation": (
            "share of dimensions that are off (E[gamma|x] > 0.5), deviation over sentences",
            float(share_off_N.std()),
            jackknife_error(lambda rows: float(share_off_N[rows].std()), count),
            over_blocks,
        ),
        "off_probability": (
            "probability that a dimension is off, E[gamma|x], mean over dimensions and sentences",
            float(probability_N.mean()),
            standard_error(probability_N),
            over_sentences,
        ),
        "gate_deviation": (
            "deviation of E[gamma|x] over sentences, mean over dimensions",
            float(on_NZ.std(0).mean()),
            jackknife_error(lambda rows: float(on_NZ[rows].std(0).mean()), count),
            over_blocks,
        ),
        "dead_dimensions": (
            f"dimensions of {dims} that are off in every sentence",
            float((density_Z == 0).sum()),
            None,
            "none: a count over these sentences",
        ),
        "always_on_dimensions": (
            f"dimensions of {dims} that are on in every sentence",
            float((density_Z == 1).sum()),
            None,
            "none: a count over these sentences",
        ),
    }
    rows: list[Cells] = [(name, plus_minus(value, error)) for name, value, error, _ in numbers.values()]
    if asked is not None:
        how = "none: it is what was asked"
        numbers["share_off_asked"] = f"share of dimensions off that {asked.where} asks for", asked.off, None, how
        below = float(probability_N.mean()) - asked.off
        name = f"probability that a dimension is off less what {asked.where} asks for"
        numbers["off_less_asked"] = name, below, standard_error(probability_N), over_sentences
        rows = [(numbers["share_off_asked"][0], plus_minus(asked.off, None)), *rows]
        rows.append((name, plus_minus(below, standard_error(probability_N))))
    settings: Settings = {"dimensions": dims, "gates": "at their mean, E[gamma|x]"}
    estimates = {
        key: Estimate(name, value, error, count, "none", None, settings | {"error": how})
        for key, (name, value, error, how) in numbers.items()
    }
    order_Z = np.argsort(-density_Z, kind="stable")
    title = "Share of sentences in which each dimension is on, dimensions sorted"
    told = f", asked: {asked.off:.3g}" if asked else ""
    pictures = {
        "share_off": Picture(
            "histogram",
            f"Share of the {dims} dimensions that are off in a sentence{told}",
            {"off (E gamma > 0.5)": _shown(share_off_N), "mean probability of off": _shown(probability_N)},
            x_label="share of dimensions",
        ),
        "density": Picture(
            "lines",
            title,
            {"on (E gamma <= 0.5)": density_Z[order_Z].tolist(), "mean probability": on_NZ.mean(0)[order_Z].tolist()},
            x=[float(place) for place in range(1, dims + 1)],
            x_label="dimensions, the densest first",
            y_label="share of sentences",
        ),
    }
    return Findings(
        estimates,
        {"gates": Table("What gates switch off", ("of", "found"), tuple(rows))},
        pictures,
        {"share_off": share_off_N.tolist(), "off_probability": probability_N.tolist()},
    )


MEASURES: dict[str, Measure] = {
    "sparsity": Measure(
        sparsity, "How few dimensions a sentence uses, and how many its gates switch off.", needs=("codes",)
    ),
}
