"""The records of Kafka's metadata log: number, name, newest version known, and fields by version.

Facts of Apache Kafka 2.8 to 4.3. A record without a table here is counted by its name and not decoded: either nothing
of it is exported, or it holds secrets (`SECRETS`), which are skipped by number.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline_kafka.metadata.wire import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID_TEXT,
    Field,
    Type,
    array,
    ids,
    record,
)

NEWEST_RELEASE = "4.3"
FEATURES = {
    "metadata.version": 30,
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
"""The features that `NEWEST_RELEASE` knows, and their highest levels; a controller stops at others."""
UNCHANGED = -2
"""The leader field of a change that does not name a leader."""
NO_LEADER = -1

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""The kinds of resource that a Config record configures."""


class RecordKind(NamedTuple):
    """One kind of record; ``fields`` is None if nothing of it is exported."""

    name: str
    newest: int
    fields: tuple[Field, ...] | None


_IDS = ids()
_MAYBE_IDS = ids(nullable=True)
_UUIDS = array(UUID_TEXT)
_MAYBE_UUIDS = array(UUID_TEXT, nullable=True)
_ENDPOINTS = array(
    record(Field("name", STRING), Field("host", STRING), Field("port", UINT16), Field("security_protocol", INT16))
)
_FEATURES = array(
    record(Field("name", STRING), Field("min_supported_version", INT16), Field("max_supported_version", INT16))
)


def _tagged(name: str, kind: Type, tag: int, default: object = None, since: int = 0) -> Field:
    return Field(name, kind, since, tag, default)


RECORDS: dict[int, RecordKind] = {
    0: RecordKind(
        "RegisterBroker",
        4,
        (
            Field("broker_id", INT32),
            Field("is_migrating_zk_broker", BOOL, since=2),
            Field("incarnation_id", UUID_TEXT),
            Field("broker_epoch", INT64),
            Field("end_points", _ENDPOINTS),
            Field("features", _FEATURES),
            Field("rack", NULLABLE_STRING),
            Field("fenced", BOOL),
            Field("in_controlled_shutdown", BOOL, since=1),
            _tagged("log_dirs", _UUIDS, 0, (), since=3),
            _tagged("cordoned_log_dirs", _MAYBE_UUIDS, 1, since=4),
        ),
    ),
    1: RecordKind("UnregisterBroker", 0, (Field("broker_id", INT32), Field("broker_epoch", INT64))),
    2: RecordKind("Topic", 0, (Field("name", STRING), Field("topic_id", UUID_TEXT))),
    3: RecordKind(
        "Partition",
        2,
        (
            Field("partition_id", INT32),
            Field("topic_id", UUID_TEXT),
            Field("replicas", _IDS),
            Field("isr", _IDS),
            Field("removing_replicas", _IDS),
            Field("adding_replicas", _IDS),
            Field("leader", INT32),
            _tagged("leader_recovery_state", INT8, 0, 0),
            Field("leader_epoch", INT32),
            Field("partition_epoch", INT32),
            Field("directories", _UUIDS, since=1),
            _tagged("eligible_leader_replicas", _MAYBE_IDS, 1, since=2),
            _tagged("last_known_elr", _MAYBE_IDS, 2, since=2),
        ),
    ),
    4: RecordKind(
        "Config",
        0,
        (
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("name", STRING),
            Field("value", NULLABLE_STRING),
        ),
    ),
    5: RecordKind(
        "PartitionChange",
        2,
        (
            Field("partition_id", INT32),
            Field("topic_id", UUID_TEXT),
            _tagged("isr", _MAYBE_IDS, 0),
            _tagged("leader", INT32, 1, UNCHANGED),
            _tagged("replicas", _MAYBE_IDS, 2),
            _tagged("removing_replicas", _MAYBE_IDS, 3),
            _tagged("adding_replicas", _MAYBE_IDS, 4),
            _tagged("leader_recovery_state", INT8, 5, -1),
            _tagged("eligible_leader_replicas", _MAYBE_IDS, 6, since=2),
            _tagged("last_known_elr", _MAYBE_IDS, 7, since=2),
            _tagged("directories", _MAYBE_UUIDS, 8, since=1),
        ),
    ),
    6: RecordKind("AccessControl", 0, None),
    7: RecordKind("FenceBroker", 0, (Field("broker_id", INT32), Field("broker_epoch", INT64))),
    8: RecordKind("UnfenceBroker", 0, (Field("broker_id", INT32), Field("broker_epoch", INT64))),
    9: RecordKind("RemoveTopic", 0, (Field("topic_id", UUID_TEXT),)),
    10: RecordKind("DelegationToken", 0, None),
    11: RecordKind("UserScramCredential", 0, None),
    12: RecordKind("FeatureLevel", 0, (Field("name", STRING), Field("feature_level", INT16))),
    14: RecordKind("ClientQuota", 0, None),
    15: RecordKind("ProducerIds", 0, None),
    17: RecordKind(
        "BrokerRegistrationChange",
        3,
        (
            Field("broker_id", INT32),
            Field("broker_epoch", INT64),
            _tagged("fenced", INT8, 0, 0),
            _tagged("in_controlled_shutdown", INT8, 1, 0, since=1),
            _tagged("log_dirs", _UUIDS, 2, (), since=2),
            _tagged("cordoned_log_dirs", _MAYBE_UUIDS, 3, since=3),
        ),
    ),
    18: RecordKind("AccessControlEntry", 0, None),
    19: RecordKind("RemoveAccessControlEntry", 0, None),
    20: RecordKind("NoOp", 0, ()),
    21: RecordKind("ZkMigrationState", 0, (Field("zk_migration_state", INT8),)),
    22: RecordKind("RemoveUserScramCredential", 0, None),
    23: RecordKind("BeginTransaction", 0, (_tagged("name", NULLABLE_STRING, 0),)),
    24: RecordKind("EndTransaction", 0, ()),
    25: RecordKind("AbortTransaction", 0, (_tagged("reason", NULLABLE_STRING, 0),)),
    26: RecordKind("RemoveDelegationToken", 0, None),
    27: RecordKind("RegisterController", 0, None),
    28: RecordKind("ClearElr", 0, (Field("topic_name", STRING),)),
}
"""Every kind of record by its number."""

_DYNAMIC_VOTERS = array(
    record(
        Field("voter_id", INT32),
        Field("voter_directory_id", UUID_TEXT),
        Field("endpoints", array(record(Field("name", STRING), Field("host", STRING), Field("port", UINT16)))),
        Field(
            "k_raft_version_feature",
            record(Field("min_supported_version", INT16), Field("max_supported_version", INT16)),
        ),
    )
)
_VOTERS = array(record(Field("voter_id", INT32), Field("voter_directory_id", UUID_TEXT, since=1)))

CONTROL_RECORDS: dict[int, RecordKind] = {
    2: RecordKind(
        "LeaderChange",
        1,
        (
            Field("version", INT16),
            Field("leader_id", INT32),
            Field("voters", _VOTERS),
            Field("granting_voters", _VOTERS),
        ),
    ),
    3: RecordKind("SnapshotHeader", 0, (Field("version", INT16), Field("last_contained_log_timestamp", INT64))),
    4: RecordKind("SnapshotFooter", 0, None),
    5: RecordKind("KRaftVersion", 0, None),
    6: RecordKind("KRaftVoters", 0, (Field("version", INT16), Field("voters", _DYNAMIC_VOTERS))),
}
"""Records of control batches, by the type in their key."""
