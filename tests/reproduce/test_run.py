"""From a table to runs and back: which there are, what was done, and what is said of those that are missing."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from textspace.errors import TextspaceError
from textspace.reproduce.job import Job
from textspace.reproduce.picture import draw_by_epoch
from textspace.reproduce.report import Reproduction
from textspace.reproduce.run import Asked, collected, gathered, jobs_of, run
from textspace.reproduce.showing import save
from textspace.reproduce.side_by_side import Ended
from textspace.reproduce.tables import table


def test_rows_with_many_seeds_come_first_seed_by_seed() -> None:
    names = list(jobs_of(table("tiny"), None, Asked()))
    assert names == ["vae-seed0", "vae-seed1", "pretrain-free-bits-seed0", "lstm-lm-seed0"]
    assert list(jobs_of(table("tiny"), None, Asked(rows=["lstm-lm", "vae"], seeds=1))) == ["vae-seed0", "lstm-lm-seed0"]


def test_epochs_that_are_set_take_the_place_of_the_tables() -> None:
    def epochs(**asked: Any) -> int:
        return jobs_of(table("tiny"), None, Asked(rows=["vae"], seeds=1, **asked))["vae-seed0"].recipe.training.epochs

    assert (epochs(), epochs(changes=["training.epochs=20"])) == (8, 20)
    assert (epochs(epochs=3, changes=["training.epochs=20"]), epochs(epochs=30)) == (3, 30)


def test_a_folder_named_like_part_of_a_word_changes_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Asked(rows=["vae"], seeds=1)
    ended = {"vae-seed0": Ended("vae-seed0", "failed", "could not read d/vae-seed0/steps.jsonl: denied")}
    found = gathered(table("tiny"), jobs_of(table("tiny"), None, asked), Path("d"), asked, ended=ended)
    assert found.missing == {"vae-seed0": "failed: could not read FOLDER/vae-seed0/steps.jsonl: denied"}


def test_what_differs_from_the_table_is_said() -> None:
    asked = Asked(samples=5, epochs=3, changes=["latent.dim=4"], score_in="tf32")
    cut, longer = {"row": "vae", "epochs_at_most": 3}, {"row": "vae", "epochs_at_most": 8}
    assert asked.deviations(table("tiny"), {"cut": cut, "not begun": {"row": "lstm-lm"}}) == [
        "latent.dim=4 in every run",
        "at most 3 epochs instead of 8",
        "5 importance samples instead of 20",
        "likelihoods scored in tf32",
    ]
    assert "at most 3 epochs instead of 8 in some runs" in asked.deviations(table("tiny"), {"a": cut, "b": longer})
    assert Asked(epochs=3).deviations(table("tiny"), {"longer": longer}) == []
    known = {"a": cut, "b": cut | {"epochs_at_most": 5}}  # and none is asked for
    assert Asked().deviations(table("tiny"), known) == ["at most 3 or 5 epochs instead of 8"]
    assert Asked(samples=20, epochs=8).deviations(table("tiny"), {"cut": cut | {"epochs_at_most": 8}}) == []
    longest = ["at most 100 epochs instead of 8"]  # as many as the recipe has
    assert Asked(epochs=900).deviations(table("tiny"), {"not begun": {"row": "vae"}}) == longest


def test_of_runs_that_are_done_what_they_had_is_said_and_not_what_is_asked_for() -> None:
    asked = Asked(epochs=1, changes=["training.epochs=1", "training.checkpoint_every=5"])
    done, cut = {"row": "vae", "epochs_at_most": 8}, {"row": "vae", "epochs_at_most": 2}
    assert asked.deviations(table("tiny"), {"a": done}) == []
    assert asked.deviations(table("tiny"), {"a": cut}) == ["at most 2 epochs instead of 8"]
    assert asked.deviations(table("tiny"), {"not begun": {"row": "vae"}}) == ["at most 1 epochs instead of 8"]
    longer = Asked(changes=["training.epochs = 300", "latent.dim=4"])
    assert longer.deviations(table("ptb-mim"), {"not begun": {"row": next(iter(table("ptb-mim").trained))}}) == [
        "latent.dim=4 in every run",
        "at most 300 epochs instead of as many as the recipes say",
    ]


def test_seeds_are_not_set_for_all_runs_of_a_row() -> None:
    with pytest.raises(TextspaceError, match=r"leave it out, and say how many with --seeds"):
        jobs_of(table("tiny"), None, Asked(changes=["training.seed=7"]))


def test_other_text_makes_other_runs(tmp_path: Path) -> None:
    """Whatever its folder is called, and packed or not."""

    def job(folder: str, **changed: str) -> Job:
        (tmp_path / folder / "ptb").mkdir(parents=True)
        for split in ("train", "valid", "test"):
            content = changed.get(split, "a word\n").encode()
            packed = folder == "packed"
            path = tmp_path / folder / "ptb" / (f"{split}.txt.gz" if packed else f"{split}.txt")
            path.write_bytes(gzip.compress(content) if packed else content)
        (tmp_path / folder / "ptb" / "README.md").write_text(folder)
        return jobs_of(table("ptb-remedies"), tmp_path / folder, Asked(rows=["vae"], seeds=1))["vae-seed0"]

    first = job("first")
    done = {"digest": first.digest, "steps_at_most": None, "epochs_at_most": 100, "epochs": 100, "text": first.text}
    assert first.is_trained(done)
    assert job("packed").is_trained(done)
    assert not job("mended", test="a mended word\n").is_trained(done)
    assert job("unknown", test="b\n").is_trained({name: done[name] for name in done if name != "text"})
    first.write(tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "step-00000001").mkdir(parents=True)
    first.write(tmp_path / "run")
    with pytest.raises(TextspaceError, match="holds a run on other text: choose another folder"):
        job("other", train="b\n").write(tmp_path / "run")


def test_a_row_may_learn_from_another_corpus(tmp_path: Path) -> None:
    asked = Asked(rows=["vae-max-pool-from-yahoo", "vae-max-pool", "vae-max-pool-no-anneal"])
    for name, ending in {"yelp_long": "tsv", "yahoo20k": "txt"}.items():
        with pytest.raises(TextspaceError, match=f"there is no folder .*{name}, which yelp-pooling needs"):
            jobs_of(table("yelp-pooling"), tmp_path, asked)
        (tmp_path / name).mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / name / f"{split}.{ending}").write_text(f"5\ta word of {split}\n")
    jobs = jobs_of(table("yelp-pooling"), tmp_path, asked)
    own, other = jobs["vae-max-pool-seed0"], jobs["vae-max-pool-from-yahoo-seed0"]
    assert (own.source, own.scored_source, own.label) == (f"{tmp_path / 'yelp_long'}", own.source, 1)
    assert (other.source, other.scored_source, other.label) == (f"{tmp_path / 'yahoo20k'}", own.source, 1)
    assert other.recipe == own.recipe
    assert jobs["vae-max-pool-no-anneal-seed0"].measures == (*own.measures, "end_to_end_baselines")
    before = other.text
    (tmp_path / "yahoo20k" / "valid.txt").write_text("another\n")
    changed = jobs_of(table("yelp-pooling"), tmp_path, asked)
    assert changed["vae-max-pool-from-yahoo-seed0"].text != before
    assert changed["vae-max-pool-seed0"].text == own.text


def test_a_row_may_learn_from_several_corpora(tmp_path: Path) -> None:
    own, *others = (tmp_path / name for name in ("yahoo20k", "ptb", "yelp_long", "wikitext2"))
    for folder in (own, *others):
        folder.mkdir()
        for split in ("train", "valid", "test"):
            (folder / f"{split}.txt").write_text(f"a word of {split}\n")
    asked = Asked(rows=["smim-1024", "smim-1024-everything"])
    jobs = jobs_of(table("ranking"), tmp_path, asked)
    alone, everything = jobs["smim-1024-seed0"], jobs["smim-1024-everything-seed0"]
    assert everything.source == [str(own), *map(str, others)]
    assert everything.scored_source == alone.source == str(own)
    everything.write(tmp_path / "run")
    assert Job.read(tmp_path / "run") == everything
    (others[-1] / "train.txt").write_text("another\n")
    changed = jobs_of(table("ranking"), tmp_path, asked)
    assert changed["smim-1024-everything-seed0"].text != everything.text
    assert changed["smim-1024-seed0"].text == alone.text


def test_logs_with_gaps_and_half_a_line_are_collected(tmp_path: Path) -> None:
    """The mean code of a space that has collapsed has no Hoyer value; who is killed leaves half a line."""
    lines = [{"event": "validation", "epoch": e, "seconds": e, "kl": 2.0 * e} for e in (1, 2, 3)]
    lines[0] |= {"hoyer_means": 0.25}
    lines[2] |= {"elbo": math.inf}
    (tmp_path / "steps.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + '\n{"event": "st')
    found = collected(tmp_path)
    assert found["epoch"] == [1, 2, 3]
    assert found["by_epoch"] == {"elbo": [None, None, math.inf], "kl": [2, 4, 6], "hoyer_means": [0.25, None, None]}
    each = table("yahoo-pooling")
    run = {"row": each.drawn[0], "state": "done", **found}
    run["by_epoch"] |= {column.key: [1.0, None, "Infinity"] for column in each.by_epoch}  # as in a file
    assert draw_by_epoch(Reproduction(each, {"a": run}, {})) is not None


@pytest.mark.parametrize("reference", [None, "vae"])
def test_numbers_of_each_sentence_are_kept_where_gaps_are_compared(tmp_path: Path, reference: str | None) -> None:
    each, asked = replace(table("tiny"), reference=reference), Asked(rows=["vae"], seeds=1)
    (job,) = (jobs := jobs_of(each, None, asked)).values()
    training = job.recipe.training
    trained = {"digest": job.digest, "epochs": training.epochs, "epochs_at_most": training.epochs, "stopped": "done"}
    trained |= {"seconds": 1.0, "steps": 8, "encoder_updates": 8, "decoder_updates": 8, "parameters": 9}
    scored = {"steps_at_most": training.steps, "importance_samples": job.samples, "test": {"nll": [1.0, 0.1]}}
    scored |= {"by_sentence": {"nll": [1.0], "words": [3.0]}}
    measured = {"effort": job.effort, "measures": {name: {} for name in job.measures}}
    (tmp_path / "vae-seed0").mkdir()
    (tmp_path / "vae-seed0" / "numbers.json").write_text(json.dumps(trained | scored | measured))
    run = gathered(each, jobs, tmp_path, asked).runs["vae-seed0"]
    assert run["state"] == "done"
    assert ("by_sentence" in run) == (reference is not None)
    (tmp_path / "vae-seed0" / "numbers.json").write_text(json.dumps(trained | scored | measured | {"seconds": "long"}))
    with pytest.raises(TextspaceError, match=r"numbers.json is damaged \(seconds: .*\): remove it to begin anew"):
        gathered(each, jobs, tmp_path, asked)


def test_earlier_runs_with_other_settings_are_no_answer(tmp_path: Path) -> None:
    asked = Asked(rows=["vae"], seeds=1, changes=["latent.dim=16"])
    (job,) = jobs_of(table("tiny"), None, Asked(rows=["vae"], seeds=1)).values()
    facts = {"digest": job.digest, "epochs": 8, "epochs_at_most": 8, "steps_at_most": None, "importance_samples": 20}
    done = {"row": "vae", "seed": 0, "state": "done", "test": {"nll": [1.0, 0.1]}, "measures": {}, **facts}
    others = {"vae-seed0": done, "lstm-lm-seed0": done | {"row": "lstm-lm"}}
    known = Reproduction(table("tiny"), others, {"vae": 1, "lstm-lm": 1})
    found = gathered(table("tiny"), jobs_of(table("tiny"), None, asked), tmp_path, asked, known=known)
    assert [found.runs[name]["state"] for name in others] == ["missing", "done"]
    assert found.missing == {"vae-seed0": "not begun"}


@pytest.mark.parametrize("out", ["a.txt", "a.txt/b"])
def test_where_a_file_stands_nothing_is_run_and_nobody_is_told_to_remove_it(tmp_path: Path, out: str) -> None:
    (file := tmp_path / "a.txt").write_text("mine")
    told = f"^{file} is a file, where a folder is needed: choose another folder with --out$"
    with pytest.raises(TextspaceError, match=told):
        run(table("tiny"), None, tmp_path / out, Asked(rows=["vae"], seeds=1))
    with pytest.raises(TextspaceError, match=told):
        save(Reproduction(table("tiny"), {}, {"vae": 1}), tmp_path / out)
    assert file.read_text() == "mine"


def test_a_run_that_was_stopped_is_not_called_one_that_never_began(tmp_path: Path) -> None:
    asked = Asked(rows=["vae"])
    jobs = jobs_of(table("tiny"), None, asked)
    (tmp_path / "vae-seed0" / "checkpoints" / "step-00000001").mkdir(parents=True)
    found = gathered(table("tiny"), jobs, tmp_path, asked)
    assert found.missing == {"vae-seed0": "stopped: goes on with the same command", "vae-seed1": "not begun"}
