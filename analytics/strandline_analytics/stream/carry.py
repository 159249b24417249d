"""The state kept of everything before the open windows, and its form in the state store.

Invariant: it is read back as it was written; its size grows with replicas, leader epochs and unfinished stalls, not
with time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from strandline_analytics.stream.control_fold import Held, Terms
from strandline_analytics.stream.feed import Story
from strandline_analytics.stream.spans import LastLook, Leader, Series, Stall, StallKey, series_of

FORMAT = 4
"""The version written with every carry; a change of a meaning or a name raises it."""


Times = list[tuple[int, int]]
"""A moment for each leader epoch, us."""


class UnknownFormat(Exception):
    """A checkpoint was written by another version."""


@dataclass(slots=True)
class Moves:
    """When a replica last came back and last left, us, and the number of the session of its removals."""

    came: int | None = None
    went: int | None = None
    session: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A closed window whose stalls are not all settled: its start, its observed time, its flaws."""

    start_us: int
    looked_us: int
    flaws: Mapping[str, int]


@dataclass(slots=True)
class Carry:
    """The kept state of a partition. ``start_us`` is the start of the first open window; None before any report."""

    start_us: int | None = None
    topic: str | None = None
    is_done: bool = False
    held: Held | None = None
    terms: Terms = field(default_factory=lambda: Terms({}))
    last_looks: dict[Series, LastLook] = field(default_factory=dict)
    # A look that is later than the first look of a later leader is not used.
    first_looks: dict[Leader, int] = field(default_factory=dict)
    moves: dict[int, Moves] = field(default_factory=dict)
    # The last advance of each reign: a stall may begin at it.
    advances: list[Story] = field(default_factory=list)
    stalls: dict[StallKey, Stall] = field(default_factory=dict)
    under_min: list[tuple[int, int]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)

    def copy_of_stalls(self) -> dict[StallKey, Stall]:
        """A copy of the stalls that can be changed."""
        return {key: replace(stall, blockers=list(stall.blockers)) for key, stall in self.stalls.items()}

    def copy_of_moves(self) -> dict[int, Moves]:
        """A copy of the moves that can be changed."""
        return {replica: replace(moves) for replica, moves in self.moves.items()}

    def to_json(self) -> str:
        """The carry as one line of text."""
        plain = {
            "format": FORMAT,
            "start_us": self.start_us,
            "topic": self.topic,
            "is_done": self.is_done,
            "held": None if self.held is None else asdict(self.held),
            "terms": [
                sorted(self.terms.starts.items()),
                self.terms.deleted_us,
                sorted(self.terms.changed.items()),
                sorted(self.terms.taken_up.items()),
            ],
            "first_looks": sorted(self.first_looks.items()),
            "last_looks": [[last.at, last.story] for last in self.last_looks.values()],
            "moves": [[replica, asdict(moves)] for replica, moves in self.moves.items()],
            "advances": self.advances,
            "stalls": [[key, asdict(stall)] for key, stall in self.stalls.items()],
            "under_min": self.under_min,
            "pending": [asdict(one) for one in self.pending],
        }
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Carry:
        """Read the text that `to_json` wrote.

        Raises:
            UnknownFormat: another version wrote it.
        """
        plain = json.loads(text)
        if plain.get("format") != FORMAT:
            raise UnknownFormat(
                f"the checkpoint holds state of format {plain.get('format')}, this version writes {FORMAT}: begin with "
                "a new checkpoint; the batch recomputes what lies before it"
            )
        lasts = [LastLook(at, story) for at, story in plain["last_looks"]]
        return cls(
            start_us=plain["start_us"],
            topic=plain["topic"],
            is_done=plain["is_done"],
            held=None if plain["held"] is None else _held(plain["held"]),
            terms=_terms(*plain["terms"]),
            first_looks={tuple(leader): at for leader, at in plain["first_looks"]},
            last_looks={series_of(last.story): last for last in lasts},
            moves={replica: Moves(**moves) for replica, moves in plain["moves"]},
            advances=plain["advances"],
            stalls={tuple(key): Stall(**stall) for key, stall in plain["stalls"]},
            under_min=[(start, end) for start, end in plain["under_min"]],
            pending=[Pending(**one) for one in plain["pending"]],
        )


def _terms(starts: Times, deleted_us: int | None, changed: Times, taken_up: Times) -> Terms:
    return Terms(dict(starts), deleted_us, dict(changed), dict(taken_up))


def _held(plain: dict[str, Any]) -> Held:
    lists = {name: tuple(plain[name]) for name in ("order", "isr", "replicas", "adding") if plain[name] is not None}
    return Held(**(plain | lists))
