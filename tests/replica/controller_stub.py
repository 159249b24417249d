"""A ControllerService that registers every node and makes node 1 leader of everything: enough to run one node."""

from __future__ import annotations

# ruff: noqa: N802 - gRPC calls a handler by the name of its RPC
import asyncio
from typing import Any, cast

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import (
    AlterPartitionAnswer,
    Endpoint,
    HeartbeatAnswer,
    IsrDecision,
    MetadataImage,
    NodeImage,
    NodeRegistered,
    PartitionImage,
    PositionProof,
    RegisterNode,
    TopicImage,
)
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.rpc.convert import controller as convert
from strandline.rpc.convert.metadata import write_watch_answer
from strandline.rpc.server import ServerSettings, bind, build_server
from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc

CLUSTER_ID = "11111111-2222-3333-4444-555555555555"


def topic(name: str, topic_id: str, replicas: tuple[int, ...], *, partitions: int = 1, min_isr: int = 1) -> TopicImage:
    """A topic whose every partition is led by the first of ``replicas``, all of them in sync."""
    ids = tuple(NodeId(node_id) for node_id in replicas)
    images = tuple(
        PartitionImage(
            tp=TopicPartition(topic_id, index),
            replicas=ids,
            isr=ids,
            leader=ids[0],
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            min_isr=min_isr,
        )
        for index in range(partitions)
    )
    return TopicImage(name=name, topic_id=topic_id, partitions=images)


class ControllerStub:
    """Answers a node's requests to the controller from fields that a test sets."""

    def __init__(self, *topics: TopicImage) -> None:
        self.topics = topics
        self.registered: dict[int, RegisterNode] = {}
        self.heartbeats: list[pb.HeartbeatRequest] = []
        self.stale: set[int] = set()
        self.blocks = 0
        """How many blocks of producer ids were given."""
        self.refuse_registration: Any = None
        self.position: PositionProof | None = None
        """Of the registrations."""
        self.endpoint = Endpoint("127.0.0.1", 0)
        self._changed = asyncio.Event()
        self._heard = asyncio.Event()
        self._server = build_server(ServerSettings(name="controller-stub"))
        pb_grpc.add_ControllerServiceServicer_to_server(cast(Any, self), self._server)

    async def start(self) -> None:
        """Serve on a port that the kernel chooses."""
        self.endpoint = bind(self._server, Endpoint("127.0.0.1", 0))
        await self._server.start()

    async def known_by(self, *node_ids: int) -> None:
        """Return when each of these nodes has reported the metadata that names all registered ones as applied."""
        while not set(node_ids) <= self._informed():
            self._heard.clear()
            await self._heard.wait()

    def _informed(self) -> set[int]:
        newest = len(self.registered)
        return {beat.node_id for beat in self.heartbeats if beat.current_metadata_offset >= newest}

    async def stop(self) -> None:
        """End every call."""
        await self._server.stop(0)

    def __getattr__(self, name: str) -> Any:
        """The generated registration needs every RPC; those not used here are never called."""
        if name[0].isupper():
            return None
        raise AttributeError(name)

    async def RegisterNode(self, message: pb.RegisterNodeRequest, _: object) -> pb.RegisterNodeResponse:
        if self.refuse_registration is not None:
            return convert.REGISTERED.write(NodeRegistered(refusal=self.refuse_registration))
        request = convert.read_registration(message, Rules())
        self.registered[request.node_id] = request
        self._changed.set()
        self._changed = asyncio.Event()
        epoch = NodeEpoch(100 + request.node_id)
        answer = NodeRegistered(
            node_epoch=epoch, controller_epoch=1, cluster_id=CLUSTER_ID, feature_level=1, position=self.position
        )
        return convert.REGISTERED.write(answer)

    async def Heartbeat(self, message: pb.HeartbeatRequest, _: object) -> pb.HeartbeatResponse:
        self.heartbeats.append(message)
        self._heard.set()
        if message.node_id in self.stale:
            return convert.HEARTBEAT_ANSWER.write(HeartbeatAnswer(refusal=Refusal(ErrorCode.STALE_BROKER_EPOCH)))
        answer = HeartbeatAnswer(
            controller_epoch=1,
            is_fenced=False,
            should_shut_down=message.want_shut_down,
            session_timeout_ms=2_000,
            heartbeat_interval_ms=50,
        )
        return convert.HEARTBEAT_ANSWER.write(answer)

    async def WatchMetadata(self, message: pb.WatchMetadataRequest, context: Any) -> None:
        while True:
            changed = self._changed
            await context.write(write_watch_answer(self._image(message.node_epoch), NodeEpoch(message.node_epoch)))
            await changed.wait()

    async def AlterPartition(self, message: pb.AlterPartitionRequest, _: object) -> pb.AlterPartitionResponse:
        request = convert.read_alter_partition(message)
        decisions = tuple(
            IsrDecision(
                proposal.tp,
                leader=request.node_id,
                leader_epoch=proposal.leader_epoch,
                isr=tuple(member.node_id for member in proposal.new_isr),
                partition_epoch=PartitionEpoch(proposal.partition_epoch + 1),
            )
            for proposal in request.partitions
        )
        return convert.write_alter_partition_answer(AlterPartitionAnswer(partitions=decisions))

    async def AllocateProducerIds(
        self, message: pb.AllocateProducerIdsRequest, _: object
    ) -> pb.AllocateProducerIdsResponse:
        self.blocks += 1
        return pb.AllocateProducerIdsResponse(producer_id_start=1_000 * self.blocks, producer_id_len=1_000)

    def _image(self, node_epoch: int) -> MetadataImage:
        nodes = tuple(
            NodeImage(
                node_id=NodeId(node_id),
                node_epoch=NodeEpoch(100 + node_id),
                client_endpoint=request.client_endpoint,
                internal_endpoint=request.internal_endpoint,
                fenced=False,
            )
            for node_id, request in self.registered.items()
        )
        return MetadataImage(
            cluster_id=CLUSTER_ID,
            controller_epoch=1,
            metadata_offset=len(nodes),
            is_snapshot=True,
            rules=Rules(),
            nodes=nodes,
            topics=self.topics,
            to_node_epoch=NodeEpoch(node_epoch),
        )
