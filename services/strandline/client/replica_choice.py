"""Which replica a consumer that reads from followers asks: one in its rack if there is one, and not all the same.

Invariant: every consumer stays with its choice while the candidates stay the same; consumers that have the same
candidates are spread over them by the number that each draws once.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.client.view import ClusterView, Leader
from strandline.core.messages import Endpoint, PartitionImage
from strandline.core.types import NodeId


def choose_replica(
    view: ClusterView, partition: PartitionImage, leader: Leader, *, rack: str | None, draw: int
) -> Endpoint:
    """Where to read the partition (KIP-392: in sync and in the reader's rack first).

    The order: an in-sync follower in ``rack``; the leader if it is in ``rack``; any in-sync follower; any other
    replica or observer, those in ``rack`` first; the leader.
    """
    in_sync = _living(view, (node_id for node_id in partition.isr if node_id != leader.node_id))
    near = _in_rack(view, in_sync, rack)
    if near:
        return _one_of(near, partition, draw)
    if _in_rack(view, {leader.node_id: leader.endpoint}, rack):
        return leader.endpoint
    if in_sync:
        return _one_of(in_sync, partition, draw)
    others = _living(view, (one for one in (*partition.replicas, *partition.observers) if one != leader.node_id))
    rest = _in_rack(view, others, rack) or others
    # Without another replica the leader serves: it holds one, and its follower service serves it.
    return _one_of(rest, partition, draw) if rest else leader.endpoint


def _living(view: ClusterView, node_ids: Iterable[NodeId]) -> dict[NodeId, Endpoint]:
    found = {}
    for node_id in node_ids:
        node = view.node(node_id)
        if node is not None and not node.fenced and node.client_endpoint is not None:
            found[node_id] = node.client_endpoint
    return found


def _in_rack(view: ClusterView, among: dict[NodeId, Endpoint], rack: str | None) -> dict[NodeId, Endpoint]:
    if rack is None:
        return {}
    racks = {node_id: node.rack for node_id in among if (node := view.node(node_id)) is not None}
    return {node_id: endpoint for node_id, endpoint in among.items() if racks.get(node_id) == rack}


def _one_of(among: dict[NodeId, Endpoint], partition: PartitionImage, draw: int) -> Endpoint:
    # By the partition too: one consumer of many partitions should not read all of them from one node.
    node_ids = sorted(among)
    return among[node_ids[(draw + partition.tp.partition) % len(node_ids)]]
