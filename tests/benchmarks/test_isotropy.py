"""The curves of figure 3 from recorded runs."""

from pathlib import Path

import pytest

from benchmarks.isotropy import CURVES, curves_of, drawn
from textspace.evaluate.measures.variety import VARIANTS

RUNS = {
    "vat+prior.scale=0.1": {
        "test": {"kl": [9.0, 0.1], "reconstruction": [1.0, 0.1], "elbo": [10.0, 0.1]},
        "measures": {
            "isotropy": {"random_cosine": [0.1, 0.01], "self_similarity": [0.7, 0.01]},
            "variety": {"distinct_strength_1": [VARIANTS / 2, 0.1], "self_bleu4_strength_1": [80.0, 1.0]},
        },
    },
    "vat+prior.scale=1": {},  # which did not end
}


def test_numbers_of_runs_become_lines_with_gaps_where_there_are_none() -> None:
    curves = curves_of(RUNS)
    assert set(curves) == set(CURVES)
    assert curves["cosines"]["random tokens"] == [0.1, None]
    assert curves["cosines"]["intra-sentence"] == [None, None]
    assert curves["losses"]["KL"] == [9.0, None]
    assert curves["variety"]["different samples, share"] == [0.5, None]
    assert curves["variety"]["self-BLEU-4 / 100"] == [pytest.approx(0.8), None]


def test_every_picture_is_drawn(tmp_path: Path) -> None:
    drawn([0.1, 1.0], curves_of(RUNS), tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {f"isotropy_{name}.png" for name in CURVES}
