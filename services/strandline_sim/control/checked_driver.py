"""The services' driver of a simulated reign, with a counted core; and the state that a recovery builds.

Invariant: whatever ends the process in production ends the run.
"""

from __future__ import annotations

from typing import Any, NoReturn

from strandline.controller.driver import ControllerDriver, Store
from strandline.core.control import events
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.control.state import ClusterState
from strandline.core.messages import Heartbeat, MetadataImage, RegisterNode
from strandline.core.types import TopicPartition
from strandline.runtime.exit_codes import ExitCode
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.environment import ElectableController


class CheckedDriver(ControllerDriver):
    """The services' driver; whatever ends the process in production ends the run."""

    def __init__(self, world: Cluster, core: CountedCore, store: Store, **ports: Any) -> None:
        super().__init__(core, store, **ports)
        self._world = world

    def fail(self, error: BaseException) -> NoReturn:
        """End the run."""
        self._world.loop.broke(error)
        raise error


class CountedCore:
    """The core under test; its steps are counted and shown to the recorder."""

    def __init__(self, world: Cluster, core: ElectableController) -> None:
        self._world = world
        self._core = core
        self.has_heard = False
        """Whether a node that the store knows has called in this reign."""

    def step(self, event: events.ControllerEvent) -> list[events.ControllerEffect]:
        """Step the core."""
        world = self._world
        world.events += 1
        effects = self._core.step(event)
        if isinstance(event, events.RequestArrived) and isinstance(event.request, RegisterNode | Heartbeat):
            answers = [effect.answer for effect in effects if isinstance(effect, events.Answer)]
            self.has_heard |= any(getattr(answer, "refusal", None) is None for answer in answers)
        if type(event) is events.StepContinued:
            world.coverage.saw("step continued")
        elif type(event) is events.ControllerStarted and any(type(effect) is events.ContinueStep for effect in effects):
            world.coverage.saw("reign goes on with a step")
        world.recorder.controller_stepped(event, effects)
        return effects

    @property
    def purgatory_full(self) -> bool:
        """Never: the controller parks no request."""
        return self._core.purgatory_full

    @property
    def state(self) -> ClusterState:
        """The state that is decided so far."""
        return self._core.state

    @property
    def serves(self) -> bool:
        """Whether this reign may serve at all."""
        return self._core.serves

    @property
    def unproven_claims(self) -> int:
        """Claims of a newer position that carried no proof."""
        return self._core.unproven_claims


class Notes:
    """Turns the log messages of the controller into lines of a replay."""

    def __init__(self, world: Cluster) -> None:
        self._world = world

    def _note(self, event: str, **fields: Any) -> None:
        said = " ".join(f"{name}={value}" for name, value in fields.items())
        self._world.note("ctl", f"logs: {event} {said}".rstrip())

    info = warning = error = _note


def recovered_from_nodes(world: Cluster, store: ClusterState | None) -> tuple[ClusterState, set[TopicPartition]]:
    """The state that a recovery builds from the store and the nodes' copies; and partitions left to an operator.

    Those have no member in anything that nodes know, or a replica whose directory is empty and unknown to the store
    (C38).
    """
    given = [
        GivenNode(node_id=machine.node_id, directory_id=machine.disk.directory_id, image=machine.disk.seen)
        for machine in world.machines.values()
    ]
    world.metadata.begin_anew()
    recovered = recover(given, store)
    unknown = {
        node.node_id for node in given if node.image is None and (store is None or node.node_id not in store.nodes)
    }
    found = set()
    for partition in recovered.partitions():
        seen = [
            {*each.isr, *each.elr}
            for node in given
            if node.image is not None
            for topic in node.image.topics
            for each in topic.partitions
            if each.tp == partition.tp
        ]
        if unknown & set(partition.replicas) or not set.intersection(*seen):
            found.add(partition.tp)
    return recovered, found


def stop(code: ExitCode, line: str) -> NoReturn:
    """An invariant of the controller's core broke; the run ends with it."""
    raise AssertionError(line)


def as_it_is(image: MetadataImage) -> MetadataImage:
    """Encode nothing: a simulated network carries objects."""
    return image
