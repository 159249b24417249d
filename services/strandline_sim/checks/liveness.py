"""Whether a healed cluster came back to life: L1-L7 of RELIABILITY.md#invariants.

Invariants: a partition whose ISR and ELR are both empty must stay offline; it says so, and is not asked for more. That
happens to nobody who acknowledges after fsync: no fault takes more from the disks than A5 allows. A partition that
needs the log of the node that never comes back waits for it (M65), until an operator decides.
"""

from __future__ import annotations

from strandline.core.control.election import reports_needed
from strandline.core.messages import PartitionImage
from strandline.core.types import Durability
from strandline_sim.checks.committed import Broken
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process
from strandline_sim.world.world import World


class Convergence:
    """Looks at a world after healing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def missing(self) -> tuple[str, str] | None:
        """The first promise that is not kept yet, with what is missing; None if all are."""
        world = self._world
        if world.controller.process is None:
            return ("L7", "there is no controller")
        offset = world.controller.process.core.state.header.metadata_offset
        for machine in world.machines.values():
            if machine.node_id != world.outcast and (why := self._node(machine, offset)) is not None:
                return why
        for tp in world.tps:
            image = world.metadata.partitions.get(tp)
            if image is None:
                return ("L2", f"{tp.partition} was never made")
            if (why := self._partition(image)) is not None:
                return why
        if any(producer.waits for producer in world.producers):
            return ("L4", "a produce is not answered")
        if world.transactions is not None:
            return world.transactions.missing()
        return world.groups.missing() if world.groups is not None else None

    def check(self) -> None:
        """Raise what is missing, and count what may stay away.

        Raises:
            Broken: under the number of the promise.
        """
        missing = self.missing()
        if missing is not None:
            raise Broken(*missing)
        for image in self._world.metadata.partitions.values():
            if self._waits_for_the_outcast(image):
                self._world.coverage.saw("ended waiting for a log")
            if not _is_given_up(image):
                continue
            if image.tp in self._world.controller.undecidable:
                self._world.coverage.saw("ended offline after a recovery")
                continue
            if self._world.rules.durability is Durability.FSYNC:
                raise Broken("L7", f"partition {image.tp.partition} stays offline, and no disk lost what was durable")
            self._world.coverage.saw("ended offline")

    def _node(self, machine: Machine[Process], metadata_offset: int) -> tuple[str, str] | None:
        process = machine.running
        if process is None or not process.is_registered or process.session.is_fenced:
            return ("L1", f"node {machine.node_id} is not running and unfenced")
        known = process.host.topics.metadata_offset
        if known != metadata_offset:
            return ("L2", f"node {machine.node_id} knows metadata {known}, the controller has {metadata_offset}")
        produces, _ = process.core.parked
        if produces:
            return ("L4", f"node {machine.node_id} still parks {produces} produces")
        return None

    def _partition(self, image: PartitionImage) -> tuple[str, str] | None:
        if _is_given_up(image) or self._waits_for_the_outcast(image):
            return None
        if image.leader is None:
            return ("L7", f"partition {image.tp.partition} has no leader: {image}")
        expected = {node_id for node_id in image.replicas if node_id != self._world.outcast}
        if set(image.isr) != expected:
            return ("L5", f"the ISR of {image.tp.partition} is {image.isr}, not {expected}")
        return self._logs(image)

    def _waits_for_the_outcast(self, image: PartitionImage) -> bool:
        """Whether too few logs can be compared without the one that will never be reported."""
        members = {*image.isr, *image.elr}
        there = members - {self._world.outcast}
        return image.leader is None and there < members and len(there) < reports_needed(image)

    def _logs(self, image: PartitionImage) -> tuple[str, str] | None:
        tp, world = image.tp, self._world
        committed = world.checks.of(tp)
        for node_id in (*image.replicas, *image.observers):
            if node_id == world.outcast:
                continue
            machine = world.machines[node_id]
            process, file = machine.running, machine.log(tp)
            log = process.core.state.logs.get(tp) if process is not None else None
            settled = log is not None and log.leo == log.hw == committed.end and log.is_settled
            if not settled or file.leo != committed.end:
                return ("L6", f"node {node_id} is at {log!r}, committed is {committed.end}")
        leaders = [
            m
            for m in world.machines.values()
            if m.running and m.node_id != world.outcast and tp in m.running.core.state.leaders
        ]
        if len(leaders) != 1:
            return ("L3", f"{[m.node_id for m in leaders]} lead partition {tp.partition}")
        process = leaders[0].running
        if process is not None and process.core.state.leaders[tp].isr.pending is not None:
            return ("L3", f"a proposal of node {leaders[0].node_id} is pending")
        return None


def _is_given_up(image: PartitionImage) -> bool:
    return image.leader is None and not image.isr and not image.elr
