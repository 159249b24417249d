"""One group as commands show it: what its coordinator says of it, what it has committed, and the span of its logs.

Invariant: a partition that does not exist any more has no end; nothing is guessed for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from strandline.client import EARLIEST, LATEST, Admin, DescribedGroup, TopicPartition
from strandline.client.consume.lag import records_behind

Named = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """One group: its coordinator's description, its committed offsets, and log starts and ends (HW) of the partitions
    named."""

    described: DescribedGroup
    committed: Mapping[Named, int]
    ends: Mapping[Named, int]
    starts: Mapping[Named, int] = field(default_factory=dict)
    ages_s: Mapping[Named, float] = field(default_factory=dict)
    """How old the first record that was not consumed is, where there is one and it was asked for."""

    def lag(self, named: Named) -> int | None:
        """Records that are left between the committed offset and the end; None without either."""
        return records_behind(self.committed.get(named), self.ends.get(named), self.starts.get(named))


async def see(admin: Admin, group_id: str, *, with_ages: bool = False) -> SeenGroup:
    """Everything about one group.

    Raises:
        Refused: there is no such group, or its coordinator did not answer in time.
    """
    (described,) = await admin.describe_groups([group_id])
    # What the coordinator holds now: a person looks also while it cannot commit.
    offsets = await admin.list_group_offsets(group_id, require_stable=False)
    committed: dict[Named, int] = {tp: one.offset for tp, one in offsets.items() if one is not None}
    assigned = {tp for member in described.members for tp in member.assignment}
    ends = await offsets_at(admin, {*committed, *assigned}, LATEST)
    starts = await offsets_at(admin, committed, EARLIEST)
    ages_s = await _ages_s(admin, committed, ends) if with_ages else {}
    return SeenGroup(described=described, committed=committed, ends=ends, starts=starts, ages_s=ages_s)


async def offsets_at(admin: Admin, named: Iterable[Named], timestamp_ms: int) -> dict[Named, int]:
    """LATEST (the HW), EARLIEST, or the first offset at or after a time, of the partitions that exist and have one.

    Raises:
        Refused: a leader's last refusal at the deadline.
    """
    counts = {topic.name: len(topic.partitions) for topic in (await admin.metadata()).topics}
    asked: dict[str, list[int]] = {}
    for topic, index in sorted(named):
        if index < counts.get(topic, 0):
            asked.setdefault(topic, []).append(index)
    answers = await asyncio.gather(
        *(admin.list_offsets(topic, indexes, timestamp_ms=timestamp_ms) for topic, indexes in asked.items())
    )
    return {
        TopicPartition(topic, index): one.offset
        for topic, found in zip(asked, answers, strict=True)
        for index, one in found.items()
        if one.offset is not None
    }


async def _ages_s(admin: Admin, committed: Mapping[Named, int], ends: Mapping[Named, int]) -> dict[Named, float]:
    behind = {named: offset for named, offset in committed.items() if named in ends and offset < ends[named]}
    times = await admin.record_times(behind)
    now_ms = time.time() * 1_000
    return {named: round(max(0.0, (now_ms - time_ms) / 1_000), 1) for named, time_ms in times.items()}
