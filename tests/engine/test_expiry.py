"""Rows with a time to live: what an event sees, what is left after a batch, and what it costs.

The truth of it for random programs is in `truth/test_random_expiry.py`; here the rules by name.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.durability.reshaping import Reshaping
from tidegate.durability.rollback import roll_back
from tidegate.durability.versions import VersionStore
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import open_storage
from tidegate.testing.plain import PlainProgram

from ..strategies import COMBINATIONS


@tg.table(key="id", ttl=10, by="seen")
class Session:
    id: int
    seen: int = 0
    hits: int = 0
    name: str = "nobody"


@tg.table(key="id")
class Total:
    id: int
    count: int = 0


class Seen(NamedTuple):
    exists: bool
    hits: int
    name: str


@tg.transaction(time="ts")
def visit(session: Session, ts: int) -> int:
    session.seen = ts
    session.hits += 1
    return session.hits


@tg.transaction(time="ts")
def look(session: Session, ts: int) -> Seen:
    return Seen(session.exists, session.hits, session.name)


@tg.transaction(time="ts")
def rename(session: Session, ts: int) -> int:
    session.name = "somebody"
    return session.hits


@tg.transaction(time="ts")
def refuse(session: Session, ts: int) -> int:
    session.hits = 100
    tg.abort("no")


@tg.transaction
def peek(session: Session) -> int:
    return session.hits


@tg.transaction(time="ts")
def add_up(sessions: list[Session], total: Total, ts: int) -> int:
    for session in sessions:
        total.count += session.hits
    return total.count


ALL = [visit, look, rename, refuse, add_up]


def events(*rows: tuple[Any, ...]) -> pa.Table:
    names, sessions, times = zip(*rows, strict=True)
    lists = [list(s) if isinstance(s, tuple) else [] for s in sessions]
    keys = [None if isinstance(s, tuple) else s for s in sessions]
    columns = {"transaction": names, "session": keys, "sessions": lists, "ts": times, "total": [1] * len(rows)}
    types = {"session": pa.int64(), "sessions": pa.list_(pa.int64()), "ts": pa.int64()}
    return pa.table({name: pa.array(found, types.get(name)) for name, found in columns.items()})


def results(engine: tg.Engine, *rows: tuple[Any, ...]) -> list[Any]:
    outcomes = engine.run(events(*rows)).to_pylist()
    plain = [{k: v for k, v in o["result"].items() if v is not None} if o["result"] else o["reason"] for o in outcomes]
    return [next(iter(found.values())) if isinstance(found, dict) else found for found in plain]


@pytest.fixture(autouse=True)
def _uncompiled(request: pytest.FixtureRequest) -> Any:
    compiled = "compiled" in request.fixturenames and request.getfixturevalue("compiled")
    with contextlib.nullcontext() if compiled else uncompiled():
        yield


def test_a_row_is_absent_once_an_event_is_more_than_the_ttl_past_it() -> None:
    engine = tg.Engine(ALL)
    there, gone = {"exists": True, "hits": 1, "name": "nobody"}, {"exists": False, "hits": 0, "name": "nobody"}
    assert results(engine, ("visit", 1, 5), ("look", 1, 15), ("look", 1, 16)) == [1, there, gone]
    assert engine.scan(Session).num_rows == 0 and engine.read(Session, 1) is None


def test_assigning_to_an_expired_row_makes_a_new_one_from_the_defaults() -> None:
    engine = tg.Engine(ALL)
    assert results(engine, ("visit", 1, 5), ("rename", 1, 6), ("visit", 1, 20)) == [1, 1, 1]
    assert engine.read(Session, 1) == {"id": 1, "seen": 20, "hits": 1, "name": "nobody"}


def test_a_row_that_is_written_with_an_old_time_is_there_for_its_own_event_only() -> None:
    engine = tg.Engine(ALL)
    assert results(engine, ("visit", 1, 50), ("rename", 2, 50), ("look", 2, 50))[2]["exists"] is False
    assert engine.scan(Session)["id"].to_pylist() == [1]


def test_a_row_whose_time_lies_ahead_stays() -> None:
    engine = tg.Engine(ALL)
    engine.load(Session, pa.table({"id": [1, 2], "seen": [10**6, 0]}))
    assert results(engine, ("visit", 3, 900)) == [1]
    assert engine.scan(Session)["id"].to_pylist() == [1, 3]


def test_the_clock_does_not_go_back_for_a_late_event() -> None:
    engine = tg.Engine(ALL)
    assert results(engine, ("visit", 1, 5), ("visit", 2, 30), ("look", 1, 6))[2]["exists"] is False
    assert results(engine, ("visit", 1, 7), ("look", 1, 7))[1]["exists"] is False  # its time is long past already
    assert engine.scan(Session)["id"].to_pylist() == [2]


def test_an_abort_advances_the_clock_and_a_refused_event_does_not() -> None:
    engine = tg.Engine(ALL)
    assert results(engine, ("visit", 1, 5), ("refuse", 1, 15), ("nothing", 1, 99), ("visit", None, 99)) == [
        1,
        "no",
        "unknown transaction 'nothing'",
        "null key in column 'session'",
    ]
    assert engine.read(Session, 1) == {"id": 1, "seen": 5, "hits": 1, "name": "nobody"}
    assert results(engine, ("visit", None, 99), ("look", 1, None))[1] == "null in column 'ts'"
    assert engine.read(Session, 1) is not None
    assert results(engine, ("refuse", 7, 16)) == ["no"]
    assert engine.read(Session, 1) is None


def test_rows_of_a_list_expire_one_by_one() -> None:
    engine = tg.Engine(ALL)
    rows = [("visit", 1, 1), ("visit", 2, 9), ("visit", 2, 9), ("add_up", (1, 2, 2, 3), 15)]
    assert results(engine, *rows) == [1, 1, 2, 4]


@pytest.mark.parametrize(("strategy", "workers"), COMBINATIONS)
def test_all_strategies_agree(strategy: Any, workers: int) -> None:
    rows = [(name, 1 + n % 3, n * 4 % 90) for n, name in enumerate(["visit", "look", "refuse", "visit", "rename"] * 30)]
    rows += [("add_up", (1, 2, 3, 3), ts) for ts in range(80, 100, 3)]
    expected, engine = tg.Engine(ALL, strategy="serial"), tg.Engine(ALL, strategy=strategy, workers=workers)
    assert results(engine, *rows) == results(expected, *rows)
    for table in (Session, Total):
        assert engine.scan(table).equals(expected.scan(table))


# --- the time of an event ------------------------------------------------------------------------------------------


def test_without_a_declared_time_order_by_is_the_time() -> None:
    engine = tg.Engine([peek])
    engine.load(Session, pa.table({"id": [1, 2], "seen": [5, 20], "hits": [3, 4]}))
    batch = pa.table({"session": [2, 1, 1], "at": [16, 15, 16]})
    assert engine.run(batch, order_by="at")["result"].to_pylist() == [4, 3, 0]
    assert engine.scan(Session)["id"].to_pylist() == [2]


def test_a_run_whose_events_would_have_no_time_is_refused() -> None:
    engine = tg.Engine([visit, peek])
    batch = pa.table({"transaction": ["visit"], "session": [1], "ts": [3], "at": ["3"], "real": [3.0]})
    with pytest.raises(
        tg.InputError, match=r"rows of Session expire by 'seen' \(int\), and transaction 'peek' declares"
    ):
        engine.run(batch)
    for column in ("at", "real"):
        with pytest.raises(tg.InputError, match=f"order_by='{column}', a column of type .*, which is no time"):
            engine.run(batch, order_by=column)
    assert engine.run(batch, order_by="ts")["committed"].to_pylist() == [True]


def test_the_order_is_no_time_where_transactions_declare_theirs() -> None:
    engine = tg.Engine([visit, look])
    batch = pa.table({"transaction": ["visit", "look"], "session": [1, 1], "ts": [5, 6], "place": [1, 10**9]})
    assert engine.run(batch, order_by="place")["result"].to_pylist()[1]["look"]["exists"] is True


def test_executing_a_transaction_without_a_time_leaves_the_clock_as_it_is() -> None:
    engine = tg.Engine([visit, peek])
    assert engine.execute(visit, session=1, ts=5).result == 1
    assert engine.execute(peek, session=1).result == 1
    assert engine.execute(visit, session=2, ts=16).result == 1
    assert engine.execute(peek, session=1).result == 0
    assert engine.scan(Session)["id"].to_pylist() == [2]


def test_a_single_call_that_only_reads_an_expired_row_leaves_nothing_of_it() -> None:
    engine = tg.Engine([visit, look])
    engine.execute(visit, session=1, ts=5)
    assert engine.execute(look, session=1, ts=16).result == {"exists": False, "hits": 0, "name": "nobody"}
    assert engine.read(Session, 1) is None
    assert engine._core.tables["Session"].count == 0


def test_float_times() -> None:
    @tg.table(key="id", ttl=1, by="at")
    class Reading:
        id: int
        at: float = float("nan")

    @tg.transaction
    def note(reading: Reading, at: float) -> bool:
        there = reading.exists
        if at > 0:
            reading.at = at
        return there

    engine = tg.Engine([note])
    batch = pa.table({"reading": [1, 1, 1, 2], "at": [0.25, 0.0, 0.0, 2.0], "ts": [0.25, 1.25, 1.26, 3.0]})
    assert engine.run(batch, order_by="ts")["result"].to_pylist() == [False, True, False, False]
    engine.load(Reading, pa.table({"id": [7]}))
    assert engine.scan(Reading)["id"].to_pylist() == [2, 7], "NaN does not expire"
    whole = pa.table({"reading": [2], "at": [0.0], "ts": [4]})
    assert engine.run(whole, order_by="ts")["result"].to_pylist() == [False]


@pytest.mark.parametrize("ttl", [timedelta(minutes=10), 600, 600.0])
@pytest.mark.parametrize("zone", [None, UTC])
@pytest.mark.parametrize("declares", [False, True])
def test_rows_may_expire_by_a_datetime(ttl: Any, zone: Any, declares: bool, tmp_path: Any) -> None:
    moment: Any = datetime if zone is None else Annotated[datetime, UTC]

    @tg.table(key="id", ttl=ttl, by="at")
    class Lease:
        id: int
        at: moment = datetime(1970, 1, 1, tzinfo=zone)
        count: int = 0

    @tg.transaction(time="ts" if declares else "")
    def renew(lease: Lease, ts: moment) -> int:
        lease.at = ts
        lease.count += 1
        return lease.count

    start = datetime(2026, 3, 4, 5, 6, 7, 8, zone)
    times = [start, start + timedelta(minutes=10), start + timedelta(minutes=20, microseconds=1)]
    unit = pa.timestamp("us", "UTC" if zone else None)
    order_by = None if declares else "ts"
    plain = PlainProgram([renew])
    for begin in range(3):  # a restart between any two
        batch = pa.table({"lease": [1, 2], "ts": pa.array([times[begin], times[begin] - timedelta(minutes=11)], unit)})
        with tg.Engine([renew], directory=tmp_path) as engine:
            got = engine.run(batch, order_by=order_by)["result"].to_pylist()
            assert got == [outcome.result for outcome in plain.run(batch, order_by)]
            assert engine.scan(Lease).to_pylist() == plain.rows(Lease)
            assert [row["id"] for row in engine.scan(Lease).to_pylist()] == [1]
    assert got[0] == 1, "a microsecond too late"
    with tg.Engine([renew], directory=tmp_path) as engine:
        if not declares:
            for column in (pa.array([1]), pa.array([start], pa.timestamp("us", None if zone else "UTC"))):
                with pytest.raises(tg.InputError, match="which is no time of that kind"):
                    engine.run(pa.table({"lease": [1], "ts": pa.array(times[:1], unit), "no": column}), order_by="no")
            nanoseconds = pa.array([times[2]], pa.timestamp("ns", unit.tz))
            again = pa.table({"lease": [1], "ts": pa.array(times[2:], unit), "at": nanoseconds})
            assert engine.run(again, order_by="at")["result"].to_pylist() == [2]


def test_rows_may_expire_by_a_part_of_their_key_and_near_the_ends_of_64_bits() -> None:
    @tg.table(key=("hour", "page"), ttl=2**62, by="hour")
    class Hour:
        hour: int
        page: str
        count: int = 0

    @tg.transaction
    def count(hour: Hour) -> int:
        hour.count += 1
        return hour.count

    engine = tg.Engine([count])
    low, high = -(2**63), 2**63 - 1
    keys = [{"hour": hour, "page": "a"} for hour in (low, low, high, low, 2**62)]
    batch = pa.table({"hour": keys, "ts": [low, low, high, high, high]})
    assert engine.run(batch, order_by="ts")["result"].to_pylist() == [1, 2, 1, 1, 1]
    assert engine.scan(Hour)["hour"].to_pylist() == [2**62, high]


# --- declarations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ttl": 3}, "table Bad: by is missing"),
        ({"by": "at"}, "table Bad: ttl is missing"),
        ({"ttl": 3, "by": "nowhere"}, "by='nowhere' is not a field"),
        ({"ttl": 3, "by": "name"}, "by='name' is a field of type str"),
        ({"ttl": 0, "by": "at"}, "ttl=0 is no time to live"),
        ({"ttl": True, "by": "at"}, "ttl=True is no time to live"),
        ({"ttl": 1.5, "by": "at"}, "required: a positive whole number"),
        ({"ttl": "1h", "by": "real"}, "required: a positive number"),
        ({"ttl": float("nan"), "by": "real"}, "ttl=nan is no time to live"),
        ({"ttl": float("inf"), "by": "real"}, "ttl=inf is no time to live"),
        ({"ttl": timedelta(hours=1), "by": "at"}, "required: a positive whole number"),
        ({"ttl": timedelta(0), "by": "moment"}, "required: a positive timedelta, or a number of seconds"),
        ({"ttl": float("nan"), "by": "moment"}, "required: a positive timedelta, or a number of seconds"),
        ({"ttl": 3, "by": "maybe"}, "by='maybe' is a field of type"),
        ({"ttl": 3, "by": "price"}, "by='price' is a field of type"),
    ],
)
def test_a_wrong_time_to_live_is_refused_with_the_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(tg.DefinitionError, match=told) as caught:

        @tg.table(key="id", **given)
        class Bad:
            id: int
            at: int = 0
            real: float = 0.0
            name: str = ""
            moment: datetime = datetime(1970, 1, 1)
            maybe: int | None = None
            price: Annotated[Decimal, tg.digits(9, 2)] = Decimal(0)

    assert "test_expiry.py" in str(caught.value)


def test_one_clock_cannot_be_whole_and_real() -> None:
    @tg.table(key="id", ttl=1.5, by="at")
    class Real:
        id: int
        at: float = 0.0

    @tg.transaction
    def both(real: Real, session: Session) -> None:
        real.at = 1.0

    with pytest.raises(tg.DefinitionError, match="a program has one clock"):
        tg.Engine([both])


def test_the_time_of_a_transaction_has_the_type_of_the_clock() -> None:
    @tg.transaction(time="ts")
    def visit_at(session: Session, ts: datetime) -> None:
        session.hits += 1

    with pytest.raises(
        tg.DefinitionError, match=r"its time 'ts' is datetime, and the rows of Session expire by 'seen'"
    ):
        tg.Engine([visit_at])


def test_earlier_states_of_rows_that_expire_are_refused() -> None:
    @tg.transaction(time="ts")
    def remember(session: Session, ts: int) -> int:
        session.hits += 1
        return sum(state.hits for state in tg.history(session, last=5))

    with pytest.raises(tg.DefinitionError, match=r"earlier states .* of Session, whose rows expire"):
        tg.Engine([remember])


def test_programs_in_which_no_row_expires_have_no_trace_of_it() -> None:
    @tg.transaction(time="ts")
    def plain(total: Total, ts: int) -> None:
        total.count += ts

    engine = tg.Engine([plain])
    assert "limit" not in engine._program.plan.source and engine._program.plan.clock is None
    assert not any("limit" in spec.name for spec in engine._program.plan.arrays)
    assert list(engine._core.tables) == ["Total"]


# --- plain Python --------------------------------------------------------------------------------------------------


def test_plain_python_sees_the_same() -> None:
    @tg.transaction(compiled=False, time="ts")
    def visit_plainly(session: Session, ts: int) -> int:
        hits = session.hits if session.exists else -1
        session.seen, session.hits = ts, session.hits + 1
        return hits

    engine = tg.Engine([visit_plainly])
    batch = pa.table({"session": [1, 1, 1], "ts": [5, 15, 26]})
    assert engine.run(batch)["result"].to_pylist() == [-1, 1, -1]
    assert engine.read(Session, 1) == {"id": 1, "seen": 26, "hits": 1, "name": "nobody"}


# --- what it costs -------------------------------------------------------------------------------------------------


def lines_and_bytes_of_a_batch(rows: int) -> tuple[int, int]:
    """What a batch costs that expires three rows of so many: lines of Python, kernels included, and memory."""
    engine = tg.Engine([visit, look], strategy="serial")
    seen = [1, 2, 3, *range(100, 97 + rows)]
    engine.load(Session, pa.table({"id": list(range(rows)), "seen": seen}))
    lines = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    batch = pa.table({"transaction": ["visit", "look"], "session": [5, 6], "ts": [14, 20]})
    engine.execute(visit, session=4, ts=11)  # arrays that are full, which grow by doubling, grow here
    tracemalloc.start()
    sys.settrace(count)
    try:
        engine.run(batch)
    finally:
        sys.settrace(None)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert engine.scan(Session).num_rows == rows - 3
    return lines, memory


def test_the_cost_of_expiring_follows_the_rows_that_expire_and_not_the_state() -> None:
    few_lines, few_bytes = lines_and_bytes_of_a_batch(10)
    many_lines, many_bytes = lines_and_bytes_of_a_batch(100_000)
    assert many_lines < few_lines + 3 * 17 * 12, "three rows, seventeen levels"
    assert many_bytes < few_bytes + 100_000, "less than a byte for each row of the state"


# --- looked-up rows and dataflow graphs ----------------------------------------------------------------------------

seen = tg.stream("seen", session=Session, ts=int)
counted = tg.stream("counted", session=int, at=int)


@tg.transaction(on=seen, emits=[counted], time="ts")
def enter(session: Session, ts: int) -> int:
    before = session.hits
    session.seen = ts
    session.hits += 1
    tg.emit(counted, session=session.id + 1, at=ts)
    return before


@tg.transaction(on=counted)
def follow(session: int, at: int) -> None:
    """The row with the next key is absent if it has expired by the event that started the round."""
    other = tg.lookup(Session, session)
    if other.exists:
        other.name = "followed"
    total = tg.lookup(Total, session)
    total.count += other.hits


@tg.transaction(on=counted)
def follow_plainly(session: int, at: int) -> None:
    other = tg.lookup(Session, session)
    total = tg.lookup(Total, -session)
    total.count += 10**30 * 0 + other.hits  # beyond 64 bits: this step runs as plain Python


@tg.transaction(time="ts")
def write_old(key: int, session: Session, ts: int) -> bool:
    """What a transaction wrote itself has not expired for it, however old it is."""
    session.seen = ts - 1000
    other = tg.lookup(Session, key)
    return other.exists


@tg.transaction(time="ts")
def look_twice(key: int, total: Total, ts: int) -> bool:
    first = tg.lookup(Session, key)
    first.hits += 1
    second = tg.lookup(Session, key)
    return second.exists and second.hits == first.hits


def crossing(batch: int | str = 1) -> tg.Dataflow:
    return tg.dataflow([enter, follow, follow_plainly], atomic_batch=batch, name="crossing")


def entered(*rows: tuple[int, int]) -> pa.Table:
    sessions, times = zip(*rows, strict=True)
    return pa.table({"transaction": ["seen"] * len(rows), "session": sessions, "ts": times})


ROUNDS = [(2, 3), (1, 5), (1, 13), (1, 14), (2, 30), (1, 7), (1, 31), (2, 42), (2, 41), (1, 41), (1, 60), (3, 61)]


def plain_rounds(rows: list[tuple[int, int]], size: int) -> tuple[dict[int, Any], dict[int, int], list[int]]:
    """What the graph must do, with dicts: sessions (time, hits, name), totals, results."""
    sessions: dict[int, Any] = {}
    totals: dict[int, int] = {}
    results, clock, open_round = [], -(10**9), list[tuple[int, int]]()

    def get(key: int) -> Any:
        found = sessions.get(key)
        return None if found is None or found[0] < clock - 10 else found

    for event in rows:
        clock = max(clock, event[1])
        open_round.append(event)
        if len(open_round) < size:
            continue
        for key, time in open_round:
            found = get(key) or (0, 0, "nobody")
            results.append(found[1])
            sessions[key] = (time, found[1] + 1, found[2])
        for key, _ in open_round:
            other = get(key + 1)
            if other is not None:
                sessions[key + 1] = (other[0], other[1], "followed")
            totals[key + 1] = totals.get(key + 1, 0) + (other[1] if other else 0)
        for key, _ in open_round:
            other = get(key + 1)
            totals[-key - 1] = totals.get(-key - 1, 0) + (other[1] if other else 0)
        open_round = []
    return {key: found for key in sessions if (found := get(key))}, totals, results


@pytest.mark.parametrize(
    ("size", "cuts", "compiled"),
    [(2, (4,), True), *((size, cuts, False) for size in (1, 2, 3) for cuts in ((), (4,), (1, 3, 7, 8, 9)))],
)
def test_steps_of_graphs_run_at_the_clock_of_the_event_that_started_the_round(
    size: int, cuts: tuple[int, ...], compiled: bool, tmp_path: Any
) -> None:
    places = [0, *cuts, len(ROUNDS)]
    results: list[int] = []
    for begin, end in itertools.pairwise(places):
        with tg.Engine([crossing(size)], directory=tmp_path) as engine:
            results += engine.run(entered(*ROUNDS[begin:end]))["result"].to_pylist()
    with tg.Engine([crossing(size)], directory=tmp_path) as engine:
        sessions = {r["id"]: (r["seen"], r["hits"], r["name"]) for r in engine.scan(Session).to_pylist()}
        totals = {r["id"]: r["count"] for r in engine.scan(Total).to_pylist()}
    assert (sessions, totals, results) == plain_rounds(ROUNDS, size)


def test_a_row_that_a_transaction_wrote_is_there_for_its_own_look_up() -> None:
    engine = tg.Engine([write_old, look_twice, visit])
    assert engine.execute(visit, session=1, ts=2000).committed
    assert engine.execute(write_old, key=1, session=1, ts=2000).result is True
    assert engine.read(Session, 1) is None
    assert engine.execute(look_twice, key=1, total=1, ts=2001).result is True


def test_an_aborted_group_leaves_the_clock_advanced_and_the_rows_as_they_were() -> None:
    @tg.transaction(on=seen, time="ts")
    def only_young(session: Session, ts: int) -> None:
        session.hits += 1
        tg.require(session.hits == 1 or ts < 12, "old")

    engine = tg.Engine([tg.dataflow([only_young])])
    engine.load(Session, pa.table({"id": [1, 2, 3], "seen": [5, 5, 7], "hits": [3, 0, 0]}))
    assert engine.run(entered((1, 14)))["reason"].to_pylist() == ["old"]
    assert engine.scan(Session)["hits"].to_pylist() == [3, 0, 0]
    assert engine.run(entered((1, 16)))["committed"].to_pylist() == [True], "expired, and so it begins anew"
    assert engine.scan(Session)["id"].to_pylist() == [3], "its time is 0 now"


# --- state folders -------------------------------------------------------------------------------------------------


def test_the_clock_lasts_when_the_engine_is_closed_and_when_it_crashed(tmp_path: Any) -> None:
    with tg.Engine([visit, refuse, look], directory=tmp_path) as engine:
        engine.execute(visit, session=1, ts=5)
        engine.execute(visit, session=2, ts=12)
    engine = tg.Engine([visit, refuse, look], directory=tmp_path)
    assert engine.scan(Session)["id"].to_pylist() == [1, 2]
    assert not engine.execute(refuse, session=1, ts=16).committed
    engine._kept._let_go()  # type: ignore[union-attr]
    with tg.Engine([visit, refuse, look], directory=tmp_path) as engine:  # replays the call that aborted
        assert engine.scan(Session)["id"].to_pylist() == [2]
        assert engine.execute(look, session=2, ts=1).result["exists"] is True
        assert engine.execute(visit, session=1, ts=3).committed, "late: gone with its own event"
        assert engine.scan(Session)["id"].to_pylist() == [2]


def test_a_ttl_may_be_changed_added_and_removed_between_runs(tmp_path: Any) -> None:
    def program(**given: Any) -> tuple[Any, Any]:
        @tg.table(key="id", **given)
        class Lease:
            id: int
            at: int = 0

        @tg.transaction(time="ts")
        def renew(lease: Lease, ts: int) -> None:
            lease.at = ts

        return Lease, renew

    def left(lease: int, ts: int, **given: Any) -> list[int]:
        table, renew = program(**given)
        with tg.Engine([renew], directory=tmp_path) as engine:
            engine.execute(renew, lease=lease, ts=ts)
            return engine.scan(table)["id"].to_pylist()

    assert left(1, 10) == [1]
    assert left(2, 20) == [1, 2]
    assert left(3, 30, ttl=15, by="at") == [2, 3]
    assert left(4, 36, ttl=20, by="at") == [2, 3, 4]
    assert left(4, 36, ttl=5, by="at") == [4]
    assert left(5, 99) == [4, 5]
    assert left(6, 41, ttl=5, by="at") == [4, 5, 6]
    assert left(6, 42, ttl=5, by="at") == [5, 6]


def test_a_field_by_which_rows_expire_cannot_be_removed(tmp_path: Any) -> None:
    with tg.Engine([visit], directory=tmp_path) as engine:
        engine.execute(visit, session=1, ts=5)

    def renamed() -> Any:
        @tg.table(key="id", ttl=10, by="last")
        class Session:
            id: int
            last: int = 0
            hits: int = 0
            name: str = "nobody"

        @tg.transaction(time="ts")
        def visit(session: Session, ts: int) -> None:
            session.last = ts

        return visit

    with pytest.raises(tg.DefinitionError, match=r"Session\.seen: was int, is removed"):
        tg.Engine([renamed()], directory=tmp_path)


def test_a_field_by_which_rows_expire_may_be_renamed_or_dropped_in_the_state(tmp_path: Any) -> None:
    with tg.Engine([visit], directory=tmp_path) as engine:
        engine.execute(visit, session=1, ts=5)
    storage = open_storage(str(tmp_path))
    renamed = Reshaping(storage).rename_field("Session", "seen", "last").version.layouts
    assert [(layout.by, layout.ttl) for layout in renamed if layout.name == "Session"] == [("last", 10)]
    dropped = Reshaping(storage).drop_field("Session", "last").version.layouts
    assert [(layout.by, layout.ttl) for layout in dropped if layout.name == "Session"] == [("", None)]


def test_a_rollback_takes_the_clock_back_with_the_rows(tmp_path: Any) -> None:
    for ts in (5, 12, 40):
        with tg.Engine([visit, look], directory=tmp_path) as engine:
            engine.execute(visit, session=ts, ts=ts)
    with tg.Engine([visit, look], directory=tmp_path) as engine:
        assert engine.scan(Session)["id"].to_pylist() == [40]
    storage = open_storage(str(tmp_path))
    versions = VersionStore(storage).refresh()
    roll_back(storage, versions[-2])
    with tg.Engine([visit, look], directory=tmp_path) as engine:
        assert engine.scan(Session)["id"].to_pylist() == [5, 12]
        assert engine.execute(look, session=5, ts=15).result["exists"] is True
        assert engine.execute(look, session=5, ts=16).result["exists"] is False
