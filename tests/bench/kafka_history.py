"""What the import of a Kafka cluster's metadata log costs: processor time and memory for so many records.

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
        cpu_s, peak_mib, said = _import(root, Path(folder) / "export")
        passed_s = time.monotonic() - began
    print(*said, sep="\n")
    most_s = MOST_CPU_S * records / 1e6
    print(
        f"{records:,} records: {cpu_s:.1f} s of one core (most {most_s:.1f} s), {passed_s:.1f} s in all, "
        f"{peak_mib:.0f} MiB at most (most {MOST_MIB:.0f} MiB)"
    )


def _import(root: Path, out: Path) -> tuple[float, float, list[str]]:
    """Seconds of processor time and MiB at most of the command, and what it said."""
    command = [sys.executable, "-m", "strandline.cli", "analytics", "import", "kafka"]
    with subprocess.Popen(
        [*command, "--metadata-log", str(root), "--out", str(out)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None, "it was asked for"
        said = process.stdout.read().splitlines()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the import ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said


if __name__ == "__main__":
    main()
