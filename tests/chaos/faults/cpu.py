"""A process that gets a share of a processor: a control group with a quota.

Invariant: the group belongs to this driver (its name contains the process id) and is removed with the fault; how often
the kernel throttled the process is read before that.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.cluster import Cluster
from harness.facilities import Facility
from harness.scenario import Fault

_PERIOD_US = 100_000
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")
_numbers = itertools.count(1)


def quota_missing() -> str | None:
    """What this machine lacks to throttle a process; tested by creating a group."""
    try:
        group = Group()
    except OSError as error:
        return f"no control group with a CPU quota can be made ({error})"
    group.remove()
    return None


QUOTA = Facility(name="CPU quota", lacking=quota_missing)


class Group:
    """One control group, version 1 or 2."""

    def __init__(self, share: float = 1.0) -> None:
        self._is_v1 = (_V1 / "cpu.cfs_quota_us").exists()
        self.path = (_V1 if self._is_v1 else _V2) / f"strandline-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        quota_us = int(_PERIOD_US * share)
        try:
            if self._is_v1:
                (self.path / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (self.path / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (self.path / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        except OSError:
            self.path.rmdir()
            raise

    def take(self, pid: int) -> None:
        """Moves the process, threads included, into the group."""
        (self.path / "cgroup.procs").write_text(str(pid))

    @property
    def throttled(self) -> int:
        """In how many periods the kernel throttled the group."""
        words = (line.split() for line in (self.path / "cpu.stat").read_text().splitlines())
        return next(int(value) for name, value in words if name == "nr_throttled")

    def remove(self) -> None:
        """Moves its processes back to the top, and removes it."""
        for pid in (self.path / "cgroup.procs").read_text().split():
            try:
                (self.path.parent / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                continue
        self.path.rmdir()


@dataclass(slots=True)
class CpuShare(Fault):
    """A process gets ``share`` of one processor; ``node`` 0 is the controller."""

    node: int
    share: float = 0.1
    throttled: int = 0
    """Periods in which it was held back; known after `undo`."""
    _group: Group | None = field(default=None, repr=False)

    async def apply(self, cluster: Cluster) -> None:
        pid = cluster.service(self.node).pid
        assert pid is not None, f"node {self.node} does not run"
        self._group = Group(self.share)
        self._group.take(pid)

    async def undo(self, cluster: Cluster) -> None:
        if self._group is not None:
            self.throttled = self._group.throttled
            self._group.remove()
            self._group = None

    @property
    def effects(self) -> Mapping[str, int]:
        return {"throttled_periods": self.throttled}

    def described(self) -> str:
        return f"CpuShare(node {self.node}, {self.share:.0%})"
