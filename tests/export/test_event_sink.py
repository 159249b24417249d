"""State events reach their file, are bounded, and are never in anybody's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strandline.core.types import TopicPartition
from strandline.export.sink import EventSink

TP = TopicPartition("id", 3)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_one_json_line_with_what_all_share(tmp_path: Path) -> None:
    """Time, type, node, partition and the event's own fields."""
    sink = EventSink(tmp_path, {"node_id": 7}, wall_ms=lambda: 42)
    sink.take("ISR_CHANGE", TP, {"new_isr": [1, 2]})
    sink.close()

    assert _lines(tmp_path / "events.jsonl") == [
        {"time_ms": 42, "event": "ISR_CHANGE", "node_id": 7, "topic_id": "id", "partition": 3, "new_isr": [1, 2]}
    ]


def test_events_without_room_are_counted_not_waited_for(tmp_path: Path) -> None:
    """A full ring drops, and the loss itself is written."""
    sink = EventSink(tmp_path, {}, ring_events=0)
    sink.take("A", None, {})
    sink.take("B", None, {})
    sink.close()

    assert [(line["event"], line["count"]) for line in _lines(tmp_path / "events.jsonl")] == [("EVENTS_DROPPED", 2)]


def test_a_full_file_is_kept_once_and_begun_anew(tmp_path: Path) -> None:
    """The directory never holds more than two files of events."""
    sink = EventSink(tmp_path, {}, max_file_bytes=10)
    sink.take("A", None, {})
    sink.close()

    assert _lines(tmp_path / "events.jsonl.1")[0]["event"] == "A"
    assert (tmp_path / "events.jsonl").read_text() == ""


def test_a_directory_that_cannot_be_written_stops_reports_only(tmp_path: Path) -> None:
    """The caller goes on; events are dropped and counted."""
    sink = EventSink(tmp_path / "nosuch", {})
    sink.close()
    sink.take("A", None, {})

    assert sink.dropped == 1
