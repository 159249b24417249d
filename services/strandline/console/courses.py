"""Keeps the recent past for the lanes: the newest samples of a bounded number of partitions.

Invariant: memory is bounded by ``most_partitions`` times ``most_samples``; the partitions that were looked at or in
trouble last stay, the others are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strandline.console.overview import Chip, PartitionRow, Rank, ReplicaStanding
from strandline.console.picture import Picture
from strandline.core.control.state import changes_between
from strandline.core.messages import MetadataImage, PartitionImage
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.units import age_text, number_text


class ReplicaPoint(NamedTuple):
    """One replica at one moment."""

    leo: Offset | None
    hw: Offset | None
    state: ReplicaStanding


class Sample(NamedTuple):
    """One look at one partition, at ``at_ms`` (monotonic); ``leo`` and ``hw`` are the leader's."""

    at_ms: int
    leader_epoch: int
    leo: Offset | None
    hw: Offset | None
    replicas: Mapping[NodeId, ReplicaPoint]


class Courses:
    """The newest samples of the partitions that a page shows."""

    def __init__(self, *, most_partitions: int, most_samples: int) -> None:
        self._most_partitions = most_partitions
        self._most_samples = most_samples
        self._kept: OrderedDict[TopicPartition, deque[Sample]] = OrderedDict()

    def follow(self, tp: TopicPartition) -> None:
        """Keep this partition's samples from now on; the partition that was followed longest ago is dropped for it."""
        if tp not in self._kept:
            self._kept[tp] = deque(maxlen=self._most_samples)
        self._kept.move_to_end(tp)
        while len(self._kept) > self._most_partitions:
            self._kept.popitem(last=False)

    def take(self, rows: Iterable[PartitionRow], now_ms: int) -> None:
        """Note a look: of every followed partition, of those in trouble, and of others while there is room."""
        for row in rows:
            if row.tp not in self._kept:
                if row.rank >= Rank.NOT_PREFERRED and len(self._kept) >= self._most_partitions:
                    continue
                self.follow(row.tp)
            self._kept[row.tp].append(_sample(row, now_ms))

    def of(self, tp: TopicPartition) -> tuple[Sample, ...]:
        """The samples kept of a partition, the oldest first."""
        return tuple(self._kept.get(tp, ()))


def _point(chip: Chip) -> ReplicaPoint:
    """The position that the replica reports; if it does not answer, the one its leader last knew, without HW."""
    return ReplicaPoint(chip.leo if chip.own_leo is None else chip.own_leo, chip.own_hw, chip.state)


def _sample(row: PartitionRow, now_ms: int) -> Sample:
    return Sample(
        at_ms=now_ms,
        leader_epoch=row.leader_epoch,
        leo=row.leo,
        hw=row.hw,
        replicas={chip.node_id: _point(chip) for chip in row.chips},
    )


# ---- transitions
# Finds transitions by comparing the states that the controller sent before and after.
#
# The public API returns states, not causes. So a transition here comes with what was *seen* then, for instance that the
# removed replica's last fetch was old; the cause itself is in the analytics report.
#
# Invariant: memory is bounded; epochs that were skipped between two states are shown as not seen, never invented.


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change. ``kind``: leader, shrink, expand, move, fence, unfence, remove, topic. ``tp`` is None for nodes."""

    at_wall_ms: int
    kind: str
    sentence: str
    seen: str = ""
    topic: str = ""
    tp: TopicPartition | None = None
    node_id: NodeId | None = None


class Transitions:
    """The newest transitions since the console started to watch."""

    def __init__(self, most: int) -> None:
        self._kept: deque[Transition] = deque(maxlen=most)

    def add(self, found: Iterable[Transition]) -> None:
        """Add transitions, and drop the oldest beyond the bound."""
        self._kept.extend(found)

    def newest(self, most: int, tp: TopicPartition | None = None) -> list[Transition]:
        """The transitions, the newest first; only those of one partition if ``tp`` is given."""
        found: list[Transition] = []
        for transition in reversed(self._kept):
            if len(found) == most:
                break
            if tp is None or transition.tp == tp:
                found.append(transition)
        return found


def transitions_between(before: Picture, after: MetadataImage, wall_ms: int) -> Iterator[Transition]:
    """The transitions from a picture to the next state of the controller; none for the first state."""
    known = before.image
    if known is None or known is after:
        return
    yield from _of_nodes(known, after, wall_ms)
    topics = {topic.topic_id: topic for topic in known.topics}
    for topic in after.topics:
        old = topics.pop(topic.topic_id, None)
        if old is topic:
            continue
        if old is None:
            said = f"topic {topic.name} created with {len(topic.partitions)} partitions"
            yield Transition(at_wall_ms=wall_ms, kind="topic", sentence=said, topic=topic.name)
            continue
        for was, now in zip(old.partitions, topic.partitions, strict=False):
            if was is not now and was != now:
                yield from _of_partition(topic.name, was, now, before, wall_ms)
    for gone in topics.values():
        yield Transition(at_wall_ms=wall_ms, kind="topic", sentence=f"topic {gone.name} deleted", topic=gone.name)


def _of_nodes(known: MetadataImage, after: MetadataImage, wall_ms: int) -> Iterator[Transition]:
    nodes = {node.node_id: node for node in known.nodes}
    for node in after.nodes:
        was = nodes.get(node.node_id)
        if was is None:
            said, kind = f"node {node.node_id} registered", "unfence"
        elif node.fenced != was.fenced:
            said = f"node {node.node_id} {'fenced' if node.fenced else 'unfenced'}"
            kind = "fence" if node.fenced else "unfence"
        elif node.node_epoch != was.node_epoch:
            said, kind = f"node {node.node_id} registered again, node epoch {node.node_epoch}", "unfence"
        else:
            continue
        yield Transition(at_wall_ms=wall_ms, kind=kind, sentence=said, node_id=node.node_id)
    for node_id in sorted(nodes.keys() - {node.node_id for node in after.nodes}):
        yield Transition(at_wall_ms=wall_ms, kind="remove", sentence=f"node {node_id} removed", node_id=node_id)


def _of_partition(
    topic: str, was: PartitionImage, now: PartitionImage, before: Picture, wall_ms: int
) -> Iterator[Transition]:
    skipped = changes_between(was.partition_epoch, now.partition_epoch) - 1
    unseen = f"; {skipped} states in between were not seen" if skipped > 0 else ""
    if now.leader_epoch != was.leader_epoch or now.leader != was.leader:
        said = f"{_leader_text(was.leader)} → {_leader_text(now.leader)}, leader epoch {now.leader_epoch}{unseen}"
        yield Transition(at_wall_ms=wall_ms, kind="leader", sentence=said, topic=topic, tp=now.tp)
    if bool(was.original) != bool(now.original):
        yield Transition(at_wall_ms=wall_ms, kind="move", sentence=_move_text(was, now), topic=topic, tp=now.tp)
    # Nodes that are no longer replicas are left out: the move is the reason.
    gone = [node_id for node_id in was.isr if node_id not in now.isr and node_id in now.replicas]
    come = [node_id for node_id in now.isr if node_id not in was.isr]
    if {*was.isr} != {*now.isr}:
        kind = "shrink" if gone else "expand" if come else "move"
        said = f"ISR {_ids(was.isr)} → {_ids(now.isr)}, partition epoch {now.partition_epoch}{unseen}"
        seen = "; ".join(_seen_of(node_id, was, before) for node_id in gone)
        yield Transition(at_wall_ms=wall_ms, kind=kind, sentence=said, seen=seen, topic=topic, tp=now.tp)


def _move_text(was: PartitionImage, now: PartitionImage) -> str:
    image = now if now.original else was
    ended = "completed" if {*now.replicas} == {*was.target} else "cancelled"
    return f"move {_ids(image.original)} → {_ids(image.target)} {'started' if now.original else ended}"


def _leader_text(leader: NodeId | None) -> str:
    return "no leader" if leader is None else f"node {leader} leads"


def _ids(node_ids: Sequence[NodeId]) -> str:
    return "{" + ", ".join(str(node_id) for node_id in sorted(node_ids)) + "}"


def _seen_of(node_id: NodeId, was: PartitionImage, before: Picture) -> str:
    """What was seen of a replica just before it left the ISR."""
    if node_id == was.leader:
        return f"node {node_id} led until then"
    look = before.looks.get(was.leader) if was.leader is not None else None
    led = look.led.get(was.tp) if look is not None else None
    remote = next((each for each in led.replicas if each.node_id == node_id), None) if led else None
    silent = before.looks.get(node_id)
    said = []
    if silent is not None and silent.failing_since_ms is not None:
        said.append(f"it had not answered the console for {age_text(before.now_ms - silent.failing_since_ms)}")
    if look is not None and look.answered_ms is not None and remote is not None:
        since = before.now_ms - look.answered_ms
        if not remote.lag_records:
            # A fetch of an idle partition is parked for long, so its age would say nothing.
            said.append("it held every record" if remote.lag_records == 0 else "it had not fetched in this epoch")
        else:
            said.append(f"it was {number_text(remote.lag_records)} records behind")
            if remote.last_fetch_age_ms is not None:
                said.append(f"its last fetch was {age_text(remote.last_fetch_age_ms + since)} old")
    return f"node {node_id}: {', '.join(said)}" if said else f"node {node_id}: nothing measured before"
