"""Consume, transform, produce over real processes: each input has one committed output, whatever is aborted (X16)."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.running_cluster import Probe
from tests.cluster.zombie_process import copy

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, Consumer, Producer, ProducerFenced, TopicPartition, TransactionAborted

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

INPUTS = 120
GROUP = "transformers"


async def _create(cluster: LocalCluster, *topics: str) -> None:
    async with Probe(cluster) as probe:
        await probe.everybody()
        for topic in topics:
            await probe.create_topic(topic, partitions=2, min_insync_replicas="2")


async def _ended(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """Waits until no transaction is open: commit() returns once that is decided, and the markers come after it.

    Returns the last stable offset by partition.
    """
    async with Admin(cluster.bootstrap) as admin, asyncio.timeout(30):
        while True:
            stable = await admin.list_offsets(topic, isolation="read_committed")
            if stable == await admin.list_offsets(topic):
                return {partition: found.offset or 0 for partition, found in stable.items()}


async def _values(cluster: LocalCluster, topic: str, *, committed: bool = True) -> Counter[bytes | None]:
    isolation = "read_committed" if committed else "read_uncommitted"
    await _ended(cluster, topic)
    async with Consumer(cluster.bootstrap, stop_at_end=True, isolation=isolation) as consumer:  # type: ignore[arg-type]
        await consumer.assign([topic])
        return Counter([record.value async for record in consumer])


class _OneInFour(Exception):
    """What goes wrong while records are worked on."""


async def _transform(cluster: LocalCluster, name: str, blocks: Counter[str], enough: asyncio.Event) -> None:
    """Member of the group that writes each input in capitals; every fourth block fails half-way."""
    async with (
        Producer(cluster.bootstrap, transactional_id=name, linger_ms=1) as producer,
        Consumer(cluster.bootstrap, group=GROUP, auto_commit=False) as consumer,
    ):
        await consumer.subscribe("inputs")
        while not enough.is_set():
            records = await consumer.poll(300, max_records=10)
            try:
                async with producer.transaction(consumer=consumer):
                    for record in records:
                        assert record.value is not None
                        await producer.send("outputs", record.value.upper(), partition=record.partition)
                    if records and sum(blocks.values()) % 4 == 3:
                        await producer.flush()
                        raise _OneInFour
                blocks["committed"] += bool(records)
            except (_OneInFour, TransactionAborted):
                blocks["aborted"] += 1


async def _committed(cluster: LocalCluster) -> int:
    async with Consumer(cluster.bootstrap, group=GROUP) as looking:
        found = await looking.committed(("inputs", 0), ("inputs", 1))
    return sum(each.offset for each in found.values() if each is not None)


async def test_each_input_has_one_committed_output(cluster: LocalCluster) -> None:
    """Two members, of which the second comes when the first is at work, and blocks that fail half-way: what is read of
    committed records is each input once, and the group is behind the last one."""
    await _create(cluster, "inputs", "outputs")
    inputs = [b"input-%d" % number for number in range(INPUTS)]
    async with Producer(cluster.bootstrap) as producer:
        for number, value in enumerate(inputs):
            await producer.send("inputs", value, partition=number % 2)
    blocks: Counter[str] = Counter()
    enough = asyncio.Event()
    members = [asyncio.create_task(_transform(cluster, "first", blocks, enough))]
    async with asyncio.timeout(60):
        while await _committed(cluster) < INPUTS:
            if blocks["committed"] and len(members) == 1:
                members.append(asyncio.create_task(_transform(cluster, "second", blocks, enough)))
            for member in members:
                if member.done():
                    member.result()
        enough.set()
        await asyncio.gather(*members)

    assert await _values(cluster, "outputs") == Counter(value.upper() for value in inputs)
    assert blocks["aborted"] >= 2
    assert (await _values(cluster, "outputs", committed=False)).total() > INPUTS
    async with Consumer(cluster.bootstrap, group=GROUP) as looking:
        found = await looking.committed(("inputs", 0), ("inputs", 1))
    assert {tp: each.offset if each else None for tp, each in found.items()} == dict.fromkeys(
        (TopicPartition("inputs", 0), TopicPartition("inputs", 1)), INPUTS // 2
    )


async def test_a_zombie_is_fenced(cluster: LocalCluster) -> None:
    """A producer that is started with the id of one that has a transaction open: the open one is aborted, its process
    hears that it is fenced, and readers are not held back."""
    await _create(cluster, "fenced")
    async with Producer(cluster.bootstrap, transactional_id="one") as zombie:
        transaction = await zombie.transaction().__aenter__()
        await zombie.send_and_wait("fenced", b"of the zombie", partition=0)
        async with Producer(cluster.bootstrap, transactional_id="one") as heir:
            async with heir.transaction():
                await heir.send("fenced", b"of its heir", partition=0)
            with pytest.raises(ProducerFenced):
                await transaction.commit()
            with pytest.raises(ProducerFenced):
                await zombie.transaction().__aenter__()
            async with heir.transaction():
                await heir.send("fenced", b"and more", partition=0)

    # Three records and their three markers.
    assert (await _ended(cluster, "fenced"))[0] == 6
    assert await _values(cluster, "fenced") == Counter([b"of its heir", b"and more"])


async def test_a_transaction_that_takes_too_long_is_aborted(cluster: LocalCluster) -> None:
    """X7: the coordinator ends it, the commit says so, and the same producer runs the block again."""
    await _create(cluster, "late")
    async with (
        Producer(cluster.bootstrap, transactional_id="late", transaction_timeout_ms=200) as producer,
        Consumer(cluster.bootstrap) as reader,
    ):
        await reader.assign([("late", 0)])
        transaction = await producer.transaction().__aenter__()
        await producer.send_and_wait("late", b"too late", partition=0)
        plain = asyncio.create_task(reader.poll(30_000))
        async with Producer(cluster.bootstrap) as another:
            # Held back until the coordinator has ended the transaction in front of it.
            await another.send_and_wait("late", b"behind it", partition=0)
        assert [record.value for record in await plain] == [b"behind it"]
        with pytest.raises(TransactionAborted):
            await transaction.commit()
        async with producer.transaction():
            await producer.send("late", b"in time", partition=0)

    assert await _values(cluster, "late") == Counter([b"behind it", b"in time"])


@asynccontextmanager
async def _zombie(cluster: LocalCluster, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("zombie_process.py")),
        cluster.bootstrap,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_member_that_was_paused_past_its_session_commits_nothing(cluster: LocalCluster) -> None:
    """X18: it has a transactional id of its own, so only the epoch of its member fences it: its transaction is
    refused and aborted, and each input counts once, with the outputs of the member that has the partitions now."""
    count, group = 20, "of a zombie"
    await _create(cluster, "taken", "copied")
    inputs = [b"input-%d" % number for number in range(count)]
    async with Producer(cluster.bootstrap) as producer:
        for number, value in enumerate(inputs):
            await producer.send("taken", value, partition=number % 2)
    async with _zombie(cluster, group, "taken", "copied", str(count)) as zombie:
        assert zombie.stdin is not None
        assert zombie.stdout is not None
        assert await zombie.stdout.readline() == b"ready\n"
        zombie.send_signal(signal.SIGSTOP)
        assert await copy(cluster.bootstrap, group, "taken", "copied", count, waits=False) == "committed"
        zombie.stdin.write(b"go on\n")
        zombie.send_signal(signal.SIGCONT)
        ended, _ = await zombie.communicate()

    assert ended == b"aborted: UNKNOWN_MEMBER_ID\n"
    assert await _values(cluster, "copied") == Counter(value.upper() for value in inputs)
    assert (await _values(cluster, "copied", committed=False)).total() == 2 * count
    async with Consumer(cluster.bootstrap, group=group) as looking:
        found = await looking.committed(("taken", 0), ("taken", 1))
    assert sum(each.offset for each in found.values() if each is not None) == count
