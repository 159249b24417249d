"""The command line against real processes: what a user types in the first five minutes, and the demo."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.local_cluster import LocalCluster, Plan


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A controller and three nodes, as `strandline up` starts them."""
    settings = {"session_timeout_ms": "1500", "heartbeat_interval_ms": "300"}
    running = LocalCluster(Plan(directory=tmp_path_factory.mktemp("cluster"), controller_settings=settings))
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


def strandline(*words: str, stdin: str = "", timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Runs the command as a process."""
    command = [sys.executable, "-m", "strandline.cli", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)


def document(*words: str) -> object:
    """What a command prints with `-o json`."""
    ran = strandline(*words, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_lines_go_in_and_come_out(cluster: LocalCluster) -> None:
    """What produce takes from stdin, consume prints; keys included, from the leader and from a follower."""
    at = ["--bootstrap", cluster.bootstrap]
    created = strandline("topic", "create", "letters", "-p", "1", *at)
    sent = strandline("produce", "letters", "-k", ":", *at, stdin="a:1\nb:2\nlast")
    read = strandline("consume", "letters", "--from-beginning", "--stop-at-end", "-k", "=", *at)
    rows = [
        json.loads(line)
        for line in strandline(
            "consume", "letters", "--offset", "1", "-n", "2", "-o", "json", "--from-follower", *at
        ).stdout.splitlines()
    ]

    assert (created.returncode, sent.returncode) == (0, 0)
    assert "3 records acknowledged" in sent.stderr
    assert read.stdout == "a=1\nb=2\n=last\n"
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(1, "b", "2"), (2, None, "last")]


def test_status_and_verify_agree_with_the_files(cluster: LocalCluster) -> None:
    """A healthy cluster is called healthy, and its replicas are equal over RPC."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "numbers", "-p", "2", *at)
    strandline("produce", "numbers", *at, stdin="\n".join(map(str, range(500))))
    status = document("cluster", "status", *at)
    compared = document("log", "verify", "--topic", "numbers", *at)

    assert isinstance(status, dict)
    assert isinstance(compared, list)
    assert status["healthy"] is True
    assert [row["equal"] for row in compared] == [True, True]
    assert {len(row["replicas"]) for row in compared} == {3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topic", "create", "../../x"), "INVALID_TOPIC_EXCEPTION"),
        (("topic", "create", "wide", "-r", "9"), "INVALID_REPLICATION_FACTOR"),
        (("topic", "describe", "nosuch"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("consume", "nosuch"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("produce", "nosuch"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("node", "shutdown", "77"), "BROKER_ID_NOT_REGISTERED"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_1(cluster: LocalCluster, words: tuple[str, ...], said: str) -> None:
    """What the cluster refuses is told with its name, in one line."""
    ran = strandline(*words, "--bootstrap", cluster.bootstrap)

    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert said in ran.stderr


def test_nobody_there_is_exit_code_2() -> None:
    """An address where nobody listens is told in one line that says what to check."""
    ran = strandline("topic", "list", "--bootstrap", "127.0.0.1:1")

    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert "--bootstrap" in ran.stderr


# Spark starts within it and answers twenty questions, on a machine that does other things too.
@pytest.mark.timeout(600)
def test_the_demo_proves_a_small_file_and_agrees_with_its_report(tmp_path: Path) -> None:
    """The whole story on a small file: every check holds, Spark's figures too, and all of it is left behind."""
    text = tmp_path / "text"
    text.write_text("".join(f"line {number}\n" for number in range(20_000)))
    ran = strandline("demo", str(text), "--dir", str(tmp_path / "run"), timeout_s=590)
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert verdict["passed"] is True
    assert [check["held"] for check in verdict["checks"]] == [True] * len(verdict["checks"])
    assert len(verdict["checks"]) >= 11
    assert verdict["elections"] >= 1
    assert "Nothing committed was lost" in (tmp_path / "run" / "report.html").read_text()
    assert "nothing lost, doubled or diverged" in ran.stdout
