"""A node's process ended and another one began within its session: nobody had fenced it, nor had it been stopped."""

from __future__ import annotations

from collections.abc import Iterator

from strandline_kafka.inferred.evidence import Evidence, Finding

RULE = "fast_restart"


def findings(scene: Evidence) -> Iterator[Finding]:
    """One for each registration of a broker that was active."""
    for one in scene.registrations:
        if one.is_fast_restart:
            yield Finding(
                RULE,
                f"node {one.node}",
                f"node {one.node} crashed or was killed, and was started again within its session",
                f"the log of node {one.node} shows an orderly end",
                (f"meta_offset {one.meta_offset}",),
                (one.meta_offset,),
                is_beside=True,
            )
