"""`tidegate log` shows what a log holds to the letter, finds all damage, and takes a torn tail for none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import tidegate as tg
from tidegate.cli import app
from tidegate.commands import log_check
from tidegate.durability import log_segments
from tidegate.durability.log_format import Frame, frames
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import open_storage

from ..terminal import TERMINAL


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key=("row", "number"))
class Seat:
    row: str
    number: int
    guest: str = ""


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def book(seats: list[Seat], guest: str, price: float) -> None:
    for seat in seats:
        seat.guest = guest


@tg.transaction(compiled=False)
def transfer_slowly(src: Account, dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


orders = tg.stream("orders", account=Account, amount=int)
bills = tg.stream("bills", account=int, amount=int)


@tg.transaction(on=orders, emits=[bills])
def pack(account: Account, amount: int) -> None:
    account.balance += amount
    tg.emit(bills, account=account.id, amount=amount)


PROGRAM = [transfer, book]


@pytest.fixture(autouse=True)
def plain_python() -> Iterator[None]:
    with uncompiled():
        yield


def tidegate(*arguments: object) -> Result:
    names = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, ["log", *names], env=TERMINAL | {"COLUMNS": "300"})


def shown(*arguments: object, code: int = 0) -> str:
    """What a command prints, with one space where there are several."""
    result = tidegate(*arguments)
    assert result.exit_code == code, result.output
    return "\n".join(" ".join(line.split()) for line in result.output.splitlines())


def told(*arguments: object, code: int = 0) -> Any:
    result = tidegate(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def abandoned(opened: tg.Engine) -> None:
    """The end of a process, played: nothing is written any more, the lock is gone."""
    assert opened._kept is not None
    opened._kept._join()
    opened._kept._let_go()


def pay(path: object, count: int, program: Any = None, **options: Any) -> tg.Engine:
    """An engine that was asked for so many transfers."""
    opened = tg.Engine(PROGRAM if program is None else program, directory=str(path), **options)
    for number in range(count):
        opened.execute(transfer, src=1, dst=2, amount=number)
    return opened


def checkpoint(opened: tg.Engine) -> None:
    assert opened._kept is not None
    opened._kept.checkpoint()


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three segments: commands 1 to 3, which a checkpoint covers; 4 and 5; 6 and 7."""
    path = tmp_path / "three"
    opened = pay(path, 3)
    checkpoint(opened)
    for number in range(2):
        opened.execute(transfer, src=3, dst=4, amount=number)
    abandoned(opened)
    abandoned(pay(path, 2))
    assert log_segments.numbers(open_storage(str(path))) == [1, 4, 6]
    return path


def ends(file: Path) -> list[int]:
    """Where the header and each frame of a segment end."""
    segment = log_segments.open_segment(open_storage(str(file.parent)), int(file.name[:12]))
    parts = frames(segment.file, segment.data)
    return [segment.header.end, *(part.end.offset for part in parts if isinstance(part, Frame))]


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    assert f"tidegate log {command}" in shown(command, "--help")


# --- ls -----------------------------------------------------------------------------------------------------------


def test_segments_are_listed_with_what_they_hold(three: Path) -> None:
    found = shown("ls", three)
    program = told("ls", three)["segments"][0]["program"]
    used = [ends(three / f"{first:012d}.log")[-1] for first in (1, 4, 6)]
    assert f"000000000001.log 1 3 {used[0]:,} {program[:8]} yes whole" in found
    assert f"000000000004.log 4 2 {used[1]:,} {program[:8]} no whole" in found
    assert f"000000000006.log 6 2 {used[2]:,} {program[:8]} no whole" in found
    assert "checkpoint 2 covers 3 commands, 4 are behind it" in found


def test_segments_are_listed_while_an_engine_runs(tmp_path: Path) -> None:
    with pay(tmp_path, 2):
        (only,) = told("ls", tmp_path)["segments"]
        assert (only["first"], only["commands"], only["covered"], only["torn"]) == (1, 2, False, False)
        assert only["size"] > only["used"]


def test_damage_is_listed_and_the_other_segments_are_too(three: Path) -> None:
    file = three / "000000000004.log"
    file.write_bytes(b"nothing")
    found = told("ls", three)["segments"]
    assert [each["commands"] for each in found] == [3, 0, 2]
    assert f"{file.name}: damaged at offset 0" in shown("ls", three)


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_no_state_is_a_message_and_not_a_traceback(tmp_path: Path, command: str) -> None:
    assert "there is no state here" in shown(command, tmp_path / "nothing", code=1)


def test_an_empty_log_is_sound(tmp_path: Path) -> None:
    pay(tmp_path, 0).close()
    assert told("show", tmp_path) == [] and [s["commands"] for s in told("ls", tmp_path)["segments"]] == [0]
    assert "checkpoint 1 covers 0 commands, 0 are behind it" in shown("verify", tmp_path)
    (tmp_path / "000000000001.log").unlink()  # as a stream's state has none
    assert told("ls", tmp_path)["segments"] == [] and told("verify", tmp_path)["sound"]


# --- show ---------------------------------------------------------------------------------------------------------


def test_commands_are_shown_as_calls(tmp_path: Path) -> None:
    opened = pay(tmp_path, 0)
    opened.load(Account, pa.table({"id": [1, 2], "balance": [10, 0]}))
    opened.execute(transfer, src=1, dst=2, amount=30)
    opened.execute(transfer, "order-7", src=1, dst=2, amount=-3)
    opened.execute(book, seats=[("A", 1), {"row": "B", "number": 2}], guest="Ann", price=1.5)
    columns = {"src": [1, 2], "dst": [2, 1], "amount": [3, 4], "transaction": ["transfer"] * 2}
    others = {name: pa.nulls(2) for name in ("seats", "guest", "price")}
    opened.run(pa.table({**columns, **others, "note": ["", ""]}), order_by="amount")
    abandoned(opened)
    found = shown("show", tmp_path).splitlines()
    for line in (
        "1 load 2 rows into Account (id, balance)",
        "2 transfer(src=1, dst=2, amount=30)",
        "3 transfer(src=1, dst=2, amount=-3), once: 'order-7'",
        "4 book(seats=[('A', 1), ('B', 2)], guest='Ann', price=1.5)",
        "5 run 2 events (src, dst, amount, transaction, seats, guest, price), in the order of amount",
    ):
        assert line in found, found
    assert [each["kind"] for each in told("show", tmp_path)] == ["load", "execute", "execute", "execute", "run"]
    third = told("show", tmp_path)[2]
    assert third["arguments"] == {"src": 1, "dst": 2, "amount": -3} and third["key"] == "order-7"


@pytest.mark.parametrize("sync, lines", [("group", 1), ("always", 3)])
def test_steps_belong_to_their_batch(tmp_path: Path, sync: str, lines: int) -> None:
    opened: Any = tg.Engine(tg.dataflow([pack]), directory=str(tmp_path), recovery="strong", sync=sync)
    opened.run(pa.table({"account": [1, 2, 3], "amount": [3, 4, 5]}))
    assert opened.take(bills).num_rows == 3
    abandoned(opened)
    found = told("show", tmp_path)
    assert [each["kind"] for each in found] == ["run", *["steps"] * lines, "take"]
    assert [each["number"] for each in found] == [1, *[1] * lines, 2]
    assert sum(each.get("steps", 0) for each in found) == 3
    assert f"1 {3 // lines} steps of it\n" in shown("show", tmp_path) and "2 take 3 from bills" in shown(
        "show", tmp_path
    )


def test_the_newest_commands_are_shown_or_those_from_a_number_on(three: Path) -> None:
    assert [each["number"] for each in told("show", three)] == [1, 2, 3, 4, 5, 6, 7]
    assert [each["number"] for each in told("show", three, "--limit", 2)] == [6, 7]
    assert [each["number"] for each in told("show", three, "--limit", 0)] == [1, 2, 3, 4, 5, 6, 7]
    assert [each["number"] for each in told("show", three, "--from", 3, "--limit", 3)] == [3, 4, 5]
    assert [each["number"] for each in told("show", three, "--from", 5, "--limit", 0)] == [5, 6, 7]
    assert told("show", three, "--from", 99) == []


def test_what_stands_before_damage_is_shown_and_then_the_damage(three: Path) -> None:
    file = three / "000000000004.log"
    place = ends(file)[1] + 3
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    found = shown("show", three, code=1)
    assert "4 transfer(src=3, dst=4, amount=0)" in found and "5 transfer" not in found
    assert f"{file.name}: damaged at offset {place - 3}" in found


NASTY = {
    "[bold]x[/]": "'[bold]x[/]'",
    "\x1b[31mred": r"'\x1b[31mred'",
    "two\nlines": r"'two\nlines'",
    "\u202eleft": r"'\u202eleft'",
}


def test_data_is_printed_to_the_letter(tmp_path: Path) -> None:
    path = tmp_path / "[/]state\x1b[31m"
    opened = pay(path, 0)
    for word in NASTY:
        opened.execute(book, idempotency_key=word, seats=[(word, 1)], guest=word, price=0)
    abandoned(opened)
    for command in ("ls", "show", "verify"):
        found = tidegate(command, path).output
        assert not any(character in found for character in ("\x1b", "\u202e"))
    found = shown("show", path)
    for text in NASTY.values():
        assert f"book(seats=[({text}, 1)], guest={text}, price=0.0), once: {text}" in found
    (path / "000000000001.log").write_bytes(b"nothing")
    assert r"[/]state\x1b[31m/000000000001.log: damaged" in shown("verify", path, code=1)


# --- verify -------------------------------------------------------------------------------------------------------


def test_a_whole_log_is_sound(three: Path) -> None:
    found = shown("verify", three)
    assert "✓ 3 segments" in found and "checkpoint 2 covers 3 commands, 4 are behind it" in found
    assert told("verify", three)["problems"] == []


@pytest.mark.parametrize("name", ["000000000001.log", "000000000004.log", "000000000006.log"])
def test_a_flipped_bit_anywhere_is_named_with_its_place(three: Path, name: str) -> None:
    file = three / name
    data, marks = file.read_bytes(), ends(file)
    for place in range(0, marks[-1], 61):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        frame = next((end for end in reversed(marks[:-1]) if end <= place), None)
        found = shown("verify", three, code=1)
        assert name in found, f"a bit at {place}"
        assert frame is None or f"{name}: damaged at offset {frame}" in found


def test_a_torn_tail_is_no_error(three: Path) -> None:
    file = three / "000000000006.log"
    data, marks = file.read_bytes(), ends(file)
    for cut in range(marks[1] + 1, marks[2]):
        file.write_bytes(data[:cut])
        found = told("verify", three)
        assert found["segments"][-1]["torn"] and found["segments"][-1]["commands"] == 1
    assert "a torn tail behind them" in shown("verify", three) and "torn" in shown("ls", three)


def test_a_torn_tail_before_another_segment_is_an_error(three: Path) -> None:
    file = three / "000000000004.log"
    file.write_bytes(file.read_bytes()[: ends(file)[2] - 2])
    found = shown("verify", three, code=1)
    assert f"{file.name}: torn at offset {ends(file)[-1]}" in found
    assert "commands from 5 to 5 are in no checkpoint" in found


@pytest.mark.parametrize("gone, expected", [(1, None), (4, "commands from 4 to 5"), (6, None)])
def test_a_missing_segment_is_noticed_where_its_commands_are_in_no_checkpoint(
    three: Path, gone: int, expected: str | None
) -> None:
    """What is gone at the end, nobody can tell."""
    (three / f"{gone:012d}.log").unlink()
    assert expected is None or expected in shown("verify", three, code=1)
    assert expected is not None or told("verify", three)["sound"]


def test_the_only_segment_behind_a_checkpoint_may_not_begin_later(three: Path) -> None:
    (three / "000000000001.log").unlink()
    (three / "000000000004.log").unlink()
    assert "000000000004.log, which held them, is missing" in shown("verify", three, code=1)


def test_a_segment_of_another_state_is_named(three: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    opened = pay(other, 3)
    checkpoint(opened)
    for number in range(2):
        opened.execute(transfer, src=3, dst=4, amount=number)
    abandoned(opened)
    shutil.copy(other / "000000000004.log", three)
    found = shown("verify", three, code=1)
    assert "000000000004.log: damaged at offset 0" in found and "another state" in found


def test_a_segment_of_another_copy_of_the_state_is_named(three: Path, tmp_path: Path) -> None:
    """A backup on which somebody went on: the same state, other commands."""
    copy = tmp_path / "copy"
    shutil.copytree(three, copy)
    (copy / "000000000006.log").unlink()
    (copy / "000000000004.log").unlink()
    opened = pay(copy, 1)
    opened.execute(transfer, src=9, dst=8, amount=1)
    abandoned(opened)
    shutil.copy(copy / "000000000004.log", three)
    assert "000000000006.log: damaged at offset 0" in shown("verify", three, code=1)


def test_a_renamed_segment_is_not_believed(three: Path) -> None:
    (three / "000000000006.log").rename(three / "000000000009.log")
    assert "000000000009.log: damaged at offset 0" in shown("verify", three, code=1)


def test_a_log_without_versions_and_damaged_versions_are_told(three: Path) -> None:
    version = three / "000000000002.change"
    version.write_bytes(b"nothing")
    assert f"{version.name}: damaged" in shown("verify", three, code=1)
    for file in three.glob("*.change"):
        file.unlink()
    assert "no version of the state" in shown("verify", three, code=1)


def test_commands_of_plain_python_are_in_checkpoints_only(tmp_path: Path) -> None:
    pay(tmp_path, 2).close()
    opened = tg.Engine([transfer_slowly], directory=str(tmp_path))
    for number in range(3):
        opened.execute(transfer_slowly, src=1, dst=2, amount=number)
    abandoned(opened)
    abandoned(pay(tmp_path, 2))
    assert told("verify", tmp_path)["sound"]
    assert [each["number"] for each in told("show", tmp_path)] == [6, 7]


def test_logs_on_object_stores_are_read_too() -> None:
    path = "memory://logs-of-commands"
    try:
        opened = pay(path, 3)
        checkpoint(opened)
        opened.execute(transfer, src=3, dst=4, amount=9)
        found = told("verify", path)
        assert found["sound"] and [each["covered"] for each in found["segments"]] == [True, True, True, False]
        assert "4 transfer(src=3, dst=4, amount=9)" in shown("show", path)
        files = fsspec.filesystem("memory")
        data = bytearray(files.cat("/logs-of-commands/000000000004.log"))
        data[-5] ^= 1
        files.pipe("/logs-of-commands/000000000004.log", bytes(data))
        assert "000000000004.log: damaged at offset" in shown("verify", path, code=1)
        opened.close()
    finally:
        fsspec.filesystem("memory").rm("/logs-of-commands", recursive=True)


def test_a_checkpoint_that_is_made_meanwhile_is_no_damage(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the checkpoint that was looked at, an engine removes a segment, because another one covers it."""
    open_segment, opened_at = log_check.open_segment, []

    def meanwhile(storage: Any, first: int) -> Any:
        opened_at.append(first)
        if opened_at == [1, 4]:
            kept = (three / "000000000006.log").read_bytes()
            opened = pay(three, 1)
            for _ in range(3):
                opened.execute(transfer, src=1, dst=2, amount=1)
                checkpoint(opened)
            abandoned(opened)
            (three / "000000000006.log").write_bytes(kept)
        return open_segment(storage, first)

    monkeypatch.setattr(log_check, "open_segment", meanwhile)
    assert log_check.check_log(open_storage(str(three))).sound
    assert opened_at[:4] == [1, 4, 6, 6]
