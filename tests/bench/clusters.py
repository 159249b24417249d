"""Clusters of Strandline that a measure starts: their topics, and what is waited for in them.

Invariant: nothing is measured before every replica is in sync, and every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from child import in_loop
from report import size_row

from strandline.cli.connect import TlsOptions
from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin
from strandline.core.coordinator.internal_topics import partition_of

PLAIN = TlsOptions(tls_cert="", tls_key="", tls_ca="")
_WAIT_S, _LOOK_S = 120.0, 0.02


@contextmanager
def cluster(directory: Path, durability: str = "fsync", **settings: Any) -> Iterator[LocalCluster]:
    """A Strandline cluster: a controller and three nodes; ``settings`` are those of its plan."""
    rules = {"durability": durability}
    given = {name: {**rules, **settings.pop(name, {})} for name in ("controller_settings", "node_settings")}
    running = LocalCluster(Plan(directory=directory, **given, **settings))
    try:
        in_loop(running.start())
        yield running
    finally:
        running.kill()


@contextmanager
def fresh_topic(bootstrap: str, topic: str, partitions: int, tls: TlsOptions = PLAIN) -> Iterator[int]:
    """A topic with three replicas of each partition, all in sync; the leader of the first, and no topic at the end."""
    in_loop(create_topic(bootstrap, topic, partitions, tls))
    try:
        yield in_loop(_asked(bootstrap, tls, lambda admin: leader_of(admin, topic)))
    finally:
        in_loop(_asked(bootstrap, tls, lambda admin: admin.delete_topic(topic)))


async def create_topic(bootstrap: str, topic: str, partitions: int, tls: TlsOptions = PLAIN) -> None:
    """A topic with three replicas of each partition, all in sync."""
    async with Admin(bootstrap, **tls) as admin:
        await admin.create_topic(topic, partitions=partitions, replication_factor=3)
        await in_sync(admin, topic)


async def _asked(bootstrap: str, tls: TlsOptions, ask: Callable[[Admin], Awaitable[Any]]) -> Any:
    async with Admin(bootstrap, **tls) as admin:
        return await ask(admin)


async def until(condition: Callable[[], bool | Awaitable[bool]], within_s: float = _WAIT_S) -> None:
    """Wait for a state that no event announces.

    Raises:
        TimeoutError: it does not come.
    """
    async with asyncio.timeout(within_s):
        while not (found if isinstance(found := condition(), bool) else await found):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)


async def in_sync(admin: Admin, *topics: str, within_s: float = _WAIT_S) -> None:
    """Wait until every partition, of these topics or of all, has a leader and all of its replicas in its ISR."""

    async def are_in_sync() -> bool:
        parts = [one for topic in await admin.describe_topics(topics) for one in topic.partitions]
        return all(one.leader is not None and len(one.isr) == len(one.replicas) for one in parts)

    await until(are_in_sync, within_s)


async def leader_of(admin: Admin, topic: str, partition: int = 0) -> int:
    """The node that leads a partition; for a partition of coordinators it coordinates."""
    (found,) = await admin.describe_topics([topic])
    leader = found.partitions[partition].leader
    assert leader is not None, "it serves"
    return int(leader)


async def coordinator_of(admin: Admin, topic: str, key: str) -> int:
    """The node that coordinates a group or a transactional id."""
    return await leader_of(admin, topic, partition_of(key, await _partitions_of(admin, topic)))


async def names_beside(admin: Admin, topic: str, key: str, count: int) -> list[str]:
    """``count`` other names of the same coordinator as ``key``, which ends in -0."""
    partitions = await _partitions_of(admin, topic)
    names = (f"{key.removesuffix('0')}{number}" for number in itertools.count(1))
    beside = (name for name in names if partition_of(name, partitions) == partition_of(key, partitions))
    return list(itertools.islice(beside, count))


async def _partitions_of(admin: Admin, topic: str) -> int:
    (found,) = await admin.describe_topics([topic])
    return len(found.partitions)


async def back_s(
    running: LocalCluster, admin: Admin, topic: str, key: str, again: Callable[[], Awaitable[object]]
) -> float:
    """Seconds from the kill of the coordinator's node to the end of ``again``; then the node is brought back."""
    coordinator = await coordinator_of(admin, topic, key)
    began = time.monotonic()
    running.kill_node(coordinator)
    await again()
    took_s = time.monotonic() - began
    await running.start_node(coordinator)
    await in_sync(admin)
    return took_s


def back_row(what: str, times: Sequence[float], judged: str, most_s: float) -> dict[str, Any]:
    """The row of several kills, of which the ``median`` or the ``longest`` is judged."""
    found = {"median": median(times), "longest": max(times)}
    measured = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.items())
    figure = f"coordinator's node killed with {what} ({len(times)} kills)"
    return size_row(figure, measured, f"{judged} {most_s:.0f} s", found[judged] < most_s)
