"""The state after any history is the fold of its log, also of one that a sweep wrote again (G3, I31)."""

from __future__ import annotations

from typing import Any

from groups_alone import GROUP, GroupsAlone, Topics, state_of, tps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.core.coordinator.machine import Key, Record
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import DeleteGroup, GroupSettings, OffsetDelete

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
    assert topic is not None
    assert owned == list(range(topic.partition_count))
