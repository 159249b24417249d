"""Implements AnalyticsService: turns its calls into questions for the worker, and the worker's answers into messages.

Invariant: if a caller goes away or its deadline passes, its question is cancelled; no call computes in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import grpc
import structlog
from google.protobuf.message import Message

from strandline.rpc.convert.by_name import As, ByName
from strandline.v1 import analytics_service_pb2 as pb, analytics_service_pb2_grpc as pb_grpc
from strandline_analytics.jobs.ask import Question
from strandline_analytics.service import pages, questions, values
from strandline_analytics.service.engine import Engine
from strandline_analytics.service.jobs import Cancelled, Job, JobQueue, Run, Runs, noting
from strandline_analytics.service.live import LivePartition, ReplicaSample, Watches
from strandline_analytics.service.settings import AnalyticsSettings
from strandline_analytics.stats import ALL

SERVICE = pb.DESCRIPTOR.services_by_name["AnalyticsService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
_Reported = TypeVar("_Reported")

_REPLICA = ByName(ReplicaSample, pb.ReplicaNow)
_PARTITION = ByName(
    LivePartition,
    pb.PartitionNow,
    adding=None,
    looks=None,
    is_deleted="deleted",
    as_of_us=As("as_of", values.moment),
)
_ALL = tuple(ALL.values())
_log = structlog.get_logger("strandline.analytics")


class AnalyticsServicer:
    """AnalyticsService over one engine, one queue and the watches of one input."""

    def __init__(self, settings: AnalyticsSettings, engine: Engine, queue: JobQueue, watches: Watches) -> None:
        self._settings = settings
        self._engine = engine
        self._queue = queue
        self._watches = watches
        self._kept = pages.KeptAnswers(2 * settings.most_rows)
        self._runs = Runs(settings.kept_runs)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service with ``server``."""
        pb_grpc.add_AnalyticsServiceServicer_to_server(cast(Any, self), server)

    async def ListStats(self, request: pb.ListStatsRequest, context: Context) -> pb.ListStatsResponse:
        """Lists the statistics."""
        question = pages.fingerprint(request)
        place = pages.read_token(request.page_token, question)
        answer = pages.Answer("", [*ALL.values()])
        end = place.offset + questions.page_size_of(request.page_size, len(ALL))
        stats = [values.description(one) for one in answer.rows[place.offset : end]]
        return pb.ListStatsResponse(stats=stats, next_page_token=pages.next_token(question, answer, end))

    async def Query(self, request: pb.QueryRequest, context: Context) -> None:
        """Computes one statistic and sends a page of its rows."""
        question = questions.query_of(request, self._settings.inputs)
        title = f"query {request.stat}"
        answer, rows, token = await self._page(
            request,
            title,
            lambda job, place: self._engine.query(job, question, place, with_samples=request.with_samples),
        )
        await context.write(pb.QueryResponse(header=answer.header))
        for row in rows:
            await context.write(pb.QueryResponse(row=row))
        await context.write(pb.QueryResponse(end=pb.QueryEnd(next_page_token=token, rows=len(rows))))

    async def GetTimeline(self, request: pb.GetTimelineRequest, context: Context) -> None:
        """Sends a page of events, at once or at the speed at which they happened."""
        selection = questions.selection_of(request)
        question = Question(
            inputs=self._settings.inputs,
            statistics=(),
            start_us=selection.start_us,
            end_us=selection.end_us,
            cluster_id=selection.cluster_id,
        )
        _, events, token = await self._page(
            request, "timeline", lambda job, place: self._engine.timeline(job, question, selection, place)
        )
        began_s = asyncio.get_running_loop().time()
        for event in events:
            if request.speed:
                since_s = (event.time.ToMicroseconds() - events[0].time.ToMicroseconds()) / 1e6
                await asyncio.sleep(began_s + since_s / request.speed - asyncio.get_running_loop().time())
            await context.write(pb.GetTimelineResponse(event=event))
        await context.write(pb.GetTimelineResponse(end=pb.TimelineEnd(next_page_token=token, events=len(events))))

    async def GetCoverage(self, request: pb.GetCoverageRequest, context: Context) -> pb.GetCoverageResponse:
        """Reports how complete each hour is."""
        question = questions.coverage_of(request, self._settings.inputs)
        return await self._wait_for("coverage", lambda job: self._engine.coverage(job, question))

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """Explains one decision or stall."""
        asked = questions.asked_of(request)
        question = Question(inputs=self._settings.inputs, statistics=_ALL, cluster_id=asked.cluster_id)
        return await self._wait_for(
            "explain", lambda job: self._engine.explain(job, question, asked, of_stall=request.stall)
        )

    async def ExplainGroup(self, request: pb.ExplainGroupRequest, context: Context) -> pb.ExplainGroupResponse:
        """Explains why a consumer group stood still."""
        asked = questions.asked_group_of(request)
        question = Question(inputs=self._settings.inputs, statistics=_ALL, cluster_id=asked.cluster_id)
        return await self._wait_for("explain group", lambda job: self._engine.explain_group(job, question, asked))

    async def ExplainHeldBack(self, request: pb.ExplainHeldBackRequest, context: Context) -> pb.ExplainHeldBackResponse:
        """Explains why readers of committed records stood still."""
        asked = questions.asked_held_back_of(request)
        question = Question(inputs=self._settings.inputs, statistics=_ALL, cluster_id=asked.cluster_id)
        return await self._wait_for(
            "explain held back", lambda job: self._engine.explain_held_back(job, question, asked)
        )

    async def GetReport(self, request: pb.GetReportRequest, context: Context) -> None:
        """Sends the report of a window."""
        question, steps = questions.report_of(request, self._settings.inputs), questions.steps_of(request)
        report = await self._wait_for("report", lambda job: self._engine.report(job, question, steps))
        for part in pages.parts_of(report):
            await context.write(part)

    async def _page(
        self,
        request: Any,
        title: str,
        compute: Callable[[Job, pages.Continuation], pages.Answer[_Reported]],
    ) -> tuple[pages.Answer[_Reported], Sequence[_Reported], str]:
        """An answer, the rows of the requested page, and the token of the next page."""
        question = pages.fingerprint(cast(Message, request))
        size = questions.page_size_of(request.page_size, self._settings.page_rows)
        place = pages.read_token(request.page_token, question)
        answer: pages.Answer[_Reported] | None = self._kept.find(question, place.input_hash)
        if answer is None:
            answer = await self._wait_for(title, lambda job: compute(job, place))
            self._kept.keep(question, answer)
        end = place.offset + size
        return answer, answer.rows[place.offset : end], pages.next_token(question, answer, end)

    async def _wait_for(self, title: str, work: Callable[[Job], _Reported]) -> _Reported:
        job = self._queue.submit(title, work)
        try:
            return cast(_Reported, await asyncio.shield(job.outcome))
        except Cancelled:
            raise questions.stopping() from None
        finally:
            # A caller that left or whose deadline passed gets no answer; a job that has ended stays as it is.
            self._queue.cancel(job)

    async def WatchPartitions(self, request: pb.WatchPartitionsRequest, context: Context) -> None:
        """Sends all partitions, then those that changed."""
        topics = frozenset(request.topics)

        def is_wanted(one: LivePartition) -> bool:
            of_cluster = request.cluster_id in ("", one.cluster_id)
            return of_cluster and (not topics or one.topic in topics) and (not request.only_troubled or one.is_troubled)

        async for news in self._watches.changes(is_wanted):
            await context.write(
                pb.WatchPartitionsResponse(partitions=[_partition_now(one) for one in news], provisional=True)
            )

    async def SubmitRun(self, request: pb.SubmitRunRequest, context: Context) -> pb.SubmitRunResponse:
        """Puts a run into the queue."""
        question = questions.run_of(request, self._settings.inputs)
        notes: list[str] = []
        to = self._settings.destination
        job = self._queue.submit("run", lambda job: self._engine.run(job, question, to, noting(notes)))
        job.outcome.add_done_callback(lambda outcome: _log_failure(job, outcome))
        stats = tuple(one.id for one in question.statistics)
        run = self._runs.add(Run(job, stats, question.grouping, to.kind.is_table, notes))
        return pb.SubmitRunResponse(run=self._reported(run))

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        """Returns the state of a run."""
        return pb.GetRunResponse(run=self._reported(self._runs.find(request.run_id)))

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        """Cancels a run."""
        run = self._runs.find(request.run_id)
        self._queue.cancel(run.job)
        return pb.CancelRunResponse(run=self._reported(run))

    def _reported(self, run: Run) -> pb.Run:
        return run.reported(self._queue.ahead_of(run.job))


def _partition_now(one: LivePartition) -> pb.PartitionNow:
    states = [_REPLICA.write(sample, node_id=node) for node, sample in sorted(one.looks.items())]
    return _PARTITION.write(one, out_of_sync=one.out_of_sync, replica_states=states)


def _log_failure(job: Job, outcome: asyncio.Future[Any]) -> None:
    error = outcome.exception()
    if error is not None and not isinstance(error, Cancelled):
        _log.error("a run failed", run_id=job.id, exc_info=error)
