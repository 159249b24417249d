"""A leader lost several followers that are well elsewhere: the leader, or its network, is suspected."""

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

RULE = "leader_side"
LEAST_FOLLOWERS = 2


def findings(scene: Evidence) -> Iterator[Finding]:
    """For each moment and leader: at least two followers that it removed, none of which another leader removed."""
    for group in groups_by_moment(scene.removals):
        for leader in sorted({int(one.removal.leader) for one in group}):
            own = [one for one in group if one.removal.leader == leader]
            followers = {int(one.removal.replica) for one in own}
            if len(followers) >= LEAST_FOLLOWERS and not _removed_elsewhere(group, leader, followers):
                named = ", ".join(map(str, sorted(followers)))
                yield Finding(
                    RULE,
                    f"node {leader}",
                    f"node {leader} as a leader, or its network: it removed nodes {named} at one moment, and no other "
                    "leader did",
                    "one of these followers was slow with another leader too",
                    evidence_of(own),
                    offsets_of(own),
                )


def _removed_elsewhere(group: list[RemovedReplica], leader: int, followers: set[int]) -> bool:
    return any(one.removal.replica in followers and one.removal.leader != leader for one in group)
