"""The facts in single lines of a broker's or a controller's log, as numbers; the forms are in `line_forms.py`."""

from __future__ import annotations

from typing import NamedTuple


class OutOfSync(NamedTuple):
    """A follower that a leader removes: its log end, and when the leader last saw it caught up."""

    replica_id: int
    leo: int | None
    last_caught_up_ms: int | None
    """Since 1970 by the leader's clock; missing before release 3.5."""


class ShrinkProposed(NamedTuple):
    """A leader is about to ask for a smaller ISR."""

    topic: str
    partition: int
    broker_id: int
    old_isr: tuple[int, ...]
    new_isr: tuple[int, ...]
    hw: int | None
    leo: int | None
    removed: tuple[OutOfSync, ...]


class IsrUpdated(NamedTuple):
    """A leader took over an ISR that the controller granted."""

    topic: str
    partition: int
    broker_id: int
    isr: tuple[int, ...]
    partition_epoch: int


class LeaderStarted(NamedTuple):
    """A broker begins to lead."""

    topic: str
    partition: int
    broker_id: int
    leader_epoch: int
    start_offset: int
    partition_epoch: int
    hw: int
    isr: tuple[int, ...]
    topic_id: str | None = None
    """The topic's id, as in the metadata log."""


class FollowerStarted(NamedTuple):
    """A broker begins to follow, with a log that ends at ``leo``."""

    topic: str
    partition: int
    broker_id: int
    leader_epoch: int
    leo: int
    partition_epoch: int


class LogLoaded(NamedTuple):
    """A starting broker has read a log to its end."""

    topic: str
    partition: int
    leo: int


class CutAsked(NamedTuple):
    """A follower is about to cut its log, or finds nothing after the offset."""

    topic: str
    partition: int
    to_leo: int
    reason: str


class CutDone(NamedTuple):
    """A log was cut."""

    topic: str
    partition: int
    to_leo: int


class CutWithoutEffect(NamedTuple):
    """A cut found nothing after the offset."""

    topic: str
    partition: int
    to_leo: int


class CutBelowHw(NamedTuple):
    """A cut removes records that the follower knew as committed."""

    topic: str
    partition: int
    to_leo: int
    hw: int


class SessionTimedOut(NamedTuple):
    """The active controller fences a broker without heartbeats."""

    subject: int


class ShutdownGranted(NamedTuple):
    """The active controller grants a broker a controlled shutdown."""

    subject: int


class BrokerRegistered(NamedTuple):
    """A broker's process received its broker epoch."""

    broker_id: int
    broker_epoch: int


class Setting(NamedTuple):
    """One of the settings that a process reports at its start."""

    name: str
    value: int


class KafkaVersion(NamedTuple):
    """The release of a process."""

    version: str


LineFact = (
    ShrinkProposed
    | IsrUpdated
    | LeaderStarted
    | FollowerStarted
    | LogLoaded
    | CutAsked
    | CutDone
    | CutWithoutEffect
    | CutBelowHw
    | SessionTimedOut
    | ShutdownGranted
    | BrokerRegistered
    | Setting
    | KafkaVersion
)
