"""Decides what a node's report of its logs changes: a leader for a partition without one, or another leader (M65, M69).

Invariant: a report moves leadership away from a leader only if its sender is in ISR or ELR and holds committed records
that this leader lacks; a report of another leader epoch or process changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.draft import Draft
from strandline.core.election import ElectionType, reports_needed
from strandline.core.leadership import elect_if_possible
from strandline.core.messages import PartitionImage, ReplicaLogInfo, ReportReplicaLogs
from strandline.core.replica_reports import ReplicaReports
from strandline.core.state_events import ControllerDecision
from strandline.core.types import NodeId


def take_reports(draft: Draft, reports: ReplicaReports, request: ReportReplicaLogs) -> None:
    """Let every report of a request count where it may. The sender is the current process of its node."""
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
    needed = reports_needed(partition)
    outcome = f"the logs of nodes {have} are known; an election needs {needed} of {members}"
    draft.emit(partition.tp, ControllerDecision("await_reports", (), (), outcome, elr=partition.elr))


def _refuses_to_cut(draft: Draft, partition: PartitionImage, info: ReplicaLogInfo, node_id: NodeId) -> None:
    """A follower holds committed records that its leader lacks; that leader was elected on a log that lost them."""
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
    # The old ISR agrees with the old leader, so none of its members holds the records: they are complete no more.
    elr = tuple(member for member in partition.elr if member != node_id)
    changed = replace(partition, leader=node_id, isr=(node_id,), elr=elr)
    if len(changed.isr) >= partition.min_isr:
        changed = replace(changed, elr=())
    draft.put_partition(changed, cause="refused_cut", election=ElectionType.REPORTED, new_reign=True)
