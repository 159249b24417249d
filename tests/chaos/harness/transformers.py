"""Processes that consume, transform and produce in transactions as one group, under faults, with a producer for them.

The odd slots live in cli1, the others and the producer in cli0. A process that is started again has the transactional
id of the one before it, which it fences, and a history file of its own.

Invariant: the driver judges only what these processes wrote down and what lies in the logs at the end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.client_process import ClientProcess
from harness.exactly_once import Found, judged
from harness.history_file import decode, new_lines, operations
from harness.transaction_history_file import INPUTS_FROM, Asked, acknowledged, transactions
from running_cluster import until

from strandline.client import Admin, Consumer
from strandline.core.errors import Refused
from strandline_sim.checks.history import Place, Read
from strandline_sim.checks.transaction_history import GroupAt, ReadUpTo

if TYPE_CHECKING:
    from harness.run import Run

GROUP, INPUTS, OUTPUTS, PARTITIONS = "transformers", "inputs", "outputs", 6
SESSION_MS = 6_000
REBALANCE_MS = 10_000
TRANSACTION_MS = 10_000
"""After which the coordinator aborts what a process has left open."""
_PRODUCER = "producer"
_INPUT_EVERY_S = 0.03
_STARTED_S = 60.0
_STOPPED_S = 60.0
_LOOK_EVERY_S = 0.05
_ASK_MS = 5_000
_READ_S = 120.0
_SHOWN_OF_A_KIND = 3


class AwaitedCommit(NamedTuple):
    """A fault of a coordinator: how long one of these transactional ids was without a commit is measured."""

    what: str
    since_s: float
    ids: frozenset[str]


@dataclass(slots=True, eq=False)
class Transformers:
    """The processes of one run. Times are seconds of the machine's monotonic clock."""

    run: Run
    slots: int
    awaited: list[AwaitedCommit] = field(default_factory=list)
    _members: dict[int, ClientProcess] = field(default_factory=dict)
    _lives: Counter[int] = field(default_factory=Counter)
    _histories: dict[Path, int] = field(default_factory=dict)
    """Each process's file, and how far it was read."""
    _begun: dict[Path, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    """The rows of each that may belong to a commit that has not ended."""
    _commits: list[Asked] = field(default_factory=list)
    _producer: ClientProcess | None = None
    _found: Found | None = None
    """What lay in the logs at the end, if it came to that."""
    _is_closed: bool = False

    async def start(self) -> None:
        """Makes the topics; returns when the producer and every process run."""
        run = self.run
        run.stack.push_async_callback(self.close)
        for topic in (INPUTS, OUTPUTS):
            await run.probe.create_topic(topic, partitions=PARTITIONS, min_insync_replicas="2")
        await asyncio.gather(self._produce(), *map(self.begin, range(self.slots)))

    async def _produce(self) -> None:
        run = self.run
        self._producer = ClientProcess(_PRODUCER, run.directory / f"{_PRODUCER}.log")
        wanted: dict[str, Any] = {
            "producers": {"in": {"topic": INPUTS, "acks": -1, "pause_s": _INPUT_EVERY_S}},
            "consumers": [],
            "seekers": [],
            "stale": None,
            "asks_ends": False,
            "bootstrap": run.cluster.bootstrap,
            "topics": {INPUTS: PARTITIONS},
            "tls": {},
            "seed": run.seed,
            "history": str(self._sends),
        }
        await self._producer.start(run.cluster.namespaces, "cli0", "load_worker.py", wanted)
        await self._producer.hear("running", _STARTED_S)

    @property
    def _processes(self) -> list[ClientProcess]:
        return [*self._members.values(), *([self._producer] if self._producer is not None else [])]

    @property
    def _sends(self) -> Path:
        return self.run.directory / f"history-{_PRODUCER}.jsonl"

    async def begin(self, slot: int) -> None:
        """Starts a process, unless it runs or the run is over; returns when it has subscribed."""
        known = self._members.get(slot)
        if self._is_closed or (known is not None and known.running):
            return
        self._lives[slot] += 1
        name = f"t{slot}.{self._lives[slot]}"
        history = self.run.directory / f"history-{name}.jsonl"
        history.touch()
        self._histories[history] = 0
        self._members[slot] = member = ClientProcess(name, self.run.directory / f"{name}.log")
        wanted = {
            "name": name,
            "transactional_id": transactional_id_of(slot),
            "transaction_timeout_ms": TRANSACTION_MS,
            "group": GROUP,
            "inputs": INPUTS,
            "outputs": OUTPUTS,
            "partitions": PARTITIONS,
            "history": str(history),
            "bootstrap": self.run.cluster.bootstrap,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
        }
        await member.start(self.run.cluster.namespaces, "cli1" if slot % 2 else "cli0", "transformer_worker.py", wanted)
        await member.hear("running", _STARTED_S)

    def member(self, slot: int) -> ClientProcess:
        """The present process of a slot."""
        return self._members[slot]

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
            assert not (deaths := self._deaths()), deaths
            assert time.monotonic() < since_s + timeout_s, f"within {timeout_s:g} s, commits are missing: {missing}"
            await asyncio.sleep(_LOOK_EVERY_S)
        return time.monotonic() - since_s

    def _deaths(self) -> list[str]:
        """Of the present processes; a killed one has its successor in its place soon."""
        return [each.death for each in self._processes if each.death]

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
        assert self._producer is not None
        await self._producer.tell({"stop": True})
        await self._producer.hear("produced", _STOPPED_S)
        async with Admin(self.run.cluster.bootstrap, timeout_ms=_ASK_MS) as admin:
            self.run.measured["lag_gone_s"] = round(await self._caught_up(admin, timeout_s), 1)
            await asyncio.gather(*(each.tell({"stop": True}) for each in self._members.values()))
            await asyncio.gather(*(each.hear("done", _STOPPED_S) for each in self._members.values()))
            await asyncio.gather(*(each.ended() for each in self._members.values()))
            await self._nothing_open(admin)
            self._found = await self._read_everything(admin)

    async def _caught_up(self, admin: Admin, timeout_s: float) -> float:
        began_s = time.monotonic()

        async def look() -> bool:
            with suppress(Refused, TimeoutError):
                ends = await admin.list_offsets(INPUTS)
                committed = await admin.list_group_offsets(GROUP)
                reached = {tp.partition: one.offset for tp, one in committed.items() if one is not None}
                return all(reached.get(index, 0) == found.offset for index, found in ends.items())
            return False

        await until(look, f"the group has committed everything in {INPUTS}", timeout_s=timeout_s)
        return time.monotonic() - began_s

    async def _nothing_open(self, admin: Admin) -> None:
        """Every transaction in the outputs has ended: readers of committed records are held back by none."""

        async def look() -> bool:
            stable = await admin.list_offsets(OUTPUTS, isolation="read_committed")
            return stable == await admin.list_offsets(OUTPUTS)

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
                    place = Place(INPUTS_FROM + record.partition, record.offset)
                    found.inputs.append(Read("reader of inputs", place, value, at_s))
                else:
                    place = Place(record.partition, record.offset)
                    found.outputs.append(Read("reader of outputs", place, value, at_s))
                    found.origins.append(decode(record.key))

    def judge(self) -> None:
        """Everything that the processes wrote down and that was found at the end, against I37 to I39."""
        self._look()
        txns = transactions(self._histories)
        for txn in txns:
            self.run.counters[f"transactions_{txn.outcome}"] += 1
        if self._found is not None:
            produced = list(operations([self._sends], [OUTPUTS, INPUTS], frozenset()))
            self.run.counters["inputs"] = len(self._found.inputs)
            self.run.counters["outputs"] = len(self._found.outputs)
            shown: Counter[str] = Counter()
            for anomaly in judged(produced, txns, self._found):
                shown[anomaly.name] += 1
                self.run.check(shown[anomaly.name] > _SHOWN_OF_A_KIND, f"{anomaly.name}: {anomaly.sentence}")
            for name, count in shown.items():
                more = count - _SHOWN_OF_A_KIND
                self.run.check(more <= 0, f"{name}: and {more} more")
        else:
            self.run.check(False, "what lies in the logs was not read, so nothing is known of exactly once")
        for death in self._deaths():
            self.run.check(False, death)
        self._judge_commits()

    def _judge_commits(self) -> None:
        gaps = []
        for what, since_s, ids in self.awaited:
            found = [each for each in self._commits if each.transactional_id in ids and each.asked_s >= since_s]
            self.run.check(bool(found), f"{what}: no commit was acknowledged after it")
            gaps += [min(each.ended_s for each in found) - since_s] if found else []
        if gaps:
            self.run.measured["commits_away_max_s"] = round(max(gaps), 2)
            self.run.measured["commits_away_median_s"] = round(sorted(gaps)[len(gaps) // 2], 2)

    async def close(self) -> None:
        """Ends every process that still runs."""
        self._is_closed = True
        for process in self._processes:
            await process.kill()


def transactional_id_of(slot: int) -> str:
    """The transactional id of a slot's processes, one after the other."""
    return f"transformer-{slot}"
