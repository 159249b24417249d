"""Puts the faults where their own tests can import them by name, as those who inflict them do."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parents[1])

if _HERE not in sys.path:
    sys.path.append(_HERE)
