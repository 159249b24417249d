"""How one run looks: how many nodes, how fast its network and disks, which faults and how often.

Invariant: the shape is a function of (seed, profile) alone, and the fault plan is an explicit list made before the
run begins, so that a run with one fault less is a run of its own. Leaving out
some kinds of faults per run is swarm testing (Groce et al., 2012).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.core.types import Durability, Truncation
from strandline_sim.runs.profiles import Profile
from strandline_sim.world.draws import Draw, Purpose

PLAN_FROM_US = 400_000
"""Faults begin when the cluster has had time to elect its first leaders."""

AIMED = 2
"""Key of the draws that say which aimed faults a run has."""

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
    """So many of the nodes, the last ones, are observers (M60)."""
    faults_end_us: int
    without: frozenset[int] = frozenset()
    """Clients that are left out, by number; the others do what they do anyway."""
    single_records: bool = False
    """Whether every batch has one record."""

    @property
    def durability(self) -> Durability:
        """What an acknowledgement means in this run."""
        return self.profile.durability


def draw_shape(seed: int, profile: Profile) -> Shape:
    """The shape of a run and its plan of faults."""
    draw = Draw(seed, Purpose.SHAPE)
    nodes = draw.choose((3, 3, 3, 4, 5))
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
    """A few kinds of fault out of those of the profile: each run is of another character."""
    chosen = draw.sample(profile.kinds, draw.between(1, 5))
    if "churn" in profile.kinds and draw.chance(400):
        # Elections without any failure are what makes the rare orders of events common.
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
