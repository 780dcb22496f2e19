from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.workloads.tolls import (
    CALM_GROUP,
    HOT_GROUP,
    MORPHSTREAM,
    Bill,
    Positions,
    RoadSpeed,
    Tolls,
    TwoGroups,
    VehicleCount,
    Visit,
    count_vehicle,
    notify_toll,
    report_position,
    report_speed,
    travel,
)
from tidegate.workloads.workload import Run

SMALL = replace(MORPHSTREAM, batch_events=3_000, cost_us=0.0, vehicles=30, travel_ratio=0.5, abort_ratio=0.1)


def test_a_vehicle_is_counted_once_on_a_segment() -> None:
    count, visit = VehicleCount(7), Visit(7, 1, exists=False)
    assert [count_vehicle(count, visit, 10, 0) for _ in range(3)] == [1, 2, 3]
    assert count_vehicle(count, Visit(7, 2, exists=False), 10, 0) == 1
    assert count.vehicles == 2
    with pytest.raises(tg.Abort, match="segment is full"):
        count_vehicle(count, visit, 1, 0)


def test_a_position_is_a_speed_and_a_vehicle_at_once() -> None:
    road, count, visit = RoadSpeed(7), VehicleCount(7), Visit(7, 1, exists=False)
    assert [report_position(road, count, visit, speed, 0) for speed in (50, 70)] == [1, 2]
    assert (road.speed_sum, road.reports, count.vehicles, visit.times) == (120, 2, 1, 2)


def test_positions_keep_their_promises_and_say_when_not() -> None:
    workload = Positions(replace(SMALL, batch_events=500))
    batches = list(workload.batches(2))
    run = workload.run(batches)
    assert workload.verify(batches, run) == []
    broken = Run(run.outcomes, {**run.rows, Visit: run.rows[Visit].slice(1)})
    assert "visited a segment" in workload.broken_promises(workload.opening(), batches[0], broken)[0]


def test_a_speed_far_above_the_average_comes_from_a_broken_sensor() -> None:
    road = RoadSpeed(7, speed_sum=600, reports=10)
    assert report_speed(road, 180, 0) == 11
    with pytest.raises(tg.Abort, match="broken sensor"):
        report_speed(road, 213, 0)


def test_a_stretch_counts_on_all_of_its_segments() -> None:
    roads = [RoadSpeed(number, speed_sum=600, reports=10) for number in range(4)]
    assert travel(*roads, 100, 0) == 11
    assert {(road.speed_sum, road.reports) for road in roads} == {(700, 11)}
    with pytest.raises(tg.Abort, match="broken sensor"):
        travel(*roads[:3], RoadSpeed(9, speed_sum=10, reports=10), 100, 0)


def test_a_toll_grows_with_vehicles_and_shrinks_with_speed() -> None:
    bill = Bill(1)
    tolls = [
        notify_toll(bill, RoadSpeed(7, speed_sum=speed * 10, reports=10), VehicleCount(7, vehicles), 10**6, 0)
        for speed, vehicles in ((50, 10), (50, 20), (25, 20))
    ]
    assert tolls == [20, 40, 80] and bill.owed == sum(tolls)
    with pytest.raises(tg.Abort, match="above the limit"):
        notify_toll(bill, RoadSpeed(7, speed_sum=50, reports=1), VehicleCount(7, 10), 19, 0)


def test_a_position_report_is_one_event_of_each_kind_on_one_segment() -> None:
    rows = Tolls(SMALL).batch(0).to_pylist()
    kinds = Counter(row["transaction"] for row in rows)
    assert kinds["count_vehicle"] == kinds["notify_toll"] == 1_000
    assert kinds["travel"] / 1_000 == pytest.approx(0.5, abs=0.06)
    for speed, count, toll in zip(rows[0::3], rows[1::3], rows[2::3], strict=True):
        assert speed["road"] == count["count"] == count["visit"]["segment"] == toll["road"] == toll["count"]
        assert count["visit"]["vehicle"] == toll["bill"]


def test_the_papers_road() -> None:
    assert (MORPHSTREAM.keys, MORPHSTREAM.theta, MORPHSTREAM.batch_events) == (100, 0.2, 40_960)


def test_bills_and_vehicles_that_do_not_add_up_break_the_promise() -> None:
    workload = Tolls(SMALL)
    events = workload.batch(0)
    run = workload.run([events])
    assert workload.broken_promises({}, events, run) == []
    bills, visits = run.rows[Bill], run.rows[Visit]
    assert bills.num_rows == 30 and 1_000 > visits.num_rows > 30
    dearer = bills.set_column(1, "owed", pc.add(bills["owed"], 1))
    wrong = Run(run.outcomes, {**run.rows, Bill: dearer, Visit: visits.slice(2)})
    problems = workload.broken_promises({}, events, wrong)
    assert problems[0] == "bills differ from the tolls by +30"
    assert problems[1] == f"{visits.num_rows} vehicles were counted, {visits.num_rows - 2} visited a segment"


class TestTwoGroups:
    hot = replace(HOT_GROUP, batch_events=1_500, cost_us=0.0, vehicles=50)
    calm = replace(CALM_GROUP, batch_events=900, cost_us=0.0, vehicles=50, keys=80)

    def test_the_groups_share_no_key(self) -> None:
        rows = TwoGroups(self.hot, self.calm).batch(0).to_pylist()
        roads = ("road", "road_2", "road_3", "road_4", "count")
        sides = Counter()
        for row in rows:
            touched = {row[name] >= 100 for name in roads if row[name] is not None}
            touched |= {row["bill"] >= 50} if row["bill"] is not None else set()
            touched |= {row["visit"]["segment"] >= 100, row["visit"]["vehicle"] >= 50} if row["visit"] else set()
            assert len(touched) == 1
            sides[touched.pop()] += 1
        assert sides == {False: 1_500, True: 900}

    def test_they_are_mixed_and_each_keeps_its_order(self) -> None:
        workload = TwoGroups(self.hot, self.calm)
        calm = Tolls(self.calm, first_segment=100, first_vehicle=50).batch(0)
        bills = workload.batch(0)["bill"].drop_null().to_numpy()
        assert bills[bills >= 50].tolist() == calm["bill"].drop_null().to_pylist()
        assert 50 < np.count_nonzero(np.diff(bills >= 50)) < len(bills)

    def test_one_is_skewed_and_fails_the_other_is_scattered_calm_and_longer(self) -> None:
        workload = TwoGroups(self.hot, self.calm)
        events = workload.batch(0)
        failed = workload.run([events]).outcomes[0].filter(pc.is_valid(events["road"]))
        committed = failed["committed"].to_numpy()
        in_calm = failed["road"].to_numpy() >= 100
        assert committed[in_calm].mean() > 0.98 and committed[~in_calm].mean() < 0.6
        assert not pc.any(pc.less(events["road_2"], 100)).as_py()
        hottest = [np.bincount(failed["road"].to_numpy()[side]).max() / side.sum() for side in (~in_calm, in_calm)]
        assert hottest[0] > 3 * hottest[1]
