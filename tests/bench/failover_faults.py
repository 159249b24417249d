"""How a leader is lost: its process is killed, its process stands still, or its address vanishes.

Invariant: each of these leaves the other processes alone. `kill` is SIGKILL, whose closed connections others see;
`stop` is SIGSTOP, whose connections stay open and answer nothing; `vanish` unplugs the node's virtual cable: no packet
of it arrives anywhere, and nothing closes a connection. The last one needs root, for network namespaces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from plan import KILL, VANISH

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.node.settings import ReplicaSettings


class FaultyCluster(NamedTuple):
    """A cluster on loopback, not started yet, and its fault."""

    cluster: LocalCluster
    lose: Callable[[int], None]
    """Lose this node."""
    bring_back: Callable[[int], Awaitable[object]]
    """Start it again, or let it go on."""
    client_prefix: Sequence[str] = ()
    """What a client's command begins with, so that it reaches the cluster."""


@contextmanager
def faulty_cluster(fault: str, directory: Path, sessions: Mapping[str, str]) -> Iterator[FaultyCluster]:
    """A cluster that can suffer ``fault``. Call it before any thread is started."""
    with wired(directory, sessions) if fault == VANISH else nullcontext(local(fault, directory, sessions)) as faulty:
        try:
            yield faulty
        finally:
            faulty.cluster.kill()


def local(fault: str, directory: Path, sessions: Mapping[str, str]) -> FaultyCluster:
    """`kill` or `stop`."""
    cluster = LocalCluster(Plan(directory=directory, controller_settings=sessions))
    if fault == KILL:
        return FaultyCluster(cluster, cluster.kill_node, cluster.start_node)

    async def resume(node_id: int) -> None:
        cluster.nodes[node_id].resume()

    return FaultyCluster(cluster, lambda node_id: cluster.nodes[node_id].pause(), resume)


@contextmanager
def wired(directory: Path, sessions: Mapping[str, str]) -> Iterator[FaultyCluster]:
    """`vanish`: every process in a network namespace of its own, joined by a bridge."""
    from harness.cluster import NODE_SETTINGS, Cluster
    from harness.namespaces import Namespaces, ip

    # The settings of tests/chaos suit short tests; what is measured has the defaults.
    defaults = {name: str(ReplicaSettings.model_fields[name].default) for name in NODE_SETTINGS}
    with Namespaces() as namespaces:
        namespaces.enter_hub()

        def plug(node_id: int, state: str) -> None:
            # At the bridge: its own end of the cable does not notice either.
            ip("-n", namespaces.full("hub"), "link", "set", f"v-n{node_id}", state)

        async def plug_in(node_id: int) -> None:
            plug(node_id, "up")

        cluster = Cluster(directory, namespaces, controller_settings=sessions, node_settings=defaults)
        yield FaultyCluster(cluster, lambda node_id: plug(node_id, "down"), plug_in, namespaces.inside("cli0"))


def lacking(fault: str) -> str | None:
    """Why this fault cannot be had on this machine, in one sentence; None if it can."""
    if fault != VANISH:
        return None
    from harness.facilities import NAMESPACES, missing

    return "; ".join(missing([NAMESPACES])) or None
