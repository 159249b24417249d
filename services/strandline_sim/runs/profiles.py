"""Which kinds of runs there are, and what a campaign of each promises to have seen.

Invariant: a promise is kept by count: what a profile promises and never happened fails the campaign, for a test finds
only what it reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.types import Durability, Truncation

ALL_KINDS = (
    "kill", "power", "blackout", "wipe", "partition", "one_way", "isolate", "pause", "clock", "churn", "lag",
    "late_alter", "slow_fsync", "controller_kill", "stop", "clog", "min_isr", "delete_records", "fsync_fails",
)  # fmt: skip

AIMED_KINDS = ("joiner",)
"""Faults that wait for their moment. They are drawn apart, so that a seed without them is the run it was."""

LOSSES = ("lost_tail", "restore", "dead_cluster")
"""Faults by which a disk loses durable records, within A5. Drawn apart as well."""

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
"""What happens to nodes while controllers change."""

REIGN_KINDS = (
    "reign_kill", "reign_kill_in_parts", "parts_unanswered", "reign_pause", "reign_clock", "reign_cut_store",
    "reign_cut_peers", "reign_cut_nodes", "hand_over", "end_lease", "watch_breaks", "watch_lags",
)  # fmt: skip

PROMISED_PARTS = (
    "append in parts", "killed between parts and transaction", "append in parts beside those of an ended reign",
    "left-over parts deleted", "no answer: part", "no answer: transaction behind its parts", "snapshot of the store",
    "log deleted behind a snapshot", "began from a snapshot", "began again from a snapshot",
)  # fmt: skip
"""Of a store whose values and whose log are limited (C8, C11, C17)."""

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
    """None: one of the two safe rules, by the seed."""
    kinds: tuple[str, ...] = ALL_KINDS
    aimed: tuple[str, ...] = ()
    controllers: int = 1
    """More than one: three on a store of their own (`sim.controllers`)."""
    has_groups: bool = False
    """Coordinators live in the run's topic, and clients commit offsets to them instead of producing."""
    has_outcast: bool = False
    """One node is left broken for ever; the others must go on without it (L8)."""
    has_members: bool = False
    """Consumer groups with members live in the cluster (`sim.groups`)."""
    has_transactions: bool = False
    """Transactions are written to the run's topic and read from it (`sim.transacting`)."""
    faults_ms: int = 6_000
    promises: tuple[str, ...] = PROMISED
    enough_seeds: int = 40
    """Promises are asked for from this many seeds on."""


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
            # Nobody waits for a commit here but a process that stops, so none can fail under a running one.
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
            promises=("committed", "elections", "controller stopped serving", "controller recovered", "step continued"),
        ),
        Profile(
            name="controllers",
            about="three controllers on one store: killed, paused, cut off, with wrong clocks; hand-overs (C120)",
            controllers=3,
            kinds=(*NODE_KINDS, *REIGN_KINDS),
            promises=PROMISED_REIGNS,
        ),
        Profile(
            name="store-trouble",
            about="three controllers, and a store that is away, full, restored, forgets leases, loses answers (C120)",
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
