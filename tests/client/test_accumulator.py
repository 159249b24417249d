"""How records become batches, and how much may be buffered."""

from __future__ import annotations

import asyncio

import pytest

from strandline.client.produce.delivery import OutgoingBatch
from strandline.client.produce.routes import BufferMemory, PartitionBuffer
from strandline.core.errors import Refused
from strandline.core.types import TopicPartition
from strandline.records.codec import decode_batch
from strandline.records.compression import Compression

TP = TopicPartition("id", 0)


def a_buffer(batch_bytes: int = 1024) -> tuple[PartitionBuffer, list[OutgoingBatch], BufferMemory]:
    closed: list[OutgoingBatch] = []
    memory = BufferMemory(1 << 20)
    buffer = PartitionBuffer(
        TP,
        memory,
        batch_bytes=batch_bytes,
        compression=Compression.NONE,
        make=lambda: OutgoingBatch("t", TP, now_ms=0, deadline_ms=1e9),
        on_closed=closed.append,
    )
    return buffer, closed, memory


def test_batches_stay_below_their_size() -> None:
    """No batch is larger than batch_bytes, and records keep their order over the batches."""
    buffer, closed, _ = a_buffer()
    for number in range(100):
        buffer.append(None, b"%03d" % number * 20, 1, ())
    buffer.close_batch()
    records = [record for batch in closed for record in decode_batch(batch.payload)]

    assert all(len(batch.payload) <= 1024 for batch in closed)
    assert [(record.value or b"")[:3] for record in records] == [b"%03d" % number for number in range(100)]


def test_place_in_the_batch_is_reported() -> None:
    """A record gets the batch that holds it and its position there, also when it opens a new one."""
    buffer, _, _ = a_buffer()
    first, first_place = buffer.append(None, b"x" * 500, 1, ())
    second, second_place = buffer.append(None, b"x" * 600, 1, ())

    assert (first_place, second_place) == (0, 0)
    assert first is not second


def test_large_record_goes_alone() -> None:
    """A record larger than batch_bytes is still sent, in a batch of its own."""
    buffer, closed, _ = a_buffer()
    buffer.append(None, b"small", 1, ())
    buffer.append(None, b"x" * 5_000, 1, [("name", b"value")])
    buffer.append(None, b"small", 1, ())
    buffer.close_batch()

    assert [batch.record_count for batch in closed] == [1, 1, 1]


def test_refused_record_leaves_nothing_behind() -> None:
    """A record that no batch can hold takes no memory, and closes no batch that was not full."""
    buffer, closed, memory = a_buffer()
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        buffer.append(None, b"x" * (2 << 20), 1, ())

    assert (closed, memory.used_bytes, buffer.open_batch) == ([], 0, None)


def test_all_of_a_record_counts_towards_the_buffer() -> None:
    """Key, value, names and values of headers, and a little for the record itself; its batch gives all of it back."""
    sizes = []
    for key, value, headers in ((None, None, ()), (b"k" * 10, b"v" * 20, [("n" * 3, b"h" * 4), ("n" * 5, None)])):
        buffer, _, memory = a_buffer()
        batch, _ = buffer.append(key, value, 1, headers)
        sizes.append(memory.used_bytes)
        memory.release(batch.reserved_bytes)
        assert memory.used_bytes == 0

    assert sizes[0] > 0
    assert sizes[1] - sizes[0] == 10 + 20 + 3 + 4 + 5


async def test_room_is_given_in_order() -> None:
    """Callers get room in the order in which they waited; a release for several wakes them one after another."""
    memory = BufferMemory(100)
    memory.used_bytes = 100
    order: list[int] = []

    async def wait(number: int) -> None:
        await memory.wait_for_room()
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    memory.release(50)
    async with asyncio.timeout(5):
        await asyncio.gather(waiting[0], waiting[2])

    assert order == [0, 2]
