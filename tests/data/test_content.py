"""Digests and sketches of text: which sentences another text shares."""

import numpy as np
import pytest

from textspace.data.content import Sketch


def sketch_of(texts: list[str]) -> Sketch:
    sketch = Sketch()
    for text in texts:
        sketch.add(text)
    return sketch


@pytest.mark.parametrize("shared", [0, 100, 1_000, 5_000])
def test_the_share_of_sentences_met_is_that_of_the_text(shared: int) -> None:
    """Of 40,000 sentences 1,024 are kept, so that one in 39 can be looked up."""
    known = sketch_of([f"sentence {number}" for number in range(40_000)])
    texts = [f"sentence {number}" for number in range(shared)] + [
        f"another {number}" for number in range(5_000 - shared)
    ]
    met, looked_up, _ = known.met(texts)
    assert looked_up == pytest.approx(5_000 * 1_024 / 40_000, rel=0.3)
    share = shared / 5_000
    assert met / looked_up == pytest.approx(share, abs=3 * np.sqrt(share * (1 - share) / looked_up))


def test_a_small_text_is_known_whole() -> None:
    known = sketch_of(["a b", "c d", "c d"])
    assert known.met(["a b", "a b", "e f"]) == (1, 2, 2)
    assert known.met([]) == (0, 0, 0)
    assert Sketch().met(["a b"]) == (0, 1, 1)


@pytest.mark.parametrize("sizes", [(10, 20), (10, 3_000), (3_000, 5_000), (700, 700)])
def test_sketches_of_two_texts_are_one_of_both(sizes: tuple[int, int]) -> None:
    texts = [[f"{which} {number}" for number in range(size)] for which, size in enumerate(sizes)]
    both = sketch_of(texts[0] + texts[1])
    joined = Sketch.of(*(sketch_of(each).written for each in texts))
    assert joined.written == both.written
    assert joined.met(texts[1] + ["new"]) == both.met(texts[1] + ["new"])
