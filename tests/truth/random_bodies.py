"""Random function bodies: statements over the expressions of `random_expressions`.

A body is written block by block. Names that a block assigns first are forgotten at its end, so every
name is assigned on every path before it is read; a name that comes back in a sibling block has the
same kind, so a local keeps one type in the whole function.

Every loop ends: lists hold a handful of items, ranges are short, and a `while` counts its rounds first
thing. Integers that a loop carries around are reduced where they are multiplied, for Python's have no
limit and would grow to millions of digits.
"""

from __future__ import annotations

import re

from .choices import Choices
from .random_expressions import KINDS, Expressions, HelperSpec, Scope, TableSpec

PREFIX = {"int": "n", "float": "x", "bool": "f", "str": "s"}
REASONS = ["no", "too low", "insufficient funds", 'it\'s \\"gone\\"', "käse"]
ERRORS = ["ValueError", "KeyError", "RuntimeError", "ArithmeticError"]
GROWS = re.compile(r"\*|<<|helper")


class Bodies(Expressions):
    """Writes the statements of one function into `self.lines`."""

    def __init__(
        self,
        choices: Choices,
        scope: Scope,
        helpers: list[HelperSpec],
        wild: int,
        returns: str | TableSpec | tuple[str, tuple[str, ...]] | None,
    ) -> None:
        super().__init__(choices, helpers, wild)
        self.scope, self.returns = scope, returns
        self.lines: list[str] = []
        self.indent = 1
        self.statements_left = choices.weighted([(3, 6), (3, 10), (2, 16), (1, 24)])
        self.breakable = self.may_fall_off = False

    def write(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def body(self) -> list[str]:
        """The whole body, from docstring to the last return."""
        if self.choices.chance(10):
            self.write('"""A random body."""')
        ended = self.block(3)
        if not ended and self.returns is not None and not (self.may_fall_off and self.choices.chance(3)):
            self.write(self.return_statement())
        elif not self.lines:
            self.write("pass")
        return self.lines

    def return_statement(self) -> str:
        if self.returns is None:
            return "return"
        if isinstance(self.returns, TableSpec):
            return f"return {self.row(self.returns)}"
        if isinstance(self.returns, str):
            return f"return {self.expression(self.returns, 2)}"
        name, kinds = self.returns
        return f"return {name}({', '.join(self.expression(kind, 1) for kind in kinds)})"

    def block(self, depth: int) -> bool:
        """Some statements in the current scope; True when the last one leaves the block for good."""
        count = self.choices.weighted([(2, 1), (3, 2), (3, 3), (2, 4)]) + (2 if depth == 3 else 0)
        wrote = len(self.lines)
        for _ in range(count):
            if self.statements_left <= 0:
                break
            self.statements_left -= 1
            if self.statement(depth):
                return True
        if len(self.lines) == wrote:
            self.write("pass")
        return False

    def nested(self, depth: int, *, loop: bool = False) -> bool:
        """A block one level in, with a scope of its own; rarely a name survives it, perhaps unassigned."""
        outer, breakable = self.scope, self.breakable
        self.scope = outer.inner() if not loop else self.scope
        self.breakable = self.breakable or loop
        self.indent += 1
        ended = self.block(depth - 1)
        self.indent -= 1
        known = {name for name, _ in outer.values}
        fresh = [item for item in self.scope.targets if item[0] not in known]
        self.scope, self.breakable = outer, breakable
        if fresh and self.choices.chance(3):
            outer.values.append(self.choices.pick(fresh))
        return ended

    def statement(self, depth: int) -> bool:
        match self.choices.weighted(_SMALL if depth <= 0 else _ALL):
            case "field":
                self.assign_field()
            case "local":
                self.assign_local()
            case "accumulator":
                self.assign_accumulator()
            case "row local":
                self.assign_row_local()
            case "swap":
                self.assign_pair()
            case "require":
                self.require()
            case "delete":
                self.delete()
            case "helper":
                self.bare_call()
            case "if":
                self.branch(depth)
            case "for":
                self.for_loop(depth)
            case "while":
                self.while_loop(depth)
            case "leave":
                self.leave_if()
            case "raise":
                self.raise_if()
            case _:
                self.write("pass")
        return False

    # Assignments.

    def row_text(self) -> tuple[str, TableSpec] | None:
        """Any row that can be named here, with its table."""
        tables = list(dict.fromkeys(table for _, table in [*self.scope.rows, *self.scope.lists]))
        if not tables:
            return None
        table = self.choices.pick(tables)
        text = self.row(table)
        return (text, table) if text else None

    def assign_field(self) -> None:
        found = self.row_text()
        if found is None or not found[1].writable():
            return self.write("pass")
        row, table = found
        name, kind = self.choices.pick(table.writable())
        target = f"{row}.{name}"
        if kind in ("int", "float") and self.choices.chance(55):
            return self.augment(target, kind, small_only=False)
        value = self.expression(kind, 2)
        if kind == "float" and self.choices.chance(15):
            value = self.integer(1)
        if kind == "int" and self.choices.chance(50):
            value = f"{target} {self.choices.pick('+-')} {self.integer(1)}"
        self.write(f"{target} = {value}")

    def augment(self, target: str, kind: str, *, small_only: bool) -> None:
        """`target op= value`; a local integer in a loop is only added to or multiplied by a constant."""
        choose = self.choices
        if kind == "float":
            operator = choose.weighted([(8, "+="), (6, "-="), (3, "*="), (2, "/="), (1, "//="), (1, "%=")])
            value = (
                self.number(1)
                if operator in ("+=", "-=", "*=")
                else self.choices.pick(["2.0", "3", self.leaf("float")])
            )
            return self.write(f"{target} {operator} {value}")
        forms = [
            (10, "+="),
            (8, "-="),
            (2, "*="),
            (1, "//="),
            (1, "%="),
            (1, "&="),
            (1, "|="),
            (1, "^="),
            (1, "<<="),
            (1, ">>="),
        ]
        operator = choose.weighted(forms)
        if operator in ("<<=", ">>="):
            value = choose.pick(["1", "2", "5"])
        elif operator == "*=" and small_only:
            value = choose.pick(["2", "3", "(-1)"])
        elif operator in ("//=", "%="):
            value = self.divisor(1)
        else:
            value = self.integer(1)
            if small_only and GROWS.search(value):
                value = f"({value} % 1000003)"
        self.write(f"{target} {operator} {value}")

    def assign_local(self) -> None:
        choose, scope = self.choices, self.scope
        if scope.targets and choose.chance(50):
            name, kind = choose.pick(scope.targets)
            if kind in ("int", "float") and choose.chance(60):
                return self.augment(name, kind, small_only=scope.loops > 0)
            return self.write(f"{name} = {self.local_value(kind)}")
        kind = choose.weighted([(6, "int"), (3, "float"), (2, "bool"), (1, "str")])
        value = self.local_value(kind)
        match choose.weighted([(8, "plain"), (1, "annotated"), (1, "twice")]):
            case "annotated":
                self.write(f"{self.declare(kind)}: {kind} = {value}")
            case "twice":
                self.write(f"{self.declare(kind)} = {self.declare(kind)} = {value}")
            case _:
                self.write(f"{self.declare(kind)} = {value}")

    def assign_accumulator(self) -> None:
        """An int constant that starts a sum of floats, which some paths never add to."""
        condition, value = self.condition(1), self.real(1)
        name = self.declare("float")
        self.write(f"{name} = {self.choices.pick(['0', '1', '3'])}")
        if self.choices.chance(50):
            self.write(f"if {condition}:")
            return self.write(f"    {name} += {value}")
        self.write(f"{name} += {value}")

    def local_value(self, kind: str) -> str:
        value = self.expression(kind, 2)
        if kind == "float" and self.choices.chance(8):
            value = self.integer(1)
        if kind in ("int", "float") and self.scope.loops and GROWS.search(value):
            return f"{value} % 1000003" if kind == "int" else f"float({value})"
        return value

    def declare(self, kind: str, *, assignable: bool = True) -> str:
        taken = {name for name, _ in self.scope.values}
        number = 0
        while f"{PREFIX[kind]}_{number}" in taken:
            number += 1
        name = f"{PREFIX[kind]}_{number}"
        self.scope.values.append((name, kind))
        if assignable:
            self.scope.targets.append((name, kind))
        return name

    def declare_row(self, table: TableSpec) -> str:
        taken = {name for name, _ in self.scope.rows}
        number = 0
        while f"{table.name.lower()}_{number}" in taken:
            number += 1
        name = f"{table.name.lower()}_{number}"
        self.scope.rows.append((name, table))
        return name

    def assign_row_local(self) -> None:
        """`r = a if condition else b`, or `r = rows[i]`, or one more name for a row."""
        found = self.row_text()
        if found is None:
            return self.write("pass")
        text, table = found
        other = self.row(table)
        if other is not None and other != text and self.choices.chance(60):
            text = f"{text} if {self.condition(1)} else {other}"
        locals_ = [name for name, its in self.scope.rows if its == table and name.startswith("table")]
        if locals_ and self.choices.chance(20):
            return self.write(f"{self.choices.pick(locals_)} = {text}")
        self.write(f"{self.declare_row(table)} = {text}")

    def assign_pair(self) -> None:
        """`a, b = x, y`: both right sides are read before either name is assigned."""
        targets = [item for item in self.scope.targets if item[1] in ("int", "float")]
        if len(targets) < 2:
            return self.assign_local()
        (first, one), (second, two) = self.choices.pick(targets), self.choices.pick(targets)
        if first == second:
            return self.assign_local()
        if one == two and self.choices.chance(50):
            return self.write(f"{first}, {second} = {second}, {first}")
        self.write(f"{first}, {second} = {self.local_value(one)}, {self.local_value(two)}")

    # Aborts, deletes, calls.

    def require(self) -> None:
        """A condition that mostly holds, so that programs commit as well as abort."""
        choose = self.choices
        reason = f'"{choose.pick(REASONS)}"' if choose.chance(80) else self.reason()
        condition = self.condition(2)
        match choose.weighted([(4, "likely"), (2, "as drawn"), (1, "abort"), (1, "assert")]):
            case "likely":
                sign = choose.pick(["<", ">", ">="])
                likely = f"{condition} or {self.leaf('int')} {sign} {self.constant('int')}"
                self.write(f"tg.require({likely}, {reason})")
            case "as drawn":
                self.write(f"tg.require({condition}, {reason})")
            case "abort":
                self.write(f"if {condition}:")
                self.write(f"    tg.abort({reason})")
            case _:
                message = choose.pick(["", ', "checked"', f", {self.leaf('int')} // {self.leaf('int')}"])
                self.write(f"assert {condition} or {self.boolean(0)}{message}")

    def reason(self) -> str:
        """A reason that is computed: a string that is there, or one that is put together."""
        return self.string(1) if self.choices.chance(30) else self.new_string(1)

    def raise_if(self) -> None:
        self.write(f"if {self.boolean(1)} and {self.boolean(1)}:")
        message = self.expression(self.choices.pick(KINDS), 1) if self.choices.chance(20) else '"raised"'
        self.write(f"    raise {self.choices.pick(ERRORS)}({message})")

    def delete(self) -> None:
        found = self.row_text()
        if found is None:
            return self.write("pass")
        if self.choices.chance(50):
            self.write(f"if {self.condition(1)}:")
            return self.write(f"    tg.delete({found[0]})")
        self.write(f"tg.delete({found[0]})")

    def bare_call(self) -> None:
        text = self.call_of(self.choices.pick(self.helpers), 1) if self.helpers else None
        self.write(text or "pass")

    # Control flow.

    def branch(self, depth: int) -> None:
        self.write(f"if {self.condition(2)}:")
        self.nested(depth)
        for _ in range(self.choices.weighted([(4, 0), (2, 1), (1, 2)])):
            self.write(f"elif {self.condition(2)}:")
            self.nested(depth)
        if self.choices.chance(50):
            self.write("else:")
            self.nested(depth)

    def leave_if(self) -> None:
        """An early return, or a break or continue inside a loop."""
        self.write(f"if {self.condition(1)}:")
        if self.breakable and self.choices.chance(70):
            return self.write(f"    {self.choices.pick(['break', 'continue'])}")
        nothing = self.may_fall_off and self.choices.chance(10)
        self.write("    return None" if nothing else f"    {self.return_statement()}")

    def for_loop(self, depth: int) -> None:
        outer = self.scope
        self.scope = outer.inner()
        self.scope.loops += 1
        header = self.for_header(outer)
        self.write(header)
        self.nested(depth, loop=True)
        self.scope = outer

    def for_header(self, outer: Scope) -> str:
        """One of the loops over ranges, rows, plain lists, zip and enumerate; adds its names."""
        choose, scope = self.choices, self.scope
        options = [(4, "range")]
        options += [(6, "rows"), (2, "enumerate"), (2, "length")] if outer.lists else []
        options += [(2, "values")] if outer.plains else []
        options += [(2, "zip")] if outer.lists else []
        form = choose.weighted(options)
        counter = f"i{outer.loops}"
        bounds = self.range_arguments() if form == "range" else ""
        if form in ("range", "length", "enumerate"):
            scope.values.append((counter, "int"))
        if form == "range":
            return f"for {counter} in range({bounds}):"
        if form == "length":
            return f"for {counter} in range(len({choose.pick(outer.lists)[0]})):"
        if form == "values":
            name, kind = choose.pick(outer.plains)
            return f"for {self.declare(kind)} in {name}:"
        name, table = choose.pick(outer.lists)
        row = self.declare_row(table)
        scope.rows.extend([(row, table)] * 2)
        if form == "rows":
            return f"for {row} in {name}:"
        if form == "enumerate":
            return f"for {counter}, {row} in enumerate({name}{choose.pick(['', '', ', 1', ', -2'])}):"
        strict = choose.pick(["", "", ", strict=False", ", strict=True"])
        if not outer.plains or choose.chance(30):
            other, second = choose.pick(outer.lists)
            return f"for {row}, {self.declare_row(second)} in zip({name}, {other}{strict}):"
        plain, kind = choose.pick(outer.plains)
        return f"for {row}, {self.declare(kind)} in zip({name}, {plain}{strict}):"

    def range_arguments(self) -> str:
        leaf = self.leaf("int")
        return self.choices.pick(
            [
                "3",
                "1",
                f"{leaf} % 4",
                f"{leaf} & 3",
                "1, 4",
                f"3, {leaf} % 3, -1",
                "5, -1, -2",
                f"0, 4, {leaf} % 3 - 1",
            ]
        )

    def while_loop(self, depth: int) -> None:
        """The first statement of the body counts a round, so `continue` cannot skip it."""
        outer = self.scope
        counter = f"w{outer.loops}"
        self.write(f"{counter} = {self.choices.pick(['0', '1', '2'])}")
        self.scope = outer.inner()
        self.scope.loops += 1
        self.scope.values.append((counter, "int"))
        bound = self.choices.pick(["3", "4", f"{self.leaf('int')} % 5"])
        extra = f" and {self.condition(1)}" if self.choices.chance(50) else ""
        endless = self.choices.chance(15)
        self.write("while True:" if endless else f"while {counter} < {bound}{extra}:")
        self.indent += 1
        self.write(f"{counter} += {self.choices.pick(['1', '2'])}")
        if endless:
            self.write(f"if {counter} > 3{extra.replace('and', 'or', 1)}:")
            self.write("    break")
        self.indent -= 1
        self.nested(depth, loop=True)
        self.scope = outer


_SMALL = [
    (1, "pass"), (24, "field"), (14, "local"), (4, "row local"), (2, "swap"), (7, "require"), (4, "delete"),
    (4, "helper"), (4, "leave"), (1, "raise"), (1, "accumulator"),
]  # fmt: skip
_ALL = [*_SMALL, (14, "if"), (9, "for"), (4, "while")]
__all__ = ["KINDS", "Bodies"]
