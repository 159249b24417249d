"""Several controllers on one store: their machines, and what the rest of a world asks of "the controller".

Invariant: the machines share nothing but the store and the network.
"""

from __future__ import annotations

from typing import Any

from strandline.core.control.messages import ControllerRequest
from strandline.core.control.recovery import position_sent
from strandline.core.reigns.reign import State
from strandline.core.types import TopicPartition
from strandline_sim.checks.checks import Checks
from strandline_sim.checks.committed import Broken
from strandline_sim.control.controller import recovered_from_nodes
from strandline_sim.control.group import ADDRESSES, Group, Host
from strandline_sim.control.one_reign import Reign
from strandline_sim.control.reigning import ReignProcess
from strandline_sim.control.store import LeasedStore
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import CONTROLLER, Call, Stream

DECIDES_WITHIN_US = 6_000_000
MOST_LOST = 8
"""Entries that a restored store lacks."""


class ControllerMachine(Host):
    """The machine of one controller."""

    process: ReignProcess | None = None
    _life = 0

    def start(self) -> None:
        """Start the process, if there is none."""
        if self.process is None:
            self._life += 1
            self.process = ReignProcess(self, self._life)
            self.world.network.parties[self.address] = self.process
            self.process.start()

    def kill(self) -> bool:
        """End the process at once."""
        process, self.process = self.process, None
        self.is_paused = False
        self.inbox.clear()
        if process is None:
            return False
        self.world.network.break_streams_of(process, silently=False)
        process.end()
        return True

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = self.process is not None

    def resume(self) -> None:
        """SIGCONT: what waited happens now."""
        was_paused, self.is_paused = self.is_paused, False
        process = self.process
        if was_paused and process is not None and process.core.state is State.ACTIVE and process.reign is not None:
            inside = not process.reign.is_idle
            self.world.coverage.saw("paused active woke inside an append" if inside else "paused active woke")
        waiting, self.inbox = self.inbox, []
        for each, action, given in waiting:
            self.world.timeline.after(0, each.hand, action, *given)

    def serve(self, request: ControllerRequest, call: Call) -> None:
        """A request arrived."""
        if self.process is not None:
            self.process.serve(request, lambda answer: self.world.network.reply(call, answer))

    def watch_arrived(self, stream: Stream, request: Any) -> None:
        """A node opened a watch."""
        if self.process is not None and self.process is stream.server:
            self.process.watch(stream, request)

    def watch_ended(self, stream: Stream) -> None:
        """A watch ended at this side."""
        if self.process is not None and self.process.reign is not None:
            self.process.reign.watch_ended(stream)


class Controllers(Group):
    """Three controllers and their store, in the place of the one `sim.controller.Controller`."""

    def __init__(self, world: Cluster, checks: Checks) -> None:
        super().__init__(world, LeasedStore(world, checks.committed_state))
        self.machines = [ControllerMachine(self, name) for name in ADDRESSES]
        self.undecidable: set[TopicPartition] = set()
        """Partitions that a recovery had to leave without a leader."""

    @property
    def is_old(self) -> bool:
        """Whether the store is an older copy."""
        return self.store.is_old

    def at(self, address: int) -> ControllerMachine:
        """The machine at an address."""
        return self.machines[CONTROLLER - address]

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where nodes look for a controller."""
        return tuple(machine.address for machine in self.machines)

    @property
    def active(self) -> ControllerMachine | None:
        """The machine whose process holds the key and serves."""
        for machine in self.machines:
            process = machine.process
            if process is not None and process.reign is not None and process.core.serves(machine.clock.ms()):
                key = self.store.key
                if key is not None and key.token == process.core.token and not machine.is_paused:
                    return machine
        return None

    @property
    def process(self) -> Reign | None:
        """The reign that serves now."""
        machine = self.active
        return machine.process.reign if machine is not None and machine.process is not None else None

    def start(self) -> None:
        """Start every process that does not run."""
        for machine in self.machines:
            machine.start()

    def heal(self) -> None:
        """Undo everything that befell controllers and store."""
        self.store.is_full = self.store.loses_answers = self.store.loses_next_named = False
        self.store.watch_lag_us = 0
        self.store.on_part = lambda _: None
        if self.store.is_away:
            self.store.comes_back()
        for machine in self.machines:
            machine.clock.set_rate(1_000)
            machine.resume()
            machine.start()
        self.world.timeline.after(DECIDES_WITHIN_US, self._decides)

    def _decides(self) -> None:
        if self.active is None:
            raise Broken("L9", f"nobody decides {DECIDES_WITHIN_US // 1_000_000} s after everything was healed")

    def end(self) -> None:
        """The run is over."""
        for machine in self.machines:
            if machine.process is not None:
                machine.process.end()

    def kill(self) -> bool:
        """End the active's process, or the first one's if nobody reigns."""
        return (self.active or self.machines[0]).kill()

    def restore(self, pick: int) -> bool:
        """Make the store a copy that lacks its last entries, if a node knows of one of them (C41)."""
        store = self.store
        lost = 1 + pick % MOST_LOST
        if store.is_old or store.is_away or lost >= len(store.log):
            return False
        kept = store.log[-1 - lost].after
        nodes = [machine.disk.seen for machine in self.world.machines.values()]
        known = [
            place.metadata_offset for seen in nodes if seen is not None and (place := position_sent(seen)) is not None
        ]
        topics = {topic.topic_id for seen in nodes if seen is not None for topic in seen.topics}
        assert store.state is not None
        if max(known, default=0) <= kept.header.metadata_offset or store.state.topics.keys() - kept.topics - topics:
            return False
        store.restore(lost)
        return True

    def recover(self) -> None:
        """What an operator does with a store that is an older copy: adopt the newest that the nodes have stored."""
        store = self.store
        if not store.is_old:
            return
        for machine in self.machines:
            machine.kill()
        recovered, undecidable = recovered_from_nodes(self.world, store.state)
        self.undecidable |= undecidable
        store.hold(recovered)
        self.world.coverage.saw("controller recovered")
        self.world.note("ctl", "recovered from what the nodes have stored")
        self.start()

    def roll_back(self, pick: int) -> bool:
        """Here it is `restore` that does so."""
        return False

    def order(self, request: ControllerRequest) -> None:
        """An operator's request to the active controller."""
        machine = self.active
        if machine is not None and machine.process is not None:
            machine.process.hand(machine.process.serve, request, lambda _: None)
