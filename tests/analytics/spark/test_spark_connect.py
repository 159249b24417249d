"""Spark from outside of the command line: Spark Connect, the notebook, paths, and a report of groups."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from tests.cluster.running_cluster import plan, running, with_topics
from typer.testing import CliRunner, Result
from worked_histories import HISTORIES, history_rows
from written_export import HOUR_US, Emitter, write_export

from strandline.cli.app import app
from strandline.cli.local.local_cluster import LocalCluster
from strandline.export.encoding import ExportFormat
from strandline.export.schema import COLUMNS
from strandline_analytics.frames import statistics
from strandline_analytics.report.gather import gather
from strandline_analytics.report.groups import group_lines
from strandline_analytics.sources.catalog import find_exports
from strandline_analytics.sources.exports import open_exports, read_rows
from strandline_analytics.sources.inspection import verify
from strandline_analytics.sources.places import literal, path_here, uri_of
from strandline_analytics.sources.trouble import InputTrouble, explained
from strandline_analytics.stats import ALL
from strandline_analytics.stream.feed import feed
from strandline_analytics.stream.figures import ddl
from strandline_analytics.stream.job import live_rows, writer
from strandline_analytics.topic.connection import close_idle

CLIENT = Path(__file__).with_name("connect_client.py")
STATS = ("s08", "s10")
_CLIENT_S = 400


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The address of a server of Spark Connect on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    session: Any = spark
    context = session._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    service = session._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context)
    yield f"sc://127.0.0.1:{port}"
    service.stop(session._jvm.scala.Option.empty(), session._jvm.scala.Option.empty())


@pytest.mark.timeout(600)
def test_a_client_without_java_gets_the_same_rows(spark: SparkSession, server: str, tmp_path: Path) -> None:
    """Statistics and tables of an export are made by the server, and asked for by a process that can start no JVM."""
    export = tmp_path / "export"
    assert CliRunner().invoke(app, ["sim", "replay", "7", "--export", str(export)]).exit_code == 0
    own = {
        name: [row.asDict(recursive=True) for row in frame.collect()]
        for name, frame in statistics(spark, [str(export)], STATS).items()
    }
    environment = os.environ | {"SPARK_REMOTE": server, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    command = [sys.executable, str(CLIENT), str(export), str(tmp_path / "out"), *STATS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_CLIENT_S, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["kind"] == "pyspark.sql.connect.session"
    assert reported["rows"] == json.loads(json.dumps(own, default=str))
    assert reported["written"] == {name: len(own[name]) for name in STATS}


# The notebook of examples/spark runs from its first cell to its last.


NOTEBOOK = Path(__file__).parents[3] / "examples" / "spark" / "strandline.ipynb"
HOUR = 498_662
MINUTE_US = 60_000_000
STATE = {"leader_epoch": 0, "new_leader": 1, "new_isr": [1, 2, 3], "replicas": [1, 2, 3], "min_isr": 2, "elr": []}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A node and a controller with the topic of the notebook."""
    with running(plan(tmp_path / "cluster", nodes=1)) as cluster:
        asyncio.run(with_topics(cluster, "tides", partitions=2))
        yield cluster
        close_idle()


def export_of_a_shrink(root: Path) -> None:
    """An hour of one partition that loses a replica after ten minutes."""
    tell, start = Emitter("north", -1), HOUR * HOUR_US
    rows = [
        tell.of_partition(start, "STATE_SNAPSHOT", 0, meta_offset=1, partition_epoch=1, **STATE),
        tell.of_partition(
            start + 10 * MINUTE_US, "ISR_CHANGE", 0, meta_offset=2, partition_epoch=2, old_isr=[1, 2, 3],
            new_isr=[1, 2], cause="lag", initiator="leader", removed=[], added=[],
        ),
        tell.beat(start + 30 * MINUTE_US, final=True),
    ]  # fmt: skip
    write_export(root, rows)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_every_cell_runs(
    spark: SparkSession,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its cells, run in order as a kernel would, write and read the topic and find the shrink of the export."""
    export_of_a_shrink(tmp_path / "export")
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", cluster.bootstrap)
    monkeypatch.setenv("STRANDLINE_EXPORT", str(tmp_path / "export"))
    before = dict(spark.conf.getAll)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {number}", "exec"), names)

    (row,) = names["worst"].collect()
    assert names["tides"].count() == 100
    assert (row.topic, row.partition, row.seconds) == ("t", 0, 20 * 60)
    assert row.window_start_time.astimezone(UTC) == datetime.fromtimestamp(HOUR * HOUR_US / 1e6, UTC)
    assert "under_replicated_us" in capsys.readouterr().out
    assert dict(spark.conf.getAll) == before


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_the_notebook_was_saved_without_output() -> None:
    """Outputs say what one machine printed one day, and their changes hide those of the code."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]

    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []


# Paths go to Spark as they stand: what its readers take for a pattern is escaped, and `..` and links are resolved.


NAMES = ["a[1]", "b{x,y}", "c*", "d?", "e\\f", "g h", "i%20j", "k#l", "m:n", "ü"]
_BLANK = dict.fromkeys(column.name for column in COLUMNS)
_ROWS = '{"t": 3600000, "event_type": "STATE_SNAPSHOT", "partition_epoch": 1, "new_leader": 1, "new_isr": [1]}'


def _export(root: Path, kind: ExportFormat = ExportFormat.PARQUET) -> Path:
    write_export(root, [_BLANK | row for row in history_rows(_ROWS)], kind)
    return root


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [ExportFormat.PARQUET, ExportFormat.JSONL])
def test_an_export_is_read_wherever_it_lies(spark: SparkSession, tmp_path: Path, kind: ExportFormat) -> None:
    """Its own event once, and nothing of neighbours whose names such a pattern would fit."""
    for name in (*NAMES, "a1", "bx", "cc", "dd"):
        _export(tmp_path / name, kind)

    for name in NAMES:
        files = find_exports(spark, [str(tmp_path / name)])
        assert (name, read_rows(spark, files).count()) == (name, 1)
        assert verify(spark, files) == 1


@pytest.mark.timeout(300)
def test_files_are_verified_by_any_path_to_them(spark: SparkSession, tmp_path: Path) -> None:
    """By `..`, by a link and by a `file:` URI: a sound file is never called changed."""
    root = _export(tmp_path / "export")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    (tmp_path / "deep" / "export").symlink_to(root)
    ways = [root, f"{tmp_path}/deep/../export", f"{tmp_path}/link/../export", f"file://{root}", f"file:{root}"]

    assert [verify(spark, find_exports(spark, [str(way)])) for way in ways] == [1] * len(ways)
    assert len(find_exports(spark, [str(way) for way in ways])) == 1


@pytest.mark.timeout(300)
def test_a_cluster_is_named_by_its_folder_and_not_by_the_way_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-i .` in the folder of a cluster reads that cluster."""
    monkeypatch.chdir(_export(tmp_path) / "c")

    assert [file.cluster_id for file in find_exports(spark, ["."])] == ["c"]


@pytest.mark.timeout(300)
def test_a_file_that_was_not_compared_is_never_called_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Spark gives files other names nothing is said against them, and they need not be removed."""
    files = find_exports(spark, [str(_export(tmp_path))])
    names = iter(("as it was asked for", "as Spark calls it"))
    monkeypatch.setattr("strandline_analytics.sources.inspection._plain", lambda uri: next(names))

    with pytest.raises(InputTrouble, match="was not compared with its manifest") as raised:
        verify(spark, files)

    assert "take it away" not in str(raised.value)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["a[1]", "m:n"])
def test_a_stream_reads_and_writes_where_it_was_asked_to(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Input, checkpoint and results below a name with brackets, or with a colon; a neighbour is not read."""
    _export(tmp_path / "a1")
    root, out = _export(tmp_path / name / "export"), str(tmp_path / name / "live")
    seen: list[int] = []

    def count(rows: DataFrame, _: int) -> None:
        seen.append(rows.count())

    asked = feed(spark, [str(root)], delay_s=900).writeStream.foreachBatch(count).trigger(availableNow=True)
    asked.option("checkpointLocation", uri_of(str(tmp_path / name / "checkpoint"))).start().awaitTermination()
    writer(out)(spark.createDataFrame([], f"{ddl()}"), 0)

    assert sum(seen) == 1
    assert live_rows(spark, out, ALL["s08"]).count() == 0


@pytest.mark.timeout(300)
def test_a_name_is_a_place_of_this_machine_or_a_uri() -> None:
    """`file:` URIs say paths in which nothing is escaped; `s3:` is Hadoop's `s3a:`."""
    assert path_here("a/b?c#d") == Path("a/b?c#d")
    assert path_here("file:///a/b?c#d%20e") == path_here("file:/a/b?c#d%20e") == Path("/a/b?c#d%20e")
    assert path_here("file://localhost/a") == Path("/a")
    assert path_here("s3://bucket/a") is None
    assert (uri_of("s3://bucket/a"), uri_of("/a[1]")) == ("s3a://bucket/a", "file:///a[1]")
    assert literal("file:///a[1]/b{c}*?\\") == "file:///a\\[1\\]/b\\{c\\}\\*\\?\\\\"


@pytest.mark.timeout(300)
def test_a_place_that_spark_cannot_use_is_one_sentence(
    spark: SparkSession, analytics: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No trace of Spark's: what it says of the place, and exit code 1."""
    _export(tmp_path / "a[1]")
    monkeypatch.setattr("strandline_analytics.sources.exports.literal", lambda uri: uri)
    ended = analytics("stats", "s08", "-i", tmp_path / "a[1]")
    no_space = explained(OSError("java.io.IOException: No space left on device\n\tat org.apache.hadoop"))

    assert ended.exit_code == 1
    assert isinstance(ended.exception, SystemExit)
    assert "Spark cannot read or write there: Path does not exist: file:" in ended.output
    assert str(no_space) == "Spark cannot read or write there: No space left on device"
    assert explained(AnalysisException("[UNRESOLVED_COLUMN] a defect of the program", {})) is None


# A report of an export in which there are consumer groups.


@pytest.mark.timeout(600)
def test_groups_of_an_export_are_on_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """Every group that was reported, with its rebalances, times without an owner and refused commits."""
    blank = dict.fromkeys(column.name for column in COLUMNS)
    text = (HISTORIES / "rebalances.jsonl").read_text(encoding="utf-8")
    write_export(tmp_path, [blank | row for row in history_rows(text)])

    lines = group_lines(gather(open_exports(spark, [str(tmp_path)]), [str(tmp_path)], end_us=60_000_000, steps=0))

    assert [line.group_id for line in lines] == ["batch", "late", "orders"]
    orders = lines[2]
    assert (orders.rebalances, orders.longest, orders.slowest) == ("2 and 1 unfinished", "at least 20 s", "m-b")
    assert (orders.unowned, orders.refused) == ("t-1, 20 s", "STALE_MEMBER_EPOCH: 3, UNKNOWN_MEMBER_ID: 4")
