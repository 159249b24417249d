"""The rules for truncation, for an answer's HW and for joining the ISR that Kafka abandoned; no server uses them.

They are here to show what they lose. Each of their flaws is stated. What they violate, with the shortest traces, is in
RELIABILITY.md#exhaustive-search.
"""

from __future__ import annotations

from strandline.core.log import truncation
from strandline.core.log.effects import Effect
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.truncation import AskedTruncation, Cut, EpochCache, FirstMove, cut_for
from strandline.core.serving.fetch import FetchServing, Received
from strandline.core.types import EpochEnd, FetchHw, IsrJoin, NodeId, Offset, Truncation


class Kip279Truncation(AskedTruncation):
    """`kip-279`: the right question and the right cut, but from any node that answers: the leader epoch is not
    compared.

    Its flaw is TR4: a leader counts a follower, and a follower believes a leader, in another epoch.
    """

    fenced = False
    checked = False
    forgiving = True
    proves_members = False
    asks_first = True

    def first_move(self, cache: EpochCache) -> FirstMove:
        """Ask; without any epoch only the HW can be used."""
        return FirstMove.ASK if cache.latest_epoch is not None else FirstMove.CUT_TO_HW

    def cut(self, cache: EpochCache, leo: Offset, hw: Offset, answer: EpochEnd | None) -> Cut | None:
        """Cut as in M38; an undefined answer means the own HW, the offset at which fetching would have begun."""
        return Cut(hw, True) if answer is None else cut_for(cache, leo, answer)


class Kip101Truncation(Kip279Truncation):
    """`kip-101`: one lookup, of which only the end offset was sent; no second question.

    Its flaw is TR3: the leader answers for an epoch it never had with the start of the next one, and the follower
    cannot tell.
    """

    def cut(self, cache: EpochCache, leo: Offset, hw: Offset, answer: EpochEnd | None) -> Cut | None:
        """Cut to the answered end or the own end, whichever is lower."""
        return Cut(hw if answer is None else min(answer.end_offset, leo), True)


class HighWatermarkTruncation(Kip279Truncation):
    """`high-watermark`: no question; cut to the known committed offset, as all releases before 0.11 did.

    Its flaws are TR1, an acknowledged record is cut because the HW came late, and TR2, a record that differs below
    the HW is never cut.
    """

    def first_move(self, cache: EpochCache) -> FirstMove:
        """Cut to the own HW."""
        return FirstMove.CUT_TO_HW


HISTORIC_TRUNCATION: dict[Truncation, AskedTruncation] = {
    Truncation.KIP_279: Kip279Truncation(),
    Truncation.KIP_101: Kip101Truncation(),
    Truncation.HIGH_WATERMARK: HighWatermarkTruncation(),
}
"""One strategy for each historic value of the rule; stateless, shared by all partitions."""

_answer, _may_join = FetchServing.answer, LeaderReplica._may_join


def answer_by_rule(serving: FetchServing, received: Received, out: list[Effect]) -> None:
    """`fetch-hw=updated`: an immediate answer carries the HW that this fetch itself has moved (D1)."""
    if serving._state.rules.fetch_hw is FetchHw.UPDATED:
        hw_of = {one.leader.log.tp: one.leader.log.hw for one in received.counted}
        results = [r._replace(high_watermark=hw_of.get(r.tp, r.high_watermark)) for r in received.results]
        received = received._replace(results=results)
    _answer(serving, received, out)


def may_join_by_rule(leader: LeaderReplica, node_id: NodeId, now_ms: int) -> bool:
    """`isr-join=hw`: at the HW is enough, and the next check of the lag may remove it again (T42)."""
    follower = leader.progress.get(node_id)
    if follower is None or leader._rules.isr_join is IsrJoin.CAUGHT_UP:
        return _may_join(leader, node_id, now_ms)
    caught_up_ms, follower.last_caught_up_ms = follower.last_caught_up_ms, now_ms
    try:
        return _may_join(leader, node_id, now_ms)
    finally:
        follower.last_caught_up_ms = caught_up_ms


def install() -> None:
    """Add the historic rules to those that a core of this process can run under."""
    truncation.inject(HISTORIC_TRUNCATION)
    FetchServing.answer = answer_by_rule  # type: ignore[method-assign, assignment]
    LeaderReplica._may_join = may_join_by_rule  # type: ignore[method-assign, assignment]
