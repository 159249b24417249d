"""The state of each partition: who leads, which replicas are in sync, how far each is, and how bad it is.

Pure: a `Picture` in, rows out. Invariant: only what the present leader said in the present leader epoch counts as its
measurement, so that a deposed leader's figures are never shown as the partition's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from strandline.console.picture import LedPartition, NodeLook, Picture, RemoteReplica
from strandline.core.messages import NodeImage, PartitionImage
from strandline.core.types import NodeId, Offset, TopicPartition

SILENT_AFTER_MS = 2_000
"""A node that has not answered for this long is shown as silent: two looks failed."""


class ReplicaStanding(StrEnum):
    """The state of a replica in its partition; the words appear on the page next to the colours."""

    LEADER = "leader"
    MEMBER = "in sync"
    JOINING = "joining"
    """Not in the ISR, but its node is alive and answers: it is catching up."""
    SILENT = "silent"
    """Not in the ISR, its node is not fenced but does not answer the console."""
    DOWN = "down"
    """Not in the ISR, its node is fenced."""
    FAILED = "failed"
    """Its node gave it up until the next leader epoch, and reports the reason."""
    OBSERVER = "observer"

    @property
    def css(self) -> str:
        """The state as a class of the style sheet."""
        return self.name.lower()


IN_WORDS = {
    ReplicaStanding.LEADER: "takes the writes; the ♛ marks it",
    ReplicaStanding.MEMBER: "member of the ISR",
    ReplicaStanding.JOINING: "out of the ISR, its node lives: it catches up",
    ReplicaStanding.SILENT: "out of the ISR, its node does not answer",
    ReplicaStanding.DOWN: "out of the ISR, its node is fenced",
    ReplicaStanding.FAILED: "given up by its own node until the next leader epoch",
}
"""The texts of the legend."""


class Rank(IntEnum):
    """How bad a partition is; the worst first."""

    OFFLINE = 0
    UNDER_MIN_ISR = 1
    RECOVERING = 2
    AT_MIN_ISR = 3
    OUT_OF_SYNC = 4
    NOT_PREFERRED = 5
    WELL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One replica: as its leader sees it (``leo``, ``lag_...``) and as it sees itself (``own_...``)."""

    node_id: NodeId
    state: ReplicaStanding
    in_isr: bool
    leo: Offset | None
    own_leo: Offset | None
    own_hw: Offset | None
    lag_records: int | None
    lag_bytes: int | None
    behind_ms: int | None
    """Time since it was last caught up with its leader, in ms."""
    last_fetch_age_ms: int | None
    reason: str = ""
    is_adding: bool = False
    """Whether a move that has not ended is adding it."""

    @property
    def is_out(self) -> bool:
        """Whether it is missed in the ISR: not an observer, nor what a move is adding."""
        return not self.in_isr and self.state is not ReplicaStanding.OBSERVER and not self.is_adding


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition as it is shown everywhere."""

    topic: str
    tp: TopicPartition
    leader: NodeId | None
    preferred: NodeId
    leader_epoch: int
    partition_epoch: int
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    min_isr: int
    rank: Rank
    chips: tuple[Chip, ...]
    log_start: Offset | None
    hw: Offset | None
    lso: Offset | None
    open_producer_id: int | None
    """The producer whose transaction has been open longest."""
    leo: Offset | None
    size_bytes: int | None
    age_ms: int | None
    """Age of the leader's measurement in ms; None: the present leader has reported none."""

    @property
    def name(self) -> str:
        """`topic-index`."""
        return f"{self.topic}-{self.tp.partition}"

    @property
    def index(self) -> int:
        """The partition's number."""
        return self.tp.partition

    @property
    def out(self) -> tuple[Chip, ...]:
        """Replicas minus ISR."""
        return tuple(chip for chip in self.chips if chip.is_out)

    @property
    def is_at_min(self) -> bool:
        """Whether the ISR has exactly min ISR members (Kafka's AtMinIsr)."""
        return len(self.isr) == self.min_isr

    @property
    def is_preferred(self) -> bool:
        """Whether the preferred replica leads."""
        return self.leader == self.preferred

    @property
    def lag(self) -> int:
        """The largest known lag of a replica, in records."""
        return max((chip.lag_records or 0 for chip in self.chips), default=0)


def partition_rows(picture: Picture) -> tuple[PartitionRow, ...]:
    """Every partition, by name and number."""
    nodes = {node.node_id: node for node in picture.nodes}
    return tuple(
        _row(topic.name, partition, nodes, picture)
        for topic in sorted(picture.topics, key=lambda topic: topic.name)
        for partition in topic.partitions
    )


def is_silent(look: NodeLook | None, now_ms: int) -> bool:
    """Whether a node has failed to answer the console for a while."""
    return look is not None and look.failing_since_ms is not None and now_ms - look.failing_since_ms >= SILENT_AFTER_MS


def _row(topic: str, image: PartitionImage, nodes: Mapping[NodeId, NodeImage], picture: Picture) -> PartitionRow:
    look = picture.looks.get(image.leader) if image.leader is not None else None
    led = look.led.get(image.tp) if look is not None else None
    if led is not None and led.leader_epoch != image.leader_epoch:
        led = None
    chips = tuple(_chips(image, led, nodes, picture))
    answered = look.answered_ms if look is not None and led is not None else None
    return PartitionRow(
        topic=topic,
        tp=image.tp,
        leader=image.leader,
        preferred=image.settled_replicas[0],
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
        isr=image.isr,
        elr=image.elr,
        min_isr=image.min_isr,
        rank=rank_of(image),
        chips=chips,
        log_start=led.log_start if led else None,
        hw=led.hw if led else None,
        lso=led.lso if led else None,
        open_producer_id=led.open_producer_id if led else None,
        leo=led.leo if led else None,
        size_bytes=led.size_bytes if led else None,
        age_ms=None if answered is None else max(0, picture.now_ms - answered),
    )


def rank_of(image: PartitionImage) -> Rank:
    """How bad the controller's state of a partition is."""
    short = len(image.isr) < len(image.settled_replicas)
    if image.leader is None:
        return Rank.OFFLINE
    if len(image.isr) < image.min_isr:
        return Rank.UNDER_MIN_ISR
    if image.recovering:
        return Rank.RECOVERING
    if short:
        return Rank.AT_MIN_ISR if len(image.isr) == image.min_isr else Rank.OUT_OF_SYNC
    return Rank.WELL if image.leader == image.settled_replicas[0] else Rank.NOT_PREFERRED


def _chips(
    image: PartitionImage, led: LedPartition | None, nodes: Mapping[NodeId, NodeImage], picture: Picture
) -> Iterator[Chip]:
    remote = {replica.node_id: replica for replica in led.replicas} if led else {}
    for node_id in (*image.replicas, *image.observers):
        yield _chip(node_id, image, remote.get(node_id), nodes.get(node_id), picture)


def _chip(
    node_id: NodeId, image: PartitionImage, remote: RemoteReplica | None, node: NodeImage | None, picture: Picture
) -> Chip:
    look = picture.looks.get(node_id)
    is_fenced = node is None or node.fenced
    held = look.held.get(image.tp) if look is not None and not look.failure and not is_fenced else None
    leads = node_id == image.leader
    failed = held is not None and held.fetch_state == "failed"
    lag = None if remote is None else remote.lag_records
    return Chip(
        node_id=node_id,
        state=ReplicaStanding.FAILED if failed else _state(node_id, image, node, is_silent(look, picture.now_ms)),
        in_isr=node_id in image.isr,
        leo=remote.leo if remote is not None else held.leo if held is not None else None,
        own_leo=held.leo if held is not None else None,
        own_hw=held.hw if held is not None else None,
        lag_records=0 if leads and lag is None and remote is not None else lag,
        lag_bytes=remote.lag_bytes if remote is not None else None,
        behind_ms=remote.last_caught_up_age_ms if remote is not None else None,
        last_fetch_age_ms=remote.last_fetch_age_ms if remote is not None else None,
        reason=held.reason if held is not None and failed else "",
        is_adding=node_id in image.adding,
    )


def _state(node_id: NodeId, image: PartitionImage, node: NodeImage | None, silent: bool) -> ReplicaStanding:
    if node_id == image.leader:
        return ReplicaStanding.LEADER
    if node_id not in image.replicas:
        return ReplicaStanding.OBSERVER
    fenced = node is None or node.fenced
    if node_id in image.isr and not (fenced and image.leader is None):
        return ReplicaStanding.MEMBER
    if fenced:
        return ReplicaStanding.DOWN
    return ReplicaStanding.SILENT if silent else ReplicaStanding.JOINING


# ---- moves
# Moves of replicas that have not ended: from where to where, how much is copied, and what each waits for.
#
# Invariant: what is copied is what the present leader measured of the replicas that a move adds; before it has measured
# them nothing is known.

MOST_MOVES = 200
"""The most moves that the page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRow:
    """One move. ``before`` and ``target`` are the replicas on both sides, ``adding`` what it still waits for."""

    row: PartitionRow
    is_running: bool
    before: tuple[NodeId, ...]
    target: tuple[NodeId, ...]
    adding: tuple[Chip, ...]
    copied_bytes: int | None
    total_bytes: int | None

    @property
    def percent(self) -> int | None:
        """The percentage that is copied, 100 if there is nothing to copy; None if not known."""
        if self.copied_bytes is None or self.total_bytes is None:
            return None
        return 100 * self.copied_bytes // self.total_bytes if self.total_bytes else 100


def move_rows(picture: Picture, rows: Sequence[PartitionRow]) -> tuple[MoveRow, ...]:
    """Every move, those that run first, then as `rows` are."""
    images = {each.tp: each for topic in picture.topics for each in topic.partitions}
    found = [move for row in rows for move in _moves(row, images[row.tp])]
    return tuple(sorted(found, key=lambda move: not move.is_running))


def _moves(row: PartitionRow, image: PartitionImage) -> Iterator[MoveRow]:
    if image.original:
        copied = _copied(row)
        total = None if row.size_bytes is None else row.size_bytes * len(image.adding)
        waited_for = tuple(chip for chip in row.chips if chip.is_adding and not chip.in_isr)
        yield MoveRow(
            row=row, is_running=True, before=image.original, target=image.target, adding=waited_for,
            copied_bytes=copied, total_bytes=total,
        )  # fmt: skip
    elif image.queued_target:
        yield MoveRow(
            row=row, is_running=False, before=image.replicas, target=image.queued_target, adding=(), copied_bytes=None,
            total_bytes=None,
        )  # fmt: skip


def _copied(row: PartitionRow) -> int | None:
    """Bytes of the leader's log that the added replicas hold; one that has not fetched in this epoch may hold none."""
    size = row.size_bytes
    if size is None:
        return None
    lags = (chip.lag_bytes for chip in row.chips if chip.is_adding)
    return sum(0 if lag is None else max(0, size - lag) for lag in lags)
