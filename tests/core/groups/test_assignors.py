"""The assignors (G24), and `next_state` with the rows of Kafka's CurrentAssignmentBuilderTest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest
from groups_alone import Parts, held, parts, tps
from hypothesis import given, strategies as st

from strandline.core.coordinator.machine import TopicEntry
from strandline.core.groups.assignors import Subscriber, Target, assign_range, assign_uniform, chosen_assignor
from strandline.core.groups.records import CurrentValue, MemberState
from strandline.core.groups.targets import next_state
from strandline.core.types import TopicPartition


def _topics(counts: Mapping[str, int], racks: Sequence[str] = ()) -> dict[str, TopicEntry]:
    def of(p: int) -> frozenset[str]:
        return frozenset({racks[p % len(racks)]}) if racks else frozenset()

    return {name: TopicEntry(name, name, tuple(of(p) for p in range(count))) for name, count in counts.items()}


def _members(
    *names: str, topics: Sequence[str] = ("a", "b"), racks: Mapping[str, str] | None = None
) -> list[Subscriber]:
    return [Subscriber(name, name, (racks or {}).get(name), frozenset(topics)) for name in sorted(names)]


def _moved(before: Target, after: Target) -> int:
    owner = {tp: m for m, mine in before.items() for tp in mine}
    return sum(owner.get(tp) != m for m, mine in after.items() for tp in mine)


counts = st.dictionaries(st.sampled_from("abc"), st.integers(1, 12), min_size=1)
names = st.lists(st.sampled_from("klmnopqr"), min_size=1, max_size=7, unique=True)


@given(counts, names, st.booleans())
def test_uniform_is_complete_and_balanced(counts: dict[str, int], names: list[str], joins: bool) -> None:
    """Every partition has one owner and sizes differ by one at most, also after a member came or went; and then at
    most ceil(P / M) partitions have moved."""
    topics = _topics(counts)
    total = sum(counts.values())
    first = assign_uniform(_members(*names, topics="abc"), topics, {})
    others = [*names, "z"] if joins else names[1:] or ["z"]
    second = assign_uniform(_members(*others, topics="abc"), topics, first)

    for target in (first, second):
        assert sorted(tp for mine in target.values() for tp in mine) == sorted(
            TopicPartition(t, p) for t, n in counts.items() for p in range(n)
        )
        sizes = [len(mine) for mine in target.values()]
        assert max(sizes) - min(sizes) <= 1
    if {*others} & {*names}:
        fewest = min(len(names), len(others))
        assert _moved(first, second) <= -(-total // fewest)


@given(counts, names)
def test_uniform_moves_nothing_without_a_reason(counts: dict[str, int], names: list[str]) -> None:
    """The same members and topics have the same target, whatever came before it."""
    topics, members = _topics(counts), _members(*names, topics="abc")
    first = assign_uniform(members, topics, {})

    assert assign_uniform(members, topics, first) == first
    assert assign_uniform(members, topics, {}) == first


def test_uniform_prefers_a_near_replica_among_those_that_move() -> None:
    """A partition goes to a member in a rack of one of its replicas, and stays where it is although that is far."""
    topics = _topics({"a": 4}, racks=("r1", "r2"))
    near = assign_uniform(_members("k", "l", racks={"k": "r2", "l": "r1"}), topics, {})
    kept = assign_uniform(_members("k", "l", racks={"k": "r1", "l": "r2"}), topics, near)

    assert {tp.partition for tp in near["k"]} == {1, 3}
    assert kept == near


def test_a_previous_target_of_two_owners_is_repaired() -> None:
    """A target that was half overwritten may name a partition twice; the new one does not."""
    both = {TopicPartition("a", 0)}
    target = assign_uniform(_members("k", "l"), _topics({"a": 2}), {"k": both, "l": both})

    assert sorted(map(sorted, target.values())) == [[("a", 0)], [("a", 1)]]


subscriptions = st.dictionaries(st.sampled_from("klmnop"), st.sets(st.sampled_from("abc"), min_size=1), min_size=2)


@given(counts, subscriptions, subscriptions)
def test_unequal_subscriptions_end_where_no_move_helps(
    counts: dict[str, int], earlier: dict[str, set[str]], later: dict[str, set[str]]
) -> None:
    """Everybody has only what it subscribes to, all that can be is assigned, and no move makes two more equal."""
    topics = _topics(counts)
    target: Target = {}
    for said in (earlier, later):
        members = [Subscriber(name, name, None, frozenset(said[name])) for name in sorted(said)]
        target = assign_uniform(members, topics, target)
    readable = {t for wanted in later.values() for t in wanted}

    assert all(tp.topic_id in later[m] for m, mine in target.items() for tp in mine)
    owned = [tp for mine in target.values() for tp in mine]
    assert sorted(owned) == sorted(TopicPartition(t, p) for t in counts if t in readable for p in range(counts[t]))
    if len({frozenset(wanted) for wanted in later.values()}) > 1:
        for mine in target.values():
            for other, wanted in later.items():
                if any(tp.topic_id in wanted for tp in mine):
                    assert len(mine) - len(target[other]) <= 1


def test_range_is_contiguous_and_co_partitioned() -> None:
    """Members get contiguous partitions of a topic; equal counts and subscribers give partition p to one member."""
    target = assign_range(_members("k", "l", "m"), _topics({"a": 7, "b": 7}), {})
    found = [sorted(tp.partition for tp in target[m] if tp.topic_id == "a") for m in "klm"]

    assert found == [[0, 1, 2], [3, 4], [5, 6]]
    for mine in target.values():
        assert {p for t, p in mine if t == "a"} == {p for t, p in mine if t == "b"}


def test_the_assignor_that_most_ask_for() -> None:
    """The majority decides, then the name; without a wish it is uniform."""
    assert chosen_assignor([None, None]) == "uniform"
    assert chosen_assignor(["range", None, "uniform", "range"]) == "range"
    assert chosen_assignor(["uniform", "range"]) == "range"


def _cost(members: int, partitions: int, *, unequal: bool = False) -> float:
    topics = _topics({"a": partitions, "b": 1}, racks=("r1", "r2", "r3"))
    subscribers = _members(*(f"m{i:05}" for i in range(members)), racks={"m00001": "r1", "m00002": "r2"})
    if unequal:
        subscribers = [each._replace(topic_ids=frozenset("ab" if i % 2 else "a")) for i, each in enumerate(subscribers)]
    began_s = time.process_time()
    assign_uniform(subscribers, topics, assign_uniform(subscribers[1:], topics, {}))
    return time.process_time() - began_s


def test_the_cost_of_uniform_is_bounded() -> None:
    """Four times as many members and partitions cost far less than sixteen times as much: nothing in it is their
    product with equal subscriptions."""
    small = min(_cost(1_000, 1_000) for _ in range(5))

    assert min(_cost(4_000, 4_000) for _ in range(10)) < 10 * small


# `next_state`, with the rows of Kafka's CurrentAssignmentBuilderTest.


HAS = {"t1": [1, 2, 3], "t2": [4, 5, 6]}


def _at(epoch: int, partitions: Parts) -> CurrentValue:
    return CurrentValue(epoch, epoch - 1, MemberState.STABLE, held(epoch, partitions))


def _next(
    current: CurrentValue, epoch: int, target: Parts, owned: Parts | None = None, taken: Parts | None = None
) -> CurrentValue:
    others = set(tps(taken or {}))

    def is_free(tp: TopicPartition) -> bool:
        return tp not in others

    return next_state(current, epoch, tps(target), None if owned is None else tps(owned), is_free)


def _shown(value: CurrentValue) -> tuple[int, str, Parts, Parts]:
    assigned, revoking = (parts(*(each.tp for each in rows)) for rows in (value.assigned, value.revoking))
    return value.member_epoch, value.state.name, assigned, revoking


def test_t74_equal_target() -> None:
    """T74: the same partitions in a new epoch: the member is stable there."""
    assert _shown(_next(_at(10, HAS), 11, HAS)) == (11, "STABLE", HAS, {})


def test_t74_free_partitions_come_at_once() -> None:
    """T74: free partitions of two topics come at once, each with the epoch in which it came."""
    more = {"t1": [1, 2, 3, 4], "t2": [4, 5, 6, 7]}
    reached = _next(_at(10, HAS), 11, more)
    found = {each.tp.partition: each.epoch for each in reached.assigned if each.tp.topic_id == "t1-id"}

    assert _shown(reached) == (11, "STABLE", more, {})
    assert found == {1: 10, 2: 10, 3: 10, 4: 11}


def test_t74_partitions_of_others_are_waited_for() -> None:
    """T74: partitions that others hold: the epoch is reached, the set is the old one, UNRELEASED."""
    more = {"t1": [1, 2, 3, 4], "t2": [4, 5, 6, 7]}
    reached = _next(_at(10, HAS), 11, more, taken={"t1": [4], "t2": [7]})

    assert _shown(reached) == (11, "UNRELEASED", HAS, {})
    assert _next(reached, 11, more, taken={"t1": [4], "t2": [7]}) is reached


def test_t74_what_must_be_revoked_keeps_the_epoch() -> None:
    """T74: a member that must give something up stays in its epoch, asked for just that."""
    reached = _next(_at(10, HAS), 11, {"t1": [2, 3, 4], "t2": [5, 6, 7]})

    assert _shown(reached) == (10, "UNREVOKED", {"t1": [2, 3], "t2": [5, 6]}, {"t1": [1], "t2": [4]})


@pytest.mark.parametrize("owned", [None, {"t1": [1, 2, 3], "t2": [5, 6]}, {"t1": [2, 3], "t2": [4, 5, 6]}])
def test_t74_nothing_changes_before_all_is_given_up(owned: Parts | None) -> None:
    """T74: without a report, or with one that still has a partition to revoke, not even a newer target counts."""
    asked = _next(_at(10, HAS), 11, {"t1": [2, 3, 4], "t2": [5, 6, 7]})

    assert _next(asked, 12, {"t1": [1], "t2": [4]}, owned) is asked


def test_t74_the_newer_target_counts_once_all_is_given_up() -> None:
    """T74: {2,3;5,6} is a report that gives up {1;4}: the member goes on, towards the newest target."""
    asked = _next(_at(10, HAS), 11, {"t1": [2, 3, 4], "t2": [5, 6, 7]})
    found = _shown(_next(asked, 12, {"t1": [2, 3, 5], "t2": [5, 6]}, {"t1": [2, 3], "t2": [5, 6]}))

    assert found == (12, "STABLE", {"t1": [2, 3, 5], "t2": [5, 6]}, {})


def test_t75_nothing_to_revoke_is_held() -> None:
    """T75: a report of nothing at all: what must be revoked is not held, so the member moves on."""
    reached = _next(_at(10, HAS), 11, {"t1": [1, 2, 3], "t2": [4, 5, 7]}, owned={}, taken={"t2": [7]})

    assert _shown(reached) == (11, "UNRELEASED", {"t1": [1, 2, 3], "t2": [4, 5]}, {})
