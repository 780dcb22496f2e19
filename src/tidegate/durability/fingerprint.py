"""Which program may run logged commands again: the one that ran them, known by a fingerprint.

    events, logged   +   the rows before them   +   the same program   =   the same rows after them

The fingerprint is a hash over everything in a program's plan that decides what a batch does: the generated code,
strings (literals, reasons), tables with their defaults, parameters, streams, windows and the shape of its graphs. Where
a function stands in its file, or what a local variable is called, need not matter.

A transaction in plain Python (`compiled=False`) may ask for the time or a random number, so a program with one cannot
be logged by its events (`require_repeatable`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from tidegate.durability.commands import signatures
from tidegate.foundation.errors import InputError
from tidegate.operations.flow import FlowsPlan
from tidegate.operations.plan import Program


def fingerprint(program: Program) -> str:
    """Names what a program does: two programs with the same one give the same rows for the same commands."""
    plan = program.plan
    texts = [text.template for transaction in plan.transactions for text in transaction.texts]
    told = [
        plan.source,
        [layout.to_json() for layout in plan.tables],
        signatures(plan.transactions),
        plan.event_names,
        plan.literals,
        plan.reasons,
        _graphs(plan.flows) if plan.flows.members else None,
        *([texts] if texts else []),
    ]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def require_repeatable(program: Program, where: str) -> None:
    """Raises InputError when running a program's events again need not give the same rows."""
    plain = [plan.name for plan in program.plan.transactions if not plan.compiled]
    if plain:
        raise InputError(
            f'{where}: log="commands" requires transactions that give the same rows whenever they run again, got '
            f"{', '.join(plain)}, declared compiled=False: plain Python may ask for the time or a random number. Take "
            'log="changes", which keeps the rows that changed, or declare it without compiled=False.'
        )


def _graphs(flows: FlowsPlan) -> list[Any]:
    """Streams, windows and graphs as JSON values; the code does not hold all of it."""
    return [
        [[stream.name, [field.name for field in stream.fields]] for stream in flows.streams],
        flows.outputs,
        [[window.name, window.stream.name, window.size, window.slide, window.time] for window in flows.windows],
        flows.owners,
        [asdict(member) for member in flows.members],
        [asdict(flow) for flow in flows.flows],
        flows.remembered,
    ]
