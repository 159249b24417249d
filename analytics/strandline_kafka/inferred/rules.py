"""The rules by which causes are inferred that were not written down: what each says, by which evidence.

Each docstring begins with the cause; a finding names what would contradict it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from strandline_kafka.inferred.evidence import (
    CLOSE_MS,
    Evidence,
    Finding,
    RemovedReplica,
    evidence_of,
    groups_by_moment,
    offsets_of,
)

LEAST_LEADERS = 2
LEAST_REMOVALS = 2
LEAST_FOLLOWERS = 2


def node_stopped(scene: Evidence) -> Iterator[Finding]:
    """A node stopped working: several leaders removed it, it had fallen behind at once, and then its session ended.

    One for each fence that removals by at least two leaders came before; the logs narrow down when it stopped.
    """
    for node, own in scene.by_replica.items():
        groups = groups_by_moment(own) + _without_moment(scene, node)
        for group in groups:
            if len({one.removal.leader for one in group}) >= LEAST_LEADERS:
                yield from _stopped(scene, node, group)


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


def _stopped(scene: Evidence, node: int, group: list[RemovedReplica]) -> Iterator[Finding]:
    begin_ms = min(one.removal.at_ms if one.caught_up_ms is None else one.caught_up_ms for one in group)
    fence = scene.fence_of(node, begin_ms, begin_ms + scene.fence_within_ms)
    if fence is None or scene.shutdown_of(node, begin_ms - scene.session_timeout_ms, fence.at_ms) is not None:
        return
    last_ms = max((one.caught_up_ms for one in group if one.caught_up_ms is not None), default=None)
    yield Finding(
        "node_stopped",
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


def node_paused(scene: Evidence) -> Iterator[Finding]:
    """A node stood still for a while: in every removal of one moment it is the one removed, or the one who removes.

    For each moment: the node that explains all its removals and was not fenced; several of them are a tie.
    """
    for group in groups_by_moment(scene.removals):
        pairs = {one.pair for one in group}
        if len(group) < LEAST_REMOVALS or len(pairs) < LEAST_REMOVALS:
            # One pair of nodes alone does not say which of the two it was.
            continue
        for node in sorted(set.intersection(*(set(pair) for pair in pairs))):
            yield from _stood_still(scene, node, group)


def _stood_still(scene: Evidence, node: int, group: list[RemovedReplica]) -> Iterator[Finding]:
    begin_ms = group[0].caught_up_ms or 0
    if scene.fence_of(node, begin_ms, begin_ms + scene.fence_within_ms) is not None:
        return
    shares = {other: sum(other in one.pair for one in group) for other in {n for one in group for n in one.pair}}
    others = ", ".join(f"node {other} {count}" for other, count in sorted(shares.items()) if other != node)
    yield Finding(
        "node_paused",
        f"node {node}",
        f"node {node} stood still: it is in {len(group)} of {len(group)} removals of one moment ({others}), and was "
        "not fenced",
        f"node {node} logged anything, or answered a fetch, in the time between",
        evidence_of(group),
        offsets_of(group),
    )


def slow_replica(scene: Evidence) -> Iterator[Finding]:
    """A node could not keep up: several leaders removed it one after another, and it went on fetching.

    For each node: removals by several leaders within some lag times, spread in time, each with an early return.
    """
    lag_ms = scene.lag_time_ms
    if lag_ms is None:
        return
    for node, removed in scene.by_replica.items():
        own = [one for one in removed if one.caught_up_ms is not None]
        for group in _stretches(own, lag_ms):
            if _is_slow(scene, node, group, lag_ms):
                leaders = len({one.removal.leader for one in group})
                yield Finding(
                    "slow_replica",
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


def slow_pair(scene: Evidence) -> Iterator[Finding]:
    """One follower fell behind one leader alone, and both are well with others: the link or that fetcher is suspected.

    For each pair of nodes whose removals stand alone within two lag times before and after.
    """
    lag_ms = scene.lag_time_ms
    if lag_ms is None:
        return
    for (leader, follower), removed in scene.by_pair.items():
        alone = [one for one in removed if _stands_alone(scene, one, lag_ms)]
        if alone:
            yield Finding(
                "slow_pair",
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


def leader_side(scene: Evidence) -> Iterator[Finding]:
    """A leader lost several followers that are well elsewhere: the leader, or its network, is suspected.

    For each moment and leader: at least two followers that it removed, none of which another leader removed.
    """
    for group in groups_by_moment(scene.removals):
        for leader in sorted({int(one.removal.leader) for one in group}):
            own = [one for one in group if one.removal.leader == leader]
            followers = {int(one.removal.replica) for one in own}
            if len(followers) >= LEAST_FOLLOWERS and not _removed_elsewhere(group, leader, followers):
                named = ", ".join(map(str, sorted(followers)))
                yield Finding(
                    "leader_side",
                    f"node {leader}",
                    f"node {leader} as a leader, or its network: it removed nodes {named} at one moment, and no other "
                    "leader did",
                    "one of these followers was slow with another leader too",
                    evidence_of(own),
                    offsets_of(own),
                )


def _removed_elsewhere(group: list[RemovedReplica], leader: int, followers: set[int]) -> bool:
    return any(one.removal.replica in followers and one.removal.leader != leader for one in group)


def young_leader(scene: Evidence) -> Iterator[Finding]:
    """A leader removed a member sooner than a lag time after it began: the member had had no time to fetch.

    One for each removal by an epoch that is younger than the lag time.
    """
    if scene.lag_time_ms is None:
        return
    for one in scene.removals:
        since_ms = one.removal.leader_since_ms
        if since_ms is not None and one.removal.at_ms - since_ms < scene.lag_time_ms:
            yield Finding(
                "young_leader",
                f"node {one.removal.leader}",
                f"the change of leader itself: its epoch was {one.removal.at_ms - since_ms:,} ms old, less than the "
                "lag time",
                "the member was behind the leader before as well",
                one.evidence,
                (one.removal.meta_offset,),
                is_beside=True,
            )


SOON_MS = 1_000
"""What waited is decided within so long of the end of a silence."""


def controller_silent(scene: Evidence) -> Iterator[Finding]:
    """The controller decided nothing for a while: a change that was committed then had waited for the quorum.

    One for each silence that removals waited for.
    """
    for silence in scene.silences:
        waited = [one for one in scene.removals if 0 <= one.removal.at_ms - silence.to_ms <= SOON_MS]
        if waited:
            yield Finding(
                "controller_silent",
                "the controller",
                f"no decision was possible for {silence.to_ms - silence.from_ms:,} ms right before it: the change may "
                "have waited for the quorum",
                "the leader proposed it after the silence had ended",
                evidence_of(waited, f"meta_offset {silence.meta_offset}"),
                offsets_of(waited),
                is_beside=True,
            )


def fast_restart(scene: Evidence) -> Iterator[Finding]:
    """A node's process ended and another one began within its session: it had neither been fenced nor stopped.

    One for each registration of a broker that was active.
    """
    for one in scene.registrations:
        if one.is_fast_restart:
            yield Finding(
                "fast_restart",
                f"node {one.node}",
                f"node {one.node} crashed or was killed, and was started again within its session",
                f"the log of node {one.node} shows an orderly end",
                (f"meta_offset {one.meta_offset}",),
                (one.meta_offset,),
                is_beside=True,
            )
