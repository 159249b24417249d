"""A client that uses only the node it first connected to: it never learns that leadership moved.

Invariant: it sends each value once and repeats nothing, so a value is in at most one place, whatever the answer.
"""

from __future__ import annotations

import asyncio
import itertools

import grpc
from harness.history_file import HistoryWriter, decode, encode
from harness.tokens import tls_of_channel

from strandline.records.batch import split_batches
from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.rpc.channels import open_channel, parse_endpoint
from strandline.v1 import leader_service_pb2 as leader_pb, partition_pb2
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub
from strandline_sim.checks.history import RecordValue, SendOutcome

NAME = "stale"
_CALL_S = 5.0
_PRODUCE_MS = 1_000
_TIMESTAMP_MS = 1_700_000_000_000


class StaleClient:
    """Produces acks=all to, and reads from, partition 0 of ``topic`` at ``address`` and nowhere else."""

    def __init__(
        self,
        history: HistoryWriter,
        going: asyncio.Event,
        stopping: asyncio.Event,
        *,
        address: str,
        topic: str,
        pause_s: float,
        tls: dict[str, str],
    ) -> None:
        self._history = history
        self._going = going
        self._stopping = stopping
        self._address = address
        self._topic = topic
        self._pause_s = pause_s
        self._tls = tls_of_channel(tls)
        self._position = 0

    async def run(self) -> None:
        self._history.seek(NAME, self._topic, 0, 0)
        async with open_channel(parse_endpoint(self._address), tls=self._tls) as channel:
            service = LeaderServiceStub(channel)
            for seq in itertools.count():
                await self._going.wait()
                if self._stopping.is_set():
                    return
                await self._produce(service, RecordValue(NAME, seq))
                await self._read(service)
                await asyncio.sleep(self._pause_s)

    async def _produce(self, service: LeaderServiceStub, value: RecordValue) -> None:
        row = leader_pb.ProducePartition(index=0, records=encode_batch([NewRecord(None, encode(value), _TIMESTAMP_MS)]))
        topic = leader_pb.ProduceTopic(name=self._topic, partition_data=[row])
        request = leader_pb.ProduceRequest(acks=-1, timeout_ms=_PRODUCE_MS, topic_data=[topic])
        self._history.send(value, self._topic, 0)
        try:
            answer = (await service.Produce(request, timeout=_CALL_S)).responses[0].partition_responses[0]
        except grpc.aio.AioRpcError:
            self._history.sent(value, SendOutcome.INDEFINITE)
            return
        if answer.error_code == 0:
            self._history.sent(value, SendOutcome.OK, answer.base_offset)
        elif answer.outcome == leader_pb.PRODUCE_OUTCOME_NOT_APPENDED:
            self._history.sent(value, SendOutcome.DEFINITE)
        else:
            self._history.sent(value, SendOutcome.INDEFINITE)

    async def _read(self, service: LeaderServiceStub) -> None:
        row = partition_pb2.FetchPartition(partition=0, fetch_offset=self._position)
        request = leader_pb.FetchRequest(topics=[partition_pb2.FetchTopic(topic=self._topic, partitions=[row])])
        try:
            answer = (await service.Fetch(request, timeout=_CALL_S)).responses[0].partitions[0]
        except grpc.aio.AioRpcError:
            return
        if answer.error_code or not answer.records:
            return
        found = [
            (record.offset, decode(record.value))
            for batch in split_batches(answer.records)
            for record in decode_batch(batch.view)
            if record.offset >= self._position
        ]
        if found:
            self._history.read(NAME, self._topic, 0, found)
            self._position = found[-1][0] + 1
