"""Checks the safety properties of a scenario after every step.

Invariant: a break is reported where it happens, once for each property and node, and never forgotten in the run.
The properties are those of `docs/RELIABILITY.md` (I0 to I17, I25, I27), restated over the logs on disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import PartitionImage
from strandline_sim.scenario.nodes import TP, Actor, Names
from strandline_sim.scenario.transactions import records_of

Content = tuple[int, str]
"""Epoch and value of a record."""

CHECKED = (
    "I0",
    "I1",
    "I2",
    "I3",
    "I4",
    "I5",
    "I6",
    "I7",
    "I8",
    "I9",
    "I10",
    "I11",
    "I16",
    "I17",
    "I19",
    "I20",
    "I21",
    "I22",
    "I23",
    "I25",
    "I27",
)
"""The properties that a scenario can ask about."""


class _Replica(NamedTuple):
    """One node's replica during a check."""

    actor: Actor
    records: dict[int, Content]
    log_start: int
    leo: int
    hw: int
    leader: LeaderReplica | None

    @property
    def name(self) -> str:
        return self.actor.name


class Truth:
    """What was committed and acknowledged so far, and which properties were broken."""

    def __init__(self, names: Names) -> None:
        self._names = names
        # Offset -> the record there that was ever below any leader's HW.
        self.committed: dict[int, Content] = {}
        self._acked: list[tuple[int, str]] = []
        # The offset below which a deletion was answered as complete.
        self._deleted_below = 0
        self._reigns: dict[int, tuple[str, int]] = {}
        # Property -> the first sentence that says how it was broken.
        self.broken: dict[str, str] = {}
        self._reported: set[tuple[str, str]] = set()
        self._last: object = None

    def acked(self, value: str, offset: int, lines: list[str]) -> None:
        """A producer was informed that all in-sync replicas have this record. I17: one offset, one record."""
        for known_offset, known in self._acked:
            if known_offset == offset and known != value:
                self.breaks("I17", "all", f"{value} and {known} were both acked at offset {offset}", lines)
        self._acked.append((offset, value))
        self._last = None

    def deleted(self, low_watermark: int) -> None:
        """An operator was informed that everything below is deleted."""
        self._deleted_below = max(self._deleted_below, low_watermark)
        self._last = None

    def breaks(self, invariant: str, who: str, how: str, lines: list[str]) -> None:
        """Note that a property does not hold, and print it."""
        if (invariant, who) in self._reported:
            return
        self._reported.add((invariant, who))
        self.broken.setdefault(invariant, how)
        lines.append(f"!! {invariant} is broken: {how}")

    def truncating(self, actor: Actor, offset: int, lines: list[str]) -> None:
        """I11: a log is about to lose everything from ``offset`` on."""
        for record in records_of(actor.log, offset):
            if self.committed.get(record.offset) == (record.epoch, record.value):
                how = f"{actor.name} truncates {record}, committed at offset {record.offset}"
                self.breaks("I11", actor.name, how, lines)
                return

    def check(self, actors: Iterable[Actor], partition: PartitionImage | None, lines: list[str]) -> None:
        """Check all replicas, if anything changed since the last check."""
        everybody = list(actors)
        signature = (partition, tuple(_signature(actor) for actor in everybody))
        if signature == self._last or partition is None:
            return
        self._last = signature
        replicas = [_look(actor) for actor in everybody]
        for leader in [r for r in replicas if r.leader is not None]:
            self._commit(leader, lines)
        for invariant, looking in _CHECKS.items():
            for who, how in looking(self, replicas, partition):
                self.breaks(invariant, who, how, lines)

    def _commit(self, leader: _Replica, lines: list[str]) -> None:
        """I10: a committed record stays at its offset."""
        for offset in range(leader.log_start, leader.hw):
            found = leader.records.get(offset)
            known = self.committed.setdefault(offset, found) if found else None
            if found != known:
                how = f"{leader.name} commits {_shown(found)} at offset {offset}, where {_shown(known)} was committed"
                self.breaks("I10", leader.name, how, lines)

    def _one_leader(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for r in replicas:
            if r.leader is None:
                continue
            epoch, reign = r.leader.image.leader_epoch, (r.name, r.actor.life)
            if self._reigns.setdefault(epoch, reign) != reign:
                yield r.name, f"{r.name} leads epoch {epoch}, in which {self._reigns[epoch][0]} led before"

    def _unique(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for a, b in combinations(replicas, 2):
            same = [o for o in a.records.keys() & b.records.keys() if a.records[o][0] == b.records[o][0]]
            fork = _first_difference(a, b, max(a.log_start, b.log_start), max(same, default=-1) + 1)
            if fork is not None:
                epoch = a.records[max(same)][0]
                yield f"{a.name}{b.name}", f"{a.name} and {b.name} agree on epoch {epoch} and differ at offset {fork}"

    def _weak_isr(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for r in replicas:
            # Nothing is claimed about a member that the leader has not counted yet (M64).
            members = set(r.leader.isr.committed) - r.leader.isr.unproven if r.leader else set()
            yield from self._behind(r, [f for f in replicas if f.actor.node_id in members], f"the ISR of {r.name}")

    def _strong_isr(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for r in replicas:
            if r.leader is not None:
                proven = set(partition.isr) - set(partition.unproven)
                yield from self._behind(r, [f for f in replicas if f.actor.node_id in proven], "the committed ISR")

    def _behind(self, leader: _Replica, members: list[_Replica], where: str) -> Iterator[tuple[str, str]]:
        for f in members:
            at = _first_difference(leader, f, max(leader.log_start, f.log_start), leader.hw)
            if at is not None:
                has = _shown(f.records.get(at))
                yield f.name, f"{f.name}, in {where}, has {has} at offset {at}, below the hw of {leader.name}"

    def _complete(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        # An unproven member leads only if it reports the most complete of enough logs: I8 checks that.
        electable = {*partition.isr, *partition.elr} - set(partition.unproven)
        for r in replicas:
            if r.actor.node_id not in electable or not r.actor.is_running:
                continue
            for offset, content in self.committed.items():
                if offset >= r.log_start and r.records.get(offset) != content:
                    has = _shown(r.records.get(offset))
                    yield r.name, f"{r.name} may be elected and has {has} at offset {offset}, not {_shown(content)}"
                    break

    def _superset(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for r in replicas:
            if r.leader is None or r.leader.image.leader_epoch != partition.leader_epoch:
                continue
            # Counted here: a check of a rule must not use that rule.
            if len(r.leader.isr.committed) < r.leader.image.min_isr:
                continue
            uncounted = {*partition.isr, *partition.elr} - r.leader.isr.maximal
            if uncounted:
                yield r.name, f"{r.name} does not count {self._names.shown(sorted(uncounted))}, who may be elected"

    def _leader_in_isr(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        if partition.leader is not None and partition.leader not in partition.isr:
            yield "ctl", f"the leader {self._names.name(partition.leader)} is not in the ISR"

    def _nothing_missing(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for r in replicas:
            if r.leader is None or r.leader.image.leader_epoch != partition.leader_epoch:
                continue
            for offset, value in self._acked:
                if offset >= r.log_start and (offset not in r.records or r.records[offset][1] != value):
                    yield r.name, f"{r.name} leads epoch {partition.leader_epoch} without {value}, acked at {offset}"
                    break

    def _still_deleted(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for r in replicas:
            if r.leader is None or r.leader.image.leader_epoch != partition.leader_epoch:
                continue
            if r.log_start < self._deleted_below:
                below = f"though everything below {self._deleted_below} was deleted"
                yield r.name, f"{r.name} leads epoch {partition.leader_epoch} from log start {r.log_start}, {below}"

    def _matching(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for a, b in combinations([r for r in replicas if r.actor.is_running], 2):
            at = _first_difference(a, b, max(a.log_start, b.log_start), min(a.hw, b.hw))
            if at is not None:
                one, other = _shown(a.records.get(at)), _shown(b.records.get(at))
                yield f"{a.name}{b.name}", f"below both hws {a.name} has {one} and {b.name} {other} at offset {at}"

    def _somewhere(self, replicas: list[_Replica], partition: PartitionImage) -> Iterator[tuple[str, str]]:
        for offset, value in self._acked:
            if not any(offset < r.log_start or r.records.get(offset, (0, ""))[1] == value for r in replicas):
                yield "all", f"{value}, acked at offset {offset}, is in no log"


def _signature(actor: Actor) -> object:
    log = actor.log
    core = actor.core
    leader = core.state.leaders.get(TP) if core else None
    hw = core.state.logs[TP].hw if core and TP in core.state.logs else 0
    last = log.hashes[-1] if log.hashes else 0
    return core is None, hw, log.leo, last, leader.isr if leader else None, leader.image if leader else None


def _look(actor: Actor) -> _Replica:
    log = actor.log
    records = {r.offset: (r.epoch, r.value) for r in records_of(log)}
    core = actor.core
    known = core.state.logs.get(TP) if core else None
    leader = core.state.leaders.get(TP) if core else None
    return _Replica(actor, records, log.log_start, log.leo, known.hw if known else 0, leader)


def _first_difference(a: _Replica, b: _Replica, start: int, end: int) -> int | None:
    return next((o for o in range(start, end) if a.records.get(o) != b.records.get(o)), None)


def _shown(content: Content | None) -> str:
    return "nothing" if content is None else f"{content[1]}@{content[0]}"


_Check = Callable[[Truth, list[_Replica], PartitionImage], Iterator[tuple[str, str]]]

_CHECKS: dict[str, _Check] = {
    "I1": Truth._one_leader,
    "I2": Truth._unique,
    "I3": Truth._weak_isr,
    "I4": Truth._strong_isr,
    "I5": Truth._complete,
    "I6": Truth._superset,
    "I7": Truth._leader_in_isr,
    "I8": Truth._nothing_missing,
    "I9": Truth._matching,
    "I16": Truth._somewhere,
    "I27": Truth._still_deleted,
}
