"""Writes the program of a dataflow graph: `flow`, which takes events through it.

    step_<transaction>(q, env)     one tuple: its rows by their keys, its windows, its body
    group_<number>(active, env)    the members of a group, all or nothing
    flow(start..., env)            events in order: plain transactions at their place, rounds when a batch is complete
    traced_flow(..., trace, env)   the same, and every step is noted, or only what was noted is run (`flow_traces`)

Everything that a step may change is journalled before (`flow_steps`), and a group that fails is taken back from
there. When an array is full, or an integer leaves 64 bits, the group is taken back as well, and `flow` returns a code
that says what it needs; called again, it goes on with the same group.
"""

from __future__ import annotations

from tidegate.compiler.flow_traces import TraceWriter
from tidegate.operations.flow import (
    ACTIVE,
    ALONE,
    DONE,
    GIVES,
    GROUP,
    HISTORY_FULL,
    LOG_FULL,
    LOGGED,
    MISFIT,
    MODE,
    PLAIN_EVENT,
    PLAIN_GROUP,
    POSITION,
    RECORD,
    REPLAYING,
    ROOM,
    ROUNDS,
    STREAM_FULL,
    TAKES,
    TOUCHED_FULL,
    TRACE_END,
    TRACED,
    WHICH,
    FlowPlan,
    GroupPlan,
    round_ends,
    round_span,
    stream_count,
)
from tidegate.operations.layout import TableLayout
from tidegate.operations.plan import column_array


class FlowWriter(TraceWriter):
    """Writes `flow` and `traced_flow` for a program."""

    # --- the text ------------------------------------------------------------------------------------------

    def text(self) -> str:
        """All functions."""
        parts = [self._remember(table) for table in self.journalled if table.name in self.keeps]
        ordered = sorted(enumerate(self.flows.members), key=lambda found: found[1].on_window < 0)
        parts += [self._step(number) for number, member in ordered if self.plans[member.transaction].compiled]
        for place, flow in enumerate(self.flows.flows):
            for number, group in zip(flow.group_numbers, flow.groups, strict=True):
                parts += [self._group(number, group, place), *self._traces(number, place)]
        return "\n\n\n".join([*parts, self._flow(), self._flow(traced=True)])

    # --- groups ----------------------------------------------------------------------------------------------

    def _group(self, number: int, group: GroupPlan, flow: int) -> str:
        members = [(m, self.flows.members[m]) for m in group.members]
        if any(not self.plans[member.transaction].compiled for _, member in members):
            return f"@generated\ndef group_{number}(active, env):\n    return -1"
        emitted = [self.flows.streams[s].name for s in group.emits]
        tables = [t for t in self.journalled if any(t.name in self._written_tables(m) for _, m in members)]
        windowed = any(self.flows.owners[w] in group.members for w in range(len(self.flows.windows)))
        body = [f"    c_{name} = {stream_count(name)}[0]" for name in emitted]
        body.append("    s = 0")
        body += [
            f"    if control[{RECORD}] != 0 and control[{LOGGED}] + {len(members)} > log.shape[0]:",
            f"        return {ROOM - LOG_FULL}",
        ]
        for m, member in members:
            if member.on_window >= 0:
                continue
            if member.border:
                body += [
                    f"    if s == 0 and active == {member.stream}:",
                    f"        for e in range(open_{member.stream}[0]):",
                    f"            s = step_{m}(opened_{member.stream}[e], env)",
                    "            if s != 0:",
                    "                break",
                ]
            else:
                body += [
                    "    if s == 0:",
                    f"        for q in range({self._tuples(member.stream)}):",
                    f"            s = step_{m}(q, env)",
                    "            if s != 0:",
                    "                break",
                ]
        for table in tables:
            body += [
                f"    if s == 0 and tn_{table.name}[0] + jn_{table.name}[0] > tt_{table.name}.shape[0]:",
                f"        control[{WHICH}] = number_of_{table.name}",
                f"        s = {ROOM - TOUCHED_FULL}",
            ]
            if table.name in self.keeps:
                body += [
                    f"    if s == 0 and hs_{table.name}[1] - hs_{table.name}[0] + jn_{table.name}[0] > "
                    f"ht_{table.name}.shape[0]:",
                    f"        control[{WHICH}] = number_of_{table.name}",
                    f"        s = {ROOM - HISTORY_FULL}",
                ]
        stage = self.flows.stage_of(number) if windowed else -1
        body += ["    if s != 0:", *self._take_back(tables, emitted, stage)]
        body += ["    else:", *self._keep(group, tables, stage, flow)]
        body += self._record(number, [m for m, _ in members], flow)
        for m, _ in members:
            body.append(f"    hits[{m}] = 0")
        for border in self.flows.borders_of(number):
            body += self._refuse_round(border)
        body.append("    return s")
        return "\n".join([f"@generated\ndef group_{number}(active, env):", *self._unpack(body), *body])

    def _take_back(self, tables: list[TableLayout], emitted: list[str], stage: int) -> list[str]:
        lines = [f"        {stream_count(name)}[0] = c_{name}" for name in emitted]
        for table in tables:
            name = table.name
            lines += [
                f"        for back in range(jn_{name}[0]):",
                f"            m = jn_{name}[0] - 1 - back",
                f"            e_{name}[jr_{name}[m]] = je_{name}[m]",
            ]
            for column in table.value_columns:
                array = column_array(name, column.name)
                lines.append(f"            {array}[jr_{name}[m]] = j{array}[m]")
            lines.append(f"        jn_{name}[0] = 0")
        if stage >= 0:
            lines.append(f"        undo(wheap_{stage}, wjournal_{stage}, wstate_{stage}, 0)")
        return lines or ["        pass"]

    def _keep(self, group: GroupPlan, tables: list[TableLayout], stage: int, flow: int) -> list[str]:
        lines = []
        for table in tables:
            name = table.name
            if name in self.keeps:
                lines.append(f"        remember_{name}(env)")
            lines += [
                f"        touch(jr_{name}, jn_{name}, tm_{name}, tt_{name}, tn_{name})",
                f"        jn_{name}[0] = 0",
            ]
        if stage >= 0:
            lines.append(f"        wstate_{stage}[0] = 0")
        for stream in group.emits:
            name = self.flows.streams[stream].name
            if self.flows.outputs[stream]:
                lines += [
                    f"        for p in range(c_{name}, {stream_count(name)}[0]):",
                    f"            b_{name}[p] = control[{ROUNDS + flow}]",
                ]
        return lines or ["        pass"]

    def _remember(self, table: TableLayout) -> str:
        """A function that notes the states of the rows that a group changed.

        A step may have noted a row several times, at last in the middle of its work: its first entry counts, and the
        others become like it. Then backwards through the journal: the newest entry of a row that is not what the row
        is now belongs to the step that changed it last, and its time goes to the entries before. And forwards: the
        oldest entry tells whether the group changed the row at all.
        """
        name = table.name
        columns = [column_array(name, column.name) for column in table.value_columns]
        differs = [f"je_{name}[m] != e_{name}[slot]"]
        differs += [f"(j{c}[m] != {c}[slot] and (j{c}[m] == j{c}[m] or {c}[slot] == {c}[slot]))" for c in columns]
        changed = " or ".join(differs)
        body = [
            f"    for m in range(jn_{name}[0]):",
            f"        slot = jr_{name}[m]",
            f"        first = hl_{name}[slot] - 1",
            f"        if first >= 0 and jb_{name}[first] == jb_{name}[m]:",
            *(f"            {array}[m] = {array}[first]" for array in (f"je_{name}", *(f"j{c}" for c in columns))),
            "        else:",
            f"            hl_{name}[slot] = m + 1",
            f"    for m in range(jn_{name}[0]):",
            f"        hl_{name}[jr_{name}[m]] = 0",
            f"    for back in range(jn_{name}[0]):",
            f"        m = jn_{name}[0] - 1 - back",
            f"        slot = jr_{name}[m]",
            f"        if hl_{name}[slot] > 0:",
            f"            jt_{name}[m] = jt_{name}[hl_{name}[slot] - 1]",
            f"            hl_{name}[slot] = m + 1",
            f"        elif {changed}:",
            f"            hl_{name}[slot] = m + 1",
            f"    for m in range(jn_{name}[0]):",
            f"        slot = jr_{name}[m]",
            f"        oldest = hl_{name}[slot] == m + 1",
            f"        hl_{name}[slot] = 0",
            f"        if not (oldest and ({changed})):",
            "            continue",
            f"        place = hs_{name}[1] & (ht_{name}.shape[0] - 1)",
            f"        hp_{name}[place] = hh_{name}[slot]",
            f"        ht_{name}[place] = jt_{name}[m]",
            f"        hr_{name}[place] = slot",
            f"        he_{name}[place] = e_{name}[slot]",
            *(f"        h{c}[place] = {c}[slot]" for c in columns),
            f"        hs_{name}[1] += 1",
            f"        hh_{name}[slot] = hs_{name}[1]",
            f"        if jt_{name}[m] > hs_{name}[2]:",
            f"            hs_{name}[2] = jt_{name}[m]",
            f"    while hs_{name}[0] < hs_{name}[1]:",
            f"        eldest = ht_{name}[hs_{name}[0] & (ht_{name}.shape[0] - 1)]",
            f"        if not is_forgotten(eldest, hs_{name}[2], keep_{name}):",
            "            break",
            f"        hs_{name}[0] += 1",
            "    return 0",
        ]
        return "\n".join([f"@generated\ndef remember_{name}(env):", *self._unpack(body), *body])

    def _record(self, number: int, members: list[int], flow: int) -> list[str]:
        lines = [f"    if control[{RECORD}] != 0 and s >= 0:", "        now = tick()"]
        for m in members:
            lines += [
                f"        if hits[{m}] > 0:",
                f"            entry = control[{LOGGED}]",
                f"            log[entry, 0] = {m}",
                f"            log[entry, 1] = control[{ROUNDS + flow}]",
                f"            log[entry, 2] = {number}",
                "            log[entry, 3] = 1 if s == 0 else 0",
                f"            log[entry, 4] = hits[{m}]",
                "            log[entry, 5] = now",
                f"            control[{LOGGED}] = entry + 1",
            ]
        return lines

    # --- the whole -------------------------------------------------------------------------------------------

    def _flow(self, traced: bool = False) -> str:
        body = ["    while True:"]
        if traced:
            body += [
                f"        if control[{MODE}] == {REPLAYING} and control[{TRACED}] >= control[{TRACE_END}]:",
                f"            return {DONE}",
            ]
        body += [f"        if control[{GROUP}] >= 0:", f"            active = control[{ACTIVE}]"]
        for place, flow in enumerate(self.flows.flows):
            tests = " or ".join(f"active == {border}" for border in flow.borders)
            body.append(f"            if {tests}:")
            body += self._find_step(place, flow) if traced else []
            for group in flow.group_numbers:
                body.append(f"                if control[{GROUP}] == {group}:")
                body += [f"                    {line}" for line in self._run_group(group, traced)]
            body += self._end_round(flow)
        body += [f"        position = control[{POSITION}]", "        if position >= stop:"]
        if traced:
            body += [
                f"            if control[{MODE}] == {REPLAYING}:",
                f"                control[{WHICH}] = 0",
                f"                return {MISFIT}",
            ]
        body += [
            f"            return {DONE}",
            "        i = order[position]",
            "        if refused[i] != 0:",
            f"            control[{POSITION}] = position + 1",
            "            continue",
            "        k = kinds[i]",
        ]
        for place, flow in enumerate(self.flows.flows):
            for border in flow.borders:
                body += self._arrive(flow, place, border)
        for transaction, call in self.calls.items():
            mine = f" and mine[{self._groups + transaction}]" if self._staged else ""
            body.append(f"        if k == {transaction}{mine}:")
            body += [f"            {line}" for line in self._run_transaction(transaction, call, traced)]
        body.append(f"        control[{POSITION}] = position + 1")
        arguments = "stop, order, kinds, trace, trace_floats, env" if traced else "stop, order, kinds, env"
        name = "traced_flow" if traced else "flow"
        return "\n".join([f"@kernel_or_plain\ndef {name}({arguments}):", *self._unpack(body), *body])

    def _run_group(self, group: int, traced: bool) -> list[str]:
        """Lines that run a group of the open round."""
        indent = "    " if traced else ""
        return [
            *(self._before_group(group) if traced else ()),
            f"{indent}s = {self._if_mine(group)}group_{group}(active, env)",
            f"{indent}if s < 0:",
            f"{indent}    if s == -1:",
            f"{indent}        return {PLAIN_GROUP}",
            f"{indent}    return {STREAM_FULL} if s == -2 else {ROOM} - s",
            *(self._after_step() if traced else ()),
            f"control[{GROUP}] = {group + 1}",
            *((f"if control[{MODE}] == {REPLAYING}:", "    continue") if traced else ()),
        ]

    def _run_transaction(self, transaction: int, call: str, traced: bool) -> list[str]:
        """Lines that run a plain transaction for event i."""
        indent = "    " if traced else ""
        return [
            f"if control[{RECORD}] != 0 and control[{LOGGED}] >= log.shape[0]:",
            f"    return {LOG_FULL}",
            *(self._before_transaction(transaction) if traced else ()),
            f"{indent}s = {call}",
            f"{indent}if s == -1:",
            f"{indent}    return {PLAIN_EVENT}",
            *(self._after_step() if traced else ()),
            "status[i] = s",
            f"if control[{RECORD}] != 0:",
            f"    entry = control[{LOGGED}]",
            f"    log[entry, 0] = {-1 - transaction}",
            "    log[entry, 1] = 0",
            "    log[entry, 2] = -1",
            "    log[entry, 3] = 1 if s == 0 else 0",
            "    log[entry, 4] = 1",
            "    log[entry, 5] = tick()",
            f"    control[{LOGGED}] = entry + 1",
        ]

    def _end_round(self, flow: FlowPlan) -> list[str]:
        lines = []
        for number in self._emitted(flow):
            name = self.flows.streams[number].name
            if number not in self.flows.crossing:
                emitter = next(g for g in flow.group_numbers if number in self.flows.group(g).emits)
                mine = f"if mine[{emitter}]:\n                    " if self._staged else ""
                lines.append(f"                {mine}{stream_count(name)}[0] = 0")
                continue
            lines += [
                f"                if roles[{number}] == {ALONE}:",
                f"                    {stream_count(name)}[0] = 0",
                f"                elif roles[{number}] == {GIVES}:",
                f"                    {round_ends(name)}[{self._round(flow)}] = {stream_count(name)}[0]",
                f"                    {round_span(name)}[0] = {stream_count(name)}[0]",
            ]
        for border in flow.borders:
            lines += [f"                if active == {border}:", f"                    open_{border}[0] = 0"]
        return [*lines, f"                control[{GROUP}] = -1"]

    # --- stages ----------------------------------------------------------------------------------------------

    @property
    def _staged(self) -> bool:
        return len(self.flows.stages) > 1

    @property
    def _groups(self) -> int:
        return sum(len(flow.groups) for flow in self.flows.flows)

    def _if_mine(self, group: int) -> str:
        """What lets a stage pass over the groups of others."""
        return f"0 if not mine[{group}] else " if self._staged else ""

    def _emitted(self, flow: FlowPlan) -> list[int]:
        """The streams inside a graph."""
        found = {number for group in flow.groups for number in group.emits}
        return [number for number in sorted(found) if not self.flows.outputs[number]]

    def _tuples(self, stream: int) -> str:
        """The range of a round's tuples in a stream."""
        name = self.flows.streams[stream].name
        if stream in self.flows.crossing:
            return f"{round_span(name)}[0], {round_span(name)}[1]"
        return f"{stream_count(name)}[0]"

    def _round(self, flow: FlowPlan) -> str:
        """The number of the open round within the batch; the first one is 1."""
        place = self.flows.flows.index(flow)
        return f"control[{ROUNDS + place}] - rounds_before[{place}]"

    def _look_at_round(self, flow: FlowPlan) -> list[str]:
        """Where the tuples of a round that begins lie in the streams of other stages."""
        lines = []
        for number in self._emitted(flow):
            if number in self.flows.crossing:
                name = self.flows.streams[number].name
                lines += [
                    f"if roles[{number}] == {TAKES}:",
                    f"    {round_span(name)}[0] = {round_ends(name)}[{self._round(flow)} - 1]",
                    f"    {round_span(name)}[1] = {round_ends(name)}[{self._round(flow)}]",
                ]
        return lines

    def _arrive(self, flow: FlowPlan, place: int, border: int) -> list[str]:
        """An event of a border stream: it joins the open batch, and a batch that is complete begins its round."""
        entry = next(self.entries[m.transaction] for m in self.flows.members if m.border and m.stream == border)
        begin = [
            f"control[{ROUNDS + place}] += 1",
            f"control[{GROUP}] = {flow.first_group}",
            f"control[{ACTIVE}] = {border}",
            *self._look_at_round(flow),
        ]
        join = [f"            opened_{border}[open_{border}[0]] = i", f"            open_{border}[0] += 1"]
        lines = [f"        if k == {entry}:"]
        if isinstance(flow.batch, int):
            lines += [
                *join,
                f"            control[{POSITION}] = position + 1",
                f"            if open_{border}[0] >= {flow.batch}:",
            ]
            lines += [f"                {line}" for line in begin]
            return [*lines, "            continue"]
        member = next(m for m in self.flows.members if m.border and m.stream == border)
        field = self.flows.streams[border].field(flow.batch)
        assert field is not None
        value = self._field(member, flow.batch, 0, "i")
        before = self._field(member, flow.batch, 0, f"opened_{border}[0]")
        lines += [f"            if open_{border}[0] > 0 and {value} != {before}:"]
        lines += [f"                {line}" for line in begin]
        lines += [
            "                continue",
            *join,
            f"            control[{POSITION}] = position + 1",
            "            continue",
        ]
        return lines
