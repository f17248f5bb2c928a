"""Tables 1 to 5 and figures 2 and 3 of the VAT paper, from trained spaces and what they are compared with.

    python -m benchmarks.token_tables TASKS SPACE [SPACE ...] --data CORPUS --baselines MLM=FOLDER --out OUT
    python -m benchmarks.token_tables TASKS SPACE --parts fine_tuning --limit 5000 --device cuda --together 8 --out OUT
    python -m benchmarks.token_tables TASKS SPACE [SPACE ...] --parts --out OUT
    python -m benchmarks.token_tables TASKS SPACE --join ELSEWHERE/token_tables.json --out OUT

SPACE is a folder, or NAME=FOLDER; --baselines are encoders of Hugging Face, or further spaces, NAME=FOLDER each.
NAME=untrained:FOLDER is an encoder's architecture with its first weights. Counts of words stand beside all of them.

Parts: `sts` (table 4), `transfer` (table 5, top), `fine_tuning` (table 5, bottom), `losses` (figures 2 and 3b),
`isotropy` (figure 3a), `completeness`, `variety`, `tables` (1 to 3). Each is measured in small units, every one kept in
OUT/parts as soon as it is done: the same command goes on where it stopped, and measures again what has other weights
or settings. The third command above measures nothing and writes the tables from what there is: OUT/token_tables.json,
OUT/token_tables.md and OUT/*.png. The last joins what was found elsewhere, of the same spaces or of others, and
measures what is in none of the files: spaces that were rounded to be brought here have other weights, but count as the
same by their name.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.results import machine
from benchmarks.token_figures import draw_all
from benchmarks.token_parts import (
    PARTS,
    WORDS,
    Contestant,
    Options,
    Unit,
    curves,
    measured,
    units_of,
    untrained_copy,
)
from benchmarks.token_report import Contestants, markdown
from textspace.errors import TextspaceError

UNTRAINED = "untrained:"


def contestants_of(spaces: Sequence[str], baselines: Sequence[str], out: Path, seed: int) -> list[Contestant]:
    """All who are measured, word counts last; encoders without training are made."""
    found = [Contestant.of(written) for written in [*spaces, *baselines]]
    for place, each in enumerate(found):
        if each.folder.startswith(UNTRAINED):
            made = untrained_copy(each.folder.removeprefix(UNTRAINED), out / "untrained" / each.name, seed)
            found[place] = Contestant(each.name, "encoder", made)
    for name, count in Counter([WORDS, *(each.name for each in found)]).items():
        if count > 1:
            raise TextspaceError(f"{name!r} is the name of {count}: give others with NAME=FOLDER")
    return [*found, Contestant(WORDS, "words")]


def path_of(unit: Unit, out: Path) -> Path:
    return out / "parts" / unit.contestant.name / f"{unit.key}.json"


def kept(unit: Unit, out: Path) -> dict[str, Any] | None:
    """What was found before, whatever the settings."""
    path = path_of(unit, out)
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def is_done(unit: Unit, options: Options, out: Path, weights: str) -> bool:
    """Whether it was measured with these weights and settings."""
    found = kept(unit, out)
    return found is not None and (found["weights"], found["options"]) == (weights, options.deciding(unit.part))


def work(unit: Unit, options: Options, out: Path) -> str:
    """Measure a unit and keep it; what to say of it."""
    name = f"{unit.contestant.name}: {unit.key}"
    try:
        found = measured(unit, options)
    except TextspaceError as problem:
        return f"{name}: not measured, {problem}"
    path = path_of(unit, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(found, indent=1) + "\n")
    unfinished.replace(path)
    return f"{name}: {found['seconds']:.0f} s"


def worked(units: Sequence[Unit], options: Options, out: Path, together: int) -> Iterator[str]:
    """Do units, so many at a time; what there is to say of each when it is done."""
    if together == 1:
        yield from (work(unit, options, out) for unit in units)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(together, context, initializer=_alone) as pool:
        yield from (done.result() for done in as_completed([pool.submit(work, unit, options, out) for unit in units]))


def _alone() -> None:
    import torch

    torch.set_num_threads(1)


def collected(contestants: Sequence[Contestant], out: Path) -> dict[str, Any]:
    """Everything that was found so far, by contestant."""
    found = {}
    for contestant in contestants:
        folder = out / "parts" / contestant.name
        units = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
        one: dict[str, Any] = {"kind": contestant.kind, "seconds": {}, "options": {}, "estimates": {}, "tables": {}}
        for key, unit in units.items():
            part = key.partition(".")[0]
            one["seconds"][key], one["options"][key] = unit["seconds"], unit["options"]
            one["estimates"].setdefault(part, {}).update(
                {
                    name: {"value": each["value"], "stderr": each["stderr"], "n": each["n"], **_telling(each)}
                    for name, each in unit["estimates"].items()
                }
            )
            if unit["tables"]:
                one["tables"][part] = unit["tables"]
        found[contestant.name] = one | _run_of(contestant)
    return found


def joined(pieces: Iterable[Contestants]) -> dict[str, Any]:
    """What was found at several times and places as one, word counts last.

    Of a unit that was found twice the later is taken, of the run behind a space what was told first.
    """
    whole: dict[str, Any] = {}
    for piece in pieces:
        for name, one in piece.items():
            before = whole.setdefault(name, {"seconds": {}, "options": {}, "estimates": {}, "tables": {}})
            for kind in ("seconds", "options", "tables"):
                before[kind] = before[kind] | one[kind]
            for part, estimates in one["estimates"].items():
                before["estimates"][part] = before["estimates"].get(part, {}) | estimates
            whole[name] = before | {key: value for key, value in one.items() if key not in before}
    for one in whole.values():
        for options in one["options"].values():
            if options.get("language_model"):  # a name says enough, and folders are those of a machine
                options["language_model"] = Path(options["language_model"]).name
    return {name: whole[name] for name in sorted(whole, key=lambda name: name == WORDS)}


def _units(found: Contestants) -> dict[str, list[str]]:
    """By contestant the units that were measured."""
    return {name: sorted(one["seconds"]) for name, one in found.items() if one["seconds"]}


def _telling(estimate: dict[str, Any]) -> dict[str, Any]:
    """Of the settings those that differ between rows."""
    names = ("dev", "training_limit", "learning_rate", "folds_trained", "dropped_for_training", "spelling", "separator")
    return {name: estimate["settings"][name] for name in names if estimate["settings"].get(name) is not None}


def _run_of(contestant: Contestant) -> dict[str, Any]:
    """The run behind a space: what of its recipe matters here, its cost and its curves."""
    chosen = contestant.recipe
    if chosen is None:
        return {"name": contestant.name}
    metrics = json.loads((Path(contestant.folder) / "metrics.json").read_text())
    trained = metrics.get("trained", {})
    data = json.loads(chosen.to_json())
    return {
        "scale": data["prior"].get("scale", 1.0),
        "token_level": chosen.is_token_level,
        "kl_weight": data["objective"].get("kl_weight"),
        "recipe": data,
        "cost": {key: trained.get(key) for key in ("seconds", "steps", "epochs", "parameters")},
        "curves": curves(Path(contestant.folder)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", help="the folder that holds the files of tasks")
    parser.add_argument("spaces", nargs="*", metavar="SPACE")
    parser.add_argument("--baselines", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--data", help="the text that spaces were trained on")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", help="cpu or cuda; by default the GPU where there is one")
    parser.add_argument("--limit", type=int, help="sentences that classifiers are trained on at most")
    parser.add_argument("--folds", type=int, default=2, help="of the ten of MR and CR that are fine-tuned")
    parser.add_argument("--decoded", type=int, default=600, help="sentences to decode for variety and completeness")
    parser.add_argument("--language-model", help="folder of a language model that judges decoded sentences")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="measure these alone; tables have all")
    parser.add_argument("--skip", nargs="*", default=[], metavar="TASK", help="tasks not to train, like sst2_phrases")
    parser.add_argument("--join", nargs="*", type=Path, default=[], metavar="FILE", help="token_tables.json, more")
    parser.add_argument("--together", type=int, default=1, help="processes at once")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so long (with --together 1)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    options = Options(
        tasks=given.tasks,
        data=given.data,
        device=given.device,
        limit=given.limit,
        folds=given.folds,
        decoded=given.decoded,
        language_model=given.language_model,
        seed=given.seed,
    )
    contestants = contestants_of(given.spaces, given.baselines, given.out, given.seed)
    weights = {each.name: each.fingerprint for each in contestants}
    wanted = [each for each in contestants if given.only is None or each.name in given.only]
    units = [unit for unit in units_of(wanted, given.parts, options) if unit.task not in given.skip]
    elsewhere = [json.loads(path.read_text()) for path in given.join]
    there = {(name, key) for each in elsewhere for name, keys in _units(each["contestants"]).items() for key in keys}
    to_do = [
        unit
        for unit in units
        if (unit.contestant.name, unit.key) not in there
        and not is_done(unit, options, given.out, weights[unit.contestant.name])
    ]
    print(f"{len(units) - len(to_do)} of {len(units)} units are there", flush=True)
    began = time.monotonic()
    for number, told in enumerate(worked(to_do, options, given.out, given.together), 1):
        print(f"[{number}/{len(to_do)}, {time.monotonic() - began:.0f} s] {told}", flush=True)
        if given.minutes is not None and time.monotonic() - began > 60 * given.minutes:
            print("the time is over: the same command goes on from here", flush=True)
            break
    here = collected(contestants, given.out)
    found = joined([*(each["contestants"] for each in elsewhere), here])
    places = {given.tasks: "TASKS", str(given.out): "OUT", str(given.data): "CORPUS"}
    places |= dict(zip([*given.spaces, *given.baselines], (each.name for each in contestants), strict=False))
    places |= {str(given.language_model): "LM"} | {str(path): "JOINED" for path in given.join}
    places.pop("None", None)
    command = " ".join(places.get(each, each) for each in sys.argv[1:])
    content: dict[str, Any] = {
        "command": f"python -m benchmarks.token_tables {command}",
        "machine": machine(),
        "options": {key: places.get(str(value), value) for key, value in asdict(options).items()},
        "contestants": found,
    }
    if elsewhere:
        content["joined"] = [
            {"command": each["command"], "machine": each["machine"], "units": _units(each["contestants"])}
            for each in elsewhere
        ]
        content["units"] = _units(here)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "token_tables.json").write_text(json.dumps(content, indent=1) + "\n")
    (given.out / "token_tables.md").write_text(markdown(found))
    drawn = draw_all(found, given.out)
    print(f"wrote token_tables.json, token_tables.md{''.join(f', {name}' for name in drawn)} in {given.out}")


if __name__ == "__main__":
    main()
