"""Transactions in a simulated cluster: their coordinators, the processes that run them, and the invariants.

Invariants: I31 as in any run with coordinators, I36 after every step, I38 at every marker, L13 after healing. I37 to
I39 are checked at the end, on what clients did and saw (`transaction_history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from strandline.core.control.messages import CreateTopics, NewTopic
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE, partition_of
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import Shard, ShardLimits
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import GroupSettings
from strandline.core.groups.reporting import GroupReporting
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.records import PREPARED, TransactionSettings, TxnState
from strandline.core.transactions.reporting import TransactionReporting
from strandline.core.types import TopicPartition
from strandline.records.batch import Batch, committed
from strandline_sim.checks import transaction_history
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.group_history import WatchedGroups
from strandline_sim.checks.history import Operation, Read, RecordPlace, Seek, anomalies
from strandline_sim.clients.copiers import GROUP, Copier
from strandline_sim.clients.transactors import Transactor
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.disk import LogFile
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.process import Process

TRANSACTIONS_KEY = 4
"""Key of the draws for the shape of transactions, so that a seed without them gives the same run as before."""
STATE_PARTITIONS = 2
FIRST_TRANSACTOR = 30
"""Number of the first process; plain producers have smaller ones."""

FIRST_COPIER = 40

_STATE_ID = "00000000-0000-0000-0000-0000000000e0"
_GROUPS_ID = "00000000-0000-0000-0000-0000000000e1"
_GROUP_TP = TopicPartition(_GROUPS_ID, partition_of(GROUP, STATE_PARTITIONS))
_NO_BYTES = memoryview(b"")


def _coordinator_of(transactional_id: str) -> TopicPartition:
    return TopicPartition(_STATE_ID, partition_of(transactional_id, STATE_PARTITIONS))


class _Ids:
    """Producer ids of a run; a machine takes the id that it looked at within the same step."""

    def __init__(self) -> None:
        self._next = 1_000

    def next_id(self) -> int | None:
        """The next one."""
        return self._next

    def take(self, producer_id: int) -> None:
        """Mark the id as used."""
        assert producer_id == self._next, f"{producer_id} is not the next producer id"
        self._next += 1


class Transacting:
    """The transactions of one world."""

    settings = TransactionSettings(timeout_check_ms=100, marker_retry_ms=60)

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self.draw = Draw(world.shape.seed, Purpose.SHAPE, TRANSACTIONS_KEY)
        ids = _Ids()
        self.coordinators = Coordinators(
            codec=world.codec,
            machines={
                TRANSACTION_STATE: lambda reports: TransactionMachine(
                    reports, ids, self.settings, TransactionReporting(reports)
                ),
                GROUP_STATE: lambda reports: WatchedGroups(GroupSettings(), GroupReporting(reports)),
            },
            # Small, so that logs are swept and loads take several steps.
            limits=ShardLimits(
                read_bytes=2_048, batch_bytes=1_024, sweep_step_bytes=2_048, sweep_above_bytes=8_192, max_waiting=500
            ),
        )
        self.transactors: list[Transactor] = []
        self.txns: list[transaction_history.Txn] = []
        self._markers = count(1)
        # (producer id, epoch) -> whether its marker commits.
        self._outcomes: dict[tuple[int, int], bool] = {}
        # What the last check of each log of a process saw: its content and HW, and the LSO.
        self._seen: dict[tuple[int, int, TopicPartition], tuple[int, int, int]] = {}
        # (partition, hash of a log, its HW, what it knows to be committed) -> the LSO that it has on any node.
        self._stable: dict[tuple[TopicPartition, int, int, int], int] = {}

    def next_marker(self) -> int:
        """The number of a marker that is sent; a copy has the number of the original."""
        return next(self._markers)

    @property
    def is_ready(self) -> bool:
        """Whether the topics of coordinators exist."""
        return not self._missing_topics()

    def _missing_topics(self) -> list[NewTopic]:
        known = {tp.topic_id for tp in self.world.metadata.partitions}
        wanted = (NewTopic(TRANSACTION_STATE, _STATE_ID), NewTopic(GROUP_STATE, _GROUPS_ID))
        return [topic for topic in wanted if topic.topic_id not in known]

    def order_topics(self) -> None:
        """Ask the controller for the missing topics."""
        for topic in self._missing_topics():
            self.world.controller.order(CreateTopics(topics=(topic,)))

    def start(self) -> None:
        """Start the processes."""
        draw = self.draw
        n_ids = draw.between(1, 4)
        for number in range(draw.between(n_ids, n_ids + 2)):
            transactional_id = f"t{number % n_ids}"
            number, tp = FIRST_TRANSACTOR + number, _coordinator_of(transactional_id)
            self._add(Transactor(self.world, self.txns, number, tp, transactional_id))
        for number in range(draw.choose((1, 1, 2))):
            number, tp = FIRST_COPIER + number, _coordinator_of("copier")
            self._add(Copier(self.world, self.txns, number, tp, "copier", _GROUP_TP))

    def _add(self, transactor: Transactor) -> None:
        self.transactors.append(transactor)
        if transactor.number not in self.world.shape.without:
            self.world.timeline.after(self.draw.between(50_000, 1_500_000), transactor.start)

    def close(self) -> None:
        """Stop the processes where they are."""
        for transactor in self.transactors:
            transactor.close()

    def appended(self, process: Process, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Check I38: all markers of one transaction agree."""
        for header in log.headers[first:]:
            if header.marker is None or header.producer is None:
                continue
            whose = header.producer[:2]
            known = self._outcomes.setdefault(whose, header.marker.committed)
            if known != header.marker.committed:
                raise Broken(
                    "I38", f"p{tp.partition} on node {process.node_id} has another marker of {whose} than others"
                )
            self.world.coverage.saw("transactions: commit marker" if known else "transactions: abort marker")

    def after_step(self, process: Process) -> None:
        """Check I36: the LSO of every log that this step changed."""
        for tp, log in process.core.state.logs.items():
            file = process.disk.logs[tp]
            content = file.hashes[-1] if file.hashes else 0
            key = (int(process.node_id), process.life, tp)
            seen = self._seen.get(key)
            if seen is not None and seen[:2] == (content, log.hw):
                continue
            lso = log.lso
            self._seen[key] = (content, log.hw, lso)
            what = f"the LSO of p{tp.partition} on node {process.node_id} is {lso}"
            if lso > log.hw:
                raise Broken("I36", f"{what}, the HW {log.hw}", offset=lso)
            if seen is not None and log.hw >= seen[1] and lso < seen[2]:
                raise Broken("I36", f"{what}, and was {seen[2]}", offset=lso)
            alike = (tp, content, log.hw, log.committed)
            if file.leo == log.leo and self._stable.setdefault(alike, lso) != lso:
                raise Broken("I36", f"{what}, and that of an equal log {self._stable[alike]}", offset=lso)

    def missing(self) -> tuple[str, str] | None:
        """What does not hold yet after healing (L12, L13)."""
        for partition in range(STATE_PARTITIONS):
            shard = self._shard(TopicPartition(_STATE_ID, partition))
            if shard is None:
                return ("L12", f"the coordinator of transactions in p{partition} does not serve")
            assert isinstance(shard.machine, TransactionMachine)
            for name, value in shard.machine.ids.items():
                if value.state is TxnState.ONGOING or value.state in PREPARED:
                    return ("L13", f"{name} is {value.state}")
        if self._shard(_GROUP_TP) is None:
            return ("L12", f"the coordinator of {GROUP} does not serve")
        for tp in self.world.tps:
            leader = self.world.leader_of(tp)
            process = self.world.machines[leader].running if leader is not None else None
            log = process.core.state.logs.get(tp) if process is not None else None
            if log is not None and log.lso != log.hw:
                return ("L13", f"the LSO of p{tp.partition} is {log.lso}, its HW {log.hw}")
        return None

    def _shard(self, tp: TopicPartition) -> Shard | None:
        leader = self.world.leader_of(tp)
        process = self.world.machines[leader].running if leader is not None else None
        shard = process.core._coordinators.shards.get(tp) if process is not None else None
        return shard if shard is not None and shard.is_serving else None

    def check_end(self, sends: Iterable[Operation]) -> None:
        """Check I37 to I39 on what clients did and saw, once one more reader has read everything.

        ``sends`` are those of producers without transactions.
        """
        ends = self._read_everything()
        history: list[Operation] = [*self.world.history, *transaction_history.sends_of(self.txns), *sends]
        offline = {tp.partition for tp in self.world.tps if self.world.leader_of(tp) is None}
        reads = [each for each in self.world.history if isinstance(each, Read)]
        verdict = transaction_history.transaction_anomalies([*self.txns, *reads, *ends, *self._group_offsets()])
        found = verdict.anomalies or anomalies(history, unreadable=offline)
        if found:
            raise Broken(found[0].name, found[0].sentence)
        self.world.coverage.saw("transactions: writes among each other", verdict.write_cycles)

    def _group_offsets(self) -> list[transaction_history.GroupAt]:
        shard = self._shard(_GROUP_TP)
        assert shard is not None and isinstance(shard.machine, GroupMachine), "looked at once nothing is missing"
        rows = shard.machine.group(GROUP).offset_rows()
        return [transaction_history.GroupAt(GROUP, tp.partition, value.offset) for tp, value in rows]

    def _read_everything(self) -> list[transaction_history.ReadUpTo]:
        now_s, names = self.world.timeline.now_us / 1e6, self.world.names
        ends: list[transaction_history.ReadUpTo] = []
        for tp in self.world.tps:
            leader = self.world.leader_of(tp)
            if leader is None:
                continue
            log, reader = self.world.machines[leader].log(tp), f"final-{tp.partition}"
            self.world.history.append(Seek(consumer=reader, place=RecordPlace(tp.partition, log.root)))
            aborted = log.producers().transactions.state().aborted
            batches = [Batch(header, _NO_BYTES) for header in log.headers]
            codes = dict(zip((header.base_offset for header in log.headers), log.values, strict=True))
            for batch in committed(batches, [(each.producer_id, each.first_offset) for each in aborted]):
                base, code = batch.header.base_offset, codes[batch.header.base_offset]
                assert isinstance(code, int)
                for offset, value in enumerate(names.values(code, batch.header.record_count), base):
                    self.world.history.append(Read(reader, names.place(tp.partition, offset), value, now_s))
            ends.append(transaction_history.ReadUpTo(tp.partition, log.leo))
        return ends
