"""How a scenario is declared: one file per scenario, `scenarios/sNN_name.py`, with a constant `SCENARIO`.

Invariant: the plan is drawn before anything runs and is a list of steps that is stored with the result; playing the
plan draws nothing more.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.facilities import IPTABLES, NAMESPACES, Facility
from harness.fault import Step

from strandline.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from harness.run import Run

_FOLDER = Path(__file__).resolve().parents[1] / "scenarios"


async def _nothing(run: Run) -> None:
    """Most scenarios prepare nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The requested form of a scenario."""

    is_short: bool = False
    """The one that `make test-all` plays."""
    minutes: float = 30.0
    """Length of the soak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One of those in `scenarios/`."""

    number: int
    title: str
    plan: Callable[[random.Random, Form], list[Step]]
    """Draws the steps."""
    play: Callable[[Run], Awaitable[None]]
    """Plays ``run.plan`` while the load goes on, and leaves the cluster healed. May raise AssertionError."""
    demands: Callable[[Form], Mapping[str, int]]
    """Criterion V5: the least of each counter of `run.counters` that makes the run real, else it is void."""
    needs: tuple[Facility, ...] = (NAMESPACES, IPTABLES)
    prepare: Callable[[Run], Awaitable[None]] = _nothing
    """Runs before any process starts: mounts, wrappings, proxies. What it makes goes onto ``run.stack``."""
    after: Callable[[Run], Awaitable[None]] = _nothing
    """Looks at what the run left behind, after all processes have stopped, with `run.check`."""
    controller_settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, str] = field(default_factory=dict)
    declared_ends: frozenset[ExitCode] = frozenset()
    """Fail-stops that this scenario provokes: no failure under V3."""
    declared_alarms: tuple[str, ...] = ()
    """Words of log lines of level error that this scenario provokes: no failure under V3."""
    has_short_form: bool = False
    has_several: bool = False
    """Whether three controllers decide, on three members of etcd."""
    etcd_arguments: tuple[str, ...] = ()
    """Passed to each member as they are."""
    pause_s: float = 0.02
    """Pause of each producer between two records."""

    @property
    def name(self) -> str:
        """Number and title in one word."""
        return f"s{self.number:02d}-{self.title.lower().replace(' ', '-')}"


def scenarios() -> dict[int, Scenario]:
    """All scenarios, by number."""
    found = [importlib.import_module(f"scenarios.{path.stem}").SCENARIO for path in sorted(_FOLDER.glob("s*.py"))]
    return {scenario.number: scenario for scenario in found}
