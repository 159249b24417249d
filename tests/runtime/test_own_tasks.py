"""Background tasks of one object: how they end, and what becomes of one that fails."""

from __future__ import annotations

import asyncio

from strandline.runtime.process import OwnTasks


async def test_closing_waits_until_every_task_has_ended() -> None:
    """What a task still does when it is cancelled is done when `close` returns."""
    ended: list[str] = []

    async def slow_to_end(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    failures: list[BaseException] = []
    tasks = OwnTasks(failures.append)
    for name in ("a", "b"):
        tasks.own(slow_to_end(name))
    await asyncio.sleep(0)
    await tasks.close()

    assert sorted(ended) == ["a", "b"]
    assert failures == []


async def test_a_task_that_fails_is_reported() -> None:
    """The exception that a task ends with goes to ``fail``, without anybody waiting for the task."""
    failed = asyncio.get_running_loop().create_future()
    tasks = OwnTasks(failed.set_result)

    async def fails() -> None:
        raise ValueError("broken")

    tasks.own(fails())
    error = await asyncio.wait_for(failed, 10)

    assert str(error) == "broken"
