"""The cluster that users start with one command: deploy/compose/compose.yaml."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import grpc
import pytest
import yaml
from container_cluster import free_ports
from engine import ROOT, NoEngine
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from running_cluster import until

from strandline import __version__
from strandline.client import Admin, Consumer, Producer

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]

_NAMES = ("CONTROLLER", "REPLICA_1", "REPLICA_2", "REPLICA_3", "CONSOLE", "ANALYTICS")
_SERVICES = ("analytics", "console", "controller", "replica-1", "replica-2", "replica-3")
_CONTROLLERS = ("controller", "controller-2", "controller-3")
_RECORDS = 20
FILE = ROOT / "deploy" / "compose" / "compose.yaml"
SEVERAL = ROOT / "deploy" / "compose" / "controllers.yaml"
"""What makes three controllers of its one."""
_COMMAND_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """One project: its name, the words of the command, and the variables of the file."""

    name: str
    words: tuple[str, ...]
    variables: Mapping[str, str]

    def run(self, *words: str) -> str:
        """A command of compose, which must succeed; returns its output."""
        done = subprocess.run(
            [*self.words, *words],
            env={**os.environ, **self.variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        assert done.returncode == 0, f"compose {' '.join(words)}: {done.stderr[-1_000:]}"
        return done.stdout


@contextmanager
def composed(project: str, variables: Mapping[str, str], *over: Path) -> Iterator[Composed]:
    """A project for the length of a block, of the file and of what is laid over it; nothing is started.

    Raises:
        NoEngine: there is no compose.
    """
    files = [word for file in (FILE, *over) for word in ("--file", str(file))]
    made = Composed(name=project, words=(*composer(), "--project-name", project, *files), variables=variables)
    try:
        yield made
    finally:
        made.run("--profile", "analytics", "down", "--volumes", "--timeout", "30")


def composer() -> tuple[str, ...]:
    """The plugin if it exists, else docker-compose.

    Raises:
        NoEngine: neither exists.
    """
    plugin = ["docker", "compose", "version"]
    if shutil.which("docker") and subprocess.run(plugin, check=False, capture_output=True, timeout=30).returncode == 0:
        return ("docker", "compose")
    if not shutil.which("docker-compose"):
        raise NoEngine("neither the compose plugin of docker nor docker-compose is there; as root: make packages")
    return ("docker-compose",)


def _project(names: tuple[str, ...], *over: Path) -> Iterator[Composed]:
    """A project on free ports; removed at the end with its volumes."""
    ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
    variables = {f"STRANDLINE_{name}_PORT": port for name, port in ports.items()}
    try:
        with composed(f"strandline{uuid.uuid4().hex[:8]}", variables, *over) as made:
            yield made
    except NoEngine as trouble:
        pytest.skip(str(trouble))


@pytest.fixture
def project(image: str, analytics_image: str) -> Iterator[Composed]:
    """The cluster of one controller."""
    yield from _project(_NAMES)


@pytest.fixture
def several(image: str, etcd_image: str) -> Iterator[Composed]:
    """The one of several controllers."""
    yield from _project((*_NAMES, "CONTROLLER_2", "CONTROLLER_3"), SEVERAL)


def _services_of(path: Path) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return services


def test_the_files_name_this_version() -> None:
    """Without a variable the images are those that `make images` builds from this tree."""
    services = [*_services_of(FILE).values(), *_services_of(SEVERAL).values()]

    assert {service["image"] for service in services if "image" in service} == {
        f"{image}:${{STRANDLINE_VERSION:-{__version__}}}"
        for image in ("strandline", "strandline-analytics", "strandline-etcd")
    }


def test_nothing_is_published_beyond_loopback() -> None:
    """Without TLS it is reachable only from loopback and the project's own network; etcd is not reachable at all."""
    services = _services_of(FILE)
    over = _services_of(SEVERAL)
    published = [port for service in (*services.values(), *over.values()) for port in service.get("ports", [])]

    assert published
    assert [name for name, service in over.items() if name.startswith("etcd") and "ports" in service] == []
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert services["console"]["environment"]["STRANDLINE_BIND"].startswith("127.0.0.1:")


def test_several_controllers_are_what_everybody_is_told() -> None:
    """Nodes dial every controller, controllers every member, and each says its own name and its published port."""
    over = _services_of(SEVERAL)
    members = [name for name in over if name.startswith("etcd")]
    settings = [over[name]["environment"] for name in _CONTROLLERS]

    assert {name for name in over if name.startswith("controller")} == set(_CONTROLLERS)
    for node in ("replica-1", "replica-2", "replica-3"):
        assert over[node]["environment"]["STRANDLINE_CONTROLLERS"].split(",") == [
            f"{name}:9093" for name in _CONTROLLERS
        ]
    assert [each["STRANDLINE_INTERNAL_ADVERTISE"] for each in settings] == list(_CONTROLLERS)
    assert len({each["STRANDLINE_CONTROLLER_ID"] for each in settings}) == 3
    assert all(
        each["STRANDLINE_ETCD_ENDPOINTS"].split(",") == [f"{name}:2379" for name in members] for each in settings
    )
    assert all(over[name]["environment"]["ETCD_NAME"] == name for name in members)


async def test_the_controller_that_decides_is_killed(several: Composed) -> None:
    """Three controllers and etcd start; with the active one killed another one creates a topic; all of it ends."""
    ports = [several.variables[f"STRANDLINE_{name}_PORT"] for name in ("CONTROLLER", "CONTROLLER_2", "CONTROLLER_3")]
    bootstrap = [f"127.0.0.1:{port}" for port in ports]
    several.run("up", "--detach", *_CONTROLLERS, "replica-1", "replica-2", "replica-3")
    await until(lambda: _serving(",".join(bootstrap)), "three data nodes serve", timeout_s=120)
    async with Admin(",".join(bootstrap)) as admin:
        await admin.create_topic("tides", partitions=3, replication_factor=3)
    active = await until(lambda: _active(bootstrap), "a controller says that it decides", timeout_s=60)
    several.run("kill", _CONTROLLERS[int(active[-1]) - 1])
    others = [address for number, address in enumerate(bootstrap, 1) if number != int(active[-1])]

    async def created() -> bool:
        async with Admin(",".join(others), timeout_ms=5_000) as admin:
            if "waves" not in {topic.name for topic in (await admin.metadata()).topics}:
                await admin.create_topic("waves", partitions=1, replication_factor=3)
        return await _active(others) not in ("", active)

    await until(created, "another controller decides", timeout_s=60)
    async with Producer(",".join(others)) as producer:
        await producer.send_and_wait("waves", b"0")
    async with Admin(",".join(others)) as admin:
        assert {topic.name for topic in (await admin.metadata()).topics} == {"tides", "waves"}


async def test_up_produce_read_down(project: Composed) -> None:
    """The cluster starts, serves the console, accepts records, keeps them over a restart, computes statistics, ends."""
    bootstrap = f"127.0.0.1:{project.variables['STRANDLINE_CONTROLLER_PORT']}"
    project.run("up", "--detach")
    await until(lambda: _serving(bootstrap), "three data nodes serve", timeout_s=90)
    async with Admin(bootstrap) as admin:
        await admin.create_topic("tides", partitions=3, replication_factor=3)
    async with Producer(bootstrap) as producer:
        for number in range(_RECORDS):
            await producer.send_and_wait("tides", str(number).encode())
    console = f"http://127.0.0.1:{project.variables['STRANDLINE_CONSOLE_PORT']}/"
    await until(lambda: _shown(console), "the console shows its first page", timeout_s=60)
    project.run("restart")
    await until(lambda: _serving(bootstrap), "three data nodes serve again", timeout_s=90)
    found = await _read(bootstrap)
    project.run("--profile", "analytics", "up", "--detach")
    analytics = f"127.0.0.1:{project.variables['STRANDLINE_ANALYTICS_PORT']}"
    await until(lambda: _healthy(analytics), "the analytics' service answers", timeout_s=180)
    project.run("--profile", "analytics", "stop")

    assert sorted(found) == list(range(_RECORDS))
    assert _codes(project) == dict.fromkeys(_SERVICES, 0)


def _codes(project: Composed) -> dict[str, int]:
    """By service: how its container ended."""
    client = docker.from_env()
    try:
        label = f"com.docker.compose.project={project.name}"
        found = client.containers.list(all=True, filters={"label": label})
        return {each.labels["com.docker.compose.service"]: each.wait(timeout=5)["StatusCode"] for each in found}
    finally:
        client.close()


async def _healthy(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await HealthStub(channel).Check(HealthCheckRequest(), timeout=5)
    return bool(answer.status == HealthCheckResponse.SERVING)


async def _active(addresses: list[str]) -> str:
    """The id of the controller that decides; empty while none has said so."""
    async with Admin(",".join(addresses), timeout_ms=5_000) as admin:
        found = await admin.describe_controllers()
    return next((one.controller_id for one in found if one.is_active), "")


async def _serving(bootstrap: str) -> bool:
    async with Admin(bootstrap, timeout_ms=5_000) as admin:
        nodes = (await admin.metadata()).nodes
    return len(nodes) == 3 and not any(node.fenced for node in nodes)


async def _shown(address: str) -> bool:
    return await asyncio.to_thread(_status, address) == 200


def _status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=5) as page:
            return int(page.status)
    except OSError:
        return 0


async def _read(bootstrap: str) -> list[int]:
    async with Consumer(bootstrap, stop_at_end=True) as consumer:
        await consumer.assign(["tides"])
        return [int(record.value or b"-1") async for record in consumer]
