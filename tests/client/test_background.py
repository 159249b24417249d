"""Tasks end with their owner, and their defects are not lost."""

from __future__ import annotations

import asyncio

import pytest

from strandline.client.background import Background


async def test_close_ends_every_task() -> None:
    """Nothing keeps running after `close`."""
    background = Background()
    task = background.start(_forever, "forever").task
    await background.close()

    assert task is not None
    assert task.cancelled()


async def test_close_ends_a_task_that_misses_a_cancellation() -> None:
    """A task that hears of something else instead, as of the end of a call, is cancelled again."""
    missed = 0

    async def misses_one() -> None:
        nonlocal missed
        try:
            await _forever()
        except asyncio.CancelledError:
            missed += 1
        await _forever()

    background = Background()
    job = background.start(misses_one, "misses one")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await background.close()

    assert job.task is not None
    assert (missed, job.task.cancelled()) == (1, True)


async def _forever() -> None:
    await asyncio.Event().wait()


async def _defect() -> None:
    raise ZeroDivisionError


async def test_defect_reaches_the_user() -> None:
    """An unexpected error is logged at once, raised at the next use, and again on closing."""
    reported: list[BaseException | None] = []
    background = Background(reported.append)
    background.start(_defect, "defect")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert isinstance(reported[0], ZeroDivisionError)
    with pytest.raises(RuntimeError, match="background task"):
        background.check()
    with pytest.raises(RuntimeError, match="background task"):
        await background.close()
