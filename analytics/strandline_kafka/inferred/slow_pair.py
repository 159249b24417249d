"""One follower fell behind one leader alone, and both are well with others: the link, or that fetcher, is suspected."""

from __future__ import annotations

from collections.abc import Iterator

from strandline_kafka.inferred.evidence import Evidence, Finding, RemovedReplica, evidence_of, offsets_of

RULE = "slow_pair"


def findings(scene: Evidence) -> Iterator[Finding]:
    """For each pair of nodes whose removals stand alone within two lag times before and after."""
    lag_ms = scene.lag_time_ms
    if lag_ms is None:
        return
    for (leader, follower), removed in scene.by_pair.items():
        alone = [one for one in removed if _stands_alone(scene, one, lag_ms)]
        if alone:
            yield Finding(
                RULE,
                f"nodes {leader} and {follower}",
                f"the link from node {follower} to node {leader}, or that fetcher: node {follower} fell behind node "
                f"{leader} alone",
                f"node {follower} fell behind another leader, or another follower behind node {leader}",
                evidence_of(alone),
                offsets_of(alone),
            )


def _stands_alone(scene: Evidence, one: RemovedReplica, lag_ms: int) -> bool:
    if one.caught_up_ms is None:
        return False
    leader, follower = one.pair
    near = scene.around(one.removal.at_ms - 2 * lag_ms, one.removal.at_ms + 2 * lag_ms)
    touches = any(other.pair != one.pair and {leader, follower} & {*other.pair} for other in near)
    has_others = bool({*one.removal.old_isr} - {leader, follower})
    is_fenced = scene.fence_of(follower, one.caught_up_ms, one.removal.at_ms + scene.fence_within_ms) is not None
    return not touches and has_others and not is_fenced
