"""One engine, one build of the images and one cluster for all tests of this folder; all of it is removed at the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

# The clean-up helper of testcontainers comes from a registry; the fixtures here clean up themselves.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"


import container_case
import played
from container_cluster import ContainerCluster
from engine import NoEngine
from engine import engine as some_engine
from images import built
from played import Played

_PREPARED = pytest.StashKey["Prepared"]()


class Prepared:
    """An engine and the images, prepared beside the tests that come first: both wait for downloads and disks."""

    def __init__(self) -> None:
        self._running = some_engine()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="images")
        self.engine = self._thread.submit(self._running.__enter__)
        self.image = self._thread.submit(self._built, "data-plane")
        self.etcd_image = self._thread.submit(self._built, "etcd")
        self.analytics_image = self._thread.submit(self._built, "analytics")

    def _built(self, target: str) -> str:
        self.engine.result()
        return built(target)

    def close(self) -> None:
        """Stop an engine that was started here."""
        self._thread.shutdown(cancel_futures=True)
        if not self.engine.cancelled() and self.engine.exception() is None:
            self._running.__exit__(None, None, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests come last, when the images are there."""
    items.sort(key=lambda item: Path(__file__).parent in item.path.parents)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin as soon as it is known that a test of this folder will run."""
    wanted = any(Path(__file__).parent in item.path.parents for item in session.items)
    if wanted and not session.config.option.collectonly:
        session.config.stash[_PREPARED] = Prepared()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what was begun, even if no test came to use it."""
    prepared = session.config.stash.get(_PREPARED, None)
    if prepared is not None:
        prepared.close()


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Prepared:
    """The preparation since the collection; a machine without an engine skips with the reason."""
    made: Prepared = request.config.stash[_PREPARED]
    try:
        made.engine.result()
    except NoEngine as trouble:
        pytest.skip(str(trouble))
    return made


@pytest.fixture(scope="session")
def engine(prepared: Prepared) -> None:
    """A container engine that responds."""


@pytest.fixture(scope="session")
def image(prepared: Prepared) -> str:
    """The services' image."""
    return prepared.image.result()


@pytest.fixture(scope="session")
def analytics_image(prepared: Prepared) -> str:
    """The analytics' image."""
    return prepared.analytics_image.result()


@pytest.fixture(scope="session")
def etcd_image(prepared: Prepared) -> str:
    """The image of etcd's members."""
    return prepared.etcd_image.result()


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
