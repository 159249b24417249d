"""What one data node shows of itself: counts around its performers, logged refusals, and metrics to scrape.

Invariant: without a metrics port nothing is timed or counted but refusals; with one, the core and its effects are the
same to the last byte.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from strandline.core import effects as want
from strandline.core.errors import Refusal
from strandline.core.events import Event
from strandline.core.node import NodeCore
from strandline.export.sink import EventSink
from strandline.metrics import families as f
from strandline.metrics.export_figures import export_figures
from strandline.metrics.figures import Figure
from strandline.metrics.held_back import HeldBack
from strandline.metrics.http import HttpsContext
from strandline.metrics.node_counts import NodeCounts
from strandline.metrics.node_figures import node_figures, partition_figures
from strandline.metrics.port import MetricsPort
from strandline.metrics.refusal_figures import refusal_figures
from strandline.metrics.standing import LOOK_EVERY_S, StandingRecords
from strandline.metrics.transaction_figures import transaction_figures
from strandline.replica.readiness import Readiness
from strandline.replica.settings import ReplicaSettings
from strandline.rpc.channels import parse_endpoint
from strandline.rpc.server import PortTaken
from strandline.runtime.calls import Calls
from strandline.runtime.clock import monotonic_ms
from strandline.runtime.host import Host
from strandline.runtime.log_performers import Perform
from strandline.runtime.performers import Performers
from strandline.runtime.refusals import Refusals
from strandline.subscriptions.feed import MetadataFeed

_CALLS: dict[type[object], tuple[str, str]] = {
    want.AnswerProduce: ("Produce", "results"),
    want.AnswerFetch: ("Fetch", "results"),
    want.AnswerEpochEnds: ("OffsetForLeaderEpoch", "answers"),
    want.AnswerOffsets: ("ListOffsets", "answers"),
    want.AnswerCall: ("", "answers"),
}
"""Answers that may refuse single partitions: which call they answer (empty: the effect says it), and where their parts
are."""


class Seen:
    """The eyes on one node; made before its core, opened when all is wired."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._counts = NodeCounts() if settings.metrics_bind else None
        self._standing = StandingRecords()
        self._held = HeldBack()
        self._port: MetricsPort | None = None
        self.refusals = Refusals()

    @property
    def calls(self) -> Calls | None:
        """The driver's table of calls, if it must be timed."""
        return self._counts.calls if self._counts else None

    def synced(self, seconds: float) -> None:
        """A sync took so long."""
        if self._counts is not None:
            self._counts.fsync.observe(seconds)

    def offsets_committed(self, refusals: Iterable[Refusal | None]) -> None:
        """A commit of a group was answered: why each partition was refused, None where it was not."""
        if self._counts is not None:
            self._counts.offsets_committed(refusals)

    def refused(self, method: str, refusal: Refusal) -> None:
        """A whole call was refused."""
        self.refusals.note(method.rpartition("/")[2], refusal)

    def around(
        self, table: Mapping[type[object], Perform], topic_names: Mapping[str, str]
    ) -> Mapping[type[object], Perform]:
        """The node's performers as they will be run."""
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
        https: HttpsContext | None,
    ) -> str:
        """Be scraped from now on, if a port is asked for; returns its address, or nothing.

        Raises:
            PortTaken: the address is taken, or is not this machine's.
        """
        counts = self._counts
        if counts is None:
            return ""
        readers: Sequence[Callable[[], Iterable[Figure]]] = (
            lambda: node_figures(core, self._standing, self._held, monotonic_ms()),
            counts.figures,
            lambda: counts.groups.figures(core.coordinators.values()),
            lambda: transaction_figures(core.coordinators.values()),
            lambda: _process_figures(host, performers, readiness),
            lambda: _metadata_figures(feed),
            lambda: refusal_figures(self.refusals),
            lambda: partition_figures(core.state) if self._settings.metrics_per_partition else (),
        )
        self._port = MetricsPort(
            f.Role.REPLICA,
            lambda: (figure for read in readers for figure in read()),
            lambda: (*export_figures(sink.counters()), self._disk()),
        )
        try:
            return self._port.open(self._settings.metrics_bind, https) or ""
        except OSError as error:
            raise PortTaken(parse_endpoint(self._settings.metrics_bind)) from error

    def _disk(self) -> Figure:
        return Figure(f.DISK_FREE, shutil.disk_usage(self._settings.data_dir).free)

    async def look_forever(self, core: NodeCore) -> None:
        """Watch what waits above the HW, and log the refusals that were held back, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.refusals.tell_forever())
            while self._counts is not None:
                led = [leader.log for leader in core.state.leaders.values()]
                self._standing.look(led, monotonic_ms())
                self._held.look(led, monotonic_ms())
                await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """Be scraped no more."""
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
