"""One run: trained, scored and measured; only what is missing is done again."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from helpers import small

from textspace.data.corpus import open_corpus
from textspace.data.preparing import prepare
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.recipes import RECIPES
from textspace.reproduce import worker
from textspace.reproduce.job import Job, alone, read_json
from textspace.reproduce.run import collected
from textspace.space import Space


@pytest.fixture
def job() -> Job:
    return Job(small(RECIPES["vae"]).but({"training.epochs": 1}), "builtin:100", samples=3, device="cpu")


def done(job: Job, folder: Path) -> dict:
    job.write(folder)
    return worker.work(folder)


def test_numbers_are_those_of_the_test_split(job: Job, tmp_path: Path) -> None:
    numbers = done(job, tmp_path)
    assert json.loads((tmp_path / "numbers.json").read_text())["test"] == numbers["test"]
    space = Space.load(tmp_path, "cpu")
    test = prepare(open_corpus("builtin:100"), space.recipe, tokenizer=space.tokenizer).encoded.splits["test"]
    expected = likelihood(space.model, test, samples=3).estimates()["nll"]
    assert numbers["test"]["nll"] == [pytest.approx(expected.value), pytest.approx(expected.stderr)]
    assert numbers["test_sentences"] == len(test)
    kept = numbers["by_sentence"]
    for name in ("nll", "elbo", "reconstruction"):
        assert sum(kept[name]) / len(test) == pytest.approx(numbers["test"][name][0], abs=0.005)
    perplexity = math.exp(sum(kept["nll"]) / sum(kept["words"]))
    assert perplexity == pytest.approx(numbers["test"]["nll_ppl_word"][0], rel=0.001)
    assert len(numbers["copies"]) == 3
    assert numbers["machine"]["gpu"] is None


def test_the_file_of_numbers_has_the_course_of_training_too(job: Job, tmp_path: Path) -> None:
    """So that it is all that need be taken along from a machine that is given back."""
    done(job, tmp_path)
    (tmp_path / "steps.jsonl").unlink()
    kept = collected(tmp_path)
    assert kept["epoch"] == [1]
    assert kept["by_epoch"]["elbo"] == [pytest.approx(kept["best"], abs=1e-4)]


def test_only_what_is_missing_is_done_again(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(job, tmp_path)
    first = read_json(tmp_path / "numbers.json")
    called = []
    for name in ("_trained", "_scored", "_measured"):
        real = getattr(worker, name)
        monkeypatch.setattr(worker, name, lambda *a, real=real, name=name: (called.append(name), real(*a))[1])
    assert done(job, tmp_path) == first
    assert called == []
    more = done(replace(job, measures=("reconstruction",), effort={"decoded": 10}), tmp_path)
    assert called == ["_measured"]
    assert more["test"] == first["test"]
    assert "bleu1_greedy_mean" in more["measures"]["reconstruction"]
    assert more["by_sentence"] == first["by_sentence"]
    called.clear()
    assert done(replace(job, samples=5), tmp_path)["importance_samples"] == 5
    assert called == ["_scored"]
    called.clear()
    longer = done(replace(job, recipe=job.recipe.but({"training.epochs": 2})), tmp_path)
    assert called == ["_trained", "_scored"]
    assert (longer["epochs"], longer["steps"]) == (2, 2 * first["steps"])


def test_what_measures_find_of_each_sentence_is_kept_where_lengths_scatter_it(job: Job, tmp_path: Path) -> None:
    numbers = done(replace(job, measures=("word_swaps", "shuffled_input")), tmp_path)
    kept = numbers["by_sentence"]
    for measure, names in {"word_swaps": ["swaps_1", "swaps_4"], "shuffled_input": ["nll_shuffled"]}.items():
        for name in names:
            values = kept[f"{measure}.{name}"]
            assert len(values) == len(kept["words"])
            assert sum(values) / len(values) == pytest.approx(numbers["measures"][measure][name][0], abs=0.006)
    assert "shuffled_input.shuffling_costs" not in kept


def test_a_run_is_scored_on_another_text_than_it_learnt_from(job: Job, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    lines = [f"{'good' if number % 2 else 'bad'}\tthe xylophone is {number} .\n" for number in range(40)]
    for split in ("train", "valid", "test"):
        (tmp_path / "text" / f"{split}.tsv").write_text("".join(lines))
    other = replace(job, scored_on=str(tmp_path / "text"), label=1, measures=("mlp_probe",), effort={"repeats": 1})
    numbers = done(other, tmp_path / "run")
    assert numbers["steps"] == done(job, tmp_path / "own")["steps"]
    assert numbers["test_sentences"] == 40
    assert numbers["copies"][0][0] == "the xylophone is 0 ."
    assert numbers["measures"]["mlp_probe"]["unknown_share"][0] >= 40  # two of five words
    assert numbers["measures"]["mlp_probe"]["majority"][0] == 50


def test_a_run_says_that_it_is_scored_on_training_sentences(job: Job, tmp_path: Path, capsys) -> None:
    learnt = [record.text for record in open_corpus("builtin:100").splits["train"]]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "test.txt").write_text("\n".join([*learnt[:3], "a new sentence"]))
    done(replace(job, scored_on=str(tmp_path / "text")), tmp_path / "run")
    assert "test: 3 of 4 different test sentences are in the text the space was trained on" in capsys.readouterr().out


def test_text_without_a_test_split_is_refused(job: Job, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "text" / f"{name}.txt").write_text("anna sees cats\n" * 40)
    with pytest.raises(TextspaceError, match="has no test sentences to score"):
        done(replace(job, source=str(tmp_path / "text")), tmp_path / "run")


def test_a_folder_in_use_is_left_alone(job: Job, tmp_path: Path, monkeypatch, capsys) -> None:
    job.write(tmp_path)
    monkeypatch.setattr("sys.argv", ["worker", str(tmp_path)])
    monkeypatch.setattr(worker, "_end_with_the_parent", lambda: None)
    with FileLock(tmp_path / ".lock"), pytest.raises(SystemExit) as ended:
        worker.main()
    assert ended.value.code == 2
    assert "another process works in" in capsys.readouterr().out


def test_what_goes_wrong_with_the_work_is_no_fault_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), alone(tmp_path / "run"):
        raise ConnectionResetError
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TextspaceError, match="cannot lock the folder"), alone(tmp_path / "file"):
        pass


def test_a_job_is_not_changed_under_who_works_at_it(job: Job, tmp_path: Path) -> None:
    job.write(tmp_path)
    before = (tmp_path / "job.json").read_bytes()
    other = replace(job, recipe=job.recipe.but({"latent.dim": 7}))
    with FileLock(tmp_path / ".lock"), pytest.raises(TextspaceError, match=r"another process works in .*: wait for it"):
        other.write(tmp_path)
    assert (tmp_path / "job.json").read_bytes() == before
    other.write(tmp_path)
    assert (tmp_path / "job.json").read_bytes() != before
