"""A data node's core over real files, with many partitions, and the syncs that its event loop waits for."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strandline.core.log.effects import SendEpochEnds, SendFetch
from strandline.core.log.events import Event, FetchAnswered, LogFlushed, MetadataArrived, Registered
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import FetchedPartition, MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, Role, Rules, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.records.batch import STAMP_BYTES, parse_header, stamp_prefix
from strandline.records.codec import NewRecord, encode_batch
from strandline.runtime.calls import Calls
from strandline.runtime.driver import Driver
from strandline.runtime.performers import Performers
from strandline.storage.directory import DataDirectory
from strandline.storage.log import LogSettings

TOPIC_ID = "0b6c1c2e-6a52-4d4c-9d0e-5f5a3c1d7e10"
ME, OTHER = NodeId(1), NodeId(2)
BOTH = frozenset({Role.LEADER, Role.FOLLOWER})
NODES = tuple(
    NodeImage(node_id=node, node_epoch=NodeEpoch(100 + node), roles=BOTH, fenced=False) for node in (ME, OTHER)
)


class Syncs:
    """Every sync of this process by the name of its file; those of the loop's thread are kept apart. None is done."""

    def __init__(self) -> None:
        self.on_loop: list[str] = []
        self.elsewhere: list[str] = []
        self._loop = threading.get_ident()

    def __call__(self, fd: int) -> None:
        """Replaces fsync and fdatasync."""
        of = self.on_loop if threading.get_ident() == self._loop else self.elsewhere
        of.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)

    def taken(self) -> list[str]:
        """The syncs of the loop's thread since the last call."""
        taken, self.on_loop = self.on_loop, []
        return taken


class Peers:
    """Requests to other nodes, kept."""

    def __init__(self) -> None:
        self.fetches: list[SendFetch] = []
        self.questions: list[SendEpochEnds] = []

    def send_fetch(self, effect: SendFetch) -> None:
        """Keep a fetch."""
        self.fetches.append(effect)

    def send_epoch_ends(self, effect: SendEpochEnds) -> None:
        """Keep a question."""
        self.questions.append(effect)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class _Unused:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Node:
    """Node 1 over a data directory, with ``count`` partitions."""

    def __init__(self, path: Path, count: int, syncs: Syncs, **settings: int) -> None:
        self.syncs = syncs
        self.tps = [TopicPartition(TOPIC_ID, index) for index in range(count)]
        self.directory = DataDirectory.open(path, node_id=ME, cluster_id="c", **settings)
        self.logs = DirectoryLogs(self.directory, LogSettings())
        self.core = NodeCore(node_id=ME, rules=Rules(), timings=NodeTimings())
        self.driver: Driver[Any] = Driver(self.core, stop=_raise)
        self.peers = Peers()
        self.flushed: list[TopicPartition] = []
        unused: Any = _Unused()
        performers = Performers(
            logs=self.logs,
            flusher=self,  # type: ignore[arg-type]  # `flush` is all that is used
            peers=self.peers,  # type: ignore[arg-type]  # answers everything
            calls=Calls(),
            reporter=unused,
            clock=lambda: 0,
            session=unused,
            believe=unused.any,
            look_up=unused.any,
            coordinating=unused,
        )
        self.driver.attach(performers.table, self.logs.sync_saves)
        self._offset = 0
        self.longest_hold_ms = 0.0
        self.step(Registered(0, "c", NODES[0].node_epoch, 1))

    def flush(self, tp: TopicPartition) -> None:
        """Note a commit; `commit_all` completes it."""
        self.flushed.append(tp)

    def commit_all(self) -> None:
        """Every commit that was asked for completes, in other threads than the loop's."""
        flushed, self.flushed = self.flushed, []
        for tp in flushed:
            token = self.logs.issue_flush(tp)
            worker = threading.Thread(target=token.sync)
            worker.start()
            worker.join()
            self.step(LogFlushed(0, tp, token.leo_at_issue))

    def step(self, event: Event, sync_ms: int = 15) -> None:
        """One event; on a disk of ``sync_ms`` per sync it holds the loop for its processor time and its syncs."""
        before, began = len(self.syncs.on_loop), time.thread_time()
        self.driver.step(event)
        busy_ms = 1_000 * (time.thread_time() - began)
        held_ms = busy_ms + sync_ms * (len(self.syncs.on_loop) - before)
        self.longest_hold_ms = max(self.longest_hold_ms, held_ms)

    def lead(self, leader: NodeId, epoch: int) -> None:
        """Metadata: every partition has this leader in this epoch."""
        self._offset += 1
        images = tuple(
            PartitionImage(
                tp=tp,
                replicas=(ME, OTHER),
                isr=(ME, OTHER),
                leader=leader,
                leader_epoch=LeaderEpoch(epoch),
                partition_epoch=PartitionEpoch(epoch),
                min_isr=1,
            )
            for tp in self.tps
        )
        self._believe(topics=(TopicImage(name="t", topic_id=TOPIC_ID, partitions=images),), nodes=NODES)

    def delete_topic(self) -> None:
        """Metadata: the topic is gone."""
        self._offset += 1
        self._believe(deleted_topic_ids=(TOPIC_ID,))

    def _believe(self, **content: Any) -> None:
        image = MetadataImage(
            cluster_id="c",
            controller_epoch=1,
            metadata_offset=self._offset,
            is_snapshot=False,
            rules=Rules(),
            to_node_epoch=NODES[0].node_epoch,
            **{"nodes": (), "topics": (), **content},
        )
        self.step(MetadataArrived(0, image))

    def answer_fetches(self, epoch: int) -> int:
        """One batch of this epoch for every partition that was fetched; returns for how many."""
        fetches, self.peers.fetches = self.peers.fetches, []
        answered = 0
        for fetch in fetches:
            found = tuple(_fetched(part.tp, part.fetch_offset, epoch) for part in fetch.request.partitions)
            answered += len(found)
            self.step(FetchAnswered(0, OTHER, fetch.correlation_id, found))
        return answered

    def close(self) -> None:
        """Give everything back, as a crash does."""
        self.logs.close(clean=False)


def _fetched(tp: TopicPartition, offset: Offset, epoch: int) -> FetchedPartition:
    batch = encode_batch([NewRecord(None, b"v", 1)])
    size = parse_header(batch).size_bytes
    payload = memoryview(stamp_prefix(size, offset, LeaderEpoch(epoch)) + batch[STAMP_BYTES:])
    return FetchedPartition(tp, None, offset, Offset(0), None, (parse_header(payload),), payload)


def _raise(code: object, line: str) -> Any:
    raise AssertionError(f"the process ended with {code}: {line}")


def main() -> None:
    """Print what a change of leader of 1,000 partitions costs the loop: syncs, and ms with 15 ms for each of them."""
    syncs = Syncs()
    vars(os).update(fsync=syncs, fdatasync=syncs)
    with tempfile.TemporaryDirectory() as path:
        node = Node(Path(path), 1_000, syncs)
        node.lead(OTHER, 1)
        for epoch, leader in enumerate((ME, OTHER), 2):
            syncs.taken()
            node.longest_hold_ms = 0.0
            node.lead(leader, epoch)
            role = "leader" if leader == ME else "follower"
            print(f"1,000 partitions become {role}: {len(syncs.taken())} sync, loop held {node.longest_hold_ms:.0f} ms")
        node.close()


if __name__ == "__main__":
    main()
