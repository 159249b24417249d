"""All effects of the core of one of several controllers.

Effects are performed in list order. One with a ``question`` is started, not waited for, and ends in exactly one event
with the same number: the answer that its docstring names, or `Unanswered` when its deadline passed (1 s for what
reads, renews or looks, 2 s for what writes). Keys are those of C5, below the cluster's prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from strandline.core.reigns.events import Head, Holder


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Get a lease of ``ttl_ms``. `LeaseGranted`, `NoSpace`."""

    question: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Renew the lease once. `LeaseRenewed`, `LeaseLost`."""

    question: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class RevokeLease:
    """Revoke a lease that nothing needs any more; no answer is wanted."""

    lease_id: int


@dataclass(frozen=True, slots=True)
class Campaign:
    """If ``create_revision(active) == 0``, put ``active`` with the lease; else get it. `CampaignWon`, `CampaignLost`,
    `NoSpace`. Never delete and put in one transaction (C3)."""

    question: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class ReadStore:
    """Get ``active`` and ``head`` in one linearizable transaction. `StoreRead`."""

    question: int


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read the log from what the copy of the state has up to ``head``, and apply it. `LogRead`."""

    question: int
    head: Head


@dataclass(frozen=True, slots=True)
class ReadAlarm:
    """Ask the store whether it is full (etcd: Status of a member). `AlarmRead`."""

    question: int


@dataclass(frozen=True, slots=True)
class TakeKey:
    """If ``create_revision(active) == token``, delete ``active``. `KeyTaken`."""

    question: int
    token: int


@dataclass(frozen=True, slots=True)
class LookAtActive:
    """Connect to both addresses of the controller of ``token``, once each. `Looked`."""

    question: int
    token: int


@dataclass(frozen=True, slots=True)
class Append:
    """Put the batch of the last `AppendAsked` with ``head``, if ``create_revision(active) == token`` and
    ``mod_revision(head) == after`` (C7; 0: ``head`` must be absent). `Appended`, `AppendRefused`, `NoSpace`. It may
    come again for one batch: the same bytes, and the same comparison, which lets one copy take effect (C9)."""

    question: int
    token: int
    after: int
    head: Head


class Settled(StrEnum):
    """The outcome of a batch."""

    DONE = "done"
    """It is in the store: answer, publish, continue."""
    REFUSED = "refused"
    """It is not in the store and never will be: callers that wait for it get NOT_CONTROLLER."""
    UNCERTAIN = "uncertain"
    """It may be in the store, now or later: callers that wait for it get REQUEST_TIMED_OUT, never a refusal (TR25)."""


@dataclass(frozen=True, slots=True)
class AppendSettled:
    """End the driver's wait for a batch. Unless it is DONE, nothing behind it may be answered or published."""

    head: Head
    settled: Settled


@dataclass(frozen=True, slots=True)
class Resign:
    """If ``create_revision(active) == token``, delete ``active``; then revoke the lease. `Resigned`."""

    question: int
    token: int
    lease_id: int | None


@dataclass(frozen=True, slots=True)
class StartCore:
    """Make a `ControllerCore` of the copy of the state, which ends at ``head``, with a driver and watches of its own,
    and step `ControllerStarted`. Its `Commit` leads to the first `AppendAsked` of the reign. Nothing is served yet."""

    token: int
    head: Head | None


@dataclass(frozen=True, slots=True)
class FinishCore:
    """Take no more changes, append what is there, then say `CoreFinished`."""


@dataclass(frozen=True, slots=True)
class DropCore:
    """Drop core, driver and watches whole, and the copy of the state; end every call that still waits with
    NOT_CONTROLLER, those behind an UNCERTAIN batch with REQUEST_TIMED_OUT. Then say `CoreDropped`."""


@dataclass(frozen=True, slots=True)
class OpenDoors:
    """Serve calls, and tick the core. Before anything else the core steps `DoorsOpened` with ``closed_ms``."""

    closed_ms: int
    """How long no heartbeat could come in: since `StartCore`, or since the reign became UNSURE."""


class Why(StrEnum):
    """Why a controller refuses with NOT_CONTROLLER; the names of ``ErrorInfo.why``."""

    STANDBY = "STANDBY"
    STORE_AWAY = "STORE_AWAY"
    STORE_FULL = "STORE_FULL"


@dataclass(frozen=True, slots=True)
class CloseDoors:
    """Refuse every call with NOT_CONTROLLER and ``why``; no tick, no event but the store's answers enters the core.
    Watches that are open stay open until `DropCore`. ``why`` is STANDBY with the hint of the last `TellHint`, else no
    hint is given."""

    why: Why


@dataclass(frozen=True, slots=True)
class TellHint:
    """Send callers to this controller from now on; None if no active controller is known."""

    holder: Holder | None


@dataclass(frozen=True, slots=True)
class NameSuccessor:
    """Send to every standby, on its stream, that this controller hands over to ``controller_id``."""

    controller_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The state is STOPPED: close everything. ``reason`` is None after a hand-over that was to end so, else one
    sentence for the log, health and every refusal."""

    reason: str | None


ReignEffect = (
    GrantLease
    | RenewLease
    | RevokeLease
    | Campaign
    | ReadStore
    | ReadLog
    | ReadAlarm
    | TakeKey
    | LookAtActive
    | Append
    | AppendSettled
    | Resign
    | StartCore
    | FinishCore
    | DropCore
    | OpenDoors
    | CloseDoors
    | TellHint
    | NameSuccessor
    | Stop
)
