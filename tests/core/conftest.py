"""Puts the cluster of cores and its builders, which are no tests, where the tests of this folder can import them."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
