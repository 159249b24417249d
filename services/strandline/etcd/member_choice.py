"""Decides which member of etcd the next call goes to.

Invariant: after a call without an answer the next one goes to a member that says that it knows a leader, where there is
one within the call's time. A member whose machine is gone keeps its connections open, and one without a leader keeps
its calls: taking the members in turn would cost a whole deadline for each of them (C3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from strandline.core.messages import Endpoint
from strandline.etcd.errors import EtcdError

LOOK_S = 0.25
"""How long a member may take to say whether it knows a leader."""
_AGAIN_S = 0.05

KnowsLeader = Callable[[Endpoint], Awaitable[bool]]
"""Asks one member whether it knows a leader; raises `EtcdError` if it does not say."""


class MemberChoice:
    """The members of one cluster of etcd, and the one that is asked."""

    def __init__(self, endpoints: Sequence[Endpoint], knows_leader: KnowsLeader) -> None:
        assert endpoints, "a cluster of etcd has at least one member"
        self.endpoints = tuple(endpoints)
        self._knows_leader = knows_leader
        self._index = 0
        self._left: Endpoint | None = None
        self._looking = asyncio.Lock()

    @property
    def member(self) -> Endpoint:
        """The member that the next call goes to, unless another one is found first."""
        return self.endpoints[self._index]

    def leave(self, member: Endpoint) -> None:
        """``member`` did not answer: ask another one next, unless another caller has left this one already."""
        if member == self.member:
            self._left = member
            self._index = (self._index + 1) % len(self.endpoints)

    async def settled(self, within_s: float) -> Endpoint:
        """The member to ask now, found within ``within_s`` seconds if the one before did not answer."""
        deadline_s = asyncio.get_running_loop().time() + within_s
        async with self._looking:
            if self._left is not None:
                await self._look_until(deadline_s, self._left)
        return self.member

    async def _look_until(self, deadline_s: float, left: Endpoint) -> None:
        """Find a member that knows a leader; without one, the next in turn is asked, and its answer says why."""
        loop = asyncio.get_running_loop()
        order = [*(each for each in self.endpoints if each != left), left]
        while True:
            said = await asyncio.gather(*(self._look(each) for each in order))
            if True in said:
                self._index = self.endpoints.index(order[said.index(True)])
                break
            # Members that answer and know no leader elect one; where none answers there is nothing to wait for.
            if False not in said or loop.time() + _AGAIN_S > deadline_s:
                break
            await asyncio.sleep(_AGAIN_S)
        self._left = None

    async def _look(self, member: Endpoint) -> bool | None:
        """Whether ``member`` knows a leader; None if it does not say."""
        try:
            return await asyncio.wait_for(self._knows_leader(member), LOOK_S)
        except (EtcdError, TimeoutError):
            return None
