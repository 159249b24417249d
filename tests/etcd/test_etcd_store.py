"""The controllers' store against three real members of etcd: what one writes, another reads, and no other writes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from etcd_members import READY_S, others_stopped

from strandline.core.control.state import ClusterHeader, TopicRecord, Transaction
from strandline.core.messages import Endpoint
from strandline.core.reigns.events import Head, Holder
from strandline.etcd.client import Etcd
from strandline.etcd.errors import Unanswered
from strandline.etcd.members import Members
from strandline.etcd.operations import behind, delete
from strandline.metadata.etcd import EtcdStore, StoreView
from strandline.metadata.etcd_layout import Presence, TransactionBatch, batches
from strandline.metadata.store import Mark, Marked, StoreDamaged, StoreMarked

LEASE_MS = 5_000


class Controller:
    """One controller's store, and what it was shown."""

    def __init__(self, etcd: Etcd, prefix: str, name: str, *, part_bytes: int = 1 << 20) -> None:
        self.store = EtcdStore(etcd, prefix, part_bytes=part_bytes, snapshot_every=10)
        self.presence = Presence(name, f"{name}-1", Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2))
        self.reign_id = uuid.uuid4().hex
        self.keys: list[tuple[int, Holder | None]] = []
        self.token = 0
        self.lease = 0
        self._applied = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def win(self) -> None:
        """Take the key, which is free."""
        self.lease = await self.store.grant(LEASE_MS)
        token = await self.store.campaign(self.lease, self.presence)
        assert isinstance(token, int)
        self.token = token

    def batch(self, *transactions: Transaction) -> TransactionBatch:
        (batch,) = batches(self.reign_id, transactions, part_bytes=self.store.part_bytes)
        return batch

    async def append(self, *transactions: Transaction) -> int | StoreView:
        """Append in one batch behind the head as it is now."""
        return await self.append_batch(self.batch(*transactions))

    async def append_batch(self, batch: TransactionBatch) -> int | StoreView:
        """Append one batch behind the head as it is now."""
        head = (await self.store.read()).head
        return await self.store.append(self.token, 0 if head is None else head.revision, batch)

    def follow(self) -> None:
        self._following = asyncio.ensure_future(
            self.store.follow(
                lambda _: self._applied.set(), lambda revision, holder, _: self.keys.append((revision, holder))
            )
        )

    async def reached(self, offset: int) -> None:
        """Wait until the copy holds a transaction."""
        async with asyncio.timeout(READY_S):
            while self.store.applied is None or self.store.applied.offset < offset:
                self._applied.clear()
                await self._applied.wait()

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)


def _transaction(offset: int, *, size: int = 0) -> Transaction:
    configs = tuple((f"key-{n}", uuid.uuid4().hex) for n in range(size))
    return Transaction(
        header=ClusterHeader(cluster_id="c", metadata_offset=offset),
        topics=(TopicRecord(name=f"t{offset}", topic_id=f"id-{offset}", configs=configs),),
    )


def _names(controller: Controller) -> list[str]:
    state = controller.store.state
    return [] if state is None else [topic.name for topic in state.topics.values()]


@pytest.fixture
async def one(etcd: Etcd, prefix: str) -> AsyncIterator[Controller]:
    controller = Controller(etcd, prefix, "one")
    yield controller
    await controller.close()


@pytest.fixture
async def other(etcd: Etcd, prefix: str) -> AsyncIterator[Controller]:
    """Another one on the same keys."""
    controller = Controller(etcd, prefix, "other")
    yield controller
    await controller.close()


@pytest.fixture
async def small(etcd: Etcd, prefix: str) -> Controller:
    """One that decides, with parts of at most 200 bytes."""
    controller = Controller(etcd, prefix, "small", part_bytes=200)
    await controller.win()
    return controller


async def test_a_standby_has_what_the_active_appended(one: Controller, other: Controller) -> None:
    """What was there before it began to follow, and what came after, by log and by watch, is one state."""
    await one.win()
    assert isinstance(await one.append(_transaction(1), _transaction(2)), int)
    other.follow()
    await other.reached(2)
    assert isinstance(await one.append(_transaction(3)), int)
    await other.reached(3)

    assert _names(other) == ["t1", "t2", "t3"]
    assert other.store.applied == (await one.store.read()).head
    assert other.keys[-1][1] == Holder(one.token, "one", "one-1", one.lease)


async def test_a_controller_that_was_replaced_appends_nothing(one: Controller, other: Controller) -> None:
    """The compare on the token refuses the earlier reign, although it knows the head and a key is there (C7)."""
    await one.win()
    await one.append(_transaction(1))
    assert await other.store.take_key(one.token + 1) == (one.store.etcd.revision, False)
    _, taken = await other.store.take_key(one.token)
    await other.win()
    late = await one.append(_transaction(2))

    assert taken
    assert (late.holder.token, late.holder.controller_id) == (other.token, "other")
    assert (await one.store.read()).head.offset == 1


async def test_a_second_copy_of_an_append_changes_nothing(one: Controller) -> None:
    """The same batch behind the same head is done once; the second attempt is shown its own head (C9)."""
    await one.win()
    batch = one.batch(_transaction(1))
    first = await one.store.append(one.token, 0, batch)
    again = await one.store.append(one.token, 0, batch)

    assert again.head == batch.head
    assert again.head.revision == first


async def test_a_campaign_shows_who_won(one: Controller, other: Controller) -> None:
    """The key is taken by one; the other one learns by whom."""
    await one.win()
    lease = await other.store.grant(LEASE_MS)
    lost = await other.store.campaign(lease, other.presence)

    assert lost.holder == Holder(one.token, "one", "one-1", one.lease)
    assert other.store.active == one.presence


async def test_a_successor_is_named_until_the_next_reign(one: Controller, other: Controller) -> None:
    """A read that shows the key gone shows the name with it; the next campaign deletes it (C22)."""
    await one.win()
    await one.store.name_successor(one.token, "other")
    await one.store.resign(one.token, one.lease)
    left = await other.store.read()
    await other.win()
    await other.store.take_key(other.token)
    gone = await other.store.read()

    assert (left.holder, left.successor) == (None, "other")
    assert (gone.holder, gone.successor) == (None, None)


async def test_a_transaction_above_the_limit_goes_in_parts(etcd: Etcd, small: Controller, other: Controller) -> None:
    """With a limit of 200 bytes a large transaction is appended, followed and read back equal (C8)."""
    large = _transaction(2, size=100)
    other.follow()
    for batch in batches(small.reign_id, [_transaction(1), large, _transaction(3)], part_bytes=200):
        assert isinstance(await small.append_batch(batch), int)
    await other.reached(3)

    assert other.store.state.topics["id-2"].configs == large.topics[0].configs
    parts = await etcd.page(small.store.keys.parts, behind(small.store.keys.parts), 0, 1_000)
    assert len(parts) > 1
    assert max(len(kv.value) for kv in parts) == 200


async def test_parts_are_read_as_of_the_revision_of_the_log(etcd: Etcd, small: Controller, other: Controller) -> None:
    """A snapshot that deletes the parts meanwhile leaves no gap in what is read as of an earlier revision (C17)."""
    await small.append(_transaction(1, size=100))
    revision = (await small.store.read()).revision
    async with asyncio.timeout(READY_S):
        await etcd.txn([], [delete(*small.store.keys.all_parts)])

    assert not await other.store._read_log_behind(None, 1, 0)
    assert await other.store._read_log_behind(None, 1, revision)
    assert other.store.applied.offset == 1


async def test_parts_of_a_replaced_reign_are_not_read(etcd: Etcd, small: Controller, other: Controller) -> None:
    """An append that was fenced behind its first parts leaves parts, no transaction."""
    batch = small.batch(_transaction(1, size=100))
    key = small.store.keys.parts_of(small.reign_id, 1) + b"%06d" % 0
    await etcd.put(key, batch.pieces[0].parts[0])
    await other.store.take_key(small.token)
    assert isinstance(await small.store.append(small.token, 0, batch), StoreView)
    await other.win()
    await other.append(_transaction(1))
    other.follow()
    await other.reached(1)

    assert _names(other) == ["t1"]


async def test_a_snapshot_replaces_the_log(one: Controller, other: Controller) -> None:
    """Who comes later reads snapshot and the rest of the log, and has the same state (C11)."""
    await one.win()
    for offset in range(1, 12):
        batch = one.batch(_transaction(offset))
        assert isinstance(await one.append_batch(batch), int)
        one.store.settled(batch, batch.head)
    assert one.store.is_snapshot_due
    # An attempt that was cut off may have left more parts than the snapshot has.
    await one.store.etcd.put(one.store.keys.snapshot_part(11, 1), b"left")
    assert await one.store.snapshot(one.token)
    assert not one.store.is_snapshot_due
    # As if the tail had been trimmed, too: nothing but the snapshot holds these.
    await one.store.etcd.delete(one.store.keys.log(0), one.store.keys.log(12))
    await one.append(_transaction(12))
    other.follow()
    await other.reached(12)

    assert _names(other) == [f"t{offset}" for offset in range(1, 13)]


async def test_a_replaced_controller_writes_no_snapshot(one: Controller, other: Controller) -> None:
    """A snapshot is fenced by the token, as everything is."""
    await one.win()
    batch = one.batch(_transaction(1))
    await one.append_batch(batch)
    one.store.settled(batch, batch.head)
    await other.store.take_key(one.token)

    assert not await one.store.snapshot(one.token)
    assert await one.store.etcd.get(one.store.keys.current_snapshot) is None


async def test_the_log_is_read_up_to_the_head(one: Controller, other: Controller) -> None:
    """A take-over reads what its watch has not brought, and ends at the head it was given (C18)."""
    await one.win()
    await one.append(*(_transaction(offset) for offset in range(1, 81)))
    head = (await other.store.read()).head

    assert await other.store.read_log(head) == head
    assert len(_names(other)) == 80


async def test_a_log_that_ends_early_is_damage(one: Controller, other: Controller) -> None:
    """A head whose transaction is not there is no store to decide from."""
    await one.win()
    await one.append(_transaction(1))
    head = (await one.store.read()).head
    await one.store.etcd.delete(one.store.keys.log(1))

    with pytest.raises(StoreDamaged):
        await other.store.read_log(head)


async def test_a_damaged_value_ends_following(one: Controller, other: Controller) -> None:
    """One flipped bit of the log is refused, and named."""
    await one.win()
    await one.append(_transaction(1))
    key = one.store.keys.log(1)
    kept = await one.store.etcd.get(key)
    await one.store.etcd.put(key, kept.value[:-1] + bytes([kept.value[-1] ^ 1]))

    with pytest.raises(StoreDamaged, match="log value 1"):
        await other.store.follow(lambda _: None, lambda _revision, _holder, _successor: None)


async def test_followers_go_on_when_their_member_dies(
    one: Controller, other: Controller, members: Members, etcd: Etcd
) -> None:
    """The watch moves to another member and misses nothing (C24)."""
    await one.win()
    await one.append(_transaction(1))
    other.follow()
    await other.reached(1)
    dead = members.endpoints.index(etcd.member)
    members.kill(dead)
    try:
        await etcd.until_serving(READY_S)
        assert isinstance(await one.append(_transaction(2), _transaction(3)), int)
        await other.reached(3)
    finally:
        members.start_member(dead)

    assert _names(other) == ["t1", "t2", "t3"]


async def test_an_append_without_a_quorum_is_known_afterwards(one: Controller, members: Members, etcd: Etcd) -> None:
    """Its outcome is unknown; once a majority is back, the head says which, and sending it again is safe (C9)."""
    await one.win()
    batch = one.batch(_transaction(1))
    with others_stopped(members, etcd), pytest.raises(Unanswered):
        await one.store.append(one.token, 0, batch)
    await etcd.until_serving(READY_S)
    head = (await one.store.read()).head
    sent_again = await one.store.append(one.token, 0, batch)

    assert head in (None, batch.head)
    if head is None:
        assert isinstance(sent_again, int) or sent_again.head == batch.head
    else:
        assert isinstance(sent_again, StoreView)
    assert (await one.store.read()).head == batch.head


async def test_a_cluster_is_named_once(one: Controller, other: Controller) -> None:
    """The first controller gives the keys a cluster id; the next ones get that one."""
    first = await one.store.open("cluster-a")
    second = await other.store.open("cluster-b")

    assert (first, second) == ("cluster-a", "cluster-a")


async def test_a_store_that_was_moved_is_not_campaigned_for(one: Controller, other: Controller) -> None:
    """A standby that opened the store before it was moved does not begin a reign in it afterwards (C44)."""
    await one.win()
    await one.store.set_mark(one.token, Mark(Marked.MOVED, "m", "sqlite:/new"))
    await one.store.resign(one.token, one.lease)
    with pytest.raises(StoreMarked, match="was moved to sqlite:/new"):
        await other.win()
    with pytest.raises(StoreMarked):
        await other.store.open("c")

    assert (await other.store.read()).holder is None


async def test_controllers_see_each_other(one: Controller, other: Controller) -> None:
    """What controllers say of themselves is there as long as their leases are."""
    for controller in (one, other):
        controller.lease = await controller.store.grant(LEASE_MS)
        await controller.store.announce(controller.presence._replace(offset=7), controller.lease)
    both = await one.store.controllers()
    await other.store.revoke(other.lease)
    left = await one.store.controllers()

    assert {(presence.controller_id, presence.offset) for presence in both} == {("one", 7), ("other", 7)}
    assert [presence.controller_id for presence in left] == ["one"]


def test_a_batch_is_bounded() -> None:
    """At most 100 transactions, at most the limit of bytes, and a large one alone (C7)."""
    many = batches("r", [_transaction(offset) for offset in range(1, 251)], part_bytes=1 << 20)
    small = batches("r", [_transaction(offset) for offset in range(1, 5)], part_bytes=400)

    assert [len(batch.pieces) for batch in many] == [100, 100, 50]
    assert [batch.head.offset for batch in many] == [100, 200, 250]
    assert all(batch.size <= 400 for batch in small if not batch.pieces[0].parts)
    assert many[0].head == Head("r", 100, many[0].head.digest)
