"""The data nodes of a scenario: a name, a disk, and, while the process lives, a production core.

Invariant: the knowledge of a process is lost with it; the next one begins with what the disk holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from strandline.core.coordinator.machine import Context, Decision, Machine, Record, TopicEntry
from strandline.core.log.effects import Effect
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import LeaderEpoch, NodeId, Role, TopicPartition
from strandline.runtime.clock import Clock
from strandline.runtime.log_performers import LogPerformers
from strandline_sim.world.disk import Disk, LogFile
from strandline_sim.world.memory_logs import IssuedFlush, Looks, MemoryLogs

TP = TopicPartition("00000000-0000-4000-8000-000000000001", 0)
"""The one partition that a scenario is about."""


ActorLooks = Callable[["Actor"], Looks]
"""Makes the object that watches the changes of a node's logs."""


class Actor:
    """One data node. ``core`` is None while no process runs."""

    def __init__(
        self, name: str, node_id: int, timings: NodeTimings, *, observer: bool, clock: Clock, looks: ActorLooks
    ) -> None:
        self.name = name
        self.node_id = NodeId(node_id)
        self.timings = timings
        self.roles = frozenset({Role.FOLLOWER}) if observer else frozenset({Role.LEADER, Role.FOLLOWER})
        self.logs = MemoryLogs(Disk(node_id), _content, looks(self), saves_durably=True)
        self.files = LogPerformers(self.logs, clock)
        # The copy that `copy-disk` made, for `restore-disk`.
        self.backup: Disk | None = None
        self.core: NodeCore | None = None
        self.life = 0
        self.next_beat_ms = 0
        self.wants_fence = False
        self.holds_commits = False
        # The commit in progress.
        self.commit: IssuedFlush | None = None
        # Whether metadata was lost, so that the watch must be opened again.

    @property
    def is_running(self) -> bool:
        """Whether a process of this node lives."""
        return self.core is not None

    @property
    def disk(self) -> Disk:
        """The disk of this machine."""
        return self.logs.disk

    @disk.setter
    def disk(self, disk: Disk) -> None:
        self.logs.disk = disk

    @property
    def log(self) -> LogFile:
        """The log on the disk; a new empty one if there is none yet."""
        return self.disk.logs.setdefault(TP, LogFile())

    @property
    def directory_id(self) -> str:
        """Identifies the disk."""
        return self.disk.directory_id

    @property
    def incarnation_id(self) -> str:
        """Identifies the process."""
        return f"{self.name}-{self.life}"


def _content(value: object) -> int:
    """The representation of a value's bytes in the hash of a log."""
    return zlib.crc32(str(value).encode())


class Names:
    """Names of nodes and their ids, both ways."""

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {}

    def add(self, name: str) -> int:
        """The id of a new name: its number if it is one, else the next free one from 1 on."""
        node_id = int(name) if name.isdecimal() else next(i for i in range(1, 1000) if i not in self._by_id)
        self._by_id[node_id] = name
        return node_id

    def name(self, node_id: int | None) -> str:
        """The name of a node, ``none`` for no node."""
        return "none" if node_id is None else self._by_id.get(node_id, str(node_id))

    def shown(self, node_ids: Iterable[int]) -> str:
        """Several names: ``A,B``, or ``none``."""
        return ",".join(self.name(node_id) for node_id in node_ids) or "none"


# ---- machine_at once
# A machine of coordinators without a shard: what it decides is committed at once.
#
# Invariant: a coordinator that restarts knows only what was decided.

GROUPS_TP = TopicPartition("00000000-0000-4000-8000-000000000002", 0)
"""The partition with the offsets of all groups."""
SOURCE_ID = "00000000-0000-4000-8000-000000000003"
"""The topic that groups read."""
SOURCE = "source"
SOURCE_PARTITIONS = 4
M = TypeVar("M", bound=Machine)


def _topic(topic_id: str, name: str, partitions: int) -> TopicEntry:
    return TopicEntry(topic_id, name, (frozenset[str](),) * partitions)


class _Topics:
    """`TopicDirectory` of a scenario: the topic of its one partition, that of groups, and the one that groups read."""

    version = 1
    _topics = (
        _topic(TP.topic_id, "lines", 1),
        _topic(GROUPS_TP.topic_id, "groups", 1),
        _topic(SOURCE_ID, SOURCE, SOURCE_PARTITIONS),
    )

    def by_name(self, name: str) -> TopicEntry | None:
        """One of the three."""
        return next((topic for topic in self._topics if topic.name == name), None)

    def by_id(self, topic_id: str) -> TopicEntry | None:
        """One of the three."""
        return next((topic for topic in self._topics if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        """All three."""
        return (topic.name for topic in self._topics)


_TOPICS = _Topics()


class MachineAtOnce(Generic[M]):
    """One machine with its log, and a coordinator epoch that rises with each start."""

    def __init__(self, make: Callable[[LeaderEpoch], M], clock: Callable[[], int], shown: Callable[[Record], None]):
        """``shown`` is called with each record that is written."""
        self._make = make
        self._clock = clock
        self._shown = shown
        self._log: list[Record] = []
        self.epoch = LeaderEpoch(-1)
        self.machine = self._started()

    def _started(self) -> M:
        self.epoch = LeaderEpoch(self.epoch + 1)
        machine = self._make(self.epoch)
        for record in self._log:
            machine.apply(record)
        machine.excuse(self._context(is_verified=False))
        return machine

    def restart(self) -> None:
        """Begin another coordinator, with what the log holds."""
        self.machine = self._started()

    def _context(self, *, is_verified: bool) -> Context:
        now_ms = self._clock()
        return Context(now_ms, now_ms, self.epoch, _TOPICS, is_verified)

    def decide(self, request: object, *, is_verified: bool = False) -> Decision:
        """Decide what a request leads to, without doing it yet."""
        return self.machine.decide(request, self._context(is_verified=is_verified))

    def write(self, record: Record) -> None:
        """Add a record to the log and the machine."""
        self._log.append(record)
        self.machine.apply(record)
        self._shown(record)

    def take(self, decision: Decision) -> Iterator[Effect]:
        """Carry out a decision; returns what it asks of others."""
        assert decision.work is None, "a scenario has too few members for work beside the event loop"
        for record in (record for batch in decision.batches for record in batch):
            self.write(record)
        if decision.taken is not None:
            self.machine.taken(decision.taken, self._clock())
        if decision.answered is not None:
            self.machine.answered(decision.answered, self._clock())
        yield from decision.effects
        if decision.committed is not None:
            yield from self.machine.committed(decision.committed, self._context(is_verified=False))

    def tick(self) -> Iterator[Effect]:
        """Do everything that has become due."""
        for decision in self.machine.tick(self._context(is_verified=False)):
            yield from self.take(decision)

    def heard(self, answer: object) -> Iterator[Effect]:
        """Take an answer for which the machine waits."""
        for decision in self.machine.heard(answer, self._context(is_verified=False)):
            yield from self.take(decision)
