from __future__ import annotations

from pathlib import Path

import numpy as np

from tidegate.benchmarks import ordering_charts as charts
from tidegate.benchmarks.harness import Comparison, Experiment, Report, Variant
from tidegate.benchmarks.ordering_buffers import SCHEMES as REORDERS
from tidegate.benchmarks.ordering_heuristics import HEURISTICS
from tidegate.benchmarks.ordering_partitions import COSTS_US, SIGMAS
from tidegate.benchmarks.ordering_partitions import SCHEMES as PARTITIONINGS

BY_WORKERS = {1: 10.0, 2: 18.0, 4: 30.0}


def is_picture(file: Path) -> bool:
    return file.read_bytes().startswith(b"\x89PNG")


def test_heuristics_are_drawn_for_each_query(tmp_path: Path) -> None:
    found = {query: dict.fromkeys(HEURISTICS, BY_WORKERS) for query in ("Q1", "Q2")}
    charts.plot_heuristics(found, found, tmp_path / "heuristics.png")
    assert is_picture(tmp_path / "heuristics.png")


def test_partitioning_schemes_are_drawn_by_skew_and_by_cost(tmp_path: Path) -> None:
    skew = {scheme: {sigma: 100.0 * sigma for sigma in SIGMAS} for scheme in PARTITIONINGS}
    cost = {scheme: {float(each): 2e-6 * each for each in COSTS_US} for scheme in PARTITIONINGS}
    charts.plot_partitions(skew, cost, tmp_path / "partitions.png")
    assert is_picture(tmp_path / "partitions.png")


def test_reordering_schemes_are_drawn_by_workers(tmp_path: Path) -> None:
    found = {what: dict.fromkeys(REORDERS, BY_WORKERS) for what in ("light", "many")}
    charts.plot_buffers(found, found, tmp_path / "b.png")
    assert is_picture(tmp_path / "b.png")


def test_speed_is_drawn(tmp_path: Path) -> None:
    names = ["futures", "ordered x2"]
    declared = Experiment("made-up", "", 10, "record", [Variant(name, run=lambda _: None) for name in names])
    beside = Report(declared, tuple(Comparison(name, (1.0,), 1, 1, 1, None) for name in names))
    speedups = {"stateless": BY_WORKERS, "keyed": BY_WORKERS}
    charts.plot_speed(speedups, beside, np.array([1.0, 2.0, 3.0]), tmp_path / "speed.png")
    assert is_picture(tmp_path / "speed.png")
