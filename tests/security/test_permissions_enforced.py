"""The permission table in effect: before a handler, for every message of a stream, with helpful errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from certificates import Certificates
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from guarded_service import SERVICE, guarded, stub
from structlog.testing import capture_logs

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint
from strandline.rpc import authorization
from strandline.rpc.channels import open_channel
from strandline.rpc.server import ServerSettings, bind, build_server
from strandline.rpc.status import refusal_of
from strandline.v1 import leader_service_pb2 as pb

pytestmark = pytest.mark.usefixtures("carried_by")

DEADLINE_S = 5
_LOOPBACK = Endpoint("127.0.0.1", 0)
TOPICS = [{"topic": "t"}]


class Handlers:
    """Records the requests that reached it."""

    def __init__(self) -> None:
        self.reached: list[Any] = []

    async def unary(self, request: Any, context: Any) -> Any:
        self.reached.append(request)
        return pb.FetchResponse() if isinstance(request, pb.FetchRequest) else pb.ProduceResponse()

    async def stream(self, _: Any, context: Any) -> None:
        """A stream that answers every message under its number."""
        while (message := await context.read()) is not grpc.aio.EOF:
            self.reached.append(message)
            await context.write(pb.FetchStreamResponse(correlation_id=message.correlation_id))


def _refusal(caught: pytest.ExceptionInfo[grpc.aio.AioRpcError]) -> Refusal:
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    found = refusal_of(caught.value)
    assert found.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return found


async def test_a_refused_request_reaches_no_handler(made: Certificates) -> None:
    """A node may not produce; the error names it, the method and the permitted roles."""
    handlers = Handlers()
    async with (
        guarded(made.tls("replica/1"), Produce=handlers.unary) as endpoint,
        stub(endpoint, made.tls("replica/2")) as node,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)

    assert _refusal(caught).message == "replica 2 may not call Produce: it is for client, admin"
    assert handlers.reached == []


async def test_a_certificate_of_another_cluster_opens_nothing(made: Certificates) -> None:
    """One authority may sign for several clusters: the role counts in the cluster that the certificate names alone."""
    handlers = Handlers()
    async with (
        guarded(made.tls("replica/1"), Produce=handlers.unary) as endpoint,
        stub(endpoint, made.tls("admin/a", cluster="c2")) as stranger,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stranger.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)

    assert _refusal(caught).message.endswith("the certificate is of cluster 'c2' and not of this one")
    assert handlers.reached == []


async def test_a_client_may_not_fetch_as_a_replica(made: Certificates) -> None:
    """The same method, with replica_state and without: one moves the high watermark, the other reads."""
    handlers = Handlers()
    as_replica = pb.FetchRequest(topics=TOPICS, replica_state={"replica_id": 2, "replica_epoch": 1})
    async with (
        guarded(made.tls("replica/1"), Fetch=handlers.unary) as endpoint,
        stub(endpoint, made.tls("client/x")) as client,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.Fetch(as_replica, timeout=DEADLINE_S)
        await client.Fetch(pb.FetchRequest(topics=TOPICS), timeout=DEADLINE_S)

    assert _refusal(caught).message == "client x may not call Fetch: only without replica_state"
    assert [request.HasField("replica_state") for request in handlers.reached] == [False]


async def test_every_message_of_a_stream_is_looked_at(made: Certificates) -> None:
    """Node 2 sends as itself, then as node 3: the stream ends there and the handler never sees the message."""
    handlers = Handlers()
    async with (
        guarded(made.tls("replica/1"), FetchStream=handlers.stream) as endpoint,
        stub(endpoint, made.tls("replica/2")) as node,
    ):
        stream = node.FetchStream(timeout=DEADLINE_S)
        for correlation_id, replica_id in ((1, 2), (2, 2), (3, 3)):
            await stream.write(
                pb.FetchStreamRequest(
                    correlation_id=correlation_id,
                    topics=TOPICS,
                    replica_state={"replica_id": replica_id, "replica_epoch": 1},
                )
            )
        answered = [(await stream.read()).correlation_id for _ in range(2)]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()

    assert answered == [1, 2]
    assert [message.correlation_id for message in handlers.reached] == [1, 2]
    assert "only with replica_state of the caller's own replica_id" in _refusal(caught).message


async def test_whoever_may_send_anything_meets_no_check_in_between(made: Certificates) -> None:
    """A client's ProduceStream is checked once; its handler reads from gRPC itself."""
    contexts = []

    async def produce(_: Any, context: Any) -> None:
        contexts.append(context)

    async with (
        guarded(made.tls("replica/1"), ProduceStream=produce) as endpoint,
        stub(endpoint, made.tls("client/x")) as client,
    ):
        stream = client.ProduceStream(timeout=DEADLINE_S)
        assert await stream.read() is grpc.aio.EOF

    assert [type(context).__module__.startswith("strandline.rpc") for context in contexts] == [False]


async def test_reflection_works_behind_the_table(made: Certificates) -> None:
    """Its handler generates answers, which must not change behind the check."""
    async with guarded(made.tls("replica/1")) as endpoint, open_channel(endpoint, tls=made.tls("client/x")) as channel:
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        stream = reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await stream.read()

    assert SERVICE in [service.name for service in answer.list_services_response.service]


async def test_a_method_that_the_table_does_not_name_is_for_nobody(made: Certificates) -> None:
    """A handler without an entry in the table is rejected for an administrator too."""
    server_tls = made.tls("replica/1")
    server = build_server(ServerSettings(name="new"), tls=server_tls)

    handlers = {
        "Anything": grpc.unary_unary_rpc_method_handler(
            Handlers().unary, pb.ProduceRequest.FromString, pb.ProduceResponse.SerializeToString
        )
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("strandline.v1.NewService", handlers),))
    endpoint = bind(server, _LOOPBACK, tls=server_tls)
    await server.start()
    async with open_channel(endpoint, tls=made.tls("admin/x")) as channel:
        method = channel.unary_unary("/strandline.v1.NewService/Anything")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", timeout=DEADLINE_S)
    await server.stop(0)

    assert "it is for no caller" in _refusal(caught).message


async def test_an_unknown_method_stays_unimplemented(made: Certificates) -> None:
    """The check does not hide which methods exist: the schema is public."""
    async with guarded(made.tls("replica/1")) as endpoint, open_channel(endpoint, tls=made.tls("client/x")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/strandline.v1.LeaderService/Nothing")(b"", timeout=DEADLINE_S)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_caller_that_asks_in_a_loop_does_not_fill_the_log(made: Certificates) -> None:
    """Rejections are logged once a second at most, with the caller's identity."""
    handlers = Handlers()
    async with (
        guarded(made.tls("replica/1"), Produce=handlers.unary) as endpoint,
        stub(endpoint, made.tls("replica/2")) as node,
    ):
        with capture_logs() as lines:
            for _ in range(20):
                with pytest.raises(grpc.aio.AioRpcError):
                    await node.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)

    said = [line for line in lines if line["event"] == "a caller is refused"]
    assert 1 <= len(said) < 20
    assert said[0]["caller"] == "strandline://c1/replica/2"


async def test_without_tls_nobody_is_asked(made: Certificates) -> None:
    """The table applies only to servers with TLS: on loopback without it a fetch may claim any identity."""
    handlers = Handlers()
    as_replica = pb.FetchRequest(topics=TOPICS, replica_state={"replica_id": 2, "replica_epoch": 1})
    async with guarded(None, Fetch=handlers.unary) as endpoint, stub(endpoint, None) as anybody:
        await anybody.Fetch(as_replica, timeout=DEADLINE_S)

    assert len(handlers.reached) == 1


def test_the_callers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller beyond them is looked up again with each call, and its answer is the same."""
    monkeypatch.setattr(authorization, "_GRANTS_KEPT", 2)
    check = authorization.PermissionInterceptor("c1")
    grants = [
        check._grant("/strandline.v1.LeaderService/Fetch", SimpleNamespace(auth_context=lambda uri=uri: uri))  # type: ignore[arg-type]
        for uri in ({authorization._URIS: (f"strandline://c1/replica/{n}".encode(),)} for n in (1, 2, 3, 3))
    ]

    assert len(check._granted) == 2
    assert [grant.caller.name for grant in grants] == ["1", "2", "3", "3"]
