"""Makes `docs/img/report.png`: the report of a demo in a real browser, Debian's Chromium, headless.

Run by `make docs PICTURES=1`. Without a directory it plays the demo, for minutes; `--demo DIR` takes one that was
played before, whose report is made again by this version.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from photograph import chromium, photograph

PICTURE = Path(__file__).parents[3] / "docs" / "img" / "report.png"
HEIGHT = 1700
_LIMIT_S = 1_200


def main() -> int:
    """Write the picture; 0 when it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, help="the directory of a demo that was played before")
    parser.add_argument("--out", type=Path, default=PICTURE)
    asked = parser.parse_args()
    chromium()  # Before the work of minutes.
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        page = _played(root / "demo") if asked.demo is None else _made_again(asked.demo, root / "report.html")
        photograph(page, asked.out, height=HEIGHT)
    return 0


def _played(demo: Path) -> Path:
    """The page of a demo that is played now."""
    _run([sys.executable, "-m", "strandline.cli", "demo", "--dir", str(demo)])
    return demo / "report.html"


def _made_again(demo: Path, page: Path) -> Path:
    """The page of an earlier demo, of the time that its own report was about."""
    said = json.loads((demo / "report.json").read_text())
    window = ["--from-us", str(said["start_us"]), "--to-us", str(said["end_us"])]
    job = ["-m", "strandline_analytics.report", "--small", "--steps", "0", "--input", str(demo / "export")]
    _run([sys.executable, *job, "--out", str(page), *window])
    return page


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=_LIMIT_S)


if __name__ == "__main__":
    raise SystemExit(main())
