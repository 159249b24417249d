"""The content of the images: nothing twice, no build tools, and no more than documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import docker
import pytest
from engine import ROOT

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]

_MOST_BYTES = 320_000_000
_LOOK = """
import pathlib
site = pathlib.Path("/opt/strandline/lib/python3.11/site-packages")
for path in site.glob("*.dist-info"):
    print(path.name.removesuffix(".dist-info").rsplit("-", 1)[0].lower().replace("_", "-"))
for left in ("/wheels", "/wheels-analytics", "/own", "/installer", "/layer"):
    if pathlib.Path(left).exists():
        print(left)
"""


@pytest.fixture
def engine_client(engine: None) -> Iterator[docker.DockerClient]:
    """The engine's own view of its images."""
    client = docker.from_env()
    yield client
    client.close()


def _layers(client: docker.DockerClient, image: str) -> list[str]:
    found: list[str] = client.images.get(image).attrs["RootFS"]["Layers"]
    return found


def _history(client: docker.DockerClient, image: str) -> list[dict[str, Any]]:
    """The steps that made an image, the first one first; those that added nothing are left out."""
    steps: list[dict[str, Any]] = client.images.get(image).history()
    return [step for step in reversed(steps) if step["Size"]]


def test_the_analytics_image_holds_nothing_twice(
    engine_client: docker.DockerClient, image: str, analytics_image: str
) -> None:
    """The analytics image begins with the services' layers except the last, the project's code, and ends with that."""
    small, large = _layers(engine_client, image), _layers(engine_client, analytics_image)

    assert large[: len(small) - 1] == small[:-1]
    assert len(large) == len(small) + 2


def test_the_services_image_adds_no_more_than_was_promised(engine_client: docker.DockerClient, image: str) -> None:
    """The services' image adds at most 320 MB to its base, and the layer with the project's code is a small part."""
    added = [step["Size"] for step in _history(engine_client, image) if "COPY" in step["CreatedBy"]][-2:]

    assert sum(added) <= _MOST_BYTES
    assert added[-1] <= _MOST_BYTES / 20


@pytest.mark.parametrize(("target", "locked"), [("image", "data-plane"), ("analytics_image", "analytics")])
def test_what_is_installed_is_what_is_locked(
    engine_client: docker.DockerClient, target: str, locked: str, request: pytest.FixtureRequest
) -> None:
    """The image has exactly the packages of the requirements file and the project's own: no installer, no wheel."""
    asked = engine_client.containers.create(
        request.getfixturevalue(target), ["-c", _LOOK], entrypoint="python", network_mode="none"
    )
    try:
        asked.start()
        asked.wait(timeout=60)
        said = asked.logs()
    finally:
        asked.remove(force=True, v=True)
    lines = (ROOT / "requirements" / f"{locked}.txt").read_text().splitlines()
    wanted = {line.split("==")[0] for line in lines if line and not line.startswith("#")}

    assert set(said.decode().split()) == wanted | {"strandline"}
