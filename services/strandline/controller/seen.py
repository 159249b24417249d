"""What the controller reports of itself: counts of its events and commits, its refusals, its metrics port.

Invariant: counting changes neither the events nor the commits.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from strandline.controller.driver import ControllerDriver, Sink, Store
from strandline.controller.settings import ControllerSettings
from strandline.core.control.state import Transaction
from strandline.core.errors import Refusal
from strandline.core.state_events import StateEvent
from strandline.core.types import TopicPartition
from strandline.export.sink import EventSink
from strandline.metrics import families as f
from strandline.metrics.figures import ControllerCounts, Figure, controller_figures, export_figures, refusal_figures
from strandline.metrics.port import HttpsContext, MetricsPort
from strandline.rpc.channels import parse_endpoint
from strandline.rpc.server import PortTaken
from strandline.runtime.refusals import Refusals


class ControllerPlace(NamedTuple):
    """A controller's role and position among the controllers of its cluster."""

    is_active: bool
    lag: int
    reigns: int
    is_store_up: bool
    store_bytes: int | None = None
    """Size of the largest etcd member's database file; None if no member reported it."""
    quota_bytes: int = 0


class TimedCommits:
    """Passes on commits and times them."""

    def __init__(self, store: Store, counts: ControllerCounts) -> None:
        self._commits = store
        self._counts = counts

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """See `MetadataStore.commit`."""
        began_s = perf_counter()
        await self._commits.commit(transactions)
        self._counts.commits.observe(perf_counter() - began_s)


class CountedSink:
    """Counts events and passes them on to a sink."""

    def __init__(self, sink: Sink, counts: ControllerCounts) -> None:
        self._sink = sink
        self._counts = counts

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Count an event and pass it on."""
        self._counts.count(event)
        self._sink.take(tp, event)


class Seen:
    """The counts, the refusals and the metrics port of one controller."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._port: MetricsPort | None = None
        self.counts = ControllerCounts()
        self.refusals = Refusals()

    def refused(self, method: str, refusal: Refusal) -> None:
        """Note that a call, or a part of it, was refused."""
        self.refusals.note(method.rpartition("/")[2], refusal)

    def open(
        self,
        driver: Callable[[], ControllerDriver | None],
        sink: EventSink,
        https: HttpsContext | None,
        place: Callable[[], ControllerPlace],
    ) -> str:
        """Open the metrics port if the settings ask for one; return its address, or an empty string.

        Raises:
            PortTaken: the address is taken or not local.
        """

        def read() -> Iterator[Figure]:
            yield from self.counts.figures()
            yield from refusal_figures(self.refusals)
            here = place()
            yield Figure(f.CONTROLLER_ACTIVE, int(here.is_active))
            yield Figure(f.CONTROLLER_LAG, here.lag)
            yield Figure(f.REIGNS_BEGUN, here.reigns)
            yield Figure(f.STORE_UP, int(here.is_store_up))
            if here.store_bytes is not None:
                yield Figure(f.STORE_DB_BYTES, here.store_bytes)
                yield Figure(f.STORE_QUOTA_RATIO, here.store_bytes / here.quota_bytes)
            if (now := driver()) is not None:
                yield from controller_figures(now.core.state)
                yield Figure(f.UNPROVEN_CLAIMS, now.core.unproven_claims)
                yield Figure(f.WATCHERS, len(now.watches))

        def read_aside() -> Iterator[Figure]:
            yield from export_figures(sink.counters())
            yield Figure(f.DISK_FREE, shutil.disk_usage(self._settings.data_dir).free)

        self._port = MetricsPort(f.Role.CONTROLLER, read, read_aside)
        try:
            return self._port.open(self._settings.metrics_bind, https) or ""
        except OSError as error:
            raise PortTaken(parse_endpoint(self._settings.metrics_bind)) from error

    async def close(self) -> None:
        """Close the metrics port."""
        if self._port is not None:
            await asyncio.to_thread(self._port.close)
