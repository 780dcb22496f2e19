"""Random statements and expressions about rows that a signature does not name, and about what rows were before.

    lookups      tg.lookup(Table0, key), alone, through a helper function, as one more name for a row, or on the spot
    keys         computed, a constant, a value at hand, a field of another row, the key of a row that is there already
    histories    loops over tg.history(row, last=n), its length, sums over it; n differs from place to place

A `Reach` says what a body may use of this; one that is empty leaves everything as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .choices import Choices
from .random_bodies import Bodies
from .random_expressions import EXISTS, Scope, TableSpec

LASTS = [5, 1, 12, 30, 100]


@dataclass
class Reach:
    """Tables whose rows a body may look up, and tables whose earlier states it may ask for."""

    tables: list[TableSpec] = field(default_factory=list)
    remembered: list[TableSpec] = field(default_factory=list)
    asked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Texts that ask for a history, used or not: of which table, and how far back."""
    keys: int = 5
    """How many integers keys are reduced to."""

    def keeps(self, lines: list[str]) -> dict[str, int]:
        """How far back a body asks, by table."""
        found: dict[str, int] = {}
        for text, (table, last) in self.asked.items():
            if any(text in line for line in lines):
                found[table] = max(last, found.get(table, 0))
        return found


class LookingBodies(Bodies):
    """Writes bodies that look rows up and ask for earlier states, as far as `reach` allows."""

    def __init__(self, choices: Choices, scope: Scope, wild: int, returns: str | None, reach: Reach) -> None:
        super().__init__(choices, scope, [], wild, returns)
        self.reach, self._nesting = reach, 0
        for text, table in scope.rows[:]:
            if table in reach.remembered:
                scope.values.extend(self.about_history(text, table))

    def statement(self, depth: int) -> bool:
        choose = self.choices
        if self.reach.tables and choose.chance(12):
            self.look_up()
        elif self.reach.remembered and choose.chance(16):
            self.history_loop()
        elif (self.reach.remembered or self.reach.tables) and choose.chance(7):
            self.delete()
        else:
            return super().statement(depth)
        return False

    # Rows by their keys.

    def look_up(self) -> None:
        """One more name for a row."""
        table = self.choices.pick(self.reach.tables)
        text = self.looked_up(table)
        self.write(f"{self.declare_row(table)} = {text}")

    def looked_up(self, table: TableSpec) -> str:
        """A row by a key."""
        self._nesting += 1
        key = self.key_of(table)
        self._nesting -= 1
        if len(table.key) == 1 and self.choices.chance(25):
            return f"find_{table.name}({key})"
        return f"tg.lookup({table.name}, {key})"

    def key_of(self, table: TableSpec) -> str:
        choose = self.choices
        same = [text for text, its in self.scope.rows if its == table]
        if same and choose.chance(25):
            row = choose.pick(same)
            parts = [f"{row}.{name}" for name in table.key]
        else:
            parts = [self.key_part(kind) for _, kind in table.key_kinds]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def key_part(self, kind: str) -> str:
        if kind != "int":
            return self.leaf(kind)
        forms = [f"{self.leaf('int')} % {self.reach.keys}", self.leaf("int"), "1", "2", f"{self.integer(1)} % 7 - 1"]
        return self.choices.pick(forms)

    def row_text(self) -> tuple[str, TableSpec] | None:
        if self.reach.tables and self.choices.chance(20):
            table = self.choices.pick(self.reach.tables)
            return self.looked_up(table), table
        return super().row_text()

    def row(self, table: TableSpec, depth: int = 1) -> str | None:
        if table in self.reach.tables and self.choices.chance(10):
            return self.looked_up(table)
        return super().row(table, depth)

    def leaf(self, kind: str) -> str:
        readable = [table for table in self.reach.tables if table.readable(kind)]
        if readable and self._nesting < 2 and self.choices.chance(5):
            table = self.choices.pick(readable)
            return f"{self.looked_up(table)}.{self.choices.pick(table.readable(kind))}"
        return super().leaf(kind)

    def boolean(self, depth: int) -> str:
        if depth > 0 and self.reach.tables and self._nesting < 2 and self.choices.chance(5):
            table = self.choices.pick(self.reach.tables)
            same = [text for text, its in self.scope.rows if its == table]
            found = self.looked_up(table)
            return f"({self.choices.pick(same)} is {found})" if same else self.choices.pick(EXISTS).format(found)
        return super().boolean(depth)

    # What rows were.

    def asked(self, row: str, table: TableSpec) -> str:
        """The history of a row."""
        last = 2**61 if self.choices.chance(self.wild) else self.choices.pick(LASTS)
        text = f"tg.history({row}, last={last})"
        self.reach.asked[text] = (table.name, last)
        return text

    def about_history(self, row: str, table: TableSpec) -> list[tuple[str, str]]:
        """Values that sum up the history of a row."""
        numbers = ["time", *(name for name, kind in table.writable() if kind == "int")]
        found = [
            (f"len({self.asked(row, table)})", "int"),
            (f"sum(o.{self.choices.pick(numbers)} for o in {self.asked(row, table)})", "int"),
            (f"any({self.choices.pick(EXISTS).format('o')} for o in {self.asked(row, table)})", "bool"),
        ]
        if self.choices.chance(30):
            found.append((f"count_{table.name}({row})", "int"))
            self.reach.asked[found[-1][0]] = (table.name, 7)
        return found

    def history_loop(self) -> None:
        """A loop over the states of a row."""
        choose, outer = self.choices, self.scope
        table = choose.pick(self.reach.remembered)
        rows = [text for text, its in outer.rows if its == table]
        if table in self.reach.tables and choose.chance(30 if rows else 100):
            row = self.looked_up(table)
        elif rows:
            row = choose.pick(rows)
        else:
            return self.write("pass")
        header = f"for {{}} in {self.asked(row, table)}:"
        self.scope = outer.inner()
        self.scope.loops += 1
        variable = f"old{outer.loops}_{table.name.lower()}"  # a variable is a state of one table
        states = [(f"{variable}.time", "int"), (self.choices.pick(EXISTS).format(variable), "bool")]
        states += [(f"{variable}.{name}", kind) for name, kind in table.writable()]
        self.scope.values.extend(states * 3)
        self.write(header.format(variable))
        self.nested(1, loop=True)
        self.scope = outer


def helpers_of(table: TableSpec) -> str:
    """Functions of the program that look rows of a table up, or ask for what they were."""
    find = f"\n\ndef find_{table.name}(key):\n    return tg.lookup({table.name}, key)\n" if len(table.key) == 1 else ""
    return f"{find}\n\ndef count_{table.name}(row):\n    return len(tg.history(row, last=7))\n"
