"""A node could not keep up: several leaders removed it one after another, and it went on fetching."""

from __future__ import annotations

from collections.abc import Iterator

from strandline_kafka.inferred.evidence import CLOSE_MS, Evidence, Finding, RemovedReplica, evidence_of, offsets_of

RULE = "slow_replica"
LEAST_LEADERS = 2


def findings(scene: Evidence) -> Iterator[Finding]:
    """For each node: removals by several leaders within some lag times, spread in time, each with an early return."""
    lag_ms = scene.lag_time_ms
    if lag_ms is None:
        return
    for node, removed in scene.by_replica.items():
        own = [one for one in removed if one.caught_up_ms is not None]
        for group in _stretches(own, lag_ms):
            if _is_slow(scene, node, group, lag_ms):
                leaders = len({one.removal.leader for one in group})
                yield Finding(
                    RULE,
                    f"node {node}",
                    f"node {node} was too slow, by its disk, processor or network: {leaders} leaders removed it at "
                    "different moments, and it came back within the lag time",
                    f"node {node} fetched from one of these leaders without a lag, or stood still as a whole",
                    evidence_of(group),
                    offsets_of(group),
                )


def _stretches(own: list[RemovedReplica], lag_ms: int) -> list[list[RemovedReplica]]:
    """Removals that follow each other within two lag times."""
    found: list[list[RemovedReplica]] = []
    for one in own:
        if found and one.removal.at_ms - found[-1][-1].removal.at_ms <= 2 * lag_ms:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _is_slow(scene: Evidence, node: int, group: list[RemovedReplica], lag_ms: int) -> bool:
    moments = sorted(one.caught_up_ms or 0 for one in group)
    is_spread = moments[-1] - moments[0] > CLOSE_MS
    if not is_spread or len({one.removal.leader for one in group}) < LEAST_LEADERS:
        return False
    if scene.fence_of(node, moments[0], group[-1].removal.at_ms + scene.fence_within_ms) is not None:
        return False
    backs = [(one, scene.returned_ms(one)) for one in group]
    return all(back is not None and back - one.removal.at_ms < lag_ms for one, back in backs)
