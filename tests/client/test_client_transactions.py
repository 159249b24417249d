"""Transactions of the client against a scripted coordinator: all or nothing, and what is said of each end (U11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, Hold, Refuse, fake_cluster, until, write
from tests.client.fake_transactions import End
from tests.client.rebalance_listener import Heard, lost_and_assigned_again

from strandline import client
from strandline.client import sync
from strandline.client.produce.transactional_id import TransactionCoordinator
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.types import TRANSACTIONAL_BIT
from strandline.records.batch import parse_header

ID = "orders"


def producer_of(cluster: FakeCluster, **named: Any) -> client.Producer[bytes, bytes]:
    given: dict[str, Any] = {"transactional_id": ID, "linger_ms": 1, "delivery_timeout_ms": 3_000}
    return client.Producer(cluster.bootstrap, **{**given, **named})


def identities(cluster: FakeCluster) -> list[tuple[int, int, int]]:
    """Producer id, epoch and first sequence of every batch; all are transactional."""
    found = []
    for batch in cluster.log().batches:
        header = parse_header(batch)
        assert header.producer is not None
        assert header.attributes & TRANSACTIONAL_BIT
        found.append(tuple(header.producer))
    return found


def one_batch(value: bytes) -> list[client.NewRecord]:
    return [client.NewRecord(None, value, 1)]


async def transaction_of(
    producer: Any, *values: bytes, partition: int = 0, consumer: Any = None, then: Any = None
) -> None:
    """A transaction that sends these values; with ``then`` it waits for each, and does that at its end."""
    async with producer.transaction(consumer=consumer):
        for value in values:
            sent = await producer.send(TOPIC, value, partition=partition)
            if then is not None:
                await sent
        if then is not None:
            then()


def defect() -> None:
    raise ZeroDivisionError


async def next_value(consumer: client.Consumer[bytes, bytes]) -> bytes | None:
    (record,) = await consumer.poll(5_000, max_records=1)
    return record.value


@asynccontextmanager
async def of_partition_0(cluster: FakeCluster) -> AsyncIterator[client.Consumer[bytes, bytes]]:
    """A consumer of group g that reads partition 0."""
    async with client.Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer:
        await consumer.assign([(TOPIC, 0)])
        yield consumer


@asynccontextmanager
async def member(cluster: FakeCluster, heard: Heard) -> AsyncIterator[client.Consumer[bytes, bytes]]:
    """A member of group g that subscribed."""
    cluster.groups.has_topic = True
    async with client.Consumer(cluster.bootstrap, group="g", auto_commit=False, session_timeout_ms=5_000) as consumer:
        await consumer.subscribe(TOPIC, listener=heard)
        yield consumer


@asynccontextmanager
async def consuming(heard: Heard | None = None, **named: Any) -> AsyncIterator[tuple[FakeCluster, Any, Any]]:
    """A producer and a consumer of one group: a member of it if there is a listener, else one of partition 0."""
    async with (
        fake_cluster(partitions=2) as cluster,
        producer_of(cluster, **named) as producer,
        member(cluster, heard) if heard else of_partition_0(cluster) as consumer,
    ):
        yield cluster, producer, consumer


async def test_each_transaction_has_an_epoch_and_sequences_of_its_own() -> None:
    """X6: the answer to an end brings the identity of the next; X3: sequences begin at 0 in each."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        for _ in range(2):
            async with producer.transaction():
                for value in (b"a", b"b"):
                    await producer.send_batch(TOPIC, 0, one_batch(value))

        assert identities(cluster) == [(9_000, 0, 0), (9_000, 0, 1), (9_000, 1, 0), (9_000, 1, 1)]
        assert cluster.transactions.ends == [End(0, True), End(1, True)]


async def test_an_end_waits_for_every_record() -> None:
    """A commit before a leader has acknowledged what was sent would commit less than was sent."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        hold = Hold()
        cluster.nodes[0].next_produce.append(hold)
        transaction = await producer.transaction().__aenter__()
        delivery = await producer.send(TOPIC, b"a")
        ending = asyncio.create_task(transaction.commit())
        await until(lambda: len(cluster.log().batches) == 1)

        assert cluster.transactions.asked_to_end == 0
        hold.release.set()
        await ending
        assert delivery.done
        assert cluster.transactions.ends == [End(0, True)]


async def test_without_records_nothing_is_asked() -> None:
    """There is nothing to end, and the identity stays."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        async with producer.transaction():
            pass
        assert cluster.transactions.asked_to_end == 0


async def test_a_record_outside_of_a_transaction_is_refused() -> None:
    """INVALID_TXN_STATE with a sentence that says what to write, before and after one, for every way to send."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        for _ in range(2):
            for send in (producer.send(TOPIC, b"x"), producer.send_batch(TOPIC, 0, one_batch(b"x"))):
                with pytest.raises(client.Refused, match=r"async with producer\.transaction\(\)"):
                    await send
            with pytest.raises(client.Refused, match="no transaction is open"):
                producer.send_nowait(TOPIC, b"x")
            async with producer.transaction():
                await producer.send(TOPIC, b"y")

        assert cluster.log().values() == [b"y", b"y"]


async def test_an_exception_aborts_and_is_heard() -> None:
    """What was buffered is not sent, even for another partition, and the coordinator is asked to abort what was."""
    buffered: list[client.Delivery] = []
    async with fake_cluster(partitions=2) as cluster, producer_of(cluster, linger_ms=60_000) as producer:
        cluster.nodes[0].next_produce.append(hold := Hold())

        async def block() -> None:
            async with producer.transaction():
                await producer.send_batch(TOPIC, 0, one_batch(b"sent"))
                buffered.append(await producer.send(TOPIC, b"buffered", partition=1))
                1 / 0  # noqa: B018

        with pytest.raises(ZeroDivisionError):
            await block()
        assert cluster.transactions.ends == [End(0, False)]
        with pytest.raises(client.SendFailed) as failed:
            await buffered[0]
        assert failed.value.refusal.code is ErrorCode.TRANSACTION_ABORTABLE
        hold.release.set()

        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=1)
        assert cluster.log(1).values() == [b"next"]


async def test_one_record_that_is_given_up_aborts_all() -> None:
    """The others are not sent any more, and the block that goes on hears of it at its next record."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.INVALID_TXN_STATE))

        async def block() -> None:
            async with producer.transaction():
                with pytest.raises(client.SendFailed):
                    await producer.send_and_wait(TOPIC, b"a")
                await producer.send(TOPIC, b"b")

        with pytest.raises(client.TransactionAborted) as aborted:
            await block()

        assert aborted.value.refusal.code is ErrorCode.INVALID_TXN_STATE
        assert aborted.value.refusal.outcome is Outcome.NOT_APPENDED
        assert cluster.log().values() == []
        assert cluster.transactions.ends == [End(0, False)]


async def test_a_record_that_fails_at_the_end_aborts_all() -> None:
    """The delivery was not awaited: the end of the block finds out."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:

        async def block() -> None:
            async with producer.transaction():
                await producer.send_batch(TOPIC, 0, one_batch(b"a"))
                cluster.nodes[0].next_produce.append(Refuse(ErrorCode.INVALID_PRODUCER_EPOCH))
                await producer.send(TOPIC, b"b")

        with pytest.raises(client.TransactionAborted):
            await block()
        assert cluster.transactions.ends == [End(0, False)]


async def test_a_batch_is_never_numbered_again() -> None:
    """A plain producer takes a new id when a leader does not know its sequence; here the transaction is over."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.UNKNOWN_PRODUCER_ID))
        with pytest.raises(client.TransactionAborted):
            await transaction_of(producer, b"a")

        assert cluster.controller.ids_given == 0


async def test_a_lost_answer_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """X6: a repeated end carries the same epoch, and has the same answer."""
    monkeypatch.setattr("strandline.client.groups.coordinator.ATTEMPT_MS", 200)
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        cluster.transactions.loses_ends = 1
        await transaction_of(producer, b"a")
        await transaction_of(producer, b"b")

        assert cluster.transactions.ends == [End(0, True), End(1, True)]
        assert cluster.transactions.asked_to_end == 3


async def test_an_unknown_outcome_is_said_and_asked_for_again() -> None:
    """U11: nothing may be begun until the coordinator has answered; `commit` asks."""
    async with fake_cluster() as cluster, producer_of(cluster, delivery_timeout_ms=1_000) as producer:
        cluster.transactions.loses_ends = 1
        transaction = await producer.transaction().__aenter__()
        await producer.send(TOPIC, b"a")
        with pytest.raises(client.OutcomeUnknown) as unknown:
            await transaction.commit()
        assert unknown.value.refusal.outcome is Outcome.MAY_APPEAR
        with pytest.raises(client.Refused, match=r"its commit\(\) has not been answered"):
            async with producer.transaction():
                pass

        await transaction.commit()
        assert cluster.transactions.ends == [End(0, True)]
        await transaction_of(producer, b"b")
        assert identities(cluster)[-1] == (9_000, 1, 0)


async def test_a_transaction_whose_time_was_over_is_aborted_and_can_be_run_again() -> None:
    """X6: the commit is refused with INVALID_TXN_STATE, and an abort brings the identity to go on with."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        with pytest.raises(client.TransactionAborted):
            await transaction_of(producer, b"a", then=lambda: cluster.transactions.time_out(ID))
        await transaction_of(producer, b"a")

        assert cluster.transactions.ends == [End(0, False), End(1, True)]
        assert identities(cluster)[-1] == (9_000, 1, 0)


@pytest.mark.parametrize("with_records", [True, False])
async def test_a_fenced_producer_is_told_so(with_records: bool) -> None:
    """Another process has the id: at the end, and at everything that it begins after that."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        transaction = await producer.transaction().__aenter__()
        await producer.send_and_wait(TOPIC, b"a")
        cluster.transactions.begin_elsewhere(ID)
        with pytest.raises(client.ProducerFenced):
            await (transaction.commit() if with_records else transaction.abort())
        with pytest.raises(client.ProducerFenced):
            async with producer.transaction():
                pass
        assert cluster.transactions.ends == []


async def test_an_abort_without_an_answer_is_made_up_for_at_the_next_beginning() -> None:
    """The coordinator may still have it open: the next transaction asks for an identity with the one it had."""
    async with fake_cluster() as cluster, producer_of(cluster, request_timeout_ms=300) as producer:
        cluster.transactions.loses_ends = 1
        with pytest.raises(ZeroDivisionError):
            await transaction_of(producer, b"a", then=defect)
        await transaction_of(producer, b"b")

        assert identities(cluster)[-1] == (9_000, 1, 0)
        assert cluster.transactions.ends == [End(0, False), End(1, True)]


async def test_what_the_transaction_before_still_does_is_waited_for() -> None:
    """CONCURRENT_TRANSACTIONS passes, at the start, at a leader and at an end."""
    async with fake_cluster() as cluster:
        cluster.transactions.init_refusals.append(ErrorCode.CONCURRENT_TRANSACTIONS)
        async with producer_of(cluster) as producer:
            cluster.nodes[0].next_produce.append(Refuse(ErrorCode.CONCURRENT_TRANSACTIONS))
            cluster.transactions.end_refusals.append(ErrorCode.CONCURRENT_TRANSACTIONS)
            async with producer.transaction():
                await producer.send(TOPIC, b"a")
        assert cluster.transactions.ends == [End(0, True)]


async def test_a_producer_that_is_closed_aborts_what_is_open() -> None:
    """Readers need not wait for the time-out; a fenced one is closed all the same."""
    for is_fenced in (False, True):
        async with fake_cluster() as cluster:
            async with producer_of(cluster) as producer:
                await producer.transaction().__aenter__()
                await producer.send_and_wait(TOPIC, b"a")
                if is_fenced:
                    cluster.transactions.begin_elsewhere(ID)
            assert cluster.transactions.ends == ([] if is_fenced else [End(0, False)])


async def test_a_cancelled_end_aborts() -> None:
    """What is still on its way is not waited for, and nothing of it is committed."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        cluster.nodes[0].next_produce.append(Hold())
        running = asyncio.create_task(transaction_of(producer, b"a"))
        await until(lambda: len(cluster.log().batches) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await transaction_of(producer, b"b")

        assert cluster.transactions.ends == [End(0, False), End(1, True)]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_consumer_that_is_closed_meanwhile_is_no_end(is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed in the block, the transaction is aborted and the next one can begin; closed later, it is committed."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        write(cluster, b"a")
        consumer = client.Consumer(cluster.bootstrap, group="g", auto_commit=False)
        await consumer.start()
        await consumer.assign([(TOPIC, 0)])
        end = TransactionCoordinator.end

        async def closing(*given: Any, **named: Any) -> Any:
            await consumer.close()
            return await end(*given, **named)

        monkeypatch.setattr(TransactionCoordinator, "end", closing)
        with nullcontext() if is_late else pytest.raises(client.ClientClosed):
            async with producer.transaction(consumer=consumer):
                await consumer.poll(5_000)
                if not is_late:
                    await consumer.close()
        async with producer.transaction():
            await producer.send(TOPIC, b"b")

        assert cluster.groups.committed == ({"g": {(TOPIC, 0): 1}} if is_late else {})


async def test_only_one_at_a_time() -> None:
    """One producer has one transaction; a second one needs another producer."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer, producer.transaction():
        with pytest.raises(client.Refused, match="has a transaction already"):
            async with producer.transaction():
                pass


async def test_offsets_are_committed_with_the_records() -> None:
    """X16: they count from the commit on; an abort drops them. A later call for a partition replaces an earlier."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as transaction:
            await producer.send(TOPIC, b"a")
            await transaction.send_offsets({(TOPIC, 0): 3}, "g")
            await transaction.send_offsets({(TOPIC, 0): 5}, "g")
            assert cluster.groups.committed == {}
        assert cluster.groups.committed == {"g": {(TOPIC, 0): 5}}

        async def block() -> None:
            async with producer.transaction() as transaction:
                await transaction.send_offsets({(TOPIC, 0): 9}, "g")
                1 / 0  # noqa: B018

        with pytest.raises(ZeroDivisionError):
            await block()
        assert cluster.groups.committed == {"g": {(TOPIC, 0): 5}}


async def test_offsets_that_are_refused_abort_the_transaction() -> None:
    """X18: a member that lost the partition commits neither its offset nor its records."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:

        async def block() -> None:
            async with producer.transaction() as transaction:
                await producer.send(TOPIC, b"a")
                await transaction.send_offsets({(TOPIC, 0): 3}, client.GroupMetadata("g", "somebody", 4, None))

        with pytest.raises(client.TransactionAborted) as aborted:
            await block()
        assert aborted.value.refusal.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert cluster.transactions.ends == [End(0, False)]


@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "assigned again"])
async def test_a_partition_that_was_lost_meanwhile_aborts_the_transaction(comes_back: bool) -> None:
    """X18: the member's session ends between its input and the commit. Outputs without the offset of their input would
    count twice, for another member, or this one again, reads it from what is committed."""
    heard = Heard()
    async with consuming(heard) as (cluster, producer, consumer):
        await until(lambda: len(consumer.assignment()) == 2)
        write(cluster, b"a")
        assert await next_value(consumer) == b"a"
        transaction = await producer.transaction(consumer=consumer).__aenter__()
        await producer.send(TOPIC, b"A", partition=1)
        await (lost_and_assigned_again(cluster, heard) if comes_back else consumer.unsubscribe())
        with pytest.raises(client.TransactionAborted, match="was taken from this consumer"):
            await transaction.commit()

        assert cluster.transactions.ends == [End(0, False)]
        assert cluster.groups.committed == {}


async def test_a_partition_that_was_lost_does_not_abort_the_next_transaction() -> None:
    """After the abort its records are given again, and the transaction that has them is committed."""
    heard = Heard()
    async with consuming(heard) as (cluster, producer, consumer):
        write(cluster, b"a")
        assert await next_value(consumer) == b"a"
        await lost_and_assigned_again(cluster, heard)
        with pytest.raises(client.TransactionAborted):
            await transaction_of(producer, b"A", partition=1, consumer=consumer)
        assert await next_value(consumer) == b"a"
        await transaction_of(producer, b"A", partition=1, consumer=consumer)

    assert cluster.transactions.ends == [End(0, False), End(1, True)]
    assert cluster.groups.committed == {"g": {(TOPIC, 0): 1}}


async def test_records_from_before_a_loss_abort_the_transaction_that_has_their_offsets_by_hand() -> None:
    """X18: a member's epoch that is asked for after the loss covers the partition again, and its records do not."""
    heard = Heard()
    async with consuming(heard) as (cluster, producer, consumer):
        write(cluster, b"a")
        assert await next_value(consumer) == b"a"
        before = consumer.group_metadata()
        # Another member works on it as well, and commits exactly as far.
        cluster.groups.committed["g"] = {(TOPIC, 0): 1}
        await lost_and_assigned_again(cluster, heard)

        async def block(*members: client.GroupMetadata) -> None:
            async with producer.transaction() as transaction:
                for each, partition in zip(members, (0, 1), strict=False):
                    await transaction.send_offsets({(TOPIC, partition): 1}, each)

        # The second one is by a later call, which takes the epoch of all to where the partition is back.
        for members in ((consumer.group_metadata(),), (before, consumer.group_metadata())):
            with pytest.raises(client.TransactionAborted, match="before the partition was lost") as aborted:
                await block(*members)
            assert aborted.value.refusal.code is ErrorCode.STALE_MEMBER_EPOCH
        write(cluster, b"b")
        assert await next_value(consumer) == b"b"
        async with producer.transaction() as transaction:
            await transaction.send_offsets({(TOPIC, 0): 2}, consumer.group_metadata())

    assert [end.committed for end in cluster.transactions.ends] == [True]
    assert cluster.groups.committed == {"g": {(TOPIC, 0): 2}}


async def test_what_was_committed_before_a_loss_is_not_taken_for_committed_after_it() -> None:
    """Another member may have put the group back; outputs without the offset of their input would count twice."""
    heard = Heard()
    async with consuming(heard) as (cluster, producer, consumer):
        write(cluster, b"a")
        for put_back in (True, False):
            assert await next_value(consumer) == b"a"
            await transaction_of(producer, b"A", partition=1, consumer=consumer)
            assert cluster.groups.committed == {"g": {(TOPIC, 0): 1}}
            if put_back:
                cluster.groups.committed["g"][TOPIC, 0] = 0
                await lost_and_assigned_again(cluster, heard)


async def test_a_consumer_in_a_transaction_commits_what_it_gave() -> None:
    """What the poll before the block gave is part of it; the next transaction has only what came since."""
    async with consuming() as (cluster, producer, consumer):
        write(cluster, b"a", b"b", b"c")
        assert await next_value(consumer) == b"a"
        async with producer.transaction(consumer=consumer):
            await producer.send(TOPIC, b"A", partition=1)
            assert await next_value(consumer) == b"b"
        assert cluster.groups.committed == {"g": {(TOPIC, 0): 2}}
        await transaction_of(producer, consumer=consumer)
        assert cluster.transactions.asked_to_end == 1


async def test_a_consumer_goes_back_after_an_abort() -> None:
    """U11: else the next transaction would skip what the aborted one consumed (mutant 81); with nothing committed to
    the first record that was given."""
    async with consuming() as (cluster, producer, consumer):
        write(cluster, b"a", b"b", b"c")
        for _ in range(2):
            assert await next_value(consumer) == b"a"
            with pytest.raises(ZeroDivisionError):
                await transaction_of(producer, consumer=consumer, then=defect)
        assert await next_value(consumer) == b"a"
        await transaction_of(producer, b"A", partition=1, consumer=consumer)
        assert [await next_value(consumer) for _ in range(2)] == [b"b", b"c"]
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.INVALID_TXN_STATE))
        with pytest.raises(client.TransactionAborted):
            await transaction_of(producer, b"B", partition=1, consumer=consumer)
        assert await next_value(consumer) == b"b"


async def test_a_consumer_goes_back_when_its_transaction_cannot_begin() -> None:
    """What was polled for it is given again, or the next one would commit that position without its output."""
    async with consuming(request_timeout_ms=300) as (cluster, producer, consumer):
        write(cluster, b"a", b"b")
        cluster.transactions.loses_ends = 1
        with pytest.raises(ZeroDivisionError):
            await transaction_of(producer, b"never", partition=1, then=defect)
        assert await next_value(consumer) == b"a"
        cluster.transactions.init_refusals.append(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        with pytest.raises(client.Refused):
            await producer.transaction(consumer=consumer).__aenter__()
        assert await next_value(consumer) == b"a"


async def test_a_member_commits_in_its_epoch() -> None:
    """X18: the coordinator checks the member; its positions are the group's at the end."""
    async with (
        fake_cluster(partitions=2) as cluster,
        producer_of(cluster) as producer,
        client.Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer,
    ):
        cluster.groups.has_topic = True
        write(cluster, b"a")
        await consumer.subscribe(TOPIC)
        await next_value(consumer)
        async with producer.transaction(consumer=consumer) as transaction:
            await transaction.send_offsets({(TOPIC, 1): 0}, consumer.group_metadata())
        assert cluster.groups.committed == {"g": {(TOPIC, 0): 1, (TOPIC, 1): 0}}


async def test_settings_that_cannot_be_are_refused() -> None:
    """With the rule: acks=1 would lose acknowledged records of a transaction, a consumer that commits by itself would
    commit what is aborted."""
    for named in ({"acks": 1}, {"idempotent": False}, {"transactional_id": ""}, {"transaction_timeout_ms": 0}):
        with pytest.raises(ValueError, match="transaction"):
            client.Producer("127.0.0.1:1", **{"transactional_id": ID, **named})
    async with fake_cluster() as cluster, producer_of(cluster) as producer, client.Producer(cluster.bootstrap) as plain:
        with pytest.raises(ValueError, match="no transactional_id"):
            plain.transaction()
        for consumer in (client.Consumer(cluster.bootstrap), client.Consumer(cluster.bootstrap, group="g")):
            with pytest.raises(ValueError, match="auto_commit=False"):
                producer.transaction(consumer=consumer)


async def test_blocking_clients_have_transactions_too() -> None:
    """The same, by ``with``: a consumer that is iterated goes back after an abort, and commits what it gave."""
    async with fake_cluster(partitions=2) as cluster:
        write(cluster, b"a", b"b")

        def program() -> list[bytes | None]:
            given = []
            with (
                sync.Producer(cluster.bootstrap, transactional_id=ID) as producer,
                sync.Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer,
            ):
                consumer.assign([(TOPIC, 0)])
                for attempt in range(2):
                    transaction = producer.transaction(consumer=consumer)
                    try:
                        with transaction:
                            given.append(next(consumer).value)
                            producer.send(TOPIC, b"A", partition=1)
                            if attempt == 0:
                                raise ArithmeticError
                    except ArithmeticError:
                        continue
                with producer.transaction() as transaction:
                    transaction.send_offsets({(TOPIC, 1): 1}, "g")
                    transaction.commit()
                with producer.transaction() as transaction:
                    transaction.abort()
            return given

        async with asyncio.timeout(30):
            given = await asyncio.to_thread(program)
        assert given == [b"a", b"a"]
        assert cluster.groups.committed == {"g": {(TOPIC, 0): 1, (TOPIC, 1): 1}}


async def test_a_blocking_consumer_goes_back_to_the_first_record_that_was_given() -> None:
    """U11: records that `for` takes one after the other are one step of it, and an abort takes back all of them."""
    async with fake_cluster(partitions=2) as cluster:
        write(cluster, b"a", b"b", b"c")

        def program() -> list[bytes | None]:
            given = []
            with (
                sync.Producer(cluster.bootstrap, transactional_id=ID) as producer,
                sync.Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer,
            ):
                consumer.assign([(TOPIC, 0)])
                try:
                    with producer.transaction(consumer=consumer):
                        given += [next(consumer).value for _ in range(3)]
                        raise ConnectionError
                except ConnectionError:
                    given.append(next(consumer).value)
            return given

        async with asyncio.timeout(30):
            given = await asyncio.to_thread(program)
        assert given == [b"a", b"b", b"c", b"a"]


async def test_a_transaction_is_run_again_until_it_is_committed() -> None:
    """What is aborted is run again in a new one, an unknown outcome is asked about again, and the result is that of the
    run that was committed."""
    runs = 0
    async with fake_cluster() as cluster, producer_of(cluster, delivery_timeout_ms=1_000) as producer:

        async def work() -> int:
            nonlocal runs
            runs += 1
            await producer.send_and_wait(TOPIC, b"a")
            if runs < 3:
                cluster.transactions.time_out(ID)
            cluster.transactions.loses_ends = runs == 3
            return runs

        result = await client.run_in_transaction(producer, work)
        ends = cluster.transactions.ends

    assert (result, runs) == (3, 3)
    assert [end.committed for end in ends] == [False, False, True]


async def test_a_transaction_is_not_run_again_for_ever() -> None:
    """One that is aborted each time is given up with what aborted it, and an error of the function's own at once."""
    async with fake_cluster() as cluster, producer_of(cluster) as producer:
        runs: list[bool] = []

        async def aborted() -> None:
            runs.append(True)
            await producer.send_and_wait(TOPIC, b"a")
            cluster.transactions.time_out(ID)

        async def wrong() -> None:
            runs.append(False)
            raise ZeroDivisionError

        with pytest.raises(client.TransactionAborted):
            await client.run_in_transaction(producer, aborted, timeout_ms=300)
        with pytest.raises(ZeroDivisionError):
            await client.run_in_transaction(producer, wrong)

    assert runs.count(True) > 1
    assert runs.count(False) == 1
