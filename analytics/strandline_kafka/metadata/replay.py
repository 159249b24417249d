"""Folds records of the metadata log into a state, and reports what each of them changed.

Epochs of a change are not in its record: the partition epoch rises by one, the leader epoch if it names a leader.

Invariant: no state has invented epochs: a change of a partition that was never seen is an `Unknown`, never a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline_kafka.metadata import state as metadata_state
from strandline_kafka.metadata.record_table import BROKER_RESOURCE, FEATURES, TOPIC_RESOURCE, UNCHANGED
from strandline_kafka.metadata.records import MetadataRecord, check_moment
from strandline_kafka.metadata.state import ClusterState, Partition
from strandline_kafka.metadata.wire import Message, Unreadable

MIN_ISR = "min.insync.replicas"
"""The only setting that is read; values of all others are dropped unread."""
_METADATA_VERSION = "metadata.version"
_MOST_DIGITS = 9
"""Digits of a number of 32 bits, whatever its first digit."""
_MOST_EPOCHS = (1 << 31) - 1
_NODES_OF = (
    ("replicas", "replicas"),
    ("isr", "isr"),
    ("elr", "eligible_leader_replicas"),
    ("last_known_elr", "last_known_elr"),
    ("adding", "adding_replicas"),
    ("removing", "removing_replicas"),
)
"""Lists of nodes of a partition, and the field of a change that replaces each; null leaves it."""
_PLACES = frozenset(("replicas", "adding", "removing"))
"""Fields that say where a partition is placed."""
_OLDEST_LEVEL = 4
"""The level of Kafka 3.3, the first release whose KRaft mode was production-ready."""


class Replay:
    """A state, and the records that change it."""

    def __init__(self, state: metadata_state.ClusterState) -> None:
        self.state = state
        self._by_kind: dict[str, Callable[[Message], list[metadata_state.Fact]]] = {
            "RegisterBroker": self._register,
            "UnregisterBroker": self._unregister,
            "Topic": self._topic,
            "Partition": self._partition,
            "Config": self._config,
            "PartitionChange": self._change,
            "FenceBroker": lambda fields: self._fence(self._broker(fields)),
            "UnfenceBroker": lambda fields: self._unfence(self._broker(fields)),
            "RemoveTopic": self._remove_topic,
            "FeatureLevel": self._feature,
            "BrokerRegistrationChange": self._registration_change,
            "ZkMigrationState": self._migration,
            "ClearElr": self._clear_elr,
            "LeaderChange": self._controller,
        }

    def apply(self, record: MetadataRecord) -> list[metadata_state.Fact]:
        """Take a record into the state.

        Raises:
            Unreadable: the log is of an unsupported cluster.
        """
        if record.kind is None:
            return [metadata_state.Unknown(f"record {record.number} version {record.version}")]
        known = self._by_kind.get(record.kind)
        if known is None:
            return []
        try:
            return known(record.fields)
        except Unreadable as error:
            raise Unreadable(f"offset {record.offset}: {error}") from error

    def load(self, records: Iterable[MetadataRecord]) -> int | None:
        """Take all records of a snapshot; returns the time of the last record that it contains, in ms."""
        at_ms: int | None = None
        for record in records:
            if record.kind == "SnapshotHeader":
                at_ms = record.fields["last_contained_log_timestamp"]
                check_moment(record.fields["last_contained_log_timestamp"])
            for fact in self.apply(record):
                self.state.is_whole &= not isinstance(fact, metadata_state.Unknown)
        return at_ms

    def _register(self, fields: Message) -> list[metadata_state.Fact]:
        if fields.get("is_migrating_zk_broker"):
            raise _migrating()
        broker_id = NodeId(fields["broker_id"])
        before = self.state.brokers.get(broker_id)
        self.state.brokers[broker_id] = metadata_state.Broker(
            broker_id=broker_id,
            broker_epoch=fields["broker_epoch"],
            rack=fields["rack"],
            fenced=fields["fenced"],
            shutting_down=fields.get("in_controlled_shutdown", False),
        )
        is_fast = before is not None and before.is_active
        return [metadata_state.Registered(broker_id, fields["rack"], before is None, is_fast)]

    def _unregister(self, fields: Message) -> list[metadata_state.Fact]:
        broker = self._broker(fields)
        del self.state.brokers[broker.broker_id]
        return [metadata_state.Unregistered(broker.broker_id, broker.rack)]

    def _registration_change(self, fields: Message) -> list[metadata_state.Fact]:
        broker = self._broker(fields)
        facts: list[metadata_state.Fact] = []
        if fields.get("in_controlled_shutdown") == 1:
            facts += self._begin_shutdown(broker)
        if fields["fenced"] == 1:
            facts += self._fence(broker)
        elif fields["fenced"] == -1:
            facts += self._unfence(broker)
        if fields.get("log_dirs"):
            facts.append(metadata_state.DirectoriesNamed(broker.broker_id))
        return facts or [metadata_state.RegistrationRepeated(broker.broker_id)]

    def _fence(self, broker: metadata_state.Broker) -> list[metadata_state.Fact]:
        if broker.fenced:
            return [metadata_state.RegistrationRepeated(broker.broker_id)]
        broker.fenced = True
        return [metadata_state.Fenced(broker.broker_id, broker.rack, self.state.active(), self.state.fenced())]

    def _unfence(self, broker: metadata_state.Broker) -> list[metadata_state.Fact]:
        if not broker.fenced:
            return [metadata_state.RegistrationRepeated(broker.broker_id)]
        broker.fenced = False
        return [metadata_state.Unfenced(broker.broker_id, broker.rack)]

    def _begin_shutdown(self, broker: metadata_state.Broker) -> list[metadata_state.Fact]:
        if broker.shutting_down:
            return [metadata_state.RegistrationRepeated(broker.broker_id)]
        broker.shutting_down = True
        return [metadata_state.ShutdownBegan(broker.broker_id, self.state.active(), self.state.fenced())]

    def _broker(self, fields: Message) -> metadata_state.Broker:
        """The broker whose registration a record changes.

        A broker that registered before the first offset is known by its changes only.
        """
        broker_id, epoch = NodeId(fields["broker_id"]), fields["broker_epoch"]
        known = self.state.brokers.get(broker_id)
        self._must(known is not None, f"changes the registration of broker {broker_id}, which never registered")
        if known is None:
            unseen = metadata_state.Broker(
                broker_id=broker_id, broker_epoch=epoch, rack=None, fenced=False, shutting_down=False
            )
            return self.state.brokers.setdefault(broker_id, unseen)
        said = f"is of broker epoch {epoch} of broker {broker_id}, which registered with {known.broker_epoch}"
        self._must(known.broker_epoch == epoch, said)
        return known

    def _must(self, holds: bool, otherwise: str) -> None:
        """Refuse a record at which Kafka's own controller would stop, if nothing before it is missing."""
        if self.state.is_whole and not holds:
            raise Unreadable(f"the record {otherwise}; the log is damaged, or of two clusters")

    def _topic(self, fields: Message) -> list[metadata_state.Fact]:
        known = self.state.ids.get(fields["name"])
        self._must(known is None, f"makes a second topic of the name {fields['name']}")
        self.state.topics[fields["topic_id"]] = fields["name"]
        self.state.ids[fields["name"]] = fields["topic_id"]
        return []

    def _partition(self, fields: Message) -> list[metadata_state.Fact]:
        if self.state.is_whole and _METADATA_VERSION not in self.state.features:
            raise _too_old("it names no metadata.version")
        self._must(fields["topic_id"] in self.state.topics, f"is of topic {fields['topic_id']}, which no record made")
        leader = fields["leader"]
        partition = metadata_state.Partition(
            tp=TopicPartition(fields["topic_id"], fields["partition_id"]),
            replicas=_nodes(fields["replicas"]),
            isr=_nodes(fields["isr"]),
            elr=_nodes(fields.get("eligible_leader_replicas")),
            last_known_elr=_nodes(fields.get("last_known_elr")),
            adding=_nodes(fields["adding_replicas"]),
            removing=_nodes(fields["removing_replicas"]),
            leader=NodeId(leader) if leader >= 0 else None,
            leader_epoch=LeaderEpoch(fields["leader_epoch"]),
            partition_epoch=PartitionEpoch(fields["partition_epoch"]),
            recovering=fields["leader_recovery_state"] == 1,
        )
        self.state.put(partition)
        return [metadata_state.Created(partition, self.state.min_isr(partition.tp.topic_id), self._alive(partition))]

    def _change(self, fields: Message) -> list[metadata_state.Fact]:
        tp = TopicPartition(fields["topic_id"], fields["partition_id"])
        before = self.state.partitions.get(tp)
        if before is None:
            self._must(False, f"changes partition {tp.partition} of topic {tp.topic_id}, which no record made")
            return [metadata_state.Unknown("PartitionChange of a partition whose state before it is in no record")]
        if max(before.partition_epoch, before.leader_epoch) >= _MOST_EPOCHS:
            raise Unreadable(f"partition {tp.partition} of topic {tp.topic_id} has no epochs left; the log is damaged")
        leader, recovery = fields["leader"], fields["leader_recovery_state"]
        names_leader = leader != UNCHANGED
        # A change names few of these, and a call for each of the others costs a second per million records.
        named: dict[str, Any] = {name: _nodes(ids) for name, of in _NODES_OF if (ids := fields.get(of)) is not None}
        after = before._replace(
            **named,
            leader=(NodeId(leader) if leader >= 0 else None) if names_leader else before.leader,
            leader_epoch=LeaderEpoch(before.leader_epoch + names_leader),
            partition_epoch=PartitionEpoch(before.partition_epoch + 1),
            recovering=before.recovering if recovery == -1 else recovery == 1,
        )
        self.state.put(after)
        places = not _PLACES.isdisjoint(named)
        return [
            metadata_state.Changed(
                before, after, names_leader, places, self.state.min_isr(tp.topic_id), self._alive(before)
            )
        ]

    def _alive(self, partition: metadata_state.Partition) -> tuple[NodeId, ...]:
        brokers = self.state.brokers
        members = dict.fromkeys((*partition.isr, *partition.elr))
        return tuple(node for node in members if (one := brokers.get(node)) is not None and one.is_active)

    def _remove_topic(self, fields: Message) -> list[metadata_state.Fact]:
        topic_id = fields["topic_id"]
        self._must(topic_id in self.state.topics, f"removes topic {topic_id}, which no record made")
        min_isr = self.state.min_isr(topic_id)
        name = self.state.topics.pop(topic_id, None)
        self.state.gone[topic_id] = name or ""
        gone = [self.state.partitions.pop(tp) for tp in self.state.of_topic.pop(topic_id, ())]
        self.state.min_isr_of_topic.pop(name or "", None)
        self.state.ids.pop(name or "", None)
        return [metadata_state.Deleted(partition, min_isr, name) for partition in gone]

    def _config(self, fields: Message) -> list[metadata_state.Fact]:
        kind, name = fields["resource_type"], fields["resource_name"]
        is_default = kind == BROKER_RESOURCE and not name
        if fields["name"] != MIN_ISR or not (is_default or kind == TOPIC_RESOURCE):
            return []
        concerned = list(self.state.of_topic) if is_default else self._topic_ids(name)
        before = {topic_id: self.state.min_isr(topic_id) for topic_id in concerned}
        value = _whole_number(fields["value"])
        if is_default:
            self.state.min_isr_default = value
        elif value is None:
            self.state.min_isr_of_topic.pop(name, None)
        else:
            self.state.min_isr_of_topic[name] = value
        return [
            metadata_state.Configured(partition, now)
            for topic_id, held in before.items()
            if (now := self.state.min_isr(topic_id)) != held
            for partition in self.state.partitions_of(topic_id)
        ]

    def _clear_elr(self, fields: Message) -> list[metadata_state.Fact]:
        name = fields["topic_name"]
        facts: list[metadata_state.Fact] = []
        for topic_id in self._topic_ids(name) if name else list(self.state.of_topic):
            for partition in self.state.partitions_of(topic_id):
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(elr=(), last_known_elr=())
                    self.state.put(cleared)
                    facts.append(metadata_state.Restated(cleared, self.state.min_isr(topic_id)))
        return facts

    def _topic_ids(self, name: str) -> list[str]:
        found = self.state.ids.get(name)
        return [] if found is None else [found]

    def _feature(self, fields: Message) -> list[metadata_state.Fact]:
        name, level = fields["name"], fields["feature_level"]
        if name == _METADATA_VERSION and level < _OLDEST_LEVEL:
            raise _too_old(f"its metadata.version has level {level}")
        self.state.features[name] = level
        return [metadata_state.Unknown(f"feature {name} level {level}")] if level > FEATURES.get(name, 0) else []

    def _migration(self, fields: Message) -> list[metadata_state.Fact]:
        if fields["zk_migration_state"] != 0:
            raise _migrating()
        return []

    def _controller(self, fields: Message) -> list[metadata_state.Fact]:
        leader_id = NodeId(fields["leader_id"]) if fields else None
        return [metadata_state.ControllerElected(leader_id, self.state.active(), self.state.fenced())]


def _nodes(ids: tuple[int, ...] | None) -> tuple[NodeId, ...]:
    # One call for each id costs a second per million records.
    return cast("tuple[NodeId, ...]", ids or ())


def _whole_number(value: str | None) -> int | None:
    """The number in a value; None if it is not a number, which Kafka would have refused."""
    is_number = value is not None and len(value) <= _MOST_DIGITS and value.isascii() and value.isdigit()
    return int(value) if is_number and value is not None else None


def _migrating() -> Unreadable:
    return Unreadable("the cluster is in migration from ZooKeeper, whose log is not read; import it when that is over")


def _too_old(why: str) -> Unreadable:
    return Unreadable(f"the log is of Kafka 3.2 or older ({why}); metadata.version must be 3.3 or later to be read")


# ---- listening
# Informs another source of the states of an import, so that it can place its events between the log's decisions.
#
# The source belongs to another package, which may wait and has its own emitters; an import only reports the states.


class Listener(Protocol):
    """Follows the states of an import. Times are the controller's, ms since 1970."""

    @property
    def name(self) -> str:
        """The source's name in an export."""

    @property
    def rows(self) -> int:
        """The number of events written."""

    @property
    def files(self) -> int:
        """The number of files."""

    def elected(self, partition: Partition, at_ms: int) -> None:
        """A leader epoch of a partition begins."""

    def deleted(self, partition: Partition, at_ms: int) -> None:
        """A partition ends with its topic; another partition may have its name from then on."""

    def pass_until(self, now_ms: int, state: ClusterState) -> None:
        """The current state holds until this time."""

    def end(self, now_ms: int, state: ClusterState) -> None:
        """Nothing follows."""

    def said(self) -> dict[str, object]:
        """The description of the source in the export."""
