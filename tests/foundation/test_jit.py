"""Programs are kept on disk, shared by processes, and run uncompiled on request; what others planted never runs."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.foundation import jit

SOURCE = """\
from tidegate.foundation.jit import inline, kernel_or_plain

@inline
def double(x):
    return 2 * x

@kernel_or_plain
def run(x):
    return double(x) + 1
"""

SCRIPT = f"""\
from tidegate.foundation.jit import load_program
module = load_program({SOURCE!r})
assert module.run(20) == 41
print(module.run.stats.cache_hits[next(iter(module.run.stats.cache_hits))] if module.run.stats.cache_hits else 0)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))
    return tmp_path


def start() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def test_processes_that_compile_at_once_do_not_disturb_each_other(cache: Path) -> None:
    """All get the right code, and a later process finds it compiled."""
    for process in [start() for _ in range(3)]:
        assert process.communicate()[0] is not None
        assert process.returncode == 0
    assert list(cache.glob("**/*.nbi"))
    later = start()
    hits = later.communicate()[0].strip()
    assert (later.returncode, hits) == (0, "1")


def test_an_index_that_names_missing_code_is_compiled_anew(cache: Path) -> None:
    for _ in range(2):
        process = start()
        assert process.communicate()[0].strip() == "0"
        assert process.returncode == 0
        for code in cache.glob("**/*.nbc"):
            code.unlink()


def test_the_same_text_is_the_same_module_and_uncompiled_runs_python(cache: Path) -> None:
    with jit.uncompiled():
        plain = jit.load_program(SOURCE)
        assert jit.load_program(SOURCE) is plain
        assert not hasattr(plain.run, "py_func")
        assert plain.run(2) == 5
    assert not jit.is_uncompiled()


def test_an_unwritable_cache_folder_is_replaced_by_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(file / "below"))
    found = jit.cache_directory()
    assert found is not None and found.is_dir()
    assert file not in found.parents


SOMEBODY, VICTIM = 23456, 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")

# All that compiling imports is there before the user changes: the interpreter may lie where that user cannot read.
AS_VICTIM = f"""\
import os
from tidegate.foundation.jit import load_program
os.environ["TIDEGATE_CACHE_DIR"] = os.environ["WARM"]
assert load_program({SOURCE.replace("2 *", "3 *")!r}).run(1) == 4
del os.environ["TIDEGATE_CACHE_DIR"]
os.setgroups([])
os.setgid({VICTIM})
os.setuid({VICTIM})
{SCRIPT}
"""


class Bomb:
    """Unpickled, it makes a file: the sign that what was planted was run."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.sign),)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A temporary folder as a system has it, which every user can reach."""
    made = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {name: value for name, value in os.environ.items() if not name.endswith("_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=settings | environment
    )
    assert done.returncode == 0, done.stderr
    return done


def plant(folder: Path, sign: Path) -> None:
    """Make a cache that a process would use, and put a bomb into each of its files."""
    run(SCRIPT, TIDEGATE_CACHE_DIR=str(folder))
    code = [*folder.glob("**/*.nbi"), *folder.glob("**/*.nbc")]
    assert len(code) == 2
    for file in code:
        file.write_bytes(pickle.dumps(Bomb(sign)))
    for file in folder.glob("*.py"):
        file.write_text(f"import os\nos.mkdir({str(sign)!r})\n{file.read_text()}")


def give(folder: Path, user: int) -> None:
    """Make all of a folder another user's, readable for everybody."""
    for path in (folder, *folder.glob("**/*")):
        os.chown(path, user, user)
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_bomb_goes_off_where_files_are_trusted(tmp_path: Path) -> None:
    """Or the tests below would show nothing."""
    plant(tmp_path / "cache", tmp_path / "sign")
    run(SCRIPT, TIDEGATE_CACHE_DIR=str(tmp_path / "cache"))
    assert (tmp_path / "sign").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770], ids=oct)
def test_nothing_runs_from_a_folder_that_others_can_write_to(tmp_path: Path, shared: Path, mode: int) -> None:
    cache = tmp_path / "cache"
    plant(cache, tmp_path / "sign")
    cache.chmod(mode)
    before = sorted(cache.glob("**/*"))
    done = run(SCRIPT, TIDEGATE_CACHE_DIR=str(cache), TMPDIR=str(shared))
    assert done.stdout.strip() == "0" and not (tmp_path / "sign").exists()
    assert sorted(cache.glob("**/*")) == before, "nor is anything written there"
    assert done.stderr.count("is not used") == 1
    for told in (str(cache), f"uid {os.geteuid()}", f"mode {mode:04o}", "Required", "chmod go-w", "TIDEGATE_CACHE_DIR"):
        assert told in done.stderr


def test_files_that_others_could_have_written_are_compiled_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    plant(cache, tmp_path / "sign")
    for file in cache.glob("**/*.*"):
        file.chmod(0o666)
    assert run(SCRIPT, TIDEGATE_CACHE_DIR=str(cache)).stdout.strip() == "0"
    assert run(SCRIPT, TIDEGATE_CACHE_DIR=str(cache)).stdout.strip() == "1"
    assert not (tmp_path / "sign").exists()


def test_nothing_runs_from_numbas_own_folder_if_others_can_write_to_it(tmp_path: Path) -> None:
    numbas, cache = tmp_path / "numba", tmp_path / "cache"
    places = {"TIDEGATE_CACHE_DIR": str(cache), "NUMBA_CACHE_DIR": str(numbas)}
    for hits in ("0", "1"):
        assert run(SCRIPT, **places).stdout.strip() == hits, "a private one is used"
    for file in numbas.glob("**/*.nb?"):
        file.write_bytes(pickle.dumps(Bomb(tmp_path / "sign")))
    numbas.chmod(0o777)
    done = run(SCRIPT, **places)
    assert done.stdout.strip() == "0" and str(numbas) in done.stderr
    assert run(SCRIPT, **places).stdout.strip() == "1", "code is kept in a place that is private"
    assert not (tmp_path / "sign").exists()


@needs_root
@pytest.mark.parametrize("planted", ["a folder", "a link to a folder", "a link to a folder of the victim"])
def test_what_another_user_planted_in_the_temporary_folder_does_not_run(
    tmp_path: Path, shared: Path, planted: str
) -> None:
    """The victim has no home that can be written, so it looks into the folder that all share."""
    sign = shared / "sign"
    guessed = shared / f"tidegate-cache-{VICTIM}"
    target = guessed if planted == "a folder" else shared / "elsewhere"
    plant(target, sign)
    give(target, VICTIM if "victim" in planted else SOMEBODY)
    if target != guessed:
        guessed.symlink_to(target)
        os.chown(guessed, SOMEBODY, SOMEBODY, follow_symlinks=False)
    before = set(shared.glob("**/*"))
    done = run(AS_VICTIM, HOME="/dev/null", TMPDIR=str(shared), WARM=str(tmp_path / "warm"))
    assert done.stdout.strip() == "0" and not sign.exists()
    assert done.stderr.count("is not used") == 1
    for told in (str(guessed), f"uid {SOMEBODY}", f"uid {VICTIM}", "Required", "TIDEGATE_CACHE_DIR"):
        assert told in done.stderr
    assert set(shared.glob("**/*")) == before, "the folder of the process went with it"


@needs_root
def test_a_user_without_a_home_finds_compiled_code_in_the_temporary_folder(tmp_path: Path, shared: Path) -> None:
    done = [
        run(f"import os; os.umask(0)\n{AS_VICTIM}", HOME="/dev/null", TMPDIR=str(shared), WARM=str(tmp_path / "warm"))
        for _ in range(2)
    ]
    assert [each.stdout.strip() for each in done] == ["0", "1"]
    assert not any(each.stderr for each in done)
    made = (shared / f"tidegate-cache-{VICTIM}").stat()
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (VICTIM, 0o700)


def test_where_no_folder_is_private_programs_are_compiled_in_memory(shared: Path) -> None:
    shared.chmod(0o777)
    done = run(SCRIPT, TIDEGATE_CACHE_DIR=str(shared / "cache"), TMPDIR=str(shared))
    assert done.stdout.strip() == "0" and "is not used" in done.stderr
    assert not list(shared.glob("**/*.nbi")) and not list(shared.glob("**/*.py"))


def test_code_beside_a_source_that_others_can_write_to_is_kept_elsewhere(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources, compiled = cache / "sources", cache / "sources" / "__pycache__"
    sources.mkdir()
    assert jit._code_folder(sources / "module.py", "sources_1") == compiled
    compiled.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert jit._code_folder(sources / "module.py", "sources_1") == cache / "sources_1"
    assert not caplog.records


@pytest.mark.parametrize("room", [0, 4096], ids=["nothing fits", "the text fits"])
def test_programs_run_when_the_disk_of_the_cache_is_full(small_disk: Path, room: int) -> None:
    cache = small_disk / "cache"
    cache.mkdir(mode=0o700)
    with pytest.raises(OSError, match="space"), (small_disk / "filling").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(small_disk / "filling", (small_disk / "filling").stat().st_size - room)
    done = run(SCRIPT, TIDEGATE_CACHE_DIR=str(cache))
    assert done.stdout.strip() == "0" and not list(cache.glob("**/*.nb?")) and not list(cache.glob("**/*.tmp"))
    assert len(list(cache.glob("*.py"))) == bool(room)
