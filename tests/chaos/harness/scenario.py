"""How a scenario is declared, as a class in `scenarios/`, and what a fault is: something that can be done and undone.

Invariants: the plan is drawn before anything runs and is a list of steps that is stored with the result; playing the
plan draws nothing more. `Fault.undo` may be called at any time, also twice and after `apply` failed half way;
afterwards the fault is gone. Faults are undone in the reverse order of their beginning.
"""

from __future__ import annotations

import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from harness.facilities import ETCD, IPTABLES, NAMESPACES, Facility

from strandline.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from harness.cluster import Cluster
    from harness.run import Run

_FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
_T = TypeVar("_T")


class Fault(ABC):
    """One fault.

    Subclasses are dataclasses; their fields are its arguments and appear in the plan and the log of the run.
    """

    @abstractmethod
    async def apply(self, cluster: Cluster) -> None:
        """Makes the fault happen; returns when it is in force."""

    @abstractmethod
    async def undo(self, cluster: Cluster) -> None:
        """Undoes it; returns when it is gone."""

    @property
    def kind(self) -> str:
        """The name under which it is counted."""
        return type(self).__name__

    @property
    def effects(self) -> Mapping[str, int]:
        """What it did, by the names of `Run.counters`; known after `undo`."""
        return {}

    def described(self) -> str:
        """One line for the log of the run."""
        words = asdict(self) if is_dataclass(self) and not isinstance(self, type) else {}
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in words.items())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a fault plan: what is to happen, with arguments that can be written as JSON."""

    what: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The requested form of a scenario."""

    is_short: bool = False
    """The one that `make test-all` plays."""
    minutes: float = 30.0
    """Length of the soak."""

    def of(self, full: _T, short: _T) -> _T:
        """The one of two values that this form has."""
        return short if self.is_short else full


class Scenario:
    """One of those in `scenarios/`, which override what differs. One that needs etcd has several controllers."""

    number: int
    title: str
    needs: tuple[Facility, ...] = (NAMESPACES, IPTABLES)
    controller_settings: ClassVar[Mapping[str, str]] = {}
    node_settings: ClassVar[Mapping[str, str]] = {}
    declared_ends: frozenset[ExitCode] = frozenset()
    """Fail-stops that this scenario provokes: no failure under V3."""
    declared_alarms: tuple[str, ...] = ()
    """Words of log lines of level error that this scenario provokes: no failure under V3."""
    has_short_form: bool = False
    node_ids: tuple[int, ...] = (1, 2, 3)
    has_tls: bool = False
    """Whether the processes have certificates, and the clients too."""
    etcd_arguments: tuple[str, ...] = ()
    """Passed to each member as they are."""
    pause_s: float = 0.02
    """Pause of each producer between two records."""

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        raise NotImplementedError

    async def prepare(self, run: Run) -> None:
        """Runs before any process starts: mounts, wrappings, proxies. What it makes goes onto ``run.stack``."""

    async def ready(self, run: Run) -> None:
        """Runs when every process serves, before the load."""

    async def play(self, run: Run) -> None:
        """Plays ``run.plan`` while the load goes on, and leaves the cluster healed. May raise AssertionError."""
        raise NotImplementedError

    async def after(self, run: Run) -> None:
        """Looks at what the run left behind, after all processes have stopped, with `run.check`."""

    def demands(self, form: Form) -> Mapping[str, int]:
        """Criterion V5: the least of each counter of `run.counters` that makes the run real, else it is void."""
        raise NotImplementedError

    @property
    def has_several(self) -> bool:
        """Whether three controllers decide, on three members of etcd."""
        return ETCD in self.needs

    @property
    def name(self) -> str:
        return f"s{self.number:02d}-{self.title.lower().replace(' ', '-')}"


@cache
def scenarios() -> dict[int, Scenario]:
    for path in sorted(_FOLDER.glob("*.py")):
        importlib.import_module(f"scenarios.{path.stem}")
    found = [kind() for kind in _kinds(Scenario) if "number" in vars(kind) and kind.__module__.startswith("scenarios.")]
    return {scenario.number: scenario for scenario in sorted(found, key=lambda each: each.number)}


def _kinds(kind: type[Scenario]) -> list[type[Scenario]]:
    return [found for below in kind.__subclasses__() for found in (below, *_kinds(below))]
