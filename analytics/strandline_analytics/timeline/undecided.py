"""When nobody decided, and why: from the reigns of several controllers and what their store did.

A reign that says no end, because its process was killed or stopped, lasts to the last event that its controller wrote.
Of a Kafka cluster the import says where no record was committed for long.

Invariant: of a cluster of ours that never had several controllers nothing is said; before the first event of a reign or
of the store it is not known whether somebody decided, and it is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from strandline_analytics.timeline.event import Event

KINDS = ("CONTROLLER_REIGN", "STORE")
_SILENT_MS = re.compile(r"no decision for (\d+) ms ")
"""How the import of Kafka's metadata log begins the outcome of a decision `silent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Nobody decided in [t0, t1), us; ``t1`` is None where nobody does yet."""

    t0: int
    t1: int | None
    why: str

    @property
    def sentence(self) -> str:
        """The span in words."""
        until = "and nothing is yet" if self.t1 is None else f"for {(self.t1 - self.t0) / 1e6:,.1f} s"
        return f"nothing was decided {until}: {self.why}"

    def overlaps(self, begin_us: int, end_us: int) -> bool:
        """Whether it has a moment in [begin_us, end_us)."""
        return self.t0 < end_us and (self.t1 is None or self.t1 > begin_us)


def undecided(events: Iterable[Event]) -> list[Undecided]:
    """The spans without decisions, in order of time; ``events`` are those of one cluster, in any order."""
    course = _Course()
    for event in sorted((e for e in events if e.by_controller), key=lambda e: (e.t_us, e.incarnation, e.seq)):
        course.take(event)
    return course.spans()


class _Course:
    """Who decides, while the events go by."""

    def __init__(self) -> None:
        self._found: list[Undecided] = []
        self._since: tuple[int, str] | None = None
        self._token = -1
        self._last_word: Event | None = None
        """Of the process that decides; None while nobody does."""

    def take(self, event: Event) -> None:
        """The next event."""
        if event.event_type in KINDS:
            # A process that went on after it was replaced speaks of a reign that is over.
            if event.get("token") >= self._token:
                self._take_reign(event)
        elif event.get("decision") == "silent" and (said := _SILENT_MS.match(str(event.get("outcome")))):
            began_us = event.t_us - 1_000 * int(said[1])
            self._found.append(Undecided(t0=began_us, t1=event.t_us, why="Kafka's controllers committed no record"))
        elif self._last_word is not None and event.incarnation == self._last_word.incarnation:
            self._last_word = event

    def _take_reign(self, event: Event) -> None:
        begins = event.event_type == "CONTROLLER_REIGN" and event.get("phase") == "begin"
        if begins and self._last_word is not None:
            self._since = self._last_word.t_us, "the controller that decided was gone without a word"
        if begins or event.get("phase") == "back":
            self._close(event)
            self._token, self._last_word = event.get("token"), event
        elif self._since is None:
            self._since, self._last_word = (event.t_us, _why(event)), None

    def _close(self, event: Event) -> None:
        if self._since is not None and event.t_us > self._since[0]:
            self._found.append(Undecided(t0=self._since[0], t1=event.t_us, why=self._since[1]))
        self._since = None

    def spans(self) -> list[Undecided]:
        """What was found, with the span that is still open."""
        if self._since is None:
            return self._found
        return [*self._found, Undecided(t0=self._since[0], t1=None, why=self._since[1])]


def _why(event: Event) -> str:
    if event.event_type == "STORE":
        reasons = {"away": "the controllers' store did not answer", "full": "the controllers' store had no space"}
        return reasons.get(str(event.get("phase")), "the controllers' store went back in time")
    if event.cause == "hand_over":
        return f"controller {event.get('controller_id')} handed over"
    return f"controller {event.get('controller_id')} was deposed"
