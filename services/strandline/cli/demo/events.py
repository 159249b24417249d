"""What the nodes exported while the demo ran: the truncations, read from their own event files.

Invariant: an exported event is counted once, by node, incarnation and sequence number; a line that is cut off
(the node was killed while it wrote) is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENT_FILES = "events.jsonl*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationSeen:
    """A replica cut its log from ``from_leo`` down to ``to_leo``."""

    node_id: int
    partition: int
    from_leo: int
    to_leo: int
    committed_cut: int

    @property
    def records(self) -> int:
        """How many records were cut."""
        return self.from_leo - self.to_leo


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """Every event in the event files below ``directory``, each once."""
    seen: set[tuple[object, ...]] = set()
    for path in sorted(directory.rglob(EVENT_FILES)):
        for event in _events_of(path):
            identity = (event.get("node_id"), event.get("incarnation"), event.get("seq"))
            if None not in identity:
                if identity in seen:
                    continue
                seen.add(identity)
            yield event


def _events_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as source:
        for line in source:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def truncations(directory: Path, topic_id: str) -> list[TruncationSeen]:
    """The truncations of one topic's partitions, in order of their files."""
    return [
        TruncationSeen(
            node_id=int(event.get("node_id", 0)),
            partition=int(event["partition"]),
            from_leo=int(event["from_leo"]),
            to_leo=int(event["to_leo"]),
            committed_cut=int(event.get("committed_cut") or 0),
        )
        for event in read_events(directory)
        if event.get("event_type") == "TRUNCATION" and event.get("topic_id") == topic_id
    ]
