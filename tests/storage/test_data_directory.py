"""A data directory: its cluster, node and process, and the incarnations it stores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from threading import current_thread
from unittest.mock import Mock

import pytest
from log_builder import fill

from strandline.core.errors import Refused
from strandline.core.types import Durability, NodeId, Offset
from strandline.node.logs import DirectoryLogs
from strandline.storage import layout
from strandline.storage.directory import UNCLEAN_NAME, DataDirectory, DirectoryRefused
from strandline.storage.disk import StorageFailed
from strandline.storage.log import Log, LogSettings

NODE = NodeId(3)


def start(path, **settings) -> DataDirectory:
    """Open the directory as node 3 of cluster c."""
    return DataDirectory.open(path, **{"node_id": NODE, "cluster_id": "c", **settings})


def registered(path, **settings) -> DataDirectory:
    """A directory whose first registration is done, so that the mark of a new directory is gone."""
    directory = start(path, **settings)
    directory.clear_unclean()
    return directory


def filled(path, topic_id="id") -> tuple[DataDirectory, Log]:
    """Such a directory, and its log of five records."""
    directory = registered(path)
    log = directory.open_log("t", 0, topic_id).log
    fill(log, 5, records=1)
    return directory, log


def files_complete(directory: DataDirectory) -> None:
    """Make the files hold everything, as they do from time to time, so that the journal no longer does."""
    directory.settle()
    directory.checkpoints.complete()
    directory.checkpoints.save_metadata(b"")
    directory.settle()


def test_second_process_is_refused(tmp_path) -> None:
    """One process at a time: the error names the path, the holder's pid and the remedy."""
    directory = start(tmp_path)

    with pytest.raises(DirectoryRefused, match=rf"{tmp_path} is used by process {os.getpid()}; stop that one"):
        start(tmp_path)
    directory.close(clean=True)
    start(tmp_path).close(clean=True)


def test_directory_of_another_cluster_is_refused(tmp_path) -> None:
    """A node never joins a cluster with another cluster's records."""
    start(tmp_path).close(clean=True)
    with pytest.raises(Refused, match=r"^INCONSISTENT_CLUSTER_ID: .*belongs to cluster c, not d"):
        start(tmp_path, cluster_id="d")


def test_directory_of_another_node_is_refused(tmp_path) -> None:
    """A directory of another node is rejected, so that two nodes never share one log."""
    start(tmp_path).close(clean=True)

    with pytest.raises(DirectoryRefused, match="belongs to node 3, not 4"):
        start(tmp_path, node_id=NodeId(4))


def test_cluster_may_be_learned_later_and_holds_for_ever(tmp_path) -> None:
    """A node that reaches its controller only after its start binds its directory then."""
    directory = start(tmp_path, cluster_id=None)
    directory.adopt_cluster("c")
    directory.adopt_cluster("c")

    with pytest.raises(Refused):
        directory.adopt_cluster("d")
    directory.close(clean=True)
    assert start(tmp_path, cluster_id=None).identity.cluster_id == "c"


def test_directory_id_is_made_once(tmp_path) -> None:
    """The id survives restarts, and another directory has another."""
    first = start(tmp_path / "a")
    first.close(clean=True)
    again, other = start(tmp_path / "a"), start(tmp_path / "b")

    assert first.identity.directory_id == again.identity.directory_id != other.identity.directory_id


def test_damaged_identity_is_refused(tmp_path) -> None:
    """A directory without readable ownership is not used."""
    start(tmp_path).close(clean=True)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=\n")

    with pytest.raises(DirectoryRefused, match=r"meta\.properties is damaged"):
        start(tmp_path)


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("clean", [True, False])
def test_only_a_crash_under_page_cache_is_unclean(tmp_path, durability, clean) -> None:
    """kill -9 or power loss under fsync alone is not unclean; under page-cache a missing mark is."""
    registered(tmp_path, durability=durability).close(clean=clean)
    directory = start(tmp_path)

    assert directory.stopped_cleanly == clean
    assert directory.is_unclean == (durability is Durability.PAGE_CACHE and not clean)


def test_new_directory_is_unclean_until_registered(tmp_path) -> None:
    """A replaced disk must leave every ISR; the mark stays until the controller has been notified."""
    start(tmp_path).close(clean=True)
    directory = start(tmp_path)
    before = directory.is_unclean
    directory.clear_unclean()
    directory.close(clean=False)

    assert (before, start(tmp_path).is_unclean) == (True, False)


def test_unclean_mark_survives_the_change_of_durability(tmp_path) -> None:
    """A crash under page-cache is not hidden by a start under fsync that crashes before it registered."""
    registered(tmp_path, durability=Durability.PAGE_CACHE).close(clean=False)
    start(tmp_path, durability=Durability.FSYNC).close(clean=False)

    assert start(tmp_path).is_unclean
    assert "page cache" in (tmp_path / UNCLEAN_NAME).read_text()


def test_lost_durable_records_make_the_node_unclean(tmp_path) -> None:
    """A log that ends below its recovery point sets the mark, and lowers the checkpoints after it."""
    directory, log = filled(tmp_path)
    log.note_durable(log.leo)
    directory.save_checkpoints()
    log.close(clean=False)
    directory.close(clean=False)
    path = log.active_segment.path
    os.truncate(path, path.stat().st_size - 1)
    directory = start(tmp_path)
    opened = directory.open_log("t", 0, "id")

    assert opened.recovery.ended_below_durable_point
    assert directory.is_unclean
    assert "t-0 ends at 4" in (tmp_path / UNCLEAN_NAME).read_text()
    assert directory.checkpoints.recovery_points.get(("t", 0)) == 4
    opened.log.close(clean=False)


def test_several_logs_that_lost_records_are_opened_at_a_time(tmp_path) -> None:
    """The threads that open logs after a clean stop set the mark and lower the checkpoints one after the other."""
    directory = registered(tmp_path)
    logs = [directory.open_log("t", number, "id").log for number in range(16)]
    for log in logs:
        fill(log, 5, records=1)
        log.close()
    directory.close(clean=True)
    for log in logs:
        log.active_segment.path.unlink()
    directory = start(tmp_path)
    DirectoryLogs(directory, LogSettings()).open_all(lambda *_: None)

    assert directory.is_unclean
    assert set(directory.checkpoints.recovery_points.offsets.values()) == {0}


@pytest.mark.parametrize("saved", [True, False], ids=["in-the-checkpoints", "not-yet-in-them"])
@pytest.mark.parametrize("damage", ["flipped", "without", "gone"])
def test_a_log_that_cannot_be_found_any_more_makes_the_node_unclean(tmp_path, damage, saved) -> None:
    """The log would start empty, so the node must register as one that may have lost records (M58)."""
    directory, log = filled(tmp_path, "T")
    if saved:
        log.note_durable(log.leo)
        directory.save_checkpoints()
    log.close(clean=False)
    files_complete(directory)
    directory.close(clean=False)
    metadata = tmp_path / "t-0" / "partition.metadata"
    if damage == "flipped":
        metadata.write_bytes(metadata.read_bytes().replace(b"topic", b"uopic"))
    elif damage == "without":
        metadata.unlink()
    else:
        shutil.rmtree(tmp_path / "t-0")

    assert start(tmp_path).is_unclean == (saved or damage != "gone")


@pytest.mark.parametrize("lost", ["missing", "empty"])
def test_a_log_whose_topic_id_only_the_journal_has_is_found(tmp_path, lost) -> None:
    """The file is written without a sync, so a loss of power may take it; the journal writes it again, durably."""
    directory = registered(tmp_path)
    log = directory.open_log("t", 0, "T").log
    directory.settle()
    fill(log, 5, records=1)
    log.close(clean=False)
    directory.close(clean=False)
    metadata = tmp_path / "t-0" / "partition.metadata"
    metadata.unlink()
    if lost == "empty":
        metadata.touch()
    again = start(tmp_path)
    opened = again.open_log("t", 0, "T")

    assert (again.is_unclean, opened.set_aside, opened.log.leo) == (False, None, 5)
    assert metadata.read_text() == "version: 0\ntopic_id: T\n"
    opened.log.close(clean=False)


def test_a_log_that_was_deleted_or_set_aside_is_not_missed(tmp_path) -> None:
    """Logs that were deleted on purpose do not make the node unclean."""
    directory = registered(tmp_path)
    for topic in ("deleted", "aside"):
        log = directory.open_log(topic, 0, "T").log
        fill(log, 5, records=1)
        log.note_durable(log.leo)
        directory.checkpoints.high_watermarks.put(log.name, log.leo)
    directory.save_checkpoints()
    directory.delete_log(directory.open_log("deleted", 0, "T").log)
    directory.open_log("aside", 0, "U").log.close()
    directory.close(clean=False)

    assert not start(tmp_path).is_unclean


def test_a_directory_keeps_nothing_of_a_log_that_is_gone(tmp_path, monkeypatch) -> None:
    """However many are created and deleted, or moved away; to free their blocks is slow, so a thread removes them."""
    directory = registered(tmp_path)
    threads = []
    monkeypatch.setattr(layout, "remove_tree", lambda path: threads.append((path.name, current_thread().name)))
    directory.delete_log(directory.open_log("deleted", 0, "T").log)
    directory.set_log_aside(directory.open_log("moved", 0, "U").log, "U")
    directory.settle()

    layout._removals().join()
    assert (directory._opened, threads) == (set(), [("deleted-0.0.deleted", "removals")])


def test_damage_met_in_service_is_repaired_at_the_next_start(tmp_path) -> None:
    """With the mark set, the whole log is read and truncated before the damage, even below the recovery point."""
    directory, log = filled(tmp_path)
    log.note_durable(log.leo)
    with open(log.active_segment.path, "r+b") as file:
        file.seek(log.active_segment.size_bytes // 2)
        file.write(b"XX")
    directory.mark_unclean("t-0 is damaged")
    log.close(clean=False)
    directory.save_checkpoints()
    directory.close(clean=False)
    again = start(tmp_path).open_log("t", 0, "id")

    assert again.log.leo == 2
    assert again.recovery.lost_durable_records
    again.log.close(clean=False)


def test_clean_stop_is_trusted_once(tmp_path) -> None:
    """After a clean stop nothing is checked; the mark is removed as soon as the next run begins."""
    directory, log = filled(tmp_path)
    log.close()
    directory.close(clean=True)
    directory = start(tmp_path)
    opened = directory.open_log("t", 0, "id")
    opened.log.close(clean=False)
    directory.close(clean=False)

    assert opened.recovery.was_clean
    assert not start(tmp_path).stopped_cleanly


def test_log_of_another_topic_id_is_set_aside(tmp_path) -> None:
    """A topic deleted and created again starts with an empty log; the old one is kept, never served (M63)."""
    directory, old = filled(tmp_path, "old-id")
    old.advance_log_start(Offset(2))
    old.note_durable(old.leo)
    directory.save_checkpoints()
    old.close(clean=False)
    opened = directory.open_log("t", 0, "new-id")

    assert (opened.log.log_start_offset, opened.log.leo) == (0, 0)
    assert opened.set_aside == tmp_path / "t-0.old-id.stray"
    assert (opened.set_aside / f"{0:020}.log").stat().st_size > 0
    assert not opened.recovery.lost_durable_records
    assert directory.log_names() == [("t", 0)]
    opened.log.close(clean=False)


def test_log_without_a_topic_id_is_not_believed(tmp_path) -> None:
    """Records of an unknown topic are set aside too."""
    directory, log = filled(tmp_path)
    log.close(clean=False)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    opened = directory.open_log("t", 0, "id")

    assert opened.set_aside == tmp_path / "t-0.unknown.stray"
    opened.log.close(clean=False)


def test_empty_log_without_a_topic_id_is_taken(tmp_path) -> None:
    """A process that crashed while it created a log leaves nothing to set aside; the id is written once."""
    directory = registered(tmp_path)
    directory.open_log("t", 0, "id").log.close(clean=False)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    opened = directory.open_log("t", 0, "id")
    written = (tmp_path / "t-0" / "partition.metadata").stat().st_ino
    opened.log.close(clean=False)
    again = directory.open_log("t", 0, "id")
    again.log.close(clean=False)

    assert (opened.set_aside, again.set_aside) == (None, None)
    assert (tmp_path / "t-0" / "partition.metadata").stat().st_ino == written


def test_longest_topic_name_can_be_opened_set_aside_and_deleted(tmp_path) -> None:
    """249 characters fit, with every suffix that a name may get."""
    topic = "x" * 249
    directory = registered(tmp_path)
    old = directory.open_log(topic, 0, "0" * 36).log
    fill(old, 5, records=1)
    old.close(clean=False)
    opened = directory.open_log(topic, 0, "1" * 36)
    directory.delete_log(opened.log)
    directory.settle()

    assert opened.set_aside.name.endswith(f".{'0' * 36}.stray")
    assert directory.log_names() == []


@pytest.mark.parametrize("topic", ["../../x", "", ".", "..", "a/b", "x" * 250, "ä", "a b"])
def test_topic_names_cannot_leave_the_directory(tmp_path, topic) -> None:
    """A string that is not a topic name never becomes a path."""
    directory = registered(tmp_path / "data")
    with pytest.raises(Refused, match=r"^INVALID_TOPIC_EXCEPTION"):
        directory.open_log(topic, 0, "id")

    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_half_deleted_logs_are_removed_at_start(tmp_path) -> None:
    """A crash during deletion leaves nothing behind permanently."""
    start(tmp_path).close(clean=True)
    (tmp_path / "t-0.deleted").mkdir()
    (tmp_path / "t-0.deleted" / f"{0:020}.log").write_bytes(b"x")
    start(tmp_path)
    layout._removals().join()

    assert not (tmp_path / "t-0.deleted").exists()


def test_low_space_is_asked_once_a_second(tmp_path, monkeypatch) -> None:
    """Produce checks the free space on every call; the file system is asked once a second, and after a refusal an
    eighth more than the mark must be free."""
    directory = start(tmp_path, low_space_bytes=1_000)
    free = [999, 1_124, 1_125, 1_000]
    asked = []

    def statvfs(path: object) -> os.statvfs_result:
        asked.append(path)
        return os.statvfs_result((1, 1, 9, 9, free[len(asked) - 1], 9, 9, 9, 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)

    low = [directory.space.low_space(now) for now in (0, 500, 999, 1_000, 2_000, 2_500, 3_000)]
    too_little = "999 bytes are free, and 1,000 are needed (low_space_bytes 1,000)"
    still = "1,124 bytes are free, and 1,125 are needed (low_space_bytes 1,000)"

    assert low == [too_little, too_little, too_little, still, None, None, None]
    assert len(asked) == 4


# Which process incarnations a data directory stores (M67).


def test_a_new_directory_names_nobody(tmp_path: Path) -> None:
    """Without a file there is nothing to compare: a new directory, or one of a release that stored none."""
    assert layout.begin(tmp_path, "a") == ()


def test_every_process_since_the_confirmed_one_is_named(tmp_path: Path) -> None:
    """A process that died before the controller answered may be on record there, so it stays in the list."""
    layout.begin(tmp_path, "a")
    layout.confirm(tmp_path, "a")
    layout.begin(tmp_path, "b")

    assert layout.begin(tmp_path, "c") == ("a", "b", "c")


def test_a_confirmed_process_makes_those_before_it_forgotten(tmp_path: Path) -> None:
    """A confirmed incarnation removes those before it, because the controller's record names it or a later one."""
    for name in ("a", "b"):
        layout.begin(tmp_path, name)
    layout.confirm(tmp_path, "b")

    assert layout.begin(tmp_path, "c") == ("b", "c")


def test_the_process_is_on_the_disk_before_it_may_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write ends the start: a controller must not learn of a process that its directory does not list."""
    fails = Mock(side_effect=StorageFailed("write", tmp_path, OSError(28, "No space left on device")))
    monkeypatch.setattr(layout, "replace_file", fails)
    with pytest.raises(StorageFailed):
        layout.begin(tmp_path, "a")


@pytest.mark.parametrize("damage", ["cut", "garbled", "emptied"])
def test_a_damaged_list_remembers_nobody_else(tmp_path: Path, damage: str) -> None:
    """A shorter list must not pass for the whole one: with the new process alone the directory is unclean."""
    for name in ("a", "b"):
        layout.begin(tmp_path, name)
    file = tmp_path / layout.NAME
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-3], "garbled": b"\xff" + content, "emptied": b""}[damage])

    assert layout.begin(tmp_path, "c") == ("c",)


def test_the_confirmed_process_stays_however_many_follow(tmp_path: Path) -> None:
    """A node that restarts again and again without its controller keeps a bounded list with its anchor."""
    layout.begin(tmp_path, "confirmed")
    layout.confirm(tmp_path, "confirmed")
    for number in range(1_100):
        named = layout.begin(tmp_path, str(number))

    assert (named[0], named[-1]) == ("confirmed", "1099")
    assert len(named) == 1_000


def test_an_older_copy_of_a_directory_does_not_name_the_last_process(tmp_path: Path) -> None:
    """M67's purpose: the copy was taken before the process that the controller's record names."""
    layout.begin(tmp_path, "a")
    layout.confirm(tmp_path, "a")
    copy = (tmp_path / layout.NAME).read_bytes()
    layout.begin(tmp_path, "recorded")
    (tmp_path / layout.NAME).write_bytes(copy)

    assert "recorded" not in layout.begin(tmp_path, "c")


def test_a_damaged_list_of_reconciled_epochs_is_a_loss(tmp_path: Path) -> None:
    """M66: it was durable, and without it the log could win an election that it must lose."""
    directory = DataDirectory.open(tmp_path, node_id=NodeId(3), cluster_id="c")
    directory.clear_unclean()
    directory.checkpoints.reconciled_epochs.put(("t", 0), Offset(4))
    directory.checkpoints.reconciled_epochs.save()
    directory.close(clean=True)
    file = directory.checkpoints.reconciled_epochs.path
    file.write_bytes(file.read_bytes()[:-2])
    again = DataDirectory.open(tmp_path, node_id=NodeId(3), cluster_id="c")

    assert again.is_unclean
    assert "reconciled-epoch-checkpoint is damaged" in (tmp_path / UNCLEAN_NAME).read_text()
    again.close(clean=True)
