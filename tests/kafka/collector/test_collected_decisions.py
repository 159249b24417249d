"""A collection on a controller, and the command's refusals before it asks any broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_export import refusal, rows_of, source_of
from metadata_log_bytes import HEAD, NO_OP, TOPIC_ID, batch, change, ids, node, voters
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify
from strandline_kafka.collector.cluster import Broker
from strandline_kafka.collector.collecting import Collected, Collection, WantedCollection, reach
from strandline_kafka.collector.connection import Security
from strandline_kafka.collector.files import Decisions
from strandline_kafka.metadata.wire import Unreadable

Fake = Any
"""`fake_kafka.FakeCluster`."""


PLAIN = Security()
THREE_VOTERS = (voters(0, 1, 2, 3), *HEAD[1:])


@pytest.fixture
def controlled(fake: Fake) -> Fake:
    """The cluster whose metadata log `metadata_log_bytes` writes: one partition of t, led by 1 since epoch 0."""
    (one,) = (part for (_, index), part in fake.parts.items() if index == 0)
    fake.cluster_id, fake.ids, fake.min_isr = "c", {"t": TOPIC_ID}, {"t": "2"}
    one.leader_epoch = 0
    fake.parts = {("t", 0): one}
    return fake


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def appended(root: Path, *batches: bytes) -> None:
    (segment,) = (root / "__cluster_metadata-0").glob("*.log")
    with segment.open("ab") as file:
        file.write(b"".join(batches))


async def collect(fake: Fake, out: Path, root: Path, seen: Callable[[Collected], None]) -> Collected:
    """A collection of three looks beside a metadata log; ``seen`` is called with each."""
    stop = asyncio.Event()

    def said(so_far: Collected) -> None:
        seen(so_far)
        if so_far.looks >= 3:
            stop.set()

    wanted = WantedCollection(period_ms=50, wait_s=30.0, metadata_logs=(root,))
    reached = await reach([Broker("127.0.0.1", fake.brokers[1])], PLAIN, None)
    return await Collection(reached, PLAIN, LocalDirectory(out), wanted, said).run(stop)


async def test_what_was_decided_meanwhile_is_in_the_export(controlled: Fake, tmp_path: Path) -> None:
    """The state at the beginning, and each change up to where the quorum calls it committed; the looks beside it."""
    root = node(tmp_path, 1, *THREE_VOTERS)
    controlled.quorum_hw = 6

    def seen(so_far: Collected) -> None:
        if so_far.looks == 2:
            appended(root, batch(5, change(t0=ids(1, 2)), at_ms=now_ms()), batch(6, change(t0=ids(1)), at_ms=now_ms()))

    done = await collect(controlled, tmp_path / "out", root, seen)
    decided = [row for row in rows_of(tmp_path / "out") if row["incarnation"] == 1]
    kinds = [row["event_type"] for row in decided if row["event_type"] != "EXPORT_HEARTBEAT"]
    assert kinds == ["STATE_SNAPSHOT", "ISR_CHANGE"]
    assert (decided[1]["new_isr"], decided[1]["meta_offset"], decided[1]["partition_epoch"]) == ([1, 2], 5, 1)
    source = source_of(tmp_path / "out")
    assert source["levels"] == ["metadata-log", "collector"]
    assert (source["metadata-log"]["end_offset"], source["looks"]) == (6, 3)
    assert done.rows == len(rows_of(tmp_path / "out"))
    found = verify(LocalDirectory(tmp_path / "out"), "c")
    assert {one.completeness for one in found.incarnations} == {Completeness.COMPLETE}


async def test_without_the_right_only_what_is_proved_is_taken(controlled: Fake, tmp_path: Path) -> None:
    """A user who may not describe the cluster is named the right, and what one of three copies holds is no decision."""
    root = node(tmp_path, 1, *THREE_VOTERS)
    done = await collect(controlled, tmp_path / "out", root, lambda so_far: appended(root) if so_far.looks else None)
    assert [note for note in done.notes if "is committed is not shown (Kafka's error 31); Describe on the" in note]
    assert source_of(tmp_path / "out")["levels"] == ["collector"]


async def test_a_broker_that_cannot_describe_the_quorum_is_named(controlled: Fake, tmp_path: Path) -> None:
    """Without that question it is not known what is committed, and no right would help."""
    del controlled.offered[55]
    done = await collect(controlled, tmp_path / "out", node(tmp_path, 1, *THREE_VOTERS), lambda so_far: None)
    (note,) = done.notes
    assert note.startswith(f"127.0.0.1:{controlled.brokers[1]} does not say up to where")
    assert "DescribeQuorum" not in {name for _, name, _ in controlled.asked}


async def test_a_look_does_not_meet_the_question_for_the_quorum(controlled: Fake, tmp_path: Path) -> None:
    """A broker that takes four periods to describe the quorum makes no look void: both questions use its one link."""
    controlled.quorum_hw = 1_000
    controlled.takes_s["DescribeQuorum"] = 0.2
    done = await collect(controlled, tmp_path / "out", node(tmp_path, 1, *HEAD), lambda so_far: None)
    assert (done.looks, done.voided, done.notes) == (3, {}, [])


async def test_a_broker_that_goes_is_not_said_to_refuse(controlled: Fake, tmp_path: Path) -> None:
    """Without an answer nothing is known of a right, and what was committed stays committed."""
    root = node(tmp_path, 1, *THREE_VOTERS)
    controlled.quorum_hw = 6

    def seen(so_far: Collected) -> None:
        if so_far.looks == 2:
            appended(root, batch(5, change(t0=ids(1, 2)), at_ms=now_ms()))
        if so_far.looks == 3:
            controlled.before = lost

    def lost(node: int, request: Any) -> None:
        raise ConnectionError

    done = await collect(controlled, tmp_path / "out", root, seen)
    assert done.notes == []
    assert source_of(tmp_path / "out")["metadata-log"]["end_offset"] == 6


async def test_a_log_that_has_nothing_of_the_time_makes_no_claim(controlled: Fake, tmp_path: Path) -> None:
    """A copy that ends before the collection began leaves the export as the looks made it."""
    controlled.quorum_hw = 1_000
    await collect(controlled, tmp_path / "out", node(tmp_path, 1, *HEAD), lambda so_far: None)
    source = source_of(tmp_path / "out")
    assert (source["levels"], source["metadata-log"]) == (["collector"], None)
    assert {row["event_type"] for row in rows_of(tmp_path / "out")} >= {"STATE_SNAPSHOT", "REPLICA_SAMPLE"}


async def test_the_quorum_is_asked_only_for_a_log(controlled: Fake, tmp_path: Path) -> None:
    """The question that needs a right on the cluster is not sent without a use."""
    reached = await reach([Broker("127.0.0.1", controlled.brokers[1])], PLAIN, None)
    stop = asyncio.Event()
    wanted = WantedCollection(period_ms=50, wait_s=30.0)
    await Collection(reached, PLAIN, LocalDirectory(tmp_path), wanted, lambda _: stop.set()).run(stop)
    assert "DescribeQuorum" not in {name for _, name, _ in controlled.asked}


async def test_a_log_that_is_damaged_meanwhile_is_noted(controlled: Fake, tmp_path: Path) -> None:
    """The looks go on to their end, and the note names the file."""
    root = node(tmp_path, 1, *HEAD)
    content = bytearray(batch(5, NO_OP, at_ms=now_ms()))
    content[-1] ^= 0xFF
    done = await collect(
        controlled, tmp_path / "out", root, lambda so_far: appended(root, bytes(content)) if so_far.looks == 1 else None
    )
    assert done.looks == 3
    assert [note for note in done.notes if note.startswith("--metadata-log: ") and "CRC of the batch is wrong" in note]
    assert source_of(tmp_path / "out")["is_over"] is True


def test_a_log_is_taken_part_by_part(tmp_path: Path) -> None:
    """Taken again and again, a log gives the state at the beginning once, each change once, in one row of numbers."""
    root = node(tmp_path, 1, *HEAD)
    began_ms = 1_795_387_745_000 + 60_000
    taken = Decisions((root,), "c", LocalDirectory(tmp_path / "out"), began_ms * 1_000, None)
    taken.take(0)
    assert taken.source is None
    for number, isr in enumerate(((1, 2), (1, 2, 3), (1, 3))):
        appended(root, batch(5 + number, change(t0=ids(*isr)), at_ms=began_ms + 1_000 * number))
        taken.take(0)
        taken.take(0)
    rows = [row for row in rows_of(tmp_path / "out") if row["event_type"] != "EXPORT_HEARTBEAT"]
    assert [(row["event_type"], row["new_isr"]) for row in rows] == [
        ("STATE_SNAPSHOT", [1, 2, 3]), ("ISR_CHANGE", [1, 2]), ("ISR_CHANGE", [1, 2, 3]), ("ISR_CHANGE", [1, 3]),
    ]  # fmt: skip
    assert [row["seq"] for row in rows_of(tmp_path / "out")] == list(range(1, taken.rows + 1))
    assert taken.source["imports"] == 3


def test_a_log_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """Decisions of one cluster are not put beside looks at another."""
    taken = Decisions((node(tmp_path, 1, *HEAD),), "other", LocalDirectory(tmp_path / "out"), 0, None)
    with pytest.raises(Unreadable, match="the logs are of several clusters: c, other"):
        taken.take(0)


async def test_the_command_refuses_a_wrong_log_at_once(controlled: Fake, tmp_path: Path) -> None:
    """A directory without a log ends the command before anything is written."""
    command = ("analytics", "collect", "kafka", "--bootstrap", f"127.0.0.1:{controlled.brokers[1]}")
    given = (*command, "--out", str(tmp_path / "out"), "--metadata-log", str(tmp_path))
    ran = await asyncio.to_thread(CliRunner().invoke, app, list(given))
    assert ran.exit_code == 1
    assert "strandline: --metadata-log: " in ran.stderr and "holds no metadata log" in ran.stderr
    assert not (tmp_path / "out").exists()


# `strandline analytics collect kafka`: what it refuses before it asks anybody, and its exit codes.


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["analytics", "collect", "kafka", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bootstrap", "kafka"], "--bootstrap: 'kafka' is no HOST:PORT, as kafka-1.example.org:9092"),
        (["--bootstrap", ","], "--bootstrap: name a broker as HOST:PORT"),
        (["--bootstrap", "k:9092", "--topics", ","], "--topics: name at least one topic"),
        (["--bootstrap", "k:9092", "--period", "1ms"], "1ms is too short; give 50ms or more"),
        (["--bootstrap", "k:9092", "--assume", "min.insync.replicas=0"], "must be min.insync.replicas=N"),
        (["--bootstrap", "k:9092", "--assume", "retention.ms=1"], "must be min.insync.replicas=N"),
        (["--bootstrap", "k:9092", "--user", "ann"], "--user and --password-file go with --sasl"),
        (["--bootstrap", "k:9092", "--sasl", "PLAIN"], "--sasl needs --user and --password-file"),
        (["--bootstrap", "k:9092", "--sasl", "GSSAPI"], "'GSSAPI' is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (["--bootstrap", "k:9092", "--tls-key", "k.pem"], "--tls-key goes with --tls-cert"),
        (["--bootstrap", "k:9092", "--tls-ca", "nowhere.pem"], "No such file or directory"),
    ],
)
def test_wrong_usage_names_the_option(arguments: list[str], said: str, tmp_path: Path) -> None:
    """A wrong option is named with its rule, the exit code is 2, and nothing is written."""
    ran = run(*arguments, "--out", tmp_path / "out")
    assert ran.exit_code == 2
    assert said in refusal(ran)
    assert not (tmp_path / "out").exists()


def test_a_password_is_read_without_its_line_end(tmp_path: Path) -> None:
    """A file that an editor ended with a line break holds the same password; a missing one is named."""
    from strandline_kafka.commands.collect import _login

    (tmp_path / "password").write_text("secret \n")
    login = _login("scram-sha-256", "ann", tmp_path / "password")
    assert (login.mechanism, login.password) == ("SCRAM-SHA-256", "secret ")
    file = tmp_path / "nowhere"
    ran = run("--bootstrap", "k:9092", "--out", "x", "--sasl", "PLAIN", "--user", "ann", "--password-file", file)
    assert ran.exit_code == 2
    assert "No such file" in refusal(ran)


def test_no_broker_answers(tmp_path: Path) -> None:
    """An address where no process listens is one line with the remedy and exit code 2, and no export is begun."""
    ran = run("--bootstrap", "127.0.0.1:1", "--out", tmp_path / "out")
    assert ran.exit_code == 2
    said = "127.0.0.1:1: no process listens there; give the address of a broker's listener for clients"
    assert ran.stderr == f"strandline: --bootstrap: {said}\n"
    assert not (tmp_path / "out").exists()


def test_an_export_is_not_written_over_another(tmp_path: Path) -> None:
    """A place that is not empty is refused before any broker is asked."""
    (tmp_path / "mine.txt").write_text("mine")
    ran = run("--bootstrap", "127.0.0.1:1", "--out", tmp_path)
    assert ran.exit_code == 1
    assert "is not empty, and one collection is one export; name another" in ran.stderr
