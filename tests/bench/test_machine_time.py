"""CPU is charged to the process that used it, and the page cache is asked, not guessed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.bench.machine_time import Watch
from tests.bench.page_cache import drop, load, share_cached


def test_cpu_is_charged_to_who_used_it() -> None:
    """This process works and the other waits for its input; both have memory."""
    waiting = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"], stdin=-1, stdout=-1
    )
    assert waiting.stdout is not None
    waiting.stdout.readline()
    try:
        watch = Watch({"busy": os.getpid(), "idle": waiting.pid})
        began = time.perf_counter()
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        worked_s = time.perf_counter() - began
        spent = watch.end()
    finally:
        waiting.communicate()

    assert spent.cpu_ms["busy"] >= 150
    assert spent.cpu_ms["idle"] <= 20
    # Threads of earlier tests use processor time too, so the work may have ended before 0.2 s had passed.
    assert spent.elapsed_s >= worked_s
    assert all(mib > 1 for mib in spent.rss_mib.values())
    assert spent.per_mb(10)["busy"] == pytest.approx(spent.cpu_ms["busy"] / 10, abs=0.01)


def test_a_file_that_was_read_is_cached(tmp_path: Path) -> None:
    """All of its pages are in the cache, and dropping it leaves few where the file system can."""
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1 << 20))
    empty = tmp_path / "empty"
    empty.touch()

    load([path])
    cached = share_cached([path, empty])
    drop([path, empty])

    assert cached == 1.0
    assert share_cached([empty]) == 0.0
    if share_cached([path]) == 1.0:
        pytest.skip("the file system of temporary files keeps its pages in memory")
    assert share_cached([path]) < 0.1
