"""Makes the oracle beside this file and the generated day in `tests/bench` importable from any collection folder."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parents[1] / "bench"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
