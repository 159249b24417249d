"""The small files of a broker's data directory: where its epochs began, and which high watermark it remembered last.

Read only. They carry no time: `leader-epoch-checkpoint` is written at each new epoch, `replication-offset-checkpoint`
every few seconds. So nothing of them is an event or a sample; what they prove is in `checkpoint_checks`.

Invariant: a table of epochs rises in both columns. A file that is not of that form is an `Unreadable` with its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from strandline.kafka.history.log_files import FOLDER, properties_of
from strandline.kafka.history.wire import Unreadable, uuid_text

EPOCHS_FILE = "leader-epoch-checkpoint"
HWS_FILE = "replication-offset-checkpoint"
_METADATA_FILE = "partition.metadata"
_VERSION = "0"
_MOST_DIGITS = 19
_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_TOPIC_ID = re.compile(r"topic_id: *([A-Za-z0-9_-]{22})")

Place = tuple[str, int]
"""Topic and partition."""


class EpochEntry(NamedTuple):
    """From which offset on the records of a log are of an epoch."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFiles:
    """What one replica remembered of its log."""

    topic_id: str
    """As in the metadata log."""
    epochs: tuple[EpochEntry, ...]
    hw: int | None
    """Everything below it was committed; the replica may have known more."""

    def end_of(self, leader_epoch: int) -> EpochEntry | None:
        """The entry of the first epoch behind a given one, where the records of that one end; None: there is none."""
        return next((entry for entry in self.epochs if entry.leader_epoch > leader_epoch), None)

    def start_of(self, leader_epoch: int) -> int | None:
        """Where an epoch began; None where the table does not say it.

        The first entry moves with the log's start when old records are deleted, so only 0 is believed of it.
        """
        for number, entry in enumerate(self.epochs):
            if entry.leader_epoch == leader_epoch:
                return entry.start_offset if number or not entry.start_offset else None
        return None


@dataclass(slots=True)
class Checkpoints:
    """The files of one broker, by topic and partition."""

    node_id: int
    replicas: Mapping[Place, ReplicaFiles] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """How many epochs are in all tables."""
        return sum(len(replica.epochs) for replica in self.replicas.values())


def read_checkpoints(node_id: int, where: Path, cluster_id: str | None) -> Checkpoints:
    """The files of a broker's data directory, or of a copy with the folders of its partitions in ``partitions``.

    Args:
        cluster_id: that the directory must be of; None: any.

    Raises:
        Unreadable: it holds no partition, is of another node or cluster, or a file is damaged.
    """
    if not where.is_dir():
        raise Unreadable(f"{where} is no directory; give a log.dir of node {node_id}")
    _check_owner(node_id, where, cluster_id)
    hws = _hws(where / HWS_FILE)
    inner = where / "partitions"
    replicas: dict[Place, ReplicaFiles] = {}
    for path in sorted((inner if inner.is_dir() else where).iterdir()):
        named = _PARTITION.fullmatch(path.name)
        if named is None or path.name == FOLDER or not (path / EPOCHS_FILE).is_file():
            continue
        place = named["topic"], int(named["partition"])
        epochs = _epochs(path / EPOCHS_FILE)
        replicas[place] = ReplicaFiles(topic_id=_topic_id(path / _METADATA_FILE), epochs=epochs, hw=hws.get(place))
    if not replicas:
        raise Unreadable(f"{where} holds no folder of a partition with a {EPOCHS_FILE}; give a log.dir of a broker")
    return Checkpoints(node_id, replicas)


def _check_owner(node_id: int, where: Path, cluster_id: str | None) -> None:
    said = properties_of(where / "meta.properties")
    if said.get("node.id", str(node_id)) != str(node_id):
        raise Unreadable(f"{where} is of node {said['node.id']}, and was given as that of {node_id}")
    if cluster_id is not None and said.get("cluster.id", cluster_id) != cluster_id:
        raise Unreadable(f"{where} is of the cluster {said['cluster.id']}, and the metadata log of {cluster_id}")


def _epochs(path: Path) -> tuple[EpochEntry, ...]:
    found: list[EpochEntry] = []
    for number, line in _lines(path):
        entry = EpochEntry(*_numbers(path, number, line.split(), 2))
        if found and not (found[-1].leader_epoch < entry.leader_epoch and found[-1].start_offset < entry.start_offset):
            raise Unreadable(f"{path}:{number}: epoch {entry.leader_epoch} at {entry.start_offset} does not follow")
        found.append(entry)
    return tuple(found)


def _hws(path: Path) -> dict[Place, int]:
    found: dict[Place, int] = {}
    if path.is_file():
        for number, line in _lines(path):
            topic, _, rest = line.partition(" ")
            partition, hw = _numbers(path, number, rest.split(), 2)
            found[topic, partition] = hw
    return found


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a checkpoint with their numbers, without its version and its count."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines:
        # Kafka makes the file with the log, and writes into it at the first epoch.
        return []
    if len(lines) < 2 or lines[0] != _VERSION:
        raise Unreadable(f"{path}:1: a checkpoint of Kafka begins with its version {_VERSION} and the number of lines")
    (count,) = _numbers(path, 2, [lines[1]], 1)
    if count != len(lines) - 2:
        raise Unreadable(f"{path}:2: {count} lines are declared and {len(lines) - 2} follow; the file is damaged")
    return list(enumerate(lines[2:], start=3))


def _numbers(path: Path, number: int, words: Sequence[str], count: int) -> list[int]:
    if len(words) != count or not all(w.isascii() and w.isdigit() and len(w) <= _MOST_DIGITS for w in words):
        raise Unreadable(f"{path}:{number}: {' '.join(words)!r:.60} must be {count} whole numbers; the file is damaged")
    return [int(word) for word in words]


def _topic_id(path: Path) -> str:
    found = _TOPIC_ID.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    if found is None:
        raise Unreadable(f"{path} names no topic id, without which a deleted topic and its successor are one; copy it")
    return uuid_text(found[1])
