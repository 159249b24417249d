"""A collection from brokers on loopback: what is asked, what is written, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka_export import rows_of, source_of

from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify
from strandline_kafka.collector.cluster import Broker
from strandline_kafka.collector.collecting import Collected, Collection, WantedCollection, reach
from strandline_kafka.collector.connection import Login, Refused, Security, Unreachable

Fake = Any
"""`FakeCluster` of the conftest."""
PLAIN = Security()
WAIT_S = 1.5
"""Where a broker stands still: long enough for the others."""
READS = {"ApiVersions", "Metadata", "ListOffsets", "DescribeConfigs", "DescribeTopicPartitions"}


def bootstrap(fake: Fake, node: int = 1) -> list[Broker]:
    return [Broker("127.0.0.1", fake.brokers[node])]


async def collect(
    fake: Fake, out: Path, looks: int = 3, seen: Callable[[Collected], None] = lambda _: None, **wanted: Any
) -> Collected:
    """A collection that is stopped after so many looks; ``seen`` is called with each."""
    stop = asyncio.Event()

    def said(so_far: Collected) -> None:
        seen(so_far)
        if so_far.looks >= looks:
            stop.set()

    wants = WantedCollection(**{"period_ms": 50, "wait_s": 30.0, **wanted})
    reached = await reach(bootstrap(fake), PLAIN, wants.topics)
    return await Collection(reached, PLAIN, LocalDirectory(out), wants, said).run(stop)


async def test_a_look_becomes_rows_of_its_leaders(fake: Fake, tmp_path: Path) -> None:
    """Every replica of both partitions has a row in each look, by the leader, with its own log's end and the HW."""
    done = await collect(fake, tmp_path)
    samples = rows_of(tmp_path, "REPLICA_SAMPLE")
    found = {
        (r["node_id"], r["partition"], r["replica_id"], r["leo"], r["leader_leo"], r["hw"], r["log_start"])
        for r in samples
    }
    assert found == {
        (1, 0, 1, 100, 100, 90, 10), (1, 0, 2, 95, 100, 90, 10), (1, 0, 3, 90, 100, 90, 10),
        (2, 1, 2, 50, 50, 50, 0), (2, 1, 3, 50, 50, 50, 0), (2, 1, 1, 20, 50, 50, 0),
    }  # fmt: skip
    assert (done.looks, done.samples, len(samples)) == (3, 18, 18)
    assert {row["topic"] for row in samples} == {"orders"}


async def test_a_state_comes_as_a_snapshot_before_its_samples(fake: Fake, tmp_path: Path) -> None:
    """Leader, ISR, ELR, replicas and minimum of each partition are reported once, no later than the first sample."""
    fake.parts["orders", 1].isr, fake.parts["orders", 1].elr = [2], [3]
    await collect(fake, tmp_path)
    snapshots = rows_of(tmp_path, "STATE_SNAPSHOT")
    last = {row["partition"]: row for row in snapshots}
    assert (last[0]["new_leader"], last[0]["new_isr"], last[0]["elr"], last[0]["min_isr"]) == (1, [1, 2, 3], [], 2)
    assert (last[1]["new_leader"], last[1]["new_isr"], last[1]["elr"]) == (2, [2], [3])
    assert min(r["ts_wall_us"] for r in snapshots) <= min(r["ts_wall_us"] for r in rows_of(tmp_path, "REPLICA_SAMPLE"))
    assert {row["event_type"] for row in rows_of(tmp_path)} == {"STATE_SNAPSHOT", "REPLICA_SAMPLE", "EXPORT_HEARTBEAT"}


async def test_nothing_but_questions_is_sent(fake: Fake, tmp_path: Path) -> None:
    """Only requests that read, none as a follower, and never two at once at one broker."""
    await collect(fake, tmp_path)
    assert {name for _, name, _ in fake.asked} <= READS
    assert {request.replica_id for _, name, request in fake.asked if name == "ListOffsets"} == {-1, -2}
    assert fake.most_at_once == 1


async def test_more_partitions_cost_no_question_more(fake: Fake, tmp_path: Path) -> None:
    """All partitions of a broker are in one question: thirty times as many are asked for by as many questions."""
    await collect(fake, tmp_path / "few", looks=2)
    few = Counter((node, name) for node, name, _ in fake.asked)
    fake.asked.clear()
    one, two = fake.parts["orders", 0], fake.parts["orders", 1]
    fake.parts.update({("orders", index): replace(two if index % 2 else one) for index in range(60)})
    done = await collect(fake, tmp_path / "many", looks=2)
    assert done.samples == 2 * 60 * 3
    assert Counter((node, name) for node, name, _ in fake.asked) == few


async def test_the_export_is_whole(fake: Fake, tmp_path: Path) -> None:
    """Every emitter is complete up to its last word, and the export says where it came from."""
    await collect(fake, tmp_path)
    found = verify(LocalDirectory(tmp_path), "fake-cluster")
    assert {one.node_id: one.completeness for one in found.incarnations} == dict.fromkeys(
        (-1, 1, 2), Completeness.COMPLETE
    )
    source = source_of(tmp_path)
    assert (source["levels"], source["nodes"], source["looks"], source["is_over"]) == (
        ["collector"],
        [1, 2, 3],
        3,
        True,
    )
    assert source["hw_bounds"] == {"looks": 6, "exact": 6, "width_sum": 0, "widest": 0}


async def test_a_follower_that_stands_still_is_a_lower_bound(fake: Fake, tmp_path: Path) -> None:
    """A broker that is stopped costs no look of the others: its replicas have what they had at least."""

    def seen(so_far: Collected) -> None:
        fake.speaking[3].clear()
        one = fake.parts["orders", 0]
        one.leos[1], one.leos[2] = one.leos[1] + 50, one.leos[2] + 50

    done = await collect(fake, tmp_path, looks=4, seen=seen, wait_s=WAIT_S)
    of_3 = [row for row in rows_of(tmp_path, "REPLICA_SAMPLE") if (row["replica_id"], row["partition"]) == (3, 0)]
    assert [(row["leader_leo"], row["leo"]) for row in of_3] == [(100, 90), (150, 90), (200, 90), (250, 90)]
    assert [row["ext"].get("leo_bound") for row in of_3] == [None, "lower", "lower", "lower"]
    assert done.silent == (3,)
    assert fake.most_at_once == 1


async def test_a_leader_that_stands_still_is_a_gap(fake: Fake, tmp_path: Path) -> None:
    """Looks that lack a leader are counted as rows that it did not give, and the export stays consistent."""

    def seen(so_far: Collected) -> None:
        (fake.speaking[2].clear if so_far.looks == 1 else fake.speaking[2].set)()

    done = await collect(fake, tmp_path, looks=3, seen=seen, wait_s=WAIT_S)
    (gap,) = rows_of(tmp_path, "EXPORT_GAP")
    # One look, or two where its late answer does not come before the third look.
    looks = done.voided["its leader did not answer"]
    assert 1 <= looks == done.voided.total()
    assert (gap["node_id"], gap["dropped_by_type"]) == (2, {"REPLICA_SAMPLE": 3 * looks})
    found = verify(LocalDirectory(tmp_path), "fake-cluster")
    of_2 = next(one for one in found.incarnations if one.node_id == 2)
    assert of_2.completeness is Completeness.GAPS_REPORTED


async def test_a_change_of_leader_within_a_look_voids_it(fake: Fake, tmp_path: Path) -> None:
    """Answers of two leader epochs make no row; the next look is of the new one, behind its snapshot."""

    def seen(so_far: Collected) -> None:
        if so_far.looks == 1:
            one = fake.parts["orders", 0]
            one.leader, one.leader_epoch, one.isr = 2, 5, [2, 3]

    done = await collect(fake, tmp_path, seen=seen)
    epochs = {(r["node_id"], r["leader_epoch"]) for r in rows_of(tmp_path, "REPLICA_SAMPLE") if r["partition"] == 0}
    assert epochs == {(1, 4), (2, 5)}
    assert done.voided == {"its leader answered with an error": 1}
    states = [r["leader_epoch"] for r in rows_of(tmp_path, "STATE_SNAPSHOT") if r["partition"] == 0]
    assert states == [4, 5]


async def test_settings_that_are_not_shown_are_noted_and_may_be_assumed(fake: Fake, tmp_path: Path) -> None:
    """Without DescribeConfigs the minimum is unknown or assumed, and one note names the right."""
    fake.min_isr.clear()
    done = await collect(fake, tmp_path / "a")
    assert "min_isr" not in rows_of(tmp_path / "a", "STATE_SNAPSHOT")[0]
    assert [note for note in done.notes if "DescribeConfigs on them is needed" in note and "error 29" in note]
    await collect(fake, tmp_path / "b", min_isr=1)
    assert {row["min_isr"] for row in rows_of(tmp_path / "b", "STATE_SNAPSHOT")} == {1}


async def test_it_ends_after_its_time(fake: Fake, tmp_path: Path) -> None:
    """A length ends a collection without anybody, with its last words."""
    done = await collect(fake, tmp_path, looks=1_000, for_s=0.3, period_ms=100)
    assert 1 <= done.looks <= 10
    assert source_of(tmp_path)["is_over"] is True


async def test_a_stop_ends_a_look_that_waits(fake: Fake, tmp_path: Path) -> None:
    """A stop while every broker stands still does not wait for them."""
    stop = asyncio.Event()
    reached = await reach(bootstrap(fake), PLAIN, None)
    for event in fake.speaking.values():
        event.clear()
    wanted = WantedCollection(period_ms=60_000)
    running = asyncio.create_task(Collection(reached, PLAIN, LocalDirectory(tmp_path), wanted).run(stop))
    await asyncio.sleep(0)
    stop.set()
    done = await asyncio.wait_for(running, 5)
    assert done.looks == 0


async def test_a_destination_that_fails_ends_it(fake: Fake, tmp_path: Path) -> None:
    """A place that cannot be written to is an error of the system, at once."""
    (tmp_path / "out").write_text("a file")
    with pytest.raises(NotADirectoryError):
        await collect(fake, tmp_path / "out")


async def serving(answer: bytes) -> tuple[asyncio.Server, Broker]:
    """A server that answers the first bytes with these, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, Broker("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"\x15\x03\x03\x00\x02\x02\x46",
            "the listener speaks TLS; give --tls, and --tls-ca for an authority of your own",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is no listener of Kafka (it begins with b'HTTP')"),
        (
            b"",
            "closed the connection on the first question; give --tls, if it speaks TLS and --sasl, if it wants a login",
        ),
    ],
)
async def test_what_is_no_plain_listener_is_named(answer: bytes, said: str) -> None:
    """First bytes of TLS, of another service, or none, are refused with what to do."""
    server, broker = await serving(answer)
    async with server:
        with pytest.raises(Refused) as refused:
            await reach([broker], PLAIN, None)
    assert said in str(refused.value)


async def test_a_plain_listener_does_not_speak_tls() -> None:
    """TLS with a listener that hangs up on it is refused with the remedy."""
    server, broker = await serving(b"")
    async with server:
        with pytest.raises(Refused, match=r"no TLS could be agreed on .* leave --tls out"):
            await reach([broker], Security(tls=ssl.create_default_context()), None)


async def test_an_address_where_no_process_listens_is_unreachable(fake: Fake) -> None:
    """A refused connection is named, and the next address of the list is tried."""
    server, gone = await serving(b"")
    server.close()
    await server.wait_closed()
    with pytest.raises(Unreachable, match="give the address of a broker's listener for clients"):
        await reach([gone], PLAIN, None)
    _, broker, _ = reached = await reach([gone, *bootstrap(fake)], PLAIN, None)
    reached[0].close()
    assert broker == bootstrap(fake)[0]


async def test_an_old_broker_is_refused_with_the_release(fake: Fake) -> None:
    """A broker without a version that is needed is refused, and not asked any further."""
    fake.offered[3] = (0, 9)
    with pytest.raises(Refused, match="version 12 of Metadata is needed and the broker offers 0 to 9"):
        await reach(bootstrap(fake), PLAIN, None)
    assert [name for _, name, _ in fake.asked] == ["ApiVersions"]


async def test_a_topic_that_is_not_there_is_refused(fake: Fake) -> None:
    """A topic of --topics that the cluster lacks is named at the start."""
    with pytest.raises(Refused, match="--topics: nothing: there is no such topic"):
        await reach(bootstrap(fake), PLAIN, ["orders", "nothing"])


def scram(password: bytes) -> Callable[[bytes], tuple[int, str, bytes]]:
    """The broker's half of SCRAM-SHA-256 (RFC 5802)."""
    salt, first = b"salt", []

    def answer(token: bytes) -> tuple[int, str, bytes]:
        if not first:
            bare = token.decode().removeprefix("n,,")
            said = f"{bare.split('r=')[1]}broker"
            first.append((bare, f"r={said},s={base64.b64encode(salt).decode()},i=4096"))
            return 0, "", first[0][1].encode()
        final, proof = token.decode().rsplit(",p=", 1)
        salted = hashlib.pbkdf2_hmac("sha256", password, salt, 4096)
        client = hmac.digest(salted, b"Client Key", "sha256")
        signed = ",".join((*first[0], final)).encode()
        first.clear()
        signature = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
        if bytes(a ^ b for a, b in zip(client, signature, strict=True)) != base64.b64decode(proof):
            return 58, "Authentication failed during authentication due to invalid credentials", b""
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return 0, "", b"v=" + base64.b64encode(server)

    return answer


async def test_a_login_by_scram(fake: Fake) -> None:
    """The right password reaches the cluster; a wrong one is refused with the user's name and without the password."""
    fake.login = scram(b"right")
    reached = await reach(bootstrap(fake), Security(login=Login("SCRAM-SHA-256", "ann", "right")), None)
    reached[0].close()
    with pytest.raises(Refused) as refused:
        await reach(bootstrap(fake), Security(login=Login("SCRAM-SHA-256", "ann", "guessed")), None)
    assert "the login of 'ann' was refused (Authentication failed" in str(refused.value)
    assert "guessed" not in str(refused.value) + repr(Login("PLAIN", "ann", "guessed"))


async def test_a_mechanism_that_the_listener_lacks(fake: Fake) -> None:
    """The mechanisms that the listener has are named."""
    fake.login = scram(b"right")
    login = Login("SCRAM-SHA-512", "ann", "right")
    with pytest.raises(
        Refused, match="has no SCRAM-SHA-512; --sasl must be one of those that it has: PLAIN, SCRAM-SHA-2"
    ):
        await reach(bootstrap(fake), Security(login=login), None)


async def test_the_command_ends_on_sigterm_with_a_whole_export(fake: Fake, tmp_path: Path) -> None:
    """SIGTERM ends `analytics collect kafka` with code 0, a summary, and an export that is complete."""
    command = [sys.executable, "-m", "strandline.cli", "analytics", "collect", "kafka", "--period", "50ms"]
    address = f"127.0.0.1:{fake.brokers[1]}"
    out = asyncio.subprocess.PIPE
    environment = {**os.environ, "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        *command, "--bootstrap", address, "--out", str(tmp_path / "out"), stdout=out, stderr=out, env=environment
    )
    looked = asyncio.Event()
    fake.before = lambda node, request: looked.set() if sum(n == "Metadata" for _, n, _ in fake.asked) >= 3 else None
    await asyncio.wait_for(looked.wait(), 60)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, stderr.decode()
    assert b"looks at 2 partitions of 3 brokers:" in stdout
    assert stderr.decode().startswith("cluster fake-cluster: 2 partitions of 1 topics, 3 brokers; writing to")
    found = {one.completeness for one in verify(LocalDirectory(tmp_path / "out"), "fake-cluster").incarnations}
    # On a busy machine a broker's answer may come too late for a look, which is then a gap.
    assert found <= {Completeness.COMPLETE, Completeness.GAPS_REPORTED}
