"""ControllerService at a data node: producer ids, and otherwise the addresses at which controllers are.

Invariant: nothing is decided at a data node. A client of a release without MetadataService that was given a data
node's address asks here, and learns in one sentence which address to give instead (C60).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from strandline.core.controller_messages import InitProducerId, ProducerIdGiven
from strandline.core.errors import ErrorCode, Refused
from strandline.rpc.channels import target
from strandline.rpc.convert_admin import read_init_producer_id, write_producer_id
from strandline.rpc.convert_subscription import KnownController
from strandline.v1 import controller_service_pb2

_DESCRIBED = controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"]
SERVICE = _DESCRIBED.full_name

GiveProducerId = Callable[[InitProducerId], Awaitable[ProducerIdGiven]]


class ControllerElsewhere:
    """ControllerService of a data node."""

    def __init__(self, controllers: Callable[[], tuple[KnownController, ...]], give: GiveProducerId) -> None:
        self._controllers = controllers
        self._give = give

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        handlers = {method.name: self._handler(method) for method in _DESCRIBED.methods}
        handlers["InitProducerId"] = grpc.unary_unary_rpc_method_handler(
            self._init_producer_id,
            request_deserializer=controller_service_pb2.InitProducerIdRequest.FromString,
            response_serializer=controller_service_pb2.InitProducerIdResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def _handler(self, method: Any) -> Any:
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        # The generated messages, because permissions look at their fields.
        decode = getattr(controller_service_pb2, method.input_type.name).FromString
        return make(self._refuse, request_deserializer=decode, response_serializer=bytes)

    async def _init_producer_id(self, request: controller_service_pb2.InitProducerIdRequest, _context: object) -> controller_service_pb2.InitProducerIdResponse:
        return write_producer_id(await self._give(read_init_producer_id(request)))

    async def _refuse(self, _request: object, _context: object) -> None:
        raise Refused(ErrorCode.NOT_CONTROLLER, sentence(self._controllers()))


def sentence(controllers: tuple[KnownController, ...]) -> str:
    """Where to go instead of a data node."""
    found = [one.client or one.internal for one in controllers]
    listed = ", ".join(target(endpoint) for endpoint in found if endpoint is not None)
    return f"this is a data node, and a controller is asked for; controllers are at {listed}"
