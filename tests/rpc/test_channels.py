"""Addresses and channels: waits between attempts, names that move, and the way back to the controller."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from strandline.core.errors import ControllerHint, ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint, Heartbeat
from strandline.core.types import NodeEpoch, NodeId
from strandline.etcd.client import Etcd
from strandline.rpc import transports
from strandline.rpc.channels import Backoff, Channels, call, open_channel, parse_endpoint, reconnection, target
from strandline.rpc.controller_link import ControllerLink
from strandline.rpc.interceptors import abort
from strandline.rpc.transports import aio
from strandline.runtime.settings import ServiceSettings, wrong_transport
from strandline.v1 import (
    controller_service_pb2 as controller_pb,
    leader_service_pb2 as pb,
    leader_service_pb2_grpc as pb_grpc,
)
from strandline.v1.controller_service_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server

pytestmark = pytest.mark.usefixtures("carried_by")


def test_waits_double_up_to_the_most_and_start_small_after_a_success() -> None:
    """Each wait lies between half of its step and all of it."""
    backoff = Backoff(100, 400, draw=random.Random(7))
    waits = [backoff.next_s() for _ in range(4)]
    backoff.reset()

    assert all(step / 2 <= wait <= step for wait, step in zip(waits, (0.1, 0.2, 0.4, 0.4), strict=True))
    assert backoff.next_s() <= 0.1


@pytest.mark.parametrize(
    ("text", "endpoint"), [("localhost:9", Endpoint("localhost", 9)), ("[::1]:80", Endpoint("::1", 80))]
)
def test_an_address_is_read_and_written_alike(text: str, endpoint: Endpoint) -> None:
    """`target` writes what `parse_endpoint` reads."""
    assert parse_endpoint(text) == endpoint
    assert target(endpoint) == text


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:x", "host:70000", "http://host:1", "::1:80", "a/b:1"]
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    """The message quotes the given address."""
    with pytest.raises(ValueError, match="is not an address"):
        parse_endpoint(text)


async def test_a_client_gives_up_a_connection_that_acknowledges_nothing() -> None:
    """After a cut, TCP alone would wait longer and longer before it retries, long after the cut has healed."""
    server = aio().server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(Endpoint("127.0.0.1", port)) as channel:
        await asyncio.wait_for(channel.channel_ready(), 10)
        limits_ms = _user_timeouts_ms(port)
    await server.stop(None)

    assert limits_ms == [5_000]


def _user_timeouts_ms(port: int) -> list[int]:
    """TCP_USER_TIMEOUT of each connection of this process to a local port."""
    found = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            connection = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with connection:
            try:
                is_ours = connection.getpeername()[1] == port
            except (OSError, IndexError):
                continue
            if is_ours:
                found.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    return found


def test_a_variable_that_names_no_transport_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """By commands in one sentence, and by the library when a client is made."""
    monkeypatch.setenv(transports.VARIABLE, "asynkio")
    monkeypatch.setattr(transports, "_chosen", None)
    with pytest.raises(ValueError, match="STRANDLINE_GRPC_TRANSPORT=asynkio: it is asyncio or grpcio"):
        Channels()

    said = wrong_transport({transports.VARIABLE: "asynkio"})

    assert said == "variable STRANDLINE_GRPC_TRANSPORT=asynkio must be asyncio or grpcio"
    assert [wrong_transport({transports.VARIABLE: name}) for name in ("", *transports.TRANSPORTS)] == [None] * 3


def test_clients_and_services_have_one_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable a client is on the transport that the services' setting has as its default."""
    monkeypatch.delenv(transports.VARIABLE, raising=False)
    monkeypatch.setattr(transports, "_chosen", None)

    assert transports.aio() is transports.TRANSPORTS[ServiceSettings.model_fields["grpc_transport"].default]


async def test_a_call_to_nobody_is_a_network_exception() -> None:
    """A refused connection is returned as a rejection, not as a gRPC error."""
    async with open_channel(Endpoint("127.0.0.1", 1)) as channel:
        stub = pb_grpc.LeaderServiceStub(channel)
        with pytest.raises(Refused) as caught:
            await call(stub.Produce, pb.ProduceRequest(), deadline_ms=2_000)

    assert caught.value.refusal.code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
@pytest.mark.parametrize("opens", [open_channel, lambda endpoint: Etcd([endpoint])._channel(endpoint)])
async def test_no_call_goes_to_a_proxy(
    opens: Callable[[Endpoint], grpc.aio.Channel], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment says of a proxy is for browsers and downloads: calls to nodes, controllers and etcd do
    not follow it."""
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    server = aio().server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("it", {"Echo": _ECHO}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = opens(Endpoint("127.0.0.1", port))
    try:
        answer = await channel.unary_unary("/it/Echo")(b"here", timeout=10, wait_for_ready=True)
    finally:
        await channel.close()
        await server.stop(None)

    assert answer == b"here"


async def _echo(request: bytes, _: object) -> bytes:
    return request


_ECHO = grpc.unary_unary_rpc_method_handler(_echo)
NOBODY, SOMEBODY = "127.0.0.2", "127.0.0.1"
READY_S = 10.0
"""gRPC by itself asks again after 30 s."""

_TYPE_A = 1
_POINTER_TO_QUESTION = 0xC00C


class NameServer(asyncio.DatagramProtocol):
    """Answers every query for an IPv4 address with the one address that is currently set."""

    def __init__(self) -> None:
        self.address = NOBODY
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """RFC 1035, 4: the question again, and one answer if it was for an IPv4 address."""
        assert self._transport is not None
        end = data.index(b"\0", 12) + 5
        (kind,) = struct.unpack(">H", data[end - 4 : end - 2])
        answer = b""
        if kind == _TYPE_A:
            packed = bytes(int(part) for part in self.address.split("."))
            answer = struct.pack(">HHHIH", _POINTER_TO_QUESTION, _TYPE_A, 1, 1, len(packed)) + packed
        counts = struct.pack(">HHHH", 1, 1 if answer else 0, 0, 0)
        self._transport.sendto(data[:2] + b"\x81\x80" + counts + data[12:end] + answer, addr)


async def test_a_peer_at_a_new_address_is_found_soon(carried_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name moves after the dial to its old address has failed: the channel resolves it again and connects."""
    loop = asyncio.get_running_loop()
    transport, names = await loop.create_datagram_endpoint(NameServer, local_addr=(SOMEBODY, 0))
    server = aio().server(options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port(f"{SOMEBODY}:0")
    await server.start()
    name_server = transport.get_extra_info("sockname")[1]
    name = f"dns://{SOMEBODY}:{name_server}/node.test:{port}"
    if carried_by == "asyncio":
        # It asks the system's resolver, which the test cannot set.
        def resolved(*_: object, **__: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (names.address, port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        name = f"node.test:{port}"
    channel = aio().insecure_channel(name, options=reconnection())
    try:
        await _reaches(channel, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
        names.address = SOMEBODY
        await _reaches(channel, grpc.ChannelConnectivity.READY)
    finally:
        await channel.close()
        await server.stop(None)
        transport.close()


async def _reaches(channel: grpc.aio.Channel, wanted: grpc.ChannelConnectivity) -> None:
    async with asyncio.timeout(READY_S):
        while (state := channel.get_state(try_to_connect=True)) is not wanted:
            await channel.wait_for_state_change(state)


_CALL_MS = 5_000


@asynccontextmanager
async def _served(servicer: Any, *others: Endpoint) -> AsyncIterator[tuple[ControllerLink, Endpoint]]:
    """A link to a controller, with the controller's address, and to others behind it."""
    server = aio().server(options=[("grpc.so_reuseport", 0)])
    add_ControllerServiceServicer_to_server(servicer, server)
    endpoint = Endpoint("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    link = ControllerLink([endpoint, *others])
    try:
        yield link, endpoint
    finally:
        await link.close()
        await server.stop(None)


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
        return controller_pb.HeartbeatResponse(controller_epoch=1)


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
    async with _served(Standby(), Endpoint("127.0.0.1", 1)) as (link, standby):
        with pytest.raises(Refused):
            await anext(link.watch("c", NodeId(1), NodeEpoch(1), None))

    assert renewed == [standby]
    assert link.endpoint == Endpoint("127.0.0.1", 1)


async def test_calls_that_fail_together_turn_once() -> None:
    """A heartbeat and a watch that a standby refuses at once follow its hint; the second does not turn away from it."""
    both = asyncio.Barrier(2)

    class Names(ControllerServiceServicer):
        async def Heartbeat(  # noqa: N802 - gRPC calls a handler by the name of its RPC
            self, request: Any, context: Any
        ) -> Any:
            await both.wait()
            await abort(context, _hint(ACTIVE, 5))

    beat = Heartbeat(cluster_id="c", node_id=NodeId(1), node_epoch=NodeEpoch(1), metadata_offset=0)
    async with _served(Names(), B) as (link, _):
        refused = await asyncio.gather(*(link.heartbeat(beat, _CALL_MS) for _ in "ab"), return_exceptions=True)

    assert [type(one) for one in refused] == [Refused, Refused]
    assert link.endpoint == ACTIVE


async def test_who_serves_no_controller_is_left() -> None:
    """Another process at the controller's old address does not know the method: the next call dials again."""
    somebody = SomebodyElse()
    beat = Heartbeat(cluster_id="c", node_id=NodeId(1), node_epoch=NodeEpoch(1), metadata_offset=0)
    async with _served(somebody) as (link, _):
        with pytest.raises(Refused):
            await link.heartbeat(beat, _CALL_MS)
        answer = await link.heartbeat(beat, _CALL_MS)

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
    """C31: if the named one does not decide, the list goes on, and two that name each other hold up no caller."""
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
            return controller_pb.CreateTopicsResponse(
                topics=[controller_pb.CreatedTopic(name="t", error_code=cast(Any, code))]
            )

    async with _served(Decides()) as (link, _):
        answer = await link.create_internal_topic("t")

    assert (answer and answer.code) == refused
