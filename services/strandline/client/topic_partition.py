"""How a user names a partition: by its topic's name. Inside, partitions go by their topic's id."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of a topic; where one is taken, a plain tuple of name and index does as well."""

    topic: str
    partition: int
