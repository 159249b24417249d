"""Runs all tests in two lanes side by side: tests that only compute, at a low priority, beside tests that start real
processes and whose figures are times.

Invariant: each folder of tests is in exactly one lane, and the exit code is 0 only if both lanes passed. What the
computing lane prints is shown when the other one has ended, so that neither is torn apart.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

TESTS = Path(__file__).parent
COMPUTING = frozenset(
    {"analytics", "core", "fuzz", "house", "kafka", "metadata", "observe", "records", "scenarios", "sim", "storage"}
)
"""Folders whose tests take no times. Spark is here: it computes more than all others."""
REAL = (TESTS / "analytics" / "test_live_cluster.py",)
"""Files of those folders that start processes and take times all the same."""
_NICE = 10
"""Low enough to leave the other lane its processors, high enough that no test here waits for its time-out."""
_END_S = 30


def lanes() -> tuple[list[Path], list[Path]]:
    """(real, computing): the folders of each lane, in order of names."""
    folders = sorted(path for path in TESTS.iterdir() if any(path.rglob("test_*.py")))
    return [f for f in folders if f.name not in COMPUTING], [f for f in folders if f.name in COMPUTING]


def main() -> int:
    """Returns pytest's exit code: that of the first lane that failed, else 0."""
    real, computing = lanes()
    print(f"beside it, shown when it has ended: tests of {', '.join(folder.name for folder in computing)}", flush=True)
    beside = _start_beside(computing)
    lines: SimpleQueue[str | None] = SimpleQueue()
    threading.Thread(target=_collect, args=(beside, lines), daemon=True).start()
    try:
        code = subprocess.run(_pytest([*real, *REAL]), check=False).returncode
        while (line := lines.get()) is not None:
            print(line, end="", flush=True)
        return code or beside.wait()
    finally:
        _end(beside)


def _pytest(places: list[Path]) -> list[str]:
    return [sys.executable, "-m", "pytest", *map(str, places)]


def _start_beside(folders: list[Path]) -> subprocess.Popen[str]:
    """Start the lane in a session of its own, as Linux may share the processors among sessions before niceness."""
    left_out = [f"--ignore={path}" for path in REAL]
    command = ["nice", "-n", str(_NICE), *_pytest(folders), *left_out, "-p", "no:cacheprovider"]
    pipe = subprocess.PIPE
    lane = subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    with suppress(OSError):
        Path(f"/proc/{lane.pid}/autogroup").write_text(str(_NICE))
    return lane


def _collect(lane: subprocess.Popen[str], lines: SimpleQueue[str | None]) -> None:
    assert lane.stdout is not None
    for line in lane.stdout:
        lines.put(line)
    lines.put(None)


def _end(lane: subprocess.Popen[str]) -> None:
    if lane.poll() is not None:
        return
    # As Ctrl-C does: fixtures end what they started.
    lane.send_signal(signal.SIGINT)
    try:
        lane.wait(_END_S)
    except subprocess.TimeoutExpired:
        lane.kill()
        lane.wait()


if __name__ == "__main__":
    sys.exit(main())
