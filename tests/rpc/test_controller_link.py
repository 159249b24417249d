"""How a node finds its controller again when the controller's name resolves to another address."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from strandline.core.errors import ControllerHint, ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint, Heartbeat
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.channels import Channels, target
from strandline.rpc.controller_link import ControllerLink
from strandline.rpc.interceptors import abort
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


class Standby(ControllerServiceServicer):
    """Refuses every watch as a controller that does not decide."""

    async def WatchMetadata(  # noqa: N802 - gRPC calls a handler by the name of its RPC
        self, request: Any, context: Any
    ) -> Any:
        await abort(context, Refusal(ErrorCode.NOT_CONTROLLER, "a standby"))


async def test_the_address_that_did_not_decide_is_the_one_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that a standby refuses renews the connection to that standby, and the next address is asked."""
    renewed: list[Endpoint] = []
    monkeypatch.setattr(Channels, "renew", lambda _, endpoint, grace_s: renewed.append(endpoint))
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_ControllerServiceServicer_to_server(cast(Any, Standby()), server)
    standby = Endpoint("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    link = ControllerLink([standby, Endpoint("127.0.0.1", 1)])
    try:
        with pytest.raises(Refused):
            async for _ in link.watch("c", NodeId(1), NodeEpoch(1), None):
                pass
    finally:
        await link.close()
        await server.stop(None)

    assert renewed == [standby]
    assert link.endpoint == Endpoint("127.0.0.1", 1)


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


A, B, ACTIVE, NEXT = (Endpoint("127.0.0.1", port) for port in (1, 2, 3, 4))


def _hint(endpoint: Endpoint, epoch: int) -> Refusal:
    hint = ControllerHint("STANDBY", internal_endpoint=target(endpoint), controller_epoch=epoch)
    return Refusal(ErrorCode.NOT_CONTROLLER, "a standby", hint=hint)


async def _asked_after(*refusals: Refusal) -> list[Endpoint]:
    link = ControllerLink([A, B])
    asked = []
    for refusal in refusals:
        link._maybe_turn(refusal)
        asked.append(link.endpoint)
    await link.close()
    return asked


async def test_whom_a_standby_names_is_asked_once() -> None:
    """C31: if the named one does not decide either, the list goes on, and two that name each other hold nobody."""
    lost = Refusal(ErrorCode.NETWORK_EXCEPTION, "gone")

    assert await _asked_after(_hint(ACTIVE, 5), _hint(NEXT, 5), _hint(ACTIVE, 5), lost) == [ACTIVE, B, ACTIVE, A]


async def test_a_hint_of_an_earlier_reign_is_not_followed() -> None:
    """The one that it names decides no more."""
    assert await _asked_after(_hint(ACTIVE, 5), _hint(NEXT, 5), _hint(NEXT, 4)) == [ACTIVE, B, A]


async def test_a_refusal_of_the_controller_itself_turns_nowhere() -> None:
    """What the deciding controller refuses, another one could not grant."""
    assert await _asked_after(Refusal(ErrorCode.STALE_BROKER_EPOCH, "older")) == [A]


@pytest.mark.parametrize(("code", "refused"), [(36, None), (17, ErrorCode.INVALID_TOPIC_EXCEPTION), (0, None)])
async def test_an_internal_topic_that_another_made_is_made(code: int, refused: ErrorCode | None) -> None:
    """Two coordinators that create the internal topic at once both have it; any other refusal is passed on."""

    class Decides(ControllerServiceServicer):
        async def CreateTopics(  # noqa: N802 - gRPC calls a handler by the name of its RPC
            self, request: Any, context: Any
        ) -> Any:
            return pb.CreateTopicsResponse(topics=[pb.CreatedTopic(name="t", error_code=cast(Any, code))])

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_ControllerServiceServicer_to_server(cast(Any, Decides()), server)
    link = ControllerLink([Endpoint("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))])
    await server.start()
    try:
        answer = await link.create_internal_topic("t")
    finally:
        await link.close()
        await server.stop(None)

    assert (answer and answer.code) == refused
