"""Several data nodes: acknowledged records are on all, reads are answered once, and what a step costs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_stub import ControllerStub, topic
from many_partitions import ME, OTHER, Node, Syncs
from nodes_in_process import (
    TOPIC,
    TOPIC_ID,
    batch,
    fetch,
    fetch_topic,
    follower_stub,
    leader_stub,
    produce,
    running_nodes,
    values_of,
)

from strandline.core.control.state import ControllerTimings
from strandline.core.errors import ErrorCode, Refused
from strandline.core.log.effects import AdvanceLogStart, Append
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.records.batch import parse_header
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage import layout
from strandline.storage.directory import DataDirectory
from strandline.storage.journal import JOURNAL_NAMES
from strandline.storage.log import Log, LogSettings
from strandline.v1 import follower_service_pb2

TP = TopicPartition(TOPIC_ID, 0)
THREE = (1, 2, 3)


def _controller() -> ControllerStub:
    return ControllerStub(topic(TOPIC, TOPIC_ID, THREE, min_isr=2))


def _leo(node: Any) -> int:
    view = node.driver.core.describe_replica(TP)
    return -1 if view is None else view.leo


async def _until_hw(node: Any, offset: int) -> None:
    async with asyncio.timeout(5):
        while node.driver.core.describe_replica(TP).high_watermark < offset:  # noqa: ASYNC110 - a look from outside
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
async def test_what_is_acknowledged_is_on_every_in_sync_replica(tmp_path: Path, durability: str) -> None:
    """When acks=all returns, all three logs hold the same bytes."""
    async with (
        running_nodes(_controller(), tmp_path, THREE, durability=durability) as nodes,
        leader_stub(nodes[0]) as stub,
    ):
        for index in range(20):
            answer = await stub.Produce(produce(batch(f"v{index}")), timeout=5)
            assert answer.responses[0].partition_responses[0].error_code == 0
        ends = [_leo(node) for node in nodes]
        files = [(tmp_path / f"node-{n}" / f"{TOPIC}-0" / f"{0:020}.log").read_bytes() for n in THREE]

    assert ends == [20, 20, 20]
    assert files[0] == files[1] == files[2]


async def test_a_consumer_reads_from_a_follower_up_to_its_own_hw(tmp_path: Path) -> None:
    """FollowerService serves what the follower knows as committed; its LeaderService rejects with a hint."""
    request = follower_service_pb2.FollowerServiceFetchRequest(topics=[fetch_topic(0)], decode=True, max_wait_ms=5_000)
    async with (
        running_nodes(_controller(), tmp_path, THREE) as nodes,
        leader_stub(nodes[0]) as leader,
        follower_stub(nodes[1]) as follower,
        leader_stub(nodes[1]) as wrong,
    ):
        await leader.Produce(produce(batch("a")), timeout=5)
        await _until_hw(nodes[1], 1)
        answer = await follower.Fetch(request, timeout=10)
        refused = (await wrong.Fetch(fetch(0), timeout=5)).responses[0].partitions[0]
        client = nodes[0].client

    assert values_of(answer) == ["a"]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == 1
    assert refused.current_leader.endpoint.port == client.port


async def test_followers_take_up_fetching_after_their_leaders_restart(tmp_path: Path) -> None:
    """A broken FetchStream is dialled again at the leader's new address, and replication goes on."""
    controller = _controller()
    await controller.start()
    async with running_nodes(controller, tmp_path, (2, 3)):
        async with running_nodes(controller, tmp_path, (1,)) as (first,), leader_stub(first) as stub:
            await stub.Produce(produce(batch("a")), timeout=10)
        async with running_nodes(controller, tmp_path, (1,)) as (again,), leader_stub(again) as stub:
            answer = await stub.Produce(produce(batch("b"), timeout_ms=10_000), timeout=15)
    await controller.stop()

    assert answer.responses[0].partition_responses[0].base_offset == 1


# Two followers at the log end ask the same question one after the other; the disk answers it once.


TP_REPEATED = TopicPartition("11111111-0000-4000-8000-000000000000", 0)
MAX_BYTES = 1 << 20


def append(logs: DirectoryLogs, at: int, value: bytes) -> None:
    """One batch with one record."""
    batch = encode_batch([NewRecord(None, value, 0)])
    logs.append(Append(TP_REPEATED, Offset(at), LeaderEpoch(0), parse_header(batch), memoryview(batch)))


def read(logs: DirectoryLogs, end: int) -> bytes:
    """Everything from offset 0 up to ``end``."""
    payload = logs.read(TP_REPEATED, Offset(0), Offset(end), MAX_BYTES, at_least_one=True).payload
    assert isinstance(payload, bytes)
    return payload


@pytest.fixture
def logs(tmp_path: Path) -> DirectoryLogs:
    """One open, empty log."""
    directory = DataDirectory.open(tmp_path, node_id=NodeId(1))
    found = DirectoryLogs(directory, LogSettings())
    found.open(TP_REPEATED, "t")
    return found


def test_the_same_question_is_read_from_disk_once(logs: DirectoryLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second follower gets the first one's bytes; a third reader's are read and checked again."""
    append(logs, 0, b"m0")
    reads: list[Offset] = []
    real = Log.read

    def counting(self: Log, start: Offset, *given: int, **named: bool) -> object:
        reads.append(start)
        return real(self, start, *given, **named)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Log, "read", counting)
    answers = [read(logs, 1) for _ in range(3)]

    assert len(set(answers)) == 1
    assert len(reads) == 2


def cut(logs: DirectoryLogs) -> None:
    """Truncate everything."""
    logs.truncate(TP_REPEATED, Offset(0), durable=False)


def restart(logs: DirectoryLogs) -> None:
    """Begin again, empty."""
    logs.restart(TP_REPEATED, Offset(0), ())


def delete_and_open(logs: DirectoryLogs) -> None:
    """The partition goes and comes back."""
    logs.delete(TP_REPEATED)
    logs.open(TP_REPEATED, "t")


@pytest.mark.parametrize("change", [cut, restart, delete_and_open])
def test_bytes_from_before_a_change_are_never_given_after_it(
    logs: DirectoryLogs, change: Callable[[DirectoryLogs], None]
) -> None:
    """The same question about other records, appended after a cut, a restart or a deletion, is answered with those."""
    append(logs, 0, b"m0")
    before = read(logs, 1)
    change(logs)
    append(logs, 0, b"n0")

    assert b"m0" in before
    assert b"n0" in read(logs, 1)


def test_deleted_records_are_not_given(logs: DirectoryLogs) -> None:
    """What lies below a log start that moved up is refused, although it was just read."""
    append(logs, 0, b"m0")
    read(logs, 1)
    logs.advance_log_start(AdvanceLogStart(TP_REPEATED, Offset(1)))

    with pytest.raises(Refused, match="outside 1"):
        read(logs, 1)


# What a step costs the event loop in syncs, however many partitions it changes (ADR 19).


PARTITIONS = 1_000
FRAME = [JOURNAL_NAMES[0]]
"""One sync, of the journal."""


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """Counts the syncs of the process instead of doing them."""
    counted = Syncs()
    monkeypatch.setattr(os, "fsync", counted)
    monkeypatch.setattr(os, "fdatasync", counted)
    return counted


@pytest.fixture
def node(tmp_path: Path, syncs: Syncs) -> Iterator[Node]:
    """A node that follows in every partition since epoch 1."""
    node = Node(tmp_path, PARTITIONS, syncs)
    node.lead(OTHER, 1)
    yield node
    node.close()


def test_a_change_of_leader_costs_one_sync(node: Node, syncs: Syncs) -> None:
    """Epochs, HWs, reconciled epochs and metadata of 1,000 partitions are one frame, for every new leader."""
    syncs.taken()
    node.lead(ME, 2)
    to_lead = syncs.taken()
    node.lead(OTHER, 3)

    assert len(node.core.state.followers) == PARTITIONS
    assert (to_lead, syncs.taken()) == (FRAME, FRAME)


def test_the_first_records_of_an_epoch_cost_one_sync(node: Node, syncs: Syncs) -> None:
    """A follower saves the new epoch of every partition before it appends to any."""
    syncs.taken()
    answered = node.answer_fetches(1)

    assert answered == PARTITIONS
    assert syncs.taken() == FRAME


def test_new_and_deleted_logs_cost_one_sync_of_the_directory_more(tmp_path: Path, syncs: Syncs) -> None:
    """The folders of all logs that a step makes or removes are entries of one directory."""
    node = Node(tmp_path, PARTITIONS, syncs)
    syncs.taken()
    node.lead(ME, 1)
    made = syncs.taken()
    node.delete_topic()
    deleted = syncs.taken()

    layout._removals().join()

    assert made == deleted == [*FRAME, tmp_path.name]
    assert not list(tmp_path.glob("t-*"))
    node.close()


def test_a_slow_disk_does_not_hold_the_loop_for_a_heartbeat(tmp_path: Path, syncs: Syncs) -> None:
    """With 15 ms per sync no step of a change of leader in 1,000 partitions lasts as long as a heartbeat interval.

    The journal is so short that the checkpoint files are rewritten meanwhile, in a thread.
    """
    node = Node(tmp_path, PARTITIONS, syncs, journal_bytes=100_000)
    node.lead(OTHER, 1)
    for epoch in range(2, 10):
        node.answer_fetches(epoch - 1)
        node.commit_all()
        node.lead((ME, OTHER)[epoch % 2], epoch)

    assert "leader-epoch-checkpoint.completing.tmp" in syncs.elsewhere
    assert node.longest_hold_ms < ControllerTimings().heartbeat_interval_ms
    node.close()


def test_a_replayed_change_of_leader_is_whole(tmp_path: Path, syncs: Syncs) -> None:
    """What one frame saved of 1,000 partitions is read again after a crash."""
    node = Node(tmp_path, PARTITIONS, syncs)
    node.lead(OTHER, 1)
    node.lead(ME, 2)
    node.close()
    again = DataDirectory.open(tmp_path, node_id=ME, cluster_id="c")
    checkpoints = again.checkpoints

    assert [checkpoints.epochs_of(("t", at))[-1].epoch for at in range(PARTITIONS)] == [2] * PARTITIONS
    assert set(checkpoints.reconciled_epochs.offsets.values()) == {2}
    assert again.checkpoints.fault is None
    again.close(clean=False)
