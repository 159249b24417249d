"""Reads the files of one node's metadata log: its segments as one series of batches, its snapshots, and its owner.

Read only; index files are not needed, and an active segment may grow while it is read.

Invariant: every batch returned was whole and had the right CRC. A file that ends within a batch, or in zeros, ends
there, and the number of skipped bytes is known; any other fault is an `Unreadable` with file and offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from strandline.core.errors import Refused
from strandline.core.types import BatchHeader
from strandline.records.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, crc_matches, is_dense, parse_header
from strandline_kafka.brokers.text_files import LeftOut
from strandline_kafka.metadata.records import MetadataRecord, records_of
from strandline_kafka.metadata.wire import Unreadable

METADATA_TOPIC = "__cluster_metadata"
FOLDER = f"{METADATA_TOPIC}-0"
MAX_BATCH_BYTES = 64 << 20
"""Kafka's controllers write at most 8 MiB; a larger length is damage, and is not allocated."""

_BUFFER_BYTES = 1 << 20
_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class FoundBatch(NamedTuple):
    """One batch, and its place."""

    header: BatchHeader
    content: bytes
    path: Path
    records: tuple[MetadataRecord, ...] | None = None
    """The records, if they were not read from these bytes."""

    @property
    def offset(self) -> int:
        """Offset of its first record."""
        return self.header.base_offset

    def equals(self, other: FoundBatch) -> bool:
        """Whether two copies have the same batch here; a printed text is compared by the CRC that it shows."""
        if self.records is None and other.records is None:
            return self.content == other.content
        own, its = self.header, other.header
        return (own.base_offset, own.leader_epoch, own.size_bytes, own.crc) == (
            its.base_offset, its.leader_epoch, its.size_bytes, its.crc,
        )  # fmt: skip


class SnapshotFile(NamedTuple):
    """A snapshot file: the state of the log up to ``end_offset``."""

    path: Path
    end_offset: int
    printed: Callable[[], Iterator[MetadataRecord]] | None = None
    """Its records, if there is only a printed text."""


@dataclass(slots=True)
class Copy:
    """The metadata log of one node."""

    directory: Path
    segments: list[Path]
    snapshots: list[SnapshotFile]
    node_id: int | None = None
    cluster_id: str | None = None
    voters: frozenset[int] = frozenset()
    """The voters by the quorum's own file; the log may have newer ones."""
    tail_bytes: int = field(default=0, init=False)
    """Bytes at the end that are not a whole batch, once the batches were read."""
    foreign: LeftOut | None = field(default=None, init=False)
    """Lines of a printed text that Kafka's tool did not print, once the batches were read."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(self.directory) if self.node_id is None else f"node {self.node_id} ({self.directory})"

    def batches(self) -> Iterator[FoundBatch]:
        """Every batch, in order of offsets.

        Raises:
            Unreadable: a file is damaged, or one is missing between two others.
        """
        last = len(self.segments) - 1
        return in_order(
            batch for number, path in enumerate(self.segments) for batch in self._checked(path, is_last=number == last)
        )

    def _checked(self, path: Path, *, is_last: bool) -> Iterator[FoundBatch]:
        self.tail_bytes = 0
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size = path.stat().st_size
            position = 0
            while (batch := _next_batch(file, path, position, size)) is not None:
                yield batch
                position += batch.header.size_bytes
        self.tail_bytes = size - position
        if self.tail_bytes and not is_last:
            raise Unreadable(
                f"{path}: {self.tail_bytes} bytes at position {position} are not a whole batch, and a file follows"
            )


def in_order(batches: Iterable[FoundBatch]) -> Iterator[FoundBatch]:
    """The batches of one log, each of which must follow the one before.

    Raises:
        Unreadable: offsets are missing or come twice, or an epoch is older than the one before.
    """
    expected: int | None = None
    epoch = 0
    for batch in batches:
        if expected is not None and batch.offset != expected:
            raise Unreadable(
                f"{batch.path}: the batch at offset {batch.offset} must be at {expected}; offsets are missing between, "
                "or come twice"
            )
        now = batch.header.stamped_epoch
        if now < epoch:
            raise Unreadable(f"{batch.path}: offset {batch.offset} has epoch {now} after {epoch}")
        expected, epoch = batch.header.next_offset, now
        yield batch


def open_copy(directory: Path) -> Copy:
    """The log in a directory, or in its folder ``__cluster_metadata-0``.

    Raises:
        Unreadable: there is none.
    """
    inner = directory / FOLDER
    folder = inner if inner.is_dir() else directory
    if not folder.is_dir():
        raise Unreadable(f"{directory} is not a directory; give a log.dir of a controller, or its folder {FOLDER}")
    names = sorted(path for path in folder.iterdir() if path.is_file())
    segments = [path for path in names if _SEGMENT.fullmatch(path.name)]
    snapshots = [SnapshotFile(path, int(found[1])) for path in names if (found := _SNAPSHOT.fullmatch(path.name))]
    if not segments:
        raise Unreadable(
            f"{folder} holds no metadata log (00000000000000000000.log and the like); KRaft controllers keep one"
        )
    properties = properties_of(folder.parent / "meta.properties") or properties_of(folder / "meta.properties")
    node_id = properties.get("node.id", "")
    return Copy(
        directory=folder,
        segments=segments,
        snapshots=snapshots,
        node_id=int(node_id) if node_id.isascii() and node_id.isdigit() else None,
        cluster_id=properties.get("cluster.id"),
        voters=_voters(folder / "quorum-state"),
    )


def snapshot_records(snapshot: SnapshotFile) -> Iterator[MetadataRecord]:
    """The records of a snapshot; their offsets have no meaning.

    Raises:
        Unreadable: it is damaged, or not whole.
    """
    last: str | None = None
    for one in _in_file(snapshot.path) if snapshot.printed is None else snapshot.printed():
        last = one.kind
        yield one
    if last != "SnapshotFooter":
        raise Unreadable(f"{snapshot.path}: the snapshot has no end; it was cut off behind a {last or 'file name'}")


def _in_file(path: Path) -> Iterator[MetadataRecord]:
    with path.open("rb") as file:
        size = path.stat().st_size
        position = 0
        while (batch := _next_batch(file, path, position, size)) is not None:
            yield from read_records(batch)
            position += batch.header.size_bytes
    if position != size:
        raise Unreadable(f"{path}: the snapshot has no end; it was cut off at position {position} of {size}")


def read_records(batch: FoundBatch) -> list[MetadataRecord]:
    """The records of a batch.

    Raises:
        Unreadable: with the file's name.
    """
    if batch.records is not None:
        return list(batch.records)
    try:
        return records_of(batch.header, batch.content)
    except Unreadable as error:
        raise Unreadable(f"{batch.path}: {error}") from error


def _next_batch(file: BinaryIO, path: Path, position: int, size: int) -> FoundBatch | None:
    """The batch at a position of a file; None at the end of a file that was being written."""
    prefix = file.read(HEADER_BYTES)
    if len(prefix) < HEADER_BYTES:
        return None
    try:
        header = parse_header(prefix)
    except Refused as error:  # pragma: no cover - the length was checked
        raise Unreadable(f"{path}: {error}") from error
    if header.size_bytes == LENGTH_PREFIX_BYTES and not any(prefix):
        _check_zeros(file, path, position)
        return None
    if not HEADER_BYTES <= header.size_bytes <= MAX_BATCH_BYTES:
        said = f"a batch of {header.size_bytes} bytes is declared; the file is damaged there"
        raise _damaged(path, position, header, said)
    if header.magic != MAGIC:
        raise _damaged(path, position, header, f"magic {header.magic} must be {MAGIC}; the file is damaged there")
    if header.size_bytes > size - position:
        return None
    content = prefix + file.read(header.size_bytes - HEADER_BYTES)
    if len(content) < header.size_bytes:
        return None
    if not crc_matches(memoryview(content), header.crc):
        said = "the CRC of the batch is wrong; the file is damaged there, give another node's copy"
        raise _damaged(path, position, header, said)
    if not is_dense(header) or header.leader_epoch is None or header.base_offset < 0:
        said = "the batch has no epoch, or its counts do not agree; this is not a metadata log"
        raise _damaged(path, position, header, said)
    return FoundBatch(header, content, path)


def _damaged(path: Path, position: int, header: BatchHeader, said: str) -> Unreadable:
    return Unreadable(f"{path}: position {position}, offset {header.base_offset}: {said}")


def _check_zeros(file: BinaryIO, path: Path, position: int) -> None:
    """A preallocated segment ends in zeros."""
    while content := file.read(1 << 20):
        if any(content):
            raise Unreadable(
                f"{path}: position {position}, offset 0: zeros, and something behind them; the file is damaged there"
            )


def properties_of(path: Path) -> dict[str, str]:
    """The pairs of a properties file; empty if there is no such file."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith("#") and "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _voters(path: Path) -> frozenset[int]:
    if not path.is_file():
        return frozenset()
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(int(voter["voterId"]) for voter in said.get("currentVoters", ()))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # Only a hint; without it the voters are taken from the log.
        return frozenset()
