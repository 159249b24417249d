"""Decides what a leader does with each fetch, append and ISR decision of one partition.

Invariants: it appends only in its own epoch; it never truncates (M39); its HW never goes back (M6); it
counts a follower only by fetches of this epoch that passed the divergence check (M5, M32).
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import high_watermark, isr
from strandline.core.log.isr import FollowerProgress, IsrState
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.saving_order import NodeTimings
from strandline.core.log.truncation import rule_for
from strandline.core.types import EpochEnd, NodeEpoch, NodeId, Offset, PartitionEpoch, Rules, TopicPartition


class LeaderReplica:
    """One partition in one leader epoch, on the node that leads it. ``nodes`` is the node table of the newest metadata,
    shared and kept current by the owner."""

    __slots__ = (
        "_asks_first",
        "_checks_lineage",
        "_claim_limits",
        "_nodes",
        "_rules",
        "_timings",
        "acked_offset",
        "barrier",
        "epoch_start_offset",
        "image",
        "is_coordinator",
        "isr",
        "log",
        "log_start_floor",
        "node_epoch",
        "node_id",
        "progress",
        "retry_isr_at_ms",
    )

    def __init__(
        self,
        node: messages.ReplicaState,
        image: messages.PartitionImage,
        log: ReplicaLog,
        nodes: Mapping[NodeId, messages.NodeImage],
        rules: Rules,
        timings: NodeTimings,
        now_ms: int,
    ) -> None:
        assert node.node_id in image.isr, f"I7: {node.node_id} leads {image.tp} outside its ISR {image.isr}"
        self.node_id = node.node_id
        self.node_epoch: NodeEpoch = node.node_epoch
        self.image = image
        self.log = log
        self._nodes = nodes
        self._rules = rules
        self._checks_lineage = rule_for(rules.truncation).checked
        self._asks_first = rule_for(rules.truncation).asks_first
        self._timings = timings
        # LESO: the LEO when this epoch began. Invariant: constant for the life of this object.
        self.epoch_start_offset = log.leo
        # What is deleted for good: no follower joins the ISR below it. This replica was in the ISR whenever a deletion
        # was completed before its epoch, so its own log start is a bound for all of them.
        self.log_start_floor = log.log_start_offset
        # Highest offset acknowledged to a client, plus 1; what earlier leaders acknowledged counts up to the HW.
        self.acked_offset = log.hw
        self.isr = _isr_of(image)
        # A refused change is not proposed again before this time (or before new metadata).
        self.retry_isr_at_ms = now_ms
        # Whether a coordinator lives in this partition, and the newest read barrier it has begun (G10).
        self.is_coordinator = False
        self.barrier: int | None = None
        self.progress: dict[NodeId, FollowerProgress] = {}
        # Claim limits of followers that were taken off this partition, in case they return within this epoch.
        self._claim_limits: dict[NodeId, Offset] = {}
        self._take_followers(image, now_ms)

    def _take_followers(self, image: messages.PartitionImage, now_ms: int) -> None:
        wanted = [n for n in (*image.replicas, *image.observers) if n != self.node_id]
        for gone in self.progress.keys() - set(wanted):
            self._claim_limits[gone] = self.progress.pop(gone).claim_limit
        for node_id in wanted:
            if node_id not in self.progress:
                caught_up_ms = now_ms if node_id in image.isr else None
                limit = self._claim_limits.pop(node_id, self.epoch_start_offset)
                self.progress[node_id] = FollowerProgress(node_id, caught_up_ms, limit)

    def update(self, image: messages.PartitionImage, now_ms: int) -> bool:
        """Take over a newer partition epoch; follower state stays (T26). Returns whether anything ended."""
        assert image.leader_epoch == self.image.leader_epoch
        # The answer to a proposal can overtake the metadata of the same change.
        if image.partition_epoch < self.isr.partition_epoch:
            return False
        # A newer epoch ends what was pending: its compare-and-set can no longer succeed.
        newer = image.partition_epoch > self.isr.partition_epoch
        self.image = image
        if newer:
            self.isr = _isr_of(image)
            self.retry_isr_at_ms = now_ms
        self._take_followers(image, now_ms)
        return newer

    def check_replica(self, fetch: messages.FetchPartition, replica: messages.ReplicaState) -> Refusal | None:
        """Whether this replica may fetch here at all: assigned, and of the incarnation that the metadata names."""
        refusal = self.check_assigned(fetch.tp, replica.node_id)
        if refusal is not None:
            return refusal
        known = self._nodes.get(replica.node_id)
        if known is None or replica.node_epoch == known.node_epoch:
            return None
        # A late fetch of a process that has ended would vouch for its successor, whose disk may hold less (KIP-903).
        if replica.node_epoch < known.node_epoch:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"replica_epoch {replica.node_epoch} is of an older incarnation of node {replica.node_id}; "
                "only its newest process may fetch",
            )
        # Only the controller makes an incarnation known: a number from the wire is never remembered,
        # or one forged fetch would shut the real process out.
        return Refusal(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"replica_epoch {replica.node_epoch} of node {replica.node_id} is newer than {known.node_epoch}, "
            "which this leader knows; back off and ask again",
        )

    def check_assigned(self, tp: TopicPartition, node_id: NodeId) -> Refusal | None:
        """Whether ``node_id`` is a replica or an observer of this partition (T10)."""
        if node_id in self.progress:
            return None
        return Refusal(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"node {node_id} is not a replica of {tp.topic_id}-{tp.partition} as this leader knows it; "
            "refresh metadata and retry",
        )

    def check_claim(self, fetch: messages.FetchPartition, node_id: NodeId) -> Refusal | None:
        """Whether a replica can be where it claims to be; checked for a fetch that passed the divergence check."""
        if not self._checks_lineage:
            # What a follower may claim is counted from a fetch that proved its lineage; history had no such proof.
            return None
        restarts = fetch.last_fetched_epoch is None and fetch.fetch_offset == self.log.log_start_offset
        limit = self.progress[node_id].claim_limit
        if restarts or fetch.fetch_offset <= limit:
            return None
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"fetch_offset {fetch.fetch_offset} is beyond {limit}, the furthest that node {node_id} can be: "
            "this leader epoch's start, or the end of what it was sent since; a replica fetches from its own LEO",
        )

    def diverging(self, fetch: messages.FetchPartition, *, by_replica: bool = True) -> EpochEnd | Refusal | None:
        """Where the asker's log parts from this one, None if it does not (M31); out of range beats divergence."""
        log = self.log
        # The epochs below the log start are forgotten, so no cut could be named: a replica begins again at the log
        # start (M30).
        if fetch.fetch_offset < log.log_start_offset:
            return self._out_of_range(fetch)
        if fetch.last_fetched_epoch is None:
            return self._out_of_range(fetch) if fetch.fetch_offset > log.leo else None
        end = log.epochs.end_offset_for(fetch.last_fetched_epoch, log.leo)
        # Nothing here tells where that epoch ended: as in Kafka, a replica then asks for both ends of the log (M30).
        if end is None:
            return self._out_of_range(fetch)
        if end.epoch < fetch.last_fetched_epoch or end.end_offset < fetch.fetch_offset:
            return end
        if by_replica and self._is_unknowable(fetch):
            return self._out_of_range(fetch)
        return None

    def _is_unknowable(self, fetch: messages.FetchPartition) -> bool:
        """Whether all that a replica holds lies below this log's start, in epochs that are forgotten here (M10)."""
        # Whether it agrees cannot be known, and once in the ISR it could bring back what was never committed.
        held = fetch.log_start_offset is not None and fetch.log_start_offset < fetch.fetch_offset
        if not held or fetch.fetch_offset != self.log.log_start_offset or fetch.last_fetched_epoch is None:
            return False
        return self.log.epochs.is_before_first(fetch.last_fetched_epoch)

    def _out_of_range(self, fetch: messages.FetchPartition) -> Refusal:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"fetch_offset {fetch.fetch_offset} is not within the log start {self.log.log_start_offset} "
            f"and LEO {self.log.leo} of this lineage; ask ListOffsets",
        )

    def only_reconciles(self, replica: messages.ReplicaState) -> bool:
        """Whether this fetch only shows that the logs agree, and counts for nothing yet (M66)."""
        # Without a question before it, the follower learns by this answer that it agrees, and saves that before its
        # next fetch. Counted now, it might not remember after a loss that it was counted.
        return self.progress[replica.node_id].reconciles(replica.node_epoch) and not self._asks_first

    def observe_fetch(self, fetch: messages.FetchPartition, replica: messages.ReplicaState, now_ms: int) -> bool:
        """Count a fetch that passed all checks: the fetch offset *is* the acknowledgement. Returns whether
        the remote LEO changed, which is an occasion to raise the HW (M15)."""
        follower = self.progress[replica.node_id]
        follower.log_start_offset = fetch.log_start_offset
        if self.barrier is not None:
            follower.barrier_seen = self.barrier_repeated(fetch)
        return follower.fetched(fetch.fetch_offset, self.log.leo, replica.node_epoch, now_ms)

    def barrier_repeated(self, fetch: messages.FetchPartition) -> int:
        """Up to which read barrier this fetch shows that its sender had not begun to lead (G10)."""
        return fetch.barrier_seen or 0

    def maybe_raise_hw(self, now_ms: int) -> bool:
        """Move the HW as far as all that count have the log (M6, M16). Returns whether it rose."""
        counted = isr.counted_for_hw(
            self.progress,
            maximal=self.isr.maximal,
            replicas=self.image.replicas,
            nodes=self._nodes,
            leader_leo=self.log.leo,
            now_ms=now_ms,
            lag_max_ms=self._timings.replica_lag_time_max_ms,
        )
        offset = high_watermark.candidate(
            self.log.vote, counted, committed_isr_size=len(self.isr.committed), min_isr=self.image.min_isr
        )
        return offset is not None and self.log.raise_hw(offset)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused and the HW does not move (M18, M47)."""
        return len(self.isr.committed) < self.image.min_isr

    @property
    def knows_true_hw(self) -> bool:
        """Whether the HW has reached the start of this epoch, so that "latest" may be answered (KIP-207)."""
        return self.log.hw >= self.epoch_start_offset

    @property
    def low_watermark(self) -> Offset | None:
        """The lowest log start among this leader and all that may be members of the ISR (M19); None if one of
        them has not reported its own in this epoch."""
        lowest = self.log.log_start_offset
        for node_id in self.isr.maximal - {self.node_id}:
            start = self.progress[node_id].log_start_offset
            if start is None:
                return None
            lowest = min(lowest, start)
        return lowest

    def try_complete_deletion(self, offset: Offset) -> bool:
        """Whether no clean election can bring back what lies below ``offset`` (C100); if so, none may join below it."""
        lowest = self.low_watermark
        # Below min ISR a replica of the ELR may be elected, whose log start is not known here.
        if lowest is None or lowest < offset or self.is_under_min_isr:
            return False
        # A replica that still has the records and joined later could be elected, and they would be back (TR34).
        self.log_start_floor = max(self.log_start_floor, lowest)
        return True

    def _has_deleted(self, follower: FollowerProgress) -> bool:
        return (follower.log_start_offset or 0) >= self.log_start_floor

    def maybe_expand(self, node_id: NodeId, now_ms: int) -> messages.ProposedIsr | None:
        """Propose to add a follower, or to prove one that is a member, if its last fetch of this epoch allows it (M44,
        M64)."""
        if self.isr.pending is not None or now_ms < self.retry_isr_at_ms:
            return None
        is_proven_member = node_id in self.isr.committed and node_id not in self.isr.unproven
        if is_proven_member or node_id not in self.image.replicas or not self._may_join(node_id, now_ms):
            return None
        joining = () if node_id in self.isr.committed else (node_id,)
        members = self._members((*self.isr.committed, *joining), now_ms)
        return self._propose(
            messages.ProposedIsr(self.image.tp, self.image.leader_epoch, self.isr.partition_epoch, members)
        )

    def _may_join(self, node_id: NodeId, now_ms: int) -> bool:
        follower = self.progress.get(node_id)
        return (
            follower is not None
            and isr.is_eligible(follower, self._nodes.get(node_id))
            and self._has_deleted(follower)
            and isr.may_join(
                follower,
                hw=self.log.hw,
                leader_leo=self.log.leo,
                epoch_start_offset=self.epoch_start_offset,
                now_ms=now_ms,
                lag_max_ms=self._timings.replica_lag_time_max_ms,
            )
        )

    def maybe_shrink(self, now_ms: int) -> messages.ProposedIsr | None:
        """Propose to drop every member that neither is at the log end nor was within the lag time (M42)."""
        if self.isr.pending is not None or now_ms < self.retry_isr_at_ms:
            return None
        lag_max_ms = self._timings.replica_lag_time_max_ms
        staying = [
            n
            for n in self.isr.committed
            if n == self.node_id
            or not isr.must_leave(self.progress[n], leader_leo=self.log.leo, now_ms=now_ms, lag_max_ms=lag_max_ms)
        ]
        if len(staying) == len(self.isr.committed):
            return None
        members = self._members(tuple(staying), now_ms)
        return self._propose(
            messages.ProposedIsr(self.image.tp, self.image.leader_epoch, self.isr.partition_epoch, members)
        )

    def _members(self, node_ids: tuple[NodeId, ...], now_ms: int) -> tuple[messages.IsrMember, ...]:
        # Frozen here: an epoch that is read again when the proposal is repeated would name a process that earned
        # nothing (TR10).
        return tuple(messages.IsrMember(n, self._member_epoch(n, now_ms)) for n in node_ids)

    def _member_epoch(self, node_id: NodeId, now_ms: int) -> NodeEpoch | None:
        """The incarnation known of a member."""
        if node_id == self.node_id:
            return self.node_epoch
        if node_id in self.isr.committed and node_id not in self.isr.unproven:
            known = self._nodes.get(node_id)
            return known.node_epoch if known else None
        # The controller takes the epoch of an unproven member as the proof, so only one that was counted here has one
        # (M64).
        return self.progress[node_id].node_epoch if self._may_join(node_id, now_ms) else None

    def _propose(self, proposal: messages.ProposedIsr) -> messages.ProposedIsr:
        # A leader that was elected unclean counts as recovered once a second member joins; the controller refuses a
        # larger ISR that is still recovering.
        proposal = proposal._replace(recovering=self.image.recovering and len(proposal.new_isr) == 1)
        self.isr = self.isr.proposing(proposal)
        return proposal

    def could_be_isr(self, nodes: tuple[NodeId, ...]) -> bool:
        """Whether these can be in sync at all: assigned replicas, each once, this leader among them (I7)."""
        return self.node_id in nodes and len(set(nodes)) == len(nodes) and set(nodes) <= set(self.image.replicas)

    def commit_isr(self, decision: messages.IsrDecision) -> bool:
        """The controller committed a state; take it over if it is newer. Returns whether it was."""
        # Metadata may have brought this state, or a later one, before the answer.
        if decision.partition_epoch <= self.isr.partition_epoch:
            return False
        epoch = PartitionEpoch(decision.partition_epoch)
        self.isr = IsrState(decision.isr, epoch, unproven=frozenset(decision.unproven) & set(decision.isr))
        return True

    def revert_isr(self, now_ms: int, backoff_ms: int) -> None:
        """The controller refused for good: back to the committed state, and not again at once."""
        self.isr = self.isr.reverted()
        self.retry_isr_at_ms = now_ms + backoff_ms

    def excuse(self, gap_ms: int) -> None:
        """This process itself was paused for ``gap_ms`` (M59)."""
        for follower in self.progress.values():
            follower.excuse(gap_ms)

    def __repr__(self) -> str:
        isr_members = ",".join(map(str, self.isr.committed))
        return (
            f"<Leader {self.log.topic}-{self.log.tp.partition} epoch={self.image.leader_epoch} "
            f"leo={self.log.leo} hw={self.log.hw} isr={{{isr_members}}}>"
        )


def _isr_of(image: messages.PartitionImage) -> IsrState:
    unproven = frozenset(image.unproven) & set(image.isr)
    return IsrState(image.isr, image.partition_epoch, unproven=unproven)
