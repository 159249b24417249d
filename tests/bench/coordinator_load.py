"""What a coordinator costs to load, in processor time: `python tests/bench/coordinator_load.py`.

The log is in real files and holds committed offsets, once as sweeps write them and once with one commit in each batch.
Targets (G7): 1,000 keys within 100 ms, 100,000 keys within 2 s, and no step of the event loop longer than 20 ms.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.coordinator.machine import Batch, Record
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import ShardLimits, ShardState
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.records import OffsetKey, OffsetValue
from strandline.core.log.effects import Append, Effect, OpenLog, ReadCoordinatorLog
from strandline.core.log.events import CoordinatorLogRead, Event, MetadataArrived, Registered
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, Rules, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.rpc.convert.coordinator_records import ProtoRecords
from strandline.runtime.log_performers import LogPerformers
from strandline.runtime.patterns import Re2Patterns
from strandline.runtime.threads import leave_to_counts
from strandline.storage.directory import DataDirectory
from strandline.storage.log import LogSettings

ME = NodeId(1)
EPOCH = NodeEpoch(101)
TP = TopicPartition("5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a01", 0)
OF_TOPIC = "0b6c1c2e-6a52-4d4c-9d0e-5f5a3c1d7e10"
KEYS = (1_000, 100_000)


def records(count: int) -> Iterable[Record]:
    """Offsets of groups of a hundred partitions each."""
    for index in range(count):
        value = OffsetValue(Offset(1_000_000 + index), LeaderEpoch(7), "", 1_700_000_000_000, index)
        yield Record(OffsetKey(f"group-{index // 100:05}", OF_TOPIC, index % 100), value)


def swept(count: int) -> list[Batch]:
    """Batches of about the size that a sweep writes."""
    every = list(records(count))
    each = ShardLimits().batch_bytes // 100
    return [tuple(every[at : at + each]) for at in range(0, count, each)]


def single(count: int) -> list[Batch]:
    """A batch for each offset."""
    return [(record,) for record in records(count)]


class Node:
    """The core of one node over the files of one directory."""

    def __init__(self, path: Path) -> None:
        self.logs = DirectoryLogs(DataDirectory.open(path, node_id=ME, cluster_id="c"), LogSettings())
        self._perform = LogPerformers(self.logs, lambda: 0).table
        parts = Coordinators(codec=ProtoRecords(), machines={GROUP_STATE: lambda _: GroupMachine(Re2Patterns())})
        self.core = NodeCore(node_id=ME, rules=Rules(), timings=NodeTimings(), coordinators=parts)
        self.reads: deque[ReadCoordinatorLog] = deque()

    def fill(self, batches: Iterable[Batch]) -> None:
        """Write a log as an earlier coordinator has left it."""
        self.logs.open(TP, GROUP_STATE)
        codec, at = ProtoRecords(), 0
        for batch in batches:
            encoded = codec.encode(batch, 1_700_000_000_000)
            self.logs.append(Append(TP, Offset(at), LeaderEpoch(0), encoded.header, encoded.payload))
            at += len(batch)
        self.logs.save_high_watermarks({TP: Offset(at)}, durable=True)
        self.logs.sync_saves()
        self.logs.issue_flush(TP).sync()

    def step(self, event: Event) -> None:
        """One event and what follows from it at once; reads for a coordinator are kept."""
        events: deque[Any] = deque([event])
        while events:
            for effect in self.core.step(events.popleft()):
                follow_up = self._performed(effect)
                if follow_up is not None:
                    events.append(follow_up)
        self.logs.sync_saves()

    def _performed(self, effect: Effect) -> Event | None:
        if isinstance(effect, ReadCoordinatorLog):
            self.reads.append(effect)
        perform = self._perform.get(type(effect))
        return perform(effect) if perform is not None else None

    def lead(self) -> None:
        """Become the leader of the partition."""
        image = PartitionImage(
            tp=TP, replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=LeaderEpoch(1),
            partition_epoch=PartitionEpoch(1), min_isr=1,
        )  # fmt: skip
        topic = TopicImage(name=GROUP_STATE, topic_id=TP.topic_id, partitions=(image,))
        nodes = (NodeImage(node_id=ME, node_epoch=EPOCH, fenced=False),)
        self.step(Registered(0, "c", EPOCH, 1))
        metadata = MetadataImage(
            cluster_id="c", controller_epoch=1, metadata_offset=1, is_snapshot=True, rules=Rules(), nodes=nodes,
            topics=(topic,), to_node_epoch=EPOCH,
        )  # fmt: skip
        self.step(MetadataArrived(0, metadata))

    def load(self) -> list[float]:
        """Load to the end; the processor time of each step in ms, its read included."""
        steps = []
        while self.reads:
            effect = self.reads.popleft()
            began = time.process_time()
            chunk = self.logs.read(effect.tp, effect.start, effect.end, effect.max_bytes, at_least_one=True)
            self.step(
                CoordinatorLogRead(
                    0, effect.tp, effect.leader_epoch, effect.start, chunk.end, chunk.payload, len(chunk.payload)
                )
            )
            leave_to_counts()
            steps.append(1_000 * (time.process_time() - began))
        (shard,) = self.core._coordinators.shards.values()
        assert shard.state is ShardState.ACTIVE, shard.state
        return steps


def measured(batches: list[Batch]) -> tuple[int, int, list[float]]:
    """(keys, bytes of the log, ms of each step)."""
    with tempfile.TemporaryDirectory() as path:
        node = Node(Path(path))
        node.fill(batches)
        node.logs.close(clean=True)
        node = Node(Path(path))
        node._performed(OpenLog(TP, GROUP_STATE))
        node.lead()
        steps = node.load()
        (shard,) = node.core._coordinators.shards.values()
        found = len(shard.table.rows), shard.log_bytes, steps
        node.logs.close(clean=False)
        return found


def main() -> None:
    """Print a line for each shape and size."""
    gc.freeze()
    for shape in (swept, single):
        for count in KEYS:
            keys, size_bytes, steps = measured(shape(count))
            assert keys == count, keys
            print(
                f"{shape.__name__:6} {count:7,} keys {size_bytes / (1 << 20):6.1f} MiB: {sum(steps):7.0f} ms of "
                f"processor time in {len(steps)} steps, the longest {max(steps):.1f} ms"
            )


if __name__ == "__main__":
    main()
