"""Each pair of a table format and a PySpark: statistics of worked histories as tables, compared with Parquet.

`make test-with WHAT=formats` runs this; it makes an environment for each PySpark and takes minutes. One history of a
namespace: a run that is killed between statistics, the run that ends its work, the same run again, and a deletion by
others. Beside it a server is asked for a run in a namespace of its own.
It is that of the statistics in `CHOSEN`; with STATS=all of every one, which takes several times as long.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from pair_environment import environment, python_for
from worked_histories import HISTORIES, history_rows
from written_export import Emitter, write_export

from strandline.v1 import analytics_service_pb2 as pb, analytics_service_pb2_grpc as pb_grpc
from strandline_analytics.commands import submit
from strandline_analytics.jobs.results import result_columns
from strandline_analytics.scope import HOUR_US, Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.runtimes import RUNTIMES, Runtime, settings

pytestmark = pytest.mark.timeout(3600)

WORKED = ("failover", "group_lag", "w2_rejoin")
"""A cluster for each, over two hours."""
CHOSEN = tuple(ALL) if os.environ.get("STATS") == "all" else ("s10", "s14", "s17", "s23")
"""Of partitions, the cluster and groups, with every type of column; none reads samples, which takes longest."""
_FIRST_COMMITS = {
    ResultFormat.ICEBERG: "results/*/metadata/v2.metadata.json",
    ResultFormat.DELTA: "results/*/_delta_log/00000000000000000001.json",
}
_STEP_S = 1800


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worked histories as files that services export, and a cluster with an hour in which no partition was."""
    root = tmp_path_factory.mktemp("export")
    for name in WORKED:
        rows = history_rows((HISTORIES / f"{name}.jsonl").read_text(encoding="utf-8"))
        write_export(root, [row | {"cluster_id": name} for row in rows])
    without_partitions = Emitter("bare", node_id=1)
    write_export(root, [without_partitions.beat(10_000_000), without_partitions.beat(20_000_000, final=True)])
    return root


class Pair:
    """A pair at work in a directory of its own."""

    def __init__(self, runtime: Runtime, export: Path, root: Path) -> None:
        self.runtime, self.export = runtime, export
        self.out, self.files = root / "out", root / "files"
        self.python = python_for(runtime.pyspark, runtime.package)
        self.committed_before_the_kill = self._killed()
        self.served, self.queried = self._served()
        script = Path(__file__).with_name("written_again.py")
        words = [script, runtime.format.value, export, self.out, self.files, ",".join(CHOSEN)]
        self.found: dict[str, Any] = json.loads(self._said([str(self.python), *map(str, words)]).splitlines()[-1])

    def _killed(self) -> int:
        """Kill a run with its JVM when a first table has rows; how many tables have."""
        words = ["-m", "strandline.cli", "analytics", "run", "-i", self.export, "--out", self.out, "--memory", "1g"]
        command = [self.python, *words, "--format", self.runtime.format.value, "--stat", ",".join(CHOSEN)]
        with (self.files.with_name("killed.log")).open("wb") as log:
            run = subprocess.Popen(
                [*map(str, command)], env=environment(), stdout=log, stderr=log, start_new_session=True
            )
            try:
                while not self._committed():
                    try:
                        run.wait(0.05)
                    except subprocess.TimeoutExpired:
                        continue
                    raise AssertionError(Path(log.name).read_text())
            finally:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        return len(self._committed())

    def _served(self) -> tuple[pb.Run, int]:
        """A run that a server was asked for, at its end, and how many rows a query has."""
        words = ["-m", "strandline.cli", "analytics", "serve", "-i", self.export, "--results", self.out, "--no-warm"]
        command = [self.python, *words, "--format", self.runtime.format.value, "--namespace", "served"]
        with (self.files.with_name("served.log")).open("wb") as log:
            server = subprocess.Popen([*map(str, command)], env=environment(), stdout=subprocess.PIPE, stderr=log)
            try:
                assert server.stdout is not None
                begun = re.match(r"serving on (\S+)", server.stdout.readline().decode())
                assert begun is not None, Path(log.name).read_text()
                with grpc.insecure_channel(begun[1]) as channel:
                    answers = asked_of(pb_grpc.AnalyticsServiceStub(channel))
            finally:
                server.terminate()
                server.communicate(timeout=_STEP_S)
        assert server.returncode == 0, Path(log.name).read_text()
        return answers

    def _committed(self) -> list[Path]:
        return [*self.out.glob(_FIRST_COMMITS[self.runtime.format])]

    def submitted(self, *conf: str) -> str:
        """What a run by spark-submit says at its end, in a session with a runtime and a catalog of its own."""
        words = [word for one in conf for word in ("--conf", one)]
        spark_submit = self.python.with_name("spark-submit")
        command = [spark_submit, "--master", "local[2]", "--driver-memory", "1g", *words, submit.__file__, "run"]
        command += ["-i", self.export, "--format", self.runtime.format.value, "--stat", "s10"]
        return self._said([*map(str, command)]).splitlines()[-1]

    def _said(self, command: list[str]) -> str:
        more = environment() | {"PYSPARK_PYTHON": str(self.python)}
        done = subprocess.run(command, env=more, capture_output=True, text=True, timeout=_STEP_S, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return done.stdout


def asked_of(stub: Any) -> tuple[pb.Run, int]:
    """A run of S10, at its end, and how many rows of it a query that was asked behind it has."""
    run = stub.SubmitRun(pb.SubmitRunRequest(stats=["s10"]), timeout=_STEP_S).run
    # One question is computed at a time, so a query is answered when the run has ended.
    parts = [*stub.Query(pb.QueryRequest(stat="s10", step_us=HOUR_US), timeout=_STEP_S)]
    ended = stub.GetRun(pb.GetRunRequest(run_id=run.run_id), timeout=_STEP_S).run
    return ended, parts[0].header.total_rows


@pytest.fixture(scope="module", params=RUNTIMES, ids=lambda one: f"{one.format.value}-{one.pyspark}")
def pair(request: pytest.FixtureRequest, export: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Each pair, after its history."""
    return Pair(request.param, export, tmp_path_factory.mktemp("pair"))


def test_the_chosen_statistics_have_every_type_of_column() -> None:
    """What a format could write in another way than Parquet is a type, not a statistic."""
    types = {one: {column.type for column in result_columns(ALL[one], Grouping.PARTITION)} for one in ALL}

    assert set().union(*(types[one] for one in CHOSEN)) == set().union(*types.values())


def test_a_killed_run_is_completed_and_equals_the_files_row_by_row(pair: Pair) -> None:
    """It was killed when some tables had rows and others had none; in the end no row is missing, other or twice."""
    assert 0 < pair.committed_before_the_kill < len(CHOSEN)
    assert pair.found["tables"] == pair.found["files"]
    assert len([stat for stat, rows in pair.found["tables"].items() if rows]) > len(CHOSEN) / 2


def test_the_same_run_again_commits_nothing(pair: Pair) -> None:
    """Hours are known as unchanged by rows, and where a statistic has none by the commit."""
    before, after = pair.found["completed"], pair.found["repeated"]

    assert after["unchanged"] == after["hours"] > 0
    assert after["commits"] == before["commits"]
    assert after["rows"] == before["rows"]
    assert min(pair.found["hours_with_rows"].values()) < before["hours"]


def test_rows_that_others_deleted_are_written_again(pair: Pair) -> None:
    """A commit before the deletion does not count for an hour without rows."""
    assert pair.found["deleted"]["unchanged"] == 0
    assert pair.found["deleted"]["rows"]["s10"] == len(pair.found["files"]["s10"]) > 0


def test_a_table_of_an_earlier_version_takes_the_rows(pair: Pair) -> None:
    """The column that it lacked is there, with its values."""
    assert pair.found["older"] == pair.found["files"]["s10"]


def test_a_server_writes_the_same_tables(pair: Pair) -> None:
    """A run by gRPC names its table and no path, and has the rows of the files; a query is answered from the export."""
    (output,) = pair.served.outputs
    places = {
        ResultFormat.ICEBERG: "strandline.served.s10_isr_time",
        ResultFormat.DELTA: f"file://{pair.out}/served/s10_isr_time",
    }

    assert (pair.served.state, pair.served.error_message) == (pb.RUN_STATE_DONE, "")
    assert (output.table, output.path) == (places[pair.runtime.format], "")
    assert output.rows == len(pair.found["files"]["s10"]) > 0
    assert pair.found["served"] == pair.found["files"]["s10"]
    assert pair.queried > 0
    # PySpark logs what it is refused, even where that is expected.
    assert "TABLE_OR_VIEW_NOT_FOUND" not in pair.files.with_name("served.log").read_text()


def test_a_table_of_another_format_is_refused(pair: Pair) -> None:
    """A catalog has a table of Parquet under the name; the line names it, and the table is as it was."""
    assert pair.found["taken"]["refused"].startswith(
        "`spark_catalog`.`taken`.`s10_isr_time` is a table of provider parquet, and --format "
        f"{pair.runtime.format.value} was asked for: give another --namespace"
    )
    assert pair.found["taken"]["columns"] == ["theirs"]


def test_a_session_that_was_given_is_used_as_it_is(pair: Pair, tmp_path: Path) -> None:
    """spark-submit brings the runtime and the catalog, which is the session's current one."""
    package = f"spark.jars.packages={pair.runtime.package}"
    if pair.runtime.format is ResultFormat.ICEBERG:
        own = ["spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.lake.type=hadoop",
               f"spark.sql.catalog.lake.warehouse={tmp_path}", "spark.sql.defaultCatalog=lake"]  # fmt: skip
        said, table = "lake.results", tmp_path / "results" / "s10_isr_time" / "metadata" / "v2.metadata.json"
    else:
        excluded = settings(pair.runtime, catalog="", warehouse="")["spark.jars.excludes"]
        own = ["spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
               "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
               f"spark.sql.warehouse.dir={tmp_path}",
               f"spark.jars.excludes={excluded}"]  # fmt: skip
        said = "spark_catalog.results"
        table = tmp_path / "results.db" / "s10_isr_time" / "_delta_log" / "00000000000000000001.json"

    rows, hours = len(pair.found["files"]["s10"]), pair.found["completed"]["hours"]
    assert pair.submitted(package, *own) == f"{said}: {hours} hours, 1 statistics, {rows} rows"
    assert table.is_file()
