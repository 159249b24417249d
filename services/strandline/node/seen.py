"""What a data node reports of itself: counts around its performers, logged refusals, and metrics to scrape.

Invariant: without a metrics port only refusals are counted and nothing is timed; with one, the core and its effects are
exactly the same.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from strandline.core.errors import Refusal
from strandline.core.log import effects as want
from strandline.core.log.events import Event
from strandline.core.log.node import NodeCore
from strandline.core.log.state import NodeState
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage
from strandline.core.quotas import Meters
from strandline.core.types import NodeEpoch, NodeId, TopicPartition
from strandline.export.sink import EventSink
from strandline.metrics import families as f
from strandline.metrics.figures import Figure, export_figures, refusal_figures
from strandline.metrics.groups import transaction_figures
from strandline.metrics.node import LOOK_EVERY_S, LedLooks, NodeCounts, node_figures, partition_figures, quota_figures
from strandline.metrics.port import Allowed, HttpsContext, MetricsPort
from strandline.node.settings import ReplicaSettings
from strandline.rpc.channels import parse_endpoint
from strandline.rpc.server import PortTaken, RoleHealth
from strandline.runtime.calls import Calls
from strandline.runtime.clock import monotonic_ms
from strandline.runtime.host import Host
from strandline.runtime.log_performers import Perform
from strandline.runtime.performers import Performers
from strandline.runtime.refusals import Refusals
from strandline.subscriptions.feed import MetadataFeed

# ---- readiness
# Decides whether a data node is ready: a rolling update waits for this before it continues with the next node.
#
# A node is ready if it is registered, not fenced, has room on its disk, and is in the ISR of every partition that is
# assigned to it and has a leader, except those to which a reassignment is adding it. A partition without a leader does
# not count, because it must not block the rollout that would heal it. A partition that this node leads counts as in
# sync. Partitions that it only observes are not assigned to it.
#
# Invariant: only the metadata that the node follows decides. If the controller is not reachable nothing changes, so the
# controller's restart takes no data node out of service.

READINESS_EVERY_S = 0.25
_NAMED = 3
"""The number of partitions named in a message before it ends with "and N more"."""

_log = structlog.get_logger("strandline.readiness")


def why_not_ready(
    node_id: NodeId, node_epoch: NodeEpoch | None, nodes: Mapping[NodeId, NodeImage], images: Iterable[PartitionImage]
) -> str | None:
    """Why a node is not ready, as a message; None if it is ready.

    ``node_epoch`` is that of this process, None before it is registered; ``nodes`` and ``images`` are its metadata.
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
    # A replica that a reassignment is adding need not be in sync before the reassignment ends.
    return node_id not in image.isr and node_id not in image.adding


def _sentence(behind: list[PartitionImage]) -> str:
    shown = ", ".join(f"{image.tp.topic_id}-{image.tp.partition}" for image in behind[:_NAMED])
    more = f" and {len(behind) - _NAMED} more" if len(behind) > _NAMED else ""
    return f"not in the ISR of {len(behind)} partitions: {shown}{more}"


class Readiness:
    """Keeps a process's readiness up to date in its health.

    Only changes of ``metadata_offset`` and ``is_fenced`` can change it, so partitions are examined only after one.
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
        """Check periodically, until cancelled."""
        seen: tuple[int, bool] | None = None
        while True:
            now = (self._metadata_offset(), self._is_fenced())
            if now != seen:
                seen = now
                await self._tell(self._look(is_fenced=now[1]))
            await asyncio.sleep(READINESS_EVERY_S)

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


_CALLS: dict[type[object], tuple[str, str]] = {
    want.AnswerProduce: ("Produce", "results"),
    want.AnswerFetch: ("Fetch", "results"),
    want.AnswerEpochEnds: ("OffsetForLeaderEpoch", "answers"),
    want.AnswerOffsets: ("ListOffsets", "answers"),
    want.AnswerCall: ("", "answers"),
}
"""Answers that may refuse single partitions: the call that they answer (empty: the effect names it), and the attribute
with their parts."""


class Seen:
    """The counts, refusals and metrics of one node; made before its core, opened when the node is assembled."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._counts = NodeCounts() if settings.metrics_bind else None
        self._looks = LedLooks()
        self._port: MetricsPort | None = None
        self.refusals = Refusals()

    @property
    def calls(self) -> Calls | None:
        """A table of calls that times them, for the driver; None if metrics are off."""
        return self._counts.calls if self._counts else None

    def synced(self, seconds: float) -> None:
        """Count a sync and its duration."""
        if self._counts is not None:
            self._counts.fsync.observe(seconds)

    def offsets_committed(self, refusals: Iterable[Refusal | None]) -> None:
        """Count an answered offset commit; ``refusals`` has one entry for each partition, None if it succeeded."""
        if self._counts is not None:
            self._counts.offsets_committed(refusals)

    def refused(self, method: str, refusal: Refusal) -> None:
        """Note that a call was refused as a whole."""
        self.refusals.note(method.rpartition("/")[2], refusal)

    def around(
        self, table: Mapping[type[object], Perform], topic_names: Mapping[str, str]
    ) -> Mapping[type[object], Perform]:
        """The node's performers, wrapped so that they are counted."""
        noting = {kind: self._noting(call, parts, table[kind], topic_names) for kind, (call, parts) in _CALLS.items()}
        noted = {**table, **noting}
        return self._counts.around(noted) if self._counts else noted

    def _noting(self, call: str, parts: str, perform: Perform, topic_names: Mapping[str, str]) -> Perform:
        def performed(effect: Any) -> Event | None:
            method = call or effect.call
            for part in getattr(effect, parts):
                if part.refusal is not None:
                    topic = topic_names.get(part.tp.topic_id, part.tp.topic_id)
                    self.refusals.note(method, part.refusal, topic=topic, partition=part.tp.partition)
            return perform(effect)

        return performed

    def open(
        self,
        core: NodeCore,
        host: Host,
        performers: Performers,
        readiness: Readiness,
        sink: EventSink,
        feed: MetadataFeed,
        meters: Meters,
        https: HttpsContext | None,
        allowed: Allowed | None = None,
    ) -> str:
        """Open the metrics port if the settings ask for one; return its address, or an empty string.

        Raises:
            PortTaken: the address is taken or not local.
        """
        counts = self._counts
        if counts is None:
            return ""
        readers: Sequence[Callable[[], Iterable[Figure]]] = (
            lambda: node_figures(core, self._looks, monotonic_ms()),
            counts.figures,
            lambda: counts.groups.figures(core.coordinators.values()),
            lambda: transaction_figures(core.coordinators.values()),
            lambda: _process_figures(host, performers, readiness),
            lambda: _metadata_figures(feed),
            lambda: quota_figures(meters),
            lambda: refusal_figures(self.refusals),
            lambda: partition_figures(core.state) if self._settings.metrics_per_partition else (),
        )
        self._port = MetricsPort(
            f.Role.REPLICA,
            lambda: (figure for read in readers for figure in read()),
            lambda: (*export_figures(sink.counters()), self._disk()),
        )
        try:
            return self._port.open(self._settings.metrics_bind, https, allowed) or ""
        except OSError as error:
            raise PortTaken(parse_endpoint(self._settings.metrics_bind)) from error

    def _disk(self) -> Figure:
        return Figure(f.DISK_FREE, shutil.disk_usage(self._settings.data_dir).free)

    async def look_forever(self, core: NodeCore) -> None:
        """Measure how long records wait above the HW, and log refusals that were held back, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.refusals.tell_forever())
            while self._counts is not None:
                self._looks.take(list(core.state.leaders.values()), monotonic_ms())
                await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """Close the metrics port."""
        if self._port is not None:
            await asyncio.to_thread(self._port.close)


def _metadata_figures(feed: MetadataFeed) -> Iterator[Figure]:
    yield Figure(f.METADATA_AGE, feed.as_of().age_ms / 1_000)
    yield Figure(f.SUBSCRIBERS, feed.follower_count)


def _process_figures(host: Host, performers: Performers, readiness: Readiness) -> Iterator[Figure]:
    yield Figure(f.READY, int(readiness.is_ready))
    yield Figure(f.METADATA_OFFSET, host.topics.metadata_offset)
    yield Figure(f.BYTES_OUT, performers.bytes_to_replicas, ("replica",))
    yield Figure(f.BYTES_OUT, performers.bytes_to_consumers, ("consumer",))
    held, waits = list(host.sizes.held()), host.sizes.retention_waits_until_ms
    yield Figure(f.LOG_BYTES, sum(map(host.sizes.size_bytes, held)))
    yield Figure(f.RETENTION_WAITS, sum(waits(tp) is not None for tp in held))


# ---- role_lines
# The log lines of a node that begins to follow: one for each partition whose leader epoch has risen.
#
# When it begins to lead, the line is made from the event of the epoch (`export.log_lines`), once that has begun.
#
# Invariant: nothing is logged about an image that is older than what the node knows.

_role_lines_log = structlog.get_logger("strandline.roles")


def tell_following(node_id: NodeId, lines: Iterable[Mapping[str, object]]) -> None:
    """Log one line for each; may be called in any thread."""
    for line in lines:
        _role_lines_log.info("follows" if line["leader"] is not None else "waits for a leader", node_id=node_id, **line)


def following(
    node_id: NodeId, known: Callable[[TopicPartition], PartitionImage | None], image: MetadataImage
) -> Iterator[dict[str, object]]:
    """The fields of one line for each partition that ``node_id`` begins to follow, or waits to follow.

    ``known`` returns a partition as it was before this image.
    """
    for topic in image.topics:
        for now in topic.partitions:
            before = known(now.tp)
            if before is not None and now.leader_epoch <= before.leader_epoch:
                continue
            if now.leader != node_id and node_id in (*now.replicas, *now.observers):
                yield {
                    "topic": topic.name,
                    "partition": now.tp.partition,
                    "leader": now.leader,
                    "leader_epoch": now.leader_epoch,
                    "partition_epoch": now.partition_epoch,
                    "isr": list(now.isr),
                    "in_isr": node_id in now.isr,
                }
