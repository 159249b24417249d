"""WriteTxnMarkers on the wire: markers become control batches, their results go out marker by marker.

Invariant: every partition of every marker is answered once, in the order of the request, whether the core was asked or
not; a marker is one control batch for all its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.events import ProduceArrived
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.transaction_messages import MarkerQuestion
from strandline.core.types import Acks, Marker, TopicPartition
from strandline.records.batch import Batch
from strandline.records.control import encode_marker
from strandline.rpc.addressing import (
    Topics,
    Unresolved,
    by_topic,
    check_cluster,
    gather,
    invalid,
    named,
    unresolved_by_topic,
)
from strandline.rpc.convert_errors import read_error, write_error
from strandline.v1 import leader_service_pb2 as pb

_MOST_EPOCH, _MOST_COORDINATOR_EPOCH = (1 << 15) - 1, (1 << 31) - 1


class MarkersAsked(NamedTuple):
    """A request's markers as the core takes them."""

    parts: tuple[ProducePartition, ...]
    counts: tuple[int, ...]
    """How many of ``parts`` each marker has."""
    unresolved: tuple[tuple[Unresolved, ...], ...]
    """Of each marker the partitions that are answered without the core."""

    def arrives(self, now_ms: int, request_id: int, within_ms: int) -> ProduceArrived:
        """The core's event: a marker is appended by the rules of acks=all (X11)."""
        return ProduceArrived(now_ms, request_id, Acks.ALL, within_ms, self.parts)


def read_markers(request: pb.WriteTxnMarkersRequest, topics: Topics, now_ms: int) -> MarkersAsked:
    """The markers of a request; ``now_ms``, wall-clock, is the time of their records.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: there is none, one names no partition or one twice, or has a
            number that is none of a marker.
    """
    check_cluster(request.cluster_id if request.HasField("cluster_id") else None, topics, required=True)
    if not request.markers:
        raise invalid("markers is empty; give at least one")
    parts: list[ProducePartition] = []
    counts: list[int] = []
    unresolved: list[tuple[Unresolved, ...]] = []
    for marker in request.markers:
        asked = gather(
            [(topic.topic, topic.topic_id, topic.partitions) for topic in marker.topics],
            topics,
            int,
            partial(_part, _encode(marker, now_ms)),
        )
        if not asked.parts and not asked.unresolved:
            raise invalid(f"the marker of producer {marker.producer_id} names no partition; give at least one")
        parts += asked.parts
        counts.append(len(asked.parts))
        unresolved.append(asked.unresolved)
    return MarkersAsked(tuple(parts), tuple(counts), tuple(unresolved))


def _part(batch: Batch, tp: TopicPartition, _: int) -> ProducePartition:
    return ProducePartition(tp, batch.header, batch.view)


def _encode(marker: pb.WritableTxnMarker, now_ms: int) -> Batch:
    if marker.producer_id < 0:
        raise invalid(f"producer_id {marker.producer_id} must not be negative")
    if not 0 <= marker.producer_epoch <= _MOST_EPOCH:
        raise invalid(f"producer_epoch {marker.producer_epoch} must be 0 to {_MOST_EPOCH}")
    if not 0 <= marker.coordinator_epoch <= _MOST_COORDINATOR_EPOCH:
        raise invalid(f"coordinator_epoch {marker.coordinator_epoch} must not be negative")
    said = Marker(marker.transaction_result, marker.coordinator_epoch)
    return encode_marker(
        said, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, timestamp_ms=now_ms
    )


def markers_response(
    request: pb.WriteTxnMarkersRequest, asked: MarkersAsked, results: Sequence[ProduceResult], topics: Topics
) -> pb.WriteTxnMarkersResponse:
    """The answer: what became of each marker in each partition."""
    response = pb.WriteTxnMarkersResponse()
    for marker, own, not_found in zip(request.markers, _shares(results, asked.counts), asked.unresolved, strict=True):
        row = response.markers.add(producer_id=marker.producer_id)
        for topic_id, parts in by_topic(own, lambda result: result.tp):
            topic = row.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
            for result in parts:
                write_error(topic.partitions.add(partition_index=result.tp.partition), result.refusal)
        for (name, topic_id), lost in unresolved_by_topic(not_found):
            topic = row.topics.add(name=name, topic_id=topic_id)
            for one in lost:
                write_error(topic.partitions.add(partition_index=one.partition), one.refusal)
    return response


def _shares(results: Sequence[ProduceResult], counts: Iterable[int]) -> Iterator[Sequence[ProduceResult]]:
    start = 0
    for count in counts:
        yield results[start : start + count]
        start += count


def markers_request(markers: Sequence[MarkerQuestion], topics: Topics, cluster_id: str) -> pb.WriteTxnMarkersRequest:
    """What coordinators of this node have for one leader: one entry per marker and partition, in their order."""
    request = pb.WriteTxnMarkersRequest(cluster_id=cluster_id)
    for _, coordinator_epoch, marker in markers:
        request.markers.add(
            producer_id=marker.identity.producer_id,
            producer_epoch=marker.identity.producer_epoch,
            transaction_result=marker.committed,
            coordinator_epoch=coordinator_epoch,
            topics=named([marker.tp], topics),
        )
    return request


def read_marker_results(response: pb.WriteTxnMarkersResponse, count: int) -> tuple[Refusal | None, ...]:
    """What became of each of the ``count`` entries of `markers_request`; UNKNOWN_SERVER_ERROR for an answer that does
    not fit them."""
    found = [[part for topic in row.topics for part in topic.partitions] for row in response.markers]
    if len(found) != count or any(len(parts) != 1 for parts in found):
        lost = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader's answer does not fit the markers it was sent")
        return (lost,) * count
    return tuple(read_error(parts[0]) for parts in found)
