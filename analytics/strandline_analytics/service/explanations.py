"""Explanations and their candidates as messages.

Invariant: of exactly one fitting decision, stall, group or partition there is an explanation, and no candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.explain.held_back import HeldBack
from strandline_analytics.explain.link import Chain, Link
from strandline_analytics.explain.standstill import Standstill
from strandline_analytics.service import values
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.inferred import with_inferences
from strandline_analytics.timeline.stall import Stall


def of_decision(found: Chain | Sequence[Event]) -> pb.ExplainResponse:
    """The answer about a decision."""
    if isinstance(found, Chain):
        return pb.ExplainResponse(explanation=_explanation(found))
    return pb.ExplainResponse(decisions=[_candidate(event) for event in found])


def of_stall(found: Chain | Sequence[Stall]) -> pb.ExplainResponse:
    """The answer about a stall of the high watermark."""
    if isinstance(found, Chain):
        return pb.ExplainResponse(explanation=_explanation(found))
    return pb.ExplainResponse(stalls=[_stall(each) for each in found])


def of_group(found: Standstill | Sequence[str]) -> pb.ExplainGroupResponse:
    """The answer about a consumer group; of several clusters, which they are."""
    if not isinstance(found, Standstill):
        return pb.ExplainGroupResponse(cluster_ids=found)
    standstill = pb.GroupStandstill(
        cluster_id=found.cluster_id,
        group_id=found.group_id,
        at_us=found.at_us,
        reasons=found.reasons,
        links=map(_link, found.links),
        missing=found.missing,
        stalls=map(_explanation, found.stalls),
    )
    return pb.ExplainGroupResponse(standstill=standstill)


def of_held_back(found: HeldBack | Sequence[str]) -> pb.ExplainHeldBackResponse:
    """The answer about who held the LSO of a partition back; of several clusters, which they are."""
    if not isinstance(found, HeldBack):
        return pb.ExplainHeldBackResponse(cluster_ids=found)
    held_back = pb.LsoHeldBack(
        cluster_id=found.cluster_id,
        partition=found.partition,
        at_us=found.at_us,
        reasons=found.reasons,
        links=map(_link, found.links),
        missing=found.missing,
    )
    return pb.ExplainHeldBackResponse(held_back=held_back)


def _explanation(chain: Chain) -> pb.Explanation:
    return pb.Explanation(
        topic=chain.topic or "",
        partition=chain.partition or 0,
        partition_epoch=chain.partition_epoch,
        reported=chain.reported,
        links=map(_link, chain.links),
        missing=chain.missing,
        cost=chain.cost,
    )


def _link(link: Link) -> pb.ExplainedLink:
    return pb.ExplainedLink(name=link.name, time_us=link.t_us, who=link.who, reported=link.reported, cause=link.cause)


def _candidate(event: Event) -> pb.TimelineEvent:
    row = {
        "cluster_id": event.cluster_id,
        "event_type": event.event_type,
        "node_id": event.node_id,
        "incarnation": event.incarnation,
        "seq": event.seq,
        "ts_wall_us": event.raw_us,
        "topic": event.topic,
        "topic_id": event.topic_id,
        "partition": event.partition,
        "leader_epoch": event.leader_epoch,
        "partition_epoch": event.partition_epoch,
        "t": event.t_us,
        "clock_err_us": event.err_us,
        "ordinal": event.ordinal,
        "anchor_epoch": None,
    }
    return values.timeline_event(row | dict(event.fields), with_inferences(event))


def _stall(stall: Stall) -> pb.HwStall:
    return pb.HwStall(
        cluster_id=stall.cluster_id,
        topic_id=stall.topic_id,
        topic=stall.topic,
        partition=stall.partition,
        start_us=stall.t0,
        end_us=stall.t1,
        hw=stall.hw,
        ended_by=stall.ended_by,
        blockers=stall.blockers,
        under_min=stall.is_under_min,
    )
