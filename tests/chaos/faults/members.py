"""Faults of the members of a consumer group: killed, paused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.fault import Fault

if TYPE_CHECKING:
    from harness.client_process import ClientProcess
    from harness.cluster import Cluster


class Members(Protocol):
    """Processes that are members of one group, by their slots."""

    def member(self, slot: int) -> ClientProcess:
        """The process of a slot's present member."""

    async def begin(self, slot: int) -> None:
        """Starts a member, unless it runs or the run is over."""


@dataclass(slots=True, eq=False)
class MemberKilled(Fault):
    """`kill -9` of a member; undone by starting another one in its place."""

    group: Members
    slot: int

    async def apply(self, cluster: Cluster) -> None:
        await self.group.member(self.slot).kill()

    async def undo(self, cluster: Cluster) -> None:
        await self.group.begin(self.slot)

    def described(self) -> str:
        return f"{self.kind}({self.group.member(self.slot).name})"


@dataclass(slots=True, eq=False)
class MemberPaused(Fault):
    """SIGSTOP of a member: it sends no heartbeats, and goes on later where it was."""

    group: Members
    slot: int

    async def apply(self, cluster: Cluster) -> None:
        self.group.member(self.slot).pause()

    async def undo(self, cluster: Cluster) -> None:
        self.group.member(self.slot).resume()

    def described(self) -> str:
        return f"{self.kind}({self.group.member(self.slot).name})"
