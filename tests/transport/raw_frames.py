"""HTTP/2 by hand: frames as bytes, a peer that sends them, and a server that a test scripts frame by frame."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import grpc
import hpack

from strandline import transport

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM = ACK = 1
END_HEADERS = 4
PADDED = 8
READ_S = 10.0
"""Far above what any answer takes."""


class Frame(NamedTuple):
    """One frame that arrived."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM and GOAWAY."""
        return int(struct.unpack(">I", self.payload[-4:] if self.kind == RST else self.payload[4:8])[0])

    @property
    def number(self) -> int:
        """The first number of its payload."""
        return int(struct.unpack(">I", self.payload[:4])[0])


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """A frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def setting(**values: int) -> bytes:
    """SETTINGS with s1=..., s4=... by their numbers."""
    return frame(SETTINGS, b"".join(struct.pack(">HI", int(name[1:]), value) for name, value in values.items()))


def literal(name: bytes, value: bytes) -> bytes:
    """A header field without any table."""
    return b"\0" + _sized(name) + _sized(value)


def _sized(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    out, size = [127], size - 127
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes((*out, size)) + text


def block(*more: tuple[bytes, bytes], without: bytes = b"", path: bytes = b"/it/Echo", **other: bytes) -> bytes:
    """The headers of a call; ``other``: a pseudo-field's value by its name."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
    fields = [(name, other.get(name[1:].decode(), value)) for name, value in fields if name != without]
    usual = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
    given = {name for name, _ in more}
    fields += [one for one in usual if one[0] not in given and one[0] != without]
    return b"".join(literal(*one) for one in (*fields, *more))


def call(stream: int = 1, *more: tuple[bytes, bytes], flags: int = END_HEADERS, **other: Any) -> bytes:
    """HEADERS that begin a call."""
    return frame(HEADERS, block(*more, **other), flags, stream)


def message(content: bytes, flag: int = 0) -> bytes:
    """A gRPC message."""
    return struct.pack(">BI", flag, len(content)) + content


def data(content: bytes, stream: int = 1, *, ends: bool = False, most: int = 16_000) -> bytes:
    """DATA frames of at most ``most`` bytes with this content."""
    starts = range(0, len(content), most)
    last = starts[-1] if ends else -1
    return b"".join(frame(DATA, content[at : at + most], END_STREAM * (at == last), stream) for at in starts)


class Peer:
    """One end of a connection, at the level of frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = hpack.Decoder()
        self.seen: list[Frame] = []

    def send(self, *frames: bytes) -> None:
        """Send these."""
        self.writer.write(b"".join(frames))

    async def frame(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        try:
            async with asyncio.timeout(READ_S):
                head = await self.reader.readexactly(9)
                size = int.from_bytes(head[:3], "big")
                payload = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        found = Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        self.seen.append(found)
        if found.kind == SETTINGS and not found.flags & ACK:
            self.send(frame(SETTINGS, b"", ACK))
        return found

    async def until(self, *kinds: int, stream: int | None = None) -> Frame:
        """The next frame of one of these kinds, on this stream if one is given."""
        while (found := await self.frame()) is not None:
            if found.kind in kinds and stream in (None, found.stream) and not (found.kind == SETTINGS and found.flags):
                return found
        raise AssertionError(f"the connection ended after {self.seen[-5:]}")

    def fields(self, found: Frame) -> dict[str, str]:
        """The fields of HEADERS; to be asked for each, in their order."""
        return dict(self._decoder.decode(found.payload))

    async def status(self, stream: int) -> int:
        """The grpc-status that a stream ends with."""
        while True:
            found = await self.until(HEADERS, RST, GOAWAY)
            assert found.kind == HEADERS, f"no status, but {found}"
            fields = self.fields(found)
            if found.stream == stream and "grpc-status" in fields:
                return int(fields["grpc-status"])

    async def answer(self, stream: int) -> bytes:
        """The bytes of all DATA of a stream, to its end."""
        content = b""
        while True:
            found = await self.until(DATA, HEADERS, stream=stream)
            if found.kind == HEADERS:
                self.fields(found)
            else:
                content += found.payload
            if found.flags & END_STREAM:
                return content

    async def goes_on(self, stream: int = 3) -> bool:
        """Whether one more call is answered."""
        self.send(call(stream), frame(DATA, message(b"on"), END_STREAM, stream))
        return await self.answer(stream) == message(b"on")

    async def close(self) -> None:
        """End the connection."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def connected(port: int, *frames: bytes, settings: bytes = setting(), hello: bytes = b"") -> AsyncIterator[Peer]:
    """A client's end that has said hello, and then these frames."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))
    peer.send(hello or PREFACE + settings, *frames)
    try:
        yield peer
    finally:
        await peer.close()


async def _echo(request: bytes, context: Any) -> bytes:
    return request


async def _each(requests: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


async def _never(request: bytes, context: Any) -> bytes:
    await asyncio.Event().wait()
    return b""


async def _unread(requests: Any, context: Any) -> None:
    await asyncio.Event().wait()


HANDLERS: dict[str, Any] = {
    "Echo": grpc.unary_unary_rpc_method_handler(_echo),
    "Each": grpc.stream_stream_rpc_method_handler(_each),
    "Never": grpc.unary_unary_rpc_method_handler(_never),
    "Unread": grpc.stream_stream_rpc_method_handler(_unread),
}


def handlers(**more: Any) -> grpc.GenericRpcHandler:
    """`HANDLERS` and these, as a service."""
    return grpc.method_handlers_generic_handler("it", {**HANDLERS, **more})


@asynccontextmanager
async def served(*options: tuple[str, Any], **more: Any) -> AsyncIterator[int]:
    """The port of a server of ours with `HANDLERS`, and these."""
    server = transport.server(handlers=[handlers(**more)], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def scripted(
    *scripts: Script, settings: bytes = setting(), after: bytes | None = None, options: tuple[tuple[str, Any], ...] = ()
) -> AsyncIterator[Any]:
    """A channel of ours to a server whose connections follow these scripts, one each, after both have said hello; all
    but the first say ``after``, if it is given, instead of ``settings``."""
    left, tasks = list(scripts), []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        peer = Peer(reader, writer)
        await reader.readexactly(len(PREFACE))
        peer.send(settings if after is None or len(left) == len(scripts) else after)
        await left.pop(0)(peer)
        while await peer.frame() is not None:
            pass
        await peer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 24)
    port = listening.sockets[0].getsockname()[1]
    try:
        async with transport.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            yield channel
    finally:
        listening.close()
        await asyncio.wait_for(asyncio.gather(*tasks), READ_S)


def answered(stream: int, content: bytes, status: bytes = b"0") -> bytes:
    """The whole answer to a unary call."""
    head = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
    return (
        frame(HEADERS, head, END_HEADERS, stream)
        + frame(DATA, message(content), 0, stream)
        + frame(HEADERS, literal(b"grpc-status", status), END_HEADERS | END_STREAM, stream)
    )
