"""How a moment is written on the page: RFC 3339 in UTC, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_text(us: int) -> str:
    """``2026-11-21T14:03:07.120Z``."""
    whole = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{us % 1_000_000 // 1_000:03d}Z"
