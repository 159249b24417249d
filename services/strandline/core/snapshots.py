"""The full state of one partition as the controller keeps it, in a row."""

from __future__ import annotations

from strandline.core.effects import Emit
from strandline.core.messages import PartitionImage


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
