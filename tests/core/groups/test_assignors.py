"""The assignors: complete, balanced, deterministic, and no partition moves without a reason (G24)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from strandline.core.coordinator.machine import TopicEntry
from strandline.core.groups.assignors import Subscriber, Target, assign_range, assign_uniform, chosen_assignor
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
    """Of each topic contiguous partitions; equal counts and subscribers give partition p of each to one member."""
    target = assign_range(_members("k", "l", "m"), _topics({"a": 7, "b": 7}), {})

    assert [sorted(tp.partition for tp in target[m] if tp.topic_id == "a") for m in "klm"] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]
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
    before = assign_uniform(subscribers[1:], topics, {})
    assign_uniform(subscribers, topics, before)
    return time.process_time() - began_s


def test_the_cost_of_uniform_is_bounded() -> None:
    """Four times as many members and partitions cost far less than sixteen times as much: nothing in it is their
    product with equal subscriptions."""
    small = min(_cost(1_000, 1_000) for _ in range(3))
    large = min(_cost(4_000, 4_000) for _ in range(3))

    assert large < 10 * small
