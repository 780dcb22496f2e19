"""Which columns an event stream must have, and what `transact` adds to them.

The program's plan says which event columns its transactions need, and the schema which ones there are. Structural
mistakes are found here, before anything runs, and all of them are reported at once:

    column 'amount' is missing: required long (value of transfer, deposit); the columns are ts, src, dst
    column 'src' is string: required long (key of Account in transfer); ...

The engine decides which types a parameter takes (`engine.intake`): an `int` takes byte to long, a `float` any number
but a decimal, a `datetime` timestamp_ntz, and `Annotated[datetime, UTC]` timestamp. An order column is a number (no
decimal), a string, a date or a timestamp (`engine.arrival`). A column of request ids
is a whole number or a string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from tidegate.engine.expiry import require_times
from tidegate.engine.intake import check_type
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import ValueType
from tidegate.operations.outcomes import OUTCOME_COLUMNS, TRANSACTION_COLUMN
from tidegate.operations.pipeline import RecordLayout
from tidegate.operations.plan import Binding, Parameter, ProgramPlan, RowParameter

PARTITION_COLUMN = "__tidegate_partition"
"""The partition that a row came from, added before the shuffle: it lets the task restore the source's order."""

_ORDERED = (T.IntegralType, T.FloatType, T.DoubleType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)


def check_events(schema: T.StructType, plan: ProgramPlan, order_by: str | None, requests: str | None = None) -> None:
    """Raise an InputError that lists every mistake, unless the events fit the program."""
    problems = [*_reserved(schema), *_repeated(schema).values()]
    found = {field.name: field.dataType for field in schema.fields}
    if len(plan.entries) > 1 or (TRANSACTION_COLUMN in found and TRANSACTION_COLUMN not in plan.columns):
        why = f"which of {', '.join(plan.event_names[number] for number in plan.entries)} to run"
        fits = isinstance(found.get(TRANSACTION_COLUMN), T.StringType)
        problems += _column(schema, found, TRANSACTION_COLUMN, "string", why, fits)
    for binding in (*plan.rows, *plan.values):
        parameter = binding.parameter
        fits = parameter.name in found and _fits(found[parameter.name], parameter)
        required = describe(parameter)
        problems += _column(schema, found, parameter.name, required, _use(binding, plan), fits)
    if order_by is not None:
        problems += _order_column(schema, found, order_by)
    if requests is not None:
        fits = isinstance(found.get(requests), (T.IntegralType, T.StringType))
        problems += _column(schema, found, requests, "long or string", "requests", fits)
    if not problems:
        require_times(
            plan.clock, order_by, None if order_by is None else to_arrow_type(found[order_by], timezone="UTC")
        )
    if problems:
        raise InputError("transact: the events do not fit the program:\n" + "\n".join(dict.fromkeys(problems)))


def check_records(schema: T.StructType, record: RecordLayout, order_by: str | None) -> None:
    """Raise an InputError that lists every mistake, unless the rows fit the records of a pipeline."""
    found = {field.name: field.dataType for field in schema.fields}
    wanted = {column.name for column in record.fields} | {order_by}
    problems = [problem for name, problem in _repeated(schema).items() if name in wanted]
    for column in record.fields:
        fits = column.name in found and _accepts(found[column.name], column.type)
        why = f"{record.name}.{column.name}"
        problems += _column(schema, found, column.name, _name(column.type), why, fits)
    if order_by is not None:
        problems += _order_column(schema, found, order_by)
    if problems:
        raise InputError("ordered: the rows do not fit the pipeline:\n" + "\n".join(problems))


def output_schema(schema: T.StructType, plan: ProgramPlan) -> T.StructType:
    """The events' columns unchanged, then committed, reason and result."""
    committed, reason, result = OUTCOME_COLUMNS
    outcome = [
        T.StructField(committed, T.BooleanType(), nullable=False),
        T.StructField(reason, T.StringType()),
        T.StructField(result, spark_type(plan.result_column)),
    ]
    return T.StructType([*schema.fields, *outcome])


def spark_type(found: pa.DataType) -> T.DataType:
    """The Spark type of an Arrow type; timestamps without a zone are timestamp_ntz."""
    return from_arrow_type(found, prefer_timestamp_ntz=True)


def needed_columns(
    plan: ProgramPlan, order_by: str | None, there: Collection[str], requests: str | None = None
) -> list[str]:
    """The event columns that affect what is run and what is kept; the others are only passed through."""
    named = [name for name in (order_by, requests) if name is not None]
    wanted = dict.fromkeys((TRANSACTION_COLUMN, *plan.columns, *named))
    return [name for name in wanted if name in there]


def describe(parameter: Parameter) -> str:
    """The Spark type that a parameter's column must have."""
    if not isinstance(parameter, RowParameter):
        one = _name(parameter.type)
    elif len(parameter.table.key) == 1:
        one = _name(parameter.table.key_columns[0].type)
    else:
        fields = (f"{column.name}: {_name(column.type)}" for column in parameter.table.key_columns)
        one = f"struct<{', '.join(fields)}>"
    return f"array<{one}>" if parameter.many else one


def _name(value_type: ValueType) -> str:
    """A Spark type by the name that `cast` takes."""
    name = spark_type(value_type.arrow).simpleString()
    return {"bigint": "long"}.get(name, name)


def _reserved(schema: T.StructType) -> list[str]:
    names = {*OUTCOME_COLUMNS, PARTITION_COLUMN}
    return [
        f"  column {name!r} is there already, and transact adds one of that name: rename it "
        f'(events.withColumnRenamed("{name}", ...)) or drop it'
        for name in schema.names
        if name.lower() in names  # Spark's column names are case-insensitive
    ]


def _repeated(schema: T.StructType) -> dict[str, str]:
    """What is wrong with columns that are there several times, by name."""
    return {
        name: f"  column {name!r} is there {count} times: required once; rename or drop the others"
        for name, count in Counter(schema.names).items()
        if count > 1
    }


def _order_column(schema: T.StructType, found: dict[str, T.DataType], order_by: str) -> list[str]:
    fits = isinstance(found.get(order_by), _ORDERED)
    return _column(schema, found, order_by, "long, double, string, date or timestamp", "order_by", fits)


def _column(
    schema: T.StructType, found: dict[str, T.DataType], name: str, required: str, why: str, fits: bool
) -> list[str]:
    """What is wrong with one column, if anything."""
    if name not in found:
        similar = [other for other in found if other.lower() == name.lower()]
        advice = f"; rename {similar[0]!r}, names are told apart by case here" if similar else ""
        return [
            f"  column {name!r} is missing: required {required} ({why}); "
            f"the columns are {', '.join(schema.names) or 'none'}{advice}"
        ]
    if fits:
        return []
    given = found[name].simpleString()
    target = {"order_by": "long", "requests": "string"}.get(why, required)
    cast, caution = _cast(kind := found[name], name, target)
    if isinstance(kind, T.DecimalType) and why not in ("order_by", "requests"):
        caution += f"; or declare it Annotated[Decimal, tg.digits({kind.precision}, {kind.scale})], and cast nothing"
    example = f'events.withColumn("{name}", {cast})'
    return [f"  column {name!r} is {given}: required {required} ({why}); cast it, for example {example}{caution}"]


def _cast(given: T.DataType, name: str, target: str) -> tuple[str, str]:
    """How to cast a column, and what to know about it: a cast of a fraction to a whole number would drop cents."""
    column = f'events["{name}"]'
    if target == "long" and isinstance(given, T.DecimalType) and given.scale > 0:
        factor = 10**given.scale
        return f'({column} * {factor}).cast("long")', f": whole units of 1/{factor}; without the factor, cents are lost"
    if target == "long" and isinstance(given, T.FractionalType) and not isinstance(given, T.DecimalType):
        return f'F.round({column} * 100).cast("long")', ": cents; a cast alone drops all that is behind the point"
    if target == "double" and isinstance(given, T.DecimalType):
        return f'{column}.cast("double")', ": a double holds about 15 digits; for exact money take an int of cents"
    return f'{column}.cast("{target}")', ""


def _use(binding: Binding, plan: ProgramPlan) -> str:
    users = ", ".join(plan.names[index] for index in binding.users)
    parameter = binding.parameter
    if isinstance(parameter, RowParameter):
        return f"key{'s' if parameter.many else ''} of {parameter.table.name} in {users}"
    return f"value{'s' if parameter.many else ''} in {users}"


def _arrow_type(given: T.DataType) -> pa.DataType:
    """As Spark sends it: a timestamp carries the session's zone, and any zone is as good as another here."""
    try:
        return to_arrow_type(given, timezone="UTC")
    except TypeError:  # before Spark 4.2, timestamps were in UTC without being asked
        return to_arrow_type(given)


def _accepts(given: T.DataType, wanted: ValueType) -> bool:
    try:
        return wanted.accepts(_arrow_type(given))
    except PySparkException:  # Arrow has no such type
        return False


def _fits(given: T.DataType, parameter: Parameter) -> bool:
    try:
        check_type(_arrow_type(given), parameter, "transact")
    except (InputError, PySparkException):  # the engine does not take it, or Arrow has no such type
        return False
    return True
