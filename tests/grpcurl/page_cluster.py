"""The cluster of transcript.md: a controller, three nodes that export, and an analytics server.

Invariant: everything it starts it stops; nothing waits without a deadline.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.rpc.channels import open_channel, parse_endpoint
from strandline.rpc.tls import Tls, open_tls

_START_S = 90.0
_STOP_S = 20.0


@contextmanager
def page_cluster(directory: Path) -> Iterator[dict[str, str]]:
    """The variables that the reader of the page sets by hand, while the cluster runs; analytics come later."""
    export = {"export_dir": str(directory / "export"), "export_roll_s": "1"}
    plan = Plan(
        directory=directory / "cluster",
        controller_settings=export,
        node_settings=export | {"low_space_bytes": "0"},
    )
    with _running(plan) as cluster:
        leader, follower = cluster.address(1), cluster.address(2)
        assert leader is not None and follower is not None and leader.internal is not None
        yield {
            "CONTROLLER": cluster.bootstrap,
            "LEADER": leader.client,
            "LEADER_INTERNAL": leader.internal,
            "FOLLOWER": follower.client,
        }


@contextmanager
def secured_cluster(directory: Path) -> Iterator[dict[str, str]]:
    """A controller and one node over TLS, and the paths of their certificates."""
    plan = Plan(directory=directory / "secret", nodes=1, tls=True, node_settings={"low_space_bytes": "0"})
    with _running(plan) as cluster:
        yield {"SECURED": cluster.bootstrap, "CERTS": str(directory / "secret" / "certs")}


@contextmanager
def _running(plan: Plan) -> Iterator[LocalCluster]:
    cluster = LocalCluster(plan)
    try:
        asyncio.run(_start(cluster))
        yield cluster
        asyncio.run(cluster.stop())
    finally:
        cluster.kill()


async def _start(cluster: LocalCluster) -> None:
    """A node serves before it is ready, and the page shows what one that is ready answers."""
    await cluster.start()
    tls = open_tls(**cluster.client_tls())
    await asyncio.gather(*(_until_ready(cluster, node_id, tls) for node_id in cluster.node_ids))


async def _until_ready(cluster: LocalCluster, node_id: int, tls: Tls | None) -> None:
    address = cluster.address(node_id)
    assert address is not None
    async with open_channel(parse_endpoint(address.client), tls=tls) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        async for answer in stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=_START_S):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return


@contextmanager
def analytics_server(directory: Path) -> Iterator[dict[str, str]]:
    """The analytics server over the cluster's export, and the variable with its address."""
    output = directory / "analytics.log"
    words = ["analytics", "serve", "--input", str(directory / "export"), "--results", str(directory / "results")]
    with output.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "strandline.cli", *words], stdout=log, stderr=log)
    try:
        yield {"ANALYTICS": _address(process, output)}
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)


def _address(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"^serving on (\S+)$", output.read_text(), re.MULTILINE):
            return found[1]
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"the analytics server does not serve: {output.read_text()[-2000:]}")
