"""Header blocks as gRPC uses them: written as HPACK literals, and read; metadata, time-outs, status messages.

The rules are from RFC 7541 and gRPC's PROTOCOL-HTTP2. Invariant: we send only static indices and literals without
indexing, so a block means the same at any time on any connection, and constant parts are encoded once.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote_from_bytes, unquote_to_bytes

import hpack

from strandline.transport.frames import Code, ConnectionFailed

Field = tuple[bytes, bytes]
Metadata = tuple[tuple[str, str | bytes], ...]

MAX_BLOCK_BYTES = 64 << 10
"""Limit for HEADERS together with its CONTINUATION frames; above it the connection ends."""
MOST_EXPANDED_BYTES = 2 * MAX_BLOCK_BYTES
"""Limit for a decoded list, counted as in RFC 7541 4.1: enough for 64 KiB of Huffman codes, not for an HPACK bomb."""

TYPE = b"application/grpc"
ENCODINGS = b"identity,gzip"
_MOST_TIMEOUT_S = 10.0**8

_NAME = re.compile(rb"[0-9a-z_.\-]+")
_FIELD_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]")
_PRINTABLE = re.compile(rb"[ -~]*")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_OURS = frozenset((b"content-type", b"te", b"user-agent", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"))
_OF_STATUS = frozenset((b"grpc-status", b"grpc-message"))


class BadHeaders(Exception):
    """A header list that HTTP/2 calls malformed (RFC 9113, 8.1.1)."""


# ---- writing


def _integer(value: int, bits: int) -> bytes:
    """An integer with a prefix of ``bits`` bits (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    out = bytearray((most,))
    value -= most
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """A field encoded as a literal without indexing (RFC 7541, 6.2.2)."""
    return b"".join((b"\0", _integer(len(name), 7), name, _integer(len(value), 7), value))


POST, SCHEME_HTTP, SCHEME_HTTPS, STATUS_200 = b"\x83", b"\x86", b"\x87", b"\x88"
"""Entries of the static table (RFC 7541, appendix A)."""
EMPTY_TABLE = b"\x20"
"""Sets the size of our encoder's table to 0; required before the next block once the peer has set a table size."""

RESPONSE = STATUS_200 + literal(b"content-type", TYPE) + literal(b"grpc-accept-encoding", ENCODINGS)
OK_TRAILERS = literal(b"grpc-status", b"0")


def request_block(method: bytes, authority: bytes, user_agent: bytes, scheme: bytes) -> bytes:
    """The beginning of the header block of every call of one method on one channel."""
    return b"".join(
        (
            POST,
            scheme,
            literal(b":path", method),
            literal(b":authority", authority),
            literal(b"te", b"trailers"),
            literal(b"content-type", TYPE),
            literal(b"user-agent", user_agent),
            literal(b"grpc-accept-encoding", ENCODINGS),
        )
    )


def timeout_field(seconds: float) -> bytes:
    """The field ``grpc-timeout``: at most eight digits, in the smallest unit in which the value fits."""
    for unit, size in ((b"n", 1e-9), (b"u", 1e-6), (b"m", 1e-3), (b"S", 1.0)):
        digits = max(1, int(seconds / size)) if seconds < _MOST_TIMEOUT_S * size else _MOST_TIMEOUT_S
        if digits < _MOST_TIMEOUT_S:
            return literal(b"grpc-timeout", b"%d%s" % (digits, unit))
    return literal(b"grpc-timeout", b"99999999S")


def metadata_block(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    """Metadata as literals; ``-bin`` values in base64.

    Raises:
        ValueError: a key or a value that gRPC does not allow, or a key that is gRPC's own.
    """
    return b"".join(literal(*_written(key, value)) for key, value in metadata)


def _written(key: str, value: str | bytes) -> Field:
    name = key.encode("ascii", "replace")
    if not _NAME.fullmatch(name) or name in _OURS or name in _OF_STATUS:
        raise ValueError(f"metadata was invalid: the key {key!r} is gRPC's own, or not of [0-9a-z_.-]")
    content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    if name.endswith(b"-bin"):
        return name, base64.b64encode(content).rstrip(b"=")
    if not _PRINTABLE.fullmatch(content):
        raise ValueError(
            f"metadata was invalid: the value of {key!r} is not printable ASCII; a key in -bin takes bytes"
        )
    return name, content.strip(b" ")


def trailers_block(code: int, details: str, metadata: Sequence[tuple[str, str | bytes]], most: int) -> bytes:
    """The trailers of a call, with an answer's headers at most ``most`` bytes. The text is cut to give metadata up to
    three quarters of that; a field that does not fit is left out, because a part of it could not be read."""
    if not code and not details and not metadata:
        return OK_TRAILERS
    block, room = literal(b"grpc-status", b"%d" % code), most - 256
    fields = [_written(key, value) for key, value in metadata]
    if details:
        # A value may not begin or end with a space (RFC 9113, 8.2.1).
        safe = _UNQUOTED if details.strip(" ") == details else _UNQUOTED[1:]
        text = quote_from_bytes(details.encode("utf-8", "replace"), safe=safe).encode()
        wanted = sum(len(name) + len(value) + 32 for name, value in fields)
        text = _cut(text, max(0, room - 44 - (wanted if wanted <= room * 3 // 4 else 0)))
        block += literal(b"grpc-message", text)
        room -= len(text) + 44
    for name, value in fields:
        room -= len(name) + len(value) + 32
        if room >= 0:
            block += literal(name, value)
    return block


_UNQUOTED = "".join(chr(one) for one in range(0x20, 0x7F) if chr(one) != "%")


def _cut(text: bytes, most: int) -> bytes:
    """The text cut to at most this many bytes, without half an escape at its end."""
    if len(text) <= most:
        return text
    text = text[:most]
    escape = text.rfind(b"%", max(0, most - 2))
    return text if escape < 0 else text[:escape]


# ---- reading


def read_block(decoder: hpack.Decoder, block: bytes) -> list[Field]:
    """The fields of a block; a connection's blocks are read in order of arrival.

    Raises:
        ConnectionFailed: it is not HPACK, or expands to more than the decoder's limit; the tables would then differ.
    """
    try:
        return decoder.decode(block, raw=True)  # type: ignore[return-value]  # raw: tuples of bytes
    except hpack.OversizedHeaderListError as error:
        raise ConnectionFailed(Code.ENHANCE_YOUR_CALM, "a header list is too large") from error
    except (hpack.HPACKError, IndexError) as error:
        # Without the library's text, which may show the peer an address of this process's memory.
        raise ConnectionFailed(Code.COMPRESSION_ERROR, "a header block is not HPACK") from error


def size_of(fields: Sequence[Field]) -> int:
    """The size of a header list as peers limit it (RFC 9113, 6.5.2)."""
    return sum(len(name) + len(value) + 32 for name, value in fields)


def split(fields: Sequence[Field]) -> tuple[dict[bytes, bytes], list[Field]]:
    """Pseudo-fields by name, and the others (RFC 9113, 8.2 and 8.3).

    Raises:
        BadHeaders: a name in upper case or with invalid characters, a value with line ends, a pseudo-field twice or
            after others, or a connection-specific field of HTTP/1.
    """
    pseudo: dict[bytes, bytes] = {}
    others: list[Field] = []
    for name, value in fields:
        if _BAD_VALUE.search(value):
            raise BadHeaders("a field's value has characters that no value may have")
        if name[:1] == b":":
            if others or name in pseudo:
                raise BadHeaders("a pseudo-field comes twice, or after other fields")
            pseudo[name] = value
        elif not _FIELD_NAME.fullmatch(name) or name in _HOP or (name == b"te" and value != b"trailers"):
            raise BadHeaders("a field's name is none of HTTP/2")
        else:
            others.append((name, value))
    return pseudo, others


def read_timeout(value: bytes) -> float | None:
    """The seconds in ``grpc-timeout``; None if it is malformed."""
    found = _TIMEOUT.fullmatch(value)
    return None if found is None else int(found[1]) * _UNIT_S[found[2]]


def read_metadata(fields: Sequence[Field]) -> Metadata:
    """The caller's own fields; ``-bin`` values, padded or not, as bytes; several values in one field are split.

    Raises:
        BadHeaders: a ``-bin`` value is not base64.
    """
    found: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if (name in _OURS and name != b"user-agent") or name in _OF_STATUS:
            continue
        if name.endswith(b"-bin"):
            found += [(name.decode(), _unbase64(part.strip())) for part in value.split(b",")]
        else:
            found.append((name.decode(), value.decode("utf-8", "replace")))
    return tuple(found)


def _unbase64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value.rstrip(b"=") + b"=" * (-len(value.rstrip(b"=")) % 4), validate=True)
    except binascii.Error as error:
        raise BadHeaders("a -bin value is not base64") from error


def read_message(value: bytes) -> str:
    """The text of ``grpc-message``; wrong escapes are left as they are."""
    return unquote_to_bytes(value).decode("utf-8", "replace")
