"""Work outside the event loop: the loop continues meanwhile, and the queue is short."""

from __future__ import annotations

import asyncio
import threading

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.runtime.threads import Aside, giving_way


async def test_the_event_loop_goes_on_while_work_is_done() -> None:
    """A job that waits for the event loop itself completes."""
    aside, from_loop = Aside("test"), threading.Event()
    job = asyncio.ensure_future(aside.run(lambda: from_loop.wait(10)))
    await asyncio.sleep(0)
    from_loop.set()

    assert await job
    aside.close()


async def test_one_job_more_than_may_wait_is_refused() -> None:
    """One is running and two wait; the next is rejected at once, and later there is room again."""
    aside, go_on = Aside("test", waiting=2), threading.Event()
    jobs = [asyncio.ensure_future(aside.run(lambda: go_on.wait(10))) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await aside.run(lambda: None)
    go_on.set()
    done = await asyncio.gather(*jobs)

    assert refused.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert done == [True] * 3
    assert await aside.run(lambda: "again") == "again"
    aside.close()


async def test_what_work_raises_is_raised_to_its_caller() -> None:
    """A rejection by the work is raised to the caller, and frees its slot like any end."""
    aside = Aside("test", waiting=0)

    def refuse() -> None:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, "too large")

    for _ in range(3):
        with pytest.raises(Refused, match="too large"):
            await aside.run(refuse)
    aside.close()


def test_giving_way_changes_no_item() -> None:
    """Every item comes through once, in order."""
    assert list(giving_way(range(1_000))) == list(range(1_000))
