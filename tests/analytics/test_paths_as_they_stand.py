"""Paths go to Spark as they stand: what its readers take for a pattern is escaped, and `..` and links are resolved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import Result
from worked_histories import history_rows
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline.export.schema import COLUMNS
from strandline_analytics.sources.catalog import find_exports
from strandline_analytics.sources.exports import read_rows
from strandline_analytics.sources.inspection import verify
from strandline_analytics.sources.places import literal, path_here, uri_of
from strandline_analytics.sources.trouble import InputTrouble, explained
from strandline_analytics.stats import ALL
from strandline_analytics.stream.feed import feed
from strandline_analytics.stream.figures import ddl
from strandline_analytics.stream.job import live_rows, writer

pytestmark = pytest.mark.timeout(300)

NAMES = ["a[1]", "b{x,y}", "c*", "d?", "e\\f", "g h", "i%20j", "k#l", "m:n", "ü"]
_BLANK = dict.fromkeys(column.name for column in COLUMNS)
_ROWS = '{"t": 3600000, "event_type": "STATE_SNAPSHOT", "partition_epoch": 1, "new_leader": 1, "new_isr": [1]}'


def _export(root: Path, kind: ExportFormat = ExportFormat.PARQUET) -> Path:
    write_export(root, [_BLANK | row for row in history_rows(_ROWS)], kind)
    return root


@pytest.mark.parametrize("kind", [ExportFormat.PARQUET, ExportFormat.JSONL])
def test_an_export_is_read_wherever_it_lies(spark: SparkSession, tmp_path: Path, kind: ExportFormat) -> None:
    """Its own event once, and nothing of neighbours whose names such a pattern would fit."""
    for name in (*NAMES, "a1", "bx", "cc", "dd"):
        _export(tmp_path / name, kind)

    for name in NAMES:
        files = find_exports(spark, [str(tmp_path / name)])
        assert (name, read_rows(spark, files).count()) == (name, 1)
        assert verify(spark, files) == 1


def test_files_are_verified_by_any_path_to_them(spark: SparkSession, tmp_path: Path) -> None:
    """By `..`, by a link and by a `file:` URI: a sound file is never called changed."""
    root = _export(tmp_path / "export")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    (tmp_path / "deep" / "export").symlink_to(root)
    ways = [root, f"{tmp_path}/deep/../export", f"{tmp_path}/link/../export", f"file://{root}", f"file:{root}"]

    assert [verify(spark, find_exports(spark, [str(way)])) for way in ways] == [1] * len(ways)
    assert len(find_exports(spark, [str(way) for way in ways])) == 1


def test_a_cluster_is_named_by_its_folder_and_not_by_the_way_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-i .` in the folder of a cluster reads that cluster."""
    monkeypatch.chdir(_export(tmp_path) / "c")

    assert [file.cluster_id for file in find_exports(spark, ["."])] == ["c"]


def test_a_file_that_was_not_compared_is_never_called_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Spark gives files other names nothing is said against them, and nobody is to remove them."""
    files = find_exports(spark, [str(_export(tmp_path))])
    names = iter(("as it was asked for", "as Spark calls it"))
    monkeypatch.setattr("strandline_analytics.sources.inspection._plain", lambda uri: next(names))

    with pytest.raises(InputTrouble, match="was not compared with its manifest") as raised:
        verify(spark, files)

    assert "take it away" not in str(raised.value)


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


def test_a_name_is_a_place_of_this_machine_or_a_uri() -> None:
    """`file:` URIs say paths in which nothing is escaped; `s3:` is Hadoop's `s3a:`."""
    assert path_here("a/b?c#d") == Path("a/b?c#d")
    assert path_here("file:///a/b?c#d%20e") == path_here("file:/a/b?c#d%20e") == Path("/a/b?c#d%20e")
    assert path_here("file://localhost/a") == Path("/a")
    assert path_here("s3://bucket/a") is None
    assert (uri_of("s3://bucket/a"), uri_of("/a[1]")) == ("s3a://bucket/a", "file:///a[1]")
    assert literal("file:///a[1]/b{c}*?\\") == "file:///a\\[1\\]/b\\{c\\}\\*\\?\\\\"


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
