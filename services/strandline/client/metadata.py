"""How the client learns of the cluster: it watches the controller, so a new leader is known at once.

Invariant: there is always exactly one watch under way or about to be; every wait on what it brings has a
deadline; while the controller is down the last view stays in use, and producing and consuming continue with it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from strandline.client.background import Background
from strandline.client.errors import ClientClosed, ClusterUnreachable, NotAController
from strandline.client.view import ClusterView
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint, MetadataImage, TopicImage
from strandline.rpc import forks
from strandline.rpc.channels import Backoff, Channels, UnaryMethod, call, parse_endpoint, target
from strandline.rpc.convert_metadata import read_image, read_watch_answer
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import open_tls
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub

T = TypeVar("T")
_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

DEFAULT_TIMEOUT_MS = 10_000
SILENCE_MS = 15_000
"""A watch that is silent for this long is reopened; the controller sends keepalives more often."""


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
    """The client's connection to a cluster: what it knows, and the channels to everybody in it."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        silence_ms: int = SILENCE_MS,
        on_failure: Callable[[BaseException], None] | None = None,
        tls_cert: str | Path = "",
        tls_key: str | Path = "",
        tls_ca: str | Path = "",
    ) -> None:
        """``timeout_ms`` bounds `start` and every question that names no deadline of its own.

        The paths of TLS are all given or none; files that change are read again.

        Raises:
            ValueError: the bootstrap names no address, or the files of TLS cannot be used.
        """
        self.view = ClusterView()
        self.channels = Channels(tls=open_tls(tls_cert, tls_key, tls_ca))
        self.timeout_ms = timeout_ms
        self._bootstrap = parse_bootstrap(bootstrap)
        self._controller = self._bootstrap[0]
        self._silence_ms = silence_ms
        self._background = Background(on_failure)
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._last_error = "no answer yet"
        self._hopeless: Exception | None = None
        self._other_services: set[Endpoint] = set()
        self.heard_s: float | None = None
        """When the watch last brought anything, signs of life included, by `time.monotonic`; None: never."""

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

    async def start(self) -> None:
        """Watch the controller, and wait for its first snapshot.

        Raises:
            NotAController: every address answered, and none of them is a controller.
            ClusterUnreachable: nobody answered within ``timeout_ms``.
            Refused: CLUSTER_AUTHORIZATION_FAILED, our certificate may not watch the cluster.
            ForkedAfterUse: this process was forked from one that had used gRPC.
        """
        forks.note_use()
        self._background.start(self._watch(), "watch metadata")
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                while self.view.image is None and self._hopeless is None:
                    self._background.check()
                    await self._changed.wait()
        except TimeoutError:
            await self.close()
            listed = ", ".join(target(endpoint) for endpoint in self._bootstrap)
            raise ClusterUnreachable(f"no controller answered at {listed}: {self._last_error}") from None
        if self._hopeless is not None:
            # Asking again would not help, and the callers that wait should not wait for the deadline.
            await self.close()
            raise self._hopeless

    async def close(self) -> None:
        """End the watch and close every channel."""
        try:
            await self._background.close()
        finally:
            await self.channels.close()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change of the view."""
        self._listeners.append(listener)

    def refresh(self) -> None:
        """Something the view said turned out wrong: if the watch is down, open it now instead of later."""
        self._hurry.set()

    def changed(self) -> None:
        """Wake all callers that wait for another view."""
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self._listeners:
            listener()

    async def wait_for(
        self, look: Callable[[ClusterView], T | None], *, otherwise: Refusal, deadline_ms: int | None = None
    ) -> T:
        """What ``look`` finds in the view, as soon as it finds something.

        Raises:
            Refused: ``otherwise``, when the deadline (in ms, default ``timeout_ms``) has passed.
        """
        self.refresh()
        limit_ms = self.timeout_ms if deadline_ms is None else deadline_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while (found := look(self.view)) is None:
                    self._background.check()
                    await self._changed.wait()
                return found
        except TimeoutError:
            raise Refused(otherwise.code, otherwise.message, otherwise.outcome) from None

    async def topic(self, name: str, *, deadline_ms: int | None = None) -> TopicImage:
        """A topic with its partitions, waiting for it to exist.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION at the deadline.
        """
        unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic is named '{name}'; create it first")
        return await self.wait_for(lambda view: view.topic(name), otherwise=unknown, deadline_ms=deadline_ms)

    @property
    def controller(self) -> ControllerServiceAsyncStub:
        """The controller that answered last."""
        return ControllerServiceStub(self.channels.to(self._controller))

    async def ask(
        self, method: UnaryMethod[_Request, _Answer], request: _Request, *, deadline_ms: int | None = None
    ) -> _Answer:
        """One call with a deadline. Never repeated here: after a lost answer the work may have been done.

        Raises:
            Refused: the answer's refusal.
            ClusterUnreachable: there was no connection, or no answer in time.
        """
        forks.check()
        try:
            return await call(method, request, deadline_ms=deadline_ms or self.timeout_ms)
        except Refused as refused:
            lost = isinstance(refused.__cause__, grpc.aio.AioRpcError) and refused.refusal.code in (
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            if not lost:
                raise
            raise ClusterUnreachable(str(refused.refusal)) from refused

    async def fetch_image(self) -> MetadataImage:
        """The state as the controller returns it now, not as it was last watched.

        Raises:
            Refused, ClusterUnreachable: as `ask`.
        """
        answer = await self.ask(self.controller.GetMetadata, pb.GetMetadataRequest(cluster_id=self.cluster_id))
        image = read_image(answer.metadata, is_snapshot=True)
        if self.view.apply(image):
            self.changed()
        return image

    async def _watch(self) -> None:
        backoff = Backoff()
        for endpoint in itertools.cycle(self._bootstrap):
            hinted = await self._watch_at(endpoint, backoff)
            if hinted is not None:
                # Once: two controllers that name each other must not keep this from its pauses (C31).
                await self._watch_at(hinted, backoff)
            await self._pause(backoff)

    async def _watch_at(self, endpoint: Endpoint, backoff: Backoff) -> Endpoint | None:
        """Watch at one address until that ends; returns which one it names instead."""
        try:
            await self._follow(endpoint, backoff)
            self._last_error = f"{target(endpoint)} ended the watch"
        except grpc.aio.AioRpcError as error:
            self._refused(endpoint, error)
            hint = refusal_of(error).hint
            return parse_endpoint(hint.endpoint) if hint is not None and hint.endpoint else None
        except TimeoutError:
            self._last_error = f"{target(endpoint)} fell silent"
        return None

    def _refused(self, endpoint: Endpoint, error: grpc.aio.AioRpcError) -> None:
        refusal = refusal_of(error)
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            self._other_services.add(endpoint)
            self._last_error = f"{target(endpoint)} is not a controller"
            # The connection works, so the name would never be resolved again, though the controller may have moved.
            self.channels.renew(endpoint, grace_s=0)
        else:
            self._other_services.discard(endpoint)
            self._last_error = str(refusal)
        if self.view.image is not None:
            return
        if refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._hopeless = Refused.of(refusal)
        elif self._other_services.issuperset(self._bootstrap):
            self._hopeless = NotAController([target(endpoint) for endpoint in self._bootstrap])
        else:
            return
        self._changed.set()

    async def _follow(self, endpoint: Endpoint, backoff: Backoff) -> None:
        stub: ControllerServiceAsyncStub = ControllerServiceStub(self.channels.to(endpoint))
        stream = stub.WatchMetadata(pb.WatchMetadataRequest(cluster_id=self.cluster_id))
        try:
            while True:
                async with asyncio.timeout(self._silence_ms / 1000):
                    message = await stream.read()
                if not isinstance(message, pb.WatchMetadataResponse):
                    return
                self.heard_s = time.monotonic()
                image = read_watch_answer(message)
                if image is None:
                    continue
                if not self.view.apply(image):
                    return
                self._controller = endpoint
                backoff.reset()
                self.changed()
        finally:
            stream.cancel()

    async def _pause(self, backoff: Backoff) -> None:
        self._hurry.clear()
        try:
            async with asyncio.timeout(backoff.next_s()):
                await self._hurry.wait()
        except TimeoutError:
            return
        # Hurried: a moment all the same, so that a refused connection cannot make this loop spin.
        await asyncio.sleep(0.02)
