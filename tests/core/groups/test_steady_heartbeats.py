"""Heartbeats that say only that their member lives: decided the short way, at one cost for any number of members."""

from __future__ import annotations

import gc
import random
import time
from typing import Any

import pytest
from counted_calls import CountedCalls
from groups_alone import GROUP, GroupsAlone, Topics, seed

from strandline.core.groups import heartbeats
from strandline.core.groups.messages import ConsumerGroupHeartbeat, GroupSettings

FEW = 26
"""Calls of Python functions that a steady heartbeat may cost from `decide` to the note that it was taken; the long way
costs 55."""


def _heartbeat(alone: GroupsAlone, member_id: str, **named: Any) -> ConsumerGroupHeartbeat:
    epoch = alone.group.current[member_id].member_epoch
    return ConsumerGroupHeartbeat(group_id=GROUP, member_id=member_id, **{"member_epoch": epoch} | named)


def _wander(alone: GroupsAlone, draw: random.Random) -> None:
    """One thing that happens to a group."""
    members = sorted(alone.group.members)
    match draw.choice(["join", "leave", "beat", "beat", "beat", "report", "report", "tick", "grow"]):
        case "join":
            alone.join(f"m{draw.randrange(5)}", *draw.sample(("foo", "bar"), draw.randint(1, 2)))
        case "leave" if members:
            alone.beat(draw.choice(members), -1)
        case "beat" if members:
            alone.beat(draw.choice(members))
        case "report" if members:
            member_id = draw.choice(members)
            alone.beat(member_id, owned=alone.has(member_id))
        case "tick":
            alone.tick(draw.choice((1, 300)))
            alone.compute()
        case "grow":
            alone.topics.put("foo", draw.randint(3, 6))


def test_the_short_way_decides_as_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 25 groups that wander, at each of 40 steps: what a bare heartbeat of each member leads to is the same without
    the short way, and the short way is taken in more than a tenth of the cases."""
    short = heartbeats._only_lives
    taken: list[bool] = []

    def watched(group: Any, request: Any) -> bool:
        taken.append(short(group, request))
        return taken[-1]

    for number in range(25):
        draw = random.Random(number)
        alone = GroupsAlone(Topics(foo=3, bar=2), GroupSettings(assignment_interval_ms=draw.choice((0, 200))))
        for _ in range(40):
            _wander(alone, draw)
            for member_id in sorted(alone.group.members):
                request = _heartbeat(alone, member_id, sequence=None)
                monkeypatch.setattr(heartbeats, "_only_lives", watched)
                decided = alone.machine.decide(request, alone.context)
                monkeypatch.setattr(heartbeats, "_only_lives", lambda group, request: False)
                assert decided == alone.machine.decide(request, alone.context)
            monkeypatch.setattr(heartbeats, "_only_lives", short)

    assert sum(taken) > len(taken) / 10


def _stable() -> GroupsAlone:
    alone = GroupsAlone(Topics(foo=2))
    seed(alone, 5, {"m1": {"foo": [0]}, "m2": {"foo": [1]}}, ("foo",))
    return alone


@pytest.mark.parametrize(
    "said",
    [
        {"topic_partitions": ()},
        {"subscribed_topic_names": ("foo",)},
        {"subscribed_topic_regex": ""},
        {"server_assignor": "range"},
        {"rack_id": ""},
        {"session_timeout_ms": 10_000},
        {"rebalance_timeout_ms": 10_000},
        {"member_epoch": 0, "topic_partitions": (), "rebalance_timeout_ms": 1, "subscribed_topic_names": ("foo",)},
    ],
    ids=lambda said: next(iter(said)),
)
def test_a_heartbeat_that_says_something_goes_the_long_way(said: dict[str, Any]) -> None:
    """Whatever a member says of itself is looked at, also where it says what is known."""
    alone = _stable()

    assert heartbeats._only_lives(alone.group, _heartbeat(alone, "m1"))
    assert not heartbeats._only_lives(alone.group, _heartbeat(alone, "m1", **said))


def test_a_member_behind_its_target_goes_the_long_way() -> None:
    """A bare heartbeat of a member that is to have more than it has is looked at: this may be when it gets it."""
    alone = _stable()
    alone.join("m3", "foo")
    alone.settle("m3")

    assert alone.group.target_epoch > alone.group.current["m1"].member_epoch
    assert not heartbeats._only_lives(alone.group, _heartbeat(alone, "m1"))


def test_a_steady_heartbeat_makes_few_calls() -> None:
    """Two hundred heartbeats a second are the usual load of a coordinator of a thousand members; calls are counted,
    no time is measured."""
    alone = _stable()
    alone.beat("m1")
    request, context = _heartbeat(alone, "m1", sequence=1), alone.context
    # A collection would call what others registered for it: Hypothesis counts them, in two calls.
    gc.disable()
    try:
        with CountedCalls() as calls:
            decision = alone.machine.decide(request, context)
            alone.machine.taken(decision.taken, alone.now_ms)
    finally:
        gc.enable()

    assert not decision.batches
    assert len(calls) <= FEW, calls


# What members cost the coordinator: a heartbeat that changes nothing does not depend on how many there are.


def _joined(members: int, partitions: int) -> GroupsAlone:
    """A stable group."""
    alone = GroupsAlone(Topics(foo=partitions), GroupSettings())
    alone.invariants.decided = lambda request, batches: None  # type: ignore[method-assign]
    for number in range(members):
        alone.join(f"m{number:05}", "foo")
    alone.tick(200)
    alone.compute()
    for _ in range(3):
        for number in range(members):
            member = f"m{number:05}"
            alone.beat(member, owned=alone.has(member))
    assert alone.group.state == "Stable"
    return alone


def _seconds(alone: GroupsAlone, beats: int) -> float:
    members = sorted(alone.group.members)
    began_s = time.process_time()
    for number in range(beats):
        alone.beat(members[number % len(members)])
    return time.process_time() - began_s


def test_a_heartbeat_costs_the_same_in_a_large_group() -> None:
    """50 times as many members and partitions: a heartbeat that changes nothing writes nothing and costs at most three
    times as much."""
    small, large = _joined(20, 20), _joined(1_000, 1_000)
    before = len(large.log)

    assert min(_seconds(large, 2_000) for _ in range(3)) / min(_seconds(small, 2_000) for _ in range(3)) < 3
    assert len(large.log) == before


def test_joins_of_a_large_group_share_targets() -> None:
    """1,000 members that join within one interval lead to two targets: the first member's, and one for all."""
    alone = _joined(1_000, 1_000)

    assert {record.value.epoch for record in alone.log if type(record.key).__name__ == "TargetEpochKey"} == {1, 1_000}
    assert {len(row.assigned) for row in alone.group.current.values()} == {1}
