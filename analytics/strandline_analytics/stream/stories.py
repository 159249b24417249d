"""What the machine needs of an event, and that each event is used once.

An event comes as a story: a JSON object with the columns of `FIELDS` that are not null, and ``digest``, which differs
where any column differs.

Invariant: one identity has one content; a second one is an error of the data, as in the batch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from strandline.export.schema import CONTROLLER_NODE_ID, EVENT_TYPES
from strandline_analytics.silver.events import ConflictingEvents

Story = Mapping[str, Any]
Identity = tuple[int, int, int]

FIELDS = (
    "event_type", "node_id", "incarnation", "seq", "ts_wall_us", "topic", "leader_epoch", "partition_epoch",
    "meta_offset", "new_leader", "old_isr", "new_isr", "min_isr", "replicas", "topic_deleted", "sample_id",
    "interval_ms", "replica_id", "durable_leo", "leader_leo", "hw", "in_maximal_isr", "old_hw", "new_hw", "first_us",
    "last_us",
)  # fmt: skip

CONTROL_TYPES = ("ISR_CHANGE", "LEADER_CHANGE", "CONFIG_CHANGE", "STATE_SNAPSHOT")
UNUSED_TYPES = ("FETCH_STATS", "LOCAL_SAMPLE", "GROUP_OFFSETS")
"""Types that no figure here is made of, and of which there are many."""


def is_control(story: Story) -> bool:
    """Whether the controller reports the partition's state: by a decision, a snapshot, or what is not understood."""
    if story["node_id"] != CONTROLLER_NODE_ID:
        return False
    return story["event_type"] in CONTROL_TYPES or (not is_known(story) and "partition_epoch" in story)


def is_known(story: Story) -> bool:
    """Whether this version has the type of the event."""
    return story["event_type"] in EVENT_TYPES


def identity(story: Story) -> Identity:
    """The emitter, its incarnation, and the number."""
    return (story["node_id"], story["incarnation"], story["seq"])


def distinct(texts: Iterable[str]) -> tuple[dict[Identity, Story], dict[Identity, str], Counter[Identity]]:
    """Each story once, its text, and how many copies of it came.

    Raises:
        ConflictingEvents: an identity has two contents.
    """
    stories: dict[Identity, Story] = {}
    kept: dict[Identity, str] = {}
    copies: Counter[Identity] = Counter()
    for text in texts:
        story = json.loads(text)
        who = identity(story)
        copies[who] += 1
        known = stories.setdefault(who, story)
        kept.setdefault(who, text)
        if known.get("digest") != story.get("digest"):
            raise ConflictingEvents(
                f"event {who[0]}:{who[1]}:{who[2]} is there with two different contents ({story['event_type']}); an "
                "event id names one event. Most likely two clusters, or two runs of a simulation, were written into "
                "one directory: remove the files of one of them, and begin with a new checkpoint."
            )
    return stories, kept, copies
