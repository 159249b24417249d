"""Makes the helpers of this folder importable for its tests."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent

if str(_HERE) not in sys.path:
    sys.path.append(str(_HERE))
