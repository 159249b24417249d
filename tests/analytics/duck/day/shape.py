"""The size of a generated day, and what all its parts have in common.

The generator in order: `shape` has the size, `nodes` which node was down when, `decisions` the controller's reaction,
`looks` what leaders and followers recorded meanwhile, `groups` what was reported of consumer groups and transactions,
`numbered` gives every row its position in its emitter's sequence and loses some, `written` writes everything like the
exporter.

Times inside the generator are microseconds since the start of the day by the controller's clock; they become times of
day, by the clock of the emitter, when rows are numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

SECOND = 1_000_000
HOUR = 3_600 * SECOND
START_US = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * SECOND
PARTITIONS_PER_TOPIC = 20
LAG_TIME_MAX_US = 30 * SECOND
SESSION_TIMEOUT_US = 9 * SECOND
MIN_ISR = 2
CONTROLLER = -1
HOT = 0
"""The partition that is looked at more often than the others where a day is skewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The requested size; ``events`` is met within a few percent."""

    seed: int = 1
    events: int = 10_000_000
    partitions: int = 1_000
    hours: int = 24
    nodes: int = 10
    replication_factor: int = 3
    cluster_id: str = "day"
    start_us: int = START_US
    hot_share: float = 0.0
    """The share of all looks that are at the partition `HOT`, on top of those that it has like any other."""

    @property
    def end(self) -> int:
        """The length of the day, us."""
        return self.hours * HOUR

    @property
    def heartbeat_us(self) -> int:
        """Between two heartbeats of an emitter: 10 s, longer where they would be more than a hundredth of the rows."""
        return max(10 * SECOND, self.end * (self.nodes + 1) * 100 // self.events)

    def topic(self, partition: int) -> str:
        """The topic of a partition, which is numbered over all topics."""
        return f"topic-{partition // PARTITIONS_PER_TOPIC}"

    def topic_id(self, partition: int) -> str:
        """The id of that topic."""
        return f"00000000-0000-4000-8000-{partition // PARTITIONS_PER_TOPIC:012x}"
