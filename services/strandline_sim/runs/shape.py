"""Draws the shape of a run: the number of nodes, the speed of network and disks, which faults happen and how often.

Invariant: the shape is a function of (seed, profile) alone, and the fault plan is an explicit list made before the
run begins, so that a run with one fault fewer is a run of its own. Leaving out
some kinds of faults per run is swarm testing (Groce et al., 2012).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.core.types import Durability, Truncation
from strandline_sim.world.draws import Draw, Purpose

# ---- profiles
# The kinds of runs, and what a campaign of each promises to have seen.
#
# Invariant: promises are checked by count: a promised thing that never happened fails the campaign, because a test
# finds only what it reaches.


ALL_KINDS = (
    "kill", "power", "blackout", "wipe", "partition", "one_way", "isolate", "pause", "clock", "churn", "lag",
    "late_alter", "slow_fsync", "controller_kill", "stop", "clog", "min_isr", "delete_records", "fsync_fails",
)  # fmt: skip

AIMED_KINDS = ("joiner",)
"""Faults that wait for their moment. They are drawn separately, so that a seed without them keeps its run."""

LOSSES = ("lost_tail", "restore", "dead_cluster")
"""Faults by which a disk loses durable records, within A5. Drawn separately as well."""

PROMISED = (
    "committed", "elections", "isr grown", "isr shrunk", "truncation", "truncation of records", "fetch diverged",
    "produce refused: NOT_LEADER_OR_FOLLOWER", "produce refused: NOT_ENOUGH_REPLICAS", "zombie refused a produce",
    "duplicate recognised", "alter refused: INELIGIBLE_REPLICA", "alter refused: STALE_CONTROLLER_EPOCH",
    "fetch refused: UNKNOWN_LEADER_EPOCH", "fetch refused: FENCED_LEADER_EPOCH", "latest not available",
    "election from the ELR", "partition offline", "unsynced records lost", "stream broken", "read at a follower",
    "log restarted", "log start moved", "alter late", "alter twice", "fsync failed", "clean stop", "step continued",
)  # fmt: skip

PROMISED_LOSSES = (
    "durable records lost", "directory restored", "restored an earlier process's directory",
    "cluster died and a disk lost records", "election by reports", "controller: await_reports",
)  # fmt: skip


NODE_KINDS = ("kill", "power", "pause", "partition", "stop", "lag", "late_alter")
"""Faults of nodes while controllers change."""

REIGN_KINDS = (
    "reign_kill", "reign_kill_in_parts", "parts_unanswered", "reign_pause", "reign_clock", "reign_cut_store",
    "reign_cut_peers", "reign_cut_nodes", "hand_over", "end_lease", "watch_breaks", "watch_lags",
)  # fmt: skip

PROMISED_PARTS = (
    "append in parts", "killed between parts and transaction", "append in parts beside those of an ended reign",
    "left-over parts deleted", "no answer: part", "no answer: transaction behind its parts", "snapshot of the store",
    "log deleted behind a snapshot", "began from a snapshot", "began again from a snapshot",
)  # fmt: skip
"""Things that runs must show for a store with limits for values and log (C8, C11, C17)."""

PROMISED_REIGNS = (
    *PROMISED_PARTS,
    "committed", "elections", "reign: standby to campaigning", "reign: campaigning to catching_up",
    "reign: campaigning to standby", "reign: active to unsure", "reign: unsure to active", "reign: active to deposed",
    "reign: unsure to deposed", "reign: deposed to standby", "append settled: done", "append settled: uncertain",
    "look: refused", "paused active woke inside an append", "watch of the store broke", "no answer: Append",
    "no answer: Campaign", "no answer: RenewLease", "no answer: ReadStore", "step continued",
)  # fmt: skip


PROMISED_MEMBERS = (
    "committed", "elections", "groups: committed", "groups: began at a commit", "groups: began at 0",
    "groups: revoked", "groups: left", "groups: left for a restart", "groups: member died", "groups: member stalled",
    "groups: request twice", "groups: partitions added", "groups: topic deleted", "groups: STALE_MEMBER_EPOCH",
    "groups: FENCED_MEMBER_EPOCH", "groups: UNKNOWN_MEMBER_ID",
)  # fmt: skip

PROMISED_TRANSACTIONS = (
    "committed", "elections", "truncation of records", "transactions: identity", "transactions: ended committed",
    "transactions: ended aborted", "transactions: ended unknown", "transactions: process died", "transactions: fenced",
    "transactions: stalled beyond the time-out", "transactions: aborted with a batch on its way",
    "transactions: end asked twice", "transactions: question twice", "transactions: question late",
    "transactions: marker twice", "transactions: marker late", "transactions: commit marker",
    "transactions: abort marker", "transactions: aborted records passed over", "transactions: writes among each other",
    "transactions: offset staged", "transactions: offset not staged", "transactions: read on at a committed offset",
    "transactions: offset refused: UNSTABLE_OFFSET_COMMIT", "transactions: end refused: INVALID_TXN_STATE",
)  # fmt: skip

PROMISED_MOVES = (
    "committed", "elections", "isr grown", "reassignment: queued", "reassignment: started", "reassignment: completed",
    "reassignment: cancelled", "moved from its leader",
)  # fmt: skip

PROMISED_GROUPS = (
    "committed", "elections", "truncation", "log start moved", "log restarted", "group commit done",
    "group commit unknown", "group commit not_written", "group offset read", "group refused: NOT_COORDINATOR",
    "group refused: COORDINATOR_NOT_AVAILABLE", "group refused: COORDINATOR_LOAD_IN_PROGRESS",
    "group refused: REQUEST_TIMED_OUT", "leader died while loading", "leader died during a sweep",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of run."""

    name: str
    about: str
    durability: Durability = Durability.FSYNC
    truncation: Truncation | None = None
    """None for one of the two safe rules, by the seed."""
    kinds: tuple[str, ...] = ALL_KINDS
    aimed: tuple[str, ...] = ()
    controllers: int = 1
    """Number of controllers: one, whose store is near and loses nothing, or three."""
    has_groups: bool = False
    """Whether coordinators live in the run's topic, and clients commit offsets to them instead of producing."""
    has_outcast: bool = False
    """Whether one node stays broken for ever, and the others must go on without it (L8)."""
    has_members: bool = False
    """Whether consumer groups with members live in the cluster (`sim.groups`)."""
    has_transactions: bool = False
    """Whether transactions are written to the run's topic and read from it (`sim.transacting`)."""
    spare_nodes: int = 0
    """Nodes in addition to those that the topic needs at first."""
    faults_ms: int = 6_000
    promises: tuple[str, ...] = PROMISED
    enough_seeds: int = 40
    """Promises are checked from this many seeds on."""


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="swarm",
            about="everything that may go wrong, a few kinds at a time; fsync before ack",
            aimed=(*AIMED_KINDS, *LOSSES),
            promises=(*PROMISED, *PROMISED_LOSSES),
        ),
        Profile(
            name="page-cache",
            about="acknowledgements before fsync: kills lose nothing, power loss may leave a partition offline",
            durability=Durability.PAGE_CACHE,
            aimed=AIMED_KINDS,
            # Only a process that stops waits for a commit here, so no commit can fail under a running one.
            promises=(*(each for each in PROMISED if each != "fsync failed"), "unclean start", "ended offline"),
        ),
        Profile(
            name="trim",
            about="log starts move while nodes are away, and disks are replaced: logs start again (M10, M30)",
            kinds=("delete_records", "wipe", "kill", "power", "churn"),
            promises=(
                "committed",
                "elections",
                "log start moved",
                "log restarted",
                "deletion complete",
                "deletion above the HW",
            ),
        ),
        Profile(
            name="minority",
            about="one node stays dead, cut off, mute or deaf for ever; the others must go on without it (L8)",
            has_outcast=True,
            faults_ms=3_000,
            promises=("committed", "elections", "isr shrunk"),
        ),
        Profile(
            name="moves",
            about="replicas are moved, moves cancelled, nodes drained, while nodes and the controller die",
            spare_nodes=2,
            kinds=(
                *("reassign", "cancel_move", "drain", "kill", "power", "wipe", "pause", "partition", "isolate"),
                *("churn", "lag", "late_alter", "slow_fsync", "controller_kill", "stop", "min_isr"),
            ),
            promises=PROMISED_MOVES,
        ),
        Profile(
            name="members",
            about="consumer groups: members join, leave, stall, die, commit late and twice; coordinators are chased",
            has_members=True,
            kinds=("kill", "power", "pause", "partition", "one_way", "isolate", "churn", "lag", "stop", "slow_fsync"),
            promises=PROMISED_MEMBERS,
        ),
        Profile(
            name="transactions",
            about="transactions of processes that die, stall, fence each other; late copies; coordinators are chased",
            has_transactions=True,
            kinds=("kill", "power", "pause", "partition", "one_way", "isolate", "churn", "lag", "stop", "slow_fsync"),
            promises=PROMISED_TRANSACTIONS,
        ),
        Profile(
            name="rollback",
            about="the controller's store goes back in time, and is recovered from what nodes have stored (TR18)",
            kinds=("rollback", "kill", "power", "pause", "isolate", "late_alter"),
            promises=(
                "committed",
                "elections",
                "restored store noticed by a node",
                "controller recovered",
                "step continued",
            ),
        ),
        Profile(
            name="controllers",
            about="three controllers on one store: killed, paused, cut off, with wrong clocks; hand-overs",
            controllers=3,
            kinds=(*NODE_KINDS, *REIGN_KINDS),
            promises=PROMISED_REIGNS,
        ),
        Profile(
            name="store-trouble",
            about="three controllers, and a store that is away, full, restored, forgets leases, loses answers",
            controllers=3,
            kinds=(
                "kill",
                "power",
                "store_away",
                "store_full",
                "store_lossy",
                "end_lease",
                "watch_breaks",
                "reign_kill",
                "reign_kill_in_parts",
                "parts_unanswered",
                "store_restored",
            ),
            promises=(
                "committed",
                "elections",
                "reign: active to unsure",
                "reign: unsure to active",
                "reign: active to deposed",
                "append settled: done",
                "append settled: uncertain",
                "store: answer lost after taking effect",
                "store: operation took effect late",
                "no answer: Append",
                "no answer: Campaign",
                "restored store noticed by a controller",
                "controller recovered",
                "room made in a full store",
                *PROMISED_PARTS,
            ),
        ),
        Profile(
            name="groups",
            about="offsets committed to coordinators and read from them; their logs are loaded, swept and cut off",
            kinds=(
                *("kill", "power", "wipe", "partition", "one_way", "isolate", "pause", "clock", "churn", "lag"),
                *("late_alter", "slow_fsync", "controller_kill", "stop", "clog", "min_isr"),
            ),
            has_groups=True,
            enough_seeds=150,
            promises=PROMISED_GROUPS,
        ),
        Profile(
            name="kip-101",
            about="a rule of history: it diverges after fast double failovers, and must be caught at it",
            truncation=Truncation.KIP_101,
            promises=(),
        ),
        Profile(
            name="high-watermark",
            about="a rule of history: it loses acknowledged records, and must be caught at it",
            truncation=Truncation.HIGH_WATERMARK,
            promises=(),
        ),
        Profile(name="calm", about="no faults at all: the cluster must simply work", kinds=(), promises=("committed",)),
    )
}


PLAN_FROM_US = 400_000
"""Start of the faults: the cluster has had time to elect its first leaders."""

AIMED = 2
"""Key of the draws for the aimed faults of a run."""

DELAYS_US = ((1_000, 3_000), (1_000, 3_000), (1_000, 20_000), (1_000, 120_000))
FSYNCS_US = ((200, 1_500), (500, 8_000), (2_000, 30_000))
GAPS_MS = (150, 400, 900)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One entry of a plan. ``pick`` and ``other`` are resolved to nodes and amounts when the fault happens."""

    at_us: int
    kind: str
    pick: int
    other: int
    duration_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything about a run that is drawn before it begins."""

    seed: int
    profile: Profile
    nodes: int
    replication_factor: int
    min_isr: int
    partitions: int
    producers: int
    consumers: int
    delay_us: tuple[int, int]
    fsync_us: tuple[int, int]
    commit_us: tuple[int, int]
    lost_per_mille: int
    sticky: bool
    truncation: Truncation
    kinds: tuple[str, ...]
    plan: tuple[Fault, ...]
    outcast: int | None
    """A node that is not healed at the end: dead, cut off, mute or deaf for ever (L8)."""
    outcast_kind: str
    observers: int
    """Number of observers (M60), which are the last nodes."""
    faults_end_us: int
    without: frozenset[int] = frozenset()
    """Clients that are left out, by number; the others behave as they would otherwise."""
    single_records: bool = False
    """Whether every batch has one record."""

    @property
    def durability(self) -> Durability:
        """The meaning of an acknowledgement in this run."""
        return self.profile.durability


def draw_shape(seed: int, profile: Profile) -> Shape:
    """Draw the shape of a run and its plan of faults."""
    draw = Draw(seed, Purpose.SHAPE)
    nodes = draw.choose((3, 3, 3, 4, 5)) + profile.spare_nodes
    factor = min(nodes, draw.choose((3, 3, 3, 5)))
    observers = 1 if draw.chance(200) else 0
    end_us = profile.faults_ms * 1000
    kinds = _swarm(draw, profile, seed)
    shape = Shape(
        seed=seed,
        profile=profile,
        nodes=nodes + observers,
        replication_factor=factor,
        min_isr=2 if factor < 5 else draw.choose((2, 3)),
        partitions=draw.choose((1, 1, 1, 2)),
        producers=draw.choose((3, 4, 5)),
        consumers=draw.choose((3, 5)),
        delay_us=draw.choose(DELAYS_US),
        fsync_us=draw.choose(FSYNCS_US),
        commit_us=draw.choose(((1_000, 8_000), (2_000, 40_000))),
        lost_per_mille=draw.choose((0, 2, 10)),
        sticky=draw.chance(200),
        truncation=profile.truncation or draw.choose((Truncation.LEADER_EPOCH, Truncation.FETCH)),
        kinds=kinds,
        plan=_plan(seed, draw.choose(GAPS_MS), kinds, end_us),
        outcast=draw.below(nodes) if profile.has_outcast else None,
        outcast_kind=draw.choose(("dead", "cut", "mute", "deaf")),
        observers=observers,
        faults_end_us=end_us,
    )
    return replace(shape, partitions=3, producers=2, consumers=3) if profile.has_transactions else shape


def _swarm(draw: Draw, profile: Profile, seed: int) -> tuple[str, ...]:
    """A few kinds of fault of the profile, so that each run has another character."""
    chosen = draw.sample(profile.kinds, draw.between(1, 5))
    if profile.spare_nodes:
        chosen += ["reassign", "cancel_move"]
    if "churn" in profile.kinds and draw.chance(400):
        # Elections without any failure make the rare orders of events common.
        chosen.append("churn")
    aimed = Draw(seed, Purpose.SHAPE, AIMED)
    chosen += [kind for kind in profile.aimed if aimed.chance(150)]
    return tuple(sorted(set(chosen)))


def _plan(seed: int, gap_ms: int, kinds: tuple[str, ...], end_us: int) -> tuple[Fault, ...]:
    draw = Draw(seed, Purpose.PLAN)
    plan: list[Fault] = []
    at_us = PLAN_FROM_US
    while kinds:
        at_us += draw.between(gap_ms * 200, gap_ms * 1800)
        if at_us >= end_us:
            break
        duration_us = draw.choose((draw.between(20, 300), draw.between(200, 2500))) * 1000
        fault = Fault(
            at_us=at_us, kind=draw.choose(kinds), pick=draw.below(1 << 20), other=draw.below(1 << 20),
            duration_us=duration_us,
        )  # fmt: skip
        plan.append(fault)
    return tuple(plan)
