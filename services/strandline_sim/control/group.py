"""What a process of one of several controllers stands on: its machine, the store they share, and what nodes were sent.

Invariant: the machines share nothing but the store and the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from strandline.core.messages import Position, PositionProof
from strandline.core.reigns.events import Head, ReignEvent
from strandline.core.reigns.lease import ReignTimings
from strandline.core.reigns.reign import ReignCore
from strandline.metadata.etcd_layout import TransactionBatch
from strandline_sim.control.store import LeasedStore
from strandline_sim.world.clock import Clock
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import CONTROLLER
from strandline_sim.world.virtual_loop import Life

ADDRESSES = {f"c{number + 1}": CONTROLLER - number for number in range(3)}
"""Where each controller listens, by its name."""
RECOVERS_WITHIN_US = 300_000
TIMINGS = ReignTimings(lease_ms=2_000)


class Group:
    """The store that several controllers share, and what of their decisions nodes were sent."""

    def __init__(self, world: Cluster, store: LeasedStore) -> None:
        self.world = world
        self.store = store
        self.sent: dict[str, int] = {}
        """The last offset of each reign that a node was sent (I23)."""

    def note_sent(self, position: Position | PositionProof | None) -> None:
        """A node is sent a position."""
        if position is not None:
            self.sent[position.reign_id] = max(position.metadata_offset, self.sent.get(position.reign_id, 0))

    def recover_soon(self) -> None:
        """An operator reads that the store is too old."""
        self.world.timeline.after(RECOVERS_WITHIN_US, self.recover)

    def recover(self) -> None:
        """What an operator does with a store that is an older copy."""
        raise NotImplementedError


class Host:
    """What a controller's process finds on its machine."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.world = group.world
        self.name = name
        self.address = ADDRESSES[name]
        self.clock = Clock(group.world.timeline, start_ms=50_000_000 * (1 + CONTROLLER - self.address))
        self.is_paused = False
        self.inbox: list[tuple[Any, Callable[..., object], tuple[Any, ...]]] = []
        self.seen_revision = 0
        """What its disk remembers of the store (C40)."""


class Candidate:
    """A controller's process, whether it reigns or not."""

    reign: object = None

    def __init__(self, machine: Host, life: int) -> None:
        self.machine = machine
        self.world = machine.world
        self.party_id = machine.address
        self.name = machine.name
        self.incarnation = f"{machine.name}-{life}"
        self.alive = True
        self.loop = machine.world.loop
        self.clock = machine.clock
        self.core = ReignCore(self.name, self.incarnation, TIMINGS, machine.seen_revision)
        self._running = Life(self.loop, self.clock, self.hand)

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Do something now, or when the process goes on."""
        if not self.alive:
            return
        if self.machine.is_paused:
            self.machine.inbox.append((self, action, given))
            return
        self._running.enter(action, *given)

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task."""
        return self.loop.own(work)

    def take(self, event: ReignEvent) -> None:
        """Step the core with an event, and with all that follows from it at once."""
        raise NotImplementedError

    def settled(self, batch: TransactionBatch, head: Head) -> None:
        """A batch of the reign is stored."""
        raise NotImplementedError
