"""What a process owns: background tasks, signals, descriptors, and state that stays."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys

import pytest

from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.process import LongLived, OwnTasks, raise_open_file_limit


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


SERVICE = """
import asyncio
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.process import run_service

async def main(stop_asked):
    print("up", flush=True)
    await stop_asked.wait()
    print("stopping", flush=True)
    if {hangs}:
        await asyncio.Event().wait()
    return ExitCode.CLEAN

raise SystemExit(run_service(main))
"""


@pytest.mark.parametrize(
    ("hangs", "signals", "code"),
    [
        (False, (signal.SIGTERM,), ExitCode.CLEAN),
        (False, (signal.SIGINT,), ExitCode.CLEAN),
        (True, (signal.SIGTERM, signal.SIGINT), ExitCode.STOP_TOOK_TOO_LONG),
    ],
    ids=["SIGTERM", "SIGINT", "a second one"],
)
def test_one_signal_asks_for_a_clean_stop_and_a_second_ends_it(
    hangs: bool, signals: tuple[signal.Signals, ...], code: ExitCode
) -> None:
    """The first lets the service stop by itself; the second ends one whose stop hangs, with a code of its own."""
    command = [sys.executable, "-c", SERVICE.format(hangs=hangs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            said = []
            for number in signals:
                said.append(process.stdout.readline())
                process.send_signal(number)
            ended = process.wait(30)
            errors = process.stderr.read()
        finally:
            process.kill()

    assert ended == code, errors
    assert said == ["up\n", "stopping\n"][: len(signals)]
    assert ("again: ended without a clean stop" in errors) == hangs


def test_a_fail_stop_ends_the_process_where_its_line_cannot_be_written() -> None:
    """The disk that failed may hold the log, too: the code is the same."""
    program = "from strandline.runtime.exit_codes import *; stop_process(ExitCode.STORAGE_FAILED, 'x')"
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", program], stderr=full, timeout=60, check=False)

    assert ended.returncode == ExitCode.STORAGE_FAILED


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """What a shell or a service manager gives by default is not what the process keeps."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        assert raise_open_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


_PROGRAM = """
import gc
from strandline.runtime.process import LongLived
logs = [[number] for number in range(50_000)]
LongLived(lambda: len(logs)).look()
assert len(gc.get_objects()) < 10_000, len(gc.get_objects())
"""

_LOADED = """
import gc
from strandline.runtime.process import keep_what_is_loaded
keep_what_is_loaded()
assert gc.get_threshold()[0] > 1_000, gc.get_threshold()
assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
assert len(gc.get_objects()) < 1_000, len(gc.get_objects())
circle = []
circle.append(circle)
del circle
assert gc.collect() >= 1
"""


@pytest.mark.parametrize("program", [_LOADED, _PROGRAM], ids=["what was loaded", "what grew"])
def test_what_stays_is_not_visited_by_the_next_full_collection(program: str) -> None:
    """Objects of the start, and those that exist at the look, are out of the collector's sight, and garbage is still
    found. In a separate process."""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_freeze_needs_growth_by_a_tenth() -> None:
    """Each freeze keeps what is garbage at that moment, so the same size, or a little more, brings none."""
    frozen_at: list[int] = []
    sizes = iter([99, 100, 100, 199, 200, 5_000, 5_499, 5_500])
    now = 0

    def size() -> int:
        nonlocal now
        now = next(sizes)
        return now

    state = LongLived(size, lambda: frozen_at.append(now))
    for _ in range(8):
        state.look()

    assert frozen_at == [100, 200, 5_000, 5_500]


def test_a_state_that_shrank_and_grew_again_is_not_frozen_twice() -> None:
    """Topics that are deleted and created over and over do not add a freeze each time."""
    frozen: list[None] = []
    sizes = iter([1_000, 0, 1_000, 0, 1_000])
    state = LongLived(lambda: next(sizes), lambda: frozen.append(None))
    for _ in range(5):
        state.look()

    assert len(frozen) == 1
