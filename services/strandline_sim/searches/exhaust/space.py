"""The states of the whole and the steps between them, including the abstract network, controller and clients.

Invariant: a state is (what the controller committed and published, what clients wrote and what was committed, node 0,
node 1, ...), each part interned, so equal states are equal small tuples, and a result that depends on some parts is
computed once. Partition epochs are renumbered by rank after every change (`settling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.core.log.follower import FetchState
from strandline.core.log.truncation import EpochCache, FirstMove, rule_for
from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Interned
from strandline_sim.searches.exhaust.actions import Actions, AssertionBroken, Trip, can_ask
from strandline_sim.searches.exhaust.bench import Bench
from strandline_sim.searches.exhaust.local import Data, Following, Image, Leading, Local, Property, broken, newborn
from strandline_sim.searches.exhaust.settling import FOLLOWERS_ONLY, ControllerSide, Settling, State, Symmetry, is_news
from strandline_sim.searches.exhaust.variants import Bounds, Variant

Successors = list[tuple["Step", State]]


class Step(NamedTuple):
    """One action: its kind, the nodes concerned, and anything else that distinguishes it from similar ones."""

    kind: str
    node: int = -1
    other: int = -1
    detail: int = 0
    applied: bool = False
    """Whether an ISR change proposed in this step reached the controller at once, and the answer reached the leader."""


class View(NamedTuple):
    """A state spelled out."""

    cluster: ControllerSide
    data: Data
    nodes: tuple[Local, ...]


class Space:
    """The states reachable under ``actions`` within ``bounds``."""

    def __init__(self, actions: Actions, bounds: Bounds) -> None:
        self._actions = actions
        self._bounds = bounds
        self.clusters: Interned[ControllerSide] = Interned()
        self.data: Interned[Data] = Interned()
        self.locals: Interned[Local] = Interned()
        self._settling = Settling(self.clusters, self.locals)
        self.representative = Symmetry(self.clusters, self.data, self.locals).representative
        self._controlled: dict[int, list[tuple[Step, int]]] = {}
        self.images: Interned[Image] = Interned()
        self._learned: dict[tuple[int, int], list[tuple[Step, int, bool]]] = {}
        self._lesson_of: dict[tuple[int, int], tuple[Step, int, bool] | None] = {}
        self._written: dict[int, tuple[Step, int] | None] = {}
        self._shrunk: dict[int, list[tuple[Step, int]]] = {}
        self._trips: dict[tuple[int, int], list[tuple[Step, int, int, bool]]] = {}
        self._proposed: dict[tuple[int, int], tuple[int, int]] = {}
        self.assertions: dict[str, Step] = {}
        """The first step that broke each assertion of the core; such a step leads to no state, as the process ends."""

    def start(self) -> State:
        """The first state: no node leads, and no node knows anything."""
        cluster = ControllerSide(self._actions.first(), ())
        nodes = (newborn(n) for n in range(self._bounds.replicas))
        return (self.clusters.id_of(cluster), self.data.id_of(Data(0, ())), *(self.locals.id_of(n) for n in nodes))

    def view(self, state: State) -> View:
        """A state spelled out."""
        nodes = tuple(self.locals.values[n] for n in state[2:])
        return View(self.clusters.values[state[0]], self.data.values[state[1]], nodes)

    def successors(self, state: State) -> Successors:
        """Every possible step, and the state after it."""
        out: Successors = []
        cluster, data, nodes = state[0], state[1], state[2:]
        for step, after in self._controls(cluster):
            out.append((step, self._settled(after, data, nodes)))
        for n, local_id in enumerate(nodes):
            local = self.locals.values[local_id]
            self._learn(cluster, data, nodes, n, out)
            if isinstance(local.part, Leading):
                self._lead(cluster, data, nodes, n, local.part, out)
            elif can_ask(local):
                assert local.follows is not None
                self._ask(cluster, data, nodes, n, local.follows, None, out)
        return out

    def _controls(self, cluster_id: int) -> list[tuple[Step, int]]:
        known = self._controlled.get(cluster_id)
        if known is None:
            cluster = self.clusters.values[cluster_id]
            known = self._controlled[cluster_id] = [
                (
                    Step(kind, n, _number(image.leader), image.leader_epoch),
                    self.clusters.id_of(ControllerSide(image, (*cluster.published, image))),
                )
                for kind, n, image in self._actions.control(cluster.now)
                if image.leader_epoch <= self._bounds.max_leader_epoch
            ]
        return known

    def _learn(self, cluster: int, data: int, nodes: State, n: int, out: Successors) -> None:
        for step, learned, asks in self._lessons(cluster, nodes[n]):
            after = (*nodes[:n], learned, *nodes[n + 1 :])
            out.append((step, self._settled(cluster, data, after)))
            if asks:
                # Learning of a leader and the first question to it are one step, as the published lengths count it.
                self._ask(cluster, data, after, n, step.other, step, out)

    def _lessons(self, cluster_id: int, local_id: int) -> list[tuple[Step, int, bool]]:
        key = (cluster_id, local_id)
        known = self._learned.get(key)
        if known is None:
            local = self.locals.values[local_id]
            lessons = [
                self._lesson(self.images.id_of(image), local_id)
                for image in self.clusters.values[cluster_id].published
                if is_news(image, local)
            ]
            known = self._learned[key] = [lesson for lesson in lessons if lesson is not None]
        return known

    def _lesson(self, image_id: int, local_id: int) -> tuple[Step, int, bool] | None:
        key = (image_id, local_id)
        if key not in self._lesson_of:
            local, image = self.locals.values[local_id], self.images.values[image_id]
            step = Step("learn", local.node_id, _number(image.leader), image.leader_epoch)
            learned = self._try(step, lambda: self._actions.learn(local, _as_reported(image, local)))
            lesson = None if learned is None else (step, learned, _asks_first(self.locals.values[learned]))
            self._lesson_of[key] = lesson
        return self._lesson_of[key]

    def _lead(self, cluster: int, data: int, nodes: State, n: int, part: Leading, out: Successors) -> None:
        written, committed = self.data.values[data]
        if written < self._bounds.records:
            wrote = self._writing(nodes[n])
            if wrote is not None:
                grown = self.data.id_of(Data(written + 1, committed))
                out.append((wrote[0], self._state(cluster, grown, (*nodes[:n], wrote[1], *nodes[n + 1 :]))))
        if part.proposed is None:
            for step, after in self._shrinking(nodes[n], n, part):
                self._reported(cluster, data, (*nodes[:n], after, *nodes[n + 1 :]), n, True, step, out)
        elif part.asking:
            self._propose(cluster, data, nodes, n, Step("alter", n), out)
            if self._bounds.slow_isr:
                altered, _ = self._proposal(cluster, nodes[n])
                if self.clusters.values[altered].now != self.clusters.values[cluster].now:
                    out.append((Step("alter, no answer", n), self._settled(altered, data, nodes)))

    def _writing(self, local_id: int) -> tuple[Step, int] | None:
        if local_id not in self._written:
            local = self.locals.values[local_id]
            step = Step("write", local.node_id)
            after = self._try(step, lambda: self._actions.write(local))
            self._written[local_id] = None if after is None else (step, after)
        return self._written[local_id]

    def _shrinking(self, local_id: int, n: int, part: Leading) -> list[tuple[Step, int]]:
        known = self._shrunk.get(local_id)
        if known is None:
            local = self.locals.values[local_id]
            known = self._shrunk[local_id] = []
            for late in part.isr:
                step = Step("shrink", n, late)
                after = None if late == n else self._try(step, lambda who=late: self._actions.shrink(local, who))
                if after is not None and after != local_id:
                    known.append((step, after))
        return known

    def _reported(
        self, cluster: int, data: int, nodes: State, n: int, proposes: bool, step: Step, out: Successors
    ) -> None:
        """A step of leader ``n``; if it proposes an ISR, also the variant with the controller's answer at once."""
        if self._bounds.slow_isr or not proposes:
            out.append((step, self._state(cluster, data, nodes)))
        if proposes:
            self._propose(cluster, data, nodes, n, step._replace(applied=True), out)

    def _propose(self, cluster: int, data: int, nodes: State, n: int, step: Step, out: Successors) -> None:
        altered, leader = self._proposal(cluster, nodes[n])
        out.append((step, self._settled(altered, data, (*nodes[:n], leader, *nodes[n + 1 :]))))

    def _proposal(self, cluster_id: int, local_id: int) -> tuple[int, int]:
        key = (cluster_id, local_id)
        known = self._proposed.get(key)
        if known is None:
            cluster = self.clusters.values[cluster_id]
            now, leader = self._actions.propose(self.locals.values[local_id], cluster.now)
            published = (*cluster.published, now) if now != cluster.now else cluster.published
            altered = self.clusters.id_of(ControllerSide(now, published))
            known = self._proposed[key] = (altered, self.locals.id_of(leader))
        return known

    def _ask(
        self, cluster: int, data: int, nodes: State, n: int, leader: int, learned: Step | None, out: Successors
    ) -> None:
        for step, asker_id, leader_id, proposes in self._round_trips(nodes[n], nodes[leader]):
            after = list(nodes)
            after[n], after[leader] = asker_id, leader_id
            if learned is not None:
                self._reported_and_settled(cluster, data, tuple(after), learned, out)
            else:
                self._reported(cluster, data, tuple(after), leader, proposes, step, out)

    def _reported_and_settled(self, cluster: int, data: int, nodes: State, learned: Step, out: Successors) -> None:
        out.append((learned._replace(kind="learn, ask"), self._settled(cluster, data, nodes)))

    def _round_trips(self, asker_id: int, asked_id: int) -> list[tuple[Step, int, int, bool]]:
        key = (asker_id, asked_id)
        known = self._trips.get(key)
        if known is None:
            asker, asked = self.locals.values[asker_id], self.locals.values[asked_id]
            assert isinstance(asker.part, Following)
            kind = "fetch" if asker.part.state is FetchState.FETCHING else "ask"
            trips: list[Trip] = []
            try:
                trips = self._actions.trips(asker, asked)
            except AssertionBroken as error:
                self.assertions.setdefault(str(error), Step(kind, asker.node_id, asked.node_id))
            known = self._trips[key] = [
                (
                    Step(kind, asker.node_id, asked.node_id, trip.records),
                    self.locals.id_of(trip.asker),
                    self.locals.id_of(trip.leader),
                    _proposes(asked, trip.leader),
                )
                for trip in trips
                if trip.asker != asker or trip.leader != asked
            ]
        return known

    def _settled(self, cluster: int, data: int, nodes: State) -> State:
        """The state after metadata or the controller moved."""
        return self._state(*self._settling.settle(cluster, data, nodes))

    def _state(self, cluster: int, data: int, nodes: State) -> State:
        exposed = self._settling.exposed(max(nodes))
        reach = max([exposed[n] for n in nodes])
        written, committed = self.data.values[data]
        if reach > len(committed):
            # Among leaders that went equally far the first is believed; if they differ, StrongIsr is broken here.
            log = next(self.locals.values[n].log for n in nodes if exposed[n] == reach)
            data = self.data.id_of(Data(written, committed + log[len(committed) : reach]))
        return (cluster, data, *nodes)

    def _try(self, step: Step, act: object) -> int | None:
        try:
            return self.locals.id_of(act())  # type: ignore[operator]
        except AssertionBroken as error:
            self.assertions.setdefault(str(error), step)
            return None


def _proposes(before: Local, after: Local) -> bool:
    return _is_asking(after) and not _is_asking(before)


def _is_asking(local: Local) -> bool:
    return isinstance(local.part, Leading) and local.part.asking


def _asks_first(local: Local) -> bool:
    return can_ask(local) and isinstance(local.part, Following) and local.part.state is FetchState.TRUNCATING


def _as_reported(image: Image, local: Local) -> Image:
    """Metadata as it arrives: the parts that were dropped, because they decide nothing for followers, are filled in."""
    if image.partition_epoch != FOLLOWERS_ONLY:
        return image
    own = 0 if local.image is None else local.image.partition_epoch
    return image._replace(partition_epoch=own, isr=() if image.leader is None else (image.leader,))


def _number(node_id: int | None) -> int:
    return -1 if node_id is None else node_id


# ---- searching
# The search of every state of a small cluster, for several properties at once.


Found = breadth_first.Found[State, Step]
Result = breadth_first.Result[State, Step]


def search(variant: Variant, bounds: Bounds, wanted: Iterable[Property] = tuple(Property), **limits: Any) -> Result:
    """Search until each of ``wanted`` is broken, or nothing is left (`breadth_first.search`)."""
    wanted = frozenset(wanted)
    return breadth_first.search(Exhaust(variant, bounds, wanted), wanted=wanted, **limits)


@dataclass
class _Ends(Exception):
    """A step broke an assertion of the core: the process ends, and the step leads to no state."""

    note: str
    steps: tuple[Step]

    def __str__(self) -> str:
        return Property.ASSERTION


class Exhaust(breadth_first.Model[State, Step, State]):
    """The search of states up to the names of the replicas."""

    failure = _Ends

    def __init__(self, variant: Variant, bounds: Bounds, wanted: frozenset[Property]) -> None:
        self.bounds: Bounds = bounds
        self.variant = variant
        self.space = Space(Actions(Bench(variant, bounds.replicas, bounds.min_isr)), bounds)
        self._wanted = wanted
        # Whether the rules begin an epoch with a question or a cut, so that a fetching follower has been compared.
        some = EpochCache((EpochEntry(LeaderEpoch(0), Offset(0)),))
        self._asks = rule_for(variant.rules.truncation).first_move(some) is not FirstMove.FETCH

    def start(self) -> State:
        return self.space.start()

    def successors(self, world: State) -> list[tuple[Step, State]]:
        return self.space.successors(world)

    def key(self, world: State) -> State:
        return self.space.representative(world)

    def after(self, key: State) -> Iterator[State]:
        """The states that can follow.

        Raises:
            _Ends: a step broke an assertion of the core, here or before.
        """
        representative = self.space.representative
        for _, after in self.space.successors(key):
            yield representative(after)
        for note, step in self.space.assertions.items():
            raise _Ends(note, (step,))

    def broken(self, key: State) -> set[Property]:
        """The properties that do not hold."""
        cluster, data, nodes = self.space.view(key)
        return broken(nodes, cluster.now, data.committed, asks=self._asks) & self._wanted
