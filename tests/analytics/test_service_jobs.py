"""The queue of the analytics: one job at a time, a bounded number behind it, and every end reported to its caller."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline_analytics.service.jobs import Cancelled, Job, JobQueue, JobState

_DEADLINE_S = 20


class Gate:
    """Work that blocks until it is released or interrupted."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.interrupted: list[str] = []

    def work(self, job: Job) -> str:
        """Wait, then continue unless the job was cancelled."""
        self.begun.set()
        assert self.let_go.wait(_DEADLINE_S), "nobody let the work go"
        job.check()
        return f"did {job.title}"

    def interrupt(self, job_id: str) -> None:
        """The effect of a cancelled Spark job."""
        self.interrupted.append(job_id)
        self.let_go.set()


@asynccontextmanager
async def _queue(capacity: int, interrupt: Callable[[str], None] = lambda _: None) -> AsyncIterator[JobQueue]:
    queue = JobQueue(capacity, interrupt=interrupt)
    owner = asyncio.create_task(queue.run_forever())
    try:
        async with asyncio.timeout(_DEADLINE_S):
            yield queue
    finally:
        queue.close()
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


async def test_jobs_are_done_in_order_of_arrival() -> None:
    """Each job begins after the one before it has ended."""
    done: list[str] = []
    async with _queue(3) as queue:
        jobs = [queue.submit(title, lambda job: done.append(job.title)) for title in ("first", "second", "third")]
        await jobs[-1].outcome

    assert done == ["first", "second", "third"]
    assert [job.state for job in jobs] == [JobState.DONE] * 3
    ends = [(job.started_us or 0, job.ended_us or 0) for job in jobs]
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(ends))


async def test_a_full_queue_refuses_with_what_to_do() -> None:
    """The running job does not count; as many as the capacity wait behind it, and no more."""
    gate = Gate()
    async with _queue(2) as queue:
        running = queue.submit("running", gate.work)
        await asyncio.to_thread(gate.begun.wait, _DEADLINE_S)
        waiting = [queue.submit(f"waiting {n}", lambda job: None) for n in (1, 2)]

        with pytest.raises(Refused) as caught:
            queue.submit("too many", lambda job: None)

        assert [queue.ahead_of(job) for job in (running, *waiting)] == [0, 1, 2]
        gate.let_go.set()
        await waiting[-1].outcome
        assert queue.submit("again", lambda job: None).state is JobState.WAITING

    refusal = caught.value.refusal
    assert refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (refusal.field, bool(refusal.rule), bool(refusal.remedy)) == ("queue", True, True)


async def test_a_job_that_waits_is_cancelled_without_a_trace() -> None:
    """A cancelled waiting job never begins, its caller is notified at once, and the next one moves up."""
    gate, begun = Gate(), []
    async with _queue(2) as queue:
        queue.submit("running", gate.work)
        await asyncio.to_thread(gate.begun.wait, _DEADLINE_S)
        unwanted = queue.submit("unwanted", lambda job: begun.append(job.title))
        behind = queue.submit("behind", lambda job: begun.append(job.title))

        queue.cancel(unwanted)

        with pytest.raises(Cancelled):
            await unwanted.outcome
        assert queue.ahead_of(behind) == 1
        gate.let_go.set()
        await behind.outcome

    assert begun == ["behind"]
    assert unwanted.state is JobState.CANCELLED


async def test_work_under_way_is_interrupted() -> None:
    """A running job's caller is notified at once; its work is interrupted by its id, and then the next job begins."""
    gate = Gate()
    async with _queue(2, gate.interrupt) as queue:
        running = queue.submit("running", gate.work)
        await asyncio.to_thread(gate.begun.wait, _DEADLINE_S)
        behind = queue.submit("behind", lambda job: job.title)

        queue.cancel(running)

        with pytest.raises(Cancelled):
            await running.outcome
        assert await behind.outcome == "behind"

    assert gate.interrupted[0] == running.id
    assert running.state is JobState.CANCELLED


async def test_a_failure_is_the_jobs_own() -> None:
    """The caller gets the exception; the queue continues."""

    def fail(job: Job) -> None:
        raise ValueError("no such file")

    async with _queue(2) as queue:
        failed, next_one = queue.submit("fails", fail), queue.submit("works", lambda job: 7)
        with pytest.raises(ValueError, match="no such file"):
            await failed.outcome
        assert await next_one.outcome == 7

    assert failed.state is JobState.FAILED
    assert isinstance(failed.error, ValueError)


async def test_cancelling_what_has_ended_changes_nothing() -> None:
    """Cancelling a job that has ended does not change its result."""
    async with _queue(1) as queue:
        job = queue.submit("quick", lambda job: "result")
        await job.outcome
        queue.cancel(job)

    assert job.state is JobState.DONE
    assert await job.outcome == "result"
