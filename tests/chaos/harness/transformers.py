"""Processes that consume, transform and produce in transactions as one group, under faults; and the verdict on them.

A process that is started again has the transactional id of the one before it, which it fences. An output names its
input in its key, so whether each acknowledged input has exactly one committed output (I39) is seen by what lies in the
logs at the end; what the processes wrote down is judged too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import members
from harness.history_file import decode, new_lines, operations
from harness.member_history_file import INPUTS_FROM, Asked, acknowledged, transactions
from running_cluster import until

from strandline.client import Admin, Consumer
from strandline_sim.checks import history
from strandline_sim.checks.transaction_history import GroupAt, ReadUpTo, Txn, sends_of, transaction_anomalies

if TYPE_CHECKING:
    from harness.run import Run

GROUP, INPUTS, OUTPUTS, PARTITIONS = "transformers", "inputs", "outputs", 6
TRANSACTION_MS = 10_000
"""After which the coordinator aborts what a process has left open."""
_ASK_MS = 5_000
_READ_S = 120.0


@dataclass(slots=True)
class Found:
    """What lay in the logs at the end, for one who reads committed records."""

    inputs: list[history.Read] = field(default_factory=list)
    outputs: list[history.Read] = field(default_factory=list)
    origins: list[history.RecordValue] = field(default_factory=list)
    """The input that each output is made of."""
    ends: list[ReadUpTo] = field(default_factory=list)
    groups: list[GroupAt] = field(default_factory=list)


def judged(produced: Sequence[history.Operation], txns: Sequence[Txn], found: Found) -> list[history.Anomaly]:
    """Everything wrong with what was produced, transformed and found, read to the ends of both topics."""
    reads = [*found.inputs, *found.outputs]
    return [
        *one_output_each((each for each in produced if isinstance(each, history.Send)), found),
        *transaction_anomalies([*txns, *reads, *found.ends, *found.groups]).anomalies,
        *history.anomalies([*produced, *sends_of(txns), *reads]),
    ]


def one_output_each(inputs: Iterable[history.Send], found: Found) -> Iterator[history.Anomaly]:
    """An input that was acknowledged, or lies in the log all the same, has one output; any other has none."""
    outputs = Counter(found.origins)
    wanted = {read.value for read in found.inputs}
    wanted |= {send.value for send in inputs if send.outcome is history.SendOutcome.OK}
    for value in sorted(wanted | outputs.keys()):
        count = outputs[value]
        if count != (value in wanted):
            named = f"{value.client}/{value.seq}"
            yield history.Anomaly("I39", f"input {named} has {count} committed outputs, {int(value in wanted)} wanted")


class AwaitedCommit(NamedTuple):
    """A fault of a coordinator: how long one of these transactional ids was without a commit is measured."""

    what: str
    since_s: float
    ids: frozenset[str]


class Transformers(members.Members):
    """The processes of one run."""

    group, topic, partitions, letter, record_every_s = GROUP, INPUTS, PARTITIONS, "t", 0.03
    script = "transformer_worker.py"

    def __init__(self, run: Run, slots: int) -> None:
        super().__init__(run, slots)
        self.awaited: list[AwaitedCommit] = []
        self._begun: dict[Path, list[list[Any]]] = defaultdict(list)
        """The rows of each process that may belong to a commit that has not ended."""
        self._commits: list[Asked] = []
        self._found: Found | None = None
        """What lay in the logs at the end, if it came to that."""

    def wanted(self, slot: int, name: str) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id_of(slot),
            "transaction_timeout_ms": TRANSACTION_MS,
            "inputs": INPUTS,
            "outputs": OUTPUTS,
            "partitions": PARTITIONS,
        }

    async def start(self) -> None:
        """Makes the topics; returns when the producer and every process run."""
        for topic in (INPUTS, OUTPUTS):
            await self.run.probe.create_topic(topic, partitions=PARTITIONS, min_insync_replicas="2")
        await asyncio.gather(self.start_producer(), *map(self.begin, range(self.slots)))

    def await_commit(self, what: str, since_s: float, slots: range) -> None:
        """Measures when one of these slots has a commit that it asked for from ``since_s`` on; judged at the end."""
        self.awaited.append(AwaitedCommit(what, since_s, frozenset(map(transactional_id_of, slots))))

    async def everybody_commits(self, count: int, *, timeout_s: float = 60.0) -> float:
        """Waits for ``count`` more commits of each transactional id; the seconds it took.

        Raises:
            AssertionError: they did not come in time, or a process ended.
        """
        since_s = time.monotonic()
        wanted = {transactional_id_of(slot): count for slot in range(self.slots)}
        while missing := Counter(wanted) - Counter(
            each.transactional_id for each in self._look() if each.asked_s >= since_s
        ):
            assert not (deaths := self.deaths), deaths
            assert time.monotonic() < since_s + timeout_s, f"within {timeout_s:g} s, commits are missing: {missing}"
            await asyncio.sleep(members.LOOK_EVERY_S)
        return time.monotonic() - since_s

    def _look(self) -> list[Asked]:
        for path, position in self._histories.items():
            lines, self._histories[path] = new_lines(path, position)
            rows = [*self._begun[path], *map(json.loads, lines)]
            self._commits += acknowledged(rows)
            ended = {row[2] for row in rows if row[0] == "ended"}
            self._begun[path] = [row for row in rows if row[2] not in ended]
        return self._commits

    async def finish(self, timeout_s: float) -> None:
        """Ends the producer, waits until the group has committed up to every end, ends all, and reads everything.

        Raises:
            AssertionError: the lag did not become 0 in time, a transaction stayed open, or a process failed.
        """
        await self.stop_producer()
        async with Admin(self.run.cluster.bootstrap, timeout_ms=_ASK_MS) as admin:
            await self.caught_up(admin, timeout_s)
            await self.leave()
            await self._nothing_open(admin)
            self._found = await self._read_everything(admin)

    async def _nothing_open(self, admin: Admin) -> None:
        """Every transaction in the outputs has ended: readers of committed records are held back by none."""

        async def look() -> bool:
            return await admin.list_offsets(OUTPUTS, isolation="read_committed") == await admin.list_offsets(OUTPUTS)

        await until(look, f"no transaction is open in {OUTPUTS}", timeout_s=2 * TRANSACTION_MS / 1000)

    async def _read_everything(self, admin: Admin) -> Found:
        found = Found()
        for topic, first in ((OUTPUTS, 0), (INPUTS, INPUTS_FROM)):
            ends = await admin.list_offsets(topic, isolation="read_committed")
            found.ends += [ReadUpTo(first + index, end.offset or 0) for index, end in ends.items()]
        async with asyncio.timeout(_READ_S):
            await self._read(INPUTS, found)
            await self._read(OUTPUTS, found)
        for tp, one in (await admin.list_group_offsets(GROUP)).items():
            if one is not None:
                found.groups.append(GroupAt(GROUP, INPUTS_FROM + tp.partition, one.offset))
        return found

    async def _read(self, topic: str, found: Found) -> None:
        async with Consumer(self.run.cluster.bootstrap, stop_at_end=True) as consumer:
            await consumer.assign([topic])
            async for record in consumer:
                value, at_s = decode(record.value), time.monotonic()
                if topic == INPUTS:
                    place = history.RecordPlace(INPUTS_FROM + record.partition, record.offset)
                    found.inputs.append(history.Read("reader of inputs", place, value, at_s))
                else:
                    place = history.RecordPlace(record.partition, record.offset)
                    found.outputs.append(history.Read("reader of outputs", place, value, at_s))
                    found.origins.append(decode(record.key))

    def judge(self) -> None:
        """Everything that the processes wrote down and that was found at the end, against I37 to I39."""
        self._look()
        txns = transactions(self._histories)
        for txn in txns:
            self.run.counters[f"transactions_{txn.outcome}"] += 1
        self.run.check(self._found is not None, "what lies in the logs was not read: nothing is known of exactly once")
        if self._found is not None:
            self.run.counters["inputs"] = len(self._found.inputs)
            self.run.counters["outputs"] = len(self._found.outputs)
            produced = list(operations([self._sends], [OUTPUTS, INPUTS], frozenset()))
            self.show(judged(produced, txns, self._found))
        else:
            self.show(())
        self._judge_commits()

    def _judge_commits(self) -> None:
        gaps = []
        for what, since_s, ids in self.awaited:
            found = [each for each in self._commits if each.transactional_id in ids and each.asked_s >= since_s]
            self.run.check(bool(found), f"{what}: no commit was acknowledged after it")
            gaps += [min(each.ended_s for each in found) - since_s] if found else []
        self.measure(gaps)


def transactional_id_of(slot: int) -> str:
    """The transactional id of a slot's processes, one after the other."""
    return f"transformer-{slot}"
