"""Explanations that a service sent, as the analytics themselves have them.

Invariant: what is shown of an explanation does not depend on who made it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.explain.held_back import HeldBack
    from strandline_analytics.explain.link import Chain, Link
    from strandline_analytics.explain.standstill import Standstill


def chain_of(sent: pb.Explanation) -> Chain:
    """Of one decision or one stall."""
    from strandline_analytics.explain.link import Chain

    return Chain(
        topic=sent.topic,
        partition=sent.partition,
        partition_epoch=sent.partition_epoch if sent.HasField("partition_epoch") else None,
        reported=sent.reported,
        links=_links_of(sent.links),
        missing=tuple(sent.missing),
        cost=tuple(sent.cost),
    )


def standstill_of(sent: pb.GroupStandstill) -> Standstill:
    """Of a consumer group."""
    from strandline_analytics.explain.standstill import Standstill

    return Standstill(
        cluster_id=sent.cluster_id,
        group_id=sent.group_id,
        at_us=sent.at_us,
        reasons=tuple(sent.reasons),
        links=_links_of(sent.links),
        missing=tuple(sent.missing),
        stalls=tuple(map(chain_of, sent.stalls)),
    )


def held_back_of(sent: pb.LsoHeldBack) -> HeldBack:
    """Of readers of committed records."""
    from strandline_analytics.explain.held_back import HeldBack

    return HeldBack(
        cluster_id=sent.cluster_id,
        partition=sent.partition,
        at_us=sent.at_us,
        reasons=tuple(sent.reasons),
        links=_links_of(sent.links),
        missing=tuple(sent.missing),
    )


def _links_of(sent: Iterable[pb.ExplainedLink]) -> tuple[Link, ...]:
    from strandline_analytics.explain.link import Link

    return tuple(
        Link(name=link.name, t_us=link.time_us, who=link.who, reported=link.reported, cause=link.cause) for link in sent
    )
