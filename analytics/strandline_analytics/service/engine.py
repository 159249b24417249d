"""How a question becomes Spark work in the worker thread, and how that work is interrupted.

Everything here but `interrupt` and `look` runs in the one worker thread, with the job's id as tag of its Spark jobs.
Tables over the same files are opened once and kept until a question needs other files.

Invariant: what is expected of a bad input comes out as a refusal that names the file; no error of Spark is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.jobs.ask import Question, files_for, scope_of
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.hours import covered, files_of_hours
from strandline_analytics.jobs.run import Written, hours_for, run, whole_hours
from strandline_analytics.service import pages, refusals, values
from strandline_analytics.service.jobs import Job
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.catalog import ExportedFile, find_exports, input_hash
from strandline_analytics.sources.exports import needed, read_exports
from strandline_analytics.sources.trouble import NothingThere, explained
from strandline_analytics.stats.definition import result
from strandline_analytics.timeline.event import events_from
from strandline_analytics.timeline.order import timeline
from strandline_analytics.timeline.selection import Selection
from strandline_analytics.timeline.sentences import sentence

_Arguments = ParamSpec("_Arguments")
_Reported = TypeVar("_Reported")


def interruptible(
    work: Callable[Concatenate[Engine, Job, _Arguments], _Reported],
) -> Callable[Concatenate[Engine, Job, _Arguments], _Reported]:
    """Tag the Spark jobs of ``work``, and tell its expected failures as refusals."""

    @wraps(work)
    def tagged(engine: Engine, job: Job, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Reported:
        context = engine.spark.sparkContext
        context.addJobTag(job.id)
        try:
            return work(engine, job, *arguments, **named)
        except Exception as error:
            # A Spark job that was cancelled fails in whatever way; nobody waits for its error.
            job.check()
            trouble = explained(error)
            if trouble is None:
                raise
            if isinstance(trouble, NothingThere):
                raise refusals.not_found(
                    "range, cluster_id", str(trouble), "call GetCoverage for what is there"
                ) from error
            raise refusals.unusable_input(str(trouble)) from error
        finally:
            context.removeJobTag(job.id)

    return tagged


class Engine:
    """The one Spark session of a server. ``most_rows``: more in one answer is refused."""

    def __init__(self, spark: SparkSession, *, most_rows: int) -> None:
        self.spark = spark
        self._most_rows = most_rows
        self._open: tuple[str, bool, Silver] | None = None

    def interrupt(self, job_id: str) -> None:
        """End the Spark jobs of a job, as far as they have begun; from any thread."""
        self.spark.sparkContext.cancelJobsWithTag(job_id)

    @interruptible
    def query(self, job: Job, question: Question, place: pages.Place) -> pages.Answer[pb.Row]:
        """All rows of one statistic, in the order of what they are about."""
        (statistic,) = question.statistics
        files = files_for(self.spark, question)
        pages.check_same_input(place, input_hash(files))
        scope = scope_of(self.spark, question, files)
        columns = values.columns_of(statistic, scope.grouping)
        found = result(statistic, self._silver(job, files, samples=statistic.reads_samples), scope)
        reported = {value.name for value in statistic.values}
        rows = self._collect(job, found.orderBy(*(name for name in found.columns if name not in reported)))
        header = pb.QueryHeader(
            stat=statistic.id,
            columns=columns,
            start=values.moment(scope.start_us),
            end=values.moment(scope.end_us),
            input_manifest_hash=input_hash(files),
            total_rows=len(rows),
        )
        return pages.Answer(input_hash(files), [values.row_of(row, columns) for row in rows], header)

    @interruptible
    def timeline(
        self, job: Job, question: Question, selection: Selection, place: pages.Place
    ) -> pages.Answer[pb.TimelineEvent]:
        """All selected events in logical order. ``question`` says which files."""
        samples = bool(selection.sample_types)
        files = files_for(self.spark, question) if samples else self._transitions_for(question)
        pages.check_same_input(place, input_hash(files))
        scope_of(self.spark, question, files)
        rows = self._collect(job, timeline(self._silver(job, files, samples=samples), selection))
        events = [
            pb.TimelineEvent(
                ordinal=row["ordinal"],
                time=values.moment(row["t"]),
                clock_err_us=row["clock_err_us"],
                sentence=sentence(event),
                event=values.state_event(row),
            )
            for row, event in zip(rows, events_from(rows), strict=True)
        ]
        return pages.Answer(input_hash(files), events)

    @interruptible
    def run(self, job: Job, question: Question, output: str, noticed: Callable[[Sequence[str]], None]) -> Written:
        """Write the tables of the closed hours that a question touches."""
        whole = whole_hours(question)
        hours = hours_for(self.spark, whole, now_us=_now_us())
        job.check()
        written = run(self.spark, whole, hours, output, noticed=noticed)
        self.forget()
        return written

    @interruptible
    def coverage(self, job: Job, question: Question) -> tuple[list[HourCoverage], str]:
        """How complete each hour is, and the name of the files that tell it."""
        files = files_of_hours(
            self.spark,
            question.inputs,
            cluster_id=question.cluster_id,
            start_us=question.start_us,
            end_us=question.end_us,
        )
        return covered(
            self.spark, files, now_us=_now_us(), start_us=question.start_us, end_us=question.end_us
        ), input_hash(files)

    def _transitions_for(self, question: Question) -> list[ExportedFile]:
        wanted = needed(question.start_us, question.end_us, samples=False)
        return find_exports(self.spark, question.inputs, cluster_id=question.cluster_id, wanted=wanted)

    def _silver(self, job: Job, files: list[ExportedFile], *, samples: bool) -> Silver:
        name = input_hash(files)
        if self._open is not None and self._open[:2] == (name, samples):
            return self._open[2]
        job.check()
        self.forget()
        silver = read_exports(self.spark, files, samples=samples)
        self._open = (name, samples, silver)
        return silver

    def forget(self) -> None:
        """Let go of the tables that are kept."""
        self._open = None
        self.spark.catalog.clearCache()

    def _collect(self, job: Job, frame: DataFrame) -> list[dict[str, Any]]:
        job.check()
        rows = [row.asDict(recursive=True) for row in frame.limit(self._most_rows + 1).collect()]
        if len(rows) > self._most_rows:
            raise refusals.wrong(
                "range", f"an answer has at most {self._most_rows:,} rows", "ask for less time, or use SubmitRun"
            )
        return rows


def _now_us() -> int:
    return time.time_ns() // 1_000
