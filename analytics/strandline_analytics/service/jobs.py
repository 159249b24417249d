"""Queues the work of the one worker thread: orders it, bounds how much may wait, and cancels it.

The queue belongs to the event loop; only ``Job.work`` runs in the worker thread. It knows nothing of Spark: the creator
of the queue supplies the function that interrupts running work.

Invariant: one job runs at a time, in order of arrival; at most ``capacity`` wait; every job ends in exactly one of
done, failed and cancelled, and its outcome is known to every caller that waits for it at that moment.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.run import Written
from strandline_analytics.scope import Grouping
from strandline_analytics.service import questions
from strandline_analytics.service.values import HOUR, moment

INTERRUPT_EVERY_S = 0.5
"""The interval at which cancelled work is interrupted until it ends: it may be between two interruptible parts."""


class JobState(Enum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Whether the state is final."""
        return self not in (JobState.WAITING, JobState.RUNNING)


class Cancelled(Exception):
    """The job was cancelled; raised in the worker by `Job.check`, and in every caller that waits for the job."""


class Job:
    """One piece of work. Times are microseconds since 1970."""

    def __init__(self, job_id: str, title: str, work: Callable[[Job], Any], now_us: int) -> None:
        self.id = job_id
        self.title = title
        self.state = JobState.WAITING
        self.submitted_us = now_us
        self.started_us: int | None = None
        self.ended_us: int | None = None
        self.error: Exception | None = None
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # A job may have no waiting caller; asyncio must not complain about an error that no caller fetches.
        self.outcome.add_done_callback(lambda outcome: outcome.exception())
        self._work = work
        self._given_up = threading.Event()

    def check(self) -> None:
        """Called by the work between its parts.

        Raises:
            Cancelled: the job was cancelled.
        """
        if self._given_up.is_set():
            raise Cancelled(self.id)

    def perform(self) -> Any:
        """Do the work; called in the worker thread."""
        self.check()
        return self._work(self)

    def _end(self, state: JobState, now_us: int, value: Any = None, error: Exception | None = None) -> None:
        if self.state.is_end:
            return
        self.state, self.ended_us, self.error = state, now_us, error
        if error is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(value)

    def _give_up(self, now_us: int) -> None:
        self._given_up.set()
        self._end(JobState.CANCELLED, now_us, error=Cancelled(self.id))


class JobQueue:
    """Jobs of one server. ``interrupt`` gets the id of a job whose work is running; it may be called repeatedly."""

    def __init__(
        self,
        capacity: int,
        *,
        interrupt: Callable[[str], None],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        prefix: str = "",
    ) -> None:
        self._capacity = capacity
        self._interrupt = interrupt
        self._now_us = now_us
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self.ended: Counter[str] = Counter()
        """The number of jobs that ended, by final state."""
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="analytics-worker")

    def submit(self, title: str, work: Callable[[Job], Any]) -> Job:
        """Append work to the queue.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED, the queue is full.
        """
        if len(self._waiting) >= self._capacity:
            raise questions.full(
                "queue",
                f"at most {self._capacity} questions wait for the one that is computed",
                "ask again when one of them has ended, or start the server with a larger --queue-length",
            )
        job = Job(f"{self._prefix}{next(self._numbers)}", title, work, self._now_us())
        self._waiting.append(job)
        self._changed.set()
        return job

    @property
    def waiting(self) -> int:
        """The number of waiting jobs."""
        return len(self._waiting)

    def ahead_of(self, job: Job) -> int:
        """The number of jobs that end before this one begins; 0 once it has begun."""
        if job not in self._waiting:
            return 0
        return self._waiting.index(job) + (self._running is not None)

    def cancel(self, job: Job) -> None:
        """Cancel a job; one that has ended stays as it is."""
        job._give_up(self._now_us())
        if job in self._waiting:
            self._waiting.remove(job)
            self.ended[job.state.value] += 1
        self._changed.set()

    async def run_forever(self) -> None:
        """Perform the submitted jobs, one after the other."""
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            job = self._running = self._waiting.popleft()
            job.state, job.started_us = JobState.RUNNING, self._now_us()
            await self._until_ended(job)
            self.ended[job.state.value] += 1
            self._running = None

    async def _until_ended(self, job: Job) -> None:
        work = asyncio.get_running_loop().run_in_executor(self._thread, job.perform)
        while not work.done():
            if job.state.is_end:
                await asyncio.to_thread(self._interrupt, job.id)
                await asyncio.wait([work], timeout=INTERRUPT_EVERY_S)
                continue
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([work, changed], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        error = work.exception()
        if error is None:
            job._end(JobState.DONE, self._now_us(), value=work.result())
        elif isinstance(error, Exception):
            job._end(JobState.FAILED, self._now_us(), error=error)
        else:
            raise error

    def close(self) -> None:
        """Cancel every job; running work ends by itself in the worker thread."""
        for job in [*self._waiting, *([self._running] if self._running else [])]:
            self.cancel(job)
        self._thread.shutdown(wait=False, cancel_futures=True)


# ---- runs
# Keeps the list of runs.
#
# Invariant: a run is listed from its submission until ``kept`` other runs have ended after it.

_STATES = {
    JobState.WAITING: pb.RUN_STATE_WAITING,
    JobState.RUNNING: pb.RUN_STATE_RUNNING,
    JobState.DONE: pb.RUN_STATE_DONE,
    JobState.FAILED: pb.RUN_STATE_FAILED,
    JobState.CANCELLED: pb.RUN_STATE_CANCELLED,
}


@dataclass(slots=True)
class Run:
    """A run and its question."""

    job: Job
    stats: tuple[str, ...]
    grouping: Grouping
    writes_tables: bool
    """Whether the run writes tables of a catalog or a warehouse instead of files."""
    notes: list[str] = field(default_factory=list)

    def reported(self, waiting_behind: int) -> pb.Run:
        """The run as a message."""
        job = self.job
        run = pb.Run(
            run_id=job.id,
            state=_STATES[job.state],
            stats=self.stats,
            waiting_behind=waiting_behind,
            submitted=moment(job.submitted_us),
            started=None if job.started_us is None else moment(job.started_us),
            ended=None if job.ended_us is None else moment(job.ended_us),
            notes=self.notes,
        )
        if job.state is JobState.DONE:
            self._tell_written(run, job.outcome.result())
        elif job.error is not None and not isinstance(job.error, Cancelled):
            run.error_message = questions.sentence_of(job.error)
        return run

    def _tell_written(self, run: pb.Run, written: Written) -> None:
        run.left_out.extend(hour_reported(hour) for hour in written.left_out)
        for stat, rows in written.rows.items():
            where = {"table" if self.writes_tables else "path": written.places[stat]}
            run.outputs.add(stat=stat, rows=rows, **where)


class Runs:
    """The runs that are listed."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._runs: dict[str, Run] = {}

    def add(self, run: Run) -> Run:
        """List a run, and drop the runs that ended longest ago if there are more than ``kept``."""
        self._runs[run.job.id] = run
        ended = sorted(
            (one for one in self._runs.values() if one.job.state.is_end), key=lambda one: one.job.ended_us or 0
        )
        for one in ended[: max(0, len(ended) - self._kept)]:
            del self._runs[one.job.id]
        return run

    def find(self, run_id: str) -> Run:
        """The run with this id.

        Raises:
            Refused: RESOURCE_NOT_FOUND, there is none.
        """
        found = self._runs.get(run_id)
        if found is None:
            raise questions.not_found(
                "run_id",
                f"{run_id!r} is not a run since this server started, or was forgotten; the last {self._kept} are kept",
                "use the run_id that SubmitRun gave, or submit it again: a run only replaces the hours that it writes",
            )
        return found


def hour_reported(hour: HourCoverage, input_hash: str = "") -> pb.HourCoverage:
    """The coverage of an hour as a message; ``input_hash`` identifies the files that its results are computed from."""
    return HOUR.write(
        hour,
        state=hour.state.value,
        coverage=hour.coverage if hour.emitters else None,
        input_manifest_hash=input_hash,
    )


def noting(run_notes: list[str]) -> Callable[[Sequence[str]], None]:
    """Collects a run's remarks on its input, each line once."""

    def note(lines: Sequence[str]) -> None:
        run_notes.extend(line for line in lines if line not in run_notes)

    return note
