"""Makes the faults importable by name for their own tests, as in the scenarios."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parents[1])

if _HERE not in sys.path:
    sys.path.append(_HERE)
