"""Reads the options that a user gave: names are case-insensitive, and Kafka's names for our options are accepted.

Invariant: an unknown option is refused, never ignored: a misspelt limit would be no limit. The few options of Kafka's
that have no effect here are listed by name (`WITHOUT_EFFECT`), and so are those of the query itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

# ---- errors
# The errors of a reader or writer of a topic: the option or column, what was found, and the remedy.
#
# Invariant: the message begins with the name of the option or column as the user spells it.


class TopicFailed(Exception):
    """A topic cannot be read or written as asked."""

    def __init__(self, option: str, found: str, remedy: str, *, kind: str = "option") -> None:
        super().__init__(f"{kind} {option}: {found}; {remedy}")

    @classmethod
    def of_column(cls, column: str, found: str, remedy: str) -> Self:
        """The error about a column of the rows to be written."""
        return cls(column, found, remedy, kind="column")


KAFKAS_NAMES = {"kafka.bootstrap.servers": "bootstrap", "kafkaConsumer.pollTimeoutMs": "fetchTimeoutMs"}
"""The names in Kafka's Spark source and sink, with the options of ours that they set."""
WITHOUT_EFFECT = ("groupIdPrefix", "kafka.group.id", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""Options of Kafka's source that are accepted without effect: readers are in no group, and calls are retried anyway."""
SPARKS_OWN = (
    "checkpointLocation", "queryName", "asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs",
)  # fmt: skip
"""Options of a streaming query, which Spark passes on to the sink."""
_KAFKAS_CLIENT = "kafka."


@dataclass(frozen=True, slots=True)
class Given:
    """Options by our name; ``spelled`` has the name that the user used."""

    values: Mapping[str, str]
    spelled: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def wrong(self, name: str, found: str, remedy: str) -> TopicFailed:
        """The error about an option."""
        return TopicFailed(self.spelled.get(name, name), found, remedy)

    def text(self, name: str, default: str = "") -> str:
        """An option without surrounding white space."""
        return self.values.get(name, default).strip()

    def required(self, name: str, remedy: str) -> str:
        """An option that must be given.

        Raises:
            TopicFailed: it is missing or empty.
        """
        if not self.text(name):
            raise self.wrong(name, "it is missing", remedy)
        return self.text(name)

    def count(self, name: str) -> int | None:
        """A whole number above 0, or None if the option is not given.

        Raises:
            TopicFailed: it is something else.
        """
        if name not in self:
            return None
        value = self.text(name)
        if not (value.isascii() and value.isdecimal() and int(value)):
            raise self.wrong(name, f"it is {value!r}", "give a whole number above 0")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """An option that is true or false.

        Raises:
            TopicFailed: it is something else.
        """
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """An option that is one of some words, in any case.

        Raises:
            TopicFailed: it is something else.
        """
        value = self.text(name, default).lower()
        if value not in choices:
            raise self.wrong(name, f"it is {self.text(name)!r}", f"give {' or '.join(choices)}")
        return value


def read_given(options: Mapping[str, str], known: Sequence[str], *, what: str) -> Given:
    """Sort the given options by our names.

    Args:
        options: the options as Spark passes them.
        known: our names that are valid here.
        what: the source or the sink, for the message.

    Raises:
        TopicFailed: a name is unknown, or one option is given by two names.
    """
    aliases = {alias: name for alias, name in KAFKAS_NAMES.items() if name in known}
    names = {name.lower(): name for name in (*known, *aliases)}
    idle = {name.lower() for name in (*WITHOUT_EFFECT, *SPARKS_OWN)}
    values: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for option, value in options.items():
        if option.lower() in idle:
            continue
        name = names.get(option.lower())
        if name is None:
            raise TopicFailed(option, f"the {what} has no such option", _remedy(option, known, aliases))
        own = aliases.get(name, name)
        if own in spelled:
            raise TopicFailed(name, f"it sets the same as {spelled[own]}", "give one of them")
        values[own], spelled[own] = value, name
    return Given(values, spelled)


def _remedy(option: str, known: Sequence[str], aliases: Mapping[str, str]) -> str:
    if option.lower().startswith(_KAFKAS_CLIENT):
        return f"it sets Kafka's own client; leave it out, or see {', '.join((*known, *aliases))}"
    return f"it has {', '.join((*known, *aliases))}"
