"""Makes `docs/img/kafka-report.png`: from the files of a real Kafka run to its report, as docs/KAFKA.md says.

Run by `make docs PICTURES=1`; prints how long import and report took, each from a cold start.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import run_a_files
from photograph import chromium, photograph

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "kafka-report.png"
HEIGHT = 1500
_LIMIT_S = 300


def main() -> int:
    """Write the picture; 0 when it is there."""
    chromium()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        history, page = root / "history", root / "report.html"
        took_s = _strandline(*run_a_files.import_words(root), "--out", str(history))
        took_s += _strandline("report", "-i", str(history), "--out", str(page))
        print(f"together {took_s:.1f} s")
        photograph(page, PICTURE, height=HEIGHT)
    return 0


def _strandline(*words: str) -> float:
    """Run a command of the analytics; returns its seconds."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "strandline.cli", "analytics", *words], check=True, timeout=_LIMIT_S)
    took_s = time.monotonic() - began_s
    print(f"{took_s:5.1f} s  strandline analytics {' '.join(words[:2])}", flush=True)
    return took_s


if __name__ == "__main__":
    raise SystemExit(main())
