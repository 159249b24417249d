"""Checks whether atomic transactions can have produced what clients did and saw (I37 to I39).

Pure, like `sim.history`, which judges the order of the records in a partition (`sends_of` gives it the sends). Offsets
show in which order transactions wrote (ww), unique values show whose records a transaction read (wr). The end of a
poll shows nothing about later writes, because reads are no part of a transaction. The anomalies have the names of
Adya's thesis (1999) where it has one.

Invariant: a transaction whose outcome no client knows still has one outcome: what was read of it decides, and
everything else must agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from strandline_sim.checks.history import Anomaly, Read, RecordPlace, RecordValue, Send, SendOutcome

# ---- cycles
# Finds the nodes of a directed graph that lie on cycles.
#
# Source: R. Tarjan, Depth-first search and linear graph algorithms (1972), without recursion.


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The largest sets of nodes in which each node reaches every node of the set, itself included; all sorted.

    ``edges`` has the nodes that each node points to. A node that points to itself is a set of one.
    """
    search = _Search({node: sorted(set(edges[node])) for node in sorted(edges)})
    return sorted([sorted(each) for each in search.components() if len(each) > 1 or each[0] in edges.get(each[0], ())])


class _Search:
    """One depth-first walk over all nodes."""

    def __init__(self, edges: Mapping[str, list[str]]) -> None:
        self._edges = edges
        self._number: dict[str, int] = {}
        self._lowest: dict[str, int] = {}
        self._open: dict[str, None] = {}
        """The nodes whose component is not complete, in the order in which they were met."""

    def components(self) -> Iterator[list[str]]:
        """The strongly connected components."""
        for root in self._edges:
            if root not in self._number:
                yield from self._from(root)

    def _from(self, root: str) -> Iterator[list[str]]:
        way = [(root, self._meet(root))]
        while way:
            node, rest = way[-1]
            onward = next(rest, None)
            if onward is None:
                way.pop()
                if way:
                    self._lowest[way[-1][0]] = min(self._lowest[way[-1][0]], self._lowest[node])
                if self._lowest[node] == self._number[node]:
                    yield self._close(node)
            elif onward not in self._number:
                way.append((onward, self._meet(onward)))
            elif onward in self._open:
                self._lowest[node] = min(self._lowest[node], self._number[onward])

    def _meet(self, node: str) -> Iterator[str]:
        self._number[node] = self._lowest[node] = len(self._number)
        self._open[node] = None
        return iter(self._edges.get(node, ()))

    def _close(self, node: str) -> list[str]:
        component: list[str] = []
        while not component or component[-1] != node:
            component.append(self._open.popitem()[0])
        return component


class TxnOutcome(StrEnum):
    """The outcome of a transaction, as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Aborted, or its commit was never asked for: nothing of it may ever be read."""
    UNKNOWN = "unknown"
    """Its commit was asked for, but no client knows whether it took effect."""


class Polled(NamedTuple):
    """A record that a group's reader gave to a transaction as its input."""

    group: str
    place: RecordPlace
    value: RecordValue


class Moved(NamedTuple):
    """The offset that a transaction commits for a group: the next one to read."""

    group: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn:
    """One transaction, as its process saw it."""

    name: str
    """Unique in a history."""
    transactional_id: str
    sends: tuple[Send, ...] = ()
    """The sends in order; a commit is asked for only when all are acknowledged."""
    polls: tuple[Polled, ...] = ()
    offsets: tuple[Moved, ...] = ()
    outcome: TxnOutcome


@dataclass(frozen=True, slots=True)
class ReadUpTo:
    """A reader has read everything committed in a partition below this offset."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class GroupAt:
    """The offset that a group has committed for a partition at the end."""

    group: str
    partition: int
    offset: int


TxnOperation = Txn | Read | ReadUpTo | GroupAt


class Verdict(NamedTuple):
    """The anomalies, and how often transactions of different producers interleaved their writes.

    The latter is allowed, because Kafka's transactions promise no isolation of writes.
    """

    anomalies: list[Anomaly]
    write_cycles: int


class _History:
    """The operations by kind, and which transactions took effect."""

    def __init__(self, operations: Iterable[TxnOperation]) -> None:
        self.txns: list[Txn] = []
        self.seen: dict[RecordValue, set[RecordPlace]] = defaultdict(set)
        self.read_up_to: dict[int, int] = defaultdict(int)
        self.groups: dict[tuple[str, int], int] = {}
        for operation in operations:
            self._take(operation)
        self.writer = {send.value: txn.name for txn in self.txns for send in txn.sends}
        self.took_effect = {txn.name: self._took_effect(txn) for txn in self.txns}
        self.committed = [txn for txn in self.txns if self.took_effect[txn.name]]

    def _take(self, operation: TxnOperation) -> None:
        match operation:
            case Txn():
                self.txns.append(operation)
                for poll in operation.polls:
                    self.seen[poll.value].add(poll.place)
            case Read():
                self.seen[operation.value].add(operation.place)
            case ReadUpTo(partition, offset):
                self.read_up_to[partition] = max(offset, self.read_up_to[partition])
            case GroupAt(group, partition, offset):
                self.groups[group, partition] = offset

    def is_passed(self, send: Send) -> bool:
        """Whether a record would have been read if it were committed."""
        return send.partition in self.read_up_to and (send.offset or 0) < self.read_up_to[send.partition]

    def _took_effect(self, txn: Txn) -> bool | None:
        """Whether a transaction took effect; None if neither its client nor a reader knows."""
        if txn.outcome is not TxnOutcome.UNKNOWN:
            return txn.outcome is TxnOutcome.COMMITTED
        if any(send.value in self.seen for send in txn.sends):
            return True
        return False if any(self.is_passed(send) for send in txn.sends) else None

    def places(self, txn: Txn) -> Iterator[RecordPlace]:
        """The known places of the records of a transaction."""
        for send in txn.sends:
            yield from self.seen.get(send.value, ())
            if send.place is not None:
                yield send.place


def transaction_anomalies(operations: Iterable[TxnOperation]) -> Verdict:
    """All anomalies of a history of clients that read committed records only."""
    history = _History(operations)
    return Verdict([anomaly for rule in _RULES for anomaly in rule(history)], _write_cycles(history))


def sends_of(txns: Iterable[Txn]) -> Iterator[Send]:
    """The sends of transactions for `sim.history`: each with the outcome of its transaction."""
    for txn in txns:
        for send in txn.sends:
            if txn.outcome is TxnOutcome.COMMITTED:
                yield send
            elif txn.outcome is TxnOutcome.ABORTED:
                yield replace(send, outcome=SendOutcome.DEFINITE, offset=None)
            else:
                yield replace(send, outcome=SendOutcome.INDEFINITE, offset=None)


def _aborted_read(history: _History) -> Iterator[Anomaly]:
    """G1a: a record of an aborted transaction was given to a reader of committed records."""
    for txn in history.txns:
        if txn.outcome is TxnOutcome.ABORTED:
            for send in txn.sends:
                if send.value in history.seen:
                    where = sorted(history.seen[send.value])
                    yield Anomaly("G1a", f"{_named(send.value)} of {txn.name}, which was aborted, was read at {where}")


def _incomplete(history: _History) -> Iterator[Anomaly]:
    """G1b: a part of a committed transaction never becomes readable; it is lost if no part does."""
    for txn in history.committed:
        missing = [send for send in txn.sends if send.value not in history.seen and history.is_passed(send)]
        if not missing:
            continue
        named = [_named(send.value) for send in missing]
        if any(send.value in history.seen for send in txn.sends):
            yield Anomaly("torn", f"of {txn.name} other records were read, and never {named}")
        else:
            yield Anomaly("lost", f"{txn.name} was committed, and {named} was never read")


def _duplicate(history: _History) -> Iterator[Anomaly]:
    """A record was seen at two places, or an input has the outputs of two transactions (I39)."""
    for txn in history.txns:
        for send in txn.sends:
            acknowledged = {send.place} if send.place is not None else set()
            places = history.seen.get(send.value, set())
            if places and len(places | acknowledged) > 1:
                yield Anomaly("duplicate", f"{_named(send.value)} lies at {sorted(places | acknowledged)}")
    first: dict[tuple[str, RecordPlace], str] = {}
    for txn in history.committed:
        for group, place in {(poll.group, poll.place): None for poll in txn.polls}:
            before = first.setdefault((group, place), txn.name)
            if before != txn.name:
                yield Anomaly("duplicate", f"{group} has the output of {before} and of {txn.name} for {place}")


def _lost_offset(history: _History) -> Iterator[Anomaly]:
    """A transaction's output took effect without its offsets, or the offsets without the output (I39)."""
    for txn in history.committed:
        for group, partition, offset in txn.offsets:
            at = history.groups.get((group, partition))
            if at is not None and at < offset:
                yield Anomaly("lost-offset", f"{txn.name} moved {group} to {partition}/{offset}, it is at {at}")
    done: dict[str, set[RecordPlace]] = defaultdict(set)
    for txn in history.txns:
        if history.took_effect[txn.name] is not False:
            for poll in txn.polls:
                done[poll.group].add(poll.place)
    inputs = sorted({place for places in history.seen.values() for place in places})
    for (group, partition), at in history.groups.items():
        for place in inputs:
            if place.partition == partition and place.offset < at and place not in done[group]:
                yield Anomaly("lost-offset", f"{group} is at {partition}/{at}, and no output belongs to {place}")


def _circular_reads(history: _History) -> Iterator[Anomaly]:
    """G1c: a committed transaction read something that depends on its own writes."""
    names = {txn.name for txn in history.committed}
    edges: dict[str, set[str]] = defaultdict(set)
    for txn in history.committed:
        for poll in txn.polls:
            writer = history.writer.get(poll.value)
            if writer in names:
                edges[writer].add(txn.name)
    for cycle in cycles(edges):
        yield Anomaly("G1c", f"{cycle} each read what another of them wrote")


def _mixed_writes(history: _History) -> Iterator[Anomaly]:
    """G0 within one transactional id: its transactions must come one after the other, in the same order everywhere."""
    of: dict[str, list[Txn]] = defaultdict(list)
    for txn in history.txns:
        of[txn.transactional_id].append(txn)
    for transactional_id, txns in of.items():
        for cycle in cycles(_write_order(history, txns)):
            yield Anomaly("G0", f"the writes of {cycle}, all of {transactional_id}, lie among each other")


def _write_order(history: _History, txns: Iterable[Txn]) -> dict[str, set[str]]:
    """For each transaction those that wrote directly after it in some partition."""
    written = sorted({(place, txn.name) for txn in txns for place in history.places(txn)})
    edges: dict[str, set[str]] = defaultdict(set)
    for (before, one), (after, other) in pairwise(written):
        if one != other and before.partition == after.partition:
            edges[one].add(other)
    return edges


def _write_cycles(history: _History) -> int:
    return len(cycles(_write_order(history, history.committed)))


_RULES: tuple[Callable[[_History], Iterator[Anomaly]], ...] = (
    _aborted_read,
    _incomplete,
    _duplicate,
    _lost_offset,
    _circular_reads,
    _mixed_writes,
)


def _named(value: RecordValue) -> str:
    return f"{value.client}/{value.seq}"
