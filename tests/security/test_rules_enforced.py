"""`authorization = acl` in a running cluster: what clients may touch, by rules that change while they are connected."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import settings_of
from raw_calls import DEADLINE_S, HIDDEN, ruled
from secured_cluster import Secured, secured_cluster, until

from strandline.client import Admin, Consumer, Producer
from strandline.core.errors import ErrorCode, Refused
from strandline.core.permissions import Caller, Operation, Pattern, Permission, Permit, ResourceType, Rule
from strandline.rpc.channels import open_channel, target
from strandline.rpc.permissions import NEEDS, TABLE, CallerRole
from strandline.rpc.permitted import refusal_of_whole
from strandline.v1 import leader_service_pb2 as pb, metadata_service_pb2
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub


def rule(words: str) -> Rule:
    """`client/x ALLOW READ topic LITERAL t` as a rule."""
    principal, permission, operation, resource, pattern, name = words.split(" ")
    return Rule(principal, Permission(permission), Operation(operation), ResourceType(resource), Pattern(pattern), name)


@asynccontextmanager
async def _cluster(
    directory: Path, *topics: str, nodes: Sequence[int] = (1,)
) -> AsyncIterator[tuple[Secured, grpc.aio.Channel]]:
    """Nodes that keep to rules, topics with one record each, and the first node's port as client/x reaches it."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(secured_cluster(directory, nodes, authorization="acl"))
        producing = settings_of(cluster.made.files("admin/root"))
        for topic in topics:
            await cluster.admin.create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(target(cluster.for_clients), **producing) as producer:
            for topic in topics:
                await (await producer.send(topic, b"record"))
        assert cluster.nodes[0].client is not None
        tls = cluster.made.tls("client/x")
        yield cluster, await stack.enter_async_context(open_channel(cluster.nodes[0].client, tls=tls))


def _fetch(*topics: str, wait_ms: int = 0, offset: int = 0, kind: Any = pb.FetchRequest, **more: Any) -> Any:
    parts = [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": offset}]} for topic in topics]
    return kind(topics=parts, max_wait_ms=wait_ms, min_bytes=1, **more)


def _found(response: Any) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in response.responses}


async def _granted(cluster: Secured, *words: str) -> None:
    assert await cluster.admin.create_acls(map(rule, words)) == [None] * len(words)


@pytest.mark.usefixtures("carried_by")
async def test_one_fetch_of_three_topics_serves_the_one_that_is_granted(tmp_path: Path) -> None:
    """`a.c` is read; `a.b`, which is denied, and `x`, which is not there, fail alike; so it is on a stream."""
    async with _cluster(tmp_path, "a.b", "a.c") as (cluster, channel):
        await _granted(cluster, "client/x ALLOW READ topic PREFIXED a.", "client/x DENY READ topic LITERAL a.b")
        stub: Any = LeaderServiceStub(channel)

        async def served() -> Any:
            answer = await stub.Fetch(_fetch("a.b", "a.c", "x"), timeout=DEADLINE_S)
            return answer if _found(answer).get("a.c") == 0 else None

        answer = await until(served, "the node has heard of the rules")
        stream = stub.FetchStream(timeout=DEADLINE_S)
        await stream.write(_fetch("a.b", "a.c", "x", kind=pb.FetchStreamRequest, correlation_id=1))
        streamed: dict[str, int] = {}
        while len(streamed) < 3:
            streamed |= _found(await stream.read())
        stream.cancel()

    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert _found(answer) == streamed == {"a.b": denied, "x": denied, "a.c": 0}
    said = {topic.topic: topic.partitions[0].error_message for topic in answer.responses}
    assert said["a.b"].replace("a.b", "") == said["x"].replace("'x'", "''")


async def test_a_rule_that_is_taken_back_stops_a_fetch_that_waits(tmp_path: Path) -> None:
    """Within a second on streams that are open: the fetch that waited for the record is refused, and not served it."""
    async with _cluster(tmp_path, "t") as (cluster, channel):
        grant = "client/x ALLOW READ topic LITERAL t"
        await _granted(cluster, grant)
        stub: Any = LeaderServiceStub(channel)

        async def reads() -> bool:
            return _found(await stub.Fetch(_fetch("t"), timeout=DEADLINE_S)) == {"t": 0}

        await until(reads, "the node has heard of the rule")
        stream = stub.FetchStream(timeout=DEADLINE_S)
        waiting = _fetch("t", wait_ms=8_000, offset=1, kind=pb.FetchStreamRequest, correlation_id=1)
        await stream.write(waiting)
        assert await cluster.admin.delete_acls([rule(grant)]) == [None]
        began_s = time.monotonic()

        async def refused() -> bool:
            return not await reads()

        await until(refused, "the node has heard that it is gone")
        took_s = time.monotonic() - began_s
        producing = settings_of(cluster.made.files("admin/root"))
        async with Producer(target(cluster.for_clients), **producing) as producer:
            await (await producer.send("t", b"secret"))
        answer = await stream.read()
        stream.cancel()

    assert took_s < 1
    assert _found(answer) == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert b"secret" not in answer.SerializeToString()


async def test_a_subscriber_sees_what_it_may_describe_as_rules_change(tmp_path: Path) -> None:
    """A topic appears with its grant and goes with it; the subscription stays open, and names no other topic."""
    async with _cluster(tmp_path, "t", HIDDEN) as (cluster, channel):
        stub: Any = MetadataServiceStub(channel)
        stream = stub.Subscribe(timeout=DEADLINE_S)
        await stream.write(metadata_service_pb2.SubscribeRequest(all_topics=True))
        seen: list[list[str]] = [[topic.name for topic in (await stream.read()).topics]]

        async def next_snapshot() -> list[str]:
            while True:
                message = await stream.read()
                if message.is_snapshot:
                    return [topic.name for topic in message.topics]

        await _granted(cluster, "client/x ALLOW DESCRIBE topic LITERAL t")
        seen.append(await next_snapshot())
        await cluster.admin.delete_acls([rule("client/x ALLOW DESCRIBE topic LITERAL t")])
        seen.append(await next_snapshot())
        stream.cancel()

    assert seen == [[], ["t"], []]


async def test_a_client_does_what_it_is_granted(tmp_path: Path) -> None:
    """With rules a client creates its topics and changes rules, as without them only administrators do."""
    async with _cluster(tmp_path, HIDDEN) as (cluster, _):
        await _granted(
            cluster,
            "client/x ALLOW CREATE topic PREFIXED own.",
            "client/x ALLOW DESCRIBE topic PREFIXED own.",
            "client/x ALLOW ALTER cluster LITERAL kafka-cluster",
            "client/x ALLOW DESCRIBE cluster LITERAL kafka-cluster",
        )
        settings = settings_of(cluster.made.files("client/x"))
        async with Admin(target(cluster.for_clients), **settings) as client:
            made = await client.create_topic("own.t", partitions=1, replication_factor=1)
            rules = await client.describe_acls()
            locked_out = await client.delete_acls([rule("client/x ALLOW ALTER cluster LITERAL kafka-cluster")])
            topics = [topic.name for topic in await client.describe_topics()]
        assert made is not None
        status = await cluster.admin.authorizations()

    assert len(rules) == 4
    assert [refusal.code if refusal else None for refusal in locked_out] == [ErrorCode.POLICY_VIOLATION]
    assert topics == ["own.t"]
    assert status == {"acl"}


async def test_grants_are_enough_to_transact_and_to_consume_as_a_group(tmp_path: Path) -> None:
    """A topic, a group and a transactional id by prefixes, and nothing of the cluster; others are refused."""
    async with _cluster(tmp_path, "own.t", nodes=(1, 2, 3)) as (cluster, _):
        await _granted(
            cluster,
            "client/x ALLOW READ topic PREFIXED own.",
            "client/x ALLOW WRITE topic PREFIXED own.",
            "client/x ALLOW READ group PREFIXED own.",
            "client/x ALLOW WRITE transactional-id PREFIXED own.",
        )
        bootstrap, settings = target(cluster.for_clients), settings_of(cluster.made.files("client/x"))
        async with Producer(bootstrap, **settings, transactional_id="own.i") as producer, producer.transaction():
            await producer.send("own.t", b"more")
        with pytest.raises(Refused, match=r"^TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await Producer(bootstrap, **settings, transactional_id="other.i").start()
        read: list[bytes] = []
        async with Consumer(bootstrap, **settings, group="own.g", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["own.t"])
            async for record in consumer:
                read.append(record.value)
                if len(read) == 2:
                    break
            await consumer.commit()
        async with Consumer(bootstrap, **settings, group="other.g") as other:
            with pytest.raises(Refused, match=r"^GROUP_AUTHORIZATION_FAILED"):
                await other.subscribe(["own.t"])

    assert read == [b"record", b"more"]


# ---- every method


def test_every_method_that_a_client_or_an_administrator_calls_says_what_it_needs() -> None:
    """But for one by which administrators help coordinators; a method without an entry is refused to every client."""
    called = {method for method, grants in TABLE.items() if grants.keys() & {CallerRole.CLIENT, CallerRole.ADMIN}}

    assert called - NEEDS.keys() == {"/strandline.v1.LeaderService/WriteTxnMarkers"}
    assert NEEDS.keys() - called == set()


_AUTHORIZATION = {29, 30, 31, 53}
_HIDES = {
    "GroupService/ListGroups",
    "TransactionService/ListTransactions",
    "ControllerService/GetMetadata",
    "MetadataService/Subscribe",
    "MetadataService/GetMetadata",
}
"""Methods whose answers leave out what is not granted."""


async def test_every_method_refuses_or_hides_what_is_not_granted(tmp_path: Path) -> None:
    """By name, all that a client can call and that needs something: an error of authorization, or a list without it."""
    async with _cluster(tmp_path, HIDDEN) as (cluster, node), AsyncExitStack() as stack:
        controller = await stack.enter_async_context(
            open_channel(cluster.for_clients, tls=cluster.made.tls("client/x"))
        )
        found = await ruled(node, controller)
    elsewhere = [need for method, need in NEEDS.items() if method.startswith("/strandline.v1.AnalyticsService/")]

    assert {name: codes for name, (codes, answer) in found.items() if not _is_kept_from_it(name, codes, answer)} == {}
    # These are refused as a whole.
    assert all(refusal_of_whole(Permit(Caller("client/x", need.of)), need, None, names_one=True) for need in elsewhere)


def _is_kept_from_it(name: str, codes: set[int], answer: Any) -> bool:
    if name in _HIDES and not codes:
        return answer is not None and HIDDEN.encode() not in answer.SerializeToString()
    return bool(codes) and codes <= _AUTHORIZATION


@pytest.mark.parametrize("setting", ["off", "acl"])
async def test_administrators_need_no_rules(tmp_path: Path, setting: str) -> None:
    """Whatever the setting, an administrator's certificate suffices; a client's does where there are no rules."""
    async with secured_cluster(tmp_path, (1,), authorization=setting) as cluster:
        await cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        settings = settings_of(cluster.made.files("client/x"))
        async with Admin(target(cluster.for_clients), **settings) as client:
            topics = [topic.name for topic in await client.describe_topics()]

    assert topics == (["t"] if setting == "off" else [])
