"""Rows as read: invalid ones are counted or rejected, repeated ones are one, files may be divided in any way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import Result
from worked_histories import HISTORIES, history_rows
from written_export import HOUR_US, Emitter, Row, write_export

from strandline.export import layout
from strandline.export.encoding import ExportFormat
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.clocks import clock_offsets, clocks, in_controller_time
from strandline_analytics.silver.events import ConflictingEvents
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.catalog import find_exports
from strandline_analytics.sources.census import HourTally, census
from strandline_analytics.sources.exports import open_exports, read_rows
from strandline_analytics.sources.inspection import is_cut
from strandline_analytics.sources.trouble import DamagedFile, explained
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

HOUR = 498_662
START_US = HOUR * HOUR_US
SECOND = 1_000_000


_STATE = {"partition_epoch": 1, "leader_epoch": 0, "new_leader": 1, "new_isr": [1, 2], "replicas": [1, 2],
          "min_isr": 1, "elr": []}  # fmt: skip


def decisions(cluster: str, count: int = 9) -> list[Row]:
    """A partition whose replica 2 leaves and returns, again and again, a second each."""
    tell = Emitter(cluster, -1)
    rows = [tell.of_partition(START_US, "STATE_SNAPSHOT", 0, meta_offset=1, **_STATE)]
    for number in range(1, count):
        before, after = ([1, 2], [1]) if number % 2 else ([1], [1, 2])
        rows.append(
            tell.of_partition(
                START_US + number * SECOND, "ISR_CHANGE", 0, meta_offset=number + 1, partition_epoch=number + 1,
                old_isr=before, new_isr=after, cause="lag", initiator="leader", removed=[], added=[],
            )
        )  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clusters with one fault each."""
    root = tmp_path_factory.mktemp("faulty")
    unknown = decisions("unknown")
    write_export(root, [*unknown[:4], unknown[4] | {"event_type": "TIDE_TURNED"}, *unknown[5:]])
    (newer,) = write_export(root, [row | {"schema_version": 7} for row in decisions("newer")])
    table = pq.ParquetFile(newer).read()
    pq.write_table(table.append_column("tide", pa.array([1] * len(table))), newer)
    # Its manifest is removed: it would show that the file was changed.
    (root / "newer/v1" / layout.manifest_path(newer.relative_to(root / "newer/v1").as_posix())).unlink()
    (twice,) = write_export(root, decisions("twice"))
    shutil.copyfile(twice, twice.with_name("n-1-i1-1-99.parquet"))
    overlapping = decisions("overlapping")
    write_export(root, overlapping[:6])
    write_export(root, overlapping[3:])
    back = decisions("back")
    write_export(root, [*back[:5], back[5] | {"ts_wall_us": START_US - 10 * SECOND}, *back[6:]])
    return root


@pytest.fixture(scope="module")
def tallies(spark: SparkSession, root: Path) -> dict[str, list[HourTally]]:
    """The counts of each cluster, by its hours."""
    found: dict[str, list[HourTally]] = {}
    for tally in census(spark, find_exports(spark, [str(root)])):
        found.setdefault(tally.cluster_id, []).append(tally)
    return found


@pytest.fixture(scope="module")
def changes(spark: SparkSession, root: Path) -> dict[str, Row]:
    """S8 of each cluster, over the hour before and the hour of the history."""
    scope = Scope(start_us=START_US - HOUR_US, end_us=START_US + HOUR_US)
    rows = result(ALL["s08"], open_exports(spark, [str(root)], samples=False), scope).collect()
    return {row.cluster_id: row.asDict() for row in rows}


@pytest.mark.timeout(300)
def test_an_unknown_type_is_kept_and_counted(tallies: dict[str, list[HourTally]], changes: dict[str, Row]) -> None:
    """An event of unknown type is listed by name, its number is not missing, and the partition epochs have one hole."""
    (tally,) = tallies["unknown"]

    assert (tally.events, tally.unknown, tally.unknown_types) == (9, 1, ("TIDE_TURNED",))
    assert changes["unknown"]["n_gap"] == 1
    assert changes["unknown"]["shrinks"] + changes["unknown"]["expands"] == 7


@pytest.mark.timeout(300)
def test_a_newer_version_is_read_without_its_columns(
    tallies: dict[str, list[HourTally]], changes: dict[str, Row]
) -> None:
    """All events count, and the number of those from a newer version is shown."""
    (tally,) = tallies["newer"]

    assert (tally.events, tally.newer) == (9, 9)
    assert (changes["newer"]["shrinks"], changes["newer"]["expands"]) == (4, 4)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("cluster", "copies"), [("twice", 9), ("overlapping", 3)])
def test_copies_count_once(
    cluster: str, copies: int, tallies: dict[str, list[HourTally]], changes: dict[str, Row]
) -> None:
    """A duplicated file, or two that overlap: the same figures, and the number of copies beside them."""
    (tally,) = tallies[cluster]

    assert (tally.events, tally.copies) == (9, copies)
    assert (changes[cluster]["shrinks"], changes[cluster]["expands"]) == (4, 4)
    assert changes[cluster]["n_duplicate"] == copies


@pytest.mark.timeout(300)
def test_a_clock_that_goes_back_is_corrected_and_counted(
    tallies: dict[str, list[HourTally]], changes: dict[str, Row]
) -> None:
    """The event lies in the folder of another hour; nothing is missing, and its order is that of the epochs."""
    assert sum(tally.events for tally in tallies["back"]) == 9
    assert [tally.hour for tally in tallies["back"]] == [HOUR - 1, HOUR]
    assert changes["back"]["clock_regressions"] == 1
    assert (changes["back"]["shrinks"], changes["back"]["expands"], changes["back"]["n_gap"]) == (4, 4, 0)


def refusal(spark: SparkSession, root: Path) -> str:
    """The error when the rows are read."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which of Spark's it is does not matter, what is said does
        census(spark, find_exports(spark, [str(root)]))
    reported = explained(caught.value)
    assert isinstance(reported, DamagedFile), caught.value
    return str(reported)


@pytest.mark.timeout(300)
def test_rows_of_another_cluster_are_refused_by_file(spark: SparkSession, tmp_path: Path) -> None:
    """The message names the file, the cluster of its rows and its folder."""
    (path,) = write_export(tmp_path, decisions("south"))
    shutil.move(tmp_path / "south", tmp_path / "north")

    reported = refusal(spark, tmp_path)
    assert path.name in reported
    assert "has events of cluster south" in reported
    assert "its cluster, north" in reported


@pytest.mark.timeout(300)
def test_a_damaged_parquet_file_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """The length and both ends are right, but the content is not what was written: only reading detects it."""
    (path,) = write_export(tmp_path, decisions("north"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : -12] = bytes(len(content) - 12 - len(content) // 2)
    path.write_bytes(content)

    reported = refusal(spark, tmp_path)
    assert str(path) in reported
    assert "cannot be read" in reported
    assert "take it away together with its manifest" in reported


@pytest.mark.timeout(300)
def test_a_column_of_another_type_is_refused_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """A table of other data among the files: what the column is, and what it must be."""
    (path,) = write_export(tmp_path, decisions("north"))
    table = pq.ParquetFile(path).read()
    place = table.schema.get_field_index("seq")
    pq.write_table(table.set_column(place, "seq", table["seq"].cast(pa.string())), path)

    reported = refusal(spark, tmp_path)
    assert str(path) in reported
    assert "column seq is BINARY, and BIGINT in the schema" in reported
    assert "An error occurred" not in reported


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["executor.Executor", "scheduler.TaskSetManager"])
def test_the_jvm_does_not_tell_of_a_task_that_failed(spark: SparkSession, name: str) -> None:
    """The caller gets one sentence; dozens of lines of the JVM before it would hide it. Other messages are kept."""
    logs: Any = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager  # type: ignore[union-attr]

    assert not logs.getLogger(f"org.apache.spark.{name}").isErrorEnabled()
    assert logs.getLogger("org.apache.spark.SparkContext").isErrorEnabled()


@pytest.mark.timeout(300)
def test_a_line_that_is_no_event_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """A line in the middle of a file that is not an event is rejected, because no interrupted write explains it."""
    (path,) = write_export(tmp_path, decisions("north"), ExportFormat.JSONL)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], json.dumps({"tide": "high"}), *lines[4:]]) + "\n")
    (tmp_path / "north/v1" / layout.manifest_path(path.relative_to(tmp_path / "north/v1").as_posix())).unlink()

    reported = refusal(spark, tmp_path)
    assert path.name in reported
    assert "is not an exported event" in reported


def looked_at(cluster: str, count: int = 9) -> list[Row]:
    """A leader's samples of itself, a second apart, 40 records above the HW in the fifth."""
    tell = Emitter(cluster, 1)
    look = {"replica_id": 1, "interval_ms": 1_000, "hw": 100, "in_isr": True, "in_maximal_isr": True,
            "expected_state": "member"}  # fmt: skip
    return [
        tell.of_partition(
            START_US + number * SECOND, "REPLICA_SAMPLE", 0, sample_id=number, partition_epoch=1,
            leo=100 + 40 * (number == 5), leader_leo=100 + 40 * (number == 5), **look,
        )
        for number in range(1, count + 1)
    ]  # fmt: skip


def of_lines(root: Path, cluster: str, dataset: str, number: int, line: str, end: str = "\n") -> Path:
    """Export both datasets as lines; in one a line is replaced, and no manifest shows that it was changed."""
    paths = write_export(root, [*decisions(cluster), *looked_at(cluster)], ExportFormat.JSONL)
    (path,) = (path for path in paths if dataset in path.parts)
    lines = path.read_text().splitlines()
    lines[number] = line
    path.write_text("\n".join(lines) + end)
    (root / cluster / "v1" / layout.manifest_path(path.relative_to(root / cluster / "v1").as_posix())).unlink()
    return path


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("stat", "dataset"), [("s01", "samples"), ("s18", "samples"), ("s02", "samples"), ("s08", "transitions")]
)
def test_a_damaged_line_ends_a_statistic_by_the_files_name(
    spark: SparkSession, tmp_path: Path, stat: str, dataset: str
) -> None:
    """A query reads rows of some types only, and a damaged row has no type: it is rejected all the same."""
    path = of_lines(tmp_path, "north", dataset, 4, '{"event_type":"REPLICA_SAMPLE","seq":')
    scope = Scope(start_us=START_US, end_us=START_US + 60 * SECOND)

    with pytest.raises(Exception) as caught:  # noqa: PT011 - which of Spark's it is does not matter, what is said does
        result(ALL[stat], open_exports(spark, [str(tmp_path)]), scope).collect()
    reported = explained(caught.value)
    assert isinstance(reported, DamagedFile), caught.value
    assert path.name in str(reported)
    assert "is not an exported event" in str(reported)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("condition", ["event_type = 'REPLICA_SAMPLE'", "partition IS NOT NULL", "ts_wall_us > 0"])
@pytest.mark.parametrize("kind", ["a damaged line", "a foreign table"])
def test_no_filter_passes_over_what_is_no_event(spark: SparkSession, tmp_path: Path, kind: str, condition: str) -> None:
    """A row that is no event is rejected for any filter column; a foreign table may have columns of these names."""
    if kind == "a damaged line":
        path = of_lines(tmp_path, "north", "samples", 4, "tide: high")
    else:
        (path,) = write_export(tmp_path, looked_at("north"))
        pq.write_table(pa.table({"seq": [1, 2], "cluster_id": ["north", "north"]}), path)

    with pytest.raises(Exception) as caught:  # noqa: PT011 - as above
        read_rows(spark, find_exports(spark, [str(tmp_path)])).where(condition).collect()
    reported = explained(caught.value)
    assert isinstance(reported, DamagedFile), caught.value
    assert path.name in str(reported)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("event_type", ["REPLICA_SAMPLE", "ISR_CHANGE"])
def test_two_contents_under_one_event_id_are_refused_by_their_files(
    spark: SparkSession, tmp_path: Path, event_type: str
) -> None:
    """Of two contents under one event id neither is chosen, for samples too; the message names event and files."""
    paths = write_export(tmp_path, [*decisions("north"), *looked_at("north")])
    others = [*decisions("north"), *looked_at("north")]
    (place,) = [at for at, row in enumerate(others) if row["seq"] == 5 and row["event_type"] == event_type]
    paths += write_export(tmp_path, [others[place] | {"ts_mono_us": 7}])
    reported_of = [path for path in paths if ("samples" in path.parts) == (event_type == "REPLICA_SAMPLE")]

    with pytest.raises(ConflictingEvents) as reported:
        open_exports(spark, [str(tmp_path)])
    assert f"event {others[place]['node_id']}:1:5 of cluster north" in str(reported.value)
    assert len(reported_of) == 2
    assert all(path.name in str(reported.value) for path in reported_of)


@pytest.mark.timeout(300)
def test_equal_copies_of_samples_are_fine(spark: SparkSession, tmp_path: Path) -> None:
    """A copy of a file under another name is counted as copies, and not rejected."""
    *_, path = write_export(tmp_path, [*decisions("north"), *looked_at("north")])
    shutil.copyfile(path, path.with_name("n1-i1-1-99.parquet"))

    scope = Scope(start_us=START_US, end_us=START_US + 60 * SECOND)
    (row,) = result(ALL["s01"], open_exports(spark, [str(tmp_path)]), scope).collect()
    assert (row.n_duplicate, row.max_records) == (9, 40)


@pytest.mark.timeout(300)
def test_a_copy_of_samples_in_another_hour_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """Without its manifest its origin is unknown: the numbers of rows are counted, in the hour of their time."""
    *_, path = write_export(tmp_path, [*decisions("north"), *looked_at("north")])
    copy = Path(str(path).replace("hr=14", "hr=15"))
    copy.parent.mkdir(parents=True)
    shutil.copyfile(path, copy)

    tallies = census(spark, find_exports(spark, [str(tmp_path)]))
    assert [(one.hour, one.events, one.copies) for one in tallies if one.node_id == 1] == [(HOUR, 9, 9)]


@pytest.mark.timeout(300)
def test_changed_bytes_of_the_same_length_are_found_by_their_hash(
    analytics: Callable[..., Result], tmp_path: Path
) -> None:
    """`coverage` trusts the length, and `coverage --verify` names the file."""
    *others, path = write_export(tmp_path, [*decisions("north"), *looked_at("north")], ExportFormat.JSONL)
    whole = analytics("coverage", "-i", tmp_path, "--verify")
    path.write_text(path.read_text().replace('"leo":140', '"leo":240', 1))

    assert (whole.exit_code, "2 of 2 files are what their manifests prove" in whole.output) == (0, True)
    assert analytics("coverage", "-i", tmp_path).exit_code == 0
    reported = analytics("coverage", "-i", tmp_path, "--verify")
    assert reported.exit_code == 1
    assert str(path) in reported.output
    assert "as 1 of 2 files have" in reported.output
    assert len(others) == 1


@pytest.mark.timeout(300)
def test_in_a_file_that_was_cut_off_only_its_last_line_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    """A torn write explains no damage before it; the torn end itself, in the middle of a letter, is skipped."""
    path = of_lines(tmp_path, "north", "samples", 8, "", end='{"topic":"t')
    path.write_bytes(path.read_bytes() + "\N{LATIN SMALL LETTER E WITH ACUTE}".encode()[:1])
    is_cut.cache_clear()
    files = find_exports(spark, [str(tmp_path)])

    assert read_rows(spark, files).where("event_type = 'REPLICA_SAMPLE'").count() == 8
    path.write_bytes(path.read_bytes().replace(b'"seq":3', b'"seq":three'))
    reported = refusal(spark, tmp_path)
    assert path.name in reported


@pytest.mark.timeout(300)
def test_a_clock_that_began_in_1970_leaves_no_interval_of_decades(spark: SparkSession) -> None:
    """A measurement from before the clock was set is trusted for a week, and then none is."""
    tell = Emitter("north", -1)
    measured = [
        tell.row(at_us, "CLOCK_SAMPLE", subject_node_id=1, offset_us=offset_us, err_us=9)
        for at_us, offset_us in ((0, 5), (SECOND, 6), (START_US, 7), (START_US + SECOND, 8))
    ]
    names = (
        "cluster_id STRING, event_type STRING, subject_node_id INT, ts_wall_us BIGINT, offset_us BIGINT, err_us BIGINT"
    )
    reported = spark.createDataFrame(
        [tuple(row[name.split()[0]] for name in names.split(", ")) for row in measured], names
    )
    offsets = clock_offsets(reported)
    spans = {row.offset_us: row.c1 - row.c0 for row in offsets.collect()}

    assert spans[6] == 7 * 24 * HOUR_US
    assert spans[7] == SECOND + 1
    asked = spark.createDataFrame(
        [("north", 1, SECOND + 9), ("north", 1, START_US + 9)], "cluster_id STRING, n INT, t BIGINT"
    )
    corrected = in_controller_time(asked, clocks(offsets), "n", "t").orderBy("t").collect()
    assert [row.t for row in corrected] == [SECOND + 3, START_US + 2]


# Which rows are events: each identity once, with one content.


_SAID = (
    '{"t": 0, "seq": 7, "meta_offset": 7, "event_type": "STATE_SNAPSHOT", "partition_epoch": 1, '
    '"new_leader": %d, "new_isr": [1, 2]}'
)


@pytest.mark.timeout(300)  # May be the first to wait for the session.
def test_one_identity_with_two_stories_is_an_error(silver: Callable[[str], Silver]) -> None:
    """Two rows under one event id that differ are wrong data, and the message names the id."""
    with pytest.raises(ConflictingEvents, match=r"event -1:1:7 of cluster c"):
        silver("\n".join((_SAID % 1, _SAID % 2)))


@pytest.mark.timeout(300)  # May be the first to wait for the session.
def test_copies_of_a_row_are_one_event(silver: Callable[[str], Silver]) -> None:
    """A row that occurs three times is one event, which carries the number of copies."""
    (row,) = silver("\n".join([_SAID % 1] * 3)).transitions.collect()

    assert (row.seq, row.n_copies, row.n_stories) == (7, 3, 1)


# The same events in other files: the figures do not depend on the division.


STORIES = ("slow_disk", "failover")
AT_A_TIME = 3
ABOUT_FILES = ("cluster_id", "input_manifest_hash")


@pytest.fixture(scope="module")
def root_split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each history twice: in as few files as possible, and in small ones, half of them Parquet and half JSON lines."""
    root = tmp_path_factory.mktemp("split")
    for story in STORIES:
        rows = history_rows((HISTORIES / f"{story}.jsonl").read_text(encoding="utf-8"))
        whole = write_export(root, [row | {"cluster_id": f"whole-{story}"} for row in rows])
        small = []
        for number, part in enumerate(rows[i : i + AT_A_TIME] for i in range(0, len(rows), AT_A_TIME)):
            kind = list(ExportFormat)[number % 2]
            small += write_export(root, [row | {"cluster_id": f"small-{story}"} for row in part], kind)
        assert len(small) > len(whole)
    return root


# Two queries, each planned from scratch; the first waits for the session.
@pytest.mark.timeout(300)
def test_splitting_files_changes_no_figure(spark: SparkSession, root_split: Path) -> None:
    """Split files change no value of a statistic of samples or of transitions, coverage and flaws included."""
    silver = open_exports(spark, [str(root_split)])
    scope = Scope(start_us=0, end_us=60_000_000, grouping=Grouping.PARTITION)
    for stat in ("s18", "s19"):
        reported: dict[str, dict[str, list[dict[str, Any]]]] = {"whole": {}, "small": {}}
        for row in result(ALL[stat], silver, scope).collect():
            how, _, story = row.cluster_id.partition("-")
            values = {name: value for name, value in row.asDict(recursive=True).items() if name not in ABOUT_FILES}
            reported[how].setdefault(story, []).append(values)
        ordered = {how: {s: sorted(rows, key=str) for s, rows in by.items()} for how, by in reported.items()}
        assert ordered["whole"]
        assert ordered["small"] == ordered["whole"]
