"""How one seed is run: faults, then healing, then the question whether everything came back, then the verdict.

Invariant: the outcome is a function of (seed, profile, build); a violation is an outcome, never an exception that
leaves this file, so a campaign counts it and goes on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from strandline_sim.checks.committed import Broken
from strandline_sim.checks.group_history import group_anomalies
from strandline_sim.checks.history import Read, RecordPlace, Seek, anomalies
from strandline_sim.checks.liveness import Convergence
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.shape import draw_shape
from strandline_sim.world.cluster import Recorder
from strandline_sim.world.environment import PRODUCTION, Build
from strandline_sim.world.world import World

QUIET_US = 1_000_000
CONVERGED_WITHIN_US = 15_000_000
LOOK_EVERY_US = 100_000
SERVES_WITHIN_US = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What was broken, when, and where it can be seen."""

    name: str
    sentence: str
    at_us: int
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run's result."""

    seed: int
    profile: str
    events: int
    simulated_us: int
    committed: int
    counts: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None


def run_seed(
    seed: int, profile: str = "swarm", *, build: Build = PRODUCTION, recorder: Recorder | None = None
) -> Outcome:
    """Run one seed to its end or to the first violation."""
    world = World(draw_shape(seed, PROFILES[profile]), build=build, recorder=recorder)
    return run_world(world)


def run_world(world: World) -> Outcome:
    """Run a world that has just been made."""
    violation = None
    try:
        with world.loop.running():
            _run(world)
    except Broken as broken:
        sentence = str(broken).removeprefix(f"{broken.name}: ")
        violation = Violation(name=broken.name, sentence=sentence, at_us=world.timeline.now_us, offset=broken.offset)
    except AssertionError as error:
        violation = Violation(name="I0", sentence=f"an assertion of the core: {error}", at_us=world.timeline.now_us)
    finally:
        with world.loop.running():
            world.close()
    return Outcome(
        seed=world.shape.seed,
        profile=world.shape.profile.name,
        events=world.events,
        simulated_us=world.timeline.now_us,
        committed=sum(each.records for each in world.checks.committed.values()),
        counts=world.coverage.counts,
        violation=violation,
    )


def _run(world: World) -> None:
    world.start()
    world.timeline.run_until(world.shape.faults_end_us)
    world.note("--", "heal everything")
    world.faults.heal()
    if world.groups is not None:
        world.groups.calm()
    convergence = Convergence(world)
    world.timeline.run_until(world.timeline.now_us + QUIET_US)
    for producer in world.producers:
        producer.stopped = True
    for committer in world.committers:
        committer.stopped = True
    if world.transactions is not None:
        world.transactions.close()
    deadline_us = world.timeline.now_us + CONVERGED_WITHIN_US
    while convergence.missing() is not None and world.timeline.now_us < deadline_us:
        world.timeline.run_until(world.timeline.now_us + LOOK_EVERY_US)
    convergence.check()
    if world.groups is not None:
        world.groups.check_end()
    world.checks.nothing_lost()
    if world.shape.profile.has_groups:
        _explain_groups(world)
        return
    sends = [send for producer in world.producers for send in producer.sends()]
    if world.transactions is not None:
        world.transactions.check_end(sends)
        return
    _final_read(world)
    world.history.extend(sends)
    offline = {tp.partition for tp in world.tps if world.leader_of(tp) is None}
    found = anomalies(world.history, unreadable=offline)
    if found:
        raise Broken(found[0].name, found[0].sentence)


def _explain_groups(world: World) -> None:
    """What clients of groups saw is explained (I30), and every coordinator serves soon (L12)."""
    open_commits = [committer.open for committer in world.committers if committer.open is not None]
    if wrong := group_anomalies([*world.group_history, *open_commits]):
        raise Broken("I30", wrong[0])
    deadline_us = world.timeline.now_us + SERVES_WITHIN_US
    # Leadership may have moved a moment ago, and a load takes a while.
    while (idle := _not_serving(world)) and world.timeline.now_us < deadline_us:
        world.timeline.run_until(world.timeline.now_us + LOOK_EVERY_US)
    if idle:
        raise Broken("L12", idle)


def _not_serving(world: World) -> str:
    """A coordinator that does not serve, as a sentence; empty if all do."""
    for tp in world.tps:
        leader = world.leader_of(tp)
        process = world.machines[leader].process if leader is not None else None
        if process is not None:
            shard = process.core._coordinators.shards.get(tp)
            if shard is None or not shard.is_serving:
                return f"the coordinator of p{tp.partition} on node {leader} does not serve"
    return ""


def _final_read(world: World) -> None:
    """One more consumer reads everything that is there."""
    now_s = world.timeline.now_us / 1e6
    for tp in world.tps:
        leader = world.leader_of(tp)
        if leader is None:
            continue
        log = world.machines[leader].log(tp)
        name = f"final-{tp.partition}"
        world.history.append(Seek(consumer=name, place=RecordPlace(tp.partition, log.root)))
        # Batches below the log start may still lie in a segment that is not gone; their records count as read.
        for header, code in zip(log.headers, log.values, strict=True):
            assert isinstance(code, int)
            for index, value in enumerate(world.names.values(code, header.record_count)):
                place = world.names.place(tp.partition, header.base_offset + index)
                world.history.append(Read(name, place, value, now_s))
