"""Makes the oracles, and the builders of other folders that they reuse, importable for the tests."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parent.parent

for folder in ("fuzz", "core", "storage", "replica", "controller"):
    if str(_TESTS / folder) not in sys.path:
        sys.path.append(str(_TESTS / folder))
