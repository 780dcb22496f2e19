"""Writes the program of a dataflow graph: `flow`, which takes events through it.

    step_<member>(q, arrays)          one tuple: its rows by their keys, its windows, its body
    group_<number>(active, arrays)    the members of a group, all or nothing
    flow(stop, ..., arrays)           events in order: plain transactions at their place, rounds of complete batches
    traced_flow(..., trace, arrays)   the same, but every step is traced, or only traced steps are run (`flow_traces`)

Everything that a step may change is journalled first (`flow_steps`), and a group that fails is undone from the
journal. When an array is full, or an integer leaves 64 bits, the group is undone as well, and `flow` returns a code
that says what it needs. The next call continues with the same group.
"""

from __future__ import annotations

from tidegate.compiler.flow_traces import TraceWriter
from tidegate.compiler.names import HistoryNames, JournalNames, kept_time, table_number
from tidegate.operations.arrays import name_in_code, round_ends, round_span, stream_count
from tidegate.operations.flow import FlowPlan, GroupPlan, MemberPlan
from tidegate.operations.layout import TableLayout
from tidegate.operations.outcomes import rolled_back


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
            return f"@inline\ndef group_{number}(active, arrays):\n    return ESCAPE"
        emitted = [self.flows.streams[s].name for s in group.emits]
        tables = [t for t in self.journalled if any(t.name in self._written_tables(m) for _, m in members)]
        windowed = any(self.flows.owners[w] in group.members for w in range(len(self.flows.windows)))
        body = [f"    {_before(name)} = {stream_count(name)}[0]" for name in emitted]
        body.append("    s = 0")
        body += [
            f"    if control[RECORD] != 0 and control[LOGGED] + {len(members)} > log.shape[0]:",
            "        return ROOM - LOG_FULL",
        ]
        for m, member in members:
            if member.on_window >= 0:
                continue
            if member.border:
                body += [
                    f"    if s == 0 and active == {member.stream}:",
                    f"        for e in range(open_{member.stream}[0]):",
                    f"            s = step_{m}(opened_{member.stream}[e], arrays)",
                    "            if s != 0:",
                    "                break",
                ]
            else:
                body += [
                    "    if s == 0:",
                    f"        for q in range({self._tuples(member.stream)}):",
                    f"            s = step_{m}(q, arrays)",
                    "            if s != 0:",
                    "                break",
                ]
        for table in tables:
            journal, history, which = JournalNames(table), HistoryNames(table), table_number(table.name)
            body += [
                f"    if s == 0 and {journal.touched_count}[0] + {journal.count}[0] > {journal.touched}.shape[0]:",
                f"        control[WHICH] = {which}",
                "        s = ROOM - TOUCHED_FULL",
            ]
            if table.name in self.keeps:
                states = f"{history.state}[HISTORY_NEXT] - {history.state}[HISTORY_FIRST]"
                body += [
                    f"    if s == 0 and {states} + {journal.count}[0] > {history.time}.shape[0]:",
                    f"        control[WHICH] = {which}",
                    "        s = ROOM - HISTORY_FULL",
                ]
        stage = self.flows.stage_of(number) if windowed else -1
        body += ["    if s != 0:", *self._undo(tables, emitted, stage)]
        body += ["    else:", *self._commit(group, tables, stage, flow)]
        body += self._blame(number)
        body += self._record(number, [m for m, _ in members], flow)
        for m, _ in members:
            body.append(f"    hits[{m}] = 0")
        for border in self.flows.borders_of(number):
            body += self._refuse_round(border)
        body.append("    return s")
        return "\n".join([f"@inline\ndef group_{number}(active, arrays):", *self._unpack(body), *body])

    def _undo(self, tables: list[TableLayout], emitted: list[str], stage: int) -> list[str]:
        """Lines that undo all that a group did, from its journals."""
        lines = [f"        {stream_count(name)}[0] = {_before(name)}" for name in emitted]
        for journal in map(JournalNames, tables):
            row = f"{journal.slots}[m]"
            lines += [
                f"        for back in range({journal.count}[0]):",
                f"            m = {journal.count}[0] - 1 - back",
                f"            {journal.rows}[{row}] = {journal.exists}[m]",
                *(f"            {column}[{row}] = {saved}[m]" for column, saved in journal.columns.items()),
                f"        {journal.count}[0] = 0",
            ]
        if stage >= 0:
            lines.append(f"        undo(window_heap_{stage}, window_journal_{stage}, window_state_{stage}, 0)")
        return lines or ["        pass"]

    def _commit(self, group: GroupPlan, tables: list[TableLayout], stage: int, flow: int) -> list[str]:
        """Lines that mark the rows that a group wrote as touched, and clear its journals."""
        lines = []
        for table in tables:
            j = JournalNames(table)
            if table.name in self.keeps:
                lines.append(f"        {_remember(table)}(arrays)")
            lines += [
                f"        touch({j.slots}, {j.count}, {j.marks}, {j.touched}, {j.touched_count})",
                f"        {j.count}[0] = 0",
            ]
        if stage >= 0:
            lines.append(f"        window_state_{stage}[WINDOW_JOURNAL_LENGTH] = 0")
        for stream in group.emits:
            name = self.flows.streams[stream].name
            if self.flows.outputs[stream]:
                lines += [
                    f"        for p in range({_before(name)}, {stream_count(name)}[0]):",
                    f"            {name_in_code('stream_rounds', name)}[p] = control[ROUNDS + {flow}]",
                ]
        return lines or ["        pass"]

    def _remember(self, table: TableLayout) -> str:
        """A function that adds the new states of the rows that a group changed to the table's history.

        First, a step may have journalled a row several times, also after writing it: only its first entry counts, and
        the others become copies of it. Then backwards through the journal: the newest entry of a row that differs from
        the row's present state belongs to the step that changed it last, and the row's older entries get that step's
        time. Last, forwards: the oldest entry tells whether the group changed the row at all.
        """
        j, h = JournalNames(table), HistoryNames(table)
        differs = [f"{j.exists}[m] != {j.rows}[slot]"]
        for now, then in j.columns.items():
            nan = f"{then}[m] != {then}[m] and {now}[slot] != {now}[slot]"
            differs.append(f"({then}[m] != {now}[slot] and not ({nan}))")
        changed = " or ".join(differs)
        first, following, latest = (f"{h.state}[HISTORY_{word}]" for word in ("FIRST", "NEXT", "LATEST"))
        body = [
            f"    for m in range({j.count}[0]):",
            f"        slot = {j.slots}[m]",
            f"        first = {h.last_entry}[slot] - 1",
            f"        if first >= 0 and {j.begins}[first] == {j.begins}[m]:",
            *(f"            {array}[m] = {array}[first]" for array in (j.exists, *j.columns.values())),
            "        else:",
            f"            {h.last_entry}[slot] = m + 1",
            f"    for m in range({j.count}[0]):",
            f"        {h.last_entry}[{j.slots}[m]] = 0",
            f"    for back in range({j.count}[0]):",
            f"        m = {j.count}[0] - 1 - back",
            f"        slot = {j.slots}[m]",
            f"        if {h.last_entry}[slot] > 0:",
            f"            {j.times}[m] = {j.times}[{h.last_entry}[slot] - 1]",
            f"            {h.last_entry}[slot] = m + 1",
            f"        elif {changed}:",
            f"            {h.last_entry}[slot] = m + 1",
            f"    for m in range({j.count}[0]):",
            f"        slot = {j.slots}[m]",
            f"        oldest = {h.last_entry}[slot] == m + 1",
            f"        {h.last_entry}[slot] = 0",
            f"        if not (oldest and ({changed})):",
            "            continue",
            f"        place = {following} & ({h.time}.shape[0] - 1)",
            f"        {h.before}[place] = {h.heads}[slot]",
            f"        {h.time}[place] = {j.times}[m]",
            f"        {h.slots}[place] = slot",
            f"        {h.exists}[place] = {j.rows}[slot]",
            *(f"        {then}[place] = {now}[slot]" for now, then in h.columns.items()),
            f"        {following} += 1",
            f"        {h.heads}[slot] = {following}",
            f"        if {j.times}[m] > {latest}:",
            f"            {latest} = {j.times}[m]",
            f"    while {first} < {following}:",
            f"        oldest_time = {h.time}[{first} & ({h.time}.shape[0] - 1)]",
            f"        if not is_forgotten(oldest_time, {latest}, {kept_time(table.name)}):",
            "            break",
            f"        {first} += 1",
            "    return 0",
        ]
        return "\n".join([f"@inline\ndef {_remember(table)}(arrays):", *self._unpack(body), *body])

    def _blame(self, number: int) -> list[str]:
        """Lines that count the failure of a member that no event names.

        Where the group also undoes work for the round's events, their status becomes one that says who failed.
        """
        if not self.flows.borders_of(number):
            return ["    if s > 0:", "        aborted[s - 1] += 1"]
        lines: list[str] = []
        for member in (self.flows.members[m] for m in self.flows.group(number).members):
            for status, reason in [] if member.is_entry else self._failures(member):
                blamed = self._reason(member, reason, rolled_back(self.plans[member.transaction].name, reason))
                lines += [
                    f"    {'elif' if lines else 'if'} s == {status}:",
                    f"        s = {blamed}",
                    "        aborted[s - 1] += 1",
                ]
        return lines

    def _failures(self, member: MemberPlan) -> list[tuple[int, str]]:
        """The statuses with which a step of a member can fail, and why."""
        first = sum(len(plan.reasons) for plan in self.plans[: member.transaction])
        own = [(first + place + 1, text) for place, text in enumerate(self.plans[member.transaction].reasons)]
        for place, (text, (transaction, bare)) in enumerate(zip(self.reasons, self.reason_sources, strict=True)):
            if transaction == member.transaction and text == bare:
                own.append((self._first_reason + place + 1, bare))
        return own

    def _record(self, number: int, members: list[int], flow: int) -> list[str]:
        lines = ["    if control[RECORD] != 0 and s >= 0:", "        now = tick()"]
        for m in members:
            lines += [
                f"        if hits[{m}] > 0:",
                "            entry = control[LOGGED]",
                f"            log[entry, 0] = {m}",
                f"            log[entry, 1] = control[ROUNDS + {flow}]",
                f"            log[entry, 2] = {number}",
                "            log[entry, 3] = s",
                f"            log[entry, 4] = hits[{m}]",
                "            log[entry, 5] = now",
                "            control[LOGGED] = entry + 1",
            ]
        return lines

    # --- the whole -------------------------------------------------------------------------------------------

    def _flow(self, traced: bool = False) -> str:
        body = ["    while True:"]
        if traced:
            body += [
                "        if control[MODE] == REPLAYING and control[TRACED] >= control[TRACE_END]:",
                "            return DONE",
            ]
        body += ["        if control[GROUP] >= 0:", "            active = control[ACTIVE]"]
        for place, flow in enumerate(self.flows.flows):
            tests = " or ".join(f"active == {border}" for border in flow.borders)
            body.append(f"            if {tests}:")
            body += self._find_step(place, flow) if traced else []
            for group in flow.group_numbers:
                body.append(f"                if control[GROUP] == {group}:")
                body += [f"                    {line}" for line in self._run_group(group, traced)]
            body += self._end_round(flow)
        body += ["        position = control[POSITION]", "        if position >= stop:"]
        if traced:
            body += [
                "            if control[MODE] == REPLAYING:",
                "                control[WHICH] = 0",
                "                return MISFIT",
            ]
        body += [
            "            return DONE",
            "        i = order[position]",
            "        if refused[i] != 0:",
            "            control[POSITION] = position + 1",
            "            continue",
            "        k = kinds[i]",
            *(("        moment[0] = i",) if self.clocked else ()),
        ]
        for place, flow in enumerate(self.flows.flows):
            for border in flow.borders:
                body += self._arrive(flow, place, border)
        for transaction, call in self.calls.items():
            mine = f" and mine[{self._groups + transaction}]" if self._staged else ""
            body.append(f"        if k == {transaction}{mine}:")
            body += [f"            {line}" for line in self._run_transaction(transaction, call, traced)]
        body.append("        control[POSITION] = position + 1")
        arguments = "stop, order, kinds, trace, trace_floats, arrays" if traced else "stop, order, kinds, arrays"
        name = "traced_flow" if traced else "flow"
        return "\n".join([f"@kernel_or_plain\ndef {name}({arguments}):", *self._unpack(body), *body])

    def _run_group(self, group: int, traced: bool) -> list[str]:
        """Lines that run a group of the open round."""
        indent = "    " if traced else ""
        return [
            *(self._before_group(group) if traced else ()),
            f"{indent}s = {self._if_mine(group)}group_{group}(active, arrays)",
            f"{indent}if s < 0:",
            f"{indent}    if s == ESCAPE:",
            f"{indent}        return PLAIN_GROUP",
            f"{indent}    return STREAM_FULL if s == NO_ROOM else ROOM - s",
            *(self._after_step() if traced else ()),
            f"control[GROUP] = {group + 1}",
            *(("if control[MODE] == REPLAYING:", "    continue") if traced else ()),
        ]

    def _run_transaction(self, transaction: int, call: str, traced: bool) -> list[str]:
        """Lines that run a plain transaction for event i."""
        indent = "    " if traced else ""
        return [
            "if control[RECORD] != 0 and control[LOGGED] >= log.shape[0]:",
            "    return LOG_FULL",
            *(self._before_transaction(transaction) if traced else ()),
            f"{indent}s = {call}",
            f"{indent}if s < 0:",
            f"{indent}    return PLAIN_EVENT if s == ESCAPE else ROOM - s",
            *(self._after_step() if traced else ()),
            "status[i] = s",
            "if control[RECORD] != 0:",
            "    entry = control[LOGGED]",
            f"    log[entry, 0] = {-1 - transaction}",
            "    log[entry, 1] = 0",
            "    log[entry, 2] = -1",
            "    log[entry, 3] = s",
            "    log[entry, 4] = 1",
            "    log[entry, 5] = tick()",
            "    control[LOGGED] = entry + 1",
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
                f"                if roles[{number}] == ALONE:",
                f"                    {stream_count(name)}[0] = 0",
                f"                elif roles[{number}] == GIVES:",
                f"                    {round_ends(name)}[{self._round(flow)}] = {stream_count(name)}[0]",
                f"                    {round_span(name)}[0] = {stream_count(name)}[0]",
            ]
        for border in flow.borders:
            lines += [f"                if active == {border}:", f"                    open_{border}[0] = 0"]
        return [*lines, "                control[GROUP] = -1"]

    # --- stages ----------------------------------------------------------------------------------------------

    @property
    def _staged(self) -> bool:
        return len(self.flows.stages) > 1

    @property
    def _groups(self) -> int:
        return sum(len(flow.groups) for flow in self.flows.flows)

    def _if_mine(self, group: int) -> str:
        """Code that lets a stage skip the groups of other stages."""
        return f"0 if not mine[{group}] else " if self._staged else ""

    def _emitted(self, flow: FlowPlan) -> list[int]:
        """The streams that a graph both emits and consumes."""
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
        return f"control[ROUNDS + {place}] - rounds_before[{place}]"

    def _look_at_round(self, flow: FlowPlan) -> list[str]:
        """Lines that find the tuples of a beginning round in the streams that other stages emit."""
        lines = []
        for number in self._emitted(flow):
            if number in self.flows.crossing:
                name = self.flows.streams[number].name
                lines += [
                    f"if roles[{number}] == TAKES:",
                    f"    {round_span(name)}[0] = {round_ends(name)}[{self._round(flow)} - 1]",
                    f"    {round_span(name)}[1] = {round_ends(name)}[{self._round(flow)}]",
                ]
        return lines

    def _arrive(self, flow: FlowPlan, place: int, border: int) -> list[str]:
        """An event of a border stream: it joins the open batch, and a batch that is complete begins its round."""
        entry = next(self.entries[m.transaction] for m in self.flows.members if m.border and m.stream == border)
        begin = [
            f"control[ROUNDS + {place}] += 1",
            f"control[GROUP] = {flow.first_group}",
            f"control[ACTIVE] = {border}",
            *self._look_at_round(flow),
        ]
        join = [f"            opened_{border}[open_{border}[0]] = i", f"            open_{border}[0] += 1"]
        lines = [f"        if k == {entry}:"]
        if isinstance(flow.batch, int):
            lines += [
                *join,
                "            control[POSITION] = position + 1",
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
            "            control[POSITION] = position + 1",
            "            continue",
        ]
        return lines


def _before(stream: str) -> str:
    """The variable for the number of tuples that a stream held before the current group."""
    return name_in_code("count_before", stream)


def _remember(table: TableLayout) -> str:
    """The name of the function that adds states of a table's rows to their history."""
    return name_in_code("remember", table.name)
