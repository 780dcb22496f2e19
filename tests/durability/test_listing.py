from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from tidegate.durability.listing import Listing, file_name
from tidegate.durability.version_info import Kind

files = some.sets(some.tuples(some.integers(1, 12), some.sampled_from(["change", "snapshot"])), max_size=20)


def rebuildable(found: set[tuple[int, Kind]]) -> list[int]:
    """By the definition, version after version."""
    able = {0}
    for version in range(1, 30):
        if (version, "snapshot") in found or ((version, "change") in found and version - 1 in able):
            able.add(version)
    return sorted(able - {0})


@given(files)
def test_what_can_be_rebuilt_follows_from_the_names(found: set[tuple[int, Kind]]) -> None:
    listing = Listing([*(file_name(*file) for file in found), "README", "1.change", "000000000001.change.bak", "head"])
    assert listing.rebuildable == rebuildable(found)
    assert listing.highest == max((version for version, _ in found), default=0)
    for version in range(15):
        assert listing.can_rebuild(version) == (version == 0 or version in rebuildable(found))
        assert listing.has_change(version) == ((version, "change") in found)
        assert listing.has_snapshot(version) == ((version, "snapshot") in found)
        below = [number for number, kind in found if kind == "snapshot" and number <= version]
        assert listing.snapshot_below(version) == max(below, default=0)


@given(some.integers(0, 5), some.lists(some.sampled_from(["change", "snapshot"]), max_size=12))
def test_a_listing_that_is_added_to_is_the_one_that_would_be_listed(first: int, added: list[Kind]) -> None:
    found: set[tuple[int, Kind]] = {(version, "change") for version in range(1, first + 1)}
    listing = Listing([file_name(*file) for file in found])
    for kind in added:
        version = listing.highest + (kind == "change" or listing.highest == 0)
        listing.add(version, kind)
        found.add((version, kind))
    again = Listing([file_name(*file) for file in found])
    assert listing.rebuildable == again.rebuildable and listing.runs == again.runs
    assert listing.snapshots == again.snapshots


@given(some.integers(1, 12), some.sets(some.integers(1, 12)), some.integers(1, 6))
def test_removing_the_surplus_leaves_every_kept_version(changes: int, snapshots: set[int], keep: int) -> None:
    found: set[tuple[int, Kind]] = {(version, "change") for version in range(1, changes + 1)}
    found |= {(version, "snapshot") for version in snapshots if version <= changes}
    listing = Listing([file_name(*file) for file in found])
    kept = listing.rebuildable[-keep:]
    assert listing.oldest_kept(keep) == kept[0]
    below = listing.snapshot_below(kept[0])
    surplus = listing.surplus(below, kept[0])
    listing.forget(below, kept[0])
    left = found - set(surplus)
    assert set(kept) <= set(rebuildable(left))
    assert listing.rebuildable == rebuildable(left)
    assert listing.surplus(below, kept[0]) == []


def test_runs_are_named_as_people_read_them() -> None:
    listing = Listing([file_name(version, "change") for version in (1, 2, 3, 5)] + [file_name(9, "snapshot")])
    assert listing.runs == "1-3, 9"
