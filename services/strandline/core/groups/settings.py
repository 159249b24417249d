"""The bounds of consumer groups, with Kafka's defaults where Kafka has the setting (G13)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """All times in ms."""

    session_timeout_ms: int = 45_000
    """For members that choose none; a member that sends nothing for so long is removed."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    heartbeat_interval_ms: int = 5_000
    """At most; a third of the session if that is shorter."""
    max_members: int = 10_000
    """Of one group."""
    max_metadata_bytes: int = 4_096
    """Of the text that comes with a committed offset, in UTF-8."""
    max_pattern_bytes: int = 1_024
    """Of a subscription by pattern, in UTF-8."""
    assignment_interval_ms: int = 200
    """Shortest time between two targets of one group (KIP-1263); 0: with the request that needs one."""
    inline_pairs: int = 20_000
    """Members times partitions above which an assignment is computed in a worker (G16)."""
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_ms: int = 600_000
    fence_retention_ms: int = 7 * 86_400_000
    """How long the end of a producer's last transaction is remembered where it had offsets of a group in it."""
    retention_step: int = 2_000
    """How many offsets one tick looks at, so that a check of many does not hold the event loop."""
    forgotten_after_ms: int = 600_000
    """How long the sequence of a member that is gone is remembered: no copy of a request is older."""

    def heartbeat_of(self, session_timeout_ms: int) -> int:
        """How often a member with this session sends a heartbeat."""
        return min(self.heartbeat_interval_ms, session_timeout_ms // 3)
