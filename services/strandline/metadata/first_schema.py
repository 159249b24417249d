"""The documents of the store's first schema, turned into those of the present one.

Invariant: a store is turned as a whole in the transaction that opens it, so no store has documents of both schemas.
"""

from __future__ import annotations

from strandline.core.controller_state import ClusterHeader, NodeRecord, TopicRecord
from strandline.core.messages import PartitionImage
from strandline.metadata.documents import Fields

_OF_THE_IMAGE = (
    "node_id", "node_epoch", "roles", "client_endpoint", "internal_endpoint", "rack", "fenced", "shutting_down",
)  # fmt: skip


def turned(kind: type, old: Fields) -> Fields:
    """A document of the first schema in the form of the present one.

    Raises:
        KeyError, AttributeError: it lacks a field, or has one of a wrong kind.
    """
    return _TURN[kind](old) if kind in _TURN else old


def _header(old: Fields) -> Fields:
    # The earliest stores have no secret; the next start makes one.
    return {"secret": "", **old}


def _node(old: Fields) -> Fields:
    image = {name: old[name] for name in _OF_THE_IMAGE}
    return {"image": image, **{name: value for name, value in old.items() if name not in image}}


def _topic(old: Fields) -> Fields:
    return {**old, "configs": sorted(old["configs"].items())}


def _partition(old: Fields) -> Fields:
    return {"unproven": [], "tp": [old["topic_id"], old["partition"]], **old}


_TURN = {ClusterHeader: _header, NodeRecord: _node, TopicRecord: _topic, PartitionImage: _partition}
