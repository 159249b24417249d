"""Consumers that subscribe: who reads what, what the listener hears, what is committed when partitions move."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster, in_thread, until, write
from tests.client.rebalance_listener import Heard, lost_and_assigned_again

from strandline.client import CommitFailed, Consumer, NothingCommitted, Refused, TopicDeleted, TopicPartition, sync
from strandline.core.errors import ErrorCode

ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
NEVER_MS = 3_600_000


def member(cluster: FakeCluster, **settings: Any) -> Consumer:
    """A consumer of group g that commits by itself only when something ends."""
    cluster.groups.has_topic = True
    usual = {"auto_commit_interval_ms": NEVER_MS, "session_timeout_ms": 5_000}
    return Consumer(cluster.bootstrap, group="g", **{**usual, **settings})


async def test_without_an_offset_a_strict_member_reads_nothing() -> None:
    """Under "error" a partition without a committed offset is named, again at each call; others are read (U12)."""
    async with fake_cluster(partitions=2) as cluster, member(cluster, auto_offset_reset="error") as consumer:
        write(cluster, b"a", partition=0)
        write(cluster, b"b", b"c", partition=1)
        cluster.groups.committed["g"] = {(TOPIC, 1): 1}
        await consumer.subscribe(TOPIC)
        given: list[bytes | None] = []
        failures: list[NothingCommitted] = []
        while len(failures) < 2 or not given:
            try:
                given += [record.value for record in await consumer.poll(5_000)]
            except NothingCommitted as failure:
                failures.append(failure)

    assert given == [b"c"]
    assert {(one.group, one.topic, one.partition) for one in failures} == {("g", TOPIC, 0)}
    assert f"{TOPIC}-0: group g has committed nothing here, and auto_offset_reset 'error'" in str(failures[0])
    assert f"strandline group reset-offsets g --topic {TOPIC}:0" in str(failures[0])


async def test_a_strict_member_reads_where_its_listener_seeks() -> None:
    """A place that is sought in `on_assigned` is where reading begins, and needs no committed offset."""
    async with fake_cluster() as cluster, member(cluster, auto_offset_reset="error") as consumer:
        write(cluster, b"a", b"b")
        heard = Heard()
        heard.do = lambda _: consumer.seek(TOPIC, 0, 1)
        await consumer.subscribe(TOPIC, listener=heard)

        assert (await anext(consumer)).value == b"b"


async def test_a_second_member_gets_its_share_and_nothing_is_read_twice() -> None:
    """The first one gives up a partition with its position committed; the second goes on behind it."""
    async with fake_cluster(partitions=2) as cluster, member(cluster) as first, member(cluster) as second:
        for partition in (0, 1):
            write(cluster, *(b"%d" % number for number in range(3)), partition=partition)
        await first.subscribe(TOPIC)
        seen = [await anext(first) for _ in range(6)]
        reading = asyncio.create_task(anext(first))
        await second.subscribe(TOPIC)
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        (moved,) = second.assignment()
        write(cluster, b"new", partition=moved.partition)
        record = await anext(second)
        reading.cancel()

        assert len({(one.partition, one.offset) for one in seen}) == 6
        assert (record.partition, record.offset) == (moved.partition, 3)
        assert first.assignment() | second.assignment() == {ZERO, ONE}


async def test_what_is_in_hand_is_not_taken_away() -> None:
    """A partition whose record the user works on is given up when the user asks for the next one, not before."""
    async with fake_cluster(partitions=2) as cluster, member(cluster) as first, member(cluster) as second:
        heard = Heard()
        for partition in (0, 1):
            write(cluster, b"0", b"1", partition=partition)
        await first.subscribe(TOPIC, listener=heard)
        await first.poll(5_000, max_records=2)
        await until(lambda: all(first.position(TOPIC, index) is not None for index in (0, 1)))
        in_hand = [*await first.poll(5_000, max_records=1), *await first.poll(5_000, max_records=500)]
        await second.subscribe(TOPIC)
        beats = len(cluster.groups.members.heartbeats)
        await until(lambda: len(cluster.groups.members.heartbeats) > beats + 6)
        before = list(heard.heard)
        asking = asyncio.create_task(first.poll(NEVER_MS))
        await until(lambda: len(second.assignment()) == 1)
        asking.cancel()

        assert in_hand
        assert before == [("assigned", [0, 1])]
        assert [what for what, _ in heard.heard] == ["assigned", "revoked"]


async def test_commits_are_taken_while_the_listener_hears_of_a_revocation() -> None:
    """Until `on_revoked` returns the partition is owned (KIP-848)."""
    async with (
        fake_cluster(partitions=2) as cluster,
        member(cluster, auto_commit=False) as first,
        member(cluster) as second,
    ):
        heard = Heard()
        heard.do = lambda what: first.commit({ZERO: 7, ONE: 7}) if what == "revoked" else None
        await first.subscribe(TOPIC, listener=heard)
        await until(lambda: len(first.assignment()) == 2)
        asking = asyncio.create_task(first.poll(NEVER_MS))
        await second.subscribe(TOPIC)
        await until(lambda: len(second.assignment()) == 1)
        asking.cancel()

        assert cluster.groups.committed["g"] == {(TOPIC, 0): 7, (TOPIC, 1): 7}


async def test_a_fenced_member_loses_its_partitions_and_joins_again() -> None:
    """`on_lost` is called, not `on_revoked`, nothing is committed, and the id stays the same (G19)."""
    async with fake_cluster() as cluster, member(cluster) as consumer:
        heard = Heard()
        await consumer.subscribe(TOPIC, listener=heard)
        await until(lambda: consumer.assignment() == {ZERO})
        write(cluster, b"0")
        await consumer.poll(5_000)
        cluster.groups.refusals.append(ErrorCode.FENCED_MEMBER_EPOCH)
        await until(lambda: len(heard.heard) == 3)

        assert heard.heard == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        assert cluster.groups.commits == []
        assert len({beat.member_id for beat in cluster.groups.members.heartbeats}) == 1


@pytest.mark.parametrize("waits", [False, True], ids=["under way", "waits for its turn"])
async def test_a_commit_from_before_a_loss_is_not_taken_after_it(waits: bool) -> None:
    """What another committed while the partition was lost stays: the commit has the epoch of when it was asked for."""
    async with fake_cluster() as cluster, member(cluster, request_timeout_ms=30_000) as consumer:
        heard = Heard()
        await consumer.subscribe(TOPIC, listener=heard)
        await until(lambda: consumer.assignment() == {ZERO})
        cluster.groups.loses_answers = 1
        consumer.commit_nowait({ZERO: 5})
        await until(lambda: cluster.groups.commits == [{0: 5}])
        if waits:
            consumer.commit_nowait({ZERO: 6})
        # Its session is over for the coordinator.
        cluster.groups.members.skipped_ms += 60_000
        await until(lambda: len(heard.heard) == 3)
        cluster.groups.committed["g"][TOPIC, 0] = 20
        await until(lambda: len(cluster.groups.commits) == 3 if waits else len(cluster.groups.commits) == 2)

        assert heard.heard == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        assert cluster.groups.committed["g"] == {(TOPIC, 0): 20}


async def test_records_from_before_a_loss_are_not_committed_after_it() -> None:
    """The member's new epoch covers the partition again, and would take the group back behind what another member has
    committed, or over what that one still works on. Once given again they are committed."""
    async with fake_cluster() as cluster, member(cluster, auto_commit=False) as consumer:
        heard = Heard()
        await consumer.subscribe(TOPIC, listener=heard)
        write(cluster, b"0", b"1", b"2")
        records = await consumer.poll(5_000)
        cluster.groups.committed["g"] = {(TOPIC, 0): 2}
        await lost_and_assigned_again(cluster, heard)
        for old in (records[:1], records, {ZERO: 3}):
            with pytest.raises(CommitFailed) as failed:
                await consumer.commit(old)
            assert (failed.value.refusal.code, failed.value.is_definite) == (ErrorCode.STALE_MEMBER_EPOCH, True)
        assert (len(records), cluster.groups.commits) == (3, [])

        assert [record.offset for record in await consumer.poll(5_000)] == [2]
        await consumer.commit(records)
        assert cluster.groups.committed["g"] == {(TOPIC, 0): 3}


async def test_only_positions_from_before_a_loss_are_refused() -> None:
    """Those of other partitions in the same call are committed, and `commit_nowait` says the same."""
    async with fake_cluster(partitions=2) as cluster, member(cluster, auto_commit=False) as consumer:
        heard = Heard()
        heard.do = lambda what: consumer.pause((TOPIC, 1)) if len(heard.heard) == 3 else None
        await consumer.subscribe(TOPIC, listener=heard)
        write(cluster, b"0", b"1", partition=1)
        records = await consumer.poll(5_000)
        await lost_and_assigned_again(cluster, heard)
        write(cluster, b"0", partition=0)
        records += await consumer.poll(5_000)
        with pytest.raises(CommitFailed) as failed:
            await consumer.commit(records)
        assert (list(failed.value.refused), cluster.groups.committed["g"]) == ([ONE], {(TOPIC, 0): 1})

        ended: asyncio.Future[CommitFailed | None] = asyncio.get_running_loop().create_future()
        consumer.commit_nowait({ONE: 2}, lambda _, failure: ended.set_result(failure))
        failure = await ended
        assert list(failure.refused) == [ONE]
        assert cluster.groups.commits == [{0: 1}]


async def test_without_answers_reading_ends_with_the_lease() -> None:
    """0.9 of the session after the last answered heartbeat was sent, no record is given any more (G22)."""
    async with fake_cluster() as cluster, member(cluster, session_timeout_ms=600) as consumer:
        await consumer.subscribe(TOPIC)
        await until(lambda: bool(consumer.assignment()) and consumer.position(TOPIC, 0) == 0)
        cluster.groups.is_silent = True
        membership = consumer._membership
        await until(lambda: not membership.may_give())
        write(cluster, b"0")
        await until(lambda: bool(next(iter(consumer._fetching.cursors.values())).chunks))  # type: ignore[union-attr]
        without = await consumer.poll(50)
        cluster.groups.is_silent = False
        (record,) = await consumer.poll(5_000)

        assert without == []
        assert record.value == b"0"


async def test_ownership_that_is_not_strict_goes_on_reading() -> None:
    """`strict_ownership=False` gives records without a lease."""
    async with fake_cluster() as cluster, member(cluster, session_timeout_ms=600, strict_ownership=False) as consumer:
        await consumer.subscribe(TOPIC)
        await until(lambda: bool(consumer.assignment()) and consumer.position(TOPIC, 0) == 0)
        cluster.groups.is_silent = True
        membership = consumer._membership
        await until(lambda: not membership.member.has_lease(asyncio.get_running_loop().time() * 1000))
        write(cluster, b"0")

        assert [one.value for one in await consumer.poll(5_000)] == [b"0"]


async def test_a_member_that_asks_for_nothing_leaves_until_it_asks() -> None:
    """`max_poll_interval_ms` after the last call its partitions are others'; the next call joins again."""
    async with fake_cluster() as cluster, member(cluster, max_poll_interval_ms=100) as consumer:
        heard = Heard()
        await consumer.subscribe(TOPIC, listener=heard)
        await until(lambda: ("lost", [0]) in heard.heard)
        await until(lambda: cluster.groups.members.group().members == {})
        write(cluster, b"0")
        (record,) = await consumer.poll(5_000)

        assert record.value == b"0"


async def test_a_closed_member_leaves_and_its_position_is_committed() -> None:
    """What was given before the last step is committed, the listener hears of it, and no member waits for a session."""
    async with fake_cluster() as cluster:
        write(cluster, b"0", b"1", b"2")
        heard = Heard()
        async with member(cluster) as consumer:
            await consumer.subscribe(TOPIC, listener=heard)
            await consumer.poll(5_000, max_records=2)
            await consumer.poll(5_000, max_records=1)

        assert cluster.groups.committed["g"] == {(TOPIC, 0): 2}
        assert heard.heard[-1] == ("revoked", [0])
        assert cluster.groups.members.group().members == {}


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
async def test_a_static_member_that_closes_keeps_its_place(ends: str) -> None:
    """Closed for a restart, its partitions wait for it (-2); `unsubscribe` gives them up (-1)."""
    async with fake_cluster() as cluster:
        async with member(cluster, instance_id="one") as consumer:
            await consumer.subscribe(TOPIC)
            await until(lambda: consumer.assignment() == {ZERO})
            if ends == "unsubscribe":
                await consumer.unsubscribe()

        assert cluster.groups.members.heartbeats[-1].member_epoch == (-2 if ends == "close" else -1)


async def test_a_pattern_is_matched_by_the_coordinator() -> None:
    """Topics are found by RE2, and another pattern replaces the first."""
    async with fake_cluster() as cluster, member(cluster) as consumer:
        await consumer.subscribe(pattern=f"{TOPIC[:2]}.*")
        await until(lambda: consumer.assignment() == {ZERO})
        await consumer.subscribe(pattern="none")
        asking = asyncio.create_task(consumer.poll(NEVER_MS))
        await until(lambda: consumer.assignment() == frozenset())
        asking.cancel()


@pytest.mark.parametrize(
    ("given", "code"),
    [({"pattern": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION), ({"topics": TOPIC}, ErrorCode.INVALID_REQUEST)],
)
async def test_what_the_coordinator_rejects_for_good_is_raised(given: Any, code: ErrorCode) -> None:
    """By `subscribe`, and by each call after it until another subscription."""
    async with fake_cluster() as cluster, member(cluster, session_timeout_ms=50) as bad, member(cluster) as good:
        consumer = bad if code is ErrorCode.INVALID_REQUEST else good
        with pytest.raises(Refused) as refused:
            await consumer.subscribe(**given)
        with pytest.raises(Refused) as again:
            await consumer.poll(0)

        assert (refused.value.refusal.code, again.value.refusal.code) == (code, code)


async def test_the_listeners_exception_reaches_the_user() -> None:
    """A position that `on_assigned` failed to set must not be read from: the member leaves, and `poll` raises."""
    async with fake_cluster() as cluster, member(cluster) as consumer:
        heard = Heard()

        def fail(_: str) -> None:
            raise TimeoutError("no position")

        heard.do = fail
        write(cluster, b"0")
        await consumer.subscribe(TOPIC, listener=heard)
        with pytest.raises(TimeoutError, match="no position"):
            await consumer.poll(5_000)
        await until(lambda: cluster.groups.members.group().members == {})


async def test_a_lost_answer_is_asked_for_again_in_full() -> None:
    """A heartbeat after one without an answer says everything, so what was assigned meanwhile is heard of (G19)."""
    async with fake_cluster() as cluster, member(cluster) as consumer:
        await consumer.subscribe(TOPIC)
        # Or the question for the committed offset might be what is refused.
        await until(lambda: consumer.assignment() == {ZERO} and consumer.position(TOPIC, 0) == 0)
        beats = cluster.groups.members.heartbeats
        count = len(beats)
        cluster.groups.refusals.append(ErrorCode.REQUEST_TIMED_OUT)
        await until(lambda: len(beats) > count + 1)
        full = [beat for beat in beats[count:] if beat.subscribed_topic_names is not None]

        assert [beat.topic_partitions for beat in full] == [(cluster.tp(0),)]
        assert [beat.sequence for beat in beats] == sorted({beat.sequence for beat in beats})


async def test_an_instance_id_that_is_taken_is_waited_for() -> None:
    """Another process with this name may be ending; the first is never pushed out."""
    async with (
        fake_cluster() as cluster,
        member(cluster, instance_id="one") as old,
        member(cluster, instance_id="one") as new,
    ):
        await old.subscribe(TOPIC)
        await until(lambda: old.assignment() == {ZERO})
        joining = asyncio.create_task(new.subscribe(TOPIC))
        beats = len(cluster.groups.members.heartbeats)
        await until(lambda: len(cluster.groups.members.heartbeats) > beats + 3)
        waits = not joining.done()
        await old.close()
        await joining
        await until(lambda: new.assignment() == {ZERO})

        assert waits


async def test_a_commit_of_a_partition_that_is_not_owned_is_rejected() -> None:
    """Each commit names the member and its epoch, and the coordinator checks them (G20)."""
    async with fake_cluster(partitions=2) as cluster, member(cluster) as first, member(cluster) as second:
        await first.subscribe(TOPIC)
        await until(lambda: len(first.assignment()) == 2)
        asking = asyncio.create_task(first.poll(NEVER_MS))
        await second.subscribe(TOPIC)
        await until(lambda: len(second.assignment()) == 1)
        with pytest.raises(CommitFailed) as failed:
            await first.commit({(TOPIC, next(iter(second.assignment())).partition): 1})
        asking.cancel()

        assert {refusal.code for refusal in failed.value.refused.values()} == {ErrorCode.STALE_MEMBER_EPOCH}


async def test_subscribe_and_assign_exclude_each_other() -> None:
    """Partitions are the coordinator's to give or the user's to take; the error says what to do."""
    async with fake_cluster() as cluster, member(cluster) as consumer:
        await consumer.subscribe(TOPIC)
        with pytest.raises(ValueError, match="unsubscribe"):
            await consumer.assign(TOPIC)
        await consumer.unsubscribe()

        assert await consumer.assign(TOPIC) == {ZERO}


async def test_subscribing_needs_a_group() -> None:
    """The error says what to give."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(ValueError, match="give one"):
            await consumer.subscribe(TOPIC)


async def test_a_member_can_be_named_for_a_transaction() -> None:
    """Group, member id, epoch and instance id; without a subscription there is none."""
    async with fake_cluster() as cluster, member(cluster, instance_id="one") as consumer:
        with pytest.raises(ValueError, match="subscribe first"):
            consumer.group_metadata()
        await consumer.subscribe(TOPIC)
        found = consumer.group_metadata()

        assert (found.group_id, found.instance_id, found.member_epoch > 0) == ("g", "one", True)


@pytest.mark.parametrize("way", ["poll", "fetch_batches", "iterate"])
@pytest.mark.parametrize("by", ["name", "pattern"])
async def test_the_topic_of_a_member_is_deleted(by: str, way: str) -> None:
    """`on_lost` hears of it. A member that subscribed by name raises one error that names the topic, a member by a
    pattern none; both go on, and read a new topic of that name."""
    async with fake_cluster(partitions=2) as cluster, member(cluster) as consumer:
        write(cluster, b"old")
        heard = Heard()
        named, pattern = ((TOPIC,), None) if by == "name" else ((), TOPIC + ".*")
        await consumer.subscribe(named, pattern=pattern, listener=heard)
        assert (await anext(consumer)).value == b"old"
        cluster.delete_topic()
        errors, values = [], list[bytes | None]()
        end_s = time.monotonic() + 30
        while not values and time.monotonic() < end_s:
            try:
                values += await _given(consumer, way)
            except TopicDeleted as deleted:
                errors.append(deleted.topic)
            if heard.heard[-1][0] == "lost" and not cluster.has_topic and not consumer.assignment():
                # Not before a few answers of the coordinator, which may assign it once more.
                known = len(cluster.groups.members.heartbeats)
                await until(lambda before=known: len(cluster.groups.members.heartbeats) > before + 2)  # type: ignore[misc]
                cluster.recreate_topic()
                write(cluster, b"new")

    assert values == [b"new"]
    assert errors == ([TOPIC] if by == "name" else [])
    assert heard.heard[:3] == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]


async def _given(consumer: Consumer, way: str) -> list[bytes | None]:
    """What one call gives, of no more than a moment."""
    if way == "poll":
        return [record.value for record in await consumer.poll(100)]
    if way == "fetch_batches":
        return [record.value for batch in await consumer.fetch_batches(100) for record in batch.records]
    try:
        async with asyncio.timeout(0.1):
            return [(await anext(consumer)).value]
    except TimeoutError:
        return []


@pytest.mark.parametrize("is_revoked", [True, False])
async def test_for_of_a_blocking_member_ends_in_front_of_what_it_has_lost(is_revoked: bool) -> None:
    """The record in hand is finished first, and the next one is read by the other member alone; who asks for none for
    ``max_poll_interval_ms`` leaves the group here, too."""
    async with fake_cluster(partitions=2) as cluster, member(cluster) as second:
        for partition in (0, 1):
            write(cluster, *(b"%d" % number for number in range(50)), partition=partition)
        interval_ms, heard = NEVER_MS if is_revoked else 200, Heard()
        first = sync.Consumer(cluster.bootstrap, group="g", max_poll_interval_ms=interval_ms)

        def begin() -> int:
            first.start()
            first.subscribe(TOPIC, listener=heard)
            while (record := next(first)).partition != 1:
                pass
            return record.offset

        offset = await in_thread(begin)
        if is_revoked:
            await second.subscribe(TOPIC)
            beats = len(cluster.groups.members.heartbeats)
            await until(lambda: len(cluster.groups.members.heartbeats) > beats + 6)
            before = list(heard.heard)
            write(cluster, b"later")
            record = await in_thread(lambda: next(first))
            await until(lambda: len(second.assignment()) == 1)

            assert before == [("assigned", [0, 1])]
            assert record.partition == 0
            assert (await anext(second)).offset == offset + 1
        else:
            await until(lambda: ("lost", [0, 1]) in heard.heard)
        await in_thread(first.close)
