"""Which searches there are: a variant of the rules, the bounds, and what was published about it (`reliability` 1.4)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the searched world is."""

    replicas: int
    records: int
    """Records written in all, by whomever."""
    max_leader_epoch: int
    min_isr: int = 1
    slow_isr: bool = True
    """Whether a proposed ISR may reach the controller later, and the controller's answer may get lost."""
