from __future__ import annotations

from dataclasses import replace

from tidegate.workloads.dynamic import phases
from tidegate.workloads.streaming_ledger import MORPHSTREAM


def test_there_are_thirteen_phases_on_the_same_tables() -> None:
    base = replace(MORPHSTREAM, keys=77, batch_events=5, cost_us=3.0, seed=9)
    found = [phase.settings for phase in phases(base)]
    assert len(found) == 13 == len({phase.name for phase in phases(base)})
    assert {(one.keys, one.batch_events, one.cost_us, one.seed) for one in found} == {(77, 5, 3.0, 9)}


def test_first_deposits_then_skew_then_transfers_then_aborts() -> None:
    found = [phase.settings for phase in phases()]
    assert [one.transfer_ratio for one in found[:5]] == [0.0] * 5
    assert (found[0].theta, found[0].abort_ratio) == (0.0, 0.0)
    skews, transfers, aborts = (
        [getattr(one, knob) for one in found[start : start + 4]]
        for knob, start in (("theta", 1), ("transfer_ratio", 5), ("abort_ratio", 9))
    )
    for rising in (skews, transfers, aborts):
        assert rising == sorted(set(rising))
    assert transfers[-1] == 0.95 and {one.transfer_ratio for one in found[9:]} == {0.95}
    assert {one.abort_ratio for one in found[:9]} == {0.0}
