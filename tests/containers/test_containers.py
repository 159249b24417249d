"""What is in the images, and that their processes replicate, drain, export and report with the rights of containers.

What faults do to a cluster is shown by tests/cluster and tests/chaos with the same processes, and who is refused by TLS
and permissions by tests/security.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from container_case import Case, case, serving
from container_cluster import CONTROLLER, NODES, ContainerCluster, name_of
from docker.models.containers import ExecResult
from engine import ROOT
from running_cluster import until
from testcontainers.core.container import DockerContainer

from strandline.export.layout import MANIFEST_FOLDER, Manifest

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]
_COMMAND_S, _JOB_S = 60, 600
_USER = 10001
_MOST_BYTES = 320_000_000

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def secured(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerCluster]:
    """A cluster of its own, with certificates that the command line made."""
    directory = tmp_path_factory.mktemp("secured")
    certificates = directory / "certs"
    command = [sys.executable, "-m", "strandline.cli", "certs", "new", str(certificates), "--nodes", str(len(NODES))]
    hosts = ["--node-host", "node-{id}.replication", "--controller-host", f"{name_of(CONTROLLER)}.replication"]
    subprocess.run([*command, *hosts], check=True, capture_output=True, timeout=60)
    # The user inside differs from the user of the test, and the machine is a test machine.
    for key in certificates.glob("*/tls.key"):
        key.chmod(0o644)
    made = ContainerCluster(image, directory / "cluster", certificates=certificates)
    try:
        made.start()
        asyncio.run(serving(made))
        yield made
        alarms = made.alarms()
    finally:
        made.remove()

    assert alarms == []


@pytest.fixture(params=["cluster", "secured"])
def plain_or_secured(request: pytest.FixtureRequest) -> ContainerCluster:
    """Each cluster in turn; not begun inside a test, whose loop runs already."""
    found: ContainerCluster = request.getfixturevalue(request.param)
    return found


async def test_three_replicas_come_up_and_replicate(plain_or_secured: ContainerCluster, tmp_path: Path) -> None:
    """Records produced with acks=all are read by every consumer, and describe shows three replicas in sync; with
    certificates too."""
    cluster = plain_or_secured
    async with case(cluster, "come-up", tmp_path) as run:
        reported = json.loads(await _command(cluster, "topic", "describe", run.load.strict, "-o", "json"))
        records = await run.settle()

    assert [sorted(partition["isr"]) for partition in reported] == [list(NODES)] * 3
    assert records >= 30


async def _command(cluster: ContainerCluster, *words: str) -> bytes:
    """The output of the command line about the cluster."""
    command = [sys.executable, "-m", "strandline.cli", *words, "--bootstrap", cluster.bootstrap]
    tls = {f"STRANDLINE_{name.upper()}": path for name, path in cluster.client_tls().items() if path}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **tls})
    async with asyncio.timeout(_COMMAND_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, f"strandline {' '.join(words)} ended with {process.returncode}"
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A leader that was stopped and started again, and what the data directories say of it."""

    leader: int
    code: int
    successor: int
    reasons: set[str]
    committed_cuts: Rows
    topic_id: str
    shrinks: Counter[int]
    expands: Counter[int]
    """By partition, as the controller decided them."""
    last: Mapping[tuple[int, int], int]
    """By node and incarnation, the controller being -1: the number of its last event about the ISR or an epoch."""


@pytest.fixture(scope="module")
def drained(cluster: ContainerCluster, tmp_path_factory: pytest.TempPathFactory) -> Drained:
    """Played once."""
    return asyncio.run(_drain(cluster, tmp_path_factory.mktemp("drain")))


async def _drain(cluster: ContainerCluster, directory: Path) -> Drained:
    async with case(cluster, "drain", directory) as run:
        leader = await run.probe.leader(run.load.strict)
        code = await run.do(cluster.stop, leader)
        now = await run.probe.partition(run.load.strict)
        await run.load.acked(5)
        await run.do(cluster.start_again, leader)
        await run.settle()
        shrinks, expands = await until(lambda: _isr_changes(run), "every removal is followed by a return")
        last: dict[tuple[int, int], int] = {}
        for row in [*run.events("ISR_CHANGE"), *run.events("EPOCH_START")]:
            emitter = (row["node_id"], row["incarnation"])
            last[emitter] = max(row["seq"], last.get(emitter, 0))
        return Drained(
            leader=leader,
            code=code,
            successor=now.leader_id,
            reasons={row["reason"] for row in run.events("LEADER_CHANGE") if row.get("old_leader") == leader},
            committed_cuts=[row for row in run.events("TRUNCATION") if row["committed_cut"]],
            topic_id=run.topic_ids[run.load.strict],
            shrinks=shrinks,
            expands=expands,
            last=last,
        )


async def _isr_changes(run: Case) -> tuple[Counter[int], Counter[int]] | None:
    """Removals and returns by partition; None until each removal has its return."""
    decided = [row for row in run.events("ISR_CHANGE") if row["node_id"] == -1 and row.get("old_isr")]
    shrinks = Counter(row["partition"] for row in decided if set(row["old_isr"]) - set(row["new_isr"]))
    expands = Counter(row["partition"] for row in decided if set(row["new_isr"]) - set(row["old_isr"]))
    return (shrinks, expands) if shrinks and shrinks == expands else None


def test_a_stopped_leader_hands_over_first(drained: Drained) -> None:
    """SIGTERM, the image's stop signal, drains: leadership has moved when the process ends, with 0.

    Records in flight at that time had not been committed, and were not acknowledged: no committed record is cut.
    """
    assert drained.code == 0
    assert drained.successor not in (drained.leader, -1)
    assert drained.reasons == {"controlled_shutdown"}
    assert drained.committed_cuts == []


def test_the_job_of_the_image_counts_what_was_done(
    analytics_image: str, cluster: ContainerCluster, drained: Drained
) -> None:
    """Shrinks and expands of each partition, computed from the exports without network, root or a writable system."""
    asyncio.run(_exported(cluster.export, drained))
    client = docker.from_env(timeout=_JOB_S)
    job = client.containers.create(
        analytics_image,
        ["analytics", "stats", "--input", "/export", "s08", "-o", "json"],
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
    rows = [row for row in json.loads(said) if row["stat"] == "s08" and row["topic_id"] == drained.topic_id]

    assert {row["partition"]: row["shrinks"] for row in rows} == drained.shrinks
    assert {row["partition"]: row["expands"] for row in rows} == drained.expands


async def _exported(root: Path, done: Drained) -> None:
    """Waits until the exported files contain the last event of each running process."""
    newest = {node: max(mine for other, mine in done.last if other == node) for node, _ in done.last}

    async def look() -> bool:
        reached = _reached(root)
        return all(reached.get((node, mine), 0) >= done.last[node, mine] for node, mine in newest.items())

    await until(look, "everything about the drained leader is exported")


def _reached(root: Path) -> dict[tuple[int, int], int]:
    """By node and incarnation: the last event in an exported file."""
    reached: dict[tuple[int, int], int] = {}
    for path in root.glob(f"*/v1/{MANIFEST_FOLDER}/transitions/**/*.json"):
        for span in Manifest.from_json(path.read_text()).ranges:
            emitter = (span.node_id, span.incarnation)
            reached[emitter] = max(span.last_seq, reached.get(emitter, 0))
    return reached


def test_processes_are_not_root_and_write_nothing_but_their_volume(cluster: ContainerCluster) -> None:
    """Each container runs as the image's user, without a capability, on a root file system that it cannot write."""
    for node_id in (CONTROLLER, *NODES):
        container = cluster.container(node_id)
        fields = _status(container.exec_run(["cat", "/proc/1/status"]))

        assert fields["Uid"].split() == [str(_USER)] * 4
        assert int(fields["CapPrm"], 16) == 0
        assert container.exec_run(["touch", "/tmp/x"]).exit_code != 0


async def test_a_container_that_is_stopped_early_ends_at_once(image: str) -> None:
    """SIGTERM ends a command that has not installed its handler yet, also as the first process of its container."""
    container = DockerContainer(image, command=["topic", "list", "-b", "127.0.0.1:1"], read_only=True)
    try:
        await asyncio.to_thread(container.start)
        inside = container.get_wrapped_container()

        async def look() -> bool:
            fields = _status(await asyncio.to_thread(inside.exec_run, ["cat", "/proc/1/status"]))
            return bool(int(fields.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1)

        await until(look, "the process has begun")
        await asyncio.to_thread(inside.kill, "SIGTERM")
        ended = await asyncio.to_thread(inside.wait, timeout=_COMMAND_S)
    finally:
        await asyncio.to_thread(container.stop)

    assert ended["StatusCode"] == 128 + signal.SIGTERM


def _status(answer: ExecResult) -> dict[str, str]:
    """The lines of /proc/PID/status, as `cat` printed them."""
    return dict(line.split(":\t", 1) for line in answer.output.decode().splitlines() if ":\t" in line)


def test_images_say_what_they_are(image: str) -> None:
    """Labels with the names that registries and scanners use; the stop signal and the entry point without a shell."""
    client = docker.from_env()
    try:
        config = client.images.get(image).attrs["Config"]
    finally:
        client.close()

    assert config["Labels"]["org.opencontainers.image.version"] == image.rpartition(":")[2]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["strandline"]
    assert config["User"] == f"{_USER}:{_USER}"


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
