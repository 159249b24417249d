"""Offsets of a group: where a consumer begins, what it holds for worked on, and in whose name it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster, until, write

from strandline.client import CommitFailed, Consumer, Interceptor, OffsetAndMetadata, Outcome, Refused, TopicPartition
from strandline.client.background import Background
from strandline.client.consume.cursor import Cursor
from strandline.client.groups.committed_offsets import AsMember
from strandline.client.groups.committing import Commits, Positions
from strandline.client.groups.group_commits import GroupCommits
from strandline.core import types
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.types import Offset

ZERO = TopicPartition(TOPIC, 0)
NEVER_MS = 3_600_000


def _consumer(cluster: FakeCluster, *, has_topic: bool = True, **settings: object) -> Consumer:
    cluster.groups.has_topic = has_topic
    return Consumer(cluster.bootstrap, group="g", **{"auto_commit_interval_ms": NEVER_MS, **settings})  # type: ignore[arg-type]


def _written(cluster: FakeCluster, count: int = 10) -> None:
    write(cluster, *(b"%d" % number for number in range(count)))


async def _first(consumer: Consumer) -> bytes | None:
    (record,) = await consumer.poll(5_000, max_records=1)
    return record.value


@pytest.mark.parametrize(("reset", "start", "value"), [("latest", "beginning", b"new"), (None, "beginning", b"0")])
async def test_without_a_committed_offset_the_setting_says_where(reset: str, start: str, value: bytes) -> None:
    """`auto_offset_reset` names an end; without it, `start` does (U12)."""
    async with fake_cluster() as cluster, _consumer(cluster, auto_offset_reset=reset) as consumer:
        _written(cluster)
        await consumer.assign(TOPIC, start=start)  # type: ignore[arg-type]
        await until(lambda: consumer.position(TOPIC, 0) is not None)
        write(cluster, b"new")

        assert await _first(consumer) == value


async def test_an_offset_to_start_at_is_for_groups_that_have_none() -> None:
    """A number as `start` gives way to what is committed, and is used where nothing is."""
    async with fake_cluster(partitions=2) as cluster, _consumer(cluster) as consumer:
        cluster.groups.committed["g"] = {(TOPIC, 0): 7}
        await consumer.assign(TOPIC, start=3)
        await until(lambda: None not in (consumer.position(TOPIC, 0), consumer.position(TOPIC, 1)))

        assert (consumer.position(TOPIC, 0), consumer.position(TOPIC, 1)) == (7, 3)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE])
async def test_an_error_is_never_taken_for_no_offset(code: ErrorCode) -> None:
    """While the coordinator cannot say, nothing is read; then reading begins at the committed offset (G28)."""
    async with fake_cluster() as cluster, _consumer(cluster, auto_offset_reset="earliest") as consumer:
        _written(cluster)
        cluster.groups.committed["g"] = {(TOPIC, 0): 6}
        cluster.groups.refusals.extend([code] * 3)
        await consumer.assign(TOPIC)

        assert await _first(consumer) == b"6"
        assert cluster.groups.fetches == 4


async def test_what_the_coordinator_refuses_for_good_is_raised() -> None:
    """STALE_MEMBER_EPOCH, for one, sends no consumer to the beginning (G28)."""
    async with fake_cluster() as cluster, _consumer(cluster, auto_offset_reset="earliest") as consumer:
        _written(cluster)
        cluster.groups.refusals.append(ErrorCode.STALE_MEMBER_EPOCH)
        await consumer.assign(TOPIC)
        with pytest.raises(Refused, match=r"^STALE_MEMBER_EPOCH"):
            await consumer.poll(5_000)


async def test_the_coordinator_is_followed_by_its_hint() -> None:
    """A node that does not coordinate names the one that does; the metadata may learn of it later (G31)."""
    async with fake_cluster(nodes=2) as cluster, _consumer(cluster) as consumer:
        cluster.groups.coordinator, cluster.groups.named, cluster.groups.epoch = 1, 0, 7
        cluster.announce()
        await consumer.assign(TOPIC)
        await consumer.commit({(TOPIC, 0): 3})

        assert cluster.groups.committed["g"] == {(TOPIC, 0): 3}


async def test_the_coordinator_is_asked_for_while_the_topic_is_unknown() -> None:
    """Any node names it, and has the topic of groups made (G1)."""
    async with fake_cluster() as cluster:
        async with _consumer(cluster, has_topic=False) as consumer:
            await consumer.assign(TOPIC)
            await consumer.commit({(TOPIC, 0): 3})

        assert cluster.groups.committed["g"] == {(TOPIC, 0): 3}
        assert "FindCoordinator" in cluster.user_agents


async def test_a_failed_commit_says_what_it_knows() -> None:
    """Refused partitions by name; definite when nothing was written (P2)."""
    async with fake_cluster(partitions=2) as cluster, _consumer(cluster) as consumer:
        cluster.groups.refused_partitions[1] = ErrorCode.UNKNOWN_MEMBER_ID
        await consumer.assign(TOPIC)
        with pytest.raises(CommitFailed) as failed:
            await consumer.commit({(TOPIC, 0): 3, (TOPIC, 1): 4}, metadata="by hand")

        assert list(failed.value.refused) == [(TOPIC, 1)]
        assert failed.value.refusal.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert failed.value.is_definite
        assert cluster.groups.committed["g"] == {(TOPIC, 0): 3}


async def test_a_commit_whose_answer_was_lost_may_appear() -> None:
    """At the deadline the outcome of a commit that was sent and not answered is not definite."""
    async with fake_cluster() as cluster, _consumer(cluster, request_timeout_ms=300) as consumer:
        await consumer.assign(TOPIC)
        cluster.groups.loses_answers = 100
        with pytest.raises(CommitFailed) as failed:
            await consumer.commit({(TOPIC, 0): 3})
        cluster.groups.loses_answers = 0

        assert failed.value.refusal.outcome is Outcome.MAY_APPEAR
        assert not failed.value.is_definite


async def test_one_commit_is_under_way_and_later_ones_are_merged() -> None:
    """Of four commits, the three that came while the first was under way are one request (G31)."""
    ended: list[tuple[int, CommitFailed | None]] = []
    done: Callable[..., None] = lambda offsets, failed: ended.append((offsets[ZERO].offset, failed))  # noqa: E731
    async with fake_cluster(partitions=2) as cluster, _consumer(cluster) as consumer:
        await consumer.assign(TOPIC)
        cluster.groups.hold = asyncio.Event()
        consumer.commit_nowait({(TOPIC, 0): 1}, done)
        await until(lambda: len(cluster.groups.commits) == 1)
        consumer.commit_nowait({(TOPIC, 0): 2}, done)
        consumer.commit_nowait({(TOPIC, 1): 9})
        consumer.commit_nowait({(TOPIC, 0): 3}, done)
        # What was sent before this question would have come before it.
        await consumer.committed()
        assert cluster.groups.commits == [{0: 1}]
        cluster.groups.hold.set()
        await until(lambda: len(ended) == 3)

        assert cluster.groups.commits == [{0: 1}, {0: 3, 1: 9}]
        assert ended == [(1, None), (2, None), (3, None)]


async def test_a_commit_that_a_close_cuts_off_ends() -> None:
    """No caller waits for ever: what was under way may appear, what had not been sent never does."""
    async with fake_cluster() as cluster, _consumer(cluster, auto_commit=False) as consumer:
        await consumer.assign(TOPIC)
        cluster.groups.hold = asyncio.Event()
        first = asyncio.create_task(consumer.commit({(TOPIC, 0): 1}))
        await until(lambda: len(cluster.groups.commits) == 1)
        second = asyncio.create_task(consumer.commit({(TOPIC, 0): 2}))
        await asyncio.sleep(0)
        await consumer.close()
        async with asyncio.timeout(5):
            failures = await asyncio.gather(first, second, return_exceptions=True)
        cluster.groups.hold.set()

    outcomes = [one.refusal.outcome for one in failures if isinstance(one, CommitFailed)]
    assert outcomes == [Outcome.MAY_APPEAR, Outcome.NOT_APPENDED]


async def _polled(consumer: Consumer) -> None:
    await consumer.poll(5_000, max_records=3)
    await consumer.poll(5_000, max_records=2)


async def _iterated(consumer: Consumer) -> None:
    assert [(await anext(consumer)).offset for _ in range(5)][-1] == 4


async def _fetched(consumer: Consumer) -> None:
    assert await consumer.fetch_batches(5_000)


async def _committed_in_part(consumer: Consumer) -> None:
    records = await consumer.poll(5_000, max_records=6)
    await consumer.commit(records[:4])


async def _sought(consumer: Consumer) -> None:
    await consumer.poll(5_000, max_records=8)
    consumer.seek(TOPIC, 0, 2)


@pytest.mark.parametrize(
    ("work", "settings", "commits"),
    [
        (_polled, {}, [{0: 3}]),
        (_iterated, {}, [{0: 4}]),
        (_fetched, {}, []),
        (_committed_in_part, {}, [{0: 4}]),
        (_sought, {}, []),
        (_polled, {"auto_commit": False, "auto_commit_interval_ms": 1}, []),
    ],
)
async def test_only_what_was_worked_on_is_committed_by_itself(
    work: Callable[[Consumer], Awaitable[None]], settings: dict[str, Any], commits: list[dict[int, int]]
) -> None:
    """What was given before the present step is, at the end as at every interval (U4); nothing below what the user has
    committed, nothing that was in hand before a seek, and nothing at all without `auto_commit`."""
    async with fake_cluster() as cluster:
        _written(cluster)
        async with _consumer(cluster, **settings) as consumer:
            await consumer.assign(TOPIC)
            await work(consumer)

        assert cluster.groups.commits == commits


async def test_everything_is_committed_once_more_was_asked_for() -> None:
    """A consumer that read to the end has nothing in hand: all three ways of reading."""
    async with fake_cluster() as cluster:
        _written(cluster)
        for way in ("poll", "iteration", "batches"):
            cluster.groups.committed.clear()
            async with _consumer(cluster, stop_at_end=True) as consumer:
                await consumer.assign(TOPIC)
                if way == "iteration":
                    assert len([record async for record in consumer]) == 10
                while way == "poll" and await consumer.poll(5_000, max_records=4):
                    pass
                while way == "batches" and await consumer.fetch_batches(5_000):
                    pass

            assert cluster.groups.committed["g"] == {(TOPIC, 0): 10}, way


async def test_the_interval_commits_while_the_next_record_is_waited_for() -> None:
    """A consumer that waits has nothing in hand, and at rest it commits nothing more."""
    async with fake_cluster() as cluster, _consumer(cluster, auto_commit_interval_ms=10) as consumer:
        _written(cluster)
        await consumer.assign(TOPIC)
        assert len(await consumer.poll(5_000)) == 10
        waiting = asyncio.create_task(consumer.poll(5_000))
        await until(lambda: cluster.groups.committed.get("g") == {(TOPIC, 0): 10})
        write(cluster, b"more")
        await waiting

        assert cluster.groups.commits == [{0: 10}]


async def test_an_explicit_commit_takes_in_what_is_in_hand() -> None:
    """None means all that was given, and a partition that gave nothing is left out."""
    async with fake_cluster(partitions=2) as cluster, _consumer(cluster, auto_commit=False) as consumer:
        _written(cluster)
        await consumer.assign(TOPIC)
        await consumer.commit()
        await consumer.poll(5_000, max_records=3)
        await consumer.commit()

        assert cluster.groups.commits == [{0: 3}]


async def test_an_offset_that_no_request_can_hold_is_refused_at_once() -> None:
    """By the call, also by one that does not wait; the consumer works on."""
    async with fake_cluster() as cluster, _consumer(cluster) as consumer:
        for offset in (1 << 63, 1.5):
            with pytest.raises((ValueError, TypeError)):
                consumer.commit_nowait({(TOPIC, 0): offset})  # type: ignore[dict-item]
        await consumer.commit({(TOPIC, 0): 3})

        assert cluster.groups.committed["g"] == {(TOPIC, 0): 3}


async def test_a_consumer_without_a_group_says_what_to_give() -> None:
    """It asks no coordinator, and a commit is a ValueError."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        _written(cluster)
        await consumer.assign(TOPIC)
        assert await _first(consumer) == b"0"
        with pytest.raises(ValueError, match="group="):
            await consumer.commit()

        assert (cluster.groups.fetches, cluster.groups.commits) == (0, [])


def test_settings_that_make_no_sense_are_refused() -> None:
    """A blank group, and times that are not positive."""
    for settings in ({"group": " "}, {"auto_commit_interval_ms": 0}, {"request_timeout_ms": 0}):
        with pytest.raises(ValueError, match="must"):
            Consumer("127.0.0.1:1", **settings)  # type: ignore[arg-type]


async def test_an_interceptor_sees_what_was_committed() -> None:
    """Commits by the user and by itself, and no partition that was refused (KIP-42)."""

    class Seen(Interceptor):
        def __init__(self) -> None:
            self.commits: list[dict[TopicPartition, int]] = []

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            self.commits.append({tp: one.offset for tp, one in offsets.items()})
            raise LookupError("which changes nothing")

    seen = Seen()
    async with fake_cluster(partitions=2) as cluster:
        cluster.groups.refused_partitions[1] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with _consumer(cluster, interceptors=[seen]) as consumer:
            _written(cluster)
            await consumer.assign(TOPIC)
            # Or reading might begin behind the first commit.
            await until(lambda: consumer.position(TOPIC, 0) == 0)
            with pytest.raises(CommitFailed):
                await consumer.commit({ZERO: 3, (TOPIC, 1): 3})
            await consumer.poll(5_000, max_records=4)
            await consumer.poll(5_000, max_records=1)

    assert seen.commits == [{ZERO: 3}, {ZERO: 4}]


async def test_what_the_user_commits_counts_as_worked_on_at_once() -> None:
    """While the coordinator is asked already: a step meanwhile, or the end of reading, must not fall behind it."""
    cursor = Cursor("t", types.TopicPartition("id", 0))
    cursor.position = Offset(5)
    is_sent, may_answer = asyncio.Event(), asyncio.Event()

    async def commit(*_: Any, **__: Any) -> dict[Any, Any]:
        is_sent.set()
        await may_answer.wait()
        return {}

    offsets: Any = SimpleNamespace(group_id="g", member=lambda: None, commit=commit)
    fetching: Any = SimpleNamespace(cursors={cursor.tp: cursor})
    background = Background()
    commits = GroupCommits(offsets, fetching, background, timeout_ms=5_000)
    commits.gave(cursor, Offset(0))
    before = commits.worked_on()
    committing = asyncio.create_task(commits.commit({cursor.name: OffsetAndMetadata(Offset(5))}))
    await asyncio.wait_for(is_sent.wait(), 10)
    meanwhile = commits.worked_on()
    may_answer.set()
    await committing
    await background.close()

    assert before == {}
    assert meanwhile == {cursor.name: OffsetAndMetadata(Offset(5))}


def at(offset: int) -> Positions:
    return {ZERO: OffsetAndMetadata(Offset(offset))}


async def test_commits_of_two_member_epochs_are_not_merged() -> None:
    """What is asked for while a commit is under way goes with the next one, together with what its own epoch has asked
    for and with nothing of another epoch, in the order in which it was asked for."""
    sent: list[tuple[int | None, int]] = []
    heard: list[tuple[int, CommitFailed | None]] = []
    is_answered = asyncio.Event()
    epoch = 1

    async def send(offsets: Positions, member: AsMember | None) -> dict[TopicPartition, Refusal]:
        sent.append((None if member is None else member.member_epoch, offsets[ZERO].offset))
        await is_answered.wait()
        return {}

    def done(offsets: Positions, failed: CommitFailed | None) -> None:
        heard.append((offsets[ZERO].offset, failed))

    background = Background()
    commits = Commits("g", send, background, lambda: AsMember("m", epoch, None))
    commits.add(at(1), done)
    await asyncio.sleep(0)
    commits.add(at(2), done)
    commits.add(at(3), done)
    epoch = 2
    commits.add(at(4), done)
    commits.add(at(5), done)
    epoch = 3
    commits.add(at(6), done)
    is_answered.set()
    await until(lambda: len(heard) == 6)
    await background.close()

    assert sent == [(1, 1), (1, 3), (2, 5), (3, 6)]
    assert heard == [(offset, None) for offset in range(1, 7)]
