"""A node whose exported events cannot be written serves normally, and reports afterwards what is missing."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from controller_stub import CLUSTER_ID, ControllerStub, topic
from fsspec.implementations.memory import MemoryFileSystem
from nodes_in_process import TOPIC, TOPIC_ID, batch, leader_stub, produce, running_nodes

from strandline.export.counters import ExportCounters
from strandline.export.destination import open_destination
from strandline.export.sink import TRANSITIONS_BEYOND
from strandline.export.verify import Completeness, Verified, verify
from strandline.node.node import ReplicaNode

PRODUCE_S = 5.0
"""Deadline of a produce; far above what it takes, far below what a destination that blocks takes."""
FAR_OFF_S = 60.0
"""For everything that has to happen at last."""
PARTITIONS = 4
RING = 200


class Reef(MemoryFileSystem):
    """A filesystem in memory that a test can make fail or block."""

    protocol = "reef"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failure: Exception | None = None
    gate = threading.Event()
    struck = threading.Event()

    def _open(self, *args: Any, **kwargs: Any) -> Any:
        if self.failure is not None or not self.gate.is_set():
            self.struck.set()
        assert self.gate.wait(FAR_OFF_S), "nobody opened the gate"
        if self.failure is not None:
            raise self.failure
        return super()._open(*args, **kwargs)


fsspec.register_implementation("reef", Reef, clobber=True)


@pytest.fixture
def reef() -> type[Reef]:
    """An empty filesystem that works."""
    Reef.store.clear()
    Reef.failure = None
    Reef.gate.set()
    Reef.struck.clear()
    return Reef


@asynccontextmanager
async def exporting_node(directory: Path, **settings: Any) -> AsyncIterator[ReplicaNode]:
    """A node that leads some partitions and records events at the highest detail."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,), partitions=PARTITIONS))
    chosen = {
        "export_uri": "reef://state",
        "export_roll_s": 1,
        "export_ring_events": RING,
        "sample_interval_ms": 10,
        "durability": "page-cache",
    }
    async with running_nodes(controller, directory, **{**chosen, **settings}) as (node,):
        yield node


class Load:
    """Produce calls to a node, one after the other; each has to be acknowledged before its deadline."""

    def __init__(self, node: ReplicaNode, stub: Any) -> None:
        self._node = node
        self._stub = stub
        self.acknowledged = 0
        self.most_waiting = 0

    async def until(self, done: Callable[[], bool]) -> None:
        """Produce until the condition holds."""
        deadline = time.monotonic() + FAR_OFF_S
        while not done():
            assert time.monotonic() < deadline, self._node.sink.counters()
            await self._one()

    async def _one(self) -> None:
        request = produce(batch("tide"), partition=self.acknowledged % PARTITIONS)
        answer = await self._stub.Produce(request, timeout=PRODUCE_S)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == 0, part
        self.acknowledged += 1
        self.most_waiting = max(self.most_waiting, self._node.sink.counters().waiting_events)


def _is_full(counters: ExportCounters) -> bool:
    return counters.dropped_total > RING and counters.waiting_events >= RING


def _verified() -> Verified:
    return verify(open_destination("reef://state"), CLUSTER_ID)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
async def test_a_destination_that_blocks_for_ever(tmp_path: Path, reef: type[Reef], form: str) -> None:
    """No produce waits for it, queued events are bounded, and what was dropped meanwhile is reported afterwards."""
    reef.gate.clear()
    async with exporting_node(tmp_path, export_format=form) as node, leader_stub(node) as stub:
        load = Load(node, stub)
        await load.until(reef.struck.is_set)
        # Events dropped before the writer got stuck prove nothing: the ring has to be full behind it.
        await load.until(lambda: _is_full(node.sink.counters()))
        stuck = node.sink.counters()
        reef.gate.set()
        await load.until(lambda: node.sink.counters().rows_total > 0 and node.sink.counters().waiting_events < RING)
    counters = node.sink.counters()
    (found,) = await asyncio.to_thread(lambda: _verified().incarnations)

    assert (stuck.rows_total, stuck.lag_seconds > 0) == (0, True)
    assert load.most_waiting <= RING * TRANSITIONS_BEYOND
    assert found.completeness is Completeness.GAPS_REPORTED
    assert found.missing_count == found.reported == counters.dropped_total
    assert found.rows == counters.rows_total


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("a bug of the filesystem's own")]
)
async def test_a_destination_that_fails(tmp_path: Path, reef: type[Reef], failure: Exception) -> None:
    """The same with files that wait in memory instead of events, up to a bound; then they are dropped and reported."""
    reef.failure = failure
    bound = 1 << 16
    settings = {"export_format": "jsonl", "export_waiting_bytes": bound, "export_file_bytes": bound}
    async with exporting_node(tmp_path, export_ring_events=50_000, **settings) as node, leader_stub(node) as stub:
        load = Load(node, stub)
        await load.until(lambda: node.sink.counters().lost_total > 0)
        failing = node.sink.counters()
        reef.failure = None
        await load.until(lambda: node.sink.counters().rows_total > 0)
    counters = node.sink.counters()
    (found,) = await asyncio.to_thread(lambda: _verified().incarnations)

    assert (failing.rows_total, failing.failures_total > 0, failing.waiting_bytes <= 2 * bound) == (0, True, True)
    assert (counters.dropped_total, counters.waiting_files, counters.lag_seconds) == (0, 0, 0.0)
    assert found.completeness is Completeness.GAPS_REPORTED
    assert found.missing_count == found.reported == counters.lost_total
