"""`--service`: a running server gives a command the same output as a Spark of its own, and refusals are one line."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from served_analytics import HOUR_US, Served, envelope, serving, write_file
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.rpc.channels import target

pytestmark = pytest.mark.timeout(600)

# A group with one member: it rebalances at 602 s and is stable at 610 s. Its offset is never reported.
_OF_GROUP: list[tuple[int, str, dict[str, object]]] = [
    (600, "GROUP_CHANGE", {"old_state": "Empty", "new_state": "Stable", "cause": "join"}),
    (602, "MEMBER_CHANGE", {"member_id": "m-a", "phase": "revoking", "assigned": [], "revoking": ["T:0"]}),
    (602, "GROUP_CHANGE", {"old_state": "Stable", "new_state": "Reconciling", "cause": "interest"}),
    (610, "MEMBER_CHANGE", {"member_id": "m-a", "phase": "assigned", "assigned": ["T:1"], "revoking": []}),
    (610, "GROUP_CHANGE", {"old_state": "Reconciling", "new_state": "Stable", "cause": "reconciled"}),
]
_OF_MEMBERS = {"group_id": "sailors", "group_epoch": 1, "target_epoch": 1, "n_members": 1}
_BEGAN_US = HOUR_US + 608_000_000
# A transaction that held the LSO of tides-0 from 608 s to 620 s.
_OF_TRANSACTION: dict[str, object] = {
    "producer_id": 7, "producer_epoch": 3, "first_offset": 5, "outcome": "abort", "marker_offset": 8,
    "first_us": _BEGAN_US + 12_000_000, "last_us": _BEGAN_US + 12_000_000, "held_ms": 12_000, "n_coalesced": 1, "hw": 9,
}  # fmt: skip
_WINDOW = ("--from", "2026-11-20T14:00:00Z", "--to", "2026-11-20T15:00:00Z")


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("option")
    rows = [
        envelope(seq, second, 7, node_id=2, topic="__group_state", topic_id="G", event_type=kind, **_OF_MEMBERS, **said)
        for seq, (second, kind, said) in enumerate(_OF_GROUP, start=1)
    ]
    rows.append(envelope(len(rows) + 1, 620, 0, node_id=2, event_type="TRANSACTION_DECIDED", **_OF_TRANSACTION))
    write_file(folder / "export", "transitions", rows)
    with serving(folder / "export", folder / "results", spark) as server:
        yield server


def _address(served: Served) -> str:
    endpoint = served.server.endpoint
    assert endpoint is not None
    return target(endpoint)


def _ask(*words: object) -> Result:
    return CliRunner().invoke(app, ["analytics", *map(str, words)])


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "s02", "s10", "s18", *_WINDOW, "-o", "json"),
        ("stats", "s08", *_WINDOW, "--step", "20m", "--group-by", "cluster", "-o", "wide"),
        ("stats", "s10", *_WINDOW, "--fail-on", "under_replicated_us>0"),
        ("timeline", "-o", "json"),
        ("timeline", "--hw", "--topic", "tides", "-o", "wide"),
        ("timeline", "--type", "isr_change", "--type", "replica_sample", "-o", "json"),
        ("explain", "-t", "tides", "-p", "0", "-e", "2", "-o", "json"),
        ("explain", "-t", "tides", "-p", "0"),
        ("explain", "-t", "tides", "-p", "0", "-o", "json"),
        ("explain", "-t", "tides", "-p", "0", "--stall"),
        ("explain", "--group", "sailors", "--at", "2026-11-20T14:10:04Z"),
        ("explain", "--group", "sailors", "--at", "2026-11-20T14:10:04Z", "-o", "json"),
        ("explain", "--group", "pilots", "--at", "2026-11-20T14:10:04Z"),
        ("explain", "-t", "tides", "-p", "0", "--lso", "--at", "2026-11-20T14:10:15Z"),
        ("explain", "-t", "tides", "-p", "0", "--lso", "--at", "2026-11-20T14:10:15Z", "-o", "json"),
        ("explain", "-t", "tides", "-p", "9", "--lso", "--at", "2026-11-20T14:10:15Z"),
        ("coverage", *_WINDOW, "-o", "json"),
        ("coverage", *_WINDOW, "--require-coverage", "1"),
    ],
)
def test_a_service_gives_the_output_of_the_local_command(
    served: Served, analytics: Callable[..., Result], words: tuple[str, ...]
) -> None:
    """Output, notices and exit code are those of the same command over the service's input."""
    local = analytics(*words, "--input", served.settings.inputs[0])

    remote = _ask(*words, "--service", _address(served))

    assert local.output
    assert (remote.exit_code, remote.stdout, remote.stderr) == (local.exit_code, local.stdout, local.stderr)


def test_a_service_names_the_transaction_that_held_readers_back(served: Served) -> None:
    """Who held the LSO, where, and how it ended, as the leader reported it."""
    words = ("explain", "-t", "tides", "-p", "0", "--lso", "--at", "2026-11-20T14:10:15Z")
    shown = _ask(*words, "--service", _address(served)).stdout

    assert "producer 7 of epoch 3 held the LSO at 5" in shown
    assert "the abort marker was committed 5.0 s later" in shown


def test_a_report_of_a_service_is_the_local_page(
    served: Served, analytics: Callable[..., Result], tmp_path: Path
) -> None:
    """Page and figures are the same but for the time at which they were made."""
    local, remote = tmp_path / "local.html", tmp_path / "remote.html"
    ours = ("--out", local, "--figures", tmp_path / "local.json", "--input", served.settings.inputs[0])
    theirs = ("--out", remote, "--figures", tmp_path / "remote.json", "--service", _address(served))
    here = analytics("report", *_WINDOW, *ours)
    there = _ask("report", *_WINDOW, *theirs)

    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    assert here.stdout.splitlines()[:-1] == there.stdout.splitlines()[:-1]
    assert json.loads((tmp_path / "local.json").read_text()) == json.loads((tmp_path / "remote.json").read_text())
    assert _undated(local.read_text()) == _undated(remote.read_text())


def _undated(page: str) -> str:
    """A page without the moment it was made at, which is all of it that is of this year's clock and not of the data."""
    return re.sub(r"(?i)made [^<]*", "", page)


def _one_line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("strandline: ")]
    assert "Traceback" not in result.output
    return line


def test_nobody_at_the_address_is_one_line() -> None:
    """Where nothing listens the command names the address and what to look at, and exits with 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = _one_line(_ask("timeline", "--service", address), 2)

    assert f"no answer from {address}" in line
    assert "check --service" in line


def test_another_service_at_the_address_is_one_line() -> None:
    """A gRPC server without AnalyticsService is distinguished from one that does not answer."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        line = _one_line(_ask("explain", "-t", "tides", "-p", "0", "--service", f"127.0.0.1:{port}"), 2)
    finally:
        server.stop(None).wait()

    assert f"--service: 127.0.0.1:{port} does not serve this question" in line


def test_a_refused_question_is_one_line(served: Served) -> None:
    """A refusal of the service names it, its rule and its remedy, and the command exits with 1."""
    line = _one_line(_ask("timeline", "--cluster", "nowhere", "--service", _address(served)), 1)

    assert f"{_address(served)} refused: " in line
    assert "nowhere" in line


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("--service", "nowhere"), "--service"),
        (("--service", "127.0.0.1:9400", "--input", "."), "not both"),
        ((), "or --service"),
    ],
)
def test_a_command_has_one_source(words: tuple[str, ...], reported: str) -> None:
    """A wrong address, two sources and none are refused as wrong usage."""
    result = _ask("timeline", *words)

    assert result.exit_code == 2
    assert reported in result.stderr
