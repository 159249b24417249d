"""The generated day, the input of the benchmarks: a cluster could have had it, and DuckDB's figures of it agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from day.groups import COORDINATING, HOT_GROUPS
from day.shape import HOT, HOUR, START_US, Shape
from day.written import write_day
from oracle import Oracle

from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files
from strandline_analytics.scope import Scope
from strandline_analytics.stats import ALL

SHAPE = Shape(events=6_000, partitions=8, hours=2, nodes=5)
IDENTITY = "node_id, incarnation, seq"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small day."""
    folder = tmp_path_factory.mktemp("day")
    write_day(SHAPE, folder)
    return folder


@pytest.fixture(scope="module")
def day(root: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Its rows as a table ``events``, duplicates removed."""
    connection = duckdb.connect()
    connection.execute(
        f"CREATE TABLE events AS SELECT DISTINCT ON ({IDENTITY}) * "
        f"FROM read_parquet('{root}/*/v1/*/*/*/*.parquet', hive_partitioning=false)"
    )
    yield connection
    connection.close()


def _number(day: duckdb.DuckDBPyConnection, query: str) -> int:
    (row,) = day.execute(query).fetchall()
    return int(row[0])


def test_the_same_seed_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    """A measurement can be repeated on the same files."""
    write_day(SHAPE, tmp_path)

    first, second = ({p.relative_to(r): p.read_bytes() for p in r.rglob("*.parquet")} for r in (root, tmp_path))
    assert first == second


def test_it_has_about_as_many_events_as_asked_for(day: duckdb.DuckDBPyConnection) -> None:
    """The number of events is within a tenth of the requested one."""
    assert abs(_number(day, "SELECT count(*) FROM events") - SHAPE.events) < SHAPE.events / 10


def test_every_file_has_a_manifest_that_is_true(root: Path) -> None:
    """Every file has a correct manifest in the exporter's own layout."""
    files = find_files(LocalDirectory(root), SHAPE.cluster_id)

    assert files
    for file in files:
        assert file.manifest is not None
        content = (root / SHAPE.cluster_id / "v1" / file.path).read_bytes()
        assert len(content) == file.manifest.size_bytes


def test_part_of_it_is_there_twice(root: Path, day: duckdb.DuckDBPyConnection) -> None:
    """Part of an hour is there twice, like after an interrupted compaction."""
    written = _number(day, f"SELECT count(*) FROM read_parquet('{root}/*/v1/*/*/*/*.parquet', hive_partitioning=false)")

    assert written > _number(day, "SELECT count(*) FROM events")


IMPOSSIBLE = {
    "a HW above what a member of the ISR, or the leader, has": """
        SELECT count(*) FROM events
        WHERE event_type = 'REPLICA_SAMPLE' AND (hw > leader_leo OR (in_isr AND leo < hw))""",
    "a HW that goes back within a leader epoch": """
        SELECT count(*) FROM (
          SELECT hw, lag(hw) OVER (PARTITION BY topic_id, partition, leader_epoch, node_id
            ORDER BY ts_mono_us, seq) AS was
          FROM events WHERE event_type = 'REPLICA_SAMPLE' AND replica_id = node_id
        ) WHERE hw < was""",
    "an elected leader outside the ISR that was committed with it": """
        SELECT count(*) FROM events l JOIN events i USING (topic_id, partition, partition_epoch)
        WHERE l.event_type = 'LEADER_CHANGE' AND i.event_type = 'ISR_CHANGE' AND i.node_id = -1
          AND l.new_leader >= 0 AND NOT list_contains(i.new_isr, l.new_leader)""",
    "an offset committed ahead of the HW": """
        SELECT count(*) FROM events o WHERE o.event_type = 'GROUP_OFFSETS' AND o.committed > (
          SELECT max(hw) FROM events s WHERE s.event_type = 'REPLICA_SAMPLE' AND s.partition = o.partition)""",
}


@pytest.mark.parametrize("wrong", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_no_row_is_one_that_no_cluster_could_have(day: duckdb.DuckDBPyConnection, wrong: str) -> None:
    """High watermarks, leaders and committed offsets of a generated day keep the rules of a real one."""
    assert _number(day, wrong) == 0


def test_only_what_was_lost_is_missing_in_the_partition_epochs(day: duckdb.DuckDBPyConnection) -> None:
    """Decisions are numbered without gaps; one of them is missing on purpose."""
    holes = """
        SELECT count(*) FROM (
          SELECT partition_epoch - lag(partition_epoch) OVER (PARTITION BY topic_id, partition
            ORDER BY partition_epoch) AS d
          FROM (SELECT DISTINCT topic_id, partition, partition_epoch FROM events
                WHERE event_type IN ('ISR_CHANGE', 'LEADER_CHANGE', 'CONFIG_CHANGE', 'REASSIGNMENT') AND node_id = -1)
        ) WHERE d > 1"""

    assert _number(day, holes) <= 1


def test_a_hot_partition_has_its_share_of_the_looks(tmp_path: Path) -> None:
    """With ``hot_share`` one partition has that share of all looks and its own, and the day has no more events."""
    write_day(replace(SHAPE, events=20_000, hot_share=0.5), tmp_path)

    rows = duckdb.read_parquet(f"{tmp_path}/*/v1/samples/*/*/*.parquet", hive_partitioning=False)
    ((hot, looks),) = (
        rows.filter("event_type = 'REPLICA_SAMPLE'")
        .aggregate(f"count(*) FILTER (partition = {HOT}), count(*)")
        .fetchall()
    )
    assert 0.5 <= hot / looks < 0.65
    assert abs(len(rows) - 20_000) < 2_000


def test_twenty_groups_read_the_hot_partition_and_one_each_topic(day: duckdb.DuckDBPyConnection) -> None:
    """Most of the commits are of the hot partition."""
    groups = "SELECT count(DISTINCT group_id) FROM events WHERE event_type = 'GROUP_OFFSETS'"
    commits = "SELECT count(*) FROM events WHERE event_type = 'GROUP_OFFSETS'"

    assert _number(day, f"{groups} AND partition = {HOT}") == HOT_GROUPS + 1
    assert _number(day, groups) == HOT_GROUPS + 1
    assert _number(day, f"{commits} AND partition = {HOT}") > 0.9 * _number(day, commits)


@pytest.mark.parametrize("phase", ["queued", "started", "completed", "cancelled"])
def test_moves_are_queued_run_and_end(day: duckdb.DuckDBPyConnection, phase: str) -> None:
    """Of each step of a move there is one."""
    assert _number(day, f"SELECT count(*) FROM events WHERE event_type = 'REASSIGNMENT' AND phase = '{phase}'") > 0


@pytest.mark.parametrize("cause", ["committed", "aborted", "timeout", "fenced", "marker_refused"])
def test_transactions_end_in_every_way(day: duckdb.DuckDBPyConnection, cause: str) -> None:
    """Of each kind of end there is one, and leaders report holds and sums."""
    ends = f"SELECT count(*) FROM events WHERE event_type = 'TRANSACTION_CHANGE' AND cause = '{cause}'"
    decided = "SELECT count(*) FROM events WHERE event_type = 'TRANSACTION_DECIDED' AND first_offset IS"

    assert _number(day, ends) > 0
    assert _number(day, f"{decided} NULL") > 0
    assert _number(day, f"{decided} NOT NULL") > 0


# DuckDB's statistics over a generated day: all exist, and their sums are consistent.


SCOPE = Scope(start_us=START_US, end_us=START_US + SHAPE.end, step_us=HOUR)


@pytest.fixture(scope="module")
def oracle(root: Path) -> Iterator[Oracle]:
    """The same day in DuckDB."""
    found = Oracle(root, SCOPE)
    found.make_tables()
    yield found
    found.close()


@pytest.mark.parametrize("name", ALL)
def test_every_statistic_has_a_row_for_every_group_and_window(name: str, oracle: Oracle) -> None:
    """Whether anything happened or not, and with every column that the statistic declares."""
    rows = oracle.rows(ALL[name])

    # Beside its own topics the day has those of both kinds of coordinators.
    groups = 1 if ALL[name].only_cluster else SHAPE.partitions + 2 * COORDINATING
    assert len({tuple(list(row.values())[:6]) for row in rows if not ALL[name].only_cluster}) in (0, 2 * groups)
    assert len({row["window_start"] for row in rows}) == 2
    assert {value.name for value in ALL[name].values} <= rows[0].keys()


def test_the_states_of_the_isr_fill_what_is_known(oracle: Oracle) -> None:
    """Above, at, under and leaderless exclude each other and leave nothing out."""
    for row in oracle.rows(ALL["s10"]):
        known = row["above_min_us"] + row["at_min_us"] + row["under_min_us"] + row["leaderless_us"]
        assert row["coverage"] == pytest.approx(known / HOUR, rel=1e-12)
