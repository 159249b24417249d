"""Makes the running nodes, the running controller and the scraping of these tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent

for folder in (_HERE, _HERE.parent / "replica", _HERE.parent / "controller"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
