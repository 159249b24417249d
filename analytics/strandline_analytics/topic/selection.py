"""Selects the topics and partitions of a reader: named, matched by a pattern, or assigned one by one.

Kafka's Spark source has the same three (``subscribe``, ``subscribePattern``, ``assign``). Patterns match whole names
and are RE2 (ADR 25).

Invariant: a named topic or partition that does not exist is an error; a pattern may match nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import re2

from strandline.client import TopicPartition
from strandline_analytics.topic.given import Given, TopicFailed

OPTIONS = ("subscribe", "subscribePattern", "assign", "topic")
"""The options that select topics; ``topic`` is ``subscribe`` for one topic."""
_ONE = "name the topics with subscribe, subscribePattern or assign, one of the three"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selection of a reader; exactly one of the three is set."""

    option: str
    """The option that made the selection, for messages."""
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The named topics; None for any topic that the pattern matches."""
        if self.assigned is not None:
            return tuple(sorted(self.assigned))
        return None if self.pattern is not None else self.names


def read_selection(given: Given) -> Selection:
    """The selection that the options describe.

    Raises:
        TopicFailed: none or more than one is given, or it cannot be read.
    """
    options = [name for name in OPTIONS if given.text(name)]
    if not options:
        raise TopicFailed("subscribe", "it is missing", _ONE)
    if len(options) > 1:
        raise TopicFailed(options[1], f"{options[0]} is given as well", _ONE)
    (option,) = options
    text = given.text(option)
    if option == "assign":
        return Selection(option=option, assigned=_assigned(given, text))
    if option == "subscribePattern":
        _compiled(text)
        return Selection(option=option, pattern=text)
    names = [text] if option == "topic" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise given.wrong(option, f"it is {text!r}", "give names with commas between them")
    return Selection(option=option, names=tuple(dict.fromkeys(names)))


def chosen(selection: Selection, counts: Mapping[str, int]) -> list[TopicPartition]:
    """The partitions that are read, in order.

    Args:
        selection: the selection, from `read_selection`.
        counts: the number of partitions of each topic of the cluster.

    Raises:
        TopicFailed: a named topic or partition does not exist.
    """
    if selection.pattern is not None:
        matches = _compiled(selection.pattern)
        wanted = {name: tuple(range(count)) for name, count in counts.items() if matches.fullmatch(name) is not None}
    else:
        for name in selection.topics or ():
            if name not in counts:
                there = ", ".join(sorted(counts)) or "none"
                raise TopicFailed(
                    selection.option,
                    f"no topic is named {name!r}",
                    f"the cluster has: {there}; or create it first",
                )
        wanted = dict(selection.assigned or {name: tuple(range(counts[name])) for name in selection.names})
    for name, partitions in wanted.items():
        if partitions and not partitions[-1] < counts[name]:
            raise TopicFailed(
                selection.option,
                f"it names partition {partitions[-1]} of {name!r}",
                f"the topic has partitions 0 to {counts[name] - 1}",
            )
    return [TopicPartition(name, partition) for name in sorted(wanted) for partition in wanted[name]]


def _assigned(given: Given, text: str) -> dict[str, tuple[int, ...]]:
    try:
        by_topic = {str(name): tuple(sorted(set(partitions))) for name, partitions in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        by_topic = {}
    flat = [partition for partitions in by_topic.values() for partition in partitions]
    if not flat or not all(type(partition) is int and partition >= 0 for partition in flat):
        raise given.wrong("assign", f"it is {text!r}", 'give partitions by topic: {"tides": [0, 1]}')
    return by_topic


def _compiled(pattern: str) -> re2.Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "malformed"
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise TopicFailed("subscribePattern", f"{pattern!r}: {words}", "patterns have RE2's syntax") from None
