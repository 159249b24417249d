"""What every measure gets: the plan, the servers, a directory of its own, and a way to speak.

A measure is a module with ``rows(bench)``, which yields rows for `benchmarks.json` one by one, so that an interrupted
run keeps what it had.

Invariant: a measurement that the host disturbed twice is dropped and named, never silently kept, and never replaced for
any reason but steal time: a slow round is a finding.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parties import Servers
from plan import Plan
from used_memory import UsedMemory

Row = dict[str, Any]
Figures = Mapping[str, Any]
_MOST_OF_AN_ERROR = 200


@dataclass(slots=True)
class Bench:
    """One run's means, and what could not be measured in it."""

    plan: Plan
    servers: Servers
    directory: Path
    say: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    """What a measure could not do, in sentences."""
    repeated: int = 0
    dropped: list[str] = field(default_factory=list)
    """Names of measurements that the host disturbed twice."""
    memory: UsedMemory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = UsedMemory(self.directory)

    def row(self, measure: Callable[[], Figures], **names: object) -> Iterator[Row]:
        """One row with these names and the measure's figures; none if it failed or the host disturbed it twice."""
        name = ", ".join(f"{key} {value}" if isinstance(value, int) else str(value) for key, value in names.items())
        figures = self.attempted(name, lambda: self._undisturbed(name, measure))
        if figures is not None:
            yield {**names, "figures": figures}

    def _undisturbed(self, name: str, measure: Callable[[], Figures]) -> Figures | None:
        for is_last in (False, True):
            figures = measure()
            if figures["steal_percent"] <= self.plan.most_steal_percent:
                return figures
            if not is_last:
                self.repeated += 1
        self.dropped.append(name)
        return None

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
