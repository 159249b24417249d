"""Faults of several controllers and their store: kills, pauses, cuts, clocks, hand-overs, and failures of the store.

Invariant: only the restore loses stored data; a fault of one controller does not touch the others or the
store.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strandline_sim.control.controllers import ControllerMachine, Controllers
from strandline_sim.control.store import STORE
from strandline_sim.runs.shape import Fault
from strandline_sim.world.clock import RATE_TRUE
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Link

Later = Callable[[Fault, Callable[[], object]], None]


class ReignFaults:
    """The faults of a world with several controllers. ``later`` runs the undoing action when the fault is over."""

    def __init__(self, world: Cluster, controller: Controllers, later: Later) -> None:
        self._world = world
        self._group = controller
        self._later = later
        self.kinds: dict[str, Callable[[Fault], bool]] = {
            "reign_kill": self._kill,
            "reign_kill_in_parts": self._kill_in_parts,
            "parts_unanswered": self._parts_unanswered,
            "reign_pause": self._pause,
            "reign_clock": self._clock,
            "reign_cut_store": self._cut_store,
            "reign_cut_peers": self._cut_peers,
            "reign_cut_nodes": self._cut_nodes,
            "hand_over": self._hand_over,
            "end_lease": self._end_lease,
            "watch_breaks": self._watch_breaks,
            "watch_lags": self._watch_lags,
            "store_away": self._store_away,
            "store_full": self._store_full,
            "store_lossy": self._store_lossy,
            "store_restored": self._store_restored,
        }

    def _machine(self, pick: int) -> ControllerMachine:
        """A controller; three times out of four the one that reigns."""
        group = self._group
        active = group.active
        return active if active is not None and pick & 3 else group.machines[(pick >> 2) % len(group.machines)]

    def _say(self, text: str) -> None:
        self._world.note("--", text)

    def _kill(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        self._say(f"kill -9 {machine.name}")
        self._later(fault, machine.start)
        return machine.kill()

    def _kill_in_parts(self, fault: Fault) -> bool:
        """The next process that puts a part of a transaction is killed before it writes the entry that names it."""
        store = self._group.store

        def kill(name: str) -> None:
            store.on_part = lambda _: None
            machine = next(each for each in self._group.machines if each.name == name)
            self._say(f"kill -9 {name} between parts and transaction")
            self._world.timeline.after(fault.duration_us, machine.start)
            machine.kill()

        store.on_part = kill
        return True

    def _parts_unanswered(self, fault: Fault) -> bool:
        """The next transaction that names parts is stored, but the answer is lost."""
        self._group.store.loses_next_named = True
        return True

    def _pause(self, fault: Fault) -> bool:
        """SIGSTOP; every other time for longer than the lease."""
        machine = self._machine(fault.pick)
        if machine.is_paused or machine.process is None:
            return False
        self._say(f"pause {machine.name}")
        machine.pause()
        extra_us = 3_000_000 if fault.other & 1 else 0
        self._world.timeline.after(fault.duration_us + extra_us, machine.resume)
        return True

    def _clock(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        machine.clock.set_rate(500 + fault.other % 1_501)
        self._say(f"the clock of {machine.name} runs at {machine.clock.rate / 1_000}")
        self._later(fault, lambda: machine.clock.set_rate(RATE_TRUE))
        return True

    def _cut(self, fault: Fault, machine: ControllerMachine, others: list[int], what: str) -> bool:
        """Cut both directions, or one of them."""
        there: list[Link] = [(machine.address, other) for other in others]
        back: list[Link] = [(other, machine.address) for other in others]
        links = (there + back, there + back, there, back)[fault.other & 3]
        self._say(f"cut {machine.name} from {what}")
        network = self._world.network
        network.cut(links)
        self._later(fault, lambda: network.heal(links))
        return True

    def _cut_store(self, fault: Fault) -> bool:
        return self._cut(fault, self._machine(fault.pick), [STORE], "the store")

    def _cut_peers(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        return self._cut(fault, machine, [a for a in self._group.addresses if a != machine.address], "its peers")

    def _cut_nodes(self, fault: Fault) -> bool:
        return self._cut(fault, self._machine(fault.pick), [int(n) for n in self._world.machines], "the nodes")

    def _hand_over(self, fault: Fault) -> bool:
        machine = self._group.active
        if machine is None or machine.process is None:
            return False
        others = [each.name for each in self._group.machines if each is not machine]
        to = others[fault.other % 2] if fault.other & 4 else None
        self._say(f"{machine.name} hands over to {to or 'anybody'}")
        machine.process.hand(machine.process.hand_over, to)
        return True

    def _end_lease(self, fault: Fault) -> bool:
        """A lease is revoked while it is used (etcd #15247)."""
        key = self._group.store.key
        if key is None:
            return False
        self._say(f"the lease of {key.controller_id} ends")
        self._group.store.end_lease(key.lease_id)
        return True

    def _watch_breaks(self, fault: Fault) -> bool:
        self._group.store.break_watches()
        return True

    def _watch_lags(self, fault: Fault) -> bool:
        """Watches show changes up to a second and a half late; reads show them at once."""
        store = self._group.store
        store.watch_lag_us = 50_000 + fault.other % 1_450_000
        self._say(f"watches of the store lag by {store.watch_lag_us // 1_000} ms")
        self._later(fault, partial(setattr, store, "watch_lag_us", 0))
        return True

    def _store_away(self, fault: Fault) -> bool:
        store = self._group.store
        if store.is_away:
            return False
        self._say("the store has no quorum")
        store.is_away = True
        extra_us = 3_000_000 if fault.other & 1 else 0
        self._world.timeline.after(fault.duration_us + extra_us, self._comes_back)
        return True

    def _comes_back(self) -> None:
        if self._group.store.is_away:
            self._say("the store has a quorum again")
            self._group.store.comes_back()

    def _store_full(self, fault: Fault) -> bool:
        store = self._group.store
        store.is_full = True
        self._say("the store is full")
        self._later(fault, partial(setattr, store, "is_full", False))
        return True

    def _store_lossy(self, fault: Fault) -> bool:
        store = self._group.store
        store.loses_answers = True
        self._say("the store's answers get lost")
        self._later(fault, partial(setattr, store, "loses_answers", False))
        return True

    def _store_restored(self, fault: Fault) -> bool:
        """The store is replaced by a copy that lacks its last entries, while the controllers run (C40)."""
        if not self._group.restore(fault.other):
            return False
        self._say("the store is restored from a copy")
        return True
