"""Random dataflow programs as source text, with events that fit them, all from one stream of choices.

    choices = Choices(seed)  ->  random_graph_case(choices)  ->  GraphCase(source, streams, windows, events, ...)

A graph grows member by member. A member runs on a stream that is there already, which closes it: nobody emits into it
any more. It emits into streams that are still open, or into new ones. So every edge goes from an earlier to a later
member, whatever is drawn; streams that stay open at the end are outputs:

    s0 ──> m0 ──> s1 ──> m1 ──> s2        s1 is closed by m1, and m2 may be on it too
     └───> m2 ──> s2, s3                  s2 has two producers; s2 and s3 are outputs

A third of the programs look rows up, a third ask for earlier states of some tables; there all transactions say their
time, and every stream carries one. The members are listed in any order. Nested groups are drawn last, and kept where
the groups still have an order. Nothing here runs a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .choices import Choices
from .graph_data import Graph, Procedure, Stream, Window
from .random_events import KEYS, VALUES
from .random_expressions import Expressions, Scope, TableSpec
from .random_graph_bodies import FieldSpec, GraphBodies, StreamSpec, WindowSpec
from .random_lookups import Reach, helpers_of

HEADER = "import math\n\nimport tidegate as tg\n"
TUPLES_MAX = 24
WIDE: dict[str, list[Any]] = {
    "int": list(range(300)),
    "str": [f"key {number}" for number in range(300)],
    "float": [number / 4 for number in range(300)],
}
Event = dict[str, Any]


@dataclass(eq=False)
class MemberSpec:
    """A transaction or trigger of a graph: `window` is what starts it, if it is a trigger on one."""

    name: str
    stream: StreamSpec
    parameters: list[tuple[FieldSpec, TableSpec | None]]
    windows: list[tuple[str, WindowSpec]]
    is_trigger: bool = False
    window: WindowSpec | None = None
    emits: list[StreamSpec] = field(default_factory=list)
    source: str = ""
    place: int = 0


@dataclass
class GraphSpec:
    """One dataflow under construction: members in an order that respects all edges."""

    number: int
    borders: list[StreamSpec] = field(default_factory=list)
    inner: list[StreamSpec] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    members: list[MemberSpec] = field(default_factory=list)
    nested: list[list[MemberSpec]] = field(default_factory=list)
    atomic_batch: int | str = 1
    part_kind: str = "int"

    @property
    def outputs(self) -> list[StreamSpec]:
        return [stream for stream in self.inner if stream.name not in self.closed]


@dataclass
class GraphCase:
    """One comparison: a program, rows to load, and events in the order in which they arrive."""

    source: str = HEADER
    tables: list[TableSpec] = field(default_factory=list)
    graphs: list[GraphSpec] = field(default_factory=list)
    plain: list[tuple[str, list[tuple[FieldSpec, TableSpec | None]]]] = field(default_factory=list)
    loads: dict[str, list[Event]] = field(default_factory=dict)
    columns: list[FieldSpec] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    has_transaction_column: bool = True
    abort_percent: int = 0
    wild: int = 0
    wide: bool = False
    apart: bool = False
    """Whether neighbours of a graph have tables of their own, so that they can run side by side."""
    interpreted_percent: int = 0
    looks_up: bool = False
    remembered: list[TableSpec] = field(default_factory=list)
    """The tables whose rows' earlier states may be asked for."""
    keeps: dict[str, int] = field(default_factory=dict)
    """How far back somebody does ask, by table."""
    drawn: Sequence[int] = ()

    @property
    def names(self) -> list[str]:
        """What the engine is made of, in order."""
        return [*(f"flow_{graph.number}" for graph in self.graphs), *(name for name, _ in self.plain)]

    @property
    def windows(self) -> list[str]:
        found = [window.name for graph in self.graphs for member in graph.members for _, window in member.windows]
        return [name for name in dict.fromkeys(found) if name]


def random_graph_case(choices: Choices, small: bool = False) -> GraphCase:
    """A program with its events; a small one has few transactions, for it will be compiled."""
    case = GraphCase(wild=choices.weighted([(6, 0), (2, 3)]))
    case.abort_percent = choices.weighted([(3, 4), (3, 0), (2, 15), (1, 50), (1, 90)])
    case.wide = choices.chance(15)
    case.interpreted_percent = choices.weighted([(8, 0), (2, 30), (1, 100)])
    case.apart = choices.chance(40)
    for number in range(choices.weighted([(3, 2), (2, 3), (1, 4)] if case.apart else [(3, 1), (3, 2), (1, 3)])):
        _write_table(choices, case, number)
    case.looks_up = choices.chance(35)
    if choices.chance(35):
        case.remembered = [table for table in case.tables if choices.chance(70)] or case.tables[:1]
    size = choices.weighted(
        [(2, 2), (2, 3), (1, 4)] if small else [(2, 2), (3, 3), (3, 4), (2, 5), (2, 6), (1, 7), (1, 8)]
    )
    sizes = [size] if small or size < 3 or not choices.chance(20) else [size - size // 2, size // 2]
    asks = case.looks_up or case.remembered
    sizes = [min(2, size)] if small and asks else sizes  # what they say takes long to compile
    alone = asks and choices.chance(15)
    for number, members in enumerate(sizes if not alone else []):
        case.graphs.append(_random_graph(choices, case, number, members))
    for number in range(choices.weighted([(2, 0), (3, 1), (2, 2)] if not alone else [(1, 1), (2, 2), (2, 3)])):
        _write_plain(choices, case, number)
    for graph in case.graphs:
        _write_dataflow(choices, case, graph)
    _columns(case)
    _events(choices, case)
    case.drawn = choices.drawn
    return case


def _write_table(choices: Choices, case: GraphCase, number: int) -> None:
    keys = choices.weighted([(10, ["int"]), (3, ["str"]), (1, ["float"]), (1, ["int", "str"])])
    names = ["id"] if len(keys) == 1 else ["part", "serial"]
    writer = Expressions(choices, [], 0)
    fields: list[tuple[str, str, str | None]] = [(name, kind, None) for name, kind in zip(names, keys, strict=True)]
    for _ in range(choices.between(1, 3)):
        kind = choices.weighted([(8, "int"), (2, "float"), (1, "bool"), (1, "str")])
        fields.append((f"{kind}_{len(fields)}", kind, writer.constant(kind) if choices.chance(40) else None))
    fields.sort(key=lambda item: item[2] is not None)
    table = TableSpec(f"Table{number}", tuple(fields), tuple(names))
    case.tables.append(table)
    key = repr(names[0]) if len(names) == 1 else repr(tuple(names))
    case.source += f"\n\n@tg.table(key={key})\nclass {table.name}:\n"
    for name, kind, default in fields:
        case.source += f"    {name}: {kind}" + (f" = {default}" if default is not None else "") + "\n"
    case.source += helpers_of(table)


# Graphs.


def _random_graph(choices: Choices, case: GraphCase, number: int, size: int) -> GraphSpec:
    graph = GraphSpec(number)
    graph.atomic_batch = choices.weighted([(4, 1), (2, 2), (1, 3), (1, 5), (2, "part")])
    graph.part_kind = choices.weighted([(3, "int"), (1, "str")])
    for _ in range(choices.weighted([(5, 1), (2, 2)])):
        graph.borders.append(_stream(choices, case, graph, None))
    for place in range(size):
        member = _member(choices, case, graph, place)
        member.place = place
        _emits(choices, case, graph, member, last=place == size - 1)
        graph.members.append(member)
    used = {member.stream for member in graph.members}
    graph.borders = [stream for stream in graph.borders if stream in used]
    _nest(choices, graph)
    for member in graph.members:
        case.source += member.source
    return graph


def _stream(choices: Choices, case: GraphCase, graph: GraphSpec, producer: MemberSpec | None) -> StreamSpec:
    """A new stream; one of an interior producer carries a composite key only if the producer has such a row."""
    name = f"s{graph.number}_{len(graph.borders) + len(graph.inner)}"
    rows = [table for _, table in producer.parameters if table] if producer else case.tables
    fields = []
    for number in range(choices.between(1, 2)):
        table = choices.pick(case.tables)
        if len(table.key) == 1 and not choices.chance(15):
            fields.append(FieldSpec(f"k{number}_{table.key_kinds[0][1]}", table.key_kinds[0][1], role="key"))
        elif len(table.key) == 1 or table in rows:
            fields.append(FieldSpec(f"k{number}_{table.name}", table.key_kinds[0][1], table, role="key"))
    for number in range(choices.between(0 if fields else 1, 2)):
        kind = choices.weighted([(8, "int"), (3, "float"), (1, "bool"), (1, "str")])
        fields.append(FieldSpec(f"v{number}_{kind}", kind))
    if choices.chance(40) or case.remembered:
        fields.append(FieldSpec("ts", "int", role="time"))
    if producer is None and graph.atomic_batch == "part":
        graph.atomic_batch = f"part_{graph.part_kind}"
    if producer is None and isinstance(graph.atomic_batch, str):
        fields.append(FieldSpec(graph.atomic_batch, graph.part_kind, role="key"))
    fields.sort(key=lambda found: choices.below(4))
    stream = StreamSpec(name, tuple(fields), weight=1 if producer is None else 0)
    texts = ", ".join(f"{found.name}={found.table.name if found.table else found.kind}" for found in fields)
    case.source += f'\n{name} = tg.stream("{name}", {texts})\n'
    if producer is not None:
        graph.inner.append(stream)
        stream.has_sender = choices.chance(20)
    if stream.has_sender:
        names = [f"a{number}" for number in range(len(fields))]
        given = ", ".join(f"{found.name}={name}" for found, name in zip(fields, names, strict=True))
        case.source += f"\n\ndef send_{stream.name}({', '.join(names)}):\n    tg.emit({stream.name}, {given})\n"
    return stream


def _member(choices: Choices, case: GraphCase, graph: GraphSpec, place: int) -> MemberSpec:
    """A member without its body: on a border, on an inner stream, on a stream as a trigger, or on a window."""
    name = f"m{graph.number}_{place}"
    unused = [stream for stream in graph.borders if all(member.stream is not stream for member in graph.members)]
    slides = [window for member in graph.members for _, window in member.windows if window.name and not member.window]
    options = [(1 if place else 6, "border")]
    options += [(6, "inner"), (2, "trigger")] if graph.inner else []
    options += [(3, "slide")] if slides else []
    chosen = choices.weighted(options)
    if unused and choices.chance(50):
        chosen = "border"
    if chosen == "slide":
        window = choices.pick(slides)
        own = [("own", window)] if choices.chance(70) else []
        return MemberSpec(name, window.stream, _parameters(choices, case, window.stream, place), own, True, window)
    stream = choices.pick(unused or graph.borders) if chosen == "border" else choices.pick(graph.inner[::-1])
    graph.closed.add(stream.name)
    trigger = chosen == "trigger" and _is_one_group(graph, stream)
    windows = _windows(choices, case, stream, name)
    return MemberSpec(name, stream, _parameters(choices, case, stream, place), windows, trigger)


def _is_one_group(graph: GraphSpec, stream: StreamSpec) -> bool:
    """A trigger runs inside one transaction: several producers of its stream are nested, if they can be."""
    producers = [member for member in graph.members if stream in member.emits]
    if len(producers) > 1:
        taken = {id(member) for group in graph.nested for member in group}
        if any(id(member) in taken for member in producers) or not _has_order(graph, [*graph.nested, producers]):
            return False
        graph.nested.append(producers)
    return bool(producers)


def _parameters(
    choices: Choices, case: GraphCase, stream: StreamSpec, place: int
) -> list[tuple[FieldSpec, TableSpec | None]]:
    """For each field that the member uses: a row of a table with such a key, or the value itself."""
    found: list[tuple[FieldSpec, TableSpec | None]] = []
    own = [case.tables[place % len(case.tables)]] if case.apart else case.tables
    for given in stream.fields:
        fitting = [table for table in own if _kind_of_key(table) == given.kind]
        tables = [given.table] if given.table is not None else fitting
        if given.table is None and (not tables or given.role != "key" or choices.chance(15)):
            if not choices.chance(15) or (case.remembered and given.role == "time"):
                found.append((given, None))
        elif not choices.chance(8):
            found.append((given, choices.pick(tables)))
    if choices.chance(20):
        found.reverse()
    return found


def _kind_of_key(table: TableSpec) -> str | None:
    return table.key_kinds[0][1] if len(table.key) == 1 else None


def _windows(choices: Choices, case: GraphCase, stream: StreamSpec, member: str) -> list[tuple[str, WindowSpec]]:
    found = []
    for number in range(choices.weighted([(5, 0), (4, 1), (1, 2)])):
        times = [given.name for given in stream.fields if given.role == "time"]
        times += [
            given.name for given in stream.fields if given.kind == "int" and given.role == "key" and not given.table
        ]
        slide = choices.weighted([(3, 1), (2, 2), (1, 3), (1, 0)])
        if times and choices.chance(50):
            slide = slide * choices.pick([1, 5])
            size = max(slide, choices.pick([1, 5, 12, 30]))
            text = f'{stream.name}, time="{times[0]}", length={size}'
        else:
            size = max(slide, choices.pick([2, 1, 3, 5, 8]))
            text = f"{stream.name}, rows={size}"
        text = f"tg.window({text}{f', slide={slide}' if slide else ''})"
        name = "" if choices.chance(12) else f"w_{member}_{number}"
        if name:
            case.source += f"\n{name} = {text}\n"
        found.append((f"recent{number}", WindowSpec(name, text, stream)))
    return found


def _emits(choices: Choices, case: GraphCase, graph: GraphSpec, member: MemberSpec, last: bool) -> None:
    """Chooses the streams that a member emits into, and writes its body."""
    room = TUPLES_MAX // max(1, member.stream.weight)
    rows = [table for _, table in member.parameters if table]
    fitting = [
        stream
        for stream in graph.outputs
        if all(not given.is_composite or given.table in rows for given in stream.fields)
    ]
    for _ in range(choices.weighted([(3, 1), (2, 2), (2, 0)]) if room > 1 and not (last and choices.chance(50)) else 0):
        stream = choices.pick(fitting) if fitting and choices.chance(30) else _stream(choices, case, graph, member)
        if stream not in member.emits:
            member.emits.append(stream)
    member.source = _member_source(choices, case, graph, member, room)


def _member_source(choices: Choices, case: GraphCase, graph: GraphSpec, member: MemberSpec, room: int) -> str:
    scope = Scope()
    for given, table in member.parameters:
        if table is not None:
            scope.rows.append((given.name, table))
        else:
            scope.values.append((given.name, given.kind))
    is_border = member.stream in graph.borders
    returns = "int" if choices.chance(70 if is_border else 15) and not member.is_trigger else None
    how = ", compiled=False" if choices.chance(case.interpreted_percent) else ""
    own = [case.tables[member.place % len(case.tables)]] if case.apart else case.tables
    reach = _reach(case, own, compiled=not how)
    bodies = GraphBodies(
        choices, scope, case.wild, returns, case.abort_percent, member.emits, min(room, 5), member.windows, reach
    )
    lines = bodies.body()
    _keep(case, reach.keeps(lines))
    for stream in member.emits:
        stream.weight += member.stream.weight * bodies.emitted.get(stream.name, 0)
    texts = [f"{given.name}: {table.name if table else given.kind}" for given, table in member.parameters]
    texts += [f"{name}: {window.name or window.text}" for name, window in member.windows]
    on = member.window.name if member.window else member.stream.name
    emits = f", emits=[{', '.join(stream.name for stream in member.emits)}]" if member.emits else ""
    how += _time(choices, case, member.parameters)
    decorator = f"@tg.{'trigger' if member.is_trigger else 'transaction'}(on={on}{emits}{how})"
    arrow = f" -> {returns}" if returns else ""
    return "\n\n" + "\n".join([decorator, f"def {member.name}({', '.join(texts)}){arrow}:", *lines]) + "\n"


def _reach(case: GraphCase, tables: list[TableSpec], compiled: bool) -> Reach:
    """What a body may look up and remember; plain Python may neither."""
    looked_up = tables if case.looks_up and compiled else []
    return Reach(looked_up, case.remembered if compiled else [], keys=997 if case.wide else 5)


def _keep(case: GraphCase, asked: dict[str, int]) -> None:
    for table, last in asked.items():
        case.keeps[table] = max(last, case.keeps.get(table, 0))


def _time(choices: Choices, case: GraphCase, parameters: list[tuple[FieldSpec, TableSpec | None]]) -> str:
    """Which parameter is a transaction's own time, where the program needs it: mostly that of the events."""
    if not case.remembered:
        return ""
    numbers = [given.name for given, table in parameters if given.kind == "int" and table is None]
    return f', time="{"ts" if not choices.chance(15) else choices.pick(numbers)}"'


def _nest(choices: Choices, graph: GraphSpec) -> None:
    """Draws nested groups; one that leaves the groups without an order is dropped."""
    for _ in range(choices.weighted([(2, 0), (4, 1), (2, 2)])):
        taken = {id(member) for group in graph.nested for member in group}
        free = [member for member in graph.members if id(member) not in taken]
        first = choices.below(len(free)) if free else 0
        group = free[first : first + choices.between(2, 4)]
        if len(group) > 2 and choices.chance(30):
            del group[1]
        if len(group) > 1 and _has_order(graph, [*graph.nested, group]):
            if choices.chance(30):
                group.reverse()
            graph.nested.append(group)


def _has_order(graph: GraphSpec, nested: list[list[MemberSpec]]) -> bool:
    streams = {stream: Stream(stream.name, {}) for stream in [*graph.borders, *graph.inner]}
    windows: dict[WindowSpec, Window] = {}
    made: dict[int, Procedure] = {}
    for member in graph.members:
        own = [windows.setdefault(window, Window(streams[window.stream], 1, 1)) for _, window in member.windows]
        made[id(member)] = Procedure(
            member.name,
            lambda: None,
            tuple(("", window, False) for window in own),
            on=windows[member.window] if member.window else streams[member.stream],
            emits=tuple(streams[stream] for stream in member.emits),
            is_trigger=member.is_trigger,
        )
    groups = tuple(tuple(made[id(member)] for member in group) for group in nested)
    try:
        Graph("", tuple(made.values()), groups).groups()
    except ValueError:
        return False
    return True


def _write_dataflow(choices: Choices, case: GraphCase, graph: GraphSpec) -> None:
    listed = sorted(graph.members, key=lambda member: choices.below(3))
    names = ", ".join(member.name for member in listed)
    options = [f"nested=[{', '.join('(' + ', '.join(m.name for m in group) + ')' for group in graph.nested)}]"]
    options = options if graph.nested else []
    if graph.atomic_batch != 1:
        options.append(f"atomic_batch={graph.atomic_batch!r}")
    if choices.chance(30):
        options.append(f'name="graph_{graph.number}"')
    case.source += f"\n\nflow_{graph.number} = tg.dataflow({', '.join([f'[{names}]', *options])})\n"


def _write_plain(choices: Choices, case: GraphCase, number: int) -> None:
    """A transaction on no stream, over the same tables."""
    parameters: list[tuple[FieldSpec, TableSpec | None]] = []
    for position in range(choices.between(1, 2)):
        table = choices.pick(case.tables)
        if len(table.key) == 1:
            parameters.append(
                (FieldSpec(f"p{position}_{table.key_kinds[0][1]}", table.key_kinds[0][1], role="key"), table)
            )
        else:
            parameters.append((FieldSpec(f"p{position}_{table.name}", "int", table, role="key"), table))
    parameters.append((FieldSpec("p_amount", "int"), None))
    if case.remembered:
        parameters.append((FieldSpec("ts", "int", role="time"), None))
    values = [(given.name, given.kind) for given, table in parameters if table is None]
    scope = Scope(values, rows=[(given.name, table) for given, table in parameters if table])
    alone = not case.graphs and number == 0
    compiled = alone or not choices.chance(case.interpreted_percent)
    reach = _reach(case, case.tables, compiled)
    writer = GraphBodies(choices, scope, case.wild, "int", case.abort_percent, [], 0, [], reach)
    if alone:  # a program without graphs that asks for nothing is none of ours
        writer.look_up() if case.looks_up else writer.write(f"n_seen = {writer.about_history(*scope.rows[0])[0][0]}")
    lines = writer.body()
    _keep(case, reach.keeps(lines))
    texts = ", ".join(f"{given.name}: {table.name if table else given.kind}" for given, table in parameters)
    how = "" if compiled else ", compiled=False"
    how = (how + _time(choices, case, parameters))[2:]
    decorator = f"@tg.transaction({how})" if how else "@tg.transaction"
    case.source += "\n\n" + "\n".join([decorator, f"def plain_{number}({texts}) -> int:", *lines]) + "\n"
    case.plain.append((f"plain_{number}", parameters))


# Events.


def _columns(case: GraphCase) -> None:
    """Every field of a border stream and every parameter of a plain transaction is an event column."""
    fields = [given for graph in case.graphs for stream in graph.borders for given in stream.fields]
    fields += [given for _, parameters in case.plain for given, _ in parameters]
    case.columns = list({given.name: given for given in fields}.values())


def _events(choices: Choices, case: GraphCase) -> None:
    pools = {
        kind: WIDE[kind] if case.wide else [choices.pick(keys[:6]) for _ in range(choices.between(1, 4))]
        for kind, keys in KEYS.items()
        if kind != "bool"
    }
    for table in case.tables:
        case.loads[table.name] = _rows(choices, table, pools)
    sources: list[tuple[int, str, Sequence[FieldSpec]]] = []
    for graph in case.graphs:
        sources += [(4, stream.name, stream.fields) for stream in graph.borders]
    often = choices.weighted([(2, 1), (1, 30)])  # plain transactions beside graphs, or graphs beside them
    sources += [(often, name, [given for given, _ in parameters]) for name, parameters in case.plain]
    case.has_transaction_column = len(sources) > 1 or choices.chance(50)
    ts, part = 0, 0
    for _ in range(choices.weighted([(1, 5), (2, 12), (3, 25), (2, 40)])):
        _, name, fields = choices.weighted([(source[0], source) for source in sources])
        ts += choices.pick([0, 1, 1, 3, 10, -2])
        part = choices.below(3) if choices.chance(40) else part
        event: Event = {given.name: None for given in case.columns}
        for given in fields:
            event[given.name] = _cell(choices, given, pools, case.wild)
            if given.name == "ts" and not choices.chance(case.wild):
                event["ts"] = ts
            elif given.name.startswith("part"):
                event[given.name] = part if given.kind == "int" else "ab"[:part]
        if choices.chance(2):
            event[choices.pick(fields).name] = None
        if case.has_transaction_column:
            event["transaction"] = choices.pick(["unknown", None, "m0_0"]) if choices.chance(1) else name
        case.events.append(event)


def _rows(choices: Choices, table: TableSpec, pools: dict[str, list[Any]]) -> list[Event]:
    rows: dict[tuple[Any, ...], Event] = {}
    for _ in range(choices.weighted([(1, 3), (1, 0), (1, 6)])):
        row = {
            name: choices.pick(pools[kind]) if name in table.key else choices.pick(VALUES[kind])
            for name, kind, _ in table.fields
        }
        rows[tuple(row[name] for name in table.key)] = row
    return list(rows.values())


def _cell(choices: Choices, given: FieldSpec, pools: dict[str, list[Any]], wild: int) -> Any:
    if given.is_composite:
        assert given.table is not None
        return {name: choices.pick(pools[kind]) for name, kind in given.table.key_kinds}
    if given.role == "key":
        return choices.pick(pools[given.kind])
    if wild and given.kind == "int" and choices.chance(wild):
        return choices.pick([2**63 - 1, -(2**63), 2**62])
    return choices.pick(VALUES[given.kind])
