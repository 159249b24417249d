"""What can happen to the controller's store: an older one comes back, or none.

Invariant: only the store's own files are exchanged; the state events beside them stay, for those who judge.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.cluster import Cluster
from harness.fault import Fault

_FILES = "metadata.sqlite*"


def keep(cluster: Cluster, target: Path) -> None:
    """Copies the store of a controller that does not run."""
    assert not cluster.controller.running
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in cluster.controller.directory.glob(_FILES):
        shutil.copy2(path, target)


def put(cluster: Cluster, source: Path | None) -> None:
    """Replaces the store of a controller that does not run by a kept one, or by nothing."""
    assert not cluster.controller.running
    for path in cluster.controller.directory.glob(_FILES):
        path.unlink()
    for path in source.glob(_FILES) if source else ():
        shutil.copy2(path, cluster.controller.directory)


@dataclass(slots=True)
class StoreReplaced(Fault):
    """The controller is killed and started with the store kept in ``older``; None: with an empty one.

    Undone by killing it again and starting it with the store that it had; `forget` leaves that out.
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
        """The store that was there is gone for good."""
        shutil.rmtree(self.current)
