"""The model, checked by hand before it judges anything else: every number here was worked out on paper."""

from __future__ import annotations

from typing import Any

import pytest

from .graph_data import Graph, Procedure, Stream, Window, in_order
from .model import Content, Decided, Model, View
from .oracle import Abort, Outcome
from .stand_in import declared, model_of

LEADERBOARD = """
import tidegate as tg

@tg.table(key="phone")
class Voter:
    phone: int
    contestant: int = 0

@tg.table(key="id")
class Contestant:
    id: int
    votes: int = 0
    trending: int = 0

@tg.table(key="show")
class Board:
    show: int
    total: int = 0
    leader: int = 0

votes = tg.stream("votes", phone=int, contestant=int)
valid = tg.stream("valid", contestant=int, show=int)
ranked = tg.stream("ranked", contestant=int, trending=int)
trend = tg.window(valid, rows=4, slide=2)

@tg.transaction(on=votes, emits=[valid])
def validate(phone: Voter, contestant: Contestant) -> int:
    phone.contestant = contestant.id
    contestant.votes += 1
    tg.require(contestant.id < 9, "no such contestant")
    tg.emit(valid, contestant=contestant.id, show=1)
    return contestant.votes

@tg.trigger(on=valid)
def tally(show: Board):
    show.total += 1

@tg.trigger(on=trend)
def slid(show: Board, recent: trend):
    show.leader = recent.top("contestant", 1)[0]

@tg.transaction(on=valid, emits=[ranked])
def rank(contestant: Contestant, show: Board, recent: trend):
    contestant.trending = recent.frequency("contestant", contestant.id)
    tg.emit(ranked, contestant=contestant.id, trending=contestant.trending)
    tg.require(show.total != 5, "five")

@tg.transaction
def reset(show: Board, contestant: Contestant) -> int:
    tg.delete(contestant)
    show.total += 10
    return show.total

show = tg.dataflow([validate, tally, slid, rank], nested=NESTED, atomic_batch=BATCH, name="show")
"""


def leaderboard(nested: str = "[]", batch: str = "1") -> tuple[Model, dict[str, Any]]:
    names = declared(LEADERBOARD.replace("NESTED", nested).replace("BATCH", batch))
    return model_of(names), names


def vote(phone: int, contestant: int) -> dict[str, Any]:
    return {"transaction": "votes", "phone": phone, "contestant": contestant, "show": None}


def reset(contestant: int) -> dict[str, Any]:
    return {"transaction": "reset", "phone": None, "contestant": contestant, "show": 1}


def outcomes(decided: list[Decided]) -> list[tuple[bool, str | None, Any]]:
    return [(d.outcome.committed, d.outcome.reason, d.outcome.result) for d in decided]


# Each row of these tables: what the vote did, group {validate, tally} first, then {rank, slid}.
#
#   vote   validate, tally               window (4, 2)                slid     rank
#   1:1    votes[1]=1   total=1          staged 1                     -        trending[1]=0, emits 1:0
#   2:2    votes[2]=1   total=2          slides: 1 2                  leader=1 trending[2]=1, emits 2:1
#   3:9    no such contestant: nothing of it remains, rank has no tuple
#   4:2    votes[2]=2   total=3          staged 2                     -        trending[2]=1, emits 2:1
#   5:2    votes[2]=3   total=4          slides: 1 2 2 2              leader=2 trending[2]=3, emits 2:3
#   6:1    votes[1]=2   total=5          staged 1, then "five": not staged     trending[1] stays 0
#   7:3    votes[3]=1   total=6          staged 3                     -        trending[3]=0, emits 3:0
#   8:3    votes[3]=2   total=7          slides: 2 2 3 3              leader=2 trending[3]=2, emits 3:2
VOTES = [vote(1, 1), vote(2, 2), vote(3, 9), vote(4, 2), vote(5, 2), vote(6, 1), vote(7, 3), vote(8, 3)]


def test_the_leaderboard_of_single_transactions() -> None:
    model, names = leaderboard()
    assert outcomes(model.run(VOTES)) == [
        (True, None, 1),
        (True, None, 1),
        (False, "no such contestant", None),
        (True, None, 2),
        (True, None, 3),
        (True, None, 2),
        (True, None, 1),
        (True, None, 2),
    ]
    assert model.scan("Contestant") == [
        {"id": 1, "votes": 2, "trending": 0},
        {"id": 2, "votes": 3, "trending": 3},
        {"id": 3, "votes": 2, "trending": 2},
    ]
    assert model.scan("Board") == [{"show": 1, "total": 7, "leader": 2}]
    assert [row["phone"] for row in model.scan("Voter")] == [1, 2, 4, 5, 6, 7, 8]
    assert [row["contestant"] for row in model.visible(names["trend"])] == [2, 2, 3, 3]
    taken = [(row["contestant"], row["trending"], row["batch"]) for row in model.take(names["ranked"])]
    assert taken == [(1, 0, 1), (2, 1, 2), (2, 1, 4), (2, 3, 5), (3, 0, 7), (3, 2, 8)]
    assert model.take(names["ranked"]) == []
    # Group 0 is validate with tally, group 1 rank with slid (listed before rank).
    assert [tuple(step)[1:-1] for step in model.history[:6]] == [
        ("show", "validate", 1, 0, True, 1),
        ("show", "tally", 1, 0, True, 1),
        ("show", "rank", 1, 1, True, 1),
        ("show", "validate", 2, 0, True, 1),
        ("show", "tally", 2, 0, True, 1),
        ("show", "slid", 2, 1, True, 1),
    ]
    assert [s.transaction for s in model.history if s.batch == 3] == ["validate"]
    assert [(s.transaction, s.committed) for s in model.history if s.batch == 6] == [
        ("validate", True),
        ("tally", True),
        ("rank", False),
    ]


def test_nested_all_of_it_commits_or_nothing() -> None:
    # With rank in the group, "five" undoes the whole vote: total stays 4, so that the next vote is "five" again.
    model, names = leaderboard("[(validate, rank)]")
    assert outcomes(model.run(VOTES))[4:] == [(True, None, 3), *[(False, "rolled back by rank: five", None)] * 3]
    assert model.scan("Board") == [{"show": 1, "total": 4, "leader": 2}]
    assert [row["id"] for row in model.scan("Contestant")] == [1, 2]
    assert [row["contestant"] for row in model.visible(names["trend"])] == [1, 2, 2, 2]
    assert {step.group for step in model.history} == {0}
    # A plain transaction lifts the total to 14; then votes pass again, and the window goes on where it was.
    assert outcomes(model.run([reset(2), vote(9, 3), vote(10, 3)])) == [
        (True, None, 14),
        (True, None, 1),
        (True, None, 2),
    ]
    assert [row["contestant"] for row in model.visible(names["trend"])] == [2, 2, 3, 3]
    assert [row["id"] for row in model.scan("Contestant")] == [1, 3]


def test_a_batch_of_three_is_one_transaction() -> None:
    # Batch 1: votes 1:1, 2:2, 3:9: aborts as a whole. Batch 2: 4:2, 5:2, 6:1:
    #   validate: votes[2]=1, 2, votes[1]=1; tally: total=3; rank: stages 2; slides 2 2, trending[2]=2; stages 1.
    # Batch 3: 7:3, 8:3 wait.
    model, names = leaderboard(batch="3")
    assert outcomes(model.run(VOTES[:2])) == []
    assert model.waiting(names["votes"]) == [{"phone": 1, "contestant": 1}, {"phone": 2, "contestant": 2}]
    decided = model.run(VOTES[2:])
    assert outcomes(decided) == [
        *[(False, "no such contestant", None)] * 3,
        (True, None, 1),
        (True, None, 2),
        (True, None, 1),
    ]
    assert [d.event["phone"] for d in decided] == [1, 2, 3, 4, 5, 6]
    assert [row["phone"] for row in model.waiting(names["votes"])] == [7, 8]
    assert [row["contestant"] for row in model.visible(names["trend"])] == [2, 2]
    assert [(s.transaction, s.batch, s.tuples, s.committed) for s in model.history] == [
        ("validate", 1, 3, False),
        ("validate", 2, 3, True),
        ("tally", 2, 3, True),
        ("slid", 2, 1, True),
        ("rank", 2, 3, True),
    ]
    assert [row["batch"] for row in model.take(names["ranked"])] == [2, 2, 2]


def test_batches_by_field_close_when_another_value_arrives() -> None:
    model, names = leaderboard(batch='"contestant"')
    first = model.run([vote(1, 1), vote(2, 1), vote(3, 2)])
    assert [(d.event["phone"], d.outcome.result) for d in first] == [(1, 1), (2, 2)]
    assert model.waiting(names["votes"]) == [{"phone": 3, "contestant": 2}]
    assert model.run([reset(2)])[0].outcome == Outcome(True, None, 12)  # the waiting vote has not run
    assert [d.event["phone"] for d in model.run([vote(4, 2), vote(5, 1)])] == [3, 4]


ORDER = """
import tidegate as tg

@tg.table(key="id")
class Log:
    id: int
    text: str = ""

left = tg.stream("left", log=int, n=int)
right = tg.stream("right", log=int, n=int)
both = tg.stream("both", log=int, n=int)

@tg.transaction(on=both)
def last(log: Log, n: int):
    log.text = "c" if n == 1 else "d"

@tg.transaction(on=right, emits=[both])
def second(log: Log, n: int) -> int:
    log.text = "s"
    tg.emit(both, log=log.id + n, n=2)
    return 2

@tg.transaction(on=left, emits=[both])
def first(log: Log, n: int) -> int:
    tg.emit(both, log=log.id, n=1)
    tg.emit(both, log=log.id + 1, n=1)
    return n // (n - 7)

@tg.transaction(on=left)
def other(log: Log, n: int) -> int:
    tg.require(n != 6, "six")
    log.text = "o"
    return 100

flow = tg.dataflow([last, second, first, other])
"""


def test_two_borders_several_producers_and_the_first_reason() -> None:
    # In order: second and first as listed; then last, which waits for nobody any more and is listed before other.
    names = declared(ORDER)
    model = model_of(names)
    assert [[member.name for member in group] for group in names["flow"].groups()] == [
        ["second"],
        ["first"],
        ["last"],
        ["other"],
    ]
    assert names["flow"].name == "right"
    events = [
        {"transaction": "left", "log": 1, "n": 8},  # first -> 8; last writes c to 1 and 2; other writes o to 1
        {"transaction": "right", "log": 5, "n": 1},  # s to 5; last writes d to 6
        {"transaction": "left", "log": 3, "n": 7},  # first divides by zero; other still commits: o to 3
        {"transaction": "left", "log": 4, "n": 6},  # first commits -6; last writes c to 4 and 5; other aborts
    ]
    assert outcomes(model.run(events)) == [
        (True, None, 8),
        (True, None, 2),
        (False, "ZeroDivisionError", None),
        (False, "six", None),
    ]
    assert {row["id"]: row["text"] for row in model.scan("Log")} == {1: "o", 2: "c", 3: "o", 4: "c", 5: "c", 6: "d"}
    assert [s.batch for s in model.history] == [1, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    assert [s.transaction for s in model.history] == [
        *("first", "last", "other"), *("second", "last"), *("first", "other"), *("first", "last", "other"),
    ]  # fmt: skip


def times(window: Window, content: Content, *given: int) -> list[tuple[bool, list[int]]]:
    return [(content.take(window, {"t": t}), [row["t"] for row in content.visible]) for t in given]


def test_windows_by_time() -> None:
    # length 10, slide 5. Boundaries: 3 -> 0; 4 -> 0; 6 -> 5: slides, 3 4 visible; 5 is late and counts as 6;
    # 12 -> 10: those before 0 leave: none; 6 5 become visible;
    # 30 -> 30: those before 20 leave: all; 12 becomes visible.
    window = Window(Stream("s", {"t": int}), 10, 5, "t")
    content = Content()
    assert times(window, content, 3, 4, 6, 5, 12, 30) == [
        (False, []),
        (False, []),
        (True, [3, 4]),
        (False, [3, 4]),
        (True, [3, 4, 6, 5]),
        (True, [12]),
    ]
    assert content.staged == [{"t": 30}]


def test_negative_times_round_down() -> None:
    # -3 // 5 * 5 = -5; 0 -> 0 slides; the length 5 keeps what is at -5 or later: -7 was before, -3 stays.
    window = Window(Stream("s", {"t": int}), 5, 5, "t")
    assert times(window, Content(), -7, -3, 0, 6) == [(False, []), (True, [-7]), (True, [-3]), (True, [0])]


def test_windows_by_rows() -> None:
    window = Window(Stream("s", {"t": int}), 3, 2)
    assert times(window, Content(), 1, 2, 3, 4, 5) == [
        (False, []),
        (True, [1, 2]),
        (False, [1, 2]),
        (True, [2, 3, 4]),
        (False, [2, 3, 4]),
    ]


def test_what_a_body_asks_a_window() -> None:
    view = View([{"f": 4}, {"f": 2}, {"f": 4}, {"f": 1}, {"f": 2}], slid=False)
    assert (len(view), view.sum("f"), view.min("f"), view.max("f"), view.distinct("f")) == (5, 13, 1, 4, 3)
    assert (view.frequency("f", 4), view.frequency("f", 9)) == (2, 0)
    assert (view.top("f", 2), view.top("f", 9), view.top("f", 0)) == ([2, 4], [2, 4, 1], [])
    assert (view[0].f, view[-1].f, [row.f for row in view]) == (4, 2, [4, 2, 4, 1, 2])
    empty = View([], slid=True)
    assert (empty.sum("f"), empty.top("f", 3), empty.slid) == (0, [], True)
    for ask in (lambda: empty.min("f"), lambda: empty.max("f")):
        with pytest.raises(ValueError):
            ask()
    with pytest.raises(IndexError):
        view[5]
    with pytest.raises(Abort, match="overflow"):
        View([{"f": 2**63 - 1}, {"f": 1}], slid=False).sum("f")


def test_order_prefers_the_list_and_never_an_edge() -> None:
    rank = {"c": 0, "a": 1, "b": 2}
    assert in_order(rank, []) == ["c", "a", "b"]
    assert in_order(rank, [("b", "c")]) == ["a", "b", "c"]
    with pytest.raises(ValueError):
        in_order(rank, [("a", "b"), ("b", "a")])


def test_a_trigger_on_a_window_takes_its_owner_before_its_consumers() -> None:
    stream, slides = Stream("s", {"a": int}), Stream("slides", {"a": int})
    window = Window(stream, 2, 1)
    consumer = Procedure("consumer", lambda a: None, (("a", int, False),), on=slides)
    trigger = Procedure("trigger", lambda a: None, (("a", int, False),), on=window, emits=(slides,), is_trigger=True)
    owner = Procedure("owner", lambda w: None, (("w", window, False),), on=stream)
    graph = Graph("g", (consumer, trigger, owner))
    assert graph.groups() == [[trigger, owner], [consumer]]


MEMORY = """
import tidegate as tg

@tg.table(key="id")
class Box:
    id: int
    size: int = 0
    twin: int = 0

def twin_of(box):
    return tg.lookup(Box, box.twin)

@tg.transaction(time="ts")
def fill(box: Box, ts: int, size: int) -> int:
    twin = twin_of(box)
    twin.size += size
    tg.require(twin.size < 10, "full")
    if twin is box:
        return -1
    return twin.size

@tg.transaction(time="ts")
def drop(box: Box, ts: int, size: int):
    tg.delete(tg.lookup(Box, box.twin))

@tg.transaction(time="ts")
def ask(box: Box, ts: int, size: int) -> int:
    seen = 0
    for old in tg.history(box, last=10):
        seen = seen * 100 + old.size * 10 + old.exists
    return seen + 1000000 * len(tg.history(box, last=3))

pairs = tg.stream("pairs", box=int, ts=int, size=int)

@tg.transaction(on=pairs, time="ts")
def put(box: Box, ts: int, size: int):
    box.size = size
    tg.require(size != 9, "nine")

flow = tg.dataflow([put], atomic_batch=2)
"""


def test_rows_that_are_looked_up() -> None:
    # Box 1 has the twin 2, box 2 has none (twin 0), box 0 is its own twin.
    model = model_of(declared(MEMORY), {"Box": 10})
    model.load("Box", [{"id": 1, "size": 1, "twin": 2}])
    events = [("fill", 1, 4), ("fill", 1, 5), ("fill", 1, 6), ("fill", 2, 3), ("fill", 0, 2), ("drop", 1, 0)]
    decided = model.run([{"transaction": name, "box": box, "ts": 0, "size": size} for name, box, size in events])
    # 2.size = 4, then 9; 15 is too much; 2's twin is 0: 0.size = 3; 0 is its own: 5, and the same row; 2 is gone.
    assert outcomes(decided) == [
        (True, None, 4),
        (True, None, 9),
        (False, "full", None),
        (True, None, 3),
        (True, None, -1),
        (True, None, None),
    ]
    assert [(row["id"], row["size"]) for row in model.scan("Box")] == [(0, 5), (1, 1)]


def test_what_rows_were() -> None:
    model = model_of(declared(MEMORY), {"Box": 10})
    model.load("Box", [{"id": 1, "twin": 1}])

    def run(name: str, ts: int, size: int) -> Any:
        return [d.outcome.result for d in model.run([{"transaction": name, "box": 1, "ts": ts, "size": size}])]

    assert run("ask", 0, 0) == [0]
    assert run("pairs", 1, 4) + run("pairs", 2, 5) == [None, None]  # one group: 5, since 2
    assert run("ask", 2, 0) == [1_000_051] and run("ask", 1, 0) == [0]
    run("pairs", 3, 6), run("pairs", 4, 9)  # aborted
    run("pairs", 5, 6), run("pairs", 6, 6)  # 6, since 5: the second changed nothing
    assert run("ask", 5, 0) == [1_006_151] and run("ask", 8, 0) == [6151]
    run("pairs", 7, 1), run("pairs", 7, 6)  # changed and changed back: no state
    assert run("ask", 8, 0) == [6151]
    run("pairs", 4, 3), run("pairs", 4, 3)  # late, since 4, but the newest
    assert run("ask", 6, 0) == [2_316_151]
    # Gone since 12: 0 and no row, then 31 and 61; what was since 2 is too old.
    assert run("drop", 12, 0) == [None] and run("ask", 12, 0) == [1_003_161]
    assert run("ask", 6, 0) == [2_003_161]  # nobody may ask for what is before 12 - 10 any more
