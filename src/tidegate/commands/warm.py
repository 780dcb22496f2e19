"""`tidegate warm`: compiles what can be compiled ahead, so that the first batch does not wait for it.

Compiled code is kept on disk. It is made once on a machine and once more after its source changed,
so a second call has nothing to do and takes a moment. The steps run small batches through the engine,
because that is what compiles exactly the code that real batches need.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[str, int, int], None]


def warm() -> None:
    """Compile the engine's kernels now, so that no batch waits for it later.

    Compiled code is kept on disk: a second call takes a moment.
    """
    console = Console()
    columns = (
        TextColumn("compiling"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.description}"),
    )
    start = time.perf_counter()
    with Progress(*columns, console=console, transient=True) as display:
        task = display.add_task("loading", total=None)
        _compile(lambda name, done, total: display.update(task, description=name, completed=done, total=total))
    console.print(f"kernels are ready ({time.perf_counter() - start:.1f} s)", highlight=False)


def _compile(show: Show) -> None:
    steps: list[tuple[str, Callable[[], object]]] = [
        ("the ledger, in the order of its events", lambda: _run_ledger(None)),
        ("the ledger, ordered by time", lambda: _run_ledger("ts")),
        *((f"the ledger on two workers: {name}", partial(_run_ledger, "ts", strategy)) for name, strategy in _ways()),
    ]
    for done, (name, step) in enumerate(steps):
        show(name, done, len(steps))
        step()
    show("", len(steps), len(steps))


def _ways() -> list[tuple[str, Any]]:
    """What the adaptive strategy chooses from; other strategies are compiled when they are first used."""
    from tidegate.engine.adaptation.model import CANDIDATES

    ways = {str(candidate.strategy): candidate.strategy for candidate in CANDIDATES if candidate.strategy != "serial"}
    return list(ways.items())


def _run_ledger(order_by: str | None, strategy: Any = "serial") -> None:
    import tidegate as tg
    from tidegate.workloads import ledger

    generator = ledger.EventGenerator(ledger.LedgerSettings(accounts=10))
    with tg.Engine(ledger.PROGRAM, strategy=strategy, workers=1 if strategy == "serial" else 2) as engine:
        engine.load(ledger.Account, generator.opening())
        engine.run(generator.batch(20), order_by=order_by)
        engine.scan(ledger.Account)
