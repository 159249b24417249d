"""Inspection of log files: beside a live node and over several copies (M62)."""

from __future__ import annotations

import os

from strandline.core.types import Offset
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.inspect import compare_logs, dump_log, log_bounds, log_directories


def copies(build, fill, tmp_path, counts=(40, 40)):
    """Copies of one log with different segment boundaries, the first of them the leader's."""
    leader = build.log()
    fill(leader, max(counts))
    builders = [build]
    for number, count in enumerate(counts[1:]):
        (tmp_path / f"copy{number}").mkdir()
        builders.append(type(build)(tmp_path / f"copy{number}"))
        copy = builders[-1].log(segment_bytes=900 + 400 * number)
        while copy.leo < 2 * count:
            copy.append_replicated(leader.read(copy.leo, 500, Offset(2 * count)).payload)
        builders[-1].close()
    return [builder.path for builder in builders]


def save_high_watermark(path, offset: int) -> None:
    checkpoints = Checkpoints.load(path.parent)
    checkpoints.high_watermarks.put(("t", 0), Offset(offset))
    checkpoints.high_watermarks.save()


def test_dump_shows_every_batch(log, build, fill) -> None:
    """Offsets, epochs, CRC state and positions, across segments, while the log is open."""
    fill(log, 30, epoch=6)
    rows = list(dump_log(build.path))

    assert [row.header.base_offset for row in rows] == list(range(0, 60, 2))
    assert {row.header.leader_epoch for row in rows} == {6}
    assert all(row.crc_ok and row.fault is None for row in rows)
    assert next(row.header.base_offset for row in dump_log(build.path, 31)) == 30


def test_dump_tells_damage_instead_of_failing(log, build, fill) -> None:
    """A wrong CRC is one row; a torn end is the last row of its file."""
    fill(log, 5)
    path = log.segments[0].path
    with open(path, "r+b") as file:
        file.seek(80)
        file.write(b"X")
    os.truncate(path, path.stat().st_size - 3)
    rows = list(dump_log(build.path))

    assert [row.crc_ok for row in rows] == [False, True, True, True, False]
    assert rows[0].fault == "the CRC does not match"
    assert rows[-1].header is None


def test_bounds_come_from_headers_and_checkpoints(log, build, fill) -> None:
    """Log start, end and HW are read without opening the log."""
    fill(log, 30)
    log.advance_log_start(Offset(9))
    log.checkpoints.settle()
    save_high_watermark(build.path, 50)
    bounds = log_bounds(build.path)

    assert (bounds.log_start_offset, bounds.leo, bounds.high_watermark) == (9, 60, 50)
    assert bounds.size_bytes == log.size_bytes
    assert log_directories(build.data) == {("t", 0): build.path}


def test_equal_copies_are_equal_whatever_their_segments(build, fill, tmp_path) -> None:
    """Byte-equal means the same batches from the highest log start to the lowest HW."""
    paths = copies(build, fill, tmp_path, (40, 40, 37))
    for path, offset in zip(paths, (80, 78, 74), strict=True):
        save_high_watermark(path, offset)
    comparison = compare_logs(paths)

    assert (comparison.equal, comparison.start, comparison.end, comparison.batches) == (True, 0, 74, 37)
    assert len(list(paths[0].glob("*.log"))) != len(list(paths[1].glob("*.log")))


def test_difference_is_named_by_its_offset(build, fill, tmp_path) -> None:
    """One other byte, even one outside the CRC, is a difference at that batch."""
    paths = copies(build, fill, tmp_path)
    path = min(paths[1].glob("*.log"))
    first = next(dump_log(paths[1]))
    with open(path, "r+b") as file:
        file.seek(first.header.size_bytes + 15)
        file.write(b"\x02")
    comparison = compare_logs(paths, start=Offset(0), end=Offset(80))

    assert (comparison.equal, comparison.first_difference, comparison.batches) == (False, 2, 1)
    assert "different batches at 2" in comparison.reason


def test_shorter_copy_is_a_difference(build, fill, tmp_path) -> None:
    """A copy that ends before the compared end is reported."""
    comparison = compare_logs(copies(build, fill, tmp_path, (40, 30)), start=Offset(0), end=Offset(80))

    assert comparison.first_difference == 60
    assert comparison.reason.endswith("ends before the others")
