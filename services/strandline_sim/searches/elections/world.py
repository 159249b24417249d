"""The states of the searched world, and the steps of the replicas between two decisions of the controller.

Invariant: a state is a value; names that do not matter for what can follow (partition epochs, node epochs, ids of
processes) are not part of it, and replicas that only differ in their number are one (`canonical`). A record is named by
its leader epoch and its place in the log, as in every log (I2).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NODES = (0, 1, 2)
ALL = frozenset(NODES)
MIN_ISR = 2
NONE = -1

Log = tuple[int, ...]
"""The leader epoch of each record."""


class Status(IntEnum):
    """A node's process, and its session at the controller."""

    ACTIVE = 0
    DEAD = 1
    """Not running; its session has not ended yet."""
    GONE = 2
    """Not running, and without a session."""


class Replica(NamedTuple):
    """One node: its directory, and whether it runs."""

    log: Log
    reconciled: int
    """Its reconciled epoch: the last leader epoch in which its log led or passed the divergence check (M66)."""
    status: Status


class Move(NamedTuple):
    """The nodes that are replicas, and their changes by a reassignment; orders are free, so these are sets."""

    replicas: frozenset[int] = ALL
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()
    original: frozenset[int] = frozenset()
    """The original replicas as stored; empty while no reassignment runs."""
    settled: frozenset[int] = ALL
    """The replicas when last no reassignment ran; remembered here, not by the controller."""
    min_isr: int = MIN_ISR
    wanted_min_isr: int = MIN_ISR
    """The topic's setting."""
    fault: str = ""
    """The violation of I25 by the decision that led here."""


class Partition(NamedTuple):
    """The partition as the controller has committed it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    unproven: tuple[int, ...]
    move: Move


class Counted(NamedTuple):
    """A leader's knowledge of one follower in its epoch."""

    leo: int = NONE
    by_present_process: bool = False


class Sent(NamedTuple):
    """A proposed ISR whose sender has not received an answer from the controller."""

    members: tuple[int, ...]
    proven: frozenset[int]
    believed: tuple[int, ...]
    """The committed ISR as the leader knows it."""
    is_taken: bool = False
    """Whether the controller has decided on it."""
    is_outdated: bool = False
    """Whether the partition has changed since."""


class LeaderMemory(NamedTuple):
    """The state that only the leader has, and loses with its process."""

    epoch_start: int
    high_watermark: int
    counted: tuple[Counted, ...]
    sent: Sent | None = None

    def waited_for(self, isr: tuple[int, ...]) -> frozenset[int]:
        """The nodes for which the HW waits: the ISR, or the maximal ISR while a proposal is unanswered (M16)."""
        return frozenset(isr if self.sent is None else (*self.sent.believed, *self.sent.members))


class Report(NamedTuple):
    """A reported log; ``is_current``: by the process that runs now."""

    log: Log
    reconciled: int
    is_current: bool = True


class Backup(NamedTuple):
    """An earlier state of one directory; a copy that equals the directory counts as none."""

    node: int
    log: Log
    reconciled: int
    is_current: bool
    """Whether it knows the process that registered last (M67)."""


class ElectionState(NamedTuple):
    """The world between two steps."""

    partition: Partition
    reign: LeaderMemory | None
    """None if there is no leader, it has not taken office, or its process has ended."""
    replicas: tuple[Replica, ...]
    reports: tuple[Report | None, ...]
    committed: Log
    """The longest log prefix that was ever below the high watermark of a leader."""
    appends: int
    """Appends so far."""
    backup: Backup | None
    has_lost: bool
    lost_answers: int = 0
    """Lost answers of the controller to proposals, so far."""


NO_REPORTS: tuple[Report | None, ...] = tuple(None for _ in NODES)
UNHEARD = tuple(Counted() for _ in NODES)


def start(move: Move | None = None) -> ElectionState:
    """Node 0 leads all replicas; nothing was written. With a reassignment (``move``) no record is ever lost."""
    move = move or Move()
    return ElectionState(
        Partition(0, 0, tuple(sorted(move.replicas)), (), (), move),
        LeaderMemory(0, 0, UNHEARD),
        tuple(Replica((), 0, Status.ACTIVE) for _ in NODES),
        NO_REPORTS,
        (),
        0,
        None,
        move != Move(),
    )


def with_replica(state: ElectionState, node: int, replica: Replica) -> ElectionState:
    """The state with one node changed."""
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:node], replica, *replicas[node + 1 :]))


def with_counted(reign: LeaderMemory, node: int, counted: Counted) -> LeaderMemory:
    """The reign with one follower heard."""
    all_counted = reign.counted
    return reign._replace(counted=(*all_counted[:node], counted, *all_counted[node + 1 :]))


def took_office(state: ElectionState) -> ElectionState:
    """The elected node begins to lead: its log is now that of the epoch, which it records first (M66)."""
    partition = state.partition
    leader = state.replicas[partition.leader]
    state = with_replica(state, partition.leader, leader._replace(reconciled=partition.leader_epoch))
    return state._replace(reign=LeaderMemory(len(leader.log), 0, UNHEARD))


def appended(state: ElectionState) -> ElectionState:
    """The leader appends one record."""
    node = state.partition.leader
    leader = state.replicas[node]
    longer = leader._replace(log=(*leader.log, state.partition.leader_epoch))
    return raised(with_replica(state, node, longer)._replace(appends=state.appends + 1))


def fetched(state: ElectionState, node: int) -> list[ElectionState]:
    """The possible results of a follower's fetch: cut, counted at its offset, with any number of existing records."""
    assert state.reign is not None
    follower, leader = state.replicas[node], state.replicas[state.partition.leader]
    at = _agreement(follower.log, leader.log)
    counting = state._replace(reign=with_counted(state.reign, node, Counted(at, True)))
    found = []
    for end in range(at, len(leader.log) + 1):
        fetching = follower._replace(log=leader.log[:end], reconciled=state.partition.leader_epoch)
        found.append(raised(with_replica(counting, node, fetching)))
    return found


def _agreement(one: Log, other: Log) -> int:
    shared = min(len(one), len(other))
    return next((offset for offset in range(shared) if one[offset] != other[offset]), shared)


def raised(state: ElectionState) -> ElectionState:
    """The leader's high watermark moves as far as its ISR was counted, and everything below it is committed (M18)."""
    partition, reign = state.partition, state.reign
    if reign is None:
        return state
    if len(partition.isr if reign.sent is None else reign.sent.believed) < partition.move.min_isr:
        return state
    log = state.replicas[partition.leader].log
    waited_for = reign.waited_for(partition.isr)
    high_watermark = min(len(log) if n == partition.leader else reign.counted[n].leo for n in waited_for)
    if high_watermark <= reign.high_watermark:
        return state
    committed = max(state.committed, log[:high_watermark], key=len)
    return state._replace(reign=reign._replace(high_watermark=high_watermark), committed=committed)


def copies(before: ElectionState, after: ElectionState, *, of_an_earlier_process: int = NONE) -> list[ElectionState]:
    """``after``, and a variant for each directory that it changed, with a copy of the directory ``before``.

    ``of_an_earlier_process`` is the node whose new process registered in this step.
    """
    if before.backup is not None or after.has_lost:
        return [after]
    found = [after]
    for node in NODES:
        log, reconciled, _ = before.replicas[node]
        is_earlier = node == of_an_earlier_process
        if is_earlier or (log, reconciled) != after.replicas[node][:2]:
            found.append(after._replace(backup=Backup(node, log, reconciled, not is_earlier)))
    return found


def lost_committed(state: ElectionState) -> bool:
    """Whether a running leader lacks a committed record (P1)."""
    leader = state.partition.leader
    if leader == NONE or state.replicas[leader].status is not Status.ACTIVE:
        return False
    return state.replicas[leader].log[: len(state.committed)] != state.committed


def is_stuck(state: ElectionState) -> bool:
    """Whether all nodes run and have reported, one of them is a member, and still none leads."""
    partition = state.partition
    if partition.leader != NONE or not (partition.isr or partition.elr):
        return False
    reports = [state.reports[n] for n in partition.move.replicas]
    return all(state.replicas[n].status is Status.ACTIVE for n in partition.move.replicas) and all(
        report is not None and report.is_current for report in reports
    )


def too_few_copies(before: ElectionState, after: Partition) -> bool:
    """Whether a reassignment ends here with a committed record on fewer replicas than I25 asks for."""
    was, now = before.partition.move, after.move
    if now.original or now.replicas == was.settled:
        return False
    end = len(before.committed)
    copies = [node for node in now.replicas if before.replicas[node].log[:end] == before.committed]
    return len(copies) < min(now.min_isr, len(now.replicas))


def without_strays(before: ElectionState, after: ElectionState) -> ElectionState:
    """A running node that is no longer a replica drops its log; a stopped one does so when it returns (C78)."""
    for node in before.partition.move.replicas - after.partition.move.replicas:
        if (replica := after.replicas[node]).status is Status.ACTIVE:
            after = with_replica(after, node, replica._replace(log=(), reconciled=0))
    return after


def canonical(state: ElectionState) -> ElectionState:
    """The state that represents all that differ from it only in the numbers of replicas, or in irrelevant parts.

    Every mention of a replica is a fact about that replica alone, so sorting them by all these facts merges exactly
    the states that a change of numbers makes equal.
    """
    state = state if state.reign is None else state._replace(reign=_without_stale(state, state.reign))
    order = sorted(NODES, key=lambda node: _facts(state, node))
    return state if order == list(NODES) else renumbered(state, order)


def _without_stale(state: ElectionState, reign: LeaderMemory) -> LeaderMemory:
    """Forget log ends below the high watermark: they raise nothing and let no follower join."""
    isr = reign.waited_for(state.partition.isr)
    counted = tuple(
        Counted()
        if heard.leo < reign.high_watermark
        or (not heard.by_present_process and (node not in isr or heard.leo == reign.high_watermark))
        or (node not in isr and state.replicas[node].status is not Status.ACTIVE)
        else heard
        for node, heard in enumerate(reign.counted)
    )
    return reign if counted == reign.counted else reign._replace(counted=counted)


def _facts(state: ElectionState, node: int) -> tuple[object, ...]:
    partition, report, backup = state.partition, state.reports[node], state.backup
    sent = None if state.reign is None else state.reign.sent
    return (
        node != partition.leader,
        state.replicas[node],
        node in partition.isr,
        node in partition.elr,
        node in partition.unproven,
        () if report is None else report,
        () if state.reign is None else state.reign.counted[node],
        backup is not None and backup.node == node,
        [node in nodes for nodes in partition.move[:5]],
        [] if sent is None else [node in nodes for nodes in sent[:3]],
    )


def renumbered(state: ElectionState, order: list[int]) -> ElectionState:
    """The state in which replica ``order[n]`` has the number ``n``."""
    new = {old: number for number, old in enumerate(order)}
    leader, epoch, isr, elr, unproven, move = state.partition
    partition = Partition(
        new.get(leader, NONE),
        epoch,
        tuple(sorted(new[n] for n in isr)),
        tuple(sorted(new[n] for n in elr)),
        tuple(sorted(new[n] for n in unproven)),
        _renumbered_move(move, new),
    )
    reign, backup = state.reign, state.backup
    return state._replace(
        partition=partition,
        reign=None if reign is None else _renumbered_reign(reign, new, order),
        replicas=tuple(state.replicas[old] for old in order),
        reports=tuple(state.reports[old] for old in order),
        backup=None if backup is None else backup._replace(node=new[backup.node]),
    )


def _renumbered_move(move: Move, new: dict[int, int]) -> Move:
    replicas, adding, removing, original, settled = (frozenset(new[n] for n in nodes) for nodes in move[:5])
    return Move(replicas, adding, removing, original, settled, *move[5:])


def _renumbered_reign(reign: LeaderMemory, new: dict[int, int], order: list[int]) -> LeaderMemory:
    sent = reign.sent
    if sent is not None:
        members, believed = (tuple(sorted(new[n] for n in nodes)) for nodes in (sent.members, sent.believed))
        sent = sent._replace(members=members, proven=frozenset(new[n] for n in sent.proven), believed=believed)
    return reign._replace(counted=tuple(reign.counted[old] for old in order), sent=sent)
