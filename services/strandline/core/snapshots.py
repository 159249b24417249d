"""The full state of every partition as the controller keeps it, in rows.

The shell, which knows the time of day, asks for it at its start and at the start of each hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.controller_state import ClusterState
from strandline.core.effects import Emit
from strandline.core.messages import PartitionImage


def cluster_snapshots(state: ClusterState) -> Iterator[Emit]:
    """What the controller keeps of each partition."""
    for image in state.partitions():
        yield partition_snapshot(image, meta_offset=state.header.metadata_offset)


def partition_snapshot(image: PartitionImage, *, meta_offset: int) -> Emit:
    """What the controller keeps of one partition."""
    epochs: dict[str, object] = {
        "leader_epoch": image.leader_epoch,
        "partition_epoch": image.partition_epoch,
        "meta_offset": meta_offset,
    }
    return Emit("STATE_SNAPSHOT", image.tp, committed_fields(image) | epochs)


def committed_fields(image: PartitionImage) -> dict[str, object]:
    """What was committed of a partition, in columns."""
    return {
        "new_leader": image.leader,
        "new_isr": image.isr,
        "elr": image.elr,
        "min_isr": image.min_isr,
        "replicas": image.replicas,
    }
