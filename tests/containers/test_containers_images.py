"""The content of the images, and case 7: exports evaluated by the analytics' image."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from container_cluster import ContainerCluster
from engine import ROOT
from played import Played
from running_cluster import until

from strandline.export.layout import MANIFEST_FOLDER, Manifest

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


# Case 7: the exports of cases 2 and 3, evaluated by the Spark job of the analytics' image.


_JOB_S = 600
_SLACK_S = 1.0
"""What lies between an event and the moment at which the test saw its effect: a look, a heartbeat. Where that takes
longer the machine is busy, and so took longer for the failover as well."""


Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def reported(analytics_image: str, cluster: ContainerCluster, killed_leader: Played, lagging_follower: Played) -> Rows:
    """Statistics 8, 9 and 19 of all exports; computed without network, root or a writable system."""
    for case in (killed_leader, lagging_follower):
        asyncio.run(_exported(cluster.export, case))
    client = docker.from_env(timeout=_JOB_S)
    job = client.containers.create(
        analytics_image,
        ["analytics", "stats", "--input", "/export", "s08", "s09", "s19", "-o", "json"],
        volumes={str(cluster.export): {"bind": "/export", "mode": "ro"}},
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
    )
    try:
        job.start()
        code = job.wait(timeout=_JOB_S)["StatusCode"]
        said = job.logs(stdout=True, stderr=False).decode()
        assert code == 0, job.logs(stdout=False).decode()[-2_000:]
    finally:
        job.remove(force=True, v=True)
        client.close()
    found: Rows = json.loads(said)
    return found


async def _exported(root: Path, case: Played) -> None:
    """Waits until the exported files contain the last event of a case of each running process."""
    newest = {node: max(mine for other, mine in case.last if other == node) for node, _ in case.last}

    async def look() -> bool:
        reached = _reached(root)
        return all(reached.get((node, mine), 0) >= case.last[node, mine] for node, mine in newest.items())

    await until(look, f"everything about {case.topic} is exported")


def _reached(root: Path) -> dict[tuple[int, int], int]:
    """By node and incarnation: the last event in an exported file."""
    reached: dict[tuple[int, int], int] = {}
    for path in root.glob(f"*/v1/{MANIFEST_FOLDER}/transitions/**/*.json"):
        for span in Manifest.from_json(path.read_text()).ranges:
            emitter = (span.node_id, span.incarnation)
            reached[emitter] = max(span.last_seq, reached.get(emitter, 0))
    return reached


def _rows(reported: Rows, case: Played, statistic: str) -> Rows:
    return [row for row in reported if row["stat"] == statistic and row["topic_id"] == case.topic_id]


@pytest.mark.parametrize("name", ["killed_leader", "lagging_follower"])
def test_the_job_counts_what_was_done(reported: Rows, name: str, request: pytest.FixtureRequest) -> None:
    """Shrinks and expands of each partition, and the replica and cause of each removal, as the test caused them."""
    case: Played = request.getfixturevalue(name)
    changes = {row["partition"]: (row["shrinks"], row["expands"]) for row in _rows(reported, case, "s08")}
    removed = Counter[tuple[int, int, str]]()
    for row in _rows(reported, case, "s09"):
        cause = "lag" if row["removal_cause"].startswith("lag") else row["removal_cause"]
        removed[row["partition"], row["replica_id"], cause] += row["removals"]

    expected = Counter(partition for partition, _, _ in case.removals.elements())
    assert changes == {partition: (count, count) for partition, count in expected.items()}
    assert removed == case.removals


@pytest.mark.parametrize("name", ["killed_leader", "lagging_follower"])
def test_the_job_times_the_failovers_that_were_seen(reported: Rows, name: str, request: pytest.FixtureRequest) -> None:
    """One failover for each partition that lost its leader; its length is the time that the test waited for another."""
    case: Played = request.getfixturevalue(name)
    rows = {row["partition"]: row for row in _rows(reported, case, "s19") if row["failovers"]}

    assert {partition: row["failovers"] for partition, row in rows.items()} == dict.fromkeys(case.elected, 1)
    for partition, waited_s in case.elected.items():
        lasted_s = rows[partition]["total_max_us"] / 1e6
        assert rows[partition]["detect_max_us"] >= 0
        assert lasted_s == pytest.approx(waited_s, abs=_SLACK_S, rel=0.5)
