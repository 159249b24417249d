"""What the client of a scenario believes of the cluster: the newest metadata that any node served it (C63).

Invariant: which of two states is older is the rule of the real client, `core.messages.AsOf`; nothing else is decided
here. The client follows no hint and asks nobody by itself.
"""

from __future__ import annotations

from strandline.core.messages import AsOf, MetadataImage, PartitionImage
from strandline.core.types import NodeId
from strandline.sim.scenario.nodes import TP


class Belief:
    """The newest state that was served to the client."""

    def __init__(self) -> None:
        self._newest = AsOf(-1, -1)
        self._partition: PartitionImage | None = None

    @property
    def leader(self) -> NodeId | None:
        """Whom the client sends its records to; None while it knows of no leader."""
        return self._partition.leader if self._partition is not None else None

    def take(self, image: MetadataImage) -> bool:
        """Believe a state that a node holds, unless a newer one was seen; whether it is believed."""
        reign = image.reign
        as_of = AsOf(image.controller_epoch, image.metadata_offset, reign.reign_id if reign is not None else "")
        if as_of.is_before(self._newest):
            return False
        self._newest = as_of
        partitions = (partition for topic in image.topics for partition in topic.partitions)
        self._partition = next((partition for partition in partitions if partition.tp == TP), None)
        return True
