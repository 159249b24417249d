"""Which events a timeline shows: of which partitions, nodes and types, in which window.

Invariant: what is left out is left out after the order was made, so a filter never changes the order of what stays.
"""

from __future__ import annotations

from dataclasses import dataclass

QUIET_TYPES = frozenset({"EXPORT_HEARTBEAT", "CLOCK_SAMPLE", "STATE_SNAPSHOT", "CONTROLLER_DECISION"})
"""Transitions that repeat what others say or tell of the export itself; shown when asked for by name."""

MOVES = ("HW_ADVANCE",)
"""The type of sample that reports a change; the others report a state."""

TELLING_DECISIONS = ("silent", "controller_elected")
"""What a CONTROLLER_DECISION of Kafka's controllers says that no other event does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to show; an empty tuple or None means: all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    """Events that these nodes wrote, or that are about them."""
    types: tuple[str, ...] = ()
    """Event types; empty: all but `QUIET_TYPES` and what is repeated, with `TELLING_DECISIONS`."""
    start_us: int | None = None
    end_us: int | None = None
    cluster_id: str | None = None
    sample_types: tuple[str, ...] = ()
    """Types of samples to show besides; they need tables that were opened with samples."""
    unknown_types: bool = False
    """Whether events of types that only a newer version knows are shown beside those of ``types``."""
    node_events: bool = True
    """Whether events of whole nodes (sessions, settings) are shown with those of partitions."""
