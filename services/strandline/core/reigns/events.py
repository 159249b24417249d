"""Everything that can happen to one controller among several, in past tense.

Each carries ``now_ms``, a monotonic clock.

Invariant: an effect with a ``question`` (`reign_effects`) ends in exactly one event with the same number, `Unanswered`
where no answer came within its deadline; the performer of effects has to see to that.

A *linearizable* answer reflects everything that was committed before the question was sent: in etcd a Txn, or a Range
that is not serializable. ``revision`` is the store's revision in the header of that answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Head:
    """What the key ``head`` says: the last transaction of the store (C5)."""

    reign_id: str
    offset: int
    """Metadata offset of the transaction."""
    digest: str
    """Of the bytes of the transaction's log value, so that two writers of one offset differ (C9)."""
    revision: int = field(default=0, compare=False)
    """The mod revision of the key; 0 where it is not known yet, as in an `AppendAsked`."""


class Holder(NamedTuple):
    """The holder of the key ``active``."""

    token: int
    """The key's create revision (C7)."""
    controller_id: str
    incarnation_id: str
    lease_id: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed, about 50 ms. Renewals, reads, looks and back-offs come due by this event."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """Answer to `GrantLease`."""

    now_ms: int
    question: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """Answer to `RenewLease`: the lease lives."""

    now_ms: int
    question: int


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Answer to `RenewLease`: the store knows no such lease (etcd: TTL 0). The key went with it."""

    now_ms: int
    question: int


@dataclass(frozen=True, slots=True)
class CampaignWon:
    """Answer to `Campaign`: the key was put; ``token`` is its create revision, the revision of that transaction."""

    now_ms: int
    question: int
    token: int


@dataclass(frozen=True, slots=True)
class CampaignLost:
    """Answer to `Campaign`: the key was there already, and who holds it. Linearizable."""

    now_ms: int
    question: int
    revision: int
    holder: Holder


@dataclass(frozen=True, slots=True)
class StoreRead:
    """Answer to `ReadStore`: ``active``, ``head`` and ``handover`` in one linearizable transaction; None if absent."""

    now_ms: int
    question: int
    revision: int
    holder: Holder | None
    head: Head | None
    successor: str | None = None
    """See `KeyChanged`."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """Answer to `ReadLog`: the performer's copy of the cluster state now ends at ``head``."""

    now_ms: int
    question: int
    head: Head


@dataclass(frozen=True, slots=True)
class AlarmRead:
    """Answer to `ReadAlarm`: whether any member of the store raised an alarm, such as NOSPACE (etcd: Status)."""

    now_ms: int
    question: int
    is_raised: bool


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """Answer to `TakeKey`. ``was_taken`` is false when the key had another create revision. Linearizable."""

    now_ms: int
    question: int
    revision: int
    was_taken: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """Answer to `Append`: every transaction and the new head were put; ``revision`` is the head's mod revision."""

    now_ms: int
    question: int
    revision: int


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """Answer to `Append`: a comparison failed and nothing was put; what the same transaction read instead (C7)."""

    now_ms: int
    question: int
    revision: int
    holder: Holder | None
    head: Head | None


@dataclass(frozen=True, slots=True)
class Resigned:
    """Answer to `Resign`: the key no longer has our token, and the lease is revoked."""

    now_ms: int
    question: int


class ActiveProbe(StrEnum):
    """What became of one look at the active controller, by connecting to both of its addresses (C19)."""

    REFUSED = "refused"
    """Both addresses refused the connection: nothing listens, so the process is gone."""
    REACHED = "reached"
    """One of them accepted."""
    SILENT = "silent"
    """Neither: no answer, no route, or a reset while connecting, which a dying process gives (C3)."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Answer to `LookAtActive`."""

    now_ms: int
    question: int
    look: ActiveProbe


@dataclass(frozen=True, slots=True)
class NoSpace:
    """Answer to `GrantLease`, `Campaign` or `Append`: the store is full and did nothing (`StoreFull`)."""

    now_ms: int
    question: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer came, and none will be taken: it was done, is done later, or never is (`StoreAway`, C3). A call that
    the store cannot have received ends in this as well; nothing rests on the difference."""

    now_ms: int
    question: int


@dataclass(frozen=True, slots=True)
class KeyChanged:
    """The watch of ``active`` showed a change of ``revision``; ``holder`` is None for a deletion. A watch may lag: what
    is older than something known already changes nothing."""

    now_ms: int
    revision: int
    holder: Holder | None
    successor: str | None = None
    """Controller id that the last holder named (C22), if it was read with the key; `SuccessorNamed` if watched."""


@dataclass(frozen=True, slots=True)
class TransactionsCame:
    """The performer's copy of the cluster state now ends at ``head``, by snapshot, log or watch (C17). Also the first
    event of a standby that has read the store whole. An empty store is ``head`` None."""

    now_ms: int
    head: Head | None


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The stream that this process held to the active controller of ``token`` broke. Only for a stream that was open; a
    first connection that is refused is no break (C19)."""

    now_ms: int
    token: int


@dataclass(frozen=True, slots=True)
class SuccessorNamed:
    """The watch showed that the active controller of ``token`` hands over to ``controller_id`` (C22)."""

    now_ms: int
    token: int
    controller_id: str


@dataclass(frozen=True, slots=True)
class HandOverAsked:
    """An operator, or SIGTERM, wants this controller to decide no more (C22)."""

    now_ms: int
    to: str | None = None
    """Controller id of the wanted successor."""
    then_stop: bool = False
    """End in STOPPED instead of STANDBY."""


@dataclass(frozen=True, slots=True)
class CoreFinished:
    """After `FinishCore`: nothing waits to be appended any more."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class CoreDropped:
    """After `DropCore`: core, driver and watches are gone, and the copy of the state with them. The performer follows
    the store again from its snapshot; `TransactionsCame` says how far it has come."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class AppendAsked:
    """The controller's driver wants a batch of transactions made durable; ``head`` is the store's head after it. One at
    a time. Ends in exactly one `AppendSettled` with the same head."""

    now_ms: int
    head: Head


@dataclass(frozen=True, slots=True)
class StoreBroken:
    """The store cannot be trusted (`StoreWentBack`, `StoreDamaged`); ``reason`` is one sentence with the remedy."""

    now_ms: int
    reason: str


Answered = (
    LeaseGranted
    | LeaseRenewed
    | LeaseLost
    | CampaignWon
    | CampaignLost
    | StoreRead
    | LogRead
    | AlarmRead
    | KeyTaken
    | Appended
    | AppendRefused
    | Resigned
    | Looked
    | NoSpace
    | Unanswered
)
ReignEvent = (
    Answered
    | Ticked
    | KeyChanged
    | TransactionsCame
    | PeerLost
    | SuccessorNamed
    | HandOverAsked
    | CoreFinished
    | CoreDropped
    | AppendAsked
    | StoreBroken
)
