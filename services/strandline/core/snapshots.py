"""The full state of one partition as the controller keeps it, as an event."""

from __future__ import annotations

from strandline.core.effects import Emit
from strandline.core.messages import PartitionImage
from strandline.core.state_events import Number, StateSnapshot


def partition_snapshot(image: PartitionImage, *, meta_offset: int) -> Emit:
    """What the controller keeps of one partition."""
    return Emit(image.tp, committed_snapshot(image)._replace(meta_offset=meta_offset))


def committed_snapshot(image: PartitionImage) -> StateSnapshot:
    """What was committed of a partition."""
    return StateSnapshot(
        new_leader=image.leader,
        new_isr=image.isr,
        elr=image.elr,
        min_isr=Number(image.min_isr),
        replicas=image.replicas,
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
    )
