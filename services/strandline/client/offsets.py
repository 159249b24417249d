"""Finds an offset by time or an end of the log: asks each partition's leader until it answers.

Invariant: an answer comes from the leader of the epoch that the question names, so a deposed leader's log is
never taken for the log; "not settled yet" (KIP-207) is asked again, never guessed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from strandline.client.cluster.metadata import Cluster
from strandline.client.cluster.view import Leader
from strandline.client.errors import ClusterUnreachable
from strandline.client.log import RetryLog
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetQuestion
from strandline.core.types import LeaderEpoch, Offset, TopicPartition
from strandline.rpc.channels import Backoff
from strandline.rpc.convert.offsets import delete_records_request, list_offsets_request, read_deleted, read_offsets
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub


__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "FoundOffset", "OffsetFinder"]

ATTEMPT_MS = 5_000
"""How long to wait for one leader."""

_Why = dict[TopicPartition, Refusal]


class FoundOffset(NamedTuple):
    """A leader's answer; ``offset`` is None if no record is that late."""

    offset: Offset | None
    timestamp_ms: int | None
    leader_epoch: LeaderEpoch | None


class OffsetFinder:
    """Asks leaders for offsets."""

    def __init__(self, cluster: Cluster, *, read_committed: bool = False) -> None:
        """``read_committed``: the latest offset is the last stable one."""
        self._cluster = cluster
        self._read_committed = read_committed

    async def find(
        self, wanted: Mapping[TopicPartition, int], *, deadline_ms: int
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by partition; ``wanted`` has a time in ms, or EARLIEST, LATEST or MAX_TIMESTAMP.

        Raises:
            Refused: a partition's last refusal, when it cannot be helped or the deadline has passed.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        why: _Why = {}
        backoff = Backoff()
        retry = RetryLog("finding offsets")
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                while missing := {tp: time for tp, time in wanted.items() if tp not in found}:
                    await self._ask_leaders(missing, found, why)
                    _raise_final(why)
                    if len(found) < len(wanted):
                        retry.failed(time.monotonic() * 1000, _reason(why))
                        await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            _raise_final(why)
            tp = next((tp for tp in wanted if tp not in found), None)
            if tp is None:
                # The last answer came in the very moment the time was up.
                return found
            refusal = why.get(tp, Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp.partition} has no leader"))
            raise Refused.of(refusal) from None
        retry.worked()
        return found

    async def find_some(
        self, wanted: Mapping[TopicPartition, int], *, deadline_ms: int = ATTEMPT_MS, refused: _Why | None = None
    ) -> dict[TopicPartition, FoundOffset]:
        """One round of requests: the offsets that are available now; ``refused`` gets the refusals.

        Raises:
            Refused: without ``refused``, a partition's refusal that cannot be helped.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        why: _Why = {} if refused is None else refused
        await self._ask_leaders(wanted, found, why, deadline_ms)
        if refused is None:
            _raise_final(why)
        return found

    async def _ask_leaders(
        self,
        missing: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        why: _Why,
        deadline_ms: int = ATTEMPT_MS,
    ) -> None:
        groups: dict[Leader, list[OffsetQuestion]] = {}
        for tp, timestamp in missing.items():
            leader = self._cluster.view.leader_of(tp)
            if leader is not None:
                # By node alone, so that each is asked once; the epochs go with the questions.
                key = leader._replace(epoch=LeaderEpoch(0))
                groups.setdefault(key, []).append(OffsetQuestion(tp, timestamp, leader.epoch))
        await asyncio.gather(*(self._ask(leader, asked, found, why, deadline_ms) for leader, asked in groups.items()))

    async def _ask(
        self,
        leader: Leader,
        questions: Iterable[OffsetQuestion],
        found: dict[TopicPartition, FoundOffset],
        why: _Why,
        deadline_ms: int,
    ) -> None:
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(leader.endpoint))
        asked = list(questions)
        request = list_offsets_request(
            asked, cluster_id=self._cluster.cluster_id, replica=None, read_committed=self._read_committed
        )
        try:
            response = await self._cluster.ask_while(
                lambda: self._cluster.view.may_be_led_at(leader.endpoint, [one.tp for one in asked]),
                stub.ListOffsets,
                request,
                deadline_ms=deadline_ms,
            )
        except ClusterUnreachable as error:
            self._cluster.refresh()
            why.update({one.tp: Refusal(ErrorCode.NETWORK_EXCEPTION, str(error)) for one in asked})
            return
        except Refused as refused:
            why.update({one.tp: refused.refusal for one in asked})
            return
        for answer in read_offsets(response):
            if answer.refusal is None:
                found[answer.tp] = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
            else:
                # A new leader may not know the whole HW yet; a lower answer would let the end go back (KIP-207).
                why[answer.tp] = answer.refusal


def _raise_final(why: Mapping[TopicPartition, Refusal]) -> None:
    for refusal in why.values():
        if not refusal.retriable:
            raise Refused.of(refusal)


def _reason(why: Mapping[TopicPartition, Refusal]) -> str:
    return next((str(refusal) for refusal in why.values()), "no leader is known")


# ---- deletion
# Deletes records by a request to each partition's leader, repeated until a leader answers.
#
# Invariant: a deletion that a leader refused for good, or that its replicas did not follow in time, is not repeated; it
# comes back with its refusal, because what was deleted cannot be brought back.

_GRACE_MS = 1_000
"""How much longer than the leader's own wait its answer may take."""


class DeletedRecords(NamedTuple):
    """The result of a deletion in one partition."""

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
        why: _Why = {}
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
                retry.failed(loop.time() * 1000, _reason(why))
                await asyncio.sleep(min(backoff.next_s(), max(0.0, end_s - loop.time())))
        for tp in missing:
            refusal = why.get(tp, Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp.partition} has no leader"))
            done[tp] = DeletedRecords(tp.partition, None, refusal)
        return done

    async def _ask_leaders(
        self, missing: Mapping[TopicPartition, int], left_ms: int, done: dict[TopicPartition, DeletedRecords], why: _Why
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
        why: _Why,
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
