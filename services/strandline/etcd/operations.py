"""The parts of a transaction, by what they mean.

Invariant: a key that must not have been replaced is compared by its create revision, never by being there (C7).
"""

from __future__ import annotations

from strandline.etcd.v1 import etcd_pb2 as pb

_EQUAL = 0
_CREATE = 1
_MOD = 2

DELETE = 1
"""The type of an event that deletes its key."""


def created_at(key: bytes, revision: int) -> pb.Compare:
    """That ``key`` is still the one that ``revision`` created; 0: that it is not there."""
    return pb.Compare(result=_EQUAL, target=_CREATE, key=key, create_revision=revision)


def written_at(key: bytes, revision: int) -> pb.Compare:
    """That ``key`` was last written by ``revision``; 0: that it is not there."""
    return pb.Compare(result=_EQUAL, target=_MOD, key=key, mod_revision=revision)


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    """Write a key, held by a lease if one is given."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def get(key: bytes, range_end: bytes = b"") -> pb.RequestOp:
    """Read a key, or every key up to ``range_end``."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=range_end))


def delete(key: bytes, range_end: bytes = b"") -> pb.RequestOp:
    """Delete a key, or every key up to ``range_end``."""
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end))


def found(answer: pb.TxnResponse, index: int) -> pb.KeyValue | None:
    """The one key that operation number ``index``, a `get`, found."""
    kvs = answer.responses[index].response_range.kvs
    return kvs[0] if kvs else None
