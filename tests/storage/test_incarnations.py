"""Which process incarnations a data directory stores (M67)."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.core.types import NodeId, Offset
from strandline.storage import layout
from strandline.storage.directory import UNCLEAN_NAME, DataDirectory
from strandline.storage.disk import StorageFailed


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

    def fail(path: Path, content: bytes) -> None:
        raise StorageFailed("write", path, OSError(28, "No space left on device"))

    monkeypatch.setattr(layout, "replace_file", fail)
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
