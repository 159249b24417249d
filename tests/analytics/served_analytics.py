"""An analytics server in this process over a small export, and the helpers its tests call it with."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from pyspark.sql import SparkSession

from strandline.rpc.channels import target
from strandline.rpc.status import DETAILS_KEY
from strandline.v1 import analytics_service_pb2 as pb, analytics_service_pb2_grpc as pb_grpc
from strandline_analytics.service.jobs import Job
from strandline_analytics.service.process import AnalyticsServer
from strandline_analytics.service.settings import AnalyticsSettings
from strandline_analytics.tables.destination import Destination

DEADLINE_S = 240
SERVICE_NAME = "strandline.v1.AnalyticsService"
HOUR_US = 1_795_183_200_000_000  # 2026-11-20T14:00:00Z
_FOLDER = "dt=2026-11-20/hr=14"
QUEUE_LENGTH = 2

# Two partitions on three nodes: p0 loses node 3 after 10 minutes and has it back after 20, p1 moves from node 1 to 2.
_SNAPSHOT = {"event_type": "STATE_SNAPSHOT", "partition_epoch": 1, "leader_epoch": 0, "new_leader": 1, "min_isr": 2,
             "new_isr": [1, 2, 3], "replicas": [1, 2, 3], "elr": []}  # fmt: skip
_DECISIONS: list[tuple[int, int, dict[str, Any]]] = [
    (0, 0, _SNAPSHOT),
    (0, 1, _SNAPSHOT),
    (600, 0, {"event_type": "ISR_CHANGE", "partition_epoch": 2, "old_isr": [1, 2, 3], "new_isr": [1, 2],
              "cause": "lag", "initiator": "leader", "removed": [{"replica_id": 3, "leo": 4}], "added": []}),
    (1_200, 0, {"event_type": "ISR_CHANGE", "partition_epoch": 3, "old_isr": [1, 2], "new_isr": [1, 2, 3],
                "cause": "catch_up", "initiator": "leader", "removed": [], "added": [{"replica_id": 3, "leo": 9}]}),
    (1_800, 1, {"event_type": "LEADER_CHANGE", "partition_epoch": 2, "leader_epoch": 1, "old_leader": 1,
                "new_leader": 2, "old_leader_epoch": 0, "new_leader_epoch": 1, "election_type": "isr"}),
]  # fmt: skip


def envelope(seq: int, second: int, partition: int, **said: Any) -> dict[str, Any]:
    at_us = HOUR_US + second * 1_000_000
    row = {"schema_version": 1, "cluster_id": "tidal", "node_id": -1, "incarnation": 1, "seq": seq, "topic": "tides"}
    row |= {"ts_wall_us": at_us, "ts_mono_us": at_us, "topic_id": "T", "partition": partition, "leader_epoch": 0}
    return row | said


def _look(seq: int, second: int, replica: int, leo: int) -> dict[str, Any]:
    return envelope(
        seq, second, 0, event_type="REPLICA_SAMPLE", node_id=1, incarnation=5, partition_epoch=1, sample_id=second,
        interval_ms=10_000, replica_id=replica, leo=leo, durable_leo=leo, leader_leo=9, hw=9, in_isr=True,
        in_maximal_isr=True, expected_state="member",
    )  # fmt: skip


def write_file(root: Path, dataset: str, rows: list[dict[str, Any]]) -> None:
    folder = root / "tidal" / "v1" / dataset / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    first, last = rows[0], rows[-1]
    name = f"n{first['node_id']}-i{first['incarnation']}-{first['seq']}-{last['seq']}.jsonl"
    unfinished = folder / f".{name}"
    unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    unfinished.rename(folder / name)


class Served:
    """A server in a thread with an event loop of its own, and a client of it."""

    def __init__(self, settings: AnalyticsSettings, spark: SparkSession) -> None:
        self.settings = settings
        self.spark = spark
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = AnalyticsServer(settings, spark)
        endpoint = self.within(self.server.start())
        self.channel = grpc.insecure_channel(target(endpoint))
        self.stub: Any = pb_grpc.AnalyticsServiceStub(self.channel)

    def within(self, work: Any) -> Any:
        """The result of a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def submit(self, work: Callable[[Job], Any]) -> Job:
        """Put a job of the test's own into the server's queue."""

        async def put() -> Job:
            return self.server.queue.submit("of the test", work)

        job: Job = self.within(put())
        return job

    def outcome(self, job: Job) -> Future[Any]:
        """A job's outcome."""

        async def wait() -> Any:
            return await job.outcome

        return asyncio.run_coroutine_threadsafe(wait(), self.loop)

    def cancel(self, job: Job) -> None:
        """Cancel a job, like a call whose caller has gone."""
        self.loop.call_soon_threadsafe(self.server.queue.cancel, job)

    def stop(self) -> None:
        """End the server and its thread."""
        self.channel.close()
        self.within(self.server.shut_down())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


def export_into(root: Path) -> None:
    """Write the export of one hour: decisions of the controller, samples of node 1."""
    decisions = [
        envelope(number, second, partition, meta_offset=number, **said)
        for number, (second, partition, said) in enumerate(_DECISIONS, start=1)
    ]
    write_file(root, "transitions", decisions)
    write_file(root, "samples", [_look(1, 60, 1, 9), _look(2, 60, 2, 9), _look(3, 60, 3, 4)])


@contextmanager
def serving(root: Path, results: Path | Destination, spark: SparkSession | None) -> Iterator[Served]:
    """A server over the export in ``root``; without a session it answers every request that needs no Spark."""
    export_into(root)
    destination = Destination(out=str(results)) if isinstance(results, Path) else results
    settings = AnalyticsSettings(inputs=(str(root),), destination=destination, queue_length=QUEUE_LENGTH, poll_s=0.1)
    server = Served(settings, cast(SparkSession, spark))
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def held(served: Served) -> Iterator[threading.Event]:
    """The worker is busy until the event is set, or the block ends."""
    begun, let_go = threading.Event(), threading.Event()

    def hold(job: Job) -> None:
        begun.set()
        assert let_go.wait(DEADLINE_S), "nobody let the worker go"

    outcome = served.outcome(served.submit(hold))
    assert begun.wait(DEADLINE_S)
    try:
        yield let_go
    finally:
        let_go.set()
        outcome.result(DEADLINE_S)


def hour_of_the_export(start_s: int = 0, end_s: int = 3_600) -> pb.TimeRange:
    asked = pb.TimeRange()
    asked.start.FromMicroseconds(HOUR_US + start_s * 1_000_000)
    asked.end.FromMicroseconds(HOUR_US + end_s * 1_000_000)
    return asked


def query(served: Served, **fields: Any) -> tuple[pb.QueryHeader, list[pb.Row], pb.QueryEnd]:
    request = pb.QueryRequest(**({"stat": "s10", "range": hour_of_the_export()} | fields))
    parts = list(served.stub.Query(request, timeout=DEADLINE_S))
    assert [part.WhichOneof("part") for part in parts] == ["header", *["row"] * (len(parts) - 2), "end"]
    return parts[0].header, [part.row for part in parts[1:-1]], parts[-1].end


def _info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    (details,) = [value for key, value in error.trailing_metadata() if key == DETAILS_KEY]
    (packed,) = status_pb2.Status.FromString(details).details
    info = error_details_pb2.ErrorInfo()
    assert packed.Unpack(info)
    return info


def refused(call: Callable[[], Any]) -> tuple[grpc.StatusCode, error_details_pb2.ErrorInfo]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), _info(caught.value)


def timeline(served: Served, **fields: Any) -> tuple[list[pb.TimelineEvent], pb.TimelineEnd]:
    request = pb.GetTimelineRequest(**({"range": hour_of_the_export()} | fields))
    parts = list(served.stub.GetTimeline(request, timeout=DEADLINE_S))
    return [part.event for part in parts[:-1]], parts[-1].end


def waiting(served: Served) -> int:
    async def count() -> int:
        return served.server.queue.waiting

    number: int = served.within(count())
    return number


def until(fact: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(20 * DEADLINE_S):
        if fact():
            return
        waiting.wait(0.05)
    raise AssertionError("it never came true")
