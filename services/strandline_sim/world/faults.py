"""Carries out each kind of fault in a world, and undoes it.

Invariant (A5): no fault destroys what the guarantees depend on: a disk is wiped only while its node is in no ISR and
no ELR, so that expected loss never hides real loss.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strandline.core.control.messages import AlterTopicConfigs, ConfigChange, TopicRef
from strandline.core.control.topic_configs import MIN_ISR
from strandline.core.types import NodeId, TopicPartition
from strandline_sim.control.controllers import Controllers
from strandline_sim.control.reign_faults import ReignFaults
from strandline_sim.runs.shape import Fault
from strandline_sim.world.clock import RATE_TRUE
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.disk import Disk
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.losses import GreedyDeletion, JoinerFault, Losses
from strandline_sim.world.machine import Machine
from strandline_sim.world.moves import MoveFaults
from strandline_sim.world.network import CONTROLLER, Link
from strandline_sim.world.process import Process


class Faults:
    """Carries out a plan."""

    def __init__(
        self,
        world: Cluster,
        controller: Controllers,
        losses: Losses,
        read_by_all: Callable[[TopicPartition], int],
    ) -> None:
        """``read_by_all``: the offset below which every consumer has read."""
        self._world = world
        self._controller = controller
        self._read_by_all = read_by_all
        self._healed = False
        self.joiner = JoinerFault(world, self._undo)
        self._greedy = GreedyDeletion(world, self._undo, read_by_all)
        self.losses = losses
        self._reigns = ReignFaults(world, controller, self._later)
        self._moves = MoveFaults(world, controller, self._later)
        self._kinds: dict[str, Callable[[Fault], bool]] = {
            "kill": self._kill,
            "power": self._power,
            "blackout": self._blackout,
            "wipe": self._wipe,
            "partition": self._partition,
            "one_way": self._one_way,
            "isolate": self._isolate,
            "pause": self._pause,
            "clock": self._clock,
            "churn": self._churn,
            "lag": self._lag,
            "late_alter": self._late_alter,
            "slow_fsync": self._slow_fsync,
            "controller_kill": self._controller_kill,
            "rollback": self._rollback,
            "stop": self._stop,
            "clog": self._clog,
            "min_isr": self._min_isr,
            "delete_records": self._delete_records,
            "fsync_fails": self._fsync_fails,
            "joiner": self.joiner.begin,
            "lost_tail": self._lost_tail,
            "restore": self._restore,
            "dead_cluster": self._dead_cluster,
            **self._reigns.kinds,
            **self._moves.kinds,
        }

    def plan(self) -> None:
        """Put the whole plan on the timeline."""
        for fault in self._world.shape.plan:
            self._world.timeline.at(fault.at_us, self._happen, fault)

    def _happen(self, fault: Fault) -> None:
        if not self._healed and self._kinds[fault.kind](fault):
            self._world.coverage.saw(f"fault: {fault.kind}")

    def heal(self) -> None:
        """Undo everything; nothing of the plan happens any more."""
        self._healed = True
        self.joiner.heal()
        world = self._world
        world.network.heal_all(self._outcast_links())
        self._controller.heal()
        self._controller.recover()
        self._controller.start()
        for machine in world.machines.values():
            if machine.node_id == world.outcast and world.shape.outcast_kind == "dead":
                machine.bury()
                continue
            machine.lag_us = machine.slow_fsync_us = 0
            machine.fsync_fails = None
            machine.clock.set_rate(RATE_TRUE)
            machine.resume()
            machine.start()
        self._set_min_isr(world.shape.min_isr)
        self._moves.heal()

    def _outcast_links(self) -> list[Link]:
        """The links that stay cut for ever (L8)."""
        world = self._world
        if world.outcast is None or world.shape.outcast_kind == "dead":
            return []
        one = int(world.outcast)
        others = [int(n) for n in world.machines if n != one] + [CONTROLLER]
        mute, deaf = [(one, other) for other in others], [(other, one) for other in others]
        return {"cut": mute + deaf, "mute": mute, "deaf": deaf}[world.shape.outcast_kind]

    def _machine(self, pick: int) -> Machine[Process]:
        """A node; every other time the leader of some partition, where faults hurt most."""
        world = self._world
        machines = list(world.machines.values())
        leaders = [p.leader for p in world.metadata.partitions.values() if p.leader is not None]
        if pick & 1 and leaders:
            return world.machines[leaders[(pick >> 1) % len(leaders)]]
        return machines[(pick >> 1) % len(machines)]

    def _later(self, fault: Fault, undo: Callable[[], object]) -> None:
        self._world.timeline.after(fault.duration_us, self._undo, undo)

    def _undo(self, undo: Callable[[], object]) -> None:
        if not self._healed:
            undo()

    def _say(self, text: str) -> None:
        self._world.note("--", text)

    def _kill(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        self._say(f"kill -9 n{machine.node_id}")
        self._later(fault, machine.start)
        return machine.kill()

    def _power(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        self._say(f"power off n{machine.node_id}")
        self._later(fault, machine.start)
        return machine.lose_power()

    def _blackout(self, fault: Fault) -> bool:
        self._say("power off all nodes")
        # Keyed by the fault, so that a plan with one fault fewer draws the same for the others.
        draw = Draw(self._world.shape.seed, Purpose.FAULT, fault.at_us)
        for machine in self._world.machines.values():
            machine.lose_power()
            duration_us = draw.between(20_000, fault.duration_us + 20_000)
            self._world.timeline.after(duration_us, self._undo, machine.start)
        if fault.other & 1:
            self._controller_kill(fault)
        return True

    def _wipe(self, fault: Fault) -> bool:
        machines = [machine for machine in self._world.machines.values() if self._may_wipe(machine.node_id)]
        if not machines:
            return False
        machine = machines[fault.pick % len(machines)]
        self._say(f"new disk for n{machine.node_id}")
        machine.wipe()
        self.losses.wiped(machine.node_id)
        self._later(fault, machine.start)
        return True

    def _may_wipe(self, node_id: NodeId) -> bool:
        partitions = self._world.metadata.partitions.values()
        return all(node_id not in p.isr and node_id not in p.elr and p.leader != node_id for p in partitions)

    def _stop(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        self._say(f"SIGTERM n{machine.node_id}")
        machine.stop()
        return machine.running is not None

    def _pause(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        self._say(f"SIGSTOP n{machine.node_id} for {fault.duration_us // 1000} ms")
        machine.pause()
        self._later(fault, machine.resume)
        return machine.is_paused

    def _clock(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        rate = 500 + fault.other % 1501
        self._say(f"clock of n{machine.node_id} runs at {rate / 1000}")
        machine.clock.set_rate(rate)
        return True

    def _slow_fsync(self, fault: Fault) -> bool:
        machine = self._machine(fault.pick)
        machine.slow_fsync_us = 50_000 + fault.other % 250_000
        self._say(f"fsync of n{machine.node_id} takes {machine.slow_fsync_us // 1000} ms more")
        self._later(fault, partial(setattr, machine, "slow_fsync_us", 0))
        return True

    def _fsync_fails(self, fault: Fault) -> bool:
        """The next commit fails; every other time the power goes, too, before the process is back."""
        machine = self._machine(fault.pick)
        if machine.running is None:
            return False
        machine.fsync_fails = bool(fault.other & 1)
        self._say(f"the next fsync of n{machine.node_id} fails")
        return True

    def _delete_records(self, fault: Fault) -> bool:
        """An operator deletes records that every consumer has read, or some of them."""
        world = self._world
        tp = world.tps[fault.pick % len(world.tps)]
        leader = world.leader_of(tp)
        process = world.machines[leader].running if leader is not None else None
        read = self._read_by_all(tp)
        if process is None or not process.is_registered or read == 0:
            return False
        offset = read - fault.other % min(read, 40)
        self._say(f"delete records of p{tp.partition} below {offset}")
        process.hand(process.delete_records, tp, offset)
        self._greedy.begin(fault, tp)
        return True

    def _lost_tail(self, fault: Fault) -> bool:
        """A process is killed, and its logs lose their ends, durable or not."""
        machine = self._machine(fault.pick)
        if not self.losses.may_lose(machine.node_id):
            return False
        self._say(f"kill -9 n{machine.node_id}, and the ends of its logs are gone")
        machine.kill()
        self._later(fault, machine.start)
        return self.losses.lose_tails(machine, self._draw_of(fault))

    def _restore(self, fault: Fault) -> bool:
        """A directory is copied, and put back a while later; every other time its process has restarted meanwhile."""
        machine = self._machine(fault.pick)
        backup = machine.disk.copied()
        self._say(f"the directory of n{machine.node_id} is copied")
        if fault.other & 1:
            self._world.timeline.after(fault.duration_us // 2, self._undo, lambda: self._bounce(machine))
        self._later(fault, lambda: self._put_back(machine, backup))
        return True

    def _bounce(self, machine: Machine[Process]) -> None:
        if machine.kill():
            machine.start()

    def _put_back(self, machine: Machine[Process], backup: Disk) -> None:
        if self.losses.may_lose(machine.node_id):
            self._say(f"the copy takes the place of n{machine.node_id}'s directory")
            machine.kill()
            if self.losses.restore(machine, backup):
                self._world.coverage.saw("directory restored")
            machine.start()

    def _dead_cluster(self, fault: Fault) -> bool:
        """All processes die, one disk loses records, and the processes come back in any order, quickly or late."""
        world, draw = self._world, self._draw_of(fault)
        victim = self._machine(fault.pick)
        backup = victim.disk.copied() if fault.other & 1 else None
        self._say(f"all nodes die in {fault.duration_us // 1000} ms, and the disk of n{victim.node_id} loses something")

        def die() -> None:
            for machine in world.machines.values():
                machine.kill() if draw.chance(500) else machine.lose_power()
            if self.losses.may_lose(victim.node_id):
                lost = self.losses.restore(victim, backup) if backup else self.losses.lose_tails(victim, draw)
                world.coverage.saw("cluster died and a disk lost records", int(lost))
            late_us = draw.choose((200_000, 1_500 * world.controller_timings.session_timeout_ms))
            for machine in world.machines.values():
                world.timeline.after(draw.between(10_000, late_us), self._undo, machine.start)
            if fault.other & 2:
                self._controller_kill(fault)

        self._later(fault, die)
        return True

    def _draw_of(self, fault: Fault) -> Draw:
        """Keyed by the fault: a plan with one fault less draws the same for the others."""
        return Draw(self._world.shape.seed, Purpose.FAULT, fault.at_us)

    def _cut(self, fault: Fault, links: list[Link], text: str) -> bool:
        self._say(f"cut {text} for {fault.duration_us // 1000} ms")
        network = self._world.network
        network.cut(links)
        self._later(fault, lambda: network.heal(links))
        return True

    def _partition(self, fault: Fault) -> bool:
        """Cut one node off from the others, 40 % of the time from the controller too."""
        one = int(self._machine(fault.pick).node_id)
        others = [int(n) for n in self._world.machines if n != one]
        if fault.other % 10 < 4:
            others.append(CONTROLLER)
        links = [(one, other) for other in others] + [(other, one) for other in others]
        return self._cut(fault, links, f"n{one} from {others}")

    def _one_way(self, fault: Fault) -> bool:
        one = int(self._machine(fault.pick).node_id)
        others = [int(n) for n in self._world.machines if n != one]
        if fault.other & 2:
            others = [others[(fault.other >> 3) % len(others)]]
        if fault.other & 4:
            others.append(CONTROLLER)
        if fault.other & 1:
            return self._cut(fault, [(one, other) for other in others], f"n{one} -> {others} (mute)")
        return self._cut(fault, [(other, one) for other in others], f"{others} -> n{one} (deaf)")

    def _isolate(self, fault: Fault) -> bool:
        """Cut the controller off from one node, or from all."""
        ones = [int(self._machine(fault.pick).node_id)]
        if fault.other % 4 == 0:
            ones = [int(n) for n in self._world.machines]
        links = [(one, CONTROLLER) for one in ones] + [(CONTROLLER, one) for one in ones]
        return self._cut(fault, links, f"the controller from {ones}")

    def _clog(self, fault: Fault) -> bool:
        """A link becomes slow in one direction."""
        network = self._world.network
        one = int(self._machine(fault.pick).node_id)
        others = [int(n) for n in self._world.machines if n != one] + [CONTROLLER]
        link = (one, others[fault.other % len(others)])
        network.clogged_us[link] = 20_000 + fault.other % 400_000
        self._say(f"clog {link} by {network.clogged_us[link] // 1000} ms")
        self._later(fault, lambda: network.clogged_us.pop(link, None))
        return True

    def _lag(self, fault: Fault) -> bool:
        """One node receives metadata late."""
        machine = self._machine(fault.pick)
        machine.lag_us = 50_000 + fault.other % 850_000
        self._say(f"metadata reaches n{machine.node_id} {machine.lag_us // 1000} ms late")
        self._later(fault, partial(setattr, machine, "lag_us", 0))
        return True

    def _late_alter(self, fault: Fault) -> bool:
        network = self._world.network
        network.late_alter = True
        self._say("AlterPartition requests come late or twice")
        self._later(fault, partial(setattr, network, "late_alter", False))
        return True

    def _controller_kill(self, fault: Fault) -> bool:
        self._say("kill -9 controller")
        self._later(fault, self._controller.start)
        return self._controller.kill()

    def _rollback(self, fault: Fault) -> bool:
        """A backup replaces the controller's store; nodes that notice nothing are informed in the end
        (TR18)."""
        controller = self._controller
        if not controller.roll_back(fault.other):
            return False
        self._say("the controller's store is a backup")
        self._later(fault, controller.start)
        self._world.timeline.after(fault.duration_us + 1_500_000, controller.recover)
        return True

    def _churn(self, fault: Fault) -> bool:
        """Hold one to three needless elections of ISR members."""
        for turn in range(1 + fault.other % 3):
            self._world.timeline.after(turn * (fault.duration_us // 8), self._elect, fault.pick + turn * 7)
        return True

    def _elect(self, pick: int) -> None:
        world = self._world
        process = self._controller.process
        partitions = list(world.metadata.partitions.values())
        if process is None or not partitions or self._healed:
            return
        image = partitions[pick % len(partitions)]
        if image.isr:
            process.elect(image.tp, image.isr[(pick >> 3) % len(image.isr)])

    def _min_isr(self, fault: Fault) -> bool:
        """An operator changes min.insync.replicas for a while (TR19)."""
        factor = self._world.shape.replication_factor
        self._set_min_isr(2 + fault.other % (factor - 1))
        self._later(fault, lambda: self._set_min_isr(self._world.shape.min_isr))
        return True

    def _set_min_isr(self, value: int) -> None:
        self._say(f"min.insync.replicas={value}")
        change = ConfigChange(TopicRef(topic_id=self._world.topic_id), ((MIN_ISR, str(value)),))
        self._controller.order(AlterTopicConfigs(topics=(change,)))
