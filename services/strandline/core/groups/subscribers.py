"""A member as an assignor sees it."""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.types import TopicPartition


class Subscriber(NamedTuple):
    """Sorts by what stays over a restart: the instance id if there is one."""

    name: str
    """Instance id, else member id."""
    member_id: str
    rack_id: str | None
    topic_ids: frozenset[str]


Target = dict[str, set[TopicPartition]]
"""Member id to partitions; every subscriber has an entry."""
