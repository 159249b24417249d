"""Runs one seed: faults, then healing, then the check that everything came back, then the verdict.

Invariant: the outcome is a function of (seed, profile, build); a violation is an outcome, never an exception that
leaves this module, so a campaign counts it and goes on.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

from strandline.core.control.election import reports_needed
from strandline.core.messages import PartitionImage
from strandline.core.types import Durability
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.group_history import group_anomalies
from strandline_sim.checks.history import Read, RecordPlace, Seek, anomalies
from strandline_sim.runs.shape import PROFILES, draw_shape
from strandline_sim.world.cluster import Recorder
from strandline_sim.world.environment import PRODUCTION, Build, missing
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process
from strandline_sim.world.world import World

# ---- liveness
# Checks whether a healed cluster came back to life: L1-L7 and L10 of RELIABILITY.md#invariants.
#
# Invariants: a partition whose ISR and ELR are both empty must stay offline and report that; no more is asked of it.
# Where acknowledgements wait for fsync this never happens: no fault takes more from the disks than A5 allows. A
# partition that needs the log of the node that never comes back waits for it (M65), until an operator decides.


class Convergence:
    """Checks a world after healing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def missing(self) -> tuple[str, str] | None:
        """The first promise that is not kept yet, with what is missing; None if all are kept."""
        world = self._world
        if world.controllers.process is None:
            return ("L7", "there is no controller")
        offset = world.controllers.process.core.state.header.metadata_offset
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
        """Raise if something is missing, and count what may stay missing.

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
            if image.tp in self._world.controllers.undecidable:
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
        if (image.original or image.queued_target) and not _is_given_up(image):
            return ("L10", f"a reassignment of partition {image.tp.partition} does not end: {image}")
        if _is_given_up(image) or self._waits_for_the_outcast(image):
            return None
        if image.leader is None:
            return ("L7", f"partition {image.tp.partition} has no leader: {image}")
        expected = {node_id for node_id in image.replicas if node_id != self._world.outcast}
        if set(image.isr) != expected:
            return ("L5", f"the ISR of {image.tp.partition} is {image.isr}, not {expected}")
        return self._logs(image)

    def _waits_for_the_outcast(self, image: PartitionImage) -> bool:
        """Whether too few logs can be compared without the log that will never be reported."""
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


QUIET_US = 1_000_000
CONVERGED_WITHIN_US = 15_000_000
LOOK_EVERY_US = 100_000
SERVES_WITHIN_US = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken invariant: which one, when, and where it can be seen."""

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
    return run_world(World(draw_shape(seed, PROFILES[profile]), build=build, recorder=recorder))


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
    """Check that what clients of groups saw is explained (I30), and that every coordinator serves soon (L12)."""
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
    """A sentence that names a coordinator that does not serve; empty if all serve."""
    for tp in world.tps:
        leader = world.leader_of(tp)
        process = world.machines[leader].process if leader is not None else None
        if process is not None:
            shard = process.core._coordinators.shards.get(tp)
            if shard is None or not shard.is_serving:
                return f"the coordinator of p{tp.partition} on node {leader} does not serve"
    return ""


def _final_read(world: World) -> None:
    """Read everything that is stored with one more consumer."""
    now_s = world.timeline.now_us / 1e6
    for tp in world.tps:
        leader = world.leader_of(tp)
        if leader is None:
            continue
        log = world.machines[leader].log(tp)
        name = f"final-{tp.partition}"
        world.history.append(Seek(consumer=name, place=RecordPlace(tp.partition, log.root)))
        # Batches below the log start may still be in a segment that is not deleted; their records count as read.
        for header, code in zip(log.headers, log.values, strict=True):
            assert isinstance(code, int)
            for index, value in enumerate(world.names.values(code, header.record_count)):
                place = world.names.place(tp.partition, header.base_offset + index)
                world.history.append(Read(name, place, value, now_s))


# ---- campaign
# Runs many seeds in several processes, and sums up their outcomes.
#
# Invariant: a seed runs whole in one process, and the sum does not depend on the order in which seeds end.


@dataclass(slots=True)
class Campaign:
    """The sum of all outcomes so far."""

    profile: str
    seeds: int = 0
    events: int = 0
    simulated_us: int = 0
    committed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[Outcome] = field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        """Add the outcome of one seed."""
        self.seeds += 1
        self.events += outcome.events
        self.simulated_us += outcome.simulated_us
        self.committed += outcome.committed
        self.counts.update(outcome.counts)
        if outcome.violation is not None:
            self.broken.append(outcome)

    @property
    def missing(self) -> list[str]:
        """The promises of the profile that no seed showed; nothing is asked of a campaign that is too small."""
        profile = PROFILES[self.profile]
        kinds = tuple(f"fault: {kind}" for kind in (*profile.kinds, *profile.aimed))
        return missing(self.counts, (*profile.promises, *kinds)) if self.seeds >= profile.enough_seeds else []

    @property
    def passed(self) -> bool:
        """Whether nothing was broken and every promise was seen."""
        return not self.broken and not self.missing


_YOUNG_OBJECTS = 200_000
"""A run makes many objects that live for microseconds and few cycles; a collection every 700 objects is a waste."""


def _collect_rarely() -> None:
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Make this process collect cycles rarely for a while, which saves a few per cent of a run's time."""
    before = gc.get_threshold()
    _collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)


def outcomes(
    seeds: Iterable[int], profile: str, jobs: int, run: Callable[[int, str], Outcome] = run_seed
) -> Iterator[Outcome]:
    """The outcome of every seed, as they end."""
    if jobs <= 1:
        with rare_collections():
            for seed in seeds:
                yield run(seed, profile)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_collect_rarely) as pool:
        waiting: set[Future[Outcome]] = set()
        rest = iter(seeds)
        while True:
            waiting.update(pool.submit(run, seed, profile) for seed in islice(rest, 4 * jobs - len(waiting)))
            if not waiting:
                return
            done, waiting = wait_for(waiting, return_when="FIRST_COMPLETED")
            for future in done:
                yield future.result()
