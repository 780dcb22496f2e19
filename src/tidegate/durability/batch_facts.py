"""What each batch of a state did, kept in the header of its version: for people and for monitoring.

    version 8   batch 5 of query q   1000 events, 990 committed, aborted: insufficient funds 10   families, 0.012 s

A worker runs a batch, and what it knows of it (`BatchReport`) is gone with it. So the facts that people ask for go into
the version's header, which every process reads in one small read: reasons with their counts, the strategy and why it
was chosen, and the seconds of each phase. The header stays small: of many reasons the most frequent are kept. Versions
that were written before, or that no batch made, have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.engine.report import BatchReport
from tidegate.foundation.storage import open_storage

REASONS_MAX, TEXT_MAX = 10, 100
"""How many reasons are kept, and how much of a text: with a handful of tables, a header then fits one read of 4 KB."""

OTHERS = "(other reasons)"


def facts_of(report: BatchReport) -> dict[str, Any]:
    """The facts for a header, as JSON values."""
    facts: dict[str, Any] = {
        "aborted": _most_frequent(report.aborted),
        "strategy": report.strategy,
        "why": report.why[:TEXT_MAX],
        "workers": report.workers,
        "interpreted": report.interpreted,
        "seconds": {phase: round(seconds, 6) for phase, seconds in report.seconds.items()},
    }
    inside = {f"{name}: {why}": n for name, counts in report.interior_aborts.items() for why, n in counts.items()}
    return facts | {"aborted_inside": _most_frequent(inside)} if inside else facts


def batches_of(path: str) -> list[dict[str, Any]]:
    """The versions of a state that can be read, oldest first, each with the facts of its batch."""
    return [row_of(info) for info in VersionStore(open_storage(path)).infos()]


def row_of(info: VersionInfo) -> dict[str, Any]:
    """A version and the facts of its batch, under the names that `read_batches` gives them."""
    facts = info.report
    return {
        "version": info.version,
        "query": info.query,
        "batch": info.batch,
        "committed_at": datetime.fromtimestamp(info.created_at, UTC),
        "events": info.events,
        "committed": info.committed,
        "aborted": facts.get("aborted"),
        "aborted_inside": facts.get("aborted_inside", {} if facts else None),
        "strategy": facts.get("strategy"),
        "why": facts.get("why"),
        "workers": facts.get("workers"),
        "interpreted": facts.get("interpreted"),
        "seconds": facts.get("seconds"),
        "bytes": info.size,
    }


def describe(info: VersionInfo) -> str:
    """A batch in one line."""
    facts = info.report
    line = f"version {info.version}, batch {info.batch} of {info.query}: {info.events} events"
    line += f", {info.committed} committed"
    for name, label in (("aborted", "aborted"), ("aborted_inside", "aborted inside")):
        if facts.get(name):
            line += f", {label}: " + ", ".join(f"{reason} {count}" for reason, count in facts[name].items())
    if not facts:
        return line
    seconds = facts["seconds"]
    phases = ", ".join(f"{phase} {taken:.3f}" for phase, taken in seconds.items())
    return f"{line}; {facts['strategy']}, {sum(seconds.values()):.3f} s ({phases})"


def _most_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    kept: dict[str, int] = {}
    for place, (reason, count) in enumerate(ranked):
        name = reason[:TEXT_MAX] if place < REASONS_MAX else OTHERS
        kept[name] = kept.get(name, 0) + count
    return kept
