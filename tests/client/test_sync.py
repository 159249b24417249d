"""The blocking clients: the same names as the others, the same records, one thread, and no hang behind a fork."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import sys
import threading
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from tests.client import sync_source
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster, in_thread, until, write

from strandline import client
from strandline.client import sync
from strandline.client.blocking import LoopThread
from strandline.core.errors import ErrorCode
from strandline.core.types import Offset

T = TypeVar("T")


def test_the_module_is_as_written() -> None:
    """`strandline.client.sync` is what `make generated` writes from the asynchronous clients."""
    assert sync_source.TARGET.read_text() == sync_source.written()


@pytest.mark.parametrize("name", sync_source.CLIENTS)
def test_both_have_the_same_names(name: str) -> None:
    """Every public method and property of the one is one of the other, with the same parameters and defaults."""

    def faces(cls: type) -> dict[str, Any]:
        found = {}
        for key, member in inspect.getmembers(cls):
            if key.startswith("_") and key != "__init__":
                continue
            if isinstance(member, property):
                found[key] = "property"
            elif inspect.isfunction(member):
                found[key] = [
                    (one.name, one.kind, one.default) for one in inspect.signature(member).parameters.values()
                ]
        return found

    assert faces(getattr(sync, name)) == faces(getattr(client, name))


def test_a_delivery_has_the_same_names() -> None:
    """`done` and `result`, which waits here, where the other one is awaited."""

    def names(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")}

    assert names(sync.Delivery) == names(client.Delivery) == {"done", "result"}


@pytest.mark.parametrize("name", sync_source.CLIENTS)
def test_nothing_is_said_of_awaiting(name: str) -> None:
    """A docstring that says "await" or "async" would be wrong here."""
    cls = getattr(sync, name)
    public = [member for name, member in inspect.getmembers(cls) if not name.startswith("_") or name == "__init__"]
    said = [inspect.getdoc(one) or "" for one in (cls, *public)]

    assert [text for text in said if re.search(r"await|async|event loop", text)] == []


async def test_records_are_converted_where_for_takes_them() -> None:
    """Deserializers and interceptors see each record once, in the thread that iterates."""
    threads: set[threading.Thread] = set()

    def number(value: bytes) -> int:
        threads.add(threading.current_thread())
        return int(value)

    class Odd(client.Interceptor):
        def on_records(self, records: list[client.ConsumerRecord[Any, Any]]) -> list[client.ConsumerRecord[Any, Any]]:
            threads.add(threading.current_thread())
            return [record for record in records if record.value % 2]

    def program() -> tuple[list[int | None], threading.Thread]:
        seen: list[int | None] = []
        with sync.Consumer(cluster.bootstrap, value=number, interceptors=[Odd()], stop_at_end=True) as consumer:
            consumer.assign(TOPIC)
            with pytest.raises(client.DeserializationFailed, match="offset 2"):
                seen.extend(record.value for record in consumer)
            assert consumer.position(TOPIC, 0) == 3
            seen.extend(record.value for record in consumer)
        return seen, threading.current_thread()

    async with fake_cluster() as cluster:
        write(cluster, b"0", b"1", b"x", b"3", b"4")
        seen, thread = await in_thread(program)

    assert seen == [1, 3]
    assert threads == {thread}


async def test_a_seek_behind_the_back_is_not_undone() -> None:
    """When fetching moves the position meanwhile, what `for` had taken before does not move it back."""

    def program() -> int | None:
        with sync.Consumer(cluster.bootstrap) as consumer:
            consumer.assign(TOPIC)
            next(consumer)
            fetching = consumer._inner._fetching
            (cursor,) = fetching.cursors.values()
            # As after an answer that the position is not in the log.
            cursor.seek(offset=Offset(2))
            return consumer.position(TOPIC, 0)

    async with fake_cluster() as cluster:
        write(cluster, b"0", b"1", b"2")
        position = await in_thread(program)

    assert position == 2


async def test_errors_are_the_same() -> None:
    """What the asynchronous clients raise comes out of the call that waits."""

    def program() -> None:
        with (
            sync.Producer(cluster.bootstrap, max_block_ms=50) as producer,
            pytest.raises(client.Refused, match="no topic is named 'other'"),
        ):
            producer.send("other", b"x")
        with pytest.raises(client.ClientClosed):
            producer.send(TOPIC, b"x")
        with pytest.raises(ValueError, match="acks"):
            sync.Producer(cluster.bootstrap, acks=7)
        with sync.Admin(cluster.bootstrap) as admin:
            assert admin.metadata_age_ms is not None
            assert [topic.name for topic in admin.describe_topics()] == [TOPIC]

    async with fake_cluster() as cluster:
        await in_thread(program)


async def test_a_delivery_that_takes_too_long() -> None:
    """`result` raises TimeoutError at its time-out, and SendFailed when the record is given up."""

    def program() -> None:
        with sync.Producer(cluster.bootstrap) as producer:
            producer.send_and_wait(TOPIC, b"x")
            cluster_loop.call_soon_threadsafe(cluster.move_leader, None)
            view = producer._inner._cluster.view
            producer._run(until, lambda: view.leader_of(cluster.tp()) is None)
            delivery = producer.send(TOPIC, b"y")
            with pytest.raises(TimeoutError):
                delivery.result(20)
            producer.close(flush=False)
            with pytest.raises(client.SendFailed) as failed:
                delivery.result()
            assert failed.value.refusal.code is ErrorCode.NETWORK_EXCEPTION

    cluster_loop = asyncio.get_running_loop()
    async with fake_cluster() as cluster:
        await in_thread(program)


async def test_all_clients_share_one_thread() -> None:
    """Several clients, and several threads that use one, need one more thread in all."""

    def program() -> set[str]:
        with sync.Producer(cluster.bootstrap) as producer, sync.Admin(cluster.bootstrap) as admin:
            sending = [
                threading.Thread(target=producer.send_and_wait, args=(TOPIC, b"%d" % number)) for number in range(8)
            ]
            for thread in sending:
                thread.start()
            for thread in sending:
                thread.join(10)
            admin.list_nodes()
            return {thread.name for thread in threading.enumerate() if "strandline" in thread.name}

    async with fake_cluster() as cluster:
        names = await in_thread(program)

        assert names == {"strandline-client"}
        assert sorted(value or b"" for value in cluster.log().values()) == [b"%d" % number for number in range(8)]


async def test_a_callback_cannot_wait_for_a_client() -> None:
    """It would wait for the thread that it runs in; it gets an error that says what to do instead."""
    raised: list[BaseException] = []

    def program() -> None:
        def call(_: object, __: object) -> None:
            try:
                producer.flush()
            except RuntimeError as error:
                raised.append(error)

        with sync.Producer(cluster.bootstrap) as producer:
            producer.send(TOPIC, b"x", on_done=call).result(5_000)
            producer.flush()

    async with fake_cluster() as cluster:
        await in_thread(program)

    assert [str(error).partition(";")[0] for error in raised] == ["a callback of a client cannot wait for a client"]


_INTERRUPTED = """
import sys
from strandline.client import sync
with sync.Consumer(sys.argv[1]) as consumer:
    consumer.assign(sys.argv[2])
    try:
        print("reading", flush=True)
        next(consumer)
    except KeyboardInterrupt:
        print("interrupted", consumer.poll(50), flush=True)
"""


async def started(program: str, cluster: FakeCluster) -> asyncio.subprocess.Process:
    # A shell's background jobs ignore SIGINT, and so would a program that they start.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        listening + program,
        cluster.bootstrap,
        TOPIC,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_ctrl_c_ends_a_wait() -> None:
    """The call that waits raises KeyboardInterrupt, its work ends, and the client can be used further."""
    async with fake_cluster() as cluster, asyncio.timeout(30):
        program = await started(_INTERRUPTED, cluster)
        await program.stdout.readline()
        program.send_signal(signal.SIGINT)
        said, errors = await program.communicate()

    assert said.decode() == "interrupted []\n", errors.decode()[-2000:]
    assert program.returncode == 0


_ABANDONED = """
import sys
from strandline.client import sync
with sync.Producer(sys.argv[1]) as producer:
    try:
        print("sending", flush=True)
        producer.send(sys.argv[2], b"abandoned")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    producer.send_and_wait(sys.argv[2], b"kept")
"""


async def test_work_that_was_interrupted_is_not_done_later() -> None:
    """A record whose `send` was ended by Ctrl-C while it waited for its topic is never sent."""
    async with fake_cluster() as cluster, asyncio.timeout(30):
        cluster.has_topic = False
        program = await started(_ABANDONED, cluster)
        await program.stdout.readline()
        program.send_signal(signal.SIGINT)
        await program.stdout.readline()
        cluster.recreate_topic()
        _, errors = await program.communicate()

    assert cluster.log().values() == [b"kept"], errors.decode()[-2000:]


_PREFORK = """
import os, sys
from strandline.client import ForkedAfterUse, sync

# As gunicorn with preload_app: the application is imported, and its clients are made, in the parent.
made = sync.Producer(sys.argv[1], client_id="worker")
# Needs the thread, and no connection.
assert sync.Admin(sys.argv[1]).metadata_age_ms is None
lazily = None

def handle(number):
    global lazily
    if lazily is None:
        lazily = sync.Producer(sys.argv[1])
        lazily.start()
    return lazily.send_and_wait(sys.argv[2], b"request %d" % number).offset is not None

def worker(number):
    made.start()
    made.send_and_wait(sys.argv[2], b"made %d" % number)
    made.close()
    handled = [handle(number) for _ in range(3)]
    lazily.close()
    return all(handled)

def fork(work, *arguments):
    pid = os.fork()
    if not pid:
        try:
            os._exit(10 if work(*arguments) else 11)
        except ForkedAfterUse as error:
            os._exit(20 if "after the fork" in str(error) else 21)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(30)
    return pid

workers = [fork(worker, number) for number in range(4)]
print("workers", [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers], flush=True)
made.start()
made.send_and_wait(sys.argv[2], b"parent")

def fresh():
    sync.Producer(sys.argv[1]).start()

for name, work in (("started", made.flush), ("close", made.close), ("fresh", fresh)):
    print(name, os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]), flush=True)
made.close()
"""


async def test_workers_that_are_forked_can_use_it() -> None:
    """Each worker of a preloaded application produces with clients it starts; one started before a fork says so."""
    async with fake_cluster() as cluster, asyncio.timeout(60):
        program = await started(_PREFORK, cluster)
        said, errors = await program.communicate()
        values = cluster.log().values()

    assert said.decode().splitlines() == ["workers [10, 10, 10, 10]", "started 20", "close 20", "fresh 20"], (
        errors.decode()[-2000:]
    )
    assert sorted(value or b"" for value in values) == sorted(
        [b"parent", *(b"made %d" % number for number in range(4)), *([b"request %d" % n for n in range(4)] * 3)]
    )


async def test_a_program_may_end_without_closing() -> None:
    """A client that was not closed keeps no process alive, and nothing is printed at its end."""
    async with fake_cluster() as cluster, asyncio.timeout(30):
        program = await started(
            "import sys; from strandline.client import sync; p = sync.Producer(sys.argv[1]); p.start(); "
            "p.send_and_wait(sys.argv[2], b'x'); print('sent')",
            cluster,
        )
        said, errors = await program.communicate()

    assert (said.decode(), errors.decode(), program.returncode) == ("sent\n", "", 0)


def test_a_thread_is_no_other_processs() -> None:
    """What is left of a parent's thread in a child is an error at once, whatever is asked of it."""
    thread = LoopThread()
    thread._pid = os.getpid() + 1
    with pytest.raises(client.ForkedAfterUse, match=r"start clients after the fork \(in gunicorn: in the worker\)"):
        thread.check()
    thread._pid = os.getpid()
    thread.close()


def test_work_that_nobody_waits_for_is_not_begun() -> None:
    """A wait that ended before the thread came to its work leaves nothing behind."""
    begun: list[str] = []

    async def work() -> None:
        begun.append("begun")

    thread = LoopThread()
    waited: Future[None] = Future()
    waited.cancel()
    thread._loop.call_soon_threadsafe(thread._begin, work, waited)
    thread.run(asyncio.sleep, 0)
    thread.close()

    assert begun == []


async def test_many_records_are_one_call_of_the_thread() -> None:
    """`send_many` passes all records to the thread at once, and its deliveries wait here."""

    def program() -> list[int | None]:
        with sync.Producer(cluster.bootstrap) as producer:
            return [one.result().offset for one in producer.send_many(TOPIC, [(None, b"a"), (None, b"b")])]

    async with fake_cluster() as cluster:
        assert await in_thread(program) == [0, 1]
