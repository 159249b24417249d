"""Moves of the load's partitions to other nodes, one after the other in each, and what they must leave behind: nothing.

Invariant: the moves are drawn before the run begins; the next one of a partition begins when the one before has ended,
so at the end it is known where every partition must be.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.load import LOOSE, STRICT, STRICT_PARTITIONS
from harness.run import Run
from harness.scenario import Step
from running_cluster import CALL_S, until

from strandline.client import Admin, ClusterUnreachable
from strandline.client.administer.admin_answers import Reassigned
from strandline.core.errors import ErrorCode, Refused
from strandline.v1 import controller_service_pb2 as pb, metadata_pb2

Name = tuple[str, int]
Held = tuple[str, int, int]
"""Topic, partition and node."""

PARTITIONS: tuple[Name, ...] = (*((STRICT, index) for index in range(STRICT_PARTITIONS)), (LOOSE, 0))
_FACTOR = 3
_THROTTLE = 2_000_000
"""Bytes per second; above what clients write."""
_TAKEN_S = 60.0
_ENDED_S = 120.0
_COPIED_SHARE = 0.1
"""Share of the time for which clients have written: how long a wiped node then copies all logs throttled, twice."""
_LEFT_S = 40.0
"""A node looks for logs to remove every 10 s."""
_AGAIN_S = 0.2
_TOO_LATE = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
"""How a cancel is refused: the move has ended, or the nodes before it are not in sync any more."""


def drawn(draw: random.Random, count: int, node_ids: Sequence[int]) -> list[Step]:
    """Targets for the partitions in turn: some at a rate, some cancelled, at once (before a move can end) or later."""
    steps = []
    for number in range(count):
        topic, partition = PARTITIONS[number % len(PARTITIONS)]
        args = {"topic": topic, "partition": partition, "target": draw.sample(node_ids, k=_FACTOR)}
        args["throttle"] = draw.choice((None, None, _THROTTLE))
        args["cancel_after_s"] = draw.choice((None, None, None, 0.0, draw.uniform(0.0, 0.5)))
        steps.append(Step(what="move", args=args | {"pause_s": draw.uniform(0.0, 1.0)}))
    return steps


class Moves:
    """Plays moves beside whatever else the run does."""

    def __init__(self, run: Run, steps: Iterable[Step]) -> None:
        self._run = run
        self._steps: dict[Name, list[Step]] = defaultdict(list)
        for step in steps:
            self._steps[step.args["topic"], step.args["partition"]].append(step)
        self._is_stopping = False

    async def play(self) -> None:
        """All of them, or until `stop`; then nothing of them may be left."""
        async with Admin(self._run.cluster.bootstrap) as admin:
            tasks = [asyncio.create_task(self._play(admin, *each)) for each in self._steps.items()]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await nothing_left(self._run)

    def stop(self) -> None:
        """Begin no further move."""
        self._is_stopping = True

    async def _play(self, admin: Admin, name: Name, steps: Iterable[Step]) -> None:
        for step in steps:
            if self._is_stopping:
                return
            before = list((await until(lambda: _partition(self._run, name), f"{name} is known")).replicas)
            target = list(step.args["target"])
            taken = await self._ask(admin, name, target, step.args["throttle"])
            self._run.check(taken.refusal is None, f"the move of {name} to {target} was refused: {taken.refusal}")
            may_stay = await self._cancelled(admin, name, step.args["cancel_after_s"])
            ends_within_s = _ENDED_S + _COPIED_SHARE * self._run.age_s
            moved = f"the move of {name} to {target} ends"
            after = await until(lambda: self._ended(name), moved, timeout_s=ends_within_s)
            wanted = [target, before] if may_stay else [target]
            self._run.check(after in wanted, f"{name} went from {before} to {after}; wanted {wanted}")
            self._run.counters["moves"] += after != before
            self._run.counters["moves_cancelled"] += may_stay and after == before
            await asyncio.sleep(step.args["pause_s"])

    async def _cancelled(self, admin: Admin, name: Name, after_s: float | None) -> bool:
        """Whether the move was taken back, as far as is known."""
        if after_s is None:
            return False
        await asyncio.sleep(after_s)
        refusal = (await self._ask(admin, name, None, None)).refusal
        self._run.check(refusal is None or refusal.code in _TOO_LATE, f"{name} was not taken back: {refusal}")
        return refusal is None

    async def _ask(self, admin: Admin, name: Name, target: list[int] | None, rate: int | None) -> Reassigned:
        """Asks until a controller answers that has heard the nodes: they are all restarted and killed."""
        failure = ""
        try:
            async with asyncio.timeout(_TAKEN_S):
                while True:
                    try:
                        (row,) = await admin.alter_partition_reassignments({name: target}, throttle_bytes_per_s=rate)
                        if row.refusal is None or row.refusal.code is not ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                            return row
                        failure = str(row.refusal)
                    except (Refused, ClusterUnreachable) as error:
                        failure = str(error)
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise AssertionError(f"no controller took the move of {name} to {target}: {failure}") from None

    async def _ended(self, name: Name) -> list[int] | None:
        found = await _partition(self._run, name)
        return None if traces(found) else list(found.replicas)


async def _image(run: Run) -> metadata_pb2.ClusterMetadata:
    """What the deciding controller knows: one that was paused would not know of a move that another one took."""
    return (await run.probe.controller.GetMetadata(pb.GetMetadataRequest(linearizable=True), timeout=CALL_S)).metadata


async def _partition(run: Run, name: Name) -> metadata_pb2.PartitionMetadata:
    return next(topic for topic in (await _image(run)).topics if topic.name == name[0]).partitions[name[1]]


def traces(partition: metadata_pb2.PartitionMetadata) -> list[str]:
    """What says that a move of a partition runs or waits."""
    fields: Mapping[str, Sequence[int]] = {
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
        "original": partition.original_replicas,
        "queued target": partition.queued_target,
    }
    left = [f"{what} {list(nodes)}" for what, nodes in fields.items() if nodes]
    return left + (["a throttle"] if partition.HasField("throttle_bytes_per_s") else [])


async def staying_in_sync(run: Run) -> None:
    """Waits until every node lives, and every replica that no move adds is in the ISR."""

    async def look() -> bool:
        image = await _image(run)
        found = [each for topic in image.topics for each in topic.partitions]
        whole = all(set(each.replicas) - set(each.adding_replicas) <= set(each.isr) for each in found)
        return whole and not any(node.fenced for node in image.nodes)

    await until(look, "every replica that no move adds is in sync")


def left_behind(
    image: metadata_pb2.ClusterMetadata, reported: Collection[Held], folders: Mapping[int, Collection[str]]
) -> list[str]:
    """What is not as it was before any move: traces of moves, replicas that nodes report or hold and should not, or
    do not report.

    ``folders``: names in the data directory of each node.
    """
    found = {(topic.name, each.partition_index): each for topic in image.topics for each in topic.partitions}
    wanted = {(*name, node_id) for name, each in found.items() for node_id in each.replicas}
    wrong = [f"{topic}-{index}: {'; '.join(left)}" for (topic, index), each in found.items() if (left := traces(each))]
    wrong += [f"{topic}-{index} is not reported by node {node}" for topic, index, node in sorted(wanted - {*reported})]
    wrong += [f"{topic}-{index} is reported by node {node}" for topic, index, node in sorted({*reported} - wanted)]
    for node_id, names in folders.items():
        own = {f"{topic}-{index}" for topic, index, node in wanted if node == node_id}
        logs = {name for name in names if name.rpartition("-")[2].isdecimal()}
        wrong += [f"node {node_id} has the folder {name}" for name in sorted(logs - own)]
    return wrong


async def nothing_left(run: Run) -> None:
    wrong: list[str] = []

    async def is_clean() -> bool:
        reported = {(one.topic, one.partition, one.node_id) for one in await admin.describe_replicas()}
        folders = {
            node_id: [path.name for path in node.directory.iterdir() if path.is_dir()]
            for node_id, node in run.cluster.nodes.items()
        }
        wrong[:] = left_behind(await _image(run), reported, folders)
        return not wrong

    async with Admin(run.cluster.bootstrap) as admin:
        try:
            await until(is_clean, "nothing is left of moves", timeout_s=_LEFT_S)
        except AssertionError as error:
            run.check(False, f"{error}: {'; '.join(wrong[:5])}")
