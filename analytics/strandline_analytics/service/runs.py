"""Which runs are listed, and for how long.

Invariant: a run is listed from when it was submitted until ``kept`` others have ended after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.run import Written
from strandline_analytics.scope import Grouping
from strandline_analytics.service import refusals
from strandline_analytics.service.jobs import Cancelled, Job, JobState
from strandline_analytics.service.values import moment
from strandline_analytics.sources.catalog import HOUR_US

_STATES = {
    JobState.WAITING: pb.RUN_STATE_WAITING,
    JobState.RUNNING: pb.RUN_STATE_RUNNING,
    JobState.DONE: pb.RUN_STATE_DONE,
    JobState.FAILED: pb.RUN_STATE_FAILED,
    JobState.CANCELLED: pb.RUN_STATE_CANCELLED,
}


@dataclass(slots=True)
class Run:
    """A run and what was asked of it."""

    job: Job
    stats: tuple[str, ...]
    grouping: Grouping
    writes_tables: bool
    """Whether it writes tables of a catalog or a warehouse, and not files."""
    notes: list[str] = field(default_factory=list)

    def reported(self, waiting_behind: int) -> pb.Run:
        """The run as its message."""
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
            run.error_message = refusals.sentence_of(job.error)
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
        """Tell of a run from now on, and forget those that ended longest ago beyond the bound."""
        self._runs[run.job.id] = run
        ended = sorted(
            (one for one in self._runs.values() if one.job.state.is_end), key=lambda one: one.job.ended_us or 0
        )
        for one in ended[: max(0, len(ended) - self._kept)]:
            del self._runs[one.job.id]
        return run

    def find(self, run_id: str) -> Run:
        """The run of that id.

        Raises:
            Refused: RESOURCE_NOT_FOUND, there is none.
        """
        found = self._runs.get(run_id)
        if found is None:
            raise refusals.not_found(
                "run_id",
                f"{run_id!r} is no run since this server started, or was forgotten; the last {self._kept} are kept",
                "use the run_id that SubmitRun gave, or submit it again: a run only replaces the hours that it writes",
            )
        return found


def hour_reported(hour: HourCoverage, input_hash: str = "") -> pb.HourCoverage:
    """The coverage of an hour as its message; ``input_hash`` names the files that its results are computed from."""
    return pb.HourCoverage(
        cluster_id=hour.cluster_id,
        hour=moment(hour.hour * HOUR_US),
        state=hour.state.value,
        coverage=hour.coverage if hour.emitters else None,
        emitters=hour.emitters,
        events=hour.events,
        missing=hour.missing,
        told_lost=hour.told_lost,
        unproven_nodes=sorted(hour.unproven),
        restarted_nodes=sorted(hour.restarted),
        copies=hour.copies,
        unknown=hour.unknown,
        newer=hour.newer,
        unknown_types=sorted(hour.unknown_types),
        input_manifest_hash=input_hash,
    )


def noting(run_notes: list[str]) -> Callable[[Sequence[str]], None]:
    """What a run says of its input, each line once."""

    def note(lines: Sequence[str]) -> None:
        run_notes.extend(line for line in lines if line not in run_notes)

    return note
