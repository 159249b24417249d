"""A node stood still for a while: in every removal of one moment it is the one removed, or the one who removes."""

from __future__ import annotations

from collections.abc import Iterator

from strandline_kafka.inferred.evidence import (
    Evidence,
    Finding,
    RemovedReplica,
    evidence_of,
    groups_by_moment,
    offsets_of,
)

RULE = "node_paused"
LEAST_REMOVALS = 2


def findings(scene: Evidence) -> Iterator[Finding]:
    """For each moment: the node that explains all its removals and was not fenced; several of them are a tie."""
    for group in groups_by_moment(scene.removals):
        pairs = {one.pair for one in group}
        if len(group) < LEAST_REMOVALS or len(pairs) < LEAST_REMOVALS:
            # One pair of nodes alone does not say which of the two it was.
            continue
        for node in sorted(set.intersection(*(set(pair) for pair in pairs))):
            yield from _judged(scene, node, group)


def _judged(scene: Evidence, node: int, group: list[RemovedReplica]) -> Iterator[Finding]:
    begin_ms = group[0].caught_up_ms or 0
    if scene.fence_of(node, begin_ms, begin_ms + scene.fence_within_ms) is not None:
        return
    shares = {other: sum(other in one.pair for one in group) for other in {n for one in group for n in one.pair}}
    others = ", ".join(f"node {other} {count}" for other, count in sorted(shares.items()) if other != node)
    yield Finding(
        RULE,
        f"node {node}",
        f"node {node} stood still: it is in {len(group)} of {len(group)} removals of one moment ({others}), and was "
        "not fenced",
        f"node {node} logged anything, or answered a fetch, in the time between",
        evidence_of(group),
        offsets_of(group),
    )
