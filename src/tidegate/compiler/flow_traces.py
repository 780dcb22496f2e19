"""Writes the functions that trace the steps of a dataflow graph, and replay them from the trace.

A step is one execution of a group, or of a plain transaction. Its input lies in streams that are emptied at the end of
the round, so tracing copies the input before the group runs:

    note_<group>     copies a step's events and tuples from the group's inputs into the trace
    load_<group>     copies them back from the trace into the group's inputs, and overwrites those
    fail_<group>     gives the round's events the reason for which a step aborted

`traced_flow` (`flows`) calls them around the groups. `flow` does not contain them, and they are compiled to machine
code when a trace is first requested: programs that do not log steps pay nothing.

`operations.flow` lists the words of a step; a string is represented by its number.
"""

from __future__ import annotations

from tidegate.compiler.flow_steps import StepWriter
from tidegate.operations.arrays import stream_array, stream_count
from tidegate.operations.flow import FlowPlan, StreamLayout
from tidegate.operations.layout import Kind


class TraceWriter(StepWriter):
    """Writes the functions and lines that trace steps and replay them."""

    def _traces(self, group: int, place: int) -> list[str]:
        """The functions of one group."""
        return [self._note(group, place), self._load(group), self._fail(group)]

    def _note(self, group: int, place: int) -> str:
        inputs = [self.flows.streams[number] for number in self.flows.inputs_of(group)]
        borders = self.flows.borders_of(group)
        named = self.flows.flows[place].name
        body = ["    events = 0"]
        for border in borders:
            body += [f"    if active == {border}:", f"        events = open_{border}[0]"]
        tuples = " + ".join(f"{stream_count(stream.name)}[0]" for stream in inputs) or "0"
        words = [f" + 1 + {stream_count(stream.name)}[0] * {_width(stream)}" for stream in inputs]
        body += [
            f"    if t + STEP_HEAD + events{''.join(words)} > trace.shape[0]:",
            "        return -1",
            f"    trace[t + STEP_FLOW] = {place}",
            f"    trace[t + STEP_WHAT] = {group}",
            f"    trace[t + STEP_ROUND] = {f'control[ROUNDS + {place}]' if named else '0'}",
            "    trace[t + STEP_CAUSE] = active",
            "    trace[t + STEP_STATUS] = 0",
            "    trace[t + STEP_EVENTS] = events",
            "    trace[t + STEP_TEXTS] = 0",
            "    p = t + STEP_HEAD",
        ]
        for border in borders:
            body += [
                f"    if active == {border}:",
                "        for e in range(events):",
                f"            trace[p] = opened_{border}[e]",
                "            p += 1",
            ]
        for stream in inputs:
            count = stream_count(stream.name)
            body += [f"    trace[p] = {count}[0]", "    p += 1", f"    for q in range({count}[0]):"]
            for name, part, kind in _parts(stream):
                array = "trace_floats" if kind is Kind.FLOAT else "trace"
                body += [f"        {array}[p] = {stream_array(stream.name, name, part)}[q]", "        p += 1"]
        body += [f"    trace[t + STEP_WORDS] = p - t if events + {tuples} > 0 else 0", "    return 0"]
        return self._function(f"note_{group}(t, active, trace, trace_floats, arrays)", body)

    def _load(self, group: int) -> str:
        body = ["    p = t + STEP_HEAD"]
        for border in self.flows.borders_of(group):
            body += [
                f"    if active == {border}:",
                f"        open_{border}[0] = trace[t + STEP_EVENTS]",
                f"        for e in range(open_{border}[0]):",
                f"            opened_{border}[e] = trace[p]",
                "            p += 1",
            ]
        for stream in (self.flows.streams[number] for number in self.flows.inputs_of(group)):
            count = stream_count(stream.name)
            body += [f"    {count}[0] = trace[p]", "    p += 1", f"    for q in range({count}[0]):"]
            for name, part, kind in _parts(stream):
                word = {Kind.FLOAT: "trace_floats[p]", Kind.BOOL: "trace[p] != 0"}.get(kind, "trace[p]")
                body += [f"        {stream_array(stream.name, name, part)}[q] = {word}", "        p += 1"]
        return self._function(f"load_{group}(t, active, trace, trace_floats, arrays)", [*body, "    return 0"])

    def _fail(self, group: int) -> str:
        lines = [line for border in self.flows.borders_of(group) for line in self._refuse_round(border)]
        return self._function(f"fail_{group}(s, active, arrays)", [*lines, "    return s"])

    def _refuse_round(self, border: int) -> list[str]:
        """Lines that give a failed round's abort reason to those of its events that have none yet."""
        return [
            f"    if s > 0 and active == {border}:",
            f"        for e in range(open_{border}[0]):",
            f"            if status[opened_{border}[e]] == 0:",
            f"                status[opened_{border}[e]] = s",
            f"            valid[opened_{border}[e]] = False",
        ]

    def _function(self, head: str, body: list[str]) -> str:
        return "\n".join([f"@inline\ndef {head}:", *self._unpack(body), *body])

    # --- lines of `traced_flow` ------------------------------------------------------------------------------

    def _find_step(self, place: int, flow: FlowPlan) -> list[str]:
        """In an open round: go to the group of the next step, or to the end of the round if it has no further step.

        Groups in between had no input. Every round has at least one step, that of a group on its border stream: if no
        step of the trace belongs to this round, trace and events do not fit.
        """
        other = f"what < control[GROUP] or what >= {flow.group_numbers.stop} or trace[t + STEP_CAUSE] != active"
        if flow.name:
            other += f" or trace[t + STEP_ROUND] != control[ROUNDS + {place}]"
        return [
            "                if control[MODE] == REPLAYING:",
            "                    t = control[TRACED]",
            "                    what = trace[t + STEP_WHAT]",
            f"                    if {other}:",
            f"                        if control[GROUP] == {flow.first_group}:",
            "                            control[WHICH] = 0",
            "                            return MISFIT",
            f"                        control[GROUP] = {flow.group_numbers.stop}",
            "                    else:",
            "                        control[GROUP] = what",
        ]

    def _before_group(self, group: int) -> list[str]:
        """Lines before a group: trace its input, or load the traced one; then the group runs, or fails as traced."""
        return [
            "t = control[TRACED]",
            "again = True",
            "if control[MODE] == TRACING:",
            f"    if note_{group}(t, active, trace, trace_floats, arrays) < 0:",
            "        return TRACE_FULL",
            "if control[MODE] == REPLAYING:",
            "    again = trace[t + STEP_STATUS] == 0",
            "    if again:",
            f"        load_{group}(t, active, trace, trace_floats, arrays)",
            "if not again:",
            f"    s = fail_{group}(trace[t + STEP_STATUS], active, arrays)",
            "else:",
        ]

    def _after_step(self) -> list[str]:
        """Lines that complete the traced step, or go to the next one in replay; `s` is the step's status."""
        return [
            "if control[MODE] == TRACING and trace[t + STEP_WORDS] > 0:",
            "    trace[t + STEP_STATUS] = s",
            "    if s > 0:",
            "        trace[t + STEP_WORDS] = STEP_HEAD",
            "        trace[t + STEP_EVENTS] = 0",
            "if control[MODE] == REPLAYING and again and s > 0:",
            "    control[WHICH] = s",
            "    return MISFIT",
            "if control[MODE] != UNTRACED:",
            "    control[TRACED] = t + trace[t + STEP_WORDS]",
        ]

    def _before_transaction(self, transaction: int) -> list[str]:
        """The same for a plain transaction, whose only input is its event."""
        return [
            "t = control[TRACED]",
            "again = True",
            "if control[MODE] == TRACING:",
            "    if t + STEP_HEAD > trace.shape[0]:",
            "        return TRACE_FULL",
            "    trace[t + STEP_WORDS] = STEP_HEAD",
            "    trace[t + STEP_FLOW] = -1",
            f"    trace[t + STEP_WHAT] = {-1 - transaction}",
            "    trace[t + STEP_ROUND] = 0",
            "    trace[t + STEP_CAUSE] = i",
            "    trace[t + STEP_STATUS] = 0",
            "    trace[t + STEP_EVENTS] = 0",
            "    trace[t + STEP_TEXTS] = 0",
            "if control[MODE] == REPLAYING:",
            f"    if trace[t + STEP_WHAT] != {-1 - transaction} or trace[t + STEP_CAUSE] != i:",
            "        control[WHICH] = 0",
            "        return MISFIT",
            "    again = trace[t + STEP_STATUS] == 0",
            "if not again:",
            "    s = trace[t + STEP_STATUS]",
            "else:",
        ]


def _parts(stream: StreamLayout) -> list[tuple[str, int, Kind]]:
    return [(field.name, part, kind) for field in stream.fields for part, kind in enumerate(field.kinds)]


def _width(stream: StreamLayout) -> int:
    return len(_parts(stream))
