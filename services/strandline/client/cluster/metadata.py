"""The client's connection to the cluster: subscribes to metadata at any process, so it learns of leaders at once.

Invariant: there is always exactly one subscription under way or about to be; every wait on what it brings has a
deadline; without any answer the last view stays in use, and producing and consuming continue with it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from strandline.client.background import Background, countdown
from strandline.client.cluster import subscribing
from strandline.client.cluster.repeating import ask_again
from strandline.client.cluster.view import ClusterView, UpdateTaken
from strandline.client.errors import ClientClosed, ClusterUnreachable, ControllersAway, NotAController
from strandline.client.log import RetryLog
from strandline.client.settings import DEFAULT_CLIENT_ID, parse_client_id
from strandline.client.token import Token, TokenCallback
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint, MetadataImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline.rpc import channels
from strandline.rpc.channels import Backoff, Channels, UnaryMethod, call, parse_endpoint, target
from strandline.rpc.convert.metadata import read_endpoint, read_image
from strandline.rpc.convert.subscription import MetadataUpdate, read_current_metadata
from strandline.rpc.status import KEY_UNKNOWN, refusal_of
from strandline.rpc.tls import CallMetadata, open_tls
from strandline.v1 import controller_service_pb2 as pb, metadata_service_pb2, partition_pb2
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.metadata_service_pb2_grpc import MetadataServiceAsyncStub

T = TypeVar("T")
_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

DEFAULT_TIMEOUT_MS = 10_000
SILENCE_MS = 2_500
"""A subscription that is silent for this long is moved to another server; a live one sends something every 2 s."""
_MOST_PATIENCE = 8
"""How often the time is doubled at most, once for each round in which no server sent anything: all may be busy."""
WATCH_SILENCE_MS = 15_000
"""The same for a controller without MetadataService, which sends signs of life less often."""
PRODUCER_ID_MS = 2_000
"""How long to wait for a producer id from one process, before a controller or the next node is asked."""
METADATA_STALE_MS = 30_000
"""If metadata is older than this, another server is tried (C63)."""
ELSEWHERE_MS = 5_000
"""How long to stay at a server whose metadata is stale, or older than what was seen."""


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[Endpoint]:
    """``"host:port,host:port"`` or a list of such addresses.

    Raises:
        ValueError: an entry is not an address, or there is none.
    """
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    found = [parse_endpoint(entry.strip()) for entry in entries if entry.strip()]
    if not found:
        raise ValueError("bootstrap names no address; write host:port, for example 127.0.0.1:9092")
    return found


class Cluster:
    """The client's connection to a cluster: its view, and the channels to its nodes and controllers."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        stale_ms: int = METADATA_STALE_MS,
        elsewhere_ms: int = ELSEWHERE_MS,
        all_topics: bool = False,
        client_id: str = DEFAULT_CLIENT_ID,
        on_trouble: Callable[[BaseException | None], None] = lambda _: None,
        tls_cert: str | Path | bytes = "",
        tls_key: str | Path | bytes = "",
        tls_ca: str | Path | bytes = "",
        token: TokenCallback | None = None,
    ) -> None:
        """``bootstrap``: any processes of the cluster, controllers or data nodes. ``timeout_ms`` bounds `start` and
        every request without a deadline of its own. Without ``all_topics`` the view has the topics that were
        requested with `topic` or `want`. ``client_id`` is the first word of the user agent of every call.
        ``on_trouble`` is that of `background`, which owns the tasks of the whole client.

        TLS is given as paths or as PEM in bytes, all three or none; files that change are read again. With ``token``
        the client shows what this returns, and of TLS only ``tls_ca`` is given.

        Raises:
            ValueError: the bootstrap names no address, ``client_id`` is no such name, or what is given for TLS cannot
                be used.
        """
        self.view = ClusterView()
        self.client_id = parse_client_id(client_id)
        self._token = None if token is None else Token(token)
        tls = open_tls(tls_cert, tls_key, tls_ca) if self._token is None else self._token.tls(tls_cert, tls_key, tls_ca)
        self.channels = Channels(tls=tls, client_id=client_id)
        self.timeout_ms = timeout_ms
        self._bootstrap = parse_bootstrap(bootstrap)
        # Shuffled, so that not all clients with the same list use its first address.
        self._drawn = random.sample(self._bootstrap, len(self._bootstrap))
        self.controllers = subscribing.Controllers(self.channels, self._bootstrap, has_certificate=token is None)
        self._patience = 1
        self._stale_ms = stale_ms
        self._elsewhere_ms = elsewhere_ms
        self._wanted = subscribing.WantedTopics(everything=all_topics)
        # Whether the view has exactly the wanted topics, so that their changes are enough.
        self._holds_what_is_wanted = False
        self._source = self._drawn[0]
        self._age_ms: tuple[int, float] | None = None
        self.background = Background(self._troubled)
        self._on_trouble = on_trouble
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._last_error = "no answer yet"
        self._hopeless: Exception | None = None
        self._other_services: set[Endpoint] = set()
        self._retry = RetryLog("following metadata")
        self.heard_s: float | None = None
        """When the subscription last received anything, including signs of life, by `time.monotonic`; None if never."""

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, None before the first snapshot."""
        return self.view.image.cluster_id if self.view.image is not None else None

    @property
    def image(self) -> MetadataImage:
        """The newest state.

        Raises:
            ClientClosed: not started.
        """
        if self.view.image is None:
            raise ClientClosed("not connected; use `async with`, or await start() first")
        return self.view.image

    @property
    def living(self) -> dict[NodeId, Endpoint]:
        """The addresses of the nodes that are not fenced.

        Raises:
            ClientClosed: not started.
        """
        nodes = {node.node_id: node.client_endpoint for node in self.image.nodes if not node.fenced}
        return {node_id: endpoint for node_id, endpoint in nodes.items() if endpoint is not None}

    @property
    def metadata_age_ms(self) -> int | None:
        """The greatest possible age of the view, in ms, as the server reported it plus the time since; or None."""
        if self._age_ms is None:
            return None
        age_ms, heard_s = self._age_ms
        return age_ms + int(1_000 * (time.monotonic() - heard_s))

    @property
    def source(self) -> Endpoint:
        """The process that answered last."""
        return self._source

    async def start(self) -> None:
        """Subscribe, and wait for the first snapshot.

        Raises:
            NotAController: every address answered, and none of them serves metadata.
            ClusterUnreachable: no node answered within ``timeout_ms``.
            Refused: CLUSTER_AUTHORIZATION_FAILED, our certificate may not watch the cluster;
            SASL_AUTHENTICATION_FAILED, our token is not accepted.
            NoToken: the callback gave none.
            ForkedAfterUse: this process was forked from one that had used gRPC.
        """
        channels.note_use()
        # A client that could not be started may be started again.
        self.background.is_closed = False
        if self._token is not None:
            await self._token.renew()
            self.background.start(self._token.keep_forever, "keep the token new")
        self.background.start(self._follow_forever, "follow metadata")
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                while self.view.image is None and self._hopeless is None:
                    self._check()
                    await self._changed.wait()
            if self._hopeless is not None:
                # A retry would not help, and callers should not have to wait for the deadline.
                raise self._hopeless
        except BaseException as error:
            # A caller may give up, too, and `async with` does not leave what it could not enter.
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            listed = ", ".join(target(endpoint) for endpoint in self._bootstrap)
            raise ClusterUnreachable(f"no process answered at {listed}: {self._last_error}") from None

    async def close(self) -> None:
        """End the subscription and close every channel."""
        try:
            await self.background.close()
        finally:
            # Replaced, because on an event that stays set a wait would never let the loop run.
            self._changed.set()
            self._changed = asyncio.Event()
            await self.channels.close()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change of the view."""
        self._listeners.append(listener)

    def refresh(self) -> None:
        """The view turned out to be wrong: if the subscription is down, reopen it now instead of later."""
        self._hurry.set()

    def note_leader(self, tp: TopicPartition, said: partition_pb2.CurrentLeader) -> None:
        """Use the leader that a node named in a refusal (KIP-951), until metadata names a newer one."""
        if not said.HasField("leader_id") or not said.HasField("leader_epoch"):
            return
        endpoint = read_endpoint(said.endpoint) if said.HasField("endpoint") else None
        if self.view.hint(tp, NodeId(said.leader_id), LeaderEpoch(said.leader_epoch), endpoint):
            self.changed()

    def _troubled(self, error: BaseException | None) -> None:
        # Waiting callers check again, and raise the error or restart cancelled work.
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_trouble(error)

    def _check(self) -> None:
        if self.background.is_closed:
            raise ClientClosed("the client was closed; make another one")
        self.background.check()

    def changed(self) -> None:
        """Wake all callers that wait for another view."""
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self._listeners:
            listener()

    async def wait_for(
        self, look: Callable[[ClusterView], T | None], *, otherwise: Refusal, deadline_ms: int | None = None
    ) -> T:
        """Wait until ``look`` finds something in the view, and return it.

        Raises:
            Refused: ``otherwise``, when the deadline (in ms, default ``timeout_ms``) has passed.
        """
        self.refresh()
        limit_ms = self.timeout_ms if deadline_ms is None else deadline_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while (found := look(self.view)) is None:
                    self._check()
                    await self._changed.wait()
                return found
        except TimeoutError:
            raise Refused(otherwise.code, otherwise.message, otherwise.outcome) from None

    async def topic(self, name: str, *, deadline_ms: int | None = None) -> TopicImage:
        """A topic with its partitions, after waiting for it to exist. The client follows it from now on.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION at the deadline.
        """
        self.want(name)
        unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic is named '{name}'; create it first")
        return await self.wait_for(lambda view: view.topic(name), otherwise=unknown, deadline_ms=deadline_ms)

    def want(self, name: str) -> None:
        """Follow this topic from now on; it is in the view once it has arrived."""
        self._wanted.add(name)

    async def ask_controller(
        self, method: subscribing.Method[_Request, _Answer], request: _Request, *, deadline_ms: int | None = None
    ) -> _Answer:
        """One call to a controller, as `ask`; ``method`` takes it from the controller's stub.

        Raises:
            Refused: the answer's refusal.
            ControllersAway: none accepts a connection; nothing was asked.
            ClusterUnreachable: no answer in time; the work may have been done.
        """
        self._check()
        left = countdown(deadline_ms or self.timeout_ms)
        endpoint = await self.controllers.first(left)
        try:
            return await self.ask(method(self.controllers.stub(endpoint)), request, deadline_ms=left())
        except ClusterUnreachable:
            self.controllers.passed_over(endpoint)
            raise
        except Refused as refused:
            hint = refused.refusal.hint
            if refused.refusal.code is not ErrorCode.NOT_CONTROLLER or hint is None:
                raise
            if not hint.endpoint:
                self.controllers.passed_over(endpoint)
                raise
        # A standby did nothing, and names the active controller (C31).
        active = parse_endpoint(hint.endpoint)
        self.controllers.met(active)
        return await self.ask(method(self.controllers.stub(active)), request, deadline_ms=left())

    async def init_producer_id(self) -> pb.InitProducerIdResponse:
        """An identity for a producer, from our metadata source, whatever process that is, else from a controller or
        node.

        Safe to repeat: a lost answer only costs an id. Nodes have a supply for times without an active controller.

        Raises:
            Refused, ClusterUnreachable: as `ask_controller`.
        """
        request = pb.InitProducerIdRequest(cluster_id=self.cluster_id)
        limit_ms = min(self.timeout_ms, PRODUCER_ID_MS)
        try:
            return await self.ask(self.controllers.stub(self._source).InitProducerId, request, deadline_ms=limit_ms)
        except (Refused, ClusterUnreachable):
            # The source may be a node of an earlier release, or may have gone away.
            pass
        try:
            return await self.ask_controller(lambda to: to.InitProducerId, request)
        except (Refused, ClusterUnreachable):
            for node in self._nodes():
                with suppress(Refused, ClusterUnreachable):
                    return await self.ask(self.controllers.stub(node).InitProducerId, request, deadline_ms=limit_ms)
            raise

    async def ask(
        self, method: UnaryMethod[_Request, _Answer], request: _Request, *, deadline_ms: int | None = None
    ) -> _Answer:
        """One call with a deadline. Never repeated here: after a lost answer the work may have been done.

        Raises:
            Refused: the answer's refusal.
            ClusterUnreachable: there was no connection, or no answer in time.
        """
        channels.check()
        self._check()
        left = countdown(deadline_ms or self.timeout_ms)
        shown = self._shown()
        try:
            return await self._ask_once(method, request, left())
        except Refused as refused:
            if refused.refusal.code is not ErrorCode.SASL_AUTHENTICATION_FAILED or self._token is None:
                raise
        # Nothing was done. Try once more, with a new token.
        with suppress(TimeoutError):
            async with asyncio.timeout(left() / 1000):
                await self._token.replace(shown)
        return await self._ask_once(method, request, left())

    async def _ask_once(self, method: UnaryMethod[_Request, _Answer], request: _Request, deadline_ms: int) -> _Answer:
        try:
            return await call(method, request, deadline_ms=deadline_ms)
        except Refused as refused:
            # A server answers with these codes too; only if the call itself failed is it unknown what was done.
            lost = isinstance(
                refused.__cause__, grpc.aio.AioRpcError | asyncio.CancelledError
            ) and refused.refusal.code in (
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            if not lost:
                raise
            raise ClusterUnreachable(str(refused.refusal)) from refused

    def _shown(self) -> CallMetadata:
        return () if self._token is None else self._token.metadata()

    async def ask_while(
        self,
        holds: Callable[[], bool],
        method: UnaryMethod[_Request, _Answer],
        request: _Request,
        *,
        deadline_ms: int | None = None,
    ) -> _Answer:
        """As `ask`, but gives up as soon as the view shows that another process should be asked, in case this one
        hangs.

        Raises:
            Refused, ClusterUnreachable: as `ask`; ClusterUnreachable also when it was given up.
        """
        asking = asyncio.ensure_future(self.ask(method, request, deadline_ms=deadline_ms))

        def look() -> None:
            if not holds():
                asking.cancel()

        self._listeners.append(look)
        try:
            # A cancellation ends only this wait, so the call itself is cancelled below.
            await asyncio.wait([asking])
        finally:
            self._listeners.remove(look)
            asking.cancel()
        if asking.cancelled():
            raise ClusterUnreachable("no answer, and metadata names another process meanwhile")
        return asking.result()

    async def fetch_image(self, *, linearizable: bool = False) -> MetadataImage:
        """The current state from the controller, not as it was last sent; from our source if no controller is active.

        ``linearizable``: the controller first confirms that it is active, and no other process is asked (C14b).

        Raises:
            Refused, ClusterUnreachable: as `ask`.
        """
        request = pb.GetMetadataRequest(cluster_id=self.cluster_id, linearizable=linearizable)
        # A node, or a controller that was paused and replaced, may answer with an older state (C14b).
        if linearizable:
            answer = await ask_again(self, lambda to: to.GetMetadata, request, repeats=waits_for_a_node)
            return read_image(answer.metadata, is_snapshot=True)
        try:
            answer = await self.ask_controller(lambda controller: controller.GetMetadata, request)
        except ControllersAway:
            return await self._image_of_source()
        except Refused as refused:
            if refused.refusal.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return await self._image_of_source()
        return read_image(answer.metadata, is_snapshot=True)

    async def _image_of_source(self) -> MetadataImage:
        stub: MetadataServiceAsyncStub = MetadataServiceStub(self.channels.to(self._source))
        request = metadata_service_pb2.MetadataServiceGetMetadataRequest(cluster_id=self.cluster_id)
        return read_current_metadata(await self.ask(stub.GetMetadata, request))[1]

    async def _follow_forever(self) -> None:
        backoff = Backoff()
        while True:
            heard_s = self.heard_s
            for endpoint in self._candidates():
                hinted = await self._follow_at(endpoint, backoff)
                if hinted is not None:
                    # Only once: two controllers that name each other must not make this loop without pauses (C31).
                    await self._follow_at(hinted, backoff)
                await self._pause(backoff)
            self._patience = min(2 * self._patience, _MOST_PATIENCE) if self.heard_s == heard_s else 1

    async def _follow_at(self, endpoint: Endpoint, backoff: Backoff) -> Endpoint | None:
        """Follow one address until that ends; returns the address that it names instead, if any."""
        shown = self._shown()
        try:
            await self._follow(endpoint, backoff)
            self._last_error = f"{target(endpoint)} ended the subscription"
        except grpc.aio.AioRpcError as error:
            self._refused(endpoint, error)
            refusal = refusal_of(error)
            if refusal.code is ErrorCode.SASL_AUTHENTICATION_FAILED and self._token is not None:
                await self._token.replace(shown)
            if refusal.hint is not None and refusal.hint.endpoint:
                with suppress(ValueError):
                    return parse_endpoint(refusal.hint.endpoint)
        except Refused as refused:
            self._last_error = f"{target(endpoint)}: {refused}"
        except TimeoutError:
            self._last_error = f"{target(endpoint)} fell silent"
        return None

    def _candidates(self) -> list[Endpoint]:
        known = [node for node in self._nodes() if node not in self._other_services]
        return list(dict.fromkeys([*self._drawn, *known]))

    def _nodes(self) -> list[Endpoint]:
        return list(self.living.values()) if self.view.image is not None else []

    def _refused(self, endpoint: Endpoint, error: grpc.aio.AioRpcError) -> None:
        refusal = refusal_of(error)
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            self._other_services.add(endpoint)
            self._last_error = f"{target(endpoint)} serves no metadata"
            # The connection works, so the name would never be resolved again, although it may have moved.
            self.channels.renew(endpoint, grace_s=0)
        else:
            self._other_services.discard(endpoint)
            self._last_error = str(refusal)
        # Once there is a view the client works on with it, whatever one address says.
        if self.view.image is not None:
            return
        # A server learns a key that is new to it within half a minute, so such a token may still be accepted (ADR 33).
        is_unknown = refusal.code is ErrorCode.SASL_AUTHENTICATION_FAILED and refusal.rule != KEY_UNKNOWN
        if is_unknown or refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._hopeless = Refused.of(refusal)
        elif self._other_services.issuperset(self._bootstrap):
            self._hopeless = NotAController([target(endpoint) for endpoint in self._bootstrap])
        else:
            return
        self._changed.set()

    async def _follow(self, endpoint: Endpoint, backoff: Backoff) -> None:
        """Apply this server's updates until the stream ends, or until another server may have newer ones."""
        try:
            await self._subscribe(endpoint, backoff)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            watch = subscribing.WatchedStream(self.channels, endpoint, self.cluster_id)
            await self._take_all(endpoint, watch, backoff, WATCH_SILENCE_MS)

    async def _subscribe(self, endpoint: Endpoint, backoff: Backoff) -> None:
        stream = subscribing.SubscribedStream(self.channels, endpoint, self._wanted, self.cluster_id)
        silence_ms = SILENCE_MS * self._patience
        try:
            async with asyncio.timeout(silence_ms / 1000):
                await stream.begin(self.view.newest if self._holds_what_is_wanted else None)
            await self._take_all(endpoint, stream, backoff, silence_ms)
        finally:
            stream.close()

    async def _take_all(
        self, endpoint: Endpoint, stream: subscribing.MetadataStream, backoff: Backoff, silence_ms: int
    ) -> None:
        began_s = time.monotonic()
        try:
            while True:
                async with asyncio.timeout(silence_ms / 1000):
                    update = await stream.read()
                if update is None:
                    return
                now_s = self.heard_s = time.monotonic()
                self._retry.worked()
                taken = self._take(endpoint, update)
                # What an older server sends only once was ignored, so its later changes would not fit the view.
                if taken is UpdateTaken.UNUSABLE or (taken is UpdateTaken.OLDER and _is_awaited(update)):
                    return
                backoff.reset()
                if taken is UpdateTaken.NEWS:
                    self._holds_what_is_wanted = isinstance(stream, subscribing.SubscribedStream)
                    self._wanted.took(update)
                    self.changed()
                is_time = 1_000 * (now_s - began_s) >= self._elsewhere_ms
                if is_time and self._is_stale(update) and len(self._candidates()) > 1:
                    return
        finally:
            stream.close()

    def _take(self, endpoint: Endpoint, update: MetadataUpdate) -> UpdateTaken:
        taken = self.view.apply(update)
        if taken is UpdateTaken.UNUSABLE:
            return taken
        self.controllers.named(update.controllers)
        if update.as_of.node_id is None:
            # Only the active controller reports metadata without an age (C62).
            note = self.controllers.seen if update.as_of.age_ms else self.controllers.met
            note(endpoint)
        if taken is not UpdateTaken.OLDER:
            self._source = endpoint
            self._age_ms = (update.as_of.age_ms, time.monotonic())
        return taken

    def _is_stale(self, update: MetadataUpdate) -> bool:
        is_behind = update.as_of.metadata_offset >= 0 and update.as_of.is_before(self.view.newest)
        return is_behind or update.as_of.age_ms > self._stale_ms

    async def _pause(self, backoff: Backoff) -> None:
        self._retry.failed(time.monotonic() * 1000, self._last_error)
        self._hurry.clear()
        try:
            async with asyncio.timeout(backoff.next_s()):
                await self._hurry.wait()
        except TimeoutError:
            return
        # Even in a hurry wait a moment, so that a refused connection cannot make this loop spin.
        await asyncio.sleep(0.02)


def _is_awaited(update: MetadataUpdate) -> bool:
    """Whether it has something that the stream will not send again: the state of topics, not only a change of it."""
    return update.is_snapshot or bool(update.topics or update.missing)


def waits_for_a_node(refusal: Refusal) -> bool:
    """Whether a controller is active but must hear from a node before it answers (C37)."""
    return refusal.hint is not None and refusal.hint.why == "UNHEARD"
