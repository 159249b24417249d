"""One controller's view of all controllers of its cluster, and the hand-over from the active one to another.

Invariant: every controller can list all of them, a standby too; only the active one can hand over.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
import structlog

from strandline.core.control.draft import change_image
from strandline.core.control.state import ClusterState, Transaction
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.core.reigns.events import Head
from strandline.etcd.errors import EtcdError
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd import EtcdStore
from strandline.metadata.etcd_layout import Presence
from strandline.metadata.store import StoreFailed
from strandline.rpc.channels import Channels, call, parse_endpoint
from strandline.rpc.convert.describe import ControllerDescribed, read_controllers
from strandline.rpc.convert.metadata import CONTROLLER_ID
from strandline.rpc.convert.subscription import KnownController
from strandline.rpc.tls import Tls, open_tls
from strandline.runtime.clock import Clock
from strandline.runtime.exit_codes import ExitCode
from strandline.subscriptions.feed import MetadataFeed
from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc


class Among(Protocol):
    """A controller as one of all controllers of its cluster."""

    async def describe(self) -> tuple[ControllerDescribed, ...]:
        """All running controllers.

        Raises:
            Refused: their store does not answer.
        """
        ...

    async def confirm(self) -> None:
        """Return once it is certain that this controller was the active one when this was called (C14b).

        Raises:
            Refused: another one is active, or the store does not answer.
        """
        ...

    async def hand_over_to(self, to: str | None) -> str:
        """Stop deciding in favour of ``to``, or of any other controller; return this controller's id.

        Raises:
            Refused: this controller is not active, or there is no such successor.
        """
        ...


class Alone:
    """The only controller of its cluster."""

    def __init__(self, endpoints: Callable[[], tuple[Endpoint, Endpoint]], offset: Callable[[], int]) -> None:
        self._endpoints = endpoints
        self._offset = offset

    async def describe(self) -> tuple[ControllerDescribed, ...]:
        """See `Among.describe`."""
        client, internal = self._endpoints()
        return (ControllerDescribed("", client, internal, True, self._offset(), 0),)

    async def confirm(self) -> None:
        """See `Among.confirm`; it is always certain, because the lock on the store excludes every other process."""

    async def hand_over_to(self, to: str | None) -> str:
        """See `Among.hand_over_to`."""
        alone = "this controller is the only one, so none can take over; several controllers need store=etcd"
        raise Refused(ErrorCode.INVALID_REQUEST, alone)


# ---- served_copy
# The metadata that one of several controllers serves, active or standby: its copy of the store (C60).
#
# Invariant: only stored metadata is served. Its age is 0 while this controller is active; otherwise it counts from the
# start of the last read of the store whose head the copy has reached (C62).

_LEARN_S = 5.0
"""Seconds between two readings of the list of running controllers."""

_log = structlog.get_logger("strandline.controller")


class ServedCopy:
    """Feeds the subscribers of one controller from its copy of the store."""

    def __init__(self, store: EtcdStore, *, decides: Callable[[], bool], clock: Clock, merge_ms: int) -> None:
        self.feed = MetadataFeed(age_ms=self._age_ms, controllers=self._known, clock=clock, merge_ms=merge_ms)
        self._store = store
        self._decides = decides
        self._clock = clock
        # The copy is read after this moment, so it is not older.
        self._current_ms = clock()
        self._newest: tuple[int, int] | None = None
        self._present: tuple[Presence, ...] = ()
        store.on_change = self._changed

    def head_read(self, asked_ms: int, head: Head | None) -> None:
        """Note the store's head, from a read that began at ``asked_ms``."""
        self._advance()
        self._newest = asked_ms, -1 if head is None else head.offset

    async def learn_controllers_forever(self) -> None:
        """Keep the list of controllers for subscribers up to date, until cancelled."""
        while True:
            try:
                self._present = await self._store.controllers()
            except (EtcdError, StoreFailed, DamagedDocument) as error:
                _log.debug("the controllers were not read", reason=str(error))
            await asyncio.sleep(_LEARN_S)

    def _changed(self, state: ClusterState, transaction: Transaction | None) -> None:
        self.feed.take(state.snapshot() if transaction is None else change_image(state, transaction))

    def _age_ms(self) -> int:
        if self._decides():
            return 0
        self._advance()
        # Never 0, because 0 means that the sender is the active controller.
        return max(1, self._clock() - self._current_ms)

    def _advance(self) -> None:
        applied = self._store.applied
        if self._newest is not None and self._newest[1] <= (-1 if applied is None else applied.offset):
            self._current_ms, self._newest = self._newest[0], None

    def _known(self) -> tuple[KnownController, ...]:
        """The known controllers, the active one first if this process knows it."""
        active = self._store.active
        known = {} if active is None else {active.controller_id: active}
        for one in self._present:
            known.setdefault(one.controller_id, one)
        return tuple(KnownController(CONTROLLER_ID, client=one.client, internal=one.internal) for one in known.values())


# ---- hand_over
# `strandline controller hand-over`: asks the active controller to hand over to another one (C22).

_DEADLINE_MS = 5_000


async def hand_over(bootstrap: Sequence[Endpoint], to: str | None, tls: Tls | None) -> str:
    """Find the active controller, by asking any of them, and have it hand over; return its id.

    Raises:
        Refused: no controller is active, there is no such successor, or no controller answered.
    """
    channels = Channels(tls=tls)
    try:
        active = await _active(channels, bootstrap)
        request = pb.HandOverRequest(to=to)
        answer = await call(_stub(channels.to(active)).HandOver, request, deadline_ms=_DEADLINE_MS)
        return str(answer.controller_id)
    finally:
        await channels.close()


async def _active(channels: Channels, bootstrap: Sequence[Endpoint]) -> Endpoint:
    failure: Refused | None = None
    for endpoint in bootstrap:
        try:
            method = _stub(channels.to(endpoint)).DescribeControllers
            answer = await call(method, pb.DescribeControllersRequest(), deadline_ms=_DEADLINE_MS)
        except Refused as refused:
            failure = refused
            continue
        for controller in read_controllers(answer):
            if controller.is_active:
                return controller.client
    raise failure or Refused(
        ErrorCode.NOT_CONTROLLER, "no controller decides now; `strandline cluster status` says more"
    )


def _stub(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.ControllerServiceStub(channel)


def main(arguments: Sequence[str]) -> ExitCode:
    """Run ``hand-over [--to ID] --bootstrap ADDRESSES``; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller hand-over",
        description="Have the controller that decides leave that to another one.",
    )
    parser.add_argument("--to", metavar="ID", help="controller_id of the successor; any standby without it")
    parser.add_argument(
        "--bootstrap",
        default=os.environ.get("STRANDLINE_BOOTSTRAP", "127.0.0.1:9090"),
        help="addresses of controllers, host:port, separated by commas",
    )
    for name in ("tls-cert", "tls-key", "tls-ca"):
        parser.add_argument(f"--{name}", default=os.environ.get(f"STRANDLINE_{name.upper().replace('-', '_')}", ""))
    given = parser.parse_args(arguments)
    try:
        endpoints = [parse_endpoint(entry.strip()) for entry in given.bootstrap.split(",") if entry.strip()]
        tls = open_tls(given.tls_cert, given.tls_key, given.tls_ca)
        left = asyncio.run(hand_over(endpoints, given.to, tls))
    except ValueError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return ExitCode.USAGE
    except Refused as refused:
        sys.stderr.write(f"strandline: nothing was handed over: {refused}\n")
        return ExitCode.FAILED
    sys.stdout.write(f"{left} decides no more\n")
    return ExitCode.CLEAN
