"""Which controller a question goes to, and when the next one is asked instead.

Invariant: a question is sent once. Another address is tried only if not a byte was sent to the one before; who may
ask twice does so by `repeating`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from strandline.client.connecting import is_connected
from strandline.client.errors import ControllersAway
from strandline.core.messages import Endpoint
from strandline.rpc.channels import Channels, UnaryMethod, target
from strandline.rpc.convert_subscription import KnownController
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

Method = Callable[["ControllerServiceAsyncStub"], UnaryMethod[_Request, _Answer]]

CONNECT_MS = 2_000


class Controllers:
    """The addresses at which controllers are, the most likely first."""

    def __init__(self, channels: Channels, bootstrap: list[Endpoint]) -> None:
        self._channels = channels
        self._bootstrap = bootstrap
        # A dict, because it keeps the order in which they became known.
        self._met: dict[Endpoint, None] = {}
        self._named: tuple[KnownController, ...] = ()
        self._passed_over: Endpoint | None = None

    def met(self, endpoint: Endpoint) -> None:
        """A controller answered here."""
        self._met.pop(endpoint, None)
        self._met = {endpoint: None, **self._met}
        if endpoint == self._passed_over:
            self._passed_over = None

    def seen(self, endpoint: Endpoint) -> None:
        """A controller that does not decide is here; it knows which one does."""
        self._met.setdefault(endpoint, None)

    def passed_over(self, endpoint: Endpoint) -> None:
        """A controller here gave no answer, or does not decide and does not know which one does: the others are asked
        first."""
        self._passed_over = endpoint

    def named(self, controllers: tuple[KnownController, ...]) -> None:
        """Somebody said where they are."""
        if controllers:
            self._named = controllers

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where to ask, in order."""
        named = (one.client or one.internal for one in self._named)
        known = dict.fromkeys([*self._met, *(endpoint for endpoint in named if endpoint is not None)])
        found = list(known) or self._bootstrap
        return sorted(found, key=lambda endpoint: endpoint == self._passed_over)

    def stub(self, endpoint: Endpoint) -> ControllerServiceAsyncStub:
        """The controller at an address."""
        return ControllerServiceStub(self._channels.to(endpoint))

    async def first(self, left: Callable[[], int]) -> Endpoint:
        """An address at which something accepts a connection; ``left``: what is left of the call's time, in ms.

        Raises:
            ControllersAway: there is none.
        """
        endpoints = self.endpoints
        for endpoint in endpoints:
            if await is_connected(self._channels.to(endpoint), min(CONNECT_MS, left())):
                return endpoint
        raise ControllersAway([target(endpoint) for endpoint in endpoints], "no connection")
