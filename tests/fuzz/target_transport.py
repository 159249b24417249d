"""Bytes from strangers on a connection of the transport, at a server and at a channel.

Invariant: whatever arrives, and however it is cut, nothing is raised; what is sent in return are whole frames; what the
connection may hold is bounded while it lives and given back when it has ended. `check_cuts`: a conversation that is cut
anywhere has the frames of the whole one, except for how much credit is given, and when. `check_recorded`: so has what
real clients sent, and what a fuzzer makes of that.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grpc
import interop_service
import raw_frames as raw
from draws import Draws

from strandline import transport
from strandline.transport import flow
from strandline.transport.channel import ClientConnection
from strandline.transport.serving import Port, ServerConnection

Side = Callable[[], tuple[Any, Any]]
_NUMBERS = (0, 1, 5, 16_383, 16_384, 65_535, 65_536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_STREAMS = (1, 3, 0, 5, 2, 1, 7, (1 << 31) - 1)
_PATHS = (b"/it/Echo", b"/it/Each", b"/it/Unread", b"/it/Never", b"/it/Absent", b"", b"*")
_FIELDS = (
    (b"grpc-timeout", b"1n"), (b"grpc-timeout", b"1x"), (b"grpc-encoding", b"gzip"), (b"grpc-encoding", b"br"),
    (b"content-type", b"text/html"), (b"content-length", b"3"), (b"te", b"x"), (b":late", b"x"), (b"Upper", b"x"),
    (b"a-bin", b"=="), (b"connection", b"close"), (b"x", b"y" * 17_000), (b":status", b"200"), (b"grpc-status", b"0"),
    (b"grpc-status", b"99999"), (b"grpc-message", b"%zz%"),
)  # fmt: skip


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.sent = b""
        self.is_over = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    abort = close


def check(data: bytes) -> None:
    """The oracle: the first byte selects the side, the rest draws frames and where they are cut."""
    asyncio.run(_check(Draws(data)))


async def _check(draws: Draws) -> None:
    make = draws.choice((_server_side, _client_side))
    content = b"".join(_conversation(draws, at_server=make is _server_side))
    places = [draws.integer(0, len(content)) for _ in range(draws.integer(0, 3))]
    await _fed(make, content, places)


def check_cuts(data: bytes) -> None:
    """The oracle of cuts."""
    asyncio.run(_check_cuts(Draws(data)))


async def _check_cuts(draws: Draws) -> None:
    content = b"".join(_conversation(draws, at_server=True))
    await check_cut(_server_side, content, [draws.integer(0, len(content))])


def check_recorded(data: bytes) -> None:
    """The oracle of what a client sent to the interoperability service, cut at a place that its end draws."""
    asyncio.run(check_cut(interop_side, data, [int.from_bytes(data[-2:], "big") % (len(data) + 1)]))


async def check_cut(make: Side, content: bytes, places: Iterable[int]) -> None:
    """Cut at each of these places, one at a time, it has the same frames as whole."""
    whole = _without_credit(await _fed(make, content, ()))
    for place in places:
        cut = await _fed(make, content, (place,))

        assert whole == _without_credit(cut), f"cut at {place} of {content!r}"


def _conversation(draws: Draws, *, at_server: bool) -> Iterator[bytes]:
    if not draws.one_in(20):
        yield (raw.PREFACE if at_server else b"") + raw.setting()
    while not draws.is_over:
        yield draws.choice((_call, _data, _frame, _frame, _settings, _window, _junk))(draws)


def _call(draws: Draws) -> bytes:
    path, stream = draws.choice(_PATHS), draws.choice(_STREAMS)
    fields = [draws.choice(_FIELDS) for _ in range(draws.integer(0, 2))]
    block = raw.block(*fields, path=path) if draws.one_in(2) else b"".join(raw.literal(*one) for one in fields)
    flags = draws.choice((raw.END_HEADERS, raw.END_HEADERS | raw.END_STREAM, 0, 0xFF))
    return raw.frame(raw.HEADERS, block, flags, stream)


def _data(draws: Draws) -> bytes:
    size = draws.choice((0, 3, 300, 70_000))
    content = raw.message(bytes(size), draws.choice((0, 0, 1, 2)))
    if draws.one_in(4):
        content = content[: draws.integer(0, 9)]
    return raw.frame(raw.DATA, content, draws.choice((0, raw.END_STREAM, raw.PADDED)), draws.choice(_STREAMS))


def _frame(draws: Draws) -> bytes:
    payload = draws.taken(draws.choice((0, 4, 5, 8, 9, 17)))
    return raw.frame(draws.integer(0, 11), payload, draws.choice((0, 1, 4, 5, 0xFF)), draws.choice(_STREAMS))


def _settings(draws: Draws) -> bytes:
    return raw.setting(**{f"s{draws.integer(0, 8)}": draws.choice(_NUMBERS)})


def _window(draws: Draws) -> bytes:
    return raw.frame(raw.WINDOW, draws.choice(_NUMBERS).to_bytes(4, "big"), 0, draws.choice(_STREAMS))


def _junk(draws: Draws) -> bytes:
    return draws.taken(draws.integer(1, 40))


def _server_side(service: grpc.GenericRpcHandler | None = None) -> tuple[Any, Any]:
    server = transport.server(handlers=[service or raw.handlers()])
    return ServerConnection(Port(server, _NOT_LISTENING, None)), server


def interop_side() -> tuple[Any, Any]:
    """A connection of the interoperability service, and its server."""
    return _server_side(interop_service.handlers())


def _client_side() -> tuple[Any, Any]:
    channel = transport.insecure_channel("127.0.0.1:1")
    return ClientConnection(channel), channel


class _NotListening:
    def fileno(self) -> int:
        return -1


_NOT_LISTENING: Any = _NotListening()


async def _fed(make: Side, content: bytes, places: Sequence[int]) -> list[raw.Frame]:
    """Give a new connection the content, cut at these places; returns the frames that it sent."""
    connection, owner = make()
    process = connection.arriving.process
    held = process.held
    wire = Wire()
    connection.connection_made(wire)
    bounds = [0, *sorted(places), len(content)]
    for start, end in itertools.pairwise(bounds):
        _feed(connection, content[start:end], wire)
    assert connection.held <= flow.CONNECTION_BYTES
    connection.outgoing.flush()
    for _ in range(8):
        await asyncio.sleep(0)
    connection.outgoing.flush()
    found = list(_frames(wire.sent))
    connection.connection_lost(None)
    # Handlers that wait for their caller are cancelled with the server.
    await (owner.close() if make is _client_side else owner.stop(0))
    assert process.held == held, "what arrived was not given back"
    return found


def _feed(connection: Any, part: bytes, wire: Wire) -> None:
    while part and not wire.is_over:
        room = connection.get_buffer(-1)
        size = min(len(part), len(room))
        room[:size] = part[:size]
        connection.buffer_updated(size)
        part = part[size:]


def _frames(sent: bytes) -> Iterator[raw.Frame]:
    sent = sent.removeprefix(raw.PREFACE)
    while sent:
        size = int.from_bytes(sent[:3], "big")
        assert len(sent) >= 9 + size, "the last frame is not whole"
        yield raw.Frame(sent[3], sent[4], int.from_bytes(sent[5:9], "big"), sent[9 : 9 + size])
        sent = sent[9 + size :]


def _without_credit(found: Sequence[raw.Frame]) -> list[raw.Frame]:
    return [one for one in found if one.kind != raw.WINDOW]
