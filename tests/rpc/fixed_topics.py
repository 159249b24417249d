"""A directory of one topic, for conversions."""

from __future__ import annotations

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint
from strandline.core.types import NodeId

CLUSTER = "cluster-1"
NAME, ID = "orders", "0b6c1c2e-6a52-4d4c-9d0e-5f5a3c1d7e10"


class FixedTopics:
    """Knows topic `orders` and node 2."""

    cluster_id: str | None = CLUSTER

    def resolve(self, name: str, topic_id: str) -> str | Refusal:
        if ID in (topic_id, ID if name == NAME else ""):
            return ID
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic is named '{name}'")

    def name_of(self, topic_id: str) -> str:
        return NAME if topic_id == ID else ""

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        return Endpoint("10.0.0.2", 9092) if node_id == 2 else None
