"""What `@tg.table` makes of a class, and what it refuses with the line."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.api.table import layout_of
from tidegate.operations.layout import Kind


@tg.table(key="id")
class Account:
    """An account."""

    id: int
    balance: int = 0
    rate: float = 1
    open: bool = True
    owner: str = "nobody"


@tg.table(key=("segment", "vehicle"))
class Position:
    vehicle: str
    segment: int
    speed: float


def test_a_class_stays_a_class_and_its_instances_are_rows() -> None:
    row = Account(id=1, balance=5)
    assert isinstance(row, Account)
    assert (row.id, row.balance, row.rate, row.open, row.owner, row.exists) == (
        1,
        5,
        1.0,
        True,
        "nobody",
        True,
    )
    assert Account.__name__ == "Account"
    assert Account.__doc__ == "An account."


def test_fields_may_be_given_in_their_order() -> None:
    assert Account(1, 5) == Account(id=1, balance=5)
    assert Position("a", 3, 2.5) == Position(segment=3, vehicle="a", speed=2.5)


def test_an_absent_row_reads_as_the_defaults() -> None:
    row = Account(1, exists=False)
    assert not row.exists
    assert row.balance == 0
    assert Position("a", 3, exists=False).speed == 0.0


def test_fields_without_a_default_read_as_zero() -> None:
    @tg.table(key="id")
    class Plain:
        id: int
        count: int
        share: float
        flag: bool
        text: str

    row = Plain(1, exists=False)
    assert repr((row.count, row.share, row.flag, row.text)) == "(0, 0.0, False, '')"


def test_assigning_a_field_makes_the_row_exist() -> None:
    row = Account(1, exists=False)
    row.balance = 0
    assert row.exists


def test_deleting_resets_the_fields_and_an_assignment_brings_the_row_back() -> None:
    row = Account(1, 50, owner="me")
    tg.delete(row)
    assert (row.id, row.balance, row.owner, row.exists) == (1, 0, "nobody", False)
    row.balance += 3
    assert (row.balance, row.owner, row.exists) == (3, "nobody", True)


def test_an_int_in_a_float_field_becomes_a_float() -> None:
    row = Account(1)
    row.rate = 3
    assert type(row.rate) is float
    assert type(Account(1, rate=2).rate) is float


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_an_int_outside_64_bits_aborts_with_overflow(value: int) -> None:
    row = Account(1, balance=7)
    with pytest.raises(tg.Abort, match=r"^overflow$"):
        row.balance = value
    assert row.balance == 7


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_limits_of_64_bits_fit(value: int) -> None:
    row = Account(1)
    row.balance = value
    assert row.balance == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("balance", 1.0),
        ("balance", "1"),
        ("balance", None),
        ("rate", "1.0"),
        ("open", 1),
        ("owner", 3),
        ("owner", None),
    ],
)
def test_a_value_of_another_type_is_a_type_error_that_names_the_field(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"Account.{field}"):
        setattr(Account(1), field, value)


def test_the_key_cannot_be_assigned() -> None:
    with pytest.raises(AttributeError, match="key"):
        Account(1).id = 2


def test_an_unknown_field_cannot_be_assigned_and_the_message_lists_the_fields() -> None:
    with pytest.raises(AttributeError, match=r"'balanse'.*id, balance, rate, open, owner"):
        Account(1).balanse = 2


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((), {}, "id"),
        ((1, 2, 1.0, True, "a", 6), {}, "5 fields"),
        ((1,), {"id": 2}, "twice"),
        ((1,), {"x": 2}, "'x'"),
    ],
)
def test_a_row_must_be_made_of_its_fields(arguments: tuple, named: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Account(*arguments, **named)


def test_rows_compare_by_value_and_show_themselves() -> None:
    assert Account(1, 5) == Account(1, 5)
    assert Account(1, 5) != Account(1, 6)
    assert Account(1) != Account(1, exists=False)
    assert "Account(id=1, balance=5" in repr(Account(1, 5))


def test_rows_pickle() -> None:
    row = Account(1, 5, exists=False)
    assert pickle.loads(pickle.dumps(row)) == row


def test_the_layout_says_what_was_declared() -> None:
    layout = layout_of(Position)
    assert layout is not None
    assert (layout.name, layout.key) == ("Position", ("segment", "vehicle"))
    assert [(column.name, column.kind) for column in layout.columns] == [
        ("vehicle", Kind.STR), ("segment", Kind.INT), ("speed", Kind.FLOAT),
    ]  # fmt: skip
    assert [column.name for column in layout.key_columns] == ["segment", "vehicle"]
    assert layout.arrow_schema.types == [pa.string(), pa.int64(), pa.float64()]
    assert layout_of(int) is None


def line_of(text: str) -> int:
    """The first line of this file that contains the text."""
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line and "line_of" not in line)


def refusal(error: pytest.ExceptionInfo[tg.DefinitionError], marker: str) -> str:
    """The message, after checking that it shows file, line number and source line of the marker."""
    message = str(error.value)
    number = line_of(f"# {marker}")
    with open(__file__) as file:
        line = file.read().splitlines()[number - 1].strip()
    assert f"{__file__}:{number}:" in message, message
    assert line in message, message
    return message


def test_a_field_type_that_a_column_cannot_hold() -> None:
    with pytest.raises(tg.DefinitionError) as error:

        @tg.table(key="id")
        class Wrong:
            id: int
            history: list[int]  # field of a wrong type

    message = refusal(error, "field of a wrong type")
    assert "history" in message
    assert "list[int]" in message
    assert "float, bool, str" in message


def test_an_annotation_that_is_not_defined() -> None:
    with pytest.raises(tg.DefinitionError, match="Nowhere"):

        @tg.table(key="id")
        class Wrong:
            id: int
            place: Nowhere  # noqa: F821


def test_a_key_that_is_no_field() -> None:
    with pytest.raises(tg.DefinitionError) as error:

        @tg.table(key="number")  # key that is no field
        class Wrong:
            id: int
            balance: int

    message = refusal(error, "key that is no field")
    assert "'number'" in message
    assert "id, balance" in message


@pytest.mark.parametrize("key", [(), "", ("id", "id"), 3, (1,), None])
def test_a_key_that_is_no_key(key: object) -> None:
    with pytest.raises(tg.DefinitionError, match="key"):

        @tg.table(key=key)
        class Wrong:
            id: int


def test_a_table_without_fields() -> None:
    with pytest.raises(tg.DefinitionError, match="id"):

        @tg.table(key="id")
        class Wrong:
            pass


def test_a_reserved_field_name() -> None:
    with pytest.raises(tg.DefinitionError) as error:

        @tg.table(key="id")
        class Wrong:
            id: int
            exists: bool  # reserved name

    assert "'exists'" in refusal(error, "reserved name")


@pytest.mark.parametrize(
    ("kind", "default"),
    [(int, 0.5), (int, "0"), (int, 2**63), (int, None), (bool, 1), (str, 0), (float, "0")],
)
def test_a_default_that_does_not_fit_its_field(kind: type, default: object) -> None:
    body = {"__annotations__": {"id": int, "value": kind}, "value": default}
    with pytest.raises(tg.DefinitionError, match=r"default.*'value'"):
        tg.table(key="id")(type("Wrong", (), body))
