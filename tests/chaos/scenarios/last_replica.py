"""Scenarios 8 and 16: two nodes go, the last one loses its power, all three return in every order (TR11).

The controller's own lists define what is expected at each moment: every process is a new one, so a partition has a
leader exactly when min ISR members of its ISR and ELR are alive, or all of them where they are fewer (M65); a node that
returned unclean is in neither list.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Mapping
from typing import ClassVar

from faults.disk import Disk
from faults.disk_power import DISKS, PowerLoss, mounted, slow
from harness.cluster import STOP_GRACE_MS
from harness.load import LOOSE, STRICT, STRICT_PARTITIONS
from harness.run import AVAILABLE_S, Run
from harness.scenario import NAMESPACES, Form, Scenario, Step
from raw_records import batch, fetch, produce
from running_cluster import until

from strandline.v1 import error_pb2, metadata_pb2

_FROZEN_S = 1.5


class LastReplica(Scenario):
    """Scenario 8: both followers are killed, the last replica loses its power, all three return; with fsync."""

    number, title, needs, has_short_form = 8, "Last replica standing", (NAMESPACES, DISKS), True
    clean_stops = False
    orders = (6, 1)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every order once in which survivor (0), first gone (1) and second gone (2) may return; or one of them."""
        orders = [list(each) for each in itertools.permutations(range(3))]
        draw.shuffle(orders)
        return [
            Step(what="last replica", args={"order": each, "seed": draw.choice([None, draw.randrange(1 << 30)])})
            for each in orders[: form.of(*self.orders)]
        ]

    async def prepare(self, run: Run) -> None:
        """A disk for every node, with slow syncs."""
        self.disks = mounted(run, (1, 2, 3))
        slow(self.disks.values(), 15)

    async def play(self, run: Run) -> None:
        """One order after the other."""
        for step in run.plan:
            await _round(run, step, self.disks, clean_stops=self.clean_stops)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every round was played, rejected produces, froze the HW above which acks=1 continued, and went offline."""
        rounds = form.of(*self.orders)
        each = ("rounds", "refused", "seen_offline", "appended_under_a_frozen_hw", "stayed_offline")
        return {**dict.fromkeys(each, rounds), "losses_that_dropped": max(1, rounds // 2)}


class LastReplicaPageCache(LastReplica):
    """Scenario 16: the same with page-cache: the followers stop cleanly, so that the ELR can hold one of them.

    After a loss of power the survivor has lost committed records, and must neither lead nor be counted before it has
    caught up; the node of the ELR is elected and nothing is lost.
    """

    number, title, has_short_form = 16, "Last replica standing, page cache", False
    clean_stops = True
    controller_settings: ClassVar = {"durability": "page-cache"}
    node_settings = controller_settings


async def _round(run: Run, step: Step, disks: dict[int, Disk], *, clean_stops: bool) -> None:
    """One round, from a whole cluster to a whole cluster."""
    survivor = await run.leader()
    first, second = (node_id for node_id in run.cluster.nodes if node_id != survivor)
    run.note(f"round  survivor {survivor}, order {step.args['order']}")
    for node_id in (first, second):
        if clean_stops:
            await run.cluster.service(node_id).stop(STOP_GRACE_MS)
        else:
            run.cluster.service(node_id).kill()
        await _alone_without(run, node_id)
    await _frozen(run, survivor)
    lists = await _partitions(run)
    loss = PowerLoss(disks, [survivor], step.args["seed"])
    await run.begin(loss)
    await _offline(run)
    returning = [(survivor, first, second)[index] for index in step.args["order"]]
    for number, node_id in enumerate(returning):
        await run.cluster.start_node(node_id)
        if number < 2:
            await _led_by_the_entitled(run, lists, set(returning[: number + 1]), survivor if clean_stops else None)
    await run.end(loss)
    run.healed_s = time.monotonic()
    await run.in_sync()
    await run.load.acked(3)
    run.counters["rounds"] += 1


async def _partitions(run: Run) -> dict[tuple[str, int], metadata_pb2.PartitionMetadata]:
    topics = {name: await run.probe.topic(name) for name in run.load.topics}
    return {(name, each.partition_index): each for name, topic in topics.items() for each in topic.partitions}


async def _alone_without(run: Run, node_id: int) -> None:
    async def look() -> bool:
        return all(node_id not in each.isr for each in (await _partitions(run)).values())

    await until(look, f"node {node_id} is in no ISR")


async def _frozen(run: Run, survivor: int) -> None:
    """Below min ISR: acks=all is rejected definitely, the HW stays, committed records are read, lists show why."""
    for (name, index), partition in (await _partitions(run)).items():
        run.check(list(partition.isr) == [survivor], f"{name}-{index}: ISR {list(partition.isr)}, not [{survivor}]")
        run.check(bool(partition.elr), f"{name}-{index}: the ELR is empty although the ISR is below min ISR")
    before = await run.probe.described(LOOSE, survivor)
    strict = [await run.probe.described(STRICT, survivor, index) for index in range(STRICT_PARTITIONS)]
    answer = await produce(run.probe, survivor, STRICT, batch(b"refused"))
    run.check(
        answer.error_code == error_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS,
        f"acks=all below min ISR was answered {error_pb2.ErrorCode.Name(answer.error_code)}",
    )
    run.counters["refused"] += answer.error_code == error_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS
    await asyncio.sleep(_FROZEN_S)
    after = await run.probe.described(LOOSE, survivor)
    again = [await run.probe.described(STRICT, survivor, index) for index in range(STRICT_PARTITIONS)]
    run.counters["appended_under_a_frozen_hw"] += after.log_end_offset - before.log_end_offset
    for then, now in ((before, after), *zip(strict, again, strict=True)):
        run.check(
            then.high_watermark == now.high_watermark,
            f"the HW moved from {then.high_watermark} to {now.high_watermark} below min ISR",
        )
    read = await fetch(run.probe, survivor, STRICT)
    run.check(not read.error_code and bool(read.records), f"committed records are not read: {read.error_code}")


async def _offline(run: Run) -> None:
    """With no node alive every partition is reported without a leader, and the lists stay."""

    async def look() -> bool:
        return all(not each.HasField("leader_id") for each in (await _partitions(run)).values())

    await until(look, "every partition is offline")
    for (name, index), each in (await _partitions(run)).items():
        run.check(bool(each.isr or each.elr), f"{name}-{index} is offline and neither ISR nor ELR says why")
    run.counters["seen_offline"] += 1


async def _led_by_the_entitled(
    run: Run, lists: dict[tuple[str, int], metadata_pb2.PartitionMetadata], alive: set[int], unclean: int | None
) -> None:
    """Waits until the partitions that can have a leader have one, and checks that the others have none."""
    wanted = {key: _entitled(each, alive, unclean) for key, each in lists.items()}

    async def look() -> bool:
        now = await _partitions(run)
        return all(now[key].HasField("leader_id") for key, entitled in wanted.items() if entitled)

    await until(look, f"with {alive} alive the partitions {wanted} have leaders", timeout_s=AVAILABLE_S * 2)
    for key, each in (await _partitions(run)).items():
        if each.HasField("leader_id"):
            run.check(bool(wanted[key]), f"{key} is led by {each.leader_id}, with only {alive} alive")
            run.check(each.leader_id in wanted[key], f"{key} is led by {each.leader_id}, entitled are {wanted[key]}")
        run.counters["stayed_offline"] += not wanted[key]


def _entitled(partition: metadata_pb2.PartitionMetadata, alive: set[int], unclean: int | None) -> set[int]:
    """The nodes of which one may lead, empty while too few are there to compare their logs."""
    # Until it registers, it is not known that the unclean one lost anything.
    members = {*partition.isr, *partition.elr} - ({unclean} & alive)
    there = members & alive
    return there if len(there) >= min(partition.min_insync_replicas, len(members)) else set()
