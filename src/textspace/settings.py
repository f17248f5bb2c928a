"""Options by path (`latent.dim=64`), and validation mistakes told in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from textspace.errors import TextspaceError, nearest

__all__ = ["changed", "parsed", "paths", "sentence"]


_AS_WRITTEN = "give strings like 'latent.dim=64'"


def parsed(settings: str | Iterable[str]) -> dict[str, Any]:
    """Settings, one or several, written `path=value`, the value in JSON or plain text.

    >>> parsed(["latent.dim=64", "training.plateau=paper"])
    {'latent.dim': 64, 'training.plateau': 'paper'}
    """
    if not isinstance(settings, Iterable):
        raise TextspaceError(f"settings are of type {type(settings).__name__}: {_AS_WRITTEN}")
    changes = {}
    for setting in [settings] if isinstance(settings, str) else settings:
        if not isinstance(setting, str):
            raise TextspaceError(f"setting {setting!r} is of type {type(setting).__name__}: {_AS_WRITTEN}")
        path, equals, written = setting.partition("=")
        if not equals:
            raise TextspaceError(f"setting {setting!r} has no '=': write it as path=value, e.g. latent.dim=64")
        try:
            changes[path.strip()] = json.loads(written)
        except (ValueError, RecursionError):  # also numbers with too many digits, and bottomless nesting
            changes[path.strip()] = written
    return changes


def changed(config: BaseModel, changes: dict[str, Any]) -> dict[str, Any]:
    """The config as plain data, with the options at some paths replaced."""
    known = paths(type(config))
    data = config.model_dump(mode="json")
    for path, value in changes.items():
        if path not in known:
            raise TextspaceError(_unknown(path, type(config)))
        *parents, last = path.split(".")
        here = data
        for name in parents:
            if not isinstance(here.get(name), dict):
                here[name] = {}  # a number where a schedule may stand, or what is absent: start from the defaults
            here = here[name]
        if last == "kind" and value in known[path]:
            before, after = known[path].get(here.get("kind", "")), known[path][value]
            for name in [name for name in here if not _carries_over(name, here[name], before, after)]:
                del here[name]
        here[last] = value
    return data


def _carries_over(name: str, value: Any, before: type[BaseModel] | None, after: type[BaseModel]) -> bool:
    """Whether an option stays when the kind changes: one that both kinds have and that was not left at its default."""
    if before is after:
        return True
    return name in after.model_fields and (before is None or value != before.model_fields[name].default)


@cache
def paths(config: type[BaseModel]) -> dict[str, dict[str, type[BaseModel]]]:
    """Every option's path; for the path of a `kind`, also the config of each kind."""
    found: dict[str, dict[str, type[BaseModel]]] = {}
    for name, field in config.model_fields.items():
        kinds = found.setdefault(name, {})
        if name == "kind":
            kinds |= dict.fromkeys(get_args(field.annotation), config)
        for part in _configs_in(field.annotation):
            for path, part_kinds in paths(part).items():
                found.setdefault(f"{name}.{path}", {}).update(part_kinds)
    return found


def _configs_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [config for argument in get_args(annotation) for config in _configs_in(argument)]


def _unknown(path: str, config: type[BaseModel]) -> str:
    known = paths(config)
    leaves = [other for other in known if not any(longer.startswith(other + ".") for longer in known)]
    return f"recipe has no option {path!r}; {nearest(path, leaves)}"


def _is_config(given: Any) -> bool:
    return isinstance(given, dict | BaseModel)


def sentence(error: ValidationError, config: type[BaseModel]) -> str:
    """The first mistake in plain words."""
    mistakes = error.errors()
    # Where a number or a schedule may stand, what is wrong with a schedule comes after that it is no number.
    first = next(
        (one for one in mistakes if not (one["type"] == "float_type" and _is_config(one["input"]))), mistakes[0]
    )
    # pydantic names the branch of a union too ('objective', 'elbo', 'kl_weight'), which users never wrote.
    fields = {name for path in paths(config) for name in path.split(".")}
    where = ".".join(str(part) for part in first["loc"] if part in fields)
    match first["type"]:
        case "extra_forbidden":
            *parents, last = first["loc"]
            parent = ".".join(str(part) for part in parents if part in fields)
            path = f"{parent}.{last}" if parent else str(last)
            if path in paths(config):  # of another kind, whose name stands before it
                return f"{parent} {parents[-1]!r} has no option {last!r}: choose another {parent}.kind, or leave it out"
            return _unknown(path, config)
        case "union_tag_invalid":
            given = str(first["ctx"]["tag"])
            tags = first["ctx"]["expected_tags"].replace("'", "").split(", ")
            return f"{where}.kind has no choice {given!r}; {nearest(given, tags)}"
        case "union_tag_not_found":
            return f"{where}.kind is missing: say which kind of {where} it is"
        case "value_error":
            told = str(first["ctx"]["error"])
            return f"{where}: {told}" if where else told
        case _:
            given = json.dumps(first["input"], default=str)
            shown = given if len(given) <= 60 else given[:57] + "..."
            message = first["msg"]
            return f"{where or 'the recipe'} is {shown}, but {message[0].lower()}{message[1:]}"
