"""The questions of a reign to etcd and to the active controller: each is a task that ends in exactly one event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2

from strandline.controller import prober
from strandline.core.messages import Endpoint
from strandline.core.reigns import effects, events
from strandline.core.reigns.events import Head, Holder, ReignEvent
from strandline.etcd import client as etcd_client
from strandline.etcd.errors import EtcdError, EtcdWentBack, NoSpace, Unanswered
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd import EtcdStore, StoreView
from strandline.metadata.etcd_layout import Presence, TransactionBatch
from strandline.metadata.store import StoreAway, StoreDamaged, StoreFailed, StoreWentBack
from strandline.observe.controllers import ReignReports
from strandline.rpc.channels import Channels
from strandline.runtime.clock import Clock
from strandline.runtime.process import OwnTasks

READ_S = etcd_client.READ_S + 0.25
WRITE_S = etcd_client.WRITE_S + 0.25
"""A little longer than one member may take, so that another member is tried before the question ends."""
_LOG_S = 30.0
"""Time limit for a take-over to read the part of the log that its watch has not delivered."""
_ANNOUNCE_S = 1.0

_log = structlog.get_logger("strandline.reign")


class ReignQuestions:
    """Asks on behalf of one controller. ``step`` is called with the events."""

    def __init__(
        self,
        store: EtcdStore,
        presence: Presence,
        reports: ReignReports,
        tasks: OwnTasks,
        *,
        clock: Clock,
        step: Callable[[ReignEvent], None],
    ) -> None:
        self.last_offset = 0
        """The offset of the store's head at the last reading."""
        self.unanswered_s: float | None = None
        """Since when every reading of the store has failed, in monotonic seconds; None after an answer."""
        self.on_head_read: Callable[[int, Head | None], None] = lambda _asked_ms, _head: None
        """Called after each reading of the store, with the time at which it began and the store's head."""
        self._store = store
        self._presence = presence
        self._reports = reports
        self._tasks = tasks
        self._clock = clock
        self._step = step
        self._lease: int | None = None
        self._naming: asyncio.Task[None] | None = None
        self._resigning: asyncio.Task[None] | None = None
        self.performs: dict[type[Any], Callable[[Any], None]] = {
            effects.GrantLease: self._grant,
            effects.RenewLease: self._renew,
            effects.RevokeLease: self._revoke,
            effects.Campaign: self._campaign,
            effects.ReadStore: self._read_store,
            effects.ReadLog: self._read_log,
            effects.ReadAlarm: self._read_alarm,
            effects.TakeKey: self._take_key,
            effects.LookAtActive: self._look_at_active,
            effects.Resign: self._resign,
        }

    @property
    def is_store_up(self) -> bool:
        """Whether the last reading of the store was answered."""
        return self.unanswered_s is None

    def append(self, effect: effects.Append, batch: TransactionBatch) -> None:
        """Append ``batch``, whose head is in ``effect``."""

        async def work() -> ReignEvent:
            done = await self._store.append(effect.token, effect.after, batch)
            if isinstance(done, StoreView):
                return events.AppendRefused(self._clock(), effect.question, done.revision, done.holder, done.head)
            return events.Appended(self._clock(), effect.question, done)

        # A large transaction takes several calls, each with its own deadline.
        self._ask(effect.question, work, WRITE_S * (1 + sum(len(piece.parts) for piece in batch.pieces)))

    def name_successor(self, token: int, controller_id: str) -> None:
        """Write the successor's id to the store; a resignation waits until this is done."""
        self._naming = self._tasks.own(self._put_successor(token, controller_id))

    async def resigned(self) -> None:
        """Wait until the last resignation, if there was one, is answered or its deadline has passed."""
        if self._resigning is not None:
            await asyncio.wait({self._resigning})

    async def announce_forever(self) -> None:
        """Keep this controller's address and position in the store up to date, while it has a lease."""
        while True:
            if self._lease is not None:
                try:
                    await self._store.announce(self._present(), self._lease)
                except EtcdError as error:
                    _log.debug("not announced", reason=str(error))
            await asyncio.sleep(_ANNOUNCE_S)

    def _ask(self, question: int, work: Callable[[], Awaitable[ReignEvent]], within_s: float) -> asyncio.Task[None]:
        return self._tasks.own(self._answer(question, work, within_s))

    async def _answer(self, question: int, work: Callable[[], Awaitable[ReignEvent]], within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                event = await work()
        except (Unanswered, StoreAway, TimeoutError):
            event = events.Unanswered(self._clock(), question)
        except NoSpace:
            event = events.NoSpace(self._clock(), question)
        except (EtcdWentBack, StoreDamaged, StoreWentBack, DamagedDocument) as error:
            self._step(events.StoreBroken(self._clock(), f"{error}; nothing is decided from it: run recover"))
            event = events.Unanswered(self._clock(), question)
        except (EtcdError, StoreFailed) as error:
            _log.warning("etcd refused", reason=str(error))
            event = events.Unanswered(self._clock(), question)
        self._step(event)

    def _grant(self, effect: effects.GrantLease) -> None:
        async def work() -> ReignEvent:
            self._lease = await self._store.grant(effect.ttl_ms)
            return events.LeaseGranted(self._clock(), effect.question, self._lease)

        self._ask(effect.question, work, WRITE_S)

    def _renew(self, effect: effects.RenewLease) -> None:
        async def work() -> ReignEvent:
            if await self._store.renew(effect.lease_id):
                return events.LeaseRenewed(self._clock(), effect.question)
            self._lease = None
            return events.LeaseLost(self._clock(), effect.question)

        self._ask(effect.question, work, READ_S)

    def _revoke(self, effect: effects.RevokeLease) -> None:
        self._tasks.own(self._store.revoke(effect.lease_id))

    def _campaign(self, effect: effects.Campaign) -> None:
        async def work() -> ReignEvent:
            won = await self._store.campaign(effect.lease_id, self._present())
            if isinstance(won, int):
                return events.CampaignWon(self._clock(), effect.question, won)
            self._reports.key_taken(False)
            if won.holder is None:
                raise Unanswered("the key came and went")
            return events.CampaignLost(self._clock(), effect.question, won.revision, won.holder)

        self._ask(effect.question, work, WRITE_S)

    def _read_store(self, effect: effects.ReadStore) -> None:
        async def work() -> ReignEvent:
            asked_ms = self._clock()
            try:
                view = await self._store.read()
            except (EtcdError, asyncio.CancelledError):
                # Cancelled means that the time limit was reached.
                self.unanswered_s = self.unanswered_s or self._clock() / 1000
                raise
            self.unanswered_s = None
            self.last_offset = view.head.offset if view.head is not None else 0
            self.on_head_read(asked_ms, view.head)
            return events.StoreRead(self._clock(), effect.question, *view)

        self._ask(effect.question, work, READ_S)

    def _read_log(self, effect: effects.ReadLog) -> None:
        async def work() -> ReignEvent:
            head = await self._store.read_log(effect.head)
            return events.LogRead(self._clock(), effect.question, head)

        self._ask(effect.question, work, _LOG_S)

    def _read_alarm(self, effect: effects.ReadAlarm) -> None:
        async def work() -> ReignEvent:
            return events.AlarmRead(self._clock(), effect.question, await self._store.has_alarm())

        self._ask(effect.question, work, READ_S)

    def _take_key(self, effect: effects.TakeKey) -> None:
        async def work() -> ReignEvent:
            revision, was_taken = await self._store.take_key(effect.token)
            self._reports.key_taken(was_taken)
            return events.KeyTaken(self._clock(), effect.question, revision, was_taken)

        self._ask(effect.question, work, WRITE_S)

    def _look_at_active(self, effect: effects.LookAtActive) -> None:
        async def work() -> ReignEvent:
            active = self._store.active
            addresses = () if active is None else tuple(dict.fromkeys((active.client, active.internal)))
            return events.Looked(self._clock(), effect.question, await prober.look_at(addresses))

        self._ask(effect.question, work, prober.MOST_S + 0.1)

    def _resign(self, effect: effects.Resign) -> None:
        async def work() -> ReignEvent:
            if self._naming is not None:
                await asyncio.wait({self._naming})
            await self._store.resign(effect.token, effect.lease_id)
            return events.Resigned(self._clock(), effect.question)

        self._lease = None
        self._resigning = self._ask(effect.question, work, WRITE_S)

    async def _put_successor(self, token: int, controller_id: str) -> None:
        try:
            await self._store.name_successor(token, controller_id)
        except EtcdError as error:
            _log.warning("the successor is not named", reason=str(error))

    def _present(self) -> Presence:
        applied = self._store.applied
        return self._presence._replace(offset=applied.offset if applied is not None else 0)


# ---- active_stream
# A standby's stream to the active controller; its end is the first sign that the other one has ended (C19).

_AGAIN_S = 0.2


class ActiveStream:
    """Holds one stream, to the last holder given to `follow`.

    ``address_of`` returns a holder's internal address while it is known to be active, else None; ``is_wanted`` returns
    whether this controller still waits for that holder's end; ``lost`` is called when an open stream to a holder broke.
    """

    def __init__(
        self,
        channels: Channels,
        tasks: OwnTasks,
        *,
        address_of: Callable[[Holder], Endpoint | None],
        is_wanted: Callable[[Holder], bool],
        lost: Callable[[Holder], None],
    ) -> None:
        self._channels = channels
        self._tasks = tasks
        self._address_of = address_of
        self._is_wanted = is_wanted
        self._lost = lost
        self._streaming: tuple[int, asyncio.Task[None]] | None = None

    def follow(self, holder: Holder) -> None:
        """Open a stream to this holder instead of the last one; a stream to the same reign is kept."""
        if self._streaming is not None:
            token, streaming = self._streaming
            if token == holder.token:
                return
            streaming.cancel()
        self._streaming = holder.token, self._tasks.own(self._stream_to(holder))

    async def _stream_to(self, holder: Holder) -> None:
        while self._is_wanted(holder):
            address = self._address_of(holder)
            if address is not None and await self._was_open(address):
                self._lost(holder)
            await asyncio.sleep(_AGAIN_S)

    async def _was_open(self, address: Endpoint) -> bool:
        """Stream until the stream breaks; return whether it was ever open."""
        opened = False
        watch = self._channels.to(address).unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        stream = watch(health_pb2.HealthCheckRequest(service=""))
        try:
            async for _ in stream:
                opened = True
        except grpc.aio.AioRpcError:
            return opened
        finally:
            stream.cancel()
        return opened
