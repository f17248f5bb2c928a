"""Gates and sparse codes: against the model's own distributions, to files and back, and every mistake's sentence."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import command, small, tiny_sentences
from scipy import sparse

from textspace import encoding
from textspace import folder as folders
from textspace.codes import CodeWriter, read_codes
from textspace.data.batching import make_batch
from textspace.data.encoded import EncodedSplit
from textspace.errors import TextspaceError
from textspace.generate import Sampling
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(24)
KINDS = {
    "hsvae": small(RECIPES["hsvae"]),
    "slab without gates": small(RECIPES["hsvae"]).but({"posterior.slab_sees_gates": False}),
    "ton-vae": small(RECIPES["ton-vae"]),
}
NO_GATES = "this space has no gates that switch dimensions off: train one that has them with the recipe hsvae"


@pytest.fixture(scope="module")
def spaces(dense: Space) -> dict[str, Space]:
    """Untrained, with weights large enough that sentences differ in gates, codes and what is decoded."""
    found = {}
    for kind, recipe in KINDS.items():
        recipe = recipe.but({"latent.dim": 8, "initial.weights": 0.7})
        found[kind] = Space(recipe, dense.tokenizer, Model(recipe, len(dense.tokenizer)))
    return found


@pytest.fixture(scope="module")
def space(spaces: dict[str, Space]) -> Space:
    return spaces["hsvae"]


@pytest.fixture(scope="module")
def exact(space: Space) -> Space:
    """In float64, where batches cannot turn a choice between words by their rounding."""
    return Space(space.recipe, space.tokenizer, copy.deepcopy(space.model).double(), space.metrics)


@pytest.fixture(scope="module")
def dense(_own_cache: None) -> Space:
    return Space.fit(tiny_sentences(120), small(RECIPES["vae"]).but({"training.epochs": 1}), device="cpu")


@pytest.fixture(scope="module")
def language_model(_own_cache: None) -> Space:
    return Space.fit(tiny_sentences(120), small(RECIPES["lstm-lm"]).but({"training.epochs": 1}), device="cpu")


def set_gates(space: Space, *shares: float) -> Space:
    """A copy whose first dimensions are off with these probabilities in every sentence."""
    changed = Space(space.recipe, space.tokenizer, copy.deepcopy(space.model), space.metrics)
    *_, last = changed.model.posterior.gates
    with torch.no_grad():
        last.weight.zero_()
        for dimension, share in enumerate(shares):
            for start, part in ((0, share), (space.dim, 1 - share)):
                concentration = torch.tensor(20 * part)  # of Beta(20 share, 20 (1 - share))
                last.bias[start + dimension] = concentration + torch.log(-torch.expm1(-concentration))
    return changed


# Gates


def test_gates_are_the_probability_of_on_under_the_posterior(spaces: dict[str, Space]) -> None:
    for space in spaces.values():
        posterior = space.model.posterior
        on_NZ = space.encode(TEXTS, what="gates")
        assert on_NZ.shape == (len(TEXTS), space.dim)
        assert on_NZ.dtype == np.float32
        for row in (0, 7):
            split = EncodedSplit.of([TEXTS[row]], space.tokenizer, None)
            with torch.no_grad():
                features_BH = space.model.features(make_batch(split, np.arange(1)).encoder)
                heads = posterior.gates(features_BH)[0]
            if "gate" in posterior.distributions:
                alpha, beta = torch.nn.functional.softplus(heads).clamp(0.5, 100).chunk(2)
                wanted = beta / (alpha + beta)
            else:
                wanted = (-heads).sigmoid()
            np.testing.assert_allclose(on_NZ[row], wanted, rtol=1e-4)


def test_a_gate_whose_gamma_is_large_is_off(space: Space) -> None:
    shares = [0.9, 0.1, 0.6, 0.4]
    known = set_gates(space, *shares)
    on_NZ = known.encode(TEXTS, what="gates")
    np.testing.assert_allclose(on_NZ[:, :4], np.tile(1 - np.array(shares), (len(TEXTS), 1)), rtol=1e-3)
    used_Z = known.encode(TEXTS, sparse=True).getnnz(axis=0)
    assert used_Z[:4].tolist() == [0, len(TEXTS), 0, len(TEXTS)]


def test_gates_come_in_every_form(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    on_NZ = space.encode(TEXTS, what="gates")
    np.testing.assert_allclose(space.encode(TEXTS[3], what="gates"), on_NZ[3], rtol=1e-5)
    assert torch.equal(space.encode(TEXTS, what="gates", output="tensor"), torch.from_numpy(on_NZ))
    assert space.encode([], what="gates").shape == (0, space.dim)
    monkeypatch.setattr(encoding, "CHUNK", 5)
    chunks = list(space.encode_stream(iter(TEXTS), what="gates"))
    assert [len(texts) for texts, _ in chunks] == [5, 5, 5, 5, 4]
    np.testing.assert_allclose(np.concatenate([codes for _, codes in chunks]), on_NZ, rtol=1e-5)


# Sparse codes


def test_sparse_codes_are_zero_where_off_and_else_the_slabs_mean(spaces: dict[str, Space]) -> None:
    for space in spaces.values():
        on_NZ, mean_NZ = space.encode(TEXTS, what="gates"), space.encode(TEXTS)
        codes = space.encode(TEXTS, sparse=True)
        assert sparse.isspmatrix_csr(codes)
        assert codes.dtype == np.float32
        assert codes.shape == mean_NZ.shape
        off_NZ = on_NZ < 0.5
        assert 0.05 < off_NZ.mean() < 0.95
        assert np.array_equal(codes.toarray() == 0, off_NZ)
        assert codes.nnz == (~off_NZ).sum()
        slab_NZ = mean_NZ / on_NZ  # a dense mean is the probability of on times the slab's mean
        np.testing.assert_allclose(codes.toarray()[~off_NZ], slab_NZ[~off_NZ], rtol=1e-4, atol=1e-6)


def test_one_string_gives_one_row_and_nothing_no_row(space: Space) -> None:
    whole = space.encode(TEXTS, sparse=True)
    one = space.encode(TEXTS[2], sparse=True)
    assert one.shape == (1, space.dim)
    np.testing.assert_allclose(one.toarray()[0], whole.toarray()[2], rtol=1e-4, atol=1e-6)
    none = space.encode([], sparse=True)
    assert sparse.isspmatrix_csr(none)
    assert (none.shape, none.dtype) == ((0, space.dim), np.float32)
    assert space.decode(none) == []


def test_sparse_samples_are_the_samples_with_zeros_where_off(space: Space) -> None:
    drawn = {"what": "sample", "seed": 4}
    off_NZ = space.encode(TEXTS, what="gates") < 0.5
    for strength in (None, 2.0):
        codes = space.encode(TEXTS, sparse=True, strength=strength, **drawn)
        assert np.array_equal(codes.toarray() == 0, off_NZ)
        again = space.encode(TEXTS, sparse=True, strength=strength, **drawn)
        assert np.array_equal(codes.toarray(), again.toarray())
    plain = space.encode(TEXTS, sparse=True, **drawn).toarray()
    assert np.array_equal(plain, np.where(off_NZ, 0, space.encode(TEXTS, **drawn)))
    assert not np.array_equal(plain, space.encode(TEXTS, sparse=True, what="sample", seed=5).toarray())
    still = space.encode(TEXTS, sparse=True, strength=0, **drawn)
    assert np.array_equal(still.toarray(), space.encode(TEXTS, sparse=True).toarray())
    np.testing.assert_allclose(  # twice as far from the slab's mean
        space.encode(TEXTS, sparse=True, strength=2, **drawn).toarray() - still.toarray(),
        2 * (plain - still.toarray()),
        rtol=1e-3,
        atol=1e-5,
    )


def test_no_variants_are_none(space: Space) -> None:
    assert space.vary("anna sees cats", 0) == []


def test_sparse_codes_of_length_1(space: Space) -> None:
    codes = space.encode(TEXTS, sparse=True)
    scaled = space.encode(TEXTS, sparse=True, normalize=True)
    lengths_N = np.linalg.norm(codes.toarray(), axis=1)
    assert (lengths_N > 0).all()
    np.testing.assert_allclose(scaled.toarray(), codes.toarray() / lengths_N[:, None], rtol=1e-5)
    nothing = set_gates(space, *[0.9] * space.dim).encode(TEXTS, sparse=True, normalize=True)
    assert nothing.nnz == 0
    assert nothing.shape == codes.shape


def test_sparse_codes_do_not_depend_on_batches_or_chunks(exact: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    for what in ("mean", "sample"):
        how = {"what": what, "sparse": True, "seed": 2}
        whole = exact.encode(TEXTS, **how)
        assert np.array_equal(whole.toarray(), exact.encode(TEXTS, **how).toarray())
        np.testing.assert_allclose(exact.encode(TEXTS, batch_size=1, **how).toarray(), whole.toarray(), rtol=1e-5)
        with monkeypatch.context() as patched:
            patched.setattr(encoding, "CHUNK", 5)
            np.testing.assert_allclose(exact.encode(TEXTS, **how).toarray(), whole.toarray(), rtol=1e-5)
            chunks = list(exact.encode_stream(iter(TEXTS), **how))
        assert all(sparse.isspmatrix_csr(codes) and codes.shape[0] == len(texts) for texts, codes in chunks)
        streamed = sparse.vstack([codes for _, codes in chunks])
        np.testing.assert_allclose(streamed.toarray(), whole.toarray(), rtol=1e-5)


# And back


def test_every_sparse_form_decodes_as_the_dense_array(exact: Space, dense: Space) -> None:
    codes = exact.encode(TEXTS[:9], sparse=True)
    texts = exact.decode(codes.toarray())
    assert len(set(texts)) > 1
    for form in ("csr", "csc", "coo", "lil"):
        for kind in ("matrix", "array"):
            assert exact.decode(getattr(sparse, f"{form}_{kind}")(codes), batch_size=7) == texts
    assert exact.decode(codes[4]) == [texts[4]]  # a matrix of one row
    assert exact.decode(sparse.coo_array(codes.toarray()[4])) == texts[4]  # a sparse vector
    how = {"method": Sampling(), "seed": 3}
    assert exact.decode(codes, batch_size=5, **how) == exact.decode(codes.toarray(), **how)
    plain = dense.encode(TEXTS)
    assert dense.decode(sparse.csr_matrix(plain)) == dense.decode(plain)


def test_only_a_batch_of_codes_is_dense_at_a_time(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    dense_form = sparse.csr_matrix.toarray

    def toarray(self: sparse.csr_matrix, *more: Any, **others: Any) -> Any:
        sizes.append(self.shape[0])
        return dense_form(self, *more, **others)

    codes = space.encode(TEXTS, sparse=True)
    monkeypatch.setattr(sparse.csr_matrix, "toarray", toarray)
    space.decode(codes, batch_size=7)
    assert sizes == [7, 7, 7, 3]


def test_sparse_codes_go_wherever_codes_go(exact: Space) -> None:
    codes = exact.encode(TEXTS, sparse=True)
    plain = codes.toarray().astype(np.float64)
    np.testing.assert_allclose(exact.similarity(codes, codes.tocoo()), exact.similarity(plain, plain))
    assert exact.interpolate(codes[0], codes[1], steps=4) == exact.interpolate(plain[0], plain[1], steps=4)
    assert exact.neighbors(codes[0], TEXTS) == exact.neighbors(plain[0], TEXTS)


def test_codes_given_are_left_alone(space: Space) -> None:
    twice = sparse.csr_matrix(
        (np.ones(4), [3, 1, 1, 0], [0, 3, 4]), shape=(2, space.dim)
    )  # unsorted, and one index twice
    before = twice.copy()
    assert space.decode(twice) == space.decode(twice.toarray())
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(twice, name), getattr(before, name))


def test_from_sentences_through_a_file_to_sentences(exact: Space, tmp_path: Path) -> None:
    with CodeWriter(tmp_path / "codes.npz", exact.dim, form="sparse") as writer:
        for texts, codes in exact.encode_stream(TEXTS, sparse=True):
            writer.write(codes, texts)
    codes = exact.encode(TEXTS, sparse=True)
    found = read_codes(tmp_path / "codes.npz", dim=exact.dim)
    assert (found != codes).nnz == 0
    assert exact.decode(found) == exact.decode(codes.toarray())


# In a shell


def test_sparse_codes_in_a_shell(space: Space, tmp_path: Path) -> None:
    folder, corpus, out = tmp_path / "space", tmp_path / "my.txt", tmp_path / "codes.npz"
    space.save(folder)
    corpus.write_text("\n".join(dict.fromkeys(TEXTS)))
    status, printed, _ = command("encode", str(folder), str(corpus), "--sparse", "--out", str(out), "--json")
    codes = space.encode(corpus.read_text().splitlines(), sparse=True)
    assert status == 0
    assert f'"share_off": {1 - codes.nnz / np.prod(codes.shape)}'[:20] in printed
    np.testing.assert_allclose(sparse.load_npz(out).toarray(), codes.toarray(), rtol=1e-4, atol=1e-6)
    assert command("decode", str(folder), str(out))[1].splitlines() == space.decode(sparse.load_npz(out))
    gates = tmp_path / "gates.npy"
    assert command("encode", str(folder), str(corpus), "--what", "gates", "--out", str(gates))[0] == 0
    assert np.array_equal(read_codes(gates) >= 0.5, codes.toarray() != 0)
    for arguments, told in (
        (["--sparse", "--out", str(tmp_path / "codes.npy")], "sparse codes go into .npz files and not into"),
        (["--sparse"], "sparse codes go into .npz files and not into standard output: give a name that ends in .npz"),
        (["--what", "gates", "--sparse", "--out", str(out)], "sparse codes are means or samples"),
        (["--what", "gaits"], "--what is 'gaits': use mean, sample or gates"),
    ):
        status, _, said = command("encode", str(folder), str(corpus), *arguments)
        assert status == 2
        assert told in said


def test_the_card_tells_of_gates(spaces: dict[str, Space], dense: Space) -> None:
    def told(space: Space, **metrics: Any) -> str:
        return folders.card(space.recipe, space.tokenizer, space.model, space.metrics | metrics)

    bare = {"sparsity": {}}
    assert "- Sparse: gates from Beta(4, 1)\n" in told(spaces["hsvae"], **bare)
    assert "- Sparse: gates of each sentence\n" in told(spaces["ton-vae"], **bare)
    shares = {"asked": 0.8, "achieved": 0.7512}
    wanted = "- Sparse: gates from Beta(4, 1); share off asked for 0.800, achieved 0.751\n"
    assert wanted in told(spaces["hsvae"], sparsity=shares)
    assert "Sparse" not in told(dense)


# Mistakes

BAD: dict[str, tuple[Callable[[Space], Any], str]] = {
    "sparse parameters": (
        lambda space: space.encode("a", what="parameters", sparse=True),
        "sparse codes are means or samples: ask for one of them, or for parameters without sparse",
    ),
    "sparse gates": (
        lambda space: list(space.encode_stream(["a"], what="gates", sparse=True)),
        "sparse codes are means or samples: ask for one of them, or for gates without sparse",
    ),
    "sparse tensors": (
        lambda space: space.encode("a", sparse=True, output="tensor"),
        "sparse codes are scipy matrices and not tensors: leave out sparse or output",
    ),
    "gates of length 1": (
        lambda space: space.encode("a", what="gates", normalize=True),
        "gates are probabilities and are not scaled: leave out normalize",
    ),
    "gates that stray": (
        lambda space: space.encode("a", what="gates", strength=2),
        "strength is 2, and nothing is drawn that it could move: ask for a sample, or leave strength out",
    ),
    "wide": (
        lambda space: space.decode(sparse.csr_matrix((2, 9))),
        "codes of this space have 8 dimensions and these have shape (2, 9)",
    ),
    "short vector": (
        lambda space: space.decode(sparse.coo_array(np.ones(3))),
        "codes of this space have 8 dimensions and these have shape (3,)",
    ),
    "not finite": (
        lambda space: space.decode(sparse.csr_matrix([[0.0] * 8, [0.0] * 7 + [np.nan]])),
        "code 1 holds a number that is not finite (NaN or infinity): mend or drop it",
    ),
    "too large": (
        lambda space: space.similarity(sparse.csc_matrix([[0.0, 1e300] * 4]), "a"),
        "code 0 holds a number that is not finite (NaN or infinity): mend or drop it",
    ),
    "complex": (
        lambda space: space.decode(sparse.csr_matrix(np.ones((1, 8), complex))),
        "these codes are complex numbers: give real ones, such as codes.real",
    ),
    "indices that point outside": (
        lambda space: space.decode(sparse.csr_matrix((np.ones(1), [900], [0, 1]), shape=(1, 8))),
        "these are not codes: give vectors of 8 numbers",
    ),
    "an end of two codes": (
        lambda space: space.interpolate(sparse.csr_matrix((2, 8)), "a"),
        "an end is one sentence or one code, and these are 2: give the string or the code itself",
    ),
}


@pytest.mark.filterwarnings("ignore:.*mostly words this space does not know")
@pytest.mark.parametrize("mistake", BAD)
def test_mistakes_are_told_in_one_sentence(mistake: str, space: Space) -> None:
    call, told = BAD[mistake]
    with pytest.raises(TextspaceError) as caught:
        call(space)
    assert str(caught.value) == told


def test_spaces_without_gates_say_so(dense: Space, language_model: Space) -> None:
    calls: list[Callable[[Space], Any]] = [
        lambda space: space.encode("anna", what="gates"),
        lambda space: space.encode([], sparse=True),
        lambda space: next(space.encode_stream(["anna"], sparse=True)),
        lambda space: next(space.encode_stream(["anna"], what="gates")),
    ]
    for call in calls:
        with pytest.raises(TextspaceError) as caught:
            call(dense)
        assert str(caught.value) == NO_GATES
        with pytest.raises(TextspaceError, match="is a language model and has no codes"):
            call(language_model)
