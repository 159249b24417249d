"""Checks by a connection of the controller's own whether a suspected node is gone.

Invariant: a node is suspected when its metadata watch breaks, but counts as gone only when it refuses a connection from
this process; a time-out or an unreachable network proves nothing, and only the end of the session decides then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import structlog

from strandline.controller.driver import ControllerDriver
from strandline.controller.watches import Watch
from strandline.core.control.events import ConnectionRefused
from strandline.core.messages import Endpoint
from strandline.core.reigns.events import ActiveProbe
from strandline.core.types import NodeEpoch, NodeId

_log = structlog.get_logger("strandline.controller")

_LOOKS = 5
_LOOK_EVERY_S = 0.05
"""A dying process may close its connections before its ports, so one probe is not enough."""

_GATHER_S = 0.03
"""How long the report of the first node waits for others: connections of processes that died together break one after
the other, and nodes that died together must be fenced together (M64)."""

_WAIT_FOR_OTHERS_S = 0.25
"""The same while other probes are under way; bounded, because a machine that drops packets never answers a probe."""


class Prober:
    """Probes nodes whose metadata watch ended without a reason."""

    def __init__(self, driver: ControllerDriver, deadline_ms: int) -> None:
        self._driver = driver
        self._deadline_s = deadline_ms / 1000
        self._looking: dict[NodeId, asyncio.Task[None]] = {}
        # Nodes that refused a connection and are not reported yet.
        self._refused: dict[NodeId, NodeEpoch] = {}
        self._reporting: asyncio.TimerHandle | None = None
        self._closed = False

    def suspect(self, watch: Watch[Any]) -> None:
        """Probe the node whose watch ended, unless a probe of it is under way."""
        if self._closed or watch.node_id is None or watch.node_epoch is None or watch.node_id in self._looking:
            return
        self._spawn(watch.node_id, self._look(watch.node_id, watch.node_epoch))

    def look_at_all(self) -> None:
        """Probe all nodes at the start of a reign: some may have died together with the last controller, unnoticed."""
        for node_id, record in self._driver.core.state.nodes.items():
            if not record.image.fenced and node_id not in self._looking:
                self._spawn(node_id, self._look(node_id, record.image.node_epoch))

    async def close(self) -> None:
        """Stop probing."""
        self._closed = True
        if self._reporting is not None:
            self._reporting.cancel()
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, node_id: NodeId, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._looking[node_id] = task
        task.add_done_callback(lambda _: self._looked(node_id))

    def _looked(self, node_id: NodeId) -> None:
        """Note that a probe ended. Nodes that are gone are reported together, after a short wait for others."""
        self._looking.pop(node_id, None)
        if not self._refused or self._closed:
            return
        if self._reporting is not None:
            if self._looking:
                return
            self._reporting.cancel()
        wait_s = _WAIT_FOR_OTHERS_S if self._looking else _GATHER_S
        self._reporting = asyncio.get_running_loop().call_later(wait_s, self._report)

    def _report(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            self._reporting = None
        refused, self._refused = self._refused, {}
        if not self._driver.may_decide():
            return
        self._driver.step(ConnectionRefused(self._driver.clock(), tuple(refused.items())))

    async def _look(self, node_id: NodeId, node_epoch: NodeEpoch) -> None:
        for _ in range(_LOOKS):
            record = self._driver.core.state.nodes.get(node_id)
            if record is None or record.image.node_epoch != node_epoch or record.image.fenced:
                return
            if record.image.internal_endpoint is None:
                return
            if await self._is_refused(record.image.internal_endpoint):
                _log.warning("node refuses connections", node_id=node_id, node_epoch=node_epoch)
                self._refused[node_id] = node_epoch
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _is_refused(self, endpoint: Endpoint) -> bool:
        try:
            async with asyncio.timeout(self._deadline_s):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            # It was reset while closing, but it had been accepted, so it was not refused.
            return False
        return False


# ---- look_at_active
# Checks by a connection whether the active controller's process is alive (C3).

_CONNECT_S = 0.5
_ALIVE_S = 0.1
"""How long an accepted connection on which nothing is sent must stay open to count as alive."""
MOST_S = 2 * (_CONNECT_S + _ALIVE_S)
"""Time limit for a check of a controller's two addresses."""


async def look_at(addresses: Iterable[Endpoint]) -> ActiveProbe:
    """REACHED if any address is served, REFUSED if each refuses, else SILENT."""
    return _together([await _look(address) for address in addresses])


async def _look(address: Endpoint) -> ActiveProbe:
    """Connect once, and check whether a process is behind the connection.

    A dying process may still accept and reset a moment later; this shows neither life nor a refusal.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return ActiveProbe.REFUSED
    except (OSError, TimeoutError):
        return ActiveProbe.SILENT
    try:
        async with asyncio.timeout(_ALIVE_S):
            # A gRPC server sends first; with TLS it waits for the client, and a stopped process sends nothing either.
            return ActiveProbe.REACHED if await reader.read(1) else ActiveProbe.SILENT
    except TimeoutError:
        return ActiveProbe.REACHED
    except OSError:
        return ActiveProbe.SILENT
    finally:
        writer.close()


def _together(looks: Sequence[ActiveProbe]) -> ActiveProbe:
    if ActiveProbe.REACHED in looks:
        return ActiveProbe.REACHED
    return ActiveProbe.REFUSED if looks and all(look is ActiveProbe.REFUSED for look in looks) else ActiveProbe.SILENT
