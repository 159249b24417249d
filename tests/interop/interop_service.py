"""gRPC's public interoperability service (`grpc.testing.TestService`), served with nothing but grpcio's asyncio API.

The messages are built from a table: names and field numbers are those of the gRPC project's `messages.proto`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "grpc.testing"
SERVICE = f"{PACKAGE}.TestService"
ECHO_INITIAL = "x-grpc-test-echo-initial"
ECHO_TRAILING = "x-grpc-test-echo-trailing-bin"

_TYPES = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_MESSAGES = {
    "Empty": "",
    "BoolValue": "value:bool=1",
    "Payload": "type:int32=1 body:bytes=2",
    "EchoStatus": "code:int32=1 message:string=2",
    "SimpleRequest": "response_type:int32=1 response_size:int32=2 payload:Payload=3 response_status:EchoStatus=7"
    " fill_server_id:bool=9",
    "SimpleResponse": "payload:Payload=1 server_id:string=4",
    "StreamingInputCallRequest": "payload:Payload=1",
    "StreamingInputCallResponse": "aggregated_payload_size:int32=1",
    "ResponseParameters": "size:int32=1 interval_us:int32=2",
    "StreamingOutputCallRequest": "response_type:int32=1 response_parameters:ResponseParameters*=2 payload:Payload=3"
    " response_status:EchoStatus=7",
    "StreamingOutputCallResponse": "payload:Payload=1",
}


def _messages() -> dict[str, Any]:
    """The classes of `_MESSAGES`, by name."""
    file = descriptor_pb2.FileDescriptorProto(name="interop.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            field, _, kind_and_number = text.partition(":")
            kind, _, number = kind_and_number.partition("=")
            made = message.field.add(name=field, number=int(number))
            made.label = made.LABEL_REPEATED if kind.endswith("*") else made.LABEL_OPTIONAL
            if kind in _TYPES:
                made.type = _TYPES[kind]
            else:
                made.type, made.type_name = made.TYPE_MESSAGE, f".{PACKAGE}.{kind.rstrip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in _MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


pb = _messages()
METHODS = {
    "EmptyCall": ("unary_unary", "Empty", "Empty"),
    "UnaryCall": ("unary_unary", "SimpleRequest", "SimpleResponse"),
    "StreamingInputCall": ("stream_unary", "StreamingInputCallRequest", "StreamingInputCallResponse"),
    "StreamingOutputCall": ("unary_stream", "StreamingOutputCallRequest", "StreamingOutputCallResponse"),
    "FullDuplexCall": ("stream_stream", "StreamingOutputCallRequest", "StreamingOutputCallResponse"),
}
"""Kind, request and response of each method."""


class InteropService:
    """The five methods as the gRPC project describes them in `interop-test-descriptions.md`."""

    async def EmptyCall(self, request: Any, _: grpc.aio.ServicerContext) -> Any:  # noqa: N802 - the service's own name
        """Return an empty message."""
        return request

    async def UnaryCall(self, request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: N802
        """Return as many zeros as requested, or the status that the request names."""
        await _echo(context)
        await _abort_as_requested(request, context)
        return pb["SimpleResponse"](payload=_zeros(request.response_size), server_id="only one")

    async def StreamingInputCall(self, requests: AsyncIterator[Any], _: grpc.aio.ServicerContext) -> Any:  # noqa: N802
        """Return the sum of the payloads' sizes."""
        total = 0
        async for request in requests:
            total += len(request.payload.body)
        return pb["StreamingInputCallResponse"](aggregated_payload_size=total)

    async def StreamingOutputCall(self, request: Any, _: grpc.aio.ServicerContext) -> AsyncIterator[Any]:  # noqa: N802
        """Send one message per entry of ``response_parameters``."""
        for wanted in request.response_parameters:
            await asyncio.sleep(wanted.interval_us / 1e6)
            yield pb["StreamingOutputCallResponse"](payload=_zeros(wanted.size))

    async def FullDuplexCall(  # noqa: N802
        self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        """As `StreamingOutputCall`, for each request."""
        await _echo(context)
        async for request in requests:
            await _abort_as_requested(request, context)
            async for answer in self.StreamingOutputCall(request, context):
                yield answer


def handlers() -> grpc.GenericRpcHandler:
    """The service, ready for a server of either transport."""
    service = InteropService()
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            name: getattr(grpc, f"{kind}_rpc_method_handler")(
                getattr(service, name), pb[request].FromString, pb[response].SerializeToString
            )
            for name, (kind, request, response) in METHODS.items()
        },
    )


def method(channel: grpc.aio.Channel, name: str) -> Any:
    """A method of the service on a channel of either transport."""
    kind, request, response = METHODS[name]
    return getattr(channel, kind)(f"/{SERVICE}/{name}", pb[request].SerializeToString, pb[response].FromString)


def _zeros(size: int) -> Any:
    return pb["Payload"](body=bytes(size))


async def _echo(context: grpc.aio.ServicerContext) -> None:
    metadata = dict(context.invocation_metadata() or ())
    if ECHO_INITIAL in metadata:
        await context.send_initial_metadata(((ECHO_INITIAL, metadata[ECHO_INITIAL]),))
    if ECHO_TRAILING in metadata:
        context.set_trailing_metadata(((ECHO_TRAILING, metadata[ECHO_TRAILING]),))


async def _abort_as_requested(request: Any, context: grpc.aio.ServicerContext) -> None:
    if request.response_status.code:
        code = next(code for code in grpc.StatusCode if code.value[0] == request.response_status.code)
        await context.abort(code, request.response_status.message)
