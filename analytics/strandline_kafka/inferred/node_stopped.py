"""A node stopped working: several leaders removed it, it had fallen behind at once, and then its session ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from strandline_kafka.inferred.evidence import (
    Evidence,
    Finding,
    RemovedReplica,
    evidence_of,
    groups_by_moment,
    offsets_of,
)

RULE = "node_stopped"
LEAST_LEADERS = 2


def findings(scene: Evidence) -> Iterator[Finding]:
    """One for each fence that removals by at least two leaders came before; the logs narrow down when it stopped."""
    for node, own in scene.by_replica.items():
        groups = groups_by_moment(own) + _without_moment(scene, node)
        for group in groups:
            if len({one.removal.leader for one in group}) >= LEAST_LEADERS:
                yield from _judged(scene, node, group)


def _without_moment(scene: Evidence, node: int) -> list[list[RemovedReplica]]:
    """Without the leaders' logs: the removals in the time before a fence in which the node may have stopped."""
    found = []
    for fence in scene.fences:
        near = scene.around(fence.at_ms - scene.fence_within_ms, fence.at_ms) if fence.node == node else ()
        own = (one for one in near if one.removal.replica == node and one.caught_up_ms is None)
        found.append([one for one in own if not _is_back(scene, one, fence.at_ms)])
    return found


def _is_back(scene: Evidence, one: RemovedReplica, by_ms: int) -> bool:
    returned_ms = scene.returned_ms(one)
    return returned_ms is not None and returned_ms <= by_ms


def _judged(scene: Evidence, node: int, group: list[RemovedReplica]) -> Iterator[Finding]:
    begin_ms = min(one.removal.at_ms if one.caught_up_ms is None else one.caught_up_ms for one in group)
    fence = scene.fence_of(node, begin_ms, begin_ms + scene.fence_within_ms)
    if fence is None or scene.shutdown_of(node, begin_ms - scene.session_timeout_ms, fence.at_ms) is not None:
        return
    last_ms = max((one.caught_up_ms for one in group if one.caught_up_ms is not None), default=None)
    yield Finding(
        RULE,
        f"node {node}",
        f"node {node} stopped working"
        + ("" if last_ms is None else f" about {_time_of_day(begin_ms)} to {_time_of_day(last_ms)} UTC")
        + f": {len({one.removal.leader for one in group})} leaders removed it, and its session ended",
        f"node {node} logged anything between its removals and its fence, or other nodes stopped at that moment too",
        evidence_of(group, f"meta_offset {fence.meta_offset}"),
        offsets_of(group),
    )


def _time_of_day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%H:%M:%S.%f")[:-3]
