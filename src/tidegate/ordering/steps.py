"""Operators as they are declared: a function, how many outputs it has for a record, its key and its state.

`read_function` reads what a function's annotations say, and asks the compiler. A function that cannot be compiled is
run as plain Python, and a warning says where and why.

    def session(state: Visit, click: Click) -> Session | None

    takes Click, keeps a Visit for each key, gives one Session or none
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from tidegate.api.annotations import Unsuitable, value_type
from tidegate.compiler.operators import compile_operator
from tidegate.foundation.arguments import shown
from tidegate.foundation.errors import DefinitionError, TidegateWarning
from tidegate.operations.kinds import Kind
from tidegate.operations.layout import Column, TableLayout
from tidegate.operations.pipeline import OperatorPlan, RecordLayout, unusual
from tidegate.ordering.records import record_layout

Role = Literal["map", "filter", "key"]
Many = Literal["one", "optional", "list"]
STATE_KEY = "key_of_the_state"
"""The key column of the table that holds the states of a compiled operator; no field of a user's is called so."""

_LISTS = (list, tuple, collections.abc.Iterable, collections.abc.Iterator, collections.abc.Sequence)


class Side(enum.Enum):
    """What a function sees besides its record."""

    STATELESS = "stateless"
    KEYED = "keyed"
    STATEFUL = "stateful"


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One operator of a pipeline. `plan` is None if it runs as plain Python, and then `reason` says why."""

    name: str
    function: Callable[..., Any]
    role: Role
    side: Side
    takes: RecordLayout
    gives: RecordLayout
    many: Many
    state: type | None = None
    key: str | Callable[[Any], Any] | None = None
    partitions: int | tuple[Any, ...] = 0
    selector: Operator | None = None
    """Finds the keys, where they are no field."""
    plan: OperatorPlan | None = None
    state_layout: TableLayout | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Signature:
    parameters: list[Any]
    returns: Any


def stateless(function: Any, verb: str, takes: RecordLayout, names: Mapping[str, Any]) -> Operator:
    """The operator of `.map`, `.flat_map` or `.filter`."""
    signature = _signature(function, verb, 1, names)
    _require_record(function, signature.parameters[0], takes)
    if verb == "filter":
        return _compiled(Operator(_name(function), function, "filter", Side.STATELESS, takes, takes, "optional"))
    gives, many = _outputs(function, verb, signature.returns, takes, names)
    if verb == "flat_map" and many != "list":
        raise DefinitionError(
            f"flat_map: {_where(function)} returns {_shown(signature.returns)}, required: list[...] of a dataclass; "
            "use .map for a function that returns one record or none"
        )
    return _compiled(Operator(_name(function), function, "map", Side.STATELESS, takes, gives, many))


def stateful(
    function: Any, takes: RecordLayout, key: Any, partitions: int | tuple[Any, ...], names: Mapping[str, Any]
) -> Operator:
    """The operator of `.stateful`."""
    signature = _signature(function, "stateful", 2, names)
    state = signature.parameters[0]
    if not isinstance(state, type) or not dataclasses.is_dataclass(state):
        raise DefinitionError(
            f"stateful: the first parameter of {_where(function)} is its state, annotated with a dataclass; got "
            f"{_shown(state)}"
        )
    without = [f.name for f in dataclasses.fields(state) if f.init and _has_no_default(f)]
    if without:
        raise DefinitionError(
            f"stateful: {state.__name__}.{without[0]} has no default, and a new key begins with the defaults; write "
            f"for example {without[0]}: int = 0"
        )
    _require_record(function, signature.parameters[1], takes)
    if isinstance(key, str) and key not in [column.name for column in takes.fields]:
        known = ", ".join(column.name for column in takes.fields)
        raise DefinitionError(f"stateful: key={key!r} is not a field of {takes.name}; fields are: {known}")
    if key is not None and not isinstance(key, str) and not callable(key):
        raise DefinitionError(f"stateful: key: required a field or a function of the record, got {shown(key)}")
    gives, many = _outputs(function, "stateful", signature.returns, takes, names)
    side = Side.STATEFUL if key is None else Side.KEYED
    selector = _key_selector(key, takes) if callable(key) else None
    made = Operator(_name(function), function, "map", side, takes, gives, many, state, key, partitions, selector)
    return _compiled(dataclasses.replace(made, state_layout=_state_layout(state, names)))


def _key_selector(function: Callable[[Any], Any], takes: RecordLayout) -> Operator:
    """The operator that finds the keys of records."""
    gives = dataclasses.replace(takes, fields=(*takes.fields, Column(STATE_KEY, Kind.INT, None)))
    return _compiled(Operator(f"key {_name(function)}", function, "key", Side.STATELESS, takes, gives, "one"))


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _compiled(operator: Operator) -> Operator:
    """The operator with generated code, or with the reason why it has none."""
    try:
        if operator.state is not None and operator.state_layout is None:
            problem = _runs_code(operator.state) or (
                "a field has another type than those of tables, or no plain default"
            )
            raise DefinitionError(
                f"{_where(operator.function)}: a state {operator.state.__name__} cannot be kept in columns: {problem}"
            )
        plan = compile_operator(
            operator.function,
            operator.role,
            operator.takes,
            operator.state_layout,
            None if operator.role == "key" else operator.gives,
            operator.many,
        )
    except (DefinitionError, OSError, SyntaxError) as error:
        told = f"operator {operator.name!r} runs as plain Python, one record at a time for all workers: {error}"
        warnings.warn(told, TidegateWarning, stacklevel=4)
        return dataclasses.replace(operator, reason=str(error), state_layout=None)
    return dataclasses.replace(operator, plan=plan)


def _runs_code(state: type) -> str:
    """What plain Python does besides to make a state, read it and assign to it; empty if that is all."""
    return unusual(state, "make") or unusual(state, "read") or unusual(state, "assign")


def _state_layout(state: type, names: Mapping[str, Any]) -> TableLayout | None:
    """The layout of the table that holds states; None if a column cannot hold a field, or making one runs code."""
    hints = typing.get_type_hints(state, localns=dict(names), include_extras=True)
    if _runs_code(state):
        return None
    columns = [Column(STATE_KEY, Kind.INT, None)]
    for field in dataclasses.fields(state):
        try:
            found = value_type(hints[field.name])
        except Unsuitable:
            return None
        if found is None or field.default is dataclasses.MISSING or field.name == STATE_KEY:
            return None
        try:
            columns.append(Column(field.name, found, found.encode(found.fit(field.default))))
        except (TypeError, ValueError, OverflowError):
            return None
    return TableLayout(state.__name__, tuple(columns), (STATE_KEY,))


# --- annotations ------------------------------------------------------------------------------------------------------


def _signature(function: Any, verb: str, count: int, names: Mapping[str, Any]) -> _Signature:
    if not callable(function) or isinstance(function, type):
        raise DefinitionError(f"{verb}: required a function, got {shown(function)}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = typing.get_type_hints(_annotated(function), localns=dict(names))
    except (NameError, TypeError, ValueError) as error:
        raise DefinitionError(f"{verb}: an annotation of {_where(function)} cannot be resolved: {error}") from error
    wanted = "the record" if count == 1 else "the state and the record"
    if len(parameters) != count or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
        raise DefinitionError(
            f"{verb}: {_where(function)} takes {', '.join(p.name for p in parameters) or 'nothing'}, required: {wanted}"
        )
    return _Signature([hints.get(p.name) for p in parameters], hints.get("return", inspect.Signature.empty))


def _annotated(function: Any) -> Any:
    """What carries the annotations of a function, a method, a partial or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _require_record(function: Any, annotation: Any, takes: RecordLayout) -> None:
    if annotation is not None and annotation is not takes.python and annotation is not Any:
        raise DefinitionError(
            f"{_where(function)} takes {_shown(annotation)}, but the records that arrive here are {takes.name}"
        )


def _outputs(
    function: Any, verb: str, returns: Any, takes: RecordLayout, names: Mapping[str, Any]
) -> tuple[RecordLayout, Many]:
    """What a function returns: the layout of its outputs, and how many there may be."""
    many: Many = "one"
    inner = returns
    if get_origin(returns) in (typing.Union, types.UnionType):
        parts = [part for part in get_args(returns) if part is not type(None)]
        many, inner = "optional", parts[0] if len(parts) == 1 else returns
    if get_origin(inner) in _LISTS:
        many, inner = "list", get_args(inner)[0]
    if inner is takes.python:
        return takes, many
    if not (isinstance(inner, type) and dataclasses.is_dataclass(inner)):
        raise DefinitionError(
            f"{verb}: {_where(function)} must say what it returns: -> X, -> X | None or -> list[X], where X is a "
            f"dataclass; got {'no annotation' if returns is inspect.Signature.empty else _shown(returns)}"
        )
    return record_layout(f"{verb}: {_where(function)}", inner, names), many


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _where(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return f"{_name(function)}()" + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")


def _shown(annotation: Any) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type)
        else "no annotation"
        if annotation is None
        else str(annotation)
    )
