"""Building a batch record by record: Kafka's records of format v2, one after the other.

Invariant: the bytes are those that Kafka's own clients build, and a record that is refused leaves nothing behind.

aiokafka's compiled builder copies every value twice and counts a CRC in software, which is of no use for a batch whose
producer is set later. Here a value is copied once, when the batch is put together.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.core.errors import ErrorCode, Refused
from strandline.records import batch as records_batch
from strandline.records.compression import Compression, compress

Headers = Sequence[tuple[str, bytes | None]]

_LAST_MS = (1 << 63) - 1
_KEPT = range(-1, 1 << 13)
"""Numbers that are encoded once, in one byte or two. -1 is the length of what is absent."""

_SMALL_BYTES = 64
"""Pieces of records with smaller values are joined at once: four objects would take more memory than the record."""


class _Varints(dict[int, bytes]):
    """Numbers as zigzag varints, behind what always precedes them."""

    def __init__(self, prefix: bytes = b"") -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, number: int) -> bytes:
        encoded, rest = bytearray(self._prefix), number << 1 if number >= 0 else ~(number << 1)
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        found = bytes(encoded)
        if number in _KEPT:
            self[number] = found
        return found


_VARINTS = _Varints()
_TIME_DELTAS = _Varints(b"\x00")
"""Behind the attributes of a record, which are always 0."""
_VALUE_LENGTHS = _Varints(b"\x01")
"""Behind the length -1 of an absent key."""


class BatchBuilder:
    """Collects records until the batch is full."""

    __slots__ = (
        "_base_ms", "_compression", "_last_delta", "_last_ms", "_max_bytes", "_max_ms", "_pieces",
        "count", "size_bytes",
    )  # fmt: skip

    def __init__(
        self, *, compression: Compression = Compression.NONE, max_bytes: int = records_batch.MAX_BATCH_BYTES
    ) -> None:
        """``max_bytes`` bounds the batch before compression, header included."""
        self._compression = compression
        self._max_bytes = max_bytes
        self._base_ms = self._max_ms = 0
        # Many records in a row have the same timestamp.
        self._last_ms: int | None = None
        self._last_delta = b""
        self._pieces: list[bytes] = []
        self.count = 0
        """Records so far."""
        self.size_bytes = records_batch.HEADER_BYTES
        """Size of the batch so far, uncompressed."""

    def try_append(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers = ()) -> int:
        """Add a record; returns its size in bytes, 0 if the batch has records and no room for this one.

        Raises:
            Refused: MESSAGE_TOO_LARGE, it fits into no batch; INVALID_TIMESTAMP, it is negative or above 2^63 - 1.
            TypeError: key, value or the content of a header is not bytes, or the name of a header is not text.
        """
        count = self.count
        if timestamp_ms != self._last_ms:
            # `time.time() * 1000` is a float, for example.
            timestamp_ms = int(timestamp_ms)
            if not 0 <= timestamp_ms <= _LAST_MS:
                raise Refused(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms} ms must be 0 to {_LAST_MS}")
            if not count:
                self._base_ms = timestamp_ms
            self._last_ms, self._last_delta = timestamp_ms, _TIME_DELTAS[timestamp_ms - self._base_ms]
        if value is None:
            length, value = -1, b""
        else:
            if type(value) is not bytes:
                value = bytes(memoryview(value))
            length = len(value)
        lengths = _VALUE_LENGTHS[length] if key is None else _with_length(key) + _VARINTS[length]
        head = self._last_delta + _VARINTS[count] + lengths
        tail = _encoded_headers(headers) if headers else b"\x00"
        record_bytes = len(head) + len(value) + len(tail)
        prefix = _VARINTS[record_bytes]
        record_bytes += len(prefix)
        size_bytes = self.size_bytes + record_bytes
        if size_bytes > self._max_bytes:
            if count:
                return 0
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"record needs a batch of {size_bytes} bytes, the limit is {self._max_bytes}",
            )
        self.size_bytes = size_bytes
        if timestamp_ms > self._max_ms:
            self._max_ms = timestamp_ms
        if length < _SMALL_BYTES:
            self._pieces.append(prefix + head + value + tail)
        else:
            self._pieces += (prefix, head, value, tail)
        self.count = count + 1
        return record_bytes

    def build(self) -> bytes:
        """The batch, not yet stamped (base offset 0, leader epoch -1), without a producer, and without a CRC:
        `batch.sealed` sets both.

        Raises:
            Refused: INVALID_RECORD, it holds no record.
        """
        if not self.count:
            raise Refused(ErrorCode.INVALID_RECORD, "a batch needs at least one record")
        codec, pieces, size_bytes = Compression.NONE, self._pieces, self.size_bytes
        if self._compression is not Compression.NONE:
            body = compress(self._compression, b"".join(pieces))
            if records_batch.HEADER_BYTES + len(body) < size_bytes:
                codec, pieces, size_bytes = self._compression, [body], records_batch.HEADER_BYTES + len(body)
        header = records_batch.header_without_crc(
            size_bytes, self.count, attributes=codec, base_timestamp_ms=self._base_ms, max_timestamp_ms=self._max_ms
        )
        return b"".join((header, *pieces))


def _with_length(content: bytes) -> bytes:
    plain = content if type(content) is bytes else bytes(memoryview(content))
    return _VARINTS[len(plain)] + plain


def _encoded_headers(headers: Headers) -> bytes:
    rows = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be text, not {type(name).__name__}")
        rows.append(_with_length(name.encode()) + (_VARINTS[-1] if content is None else _with_length(content)))
    return _VARINTS[len(rows)] + b"".join(rows)
