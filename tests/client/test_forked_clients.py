"""Clients in unusual programs: such as fork, end without closing, or use another event loop; and the clients' own
tasks.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, Hold, fake_cluster, write

from strandline.client import Admin, Consumer, Delivery, Producer, WrongLoop
from strandline.client.background import Background
from strandline.records.codec import NewRecord

_PROGRAM = """
import asyncio, gc, os, sys, threading, time
from strandline.client import ForkedAfterUse, Producer

async def produce():
    async with Producer(sys.argv[1]) as producer:
        await producer.send_and_wait(sys.argv[2], b"x")
        return "written"

def ask_in_child(work):
    pid = os.fork()
    if not pid:
        try:
            os._exit({"written": 10}.get(asyncio.run(work()), 1))
        except ForkedAfterUse as error:
            os._exit(20 if "after the fork" in str(error) else 2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def inherited(producer):
    await producer.flush()

async def serve():
    async with Producer(sys.argv[1]) as producer:
        print("open", ask_in_child(lambda: inherited(producer)), flush=True)
        while True:
            await producer.send_and_wait(sys.argv[2], b"x")
            busy.set()

async def collected():
    gc.collect()
    return "written"

gc.disable()
print("before", ask_in_child(produce), flush=True)
asyncio.run(produce())
began_s = time.monotonic()
print("after", ask_in_child(produce), time.monotonic() - began_s < 5, flush=True)
print("collected", ask_in_child(collected), flush=True)
gc.enable()
busy = threading.Event()
threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
assert busy.wait(30)
codes = set()
for _ in range(200):
    pid = os.fork()
    if not pid:
        os._exit(0)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("busy", sorted(codes), flush=True)
os._exit(0)
"""


async def test_a_program_that_uses_the_client_can_fork() -> None:
    """A child may connect if its parent had not, is rejected at once if it had, and none is killed by gRPC, or hangs
    when garbage is collected, that of a client which its parent had closed."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    async with fake_cluster() as cluster:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            cluster.bootstrap,
            TOPIC,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            said, errors = await program.communicate()

    assert said.decode().splitlines() == ["before 10", "after 20 True", "collected 10", "open 20", "busy [0]"], (
        errors.decode()[-2000:]
    )


_BLOCKING = """
import logging, sys
from strandline.client import sync
logging.basicConfig()
producer = sync.Producer(sys.argv[1], linger_ms=60_000)
producer.start()
for number in range(100):
    producer.send(sys.argv[2], b"%d" % number)
"""

_ASYNCHRONOUS = """
import asyncio, logging, sys
from strandline.client import Producer
logging.basicConfig()

async def main():
    producer = Producer(sys.argv[1], linger_ms=60_000)
    await producer.start()
    for number in range(100):
        await producer.send(sys.argv[2], b"%d" % number)

asyncio.run(main())
"""

_FORKED = (
    _BLOCKING
    + """
import os
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    producer.flush()
"""
)


async def ended(program: str, bootstrap: str) -> str:
    """What a program says until it ends, which it does well."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "always::ResourceWarning", "-c", program, bootstrap, TOPIC),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await running.communicate()

    assert running.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.parametrize("program", [_BLOCKING, _FORKED], ids=["alone", "with a child"])
async def test_a_blocking_producer_sends_what_it_holds_at_the_end_of_the_process(program: str) -> None:
    """Records that lingered when the program ended are all there, and nothing is said, nor by a child of what its
    parent held at the fork."""
    async with fake_cluster() as cluster:
        said = await ended(program, cluster.bootstrap)

    assert cluster.log().values() == [b"%d" % number for number in range(100)]
    assert "given up" not in said


async def test_what_a_blocking_producer_cannot_send_at_the_end_is_said() -> None:
    """A cluster that does not answer keeps the process for a few seconds; then the number of records is said."""
    async with fake_cluster() as cluster:
        cluster.nodes[0].next_produce.append(Hold())
        said = await ended(_BLOCKING, cluster.bootstrap)

    assert "WARNING:strandline.client:100 records are given up" in said
    assert "ResourceWarning: 100 records are given up" in said


async def test_what_an_asynchronous_producer_held_is_said() -> None:
    """Its loop is over when the process ends, so nothing can be sent; the number of records is said, once."""
    async with fake_cluster() as cluster:
        said = await ended(_ASYNCHRONOUS, cluster.bootstrap)

    assert said.count("WARNING:strandline.client:100 records are given up") == 1
    assert said.count("ResourceWarning: 100 records are given up") == 1


def test_a_producer_that_is_forgotten_says_what_it_held(caplog: pytest.LogCaptureFixture) -> None:
    """A producer whose loop is over and that is not referred to any more says how many records are given up with it."""

    async def forget() -> None:
        async with fake_cluster() as cluster:
            producer = Producer(cluster.bootstrap, linger_ms=60_000)
            await producer.start()
            await producer.send(TOPIC, b"1")
            await producer.send(TOPIC, b"2")

    def run() -> None:
        asyncio.run(forget())
        gc.collect()

    with pytest.warns(ResourceWarning, match="2 records are given up"):
        run()

    assert "2 records are given up" in caplog.text


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


async def test_close_ends_every_task() -> None:
    """Nothing keeps running after `close`."""
    background = Background()
    task = background.start(_forever, "forever").task
    await background.close()

    assert task.cancelled()


async def test_close_ends_a_task_that_misses_a_cancellation() -> None:
    """A task that hears of something else instead, as of the end of a call, is cancelled again."""
    missed = 0

    async def misses_one() -> None:
        nonlocal missed
        try:
            await _forever()
        except asyncio.CancelledError:
            missed += 1
        await _forever()

    background = Background()
    job = background.start(misses_one, "misses one")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await background.close()

    assert (missed, job.task.cancelled()) == (1, True)


async def _forever() -> None:
    await asyncio.Event().wait()


async def _defect() -> None:
    raise ZeroDivisionError


async def test_defect_reaches_the_user() -> None:
    """An unexpected error is logged at once, raised at the next use, and again on closing."""
    reported: list[BaseException | None] = []
    background = Background(reported.append)
    background.start(_defect, "defect")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert isinstance(reported[0], ZeroDivisionError)
    with pytest.raises(RuntimeError, match="background task"):
        background.check()
    with pytest.raises(RuntimeError, match="background task"):
        await background.close()
