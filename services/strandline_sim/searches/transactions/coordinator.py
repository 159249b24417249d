"""The transactional id as a value, and the steps of its coordinator's production machine.

Invariant: every decision is the machine's. Its decisions are committed at once, so a coordinator that restarts lacks
only what no log keeps: which partitions have answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from strandline.core.coordinator.machine import Context, Decision, Record, Reports, TopicEntry
from strandline.core.errors import Refusal
from strandline.core.transactions import records
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.messages import ProducerIdentity, TxnMarker, TxnMarkerAnswer
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline_sim.searches.transactions.partition import ID, PRODUCER, TOPIC_ID, TPS, Entry

_TIMEOUT_MS = 10
_PLACE = TopicPartition("00000000-0000-4000-8000-000000000002", 0)
_SETTINGS = records.TransactionSettings(timeout_check_ms=1)


class Coordinator(NamedTuple):
    """The coordinator's state of the transactional id, in one leader epoch of its partition."""

    row: records.TransactionalId
    epoch: int = 1
    """The coordinator epoch."""
    done: frozenset[int] = frozenset()
    """The partitions that have answered a marker of the transaction that is being ended."""

    @property
    def is_ending(self) -> bool:
        """Whether a transaction is decided and markers are in transit."""
        return self.row.state in records.PREPARED

    @property
    def missing(self) -> tuple[int, ...]:
        """The partitions to which markers are in transit."""
        if not self.is_ending:
            return ()
        return tuple(tp.partition for tp in self.row.partitions if tp.partition not in self.done)

    @property
    def marker(self) -> Entry:
        """The marker that is written into them."""
        return Entry(self.row.identity.producer_epoch, self.row.commits, self.epoch)


class _Topics:
    """The only topic."""

    version = 1
    _entry = TopicEntry(TOPIC_ID, "t", (frozenset(), frozenset()))

    def by_name(self, name: str) -> TopicEntry | None:
        """The topic, if it has this name."""
        return self._entry if name == self._entry.name else None

    def by_id(self, topic_id: str) -> TopicEntry | None:
        """The topic, if it has this id."""
        return self._entry if topic_id == TOPIC_ID else None

    def names(self) -> Iterable[str]:
        """Its name."""
        return (self._entry.name,)


class _NoMoreIds:
    """No epoch comes near its end, so no second producer id is needed."""

    def next_id(self) -> int | None:
        """Never gives an id."""
        return None

    def take(self, producer_id: int) -> None:
        """Never called."""
        raise AssertionError(f"producer id {producer_id} was never given")


_TOPICS = _Topics()


def started() -> Coordinator:
    """The producer has its identity, and nothing was sent with it."""
    return Coordinator(
        records.TransactionalId(identity=ProducerIdentity(PRODUCER, 0), timeout_ms=_TIMEOUT_MS, update_ms=0)
    )


@cache
def asked(coordinator: Coordinator, request: object) -> tuple[Coordinator, object]:
    """A request arrives; returns its answer."""
    decision = _machine(coordinator).decide(request, _context(coordinator))
    return _after(coordinator, decision), decision.answer


@cache
def timed_out(coordinator: Coordinator) -> Coordinator:
    """The open transaction times out."""
    assert coordinator.row.state is records.TxnState.ONGOING, "no transaction is open"
    for decision in _machine(coordinator).tick(_context(coordinator, _TIMEOUT_MS + 1)):
        coordinator = _after(coordinator, decision)
    return coordinator


@cache
def heard(coordinator: Coordinator, partition: int, marker: Entry, refusal: Refusal | None) -> Coordinator:
    """A partition answered a marker."""
    assert marker.commits is not None, "a record is not a marker"
    machine = _machine(coordinator)
    sent = TxnMarker(ID, ProducerIdentity(PRODUCER, marker.epoch), marker.commits, TPS[partition])
    if marker.coordinator_epoch != coordinator.epoch:
        # Sent by a coordinator that no longer exists.
        return coordinator
    is_awaited = marker == coordinator.marker and coordinator.is_ending
    decisions = machine.heard(TxnMarkerAnswer(sent, refusal), _context(coordinator))
    if refusal is None and is_awaited:
        coordinator = coordinator._replace(done=coordinator.done | {partition})
    for decision in decisions:
        coordinator = _after(coordinator, decision)
    return coordinator


def started_again(coordinator: Coordinator) -> Coordinator:
    """Another node coordinates, with everything that was written."""
    return coordinator._replace(epoch=coordinator.epoch + 1, done=frozenset())


CACHED: tuple[Callable[[], None], ...] = tuple(each.cache_clear for each in (asked, timed_out, heard))
"""Clear the cached decisions; a test that changes a rule calls them."""


def _context(coordinator: Coordinator, now_ms: int = 0) -> Context:
    return Context(now_ms, 0, LeaderEpoch(coordinator.epoch), _TOPICS)


def _machine(coordinator: Coordinator) -> TransactionMachine:
    machine = TransactionMachine(Reports(_PLACE, LeaderEpoch(coordinator.epoch)), _NoMoreIds(), _SETTINGS)
    machine.apply(Record(records.TransactionalIdKey(ID), coordinator.row))
    machine.excuse(_context(coordinator))
    for partition in coordinator.done:
        machine._markers[ID].written(TPS[partition])
    return machine


def _after(coordinator: Coordinator, decision: Decision) -> Coordinator:
    for batch in decision.batches:
        for record in batch:
            assert isinstance(record.value, records.TransactionalId), "an id is not forgotten here"
            coordinator = Coordinator(record.value, coordinator.epoch)
    return coordinator
