"""Makes the certificates and the small server that these tests share importable."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
