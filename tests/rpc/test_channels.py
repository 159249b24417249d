"""Addresses, and the waits between two attempts."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable

import grpc
import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.etcd.client import Etcd
from strandline.rpc.channels import Backoff, call, open_channel, parse_endpoint, target
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1 import leader_service_pb2_grpc as pb_grpc


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
    server = grpc.aio.server()
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
    server = grpc.aio.server()
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
