"""What a server of ours refuses, and how: by an error of the connection, of the stream, or by a status (N6)."""

from __future__ import annotations

import asyncio
import gzip
import struct

import pytest
from raw_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH,
    RST,
    SETTINGS,
    WINDOW,
    Peer,
    block,
    call,
    connected,
    frame,
    literal,
    message,
    served,
    setting,
)

from strandline.transport import connection

NO_ERROR, PROTOCOL, INTERNAL, FLOW, TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)
CALM = 11
WHOLE = END_HEADERS | END_STREAM


def _u32(number: int) -> bytes:
    return struct.pack(">I", number)


def _window(stream: int, size: int) -> bytes:
    return frame(WINDOW, _u32(size), 0, stream)


_BOMB = b"\x40" + bytes((1,)) + b"a" + b"\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 200
"""One field of 4,000 bytes that goes into the table, and 200 references to it."""

CONNECTION: dict[str, tuple[bytes, int]] = {
    "a frame above what we take": (struct.pack(">I", (1 << 20) + 1)[1:] + bytes((DATA, 0)) + _u32(1), SIZE),
    "DATA on stream 0": (frame(DATA, b"x"), PROTOCOL),
    "DATA on an idle stream": (frame(DATA, b"x", 0, 5), PROTOCOL),
    "DATA with more padding than bytes": (call() + frame(DATA, b"\x09abc", PADDED, 1), PROTOCOL),
    "HEADERS on stream 0": (call(0), PROTOCOL),
    "HEADERS on a server's stream": (call(2), PROTOCOL),
    "HEADERS with more padding than bytes": (frame(HEADERS, b"\xff\x82", PADDED | END_HEADERS, 1), PROTOCOL),
    "HEADERS that are no HPACK": (frame(HEADERS, b"\xff\xff\xff\xff\xff\xff", END_HEADERS, 1), COMPRESSION),
    "another frame inside a header block": (call(flags=0) + frame(PING, bytes(8)), PROTOCOL),
    "an unknown frame inside a header block": (call(flags=0) + frame(77, b""), PROTOCOL),
    "CONTINUATION of another stream": (call(flags=0) + frame(CONTINUATION, b"", END_HEADERS, 3), PROTOCOL),
    "CONTINUATION without HEADERS": (frame(CONTINUATION, b"", END_HEADERS, 1), PROTOCOL),
    "PRIORITY on stream 0": (frame(PRIORITY, bytes(5)), PROTOCOL),
    "RST_STREAM on an idle stream": (frame(RST, bytes(4), 0, 1), PROTOCOL),
    "RST_STREAM of 3 bytes": (call() + frame(RST, bytes(3), 0, 1), SIZE),
    "SETTINGS on a stream": (frame(SETTINGS, b"", 0, 1), PROTOCOL),
    "SETTINGS of 3 bytes": (frame(SETTINGS, bytes(3)), SIZE),
    "an acknowledgement with settings": (frame(SETTINGS, bytes(6), 1), SIZE),
    "ENABLE_PUSH 2": (setting(s2=2), PROTOCOL),
    "INITIAL_WINDOW_SIZE 2^31": (setting(s4=1 << 31), FLOW),
    "MAX_FRAME_SIZE 16383": (setting(s5=16_383), PROTOCOL),
    "windows above 2^31 - 1 by SETTINGS": (call() + _window(1, 1 << 30) + setting(s4=(1 << 31) - 1), FLOW),
    "PUSH_PROMISE": (call() + frame(PUSH, _u32(2) + block(), END_HEADERS, 1), PROTOCOL),
    "PING of 7 bytes": (frame(PING, bytes(7)), SIZE),
    "PING on a stream": (frame(PING, bytes(8), 0, 1), PROTOCOL),
    "GOAWAY on a stream": (frame(GOAWAY, bytes(8), 0, 1), PROTOCOL),
    "WINDOW_UPDATE of 0": (_window(0, 0), PROTOCOL),
    "a window above 2^31 - 1": (_window(0, (1 << 31) - 1), FLOW),
    "WINDOW_UPDATE on an idle stream": (_window(3, 1), PROTOCOL),
    "WINDOW_UPDATE of 3 bytes": (frame(WINDOW, bytes(3)), SIZE),
    "HEADERS on a stream that both ended": (
        call(1, (b"content-type", b"text/html"), flags=WHOLE) + call(flags=WHOLE),
        CLOSED,
    ),
    # Floods: frames that cost their sender nothing, and do nothing.
    "a flood of empty DATA": (call(path=b"/it/Unread") + frame(DATA, b"", 0, 1) * 3_000, CALM),
    "a flood of DATA that is padding": (call(path=b"/it/Unread") + frame(DATA, bytes(1), PADDED, 1) * 3_000, CALM),
    "a flood of SETTINGS": (setting(s3=1) * 3_000, CALM),
    "a flood of PRIORITY": (frame(PRIORITY, bytes(5), 0, 3) * 3_000, CALM),
    "a flood of pings": (frame(PING, bytes(8)) * 20, CALM),
    "a flood of WINDOW_UPDATE": (call(path=b"/it/Unread") + _window(1, 1) * 3_000, CALM),
    "a flood of unknown frames": (frame(99, b"x") * 3_000, CALM),
    "a flood of empty CONTINUATION": (call(flags=0) + frame(CONTINUATION, b"", 0, 1) * 3_000, CALM),
    "a flood of CONTINUATION (CVE-2024-27316)": (call(flags=0) + frame(CONTINUATION, b"x" * 16_000, 0, 1) * 5, CALM),
    "a flood of HEADERS": (
        b"".join(call(number, path=b"/it/Never", flags=WHOLE) for number in range(1, 3_001, 2)),
        CALM,
    ),
    "rapid reset (CVE-2023-44487)": (
        b"".join(call(n, path=b"/it/Never", flags=WHOLE) + frame(RST, _u32(CANCEL), 0, n) for n in range(1, 4_001, 2)),
        CALM,
    ),
    "resets that we are made to send (CVE-2025-8671)": (
        b"".join(call(n, path=b"/it/Never", flags=WHOLE) + _window(n, 0) for n in range(1, 1_001, 2)),
        CALM,
    ),
    "a path of 1 MiB": (
        frame(HEADERS, (whole := block(path=b"/" + b"a" * (1 << 20)))[:16_000], 0, 1)
        + b"".join(frame(CONTINUATION, whole[at : at + 16_000], 0, 1) for at in range(16_000, 1 << 20, 16_000)),
        CALM,
    ),
    "a header block that expands without end": (frame(HEADERS, block() + _BOMB, WHOLE, 1), CALM),
}


async def _outcome(peer: Peer) -> int:
    return (await peer.until(GOAWAY)).code


@pytest.mark.parametrize("attack", CONNECTION)
async def test_the_connection_ends_with_the_code_of_the_rule(attack: str) -> None:
    """The peer gets GOAWAY with RFC 9113's code, and the server serves the next connection."""
    sent, code = CONNECTION[attack]
    async with served() as port:
        async with connected(port, sent) as peer:
            said = await _outcome(peer)
        async with connected(port) as peer:
            goes_on = await peer.goes_on()

    assert said == code
    assert goes_on


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (PREFACE + frame(PING, bytes(8)), PROTOCOL),
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", PROTOCOL),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30), PROTOCOL),
    ],
    ids=["no SETTINGS", "HTTP/1.1", "TLS"],
)
async def test_another_protocol_is_refused_by_name(hello: bytes, code: int) -> None:
    """Whatever does not begin as HTTP/2 does gets GOAWAY at once."""
    async with served() as port, connected(port, hello=hello) as peer:
        said = await _outcome(peer)

    assert said == code


async def test_a_refused_header_block_shows_no_address() -> None:
    """The peer reads why its connection ends, and nothing about this process's memory."""
    endless = frame(HEADERS, b"\xff\xe0" + b"\xff" * 20, END_HEADERS, 1)
    async with served() as port, connected(port, endless) as peer:
        assert (await peer.until(GOAWAY)).payload[8:] == b"a header block is not HPACK"


STREAM: dict[str, tuple[bytes, int]] = {
    "a name in upper case": (call(1, (b"X-Name", b"x"), flags=WHOLE), PROTOCOL),
    "a value with a line end": (call(1, (b"x", b"a\r\nb"), flags=WHOLE), PROTOCOL),
    "connection": (call(1, (b"connection", b"close"), flags=WHOLE), PROTOCOL),
    "te: gzip": (call(1, (b"te", b"gzip"), flags=WHOLE), PROTOCOL),
    "no :path": (call(1, without=b":path", flags=WHOLE), PROTOCOL),
    "an empty :path": (call(1, path=b"", flags=WHOLE), PROTOCOL),
    "no :method": (call(1, without=b":method", flags=WHOLE), PROTOCOL),
    "no :scheme": (call(1, without=b":scheme", flags=WHOLE), PROTOCOL),
    ":status in a request": (frame(HEADERS, literal(b":status", b"200") + block(), WHOLE, 1), PROTOCOL),
    ":path twice": (frame(HEADERS, literal(b":path", b"/") + block(), WHOLE, 1), PROTOCOL),
    "a pseudo-field after others": (frame(HEADERS, block() + literal(b":late", b"x"), WHOLE, 1), PROTOCOL),
    "a stream that depends on itself": (frame(HEADERS, _u32(1) + b"\0" + block(), WHOLE | 0x20, 1), PROTOCOL),
    "PRIORITY of 4 bytes": (call() + frame(PRIORITY, bytes(4), 0, 1), SIZE),
    "PRIORITY on itself": (call() + frame(PRIORITY, _u32(1) + b"\0", 0, 1), PROTOCOL),
    "a body shorter than content-length": (
        call(1, (b"content-length", b"9")) + frame(DATA, message(b"x"), END_STREAM, 1),
        PROTOCOL,
    ),
    "a body longer than content-length": (
        call(1, (b"content-length", b"3")) + frame(DATA, message(b"x"), 0, 1),
        PROTOCOL,
    ),
    "no body where there is a content-length": (call(1, (b"content-length", b"3"), flags=WHOLE), PROTOCOL),
    "a content-length that is not a number": (call(1, (b"content-length", b"-1"), flags=WHOLE), PROTOCOL),
    "a content-length that int() does not read": (call(1, (b"content-length", b"9" * 5_000), flags=WHOLE), PROTOCOL),
    "headers in the middle that do not end": (call() + call(), PROTOCOL),
    "trailers with :path": (call() + call(flags=WHOLE), PROTOCOL),
    "DATA after the end": (call(path=b"/it/Never", flags=WHOLE) + frame(DATA, b"x", 0, 1), CLOSED),
    "HEADERS after the end": (call(path=b"/it/Never", flags=WHOLE) + call(flags=WHOLE), CLOSED),
    "a window update of 0": (call() + _window(1, 0), PROTOCOL),
    "a stream's window above 2^31 - 1": (call() + _window(1, (1 << 31) - 1), FLOW),
    "more DATA than the window": (call(path=b"/it/Unread") + frame(DATA, message(bytes(99_995)), 0, 1) * 2, FLOW),
    "a -bin value that is not base64": (call(1, (b"x-bin", b"!"), flags=WHOLE), PROTOCOL),
}


@pytest.mark.parametrize("wrong", STREAM)
async def test_the_stream_ends_with_the_code_of_the_rule(wrong: str) -> None:
    """RST_STREAM has RFC 9113's code, and the next call on the connection is answered: HPACK is in step."""
    sent, code = STREAM[wrong]
    async with served() as port, connected(port, sent) as peer:
        said = (await peer.until(RST, stream=1)).code
        goes_on = await peer.goes_on()

    assert said == code
    assert goes_on


OK, INVALID, DEADLINE, EXHAUSTED, UNIMPLEMENTED, INTERNAL_STATUS = 0, 3, 4, 8, 12, 13
STATUS: dict[str, tuple[bytes, int]] = {
    "17 KiB of headers": (call(1, (b"x", b"a" * 17_000), flags=WHOLE), EXHAUSTED),
    "a message above the limit": (call() + frame(DATA, message(b"")[:1] + _u32(5 << 20), 0, 1), EXHAUSTED),
    "a compressed message without an encoding": (call() + frame(DATA, message(b"x", 1), 0, 1), INTERNAL_STATUS),
    "a flag that gRPC does not have": (call() + frame(DATA, message(b"x", 2), 0, 1), INTERNAL_STATUS),
    "no gzip under gzip": (call(1, (b"grpc-encoding", b"gzip")) + frame(DATA, message(b"x", 1), 0, 1), INTERNAL_STATUS),
    "gzip that is cut": (
        call(1, (b"grpc-encoding", b"gzip")) + frame(DATA, message(gzip.compress(b"x" * 99)[:-9], 1), 0, 1),
        INTERNAL_STATUS,
    ),
    "bytes after the end of gzip": (
        call(1, (b"grpc-encoding", b"gzip")) + frame(DATA, message(gzip.compress(b"x") * 2, 1), 0, 1),
        INTERNAL_STATUS,
    ),
    "gzip that expands above the limit": (
        call(1, (b"grpc-encoding", b"gzip")) + frame(DATA, message(gzip.compress(bytes(5 << 20)), 1), 0, 1),
        EXHAUSTED,
    ),
    "an encoding we lack": (call(1, (b"grpc-encoding", b"zstd"), flags=WHOLE), UNIMPLEMENTED),
    "the end inside a message": (call() + frame(DATA, message(b"xyz")[:-1], END_STREAM, 1), INTERNAL_STATUS),
    "the end inside a prefix": (call() + frame(DATA, b"\0\0", END_STREAM, 1), INTERNAL_STATUS),
    "no message": (call(flags=WHOLE), INTERNAL_STATUS),
    "a timeout of nine digits": (call(1, (b"grpc-timeout", b"123456789S"), flags=WHOLE), INTERNAL_STATUS),
    "a timeout without a unit": (call(1, (b"grpc-timeout", b"12"), flags=WHOLE), INTERNAL_STATUS),
    "a method that is not served": (call(path=b"/it/None", flags=WHOLE), UNIMPLEMENTED),
    **{
        f"a timeout that is over, in {unit}": (call(1, (b"grpc-timeout", time)), DEADLINE)
        for unit, time in {"n": b"1n", "u": b"1u", "m": b"1m", "H": b"0H", "M": b"0M", "S": b"0S"}.items()
    },
}


@pytest.mark.parametrize("wrong", STATUS)
async def test_the_call_ends_with_a_status(wrong: str) -> None:
    """The call ends as gRPC says, and the next one on the connection is answered."""
    sent, status = STATUS[wrong]
    async with served() as port, connected(port, sent) as peer:
        said = await peer.status(1)
        goes_on = await peer.goes_on()

    assert said == status
    assert goes_on


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (call(1, (b"content-type", b"text/html"), flags=WHOLE), "415"),
        (call(1, without=b"content-type", method=b"GET", flags=WHOLE), "415"),
        (call(1, method=b"PUT", flags=WHOLE), "405"),
    ],
    ids=["text", "GET /", "PUT"],
)
async def test_what_is_no_grpc_is_answered_as_http(sent: bytes, status: str) -> None:
    """A browser learns by the status of HTTP, and by a short body within its windows, what the port is for."""
    async with served() as port, connected(port, sent, settings=setting(s4=3)) as peer:
        fields = peer.fields(await peer.until(HEADERS))
        first = await peer.until(DATA)
        peer.send(_window(1, 1_000))
        rest = await peer.answer(1)

    assert fields[":status"] == status
    assert len(first.payload) == 3
    assert int(fields["content-length"]) == 3 + len(rest)


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        (call(flags=0), CALM),
        (call()[:-1], CALM),
        (frame(SETTINGS), TIMEOUT),
    ],
    ids=["a header block", "a frame", "SETTINGS"],
)
async def test_what_is_not_completed_in_time_ends_the_connection(
    sent: bytes, outcome: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame and a header block have 60 s, the acknowledgement of SETTINGS 10 s; here less."""
    monkeypatch.setattr(connection, "INCOMPLETE_S" if outcome == CALM else "SETTINGS_S", 0.05)

    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PREFACE + setting() + sent)
        async with asyncio.timeout(10):
            said = await reader.read()
        writer.close()

    assert said.rpartition(frame(GOAWAY)[3:5])[2].find(_u32(outcome)) >= 0


async def test_a_message_that_is_not_completed_in_time_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has 60 s, here less, from its first byte; a stream that is silent between messages may be."""
    monkeypatch.setattr(connection, "INCOMPLETE_S", 1.1)
    idle, slow = call(1, path=b"/it/Each"), call(3, path=b"/it/Each")
    sent = idle + frame(DATA, message(b"a"), 0, 1) + slow + frame(DATA, message(b"abc")[:6], 0, 3)
    async with served() as port, connected(port, sent) as peer:
        said = await peer.status(3)
        peer.send(frame(DATA, message(b"b"), END_STREAM, 1))
        answer = await peer.answer(1)

    assert said == DEADLINE
    assert answer in (message(b"b"), message(b"a") + message(b"b"))
