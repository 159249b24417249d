"""The producer against scripted nodes: order, no duplicates, definite and indefinite results."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake_cluster import TOPIC, BreakStream, Hold, Refuse, fake_cluster, producing, until

from strandline import client
from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.records.codec import NewRecord, encode_batch


async def send_each(producer: client.Producer, values: list[bytes]) -> list[client.Delivery]:
    """One batch per value."""
    deliveries = []
    for value in values:
        deliveries.append(await producer.send_batch(TOPIC, 0, [NewRecord(None, value, 1)]))
    return deliveries


def send_until_full(producer: client.Producer) -> None:
    for _ in range(100):
        producer.send_nowait(TOPIC, b"x" * 500)


def values(count: int) -> list[bytes]:
    return [b"v%d" % number for number in range(count)]


async def test_linger_and_size_make_batches() -> None:
    """Records sent together travel in one batch; a full one does not wait."""
    ended: list[client.BatchOutcome] = []
    async with producing(linger_ms=60_000, batch_bytes=1024, on_delivery=ended.append) as (cluster, producer):
        for _ in range(10):
            await producer.send(TOPIC, b"x" * 200)
        await producer.flush()

        assert len(cluster.log().values()) == 10
        assert [one.record_count for one in ended] == [4, 4, 2]


async def test_a_backlog_grows_batches_and_not_their_number() -> None:
    """Records that arrive while nothing can be sent share a batch: five batches at a time must catch up later."""
    ended: list[client.BatchOutcome] = []
    async with producing(linger_ms=1, on_delivery=ended.append) as (cluster, producer):
        await producer.ready(TOPIC)
        cluster.move_leader(None)
        for value in values(50):
            await producer.send(TOPIC, value)
            await asyncio.sleep(0.003)
        cluster.move_leader(0)
        await producer.flush()

        assert cluster.log().values() == values(50)
        assert len(ended) <= 5


async def test_a_backlog_is_given_up_in_time() -> None:
    """A batch that is still open when its delivery time is over fails like any other."""
    async with producing(linger_ms=1, delivery_timeout_ms=300, request_timeout_ms=200) as (cluster, producer):
        await producer.ready(TOPIC)
        cluster.move_leader(None)
        deliveries = []
        for value in values(10):
            deliveries.append(await producer.send(TOPIC, value))
            await asyncio.sleep(0.003)
        async with asyncio.timeout(5):
            failures = await asyncio.gather(*deliveries, return_exceptions=True)

        assert all(isinstance(failure, client.SendFailed) and failure.is_definite for failure in failures)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives(compression: str) -> None:
    """Records are read from the log as they were sent, with any codec."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, compression=compression) as producer:
        for number in range(50):
            await producer.send(TOPIC, b"v" * 50, b"k%d" % number, headers=[("h", b"1")])
        await producer.flush()

        assert [record.key for record in cluster.log().records()] == [b"k%d" % number for number in range(50)]


async def test_lost_answer_is_no_duplicate() -> None:
    """A batch whose answer is lost after the append is sent again with the same sequence, and gets the first offset."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        cluster.nodes[0].next_produce.append(BreakStream(after_append=True))
        deliveries = await send_each(producer, values(5))
        offsets = [(await delivery).offset for delivery in deliveries]

        assert offsets == [0, 1, 2, 3, 4]
        assert cluster.log().values() == values(5)
        assert cluster.nodes[0].produce_streams == 2


async def test_leader_moves_under_load() -> None:
    """Batches in flight at a deposed leader go to the new one, in order and once."""
    async with fake_cluster(nodes=2) as cluster, client.Producer(cluster.bootstrap) as producer:
        cluster.nodes[0].next_produce.extend([Hold(), Hold(), Hold()])
        deliveries = await send_each(producer, values(8))
        await until(lambda: len(cluster.nodes[0].produced) >= 5)
        cluster.move_leader(1)
        offsets = [(await delivery).offset for delivery in deliveries]

        assert offsets == list(range(8))
        assert cluster.log().values() == values(8)
        assert cluster.nodes[1].produced


async def test_node_dies_and_another_leads() -> None:
    """With its leader gone a partition is produced to again as soon as there is another."""
    async with fake_cluster(nodes=2) as cluster, client.Producer(cluster.bootstrap) as producer:
        await (await send_each(producer, [b"before"]))[0]
        await cluster.nodes[0].stop()
        deliveries = await send_each(producer, values(3))
        cluster.move_leader(1)
        offsets = [(await delivery).offset for delivery in deliveries]

        assert offsets == [1, 2, 3]


async def test_every_attempt_definite_is_definite() -> None:
    """A batch that was rejected without an append on every attempt is reported as not written (P2)."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, delivery_timeout_ms=400) as producer:
        cluster.nodes[0].next_produce.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 50)
        (delivery,) = await send_each(producer, values(1))
        with pytest.raises(client.SendFailed) as failed:
            await delivery

        assert failed.value.is_definite
        assert failed.value.refusal.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert "given up after delivery_timeout_ms" in str(failed.value)
        assert failed.value.attempts > 1
        assert cluster.log().values() == []


async def test_indefinite_end_renews_the_producer_id() -> None:
    """After a batch is given up indefinitely, batches never written continue under a new producer id from 0."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, delivery_timeout_ms=500) as producer:
        hold = Hold()
        cluster.nodes[0].next_produce.append(hold)
        (first,) = await send_each(producer, [b"held"])
        with pytest.raises(client.SendFailed) as failed:
            await first
        (second,) = await send_each(producer, [b"after"])

        assert not failed.value.is_definite
        assert (await second).offset == 1
        assert cluster.nodes[0].produced[-1][1:3] == (1002, 0)


async def test_without_idempotence_a_lost_answer_is_not_repeated() -> None:
    """Without a sequence a copy could not be detected, so an indefinite attempt is the last one."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, idempotent=False) as producer:
        cluster.nodes[0].next_produce.append(BreakStream(after_append=True))
        (delivery,) = await send_each(producer, values(1))
        with pytest.raises(client.SendFailed) as failed:
            await delivery

        assert not failed.value.is_definite
        assert len(cluster.nodes[0].produced) == 1
        assert cluster.controller.ids_given == 0


async def test_silent_leader_is_given_up() -> None:
    """A node without an answer within the request time-out loses its stream, and the batch is sent again."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, request_timeout_ms=1) as producer:
        cluster.nodes[0].next_produce.append(Hold())
        (delivery,) = await send_each(producer, values(1))

        assert (await delivery).offset == 0
        assert cluster.nodes[0].produce_streams == 2


async def test_buffer_is_bounded() -> None:
    """A full buffer rejects `send_nowait` and blocks `send` until a batch has ended."""
    async with producing(batch_bytes=1024, buffer_bytes=4096, linger_ms=0) as (cluster, producer):
        hold = Hold()
        cluster.nodes[0].next_produce.extend([hold] * 5)
        assert await producer.ready(TOPIC) == 1
        with pytest.raises(client.BufferFull):
            send_until_full(producer)
        waiting = asyncio.create_task(producer.send(TOPIC, b"last"))
        await until(lambda: len(cluster.nodes[0].produced) > 0)
        was_waiting = not waiting.done()
        hold.release.set()
        await (await waiting)

        assert was_waiting
        assert cluster.log().values()[-1] == b"last"


async def test_full_buffer_times_out() -> None:
    """`send` gives up after max_block_ms, and nothing of the record was sent."""
    async with producing(batch_bytes=1024, buffer_bytes=1024, max_block_ms=50) as (cluster, producer):
        cluster.nodes[0].next_produce.extend([Hold()] * 5)
        await producer.send(TOPIC, b"x" * 2000)
        with pytest.raises(Refused, match="no room"):
            await producer.send(TOPIC, b"y")
        await producer.close(flush=False)

        assert b"y" not in cluster.log().values()


async def test_unknown_topic() -> None:
    """A topic that does not exist within max_block_ms is rejected by name."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, max_block_ms=50) as producer:
        with pytest.raises(Refused, match="no topic is named 'other'"):
            await producer.send("other", b"x")
        with pytest.raises(client.BufferFull):
            producer.send_nowait("other", b"x")
        with pytest.raises(Refused, match="partition 1 of topic 't' must be 0 to 0"):
            await producer.send(TOPIC, b"x", partition=1)


async def test_deleted_topic_fails_what_is_under_way() -> None:
    """A batch that waits for a leader fails as SendFailed and as TopicDeleted, instead of going to another topic of the
    same name."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        cluster.move_leader(None)
        await until(lambda: producer._cluster.view.leader_of(cluster.tp()) is None)
        (delivery,) = await send_each(producer, values(1))
        cluster.delete_topic()
        with pytest.raises(client.TopicDeleted) as failed:
            await asyncio.wait_for(delivery, 30)

        assert isinstance(failed.value, client.SendToDeletedTopic)
        assert isinstance(failed.value, client.SendFailed)
        assert (failed.value.topic, failed.value.partition, failed.value.is_definite) == (TOPIC, 0, True)
        assert failed.value.refusal.code is ErrorCode.UNKNOWN_TOPIC_ID


async def test_deleted_topic_fails_what_lingers() -> None:
    """A batch that still takes records fails with its topic instead of waiting for a leader; nothing of it is kept."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, linger_ms=60_000) as producer:
        delivery = await producer.send(TOPIC, b"x")
        cluster.delete_topic()
        with pytest.raises(client.SendFailed, match="UNKNOWN_TOPIC_ID"):
            await asyncio.wait_for(delivery, 30)

        assert cluster.log().leo == 0
        assert producer._routes.buffers == {}


async def test_encoded_batch_gets_the_identity() -> None:
    """A finished batch is sent unchanged, except for producer id and sequence."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        batch = encode_batch([NewRecord(b"k", b"v", 1), NewRecord(b"k", b"w", 2)])
        first = await (await producer.send_encoded(TOPIC, 0, batch))
        second = await (await producer.send_encoded(TOPIC, 0, batch))

        assert (first.offset, second.offset) == (0, 2)
        assert [row[2] for row in cluster.nodes[0].produced] == [0, 2]


async def test_close_fails_what_is_left() -> None:
    """Closing without a flush ends every delivery, and reports that the records may appear."""
    async with fake_cluster() as cluster:
        producer = client.Producer(cluster.bootstrap)
        await producer.start()
        cluster.nodes[0].next_produce.append(Hold())
        deliveries = await send_each(producer, values(2))
        await until(lambda: len(cluster.nodes[0].produced) == 2)
        await producer.close(flush=False)
        with pytest.raises(client.SendFailed) as failed:
            await deliveries[0]

        assert failed.value.refusal.outcome is Outcome.MAY_APPEAR
        with pytest.raises(client.ClientClosed):
            await producer.send(TOPIC, b"x")


async def test_what_is_sent_while_a_deletion_is_heard_ends_too() -> None:
    """A callback that sends again to the deleted topic gets an error, and the producer works on."""
    async with producing(batch_bytes=1024, linger_ms=60_000) as (cluster, producer):
        ended: list[client.SendFailed | None] = []

        def again(_: object, failed: client.SendFailed | None) -> None:
            ended.append(failed)
            producer.send_nowait(TOPIC, b"x" * 600, on_done=again)

        cluster.nodes[0].next_produce.append(Hold())
        await producer.send(TOPIC, b"x" * 600, on_done=again)
        cluster.delete_topic()
        await until(lambda: len(ended) == 1)
        await producer.flush()

        assert producer.stats().records_failed == 1


async def test_nobody_there() -> None:
    """A bootstrap list without a controller is a ConnectionError that names the addresses."""
    producer = client.Producer("127.0.0.1:1")
    producer._cluster.timeout_ms = 200
    with pytest.raises(client.ClusterUnreachable, match=r"127\.0\.0\.1:1"):
        await producer.start()


async def test_one_stream_for_everything() -> None:
    """All partitions of a leader share one long-lived stream."""
    async with fake_cluster(partitions=4) as cluster, client.Producer(cluster.bootstrap) as producer:
        for index in range(4):
            await producer.send(TOPIC, b"x", partition=index)
        await producer.flush()

        assert (cluster.nodes[0].produce_streams, len(cluster.nodes[0].produced)) == (1, 4)


async def test_refused_message_is_definite() -> None:
    """A message that the node rejects as a whole never reached its log."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.INVALID_REQUEST, whole=True))
        (delivery,) = await send_each(producer, values(1))
        with pytest.raises(client.SendFailed) as failed:
            await delivery

        assert failed.value.is_definite


async def test_defect_at_the_node_is_retried() -> None:
    """An unexpected error of the node may have come after the append; the copy under its sequence is harmless."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.UNKNOWN_SERVER_ERROR, after_append=True, whole=True))
        (delivery,) = await send_each(producer, values(1))

        assert (await delivery).offset == 0
        assert cluster.log().values() == values(1)


async def test_keyless_records_move_on_batch_by_batch() -> None:
    """Records without a key stick to a partition until its batch is full, then go to another."""
    async with producing(partitions=3, batch_bytes=1024, linger_ms=60_000) as (cluster, producer):
        for _ in range(60):
            await producer.send(TOPIC, b"x" * 200)
        await producer.flush()
        counts = [cluster.log(index).leo for index in range(3)]

        assert sum(counts) == 60
        assert all(counts)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"acks": 2}, "acks 2 must be"),
        ({"compression": "rot13"}, "compression 'rot13'"),
        ({"max_in_flight": 6}, "max_in_flight 6"),
        ({"batch_bytes": 2 << 20}, "batch_bytes"),
        ({"buffer_bytes": 1}, "buffer_bytes 1"),
        ({"linger_ms": -1}, "linger_ms"),
    ],
)
def test_settings_that_cannot_be(setting: dict[str, object], words: str) -> None:
    """A setting that breaks its rule is rejected when the producer is created."""
    with pytest.raises(ValueError, match=words):
        client.Producer("127.0.0.1:1", **setting)  # type: ignore[arg-type]
