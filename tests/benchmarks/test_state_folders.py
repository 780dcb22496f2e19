"""Folders of state: what a kill leaves behind is what comes back, and what does not come back is seen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.benchmarks.state_folders import Template, left_behind, log_frames, make_template, require_recovered
from tidegate.workloads import ledger

OPENING = pa.table({"id": [1, 2], "balance": [100, 0]})


@pytest.fixture
def template(tmp_path: Path) -> Template:
    return make_template(ledger.PROGRAM, {ledger.Account: OPENING}, tmp_path)


def test_a_copy_of_a_template_has_its_rows_and_an_empty_log(template: Template) -> None:
    path = template.copy()
    assert log_frames(path) == []
    with template.open(path) as engine:
        assert engine.scan(ledger.Account).to_pylist() == OPENING.to_pylist()


def test_what_an_open_engine_was_told_is_in_what_a_kill_leaves(template: Template) -> None:
    path = template.copy()
    with template.open(path) as engine:
        engine.execute(ledger.transfer, src=1, dst=2, amount=30)
        killed = left_behind(path)
        assert len(log_frames(killed)) == 1
        engine.execute(ledger.transfer, src=1, dst=2, amount=5)
        rows = pa.table({"id": [1, 2], "balance": [65, 35]})
        require_recovered(template, path, {ledger.Account: rows}, "a ledger")
    with template.open(killed) as engine:
        assert engine.scan(ledger.Account)["balance"].to_pylist() == [70, 30]


def test_rows_that_do_not_come_back_are_seen(template: Template) -> None:
    path = template.copy()
    with template.open(path) as engine:
        engine.execute(ledger.deposit, dst=2, amount=1)
        with pytest.raises(AssertionError, match="a ledger, opened again: the rows differ"):
            require_recovered(template, path, {ledger.Account: OPENING}, "a ledger")
