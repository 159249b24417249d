"""What is said of a batch at its end, and to whom."""

from __future__ import annotations

import asyncio

import pytest

from strandline.client.errors import SendFailed
from strandline.client.produce.delivery import Delivery, OutgoingBatch
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.types import Offset, TopicPartition


def _batch() -> OutgoingBatch:
    return OutgoingBatch("t", TopicPartition("id", 0), now_ms=0, deadline_ms=1e9)


async def test_a_caller_that_gives_up_takes_nothing_from_the_others() -> None:
    """The record is under way all the same, and the others that wait for its batch hear of its end."""
    batch = _batch()

    async def wait(index: int) -> int | None:
        return (await Delivery(batch, index, 5)).offset

    one, other = (asyncio.create_task(wait(index)) for index in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
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

    assert batch.refusal is not None and batch.refusal.outcome is outcome
    with pytest.raises(SendFailed):
        Delivery(batch, 0, None).result()


def test_a_batch_ends_once() -> None:
    """A second end would report records that were acknowledged as lost, or twice."""
    batch = _batch()
    batch.succeed(Offset(7))

    with pytest.raises(AssertionError, match="ended twice"):
        batch.fail(ErrorCode.REQUEST_TIMED_OUT, "over")
