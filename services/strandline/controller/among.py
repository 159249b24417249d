"""What a controller says of all controllers of its cluster, and how it is asked to decide no more.

Invariant: every controller answers who they are, a standby too; only the one that decides can hand over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.rpc.convert_controllers import ControllerDescribed


class Among(Protocol):
    """A controller's place among all of its cluster."""

    async def describe(self) -> tuple[ControllerDescribed, ...]:
        """All controllers that are there.

        Raises:
            Refused: the store that knows does not answer.
        """
        ...

    async def confirm(self) -> None:
        """Return once it is certain that no other controller decided before this was called (C14).

        Raises:
            Refused: another one decides, or the store that knows does not answer.
        """
        ...

    async def hand_over_to(self, to: str | None) -> str:
        """Decide no more, for ``to`` or anybody; returns this controller's id.

        Raises:
            Refused: it does not decide, or there is no such successor.
        """
        ...


class Alone:
    """The only controller."""

    def __init__(self, endpoints: Callable[[], tuple[Endpoint, Endpoint]], offset: Callable[[], int]) -> None:
        self._endpoints = endpoints
        self._offset = offset

    async def describe(self) -> tuple[ControllerDescribed, ...]:
        """See `Among.describe`."""
        client, internal = self._endpoints()
        return (ControllerDescribed("", client, internal, True, self._offset(), 0),)

    async def confirm(self) -> None:
        """See `Among.confirm`; the lock on the store keeps every other process from it."""

    async def hand_over_to(self, to: str | None) -> str:
        """See `Among.hand_over_to`."""
        alone = "this controller is alone, so nobody could take over; several controllers need store=etcd"
        raise Refused(ErrorCode.INVALID_REQUEST, alone)
