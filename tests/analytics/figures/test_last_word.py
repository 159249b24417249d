"""What is known of partitions: until which event, by which number, and in whose time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import Answers, silver_of
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.analytics.random_history import story_text
from typer.testing import Result
from worked_histories import HISTORIES, history_rows
from written_export import HOUR_US, Emitter, Row, write_export

from strandline.export import layout
from strandline.export.schema import COLUMNS
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.kept import numbered
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.machine import Timing, settle

SECOND = 1_000_000
_STATE = {"partition_epoch": 1, "leader_epoch": 0, "new_leader": 1, "new_isr": [1], "replicas": [1, 2], "min_isr": 1}


def reported(cluster: str, *beats_s: int, final: bool = False, snapshots_s: tuple[int, ...] = (1,)) -> list[Row]:
    """A partition with one of two replicas in its ISR, snapshots of it, heartbeats of the controller."""
    tell = Emitter(cluster, -1)
    rows = [tell.of_partition(at * SECOND, "STATE_SNAPSHOT", 0, meta_offset=at, **_STATE) for at in snapshots_s]
    last = beats_s[-1:]
    return rows + [tell.beat(at * SECOND, final=final and (at,) == last) for at in beats_s]


def newer() -> list[Row]:
    """A controller of a newer version: a remark about a known epoch, and a change of a type not known here."""
    tell = Emitter("newer", -1)
    change: Row = {"old_isr": [1, 2], "new_isr": [1], "cause": "lag", "initiator": "leader", "removed": [], "added": []}
    return [
        tell.of_partition(1 * SECOND, "STATE_SNAPSHOT", 0, meta_offset=1, **_STATE),
        tell.of_partition(30 * SECOND, "TIDE_NOTED", 0, meta_offset=2, partition_epoch=1, new_isr=[2]),
        tell.of_partition(50 * SECOND, "TIDE_TURNED", 0, meta_offset=3, partition_epoch=2, new_isr=[2]),
        tell.of_partition(80 * SECOND, "ISR_CHANGE", 0, meta_offset=4, partition_epoch=3, **change),
        tell.beat(100 * SECOND, final=True),
    ]


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> Answers:
    """Clusters whose controllers fall silent in different ways."""
    rows = [
        *reported("ended", 100, 200, final=True),
        *reported("silent", 100, 200),
        *reported("restarted", 100, final=True),
        *(row | {"incarnation": 2} for row in reported("restarted", 300, final=True, snapshots_s=(250,))),
        *reported("alive", 100, 7_100),
        *reported("snapshots", 100, 7_100, snapshots_s=(1, 3_601)),
        *reported("unheard"),
        *newer(),
    ]
    return Answers(silver_of(spark, rows))


@pytest.mark.parametrize(
    ("cluster", "known_s"),
    [
        ("ended", 199),  # its reported end
        ("silent", 229),  # three heartbeats long
        ("restarted", 299),  # the last reported end
        ("alive", 3_599),  # it keeps sending heartbeats, and the snapshot of the next hour is missing
        ("snapshots", 7_129),  # the last snapshot is of that hour
        ("unheard", 3_599),  # no heartbeat was exported: only the hour shows it
    ],
)
def test_a_state_is_known_to_the_last_word_of_the_controller(answers: Answers, cluster: str, known_s: int) -> None:
    """A state is not counted beyond the controller's last event, however far the window goes."""
    row = answers.row("s10", cluster, end_ms=10 * HOUR_US // 1_000)

    assert row.under_replicated_us == known_s * SECOND
    assert row.coverage == known_s / 36_000


def test_what_is_not_understood_ends_what_is_known_until_the_state_is_reported(answers: Answers) -> None:
    """A newer version's change at 50 s, known to 50 s and again from the change at 80 s; a remark changes nothing."""
    rows = answers.rows("s10", "newer", start_ms=0, end_ms=100_000, step_ms=10_000)

    assert [row.coverage for row in rows] == [0.9, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    assert [row.n_gap for row in rows] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_the_stream_ends_it_there_as_well() -> None:
    """The same history has the same windows in the stream."""
    stories = [story_text(row) for row in newer() if row["event_type"] != "EXPORT_HEARTBEAT"]
    timing = Timing(step_us=10 * SECOND, horizon_us=20 * SECOND)
    rows = settle(Carry(), stories, watermark_us=120 * SECOND, timing=timing).rows
    final = [row for row in rows if row["stat"] == "s10" and row["final"]]

    assert [row["coverage"] for row in final] == [0.9, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    assert [row["n_gap"] for row in final] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_what_is_not_understood_is_said(analytics: Callable[..., Result], tmp_path: Path) -> None:
    """Events of unknown types are reported by type, with their number."""
    write_export(tmp_path, newer())

    reported = analytics("stats", "s10", "-i", tmp_path)
    assert reported.exit_code == 0
    assert "event types are not understood: TIDE_NOTED (1), TIDE_TURNED (1)" in reported.stderr


def test_a_window_behind_the_last_word_knows_nothing(answers: Answers) -> None:
    """A window after the last event has null and coverage 0, and no stay outside of the ISR."""
    behind: dict[str, Any] = {"start_ms": 2 * HOUR_US // 1_000, "end_ms": 3 * HOUR_US // 1_000}
    row = answers.row("s10", "ended", **behind)

    assert (row.under_replicated_us, row.coverage) == (None, 0.0)
    assert answers.row("s12", "ended", **behind).out_us is None
    (stay,) = answers.rows("s12", "ended", end_ms=HOUR_US // 1_000)
    assert (stay.out_us, stay.censored) == (199 * SECOND, 1)


def test_files_without_manifests_have_the_window_that_their_rows_tell(
    analytics: Callable[..., Result], tmp_path: Path
) -> None:
    """Without --from and --to the window of files without manifests is from the first event to the last."""
    write_export(tmp_path, reported("north", 100, 200, final=True))
    shutil.rmtree(tmp_path / "north/v1" / layout.MANIFEST_FOLDER)

    (row,) = json.loads(analytics("stats", "s10", "-i", tmp_path, "-o", "json").stdout)
    assert (row["window_start"], row["window_end"]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:03:20.000001Z")
    assert row["under_replicated_us"] == 199 * SECOND


@pytest.mark.parametrize("is_proven", [True, False])
def test_an_export_without_an_event_is_refused(
    analytics: Callable[..., Result], tmp_path: Path, is_proven: bool
) -> None:
    """An export without an event is rejected like an empty directory, because no data could meet a threshold."""
    (path,) = write_export(tmp_path, reported("north"))
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    (manifest,) = (tmp_path / "north/v1" / layout.MANIFEST_FOLDER).rglob("*.json")
    if is_proven:
        said = json.loads(manifest.read_text()) | {"rows": 0, "size_bytes": path.stat().st_size}
        manifest.write_text(json.dumps(said))
    else:
        manifest.unlink()

    refused = analytics("stats", "s10", "-i", tmp_path, "--fail-on", "coverage<1")
    assert refused.exit_code == 1
    assert "hold not one event" in refused.output
    assert str(path) in refused.output


# Partitions identified by a number: two with the same number are rejected, and names are restored at the end.


_BEGUN = """
{"t": 0, "event_type": "CONFIG_CHANGE", "partition_epoch": 0, "min_isr": 1, "replicas": [1, 2]}
{"t": 0, "event_type": "LEADER_CHANGE", "partition_epoch": 1, "new_leader": 1, "new_isr": [1, 2]}
"""


_LOOK = (
    '{"t": 0, "event_type": "REPLICA_SAMPLE", "node_id": 1, "sample_id": %d, "seq": %d, "interval_ms": 20000, '
    '"replica_id": 1, "leo": 9, "leader_leo": 9, "hw": 2, "in_isr": true, "expected_state": "member"%s}'
)


@pytest.mark.timeout(300)
def test_two_partitions_of_one_number_are_refused(spark: SparkSession) -> None:
    """If two partitions have the same hash nothing is answered, and the message says what to do."""
    partitions = spark.createDataFrame([("c", "T", 0), ("c", "T", 1)], "cluster_id STRING, topic_id STRING, n INT")

    with pytest.raises(PySparkException, match=r"Rule: a hash names one\. Ask about one cluster"):
        numbered(partitions, ("cluster_id", "topic_id")).collect()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("grouping", Grouping)
def test_looks_at_a_unreported_partition_count_nowhere(silver: Callable[[str], Silver], grouping: Grouping) -> None:
    """A partition without control plane is in no group of a result, so no group is covered for longer than it lasts."""
    strange = ', "partition": 7'
    tables = silver("\n".join((_BEGUN, _LOOK % (1, 1, ""), _LOOK % (2, 2, strange))))

    (row,) = result(ALL["s01"], tables, Scope(start_us=0, end_us=60_000_000, grouping=grouping)).collect()

    assert (row.max_records, row.coverage) == (7, 1.0)


# Two controllers whose clocks differ are brought into the time of the first, or it is said that they cannot be.


S, LATER_US = 1_000_000, 3_600_000_000
_BLANK = dict.fromkeys(column.name for column in COLUMNS)
_TIMES = ("ts_wall_us", "ts_mono_us")


def _rows() -> list[dict[str, Any]]:
    """The history an hour later, because files have no hours before 1970."""
    rows = history_rows((HISTORIES / "two_controllers.jsonl").read_text(encoding="utf-8"))
    return [_BLANK | row | {name: row[name] + LATER_US for name in _TIMES} for row in rows]


def _opened(spark: SparkSession, root: Path, rows: list[dict[str, Any]]) -> Silver:
    write_export(root, rows)
    return open_exports(spark, [str(root)])


def _row(tables: Silver, stat: str) -> Any:
    scope = Scope(start_us=LATER_US, end_us=LATER_US + 60 * S)
    rows = [row for row in result(ALL[stat], tables, scope).collect() if row.partition == 0]
    (row,) = [one for one in rows if "replica_id" not in one or one.replica_id == 3]
    return row


@pytest.mark.timeout(300)
def test_the_second_controllers_events_are_in_the_first_ones_time(spark: SparkSession, tmp_path: Path) -> None:
    """5 s by the median of three nodes, one of whose own clock was set: figures as if the clocks agreed."""
    tables = _opened(spark, tmp_path, _rows())
    states, rejoins, lag = (_row(tables, stat) for stat in ("s10", "s12", "s01"))

    assert (states.at_min_us, rejoins.rejoins, rejoins.max_us) == (30 * S, 1, 30 * S)
    assert (lag.mean_records, lag.max_records) == (5.0, 10)
    (said,) = tables.kafka_sources
    assert said == "the clock of controller 2 is 5.000 s ahead of the first one's, and its times are corrected by that"


@pytest.mark.timeout(300)
def test_controllers_that_agree_or_were_not_compared_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Within the errors of measurement nothing is moved; without a node that both measured, that is said."""
    same = [row | {"offset_us": 50_000} if row["event_type"] == "CLOCK_SAMPLE" else row for row in _rows()]
    apart = [
        row | {"subject_node_id": 9} if row["event_type"] == "CLOCK_SAMPLE" and row["incarnation"] == 2 else row
        for row in _rows()
    ]
    agreed, unknown = (_opened(spark, tmp_path / name, rows) for name, rows in (("same", same), ("apart", apart)))

    assert (_row(agreed, "s10").at_min_us, agreed.kafka_sources) == (35 * S, ())
    assert _row(unknown, "s10").at_min_us == 35 * S
    assert unknown.kafka_sources == ("the clocks of controllers 1 and 2 were never compared: no node's was by both",)
