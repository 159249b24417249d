"""Members of a group on real processes: partitions move between them while their coordinator is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from running_cluster import Probe, until

from strandline.client import Consumer, Producer, RebalanceListener, TopicPartition
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of

_PARTITIONS = 6
_RECORDS = 300
_SESSION_MS = 6_000


@dataclass
class Owners:
    """Who owns which partition, by what members say; two owners of one are noted."""

    owner: dict[TopicPartition, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Says(RebalanceListener):
    """Says what one member hears."""

    def __init__(self, name: str, owners: Owners) -> None:
        self._name = name
        self._owners = owners

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            if (other := self._owners.owner.setdefault(tp, self._name)) != self._name:
                self._owners.wrong.append(f"{tp} is {self._name}'s and {other}'s")

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self._owners.owner.pop(tp)

    on_lost = on_revoked


@pytest.mark.timeout(120)
@pytest.mark.slow
async def test_no_record_is_skipped_or_shared_while_members_and_coordinators_come_and_go(
    probe: Probe, topic: str
) -> None:
    """Three members, one joining late and one leaving, the coordinator killed in between: each record is given, none
    to a second member before the first gave its partition up."""
    await probe.create_topic(topic, partitions=_PARTITIONS)
    group = f"group-of-{topic}"
    owners = Owners()
    given: dict[tuple[int, int], list[str]] = {}

    async def read(name: str, consumer: Consumer) -> None:
        async for record in consumer:
            given.setdefault((record.partition, record.offset), []).append(name)

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(probe.local.bootstrap))
        tasks: list[asyncio.Task[None]] = []

        async def join(name: str) -> Consumer:
            consumer = await stack.enter_async_context(
                Consumer(
                    probe.local.bootstrap, group=group, session_timeout_ms=_SESSION_MS, auto_commit_interval_ms=100
                )
            )
            await consumer.subscribe(topic, listener=Says(name, owners))
            tasks.append(asyncio.create_task(read(name, consumer)))
            return consumer

        async def write(first: int) -> None:
            sent = [
                await producer.send(topic, b"%d" % number, partition=number % _PARTITIONS)
                for number in range(first, first + _RECORDS)
            ]
            await asyncio.gather(*(one for one in sent))

        async def shared_by(count: int) -> bool:
            return len(owners.owner) == _PARTITIONS and len(set(owners.owner.values())) == count

        first = await join("first")
        await join("second")
        await until(lambda: shared_by(2), "both members have partitions")
        await write(0)
        state = await probe.topic(GROUP_STATE)
        coordinator = await probe.leader(GROUP_STATE, partition_of(group, len(state.partitions)))
        probe.local.kill_node(coordinator)
        await join("third")
        await write(_RECORDS)
        await until(lambda: shared_by(3), "all three members have partitions", timeout_s=40)
        await probe.restart(coordinator)
        tasks[0].cancel()
        await first.close()
        await until(lambda: shared_by(2), "the two that are left have all partitions")
        await write(2 * _RECORDS)

        async def all_given() -> bool:
            return len(given) == 3 * _RECORDS

        await until(all_given, "every record is given")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert owners.wrong == []
    assert {names[0] for names in given.values()} == {"first", "second", "third"}


@pytest.mark.timeout(60)
async def test_the_life_of_a_group_is_in_the_events_of_its_coordinator(probe: Probe, topic: str) -> None:
    """A member that joins and leaves is a stable group and then an empty one, with the partitions that it had."""
    await probe.create_topic(topic, partitions=2)
    group = f"group-of-{topic}"
    async with Consumer(probe.local.bootstrap, group=group, session_timeout_ms=_SESSION_MS) as consumer:
        await consumer.subscribe(topic)

        async def assigned() -> bool:
            await consumer.poll(timeout_ms=100)
            return len(consumer.assignment()) == 2

        await until(assigned, "the member has both partitions")
    state = await probe.topic(GROUP_STATE)
    coordinator = await probe.leader(GROUP_STATE, partition_of(group, len(state.partitions)))
    path = probe.local.plan.directory / f"node-{coordinator}" / "events.jsonl"

    async def states() -> list[str]:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        # What is repeated when an hour begins is no change.
        of_group = [row for row in rows if row.get("group_id") == group and row.get("cause") != "repeated"]
        if not of_group or of_group[-1].get("new_state") != "Empty":
            return []
        return [f"{row['phase']} {len(row['assigned'])}" if "phase" in row else row["new_state"] for row in of_group]

    assert await until(states, "the events say that the group is empty") == ["joined 2", "Stable", "gone 0", "Empty"]
