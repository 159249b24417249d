"""What a look at a suspected node proves: a refused connection alone, and of the process that was suspected alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.controller import prober
from strandline.controller.prober import Prober
from strandline.core.control.events import ConnectionRefused
from strandline.core.messages import Endpoint
from strandline.core.types import NodeEpoch, NodeId

ONE = NodeId(1)


class OneNode:
    """The driver of a controller that knows one node, which is unfenced."""

    def __init__(self, *, decides: bool = True) -> None:
        image = SimpleNamespace(node_epoch=NodeEpoch(3), fenced=False, internal_endpoint=Endpoint("node", 1))
        self.record = SimpleNamespace(image=image)
        self.core = SimpleNamespace(state=SimpleNamespace(nodes={ONE: self.record}))
        self.seen: list[ConnectionRefused] = []
        self.may_decide = lambda: decides

    def clock(self) -> int:
        return 1_000

    def step(self, event: ConnectionRefused) -> None:
        self.seen.append(event)


async def refused(*_: object) -> Any:
    raise ConnectionRefusedError


async def unreachable(*_: object) -> Any:
    raise OSError("no route to host")


async def silent(*_: object) -> Any:
    await asyncio.Event().wait()


async def _reported(
    monkeypatch: pytest.MonkeyPatch,
    driver: OneNode,
    connect: Callable[..., Awaitable[Any]],
    suspected: int = 3,
) -> list[ConnectionRefused]:
    """What the core hears after a watch of this node epoch ended."""
    monkeypatch.setattr(prober, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(prober, "_GATHER_S", 0)
    monkeypatch.setattr(prober.asyncio, "open_connection", connect)
    core: Any = driver
    looking = Prober(core, deadline_ms=1)
    watch: Any = SimpleNamespace(node_id=ONE, node_epoch=NodeEpoch(suspected))
    looking.suspect(watch)
    async with asyncio.timeout(10):
        while looking._looking or looking._reporting:  # noqa: ASYNC110 - a look from outside
            await asyncio.sleep(0.001)
    await looking.close()
    return driver.seen


async def test_a_refused_connection_is_the_nodes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is gone, long before its session is over."""
    seen = await _reported(monkeypatch, OneNode(), refused)

    assert seen == [ConnectionRefused(1_000, ((ONE, NodeEpoch(3)),))]


@pytest.mark.parametrize("connect", [unreachable, silent])
async def test_what_cannot_be_reached_is_not_called_gone(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., Awaitable[Any]]
) -> None:
    """A time-out and a network without a way prove nothing of the node, which is left to its session."""
    assert await _reported(monkeypatch, OneNode(), connect) == []


async def test_a_newer_process_of_the_node_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may be another one by now, so a refused connection says nothing of it."""
    assert await _reported(monkeypatch, OneNode(), refused, suspected=2) == []


async def test_who_does_not_decide_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reign that ended during the look leaves the node to the next one."""
    assert await _reported(monkeypatch, OneNode(decides=False), refused) == []
