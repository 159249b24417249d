"""What a cluster on one machine consists of: one controller, N data nodes, and one directory that holds it all.

Invariant: the directory is the cluster. Its ports are chosen by the kernel on the first start, written to
`cluster.json`, and used again on every later start, so that clients and peers find the same addresses.

    DIR/cluster.json      addresses
    DIR/controller/       the controller's store
    DIR/node-1/ ...       one data directory per node
    DIR/logs/             what each process printed: controller.log, node-1.log, ...
    DIR/certs/            with TLS: an authority, and a certificate for each process, a client and an administrator
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from strandline.cli.over_tls import TlsOptions
from strandline.cli.processes import Address, Exit, Service, read_address

CLUSTER_FILE = "cluster.json"
LOOPBACK = "127.0.0.1"

START_TIMEOUT_MS = 30_000
STOP_GRACE_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to start. Settings are service settings by their flag's name without dashes (`session_timeout_ms`)."""

    directory: Path
    nodes: int = 3
    workers: int = 1
    """Data nodes for each of ``nodes``, which then are machines: the workers of one have its rack
    (`replica.workers`)."""
    observers: int = 0
    controller_settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False
    """Whether everybody speaks TLS, with certificates in DIR/certs."""
    controller_module: Sequence[str] = ("-m", "strandline.controller")
    replica_module: Sequence[str] = ("-m", "strandline.replica")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The addresses a cluster had when it last ran; empty before the first start."""

    controller: str | None = None
    clients: Mapping[int, str] = field(default_factory=dict)
    internals: Mapping[int, str] = field(default_factory=dict)


class LocalCluster:
    """A controller and its data nodes as processes of this machine.

    Used by `strandline up`, by `strandline demo`, and by the tests and measurements that need real processes.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.directory = plan.directory.resolve()
        self._ports = read_ports(self.directory)
        self.controller = self._controller_service()
        self.nodes: dict[int, Service] = {node_id: self._node_service(node_id) for node_id in self.node_ids}

    @property
    def node_ids(self) -> list[int]:
        """Ids of all data nodes, observers last."""
        return list(range(1, self._leading + self.plan.observers + 1))

    @property
    def _leading(self) -> int:
        """How many data nodes may lead."""
        return self.plan.nodes * self.plan.workers

    @property
    def bootstrap(self) -> str:
        """What clients pass as `--bootstrap`; known once the controller served for the first time."""
        assert self._ports.controller is not None, "the controller has not served yet"
        return self._ports.controller

    def client_tls(self, holder: str = "admin") -> TlsOptions:
        """What clients pass beside the bootstrap, as the administrator or another holder; empty without TLS."""
        if not self.plan.tls:
            return TlsOptions(tls_cert="", tls_key="", tls_ca="")
        from strandline.cli.local_tls import FOLDER, tls_of

        return tls_of(self.directory / FOLDER, holder)

    @property
    def services(self) -> list[Service]:
        """Every process of the cluster, the controller first."""
        return [self.controller, *self.nodes.values()]

    async def start(self, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Starts the controller, then all nodes at once; returns when each serves.

        Raises:
            ServiceDied: when a process ends before it serves.
            TimeoutError: when one does not serve in time.
        """
        await self.start_controller(timeout_ms)
        for node_id, service in self.nodes.items():
            service.command = self._node_command(node_id)
            service.start()
        await asyncio.gather(*(self._await_node(node_id, timeout_ms) for node_id in self.nodes))

    async def start_controller(self, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        """Starts the controller (at its old address, if it had one) and waits until it serves."""
        if self.plan.tls:
            from strandline.cli.local_tls import ensure_certificates

            ensure_certificates(self.directory, self.node_ids)
        self.controller.command = self._controller_command()
        self.controller.start()
        address = await self.controller.serving(timeout_ms)
        self._remember(Ports(controller=address.client, clients=self._ports.clients, internals=self._ports.internals))
        return address

    async def start_node(self, node_id: int, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        """Starts one node (at its old addresses, if it had any) and waits until it serves."""
        self.nodes[node_id].command = self._node_command(node_id)
        self.nodes[node_id].start()
        return await self._await_node(node_id, timeout_ms)

    def kill_node(self, node_id: int) -> None:
        """`kill -9` of one node."""
        self.nodes[node_id].kill()

    def address(self, node_id: int) -> Address | None:
        """Where a node said it serves, last."""
        return read_address(self.nodes[node_id].directory)

    async def stop(self, grace_ms: int = STOP_GRACE_MS) -> list[Exit]:
        """Stops the nodes together, then the controller, and says how each ended."""
        ends = await asyncio.gather(*(node.stop(grace_ms) for node in self.nodes.values()))
        return [end for end in [*ends, await self.controller.stop(grace_ms)] if end is not None]

    def kill(self) -> None:
        """Ends whatever still runs, at once: the last resort when `stop` was interrupted."""
        for service in self.services:
            service.kill()

    async def _await_node(self, node_id: int, timeout_ms: int) -> Address:
        address = await self.nodes[node_id].serving(timeout_ms)
        self._remember(
            Ports(
                controller=self._ports.controller,
                clients={**self._ports.clients, node_id: address.client},
                internals={**self._ports.internals, node_id: address.internal or address.client},
            )
        )
        return address

    def _remember(self, ports: Ports) -> None:
        self._ports = ports
        write_ports(self.directory, ports)

    def _controller_service(self) -> Service:
        return Service(
            name="controller",
            command=(),
            directory=self.directory / "controller",
            output=self.directory / "logs" / "controller.log",
        )

    def _node_service(self, node_id: int) -> Service:
        return Service(
            name=f"node-{node_id}",
            command=(),
            directory=self.directory / f"node-{node_id}",
            output=self.directory / "logs" / f"node-{node_id}.log",
        )

    def _controller_command(self) -> list[str]:
        settings = {
            "data_dir": str(self.directory / "controller"),
            "bind": self._ports.controller or f"{LOOPBACK}:0",
            **self._own_tls("controller"),
            **self.plan.controller_settings,
        }
        return [sys.executable, *self.plan.controller_module, *flags(settings)]

    def _own_tls(self, holder: str) -> dict[str, str]:
        return {name: str(value) for name, value in self.client_tls(holder).items() if value}

    def _own_rack(self, node_id: int) -> dict[str, str]:
        if self.plan.workers == 1 or node_id > self._leading:
            return {}
        return {"rack": f"machine-{(node_id - 1) // self.plan.workers + 1}"}

    def _node_command(self, node_id: int) -> list[str]:
        settings = {
            "node_id": str(node_id),
            "data_dir": str(self.directory / f"node-{node_id}"),
            "controllers": self.bootstrap,
            "bind": self._ports.clients.get(node_id, f"{LOOPBACK}:0"),
            "internal_bind": self._ports.internals.get(node_id, f"{LOOPBACK}:0"),
            "roles": "follower" if node_id > self._leading else "leader,follower",
            **self._own_rack(node_id),
            **self._own_tls(f"node-{node_id}"),
            **self.plan.node_settings,
        }
        return [sys.executable, *self.plan.replica_module, *flags(settings)]


def flags(settings: Mapping[str, str]) -> list[str]:
    """`{"session_timeout_ms": "1500"}` as `["--session-timeout-ms", "1500"]`, in the mapping's order."""
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]


def read_ports(directory: Path) -> Ports:
    """The addresses in `cluster.json`; empty when the directory is new."""
    try:
        written = json.loads((directory / CLUSTER_FILE).read_text())
    except FileNotFoundError:
        return Ports()
    return Ports(
        controller=written["controller"],
        clients={int(node_id): address for node_id, address in written["clients"].items()},
        internals={int(node_id): address for node_id, address in written["internals"].items()},
    )


def write_ports(directory: Path, ports: Ports) -> None:
    """Writes `cluster.json` whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{CLUSTER_FILE}.new"
    fresh.write_text(json.dumps(asdict(ports), indent=2) + "\n")
    fresh.replace(directory / CLUSTER_FILE)
