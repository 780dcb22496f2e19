"""Random bodies of streaming transactions: the statements of `random_bodies`, and what only they may say.

    emit       into each stream that the transaction declares, at least once, perhaps under a condition or in a loop
    windows    lengths, rows, aggregates; mostly guarded where an empty window would raise
    guards     `require` and `abort` hold or fail by the values at hand, as often as the program wants aborts

Every emit counts against `emits_max`, so that a chain of transactions does not flood a round.
"""

from __future__ import annotations

from dataclasses import dataclass

from .choices import Choices
from .random_bodies import REASONS
from .random_expressions import Scope, TableSpec
from .random_lookups import LookingBodies, Reach


@dataclass(frozen=True)
class FieldSpec:
    """A field of a stream: a kind, or a table whose key it carries; `role` says what emitted values look like."""

    name: str
    kind: str
    table: TableSpec | None = None
    role: str = "value"

    @property
    def is_composite(self) -> bool:
        return self.table is not None and len(self.table.key) > 1


@dataclass(eq=False)
class StreamSpec:
    """A stream; `weight` bounds the tuples that one border tuple can become in it.

    One that `has_sender` can be emitted into through a helper function of the program.
    """

    name: str
    fields: tuple[FieldSpec, ...]
    weight: int = 0
    has_sender: bool = False


@dataclass(frozen=True)
class WindowSpec:
    """A window; `name` is empty where it is written into the signature."""

    name: str
    text: str
    stream: StreamSpec


class GraphBodies(LookingBodies):
    """Writes the body of a transaction that may emit, has windows, and aborts as often as it is told to."""

    def __init__(
        self,
        choices: Choices,
        scope: Scope,
        wild: int,
        returns: str | None,
        abort_percent: int,
        emits: list[StreamSpec],
        emits_max: int,
        windows: list[tuple[str, WindowSpec]],
        reach: Reach,
    ) -> None:
        super().__init__(choices, scope, wild, returns, reach)
        self.abort_percent, self.emits, self.emits_left, self.windows = abort_percent, emits, emits_max, windows
        self.statements_left = choices.weighted([(3, 2), (3, 4), (2, 6)])
        self.varying = [name for name, kind in scope.values if kind == "int"]
        for name, window in windows:
            for text, kind in window_texts(choices, name, window.stream):
                scope.values.append((text, kind))
        self.emitted: dict[str, int] = {}

    def body(self) -> list[str]:
        choose = self.choices
        self.block(2)
        for stream in self.emits:
            if stream.name not in self.emitted or choose.chance(10):
                self.emission(stream)
        if choose.chance(30):
            self.statements_left += 2
            self.block(1)
        if choose.chance(40):
            self.require()
        if self.returns is not None:
            self.write(self.return_statement())
        elif not self.lines:
            self.write("pass")
        return self.lines

    def statement(self, depth: int) -> bool:
        choose = self.choices
        if self.emits and not self.scope.loops and choose.chance(12):
            self.emission(choose.pick(self.emits))
        elif self.windows and choose.chance(12):
            self.window_loop()
        else:
            return super().statement(depth)
        return False

    # Emits.

    def emission(self, stream: StreamSpec) -> None:
        """One `tg.emit`, alone, under a condition, or in a short loop."""
        choose = self.choices
        rounds = choose.weighted([(8, 1), (2, 2), (1, 3)])
        rounds = rounds if self.emits_left > rounds else 1
        if self.emits_left < 1 and stream.name in self.emitted:
            return self.write("pass")
        self.emits_left -= rounds
        self.emitted[stream.name] = self.emitted.get(stream.name, 0) + rounds
        outer, indent = self.scope, self.indent
        if choose.chance(25):
            self.write(f"if {self.condition(1)}:")
            self.indent += 1
        if rounds > 1:
            self.scope = outer.inner()
            self.scope.values.append((f"e{self.indent}", "int"))
            self.write(f"for e{self.indent} in range({rounds}):")
            self.indent += 1
        self.write(self.emit_text(stream))
        self.scope, self.indent = outer, indent

    def emit_text(self, stream: StreamSpec) -> str:
        if stream.has_sender and self.choices.chance(50):
            return f"send_{stream.name}({', '.join(self.field_value(field) for field in stream.fields)})"
        parts = [f"{field.name}={self.field_value(field)}" for field in stream.fields]
        if self.choices.chance(20):
            parts.reverse()
        return f"tg.emit({', '.join([stream.name, *parts])})"

    def field_value(self, field: FieldSpec) -> str:
        """A key that is likely to be met again, a time that is near the others, or any value."""
        choose = self.choices
        if field.table is not None:
            rows = [text for text, table in self.scope.rows if table == field.table]
            if rows and (field.is_composite or choose.chance(50)):
                return choose.pick(rows)
            assert not field.is_composite
        if field.kind != "int":
            return self.leaf(field.kind) if field.role == "key" else self.expression(field.kind, 1)
        if field.role == "value":
            return f"({self.integer(2)}) % 1000" if choose.chance(50) else self.integer(1)
        if field.role == "time":
            if choose.chance(self.wild):
                return choose.pick(["9223372036854775807", "(-9223372036854775808)", self.integer(1)])
            same = [name for name in self.varying if name == "ts"]
            return same[0] if same and choose.chance(70) else f"{self.integer(1)} % 60"
        return choose.pick([f"{self.integer(1)} % {self.reach.keys}", f"{self.integer(1)} % 7 - 1", *self.varying, "1"])

    # Windows.

    def window_loop(self) -> None:
        """A loop over the rows of a window, or over its most frequent values."""
        choose, outer = self.choices, self.scope
        name, window = choose.pick(self.windows)
        self.scope = outer.inner()
        self.scope.loops += 1
        fields = [field for field in window.stream.fields if not field.is_composite]
        numbers = [field for field in fields if field.kind in ("int", "float")]
        if numbers and choose.chance(40):
            field = choose.pick(numbers)
            variable = f"top{outer.loops}_{field.kind}"
            self.scope.values.extend([(variable, field.kind)] * 3)
            header = f'for {variable} in {name}.top("{field.name}", {choose.pick([1, 2, 3, 0, 9])}):'
        else:
            variable = f"seen{outer.loops}_{name}"  # a variable is a row of one window
            for field in window.stream.fields:
                if not field.is_composite:
                    self.scope.values.extend([(f"{variable}.{field.name}", field.kind)] * 3)
            header = f"for {variable} in {name}:"
        self.write(header)
        self.nested(1, loop=True)
        self.scope = outer

    # Aborts.

    def require(self) -> None:
        """A condition over what varies from tuple to tuple; it fails in about the wanted share of cases."""
        choose = self.choices
        terms = [choose.pick(self.varying) if self.varying else self.leaf("int"), self.leaf("int")]
        drawn = f"({terms[0]} * 37 + {terms[1]} * 11 + {choose.below(100)}) % 100"
        reason = choose.pick(REASONS)
        match choose.weighted([(4, "require"), (2, "abort"), (1, "raise"), (1, "assert")]):
            case "require":
                self.write(f'tg.require({drawn} >= {self.abort_percent}, "{reason}")')
            case "abort":
                self.write(f"if {drawn} < {self.abort_percent}:")
                self.write(f'    tg.abort("{reason}")')
            case "raise":
                self.write(f"if {drawn} < {self.abort_percent}:")
                self.write('    raise KeyError("raised")')
            case _:
                self.write(f"assert {drawn} >= {self.abort_percent}")

    def raise_if(self) -> None:
        self.require()


def window_texts(choices: Choices, name: str, stream: StreamSpec) -> list[tuple[str, str]]:
    """What a body may ask this window, as expressions with their kinds."""
    found = [(f"len({name})", "int"), (f"{name}.slid", "bool")]
    zeros = {"int": "0", "bool": "False", "str": '""', "float": "0.0"}

    def guarded(text: str, kind: str) -> None:
        bare = choices.chance(4)
        found.append((text if bare else f"({text} if len({name}) > 0 else {zeros[kind]})", kind))

    for field in stream.fields:
        if field.is_composite:
            continue
        if field.kind != "str":
            found.append((f'{name}.sum("{field.name}")', "float" if field.kind == "float" else "int"))
            guarded(f'{name}.{choices.pick(["min", "max"])}("{field.name}")', field.kind)
        if field.kind != "float":
            found.append((f'{name}.distinct("{field.name}")', "int"))
            value = {"int": choices.pick(["1", "0", "2"]), "bool": "True", "str": '"a"'}[field.kind]
            found.append((f'{name}.frequency("{field.name}", {value})', "int"))
        guarded(f"{name}[{choices.pick(['0', '-1'])}].{field.name}", field.kind)
    return found
