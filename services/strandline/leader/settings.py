"""Decides how much one caller may ask of a leader at once.

Invariant: every queue a caller can fill has a bound here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """Bounds per stream."""

    stream_backlog_answers: int = 1_000
    """Answers one stream may have waiting for its reader; beyond it the stream is not read further."""
    produce_stream_outstanding: int = 1_000
    """Unanswered messages of one ProduceStream; beyond it the stream is not read further."""
    stream_backlog_bytes: int = 32 << 20
    """Records that one stream may have waiting for its reader."""
