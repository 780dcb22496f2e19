"""`tg.history`: earlier states of rows, bounded by the time of who asks, kept as long as needed and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine import core
from tidegate.foundation.jit import uncompiled
from tidegate.testing import PlainProgram, remembering


@tg.table(key="id")
class Sensor:
    id: int
    value: int = 0
    level: float = 0.0
    label: str = "new"


@tg.transaction(time="ts")
def report(sensor: Sensor, ts: int, value: int) -> int:
    """Take a value, unless it is far above what the sensor said in the last 20 units."""
    total, count = 0, 0
    for old in tg.history(sensor, last=20):
        total += old.value
        count += 1
    tg.require(count == 0 or value <= 3 * total // count + 5, "far off")
    sensor.value = value
    sensor.level = value / 2
    if value % 3 == 0:
        sensor.label = "third"
    return count


@tg.transaction(time="ts")
def forget(sensor: Sensor, ts: int) -> None:
    tg.require(sensor.exists, "not there")  # type: ignore[attr-defined]
    tg.delete(sensor)


@tg.transaction(time="ts")
def ask(sensor: Sensor, ts: int) -> int:
    """Everything about the last 50 units in one number."""
    answer = 0
    for old in tg.history(sensor, last=50):
        answer = answer * 7 + old.value + old.time + int(old.level)
        if not old.exists:
            answer += 1
        if old.label == "third":
            answer += 2
        answer = answer % 1_000_003
    return answer + 10_000_000 * len(tg.history(sensor, last=50)) + sum(o.value for o in tg.history(sensor, last=5))


PROGRAM = [report, forget, ask]


def events(count: int, seed: int, late: bool) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(0, 4, count))
    if late:
        times = times - rng.integers(0, 60, count) * (rng.random(count) < 0.3)
    return pa.table(
        {
            "transaction": rng.choice(["report", "forget", "ask"], count, p=[0.6, 0.1, 0.3]),
            "sensor": rng.integers(0, 5, count),
            "ts": times,
            "value": rng.integers(0, 30, count),
        }
    )


def outcomes(table: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["committed"], row["reason"], row["result"]) for row in table.to_pylist()]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_plain_functions_that_remember_everything(seed: int, late: bool) -> None:
    table = events(600, seed, late)
    plain = PlainProgram(PROGRAM)
    wanted = [(o.committed, o.reason, o.result) for o in plain.run(table)]
    with tg.Engine(PROGRAM) as engine:
        found = []
        for start in range(0, 600, 150):
            found += outcomes(engine.run(table.slice(start, 150)))
        assert found == wanted
        assert engine.scan(Sensor).to_pylist() == plain.rows(Sensor)
        event = {"transaction": "ask", "sensor": 1, "ts": int(table["ts"][-1].as_py()), "value": 0}
        assert engine.execute(ask, sensor=1, ts=event["ts"]) == plain.execute(event)
    assert len({reason for _, reason, _ in wanted}) == 3


def test_plain_python_in_the_middle_is_the_same() -> None:
    @tg.transaction(time="ts", compiled=False)
    def report_plainly(sensor: Sensor, ts: int, value: int) -> int:
        return report(sensor, ts, value)  # type: ignore[no-any-return]

    table = events(300, 9, True)
    renamed = pa.array([t.replace("report", "report_plainly") for t in table["transaction"].to_pylist()])
    with uncompiled(), tg.Engine(PROGRAM) as engine, tg.Engine([report_plainly, forget, ask]) as other:
        assert outcomes(engine.run(table)) == outcomes(other.run(table.set_column(0, "transaction", renamed)))
        assert other.last_batch is not None and other.last_batch.interpreted > 0


def test_states_are_kept_no_longer_than_needed() -> None:
    with uncompiled(), tg.Engine(PROGRAM) as engine:
        count = 3_000
        engine.run(
            pa.table(
                {
                    "transaction": ["report"] * count,
                    "sensor": np.arange(count) % 7,
                    "ts": np.arange(count),
                    "value": np.arange(count) % 3,
                }
            )
        )
        flows = engine._core.flows
        assert flows is not None
        history = flows.histories["Sensor"]
        assert history.state[1] - history.state[0] == 50 and len(history.time) == 64


def test_states_survive(tmp_path: Path) -> None:
    table = events(400, 3, True)
    with uncompiled():
        whole = tg.Engine(PROGRAM)
        wanted = outcomes(whole.run(table))
        found = []
        for start in range(0, 400, 80):
            with tg.Engine(PROGRAM, directory=str(tmp_path / "state")) as engine:
                found += outcomes(engine.run(table.slice(start, 80)))
        assert found == wanted


class TestRefusals:
    def test_who_asks_must_say_when(self) -> None:
        with pytest.raises(tg.DefinitionError, match="time"):

            @tg.transaction
            def timeless(sensor: Sensor) -> int:
                return len(tg.history(sensor, last=3))

    def test_who_writes_must_say_when(self) -> None:
        @tg.transaction
        def overwrite(sensor: Sensor, value: int) -> None:
            sensor.value = value

        with pytest.raises(tg.DefinitionError, match=r"overwrite.*Sensor.*time"):
            tg.Engine([*PROGRAM, overwrite])

    def test_the_time_is_an_int_parameter(self) -> None:
        with pytest.raises(tg.DefinitionError, match="time='when'"):

            @tg.transaction(time="when")
            def wrong(sensor: Sensor) -> None:
                sensor.value = 1

    def test_last_is_a_positive_constant(self) -> None:
        with pytest.raises(tg.DefinitionError, match="last is a positive constant"):

            @tg.transaction(time="ts")
            def wrong(sensor: Sensor, ts: int) -> int:
                return len(tg.history(sensor, last=ts))

    def test_history_outside_of_a_transaction_is_refused(self) -> None:
        with pytest.raises(LookupError, match=r"testing\.rows"):
            tg.history(Sensor(1), last=3)
        with remembering(lambda row, last: [row, last]):
            assert tg.history(Sensor(1), last=3) == [Sensor(1), 3]


@tg.table(key="name")
class Device:
    name: str
    state: str = "off"


@tg.transaction(time="ts")
def switch(device: Device, ts: int, state: str) -> None:
    device.state = state


@tg.transaction(time="ts")
def scrap(device: Device, ts: int) -> None:
    tg.delete(device)


@tg.transaction(time="ts")
def was(device: Device, ts: int, state: str) -> int:
    """How often it was in a state in the last 100 units, and 1000 for each time that it was gone."""
    found = 0
    for old in tg.history(device, last=100):
        if old.exists and old.state == state:
            found += 1
        if not old.exists:
            found += 1000
    return found


class TestStrings:
    """Strings that only earlier states hold, or the keys of rows that are gone, outlive a collection."""

    def test_states_keep_their_strings_when_others_are_collected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
        with uncompiled(), tg.Engine([switch, scrap, was]) as engine:
            engine.execute(switch, device="pump", ts=1, state="on")
            engine.execute(switch, device="pump", ts=2, state="idle")
            engine.execute(switch, device="valve", ts=3, state="on")
            for number in range(50):
                assert engine.execute(was, device="pump", ts=4, state=f"never {number}").result == 0
            assert engine.execute(was, device="pump", ts=4, state="on").result == 1
            assert engine.execute(was, device="pump", ts=4, state="idle").result == 1
            assert len(engine._core.strings) < 12

    def test_a_row_that_is_gone_keeps_its_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
        with uncompiled(), tg.Engine([switch, scrap, was]) as engine:
            names = ["was", "switch", "switch", "scrap"]  # the first device's string is dropped: the others' move up
            devices, states = ["first", "pump", "valve", "pump"], ["x", "on", "idle", ""]
            engine.run(pa.table({"transaction": names, "device": devices, "ts": [0, 1, 1, 2], "state": states}))
            for ts in range(3, 6):
                assert engine.execute(was, device="pump", ts=ts, state="on").result == 1001
                assert engine.execute(was, device="valve", ts=ts, state="idle").result == 1
            engine.execute(switch, device="pump", ts=6, state="idle")
            assert engine.execute(was, device="pump", ts=7, state="idle").result == 1001
            assert [row["name"] for row in engine.scan(Device).to_pylist()] == ["pump", "valve"]

    def test_strings_are_collected_in_programs_that_remember(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(core, "STRINGS_KEPT", 16)
        with uncompiled(), tg.Engine([switch, scrap, was]) as engine:
            for number in range(400):
                engine.execute(switch, device="pump", ts=number, state=f"state {number}")
            assert len(engine._core.strings) < 2 * 101 + 2 * 16 + 10
