"""The keys of the controller's store in etcd, and the bytes of each value (C5, C6, C8).

Invariant: a damaged or truncated value is never read as another one: each contains its length or a checksum.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

import crc32c

from strandline.core.control.state import Transaction
from strandline.core.messages import Endpoint
from strandline.core.reigns.events import Head
from strandline.etcd.operations import behind
from strandline.metadata.documents import WRONG_JSON, DamagedDocument, pack

FORMAT = 1
_LOG = "strandline-log"
_SNAPSHOT = "strandline-snapshot"
_HEAD = re.compile(
    rb"(?P<named>(?P<reign>[!-~]+) (?P<offset>0|[1-9][0-9]*) (?P<digest>[0-9a-f]{32}))( (?P<crc>[0-9a-f]{8}))?"
)
SNAPSHOT_PART_BYTES = 512 << 10

Range = tuple[bytes, bytes]
"""Keys from the first (inclusive) to the second (exclusive)."""


class Keys:
    """The keys of one cluster. All keys that a standby follows are in one range, `followed`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = f"/{prefix.strip('/')}"
        self._root = f"{self.prefix}/".encode()
        self.active = self._root + b"active"
        self.head = self._root + b"head"
        self.format = self._root + b"format"
        self.successor = self._root + b"handover"
        self.moved = self._root + b"moved"
        self.current_snapshot = self._root + b"snap/current"
        self.controllers = self._root + b"controllers/"
        self.logs = self._root + b"log/"
        self.parts = self._root + b"part/"
        self.followed = (self.active, self.parts)

    def controller(self, controller_id: str) -> bytes:
        """The key of one controller's own entry."""
        return self.controllers + controller_id.encode()

    def log(self, offset: int) -> bytes:
        """The key of one transaction's log value."""
        return self.logs + b"%016x" % offset

    def offset_of(self, log_key: bytes) -> int:
        """The offset in a key of the log."""
        return int(log_key[len(self.logs) :], 16)

    def parts_of(self, reign_id: str, offset: int | None = None) -> bytes:
        """The prefix of the parts of one transaction, or of all transactions of a reign."""
        end = b"" if offset is None else b"%016x/" % offset
        return self.parts + reign_id.encode() + b"/" + end

    @property
    def all_parts(self) -> Range:
        """The range of the parts of all transactions, of all reigns."""
        return self.parts, behind(self.parts)

    def part(self, reign_id: str, offset: int, number: int) -> bytes:
        """The key of one part of a transaction."""
        return self.parts_of(reign_id, offset) + b"%06d" % number

    def snapshot_parts(self, offset: int) -> bytes:
        """The prefix of the parts of one snapshot."""
        return self._root + b"snap/%016x/" % offset

    def snapshot_part(self, offset: int, number: int) -> bytes:
        """The key of one part of a snapshot."""
        return self.snapshot_parts(offset) + b"%06d" % number

    def replaced_by_snapshot(self, head: Head, tail: int) -> tuple[Range, ...]:
        """The ranges that a snapshot at ``head`` replaces: all it covers, except the last ``tail`` log values (C11)."""
        own = self.parts_of(head.reign_id)
        trimmed = max(0, head.offset - tail)
        return (
            (self.first_snapshot, self.snapshot_parts(head.offset)),
            (self.log(0), self.log(trimmed)),
            # Parts of transactions that the snapshot covers, and of failed appends.
            (self.parts, own),
            (behind(own), self.all_parts[1]),
            (own, self.parts_of(head.reign_id, trimmed)),
        )

    def held_by_snapshot(self, offset: int) -> tuple[Range, ...]:
        """The ranges that a full store can delete, while it has a snapshot at ``offset`` (C29)."""
        return (self.logs, self.log(offset + 1)), (self.first_snapshot, self.snapshot_parts(offset))

    @property
    def first_snapshot(self) -> bytes:
        """The start of the range of all snapshots' parts."""
        return self._root + b"snap/0"


class LogValue(NamedTuple):
    """One value of the log, parsed."""

    head: Head
    parts: int
    """The number of parts that hold the transaction; 0: it is in ``body``."""
    body: bytes
    """The packed transaction, or the sha256 of its joined parts."""

    def packed(self, parts: Sequence[bytes]) -> bytes | None:
        """The packed transaction, from its stored parts; None if they are not complete."""
        # An earlier attempt may have left more parts than the value names.
        return joined(parts[: self.parts], self.body) if self.parts else self.body


class Piece(NamedTuple):
    """One transaction as it is written to the log."""

    offset: int
    value: bytes
    parts: tuple[bytes, ...]


class TransactionBatch(NamedTuple):
    """Transactions that are appended together; ``head`` is the store's head after them."""

    head: Head
    pieces: tuple[Piece, ...]
    transactions: tuple[Transaction, ...]

    @property
    def size(self) -> int:
        """The size of all values, in bytes."""
        return sum(len(piece.value) + sum(map(len, piece.parts)) for piece in self.pieces)


def piece_of(reign_id: str, transaction: Transaction, part_bytes: int) -> Piece:
    """A transaction as a log value, with separate parts if it is larger than ``part_bytes``."""
    packed = pack(transaction)
    parts = _cut(packed, part_bytes) if len(packed) > part_bytes else ()
    body = hashlib.sha256(packed).digest() if parts else packed
    offset = transaction.header.metadata_offset
    line = f"{_LOG} {FORMAT} {reign_id} {offset} {len(parts)} {crc32c.crc32c(body):08x}\n"
    return Piece(offset, line.encode() + body, parts)


def batches(
    reign_id: str, transactions: Sequence[Transaction], *, part_bytes: int, most: int = 100
) -> list[TransactionBatch]:
    """Divide transactions into the batches that are appended; a large one gets its own batch (C7)."""
    found: list[TransactionBatch] = []
    pieces: list[Piece] = []
    waiting: list[Transaction] = []
    size = 0

    def end() -> None:
        nonlocal size
        if pieces:
            last = pieces[-1]
            found.append(
                TransactionBatch(Head(reign_id, last.offset, digest(last.value)), tuple(pieces), tuple(waiting))
            )
        pieces.clear()
        waiting.clear()
        size = 0

    for transaction in transactions:
        piece = piece_of(reign_id, transaction, part_bytes)
        if piece.parts or size + len(piece.value) > part_bytes or len(pieces) == most:
            end()
        pieces.append(piece)
        waiting.append(transaction)
        size += len(piece.value)
        if piece.parts:
            end()
    end()
    return found


def read_log_value(value: bytes, *, offset: int, revision: int) -> LogValue:
    """Parse a value of the log.

    Raises:
        DamagedDocument: its checksum does not match, it has another offset, or it is of a later release.
    """
    line, _, body = value.partition(b"\n")
    try:
        name, version, reign_id, said, parts, checksum = line.decode().split(" ")
        if name != _LOG or int(version) != FORMAT or int(said) != offset or int(checksum, 16) != crc32c.crc32c(body):
            raise ValueError(line[:80].decode())
        return LogValue(Head(reign_id, offset, digest(value), revision), int(parts), body)
    except ValueError as error:
        raise DamagedDocument(f"log value {offset} is damaged, or of a later release: {error}") from error


class LogPlace(Enum):
    """The place of a transaction of the log, relative to one copy of the state."""

    KNOWN = "known"
    NEXT = "next"
    BEYOND = "beyond"
    """Some transaction before it is missing."""


def place_of(offset: int, applied: Head | None) -> LogPlace:
    """The place of ``offset`` relative to a copy that ends at ``applied``; an empty copy can begin anywhere."""
    if applied is None or offset == applied.offset + 1:
        return LogPlace.NEXT
    return LogPlace.KNOWN if offset <= applied.offset else LogPlace.BEYOND


def joined(parts: Sequence[bytes], checksum: bytes) -> bytes | None:
    """The joined parts; None if they are not complete."""
    packed = b"".join(parts)
    return packed if hashlib.sha256(packed).digest() == checksum else None


def digest(value: bytes) -> str:
    """A hash that distinguishes two log values of the same offset."""
    return hashlib.sha256(value).hexdigest()[:32]


def head_value(head: Head) -> bytes:
    """The value of the key ``head``: reign, offset and digest of the last log value, and a checksum."""
    named = f"{head.reign_id} {head.offset} {head.digest}"
    return f"{named} {crc32c.crc32c(named.encode()):08x}".encode()


def read_head(value: bytes, revision: int) -> Head:
    """The head in a value of the key ``head``. One without a checksum must have the exact form of an earlier release.

    Raises:
        DamagedDocument: it has another form, or its checksum does not match.
    """
    matched = _HEAD.fullmatch(value)
    if matched is None or matched["crc"] not in (None, b"%08x" % crc32c.crc32c(matched["named"])):
        raise DamagedDocument(
            f"the key head is damaged ({value[:80]!r}); stop every controller and run `strandline controller recover` "
            f"with the nodes' data directories, which keeps what the log holds"
        )
    return Head(matched["reign"].decode(), int(matched["offset"]), matched["digest"].decode(), revision)


class Snapshot(NamedTuple):
    """The current snapshot, as the key ``snap/current`` names it."""

    head: Head
    parts: int
    checksum: bytes


def snapshot_of(head: Head, packed: bytes, part_bytes: int = SNAPSHOT_PART_BYTES) -> tuple[bytes, tuple[bytes, ...]]:
    """The value of ``snap/current``, and the parts that it names, each of at most ``part_bytes`` bytes."""
    parts = _cut(packed, part_bytes)
    checksum = hashlib.sha256(packed).hexdigest()
    line = f"{_SNAPSHOT} {FORMAT} {head.reign_id} {head.offset} {head.digest} {len(parts)} {checksum}"
    return line.encode(), parts


def read_snapshot(value: bytes) -> Snapshot:
    """Parse a value of ``snap/current``.

    Raises:
        DamagedDocument: it has another form, or is of a later release.
    """
    try:
        name, version, reign_id, offset, of, parts, checksum = value.decode().split(" ")
        if name != _SNAPSHOT or int(version) != FORMAT:
            raise ValueError(value[:80].decode())
        return Snapshot(Head(reign_id, int(offset), of), int(parts), bytes.fromhex(checksum))
    except ValueError as error:
        raise DamagedDocument(f"the key snap/current is damaged, or of a later release: {error}") from error


class Presence(NamedTuple):
    """A controller's own entry in the store."""

    controller_id: str
    incarnation_id: str
    client: Endpoint
    internal: Endpoint
    offset: int = 0
    """The offset of the last transaction that it has applied."""


def presence_value(presence: Presence) -> bytes:
    """The value of ``active``, and of ``controllers/<id>``."""
    content = {
        "controller_id": presence.controller_id,
        "incarnation_id": presence.incarnation_id,
        "client": [presence.client.host, presence.client.port],
        "internal": [presence.internal.host, presence.internal.port],
        "offset": presence.offset,
    }
    return json.dumps(content).encode()


def read_presence(value: bytes) -> Presence:
    """Parse a controller's entry.

    Raises:
        DamagedDocument: no controller writes such a value.
    """
    try:
        content = json.loads(value)
        return Presence(
            str(content["controller_id"]),
            str(content["incarnation_id"]),
            Endpoint(str(content["client"][0]), int(content["client"][1])),
            Endpoint(str(content["internal"][0]), int(content["internal"][1])),
            int(content["offset"]),
        )
    except WRONG_JSON as error:
        raise DamagedDocument(f"a controller's entry is damaged: {error!r}") from error


def _cut(packed: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(packed[begin : begin + size] for begin in range(0, len(packed), size))


# ---- write_order
# The order in which the values of an append, and of a snapshot, are written (C8, C11).
#
# A transaction that is too large for one value is stored in parts; a snapshot always is. Both exist only once the value
# that names their parts exists, so this value is written last, and only if every part was written.
#
# Invariant: nothing is written after a write that was refused or whose outcome is unknown. These functions are pure:
# the caller performs one write at a time, and only it interprets the answers.

_Write = TypeVar("_Write")
_Answer = TypeVar("_Answer")


class TransactionPart(NamedTuple):
    """Put one part of a transaction."""

    offset: int
    number: int
    content: bytes


class AppendBatch(NamedTuple):
    """Put the log values of a batch, and the head."""

    batch: TransactionBatch


class SnapshotPart(NamedTuple):
    """Put one part of a snapshot."""

    number: int
    content: bytes


class SnapshotNamed(NamedTuple):
    """Put the value that names the snapshot's parts, and delete the ranges that the snapshot replaces."""

    content: bytes


def append_writes(batch: TransactionBatch) -> Iterator[TransactionPart | AppendBatch]:
    """The writes of one append, in order."""
    for piece in batch.pieces:
        for number, content in enumerate(piece.parts):
            yield TransactionPart(piece.offset, number, content)
    yield AppendBatch(batch)


def snapshot_writes(
    head: Head, packed: bytes, part_bytes: int = SNAPSHOT_PART_BYTES
) -> Iterator[SnapshotPart | SnapshotNamed]:
    """The writes of one snapshot of the state at ``head``, in order."""
    current, parts = snapshot_of(head, packed, part_bytes)
    for number, content in enumerate(parts):
        yield SnapshotPart(number, content)
    yield SnapshotNamed(current)


async def write_in_order(
    writes: Iterator[_Write], write: Callable[[_Write], Awaitable[_Answer]], went_well: Callable[[_Answer], bool]
) -> _Answer:
    """Perform writes one after the other, up to the first one that fails; return the answer to the last one.

    An exception of ``write`` ends them too.
    """
    answer = await write(next(writes))
    for each in writes:
        if not went_well(answer):
            break
        answer = await write(each)
    return answer
