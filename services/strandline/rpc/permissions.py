"""Which identity may call which method, and under which condition on the request: the one table of it.

Invariant: what is not in the table is refused, to everybody. A fetch with ``replica_state`` moves the high watermark
and so does what follows from it; only the node that it names may send one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.core.coordinator.internal_topics import is_internal
from strandline.rpc.identity import CallerRole, Identity

Request = Any
"""A message of the method; conditions look at fields that every request of their methods has."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a request; ``words`` appear in the documents and in refusals, after "only"."""

    words: str
    holds: Callable[[Request, Identity], bool]


def _asks(request: Request) -> bool:
    return bool(request.topics) or request.HasField("replica_state")


ALWAYS = Condition("", lambda request, caller: True)
AS_CLIENT = Condition("without replica_state", lambda request, caller: not request.HasField("replica_state"))


def _is_own_replica(request: Request, caller: Identity) -> bool:
    state = request.replica_state
    # In the order that is soonest done; an absent replica_state reads as one without replica_id.
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

_REPLICA, _CLIENT, _ADMIN = CallerRole.REPLICA, CallerRole.CLIENT, CallerRole.ADMIN


def _clients(condition: Condition = ALWAYS) -> dict[CallerRole, Condition]:
    """Clients, and administrators, who may do whatever clients may."""
    return {_CLIENT: condition, _ADMIN: condition}


EVERYBODY: Grants = dict.fromkeys(CallerRole, ALWAYS)
_ADMINS: Grants = {_ADMIN: ALWAYS}
_THE_NODE: Grants = {_REPLICA: OWN_NODE}

_LEADER, _FOLLOWER = "/strandline.v1.LeaderService/", "/strandline.v1.FollowerService/"
_CONTROLLER, _ANALYTICS = "/strandline.v1.ControllerService/", "/strandline.v1.AnalyticsService/"
_METADATA, _GROUP = "/strandline.v1.MetadataService/", "/strandline.v1.GroupService/"
_TRANSACTION = "/strandline.v1.TransactionService/"

TABLE: Mapping[str, Grants] = {
    _LEADER + "Produce": _clients(),
    _LEADER + "ProduceStream": _clients(),
    _LEADER + "Fetch": {**_clients(AS_CLIENT), _REPLICA: OWN_REPLICA},
    # A message that only forgets partitions says nothing of who forgets.
    _LEADER + "FetchStream": {**_clients(AS_CLIENT), _REPLICA: OWN_REPLICA_OR_NOTHING},
    _LEADER + "OffsetForLeaderEpoch": {**_clients(AS_CLIENT), _REPLICA: OWN_REPLICA},
    _LEADER + "ListOffsets": {**_clients(AS_CLIENT), _REPLICA: OWN_REPLICA},
    _LEADER + "FetchProducerSnapshot": {_REPLICA: OWN_REPLICA},
    # An administrator ends a transaction that its coordinator has lost.
    _LEADER + "WriteTxnMarkers": {_REPLICA: ALWAYS, **_ADMINS},
    _LEADER + "DescribeProducers": _clients(),
    _LEADER + "DeleteRecords": _ADMINS,
    _LEADER + "DescribePartitions": _clients(),
    _FOLLOWER + "Fetch": _clients(),
    _FOLLOWER + "DescribeReplicas": _clients(),
    _GROUP + "FindCoordinator": _clients(),
    _GROUP + "OffsetCommit": _clients(),
    _GROUP + "TxnOffsetCommit": _clients(),
    _GROUP + "OffsetFetch": _clients(),
    _GROUP + "ConsumerGroupHeartbeat": _clients(),
    _GROUP + "ListGroups": _clients(),
    _GROUP + "DescribeGroups": _clients(),
    _GROUP + "OffsetDelete": _ADMINS,
    _GROUP + "DeleteGroups": _ADMINS,
    _TRANSACTION + "InitProducerId": _clients(),
    _TRANSACTION + "AddPartitionsToTxn": {_REPLICA: ALWAYS},
    _TRANSACTION + "EndTxn": _clients(),
    _TRANSACTION + "DescribeTransactions": _clients(),
    _TRANSACTION + "ListTransactions": _clients(),
    _CONTROLLER + "RegisterNode": _THE_NODE,
    _CONTROLLER + "Heartbeat": _THE_NODE,
    _CONTROLLER + "AlterPartition": _THE_NODE,
    _CONTROLLER + "ReportReplicaLogs": _THE_NODE,
    _CONTROLLER + "AllocateProducerIds": _THE_NODE,
    _CONTROLLER + "WatchMetadata": {**_clients(AS_ONLOOKER), _REPLICA: AS_ITSELF},
    _CONTROLLER + "GetMetadata": _clients(),
    _CONTROLLER + "ListNodes": _clients(),
    _CONTROLLER + "ShutdownNode": {_ADMIN: ALWAYS, _REPLICA: OWN_NODE},
    _CONTROLLER + "UnregisterNode": _ADMINS,
    _CONTROLLER + "DescribeControllers": _clients(),
    _CONTROLLER + "HandOver": _ADMINS,
    _CONTROLLER + "InitProducerId": _clients(),
    _CONTROLLER + "DescribeTopics": _clients(),
    # A node asks for the topic of coordinators' state, whose shape is the controller's.
    _CONTROLLER + "CreateTopics": {_ADMIN: ALWAYS, _REPLICA: INTERNAL_TOPICS_ALONE},
    _CONTROLLER + "DeleteTopics": _ADMINS,
    _CONTROLLER + "AlterTopicConfigs": _ADMINS,
    _CONTROLLER + "IncrementalAlterConfigs": _ADMINS,
    _CONTROLLER + "DescribeConfigs": _clients(),
    _CONTROLLER + "CreatePartitions": _ADMINS,
    _CONTROLLER + "ElectLeaders": _ADMINS,
    _METADATA + "Subscribe": EVERYBODY,
    _METADATA + "GetMetadata": EVERYBODY,
    _METADATA + "DescribeCluster": EVERYBODY,
    _ANALYTICS + "ListStats": _clients(),
    _ANALYTICS + "Query": _clients(),
    _ANALYTICS + "GetTimeline": _clients(),
    _ANALYTICS + "WatchPartitions": _clients(),
    _ANALYTICS + "GetRun": _clients(),
    _ANALYTICS + "GetCoverage": _clients(),
    _ANALYTICS + "Explain": _clients(),
    _ANALYTICS + "ExplainGroup": _clients(),
    _ANALYTICS + "ExplainHeldBack": _clients(),
    _ANALYTICS + "GetReport": _clients(),
    _ANALYTICS + "SubmitRun": _clients(),
    _ANALYTICS + "CancelRun": _clients(),
    # The schema is public, and health says serving or not.
    "/grpc.health.v1.Health/Check": EVERYBODY,
    "/grpc.health.v1.Health/Watch": EVERYBODY,
    "/grpc.health.v1.Health/List": EVERYBODY,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": EVERYBODY,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": EVERYBODY,
}
"""Method by method, every one that a server of ours serves."""
