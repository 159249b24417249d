"""Quotas in a running cluster: who is told to wait, who is muted, what is not, and when a mute ends (C102 to C104)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import settings_of
from secured_cluster import Secured, build_node, secured_cluster, until

from strandline import client
from strandline.core.errors import ErrorCode
from strandline.node.node import ReplicaNode
from strandline.rpc import throttling
from strandline.rpc.channels import Keepalive, open_channel, target
from strandline.rpc.status import refusal_of
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

DEADLINE_S = 15
PRODUCE, CONSUME = client.QuotaKey.PRODUCER_BYTE_RATE, client.QuotaKey.CONSUMER_BYTE_RATE
RATE = 1_000
PAYLOAD = b"r" * 10_000
BATCH = client.encode_batch([client.NewRecord(None, PAYLOAD, int(time.time() * 1_000))])
"""More than nine seconds of the rate, beyond a burst of one."""


@dataclass(slots=True)
class Held:
    """A cluster of one topic, and its node as two clients reach it."""

    cluster: Secured
    node: ReplicaNode
    x: Any
    y: Any

    async def set(self, key: client.QuotaKey, value: float | None, principal: str = "client/x") -> None:
        """Set or remove a quota, and wait until the node has heard of it."""
        assert await self.cluster.admin.alter_quotas([client.QuotaChange(principal, key, value)]) == [None]

        async def heard() -> bool:
            return self.node.throttle.meters.rate(principal, key) == value

        await until(heard, "the node has heard of the quota")


@asynccontextmanager
async def _held(directory: Path, **settings: Any) -> AsyncIterator[Held]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(secured_cluster(directory, (1,), quota_burst_s=1, **settings))
        await cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        await until(lambda: cluster.admin.describe_partitions(["t"]), "t is led")
        assert cluster.nodes[0].client is not None
        stubs = [
            LeaderServiceStub(
                await stack.enter_async_context(open_channel(cluster.nodes[0].client, tls=cluster.made.tls(who)))
            )
            for who in ("client/x", "client/y")
        ]
        yield Held(cluster, cluster.nodes[0], *stubs)


def _produced(batch: bytes = BATCH, kind: Any = pb.ProduceRequest, **more: Any) -> Any:
    return kind(topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": batch}]}], **more)


def _fetch() -> pb.FetchRequest:
    return pb.FetchRequest(topics=[{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0}]}])


def _streamed(number: int, batch: bytes = BATCH) -> pb.ProduceStreamRequest:
    return _produced(batch, pb.ProduceStreamRequest, correlation_id=number)


def _offset(answer: Any) -> int:
    return answer.responses[0].partition_responses[0].base_offset


@pytest.mark.usefixtures("carried_by")
async def test_a_mute_holds_messages_back_in_their_order_until_the_quota_goes(tmp_path: Path) -> None:
    """What exceeds the rate is appended and answered at once, with the time to wait; what follows on this stream and on
    a new one waits, and is served in order as soon as the quota is removed."""
    async with _held(tmp_path) as held:
        await held.set(PRODUCE, RATE)
        streams = [held.x.ProduceStream(timeout=DEADLINE_S) for _ in range(2)]
        await streams[0].write(_streamed(1))
        first = await streams[0].read()
        for number in (2, 3):
            await streams[0].write(_streamed(number))
        await streams[1].write(_streamed(4))
        waiting = [asyncio.ensure_future(stream.read()) for stream in streams]
        # Another's message goes the whole way meanwhile, and so does a fetch on the connection of the muted streams.
        others = await held.y.Produce(_produced(), timeout=DEADLINE_S), await held.x.Fetch(_fetch(), timeout=DEADLINE_S)
        were_held = not any(each.done() for each in waiting)
        await held.set(PRODUCE, None)
        answers = [await waiting[0], await streams[0].read(), await waiting[1]]
        for stream in streams:
            stream.cancel()

    assert 8_000 < first.throttle_time_ms <= 10_000
    assert _offset(first) == 0
    assert were_held
    assert (others[0].throttle_time_ms, _offset(others[0]), others[1].throttle_time_ms) == (0, 1, 0)
    assert [answer.correlation_id for answer in answers] == [2, 3, 4]
    assert _offset(answers[0]) < _offset(answers[1])
    assert [answer.throttle_time_ms for answer in answers] == [0, 0, 0]


async def test_a_muted_unary_call_keeps_its_deadline(tmp_path: Path) -> None:
    """It waits, and ends with its own deadline; nothing was appended. More bytes than may wait are refused at once."""
    async with _held(tmp_path) as held:
        await held.set(PRODUCE, RATE)
        first = await held.x.Produce(_produced(), timeout=DEADLINE_S)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await held.x.Produce(_produced(), timeout=0.3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(throttling, "MOST_WAITING_BYTES", len(BATCH))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await held.x.Produce(_produced(), timeout=DEADLINE_S)
        fetched = await held.y.Fetch(_fetch(), timeout=DEADLINE_S)

    refusal = refusal_of(refused.value)
    assert first.throttle_time_ms > 8_000
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refusal.throttle_time_ms > 0
    assert fetched.responses[0].partitions[0].high_watermark == 1


async def test_a_retry_of_an_idempotent_batch_counts_once_more(tmp_path: Path) -> None:
    """The log takes it once, the quota twice: bytes were sent twice."""
    batch = client.encode_batch(
        [client.NewRecord(None, PAYLOAD, int(time.time() * 1_000))],
        producer_id=7, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    async with _held(tmp_path) as held:
        # A burst that no batch fits into, however long the bucket had to fill again.
        await held.set(PRODUCE, 8_000)
        stream = held.x.ProduceStream(timeout=DEADLINE_S)
        told = []
        for number in range(2):
            await stream.write(_streamed(number, batch))
            answer = await stream.read()
            told.append((_offset(answer), answer.throttle_time_ms > 0))
        stream.cancel()

    assert told == [(0, True), (0, True)]


@pytest.mark.usefixtures("carried_by")
async def test_a_fetch_beyond_the_rate_is_answered_without_records(tmp_path: Path) -> None:
    """One that came before the mute, and waited for its records meanwhile; with the time to wait, and at once."""
    async with _held(tmp_path) as held:
        await held.y.Produce(_produced(), timeout=DEADLINE_S)
        await held.set(CONSUME, RATE)
        stream = held.x.FetchStream(timeout=DEADLINE_S)
        parked = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 1}]}]
        absent = [{"topic": "absent", "partitions": [{"partition": 0}]}]
        await stream.write(pb.FetchStreamRequest(correlation_id=1, topics=parked, max_wait_ms=10_000))
        # Once this is answered, the message before it was taken.
        await stream.write(pb.FetchStreamRequest(correlation_id=2, topics=absent))
        assert (await stream.read()).correlation_id == 2
        whole = await held.x.Fetch(_fetch(), timeout=DEADLINE_S)
        await held.y.Produce(_produced(), timeout=DEADLINE_S)
        empty = await stream.read()
        stream.cancel()

    assert len(whole.responses[0].partitions[0].records) == len(BATCH)
    assert 8_000 < whole.throttle_time_ms <= 10_000
    assert empty.responses[0].partitions[0].records == b""
    assert empty.responses[0].partitions[0].high_watermark == 2
    assert 0 < empty.throttle_time_ms <= whole.throttle_time_ms


async def test_an_obedient_producer_and_consumer_meet_no_mute(tmp_path: Path) -> None:
    """Records of several bursts arrive, each once; a client that waits as long as asked never waits at the node."""
    async with _held(tmp_path) as held:
        for key in (PRODUCE, CONSUME):
            await held.set(key, 20_000)
        muted: list[str] = []
        node = held.node
        until_unmuted = node.throttle.until_unmuted

        async def noted(principal: str, keys: Any, request: Any) -> None:
            muted.append(principal)
            await until_unmuted(principal, keys, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node.throttle, "until_unmuted", noted)
            settings = settings_of(held.cluster.made.files("client/x"))
            began_s = time.monotonic()
            async with client.Producer(target(held.cluster.for_clients), **settings, linger_ms=0) as producer:
                for _ in range(6):
                    await (await producer.send("t", PAYLOAD))
            produced_s = time.monotonic() - began_s
            bootstrap = target(held.cluster.for_clients)
            # A batch for each fetch.
            reading: dict[str, Any] = {"auto_offset_reset": "earliest", "stop_at_end": True, "max_bytes": 1_024}
            async with client.Consumer(bootstrap, **settings, **reading) as consumer:
                await consumer.assign("t")
                read = [record.value async for record in consumer]

    assert read == [PAYLOAD] * 6
    assert produced_s > 1.5
    assert muted == []


async def test_replicas_are_never_throttled(tmp_path: Path) -> None:
    """With a default of almost nothing for every client, administrators write and the other node copies it at once."""
    async with secured_cluster(tmp_path, (1, 2), quota_burst_s=1) as cluster:
        await cluster.admin.create_topic("t", partitions=1, replication_factor=2, configs={"min.insync.replicas": "2"})
        changes = [client.QuotaChange("client/*", key, 0.001) for key in client.QuotaKey]
        assert await cluster.admin.alter_quotas(changes) == [None] * len(changes)
        settings = settings_of(cluster.made.files("admin/root"))
        async with client.Producer(target(cluster.for_clients), **settings) as producer:
            for _ in range(20):
                await (await producer.send("t", PAYLOAD))
        led = await cluster.led("t")

    assert led.high_watermark == 20


async def test_beyond_its_mutation_rate_a_client_is_told_when_to_ask_again(tmp_path: Path) -> None:
    """The refusal reaches the caller with its time, and the topic is not there."""
    async with secured_cluster(tmp_path, (1,), quota_burst_s=1, authorization="acl") as cluster:
        change = client.QuotaChange("client/x", client.QuotaKey.CONTROLLER_MUTATION_RATE, 1)
        await cluster.admin.alter_quotas([change])
        found = await cluster.admin.describe_quotas()
        grant = client.Rule(
            "client/x",
            client.Permission.ALLOW,
            client.Operation.CREATE,
            client.ResourceType.CLUSTER,
            client.Pattern.LITERAL,
            "kafka-cluster",
        )
        await cluster.admin.create_acls([grant])
        async with client.Admin(target(cluster.for_clients), **settings_of(cluster.made.files("client/x"))) as x:
            await x.create_topic("a", partitions=10, replication_factor=1)
            with pytest.raises(client.Refused) as refused:
                await x.create_topic("b", partitions=1, replication_factor=1)
        names = [topic.name for topic in await cluster.admin.describe_topics()]

    assert [(quota.principal, quota.key, quota.value) for quota in found] == [change]
    assert refused.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < refused.value.refusal.throttle_time_ms <= 9_000
    assert names == ["a"]


async def test_a_stop_ends_every_mute(tmp_path: Path) -> None:
    """A call that would have waited for half a minute is answered by the node that stops, and not cut off."""
    async with secured_cluster(tmp_path, ()) as cluster:
        node = build_node(tmp_path / "n", cluster.for_nodes, cluster.made, 1, quota_burst_s=1)
        await node.start()
        await cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        await until(lambda: cluster.admin.describe_partitions(["t"]), "t is led")
        assert node.client is not None
        async with open_channel(node.client, tls=cluster.made.tls("client/x")) as channel:
            held = Held(cluster, node, LeaderServiceStub(channel), None)
            await held.set(PRODUCE, 1)
            await held.x.Produce(_produced(), timeout=60)
            waiting = asyncio.ensure_future(held.x.Produce(_produced(), timeout=60))

            async def waits() -> bool:
                return node.throttle.waiting_bytes > 0

            await until(waits, "the call waits")
            await node.shut_down()
            answer = await waiting

    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.usefixtures("carried_by")
async def test_a_flood_on_a_muted_stream_is_held_back_and_its_connection_lives(tmp_path: Path) -> None:
    """The sender stops after what flow control lets it send; pings and other calls of the connection are answered
    meanwhile, and all of it is appended in order once the mute is over."""
    messages = 40
    batch = client.encode_batch([client.NewRecord(None, b"f" * 1_000_000, int(time.time() * 1_000))])
    async with _held(tmp_path, ping_every_ms=100) as held:
        # With TLS quotas count at the port for nodes, too, which allows pings.
        assert held.node.internal is not None
        tls = held.cluster.made.tls("client/x")
        often = Keepalive(ping_every_ms=100, ping_timeout_ms=2_000)
        async with open_channel(held.node.internal, tls=tls, keepalive=often) as channel:
            stub: Any = LeaderServiceStub(channel)
            await held.set(PRODUCE, RATE)
            await stub.Produce(_produced(), timeout=DEADLINE_S)
            stream = stub.ProduceStream(timeout=4 * DEADLINE_S)
            written: list[int] = []

            async def flood() -> None:
                for number in range(messages):
                    await stream.write(_streamed(number, batch))
                    written.append(number)

            flooding = asyncio.ensure_future(flood())
            held_back: list[int] = []

            async def stands() -> bool:
                held_back.append(len(written))
                await stub.Fetch(_fetch(), timeout=DEADLINE_S)
                return len(held_back) > 20 and held_back[-1] == held_back[-20]

            await until(stands, "the sender is held back")
            await held.set(PRODUCE, None)
            answers = [await stream.read() for _ in range(messages)]
            await flooding
            stream.cancel()

    assert held_back[-1] < messages
    assert [answer.correlation_id for answer in answers] == list(range(messages))
    assert [_offset(answer) for answer in answers] == list(range(1, messages + 1))
