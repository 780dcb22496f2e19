"""Random operators: bodies of random programs, over a record and a state, that return records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..truth.choices import Choices
from ..truth.random_bodies import Bodies
from ..truth.random_expressions import KINDS, HelperSpec, Scope, TableSpec
from ..truth.random_programs import HEADER

KEPT = tuple((f"{kind}_{number}", kind, None) for kind in KINDS for number in range(2))
STATE = TableSpec("Kept", KEPT, ())
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -3, 7, 2**53 + 1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 1.5, -2.0, 1e300, float("nan"), float("inf")],
    "bool": [False, True],
    "str": ["", "a", "käse"],
}
HELPERS = [
    HelperSpec("helper_sum", (("a", "int"), ("b", "int")), "int"),
    HelperSpec("helper_bump", (("kept", STATE), ("by", "int")), "int"),
]


@dataclass(frozen=True)
class RandomOperator:
    """The text of a module with an operator, and what it returns."""

    source: str
    many: str
    outputs: str
    has_state: bool


class _Bodies(Bodies):
    many, outputs, kinds = "one", "", ("",)

    def boolean(self, depth: int) -> str:
        text = super().boolean(depth)
        return self.comparison(0) if "exists" in text else text  # no rows of tables here

    def delete(self) -> None:
        """A record in a variable takes the place of what operators cannot do."""
        name = f"made_{len(self.scope.values)}"
        self.write(f"{name} = {self.record()}")
        self.scope.values += [(f"{name}.{field}", kind) for field, kind in self.fields]

    def bare_call(self) -> None:
        if self.many == "list" and self.choices.chance(80):
            return self.write(f"out.{self.choices.pick(['append({})', 'extend([{}])']).format(self.record())}")
        return super().bare_call()

    @property
    def fields(self) -> list[tuple[str, str]]:
        return [(f"{kind}_{place}", kind) for place, kind in enumerate(self.kinds)]

    def record(self) -> str:
        made = [text.partition(".")[0] for text, _ in self.scope.values if text.startswith("made_")]
        if made and self.choices.chance(30):
            name, (field, kind) = self.choices.pick(made), self.choices.pick(self.fields)
            return self.choices.pick([name, f"replace({name}, {field}={self.expression(kind, 1)})"])
        if self.outputs == "Given" and self.choices.chance(40):
            return "given"
        given = [self.expression(kind, 1) for _, kind in self.fields]
        named = self.choices.below(len(given) + 1)
        given[named:] = [f"{f}={v}" for (f, _), v in zip(self.fields[named:], given[named:], strict=True)]
        return f"{self.outputs}({', '.join(given)})"

    def return_statement(self) -> str:
        record, choose = self.record, self.choices
        if self.many == "list":
            forms = ["out", f"[{record()}, {record()}]", "[]", f"[{record()} for j in range({self.leaf('int')} % 4)]"]
            return f"return {choose.pick([*forms[:1], *forms])}"
        if self.many == "optional" and choose.chance(40):
            return choose.pick(["return None", f"return {record()} if {self.condition(1)} else None"])
        return f"return {record()}"


def random_operator(choices: Choices) -> RandomOperator:
    """An operator over records `Given`, with or without a state `Kept`."""
    many, has_state = choices.pick(["one", "optional", "list"]), choices.chance(70)
    kinds = tuple(choices.pick(KINDS) for _ in range(choices.between(1, 4)))
    given_kinds = tuple(kind for kind in KINDS for _ in range(2))
    outputs = "Given" if choices.chance(30) else "Made"
    scope = Scope(values=[(f"given.{kind}_{place}", kind) for place, kind in enumerate(given_kinds)])
    if has_state:
        scope.rows = [("kept", STATE)] * 3
    bodies = _Bodies(choices, scope, HELPERS if has_state else HELPERS[:1], choices.pick([0, 4, 12]), outputs)
    bodies.many, bodies.outputs = many, outputs
    bodies.kinds = given_kinds if outputs == "Given" else kinds
    bodies.may_fall_off = many == "optional"
    if many == "list":
        bodies.write("out = []")
    source = HEADER + "from dataclasses import replace\n"
    for name, fields in (("Given", given_kinds), ("Made", kinds)):
        source += f"\n\n@dataclass\nclass {name}:\n"
        source += "".join(f"    {kind}_{place}: {kind}\n" for place, kind in enumerate(fields))
    source += "\n\n@dataclass\nclass Kept:\n" + "".join(f"    {name}: {kind}\n" for name, kind, _ in KEPT)
    source += "\n\ndef helper_sum(a, b):\n    return a + b\n"
    source += "\n\ndef helper_bump(kept, by):\n    kept.int_0 += by\n    return kept.int_0 * 2\n"
    source += f"\n\ndef operator({'kept, ' if has_state else ''}given):\n" + "\n".join(bodies.body()) + "\n"
    return RandomOperator(source, many, outputs, has_state)


def random_fields(choices: Choices, declared: type) -> Any:
    """An object of `Given` or `Kept`."""
    kinds = [each if isinstance(each, str) else each.__name__ for each in declared.__annotations__.values()]
    return declared(*(choices.pick(VALUES[kind]) for kind in kinds))
