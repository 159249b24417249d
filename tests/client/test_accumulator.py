"""What becomes of a record on its way out: its partition, its batch, what a failed send means, and what is said at the
end.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from strandline.client.errors import SendFailed
from strandline.client.produce.delivery import Delivery, OutgoingBatch
from strandline.client.produce.lane import AfterRefusal, after_refusal
from strandline.client.produce.routes import BufferMemory, PartitionBuffer, StickyPartition, murmur2, partition_for_key
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import Offset, TopicPartition
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
    records = [record for batch in closed for record in decode_batch(b"".join(batch.as_sent()))]

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
    """All bytes of a batch count before compression, those of headers too; the batch gives all of them back."""
    buffer, closed, memory = a_buffer()
    for key, value, headers in ((None, None, ()), (b"k" * 10, b"v" * 20, [("n" * 3, b"h" * 4), ("n" * 5, None)])):
        buffer.append(key, value, 1, headers)
    used_bytes = memory.used_bytes
    buffer.close_batch()

    assert used_bytes == len(closed[0].payload)
    memory.release(closed[0].reserved_bytes)
    assert memory.used_bytes == 0


async def test_room_is_given_in_order() -> None:
    """Callers get room in the order in which they waited; a release for several wakes them one after another, also if
    the one whose turn it is gives up in that moment."""
    memory = BufferMemory(100)
    memory.free_bytes = 0
    order: list[int] = []

    async def wait(number: int) -> None:
        await memory.wait_for_room()
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    memory.release(50)
    waiting[0].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting[2:])

    assert order == [2, 3]


# Kafka's UtilsTest.testMurmur2, as signed numbers.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KAFKA.items())
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    """The hash of each of Kafka's own test keys equals Kafka's."""
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_murmur2_equals_another_client() -> None:
    """Hash and partition agree with kafka-python's for keys of every length."""
    partitioner = pytest.importorskip("kafka.partitioner.default")
    other = getattr(partitioner, "murmur2", None) or pytest.importorskip("kafka.partitioner.murmur2").murmur2
    draw = random.Random(7)
    keys = [draw.randbytes(length) for length in range(64)]

    assert [murmur2(key) for key in keys] == [other(key) & 0xFFFFFFFF for key in keys]


def test_partition_is_positive_modulo() -> None:
    """The sign bit is dropped before the modulo, as in Kafka's toPositive."""
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_sticky_moves_on_to_partitions_with_a_leader() -> None:
    """Another partition is chosen each time, one without a leader only if there is no other."""
    sticky = StickyPartition(random.Random(1))
    seen = [sticky.choose(4, [0, 2]) for _ in range(6)]

    assert seen in ([0, 2] * 3, [2, 0] * 3)
    assert StickyPartition().choose(1, []) == 0


def decided(code: ErrorCode, *, idempotent: bool = True, appeared: bool = False, behind: bool = False) -> AfterRefusal:
    return after_refusal(Refusal(code), idempotent=idempotent, may_have_appeared=appeared, behind_an_older=behind)


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_a_retry_may_cure_is_sent_again(idempotent: bool) -> None:
    """A rejection that is retriable and certain is retried, that of a fenced leader epoch too."""
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        assert decided(code, idempotent=idempotent) is AfterRefusal.SENT_AGAIN
    assert decided(ErrorCode.MESSAGE_TOO_LARGE, idempotent=idempotent) is AfterRefusal.GIVEN_UP


def test_without_a_sequence_nothing_uncertain_is_sent_again() -> None:
    """Without a sequence a second copy could not be detected, so an uncertain batch is given up."""
    assert decided(ErrorCode.REQUEST_TIMED_OUT, idempotent=False, appeared=True) is AfterRefusal.GIVEN_UP
    assert decided(ErrorCode.REQUEST_TIMED_OUT, appeared=True) is AfterRefusal.SENT_AGAIN


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_sequence_no_leader_takes_is_replaced_unless_it_may_be_written(code: ErrorCode) -> None:
    """A batch that may be in the log keeps its number, so it is given up."""
    assert decided(code) is AfterRefusal.NUMBERED_AGAIN
    assert decided(code, appeared=True) is AfterRefusal.GIVEN_UP


def test_a_gap_before_an_unanswered_batch_closes_by_itself() -> None:
    """Out of order behind an older batch: both are sent again in order."""
    assert decided(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, appeared=True, behind=True) is AfterRefusal.SENT_AGAIN
    assert decided(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is AfterRefusal.NUMBERED_AGAIN


def _batch() -> OutgoingBatch:
    return OutgoingBatch("t", TopicPartition("id", 0), now_ms=0, deadline_ms=1e9)


async def test_a_caller_that_gives_up_takes_nothing_from_the_others() -> None:
    """The record is under way all the same, its result is not there yet, and the others that wait hear of the end."""
    batch = _batch()

    async def wait(index: int) -> int | None:
        return (await Delivery(batch, index, 5)).offset

    one, other = (asyncio.create_task(wait(index)) for index in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    with pytest.raises(asyncio.InvalidStateError):
        Delivery(batch, 0, 5).result()
    batch.succeed(Offset(7))

    assert await asyncio.wait_for(other, 10) == 8


@pytest.mark.parametrize(
    ("attempts", "outcome"),
    [
        ((), Outcome.NOT_APPENDED),
        (("refused",), Outcome.NOT_APPENDED),
        (("lost",), Outcome.MAY_APPEAR),
        (("lost", "refused"), Outcome.MAY_APPEAR),
        (("under way",), Outcome.MAY_APPEAR),
    ],
)
def test_an_end_is_definite_only_if_every_attempt_was(attempts: tuple[str, ...], outcome: Outcome) -> None:
    """P2: an attempt that was lost, or whose answer is awaited still, may have written the records."""
    batch = _batch()
    for number, attempt in enumerate(attempts):
        batch.attempt = number
        if attempt == "lost":
            batch.attempt_lost()
        elif attempt == "refused":
            batch.attempt = None
    batch.fail(ErrorCode.REQUEST_TIMED_OUT, "over")

    assert batch.refusal.outcome is outcome
    with pytest.raises(SendFailed):
        Delivery(batch, 0, None).result()


def test_a_batch_ends_once() -> None:
    """A second end would report records that were acknowledged as lost, or twice."""
    batch = _batch()
    batch.succeed(Offset(7))

    with pytest.raises(AssertionError, match="ended twice"):
        batch.fail(ErrorCode.REQUEST_TIMED_OUT, "over")
