"""The cases of gRPC's `interop-test-descriptions.md` that need no cloud account, as a client of either transport."""

from __future__ import annotations

from typing import Any

import grpc
from interop_service import ECHO_INITIAL, ECHO_TRAILING, PACKAGE, method, pb

SIZES_SENT = (27182, 8, 1828, 45904)
SIZES_WANTED = (31415, 9, 2653, 58979)
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


def _payload(size: int) -> Any:
    return pb["Payload"](body=bytes(size))


def _duplex(sent: int = 0, wanted: int | None = None, **others: Any) -> Any:
    parameters = [] if wanted is None else [pb["ResponseParameters"](size=wanted)]
    return pb["StreamingOutputCallRequest"](payload=_payload(sent), response_parameters=parameters, **others)


async def empty_unary(channel: grpc.aio.Channel) -> None:
    """An empty message is returned."""
    assert await method(channel, "EmptyCall")(pb["Empty"](), timeout=20) == pb["Empty"]()


async def large_unary(channel: grpc.aio.Channel) -> None:
    """271,828 bytes are sent and 314,159 are returned."""
    request = pb["SimpleRequest"](response_size=314159, payload=_payload(271828))
    assert (await method(channel, "UnaryCall")(request, timeout=20)).payload.body == bytes(314159)


async def client_streaming(channel: grpc.aio.Channel) -> None:
    """Four messages are sent and their sizes' sum is returned."""
    sent = [pb["StreamingInputCallRequest"](payload=_payload(size)) for size in SIZES_SENT]
    assert (await method(channel, "StreamingInputCall")(iter(sent), timeout=20)).aggregated_payload_size == 74922


async def server_streaming(channel: grpc.aio.Channel) -> None:
    """Four messages of the wanted sizes are returned in order."""
    wanted = [pb["ResponseParameters"](size=size) for size in SIZES_WANTED]
    call = method(channel, "StreamingOutputCall")(
        pb["StreamingOutputCallRequest"](response_parameters=wanted), timeout=20
    )
    assert [len(answer.payload.body) async for answer in call] == list(SIZES_WANTED)


async def ping_pong(channel: grpc.aio.Channel) -> None:
    """Each message is answered before the next is sent, and the call ends after the half-close."""
    call = method(channel, "FullDuplexCall")(timeout=20)
    for sent, wanted in zip(SIZES_SENT, SIZES_WANTED, strict=True):
        await call.write(_duplex(sent, wanted))
        assert len((await call.read()).payload.body) == wanted
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def empty_stream(channel: grpc.aio.Channel) -> None:
    """A duplex call without a message ends with OK."""
    call = method(channel, "FullDuplexCall")(timeout=20)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def timeout_on_sleeping_server(channel: grpc.aio.Channel) -> None:
    """A call whose deadline passes ends with DEADLINE_EXCEEDED."""
    late = pb["ResponseParameters"](size=1, interval_us=2_000_000)
    call = method(channel, "FullDuplexCall")(timeout=0.2)
    await call.write(pb["StreamingOutputCallRequest"](response_parameters=[late]))
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def cancel_after_begin(channel: grpc.aio.Channel) -> None:
    """A call cancelled before its first message ends with CANCELLED."""
    call = method(channel, "StreamingInputCall")(timeout=20)
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def cancel_after_first_response(channel: grpc.aio.Channel) -> None:
    """A call cancelled after its first answer ends with CANCELLED."""
    call = method(channel, "FullDuplexCall")(timeout=20)
    await call.write(_duplex(27182, 31415))
    assert len((await call.read()).payload.body) == 31415
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def status_code_and_message(channel: grpc.aio.Channel, message: str = "test status message") -> None:
    """Code and text of a status arrive unchanged, from a unary call and from a stream."""
    status = pb["EchoStatus"](code=2, message=message)
    unary = method(channel, "UnaryCall")(pb["SimpleRequest"](response_status=status), timeout=20)
    stream = method(channel, "FullDuplexCall")(iter([_duplex(response_status=status)]), timeout=20)
    for call in (unary, stream):
        assert (await call.code(), await call.details()) == (grpc.StatusCode.UNKNOWN, message)


async def special_status_message(channel: grpc.aio.Channel) -> None:
    """A text with white space and characters outside ASCII arrives unchanged."""
    await status_code_and_message(channel, SPECIAL)


async def custom_metadata(channel: grpc.aio.Channel) -> None:
    """Initial metadata of text and trailing metadata of bytes come back."""
    sent = ((ECHO_INITIAL, "test_initial_metadata_value"), (ECHO_TRAILING, b"\xab\xab\xab"))
    unary = method(channel, "UnaryCall")(pb["SimpleRequest"](response_size=1), timeout=20, metadata=sent)
    stream = method(channel, "FullDuplexCall")(iter([_duplex(1, 1)]), timeout=20, metadata=sent)
    assert [len(answer.payload.body) async for answer in stream] == [1]
    for call in (unary, stream):
        assert dict(await call.initial_metadata())[ECHO_INITIAL] == "test_initial_metadata_value"
        assert await call.code() is grpc.StatusCode.OK
        assert dict(await call.trailing_metadata())[ECHO_TRAILING] == b"\xab\xab\xab"


async def unimplemented(channel: grpc.aio.Channel) -> None:
    """A method and a service that are not there are UNIMPLEMENTED."""
    for name in ("TestService", "UnimplementedService"):
        call = channel.unary_unary(f"/{PACKAGE}.{name}/UnimplementedCall")(b"", timeout=20)
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


CASES = (
    empty_unary, large_unary, client_streaming, server_streaming, ping_pong, empty_stream, timeout_on_sleeping_server,
    cancel_after_begin, cancel_after_first_response, status_code_and_message, special_status_message, custom_metadata,
    unimplemented,
)  # fmt: skip
