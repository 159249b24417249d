"""Turns a question into Spark work in the worker thread, and interrupts that work.

Everything here but `interrupt` and `look` runs in the one worker thread, with the job's id as tag of its Spark jobs.
Tables over the same files are opened once and kept until a question needs other files.

Invariant: bad input ends in a refusal that names the file; no error of Spark is shown.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

from strandline.core.errors import Refused
from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.explain.ask import AskedPartition, ExplainedPartition, decision, held_back, stall
from strandline_analytics.explain.ask_group import AskedGroup, standstill
from strandline_analytics.jobs.ask import Question, files_for, scope_of
from strandline_analytics.jobs.coverage import covered, files_of_hours, hash_of_hour
from strandline_analytics.jobs.run import Written, hours_for, run, whole_hours
from strandline_analytics.report import Report
from strandline_analytics.report.gather import STEPS, TooMuch, gather
from strandline_analytics.report.page import report_of
from strandline_analytics.service import pages, questions, values
from strandline_analytics.service.jobs import Job, hour_reported
from strandline_analytics.session import is_little
from strandline_analytics.silver.events import not_understood
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.catalog import ExportedFile, find_exports, input_hash
from strandline_analytics.sources.exports import needed, read_exports
from strandline_analytics.sources.inspection import notices, unread
from strandline_analytics.sources.kafka.availability import unavailable
from strandline_analytics.sources.trouble import NothingThere, explained
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result, with_any_value
from strandline_analytics.tables.destination import Destination
from strandline_analytics.timeline.event import Selection, events_from
from strandline_analytics.timeline.inferred import with_inferences
from strandline_analytics.timeline.order import timeline

KEPT_REPORTS = 8
"""The number of reports that are kept; each takes some hundred kilobytes."""

_Arguments = ParamSpec("_Arguments")
_Reported = TypeVar("_Reported")


def interruptible(
    work: Callable[Concatenate[Engine, Job, _Arguments], _Reported],
) -> Callable[Concatenate[Engine, Job, _Arguments], _Reported]:
    """Tag the Spark jobs of ``work``, and turn its expected failures into refusals."""

    @wraps(work)
    def tagged(engine: Engine, job: Job, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Reported:
        context = engine.spark.sparkContext
        context.addJobTag(job.id)
        try:
            return work(engine, job, *arguments, **named)
        except Exception as error:
            # A Spark job that was cancelled fails in some way; no caller waits for its error.
            job.check()
            trouble = explained(error)
            if trouble is None:
                raise
            if isinstance(trouble, NothingThere):
                raise questions.not_found(
                    "range, cluster_id", str(trouble), "call GetCoverage for what is there"
                ) from error
            raise questions.unusable_input(str(trouble)) from error
        finally:
            context.removeJobTag(job.id)

    return tagged


class Engine:
    """The one Spark session of a server. An answer with more than ``most_rows`` rows is refused."""

    def __init__(self, spark: SparkSession, *, most_rows: int) -> None:
        self.spark = spark
        self._most_rows = most_rows
        self._open: dict[bool, tuple[str, Silver, list[str]]] = {}
        self._reports: OrderedDict[tuple[object, ...], Report] = OrderedDict()

    def interrupt(self, job_id: str) -> None:
        """End the Spark jobs of a job that have begun; may be called from any thread."""
        self.spark.sparkContext.cancelJobsWithTag(job_id)

    @interruptible
    def query(
        self, job: Job, question: Question, place: pages.Continuation, *, with_samples: bool = False
    ) -> pages.Answer[pb.Row]:
        """All rows of one statistic, ordered by the columns that identify them.

        Args:
            with_samples: read files of samples even if the statistic does not need them.
        """
        (statistic,) = question.statistics
        notes: list[str] = []
        samples = with_samples or statistic.reads_samples
        wanted = needed(question.start_us, question.end_us, samples=samples)
        files = find_exports(
            self.spark, question.inputs, cluster_id=question.cluster_id, wanted=wanted, noticed=notes.append
        )
        pages.check_same_input(place, input_hash(files))
        scope = scope_of(self.spark, question, files)
        columns = values.columns_of(statistic, scope.grouping)
        silver = self._silver(job, files, samples=samples)
        found = with_any_value(statistic, silver, result(statistic, silver, scope))
        reported = {value.name: None for value in statistic.values}
        notes += [*notices(files), *self._open[samples][2], *unavailable([(statistic.id, [*reported])], silver.kafka)]
        rows = self._collect(job, found.orderBy(*(name for name in found.columns if name not in reported)))
        header = pb.QueryHeader(
            stat=statistic.id,
            columns=columns,
            start=values.moment(scope.start_us),
            end=values.moment(scope.end_us),
            input_manifest_hash=input_hash(files),
            total_rows=len(rows),
            notes=notes,
        )
        return pages.Answer(input_hash(files), [values.row_of(row, columns) for row in rows], header)

    @interruptible
    def timeline(
        self, job: Job, question: Question, selection: Selection, place: pages.Continuation
    ) -> pages.Answer[pb.TimelineEvent]:
        """All selected events in logical order. ``question`` determines the files."""
        samples = bool(selection.sample_types)
        # The first state of the window follows from what came before it; only the end bounds what is read.
        wanted = needed(None, question.end_us, samples=samples)
        files = find_exports(self.spark, question.inputs, cluster_id=question.cluster_id, wanted=wanted)
        pages.check_same_input(place, input_hash(files))
        scope_of(self.spark, question, files)
        rows = self._collect(job, timeline(self._silver(job, files, samples=samples), selection))
        events = [
            values.timeline_event(row, with_inferences(event))
            for row, event in zip(rows, events_from(rows), strict=True)
        ]
        return pages.Answer(input_hash(files), events)

    @interruptible
    def explain(self, job: Job, question: Question, asked: ExplainedPartition, *, of_stall: bool) -> pb.ExplainResponse:
        """The explanation that was asked for, or the candidates if the question fits several."""
        silver = self._silver(job, files_for(self.spark, question), samples=True)
        job.check()
        if of_stall:
            return values.of_stall(stall(silver, asked))
        return values.of_decision(decision(silver, asked))

    @interruptible
    def explain_group(self, job: Job, question: Question, asked: AskedGroup) -> pb.ExplainGroupResponse:
        """Why a consumer group stood still, or which clusters have such a group."""
        silver = self._silver(job, files_for(self.spark, question), samples=True)
        job.check()
        return values.of_group(standstill(silver, asked))

    @interruptible
    def explain_held_back(self, job: Job, question: Question, asked: AskedPartition) -> pb.ExplainHeldBackResponse:
        """What held back the LSO of a partition, or which clusters have such a partition."""
        silver = self._silver(job, files_for(self.spark, question), samples=True)
        job.check()
        return values.of_held_back(held_back(silver, asked))

    @interruptible
    def report(self, job: Job, question: Question, steps: int) -> Report:
        """The report of a window; the latest reports are kept, and are valid while the files are the same."""
        files = files_for(self.spark, question)
        name = (input_hash(files), question.start_us, question.end_us, question.cluster_id, steps)
        if name in self._reports:
            self._reports.move_to_end(name)
            return self._reports[name]
        silver = self._silver(job, files, samples=True)

        def between(what: str, done: int, parts: int) -> None:
            job.check()

        try:
            material = gather(
                silver, question.inputs, start_us=question.start_us, end_us=question.end_us, steps=steps,
                reported=between,
            )  # fmt: skip
        except TooMuch as error:
            raise questions.wrong("range", str(error), "ask for less time") from error
        except ValueError as error:
            raise questions.not_found("range", str(error), "call GetCoverage for what is there") from error
        self._reports[name] = report_of(material)
        while len(self._reports) > KEPT_REPORTS:
            self._reports.popitem(last=False)
        return self._reports[name]

    def warm(self, job: Job, inputs: tuple[str, ...]) -> None:
        """Open a small input and make its report, so that the first question is answered as fast as later ones.

        Trouble with the input is left to the caller who asks about it.
        """
        if is_little(inputs):
            with suppress(Refused):
                self.report(job, Question(inputs=inputs, statistics=tuple(ALL.values())), STEPS)

    @interruptible
    def run(
        self, job: Job, question: Question, destination: Destination, noticed: Callable[[Sequence[str]], None]
    ) -> Written:
        """Write the results of the closed hours that a question touches."""
        whole = whole_hours(question)
        hours = hours_for(self.spark, whole, now_us=_now_us())
        job.check()
        results = destination.results(self.spark, whole.grouping)
        written = run(self.spark, whole, hours, results, noticed=noticed)
        self.forget()
        return written

    @interruptible
    def coverage(self, job: Job, question: Question) -> pb.GetCoverageResponse:
        """How complete each hour is, and the hash of the files that show it."""
        notes: list[str] = []
        files = files_of_hours(
            self.spark,
            question.inputs,
            cluster_id=question.cluster_id,
            start_us=question.start_us,
            end_us=question.end_us,
            noticed=notes.append,
        )
        hours = covered(self.spark, files, now_us=_now_us(), start_us=question.start_us, end_us=question.end_us)
        return pb.GetCoverageResponse(
            hours=[hour_reported(one, hash_of_hour(files, one.cluster_id, one.hour, samples=True)) for one in hours],
            input_manifest_hash=input_hash(files),
            notes=[*notes, *notices(files)],
        )

    def _silver(self, job: Job, files: list[ExportedFile], *, samples: bool) -> Silver:
        name = input_hash(files)
        if samples in self._open and self._open[samples][0] == name:
            return self._open[samples][1]
        job.check()
        if samples in self._open:
            self._open.pop(samples)[1].release()
        silver = read_exports(self.spark, files, samples=samples)
        self._open[samples] = name, silver, unread(not_understood(silver.transitions))
        return silver

    def forget(self) -> None:
        """Drop the tables and reports that are kept."""
        for _, silver, _ in self._open.values():
            silver.release()
        self._open.clear()
        self._reports.clear()
        self.spark.catalog.clearCache()

    def _collect(self, job: Job, frame: DataFrame) -> list[dict[str, Any]]:
        job.check()
        rows = [row.asDict(recursive=True) for row in frame.limit(self._most_rows + 1).collect()]
        if len(rows) > self._most_rows:
            raise questions.wrong(
                "range", f"an answer has at most {self._most_rows:,} rows", "ask for less time, or use SubmitRun"
            )
        return rows


def _now_us() -> int:
    return time.time_ns() // 1_000
