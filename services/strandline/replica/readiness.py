"""Decides whether a data node is ready, which is what a rolling update waits for before it continues with the next.

Ready is a node that is registered, not fenced, has room on its disk, and is in the ISR of every partition that is
assigned to it and has a leader. A partition without a leader does not count: it must not hold up the rollout that would
heal it. A partition that this node leads counts as in sync. What an observer only copies is not assigned to it.

Invariant: the metadata that the node itself follows is the only witness. A controller that is away changes nothing:
what was ready stays ready, so that its restart takes no data node out of service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from strandline.core.messages import NodeImage, PartitionImage
from strandline.core.node_state import NodeState
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.server import RoleHealth

LOOK_EVERY_S = 0.1
_NAMED = 3
"""Partitions named in a sentence before it ends with "and N more"."""

_log = structlog.get_logger("strandline.readiness")


def why_not_ready(
    node_id: NodeId, node_epoch: NodeEpoch | None, nodes: Mapping[NodeId, NodeImage], images: Iterable[PartitionImage]
) -> str | None:
    """What a node still lacks, in a sentence; None if it is ready.

    ``node_epoch``: of this process, None before it is registered. ``nodes`` and ``images``: as it knows the metadata.
    """
    if node_epoch is None:
        return "not registered"
    known = nodes.get(node_id)
    if known is None or known.node_epoch != node_epoch:
        return "no metadata names this process yet"
    if known.fenced:
        return "fenced"
    if known.disk_nearly_full:
        return "its disk is nearly full, so it refuses appends"
    behind = [image for image in images if _is_behind(node_id, image)]
    return _sentence(behind) if behind else None


def _is_behind(node_id: NodeId, image: PartitionImage) -> bool:
    if node_id not in image.replicas or image.leader is None or image.leader == node_id:
        return False
    return node_id not in image.isr


def _sentence(behind: list[PartitionImage]) -> str:
    shown = ", ".join(f"{image.tp.topic_id}-{image.tp.partition}" for image in behind[:_NAMED])
    more = f" and {len(behind) - _NAMED} more" if len(behind) > _NAMED else ""
    return f"not in the ISR of {len(behind)} partitions: {shown}{more}"


class Readiness:
    """Sets in the health of a process whether it is ready, as soon as that changes.

    ``metadata_offset`` and ``is_fenced`` are asked each time: nothing else changes the answer, so partitions are
    looked at only when one of them moved.
    """

    def __init__(
        self,
        state: NodeState,
        health: RoleHealth,
        *,
        metadata_offset: Callable[[], int],
        is_fenced: Callable[[], bool],
    ) -> None:
        self._state = state
        self._health = health
        self._metadata_offset = metadata_offset
        self._is_fenced = is_fenced
        self.lacking: str | None = "not registered"

    @property
    def is_ready(self) -> bool:
        """Whether nothing is lacking, as last reported."""
        return self.lacking is None

    async def tell_forever(self) -> None:
        """Look until cancelled."""
        seen: tuple[int, bool] | None = None
        while True:
            now = (self._metadata_offset(), self._is_fenced())
            if now != seen:
                seen = now
                await self._tell(self._look(is_fenced=now[1]))
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self, *, is_fenced: bool) -> str | None:
        state = self._state
        if is_fenced:
            return "fenced"
        return why_not_ready(state.node_id, state.node_epoch, state.nodes, state.images.values())

    async def _tell(self, lacking: str | None) -> None:
        if (lacking is None) != self.is_ready:
            await self._health.set_ready(lacking is None)
        if lacking != self.lacking:
            self.lacking = lacking
            if lacking is None:
                _log.info("ready", node_id=self._state.node_id)
            else:
                _log.info("not ready", node_id=self._state.node_id, reason=lacking)
