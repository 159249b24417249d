"""Every call ends by its own deadline, whatever becomes of tasks, streams, servers and threads."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, Hold, fake_cluster, in_thread, write

from strandline.client import Admin, ClientClosed, ClusterUnreachable, CommitFailed, Consumer, Producer, blocking, sync
from strandline.client.blocking import LoopThread
from strandline.records.codec import NewRecord, encode_batch

DEADLINE_MS = 400
PATIENT_MS = 10 * DEADLINE_MS
"""Where an answer comes: no machine is so slow that it comes later."""
LIMIT_S = 10 * DEADLINE_MS / 1000
"""Of a call with one or two such deadlines, on a machine that is five times slower."""

Client = Producer | Consumer | Admin
Call = Callable[[Any], Awaitable[object]]


def tasks_behind() -> list[asyncio.Task[Any]]:
    """Every task that a client, or a call of its own to a server, has started in this loop."""
    places = ("strandline/client/", "grpc/aio/_call.py")
    found = []
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and any(place in code.co_filename for place in places):
            found.append(task)
    return found


def cancel_all(but: asyncio.Task[Any] | None = None) -> None:
    """What an application does that ends everything in its loop."""
    for task in tasks_behind():
        if task is not but:
            task.cancel()


async def _as_it_is(cluster: FakeCluster, client: Client) -> None:
    pass


async def _cancelled(cluster: FakeCluster, client: Client) -> None:
    """Twice: what the first begins again is cancelled before its first step."""
    cancel_all()
    await asyncio.sleep(0)
    cancel_all()
    await asyncio.sleep(0.01)


async def _failed(cluster: FakeCluster, client: Client) -> None:
    async def defect() -> None:
        raise ZeroDivisionError("a defect of ours")

    client._cluster.background.start(defect, "defect")
    await asyncio.sleep(0.01)


async def _streams_ended(cluster: FakeCluster, client: Client) -> None:
    await cluster.stop()


async def _hung(cluster: FakeCluster, client: Client) -> None:
    cluster.hang()


WAYS = [_as_it_is, _cancelled, _failed, _streams_ended, _hung]
ANSWERED = (_as_it_is, _cancelled)


def deadline_of(way: Any, name: str) -> int:
    """In ms, of which a call may take ten. `ready` waits for a topic that never comes."""
    return PATIENT_MS if way in ANSWERED and name != "ready" else DEADLINE_MS


PRODUCER_CALLS: dict[str, Call] = {
    "send_and_wait": lambda it: it.send_and_wait(TOPIC, b"x"),
    "send_and_flush": lambda it: _send_and_flush(it),
    "flush": lambda it: it.flush(),
    "ready": lambda it: it.ready("missing"),
    "send_batch": lambda it: _delivered(it.send_batch(TOPIC, 0, [NewRecord(None, b"x", 1)])),
    "send_encoded": lambda it: _delivered(it.send_encoded(TOPIC, 0, encode_batch([NewRecord(None, b"x", 1)]))),
    "close": lambda it: it.close(),
}

CONSUMER_CALLS: dict[str, Call] = {
    "assign": lambda it: it.assign(TOPIC),
    "subscribe": lambda it: it.subscribe(TOPIC),
    "poll": lambda it: it.poll(DEADLINE_MS),
    "fetch_batches": lambda it: it.fetch_batches(DEADLINE_MS),
    "commit": lambda it: it.commit({(TOPIC, 0): 0}),
    "committed": lambda it: it.committed((TOPIC, 0)),
    "lag": lambda it: it.lag(),
    "unsubscribe": lambda it: it.unsubscribe(),
    "close": lambda it: it.close(),
}

ADMIN_CALLS: dict[str, Call] = {
    "list_nodes": lambda it: it.list_nodes(),
    "describe_topics": lambda it: it.describe_topics([TOPIC]),
    "metadata": lambda it: it.metadata(),
    "describe_partitions": lambda it: it.describe_partitions([TOPIC]),
    "list_offsets": lambda it: it.list_offsets(TOPIC),
    "record_times": lambda it: it.record_times({(TOPIC, index): 0 for index in range(40)}),
    "delete_records": lambda it: it.delete_records(TOPIC, {0: 0}),
    "list_groups": lambda it: it.list_groups(),
    "describe_groups": lambda it: it.describe_groups(["g"]),
    "list_group_offsets": lambda it: it.list_group_offsets("g"),
    "alter_group_offsets": lambda it: it.alter_group_offsets("g", {(TOPIC, 0): 1}),
    "close": lambda it: it.close(),
}


async def _send_and_flush(producer: Any) -> None:
    producer.send_nowait(TOPIC, b"x")
    await producer.flush()


async def _delivered(sending: Awaitable[Any]) -> None:
    await (await sending)


def producer_of(cluster: FakeCluster, deadline_ms: int = DEADLINE_MS) -> Producer:
    return Producer(
        cluster.bootstrap,
        delivery_timeout_ms=deadline_ms,
        request_timeout_ms=deadline_ms,
        max_block_ms=deadline_ms,
        linger_ms=0,
    )


def consumer_of(cluster: FakeCluster, deadline_ms: int = DEADLINE_MS) -> Consumer:
    return Consumer(cluster.bootstrap, group="g", request_timeout_ms=deadline_ms)


async def started(make: Callable[[], Any]) -> Any:
    """A client with its metadata, which a busy machine may not have within the deadline that is judged here."""
    for _ in range(10):
        client = make()
        try:
            await client.start()
        except ClusterUnreachable:
            continue
        return client
    raise AssertionError("no client has started")


async def ended(call: Awaitable[object], limit_s: float = LIMIT_S) -> tuple[BaseException | None, float]:
    """The error that a call ended with, and after how many seconds."""
    began_s = time.monotonic()
    error: BaseException | None = None
    waiting = asyncio.ensure_future(call)
    done, _ = await asyncio.wait([waiting], timeout=limit_s)
    took_s = time.monotonic() - began_s
    waiting.cancel()

    assert done, f"the call has not ended after {took_s:.1f} s"
    if not waiting.cancelled():
        error = waiting.exception()
    return error, took_s


def judge(way: Any, name: str, error: BaseException | None) -> None:
    """An error says why; a task that failed is named by every call that is not over already."""
    if way in ANSWERED:
        assert error is None or name == "ready"
    if way is _failed and error is not None:
        assert isinstance(error.__cause__, ZeroDivisionError)
    assert error is None or str(error)


async def at_work(kind: str, name: str, cluster: FakeCluster, deadline_ms: int) -> Any:
    """A client that has done what goes before this call."""
    if kind == "producer":
        client = await started(lambda: producer_of(cluster, deadline_ms))
        await client.ready(TOPIC)
    elif kind == "admin":
        cluster.groups.committed["g"] = {(TOPIC, 0): 1}
        client = await started(lambda: Admin(cluster.bootstrap, timeout_ms=deadline_ms))
        await client.list_offsets(TOPIC)
    else:
        cluster.groups.has_topic = True
        write(cluster, b"one")
        client = await started(lambda: consumer_of(cluster, deadline_ms))
        if name in ("commit", "unsubscribe", "close"):
            await client.subscribe(TOPIC)
            await client.poll(max_records=1)
        elif name != "subscribe":
            await client.assign(TOPIC)
    return client


KINDS = {"producer": PRODUCER_CALLS, "consumer": CONSUMER_CALLS, "admin": ADMIN_CALLS}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, calls in KINDS.items() for name in calls])
async def test_a_call_ends(kind: str, name: str, way: Any) -> None:
    """It ends by its deadlines, with what it was asked for or with an error that says why."""
    deadline_ms = deadline_of(way, name)
    async with fake_cluster(partitions=40 if kind == "admin" else 1) as cluster:
        client = await at_work(kind, name, cluster, deadline_ms)
        try:
            await way(cluster, client)
            error, _ = await ended(KINDS[kind][name](client), deadline_ms / 100)
        finally:
            await ended(client.close())
        assert not client._cluster.channels.endpoints

    judge(way, name, error)


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
async def test_a_start_that_is_given_up_leaves_nothing_behind(kind: Any) -> None:
    """Neither a task nor a connection: `async with` does not leave what it could not enter. It may be tried again."""
    client = kind("127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.start(), 0.05)

        assert not tasks_behind()


async def test_a_close_that_is_cut_off_at_its_beginning_ends_the_tasks() -> None:
    """Also in the one turn of the loop in which it lets them begin."""
    async with fake_cluster() as cluster:
        admin = Admin(cluster.bootstrap)
        await admin.start()
        closing = asyncio.create_task(admin.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

        assert not admin._cluster.background._tasks


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (Producer, lambda it: it.ready("missing")),
        (Admin, lambda it: it.list_nodes()),
        (lambda at: Consumer(at, group="g"), lambda it: it.subscribe(TOPIC)),
        (lambda at: Consumer(at, group="g", auto_commit=False), lambda it: it.commit({(TOPIC, 0): 7})),
    ],
)
async def test_a_call_ends_with_its_client(make: Any, call: Call) -> None:
    """One that waits does not wait for its deadline, also if its task had not begun, and a later one is refused."""
    async with fake_cluster() as cluster:
        cluster.groups.is_silent = True
        client = make(cluster.bootstrap)
        await client.start()
        waiting = asyncio.ensure_future(call(client))
        await asyncio.sleep(0)
        cluster.groups.is_silent = False
        await client.close()
        error, _ = await ended(waiting)
        later, _ = await ended(call(client))

        # `subscribe` does not fail: the coordinator may answer later.
        assert isinstance(error, ClientClosed | CommitFailed) or (error is None and client.__class__ is Consumer)
        assert isinstance(later, ClientClosed)
        assert not client._cluster.channels.endpoints


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("name", ["send_and_wait", "send_batch", "commit", "poll"])
async def test_what_is_cancelled_while_a_call_waits(name: str, steps: int) -> None:
    """A call whose tasks are cancelled at any of their steps, before the first one too, ends by its deadline; the next
    calls work."""
    async with fake_cluster() as cluster:
        producer, consumer = producer_of(cluster), consumer_of(cluster)
        async with producer, consumer:
            await producer.ready(TOPIC)
            await consumer.assign(TOPIC)
            calls = PRODUCER_CALLS if name in PRODUCER_CALLS else CONSUMER_CALLS
            calling = asyncio.ensure_future(calls[name](producer if name in PRODUCER_CALLS else consumer))
            for _ in range(steps):
                await asyncio.sleep(0)
            cancel_all(but=calling)
            await ended(calling)
            await producer.send_and_wait(TOPIC, b"after")
            records = await consumer.poll(int(1_000 * LIMIT_S))
            await consumer.commit({(TOPIC, 0): 7})

    assert cluster.groups.committed["g"][TOPIC, 0] == 7
    assert records


async def test_a_record_ends_though_every_task_of_its_producer_was_cancelled() -> None:
    """A delivery that waits for an answer fails after ``delivery_timeout_ms``, without another call of the client."""
    async with fake_cluster() as cluster:
        producer = producer_of(cluster)
        async with producer:
            cluster.nodes[0].next_produce.extend(Hold() for _ in range(100))
            delivery = await producer.send(TOPIC, b"x")
            waiting = asyncio.ensure_future(delivery._batch.wait())
            await asyncio.sleep(0.05)
            cancel_all(but=waiting)
            error, _ = await ended(waiting)

    assert error is None
    assert delivery.done


PATIENCE_S = 0.3
CallStuck = Callable[[sync.Producer, sync.Consumer, sync.Admin], Any]

CALLS: dict[str, CallStuck] = {
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


async def seen_by(call: CallStuck, ruin: Callable[[sync.Producer], None]) -> tuple[BaseException, float]:
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
    monkeypatch.setattr(blocking, "STUCK_S", PATIENCE_S)
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
    monkeypatch.setattr(blocking, "STUCK_S", 0.05)
    thread = LoopThread()
    thread.run_within(1, asyncio.sleep, 1.2)
    thread.close()


async def test_blocking_clients_go_on_after_a_cancellation_of_all_tasks() -> None:
    """A task that is cancelled in the loop of the thread begins again with the next call."""
    async with fake_cluster() as cluster:

        def program() -> list[bytes | None]:
            with sync.Producer(cluster.bootstrap) as producer, sync.Consumer(cluster.bootstrap) as consumer:
                consumer.assign(TOPIC)
                producer.send_and_wait(TOPIC, b"before")
                thread = producer._thread
                thread._loop.call_soon_threadsafe(cancel_all)
                producer.send_and_wait(TOPIC, b"after")
                return [next(consumer).value for _ in range(2)]

        assert await in_thread(program) == [b"before", b"after"]
