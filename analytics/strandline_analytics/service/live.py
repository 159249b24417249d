"""What the newest events say of each partition, without Spark and without history.

Decisions of the controller are ordered by (partition epoch, position in the metadata log); looks of a leader count
while its epoch is the newest that is known. What arrives late and is older changes nothing, so files may be read in any
order, and twice.

Invariant: state only moves forward; everything reported is provisional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.export.schema import CONTROLLER_NODE_ID, NO_LEADER

CONTROL_TYPES = ("ISR_CHANGE", "LEADER_CHANGE", "CONFIG_CHANGE", "STATE_SNAPSHOT")
LOOK_TYPE = "REPLICA_SAMPLE"
COLUMNS = tuple(
    "cluster_id event_type node_id incarnation seq ts_wall_us topic topic_id partition leader_epoch partition_epoch "
    "meta_offset replica_id leo leader_leo hw last_caught_up_us expected_state new_isr elr new_leader new_leader_epoch "
    "min_isr replicas topic_deleted".split()
)
"""The columns that this file reads."""

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Look:
    """A replica as its leader last saw it."""

    leo: int | None
    expected_state: str
    last_caught_up_us: int | None = field(compare=False, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What is known of one partition. Two are equal if they tell the same, whatever the time of it."""

    cluster_id: str
    topic_id: str
    partition: int
    topic: str
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None
    hw: int | None
    leo: int | None
    looks: Mapping[int, Look]
    is_deleted: bool
    as_of_us: int = field(compare=False)

    @property
    def key(self) -> Key:
        """Which partition it is."""
        return self.cluster_id, self.topic_id, self.partition

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Assigned replicas that are not in the ISR."""
        return tuple(node for node in self.replicas if node not in self.isr)

    @property
    def is_troubled(self) -> bool:
        """Whether nobody leads it, or a replica is out of sync."""
        return not self.is_deleted and (self.leader is None or bool(self.out_of_sync))


_DECIDED = ("new_leader", "new_isr", "replicas", "min_isr")


class _Newest:
    """The newest value of each name, by the place of the row that reported it."""

    def __init__(self) -> None:
        self._reported: dict[Any, tuple[tuple[int, ...], Any]] = {}

    def take(self, name: Any, place: tuple[int, ...], value: Any) -> None:
        before = self._reported.get(name)
        if before is None or place >= before[0]:
            self._reported[name] = place, value

    def get(self, name: Any, otherwise: Any = None) -> Any:
        found = self._reported.get(name)
        return otherwise if found is None else found[1]

    def of_epoch(self, leader_epoch: int) -> dict[Any, Any]:
        """The values whose place begins with this epoch."""
        return {name: value for name, (place, value) in self._reported.items() if place[0] == leader_epoch}


class _Fold:
    """The rows of one partition so far."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._topic = ""
        self._leader_epoch = -1
        self._partition_epoch = -1
        self._as_of_us = 0
        self._decided = _Newest()
        self._leaders_own = _Newest()
        self._looks = _Newest()

    def decide(self, row: Mapping[str, Any]) -> None:
        """Take a row of the controller."""
        place = (row["partition_epoch"] or 0, row["meta_offset"] or 0, row["seq"])
        for name in _DECIDED:
            if row[name] is not None:
                self._decided.take(name, place, row[name])
        self._decided.take("topic_deleted", place, bool(row["topic_deleted"]))
        self._partition_epoch = max(self._partition_epoch, place[0])
        epoch = row["leader_epoch"] if row["new_leader_epoch"] is None else row["new_leader_epoch"]
        self._hear(row, epoch)

    def look(self, row: Mapping[str, Any]) -> None:
        """Take a leader's look at one replica."""
        place = (-1 if row["leader_epoch"] is None else row["leader_epoch"], row["incarnation"], row["seq"])
        self._leaders_own.take("hw", place, row["hw"])
        self._leaders_own.take("leo", place, row["leader_leo"])
        look = Look(row["leo"], row["expected_state"] or "", row["last_caught_up_us"])
        self._looks.take(row["replica_id"], place, look)
        self._hear(row, row["leader_epoch"])

    def _hear(self, row: Mapping[str, Any], leader_epoch: int | None) -> None:
        self._topic = row["topic"] or self._topic
        self._leader_epoch = max(self._leader_epoch, -1 if leader_epoch is None else leader_epoch)
        self._as_of_us = max(self._as_of_us, row["ts_wall_us"])

    def reported(self) -> Partition:
        """The state that the rows make."""
        leader = self._decided.get("new_leader", NO_LEADER)
        cluster_id, topic_id, partition = self._key
        return Partition(
            cluster_id=cluster_id,
            topic_id=topic_id,
            partition=partition,
            topic=self._topic,
            leader=None if leader == NO_LEADER else leader,
            leader_epoch=self._leader_epoch,
            partition_epoch=self._partition_epoch,
            replicas=tuple(self._decided.get("replicas", ())),
            isr=tuple(self._decided.get("new_isr", ())),
            min_isr=self._decided.get("min_isr"),
            # An HW is a fact regardless of which node saw it; how far logs reach is what the present leader sees.
            hw=self._leaders_own.get("hw"),
            leo=self._leaders_own.of_epoch(self._leader_epoch).get("leo"),
            looks=self._looks.of_epoch(self._leader_epoch),
            is_deleted=self._decided.get("topic_deleted", False),
            as_of_us=self._as_of_us,
        )


class LiveState:
    """All partitions that were heard of."""

    def __init__(self) -> None:
        self._folds: dict[Key, _Fold] = {}

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Fold rows with `COLUMNS` in; of other types than are read here, nothing is kept."""
        for row in rows:
            if row["partition"] is None or row["topic_id"] is None:
                continue
            fold = self._of((row["cluster_id"], row["topic_id"], row["partition"]))
            if row["event_type"] == LOOK_TYPE:
                fold.look(row)
            elif row["node_id"] == CONTROLLER_NODE_ID and row["event_type"] in CONTROL_TYPES:
                fold.decide(row)

    def _of(self, key: Key) -> _Fold:
        found = self._folds.get(key)
        if found is None:
            found = self._folds[key] = _Fold(key)
        return found

    def partitions(self) -> list[Partition]:
        """All of them, in order of cluster, topic and partition."""
        return sorted(
            (fold.reported() for fold in self._folds.values()),
            key=lambda one: (one.cluster_id, one.topic, one.partition),
        )
