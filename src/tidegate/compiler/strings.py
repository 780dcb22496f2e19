"""Strings in a body: what looks at strings is compiled, what makes a new one is left to plain Python.

A string is its number in the engine's pool, so == compares numbers. Its length, its order and what is in it are read
from the pool's bytes (`engine.kernels.texts`). A string that was not there before gets its number from the pool, which
compiled code cannot change while others read it. So where a body makes a string, the transaction escapes, and plain
Python runs it:

    account.label = f"{name}: {total}"                 always
    tg.require(total < 10, f"{name} has {total}")      only where it aborts
    return f"{name}: {total}"                          never: the parts are kept, and put together after the run

Python computes a reason before it checks the condition, so what a reason is made of is evaluated always; only putting
it together is left out as long as nobody reads it. That is right if it cannot fail: `postponed` knows what cannot.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.compiler import values
from tidegate.compiler.types import MIXED, Nothing, Term, Type, ValueList, describe
from tidegate.operations.kinds import Carried, Kind, encodable
from tidegate.operations.texts import Bytes, Uuid
from tidegate.operations.times import Date, DateTime, Duration
from tidegate.operations.values import Optional

if TYPE_CHECKING:
    from tidegate.compiler.calls import Calls
    from tidegate.compiler.expressions import Expressions
    from tidegate.compiler.numbers import Numbers

_SAFE = ("upper", "lower", "strip", "lstrip", "rstrip", "title", "capitalize", "swapcase", "casefold")
_METHODS: dict[str, Kind] = {
    **dict.fromkeys(_SAFE, Kind.STR),
    **dict.fromkeys(("replace", "removeprefix", "removesuffix", "zfill", "ljust", "rjust", "center"), Kind.STR),
    **dict.fromkeys(("format", "expandtabs", "join"), Kind.STR),
    **dict.fromkeys(("find", "rfind", "index", "rindex", "count"), Kind.INT),
    **dict.fromkeys(("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier"), Kind.BOOL),
    **dict.fromkeys(("islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper"), Kind.BOOL),
}
_ENDS = {"startswith": "text_starts", "endswith": "text_ends"}
_SAMPLES: dict[Type, tuple[object, ...]] = {
    Kind.INT: (0, -1),
    Kind.FLOAT: (0.5,),
    Kind.BOOL: (True,),
    Kind.STR: ("a",),
    MIXED: (0, -1, 0.5),
}


@dataclass(frozen=True, slots=True)
class Made:
    """A new string: a Python expression over `part_0`, `part_1` and so on, and these parts."""

    template: str
    parts: list[Term]


# --- compiled ---------------------------------------------------------------------------------------------


def ordered(numbers: Numbers, left: Term, sign: str, right: Term) -> str:
    """Code for left sign right."""
    if sign in ("==", "!="):
        return f"{left.code} {sign} {right.code}"
    return f"(compare_texts({numbers.array('texts')}, {left.code}, {right.code}) {sign} 0)"


def contains(expressions: Expressions, part: Term, whole: Term) -> str:
    """Code for part in whole."""
    return f"text_in({expressions.array('texts')}, {part.code}, {whole.code})"


def length(calls: Calls, term: Term) -> Term:
    """len(s)."""
    return Term(calls.keep(f"text_length({calls.array('texts')}, {term.code})"), Kind.INT)


def is_text(expressions: Expressions, node: ast.expr) -> bool:
    """Whether the owner of a method is a string: what a name of the module or a variable says, or an expression."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and expressions.variable(root) is None:
        return isinstance(expressions.source.resolve(node), str)
    return not isinstance(root, ast.Name) or values.is_text(expressions.value(node).type)


def method(calls: Calls, node: ast.Call) -> Term:
    """s.method(...)."""
    assert isinstance(node.func, ast.Attribute)
    name, text = node.func.attr, values.plain(calls, calls.value(node.func.value))
    if text.type is not Kind.STR:
        calls.refuse(node, f"{ast.unparse(node.func)}() cannot be compiled: {describe(text.type)} has no methods here")
    if name in _ENDS and len(node.args) == 1 and not node.keywords:
        return _has_end(calls, _ENDS[name], text, node.args[0])
    if name not in _METHODS:
        known = ", ".join(sorted((*_METHODS, *_ENDS)))
        calls.refuse(node, f"the method {name}() of a string cannot be compiled", f"known are: {known}")
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        plain(calls, calls.value(argument), argument)
    return made(calls, _METHODS[name], node)


def _has_end(calls: Calls, function: str, text: Term, node: ast.expr) -> Term:
    """s.startswith(part) and s.endswith(part), of a string or a tuple of them."""
    parts = [values.plain(calls, calls.value(p)) for p in (node.elts if isinstance(node, ast.Tuple) else [node])]
    for part in parts:
        if part.type is not Kind.STR:
            calls.refuse(node, f"a string, or a tuple of them, is required here, got {describe(part.type)}")
    found = [f"{function}({calls.array('texts')}, {text.code}, {part.code})" for part in parts]
    return Term(calls.keep(" or ".join(found) or "False"), Kind.BOOL)


# --- left to plain Python -----------------------------------------------------------------------------------


def made(expressions: Expressions, kind: Kind, node: ast.AST) -> Term:
    """What plain Python computes from strings: the transaction escapes here."""
    expressions.continue_in_python(node)
    return Term({Kind.FLOAT: "0.0", Kind.BOOL: "False"}.get(kind, "0"), kind)


def combined(expressions: Expressions, left: Term, right: Term, node: ast.BinOp | ast.AugAssign) -> Term:
    """a + b, a * n and a % b, where a or b is a string."""
    kinds = {left.type, right.type}
    adds = isinstance(node.op, ast.Add) and kinds == {Kind.STR}
    repeats = isinstance(node.op, ast.Mult) and kinds in ({Kind.STR, Kind.INT}, {Kind.STR, Kind.BOOL})
    if not (adds or repeats or (isinstance(node.op, ast.Mod) and left.type is Kind.STR)):
        advice = "write str(...) around what is no string" if isinstance(node.op, ast.Add) else ""
        shown = f"{describe(left.type)} and {describe(right.type)}"
        expressions.refuse(node, f"{type(node.op).__name__} is not defined for {shown}", advice)
    if adds and isinstance(left.constant, str) and isinstance(right.constant, str):
        return expressions.constant(left.constant + right.constant, node)
    plain(expressions, right, node)
    return made(expressions, Kind.STR, node)


def formatted(expressions: Expressions, node: ast.JoinedStr) -> Term:
    """An f-string."""
    if all(isinstance(part, ast.Constant) for part in node.values):
        return expressions.constant("".join(str(part.value) for part in node.values), node)  # type: ignore[attr-defined]
    for part in _fields(node):
        plain(expressions, expressions.value(part.value), part)
    return made(expressions, Kind.STR, node)


def part_of(expressions: Expressions, node: ast.Subscript) -> Term:
    """s[i] and s[i:j:k]."""
    places = [node.slice]
    if isinstance(node.slice, ast.Slice):
        places = [place for place in (node.slice.lower, node.slice.upper, node.slice.step) if place is not None]
    for place in places:
        expressions.integer(expressions.number(place), place)
    return made(expressions, Kind.STR, node)


def plain(expressions: Expressions, term: Term, node: ast.AST) -> Term:
    """The term, which must be something that becomes a string: a value, or a list of them."""
    if not (isinstance(term.type, Kind | Carried | Nothing | ValueList) or term.type is MIXED):
        expressions.refuse(node, f"a value is required in a string, got {describe(term.type)}", "name a field")
    return term


def postponed(expressions: Expressions, node: ast.expr) -> Term:
    """A string that is only needed where the transaction aborts; its number is none.

    What it is made of is evaluated here, and may abort or escape. If making the string itself may fail, that is left to
    plain Python here, too.
    """
    return _taken_apart(expressions, node, [])[0]


def made_later(expressions: Expressions, node: ast.expr) -> tuple[Term, Made | None]:
    """The term of a value that is returned; and for a new string, how it is put together after the run.

    If making it may fail, or if a part need not be written as Python does, the transaction escapes instead.
    """
    if not isinstance(node, ast.JoinedStr | ast.BinOp | ast.Call):
        return expressions.value(node), None
    parts: list[Term] = []
    term, template = _taken_apart(expressions, node, parts)
    if term.type is not Kind.STR or isinstance(template, ast.Name | ast.Constant):
        return term, None
    if not all(_is_exact(part.type) for part in parts) or not _is_encodable(template):
        return made(expressions, Kind.STR, node), None
    return term, Made(ast.unparse(template), parts)


def _taken_apart(expressions: Expressions, node: ast.expr, parts: list[Term]) -> tuple[Term, ast.expr]:
    """A string, and how it is made from its parts: an expression over `part_0` and so on, which join `parts`."""
    match node:
        case ast.JoinedStr():
            pieces = [_piece(expressions, piece, node, parts) for piece in node.values]
            join = ast.Attribute(ast.Constant(""), "join")
            return Term("0", Kind.STR), ast.Call(join, [ast.List(pieces)], [])
        case ast.BinOp(op=ast.Add()):
            known = len(parts)
            left, first = _taken_apart(expressions, node.left, parts)
            right, second = _taken_apart(expressions, node.right, parts)
            if left.type is right.type is Kind.STR:
                return Term("0", Kind.STR), ast.BinOp(first, ast.Add(), second)
            del parts[known:]
            return _part(expressions.operation(left, right, node), parts)
        case ast.Call(func=ast.Name() as name, args=[argument], keywords=[]) if _is_str(expressions, name):
            term, inner = _taken_apart(expressions, argument, parts)
            plain(expressions, term, argument)
            return Term("0", Kind.STR), ast.Call(ast.Name("str"), [inner], [])
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[], keywords=[]) if name in _SAFE and is_text(
            expressions, owner
        ):
            _, inner = _taken_apart(expressions, owner, parts)
            return Term("0", Kind.STR), ast.Call(ast.Attribute(inner, name), [], [])
    return _part(expressions.value(node), parts)


def _part(term: Term, parts: list[Term]) -> tuple[Term, ast.expr]:
    if term.constant is not None and isinstance(term.type, Kind):
        return term, ast.Constant(term.constant)
    parts.append(term)
    return term, ast.Name(f"part_{len(parts) - 1}")


def _piece(expressions: Expressions, piece: ast.expr, node: ast.JoinedStr, parts: list[Term]) -> ast.expr:
    """A piece of an f-string, as an expression that gives its text."""
    if not isinstance(piece, ast.FormattedValue):
        return piece
    term, inner = _taken_apart(expressions, piece.value, parts)
    plain(expressions, term, piece)
    spec = ""
    if isinstance(piece.format_spec, ast.JoinedStr):
        for part in _fields(piece.format_spec):
            plain(expressions, postponed(expressions, part.value), part)
        spec = "".join(str(each.value) for each in piece.format_spec.values if isinstance(each, ast.Constant))
    if not _surely_formats(term.type, piece):
        expressions.continue_in_python(node)
    if piece.conversion != -1:
        inner = ast.Call(ast.Name(_CONVERSIONS[chr(piece.conversion)]), [inner], [])
    return ast.Call(ast.Name("format"), [inner, ast.Constant(spec)], [])


_CONVERSIONS = {"s": "str", "r": "repr", "a": "ascii"}


def _is_exact(found: Type) -> bool:
    """Whether a word of a type says how Python writes its value: a Decimal may have other zeros at its end."""
    base = found.base if isinstance(found, Optional) else found
    return isinstance(base, Kind | Date | DateTime | Duration | Bytes | Uuid)


def _is_encodable(template: ast.expr) -> bool:
    return all(
        encodable(each.value)
        for each in ast.walk(template)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def _fields(node: ast.JoinedStr) -> Iterator[ast.FormattedValue]:
    """The values in an f-string, with those in their formats."""
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            yield part
            if isinstance(part.format_spec, ast.JoinedStr):
                yield from _fields(part.format_spec)


def _is_str(expressions: Expressions, name: ast.Name) -> bool:
    return expressions.source.resolve(name) is str and expressions.variable(name) is None


def _surely_formats(value_type: Type, part: ast.FormattedValue) -> bool:
    """Whether any value of a type can be formatted so."""
    if part.format_spec is None:
        return not values.formats_itself(value_type)
    assert isinstance(part.format_spec, ast.JoinedStr)
    texts = [str(each.value) for each in part.format_spec.values if isinstance(each, ast.Constant)]
    spec, samples = "".join(texts), _SAMPLES[Kind.STR] if part.conversion != -1 else _SAMPLES.get(value_type, ())
    if len(texts) < len(part.format_spec.values) or not samples or spec.endswith("c"):  # of a number, its character
        return False
    try:
        for sample in samples:
            format(sample, spec)
    except (ValueError, OverflowError, MemoryError):
        return False
    return True
