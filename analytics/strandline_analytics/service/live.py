"""Derives the present state of each partition from the newest events, without Spark and without history.

Decisions of the controller are ordered by (partition epoch, position in the metadata log); a leader's observations
count while its epoch is the newest known one. Older events that arrive late change nothing, so files may be read in any
order, and twice.

Invariant: state only moves forward; everything reported is provisional.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.export import layout, schema
from strandline.export.schema import CONTROLLER_NODE_ID, DATASETS, NO_LEADER, ColumnType
from strandline_analytics.silver.control import CONTROL_TYPES
from strandline_analytics.sources.places import Place

LOOK_TYPE = "REPLICA_SAMPLE"
COLUMNS = tuple(
    "cluster_id event_type node_id incarnation seq ts_wall_us topic topic_id partition leader_epoch partition_epoch "
    "meta_offset replica_id leo leader_leo hw last_caught_up_us expected_state new_isr elr new_leader new_leader_epoch "
    "min_isr replicas topic_deleted phase adding_replicas original_replicas".split()
)
"""The columns that this module reads."""

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """A replica as its leader last saw it."""

    leo: int | None
    expected_state: str
    last_caught_up_us: int | None = field(compare=False, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePartition:
    """The known state of one partition. Two are equal if they differ at most in their times."""

    cluster_id: str
    topic_id: str
    partition: int
    topic: str
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    """The replicas that the current reassignment adds."""
    isr: tuple[int, ...]
    min_isr: int | None
    hw: int | None
    leo: int | None
    looks: Mapping[int, ReplicaSample]
    is_deleted: bool
    as_of_us: int = field(compare=False)

    @property
    def key(self) -> Key:
        """The key that identifies the partition."""
        return self.cluster_id, self.topic_id, self.partition

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Replicas that are missing from the ISR, apart from those that a reassignment is adding."""
        return tuple(node for node in self.replicas if node not in (*self.isr, *self.adding))

    @property
    def is_troubled(self) -> bool:
        """Whether the partition has no leader, or a replica is out of sync."""
        return not self.is_deleted and (self.leader is None or bool(self.out_of_sync))


_DECIDED = ("new_leader", "new_isr", "replicas", "min_isr")


class _Newest:
    """The newest value of each name, by the position of the row that reported it."""

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
        """The values whose position begins with this epoch."""
        return {name: value for name, (place, value) in self._reported.items() if place[0] == leader_epoch}


class _Fold:
    """Combines the rows of one partition that were read so far."""

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
        """Apply a row of the controller."""
        place = (row["partition_epoch"] or 0, row["meta_offset"] or 0, row["seq"])
        for name in _DECIDED:
            if row[name] is not None:
                self._decided.take(name, place, row[name])
        if row["event_type"] == "REASSIGNMENT" and row["phase"] != "queued":
            self._decided.take("adding", place, row["adding_replicas"] if row["phase"] == "started" else ())
        elif row["event_type"] == "STATE_SNAPSHOT" and row["original_replicas"]:
            self._decided.take("adding", place, row["adding_replicas"])
        self._decided.take("topic_deleted", place, bool(row["topic_deleted"]))
        self._partition_epoch = max(self._partition_epoch, place[0])
        epoch = row["leader_epoch"] if row["new_leader_epoch"] is None else row["new_leader_epoch"]
        self._hear(row, epoch)

    def look(self, row: Mapping[str, Any]) -> None:
        """Apply a leader's observation of one replica."""
        place = (-1 if row["leader_epoch"] is None else row["leader_epoch"], row["incarnation"], row["seq"])
        self._leaders_own.take("hw", place, row["hw"])
        self._leaders_own.take("leo", place, row["leader_leo"])
        look = ReplicaSample(row["leo"], row["expected_state"] or "", row["last_caught_up_us"])
        self._looks.take(row["replica_id"], place, look)
        self._hear(row, row["leader_epoch"])

    def _hear(self, row: Mapping[str, Any], leader_epoch: int | None) -> None:
        self._topic = row["topic"] or self._topic
        self._leader_epoch = max(self._leader_epoch, -1 if leader_epoch is None else leader_epoch)
        self._as_of_us = max(self._as_of_us, row["ts_wall_us"])

    def reported(self) -> LivePartition:
        """The state that follows from the rows."""
        leader = self._decided.get("new_leader", NO_LEADER)
        cluster_id, topic_id, partition = self._key
        return LivePartition(
            cluster_id=cluster_id,
            topic_id=topic_id,
            partition=partition,
            topic=self._topic,
            leader=None if leader == NO_LEADER else leader,
            leader_epoch=self._leader_epoch,
            partition_epoch=self._partition_epoch,
            replicas=tuple(self._decided.get("replicas", ())),
            adding=tuple(self._decided.get("adding", ())),
            isr=tuple(self._decided.get("new_isr", ())),
            min_isr=self._decided.get("min_isr"),
            # An HW is a fact whichever node saw it; log ends are taken from the present leader only.
            hw=self._leaders_own.get("hw"),
            leo=self._leaders_own.of_epoch(self._leader_epoch).get("leo"),
            looks=self._looks.of_epoch(self._leader_epoch),
            is_deleted=self._decided.get("topic_deleted", False),
            as_of_us=self._as_of_us,
        )


class LiveState:
    """All partitions that any event mentioned."""

    def __init__(self) -> None:
        self._folds: dict[Key, _Fold] = {}

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply rows with `COLUMNS`; events of types that are not used here are ignored."""
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

    def partitions(self) -> list[LivePartition]:
        """All partitions, in order of cluster, topic and partition."""
        return sorted(
            (fold.reported() for fold in self._folds.values()),
            key=lambda one: (one.cluster_id, one.topic, one.partition),
        )


# ---- arrivals
# Finds new exported files, and reads the rows that a watch needs.
#
# Every file is read once, when it first appears; a file appears whole (`strandline.export.layout`). At the first look
# the newest hours are read, since each begins with snapshots of everything.
#
# Invariant: a look opens no file that an earlier look has opened; a file that cannot be read is reported once and left
# alone.

_MARK = f"/{layout.VERSION_FOLDER}/"
_TYPES = (*CONTROL_TYPES, LOOK_TYPE)
_KINDS = {
    ColumnType.STRING: str, ColumnType.INT: int, ColumnType.LONG: int, ColumnType.BOOL: bool, ColumnType.INTS: list,
}  # fmt: skip
_CHECKED = [(one.name, one.required, _KINDS[one.kind]) for one in schema.COLUMNS if one.name in COLUMNS]

Row = Mapping[str, Any]


class Arrivals:
    """New files of some inputs. ``on_damage`` gets one sentence for each file that cannot be read."""

    def __init__(self, places: Sequence[Place], *, hours: int, on_damage: Callable[[str], None]) -> None:
        self._places = places
        self._hours = hours
        self._on_damage = on_damage
        self._seen: set[tuple[str, str]] = set()
        self._began = False

    def look(self) -> Iterator[list[Row]]:
        """The rows of each new file, oldest hour first."""
        listed = {(place.root, path): place for place in self._places for path in _data_files(place)}
        fresh = listed.keys() - self._seen
        self._seen = set(listed)
        for name in sorted(fresh if self._began else self._newest(fresh), key=lambda name: _hour(name[1])):
            yield self._rows(listed[name], name[1])
        self._began = True

    def _newest(self, names: set[tuple[str, str]]) -> list[tuple[str, str]]:
        by_cluster: dict[str, set[str]] = defaultdict(set)
        for root, path in names:
            by_cluster[_cluster(root, path)].add(_hour(path))
        oldest = {cluster: sorted(hours)[-self._hours :][0] for cluster, hours in by_cluster.items()}
        return [(root, path) for root, path in names if _hour(path) >= oldest[_cluster(root, path)]]

    def _rows(self, place: Place, path: str) -> list[Row]:
        try:
            content = place.read(path)
            return parsed(path, content)
        except (OSError, ValueError) as error:
            self._on_damage(f"{place.root}/{path} cannot be read and is left out of what is watched: {error}")
            return []


def parsed(path: str, content: bytes) -> list[Row]:
    """The rows of a file that `LiveState` reads, with all its columns.

    Raises:
        ValueError: the file is damaged.
    """
    rows = _of_lines(content) if path.endswith(layout.JSON_LINES) else _of_table(content)
    if not all(map(_is_event, rows)):
        raise ValueError("a row is no exported event")
    return [{name: row.get(name) for name in COLUMNS} for row in rows if row["event_type"] in _TYPES]


def _of_lines(content: bytes) -> list[Any]:
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except RecursionError:
        raise ValueError("a line is nested too deeply") from None


def _of_table(content: bytes) -> list[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(io.BytesIO(content), columns=list(COLUMNS), filters=[("event_type", "in", _TYPES)])
    except pyarrow.ArrowException as error:
        raise ValueError(f"not a Parquet file of ours: {error}") from error
    return list(table.to_pylist())


def _is_event(row: Any) -> bool:
    """Whether a row has the columns that every event has, and no column of another kind."""
    return isinstance(row, dict) and all(
        not required if (value := row.get(name)) is None else type(value) is kind for name, required, kind in _CHECKED
    )


def _data_files(place: Place) -> Iterator[str]:
    for listed in place.files():
        parts = listed.path.split("/")
        if len(parts) > 3 and parts[-4] in DATASETS and parts[-1].endswith(layout.SUFFIXES):
            yield listed.path


def _hour(path: str) -> str:
    """``dt=.../hr=...``."""
    return "/".join(path.split("/")[-3:-1])


def _cluster(root: str, path: str) -> str:
    return f"{root}/{path}".rpartition(_MARK)[0]


# ---- watching
# Reads the input for the watchers of partitions, and determines what to send to each.
#
# One look serves all watchers; looks are at least ``poll_s`` apart, and there are none without a watcher. A slow
# watcher misses intermediate states, but never the last one: each state is compared with the one it was sent last.
#
# Invariant: one look at a time, outside the event loop; a watcher first gets everything, then only differences.

Source = Callable[[LiveState], None]
"""Applies new rows to the state; called outside the event loop."""


class Watches:
    """The watchers of one input."""

    def __init__(self, source: Source, *, poll_s: float) -> None:
        self._source = source
        self._poll_s = poll_s
        self._state = LiveState()
        self._partitions: list[LivePartition] = []
        self._looked_at: float | None = None
        self._looking = asyncio.Lock()

    async def changes(self, wanted: Callable[[LivePartition], bool]) -> AsyncIterator[list[LivePartition]]:
        """First all wanted partitions, then endlessly those that changed.

        Raises:
            Exception: the error that reading the input raised.
        """
        reported: dict[Key, LivePartition] = {}
        first = True
        while True:
            news = news_for(reported, await self._newest(), wanted)
            if news or first:
                yield news
            first = False
            await asyncio.sleep(self._poll_s)

    async def _newest(self) -> list[LivePartition]:
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._looked_at is None or now - self._looked_at >= self._poll_s:
                await asyncio.to_thread(self._source, self._state)
                self._partitions = self._state.partitions()
                self._looked_at = now
            return self._partitions


def news_for(
    reported: dict[Key, LivePartition], newest: list[LivePartition], wanted: Callable[[LivePartition], bool]
) -> list[LivePartition]:
    """The partitions to send to a watcher that already has ``reported``; ``reported`` is updated.

    If a partition that was sent no longer matches the watch, it is sent once more.
    """
    news = []
    for one in newest:
        before = reported.get(one.key)
        if before == one or (before is None and not wanted(one)):
            continue
        news.append(one)
        if wanted(one):
            reported[one.key] = one
        else:
            reported.pop(one.key, None)
    return news
