"""`tidegate schedule`: priorities for the threads of running streaming queries, from outside.

    run        look, decide and set until it is stopped; then everything is as it was
    explain    what `run` would set now, and why; sets nothing
    top        a live table of the operators; sets nothing
    restore    undo what a `run` left that was killed

`explain` and `top` work beside a running scheduler. One `run` of a user works on a machine at a time.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidegate.commands.literal import literal
from tidegate.commands.state_printing import Json, empty_table, print_json, say, say_right, say_wrong

if TYPE_CHECKING:
    from tidegate.os_scheduling.configuration import Configuration
    from tidegate.os_scheduling.scheduler import Decision, Memory
    from tidegate.os_scheduling.translators import Setting

app = typer.Typer(no_args_is_help=True, help="Schedule the threads of running streaming queries, by nice and cgroups.")

Config = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="The engines to look at, and the rules.")]

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.command("run")
def run(config: Config) -> None:
    """Schedule until it is stopped, by Ctrl-C or SIGTERM; then everything is as it was.

    What a killed run left is undone first. Example: `tidegate schedule run schedule.yaml`
    """
    from tidegate.os_scheduling import procfs
    from tidegate.os_scheduling.journal import Journal, default_folder
    from tidegate.os_scheduling.mechanisms import Mechanisms, undo
    from tidegate.os_scheduling.scheduler import Scheduler

    configuration = _read(config)
    stop = threading.Event()
    for number in _STOP:
        if signal.getsignal(number) is not signal.SIG_IGN:  # such as behind nohup
            signal.signal(number, lambda *_: stop.set())
    journal = Journal(default_folder())
    try:
        count, problems = journal.restore(undo)
        if count:
            say(f"undid {_changes(count)} of a run that was killed")
        _complain(problems)
        # It needs little, but in time. This is not for the journal: it ends with the process.
        os.setpriority(os.PRIO_PROCESS, 0, min(procfs.nice_floor(), os.getpriority(os.PRIO_PROCESS, 0)))
        mechanisms = Mechanisms(journal)
        scheduler = Scheduler(configuration, mechanisms, tell=say)
        say(f"scheduling {', '.join(configuration.drivers)}; stop it with Ctrl-C, and everything is as it was")
        try:
            while not stop.is_set():
                due = scheduler.round()
                stop.wait(max(0.0, due - time.monotonic()))
        finally:
            problems = mechanisms.close()
    finally:
        journal.close()
    _complain(problems)
    if problems:
        raise typer.Exit(1)
    say("stopped; everything is as it was")


@app.command("explain")
def explain(config: Config, as_json: Json = False) -> None:
    """Show what `run` would set now, and why. Sets nothing, and needs no rights.

    Example: `tidegate schedule explain schedule.yaml`
    """
    decision, _ = _look(_read(config), None)
    rows = [_row(name, decision) for name in _names(decision)]
    if as_json:
        groups = {each.target: {each.kind: each.value} for each in decision.settings.values() if not _is_thread(each)}
        print_json({"operators": rows, "groups": groups, "notes": list(dict.fromkeys(decision.notes))})
        return
    Console().print(_table(rows, ("operator", "queue", "rate", "cost", "priority", "would set"), config.name))
    for each in decision.settings.values():
        if not _is_thread(each):
            say(f"group {each.target}: {each.kind} = {each.value:g}")
    _complain(dict.fromkeys(decision.notes))


@app.command("top")
def top(
    config: Config,
    period: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=0, help="Stop after this many looks; 0 goes on until Ctrl-C.")] = 0,
) -> None:
    """Show the operators live: queue, rate, cost, priority and processor use. Sets nothing.

    Example: `tidegate schedule top schedule.yaml`
    """
    configuration, memory = _read(config), None
    columns = ("operator", "queue", "rate", "cost", "priority", "cpu")
    try:
        with Live(console=Console(), auto_refresh=False) as live:
            for index in itertools.count(1):
                decision, memory = _look(configuration, memory)
                table = _table([_row(name, decision) for name in _names(decision)], columns, config.name)
                table.caption = literal("\n".join(dict.fromkeys(decision.notes)), keep="\n")
                live.update(table, refresh=True)
                if index == rounds:
                    return
                time.sleep(period)
    except KeyboardInterrupt:
        return


@app.command("restore")
def restore() -> None:
    """Undo what a run left that was killed: nice values, real-time priorities and groups.

    Ends with exit code 1 when something could not be undone. Example: `tidegate schedule restore`
    """
    from tidegate.os_scheduling import procfs
    from tidegate.os_scheduling.journal import Journal, default_folder
    from tidegate.os_scheduling.mechanisms import undo

    procfs.require_linux()
    journal = Journal(default_folder())
    try:
        count, problems = journal.restore(undo)
    finally:
        journal.close()
    _complain(problems)
    if problems:
        raise typer.Exit(1)
    say_right(f"undid {_changes(count)}; everything is as it was" if count else "nothing was left to undo")


def _read(config: Path) -> Configuration:
    from tidegate.os_scheduling import procfs
    from tidegate.os_scheduling.configuration import read_configuration

    procfs.require_linux()
    return read_configuration(config)


def _look(configuration: Configuration, memory: Memory | None) -> tuple[Decision, Memory]:
    """One round in which nothing is set."""
    from tidegate.os_scheduling.mechanisms import abilities
    from tidegate.os_scheduling.observations import observe
    from tidegate.os_scheduling.scheduler import Memory, step

    before = memory or Memory()
    after, decision = step(configuration.rules, before, observe(configuration.drivers), abilities())
    return decision, after


def _names(decision: Decision) -> list[str]:
    return [name for metrics in decision.metrics.values() for name in metrics.operators]


def _row(name: str, decision: Decision) -> dict[str, Any]:
    """What is known of an operator, by the headings of the tables; None is not known."""
    from tidegate.os_scheduling.metrics import MetricMissing

    metrics = next(each for each in decision.metrics.values() if name in each.operators)
    row: dict[str, Any] = {"operator": name}
    for heading, metric in (("queue", "queue_size"), ("rate", "rate"), ("cost", "cost"), ("cpu", "cpu_usage")):
        try:
            row[heading] = metrics.value(metric).get(name)
        except MetricMissing:
            row[heading] = None
    threads = metrics.operators[name].threads
    mine = {f"{each.kind} {_value(each)}" for each in decision.settings.values() if each.target in threads}
    return {**row, "priority": decision.priorities.get(name), "would set": ", ".join(sorted(mine))}


def _value(setting: Setting) -> str:
    return setting.value if isinstance(setting.value, str) else f"{setting.value:g}"


def _is_thread(setting: Setting) -> bool:
    return not isinstance(setting.target, str)


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...], title: str) -> Table:
    view = empty_table(title)
    for heading in columns:
        view.add_column(heading, justify="left" if heading in ("operator", "would set") else "right")
    for row in rows:
        view.add_row(*(_cell(heading, row[heading]) for heading in columns))
    return view


def _cell(heading: str, value: Any) -> Any:
    if value is None:
        return "?"
    if isinstance(value, str):
        return literal(value)
    if heading == "cost":
        return f"{value * 1e6:,.1f} µs"
    return f"{value:.0%}" if heading == "cpu" else f"{value:,.6g}"


def _complain(problems: Any) -> None:
    for problem in problems:
        say_wrong(problem)


def _changes(count: int) -> str:
    return f"{count} change" + "s" * (count != 1)
