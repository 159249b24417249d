"""Decides when a group gets a new target, and writes the target's rows (G4, G16)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from strandline.core.coordinator.machine import TopicDirectory
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups.assignors import AssignmentInput, ComputedTarget, Subscriber, chosen_assignor
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.records import (
    AssignedPartition,
    CurrentValue,
    MemberState,
    MemberValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from strandline.core.types import TopicPartition

# ---- reconciliation
# Moves a member from its current assignment to its target (G17), as Kafka's CurrentAssignmentBuilder does.
#
# Invariant I28: a partition is assigned only once no other member holds it, and a member reaches the target's epoch
# only once it has given up what it must.


def next_state(
    current: CurrentValue,
    target_epoch: int,
    target: Collection[TopicPartition],
    owned: Collection[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> CurrentValue:
    """The member's next row, or ``current`` itself if nothing changes.

    Args:
        current: its row: stable, unrevoked or unreleased.
        target_epoch: the epoch of the group's newest complete target.
        target: the member's partitions in it.
        owned: the partitions that the member reports to hold; None: it reported nothing, which gives nothing up.
        is_free: whether a partition can be given to this member, because no other holds it.
    """
    if current.state is MemberState.UNREVOKED:
        if _holds_any(owned, current.revoking):
            return current
    elif current.state is MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    reached = _towards(current, target_epoch, target, owned, is_free)
    return current if reached == current else reached


def _holds_any(owned: Collection[TopicPartition] | None, partitions: Iterable[AssignedPartition]) -> bool:
    return owned is None or any(each.tp in owned for each in partitions)


def _towards(
    current: CurrentValue,
    target_epoch: int,
    target: Collection[TopicPartition],
    owned: Collection[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> CurrentValue:
    wanted = frozenset(target)
    kept = [each for each in current.assigned if each.tp in wanted]
    revoking = tuple(each for each in current.assigned if each.tp not in wanted)
    if revoking and _holds_any(owned, revoking):
        return CurrentValue(current.member_epoch, current.previous_epoch, MemberState.UNREVOKED, tuple(kept), revoking)
    missing = wanted.difference(each.tp for each in kept)
    given = [AssignedPartition(tp, target_epoch) for tp in missing if is_free(tp)]
    state = MemberState.STABLE if len(given) == len(missing) else MemberState.UNRELEASED
    previous = current.previous_epoch if current.member_epoch == target_epoch else current.member_epoch
    return CurrentValue(target_epoch, previous, state, tuple(sorted(kept + given)))


# ---- subscriptions
# Which topics a member's subscription means now: by name, and by RE2 patterns over all names (G23).
#
# A pattern is matched once for each version of the topics. Internal topics are never matched by a pattern.

_MOST_COMPILED = 1_000


class PatternEngine(Protocol):
    """Compiles patterns in RE2 syntax, which match in time linear in the text, so none can block the event loop."""

    def compile(self, pattern: str) -> Callable[[str], bool]:
        """A function that says whether a whole name matches.

        Raises:
            ValueError: the pattern is malformed or too large, in the engine's words.
        """
        ...


class Subscriptions:
    """Resolves subscriptions; it only caches, so a failover loses nothing."""

    def __init__(self, engine: PatternEngine, max_pattern_bytes: int) -> None:
        self._engine = engine
        self._max_bytes = max_pattern_bytes
        self._compiled: dict[str, Callable[[str], bool]] = {}
        self._matched: dict[str, frozenset[str]] = {}
        self._version: int | None = None

    def refusal_of(self, pattern: str) -> Refusal | None:
        """Why this pattern cannot be used; None if it can."""
        size = len(pattern.encode())
        if size > self._max_bytes:
            problem = f"has {size} bytes, and {self._max_bytes} are allowed"
        else:
            try:
                self._compile(pattern)
            except ValueError as error:
                problem = f"is refused by RE2: {error}"
            else:
                return None
        message = f"subscribed_topic_regex {problem}; correct the pattern"
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message, field="subscribed_topic_regex")

    def topics_of(self, member: MemberValue, topics: TopicDirectory) -> frozenset[str]:
        """The ids of the existing topics that ``member`` subscribes to."""
        names = set(member.topic_names)
        if member.topic_regex:
            names |= self._names_of(member.topic_regex, topics)
        return frozenset(entry.topic_id for name in names if (entry := topics.by_name(name)) is not None)

    def digest(self, members: Iterable[MemberValue], topics: TopicDirectory) -> int:
        """A number that changes when a topic that is subscribed to appears, goes or gains partitions, and when a
        pattern matches others (G15)."""
        names: set[str] = set()
        patterns: set[str] = set()
        for listed, pattern in {(member.topic_names, member.topic_regex) for member in members}:
            names.update(listed)
            if pattern:
                patterns.add(pattern)
        found = blake2b(digest_size=7)
        # Sorted, because the next coordinator must come to the same number: another one means that topics have changed.
        for pattern in sorted(patterns):
            matched = self._names_of(pattern, topics)
            found.update(repr((pattern, sorted(matched))).encode())
            names |= matched
        for name in sorted(names):
            entry = topics.by_name(name)
            found.update(repr((name, entry and entry.topic_id, entry and entry.partition_count)).encode())
        return int.from_bytes(found.digest(), "big")

    def _compile(self, pattern: str) -> Callable[[str], bool]:
        if pattern not in self._compiled:
            # Clients choose the patterns, so without a limit they would decide how much memory this takes.
            if len(self._compiled) >= _MOST_COMPILED:
                self._compiled.clear()
            self._compiled[pattern] = self._engine.compile(pattern)
        return self._compiled[pattern]

    def _names_of(self, pattern: str, topics: TopicDirectory) -> frozenset[str]:
        if topics.version != self._version:
            self._version = topics.version
            self._matched.clear()
        if pattern not in self._matched:
            try:
                matches = self._compile(pattern)
            except ValueError:
                # Accepted by another version of the engine; the member gets the error with its next request.
                return frozenset()
            self._matched[pattern] = frozenset(
                name
                for name in topics.names()
                # A pattern for all topics does not mean the logs in which coordinators keep their state.
                if matches(name) and (entry := topics.by_name(name)) is not None and not entry.internal
            )
        return self._matched[pattern]


@dataclass(frozen=True, slots=True)
class TargetTaken:
    """Note of a decision that computes a target, or has a worker compute it: when the next may begin."""

    group_id: str
    epoch: int
    is_work: bool = False


def needs_target(group: Group) -> bool:
    """Whether the newest complete target is not the one for the group's epoch."""
    return bool(group.members) and (group.epoch > group.target_epoch or group.is_torn)


def input_for(
    group: Group, epoch: int, members: Mapping[str, MemberValue], subscriptions: Subscriptions, topics: TopicDirectory
) -> AssignmentInput:
    """The input of the target of ``epoch``, for these members of the group."""
    # Most members of a group have one subscription.
    resolved: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
    subscribers = []
    for member_id, said in members.items():
        subscription = (said.topic_names, said.topic_regex)
        if subscription not in resolved:
            resolved[subscription] = subscriptions.topics_of(said, topics)
        name = said.instance_id or member_id
        subscribers.append(Subscriber(name, member_id, said.rack_id, resolved[subscription]))
    topic_ids = frozenset[str]().union(*resolved.values())
    return AssignmentInput(
        group_id=group.group_id,
        group_epoch=epoch,
        assignor=chosen_assignor(said.assignor for said in members.values()),
        # By instance id where there is one, so that a static member keeps its place in the order over a restart.
        subscribers=tuple(sorted(subscribers)),
        topics={topic_id: entry for topic_id in topic_ids if (entry := topics.by_id(topic_id)) is not None},
        previous={member_id: group.target_of(member_id) for member_id in members},
        topics_digest=subscriptions.digest(members.values(), topics),
    )


def write(changes: Changes, computed: ComputedTarget) -> None:
    """The rows of a target: those that differ, then the epoch that makes them count."""
    group = changes.group
    for member_id, partitions in computed.target.items():
        row = group.targets.get(member_id)
        if row is None or row.partitions != partitions or row.epoch > group.target_epoch:
            key = TargetKey(group.group_id, member_id)
            changes.put(key, TargetValue(computed.group_epoch, partitions))
    # Last: a large target is written in several batches, and a failover may come between them (G4).
    value = TargetEpochValue(computed.group_epoch, computed.assignor, computed.topics_digest)
    changes.put(TargetEpochKey(group.group_id), value)
