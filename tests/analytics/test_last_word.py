"""Knowledge of partitions ends with the controller's last event."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import Answers, silver_of
from pyspark.sql import SparkSession
from tests.analytics.random_history import story_text
from typer.testing import Result
from written_export import HOUR_US, Emitter, Row, write_export

from strandline.export import layout
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
