"""The way of audit events to the export."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from strandline.core.permissions import Caller, audit_of
from strandline.core.state_events import Audit, StateEvent
from strandline.core.types import TopicPartition
from strandline.export.sink import EventSink
from strandline.runtime.refusals import Audited

X = Caller("client/x", None, "LeaderService/Fetch", "ipv4:10.0.0.7:40112")


class _Kept:
    def __init__(self) -> None:
        self.events: list[Audit] = []
        self.came = asyncio.Event()

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Keep it."""
        assert isinstance(event, Audit)
        self.events.append(event)
        self.came.set()


async def test_refusals_wait_for_the_end_of_their_second_and_changes_for_nothing() -> None:
    """Refusals come as one event, with the times of the first and the last; a change comes at once."""
    kept = _Kept()
    now = iter([5, 9])
    audited = Audited(kept.take, clock=lambda: next(now))
    for outcome in ("REFUSED", "REFUSED", "ALLOWED"):
        audited.tell(audit_of(X, "topic", "t", outcome, None))
    at_once = list(kept.events)
    kept.came.clear()
    task = asyncio.create_task(audited.pass_on_forever())
    await asyncio.wait_for(kept.came.wait(), 30)
    task.cancel()
    (refused,) = kept.events[1:]

    assert [each.outcome for each in at_once] == ["ALLOWED"]
    assert [event for _, event in audited.recent] == kept.events
    assert (refused.n_coalesced, refused.first_ms, refused.last_ms) == (2, 5, 9)


def test_audit_events_that_find_no_room_are_told_as_dropped(tmp_path: Path) -> None:
    """The gap in the export says how many of them there were."""
    sink = EventSink(tmp_path, {"node_id": 1}, ring_events=2, begun=False)
    audited = Audited(sink.take)
    for number in range(10):
        audited.tell(audit_of(X, "topic", f"t{number}", "ALLOWED", None))
    sink.begin("c", 1)
    sink.close()
    rows = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    kept = [row["resource_name"] for row in rows if row["event_type"] == "AUDIT"]
    (gap,) = [row for row in rows if row["event_type"] == "EXPORT_GAP"]

    assert kept == [f"t{number}" for number in range(8)]
    assert gap["dropped_by_type"] == {"AUDIT": 2}
