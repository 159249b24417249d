"""Makes the harness of real processes importable for the tests of this folder, and starts one cluster per module.

A module declares what it needs in a constant `CLUSTER` (arguments of `running_cluster.plan`); tests use topics of their
own, and every test begins with all processes running.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.append(_HERE)

from running_cluster import Probe, alarms, deaths, plan, started, stopped  # noqa: E402

from strandline.cli.local_cluster import LocalCluster  # noqa: E402


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The module's cluster; at the end every process must stop cleanly, and none may have logged an alarm."""
    directory = tmp_path_factory.mktemp("cluster")
    running = started(plan(directory, **getattr(request.module, "CLUSTER", {})))
    try:
        yield running
        ends = stopped(running)
    finally:
        running.kill()

    assert ends == []
    assert alarms(running) == []


@pytest_asyncio.fixture
async def probe(cluster: LocalCluster) -> AsyncIterator[Probe]:
    """A probe of the module's cluster, all of whose processes run; only the test itself may kill one."""
    async with Probe(cluster) as asking:
        await asking.active()
        await asking.everybody()
        yield asking

        assert deaths(cluster) == []


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return request.node.name.replace("[", "-").replace("]", "")[:100]
