"""Logs of partitions that were moved to other nodes: set aside, never opened again, removed in time (C78)."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from strandline.core.log.effects import SetLogAside
from strandline.core.types import NodeId, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.runtime.performers import WITHOUT_SYNC
from strandline.storage.directory import DataDirectory
from strandline.storage.layout import remove_tree
from strandline.storage.log import LogSettings
from strandline.storage.strays import MOVED_SUFFIX

TP = TopicPartition("id-of-t", 0)
HOUR_MS = 3_600_000


def opened(path: Path) -> DirectoryLogs:
    """The logs of a directory of node 1."""
    return DirectoryLogs(DataDirectory.open(path, node_id=NodeId(1)), LogSettings())


def strays(path: Path) -> list[Path]:
    return sorted(path.glob(f"*{MOVED_SUFFIX}"))


def test_a_partition_that_comes_back_begins_empty(tmp_path: Path) -> None:
    """A log that was set aside is not adopted, in this process or the next, although topic and id are the same."""
    logs = opened(tmp_path)
    logs.directory.clear_unclean()
    logs.open(TP, "t")
    (tmp_path / "t-0" / "left.behind").write_text("x")
    logs.set_aside(TP)
    logs.sync_saves()
    (kept,) = strays(tmp_path)
    logs.open(TP, "t")
    logs.close(clean=True)
    again = opened(tmp_path)
    again.open_all(lambda *_: None)

    assert (kept / "left.behind").exists()
    assert not (tmp_path / "t-0" / "left.behind").exists()
    assert again.directory.log_names() == [("t", 0)]
    assert not again.directory.is_unclean
    again.close(clean=True)


@pytest.mark.parametrize(("age_ms", "is_space_low", "left"), [(0, False, 1), (0, True, 0), (HOUR_MS + 1, False, 0)])
def test_a_stray_is_removed_in_time_or_for_room(tmp_path: Path, age_ms: int, is_space_low: bool, left: int) -> None:
    """A stray is kept for the time that is set, counted over a restart, and not at all while space is low."""
    logs = opened(tmp_path)
    logs.open(TP, "t")
    logs.set_aside(TP)
    logs.close(clean=True)
    (kept,) = strays(tmp_path)
    os.utime(kept, times=(time.time() - age_ms / 1_000,) * 2)
    again = opened(tmp_path)
    again.directory.strays.remove_due(HOUR_MS, is_space_low=is_space_low)
    again.directory.strays.remove_due(HOUR_MS, is_space_low=False)

    assert len(strays(tmp_path)) == left
    again.close(clean=True)


def test_a_crash_before_the_rename_keeps_the_stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that the journal calls moved, and whose folder was not renamed yet, is set aside by the next start."""
    logs = opened(tmp_path)
    logs.directory.clear_unclean()
    logs.open(TP, "t")
    logs.sync_saves()
    (tmp_path / "t-0" / "left.behind").write_text("x")
    logs.set_aside(TP)
    with monkeypatch.context() as patch:
        patch.setattr("strandline.storage.strays.rename_directory", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            logs.sync_saves()
    logs.close(clean=False)
    again = opened(tmp_path)
    (kept,) = strays(tmp_path)

    assert (kept / "left.behind").exists()
    assert again.directory.log_names() == []
    assert not again.directory.is_unclean
    again.directory.strays.remove_due(0, is_space_low=True)
    assert strays(tmp_path) == []
    again.close(clean=True)


def test_a_log_of_another_topic_id_is_not_removed(tmp_path: Path) -> None:
    """What was set aside for another topic id stays until an operator removes it (M63)."""
    (tmp_path / "t-0.other.stray").mkdir()
    logs = opened(tmp_path)
    logs.directory.strays.remove_due(0, is_space_low=True)

    assert (tmp_path / "t-0.other.stray").is_dir()
    logs.close(clean=True)


def test_setting_aside_precedes_the_sync_like_a_deletion() -> None:
    """The effect changes files in the order that it needs by itself, so it waits for no sync of saves."""
    assert SetLogAside in WITHOUT_SYNC


def test_a_stray_that_an_operator_removes_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone already is forgotten, and so is what goes while it is removed here."""
    logs = opened(tmp_path)
    for _ in range(2):
        logs.open(TP, "t")
        logs.set_aside(TP)
        logs.sync_saves()
    remove_tree(strays(tmp_path)[0])
    monkeypatch.setattr("strandline.storage.layout.remove", lambda path: shutil.rmtree(path.parent))
    logs.directory.strays.remove_due(HOUR_MS, is_space_low=True)
    logs.close(clean=True)

    assert logs.directory.strays._waiting == []
