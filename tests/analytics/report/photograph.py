"""A picture of a page as people see it: Debian's Chromium, headless."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

WIDTH = 1100
_SHOT_S = 180


def chromium() -> str:
    """The path of the browser.

    Raises:
        SystemExit: it is not installed; with the remedy.
    """
    found = shutil.which("chromium")
    if found is None:
        raise SystemExit("chromium is not installed; on Debian: apt-get install chromium")
    return found


def photograph(page: Path, picture: Path, *, height: int) -> None:
    """Write a PNG of the upper ``height`` pixels of a page, 1,100 wide."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--user-data-dir={Path(folder) / 'profile'}",
            f"--window-size={WIDTH},{height}",
            f"--screenshot={shot}",
            "--virtual-time-budget=5000",
        ]
        subprocess.run([chromium(), *flags, page.as_uri()], check=True, capture_output=True, timeout=_SHOT_S)
        picture.write_bytes(shot.read_bytes())
