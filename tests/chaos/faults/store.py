"""Faults of the controller's store: it is replaced by an older one, or by none.

Invariant: only the store's own files are replaced; the state events beside them stay, for the checks.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.cluster import Cluster
from harness.fault import Fault

_FILES = "metadata.sqlite*"


def keep(cluster: Cluster, target: Path) -> None:
    """Copies the store of a stopped controller."""
    assert not cluster.controller.running
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in cluster.controller.directory.glob(_FILES):
        shutil.copy2(path, target)


def put(cluster: Cluster, source: Path | None) -> None:
    """Replaces the store of a stopped controller by a saved one, or by nothing."""
    assert not cluster.controller.running
    for path in cluster.controller.directory.glob(_FILES):
        path.unlink()
    for path in source.glob(_FILES) if source else ():
        shutil.copy2(path, cluster.controller.directory)


@dataclass(slots=True)
class StoreReplaced(Fault):
    """The controller is killed and started with the store saved in ``older``; None: with an empty one.

    Undone by killing it again and starting it with its original store; `forget` disables that.
    """

    older: Path | None
    current: Path

    async def apply(self, cluster: Cluster) -> None:
        cluster.controller.kill()
        keep(cluster, self.current)
        put(cluster, self.older)
        await cluster.start_controller()

    async def undo(self, cluster: Cluster) -> None:
        if self.current.exists():
            cluster.controller.kill()
            put(cluster, self.current)
            shutil.rmtree(self.current)
        if not cluster.controller.running:
            await cluster.start_controller()

    def forget(self) -> None:
        """The original store is gone for good."""
        shutil.rmtree(self.current)
