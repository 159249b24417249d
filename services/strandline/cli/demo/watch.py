"""The demo's view of the running cluster: elections, ISR changes, and whether a state was reached.

Invariant: only what the controller committed is seen here, in its order (partition epochs rise); the demo never
infers an election from a failed send.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.core.control.state import changes_between

if TYPE_CHECKING:
    from strandline.client.cluster.metadata import Cluster
    from strandline.core.messages import PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """One partition got another leader. ``old`` or ``new`` is None for a time without one."""

    partition: int
    old: int | None
    new: int | None
    leader_epoch: int
    at_ms: float


@dataclass(slots=True)
class ClusterWatch:
    """The topic's partitions as last committed, and what changed since the watch began."""

    cluster: Cluster
    topic: str
    elections: list[Election] = field(default_factory=list)
    isr_changes: int = 0
    shrinks: int = 0
    expands: int = 0
    skipped: int = 0
    """Partition epochs that were never seen because a later one came with them; what they did is not counted."""
    _known: dict[int, PartitionImage] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """Takes the present state as known, and listens from now on."""
        self._known = {partition.tp.partition: partition for partition in self.partitions}
        self.cluster.listen(self._look)

    def count_from_now(self) -> None:
        """Forgets what was counted: the cluster was being set up."""
        self.elections.clear()
        self.isr_changes = self.shrinks = self.expands = self.skipped = 0

    @property
    def partitions(self) -> tuple[PartitionImage, ...]:
        """The topic's partitions as last heard."""
        found = self.cluster.view.topic(self.topic)
        return found.partitions if found is not None else ()

    def leads_most(self) -> int:
        """The node that leads most partitions; the lowest id among equals."""
        counts = Counter(partition.leader for partition in self.partitions if partition.leader is not None)
        assert counts, "no partition has a leader"
        return min(counts, key=lambda node_id: (-counts[node_id], node_id))

    def led_by(self, node_id: int) -> list[int]:
        """The partitions that a node leads."""
        return [partition.tp.partition for partition in self.partitions if partition.leader == node_id]

    def in_every_isr(self, node_id: int) -> bool:
        """Whether a node is in sync for every partition it is assigned to."""
        return all(node_id in partition.isr for partition in self.partitions if node_id in partition.replicas)

    def isr_places(self, node_id: int) -> int:
        """In how many ISRs a node is."""
        return sum(node_id in partition.isr for partition in self.partitions)

    def elected_since(self, at_ms: float, partitions: list[int]) -> bool:
        """Whether each of ``partitions`` got a leader after ``at_ms``."""
        done = {vote.partition for vote in self.elections if vote.new is not None and vote.at_ms >= at_ms}
        return done.issuperset(partitions)

    async def until(self, reached: Callable[[], bool], timeout_ms: int) -> bool:
        """Waits for a state; False when ``timeout_ms`` passed first."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not reached():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return reached()
        return True

    def _look(self) -> None:
        now_ms = time.monotonic() * 1000
        for partition in self.partitions:
            before = self._known.get(partition.tp.partition)
            self._known[partition.tp.partition] = partition
            if before is not None:
                self._compare(before, partition, now_ms)
        self._changed.set()

    def _compare(self, before: PartitionImage, after: PartitionImage, now_ms: float) -> None:
        left, joined = set(before.isr) - set(after.isr), set(after.isr) - set(before.isr)
        self.isr_changes += bool(left or joined)
        self.shrinks += bool(left)
        self.expands += bool(joined)
        self.skipped += max(0, changes_between(before.partition_epoch, after.partition_epoch) - 1)
        if before.leader != after.leader:
            self.elections.append(
                Election(
                    partition=after.tp.partition,
                    old=before.leader,
                    new=after.leader,
                    leader_epoch=after.leader_epoch,
                    at_ms=now_ms,
                )
            )


# ---- events
# What the nodes exported while the demo ran: the truncations, read from their own event files.
#
# Invariant: an exported event is counted once, by node, incarnation and sequence number; a line that is cut off
# (the node was killed while it wrote) is passed over.

EVENT_FILES = "events.jsonl*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationSeen:
    """A replica cut its log from ``from_leo`` down to ``to_leo``."""

    partition: int
    from_leo: int
    to_leo: int

    @property
    def records(self) -> int:
        """How many records were cut."""
        return self.from_leo - self.to_leo


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """Every event in the event files below ``directory``, each once."""
    seen: set[tuple[object, ...]] = set()
    for path in sorted(directory.rglob(EVENT_FILES)):
        for event in _events_of(path):
            identity = (event.get("node_id"), event.get("incarnation"), event.get("seq"))
            if None not in identity:
                if identity in seen:
                    continue
                seen.add(identity)
            yield event


def _events_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as source:
        for line in source:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def truncations(directory: Path, topic_id: str) -> list[TruncationSeen]:
    """The truncations of one topic's partitions, in order of their files."""
    return [
        TruncationSeen(partition=int(event["partition"]), from_leo=int(event["from_leo"]), to_leo=int(event["to_leo"]))
        for event in read_events(directory)
        if event.get("event_type") == "TRUNCATION" and event.get("topic_id") == topic_id
    ]
