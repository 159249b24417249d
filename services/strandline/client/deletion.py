"""How records are deleted: by a request to each partition's leader, repeated until a leader answers.

Invariant: a deletion that a leader refused for good, or that its replicas did not follow in time, is not repeated; it
comes back with its refusal, because what was deleted cannot be brought back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from strandline.client.errors import ClusterUnreachable
from strandline.client.metadata import Cluster
from strandline.client.retry_log import RetryLog
from strandline.client.view import Leader
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.types import LeaderEpoch, Offset, TopicPartition
from strandline.rpc.channels import Backoff
from strandline.rpc.convert_deletion import delete_records_request, read_deleted
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub

_GRACE_MS = 1_000
"""How much longer than the leader's own wait its answer may take."""


class DeletedRecords(NamedTuple):
    """What became of a deletion in one partition."""

    partition: int
    low_watermark: Offset | None
    """Lowest log start among the leader and its in-sync replicas; None if it is not known."""
    refusal: Refusal | None
    """Why the deletion is not complete, None if it is. After REQUEST_TIMED_OUT and NETWORK_EXCEPTION the leader may
    have deleted the records."""


class RecordDeleter:
    """Asks leaders to delete records."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def delete(
        self, offsets: Mapping[TopicPartition, int], *, deadline_ms: int
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete below ``offsets``, or below the high watermark for -1; every partition has an outcome by then."""
        done: dict[TopicPartition, DeletedRecords] = {}
        why: dict[TopicPartition, Refusal] = {}
        backoff = Backoff()
        retry = RetryLog("deleting records")
        loop = asyncio.get_running_loop()
        end_s = loop.time() + deadline_ms / 1000
        while missing := {tp: offset for tp, offset in offsets.items() if tp not in done}:
            left_ms = int((end_s - loop.time()) * 1000)
            if left_ms <= 0:
                break
            await self._ask_leaders(missing, left_ms, done, why)
            if len(done) < len(offsets):
                retry.failed(loop.time() * 1000, next((str(one) for one in why.values()), "no leader is known"))
                await asyncio.sleep(min(backoff.next_s(), max(0.0, end_s - loop.time())))
        for tp in missing:
            refusal = why.get(tp, Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp.partition} has no leader"))
            done[tp] = DeletedRecords(tp.partition, None, refusal)
        return done

    async def _ask_leaders(
        self,
        missing: Mapping[TopicPartition, int],
        left_ms: int,
        done: dict[TopicPartition, DeletedRecords],
        why: dict[TopicPartition, Refusal],
    ) -> None:
        groups: dict[Leader, dict[TopicPartition, int]] = {}
        for tp, offset in missing.items():
            leader = self._cluster.view.leader_of(tp)
            if leader is not None:
                groups.setdefault(leader._replace(epoch=LeaderEpoch(0)), {})[tp] = offset
        await asyncio.gather(*(self._ask(leader, asked, left_ms, done, why) for leader, asked in groups.items()))

    async def _ask(
        self,
        leader: Leader,
        offsets: Mapping[TopicPartition, int],
        left_ms: int,
        done: dict[TopicPartition, DeletedRecords],
        why: dict[TopicPartition, Refusal],
    ) -> None:
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(leader.endpoint))
        request = delete_records_request(offsets, cluster_id=self._cluster.cluster_id, timeout_ms=left_ms)
        try:
            response = await self._cluster.ask_while(
                lambda: self._cluster.view.may_be_led_at(leader.endpoint, offsets),
                stub.DeleteRecords,
                request,
                deadline_ms=left_ms + _GRACE_MS,
            )
        except ClusterUnreachable as error:
            self._cluster.refresh()
            why.update(dict.fromkeys(offsets, Refusal(ErrorCode.NETWORK_EXCEPTION, str(error))))
            return
        for answer in read_deleted(response):
            refusal = answer.refusal
            if refusal is not None and refusal.retriable and refusal.code is not ErrorCode.REQUEST_TIMED_OUT:
                why[answer.tp] = refusal
            else:
                done[answer.tp] = DeletedRecords(answer.tp.partition, answer.low_watermark, refusal)
