"""One engine, one build of the images and one cluster for all tests of this folder; all of it is removed at the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

# The clean-up helper of testcontainers comes from a registry; the fixtures here clean up themselves.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"


import container_case
from container_cluster import ContainerCluster
from engine import NoEngine, built, engine as some_engine


class Prepared:
    """An engine and the images, built one after the other beside the tests that need none of them yet."""

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


@pytest.fixture(scope="session")
def prepared() -> Iterator[Prepared]:
    """The engine, and images that are being built; a machine without an engine skips with the reason.

    Not before a test asks: every worker collects these tests, and one of them runs them.
    """
    made = Prepared()
    try:
        try:
            made.engine.result()
        except NoEngine as trouble:
            pytest.skip(str(trouble))
        yield made
    finally:
        made.close()


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
