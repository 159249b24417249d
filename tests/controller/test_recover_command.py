"""`strandline controller recover`: the remedy when the store is lost or too old (TR18)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from running_controller import node_directory

from strandline.controller.recover import main, read_node_directory
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.store_recovery import METADATA_OFFSET_MARGIN
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.metadata.sqlite import SqliteStore
from strandline.runtime.exit_codes import ExitCode

TP = TopicPartition("11111111-0000-4000-8000-000000000000", 0)
NODES = (NodeId(1), NodeId(2))


def image(leader_epoch: int, partition_epoch: int, offset: int, cluster_id: str = "c") -> MetadataImage:
    """The metadata a node received at an offset."""
    partition = PartitionImage(
        tp=TP,
        replicas=NODES,
        isr=NODES,
        leader=NODES[0],
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=PartitionEpoch(partition_epoch),
        min_isr=1,
    )
    return MetadataImage(
        cluster_id=cluster_id,
        controller_epoch=3,
        metadata_offset=offset,
        is_snapshot=True,
        rules=Rules(),
        nodes=tuple(NodeImage(node_id=n, node_epoch=NodeEpoch(40 + n), fenced=False) for n in NODES),
        topics=(TopicImage(name="t", topic_id=TP.topic_id, partitions=(partition,)),),
    )


def run(tmp_path: Path, *node_dirs: Path) -> ExitCode:
    """The command, on a store in ``controller``."""
    return main(["--data-dir", str(tmp_path / "controller"), *map(str, node_dirs)])


async def test_store_is_rebuilt_from_the_nodes_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Highest partition epoch of all nodes, every epoch one higher, directory ids known, controller epoch beyond."""
    dirs = [node_directory(tmp_path, 1, image(7, 10, 20)), node_directory(tmp_path, 2, image(9, 12, 25))]

    code = await _in_thread(tmp_path, *dirs)
    store = SqliteStore(tmp_path / "controller")
    state = await store.open()
    await store.close()

    assert code is ExitCode.CLEAN
    assert state is not None
    partition = state.partition(TP)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 10, 13)
    assert (state.header.controller_epoch, state.header.metadata_offset) == (4, 25 + METADATA_OFFSET_MARGIN)
    assert [record.directory_id for record in state.nodes.values()] == ["dir-1", "dir-2"]
    assert "1 topics, 1 partitions" in capsys.readouterr().out


async def test_partition_of_an_absent_node_is_named_offline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without node 2's directory the partition waits for an operator, and the command reports it."""
    code = await _in_thread(tmp_path, node_directory(tmp_path, 1, image(7, 10, 20)))

    assert code is ExitCode.CLEAN
    assert "1 partitions have no leader" in capsys.readouterr().out


async def test_nothing_is_changed_when_one_directory_is_unusable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged image, a folder that is not a node's, or another cluster: exit 1, and no store is created."""
    good = node_directory(tmp_path, 1, image(7, 10, 20))
    bad = node_directory(tmp_path, 2, replace(image(7, 10, 20), cluster_id="other"))

    assert await _in_thread(tmp_path, good, bad) is ExitCode.FAILED
    assert await _in_thread(tmp_path, good, tmp_path / "nowhere") is ExitCode.FAILED
    assert "nothing was changed" in capsys.readouterr().out

    store = SqliteStore(tmp_path / "controller")
    assert await store.open() is None
    await store.close()


def test_flipped_bit_in_the_stored_image_is_noticed(tmp_path: Path) -> None:
    """Metadata that is not exactly what was written is not accepted."""
    path = node_directory(tmp_path, 1, image(7, 10, 20))
    content = bytearray((path / "metadata.snapshot").read_bytes())
    content[-1] ^= 1
    (path / "metadata.snapshot").write_bytes(bytes(content))

    with pytest.raises(Refused) as caught:
        read_node_directory(path)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST


async def _in_thread(tmp_path: Path, *node_dirs: Path) -> ExitCode:
    """The command runs its own event loop, so it needs a thread of its own."""
    return await asyncio.to_thread(run, tmp_path, *node_dirs)
