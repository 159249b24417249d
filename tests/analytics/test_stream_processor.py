"""The processor around the machine, with PySpark's own tester: state, timers and late rows as in a query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import TimerValues
from tests.analytics.random_history import SECOND, random_history, story_text

from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.figures import completed, types
from strandline_analytics.stream.job import LivePartition, trouble_of
from strandline_analytics.stream.machine import Timing, settle

if TYPE_CHECKING:
    from pyspark.sql.streaming.tws_tester import TwsTester

pytestmark = pytest.mark.reads_stream

TIMING = Timing(step_us=20 * SECOND, horizon_us=60 * SECOND)
KEY = ("c", "T", 0)


class Unwrapped(LivePartition):
    """The tester passes a key of one column; this processor has three."""

    def _settle(self, key: Any, news: list[str], timers: TimerValues) -> Iterator[Row]:
        return super()._settle(key[0], news, timers)


def in_memory(*, provisional: bool) -> TwsTester:
    """A processor with state in memory."""
    # PySpark 4.1 has no such module, and runs nothing of this file (`make test-with WHAT=matrix`).
    from pyspark.sql.streaming.tws_tester import TwsTester

    processor = Unwrapped(TIMING, provisional=provisional)
    return TwsTester(processor, timeMode="EventTime", eventTimeExtractor=lambda row: int(row.at_ms))


def drive(history: list[dict[str, Any]], *, provisional: bool) -> tuple[list[Row], TwsTester]:
    """Every row of a history given in steps of 7 s, each with the watermark that Spark would have."""
    one, reported, rows = in_memory(provisional=provisional), list[Row](), list(history)
    newest = 0
    while rows:
        until = rows[0]["reported_us"] + 7 * SECOND
        part = [row for row in rows if row["reported_us"] < until]
        rows = rows[len(part) :]
        inputs = [Row(at_ms=row["ts_wall_us"] // 1_000, story=story_text(row)) for row in part]
        reported += one.test(KEY, inputs)
        newest = max([newest, *(row["ts_wall_us"] for row in part)])
        reported += one.setWatermark((newest - 5 * SECOND) // 1_000)
    # Each timer that fires registers the next one for what the watermark has passed by then.
    reported += one.setWatermark((newest + 10_000 * SECOND) // 1_000)
    return reported, one


def plain(rows: list[Any]) -> list[str]:
    """Rows, in comparable form."""
    return sorted(json.dumps(row if isinstance(row, dict) else row.asDict(), sort_keys=True) for row in rows)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("provisional", [True, False])
def test_final_rows_are_those_of_the_machine(seed: int, provisional: bool) -> None:
    """With every column, each once, with or without provisional rows."""
    history = random_history(seed)
    rows, _ = drive(history, provisional=provisional)
    texts = [story_text(row) for row in history]
    whole = settle(Carry(), texts, watermark_us=history[-1]["reported_us"] + 10_000 * SECOND, timing=TIMING)
    own = dict(zip(("cluster_id", "topic_id", "partition"), KEY, strict=True))
    until = history[-1]["reported_us"]

    assert plain([row for row in rows if row.final and row.window_start < until]) == plain(
        [completed(row | own) for row in whole.rows if row["final"] and row["window_start"] < until]
    )
    assert all(list(row.asDict()) == list(types()) for row in rows)
    assert any(not row.final for row in rows) == provisional


def test_a_partition_that_is_deleted_leaves_one_line() -> None:
    """After a partition is deleted, no event and no timer of it is kept."""
    deleted = next(rows for seed in range(99) if (rows := random_history(seed))[-1].get("topic_deleted"))
    _, one = drive(deleted, provisional=True)
    kept = one.peekValueState("carry", KEY)

    assert kept is not None
    assert Carry.from_json(kept[0]).is_done
    assert one.peekListState("stories", KEY) == []
    assert list(one.handle._timers.listTimers(KEY)) == []


def test_what_is_of_no_partition_keeps_nothing() -> None:
    """A heartbeat comes under a key without a partition, and has no history."""
    one = in_memory(provisional=True)

    assert one.test(("c", None, None), [Row(at_ms=1, story=None)]) == []
    assert one.peekValueState("carry", ("c", None, None)) is None


def test_what_a_worker_found_is_reported_without_its_traceback() -> None:
    """Spark wraps it into pages; the sentence says what to do."""
    said = (
        "[STREAM_FAILED] Query [id = 1]\n  File x, line 3\nstrandline_analytics.silver.events.ConflictingEvents: event "
    )

    assert str(trouble_of(RuntimeError(f"{said}1:1:1 is there twice\n\tat java"))) == "event 1:1:1 is there twice"
    assert trouble_of(RuntimeError("no space left")) is None
