"""Puts the certificates and the small server that the tests of this folder share where they can import them."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)
