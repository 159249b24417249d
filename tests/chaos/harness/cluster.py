"""A controller and three data nodes as real processes, each in its network namespace with its own directory.

Invariant: it has the same interface as `LocalCluster`, so that `Probe` of tests/cluster works with it; the processes it
starts die with the driver.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.namespaces import ADDRESSES, Namespaces

from strandline.cli.local_cluster import flags
from strandline.cli.processes import Address, Exit, Service, read_address

START_TIMEOUT_MS = 60_000
STOP_GRACE_MS = 20_000
CONTROLLER = "ctl"
_CONTROLLER_PORT, _CLIENT_PORT, _INTERNAL_PORT = 9091, 9092, 9093

SESSION_S = 3.0
LAG_S = 3.0
CONTROLLER_SETTINGS = {"session_timeout_ms": "3000", "heartbeat_interval_ms": "500"}
NODE_SETTINGS = {
    "replica_lag_time_max_ms": "3000",
    "replica_fetch_wait_max_ms": "200",
    "segment_bytes": str(1 << 20),
    "ping_every_ms": "1000",
    "ping_timeout_ms": "1000",
    # A test machine's disk may be fuller than a server's.
    "low_space_bytes": "0",
}
"""The settings of RELIABILITY.md#the-load."""


def namespace(node_id: int) -> str:
    """The namespace of a node; 0 is the controller."""
    return f"n{node_id}" if node_id else CONTROLLER


@dataclass(slots=True)
class Wrapping:
    """What wraps one process: a command before its own (`faketime`, `fiu-run`), and variables."""

    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class Cluster:
    """The processes of one run. ``directory`` holds controller/, node-1/ ... and logs/.

    A data directory may be a mount point that exists before the process starts. ``wrapping[node_id]`` (0 for the
    controller) and the settings are read at every start, so that a fault may change them and restart the process.
    """

    def __init__(
        self,
        directory: Path,
        namespaces: Namespaces,
        *,
        controller_settings: Mapping[str, str] | None = None,
        node_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.namespaces = namespaces
        self.controller_settings = CONTROLLER_SETTINGS | dict(controller_settings or {})
        self.node_settings = NODE_SETTINGS | dict(node_settings or {})
        self.wrapping: dict[int, Wrapping] = {node_id: Wrapping() for node_id in range(4)}
        self.controller = self._service(0, "controller")
        self.nodes = {node_id: self._service(node_id, f"node-{node_id}") for node_id in (1, 2, 3)}
        self.incarnations: dict[str, int] = {}
        self.ends: list[Exit] = []
        """Every end that nobody asked for, in the order in which it was noticed."""

    def _service(self, node_id: int, name: str) -> Service:
        return Service(
            name=name,
            command=(),
            directory=self.directory / name,
            output=self.directory / "logs" / f"{name}.log",
        )

    @property
    def bootstrap(self) -> str:
        """The controller's address."""
        return f"{ADDRESSES[CONTROLLER]}:{_CONTROLLER_PORT}"

    @property
    def services(self) -> list[Service]:
        """Every process, the controller first."""
        return [self.controller, *self.nodes.values()]

    def service(self, node_id: int) -> Service:
        """A node's process; 0 is the controller."""
        return self.nodes[node_id] if node_id else self.controller

    def address(self, node_id: int) -> Address | None:
        """A node's last reported address."""
        return read_address(self.nodes[node_id].directory)

    async def start(self) -> None:
        """Starts the controller, then all nodes; returns when each serves."""
        await self.start_controller()
        await asyncio.gather(*(self.start_node(node_id) for node_id in self.nodes))

    async def start_controller(self, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        """Starts the controller and waits until it serves."""
        return await self.start_node(0, timeout_ms)

    async def start_node(self, node_id: int, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        """Starts one process (0: the controller) and waits until it serves."""
        self.launch(node_id)
        return await self.service(node_id).serving(timeout_ms)

    def launch(self, node_id: int) -> None:
        """Starts one process without waiting."""
        service = self.service(node_id)
        self.notice_ends()
        around = self.wrapping[node_id]
        service.command = [*self.namespaces.inside(namespace(node_id)), *around.prefix, *self._command(node_id)]
        service.environment = dict(around.environment)
        service.start()
        self.incarnations[service.name] = self.incarnations.get(service.name, 0) + 1

    def notice_ends(self) -> None:
        """Records processes that ended without a request."""
        for service in self.services:
            end = service.found_dead()
            if end is not None:
                self.ends.append(end)
                service.end_expected = True

    async def stop(self) -> list[Exit]:
        """Stops the nodes together, then the controller; returns how each running one ended."""
        self.notice_ends()
        running = [node for node in self.nodes.values() if node.running]
        ends = await asyncio.gather(*(node.stop(STOP_GRACE_MS) for node in running))
        last = await self.controller.stop(STOP_GRACE_MS) if self.controller.running else None
        return [end for end in [*ends, last] if end is not None]

    def kill(self) -> None:
        """Ends every process that still runs, at once."""
        for service in self.services:
            service.resume()
            service.kill()

    def _command(self, node_id: int) -> list[str]:
        host = ADDRESSES[namespace(node_id)]
        data_dir = str(self.service(node_id).directory)
        if node_id == 0:
            settings = {
                "data_dir": data_dir,
                "bind": f"{host}:{_CONTROLLER_PORT}",
                "insecure": "true",
                **self.controller_settings,
            }
            return [sys.executable, "-m", "strandline.controller", *flags(settings)]
        settings = {
            "node_id": str(node_id),
            "data_dir": data_dir,
            "controllers": self.bootstrap,
            "bind": f"{host}:{_CLIENT_PORT}",
            "internal_bind": f"{host}:{_INTERNAL_PORT}",
            # Its network exists only among the namespaces of one test.
            "insecure": "true",
            **self.node_settings,
        }
        return [sys.executable, "-m", "strandline.replica", *flags(settings)]
