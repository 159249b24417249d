"""The cluster that users start with one command: deploy/compose/compose.yaml."""

from __future__ import annotations

import asyncio
import urllib.request
import uuid
from collections.abc import Iterator

import docker
import grpc
import pytest
import yaml
from composer import FILE, Composed, composed
from container_cluster import free_ports
from engine import NoEngine
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from running_cluster import until

from strandline import __version__
from strandline.client import Admin, Consumer, Producer

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]

_NAMES = ("CONTROLLER", "REPLICA_1", "REPLICA_2", "REPLICA_3", "CONSOLE", "ANALYTICS")
_SERVICES = ("analytics", "console", "controller", "replica-1", "replica-2", "replica-3")
_RECORDS = 20


@pytest.fixture
def project(image: str, analytics_image: str) -> Iterator[Composed]:
    """A project on free ports; removed at the end with its volumes."""
    ports = dict(zip(_NAMES, map(str, free_ports(len(_NAMES))), strict=True))
    variables = {f"STRANDLINE_{name}_PORT": port for name, port in ports.items()}
    try:
        with composed(f"strandline{uuid.uuid4().hex[:8]}", variables) as made:
            yield made
    except NoEngine as trouble:
        pytest.skip(str(trouble))


def test_the_file_names_this_version() -> None:
    """Without a variable the images are those that `make images` builds from this tree."""
    services = yaml.safe_load(FILE.read_text())["services"]

    assert {service["image"] for service in services.values()} == {
        f"strandline:${{STRANDLINE_VERSION:-{__version__}}}",
        f"strandline-analytics:${{STRANDLINE_VERSION:-{__version__}}}",
    }


def test_nothing_is_published_beyond_loopback() -> None:
    """Without TLS it is reachable only from loopback and the project's own network."""
    services = yaml.safe_load(FILE.read_text())["services"]
    published = [port for service in services.values() for port in service.get("ports", [])]

    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert services["console"]["environment"]["STRANDLINE_BIND"].startswith("127.0.0.1:")


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
