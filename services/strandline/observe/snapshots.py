"""The full state of every partition as the controller keeps it, in rows.

The shell, which knows the time of day, asks for it at its start and at the start of each hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.controller_state import ClusterState
from strandline.core.effects import Emit
from strandline.core.snapshots import partition_snapshot


def cluster_snapshots(state: ClusterState) -> Iterator[Emit]:
    """What the controller keeps of each partition."""
    for image in state.partitions():
        yield partition_snapshot(image, meta_offset=state.header.metadata_offset)
