"""Several controllers as the driver sees them: which one accepts a change, and how long none did.

Invariant: a controller decides if, and only if, it just accepted a change that was stored: not because it says so.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
from harness.cluster import Cluster
from harness.load import EVERYBODY, STRICT, Load
from harness.namespaces import MEMBERS
from running_cluster import Probe

from strandline.etcd.client import Etcd
from strandline.etcd.errors import EtcdError
from strandline.v1 import controller_service_pb2 as pb

_CHANGE_S = 2.0
"""Longer than the store needs to find out that an append was not answered."""
_EVERY_S = 0.04
_WITHIN_S = 60.0
_BEFORE_S = 60.0


class Accepted(NamedTuple):
    """A change that a controller accepted."""

    invoked_s: float
    at_s: float
    place: str


class TakeOver(NamedTuple):
    """What a fault cost; seconds."""

    why: str
    since_s: float
    first: Accepted
    change_gap_s: float
    """From the last change that was accepted before it to the first one after."""


class Controllers:
    """Asks every controller for a change all the time; the one that accepts is the one that `Probe` calls."""

    def __init__(self, cluster: Cluster, probe: Probe, load: Load) -> None:
        self._cluster = cluster
        self._probe = probe
        self._load = load
        self._names = list(cluster.controllers)
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = itertools.count(1)
        self.accepted: list[Accepted] = []
        """Accepted changes in the order of their answers."""
        self.take_overs: list[TakeOver] = []

    async def begin(self) -> None:
        """Returns when one of them decides."""
        self._tasks = [asyncio.create_task(self._ask_forever(place)) for place in range(len(self._names))]
        await self._probe.active()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask_forever(self, place: int) -> None:
        while True:
            invoked_s = time.monotonic()
            request = pb.IncrementalAlterConfigsRequest()
            changed = request.resources.add(resource_name=STRICT, resource_type=pb.CONFIG_RESOURCE_TYPE_TOPIC)
            changed.configs.add(name="retention.ms", value=str((1 << 40) + next(self._numbers)))
            try:
                answer = await self._probe.controller_at(place).IncrementalAlterConfigs(request, timeout=_CHANGE_S)
            except grpc.aio.AioRpcError:
                pass
            else:
                self._probe.asked = place
                if not answer.responses[0].error_code:
                    self.accepted.append(Accepted(invoked_s, time.monotonic(), self._names[place]))
            await asyncio.sleep(_EVERY_S)

    async def active(self) -> str:
        """The one that accepts the next change."""
        return (await self.accepted_after(time.monotonic())).place

    async def accepted_after(
        self, since_s: float, *, other_than: Sequence[str] = (), within_s: float = _WITHIN_S
    ) -> Accepted:
        """The first change of those asked for after ``since_s`` that is accepted by another than ``other_than``."""
        deadline_s = time.monotonic() + within_s
        while True:
            found = [a for a in self.accepted if a.invoked_s >= since_s and a.place not in other_than]
            if found:
                return found[0]
            assert time.monotonic() < deadline_s, f"no controller accepted a change within {within_s:g} s"
            await asyncio.sleep(_EVERY_S / 2)

    async def taken_over(self, why: str, since_s: float, *, from_: str, within_s: float = _WITHIN_S) -> Accepted:
        """Waits until another one than ``from_`` decides, and keeps how long that took."""
        first = await self.accepted_after(since_s, other_than=(from_,), within_s=within_s)
        self._keep(why, since_s, first)
        return first

    async def goes_on(self, why: str, since_s: float, *, within_s: float = _WITHIN_S) -> Accepted:
        """Waits until a controller decides, perhaps the same one, and keeps how long none did."""
        first = await self.accepted_after(time.monotonic(), within_s=within_s)
        self._keep(why, since_s, first)
        return first

    def _keep(self, why: str, since_s: float, first: Accepted) -> None:
        before = [each.at_s for each in self.accepted if each.at_s < since_s]
        self.take_overs.append(TakeOver(why, since_s, first, first.at_s - max(before, default=since_s)))

    def accepted_by(self, place: str, since_s: float, until_s: float) -> list[Accepted]:
        """What one controller accepted within a span of time."""
        return [each for each in self.accepted if each.place == place and since_s <= each.at_s < until_s]

    async def etcd_leader(self) -> str:
        client = Etcd(self._cluster.etcd_endpoints)
        try:
            async with asyncio.timeout(_WITHIN_S):
                while True:
                    for name, endpoint in zip(MEMBERS, self._cluster.etcd_endpoints, strict=True):
                        try:
                            status = await client.status(endpoint)
                        except EtcdError:
                            continue
                        if status.leader and status.leader == status.header.member_id:
                            return name
                    await asyncio.sleep(_EVERY_S)
        finally:
            await client.close()

    def measured(self) -> dict[str, Any]:
        """The figures of every take-over, for the page."""
        rows = [self._row(each) for each in self.take_overs]
        if not rows:
            return {}
        took = [row["first_change_s"] for row in rows]
        return {
            "take_overs": rows,
            "first_change_max_s": max(took),
            "first_change_median_s": round(statistics.median(took), 3),
        }

    def _row(self, each: TakeOver) -> dict[str, Any]:
        before = self._longest_gap_s(each.since_s - _BEFORE_S, each.since_s)
        after = self._longest_gap_s(each.since_s - 0.5, max(each.first.at_s + 1.0, each.since_s + 2.0))
        return {
            "why": each.why,
            "first_change_s": round(each.first.at_s - each.since_s, 3),
            "change_gap_s": round(each.change_gap_s, 3),
            "ack_gap_before_s": round(before, 3),
            "ack_gap_after_s": round(after, 3),
        }

    def _longest_gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time between two acknowledgements of one partition that follow each other."""
        longest = 0.0
        for index in range(self._load.topics[STRICT]):
            acks = sorted(
                each.completed_s
                for each in self._load.sends
                if each.topic == STRICT
                and each.partition == index
                and each.outcome == "ok"
                and each.value.client in EVERYBODY
                and each.completed_s is not None
                and begin_s <= each.completed_s <= end_s
            )
            longest = max(longest, *(b - a for a, b in itertools.pairwise(acks)), 0.0)
        return longest
