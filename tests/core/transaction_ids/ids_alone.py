"""A machine of transactional ids without a shard: decisions are applied at once, committed when the test says so.

Markers that it sends wait in `sent` until the test answers them; time stands until moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.core.coordinator.shard_cells import code as code
from tests.core.groups.groups_alone import Topics

from strandline.core.coordinator.machine import Context, Decision, Record, Reports
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Effect
from strandline.core.producer_ids import ProducerIdBlocks
from strandline.core.transactions import messages
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.records import TransactionalId, TransactionalIdKey, TransactionSettings, TxnState
from strandline.core.transactions.reporting import TransactionChange
from strandline.core.types import LeaderEpoch, TopicPartition

ID = "payments"
PLACE = TopicPartition("state-id", 3)
P0, P1, Q0 = (TopicPartition("p-id", 0), TopicPartition("p-id", 1), TopicPartition("q-id", 0))


@dataclass
class IdsAlone:
    """The machine with a log and a clock."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    producer_ids: int = 1_000
    now_ms: int = 1_000_000
    unix_skew_ms: int = 5_000_000
    topics: Topics = field(default_factory=lambda: Topics(p=2, q=1))
    log: list[Record] = field(default_factory=list)
    sent: list[messages.TxnMarker] = field(default_factory=list)
    notes: list[object] = field(default_factory=list)
    """Notes of decisions that are not committed yet."""
    seen: list[TransactionChange] = field(default_factory=list)
    alarms: list[tuple[TopicPartition, str]] = field(default_factory=list)
    holds_commits: bool = False

    def __post_init__(self) -> None:
        self.supply = ProducerIdBlocks()
        if self.producer_ids:
            self.supply.add(100, self.producer_ids)
        self.machine = self.loaded()

    def loaded(self) -> TransactionMachine:
        """A machine that has loaded the log, and serves."""
        machine = TransactionMachine(Reports(PLACE, LeaderEpoch(7)), self.supply, self.settings, self)
        for record in self.log:
            machine.apply(record)
        machine.excuse(self.context)
        return machine

    def fail_over(self) -> None:
        """Another coordinator takes over: markers under way are forgotten, as is what was not committed."""
        self.sent.clear()
        self.notes.clear()
        self.machine = self.loaded()

    def changed(self, change: TransactionChange, now_ms: int) -> None:
        assert now_ms == self.now_ms
        self.seen.append(change)

    def marker_refused(self, marker: messages.TxnMarker, refusal: Refusal, now_ms: int) -> None:
        self.alarms.append((marker.tp, refusal.code.name))

    def ticked(self, ids: Mapping[str, TransactionalId], context: Context) -> None:
        assert ids is self.machine.ids

    @property
    def context(self) -> Context:
        return Context(self.now_ms, self.now_ms + self.unix_skew_ms, LeaderEpoch(7), self.topics)

    def value(self, name: str = ID) -> TransactionalId:
        return self.machine.ids[name]

    @property
    def state(self) -> str:
        return str(self.value().state)

    @property
    def epoch(self) -> int:
        return self.value().identity.producer_epoch

    def take(self, decision: Decision) -> Any:
        """Do what a shard does with a decision; returns its answer."""
        for batch in decision.batches:
            assert batch, "an empty batch"
            for record in batch:
                self.log.append(record)
                self.machine.apply(record)
        if decision.taken is not None:
            self.machine.taken(decision.taken, self.now_ms)
        if decision.committed is not None:
            self.notes.append(decision.committed)
            if not self.holds_commits:
                self.commit()
        self._send(decision.effects)
        return decision.answer

    def commit(self) -> None:
        """All that was decided is committed now."""
        while self.notes:
            self._send(self.machine.committed(self.notes.pop(0), self.context))

    def _send(self, effects: tuple[Effect, ...] | Any) -> None:
        for effect in effects:
            assert (effect.tp, effect.leader_epoch) == (PLACE, 7)
            self.sent += effect.markers

    def ask(self, request: object) -> Any:
        return self.take(self.machine.decide(request, self.context))

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        decisions = self.machine.tick(self.context)
        scopes = [decision.scope for decision in decisions if decision.batches]
        assert len(scopes) == len(set(scopes)), "two decisions of one scope"
        for decision in decisions:
            self.take(decision)

    def answer(self, *tps: TopicPartition, refused: ErrorCode | None = None) -> None:
        """Answer what was sent to these partitions, or to all of them."""
        waiting, self.sent = self.sent, []
        for marker in waiting:
            if tps and marker.tp not in tps:
                self.sent.append(marker)
                continue
            self.hear(marker, refused)

    def hear(self, marker: messages.TxnMarker, refused: ErrorCode | None = None) -> None:
        refusal = None if refused is None else Refusal(refused, "no")
        for decision in self.machine.heard(messages.TxnMarkerAnswer(marker, refusal), self.context):
            self.take(decision)

    def init(self, given: tuple[int, int] | None = None, *, name: str = ID, timeout_ms: int | None = None) -> Any:
        """Ask for an identity; (producer id, epoch), or the refusal."""
        identity = None if given is None else messages.ProducerIdentity(*given)
        answer = self.ask(messages.InitProducerId(transactional_id=name, timeout_ms=timeout_ms, given=identity))
        return tuple(answer.identity) if isinstance(answer, messages.ProducerIdGiven) else answer

    def add(self, *tps: TopicPartition, by: tuple[int, int], verify_only: bool = False, name: str = ID) -> Any:
        identity = messages.ProducerIdentity(*by)
        return self.ask(
            messages.AddPartitions(transactional_id=name, identity=identity, partitions=tps, verify_only=verify_only)
        )

    def end(self, by: tuple[int, int], *, commit: bool = True, name: str = ID) -> Any:
        """End a transaction; the next identity, or the refusal."""
        answer = self.ask(
            messages.EndTxn(transactional_id=name, identity=messages.ProducerIdentity(*by), committed=commit)
        )
        return tuple(answer.identity) if isinstance(answer, messages.TxnEnded) else answer

    def begun(self, *tps: TopicPartition) -> tuple[int, int]:
        """A producer with an open transaction; its identity."""
        identity = self.init()
        assert isinstance(identity, tuple)
        self.add(*(tps or (P0,)), by=identity)
        return identity

    def describe(self, name: str = ID) -> messages.TransactionDescribed | Refusal:
        answer = self.ask(messages.DescribeTransaction(transactional_id=name))
        assert isinstance(answer, messages.TransactionDescribed | Refusal)
        return answer

    def listed(self, **filters: Any) -> list[str]:
        return [each.transactional_id for each in self.ask(messages.ListTransactions(**filters)).transactions]

    def at(self, epoch: int, state: TxnState = TxnState.EMPTY, producer_id: int = 50, **named: Any) -> tuple[int, int]:
        """Write an id as Kafka's tests begin; its identity."""
        identity = messages.ProducerIdentity(producer_id, epoch)
        named = {"timeout_ms": 60_000, "update_ms": self.context.unix_ms} | named
        value = TransactionalId(identity=identity, state=state, **named)
        self.log.append(Record(TransactionalIdKey(ID), value))
        self.machine = self.loaded()
        return tuple(identity)
