"""Calls to etcd: the choice of the member, the deadline, and the meaning of a missing answer.

Invariant: every call has a deadline. Reads are linearizable and try one member after the other until one answers; a
write is sent once, because only its caller can find out whether it was carried out (C9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import grpc

from strandline.core.messages import Endpoint
from strandline.etcd import errors
from strandline.etcd.v1 import etcd_pb2 as pb
from strandline.rpc import channels
from strandline.rpc.channels import target

# ---- member_choice
# Decides which member of etcd the next call goes to.
#
# Invariant: after an unanswered call, the next one goes to a member that reports a leader, if one is found within the
# call's time. Connections to a machine that is gone stay open, and a member without a leader does not answer its calls:
# trying the members in turn would cost a whole deadline for each of them (C3).

LOOK_S = 0.25
"""How long a member may take to report whether it knows a leader."""

KnowsLeader = Callable[[Endpoint], Awaitable[bool]]
"""Asks one member whether it knows a leader; raises `EtcdError` if it does not answer."""


class MemberChoice:
    """The members of one etcd cluster, and the one to ask."""

    def __init__(self, endpoints: Sequence[Endpoint], knows_leader: KnowsLeader) -> None:
        assert endpoints, "a cluster of etcd has at least one member"
        self.endpoints = tuple(endpoints)
        self._knows_leader = knows_leader
        self._index = 0
        self._left: Endpoint | None = None
        self._looking = asyncio.Lock()

    @property
    def member(self) -> Endpoint:
        """The member that the next call goes to, unless another one is found first."""
        return self.endpoints[self._index]

    def leave(self, member: Endpoint) -> None:
        """Ask another member next, because ``member`` did not answer, unless another caller has already left it."""
        if member == self.member:
            self._left = member
            self._index = (self._index + 1) % len(self.endpoints)

    async def settled(self, within_s: float) -> Endpoint:
        """The member to ask now; if the last one did not answer, another is searched for up to ``within_s`` seconds."""
        deadline_s = asyncio.get_running_loop().time() + within_s
        async with self._looking:
            if self._left is not None:
                await self._look_until(deadline_s, self._left)
        return self.member

    async def _look_until(self, deadline_s: float, left: Endpoint) -> None:
        """Find a member that knows a leader; if there is none, the next in turn stays chosen, and will report why."""
        loop = asyncio.get_running_loop()
        order = [*(each for each in self.endpoints if each != left), left]
        while True:
            said = await asyncio.gather(*(self._look(each) for each in order))
            if True in said:
                self._index = self.endpoints.index(order[said.index(True)])
                break
            # Members that answer but know no leader are electing one; if none answers there is nothing to wait for.
            if False not in said or loop.time() + _AGAIN_S > deadline_s:
                break
            await asyncio.sleep(_AGAIN_S)
        self._left = None

    async def _look(self, member: Endpoint) -> bool | None:
        """Whether ``member`` knows a leader; None if it does not answer."""
        try:
            return await asyncio.wait_for(self._knows_leader(member), LOOK_S)
        except (errors.EtcdError, TimeoutError):
            return None


READ_S = 1.0
WRITE_S = 2.0
"""How long a member may take before the next one is asked, and before a write counts as unanswered (C3)."""

_PING_EVERY_MS = 10_000
"""etcd ends connections with more frequent pings than every 5 s, and drops their calls (C3)."""
_PING_TIMEOUT_MS = 5_000
_MOST_BYTES = 64 << 20
_AGAIN_S = 0.05


class _Answer(Protocol):
    @property
    def header(self) -> pb.ResponseHeader: ...


_A = TypeVar("_A", bound=_Answer)


class User(NamedTuple):
    """The user that this process authenticates as, if etcd requires a password."""

    name: str
    password: str


class Etcd:
    """An etcd cluster, by its members' addresses. ``credentials`` is called whenever a member is dialled."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        credentials: Callable[[], grpc.ChannelCredentials] | None = None,
        user: User | None = None,
        read_s: float = READ_S,
        write_s: float = WRITE_S,
    ) -> None:
        self._choice = MemberChoice(endpoints, self._knows_leader)
        self._credentials = credentials
        self._user = user
        self._read_s = read_s
        self._write_s = write_s
        self._channels: dict[Endpoint, grpc.aio.Channel] = {}
        # The streams of watches, with their members.
        self._watches: dict[Any, Endpoint] = {}
        self._token: str | None = None
        self.revision = 0
        """The highest revision in any linearizable answer."""
        self.cluster_id = 0
        """etcd's own id of its cluster; 0 before the first answer."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The members."""
        return self._choice.endpoints

    @property
    def member(self) -> Endpoint:
        """The member that the next call goes to, unless another one is found first."""
        return self._choice.member

    def move_on(self, member: Endpoint) -> None:
        """Ask another member next, because ``member`` did not answer (C3)."""
        self._choice.leave(member)

    async def answering(self, within_s: float) -> Endpoint:
        """The member to ask now; if the last one did not answer, another is searched for up to ``within_s`` seconds.

        Watches at other members are ended, because a machine that is gone does not end its connections.
        """
        member = await self._choice.settled(within_s)
        for stream, at in list(self._watches.items()):
            if at != member:
                stream.cancel()
        return member

    async def _knows_leader(self, member: Endpoint) -> bool:
        return bool((await self.status(member)).leader)

    async def until_serving(self, within_s: float) -> None:
        """Wait until a majority answers.

        Raises:
            Unanswered: there was no answer within ``within_s``.
            NotPermitted, EtcdError: see `errors`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        while True:
            try:
                await self.get(b"\0")
                return
            except errors.Unanswered:
                if loop.time() > deadline_s:
                    raise
                await asyncio.sleep(_AGAIN_S)

    async def close(self) -> None:
        """Close every connection."""
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Read keys, linearizably.

        Raises:
            Unanswered: no member has a majority behind it.
            Compacted, NotPermitted, EtcdWentBack, EtcdError: see `errors`.
        """
        assert not request.serializable, "a member cut off from its majority answers such a reading (C3)"
        return await self._read("/etcdserverpb.KV/Range", request, pb.RangeResponse)

    async def get(self, key: bytes) -> pb.KeyValue | None:
        """Read one key; None if it does not exist. Raises as `range`."""
        kvs = (await self.range(pb.RangeRequest(key=key))).kvs
        return kvs[0] if kvs else None

    async def page(self, begin: bytes, end: bytes, revision: int, limit: int) -> Sequence[pb.KeyValue]:
        """The first keys of a range, as of a revision or, with 0, of the newest; raises as `range`."""
        request = pb.RangeRequest(key=begin, range_end=end, revision=revision, limit=limit)
        return (await self.range(request)).kvs

    async def look(self, *operations: pb.RequestOp) -> pb.TxnResponse:
        """Read several keys or ranges at one revision; raises as `range`."""
        return await self._read("/etcdserverpb.KV/Txn", pb.TxnRequest(success=operations), pb.TxnResponse)

    async def txn(
        self,
        compare: Sequence[pb.Compare],
        success: Sequence[pb.RequestOp],
        failure: Sequence[pb.RequestOp] = (),
    ) -> pb.TxnResponse:
        """Do ``success`` if every comparison holds, else ``failure``; sent once.

        Raises:
            Unanswered: it may have been done, or may still be.
            NoSpace, LeaseGone, NotPermitted, EtcdWentBack, EtcdError: it was not done.
        """
        request = pb.TxnRequest(compare=compare, success=success, failure=failure)
        return await self._write("/etcdserverpb.KV/Txn", request, pb.TxnResponse)

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Write one key; return the revision. Raises as `txn`."""
        request = pb.PutRequest(key=key, value=value, lease=lease)
        return (await self._write("/etcdserverpb.KV/Put", request, pb.PutResponse)).header.revision

    async def delete(self, key: bytes, range_end: bytes = b"") -> int:
        """Delete keys; return how many existed. Raises as `txn`."""
        request = pb.DeleteRangeRequest(key=key, range_end=range_end)
        return (await self._write("/etcdserverpb.KV/DeleteRange", request, pb.DeleteRangeResponse)).deleted

    async def grant(self, ttl_s: int) -> int:
        """Take a lease; return its id.

        Raises:
            Unanswered: there may be a lease that this process does not know; it expires.
            NoSpace, NotPermitted, EtcdError: there is no lease.
        """
        request = pb.LeaseGrantRequest(ttl=ttl_s)
        return (await self._once("/etcdserverpb.Lease/LeaseGrant", request, pb.LeaseGrantResponse, self._write_s)).id

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys. Raises as `txn`."""
        request = pb.LeaseRevokeRequest(id=lease)
        await self._once("/etcdserverpb.Lease/LeaseRevoke", request, pb.LeaseRevokeResponse, self._write_s)

    async def renew(self, lease: int) -> None:
        """Restart a lease's whole time, counted by etcd from some moment during this call.

        Raises:
            LeaseGone: the lease has ended.
            Unanswered, NotPermitted, EtcdError: it was not renewed, or the outcome is unknown.
        """
        began_s = asyncio.get_running_loop().time()
        member = await self.answering(self._read_s)
        method = self._channel(member).stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=pb.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=pb.LeaseKeepAliveResponse.FromString,
        )
        stream = method(metadata=await self.metadata(member), timeout=_left_s(self._read_s, began_s))
        try:
            await stream.write(pb.LeaseKeepAliveRequest(id=lease))
            answer = await stream.read()
        except grpc.aio.AioRpcError as error:
            raise self.failed(member, error) from error
        except asyncio.InvalidStateError as error:
            # The call ended before the request was written.
            self.move_on(member)
            raise errors.Unanswered(f"etcd member {target(member)}: the call ended before it began") from error
        finally:
            stream.cancel()
        if not isinstance(answer, pb.LeaseKeepAliveResponse):
            self.move_on(member)
            raise errors.Unanswered(f"etcd member {target(member)} closed the stream of renewals")
        if answer.ttl <= 0:
            raise errors.LeaseGone(f"lease {lease:x} is over")

    async def status(self, member: Endpoint) -> pb.StatusResponse:
        """The status of one member: its release, its alarms, the size of its file.

        Raises:
            Unanswered, NotPermitted, EtcdError: it did not report it.
        """
        method = self._channel(member).unary_unary(
            "/etcdserverpb.Maintenance/Status",
            request_serializer=pb.StatusRequest.SerializeToString,
            response_deserializer=pb.StatusResponse.FromString,
        )
        try:
            call = method(pb.StatusRequest(), timeout=self._read_s, metadata=await self.metadata(member))
            return await call
        except grpc.aio.AioRpcError as error:
            raise errors.error_of(target(member), error) from error

    def watch_stream(self, member: Endpoint, metadata: tuple[tuple[str, str], ...]) -> Any:
        """Open a stream of watches at one member, which ends as soon as that member has no leader (C3)."""
        method = self._channel(member).stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        stream = method(metadata=(*metadata, ("hasleader", "true")))
        self._watches[stream] = member
        return stream

    def watch_ended(self, stream: Any) -> None:
        """End a stream of `watch_stream`."""
        self._watches.pop(stream, None)
        stream.cancel()

    async def _read(self, path: str, request: Any, kind: type[_A]) -> _A:
        last: errors.EtcdError | None = None
        for _ in self.endpoints:
            try:
                return await self._checked(path, request, kind, self._read_s)
            except errors.Unanswered as error:
                last = error
        assert last is not None
        raise last

    async def _write(self, path: str, request: Any, kind: type[_A]) -> _A:
        return await self._checked(path, request, kind, self._write_s)

    async def _checked(self, path: str, request: Any, kind: type[_A], timeout_s: float) -> _A:
        """Make a linearizable call: its revision must not be below one that was known before it began (C40)."""
        known = self.revision
        answer = await self._once(path, request, kind, timeout_s)
        header = answer.header
        if header.revision < known:
            raise errors.EtcdWentBack(
                f"etcd answered with revision {header.revision}, but had reached {known}: it was restored from an "
                f"older snapshot"
            )
        self.revision = max(self.revision, header.revision)
        self.cluster_id = header.cluster_id
        return answer

    async def _once(self, path: str, request: Any, kind: type[_A], timeout_s: float) -> _A:
        began_s = asyncio.get_running_loop().time()
        member = await self.answering(timeout_s)
        for again in (True, False):
            method = self._channel(member).unary_unary(
                path,
                request_serializer=type(request).SerializeToString,
                response_deserializer=cast(Any, kind).FromString,
            )
            try:
                metadata = await self.metadata(member)
                call: Awaitable[_A] = method(request, timeout=_left_s(timeout_s, began_s), metadata=metadata)
                return await call
            except grpc.aio.AioRpcError as error:
                if again and self._user is not None and errors.INVALID_TOKEN in (error.details() or ""):
                    # Refused before it was processed, so it may be sent again.
                    self._token = None
                    continue
                raise self.failed(member, error) from error
        raise AssertionError("the second attempt returns or raises")

    async def metadata(self, member: Endpoint) -> tuple[tuple[str, str], ...]:
        """The metadata of every call: the token, if there is a user. Raises as `status`."""
        if self._user is None:
            return ()
        if self._token is None:
            method = self._channel(member).unary_unary(
                "/etcdserverpb.Auth/Authenticate",
                request_serializer=pb.AuthenticateRequest.SerializeToString,
                response_deserializer=pb.AuthenticateResponse.FromString,
            )
            request = pb.AuthenticateRequest(name=self._user.name, password=self._user.password)
            try:
                self._token = (await method(request, timeout=self._write_s)).token
            except grpc.aio.AioRpcError as error:
                raise self.failed(member, error) from error
        return (("token", self._token),)

    def failed(self, member: Endpoint, error: grpc.aio.AioRpcError) -> errors.EtcdError:
        """The error for a call or stream that failed; if the member does not answer, move on to another one."""
        failure = errors.error_of(target(member), error)
        if isinstance(failure, errors.Unanswered):
            self.move_on(member)
        return failure

    def _channel(self, member: Endpoint) -> grpc.aio.Channel:
        channel = self._channels.get(member)
        if channel is None:
            channels.note_use()
            options: list[tuple[str, Any]] = [
                ("grpc.keepalive_time_ms", _PING_EVERY_MS),
                ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
                ("grpc.max_receive_message_length", _MOST_BYTES),
                ("grpc.max_send_message_length", _MOST_BYTES),
                ("grpc.use_local_subchannel_pool", 1),
                *channels.NO_PROXY,
                *channels.reconnection(dial_ms=channels.TLS_DIAL_MS if self._credentials is not None else None),
            ]
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(target(member), options=options)
            else:
                channel = grpc.aio.secure_channel(target(member), self._credentials(), options=options)
            self._channels[member] = channel
        return channel


def _left_s(timeout_s: float, began_s: float) -> float:
    """The time left for a call that began at ``began_s``, in seconds."""
    return max(0.0, timeout_s - (asyncio.get_running_loop().time() - began_s))
