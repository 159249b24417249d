"""Which topics a member's subscription means now: by name, and by RE2 patterns over all names (G23).

A pattern is matched once for each version of the topics. Internal topics are never matched by a pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Protocol

from strandline.core.coordinator.machine import TopicDirectory, TopicEntry
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups.records import MemberValue

_MOST_COMPILED = 1_000


class PatternEngine(Protocol):
    """Compiles patterns of RE2's syntax, whose matching time is linear in the text: none can stop the loop."""

    def compile(self, pattern: str) -> Callable[[str], bool]:
        """A function that says whether a whole name matches.

        Raises:
            ValueError: the pattern is malformed or too large, in the engine's words.
        """
        ...


class Subscriptions:
    """Resolves subscriptions; it caches, and holds nothing that a failover would miss."""

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
        """The ids of the topics there are that ``member`` subscribes to."""
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
                # Taken by another version of the engine; a member that asks again hears of it.
                return frozenset()
            self._matched[pattern] = frozenset(
                name
                for name in topics.names()
                if matches(name) and (entry := topics.by_name(name)) is not None and not entry.internal
            )
        return self._matched[pattern]


def entries_of(topic_ids: Iterable[str], topics: TopicDirectory) -> Mapping[str, TopicEntry]:
    """Topic id to what is known of the topic, for those that exist."""
    return {topic_id: entry for topic_id in topic_ids if (entry := topics.by_id(topic_id)) is not None}
