"""The board on which a scenario plays: nodes, wire, clock, what was seen, and what is printed.

Invariant: nothing here knows of clients, coordinators or a controller, so that all of these can be built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from strandline.core.control.state import ControllerTimings
from strandline.core.log import events
from strandline.core.log.saving_order import NodeTimings
from strandline.core.state_events import StateEvent
from strandline.core.types import Rules, TopicPartition
from strandline_sim.scenario.nodes import Actor, Names
from strandline_sim.scenario.truth import Truth

# ---- wire
# The links between places: messages wait in order on their link until a verb lets them arrive.
#
# Invariant: a call whose message is lost, at any point, ends in one failure for its caller; no loss is hidden.


CONTROLLER = "ctl"
"""The name of the controller on links."""


class Link(NamedTuple):
    """One direction between two places, named as nodes are."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message in transit.

    ``arrive`` delivers it, ``fail`` informs the caller that there will be no answer; both do nothing for a process
    that has ended meanwhile.
    """

    link: Link
    kind: str
    text: str
    arrive: Callable[[], None]
    fail: Callable[[str], None]
    epoch: int | None = None
    """Leader epoch of the partition in a metadata message."""
    version: int | None = None
    """Partition epoch in a metadata message."""

    def __str__(self) -> str:
        return f"{self.link} {self.text}"


class Wire:
    """All links, with the messages that wait on them."""

    def __init__(self) -> None:
        self._waiting: list[Envelope] = []
        self.held: set[Link] = set()
        self.cut: set[Link] = set()

    def send(self, envelope: Envelope) -> None:
        """Put a message at the end of its link."""
        self._waiting.append(envelope)

    def waiting(self) -> Iterator[Envelope]:
        """All messages in transit, in the order in which they were sent."""
        return iter(tuple(self._waiting))

    def oldest(self, link: Link, kind: str | None = None) -> Envelope | None:
        """The oldest message of a link, or the oldest of one kind."""
        return next((e for e in self._waiting if e.link == link and kind in (None, e.kind)), None)

    def next_free(self) -> Envelope | None:
        """The oldest message that is not held back."""
        return next((e for e in self._waiting if e.link not in self.held), None)

    def take(self, envelope: Envelope) -> None:
        """Remove a message."""
        self._waiting = [e for e in self._waiting if e is not envelope]

    def duplicate(self, envelope: Envelope) -> Envelope:
        """Put a copy at the end of the same link."""
        copy = replace(envelope)
        self.send(copy)
        return copy

    def touching(self, place: str) -> list[Envelope]:
        """All messages in transit from or to a place."""
        return [e for e in self._waiting if place in e.link]


class Sink(Protocol):
    """Receives the state events of one place."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Take one event."""
        ...


@dataclass(frozen=True, slots=True)
class Observers:
    """The other watchers of a run.

    ``trace`` is called with (place, event or effect); ``sink`` gives the sink of a place.
    """

    trace: Callable[[str, object], None] = lambda place, what: None
    sink: Callable[[str, int | None], Sink | None] = lambda place, node_id: None


@dataclass(slots=True)
class Asked:
    """An unanswered question of one node to another."""

    asker: str
    life: int
    leader: str
    correlation_id: int
    fail: Callable[[str], None]
    arrived: bool = False


class Board:
    """The nodes of a scenario, and the operations that every part of it may use."""

    def __init__(self, observers: Observers | None) -> None:
        self.observers = observers or Observers()
        self.now_ms = 0
        self.rules = Rules()
        self.timings = NodeTimings()
        self.controller_timings = ControllerTimings(auto_leader_rebalance=False)
        self.names = Names()
        self.actors: dict[str, Actor] = {}
        self.wire = Wire()
        self.truth = Truth(self.names)
        # Unanswered requests between nodes, by the number under which they are served.
        self.asked: dict[int, Asked] = {}
        # The output of the current command.
        self.lines: list[str] = []
        self.tells_messages = True
        self._requests = 0

    def tell(self, line: str) -> None:
        """Print a line of output."""
        self.lines.append(line)

    def report(self, place: str, node_id: int | None, tp: TopicPartition | None, event: StateEvent) -> None:
        """Export a state event."""
        sink = self.observers.sink(place, node_id)
        if sink is not None:
            sink.take(tp, event)

    def request_id(self) -> int:
        """A number that no other request has."""
        self._requests += 1
        return self._requests

    def actor(self, node_id: int) -> Actor:
        """A node by its id."""
        return self.actors[self.names.name(node_id)]

    def running(self) -> list[Actor]:
        """Every node whose process lives, in the order in which they were named."""
        return [actor for actor in self.actors.values() if actor.is_running]

    def send(self, envelope: Envelope) -> None:
        """Put a message on the wire."""
        self.wire.send(envelope)
        if self.tells_messages:
            self.tell(f"{envelope.link} sent: {envelope.text}")

    def is_connected(self, one: str, other: str) -> bool:
        """Whether both places exist and no link between them is cut. A held link is not cut."""
        return not {Link(one, other), Link(other, one)} & self.wire.cut and self.is_there(one) and self.is_there(other)

    def step(self, actor: Actor, event: events.Event) -> None:
        """Step one node with an event, and with all that follows from it at once."""
        raise NotImplementedError

    def check(self) -> None:
        """Check the safety properties."""
        raise NotImplementedError

    def is_there(self, place: str) -> bool:
        """Whether a process listens at a place."""
        raise NotImplementedError
