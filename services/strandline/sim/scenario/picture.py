"""What one moment of a scenario looks like: a frame, with a lane for each node and everything under way.

Invariant: a frame is values alone, taken when it was; so a film can be stepped through in both directions, and its
frames can be drawn by anybody (`picture_drawing.py`) and compared in tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Fate(StrEnum):
    """What becomes of a message at this moment."""

    WAITING = "waiting"
    HELD = "held"
    ARRIVING = "arriving"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Cell:
    """One record of a log, at its offset."""

    offset: int
    epoch: int
    value: str

    def __str__(self) -> str:
        return f"{self.value}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class Lane:
    """One node: what it does, and its log as it lies on its disk."""

    name: str
    role: str
    """What it does, in words: ``leads epoch 1``, ``down``."""
    is_up: bool
    leads: bool
    cells: tuple[Cell, ...]
    log_start: int
    leo: int
    hw: int
    durable: int
    """The log end that a loss of power leaves."""
    counts: str = ""
    """On a leader: whom it counts, and what it knows of their log ends."""
    cut: tuple[Cell, ...] = ()
    """Records that were here in the frame before and are gone."""
    changed: frozenset[str] = frozenset()
    """Which of ``role``, ``leo``, ``hw``, ``counts`` differ from the frame before."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One message between two places."""

    source: str
    target: str
    kind: str
    text: str
    fate: Fate = Fate.WAITING


class Answer(StrEnum):
    """What a producer knows of what it sent."""

    ACKED = "acknowledged"
    WAITING = "waiting"
    REFUSED = "refused"
    NONE = "no answer"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of a producer that wants an answer."""

    label: str
    answer: Answer
    is_lost: bool = False
    """Whether it was acknowledged and is in no log now."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An expectation that was looked at while the picture stood like this."""

    text: str
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment."""

    line: int
    """The command's line in the file, counted from 1."""
    command: str
    narration: tuple[str, ...]
    """The comment right above the command."""
    time_ms: int
    reported: tuple[str, ...]
    """What was printed since the frame before."""
    controller: str
    """The partition as the controller committed it, or that it is down."""
    controller_changed: bool
    lanes: tuple[Lane, ...]
    flights: tuple[Flight, ...]
    sent: tuple[Sent, ...] = ()
    cut_links: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def scene(self) -> object:
        """What can be seen, without what was said about it."""
        lanes = tuple(replace(lane, cut=(), changed=frozenset()) for lane in self.lanes)
        return self.controller, lanes, self.flights, self.sent, self.cut_links


@dataclass(frozen=True, slots=True)
class Film:
    """A whole run: its frames in order. ``failure`` is why it ended early, or empty."""

    name: str
    title: str
    frames: tuple[Frame, ...] = field(default_factory=tuple)
    failure: str = ""
