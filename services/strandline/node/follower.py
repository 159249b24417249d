"""FollowerService: turns its calls into events of the core, and the core's answers into messages.

Invariant: a consumer reads here only records that this replica knows to be committed; the core ensures this.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import grpc

from strandline.core.log.events import FetchArrived
from strandline.core.messages import Served, ServedPartition
from strandline.core.types import TopicPartition
from strandline.rpc.convert.describe import DescribedSelf, NotDescribed, not_held, replicas_response, selected
from strandline.rpc.convert.errors import Unresolved, check_cluster
from strandline.rpc.convert.fetch import fetch_topics, read_fetch
from strandline.rpc.permitted import CALL, permitted, seen, still_permitted
from strandline.rpc.throttling import METERED
from strandline.runtime.host import Host
from strandline.runtime.threads import giving_way
from strandline.v1 import follower_service_pb2 as pb, follower_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["FollowerService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


class FollowerServicer:
    """FollowerService of one data node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._driver = host.driver

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        pb_grpc.add_FollowerServiceServicer_to_server(cast(Any, self), server)

    async def Fetch(self, request: pb.FollowerServiceFetchRequest, context: Context) -> pb.FollowerServiceFetchResponse:
        """Reads committed records from this replica."""
        asked = read_fetch(request, permitted(self._host.topics))
        served: Sequence[ServedPartition] = ()
        revoked: tuple[Unresolved, ...] = ()
        if asked.request.partitions:
            answer = await self._driver.ask(
                lambda now, call: FetchArrived(now, call, asked.request, at_follower=True), Served, asked.named
            )
            served, revoked = still_permitted(answer.partitions, self._host.topics, CALL.get())
            served = METERED.get().fetched(served)
        decoded = None
        if asked.starts is not None:
            decoded = await self._host.unpacking.run(partial(asked.decoded, served, giving_way))
        topics = fetch_topics(served, (*asked.unresolved, *revoked), self._host.topics, decoded)
        return pb.FollowerServiceFetchResponse(responses=topics)

    async def DescribeReplicas(
        self, request: pb.DescribeReplicasRequest, context: Context
    ) -> pb.DescribeReplicasResponse:
        """Returns this node's own view of its replicas."""
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, self._host.topics)
        tps, not_found = selected(
            request.topics, permitted(self._host.topics), seen(self._host.sizes.held(), self._host.topics)
        )
        described = [self._describe(tp) for tp in tps]
        return replicas_response(
            described, not_found, self._host.topics, node_id=self._host.node_id, node_epoch=self._host.node_epoch
        )

    def _describe(self, tp: TopicPartition) -> DescribedSelf | NotDescribed:
        view = self._driver.core.describe_replica(tp)
        return not_held(tp) if view is None else DescribedSelf(view, self._host.sizes.size_bytes(tp))
