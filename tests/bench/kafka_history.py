"""What the import of a Kafka cluster's metadata log costs: processor time, memory, and bytes read, for so many records.

The log is generated (`kafka_history_log.py`) and imported by the command, in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafka_history_log import write_log

MOST_CPU_S, MOST_MIB = 60.0, 500.0
"""What a million records may cost."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        root = write_log(Path(folder), records)
        began = time.monotonic()
        cpu_s, peak_mib, read_bytes, said = _import(root, Path(folder) / "export")
        passed_s = time.monotonic() - began
        log_bytes = sum(path.stat().st_size for path in root.rglob("*.log"))
        # What an import of next to nothing reads is modules.
        empty = write_log(Path(folder) / "empty", 0)
        read_bytes -= _import(empty, Path(folder) / "nothing")[2]
    print(*said, sep="\n")
    most_s = MOST_CPU_S * records / 1e6
    print(
        f"{records:,} records: {cpu_s:.1f} s of one core (most {most_s:.1f} s), {passed_s:.1f} s in all, "
        f"{peak_mib:.0f} MiB at most (most {MOST_MIB:.0f} MiB); read {read_bytes / 2**20:.1f} MiB, "
        f"{read_bytes / log_bytes:.2f} times the {log_bytes / 2**20:.1f} MiB of the log"
    )


def _import(root: Path, out: Path) -> tuple[float, float, int, list[str]]:
    """Seconds of processor time, MiB at most and bytes read of the command, modules included, and what it said."""
    command = [sys.executable, "-m", "strandline.cli", "analytics", "import", "kafka"]
    with subprocess.Popen(
        [*command, "--metadata-log", str(root), "--out", str(out)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None, "it was asked for"
        said = process.stdout.read().splitlines()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # It has ended and is not forgotten yet, so that the kernel still says what it read.
        read_bytes = int(Path(f"/proc/{process.pid}/io").read_text().split()[1])
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the import ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, read_bytes, said


if __name__ == "__main__":
    main()
