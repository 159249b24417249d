"""The frames of HTTP/2 (RFC 9113, section 6): their heads, the frames that we send, and checks of received ones.

Invariant: nothing here keeps state. Lengths that RFC 9113 fixes are checked by the functions that read frames, so that
their results need no further check.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The bytes that a client sends before its first frame (RFC 9113, 3.4)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

HEAD = struct.Struct(">HBBBI")
"""Length (upper 16 bits, lower 8), type, flags, stream."""
HEAD_BYTES = 9
U32 = struct.Struct(">I")
_MESSAGE_HEAD = struct.Struct(">HBBBIBI")
_SETTING = struct.Struct(">HI")

MAX_WINDOW = (1 << 31) - 1
LAST_STREAM = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384
LARGEST_FRAME = (1 << 24) - 1
"""The limits that RFC 9113 sets (6.5.2, 6.9.1)."""


class Code(IntEnum):
    """Error codes (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Setting(IntEnum):
    """Parameters of SETTINGS (RFC 9113, 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ConnectionFailed(Exception):
    """The peer broke a rule, so the connection ends with this code; the message becomes GOAWAY's debug data."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamFailed(Exception):
    """The peer broke a rule on one stream, which is reset with this code."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame; only for small payloads, because it copies."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 255, kind, flags, stream) + payload


def data_head(size: int, flags: int, stream: int) -> bytes:
    """The 9 bytes before ``size`` bytes of DATA."""
    return HEAD.pack(size >> 8, size & 255, DATA, flags, stream)


def message_head(size: int, flags: int, stream: int) -> bytes:
    """The 14 bytes before a message of ``size`` bytes that fits into one frame: the frame's head and gRPC's prefix."""
    whole = size + 5
    return _MESSAGE_HEAD.pack(whole >> 8, whole & 255, DATA, flags, stream, 0, size)


def header_frames(block: bytes, flags: int, stream: int, most: int) -> bytes:
    """A header block as HEADERS, followed by CONTINUATION if it is longer than ``most``, the peer's largest frame."""
    if len(block) <= most:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + most] for at in range(0, len(block), most)]
    last = len(parts) - 1
    return frame(HEADERS, flags, stream, parts[0]) + b"".join(
        frame(CONTINUATION, END_HEADERS if number == last else 0, stream, part)
        for number, part in enumerate(parts)
        if number
    )


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def reset(stream: int, code: Code) -> bytes:
    """An RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, U32.pack(code))


def goaway(last_stream: int, code: Code, debug: str = "") -> bytes:
    """A GOAWAY frame."""
    return frame(GOAWAY, 0, 0, U32.pack(last_stream) + U32.pack(code) + debug.encode()[:1024])


def window_update(stream: int, size: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, U32.pack(size))


def settings_of(payload: bytes, *, from_server: bool) -> Iterator[tuple[int, int]]:
    """The parameters in a SETTINGS frame, including unknown ones, which the caller ignores (6.5.2).

    Raises:
        ConnectionFailed: a length or a value that RFC 9113 does not allow.
    """
    if len(payload) % 6:
        raise ConnectionFailed(Code.FRAME_SIZE_ERROR, "the length of SETTINGS is not a multiple of 6")
    for key, value in _SETTING.iter_unpack(payload):
        if key == Setting.ENABLE_PUSH and value > (0 if from_server else 1):
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "ENABLE_PUSH has another value than 0 and 1")
        if key == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ConnectionFailed(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is above 2^31 - 1")
        if key == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= LARGEST_FRAME:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE is not within 2^14 and 2^24 - 1")
        yield key, value


def without_padding(payload: bytes, flags: int) -> bytes:
    """The header block in a HEADERS frame, without padding and priority.

    Raises:
        ConnectionFailed: the padding is longer than the frame.
    """
    start, end = 0, len(payload)
    if flags & PADDED:
        if not end:
            raise ConnectionFailed(Code.FRAME_SIZE_ERROR, "HEADERS has no place for the length of its padding")
        start, end = 1, end - payload[0]
    if flags & WITH_PRIORITY:
        start += 5
    if start > end:
        raise ConnectionFailed(Code.PROTOCOL_ERROR, "HEADERS has more padding than bytes")
    return payload[start:end]


def depends_on(payload: bytes, flags: int = 0) -> int:
    """The stream that a PRIORITY frame, or HEADERS with priority, names; priorities themselves are ignored (5.3.2)."""
    start = 1 if flags & PADDED else 0
    return int.from_bytes(payload[start : start + 4], "big") & MAX_WINDOW
