"""The command line against real processes: what a user types in the first five minutes, and the demo."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.local_cluster import LocalCluster, Plan
from strandline.core.messages import Endpoint
from strandline.rpc.channels import open_channel
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import metadata_pb2
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub


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
    """The parsed output of a command with `-o json`."""
    ran = strandline(*words, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_lines_go_in_and_come_out(cluster: LocalCluster) -> None:
    """Consume prints what produce reads from stdin; keys included, from the leader and from a follower."""
    at = ["--bootstrap", cluster.bootstrap]
    created = strandline("topic", "create", "letters", "-p", "1", *at)
    sent = strandline("produce", "letters", "-K", ":", *at, stdin="a:1\nb:2\nlast")
    read = strandline("consume", "letters", "--from-beginning", "--stop-at-end", "-K", "=", *at)
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


def test_what_is_consumed_as_json_can_be_produced(cluster: LocalCluster) -> None:
    """Keys, headers, tombstones and times survive `consume -o json | produce --input json`; a bad line ends it."""
    at = ["--bootstrap", cluster.bootstrap]
    for name in ("first", "second"):
        strandline("topic", "create", name, "-p", "1", *at)
    strandline(
        "produce", "first", "-K", ":", "-H", "a=1", "-H", "b=x=y", "-Z", "--timestamp", "2023-11-14T22:13:20",
        *at, stdin="moon:spring\nsun:\n",
    )  # fmt: skip
    reading = ["--from-beginning", "--stop-at-end", *at]
    copied = strandline("consume", "first", "-o", "json", *reading).stdout
    sent = strandline("produce", "second", "--input", "json", *at, stdin=copied + '{"valeu": 1}\n{"value": "late"}\n')
    read = strandline("consume", "second", "-f", r"%k %v %V %T %h\n", *reading)

    assert sent.returncode == 2
    assert "line 3: 'valeu' is no field" in sent.stderr
    assert "2 records before it acknowledged, no more sent" in sent.stderr
    assert read.stdout == "moon spring 6 1700000000000 a=1,b=x=y\nsun  -1 1700000000000 a=1,b=x=y\n"


def test_a_range_of_a_topic_is_read(cluster: LocalCluster) -> None:
    """--offset and --until bound each partition, by offset, time or the last N; -k selects one key."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "ranges", "-p", "2", *at)
    for index, first in ((0, 0), (1, 10)):
        for step, day in enumerate(("2023-11-14", "2023-11-15")):
            lines = "".join(f"k{number}:{number}\n" for number in range(first + 3 * step, first + 3 * step + 3))
            strandline("produce", "ranges", "-p", str(index), "-K", ":", "--timestamp", day, *at, stdin=lines)

    def values(*words: str) -> list[int]:
        """The values that a reading prints, sorted."""
        ran = strandline("consume", "ranges", *words, *at)
        assert ran.returncode == 0, ran.stderr
        return sorted(map(int, ran.stdout.split()))

    assert values("--offset", "-2", "--until", "end") == [4, 5, 14, 15]
    assert values("--offset", "-100", "--until", "2") == [0, 1, 10, 11]
    assert values("--offset", "1", "--until", "@2023-11-15") == [1, 2, 11, 12]
    assert values("--offset", "@2023-11-15", "--until", "@2023-11-16", "-p", "1") == [13, 14, 15]
    assert values("--from-beginning", "--until", "end", "-k", "k13") == [13]
    assert values("--from-beginning", "--until", "6", "-n", "4", "--isolation", "read_uncommitted")[3:]
    assert values("--offset", "end", "--until", "3") == []
    assert values("--from-beginning", "--until", "@2023-11-14") == []


def test_offsets_are_those_of_the_records(cluster: LocalCluster) -> None:
    """A partition's start and end, the offset for a time, and the newest record agree with what was sent."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "times", "-p", "2", *at)
    strandline("produce", "times", "-k", "user1", "-p", "1", *at, stdin="a\nb\nc\n")
    (keyed,) = strandline(
        "consume", "times", "-p", "1", "--offset", "1", "-n", "1", "-o", "json", *at
    ).stdout.splitlines()
    first_ms = json.loads(keyed)["timestamp_ms"]
    rows = document("topic", "offsets", "times", "--timestamp", str(first_ms + 60_000), "--max-timestamp", *at)
    repeated = strandline("topic", "offsets", "times", "--timestamp", "2026-01-31T12:00", *at)
    beyond = strandline("topic", "offsets", "times", "-p", "2", *at)

    assert json.loads(keyed)["key"] == "user1"
    assert isinstance(rows, list)
    assert [(row["partition"], row["earliest"], row["latest"], row["records"]) for row in rows] == [
        (0, 0, 0, 0),
        (1, 0, 3, 3),
    ]
    assert [row["offset_at_time"] for row in rows] == [None, None]
    assert rows[0]["newest_offset"] is None
    assert rows[1]["newest_ms"] >= first_ms
    assert repeated.stderr == "strandline: --timestamp is 2026-01-31T12:00:00Z\n"
    assert (beyond.returncode, "partition 2 of topic 'times' must be 0 to 1" in beyond.stderr) == (1, True)


def test_records_are_deleted_up_to_an_offset(cluster: LocalCluster) -> None:
    """`topic delete-records` moves the start that `topic offsets` shows, and rejects an offset above the HW."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "old", "-p", "1", *at)
    strandline("produce", "old", *at, stdin="a\nb\nc\n")
    unconfirmed = strandline("topic", "delete-records", "old", "-p", "0", "--before", "2", *at)
    kept = document("topic", "offsets", "old", *at)
    deleted = document("topic", "delete-records", "old", "-p", "0", "--before", "2", "--yes", *at)
    beyond = strandline("topic", "delete-records", "old", "-p", "0", "--before", "4", "--yes", *at)
    rest = document("topic", "offsets", "old", *at)
    all_of_it = document("topic", "delete-records", "old", "-p", "0", "--before", "latest", "--yes", *at)

    assert (unconfirmed.returncode, beyond.returncode) == (1, 1)
    assert "2 records, offsets 0 to 1 (high watermark 3)" in unconfirmed.stderr
    assert "OFFSET_OUT_OF_RANGE" in beyond.stderr
    assert isinstance(kept, list) and isinstance(deleted, list) and isinstance(rest, list)
    assert [(rows[0]["earliest"], rows[0]["latest"]) for rows in (kept, rest)] == [(0, 3), (2, 3)]
    assert (deleted[0]["low_watermark"], deleted[0]["outcome"]) == (2, "deleted")
    assert isinstance(all_of_it, list) and all_of_it[0]["low_watermark"] == 3


def test_a_topic_grows_and_its_settings_are_shown(cluster: LocalCluster) -> None:
    """`topic add-partitions` and `alter -p` warn of keys that move; `topic configs` says where values come from."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "grown", "-p", "1", "-c", "segment.ms=60000", *at)
    added = strandline("topic", "add-partitions", "grown", "--total", "3", *at)
    again = strandline("topic", "add-partitions", "grown", "--total", "3", *at)
    altered = strandline("topic", "alter", "grown", "-p", "4", *at)
    partitions = document("topic", "describe", "grown", *at)
    settings = document("topic", "configs", "grown", "-c", "segment.ms", "-c", "segment.bytes", *at)

    assert (added.returncode, again.returncode) == (0, 1)
    assert all("records with a key may go to another partition" in ran.stderr for ran in (added, altered))
    assert "INVALID_PARTITIONS" in again.stderr
    assert isinstance(partitions, list) and len(partitions) == 4
    assert isinstance(settings, list)
    assert [(row["name"], row["value"], row["source"]) for row in settings] == [
        ("segment.bytes", None, "node"),
        ("segment.ms", "60000", "topic"),
    ]


def test_an_election_that_nobody_needs_changes_nothing(cluster: LocalCluster) -> None:
    """`topic elect` succeeds where no election is needed, and an unclean one moves no existing leader."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "led", "-p", "1", *at)
    content = strandline("topic", "elect", "led", "-o", "json", *at)
    unclean = strandline("topic", "elect", "led", "--unclean", "--yes", "-o", "json", *at)
    everywhere = strandline("topic", "elect", *at)
    unknown = strandline("topic", "elect", "led", "-p", "5", *at)

    assert (content.returncode, unclean.returncode, everywhere.returncode) == (0, 0, 0)
    assert [json.loads(ran.stdout)[0]["elected"] for ran in (content, unclean)] == [False, False]
    assert unknown.returncode == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in unknown.stdout


def test_every_replica_can_be_looked_at(cluster: LocalCluster) -> None:
    """`topic describe --replicas` shows each replica's progress, from its own node and from its leader."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "copied", "-p", "1", *at)
    strandline("produce", "copied", *at, stdin="a\nb\n")
    rows = document("topic", "describe", "copied", "--replicas", *at)

    assert isinstance(rows, list)
    assert sorted(row["node"] for row in rows) == [1, 2, 3]
    assert [row["role"] for row in rows] == ["leader", "in sync", "in sync"]
    assert {(row["leo"], row["lag_records"]) for row in rows} == {(2, 0)}
    assert {row["state"] for row in rows} == {"leading", "fetching"}


async def _register(bootstrap: str, node_id: int) -> None:
    """Register a node whose process then sends nothing."""
    host, _, port = bootstrap.rpartition(":")
    channel = open_channel(Endpoint(host, int(port)))
    message = pb.RegisterNodeRequest(
        node_id=node_id,
        incarnation_id="of-the-test",
        directory_id="of-the-test",
        roles=[metadata_pb2.NODE_ROLE_LEADER, metadata_pb2.NODE_ROLE_FOLLOWER],
        feature_levels=metadata_pb2.FeatureLevels(min_level=1, max_level=1),
    )
    for endpoint in (message.endpoints.client, message.endpoints.internal):
        endpoint.host, endpoint.port = "127.0.0.1", 1
    try:
        answer = await ControllerServiceStub(channel).RegisterNode(message, timeout=10)
    finally:
        await channel.close()
    assert answer.error_code == 0, answer.error_message


def test_a_node_that_is_gone_for_good_is_removed(cluster: LocalCluster) -> None:
    """A fenced node makes the status bad until it is removed; removal fails while it has a session or partitions."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "held", "-p", "1", *at)
    asyncio.run(_register(cluster.bootstrap, 9))
    alive = strandline("node", "remove", "9", *at)
    spoilt = strandline("cluster", "status", *at)
    began_s = time.monotonic()
    while (removed := strandline("node", "remove", "9", *at)).returncode and time.monotonic() < began_s + 30:
        assert "still has a session" in removed.stderr
    well = strandline("cluster", "status", *at)
    serving = strandline("node", "remove", "1", *at)

    assert (alive.returncode, "still has a session" in alive.stderr) == (1, True)
    assert (spoilt.returncode, "fenced: node 9" in spoilt.stdout) == (1, True)
    assert removed.stdout == "removed node 9\n"
    assert (well.returncode, "node 9" in well.stdout) == (0, False)
    assert serving.returncode == 1


def test_a_data_node_is_a_bootstrap(cluster: LocalCluster) -> None:
    """A command with a data node's address does what it does with the controller's."""
    address = cluster.address(1)
    assert address is not None
    at = ["--bootstrap", address.client]
    made = strandline("topic", "create", "by-a-node", "-p", "1", *at)
    listed = strandline("topic", "list", *at)

    assert made.returncode == 0, made.stderr
    assert "by-a-node" in listed.stdout


def test_status_and_verify_agree_with_the_files(cluster: LocalCluster) -> None:
    """A healthy cluster is reported as healthy, and its replicas are equal over RPC."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "numbers", "-p", "2", *at)
    strandline("produce", "numbers", *at, stdin="\n".join(map(str, range(500))))
    status = document("cluster", "status", "--all", *at)
    compared = document("log", "verify", "--topic", "numbers", *at)

    assert isinstance(status, dict)
    assert isinstance(compared, list)
    assert status["healthy"] is True
    assert status["summary"]["partitions"] == len(status["partitions"]) > 0
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
    """A request that the cluster rejects is reported with the error's name, in one line."""
    ran = strandline(*words, "--bootstrap", cluster.bootstrap)

    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert said in ran.stderr


def test_nobody_there_is_exit_code_2() -> None:
    """An address without a server is reported in one line that says what to check."""
    ran = strandline("topic", "list", "--bootstrap", "127.0.0.1:1")

    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert "--bootstrap" in ran.stderr


# Spark starts within it and answers twenty queries, on a busy machine too.
@pytest.mark.timeout(600)
def test_the_demo_proves_a_small_file_and_agrees_with_its_report(tmp_path: Path) -> None:
    """The whole demo on a small file: every check holds, Spark's figures too, and all output files are left behind."""
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
