"""Every step that the searched world can take next, with its name.

Invariant: that something happens is a free choice here; what follows from it is the controller's (`control`) or one
replica's (`world`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from strandline_sim.searches import breadth_first
from strandline_sim.searches.elections import control
from strandline_sim.searches.elections.world import (
    NO_REPORTS,
    NODES,
    NONE,
    ElectionState,
    LeaderMemory,
    Move,
    Partition,
    Replica,
    Report,
    Sent,
    Status,
    appended,
    canonical,
    copies,
    fetched,
    is_stuck,
    lost_committed,
    raised,
    start,
    too_few_copies,
    took_office,
    with_counted,
    with_replica,
    without_strays,
)

Step = tuple[str, ElectionState]


def successors(state: ElectionState, bounds: ElectionBounds) -> Iterator[Step]:
    """Every possible step."""
    for name, after in _leading(state, bounds):
        for each in copies(state, after):
            yield name, each
    for node in NODES:
        match state.replicas[node].status:
            case Status.ACTIVE:
                yield f"node {node} dies", _left(state, node, Status.DEAD)
                yield from _suspecting(state, node)
                yield from _reporting(state, node)
            case Status.DEAD | Status.GONE:
                yield from _returning(state, node)
    yield from _ending(state)
    yield from _reassigning(state, bounds)
    if state.reports != NO_REPORTS:
        yield "the controller restarts", state._replace(reports=NO_REPORTS)


def _leading(state: ElectionState, bounds: ElectionBounds) -> Iterator[Step]:
    partition, reign = state.partition, state.reign
    leader = partition.leader
    if leader == NONE or state.replicas[leader].status is not Status.ACTIVE:
        return
    if reign is None:
        yield f"node {leader} takes office", took_office(state)
        return
    if state.appends < bounds.records:
        yield f"node {leader} appends", appended(state)
    for node in partition.move.replicas:
        if node != leader and state.replicas[node].status is Status.ACTIVE:
            for after in fetched(state, node):
                yield f"node {node} fetches", after
    if reign.sent is not None:
        yield from _answering(state, reign, reign.sent)
        return
    leo = len(state.replicas[leader].log)
    counted = [n for n in NODES if n != leader and n in partition.move.replicas and control.is_counted(reign, n, leo)]
    known = {leader, *counted, *(n for n in partition.isr if n not in partition.unproven)}
    for members in _proposals(partition, counted):
        proven = frozenset(known & set(members))
        for decided in control.altered(partition, _statuses(state), members, proven):
            if decided != partition:
                yield f"node {leader} proposes ISR {list(members)}", _decided(state, decided)
        if state.lost_answers < bounds.lost_answers and members != partition.isr:
            sent = reign._replace(sent=Sent(tuple(sorted(members)), proven, partition.isr))
            waiting = state._replace(reign=sent, lost_answers=state.lost_answers + 1)
            yield f"node {leader} proposes ISR {list(members)}, unanswered", waiting


def _answering(state: ElectionState, reign: LeaderMemory, sent: Sent) -> Iterator[Step]:
    """A proposal whose answer is lost arrives; its sender learns what was decided. An outdated one may never arrive."""
    partition = state.partition
    if not sent.is_taken:
        decided = control.altered(partition, _statuses(state), sent.members, sent.proven, is_outdated=sent.is_outdated)
        taken = state._replace(reign=reign._replace(sent=sent._replace(is_taken=True)))
        yield from _each(f"the proposal of ISR {list(sent.members)} arrives", taken, decided or (partition,))
    if sent.is_taken or sent.is_outdated:
        knowing = state._replace(reign=reign._replace(sent=None))
        yield f"node {partition.leader} learns what was decided", raised(knowing)


def _reassigning(state: ElectionState, bounds: ElectionBounds) -> Iterator[Step]:
    """Targets are submitted, a running reassignment is cancelled, and min.insync.replicas is raised once."""
    if bounds.move is None:
        return
    partition, known = state.partition, (_statuses(state), state.reports)
    for size in bounds.target_sizes:
        for target in map(frozenset, combinations(NODES, size)):
            if target != partition.move.replicas - partition.move.removing:
                after = control.reassigned(partition, *known, target)
                yield from _each(f"a reassignment to {sorted(target)}", state, after)
    if partition.move.original:
        yield from _each("a cancel", state, control.reassigned(partition, *known, None))
    if partition.move.wanted_min_isr < bounds.raised_min_isr:
        after = control.configured(partition, *known, bounds.raised_min_isr)
        yield from _each(f"min.insync.replicas becomes {bounds.raised_min_isr}", state, after)


def _proposals(partition: Partition, counted: list[int]) -> Iterator[tuple[int, ...]]:
    """Proposals of the ISR as it is, which proves the counted members; without one member; with one more."""
    isr = partition.isr
    yield isr
    for node in isr:
        if node != partition.leader:
            yield tuple(n for n in isr if n != node)
    for node in counted:
        if node not in isr:
            yield (*isr, node)


def _suspecting(state: ElectionState, node: int) -> Iterator[Step]:
    for after in control.suspected(state.partition, _statuses(state), state.reports, node):
        if after != state.partition:
            yield f"the session of node {node} ends, and begins again", _decided(state, after)


def _ending(state: ElectionState) -> Iterator[Step]:
    """Sessions of dead nodes end, in any combination."""
    dead = [n for n in NODES if state.replicas[n].status is Status.DEAD]
    for count in range(1, len(dead) + 1):
        for due in combinations(dead, count):
            outcomes, ending = control.ended(state.partition, _statuses(state), state.reports, due)
            ended = state
            for node in ending:
                ended = _left(ended, node, Status.GONE)
            if ending:
                yield from _each(f"the sessions of {sorted(ending)} end", ended, outcomes)


def _reporting(state: ElectionState, node: int) -> Iterator[Step]:
    replica = state.replicas[node]
    report = Report(replica.log, replica.reconciled)
    if state.partition.leader == NONE and state.reports[node] != report:
        outcomes = control.reported(state.partition, _statuses(state), state.reports, node, report)
        reports = (*state.reports[:node], report, *state.reports[node + 1 :])
        yield from _each(f"node {node} reports its log", state._replace(reports=reports), outcomes)


def _returning(state: ElectionState, node: int) -> Iterator[Step]:
    """A node restarts with what it had, or once in a history with less, which it notices or not."""
    replica = state.replicas[node]
    if node not in state.partition.move.replicas:
        # What it had is a stray (C78).
        replica = replica._replace(log=(), reconciled=0)
    yield from _returned(state, node, replica, "")
    if state.has_lost:
        return
    losing = state._replace(has_lost=True, backup=None)
    for end in range(len(replica.log)):
        shorter = replica._replace(log=replica.log[:end])
        yield from _returned(losing, node, shorter, f", without what it had from offset {end} on")
    # A node that knows of its loss is a member of nothing: the rest of its log no longer matters.
    yield from _returned(losing, node, replica._replace(log=()), ", and knows that it lost records", unclean=True)
    if state.backup is not None and state.backup.node == node:
        _, log, reconciled, is_current = state.backup
        earlier = replica._replace(log=log, reconciled=reconciled)
        yield from _returned(losing, node, earlier, ", with an earlier state of its directory", is_known=is_current)


def _returned(
    state: ElectionState, node: int, replica: Replica, how: str, *, is_known: bool = True, unclean: bool = False
) -> Iterator[Step]:
    outcomes = control.returned(
        state.partition, _statuses(state), state.reports, node, is_known=is_known, unclean=unclean
    )
    back = with_replica(state, node, replica._replace(status=Status.ACTIVE))
    if back.reign is not None:
        counted = back.reign.counted[node]._replace(by_present_process=False)
        back = back._replace(reign=with_counted(back.reign, node, counted))
    report = back.reports[node]
    if report is not None:
        back = back._replace(
            reports=(*back.reports[:node], report._replace(is_current=False), *back.reports[node + 1 :])
        )
    if back.backup is not None and back.backup.node == node:
        back = back._replace(backup=back.backup._replace(is_current=False))
    for name, after in _each(f"node {node} returns{how}", back, outcomes):
        for each in copies(state, after, of_an_earlier_process=node):
            yield name, each


def _left(state: ElectionState, node: int, status: Status) -> ElectionState:
    reign = None if node == state.partition.leader else state.reign
    return with_replica(state, node, state.replicas[node]._replace(status=status))._replace(reign=reign)


def _each(name: str, state: ElectionState, outcomes: Iterable[Partition]) -> Iterator[Step]:
    for after in outcomes:
        yield name, _decided(state, after)


def _decided(state: ElectionState, after: Partition) -> ElectionState:
    """The controller's decision reaches all but a leader that waits for an answer; a new leader epoch ends a reign and
    all reports."""
    if not after.move.fault and too_few_copies(state, after):
        after = after._replace(move=after.move._replace(fault="too few replicas hold what was committed"))
    reign = state.reign
    if after.leader_epoch != state.partition.leader_epoch:
        state = state._replace(reign=None, reports=NO_REPORTS)
    elif reign is not None and reign.sent is not None and after != state.partition:
        state = state._replace(reign=reign._replace(sent=reign.sent._replace(is_outdated=True)))
    return raised(without_strays(state, state._replace(partition=after)))


def _statuses(state: ElectionState) -> tuple[Status, ...]:
    return tuple(replica.status for replica in state.replicas)


# ---- search
# The search of elections after losses: states that differ only in the numbers of their replicas are one.


@dataclass(frozen=True, slots=True)
class ElectionBounds:
    """The size of the searched world: three nodes and these bounds."""

    records: int = 2
    """Appends in all."""
    max_leader_epoch: int = 2
    """Leader epochs 0 to this one; an epoch without a leader counts, too."""
    move: Move | None = None
    """The first replicas, which reassignments change, without a loss; None for three, min ISR 2, and one loss."""
    target_sizes: tuple[int, ...] = (2,)
    """The allowed numbers of replicas of a target."""
    raised_min_isr: int = 0
    """The value to which min.insync.replicas may change; 0 for no change."""
    lost_answers: int = 0
    """How often the controller's answer to a proposal is lost, or the proposal late."""

    def __str__(self) -> str:
        world = f"{self.records} records, epochs 0..{self.max_leader_epoch}"
        if self.move is None:
            return f"3 replicas, {world}, one loss"
        replicas, min_isr = len(self.move.replicas), self.move.min_isr
        answers = f", {self.lost_answers} lost answers" if self.lost_answers else ""
        raised = f" to {self.raised_min_isr}" if self.raised_min_isr else ""
        sizes = " or ".join(map(str, self.target_sizes))
        return f"{replicas} replicas of 3 nodes, targets of {sizes}, min ISR {min_isr}{raised}, {world}{answers}"


def moving(
    records: int,
    max_leader_epoch: int,
    replicas: int,
    target_sizes: tuple[int, ...],
    min_isr: int,
    *,
    raised_min_isr: int = 0,
    lost_answers: int = 0,
) -> ElectionBounds:
    """Bounds of a search of reassignments; ``min_isr`` is the topic's setting."""
    nodes = frozenset(range(replicas))
    move = Move(nodes, settled=nodes, min_isr=min(min_isr, replicas), wanted_min_isr=min_isr)
    return ElectionBounds(records, max_leader_epoch, move, target_sizes, raised_min_isr, lost_answers)


Result = breadth_first.Result[ElectionState, tuple[str, ElectionState]]
"""What a search found; a step has the state after it."""


def search(bounds: ElectionBounds, **limits: Any) -> Result:
    """Search until P1 is broken, all nodes together cannot elect, or nothing is left (`breadth_first.search`)."""
    control.forget()
    return breadth_first.search(_Elections(bounds), **limits)


class _Elections(breadth_first.Model[ElectionState, tuple[str, ElectionState], ElectionState]):
    """The search of states up to the numbers of the replicas."""

    def __init__(self, bounds: ElectionBounds) -> None:
        self.bounds: ElectionBounds = bounds

    def start(self) -> ElectionState:
        return start(self.bounds.move)

    def successors(self, world: ElectionState) -> Iterator[tuple[tuple[str, ElectionState], ElectionState]]:
        for name, after in successors(world, self.bounds):
            if after.partition.leader_epoch <= self.bounds.max_leader_epoch:
                yield (name, after), after

    def key(self, world: ElectionState) -> ElectionState:
        return canonical(world)

    def world(self, key: ElectionState) -> ElectionState:
        return key

    def check(self, world: ElectionState) -> None:
        """Check P1, I25, and that replicas that have all returned can elect."""
        assert not world.partition.move.fault, world.partition.move.fault
        assert not lost_committed(world), "the leader lacks a committed record"
        assert not is_stuck(world), "all replicas reported and none leads"
