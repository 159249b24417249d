"""Processes of one machine: when they count as serving, how they end, what is reported when they end by themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from strandline.cli.local.local_cluster import LocalCluster, Plan, Ports, flags, write_ports
from strandline.cli.local.processes import Exit, Service, ServiceDied, last_line, read_address

DUMMY = str(Path(__file__).with_name("dummy_service.py"))
SOON_MS = 10_000


def dummy(directory: Path, *words: str) -> Service:
    """A service process that is a dummy."""
    data = directory / "data"
    command = [sys.executable, DUMMY, "--data-dir", str(data), "--bind", "127.0.0.1:0", *words]
    return Service(name="dummy", command=command, directory=data, output=directory / "dummy.log")


def dummy_cluster(directory: Path, nodes: int = 2, **node_settings: str) -> LocalCluster:
    """A local cluster whose roles are played by dummies."""
    plan = Plan(
        directory=directory,
        nodes=nodes,
        node_settings=node_settings,
        controller_module=(DUMMY,),
        replica_module=(DUMMY,),
    )
    return LocalCluster(plan)


async def test_serving_waits_for_the_endpoint_of_this_process(tmp_path: Path) -> None:
    """A service serves once the endpoint file names its own process id."""
    service = dummy(tmp_path)
    service.start()
    address = await service.serving(SOON_MS)
    await service.stop(SOON_MS)

    assert service.process is not None
    assert address.pid == service.process.pid
    assert address.client.startswith("127.0.0.1:")


async def test_death_before_serving_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """A process that ends before it serves is reported with its exit code and its last line."""
    service = dummy(tmp_path, "--misbehave", "die")
    service.start()

    with pytest.raises(ServiceDied, match=r"dummy ended with exit code 74: the disk is full"):
        await service.serving(SOON_MS)


async def test_a_silent_process_runs_into_the_deadline(tmp_path: Path) -> None:
    """A process that neither serves nor ends raises TimeoutError that names its output."""
    service = dummy(tmp_path, "--misbehave", "silent")
    service.start()

    with pytest.raises(TimeoutError, match=r"dummy\.log"):
        await service.serving(200)

    service.kill()


async def test_stop_kills_what_does_not_hear(tmp_path: Path) -> None:
    """A process that ignores SIGTERM is killed after its grace, and the result shows it."""
    service = dummy(tmp_path, "--misbehave", "deaf")
    service.start()
    await service.serving(SOON_MS)
    end = await service.stop(200)

    assert end is not None
    assert end.forced
    assert "did not stop in time" in end.sentence


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (0, "node-1 ended with exit code 0 (CLEAN)"),
        (77, "node-1 ended with exit code 77"),
        (-9, "node-1 was ended by SIGKILL"),
    ],
)
def test_an_end_is_told_by_its_code_or_its_signal(code: int, sentence: str) -> None:
    """Only a negative code is a signal's; an exit code has its name beside it where it is ours."""
    assert Exit(name="node-1", code=code).sentence == sentence


async def test_a_wished_end_is_no_news(tmp_path: Path) -> None:
    """Only a process that ended without a request counts as dead."""
    service = dummy(tmp_path)
    service.start()
    await service.serving(SOON_MS)
    service.kill()

    assert service.found_dead() is None
    assert not service.running


async def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    """A second process on a directory whose first one lives is rejected and the first one is named."""
    first = dummy(tmp_path)
    first.start()
    address = await first.serving(SOON_MS)

    with pytest.raises(ServiceDied, match=f"in use by process {address.pid}"):
        dummy(tmp_path).start()

    await first.stop(SOON_MS)


async def test_a_cluster_keeps_its_ports_over_a_restart(tmp_path: Path) -> None:
    """The kernel chooses the ports once; a later start of the same directory uses them again."""
    first = dummy_cluster(tmp_path)
    await first.start(SOON_MS)
    before = [read_address(service.directory) for service in first.services]
    ends = await first.stop(SOON_MS)
    again = dummy_cluster(tmp_path)
    await again.start(SOON_MS)
    after = [read_address(service.directory) for service in again.services]
    await again.stop(SOON_MS)

    assert [end.code for end in ends] == [0, 0, 0]
    assert [(one.client, one.internal) for one in before if one] == [(one.client, one.internal) for one in after if one]
    assert first.bootstrap == again.bootstrap


async def test_a_killed_node_comes_back_where_it_was(tmp_path: Path) -> None:
    """kill -9 and a new start give a new process at the old address."""
    cluster = dummy_cluster(tmp_path)
    await cluster.start(SOON_MS)
    before = cluster.address(1)
    cluster.kill_node(1)
    after = await cluster.start_node(1, SOON_MS)
    await cluster.stop(SOON_MS)

    assert before is not None
    assert after.pid != before.pid
    assert after.client == before.client


def test_settings_become_flags() -> None:
    """A setting's name becomes a flag with dashes, in the given order."""
    assert flags({"session_timeout_ms": "1500", "bind": "a:1"}) == ["--session-timeout-ms", "1500", "--bind", "a:1"]


def test_workers_of_one_machine_have_one_rack(tmp_path: Path) -> None:
    """Two machines with two workers are four nodes in two racks, in order; an observer behind them is in none."""
    write_ports(tmp_path, Ports(controller="127.0.0.1:1"))
    cluster = LocalCluster(Plan(directory=tmp_path, nodes=2, workers=2, observers=1))
    commands = [cluster._node_command(node_id) for node_id in cluster.node_ids]
    racks = [words[words.index("--rack") + 1] if "--rack" in words else None for words in commands]

    assert racks == ["machine-1", "machine-1", "machine-2", "machine-2", None]
    assert [words[words.index("--roles") + 1] for words in commands] == ["leader,follower"] * 4 + ["follower"]


def test_last_line_skips_blank_lines(tmp_path: Path) -> None:
    """The last line is the last non-empty one; a missing file has none."""
    (tmp_path / "log").write_text("one\ntwo\n\n  \n")

    assert last_line(tmp_path / "log") == "two"
    assert last_line(tmp_path / "none") == ""


async def test_a_paused_process_can_be_stopped(tmp_path: Path) -> None:
    """A paused process (SIGSTOP) still receives SIGTERM and ends cleanly."""
    service = dummy(tmp_path)
    service.start()
    await service.serving(SOON_MS)
    service.pause()
    end = await service.stop(SOON_MS)

    assert end is not None
    assert (end.code, end.forced) == (0, False)
