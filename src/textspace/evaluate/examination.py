"""An examination: what a diagnosis rests on, measured on some sentences, kept as JSON, and drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from textspace.config import Recipe
from textspace.digests import digest_of_file
from textspace.errors import TextspaceError
from textspace.evaluate.doctor import Diagnosis, State, diagnose, known_numbers, measures_of
from textspace.evaluate.likelihood import Likelihood, likelihood
from textspace.evaluate.posterior import ACTIVE_ABOVE, PosteriorStatistics, posterior_statistics
from textspace.files import read_json
from textspace.train import checkpoints

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit
    from textspace.model import Model

__all__ = [
    "Examination",
    "History",
    "courses",
    "draw_examination",
    "epochs_of",
    "examine",
    "validations",
]

Line = Mapping[str, Any]
"""Of a run's log."""


@dataclass(frozen=True)
class Examination:
    """What was measured, dimension by dimension and in numbers, and the diagnosis.

    `statistics` is None for a language model and where no text was at hand, only a run's log.
    """

    numbers: dict[str, float]
    statistics: PosteriorStatistics | None
    diagnosis: Diagnosis

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        statistics = None if self.statistics is None else self.statistics.to_dict()
        return {"numbers": self.numbers, "statistics": statistics, "diagnosis": asdict(self.diagnosis)}

    @classmethod
    def from_dict(cls, data: Any) -> Examination:
        try:
            told = data["diagnosis"]
            if told["state"] not in get_args(State):
                raise ValueError(told["state"])
            diagnosis = Diagnosis(told["state"], str(told["sentence"]), tuple(map(str, told["advice"])))
            numbers = {str(name): float(value) for name, value in data["numbers"].items()}
            statistics = data["statistics"] and PosteriorStatistics.from_dict(data["statistics"])
            return cls(numbers, statistics, diagnosis)
        except (AttributeError, LookupError, TypeError, ValueError):
            raise TextspaceError("the stored examination is damaged: examine the space anew") from None


def examine(
    model: Model,
    split: EncodedSplit,
    recipe: Recipe,
    *,
    seed: int = 0,
    scored: Likelihood | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    epochs: float | None = None,
    progress: bool = False,
) -> Examination:
    """Measure what a diagnosis needs on some sentences, and give it.

    Args:
        model: on the device where it shall run.
        split: the sentences.
        recipe: what the model was trained with.
        seed: of the noise.
        scored: the sentences' likelihood, where it is known already.
        history: the run's earlier validations, in order.
        epochs: how long it has been trained, where that is known.
        progress: show a bar.
    """
    measured = (scored or likelihood(model, split, seed=seed, progress=progress)).estimates()
    statistics = posterior_statistics(model, split, seed=seed, progress=progress)
    if statistics is not None:
        measured |= statistics.estimates()
    numbers = {name: measured[name].value for name in measures_of(recipe) if name in measured}
    return Examination(numbers, statistics, diagnose(numbers, recipe, history, epochs))


def validations(folder: Path) -> list[dict[str, Any]]:
    """The validations in a run's log, as many as can be read."""
    from textspace.train.log import records

    found: list[dict[str, Any]] = []
    with suppress(OSError, ValueError, LookupError, TypeError):  # no log, or one that ends in the middle of a line
        for line in records(folder / "steps.jsonl", "validation"):
            found.append(line)
    return found


class History(NamedTuple):
    """The validations of a run, seen from the weights that the space has."""

    lines: list[dict[str, Any]]
    kept: dict[str, Any] | None
    """The one that measured these weights; None where that is not known."""

    @classmethod
    def of(cls, folder: Path, metrics: Mapping[str, Any]) -> History:
        """Of the run in a space's folder, whose record is `metrics`: it says which weights there are."""
        lines = validations(folder)
        stored = metrics.get("kept")
        numbers = stored.get("validation") if isinstance(stored, Mapping) else None
        if isinstance(numbers, dict) and isinstance(numbers.get("step"), int):
            return cls(lines, numbers)
        step = _kept_step(folder, metrics)
        return cls(lines, next((line for line in lines if step is not None and line.get("step") == step), None))

    @property
    def earlier(self) -> list[dict[str, Any]]:
        """Those before the kept weights'; before the last, where these are not known."""
        if self.kept is None:
            return self.lines[:-1]
        return [line for line in self.lines if line.get("step", 0) < self.kept["step"]]

    @property
    def last(self) -> dict[str, Any] | None:
        """The last one, where it measured other weights than those that were kept."""
        later = self.lines and self.kept and self.lines[-1].get("step", 0) > self.kept["step"]
        return self.lines[-1] if later else None

    @property
    def epochs(self) -> float | None:
        """How long the run was."""
        return epochs_of(self.lines)


def _kept_step(folder: Path, metrics: Mapping[str, Any]) -> int | None:
    """The step of the weights in a folder whose record does not hold their validation; None where it is not known.

    Records of finished runs say it. A checkpoint says it if its best weights are those in the folder.
    """
    trained = metrics.get("trained")
    step = trained.get("best_step") if isinstance(trained, Mapping) else None
    if isinstance(step, int):
        return step
    with suppress(OSError, ValueError, LookupError, TypeError):
        newest = checkpoints.newest(folder)
        state = read_json(newest / "state.json") if newest else {}
        if newest and state["files"]["best.safetensors"] == digest_of_file(folder / "model.safetensors"):
            return int(state["selection"]["best_step"])
    return None


def epochs_of(history: Sequence[Line]) -> float | None:
    """How long a run was."""
    last = history[-1].get("epoch") if history else None
    return float(last) if isinstance(last, int | float) else None


# The picture

_STRONG, _WEAK, _LIMIT, _COURSE = "#08519c", "#c6dbef", "#d94801", "#444444"


def courses(unit: str) -> dict[str, tuple[str, str]]:
    """Title and axis of the numbers of codes that are drawn over a run; the unit is what has a code, a sentence or a
    token."""
    return {
        "kl": ("KL", "nats per sentence"),
        "mi": ("mutual information", f"nats per {unit}"),
        "active_units": ("active units", "dimensions"),
        "feature_cosine": (f"cosine of two {unit}s' features", "mean cosine"),
    }


_SMALLEST_SHOWN = 1e-7
"""Of a variance on a logarithmic axis, where 0 has no place."""


def draw_examination(examination: Examination, history: Sequence[Mapping[str, Any]], path_stem: Path) -> list[Path]:
    """Draw an examination, and its numbers over the epochs of `history`, as `path_stem`.png and .svg.

    Where there is neither, as of a language model, nothing is drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from textspace.evaluate.reports.pictures import written

    statistics = examination.statistics
    logged = "token" if "token_kl" in examination.numbers else "sentence"
    named = courses(logged if statistics is None else statistics.unit)
    drawn = {name: found for name in named if (found := _course(history, name))}
    dimensions: list[Callable[[Any, PosteriorStatistics], None]] = []
    if statistics is not None:
        dimensions = [*([] if statistics.kl_Z is None else [_draw_kl]), _draw_means, _draw_deviations]
    rows = bool(dimensions) + bool(drawn)
    if not rows:
        return []

    figure = Figure(figsize=(14, 3.4 * rows + 0.7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(textwrap.fill(examination.diagnosis.sentence, 160), fontsize=11, x=0.01, ha="left")
    parts = iter(figure.subfigures(rows, 1, squeeze=False)[:, 0])
    if statistics is not None:
        for axis, draw in zip(_axes(next(parts), len(dimensions)), dimensions, strict=True):
            draw(axis, statistics)
    if drawn:
        for axis, (name, found) in zip(_axes(next(parts), len(drawn)), drawn.items(), strict=True):
            axis.plot(*zip(*found, strict=True), color=_COURSE, marker="o", markersize=3)
            title, label = named[name]
            axis.set(title=title, xlabel="epoch", ylabel=label)
            low, high = axis.get_ylim()
            axis.set_ylim(min(0, low), high + 0.05 * abs(high))
    for axis in figure.get_axes():
        axis.spines[["top", "right"]].set_visible(False)
    try:
        path_stem.parent.mkdir(parents=True, exist_ok=True)
        return written(figure, path_stem)
    except OSError as error:
        path, reason = error.filename or path_stem, error.strerror or error
        raise TextspaceError(f"could not write {path}: {reason}; name another place with --out") from None


def _axes(part: Any, count: int) -> list[Any]:
    """Places for pictures side by side; with few of them some place stays empty, since wide ones are hard to read."""
    made = part.subplots(1, max(count, 3), squeeze=False)[0]
    for spare in made[count:]:
        spare.set_axis_off()
    return list(made[:count])


def _course(history: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """A number over epochs."""
    return [(line["epoch"], line[name]) for line in map(known_numbers, history) if "epoch" in line and name in line]


def _order(statistics: PosteriorStatistics) -> np.ndarray:
    """Dimensions in the order of all pictures: the KL's, or that of the means' variance where there is no KL."""
    return np.argsort(-(statistics.mean_variance_Z if statistics.kl_Z is None else statistics.kl_Z), kind="stable")


def _draw_kl(axis: Any, statistics: PosteriorStatistics) -> None:
    if statistics.kl_Z is not None:
        _bars(axis, statistics, statistics.kl_Z)
    axis.set(title="KL of each dimension", ylabel="nats")


def _draw_means(axis: Any, statistics: PosteriorStatistics) -> None:
    _bars(axis, statistics, statistics.mean_variance_Z.clip(min=_SMALLEST_SHOWN))
    threshold_Z = ACTIVE_ABOVE * statistics.prior_variance_Z
    _limit(axis, statistics, threshold_Z, f"active above {ACTIVE_ABOVE} of the prior's")
    smallest = min(statistics.mean_variance_Z.clip(min=_SMALLEST_SHOWN).min(), threshold_Z.min())
    largest = max(statistics.mean_variance_Z.max(), threshold_Z.max())
    axis.set(
        title=f"variance of the codes' means: {statistics.active_units} active",
        ylabel=f"variance over {statistics.unit}s",
        yscale="log",
        ylim=(smallest / 3, 5 * largest),  # room for the legend
    )


def _draw_deviations(axis: Any, statistics: PosteriorStatistics) -> None:
    _bars(axis, statistics, statistics.deviation_Z)
    _limit(axis, statistics, np.sqrt(statistics.prior_variance_Z), "the prior's")
    axis.set(title=f"deviation of a {statistics.unit}'s codes", ylabel="mean standard deviation")
    axis.set_ylim(top=1.15 * axis.get_ylim()[1])  # room for the legend


def _bars(axis: Any, statistics: PosteriorStatistics, values_Z: np.ndarray) -> None:
    """One bar for each dimension, those of active ones strong."""
    order = _order(statistics)
    active_Z = statistics.mean_variance_Z > ACTIVE_ABOVE * statistics.prior_variance_Z
    axis.bar(np.arange(1, len(order) + 1), values_Z[order], color=np.where(active_Z[order], _STRONG, _WEAK), width=0.8)
    by = "the means' variance" if statistics.kl_Z is None else "KL"
    axis.set_xlabel(f"dimensions, sorted by {by} (dark: active)")


def _limit(axis: Any, statistics: PosteriorStatistics, values_Z: np.ndarray, label: str) -> None:
    at = np.arange(1, len(values_Z) + 1)
    # A step for each bar, from its left end to its right one, since the prior's dimensions may differ.
    edges = np.stack([at - 0.5, at + 0.5], axis=1).ravel()
    axis.plot(edges, values_Z[_order(statistics)].repeat(2), color=_LIMIT, linewidth=1, label=label)
    axis.legend(frameon=False, loc="upper right")
