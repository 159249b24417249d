"""One engine, one build of the images and one cluster for all tests of this folder; all of it is removed at the end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The helper of testcontainers that cleans up after it comes from a registry; the fixtures here clean up themselves.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

_HERE = str(Path(__file__).resolve().parent)
if _HERE not in sys.path:
    sys.path.append(_HERE)

import container_case  # noqa: E402
import played  # noqa: E402
from container_cluster import ContainerCluster  # noqa: E402
from engine import NoEngine  # noqa: E402
from engine import engine as some_engine  # noqa: E402
from images import built  # noqa: E402
from played import Played  # noqa: E402


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A container engine, started if need be."""
    running = some_engine()
    try:
        running.__enter__()
    except NoEngine as trouble:
        pytest.skip(str(trouble))
    try:
        yield
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def image(engine: None) -> str:
    """The services' image."""
    return built("data-plane")


@pytest.fixture(scope="session")
def analytics_image(engine: None) -> str:
    """The analytics' image."""
    return built("analytics")


@pytest.fixture(scope="session")
def cluster(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerCluster]:
    """A controller and three data nodes; every test begins with all of them healthy. None may have logged an alarm."""
    made = ContainerCluster(image, tmp_path_factory.mktemp("containers"))
    try:
        made.start()
        asyncio.run(container_case.serving(made))
        yield made
        alarms = made.alarms()
    finally:
        made.remove()

    assert alarms == []


@pytest.fixture(scope="session")
def killed_leader(cluster: ContainerCluster, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Case 2, played once."""
    return asyncio.run(played.killed_leader(cluster, tmp_path_factory.mktemp("killed-leader")))


@pytest.fixture(scope="session")
def lagging_follower(cluster: ContainerCluster, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Case 3, played once."""
    return asyncio.run(played.lagging_follower(cluster, tmp_path_factory.mktemp("lagging-follower")))
