"""What `strandline perf` adds to each record beside the client's own work, counted in calls of Python functions.

Times were compared with the bench's own (docs/BENCHMARKS.md); these counts keep what was gained there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

from counted_calls import CountedCalls

from strandline.cli.perf.load import Load
from strandline.cli.perf.measure import measure_consuming, measure_producing
from strandline.client import BatchOutcome, Record
from strandline.core.types import Offset

RECORDS, IN_BATCH = 2_560, 256
FEW = 0.2
"""Calls per record, of what is done once per batch, and of the loop."""


class BatchingProducer:
    """Ends records in batches; does nothing else."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.tags: list[int] = []

    async def send(self, topic: str, value: bytes, *, tag: int) -> None:
        """One call per record."""
        self.tags.append(tag)
        if len(self.tags) == IN_BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Ends what was taken."""
        tags, self.tags = self.tags, []
        if tags:
            self.load.batch_ended(BatchOutcome("t", 0, Offset(0), len(tags), 1, 1.0, 1, None, tags))


class BatchingReading:
    """Gives records in batches; does nothing else."""

    is_finished = False

    def __init__(self) -> None:
        self.records = [Record(Offset(index), 0, b"k", b"value") for index in range(IN_BATCH)]

    async def fetch_batches(self) -> list[SimpleNamespace]:
        """One call per batch."""
        return [SimpleNamespace(records=self.records)]


async def calls_of(work: Awaitable[object]) -> int:
    """How many Python functions were called, or went on, until its end."""
    with CountedCalls() as calls:
        await work
    return len(calls)


async def test_a_record_that_is_sent_costs_no_call_but_send() -> None:
    """Its value, the moment it was sent and its latency are made without one. It was 6 calls more when each record had
    a value, a function and an end of its own."""
    load = Load(topic="t", size_bytes=100)
    producer: Any = BatchingProducer(load)
    calls = await calls_of(measure_producing(load, producer, RECORDS, 0, lambda count: None))

    assert 1 <= calls / RECORDS <= 1 + FEW


async def test_a_record_that_is_read_costs_no_call() -> None:
    """Records are counted and measured a batch at a time. It was 1 when a generator measured each."""
    reading: Any = BatchingReading()
    calls = await calls_of(measure_consuming(reading, "t", RECORDS, 0, lambda count: None))

    assert calls / RECORDS <= FEW
