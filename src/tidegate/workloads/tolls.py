"""Toll processing (TP): vehicles report speeds, and pay for the road by how busy it is.

The real job: a toll road whose price depends on the traffic right now. Sensors report speeds, gantries see
vehicles; a toll is computed from the average speed and from how many different vehicles are on the segment, both as
of that moment: neither a stale value nor one from the future.

    table          key                  fields
    RoadSpeed      segment              speed_sum, reports, seal
    VehicleCount   segment              vehicles, seal
    Visit          segment, vehicle     times, seal
    Bill           vehicle              owed, seal

    report_speed    1 row written                              a = "broken sensor"
    travel          4 rows written: a stretch of the road      a = "broken sensor"
    count_vehicle   2 rows written, one of them new at times   a = "segment is full"
    notify_toll     1 row written, 2 more read                 a = "above the limit"

A position report is one of each kind in turn, on 100 segments drawn with skew 0.2. `travel_ratio` is the share of speed
reports that cover a stretch of four segments; it changes l from 1 to 4. Every written row has a seal, on which the cost
C is spent before any condition is checked.

`TwoGroups` is the case for several strategies at once: two regions that share no row. One is hot, cheap and full of
aborts; the other is scattered and calm, its transactions are longer and cost more.

Promises: bills add up to the tolls of committed notifications; a segment counts exactly the vehicles that visited it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.workloads.cost import NOMINAL_PACE, burn
from tidegate.workloads.workload import Integers, Run, Settings, Tables, Workload, names_column

NAMES = ("report_speed", "count_vehicle", "notify_toll", "travel")
SPEED, COUNT, TOLL, TRAVEL = range(4)
_MIXING = 2**31  # a stream of randomness that belongs to no road
STRETCH = ("road", "road_2", "road_3", "road_4")


@tg.table(key="segment")
class RoadSpeed:
    """What is needed for the average speed of a segment."""

    segment: int
    speed_sum: int = 0
    reports: int = 0
    seal: int = 0


@tg.table(key="segment")
class VehicleCount:
    """How many different vehicles were on a segment."""

    segment: int
    vehicles: int = 0
    seal: int = 0


@tg.table(key=("segment", "vehicle"))
class Visit:
    """A vehicle on a segment, and how often."""

    segment: int
    vehicle: int
    times: int = 0
    seal: int = 0


@tg.table(key="vehicle")
class Bill:
    """What a vehicle owes."""

    vehicle: int
    owed: int = 0  # cents
    seal: int = 0


def plausible(speed: int, speed_sum: int, reports: int) -> bool:
    """Whether a speed is at most three times the average: what is above comes from a broken sensor."""
    return speed * reports <= 3 * speed_sum


@tg.transaction
def report_speed(road: RoadSpeed, speed: int, rounds: int) -> int:
    """Take a speed into a segment's average; the answer is the number of reports."""
    seal = burn(road.seal + speed, rounds)
    tg.require(plausible(speed, road.speed_sum, road.reports), "broken sensor")
    road.speed_sum += speed
    road.reports += 1
    road.seal = seal
    return road.reports


@tg.transaction
def travel(road: RoadSpeed, road_2: RoadSpeed, road_3: RoadSpeed, road_4: RoadSpeed, speed: int, rounds: int) -> int:
    """Take a speed that was measured over four segments into the averages of all of them, or of none."""
    seal = burn(road.seal + speed, rounds)
    seal_2 = burn(road_2.seal + speed, rounds)
    seal_3 = burn(road_3.seal + speed, rounds)
    seal_4 = burn(road_4.seal + speed, rounds)
    tg.require(plausible(speed, road.speed_sum, road.reports), "broken sensor")
    tg.require(plausible(speed, road_2.speed_sum, road_2.reports), "broken sensor")
    tg.require(plausible(speed, road_3.speed_sum, road_3.reports), "broken sensor")
    tg.require(plausible(speed, road_4.speed_sum, road_4.reports), "broken sensor")
    road.speed_sum += speed
    road.reports += 1
    road.seal = seal
    road_2.speed_sum += speed
    road_2.reports += 1
    road_2.seal = seal_2
    road_3.speed_sum += speed
    road_3.reports += 1
    road_3.seal = seal_3
    road_4.speed_sum += speed
    road_4.reports += 1
    road_4.seal = seal_4
    return road.reports


@tg.transaction
def count_vehicle(count: VehicleCount, visit: Visit, capacity: int, rounds: int) -> int:
    """Count a vehicle on a segment unless it was there before; the answer is how often it was."""
    count_seal = burn(count.seal + 1, rounds)
    visit_seal = burn(visit.seal + 1, rounds)
    tg.require(count.vehicles <= capacity, "segment is full")
    if visit.times == 0:
        count.vehicles += 1
    count.seal = count_seal
    visit.times += 1
    visit.seal = visit_seal
    return visit.times


@tg.transaction
def report_position(road: RoadSpeed, count: VehicleCount, visit: Visit, speed: int, rounds: int) -> int:
    """A speed and a vehicle in one transaction, as other systems take a position report."""
    road.seal = burn(road.seal + speed, rounds)
    road.speed_sum += speed
    road.reports += 1
    if visit.times == 0:
        count.vehicles += 1
    visit.times += 1
    return visit.times


@tg.transaction
def notify_toll(bill: Bill, road: RoadSpeed, count: VehicleCount, limit: int, rounds: int) -> int:
    """Bill a vehicle for a segment: more where many drive slowly; the answer is the toll."""
    seal = burn(bill.seal + 1, rounds)
    average = road.speed_sum // max(road.reports, 1)
    toll = 100 * count.vehicles // max(average, 1)
    tg.require(toll <= limit, "above the limit")
    bill.owed += toll
    bill.seal = seal
    return toll


@dataclass(frozen=True, slots=True, kw_only=True)
class TollSettings(Settings):
    """The knobs of toll processing; `keys` are the road's segments."""

    keys: int = 100
    vehicles: int = 10_000
    travel_ratio: float = 0.0
    batch_events: int = 40_960

    def least(self) -> dict[str, int]:
        """A stretch has four segments."""
        return {"batch_events": 1, "keys": len(STRETCH), "vehicles": 1}


MORPHSTREAM = TollSettings()
"""As in MorphStream's evaluation."""

TSTREAM = TollSettings(abort_ratio=0.0, cost_us=0.0, batch_events=500)
"""As in TStream's evaluation."""

HOT_GROUP = TollSettings(theta=1.0, abort_ratio=0.5, cost_us=0.0, batch_events=40_960, keys=100)
CALM_GROUP = TollSettings(theta=0.0, abort_ratio=0.001, batch_events=10_240, keys=4_096, travel_ratio=0.8)


class Tolls(Workload):
    """Position reports of vehicles on one road.

    `first_segment` and `first_vehicle` set this road apart from others in the same tables.
    """

    name: ClassVar[str] = "toll processing"
    tables: ClassVar[tuple[type, ...]] = (RoadSpeed, VehicleCount, Visit, Bill)
    program: Sequence[Any] = (report_speed, count_vehicle, notify_toll, travel)
    settings: TollSettings

    def __init__(
        self,
        settings: TollSettings = MORPHSTREAM,
        pace: float = NOMINAL_PACE,
        *,
        first_segment: int = 0,
        first_vehicle: int = 0,
    ) -> None:
        super().__init__(settings, pace)
        self._first_segment, self._first_vehicle = first_segment, first_vehicle

    def opening(self) -> Tables:
        """Segments on which ten vehicles drove 60 each; nobody was counted and nobody owes anything."""
        keys = self.settings.keys
        segments = self._first_segment + np.arange(keys)
        speeds = {"segment": segments, "speed_sum": np.full(keys, 600), "reports": np.full(keys, 10)}
        return {RoadSpeed: pa.table(speeds), VehicleCount: pa.table({"segment": segments})}

    def batch(self, number: int) -> pa.Table:
        """A batch: the events of a position report follow each other."""
        settings, random = self.settings, self.random(number, self._first_segment)
        count = settings.batch_events
        reports = np.arange(count) // 3
        positions = int(reports[-1]) + 1
        kinds = np.arange(count) % 3
        kinds[(kinds == SPEED) & (random.random(count) < settings.travel_ratio)] = TRAVEL
        roads = self._first_segment + self.zipf.draw_distinct(random, positions, len(STRETCH))[reports]
        vehicle = self._first_vehicle + random.integers(0, settings.vehicles, positions)[reports]
        speed = random.integers(40, 81, positions)[reports]
        aborts = random.random(count) < settings.abort_ratio
        return _events(kinds, roads, vehicle, np.where(aborts, 100_000, speed), aborts, self.rounds)

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """Bills add up, and so do vehicles."""
        outcomes = pa.concat_tables(run.outcomes)
        tolls = pc.sum(outcomes.filter(pc.equal(events["transaction"], "notify_toll"))["result"]).as_py() or 0
        owed = pc.sum(run.rows[Bill]["owed"]).as_py() or 0
        problems = [] if tolls == owed else [f"bills differ from the tolls by {owed - tolls:+d}"]
        return problems + _miscounted(run)


class Positions(Tolls):
    """Position reports of vehicles, each as one transaction: the average speed, and how many vehicles there are."""

    name: ClassVar[str] = "toll processing, one transaction a position"
    tables: ClassVar[tuple[type, ...]] = (RoadSpeed, VehicleCount, Visit)

    program = (report_position,)

    def batch(self, number: int) -> pa.Table:
        """A batch: one event for each position."""
        settings, random = self.settings, self.random(number, self._first_segment)
        count = settings.batch_events
        segment = self._first_segment + self.zipf.draw_distinct(random, count, 1)[:, 0]
        vehicle = self._first_vehicle + random.integers(0, settings.vehicles, count)
        places = [pa.array(np.ascontiguousarray(segment)), pa.array(vehicle)]
        return pa.table(
            {
                "transaction": names_column(np.zeros(count, np.int64), ("report_position",)),
                "road": places[0],
                "count": places[0],
                "visit": pa.StructArray.from_arrays(places, ["segment", "vehicle"]),
                "speed": random.integers(40, 81, count),
                "rounds": np.full(count, self.rounds),
            }
        )

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """A segment counts exactly the vehicles that visited it."""
        return _miscounted(run)


class TwoGroups(Workload):
    """Two roads in the same tables that share no row: one hot and failing, one scattered and calm."""

    name: ClassVar[str] = "toll processing, two groups"
    tables: ClassVar[tuple[type, ...]] = Tolls.tables
    program = Tolls.program

    def __init__(
        self, hot: TollSettings = HOT_GROUP, calm: TollSettings = CALM_GROUP, pace: float = NOMINAL_PACE
    ) -> None:
        super().__init__(replace(hot, batch_events=hot.batch_events + calm.batch_events), pace)
        self._hot = Tolls(hot, pace)
        self._calm = Tolls(calm, pace, first_segment=hot.keys, first_vehicle=hot.vehicles)

    def opening(self) -> Tables:
        """The segments of both."""
        hot, calm = self._hot.opening(), self._calm.opening()
        return {table: pa.concat_tables([hot[table], calm[table]]) for table in hot}

    def batch(self, number: int) -> pa.Table:
        """A batch: the events of both in a random order that keeps each one's own."""
        hot, calm = self._hot.batch(number), self._calm.batch(number)
        comes_from = np.repeat([0, 1], [hot.num_rows, calm.num_rows])
        self.random(number, _MIXING).shuffle(comes_from)
        order = np.empty(len(comes_from), np.int64)
        order[comes_from == 0] = np.arange(hot.num_rows)
        order[comes_from == 1] = hot.num_rows + np.arange(calm.num_rows)
        return pa.concat_tables([hot, calm]).take(pa.array(order)).combine_chunks()

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """The promises of one road hold for both together."""
        return self._hot.broken_promises(opening, events, run)


def _miscounted(run: Run) -> list[str]:
    counted, visits = pc.sum(run.rows[VehicleCount]["vehicles"]).as_py() or 0, run.rows[Visit].num_rows
    return [] if counted == visits else [f"{counted} vehicles were counted, {visits} visited a segment"]


def _events(kinds: Integers, roads: Integers, vehicle: Integers, speed: Integers, aborts: Any, rounds: int) -> pa.Table:
    """The columns of events; what a transaction does not take is null."""

    def only(values: Integers, *which: int) -> pa.Array:
        return pa.array(np.ascontiguousarray(values), mask=~np.isin(kinds, which))

    visits = pa.StructArray.from_arrays(
        [pa.array(np.ascontiguousarray(roads[:, 0])), pa.array(vehicle)], ["segment", "vehicle"],
        mask=pa.array(kinds != COUNT),
    )  # fmt: skip
    return pa.table(
        {
            "transaction": names_column(kinds, NAMES),
            **{name: only(roads[:, place], *((SPEED, TRAVEL, TOLL) if place == 0 else (TRAVEL,)))
               for place, name in enumerate(STRETCH)},
            "count": only(roads[:, 0], COUNT, TOLL),
            "visit": visits,
            "bill": only(vehicle, TOLL),
            "speed": only(speed, SPEED, TRAVEL),
            "capacity": only(np.where(aborts, -1, 10**9), COUNT),
            "limit": only(np.where(aborts, -1, 10**9), TOLL),
            "rounds": np.full(len(kinds), rounds),
        }
    )  # fmt: skip
