"""The parts of a transaction, named by their meaning.

Invariant: a key that must not have been replaced is compared by its create revision, never by its existence (C7).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby
from typing import NamedTuple

import grpc

from strandline.etcd.client import READ_S, Etcd
from strandline.etcd.errors import Compacted, EtcdError, Unanswered
from strandline.etcd.v1 import etcd_pb2 as pb
from strandline.rpc.channels import target

_EQUAL = 0
_CREATE = 1
_MOD = 2

DELETE = 1
"""The type of an event that deletes its key."""


def created_at(key: bytes, revision: int) -> pb.Compare:
    """Compare that ``key`` is still the one created by ``revision``; 0: that it does not exist."""
    return pb.Compare(result=_EQUAL, target=_CREATE, key=key, create_revision=revision)


def written_at(key: bytes, revision: int) -> pb.Compare:
    """Compare that ``key`` was last written by ``revision``; 0: that it does not exist."""
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
    """The only key found by operation number ``index``, which is a `get`; None if it found none."""
    kvs = answer.responses[index].response_range.kvs
    return kvs[0] if kvs else None


# ---- ranges
# Ranges of keys.
#
# Invariant: a range ends before its second key, which is the first one outside it.


def behind(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with ``prefix``, which must not end with the byte 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


# ---- watching
# The changes in a range of keys, one revision at a time.
#
# Invariant: each revision is passed on once, complete and in order, however etcd divides it into messages (C3).


class Changes(NamedTuple):
    """All changes of one revision in the range."""

    revision: int
    events: tuple[pb.Event, ...]


async def watch(etcd: Etcd, key: bytes, range_end: bytes, *, since: int) -> AsyncIterator[Changes]:
    """Yield every change from revision ``since`` on, until the stream breaks or the caller stops.

    Raises:
        Compacted: ``since`` is no longer kept; read everything again.
        Unanswered: the member is gone, has no leader, or left a call without an answer; watch at the next one, from
            behind the last revision.
        NotPermitted, EtcdError: see `errors`.
    """
    member = await etcd.answering(READ_S)
    stream = etcd.watch_stream(member, await etcd.metadata(member))
    create = pb.WatchCreateRequest(key=key, range_end=range_end, start_revision=since)
    done = since - 1
    waiting: list[pb.Event] = []
    try:
        await stream.write(pb.WatchRequest(create_request=create))
        while (message := await stream.read()) is not grpc.aio.EOF:
            if message.canceled:
                raise _ended(message, target(member))
            waiting += message.events
            if message.fragment:
                continue
            for revision, events in groupby(waiting, lambda event: event.kv.mod_revision):
                if revision > done:
                    done = revision
                    yield Changes(revision, tuple(events))
            waiting = []
    except grpc.aio.AioRpcError as error:
        raise etcd.failed(member, error) from error
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise Unanswered(f"etcd member {target(member)} left a call without an answer") from error
    finally:
        etcd.watch_ended(stream)
    etcd.move_on(member)
    raise Unanswered(f"etcd member {target(member)} ended the watch")


def _is_cancelled() -> bool:
    """Whether this task was cancelled, and not only the stream that it reads."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _ended(message: pb.WatchResponse, member: str) -> EtcdError:
    if message.compact_revision:
        return Compacted(f"etcd member {member}: nothing before revision {message.compact_revision} is kept")
    return EtcdError(f"etcd member {member} ended the watch: {message.cancel_reason or 'no reason given'}")
