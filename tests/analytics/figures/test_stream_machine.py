"""The state machine of the live statistics, alone and in PySpark's own tester."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, example, given, settings, strategies as st
from pyspark.sql import Row as RowProcessor
from pyspark.sql.streaming.stateful_processor import TimerValues
from tests.analytics.random_history import SECOND, random_history, story_text

from strandline.export.schema import EVENT_TYPES, SAMPLES
from strandline_analytics.silver.events import ConflictingEvents
from strandline_analytics.stream.carry import FORMAT, Carry, Moves, Pending, UnknownFormat
from strandline_analytics.stream.control_fold import Held
from strandline_analytics.stream.feed import UNUSED_TYPES, is_control
from strandline_analytics.stream.figures import completed, types
from strandline_analytics.stream.job import LivePartition, trouble_of
from strandline_analytics.stream.machine import Row, Timing, TooManyWindows, settle
from strandline_analytics.stream.spans import Stall

if TYPE_CHECKING:
    from pyspark.sql.streaming.tws_tester import TwsTester


HISTORIES = Path(__file__).parents[1] / "histories"
TIMING = Timing(step_us=20 * SECOND, horizon_us=60 * SECOND)
DELAY_US = 3 * SECOND
"""How much disorder a history has, and so by how much a watermark stays behind."""


def lines(name: str) -> list[dict[str, Any]]:
    """Events of a worked history, as `conftest.history_rows` fills them in."""
    rows = []
    for line in (HISTORIES / name).read_text().splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            number = len(rows) + 1
            defaults = {"node_id": -1, "incarnation": 1, "seq": number, "meta_offset": number, "leader_epoch": 0}
            rows.append(defaults | {"topic": "t", "ts_wall_us": round(said.pop("t") * 1_000)} | said)
    return rows


def run(calls: list[tuple[list[str], int]], timing: Timing = TIMING) -> list[Row]:
    """The rows of all calls, each with its new events and its watermark; kept state goes through its text form."""
    carry, rest, rows = Carry(), list[str](), list[Row]()
    for texts, watermark in calls:
        done = settle(carry, rest + texts, watermark_us=watermark, timing=timing)
        carry, rest = Carry.from_json(done.carry.to_json()), done.rest
        rows += done.rows
    return rows


def final(rows: list[Row]) -> list[str]:
    """The final rows, in comparable form."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows if row["final"])


def cut(rows: list[dict[str, Any]], borders: list[int], end_us: int) -> list[tuple[list[str], int]]:
    """A history split into calls, each with the latest watermark that no later event is behind."""
    calls, places = [], sorted({min(border, len(rows)) for border in borders} | {len(rows)})
    for first, last in zip([0, *places], places, strict=False):
        to_come = [row["ts_wall_us"] for row in rows[last:]]
        watermark = min(to_come) - DELAY_US if to_come else end_us
        calls.append(([story_text(row) for row in rows[first:last]], watermark))
    return calls


def test_w1_is_what_the_history_says() -> None:
    """Two shrinks, one expand; 50 s under-replicated, 35 s at the minimum, 15 s under it; clipped at the window."""
    timing = Timing(step_us=60 * SECOND, horizon_us=3_600 * SECOND)
    texts = [story_text(row) for row in lines("w1_clipping.jsonl")]
    rows = {row["stat"]: row for row in run([(texts, 60 * SECOND)], timing) if row["window_start"] == 0}

    assert all(row["final"] for row in rows.values())
    assert (rows["s08"]["shrinks"], rows["s08"]["expands"]) == (2, 1)
    assert rows["s10"]["under_replicated_us"] == 50 * SECOND
    assert (rows["s10"]["at_min_us"], rows["s10"]["under_min_us"]) == (35 * SECOND, 15 * SECOND)
    assert rows["s10"]["full_us"] == 10 * SECOND
    assert rows["s10"]["coverage"] == 1.0


@pytest.mark.parametrize("borders", [[], [3], [1, 2, 3, 4, 5, 6]])
def test_w2_is_what_the_history_says(borders: list[int]) -> None:
    """Three removals, one flap, two sessions, one of them flapping; for any split of the history."""
    timing = Timing(step_us=1_200 * SECOND, horizon_us=3_600 * SECOND)
    calls = cut(lines("w2_rejoin.jsonl"), borders, 6_000 * SECOND)
    (row,) = (row for row in run(calls, timing) if row["stat"] == "s15" and row["window_start"] == 0 and row["final"])

    assert row["replica_id"] == 3
    assert (row["removals"], row["flaps"]) == (3, 1)
    assert (row["sessions"], row["flapping_sessions"]) == (2, 1)


@pytest.mark.parametrize("borders", [[], [3], [1, 2, 3, 4, 5, 6]])
def test_sessions_of_removals_go_on_across_windows(borders: list[int]) -> None:
    """A removal after one in the window before is flapping in its own window, and no new session begins."""
    timing = Timing(step_us=60 * SECOND, horizon_us=3_600 * SECOND)
    found = run(cut(lines("w2_rejoin.jsonl"), borders, 6_000 * SECOND), timing)
    rows = {row["window_start"] // SECOND: row for row in found if row["stat"] == "s15" and row.get("removals")}

    assert {start: (row["flaps"], row["flapping_sessions"]) for start, row in rows.items() if row["final"]} == {
        0: (0, 0),
        60: (1, 1),
        960: (0, 0),
    }


@pytest.mark.parametrize(("watermark_s", "is_final"), [(59, False), (60, True)])
def test_a_window_closes_with_the_watermark(watermark_s: int, is_final: bool) -> None:
    """Not before the watermark is at its end; before that its rows are provisional."""
    timing = Timing(step_us=60 * SECOND, horizon_us=3_600 * SECOND)
    texts = [story_text(row) for row in lines("w1_clipping.jsonl")]
    rows = [row for row in run([(texts, watermark_s * SECOND)], timing) if row["window_start"] == 0]

    assert {row["final"] for row in rows} == {is_final}


def test_a_lost_transition_that_shows_later_is_waited_for() -> None:
    """A window is not closed while the controller's next row may show that something is missing in it."""
    first, _, third, *_ = lines("w1_clipping.jsonl")
    early, late = story_text(first), story_text(third)
    timing = Timing(step_us=10 * SECOND, horizon_us=100 * SECOND)
    waiting = run([([early], 20 * SECOND)], timing)
    closed = run([([early], 20 * SECOND), ([late], 26 * SECOND)], timing)

    assert not any(row["final"] for row in waiting)
    known = {row["window_start"]: row["coverage"] for row in closed if row["stat"] == "s10" and row["final"]}
    assert known == {-10 * SECOND: 0.0, 0: 0.0, 10 * SECOND: 0.0}


def test_a_silent_controller_is_waited_for_no_longer_than_the_horizon() -> None:
    """After the horizon a silent controller is no longer waited for, and the known part counts."""
    texts = [story_text(lines("w1_clipping.jsonl")[0])]
    timing = Timing(step_us=10 * SECOND, horizon_us=100 * SECOND)
    rows = run([(texts, 110 * SECOND)], timing)

    assert max(row["window_end"] for row in rows if row["final"]) == 10 * SECOND


def test_a_state_that_is_not_reported_again_is_known_to_the_end_of_its_hour() -> None:
    """The next hour begins with a snapshot; where it is missing, nothing is known any more."""
    first = lines("w1_clipping.jsonl")[0]
    timing = Timing(step_us=1_800 * SECOND, horizon_us=4_500 * SECOND)
    rows = run([([story_text(first)], 4 * 3_600 * SECOND)], timing)

    known = {row["window_start"] // SECOND: row["coverage"] for row in rows if row["stat"] == "s10" and row["final"]}
    begun = first["ts_wall_us"] // SECOND
    hour_end = (begun // 3_600 + 1) * 3_600
    assert {start: share for start, share in known.items() if start >= hour_end} == dict.fromkeys(
        range(hour_end, 9_000, 1_800), 0.0
    )
    assert sum(share * 1_800 for share in known.values()) == hour_end - begun


def test_two_stories_of_one_event_are_an_error() -> None:
    """Two contents under one event id are an error."""
    text = story_text(lines("w1_clipping.jsonl")[0])
    other = json.dumps(json.loads(text) | {"digest": 1})

    with pytest.raises(ConflictingEvents, match="event -1:1:1 is there with two different contents"):
        run([([text, other], 0)])


def test_a_checkpoint_of_another_format_is_refused() -> None:
    """A checkpoint of another format is rejected with a message that says what to do."""
    with pytest.raises(UnknownFormat, match="begin with a new checkpoint"):
        Carry.from_json('{"format": 0}')


def test_the_names_in_a_checkpoint_belong_to_its_format() -> None:
    """A kept class whose fields change needs another FORMAT, or a checkpoint of before fails without saying why."""
    kept = {kind.__name__: [field.name for field in fields(kind)] for kind in (Held, Moves, Stall, Pending)}

    assert FORMAT == 4
    assert " ".join(sorted(json.loads(Carry().to_json()))) == (
        "advances first_looks format held is_done last_looks moves pending stalls start_us terms topic under_min"
    )
    assert {name: " ".join(names) for name, names in kept.items()} == {
        "Held": "t order leader_epoch leader reported_at isr replicas min_isr is_deleted adding holes isr_reported_at",
        "Moves": "came went session",
        "Stall": "seen held came went last_at last_look blockers",
        "Pending": "start_us looked_us flaws",
    }


def longest_silence_us(rows: list[dict[str, Any]]) -> int:
    """The longest time between two rows of the controller, by its own clock."""
    times = sorted(row["ts_wall_us"] for row in rows if is_control(row))
    return max(later - earlier for earlier, later in pairwise(times))


@settings(max_examples=150)
@given(st.integers(0, 10**9), st.lists(st.integers(0, 400), max_size=12), st.randoms(use_true_random=False))
@example(41, [229], random.Random(1)).via("the last look of a closed window begins a stall that is below the minimum")
@example(119, [193], random.Random(1)).via("the same, in a later leader epoch")
@example(269, [124], random.Random(1)).via("a transition was lost between a window's end and the end of its stall")
@example(478544589, [363, 40, 61], random.Random(1)).via("as the first, with the blockers of the stall")
def test_any_cut_into_calls_is_the_same(seed: int, borders: list[int], dice: Any) -> None:
    """Final rows do not depend on when events arrive, in which order within a call, or on the number of restarts; if
    the controller is never silent for the horizon, after which it is no longer waited for."""
    rows = random_history(seed)
    assume(longest_silence_us(rows) < TIMING.horizon_us)
    end = rows[-1]["reported_us"] + 600 * SECOND
    calls = [(dice.sample(texts, len(texts)), watermark) for texts, watermark in cut(rows, borders, end)]
    whole = final(run(cut(rows, [], end)))

    assert whole
    assert final(run(calls)) == whole
    assert len(set(whole)) == len(whole)


@settings(max_examples=50)
@given(st.integers(0, 10**9))
def test_what_is_kept_does_not_grow(seed: int) -> None:
    """After everything is closed no event is kept, and no stall that is over."""
    rows = random_history(seed)
    ((texts, _),) = cut(rows, [], 0)
    done = settle(Carry(), texts, watermark_us=rows[-1]["reported_us"] + 10_000 * SECOND, timing=TIMING)

    assert done.rest == []
    assert done.carry.pending == []
    assert all(row["final"] for row in done.rows)
    assert len(done.carry.stalls) == 0


def test_an_event_of_1970_ends_the_stream_with_a_word() -> None:
    """An event of 1970 ends the stream with a message that names the folders of both times, and the remedy."""
    rows = lines("w1_clipping.jsonl")
    moved = {"ts_wall_us": 1_795_183_200 * SECOND, "seq": 100, "meta_offset": 100, "partition_epoch": 100}
    later = [row | {name: row[name] + by for name, by in moved.items()} for row in rows]
    texts = [story_text(row) for row in (*rows, *later)]

    with pytest.raises(TooManyWindows, match=r"dt=1969-12-31/hr=23 and in dt=2026-11-20/hr=14.*new checkpoint"):
        settle(Carry(), texts, watermark_us=0, timing=TIMING)


def test_samples_that_no_figure_here_is_made_of_are_not_kept() -> None:
    """The batch counts copies of looks and transitions; another type of sample would be counted here alone."""
    samples = {name for name, kind in EVENT_TYPES.items() if kind.dataset == SAMPLES}

    assert set(UNUSED_TYPES) == samples - {"REPLICA_SAMPLE", "HW_ADVANCE"}


# The processor around the machine, with PySpark's own tester: state, timers and late rows as in a query.


KEY = ("c", "T", 0)


class Unwrapped(LivePartition):
    """The tester passes a key of one column; this processor has three."""

    def _settle(self, key: Any, news: list[str], timers: TimerValues) -> Iterator[RowProcessor]:
        return super()._settle(key[0], news, timers)


def in_memory(*, provisional: bool) -> TwsTester:
    """A processor with state in memory."""
    # PySpark 4.1 has no such module, and runs nothing of this file (`make test-with WHAT=matrix`).
    from pyspark.sql.streaming.tws_tester import TwsTester

    processor = Unwrapped(TIMING, provisional=provisional)
    return TwsTester(processor, timeMode="EventTime", eventTimeExtractor=lambda row: int(row.at_ms))


def drive(history: list[dict[str, Any]], *, provisional: bool) -> tuple[list[RowProcessor], TwsTester]:
    """Every row of a history given in steps of 7 s, each with the watermark that Spark would have."""
    one, reported, rows = in_memory(provisional=provisional), list[RowProcessor](), list(history)
    newest = 0
    while rows:
        until = rows[0]["reported_us"] + 7 * SECOND
        part = [row for row in rows if row["reported_us"] < until]
        rows = rows[len(part) :]
        inputs = [RowProcessor(at_ms=row["ts_wall_us"] // 1_000, story=story_text(row)) for row in part]
        reported += one.test(KEY, inputs)
        newest = max([newest, *(row["ts_wall_us"] for row in part)])
        reported += one.setWatermark((newest - 5 * SECOND) // 1_000)
    # Each timer that fires registers the next one for what the watermark has passed by then.
    reported += one.setWatermark((newest + 10_000 * SECOND) // 1_000)
    return reported, one


def plain(rows: list[Any]) -> list[str]:
    """Rows, in comparable form."""
    return sorted(json.dumps(row if isinstance(row, dict) else row.asDict(), sort_keys=True) for row in rows)


@pytest.mark.reads_stream
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


@pytest.mark.reads_stream
def test_a_partition_that_is_deleted_leaves_one_line() -> None:
    """After a partition is deleted, no event and no timer of it is kept."""
    deleted = next(rows for seed in range(99) if (rows := random_history(seed))[-1].get("topic_deleted"))
    _, one = drive(deleted, provisional=True)
    kept = one.peekValueState("carry", KEY)

    assert kept is not None
    assert Carry.from_json(kept[0]).is_done
    assert one.peekListState("stories", KEY) == []
    assert list(one.handle._timers.listTimers(KEY)) == []


@pytest.mark.reads_stream
def test_what_is_of_no_partition_keeps_nothing() -> None:
    """A heartbeat comes under a key without a partition, and has no history."""
    one = in_memory(provisional=True)

    assert one.test(("c", None, None), [RowProcessor(at_ms=1, story=None)]) == []
    assert one.peekValueState("carry", ("c", None, None)) is None


@pytest.mark.reads_stream
def test_what_a_worker_found_is_reported_without_its_traceback() -> None:
    """Spark wraps it into pages; the sentence says what to do."""
    said = (
        "[STREAM_FAILED] Query [id = 1]\n  File x, line 3\nstrandline_analytics.silver.events.ConflictingEvents: event "
    )

    assert str(trouble_of(RuntimeError(f"{said}1:1:1 is there twice\n\tat java"))) == "event 1:1:1 is there twice"
    assert trouble_of(RuntimeError("no space left")) is None
