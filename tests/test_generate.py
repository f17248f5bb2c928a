"""Decoding: each method against its definition, written out or enumerated; batches, seeds, bans, limits."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import small
from scipy import stats
from torch import Tensor

from textspace import generate as module
from textspace.data.batching import batch_of
from textspace.data.tokenizers import END, FIRST_PREDICTED, START, UNKNOWN
from textspace.decoders import Decoder, RecurrentDecoder
from textspace.errors import TextspaceError
from textspace.generate import Beam, Generated, Greedy, Method, Sampling, generate, method_named
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.types import PaddedCodes, View

VOCABULARY = 6  # three words: <unk> and two others
WORDS = [UNKNOWN, 4, 5]
METHODS = [
    Greedy(max_tokens=12),
    Sampling(max_tokens=12),
    Sampling(max_tokens=12, temperature=0.7, top_k=8, top_p=0.8),
    Beam(max_tokens=12, width=4),
    Beam(max_tokens=12, width=3, length_penalty=1.0),
]
KINDS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"decoder.kind": "gru"},
    "lstm, two layers": {"decoder.layers": 2},
    "gru, two layers": {"decoder.kind": "gru", "decoder.layers": 2},
    "language model": {},
    "transformer": {"decoder.tie_output": False},
    "tokens": {"decoder.tie_output": False},
    "transformer language model": {"decoder.tie_output": False},
}
RECIPE_OF = {"language model": "lstm-lm", "transformer language model": "transformer-lm", "tokens": "vat"}
SEEDS = {"gru": 1, "language model": 1, "transformer": 7, "transformer language model": 5, "tokens": 6}
"""Where others give sentences that never end, or one word without end."""
Codes = Tensor | PaddedCodes | None


def decoder_of(kind: str, vocabulary: int = 20, weights: float = 0.7, seed: int = 0) -> Decoder:
    name = RECIPE_OF.get(kind, "transformer-vae" if kind.startswith("transformer") else "vae")
    recipe = small(RECIPES[name]).but(KINDS[kind])
    changes = {"initial.weights": weights, "initial.embeddings": 1.0, "training.seed": seed}
    return Model(recipe.but(changes), vocabulary).decoder.double()


def codes(decoder: Decoder, count: int) -> Codes:
    """Of tokens, two to six of a sentence; what stands at padding is no code."""
    if decoder.dim is None:
        return None
    chance = torch.Generator().manual_seed(1)
    if not decoder.of_tokens:
        return 2 * torch.randn(count, decoder.dim, dtype=torch.float64, generator=chance)
    values_NTZ = 2 * torch.randn(count, 6, decoder.dim, dtype=torch.float64, generator=chance)
    mask_NT = torch.arange(6) < 2 + torch.arange(count)[:, None] % 5
    return PaddedCodes(values_NTZ.where(mask_NT[:, :, None], 50.0), mask_NT)


def made(decoder: Decoder, method: Method, count: int, seed: int = 0) -> Generated:
    return generate(decoder, codes(decoder, count), method, rows_N=torch.arange(count), seed=seed)


@pytest.fixture(params=KINDS)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return decoder_of(request.param, seed=SEEDS.get(request.param, 0))


@pytest.fixture(params=METHODS, ids=repr)
def method(request: pytest.FixtureRequest) -> Method:
    return request.param


def log_next(decoder: Decoder, z_1Z: Codes, words: list[int]) -> Tensor:
    """log p of all next tokens, without any state: each of them scored after the words, read from the start."""
    predicted = range(FIRST_PREDICTED, decoder.embedding.num_embeddings)
    ids_VT = torch.tensor([[START, *words, token] for token in predicted])
    z_VZ = None if z_1Z is None else z_1Z[torch.zeros(len(predicted), dtype=torch.long)]
    return log_px(decoder, z_VZ, View(ids_VT, torch.full((len(predicted),), ids_VT.shape[1])))[:, -1]


def log_px(decoder: Decoder, z_NZ: Codes, view: View) -> Tensor:
    """Of every token, (N, T - 1)."""
    noise = Noise(0, 0, torch.arange(len(view.ids_BT)))
    with torch.no_grad():
        if isinstance(z_NZ, PaddedCodes):
            return decoder.eval()(z_NZ.values_NTZ[None], view, noise, mask_BU=z_NZ.mask_NT)[0]
        return decoder.eval()(None if z_NZ is None else z_NZ[None], view, noise)[0]


def enumerated(
    decoder: Decoder,
    z_1Z: Codes,
    max_tokens: int,
    changed: Callable[[Tensor], Tensor] = lambda log_p_V: log_p_V,
) -> dict[tuple[int, ...], float]:
    """log p of every sentence of up to `max_tokens` words, end included."""
    found = {}
    frontier: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(max_tokens + 1):
        longer = []
        for words, log_p in frontier:
            log_p_V = changed(log_next(decoder, z_1Z, list(words)))
            found[words] = log_p + log_p_V[END - FIRST_PREDICTED].item()
            longer += [((*words, word), log_p + log_p_V[word - FIRST_PREDICTED].item()) for word in WORDS]
        frontier = longer
    return found


def test_greedy_is_the_stepwise_argmax(decoder: Decoder) -> None:
    count, max_tokens = 30, 12
    z_NZ = codes(decoder, count)
    generated = made(decoder, Greedy(max_tokens=max_tokens), count)
    for row in range(count):
        words: list[int] = []
        ended = False
        while not ended:
            token = int(log_next(decoder, None if z_NZ is None else z_NZ[row : row + 1], words).argmax())
            ended = token + FIRST_PREDICTED == END
            if not ended and len(words) == max_tokens:
                break
            words += [] if ended else [token + FIRST_PREDICTED]
        assert generated.ids[row] == words
        assert generated.ended_N[row] == ended
    if decoder.dim is not None:
        assert len({len(words) for words in generated.ids}) > 2
        assert 0 < generated.ended_N.sum() < count


@pytest.mark.parametrize("kind", ["lstm, two layers", "gru", "language model", "transformer", "tokens"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 0.5])
def test_a_beam_of_all_prefixes_is_exhaustive_search(kind: str, alpha: float) -> None:
    lengths = set()
    for seed in range(6):
        decoder = decoder_of(kind, VOCABULARY, weights=2.0, seed=seed)
        generated = made(decoder, Beam(max_tokens=3, width=100, length_penalty=alpha), 3)
        z_NZ = codes(decoder, 3)
        for row in range(3):
            log_p = enumerated(decoder, None if z_NZ is None else z_NZ[row : row + 1], 3)
            best = max(log_p, key=lambda words: log_p[words] / (len(words) + 1) ** alpha)
            assert generated.ids[row] == list(best)
            assert generated.log_prob_N[row].item() == pytest.approx(log_p[best], abs=1e-10)
            lengths.add(len(best))
    assert generated.ended_N.all()
    assert len(lengths) > 1


@pytest.mark.parametrize("kind", ["lstm", "tokens"])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_beam_does_what_its_description_says(kind: str, width: int, alpha: float) -> None:
    """The same search without batches, without stopping early, and without any state."""
    decoder, count, max_tokens = decoder_of(kind), 15, 8
    generated = made(decoder, Beam(max_tokens=max_tokens, width=width, length_penalty=alpha), count)
    z_NZ = codes(decoder, count)
    assert z_NZ is not None
    for row in range(count):
        whole: list[tuple[float, list[int]]] = []
        beginnings: list[tuple[float, list[int]]] = [(0.0, [])]
        for length in range(1, max_tokens + 2):
            extended = []
            for log_p, words in beginnings:
                log_p_V = log_next(decoder, z_NZ[row : row + 1], words).tolist()
                extended += [(log_p + more, [*words, FIRST_PREDICTED + i]) for i, more in enumerate(log_p_V)]
            if length == max_tokens + 1:
                extended = [each for each in extended if each[1][-1] == END]
            extended.sort(reverse=True)
            whole += [(log_p / length**alpha, words) for log_p, words in extended[:width] if words[-1] == END]
            beginnings = [each for each in extended if each[1][-1] != END][:width]
        assert generated.ids[row] == max(whole)[1][:-1]


def test_a_beam_of_one_is_greedy_where_greedy_ends(decoder: Decoder) -> None:
    """Else the beam, which makes whole sentences only, ends the greedy words at max_tokens by force."""
    greedy, beam = (made(decoder, method, 60) for method in (Greedy(max_tokens=12), Beam(max_tokens=12, width=1)))
    assert beam.ended_N.all()
    for row, ended in enumerate(greedy.ended_N.tolist()):
        assert beam.ids[row] == greedy.ids[row]
        assert (beam.log_prob_N[row] < greedy.log_prob_N[row] - 1e-6) == (not ended)


def test_wider_beams_find_sentences_that_are_no_worse_on_average() -> None:
    decoder = decoder_of("lstm")
    means = [made(decoder, Beam(max_tokens=12, width=width), 60).log_prob_N.mean().item() for width in (1, 3, 30)]
    assert means == sorted(means)
    assert means[0] < means[-1] - 0.01


def only_likely(log_p_V: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """The distribution sampling should draw from, token by token."""
    p = {token: math.exp(value / temperature) for token, value in enumerate(log_p_V.tolist())}
    kept = sorted(p, key=lambda token: -p[token])[:top_k]
    total = sum(p[token] for token in kept)
    for size in range(1, len(kept) + 1):
        if sum(p[token] for token in kept[:size]) >= top_p * total:
            kept = kept[:size]
            break
    total = sum(p[token] for token in kept)
    return torch.tensor([p[token] / total if token in kept else 0.0 for token in p]).log()


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.6}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.75}]
    + [{"temperature": 1.5, "top_k": 3, "top_p": 0.7}],
    ids=str,
)
def test_samples_follow_the_enumerated_probabilities(options: dict[str, Any], float64: None) -> None:
    decoder, count, max_tokens = decoder_of("lstm", VOCABULARY, seed=19), 20_000, 3  # several words are likely
    z_1Z = torch.tensor([[0.5, -1.0, 1.5, 0.2]])
    method = Sampling(max_tokens=max_tokens, **options)
    drawn = generate(decoder, z_1Z.expand(count, -1), method, rows_N=torch.arange(count), seed=4)
    full = {"temperature": 1.0, "top_k": 4, "top_p": 1.0} | options
    log_p = enumerated(decoder, z_1Z, max_tokens, lambda log_p_V: only_likely(log_p_V, **full))
    p = {words: math.exp(value) for words, value in log_p.items()}
    seen = Counter(tuple(words) for words, ended in zip(drawn.ids, drawn.ended_N, strict=True) if ended)
    assert all(p[words] > 0 for words in seen)

    expected = {words: count * mass for words, mass in p.items() if count * mass >= 5}
    observed = [seen[words] for words in expected]
    rest = count - sum(expected.values())  # sentences cut at max_tokens, and rare ones
    pairs = [*zip(observed, expected.values(), strict=True), (count - sum(observed), rest)]
    pairs = [pair for pair in pairs if pair[1] >= 5]
    statistic = sum((o - e) ** 2 / e for o, e in pairs)
    assert len(pairs) > 5
    assert stats.chi2.sf(statistic, len(pairs) - 1) > 1e-3


def part_of(z_NZ: Codes, start: int, end: int) -> Codes:
    """Those of some sentences, without padding that only others need."""
    if isinstance(z_NZ, PaddedCodes):
        return PaddedCodes.of(z_NZ[start:end].unpadded())
    return None if z_NZ is None else z_NZ[start:end]


def test_batches_change_nothing(decoder: Decoder, method: Method) -> None:
    whole = made(decoder, method, 64, seed=3)
    z_NZ = codes(decoder, 64)
    rows_N = torch.arange(64)
    for size, count in ((1, 16), (23, 64)):
        parts = [
            generate(decoder, part_of(z_NZ, i, i + size), method, rows_N=rows_N[i : i + size], seed=3)
            for i in range(0, count, size)
        ]
        assert list(itertools.chain.from_iterable(part.ids for part in parts)) == whole.ids[:count]
        assert torch.equal(torch.cat([part.ended_N for part in parts]), whole.ended_N[:count])
        log_prob_N = torch.cat([part.log_prob_N for part in parts])
        torch.testing.assert_close(log_prob_N, whole.log_prob_N[:count], atol=1e-10, rtol=0)


def test_log_prob_is_the_models_own(decoder: Decoder, method: Method) -> None:
    generated = made(decoder, method, 40)
    log_px_NT = log_px(decoder, codes(decoder, 40), batch_of(generated.ids).decoder)
    for row, (words, ended) in enumerate(zip(generated.ids, generated.ended_N.tolist(), strict=True)):
        expected = log_px_NT[row, : len(words) + ended].sum().item()
        assert generated.log_prob_N[row].item() == pytest.approx(expected, abs=1e-9)
    assert generated.log_prob_N.dtype == torch.float64


def test_draws_depend_on_seed_and_row_alone() -> None:
    decoder = decoder_of("lstm")
    z_NZ = codes(decoder, 1)
    assert z_NZ is not None
    same_NZ = z_NZ.expand(50, -1)

    def drawn(rows_N: Tensor, seed: int) -> list[list[int]]:
        return generate(decoder, same_NZ, Sampling(max_tokens=12), rows_N=rows_N, seed=seed).ids

    rows_N = torch.arange(50)
    first = drawn(rows_N, 1)
    torch.rand(3)
    assert drawn(rows_N, 1) == first
    assert drawn(rows_N.flip(0), 1) == first[::-1]
    assert drawn(rows_N, 2) != first
    assert len({tuple(words) for words in first}) > 20
    # a limit cuts sentences and changes none of their words
    shorter = generate(decoder, same_NZ, Sampling(max_tokens=4), rows_N=rows_N, seed=1).ids
    assert shorter == [words[:4] for words in first]


@pytest.mark.parametrize("change", [{}, {"top_k": 5}, {"width": 40}, {"width": 3, "length_penalty": 0.5}])
def test_forbidden_tokens_never_appear(decoder: Decoder, change: dict[str, Any]) -> None:
    kind = "beam" if "width" in change else "sampling" if change else "greedy"
    free, banned = (
        made(decoder, method_named(kind, max_tokens=12, forbidden=forbidden, **change), 64)
        for forbidden in ((), tuple(range(START, 15, 2)) + (UNKNOWN,))  # the end among them
    )
    assert free.ids != banned.ids
    assert {token for words in banned.ids for token in words} <= {4, 6, 8, 10, 12, 14, 15, 16, 17, 18, 19}
    assert not banned.ended_N.any()
    assert {len(words) for words in banned.ids} == {12}
    assert banned.log_prob_N.isfinite().all()


def test_a_ban_leaves_the_best_of_the_rest() -> None:
    decoder = decoder_of("gru", VOCABULARY, weights=1.0)
    generated = made(decoder, Beam(max_tokens=3, width=100, forbidden=(UNKNOWN,)), 20)
    z_NZ = codes(decoder, 20)
    assert z_NZ is not None
    for row in range(20):
        log_p = enumerated(decoder, z_NZ[row : row + 1], 3)
        best = max((words for words in log_p if UNKNOWN not in words), key=log_p.__getitem__)
        assert generated.ids[row] == list(best)
        assert generated.log_prob_N[row].item() == pytest.approx(log_p[best], abs=1e-10)


def test_only_the_end_may_be_left() -> None:
    decoder = decoder_of("lstm", VOCABULARY)
    for kind in module.METHODS:
        generated = made(decoder, method_named(kind, forbidden=tuple(WORDS)), 3)
        assert generated.ids == [[], [], []]
        assert generated.ended_N.all()


def test_max_tokens_counts_words_but_not_the_end(decoder: Decoder) -> None:
    generated = made(decoder, Greedy(max_tokens=5), 64)
    assert max(map(len, generated.ids)) == 5
    assert all(len(words) == 5 for words, ended in zip(generated.ids, generated.ended_N, strict=True) if not ended)
    longer = made(decoder, Greedy(max_tokens=6), 64)
    for row, ended in enumerate(generated.ended_N.tolist()):
        assert ended == (longer.ended_N[row].item() and len(longer.ids[row]) <= 5)


def test_ties_go_to_the_lowest_ids() -> None:
    decoder = decoder_of("language model")
    for parameter in decoder.parameters():
        parameter.data.zero_()  # every token is equally probable
    assert made(decoder, Greedy(max_tokens=3), 2).ids == [[UNKNOWN] * 3] * 2
    ids = {4, 5, UNKNOWN, END}
    for options in ({"top_k": 4}, {"top_p": 3.5 / 18}, {"top_k": 4, "top_p": 1.0}):
        drawn = made(decoder, method_named("sampling", max_tokens=9, **options), 50)
        assert {token for words in drawn.ids for token in words} == ids - {END}
        assert drawn.ended_N.any()
    assert made(decoder, Beam(width=2), 2).ids == [[], []]
    assert made(decoder, Beam(width=2, max_tokens=2, forbidden=(END,)), 2).ids == [[UNKNOWN, UNKNOWN]] * 2


def test_the_largest_come_sorted_and_ties_in_order() -> None:
    values = torch.randint(6, (40, 30), generator=torch.Generator().manual_seed(2)).float()
    for k in (1, 7, 30, 99):
        top, position = module._top(values, k)
        expected = values.sort(dim=1, descending=True, stable=True)
        assert torch.equal(top, expected.values[:, :k])
        assert torch.equal(position, expected.indices[:, :k])


def test_extreme_temperatures_are_greedy_or_uniform() -> None:
    decoder = decoder_of("lstm")
    cold = made(decoder, Sampling(max_tokens=12, temperature=1e-310, forbidden=(UNKNOWN,)), 64)
    assert cold.ids == made(decoder, Greedy(max_tokens=12, forbidden=(UNKNOWN,)), 64).ids
    hot = made(decoder, Sampling(max_tokens=1, temperature=1e300, forbidden=(END,)), 2000)
    assert stats.chisquare(list(Counter(words[0] for words in hot.ids).values())).pvalue > 1e-3


def test_a_decoders_own_reordering_is_used(method: Method) -> None:
    class WithOwn(RecurrentDecoder):
        """Keeps its state with the sentences along axis 0, in a form of its own."""

        def start(self, z_NZ: Tensor | None) -> dict:  # type: ignore[override]
            return {"parts": [part.transpose(0, 1) for part in super().start(z_NZ) or ()]}

        def step(self, ids_N: Tensor, z_NZ: Tensor | None, state: dict) -> tuple[Tensor, dict]:  # type: ignore[override]
            given = tuple(part.transpose(0, 1).contiguous() for part in state["parts"])
            logits, after = super().step(ids_N, z_NZ, given)
            return logits, {"parts": [part.transpose(0, 1) for part in after]}

        def reorder(self, state: dict, index_M: Tensor) -> dict:
            return {"parts": [part[index_M] for part in state["parts"]]}

    plain = decoder_of("lstm, two layers")
    own = WithOwn(plain.config, 20, plain.dim).double()
    own.load_state_dict(plain.state_dict())
    assert made(own, method, 30).ids == made(plain, method, 30).ids


def test_dropout_is_off_and_the_mode_comes_back(method: Method) -> None:
    decoder = decoder_of("lstm")
    assert decoder.training
    generated = made(decoder, method, 5)
    assert decoder.training
    assert made(decoder.eval(), method, 5).ids == generated.ids
    assert not decoder.training
    assert not generated.log_prob_N.requires_grad


def test_no_codes_give_no_sentences(method: Method) -> None:
    generated = made(decoder_of("lstm"), method, 0)
    assert (generated.ids, len(generated.log_prob_N), len(generated.ended_N)) == ([], 0, 0)


def test_a_language_model_makes_as_many_as_there_are_rows() -> None:
    decoder = decoder_of("language model")
    rows_N = torch.arange(7)
    drawn = generate(decoder, None, Sampling(max_tokens=12), rows_N=rows_N)
    assert len(drawn.ids) == 7
    assert len({tuple(words) for words in drawn.ids}) > 3


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("greedy", {"max_tokens": 0}, "max_tokens cannot be 0: give a whole number from 1"),
        ("sampling", {"temperature": 0.0}, "temperature must be above 0 and finite, not 0.0"),
        ("sampling", {"temperature": math.nan}, "temperature must be above 0 and finite, not nan"),
        ("sampling", {"temperature": math.inf}, "temperature must be above 0 and finite, not inf"),
        ("sampling", {"top_k": 0}, "top_k cannot be 0: give a whole number from 1"),
        ("sampling", {"top_p": 0.0}, "top_p must be above 0 and up to 1, not 0.0"),
        ("sampling", {"top_p": 1.1}, "top_p must be above 0 and up to 1, not 1.1"),
        ("beam", {"width": 2**31}, "width cannot be 2147483648: give a whole number from 1 to 2,147,483,647"),
        ("beam", {"width": 0}, "width cannot be 0: give a whole number from 1"),
        ("beam", {"length_penalty": -0.5}, "length_penalty must be from 0 to 10, not -0.5"),
        ("beams", {}, "there is no decoding method 'beams'; did you mean 'beam'?"),
        ("nucleus", {}, "there is no decoding method 'nucleus'; there are 'greedy', 'sampling' and 'beam'"),
        ("beam", {"widht": 3}, "beam decoding has no option 'widht'; did you mean 'width'?"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(kind: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TextspaceError) as error:
        method_named(kind, **options)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("method", "given"), [(Sampling, "the class Sampling"), (3, "3")])
def test_what_is_not_a_method_is_refused(method: Any, given: str) -> None:
    decoder = Model(small(RECIPES["lstm-lm"]), VOCABULARY).decoder
    with pytest.raises(TextspaceError) as error:
        generate(decoder, None, method, rows_N=torch.arange(2))
    assert str(error.value) == f"method is {given}: give one such as Sampling() or Beam(width=5), or the name of one"


def of_tokens(*shape: int) -> PaddedCodes:
    return PaddedCodes(torch.zeros(shape), torch.ones(shape[:2], dtype=torch.bool))


@pytest.mark.parametrize(
    ("kind", "z", "forbidden", "sentence"),
    [
        ("lstm", None, (), "the decoder needs codes of 4 numbers and got none"),
        ("language model", torch.zeros(2, 4), (), "a language model takes no codes"),
        ("lstm", torch.zeros(2, 3), (), "the codes must have shape (2, 4), not (2, 3)"),
        ("lstm", torch.zeros(2, 5, 4), (), "the codes must have shape (2, 4), not (2, 5, 4)"),
        ("lstm", of_tokens(2, 5, 4), (), "the decoder reads codes of sentences, and these are of tokens"),
        ("transformer", of_tokens(2, 5, 4), (), "the decoder reads codes of sentences, and these are of tokens"),
        ("tokens", torch.zeros(2, 4), (), "the decoder reads codes of tokens, and these are of sentences"),
        ("tokens", of_tokens(2, 5, 3), (), "the codes must have shape (2, 5, 4), not (2, 5, 3)"),
        ("tokens", of_tokens(3, 5, 4), (), "the codes must have shape (2, 5, 4), not (3, 5, 4)"),
        ("tokens", None, (), "the decoder needs codes of 4 numbers and got none"),
        ("lstm", torch.zeros(3, 4), (), "the codes must have shape (2, 4), not (3, 4)"),
        ("lstm", torch.full((2, 4), math.nan), (), "a code holds a number that is not finite"),
        ("lstm", torch.zeros(2, 4), (20,), "there is no token 20 to forbid: ids go from 0 to 19"),
        ("lstm", torch.zeros(2, 4), tuple(range(2, 20)), "every token is forbidden, so nothing can be produced"),
    ],
)
def test_calls_that_make_no_sense_are_refused(kind: str, z: Codes, forbidden: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(TextspaceError) as error:
        generate(decoder_of(kind), z, Greedy(forbidden=forbidden), rows_N=torch.arange(2))
    assert str(error.value) == sentence


# Lengths given


def made_of_length(decoder: Decoder, method: Method, lengths: list[int], seed: int = 0) -> Generated:
    count = len(lengths)
    return generate(
        decoder,
        codes(decoder, count),
        method,
        rows_N=torch.arange(count),
        seed=seed,
        lengths_N=torch.tensor(lengths, dtype=torch.long),
    )


LENGTHS = [3, 0, 15, 1, 12, 0, 7, 2, 15, 5]  # beyond the methods' max_tokens too


def test_sentences_have_the_lengths_asked_for_in_any_batch(decoder: Decoder, method: Method) -> None:
    whole = made_of_length(decoder, method, LENGTHS, seed=3)
    assert [len(words) for words in whole.ids] == LENGTHS
    assert END not in itertools.chain.from_iterable(whole.ids)
    assert whole.ended_N.all()
    z_NZ = codes(decoder, len(LENGTHS))
    for row, length in enumerate(LENGTHS):
        alone = generate(
            decoder,
            part_of(z_NZ, row, row + 1),
            method,
            rows_N=torch.tensor([row]),
            seed=3,
            lengths_N=torch.tensor([length]),
        )
        assert alone.ids == [whole.ids[row]]
        assert alone.log_prob_N.item() == pytest.approx(whole.log_prob_N[row].item(), abs=1e-10)


def test_log_prob_is_the_models_own_for_given_lengths_too(decoder: Decoder, method: Method) -> None:
    generated = made_of_length(decoder, method, LENGTHS)
    log_px_NT = log_px(decoder, codes(decoder, len(LENGTHS)), batch_of(generated.ids).decoder)
    for row, length in enumerate(LENGTHS):
        expected = log_px_NT[row, : length + 1].sum().item()
        assert generated.log_prob_N[row].item() == pytest.approx(expected, abs=1e-9)


def test_a_given_length_leaves_the_best_sentence_of_that_length() -> None:
    """By enumeration for a beam of all prefixes, and word by word for greedy decoding."""
    decoder, lengths = decoder_of("gru", VOCABULARY, weights=2.0), [0, 1, 2, 3, 3, 2]
    z_NZ = codes(decoder, len(lengths))
    assert z_NZ is not None
    searched = made_of_length(decoder, Beam(max_tokens=3, width=100, length_penalty=1.0), lengths)
    greedy = made_of_length(decoder, Greedy(), lengths)
    for row, length in enumerate(lengths):
        log_p = enumerated(decoder, z_NZ[row : row + 1], 3)
        best = max((words for words in log_p if len(words) == length), key=log_p.__getitem__)
        assert searched.ids[row] == list(best)
        assert searched.log_prob_N[row].item() == pytest.approx(log_p[best], abs=1e-10)
        words: list[int] = []
        for _ in range(length):
            log_p_V = log_next(decoder, z_NZ[row : row + 1], words)
            words.append(
                max(
                    WORDS,
                    key=dict(
                        zip(WORDS, log_p_V[torch.tensor(WORDS) - FIRST_PREDICTED].tolist(), strict=True)
                    ).__getitem__,
                )
            )
        assert greedy.ids[row] == words


def test_samples_of_a_given_length_follow_the_words_probabilities_without_the_end(float64: None) -> None:
    decoder, count, length = decoder_of("lstm", VOCABULARY, seed=3), 20_000, 2
    z_1Z = torch.tensor([[0.5, -1.0, 1.5, 0.2]])
    drawn = generate(
        decoder,
        z_1Z.expand(count, -1),
        Sampling(),
        rows_N=torch.arange(count),
        seed=4,
        lengths_N=torch.full((count,), length),
    )
    seen = Counter(tuple(words) for words in drawn.ids)
    statistic, total = 0.0, 0.0
    for pair in itertools.product(WORDS, repeat=length):
        p = 1.0
        for position, word in enumerate(pair):
            log_p_V = log_next(decoder, z_1Z, list(pair[:position]))
            p *= math.exp(log_p_V[word - FIRST_PREDICTED]) / (1 - math.exp(log_p_V[END - FIRST_PREDICTED]))
        total += p
        statistic += (seen[pair] - count * p) ** 2 / (count * p)
    assert total == pytest.approx(1)
    assert stats.chi2.sf(statistic, len(WORDS) ** length - 1) > 1e-3


def test_a_given_length_overrules_what_is_said_of_the_end() -> None:
    decoder = decoder_of("lstm")
    for kind in module.METHODS:
        banned = made_of_length(decoder, method_named(kind, forbidden=(END, UNKNOWN), max_tokens=2), LENGTHS)
        assert banned.ids == made_of_length(decoder, method_named(kind, forbidden=(UNKNOWN,)), LENGTHS).ids
        assert banned.ended_N.all()
        nothing = made_of_length(decoder, method_named(kind, forbidden=tuple({*range(2, 20)} - {END})), [0, 0])
        assert nothing.ids == [[], []]
        assert made_of_length(decoder, method_named(kind), []).ids == []


@pytest.mark.parametrize(
    ("lengths", "forbidden", "sentence"),
    [
        ([1], (), "2 sentences need as many lengths, not 1"),
        ([1, -1], (), "a length is below 0"),
        (
            [0, 1],
            tuple({*range(2, 20)} - {END}),
            "every word is forbidden, so no sentence can be made as long as asked",
        ),
    ],
)
def test_lengths_that_make_no_sense_are_refused(lengths: list[int], forbidden: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(TextspaceError) as error:
        generate(
            decoder_of("lstm"),
            torch.zeros(2, 4),
            Greedy(forbidden=forbidden),
            rows_N=torch.arange(2),
            lengths_N=torch.tensor(lengths),
        )
    assert str(error.value) == sentence
