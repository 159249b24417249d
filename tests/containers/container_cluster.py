"""A controller and three data nodes as containers of the project's image, with the restrictions of a real cluster.

They have no root, no writable root file system, no capability, and settings from variables. Every container is on two
networks: `clients`, whose ports are published on loopback, and `replication`, which connects nodes and controller.

Invariant: it has the same interface as `LocalCluster` and the cluster of tests/chaos, so that their `Probe` and `Load`
work with it; everything it created is gone after `remove`, also when starting failed half way.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import docker.errors
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from strandline.cli.local.processes import Address

CONTROLLER = 0
NODES = (1, 2, 3)

_CLIENTS, _INTERNAL, _HEALTH = 9092, 9093, 9094
_DATA, _EXPORT, _TLS = "/var/lib/strandline", "/export", "/tls"
_STOP_S = 30

CONTROLLER_SETTINGS = {
    "session_timeout_ms": "3000",
    "heartbeat_interval_ms": "500",
    # Leaders change only by what a test does.
    "auto_leader_rebalance_enable": "false",
}
NODE_SETTINGS = {
    "replica_lag_time_max_ms": "5000",
    "tune": "replica_fetch_wait_max_ms=200,ping_every_ms=1000,ping_timeout_ms=1000",
    "segment_bytes": str(1 << 20),
    # A test machine's disk may be fuller than a server's.
    "low_space_bytes": "0",
}
# Files end soon, because a process that is killed loses its open file.
_COMMON = {"export_dir": _EXPORT, "export_roll_s": "1", "health_bind": f"0.0.0.0:{_HEALTH}"}


class Here:
    """Where the clients of `Load` run: on this machine, in no namespace."""

    def inside(self, name: str) -> list[str]:
        """The words before a command."""
        return []


@dataclass(slots=True)
class ContainerCluster:
    """The containers of ``directory``: controller/, node-1/ ... as data directories, export/, and logs/ at the end."""

    image: str
    directory: Path
    controller_settings: Mapping[str, str] = field(default_factory=lambda: CONTROLLER_SETTINGS)
    node_settings: Mapping[str, str] = field(default_factory=lambda: NODE_SETTINGS)
    certificates: Path | None = None
    """What `strandline certs new` made; None: without TLS."""
    namespaces: Here = field(default_factory=Here)
    _clients: Network = field(default_factory=Network)
    _replication: Network = field(default_factory=lambda: Network(docker_network_kw={"internal": True}))
    _made: list[Network] = field(default_factory=list)
    _containers: dict[int, DockerContainer] = field(default_factory=dict)
    _ports: dict[int, int] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The controller's address for clients."""
        return f"127.0.0.1:{self._ports[CONTROLLER]}"

    @property
    def nodes(self) -> dict[int, SimpleNamespace]:
        """The data directories of the nodes."""
        return {node_id: SimpleNamespace(directory=self.directory_of(node_id)) for node_id in NODES}

    def address(self, node_id: int) -> Address | None:
        """A node's address for clients."""
        return Address(pid=0, client=f"127.0.0.1:{self._ports[node_id]}", node_id=node_id)

    def directory_of(self, node_id: int) -> Path:
        """The data directory of a node, 0 for the controller, on this machine."""
        return self.directory / name_of(node_id)

    @property
    def export(self) -> Path:
        """The directory to which all of them export their state events."""
        return self.directory / "export"

    def start(self) -> None:
        """Creates the networks and starts all containers; does not wait until they serve."""
        for folder in (self.export, *map(self.directory_of, (CONTROLLER, *NODES))):
            folder.mkdir(parents=True)
            # The user inside differs from the user of the test.
            folder.chmod(0o777)
        self._ports = dict(zip((CONTROLLER, *NODES), free_ports(1 + len(NODES)), strict=True))
        for network in (self._clients, self._replication):
            network.create()
            self._made.append(network)
        self._containers = {each: self._container(each) for each in (CONTROLLER, *NODES)}
        self._launch(CONTROLLER)
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(self._launch, NODES))

    def container(self, node_id: int) -> Container:
        """The engine's view of a container; 0 is the controller."""
        return self._containers[node_id].get_wrapped_container()

    def _container(self, node_id: int) -> DockerContainer:
        role = "replica" if node_id else "controller"
        made = DockerContainer(
            self.image,
            command=role,
            network=self._clients,
            network_aliases=[name_of(node_id)],
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
        )
        made.with_envs(**{f"STRANDLINE_{name.upper()}": value for name, value in self._settings(node_id).items()})
        made.with_volume_mapping(self.directory_of(node_id), _DATA, "rw")
        made.with_volume_mapping(self.export, _EXPORT, "rw")
        if self.certificates:
            made.with_volume_mapping(self.certificates / name_of(node_id), _TLS, "ro")
        # On loopback only, and always the same, so that clients' addresses stay valid after a restart.
        made.ports[f"{_CLIENTS}/tcp"] = ("127.0.0.1", self._ports[node_id])  # type: ignore[assignment]
        return made

    def _settings(self, node_id: int) -> dict[str, str]:
        settings = {"data_dir": _DATA, "bind": f"0.0.0.0:{_CLIENTS}", "internal_bind": f"0.0.0.0:{_INTERNAL}"} | _COMMON
        if self.certificates:
            settings |= self._files(_TLS)
        else:
            settings["insecure"] = "true"
        if node_id == CONTROLLER:
            return settings | dict(self.controller_settings)
        settings |= {
            "node_id": str(node_id),
            "controllers": f"controller.replication:{_INTERNAL}",
            "advertise": f"127.0.0.1:{self._ports[node_id]}",
            "internal_advertise": f"{name_of(node_id)}.replication",
        }
        return settings | dict(self.node_settings)

    def client_tls(self, holder: str = "admin") -> dict[str, str]:
        """The files of one holder, on this machine; empty without TLS."""
        return self._files(str(self.certificates / holder)) if self.certificates else dict.fromkeys(self._files(""), "")

    @staticmethod
    def _files(folder: str) -> dict[str, str]:
        return {"tls_cert": f"{folder}/tls.crt", "tls_key": f"{folder}/tls.key", "tls_ca": f"{folder}/ca.crt"}

    def _launch(self, node_id: int) -> None:
        self._containers[node_id].start()
        self.connect(node_id)

    def remove(self) -> None:
        """Ends and removes everything, and leaves the containers' output in logs/."""
        logs = self.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for node_id, container in self._containers.items():
            with contextlib.suppress(Exception):
                (logs / f"{name_of(node_id)}.log").write_bytes(container.get_wrapped_container().logs())
            with contextlib.suppress(docker.errors.NotFound):
                container.stop()
        for network in self._made:
            with contextlib.suppress(docker.errors.NotFound):
                network.remove()

    def is_running(self, node_id: int) -> bool:
        """Whether the process of a container lives."""
        self.container(node_id).reload()
        return bool(self.container(node_id).status == "running")

    def stop(self, node_id: int) -> int:
        """Sends SIGTERM, which the image names as stop signal; returns the exit code."""
        self.container(node_id).stop(timeout=_STOP_S)
        return int(self.container(node_id).wait(timeout=_STOP_S)["StatusCode"])

    def start_again(self, node_id: int) -> None:
        """Starts a container that has ended, or is about to."""
        self.container(node_id).wait(timeout=_STOP_S)
        self.container(node_id).start()

    def connect(self, node_id: int) -> None:
        """Connects a container to the network of the nodes."""
        self._replication.connect(str(self.container(node_id).id), [f"{name_of(node_id)}.replication"])

    def heal(self) -> None:
        """Starts the stopped containers."""
        for node_id in (CONTROLLER, *NODES):
            if not self.is_running(node_id):
                self.start_again(node_id)

    def said(self, node_id: int) -> str:
        """All output of a container."""
        return str(self.container(node_id).logs().decode(errors="replace"))

    def epitaphs(self) -> list[str]:
        """The last lines of containers that do not run."""
        return [
            f"{name_of(node_id)} has ended: {' | '.join(self.said(node_id).strip().splitlines()[-3:])}"
            for node_id in self._containers
            if not self.is_running(node_id)
        ]

    def alarms(self) -> list[str]:
        """Lines that only a defect writes."""
        words = ("level=error", "level=critical", '"level":"error"', '"level": "error"', "Traceback", "AssertionError")
        return [
            f"{name_of(node_id)}: {line[:300]}"
            for node_id in self._containers
            for line in self.said(node_id).splitlines()
            if any(word in line for word in words)
        ]


def name_of(node_id: int) -> str:
    """The name of a container and of its data directory."""
    return f"node-{node_id}" if node_id else "controller"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
