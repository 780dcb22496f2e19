from __future__ import annotations

import os
from pathlib import Path

from tidegate.benchmarks import compaction


def test_a_small_run_tells_latencies_with_and_without_a_compaction(tmp_path: Path) -> None:
    found = compaction.measure(rows=20_000, changed=20_000, batches=2, seed=1, folder=str(tmp_path))
    assert found.rows == 20_000 and found.changed >= 20_000
    assert found.alone_seconds > 0 and min(*found.quiet_ms, *found.beside_ms) > 0
    (state,) = os.listdir(tmp_path)
    assert [name for name in os.listdir(tmp_path / state) if name.endswith(".snapshot")]
