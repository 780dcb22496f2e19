from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.workloads import grep_sum
from tidegate.workloads.cost import burn
from tidegate.workloads.grep_sum import MORPHSTREAM, TSTREAM, GrepSum, GrepSumSettings, Record, source_for
from tidegate.workloads.workload import Run

SMALL = replace(MORPHSTREAM, keys=60, batch_events=300, cost_us=0.0)


def test_the_text_of_the_smallest_transaction_is_the_one_in_the_docstring() -> None:
    documented = [line[4:] for line in (grep_sum.__doc__ or "").splitlines()]
    start = documented.index("@tg.transaction")
    lines = [line for line in source_for(1, 2).splitlines() if '"""' not in line]
    assert documented[start : start + len(lines)] == lines


def test_each_written_row_gets_the_mean_of_its_own_reads() -> None:
    function = grep_sum.transaction_for(2, 2)
    written = Record(1, 5.0), Record(2, 6.0)
    read = [Record(10 + number, value) for number, value in enumerate((1.0, 2.0, 10.0, 30.0))]
    assert function(*written, *read, 100.0, 3) == burn(1, 3)
    assert [row.value for row in written] == [1.5, 20.0]
    with pytest.raises(tg.Abort, match="above the ceiling"):
        function(*written, *read, 15.0, 3)


@pytest.mark.parametrize(("length", "reads"), [(1, 1), (3, 4)])
def test_an_event_names_l_written_and_l_times_r_read_rows_all_different(length: int, reads: int) -> None:
    workload = GrepSum(replace(SMALL, length=length, reads=reads))
    batch = workload.batch(0)
    names = [name for name in batch.column_names if name[0] in "wr" and name != "rounds"]
    assert len(names) == length * (1 + reads)
    assert all(len(set(row.values())) == len(names) for row in batch.select(names).to_pylist())
    assert workload.verify([batch], workload.run([batch])) == []


def test_a_transaction_is_declared_once_for_each_shape() -> None:
    assert grep_sum.transaction_for(2, 2) is grep_sum.transaction_for(2, 2)
    assert grep_sum.transaction_for(2, 2) is not grep_sum.transaction_for(2, 1)


def test_it_is_compiled_although_it_stands_in_no_file() -> None:
    workload = GrepSum(SMALL)
    engine = workload.engine()
    engine.run(workload.batch(0))
    assert engine.last_batch is not None and engine.last_batch.interpreted == 0


def test_values_outside_the_range_break_the_promise() -> None:
    workload = GrepSum(SMALL)
    events = workload.batch(0)
    run = workload.run([events])
    assert workload.broken_promises(workload.opening(), events, run) == []
    rows = run.rows[Record]
    doubled = rows.set_column(1, "value", pc.multiply(rows["value"], 2.0))
    assert "must stay between" in workload.broken_promises({}, events, Run(run.outcomes, {Record: doubled}))[0]


def test_the_papers_settings() -> None:
    assert TSTREAM.length * (1 + TSTREAM.reads) == 10 and TSTREAM.keys == 10_000
    assert (MORPHSTREAM.length, MORPHSTREAM.reads, MORPHSTREAM.keys) == (1, 2, 12_288)


def test_fewer_records_than_an_event_names_are_refused() -> None:
    with pytest.raises(ValueError, match="keys is at least 12"):
        GrepSumSettings(length=4, reads=2, keys=11)
