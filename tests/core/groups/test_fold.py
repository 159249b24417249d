"""A group's state after any history is the fold of its log (G3, I31), with the histories of known bugs."""

from __future__ import annotations

from typing import Any

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, aim, answered_with, codes, parts, seed, state_of, tps
from hypothesis import HealthCheck, given, settings, strategies as st

from strandline.core.coordinator.machine import Key, Record
from strandline.core.groups.invariants import GroupInvariants
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import DeleteGroup, GroupSettings, OffsetDelete
from strandline.core.groups.records import MemberState

MEMBERS = ("m1", "m2", "s1", "s2")


steps = st.lists(
    st.tuples(
        st.sampled_from(
            "join beat report report stale commit stage stage end end leave away tick wait grow drop delete-offset "
            "delete-group".split()
        ),
        st.sampled_from(MEMBERS),
        st.integers(0, 5),
    ),
    max_size=60,
)


def _instance(member: str) -> dict[str, Any]:
    """s1 and s2 are two processes of one static member."""
    return {"instance_id": "s"} if member.startswith("s") else {}


def _do(alone: GroupsAlone, verb: str, member: str, number: int) -> None:
    row = alone.group.current.get(member)
    epoch = row.member_epoch if row else 1
    match verb:
        case "join":
            wanted = ("foo",) if number % 2 else ("foo", "bar")
            alone.join(member, *wanted, session_timeout_ms=6_000 + number, **_instance(member))
        case "beat":
            alone.beat(member, epoch)
        case "report":
            alone.beat(member, epoch, alone.has(member) if row else {})
        case "stale":
            alone.beat(member, max(1, epoch - 1), {})
        case "commit":
            alone.commit(number, epoch, member, of={"foo": [number], "bar": [0]})
            alone.commit(number, of={"bar": [1]})
        case "stage":
            known = max(0, alone.machine.producers.known_epoch(number % 2))
            alone.stage(number, producer=number % 2, producer_epoch=known, of={"foo": [number], "bar": [0]})
            alone.stage(number, producer=0, producer_epoch=known, member_id=member, member_epoch=epoch)
        case "end":
            known = alone.machine.producers.known_epoch(number % 2)
            alone.mark(known + number // 3, commit=member != "m1", producer=number % 2, coordinator=number)
        case "leave":
            alone.beat(member, -1)
        case "away":
            alone.beat(member, -2, instance_id="s")
        case "tick":
            alone.tick(number)
            alone.compute()
        case "wait":
            alone.tick(1_500 * number)
        case "grow":
            alone.topics.put("foo", 6 + number)
        case "drop":
            if alone.topics.by_name("bar"):
                alone.topics.drop("bar")
            else:
                alone.topics.put("bar", 3, topic_id=f"bar{alone.topics.version}-id")
        case "delete-offset":
            alone.ask(OffsetDelete(group_id=GROUP, partitions=tps({"foo": [number], "bar": [0]})))
        case "delete-group":
            alone.ask(DeleteGroup(group_id=GROUP))


def _swept(log: list[Record], begin: int) -> list[Record]:
    """The log as a sweep leaves it that began at ``begin``: live keys of then, written again between later writes."""
    live: dict[Key, Record] = {}
    for record in log[:begin]:
        live[record.key] = record
    again = [record for record in live.values() if record.value is not None]
    written: set[Key] = set()
    out: list[Record] = []
    for record in log[begin:]:
        if again and (first := again.pop()).key not in written:
            out.append(first)
        out.append(record)
        written.add(record.key)
    return out + [record for record in again if record.key not in written]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(0, 100), st.booleans())
def test_state_is_the_fold_of_the_log(history: list[tuple[str, str, int]], begin: int, lazy: bool) -> None:
    """Live state equals that of a machine that loads the log, or what a sweep left of it; I28 and I29 hold at every
    step of it, and after everybody does as it is asked the group is stable."""
    alone = GroupsAlone(
        Topics(foo=6, bar=3),
        GroupSettings(
            assignment_interval_ms=200 if lazy else 0,
            inline_pairs=12,
            offsets_retention_ms=3_000,
            offsets_retention_check_ms=1_000,
            fence_retention_ms=9_000,
        ),
    )
    for step in history:
        _do(alone, *step)

    assert alone.folded() == state_of(alone.machine)
    swept = GroupMachine(alone.machine.subscriptions._engine, alone.settings)
    for record in _swept(alone.log, min(begin, len(alone.log))):
        swept.apply(record)
    assert state_of(swept) == state_of(alone.machine)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_a_group_whose_members_do_as_asked_becomes_stable(history: list[tuple[str, str, int]]) -> None:
    """L11 without time: after any history, members that heartbeat and give up what they must end STABLE, and every
    partition has an owner."""
    alone = GroupsAlone(Topics(foo=6, bar=3))
    for step in history:
        _do(alone, *step)
    alone.tick(100_000)
    for member in ("m1", "m2"):
        alone.join(member, "foo")
    alone.settle("m1", "m2")

    assert alone.group.state == "Stable"
    owned = sorted(tp.partition for member in ("m1", "m2") for tp, _ in alone.group.current[member].held)
    topic = alone.topics.by_name("foo")
    assert owned == list(range(topic.partition_count))


# Bugs that coordinators have had, each as the history that showed it.


@pytest.fixture
def alone() -> GroupsAlone:
    """Two members that are stable in epoch 10."""
    alone = GroupsAlone(Topics(foo=6))
    seed(alone, 10, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}}, ("foo",))
    return alone


def test_kafka_16147_a_partition_that_returns_keeps_its_owner(alone: GroupsAlone) -> None:
    """KAFKA-16147: a partition that is being revoked returns to its member; asked back later it still has an owner."""
    aim(alone, 11, {"m1": {"foo": [0, 1]}, "m2": {"foo": [2, 3, 4, 5]}})
    alone.beat("m1")
    assert parts(*(each.tp for each in alone.group.current["m1"].revoking)) == {"foo": [2]}
    aim(alone, 12, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    assert answered_with(alone.beat("m1", owned={"foo": [0, 1]})) == (12, {"foo": [0, 1, 2]})

    aim(alone, 13, {"m1": {"foo": [0, 1]}, "m2": {"foo": [2, 3, 4, 5]}})
    alone.beat("m2")

    assert alone.has("m2") == {"foo": [3, 4, 5]}
    assert alone.group.current["m2"].state is MemberState.UNRELEASED
    alone.beat("m1")
    alone.beat("m1", owned={"foo": [0, 1]})
    alone.beat("m2")
    assert alone.has("m2") == {"foo": [2, 3, 4, 5]}


def test_kafka_20066_a_commit_that_crosses_a_heartbeat(alone: GroupsAlone) -> None:
    """KAFKA-20066 (KIP-1251): a commit sent before the answer that raised the epoch is taken."""
    aim(alone, 11, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    assert alone.beat("m1").member_epoch == 11
    assert codes(alone.commit(epoch=10, member_id="m1", of={"foo": [0, 1, 2]})) == ["OK", "OK", "OK"]


def test_a_commit_of_an_owner_before_the_last(alone: GroupsAlone) -> None:
    """A partition that went away and came back is committed only in the epochs since it came back."""
    aim(alone, 11, {"m1": {"foo": [0, 1]}, "m2": {"foo": [3, 4, 5]}})
    alone.beat("m1")
    alone.beat("m1", owned={"foo": [0, 1]})
    aim(alone, 12, {"m1": {"foo": [0, 1, 2]}})
    alone.beat("m1")

    assert codes(alone.commit(epoch=11, member_id="m1", of={"foo": [0, 2]})) == ["OK", "STALE_MEMBER_EPOCH"]


def test_kafka_19233_a_member_that_lost_everything_can_return(alone: GroupsAlone) -> None:
    """KAFKA-19233: a member that is known at 11 and comes with 0 gets its partitions, and others get theirs."""
    aim(alone, 11, {"m1": {"foo": [0, 1]}, "m2": {"foo": [2, 3, 4, 5]}})
    alone.beat("m1")

    assert answered_with(alone.join("m1", "foo")) == (11, {"foo": [0, 1]})
    assert answered_with(alone.beat("m2")) == (11, {"foo": [2, 3, 4, 5]})


def test_the_model_of_owners_believes_a_log_that_was_swept(alone: GroupsAlone) -> None:
    """I29: members seed 929. After a sweep the first row of a member that is read may be of a later epoch than that in
    which it was given its partitions; a commit in between is no violation."""
    aim(alone, 11, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    alone.beat("m1")
    alone.invariants = GroupInvariants()
    for group in alone.machine.groups.values():
        for key, value in group.rows():
            alone.invariants.written_before(Record(key, value))

    assert codes(alone.commit(epoch=10, member_id="m1", of={"foo": [0]})) == ["OK"]
