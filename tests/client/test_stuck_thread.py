"""The thread of the blocking clients is stuck or loses its tasks: no call waits for it for ever."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster
from tests.client.test_every_call_ends import cancel_all
from tests.client.test_sync import in_thread, write

from strandline.client import loop_thread, sync
from strandline.client.loop_thread import LoopThread

PATIENCE_S = 0.3

Call = Callable[[sync.Producer, sync.Consumer, sync.Admin], Any]
CALLS: dict[str, Call] = {
    "send": lambda producer, consumer, admin: producer.send(TOPIC, b"x"),
    "send_and_wait": lambda producer, consumer, admin: producer.send_and_wait(TOPIC, b"x"),
    "flush": lambda producer, consumer, admin: producer.flush(),
    "flush with a time": lambda producer, consumer, admin: producer.flush(100),
    "stats": lambda producer, consumer, admin: producer.stats(),
    "close": lambda producer, consumer, admin: producer.close(),
    "poll": lambda producer, consumer, admin: consumer.poll(),
    "poll with a time": lambda producer, consumer, admin: consumer.poll(100),
    "iterate": lambda producer, consumer, admin: next(consumer),
    "position": lambda producer, consumer, admin: consumer.position(TOPIC, 0),
    "list_nodes": lambda producer, consumer, admin: admin.list_nodes(),
}


def blocks(*_: object) -> None:
    """What a function that is given to a client must not do."""
    BLOCKED.set()
    RELEASE.wait(60)


BLOCKED, RELEASE = threading.Event(), threading.Event()


async def seen_by(call: Call, ruin: Callable[[sync.Producer], None]) -> tuple[BaseException, float]:
    """How a call ends after the thread was ruined, and after how many seconds."""
    async with fake_cluster() as cluster:
        write(cluster, *(b"%d" % number for number in range(3)))

        def program() -> tuple[BaseException, float]:
            producer, consumer = sync.Producer(cluster.bootstrap), sync.Consumer(cluster.bootstrap)
            admin = sync.Admin(cluster.bootstrap)
            for client in (producer, consumer, admin):
                client.start()
            consumer.assign(TOPIC)
            assert len(consumer.poll(5_000)) == 3
            ruin(producer)
            began_s = time.monotonic()
            try:
                call(producer, consumer, admin)
            except (RuntimeError, TimeoutError) as error:
                return error, time.monotonic() - began_s
            finally:
                RELEASE.set()
                for client in (producer, consumer, admin):
                    client.close()
            raise AssertionError("it ended well")

        return await in_thread(program)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_of_a_thread_that_is_stuck(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function given to a client blocks: other calls end with where the thread is, after their own time if they have
    one, else after a few seconds."""
    monkeypatch.setattr(loop_thread, "STUCK_S", PATIENCE_S)
    BLOCKED.clear()
    RELEASE.clear()

    def ruin(producer: sync.Producer) -> None:
        producer.send(TOPIC, b"x", on_done=blocks)
        assert BLOCKED.wait(30)

    error, took_s = await seen_by(CALLS[name], ruin)

    assert isinstance(error, TimeoutError)
    assert "it is in wait (" in str(error)
    assert "called by blocks (" in str(error)
    assert took_s < 20 * PATIENCE_S


async def test_a_function_that_ends_the_thread() -> None:
    """sys.exit() in a function given to a client ends that client, with an error that names it, and no other."""

    async with fake_cluster() as cluster:

        def program() -> None:
            with sync.Producer(cluster.bootstrap) as other:
                producer = sync.Producer(cluster.bootstrap)
                producer.start()
                delivery = producer.send(TOPIC, b"x", on_done=lambda *_: sys.exit())
                delivery.result(10_000)
                with pytest.raises(RuntimeError, match="SystemExit"):
                    producer.flush()
                with pytest.raises(RuntimeError, match="SystemExit"):
                    producer.close()
                other.send_and_wait(TOPIC, b"y")

        await in_thread(program)

    assert cluster.log().values() == [b"x", b"y"]


def test_a_call_that_is_cancelled_says_so() -> None:
    """A call that is cancelled with all tasks of the loop is an error that says so, and does not cancel its caller."""
    thread = LoopThread()
    thread._loop.call_later(0.05, lambda: [task.cancel() for task in asyncio.all_tasks(thread._loop)])
    with pytest.raises(RuntimeError, match="cancelled with all tasks"):
        thread.run(asyncio.sleep, 60)
    thread.close()


def test_a_call_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that runs something now and then is not stuck, however long the call takes."""
    monkeypatch.setattr(loop_thread, "STUCK_S", 0.05)
    thread = LoopThread()
    thread.run_within(1, asyncio.sleep, 1.2)
    thread.close()


async def test_blocking_clients_go_on_after_a_cancellation_of_all_tasks() -> None:
    """What somebody cancels in the loop of the thread begins again with the next call."""
    async with fake_cluster() as cluster:

        def program() -> list[bytes | None]:
            with sync.Producer(cluster.bootstrap) as producer, sync.Consumer(cluster.bootstrap) as consumer:
                consumer.assign(TOPIC)
                producer.send_and_wait(TOPIC, b"before")
                thread = producer._thread
                assert thread is not None
                thread._loop.call_soon_threadsafe(cancel_all)
                producer.send_and_wait(TOPIC, b"after")
                return [next(consumer).value for _ in range(2)]

        assert await in_thread(program) == [b"before", b"after"]
