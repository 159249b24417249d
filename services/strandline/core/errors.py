"""All refusals: Kafka's number and name, whether our clients retry, and what to do about each.

Invariant: a refusal is a value from this closed table, never an exception that crosses a role's border;
a broken invariant is an ``AssertionError`` and ends the process. Names and numbers are Kafka's
(clients/.../common/protocol/Errors.java); sentences are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple


class ErrorCode(IntEnum):
    """Kafka's per-partition error numbers that this protocol can answer."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


class Outcome(StrEnum):
    """What a produce error says about the records (promise P2)."""

    NOT_APPENDED = "not_appended"
    """Definite: the records were not written and never appear."""
    MAY_APPEAR = "may_appear"
    """Indefinite: the records may be in the log, now or later; zero times or once."""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What a caller may do about one error code."""

    retriable: bool
    """Whether the same request may succeed later or elsewhere; producer, consumer and admin go by this bit alone."""
    remedy: str


_REFRESH = "refresh metadata and ask the leader it names"

RULES: dict[ErrorCode, ErrorRule] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorRule(True, "retry; if it stays, read the node's log at the request id"),
    ErrorCode.NONE: ErrorRule(False, "nothing to do"),
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorRule(False, "seek to an offset between log start and HW (ListOffsets)"),
    # Retriable: the damage may have happened on the way.
    ErrorCode.CORRUPT_MESSAGE: ErrorRule(True, "encode the batch again; its CRC or header does not hold"),
    # Retriable: a topic that was just created is not known to every node yet.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorRule(True, "create the topic, or correct its name or partition"),
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorRule(True, "wait for an election; `strandline cluster status` says why"),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorRule(True, _REFRESH),
    ErrorCode.REQUEST_TIMED_OUT: ErrorRule(True, "the request may still take effect; retry it in an idempotent way"),
    ErrorCode.REPLICA_NOT_AVAILABLE: ErrorRule(True, "ask another replica"),
    ErrorCode.MESSAGE_TOO_LARGE: ErrorRule(False, "send smaller batches (at most 1,048,588 bytes each)"),
    ErrorCode.STALE_CONTROLLER_EPOCH: ErrorRule(True, "refresh metadata and address the current controller"),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorRule(False, "commit a shorter metadata text"),
    ErrorCode.NETWORK_EXCEPTION: ErrorRule(True, "retry"),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorRule(True, "ask again; the coordinator loads its state"),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorRule(True, "ask again; `strandline cluster status` says what is missing"),
    ErrorCode.NOT_COORDINATOR: ErrorRule(True, "refresh metadata and ask the coordinator it names"),
    ErrorCode.INVALID_TOPIC_EXCEPTION: ErrorRule(False, "use 1 to 249 of [a-zA-Z0-9._-], and not '.' or '..'"),
    # Nothing was appended, so a retry cannot append twice; after an append, the retry is recognized by its sequence and
    # waits for the HW like the first copy (M61).
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorRule(True, "wait until the ISR has min.insync.replicas members again"),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorRule(True, "the records are in the log; retry idempotently"),
    ErrorCode.INVALID_REQUIRED_ACKS: ErrorRule(False, "use acks 0, 1 or -1 (all)"),
    ErrorCode.ILLEGAL_GENERATION: ErrorRule(False, "join the group again"),
    ErrorCode.INVALID_GROUP_ID: ErrorRule(False, "give a group id of 1 to 249 characters that is not blank"),
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorRule(False, "join the group again with member epoch 0"),
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorRule(False, "join the group again"),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorRule(False, "commit fewer partitions at a time"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorRule(
        False, "check the name, then grant it: `strandline acl test` says how"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorRule(False, "grant the group: `strandline acl test` says how"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorRule(False, "use a certificate whose identity may do this"),
    ErrorCode.INVALID_TIMESTAMP: ErrorRule(False, "correct the batch's timestamps"),
    ErrorCode.UNSUPPORTED_VERSION: ErrorRule(False, "run a release whose feature levels overlap the cluster's"),
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorRule(False, "choose another name, or use the topic that exists"),
    ErrorCode.INVALID_PARTITIONS: ErrorRule(False, "ask for at least one partition, and never fewer than there are"),
    ErrorCode.INVALID_REPLICATION_FACTOR: ErrorRule(False, "use at most as many replicas as there are usable nodes"),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ErrorRule(False, "name each replica once, and only registered nodes"),
    ErrorCode.INVALID_CONFIG: ErrorRule(False, "correct the named setting"),
    ErrorCode.NOT_CONTROLLER: ErrorRule(True, "refresh metadata; the request names state newer than the controller's"),
    ErrorCode.INVALID_REQUEST: ErrorRule(False, "correct the named field"),
    ErrorCode.POLICY_VIOLATION: ErrorRule(False, "free disk space or lower retention, or ask for less in one request"),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorRule(False, "start a new producer id; batches were lost on the way"),
    # Which offset the batch has is no longer remembered, so a retry gets no better answer (M61).
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ErrorRule(False, "the batch is older than the last five; it was accepted"),
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorRule(False, "a newer producer took this id over; stop this one"),
    ErrorCode.INVALID_TXN_STATE: ErrorRule(False, "abort the transaction and begin another"),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorRule(False, "initialize the transactional producer again"),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: ErrorRule(False, "use a shorter transaction time-out"),
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorRule(True, "ask again; the transaction before is being ended"),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorRule(False, "nothing to do; a newer coordinator took over"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorRule(False, "grant the id: `strandline acl test` says how"),
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorRule(True, "retry; another partition of the request failed first"),
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorRule(True, "ask another replica; this one's disk failed"),
    ErrorCode.SASL_AUTHENTICATION_FAILED: ErrorRule(False, "get a new token of an issuer that the server names"),
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorRule(False, "start a new producer id; this one's records have expired"),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: ErrorRule(True, "wait for the reassignment to end"),
    ErrorCode.NON_EMPTY_GROUP: ErrorRule(False, "stop the members first"),
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorRule(False, "name a group that exists"),
    # Retriable in Kafka, whose broker may have evicted a session; here no unary Fetch has one.
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: ErrorRule(False, "use session_id 0; unary Fetch keeps no sessions"),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: ErrorRule(False, "use FetchStream for incremental fetching"),
    ErrorCode.FENCED_LEADER_EPOCH: ErrorRule(True, "the request's leader epoch is older; " + _REFRESH),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorRule(True, "the request's leader epoch is newer; back off and retry"),
    # Nothing that this process sends can succeed any more.
    ErrorCode.STALE_BROKER_EPOCH: ErrorRule(False, "a newer process registered as this node; stop this one"),
    ErrorCode.OFFSET_NOT_AVAILABLE: ErrorRule(True, "wait; the replica has not yet learned that the offset is settled"),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: ErrorRule(True, "wait until the preferred replica is in the ISR"),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ErrorRule(False, "run fewer members"),
    ErrorCode.FENCED_INSTANCE_ID: ErrorRule(False, "stop this member; another has its instance id"),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorRule(True, "start a replica of the ISR or ELR, or elect unclean"),
    ErrorCode.ELECTION_NOT_NEEDED: ErrorRule(False, "nothing to do; the partition has the leader asked for"),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: ErrorRule(False, "nothing to do; the partition is not being moved"),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: ErrorRule(False, "unsubscribe from the topic first"),
    ErrorCode.INVALID_RECORD: ErrorRule(False, "correct the record or header field that the message names"),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorRule(True, "ask again when the transaction has ended"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorRule(True, "back off; a quota or a limit of the node is used up"),
    ErrorCode.PRODUCER_FENCED: ErrorRule(False, "stop this producer; a newer one took over"),
    ErrorCode.RESOURCE_NOT_FOUND: ErrorRule(False, "name one that exists; it may have been forgotten meanwhile"),
    # The same compare-and-set fails for ever; by the new metadata the leader decides what to propose.
    ErrorCode.INVALID_UPDATE_VERSION: ErrorRule(False, "wait for new metadata; the partition epoch has moved on"),
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorRule(True, "refresh metadata; no topic has this id"),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: ErrorRule(True, "give the node another id, or wait for the old session"),
    ErrorCode.BROKER_ID_NOT_REGISTERED: ErrorRule(True, "register the node first"),
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorRule(True, "refresh metadata; topic name and topic id disagree"),
    ErrorCode.INCONSISTENT_CLUSTER_ID: ErrorRule(False, "connect to the cluster whose id the data directory holds"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ErrorRule(False, "name a transactional id that exists"),
    ErrorCode.INELIGIBLE_REPLICA: ErrorRule(True, "wait; the member is fenced, shutting down or restarted"),
    ErrorCode.NEW_LEADER_ELECTED: ErrorRule(False, "wait for new metadata; the change elected another leader"),
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorRule(False, "give up all partitions and join again with epoch 0"),
    ErrorCode.UNRELEASED_INSTANCE_ID: ErrorRule(False, "wait until the other has left, or use another instance id"),
    ErrorCode.UNSUPPORTED_ASSIGNOR: ErrorRule(False, "use one of the assignors that the message names"),
    # The same request stays wrong: only a heartbeat brings the member its epoch.
    ErrorCode.STALE_MEMBER_EPOCH: ErrorRule(False, "send a heartbeat, then ask again with the epoch it gives"),
    ErrorCode.TRANSACTION_ABORTABLE: ErrorRule(False, "abort the transaction"),
    ErrorCode.INVALID_REGULAR_EXPRESSION: ErrorRule(False, "correct the pattern; RE2's syntax is meant"),
}


# Kafka's numbers that nothing here answers; they are kept so that none of them can get another meaning, and a leader
# understands OPERATION_NOT_ATTEMPTED and NEW_LEADER_ELECTED as Kafka's does.
RESERVED = frozenset(
    {
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class ControllerHint(NamedTuple):
    """What an inactive controller knows of the active one (C31); None and 0 if it knows none."""

    why: str
    """STANDBY, STORE_AWAY, STORE_FULL, or UNHEARD: it is active, and must hear from a node before it answers (C37)."""
    active_id: str | None = None
    endpoint: str | None = None
    internal_endpoint: str | None = None
    # Of two hints the one with the higher epoch is right.
    controller_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something was not done: the code, one sentence that names field, rule and remedy, and for
    produce errors what it says about the records."""

    code: ErrorCode
    message: str = ""
    outcome: Outcome | None = None
    field: str | None = None
    """The field or setting that is wrong, where programs need it separately from the sentence."""
    rule: str | None = None
    """The rule that the field breaks, where programs need it separately."""
    remedy: str | None = None
    """What to do, where that is more specific than the advice for the code."""
    hint: ControllerHint | None = None
    """The active controller, in NOT_CONTROLLER."""
    throttle_time_ms: int = 0
    """How long the caller must wait before its next request because of a quota (C104)."""

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later or elsewhere."""
        return RULES[self.code].retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or RULES[self.code].remedy}"


class Refused(Exception):
    """Carries a `Refusal` through code that cannot return one (codecs, storage, the client)."""

    def __init__(
        self, code: ErrorCode, message: str = "", outcome: Outcome | None = None, field: str | None = None
    ) -> None:
        self.refusal = Refusal(code, message, outcome, field)
        super().__init__(str(self.refusal))

    @classmethod
    def of(cls, refusal: Refusal) -> Refused:
        """The exception that carries this refusal."""
        refused = cls(refusal.code, refusal.message, refusal.outcome, refusal.field)
        # It may have fields that the constructor does not take.
        refused.refusal = refusal
        return refused
