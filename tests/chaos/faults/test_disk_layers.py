"""What a loss of power leaves of a file's bytes."""

from __future__ import annotations

import random
from pathlib import Path

from faults.disk_layers import PAGE_BYTES, StoredFile
from faults.disk_tree import Tree
from hypothesis import given
from hypothesis import strategies as st


def _content(file: StoredFile) -> bytes:
    return file.read(1 << 20, 0)


def _synced(file: StoredFile) -> None:
    file.finish_sync(file.issue_sync())


def test_unsynced_bytes_are_dropped_and_counted(tmp_path: Path) -> None:
    """Bytes written after the last sync are gone, and their number is reported."""
    file = StoredFile(tmp_path, 0o644)
    file.write(b"kept", 0)
    _synced(file)
    file.write(b"lost!", 4)

    assert file.undo() == 5
    assert _content(file) == b"kept"


def test_bytes_written_during_a_sync_are_not_covered_by_it(tmp_path: Path) -> None:
    """A sync covers what was written before it was issued."""
    file = StoredFile(tmp_path, 0o644)
    file.write(b"before", 0)
    issued = file.issue_sync()
    file.write(b"AFTER!", 0)
    file.finish_sync(issued)

    assert file.undo() == 6
    assert _content(file) == b"before"


def test_an_overwritten_and_a_cut_page_come_back(tmp_path: Path) -> None:
    """Bytes that were durable and then overwritten or truncated without a sync are there again."""
    file = StoredFile(tmp_path, 0o644)
    durable = bytes(range(256)) * 64
    file.write(durable, 0)
    _synced(file)
    file.write(b"#" * 5000, 3000)
    file.truncate(10)
    file.write(b"tail", 10)
    file.undo()

    assert _content(file) == durable


def test_after_a_failed_sync_a_second_one_saves_nothing(tmp_path: Path) -> None:
    """The second fsync returns, the bytes are readable, and they are gone when the power goes (ATC 2020)."""
    file = StoredFile(tmp_path, 0o644)
    file.write(b"x" * PAGE_BYTES, 0)
    _synced(file)
    file.write(b"y" * PAGE_BYTES, PAGE_BYTES)
    file.fail_sync(file.issue_sync())
    file.write(b"z" * PAGE_BYTES, 2 * PAGE_BYTES)
    _synced(file)
    readable = _content(file)
    file.undo()

    assert readable == b"x" * PAGE_BYTES + b"y" * PAGE_BYTES + b"z" * PAGE_BYTES
    assert _content(file) == b"x" * PAGE_BYTES + b"\0" * PAGE_BYTES + b"z" * PAGE_BYTES


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "cut", "sync"]), st.integers(0, 20_000), st.integers(1, 6_000)),
        max_size=20,
    )
)
def test_power_loss_restores_the_file_of_the_last_sync(steps: list[tuple[str, int, int]]) -> None:
    """For any writes, truncations and syncs, the loss of power leaves the bytes of the last sync."""
    file = StoredFile(Path("/tmp"), 0o644)
    durable = b""
    for number, (what, at, length) in enumerate(steps):
        if what == "write":
            file.write(bytes([number + 1]) * length, at)
        elif what == "cut":
            file.truncate(at)
        else:
            _synced(file)
            durable = _content(file)
    file.undo()

    assert _content(file) == durable


def test_a_torn_loss_keeps_whole_pages_of_old_or_new_content(tmp_path: Path) -> None:
    """With a draw a part of the unsynced pages survives, and nothing that was never written appears."""
    seen = set()
    for seed in range(40):
        file = StoredFile(tmp_path, 0o644)
        file.write(b"o" * 4 * PAGE_BYTES, 0)
        _synced(file)
        file.write(b"n" * 4 * PAGE_BYTES, 0)
        file.undo(random.Random(seed))
        pages = [_content(file)[at : at + PAGE_BYTES] for at in range(0, 4 * PAGE_BYTES, PAGE_BYTES)]
        seen.add("".join(chr(page[0]) for page in pages))

        assert all(len(set(page)) == 1 for page in pages)

    assert len(seen) > 5
    assert all(set(word) <= {"o", "n"} for word in seen)


def test_a_name_without_a_sync_of_its_folder_is_gone(tmp_path: Path) -> None:
    """Syncing a file does not make its name durable; syncing the folder does."""
    tree = Tree(tmp_path)
    kept, lost = tree.create("/kept", 0o644), tree.create("/also-kept", 0o644)
    tree.root.finish_sync(tree.root.issue_sync())
    lost = tree.create("/lost", 0o644)
    for file in (kept, lost):
        file.write(b"synced", 0)
        _synced(file)
    dropped = tree.lose_power()

    assert sorted(tree.root.entries) == ["also-kept", "kept"]
    assert dropped.names == 1
    assert _content(kept) == b"synced"


def test_a_rename_and_a_removal_without_a_sync_are_taken_back(tmp_path: Path) -> None:
    """The old file is there again under its name, with its old bytes, and so is the removed one."""
    tree = Tree(tmp_path)
    old, removed = tree.create("/checkpoint", 0o644), tree.create("/removed", 0o644)
    for file in (old, removed):
        file.write(b"old", 0)
        _synced(file)
    tree.root.finish_sync(tree.root.issue_sync())
    tree.create("/checkpoint.tmp", 0o644).write(b"new", 0)
    tree.rename("/checkpoint.tmp", "/checkpoint")
    tree.remove("/removed")
    tree.lose_power()

    assert tree.root.entries == {"checkpoint": old, "removed": removed}
    assert _content(old) == b"old"
