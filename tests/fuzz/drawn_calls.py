"""Sends drawn messages to a service over loopback, and checks that the answers are documented ones.

Invariant: a call ends in OK or in a status of `rpc.status`, never in UNKNOWN or INTERNAL, and before its deadline; an
answer inside a message is a code of the closed table, never UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from draws import Draws, Words, drawn
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from strandline.core.errors import ErrorCode

DOCUMENTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""What `rpc.status` maps refusals to. DEADLINE_EXCEEDED is missing on purpose: short waits are answered."""
DEADLINE_S = 10.0
SHORT_S = 1.0
"""Deadline of a request that asks the node to wait longer than `DEADLINE_S`; only there it may pass."""
_STREAM_MESSAGES = 4


async def call_anything(draws: Draws, channel: Any, service: ServiceDescriptor, words: Words) -> str:
    """One drawn call, unary or stream; returns the method's name.

    Raises:
        AssertionError: the answer is not a documented one.
    """
    method = draws.choice(service.methods)
    count = draws.integer(1, _STREAM_MESSAGES) if method.client_streaming else 1
    requests = [_request(draws, method, words) for _ in range(count)]
    may_wait = any(_asks_to_wait(method, request) for request in requests)
    deadline_s = SHORT_S if may_wait else DEADLINE_S
    try:
        if method.client_streaming:
            await _converse(channel, method, requests, deadline_s)
        elif method.server_streaming:
            await _listen(channel, method, requests[0], deadline_s)
        else:
            check_answer(await _unary(channel, method)(requests[0], timeout=deadline_s))
    except grpc.aio.AioRpcError as error:
        if may_wait and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return str(method.name)
        if error.code() not in DOCUMENTED:
            raise AssertionError(f"{method.name}: {error.code()}: {error.details()}") from error
    return str(method.name)


def check_answer(answer: Message) -> None:
    """Every error code in a message is in the table, and none is the unexpected-error code."""
    for number in _errors(answer):
        assert number in set(ErrorCode) and number != ErrorCode.UNKNOWN_SERVER_ERROR, answer


def _errors(message: Message) -> Iterator[int]:
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield int(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for child in value if field.is_repeated else [value]:
                yield from _errors(child)


def _request(draws: Draws, method: MethodDescriptor, words: Words) -> bytes:
    """A drawn request's bytes, with one of them changed in one of sixteen cases."""
    content = bytearray(drawn(draws, method.input_type, words).SerializeToString())
    if content and draws.one_in(16):
        content[draws.integer(0, len(content) - 1)] = draws.integer(0, 255)
    return bytes(content)


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _unary(channel: Any, method: MethodDescriptor) -> Any:
    return channel.unary_unary(
        _path(method), request_serializer=bytes, response_deserializer=GetMessageClass(method.output_type).FromString
    )


def _asks_to_wait(method: MethodDescriptor, request: bytes) -> bool:
    """Whether the node may wait beyond any deadline here: by request, or by default."""
    try:
        message: Any = GetMessageClass(method.input_type).FromString(request)
    except DecodeError:
        return False
    names = method.input_type.fields_by_name
    if "timeout_ms" in names and (not message.HasField("timeout_ms") or message.timeout_ms > 1_000 * SHORT_S):
        return True
    return "max_wait_ms" in names and message.max_wait_ms > 1_000 * SHORT_S


async def _listen(channel: Any, method: MethodDescriptor, request: bytes, deadline_s: float) -> None:
    """The first message of a stream of answers."""
    stream = channel.unary_stream(
        _path(method), request_serializer=bytes, response_deserializer=GetMessageClass(method.output_type).FromString
    )(request, timeout=deadline_s)
    try:
        if (answer := await stream.read()) is not grpc.aio.EOF:
            check_answer(answer)
    finally:
        stream.cancel()


async def _converse(channel: Any, method: MethodDescriptor, requests: list[bytes], deadline_s: float) -> None:
    """A few messages on a stream, then its end: every answer is a documented one."""
    stream = channel.stream_stream(
        _path(method), request_serializer=bytes, response_deserializer=GetMessageClass(method.output_type).FromString
    )(timeout=deadline_s)
    try:
        for request in requests:
            await stream.write(request)
        await stream.done_writing()
        while (answer := await stream.read()) is not grpc.aio.EOF:
            check_answer(answer)
    finally:
        stream.cancel()
