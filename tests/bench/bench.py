"""What every measure gets: the plan, the servers, a directory of its own, the rule of steal time, and a way to speak.

A measure is a module with ``rows(bench)``, which yields rows for `benchmarks.json` one by one, so that an interrupted
run keeps what it had, and ``expected_s(plan)``, about how long it takes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plan import Plan
from servers import Servers
from steady import Steady
from used_memory import UsedMemory

Row = dict[str, Any]
Figures = Mapping[str, Any]
_MOST_OF_AN_ERROR = 200


@dataclass(slots=True)
class Bench:
    """One run's means."""

    plan: Plan
    servers: Servers
    directory: Path
    say: Callable[[str], None]
    steady: Steady = field(default_factory=Steady)
    notes: list[str] = field(default_factory=list)
    """What a measure could not do, in sentences."""
    memory: UsedMemory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = UsedMemory(self.directory)

    def row(self, measure: Callable[[], Figures], **names: object) -> Iterator[Row]:
        """One row with these names and the measure's figures; none if it failed or the host disturbed it twice."""
        name = ", ".join(f"{key} {value}" if isinstance(value, int) else str(value) for key, value in names.items())
        figures = self.attempted(name, lambda: self.steady.measured(name, measure))
        if figures is not None:
            yield {**names, "figures": figures}

    def attempted(self, name: str, measure: Callable[[], Figures | None]) -> Figures | None:
        """What ``measure`` returns.

        If it fails, that is a note, which the page shows, so that one bad minute does not cost the others.
        """
        self.say(name)
        # What one party left to be written to the disk must not slow the next one down.
        os.sync()
        if self.plan.fills_memory:
            self.memory.fill()
        try:
            return measure()
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            said = str(error).strip() or type(error).__name__
            self.note(f"{name} failed: {said.splitlines()[-1][:_MOST_OF_AN_ERROR]}")
            return None

    def note(self, sentence: str) -> None:
        """Something that could not be measured."""
        self.notes.append(sentence)
        self.say(sentence)


class Measure(Protocol):
    """A module that measures one thing."""

    def rows(self, bench: Bench) -> Iterator[Row]:
        """The rows, one by one."""
        ...

    def expected_s(self, plan: Plan) -> float:
        """About how long it takes."""
        ...
