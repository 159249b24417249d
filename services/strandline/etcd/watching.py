"""What changed in a range of keys, one revision at a time.

Invariant: a revision is passed on once, whole and in order, however etcd cuts it into messages (C3).
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


class Changes(NamedTuple):
    """Everything that one revision changed in the range."""

    revision: int
    events: tuple[pb.Event, ...]


async def watch(etcd: Etcd, key: bytes, range_end: bytes, *, since: int) -> AsyncIterator[Changes]:
    """Every change from revision ``since`` on, until the stream breaks or the caller stops.

    Raises:
        Compacted: ``since`` is no longer kept; read everything again.
        Unanswered: the member is gone, has no leader, or left a call without an answer; watch at the next one, from
            behind the last revision.
        NotPermitted, EtcdError: see there.
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
    """Whether this task is, and not only the stream that it reads."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _ended(message: pb.WatchResponse, member: str) -> EtcdError:
    if message.compact_revision:
        return Compacted(f"etcd member {member}: nothing before revision {message.compact_revision} is kept")
    return EtcdError(f"etcd member {member} ended the watch: {message.cancel_reason or 'no reason given'}")
