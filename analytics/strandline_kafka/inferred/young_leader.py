"""A leader removed a member sooner than a lag time after it began: the member had had no time to fetch."""

from __future__ import annotations

from collections.abc import Iterator

from strandline_kafka.inferred.evidence import Evidence, Finding

RULE = "young_leader"


def findings(scene: Evidence) -> Iterator[Finding]:
    """One for each removal by an epoch that is younger than the lag time."""
    if scene.lag_time_ms is None:
        return
    for one in scene.removals:
        since_ms = one.removal.leader_since_ms
        if since_ms is not None and one.removal.at_ms - since_ms < scene.lag_time_ms:
            yield Finding(
                RULE,
                f"node {one.removal.leader}",
                f"the change of leader itself: its epoch was {one.removal.at_ms - since_ms:,} ms old, less than the "
                "lag time",
                "the member was behind the leader before as well",
                one.evidence,
                (one.removal.meta_offset,),
                is_beside=True,
            )
