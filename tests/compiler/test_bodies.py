"""Bodies that say in Python what a compiler easily says differently: order of evaluation, laziness,
aliases, ints that become floats late, names that may be unassigned, helpers with effects.

Every body below is a transaction; the oracle says what it does with a handful of nasty events, and the
engine must say the same. All of them run in one program, so that it compiles once.
"""

from __future__ import annotations

import linecache
import math
import re
import struct
import sys
import types
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.foundation.jit import uncompiled

from ..truth.oracle import Oracle

HEADER = """
import math
import tidegate as tg

LIMIT = 5


class Settings:
    limit = 7


@tg.table(key="id")
class T:
    id: int
    n: int
    x: float
    s: str
    f: bool


def bump(row, by=1):
    row.n += by
    return row.n


def negate(value):
    return -value


def zero_or_half(value):
    if value > 3:
        return 0
    return 0.5


def larger(first, second):
    return first if first.n > second.n else second


def total(rows, scale=1):
    found = 0
    for row in rows:
        found += row.id * scale
    return found


def check(row):
    row.n += 1
    tg.require(row.n > 1, "inner")
    return row.n


class Special(Exception):
    def __init__(self, first, second):
        pass
"""

TEXT = """
# An int that meets a float late, or never.
== an accumulator that stays an int keeps its sign -> float
y = 0
if n > 3:
    y += x
return -y
== an accumulator that stays an int is divided -> float
y = 0
if n > 3:
    y += x
a.x = y * -1
return y // -1
== an accumulator that stays an int has a remainder -> float
y = 0
if n > 3:
    y += x
return y % -3
== an accumulator starts beyond 2**53 -> float
y = 9007199254740993
if n > 3:
    y += x
return y + 1
== an accumulator is multiplied by an int -> float
y = 3
if x > 3:
    y += x
return y * n
== the sum of no floats is the int zero -> float
return -sum(r.x for r in rows)
== the sum of an empty list is the int zero -> float
return -sum(vs)
== one branch is an int -> float
return -(0 if n > 3 else x)
== max of an int and a float -> float
return -max(0, x)
== max of a float and an int -> float
return max(x, 0) // -2
== min of an int and a float -> float
return min(n, x)
== a helper returns an int or a float -> float
return -zero_or_half(n)
== a helper takes an int and a float -> float
return negate(0) + negate(x)
== ints added up to floats -> float
y = 0
for v in vs:
    y = y + v
    if y > 1:
        y = 1
return y
# Order of evaluation.
== effects between reads -> int
return a.n + bump(a) * a.n + bump(a, n % 10)
== effects inside a chain -> bool
return bump(a) < a.n < bump(a, 2)
== the right side of an assignment comes first -> int
a.n = bump(a, 5) + a.n
return a.n
== the left side of an augmented assignment comes first -> int
a.n += bump(a, 5)
return a.n
== the value comes before the row it is assigned to -> int
rows[0].n = bump(rows[1], 3)
return 1
== both sides before both targets -> int
r = rows[0]
r.n, a.n = a.n + 1, r.n + 2
return a.n
== one value for two targets -> int
a.n = b.n = n
return a.n + b.n
== a tuple is built before it is searched -> bool
return n in (a.n, 1 // n)
== effects in a tuple that is searched -> int
f = n in (bump(a), bump(a), bump(a))
return a.n
== or stops -> bool
return n > 3 or bump(a) > 1
== and stops -> bool
return n > 3 and bump(a) > 1 and bump(a) > 5
== a value and a value -> int
return n and 5
== a value or an effect -> int
return n or bump(a)
== any stops -> bool
return any(bump(r) > 1 for r in rows) or all(bump(r) for r in rows)
== sums with effects -> int
return sum(bump(r, 2) for r in rows) + sum(bump(r) for r in rows if r.id > 1)
== what is raised is made first -> int
raise ValueError(1 // n)
== what is raised may not be made -> int
raise Special(n)
== what is raised may abort -> int
raise ValueError(check(a))
== the message of an assertion is made first -> int
assert n > 3, 1 // n
return n
== the message of an assertion that holds is not made -> int
assert n == n, 1 // 0
return n
# Rows and aliases.
== a row chosen by a condition -> int
r = a if n > 0 else b
r.n += 1
tg.delete(b)
return r.n
== a row chosen in place -> int
(a if n > 0 else b).n = 4
return a.n + (b if n > 0 else a).id
== a parameter that becomes another row -> int
a = b
a.n += 1
return a.n
== a row that a helper chooses -> int
larger(a, b).n += 1
return larger(b, a).id
== the best of a list -> int
best = rows[0]
for r in rows:
    if r.id > best.id:
        best = r
best.n += 1
return best.id
== the last of a loop -> int
for r in rows:
    pass
r.n += 1
return r.n
== two names for a row -> int
p = q = rows[0]
p.n += 1
q = a
q.n += 5
return p.n
== the same row or not -> bool
return a is b or (a is not b and a.id == b.id)
== an index that is a bool -> int
return rows[n > 3].id
== an index far outside -> int
return rows[n].id
== rows against the grain -> int
for i in range(len(rows) - 1, -1, -1):
    rows[i].n += i
return rows[0].n
== deleted and read -> str
a.s = 'q'
tg.delete(a)
f = a.exists
a.f = f
return a.s
== deleted and asked -> bool
tg.delete(a)
gone = not tg.exists(a)
b.f = gone and not tg.exists(rows[0])
a.n += 1
return gone and tg.exists(a) and any(tg.exists(r) for r in rows)
# Names and flow.
== a name that may be unassigned -> int
if n > 3:
    k = 1
return k
== a row that may be unassigned -> int
if n > 3:
    r = a
r.n += 1
return r.n
== a counter that is changed -> int
t = 0
for i in range(3):
    i += 5
    t += i
return t
== a counter that no round sets -> int
i = 7
for i in range(n % 3):
    pass
return i
== code that is never reached -> int
if n > 3:
    return 1
    a.n = 5
else:
    return 2
a.n = 7
== an end without return -> int
a.n += 1
if n > 3:
    return a.n
== a return of nothing -> int
a.n += 1
if n > 3:
    return None
return n
== a loop without end -> int
t = 0
while True:
    t += 1
    if t > 3:
        break
return t
== loops in loops -> int
for r in rows:
    for q in rows:
        if q is r:
            continue
        if q.id > 2:
            break
        q.n += r.id
return a.n
== a root by halving -> int
lo = 0
hi = n
while lo < hi:
    mid = (lo + hi) // 2
    if mid * mid < n:
        lo = mid + 1
    else:
        hi = mid
return lo
== a generator's own variable -> int
r = a
k = sum(r.id for r in rows)
r.n += k
return r.id
== zip to the shorter -> float
t = 0.0
for r, v in zip(rows, vs):
    r.x += v
    t += r.x
return t
== zip that must match -> float
t = 0.0
for r, v in zip(rows, vs, strict=True):
    r.x += v
    t += r.x
return t
== zip that is left early -> int
t = 0
for r, v in zip(rows, vs, strict=True):
    t += 1
    if t == 1:
        break
return t
== counting from elsewhere -> int
t = 0
for i, r in enumerate(rows, n % 7 - 3):
    t += i * r.id
return t
# Arithmetic on the way.
== a power that leaves 64 bits and comes back -> int
k = 1
for i in range(n % 50):
    k *= 3
return k % 1000007
== shifted out and back -> int
k = n << 70
return k >> 70
== far beyond any float -> float
a.n = 1
return 10**400 * n
== far beyond a field -> int
a.n = 1
a.n = 10**400 * n
return 1
== bools are ints -> int
f = n > 3
return f + f + True - (x > 1) * -n
== a bool into an int field -> float
a.n = n > 3
a.x = n > 3
return a.n
== flags -> bool
a.f |= n > 3
a.f ^= True
return a.f
== an int equals a float or not -> bool
a.x = n
return a.x == n
== chains of three -> bool
return 1 < n < 10 > x
== NaN is found by identity -> bool
return x in (1.5, x)
== powers of floats -> float
return x**n if -100 < n < 100 else x**0.5
== strings -> str
k = a.s
if n > 3:
    k = 'long'
a.s = k or 'none'
return a.s if a.s in ('long', 'none') else ''
== constants from outside -> float
return LIMIT + Settings.limit + math.pi * total(rows, scale=2)
== an abort as an exception -> int
a.n = 3
raise tg.Abort('stop')
"""


def parse(text: str) -> dict[str, tuple[str, str]]:
    """Bodies by name: what each returns, and its statements."""
    found = {}
    without_comments = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    for part in re.split(r"^== ", without_comments, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        name, _, returns = head.partition(" -> ")
        found[name] = (returns, body.rstrip())
    return found


BODIES = parse(TEXT)
SIGNATURE = "a: T, b: T, n: int, x: float, rows: list[T], vs: list[float]"
VALUES: list[dict[str, Any]] = [
    {"a": 1, "b": 1, "n": 0, "x": 0.0, "rows": [], "vs": []},
    {"a": 1, "b": 2, "n": 5, "x": 1.5, "rows": [1], "vs": [0.0]},
    {"a": 1, "b": 2, "n": -3, "x": -0.0, "rows": [1, 2], "vs": [-0.0, -0.0]},
    {"a": 1, "b": 1, "n": 2**63 - 1, "x": math.inf, "rows": [1, 1], "vs": [1e16, 1.0, -1e16]},
    {"a": 1, "b": 3, "n": -(2**63), "x": math.nan, "rows": [3, 2, 1], "vs": [math.nan]},
    {"a": 1, "b": 3, "n": 2**53 + 1, "x": 2.0**53, "rows": [3], "vs": [0.1, 0.1, 0.1]},
    {"a": 2, "b": 1, "n": 7, "x": 0.25, "rows": [2, 1, 3, 2], "vs": [1.0, 2.0, 3.0, 4.0]},
]
SCHEMA = pa.schema(
    {
        "transaction": pa.string(), "a": pa.int64(), "b": pa.int64(), "n": pa.int64(), "x": pa.float64(),
        "rows": pa.list_(pa.int64()), "vs": pa.list_(pa.float64()),
    }
)  # fmt: skip


def name_of(case: str) -> str:
    return case.replace(" ", "_").replace("*", "").replace("'", "")


def source_of(cases: list[str]) -> str:
    text = HEADER
    for case in cases:
        returns, body = BODIES[case]
        indented = "".join(f"    {line}\n" for line in body.splitlines())
        text += f"\n\n@tg.transaction\ndef {name_of(case)}({SIGNATURE}) -> {returns}:\n{indented}"
    return text


def compare(source: str, names: list[str]) -> None:
    """Each transaction in its turn, over the rows that the others left, as the oracle runs them."""
    oracle = Oracle(source)
    filename = "<bodies>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = sys.modules["tested_bodies"] = types.ModuleType("tested_bodies")
    exec(compile(source, filename, "exec"), module.__dict__)
    engine = tg.Engine([module.__dict__[name] for name in oracle.transactions])
    for name in names:
        events = [{"transaction": name, **values} for values in VALUES]
        wanted = [(outcome.committed, outcome.reason, outcome.result) for outcome in oracle.run(events)]
        table = engine.run(pa.Table.from_pylist(events, SCHEMA))
        for event, row, want in zip(events, table.to_pylist(), wanted, strict=True):
            result = row["result"][name] if row["result"] is not None else None
            got = (row["committed"], row["reason"], result)
            assert exact(got) == exact(want), f"{event}: the engine says {got}, Python says {want}"
        got_rows = [tuple(map(exact, row.values())) for row in engine.scan(module.T).to_pylist()]
        assert got_rows == [tuple(map(exact, row.values())) for row in oracle.scan("T")], name


def exact(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(exact, value))
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value)
    return (type(value).__name__, value)


@pytest.mark.parametrize("case", BODIES)
def test_generated_code_does_what_python_does(case: str) -> None:
    other = "an abort as an exception" if BODIES[case][0] != "int" else "or stops"  # so that results are a struct
    cases = [case, other]
    with uncompiled():
        compare(source_of(cases), [name_of(case)])


@pytest.mark.parametrize("mode", ["compiled", "uncompiled"])
def test_all_bodies_in_one_program(mode: str) -> None:
    with nullcontext() if mode == "compiled" else uncompiled():
        compare(source_of(list(BODIES)), [name_of(case) for case in BODIES])
