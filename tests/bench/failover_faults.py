"""How a leader is lost: its process is killed, its process stands still, or its address vanishes.

Invariant: each of these leaves the other processes alone. `kill` is SIGKILL, whose closed connections others see;
`stop` is SIGSTOP, whose connections stay open and answer nothing; `vanish` unplugs the node's virtual cable: no packet
of it arrives anywhere, and nothing closes a connection. The last one needs root, for network namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from plan import KILL, VANISH

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.node.settings import ReplicaSettings


class FaultyCluster:
    """A cluster on loopback, and `kill` or `stop`."""

    client_prefix: Sequence[str] = ()
    """What a client's command begins with, so that it reaches the cluster."""

    def __init__(self, cluster: LocalCluster, fault: str) -> None:
        self.cluster, self._fault = cluster, fault

    def lose(self, node_id: int) -> None:
        """Lose this node."""
        node = self.cluster.nodes[node_id]
        if self._fault == KILL:
            node.kill()
        else:
            node.pause()

    async def bring_back(self, node_id: int) -> None:
        """Start it again, or let it go on."""
        if self._fault == KILL:
            await self.cluster.start_node(node_id)
        else:
            self.cluster.nodes[node_id].resume()


class WiredCluster(FaultyCluster):
    """`vanish`: every process in a network namespace of its own, joined by a bridge."""

    def __init__(self, directory: Path, sessions: Mapping[str, str], namespaces: object) -> None:
        from harness.cluster import NODE_SETTINGS, Cluster
        from harness.namespaces import ip

        # The settings of tests/chaos suit short tests; what is measured has the defaults.
        defaults = {name: str(ReplicaSettings.model_fields[name].default) for name in NODE_SETTINGS}
        wired = Cluster(directory, namespaces, controller_settings=sessions, node_settings=defaults)
        super().__init__(wired, VANISH)
        self._namespaces, self._ip = namespaces, ip
        self.client_prefix = namespaces.inside("cli0")

    def lose(self, node_id: int) -> None:
        """Unplug its cable at the bridge: its own end does not notice either."""
        self._plug(node_id, "down")

    async def bring_back(self, node_id: int) -> None:
        """Plug it in."""
        self._plug(node_id, "up")

    def _plug(self, node_id: int, state: str) -> None:
        self._ip("-n", self._namespaces.full("hub"), "link", "set", f"v-n{node_id}", state)


@contextmanager
def faulty_cluster(fault: str, directory: Path, sessions: Mapping[str, str]) -> Iterator[FaultyCluster]:
    """A cluster that can suffer ``fault``; not started yet. Call it before any thread is started."""
    if fault != VANISH:
        running = FaultyCluster(LocalCluster(Plan(directory=directory, controller_settings=sessions)), fault)
        try:
            yield running
        finally:
            running.cluster.kill()
        return
    from harness.namespaces import Namespaces

    with Namespaces() as namespaces:
        namespaces.enter_hub()
        wired = WiredCluster(directory, sessions, namespaces)
        try:
            yield wired
        finally:
            wired.cluster.kill()


def lacking(fault: str) -> str | None:
    """Why this fault cannot be had on this machine, in one sentence; None if it can."""
    if fault != VANISH:
        return None
    from harness.facilities import NAMESPACES, missing

    return "; ".join(missing([NAMESPACES])) or None
