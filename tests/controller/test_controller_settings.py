"""A controller's settings and places: its directory, migration, recovery, and how far its store had come."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from running_controller import node_directory

from strandline.controller.__main__ import _COMMANDS, main
from strandline.controller.process import DirectoryLock
from strandline.controller.settings import ControllerSettings
from strandline.controller.store_health import FILE_NAME, SeenPosition
from strandline.controller.tools.migrate import migrate
from strandline.controller.tools.recover import main as main_recover, read_node_directory
from strandline.core.control.recovery import METADATA_OFFSET_MARGIN
from strandline.core.control.state import SKIP
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.reigns.events import Head
from strandline.core.types import (
    Durability,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    Rules,
    TopicPartition,
    Truncation,
)
from strandline.metadata.sqlite import SqliteStore
from strandline.metadata.store import Mark, Marked, StoreDamaged, StoreFailed, StoreInUse, StoreMarked, StoreWentBack
from strandline.rpc.convert.subscription import ImageWriter
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.settings import Origin, SettingsWrong, load_settings
from strandline.storage.directory import DataDirectory
from strandline.storage.journal import JOURNAL_NAMES

BASE: dict[str, object] = {"data_dir": "/tmp/c"}


def test_defaults_are_kafkas(tmp_path: Path) -> None:
    """Session 9 s, heartbeat 2 s, automatic preferred leaders every 30 s, as in Kafka."""
    timings = ControllerSettings(data_dir=tmp_path).timings()

    assert (timings.session_timeout_ms, timings.heartbeat_interval_ms) == (9_000, 2_000)
    assert (timings.auto_leader_rebalance, timings.leader_imbalance_check_interval_ms) == (True, 30_000)


def test_flag_beats_variable_beats_file(tmp_path: Path) -> None:
    """A flag wins over a variable, a variable over the file, and every value carries its origin."""
    file = tmp_path / "controller.yaml"
    file.write_text("session-timeout-ms: 3000\nheartbeat-interval-ms: 300\nbind: 127.0.0.1:1\n")

    loaded = load_settings(
        ControllerSettings,
        flags={**BASE, "bind": "127.0.0.1:3"},
        variables={"STRANDLINE_BIND": "127.0.0.1:2", "STRANDLINE_HEARTBEAT_INTERVAL_MS": "200"},
        file=file,
    )

    found = loaded.settings
    shown = [loaded.origins[name] for name in ("bind", "heartbeat_interval_ms", "session_timeout_ms", "tick_ms")]
    assert (found.bind, found.heartbeat_interval_ms, found.session_timeout_ms) == ("127.0.0.1:3", 200, 3_000)
    assert shown == [Origin.FLAG, Origin.VARIABLE, Origin.FILE, Origin.DEFAULT]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"heartbeat_interval_ms": 9_000}, "heartbeat_interval_ms"),
        ({"bind": "nowhere"}, "bind"),
        ({"durability": "perhaps"}, "durability"),
        ({"session_timeout_ms": "soon"}, "session_timeout_ms"),
        ({"sesion_timeout_ms": 9_000}, "sesion_timeout_ms"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object], named: str) -> None:
    """A setting that cannot be used stops the start with one message that names it."""
    with pytest.raises(SettingsWrong, match=named):
        load_settings(ControllerSettings, flags={**BASE, **wrong}, variables={})


def test_each_member_of_etcd_is_named_once() -> None:
    """Members that differ are taken as they are; a member that is named twice is refused by its address."""
    etcd = {**BASE, "store": "etcd"}
    members = "127.0.0.1:2379,127.0.0.1:2380"
    loaded = load_settings(ControllerSettings, flags={**etcd, "etcd_endpoints": members}, variables={})

    assert [member.port for member in loaded.settings.members()] == [2379, 2380]
    with pytest.raises(SettingsWrong, match=r"etcd_endpoints names 127\.0\.0\.1:2379 twice"):
        load_settings(ControllerSettings, flags={**etcd, "etcd_endpoints": f"{members},127.0.0.1:2379"}, variables={})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bakup"], "no command is named 'bakup'; did you mean 'backup'? There are: backup, restore, recover, "),
        (["frobnicate"], "no command is named 'frobnicate'; There are: backup, restore, recover, migrate, hand-over"),
    ],
)
def test_a_misspelled_command_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator who has lost a store gets the nearest command, and not the list of all settings."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a line that says what it does."""
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out.partition("commands instead of settings:")[2].split("\n")

    assert [line.split()[0] for line in listed if line.strip()] == list(_COMMANDS)
    assert all(len(line.split()) > 3 for line in listed if line.strip())


def test_every_setting_is_described() -> None:
    """`strandline settings` and --help have a sentence for each."""
    assert all(field.description for field in ControllerSettings.model_fields.values())


def test_given_rules_are_merged_with_defaults_once(tmp_path: Path) -> None:
    """At the first start a setting that is not given has its default; later it keeps its stored value."""
    given = ControllerSettings(data_dir=tmp_path, truncation=Truncation.FETCH)
    stored = Rules(truncation=Truncation.FETCH, durability=Durability.PAGE_CACHE)

    assert given.rules(None) == Rules(truncation=Truncation.FETCH)
    assert given.rules(stored) == stored
    with pytest.raises(ValueError, match="truncation"):
        given.rules(Rules())


@pytest.mark.parametrize("truncation", [Truncation.KIP_279, Truncation.KIP_101, Truncation.HIGH_WATERMARK])
def test_no_server_takes_a_historic_rule(tmp_path: Path, truncation: Truncation) -> None:
    """A rule that Kafka abandoned is rejected, with the values that servers accept."""
    with pytest.raises(ValueError, match="servers run leader-epoch or fetch"):
        ControllerSettings(data_dir=tmp_path, truncation=truncation)


# One process for each data directory of a controller whose store is elsewhere.


def test_a_directory_is_one_controllers_until_it_lets_go(tmp_path: Path) -> None:
    """A second one is refused by the directory's name; after the release it may have it."""
    first = DirectoryLock(tmp_path)
    with pytest.raises(StoreInUse, match=f"data_dir {tmp_path} is in use"):
        DirectoryLock(tmp_path)
    first.release()

    DirectoryLock(tmp_path).release()


# When a migration gives the source up, between places that keep a state in memory.


def _state(*topics: str, reigns: tuple[str, ...] = ("r", "s"), cluster: str = "c", offset: int = 9) -> Any:
    return SimpleNamespace(
        topics=dict.fromkeys(topics, "topic"),
        reigns=dict.fromkeys(reigns, "reign"),
        header=SimpleNamespace(cluster_id=cluster, metadata_offset=offset),
    )


class Kept:
    """A place that reads back what it is made to."""

    def __init__(self, name: str, state: Any = None, *, reads: Any = None) -> None:
        self.name = name
        self.mark: Mark | None = None
        self.state = state
        self._reads = reads

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def read(self) -> Any:
        return self.state

    async def set_mark(self, mark: Mark | None) -> None:
        self.mark = mark

    async def write(self, state: Any) -> None:
        self.state = state if self._reads is None else self._reads


@pytest.mark.parametrize(
    "read",
    [_state("a"), _state("b", "a"), _state("a", "b", reigns=("s", "r"))],
    ids=["a topic is missing", "topics in another order", "reigns in another order"],
)
async def test_a_target_that_reads_back_something_else_does_not_become_the_store(read: Any) -> None:
    """The source stays the one that serves, and the target keeps the mark of a store that is half migrated."""
    source, target = Kept("here", _state("a", "b")), Kept("there", reads=read)
    with pytest.raises(StoreDamaged, match="here is still the store"):
        await migrate(source, target)

    assert source.mark is None
    assert target.mark is not None and target.mark.marked is Marked.PENDING


async def test_the_source_is_left_for_the_target_that_has_everything() -> None:
    """What was read back is equal, so the source says where it went and the target serves."""
    source, target = Kept("here", _state("a", "b")), Kept("there")
    await migrate(source, target)

    assert source.mark is not None and (source.mark.marked, source.mark.elsewhere) == (Marked.MOVED, "there")
    assert target.mark is None
    assert target.state == source.state


# `strandline controller recover`: the remedy when the store is lost or too old (TR18).


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
    return main_recover(["--data-dir", str(tmp_path / "controller"), *map(str, node_dirs)])


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
    directory.checkpoints.save_metadata(ImageWriter().to_bytes(seen))
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
    directory.checkpoints.save_metadata(ImageWriter().to_bytes(image(10, 13, 26)))
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


# The file in which a controller keeps how far its store had come (C40).


HEAD = Head("reign", 7, "digest", 9)


def test_what_was_noted_is_known_to_the_next_process(tmp_path: Path) -> None:
    """An etcd that has less than what was noted is one that was restored."""
    SeenPosition(tmp_path).note(5, 9, HEAD)
    later = SeenPosition(tmp_path)

    assert later.revision_of(5) == 9
    later.check("c", 5, 9, HEAD)
    with pytest.raises(StoreWentBack, match="etcd is at revision 8"):
        later.check("c", 5, 8, HEAD)


def test_what_was_noted_is_never_taken_back(tmp_path: Path) -> None:
    """A reading that lagged, of a member that was behind, lowers neither the revision nor the offset; of another etcd
    only the offset is compared, for its revisions are its own."""
    seen = SeenPosition(tmp_path)
    seen.note(5, 9, HEAD)
    seen.note(5, 8, Head("reign", 6, "digest", 8))
    lagged = (seen.revision_of(5), SeenPosition(tmp_path).position.offset)
    seen.note(6, 2, Head("reign", 6, "digest", 2))

    assert lagged == (9, 7)
    assert (SeenPosition(tmp_path).revision_of(6), SeenPosition(tmp_path).position.offset) == (2, 7)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a failed store, which ends the controller with exit code 10, and not an unknown error."""
    seen = SeenPosition(tmp_path)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFailed, match=f"{FILE_NAME} cannot be written: No space left on device; look at the disk"):
        seen.note(5, 9, HEAD)
    monkeypatch.undo()

    assert SeenPosition(tmp_path).revision_of(5) == 0


def test_the_replaced_file_is_in_its_directory_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is durable like the content: the directory is synced after the file took its place."""
    done: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        done.append("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")
        real_fsync(fd)

    def replace(self: Path, target: Path) -> Path:
        done.append("rename")
        return real_replace(self, target)

    seen = SeenPosition(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    seen.note(5, 9, HEAD)

    assert done == ["file", "rename", "directory"]


@pytest.mark.parametrize(
    ("elsewhere", "found"),
    [("there", _state("a", cluster="d")), ("there", _state("a", offset=8)), ("there", None), ("past", _state("a"))],
    ids=["of another cluster", "older than the source", "empty", "moved to another place"],
)
async def test_a_source_that_moved_is_done_only_where_the_target_has_it_all(elsewhere: str, found: Any) -> None:
    """A migration that is repeated stops at a source that is marked as moved, unless this target has all of it."""
    source, target = Kept("here", _state("a")), Kept("there", found)
    source.mark = Mark(Marked.MOVED, "m", elsewhere)
    with pytest.raises(StoreMarked):
        await migrate(source, target)

    assert target.state is found


async def test_a_migration_that_is_repeated_at_its_end_changes_nothing() -> None:
    """The target has served since, and is ahead of the source."""
    ahead = _state("a", "b", offset=10)
    source, target = Kept("here", _state("a")), Kept("there", ahead)
    source.mark = Mark(Marked.MOVED, "m", "there")
    await migrate(source, target)

    assert target.state is ahead
