"""Groups as the pages show them: how far each is behind, who reads what, who is late.

Pure: a `Picture` and its partitions in, rows out. Invariant: a lag is a high watermark that was measured minus an
offset that is committed; where one of them is not known there is no lag, and it is never shown as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from strandline.client import DescribedMember, TopicPartition
from strandline.client.consume.lag import records_behind
from strandline.console.overview import PartitionRow
from strandline.console.picture import HeldGroup, Picture
from strandline.core.types import NodeId

MOST_ROWS = 200
"""Rows of one table of groups, members or partitions; the most urgent are first."""

_TONES = {"Stable": "good", "Empty": "quiet"}


class GroupPartition(NamedTuple):
    """One partition that a group reads, or has an offset in."""

    topic: str
    partition: int
    committed: int | None
    hw: int | None
    lag: int | None
    readers: tuple[str, ...]
    """Members that have it; several would be a defect, and are shown."""
    is_revoking: bool
    """Whether its reader was asked to give it up."""
    has_page: bool


class MemberRow(NamedTuple):
    """One member."""

    member: DescribedMember
    heartbeat_age_ms: int | None
    is_late: bool
    """Half of its session is over without a heartbeat."""
    lag: int
    """Of what it has, as far as known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group."""

    held: HeldGroup
    coordinator: NodeId
    tone: str
    partitions: tuple[GroupPartition, ...]
    members: tuple[MemberRow, ...]
    age_ms: int | None
    failure: str

    @property
    def name(self) -> str:
        """Its id."""
        return self.held.described.group_id

    @property
    def lag(self) -> int | None:
        """The known lags together; None: none is known."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None

    @property
    def unmeasured(self) -> int:
        """Partitions whose lag is not known."""
        return sum(one.lag is None for one in self.partitions)

    @property
    def revoking(self) -> int:
        """Partitions that members were asked to give up."""
        return sum(len(row.member.revoking) for row in self.members)


def group_rows(picture: Picture, rows: Iterable[PartitionRow]) -> tuple[GroupRow, ...]:
    """Every group: those that are not settled first, then by lag."""
    ends = {TopicPartition(row.topic, row.index): row for row in rows}
    newest: dict[str, tuple[NodeId, HeldGroup]] = {}
    for node_id, look in sorted(picture.groups.items()):
        for held in look.groups:
            known = newest.get(held.described.group_id)
            # A deposed coordinator may not have heard of it yet.
            if known is None or _since(picture, known[0]) <= _since(picture, node_id):
                newest[held.described.group_id] = (node_id, held)
    found = [_row(picture, node_id, held, ends) for node_id, held in newest.values()]
    return tuple(sorted(found, key=lambda row: (row.tone in ("good", "quiet"), -(row.lag or 0), row.name)))


def _since(picture: Picture, node_id: NodeId) -> int:
    return picture.groups[node_id].answered_ms or 0


def _row(picture: Picture, node_id: NodeId, held: HeldGroup, ends: Mapping[TopicPartition, PartitionRow]) -> GroupRow:
    look = picture.groups[node_id]
    age_ms = None if look.answered_ms is None else max(0, picture.now_ms - look.answered_ms)
    partitions = tuple(sorted(_partitions(held, ends), key=lambda one: (-(one.lag or 0), one.topic, one.partition)))
    lags = {(one.topic, one.partition): one.lag or 0 for one in partitions}
    members = [_member(member, age_ms or 0, lags) for member in held.described.members]
    members.sort(key=lambda row: (not row.member.revoking, not row.is_late, -row.lag, row.member.member_id))
    return GroupRow(
        held=held,
        coordinator=node_id,
        tone=_TONES.get(held.described.state, "warn"),
        partitions=partitions,
        members=tuple(members),
        age_ms=age_ms,
        failure=look.failure,
    )


def _partitions(held: HeldGroup, ends: Mapping[TopicPartition, PartitionRow]) -> Iterable[GroupPartition]:
    committed = held.committed or {}
    readers: dict[TopicPartition, list[str]] = {}
    revoking: set[TopicPartition] = set()
    for member in held.described.members:
        revoking.update(member.revoking)
        for tp in {*member.assignment, *member.revoking}:
            readers.setdefault(tp, []).append(member.member_id)
    for tp in {*committed, *readers}:
        end, offset = ends.get(tp), committed.get(tp)
        hw = end.hw if end is not None else None
        yield GroupPartition(
            topic=tp.topic,
            partition=tp.partition,
            committed=offset,
            hw=hw,
            lag=records_behind(offset, hw, end.log_start if end is not None else None),
            readers=tuple(readers.get(tp, ())),
            is_revoking=tp in revoking,
            has_page=end is not None,
        )


def _member(member: DescribedMember, age_ms: int, lags: Mapping[tuple[str, int], int]) -> MemberRow:
    beat_ms = member.last_heartbeat_age_ms
    heard_ms = None if beat_ms is None else beat_ms + age_ms
    return MemberRow(
        member=member,
        heartbeat_age_ms=heard_ms,
        is_late=heard_ms is not None and 2 * heard_ms > member.session_timeout_ms,
        lag=sum(lags.get(tp, 0) for tp in {*member.assignment, *member.revoking}),
    )
