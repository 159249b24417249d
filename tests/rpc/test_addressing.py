"""Who asks, and which partitions a request means."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.convert.errors import read_replica
from strandline.v1 import partition_pb2


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (partition_pb2.ReplicaState(replica_epoch=1), "replica_id and replica_epoch"),
        (partition_pb2.ReplicaState(replica_id=1), "replica_id and replica_epoch"),
        (partition_pb2.ReplicaState(replica_id=-1, replica_epoch=1), "replica_id -1 must be a node's id"),
    ],
    ids=["no id", "no epoch", "Kafka's id of a client"],
)
def test_a_replica_names_its_id_and_its_epoch(state: partition_pb2.ReplicaState, words: str) -> None:
    """An absent one is never node 0 or epoch 0, whose acknowledgement would count for another."""
    with pytest.raises(Refused, match=words) as refused:
        read_replica(state)

    assert refused.value.refusal.code is ErrorCode.INVALID_REQUEST


def test_node_0_in_epoch_0_is_a_replica_too() -> None:
    """What is given is read as it is."""
    given = partition_pb2.ReplicaState(replica_id=0, replica_epoch=0)

    assert read_replica(given) == (NodeId(0), NodeEpoch(0))
