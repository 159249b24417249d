"""Remembers what was ever committed: for each partition the sequence of batches that any leader's HW passed.

Invariant (I10): the sequence only grows, and the record at an offset never changes. Two logs are compared by the
hash of everything below an offset, so every comparison covers whole prefixes and costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.control.state import ClusterState
from strandline.core.log.effects import Emit
from strandline.core.messages import PartitionImage
from strandline.core.state_events import ControllerDecision, Reassignment
from strandline.core.types import NodeId, TopicPartition
from strandline_sim.world.disk import LogFile
from strandline_sim.world.environment import Environment


class Broken(Exception):
    """An invariant does not hold. ``name`` is its number in RELIABILITY.md#invariants."""

    def __init__(self, name: str, sentence: str, *, offset: int | None = None) -> None:
        super().__init__(f"{name}: {sentence}")
        self.name = name
        self.offset = offset


class Committed:
    """The history variable C of one partition, with TrueHW = ``end``."""

    __slots__ = ("_hash_at", "_value_at", "end", "records")

    def __init__(self) -> None:
        self.end = 0
        self.records = 0
        self._hash_at: dict[int, int] = {0: 0}
        self._value_at: dict[int, tuple[int, int]] = {}

    def grow(self, log: LogFile, hw: int) -> None:
        """Add the batches that no leader's HW had passed before.

        Raises:
            Broken: the leader's log does not continue what was committed (I10).
        """
        self.check(log, self.end, "I10", "a leader's log")
        index = log.index_of(self.end)
        ends = log.ends
        while index < len(ends) and ends[index] <= hw:
            header, value = log.headers[index], log.values[index]
            assert isinstance(value, int)
            self._hash_at[ends[index]] = log.hashes[index]
            self._value_at[header.base_offset] = (value, header.record_count)
            self.records += header.record_count
            index += 1
        if log.hash_at(hw) is None:
            raise Broken("I10", f"the HW {hw} lies within a batch", offset=hw)
        self.end = hw

    def check(self, log: LogFile, end: int, name: str, who: str) -> None:
        """Whether ``log`` holds exactly what was committed below ``end``.

        Raises:
            Broken: under ``name``.
        """
        wanted = self._hash_at.get(end)
        if wanted is None:
            raise Broken(name, f"{who} counts to {end}, where nothing was committed (end {self.end})", offset=end)
        found = log.hash_at(end)
        if found != wanted:
            why = f"ends at {log.leo}" if found is None else "differs"
            raise Broken(name, f"{who} lacks committed records below {end}: it {why}", offset=self.first_bad(log, end))

    def is_committed(self, end: int, log_hash: int) -> bool:
        """Whether the log with this hash at ``end`` is committed up to there."""
        return self._hash_at.get(end) == log_hash

    def has_border(self, offset: int) -> bool:
        """Whether a committed batch ends at ``offset``."""
        return offset in self._hash_at

    def hash_below(self, offset: int) -> int:
        """The hash of everything committed below ``offset``; 0 if no batch ends there."""
        return self._hash_at.get(offset, 0)

    def value_at(self, base_offset: int) -> tuple[int, int] | None:
        """(Value, record count) of the batch committed at ``base_offset``."""
        return self._value_at.get(base_offset)

    def first_bad(self, log: LogFile, end: int) -> int:
        """The first offset below ``end`` at which ``log`` lacks a record or has another one."""
        for border in sorted(self._hash_at):
            if border > end:
                break
            if log.hash_at(border) not in (self._hash_at[border], None) or border > log.leo:
                return max((each for each in self._value_at if each < border), default=border)
        return end


# ---- metadata checks
# Checks whether the controller's committed decisions are allowed (I7, I14, I15, I40), and counts them.
#
# Invariant: only what is durable is a decision; what a reign lost in a crash never was one.


class MetadataChecks:
    """Checks Q of every partition, as the controller made it durable."""

    def __init__(self, world: Environment) -> None:
        self._world = world
        self.partitions: dict[TopicPartition, PartitionImage] = {}
        self.directories: dict[NodeId, str] = {}
        # The newest registration of each node.
        self.node_epochs: dict[NodeId, int] = {}
        self._controller_epoch = 0
        self._is_new_line = False

    def begin_anew(self) -> None:
        """The next state was rebuilt from what nodes have stored: it is above all they know, and succeeds no state."""
        self._is_new_line = True
        self._controller_epoch = 0
        self.node_epochs.clear()

    def take(self, state: ClusterState) -> list[TopicPartition]:
        """Check a state that became durable. Returns the partitions that changed.

        Raises:
            Broken: it is not an allowed successor of the previous one.
        """
        if state.header.controller_epoch < self._controller_epoch:
            raise Broken("I14", f"the controller epoch went back to {state.header.controller_epoch}")
        self._controller_epoch = state.header.controller_epoch
        for node_id, record in state.nodes.items():
            if record.image.node_epoch < self.node_epochs.get(node_id, 0):
                raise Broken("I14", f"the node epoch of {node_id} went back to {record.image.node_epoch}")
            if record.directory_id != self.directories.get(node_id, record.directory_id):
                self._excluded(state.partitions(), node_id)
            self.node_epochs[node_id] = record.image.node_epoch
            self.directories[node_id] = record.directory_id
        changed = [image.tp for image in state.partitions() if self._took(image)]
        self._is_new_line = False
        return changed

    def excluded(self, node_id: NodeId) -> None:
        """I15: a node that registers on a disk that may lack records is in no ISR, in no ELR, and leads nothing."""
        self._excluded(self.partitions.values(), node_id)

    def _excluded(self, partitions: Iterable[PartitionImage], node_id: NodeId) -> None:
        for image in partitions:
            if node_id in image.isr or node_id in image.elr or image.leader == node_id:
                raise Broken("I15", f"node {node_id} has a disk that may lack records and its place in {image}")

    def _took(self, image: PartitionImage) -> bool:
        before = self.partitions.get(image.tp)
        if before is image or before == image:
            return False
        self.partitions[image.tp] = image
        if image.leader is not None and (image.leader not in image.isr or not set(image.isr) <= set(image.replicas)):
            raise Broken("I7", f"leader {image.leader} of ISR {image.isr} of {image.replicas}")
        if image.leader is not None and image.leader in image.unproven:
            raise Broken("I40", f"node {image.leader} leads, but its log is not proven: {image}")
        if before is not None and not self._is_new_line:
            self._succeeds(before, image)
        self._count(before, image)
        return True

    def _succeeds(self, before: PartitionImage, after: PartitionImage) -> None:
        if after.leader_epoch < before.leader_epoch or after.partition_epoch <= before.partition_epoch:
            raise Broken("I14", f"epochs went back: {before} then {after}")
        if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
            raise Broken("I1", f"another leader in the same epoch: {before} then {after}")
        if after.leader is not None and after.leader_epoch > before.leader_epoch:
            clean = {*before.isr, *before.elr}
            if after.last_unclean_leader_epoch == before.last_unclean_leader_epoch and after.leader not in clean:
                raise Broken("I7", f"node {after.leader} was elected from outside {sorted(clean)}")

    def _count(self, before: PartitionImage | None, after: PartitionImage) -> None:
        coverage = self._world.coverage
        isr, elr = ",".join(map(str, after.isr)), ",".join(map(str, after.elr))
        epochs = f"e={after.leader_epoch} pe={after.partition_epoch} m={after.min_isr}"
        text = f"p{after.tp.partition} leader {after.leader} {epochs} isr={{{isr}}} elr={{{elr}}}"
        self._world.note("ctl", text)
        if before is None:
            return
        if after.leader_epoch > before.leader_epoch:
            coverage.saw("elections" if after.leader is not None else "partition offline")
            if after.leader in before.unproven:
                coverage.saw("election by reports")
            elif after.leader in before.elr:
                coverage.saw("election from the ELR")
        if before.original and before.leader is not None and before.leader not in after.replicas:
            coverage.saw("moved from its leader")
        if set(after.isr) - set(before.isr):
            coverage.saw("isr grown")
        if set(before.isr) - set(after.isr):
            coverage.saw("isr shrunk")

    def reported(self, emit: Emit) -> None:
        """Count what the controller reported."""
        if isinstance(emit.event, ControllerDecision):
            self._world.coverage.saw(f"controller: {emit.event.decision}")
        elif isinstance(emit.event, Reassignment):
            self._world.coverage.saw(f"reassignment: {emit.event.phase}")
