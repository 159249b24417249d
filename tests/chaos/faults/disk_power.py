"""Faults of disks: power loss, operations that fail or are late, no space left.

Invariant: the disks of one loss of power are cut before any of their processes is killed, and answer again only when
all have been sent SIGKILL, so that no process sees a sync that did not last.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faults.disk import Disk, disks_missing
from faults.disk_rules import Rule
from faults.disk_tree import PowerCut
from harness.cluster import Cluster
from harness.facilities import Facility, program
from harness.scenario import Fault

if TYPE_CHECKING:
    from harness.run import Run


def _missing() -> str | None:
    return program("fusermount3", "fuse3") or disks_missing()


DISKS = Facility(name="FUSE", lacking=_missing)


def mounted(run: Run, node_ids: Iterable[int]) -> dict[int, Disk]:
    """A disk under the data directory of each process, unmounted after the run.

    Small files are copied, and everything when the run is red.
    """
    disks = {}
    for node_id in node_ids:
        disk = Disk(run.cluster.service(node_id).directory)
        disk.mount()
        disks[node_id] = disk
        run.stack.callback(_unmount, run, disk)
    return disks


def slow(disks: Iterable[Disk], sync_ms: float) -> None:
    """Every sync takes some milliseconds, as on a real disk, so that there is unsynced data at any time."""
    for disk in disks:
        disk.add(Rule(operation="fsync", delay_ms=sync_ms))


def _unmount(run: Run, disk: Disk) -> None:
    kept = run.directory / "kept" / disk.mount_point.name
    spare = shutil.ignore_patterns() if run.failures else shutil.ignore_patterns("*-[0-9]*", "*.sqlite*")
    shutil.copytree(disk.mount_point, kept, ignore=spare, dirs_exist_ok=True)
    disk.unmount()


@dataclass(slots=True)
class PowerLoss(Fault):
    """Power loss at several nodes at once (0: the controller); undone by starting the stopped processes."""

    disks: dict[int, Disk] = field(repr=False)
    nodes: list[int]
    seed: int | None = None
    """Draws what survives of the unsynced; None: nothing does."""
    took: dict[int, PowerCut] = field(default_factory=dict)

    async def apply(self, cluster: Cluster) -> None:
        for node_id in self.nodes:
            self.took[node_id] = self.disks[node_id].cut(seed=self.seed)
        for node_id in self.nodes:
            service = cluster.service(node_id)
            service.end_expected = True
            if service.pid is not None:
                os.kill(service.pid, signal.SIGKILL)
        for node_id in self.nodes:
            self.disks[node_id].restore()
            cluster.service(node_id).kill()

    async def undo(self, cluster: Cluster) -> None:
        missing = [node_id for node_id in self.nodes if not cluster.service(node_id).running]
        if 0 in missing:
            await cluster.start_node(0)
        await asyncio.gather(*(cluster.start_node(node_id) for node_id in missing if node_id))

    @property
    def dropped_bytes(self) -> int:
        return sum(cut.total_bytes for cut in self.took.values())

    @property
    def effects(self) -> Mapping[str, int]:
        of_records = sum(cut.record_bytes for cut in self.took.values())
        return {
            "dropped_bytes": self.dropped_bytes,
            "dropped_record_bytes": of_records,
            "losses_that_dropped": self.dropped_bytes > 0,
        }

    def described(self) -> str:
        lost = {node_id: f"{cut.total_bytes} bytes, {cut.names} names" for node_id, cut in self.took.items()}
        how = "torn" if self.seed is not None else "all unsynced"
        return f"PowerLoss({self.nodes}, {how}{f', {lost}' if lost else ''})"


@dataclass(slots=True)
class BadDisk(Fault):
    """A disk obeys a rule, or has only limited room left; undone by healing it. The process is left alone."""

    disk: Disk = field(repr=False)
    node: int
    rule: Rule | None = None
    room_bytes: int | None = None
    hits: int = 0
    """Known after `undo`."""

    async def apply(self, cluster: Cluster) -> None:
        if self.rule is not None:
            self.disk.add(self.rule)
        if self.room_bytes is not None:
            self.disk.limit(self.disk.used_bytes + self.room_bytes)

    async def undo(self, cluster: Cluster) -> None:
        self.hits = self.disk.hits
        self.disk.heal()

    @property
    def effects(self) -> Mapping[str, int]:
        return {"disk_rule_hits": self.hits}

    def described(self) -> str:
        what = f"{self.room_bytes} bytes left" if self.rule is None else f"{self.rule.operation} of {self.rule.paths}"
        how = f": {self.rule.error or f'{self.rule.delay_ms:g} ms late'}" if self.rule is not None else ""
        return f"BadDisk(node {self.node}, {what}{how})"
