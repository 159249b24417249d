"""Makes the helpers of this folder importable for its tests."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
