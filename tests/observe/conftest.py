"""Makes the builders of the controller core importable here."""

from __future__ import annotations

import sys
from pathlib import Path

_CORE = str(Path(__file__).parents[1] / "core")

if _CORE not in sys.path:
    sys.path.append(_CORE)
