"""The traps of etcd that the stub is written around, and which member is asked (C3)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc
import pytest
from etcd_members import READY_S, client_of, others_stopped, stopped

from strandline.core.messages import Endpoint
from strandline.etcd import client as etcd_client
from strandline.etcd.client import Etcd, MemberChoice
from strandline.etcd.errors import Compacted, EtcdError, LeaseGone, Unanswered
from strandline.etcd.members import Members
from strandline.etcd.operations import Changes, behind, created_at, delete, found, get, put, watch, written_at
from strandline.etcd.v1 import etcd_pb2 as pb
from strandline.rpc.channels import target


async def _first(etcd: Etcd, key: bytes, *, since: int, count: int = 1) -> list[Changes]:
    seen: list[Changes] = []
    async for changes in watch(etcd, key, behind(key), since=since):
        seen.append(changes)
        if len(seen) == count:
            break
    return seen


async def test_a_transaction_does_one_list_or_the_other(etcd: Etcd) -> None:
    """What is compared decides, and a failed comparison returns what is there instead."""
    won = await etcd.txn([created_at(b"t/a", 0)], [put(b"t/a", b"1")])
    lost = await etcd.txn([created_at(b"t/a", 0)], [put(b"t/a", b"2")], [get(b"t/a")])

    assert won.succeeded
    assert not lost.succeeded
    kept = found(lost, 0)
    assert (kept.value, kept.create_revision) == (b"1", won.header.revision)


async def test_a_put_over_a_key_keeps_its_create_revision(etcd: Etcd) -> None:
    """A controller that overwrites the election key has its predecessor's token: a key is deleted first (C3)."""
    created = await etcd.put(b"e/active", b"A")
    await etcd.put(b"e/active", b"B")
    overwritten = await etcd.get(b"e/active")

    assert (overwritten.value, overwritten.create_revision) == (b"B", created)
    with pytest.raises(EtcdError, match="duplicate key"):
        await etcd.txn([], [delete(b"e/active"), put(b"e/active", b"C")])


async def test_a_compare_of_the_mod_revision_refuses_a_second_writer(etcd: Etcd) -> None:
    """Of two writes that build on one revision, one is done."""
    first = await etcd.put(b"m/head", b"1")
    won = await etcd.txn([written_at(b"m/head", first)], [put(b"m/head", b"2")])
    lost = await etcd.txn([written_at(b"m/head", first)], [put(b"m/head", b"3")])

    assert (won.succeeded, lost.succeeded) == (True, False)


async def test_one_transaction_is_one_change_of_a_watch(etcd: Etcd) -> None:
    """A hundred puts of one transaction arrive as one revision, whole and in order (C3)."""
    keys = [b"w/%03d" % n for n in range(100)]
    done = await etcd.txn([], [put(key, b"x" * 1_000) for key in keys])
    await etcd.put(b"w/last", b"")

    whole, last = await _first(etcd, b"w/", since=done.header.revision, count=2)

    assert whole.revision == done.header.revision
    assert [event.kv.key for event in whole.events] == keys
    assert [event.kv.key for event in last.events] == [b"w/last"]


async def test_a_watch_that_begins_before_what_is_kept_is_compacted(etcd: Etcd, members: Members) -> None:
    """A reader that comes too late learns it, instead of missing changes."""
    await etcd.put(b"c/a", b"1")
    now = await etcd.put(b"c/a", b"2")
    async with grpc.aio.insecure_channel(target(members.endpoints[0])) as channel:
        # CompactionRequest {revision = 1, physical = 2}
        compact = channel.unary_unary("/etcdserverpb.KV/Compact")
        request = pb.LeaseRevokeRequest(id=now).SerializeToString()
        await compact(request, timeout=READY_S, wait_for_ready=True)

    with pytest.raises(Compacted):
        await _first(etcd, b"c/", since=now - 1)


async def test_a_lease_takes_its_keys_along(etcd: Etcd) -> None:
    """A revoked lease deletes its key, and renewing it says so."""
    lease = await etcd.grant(5)
    await etcd.put(b"l/key", b"", lease)
    await etcd.renew(lease)
    await etcd.revoke(lease)

    assert await etcd.get(b"l/key") is None
    with pytest.raises(LeaseGone):
        await etcd.renew(lease)


async def test_a_dead_member_is_passed_over(etcd: Etcd, members: Members) -> None:
    """Reads and writes go on when the member in use is killed, and when the leader is (C24)."""
    dead = members.endpoints.index(etcd.member)
    members.kill(dead)
    try:
        await etcd.until_serving(READY_S)
        await etcd.put(b"d/key", b"1")
        kept = await etcd.get(b"d/key")
    finally:
        members.start_member(dead)

    assert kept is not None
    assert etcd.member != members.endpoints[dead]


async def test_a_silent_member_costs_one_deadline(members: Members) -> None:
    """After one call without an answer, the next one goes to a member that answers, and not to another silent one."""
    with _silent() as first, _silent() as second:
        async with client_of([first, second, *members.endpoints], write_s=1.0) as client:
            with pytest.raises(Unanswered):
                await client.put(b"s/key", b"1")
            await client.put(b"s/key", b"2")


async def test_a_watch_at_a_silent_member_ends_with_the_next_call(etcd: Etcd, members: Members) -> None:
    """A machine that is gone leaves a watch open: it ends when a call has found another member."""
    began = await etcd.put(b"v/key", b"1")
    watching = watch(etcd, b"v/", behind(b"v/"), since=began)
    await anext(watching)
    with stopped(members, members.endpoints.index(etcd.member)):
        await etcd.until_serving(READY_S)
        with pytest.raises(Unanswered, match="left a call without an answer"):
            await asyncio.wait_for(anext(watching), READY_S)
    await etcd.until_serving(READY_S)


async def test_a_cancelled_watch_is_cancelled(etcd: Etcd) -> None:
    """A task that is cancelled while it watches ends as cancelled, and does not watch again."""
    began = await etcd.put(b"x/key", b"1")
    task = asyncio.create_task(_first(etcd, b"x/", since=began, count=2))
    await etcd.put(b"y/key", b"1")
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@contextmanager
def _silent() -> Iterator[Endpoint]:
    """An address that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Endpoint("127.0.0.1", listening.getsockname()[1])


async def test_without_a_quorum_a_write_has_no_answer(etcd: Etcd, members: Members) -> None:
    """A write hangs until its deadline and its outcome is unknown (C3); a reading is no decision either (C3)."""
    async with client_of(members.endpoints, read_s=0.3, write_s=0.3) as hasty:
        with others_stopped(members, etcd):
            for _ in members.endpoints:
                with pytest.raises(Unanswered):
                    await hasty.put(b"q/key", b"1")
            with pytest.raises(Unanswered):
                await hasty.get(b"q/key")
    await etcd.until_serving(READY_S)


async def test_a_member_without_a_leader_ends_its_watches(etcd: Etcd, members: Members) -> None:
    """A watch at a member that is cut off from the others ends, although its connection stays (C3)."""
    alone = etcd.member
    began = await etcd.put(b"n/key", b"1")
    watching = watch(etcd, b"n/", behind(b"n/"), since=began)
    await anext(watching)
    with others_stopped(members, etcd), pytest.raises(Unanswered):
        await anext(watching)

    assert etcd.member != alone
    await etcd.until_serving(READY_S)


async def test_pings_are_rarer_than_etcd_allows() -> None:
    """etcd answers pings that come more often than every 5 s with GOAWAY, and drops calls under way (C3)."""
    assert etcd_client._PING_EVERY_MS >= 2 * 5_000


async def test_two_answers_in_any_order_are_no_step_back(etcd: Etcd) -> None:
    """Of calls that are under way together, the one that ends last may be the older one (C40)."""
    await asyncio.gather(*(etcd.put(b"o/%d" % n, b"") for n in range(20)), *(etcd.get(b"o/0") for _ in range(20)))

    assert etcd.revision > 0


# Which member of etcd is asked, without etcd (C3).


A, B, C = (Endpoint("127.0.0.1", port) for port in (1, 2, 3))


class MembersChoice:
    """What members say when they are asked for their leader: None for one that does not answer."""

    def __init__(self, said: Mapping[Endpoint, list[bool | None]]) -> None:
        self._said = {member: list(answers) for member, answers in said.items()}
        self.asked: list[Endpoint] = []

    async def knows_leader(self, member: Endpoint) -> bool:
        """The next of its answers; the last one for ever."""
        self.asked.append(member)
        answers = self._said[member]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            raise Unanswered(f"member {member.port} is silent")
        return answer


async def _after_a_failure(said: Mapping[Endpoint, list[bool | None]], within_s: float = 1.0) -> Endpoint:
    choice = MemberChoice([A, B, C], MembersChoice(said).knows_leader)
    choice.leave(A)
    return await choice.settled(within_s)


async def test_nobody_is_asked_before_a_call_failed() -> None:
    """While calls are answered, choosing costs no message."""
    members = MembersChoice({A: [True], B: [True], C: [True]})

    assert await MemberChoice([A, B, C], members.knows_leader).settled(1.0) == A
    assert members.asked == []


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ({A: [True], B: [True], C: [True]}, B),
        ({A: [None], B: [None], C: [True]}, C),
        ({A: [True], B: [False], C: [True]}, C),
        ({A: [True], B: [None], C: [None]}, A),
        ({A: [None], B: [None], C: [None]}, B),
        ({A: [None], B: [False, False, True], C: [False]}, B),
        ({A: [None], B: [False], C: [False, False, True]}, C),
    ],
    ids=[
        "the next in turn",
        "past another silent one",
        "past one without a leader",
        "back to the one that was left",
        "in turn when none answers",
        "the first to have a leader, next in turn",
        "the first to have a leader, another",
    ],
)
async def test_the_member_after_a_failed_call(said: Mapping[Endpoint, list[bool | None]], chosen: Endpoint) -> None:
    """After a call to A without an answer, the next goes to a member that knows a leader."""
    assert await _after_a_failure(said) == chosen


async def test_members_without_a_leader_are_waited_for_no_longer_than_the_call() -> None:
    """A call ends in time although no leader is elected."""
    assert await _after_a_failure({A: [None], B: [False], C: [False]}, within_s=0.0) == B


async def test_a_late_failure_of_a_member_that_was_left_leaves_no_other() -> None:
    """Calls that were under way together move on once."""
    choice = MemberChoice([A, B, C], MembersChoice({A: [True], B: [True], C: [True]}).knows_leader)
    choice.leave(A)
    choice.leave(A)

    assert choice.member == B
