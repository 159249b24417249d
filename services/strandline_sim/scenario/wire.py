"""What lies between two places: messages wait in order on their link until somebody lets them arrive.

Invariant: a call whose message is lost, at whatever point, ends in one failure for its asker; nothing is lost unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

CONTROLLER = "ctl"
"""How the controller is called on links."""


class Link(NamedTuple):
    """One direction between two places, named as nodes are."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message under way.

    ``arrive`` hands it over, ``fail`` informs the caller that there will be no answer; both do nothing for a process
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
    """Its partition epoch."""

    def __str__(self) -> str:
        return f"{self.link} {self.text}"


class Wire:
    """Every link, with what waits on it."""

    def __init__(self) -> None:
        self._waiting: list[Envelope] = []
        self.held: set[Link] = set()
        self.cut: set[Link] = set()

    def send(self, envelope: Envelope) -> None:
        """Put a message at the end of its link."""
        self._waiting.append(envelope)

    def waiting(self) -> Iterator[Envelope]:
        """Everything under way, in the order in which it was sent."""
        return iter(tuple(self._waiting))

    def oldest(self, link: Link, kind: str | None = None) -> Envelope | None:
        """The oldest message of a link, or the oldest of one kind."""
        return next((e for e in self._waiting if e.link == link and kind in (None, e.kind)), None)

    def next_free(self) -> Envelope | None:
        """The oldest message that nothing holds back."""
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
        """Everything under way from or to a place."""
        return [e for e in self._waiting if place in e.link]
