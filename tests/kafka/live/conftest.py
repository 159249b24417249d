"""Makes the cluster and the comparison importable for the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
