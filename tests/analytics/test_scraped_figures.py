"""The statistics of run A with the scrapes of a Prometheus beside its metadata log, against its own samples."""

from __future__ import annotations

import lzma
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files, read_rows
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.sources.kafka import scraped
from strandline_analytics.sources.kafka.availability import bounded, unavailable, why_unavailable
from strandline_analytics.sources.kafka.source_words import Level
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_kafka.metadata.importing import Import, cluster_of
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.passage import EVERYTHING
from strandline_kafka.scrapes.following import Following
from strandline_kafka.scrapes.series import Mapping, Reader

RUN_A = Path(__file__).parents[1] / "kafka" / "run_a"
SCOPE = Scope(start_us=1795387862_000_000, end_us=1795388004_000_000, grouping=Grouping.PARTITION)
BOTH = frozenset({Level.METADATA_LOG, Level.PROMETHEUS})


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run A by one of its logs and the scrapes of its brokers."""
    root = tmp_path_factory.mktemp("scraped")
    folder = root / "node1" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(
        lzma.decompress((RUN_A / "00000000000000000000.log.xz").read_bytes())
    )
    shutil.copy(RUN_A / "00000000000000000143-0000000001.checkpoint", folder)
    (folder.parent / "meta.properties").write_text("node.id=1\ncluster.id=run-a\n")
    reader = Reader(Mapping(nodes={f"kafka-{node}:7071": node for node in (1, 2, 3)}))
    reader.take_text("scrapes", lzma.decompress((RUN_A / "scrapes.txt.xz").read_bytes()).decode().splitlines())
    copies, out = [open_copy(folder.parent)], LocalDirectory(root / "export")
    following = Following(reader.found(), out, "run-a", (EVERYTHING.start_us, EVERYTHING.end_us))
    Import(copies, cluster_of(copies, None), trust_tail=True).write(out, following)
    return root / "export"


@pytest.fixture(scope="module")
def silver_scraped(spark: SparkSession, export: Path) -> Silver:
    """Silver tables of it."""
    return open_exports(spark, [str(export)])


def rows_of(silver: Silver, stat: str) -> list[Row]:
    return result(ALL[stat], silver, SCOPE).collect()


# Queries planned from scratch; the first waits for the session.
@pytest.mark.timeout(300)
def test_the_lag_of_a_follower_is_the_largest_that_is_possible(silver_scraped: Silver, export: Path) -> None:
    """S2 has of every replica the upper bound of its samples, and the leader's silence ends it."""
    most: dict[tuple[str, int, int, str], int] = defaultdict(int)
    place = LocalDirectory(export)
    for file in find_files(place, "run-a"):
        for row in read_rows(file.path, place.get(f"run-a/v1/{file.path}")):
            if row["event_type"] == "REPLICA_SAMPLE" and row["replica_id"] != row["node_id"] and "leo" in row:
                key = (row["topic"], row["partition"], row["replica_id"], row["expected_state"])
                most[key] = max(most[key], row["leader_leo"] - row["leo"])
    found = {
        (row.topic, row.partition, row.replica_id, row.expected_state): row.max_records
        for row in rows_of(silver_scraped, "s02")
        if row.replica_id is not None
    }
    assert len(found) > 15
    assert {key: most[key] for key in found} == found


@pytest.mark.timeout(300)
def test_what_needs_a_high_watermark_is_null(silver_scraped: Silver) -> None:
    """S6 has the cut of a clean election as a bound, and nothing below a high watermark; S1 has nothing at all."""
    assert {row[value.name] for row in rows_of(silver_scraped, "s01") for value in ALL["s01"].values} == {None}
    s06 = rows_of(silver_scraped, "s06")
    assert {(row.n_below_hw, row.unclean_committed_max_records) for row in s06} == {(None, None)}
    assert max(row.clean_worst_max_records or 0 for row in s06) > 0


def test_each_statistic_is_in_the_table() -> None:
    """Every statistic is thought about, and a figure that is named is one of its own."""
    assert {*scraped.UNAVAILABLE} == {*ALL}
    for table in (scraped.UNAVAILABLE, scraped.BOUNDED):
        for stat, figures in table.items():
            assert {*figures} <= {"*", *(value.name for value in ALL[stat].values)}


def test_the_bounds_are_said_and_a_collector_is_preferred() -> None:
    """S2 names its bound and its width; where a collector looked too, its own bound is said instead."""
    asked = [("s02", [value.name for value in ALL["s02"].values])]
    source = {"prometheus": {"leo_bounds": {"looks": 4, "exact": 1, "width_sum": 10, "widest": 7}}}
    (line,) = bounded(asked, {"k": BOTH}, {"k": {Level.PROMETHEUS: source}})
    assert line.endswith("the lower one is at most 7 records less, 2.5 in the mean, and equal in 1 of 4 samples")
    levels = BOTH | {Level.COLLECTOR}
    (line,) = bounded(asked, {"k": levels}, {"k": {Level.PROMETHEUS: source, Level.COLLECTOR: {}}})
    assert "upper bound while a replica's broker does not answer" in line


def test_a_metadata_log_keeps_what_it_gives() -> None:
    """Scrapes take no figure away, and of what both lack both reasons are said."""
    assert why_unavailable("s08", "shrinks", BOTH) is None
    assert why_unavailable("s02", "max_records", BOTH) is None
    (line,) = unavailable([("s01", [value.name for value in ALL["s01"].values])], {"k": BOTH})
    assert "no high watermark" in line and "Prometheus" in line
