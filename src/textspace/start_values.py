"""Start values of weights, keyed by what they are for.

The random numbers of a weight depend on the seed, its part's role and the name that the part declares for it, and on
nothing else: not on other parts, the order in which modules are made, the attributes that hold them, dtype or device.
So a new part, option or layer changes no start value of the weights that were there before. Another name is another
draw, hence another result of every run: tests/start_value_names.json keeps the names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from textspace.config import Initial
from textspace.noise import seed_of

__all__ = ["SCHEME", "StartValue", "declared", "draw_start_values", "start_values"]

SCHEME = "keyed by name"
"""How start values are drawn: part of the key under which the cache keeps first phases of training."""

Rule = Literal["uniform", "normal", "kept"]
"""How a bare parameter starts if the recipe's `initial.weights` is null: uniform in (-b, b) with b = 1 / sqrt(length of
its last axis), or standard normal; "kept" always keeps the value that it was made with."""

_MARK = "_declared_start_value"

Thing = TypeVar("Thing", bound=nn.Module | nn.Parameter)


class _Declared(NamedTuple):
    name: str
    rule: Rule | None


class StartValue(NamedTuple):
    """A parameter, its declared name, and how it starts by its own rule."""

    name: str
    parameter: nn.Parameter
    kind: Literal["uniform", "normal", "embedding", "kept"]
    bound: float = math.nan
    """Of a uniform distribution."""


def declared(name: str, thing: Thing, rule: Rule | None = None) -> Thing:
    """Declare the name by which the start values of a module or a bare parameter are drawn, and return it.

    Names of modules inside each other join: "layer 0 attention query weight".

    Args:
        name: says what it is for, and stays when attributes are renamed.
        thing: the module or parameter.
        rule: for a bare parameter, how it starts; for a module, "kept" if all its weights come from elsewhere.
    """
    setattr(thing, _MARK, _Declared(name, rule))
    return thing


def start_values(parts: Mapping[str, nn.Module | None]) -> Iterator[tuple[str, StartValue]]:
    """The role and start value of every parameter; of a shared one, for the role that comes first.

    A parameter without a declared name of its own is an error, so that no part can forget one.
    """
    seen: set[int] = set()
    for role, part in parts.items():
        names: set[str] = set()
        for found in () if part is None else _inside(part, (), role):
            if id(found.parameter) in seen:
                continue
            if found.name in names:
                raise ValueError(f"two parameters of the {role} have the declared name {found.name!r}: rename one")
            seen.add(id(found.parameter))
            names.add(found.name)
            yield role, found


@torch.no_grad()
def draw_start_values(parts: Mapping[str, nn.Module | None], seed: int, initial: Initial) -> None:
    """Draw the first numbers of all parameters, except for those without memory, on the meta device.

    The dual function always starts by PyTorch's own rule.

    Args:
        parts: by role.
        seed: of the run.
        initial: the recipe's choice of distributions.
    """
    own = Initial(weights=None, embeddings=None)
    for role, start in start_values(parts):
        if start.kind != "kept" and not start.parameter.is_meta:
            generator = torch.Generator("cpu").manual_seed(seed_of(seed, "start values", role, start.name))
            start.parameter.copy_(_drawn(start, own if role == "dual" else initial, generator))


def _drawn(start: StartValue, initial: Initial, generator: torch.Generator) -> Tensor:
    """The same numbers for every dtype and device: drawn in float32 on the CPU."""
    values = torch.empty(start.parameter.shape, dtype=torch.float32, device="cpu")
    bound = initial.embeddings if start.kind == "embedding" else initial.weights
    if bound is None and start.kind != "uniform":
        return values.normal_(generator=generator)
    bound = start.bound if bound is None else bound
    return values.uniform_(-bound, bound, generator=generator)


def _inside(module: nn.Module, names: tuple[str, ...], path: str) -> Iterator[StartValue]:
    """The start values of a module and the modules inside it; `path`, of attributes, is for errors only."""
    own: _Declared | None = getattr(module, _MARK, None)
    if own is not None:
        names = (*names, own.name)
        if own.rule == "kept":
            return
    for attribute, parameter in module.named_parameters(recurse=False):
        bare: _Declared | None = getattr(parameter, _MARK, None)
        found = None
        if bare is not None and bare.rule is not None:
            bound = 1 / math.sqrt(parameter.shape[-1]) if bare.rule == "uniform" else math.nan
            found = StartValue(" ".join((*names, bare.name)), parameter, bare.rule, bound)
        elif own is not None:
            found = _of_known_kind(module, " ".join((*names, attribute)), parameter)
        if found is None:
            raise ValueError(
                f"{path}.{attribute} has no start value: a bare parameter needs declared(name, parameter, rule), a "
                f"module declared(name, module), and {type(module).__name__} a rule in start_values.py"
            )
        yield found
    for attribute, child in module.named_children():
        yield from _inside(child, names, f"{path}.{attribute}")


def _of_known_kind(module: nn.Module, name: str, parameter: nn.Parameter) -> StartValue | None:
    """Of a parameter of a module of PyTorch, by that module's own rule; None for kinds that no part has."""
    match module:
        case nn.Embedding():
            return StartValue(name, parameter, "embedding")
        case nn.LayerNorm():
            return StartValue(name, parameter, "kept")
        case nn.Linear():
            return StartValue(name, parameter, "uniform", 1 / math.sqrt(module.in_features))
        case nn.LSTM() | nn.GRU():
            return StartValue(name, parameter, "uniform", 1 / math.sqrt(module.hidden_size))
    return None
