"""Where threads wake up: on processors of their own where these are few, and anywhere as soon as they run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.engine.execution.workers import Workers
from tidegate.foundation.processors import TOLD_MAX, Anywhere, processors, quota, usual_placement

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


class TestQuotas:
    """A container may use fewer processors than its machine has."""

    def group(self, tmp_path: Path, own: str, **files: str) -> int:
        for name, text in files.items():
            place = tmp_path / "cgroup" / name.replace("__", "/").replace("_in_", ".")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        (tmp_path / "own").write_text(own)
        return quota(tmp_path / "cgroup", tmp_path / "own")

    def test_version_two_of_a_container(self, tmp_path: Path) -> None:
        assert self.group(tmp_path, "0::/\n", cpu_in_max="150000 100000\n") == 2

    def test_version_two_without_a_limit(self, tmp_path: Path) -> None:
        assert self.group(tmp_path, "0::/\n", cpu_in_max="max 100000\n") > 1000

    def test_the_smallest_limit_on_the_way_to_the_root_counts(self, tmp_path: Path) -> None:
        files = {"pod__cpu_in_max": "300000 100000", "pod__inner__cpu_in_max": "max 100000"}
        assert self.group(tmp_path, "0::/pod/inner\n", **files) == 3

    def test_version_one(self, tmp_path: Path) -> None:
        files = {"cpu,cpuacct__job__cpu_in_cfs_quota_us": "400000", "cpu,cpuacct__job__cpu_in_cfs_period_us": "100000"}
        assert self.group(tmp_path, "4:cpu,cpuacct:/job\n3:memory:/job\n", **files) == 4

    def test_version_one_without_a_limit(self, tmp_path: Path) -> None:
        files = {"cpu__cpu_in_cfs_quota_us": "-1", "cpu__cpu_in_cfs_period_us": "100000"}
        assert self.group(tmp_path, "1:cpu:/\n", **files) > 1000

    def test_a_tenth_of_a_processor_is_one(self, tmp_path: Path) -> None:
        assert self.group(tmp_path, "0::/\n", cpu_in_max="10000 100000") == 1

    def test_a_system_without_control_groups(self, tmp_path: Path) -> None:
        assert quota(tmp_path / "none", tmp_path / "missing") > 1000
