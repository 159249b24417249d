"""Target 3, first half: the small files of a data directory are read correctly, or reported as damaged.

Invariant: no other exception; the values read can be written again, read back the same, and fit the fields of the
messages in which they are sent; damage in an epoch checkpoint never changes the epochs of a log.
"""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import crc32c
from damaged_logs import check_epochs
from draws import Draws

from strandline.core.errors import Refused
from strandline.core.types import NodeId, Offset, ProducerBatch
from strandline.rpc.convert.subscription import ImageWriter, image_from_bytes
from strandline.storage import checkpoint_files, producer_snapshot
from strandline.storage.directory import META_NAME, RUN_NAME, DataDirectory, DirectoryRefused

_ROW_BYTES = 42
"""Of one producer's batch in a snapshot of the producer state."""
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
_NUMBERS = (b"0", b"1", b"7", b"2147483647", b"2147483648", b"9223372036854775807", b"9223372036854775808", b"-1")
_PIECES = (*_NUMBERS, b"\n", b" ", b"\n", b" ", b"t", b"topic", b"version: 0\n", b"topic_id: ", b"version=1\n", b"=")


def check(data: bytes) -> None:
    """The oracle: the first byte selects the file, the rest is its content."""
    draws = Draws(data)
    look = draws.choice((_epochs, _offsets, _topic_id, _snapshot, _metadata, _identity, _epochs_of_a_log))
    with TemporaryDirectory() as directory:
        look(Path(directory), _content(draws))


def _content(draws: Draws) -> bytes:
    if draws.one_in(2):
        return draws.rest()
    rows = [draws.choice(_PIECES) for _ in range(draws.integer(0, 24))]
    text = b"".join(rows)
    return b"0\n%d\n%s\n" % (text.count(b"\n") + 1, text) if draws.one_in(2) else text


def _epochs(directory: Path, content: bytes) -> None:
    (directory / checkpoint_files.EPOCHS_NAME).write_bytes(content)
    try:
        entries = checkpoint_files.read_epochs(directory)
    except checkpoint_files.CheckpointDamaged:
        return
    assert entries is not None
    assert all(entry.epoch <= INT32_MAX and entry.start_offset <= INT64_MAX for entry in entries)
    (directory / checkpoint_files.EPOCHS_NAME).write_bytes(checkpoint_files.epochs_content(entries))
    assert checkpoint_files.read_epochs(directory) == entries


def _epochs_of_a_log(directory: Path, content: bytes) -> None:
    check_epochs(directory / "t-0", content)


def _offsets(directory: Path, content: bytes) -> None:
    path = directory / checkpoint_files.HIGH_WATERMARKS_NAME
    path.write_bytes(content)
    found = checkpoint_files.OffsetCheckpoint.load(path)
    assert not (found.damaged and found.offsets), "damaged, yet believed"
    assert all(0 <= offset <= INT64_MAX for offset in found.offsets.values())
    found.save(durable=False)
    assert checkpoint_files.OffsetCheckpoint.load(path).offsets == found.offsets


def _topic_id(directory: Path, content: bytes) -> None:
    (directory / checkpoint_files.METADATA_NAME).write_bytes(content)
    try:
        topic_id = checkpoint_files.read_topic_id(directory)
    except checkpoint_files.CheckpointDamaged:
        return
    assert topic_id, "a file without an id is damaged"
    checkpoint_files.write_topic_id(directory, topic_id)
    assert checkpoint_files.read_topic_id(directory) == topic_id


def _snapshot(directory: Path, content: bytes) -> None:
    """With a valid header before it, every other time: only then are the rows read."""
    draws = Draws(content)
    offset = draws.choice((7, 0, INT64_MAX))
    if draws.one_in(2):
        body = draws.rest()
        count = len(body) // _ROW_BYTES
        if draws.one_in(2):
            body = body[: count * _ROW_BYTES]
        crc = crc32c.crc32c(body + struct.pack(">qI", offset, count))
        content = struct.pack(">4sIqI", draws.choice((b"SLP1", b"SLP2")), crc, offset, count) + body
    (directory / f"{offset:020}.snapshot").write_bytes(content)
    found = producer_snapshot.newest_snapshot(directory, Offset(INT64_MAX))
    assert found.offset in (0, offset) and all(isinstance(row, ProducerBatch) for row in found.batches)


def _metadata(directory: Path, content: bytes) -> None:
    """With a valid checksum, every other time: only then is the message read."""
    if content[:1] > b"\x80":
        content = struct.pack(">4sI", b"SLM1", crc32c.crc32c(content[1:])) + content[1:]
    image = image_from_bytes(content)
    if image is not None:
        assert image_from_bytes(ImageWriter().to_bytes(image)) == image


def _identity(directory: Path, content: bytes) -> None:
    name = META_NAME if len(content) % 2 else RUN_NAME
    (directory / name).write_bytes(content)
    try:
        opened = DataDirectory.open(directory, node_id=NodeId(1), cluster_id="c")
    except (DirectoryRefused, Refused):
        return
    assert opened.identity.node_id == 1 and opened.identity.directory_id
    opened.close(clean=False)
