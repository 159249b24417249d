"""Makes the harness of real processes importable for the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent

for folder in (_HERE, _HERE.parent / "cluster"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
