"""A fault: something that can be done to a cluster and undone.

Invariant: `undo` may be called at any time, also twice and after `apply` failed half way; afterwards the fault is gone.
Faults are undone in the reverse order of their beginning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.cluster import Cluster


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

    def described(self) -> str:
        """One line for the log of the run."""
        words = asdict(self) if is_dataclass(self) and not isinstance(self, type) else {}
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in words.items())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a fault plan: what is to happen, with arguments that can be written as JSON."""

    what: str
    args: dict[str, Any]
