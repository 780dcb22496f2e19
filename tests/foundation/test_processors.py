"""Where threads wake up: on processors of their own where these are few, and anywhere as soon as they run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tidegate.engine.execution.workers import Workers
from tidegate.foundation.processors import TOLD_MAX, Anywhere, processors, usual_placement

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets threads choose")


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2 * processors())
    yield made
    made.close()


def test_there_is_a_processor() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)


def test_where_the_system_decides_nobody_is_told_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Anywhere().place([1, 2], 2)() is None
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert isinstance(usual_placement(), Anywhere)


@needs_affinity
class TestWhereTheyWakeUp:
    def masks(self, workers: Workers) -> list[set[int]]:
        """Where each worker may run while its task runs."""
        found: list[set[int]] = [set()] * workers.count
        together = threading.Barrier(workers.count, timeout=30)

        def task(worker: int) -> None:
            together.wait()
            found[worker] = os.sched_getaffinity(0)

        workers.run(task)
        return found

    def test_a_task_may_run_anywhere(self, workers: Workers) -> None:
        for _ in range(3):
            assert self.masks(workers) == [os.sched_getaffinity(0)] * workers.count

    @pytest.mark.parametrize("processors", [2, TOLD_MAX])
    def test_each_is_told_another_processor(self, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """And, once it runs, that it may go anywhere."""
        told: list[tuple[int, set[int]]] = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(processors)))
        monkeypatch.setattr(os, "sched_setaffinity", lambda thread, mask: told.append((thread, mask)))
        workers = Workers(2 * processors)
        self.masks(workers)
        told.clear()
        self.masks(workers)
        workers.close()
        by_caller = dict(told[: workers.count])
        assert len(by_caller) == workers.count and 0 not in by_caller
        assert sorted(by_caller.values(), key=min) == sorted(2 * [{n} for n in range(processors)], key=min)
        assert told[workers.count :] == [(0, set(range(processors)))] * workers.count

    @pytest.mark.parametrize("count", [1, TOLD_MAX + 1])
    def test_where_there_are_more_processors_or_one_they_are_told_nothing(
        self, count: int, workers: Workers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: int, mask: set[int]) -> None:
            pytest.fail("a thread was told where to run")

        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(count)))
        monkeypatch.setattr(os, "sched_setaffinity", refuse)
        assert len(self.masks(workers)) == workers.count

    def test_where_that_is_not_allowed_they_run_all_the_same(
        self, workers: Workers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: int, mask: set[int]) -> None:
            raise PermissionError("not here")

        monkeypatch.setattr(os, "sched_setaffinity", refuse)
        assert self.masks(workers) == [os.sched_getaffinity(0)] * workers.count

    def test_a_narrower_choice_of_processors_is_followed(self, workers: Workers) -> None:
        everywhere = os.sched_getaffinity(0)
        one = {min(everywhere)}
        self.masks(workers)
        os.sched_setaffinity(0, one)
        try:
            assert self.masks(workers) == [one] * workers.count
        finally:
            os.sched_setaffinity(0, everywhere)
        assert self.masks(workers) == [everywhere] * workers.count
