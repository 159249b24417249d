"""State events reach their file, are bounded, never block a caller, and are counted."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from exported_rows import CLUSTER, made

from strandline.core.types import TopicPartition
from strandline.export.counters import ExportCounters, OutletStats
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.local_lines import Lost
from strandline.export.rows import Row, Run
from strandline.export.sink import EventSink

TP = TopicPartition("id", 3)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Kept:
    """An outlet that keeps what it gets, once the test releases it."""

    def __init__(self, *, open_: bool = True) -> None:
        self.rows: list[Row] = []
        self.lost: list[Lost] = []
        self.stats = OutletStats()
        self.gate = threading.Event()
        if open_:
            self.gate.set()

    def write(self, run: Run) -> None:
        assert self.gate.wait(10), "nobody opened the gate"
        self.rows += run.rows()

    def tend(self, mono_us: int) -> list[Lost]:
        lost, self.lost = self.lost, []
        return lost

    def close(self, mono_us: int) -> None:
        return None


def test_an_event_is_one_json_line_of_the_schema(tmp_path: Path) -> None:
    """Envelope, partition and the event's own columns; absent ones are left out."""
    sink = EventSink(tmp_path, {"node_id": 7, "cluster_id": "c", "incarnation": 5}, wall_ms=lambda: 42)
    sink.take(TP, made("ISR_CHANGE", new_isr=[1, 2], cause="lag"))
    sink.close()

    assert _lines(tmp_path / "events.jsonl")[0] == {
        "schema_version": 1,
        "cluster_id": "c",
        "event_type": "ISR_CHANGE",
        "node_id": 7,
        "incarnation": 5,
        "seq": 1,
        "ts_wall_us": 42_000,
        "ts_mono_us": 42_000,
        "topic_id": "id",
        "partition": 3,
        "old_isr": [],
        "new_isr": [1, 2],
        "removed": [],
        "added": [],
        "elr": [],
        "cause": "lag",
    }


def test_the_end_says_that_it_is_the_end(tmp_path: Path) -> None:
    """The last line of a clean stop has the last number, so that nothing after it can be missing."""
    sink = EventSink(tmp_path, {"node_id": 7}, wall_ms=lambda: 42)
    sink.take(None, made("CONFIG_CHANGE"))
    sink.close()

    last = _lines(tmp_path / "events.jsonl")[-1]
    assert (last["event_type"], last["last_seq"], last["seq"], last["ext"]) == (
        "EXPORT_HEARTBEAT",
        1,
        2,
        {"final": "true"},
    )


def test_numbers_begin_with_the_incarnation_and_keep_the_order(tmp_path: Path) -> None:
    """Events taken before the registration wait, and are numbered first."""
    kept = Kept()
    sink = EventSink(None, {"node_id": 7}, outlets=[kept], begun=False)
    sink.take(None, made("CONFIG_CHANGE"))
    sink.begin("c", 9)
    sink.take(None, made("CLOCK_SAMPLE"))
    sink.close()

    events = [row for row in kept.rows if not row["event_type"].startswith("EXPORT")]
    assert [(row["event_type"], row["cluster_id"], row["incarnation"]) for row in events] == [
        ("CONFIG_CHANGE", "c", 9),
        ("CLOCK_SAMPLE", "c", 9),
    ]
    assert [row["seq"] for row in kept.rows] == list(range(1, len(kept.rows) + 1))


def test_samples_are_dropped_first_and_their_numbers_reported(tmp_path: Path) -> None:
    """Behind a stuck writer samples find no room, transitions do; the gap covers exactly the missing numbers."""
    kept = Kept(open_=False)
    sink = EventSink(None, {"node_id": 7}, outlets=[kept], ring_events=10, begun=False)
    for _ in range(15):
        sink.take(TP, made("REPLICA_SAMPLE"))
    for _ in range(15):
        sink.take(TP, made("LEADER_CHANGE", new_leader=None))
    kept.gate.set()
    sink.begin("c", 1)
    sink.close()

    types = [row["event_type"] for row in kept.rows]
    assert (types.count("REPLICA_SAMPLE"), types.count("LEADER_CHANGE"), sink.counters().dropped_total) == (10, 15, 5)
    (gap,) = [row for row in kept.rows if row["event_type"] == "EXPORT_GAP"]
    missing = set(range(1, kept.rows[-1]["seq"] + 1)) - {row["seq"] for row in kept.rows}
    assert missing == set(range(gap["dropped_first_seq"], gap["dropped_last_seq"] + 1))
    assert gap["dropped_by_type"] == {"REPLICA_SAMPLE": 5}


def test_a_loss_is_counted_and_its_beginning_and_end_are_said_once_each() -> None:
    """When events begin to find no room, and how many found none once there is room again; only those are lost."""
    said: list[str] = []
    sink = EventSink(None, {"node_id": 7}, outlets=[Kept()], ring_events=10, begun=False, said=said.append)
    for _ in range(15):
        sink.take(TP, made("REPLICA_SAMPLE"))
    behind, counters = list(said), sink.counters()
    sink.begin("c", 1)
    sink.close()

    assert (counters.events_total, counters.dropped_total, counters.waiting_events) == (10, 5, 10)
    assert behind == ["state events are dropped: 10 wait for the writer, which is behind"]
    assert said[1:] == ["state events have room again: 5 were dropped, 5 so far"]


def test_even_transitions_are_bounded() -> None:
    """A writer that never returns cannot exhaust the process's memory."""
    sink = EventSink(None, {"node_id": 7}, ring_events=10, begun=False)
    for _ in range(100):
        sink.take(TP, made("LEADER_CHANGE"))

    assert (sink.counters().waiting_events, sink.counters().dropped_total) == (40, 60)


def test_taking_does_not_wait_for_a_stuck_writer() -> None:
    """While the outlet hangs, events are still accepted."""
    kept = Kept(open_=False)
    sink = EventSink(None, {"node_id": 7}, outlets=[kept])
    for _ in range(1000):
        sink.take(TP, made("LEADER_CHANGE"))

    assert kept.rows == []
    kept.gate.set()
    sink.close()
    assert [row["event_type"] for row in kept.rows].count("LEADER_CHANGE") == 1000


def test_what_an_outlet_lost_is_reported(tmp_path: Path) -> None:
    """Rows that a destination never accepted become a gap with their range and types."""
    kept = Kept()
    kept.lost = [Lost(first_seq=3, last_seq=8, by_type={"HW_ADVANCE": 4})]
    sink = EventSink(None, {"node_id": 7}, outlets=[kept], wall_ms=lambda: 1)
    sink.close()

    (gap,) = [row for row in kept.rows if row["event_type"] == "EXPORT_GAP"]
    assert (gap["dropped_first_seq"], gap["dropped_last_seq"], gap["dropped_by_type"]) == (3, 8, {"HW_ADVANCE": 4})


def test_the_local_record_is_two_files_at_most(tmp_path: Path) -> None:
    """A full file is kept once under another name."""
    sink = EventSink(tmp_path, {}, max_file_bytes=10, wall_ms=lambda: 1)
    for _ in range(3):
        sink.take(None, made("CONFIG_CHANGE"))
    sink.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]


def test_a_local_file_may_be_as_large_as_its_limit(tmp_path: Path) -> None:
    """Only what goes beyond the limit begins another file."""

    def sizes_with(limit: int) -> dict[str, int]:
        folder = tmp_path / str(limit)
        folder.mkdir()
        sink = EventSink(folder, {}, max_file_bytes=limit, wall_ms=lambda: 1)
        sink.take(None, made("CONFIG_CHANGE"))
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        sink.close()
        return sizes

    size = sizes_with(1)["events.jsonl.1"]

    assert sizes_with(size) == {"events.jsonl": size}
    assert sizes_with(size - 1) == {"events.jsonl": 0, "events.jsonl.1": size}


def test_the_local_record_holds_no_samples(tmp_path: Path) -> None:
    """The local record has no samples, because they would displace the transitions."""
    sink = EventSink(tmp_path, {}, wall_ms=lambda: 1)
    sink.take(TP, made("HW_ADVANCE", new_hw=4))
    sink.take(TP, made("EPOCH_START"))
    sink.close()

    assert [line["event_type"] for line in _lines(tmp_path / "events.jsonl")] == ["EPOCH_START", "EXPORT_HEARTBEAT"]


def test_a_directory_that_cannot_be_written_stops_the_record_only(tmp_path: Path) -> None:
    """Events are accepted and the sink closes normally."""
    sink = EventSink(tmp_path / "nosuch", {})
    sink.take(None, made("CONFIG_CHANGE"))
    sink.close()

    assert not (tmp_path / "nosuch").exists()


def test_what_waits_is_written_before_files_are_tended() -> None:
    """A file that is due, or retried, leaves with all that had been taken before the writer looked."""
    calls: list[str] = []
    tended = threading.Event()

    class Noting(Kept):
        def write(self, run: Run) -> None:
            calls.append("write")

        def tend(self, mono_us: int) -> list[Lost]:
            calls.append("tend")
            tended.set()
            return []

    sink = EventSink(None, {"node_id": 7}, outlets=[Noting()], begun=False)
    sink.take(None, made("CONFIG_CHANGE"))
    sink.begin("c", 1)
    assert tended.wait(10)
    sink.close()

    assert calls[:2] == ["write", "tend"]


def test_a_flood_does_not_keep_the_writer_from_its_duties() -> None:
    """While events arrive faster than they are written, files still roll and retries happen."""

    class Flooding(Kept):
        tended = 0

        def write(self, run: Run) -> None:
            for _ in run.events:
                sink.take(None, made("CONFIG_CHANGE"))

        def tend(self, mono_us: int) -> list[Lost]:
            self.tended += 1
            done.set()
            return []

    done = threading.Event()
    sink = EventSink(None, {"node_id": 7}, outlets=[Flooding()], begun=False)
    sink.take(None, made("CONFIG_CHANGE"))
    sink.begin("c", 1)

    assert done.wait(10)
    sink.close()


@pytest.mark.parametrize(("event_type", "count"), [("LEADER_CHANGE", 1), ("REPLICA_SAMPLE", 1_000)])
def test_a_transition_and_a_crowd_do_not_wait_for_the_next_round(
    monkeypatch: pytest.MonkeyPatch, event_type: str, count: int
) -> None:
    """With rounds an hour apart, transitions are still written, and so are samples when there are many."""

    class Heard(Kept):
        heard = threading.Event()

        def write(self, run: Run) -> None:
            super().write(run)
            if [row["event_type"] for row in self.rows].count(event_type) == count:
                self.heard.set()

    monkeypatch.setattr("strandline.export.sink.WRITE_EVERY_S", 3600.0)
    outlet = Heard()
    outlet.heard.clear()
    sink = EventSink(None, {"node_id": 7}, outlets=[outlet])
    for _ in range(count):
        sink.take(TP, made(event_type))

    assert outlet.heard.wait(10)
    sink.close()


# What a metrics endpoint reads of an export is correct while it works, while it is stuck, and afterwards.


PAGE = Path(__file__).parents[2] / "docs" / "METRICS.md"


class Clock:
    """Time of day and monotonic time, both as the test sets them."""

    at_us = 0

    def __call__(self) -> tuple[int, int]:
        return self.at_us, self.at_us


def _sink(place: Path, clock: Clock, *, begun: bool = True) -> EventSink:
    outlet = FileExport(LocalDirectory(place), ExportFormat.JSONL, FileLimits())
    common = {"node_id": 1, "cluster_id": CLUSTER, "incarnation": 1}
    return EventSink(None, common, outlets=[outlet], clocks=clock, ring_events=2, begun=begun)


def test_the_lag_is_the_age_of_the_oldest_event_that_is_in_no_file(tmp_path: Path) -> None:
    """The lag grows while an event waits for the writer or in a growing file, and is gone when the file is placed."""
    clock = Clock()
    sink = _sink(tmp_path, clock, begun=False)
    sink.take(TP, made("EPOCH_START"))
    clock.at_us = 2_000_000
    waiting = sink.counters()
    sink.begin(CLUSTER, 1)
    sink.take(TP, made("EPOCH_START"))
    clock.at_us = 5_000_000
    growing = sink.counters()
    sink.close()

    assert (waiting.lag_seconds, waiting.waiting_events) == (2.0, 1)
    assert (growing.lag_seconds, growing.waiting_events, growing.rows_total) == (5.0, 0, 0)
    assert (sink.counters().lag_seconds, sink.counters().rows_total, sink.counters().files_total) == (0.0, 3, 1)


def test_a_name_is_kept_for_the_last_events_of_a_topic_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is gone has its name in its last events; with many that are gone, names are forgotten."""
    monkeypatch.setattr("strandline.export.sink.NAMES_KEPT", 2)
    names, kept = {"a": "A", "b": "B", "c": "C"}, Kept()
    sink = EventSink(
        None, {"node_id": 7}, outlets=[kept], wall_ms=lambda: 0, topic_name=lambda one: names.pop(one, None)
    )
    for topic_id in "abacab":
        sink.take(TopicPartition(topic_id, 0), made("LEADER_CHANGE"))

    assert [row.get("topic") for row in kept.rows] == ["A", "B", "A", "C", "A", None]


def test_every_figure_has_a_name_that_is_written_down() -> None:
    """METRICS.md lists the metrics, each by its whole name."""
    page = PAGE.read_text()
    nothing = ExportCounters(**dict.fromkeys(ExportCounters.__dataclass_fields__, 0))

    assert [name for name in nothing.metrics() if f"- `{name}`:" not in page] == []


def test_a_sink_begins_once(tmp_path: Path) -> None:
    """A registration that is repeated changes no emitter, and starts no second writer."""
    sink = EventSink(tmp_path, {"node_id": 7}, begun=False, wall_ms=lambda: 42)
    sink.take(TP, made("ISR_CHANGE", new_isr=[1]))
    sink.begin("c", 5)
    sink.begin("c", 6)
    sink.take(TP, made("ISR_CHANGE", new_isr=[2]))
    sink.close()
    lines = [line for line in _lines(tmp_path / "events.jsonl") if line["event_type"] == "ISR_CHANGE"]

    assert [(line["incarnation"], line["seq"]) for line in lines] == [(5, 1), (5, 2)]
