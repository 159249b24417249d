"""How a log is reconciled with its leader's: the first move, the question, the cut, the fence.

Invariant: only `leader-epoch` and `fetch` are safe, and only they are here. The historic rules are injected by the
simulator (`sim.historic_rules`), so that no server can run under them.

The five values are the table of PROTOCOL.md#leader-epochs-and-truncation; what the historic ones violate, and by which
shortest traces, is in RELIABILITY.md#exhaustive-search.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from strandline.core.epochs import Cut, EpochCache, cut_for
from strandline.core.types import EpochEnd, Offset, Rules, Truncation


class FirstMove(StrEnum):
    """What a follower does when it begins to follow a leader in a new leader epoch."""

    ASK = "ask"
    """Ask OffsetForLeaderEpoch before anything else."""
    CUT_TO_HW = "cut_to_hw"
    """Cut to the own high watermark, which travels one round late and so knows too little (M40)."""
    FETCH = "fetch"
    """Fetch from the own log end."""


class AskedTruncation:
    """`leader-epoch`: ask, fenced by the leader epoch, cut by both logs, and let every Fetch check again (KIP-320)."""

    fenced = True
    """Whether a replica's questions count only in the leader epoch they name (KIP-320)."""
    checked = True
    """Whether a Fetch carries the last fetched epoch and is answered by a divergence (KIP-595, M31)."""
    forgiving = False
    """Whether a cut below the own HW is done and reported instead of refused (M41)."""
    proves_members = True
    """Whether a process that started again has to show its log before it may be elected (M64)."""
    asks_first = True
    """Whether a follower knows that it agrees with its leader before its first Fetch (M66)."""

    def first_move(self, cache: EpochCache) -> FirstMove:
        """What to do first, given the own epochs; a log that knows none is empty, there is nothing to ask."""
        return FirstMove.ASK if cache.latest_epoch is not None else FirstMove.FETCH

    def cut(self, cache: EpochCache, leo: Offset, hw: Offset, answer: EpochEnd | None) -> Cut | None:
        """Where the answer to OffsetForLeaderEpoch says to cut (M38); None: nowhere, and the partition has failed.

        ``answer`` None is Kafka's (-1, -1), the leader knows nothing of the epoch. ``leo`` and ``hw`` are the own.
        """
        return None if answer is None else cut_for(cache, leo, answer)


class FetchTruncation(AskedTruncation):
    """`fetch`: no question at all; a divergence is found by the Fetch itself (Kafka since 2.7)."""

    asks_first = False

    def first_move(self, cache: EpochCache) -> FirstMove:
        """Fetch, whatever is known."""
        return FirstMove.FETCH


_STRATEGIES: dict[Truncation, AskedTruncation] = {
    Truncation.LEADER_EPOCH: AskedTruncation(),
    Truncation.FETCH: FetchTruncation(),
}
"""The strategies that ship; stateless, shared by all partitions."""

HISTORIC = frozenset({Truncation.KIP_279, Truncation.KIP_101, Truncation.HIGH_WATERMARK})
"""The values under which acknowledged records can be lost and replicas can differ for ever."""


def inject(strategies: Mapping[Truncation, AskedTruncation]) -> None:
    """Add strategies that are part of no server: the simulator brings the historic ones (`sim.historic_rules`)."""
    _STRATEGIES.update(strategies)


def rule_for(truncation: Truncation) -> AskedTruncation:
    """The strategy behind a value of the rule ``truncation``."""
    strategy = _STRATEGIES.get(truncation)
    assert strategy is not None, f"truncation={truncation} is a rule of history, which only the simulator has"
    return strategy


def historic_fault(rules: Rules) -> str | None:
    """Why no server may run under these rules; None if it may.

    Kafka abandoned them because they lose acknowledged records. Simulator, scenarios and searches show how.
    """
    today = Rules(durability=rules.durability)
    if rules.truncation in HISTORIC:
        return f"truncation={rules.truncation} loses acknowledged records and lets replicas differ for ever; {_REMEDY}"
    if rules.fetch_hw is not today.fetch_hw or rules.isr_join is not today.isr_join:
        return f"fetch-hw={rules.fetch_hw} and isr-join={rules.isr_join} are rules of history; {_REMEDY}"
    return None


_REMEDY = (
    "servers run leader-epoch or fetch, with fetch-hw=snapshot and isr-join=caught-up: copy the records into a new "
    "cluster; `strandline scenario run` shows what the historic rules do"
)
