"""The controller's decisions in the searched world, made by the production code.

Invariant: each function is one step of the controller's core on a `ClusterState` made from the searched state, read
back from its draft; nothing about elections, ISR, ELR, replicas or proven members is decided here. The order of
assignment is a free choice of the search, so a decision has an outcome for each order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import permutations, product

from strandline.core import messages
from strandline.core.control.alter_partition import Attempts, alter_partitions
from strandline.core.control.draft import Draft
from strandline.core.control.leadership import fence, held_back, take_reports, unfence
from strandline.core.control.messages import (
    AlterPartitionReassignments,
    AlterTopicConfigs,
    ConfigChange,
    ReassignPartition,
    TopicRef,
)
from strandline.core.control.moves import alter_reassignments
from strandline.core.control.nodes import Sessions, register
from strandline.core.control.reassignment import Reassignments
from strandline.core.control.state import ClusterHeader, ClusterState, EpochSkips, NodeRecord
from strandline.core.control.step_parts import ReplicaReports
from strandline.core.control.topic_configs import MIN_ISR
from strandline.core.control.topics import alter_configs
from strandline.core.log.isr import FollowerProgress, may_join
from strandline.core.types import (
    HIGHEST,
    EpochEntry,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
)
from strandline_sim.checks.reassignments import reassignment_fault
from strandline_sim.searches.elections import world

TP = TopicPartition("t", 0)
TOPIC = TopicRef(topic_id=TP.topic_id)
_HERE = messages.Endpoint("h", 1)
_ROLES = frozenset({Role.LEADER, Role.FOLLOWER})
_PRESENT, _EARLIER, _NEXT = "present", "earlier", "next"
_PARTITION_EPOCH = 1
_NEW_EPOCH = 100
"""Higher than all existing node epochs."""

Order = tuple[int, ...]
_ORDERS: tuple[Order, ...] = tuple(permutations(world.NODES))
Statuses = tuple[world.Status, ...]
Reports = tuple[world.Report | None, ...]


@cache
def returned(
    partition: world.Partition, statuses: Statuses, reports: Reports, node: int, *, is_known: bool, unclean: bool
) -> frozenset[world.Partition]:
    """A new process of a node registers, and sends its first heartbeat. ``is_known``: its directory knows
    the process that registered last."""
    sessions = Sessions(9_000, 2_000)
    for each in world.NODES:
        if statuses[each] is not world.Status.GONE:
            sessions.grant(NodeId(each), 0)
    request = messages.RegisterNode(
        node_id=NodeId(node),
        cluster_id="c",
        incarnation_id=_NEXT,
        directory_id=f"d{node}",
        roles=_ROLES,
        rules=Rules(),
        client_endpoint=_HERE,
        internal_endpoint=_HERE,
        feature_max=HIGHEST,
        unclean=unclean,
        known_incarnations=(_PRESENT if is_known else _EARLIER, _NEXT),
    )

    def decide(draft: Draft) -> None:
        answer = register(draft, sessions, request)
        assert answer.refusal is None, answer.refusal
        record = draft.node(NodeId(node))
        assert record is not None
        if record.image.fenced:
            unfence(draft, NodeId(node))

    return _outcomes(partition, statuses, reports, decide)


@cache
def ended(
    partition: world.Partition, statuses: Statuses, reports: Reports, due: tuple[int, ...]
) -> tuple[frozenset[world.Partition], frozenset[int]]:
    """The sessions of these dead nodes end: the partition then, and the nodes whose sessions ended."""
    silent = {NodeId(n) for n in world.NODES if statuses[n] is world.Status.DEAD}
    asked = _draft(partition, statuses, reports, world.NODES)
    ending = {NodeId(n) for n in due} - held_back(asked, {NodeId(n) for n in due}, silent)

    def decide(draft: Draft) -> None:
        fence(draft, sorted(ending), "session_timeout", {})

    return _outcomes(partition, statuses, reports, decide), frozenset(ending)


@cache
def suspected(
    partition: world.Partition, statuses: Statuses, reports: Reports, node: int
) -> frozenset[world.Partition]:
    """The session of a running node ends, and its next heartbeat begins another."""

    def decide(draft: Draft) -> None:
        fence(draft, [NodeId(node)], "session_timeout", {})
        unfence(draft, NodeId(node))

    return _outcomes(partition, statuses, reports, decide)


@cache
def reported(
    partition: world.Partition, statuses: Statuses, reports: Reports, node: int, report: world.Report
) -> frozenset[world.Partition]:
    """A node reports its log."""
    request = messages.ReportReplicaLogs(
        cluster_id="c", node_id=NodeId(node), node_epoch=_node_epoch(node), logs=(_info(partition, report),)
    )
    found = set()
    for order in _orders_of(partition):
        collected = _collected(partition, reports, order)
        draft = _of_one_reign(_cluster(partition, statuses, order), collected)
        take_reports(draft, collected, request)
        found.add(_read(draft, partition))
    return frozenset(found)


@cache
def altered(
    partition: world.Partition,
    statuses: Statuses,
    members: tuple[int, ...],
    proven: frozenset[int],
    *,
    is_outdated: bool = False,
) -> frozenset[world.Partition]:
    """The leader proposes an ISR with the epochs of ``proven`` members; nothing if the controller refuses.

    ``is_outdated``: the partition has changed since it was proposed.
    """
    epoch = PartitionEpoch(_PARTITION_EPOCH - is_outdated)
    new_isr = tuple(messages.IsrMember(NodeId(n), _node_epoch(n) if n in proven else None) for n in members)
    request = messages.AlterPartitionRequest(
        cluster_id="c",
        controller_epoch=1,
        node_id=NodeId(partition.leader),
        node_epoch=_node_epoch(partition.leader),
        request_sequence=1,
        partitions=(messages.ProposedIsr(TP, LeaderEpoch(partition.leader_epoch), epoch, new_isr),),
    )
    found = set()
    for order in _orders_of(partition) if partition.move.original else _ORDERS[:1]:
        draft = _draft(partition, statuses, world.NO_REPORTS, order)
        answer = alter_partitions(draft, Attempts(), request)
        if answer.refusal is None and answer.partitions[0].refusal is None:
            found.add(_read(draft, partition))
    return frozenset(found)


@cache
def reassigned(
    partition: world.Partition, statuses: Statuses, reports: Reports, target: frozenset[int] | None
) -> frozenset[world.Partition]:
    """A reassignment is submitted, or the running one is cancelled; nothing if the controller refuses."""
    found = set()
    for order in _orders(target or partition.move.original, frozenset(world.NODES)):
        draft = _draft(partition, statuses, reports, order)
        nodes = None if target is None else tuple(NodeId(n) for n in order if n in target)
        wanted = ReassignPartition(TOPIC, TP.partition, nodes)
        request = AlterPartitionReassignments(partitions=(wanted,))
        if alter_reassignments(draft, _ongoing(draft), request).results[0].refusal is None:
            found.add(_read(draft, partition, was_cancelled=target is None))
    return frozenset(found)


@cache
def configured(
    partition: world.Partition, statuses: Statuses, reports: Reports, min_isr: int
) -> frozenset[world.Partition]:
    """The topic's min.insync.replicas is set."""
    change = ConfigChange(TOPIC, ((MIN_ISR, str(min_isr)),))

    def decide(draft: Draft) -> None:
        alter_configs(draft, AlterTopicConfigs(topics=(change,)))

    return _outcomes(partition, statuses, reports, decide)


def is_counted(reign: world.LeaderMemory, node: int, leader_leo: int) -> bool:
    """Whether a follower's current process was counted where it may join the ISR, or be proven in it (M44, M64)."""
    counted = reign.counted[node]
    if not counted.by_present_process:
        return False
    # The model has no time: a counted replica counts as keeping pace.
    progress = FollowerProgress(NodeId(node), 0, Offset(0))
    progress.remote_leo = Offset(counted.leo)
    return may_join(
        progress,
        hw=Offset(reign.high_watermark),
        leader_leo=Offset(leader_leo),
        epoch_start_offset=Offset(reign.epoch_start),
        now_ms=0,
        lag_max_ms=0,
    )


def forget() -> None:
    """Drop the caches of earlier searches: the core may have been patched since."""
    for each in (returned, ended, suspected, reported, altered, reassigned, configured):
        each.cache_clear()


@cache
def _orders(first: frozenset[int], nodes: frozenset[int]) -> tuple[Order, ...]:
    """Every order of these nodes that begins with these ``first`` ones."""
    return tuple((*front, *rest) for front, rest in product(permutations(first), permutations(nodes - first)))


def _orders_of(partition: world.Partition) -> tuple[Order, ...]:
    """Every order of the replicas: while a reassignment runs, the target is in front (C70)."""
    move = partition.move
    return _orders(move.replicas - move.removing, move.replicas)


def _outcomes(
    partition: world.Partition, statuses: Statuses, reports: Reports, decide: Callable[[Draft], None]
) -> frozenset[world.Partition]:
    found = set()
    for order in _orders_of(partition):
        draft = _draft(partition, statuses, reports, order)
        decide(draft)
        found.add(_read(draft, partition))
    return frozenset(found)


def _draft(partition: world.Partition, statuses: Statuses, reports: Reports, order: Order) -> Draft:
    return _of_one_reign(_cluster(partition, statuses, order), _collected(partition, reports, order))


def _of_one_reign(cluster: ClusterState, reports: ReplicaReports) -> Draft:
    """A step of the reign that created the partitions: their epochs rise by one (C37)."""
    skips = EpochSkips()
    partitions = list(cluster.partitions())
    skips.follow(partitions, {partition.tp: None for partition in partitions})
    return Draft(cluster, reports, skips=skips)


@cache
def _cluster(partition: world.Partition, statuses: Statuses, order: Order) -> ClusterState:
    header = ClusterHeader(cluster_id="c", controller_epoch=1, feature_level=HIGHEST, next_node_epoch=_NEW_EPOCH)
    topic = messages.TopicImage(
        name="t",
        topic_id=TP.topic_id,
        configs=((MIN_ISR, str(partition.move.wanted_min_isr)),),
        partitions=(_image(partition, order),),
    )
    return ClusterState(
        header=header, nodes={NodeId(n): _record(n, statuses[n]) for n in world.NODES}, topics={TP.topic_id: topic}
    )


@cache
def _image(partition: world.Partition, order: Order) -> messages.PartitionImage:
    ordered = [tuple(NodeId(n) for n in order if n in nodes) for nodes in partition.move[:4]]
    return messages.PartitionImage(
        tp=TP,
        replicas=ordered[0],
        adding=ordered[1],
        removing=ordered[2],
        original=ordered[3],
        isr=tuple(NodeId(n) for n in partition.isr),
        elr=tuple(NodeId(n) for n in partition.elr),
        leader=None if partition.leader == world.NONE else NodeId(partition.leader),
        leader_epoch=LeaderEpoch(partition.leader_epoch),
        partition_epoch=PartitionEpoch(_PARTITION_EPOCH),
        min_isr=partition.move.min_isr,
        unproven=tuple(NodeId(n) for n in partition.unproven),
    )


@cache
def _record(node: int, status: world.Status) -> NodeRecord:
    image = messages.NodeImage(
        node_id=NodeId(node),
        node_epoch=_node_epoch(node),
        roles=_ROLES,
        client_endpoint=_HERE,
        internal_endpoint=_HERE,
        fenced=status is world.Status.GONE,
    )
    return NodeRecord(image=image, incarnation_id=_PRESENT, directory_id=f"d{node}", feature_max=HIGHEST)


def _node_epoch(node: int) -> NodeEpoch:
    return NodeEpoch(node + len(world.NODES))


def _collected(partition: world.Partition, reports: Reports, order: Order) -> ReplicaReports:
    collected = ReplicaReports()
    collected.follow([_image(partition, order)], 0)
    for node, report in enumerate(reports):
        if report is not None:
            epoch = _node_epoch(node) if report.is_current else NodeEpoch(node)
            collected.keep(_info(partition, report), NodeId(node), epoch)
    return collected


def _info(partition: world.Partition, report: world.Report) -> messages.ReplicaLogInfo:
    return messages.ReplicaLogInfo(
        tp=TP,
        leader_epoch=LeaderEpoch(partition.leader_epoch),
        log_start_offset=Offset(0),
        leo=Offset(len(report.log)),
        epochs=tuple(
            EpochEntry(LeaderEpoch(epoch), Offset(offset))
            for offset, epoch in enumerate(report.log)
            if offset == 0 or report.log[offset - 1] != epoch
        ),
        reconciled_epoch=LeaderEpoch(report.reconciled),
    )


def _ongoing(draft: Draft) -> Reassignments:
    ongoing = Reassignments(per_node=1)
    ongoing.begin(draft.base)
    return ongoing


def _read(draft: Draft, was: world.Partition, *, was_cancelled: bool = False) -> world.Partition:
    """The partition at the end of a step, which ends the reassignment if it may end."""
    if (found := draft.partition(TP)) is not None and found.original:
        _ongoing(draft).settle(draft)
    found = draft.partition(TP)
    assert found is not None
    return world.Partition(
        world.NONE if found.leader is None else found.leader,
        found.leader_epoch,
        tuple(sorted(found.isr)),
        tuple(sorted(found.elr)),
        tuple(sorted(found.unproven)),
        _moved(draft, found, was.move, was_cancelled),
    )


def _moved(draft: Draft, after: messages.PartitionImage, was: world.Move, was_cancelled: bool) -> world.Move:
    wanted = int(dict(draft.configs(TP.topic_id))[MIN_ISR])
    settled = was.settled if after.original else frozenset(after.replicas)
    fault = reassignment_fault(draft.base.partition(TP), after) or ""
    if was_cancelled and settled != was.settled:
        fault = f"a cancel leaves replicas {sorted(settled)} instead of {sorted(was.settled)}"
    elif after.min_isr != min(wanted, len(settled)):
        fault = f"min ISR is {after.min_isr} with {len(settled)} replicas that are not being added"
    return world.Move(
        replicas=frozenset(after.replicas),
        adding=frozenset(after.adding),
        removing=frozenset(after.removing),
        original=frozenset(after.original),
        settled=settled,
        min_isr=after.min_isr,
        wanted_min_isr=wanted,
        # States that differ in the numbers of nodes are one, so these numbers are no part of a state.
        fault=re.sub(r"\[.*?\]", "[...]", fault),
    )
