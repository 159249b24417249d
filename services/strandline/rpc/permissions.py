"""The table of which identity may call which method, and under which condition on the request.

Invariant: what is not in the table is refused to every caller. A fetch with ``replica_state`` can move the high
watermark, so only the node that it names may send it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.permissions import Needs, Operation, ResourceType

# ---- identity
# The identity in a certificate: the one URI ``strandline://<cluster>/<role>/<id>`` among its alternative names.
#
# Invariant: an identity is read whole or not at all; a certificate with no such URI, or with two, names no identity.

SCHEME = "strandline://"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class CallerRole(StrEnum):
    """The kind of process or person that a certificate identifies."""

    REPLICA = "replica"
    """A data node; the id is its node id."""
    CONTROLLER = "controller"
    CLIENT = "client"
    """A client: may produce, consume and read metadata."""
    ADMIN = "admin"
    """An administrator: everything a client may do, and changes of topics, leaders and nodes."""


class NoIdentity(ValueError):
    """A certificate or a text names no Strandline identity; the message says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a certificate."""

    cluster: str
    role: CallerRole
    name: str
    node_id: int | None = field(init=False, repr=False, compare=False)
    """The node's id; None if the holder is not a replica. Stored, because every replica's fetch is compared with it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.cluster) or not _NAME.fullmatch(self.name):
            raise NoIdentity(f"'{self.uri}' has a cluster or an id that is not 1 to 128 of [A-Za-z0-9._-]")
        if self.role is CallerRole.REPLICA and not (self.name.isascii() and self.name.isdecimal()):
            raise NoIdentity(f"'{self.uri}' must end in a node id, a number")
        object.__setattr__(self, "node_id", int(self.name) if self.role is CallerRole.REPLICA else None)

    @property
    def principal(self) -> str:
        """The name that access rules use for it (C106)."""
        return f"{self.role}/{self.name}"

    @property
    def uri(self) -> str:
        """The URI in the certificate."""
        return f"{SCHEME}{self.cluster}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


class Bearer(Identity):
    """The holder of a token: always a client of this cluster, whatever the token says (C107)."""

    __slots__ = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_id", None)

    @property
    def principal(self) -> str:
        """The alias of the issuer, ``:`` and the subject."""
        return self.name

    uri = principal


def parse_identity(uri: str) -> Identity:
    """``strandline://<cluster>/<role>/<id>`` as an identity.

    Raises:
        NoIdentity: it is not one; the message quotes the text.
    """
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or len(parts) != 3 or parts[1] not in set(CallerRole):
        raise NoIdentity(f"'{uri}' is not {SCHEME}<cluster>/<role>/<id> with a role of {', '.join(CallerRole)}")
    return Identity(parts[0], CallerRole(parts[1]), parts[2])


def only_identity(uris: Iterable[str]) -> Identity:
    """The identity among a certificate's URIs.

    Raises:
        NoIdentity: there is none, or more than one.
    """
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    if len(ours) != 1:
        raise NoIdentity(f"the certificate has {len(ours)} URIs of {SCHEME}<cluster>/<role>/<id>; it needs exactly one")
    return parse_identity(ours[0])


def identity_of_peer(uris: Iterable[bytes]) -> Identity | None:
    """The identity that a verified peer's URIs name; None if they name none."""
    try:
        return only_identity(uri.decode("utf-8", "replace") for uri in uris)
    except NoIdentity:
        return None


Request = Any
"""A message of the method; a condition reads only fields that every request of its methods has."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a request; its ``words`` follow "only" in the documentation and in refusals."""

    words: str
    holds: Callable[[Request, Identity], bool]


def _asks(request: Request) -> bool:
    return bool(request.topics) or request.HasField("replica_state")


ALWAYS = Condition("", lambda request, caller: True)
AS_CLIENT = Condition("without replica_state", lambda request, caller: not request.HasField("replica_state"))


def _is_own_replica(request: Request, caller: Identity) -> bool:
    state = request.replica_state
    # The cheapest comparison comes first; an absent replica_state is read as one without replica_id.
    return bool(state.replica_id == caller.node_id and state.HasField("replica_id"))


OWN_REPLICA = Condition("with replica_state of the caller's own replica_id", _is_own_replica)
OWN_REPLICA_OR_NOTHING = Condition(
    f"{OWN_REPLICA.words}, or naming no topics",
    lambda request, caller: OWN_REPLICA.holds(request, caller) if _asks(request) else True,
)
OWN_NODE = Condition("for the caller's own node_id", lambda request, caller: request.node_id == caller.node_id)
INTERNAL_TOPICS_ALONE = Condition(
    "for internal topics alone",
    lambda request, caller: bool(request.topics) and all(is_internal(topic.name) for topic in request.topics),
)
AS_ONLOOKER = Condition(
    "without node_id and node_epoch",
    lambda request, caller: not request.HasField("node_id") and not request.HasField("node_epoch"),
)
AS_ITSELF = Condition(
    "with the caller's own node_id and a node_epoch",
    lambda request, caller: (
        request.HasField("node_id") and request.HasField("node_epoch") and request.node_id == caller.node_id
    ),
)

Grants = Mapping[CallerRole, Condition]
_T = TypeVar("_T")

_REPLICA, _CLIENT, _ADMIN = CallerRole.REPLICA, CallerRole.CLIENT, CallerRole.ADMIN


def _clients(condition: Condition = ALWAYS) -> dict[CallerRole, Condition]:
    """Grants for clients, and for administrators, who may do everything that clients may do."""
    return {_CLIENT: condition, _ADMIN: condition}


EVERYBODY: Grants = dict.fromkeys(CallerRole, ALWAYS)
_ADMINS: Grants = {_ADMIN: ALWAYS}
_CLIENTS: Grants = _clients()
_THE_NODE: Grants = {_REPLICA: OWN_NODE}

_LEADER, _FOLLOWER = "/strandline.v1.LeaderService/", "/strandline.v1.FollowerService/"
_CONTROLLER, _ANALYTICS = "/strandline.v1.ControllerService/", "/strandline.v1.AnalyticsService/"
_METADATA, _GROUP = "/strandline.v1.MetadataService/", "/strandline.v1.GroupService/"
_TRANSACTION = "/strandline.v1.TransactionService/"


def _each(service: str, names: str, value: _T) -> dict[str, _T]:
    """One value for several methods of a service, named in one text."""
    return {service + name: value for name in names.split()}


TABLE: Mapping[str, Grants] = {
    **_each(_LEADER, "Produce ProduceStream DescribeProducers DescribePartitions", _CLIENTS),
    **_each(_LEADER, "Fetch OffsetForLeaderEpoch ListOffsets", {**_clients(AS_CLIENT), _REPLICA: OWN_REPLICA}),
    # A message that only forgets partitions has no replica_state.
    _LEADER + "FetchStream": {**_clients(AS_CLIENT), _REPLICA: OWN_REPLICA_OR_NOTHING},
    _LEADER + "FetchProducerSnapshot": {_REPLICA: OWN_REPLICA},
    # An administrator ends a transaction that its coordinator has lost.
    _LEADER + "WriteTxnMarkers": {_REPLICA: ALWAYS, **_ADMINS},
    _LEADER + "DeleteRecords": _ADMINS,
    **_each(_FOLLOWER, "Fetch DescribeReplicas", _CLIENTS),
    **_each(_GROUP, "FindCoordinator OffsetCommit TxnOffsetCommit OffsetFetch ConsumerGroupHeartbeat", _CLIENTS),
    **_each(_GROUP, "ListGroups DescribeGroups", _CLIENTS),
    **_each(_GROUP, "OffsetDelete DeleteGroups", _ADMINS),
    **_each(_TRANSACTION, "InitProducerId EndTxn DescribeTransactions ListTransactions", _CLIENTS),
    _TRANSACTION + "AddPartitionsToTxn": {_REPLICA: ALWAYS},
    **_each(_CONTROLLER, "RegisterNode Heartbeat AlterPartition ReportReplicaLogs AllocateProducerIds", _THE_NODE),
    _CONTROLLER + "WatchMetadata": {**_clients(AS_ONLOOKER), _REPLICA: AS_ITSELF},
    **_each(_CONTROLLER, "GetMetadata ListNodes ListPartitionReassignments DescribeControllers", _CLIENTS),
    **_each(_CONTROLLER, "InitProducerId DescribeTopics DescribeConfigs DescribeAcls DescribeClientQuotas", _CLIENTS),
    _CONTROLLER + "ShutdownNode": {_ADMIN: ALWAYS, _REPLICA: OWN_NODE},
    **_each(_CONTROLLER, "UnregisterNode AlterPartitionReassignments DrainNode HandOver DeleteTopics", _ADMINS),
    **_each(_CONTROLLER, "AlterTopicConfigs IncrementalAlterConfigs CreatePartitions ElectLeaders", _ADMINS),
    **_each(_CONTROLLER, "CreateAcls DeleteAcls AlterClientQuotas", _ADMINS),
    # A node creates the internal topics, which hold the coordinators' state, with the controller's defaults.
    _CONTROLLER + "CreateTopics": {_ADMIN: ALWAYS, _REPLICA: INTERNAL_TOPICS_ALONE},
    **_each(_METADATA, "Subscribe GetMetadata DescribeCluster", EVERYBODY),
    _METADATA + "DescribeAudit": _CLIENTS,
    **_each(_ANALYTICS, "ListStats Query GetTimeline WatchPartitions GetRun GetCoverage Explain", _CLIENTS),
    **_each(_ANALYTICS, "ExplainGroup ExplainHeldBack GetReport SubmitRun CancelRun", _CLIENTS),
    # The schema is public, and health reveals only whether a process serves.
    **_each("/grpc.health.v1.Health/", "Check Watch List", EVERYBODY),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": EVERYBODY,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": EVERYBODY,
}
"""The grants of every method that a Strandline server has."""

CHANGES = frozenset(method for method, grants in TABLE.items() if _ADMIN in grants and _CLIENT not in grants)
"""The methods that change a cluster, which are audited (C109): without rules they are for administrators only."""

# ---- needs
# With `authorization = acl`, what a client's rules must allow for each method, in addition to the table (C105).
#
# Invariant: a method without an entry is refused to every client. Administrators, nodes and controllers need no rules.


class Scope(StrEnum):
    """The resources for which a method needs its operations."""

    NAMED = "named"
    """Those that the request names; lists leave out what is not permitted. If the method needs operations on both the
    cluster and topics, one of the two is enough."""
    BOTH = "both"
    """As NAMED, but the operations on the cluster and on topics are both needed."""
    SOME = "some"
    """Any one topic, because the request names none."""
    EVERY = "every"
    """The cluster and every topic, because the answer covers them all."""


@dataclass(frozen=True, slots=True)
class Need:
    """The operation that a method needs on each type of resource. Empty: none, because its answer is no secret."""

    of: Needs
    scope: Scope = Scope.NAMED


_O, _R = Operation, ResourceType
_NOTHING = Need({})
_SEES_CLUSTER, _ALTERS_CLUSTER = Need({_R.CLUSTER: _O.DESCRIBE}), Need({_R.CLUSTER: _O.ALTER})
_SEES_ALL = Need({_R.CLUSTER: _O.DESCRIBE, _R.TOPIC: _O.DESCRIBE}, Scope.EVERY)

NEEDS: Mapping[str, Need] = {
    **_each(_LEADER, "Produce ProduceStream", Need({_R.TOPIC: _O.WRITE, _R.TRANSACTIONAL_ID: _O.WRITE})),
    **_each(_LEADER, "Fetch FetchStream DescribeProducers", Need({_R.TOPIC: _O.READ})),
    **_each(_LEADER, "OffsetForLeaderEpoch ListOffsets DescribePartitions", Need({_R.TOPIC: _O.DESCRIBE})),
    _LEADER + "DeleteRecords": Need({_R.TOPIC: _O.DELETE}),
    _FOLLOWER + "Fetch": Need({_R.TOPIC: _O.READ}),
    _FOLLOWER + "DescribeReplicas": Need({_R.TOPIC: _O.DESCRIBE}),
    _GROUP + "FindCoordinator": Need({_R.GROUP: _O.DESCRIBE, _R.TRANSACTIONAL_ID: _O.DESCRIBE}),
    _GROUP + "OffsetCommit": Need({_R.GROUP: _O.READ, _R.TOPIC: _O.READ}),
    _GROUP + "TxnOffsetCommit": Need({_R.GROUP: _O.READ, _R.TOPIC: _O.READ, _R.TRANSACTIONAL_ID: _O.WRITE}),
    **_each(_GROUP, "OffsetFetch DescribeGroups", Need({_R.GROUP: _O.DESCRIBE, _R.TOPIC: _O.DESCRIBE})),
    _GROUP + "ConsumerGroupHeartbeat": Need({_R.GROUP: _O.READ, _R.TOPIC: _O.DESCRIBE}),
    _GROUP + "ListGroups": Need({_R.GROUP: _O.DESCRIBE}),
    _GROUP + "OffsetDelete": Need({_R.GROUP: _O.DELETE, _R.TOPIC: _O.READ}),
    _GROUP + "DeleteGroups": Need({_R.GROUP: _O.DELETE}),
    **_each(_TRANSACTION, "InitProducerId EndTxn", Need({_R.TRANSACTIONAL_ID: _O.WRITE})),
    _TRANSACTION + "DescribeTransactions": Need({_R.TRANSACTIONAL_ID: _O.DESCRIBE, _R.TOPIC: _O.DESCRIBE}),
    _TRANSACTION + "ListTransactions": Need({_R.TRANSACTIONAL_ID: _O.DESCRIBE}),
    _CONTROLLER + "WatchMetadata": _SEES_ALL,
    **_each(_CONTROLLER, "GetMetadata DescribeTopics", Need({_R.TOPIC: _O.DESCRIBE})),
    **_each(_CONTROLLER, "ListNodes DescribeControllers DescribeAcls DescribeClientQuotas", _SEES_CLUSTER),
    _CONTROLLER + "ListPartitionReassignments": Need(_SEES_ALL.of, Scope.BOTH),
    **_each(_CONTROLLER, "ShutdownNode UnregisterNode AlterPartitionReassignments DrainNode HandOver", _ALTERS_CLUSTER),
    **_each(_CONTROLLER, "ElectLeaders CreateAcls DeleteAcls AlterClientQuotas", _ALTERS_CLUSTER),
    _CONTROLLER + "InitProducerId": Need({_R.TOPIC: _O.WRITE}, Scope.SOME),
    _CONTROLLER + "CreateTopics": Need({_R.CLUSTER: _O.CREATE, _R.TOPIC: _O.CREATE}),
    _CONTROLLER + "DeleteTopics": Need({_R.TOPIC: _O.DELETE}),
    **_each(_CONTROLLER, "AlterTopicConfigs IncrementalAlterConfigs", Need({_R.TOPIC: _O.ALTER_CONFIGS})),
    _CONTROLLER + "DescribeConfigs": Need({_R.TOPIC: _O.DESCRIBE_CONFIGS}),
    _CONTROLLER + "CreatePartitions": Need({_R.TOPIC: _O.ALTER}),
    **_each(_METADATA, "Subscribe GetMetadata", Need({_R.TOPIC: _O.DESCRIBE})),
    _METADATA + "DescribeCluster": _NOTHING,
    _METADATA + "DescribeAudit": _SEES_ALL,
    **dict.fromkeys((method for method in TABLE if method.startswith(_ANALYTICS)), _SEES_ALL),
    **dict.fromkeys((method for method in TABLE if method.startswith("/grpc.")), _NOTHING),
}
