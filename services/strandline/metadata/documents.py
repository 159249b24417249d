"""The controller's state in a store: one JSON document per node, topic, partition and header.

Invariant: reading what was written gives an equal value; a document with a field this release does not know is
read without it, one that lacks a required field is refused as damaged, never guessed. Every document begins with
its checksum: SQLite keeps none, and one flipped bit in an epoch would send the cluster back in time (A6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import crc32c

from strandline.core.controller_state import ClusterHeader, NodeRecord, RemovedNode, TopicRecord
from strandline.core.messages import Endpoint, NodeImage, PartitionImage
from strandline.core.types import (
    Durability,
    FetchHw,
    IsrJoin,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
    Truncation,
)

_T = TypeVar("_T")


class DamagedDocument(ValueError):
    """A stored document cannot be read; names what it is of and why."""


def write(document: Mapping[str, object]) -> str:
    """A document as text, the same text for equal documents."""
    return sealed(json.dumps(document, sort_keys=True, separators=(",", ":")))


def sealed(text: str) -> str:
    """A text behind its CRC-32C, as eight hexadecimal digits and a blank."""
    return f"{crc32c.crc32c(text.encode(errors='surrogatepass')):08x} {text}"


def read(text: str, build: Callable[[dict[str, Any]], _T]) -> _T:
    """Build a value from a document's text.

    Raises:
        DamagedDocument: when the text is no JSON object, or lacks a field, or has one of a wrong kind.
    """
    try:
        return build(json.loads(_unsealed(text)))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedDocument(f"cannot read {build.__name__.removeprefix('read_')}: {error!r}") from error


def _unsealed(text: str) -> str:
    body = text[9:]
    if text != sealed(body):
        raise ValueError("its checksum does not match")
    return body


def write_header(header: ClusterHeader) -> dict[str, object]:
    """The parts of the state that are one of a kind."""
    return {
        "cluster_id": header.cluster_id,
        "controller_epoch": header.controller_epoch,
        "metadata_offset": header.metadata_offset,
        "rules": write_rules(header.rules),
        "feature_level": header.feature_level,
        "next_node_epoch": header.next_node_epoch,
        "next_producer_id": header.next_producer_id,
        "secret": header.secret,
    }


def read_header(document: dict[str, Any]) -> ClusterHeader:
    """Inverse of `write_header`."""
    return ClusterHeader(
        cluster_id=str(document["cluster_id"]),
        controller_epoch=int(document["controller_epoch"]),
        metadata_offset=int(document["metadata_offset"]),
        rules=read_rules(document["rules"]),
        feature_level=int(document["feature_level"]),
        next_node_epoch=int(document["next_node_epoch"]),
        next_producer_id=int(document["next_producer_id"]),
        # Stores of earlier releases have none; the next start gives one.
        secret=str(document.get("secret", "")),
    )


def write_rules(rules: Rules) -> dict[str, object]:
    """The four cluster-wide settings by name."""
    return {
        "truncation": rules.truncation.value,
        "fetch_hw": rules.fetch_hw.value,
        "isr_join": rules.isr_join.value,
        "durability": rules.durability.value,
    }


def read_rules(document: dict[str, Any]) -> Rules:
    """Inverse of `write_rules`."""
    return Rules(
        truncation=Truncation(document["truncation"]),
        fetch_hw=FetchHw(document["fetch_hw"]),
        isr_join=IsrJoin(document["isr_join"]),
        durability=Durability(document["durability"]),
    )


def write_node(record: NodeRecord) -> dict[str, object]:
    """A node with what only the controller knows of it."""
    image = record.image
    return {
        "node_id": image.node_id,
        "node_epoch": image.node_epoch,
        "roles": sorted(role.value for role in image.roles),
        "client_endpoint": image.client_endpoint,
        "internal_endpoint": image.internal_endpoint,
        "rack": image.rack,
        "fenced": image.fenced,
        "shutting_down": image.shutting_down,
        "incarnation_id": record.incarnation_id,
        "directory_id": record.directory_id,
        "feature_min": record.feature_min,
        "feature_max": record.feature_max,
        "past_incarnations": record.past_incarnations,
    }


def read_node(document: dict[str, Any]) -> NodeRecord:
    """Inverse of `write_node`."""
    image = NodeImage(
        node_id=NodeId(document["node_id"]),
        node_epoch=NodeEpoch(document["node_epoch"]),
        roles=frozenset(Role(role) for role in document["roles"]),
        client_endpoint=_endpoint(document["client_endpoint"]),
        internal_endpoint=_endpoint(document["internal_endpoint"]),
        rack=document["rack"],
        fenced=bool(document["fenced"]),
        shutting_down=bool(document["shutting_down"]),
    )
    return NodeRecord(
        image=image,
        incarnation_id=str(document["incarnation_id"]),
        directory_id=str(document["directory_id"]),
        feature_min=int(document["feature_min"]),
        feature_max=int(document["feature_max"]),
        past_incarnations=tuple(document["past_incarnations"]),
    )


def write_removed_node(removed: RemovedNode) -> dict[str, object]:
    """What is kept of a node that was removed."""
    return {"node_id": removed.node_id, "node_epoch": removed.node_epoch, "directory_id": removed.directory_id}


def read_removed_node(document: dict[str, Any]) -> RemovedNode:
    """Inverse of `write_removed_node`."""
    return RemovedNode(
        node_id=NodeId(int(document["node_id"])),
        node_epoch=NodeEpoch(int(document["node_epoch"])),
        directory_id=str(document["directory_id"]),
    )


def _endpoint(pair: list[Any] | None) -> Endpoint | None:
    return None if pair is None else Endpoint(str(pair[0]), int(pair[1]))


def write_topic(record: TopicRecord) -> dict[str, object]:
    """A topic without its partitions."""
    return {"name": record.name, "topic_id": record.topic_id, "configs": dict(record.configs)}


def read_topic(document: dict[str, Any]) -> TopicRecord:
    """Inverse of `write_topic`."""
    configs = tuple(sorted((str(name), str(value)) for name, value in document["configs"].items()))
    return TopicRecord(name=str(document["name"]), topic_id=str(document["topic_id"]), configs=configs)


def write_partition(partition: PartitionImage) -> dict[str, object]:
    """A partition as it was committed."""
    return {
        "topic_id": partition.tp.topic_id,
        "partition": partition.tp.partition,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "min_isr": partition.min_isr,
        "recovering": partition.recovering,
        "last_unclean_leader_epoch": partition.last_unclean_leader_epoch,
        "observers": partition.observers,
        "unproven": partition.unproven,
    }


def read_partition(document: dict[str, Any]) -> PartitionImage:
    """Inverse of `write_partition`."""
    leader, unclean = document["leader"], document["last_unclean_leader_epoch"]
    return PartitionImage(
        tp=TopicPartition(str(document["topic_id"]), int(document["partition"])),
        replicas=_nodes(document["replicas"]),
        isr=_nodes(document["isr"]),
        elr=_nodes(document["elr"]),
        leader=None if leader is None else NodeId(int(leader)),
        leader_epoch=LeaderEpoch(int(document["leader_epoch"])),
        partition_epoch=PartitionEpoch(int(document["partition_epoch"])),
        min_isr=int(document["min_isr"]),
        recovering=bool(document["recovering"]),
        last_unclean_leader_epoch=None if unclean is None else LeaderEpoch(int(unclean)),
        observers=_nodes(document["observers"]),
        unproven=_nodes(document.get("unproven", [])),
    )


def _nodes(ids: list[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(node_id)) for node_id in ids)
