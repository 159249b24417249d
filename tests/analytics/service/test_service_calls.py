"""AnalyticsService without Spark: its calls, its metrics, and the pages of its answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from served_analytics import (
    DEADLINE_S,
    QUEUE_LENGTH,
    SERVICE_NAME,
    Served,
    envelope,
    held,
    hour_of_the_export,
    query,
    refused,
    serving,
    until,
    waiting,
    write_file,
)

from strandline.core.errors import ErrorCode, Refused
from strandline.metrics.families import FAMILIES, Role
from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.service import pages
from strandline_analytics.service.jobs import Cancelled, Job, JobQueue
from strandline_analytics.service.process import queue_figures


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of this file's tests."""
    with serving(tmp_path_factory.mktemp("export"), tmp_path_factory.mktemp("results"), None) as one:
        yield one


@pytest.fixture
def busy(served: Served) -> Iterator[threading.Event]:
    """The worker is busy until the event is set, or the test ends."""
    with held(served) as let_go:
        yield let_go


def test_statistics_are_listed_by_pages(served: Served) -> None:
    """All of them are returned, in order, each with the columns that its rows have and their units."""
    reported, token = [], ""
    while not reported or token:
        page = served.stub.ListStats(pb.ListStatsRequest(page_size=7, page_token=token), timeout=DEADLINE_S)
        reported, token = [*reported, *page.stats], page.next_page_token

    assert [one.id for one in reported] == [f"s{number:02}" for number in range(1, 30)]
    columns = {column.name: column for column in reported[9].columns}
    assert (columns["under_min_us"].type, columns["under_min_us"].unit) == ("bigint", "us")
    assert all(column.type and column.meaning for one in reported for column in one.columns)


@pytest.mark.parametrize(
    ("method", "field", "asked"),
    [
        ("Query", "stat", {"stat": "s99"}),
        ("Query", "stat", {"stat": ""}),
        ("Query", "range.end", {"range": hour_of_the_export(60, 60)}),
        ("Query", "range.start", {"range": pb.TimeRange(start={"seconds": -1})}),
        ("Query", "range.end", {"range": pb.TimeRange(end={"nanos": -5})}),
        ("Query", "step_us", {"step_us": -1}),
        ("Query", "step_us", {"step_us": 1}),
        ("Query", "grouping", {"grouping": 99}),
        ("Query", "page_size", {"page_size": -1}),
        ("Query", "page_token", {"page_token": "no token"}),
        ("ExplainGroup", "group_id", {"at": {"seconds": 1}}),
        ("ExplainGroup", "at", {"group_id": "g"}),
        ("ExplainGroup", "at", {"group_id": "g", "at": {"seconds": -1}}),
        ("ExplainHeldBack", "topic", {"at": {"seconds": 1}}),
        ("ExplainHeldBack", "partition", {"topic": "tides", "partition": -1, "at": {"seconds": 1}}),
        ("ExplainHeldBack", "at", {"topic": "tides"}),
        ("ExplainHeldBack", "at", {"topic": "tides", "at": {"seconds": -1}}),
    ],
)
def test_a_question_that_cannot_be_meant_is_refused(
    served: Served, method: str, field: str, asked: dict[str, Any]
) -> None:
    """INVALID_ARGUMENT, and an ErrorInfo with field, rule and remedy; nothing is computed for it."""

    def ask() -> object:
        if method == "Query":
            return query(served, **asked)
        return getattr(served.stub, method)(getattr(pb, f"{method}Request")(**asked), timeout=DEADLINE_S)

    code, info = refused(ask)

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert (info.reason, info.domain, info.metadata["field"]) == ("INVALID_REQUEST", "strandline", field)
    assert info.metadata["rule"]
    assert info.metadata["remedy"]


def test_a_watcher_is_sent_the_state_and_then_its_changes(served: Served) -> None:
    """First both partitions, with the leader's sample; when a file arrives, only the partition that it changes."""
    call = served.stub.WatchPartitions(pb.WatchPartitionsRequest(topics=["tides"]), timeout=DEADLINE_S)

    first = next(call)
    shrunk = {"event_type": "ISR_CHANGE", "partition_epoch": 3, "new_isr": [2, 3], "old_isr": [1, 2, 3]}
    said = envelope(6, 3_000, 1, meta_offset=6, **(shrunk | {"leader_epoch": 1, "cause": "lag"}))
    write_file(Path(served.settings.inputs[0]), "transitions", [said])
    second = next(call)
    call.cancel()

    assert first.provisional
    assert [(one.partition, one.leader, list(one.isr)) for one in first.partitions] == [
        (0, 1, [1, 2, 3]),
        (1, 2, [1, 2, 3]),
    ]
    p0 = first.partitions[0]
    assert (p0.hw, p0.leo, [(one.node_id, one.leo) for one in p0.replica_states]) == (9, 9, [(1, 9), (2, 9), (3, 4)])
    assert [(one.partition, list(one.out_of_sync)) for one in second.partitions] == [(1, [1])]


@pytest.mark.usefixtures("busy")
def test_a_full_queue_refuses_and_a_cancelled_run_makes_room(served: Served) -> None:
    """RESOURCE_EXHAUSTED with ErrorInfo beyond the bound; a waiting run can be cancelled, and reports that."""
    asked = pb.SubmitRunRequest(stats=["s8"], range=hour_of_the_export())
    runs = [served.stub.SubmitRun(asked, timeout=DEADLINE_S).run for _ in range(QUEUE_LENGTH)]

    code, info = refused(lambda: served.stub.SubmitRun(asked, timeout=DEADLINE_S))
    cancelled = [served.stub.CancelRun(pb.CancelRunRequest(run_id=run.run_id), timeout=DEADLINE_S).run for run in runs]

    assert [run.waiting_behind for run in runs] == [1, 2]
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (info.reason, info.metadata["field"]) == ("THROTTLING_QUOTA_EXCEEDED", "queue")
    assert info.metadata["retriable"] == "true"
    assert [run.state for run in cancelled] == [pb.RUN_STATE_CANCELLED] * QUEUE_LENGTH
    again = served.stub.SubmitRun(asked, timeout=DEADLINE_S).run
    assert again.waiting_behind == 1
    served.stub.CancelRun(pb.CancelRunRequest(run_id=again.run_id), timeout=DEADLINE_S)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("leaving", ["deadline", "cancel"])
def test_whoever_leaves_takes_his_question_with_him(served: Served, leaving: str) -> None:
    """A deadline that passes, or a client that cancels, removes the Query from the queue and frees its slot."""
    asked = pb.QueryRequest(stat="s16", range=hour_of_the_export())
    calls = [
        served.stub.Query(asked, timeout=0.5 if leaving == "deadline" else DEADLINE_S) for _ in range(QUEUE_LENGTH)
    ]
    if leaving == "cancel":
        until(lambda: waiting(served) == QUEUE_LENGTH)
        for call in calls:
            call.cancel()
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        reported = grpc.StatusCode.DEADLINE_EXCEEDED if leaving == "deadline" else grpc.StatusCode.CANCELLED
        assert caught.value.code() is reported

    until(lambda: waiting(served) == 0)


def test_reflection_and_health_tell_of_the_service(served: Served) -> None:
    """grpcurl finds it without files, and a load balancer sees it as serving."""
    reflecting = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    (listed,) = reflecting.ServerReflectionInfo(asked, timeout=DEADLINE_S)
    health = health_pb2_grpc.HealthStub(served.channel)

    assert SERVICE_NAME in [one.name for one in listed.list_services_response.service]
    for name in ("", SERVICE_NAME):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=DEADLINE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


# The queue metrics that the analytics server exposes to Prometheus.


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


# Pages of an answer: a token is valid for its own query and input, and stored answers stay within a bound.


_ROWS = pages.Answer("0123456789abcdef", list(range(10)))


def _question(**fields: object) -> str:
    return pages.fingerprint(pb.QueryRequest(stat="s10", **fields))  # type: ignore[arg-type]


def test_a_token_leads_to_the_next_row() -> None:
    """A token names the input and the row at which the next page begins; after the last row there is none."""
    token = pages.next_token(_question(), _ROWS, 4)

    assert pages.read_token(token, _question()) == pages.Continuation("0123456789abcdef", 4)
    assert pages.read_token("", _question()) == pages.Continuation("", 0)
    assert pages.next_token(_question(), _ROWS, 10) == ""


def test_paging_is_no_part_of_the_question() -> None:
    """A page may be larger than the one before; any other difference makes another query."""
    token = pages.next_token(_question(), _ROWS, 4)

    assert _question(page_size=3, page_token=token) == _question()
    assert _question(step_us=60) != _question()
    assert pages.fingerprint(pb.GetTimelineRequest()) != pages.fingerprint(pb.GetCoverageRequest())


@pytest.mark.parametrize(
    "token",
    ["nonsense", "bm8=", "é", "WyJhIiwgImIiXQ==", "W1tb" * 20_000, pages.next_token(_question(step_us=60), _ROWS, 4)],
    ids=["no base64", "no JSON", "no ASCII", "too short", "too deep", "of another question"],
)
def test_a_token_that_is_not_of_this_question_is_refused(token: str) -> None:
    """The error names the field, the rule and the remedy."""
    with pytest.raises(Refused) as caught:
        pages.read_token(token, _question())

    refusal = caught.value.refusal
    assert (refusal.code, refusal.field) == (ErrorCode.INVALID_REQUEST, "page_token")
    assert refusal.rule
    assert refusal.remedy


def test_another_input_ends_an_answer() -> None:
    """A page of other files would not follow the one before it."""
    pages.check_same_input(pages.Continuation(), "fedcba9876543210")
    with pytest.raises(Refused, match="the input has changed"):
        pages.check_same_input(pages.Continuation("0123456789abcdef", 4), "fedcba9876543210")


def test_the_oldest_answers_are_let_go_of() -> None:
    """All stored answers together have no more rows than the bound; the newest stays in any case."""
    kept = pages.KeptAnswers(25)
    for question in ("a", "b", "c"):
        kept.keep(question, _ROWS)

    assert [kept.find(question, _ROWS.input_hash) is not None for question in "abc"] == [False, True, True]
    kept.keep("large", pages.Answer("h", list(range(100))))
    assert kept.find("large", "h") is not None
    assert kept.find("c", _ROWS.input_hash) is None
