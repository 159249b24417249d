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

from strandline.cli.local.local_cluster import LocalCluster, Plan

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
    cluster = LocalCluster(plan)
    try:
        asyncio.run(cluster.start())
        leader, follower = cluster.address(1), cluster.address(2)
        assert leader is not None and follower is not None and leader.internal is not None
        yield {
            "CONTROLLER": cluster.bootstrap,
            "LEADER": leader.client,
            "LEADER_INTERNAL": leader.internal,
            "FOLLOWER": follower.client,
        }
        asyncio.run(cluster.stop())
    finally:
        cluster.kill()


@contextmanager
def secured_cluster(directory: Path) -> Iterator[dict[str, str]]:
    """A controller and one node over TLS, and the paths of their certificates."""
    cluster = LocalCluster(
        Plan(directory=directory / "secret", nodes=1, tls=True, node_settings={"low_space_bytes": "0"})
    )
    try:
        asyncio.run(cluster.start())
        yield {"SECURED": cluster.bootstrap, "CERTS": str(directory / "secret" / "certs")}
        asyncio.run(cluster.stop())
    finally:
        cluster.kill()


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
