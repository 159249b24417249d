"""Makes the harness of real processes importable for the tests of this folder, and starts their clusters.

Modules share one cluster of three nodes and an observer. A module that needs another one, or leaves traces that others
would see, declares it in a constant `CLUSTER` (arguments of `running_cluster.plan`). Tests use topics of their own, and
every test begins with all processes running.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from running_cluster import Probe, alarms, deaths, plan, running

from strandline.cli.local.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes and an observer, for all modules without a cluster of their own."""
    with running(plan(tmp_path_factory.mktemp("cluster"), observers=1)) as shared:
        yield shared


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The module's cluster, or the shared one, in which the module may not have caused an alarm."""
    own = getattr(request.module, "CLUSTER", None)
    if own is not None:
        with running(plan(tmp_path_factory.mktemp("cluster"), **own)) as of_module:
            yield of_module
        return
    shared: LocalCluster = request.getfixturevalue("shared_cluster")
    before = set(alarms(shared))
    yield shared
    assert set(alarms(shared)) <= before


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
