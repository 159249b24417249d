"""What a user gives a producer besides bytes: serializers, partitioner, interceptors, callbacks; and deleted topics."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster, producing, until

from strandline import client
from strandline.client.produce import routes
from strandline.core.errors import ErrorCode

Done = tuple[client.RecordMetadata | None, client.SendFailed | None]


@pytest.mark.parametrize(
    ("key", "why"), [(lambda _: 1 / 0, "ZeroDivisionError"), (lambda _: "text", "returned str instead of bytes")]
)
async def test_what_cannot_be_serialized_is_not_sent(key: object, why: str) -> None:
    """The error names topic and field; nothing was buffered."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, key=key) as producer:  # type: ignore[arg-type]
        with pytest.raises(client.SerializationFailed, match=f"'t' was not sent: its key .*{why}") as caught:
            await producer.send(TOPIC, b"v", "secret")  # type: ignore[arg-type]
        with pytest.raises(client.SerializationFailed):
            producer.send_nowait(TOPIC, b"v", "secret")  # type: ignore[arg-type]
        buffered = producer.stats().buffered_bytes

        assert (caught.value.topic, caught.value.field) == (TOPIC, "key")
        assert "secret" not in str(caught.value)
        assert buffered == 0


async def test_a_partitioner_decides() -> None:
    """It gets topic, serialized key and the number of partitions; a partition that is named goes past it."""
    asked: list[tuple[str, bytes | None, int]] = []

    def last(topic: str, key: bytes | None, count: int) -> int:
        asked.append((topic, key, count))
        return count - 1

    async with producing(partitions=3, key=str.encode, partitioner=last) as (_, producer):
        with_key = await producer.send_and_wait(TOPIC, b"v", "k")
        without = await producer.send_and_wait(TOPIC, b"v")
        named = await producer.send_and_wait(TOPIC, b"v", "k", partition=1)

        assert (with_key.partition, without.partition, named.partition) == (2, 2, 1)
        assert asked == [(TOPIC, b"k", 3), (TOPIC, None, 3)]


async def test_a_partitioner_that_names_no_partition_is_refused() -> None:
    """A partition that the topic does not have is rejected, and nothing is sent."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, partitioner=lambda *_: 7) as producer:
        with pytest.raises(client.Refused, match="partition 7 of topic 't' must be 0 to 0"):
            await producer.send(TOPIC, b"v")


class _Tag(client.Interceptor):
    """Adds a header with its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_send(self, record: client.OutgoingRecord) -> client.OutgoingRecord:
        return record._replace(headers=[*record.headers, (self._name, b"")])


class _Broken(client.Interceptor):
    def on_send(self, record: client.OutgoingRecord) -> client.OutgoingRecord:
        raise LookupError("not today")


async def test_interceptors_change_records_in_their_order() -> None:
    """Each gets what the one before returned, before it is serialized."""
    async with producing(value=str.encode, interceptors=[_Tag("a"), _Tag("b")]) as (cluster, producer):
        await producer.send_and_wait(TOPIC, "v")
        (record,) = cluster.log().records()

        assert (record.value, [name for name, _ in record.headers]) == (b"v", ["a", "b"])


async def test_a_failing_interceptor_swallows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged, and the record is sent as the others leave it."""
    async with producing(interceptors=[_Broken(), _Tag("b")]) as (cluster, producer):
        with caplog.at_level(logging.ERROR, "strandline.client"):
            await producer.send_and_wait(TOPIC, b"v")
        (record,) = cluster.log().records()

        assert [name for name, _ in record.headers] == ["b"]
        assert "on_send of _Broken failed" in caplog.text


async def test_each_record_can_call_back() -> None:
    """`on_done` gets each record's own place once, whether it was sent with or without waiting."""
    done: list[Done] = []
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        await producer.ready(TOPIC)
        await producer.send(TOPIC, b"a", timestamp_ms=7, on_done=lambda *end: done.append(end))
        await producer.send(TOPIC, b"b")
        producer.send_nowait(TOPIC, b"c", timestamp_ms=9, on_done=lambda *end: done.append(end))
        await producer.flush()

        assert done == [((TOPIC, 0, 0, 7), None), ((TOPIC, 0, 2, 9), None)]


async def test_a_batch_has_the_tags_of_its_records() -> None:
    """`on_delivery` gets them in the order of the records; None for a record without one, nothing if none has one."""
    ended: list[client.BatchOutcome] = []
    async with producing(linger_ms=60_000, on_delivery=ended.append) as (_, producer):
        await producer.ready(TOPIC)
        await producer.send(TOPIC, b"a")
        producer.send_nowait(TOPIC, b"b", tag="two")
        await producer.send(TOPIC, b"c", tag=(3,))
        await producer.send(TOPIC, b"d")
        await producer.flush()
        await producer.send(TOPIC, b"e")
        await producer.flush()

        assert [list(outcome.tags) for outcome in ended] == [[None, "two", (3,), None], []]


async def test_a_batch_that_is_given_up_says_so_record_by_record() -> None:
    """Each `on_done` gets a failure of its own, for raising it adds to its traceback; `on_delivery` gets the tags."""
    done: list[Done] = []
    ended: list[client.BatchOutcome] = []
    async with fake_cluster() as cluster:
        producer = client.Producer(cluster.bootstrap, on_delivery=ended.append)
        await producer.start()
        cluster.move_leader(None)
        await until(lambda: producer._cluster.view.leader_of(cluster.tp()) is None)
        for tag in (1, 2):
            await producer.send(TOPIC, b"x", tag=tag, on_done=lambda *end: done.append(end))
        await producer.close(flush=False)
        (first, failed), (second, other) = done

        assert (first, second) == (None, None)
        assert failed.is_definite
        assert failed.refusal.code is ErrorCode.NETWORK_EXCEPTION
        assert (failed is other, str(failed)) == (False, str(other))
        assert [(outcome.refusal is None, list(outcome.tags)) for outcome in ended] == [(False, [1, 2])]


async def test_a_callback_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """An exception in `on_done` or `on_delivery` is logged; other callbacks are called and the producer goes on."""
    done: list[Done] = []

    def fail(*_: object) -> None:
        raise LookupError("not today")

    def fail_too(_: client.BatchOutcome) -> None:
        raise LookupError("nor tomorrow")

    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap, on_delivery=fail_too) as producer:
        with caplog.at_level(logging.ERROR, "strandline.client"):
            await producer.send(TOPIC, b"a", on_done=fail)
            await producer.send(TOPIC, b"b", on_done=lambda *end: done.append(end))
            await producer.flush()
            again = await producer.send_and_wait(TOPIC, b"c")

        assert len(done) == 1
        assert again.offset == 2
        assert "not today" in caplog.text
        assert "nor tomorrow" in caplog.text


async def test_sending_to_a_deleted_topic_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is TopicDeleted once the topic has been gone for 5 s (U2), and not only after `max_block_ms`."""
    assert routes.DELETED_AFTER_MS == 5_000
    monkeypatch.setattr(routes, "DELETED_AFTER_MS", 50)
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(TOPIC, b"x")
        cluster.delete_topic()
        await until(lambda: producer._cluster.view.topic(TOPIC) is None)
        with pytest.raises(client.TopicDeleted, match="topic 't' was deleted"):
            await producer.send(TOPIC, b"y")
        with pytest.raises(client.TopicDeleted):
            producer.send_nowait(TOPIC, b"y")


async def test_a_topic_that_is_created_again_is_sent_to() -> None:
    """A send that waits for a deleted topic goes to the new one of its name, and so do the next ones."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(TOPIC, b"old")
        cluster.delete_topic()
        await until(lambda: producer._cluster.view.topic(TOPIC) is None)
        with pytest.raises(client.BufferFull):
            producer.send_nowait(TOPIC, b"x")
        cluster.recreate_topic()
        await producer.send_and_wait(TOPIC, b"new")
        await producer.send_and_wait(TOPIC, b"newer")

        assert cluster.log().values() == [b"new", b"newer"]


async def test_many_records_are_sent_by_one_call() -> None:
    """Each has a key and a value, goes where `send` would send it, in order; those before a wrong one are sent."""
    async with producing(key=str.encode, value=str.encode) as (cluster, producer):
        deliveries = await producer.send_many(TOPIC, [("k", "a"), (None, "b"), ("k", None)])
        places = [(await one).offset for one in deliveries]
        wrong: list[tuple[Any, Any]] = [("k", "c"), ("k", 4), ("k", "d")]
        with pytest.raises(client.SerializationFailed):
            await producer.send_many(TOPIC, wrong)
        await producer.flush()
    found = [(one.key, one.value) for one in cluster.log().records()]

    assert places == [0, 1, 2]
    assert found == [(b"k", b"a"), (None, b"b"), (b"k", None), (b"k", b"c")]
