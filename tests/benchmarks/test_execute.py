"""The benchmark of single requests: it verifies what it times."""

from __future__ import annotations

import pytest

from tidegate.benchmarks import execute
from tidegate.benchmarks.harness import measure

pytestmark = pytest.mark.usefixtures("plainly")  # `make smoke` runs it in machine code


def test_both_ways_come_to_all_requests_and_votes() -> None:
    report = measure(execute.experiment(requests=200, votes=30, seed=1))
    assert [bar.what for bar in execute.bars(report)] == [
        "execute, alone: median in µs",
        "execute, beside a graph: median in µs",
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_a_lost_request_is_seen(number: int) -> None:
    variant = execute.experiment(requests=100, votes=10, seed=1).variants[number]
    prepared = variant.prepare()
    taken = variant.run(prepared)
    variant.verify(prepared, taken)
    engine = prepared[0] if isinstance(prepared, tuple) else prepared
    procedure, arguments = (
        (execute.give_vote, {"contestant": 1}) if number else (execute.ledger.deposit, {"dst": 1, "amount": 1})
    )
    engine.execute(procedure, **arguments)
    with pytest.raises(AssertionError, match="after all requests"):
        variant.verify(prepared, taken)
