"""What a client says of itself: lines of the standard library's logging, and counts."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from typing import Any, cast

import pytest
from tests.client.fake_cluster import TOPIC, Refuse, fake_cluster, producing, until, write

from strandline import client
from strandline.client.cluster.metadata import Cluster
from strandline.client.cluster.repeating import ask_again
from strandline.client.log import RetryLog, some_of
from strandline.core.errors import ErrorCode

LOGGER = "strandline.client"


def test_only_what_lasts_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A retry is a line after more than a second, once, and another when it works again; a shorter one is none."""
    retry = RetryLog("reading t-0")
    with caplog.at_level(logging.DEBUG, LOGGER):
        retry.failed(0.0, "gone")
        retry.failed(1_000.0, "gone")
        retry.worked()
        retry.worked()
        short = len(caplog.records)
        retry.failed(5_000.0, "gone")
        for now_ms in (6_001.0, 7_000.0, 9_000.0):
            retry.failed(now_ms, "still gone")
        retry.worked()
        retry.failed(20_000.0, "again")
        retry.failed(22_000.0, "again")

    assert short == 0
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "reading t-0: tried again for 1.0 s now: still gone"),
        ("INFO", "reading t-0: works again; it had failed for 4.0 s"),
        ("WARNING", "reading t-0: tried again for 2.0 s now: again"),
    ]


def test_two_troubles_are_not_one_that_lasted(caplog: pytest.LogCaptureFixture) -> None:
    """What works without a sign of it, and fails again long after, has not been tried again all that time."""
    retry = RetryLog("reading t-0", forgets_after_ms=10_000)
    with caplog.at_level(logging.DEBUG, LOGGER):
        retry.failed(0.0, "moved")
        retry.failed(3_600_000.0, "moved")
        retry.failed(3_600_500.0, "moved")
        between = len(caplog.records)
        retry.failed(3_602_000.0, "moved")

    assert between == 0
    assert [record.getMessage() for record in caplog.records] == ["reading t-0: tried again for 2.0 s now: moved"]


def test_a_line_names_a_few_partitions() -> None:
    """With a thousand partitions a line names ten and counts the others."""
    named = some_of(("t", index) for index in range(1_000))

    assert named.startswith("t-0, t-1, ")
    assert named.endswith("t-9 and 990 more")
    assert some_of([]) == "nothing"


async def test_a_produce_that_is_refused_for_long_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A partition whose leader keeps refusing is one WARNING with the reason, and one INFO when it works."""
    async with fake_cluster() as cluster, client.Producer(cluster.bootstrap) as producer:
        refusing = [Refuse(ErrorCode.NOT_ENOUGH_REPLICAS) for _ in range(100)]
        cluster.nodes[0].next_produce.extend(refusing)
        with caplog.at_level(logging.INFO, LOGGER):
            delivery = await producer.send(TOPIC, b"secret value", b"secret key")
            await until(lambda: "WARNING" in [record.levelname for record in caplog.records])
            cluster.nodes[0].next_produce.clear()
            await delivery

    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert re.fullmatch(r"producing to t-0: tried again for \d\.\d s now: NOT_ENOUGH_REPLICAS.*", lines[0][1])
    assert lines[1][1].startswith("producing to t-0: works again")


async def test_a_partition_without_a_leader_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer and a producer that wait for a leader say so."""
    async with (
        fake_cluster() as cluster,
        client.Producer(cluster.bootstrap) as producer,
        client.Consumer(cluster.bootstrap) as consumer,
    ):
        await consumer.assign([(TOPIC, 0)], start=0)
        cluster.move_leader(None)
        await until(lambda: consumer._cluster.view.leader_of(cluster.tp()) is None)
        await until(lambda: producer._cluster.view.leader_of(cluster.tp()) is None)
        consumer.seek(TOPIC, 0, 0)
        with caplog.at_level(logging.WARNING, LOGGER):
            await producer.send(TOPIC, b"x")
            await until(lambda: len(caplog.records) >= 2)
        found = {record.getMessage().partition(": ")[0] for record in caplog.records}

        assert found == {"producing to t-0", "reading t-0"}
        assert all("no leader is known" in record.getMessage() for record in caplog.records)
        cluster.move_leader(0)


async def test_metadata_that_nobody_sends_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A client that looks for metadata for more than a second says at which address and why."""
    async with fake_cluster() as cluster:
        admin = client.Admin(cluster.bootstrap)
        await admin.start()
        with caplog.at_level(logging.WARNING, LOGGER):
            await cluster.stop()
            await until(lambda: bool(caplog.records))
        await admin.close()

    assert caplog.records[0].getMessage().startswith("following metadata: tried again for")


@pytest.mark.parametrize("work", ["finding offsets", "deleting records"])
async def test_an_admin_that_waits_for_a_leader_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """What is asked of leaders again for long is a WARNING with the reason."""
    monkeypatch.setattr(client.log, "WARN_AFTER_MS", 10)
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap, timeout_ms=500) as admin:
        cluster.move_leader(None)
        await admin._cluster.wait_for(
            lambda view: view.topic(TOPIC) if view.leader_of(cluster.tp()) is None else None,
            otherwise=client.Refusal(ErrorCode.NONE),
        )
        with caplog.at_level(logging.WARNING, LOGGER):
            if work == "finding offsets":
                with pytest.raises(client.Refused):
                    await admin.list_offsets(TOPIC)
            else:
                await admin.delete_records(TOPIC, {0: 0})

    (line,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(rf"{work}: tried again for \d\.\d s now: no leader is known", line)


async def test_an_admin_that_waits_for_a_controller_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that is asked again while controllers change is a WARNING, and an INFO once it is answered."""
    monkeypatch.setattr(client.log, "WARN_AFTER_MS", 10)
    standby = client.Refused.of(
        client.Refusal(ErrorCode.NOT_CONTROLLER, "another decides", hint=client.ControllerHint("STANDBY"))
    )
    answers = [standby, standby, standby, "answer"]

    class Scripted:
        timeout_ms = 10_000

        async def ask_controller(self, *_: object, **__: object) -> object:
            answer = answers.pop(0)
            if isinstance(answer, client.Refused):
                raise answer
            return answer

    with caplog.at_level(logging.INFO, LOGGER):
        answer = await ask_again(cast("Cluster", Scripted()), lambda to: to.ListNodes, cast("Any", "request"))
    found = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]

    assert answer == "answer"
    assert found == [("WARNING", "asking a controller"), ("INFO", "asking a controller")]


async def test_assignments_and_leader_moves_are_lines(caplog: pytest.LogCaptureFixture) -> None:
    """INFO has what is assigned, what a topic is given later, and which partitions have a new leader; no more."""
    async with (
        fake_cluster(nodes=2) as cluster,
        client.Producer(cluster.bootstrap) as producer,
        client.Consumer(cluster.bootstrap) as consumer,
    ):
        await producer.send_and_wait(TOPIC, b"x")
        with caplog.at_level(logging.DEBUG, LOGGER):
            await consumer.assign(TOPIC)
            await consumer.poll(5_000)
            cluster.add_partition()
            await until(lambda: len(consumer.assignment()) == 2)
            caplog_before = [record.getMessage() for record in caplog.records]
            cluster.move_leader(1)
            await until(lambda: len(caplog.records) >= len(caplog_before) + 2)

        assert caplog_before == ["assigned t-0", "assigned t-1 as well, added to a topic that is read as a whole"]
        assert [record.getMessage() for record in caplog.records[2:]] == ["new leaders for t-0"] * 2


async def test_records_leave_no_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """However many records go through, no line is written for them, and none has a key, value or header in it."""
    with caplog.at_level(logging.DEBUG, LOGGER):
        async with (
            fake_cluster() as cluster,
            client.Producer(cluster.bootstrap, linger_ms=0) as producer,
            client.Consumer(cluster.bootstrap, stop_at_end=True) as consumer,
        ):
            for _ in range(50):
                await producer.send_and_wait(TOPIC, b"secret", b"secret", headers=[("secret", b"secret")])
            await consumer.assign(TOPIC)
            assert len([record async for record in consumer]) == 50

    assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == ["assigned t-0"]
    assert "secret" not in caplog.text


async def test_a_producer_counts() -> None:
    """Records, batches, failures and retries are counted; a snapshot does not change."""
    async with producing(client_id="shop", linger_ms=60_000) as (cluster, producer):
        before = producer.stats()
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for _ in range(3):
            await producer.send(TOPIC, b"x" * 10)
        held = producer.stats()
        await producer.flush()
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.INVALID_RECORD))
        await producer.send(TOPIC, b"x")
        await producer.flush()
        after = producer.stats()

    assert (before.client_id, before.records_acknowledged, before.buffered_bytes) == ("shop", 0, 0)
    (batch,) = cluster.log().batches
    assert held.buffered_bytes == after.bytes_acknowledged == len(batch)
    assert (after.records_acknowledged, after.batches_acknowledged) == (3, 1)
    assert (after.records_failed, after.batches_failed, after.retries) == (1, 1, 1)
    assert (after.batches_waiting, after.buffered_bytes) == (0, 0)
    assert after.delivery_ms_sum > 0
    assert after.metadata_age_ms is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.retries = 0  # type: ignore[misc]


async def test_a_consumer_counts() -> None:
    """Records, bytes, answers and where it stands in each partition."""
    async with fake_cluster() as cluster, client.Consumer(cluster.bootstrap, client_id="shop") as consumer:
        write(cluster, b"a", b"b", b"c")
        await consumer.assign(TOPIC)
        await consumer.poll(5_000, max_records=2)
        stats = consumer.stats()
        (partition,) = stats.partitions.values()

        assert (stats.client_id, stats.records_read, stats.fetch_answers, stats.fetches_rejected) == ("shop", 3, 1, 0)
        assert stats.bytes_read == sum(len(batch) for batch in cluster.log().batches)
        assert list(stats.partitions) == [client.TopicPartition(TOPIC, 0)]
        assert (partition.position, partition.high_watermark, partition.lag) == (2, 3, 1)
        assert (partition.log_start_offset, partition.is_paused) == (0, False)


async def test_stats_come_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    """`on_stats` gets a snapshot every `stats_interval_ms`; what it raises is logged, and the next one comes."""
    of_producer: list[client.ProducerStats] = []
    of_consumer: list[client.ConsumerStats] = []
    enough = asyncio.Event()

    def note(stats: client.ConsumerStats) -> None:
        of_consumer.append(stats)
        if len(of_consumer) >= 2 and len(of_producer) >= 2:
            enough.set()
        raise LookupError("not today")

    with caplog.at_level(logging.ERROR, LOGGER):
        async with (
            fake_cluster() as cluster,
            client.Producer(cluster.bootstrap, on_stats=of_producer.append, stats_interval_ms=10),
            client.Consumer(cluster.bootstrap, on_stats=note, stats_interval_ms=10),
            asyncio.timeout(10),
        ):
            await enough.wait()

    assert "on_stats failed" in caplog.text


@pytest.mark.parametrize("kind", [client.Producer, client.Consumer])
def test_stats_need_an_interval(kind: type[client.Producer] | type[client.Consumer]) -> None:
    """`stats_interval_ms` must be positive."""
    with pytest.raises(ValueError, match="stats_interval_ms 0 must be positive"):
        kind("127.0.0.1:1", stats_interval_ms=0)
