"""Runs the controller: opens the store, begins a reign, serves, and stops after finishing its pending work.

Invariant: no call is served before the new controller epoch is durable; every way to end has an exit code
(`runtime.exit_codes`) and prints one line with the reason.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import grpc
import structlog

from strandline.controller.among import Alone, Among
from strandline.controller.driver import ControllerDriver
from strandline.controller.prober import Prober
from strandline.controller.seen import ControllerPlace, CountedSink, Seen, TimedCommits
from strandline.controller.servicer import SERVICE, ControllerServicer
from strandline.controller.settings import ControllerSettings
from strandline.controller.watches import Watches
from strandline.core import types
from strandline.core.control.controller import ControllerCore
from strandline.core.control.events import ControllerStarted
from strandline.core.control.state import ClusterState
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.truncation import historic_fault
from strandline.core.messages import Endpoint
from strandline.core.types import Rules
from strandline.export.log_lines import LogLines
from strandline.export.sink import EventSink
from strandline.metadata.sqlite import SqliteStore
from strandline.metadata.store import MetadataStore, StoreFailed, StoreInUse
from strandline.observe.controllers import ClockSamples, cluster_snapshots
from strandline.rpc.channels import parse_endpoint, target
from strandline.rpc.convert.metadata import CONTROLLER_ID, write_image
from strandline.rpc.convert.subscription import KnownController
from strandline.rpc.permissions import CallerRole
from strandline.rpc.server import HealthPort, RoleHealth, ServerSettings, bind, build_server, start_tokens
from strandline.rpc.tls import TLS_OFF, Tls, https_of, open_tls
from strandline.runtime.clock import monotonic_ms
from strandline.runtime.driver import Stop
from strandline.runtime.exit_codes import ExitCode, stop_process
from strandline.runtime.exporting import at_each_hour, exports, open_exports, tell
from strandline.runtime.process import LongLived, OwnTasks
from strandline.runtime.refusals import Audited
from strandline.runtime.settings import Authorization
from strandline.subscriptions.feed import MetadataFeed
from strandline.subscriptions.servicer import SERVICE as METADATA_SERVICE, MetadataServicer

ENDPOINT_NAME = "endpoint.json"
COPY_NAME = "backup.sqlite"
_SERVER_GRACE_S = 0.5

_log = structlog.get_logger("strandline.controller")


class ControllerProcess:
    """A controller in this process, from its store to its port."""

    def __init__(
        self, settings: ControllerSettings, *, store: MetadataStore | None = None, stop: Stop = stop_process
    ) -> None:
        self.settings = settings
        self.endpoint: Endpoint | None = None
        """The address for clients, and for nodes too unless they have their own."""
        self.internal: Endpoint | None = None
        self.health_endpoint: Endpoint | None = None
        self.health = RoleHealth([SERVICE, METADATA_SERVICE])
        self._health_port = HealthPort("controller", self.health)
        self._seen = Seen(settings)
        self.metrics_address = ""
        self._store: MetadataStore = store or SqliteStore(settings.data_dir)
        self._stop_process = stop
        self._tasks = OwnTasks(self._fail)
        self._store_in_doubt = asyncio.Event()
        self._stopped_serving_ms: int | None = None
        self._reigns = 0

    async def start(self) -> None:
        """Open the store, begin a reign, and serve.

        Raises:
            StoreFailed: the store cannot be used.
            PortTaken: the address is taken.
            ValueError: a given rule differs from the stored one, or the TLS files cannot be used (`TlsWrong`).
        """
        self._tls = self._open_tls()
        self._tokens = await start_tokens(self.settings.token_issuers, self._tls, self._tasks.own)
        self.health_endpoint = await self._health_port.open(self.settings.health_bind)
        state = await self._store.open()
        try:
            await self._begin(state)
        except BaseException:
            await self._store.close()
            raise

    async def _begin(self, state: ClusterState | None) -> None:
        settings = self.settings
        rules = self._rules(state)
        if self._tls is not None and state is not None:
            self._tls.must_be(CallerRole.CONTROLLER, cluster_id=state.header.cluster_id)
        if warning := rules.loss_warning:
            _log.warning(warning)
        self._bind()
        self._open_sink()
        core = ControllerCore(state, rules, settings.timings(), ClockSamples())
        self.driver = ControllerDriver(
            core,
            TimedCommits(self._store, self._seen.counts),
            clock=monotonic_ms,
            sink=CountedSink(self.audited, self._seen.counts),
            watches=Watches(settings.watch_backlog, write_image),
            stop=self._stop_process,
        )
        self.driver.on_stop_serving = lambda _reason: self._store_in_doubt.set()
        self.driver.on_refusal = self._seen.refused
        self.feed = MetadataFeed(
            age_ms=self._metadata_age_ms,
            controllers=self._known_controllers,
            clock=monotonic_ms,
            merge_ms=settings.watch_merge_ms,
        )
        self.driver.on_publish = self.feed.take
        self.prober = Prober(self.driver, settings.probe_deadline_ms)
        alone = Alone(
            lambda: (self._bound, self.internal or self._bound), lambda: self.driver.core.state.header.metadata_offset
        )
        self._serve(lambda: self.driver, alone)
        for server in self._servers:
            MetadataServicer(self.feed, self._authorization, lambda: self.audited.recent).add_to(server)
        await self._begin_reign(core)
        self._open_metrics(lambda: self.driver)
        self._tasks.own(self.driver.perform_forever())
        self._tasks.own(self.driver.tick_forever(settings.tick_ms))
        self._tasks.own(self._hourly())
        self._tasks.own(self._recover_forever())
        self._tasks.own(LongLived(lambda: self.driver.core.state.partition_count).look_forever())
        self._tasks.own(self._seen.refusals.tell_forever())
        for server in self._servers:
            await server.start()
        await self.health.set_serving(True)
        await self.health.set_ready(True)
        self._write_endpoint()
        _log.info("serving", address=target(self._bound), controller=repr(self.driver.core))

    def _open_sink(self) -> None:
        settings = self.settings
        self.sink = EventSink(
            settings.data_dir,
            {"role": "controller"},
            outlets=[LogLines(tell), *open_exports(settings, _log.warning, settings.data_dir)],
            ring_events=settings.export_ring_events,
            said=_log.warning,
            topic_name=self._topic_name,
            begun=False,
        )
        self.audited = Audited(self.sink.take)
        self._tasks.own(self.audited.pass_on_forever())

    def _serve(self, driver: Callable[[], ControllerDriver], among: Among) -> None:
        """Add ControllerService to the servers, which are not started yet; ``driver`` returns the active driver."""
        servicer = ControllerServicer(
            driver,
            among=among,
            alive_every_ms=self.settings.heartbeat_interval_ms,
            on_watch_ended=lambda watch: self.prober.suspect(watch),
        )
        for server in self._servers:
            servicer.add_to(server)

    def _place(self) -> ControllerPlace:
        """This controller's role and position, for its metrics."""
        return ControllerPlace(
            is_active=self.driver.core.serves, lag=0, reigns=self._reigns, is_store_up=self.driver.core.serves
        )

    def _open_metrics(self, driver: Callable[[], ControllerDriver | None]) -> None:
        self.metrics_address = self._seen.open(
            driver, self.sink, https_of(self._tls, wanted=self.settings.metrics_tls), self._place
        )

    def _rules(self, state: ClusterState | None) -> Rules:
        """The cluster's rules, if this release can serve the cluster.

        Raises:
            ValueError: it cannot; the message gives reason and remedy.
        """
        if state is not None:
            _refuse_newer(state)
            if fault := historic_fault(state.header.rules):
                raise ValueError(f"the store's rules cannot be served: {fault}")
        return self.settings.rules(state.header.rules if state else None)

    async def _begin_reign(self, core: ControllerCore) -> None:
        """Begin the next controller epoch; it is durable when this returns, before anything is served in it."""
        self.driver.begin(
            core,
            ControllerStarted(
                self.driver.clock(), self._id_of_a_new_cluster(), secrets.token_hex(32), secrets.token_hex(16)
            ),
        )
        await self.driver.perform_pending()
        self._reigns += 1
        header = core.state.header
        self.sink.know(controller_epoch=header.controller_epoch)
        self.sink.begin(header.cluster_id, header.controller_epoch)
        self.feed.take(core.state.snapshot())
        self._stopped_serving_ms = None
        self._tell_state()

    async def _recover_forever(self) -> None:
        """Close a store that is older than the cluster, wait until `recover` has replaced it, and begin a new reign."""
        while True:
            await self._store_in_doubt.wait()
            self._store_in_doubt.clear()
            self._stopped_serving_ms = monotonic_ms()
            await self.health.set_serving(False)
            await self.driver.perform_pending()
            state = await self._store.reopened()
            await self._begin_reign(ControllerCore(state, self._rules(state), self.settings.timings(), ClockSamples()))
            await self.health.set_serving(True)
            _log.info("serving again", controller=repr(self.driver.core))

    def _metadata_age_ms(self) -> int:
        """The age of the served metadata in ms; 0 while this controller decides (C62)."""
        return 0 if self._stopped_serving_ms is None else monotonic_ms() - self._stopped_serving_ms

    def _known_controllers(self) -> tuple[KnownController, ...]:
        return (KnownController(CONTROLLER_ID, client=self.endpoint, internal=self.internal),)

    async def _hourly(self) -> None:
        await at_each_hour(self._tell_state)

    def _tell_state(self) -> None:
        for snapshot in cluster_snapshots(self.driver.core.state):
            self.sink.take(snapshot.tp, snapshot.event)

    def _topic_name(self, topic_id: str) -> str | None:
        topic = self.driver.core.state.topics.get(topic_id)
        return topic.name if topic else None

    def _bind(self) -> None:
        settings = self.settings
        nodes_have_their_own = bool(settings.internal_bind)
        self._servers: list[grpc.aio.Server] = []
        self.endpoint = self.internal = self._bind_one(
            settings.bind, for_nodes=not nodes_have_their_own, for_clients=True
        )
        if nodes_have_their_own:
            self.internal = self._bind_one(settings.internal_bind, for_nodes=True, for_clients=False)

    def _bind_one(self, address: str, *, for_nodes: bool, for_clients: bool) -> Endpoint:
        settings = self.settings
        keepalive = settings.keepalive() if for_nodes else None
        chosen = ServerSettings(
            name="controller",
            reflection=settings.reflection,
            internal_keepalive=keepalive,
            on_refusal=self._seen.refused,
            audit=lambda event: self.audited.tell(event),
        )
        acls = (lambda: self.feed.history.acls) if settings.authorization is Authorization.ACL else None
        tokens = self._tokens if for_clients else None
        server = build_server(chosen, tls=self._tls, acls=acls, tokens=tokens)
        self.health.attach(server, with_reflection=settings.reflection)
        self._servers.append(server)
        return bind(server, parse_endpoint(address), tls=self._tls, takes_tokens=tokens is not None)

    def _open_tls(self) -> Tls | None:
        tls = open_tls(self.settings.tls_cert, self.settings.tls_key, self.settings.tls_ca)
        if tls is None:
            _log.info(TLS_OFF)
        else:
            tls.must_be(CallerRole.CONTROLLER)
        return tls

    @property
    def _authorization(self) -> str:
        return self.settings.authorization if self._tls is not None else ""

    def _id_of_a_new_cluster(self) -> str:
        """The id for a new cluster. With TLS it is the one in the certificates, which were made before the cluster."""
        return self._tls.identity.cluster if self._tls is not None else str(uuid.uuid4())

    @property
    def _bound(self) -> Endpoint:
        assert self.endpoint is not None, "the port is bound before its address is published"
        return self.endpoint

    def _write_endpoint(self) -> None:
        content = {"pid": os.getpid(), "client": target(self._bound), "internal": target(self.internal or self._bound)}
        if self.health_endpoint is not None:
            content["health"] = target(self.health_endpoint)
        if self.metrics_address:
            content["metrics"] = self.metrics_address
        _replace_text(self.settings.data_dir / ENDPOINT_NAME, json.dumps(content) + "\n")

    def _fail(self, error: BaseException) -> NoReturn:
        """End the process, because a background task ended with an exception."""
        self.driver.fail(error)

    async def copy_store(self) -> None:
        """Write a copy of the store into its directory; a failure is only logged."""
        if not self.driver.core.serves:
            _log.warning("store not copied", reason="it is older than the cluster")
            return
        try:
            await self._store.copy_to(self.settings.data_dir / COPY_NAME)
        except StoreFailed as error:
            _log.warning("store not copied", reason=str(error))
        else:
            _log.info("store copied", file=str(self.settings.data_dir / COPY_NAME))

    async def shut_down(self) -> ExitCode:
        """Stop serving, finish pending work, close the store. Nodes keep their roles meanwhile."""
        await self.health.set_serving(False)
        await self.prober.close()
        self.driver.watches.end_all(Refusal(ErrorCode.NETWORK_EXCEPTION, "the controller stops; reconnect"))
        self.feed.close()
        await self._stop_servers()
        await self.driver.perform_pending()
        await self._store.close()
        await self._close_the_rest()
        return ExitCode.CLEAN

    async def _stop_servers(self) -> None:
        """Stop the servers and the background tasks."""
        await asyncio.gather(*(server.stop(_SERVER_GRACE_S) for server in self._servers))
        await self._tasks.close()

    async def _close_the_rest(self) -> None:
        self.audited.pass_on()
        self.sink.close()
        if exports(self.settings):
            _log.info("export closed", **self.sink.counters().metrics())
        await self._seen.close()
        await self._health_port.close()
        _log.info("stopped")


def _refuse_newer(state: ClusterState) -> None:
    """Refuse a cluster that uses features which this release does not know.

    Raises:
        ValueError: the cluster's feature level is above this release's.
    """
    if state.header.feature_level > types.HIGHEST:
        raise ValueError(
            f"the cluster is at feature level {state.header.feature_level}, beyond {types.HIGHEST}, the "
            f"highest of this release; roll back the nodes first, the controller last, or start the newer release"
        )


def _replace_text(path: Path, text: str) -> None:
    """Replace a small file atomically: readers see either the old or the new one.

    Raises:
        StoreFailed: it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written: {error.strerror}; look at the disk") from error


# ---- directory_lock
# The lock on a data directory, so that only one process uses it, for a controller whose store is elsewhere.
#
# Invariant: the lock ends together with its process, however that ends.


class DirectoryLock:
    """The lock of one directory, held until `release`."""

    def __init__(self, data_dir: Path) -> None:
        """Take the lock.

        Raises:
            StoreInUse: another process holds it.
        """
        data_dir.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise StoreInUse(f"data_dir {data_dir} is in use by another controller; give each its own") from error

    def release(self) -> None:
        """Release the lock."""
        os.close(self._handle)
