"""Puts the stub of a controller and the builder of nodes where its tests can import it."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
