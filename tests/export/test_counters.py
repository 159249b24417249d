"""What a metrics endpoint reads of an export is correct while it works, while it is stuck, and afterwards."""

from __future__ import annotations

from pathlib import Path

from exported_rows import CLUSTER
from made_events import made

from strandline.core.types import TopicPartition
from strandline.export.counters import ExportCounters
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.sink import EventSink

TP = TopicPartition("t", 0)
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


def test_what_found_no_room_is_counted_and_said(tmp_path: Path) -> None:
    """One line when the outage begins, one when it is over, with the number."""
    said: list[str] = []
    sink = EventSink(None, {"node_id": 1}, ring_events=2, begun=False, clocks=Clock(), said=said.append)
    for _ in range(7):
        sink.take(TP, made("HW_ADVANCE"))
    counters = sink.counters()
    sink.begin(CLUSTER, 1)
    sink.close()

    assert (counters.events_total, counters.dropped_total, counters.waiting_events) == (2, 5, 2)
    assert [line.partition(":")[0] for line in said] == ["state events are dropped", "state events have room again"]
    assert "5 were dropped" in said[1]


def test_every_figure_has_a_name_that_is_written_down() -> None:
    """METRICS.md lists the metrics, each by its whole name."""
    page = PAGE.read_text()
    nothing = ExportCounters(**dict.fromkeys(ExportCounters.__dataclass_fields__, 0))

    assert [name for name in nothing.metrics() if f"| `{name}` |" not in page] == []
