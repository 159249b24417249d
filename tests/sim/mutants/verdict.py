"""A test layer's verdict on a mutant, and when that counts as a kill.

Invariant: a mutant is killed by a property that must never be broken, by a liveness promise that is not kept, by a
claim that a scenario makes, or by a unit test that it names; never by output that is only different.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Layer(StrEnum):
    """The layers, the cheapest first."""

    TESTS = "tests"
    """Unit tests, of a mutant that names some."""
    SCENARIOS = "scenarios"
    SEEDS = "seeds"
    SEARCH = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one layer.

    Attributes:
        killed_by: the invariant (I5), promise of liveness (L6), anomaly or claim; empty if the mutant survived.
        where: the scenario with its line, the seed with its profile, or the model.
        why: the message with which it failed.
        tried: how many tests, scenarios, seeds or states it took, the killing one included.
        seconds: how much processor time that took, so that a busy machine changes no verdict.
        note: other information, such as scenarios that only printed something else.
    """

    layer: Layer
    killed_by: str = ""
    where: str = ""
    why: str = ""
    tried: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def is_kill(self) -> bool:
        """Whether this layer alone would have caught the mutant."""
        return bool(self.killed_by)

    @property
    def is_by_property(self) -> bool:
        """Whether a named property was broken, not only a claim of one file."""
        return self.is_kill and self.killed_by != "test" and not self.killed_by.startswith("expect-")

    def as_json(self) -> dict[str, Any]:
        """For `docs/mutants.json`."""
        return asdict(self)
