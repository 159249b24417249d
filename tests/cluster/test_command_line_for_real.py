"""The command line against real processes: what a user types in the first five minutes, and the demo."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.core.messages import Endpoint
from strandline.rpc.channels import open_channel
from strandline.v1 import controller_service_pb2 as pb, group_service_pb2 as group_pb, metadata_pb2
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    from strandline.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub

_HEARTBEAT_MS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A controller and three nodes, as `strandline up` starts them."""
    settings = {"session_timeout_ms": "1500", "heartbeat_interval_ms": str(_HEARTBEAT_MS)}
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
    assert "line 3: 'valeu' is not a field" in sent.stderr
    assert "2 records before it acknowledged, no more sent" in sent.stderr
    assert read.stdout == "moon spring 6 1700000000000 a=1,b=x=y\nsun  -1 1700000000000 a=1,b=x=y\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_member_in_good_order(cluster: LocalCluster, number: signal.Signals, code: int) -> None:
    """`consume --group` that is ended by a signal has committed what it printed, and has left its group."""
    at = ["--bootstrap", cluster.bootstrap]
    group = f"ended-by-{number.name}"
    strandline("topic", "create", group, "-p", "1", *at)
    strandline("produce", group, *at, stdin="a\nb\n")
    command = [sys.executable, "-m", "strandline.cli", "consume", group, "-g", group, "--from-beginning", *at]
    # What starts the tests may ignore Ctrl-C, as a shell does for a job in the background.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heed) as consume:
        assert consume.stdout is not None
        printed = [consume.stdout.readline() for _ in range(2)]
        consume.send_signal(number)
        consume.wait(30)
    (described,) = document("group", "describe", group, "--state", *at)  # type: ignore[misc]

    assert (printed, consume.returncode) == (["a\n", "b\n"], code)
    assert (described["state"], described["members"]) == ("Empty", 0)


def test_a_group_goes_on_where_it_ended(cluster: LocalCluster) -> None:
    """`consume --group` commits what it printed and leaves; the next one begins behind it, and places are refused."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "shared", "-p", "1", *at)
    strandline("produce", "shared", *at, stdin="1\n2\n3\n")
    words = ["consume", "shared", "--group", "shipping", "--from-beginning", *at]
    read = [strandline(*words, "-n", count) for count in ("2", "1")]
    placed = strandline(*words, "--offset", "1")
    missing = strandline("consume", "nowhere", "-g", "shipping", *at)
    group = document("group", "describe", "shipping", *at)

    assert [(one.stdout, one.returncode) for one in read] == [("1\n2\n", 0), ("3\n", 0)], [one.stderr for one in read]
    assert (placed.returncode, missing.returncode) == (2, 1)
    assert "reset-offsets" in placed.stderr
    assert "nowhere" in missing.stderr
    assert isinstance(group, list)
    assert [(row["topic"], row["current_offset"]) for row in group] == [("shared", 3)]


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


def test_figures_of_a_run_agree_with_each_other(cluster: LocalCluster) -> None:
    """Counts are exact, percentiles ordered, rates those of counts and time; without records there are no figures."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "loaded", "-p", "2", *at)
    runs = [
        document("perf", "produce", "loaded", "--records", "3000", "--size", "50", "--warm-up", "200", *at),
        document("perf", "consume", "loaded", "--records", "3000", "--warm-up", "200", *at),
        document("perf", "end-to-end", "loaded", "--records", "300", "--size", "50", "--rate", "500", *at),
    ]
    short = strandline("perf", "consume", "loaded", "--records", "5000", *at)
    ends = document("topic", "offsets", "loaded", *at)
    strandline("topic", "create", "transacted", "-p", "2", *at)
    in_transactions = ["--transactional", "50ms", "--records", "300", "--warm-up", "0", "--rate", "1000"]
    runs.append(document("perf", "produce", "transacted", "--size", "50", *in_transactions, *at))
    late = strandline("perf", "produce", "loaded", "--rate", "1", "--records", "60", "--deadline", "1s", *at)

    for run in runs:
        assert isinstance(run, dict)
        assert run["bytes"] == run["records"] * 50
        assert run["records_per_s"] == pytest.approx(run["records"] / run["elapsed_s"], rel=1e-3)
        times = list(run["latency_ms"].values())
        assert times == sorted(times) and times[0] > 0 and times[-1] <= run["elapsed_s"] * 1e3 + 1
        assert (run["nodes"], run["partitions"], run["replicas"]) == ([1, 2, 3], 2, 3)
        assert {"client_version", "feature_level", "settings"} <= run.keys()
    assert [(run["records"], run["warm_up_records"]) for run in runs] == [(3000, 200), (3000, 200), (300, 30), (300, 0)]
    assert [run["latencies"] for run in (runs[0], *runs[2:])] == [3000, 300, 300]
    assert runs[2]["elapsed_s"] > 0.5
    assert isinstance(ends, list) and sum(row["records"] for row in ends) == 3530
    assert (short.returncode, "loaded has 3,530 records" in short.stderr, short.stdout) == (1, True, "")
    assert (late.returncode, "not done within 1s" in late.stderr, late.stdout) == (1, True, "")


def test_a_run_reads_as_a_member_of_a_group(cluster: LocalCluster) -> None:
    """`perf consume --group` owns all partitions, commits what it read, and reads nothing twice."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "divided", "-p", "2", *at)
    strandline("perf", "produce", "divided", "--records", "900", "--size", "50", "--warm-up", "100", *at)
    consume = ["perf", "consume", "divided", "--group", "measurers"]
    run = document(*consume, "--records", "800", "--warm-up", "200", *at)
    again = strandline(*consume, "--records", "800", "--warm-up", "200", *at)
    offsets = document("group", "describe", "measurers", *at)

    assert isinstance(run, dict) and isinstance(offsets, list)
    assert (run["records"], run["bytes"], run["settings"]["read_from"]) == (800, 40_000, "leader")
    assert run["member"].pop("joined_ms") > 0
    assert run["member"] == {"group": "measurers", "partitions": 2, "assignment_changes": 0}
    assert (again.returncode, again.stdout) == (1, "")
    assert "group measurers had " in again.stderr and "name a group that has not read them" in again.stderr
    assert [row["lag"] for row in offsets] == [0, 0]


async def _commit(address: str, group_id: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets for a group without members, at its coordinator, as soon as there is one."""
    host, _, port = address.rpartition(":")
    endpoint = Endpoint(host, int(port))
    request = group_pb.OffsetCommitRequest(group_id=group_id)
    row = request.topics.add(name=topic)
    for index, offset in offsets.items():
        row.partitions.add(partition_index=index, committed_offset=offset)
    while True:
        async with open_channel(endpoint) as channel:
            answer = await GroupServiceStub(channel).OffsetCommit(request, timeout=10)
        if not any(each.error_code for each in answer.topics[0].partitions):
            return
        if answer.HasField("current_coordinator"):
            hint = answer.current_coordinator.endpoint
            endpoint = Endpoint(hint.host, hint.port)


def test_groups_are_listed_and_described(cluster: LocalCluster) -> None:
    """A group with offsets is listed as empty, with its lag by partition; one that is not there is named."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "grouped", "-p", "2", *at)
    strandline("produce", "grouped", "-p", "0", *at, stdin="a\nb\nc\n")
    address = cluster.address(1)
    assert address is not None
    asyncio.run(asyncio.wait_for(_commit(address.client, "readers", "grouped", {0: 1, 1: 0}), 60))
    listed = document("group", "list", *at)
    stable = document("group", "list", "--state", "stable", *at)
    described = document("group", "describe", "readers", *at)
    state = document("group", "describe", "--all-groups", "--state", *at)
    members = document("group", "describe", "readers", "--members", *at)
    shown = strandline("group", "describe", "readers", *at).stdout
    unknown = strandline("group", "describe", "writers", *at)

    assert isinstance(listed, list) and isinstance(described, list) and isinstance(state, list)
    assert [row for row in listed if row["group"] == "readers"] == [
        {"group": "readers", "type": "Consumer", "state": "Empty"}
    ]
    assert (stable, members) == ([], [])
    assert [(row["partition"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in described] == [
        (0, 1, 3, 2),
        (1, 0, 0, 0),
    ]
    assert ("readers", "Empty", 0) in [(row["group"], row["state"], row["members"]) for row in state]
    assert all(heading in shown for heading in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"))
    assert (unknown.returncode, "GROUP_ID_NOT_FOUND" in unknown.stderr) == (1, True)


def test_offsets_of_a_group_are_reset(cluster: LocalCluster, tmp_path: Path) -> None:
    """Nothing is written without --execute; what is shown is written, clamped to the log; a file repeats a plan."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "again", "-p", "2", *at)
    strandline("produce", "again", "-p", "0", "--timestamp", "2023-11-14", *at, stdin="a\nb\nc\n")
    address = cluster.address(1)
    assert address is not None
    asyncio.run(asyncio.wait_for(_commit(address.client, "rewound", "again", {0: 3}), 60))
    reset = ("group", "reset-offsets", "rewound", *at)

    def committed() -> dict[int, int]:
        """The group's offsets by partition."""
        rows = document("group", "describe", "rewound", *at)
        assert isinstance(rows, list)
        return {row["partition"]: row["current_offset"] for row in rows}

    shown = document(*reset, "--topic", "again", "--to-offset", "2", "--export", str(tmp_path / "plan"))
    assert isinstance(shown, list)
    assert [(row["partition"], row["current_offset"], row["new_offset"], row["note"]) for row in shown] == [
        (0, 3, 2, None),
        (1, None, 0, "2 is above the high watermark: latest"),
    ]
    assert committed() == {0: 3}
    document(*reset, "--all-topics", "--shift-by", "-2", "--execute")
    assert committed() == {0: 1}
    document(*reset, "--topic", "again:0", "--to-datetime", "2023-11-15", "--execute")
    assert committed() == {0: 3}
    document(*reset, "--from-file", str(tmp_path / "plan"), "--execute")
    assert committed() == {0: 2, 1: 0}
    beyond = strandline(*reset, "--topic", "again:7", "--to-earliest", "--execute")
    assert (beyond.returncode, "no partition again-7" in beyond.stderr) == (1, True)


def test_groups_and_offsets_are_deleted(cluster: LocalCluster) -> None:
    """`delete-offsets` removes a partition's offset and `delete` groups, after a yes; an unknown one is named."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "left", "-p", "2", *at)
    address = cluster.address(1)
    assert address is not None
    asyncio.run(asyncio.wait_for(_commit(address.client, "former", "left", {0: 0, 1: 0}), 60))
    unconfirmed = strandline("group", "delete", "former", *at)
    one = document("group", "delete-offsets", "former", "--topic", "left:1", "--yes", *at)
    none = document("group", "delete-offsets", "former", "--topic", "left:1", "--yes", *at)
    rest = document("group", "describe", "former", *at)
    both = strandline("group", "delete", "former", "never", "--yes", "-o", "json", *at)

    assert (unconfirmed.returncode, "not confirmed" in unconfirmed.stderr) == (1, True)
    assert isinstance(one, list) and isinstance(rest, list)
    assert [(row["topic"], row["partition"], row["outcome"]) for row in one] == [("left", 1, "deleted")]
    assert none == []
    assert [row["partition"] for row in rest] == [0]
    assert [row["deleted"] for row in json.loads(both.stdout)] == [True, False]
    assert (both.returncode, "GROUP_ID_NOT_FOUND" in both.stdout) == (1, True)


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


@asynccontextmanager
async def _session_of_node(bootstrap: str, node_id: int) -> AsyncIterator[None]:
    """Registers a node and keeps its session alive until the end of the block; after that it sends nothing.

    The heartbeats let a command take longer than a session to start, as it does on a busy machine.
    """
    host, _, port = bootstrap.rpartition(":")
    channel = open_channel(Endpoint(host, int(port)))
    controller = ControllerServiceStub(channel)
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
        answer = await controller.RegisterNode(message, timeout=10)
        assert answer.error_code == 0, answer.error_message
        beats = asyncio.create_task(_heartbeats(controller, node_id, answer))
        try:
            yield
        finally:
            beats.cancel()
            # Raises what ended the heartbeats before: without its session the node proves nothing.
            with suppress(asyncio.CancelledError):
                await beats
    finally:
        await channel.close()


async def _heartbeats(
    controller: ControllerServiceAsyncStub, node_id: int, registered: pb.RegisterNodeResponse
) -> None:
    """Sends the heartbeats of a fenced node at the interval of the cluster's settings, until it is cancelled."""
    beat = pb.HeartbeatRequest(
        node_id=node_id, node_epoch=registered.node_epoch, cluster_id=registered.cluster_id, want_fence=True
    )
    while True:
        answer = await controller.Heartbeat(beat, timeout=10)
        assert answer.error_code == 0, answer.error_message
        await asyncio.sleep(_HEARTBEAT_MS / 1000)


async def _removed_while_alive(bootstrap: str, node_id: int) -> subprocess.CompletedProcess[str]:
    """What `node remove` says of a node whose session lasts until the command has ended."""
    async with _session_of_node(bootstrap, node_id):
        return await asyncio.to_thread(strandline, "node", "remove", str(node_id), "--bootstrap", bootstrap)


def test_a_node_that_is_gone_for_good_is_removed(cluster: LocalCluster) -> None:
    """A fenced node makes the status bad until it is removed; removal fails while it has a session or partitions."""
    at = ["--bootstrap", cluster.bootstrap]
    strandline("topic", "create", "held", "-p", "1", *at)
    alive = asyncio.run(_removed_while_alive(cluster.bootstrap, 9))
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
