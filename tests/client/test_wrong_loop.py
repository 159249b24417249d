"""A client that is used outside of the event loop in which it was started says so at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, Hold, fake_cluster
from tests.client.test_consumer import write

from strandline.client import Admin, Consumer, Delivery, Producer, WrongLoop
from strandline.records.codec import NewRecord

MOMENT_S = 5.0


class Clients:
    """One of each, started, with what is under way."""

    producer: Producer
    consumer: Consumer
    admin: Admin
    delivery: Delivery


async def _now(result: object) -> object:
    return result


Call = Callable[[Clients], Awaitable[object]]
CALLS: dict[str, Call] = {
    "send": lambda those: those.producer.send(TOPIC, b"x"),
    "send_nowait": lambda those: _now(those.producer.send_nowait(TOPIC, b"x")),
    "send_and_wait": lambda those: those.producer.send_and_wait(TOPIC, b"x"),
    "send_batch": lambda those: those.producer.send_batch(TOPIC, 0, [NewRecord(None, b"x", 1)]),
    "delivery": lambda those: _awaited(those.delivery),
    "ready": lambda those: those.producer.ready(TOPIC),
    "flush": lambda those: those.producer.flush(),
    "close producer": lambda those: those.producer.close(),
    "assign": lambda those: those.consumer.assign(TOPIC),
    "subscribe": lambda those: those.consumer.subscribe(TOPIC),
    "poll": lambda those: those.consumer.poll(),
    "fetch_batches": lambda those: those.consumer.fetch_batches(),
    "iterate": lambda those: anext(those.consumer),
    "commit": lambda those: those.consumer.commit(),
    "committed": lambda those: those.consumer.committed((TOPIC, 0)),
    "seek": lambda those: _now(those.consumer.seek(TOPIC, 0, 0)),
    "lag": lambda those: those.consumer.lag(),
    "close consumer": lambda those: those.consumer.close(),
    "list_nodes": lambda those: those.admin.list_nodes(),
    "list_offsets": lambda those: those.admin.list_offsets(TOPIC),
    "list_groups": lambda those: those.admin.list_groups(),
    "close admin": lambda those: those.admin.close(),
}


async def _awaited(delivery: Delivery) -> object:
    return await delivery


async def _bounded(call: Call, those: Clients) -> object:
    async with asyncio.timeout(MOMENT_S):
        return await call(those)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_in_the_loop_of_another_thread(name: str) -> None:
    """The error names the thread of the loop in which the client was started; the client works on in that one."""
    async with (
        fake_cluster() as cluster,
        Producer(cluster.bootstrap, linger_ms=0) as producer,
        Consumer(cluster.bootstrap, group="g") as consumer,
        Admin(cluster.bootstrap) as admin,
    ):
        write(cluster, b"one", b"two", b"three")
        await consumer.assign(TOPIC)
        assert (await anext(consumer)).value == b"one"
        held = Hold()
        cluster.nodes[0].next_produce.append(held)
        those = Clients()
        those.producer, those.consumer, those.admin = producer, consumer, admin
        those.delivery = await producer.send(TOPIC, b"four")

        def elsewhere() -> None:
            asyncio.run(_bounded(CALLS[name], those))

        with pytest.raises(WrongLoop, match="started in the event loop of thread 'MainThread'"):
            await asyncio.to_thread(elsewhere)
        held.release.set()
        await those.delivery
        values = [(await anext(consumer)).value for _ in range(3)]

    assert values == [b"two", b"three", b"four"]


@pytest.mark.parametrize("name", [name for name in CALLS if name != "delivery"])
def test_a_call_in_a_second_run(name: str) -> None:
    """The error says that the loop has ended in which the client was started, as asyncio.run does."""
    those = Clients()

    async def first() -> None:
        async with fake_cluster() as cluster:
            those.producer, those.admin = Producer(cluster.bootstrap), Admin(cluster.bootstrap)
            those.consumer = Consumer(cluster.bootstrap, group="g")
            for client in (those.producer, those.admin, those.consumer):
                await client.start()
            await those.producer.ready(TOPIC)
            await those.consumer.assign(TOPIC)

    asyncio.run(first())
    with pytest.raises(WrongLoop, match="an event loop that has ended"):
        asyncio.run(_bounded(CALLS[name], those))


def test_what_does_not_wait_may_be_called_between_two_runs_of_the_loop() -> None:
    """A program that runs its loop piece by piece seeks in between."""
    with asyncio.Runner() as runner:
        opened = fake_cluster()
        cluster = runner.run(opened.__aenter__())
        consumer: Consumer[Any, Any] = Consumer(cluster.bootstrap)
        runner.run(consumer.start())
        write(cluster, b"one", b"two")
        runner.run(consumer.assign(TOPIC))
        consumer.seek(TOPIC, 0, 1)
        records = runner.run(consumer.poll())
        runner.run(consumer.close())
        runner.run(opened.__aexit__(None, None, None))

    assert [record.value for record in records] == [b"two"]
