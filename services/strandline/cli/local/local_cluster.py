"""A cluster on one machine: a controller, N data nodes, and one directory that has everything.

With several controllers there are also three members of etcd, which store what the controllers decide.

Invariant: the directory is the cluster. Its ports are chosen by the kernel on the first start, written to
`cluster.json`, and used again on every later start, so that clients and peers find the same addresses.

    DIR/cluster.json      addresses
    DIR/controller/       the controller's store; of several, DIR/controller-1/ ... and DIR/etcd/
    DIR/node-1/ ...       one data directory per node
    DIR/logs/             what each process printed: controller.log, node-1.log, ...
    DIR/certs/            with TLS: an authority, and a certificate for each process, a client and an administrator
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.connect import TlsOptions
from strandline.cli.local.processes import Address, Exit, Service, read_address

if TYPE_CHECKING:
    from strandline.etcd.members import Members

CLUSTER_FILE = "cluster.json"
LOOPBACK = "127.0.0.1"

ETCD_MEMBERS = 3
ETCD_ARGUMENTS = ("--logger", "zap", "--log-level", "warn")
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
    """Whether all processes speak TLS, with certificates in DIR/certs."""
    controllers: int = 1
    """More than one: on three members of etcd."""
    controller_module: Sequence[str] = ("-m", "strandline.controller")
    replica_module: Sequence[str] = ("-m", "strandline.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The addresses a cluster had when it last ran; empty before the first start."""

    controller: str | None = None
    controllers: Mapping[int, str] = field(default_factory=dict)
    """The addresses of each of several controllers."""
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
        self.etcd: Members | None = None
        self.controllers = {n: self._service(self._controller_name(n)) for n in self.controller_numbers}
        self.nodes = {node_id: self._service(f"node-{node_id}") for node_id in self.node_ids}

    @property
    def node_ids(self) -> list[int]:
        """Ids of all data nodes, observers last."""
        return list(range(1, self._leading + self.plan.observers + 1))

    @property
    def _leading(self) -> int:
        """How many data nodes may lead."""
        return self.plan.nodes * self.plan.workers

    @property
    def controller_numbers(self) -> list[int]:
        """Numbers of the controllers, from 1 on."""
        return list(range(1, self.plan.controllers + 1))

    @property
    def controller(self) -> Service:
        """The controller, or the first one."""
        return self.controllers[1]

    @property
    def bootstrap(self) -> str:
        """What clients pass as `--bootstrap`; known once the controllers served for the first time."""
        assert self._ports.controller is not None, "the controller has not served yet"
        if self.plan.controllers == 1:
            return self._ports.controller
        return ",".join(self._ports.controllers[number] for number in self.controller_numbers)

    @property
    def bootstrap_with_nodes(self) -> str:
        """The same with every data node, from which clients can start while no controller is active."""
        nodes = [
            address.client for node in self.nodes.values() if (address := read_address(node.directory)) is not None
        ]
        return ",".join([self.bootstrap, *nodes])

    def client_tls(self, holder: str = "admin") -> TlsOptions:
        """What clients pass besides the bootstrap, as the administrator or another holder; empty without TLS."""
        if not self.plan.tls:
            return TlsOptions(tls_cert="", tls_key="", tls_ca="")
        from strandline.cli.local.certificate_folder import FOLDER, tls_of

        return tls_of(self.directory / FOLDER, holder)

    @property
    def services(self) -> list[Service]:
        """Every process of ours in the cluster, the controllers first."""
        return [*self.controllers.values(), *self.nodes.values()]

    async def start(self, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Starts the controller, then all nodes at once; returns when each serves.

        Raises:
            ServiceDied: when a process ends before it serves.
            TimeoutError: when one does not serve in time.
        """
        if self.plan.controllers > 1:
            await self._start_etcd(timeout_ms)
        await asyncio.gather(*(self.start_controller(timeout_ms, number=n) for n in self.controller_numbers))
        for node_id, service in self.nodes.items():
            service.command = self._node_command(node_id)
            service.start()
        await asyncio.gather(*(self._await_node(node_id, timeout_ms) for node_id in self.nodes))

    async def start_controller(self, timeout_ms: int = START_TIMEOUT_MS, *, number: int = 1) -> Address:
        """Starts one controller (at its old address, if it had one) and waits until it serves."""
        if self.plan.tls:
            from strandline.cli.local.certificate_folder import ensure_certificates

            ensure_certificates(self.directory, self.node_ids)
        service = self.controllers[number]
        service.command = self._controller_command(number)
        service.start()
        address = await service.serving(timeout_ms)
        first = address.client if number == 1 else self._ports.controller
        known = {**self._ports.controllers, number: address.client}
        self._remember(replace(self._ports, controller=first, controllers=known))
        return address

    async def _start_etcd(self, timeout_ms: int) -> None:
        from strandline.etcd.client import Etcd
        from strandline.etcd.members import Members

        if self.etcd is None:
            self.etcd = Members(self.directory / "etcd", ETCD_MEMBERS, arguments=ETCD_ARGUMENTS)
        self.etcd.start()
        client = Etcd(self.etcd.endpoints)
        try:
            await client.until_serving(timeout_ms / 1000)
        finally:
            await client.close()

    async def start_node(self, node_id: int, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        """Starts one node (at its old addresses, if it had any) and waits until it serves."""
        self.nodes[node_id].command = self._node_command(node_id)
        self.nodes[node_id].start()
        return await self._await_node(node_id, timeout_ms)

    def kill_node(self, node_id: int) -> None:
        """`kill -9` of one node."""
        self.nodes[node_id].kill()

    def address(self, node_id: int) -> Address | None:
        """The address that a node reported last."""
        return read_address(self.nodes[node_id].directory)

    async def stop(self, grace_ms: int = STOP_GRACE_MS) -> list[Exit]:
        """Stops the nodes together, then the controller, and says how each ended."""
        ends = await asyncio.gather(*(node.stop(grace_ms) for node in self.nodes.values()))
        ends += await asyncio.gather(*(controller.stop(grace_ms) for controller in self.controllers.values()))
        if self.etcd is not None:
            await asyncio.to_thread(self.etcd.close)
        return [end for end in ends if end is not None]

    def kill(self) -> None:
        """Ends whatever still runs, at once: the last resort when `stop` was interrupted."""
        for service in self.services:
            service.kill()
        if self.etcd is not None:
            self.etcd.close()

    async def _await_node(self, node_id: int, timeout_ms: int) -> Address:
        address = await self.nodes[node_id].serving(timeout_ms)
        self._remember(
            replace(
                self._ports,
                clients={**self._ports.clients, node_id: address.client},
                internals={**self._ports.internals, node_id: address.internal or address.client},
            )
        )
        return address

    def _remember(self, ports: Ports) -> None:
        self._ports = ports
        write_ports(self.directory, ports)

    def _controller_name(self, number: int) -> str:
        return "controller" if self.plan.controllers == 1 else f"controller-{number}"

    def _service(self, name: str) -> Service:
        return Service(
            name=name, command=(), directory=self.directory / name, output=self.directory / "logs" / f"{name}.log"
        )

    def _controller_command(self, number: int) -> list[str]:
        bound = self._ports.controller if self.plan.controllers == 1 else self._ports.controllers.get(number)
        settings = {
            "data_dir": str(self.directory / self._controller_name(number)),
            "bind": bound or f"{LOOPBACK}:0",
            **self._etcd_settings(number),
            **self._own_tls("controller"),
            **self._factor_settings(),
            **self.plan.controller_settings,
        }
        return [sys.executable, *self.plan.controller_module, *flags(settings)]

    def _factor_settings(self) -> dict[str, str]:
        """On fewer than three nodes the topic of groups has as many replicas as there are nodes."""
        return {"internal_replication_factor": str(self._leading)} if 0 < self._leading < 3 else {}

    def _etcd_settings(self, number: int) -> dict[str, str]:
        if self.etcd is None:
            return {}
        members = ",".join(f"{member.host}:{member.port}" for member in self.etcd.endpoints)
        return {"store": "etcd", "controller_id": self._controller_name(number), "etcd_endpoints": members}

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
        controllers={int(number): address for number, address in written.get("controllers", {}).items()},
        clients={int(node_id): address for node_id, address in written["clients"].items()},
        internals={int(node_id): address for node_id, address in written["internals"].items()},
    )


def write_ports(directory: Path, ports: Ports) -> None:
    """Writes `cluster.json` whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{CLUSTER_FILE}.new"
    fresh.write_text(json.dumps(asdict(ports), indent=2) + "\n")
    fresh.replace(directory / CLUSTER_FILE)
