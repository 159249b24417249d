"""A controller and data nodes, usually three, as real processes, each in its network namespace with its own directory.

Or, with several controllers: three of them, and three members of the etcd that keeps what they decide.

Invariant: it has the same interface as `LocalCluster`, so that `Probe` of tests/cluster works with it; the processes it
starts die with the driver.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.namespaces import ADDRESSES, CONTROLLERS, MEMBERS, Namespaces

from strandline.cli.connect import TlsOptions
from strandline.cli.local.certificate_folder import ensure_certificates, tls_of
from strandline.cli.local.local_cluster import flags
from strandline.cli.local.processes import Address, Exit, Service, read_address
from strandline.core.messages import Endpoint
from strandline.etcd.client import Etcd
from strandline.etcd.errors import EtcdError
from strandline.etcd.members import ELECTION_ARGUMENTS

START_TIMEOUT_MS = 60_000
STOP_GRACE_MS = 20_000
CONTROLLER = "ctl"
_CONTROLLER_PORT, _CLIENT_PORT, _INTERNAL_PORT = 9091, 9092, 9093
ETCD_PORT, ETCD_PEER_PORT = 2379, 2380
_LOOK_S = 0.05

Place = int | str
"""Which process: a data node by its id, one of several controllers (c1) or members of etcd (e1) by its namespace; 0 is
the only controller, or the first."""

SESSION_S = 3.0
LAG_S = 3.0
CONTROLLER_SETTINGS = {"session_timeout_ms": "3000", "heartbeat_interval_ms": "500"}
NODE_SETTINGS = {
    "replica_lag_time_max_ms": "3000",
    "tune": "replica_fetch_wait_max_ms=200,ping_every_ms=1000,ping_timeout_ms=1000",
    "segment_bytes": str(1 << 20),
    # A test machine's disk may be fuller than a server's.
    "low_space_bytes": "0",
}
"""The settings of RELIABILITY.md#the-load."""


def namespace(place: Place) -> str:
    """The namespace of a process; 0 is the only controller."""
    if isinstance(place, str):
        return place
    return f"n{place}" if place else CONTROLLER


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
        has_several: bool = False,
        etcd_arguments: Sequence[str] = (),
        node_ids: Sequence[int] = (1, 2, 3),
        has_tls: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        hosts = list(ADDRESSES.values())
        self.certificates = ensure_certificates(self.directory, node_ids, hosts) if has_tls else None
        self.namespaces = namespaces
        self.controller_settings = CONTROLLER_SETTINGS | dict(controller_settings or {})
        self.node_settings = NODE_SETTINGS | dict(node_settings or {})
        self.etcd_arguments = tuple(etcd_arguments)
        names = CONTROLLERS if has_several else (CONTROLLER,)
        self.controllers = {name: self._service(_name_of(name)) for name in names}
        self.members = {name: self._service(f"etcd-{name[1:]}") for name in (MEMBERS if has_several else ())}
        self.nodes = {node_id: self._service(f"node-{node_id}") for node_id in node_ids}
        self.wrapping: dict[Place, Wrapping] = {place: Wrapping() for place in (0, *self.places)}
        self.incarnations: dict[str, int] = {}
        self.ends: list[Exit] = []
        """Every end that was not requested, in the order in which it was noticed."""

    def _service(self, name: str) -> Service:
        return Service(
            name=name, command=(), directory=self.directory / name, output=self.directory / "logs" / f"{name}.log"
        )

    @property
    def places(self) -> list[Place]:
        """Every process, in the order in which they are started; 0 is the only controller."""
        controllers: list[Place] = [*self.controllers] if self.members else [0]
        return [*self.members, *controllers, *self.nodes]

    @property
    def controller(self) -> Service:
        """The controller, or the first of several."""
        return next(iter(self.controllers.values()))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{ADDRESSES[name]}:{_CONTROLLER_PORT}" for name in self.controllers)

    @property
    def etcd_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the members of etcd answer, in the order of their names."""
        return tuple(Endpoint(ADDRESSES[name], ETCD_PORT) for name in self.members)

    @property
    def services(self) -> list[Service]:
        return [*self.controllers.values(), *self.nodes.values()]

    def service(self, place: Place) -> Service:
        if isinstance(place, str):
            return self.members[place] if place in self.members else self.controllers[place]
        return self.nodes[place] if place else self.controller

    def client_tls(self, holder: str = "admin") -> TlsOptions:
        """What clients pass beside the bootstrap, as the administrator or another holder; empty without TLS."""
        if self.certificates is None:
            return TlsOptions(tls_cert="", tls_key="", tls_ca="")
        return tls_of(self.certificates, holder)

    def _own_tls(self, holder: str) -> dict[str, str]:
        return {name: str(value) for name, value in self.client_tls(holder).items() if value}

    def address(self, node_id: int) -> Address | None:
        """A node's last reported address."""
        return read_address(self.nodes[node_id].directory)

    async def start(self) -> None:
        """Starts what keeps decisions, then what decides, then all nodes; returns when each serves."""
        await self.start_members(*self.members)
        await asyncio.gather(*(self.start_node(place) for place in self.places if self._is_controller(place)))
        await asyncio.gather(*(self.start_node(node_id) for node_id in self.nodes))

    def _is_controller(self, place: Place) -> bool:
        return place == 0 or place in self.controllers

    async def start_controller(self, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        return await self.start_node(0, timeout_ms)

    async def start_node(self, place: Place, timeout_ms: int = START_TIMEOUT_MS) -> Address:
        """Starts one process of ours and waits until it serves."""
        self.launch(place)
        return await self.service(place).serving(timeout_ms)

    async def start_members(self, *names: str) -> None:
        """Starts members of etcd and waits until each knows a leader."""
        for name in names:
            self.launch(name)
        if not names:
            return
        client = Etcd(self.etcd_endpoints)
        try:
            async with asyncio.timeout(START_TIMEOUT_MS / 1000):
                for name in names:
                    await _until_led(client, Endpoint(ADDRESSES[name], ETCD_PORT))
        finally:
            await client.close()

    async def start_again(self, place: Place) -> None:
        """Starts a process of any kind and waits until it serves."""
        if place in self.members:
            await self.start_members(str(place))
        else:
            await self.start_node(place)

    def launch(self, place: Place) -> None:
        """Starts one process without waiting."""
        service = self.service(place)
        self.notice_ends()
        around = self.wrapping[place]
        service.command = [*self.namespaces.inside(namespace(place)), *around.prefix, *self._command(place)]
        service.environment = dict(around.environment)
        service.start()
        self.incarnations[service.name] = self.incarnations.get(service.name, 0) + 1

    def notice_ends(self) -> None:
        """Records processes that ended without a request."""
        for service in [*self.members.values(), *self.services]:
            end = service.found_dead()
            if end is not None:
                self.ends.append(end)
                service.end_expected = True

    async def stop(self) -> list[Exit]:
        """Stops the nodes together, then the controllers; returns how each running one ended."""
        self.notice_ends()
        ends = await _stopped(self.nodes.values())
        ends += await _stopped(self.controllers.values())
        await _stopped(self.members.values())
        return ends

    def kill(self) -> None:
        """Ends every process that still runs, at once."""
        for service in [*self.services, *self.members.values()]:
            service.resume()
            service.kill()

    def _command(self, place: Place) -> list[str]:
        if place in self.members:
            return self._etcd_command(str(place))
        host = ADDRESSES[namespace(place)]
        data_dir = str(self.service(place).directory)
        if self._is_controller(place):
            settings = {
                "data_dir": data_dir,
                "bind": f"{host}:{_CONTROLLER_PORT}",
                "insecure": "true",
                **self._own_tls("controller"),
                **self._store_settings(place),
                **self.controller_settings,
            }
            return [sys.executable, "-m", "strandline.controller", *flags(settings)]
        settings = {
            "node_id": str(place),
            "data_dir": data_dir,
            "controllers": self.bootstrap,
            "bind": f"{host}:{_CLIENT_PORT}",
            "internal_bind": f"{host}:{_INTERNAL_PORT}",
            # Its network exists only among the namespaces of one test.
            "insecure": "true",
            **self._own_tls(f"node-{place}"),
            **self.node_settings,
        }
        return [sys.executable, "-m", "strandline.node", *flags(settings)]

    def _store_settings(self, place: Place) -> dict[str, str]:
        if not self.members:
            return {}
        members = ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in self.etcd_endpoints)
        return {"store": "etcd", "controller_id": str(place), "etcd_endpoints": members}

    def _etcd_command(self, name: str) -> list[str]:
        client = f"http://{ADDRESSES[name]}:{ETCD_PORT}"
        return [
            "etcd", "--name", name, "--data-dir", str(self.members[name].directory / "data"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer_url(name), "--initial-advertise-peer-urls", peer_url(name),
            "--initial-cluster", initial_cluster(), "--initial-cluster-state", "new",
            "--initial-cluster-token", "strandline", "--logger", "zap", "--log-level", "warn",
            *ELECTION_ARGUMENTS, *self.etcd_arguments,
        ]  # fmt: skip


def peer_url(name: str) -> str:
    """Where the other members of etcd reach one."""
    return f"http://{ADDRESSES[name]}:{ETCD_PEER_PORT}"


def initial_cluster() -> str:
    """The members of etcd, as etcd's own flag names them."""
    return ",".join(f"{name}={peer_url(name)}" for name in MEMBERS)


def _name_of(controller: str) -> str:
    return "controller" if controller == CONTROLLER else f"controller-{controller[1:]}"


async def _stopped(services: Iterable[Service]) -> list[Exit]:
    ends = await asyncio.gather(*(each.stop(STOP_GRACE_MS) for each in services if each.running))
    return [end for end in ends if end is not None]


async def _until_led(client: Etcd, member: Endpoint) -> None:
    while True:
        try:
            if (await client.status(member)).leader:
                return
        except EtcdError:
            pass
        await asyncio.sleep(_LOOK_S)
