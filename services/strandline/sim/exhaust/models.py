"""Which searches there are: a variant of the rules, the bounds, and what was published about it.

Invariant: a published violation must be found, whatever its length here; under rules that are safe nothing may be
found. Where a length differs from the published one, the row says why, and docs/RELIABILITY.md shows it by the traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.sim.exhaust.properties import Property


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

    def __str__(self) -> str:
        parts = ", ISR changes in parts" if self.slow_isr else ""
        return f"{self.replicas} replicas, {self.records} records, epochs 0..{self.max_leader_epoch}{parts}"


@dataclass(frozen=True, slots=True)
class Model:
    """One search, and what is expected of it."""

    name: str
    variant: str
    bounds: Bounds
    published: Mapping[Property, int | None]
    """Steps of the shortest published trace by property; None where it is published that the property holds."""

    def is_as_published(self, found: Mapping[Property, int]) -> bool:
        """Whether every published violation was found."""
        return all(length is None or name in found for name, length in self.published.items())


WEAK, STRONG, LOST, DIVERGED = Property.WEAK_ISR, Property.STRONG_ISR, Property.LOST, Property.DIVERGED
ALL: dict[Property, int | None] = dict.fromkeys(Property)


def _two(records: int, epochs: int, *, slow_isr: bool = False) -> Bounds:
    return Bounds(2, records, epochs, slow_isr=slow_isr)


def _three(records: int, epochs: int = 2, *, slow_isr: bool = False) -> Bounds:
    return Bounds(3, records, epochs, slow_isr=slow_isr)


MODELS: tuple[Model, ...] = (
    Model("high-watermark", "high-watermark", _two(2, 2), {WEAK: 8, STRONG: 9, DIVERGED: 10, LOST: 11}),
    Model("kip-101", "kip-101", _two(2, 3), {DIVERGED: 10, WEAK: 11, STRONG: 11, LOST: 13}),
    Model("kip-279-two", "kip-279", _two(3, 3), {WEAK: None, DIVERGED: None, LOST: 13}),
    Model("kip-279", "kip-279", _three(1), {STRONG: 10}),
    Model("first-try", "first-try", _three(1), {STRONG: 12}),
    Model("hw-unfenced", "hw-unfenced", _three(1), {STRONG: 12}),
    Model("truncation-unfenced", "truncation-unfenced", _three(2), {STRONG: 13}),
    Model("no-epoch-start", "no-epoch-start", _three(1), {STRONG: 11}),
    Model("fetch-unfenced", "fetch-unfenced", _three(2), {STRONG: None}),
    Model("fetch", "fetch", _three(2), ALL),
    Model("leader-epoch-two", "leader-epoch", _two(3, 3, slow_isr=True), ALL),
    Model("leader-epoch-in-parts", "leader-epoch", _three(1, slow_isr=True), ALL),
    Model("leader-epoch", "leader-epoch", _three(2), ALL),
)
