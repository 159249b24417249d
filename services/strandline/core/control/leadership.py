"""Decides what the arrival, loss and shutdown of a node mean for every partition that it has a replica of.

Invariant: a node that is unclean is in no ISR from that very transaction on, even as the last member (I15); one that is
fenced or shutting down is elected nowhere from then on, and leaves every ISR by the same transaction or, where they are
many, by the next ones (`core.step_parts`); a partition then has a leader from ISR or ELR, or visibly none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from strandline.core.control import election
from strandline.core.control.draft import Draft
from strandline.core.control.messages import ElectionKind, ElectionResult, ElectLeaders, LeadersElected, TopicRef
from strandline.core.control.state import NodeRecord
from strandline.core.control.step_parts import LeftOver, ReplicaReports
from strandline.core.control.topic_configs import allows_unclean
from strandline.core.coordinator.internal_topics import is_internal, not_for_clients
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import NodeImage, PartitionImage, ReplicaLogInfo, ReportReplicaLogs
from strandline.core.state_events import ControllerDecision, Moment, NodeSession
from strandline.core.types import NodeId, TopicPartition

NODE_FENCED = "node_fenced"
CONTROLLED_SHUTDOWN = "controlled_shutdown"
DISK_NEARLY_FULL = "disk_nearly_full"
DRAINING = "draining"
RECOVERY_TIMED_OUT = "unclean_recovery_timeout"
"""Why an unclean election was held where a limit to the wait for reports is set (M65); leaves in LEADER_CHANGE."""


def fence(draft: Draft, node_ids: list[NodeId], cause: str, last_heartbeats: dict[NodeId, int | None]) -> None:
    """Remove the nodes from every partition. All are marked first, so that none of them is elected meanwhile."""
    gone = [node_id for node_id in node_ids if not _record(draft, node_id).image.fenced]
    for node_id in gone:
        _put(draft, node_id, fenced=True)
        _session_event(draft, node_id, "fence", cause, last_heartbeats.get(node_id))
    leave_partitions(draft, gone, NODE_FENCED)
    _decided(draft, "fence", f"{cause}: {', '.join(map(str, gone))}" if gone else "")


def held_back(draft: Draft, due: Collection[NodeId], silent: Collection[NodeId]) -> set[NodeId]:
    """The nodes among ``due`` whose sessions end a little later, with those of others that are silent as well (M64).

    When all machines lose power at once, their sessions end one after the other. To end the first one alone would
    leave the last ones as the only members that are known to be complete, and a partition would wait for these very
    nodes although any two would do. A silent member either sends a heartbeat, or is due itself before long.
    """
    held: set[NodeId] = set()
    if not due or set(due) >= set(silent):
        return held
    gone = draft.gone()
    for partition in draft.partitions():
        ending = {node_id for node_id in partition.isr if node_id in due}
        others = set(partition.isr) - ending - gone
        if ending and others and others <= set(silent):
            held |= ending
    return held


def unfence(draft: Draft, node_id: NodeId) -> None:
    """Make a node active, and elect where a partition without a leader can now have one."""
    _put(draft, node_id, fenced=False)
    _session_event(draft, node_id, "unfence", "heartbeat", None)
    elect_leaderless(draft, node_id)


def elect_leaderless(draft: Draft, node_id: NodeId) -> None:
    """Elect in partitions without a leader after a node became active."""
    leaderless = [each for each in draft.partitions() if each.leader is None and node_id in each.replicas]
    for partition in draft.as_room_allows(leaderless, lambda _: True):
        elect_if_possible(draft, partition)


def note_disk(draft: Draft, node_id: NodeId, *, nearly_full: bool) -> None:
    """Record what a heartbeat says about a node's disk; move leadership away from a full one where another can lead.

    Likewise move it away from a node that is being drained, where another has become able to lead since.
    """
    record = _record(draft, node_id)
    if record.image.disk_nearly_full != nearly_full:
        draft.put_node(replace(record, image=replace(record.image, disk_nearly_full=nearly_full)))
        _session_event(draft, node_id, DISK_NEARLY_FULL if nearly_full else "disk_has_room", "heartbeat", None)
    if not draft.has_room(node_id):
        shed_leaderships(draft, node_id, DISK_NEARLY_FULL if nearly_full else DRAINING)


def shed_leaderships(draft: Draft, node_id: NodeId, cause: str) -> None:
    """Elect other members of the ISR where this node leads and one of them should lead instead."""
    led = [each for each in draft.partitions() if each.leader == node_id and _roomier(draft, each) is not None]
    # The next heartbeat finds again what this step leaves over.
    for partition in draft.as_room_allows(led, lambda _: True):
        if (chosen := _roomier(draft, partition)) is not None:
            install(draft, partition, chosen, cause)


def _roomier(draft: Draft, partition: PartitionImage) -> election.Elected | None:
    """Another member of the ISR that should lead and may do so now."""
    chosen = None if draft.waits_for(partition) else election.elect(partition, draft.is_active, draft.has_room)
    # Not to the ELR: that leader would begin with an ISR of its own, and room is not worth a smaller ISR.
    is_better = chosen is not None and chosen.kind is election.ElectionType.ISR and draft.has_room(chosen.leader)
    return chosen if is_better else None


def begin_shutdown(draft: Draft, node_id: NodeId) -> None:
    """Controlled shutdown: hand over what the node leads, take it out of every ISR, at once."""
    # The node asks with every heartbeat until it may stop.
    if _record(draft, node_id).image.shutting_down:
        return
    _put(draft, node_id, shutting_down=True)
    leave_partitions(draft, [node_id], CONTROLLED_SHUTDOWN)
    _decided(draft, CONTROLLED_SHUTDOWN, f"node {node_id}")


def leave_partitions(draft: Draft, node_ids: Collection[NodeId], cause: str, *, unclean: bool = False) -> None:
    """Take nodes out of every ISR (below min ISR into the ELR, if they are clean) and give their partitions leaders.

    All leave at once: nodes that fell silent together leave a partition with the same records, and stay eligible
    together. One after the other, the first to go would lose its place to others that were as dead as it was.
    """
    named = frozenset(node_ids)
    if not named:
        # Called at nearly every tick: skip the scan of all partitions when there is no such node.
        return
    # An earlier step may have left over partitions that other nodes must leave (`core.step_parts`).
    leaving = named | draft.gone()
    losing = [partition for partition in draft.partitions() if _has_a_part(partition, named, unclean)]
    if unclean:
        # Not in parts: a node that may lack records is in no ISR and no ELR from its registration on (I15).
        for partition in losing:
            _leave(draft, partition, leaving, cause, unclean=named)
        return
    for partition in draft.as_room_allows(losing, lambda partition: partition.leader in leaving):
        _leave(draft, partition, leaving, cause)


def _has_a_part(partition: PartitionImage, nodes: frozenset[NodeId], unclean: bool) -> bool:
    if not nodes.isdisjoint(partition.isr) or partition.leader in nodes:
        return True
    return unclean and not nodes.isdisjoint(partition.elr)


def _leave(
    draft: Draft, partition: PartitionImage, leaving: frozenset[NodeId], cause: str, unclean: Collection[NodeId] = ()
) -> None:
    new_isr = tuple(member for member in partition.isr if member not in leaving)
    elr = election.elr_after(partition, new_isr, unclean=unclean)
    left = draft.put_partition(replace(partition, isr=new_isr, elr=elr), cause=cause)
    # Without a leader, too: with fewer members in ISR and ELR the reports that are there may suffice (M65).
    if left.leader in leaving or left.leader is None:
        elect_now(draft, left, cause)


def go_on(draft: Draft, left: LeftOver) -> None:
    """Continue what earlier steps left over, as far as this step may; skip what no longer needs a change."""
    gone = draft.gone()
    for partition in draft.going_on(left, lambda each: each.leader is None or each.leader in gone):
        if not gone.isdisjoint(partition.isr):
            _leave(draft, partition, gone, _cause_of(draft, partition))
        elif partition.leader is None:
            elect_if_possible(draft, partition)


def _cause_of(draft: Draft, partition: PartitionImage) -> str:
    records = map(draft.node, partition.isr)
    is_fenced = any(record is not None and record.image.fenced for record in records)
    return NODE_FENCED if is_fenced else CONTROLLED_SHUTDOWN


def begin_unproven(draft: Draft, node_id: NodeId, cause: str) -> None:
    """A new process of a node: no leader has counted its log yet, so it keeps its places but is not elected (M64).

    Every partition that the node led gets a new leader epoch, even if the node is elected again (M56, TR21).
    """
    for partition in list(draft.partitions()):
        if node_id not in (*partition.isr, *partition.elr):
            continue
        unproven = election.in_assignment_order(partition, (*partition.unproven, node_id))
        marked = draft.put_partition(replace(partition, unproven=unproven), cause=cause)
        # Even if it leads again: its last process may have sent followers records that were not durable, and this one
        # would write others at their offsets in the same epoch (TR21).
        if marked.leader in (node_id, None):
            elect_now(draft, marked, cause)


def begin_new_reign(draft: Draft, node_id: NodeId, cause: str) -> None:
    """A new incarnation, whose log is trusted: every partition it led gets a new leader epoch (M56, TR21)."""
    for partition in list(draft.partitions()):
        if partition.leader == node_id:
            elect_now(draft, partition, cause)


def elect_if_possible(draft: Draft, partition: PartitionImage, cause: str = "election") -> None:
    """Elect for a partition without a leader; without a candidate nothing changes."""
    if _choose(draft, partition) is not None:
        elect_now(draft, partition, cause)


def elect_now(draft: Draft, partition: PartitionImage, cause: str) -> PartitionImage:
    """Hold an election by the topic's settings. If no replica is eligible, the partition is offline."""
    chosen = _choose(draft, partition)
    if chosen is not None:
        return install(draft, partition, chosen, cause)
    if partition.leader is None:
        return partition
    # No leader is a new leader epoch as well: proposals of the old leader are fenced by it, and reports of logs count
    # only if they were made in it (M65).
    return draft.put_partition(replace(partition, leader=None), cause=cause, new_reign=True)


def install(draft: Draft, partition: PartitionImage, chosen: election.Elected, cause: str) -> PartitionImage:
    """Make the elected replica leader in a new epoch. An unclean leader starts a new history alone (M41, M48)."""
    leader = chosen.leader
    if leader in partition.unproven:
        # A leader is proven by definition: from now on the others must agree with it.
        partition = replace(partition, unproven=tuple(node_id for node_id in partition.unproven if node_id != leader))
    if chosen.kind is election.ElectionType.UNCLEAN:
        changed = replace(
            partition,
            leader=leader,
            isr=(leader,),
            elr=(),
            recovering=True,
            last_unclean_leader_epoch=draft.next_leader_epoch(partition.tp),
        )
        cause = cause if cause == RECOVERY_TIMED_OUT else "unclean_election"
        _decided(draft, "unclean_election", f"{partition.tp.topic_id}-{partition.tp.partition}: node {leader}")
    else:
        isr = partition.isr if leader in partition.isr else (leader,)
        changed = replace(partition, leader=leader, isr=isr, elr=election.elr_after(partition, isr))
    return draft.put_partition(changed, cause=cause, election=chosen.kind, new_reign=True)


def choose_clean(draft: Draft, partition: PartitionImage) -> election.Elected | None:
    """The replica that can lead without losing a record; None while no replica is known to."""
    if not draft.compares_logs:
        return election.elect(replace(partition, unproven=()), draft.is_active, draft.has_room)
    return election.elect(partition, draft.is_active, draft.has_room) or election.elect_reported(
        partition, draft.reports_of(partition)
    )


def choose_unclean(draft: Draft, partition: PartitionImage) -> election.Elected | None:
    """The replica to elect if records may be lost; None if no replica is active."""
    return election.elect_unclean(partition, draft.reports_of(partition), draft.is_active)


def _choose(draft: Draft, partition: PartitionImage) -> election.Elected | None:
    if draft.waits_for(partition):
        return None
    clean = choose_clean(draft, partition)
    if clean is not None or not _may_lose(draft, partition):
        return clean
    return choose_unclean(draft, partition)


def _may_lose(draft: Draft, partition: PartitionImage) -> bool:
    """Whether an unclean election is allowed now: no report is outstanding that could improve the choice."""
    if draft.has_waited(partition):
        return True
    if not allows_unclean(draft.configs(partition.tp.topic_id)):
        return False
    if not draft.compares_logs:
        return True
    return election.have_all_reported(partition, draft.reports_of(partition), draft.is_active)


def _record(draft: Draft, node_id: NodeId) -> NodeRecord:
    record = draft.node(node_id)
    assert record is not None, f"node {node_id} is not registered"
    return record


def _put(draft: Draft, node_id: NodeId, *, fenced: bool | None = None, shutting_down: bool | None = None) -> None:
    record = _record(draft, node_id)
    image: NodeImage = record.image
    if fenced is not None:
        image = replace(image, fenced=fenced)
    if shutting_down is not None:
        image = replace(image, shutting_down=shutting_down)
    draft.put_node(replace(record, image=image))


def _session_event(draft: Draft, node_id: NodeId, phase: str, cause: str, last_heartbeat_ms: int | None) -> None:
    heard = None if last_heartbeat_ms is None else Moment(last_heartbeat_ms)
    rack = _record(draft, node_id).image.rack
    draft.emit(None, NodeSession(node_id, phase, cause, last_heartbeat_ms=heard, rack=rack))


def _decided(draft: Draft, decision: str, outcome: str) -> None:
    if not outcome:
        return
    nodes = draft.nodes()
    live = tuple(record.image.node_id for record in nodes if not record.image.fenced)
    fenced = tuple(record.image.node_id for record in nodes if record.image.fenced)
    draft.emit(None, ControllerDecision(decision, live, fenced, outcome))


# ---- report_intake
# Decides what a node's report of its logs changes: a leader for a partition without one, or another leader (M65, M69).
#
# Invariant: a report moves leadership away from a leader only if its sender is in ISR or ELR and holds committed
# records that this leader lacks; a report of another leader epoch or process changes nothing.


def take_reports(draft: Draft, reports: ReplicaReports, request: ReportReplicaLogs) -> None:
    """Apply each report of a request. The sender is the current process of its node."""
    for info in request.logs:
        partition = draft.partition(info.tp)
        if partition is None or request.node_id not in partition.replicas:
            continue
        if info.refused_cut_to is not None:
            _refuses_to_cut(draft, partition, info, request.node_id)
        elif partition.leader is None and reports.keep(info, request.node_id, request.node_epoch):
            elect_if_possible(draft, partition)
            _say_what_is_missing(draft, partition)


def _say_what_is_missing(draft: Draft, before: PartitionImage) -> None:
    partition = draft.partition(before.tp)
    if partition is None or partition.leader is not None:
        return
    members = [n for n in partition.replicas if n in (*partition.isr, *partition.elr)]
    have = [n for n in members if n in draft.reports_of(partition)]
    needed = election.reports_needed(partition)
    outcome = f"the logs of nodes {have} are known; an election needs {needed} of {members}"
    draft.emit(partition.tp, ControllerDecision("await_reports", (), (), outcome, elr=partition.elr))


def _refuses_to_cut(draft: Draft, partition: PartitionImage, info: ReplicaLogInfo, node_id: NodeId) -> None:
    """Handle a follower that holds committed records which its leader lacks: the leader's log had lost them."""
    if partition.leader in (None, node_id) or partition.leader_epoch != info.leader_epoch:
        return
    is_member = node_id in partition.isr or node_id in partition.elr
    if not is_member or not draft.is_active(node_id):
        outcome = f"node {node_id} keeps committed records below {info.high_watermark} that leader {partition.leader} "
        outcome += "lacks, and is in no ISR or ELR: nothing changes until an operator decides"
    else:
        _hand_over(draft, partition, node_id)
        outcome = f"node {node_id} leads: it holds committed records that node {partition.leader} lacks"
    draft.emit(partition.tp, ControllerDecision("refused_cut", (), (), outcome, old_isr=partition.isr))


def _hand_over(draft: Draft, partition: PartitionImage, node_id: NodeId) -> None:
    # The old ISR agrees with the old leader, so no member holds the records: none is complete any more.
    elr = tuple(member for member in partition.elr if member != node_id)
    changed = replace(partition, leader=node_id, isr=(node_id,), elr=elr)
    if len(changed.isr) >= partition.min_isr:
        changed = replace(changed, elr=())
    draft.put_partition(changed, cause="refused_cut", election=election.ElectionType.REPORTED, new_reign=True)


# ---- elect_leaders
# Decides elections that an operator or a timer requests, as opposed to those after the loss of a leader.
#
# Invariant: a preferred election moves leadership only to a member of the ISR; an unclean one is held only where
# there is no leader, and only if no clean one is possible.


def elect_leaders(draft: Draft, request: ElectLeaders) -> LeadersElected:
    """Hold the requested elections, or if none is named, one in every partition that needs it."""
    if not request.partitions:
        results = [_elect(draft, request, partition) for partition in list(draft.partitions())]
        needless = ErrorCode.ELECTION_NOT_NEEDED
        held = (each for each in results if each.refusal is None or each.refusal.code is not needless)
        return LeadersElected(results=tuple(held))
    return LeadersElected(results=tuple(_named(draft, request)))


def _named(draft: Draft, request: ElectLeaders) -> Iterator[ElectionResult]:
    for ref, indexes in dict.fromkeys(request.partitions):
        topic = draft.topic(ref)
        if isinstance(topic, Refusal):
            for index in indexes or (0,):
                yield ElectionResult(ref, index, topic)
            continue
        for index in indexes or range(len(topic.partitions)):
            partition = draft.partition(TopicPartition(topic.topic_id, index))
            if partition is None:
                unknown = Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic '{topic.name}' has no partition {index}; it has {len(topic.partitions)}",
                )
                yield ElectionResult(TopicRef(topic.name, topic.topic_id), index, unknown)
            else:
                yield _elect(draft, request, partition)


def _elect(draft: Draft, request: ElectLeaders, partition: PartitionImage) -> ElectionResult:
    choose = _preferred if request.kind is ElectionKind.PREFERRED else _unclean
    chosen = _was_held(request, partition) or choose(draft, partition)
    if isinstance(chosen, election.Elected) and (unheard := draft.waits_for(partition)):
        chosen = Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"nodes {list(unheard)} have not been heard since this controller started; try again once they were, or "
            f"when their sessions have ended",
        )
    name = draft.base.topics[partition.tp.topic_id].name
    ref = TopicRef(name, partition.tp.topic_id)
    refusal = chosen if isinstance(chosen, Refusal) else None
    if isinstance(chosen, election.Elected):
        partition = install(draft, partition, chosen, "requested")
    return ElectionResult(ref, partition.tp.partition, refusal, partition.leader, partition.leader_epoch)


def _was_held(request: ElectLeaders, partition: PartitionImage) -> Refusal | None:
    """The refusal of an election where one was held after the caller looked, perhaps for this same request."""
    seen = next((each.leader_epoch for each in request.seen if each.tp == partition.tp), partition.leader_epoch)
    if seen == partition.leader_epoch:
        return None
    return Refusal(
        ErrorCode.ELECTION_NOT_NEEDED,
        f"the leader epoch is {partition.leader_epoch}, not {seen}: an election was held since; look again",
    )


def _preferred(draft: Draft, partition: PartitionImage) -> election.Elected | Refusal:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} leads already")
    return election.elect_preferred(partition, draft.is_active, draft.has_room) or Refusal(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        f"node {preferred} is not in the ISR {list(partition.isr)}, or not active, or its disk is nearly full, or it "
        f"is being drained; wait until it is there and may lead",
    )


def _unclean(draft: Draft, partition: PartitionImage) -> election.Elected | Refusal:
    if partition.leader is not None:
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"node {partition.leader} leads; nothing is gained unclean")
    if is_internal(name := draft.base.topics[partition.tp.topic_id].name):
        # Its coordinators may have sent answers based on records that a replica outside the ISR lacks.
        return not_for_clients(name)
    return (
        # The operator accepts that records are lost, and does not ask for it.
        choose_clean(draft, partition)
        or choose_unclean(draft, partition)
        or Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(partition.replicas)} is active; start one",
        )
    )


def rebalance(draft: Draft, at_most: int) -> int:
    """Give leadership back to preferred replicas, a few partitions at a time (M49b). Returns how many moved."""
    moved = 0
    for partition in list(draft.partitions()):
        # Each of these elections interrupts clients of a partition that worked, so they are spread over time.
        if moved == at_most:
            break
        if partition.leader in (None, partition.replicas[0]) or draft.waits_for(partition):
            continue
        chosen = election.elect_preferred(partition, draft.is_active, draft.has_room)
        if chosen is not None:
            install(draft, partition, chosen, "preferred_leader")
            moved += 1
    return moved
