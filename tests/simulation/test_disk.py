"""The simulated disk itself, and local storage over it: every call a crash, many seeds, every fault.

A failure message holds the seed and the history of calls; the same seed fails again.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator

import pytest

from tidegate.foundation import holds
from tidegate.foundation.appending import Appender
from tidegate.foundation.disk import Disk
from tidegate.foundation.errors import StorageFailed, StorageUncertain
from tidegate.foundation.storage import LocalStorage

from .disk import Faults, SimulatedCrash, SimulatedDisk

SEEDS = 60
BAD_DAY = Faults(
    sync_fails=0.1,
    folder_sync_fails=0.15,
    disk_full=0.05,
    short_write=0.3,
    naming_fails=0.15,
    link_repeated=0.15,
)


def put(disk: Disk, path: str, data: bytes, *, offset: int = 0, sync: bool = False) -> int:
    """Writes to a file, made if need be; its descriptor stays open."""
    try:
        descriptor = disk.open_existing(path, writable=True)
    except FileNotFoundError:
        descriptor = disk.open_new(path)
    assert disk.write(descriptor, memoryview(data), offset) == len(data)
    if sync:
        disk.sync(descriptor)
    return descriptor


def get(disk: Disk, path: str) -> bytes | None:
    try:
        descriptor = disk.open_existing(path, writable=False)
    except FileNotFoundError:
        return None
    buffer = bytearray(disk.status(descriptor).size)
    assert disk.read(descriptor, memoryview(buffer), 0) == len(buffer)
    disk.close(descriptor)
    return bytes(buffer)


def outcomes(scenario: Callable[[SimulatedDisk], object], path: str, seeds: int = 300) -> set[bytes | None]:
    """What the file may hold after the scenario and a power failure."""
    found = set()
    for seed in range(seeds):
        disk = SimulatedDisk(seed)
        scenario(disk)
        disk.restart()
        found.add(get(disk, path))
    return found


# The simulator


def test_what_is_synced_with_its_name_survives_every_crash() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        put(disk, "/a", b"data", sync=True)
        disk.sync_folder("/")

    assert outcomes(scenario, "/a") == {b"data"}


def test_a_synced_file_whose_name_was_never_synced_may_be_gone() -> None:
    assert outcomes(lambda disk: put(disk, "/a", b"data", sync=True), "/a") == {None, b"data"}


def test_an_unsynced_write_is_lost_kept_or_torn() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        put(disk, "/a", b"old!", sync=True)
        disk.sync_folder("/")
        put(disk, "/a", b"NEW!")

    assert outcomes(scenario, "/a") == {b"old!", b"Nld!", b"NEd!", b"NEW!"}  # the last bytes are equal


def test_sectors_of_an_unsynced_write_survive_in_any_subset() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        put(disk, "/a", bytes(1536), sync=True)
        disk.sync_folder("/")
        put(disk, "/a", b"x" * 1536)

    found = {(d[0], d[512], d[1024]) for d in outcomes(scenario, "/a") if d}
    assert (ord("x"), 0, ord("x")) in found, "a hole in the middle"
    assert (0, 0, ord("x")) in found, "the last one alone"


def test_by_sectors_each_sector_is_as_it_was_after_one_of_several_writes() -> None:
    """So no sector holds a later write without an earlier one."""
    first, second = b"a" * 700, b"b" * 300
    seen = set()
    for seed in range(300):
        disk = SimulatedDisk(seed, by_sectors=True)
        put(disk, "/x", b"", sync=True)
        disk.sync_folder("/")
        put(disk, "/x", first)
        put(disk, "/x", second, offset=100)
        disk.restart()
        image = bytes(disk._nodes[disk._seen["/x"]].seen)
        written = first[:100] + second + first[400:]
        assert image[:512].ljust(512, b"\0") in (bytes(512), first[:512], written[:512]), seed
        assert image[512:].ljust(188, b"\0") in (bytes(188), first[512:]), seed
        seen.add(image)
    assert len(seen) == 7  # an empty file, or any of three images of the first sector with any of two of the second


def test_a_rename_may_leave_both_names_or_none() -> None:
    found = set()
    for seed in range(300):
        disk = SimulatedDisk(seed)
        put(disk, "/a", b"data", sync=True)
        disk.sync_folder("/")
        disk.replace("/a", "/b")
        disk.restart()
        found.add(tuple(sorted(disk.listdir("/"))))
    assert found == {("a",), ("b",), ("a", "b"), ()}


def test_a_name_passes_through_its_own_values_in_order() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        for content in (b"1", b"2", b"3"):
            put(disk, "/temporary", content, sync=True)
            disk.replace("/temporary", "/a")

    assert outcomes(scenario, "/a") == {None, b"1", b"2", b"3"}


def test_a_folder_that_was_never_synced_takes_its_files_along() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        disk.mkdir("/state")
        put(disk, "/state/a", b"data", sync=True)
        disk.sync_folder("/state")

    assert outcomes(scenario, "/state/a") == {None, b"data"}


def test_after_a_failed_sync_the_next_one_succeeds_without_the_data() -> None:
    lost = 0
    for seed in range(100):
        disk = SimulatedDisk(seed)
        descriptor = put(disk, "/a", b"")
        disk.sync_folder("/")
        disk.write(descriptor, memoryview(b"data"), 0)
        disk.faults = Faults(sync_fails=1.0)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(descriptor)
        disk.faults = Faults()
        disk.sync(descriptor)
        assert get(disk, "/a") == b"data", "programs still read it"
        disk.restart()
        lost += get(disk, "/a") == b""
    assert 10 < lost < 90


def test_a_failed_folder_sync_loses_no_name_for_good() -> None:
    for seed in range(50):
        disk = SimulatedDisk(seed, Faults(folder_sync_fails=1.0))
        put(disk, "/a", b"data", sync=True)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_folder("/")
        disk.faults = Faults()
        disk.sync_folder("/")
        disk.restart()
        assert get(disk, "/a") == b"data"


def test_without_a_power_failure_only_locks_and_descriptors_end() -> None:
    disk = SimulatedDisk(0)
    descriptor = put(disk, "/a", b"data")
    disk.lock(descriptor, exclusive=True)
    disk.restart(power_failure=False)
    assert get(disk, "/a") == b"data"
    disk.lock(disk.open_existing("/a", writable=True), exclusive=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.sync(descriptor)


def test_locks_are_per_open() -> None:
    disk = SimulatedDisk(0)
    first = put(disk, "/a", b"")
    second, third = (disk.open_existing("/a", writable=True) for _ in range(2))
    disk.lock(first, exclusive=False)
    disk.lock(second, exclusive=False)
    with pytest.raises(BlockingIOError):
        disk.lock(third, exclusive=True)
    disk.unlock(first)
    disk.close(second)
    disk.lock(third, exclusive=True)
    with pytest.raises(BlockingIOError):
        disk.lock(first, exclusive=False)


def test_after_a_crash_every_call_raises_until_the_restart() -> None:
    disk = SimulatedDisk(0, crash_at=0)
    for _ in range(2):
        with pytest.raises(SimulatedCrash):
            disk.mkdir("/state")
    disk.restart()
    assert disk.listdir("/") in ([], ["state"])


def test_a_crash_comes_before_or_after_the_effect() -> None:
    found = set()
    for seed in range(20):
        disk = SimulatedDisk(seed, crash_at=0)
        with pytest.raises(SimulatedCrash):
            disk.mkdir("/state")
        disk.restart(power_failure=False)
        found.add(tuple(disk.listdir("/")))
    assert found == {(), ("state",)}


def test_listings_miss_new_names_only_when_that_is_asked_for() -> None:
    disk = SimulatedDisk(0)
    put(disk, "/old", b"")
    disk.sync_folder("/")
    put(disk, "/new", b"")
    assert all(disk.listdir("/") == ["old", "new"] for _ in range(20))
    disk.faults = Faults(stale_listing=1.0)
    assert {tuple(disk.listdir("/")) for _ in range(20)} == {("old",), ("old", "new")}
    disk.sync_folder("/")
    assert disk.listdir("/") == ["old", "new"]


@pytest.mark.parametrize(
    ("faults", "number"),
    [(Faults(disk_full=1.0), errno.ENOSPC), (Faults(naming_fails=1.0), errno.EIO), (Faults(read_error=1.0), errno.EIO)],
)
def test_faults_are_errors_of_the_operating_system(faults: Faults, number: int) -> None:
    disk = SimulatedDisk(0)
    descriptor = put(disk, "/a", b"data")
    disk.faults = faults
    calls: list[Callable[[], object]] = {
        "disk_full": [
            lambda: disk.write(descriptor, memoryview(b"x"), 0),
            lambda: disk.allocate(descriptor, 0, 9),
        ],
        "naming_fails": [lambda: disk.link("/a", "/b"), lambda: disk.replace("/a", "/c")],
        "read_error": [lambda: disk.read(descriptor, memoryview(bytearray(4)), 0)],
    }[next(name for name in Faults.__slots__ if getattr(faults, name))]
    for call in calls:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == number


def test_a_flipped_bit_stays() -> None:
    disk = SimulatedDisk(3)
    put(disk, "/a", bytes(100), sync=True)
    disk.sync_folder("/")
    path, offset = disk.flip_bit()
    for _ in range(2):
        content = get(disk, "/a")
        assert path == "/a"
        assert content is not None
        assert content[offset].bit_count() == 1
        assert sum(byte.bit_count() for byte in content) == 1
        disk.restart()


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> str:
        disk = SimulatedDisk(
            seed, Faults(crash=0.02, **{n: getattr(BAD_DAY, n) for n in ("sync_fails", "short_write")})
        )
        for number in range(10):
            try:
                LocalStorage("/state", disk).write(f"{number}", [b"x" * 700], exclusive=True)
            except StorageFailed:
                pass
            except SimulatedCrash:
                disk.restart()
        return disk.describe()

    assert history(1) == history(1)
    assert len({history(seed) for seed in range(10)}) == 10


def test_it_refuses_what_an_operating_system_refuses() -> None:
    disk = SimulatedDisk(0)
    descriptor = put(disk, "/a", b"")
    disk.mkdir("/folder")
    refused: list[tuple[int, Callable[[], object]]] = [
        (errno.EEXIST, lambda: disk.open_new("/a")),
        (errno.EEXIST, lambda: disk.mkdir("/a")),
        (errno.EEXIST, lambda: disk.link("/a", "/folder")),
        (errno.ENOENT, lambda: disk.link("/b", "/c")),
        (errno.ENOENT, lambda: disk.unlink("/b")),
        (errno.ENOENT, lambda: disk.open_new("/b/c")),
        (errno.ENOTDIR, lambda: disk.open_new("/a/c")),
        (errno.ENOTDIR, lambda: disk.listdir("/a")),
        (errno.EISDIR, lambda: disk.replace("/a", "/folder")),
        (errno.EBADF, lambda: disk.close(99)),
        (errno.EBADF, lambda: disk.write(disk.open_existing("/a", writable=False), memoryview(b"x"), 0)),
    ]
    for number, call in refused:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == number
    disk.close(descriptor)


# Local storage over it


def every_crash(seeds: int, run: Callable[[SimulatedDisk], object]) -> Iterator[SimulatedDisk]:
    """A disk for each call of `run` and each seed, that will crash there."""
    calm = SimulatedDisk("calm")
    run(calm)
    for seed in range(seeds):
        for number in range(calm.calls):
            yield SimulatedDisk((seed, number), crash_at=number)


DATA = [b"a" * 700, b"b" * 900]
WHOLE = b"".join(DATA)


@pytest.mark.parametrize("exclusive", [True, False])
def test_after_a_crash_at_any_call_of_a_write_the_name_is_absent_or_whole(exclusive: bool) -> None:
    def write(disk: SimulatedDisk) -> None:
        LocalStorage("/deep/state", disk).write("a", DATA, exclusive=exclusive)

    found = set()
    for disk in every_crash(SEEDS, write):
        with pytest.raises(SimulatedCrash):
            write(disk)
        disk.restart()
        content = get(disk, "/deep/state/a")
        assert content in (None, WHOLE), disk.describe()
        found.add(content)
    assert found == {None, WHOLE}, "both happen"


def test_a_replacing_write_leaves_the_old_bytes_or_the_new() -> None:
    def write(disk: SimulatedDisk) -> None:
        LocalStorage("/state", disk).write("a", [b"old"], exclusive=True)
        LocalStorage("/state", disk).write("a", DATA, exclusive=False)

    first = SimulatedDisk("calm")
    LocalStorage("/state", first).write("a", [b"old"], exclusive=True)
    for disk in every_crash(SEEDS, write):
        with pytest.raises(SimulatedCrash):
            write(disk)
        disk.restart()
        if disk.calls > first.calls:
            assert get(disk, "/state/a") in (b"old", WHOLE), disk.describe()


def test_a_write_that_returned_stays_and_one_that_refused_says_how_much_is_known() -> None:
    """On a bad day: returned is there, refused is not there, in doubt is one of both until it is settled."""
    seen = {"returned": 0, "failed": 0, "uncertain": 0, "settled": 0, "unsettled": 0}
    for seed in range(4000):
        disk = SimulatedDisk(seed, BAD_DAY)
        storage = LocalStorage("/state", disk)
        expected: set[bytes | None] = {WHOLE}
        try:
            storage.write("a", DATA, exclusive=random.Random(seed).random() < 0.7)
            seen["returned"] += 1
        except FileExistsError:
            pytest.fail(f"nobody else writes here\n{disk.describe()}")
        except StorageUncertain as error:
            seen["uncertain"] += 1
            assert "Nothing was committed" not in str(error)
            expected = {None, WHOLE}
            try:
                if storage.settle("a"):
                    expected = {WHOLE}
                    seen["settled"] += 1
                else:
                    expected = {None}
            except StorageFailed:
                seen["unsettled"] += 1
        except StorageFailed as error:
            seen["failed"] += 1
            assert "Nothing was committed" in str(error)
            expected = {None}
        disk.faults = Faults()
        assert expected != {None} or not storage.exists("a"), disk.describe()
        disk.restart()
        assert get(disk, "/state/a") in expected, disk.describe()
    assert all(count > 20 for count in seen.values()), seen


def test_of_two_exclusive_writers_on_a_bad_day_the_first_visible_one_stays() -> None:
    for seed in range(2000):
        disk = SimulatedDisk(seed, BAD_DAY)
        won = []
        for content in (b"first", b"second"):
            try:
                LocalStorage("/state", disk).write("a", [content], exclusive=True)
                won.append(content)
            except (FileExistsError, StorageFailed):
                pass
        disk.faults = Faults()
        assert len(won) <= 1, disk.describe()
        disk.restart()
        if won:
            assert get(disk, "/state/a") == won[0], disk.describe()


def test_a_killed_maker_of_a_folder_does_not_endanger_the_next_writers_files() -> None:
    """The first process dies between making the folder and syncing it; the power fails only later."""

    def write(disk: SimulatedDisk) -> None:
        LocalStorage("/deep/state", disk).write("a", [b"first"], exclusive=False)

    for disk in every_crash(20, write):
        with pytest.raises(SimulatedCrash):
            write(disk)
        disk.restart(power_failure=False)
        LocalStorage("/deep/state", disk).write("a", DATA, exclusive=False)
        disk.restart()
        assert get(disk, "/deep/state/a") == WHOLE, disk.describe()


def test_a_hint_is_the_old_or_the_new_one_for_every_reader() -> None:
    def hints(disk: SimulatedDisk) -> None:
        LocalStorage("/state", disk).hint("a", b"old")
        LocalStorage("/state", disk).hint("a", b"new")

    for disk in every_crash(10, hints):
        with pytest.raises(SimulatedCrash):
            hints(disk)
        disk.restart(power_failure=False)
        assert get(disk, "/state/a") in (None, b"old", b"new"), disk.describe()


def log_on(disk: SimulatedDisk, seed: object, promised: bytearray, written: bytearray) -> None:
    """Appends records, and notes what was written and what a sync promised; goes on after what was promised."""
    choice = random.Random(repr(seed))
    storage = LocalStorage("/state", disk)
    appender: Appender | None = None
    for _ in range(12):
        try:
            if appender is None:
                if storage.exists("log"):
                    del written[len(promised) :]
                    appender = storage.append_to("log", len(promised))
                else:
                    assert not promised, disk.describe()
                    appender = storage.append_to("log", None)
            record = bytes([choice.randrange(1, 256)]) * choice.randrange(1, 1500)
            appender.reserve(len(record))
            written += record
            appender.write(record)
            assert appender.end == len(written)
            if choice.random() < 0.6:
                appender.sync()
                promised[:] = written
        except StorageUncertain:
            if appender is not None:
                with pytest.raises(StorageUncertain):
                    appender.sync()
                appender.close()
            appender = None
        except StorageFailed:
            continue  # the disk was full, nothing changed


def require_promised(disk: SimulatedDisk, promised: bytes) -> None:
    content = get(disk, "/state/log")
    assert (content or b"").startswith(promised), disk.describe()


@pytest.mark.parametrize("faults", [Faults(), BAD_DAY], ids=["calm", "bad day"])
def test_synced_bytes_of_a_log_are_a_prefix_of_what_is_read_after_a_crash(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.foundation.appending.STEP_SIZE", 4096)
    lengths = set()
    for seed in range(400):
        disk = SimulatedDisk(seed, faults, crash_at=random.Random(seed).randrange(90))
        promised, written = bytearray(), bytearray()
        for life in range(3):
            with contextlib.suppress(SimulatedCrash):
                log_on(disk, (seed, life), promised, written)
            disk.faults = Faults()
            disk.restart()
            require_promised(disk, bytes(promised))
            lengths.add(len(promised))
            disk.faults, disk.crash_at = faults, disk.calls + random.Random((seed + 1) * life).randrange(90)
    assert len(lengths) > 100


def test_what_lies_behind_the_place_to_go_on_never_comes_back() -> None:
    for seed in range(200):
        disk = SimulatedDisk(seed)
        storage = LocalStorage("/state", disk)
        log = storage.append_to("log", None)
        log.write(b"keep" + b"stale record" * 200)
        if seed % 2:
            log.sync()
        disk.restart(power_failure=False)
        storage.append_to("log", 4).close()
        disk.restart()
        assert get(disk, "/state/log") == b"keep", disk.describe()


def test_locks_end_with_the_machine_and_a_sweep_takes_only_those_nobody_holds() -> None:
    disk = SimulatedDisk(0)
    storage = LocalStorage("/state", disk)
    held, free = storage.hold("held.lock"), storage.hold("free.lock")
    assert held is not None and free is not None
    free.release()
    assert storage.sweep() == ["free.lock"]
    assert storage.is_held("held.lock")
    disk.restart(power_failure=False)
    assert storage.is_held("held.lock") is False
    assert storage.sweep() == ["held.lock"]


class Interleaved(SimulatedDisk):
    """A disk on which something else happens right before the next lock."""

    def __init__(self, before_lock: Callable[[], object]) -> None:
        super().__init__(0)
        self.before_lock: Callable[[], object] | None = before_lock

    def lock(self, descriptor: int, *, exclusive: bool) -> None:
        meanwhile, self.before_lock = self.before_lock, None
        if meanwhile:
            meanwhile()
        super().lock(descriptor, exclusive=exclusive)


def test_a_file_swept_between_opening_and_locking_is_made_again() -> None:
    disk = Interleaved(lambda: holds.remove_unheld(disk, "/state/x.lock"))
    storage = LocalStorage("/state", disk)
    assert storage.hold("x.lock") is not None
    assert storage.exists("x.lock")
    assert storage.is_held("x.lock")


def test_a_file_replaced_between_opening_and_asking_is_asked_again() -> None:
    def replace() -> None:
        disk.unlink("/state/x.lock")
        holds.hold(disk, "/state/x.lock", exclusive=False)

    disk = Interleaved(lambda: None)
    storage = LocalStorage("/state", disk)
    first = storage.hold("x.lock")
    assert first is not None
    first.release()
    disk.before_lock = replace
    assert storage.is_held("x.lock") is True


def test_a_sweep_that_lost_the_race_leaves_the_new_file() -> None:
    disk = Interleaved(lambda: None)
    storage = LocalStorage("/state", disk)
    first = storage.hold("x.lock")
    assert first is not None
    first.release()

    def replace() -> None:
        disk.unlink("/state/x.lock")
        storage.hold("x.lock")

    disk.before_lock = replace
    assert storage.sweep() == []
    assert storage.is_held("x.lock") is True
