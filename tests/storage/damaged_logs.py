"""Damages a log or its index files and checks the result of opening it; shared with tests/fuzz.

Invariant: what recovery keeps is a prefix of what was written, a second recovery changes nothing, and an index file
never changes an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from log_builder import read_all

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, encode_batch
from strandline.storage.log import Log, LogSettings

Wound = tuple[str, int, int, int]
"""What is done, to which segment, at which byte, how much of it."""

WOUNDS = ("cut", "flip", "duplicate", "zeros", "zero tail", "garbage tail", "remove")
LAYOUT = LogSettings(segment_bytes=900, index_interval_bytes=120)
BATCHES = 24


def written(directory: Path) -> list[bytes]:
    """A log of several segments and epochs; returns its batches."""
    log, _ = Log.open(directory, settings=LAYOUT)
    for number in range(BATCHES):
        rows = [NewRecord(None, b"%d" % number * (1 + number % 5), 1_000 + number)] * (1 + number % 3)
        log.append(split_batches(encode_batch(rows)), log.leo, LeaderEpoch(1 + number // 7))
    log.close()
    return batches_of(directory)


def batches_of(directory: Path) -> list[bytes]:
    """The batches in the files, by length prefix."""
    content = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    return [bytes(view) for _, view in split_batches(content)]


def damage(directory: Path, kind: str, segment: int, at: int, size: int) -> None:
    paths = sorted(directory.glob("*.log"))
    path = paths[segment % len(paths)]
    content = bytearray(path.read_bytes())
    at %= len(content) + 1
    if kind == "cut":
        del content[at:]
    elif kind == "flip" and content:
        content[at % len(content)] ^= 1 << (size % 8)
    elif kind == "duplicate":
        content[at:at] = content[max(at - size, 0) : at]
    elif kind == "zeros":
        content[at : at + size] = bytes(len(content[at : at + size]))
    elif kind == "zero tail":
        content += bytes(size)
    elif kind == "garbage tail":
        content += bytes((size * 37 + number * 11) % 256 for number in range(size))
    elif kind == "remove":
        path.unlink()
        return
    path.write_bytes(content)


def check_recovery(directory: Path, wounds: Sequence[Wound], *, drop_indexes: bool) -> None:
    """Write a log, damage it, recover it twice: the result is a prefix, and the second time changes nothing."""
    original = written(directory)
    for wound in wounds:
        damage(directory, *wound)
    if drop_indexes:
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.unlink()
    log, first = Log.open(directory, settings=LAYOUT, check_all=True)
    log.close(clean=False)
    kept = batches_of(directory)
    again, second = Log.open(directory, settings=LAYOUT, check_all=True)

    # The first 16 bytes lie outside the CRC; only their order is checked.
    before, after = [batch[16:] for batch in original], [batch[16:] for batch in kept]
    begin = before.index(after[0]) if after else 0
    assert after == before[begin : begin + len(after)]
    assert begin == 0 or any(kind == "remove" for kind, *_ in wounds)
    assert batches_of(directory) == kept
    assert (second.leo, second.log_start_offset, second.epochs) == (first.leo, first.log_start_offset, first.epochs)
    assert (second.bytes_cut, second.fault) == (0, None)
    assert read_all(again) == kept
    again.close(clean=False)


def check_indexes(
    directory: Path, suffix: str, content: bytes | None, flips: Sequence[tuple[int, int]], *, clean: bool
) -> None:
    """Write a log, put ``content`` (None: what is there) with ``flips`` into its index files, compare every answer."""
    original = written(directory)
    for path in directory.glob(f"*{suffix}"):
        changed = bytearray(path.read_bytes() if content is None else content)
        for at, value in flips if changed else ():
            changed[at % len(changed)] = value
        path.write_bytes(changed)
    log, recovery = Log.open(directory, settings=LAYOUT, clean=clean)
    times = [(found.header.base_offset, found.header.max_timestamp_ms) for found in log.batches()]

    assert recovery.bytes_cut == 0
    assert read_all(log) == original
    for offset in range(log.leo):
        header, _ = split_batches(log.read(Offset(offset), 1, log.leo).payload)[0]
        assert header.base_offset <= offset < header.next_offset
    for asked in range(998, 1_026):
        found = log.search_time(asked, log.leo).first()
        assert (found.header.base_offset if found else None) == next((b for b, ms in times if ms >= asked), None)
    log.close(clean=False)


def check_epochs(directory: Path, content: bytes | None) -> None:
    """Write a log, put ``content`` (None: what is there) into its epoch checkpoint: the batches' epochs win (M55)."""
    written(directory)
    truth: dict[int, Offset] = {}
    for header, _ in split_batches(b"".join(batches_of(directory))):
        truth.setdefault(header.stamped_epoch, header.base_offset)
    if content is not None:
        (directory / "leader-epoch-checkpoint").write_bytes(content)
    log, recovery = Log.open(directory, settings=LAYOUT)

    assert recovery.epochs == tuple(EpochEntry(LeaderEpoch(e), Offset(start)) for e, start in truth.items())
    log.close(clean=False)
