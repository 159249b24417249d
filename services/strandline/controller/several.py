"""The process of one controller among several: it starts as a standby, and is active when `core.reigns` decides so.

Invariant: one process can go from standby to active and back; only counters survive the end of a reign.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Coroutine
from typing import Any, NoReturn

import structlog

from strandline.controller.among import ServedCopy
from strandline.controller.driver import ControllerDriver
from strandline.controller.prober import Prober
from strandline.controller.process import ControllerProcess, DirectoryLock
from strandline.controller.reigning import Reigning
from strandline.controller.seen import ControllerPlace, CountedSink, TimedCommits
from strandline.controller.servicer import SERVICE
from strandline.controller.settings import ControllerSettings
from strandline.controller.store_health import SeenPosition
from strandline.controller.tools.etcd_access import EtcdAccess
from strandline.controller.watches import Watches
from strandline.core.control.controller import ControllerCore
from strandline.core.control.events import ControllerStarted
from strandline.core.control.state import ClusterState
from strandline.core.reigns.lease import ReignTimings
from strandline.core.reigns.reign import ReignCore
from strandline.core.state_events import StateEvent
from strandline.etcd.client import Etcd
from strandline.etcd.errors import EtcdError
from strandline.metadata.etcd import EtcdStore, too_old
from strandline.metadata.etcd_layout import Presence
from strandline.metadata.store import StoreFailed, StoreInUse
from strandline.observe.controllers import ClockSamples
from strandline.rpc.channels import Channels, advertised, target
from strandline.rpc.convert.metadata import write_image
from strandline.rpc.permissions import CallerRole
from strandline.rpc.server import start_tokens
from strandline.runtime.clock import monotonic_ms
from strandline.runtime.driver import Stop
from strandline.runtime.exit_codes import ExitCode, stop_process
from strandline.runtime.process import LongLived
from strandline.subscriptions.servicer import MetadataServicer

_FIRST_ANSWER_S = 10.0
_HAND_OVER_S = 3.0

_log = structlog.get_logger("strandline.controller")


class SeveralProcess(ControllerProcess):
    """A controller in this process, with etcd as its store."""

    def __init__(self, settings: ControllerSettings, *, stop: Stop = stop_process) -> None:
        super().__init__(settings, stop=stop)
        self._current: ControllerDriver | None = None
        self._lock: DirectoryLock | None = None
        self._reigning: Reigning | None = None
        self._background: set[asyncio.Task[None]] = set()

    @property
    def reigning(self) -> Reigning:
        """The part that decides whether this process is active."""
        assert self._reigning is not None, "the process has not started"
        return self._reigning

    async def start(self) -> None:
        """Open the store, follow it, and serve as a standby.

        Raises:
            StoreInUse: another process uses this directory, or this controller's id.
            StoreFailed: etcd does not answer, is too old, refuses this controller, or belongs to another cluster.
            PortTaken: the address is taken.
            ValueError: the TLS files or the password cannot be used.
        """
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        self._tls = self._open_tls()
        self._tokens = await start_tokens(settings.token_issuers, self._tls, self._tasks.own)
        self._lock = DirectoryLock(settings.data_dir)
        self.health_endpoint = await self._health_port.open(settings.health_bind)
        store = EtcdStore(
            _etcd(settings), settings.etcd_prefix, part_bytes=settings.part_bytes,
            snapshot_every=settings.log_snapshot_every,
        )  # fmt: skip
        try:
            await self._begin_among_several(store)
        except BaseException:
            await store.close()
            self._lock.release()
            raise

    async def _begin_among_several(self, store: EtcdStore) -> None:
        settings = self.settings
        seen = SeenPosition(settings.data_dir)
        self.cluster_id = await self._open_store(store, seen)
        if self._tls is not None:
            self._tls.must_be(CallerRole.CONTROLLER, cluster_id=self.cluster_id)
        controller_id = settings.controller_id or socket.gethostname()
        incarnation_id = f"{seen.position.directory_id}.{secrets.token_hex(8)}"
        await _refuse_taken_id(store, controller_id, seen.position.directory_id)
        self._bind()
        presence = Presence(
            controller_id,
            incarnation_id,
            advertised(settings.advertise, self._bound),
            advertised(settings.internal_advertise, self.internal or self._bound),
        )
        self._open_sink()
        timings = ReignTimings(lease_ms=settings.reign_lease_s * 1000)
        core = ReignCore(controller_id, incarnation_id, timings, seen_revision=seen.revision_of(store.etcd.cluster_id))
        self._channels = Channels(keepalive=settings.keepalive(), tls=self._tls)
        self._reigning = Reigning(
            core,
            store,
            presence,
            process=self,
            seen=seen,
            channels=self._channels,
            clock=monotonic_ms,
            fail=self._fail,
            tick_ms=settings.tick_ms,
        )
        self.served = served = ServedCopy(
            store, decides=lambda: core.serves(monotonic_ms()), clock=monotonic_ms, merge_ms=settings.watch_merge_ms
        )
        self.reigning.questions.on_head_read = served.head_read
        self.feed = served.feed
        self._serve(self.reigning.deciding, self.reigning)
        for server in self._servers:
            MetadataServicer(self.feed, self._authorization, lambda: self.audited.recent).add_to(server)
        self._open_metrics(lambda: self._current)
        for server in self._servers:
            await server.start()
        await self.health.set_serving(True)
        await self.health.set_service(SERVICE, False)
        await self.health.set_ready(True)
        self._write_endpoint()
        self.reigning.begin()
        self._tasks.own(served.learn_controllers_forever())
        self._tasks.own(self._seen.refusals.tell_forever())
        self._tasks.own(self._hourly())
        self._tasks.own(
            LongLived(lambda: self._current.core.state.partition_count if self._current else 0).look_forever()
        )
        _log.info("ready", address=target(self._bound), controller_id=controller_id, cluster_id=self.cluster_id)

    async def _open_store(self, store: EtcdStore, seen: SeenPosition) -> str:
        """Open the store, check that it has not gone back, and return the cluster's id."""
        try:
            await store.etcd.until_serving(_FIRST_ANSWER_S)
            health = await store.health()
        except EtcdError as error:
            raise StoreFailed(f"{error}; start etcd, or correct etcd_endpoints and what goes with them") from error
        if why := too_old(health.versions, floor=False):
            raise StoreFailed(why)
        if why := too_old(health.versions, floor=True):
            _log.warning(why)
        cluster_id = await store.open(self._id_of_a_new_cluster())
        view = await store.read()
        seen.check(cluster_id, store.etcd.cluster_id, view.revision, view.head)
        seen.note(store.etcd.cluster_id, view.revision, view.head)
        return cluster_id

    # The methods of `reigning.Reigns`.

    def start_core(self, state: ClusterState | None) -> ControllerDriver:
        """See `Reigns.start_core`."""
        settings = self.settings
        try:
            rules = self._rules(state)
        except ValueError as error:
            self._stop_process(ExitCode.USAGE, str(error))
        core = ControllerCore(state, rules, settings.timings(), ClockSamples())
        driver = ControllerDriver(
            core,
            TimedCommits(self.reigning.store_of_reign(), self._seen.counts),
            clock=monotonic_ms,
            sink=CountedSink(self.audited, self._seen.counts),
            watches=Watches(settings.watch_backlog, write_image),
            stop=self._stop_process,
        )
        driver.on_refusal = self._seen.refused
        driver.on_stop_serving = self._store_is_older
        self.driver = self._current = driver
        self.prober = Prober(driver, settings.probe_deadline_ms)
        driver.begin(
            core, ControllerStarted(driver.clock(), self.cluster_id, secrets.token_hex(32), self.reigning.reign_id)
        )
        return driver

    def _store_is_older(self, reason: str) -> None:
        # Not within the core's step that reports it.
        self._loop.call_soon(self.reigning.store_is_older, reason)

    def doors_opened(self, *, first: bool) -> None:
        """See `Reigns.doors_opened`."""
        self._aside(self.health.set_service(SERVICE, True))
        if first:
            header = self.driver.core.state.header
            self.sink.know(controller_epoch=header.controller_epoch)
            self.sink.begin(header.cluster_id, header.controller_epoch)
            self._tell_state()
            self.prober.look_at_all()
            _log.info("deciding", controller=repr(self.driver.core))

    def doors_closed(self) -> None:
        """See `Reigns.doors_closed`."""
        self._aside(self.health.set_service(SERVICE, False))

    def core_dropped(self) -> None:
        """See `Reigns.core_dropped`."""
        self._current = None
        self._aside(self.prober.close())

    def tell(self, event: StateEvent) -> None:
        """See `Reigns.tell`."""
        CountedSink(self.sink, self._seen.counts).take(None, event)

    async def shut_down(self) -> ExitCode:
        """Hand over if this controller is active, then stop serving."""
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                await self.reigning.hand_over(then_stop=True)
        except TimeoutError:
            _log.warning("the key is left to its lease: the store did not answer in time")
        await self.health.set_serving(False)
        self.feed.close()
        await self._stop_servers()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.reigning.close()
        await self._channels.close()
        if self._lock is not None:
            self._lock.release()
        await self._close_the_rest()
        return ExitCode.CLEAN

    def _fail(self, error: BaseException) -> NoReturn:
        if isinstance(error, StoreFailed):
            self._stop_process(ExitCode.STORAGE_FAILED, str(error))
        code = ExitCode.INVARIANT_BROKEN if isinstance(error, AssertionError) else ExitCode.FAILED
        self._stop_process(code, f"{type(error).__name__}: {error}")

    def _place(self) -> ControllerPlace:
        reigning = self.reigning
        health = reigning.health.last
        core, applied = reigning.core, reigning.store.applied
        lag = 0
        if applied is not None and not core.is_ready(monotonic_ms()):
            lag = max(0, reigning.questions.last_offset - applied.offset)
        return ControllerPlace(
            is_active=core.serves(monotonic_ms()),
            lag=lag,
            reigns=reigning.reigns_begun,
            is_store_up=reigning.questions.is_store_up,
            store_bytes=health.db_bytes if health is not None else None,
            # etcd releases before 3.6 do not report their quota.
            quota_bytes=(health.quota_bytes if health is not None else 0) or self.settings.etcd_quota_bytes,
        )

    async def copy_store(self) -> None:
        """See `ControllerProcess.copy_store`; not needed here, because any process can read etcd."""
        _log.warning("store not copied", reason="it is in etcd; use `controller backup --etcd-endpoints`")

    def _topic_name(self, topic_id: str) -> str | None:
        return super()._topic_name(topic_id) if self._current is not None else None

    def _tell_state(self) -> None:
        if self._current is not None:
            super()._tell_state()

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _refuse_taken_id(store: EtcdStore, controller_id: str, directory_id: str) -> None:
    for other in await store.controllers():
        if other.controller_id == controller_id and not other.incarnation_id.startswith(f"{directory_id}."):
            raise StoreInUse(
                f"controller_id {controller_id} is in use by a controller at {target(other.client)} with another "
                f"data_dir; give each controller its own id. If none is there, this data_dir was emptied, or etcd was "
                f"restored with the entry of an earlier process: it ends with its lease, so start again then"
            )


def _etcd(settings: ControllerSettings) -> Etcd:
    access = EtcdAccess(
        members=settings.members(),
        ca=settings.etcd_ca,
        cert=settings.etcd_cert,
        key=settings.etcd_key,
        user=settings.etcd_user,
        password_file=settings.etcd_password_file,
    )
    return access.client()
