"""How a node finds its controller again when the controller's name resolves to another address."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from strandline.core.errors import Refused
from strandline.core.messages import Endpoint, Heartbeat
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.controller_link import ControllerLink
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server

_CALL_MS = 5_000


class SomebodyElse(ControllerServiceServicer):
    """Answers like a server without the service, until it is called over a second connection."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    async def Heartbeat(  # noqa: N802 - gRPC calls a handler by the name of its RPC
        self, request: Any, context: Any
    ) -> Any:
        self.peers.append(context.peer())
        if len(set(self.peers)) == 1:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return pb.HeartbeatResponse(controller_epoch=1)


async def test_who_serves_no_controller_is_left() -> None:
    """Another process at the controller's old address does not know the method: the next call dials again."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    somebody = SomebodyElse()
    add_ControllerServiceServicer_to_server(cast(Any, somebody), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    link = ControllerLink([Endpoint("127.0.0.1", port)])
    beat = Heartbeat(cluster_id="c", node_id=NodeId(1), node_epoch=NodeEpoch(1), metadata_offset=0)
    try:
        with pytest.raises(Refused):
            await link.heartbeat(beat, _CALL_MS)
        answer = await link.heartbeat(beat, _CALL_MS)
    finally:
        await link.close()
        await server.stop(None)

    assert answer.controller_epoch == 1
    assert len(set(somebody.peers)) == 2
