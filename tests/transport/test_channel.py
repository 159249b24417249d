"""What a channel of ours makes of what a server sends, frame by frame (N7)."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest
from raw_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PUSH,
    RST,
    Peer,
    answered,
    frame,
    literal,
    scripted,
    served,
    setting,
)

from strandline import transport
from strandline.transport import channel, flow, frames
from strandline.transport.options import options_of
from strandline.v1.leader_service_pb2_grpc import LeaderServiceServicer

WHOLE = END_HEADERS | END_STREAM
ANSWER = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
CODE = grpc.StatusCode


def _trailers(*fields: tuple[bytes, bytes]) -> bytes:
    return b"".join(literal(*one) for one in fields)


def _says(*sent: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Answer the first call with these frames."""

    async def script(peer: Peer) -> None:
        await peer.until(DATA)
        peer.send(*sent)

    return script


async def _outcome(dialled: Any) -> tuple[grpc.StatusCode, str]:
    call = dialled.unary_unary("/it/Echo")(b"x", timeout=10)
    return await call.code(), await call.details()


def _head(*fields: tuple[bytes, bytes], flags: int = END_HEADERS, before: bytes = ANSWER) -> bytes:
    return frame(HEADERS, before + _trailers(*fields), flags, 1)


OUTCOMES: dict[str, tuple[bytes, grpc.StatusCode, str]] = {
    "a status alone": (
        _head((b"grpc-status", b"5"), (b"grpc-message", b"n%C3%A4h %zz"), flags=WHOLE),
        CODE.NOT_FOUND,
        "näh %zz",
    ),
    "a number that is no status": (_head((b"grpc-status", b"77"), flags=WHOLE), CODE.UNKNOWN, ""),
    "more digits than int() reads": (_head((b"grpc-status", b"7" * 5_000), flags=WHOLE), CODE.UNKNOWN, ""),
    "no status": (_head(flags=WHOLE), CODE.INTERNAL, "without a status"),
    "DATA that ends the stream": (_head() + frame(DATA, bytes(5), END_STREAM, 1), CODE.INTERNAL, "without a status"),
    "OK and no message": (_head((b"grpc-status", b"0"), flags=WHOLE), CODE.OK, ""),
    "the end inside a message": (
        _head() + frame(DATA, b"\0\0\0\0\x09x", 0, 1) + frame(HEADERS, literal(b"grpc-status", b"0"), WHOLE, 1),
        CODE.INTERNAL,
        "inside a message",
    ),
    "a message above the limit": (_head() + frame(DATA, b"\0\x7f\0\0\0", 0, 1), CODE.RESOURCE_EXHAUSTED, "larger than"),
    "1xx first": (
        frame(HEADERS, literal(b":status", b"103"), END_HEADERS, 1) + _head((b"grpc-status", b"9"), flags=WHOLE),
        CODE.FAILED_PRECONDITION,
        "",
    ),
    "headers above the limit": (_head((b"x", b"a" * 17_000), flags=WHOLE), CODE.RESOURCE_EXHAUSTED, "metadata larger"),
    "a name in upper case": (_head((b"X", b"a"), flags=WHOLE), CODE.INTERNAL, "PROTOCOL_ERROR"),
    "DATA before headers": (frame(DATA, b"x", 0, 1), CODE.INTERNAL, "PROTOCOL_ERROR"),
    "PUSH_PROMISE": (frame(PUSH, struct.pack(">I", 2), END_HEADERS, 1), CODE.UNAVAILABLE, "PUSH_PROMISE"),
    "a flood of pings": (frame(PING, bytes(8)) * 3_000, CODE.UNAVAILABLE, "too many pings"),
    "GOAWAY with an error": (
        frame(GOAWAY, struct.pack(">II", 1, 11) + b"too_many_pings") + frame(RST, struct.pack(">I", 11), 0, 1),
        CODE.RESOURCE_EXHAUSTED,
        "ENHANCE_YOUR_CALM",
    ),
    **{
        f"HTTP {status}": (
            frame(HEADERS, literal(b":status", b"%d" % status) + literal(b"content-type", b"text/html"), WHOLE, 1),
            code,
            str(status),
        )
        for status, code in {
            400: CODE.INTERNAL, 401: CODE.UNAUTHENTICATED, 403: CODE.PERMISSION_DENIED, 404: CODE.UNIMPLEMENTED,
            429: CODE.UNAVAILABLE, 502: CODE.UNAVAILABLE, 503: CODE.UNAVAILABLE, 504: CODE.UNAVAILABLE,
            418: CODE.UNKNOWN,
        }.items()
    },
    **{
        f"RST_STREAM {number}": (frame(RST, struct.pack(">I", number), 0, 1), code, "reset")
        for number, code in {
            1: CODE.INTERNAL, 2: CODE.INTERNAL, 3: CODE.INTERNAL, 8: CODE.CANCELLED, 11: CODE.RESOURCE_EXHAUSTED,
            12: CODE.PERMISSION_DENIED, 99: CODE.INTERNAL,
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("said", OUTCOMES)
async def test_a_call_ends_with_the_status_that_grpc_gives_it(said: str) -> None:
    """By its trailers, else by what HTTP/2, HTTP or gRPC's table say of how it ended."""
    sent, code, details = OUTCOMES[said]
    async with scripted(_says(sent)) as dialled:
        found = await _outcome(dialled)

    assert found[0] is code
    assert details in found[1]


async def test_metadata_comes_with_both_ends_of_an_answer() -> None:
    """Text as text, -bin as bytes with and without padding, several values of one name apart."""
    head = _head((b"a", b"1"), (b"b-bin", b"AAE="), (b"b-bin", b"AAE,/w"))
    tail = frame(HEADERS, _trailers((b"grpc-status", b"3"), (b"grpc-status-details-bin", b"CAM")), WHOLE, 1)
    async with scripted(_says(head, tail)) as dialled:
        call = dialled.unary_unary("/it/Echo")(b"x", timeout=10)
        initial, trailing = await call.initial_metadata(), await call.trailing_metadata()

    assert list(initial) == [
        ("a", "1"),
        ("b-bin", b"\0\1"),
        ("b-bin", b"\0\1"),
        ("b-bin", b"\xff"),
    ]
    assert list(trailing) == [("grpc-status-details-bin", b"\x08\x03")]


async def _refuse(peer: Peer) -> None:
    found = await peer.until(DATA)
    peer.send(frame(RST, struct.pack(">I", 7), 0, found.stream))


async def _say_nothing(_: Peer) -> None:
    return


async def _answer(peer: Peer) -> None:
    found = await peer.until(DATA)
    peer.send(answered(found.stream, b"done"))


async def test_a_refused_stream_is_tried_once_more() -> None:
    """REFUSED_STREAM says that nothing was done, so the call is sent again, and fails if that is refused too."""

    async def once(peer: Peer) -> None:
        await _refuse(peer)
        await _answer(peer)

    async def twice(peer: Peer) -> None:
        await _refuse(peer)
        await _refuse(peer)

    async with scripted(once) as dialled:
        answer = await dialled.unary_unary("/it/Echo")(b"x", timeout=10)
    async with scripted(twice) as dialled:
        code, details = await _outcome(dialled)

    assert answer == b"done"
    assert (code, details) == (CODE.UNAVAILABLE, "the server refused the stream")


async def test_a_call_without_requests_is_ended_again_or_not_at_all() -> None:
    """A call whose stream was refused after its end was sent is not sent again without that end."""
    async with scripted(_refuse) as dialled:
        call = dialled.stream_stream("/it/Each")(timeout=10)
        await call.done_writing()
        code = await call.code()

    assert code is CODE.UNAVAILABLE


async def test_a_call_above_the_last_stream_is_sent_to_the_next_connection() -> None:
    """GOAWAY says which streams were not looked at; those below it end where they are."""

    async def goes(peer: Peer) -> None:
        await peer.until(DATA, stream=1)
        await peer.until(DATA, stream=3)
        peer.send(frame(GOAWAY, struct.pack(">II", 1, 0)), answered(1, b"old"))

    async with scripted(goes, _answer) as dialled:
        method = dialled.unary_unary("/it/Echo")
        answers = await asyncio.gather(method(b"a", timeout=10), method(b"b", timeout=10))

    assert answers == [b"old", b"done"]


async def test_what_a_server_sent_for_a_call_that_it_did_not_process_is_not_counted() -> None:
    """It contradicts itself; the call is sent to the next connection, and nothing is kept of what arrived."""

    async def contradicts(peer: Peer) -> None:
        await peer.until(DATA)
        peer.send(_head(), frame(DATA, bytes(5), 0, 1), frame(GOAWAY, struct.pack(">II", 0, 0)))

    async with scripted(contradicts, _answer) as dialled:
        answer = await dialled.unary_unary("/it/Echo")(b"x", timeout=10)
        held = flow.of_loop().process.held

    assert (answer, held) == (b"done", 0)


async def test_a_connection_that_ends_as_it_begins_is_dialled_again() -> None:
    """A server that stops says GOAWAY with its SETTINGS: the channel keeps no dead connection for its calls."""

    async def ends(peer: Peer) -> None:
        peer.writer.close()

    says = setting() + frame(GOAWAY, struct.pack(">II", 0, 0))
    async with scripted(ends, _answer, settings=says, after=setting()) as dialled:
        method = dialled.unary_unary("/it/Echo")
        code = await method(b"a", timeout=10).code()
        answer = await method(b"b", timeout=10, wait_for_ready=True)

    assert (code, answer) == (CODE.UNAVAILABLE, b"done")


async def test_calls_beyond_the_servers_streams_wait() -> None:
    """With MAX_CONCURRENT_STREAMS 1 the second call is sent when the first has ended, and not before."""
    order = []

    async def one_by_one(peer: Peer) -> None:
        for _ in range(3):
            found = await peer.until(DATA)
            order.append(found.stream)
            peer.send(answered(found.stream, b"%d" % found.stream))

    async with scripted(one_by_one, settings=setting(s3=1)) as dialled:
        method = dialled.unary_unary("/it/Echo")
        answers = await asyncio.gather(*(method(b"x", timeout=10) for _ in range(3)))

    assert answers == [b"1", b"3", b"5"]
    assert order == [1, 3, 5]


async def test_calls_that_wait_begin_when_the_server_allows_more_streams() -> None:
    """SETTINGS may raise MAX_CONCURRENT_STREAMS at any time, and no stream need end for it."""

    async def later(peer: Peer) -> None:
        await peer.until(PING)
        peer.send(setting(s3=1))
        await _answer(peer)

    async with scripted(later, settings=setting(s3=0)) as dialled:
        await dialled.channel_ready()
        calling = asyncio.ensure_future(dialled.unary_unary("/it/Echo")(b"x", timeout=10))
        await asyncio.sleep(0)
        dialled._connection.ping(b"waiting!")
        answer = await calling

    assert answer == b"done"


async def test_calls_that_wait_in_vain_are_forgotten() -> None:
    """A call whose time is over before the server has a stream for it leaves nothing behind."""
    async with scripted(_say_nothing, settings=setting(s3=0)) as dialled:
        await dialled.channel_ready()
        calls = [dialled.unary_unary("/it/Echo")(b"x", timeout=0.01) for _ in range(20)]
        codes = {await one.code() for one in calls}
        waiting = len(dialled._waiting)

    assert codes == {CODE.DEADLINE_EXCEEDED}
    assert waiting == 0


async def test_answers_to_calls_that_were_cancelled_long_ago_do_no_harm() -> None:
    """A server may answer before it hears of a cancellation, also calls that are too many to be remembered."""

    async def late(peer: Peer) -> None:
        while (await peer.until(RST)).stream < 599:
            pass
        peer.send(answered(1, b"late"))
        await _answer(peer)

    async with scripted(late) as dialled:
        method = dialled.unary_unary("/it/Echo")
        await dialled.channel_ready()
        for _ in range(300):
            method(b"x").cancel()
        answer = await method(b"x", timeout=10)

    assert answer == b"done"


async def test_a_connection_out_of_stream_ids_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream id is used once (RFC 9113, 5.1.1): near 2^31 the next call dials again."""
    monkeypatch.setattr(channel, "_SLACK_STREAMS", frames.LAST_STREAM - 1)
    async with scripted(_answer, _answer) as dialled:
        method = dialled.unary_unary("/it/Echo")
        answers = [await method(b"x", timeout=10) for _ in range(2)]

    assert answers == [b"done"] * 2


async def test_a_refused_dial_fails_the_calls_at_once() -> None:
    """TRANSIENT_FAILURE comes with the refusal; the call that waited fails then, the next one at once."""
    async with transport.insecure_channel("127.0.0.1:1", [("grpc.initial_reconnect_backoff_ms", 60_000)]) as dialled:
        method = dialled.unary_unary("/it/Echo")
        codes = [await method(b"").code() for _ in range(2)]
        state = dialled.get_state()

    assert codes == [CODE.UNAVAILABLE] * 2
    assert state is grpc.ChannelConnectivity.TRANSIENT_FAILURE


async def test_a_dial_that_a_bug_ends_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that no dial should raise costs the calls that wait their deadlines, and no later call."""
    connect, faults = channel.Channel._connect, [KeyError("a bug")]

    async def faulty(self: Any, limit_s: float) -> Any:
        if faults:
            raise faults.pop()
        return await connect(self, limit_s)

    monkeypatch.setattr(channel.Channel, "_connect", faulty)
    async with served() as port, transport.insecure_channel(f"127.0.0.1:{port}") as dialled:
        method = dialled.unary_unary("/it/Echo")
        code = await method(b"a", timeout=0.05).code()
        answer = await method(b"b", timeout=10)

    assert (code, answer) == (CODE.DEADLINE_EXCEEDED, b"b")


async def _silent(peer: Peer) -> None:
    await peer.reader.read()


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address of a name may be dead: each has a time of its own in one dial."""
    made = await asyncio.start_server(_unanswered, "127.0.0.1", 0)
    dead = made.sockets[0].getsockname()

    async def resolved(*_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", where) for where in (dead, ("127.0.0.1", port))]

    monkeypatch.setattr(channel, "_addresses", resolved)
    options = [("grpc.min_reconnect_backoff_ms", 100), ("grpc.initial_reconnect_backoff_ms", 100)]
    async with served() as port, transport.insecure_channel(f"a.test:{port}", options) as dialled:
        answer = await dialled.unary_unary("/it/Echo")(b"x", timeout=10)
    made.close()

    assert answer == b"x"


async def _unanswered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


async def test_a_name_that_does_not_resolve_occupies_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup cannot be interrupted: the next dials wait for it, and none of the loop's own threads does."""
    asked, goes_on = [], threading.Event()

    def resolve(*_: object, flags: int = 0, **__: object) -> list[Any]:
        if flags:
            raise socket.gaierror
        asked.append(threading.current_thread().name)
        goes_on.wait(10)
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(channel, "_NAME_S", 0.02)
    backoff = [("grpc.initial_reconnect_backoff_ms", 1), ("grpc.max_reconnect_backoff_ms", 1)]
    async with transport.insecure_channel("node.example:1", backoff) as dialled:
        codes = {await dialled.unary_unary("/it/Echo")(b"", timeout=10).code() for _ in range(5)}
    goes_on.set()

    assert codes == {CODE.UNAVAILABLE}
    assert [name.split("_")[0] for name in asked] == ["names"]


async def test_what_accepts_and_says_nothing_is_no_connection() -> None:
    """A stopped process is not READY: the dial ends after its time, and says so."""
    options = (("grpc.min_reconnect_backoff_ms", 100), ("grpc.initial_reconnect_backoff_ms", 100))
    async with scripted(_silent, settings=b"", options=options) as dialled:
        code, details = await _outcome(dialled)

    assert code is CODE.UNAVAILABLE
    assert "no answer in time" in details


async def test_a_peer_that_answers_no_ping_is_given_up() -> None:
    """After a silence a ping is sent, and without an answer the connection and its calls end."""
    options = (("grpc.keepalive_time_ms", 100), ("grpc.keepalive_timeout_ms", 100))
    async with scripted(_silent, options=options) as dialled:
        code, details = await _outcome(dialled)

    assert code is CODE.UNAVAILABLE
    assert "did not answer a ping" in details


def _hold_the_loop(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def test_a_busy_loop_gives_up_no_dial_and_no_peer() -> None:
    """What came while the loop did something else is looked at before a time-out is believed."""
    options = [("grpc.min_reconnect_backoff_ms", 40), ("grpc.initial_reconnect_backoff_ms", 40)]
    pings = [("grpc.keepalive_time_ms", 40), ("grpc.keepalive_timeout_ms", 40)]
    served_pings = ("grpc.http2.max_ping_strikes", 0)
    loop = asyncio.get_running_loop()
    async with (
        served(served_pings) as port,
        transport.insecure_channel(f"127.0.0.1:{port}", options + pings) as dialled,
    ):
        method = dialled.unary_unary("/it/Echo")
        first = method(b"a", timeout=10)
        _hold_the_loop(0.1)
        answers = [await first]
        call = dialled.unary_unary("/it/Never")(b"", timeout=10)
        for delay in range(10):
            loop.call_later(delay * 0.05, _hold_the_loop, 0.1)
        busy = loop.create_future()
        loop.call_later(0.6, busy.set_result, None)
        await busy
        is_alive = not call.done()
        answers.append(await method(b"b", timeout=10))

    assert answers == [b"a", b"b"]
    assert is_alive


async def test_a_channel_that_closes_as_it_dials_stays_closed() -> None:
    """A dial that ends within the grace of `close` makes no channel of it again."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(PREFACE))
        closing.set()
        writer.write(setting())
        await reader.read()
        writer.close()

    closing = asyncio.Event()
    listening = await asyncio.start_server(slow, "127.0.0.1", 0)
    async with listening:
        dialled = transport.insecure_channel(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        call = dialled.unary_unary("/it/Echo")(b"x")
        await asyncio.sleep(0)
        await dialled.close(grace=0.2)

        with pytest.raises(grpc.aio.UsageError, match="closed"):
            dialled.unary_unary("/it/Echo")(b"x")
    assert (dialled.get_state(), await call.code()) == (grpc.ChannelConnectivity.SHUTDOWN, CODE.CANCELLED)


async def test_what_a_generated_servicer_lacks_is_unimplemented() -> None:
    """Its base class sets status and text on the context, and raises; a client sees UNIMPLEMENTED, as on grpcio."""

    async def lacks(request: bytes, context: Any) -> Any:
        return LeaderServiceServicer().Fetch(request, context)

    handler = grpc.unary_unary_rpc_method_handler(lacks)
    async with served(Lacks=handler) as port, transport.insecure_channel(f"127.0.0.1:{port}") as dialled:
        assert await dialled.unary_unary("/it/Lacks")(b"", timeout=10).code() is CODE.UNIMPLEMENTED


async def test_a_call_that_a_task_waits_for_is_kept() -> None:
    """Before there is a connection and while the server works; nothing but the call need refer to the task."""
    asked = asyncio.Event()

    async def works(peer: Peer) -> None:
        found = await peer.until(DATA)
        gc.collect()
        peer.send(answered(found.stream, b"done"))

    async with scripted(works) as dialled:

        async def ask() -> None:
            await dialled.unary_unary("/it/Echo")(b"x")
            asked.set()

        asyncio.create_task(ask())  # noqa: RUF006 - that nothing refers to it is what is tested
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.wait_for(asked.wait(), 10)


async def test_a_call_that_is_dropped_is_cancelled() -> None:
    """The server need not go on for a caller that has forgotten the call."""
    reset: asyncio.Queue[int] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        reset.put_nowait((await peer.until(RST)).code)

    async with scripted(script) as dialled:
        call = dialled.stream_stream("/it/Each")()
        await call.write(b"x")
        del call
        code = await asyncio.wait_for(reset.get(), 10)

    assert code == 8


async def test_a_channel_that_is_dropped_ends_its_connection() -> None:
    """As grpcio's does: no one could close it any more, and its server would keep it for ever."""
    async with served() as port:
        dialled = transport.insecure_channel(f"127.0.0.1:{port}")
        await dialled.unary_unary("/it/Echo")(b"x", timeout=10)
        lost = dialled._connection.lost
        del dialled
        gc.collect()
        async with asyncio.timeout(10):
            await lost


async def test_a_write_to_an_ended_call_is_an_invalid_state() -> None:
    """As in grpc.aio; the reader of the call learns its status."""
    async with served() as port, transport.insecure_channel(f"127.0.0.1:{port}") as dialled:
        call = dialled.stream_stream("/it/None")()
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"x")

    assert await call.code() is CODE.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        (("grpc.http2.max_frame_size", 1), "grpc.http2.max_frame_size has no meaning here"),
        (("grpc.so_reuseport", 1), "grpc.so_reuseport=1: this transport can only do 0"),
        (("grpc.enable_http_proxy", 1), "grpc.enable_http_proxy=1"),
    ],
)
def test_a_channel_argument_without_meaning_is_refused_by_name(argument: tuple[str, Any], names: str) -> None:
    """None is ignored: what it asks for would not happen."""
    with pytest.raises(ValueError, match=names):
        options_of([argument])


async def test_a_dial_that_fails_as_it_is_given_up_is_not_reported_as_lost() -> None:
    """The connection may be refused in the moment in which its time is over: asyncio has nothing to complain of."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def refused() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ConnectionRefusedError

    with pytest.raises(TimeoutError):
        await channel._within(0.01, refused())
    gc.collect()

    assert reported == []


async def test_waits_that_were_given_up_are_forgotten() -> None:
    """Watching a channel's state with time-outs leaves nothing in the channel."""
    async with transport.insecure_channel("127.0.0.1:1") as watched:
        for _ in range(3):
            with suppress(TimeoutError):
                await asyncio.wait_for(watched.wait_for_state_change(grpc.ChannelConnectivity.IDLE), 0.001)

        assert watched._watching == []
