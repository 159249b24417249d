"""Which frames of the journal are believed after a crash, and which damage to it is a loss (M58)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from strandline.core.types import NodeId, Offset
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.directory import META_NAME, UNCLEAN_NAME, DataDirectory, DirectoryRefused
from strandline.storage.journal import HEAD_BYTES, JOURNAL_NAMES, Journal, read_file, read_journal

NODE = NodeId(3)


def written(directory: Path, payloads: list[bytes], *, durable: bool = True) -> Journal:
    """A new journal with these frames behind its first, empty one."""
    journal = Journal(directory, read_journal(directory))
    for payload in payloads:
        journal.append(payload, durable=durable)
    return journal


def start(path: Path) -> DataDirectory:
    """Open the directory as node 3 of cluster c."""
    return DataDirectory.open(path, node_id=NODE, cluster_id="c")


def saved(path: Path, *, clean: bool = False) -> DataDirectory:
    """A registered directory in whose journal the reconciled epoch of t-0 is 1, 2 and 3, one frame each; closed."""
    directory = start(path)
    directory.clear_unclean()
    checkpoints = directory.checkpoints
    for epoch in (1, 2, 3):
        checkpoints.reconciled_epochs.put(("t", 0), Offset(epoch))
        checkpoints.save(checkpoints.reconciled_epochs)
        checkpoints.settle()
    directory.close(clean=clean)
    return directory


def test_what_was_appended_is_read_in_order(tmp_path) -> None:
    """Each frame once, also after another start."""
    written(tmp_path, [b"a", b"b"]).close()
    journal = Journal(tmp_path, read_journal(tmp_path))
    journal.append(b"c", durable=True)
    journal.close()

    assert read_journal(tmp_path).payloads == (b"", b"a", b"b", b"c")


def test_a_torn_end_is_dropped_silently_at_every_byte(tmp_path) -> None:
    """A last frame that was not written in full was never reported as saved."""
    written(tmp_path, [b"first", b"second"]).close()
    path = tmp_path / JOURNAL_NAMES[0]
    content = path.read_bytes()
    for size in range(len(content) - HEAD_BYTES - len(b"second"), len(content)):
        path.write_bytes(content[:size])
        found = read_journal(tmp_path)

        assert (found.payloads, found.fault) == ((b"", b"first"), None)


def test_damage_in_front_of_the_last_frame_is_a_loss_at_every_byte(tmp_path) -> None:
    """A later frame says that the damaged one was durable; what is in front of it still counts."""
    written(tmp_path, [b"first", b"second", b"third"]).close()
    path = tmp_path / JOURNAL_NAMES[0]
    content = path.read_bytes()
    ends = [frame.end for frame in read_file(content).frames]
    for at in range(ends[-2]):
        changed = bytearray(content)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        found = read_journal(tmp_path)
        sound = sum(at >= end for end in ends)

        assert found.payloads == (b"", b"first", b"second")[:sound]
        assert found.fault is not None and f"frames {sound + 1} to 3 were durable" in found.fault


def test_frames_that_were_never_synced_are_no_loss(tmp_path) -> None:
    """A loss of power may keep the later one of two pages; no sync said that the earlier one was durable."""
    written(tmp_path, [b"first", b"second", b"third"], durable=False).close()
    path = tmp_path / JOURNAL_NAMES[0]
    content = bytearray(path.read_bytes())
    content[2 * HEAD_BYTES] ^= 1
    path.write_bytes(content)
    found = read_journal(tmp_path)

    assert (found.payloads, found.fault) == ((b"",), None)


def test_a_torn_end_is_overwritten(tmp_path) -> None:
    """The next process goes on behind the last whole frame, and nothing of the torn one is left."""
    written(tmp_path, [b"first", b"x" * 500]).close()
    path = tmp_path / JOURNAL_NAMES[0]
    path.write_bytes(path.read_bytes()[:-1])
    written(tmp_path, [b"second"]).close()

    assert read_journal(tmp_path).payloads == (b"", b"first", b"second")


def test_a_loss_of_power_takes_no_frame_of_the_file_that_was_left(power, tmp_path) -> None:
    """A file is synced before the other one is written, so none of its frames is missing in front of a durable one."""
    node = tmp_path / "node"
    node.mkdir()
    journal = Journal(node, read_journal(node), limit_bytes=100)
    journal.append(b"a" * 100, durable=False)
    journal.append(b"b", durable=True)
    journal.append(b"c", durable=True)
    power.restore(node, tmp_path / "after")
    found = read_journal(tmp_path / "after")
    journal.close()

    assert journal._active == 1
    assert (found.payloads, found.fault) == ((b"", b"a" * 100, b"b", b"c"), None)


def test_a_declared_size_is_never_allocated(tmp_path) -> None:
    """A frame that says it has 4 GiB ends the reading."""
    written(tmp_path, [b"first"]).close()
    content = bytearray((tmp_path / JOURNAL_NAMES[0]).read_bytes())
    struct.pack_into(">I", content, HEAD_BYTES + 4, 0xFFFF_FFFF)
    found = read_file(bytes(content))

    assert [frame.payload for frame in found.frames] == [b""]


@pytest.mark.parametrize("gone", JOURNAL_NAMES)
def test_a_missing_file_makes_the_node_unclean(tmp_path, gone) -> None:
    """A directory of this version has both files, so one that is missing was lost."""
    saved(tmp_path)
    (tmp_path / gone).unlink()
    again = start(tmp_path)

    assert again.is_unclean
    assert "missing" in (tmp_path / UNCLEAN_NAME).read_text()
    again.close(clean=False)


def test_damage_makes_the_node_unclean_once(tmp_path) -> None:
    """What is in front of the damage counts, and the journal that begins again is sound."""
    saved(tmp_path)
    path = tmp_path / JOURNAL_NAMES[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2 + 10] ^= 1
    path.write_bytes(content)
    again = start(tmp_path)
    unclean, epoch = again.is_unclean, again.checkpoints.reconciled_epochs.get(("t", 0))
    again.clear_unclean()
    again.close(clean=False)
    third = start(tmp_path)

    assert (unclean, epoch) == (True, 1)
    assert (third.is_unclean, third.checkpoints.reconciled_epochs.get(("t", 0))) == (False, 1)
    third.close(clean=False)


@pytest.mark.parametrize("clean", [False, True], ids=["loss of power", "clean stop"])
def test_a_torn_end_is_a_loss_after_a_clean_stop_alone(tmp_path, clean: bool) -> None:
    """Half of the last frame is what a loss of power leaves; the mark of a clean stop names the frame."""
    saved(tmp_path, clean=clean)
    path = tmp_path / JOURNAL_NAMES[0]
    path.write_bytes(path.read_bytes()[:-3])
    again = start(tmp_path)

    assert again.is_unclean is clean
    assert clean or again.checkpoints.reconciled_epochs.get(("t", 0)) == 2
    again.close(clean=False)


def test_the_files_take_turns_and_stay_bounded(tmp_path) -> None:
    """However much is saved, neither file grows far beyond its limit, and nothing is forgotten."""
    directory = DataDirectory.open(tmp_path, node_id=NODE, cluster_id="c", journal_bytes=2_000)
    checkpoints = directory.checkpoints
    sizes: list[int] = []
    for offset in range(1, 301):
        checkpoints.high_watermarks.put(("t", offset % 7), Offset(offset))
        directory.save_checkpoints()
        if checkpoints._completion is not None:
            # The thread of one round; a machine that is busy may leave it waiting for long.
            checkpoints._completion._thread.join()
        sizes += [(tmp_path / name).stat().st_size for name in JOURNAL_NAMES]
    directory.close(clean=False)
    again = Checkpoints.load(tmp_path)

    assert max(sizes) < 2_500
    assert min(sizes[-2:]) > 0
    assert again.high_watermarks.offsets == {("t", at): 300 - (300 - at) % 7 for at in range(7)}
    assert again.fault is None


def test_a_directory_of_the_version_before_is_taken_over(tmp_path) -> None:
    """Its files are read, the journal begins, and the directory says so from then on."""
    directory = saved(tmp_path, clean=True)
    for name in JOURNAL_NAMES:
        (tmp_path / name).unlink()
    meta = tmp_path / META_NAME
    meta.write_text(meta.read_text().replace("version=2", "version=1"))
    again = start(tmp_path)
    found = again.is_unclean, again.stopped_cleanly, again.checkpoints.reconciled_epochs.get(("t", 0))
    again.close(clean=False)

    assert found == (False, True, 3)
    assert again.identity.directory_id == directory.identity.directory_id
    assert meta.read_text().startswith("version=2\n")
    assert read_journal(tmp_path).fault is None


def test_an_upgrade_that_was_interrupted_begins_again(tmp_path) -> None:
    """A journal beside the old version was never written to; it is no part of the directory."""
    saved(tmp_path, clean=True)
    meta = tmp_path / META_NAME
    meta.write_text(meta.read_text().replace("version=2", "version=1"))
    (tmp_path / JOURNAL_NAMES[0]).write_bytes(b"half a frame")
    again = start(tmp_path)

    assert (again.is_unclean, again.checkpoints.reconciled_epochs.get(("t", 0))) == (False, 3)
    again.close(clean=False)


def test_a_newer_version_is_refused(tmp_path) -> None:
    """As a release without the journal refuses version 2: nothing is read, written or repaired."""
    saved(tmp_path)
    meta = tmp_path / META_NAME
    meta.write_text(meta.read_text().replace("version=2", "version=3"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(DirectoryRefused, match=r"meta\.properties"):
        start(tmp_path)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
