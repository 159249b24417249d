"""Checks after every event whether nodes and controller did only what is allowed: I1-I18, I25, I27 of RELIABILITY.md.

Invariant: a check reads cores and disks and changes nothing, and costs O(replicas), not O(log): every log carries the
hash of each of its prefixes, so "the same below o" is one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.core import messages
from strandline.core.control.state import ClusterState
from strandline.core.log.effects import AnswerCall, AnswerOffsets, AnswerProduce, Emit
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.state_events import EpochStart, PartitionFailed, Truncation
from strandline.core.types import Acks, Durability, LeaderEpoch, NodeEpoch, NodeId, TopicPartition
from strandline_sim.checks.committed import Broken, Committed
from strandline_sim.checks.reassignments import reassignment_fault
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.disk import LogFile
from strandline_sim.world.losses import Losses
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process


class Checks:
    """All invariants of one world, and the history variables they need."""

    def __init__(self, world: Cluster, losses: Losses) -> None:
        self._world = world
        self._losses = losses
        self._fsync = world.rules.durability is Durability.FSYNC
        self.committed: dict[TopicPartition, Committed] = {}
        self.metadata = world.metadata
        # (tp, leader epoch) -> (node, node epoch) of the leader.
        self._reigns: dict[tuple[TopicPartition, int], tuple[NodeId, int]] = {}
        # (tp, base offset, epoch) -> hash of the one log that holds such a batch.
        self._names: dict[tuple[TopicPartition, int, int], int] = {}
        # tp -> the offset below which a deletion was answered as complete.
        self._deleted_below: dict[TopicPartition, int] = {}
        # tp -> (leader epoch, offset) of the newest answer to a question for the end.
        self._latest: dict[TopicPartition, tuple[int, int]] = {}
        # Replicas that were moved to other nodes: their logs are gone, even if a leader does not know that yet.
        self._moved: set[tuple[TopicPartition, NodeId]] = set()

    def of(self, tp: TopicPartition) -> Committed:
        """What was committed in ``tp``."""
        found = self.committed.get(tp)
        if found is None:
            found = self.committed[tp] = Committed()
        return found

    def hash_below(self, tp: TopicPartition, offset: int) -> int:
        """The hash of everything committed below ``offset``."""
        return self.of(tp).hash_below(offset)

    def after_step(self, process: Process) -> None:
        """Compare everything that this step changed with what was committed."""
        hws = process.hws
        for tp, log in process.core.state.logs.items():
            if hws.get(tp) != log.hw:
                hws[tp] = log.hw
                self._hw_moved(process, tp, log)

    def _hw_moved(self, process: Process, tp: TopicPartition, log: ReplicaLog) -> None:
        file, committed = process.disk.logs[tp], self.of(tp)
        leader = process.core.state.leaders.get(tp)
        world = self._world
        # A HW that was raised to a log start within a batch says nothing about that batch's other records.
        hw = file.border_below(log.hw) if log.hw == log.log_start_offset else log.hw
        if log.hw == log.log_start_offset == file.root and not committed.has_border(hw):
            return
        world.recorder.hw_moved(process, tp, log.hw, leader)
        if leader is None:
            committed.check(file, hw, "I9", f"node {process.node_id}, below its own HW,")
            return
        vote, safe = log.vote, file.synced if self._fsync else file.leo
        if vote > safe:
            raise Broken("M55", f"node {process.node_id} votes for {vote}, safe is {safe}", offset=safe)
        if log.hw > committed.end:
            before = committed.end
            committed.grow(file, log.hw)
            world.coverage.saw("committed", log.hw - before)
            self.members_complete(tp)
        else:
            committed.check(file, hw, "I10", f"leader {process.node_id}, below its own HW,")
        self._weak_isr(tp, leader, hw)
        self._superset(process, tp, leader)

    def _counted(self, tp: TopicPartition) -> tuple[NodeId, ...]:
        image = self.metadata.partitions[tp]
        return (*image.isr, *image.elr)

    def _weak_isr(self, tp: TopicPartition, leader: LeaderReplica, hw: int) -> None:
        """I3: below its own HW a leader agrees with its own ISR."""
        for member in set(leader.isr.committed) - leader.isr.unproven:
            if (tp, member) in self._moved and member not in self._counted(tp):
                # It was counted before it was removed; every electable replica has been counted as well (I5).
                continue
            machine = self._world.machines[member]
            losses = self._losses
            if losses.lacks(tp, member) or losses.was_counted_before(tp, member, leader.image.leader_epoch):
                continue
            if machine.disk.copy == 0 and (self._fsync or machine.running is not None):
                self.of(tp).check(machine.log(tp), hw, "I3", f"member {member} of its leader's ISR")

    def _superset(self, process: Process, tp: TopicPartition, leader: LeaderReplica) -> None:
        """I6: the HW is counted over at least everybody who could be elected."""
        image = self.metadata.partitions.get(tp)
        if image is None or (image.leader, image.leader_epoch) != (process.node_id, leader.image.leader_epoch):
            return
        isr = leader.isr
        electable = {*image.isr, *image.elr}
        if len(isr.committed) >= leader.image.min_isr and not isr.maximal >= electable:
            raise Broken("I6", f"leader {process.node_id} counts {sorted(isr.maximal)}, electable: {sorted(electable)}")

    def members_complete(self, tp: TopicPartition) -> None:
        """I4, I5: every replica that could be elected has everything that was ever below a leader's HW."""
        image = self.metadata.partitions.get(tp)
        if image is not None:
            for member in (*image.isr, *image.elr):
                if member not in image.unproven:
                    self.member_complete(image, member)

    def member_complete(self, image: messages.PartitionImage, member: NodeId) -> None:
        """I5 for one member: only what would survive any allowed fault counts."""
        world = self._world
        if self._losses.lacks(image.tp, member):
            # Its disk lost records while it was down. It is unproven once it registers, and then I8 must hold.
            return
        machine = world.machines[member]
        if machine.disk.directory_id != self.metadata.directories.get(member):
            return
        process = machine.running
        if not self._fsync and (process is None or not process.is_registered):
            return
        committed, file = self.of(image.tp), machine.log(image.tp)
        safe = file.synced if self._fsync else file.leo
        if safe < committed.end:
            raise Broken(
                "I5", f"node {member} is electable and safe to {safe}; committed is {committed.end}", offset=safe
            )
        committed.check(file, committed.end, "I5", f"node {member}, which is electable,")

    def disk_changed(self, node_id: NodeId) -> None:
        """A disk lost records."""
        for image in self.metadata.partitions.values():
            if node_id not in image.unproven and (node_id in image.isr or node_id in image.elr):
                self.member_complete(image, node_id)

    def nothing_lost(self) -> None:
        """I16, at the end: every committed record is in some log, unless all nodes of a partition lost their cache."""
        for tp, committed in self.committed.items():
            image = self.metadata.partitions[tp]
            if not self._fsync and image.leader is None:
                continue
            wanted = committed.hash_below(committed.end)
            if not any(machine.log(tp).hash_at(committed.end) == wanted for machine in self._world.machines.values()):
                raise Broken("I16", f"what was committed below {committed.end} is in no log", offset=committed.end - 1)

    def appended(self, process: Process, tp: TopicPartition, log: LogFile, first: int) -> None:
        """I0, I2: batches from index ``first`` on are new in this log."""
        names, headers = self._names, log.headers
        for index in range(first, len(headers)):
            header = headers[index]
            if index and header.stamped_epoch < headers[index - 1].stamped_epoch:
                raise Broken("I0", f"epochs go back at {header.base_offset} on node {process.node_id}")
            key = (tp, header.base_offset, header.stamped_epoch)
            if names.setdefault(key, log.hashes[index]) != log.hashes[index]:
                offset = header.base_offset
                raise Broken(
                    "I2", f"two logs differ at or below {offset} in epoch {header.leader_epoch}", offset=offset
                )
        cached = process.core.state.logs[tp].epochs.epoch_of(headers[-1].base_offset)
        if cached != headers[-1].leader_epoch:
            raise Broken("I0", f"node {process.node_id} believes epoch {cached} wrote {headers[-1].base_offset}")
        self._world.recorder.appended(process, tp, log, first)

    def truncating(self, process: Process, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """I11: no committed record is cut."""
        self._world.coverage.saw("truncation of records")
        index = log.index_of(offset)
        self._world.recorder.truncated(process, tp, log, offset)
        if index < len(log.headers):
            header = log.headers[index]
            if self.of(tp).is_committed(header.next_offset, log.hashes[index]):
                raise Broken("I11", f"node {process.node_id} cuts committed records from {offset}", offset=offset)

    def opened(self, process: Process, tp: TopicPartition) -> None:
        """A log was opened: the HW that its process will start with is checked at the end of the step."""
        process.hws.pop(tp, None)
        file = process.disk.logs[tp]
        # A HW above the log end was saved before this log lost records; recovery reported that (M58).
        process.saved[tp] = min(file.hw_cached, file.leo)

    def answered_produce(self, process: Process, effect: AnswerProduce) -> None:
        """I12: acks=all is acknowledged only for committed records, by a leader with enough in-sync replicas."""
        # The step that answers may be the one that moved the HW.
        self.after_step(process)
        asked = process.produces.pop(effect.request_id, None)
        result = effect.results[0]
        if result.refusal is not None:
            self._refused_produce(process, result)
            return
        if asked is None or result.base_offset is None:
            return
        acks, value, count, leo_before = asked
        if result.base_offset < leo_before:
            self._world.coverage.saw("duplicate recognised")
        end = result.base_offset + count
        file = process.disk.logs[result.tp]
        if acks is Acks.LEADER:
            if self._fsync and file.synced < end:
                raise Broken("M55", f"acks=1 below {end}, synced is {file.synced}", offset=result.base_offset)
            return
        leader = process.core.state.leaders.get(result.tp)
        if leader is None or leader.log.hw < end or len(leader.isr.committed) < leader.image.min_isr:
            raise Broken("I12", f"node {process.node_id} acknowledged {end} as {leader!r}", offset=result.base_offset)
        if self.of(result.tp).value_at(result.base_offset) != (value, count):
            raise Broken("I12", f"acknowledged at {result.base_offset}, not committed there", offset=result.base_offset)
        self._world.recorder.acknowledged(process, result.tp, result.base_offset, end)

    def _refused_produce(self, process: Process, result: messages.ProduceResult) -> None:
        assert result.refusal is not None
        self._world.coverage.saw(f"produce refused: {result.refusal.code.name}")
        image = self.metadata.partitions.get(result.tp)
        if image is not None and image.leader != process.node_id and result.tp in process.core.state.leaders:
            self._world.coverage.saw("zombie refused a produce")

    def served_replica(self, result: messages.FetchResult) -> None:
        """Count the answer to a replica's fetch."""
        if result.refusal is not None:
            self._world.coverage.saw(f"fetch refused: {result.refusal.code.name}")
        elif result.diverging is not None:
            self._world.coverage.saw("fetch diverged")

    def served_consumer(self, process: Process, served: Sequence[messages.ServedPartition]) -> None:
        """I18: a consumer is given only what is committed."""
        self.after_step(process)
        for result, payload in served:
            if result.refusal is not None:
                self._world.coverage.saw(f"fetch refused: {result.refusal.code.name}")
            if not payload:
                continue
            given: Any = payload
            end = given.headers[-1].next_offset
            hw = process.core.state.logs[result.tp].hw
            if result.tp not in process.core.state.leaders:
                self._world.coverage.saw("read at a follower")
            if end > hw:
                raise Broken("I18", f"node {process.node_id} with HW {hw} gave a consumer {end}", offset=hw)
            self.of(result.tp).check(process.disk.logs[result.tp], end, "I18", f"what node {process.node_id} gave away")

    def answered_latest(self, process: Process, effect: AnswerOffsets) -> None:
        """I13: the end of a partition that clients learn from ever newer leaders never goes back."""
        answer = effect.answers[0]
        if answer.refusal is not None or answer.offset is None or answer.leader_epoch is None:
            self._world.coverage.saw("latest not available")
            return
        epoch, offset = self._latest.get(answer.tp, (0, 0))
        if answer.leader_epoch < epoch:
            return
        if answer.offset < offset or answer.offset > self.of(answer.tp).end:
            raise Broken("I13", f"node {process.node_id} says the end is {answer.offset}, it was {offset}")
        self._latest[answer.tp] = (answer.leader_epoch, answer.offset)

    def answered_call(self, effect: AnswerCall) -> None:
        """I27: remember the offset below which an operator was told that everything is deleted."""
        for answer in effect.answers:
            if answer.refusal is not None:
                self._world.coverage.saw(f"{effect.call} refused: {answer.refusal.code.name}")
            elif isinstance(answer, messages.DeletedPartition) and answer.low_watermark is not None:
                self._world.coverage.saw("deletion complete")
                below = self._deleted_below.get(answer.tp, 0)
                self._deleted_below[answer.tp] = max(answer.low_watermark, below)

    def alter_answered(self, answer: messages.AlterPartitionAnswer) -> None:
        """Count the controller's answer."""
        for refusal in [answer.refusal, *(each.refusal for each in answer.partitions)]:
            if refusal is not None:
                self._world.coverage.saw(f"alter refused: {refusal.code.name}")

    def emitted(self, process: Process, emit: Emit) -> None:
        """A node reported a decision."""
        match emit.event:
            case EpochStart():
                self._reign_began(process, emit.tp, emit.event.leader_epoch)
            case Truncation(reason=reason):
                self._world.coverage.saw("truncation")
                self._world.coverage.saw(f"truncation: {reason}")
            case PartitionFailed(refused_to_leo=refused):
                if refused is not None:
                    raise Broken("I11", f"node {process.node_id} was asked to cut below its HW: {emit.event}")
                self._world.coverage.saw("partition failed")

    def _reign_began(self, process: Process, tp: Any, epoch: LeaderEpoch) -> None:
        """I1, I8, I27: an epoch has one incarnation; no acknowledged record is missing, no deleted record is back."""
        node_epoch = process.core.state.identity.node_epoch
        me = (process.node_id, int(node_epoch))
        other = self._reigns.setdefault((tp, epoch), me)
        if other != me:
            raise Broken("I1", f"epoch {epoch} of {tp.partition} is led by {me} and {other}")
        image = self.metadata.partitions.get(tp)
        if image is not None and (image.leader, image.leader_epoch) == (process.node_id, epoch):
            self.of(tp).check(process.disk.logs[tp], self.of(tp).end, "I8", f"the new leader {process.node_id}")
            self._still_deleted(process, tp)

    def _still_deleted(self, process: Process, tp: TopicPartition) -> None:
        """I27: a completed DeleteRecords is never undone by an election, unless this disk lost its log start (A5)."""
        start, deleted_below = process.disk.logs[tp].log_start, self._deleted_below.get(tp, 0)
        if start >= deleted_below:
            return
        if not self._losses.lacks(tp, process.node_id):
            what = f"the new leader {process.node_id} has log start {start}, deleted was below {deleted_below}"
            raise Broken("I27", what, offset=start)
        self._deleted_below[tp] = start

    def registered(self, process: Process, node_epoch: NodeEpoch) -> None:
        """A process was given its node epoch. I15: after an unclean stop it has left ISR and ELR by then."""
        if process.disk.is_unclean and not self._world.controller.is_old:
            self.metadata.excluded(process.node_id)
        self._world.note(f"n{process.node_id}", f"registered, node epoch {node_epoch}")

    def died(self, process: Process) -> None:
        """A process has ended."""
        self._world.note(f"n{process.node_id}", "is gone")

    def befell(self, machine: Machine[Process], what: str) -> None:
        """A machine had a fault that no core is informed of."""
        self._world.recorder.befell(machine, what)

    def committed_state(self, state: ClusterState) -> None:
        """Check the controller's decisions, which are durable."""
        self._world.recorder.decided(state)
        before = dict(self.metadata.partitions)
        for tp in self.metadata.take(state):
            was, image = before.get(tp), self.metadata.partitions[tp]
            if fault := reassignment_fault(was, image):
                raise Broken("I25", fault)
            self._moved |= {(tp, n) for n in (was.replicas if was else ()) if n not in image.replicas}
            self._losses.committed(self.metadata.partitions[tp])
            self.members_complete(tp)
            image = self.metadata.partitions[tp]
            machine = self._world.machines.get(image.leader) if image.leader is not None else None
            process = machine.running if machine is not None else None
            leader = process.core.state.leaders.get(tp) if process is not None else None
            if process is not None and leader is not None:
                self._superset(process, tp, leader)


# ---- own checks
# Checks one process by itself at the end of every step: its proposals and what it has saved.
#
# Invariants: a waiting proposal is of the leader epoch in which its node leads (I14), so that nothing of an earlier
# reign is ever sent; a saved high watermark is not above the end of its log (I0), so that the next process does not
# take the log for one that lost committed records.


def check_own(process: Process) -> None:
    """Check one process.

    Raises:
        Broken: I14 or I0.
    """
    state = process.core.state
    for tp, proposal in process.core.proposals.items():
        leader = state.leaders.get(tp)
        if leader is None or leader.image.leader_epoch != proposal.leader_epoch:
            now = "leads nothing" if leader is None else f"leads in epoch {leader.image.leader_epoch}"
            what = f"a proposal of epoch {proposal.leader_epoch} waits for p{tp.partition}"
            raise Broken("I14", f"{what} on node {process.node_id}, which {now} there")
    for tp, saved in process.saved.items():
        log = state.logs.get(tp)
        if log is not None and saved > log.leo:
            raise Broken("I0", f"node {process.node_id} saved HW {saved}, its log ends at {log.leo}", offset=log.leo)
