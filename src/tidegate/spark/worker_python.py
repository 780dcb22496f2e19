"""Whether the Python that Spark starts on this machine has what a task needs, found out before the first batch.

Spark starts workers with PYSPARK_PYTHON (or `spark.pyspark.python`), or else with whatever `python3` is on the path,
which may be the system's, without tidegate. `tidegate.spark.session` sets it; a user's own session may not. The driver
can ask only a Python of its own machine, so this concerns local masters. On a cluster the task itself says what is
missing (`task.make_task`).

A Python is asked once, and not at all if it is the one that runs the driver.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tidegate.foundation.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = ("tidegate", "pyarrow", "numba", "cloudpickle")
_QUESTION = f"import importlib.util as u; print(*(n for n in {_NEEDED!r} if u.find_spec(n) is None))"
_SHIPPED = ("spark.submit.pyFiles", "spark.archives", "spark.files")
"""Settings by which packages travel to workers: then the Python alone does not tell what they have."""


def require_worker_python(session: SparkSession, what: str = "transact") -> None:
    """Raise InputError if the workers of a local session run a Python without tidegate or what it needs."""
    if "SPARK_REMOTE" in os.environ or not str(session.conf.get("spark.master", "") or "").startswith("local"):
        return
    if any(session.conf.get(name, "") for name in _SHIPPED):
        return
    configured = session.conf.get("spark.pyspark.python", None)
    executable = shutil.which(os.environ.get("PYSPARK_PYTHON") or configured or "python3")
    if executable is None or _is_ours(executable):
        return
    missing = _missing(executable)
    if missing:
        raise InputError(
            f"{what}: Spark's Python workers on this machine run {executable}, which has no {', no '.join(missing)}. "
            f"Before the session is made, let them run this Python, os.environ['PYSPARK_PYTHON'] = {sys.executable!r}, "
            "or make the session with tidegate.spark.session, which does that"
        )


def _is_ours(executable: str) -> bool:
    """Whether it is the Python of this process: of one environment there are several names, all in one folder."""
    folders = (os.path.dirname(os.path.abspath(file)) for file in (executable, sys.executable))
    return len(set(folders)) == 1 and os.path.realpath(executable) == os.path.realpath(sys.executable)


@functools.cache
def _missing(executable: str) -> tuple[str, ...]:
    """The packages that a Python lacks; none if it does not answer, since then Spark says what is wrong."""
    try:
        asked = subprocess.run([executable, "-c", _QUESTION], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(asked.stdout.split()) if asked.returncode == 0 else ()
