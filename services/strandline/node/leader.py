"""LeaderService: turns its calls into events of the core, and the core's answers into messages.

Invariant: a handler holds no state and makes no decision of the protocol; only the core decides who leads and what is
committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import grpc

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.log import events
from strandline.core.messages import DeletedPartition, LeaderHint, ProduceResult, Served, ServedPartition
from strandline.core.types import ActiveProducer, TopicPartition
from strandline.node.fetch_streams import FetchPump
from strandline.node.produce_streams import Context, ProducePump, take_produce
from strandline.rpc.convert import offsets, producers as convert_producers
from strandline.rpc.convert.describe import DescribedLead, NotDescribed, not_held, partitions_response, selected
from strandline.rpc.convert.errors import Unresolved, check_cluster
from strandline.rpc.convert.fetch import fetch_topics, read_fetch
from strandline.rpc.convert.produce import REQUESTS, STREAM_REQUESTS, markers_response, produce_topics, read_markers
from strandline.rpc.permitted import CALL, permitted, seen, still_permitted
from strandline.rpc.throttling import METERED
from strandline.runtime.clock import wall_ms
from strandline.runtime.host import Host
from strandline.runtime.threads import giving_way
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["LeaderService"].full_name
MARKERS_WAIT_MS = 30_000
"""The longest time that markers wait for their commit; less if the caller's deadline comes first."""
_MARGIN_MS = 50
"""The part of the caller's time that is left for sending the answer back."""


class LeaderServicer:
    """LeaderService of one data node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._driver = host.driver

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        # The generated base class types streams as generators; these handlers write answers as they become ready.
        pb_grpc.add_LeaderServiceServicer_to_server(cast(Any, self), server)
        produces = grpc.stream_stream_rpc_method_handler(
            self.ProduceStream, STREAM_REQUESTS.read, pb.ProduceStreamResponse.SerializeToString
        )
        server.add_registered_method_handlers(SERVICE, {"ProduceStream": produces})

    async def Produce(self, request: pb.ProduceRequest, context: Context) -> pb.ProduceResponse:
        """Appends records."""
        asked = await take_produce(self._host, REQUESTS.of(request))
        results: tuple[ProduceResult, ...] = ()
        if asked.parts:
            results = await self._driver.ask(asked.arrives, tuple)
            _refuse_if_throttled(results)
        return pb.ProduceResponse(responses=produce_topics(results, asked.unresolved, self._host.topics, asked.acks))

    async def ProduceStream(self, _: object, context: Context) -> None:
        """Appends records; several requests may be outstanding."""
        await ProducePump(self._host, context).run()

    async def Fetch(self, request: pb.FetchRequest, context: Context) -> pb.FetchResponse:
        """Reads records."""
        asked = read_fetch(request, permitted(self._host.topics))
        served: Sequence[ServedPartition] = ()
        revoked: tuple[Unresolved, ...] = ()
        if asked.request.partitions:
            answer = await self._driver.ask(
                lambda now, call: events.FetchArrived(now, call, asked.request), Served, asked.named
            )
            served, revoked = still_permitted(answer.partitions, self._host.topics, CALL.get())
            served = METERED.get().fetched(served)
        decoded = None
        if asked.starts is not None:
            decoded = await self._host.unpacking.run(partial(asked.decoded, served, giving_way))
        return pb.FetchResponse(
            responses=fetch_topics(served, (*asked.unresolved, *revoked), self._host.topics, decoded)
        )

    async def FetchStream(self, _: object, context: Context) -> None:
        """Reads records continuously."""
        await FetchPump(self._host, context).run()

    async def OffsetForLeaderEpoch(
        self, request: pb.OffsetForLeaderEpochRequest, context: Context
    ) -> pb.OffsetForLeaderEpochResponse:
        """Returns the end offsets of epochs."""
        replica = offsets.read_asker(request, self._host.topics)
        asked = offsets.read_epoch_questions(request, permitted(self._host.topics))
        answers = await self._driver.ask(
            lambda now, call: events.EpochEndsAsked(now, call, asked.parts, replica), tuple
        )
        return offsets.epoch_ends_response(answers, asked.unresolved, self._host.topics)

    async def ListOffsets(self, request: pb.ListOffsetsRequest, context: Context) -> pb.ListOffsetsResponse:
        """Returns the offset for a time, or the first or last offset."""
        replica = offsets.read_asker(request, self._host.topics)
        asked = offsets.read_offset_questions(request, permitted(self._host.topics))
        answers = await self._driver.ask(lambda now, call: events.OffsetsAsked(now, call, asked.parts, replica), tuple)
        return offsets.offsets_response(answers, asked.unresolved, self._host.topics)

    async def FetchProducerSnapshot(
        self, request: pb.FetchProducerSnapshotRequest, context: Context
    ) -> pb.FetchProducerSnapshotResponse:
        """Returns the producer state below the log start."""
        question = convert_producers.read_producer_question(request, self._host.topics)
        (answer,) = await self._driver.ask(lambda now, call: events.ProducerSnapshotAsked(now, call, question), tuple)
        return convert_producers.write_producer_snapshot(answer)

    async def WriteTxnMarkers(self, request: pb.WriteTxnMarkersRequest, context: Context) -> pb.WriteTxnMarkersResponse:
        """Ends transactions."""
        left_s = cast("float | None", context.time_remaining())
        # Partitions are answered separately and before the caller's deadline, so that a slow one delays no other.
        within_ms = MARKERS_WAIT_MS if left_s is None else min(MARKERS_WAIT_MS, int(left_s * 1000) - _MARGIN_MS)
        return await self.write_markers(request, max(1, within_ms))

    async def write_markers(self, request: pb.WriteTxnMarkersRequest, within_ms: int) -> pb.WriteTxnMarkersResponse:
        """As WriteTxnMarkers, but also called by this node's own coordinators.

        Raises:
            Refused: the request was refused as a whole.
        """
        asked = read_markers(request, self._host.topics, wall_ms())
        results: tuple[ProduceResult, ...] = ()
        if asked.parts:
            results = await self._driver.ask(partial(asked.arrives, within_ms=within_ms), tuple, len(asked.parts))
            _refuse_if_throttled(results)
        return markers_response(request, asked, results, self._host.topics)

    async def DescribeProducers(
        self, request: pb.DescribeProducersRequest, context: Context
    ) -> pb.DescribeProducersResponse:
        """Returns the producers in the state of logs."""
        asked = convert_producers.read_described(request, permitted(self._host.topics))
        found: dict[TopicPartition, Sequence[ActiveProducer] | Refusal] = {}
        for tp in asked.parts:
            producers = self._driver.core.describe_producers(tp)
            found[tp] = self._not_led(tp).refusal if producers is None else producers
        return convert_producers.producers_response(found, asked.unresolved, self._host.topics)

    async def DeleteRecords(self, request: pb.DeleteRecordsRequest, context: Context) -> pb.DeleteRecordsResponse:
        """Deletes the records below an offset."""
        timeout_ms, asked = offsets.read_deletions(request, permitted(self._host.topics))
        answers: tuple[DeletedPartition, ...] = ()
        if asked.parts:
            answers = await self._driver.ask(
                lambda now, call: events.DeleteRecordsAsked(now, call, timeout_ms, asked.parts), tuple, len(asked.parts)
            )
        return offsets.deletions_response(answers, asked.unresolved, self._host.topics)

    async def DescribePartitions(
        self, request: pb.DescribePartitionsRequest, context: Context
    ) -> pb.DescribePartitionsResponse:
        """Returns the leader's own view of its partitions."""
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, self._host.topics)
        tps, not_found = selected(request.topics, permitted(self._host.topics), seen(self._led(), self._host.topics))
        described = [self._describe(tp) for tp in tps]
        return partitions_response(
            described, not_found, self._host.topics, node_id=self._host.node_id, node_epoch=self._host.node_epoch
        )

    def _led(self) -> Iterator[TopicPartition]:
        now_ms = self._driver.clock()
        return (tp for tp in self._host.sizes.held() if self._driver.core.describe_partition(tp, now_ms) is not None)

    def _describe(self, tp: TopicPartition) -> DescribedLead | NotDescribed:
        view = self._driver.core.describe_partition(tp, self._driver.clock())
        if view is None:
            return self._not_led(tp)
        sizes = self._host.sizes
        lags = {
            replica.node_id: sizes.bytes_between(tp, replica.remote_leo, view.leo)
            for replica in view.replicas
            if replica.remote_leo is not None
        }
        return DescribedLead(view, sizes.size_bytes(tp), lags, sizes.retention_waits_until_ms(tp))

    def _not_led(self, tp: TopicPartition) -> NotDescribed:
        own = self._driver.core.describe_replica(tp)
        if own is None:
            return not_held(tp)
        refusal = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this node does not lead partition {tp.partition}")
        return NotDescribed(tp, refusal, LeaderHint(own.leader, own.leader_epoch))


def _refuse_if_throttled(results: tuple[ProduceResult, ...]) -> None:
    """Refuse a unary produce as a whole if it exceeded the purgatory's bounds (RELIABILITY.md#limits)."""
    refusal = results[0].refusal
    if refusal is not None and refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        raise Refused.of(refusal)
