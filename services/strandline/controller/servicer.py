"""ControllerService: turns its calls into events of the core, and the core's answers into messages.

Invariant: a handler holds no state and makes no decision of the protocol.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import grpc

from strandline.controller.among import Among
from strandline.controller.driver import ControllerDriver
from strandline.controller.watches import Watch
from strandline.core.control import messages
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import AlterPartitionAnswer, HeartbeatAnswer, NodeRegistered, ReplicaLogsReported
from strandline.rpc.convert import access, admin, configs, controller as convert
from strandline.rpc.convert.describe import write_controllers
from strandline.rpc.convert.metadata import write_image, write_watch_news
from strandline.rpc.permitted import caller_of_call, principal_of_call
from strandline.runtime.clock import wall_us
from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
_Answer = TypeVar("_Answer")


class ControllerServicer:
    """ControllerService of one controller. ``on_watch_ended`` is called for every watch that its peer ended.

    ``driver`` returns the driver while this controller is active, and raises `Refused` otherwise.
    """

    def __init__(
        self,
        driver: Callable[[], ControllerDriver],
        *,
        among: Among,
        alive_every_ms: int,
        on_watch_ended: Callable[[Watch[Any]], None] = lambda _: None,
    ) -> None:
        self._deciding = driver
        self._among = among
        self._alive_every_ms = alive_every_ms
        self._on_watch_ended = on_watch_ended

    @property
    def _driver(self) -> ControllerDriver:
        return self._deciding()

    async def _ask(self, request: messages.ControllerRequest, kind: type[_Answer]) -> _Answer:
        return await self._driver.request(request, kind, caller_of_call(), principal_of_call())

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        pb_grpc.add_ControllerServiceServicer_to_server(cast(Any, self), server)

    async def RegisterNode(self, request: pb.RegisterNodeRequest, context: Context) -> pb.RegisterNodeResponse:
        """Registers a node's new process."""
        registration = convert.read_registration(request, self._driver.core.state.header.rules)
        answer = await self._ask(registration, NodeRegistered)
        _refuse_other_rules(answer)
        return convert.REGISTERED.write(answer)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        """Keeps a session alive."""
        answer = await self._ask(convert.read_heartbeat(request), HeartbeatAnswer)
        return convert.HEARTBEAT_ANSWER.write(replace(answer, controller_wall_us=wall_us()))

    async def AlterPartition(self, request: pb.AlterPartitionRequest, context: Context) -> pb.AlterPartitionResponse:
        """Changes ISRs."""
        answer = await self._ask(convert.read_alter_partition(request), AlterPartitionAnswer)
        return convert.write_alter_partition_answer(answer)

    async def ReportReplicaLogs(
        self, request: pb.ReportReplicaLogsRequest, context: Context
    ) -> pb.ReportReplicaLogsResponse:
        """Takes a node's report about its logs."""
        return convert.REPORTED.write(await self._ask(convert.read_report(request), ReplicaLogsReported))

    async def ShutdownNode(self, request: pb.ShutdownNodeRequest, context: Context) -> pb.ShutdownNodeResponse:
        """Begins a controlled shutdown."""
        answer = await self._ask(admin.SHUTDOWN_NODE.read(request), messages.NodeShutdownBegun)
        return admin.write_shutdown_begun(answer)

    async def UnregisterNode(self, request: pb.UnregisterNodeRequest, context: Context) -> pb.UnregisterNodeResponse:
        """Removes a node permanently."""
        answer = await self._ask(admin.UNREGISTER_NODE.read(request), messages.NodeUnregistered)
        return admin.UNREGISTERED.write(answer)

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:
        """Lists the nodes."""
        return admin.write_nodes_listed(await self._ask(admin.LIST_NODES.read(request), messages.NodesListed))

    async def GetMetadata(self, request: pb.GetMetadataRequest, context: Context) -> pb.GetMetadataResponse:
        """Returns the state once."""
        if request.linearizable:
            self._deciding()
            await self._among.confirm()
        answer = await self._ask(admin.GET_METADATA.read(request), messages.MetadataListed)
        return pb.GetMetadataResponse(metadata=write_image(answer.image))

    async def WatchMetadata(self, request: pb.WatchMetadataRequest, context: Context) -> None:
        """Sends the state, then every change of it."""
        driver = self._driver
        watch = await driver.watch(admin.WATCH_METADATA.read(request))
        try:
            while True:
                news = await watch.next_news(self._alive_every_ms)
                await context.write(
                    write_watch_news(
                        news.metadata,
                        is_snapshot=news.is_snapshot,
                        to_node_epoch=news.node_epoch,
                        position=news.position,
                    )
                )
        finally:
            driver.watches.close(watch)
            if watch.refusal is None:
                self._on_watch_ended(watch)

    async def CreateTopics(self, request: pb.CreateTopicsRequest, context: Context) -> pb.CreateTopicsResponse:
        """Creates topics."""
        asked = admin.read_create_topics(request, lambda: str(uuid.uuid4()))
        return admin.write_topics_created(await self._ask(asked, messages.TopicsCreated))

    async def DeleteTopics(self, request: pb.DeleteTopicsRequest, context: Context) -> pb.DeleteTopicsResponse:
        """Deletes topics."""
        answer = await self._ask(admin.DELETE_TOPICS.read(request), messages.TopicsChanged)
        return admin.write_topics_deleted(answer)

    async def DescribeTopics(self, request: pb.DescribeTopicsRequest, context: Context) -> pb.DescribeTopicsResponse:
        """Describes topics."""
        answer = await self._ask(admin.DESCRIBE_TOPICS.read(request), messages.TopicsDescribed)
        return admin.write_topics_described(answer)

    async def AlterTopicConfigs(
        self, request: pb.AlterTopicConfigsRequest, context: Context
    ) -> pb.AlterTopicConfigsResponse:
        """Changes settings of topics."""
        answer = await self._ask(admin.ALTER_CONFIGS.read(request), messages.TopicsChanged)
        return admin.write_configs_altered(answer)

    async def IncrementalAlterConfigs(
        self, request: pb.IncrementalAlterConfigsRequest, context: Context
    ) -> pb.IncrementalAlterConfigsResponse:
        """Changes single settings."""
        answer = await self._ask(configs.read_incremental(request), messages.TopicsChanged)
        return configs.write_incremental(request, answer)

    async def DescribeConfigs(self, request: pb.DescribeConfigsRequest, context: Context) -> pb.DescribeConfigsResponse:
        """Returns settings in force."""
        answer = await self._ask(configs.read_describe_configs(request), messages.ConfigsDescribed)
        return configs.write_configs_described(request, answer)

    async def CreatePartitions(
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsResponse:
        """Adds partitions."""
        answer = await self._ask(admin.CREATE_PARTITIONS.read(request), messages.TopicsChanged)
        return admin.write_partitions_created(answer)

    async def ElectLeaders(self, request: pb.ElectLeadersRequest, context: Context) -> pb.ElectLeadersResponse:
        """Holds elections."""
        answer = await self._ask(admin.read_elect_leaders(request), messages.LeadersElected)
        return admin.write_leaders_elected(answer)

    async def AllocateProducerIds(
        self, request: pb.AllocateProducerIdsRequest, context: Context
    ) -> pb.AllocateProducerIdsResponse:
        """Reserves producer ids for a node."""
        answer = await self._ask(admin.read_allocate_producer_ids(request), messages.ProducerIdsAllocated)
        return admin.PRODUCER_IDS.write(answer)

    async def InitProducerId(self, request: pb.InitProducerIdRequest, context: Context) -> pb.InitProducerIdResponse:
        """Gives a producer its identity."""
        answer = await self._ask(admin.INIT_PRODUCER_ID.read(request), messages.ProducerIdGiven)
        return admin.PRODUCER_ID.write(answer)

    async def AlterPartitionReassignments(
        self, request: pb.AlterPartitionReassignmentsRequest, context: Context
    ) -> pb.AlterPartitionReassignmentsResponse:
        """Changes which nodes hold partitions."""
        answer = await self._ask(admin.read_reassign(request), messages.PartitionsReassigned)
        return admin.write_reassigned(answer)

    async def ListPartitionReassignments(
        self, request: pb.ListPartitionReassignmentsRequest, context: Context
    ) -> pb.ListPartitionReassignmentsResponse:
        """Lists the reassignments that have not ended."""
        answer = await self._ask(admin.LIST_REASSIGNMENTS.read(request), messages.ReassignmentsListed)
        return admin.write_reassignments(answer)

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> pb.DrainNodeResponse:
        """Starts or stops draining a node."""
        answer = await self._ask(admin.DRAIN.read(request), messages.NodeDrained)
        return admin.DRAINED.write(answer)

    async def CreateAcls(self, request: pb.CreateAclsRequest, context: Context) -> pb.CreateAclsResponse:
        """Adds rules."""
        return access.write_acls_created(await self._ask(access.CREATE_ACLS.read(request), messages.EntriesAltered))

    async def DeleteAcls(self, request: pb.DeleteAclsRequest, context: Context) -> pb.DeleteAclsResponse:
        """Deletes rules."""
        return access.write_acls_deleted(await self._ask(access.DELETE_ACLS.read(request), messages.EntriesAltered))

    async def DescribeAcls(self, request: pb.DescribeAclsRequest, context: Context) -> pb.DescribeAclsResponse:
        """Lists rules."""
        answer = await self._ask(access.DESCRIBE_ACLS.read(request), messages.AclsDescribed)
        return pb.DescribeAclsResponse(acls=map(access.write_acl, answer.rules))

    async def AlterClientQuotas(
        self, request: pb.AlterClientQuotasRequest, context: Context
    ) -> pb.AlterClientQuotasResponse:
        """Sets and removes quotas."""
        answer = await self._ask(access.ALTER_QUOTAS.read(request), messages.EntriesAltered)
        return access.write_quotas_altered(request, answer)

    async def DescribeClientQuotas(
        self, request: pb.DescribeClientQuotasRequest, context: Context
    ) -> pb.DescribeClientQuotasResponse:
        """Lists quotas."""
        answer = await self._ask(access.DESCRIBE_QUOTAS.read(request), messages.ClientQuotasDescribed)
        return pb.DescribeClientQuotasResponse(entries=access.write_quotas(answer.quotas))

    async def DescribeControllers(
        self, request: pb.DescribeControllersRequest, context: Context
    ) -> pb.DescribeControllersResponse:
        """Lists the controllers."""
        return write_controllers(await self._among.describe())

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:
        """Hands over to another controller."""
        to = request.to if request.HasField("to") else None
        return pb.HandOverResponse(controller_id=await self._among.hand_over_to(to))


def _refuse_other_rules(answer: NodeRegistered) -> None:
    """Refuse the whole call, with FAILED_PRECONDITION, for a registration under other rules."""
    refusal = answer.refusal
    if refusal is not None and refusal.code is ErrorCode.INVALID_CONFIG:
        raise Refused.of(refusal)
