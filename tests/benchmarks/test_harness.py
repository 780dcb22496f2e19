"""Variants take turns, only verified runs count, and records say where a number came from."""

from __future__ import annotations

import gc
import io
import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tidegate.benchmarks import harness
from tidegate.benchmarks.harness import Experiment, Variant, measure


class SettableClock:
    """A clock that moves only when a run says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_experiment(clock: SettableClock, seconds: dict[str, list[float]], **settings: object) -> Experiment:
    """Variants that take the given seconds, round after round; the first value is the warm-up."""

    def variant(name: str, taken: Iterator[float]) -> Variant:
        def run(prepared: object) -> None:
            clock.now += next(taken)

        return Variant(name, run=run)

    variants = [variant(name, iter(taken)) for name, taken in seconds.items()]
    rounds = len(next(iter(seconds.values()))) - 1
    return Experiment("test", "A test", 100, "event", variants, rounds=rounds, **settings)  # type: ignore[arg-type]


def test_the_ratio_is_that_of_the_medians_and_the_first_round_does_not_count() -> None:
    clock = SettableClock()
    seconds = {"reference": [99.0, 1.0, 3.0, 2.0], "candidate": [50.0, 4.0, 4.0, 5.0]}
    report = measure(make_experiment(clock, seconds), clock=clock)
    candidate = report["candidate"]
    assert candidate.seconds == (4.0, 4.0, 5.0)
    assert candidate.ratio == pytest.approx(2.0 / 4.0)
    assert (candidate.ratio_min, candidate.ratio_max) == (pytest.approx(0.25), pytest.approx(0.75))
    assert report["reference"].ratio == 1.0


def test_variants_take_turns_and_none_always_goes_first() -> None:
    order: list[str] = []
    variants = [Variant(name, run=lambda _, name=name: order.append(name)) for name in "abc"]
    measure(Experiment("test", "A test", 1, "event", variants, rounds=3))
    rounds = ["".join(order[start : start + 3]) for start in range(0, len(order), 3)]
    assert rounds == ["abc", "bca", "cab", "abc"]


def test_preparing_and_verifying_are_outside_the_clock() -> None:
    clock = SettableClock()

    def spend(seconds: float) -> str:
        clock.now += seconds
        return "prepared"

    def spend_and_forget(seconds: float) -> None:
        spend(seconds)

    variant = Variant(
        "only",
        prepare=lambda: spend(100.0),
        run=lambda prepared: spend(1.0),
        verify=lambda prepared, result: spend_and_forget(100.0),
    )
    report = measure(Experiment("test", "A test", 1, "event", [variant], rounds=1), clock=clock)
    assert report["only"].seconds == (1.0,)


def test_a_run_that_does_not_verify_has_no_number() -> None:
    def refuse(prepared: object, result: object) -> None:
        raise AssertionError("wrong result")

    variant = Variant("wrong", run=lambda _: None, verify=refuse)
    with pytest.raises(AssertionError, match="wrong result"):
        measure(Experiment("test", "A test", 1, "event", [variant], rounds=1))


def test_what_prepare_made_reaches_run_and_verify() -> None:
    seen: list[tuple[str, str]] = []
    variant = Variant(
        "only",
        prepare=lambda: "made",
        run=lambda prepared: prepared + " and run",
        verify=lambda prepared, result: seen.append((prepared, result)),
    )
    measure(Experiment("test", "A test", 1, "event", [variant], rounds=1))
    assert seen == [("made", "made and run")] * 2


def test_a_variant_may_tell_its_own_seconds() -> None:
    variant = Variant("query", run=lambda _: {"batches": [0.25, 0.5]}, seconds=lambda run: sum(run["batches"]))
    report = measure(Experiment("test", "A test", 1, "event", [variant], rounds=2))
    assert report["query"].seconds == (0.75, 0.75)


def test_a_bar_is_passed_or_missed_and_a_variant_without_one_is_neither() -> None:
    clock = SettableClock()
    seconds = {"reference": [1.0, 1.0], "fast": [1.0, 1.0], "slow": [4.0, 4.0]}
    report = measure(make_experiment(clock, seconds, bars={"fast": 0.5, "slow": 0.5}), clock=clock)
    assert [each.passed for each in report.comparisons] == [None, True, False]
    assert not report.passed


def test_two_variants_of_one_name_are_refused() -> None:
    variants = [Variant("same", run=lambda _: None)] * 2
    with pytest.raises(ValueError, match="same name"):
        measure(Experiment("test", "A test", 1, "event", variants))


def test_records_are_json_lines_that_say_where_a_number_came_from(tmp_path: Path) -> None:
    clock = SettableClock()
    seconds = {"reference": [1.0, 1.0], "candidate": [2.0, 2.0]}
    declared = make_experiment(clock, seconds, bars={"candidate": 0.4}, settings={"keys": 7}, seed=3)
    report = measure(declared, clock=clock)
    file = tmp_path / "results" / "test.jsonl"
    for _ in range(2):
        harness.append(file, harness.records(report))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["variant"] for line in lines] == ["reference", "candidate"] * 2
    candidate = lines[1]
    assert candidate["ratio"] == 0.5 and candidate["passed"] is True and candidate["seconds"] == [2.0]
    assert candidate["settings"] == {"keys": 7, "items": 100, "rounds": 1} and candidate["seed"] == 3
    assert candidate["machine"]["cores"] and candidate["versions"]["python"]
    assert {"commit", "measured_at", "bar", "reference"} <= candidate.keys()


def test_the_table_shows_every_variant_with_its_ratio_and_bar() -> None:
    clock = SettableClock()
    seconds = {"reference": [1.0, 1.0], "candidate": [2.0, 2.0]}
    report = measure(make_experiment(clock, seconds, bars={"candidate": 0.75}), clock=clock)
    text = io.StringIO()
    Console(width=120, file=text).print(harness.render(report))
    assert all(shown in text.getvalue() for shown in ("≥ 0.75 ✗", "0.50", "20 ms"))


@pytest.mark.parametrize(("seconds", "text"), [(4.5e-8, "45 ns"), (1.2e-3, "1.2 ms"), (2.5e-6, "2.5 µs"), (3.0, "3 s")])
def test_durations_are_given_in_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert harness.duration(seconds) == text


class TestSecondsMax:
    def test_no_round_begins_after_the_time_is_spent(self) -> None:
        clock = SettableClock()
        seconds = {"reference": [1.0] * 6, "candidate": [1.0] * 6}
        report = measure(make_experiment(clock, seconds), clock=clock, seconds_max=5.0)
        assert len(report["candidate"].seconds) == 2  # rounds 0, 1 and 2 took 6 s; 4 s were spent when 2 began
        assert report.experiment.rounds == 2
        assert all(record["settings"]["rounds"] == 2 for record in harness.records(report))

    def test_one_round_counts_however_little_time_there_is(self) -> None:
        clock = SettableClock()
        report = measure(make_experiment(clock, {"only": [9.0] * 4}), clock=clock, seconds_max=0.0)
        assert report["only"].seconds == (9.0,)


def test_a_note_is_taken_after_the_last_run_and_goes_into_the_record() -> None:
    runs: list[None] = []
    noted = Variant("noted", run=runs.append, note=lambda: f"run {len(runs)}")
    report = measure(Experiment("test", "A test", 1, "event", [noted, Variant("silent", run=lambda _: None)], rounds=2))
    first, second = harness.records(report)
    assert first["note"] == "run 3" and "note" not in second


def test_a_report_keeps_the_names_of_variants_and_nothing_that_they_hold() -> None:
    class Engine:
        """Something large."""

    engine = Engine()
    gone = weakref.ref(engine)
    variant = Variant("only", prepare=lambda engine=engine: engine, run=lambda engine: None)
    report = measure(Experiment("test", "A test", 1, "event", [variant], rounds=1))
    del engine, variant
    gc.collect()
    assert gone() is None
    assert harness.records(report)[0]["reference"] == "only"
    with pytest.raises(AssertionError, match="'only' was measured"):
        report.experiment.variants[0].run(None)
