"""Assembles one data node and decides the order of its start and its stop.

Invariant: a node registers only after every log is recovered and durable (M56, TR17), serves only metadata before it is
registered, and marks its directory clean only after everything in it is durable.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NoReturn

import grpc
import structlog

from strandline.core import types
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.core.coordinator.machine import Reports
from strandline.core.coordinator.serving import Coordinators
from strandline.core.errors import Refused
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.reporting import GroupReporting
from strandline.core.log.effects import Emit
from strandline.core.log.events import StopRequested, Ticked
from strandline.core.log.node import NodeCore
from strandline.core.log.truncation import historic_fault
from strandline.core.messages import Endpoint, EpochsSeen, MetadataImage, NodeRegistered, RegisterNode
from strandline.core.permissions import Acls
from strandline.core.positions import newest_in
from strandline.core.quotas import Meters
from strandline.core.state_events import ConfigChange
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.reporting import TransactionReporting
from strandline.core.types import Durability, NodeEpoch, NodeId
from strandline.export.log_lines import LogLines
from strandline.export.sink import EventSink
from strandline.node.dialing import DialledLeaders, FollowerSettings
from strandline.node.follower import SERVICE as FOLLOWER_SERVICE, FollowerServicer
from strandline.node.groups import SERVICE as GROUP_SERVICE, GroupServicer
from strandline.node.leader import SERVICE as LEADER_SERVICE, LeaderServicer
from strandline.node.leader_links import LeaderLinks
from strandline.node.logs import DirectoryLogs
from strandline.node.producer_ids import ProducerIds
from strandline.node.seen import Readiness, Seen, following, tell_following
from strandline.node.settings import ReplicaSettings
from strandline.node.shard_calls import ShardCalls
from strandline.node.transactions import (
    SERVICE as TRANSACTION_SERVICE,
    DialledTransactionPeers,
    MetadataPlaces,
    TransactionServicer,
)
from strandline.observe.reporting import Reporting
from strandline.observe.samples import leader_snapshot
from strandline.rpc.channels import Backoff, Keepalive, advertised, parse_endpoint, target
from strandline.rpc.controller_link import ControllerLink
from strandline.rpc.convert.coordinator_records import ProtoRecords
from strandline.rpc.convert.metadata import CONTROLLER_ID
from strandline.rpc.convert.subscription import KnownController
from strandline.rpc.interceptors import BeforeRegistration
from strandline.rpc.permissions import CallerRole
from strandline.rpc.permitted import sees_every_topic
from strandline.rpc.server import HealthPort, RoleHealth, ServerSettings, bind, build_server, start_tokens
from strandline.rpc.throttling import QuotaInterceptor, Throttle
from strandline.rpc.tls import TLS_OFF, Tls, https_of, open_tls
from strandline.runtime.clock import mono_us, monotonic_ms, wall_ms
from strandline.runtime.driver import Driver, Stop
from strandline.runtime.exit_codes import ExitCode, stop_process
from strandline.runtime.exporting import at_each_hour, exports, open_exports, tell
from strandline.runtime.host import Host, TopicDirectory
from strandline.runtime.log_performers import Flusher
from strandline.runtime.patterns import Re2Patterns
from strandline.runtime.performers import Performers
from strandline.runtime.ports import Core
from strandline.runtime.process import LongLived, OwnTasks, started_ticks
from strandline.runtime.refusals import Audited
from strandline.runtime.session import Session
from strandline.runtime.settings import Authorization
from strandline.runtime.threads import Coordinating, Lookups, OwnThreads, leave_to_counts
from strandline.runtime.transaction_links import TransactionLinks
from strandline.storage.directory import DataDirectory, OpenedLog
from strandline.storage.disk import StorageDamaged, StorageFailed, replace_file
from strandline.storage.log import LogSettings
from strandline.subscriptions.feed import SERVICE as CONTROLLER_SERVICE, ControllerElsewhere, MetadataFeed
from strandline.subscriptions.servicer import SERVICE as METADATA_SERVICE, MetadataServicer

ENDPOINT_NAME = "endpoint.json"
_SERVERS_GRACE_S = 0.5
_OPEN_SERVICES = frozenset(
    {
        METADATA_SERVICE,
        CONTROLLER_SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
)
"""Services that are served before the node is registered; ControllerService only refuses, and names the controllers."""
_FLUSH_DEADLINE_S = 5.0
_STRAYS_EVERY_S = 10.0

_log = structlog.get_logger("strandline.replica")


class ReplicaNode:
    """A data node in this process, from its directory to its ports."""

    def __init__(self, settings: ReplicaSettings, directory: DataDirectory, *, stop: Stop = stop_process) -> None:
        self.settings = settings
        self.directory = directory
        self._stop_process = stop
        self.logs = DirectoryLogs(
            directory,
            LogSettings(segment_bytes=settings.segment_bytes, durable=settings.durability is Durability.FSYNC),
        )
        self.client: Endpoint | None = None
        self.internal: Endpoint | None = None
        self.health_endpoint: Endpoint | None = None
        self.health = RoleHealth(
            [LEADER_SERVICE, FOLLOWER_SERVICE, GROUP_SERVICE, TRANSACTION_SERVICE, METADATA_SERVICE]
        )
        self._health_port = HealthPort(f"node-{settings.node_id}", self.health)
        self._seen = Seen(settings)
        self.metrics_address = ""
        self._patterns = Re2Patterns()
        self._servers: list[grpc.aio.Server] = []
        self._tasks = OwnTasks(lambda error: self.driver.fail(error))

    async def start(self) -> None:
        """Recover, register, serve.

        Raises:
            PortTaken: an address is taken.
            TlsWrong: the files for TLS or tokens cannot be used, or name another node.
        """
        if warning := self.settings.rules().loss_warning:
            _log.warning(warning, node_id=self.settings.node_id)
        self._tls = self._open_tls()
        self._tokens = await start_tokens(self.settings.token_issuers, self._tls, self._tasks.own)
        self.health_endpoint = await self._health_port.open(self.settings.health_bind)
        seen = self.logs.stored_metadata()
        if seen is not None and (fault := historic_fault(seen.rules)):
            self._stop(ExitCode.REFUSED, f"the rules that this directory was written under cannot be served: {fault}")
        await asyncio.to_thread(self.logs.open_all, _say_progress)
        self._wire(seen)
        self._bind()
        self.metrics_address = self._seen.open(
            self._core,
            self.host,
            self._performers,
            self.readiness,
            self.sink,
            self.feed,
            self.throttle.meters,
            https_of(self._tls, wanted=self.settings.metrics_tls),
            partial(sees_every_topic, self._acls) if self._acls and self.settings.metrics_per_partition else None,
        )
        for server in self._servers:
            await server.start()
        answer = await self.session.register(self._registration(seen))
        self._adopt(answer)
        assert answer.node_epoch is not None, "a registration without refusal gives a node epoch"
        self.sink.know(controller_epoch=answer.controller_epoch)
        self.sink.begin(answer.cluster_id, answer.node_epoch)
        self.sink.take(None, ConfigChange(lag_time_max_ms=self.settings.replica_lag_time_max_ms))
        self._write_endpoint(answer.node_epoch)
        self.session.begin(answer)
        # The controller has stored the unclean registration, so the mark is no longer needed.
        if self.directory.is_unclean:
            self.directory.clear_unclean()
        self._tasks.own(self.driver.tick_forever(self.settings.tick_ms, lambda: self.driver.core.due_ms))
        self._tasks.own(self.session.beat_forever())
        self._tasks.own(self.session.watch_forever())
        self._tasks.own(self.producer_ids.keep_forever())
        self._tasks.own(at_each_hour(self._tell_state))
        self._tasks.own(self._audited.pass_on_forever())
        self._tasks.own(self._remove_strays())
        await self.health.set_serving(True)
        self._tasks.own(self.readiness.tell_forever())
        self._tasks.own(self._seen.look_forever(self._core))
        self._tasks.own(LongLived(self._count_roles).look_forever())
        _log.info("serving", node_id=self.settings.node_id, node_epoch=answer.node_epoch, **self._addresses())

    def _count_roles(self) -> int:
        state = self._core.state
        return len(state.logs) + len(state.leaders) + len(state.followers)

    def _wire(self, seen: MetadataImage | None) -> None:
        settings = self.settings
        core = self._core = NodeCore(
            node_id=NodeId(settings.node_id),
            rules=settings.rules(),
            timings=settings.timings(),
            seen=seen,
            observe=Reporting,
            coordinators=Coordinators(
                codec=ProtoRecords(),
                machines={GROUP_STATE: self._groups_of_partition, TRANSACTION_STATE: self._transactions_of_partition},
            ),
        )
        self.driver: Driver[Core] = Driver(
            core,
            calls=self._seen.calls,
            fatal={StorageFailed: ExitCode.STORAGE_FAILED, StorageDamaged: ExitCode.STORAGE_DAMAGED},
            stop=self._stop,
            tick=lambda now_ms: Ticked(now_ms, wall_ms()),
        )
        self.host = Host(
            node_id=core.state.node_id,
            driver=self.driver,
            topics=TopicDirectory(),
            sizes=self.logs,
            low_space=self.directory.space.low_space,
        )
        self.flusher = Flusher(
            self.logs,
            self.driver.step,
            self.driver.fail,
            monotonic_ms,
            threads=OwnThreads("fsync", settings.fsync_threads),
            observed=self._seen.synced,
        )
        self._wire_peers()
        self.sink = EventSink(
            self.directory.path,
            {"node_id": settings.node_id},
            outlets=[LogLines(tell), *open_exports(settings, _log.warning, self.directory.path)],
            ring_events=settings.export_ring_events,
            said=_log.warning,
            topic_name=core.state.topic_names.get,
            begun=False,
        )
        self._audited = Audited(self.sink.take)
        self.throttle = Throttle(Meters(settings.quota_burst_s * 1_000), monotonic_ms)
        self.throttle.know((seen.quotas if seen else None) or ())
        self.feed = self._feed(seen)
        self._wire_effects(core)

    def _wire_peers(self) -> None:
        settings = self.settings
        keepalive = Keepalive(ping_every_ms=settings.ping_every_ms, ping_timeout_ms=settings.ping_timeout_ms)
        self.controller = ControllerLink(settings.bootstrap(), keepalive=keepalive, tls=self._tls)
        self.session = Session(
            self.controller,
            self.host,
            stop=self._stop,
            backoff=Backoff,
            oldest_sync_ms=self.flusher.oldest_ms,
        )
        create_topic = self.controller.create_internal_topic
        self._transaction_shards = ShardCalls(self.host, TRANSACTION_STATE, create_topic)
        self.groups = GroupServicer(
            self.host, create_topic, self._transaction_shards, on_commit=self._seen.offsets_committed
        )
        self._transactions = TransactionServicer(self.host, self._transaction_shards)
        self._leader = LeaderServicer(self.host)
        self._transaction_peers = DialledTransactionPeers(
            self.host,
            add_here=self._transactions.add_partitions,
            write_here=self._leader.write_markers,
            keepalive=keepalive,
            tls=self._tls,
        )
        places = MetadataPlaces(self.host, self._transaction_shards)
        self.transaction_links = TransactionLinks(self.driver, places, self._transaction_peers)
        self.producer_ids = ProducerIds(self.controller, self.host, backoff=Backoff)
        self.readiness = Readiness(
            self._core.state,
            self.health,
            metadata_offset=lambda: self.host.topics.metadata_offset,
            is_fenced=lambda: self.session.is_fenced,
        )
        dialled = FollowerSettings(ping_every_ms=settings.ping_every_ms, ping_timeout_ms=settings.ping_timeout_ms)
        self.peers = LeaderLinks(self.host, DialledLeaders(self.host, dialled, tls=self._tls), backoff=dialled.backoff)

    def _wire_effects(self, core: NodeCore) -> None:
        self._lookups = Lookups(self.logs, self.driver.calls, self.host.unpacking, monotonic_ms, self.driver.fail)
        coordinating = Coordinating(self.logs, self.driver.step, self.driver.fail, monotonic_ms, loaded=leave_to_counts)
        self._performers = Performers(
            logs=self.logs,
            flusher=self.flusher,
            peers=self.peers,
            calls=self.driver.calls,
            reporter=_Reporter(self.sink),
            clock=monotonic_ms,
            session=self.session,
            believe=self._believe,
            look_up=self._lookups.begin,
            coordinating=coordinating,
            transactions=self.transaction_links,
        )
        self.driver.attach(self._seen.around(self._performers.table, core.state.topic_names), self.logs.sync_saves)

    def _believe(self, image: MetadataImage) -> None:
        """Apply metadata that the core has accepted, before any effect that follows from it."""
        # It compares the image with the topic directory, which the session changes afterwards.
        if lines := list(following(self.host.node_id, self.host.topics.partition, image)):
            # Logged in a thread, so that following thousands of partitions at once does not block the event loop.
            asyncio.get_running_loop().run_in_executor(None, tell_following, self.host.node_id, lines)
        self.session.believe(image)
        self.feed.take(image)
        if image.is_snapshot or image.quotas is not None:
            self.throttle.know(image.quotas or ())
        self.sink.know(controller_epoch=image.controller_epoch)
        self.logs.learn_configs(image)
        self.logs.set_aside_moved(image)
        self.peers.drop_stale()
        self._transaction_peers.drop_stale()

    def _groups_of_partition(self, reports: Reports) -> GroupMachine:
        reporting = GroupReporting(reports, samples=self.settings.timings().sample_min_ms > 0)
        return GroupMachine(self._patterns, self.settings.groups(), reporting)

    def _transactions_of_partition(self, reports: Reports) -> TransactionMachine:
        settings = self.settings.transactions()
        return TransactionMachine(reports, self.producer_ids, settings, TransactionReporting(reports))

    def _feed(self, seen: MetadataImage | None) -> MetadataFeed:
        """The feed for subscribers; until the first image of the controller it has the stored metadata (C65)."""
        begun_ms, stored_age_ms = monotonic_ms(), self.logs.stored_metadata_age_ms()

        def age_ms() -> int:
            heard_us = self.session.heard_us
            if heard_us is None:
                return stored_age_ms + monotonic_ms() - begun_ms
            return max(0, mono_us() - heard_us) // 1_000

        feed = MetadataFeed(
            age_ms=age_ms,
            controllers=self._known_controllers,
            clock=monotonic_ms,
            merge_ms=self.settings.watch_merge_ms,
            node_id=self.host.node_id,
        )
        if seen is not None:
            feed.take(seen)
        return feed

    def _known_controllers(self) -> tuple[KnownController, ...]:
        # The addresses in the settings, which are known to be reachable from nodes.
        return tuple(KnownController(CONTROLLER_ID, internal=endpoint) for endpoint in self.settings.bootstrap())

    def _tell_state(self) -> None:
        for leader in self._core.state.leaders.values():
            snapshot = leader_snapshot(leader)
            self.sink.take(snapshot.tp, snapshot.event)

    async def _remove_strays(self) -> None:
        """Periodically remove logs of moved partitions that were kept long enough (C78)."""
        while True:
            is_space_low = self.host.low_space(monotonic_ms()) is not None
            await asyncio.to_thread(
                self.directory.strays.remove_due, self.settings.stray_keep_ms, is_space_low=is_space_low
            )
            await asyncio.sleep(_STRAYS_EVERY_S)

    def _bind(self) -> None:
        settings = self.settings
        keepalive = Keepalive(ping_every_ms=settings.ping_every_ms, ping_timeout_ms=settings.ping_timeout_ms)
        name = f"node-{settings.node_id}"
        shared = ServerSettings(
            name=name, reflection=settings.reflection, on_refusal=self._seen.refused, audit=self._audited.tell
        )
        gate = BeforeRegistration(_OPEN_SERVICES, lambda: self.host.node_epoch is not None)
        gates = [gate, QuotaInterceptor(self.throttle)]
        client = build_server(shared, gates, tls=self._tls, acls=self._acls, tokens=self._tokens)
        # Without TLS the internal port cannot tell nodes from clients, and nodes must never be throttled.
        gates = [gate] if self._tls is None else gates
        internal = build_server(replace(shared, internal_keepalive=keepalive), gates, tls=self._tls, acls=self._acls)
        authorization = settings.authorization if self._tls is not None else ""
        for server in (client, internal):
            self._leader.add_to(server)
            FollowerServicer(self.host).add_to(server)
            self.groups.add_to(server)
            self._transactions.add_to(server)
            MetadataServicer(self.feed, authorization, lambda: self._audited.recent).add_to(server)
            ControllerElsewhere(self._known_controllers, self.producer_ids.give).add_to(server)
            self.health.attach(server, with_reflection=settings.reflection)
        self._servers = [client, internal]
        takes_tokens = self._tokens is not None
        self.client = bind(client, parse_endpoint(settings.bind), tls=self._tls, takes_tokens=takes_tokens)
        self.internal = bind(internal, parse_endpoint(settings.internal_bind), tls=self._tls)

    @property
    def _acls(self) -> Callable[[], Acls] | None:
        """Returns the current access rules; None if this process enforces none."""
        return (lambda: self.feed.history.acls) if self.settings.authorization is Authorization.ACL else None

    def _open_tls(self) -> Tls | None:
        settings, identity = self.settings, self.directory.identity
        tls = open_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)
        if tls is None:
            _log.info(TLS_OFF, node_id=settings.node_id)
        else:
            tls.must_be(CallerRole.REPLICA, name=str(settings.node_id), cluster_id=identity.cluster_id)
        return tls

    def _registration(self, seen: MetadataImage | None) -> RegisterNode:
        assert self.client is not None and self.internal is not None, "ports are bound before registration"
        identity = self.directory.identity
        incarnation_id = self._incarnation_id = str(uuid.uuid4())
        return RegisterNode(
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=incarnation_id,
            directory_id=identity.directory_id,
            roles=self.settings.role_set(),
            rules=self.settings.rules(),
            client_endpoint=advertised(self.settings.advertise, self.client),
            internal_endpoint=advertised(self.settings.internal_advertise, self.internal),
            rack=self.settings.rack or None,
            feature_min=types.LOWEST,
            feature_max=types.HIGHEST,
            unclean=self.directory.is_unclean,
            controller_epoch_seen=seen.controller_epoch if seen else None,
            epochs_seen=_epochs_seen(seen),
            known_incarnations=self.directory.begin_incarnation(incarnation_id),
            position=newest_in(seen) if seen else None,
            topics_position=seen.place if seen else None,
        )

    def _adopt(self, answer: NodeRegistered) -> None:
        """Bind the directory to the cluster, because the controller has registered it."""
        try:
            self.directory.adopt_cluster(answer.cluster_id)
        except Refused as error:
            self._stop(ExitCode.REFUSED, str(error))
        self.directory.confirm_incarnation(self._incarnation_id)

    def _write_endpoint(self, node_epoch: NodeEpoch) -> None:
        # Identifies the process for commands on the same machine: in containers every service is process 1.
        own = {"pid": os.getpid(), "started_ticks": started_ticks(os.getpid()), "node_epoch": node_epoch}
        content = {**own, **self._addresses(), "node_id": self.settings.node_id}
        replace_file(self.directory.path / ENDPOINT_NAME, (json.dumps(content) + "\n").encode(), durable=False)

    def _addresses(self) -> dict[str, str]:
        assert self.client is not None and self.internal is not None, "ports are bound before they are reported"
        addresses = {"client": target(self.client), "internal": target(self.internal), "metrics": self.metrics_address}
        if self.health_endpoint is not None:
            addresses["health"] = target(self.health_endpoint)
        return {name: address for name, address in addresses.items() if address}

    def _stop(self, code: ExitCode, line: str) -> NoReturn:
        """Record damage in the directory, then end the process."""
        if code is ExitCode.STORAGE_DAMAGED:
            try:
                self.directory.mark_unclean(line)
            except StorageFailed as error:
                line = f"{line}; and the unclean mark could not be set: {error}"
        self._stop_process(code, line)

    async def shut_down(self) -> ExitCode:
        """Hand over leadership, make everything durable, and mark the directory clean."""
        await self.health.set_serving(False)
        agreed = await self.session.say_farewell(self.settings.shutdown_deadline_ms)
        if not agreed:
            _log.warning("stopping without the controller's consent", node_id=self.settings.node_id)
        self.throttle.close()
        await asyncio.gather(*(server.stop(_SERVERS_GRACE_S) for server in self._servers))
        await self._stop_asking()
        await self._lookups.close()
        self.host.close()
        self.feed.close()
        self.driver.step(StopRequested(self.driver.clock()))
        is_durable = await self._flushed()
        self.flusher.close()
        self._audited.pass_on()
        self.sink.close()
        if exports(self.settings):
            _log.info("export closed", **self.sink.counters().metrics())
        self.logs.close(clean=is_durable)
        await self._seen.close()
        await self._health_port.close()
        _log.info("stopped", node_id=self.settings.node_id, clean=is_durable)
        return ExitCode.CLEAN if is_durable else ExitCode.STOP_TOOK_TOO_LONG

    async def _stop_asking(self) -> None:
        await self._tasks.close()
        await self.groups.shards.state_topic.close()
        await self._transaction_shards.state_topic.close()
        await self.transaction_links.close()
        await self.peers.close()
        await self.session.close()
        await self.controller.close()

    async def _flushed(self) -> bool:
        """Wait for all commits; return whether they ended before the deadline."""
        try:
            async with asyncio.timeout(_FLUSH_DEADLINE_S):
                await self.flusher.until_idle()
        except TimeoutError:
            return False
        return True


class _Reporter:
    """`runtime.ports.Reporter` over the event sink."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink

    def emit(self, effect: Emit) -> None:
        """Take one event."""
        self._sink.take(effect.tp, effect.event)


def _epochs_seen(seen: MetadataImage | None) -> tuple[EpochsSeen, ...]:
    if seen is None:
        return ()
    return tuple(
        EpochsSeen(image.tp, image.leader_epoch, image.partition_epoch)
        for topic in seen.topics
        for image in topic.partitions
    )


def _say_progress(count: int, total: int, found: OpenedLog) -> None:
    """Log a line for each log that was repaired, and one for every hundred logs and for the last."""
    recovery = found.recovery
    if recovery.bytes_cut or recovery.fault or found.set_aside:
        _log.warning(
            "log recovered",
            log=str(found.log),
            bytes_cut=recovery.bytes_cut,
            fault=recovery.fault or "",
            set_aside=str(found.set_aside or ""),
        )
    if count == total or count % 100 == 0:
        _log.info("logs opened", opened=count, of=total, clean=recovery.was_clean)
