"""Makes the controller stub and the nodes of `tests/replica` importable for the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

_NODES = str(Path(__file__).parent.parent / "replica")

if _NODES not in sys.path:
    sys.path.append(_NODES)
