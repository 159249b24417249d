"""What every measure gets: the plan, the servers, a directory of its own, the rule of steal time, and a way to speak.

A measure is a module with ``rows(bench)``, which yields rows for `benchmarks.json` one by one, so that an interrupted
run keeps what it had, and ``expected_s(plan)``, about how long it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plan import Plan
from servers import Servers
from steady import Steady

Row = dict[str, Any]


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

    def row(self, measure: Callable[[], Mapping[str, Any]], **names: object) -> Iterator[Row]:
        """One row with these names and the measure's figures; none if the host disturbed it twice."""
        name = ", ".join(f"{key} {value}" if isinstance(value, int) else str(value) for key, value in names.items())
        self.say(name)
        figures = self.steady.measured(name, measure)
        if figures is not None:
            yield {**names, "figures": figures}


class Measure(Protocol):
    """A module that measures one thing."""

    def rows(self, bench: Bench) -> Iterator[Row]:
        """The rows, one by one."""
        ...

    def expected_s(self, plan: Plan) -> float:
        """About how long it takes."""
        ...
