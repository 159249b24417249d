"""The analytics server with a Spark session: its RPCs, and commands that use it by `--service`."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from served_analytics import (
    DEADLINE_S,
    HOUR_US,
    Served,
    envelope,
    hour_of_the_export,
    query,
    refused,
    serving,
    timeline,
    until,
    write_file,
)
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.rpc.channels import target
from strandline.v1 import analytics_service_pb2 as pb, state_event_pb2
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.results import ResultEntry
from strandline_analytics.scope import Grouping
from strandline_analytics.service.engine import Engine, interruptible
from strandline_analytics.service.jobs import Cancelled, Job
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.destination import Destination
from strandline_analytics.tables.statements import TableNames, table_of

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of this file's tests."""
    with serving(tmp_path_factory.mktemp("export"), tmp_path_factory.mktemp("results"), spark) as one:
        yield one


def test_a_statistic_is_reported_row_by_row_and_page_by_page(served: Served) -> None:
    """One row for each partition, of the declared columns and types; two pages of one row are the same two rows."""
    header, rows, end = query(served)

    declared = [column.name for column in header.columns]
    assert [row.values["partition"].int64_value for row in rows] == [0, 1]
    assert all(set(row.values) <= set(declared) for row in rows)
    assert rows[0].values["under_replicated_us"].int64_value == 600_000_000
    assert rows[1].values["under_replicated_us"].int64_value == 0
    assert rows[0].values["coverage"].double_value == 1.0
    assert rows[0].values["input_manifest_hash"].string_value == header.input_manifest_hash
    assert (header.total_rows, end.rows, end.next_page_token) == (2, 2, "")

    _, first, more = query(served, page_size=1)
    _, second, last = query(served, page_size=1, page_token=more.next_page_token)
    assert [*first, *second] == rows
    assert (more.rows, last.next_page_token) == (1, "")


def test_what_is_not_there_is_not_found(served: Served) -> None:
    """An unknown cluster and an unknown run are NOT_FOUND, with the existing ones."""
    of_cluster = refused(lambda: query(served, cluster_id="ebb"))
    of_run = refused(lambda: served.stub.GetRun(pb.GetRunRequest(run_id="nobody"), timeout=DEADLINE_S))

    assert of_cluster[0] is of_run[0] is grpc.StatusCode.NOT_FOUND
    assert of_run[1].metadata["field"] == "run_id"


def test_events_come_in_order_and_by_pages(served: Served) -> None:
    """Each as it was exported, with its time, location and a sentence; the pages continue one another."""
    events, end = timeline(served)

    changes = [(one.event.partition, one.event.partition_epoch) for one in events]
    assert changes == [(0, 2), (0, 3), (1, 2)]
    assert events[0].event.event_type == state_event_pb2.STATE_EVENT_TYPE_ISR_CHANGE
    assert [member.replica_id for member in events[0].event.removed] == [3]
    assert events[0].time.ToMicroseconds() == HOUR_US + 600_000_000
    assert all(one.sentence for one in events)
    assert (end.events, end.next_page_token) == (3, "")

    first, more = timeline(served, page_size=2)
    rest, _ = timeline(served, page_size=2, page_token=more.next_page_token)
    assert [*first, *rest] == events


def test_a_replay_takes_the_time_that_was_asked_for_and_a_deadline_ends_it(served: Served) -> None:
    """In real time ten minutes lie between the first two events: only the first one arrives in time."""
    timeline(served)
    call = served.stub.GetTimeline(pb.GetTimelineRequest(range=hour_of_the_export(), speed=1.0), timeout=3)

    heard = []
    with pytest.raises(grpc.RpcError) as caught:
        heard += [part.event.event.partition_epoch for part in iter(call.__next__, None)]

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    code, info = refused(lambda: timeline(served, speed=-1.0))
    assert (code, info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "speed")


def test_a_run_writes_tables_and_tells_how_it_stands(served: Served) -> None:
    """A run waits, runs and is done; then its Parquet table is in the results directory, with the reported rows."""
    asked = pb.SubmitRunRequest(stats=["isr_time"], range=hour_of_the_export())
    run = served.stub.SubmitRun(asked, timeout=DEADLINE_S).run
    # Any later job in the queue ends after it.
    served.outcome(served.submit(lambda job: None)).result(DEADLINE_S)

    run = served.stub.GetRun(pb.GetRunRequest(run_id=run.run_id), timeout=DEADLINE_S).run

    assert (run.state, run.error_message, list(run.stats)) == (pb.RUN_STATE_DONE, "", ["s10"])
    (output,) = run.outputs
    assert (output.stat, output.rows) == ("s10", 2)
    assert list(Path(output.path).rglob("*.parquet"))
    assert output.table == ""
    assert run.submitted.ToMicroseconds() <= run.started.ToMicroseconds() <= run.ended.ToMicroseconds()


class RowsKept:
    """Results in memory, with the names of tables."""

    shown = "lake.ops"

    def __init__(self, kept: dict[str, list[Row]]) -> None:
        self._kept = kept

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Nothing is there."""

    def place(self, statistic: Statistic) -> str:
        """The name of a table."""
        return TableNames(catalog="lake", namespace="ops").shown_table(table_of(statistic, Grouping.PARTITION))

    def known(self, hour: HourCoverage) -> dict[str, ResultEntry]:
        """Nothing."""
        return {}

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: dict[str, str]) -> None:
        """Keep rows."""
        self._kept[statistic.id] = rows.collect()

    def finish(self, hour: HourCoverage) -> None:
        """Rows of an hour are complete."""

    def end(self) -> None:
        """All are."""

    def count(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """How many rows were kept."""
        return {one.id: len(self._kept[one.id]) for one in statistics}


@dataclass(frozen=True, kw_only=True)
class Kept(Destination):
    """Tables that need no runtime."""

    rows: dict[str, list[Row]]

    def results(self, spark: SparkSession, grouping: Grouping) -> RowsKept:
        """A place for one run."""
        return RowsKept(self.rows)


def test_a_run_writes_where_the_server_says_and_queries_read_the_export(spark: SparkSession, tmp_path: Path) -> None:
    """A server of tables names the table and no path; a query has the figures of the run before that has written."""
    kept = Kept(kind=ResultFormat.ICEBERG, out=None, rows={})
    with serving(tmp_path, kept, spark) as server:
        _, queried, _ = query(server)
        assert kept.rows == {}
        asked = pb.SubmitRunRequest(stats=["s10"], range=hour_of_the_export())
        run = server.stub.SubmitRun(asked, timeout=DEADLINE_S).run
        server.outcome(server.submit(lambda job: None)).result(DEADLINE_S)
        run = server.stub.GetRun(pb.GetRunRequest(run_id=run.run_id), timeout=DEADLINE_S).run

    assert (run.state, run.error_message) == (pb.RUN_STATE_DONE, "")
    assert list(run.outputs) == [pb.RunOutput(stat="s10", table="lake.ops.s10_isr_time", rows=2)]
    assert [row["full_us"] for row in kept.rows["s10"]] == [row.values["full_us"].int64_value for row in queried]


def test_coverage_is_reported_by_the_hour(served: Served) -> None:
    """Every event of the hour is there; its emitters, listed by their ids, never reported their end."""
    answer = served.stub.GetCoverage(pb.GetCoverageRequest(range=hour_of_the_export()), timeout=DEADLINE_S)

    (hour,) = answer.hours
    assert (hour.cluster_id, hour.missing, hour.coverage) == ("tidal", 0, 1.0)
    assert hour.hour.ToMicroseconds() == HOUR_US
    assert list(hour.unproven_nodes) == [-1, 1]


def test_cancelling_ends_spark_work_under_way(served: Served) -> None:
    """A Spark job of hours ends when its request is cancelled, and the worker takes the next one."""

    @interruptible
    def endless(engine: Engine, job: Job) -> int:
        return engine.spark.range(0, 10**15, numPartitions=2).selectExpr("sum(id % 7)").head()[0]

    engine = Engine(served.spark, most_rows=1)
    job = served.submit(lambda job: endless(engine, job))
    outcome = served.outcome(job)
    until(lambda: bool(served.spark.sparkContext.statusTracker().getActiveJobsIds()))

    served.cancel(job)

    with pytest.raises(Cancelled):
        outcome.result(DEADLINE_S)
    assert served.outcome(served.submit(lambda job: "next")).result(DEADLINE_S) == "next"
    assert list(served.spark.sparkContext.statusTracker().getActiveJobsIds()) == []


# `--service`: a running server gives a command the same output as a Spark of its own, and refusals are one line.


# A group with one member: it rebalances at 602 s and is stable at 610 s. Its offset is never reported.
_OF_GROUP: list[tuple[int, str, dict[str, object]]] = [
    (600, "GROUP_CHANGE", {"old_state": "Empty", "new_state": "Stable", "cause": "join"}),
    (602, "MEMBER_CHANGE", {"member_id": "m-a", "phase": "revoking", "assigned": [], "revoking": ["T:0"]}),
    (602, "GROUP_CHANGE", {"old_state": "Stable", "new_state": "Reconciling", "cause": "interest"}),
    (610, "MEMBER_CHANGE", {"member_id": "m-a", "phase": "assigned", "assigned": ["T:1"], "revoking": []}),
    (610, "GROUP_CHANGE", {"old_state": "Reconciling", "new_state": "Stable", "cause": "reconciled"}),
]


_OF_MEMBERS = {"group_id": "sailors", "group_epoch": 1, "target_epoch": 1, "n_members": 1}
_BEGAN_US = HOUR_US + 608_000_000


# A transaction that held the LSO of tides-0 from 608 s to 620 s.
_OF_TRANSACTION: dict[str, object] = {
    "producer_id": 7, "producer_epoch": 3, "first_offset": 5, "outcome": "abort", "marker_offset": 8,
    "first_us": _BEGAN_US + 12_000_000, "last_us": _BEGAN_US + 12_000_000, "held_ms": 12_000, "n_coalesced": 1, "hw": 9,
}  # fmt: skip


_WINDOW = ("--from", "2026-11-20T14:00:00Z", "--to", "2026-11-20T15:00:00Z")


@pytest.fixture(scope="module")
def served_option(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("option")
    rows = [
        envelope(seq, second, 7, node_id=2, topic="__group_state", topic_id="G", event_type=kind, **_OF_MEMBERS, **said)
        for seq, (second, kind, said) in enumerate(_OF_GROUP, start=1)
    ]
    rows.append(envelope(len(rows) + 1, 620, 0, node_id=2, event_type="TRANSACTION_DECIDED", **_OF_TRANSACTION))
    write_file(folder / "export", "transitions", rows)
    with serving(folder / "export", folder / "results", spark) as server:
        yield server


def _address(served: Served) -> str:
    endpoint = served.server.endpoint
    assert endpoint is not None
    return target(endpoint)


def _ask(*words: object) -> Result:
    return CliRunner().invoke(app, ["analytics", *map(str, words)])


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "s02", "s10", "s18", *_WINDOW, "-o", "json"),
        ("stats", "s08", *_WINDOW, "--step", "20m", "--group-by", "cluster", "-o", "wide"),
        ("stats", "s10", *_WINDOW, "--fail-on", "under_replicated_us>0"),
        ("timeline", "-o", "json"),
        ("timeline", "--hw", "--topic", "tides", "-o", "wide"),
        ("timeline", "--type", "isr_change", "--type", "replica_sample", "-o", "json"),
        ("explain", "-t", "tides", "-p", "0", "-e", "2", "-o", "json"),
        ("explain", "-t", "tides", "-p", "0"),
        ("explain", "-t", "tides", "-p", "0", "-o", "json"),
        ("explain", "-t", "tides", "-p", "0", "--stall"),
        ("explain", "--group", "sailors", "--at", "2026-11-20T14:10:04Z"),
        ("explain", "--group", "sailors", "--at", "2026-11-20T14:10:04Z", "-o", "json"),
        ("explain", "--group", "pilots", "--at", "2026-11-20T14:10:04Z"),
        ("explain", "-t", "tides", "-p", "0", "--lso", "--at", "2026-11-20T14:10:15Z"),
        ("explain", "-t", "tides", "-p", "0", "--lso", "--at", "2026-11-20T14:10:15Z", "-o", "json"),
        ("explain", "-t", "tides", "-p", "9", "--lso", "--at", "2026-11-20T14:10:15Z"),
        ("coverage", *_WINDOW, "-o", "json"),
        ("coverage", *_WINDOW, "--require-coverage", "1"),
    ],
)
def test_a_service_gives_the_output_of_the_local_command(
    served_option: Served, analytics: Callable[..., Result], words: tuple[str, ...]
) -> None:
    """Output, notices and exit code are those of the same command over the service's input."""
    local = analytics(*words, "--input", served_option.settings.inputs[0])

    remote = _ask(*words, "--service", _address(served_option))

    assert local.output
    assert (remote.exit_code, remote.stdout, remote.stderr) == (local.exit_code, local.stdout, local.stderr)


def test_a_service_names_the_transaction_that_held_readers_back(served_option: Served) -> None:
    """Who held the LSO, where, and how it ended, as the leader reported it."""
    words = ("explain", "-t", "tides", "-p", "0", "--lso", "--at", "2026-11-20T14:10:15Z")
    shown = _ask(*words, "--service", _address(served_option)).stdout

    assert "producer 7 of epoch 3 held the LSO at 5" in shown
    assert "the abort marker was committed 5.0 s later" in shown


def test_a_report_of_a_service_is_the_local_page(
    served_option: Served, analytics: Callable[..., Result], tmp_path: Path
) -> None:
    """Page and figures are the same but for the time at which they were made."""
    local, remote = tmp_path / "local.html", tmp_path / "remote.html"
    ours = ("--out", local, "--figures", tmp_path / "local.json", "--input", served_option.settings.inputs[0])
    theirs = ("--out", remote, "--figures", tmp_path / "remote.json", "--service", _address(served_option))
    here = analytics("report", *_WINDOW, *ours)
    there = _ask("report", *_WINDOW, *theirs)

    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    assert here.stdout.splitlines()[:-1] == there.stdout.splitlines()[:-1]
    assert json.loads((tmp_path / "local.json").read_text()) == json.loads((tmp_path / "remote.json").read_text())
    assert _undated(local.read_text()) == _undated(remote.read_text())


def _undated(page: str) -> str:
    """A page without the moment it was made at, which is all of it that is of this year's clock and not of the data."""
    return re.sub(r"(?i)made [^<]*", "", page)


def _one_line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("strandline: ")]
    assert "Traceback" not in result.output
    return line


def test_nobody_at_the_address_is_one_line() -> None:
    """Where nothing listens the command names the address and what to look at, and exits with 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = _one_line(_ask("timeline", "--service", address), 2)

    assert f"no answer from {address}" in line
    assert "check --service" in line


def test_another_service_at_the_address_is_one_line() -> None:
    """A gRPC server without AnalyticsService is distinguished from one that does not answer."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        line = _one_line(_ask("explain", "-t", "tides", "-p", "0", "--service", f"127.0.0.1:{port}"), 2)
    finally:
        server.stop(None).wait()

    assert f"--service: 127.0.0.1:{port} does not serve this question" in line


def test_a_refused_question_is_one_line(served_option: Served) -> None:
    """A refusal of the service names it, its rule and its remedy, and the command exits with 1."""
    line = _one_line(_ask("timeline", "--cluster", "nowhere", "--service", _address(served_option)), 1)

    assert f"{_address(served_option)} refused: " in line
    assert "nowhere" in line


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("--service", "nowhere"), "--service"),
        (("--service", "127.0.0.1:9400", "--input", "."), "not both"),
        ((), "or --service"),
    ],
)
def test_a_command_has_one_source(words: tuple[str, ...], reported: str) -> None:
    """A wrong address, two sources and none are refused as wrong usage."""
    result = _ask("timeline", *words)

    assert result.exit_code == 2
    assert reported in result.stderr
