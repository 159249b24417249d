"""`strandline controller recover`: the remedy when the store is lost or too old (TR18)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from running_controller import node_directory

from strandline.controller.tools.recover import main, read_node_directory
from strandline.core.control.recovery import METADATA_OFFSET_MARGIN
from strandline.core.control.state import SKIP
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.metadata.sqlite import SqliteStore
from strandline.rpc.convert.subscription import image_to_bytes
from strandline.runtime.exit_codes import ExitCode
from strandline.storage.directory import DataDirectory
from strandline.storage.journal import JOURNAL_NAMES

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
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 10 + SKIP, 13 + SKIP)
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


def saved_in_the_journal(tmp_path: Path, seen: MetadataImage) -> Path:
    """The directory of a node that was killed before it wrote its newest metadata into the file."""
    path = node_directory(tmp_path, 1, image(7, 10, 20))
    directory = DataDirectory.open(path, node_id=NodeId(1))
    directory.checkpoints.save_metadata(image_to_bytes(seen))
    directory.settle()
    directory.close(clean=False)
    return path


def test_metadata_in_the_journal_is_newer_than_the_file(tmp_path: Path) -> None:
    """The file follows the journal, so a recovery that read it alone would take back what was decided."""
    path = saved_in_the_journal(tmp_path, image(9, 12, 25))

    assert read_node_directory(path).image == image(9, 12, 25)


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_journal_is_noticed(tmp_path: Path, damage: str) -> None:
    """Metadata of the file, or of a frame in front of the damage, may be too old to recover from."""
    path = saved_in_the_journal(tmp_path, image(9, 12, 25))
    directory = DataDirectory.open(path, node_id=NodeId(1))
    directory.checkpoints.save_metadata(image_to_bytes(image(10, 13, 26)))
    directory.settle()
    directory.close(clean=False)
    for name in JOURNAL_NAMES:
        if damage == "missing":
            (path / name).unlink()
        else:
            content = (path / name).read_bytes()
            (path / name).write_bytes(content[:60] + bytes(byte ^ 1 for byte in content[60:61]) + content[61:])

    with pytest.raises(Refused, match=r"checkpoint\.journal"):
        read_node_directory(path)


async def _in_thread(tmp_path: Path, *node_dirs: Path) -> ExitCode:
    """The command runs its own event loop, so it needs a thread of its own."""
    return await asyncio.to_thread(run, tmp_path, *node_dirs)
