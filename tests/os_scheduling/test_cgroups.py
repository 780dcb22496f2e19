from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.os_scheduling import cgroups
from tidegate.os_scheduling.cgroups import Hierarchy

from .engines import HIERARCHY, idle, needs_groups

V1, V2 = Hierarchy(1, Path("/v1")), Hierarchy(2, Path("/v2"))


def test_the_hierarchy_is_the_one_that_has_the_cpu_controller(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "cgroup.controllers").write_text("cpuset cpu io\n")
    second = f"cgroup2 {tmp_path}/a\\040b cgroup2 rw 0 0\n"
    assert cgroups.find_hierarchy(second) == Hierarchy(2, tmp_path / "a b")
    first = "cgroup /c cgroup rw,cpuset 0 0\ncgroup /b cgroup rw,cpu,cpuacct 0 0\n"
    assert cgroups.find_hierarchy(first) == Hierarchy(1, Path("/b"))
    (tmp_path / "a b" / "cgroup.controllers").write_text("memory\n")
    assert cgroups.find_hierarchy(second + first) == Hierarchy(1, Path("/b"))
    assert cgroups.find_hierarchy(second) is None is cgroups.find_hierarchy("tmpfs /x tmpfs rw 0 0\n")


def test_both_versions_say_the_same_in_their_own_numbers() -> None:
    assert V1.values("shares", 2048) == {"cpu.shares": "2048"} and V2.values("shares", 2048) == {"cpu.weight": "200"}
    assert V2.values("shares", 2) == {"cpu.weight": "1"} and V2.values("shares", 262144) == {"cpu.weight": "10000"}
    assert V1.values("quota", 0.5) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}
    assert V2.values("quota", 0.5) == {"cpu.max": "50000 100000"}


def test_different_groups_have_different_folders() -> None:
    names = ["traffic", "a/b", "a b", "a-b", "é" * 300, "..", "é" * 299]
    folders = {cgroups.folder_name(name) for name in names}
    assert len(folders) == len(names) and all("/" not in each and len(each) < 255 for each in folders)


@pytest.mark.parametrize("on", [True, False])
def test_version_2_makes_a_threaded_group_and_hands_the_controller_down(tmp_path: Path, on: bool) -> None:
    hierarchy, folder = Hierarchy(2, tmp_path), tmp_path / "group"
    folder.mkdir()
    (folder / "cgroup.type").write_text("domain")
    (tmp_path / "cgroup.subtree_control").write_text("memory cpu" if on else "....")
    cgroups.make_group(hierarchy, folder)
    assert (folder / "cgroup.type").read_text() == "threaded"
    assert (tmp_path / "cgroup.subtree_control").read_text() == ("memory cpu" if on else "+cpu")


@needs_groups
def test_threads_left_in_a_group_go_to_the_one_above_when_it_is_removed() -> None:
    assert HIERARCHY is not None
    with idle(1) as threads:
        home = HIERARCHY.group_of(os.getpid(), threads[0].tid)
        folder = home / cgroups.folder_name(f"test-{os.getpid()}")
        cgroups.make_group(HIERARCHY, folder)
        cgroups.write(folder / HIERARCHY.members, f"{threads[0].tid}")
        assert HIERARCHY.group_of(os.getpid(), threads[0].tid) == folder
        cgroups.remove_group(folder)
        assert not folder.exists() and HIERARCHY.group_of(os.getpid(), threads[0].tid) == home
        cgroups.remove_group(folder)  # again: nothing to do


def test_nothing_is_made_where_the_kernel_has_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cgroups.set_values(tmp_path, {"cpu.weight": "100"})
    assert not list(tmp_path.iterdir())
