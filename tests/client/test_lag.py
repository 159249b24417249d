"""How far behind a consumer is, and how offsets are found by time."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster, until

from strandline.client import Consumer, Lag, TopicPartition
from strandline.client.cluster.metadata import Cluster
from strandline.client.offsets import FoundOffset, OffsetFinder
from strandline.core import types
from strandline.core.errors import Refused
from strandline.core.types import LeaderEpoch, Offset
from strandline.records.codec import NewRecord, encode_batch

PLACE = TopicPartition(TOPIC, 0)


def write(cluster: FakeCluster, *ages_s: float, partition: int = 0) -> None:
    """One batch of records that are this old."""
    now_ms = int(time.time() * 1000)
    rows = [NewRecord(None, b"v", now_ms - int(age_s * 1000)) for age_s in ages_s]
    cluster.append(cluster.tp(partition), encode_batch(rows))


def is_about(lag: Lag, records: int, seconds: float) -> bool:
    """Whether it is this many records, and these seconds or a little more."""
    return lag.records == records and lag.seconds is not None and seconds - 0.01 <= lag.seconds < seconds + 60


async def test_nothing_is_behind_at_the_end() -> None:
    """At the high watermark a partition is 0 records and 0 seconds behind, an empty one too."""
    async with fake_cluster(partitions=2) as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, 100)
        await consumer.assign(TOPIC)
        await consumer.poll(5_000)
        await until(lambda: consumer.position(TOPIC, 1) is not None)

        assert await consumer.lag() == {PLACE: Lag(0, 0.0), TopicPartition(TOPIC, 1): Lag(0, 0.0)}


async def test_the_next_record_says_how_old() -> None:
    """Whether it is unpacked, buffered or still at the leader, and inside of a batch."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, 900, 800, 700)
        await consumer.assign(TOPIC)
        await until(lambda: consumer.stats().buffered_bytes > 0)
        buffered = (await consumer.lag())[PLACE]
        await anext(consumer)
        unpacked = (await consumer.lag())[PLACE]
        consumer.pause()
        consumer.seek(TOPIC, 0, 2)
        at_the_leader = (await consumer.lag())[PLACE]
        position = consumer.position(TOPIC, 0)

        assert is_about(buffered, 3, 900), buffered
        assert is_about(unpacked, 2, 800), unpacked
        assert is_about(at_the_leader, 1, 700), at_the_leader
        assert position == 2
        assert consumer.stats().partitions[PLACE].position == 2


async def test_every_partition_of_a_leader_says_how_old() -> None:
    """A bounded answer has records of one partition only, so each is asked for by itself."""
    async with fake_cluster(partitions=3) as cluster, Consumer(cluster.bootstrap) as consumer:
        await consumer.assign(TOPIC, start=0)
        consumer.pause()
        for partition in range(3):
            write(cluster, 100 * (partition + 1), partition=partition)
            # What a fetch of before the pause may bring is dropped.
            consumer.seek(TOPIC, partition, 0)
        found = await consumer.lag()

    assert [is_about(found[TopicPartition(TOPIC, each)], 1, 100 * (each + 1)) for each in range(3)] == [True] * 3, found


async def test_a_clock_that_is_behind_gives_no_negative_lag() -> None:
    """A record from the future is 0 seconds old."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, -3_600)
        await consumer.assign(TOPIC)
        await until(lambda: consumer.stats().buffered_bytes > 0)

        assert (await consumer.lag())[PLACE] == Lag(1, 0.0)


async def test_a_partition_without_a_leader_is_left_out() -> None:
    """Nothing is guessed of a partition without a leader."""
    async with fake_cluster(partitions=2) as cluster, Consumer(cluster.bootstrap) as consumer:
        await consumer.assign(TOPIC, start=0)
        cluster.move_leader(None, partition=1)
        await until(lambda: consumer._cluster.view.leader_of(cluster.tp(1)) is None)

        assert set(await consumer.lag()) == {PLACE}


FIRST, SECOND = types.TopicPartition("T", 0), types.TopicPartition("T", 1)
ANSWER = FoundOffset(Offset(7), None, LeaderEpoch(1))


class AnsweredAndCutOff(OffsetFinder):
    """Stores the answers for ``answered``, and does not return before the deadline."""

    def __init__(self, *answered: types.TopicPartition) -> None:
        super().__init__(Cluster.__new__(Cluster))
        self._answered = answered

    async def _ask_leaders(self, missing, found, why) -> None:
        found.update(dict.fromkeys(self._answered, ANSWER))
        await asyncio.Event().wait()


async def test_answers_that_came_in_the_moment_of_the_deadline_are_given() -> None:
    """When every partition has answered, reaching the deadline is not a failure, however late it is."""
    found = await AnsweredAndCutOff(FIRST, SECOND).find({FIRST: -1, SECOND: -1}, deadline_ms=20)

    assert found == {FIRST: ANSWER, SECOND: ANSWER}


async def test_the_deadline_names_a_partition_that_did_not_answer() -> None:
    """A partition without an answer gets an error, although the other has one."""
    with pytest.raises(Refused, match=r"^LEADER_NOT_AVAILABLE: .*partition 1"):
        await AnsweredAndCutOff(FIRST).find({FIRST: -1, SECOND: -1}, deadline_ms=20)
