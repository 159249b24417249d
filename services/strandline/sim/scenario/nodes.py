"""What a data node of a scenario is: a name, a disk, and, while its process lives, a production core.

Invariant: what a process knew dies with it; the next one begins with what the disk holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import NodeId, Role, TopicPartition
from strandline.runtime.clock import Clock
from strandline.runtime.log_performers import LogPerformers
from strandline.sim.disk import Disk, LogFile
from strandline.sim.memory_logs import Commit, Looks, MemoryLogs

TP = TopicPartition("00000000-0000-4000-8000-000000000001", 0)
"""The one partition that a scenario is about."""


ActorLooks = Callable[["Actor"], Looks]
"""Makes what looks at a node's logs while they change."""


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
        # What `copy-disk` kept, for `restore-disk`.
        self.backup: Disk | None = None
        self.core: NodeCore | None = None
        self.life = 0
        self.next_beat_ms = 0
        self.wants_fence = False
        self.holds_commits = False
        # The commit under way.
        self.commit: Commit | None = None
        # Whether metadata was lost, so that the watch must be opened again.
        self.missed_metadata = False

    @property
    def is_running(self) -> bool:
        """Whether a process of this node lives."""
        return self.core is not None

    @property
    def disk(self) -> Disk:
        """What this machine keeps."""
        return self.logs.disk

    @disk.setter
    def disk(self, disk: Disk) -> None:
        self.logs.disk = disk

    @property
    def log(self) -> LogFile:
        """The log as it lies on the disk, made empty if there is none yet."""
        return self.disk.logs.setdefault(TP, LogFile())

    @property
    def directory_id(self) -> str:
        """Names the very disk."""
        return self.disk.directory_id

    @property
    def incarnation_id(self) -> str:
        """Names the very process."""
        return f"{self.name}-{self.life}"


def _content(value: object) -> int:
    """What represents a value's bytes in the hash of a log."""
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
        """The name of a node, ``none`` for nobody."""
        return "none" if node_id is None else self._by_id.get(node_id, str(node_id))

    def shown(self, node_ids: Iterable[int]) -> str:
        """Several names: ``A,B``, or ``none``."""
        return ",".join(self.name(node_id) for node_id in node_ids) or "none"
