"""Random expressions: text in Python's syntax, of a wanted kind, that never loop for long.

A `Scope` knows what may be named at one place of a body: values, rows, lists of rows, plain lists
and helper functions. An expression of a kind is a leaf (a constant or a name) or an operator over
smaller expressions, with the leaf first so that shrinking ends there:

    integer    n0, a.balance, 9223372036854775807, (n0 // rows[1].x), sum(r.x for r in rows), ...
    real       x0, (n0 / 3), math.sqrt(a.price), ...
    boolean    flag0, (n0 < a.x <= 7), a.exists, tg.exists(a), a is b, (x0 in (1.5, 2.0)), any(...), ...
    string     name0, "b", (a.label if flag0 else ""), (name0 + "b")[:30], f"{n0:>3}|{name0}"[:30]

Anything may raise (zero divisors, bad indexes, the root of a negative number) and integers may pass
64 bits; both are wanted. What stays out: unbounded shifts and powers, which would take Python
minutes, and operators whose result type depends on a value.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from .choices import Choices

INTEGERS = [0, 1, 2, 3, -1, 5, 7, 10, -3, 100]
EDGE_INTEGERS = [
    2**63 - 1, -(2**63), 2**62, -(2**62), 2**53, 2**53 + 1, -(2**53) - 1, 2**32, 3037000500, -(2**63) + 1,
]  # fmt: skip
REALS = ["0.0", "1.0", "0.5", "2.0", "-1.5", "0.1", "3.0", "-0.0", "100.0"]
EDGE_REALS = ["1e308", "5e-324", "9007199254740992.0", "-9.223372036854776e18", "1e16", "2.5", "-1e300"]
STRINGS = ['""', '"a"', '"b"', '"käse"', '"a longer string of text"']
KINDS = ("int", "float", "bool", "str")
EXISTS = ["{}.exists", "tg.exists({})"]


@dataclass(frozen=True)
class TableSpec:
    """A random table: its fields in declared order with kind and default text, and its key."""

    name: str
    fields: tuple[tuple[str, str, str | None], ...]
    key: tuple[str, ...]

    def readable(self, kind: str) -> list[str]:
        return [name for name, its, _ in self.fields if its == kind]

    def writable(self) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind, _ in self.fields if name not in self.key]

    @property
    def key_kinds(self) -> tuple[tuple[str, str], ...]:
        kinds = {name: kind for name, kind, _ in self.fields}
        return tuple((name, kinds[name]) for name in self.key)


@dataclass(frozen=True)
class RowsOf:
    """The type of a list of rows."""

    table: TableSpec


Parameter = str | TableSpec | RowsOf


@dataclass(frozen=True)
class HelperSpec:
    """A helper: parameters are kinds, tables or lists of rows; it returns a kind, a row or nothing.

    The last `optional` parameters have defaults.
    """

    name: str
    parameters: tuple[tuple[str, Parameter], ...]
    returns: str | TableSpec | None
    optional: int = 0


@dataclass
class Scope:
    """What may be named here; `targets` may be assigned as well."""

    values: list[tuple[str, str]] = field(default_factory=list)
    targets: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[str, TableSpec]] = field(default_factory=list)
    lists: list[tuple[str, TableSpec]] = field(default_factory=list)
    plains: list[tuple[str, str]] = field(default_factory=list)
    loops: int = 0

    def inner(self) -> Scope:
        return Scope(*(list(getattr(self, f.name)) for f in dataclasses.fields(self)[:-1]), self.loops)

    def of_kind(self, kind: str) -> list[str]:
        return [name for name, its in self.values if its == kind]


class Expressions:
    """Writes expressions over `self.scope`; `wild` is the share of extreme constants in percent."""

    def __init__(self, choices: Choices, helpers: list[HelperSpec], wild: int) -> None:
        self.choices, self.helpers, self.wild = choices, helpers, wild
        self.scope = Scope()

    def expression(self, kind: str, depth: int) -> str:
        if kind == "int":
            return self.integer(depth)
        if kind == "float":
            return self.real(depth)
        return self.boolean(depth) if kind == "bool" else self.string(depth)

    def constant(self, kind: str) -> str:
        choose = self.choices
        if kind == "int":
            value = choose.pick(EDGE_INTEGERS if choose.chance(self.wild) else INTEGERS)
            return f"({value})" if value < 0 else str(value)
        if kind == "float":
            text = choose.pick(EDGE_REALS if choose.chance(self.wild) else REALS)
            return f"({text})" if text.startswith("-") else text
        return choose.pick(["False", "True"] if kind == "bool" else STRINGS)

    def leaf(self, kind: str) -> str:
        """A constant, a name, or a field of a row."""
        choose, scope = self.choices, self.scope
        rows = [(text, table) for text, table in scope.rows if table.readable(kind)]
        lists = [(name, table) for name, table in scope.lists if table.readable(kind)]
        names = scope.of_kind(kind)
        plains = [name for name, its in scope.plains if its == kind]
        options = [(2, "constant")]
        options += [(4, "name")] if names else []
        options += [(6, "row")] if rows else []
        options += [(1, "list")] if lists else []
        options += [(1, "plain")] if plains else []
        match choose.weighted(options):
            case "name":
                return choose.pick(names)
            case "row":
                text, table = choose.pick(rows)
                return f"{text}.{choose.pick(table.readable(kind))}"
            case "list":
                name, table = choose.pick(lists)
                return f"{name}[{self.index(name)}].{choose.pick(table.readable(kind))}"
            case "plain":
                name = choose.pick(plains)
                return f"{name}[{self.index(name)}]"
        return self.constant(kind)

    def index(self, name: str) -> str:
        """An index that is usually within a list of one to four items, and sometimes is not."""
        choose = self.choices
        counters = [text for text in self.scope.of_kind("int") if text[0] == "i"]
        options = [(6, "0"), (2, "-1"), (1, "1"), (1, "len"), (1, "any")]
        options += [(8, "counter")] if counters else []
        match choose.weighted(options):
            case "len":
                return f"len({name}) // 2"
            case "any":
                return self.choices.pick(["2", "-2", "-5", f"{self.leaf('int')} % 4"])
            case "counter":
                return choose.pick(counters)
            case constant:
                return constant

    def row(self, table: TableSpec, depth: int = 1) -> str | None:
        """A row of this table: a parameter, a local, an item of a list, one of two, or a helper's."""
        rows = [text for text, its in self.scope.rows if its == table]
        lists = [name for name, its in self.scope.lists if its == table]
        if depth > 0 and rows and self.choices.chance(4):
            return f"({self.choices.pick(rows)} if {self.condition(0)} else {self.row(table, 0)})"
        if depth > 0 and self.choices.chance(10):
            helpers = [helper for helper in self.helpers if helper.returns == table]
            text = self.call_of(self.choices.pick(helpers), 0) if helpers else None
            if text is not None:
                return text
        if rows and (not lists or not self.choices.chance(20)):
            return self.choices.pick(rows)
        if lists:
            name = self.choices.pick(lists)
            return f"{name}[{self.index(name)}]"
        return None

    def number(self, depth: int) -> str:
        """An integer or a real: Python compares and mixes them exactly."""
        return self.real(depth) if self.choices.chance(35) else self.integer(depth)

    def integer(self, depth: int) -> str:
        if depth <= 0:
            return self.leaf("int")
        inner = depth - 1
        one = self.integer
        match self.choices.weighted(_INTEGER_FORMS):
            case "leaf":
                return self.leaf("int")
            case "sum":
                return f"({one(inner)} {self.choices.pick('+-')} {one(inner)})"
            case "product":
                return f"({one(inner)} * {one(inner)})"
            case "quotient":
                return f"({one(inner)} {self.choices.pick(['//', '%'])} {self.divisor(inner)})"
            case "bits":
                return f"({one(inner)} {self.choices.pick('&|^')} {one(inner)})"
            case "shift":
                return self.shift(inner)
            case "power":
                exponents = ["2", "3", "0", "1", f"({self.leaf('int')} & 3)"]
                return f"({one(inner)} ** {self.choices.pick(exponents)})"
            case "unary":
                return f"({self.choices.pick('-~+')}{one(inner)})"
            case "call":
                return f"{self.choices.pick(['abs', 'int', 'round'])}({one(inner)})"
            case "extreme":
                arguments = ", ".join(one(inner) for _ in range(self.choices.between(2, 3)))
                return f"{self.choices.pick(['min', 'max'])}({arguments})"
            case "conditional":
                return f"({one(inner)} if {self.condition(inner)} else {one(inner)})"
            case "from real":
                name = self.choices.pick(["int", "round", "math.floor", "math.ceil"])
                return f"{name}({self.real(inner)})"
            case "from boolean":
                return f"int({self.boolean(inner)})"
            case "boolean arithmetic":
                return f"({one(inner)} {self.choices.pick('+-*')} {self.boolean(inner)})"
            case "length":
                return self.length() or self.leaf("int")
            case "text":
                text = self.string(inner)
                return self.choices.pick([f"len({text})"] * 6 + [f"{text}.find({self.leaf('str')})", f"int({text})"])
            case "total":
                return self.total("int", inner) or self.leaf("int")
        return self.call("int", inner) or self.leaf("int")

    def divisor(self, depth: int) -> str:
        """Rarely zero, or most transactions would abort."""
        if self.choices.chance(25):
            return self.integer(depth)
        return self.choices.pick(["3", "(-3)", "7", "(-2)", "10", f"(abs({self.leaf('int')}) + 1)"])

    def shift(self, depth: int) -> str:
        value, leaf = self.integer(depth), self.leaf("int")
        counts = ["1", "3", f"({leaf} & 15)", "31", "62", "63", "64", f"({leaf} % 5 - 1)"]
        return f"({value} {self.choices.pick(['>>', '<<'])} {self.choices.pick(counts)})"

    def length(self) -> str | None:
        names = [name for name, _ in [*self.scope.lists, *self.scope.plains]]
        return f"len({self.choices.pick(names)})" if names else None

    def total(self, kind: str, depth: int) -> str | None:
        """sum(...) over a generator of rows or of a plain list."""
        member = self.member(depth, lambda: self.expression(kind, min(depth, 1)))
        return f"sum({member})" if member else None

    def member(self, depth: int, write) -> str | None:
        """`item for r in rows if condition`, with `item` written where `r` may be named."""
        choose, outer = self.choices, self.scope
        if not outer.lists and not outer.plains:
            return None
        self.scope = scope = outer.inner()
        scope.loops += 1
        if outer.lists and (not outer.plains or not choose.chance(30)):
            name, table = choose.pick(outer.lists)
            variable = f"g{outer.loops}"
            scope.rows.extend([(variable, table)] * 3)
        else:
            name, kind = choose.pick(outer.plains)
            variable = f"v{outer.loops}"
            scope.values.extend([(variable, kind)] * 3)
        item = write()
        guard = f" if {self.condition(1)}" if choose.chance(30) else ""
        self.scope = outer
        return f"{item} for {variable} in {name}{guard}"

    def call(self, kind: str, depth: int) -> str | None:
        """A helper that returns this kind, with arguments that fit."""
        helpers = [helper for helper in self.helpers if helper.returns == kind]
        return self.call_of(self.choices.pick(helpers), depth) if helpers else None

    def call_of(self, helper: HelperSpec, depth: int) -> str | None:
        """A call; parameters with defaults are left out, or given by name, now and then."""
        required = len(helper.parameters) - helper.optional
        arguments: list[str] = []
        for position, (name, kind) in enumerate(helper.parameters):
            if position >= required and self.choices.chance(40):
                break
            text = self.argument(kind, depth)
            if text is None:
                return None
            arguments.append(f"{name}={text}" if position >= required else text)
        return f"{helper.name}({', '.join(arguments)})"

    def argument(self, kind: Parameter, depth: int) -> str | None:
        if isinstance(kind, RowsOf):
            names = [name for name, table in self.scope.lists if table == kind.table]
            return self.choices.pick(names) if names else None
        if isinstance(kind, TableSpec):
            return self.row(kind, 0)
        if kind == "float" and self.choices.chance(10):
            return self.integer(min(depth, 1))
        return self.expression(kind, min(depth, 1))

    def real(self, depth: int) -> str:
        if depth <= 0:
            return self.leaf("float")
        inner = depth - 1
        one = self.real
        match self.choices.weighted(_REAL_FORMS):
            case "leaf":
                return self.leaf("float")
            case "sum":
                return f"({one(inner)} {self.choices.pick('+-*')} {one(inner)})"
            case "mixed":
                sides = [one(inner), self.integer(inner)]
                return f"({sides.pop(self.choices.below(2))} {self.choices.pick('+-*')} {sides[0]})"
            case "quotient":
                divisor = one(inner) if self.choices.chance(30) else self.choices.pick(["2.0", "(-0.7)", "3.0"])
                return f"({one(inner)} {self.choices.pick(['/', '//', '%'])} {divisor})"
            case "integers divided":
                return f"({self.integer(inner)} / {self.divisor(inner)})"
            case "power":
                exponents = ["2", "3", "1", "(-1)", "0", f"({self.leaf('int')} % 5 - 2)"]
                return f"({one(inner)} ** {self.choices.pick(exponents)})"
            case "unary":
                return f"({self.choices.pick('-+')}{one(inner)})"
            case "call":
                return f"{self.choices.pick(['abs', 'float', 'math.fabs'])}({one(inner)})"
            case "root":
                return f"math.sqrt({self.choices.pick(['abs', ''])}({self.number(inner)}))"
            case "extreme":
                return f"{self.choices.pick(['min', 'max'])}({one(inner)}, {one(inner)})"
            case "conditional":
                return f"({one(inner)} if {self.condition(inner)} else {one(inner)})"
            case "from integer":
                return f"float({self.integer(inner)})"
            case "joined":
                return self.joined(inner)
            case "total":
                return self.total("float", inner) or self.leaf("float")
        return self.call("float", inner) or self.leaf("float")

    def joined(self, depth: int) -> str:
        """A float in one case and an int in the other: Python keeps the int until it meets a float."""
        constant = self.choices.pick(["0", "1", "3", "(-2)"])
        sides = [self.real(depth), self.integer(depth) if self.choices.chance(40) else constant]
        first = sides.pop(self.choices.below(2))
        if self.choices.chance(50):
            return f"({first} if {self.condition(depth)} else {sides[0]})"
        return f"{self.choices.pick(['max', 'min'])}({first}, {sides[0]})"

    def boolean(self, depth: int) -> str:
        if depth <= 0:
            return self.leaf("bool") if self.choices.chance(50) else self.comparison(0)
        inner = depth - 1
        one = self.boolean
        match self.choices.weighted(_BOOLEAN_FORMS):
            case "comparison":
                return self.comparison(inner)
            case "leaf":
                return self.leaf("bool")
            case "chained":
                operators = ["<", "<=", "==", "!=", ">", ">="]
                first, middle, last = self.number(inner), self.number(inner), self.number(inner)
                return f"({first} {self.choices.pick(operators)} {middle} {self.choices.pick(operators)} {last})"
            case "both":
                return f"({one(inner)} {self.choices.pick(['and', 'or'])} {one(inner)})"
            case "not":
                return f"(not {self.condition(inner)})"
            case "exists":
                rows = [text for text, _ in self.scope.rows]
                return self.choices.pick(EXISTS).format(self.choices.pick(rows)) if rows else self.leaf("bool")
            case "same":
                return self.same() or self.leaf("bool")
            case "in":
                return self.membership(inner)
            case "text":
                return self.about_text(inner)
            case "any":
                member = self.member(inner, lambda: self.boolean(min(inner, 1)))
                return f"{self.choices.pick(['any', 'all'])}({member})" if member else self.leaf("bool")
            case "special":
                return f"{self.choices.pick(['math.isnan', 'math.isinf'])}({self.real(inner)})"
            case "truth":
                return f"bool({self.expression(self.choices.pick(KINDS), inner)})"
            case "conditional":
                return f"({one(inner)} if {self.condition(inner)} else {one(inner)})"
        return self.call("bool", inner) or self.leaf("bool")

    def comparison(self, depth: int) -> str:
        choose = self.choices
        kind = choose.weighted([(8, "number"), (2, "str"), (1, "bool")])
        if kind != "number":
            sides = self.expression(kind, depth), self.expression(kind, depth)
            signs = ["==", "!=", "<", "<=", ">", ">="] if kind == "str" else ["==", "!="]
            return f"({sides[0]} {choose.pick(signs)} {sides[1]})"
        operator = choose.pick(["<", "<=", ">", ">=", "==", "!="])
        return f"({self.number(depth)} {operator} {self.number(depth)})"

    def same(self) -> str | None:
        """`a is b` for two rows of one table."""
        rows = self.scope.rows
        pairs = [(a, b) for a, one in rows for b, two in rows if a != b and one == two]
        if not pairs:
            return None
        first, second = self.choices.pick(pairs)
        return f"({first} {self.choices.pick(['is', 'is not'])} {second})"

    def membership(self, depth: int) -> str:
        kind = self.choices.pick(["int", "str", "float"])
        items = [
            self.expression(kind, depth) if self.choices.chance(25) else self.constant(kind)
            for _ in range(self.choices.between(1, 3))
        ]
        word = self.choices.pick(["in", "not in"])
        return f"({self.expression(kind, depth)} {word} ({', '.join(items)},))"

    def about_text(self, depth: int) -> str:
        """A question about what is in a string."""
        whole, parts = self.string(depth), [self.string(0) for _ in range(self.choices.between(1, 2))]
        match self.choices.weighted([(3, "in"), (4, "ends"), (1, "plain")]):
            case "in":
                return f"({parts[0]} {self.choices.pick(['in', 'not in'])} {whole})"
            case "ends":
                given = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
                return f"{whole}.{self.choices.pick(['startswith', 'endswith'])}({given})"
        return f"{whole}.{self.choices.pick(['isdigit', 'isupper', 'isspace'])}()"

    def condition(self, depth: int) -> str:
        """Something whose truth is asked: a boolean, or the truth of any other value."""
        if self.choices.chance(25):
            kind = self.choices.pick(KINDS)
            if depth > 0 and self.choices.chance(40):
                other = self.condition(depth - 1)
                return f"({self.expression(kind, 0)} {self.choices.pick(['and', 'or'])} {other})"
            return self.expression(kind, depth)
        return self.boolean(depth)

    def string(self, depth: int) -> str:
        if depth > 0 and self.choices.chance(20):
            return f"({self.leaf('str')} if {self.condition(depth - 1)} else {self.leaf('str')})"
        if depth > 0 and self.choices.chance(10):
            return self.call("str", depth - 1) or self.leaf("str")
        if depth > 0 and self.choices.chance(5):
            return f"{self.choices.pick(['min', 'max'])}({self.leaf('str')}, {self.leaf('str')})"
        if depth > 0 and self.choices.chance(12):
            return f"{self.new_string(depth - 1)}[:30]"  # what grows in every round or batch stays small
        return self.leaf("str")

    def new_string(self, depth: int) -> str:
        """A string that is put together, in plain Python."""
        text, other = self.leaf("str"), self.leaf("str")
        match self.choices.weighted(
            [(4, "sum"), (5, "formatted"), (2, "method"), (1, "times"), (2, "str"), (1, "part")]
        ):
            case "sum":
                return f"({text} + {other})"
            case "formatted":
                spec = self.choices.pick(["", "", ":>3", ":d", ":,", "!r", "!s:<4"])
                real = self.choices.pick(["", ":.2f", ":e"])
                middle = f"{{{self.integer(depth)}{spec}}}"
                return f"f'{{{text}}} {middle} {{{self.leaf('float')}{real}}}'"
            case "method":
                return f"{text}.{self.choices.pick(['upper()', 'strip()', 'title()', 'zfill(5)'])}"
            case "times":
                return f"({text} * ({self.leaf('int')} % 4))"
            case "str":
                return f"str({self.expression(self.choices.pick(KINDS), depth)})"
        return f"{text}[{self.choices.pick(['0', '-1', '1:', '::2', ':-1'])}]"


_INTEGER_FORMS = [
    (30, "leaf"), (24, "sum"), (7, "product"), (7, "quotient"), (4, "bits"), (2, "shift"), (2, "power"),
    (3, "unary"), (3, "call"), (4, "extreme"), (4, "conditional"), (3, "from real"), (1, "from boolean"),
    (1, "boolean arithmetic"), (2, "length"), (3, "text"), (4, "total"), (6, "helper"),
]  # fmt: skip
_REAL_FORMS = [
    (30, "leaf"), (20, "sum"), (8, "mixed"), (6, "quotient"), (6, "integers divided"), (2, "power"), (3, "unary"),
    (3, "call"), (2, "root"), (4, "extreme"), (4, "conditional"), (3, "from integer"), (4, "total"), (6, "helper"),
    (3, "joined"),
]  # fmt: skip
_BOOLEAN_FORMS = [
    (30, "comparison"), (6, "leaf"), (8, "chained"), (12, "both"), (6, "not"), (8, "exists"), (4, "same"),
    (5, "in"), (5, "text"), (4, "any"), (1, "special"), (2, "truth"), (2, "conditional"), (4, "helper"),
]  # fmt: skip
