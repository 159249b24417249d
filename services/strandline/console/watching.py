"""Observes the cluster: the controller by a watch, every node at intervals.

All browsers share it. Invariant: at most one look at a node's partitions and one at its groups is under way, each with
a deadline; a node that has many is looked at less often, so that it describes at most 1,000 replicas, and 1,000 members
and offsets, a second for us; a node that does not answer keeps its last answer on the page, with its age.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from strandline.client.administer.admin_answers import read_listed
from strandline.client.background import countdown
from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable
from strandline.console.courses import Courses, Transitions, transitions_between
from strandline.console.groups import ask_for_groups
from strandline.console.overview import partition_rows
from strandline.console.picture import AuditLook, ControllerLook, GroupLook, NodeLook, Picture, read_held, read_led
from strandline.console.settings import ConsoleSettings
from strandline.core.errors import Refused
from strandline.core.messages import Endpoint, MetadataImage
from strandline.core.types import NodeId
from strandline.rpc.convert.describe import ControllerDescribed, read_controllers
from strandline.runtime.clock import Clock, monotonic_ms, wall_ms
from strandline.v1 import controller_service_pb2, follower_service_pb2, leader_service_pb2, metadata_service_pb2
from strandline.v1.follower_service_pb2_grpc import FollowerServiceStub
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

if TYPE_CHECKING:
    # The async variants of the stubs exist only for the type checker.
    from strandline.v1.follower_service_pb2_grpc import FollowerServiceAsyncStub
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub
    from strandline.v1.metadata_service_pb2_grpc import MetadataServiceAsyncStub

_Look = TypeVar("_Look", NodeLook, GroupLook)

CONNECT_MS = 3_000
SAMPLES_KEPT = 150
_CONTROLLER_DEADLINE_MS = 2_000
_MS_PER_ROW = 1
_GROUPS_REST_MS = 2_000
_AUDITS_EVERY_S = 5


class Watching:
    """The newest picture, what led to it, and the readers that wait for a newer one."""

    def __init__(
        self,
        settings: ConsoleSettings,
        changed: Callable[[], None],
        *,
        clock: Clock = monotonic_ms,
        wall: Clock = wall_ms,
    ) -> None:
        self._settings = settings
        self._changed = changed
        self._clock = clock
        self._wall = wall
        self._picture = Picture(now_ms=clock(), bootstrap=",".join(settings.bootstrap))
        self.transitions = Transitions(settings.transitions_kept)
        self.courses = Courses(most_partitions=settings.partitions_followed, most_samples=SAMPLES_KEPT)
        self.cluster: Cluster | None = None
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._node_looks = _Looks(
            clock=clock,
            ask=self._ask_node,
            known=lambda node_id: self._picture.looks.get(node_id, NodeLook()),
            tell=self._tell_node,
            rest_ms=lambda look: _MS_PER_ROW * len(look.held),
        )
        self._group_looks = _Looks(
            clock=clock,
            ask=lambda cluster, node_id, at: ask_for_groups(cluster, node_id, at, clock, settings.look_deadline_ms),
            known=lambda node_id: self._picture.groups.get(node_id, GroupLook()),
            tell=self._tell_groups,
            rest_ms=lambda look: _MS_PER_ROW * look.rows,
            least_rest_ms=_GROUPS_REST_MS,
        )

    @property
    def picture(self) -> Picture:
        """The newest picture, with the present time."""
        picture = replace(self._picture, now_ms=self._clock())
        heard_s = self.cluster.heard_s if self.cluster is not None else None
        heard_ms = None if heard_s is None else int(heard_s * 1000)
        controller = picture.controller
        if heard_ms is not None and (controller.heard_ms is None or heard_ms > controller.heard_ms):
            picture = replace(picture, controller=replace(controller, heard_ms=heard_ms))
        return picture

    async def run(self) -> None:
        """Watch until cancelled; a cluster that does not answer is tried again and again.

        Raises:
            Exception: a defect of the client's watch.
        """
        while True:
            try:
                # The certificate is read here, and may be half written.
                cluster = self._new_cluster()
                await cluster.start()
            except (ClusterUnreachable, Refused, ValueError) as error:
                self._controller_failed(str(error))
                await asyncio.sleep(self._settings.look_interval_ms / 1000)
                continue
            self.cluster = cluster
            try:
                cluster.listen(self._image_changed)
                self._image_changed()
                await self._look_forever(cluster)
            finally:
                self.cluster = None
                await cluster.close()

    def _new_cluster(self) -> Cluster:
        settings = self._settings
        return Cluster(
            settings.bootstrap,
            timeout_ms=CONNECT_MS,
            stale_ms=settings.metadata_stale_ms,
            on_trouble=self._broken,
            all_topics=True,
            tls_cert=settings.tls_cert,
            tls_key=settings.tls_key,
            tls_ca=settings.tls_ca,
        )

    def _broken(self, error: BaseException | None) -> None:
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _image_changed(self) -> None:
        assert self.cluster is not None, "only a started cluster reports changes"
        image = self.cluster.image
        self.transitions.add(transitions_between(self.picture, image, self._wall()))
        living = {node.node_id for node in image.nodes if not node.fenced}
        groups = {node_id: look for node_id, look in self._picture.groups.items() if node_id in living}
        self._become(replace(self._picture, image=image, looks=self._looks_of(image), groups=groups))

    def _looks_of(self, image: MetadataImage) -> dict[NodeId, NodeLook]:
        """The looks at nodes that there are; of a fenced node nothing that failed counts."""
        known = self._picture.looks
        return {
            node.node_id: replace(known.get(node.node_id, NodeLook()), failing_since_ms=None, failure="")
            if node.fenced
            else known.get(node.node_id, NodeLook())
            for node in image.nodes
        }

    def _controller_failed(self, said: str) -> None:
        look = self._picture.controller
        since = self._clock() if look.failing_since_ms is None else look.failing_since_ms
        self._become(replace(self._picture, controller=replace(look, failure=said, failing_since_ms=since)))

    async def _look_at_controller(self, cluster: Cluster) -> None:
        request = controller_service_pb2.ListNodesRequest(cluster_id=cluster.cluster_id)
        try:
            answer = await cluster.ask_controller(
                lambda controller: controller.ListNodes, request, deadline_ms=_CONTROLLER_DEADLINE_MS
            )
        except (Refused, ClusterUnreachable) as error:
            cluster.refresh()
            self._controller_failed(str(error))
            return
        among = await self._several(cluster)
        listed = [read_listed(row) for row in answer.nodes]
        beats = {NodeId(each.node.node_id): each.last_heartbeat_age_ms for each in listed}
        heard_ms = self.picture.controller.heard_ms
        self._become(
            replace(self._picture, controller=ControllerLook(heard_ms=heard_ms, heartbeat_age_ms=beats, among=among))
        )  # fmt: skip

    async def _several(self, cluster: Cluster) -> tuple[ControllerDescribed, ...]:
        """Which of several controllers is active, and how far the others are; empty if only one, or no answer."""
        request = controller_service_pb2.DescribeControllersRequest()
        try:
            answer = await cluster.ask_controller(
                lambda controller: controller.DescribeControllers, request, deadline_ms=_CONTROLLER_DEADLINE_MS
            )
        except (Refused, ClusterUnreachable):
            return ()
        found = read_controllers(answer)
        return found if len(found) > 1 else ()

    async def _look_forever(self, cluster: Cluster) -> None:
        async with asyncio.TaskGroup() as looks:
            controller: asyncio.Task[None] | None = None
            audits: asyncio.Task[None] | None = None
            while True:
                if self._failure.done():
                    self._failure.result()
                if controller is None or controller.done():
                    controller = looks.create_task(self._look_at_controller(cluster))
                if audits is None or audits.done():
                    audits = looks.create_task(self._look_at_audits(cluster))
                for node_id, endpoint in cluster.living.items():
                    for kind in (self._node_looks, self._group_looks):
                        if kind.is_due(node_id):
                            looks.create_task(kind.look_at(cluster, node_id, endpoint))
                await asyncio.sleep(self._settings.look_interval_ms / 1000)
                self.courses.take(partition_rows(self.picture), self._clock())
                self._changed()

    async def _look_at_audits(self, cluster: Cluster) -> None:
        places = {f"node {node_id}": place for node_id, place in cluster.living.items()}
        with suppress(Refused, ClusterUnreachable):
            places["controller"] = await cluster.controllers.first(countdown(self._settings.look_deadline_ms))
        found = await asyncio.gather(*(self._ask_for_audit(cluster, place) for place in places.values()))
        self._become(replace(self._picture, audits=dict(zip(places, found, strict=True))))
        await asyncio.sleep(_AUDITS_EVERY_S)

    async def _ask_for_audit(self, cluster: Cluster, endpoint: Endpoint) -> AuditLook:
        stub: MetadataServiceAsyncStub = MetadataServiceStub(cluster.channels.to(endpoint))
        request = metadata_service_pb2.DescribeAuditRequest(cluster_id=cluster.cluster_id)
        try:
            found = await cluster.ask(stub.DescribeAudit, request, deadline_ms=self._settings.look_deadline_ms)
            return AuditLook(found.events)
        except (Refused, ClusterUnreachable) as error:
            return AuditLook(failure=_short(error))

    async def _ask_node(self, cluster: Cluster, node_id: NodeId, endpoint: Endpoint) -> NodeLook:
        channel = cluster.channels.to(endpoint)
        leads: LeaderServiceAsyncStub = LeaderServiceStub(channel)
        holds: FollowerServiceAsyncStub = FollowerServiceStub(channel)
        deadline_ms = self._settings.look_deadline_ms
        led, held = await asyncio.gather(
            cluster.ask(
                leads.DescribePartitions,
                leader_service_pb2.DescribePartitionsRequest(cluster_id=cluster.cluster_id),
                deadline_ms=deadline_ms,
            ),
            cluster.ask(
                holds.DescribeReplicas,
                follower_service_pb2.DescribeReplicasRequest(cluster_id=cluster.cluster_id),
                deadline_ms=deadline_ms,
            ),
        )
        return NodeLook(answered_ms=self._clock(), led=read_led(led), held=read_held(held))

    def _tell_node(self, node_id: NodeId, look: NodeLook) -> None:
        if node_id in self._picture.looks:
            self._become(replace(self._picture, looks={**self._picture.looks, node_id: look}))

    def _tell_groups(self, node_id: NodeId, look: GroupLook) -> None:
        if node_id in self._picture.looks:
            self._become(replace(self._picture, groups={**self._picture.groups, node_id: look}))

    def _become(self, picture: Picture) -> None:
        self._picture = picture
        self._changed()


@dataclass(slots=True, kw_only=True)
class _Looks(Generic[_Look]):
    """Looks at one side of each node: at most one at a time, and less often where an answer is long.

    ``known`` gives the last look at a node, ``tell`` takes the next; ``rest_ms``: how long a node rests after a look.
    """

    clock: Clock
    ask: Callable[[Cluster, NodeId, Endpoint], Awaitable[_Look]]
    known: Callable[[NodeId], _Look]
    tell: Callable[[NodeId, _Look], None]
    rest_ms: Callable[[_Look], int]
    least_rest_ms: int = 0
    looking: set[NodeId] = field(default_factory=set)
    rest_until: dict[NodeId, int] = field(default_factory=dict)

    def is_due(self, node_id: NodeId) -> bool:
        return node_id not in self.looking and self.clock() >= self.rest_until.get(node_id, 0)

    async def look_at(self, cluster: Cluster, node_id: NodeId, endpoint: Endpoint) -> None:
        self.looking.add(node_id)
        begun_ms, rest_ms = self.clock(), self.least_rest_ms
        try:
            look = await self.ask(cluster, node_id, endpoint)
        except (Refused, ClusterUnreachable) as error:
            known = self.known(node_id)
            since_ms = begun_ms if known.failing_since_ms is None else known.failing_since_ms
            self.tell(node_id, replace(known, failing_since_ms=since_ms, failure=_short(error)))
        else:
            rest_ms = max(rest_ms, self.rest_ms(look))
            self.tell(node_id, look)
        finally:
            self.looking.discard(node_id)
            self.rest_until[node_id] = begun_ms + rest_ms


def _short(error: Exception) -> str:
    """The refusal's first sentence; gRPC adds a page about its own connection to some."""
    return str(error).splitlines()[0][:200]
