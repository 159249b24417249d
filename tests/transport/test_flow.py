"""Windows, turns and budgets: how much arrives, how it leaves, and what is held back (N2, N5)."""

from __future__ import annotations

import asyncio
import gc
import gzip
import random
import socket
import struct
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import grpc
import hpack
import pytest
from raw_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    RST,
    SETTINGS,
    WINDOW,
    Peer,
    call,
    connected,
    data,
    frame,
    literal,
    message,
    scripted,
    served,
    setting,
)

from strandline import transport
from strandline.rpc.channels import MAX_MESSAGE_BYTES
from strandline.transport import flow, headers, serving, stream
from strandline.transport.options import options_of
from strandline.transport.outgoing import Outgoing
from strandline.transport.server_call import ServerStream

CANCEL = struct.pack(">I", 8)
CALM = 11
LARGE = ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)


async def test_the_values_of_a_settings_frame_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of window sizes in one frame the last holds, and each stream is visited once for it."""
    moved: list[int] = []
    monkeypatch.setattr(Outgoing, "more_for", lambda _self, _stream, by: moved.append(by))
    values = b"".join(struct.pack(">HI", 4, 65_535 + number) for number in range(2_000))
    sent = (call(1, path=b"/it/Never"), call(3, path=b"/it/Never"), frame(SETTINGS, values), frame(PING, bytes(8)))
    async with served() as port, connected(port, *sent) as peer:
        await peer.until(PING)

    assert moved == [1_999, 1_999]


async def _in_parts(request: bytes, context: Any) -> list[bytes]:
    return [request[:9], request[9:50_000], request[50_000:]]


@pytest.mark.parametrize("path", [b"/it/Echo", b"/it/InParts"])
async def test_an_answer_leaves_in_frames_and_windows_of_the_peer(path: bytes) -> None:
    """No frame is larger than the peer's MAX_FRAME_SIZE, and no more is sent than both windows allow; the answer may be
    one that its handler encoded in parts."""
    content = random.Random(1).randbytes(70_000)
    sent = data(message(content))
    in_parts, windows = grpc.unary_unary_rpc_method_handler(_in_parts), setting(s4=7, s5=20_000)
    async with (
        served(InParts=in_parts) as port,
        connected(port, call(path=path), sent, settings=windows) as peer,
    ):
        first = await peer.until(DATA)
        peer.send(frame(WINDOW, struct.pack(">I", 40_000), 0, 1))
        second, third = await peer.until(DATA), await peer.until(DATA)
        peer.send(frame(WINDOW, struct.pack(">I", 100_000), 0, 1), frame(WINDOW, struct.pack(">I", 100_000)))
        rest = await peer.answer(1)
    sizes = [len(one.payload) for one in peer.seen if one.kind == DATA]

    assert [len(one.payload) for one in (first, second, third)] == [7, 20_000, 20_000]
    assert max(sizes) == 20_000
    assert first.payload + second.payload + third.payload + rest == message(content)


def _echoed(size: int, stream: int = 1) -> bytes:
    """A call that is answered with a message of this size."""
    return call(stream) + data(message(bytes(size)), stream, ends=True)


async def test_a_window_below_zero_stops_its_stream_and_nothing_else() -> None:
    """SETTINGS may lower the window of an answer that waits for the connection's (RFC 9113, 6.9.2)."""
    async with served() as port, connected(port, _echoed(80_000), settings=setting(s4=90_000)) as peer:
        sent_bytes = 0
        while sent_bytes < 65_535:
            sent_bytes += len((await peer.until(DATA)).payload)
        peer.send(setting(s4=1_000), frame(WINDOW, struct.pack(">I", 1 << 20)), frame(PING, bytes(8)))
        stopped = await peer.until(DATA, PING)
        peer.send(frame(WINDOW, struct.pack(">I", 1 << 20), 0, 1))
        rest = await peer.answer(1)

    assert stopped.kind == PING
    assert sent_bytes + len(rest) == 80_005


async def test_streams_that_are_reset_wait_for_no_turn() -> None:
    """While the connection's window is used up, answers of calls that were cancelled are not kept in its line: of their
    streams only the one is left whose DATA came last."""
    async with served() as port, connected(port, _echoed(65_530)) as peer:
        await peer.answer(1)
        others = {id(one) for one in gc.get_objects() if isinstance(one, ServerStream)}
        for number in range(3, 43, 2):
            peer.send(_echoed(1_000, number))
            await peer.until(HEADERS, stream=number)
            peer.send(frame(RST, CANCEL, 0, number))
        peer.send(frame(PING, bytes(8)))
        await peer.until(PING)
        gc.collect()
        kept = [one for one in gc.get_objects() if isinstance(one, ServerStream) and id(one) not in others]

    assert len(kept) <= 1


async def test_padding_takes_nothing_from_a_window() -> None:
    """It counts in both windows (RFC 9113, 6.1), and no reader gives it back: a stream with nothing else goes on."""
    padding = frame(DATA, b"\xff" + bytes(255), PADDED, 1) * 600
    async with served() as port, connected(port, call(path=b"/it/Each"), frame(PING, bytes(8))) as peer:
        await peer.until(PING)
        peer.send(padding, frame(DATA, message(b"on"), END_STREAM, 1))
        answer = await peer.answer(1)

    assert answer == message(b"on")


async def test_streams_take_turns_frame_by_frame() -> None:
    """Of two answers that wait for the connection's window neither leaves whole before the other begins."""
    calls = [_echoed(60_000, n) for n in (1, 3, 5)]
    async with served() as port, connected(port, *calls, call(7, path=b"/it/None", flags=5)) as peer:
        await peer.status(7)
        before = len(peer.seen)
        peer.send(frame(WINDOW, struct.pack(">I", 1 << 20)))
        for stream in (3, 5):
            while not any(one.stream == stream and one.flags & END_STREAM for one in peer.seen):
                await peer.until(HEADERS)
    order = [one.stream for one in peer.seen[before:] if one.kind == DATA]

    assert order[:6] in ([3, 5, 3, 5, 3, 5], [5, 3, 5, 3, 5, 3])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_message_points_into_a_buffer_that_is_used_again(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every buffer is overwritten as soon as it is given back, and every message that was read stays as it was."""
    back = flow.Buffers.take_back

    def scribbled(self: flow.Buffers, buffer: memoryview) -> None:
        buffer[:] = b"\xee" * len(buffer)
        back(self, buffer)

    monkeypatch.setattr(flow.Buffers, "take_back", scribbled)

    async def run() -> bool:
        kept: list[bytes] = []

        async def keep(request: bytes, context: Any) -> bytes:
            kept.append(request)
            return request

        draw = random.Random(3)
        sent = [draw.randbytes(draw.choice((0, 1, 5, 1_000, 70_000, 300_000))) for _ in range(100)]
        async with (
            served(LARGE, Keep=grpc.unary_unary_rpc_method_handler(keep)) as port,
            transport.insecure_channel(f"127.0.0.1:{port}", options=[LARGE]) as channel,
        ):
            method = channel.unary_unary("/it/Keep")
            got = await asyncio.gather(*(method(one) for one in sent))
        return got == sent and sorted(kept) == sorted(sent)

    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(run())


async def test_every_cut_of_a_conversation_means_the_same() -> None:
    """Frames that arrive byte by byte, padded and split, make the same messages as those that arrive whole."""
    packed = gzip.compress(b"packed" * 50)
    parts = message(b"abc") + message(b"") + message(packed, 1) + message(b"xyz" * 40)
    sent = call(1, (b"grpc-encoding", b"gzip"), path=b"/it/Each")
    sent += b"".join(
        frame(DATA, b"\x03" + parts[at : at + 11] + bytes(3), PADDED, 1) for at in range(0, len(parts), 11)
    )
    sent += frame(99, b"unknown") + setting(s77=1) + frame(DATA, b"", END_STREAM, 1)
    async with served() as port, connected(port) as peer:
        for at in range(len(sent)):
            peer.send(sent[at : at + 1])
            await asyncio.sleep(0)
        answer = await peer.answer(1)

    assert answer == message(b"abc") + message(b"") + message(b"packed" * 50) + message(b"xyz" * 40)


async def test_a_message_in_many_parts_takes_little_more_than_its_bytes() -> None:
    """50,000 frames of one byte each are kept as a few objects: an object for each would take 40 times as much."""
    size = 50_000
    begun = call(path=b"/it/Unread") + frame(DATA, struct.pack(">BI", 0, size + 1), 0, 1)
    tracemalloc.start()
    async with served() as port, connected(port, begun, frame(DATA, b"x", 0, 1) * size, frame(PING, bytes(8))) as peer:
        await peer.until(PING)
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, stream.__file__)])
    tracemalloc.stop()

    assert size <= sum(one.size for one in kept.statistics("filename")) <= 3 * size


async def test_a_hundred_large_messages_at_once_all_arrive() -> None:
    """Their streams' windows together are more than a connection may hold; none waits for another's room for ever."""
    large = bytes(1 << 20)
    async with served(LARGE) as port, transport.insecure_channel(f"127.0.0.1:{port}", options=[LARGE]) as channel:
        answers = await asyncio.wait_for(
            asyncio.gather(*(channel.unary_unary("/it/Echo")(large) for _ in range(100))), 60
        )

    assert all(answer == large for answer in answers)


async def test_a_reader_that_paused_goes_on_when_its_stream_holds_all_the_room() -> None:
    """What its next message waits for is what those before it took; each that is read gives its part back."""
    large, goes_on = bytes(1 << 20), asyncio.Event()

    async def count_late(_: Any, context: Any) -> None:
        await goes_on.wait()
        count = 0
        while await context.read() is not grpc.aio.EOF:
            count += 1
        await context.write(b"%d" % count)

    late = grpc.stream_stream_rpc_method_handler(count_late)
    async with (
        served(LARGE, Late=late) as port,
        transport.insecure_channel(f"127.0.0.1:{port}", options=[LARGE]) as channel,
    ):
        stream = channel.stream_stream("/it/Late")(timeout=60)
        sending = asyncio.ensure_future(_send_all(stream, [large] * 60))
        held = -1
        while held != (held := flow.of_loop().process.held):
            # Other calls turn the loop until nothing more arrives.
            for _ in range(20):
                await channel.unary_unary("/it/Echo")(b"x")
        goes_on.set()
        answer = await stream.read()
        await sending

    assert held > flow.CONNECTION_BYTES // 2
    assert answer == b"60"


async def _send_all(stream: Any, messages: list[bytes]) -> None:
    for each in messages:
        await stream.write(each)
    await stream.done_writing()


async def test_what_a_connection_may_hold_is_bounded() -> None:
    """A hundred streams whose handlers read nothing take no more than 32 MiB from a peer that sends all it may."""
    streams = range(1, 201, 2)
    most = MAX_MESSAGE_BYTES
    async with served(LARGE) as port, connected(port) as peer:
        peer.send(*(call(n, path=b"/it/Unread") + frame(DATA, struct.pack(">BI", 0, most), 0, n) for n in streams))
        peer.send(frame(PING, b"fetched!"))
        windows = dict.fromkeys(streams, flow.FIRST_WINDOW - 5)
        while (found := await peer.until(WINDOW, PING)).kind == WINDOW:
            if found.stream:
                windows[found.stream] += found.number
        # Some bytes of each make the server ask for the rest of what it has room for.
        for n in streams:
            peer.send(*(frame(DATA, bytes(16_000), 0, n) for _ in range(8)))
        peer.send(frame(PING, b"fetched!"))
        while (found := await peer.until(WINDOW, PING)).kind == WINDOW:
            if found.stream:
                windows[found.stream] += found.number

    assert sum(windows.values()) <= flow.CONNECTION_BYTES
    assert max(windows.values()) >= most


async def test_cancelled_calls_leak_no_window() -> None:
    """A connection on which more than its window was sent to calls that were cancelled still takes messages."""
    content = message(bytes(100_000))[:-1]
    sent_bytes, number = 0, 1
    async with served() as port, connected(port) as peer:
        while sent_bytes < 40 << 20:
            peer.send(call(number, path=b"/it/Unread"), data(content, number), frame(RST, CANCEL, 0, number))
            sent_bytes += len(content)
            number += 2
            if number % 20 == 1:
                peer.send(call(number), frame(DATA, message(b"x"), END_STREAM, number))
                await peer.answer(number)
                number += 2
            credit = sum(one.number for one in peer.seen if one.kind == WINDOW and not one.stream)
            assert not credit or 65_535 + credit - sent_bytes > len(content)
        goes_on = await peer.goes_on(number)

    assert goes_on
    assert flow.of_loop().process.held == 0


async def test_what_arrives_after_the_end_of_a_stream_is_not_counted() -> None:
    """A call may end inside a frame of DATA: what is left of the frame has no reader, and holds nothing."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def end(_: Any, context: Any) -> None:
        begun.set()
        await goes_on.wait()
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT)

    whole = frame(DATA, message(bytes(60_000)), 0, 1)
    ending = grpc.stream_stream_rpc_method_handler(end)
    async with served(End=ending) as port, connected(port, frame(PING, bytes(8))) as peer:
        await peer.until(PING)
        peer.send(call(path=b"/it/End"), whole[:1_000])
        await asyncio.wait_for(begun.wait(), 10)
        goes_on.set()
        await peer.until(RST)
        peer.send(whole[1_000:], frame(PING, bytes(8)))
        await peer.until(PING)
        held = flow.of_loop().process.held

    assert held == 0


async def test_what_a_late_call_did_not_read_is_not_counted() -> None:
    """Its deadline passes while an answer is half sent, so it ends by a reset; what it has not read is dropped, too."""
    sent = [call(1, (b"grpc-timeout", b"1S"), path=b"/it/Each"), data(message(bytes(99_000)) + message(bytes(9_000)))]
    async with served() as port, connected(port, *sent) as peer:
        said = await peer.until(RST)
        held = flow.of_loop().process.held

    assert (said.stream, said.code) == (1, 8)
    assert held == 0


async def test_the_process_ends_who_holds_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """When what waits for readers is above the process's limit, the largest holder goes and the others stay."""
    monkeypatch.setattr(flow.of_loop().process, "limit", 150_000)
    large, small = bytes(99_000), bytes(40_000)

    def unread(content: bytes) -> bytes:
        return call(path=b"/it/Unread") + data(message(content))

    async with served() as port, connected(port, unread(small)) as modest, connected(port, unread(large)) as greedy:
        async with connected(port, unread(small)):
            said = await greedy.until(GOAWAY)
        goes_on = await modest.goes_on()

    assert said.code == CALM
    assert goes_on


async def test_a_connection_that_ends_is_not_ended_again_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its calls have still to read is counted, but not as room that its end will give."""
    process = flow.of_loop().process
    monkeypatch.setattr(process, "limit", 150_000)
    head = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")

    async def answers_and_breaks_a_rule(peer: Peer) -> None:
        await peer.until(DATA)
        peer.send(frame(HEADERS, head, END_HEADERS, 1), data(message(bytes(99_000))), frame(PING, b"short"))

    async with scripted(answers_and_breaks_a_rule) as dialled, served() as port:
        asked = dialled.unary_stream("/it/X")(b"", timeout=10)
        await asked.code()
        async with connected(port, call(path=b"/it/Unread"), data(message(bytes(60_000)))) as greedy:
            said = await greedy.until(GOAWAY)
        held, ending = process.held, dict(process.ending)
        await asked.read()

    assert said.code == CALM
    assert (held, ending, process.held) == (99_069, {}, 0)


async def test_the_process_ends_who_reads_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """When what peers do not take is above the process's limit, the connection that most waits for ends."""
    monkeypatch.setattr(flow.of_loop().leaving, "limit", 150_000)

    def asked(*sizes: int) -> bytes:
        calls = ((2 * number + 1, message(bytes(size))) for number, size in enumerate(sizes))
        return b"".join(call(n) + frame(DATA, whole, END_STREAM, n) for n, whole in calls)

    closed = setting(s4=0, s5=1 << 20)
    async with (
        served() as port,
        connected(port, asked(40_000), settings=closed) as modest,
        connected(port, asked(16_000, *[15_000] * 5), settings=closed) as greedy,
        connected(port, asked(40_000), settings=closed),
    ):
        said = await greedy.until(GOAWAY)
        modest.send(frame(WINDOW, struct.pack(">I", 1 << 20), 0, 1), frame(WINDOW, struct.pack(">I", 1 << 20)))
        answer = await modest.answer(1)

    assert said.code == CALM
    assert answer == message(bytes(40_000))
    leaving = flow.of_loop().leaving
    assert (leaving.held, leaving.ending, leaving.holders) == (0, {}, set())


async def test_paused_readers_stop_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the process's limit is not reached, what some hold takes no credit from messages of others."""
    monkeypatch.setattr(flow.of_loop().process, "limit", 1_600_000)
    held = message(bytes(120_000))
    paused = [call(n, path=b"/it/Unread") + frame(DATA, held, 0, n) for n in range(1, 19, 2)]
    large = bytes(400_000)
    async with served() as port, connected(port, *paused, frame(PING, bytes(8))) as peer:
        await peer.until(PING)
        async with transport.insecure_channel(f"127.0.0.1:{port}") as channel:
            answer = await channel.unary_unary("/it/Echo")(large, timeout=20)

    assert answer == large


async def test_a_port_takes_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the limit is closed at once, and those that are open go on."""
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)
    async with served() as port, connected(port) as first, connected(port) as second:
        await first.until(SETTINGS)
        await second.until(SETTINGS)
        async with connected(port) as third:
            refused = await third.frame()
        goes_on = await first.goes_on()

    assert refused is None
    assert goes_on


async def test_a_handshake_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many connections that have not spoken yet, the oldest of them goes; who speaks is served."""
    monkeypatch.setattr(serving, "MOST_HANDSHAKES", 2)
    monkeypatch.setattr(serving, "_PATIENCE_S", 0.05)
    async with served() as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        async with asyncio.timeout(10):
            said = await silent[0][0].read()
            async with connected(port) as peer:
                goes_on = await peer.goes_on()
        for _, writer in silent:
            writer.close()

    assert b"handshake timeout" in said
    assert goes_on


@pytest.mark.parametrize("limit", [2, 100])
async def test_streams_beyond_the_limit_are_refused(limit: int) -> None:
    """They were not processed, which REFUSED_STREAM says; those within the limit are answered."""
    async with served(("grpc.max_concurrent_streams", limit)) as port, connected(port) as peer:
        said = (await peer.until(SETTINGS)).payload
        peer.send(*(call(n, path=b"/it/Unread") for n in range(1, 2 * limit + 2, 2)))
        refused = await peer.until(RST)

    assert struct.pack(">HI", 3, limit) in said
    assert (refused.stream, refused.code) == (2 * limit + 1, 7)


async def test_a_paused_reader_keeps_its_connection() -> None:
    """A handler that reads nothing holds its stream back, and pings and other calls are answered beside it."""
    async with served() as port, connected(port, call(path=b"/it/Unread")) as peer:
        peer.send(*(frame(DATA, bytes(16_000), 0, 1) for _ in range(8)))
        peer.send(frame(PING, b"are you?"), call(3), frame(DATA, message(b"on"), END_STREAM, 3))
        await peer.until(PING)
        answer = await peer.answer(3)

    assert answer == message(b"on")
    assert not [one for one in peer.seen if one.kind == WINDOW and one.stream == 1]


async def test_a_server_that_stops_says_so_twice() -> None:
    """GOAWAY with 2^31 - 1 and a ping; after its answer GOAWAY with the last stream: it ends, later are refused."""
    made = transport.server(handlers=[grpc.method_handlers_generic_handler("it", _ECHOES)])
    port = made.add_insecure_port("127.0.0.1:0")
    await made.start()
    async with connected(port, call(path=b"/it/Each"), frame(DATA, message(b"a"), 0, 1)) as peer:
        await peer.until(DATA)
        stopping = asyncio.create_task(made.stop(10))
        first = await peer.until(GOAWAY)
        ping = await peer.until(PING)
        peer.send(frame(PING, ping.payload, 1))
        second = await peer.until(GOAWAY)
        peer.send(call(3))
        refused = await peer.until(RST)
        peer.send(frame(DATA, message(b"b"), END_STREAM, 1))
        answer = await peer.answer(1)
        await asyncio.wait_for(stopping, 10)

    assert (first.number, second.number) == ((1 << 31) - 1, 1)
    assert (refused.stream, refused.code) == (3, 7)
    assert answer == message(b"b")


async def test_a_connection_that_is_accepted_as_the_server_stops_is_closed() -> None:
    """Its task is cancelled before the first step; the socket is not left to the garbage collector, which warns."""
    made = transport.server()
    number = made.add_insecure_port("127.0.0.1:0")
    [port] = made._ports
    with socket.create_connection(("127.0.0.1", number), timeout=10) as peer:
        port._accept()
        port.close()
        await made.stop(0)
        left = peer.recv(1)

    assert left == b""


async def _each(requests: Any, context: Any) -> None:
    async for request in requests:
        await context.write(request)


_ECHOES = {"Each": grpc.stream_stream_rpc_method_handler(_each)}


async def test_pings_beside_calls_are_no_strikes() -> None:
    """grpcio and grpc-go probe the bandwidth by pings: each answer of ours begins the count again."""
    numbers = range(1, 61, 2)
    async with served() as port, connected(port) as peer:
        for n in numbers:
            peer.send(call(n, path=b"/it/None", flags=5))
            await peer.status(n)
            peer.send(frame(PING, bytes(8)))
            await peer.until(PING)

    assert not [one for one in peer.seen if one.kind == GOAWAY]


@pytest.mark.parametrize(("bytes_of_details", "comes"), [(3_000, True), (7_000, False)])
def test_a_status_fits_into_the_headers_that_its_peer_takes(bytes_of_details: int, comes: bool) -> None:
    """A long text is cut for the details that programs read; details that are too long themselves stay behind."""
    block = headers.trailers_block(9, "ä%" * 9_000, (("grpc-status-details-bin", bytes(bytes_of_details)),), 8 << 10)
    fields = hpack.Decoder().decode(headers.RESPONSE + block, raw=True)
    given = dict(fields)

    assert headers.size_of(fields) <= 8 << 10
    assert (b"grpc-status-details-bin" in given) is comes
    assert headers.read_message(given[b"grpc-message"]).startswith("ä%ä%")


def test_loops_share_no_count() -> None:
    """Two loops hold what arrives in counts and buffers of their own, also where one runs after the other."""

    async def counts() -> flow.OfLoop:
        return flow.of_loop()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        one, other = first.run(counts()), second.run(counts())
        assert first.run(counts()) is one
    assert one is not other


async def test_a_connection_that_is_cancelled_as_it_is_made_is_over() -> None:
    """uvloop closes it without a word to its protocol, which would count it, and what it holds, for ever."""
    made = serving.Server([], [], options_of(()), None)
    made.add_insecure_port("127.0.0.1:0")
    port = made._ports[0]
    connection = serving.ServerConnection(port)
    connection.connection_made(
        cast(
            Any,
            SimpleNamespace(
                abort=lambda: None,
                is_closing=lambda: True,
                get_extra_info=lambda _: None,
                set_write_buffer_limits=lambda *_: None,
            ),
        )
    )
    counted = connection in port.connections and connection in flow.of_loop().process.holders
    connection.drop()
    await made.stop(None)

    assert counted
    assert connection.lost.done()
    assert connection not in {*port.connections, *flow.of_loop().process.holders}


async def test_a_status_before_the_end_of_the_requests_is_followed_by_a_reset() -> None:
    """The caller need not send what is not read: RST_STREAM with NO_ERROR comes after the trailers."""
    async with served() as port, connected(port, call(path=b"/it/None", flags=END_HEADERS)) as peer:
        status = await peer.status(1)
        reset = await peer.until(RST)

    assert (status, reset.stream, reset.code) == (12, 1, 0)


@pytest.mark.parametrize("wrong", [("Upper", "x"), ("text", "ä")])
async def test_trailing_metadata_that_cannot_be_sent_is_refused_where_it_is_set(wrong: tuple[str, str]) -> None:
    """So the call ends with a status; once it is over, nothing else would give it one."""

    async def set_it(request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata([wrong])
        return request

    async def abort(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, trailing_metadata=[wrong])
        return request

    handler = grpc.unary_unary_rpc_method_handler
    request = frame(DATA, message(b""), END_STREAM, 1)
    async with served(Set=handler(set_it), Abort=handler(abort)) as port:
        for path in (b"/it/Set", b"/it/Abort"):
            async with connected(port, call(path=path), request) as peer:
                assert await peer.status(1) == 2


async def test_a_reset_that_crosses_a_status_is_not_useless() -> None:
    """Who ends a stream before its peer did gets the peer's reset: however many come, the connection goes on."""
    async with served() as port, connected(port) as peer:
        for number in range(1, 3_001, 2):
            peer.send(call(number, path=b"/it/None"))
            await peer.until(RST)
            peer.send(frame(RST, CANCEL, 0, number))
        assert await peer.goes_on(3_001)


async def test_a_reset_cancels_the_handler() -> None:
    """RST_STREAM reaches the handler as a cancellation, and its callbacks see a call that was given up."""
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def wait(request: bytes, context: Any) -> bytes:
        context.add_done_callback(lambda ended: seen.put_nowait(ended.cancelled()))
        seen.put_nowait("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.put_nowait("cancelled")
            raise
        return request

    sent = call(path=b"/it/Wait") + frame(DATA, message(b""), END_STREAM, 1)
    async with served(Wait=grpc.unary_unary_rpc_method_handler(wait)) as port, connected(port, sent) as peer:
        begun = await asyncio.wait_for(seen.get(), 10)
        peer.send(frame(RST, CANCEL, 0, 1))
        outcome = [await asyncio.wait_for(seen.get(), 10) for _ in range(2)]

    assert (begun, outcome) == ("begun", ["cancelled", True])
