import pytest

from textspace.config import PLATEAU_PRESETS, Plateau, Training
from textspace.train.selection import Selection


def judged(training: Training, values: list[float]) -> tuple[Selection, list]:
    rules = Selection()
    return rules, [rules.judge(value, epoch, training) for epoch, value in enumerate(values, start=1)]


def test_the_papers_preset_decays_after_two_stalls_and_ends_at_the_fifth() -> None:
    training = Training(plateau=PLATEAU_PRESETS["paper"])
    rules, verdicts = judged(training, [5.0] + [6.0] * 10)
    assert [v.stop for v in verdicts[:10]] == [None] * 10
    assert verdicts[10].stop == "the learning rate was lowered 5 times"
    rules, _ = judged(training, [5.0, 6.0, 6.0, 6.0])
    assert rules.decays == 1
    assert rules.rate(training) == 0.5
    assert not any(v.reload_best for v in verdicts)


def test_the_public_codes_preset_waits_and_reloads() -> None:
    training = Training(plateau=PLATEAU_PRESETS["public-code"])
    _, verdicts = judged(training, [5.0] + [6.0] * 20)
    reloads = [epoch for epoch, verdict in enumerate(verdicts, start=1) if verdict.reload_best]
    assert reloads == [16, 21]  # its epochs are counted from 0, and none before its 15th


def test_the_public_codes_preset_counts_from_the_last_decay() -> None:
    """Epochs and decays as its loop has them: after a decay what it reached then is the mark, and not the best."""
    training = Training(plateau=PLATEAU_PRESETS["public-code"])
    falls = [6.0 - 0.01 * epoch for epoch in range(30)]  # never as low as the first
    rules, verdicts = judged(training, [5.0] + [6.0] * 15 + falls)
    assert rules.decays == 1
    assert not any(verdict.stop for verdict in verdicts)
    assert (rules.best, rules.since_best) == (5.0, 45)
    rules, verdicts = judged(training, [5.0] + [6.0] * 14 + [float("nan")] + falls)
    assert rules.decays == 2  # the first of which leaves the mark where it is
    assert rules.reference == pytest.approx(falls[-1])
    paper, _ = judged(Training(plateau=PLATEAU_PRESETS["paper"]), [5.0] + [6.0] * 3 + falls[:6])
    assert paper.decays == 4


def test_improvement_starts_the_count_anew() -> None:
    rules, verdicts = judged(Training(plateau=PLATEAU_PRESETS["paper"]), [5.0, 6.0, 4.0, 6.0, 3.0, 6.0])
    assert rules.decays == 0
    assert [v.improved for v in verdicts] == [True, False, True, False, True, False]
    assert rules.best == 3.0


def test_stalls_are_counted_over_the_run_and_anew_after_each_decay() -> None:
    """By hand: 6, 6 and 7 are no new best, though 4 and 3 lie between them; then 3, 9 and 5, though 2 lies there."""
    values = [5.0, 6.0, 4.0, 6.0, 3.0, 7.0, 3.0, 2.0, 9.0, 5.0, 1.0, 8.0]
    training = Training(plateau=Plateau(factor=0.25, patience=3, max_decays=3, counted="over_the_run"))
    rules, decays = Selection(), []
    for epoch, value in enumerate(values, start=1):
        rules.judge(value, epoch, training)
        decays.append(rules.decays)
    assert decays == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert rules.rate(training) == 0.25**2
    in_a_row, _ = judged(Training(plateau=Plateau(factor=0.25, patience=3, max_decays=3)), values)
    assert in_a_row.decays == 0


def test_the_ninth_decay_of_a_quarter_ends_a_run_that_begins_at_a_thousandth() -> None:
    training = Training(
        optimizer={"lr": 1e-3}, plateau={"factor": 0.25, "patience": 3, "max_decays": 9, "counted": "over_the_run"}
    )
    rules, verdicts = judged(training, [5.0, *[6.0] * 27])
    assert [verdict.stop for verdict in verdicts[:-1]] == [None] * 27
    assert verdicts[-1].stop == "the learning rate was lowered 9 times"
    assert 1e-3 * rules.rate(training) < 1e-8


def test_a_criterion_that_is_not_a_number_is_no_improvement() -> None:
    rules, verdicts = judged(Training(), [float("nan"), 2.0, float("nan")])
    assert [v.improved for v in verdicts] == [False, True, False]
    assert rules.best == 2.0
