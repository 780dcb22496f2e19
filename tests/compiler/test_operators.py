"""Functions of ordered pipelines, compiled, do what the plain functions do to records and states.

Each operator below runs over all combinations of a few nasty values. What it writes to rows and to its state is
compared word for word with what the plain function returns; where it escapes, has no room or plain Python raises, the
state must be as it was before.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Annotated, Any

import pytest

import tidegate as tg
from tidegate.compiler.operators import link_operators
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.jit import uncompiled
from tidegate.operations.pipeline import unusual
from tidegate.operations.plan import ESCAPE, INTERRUPTED

from ..truth.choices import Choices
from ..truth.comparison import imported
from ..value_types import HEADER as TYPES_HEADER
from ..value_types import TYPES, Row
from .operator_desk import SLOT, Desk, check, compiled, layout_of
from .random_operators import random_fields, random_operator


@dataclass
class Click:
    ts: int
    user: int
    price: float
    name: str
    ok: bool = True


@dataclass
class Visit:
    clicks: int = 0
    spent: float = 0.0
    name: str = ""
    seen: bool = False


@dataclass
class Session:
    user: int
    spent: float
    name: str = "none"
    ok: bool = field(default=False, kw_only=True)


CLICKS = [
    Click(ts, user, price, name, ok)
    for ts, user, price, name, ok in itertools.product(
        (0, 3, 2**63 - 1), (-2, 0, 7, 2**53 + 1), (0.0, -0.0, 2.5, math.nan), ("", "bob"), (True, False)
    )
]
VISITS = [Visit(), Visit(5, -0.0, "bob", True), Visit(2**63 - 1, 1e300, "a", False)]
LIMIT = 5
Operator = Callable[..., Any]
FORMS: dict[str, tuple[Operator, dict[str, Any]]] = {}


def form(state: type | None = None, outputs: type = Session, **how: Any) -> Callable[[Operator], Operator]:
    """Note an operator that is compared with itself in plain Python."""

    def note(function: Operator) -> Operator:
        FORMS[function.__name__] = function, {"state": state, "outputs": outputs, **how}
        return function

    return note


# --- one record, or none -----------------------------------------------------------------------------------------


@form()
def by_position(click: Click) -> Session:
    return Session(click.user, click.price, click.name, ok=click.ok)


@form()
def by_name_and_default(click: Click) -> Session:
    return Session(spent=click.price * 2, user=click.user + 1)


@form(outputs=Click)
def itself(click: Click) -> Click:
    return click


@form(outputs=Click)
def replaced(click: Click) -> Click:
    return replace(click, user=click.user * 3, name="x" if click.ok else click.name)


@form(outputs=Click)
def replaced_twice(click: Click) -> Click:
    other = dataclasses.replace(click, ts=click.user)
    click = replace(other, user=other.ts - click.ts)
    return click


@form(many="optional")
def or_none(click: Click) -> Session | None:
    return Session(click.user, click.price) if click.ok else None


@form(many="optional")
def falls_off(click: Click) -> Session | None:
    if click.user > LIMIT:
        return Session(click.user, click.price, click.name)


@form()
def none_where_one_is_declared(click: Click) -> Session:
    if click.ok:
        return Session(click.user, click.price)
    return None


@form(many="optional")
def variable_on_branches(click: Click) -> Session | None:
    out = None
    if click.ts == 3:
        out = Session(click.ts, click.price)
    elif click.name == "bob":
        out = Session(len(click.name), click.price + 1, ok=True)
    if out is None and click.ok:
        out = Session(1, 1.0)
    elif out is not None and out.user > 2:
        out = replace(out, user=out.user - 1, name=out.name)
    return out


@form()
def variable_that_may_be_unassigned(click: Click) -> Session:
    if click.ok:
        out = Session(click.user, click.price)
    return out


@form(many="optional")
def truth_of_a_record(click: Click) -> Session | None:
    out = Session(click.user, click.price) if click.name else None
    if not out:
        return None
    return out if click and out.user else None


@form()
def attribute_of_none(click: Click) -> Session:
    out = Session(click.user, click.price) if click.name else None
    return Session(out.user + 1, out.spent)


@form()
def two_of_them(click: Click) -> Session:
    first, second = Session(1, click.price), Session(2, click.price)
    if click.ok:
        first, second = second, first
    third = fourth = first
    return replace(third, spent=fourth.spent + second.spent)


@form()
def an_int_for_a_float(click: Click) -> Session:
    return Session(click.user, click.user, ok=bool(click.ts))


@form()
def an_int_for_a_float_that_is_read(click: Click) -> Session:
    made = Session(1, click.user)
    return Session(2, -made.spent if click.ok else made.spent * 0)


@form()
def an_int_for_a_float_is_divided(click: Click) -> Session:
    made = Session(1, click.user if click.ok else click.price)
    return Session(2, made.spent // -3)


@form()
def raises(click: Click) -> Session:
    if click.name:
        raise ValueError(f"{click.name} has {click.price}")
    assert click.user != 7, click.user
    tg.require(click.ok, "not ok")
    if click.ts == 3:
        tg.abort(click.name + "!")
    return Session(100 // click.user, math.sqrt(click.price))


@form()
def makes_strings(click: Click) -> Session:
    return Session(click.user, click.price, f"{click.name}!" if click.ok else click.name)


def made_by_helper(click: Click, scale: int = 2) -> Session:
    if click.ts > 10:
        raise KeyError(click.ts)
    return Session(click.user * scale, click.price)


def perhaps(session: Session, wanted: bool) -> Session | None:
    if not wanted:
        return None
    return session


@form(many="optional")
def helpers(click: Click) -> Session | None:
    made = made_by_helper(click, scale=3) if click.ok else made_by_helper(click)
    found = perhaps(made, click.name == "bob")
    return found if found is None or found.user != 6 else Session(found.user, 0.5)


@form(outputs=Click)
def loops(click: Click) -> Click:
    total, i = 0, 0
    for step in range(click.user % 4):
        if step == 2:
            break
        total += step
        click = replace(click, ts=click.ts + 1 if click.ts < 9 else 0)
    while i < 3:
        i += 1
        if i == click.ts:
            continue
        total += i
    return replace(click, user=total)


@dataclass
class Price:
    amount: Annotated[Decimal, tg.digits(6, 2)]
    rate: float | None = None


@form(outputs=Price)
def too_many_digits(click: Click) -> Price:
    return Price(Decimal("1000.00") * click.user)


@form(outputs=Price)
def ints_where_others_are_declared(click: Click) -> Price:
    return Price(click.user % 10, click.ts)


# --- state ---------------------------------------------------------------------------------------------------------


@form(Visit, many="optional")
def session(state: Visit, click: Click) -> Session | None:
    state.clicks += 1
    state.spent += click.price
    state.seen = click.ok
    if click.name == "bob":
        out = Session(click.user, state.spent, state.name)
        state.clicks, state.name = 0, click.name
        return out
    state.clicks = state.clicks // click.user
    return None


@form(Visit)
def escapes_late(state: Visit, click: Click) -> Session:
    state.name = click.name
    state.spent = click.price
    state.clicks = click.user
    if click.ok:
        state.clicks *= click.ts
    return Session(state.clicks, state.spent, state.name, ok=state.seen)


def bump(state: Visit, by: int) -> int:
    state.clicks += by
    return state.clicks


@form(Visit, many="optional")
def helper_writes(state: Visit, click: Click) -> Session | None:
    other = state
    if bump(other, 1) > 3:
        bump(state, by=click.user)
    return Session(state.clicks, 1.0) if state.seen else None


@form(Visit)
def int_in_a_float_of_the_state(state: Visit, click: Click) -> Session:
    if click.ok:
        state.spent = 0
    elif click.name:
        state.spent = click.user
    return Session(1, -state.spent)


@form(Visit)
def writes_nothing(state: Visit, click: Click) -> Session:
    return Session(click.user, state.spent)


# --- many ----------------------------------------------------------------------------------------------------------


@form(many="list")
def written_out(click: Click) -> list[Session]:
    if click.ok:
        return [Session(click.user, click.price), Session(100 // click.user, 1.0, "second")]
    return []


@form(many="list")
def appended(click: Click) -> list[Session]:
    out = []
    for step in range(click.user % 5):
        if step == 3 and click.ok:
            break
        out.append(Session(step, click.price, click.name))
        if len(out) == 2:
            out.append(Session(len(out), 0.5))
    if not out:
        out += [Session(0, 0.0), Session(1, 1.0)]
    return out


@form(many="list")
def annotated_and_extended(click: Click) -> list[Session]:
    out: list[Session] = [Session(1, 1.0)] if click.ok else []
    out.extend([Session(step, click.price) for step in range(click.user % 3)])
    return out


@form(many="list")
def begun_again(click: Click) -> list[Session]:
    out = list()
    out.append(Session(1, click.price))
    if click.ok:
        out = [Session(len(out) + 1, click.price), Session(3, 3.0)]
    if click.name:
        out.clear()
    out.append(Session(9, 9.0))
    return out


@form(many="list")
def comprehension(click: Click) -> list[Session]:
    return [Session(i * click.ts, click.price / i) for i in range(-1, click.user % 4) if i != 1 or click.ok]


@form(many="list", outputs=Click)
def conditional_lists(click: Click) -> list[Click]:
    return [click, replace(click, ts=1)] if click.ok else [] if click.name else [click for _ in range(2)]


@form(many="list")
def none_instead_of_a_list(click: Click) -> list[Session]:
    if click.ok:
        return None
    out = [Session(1, click.price)]
    return out


@form(Visit, many="list")
def list_and_state(state: Visit, click: Click) -> list[Session]:
    out = []
    for step in range(3):
        state.clicks += step
        out.append(Session(state.clicks, state.spent))
    if state.seen:
        out.append(perhaps(Session(4, 4.0), click.ok))
    return out


# --- filters and keys --------------------------------------------------------------------------------------------


@form(role="filter", outputs=Click)
def keeps(click: Click) -> bool:
    if click.user == 7:
        return True
    return (click.price > 1 and click.name != "bob") or 10 // click.user


@form(role="filter", outputs=Click)
def keeps_by_number(click: Click) -> int:
    return click.user


@form(role="filter", outputs=Click)
def keeps_nothing(click: Click) -> None:
    click = replace(click, user=1)


@form(role="key", outputs=Click)
def key_of_two_kinds(click: Click) -> int | float:
    return click.user if click.ok else click.price


@form(role="key", outputs=Click)
def key_or_none(click: Click) -> float | None:
    return click.price if click.ok else None


@form(role="key", outputs=Click)
def key_is_text(click: Click) -> str:
    if click.ok:
        return "same"
    return click.name


@form(role="key", outputs=Click)
def key_is_a_number_or_a_truth(click: Click) -> int:
    if click.ok:
        return click.user > 0
    return click.user % 10


@pytest.mark.parametrize("name", FORMS)
def test_an_operator_does_what_the_plain_function_does(name: str) -> None:
    function, how = FORMS[name]
    with uncompiled():
        _compare(function, how, CLICKS)


def _compare(function: Operator, how: dict[str, Any], clicks: list[Click]) -> None:
    desk = Desk(compiled(function, Click, **how), layout_of(how["outputs"]), how["state"])
    statuses = {
        check(desk, function, click, state)
        for click in clicks
        for state in (VISITS if how["state"] is not None else [None])
    }
    assert max(statuses) >= 0, "it always escapes: this tests nothing"


COMPILED = ["variable_on_branches", "helpers", "session", "appended", "list_and_state", "key_or_none", "keeps"]


@pytest.mark.parametrize("name", COMPILED)
def test_machine_code_does_what_the_plain_function_does(name: str) -> None:
    _compare(*FORMS[name], CLICKS[::7])


# --- lambdas -------------------------------------------------------------------------------------------------------


def test_a_lambda_is_found_among_others_in_its_line() -> None:
    factor = 3
    # fmt: off
    found = [lambda c: c.user % 10, lambda c: c.user % 100, lambda c: c.user * factor, lambda c: (lambda d: d)(c.user)]
    (long,) = (lambda
               c:
               c.price
               > 1,)
    # fmt: on
    with uncompiled():
        for function in found[:3]:
            desk = Desk(compiled(function, Click, role="key"), layout_of(Click), None)
            for click in CLICKS:
                check(desk, function, click)
        desk = Desk(compiled(long, Click, role="filter"), layout_of(Click), None)
        assert {check(desk, long, click, escapes=False) for click in CLICKS} == {0, 1}
    with pytest.raises(DefinitionError, match=r"test_operators\.py:\d+: operator lambda"):
        compiled(found[3], Click, role="key")


def test_a_lambda_that_is_not_surely_the_one_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec(compile("f = lambda c: c.user", "<nowhere>", "exec"), namespace)
    with pytest.raises(DefinitionError, match="its source cannot be read"):
        compiled(namespace["f"], Click, role="key")
    text = compile("\n" * 4 + "g = lambda c: c.user", __file__, "exec")  # this file says something else there
    exec(text, namespace)
    with pytest.raises(DefinitionError, match="its source cannot be read"):
        compiled(namespace["g"], Click, role="key")


# --- what is refused -----------------------------------------------------------------------------------------------


def assigns_to_the_record(click: Click) -> Click:
    click.user += 1
    return click


def returns_another_record(click: Click) -> Session:
    return click


def prints(click: Click) -> Session:
    print(click)  # noqa: T201
    return Session(1, 1.0)


def takes_a_default(click: Click, LIMIT: int = 7) -> Session:
    return Session(LIMIT, 1.0)


def tuple_key(click: Click) -> tuple[int, str]:
    return click.user, click.name


def compares_records(click: Click) -> bool:
    return click == Click(1, 2, 3.0, "")


def unknown_field(click: Click) -> Session:
    return Session(click.nobody, 1.0)


def too_few(click: Click) -> Session:
    return Session(click.user)


def two_lists(click: Click) -> list[Session]:
    out, other = [], []
    return out or other


def second_list(click: Click) -> list[Session]:
    out = []
    other = []
    other.append(Session(1, 1.0))
    return out if click.ok else other


def alias_of_a_list(click: Click) -> list[Session]:
    out = []
    same = out
    same.append(Session(1, 1.0))
    return out


def global_state(click: Click) -> Session:
    global LIMIT
    LIMIT += 1
    return Session(LIMIT, 1.0)


def calls_itself(click: Click) -> Session:
    return calls_itself(click)


@functools.wraps(by_position)
def wrapped(click: Click) -> Session:
    return by_position(replace(click, user=0))


REFUSED: dict[Operator, tuple[str, dict[str, Any]]] = {
    assigns_to_the_record: ("a record is a value", {"outputs": Click}),
    returns_another_record: ("declared to return a record Session, got a record Click", {}),
    prints: (r"print\(\) cannot be compiled", {}),
    takes_a_default: ("must take the record and nothing else", {}),
    tuple_key: ("Tuple", {"role": "key"}),
    compares_records: ("== of a record Click", {"role": "filter"}),
    unknown_field: ("'nobody' is no field of Click", {}),
    too_few: ("is not given 'spent', which has no default", {}),
    two_lists: ("List", {"many": "list"}),
    second_list: ("a second list, 'other'", {"many": "list"}),
    alias_of_a_list: ("a second name, 'same'", {"many": "list"}),
    global_state: ("Global", {}),
    calls_itself: ("calls itself", {}),
    wrapped: ("wrapped by a decorator", {}),
    functools.partial(by_position): ("required a plain function, got partial", {}),
    len: ("required a plain function", {}),
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: getattr(f, "__name__", "partial"))
def test_what_cannot_be_compiled_is_refused_with_its_line(function: Operator) -> None:
    message, how = REFUSED[function]
    with pytest.raises(DefinitionError, match=message) as refused:
        compiled(function, Click, **{"outputs": Session, **how})
    assert "compiled=False" not in str(refused.value)
    if hasattr(function, "__code__"):
        assert "test_operators.py:" in str(refused.value)


# --- random operators ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_random_operators_do_what_the_plain_functions_do(seed: int) -> None:
    counts = {"ran": 0, "escaped": 0}
    for number in range(40):
        choices = Choices(seed * 1000 + number)
        made = random_operator(choices)
        with imported(made.source) as module, uncompiled():
            outputs, state = getattr(module, made.outputs), module.Kept if made.has_state else None
            plan = compiled(module.operator, module.Given, outputs, state, made.many)
            desk = Desk(plan, layout_of(outputs), state)
            for _ in range(6):
                kept = None if state is None else random_fields(choices, state)
                status = check(desk, module.operator, random_fields(choices, module.Given), kept)
                counts["escaped" if status < 0 else "ran"] += 1
    assert counts["ran"] > 40, counts


# --- all types -----------------------------------------------------------------------------------------------------

TYPED = """
from dataclasses import dataclass, replace


@dataclass
class Given:
    a: {text}
    b: {text}
    c: {text} | None
    n: int


@dataclass
class Kept:
    v: {text}
    o: {text} | None


def copied(kept: Kept, given: Given) -> list[Given]:
    kept.v, kept.o = given.a, given.c
    out = [Given(given.b, kept.v, kept.o, 1), given]
    out.append(replace(given, c=None if given.n > 0 else given.a, n=2))
    return out


def optional(kept: Kept, given: Given) -> Given | None:
    kept.o = given.a if given.n > 0 else given.c
    if kept.o is None:
        return None
    kept.v = kept.o
    return Given(kept.o, kept.v, None, given.n)


def needed(kept: Kept, given: Given) -> Given:
    kept.o = None
    return Given(given.c, given.b, given.c, 3)


def is_none(given: Given) -> bool:
    return given.c is None or given.a == given.b


def key(given: Given) -> {text}:
    return given.a


def key_or_none(given: Given) -> {text} | None:
    return given.c
"""


@pytest.mark.parametrize("of", TYPES, ids=lambda of: of.name)
def test_fields_of_all_types_are_carried(of: Row) -> None:
    with imported(TYPES_HEADER + TYPED.format(text=of.text)) as module, uncompiled():
        records = [
            module.Given(a, b, c, n)
            for (a, b), c, n in itertools.product(
                zip(of.values, of.values[1:] + of.values[:1], strict=True), (None, of.values[-1]), (0, 2)
            )
        ]
        states = [module.Kept(of.values[0], None), module.Kept(of.values[-1], of.values[0])]
        for function, many in ((module.copied, "list"), (module.optional, "optional"), (module.needed, "one")):
            desk = Desk(
                compiled(function, module.Given, module.Given, module.Kept, many), layout_of(module.Given), module.Kept
            )
            statuses = [check(desk, function, record, state) for record in records for state in states]
            assert max(statuses) > 0
        for function, role in ((module.is_none, "filter"), (module.key, "key"), (module.key_or_none, "key")):
            desk = Desk(compiled(function, module.Given, role=role), layout_of(module.Given), None)
            statuses = [check(desk, function, record) for record in records]
            assert max(statuses) > 0


def reads_an_int_as_a_decimal(click: Click) -> Price:
    made = Price(click.user)
    return Price(made.amount / 2)


def reads_an_int_as_an_optional_float(click: Click) -> Price:
    made = Price(Decimal("1.00"), 0)
    return made if made.rate else Price(Decimal("2.00"))


@pytest.mark.parametrize("function", [reads_an_int_as_a_decimal, reads_an_int_as_an_optional_float])
def test_a_field_that_is_given_an_int_for_another_type_is_not_read_as_that_type(function: Operator) -> None:
    with pytest.raises(DefinitionError, match="and is given an int elsewhere"):
        compiled(function, Click, Price)


# --- classes that do more than hold fields -------------------------------------------------------------------------


@dataclass
class Checked:
    user: int

    def __post_init__(self) -> None:
        self.user = abs(self.user)


@dataclass(frozen=True, slots=True)
class Frozen:
    user: int
    price: float = 0.5


@dataclass
class Listed:
    user: int
    more: list[int] = field(default_factory=list)


@dataclass
class Watched:
    user: int

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Holder:
    """A descriptor: what is assigned to the field is not what is read."""

    def __get__(self, record: Any, owner: type) -> int:
        return 7

    def __set__(self, record: Any, value: int) -> None:
        pass


@dataclass
class Held:
    user: int = Holder()  # type: ignore[assignment]


@dataclass
class Falsy:
    user: int

    def __bool__(self) -> bool:
        return self.user > 0


def makes_checked(click: Click) -> Checked:
    return Checked(click.user)


def reads_checked(record: Checked) -> bool:
    return record.user > 0


def makes_frozen(click: Click) -> Frozen:
    return Frozen(click.user)


def reads_watched(record: Watched) -> bool:
    return record.user > 0


def asks_falsy(record: Falsy) -> bool:
    return bool(record)


def test_records_of_classes_that_run_code_are_left_to_plain_python() -> None:
    with pytest.raises(DefinitionError, match="Checked has __post_init__"):
        compiled(makes_checked, Click, Checked)
    with pytest.raises(DefinitionError, match="Watched has __getattribute__"):
        compiled(reads_watched, Watched, role="filter")
    with pytest.raises(DefinitionError, match="Falsy has __bool__"):
        compiled(asks_falsy, Falsy, role="filter")
    with uncompiled():
        check(Desk(compiled(makes_frozen, Click, Frozen), layout_of(Frozen), None), makes_frozen, CLICKS[-1])
        desk = Desk(compiled(reads_checked, Checked, role="filter"), layout_of(Checked), None)
        assert check(desk, reads_checked, Checked(-3)) == 1
    assert unusual(Held, "read") == "Held.user is a property"
    assert unusual(Visit, "assign") == ""
    assert unusual(Frozen, "assign") == "Frozen has __setattr__ (it is frozen)"
    assert unusual(Frozen, "make") == unusual(Listed, "make") == ""


@dataclass
class Odd:
    exists: bool = False


def names_the_key(state: Visit, click: Click) -> Session:
    return Session(state.key, 1.0)


def asks_whether_it_exists(state: Visit, click: Click) -> Session:
    return Session(1, 1.0, ok=tg.exists(state))


def deletes(state: Visit, click: Click) -> Session:
    tg.delete(state)
    return Session(1, 1.0)


def replaces_the_state(state: Visit, click: Click) -> Session:
    state = Visit()
    return Session(state.clicks, 1.0)


def marks(state: Odd, click: Click) -> Session:
    state.exists = True
    return Session(1, 1.0)


@pytest.mark.parametrize("function", [names_the_key, asks_whether_it_exists, deletes, replaces_the_state, marks])
def test_a_state_is_its_fields_and_nothing_else(function: Operator) -> None:
    with pytest.raises(DefinitionError, match=r"test_operators\.py:\d+: operator"):
        compiled(function, Click, Session, Odd if function is marks else Visit)


# --- linking -------------------------------------------------------------------------------------------------------


def total(state: Visit, click: Click) -> Session | None:
    state.clicks = made_up(state.clicks, click.user)
    return Session(state.clicks, 0.0, "same")


def made_up(a: int, b: int) -> int:
    return a + b


def test_one_function_twice_in_a_pipeline_has_two_states() -> None:
    plan = compiled(total, Click, Session, Visit, "optional")
    only = compiled(lambda click: click.name == "bob", Click, role="filter")
    linked = link_operators([plan, None, only, plan])
    assert {spec.of for spec in linked.arrays if spec.owner == "state"} == {0, 3}
    assert len({spec.name for spec in linked.arrays}) == len(linked.arrays)
    assert linked.literals == ("same", "bob", "same")
    with uncompiled():
        for place in (0, 3):
            check(Desk(plan, layout_of(Session), Visit, before=place), total, CLICKS[-1], VISITS[1], escapes=False)
        desk = Desk(plan, layout_of(Session), Visit)
        desk.number = 0  # an operator that plain Python runs
        assert desk.operate(CLICKS[0], 1)[0] == ESCAPE


def test_names_from_outside_are_known() -> None:
    plan = compiled(falls_off, Click, Session, many="optional")
    assert {outside.name: outside.value for outside in plan.outside}["LIMIT"] == LIMIT


def forever(state: Visit, click: Click) -> Session:
    state.clicks += 1
    while click.ok:
        state.clicks = 7
    return Session(1, 1.0)


@pytest.mark.parametrize("plain", [True, False])
def test_a_loop_that_never_ends_is_interrupted_and_undone(plain: bool) -> None:
    with uncompiled() if plain else nullcontext():
        desk = Desk(compiled(forever, Click, Session, Visit), layout_of(Session), Visit)
        desk.put(VISITS[1])
        before = desk.stored()
        desk.signals[0] = signal.SIGINT
        assert desk.operate(CLICKS[0], 1)[0] == INTERRUPTED
        assert desk.stored() == before
        assert not desk.exists[SLOT]


def test_a_state_exists_once_it_was_written() -> None:
    with uncompiled():
        desk = Desk(compiled(total, Click, Session, Visit, "optional"), layout_of(Session), Visit)
        check(desk, total, CLICKS[0], Visit(), escapes=False)
        assert desk.exists.tolist() == [False, True, False]
