"""Makes the measures importable for the tests of this folder, by the names that they use among each other."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
