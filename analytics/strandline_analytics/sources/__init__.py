"""Finds the files that services exported, and reads them as they were written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Listed:
    """A file below a root: its path from there, and its size in bytes."""

    path: str
    size_bytes: int
