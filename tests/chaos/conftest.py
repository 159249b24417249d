"""Makes the harness, and the helpers of the other real-process tests, importable for the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent

for folder in (str(_HERE), str(_HERE.parent / "cluster")):
    if folder not in sys.path:
        sys.path.append(folder)
