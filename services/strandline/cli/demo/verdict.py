"""The end of the demo: which checks passed, which figures it gives, and with which exit code it leaves.

Invariant: one failed check makes the verdict a failure; a check that could not be made has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One sentence, whether it held, and the number that shows it."""

    sentence: str
    held: bool
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All checks, and the figures of the run in the order of printing."""

    checks: tuple[Check, ...]
    figures: dict[str, str] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    """The same figures as numbers, for `verdict.json` in the run's directory."""

    @property
    def passed(self) -> bool:
        """Whether every check held (and there was one)."""
        return bool(self.checks) and all(check.held for check in self.checks)

    @property
    def exit_code(self) -> int:
        """0 when every check held, else 1."""
        return 0 if self.passed else 1

    def document(self) -> dict[str, Any]:
        """The verdict for programs."""
        checks = [{"check": check.sentence, "held": check.held, "shown": check.shown} for check in self.checks]
        return {"passed": self.passed, "checks": checks, **self.raw}
