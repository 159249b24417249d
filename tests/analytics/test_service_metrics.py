"""The queue metrics that the analytics server exposes to Prometheus."""

from __future__ import annotations

import asyncio
import threading

import pytest

from strandline.metrics.families import FAMILIES, Role
from strandline_analytics.service.jobs import Cancelled, Job, JobQueue
from strandline_analytics.service.process import queue_figures


def _reported(queue: JobQueue) -> dict[tuple[str, ...], float]:
    return {(figure.family.name, *figure.labels): figure.value for figure in queue_figures(queue)}  # type: ignore[misc]


async def test_every_end_of_a_question_is_counted() -> None:
    """Done, failed, cancelled while running, cancelled while waiting; and how many wait now."""
    queue = JobQueue(5, interrupt=lambda _: None)
    running = asyncio.create_task(queue.run_forever())
    begun, let_go = threading.Event(), threading.Event()

    def fail(_: Job) -> None:
        raise ValueError("broken")

    def hold(job: Job) -> None:
        begun.set()
        let_go.wait(10)
        job.check()

    await queue.submit("done", lambda _: None).outcome
    with pytest.raises(ValueError, match="broken"):
        await queue.submit("failed", fail).outcome
    held, waits, stays = queue.submit("held", hold), queue.submit("waits", hold), queue.submit("stays", lambda _: None)
    await asyncio.to_thread(begun.wait, 10)
    waiting = _reported(queue)
    for job in (held, waits):
        queue.cancel(job)
        with pytest.raises(Cancelled):
            await job.outcome
    let_go.set()
    await stays.outcome
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    queue.close()
    ended = _reported(queue)

    assert waiting["analytics_questions_waiting",] == 2
    assert ended["analytics_questions_waiting",] == 0
    assert ended["analytics_questions_total", "done"] >= 1
    assert ended["analytics_questions_total", "failed"] == 1
    assert ended["analytics_questions_total", "cancelled"] == 2


def test_every_metric_of_the_server_is_reported() -> None:
    """Every name of the table is exposed, and no other."""
    reported = {figure.family for figure in queue_figures(JobQueue(1, interrupt=lambda _: None))}

    assert reported | {f for f in FAMILIES if f.name == "build_info"} == {
        f for f in FAMILIES if Role.ANALYTICS in f.roles
    }
