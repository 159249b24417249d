"""One commit of a group at a time: what comes while one is under way goes with the next (G31).

Invariants: at most one commit of a consumer is under way, so a repeated one never overtakes a later one; everybody who
asked for a commit hears of the outcome of a request that had their positions, or later ones, in it. A commit names the
epoch that its member had when it was asked for: a member that lost a partition meanwhile and has it again must not
commit what it had read before, over what another committed in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from strandline.client.background import Background
from strandline.client.committed_offsets import AsMember, OffsetAndMetadata
from strandline.client.errors import CommitFailed
from strandline.client.topic_partition import TopicPartition
from strandline.core.errors import ErrorCode, Outcome, Refusal

Positions = dict[TopicPartition, OffsetAndMetadata]
Send = Callable[[Positions, AsMember | None], Awaitable[dict[TopicPartition, Refusal]]]
"""Commits as this member; returns the partitions that were refused."""
Done = Callable[[Positions, CommitFailed | None], None]
_CUT_OFF = Refusal(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed meanwhile", Outcome.MAY_APPEAR)
_NOT_SENT = Refusal(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed before", Outcome.NOT_APPENDED)

NO_REFUSALS: Mapping[TopicPartition, Refusal] = MappingProxyType({})


class _Asked(NamedTuple):
    offsets: Positions
    done: Done | None
    member: AsMember | None
    refused: Mapping[TopicPartition, Refusal]


class Commits:
    """The commits of one consumer."""

    def __init__(
        self, group_id: str, send: Send, background: Background, member: Callable[[], AsMember | None]
    ) -> None:
        self._group_id = group_id
        self._send = send
        self._member = member
        self._background = background
        self._asked: list[_Asked] = []
        self._is_sending = False

    def add(
        self,
        offsets: Positions,
        done: Done | None,
        refused: Mapping[TopicPartition, Refusal] = NO_REFUSALS,
    ) -> None:
        """Commit these except for ``refused``; ``done`` is called once, when it is known what became of it."""
        self._asked.append(_Asked(offsets, done, self._member(), refused))
        if not self._is_sending:
            self._is_sending = True
            self._background.start(self._send_all, "commit offsets", once=True)

    async def _send_all(self) -> None:
        try:
            while self._asked:
                member, first = next(groupby(self._asked, lambda one: one.member))
                asked = list(first)
                self._asked = self._asked[len(asked) :]
                merged: Positions = {}
                for one in asked:
                    merged |= {tp: position for tp, position in one.offsets.items() if tp not in one.refused}
                failed = dict.fromkeys(merged, _CUT_OFF)
                try:
                    failed = await self._send(merged, member) if merged else {}
                finally:
                    self._tell(asked, failed)
        finally:
            self._is_sending = False
            rest, self._asked = self._asked, []
            for one in rest:
                self._tell([one], dict.fromkeys(one.offsets, _NOT_SENT))

    def _tell(self, asked: list[_Asked], failed: Mapping[TopicPartition, Refusal]) -> None:
        for one in asked:
            if one.done is not None:
                one.done(one.offsets, self._failure(one.offsets, {**failed, **one.refused}))

    def _failure(self, offsets: Positions, failed: Mapping[TopicPartition, Refusal]) -> CommitFailed | None:
        refused = {tp: failed[tp] for tp in offsets if tp in failed}
        return CommitFailed(self._group_id, refused) if refused else None
